//! What of a folder a lease shows: include and exclude of the owner, and secrets, which are never shown.
//!
//! Hidden things look as if they did not exist. It fails closed: names are also compared without case, in one Unicode
//! form and without invisible characters, because a file system may take such twins for the same file.

use std::{borrow::Cow, os::unix::ffi::OsStrExt as _, path::Path};

use icu_normalizer::ComposingNormalizerBorrowed;

use super::{pattern::GlobPatterns, refusal::ExportError, secrets::SECRETS};

/// The owner's choice, each line in gitignore's syntax.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportPatterns {
    /// Only these are shown, with the folders that lead to them; everything when empty.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// Added to [`SECRETS`]; a line with `!` shows what they withhold.
    pub withhold: Vec<String>,
}

/// A folder of this machine that no lease shows, as a line for [`ExportPatterns::withhold`]; `None` where it is not below `lent`. Both are
/// real paths.
pub fn withhold_folder(lent: &Path, private: &Path) -> Option<String> {
    let below = private.strip_prefix(lent).ok().filter(|below| !below.as_os_str().is_empty())?;
    let mut line = String::from("/");
    for char in below.to_str()?.chars() {
        if "*?[]\\! #".contains(char) {
            line.push('\\');
        }
        line.push(char);
    }
    Some(line)
}

/// What [`SECRETS`] withhold in a folder because of where it is, as lines for [`ExportPatterns::withhold`]: `/config.json` in `.docker`.
pub fn secrets_in(dir: &Path) -> Vec<String> {
    let twin = fold(dir.as_os_str().as_bytes());
    let is_there = |folder: &str| twin.ends_with(&[b"/", &*fold(folder.as_bytes())].concat());
    let cut = SECRETS.iter().flat_map(|line| line.match_indices('/').map(|(at, _)| line.split_at(at)));
    cut.filter(|(folder, _)| is_there(folder)).map(|(_, rest)| rest.to_owned()).collect()
}

// === impl ExportPatterns ===

impl ExportPatterns {
    /// Whether every line is a pattern. Nothing is opened.
    pub fn check(&self) -> Result<(), ExportError> {
        ExportFilter::new(self).map(drop)
    }

    /// Whether leases of `root` and of every folder on the way to `folder`, which is below it, would all show it.
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
        // A secret in a subfolder is one as well: `.docker/config.json` counts at any depth.
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

    /// Whether a path is shown; the root always is.
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

    /// As [`Self::shows`], for something in a folder that is shown.
    pub(super) fn shows_in_shown(&self, path: &[u8], folder: bool) -> bool {
        if self.include.is_empty() { !self.hides(path, folder) } else { self.shows(path, folder) }
    }

    /// Excluded or withheld by its own name, whatever is above it.
    fn hides(&self, path: &[u8], folder: bool) -> bool {
        let twin = fold(path);
        self.exclude.lists(path, folder) == Some(true)
            || self.exclude_twins.lists(&twin, folder) == Some(true)
            || self.secrets.lists(&twin, folder) == Some(true)
    }
}

/// Where each name of the path ends, and whether it is the last one.
fn prefixes(path: &[u8]) -> impl Iterator<Item = (usize, bool)> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| (at, false));
    ends.chain((!path.is_empty()).then_some((path.len(), true)))
}

/// One form for all twins of a path: compatible Unicode composition, lower case, nothing invisible.
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

/// What some file systems leave out when they compare names.
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
    fn secrets_and_their_twins_are_not_shown() {
        let filter = filter(&[], &[], &[]);
        for path in [
            ".env",
            ".env.local",
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
    fn a_folder_with_secrets_by_its_name_has_them_when_it_is_lent_itself() {
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
    fn exclude_hides_with_all_that_is_below() {
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
    fn include_shows_only_that_and_the_way_to_it() {
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

    /// Random patterns over few letters, against the program that defines the syntax.
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
            let told = git(&["check-ignore", "--no-index", "--stdin"]).stdin(input).output().unwrap();
            let ignored: std::collections::HashSet<&str> = std::str::from_utf8(&told.stdout).unwrap().lines().collect();
            let rules = ExportPatterns { exclude: lines.clone(), ..ExportPatterns::default() };
            let filter = ExportFilter::new(&rules).unwrap();
            for path in &paths {
                assert_eq!(!filter.shows(path.as_bytes(), false), ignored.contains(&path[..]), "{path} of {lines:?}");
            }
        }
    }
}
