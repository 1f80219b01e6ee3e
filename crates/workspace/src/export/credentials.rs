//! Files that are useful without the credentials in them: each credential is replaced by asterisks of the same length,
//! so that sizes and offsets stay correct.

use std::{ffi::OsStr, io::Read as _, os::unix::ffi::OsStrExt as _, path::Path};

use super::{
    filter::{fold, originals},
    git_guard::REPOSITORIES,
};

/// How much of a file is checked, and what can be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MaskKind {
    /// Settings: checked as a whole. While it contains credentials, a lease can't change it, because writing back the
    /// masked content would overwrite them.
    Settings,
    /// Text to which git appends lines. Only URLs are checked.
    Log,
}

/// Longer settings files are not shown.
pub(super) const MAX_SETTINGS: u64 = 1 << 20;
/// The maximum length of a URL.
pub(super) const MAX_URL: usize = 16 << 10;

/// Settings files that contain credentials along with other things.
const SETTINGS: [&str; 14] = [
    ".npmrc",
    "npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".yarnrc.yaml",
    ".gitconfig",
    ".gitmodules",
    ".hgrc",
    "hgrc",
    "pip.conf",
    "pip.ini",
    ".condarc",
    "bunfig.toml",
    "nuget.config",
];

/// Substrings of setting names whose values are credentials.
const SECRET: [&str; 11] = [
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "apikey",
    "authident",
    "extraheader",
    "smtppass",
    "privatekey",
    "credentials",
];
/// Complete names.
const SECRET_NAMES: [&str; 4] = ["auth", "key", "pass", "otp"];

/// Whether a file with this name is shown with its credentials masked. `is_repository` says whether git takes a folder for one,
/// whatever its name is.
pub(super) fn masked(path: &[u8], is_repository: impl FnOnce(&[u8]) -> bool) -> Option<MaskKind> {
    let twin = fold(path);
    let names: Vec<&[u8]> = twin.split(|&byte| byte == b'/').collect();
    let (name, above) = names.split_last()?;
    // npm writes `.npmrc.123456` before it renames it.
    let without_number = |name: &[u8]| {
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        name[..name.len() - digits].strip_suffix(b".").filter(|_| digits > 0).map(<[u8]>::to_vec)
    };
    let is_settings = |name: &[u8]| {
        let numbered = without_number(name);
        SETTINGS.iter().any(|known| known.as_bytes() == name || Some(known.as_bytes()) == numbered.as_deref())
    };
    if is_settings(name) || originals(name).iter().any(|original| is_settings(original)) {
        return Some(MaskKind::Settings);
    }
    let is_in = |folder: &[u8]| above.last().is_some_and(|last| *last == folder);
    // With all copies of it, and what git writes before it renames it.
    let is_config = name.strip_prefix(b".").unwrap_or(name).starts_with(b"config");
    if is_config && (is_in(b".cargo") || is_in(b".bundle")) {
        return Some(MaskKind::Settings);
    }
    let git = above.iter().position(|name| matches!(*name, b".git" | b"git~1"));
    let is_bare = above.last().is_some_and(|folder| folder.ends_with(b".git"));
    match (git, *name) {
        _ if is_config && (git.is_some() || is_bare || is_repository(folder_of(path))) => Some(MaskKind::Settings),
        (Some(_), b"fetch_head") => Some(MaskKind::Log),
        (Some(at), _) => match above.get(at + 1).copied() {
            Some(b"remotes" | b"branches") => Some(MaskKind::Settings),
            _ if above[at + 1..].contains(&&b"logs"[..]) => Some(MaskKind::Log),
            _ => None,
        },
        _ => None,
    }
}

fn folder_of(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&byte| byte == b'/').unwrap_or(0)]
}

