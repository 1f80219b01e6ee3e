//! The language of a process: from `--lang`, `ATTACHE_LANG` or the locale.

use std::ffi::OsString;

/// A language that messages can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Language {
    En,
    Zh,
}

/// The variables of the locale that say in which language messages are, in the order in which POSIX looks at them.
const LOCALE: [&str; 3] = ["LC_ALL", "LC_MESSAGES", "LANG"];

// === impl Language ===

impl Language {
    /// The language for these arguments and this environment. Looked for before the arguments are parsed: help and
    /// usage errors are in this language, too. What programs read (`--json`) is in English.
    pub(crate) fn of(args: &[OsString], variable: impl Fn(&str) -> Option<String>) -> Self {
        // Arguments after `--` belong to another program.
        let own: Vec<_> = args.iter().take_while(|arg| *arg != "--").filter_map(|arg| arg.to_str()).collect();
        if own.contains(&"--json") {
            return Self::En;
        }
        let next = own.windows(2).filter(|pair| pair[0] == "--lang").map(|pair| pair[1]);
        let given = next.chain(own.iter().filter_map(|arg| arg.strip_prefix("--lang="))).find_map(Self::from_tag);
        let chosen = given.or_else(|| variable("ATTACHE_LANG").and_then(|tag| Self::from_tag(&tag)));
        chosen.unwrap_or_else(|| {
            let locale = LOCALE.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
            locale.and_then(|locale| Self::from_tag(&locale)).unwrap_or(Self::En)
        })
    }

    /// The language of a tag or locale such as `zh`, `zh-Hans-CN` or `zh_CN.UTF-8`.
    fn from_tag(tag: &str) -> Option<Self> {
        match tag.trim().split(['-', '_', '.', '@']).next()?.to_ascii_lowercase().as_str() {
            "en" => Some(Self::En),
            "zh" => Some(Self::Zh),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn language(args: &[&str], variables: &[(&str, &str)]) -> Language {
        let args: Vec<OsString> = args.iter().map(Into::into).collect();
        Language::of(&args, |wanted| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_flag_comes_before_the_environment_and_the_locale_last() {
        let zh = ("ATTACHE_LANG", "zh");
        assert_eq!(language(&[], &[]), Language::En);
        assert_eq!(language(&["runs", "--lang", "zh"], &[]), Language::Zh);
        assert_eq!(language(&["--lang=zh", "runs"], &[("ATTACHE_LANG", "en"), ("LANG", "C")]), Language::Zh);
        assert_eq!(language(&["--lang", "en"], &[zh, ("LANG", "zh_CN.UTF-8")]), Language::En);
        assert_eq!(language(&["runs"], &[zh, ("LC_ALL", "en_US.UTF-8")]), Language::Zh);
        assert_eq!(language(&["runs"], &[("ATTACHE_LANG", "xx"), ("LANG", "zh_TW")]), Language::Zh);
        // The first variable of the locale that is set decides, also for a language that we don't have.
        assert_eq!(language(&[], &[("LC_ALL", "C.UTF-8"), ("LANG", "zh_CN.UTF-8")]), Language::En);
        assert_eq!(language(&[], &[("LC_ALL", ""), ("LC_MESSAGES", "zh_CN"), ("LANG", "de_DE")]), Language::Zh);
        assert_eq!(language(&[], &[("LC_MESSAGES", "fr_FR.UTF-8"), ("LANG", "zh_CN.UTF-8")]), Language::En);
        assert_eq!(language(&[], &[("LANG", "zh_CN.UTF-8@pinyin")]), Language::Zh);
    }

    #[test]
    fn what_programs_read_is_in_english() {
        assert_eq!(language(&["runs", "--json", "--lang", "zh"], &[("LANG", "zh_CN.UTF-8")]), Language::En);
        assert_eq!(language(&["adapter", "command", "--", "prog", "--json"], &[("LANG", "zh_CN")]), Language::Zh);
        assert_eq!(language(&["adapter", "command", "--", "prog", "--lang", "zh"], &[]), Language::En);
    }
}
