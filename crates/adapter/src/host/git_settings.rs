//! Which settings of git name a program or lead it elsewhere, and what takes the place of a repository's own value.

use std::{collections::BTreeMap, sync::LazyLock};

/// What a repository's own value is reset to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HarmlessValue {
    Text(&'static str),
    /// The setting without a value. Git runs every hook of such a list, and nothing if one has no value.
    Missing,
}

/// Section, then name. A name of `*` stands for all others. `None` if the setting is harmless as it is.
type SettingsTable = BTreeMap<&'static str, BTreeMap<&'static str, Option<HarmlessValue>>>;

static SETTINGS: LazyLock<SettingsTable> = LazyLock::new(|| parse(include_str!("git_settings.txt")));

/// Ends of names that are never harmless only because their section is.
const PROGRAM_NAMES: [&str; 12] = [
    "askpass", "browser", "cmd", "command", "driver", "editor", "helper", "hook", "pager", "program", "textconv", "vcs",
];

/// A safe value for a setting that names a program, or that isn't known. `None` if the setting is harmless. Keys are
/// lower-case, except between the first and the last dot.
pub(super) fn harmless_value(key: &str, value: &str) -> Option<HarmlessValue> {
    let (section, name) = parts(key)?;
    let names = SETTINGS.get(section);
    if let Some(known) = names.and_then(|names| names.get(name)) {
        return *known;
    }
    let is_suspect = PROGRAM_NAMES.iter().any(|end| name.ends_with(end));
    match names.and_then(|names| names.get("*")) {
        Some(Some(harmless)) => Some(*harmless),
        Some(None) if !is_suspect => None,
        // Git stops at an empty text where it expects a number.
        _ if !is_suspect && is_plain(value) => None,
        _ => Some(HarmlessValue::Text("")),
    }
}

/// The section and the name. What is between them is chosen by whoever wrote the setting.
fn parts(key: &str) -> Option<(&str, &str)> {
    let (section, rest) = key.split_once('.')?;
    // `fetch.fsck.<id>` and `receive.fsck.<id>` are like `fsck.<id>`.
    let section = if matches!(section, "fetch" | "receive") && rest.starts_with("fsck.") { "fsck" } else { section };
    Some((section, rest.rsplit('.').next()?))
}

/// A truth value or a number, which is no program.
fn is_plain(value: &str) -> bool {
    let digits = value.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
    let is_number = digits.len() + 1 >= value.len() && digits.parse::<i64>().is_ok();
    is_number || ["", "true", "false", "yes", "no", "on", "off"].contains(&value.to_ascii_lowercase().as_str())
}