/// Whether a file below this folder, which a lease shows masked, contains credentials. A file too large to check counts as one.
pub(crate) fn shows_credentials(root: &Path, path: &[u8]) -> bool {
    let at = |path: &[u8]| root.join(OsStr::from_bytes(path));
    let holds = |folder: &[u8], name: &[u8]| at(folder).join(OsStr::from_bytes(name)).symlink_metadata().is_ok();
    let is_repository = |folder: &[u8]| REPOSITORIES.iter().any(|parts| parts.iter().all(|name| holds(folder, name)));
    if masked(path, is_repository).is_none() {
        return false;
    }
    let file = at(path);
    let is_file = file.symlink_metadata().is_ok_and(|found| found.is_file());
    let text = std::fs::File::open(file).and_then(|file| {
        let mut text = Vec::new();
        file.take(MAX_SETTINGS + 1).read_to_end(&mut text).map(|_| text)
    });
    is_file && text.is_ok_and(|mut text| text.len() as u64 > MAX_SETTINGS || mask_settings(&mut text))
}

/// Masks every credential. Returns whether there was one.
pub(super) fn mask_settings(text: &mut [u8]) -> bool {
    if text.contains(&0) {
        // Not ASCII: UTF-16, or no text at all.
        return mask(text);
    }
    let mut found = mask_urls(text);
    found |= mask_markup(text);
    found |= mask_mappings(text);
    found |= mask_private_keys(text);
    found |= mask_words(text);
    let mut start = 0;
    let mut below: Option<MaskContinuation> = None;
    while start < text.len() {
        let end = text[start..].iter().position(|&byte| byte == b'\n').map_or(text.len(), |at| start + at);
        let line = &mut text[start..end];
        below = match below {
            Some(MaskContinuation::Continued) => {
                found |= mask(line);
                line.ends_with(b"\\").then_some(MaskContinuation::Continued)
            }
            Some(MaskContinuation::Indented(by)) if line.trim_ascii().is_empty() || indent(line) > by => {
                found |= mask(line);
                below
            }
            _ => mask_line(line, &mut found),
        };
        start = end + 1;
    }
    found
}

/// Masks the credentials of every URL. Returns whether there was one.
pub(super) fn mask_urls(text: &mut [u8]) -> bool {
    let mut found = false;
    let mut from = 0;
    while let Some(at) = text[from..].windows(3).position(|window| window == b"://") {
        let begin = from + at + 3;
        let scheme = text[..from + at].rsplit(|byte| !byte.is_ascii_alphanumeric() && !b"+.-".contains(byte)).next();
        // The user name of an SSH URL is not a secret.
        let is_ssh = scheme.is_some_and(|scheme| scheme.to_ascii_lowercase().windows(3).any(|part| part == b"ssh"));
        // Commas, semicolons, quotes and brackets are legal in a password.
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"/\\\"<>?#`".contains(byte);
        let end = text[begin..]
            .iter()
            .take(MAX_URL)
            .position(is_end)
            .map_or(text.len().min(begin + MAX_URL), |at| begin + at);
        if let Some(at) = text[begin..end].iter().rposition(|&byte| byte == b'@') {
            let user = &mut text[begin..begin + at];
            let colon = user.iter().position(|&byte| byte == b':');
            let secret = match (is_ssh, colon) {
                (true, Some(colon)) => &mut user[colon + 1..],
                (true, None) => &mut user[..0],
                (false, _) => user,
            };
            found |= mask(secret);
        }
        found |= mask_below(&mut text[end..]);
        from = begin;
    }
    found
}

/// In the rest of a URL: conda's tokens (`/t/TOKEN/`), and what a query calls by a secret's name.
fn mask_below(rest: &mut [u8]) -> bool {
    let length = rest.iter().take(MAX_URL).position(|byte| byte.is_ascii_whitespace() || b"\"'<>`".contains(byte));
    let length = length.unwrap_or(rest.len().min(MAX_URL));
    let rest = &mut rest[..length];
    let mut found = false;
    if rest.starts_with(b"/t/") {
        let token = &mut rest[3..];
        let end = token.iter().position(|&byte| byte == b'/').unwrap_or(token.len());
        found |= mask(&mut token[..end]);
    }
    let query = rest.iter().position(|&byte| byte == b'?').unwrap_or(rest.len());
    for pair in rest[query..].split_mut(|byte| b"?&".contains(byte)) {
        if let Some(at) = pair.iter().position(|&byte| byte == b'=')
            && is_secret(&pair[..at])
        {
            found |= mask(&mut pair[at + 1..]);
        }
    }
    found
}

