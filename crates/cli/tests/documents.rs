//! Claims of the documents: every command exists with its options, and so does every test in SECURITY.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::harness::TestHome;

/// The binary's help, fetched once per command.
struct CommandManual {
    home: TestHome,
    known: BTreeMap<String, Option<String>>,
}

// === impl CommandManual ===

impl CommandManual {
    /// The help of a command, or None if the command doesn't exist.
    fn help(&mut self, path: &[&str]) -> Option<String> {
        let home = &self.home;
        let asked = || {
            let ran = home.attache(&[path, &["--help"]].concat());
            (ran.status == Some(0)).then_some(ran.stdout)
        };
        self.known.entry(path.join(" ")).or_insert_with(asked).clone()
    }

    /// What is wrong with a command, or None.
    fn fault(&mut self, command: &str) -> Option<String> {
        let words: Vec<_> = command.split_whitespace().skip(1).collect();
        let mut path: Vec<&str> = Vec::new();
        for word in &words {
            let is_name = word.starts_with(|first: char| first.is_ascii_lowercase())
                && word.chars().all(|character| character.is_ascii_lowercase() || character == '-');
            if !is_name {
                break;
            }
            let longer = [path.as_slice(), &[word]].concat();
            let Some(help) = self.help(&longer) else {
                return Some(format!("there is no `attache {}`", longer.join(" ")));
            };
            // For a word that is an argument, such as an agent's name, clap prints the help of the command before it.
            if !help.contains(&format!("Usage: attache {}", longer.join(" "))) {
                break;
            }
            path = longer;
        }
        let help = self.help(&path).unwrap_or_default();
        let own = words.iter().take_while(|word| **word != "--");
        let options =
            own.map(|word| word.trim_matches(|c: char| "[](),;.".contains(c))).filter(|word| word.starts_with("--"));
        for option in options.map(|option| option.split(['=', '|']).next().unwrap_or_default()) {
            let has = help.split([' ', '\n', ',']).any(|word| word == option);
            if !has {
                return Some(format!("`attache {}` has no {option}", path.join(" ")));
            }
        }
        None
    }
}

/// Code spans and lines of code blocks that start with the program's name.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in page.replace("\\\n", " ").lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            // `attache …` at the start, after an assignment, or inside `$(…)`; a comment or a second column follows two
            // spaces.
            for (at, _) in line.match_indices("attache ") {
                let before = line[..at].trim_end();
                let is_first = before.is_empty()
                    || before.ends_with(['(', ';', '{', '$'])
                    || before.rsplit(' ').next().is_some_and(|word| word.contains('=') && !word.contains('"'));
                if is_first {
                    let rest = line[at..].split(['>', '|', ')', ';', '&', '#']).next().unwrap_or_default();
                    let rest = rest.split("  ").next().unwrap_or_default().split(" 2").next().unwrap_or_default();
                    found.push(rest.to_owned());
                }
            }
        } else {
            let code = line.split('`').skip(1).step_by(2);
            found.extend(code.filter(|code| code.starts_with("attache ")).map(str::to_owned));
        }
    }
    found
}

#[test]
fn every_command_in_the_documents_exists() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut manual = CommandManual { home: TestHome::new(), known: BTreeMap::new() };
    let mut wrong = BTreeSet::new();
    let mut checked = 0;
    let files = [docs.clone(), docs.join("zh")].map(|folder| fs::read_dir(folder).unwrap());
    for entry in files.into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "md") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            for command in commands(&fs::read_to_string(&path).unwrap()) {
                checked += 1;
                wrong.extend(manual.fault(&command).map(|fault| format!("{name}: {command}: {fault}")));
            }
        }
    }
    assert_eq!(wrong, BTreeSet::new());
    assert!(checked > 100, "only {checked} commands were found");
    assert_eq!(manual.fault("attache agents cod builder").as_deref(), Some("there is no `attache agents cod`"));
    assert_eq!(manual.fault("attache ask builder --nothing").as_deref(), Some("`attache ask` has no --nothing"));
}

/// The code spans of a text.
fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The tests named in a row of the threat table, `FILE`: `TEST`, `TEST` (a remark); …: file and function.
fn attacks(cell: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for group in cell.split("; `") {
        let Some((file, names)) = group.trim_start_matches('`').split_once("`: ") else { continue };
        found.extend(code(names).into_iter().filter(|name| name.contains('_')).map(|name| (file, name)));
    }
    found
}

#[test]
fn every_threat_is_attacked_by_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let mut threats = Vec::new();
    let mut missing = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [number, _, place, attacked] = cells.as_slice() else { panic!("a row has four cells: {line}") };
        threats.push(number.parse::<u32>().unwrap());
        assert!(!code(place).is_empty(), "{number}: where is it stopped?");
        let attacks = attacks(attacked);
        assert!(!attacks.is_empty(), "{number}: what attacks it?");
        for (file, name) in attacks {
            let path = root.join(file);
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{number}: {}: {error}", path.display()));
            // A test function, or a name in the list of tests that run on both engines.
            let words: BTreeSet<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            if !text.contains(&format!("fn {name}(")) || !words.contains(name) {
                missing.insert(format!("{number}: {file}: {name}"));
            }
        }
    }
    assert_eq!(threats, (1..=27).collect::<Vec<_>>());
    assert_eq!(missing, BTreeSet::new());
}

/// The places in the third column of the glossary: files, and the last part of paths such as `a::b::Name`.
fn glossary_names(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    let places = rows.filter_map(|row| row.split(" | ").nth(2)).flat_map(code);
    let names = places.flat_map(|place| place.rsplit("::").next().unwrap_or_default().split([',', '{', '}', ' ']));
    names.map(str::to_owned).filter(|name| !name.is_empty()).collect()
}

#[test]
fn every_place_in_the_glossary_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut folders = vec![root.join("crates")];
    let (mut files, mut words) = (BTreeSet::new(), BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            files.insert(path.strip_prefix(root.join("crates")).unwrap().display().to_string());
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(path).unwrap();
                words.extend(text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
            }
        }
    }
    let exists = |name: &String| {
        let name = name.trim_end_matches('/');
        words.contains(name) || files.iter().any(|file| file == name || file.ends_with(&format!("/{name}")))
    };
    let page = fs::read_to_string(root.join("docs/glossary.md")).unwrap();
    let wrong: Vec<_> = glossary_names(&page).into_iter().filter(|name| !exists(name)).collect();
    assert_eq!(wrong, Vec::<String>::new());
}
