//! Rules about the source tree as ordinary tests: crate dependencies, file headers and forgotten files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The allowed dependencies between our crates. A crate that isn't listed here fails the test.
const ARROWS: &[(&str, &[&str])] = &[
    ("attache-protocol", &[]),
    ("attache-os", &["attache-protocol"]),
    ("attache-sandbox", &["attache-protocol"]),
    ("attache-store", &["attache-protocol", "attache-os"]),
    ("attache-a2a-wire", &["attache-protocol"]),
    ("attache-client", &["attache-protocol", "attache-a2a-wire"]),
    ("attache-hub", &["attache-protocol", "attache-a2a-wire", "attache-os", "attache-store", "attache-client"]),
    ("attache-a2a", &["attache-protocol", "attache-a2a-wire", "attache-client", "attache-hub"]),
    ("attache-console", &["attache-protocol", "attache-hub"]),
    (
        "attache-adapter",
        &[
            "attache-protocol",
            "attache-a2a-wire",
            "attache-client",
            "attache-os",
            "attache-sandbox",
            "attache-workspace",
        ],
    ),
    ("attache-workspace", &["attache-protocol", "attache-os", "attache-sandbox"]),
    ("attache-mcp", &["attache-protocol", "attache-a2a-wire", "attache-client", "attache-os"]),
    (
        "attache-delegation",
        &["attache-protocol", "attache-a2a-wire", "attache-os", "attache-client", "attache-workspace"],
    ),
    (
        "attache-runtime",
        &["attache-protocol", "attache-os", "attache-client", "attache-delegation", "attache-workspace"],
    ),
    (
        "attache-bench",
        &[
            "attache-protocol",
            "attache-os",
            "attache-a2a-wire",
            "attache-store",
            "attache-client",
            "attache-hub",
            "attache-a2a",
            "attache-adapter",
            "attache-runtime",
            "attache-workspace",
        ],
    ),
    (
        "attache",
        &[
            "attache-protocol",
            "attache-os",
            "attache-sandbox",
            "attache-bench",
            "attache-delegation",
            "attache-store",
            "attache-client",
            "attache-hub",
            "attache-a2a",
            "attache-console",
            "attache-adapter",
            "attache-runtime",
            "attache-workspace",
            "attache-mcp",
        ],
    ),
    (
        "attache-testkit",
        &[
            "attache-protocol",
            "attache-store",
            "attache-client",
            "attache-hub",
            "attache-a2a",
            "attache-console",
            "attache-adapter",
            "attache-runtime",
            "attache-workspace",
            "attache-mcp",
        ],
    ),
];

/// Type names that may occur in more than two places; the module tells them apart. Any other name needs a qualifier.
const REPEATABLE_NAMES: &[&str] = &["Args", "Error", "Kind", "Options", "Query", "Result", "World"];

/// A longer file should be split (STYLE).
const MAX_FILE_LINES: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Every hand-written `.rs` file of the workspace's crates, relative to the root. Generated code is in folders named
/// `gen`.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("gen") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests") || path.file_stem().is_some_and(|stem| stem == "tests")
}