/// `user:password@host` without a scheme, as proxies are written, and `password=…` within the value of a setting, as in a helper
/// of git. Words are what is between spaces and quotes.
fn mask_words(text: &mut [u8]) -> bool {
    let mut found = false;
    for word in text.split_mut(|byte| byte.is_ascii_whitespace() || b"\"',;<>()".contains(byte)) {
        if word.windows(3).any(|window| window == b"://") {
            continue;
        }
        if let Some(at) = word.iter().rposition(|&byte| byte == b'=')
            && is_secret(&word[..at])
            && !is_variable(&word[at + 1..])
        {
            found |= mask(&mut word[at + 1..]);
        }
        let begin = word.iter().position(|&byte| byte == b'=').map_or(0, |at| at + 1);
        let login = word[begin..].iter().rposition(|&byte| byte == b'@').map(|at| begin..begin + at);
        if let Some(login) = login
            && let Some((user, password)) = split_once(&word[login.clone()], b':')
            && !user.is_empty()
            && !password.is_empty()
            && user != b"mailto"
            && !word[login.clone()].contains(&b'/')
        {
            found |= mask(&mut word[login]);
        }
    }
    found
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == at)?;
    Some((&text[..at], &text[at + 1..]))
}

/// `{ npmAuthToken: "…", x: 1 }` and `{ token = "…" }`: several settings on one line, in YAML, JSON and TOML. A value in quotes
/// may contain anything.
fn mask_mappings(text: &mut [u8]) -> bool {
    let mut found = false;
    let mut begin = 0;
    while let Some(at) = text[begin..].iter().position(|byte| b"{,".contains(byte)) {
        begin += at + 1;
        let Some(sign) = text[begin..].iter().take(MAX_URL).position(|byte| b":={},\n".contains(byte)) else {
            continue;
        };
        let key = begin..begin + sign;
        if !b":=".contains(&text[key.end]) || !is_secret(&text[key.clone()]) {
            continue;
        }
        let value = key.end + 1 + indent(&text[key.end + 1..]);
        let quote = text.get(value).copied().filter(|byte| b"\"'".contains(byte));
        // TOML has quotes. Without, it is the assignment of a shell, of which only the word is the value.
        if quote.is_none() && text[key.end] == b'=' {
            continue;
        }
        let (start, end) = match quote {
            Some(quote) => (value + 1, text[value + 1..].iter().position(|&byte| byte == quote)),
            // The brackets of a variable are part of it.
            None if text[value..].starts_with(b"${") => {
                (value, text[value..].iter().position(|byte| b",}\n".contains(byte)).map(|end| end + 1))
            }
            None => (value, text[value..].iter().position(|byte| b",}\n".contains(byte))),
        };
        let end = end.map_or(text.len(), |end| (start + end).min(text.len()));
        let plain = text[start..end].trim_ascii();
        if !is_variable(plain) && !matches!(plain, b"true" | b"false") {
            found |= mask(&mut text[start..end]);
        }
        begin = end;
    }
    found
}

