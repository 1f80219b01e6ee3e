//! The login of a host, as a run inside walls has it: a copy that the host can renew. Of what the run wrote, only renewed
//! tokens are taken over. A login can also say where the model is, or whose settings to load, and the host obeys it in
//! the owner's own runs.

use std::{
    io,
    path::{Path, PathBuf},
};

use attache_os::{private_file, small_file};
use attache_sandbox::FileOverlay;
use serde_json::Value;

use crate::scratch::ScratchFolder;

#[derive(Debug)]
pub(super) struct LoginCopy {
    login: PathBuf,
    copy: PathBuf,
    before: String,
}

/// What became of a login.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoginChange {
    Unchanged,
    Renewed,
}

/// A login has a few tokens.
const MAX_LOGIN: u64 = 1 << 20;

// === impl LoginCopy ===

impl LoginCopy {
    /// Copies a login into a folder that isn't visible inside. `None` if there is none.
    pub(super) fn create(login: &Path, folder: &ScratchFolder, number: usize) -> io::Result<Option<Self>> {
        let Ok(login) = login.canonicalize() else { return Ok(None) };
        let before = small_file::read(&login, MAX_LOGIN)?;
        let copy = folder.path().canonicalize()?.join(format!("login-{number}"));
        private_file::create(&copy, before.as_bytes())?;
        Ok(Some(Self { login, copy, before }))
    }

    pub(super) fn overlay(&self) -> FileOverlay {
        FileOverlay { file: self.copy.clone(), shown_at: self.login.clone() }
    }

    /// Takes renewed tokens over, once the run has ended. Fails if the run changed more than that.
    pub(super) fn take_over(&self) -> io::Result<LoginChange> {
        let after = small_file::read(&self.copy, MAX_LOGIN)?;
        // Another run, or the owner, may have renewed it meanwhile.
        let is_current = || small_file::read(&self.login, MAX_LOGIN).is_ok_and(|now| now == self.before);
        if after == self.before || !is_current() {
            return Ok(LoginChange::Unchanged);
        }
        if !is_renewal(&self.before, &after) {
            return Err(io::Error::other("more than its tokens was changed"));
        }
        private_file::write(&self.login, after.as_bytes())?;
        Ok(LoginChange::Renewed)
    }
}

/// Whether two logins differ only in tokens and their expiry.
fn is_renewal(before: &str, after: &str) -> bool {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    parsed(before).zip(parsed(after)).is_some_and(|(before, after)| is_renewed(&before, &after, ""))
}

fn is_renewed(before: &Value, after: &Value, name: &str) -> bool {
    match (before, after) {
        (before, after) if before == after => true,
        (Value::Object(before), Value::Object(after)) => {
            before.keys().all(|name| after.contains_key(name))
                && after.iter().all(|(name, after)| match before.get(name) {
                    Some(before) => is_renewed(before, after, name),
                    None => is_token(name, after),
                })
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len()
                && before.iter().zip(after).all(|(before, after)| is_renewed(before, after, name))
        }
        (Value::Object(_) | Value::Array(_), _) => false,
        (_, after) => is_token(name, after),
    }
}

/// Whether a member holds a token or its expiry, and not an address such as `token_endpoint`.
fn is_token(name: &str, value: &Value) -> bool {
    let name = name.to_ascii_lowercase();
    // opencode calls the tokens `access` and `refresh`.
    let is_named = name == "access" || ["token", "expir", "refresh"].iter().any(|word| name.contains(word));
    let is_plain = match value {
        Value::String(text) => !text.contains(['/', ':', '@', ' ']) || is_time(text) || is_base64(text),
        Value::Number(_) | Value::Null => true,
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    };
    is_named && is_plain
}

fn is_time(text: &str) -> bool {
    text.parse::<attache_protocol::Timestamp>().is_ok()
}

