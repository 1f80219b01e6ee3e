//! The text catalogue of the command line: every message, its name beside its sentence in both languages.
//!
//! One file per part of the command line. `text::ask::started_on(device)` is the sentence in the language of this
//! process. To move an English sentence here, give it a line in its file and call that instead.

use std::{
    fmt::Display,
    sync::atomic::{AtomicBool, Ordering},
};

/// Declares texts as functions:
///
/// - `name: "…"` is a text without placeholders.
/// - `name(a, b): "… {a} … {b}"` fills its placeholders.
/// - `name(n): "{n} run" | "{n} runs"` takes the form that fits the first argument.
///
/// Every English text is followed by `zh "…"`, the Chinese one, which needs no plural form. A text without it fails the
/// build, as does a placeholder that isn't listed, or a listed one that is missing from a text.
macro_rules! texts {
    ($($name:ident $(($($arg:ident),+))?: $en:literal $(| $many:literal)? zh $zh:literal;)*) => {
        $(texts!(@item $name [$($($arg),+)?] $en [$($many)?] $zh);)*

        #[cfg(test)]
        pub(super) const ALL: &[$crate::text::Bilingual] =
            &[$($crate::text::Bilingual { name: stringify!($name), en: &[$en $(, $many)?], zh: $zh },)*];

        const _: () = {
            $($crate::text::check(
                concat!("the placeholders of `", stringify!($name), "` aren't the listed ones"),
                &[$($(stringify!($arg),)+)?],
                &[$($many)?],
                &[$en $(, $many)?, $zh],
            );)*
        };
    };

    (@item $name:ident [] $en:literal [] $zh:literal) => {
        pub(crate) fn $name() -> &'static str {
            $crate::text::pick($en, $zh)
        }
    };
    (@item $name:ident [$($arg:ident),+] $en:literal [] $zh:literal) => {
        pub(crate) fn $name($($arg: impl std::fmt::Display),+) -> String {
            $crate::text::fill($crate::text::pick($en, $zh), &[$((stringify!($arg), &$arg)),+])
        }
    };
    (@item $name:ident [$n:ident $(, $arg:ident)*] $en:literal [$many:literal] $zh:literal) => {
        pub(crate) fn $name($n: u64 $(, $arg: impl std::fmt::Display)*) -> String {
            let form = $crate::text::pick(if $n == 1 { $en } else { $many }, $zh);
            $crate::text::fill(form, &[(stringify!($n), &$n) $(, (stringify!($arg), &$arg))*])
        }
    };
}

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod ask;
pub(crate) mod delegations;
pub(crate) mod doctor;
pub(crate) mod errors;
pub(crate) mod help;
mod help_options;
mod language;
pub(crate) mod notifications;
pub(crate) mod parser;
pub(crate) mod people;
pub(crate) mod refusals;
pub(crate) mod runs;
pub(crate) mod setup;
pub(crate) mod terms;
pub(crate) mod worktrees;

pub(crate) use language::Language;

/// Whether the messages of this process are in Chinese. Chosen once, before anything is printed.
static IS_CHINESE: AtomicBool = AtomicBool::new(false);

/// One text of the catalogue, as the tests see it.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bilingual {
    name: &'static str,
    /// The forms for one and for many, if they differ.
    en: &'static [&'static str],
    zh: &'static str,
}

/// Chooses the language of this process.
pub(crate) fn speak(language: Language) {
    IS_CHINESE.store(language == Language::Zh, Ordering::Relaxed);
}

pub(crate) fn is_chinese() -> bool {
    IS_CHINESE.load(Ordering::Relaxed)
}

pub(crate) fn pick(en: &'static str, zh: &'static str) -> &'static str {
    if is_chinese() { zh } else { en }
}

/// Fills the placeholders.
fn fill(template: &str, values: &[(&str, &dyn Display)]) -> String {
    let mut filled = String::with_capacity(template.len() + 32);
    let mut rest = template;
    while let Some((words, (name, after))) =
        rest.split_once('{').and_then(|(words, after)| Some((words, after.split_once('}')?)))
    {
        filled.push_str(words);
        if let Some((_, value)) = values.iter().find(|(known, _)| *known == name) {
            filled.push_str(&value.to_string());
        }
        rest = after;
    }
    filled + rest
}

/// Fails the build with `problem` unless every text has exactly these placeholders. A plural form may leave out the
/// first one, the count.
const fn check(problem: &str, names: &[&str], plural: &[&str], texts: &[&str]) {
    let optional = !plural.is_empty() as u32;
    let (mut index, all) = (0, (1_u32 << names.len()) - 1);
    while index < texts.len() {
        let (text, mut at, mut found) = (texts[index].as_bytes(), 0, 0_u32);
        while at < text.len() {
            if text[at] == b'{' {
                let mut name = 0;
                while name < names.len() && !stands_at(text, at + 1, names[name].as_bytes()) {
                    name += 1;
                }
                assert!(name < names.len(), "{}", problem);
                found |= 1 << name;
            }
            at += 1;
        }
        assert!(found >> optional == all >> optional, "{}", problem);
        index += 1;
    }
}

