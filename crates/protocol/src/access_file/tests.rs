//! The seed's file, every kind of error with its position, and round trips.

use proptest::prelude::*;

use super::*;

const SEED: &str = "\
# config/a2a_permissions.yaml
agents:
  user123-laptop:
    can_access:
      - conversations/user123/*
      - resources/public/*
    cannot_access:
      - conversations/other_users/*
      - agents/*/memory/*
";

fn entry(agents: &str, can: &[&str], cannot: &[&str]) -> AccessRule {
    let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    AccessRule { agents: agents.parse().unwrap(), can_access: patterns(can), cannot_access: patterns(cannot) }
}

fn mistake(line: usize, column: usize, what: &str, hint: &str) -> RulesFileMistake {
    RulesFileMistake { line, column, what: what.to_owned(), hint: hint.to_owned() }
}

#[test]
fn the_seeds_file_parses() {
    let entries = vec![entry(
        "user123-laptop",
        &["conversations/user123/*", "resources/public/*"],
        &["conversations/other_users/*", "agents/*/memory/*"],
    )];
    assert_eq!(parse(SEED), Ok(AccessRuleSet { fallback: Fallback::Own, entries }));
}

#[test]
fn a_minimal_file_is_valid_and_an_empty_one_is_not() {
    let hint = "Write `default: own` to let agents reach what belongs to their own user and what is shared.";
    for text in ["", " \n\n", "# nothing yet\n", "---\n", "~\n", "{}\n", "\u{feff}"] {
        let [found] = &parse(text).unwrap_err().mistakes[..] else { panic!("{text:?}") };
        assert!(found.line >= 1 && found.column >= 1, "{text:?}: {found}");
        assert_eq!((&*found.what, &*found.hint), ("the file has no rules", hint), "{text:?}");
    }
    assert_eq!(parse("").unwrap_err().mistakes, [mistake(1, 1, "the file has no rules", hint)]);
    for text in ["default: own", "agents:\n", "agents: {}\n", "default: own\nagents:\n"] {
        assert_eq!(parse(text), Ok(AccessRuleSet::default()), "{text:?}");
    }
    let text = "default: deny\r\nagents:\r\n  \"*\":\r\n  ann:\r\n    can_access:\r\n    cannot_access: [\"*\"]\r\n";
    let entries = vec![entry("*", &[], &[]), entry("ann", &[], &["*"])];
    assert_eq!(parse(text), Ok(AccessRuleSet { fallback: Fallback::Deny, entries }));
}

#[test]
fn every_error_has_its_position() {
    let text = "\
default: maybe
agent: {}
agents:
  ann:
    can_acess:
      - agents/*
    can_access:
      - conversations/ann
      - [agents/*]
    cannot_access: agents/*
  ann:
    can_access: []
  a/b:
";
    let each_once = "Allowed: `can_access` and `cannot_access`, each once.";
    let lines = "Write each pattern on its own line, as in `- resources/public/*`.";
    let report = parse(text).unwrap_err();
    assert_eq!(
        report.mistakes,
        [
            mistake(
                1,
                10,
                "`maybe` is not a valid default",
                "Write `default: own`, `default: deny` or `default: allow`."
            ),
            mistake(2, 1, "the file can't contain `agent`", "Allowed: `default` and `agents`, each once."),
            mistake(5, 5, "`ann` can't contain `can_acess`", each_once),
            mistake(8, 9, "`conversations/ann` is incomplete", "Write conversations/ann/* to cover everything."),
            mistake(9, 9, "`can_access` contains something that is not a pattern", lines),
            mistake(10, 20, "`cannot_access` is not a list", lines),
            mistake(11, 3, "`ann` appears twice", "Merge the two entries."),
            mistake(13, 3, "`a/b` is not an agent's name", "Write an agent's name, its id, or a pattern in quotes."),
        ]
    );
    assert_eq!(
        report.to_string().lines().next(),
        Some(
            "line 1, column 10: `maybe` is not a valid default. Write `default: own`, `default: deny` or `default: allow`."
        )
    );
}

#[test]
fn invalid_or_unsupported_yaml_is_refused_with_its_position() {
    let place = |text: &str| {
        let report = parse(text).unwrap_err();
        let [first] = report.mistakes.as_slice() else { panic!("{report}") };
        (
            first.line,
            first.what.starts_with("this is not valid YAML"),
            first.hint.to_lowercase().contains("quote values"),
        )
    };
    assert!(place("agents:\n  ann:\n\tcan_access: []\n").1);
    assert_eq!(place("agents:\n  ann:\n    can_access:\n      - *\n"), (4, true, true));
    assert_eq!(place("agents:\n  ann:\n    can_access:\n      - *everything\n"), (4, true, true));
    assert_eq!(place("agents: &a\n  ann: *a\n"), (1, false, true));
    assert_eq!(place("agents:\n  ann: !!str\n"), (2, false, true));
    assert_eq!(place("agents: {}\n---\nagents: {}\n"), (2, false, false));
    assert_eq!(place(&format!("agents: {}{}", "[".repeat(100), "]".repeat(100))), (1, false, false));
    assert_eq!(place("just words\n"), (1, false, false));
    assert_eq!(place(&" ".repeat(MAX_FILE_BYTES + 1)), (1, false, false));
}

proptest! {
    #[test]
    fn rules_round_trip(
        fallback in 0..3_usize,
        entries in proptest::collection::vec(
            ("[a-z0-9:#é'\"&*-]{1,8}", "[a-z0-9:#é'\"&,~-]{1,8}", "[a-z0-9%@ü|>-]{1,6}/\\*"),
            0..5,
        ),
    ) {
        let mut rules = AccessRuleSet { fallback: Fallback::ALL[fallback], entries: Vec::new() };
        for (agents, agent, artifact) in entries {
            let Ok(agents) = agents.parse::<NameGlob>() else { continue };
            if rules.entries.iter().any(|entry| entry.agents == agents) {
                continue;
            }
            let can_access = vec![format!("agents/{agent}").parse().unwrap(), "*".parse().unwrap()];
            let cannot_access = vec![format!("resources/a/{artifact}").parse().unwrap()];
            rules.entries.push(AccessRule { agents, can_access, cannot_access });
        }
        let text = render(&rules);
        prop_assert_eq!(parse(&text), Ok(rules), "{}", text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[ \\-*&!:{}\\[\\]a-c\"'\n\t#|>?,%@`]{0,80}") {
        let _ = parse(&text);
    }
}
