//! Protects the git calls of hosts, and of programs outside walls: no program named in a folder's git configuration is
//! executed.
//!
//! Even `git status` runs programs named in a repository's configuration, and hosts call it without asking. Settings in
//! the environment override those of the repository: some are always set, and every other setting by which the
//! repository names a program is reset to the person's own value, or to something harmless. Inside walls it is always the
//! latter: a run of somebody else must not learn the person's own, which may contain a token.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io,
    path::Path,
    process::Stdio,
    time::Duration,
};

use rustix::process::Pid;
use tokio::{io::AsyncReadExt as _, process::Command, time::timeout};

use attache_os::{file_space::is_fuse, look_up, process_tree, program};
use attache_workspace::report::git::{self, GitRepository};

use crate::{
    DriverRun,
    process::command_for_run,
    repository::{common_folder, named_repository, repository_around},
};

use super::git_settings::{HarmlessValue, harmless_value};

/// Set for every host, so they also apply to repositories in subfolders.
const ALWAYS: &[(&str, &str)] = &[
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.alternateRefsCommand", "false"),
    ("core.pager", "cat"),
    ("protocol.ext.allow", "never"),
    // Both follow what the repository says to files elsewhere: a recorded conflict names any path, and a link among the commit
    // graphs leads anywhere.
    ("rerere.enabled", "false"),
    ("maintenance.auto", "false"),
    // A server can name any file of this machine in such a list, and git copies it into the repository.
    ("transfer.bundleURI", "false"),
    // A folder that looks like a bare repository would bring its own configuration.
    ("safe.bareRepository", "explicit"),
];

/// In a folder mounted from another machine, inodes, owners and ctimes differ from git's index. Without these settings
/// `git status` reads every file again, over the network. In a folder of this machine, they would let whoever sets a file's
/// times hide a change from git.
const WHERE_MOUNTED: &[(&str, &str)] = &[("core.checkStat", "minimal"), ("core.trustctime", "false")];

/// Limits for listing a configuration: time, and bytes read.
const CONFIG_LIST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CONFIG: u64 = 1 << 20;

/// Whose values a run may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GitSettings {
    /// The person's own.
    Own,
    /// Nobody's: the run is inside walls.
    Harmless,
}

/// A key and its value, if it has one.
type Setting = (String, Option<String>);

/// A setting as git lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ListedSetting {
    scope: SettingScope,
    key: String,
    value: String,
}

/// Who a setting is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SettingScope {
    Person,
    Repository,
}

/// As git passes `-c` on to its own children. Not as `GIT_CONFIG_KEY_0` and so on: hosts keep variables from commands that
/// have `KEY` in their name, and git fails if it finds only a part of them.
const SETTINGS_VARIABLE: &str = "GIT_CONFIG_PARAMETERS";

/// In place of settings: git stops at it.
const UNUSABLE: &str = "git isn't usable in this run";

/// What one variable of a process holds.
const MAX_VARIABLE: usize = 100 * 1024;

/// Why git isn't usable in a run, and what to do about it.
#[derive(Debug, thiserror::Error)]
enum UnusableGit {
    #[error(
        "{0}. Remove what leads elsewhere; or, if it is yours, let that repository name its folder (`git worktree repair`, or \
         core.worktree in its settings)"
    )]
    Elsewhere(git::Error),
    #[error(transparent)]
    Repository(git::Error),
    /// Those at the end would be obeyed.
    #[error("the settings of the repository can't be read, or are too many; look at its `.git/config`")]
    Unreadable,
    #[error(
        "the settings of the repository name files that git would read (include.path, includeIf, fsck.skipList), and that others \
         may change; copy included settings into `.git/config`, or put such a setting into your own (`git config --global`)"
    )]
    OtherFiles,
}

/// Instead of the proxy program in git's settings. Empty for none.
const PROXY_VARIABLE: &str = "GIT_PROXY_COMMAND";

