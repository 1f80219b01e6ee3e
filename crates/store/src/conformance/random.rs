//! Random draws from a seed: numbers, chances, and texts that engines tend to get wrong.

use attache_protocol::{Json, env::Env, secret::SecretHash};

/// Texts that a quoting, encoding or sorting mistake would change.
const TEXTS: [&str; 8] =
    ["", "plain", "O'Brien \"x\" \\ %_", "line\nbreak\ttab", "日本語 é 🦀", "nul\0inside", "null", "\u{7f}"];

/// JSON that a value tree, a NULL or a trimming engine would change.
const JSONS: [&str; 8] = [
    "{}",
    r#"{"text":"hi"}"#,
    r#"{ "a" : 1.50 , "n":9007199254740993 }"#,
    r#"{"e":1e400,"z":-0,"d":1,"d":2}"#,
    r#"{"text":"日本語 \u00e9 \ud83e\udd80 \\ \" '"}"#,
    "null",
    r#""just a string""#,
    "[1, [2], {}]",
];

#[derive(Debug, Clone)]
pub(super) struct RandomSource {
    pub(super) env: Env,
}

// === impl RandomSource ===

impl RandomSource {
    pub(super) fn new(seed: u64) -> Self {
        Self { env: Env::seeded(seed) }
    }

    /// A number below `bound`.
    pub(super) fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.env.fill(&mut bytes);
        u64::from_le_bytes(bytes) % bound.max(1)
    }

    pub(super) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(super) fn one_of<T: Copy>(&self, items: &[T]) -> Option<T> {
        let bound = u64::try_from(items.len()).unwrap_or(u64::MAX);
        let index = usize::try_from(self.below(bound)).unwrap_or(0);
        items.get(index).copied()
    }

    /// Usually one of the newest few.
    pub(super) fn recent<T: Copy>(&self, items: &[T]) -> Option<T> {
        let newest = &items[items.len().saturating_sub(3)..];
        self.one_of(if self.percent(60) { newest } else { items })
    }

    pub(super) fn text(&self) -> String {
        self.one_of(&TEXTS).unwrap_or_default().to_owned()
    }

    pub(super) fn maybe_text(&self) -> Option<String> {
        self.percent(50).then(|| self.text())
    }

    pub(super) fn json(&self) -> Json {
        Json::from_text(self.one_of(&JSONS).unwrap_or("{}")).expect("the list holds valid JSON")
    }

    pub(super) fn maybe_json(&self) -> Option<Json> {
        self.percent(40).then(|| self.json())
    }

    pub(super) fn secret(&self) -> SecretHash {
        SecretHash(self.bytes())
    }

    pub(super) fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.env.fill(&mut bytes);
        bytes
    }
}
