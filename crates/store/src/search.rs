//! What a search over runs compares: the text of a run, and its grams, by which an engine finds candidates without
//! reading every run.
//!
//! A gram is what a window of the text shows: three characters where all are ASCII, two where one is not, because words
//! of two characters are the norm in Chinese and each character narrows a search far more than a Latin letter does. A
//! text contains the words only if it has all of their grams, so an engine that looks up grams misses nothing; what it
//! finds, it checks with [`contains`].

use std::collections::BTreeSet;

use attache_protocol::{Actor, AgentId, UserId};

use crate::record::{RunFilter, RunRecord};

/// How many bytes of a task are searched. A task is found by how it begins.
pub const MAX_SEARCHED: usize = 16 << 10;

/// More grams narrow a search no further.
const MAX_WANTED: usize = 24;

/// Stands where the text has no further character. Words never contain it where it counts.
const END: char = '\0';

/// The agents and people whose names contain the words of a search, by their current names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NameMatches {
    pub(crate) agents: BTreeSet<AgentId>,
    pub(crate) users: BTreeSet<UserId>,
}

/// What a text must have to contain the words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequiredGrams {
    /// All of these.
    All(BTreeSet<String>),
    /// One that begins like this: the words are shorter than a gram.
    Prefix(String),
}

// === impl RunFilter ===

impl RunFilter {
    /// Whether the run matches what the filter says of its text and cost. `named` is only used with a text.
    pub(crate) fn matches_content(&self, run: &RunRecord, named: &NameMatches) -> bool {
        let text = self.text.as_ref().is_none_or(|text| contains(run, text, named));
        text && self.min_micro_usd.is_none_or(|least| run.cost().is_some_and(|cost| cost >= least))
    }
}

/// Whether the run's task, its id, its agent's name or its caller contains the words, which are in lowercase. A caller
/// is found by the name of the person or agent, and as the log writes it.
fn contains(run: &RunRecord, words: &str, named: &NameMatches) -> bool {
    run.agent_name.to_lowercase().contains(words)
        || named.agents.contains(&run.agent)
        || named.users.iter().any(|user| run.user == Some(*user))
        || matches!(run.caller, Actor::Agent(agent) if named.agents.contains(&agent))
        || searchable_texts(run).iter().any(|text| text.contains(words))
}

/// The texts of a run that never change, in lowercase.
pub(crate) fn searchable_texts(run: &RunRecord) -> [String; 3] {
    let task = run.spec.input.text_member("text").unwrap_or_else(|| run.spec.input.get().to_owned());
    let task = task[..task.floor_char_boundary(MAX_SEARCHED)].to_lowercase();
    [task, run.id.to_string().to_lowercase(), run.caller.to_string().to_lowercase()]
}

/// Every gram of the text.
pub(crate) fn grams(text: &str, into: &mut BTreeSet<String>) {
    let mut rest = text.chars();
    while let Some(first) = rest.next() {
        let mut next = rest.clone();
        let (second, third) = (next.next().unwrap_or(END), next.next().unwrap_or(END));
        if !first.is_ascii() || !second.is_ascii() {
            into.insert([first, second].iter().collect());
        }
        if first.is_ascii() {
            let second = if second.is_ascii() { second } else { END };
            let third = if second != END && third.is_ascii() { third } else { END };
            into.insert([first, second, third].iter().collect());
        }
    }
}

/// What every text that contains these words has. They are in lowercase, and not empty.
pub(crate) fn required_grams(words: &str) -> RequiredGrams {
    let characters: Vec<char> = words.chars().collect();
    let pairs = characters.windows(2).filter(|pair| pair.iter().any(|character| !character.is_ascii()));
    // A NUL inside the words is written like the end of a text.
    let triples = characters.windows(3).filter(|triple| triple.iter().all(|it| it.is_ascii() && *it != END));
    let found: BTreeSet<String> = pairs.chain(triples).take(MAX_WANTED).map(|gram| gram.iter().collect()).collect();
    if found.is_empty() {
        // Before a NUL: what follows it may have been written as an end.
        return RequiredGrams::Prefix(words.split(END).next().unwrap_or_default().chars().take(2).collect());
    }
    RequiredGrams::All(found)
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    fn grams_of(text: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        grams(text, &mut found);
        found
    }

    fn is_candidate(text: &str, words: &str) -> bool {
        let all = grams_of(text);
        match required_grams(words) {
            RequiredGrams::All(wanted) => wanted.is_subset(&all),
            RequiredGrams::Prefix(prefix) => all.iter().any(|gram| gram.starts_with(&prefix)),
        }
    }

    #[test]
    fn words_of_two_chinese_characters_and_of_three_letters_are_grams() {
        let shown = |text: &str| grams_of(text).into_iter().collect::<Vec<_>>();
        assert_eq!(shown("修复ok"), ["k\0\0", "ok\0", "修复", "复o"]);
        assert_eq!(required_grams("修复"), RequiredGrams::All(["修复".to_owned()].into()));
        assert_eq!(required_grams("fix"), RequiredGrams::All(["fix".to_owned()].into()));
        assert_eq!(
            (required_grams("修"), required_grams("ok")),
            (RequiredGrams::Prefix("修".into()), RequiredGrams::Prefix("ok".into()))
        );
        assert!(!is_candidate("修复登录", "登陆") && !is_candidate("fix it", "fit"));
    }

    /// Over all parts of random texts in which letters, ideographs, emoji, quotes and NULs meet.
    #[test]
    fn whatever_a_text_contains_it_has_the_grams_of() {
        let (env, letters) = (Env::seeded(7), ['a', 'b', '"', ' ', '*', 'é', '修', '复', '🦀', '\0']);
        for _ in 0..2_000 {
            let mut drawn = [0_u8; 9];
            env.fill(&mut drawn);
            let text: Vec<char> = drawn.iter().map(|byte| letters[usize::from(*byte) % letters.len()]).collect();
            let whole: String = text.iter().collect();
            for from in 0..text.len() {
                for to in from + 1..=text.len() {
                    let words: String = text[from..to].iter().collect();
                    assert!(is_candidate(&whole, &words), "{whole:?} {words:?}");
                }
            }
        }
    }
}