/// The environment variables for a host or program working in this run's folder.
pub(crate) async fn variables(job: &DriverRun, shown: GitSettings) -> Vec<(OsString, OsString)> {
    usable(job, shown).await.unwrap_or_else(|error| {
        tracing::warn!(run.id = %job.task.task_run_id, %error, "git isn't usable in this run");
        job.events.log("warning", format!("{UNUSABLE}: {error}"));
        vec![(SETTINGS_VARIABLE.into(), UNUSABLE.into())]
    })
}

async fn usable(job: &DriverRun, shown: GitSettings) -> Result<Vec<(OsString, OsString)>, UnusableGit> {
    if shown == GitSettings::Own {
        check_own(job).await?;
    }
    let listed = list(job).await.and_then(|listed| parse(&listed)).ok_or(UnusableGit::Unreadable)?;
    if shown == GitSettings::Own {
        check_other_files(&listed)?;
    }
    let mounted = if is_fuse(&job.cwd) { WHERE_MOUNTED } else { &[] };
    let fixed = ALWAYS.iter().chain(mounted).map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned())));
    let remotes = has_remote_files(&job.cwd)
        .unwrap_or(true)
        .then(|| ("protocol.file.allow".to_owned(), Some("never".to_owned())));
    let settings = as_variable(fixed.chain(overrides(&listed, shown)).chain(remotes));
    if settings.1.len() > MAX_VARIABLE {
        return Err(UnusableGit::Unreadable);
    }
    let proxy = job.environment.get(PROXY_VARIABLE).is_none() && without_proxy(&listed);
    Ok(std::iter::once(settings).chain(proxy.then(|| (PROXY_VARIABLE.into(), OsString::new()))).collect())
}

/// Git must not read or write files of somewhere else. Inside walls, there is nothing else.
async fn check_own(job: &DriverRun) -> Result<(), UnusableGit> {
    let folder = job.cwd.clone();
    let environment: Vec<_> = job.environment.pairs().map(|(name, value)| (name.clone(), value.clone())).collect();
    let checked = tokio::task::spawn_blocking(move || GitRepository::check_own(&folder, &environment)).await;
    checked.map_or(Err(UnusableGit::Unreadable), |checked| {
        checked.map_err(|error| match error {
            git::Error::Elsewhere(_) => UnusableGit::Elsewhere(error),
            _ => UnusableGit::Repository(error),
        })
    })
}

/// What a repository includes from another file may be something else while the run works: another branch can bring it, and
/// other runs can write it. Which file git reads, and when, only git knows. Nor does a setting of ours keep it from reading a
/// list of fsck, whose lines it prints.
fn check_other_files(listed: &[ListedSetting]) -> Result<(), UnusableGit> {
    let is_include =
        |key: &str| key == "include.path" || key.starts_with("includeif.") || key.ends_with("fsck.skiplist");
    match listed.iter().any(|it| it.scope == SettingScope::Repository && is_include(&it.key)) {
        true => Err(UnusableGit::OtherFiles),
        false => Ok(()),
    }
}