/// `$NAME`, `${name}`, `${NAME-}`: no credential itself.
fn is_variable(value: &[u8]) -> bool {
    let is_word = |word: &[u8], is_part: fn(&u8) -> bool| !word.is_empty() && word.iter().all(is_part);
    match value.strip_prefix(b"$") {
        Some([b'{', name @ .., b'}']) => {
            let name = [&b"?"[..], b":-", b"-"].iter().find_map(|end| name.strip_suffix(*end)).unwrap_or(name);
            is_word(name, |byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        }
        Some(name) => is_word(name, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_'),
        None => false,
    }
}

/// `<add key="ClearTextPassword" value="…" />` with any quotes, spaces and lines, and every value among the API keys.
fn mask_markup(text: &mut [u8]) -> bool {
    let (mut found, mut begin, mut are_keys) = (false, 0, false);
    while let Some(at) = text[begin..].iter().position(|&byte| byte == b'<') {
        begin += at + 1;
        let end = text[begin..].iter().position(|byte| b"<>".contains(byte)).map_or(text.len(), |end| begin + end);
        let tag = &mut text[begin..end];
        let lower = tag.to_ascii_lowercase();
        if lower.starts_with(b"apikeys") || lower.starts_with(b"/apikeys") {
            are_keys = lower.starts_with(b"apikeys");
        }
        let names_one = SECRET.iter().any(|part| lower.windows(part.len()).any(|window| window == part.as_bytes()));
        if (names_one || are_keys)
            && let Some(at) = lower.windows(5).position(|window| window == b"value")
            && let Some(quote) = lower[at..].iter().position(|byte| b"\"'".contains(byte))
        {
            let (start, sign) = (at + quote + 1, lower[at + quote]);
            let end = lower[start..].iter().position(|&byte| byte == sign).map_or(tag.len(), |end| start + end);
            found |= mask(&mut tag[start..end]);
        }
        begin = end;
    }
    found
}

/// How following lines belong to the value of a line.
#[derive(Clone, Copy)]
enum MaskContinuation {
    /// The value continues on the next line.
    Continued,
    /// Lines with a deeper indentation belong to the value.
    Indented(usize),
}

fn mask_line(line: &mut [u8], found: &mut bool) -> Option<MaskContinuation> {
    let by = indent(line);
    // In YAML, `? key` has its value on the next line.
    if line.trim_ascii_start().strip_prefix(b"? ").is_some_and(is_secret) {
        return Some(MaskContinuation::Continued);
    }
    let (key, value) = split(line)?;
    if line.trim_ascii_start().starts_with(b"<") || !is_secret(&line[..key]) {
        return None;
    }
    let value = &mut line[value..];
    let plain = value.trim_ascii();
    let plain = plain.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(plain);
    let plain = plain.strip_prefix(b"'").and_then(|rest| rest.strip_suffix(b"'")).unwrap_or(plain);
    if plain.is_empty() || plain.starts_with(b"|") || plain.starts_with(b">") {
        return Some(MaskContinuation::Indented(by));
    }
    if is_variable(plain) || matches!(plain, b"true" | b"false") {
        return None;
    }
    let goes_on = plain.ends_with(b"\\");
    *found |= mask(value);
    goes_on.then_some(MaskContinuation::Continued)
}

/// The end of a setting's name, and the start of its value.
fn split(line: &[u8]) -> Option<(usize, usize)> {
    let start = line.iter().position(|byte| !b" \t#;-\r".contains(byte))?;
    let is_sign = |at: &usize| match line[*at] {
        b'=' => true,
        // YAML. In a URL, something follows directly.
        b':' => line.get(at + 1).is_none_or(|next| next.is_ascii_whitespace()),
        _ => false,
    };
    if let Some(at) = (start..line.len()).find(is_sign) {
        return Some((at, at + 1));
    }
    // `.yarnrc` separates the two with a space.
    let quoted = line[start] == b'"';
    let at = if quoted {
        start + 1 + line[start + 1..].iter().position(|&byte| byte == b'"')? + 1
    } else {
        start + line[start..].iter().position(u8::is_ascii_whitespace)?
    };
    (at < line.len()).then_some((at, at + 1))
}

fn is_secret(key: &[u8]) -> bool {
    let key = key.trim_ascii().to_ascii_lowercase();
    let key: &[u8] = key.strip_suffix(b"\"").unwrap_or(&key);
    let key = key.strip_suffix(b"[]").unwrap_or(key);
    // `BUNDLE_GEMS__EXAMPLE__COM` names a host, and its value is the credential.
    if key.starts_with(b"bundle_") && key.windows(2).any(|window| window == b"__") {
        return true;
    }
    let last = key.rsplit(|byte| b":/. \t\"']".contains(byte)).next().unwrap_or_default();
    let name: Vec<u8> = last.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
    SECRET.iter().any(|part| name.windows(part.len()).any(|window| window == part.as_bytes()))
        || SECRET_NAMES.iter().any(|whole| whole.as_bytes() == name)
}

/// Masks everything between BEGIN and END of a private key.
fn mask_private_keys(text: &mut [u8]) -> bool {
    let mut found = false;
    let mut from = 0;
    while let Some(at) = text[from..].windows(12).position(|window| window == b"PRIVATE KEY-") {
        let begin = from + at + 12;
        let end =
            text[begin..].windows(9).position(|window| window == b"-----END ").map_or(text.len(), |at| begin + at);
        found |= mask(&mut text[begin..end]);
        from = (end + 32).min(text.len());
    }
    found
}

fn indent(line: &[u8]) -> usize {
    line.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(line.len())
}

/// Returns whether anything was newly masked.
fn mask(secret: &mut [u8]) -> bool {
    let mut covered = false;
    for byte in secret.iter_mut().filter(|byte| !byte.is_ascii_whitespace() && !b"\"'\\*".contains(byte)) {
        *byte = b'*';
        covered = true;
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let found = mask_settings(&mut bytes);
        assert_eq!(bytes.len(), text.len());
        assert_eq!(found, bytes != text.as_bytes());
        assert!(!mask_settings(&mut bytes), "masked text stays masked");
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn credentials_are_masked_and_the_rest_is_kept() {
        for (text, expected) in [
            ("registry=https://r.example/\n", "registry=https://r.example/\n"),
            ("url = https://ann:pa,ss;w)r'd@git.example/x\n", "url = https://*************'*@git.example/x\n"),
            ("//r.example/:_authToken=npm_abc\nx=1", "//r.example/:_authToken=*******\nx=1"),
            ("//r.example:8080/:_password = \"cGFzcw==\"", "//r.example:8080/:_password = \"********\""),
            ("_auth=YWJj\nalways-auth=true", "_auth=****\nalways-auth=true"),
            ("//r/:_authToken=${NPM_TOKEN}", "//r/:_authToken=${NPM_TOKEN}"),
            ("; //r/:_authToken=old", "; //r/:_authToken=***"),
            ("npmAuthToken: \"abc\"\nnpmAlwaysAuth: true", "npmAuthToken: \"***\"\nnpmAlwaysAuth: true"),
            (
                "    npmAuthToken: >\n      abc\n      def\n    x: 1",
                "    npmAuthToken: >\n      ***\n      ***\n    x: 1",
            ),
            (
                "\"//r\": { npmAuthToken: \"a,b\", npmAlwaysAuth: true, \"npmAuthIdent\": u:p }",
                "\"//r\": { npmAuthToken: \"***\", npmAlwaysAuth: true, \"npmAuthIdent\": *** }",
            ),
            ("r: {x: 1, npmAuthToken: ${TOKEN}}", "r: {x: 1, npmAuthToken: ${TOKEN}}"),
            (
                "r = { index = \"sparse+https://r/\", token = \"abc\" }",
                "r = { index = \"sparse+https://r/\", token = \"***\" }",
            ),
            ("\"//r/:_authToken\" \"abc\"", "\"//r/:_authToken\" \"***\""),
            ("_authToken abc", "_authToken ***"),
            ("\turl = https://ann:tok@h/x.git\n", "\turl = https://*******@h/x.git\n"),
            ("\turl = https://ghp_x@h/x.git", "\turl = https://*****@h/x.git"),
            ("\turl = ssh://git@h/x", "\turl = ssh://git@h/x"),
            ("\turl = ssh://git:pw@h/x", "\turl = ssh://git:**@h/x"),
            ("\turl = git@h:x/y.git", "\turl = git@h:x/y.git"),
            ("\textraheader = AUTHORIZATION: basic abc", "\textraheader = ************** ***** ***"),
            ("\tpassword = a\\\n  b\n\tname = Ann", "\tpassword = *\\\n  *\n\tname = Ann"),
            ("[http \"https://h\"] extraHeader = x", "[http \"https://h\"] extraHeader = *"),
            ("BUNDLE_GEMS__EXAMPLE__COM: \"u:p\"", "BUNDLE_GEMS__EXAMPLE__COM: \"***\""),
            ("<add key=\"ClearTextPassword\" value=\"abc\" />", "<add key=\"ClearTextPassword\" value=\"***\" />"),
            ("<add key='Password' value='abc' />", "<add key='Password' value='***' />"),
            ("<add key = \"Password\"\n  value = \"abc\" />", "<add key = \"Password\"\n  value = \"***\" />"),
            (
                "<apikeys>\n<add key=\"https://r/\" value=\"abc\"/></apikeys>\n<add key=\"x\" value=\"y\"/>",
                "<apikeys>\n<add key=\"https://r/\" value=\"***\"/></apikeys>\n<add key=\"x\" value=\"y\"/>",
            ),
            ("//r/:_authToken[]=abc", "//r/:_authToken[]=***"),
            ("? npmAuthToken\n: abc\nx: 1", "? npmAuthToken\n* ***\nx: 1"),
            ("smtppass = $ecretPa55", "smtppass = **********"),
            ("npmAuthToken: ${TOKEN:-abc}", "npmAuthToken: *************"),
            ("npmAuthToken: ${TOKEN-}", "npmAuthToken: ${TOKEN-}"),
            ("t\0o\0k\0e\0n\0", "**********"),
            ("index-url = https://u:p@pypi.example/simple", "index-url = https://***@pypi.example/simple"),
            ("- https://conda.example/t/ab-cd/main", "- https://conda.example/t/*****/main"),
            ("url = https://h/x?a=1&token=abc&b=2\n", "url = https://h/x?a=1&token=***&b=2\n"),
            ("proxy = \"ann:PW@proxy:8080\"", "proxy = \"******@proxy:8080\""),
            ("proxy=ann:PW@proxy:8080", "proxy=******@proxy:8080"),
            ("helper = \"!f() { echo password=abc; }; f\"", "helper = \"!f() { echo password=***; }; f\""),
            ("@scope:registry=https://r.example/", "@scope:registry=https://r.example/"),
            ("alias = npm:@scope/pkg@1.0", "alias = npm:@scope/pkg@1.0"),
            ("\tname = Ann\n\temail = ann@example.org\n", "\tname = Ann\n\temail = ann@example.org\n"),
        ] {
            assert_eq!(shown(text), expected);
        }
        let key = "cert=\"-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----\"\n";
        assert!(!shown(key).contains("MIIE"));
    }

    #[test]
    fn masked_files_are_recognised_by_name() {
        for path in [
            ".npmrc",
            ".npmrc~",
            ".condarc.orig",
            "a/.NPMRC",
            ".git/config",
            ".git/config.lock",
            ".git/config~",
            ".git/config.bak",
            ".git/.config.swp",
            ".git/worktrees/x/config.worktree.lock",
            ".npmrc.swo",
            ".npmrc.271828",
            ".gitmodules.lock",
            "..npmrc.swp",
            "mirror.git/config.orig",
            "mirror.git/config",
            "a/.git/modules/x/config",
            ".cargo/config.toml",
        ] {
            assert_eq!(masked(path.as_bytes(), |_| false), Some(MaskKind::Settings), "{path}");
        }
        for path in [".git/logs/HEAD", ".git/logs/refs/heads/main", ".git/FETCH_HEAD", ".git/modules/x/logs/HEAD"] {
            assert_eq!(masked(path.as_bytes(), |_| false), Some(MaskKind::Log), "{path}");
        }
        for path in
            ["src/config.rs", "config.toml", "config", "logs/HEAD", ".git/HEAD", ".git/objects/ab/cd", "package.json"]
        {
            assert_eq!(masked(path.as_bytes(), |_| false), None, "{path}");
        }
        // A bare repository has any name.
        for (path, folder) in [("mirror/config", "mirror"), ("config.lock", ""), ("a/mirror/config~", "a/mirror")] {
            let kind = masked(path.as_bytes(), |asked| asked == folder.as_bytes());
            assert_eq!(kind, Some(MaskKind::Settings), "{path}");
        }
    }
}
