//! What a lease shows of a folder: the owner's include and exclude patterns, minus secrets, which are never shown.
//!
//! Hidden entries look as if they didn't exist. It fails closed: names are also compared case-folded,
//! Unicode-normalised and without invisible characters, because a file system may treat such twins as the same file.

use std::{borrow::Cow, os::unix::ffi::OsStrExt as _, path::Path};

use icu_normalizer::ComposingNormalizerBorrowed;

use super::{pattern::GlobPatterns, refusal::ExportError, secrets::SECRETS};

/// The owner's patterns, in gitignore syntax.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportPatterns {
    /// Only these are shown, with their parent folders. Everything if empty.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// Added to [`SECRETS`]. A line with `!` shows what they withhold.
    pub withhold: Vec<String>,
}

/// A private folder of this machine as a line for [`ExportPatterns::withhold`]. `None` if it isn't below `exported`. Both
/// must be canonical paths.
pub fn withhold_folder(exported: &Path, private: &Path) -> Option<String> {
    let below = private.strip_prefix(exported).ok().filter(|below| !below.as_os_str().is_empty())?;
    let mut line = String::from("/");
    for char in below.to_str()?.chars() {
        if "*?[]\\! #".contains(char) {
            line.push('\\');
        }
        line.push(char);
    }
    Some(line)
}

/// What [`SECRETS`] withhold in a folder because of its location, as lines for [`ExportPatterns::withhold`]:
/// `/config.json` in `.docker`.
pub fn secrets_in(dir: &Path) -> Vec<String> {
    let twin = fold(dir.as_os_str().as_bytes());
    let is_there = |folder: &str| twin.ends_with(&[b"/", &*fold(folder.as_bytes())].concat());
    let parts = SECRETS.iter().flat_map(|line| line.match_indices('/').map(|(at, _)| line.split_at(at)));
    parts.filter(|(folder, _)| is_there(folder)).map(|(_, rest)| rest.to_owned()).collect()
}

/// Whether this is the path of a hidden folder in which [`SECRETS`] name something: `.docker` for `.docker/config.json`.
pub(super) fn leads_to_secrets(path: &[u8]) -> bool {
    let twin = [b"/", &*fold(path)].concat();
    let folders = SECRETS.iter().flat_map(|line| line.match_indices('/').map(|(at, _)| &line[..at]));
    folders
        .into_iter()
        .any(|folder| folder.starts_with('.') && twin.ends_with(&[b"/", &*fold(folder.as_bytes())].concat()))
}

// === impl ExportPatterns ===

impl ExportPatterns {
    /// Checks that every line is a valid pattern. Opens nothing.
    pub fn check(&self) -> Result<(), ExportError> {
        ExportFilter::new(self).map(drop)
    }

    /// Whether exports of `root` and of every folder between it and `folder` would all show `folder`.
    pub fn show(&self, root: &Path, folder: &Path) -> Result<bool, ExportError> {
        let filter = ExportFilter::new(self)?;
        let mut above = folder.ancestors().skip(1).take_while(|above| above.starts_with(root));
        Ok(above.all(|above| {
            folder.strip_prefix(above).is_ok_and(|below| filter.shows(below.as_os_str().as_bytes(), true))
        }))
    }
}

#[derive(Debug)]
pub(crate) struct ExportFilter {
    include: GlobPatterns,
    exclude: GlobPatterns,
    exclude_twins: GlobPatterns,
    secrets: GlobPatterns,
}

// === impl ExportFilter ===

impl ExportFilter {
    pub(crate) fn new(rules: &ExportPatterns) -> Result<Self, ExportError> {
        // A secret in a subfolder counts as well: `.docker/config.json` matches at any depth.
        let anywhere = SECRETS.iter().map(|line| match line.contains('/') {
            true => format!("**/{line}"),
            false => (*line).to_owned(),
        });
        let secrets: Vec<String> = anywhere.chain(rules.withhold.iter().cloned()).collect();
        Ok(Self {
            include: GlobPatterns::parse(rules.include.iter().map(String::as_str), <[u8]>::to_vec)?,
            exclude: GlobPatterns::parse(rules.exclude.iter().map(String::as_str), <[u8]>::to_vec)?,
            exclude_twins: GlobPatterns::parse(rules.exclude.iter().map(String::as_str), folded)?,
            secrets: GlobPatterns::parse(secrets.iter().map(String::as_str), folded)?,
        })
    }

    /// Whether a path is visible. The root always is.
    pub(crate) fn shows(&self, path: &[u8], folder: bool) -> bool {
        let mut included = self.include.is_empty();
        for (end, last) in prefixes(path) {
            let (prefix, folder) = (&path[..end], folder || !last);
            if self.hides(prefix, folder) {
                return false;
            }
            included = self.include.lists(prefix, folder).unwrap_or(included);
        }
        included || path.is_empty() || (folder && self.include.lead_below(path))
    }

    /// Like [`Self::shows`], for an entry of a visible folder.
    pub(super) fn shows_in_shown(&self, path: &[u8], folder: bool) -> bool {
        if self.include.is_empty() { !self.hides(path, folder) } else { self.shows(path, folder) }
    }