/// A token in base64 can contain slashes, and is no path or address for that.
fn is_base64(text: &str) -> bool {
    !text.starts_with('/') && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "+/=-_.~".contains(letter))
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    #[test]
    fn only_tokens_are_renewed() {
        let before = r#"{"oauth":{"accessToken":"a","refreshToken":"b","expiresAt":1,"scopes":["x"]},"base_url":"https://m/v1",
            "last_refresh":"2026-11-17T10:00:00Z","account_id":"me"}"#;
        let changed = |from: &str, to: &str| {
            assert!(before.contains(from), "{from}");
            is_renewal(before, &before.replacen(from, to, 1))
        };
        assert!(changed(r#""accessToken":"a""#, r#""accessToken":"eyJh.b/+c_d==.e-f""#));
        assert!(changed(r#""expiresAt":1"#, r#""expiresAt":1763400000000"#));
        assert!(changed(r#""expiresAt":1"#, r#""expiresAt":1,"refreshTokenExpiresAt":5"#));
        assert!(changed("2026-11-17T10:00:00Z", "2026-11-17T18:30:00.123Z"));
        for (from, to) in [
            (r#""base_url":"https://m/v1""#, r#""base_url":"http://mallory/v1""#),
            (r#""account_id":"me""#, r#""account_id":"mallory""#),
            (r#""accessToken":"a""#, r#""accessToken":"http://mallory""#),
            (r#""accessToken":"a""#, r#""accessToken":"/etc/passwd""#),
            (r#""accessToken":"a""#, r#""accessToken":["a"]"#),
            (r#""accessToken":"a""#, r#""accessToken":"a","token_url":"https://mallory""#),
            (r#""account_id":"me""#, r#""account_id":"me","http://mallory":{"type":"wellknown","token":"y"}"#),
            (r#","account_id":"me""#, ""),
            (r#""scopes":["x"]"#, r#""scopes":["x","y"]"#),
        ] {
            assert!(!changed(from, to), "{to}");
        }
        let opencode = |access: &str, kind: &str| {
            format!(r#"{{"p":{{"type":"{kind}","access":"{access}","refresh":"r","expires":1}}}}"#)
        };
        assert!(is_renewal(&opencode("a", "oauth"), &opencode("b", "oauth")));
        assert!(!is_renewal(&opencode("a", "oauth"), &opencode("a", "wellknown")));
        assert!(!is_renewal(before, "KEY=value") && !is_renewal("KEY=value", "KEY=other"));
    }

    #[test]
    fn what_a_run_wrote_is_taken_over_if_it_is_a_renewal() {
        let (home, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = ScratchFolder::create(scratch.path(), &Env::seeded(1)).unwrap();
        let login = home.path().join("auth.json");
        std::fs::write(&login, r#"{"token":"a"}"#).unwrap();
        let run = |number: usize, wrote: &str, meanwhile: Option<&str>| {
            let copy = LoginCopy::create(&login, &folder, number).unwrap().unwrap();
            assert_eq!(copy.overlay().shown_at, login.canonicalize().unwrap());
            std::fs::write(copy.overlay().file, wrote).unwrap();
            meanwhile.into_iter().for_each(|text| std::fs::write(&login, text).unwrap());
            (copy.take_over().ok(), std::fs::read_to_string(&login).unwrap())
        };
        assert_eq!(run(0, r#"{"token":"b"}"#, None), (Some(LoginChange::Renewed), r#"{"token":"b"}"#.to_owned()));
        assert_eq!(run(1, r#"{"token":"b","url":"c"}"#, None), (None, r#"{"token":"b"}"#.to_owned()));
        assert_eq!(
            run(2, r#"{"token":"c"}"#, Some(r#"{"token":"d"}"#)),
            (Some(LoginChange::Unchanged), r#"{"token":"d"}"#.to_owned())
        );
        assert!(LoginCopy::create(&home.path().join("none"), &folder, 3).unwrap().is_none());
    }
}