/// Whether `text` has `name` and a closing brace at this position.
const fn stands_at(text: &[u8], at: usize, name: &[u8]) -> bool {
    let mut index = 0;
    while index < name.len() {
        if at + index >= text.len() || text[at + index] != name[index] {
            return false;
        }
        index += 1;
    }
    at + index < text.len() && text[at + index] == b'}'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part of the catalogue.
    fn all() -> impl Iterator<Item = &'static Bilingual> {
        [
            agents::ALL,
            approvals::ALL,
            ask::ALL,
            delegations::ALL,
            doctor::ALL,
            errors::ALL,
            help::ALL,
            notifications::ALL,
            parser::ALL,
            people::ALL,
            refusals::ALL,
            runs::ALL,
            setup::ALL,
            terms::ALL,
            worktrees::ALL,
        ]
        .into_iter()
        .flatten()
    }

    /// Texts without words: names, signs and data.
    const SAME: &[&str] = &[
        "id",
        "pending_line",
        "one_use",
        "heading",
        "labelled",
        "part",
        "then",
        "explained",
        "row_card",
        "offer",
        "run_ended",
        "run_ended_with",
        "result",
        "staged_text",
        "one_is",
        "is_now",
        "home_unreadable",
        "policy_wrong",
        "host_trouble",
        "attempt_of",
        "created_by",
        "approval_allow",
        "protocol",
        "tokens",
        "hub",
        "decided",
        "chosen",
    ];

    fn is_chinese_text(text: &str) -> bool {
        text.chars().any(|character| matches!(character, '\u{4e00}'..='\u{9fff}'))
    }

    #[test]
    fn every_text_is_in_both_languages() {
        let untranslated: Vec<_> = all()
            .filter(|text| !is_chinese_text(text.zh) || text.en.iter().any(|en| is_chinese_text(en)))
            .map(|text| text.name)
            .filter(|name| !SAME.contains(name))
            .collect();
        assert_eq!(untranslated, Vec::<&str>::new());
        assert!(all().count() > 300, "only {} texts", all().count());
    }

    #[test]
    fn both_languages_have_the_same_placeholders_and_commands() {
        let placeholders = |text: &str| -> Vec<String> {
            let mut names: Vec<_> = text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).collect();
            names.sort_unstable();
            names.into_iter().map(|(name, _)| name.to_owned()).collect()
        };
        let commands = |text: &str| {
            let mut options: Vec<String> = text
                .split(|character: char| !character.is_ascii_alphanumeric() && !"-_$".contains(character))
                .filter(|word| word.starts_with("--") || word.starts_with('$') || word.contains('_'))
                .map(str::to_owned)
                .collect();
            options.sort_unstable();
            (text.matches("attache ").count(), options)
        };
        for text in all() {
            let many = text.en.last().expect("a text has a form");
            assert_eq!(placeholders(many), placeholders(text.zh), "{}", text.name);
            assert_eq!(commands(many), commands(text.zh), "{}", text.name);
        }
    }

    #[test]
    fn chinese_texts_have_chinese_punctuation() {
        for text in all() {
            let characters: Vec<char> = text.zh.chars().collect();
            for pair in characters.windows(2) {
                let is_wrong =
                    is_chinese_text(&pair[0].to_string()) && matches!(pair[1], ',' | '.' | ';' | ':' | '(' | '!' | '?');
                assert!(!is_wrong, "{}: {}", text.name, text.zh);
            }
        }
    }

    #[test]
    fn placeholders_are_filled_where_they_stand() {
        assert_eq!(fill("{b} and {a}", &[("a", &1), ("b", &"{a}")]), "{a} and 1");
        assert_eq!(fill("no placeholder", &[]), "no placeholder");
    }

    #[test]
    fn a_text_needs_exactly_its_placeholders() {
        let accepted = |names: &[&str], plural: &[&str], text: &str| {
            std::panic::catch_unwind(|| check("", names, plural, &[text])).is_ok()
        };
        assert!(accepted(&["a", "b"], &[], "{b} {a}") && accepted(&["n"], &["2"], "1 run") && accepted(&[], &[], ""));
        for (names, text) in [(&["a"][..], "x"), (&[], "{a}"), (&["a"], "{a} {b}"), (&["ab"], "{a}"), (&["a"], "{a")] {
            assert!(!accepted(names, &[], text), "{text}");
        }
    }
}
