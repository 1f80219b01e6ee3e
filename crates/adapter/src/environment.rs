//! The environment variables a child process may see: an allow-list, so secrets in the adapter's environment don't
//! reach a task.

use std::{ffi::OsString, fmt};

const ALLOWED: &[&str] = &["PATH", "HOME", "LANG", "TERM", "TMPDIR", "USER", "SHELL"];
const ALLOWED_PREFIX: &str = "LC_";

/// The variables for child processes. `Debug` shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(Vec<(OsString, OsString)>);

// === impl Environment ===

impl Environment {
    /// Selects from `pairs` (usually the full environment) the variables every task may see, plus those named in
    /// `also`.
    pub fn select<K, V>(pairs: impl IntoIterator<Item = (K, V)>, also: &[String]) -> Self
    where
        K: Into<OsString>,
        V: Into<OsString>,
    {
        let allowed = |name: &str| {
            ALLOWED.contains(&name) || name.starts_with(ALLOWED_PREFIX) || also.iter().any(|other| other == name)
        };
        let pairs = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self(pairs.filter(|(name, _): &(OsString, OsString)| name.to_str().is_some_and(allowed)).collect())
    }

    /// Adds one variable, whatever its name.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.0.push((name.into(), value.into()));
        self
    }

    /// The variables, for a process started elsewhere.
    pub fn into_pairs(self) -> Vec<(OsString, OsString)> {
        self.0
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsString> {
        self.0.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_names_pass() {
        let all = [
            ("PATH", "/bin"),
            ("LC_ALL", "C.UTF-8"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("CARGO_HOME", "/c"),
            ("path", "/no"),
        ];
        let selected = Environment::select(all, &["CARGO_HOME".to_owned()]).with("EXTRA", "1");
        let expected = [("PATH", "/bin"), ("LC_ALL", "C.UTF-8"), ("CARGO_HOME", "/c"), ("EXTRA", "1")];
        assert_eq!(selected.0, expected.map(|(name, value)| (OsString::from(name), OsString::from(value))));
        assert_eq!(format!("{selected:?}"), r#"["PATH", "LC_ALL", "CARGO_HOME", "EXTRA"]"#);
    }
}
