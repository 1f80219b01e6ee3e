//! All presets: the built-in ones, then a person's own.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{
    Preset,
    row::{ChosenResources, PresetRow, WALLS},
};

/// Every supported host, in display order, and what the person chose for all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct PresetTable {
    presets: Vec<Preset>,
    pub resources: ChosenResources,
}

/// A mistake in a person's `presets.toml`, with its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct PresetError {
    pub line: Option<usize>,
    pub what: String,
}

type PresetRows = BTreeMap<Spanned<String>, PresetRow>;

const EMBEDDED: &str = include_str!("presets.toml");

// === impl PresetTable ===

impl PresetTable {
    /// The built-in hosts, plus those of the person's own file. Pass its text, or an empty string if there is no file.
    pub fn parse(user: &str) -> Result<Self, PresetError> {
        let embedded = rows(EMBEDDED).expect("a test parses the built-in table");
        let mut table: Vec<(Spanned<String>, PresetRow)> = in_order(embedded);
        let (known, mut resources) = (table.len(), ChosenResources::default());
        let mistake = |name: &Spanned<String>| {
            let line = line_of(user, name.span().start);
            move |what| PresetError { line: Some(line), what }
        };
        for (name, row) in in_order(rows(user)?) {
            if name.get_ref() == WALLS {
                resources = row.resources().map_err(mistake(&name))?;
                continue;
            }
            let earlier = table[..known].iter_mut().find(|(other, _)| other.get_ref() == name.get_ref());
            match earlier {
                Some((place, whole)) => {
                    // From here on, any mistake is in the person's file.
                    *whole = std::mem::take(whole).replaced_by(row);
                    *place = name;
                }
                None => table.push((name, row)),
            }
        }
        let complete = |(name, row): (Spanned<String>, PresetRow)| row.complete(name.get_ref()).map_err(mistake(&name));
        Ok(Self { presets: table.into_iter().map(complete).collect::<Result<_, _>>()?, resources })
    }