/// Whether the repository has remotes in files of their own, as very old ones do. No setting overrides them.
fn has_remote_files(folder: &Path) -> io::Result<bool> {
    let Some((_, git)) = repository_around(folder)? else { return Ok(false) };
    let own = named_repository(&git)?.unwrap_or(git);
    let common = common_folder(&own)?;
    for home in std::iter::once(own).chain(common) {
        for name in ["remotes", "branches"] {
            if !look_up::entries(&home.join(name))?.is_empty() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Lists the settings; `None` if not all of them can be read. That executes nothing. It is the system's git that lists, for any
/// program that a run calls so. Without git, there is nothing to list.
async fn list(job: &DriverRun) -> Option<Vec<u8>> {
    let Some(git) = program::find("git") else {
        let search_path = job.environment.get("PATH").cloned().unwrap_or_default();
        let is_elsewhere = std::env::split_paths(&search_path).any(|folder| job.cwd.join(folder).join("git").is_file());
        return (!is_elsewhere).then(Vec::new);
    };
    let mut command: Command = command_for_run(git.as_os_str(), job);
    command.env("PATH", program::SYSTEM_PATH);
    command.args(["config", "--list", "--null", "--includes", "--show-scope"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = process_tree::start(&mut command) else { return Some(Vec::new()) };
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut listed = Vec::new();
    let mut output = child.stdout.take()?.take(MAX_CONFIG);
    let read = timeout(CONFIG_LIST_TIMEOUT, output.read_to_end(&mut listed)).await;
    // If it prints more than that, it isn't waited for.
    let _ = child.start_kill();
    if child.wait().await.is_ok()
        && let Some(id) = id
    {
        process_tree::forget(id);
    }
    let is_whole = matches!(read, Ok(Ok(_))) && output.limit() > 0;
    is_whole.then_some(listed)
}

/// From `scope NUL key LF value NUL …`. `None` if a repository's key isn't UTF-8: it couldn't be overridden.
fn parse(listed: &[u8]) -> Option<Vec<ListedSetting>> {
    let fields: Vec<&[u8]> = listed.split(|byte| *byte == 0).collect();
    let mut settings = Vec::new();
    for fields in fields.chunks_exact(2) {
        let [scope, setting] = fields else { continue };
        let scope = match *scope {
            b"local" | b"worktree" => SettingScope::Repository,
            b"system" | b"global" => SettingScope::Person,
            _ => continue,
        };
        let end = setting.iter().position(|byte| *byte == b'\n').unwrap_or(setting.len());
        let key = match (str::from_utf8(&setting[..end]), scope) {
            (Ok(key), _) => key.to_owned(),
            (Err(_), SettingScope::Repository) => return None,
            (Err(_), SettingScope::Person) => continue,
        };
        let value = String::from_utf8_lossy(setting.get(end + 1..).unwrap_or_default()).into_owned();
        settings.push(ListedSetting { scope, key, value });
    }
    Some(settings)
}

fn as_variable(settings: impl Iterator<Item = Setting>) -> (OsString, OsString) {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''").replace('!', r"'\!'"));
    let settings: Vec<String> = settings
        .map(|(key, value)| match value {
            Some(value) => format!("{}={}", quoted(&key), quoted(&value)),
            // The form without a value is the older one, of the whole setting.
            None => quoted(&key),
        })
        .collect();
    (SETTINGS_VARIABLE.into(), settings.join(" ").into())
}

/// Ends of keys of which git takes every value.
const ACCUMULATING: [&str; 3] = [".helper", ".curloptresolve", ".ignorerevsfile"];

/// The overrides for repository settings that name programs.
fn overrides(listed: &[ListedSetting], shown: GitSettings) -> Vec<Setting> {
    let mut own: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut of_folder: BTreeMap<&str, HarmlessValue> = BTreeMap::new();
    let mut local = LocalTransport::default();
    for ListedSetting { scope, key, value, .. } in listed {
        match scope {
            SettingScope::Repository if !local.take(key, value) => {
                if let Some(harmless) = harmless_value(key, value) {
                    of_folder.insert(key, harmless);
                }
            }
            SettingScope::Person if shown == GitSettings::Own => own.entry(key).or_default().push(value),
            _ => {}
        }
    }
    let mut settings = Vec::new();
    // That one is always set.
    of_folder.remove("protocol.ext.allow");
    for (key, harmless) in of_folder {
        let mut add = |value: Option<&str>| settings.push((key.to_owned(), value.map(str::to_owned)));
        match (harmless, own.get(key)) {
            // These accumulate. An empty one drops those before it.
            (HarmlessValue::Text(_), Some(values)) if ACCUMULATING.iter().any(|end| key.ends_with(end)) => {
                add(Some(""));
                values.iter().for_each(|value| add(Some(value)));
            }
            (HarmlessValue::Text(_), Some(values)) => values.last().into_iter().for_each(|value| add(Some(value))),
            (HarmlessValue::Text(value), None) => add(Some(value)),
            (HarmlessValue::Missing, _) => add(None),
        }
    }
    // The last one counts.
    // Inside walls, there are no folders of somebody else.
    let is_allowed = own.get("protocol.file.allow").is_some_and(|values| values.last() == Some(&"always"));
    let fetches = is_allowed || shown == GitSettings::Harmless;
    settings.extend(local.overrides(fetches));
    settings
}

/// Whether git must be told to use no proxy program. It takes the first one that fits, so a later setting doesn't override
/// the repository's; the variable does.
fn without_proxy(listed: &[ListedSetting]) -> bool {
    let is_named = |by| listed.iter().any(|setting| setting.scope == by && setting.key == "core.gitproxy");
    is_named(SettingScope::Repository) || !is_named(SettingScope::Person)
}

/// Repositories of this machine that a repository fetches from or pushes to. Git runs a program there, without the
/// settings of its environment.
#[derive(Debug, Default)]
struct LocalTransport {
    /// Remotes that are folders here. The other repository's hooks aren't run.
    remotes: BTreeSet<String>,
    /// Those of them that aren't this repository.
    others: BTreeSet<String>,
    /// Git would fetch from a folder by a name that the repository gives it, or with a program that it names.
    is_refused: bool,
    /// The repository names the program itself, and git takes the first one named.
    names_program: bool,
    /// The remotes that have settings, and what stands in place of a remote's name.
    known: BTreeSet<String>,
    used: BTreeSet<String>,
}

/// Nothing is fetched from a folder of this machine: the repository may name one that only the person can see, and others read
/// what was fetched.
const NO_UPLOAD_PACK: &str = "echo 'fetching from a folder of this machine is off here' >&2; false";

/// What a push to a folder of this machine runs there.
const RECEIVE_PACK: &str = "git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=false -c core.fsmonitor=false \
                            -c receive.autogc=false -c receive.denyCurrentBranch=refuse receive-pack";

// === impl LocalTransport ===

impl LocalTransport {
    /// Whether this setting is about the program at the other end, and needs nothing else.
    fn take(&mut self, key: &str, value: &str) -> bool {
        let Some((section, rest)) = key.split_once('.') else { return false };
        let (between, name) = rest.rsplit_once('.').unwrap_or(("", rest));
        if section == "remote" && name == "url" {
            self.known.insert(between.to_owned());
        }
        self.is_refused |= section == "remote" && between.contains('\n');
        match (section, name) {
            ("remote", "uploadpack" | "receivepack") => {
                self.is_refused = true;
                self.names_program = true;
                return true;
            }
            ("remote", "url" | "pushurl") if is_folder(value) => {
                self.remotes.insert(between.to_owned());
                if value != "." {
                    self.others.insert(between.to_owned());
                }
            }
            // In place of a remote's name.
            ("remote", "pushdefault") | ("branch", "remote" | "pushremote") => {
                self.used.insert(value.to_owned());
                if value == "." || value.contains('/') && is_folder(value) {
                    self.remotes.insert(value.to_owned());
                }
            }
            ("url", "insteadof" | "pushinsteadof") => self.is_refused |= is_folder(between),
            _ => {}
        }
        false
    }

    /// `fetches` if the person's own settings allow to fetch from folders.
    fn overrides(self, fetches: bool) -> Vec<Setting> {
        // A folder in place of a name has no settings that could be overridden.
        let is_unknown = |value: &&String| value.as_str() != "." && !self.known.contains(*value) && is_folder(value);
        let is_refused = self.is_refused || self.used.iter().any(|value| is_unknown(&value));
        let never = |protocol: &str| (format!("protocol.{protocol}.allow"), Some("never".to_owned()));
        let refused = is_refused.then(|| never("file"));
        // Over SSH, it would be executed at the other end, where the person may log in.
        let refused = refused.into_iter().chain(self.names_program.then(|| never("ssh")));
        let receive = |name: String| (format!("remote.{name}.receivepack"), Some(RECEIVE_PACK.to_owned()));
        let is_name = |name: &String| !name.starts_with('/') && !name.contains('\n');
        let upload = |name: String| (format!("remote.{name}.uploadpack"), Some(NO_UPLOAD_PACK.to_owned()));
        let others = self.others.into_iter().filter(|name| !fetches && is_name(name)).map(upload);
        refused.chain(self.remotes.into_iter().filter(is_name).map(receive)).chain(others).collect()
    }
}

/// Distinguishes a folder from the address of another machine, as git does.
fn is_folder(url: &str) -> bool {
    let (colon, slash) = (url.find(':'), url.find('/'));
    url.starts_with("file:") || colon.is_none() || slash.is_some() && slash < colon
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_settings_are_reset_to_the_persons_or_to_harmless_values() {
        let listed = [
            ("system", "core.editor\nvi"),
            ("global", "credential.helper\nstore"),
            ("global", "user.name\nAnn"),
            ("local", "core.editor\nevil"),
            ("local", "core.bare\nfalse"),
            ("local", "credential.helper\n!evil"),
            ("local", "filter.Evil.x.clean\nevil"),
            ("local", "filter.Evil.x.required\ntrue"),
            ("local", "gc.recentobjectshook\nevil"),
            ("local", "diff.evil.textconv\nevil"),
            ("worktree", "alias.st\n!evil"),
            ("command", "core.pager\nless"),
        ];
        let listed: String = listed.iter().map(|(scope, setting)| format!("{scope}\0{setting}\0")).collect();
        let listed = parse(listed.as_bytes()).unwrap();
        let expected = [
            ("alias.st", Some("version")),
            ("core.editor", Some("vi")),
            ("credential.helper", Some("")),
            ("credential.helper", Some("store")),
            ("diff.evil.textconv", Some("cat")),
            ("filter.Evil.x.clean", Some("")),
            ("filter.Evil.x.required", Some("false")),
            ("gc.recentobjectshook", None),
        ];
        assert_eq!(overrides(&listed, GitSettings::Own), expected.map(setting));
        // Inside walls, the person's own settings are withheld.
        let inside = overrides(&listed, GitSettings::Harmless);
        assert_eq!(inside.len(), 7);
        assert!(inside.contains(&setting(("core.editor", Some("true")))), "{inside:?}");
        assert!(inside.contains(&setting(("credential.helper", Some("")))), "{inside:?}");
        assert_eq!(parse(b"nonsense"), Some(Vec::new()));
        assert_eq!(parse(b"local\0filter.\xff.clean\nevil\0"), None);
    }

    #[test]
    fn the_program_at_the_other_end_of_a_local_transport_is_not_the_repositorys() {
        let of = |settings: &[(&str, &str)]| {
            let mut local = LocalTransport::default();
            settings.iter().for_each(|(key, value)| {
                local.take(key, value);
            });
            local.overrides(false)
        };
        let never = setting(("protocol.file.allow", Some("never")));
        let receive = |name: &str| setting((&format!("remote.{name}.receivepack"), Some(RECEIVE_PACK)));
        let upload = |name: &str| setting((&format!("remote.{name}.uploadpack"), Some(NO_UPLOAD_PACK)));
        assert_eq!(of(&[("remote.a.url", "git@host:x"), ("remote.b.url", "https://host/x")]), []);
        assert_eq!(
            of(&[("remote.a.url", "../x:y"), ("branch.m.remote", ".")]),
            [receive("."), receive("a"), upload("a")]
        );
        assert_eq!(of(&[("remote.a.url", ".")]), [receive("a")]);
        // A folder in place of a remote's name.
        assert_eq!(of(&[("remote.pushdefault", "evil.git")]), std::slice::from_ref(&never));
        assert_eq!(of(&[("branch.m.remote", "e\nvil")]), std::slice::from_ref(&never));
        assert_eq!(of(&[("branch.m.remote", "a"), ("remote.a.url", "https://host/x")]), []);
        assert_eq!(of(&[("branch.m.remote", "https://host/x")]), []);
        let over_ssh = setting(("protocol.ssh.allow", Some("never")));
        assert_eq!(of(&[("remote.a.uploadpack", "evil")]), [never.clone(), over_ssh]);
        assert_eq!(of(&[("branch.m.pushremote", "/evil")]), std::slice::from_ref(&never));
        assert_eq!(of(&[("url./evil.insteadof", "https://host/")]), [never]);
    }

    /// What a repository allows itself doesn't count, and what is refused stays refused.
    #[test]
    fn a_refused_protocol_is_not_allowed_again() {
        let listed = ["protocol.file.allow\nalways", "protocol.ext.allow\nalways", "remote.a.uploadpack\nevil"];
        let listed: String = listed.iter().map(|setting| format!("local\0{setting}\0")).collect();
        let settings = overrides(&parse(listed.as_bytes()).unwrap(), GitSettings::Own);
        let expected =
            [("protocol.file.allow", "user"), ("protocol.file.allow", "never"), ("protocol.ssh.allow", "never")];
        assert_eq!(settings, expected.map(|(key, value)| setting((key, Some(value)))));
    }

    #[test]
    fn a_repository_whose_settings_name_other_files_is_not_used() {
        let check = |scope, key: &str| {
            let (key, value) = (key.to_owned(), "~/more".to_owned());
            check_other_files(&[ListedSetting { scope, key, value }]).is_ok()
        };
        for key in ["include.path", "includeif.onbranch:evil.path", "fsck.skiplist", "fetch.fsck.skiplist"] {
            assert!(!check(SettingScope::Repository, key), "{key}");
            assert!(check(SettingScope::Person, key), "{key}");
        }
        assert!(check(SettingScope::Repository, "user.name"));
    }

    #[test]
    fn remotes_in_files_of_their_own_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let below = root.join("tree/below");
        std::fs::create_dir_all(&below).unwrap();
        std::fs::create_dir_all(root.join("store/worktrees/tree")).unwrap();
        std::fs::write(root.join("tree/.git"), "gitdir: ../store/worktrees/tree\n").unwrap();
        std::fs::write(root.join("store/worktrees/tree/commondir"), "../..\n").unwrap();
        std::fs::create_dir(root.join("store/remotes")).unwrap();
        assert!(!has_remote_files(&below).unwrap(), "an empty folder names none");
        std::fs::write(root.join("store/remotes/origin"), "URL: ../evil.git\n").unwrap();
        assert!(has_remote_files(&below).unwrap());
    }

    #[test]
    fn git_reads_the_settings_as_they_were_meant() {
        let settings = [("core.pager", "cat"), ("filter.It's a=b!.clean", ""), ("alias.st", "!x 'y' \\z")];
        let valueless = setting(("gc.recentobjectshook", None));
        let given = settings.map(|(key, value)| setting((key, Some(value)))).into_iter().chain([valueless]);
        let (name, value) = as_variable(given);
        let mut git = std::process::Command::new("git");
        git.args(["config", "--list", "--show-scope", "--null"]).env_clear().env(&name, &value).current_dir("/");
        let Ok(output) = git.env("PATH", std::env::var_os("PATH").unwrap_or_default()).output() else { return };
        let listed = String::from_utf8(output.stdout).unwrap();
        for (key, value) in settings {
            assert!(listed.contains(&format!("command\0{key}\n{value}\0")), "{listed:?}");
        }
        assert!(listed.contains("command\0gc.recentobjectshook\0"), "{listed:?}");
    }

    fn setting((key, value): (&str, Option<&str>)) -> Setting {
        (key.to_owned(), value.map(str::to_owned))
    }
}