fn parse(text: &'static str) -> SettingsTable {
    let mut table = SettingsTable::new();
    let mut section = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let names = line.split_once(": ").map_or(line, |(name, rest)| {
            section = name;
            rest
        });
        let entries = names.split_whitespace().map(|word| match (word.split_once('='), word.strip_suffix('!')) {
            (Some((name, value)), _) => (name, Some(HarmlessValue::Text(value))),
            (None, Some(name)) => (name, Some(HarmlessValue::Missing)),
            (None, None) => (word, None),
        });
        table.entry(section).or_default().extend(entries);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_to_be_harmless_is_reset() {
        let reset = |key, value| harmless_value(key, value);
        let to = |value| Some(HarmlessValue::Text(value));
        for (key, value, expected) in [
            ("core.bare", "false", None),
            ("branch.main.merge", "refs/heads/main", None),
            ("branch.main.vscode-merge-base", "origin/main", None),
            ("branch.main.newcmd", "evil", to("")),
            ("fsck.baddate", "ignore", None),
            ("remote.origin.url", "https://example.org", None),
            ("remote.origin.vcs", "x/../evil", to("")),
            ("gpg.ssh.defaultkeycommand", "evil", to("false")),
            ("gc.recentobjectshook", "evil", Some(HarmlessValue::Missing)),
            ("rebase.instructionformat", "%s%nexec evil", to("%s")),
            ("receive.fsck.baddate", "ignore", None),
            ("core.fromthefuture", "evil", to("")),
            ("core.fromthefuture", "12k", None),
            ("core.fromthefuture", "True", None),
            ("core.futurehook", "true", to("")),
            ("lfs.customtransfer.evil.path", "evil", to("")),
            ("tig.bind.generic", "x !evil", to("")),
            ("alias.st", "!evil", to("version")),
            ("pager.log", "evil", to("cat")),
            // What is read, written or sent.
            ("http.proxy", "http://evil", to("")),
            ("http.https://host/.sslverify", "false", to("true")),
            ("http.cookiefile", "~/cookies", to("")),
            ("http.https://host/.sslkey", "~/key.pem", to("")),
            ("http.delegation", "always", to("none")),
            ("http.extraheader", "X: y", None),
            ("remote.origin.proxy", "http://evil", to("")),
            ("credential.protectprotocol", "false", to("true")),
            ("protocol.file.allow", "always", to("user")),
            ("gc.repackfilterto", "/home/ann/packs", to("")),
            ("format.signaturefile", "/home/ann/.netrc", to("/dev/null")),
            ("format.outputdirectory", "/home/ann/.config/autostart", to(".")),
            ("commit.template", "/home/ann/.netrc", to("/dev/null")),
            ("submodule.recurse", "true", to("false")),
            ("url.https://host/.insteadof", "x:", None),
            // Where git would copy, print or obey what is in a file elsewhere.
            ("branch.main.mergeoptions", "-F ../.netrc --no-edit", to("")),
            ("branch.main.futureoptions", "-F ../.netrc", to("")),
            ("fsck.skiplist", "../.netrc", to("/dev/null")),
            ("fetch.fsck.skiplist", "../.netrc", to("/dev/null")),
            ("receive.fsck.skiplist", "../.netrc", to("/dev/null")),
            ("fetch.bundleuri", "/home/ann/list", to("")),
            ("bundle.a.uri", "/home/ann/.netrc", to("")),
            ("transfer.bundleuri", "true", to("false")),
            ("core.attributesfile", "../.netrc", to("")),
            ("core.excludesfile", "../.netrc", to("")),
            ("mailmap.file", "../.netrc", to("")),
            ("diff.orderfile", "../.netrc", to("/dev/null")),
            ("gpg.ssh.allowedsignersfile", "signers", to("")),
            ("core.sharedrepository", "0666", to("umask")),
        ] {
            assert_eq!(reset(key, value), expected, "{key}");
        }
    }

    /// A setting that a newer git knows has to be looked at: does it name a program, or lead git to one?
    #[test]
    fn every_setting_of_the_installed_git_was_looked_at() {
        let Ok(output) = std::process::Command::new("git").args(["help", "--config"]).output() else { return };
        let listed = String::from_utf8(output.stdout).unwrap().to_ascii_lowercase();
        let keys: Vec<&str> = listed.lines().filter(|line| !line.contains(' ') && line.contains('.')).collect();
        assert!(keys.len() > 500, "{listed}");
        // `http.<url>.*` stands for all settings of the section, each of which is listed as well.
        let is_listed = |(section, name): (&str, &str)| {
            let names = &SETTINGS[section];
            name == "*" || names.contains_key(name) || names.contains_key("*")
        };
        let is_new = |key: &&&str| {
            let (section, name) = parts(key).unwrap();
            let is_pack = section == "remote" && ["uploadpack", "receivepack"].contains(&name);
            let is_suspect = PROGRAM_NAMES.iter().any(|end| name.ends_with(end));
            let is_exact = SETTINGS.get(section).is_some_and(|names| names.contains_key(name));
            !is_pack && (!SETTINGS.contains_key(section) || !is_listed((section, name)) || is_suspect && !is_exact)
        };
        let new: Vec<_> = keys.iter().filter(is_new).collect();
        assert_eq!(new, Vec::<&&str>::new(), "add them to git_settings.txt");
    }
}
