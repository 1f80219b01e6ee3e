//! Host versions: dotted numbers, found in whatever a program prints and compared numerically.

use std::fmt;

use serde::Deserialize;

/// For example `2.1.325`. A suffix such as `-beta.1` is ignored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct HostVersion(Vec<u64>);

// === impl HostVersion ===

impl HostVersion {
    /// The first word of the text with at least two dotted numbers.
    pub fn find_in(text: &str) -> Option<Self> {
        text.split(|character: char| character.is_whitespace() || "(),;:\"'/@".contains(character))
            .find_map(Self::of_word)
    }

    fn of_word(word: &str) -> Option<Self> {
        let word = word.strip_prefix(['v', 'V']).unwrap_or(word);
        // `codex-cli-0.1.2` is a name followed by a version.
        let word = word
            .rsplit('-')
            .find(|part| part.starts_with(|first: char| first.is_ascii_digit()) && part.contains('.'))?;
        let end = word.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(word.len());
        let numbers: Option<Vec<u64>> =
            word[..end].trim_end_matches('.').split('.').map(|part| part.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() > 1).map(Self)
    }
}

impl TryFrom<String> for HostVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let numbers: Option<Vec<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
        let whole = numbers.filter(|numbers| numbers.len() > 1).map(Self).filter(|version| version.to_string() == text);
        whole.ok_or_else(|| format!("`{text}` isn't a version; write it like \"2.1.0\""))
    }
}

impl fmt::Display for HostVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, number) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            write!(f, "{number}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> HostVersion {
        HostVersion::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn versions_are_found_in_real_program_output() {
        for (printed, expected) in [
            ("2.1.325 (Claude Code)\n", Some("2.1.325")),
            ("codex-cli 0.166.0\n", Some("0.166.0")),
            ("0.61.0\n", Some("0.61.0")),
            ("Hermes Agent v0.19.0 (2026.9.1)\n", Some("0.19.0")),
            ("OpenClaw 2026.9.6 (0b1c2d3)\n", Some("2026.9.6")),
            ("2026.09.02-c22c1a3\n", Some("2026.9.2")),
            ("tool-1.2.3-beta.1", Some("1.2.3")),
            ("version: 1.4.\n", Some("1.4")),
            ("needs Node 24 or newer", None),
            ("", None),
        ] {
            assert_eq!(
                HostVersion::find_in(printed).map(|version| version.to_string()).as_deref(),
                expected,
                "{printed:?}"
            );
        }
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        assert!(version("2.1.99") < version("2.1.325"));
        assert!(version("2.1") < version("2.1.0"));
        assert!(version("0.166.0") > version("0.99.9"));
        assert_eq!(HostVersion::try_from("2".to_owned()).unwrap_err(), "`2` isn't a version; write it like \"2.1.0\"");
        assert!(HostVersion::try_from("2.x".to_owned()).is_err());
        assert!(HostVersion::try_from("2.01".to_owned()).is_err());
    }

    proptest! {
        #[test]
        fn a_displayed_version_parses_back(numbers in proptest::collection::vec(0_u64..100_000, 2..5), before in "[a-z ]{0,9}") {
            let shown = HostVersion(numbers).to_string();
            prop_assert_eq!(HostVersion::find_in(&format!("{before} {shown} (built today)")).unwrap().to_string(), shown);
        }

        #[test]
        fn no_output_makes_parsing_panic(text in ".{0,200}") {
            let _ = HostVersion::find_in(&text);
        }
    }
}