#[test]
fn crates_use_only_what_the_design_allows() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let allowed: BTreeMap<_, BTreeSet<_>> =
        ARROWS.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let Some(may_use) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the table of this test"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let uses = dependency["name"].as_str().unwrap();
            // Tests may depend on anything, but no shipped code may depend on the testkit.
            let ships = dependency["kind"] != "dev";
            if ships && (uses == "attache" || uses.starts_with("attache-")) && !may_use.contains(uses) {
                wrong.push(format!("{name} must not use {uses}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The rooms of `hub` and what each may use of the others; data flows one way. Rooms that all may use are not listed.
const HUB_ROOMS: &[(&str, &[&str])] = &[
    ("serve", &["surface", "tls"]),
    ("surface", &["channel", "control", "identity", "metrics", "stream", "tls", "tunnel"]),
    ("tunnel", &["identity"]),
    ("channel", &["control", "identity", "start_secrets"]),
    ("stream", &["control", "identity", "waiter"]),
    ("in_process", &["control", "identity"]),
    ("waiter", &["identity"]),
    ("deliveries", &["control", "identity", "notifications"]),
    ("notifications", &["control", "identity"]),
    (
        "control",
        &[
            "deliveries",
            "identity",
            "notifications",
            "nodes",
            "recovery",
            "start_secrets",
            "tls",
            "visible_page",
            "waiter",
        ],
    ),
    ("sweep", &["nodes", "stall_detector"]),
    ("owner_key", &["identity"]),
    ("tls", &["identity"]),
    ("identity", &["nodes", "tls"]),
    ("blob", &[]),
    ("bus", &[]),
    ("check", &[]),
    ("connection_slot", &["identity"]),
    ("disk_space", &[]),
    ("keep", &[]),
    ("long_reads", &[]),
    ("metrics", &[]),
    ("nodes", &[]),
    ("recovery", &[]),
    ("render", &[]),
    ("stall_detector", &[]),
    ("start_secrets", &[]),
    ("visible_page", &["long_reads"]),
];

/// Rooms of the hub that all others may use.
const SHARED_HUB_ROOMS: &[&str] = &["bus", "check", "render", "blob", "connection_slot", "disk_space"];

/// The rooms of `cli`, from top to bottom.
const CLI_ROOMS: &[(&str, &[&str])] = &[
    ("commands", &["server", "env", "ui", "text"]),
    ("server", &["env", "ui", "text"]),
    ("env", &["ui", "text"]),
    ("ui", &["text"]),
    ("text", &[]),
];

/// The type that a line defines, except associated types.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub") || *word == "unsafe");
    let keyword = words.next()?;
    let is_definition = matches!(keyword, "struct" | "enum" | "trait" | "union")
        || keyword == "type" && !line.starts_with(char::is_whitespace);
    let name = words.next()?.split(|character: char| !character.is_alphanumeric() && character != '_').next()?;
    (is_definition && !name.is_empty()).then_some(name)
}

/// The first names of all paths below `crate::` in a source text: `use crate::{a::b, c}` has `a` and `c`.
fn used_rooms(text: &str) -> BTreeSet<&str> {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let mut found = BTreeSet::new();
    for (at, prefix) in text.match_indices("crate::") {
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        let after_word = text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
        if after_word || !is_code(&line) {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(first_word(rest));
            continue;
        };
        let (mut depth, mut start) = (1, 0);
        for (place, character) in group.char_indices() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => {}
                _ => continue,
            }
            if depth == 0 || (depth == 1 && character == ',') {
                found.insert(first_word(&group[start..place]));
                start = place + 1;
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

fn first_word(path: &str) -> &str {
    let path = path.trim_start();
    &path[..path.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(path.len())]
}

/// The imports in a crate's shipped code that its table of rooms doesn't allow. `roots` are files of the crate's root that
/// put it together, or that everybody uses.
fn wrong_imports(folder: &str, rooms: &[(&str, &[&str])], roots: &[&str], shared: &[&str]) -> BTreeSet<String> {
    let table: BTreeMap<_, _> = rooms.iter().copied().collect();
    let mut wrong = BTreeSet::new();
    for path in sources().iter().filter(|path| path.starts_with(folder) && !is_test(path)) {
        let room = path.components().nth(3).unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if roots.contains(&room) {
            continue;
        }
        let Some(may_use) = table.get(room) else {
            wrong.insert(format!("the room {room} is not in the table of this test"));
            continue;
        };
        let text = fs::read_to_string(root().join(path)).unwrap();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        for used in used_rooms(shipped).into_iter().filter(|used| table.contains_key(used) && *used != room) {
            if !shared.contains(&used) && !may_use.contains(&used) {
                wrong.insert(format!("{} must not use {used}", path.display()));
            }
        }
    }
    wrong
}

#[test]
fn rooms_of_the_hub_use_only_what_is_below_them() {
    let roots = ["lib", "hub", "options", "error"];
    assert_eq!(wrong_imports("crates/hub/src", HUB_ROOMS, &roots, SHARED_HUB_ROOMS), BTreeSet::new());
}

#[test]
fn rooms_of_the_cli_use_only_what_is_below_them() {
    assert_eq!(wrong_imports("crates/cli/src", CLI_ROOMS, &["lib", "main", "a2a_runtime"], &[]), BTreeSet::new());
}

#[test]
fn a_type_name_means_one_thing() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        for name in text.lines().filter_map(defined_type) {
            places.entry(name.to_owned()).or_default().push(path.display().to_string());
        }
    }
    let unlisted = |name: &str| !REPEATABLE_NAMES.contains(&name);
    let wrong: Vec<_> = places.iter().filter(|(name, found)| found.len() > 2 && unlisted(name)).collect();
    assert_eq!(wrong, Vec::<(&String, &Vec<String>)>::new());
}

#[test]
fn every_file_says_what_it_is_for_and_is_not_too_long() {
    let mut wrong = Vec::new();
    for path in sources().iter().filter(|path| !is_test(path)) {
        let text = fs::read_to_string(root().join(path)).unwrap();
        if !text.starts_with("//! ") {
            wrong.push(format!("{} does not begin with `//!` and what it is responsible for", path.display()));
        }
        let lines = text.lines().count();
        if lines > MAX_FILE_LINES {
            wrong.push(format!("{} has {lines} lines; split it below {MAX_FILE_LINES}", path.display()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn no_file_is_forgotten_by_its_module() {
    let all = sources();
    let mut wrong = Vec::new();
    for path in &all {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let folder = path.parent().unwrap();
        let is_root =
            matches!(stem, "lib" | "main") || folder.ends_with("bin") || folder.ends_with("tests") && stem == "all";
        // Examples, binaries with their own path, and the only test file of a crate are roots too.
        let manifest = folder.ancestors().map(|above| root().join(above).join("Cargo.toml")).find(|file| file.exists());
        let manifest = fs::read_to_string(manifest.unwrap()).unwrap();
        let in_tests = folder.ends_with("tests");
        let alone = in_tests && !root().join(folder).join("all.rs").exists();
        if is_root || alone || folder.ends_with("examples") || manifest.contains(&format!("/{stem}.rs\"")) {
            continue;
        }
        let (name, above) = if stem == "mod" {
            (folder.file_name().unwrap().to_str().unwrap(), folder.parent().unwrap())
        } else {
            (stem, folder)
        };
        let beside = above.parent().unwrap().join(format!("{}.rs", above.file_name().unwrap().to_str().unwrap()));
        let parents = [above.join("mod.rs"), above.join("lib.rs"), above.join("main.rs"), above.join("all.rs"), beside];
        let declared = parents
            .iter()
            .filter_map(|parent| fs::read_to_string(root().join(parent)).ok())
            .any(|text| text.lines().any(|line| line.trim_end_matches(';').ends_with(&format!("mod {name}"))));
        if !declared {
            wrong.push(format!("no `mod {name};` for {}", path.display()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The check-list of seed 002 §9, as `docs/seeds.md` names its lines.
const CHECKLIST: &[&str] = &[
    "Pair",
    "Heartbeat",
    "Pull",
    "Execute",
    "Complete",
    "Fail",
    "Health",
    "Ledger",
    "No orphan",
    "No token leak",
    "Reconnect",
];

#[test]
fn the_seed_table_names_every_line_of_the_checklist() {
    let text =
        fs::read_to_string(root().join("docs/seeds.md")).expect("docs/seeds.md maps the seeds to modules and tests");
    let missing: Vec<_> = CHECKLIST.iter().filter(|line| !text.contains(**line)).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}

/// Builds are reproducible: every dependency has a hash and comes from the one registry.
#[test]
fn every_dependency_is_pinned_by_its_hash() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let mut foreign = 0;
    for package in lock.split("[[package]]").skip(1) {
        let member = |name: &str| package.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
        let name = member("name").unwrap().trim_matches('"');
        match member("source") {
            None => assert!(name.starts_with("attache"), "{name} is neither ours nor from the registry"),
            Some(source) => {
                foreign += 1;
                assert!(source.starts_with("\"registry+"), "{name} comes from {source}");
                assert_eq!(member("checksum").map(str::len), Some(64 + 2), "{name} has no hash");
            }
        }
    }
    assert!(foreign > 100, "only {foreign} packages were found");
}

/// Programs are found by `attache_os::program`, which doesn't look where somebody else works. `PATH` may lead there.
#[test]
fn no_program_is_looked_up_in_the_search_path() {
    // Cargo is in the home folder, and what is measured is a folder of the benchmark's own.
    const EXEMPT: (&str, &str) = ("crates/bench/src/lease/transports.rs", "cargo");
    let mut wrong = Vec::new();
    for path in sources().iter().filter(|path| !is_test(path) && !path.starts_with("crates/testkit")) {
        let text = fs::read_to_string(root().join(path)).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for call in ["Command::new(\"", "command_for_run(\"", "find_program(\""] {
            let names = code.split(call).skip(1).filter_map(|rest| rest.split('"').next());
            let named = names.filter(|name| !name.starts_with('/') && (path.to_str().unwrap(), *name) != EXEMPT);
            wrong.extend(named.map(|name| format!("{} starts `{name}`", path.display())));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