    /// Excluded or withheld by its own name, regardless of its parents.
    fn hides(&self, path: &[u8], folder: bool) -> bool {
        let twin = fold(path);
        self.exclude.lists(path, folder) == Some(true)
            || self.exclude_twins.lists(&twin, folder) == Some(true)
            || self.secrets.lists(&twin, folder) == Some(true)
            || originals(&twin).iter().any(|original| self.secrets.lists(original, folder) == Some(true))
    }
}

/// What editors, people and git append to the name of a copy.
const BACKUP_SUFFIXES: [&[u8]; 10] =
    [b".bak", b".backup", b".old", b".orig", b".save", b".swp", b".swo", b".tmp", b".lock", b"~"];

/// The paths whose copy this one may be by its name: a copy of a secret is a secret. Vim puts a dot before the name of a
/// swap file.
pub(super) fn originals(path: &[u8]) -> Vec<Vec<u8>> {
    let Some(suffix) = BACKUP_SUFFIXES.into_iter().find(|suffix| path.ends_with(suffix)) else { return Vec::new() };
    let copied = &path[..path.len() - suffix.len()];
    let name = copied.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let without_dot = copied[name..].strip_prefix(b".").map(|rest| [&copied[..name], rest].concat());
    [Some(copied.to_vec()), without_dot].into_iter().flatten().filter(|original| original.len() > name).collect()
}

/// The end of each name in the path, and whether it is the last one.
fn prefixes(path: &[u8]) -> impl Iterator<Item = (usize, bool)> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| (at, false));
    ends.chain((!path.is_empty()).then_some((path.len(), true)))
}

/// One form for all twins of a path: NFKC, lower case, without invisible characters.
pub(super) fn fold(path: &[u8]) -> Cow<'_, [u8]> {
    if path.is_ascii() {
        if path.iter().any(u8::is_ascii_uppercase) {
            return Cow::Owned(path.to_ascii_lowercase());
        }
        return Cow::Borrowed(path);
    }
    let normalizer = const { ComposingNormalizerBorrowed::new_nfkc() };
    let text = String::from_utf8_lossy(path);
    let seen: String = normalizer.normalize(&text).chars().filter(|char| !invisible(*char)).collect();
    let lower: String = seen.chars().flat_map(char::to_lowercase).collect();
    Cow::Owned(normalizer.normalize(&lower).into_owned().into_bytes())
}

fn folded(line: &[u8]) -> Vec<u8> {
    fold(line).into_owned()
}

