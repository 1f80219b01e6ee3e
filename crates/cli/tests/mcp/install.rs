//! `attache mcp install` and `uninstall`: our entry in the configuration of MCP clients.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::{Value, json};

use crate::harness::TestHome;

const ALL: &str = "claude,codex,gemini,vscode,cursor";

fn file(home: &TestHome, name: &str) -> PathBuf {
    home.path().join(name)
}

fn read(home: &TestHome, name: &str) -> String {
    fs::read_to_string(file(home, name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_clients_entry_is_added_and_removed() {
    let home = TestHome::new();
    home.attache(&["mcp", "install", "--for", ALL]).succeeds();
    let program = env!("CARGO_BIN_EXE_attache");
    let plain = json!({ "command": program, "args": ["mcp"] });
    let typed = json!({ "type": "stdio", "command": program, "args": ["mcp"] });
    for (name, section, entry) in [
        (".claude.json", "mcpServers", &typed),
        (".gemini/settings.json", "mcpServers", &plain),
        (".config/Code/User/mcp.json", "servers", &typed),
        (".cursor/mcp.json", "mcpServers", &plain),
    ] {
        let written: Value = serde_json::from_str(&read(&home, name)).unwrap();
        assert_eq!(written, json!({ section: { "attache": entry } }), "{name}");
    }
    let codex = format!("[mcp_servers.attache]\ncommand = \"{program}\"\nargs = [\"mcp\"]\n");
    assert_eq!(read(&home, ".codex/config.toml"), codex);

    let again = home.attache(&["mcp", "install", "--for", ALL]).succeeds();
    assert!(!again.stderr.contains("wrote"), "{}", again.stderr);
    home.attache(&["mcp", "uninstall", "--for", ALL]).succeeds();
    for name in [".claude.json", ".gemini/settings.json", ".config/Code/User/mcp.json", ".cursor/mcp.json"] {
        assert!(!read(&home, name).contains("attache"), "{name}");
    }
    assert_eq!(read(&home, ".codex/config.toml"), "");
}

#[test]
fn user_content_is_kept_and_backed_up() {
    let home = TestHome::new();
    fs::create_dir(file(&home, ".codex")).unwrap();
    let own = "# mine\nmodel = \"best\"\n\n[mcp_servers.other]\ncommand = \"other\"\n";
    fs::write(file(&home, ".codex/config.toml"), own).unwrap();
    let claude = "{\n    \"numStartups\": 7, \"mcpServers\": { \"other\": { \"command\": \"x\" } }\n}";
    fs::write(file(&home, ".claude.json"), claude).unwrap();
    fs::set_permissions(file(&home, ".claude.json"), fs::Permissions::from_mode(0o640)).unwrap();

    let shown = home.attache(&["mcp", "install", "--for", "claude,codex", "--print"]).succeeds();
    assert!(
        shown.stdout.contains("[mcp_servers.attache]") && shown.stdout.contains("\"numStartups\": 7"),
        "{}",
        shown.stdout
    );
    assert_eq!([read(&home, ".codex/config.toml"), read(&home, ".claude.json")], [own, claude]);

    home.attache(&["mcp", "install", "--for", "claude,codex", "--wait", "30"]).succeeds();
    assert!(read(&home, ".codex/config.toml").starts_with(own));
    assert!(read(&home, ".codex/config.toml").contains("args = [\"mcp\", \"--wait\", \"30\"]"));
    assert!(read(&home, ".claude.json").starts_with("{\n    \"numStartups\": 7, \"mcpServers\": { \"other\": "));
    let mode = fs::metadata(file(&home, ".claude.json")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o640);
    assert_eq!(read(&home, ".claude.json.before-attache"), claude);

    home.attache(&["mcp", "uninstall", "--for", "claude,codex"]).succeeds();
    assert_eq!([read(&home, ".codex/config.toml"), read(&home, ".claude.json")], [own, claude]);

    fs::write(file(&home, ".claude.json"), "no json").unwrap();
    let failed = home.attache(&["mcp", "install", "--for", "claude"]).exits(1);
    assert!(failed.stderr.contains("error: skipped "), "{}", failed.stderr);
    assert_eq!(read(&home, ".claude.json"), "no json");
}

#[test]
fn the_backup_holds_the_original_file() {
    let home = TestHome::new();
    let own = "{\"theme\":\"dark\"}\n";
    fs::write(file(&home, ".claude.json"), own).unwrap();
    for command in ["install", "uninstall", "install"] {
        home.attache(&["mcp", command, "--for", "claude"]).succeeds();
        assert_eq!(read(&home, ".claude.json.before-attache"), own, "{command}");
    }
}

#[test]
fn one_invalid_file_does_not_block_other_clients() {
    let home = TestHome::new();
    fs::create_dir(file(&home, ".gemini")).unwrap();
    fs::write(file(&home, ".gemini/settings.json"), "no json").unwrap();
    let failed = home.attache(&["mcp", "install", "--for", ALL]).exits(1);
    assert_eq!(failed.stderr.matches(": wrote ").count(), 4, "{}", failed.stderr);
    assert!(failed.stderr.contains("settings.json: it isn't valid JSON"), "{}", failed.stderr);
    assert!(read(&home, ".cursor/mcp.json").contains("attache") && read(&home, ".claude.json").contains("attache"));
    assert_eq!(read(&home, ".gemini/settings.json"), "no json");
    let all = home.attache(&["mcp", "install", "--for", ALL, "--json"]).exits(1).stdout;
    let all: Value = serde_json::from_str(&all).unwrap();
    let errors: Vec<bool> = all.as_array().unwrap().iter().map(|one| one["error"].is_string()).collect();
    assert_eq!(errors, [false, false, true, false, false], "{all}");
}
