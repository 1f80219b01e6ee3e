//! Protects the git calls of hosts, and of programs outside walls: no program named in a folder's git configuration is
//! executed.
//!
//! Even `git status` runs programs named in a repository's configuration, and hosts call it without asking. Settings in
//! the environment override those of the repository: some are always set, and every other setting by which the
//! repository names a program is reset to the person's own value, or to something harmless. Inside walls it is always the
//! latter: a run of somebody else must not learn the person's own, which may contain a token.

use std::{collections::BTreeMap, ffi::OsString, process::Stdio, time::Duration};

use rustix::process::Pid;
use tokio::{io::AsyncReadExt as _, process::Command, time::timeout};

use attache_os::process_tree;

use crate::{DriverRun, process::command_for_run};

/// Set for every host, so they also apply to repositories in subfolders.
const ALWAYS: &[(&str, &str)] = &[
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.alternateRefsCommand", "false"),
    ("core.gitProxy", "none"),
    ("core.pager", "cat"),
    ("protocol.ext.allow", "never"),
    // A folder that looks like a bare repository would bring its own configuration.
    ("safe.bareRepository", "explicit"),
    // In a folder mounted from another machine, inodes, owners and ctimes differ from git's index. Without these
    // settings `git status` reads every file again, over the network.
    ("core.checkStat", "minimal"),
    ("core.trustctime", "false"),
];

/// Limits for listing a configuration: time, and bytes read.
const CONFIG_LIST_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_CONFIG: u64 = 1 << 20;

/// Whose values a run may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GitSettings {
    /// The person's own.
    Own,
    /// Nobody's: the run is inside walls.
    Harmless,
}

/// The environment variable for a host or program working in this run's folder.
pub(crate) async fn variable(job: &DriverRun, shown: GitSettings) -> (OsString, OsString) {
    let listed = timeout(CONFIG_LIST_TIMEOUT, list(job)).await.ok().flatten().unwrap_or_default();
    let fixed = ALWAYS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    as_variable(fixed.chain(overrides(&String::from_utf8_lossy(&listed), shown)))
}

/// Lists the configuration with the scope of each setting. Listing executes nothing.
async fn list(job: &DriverRun) -> Option<Vec<u8>> {
    let mut command: Command = command_for_run("git".as_ref(), job);
    command.args(["config", "--list", "--show-scope", "--null", "--includes"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = process_tree::start(&mut command).ok()?;
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut listed = Vec::new();
    let read = child.stdout.take()?.take(MAX_CONFIG).read_to_end(&mut listed).await;
    // If it prints more than that, it isn't waited for.
    let _ = child.start_kill();
    if child.wait().await.is_ok()
        && let Some(id) = id
    {
        process_tree::forget(id);
    }
    read.is_ok().then_some(listed)
}

/// As git passes `-c` on to its own children. Not as `GIT_CONFIG_KEY_0` and so on: hosts keep variables from commands that
/// have `KEY` in their name, and git fails if it finds only a part of them.
fn as_variable(settings: impl Iterator<Item = (String, String)>) -> (OsString, OsString) {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''").replace('!', r"'\!'"));
    let settings: Vec<String> = settings.map(|(key, value)| format!("{}={}", quoted(&key), quoted(&value))).collect();
    ("GIT_CONFIG_PARAMETERS".into(), settings.join(" ").into())
}

/// The overrides for repository settings that name programs, from `scope NUL key LF value NUL …`.
fn overrides(listed: &str, shown: GitSettings) -> Vec<(String, String)> {
    let mut own: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut of_folder: BTreeMap<&str, &'static str> = BTreeMap::new();
    let mut fields = listed.split('\0');
    while let (Some(scope), Some(setting)) = (fields.next(), fields.next()) {
        let (key, value) = setting.split_once('\n').unwrap_or((setting, ""));
        match scope {
            "local" | "worktree" => {
                if let Some(harmless) = safe_value(key) {
                    of_folder.insert(key, harmless);
                }
            }
            "system" | "global" if shown == GitSettings::Own => own.entry(key).or_default().push(value),
            _ => {}
        }
    }
    let mut settings = Vec::new();
    for (key, harmless) in of_folder {
        let mut add = |value: &str| settings.push((key.to_owned(), value.to_owned()));
        match own.get(key) {
            // Helpers accumulate. An empty one drops those before it.
            Some(values) if key.ends_with(".helper") => {
                add("");
                values.iter().for_each(|value| add(value));
            }
            Some(values) => values.last().into_iter().for_each(|value| add(value)),
            None => add(harmless),
        }
    }
    settings
}

/// A safe value for a setting that names a program. `None` if the setting doesn't. Keys are lower-case, except between
/// the first and the last dot.
fn safe_value(key: &str) -> Option<&'static str> {
    let (section, rest) = key.split_once('.')?;
    let name = rest.rsplit('.').next()?;
    Some(match (section, name) {
        ("alias", _) => "version",
        ("pager", _) | (_, "pager" | "difffilter" | "textconv") => "cat",
        ("filter", "clean" | "smudge" | "process") | (_, "helper") => "",
        ("filter", "required") | ("hook", "enabled") | (_, "fsmonitor") => "false",
        ("submodule", "update") => "checkout",
        (_, "hookspath") => "/dev/null",
        (_, "sshcommand") => "ssh",
        (_, "gitproxy") => "none",
        (_, "uploadpack") => "git-upload-pack",
        (_, "receivepack") => "git-receive-pack",
        (_, "editor" | "askpass" | "external") | ("diff" | "hook" | "trailer", "command" | "cmd") => "true",
        (_, "command" | "cmd" | "program" | "driver" | "packobjectshook" | "alternaterefscommand") => "false",
        _ => return None,
    })
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
            ("local", "diff.evil.textconv\nevil"),
            ("worktree", "alias.st\n!evil"),
            ("command", "core.pager\nless"),
        ];
        let listed: String = listed.iter().map(|(scope, setting)| format!("{scope}\0{setting}\0")).collect();
        let expected = [
            ("alias.st", "version"),
            ("core.editor", "vi"),
            ("credential.helper", ""),
            ("credential.helper", "store"),
            ("diff.evil.textconv", "cat"),
            ("filter.Evil.x.clean", ""),
            ("filter.Evil.x.required", "false"),
        ];
        let expected: Vec<_> = expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(overrides(&listed, GitSettings::Own), expected);
        // Inside walls, nothing of the person's own is told.
        let inside = overrides(&listed, GitSettings::Harmless);
        assert_eq!(inside.len(), 6);
        assert!(inside.contains(&("core.editor".to_owned(), "true".to_owned())), "{inside:?}");
        assert!(inside.contains(&("credential.helper".to_owned(), String::new())), "{inside:?}");
        assert_eq!(overrides("nonsense", GitSettings::Own), []);
    }

    #[test]
    fn git_reads_the_settings_as_they_were_meant() {
        let settings = [("core.pager", "cat"), ("filter.It's a=b!.clean", ""), ("alias.st", "!x 'y' \\z")];
        let (name, value) = as_variable(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let mut git = std::process::Command::new("git");
        git.args(["config", "--list", "--show-scope", "--null"]).env_clear().env(&name, &value).current_dir("/");
        let Ok(output) = git.env("PATH", std::env::var_os("PATH").unwrap_or_default()).output() else { return };
        let listed = String::from_utf8(output.stdout).unwrap();
        for (key, value) in settings {
            assert!(listed.contains(&format!("command\0{key}\n{value}\0")), "{listed:?}");
        }
    }
}