    pub fn get(&self, name: &str) -> Option<&Preset> {
        self.presets.iter().find(|preset| preset.name == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Preset> {
        self.presets.iter()
    }

    /// `claude_cli, codex, …`, for messages.
    pub fn names(&self) -> String {
        self.presets.iter().map(|preset| preset.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

fn rows(text: &str) -> Result<PresetRows, PresetError> {
    toml::from_str(text).map_err(|error| PresetError {
        line: error.span().map(|span| line_of(text, span.start)),
        what: error.message().trim_end_matches('.').to_owned(),
    })
}

/// In the order they are written.
fn in_order(rows: PresetRows) -> Vec<(Spanned<String>, PresetRow)> {
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(name, _)| name.span().start);
    rows
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::{
        super::{ApprovalSupport, DriverKind, HostVersion},
        *,
    };

    #[test]
    fn the_built_in_table_is_valid() {
        let table = PresetTable::parse("").unwrap();
        let rows: Vec<_> = table.iter().map(|row| (row.name.as_str(), row.driver.as_str())).collect();
        let expected = [
            ("claude_cli", "claude"),
            ("codex", "codex"),
            ("hermes", "acp"),
            ("openclaw", "exec"),
            ("cursor", "exec"),
            ("cursor_acp", "acp"),
            ("gemini", "acp"),
            ("opencode", "acp"),
            ("qwen", "acp"),
            ("custom", "acp"),
        ];
        assert_eq!(rows, expected);
        let silent: Vec<_> =
            table.iter().filter(|row| row.asks != ApprovalSupport::Yes).map(|row| (&*row.name, row.asks)).collect();
        let expected = [
            ("hermes", ApprovalSupport::Partly),
            ("openclaw", ApprovalSupport::No),
            ("cursor", ApprovalSupport::No),
            ("custom", ApprovalSupport::Unknown),
        ];
        assert_eq!(silent, expected);
        for row in table.iter().filter(|row| row.name != "custom") {
            assert!(!row.programs.is_empty() && !row.install.is_empty() && !row.sign_in.is_empty(), "{}", row.name);
            let named = row.login.variables.iter().chain(&row.login.folder_variable);
            // A login variable that is detected but doesn't reach the host is useless.
            for variable in named {
                assert!(row.env.contains(variable), "{} does not pass {variable}", row.name);
            }
        }
    }

    #[test]
    fn custom_rows_add_hosts_and_override_single_keys() {
        let table = PresetTable::parse(
            "[goose]\ndriver = \"acp\"\nprograms = [\"goose\"]\nargs = [\"acp\"]\n\
             [codex]\nargs = [\"-c\", \"model=\\\"big\\\"\"]\nversion = { least = \"1.0\" }\n",
        )
        .unwrap();
        let (goose, codex) = (table.get("goose").unwrap(), table.get("codex").unwrap());
        assert_eq!((goose.driver, goose.label.as_str()), (DriverKind::Acp, "goose"));
        assert_eq!(table.iter().last(), Some(goose));
        assert_eq!(codex.args, ["-c", "model=\"big\""]);
        assert_eq!(codex.version.least.as_ref().map(HostVersion::to_string).as_deref(), Some("1.0"));
        assert_eq!(codex.label, "Codex");
    }

    #[test]
    fn what_runs_may_use_is_chosen_for_all_of_them() {
        let resources = |text: &str| PresetTable::parse(text).unwrap().resources;
        assert_eq!(resources(""), ChosenResources::default());
        let chosen = resources("[walls]\nmemory = \"2GiB\"\nprocesses = 500\n");
        assert_eq!((chosen.memory, chosen.processes), ("2GiB".parse().ok(), NonZeroU32::new(500)));
        let said = |text: &str| PresetTable::parse(text).unwrap_err().to_string();
        assert!(said("[walls]\nmemory = \"2GB\"\n").contains("isn't a size"));
        assert!(said("[walls]\nprocesses = 0\n").starts_with("line 2: "));
        assert_eq!(
            said("\n[codex]\nprocesses = 5\n"),
            "line 2: `codex` can't have its own memory and processes; put them into [walls], for all runs"
        );
        assert!(said("[walls]\ndriver = \"acp\"\n").contains("isn't a host"));
    }

    #[test]
    fn a_mistake_names_its_line() {
        let said = |text: &str| PresetTable::parse(text).unwrap_err().to_string();
        assert_eq!(
            said("\n[goose]\nprograms = [\"goose\"]\n"),
            "line 2: `goose` has no driver; add driver = \"acp\" (or claude, codex, exec)"
        );
        assert_eq!(said("# mine\n[shell]\ndriver = \"acp\"\n"), "line 2: `shell` is built in; choose another name");
        assert_eq!(
            said("[Goose]\ndriver = \"acp\"\n"),
            "line 1: `Goose` isn't a valid host name; use lower-case letters, digits and underscores"
        );
        assert_eq!(
            said("[codex]\nprograms = [\"./codex\"]\n"),
            "line 1: the program `./codex` of `codex` must be a plain name or an absolute path"
        );
        assert_eq!(
            said("[a]\ndriver = \"exec\"\n\n[a.output]\nformat = \"json\"\n"),
            "line 1: the output of `a` is JSON, but there is no [[a.output.read]] rule"
        );
        assert_eq!(
            said("[a]\ndriver = \"acp\"\nenv = [\"A=B\"]\n"),
            "line 1: `A=B` of `a` isn't a valid variable name"
        );
        assert_eq!(
            said("[codex]\nbudget = [\"--max\"]\n"),
            "line 1: the budget of `codex` has no placeholder for the amount; add {cost_usd}"
        );
        assert!(said("[a]\ndriver = \"acp\"\nprogram = \"x\"\n").starts_with("line 3: unknown field `program`"));
        assert!(said("[a]\ndriver = \"grpc\"\n").starts_with("line 2: unknown variant `grpc`"));
        assert!(said("[a]\nversion = { least = \"two\" }\n").starts_with("line 2: `two` isn't a version"));
        assert!(said("[a\n").starts_with("line 1: "));
    }

    proptest! {
        #[test]
        fn no_text_makes_parsing_panic(text in "[a-z\\[\\]=\"{}., \n]{0,80}") {
            let _ = PresetTable::parse(&text);
        }
    }
}