/// Characters that some file systems ignore when comparing names.
const fn invisible(char: char) -> bool {
    matches!(char,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str], withhold: &[&str]) -> ExportFilter {
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        ExportFilter::new(&ExportPatterns {
            include: owned(include),
            exclude: owned(exclude),
            withhold: owned(withhold),
        })
        .unwrap()
    }

    #[test]
    fn secrets_and_their_twins_are_hidden() {
        let filter = filter(&[], &[], &[]);
        for path in [
            ".env",
            ".env.local",
            ".netrc.bak",
            ".netrc.swp",
            "a/credentials.json~",
            "prod.env.bak",
            ".prod.env.swp",
            "a/b/.env",
            ".ENV",
            ".Env.Production",
            "．ｅｎｖ",
            ".e\u{200c}nv",
            "server.PEM",
            "server.pem\u{200b}",
            "deploy/id_rsa",
            "x/.ssh/config",
            ".SSH",
            "home/.docker/config.json",
            ".git-credentials",
            ".bash_history",
            "home/.zsh_history",
            ".python_history",
            ".kube/config",
            "deploy/kubeconfig",
            "prod.kubeconfig",
            ".netrc",
            "credentials.json",
            "tls.\u{212a}ey",
            "home/.a2a/runtime.json",
            "srv/hub.db-wal",
            ".gemini/oauth_creds.json",
            ".config/google-chrome/Default/Cookies",
            ".mozilla/firefox/x/places.sqlite",
            ".local/share/keyrings/login.keyring",
            ".kaggle/kaggle.json",
            ".huggingface/token",
            ".local/share/fish/fish_history",
            "prod.tfvars.json",
            "serviceAccountKey.json",
            "server.pem.bak",
            ".codex/auth.json",
        ] {
            assert!(!filter.shows(path.as_bytes(), false), "{path}");
        }
        assert!(!filter.shows(b".env\xff", false));
        for path in [
            "src/env.rs",
            ".env.example",
            "monkey",
            "docs/credentials.md",
            "src/credentials.rs",
            ".gitignore",
            "git_history",
            ".npmrc",
            ".yarnrc.yml",
            "src/auth.rs",
        ] {
            assert!(filter.shows(path.as_bytes(), false), "{path}");
        }
    }

    #[test]
    fn secrets_by_folder_name_are_hidden_when_that_folder_is_exported() {
        let secrets = |dir: &str| secrets_in(Path::new(dir));
        assert_eq!(secrets("/home/ann/.Docker"), ["/config.json"]);
        for line in ["/gcloud", "/gh", "/containers/auth.json", "/op", "/rclone"] {
            assert!(secrets("/home/ann/.config").iter().any(|found| found == line), "{line}");
        }
        assert_eq!(secrets("/home/ann/.config/containers"), ["/auth.json"]);
        assert_eq!(secrets("/home/ann/my.config"), [""; 0]);
        let withhold = secrets("/home/ann/.config");
        let filter = ExportFilter::new(&ExportPatterns { withhold, ..ExportPatterns::default() }).unwrap();
        assert!(!filter.shows(b"GH/hosts.yml", false) && filter.shows(b"nvim/gh", false));
    }

    #[test]
    fn a_private_folder_is_withheld_wherever_it_is() {
        let line = |private: &str| withhold_folder(Path::new("/home/ann/src"), Path::new(private));
        assert_eq!((line("/home/ann"), line("/home/ann/src"), line("/srv")), (None, None, None));
        let withhold = vec!["!/state".to_owned(), line("/home/ann/src/st*te/[x] y").unwrap()];
        let filter = ExportFilter::new(&ExportPatterns { withhold, ..ExportPatterns::default() }).unwrap();
        assert!(!filter.shows(b"st*te/[x] y/runtime.json", false) && filter.shows(b"state/x y", false));
    }

    #[test]
    fn the_owner_can_withhold_more_and_less() {
        let filter = filter(&[], &[], &["*.sqlite", "!fixtures/*.pem"]);
        assert!(!filter.shows(b"a/x.SQLITE", false));
        assert!(filter.shows(b"fixtures/a.pem", false));
        assert!(!filter.shows(b"a.pem", false));
    }

    #[test]
    fn exclude_hides_everything_below() {
        let filter = filter(&[], &["target/", "/private", "*.log", "!keep.log"], &[]);
        for (path, folder, shown) in [
            ("target", true, false),
            ("target", false, true),
            ("a/target/x", false, false),
            ("private/x/y", false, false),
            ("PRIVATE/x", false, false),
            ("a/private", false, true),
            ("a.log", false, false),
            ("keep.log", false, true),
            ("target/keep.log", false, false),
        ] {
            assert_eq!(filter.shows(path.as_bytes(), folder), shown, "{path}");
        }
    }

    #[test]
    fn include_shows_only_matches_and_their_parents() {
        let filter = filter(&["/src/", "*.md", "!/src/gen"], &[], &[]);
        for (path, folder, shown) in [
            ("", true, true),
            ("src", true, true),
            ("src/a/b.rs", false, true),
            ("src/gen/x.rs", false, false),
            ("src/gen/x.md", false, true),
            ("a/b", true, true),
            ("a/b.md", false, true),
            ("a/b.rs", false, false),
            ("src/.env", false, false),
        ] {
            assert_eq!(filter.shows(path.as_bytes(), folder), shown, "{path}");
        }
    }

    /// Random patterns over a small alphabet, compared with git itself.
    #[test]
    fn exclude_agrees_with_git() {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let mut command = std::process::Command::new("git");
            command.arg("-C").arg(dir.path()).args(args).env("GIT_CONFIG_GLOBAL", "/dev/null");
            command.env("GIT_CONFIG_NOSYSTEM", "1");
            command
        };
        assert!(git(&["init", "--quiet"]).status().unwrap().success());
        let mut state = 7_u64;
        let mut roll = |sides: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % sides
        };
        let paths: Vec<String> = (0..300)
            .map(|_| (0..=roll(3)).map(|_| ["a", "b", "ab", "abc", "c.d"][roll(5)]).collect::<Vec<_>>().join("/"))
            .collect();
        for _ in 0..60 {
            let lines: Vec<String> = (0..=roll(3))
                .map(|_| {
                    let names =
                        (0..=roll(2)).map(|_| ["a", "b", "*", "**", "a*", "?", "[ab]", "*.d", "[!b]*"][roll(9)]);
                    let pattern = names.collect::<Vec<_>>().join("/");
                    format!("{}{}{pattern}{}", ["", "", "!"][roll(3)], ["", "/"][roll(2)], ["", "", "/"][roll(3)])
                })
                .collect();
            std::fs::write(dir.path().join(".gitignore"), lines.join("\n")).unwrap();
            std::fs::write(dir.path().join(".git/paths"), paths.join("\n")).unwrap();
            let input = std::fs::File::open(dir.path().join(".git/paths")).unwrap();
            let output = git(&["check-ignore", "--no-index", "--stdin"]).stdin(input).output().unwrap();
            let ignored: std::collections::HashSet<&str> =
                std::str::from_utf8(&output.stdout).unwrap().lines().collect();
            let rules = ExportPatterns { exclude: lines.clone(), ..ExportPatterns::default() };
            let filter = ExportFilter::new(&rules).unwrap();
            for path in &paths {
                assert_eq!(!filter.shows(path.as_bytes(), false), ignored.contains(&path[..]), "{path} of {lines:?}");
            }
        }
    }
}
