//! Hosts of agents as a person meets them: `doctor` and `up` find them, one option pairs them, and a row adds one.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::harness::{TestHome, process};

/// A home with a `bin` of its own at the front of a short `PATH`, so that nothing of this machine is found.
fn home() -> TestHome {
    let mut home = TestHome::new();
    let bin = home.path().join("bin");
    fs::create_dir(&bin).unwrap();
    home.set("PATH", &format!("{}:/usr/bin:/bin", bin.display()));
    home
}

fn program(home: &TestHome, name: &str, script: &str) -> PathBuf {
    let path = home.path().join("bin").join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn presets(home: &TestHome, text: &str) {
    fs::create_dir_all(home.a2a()).unwrap();
    fs::write(home.a2a().join("presets.toml"), text).unwrap();
}

/// The test kit's host; `./test` builds it. None where only this crate was built.
fn fake_host() -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(Path::parent).unwrap().join("examples/fake-host");
    if !path.exists() {
        eprintln!("skipped: {} is not there; build it: cargo build -p attache-adapter --examples", path.display());
    }
    path.exists().then_some(path)
}

fn findings<'a>(report: &'a Value, check: &str) -> Vec<&'a Value> {
    report["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check).collect()
}

#[test]
fn a_row_of_ones_own_is_a_host_that_one_option_pairs() {
    let Some(fake) = fake_host() else { return };
    let mut home = home();
    home.set("MY_KEY", "k3y-for-the-host");
    home.set("OTHER_SECRET", "s3cr3t-for-nobody");
    program(&home, "my-agent", &format!("exec '{}' acp \"$@\"", fake.display()));
    presets(
        &home,
        "[mine]\nlabel = \"My agent\"\ndriver = \"acp\"\nprograms = [\"my-agent\"]\nenv = [\"MY_KEY\"]\nset = { MODE = \"calm\" }\n",
    );
    let hub = home.hub(&[]);
    // The agent is made, the device paired, and the host started, with one command.
    let args = ["runtime", "pair", "--agent", "coder", "--local-executor-type", "mine", "--start"];
    let runtime = home.spawn("runtime", &args);
    let told = runtime.tells("Paired with coder at ");
    assert!(told.contains("My agent 1.2.3 at ~/bin/my-agent\n"), "{told}");
    hub.agent_is("coder", "online");
    let account = hub.get("/api/v1/agent-accounts/coder");
    assert_eq!(account["runtime"]["labels"], json!({ "host_type": "mine" }));

    let said = |text: &str| hub.ask("coder", text)["task_result"]["text"].as_str().unwrap_or_default().to_owned();
    assert!(said("SAY:good morning").contains("good morning"));
    assert!(said("ENV:MY_KEY").contains("k3y-for-the-host"));
    assert!(said("ENV:MODE").contains("calm"));
    assert!(said("ENV:OTHER_SECRET").contains("unset"));
    // Nor does the adapter see what its host must not.
    let adapter = process::children(runtime.id());
    assert_eq!(adapter.len(), 1, "the adapter is the only child");
    let environment = fs::read(format!("/proc/{}/environ", adapter[0])).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("MY_KEY=") && !environment.contains("OTHER_SECRET"), "{environment}");
    assert!(runtime.terminate().success());
}

#[test]
fn an_agent_of_ones_own_is_named_by_its_command() {
    let Some(fake) = fake_host() else { return };
    let home = home();
    let hub = home.hub(&[]);
    hub.add_agent("coder");
    let code = hub.pairing_code("coder");
    let command = format!("{} acp", fake.display());
    let kind = ["--local-executor-type", "custom", "--local-executor-ref", &command];
    home.attache(&[&["runtime", "pair", &code, "--api-base", &hub.url][..], &kind].concat()).succeeds();
    let _runtime = home.runtime(&[]);
    let run = hub.ask("coder", "SAY:hello");
    assert!(run["task_result"]["text"].as_str().unwrap().contains("hello"), "{run}");
}

#[test]
fn what_cannot_execute_is_refused_before_the_code_is_spent() {
    let home = home();
    let hub = home.hub(&[]);
    hub.add_agent("coder");
    let code = hub.pairing_code("coder");
    let pair = |args: &[&str]| home.attache(&[&["runtime", "pair", &code, "--api-base", &hub.url][..], args].concat());
    let kind = |kind| ["--local-executor-type", kind];

    let ran = pair(&kind("cluade")).exits(2);
    assert!(ran.stderr.contains("nothing here executes tasks of the kind `cluade`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("shell, command, claude_cli, codex, hermes, openclaw, cursor,"), "{}", ran.stderr);
    let ran = pair(&kind("claude_cli")).exits(1);
    assert!(ran.stderr.contains("Claude Code is not on this machine: there is no `claude` in PATH"), "{}", ran.stderr);
    assert!(ran.stderr.contains("npm install -g @anthropic-ai/claude-code"), "{}", ran.stderr);
    let ran = pair(&[&kind("claude_cli")[..], &["--local-executor-ref", "./nothing"]].concat()).exits(2);
    assert!(ran.stderr.contains("there is no program"), "{}", ran.stderr);
    let ran = pair(&kind("custom")).exits(2);
    assert!(ran.stderr.contains("`custom` needs a program that speaks ACP"), "{}", ran.stderr);
    let ran = pair(&kind("command")).exits(2);
    assert!(ran.stderr.contains("`command` needs a program"), "{}", ran.stderr);
    let ran = pair(&[&kind("command")[..], &["--local-executor-ref", "no-such-program x"]].concat()).exits(2);
    assert!(ran.stderr.contains("there is no program `no-such-program`"), "{}", ran.stderr);
    program(&home, "cursor-agent", "echo 2026.10.29");
    let ran = pair(&[&kind("cursor")[..], &["--keep-sessions"]].concat()).exits(2);
    assert!(ran.stderr.contains("Cursor keeps no sessions"), "{}", ran.stderr);

    // The code still works. A device that nobody has logged in to is paired all the same, and told so.
    program(&home, "codex", "case $1 in --version) echo 'codex-cli 0.166.0';; *) exit 1;; esac");
    let ran = pair(&[&kind("codex")[..], &["--keep-sessions"]].concat()).succeeds();
    assert!(
        ran.stderr.contains("Codex 0.166.0 at ~/bin/codex, no login was found\n  → codex login\n"),
        "{}",
        ran.stderr
    );
    let file = home.profiles();
    let profile = &file["profiles"][file["active_profile"].as_str().unwrap()];
    assert_eq!(profile["local_executor"]["type"], "codex");
    assert_eq!(profile["local_executor"]["keep_sessions"], true);

    // Another kind later on does not take the old one's program with it.
    let code = hub.pairing_code("coder");
    home.attache(&["runtime", "pair", &code, "--api-base", &hub.url, "--local-executor-type", "shell"]).succeeds();
    let file = home.profiles();
    let profile = &file["profiles"][file["active_profile"].as_str().unwrap()];
    assert_eq!(
        [&profile["local_executor"]["type"], &profile["local_executor"]["ref"]],
        [&json!("shell"), &json!(null)]
    );
    assert_eq!(profile["local_executor"]["keep_sessions"], json!(null));
}

/// Somebody else on the machine could put their own program in its place.
#[test]
fn a_host_that_others_can_change_is_neither_paired_nor_started() {
    let home = home();
    let hub = home.hub(&[]);
    hub.add_agent("coder");
    let code = hub.pairing_code("coder");
    let codex = program(&home, "codex", "touch \"$HOME/was-started\"; echo codex-cli 0.166.0");
    fs::set_permissions(&codex, fs::Permissions::from_mode(0o777)).unwrap();
    // The version of this one is told by another program, which is fine.
    program(&home, "my-version", "echo 1.2.3");
    let own = program(&home, "my-agent", "touch \"$HOME/was-started\"");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
    presets(
        &home,
        "[mine]\nlabel = \"Mine\"\ndriver = \"acp\"\nprograms = [\"my-agent\"]\nversion = { program = \"my-version\" }\n",
    );
    for (kind, program) in [("codex", &codex), ("mine", &own)] {
        let fix = format!("chmod go-w {}", program.canonicalize().unwrap().display());
        let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--local-executor-type", kind];
        for ran in [home.attache(&pair).exits(1), home.attache(&["adapter", "preset", kind]).exits(1)] {
            assert!(ran.stderr.contains("others can write to") && ran.stderr.contains(&fix), "{kind}: {}", ran.stderr);
        }
    }
    assert!(!home.path().join("was-started").exists(), "it was started to be looked at");
}

#[test]
fn doctor_lists_hosts_and_what_to_do_and_shows_no_secret() {
    let mut home = home();
    home.set("CLAUDE_CODE_OAUTH_TOKEN", "sk-very-secret");
    program(&home, "claude", "echo '2.1.325 (Claude Code)'");
    program(&home, "codex", "case $1 in --version) echo 'codex-cli 0.20.0';; *) exit 1;; esac");
    let gemini = program(&home, "gemini", "echo 0.61.0");
    fs::set_permissions(&gemini, fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(home.path().join(".hermes")).unwrap();
    fs::write(home.path().join(".hermes/.env"), "OPENROUTER_API_KEY=sk-also-secret\n").unwrap();
    program(&home, "hermes-acp", "echo 0.19.0");
    let _hub = home.hub(&[]);

    let ran = home.attache(&["doctor"]).succeeds();
    let lines: Vec<&str> = ran.stdout.lines().skip_while(|line| !line.contains("Claude Code")).collect();
    let expected = [
        "✓ Claude Code 2.1.325 at ~/bin/claude, logged in (CLAUDE_CODE_OAUTH_TOKEN is set)".to_owned(),
        "! Codex 0.20.0 at ~/bin/codex, no login was found: version 0.20.0 is older than 0.166.0, the oldest that was tried"
            .to_owned(),
        "  → npm install -g @openai/codex".to_owned(),
        "✓ Hermes 0.19.0 at ~/bin/hermes-acp, logged in (~/.hermes/.env)".to_owned(),
        format!(
            "! Gemini CLI at ~/bin/gemini: it is not started: others can write to {} (mode 777)",
            gemini.canonicalize().unwrap().display()
        ),
        format!("  → chmod go-w {}", gemini.canonicalize().unwrap().display()),
    ];
    assert_eq!(lines, expected);

    let ran = home.attache(&["doctor", "--json"]).succeeds();
    let hosts = ran.json()["hosts"].clone();
    let expected = json!([
        {"preset": "claude_cli", "label": "Claude Code", "program": "~/bin/claude", "version": "2.1.325", "login": "in",
         "login_by": "CLAUDE_CODE_OAUTH_TOKEN is set"},
        {"preset": "codex", "label": "Codex", "program": "~/bin/codex", "version": "0.20.0", "login": "out",
         "trouble": "version 0.20.0 is older than 0.166.0, the oldest that was tried"},
        {"preset": "hermes", "label": "Hermes", "program": "~/bin/hermes-acp", "version": "0.19.0", "login": "in",
         "login_by": "~/.hermes/.env"},
        {"preset": "gemini", "label": "Gemini CLI", "program": "~/bin/gemini", "version": null, "login": "unknown",
         "trouble": "it is not started: others can write to ~/bin/gemini (mode 777)"},
    ]);
    assert_eq!(hosts, expected);
    for secret in ["sk-very-secret", "sk-also-secret", &home.owner_key(), home.path().to_str().unwrap()] {
        assert!(!ran.stdout.contains(secret), "doctor --json shows {secret}:\n{}", ran.stdout);
    }
}

#[test]
fn doctor_tries_a_host_outside_of_our_own_folders() {
    let home = home();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let seen = home.path().join("seen");
    program(
        &home,
        "my-agent",
        &format!(
            "[ \"$1\" = --version ] && echo 1.2.3 && exit; pwd >> '{0}'; stat -c %a . >> '{0}'; exit 1",
            seen.display()
        ),
    );
    let code = hub.pairing_code("builder");
    presets(&home, "[mine]\nlabel = \"My agent\"\ndriver = \"acp\"\nprograms = [\"my-agent\"]\n");
    home.attache(&["runtime", "pair", &code, "--local-executor-type", "mine"]).succeeds();
    let _ = fs::remove_file(&seen);
    let report = home.attache(&["doctor", "--json"]).exits(1).json();
    assert!(findings(&report, "host").iter().any(|one| one["state"] == "problem"), "it was started: {report}");
    let seen = fs::read_to_string(&seen).unwrap();
    let mut lines = seen.lines().rev();
    let (mode, folder) = (lines.next().unwrap(), Path::new(lines.next().unwrap()));
    assert!(!folder.starts_with(home.a2a()), "{seen}");
    assert_eq!(mode, "700");
    assert!(!folder.exists() && !folder.parent().unwrap().exists(), "it is removed: {seen}");
    assert!(!home.a2a().join("scratch").exists());
}

#[test]
fn doctor_names_the_line_of_a_mistake() {
    let home = home();
    let _hub = home.hub(&[]);
    presets(&home, "[mine]\ndriver = \"acp\"\nprogram = \"x\"\n");
    let awcp = home.path().join(".AWCP");
    fs::create_dir(&awcp).unwrap();
    fs::write(awcp.join("policy.toml"), "[collaborator]\nenabled = true\nmount_root = \"/srv\"\n").unwrap();
    let report = home.attache(&["doctor", "--json"]).exits(1).json();
    let said = |check: &str| {
        findings(&report, check)
            .iter()
            .map(|finding| finding["message"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let presets = said("presets");
    assert!(presets[0].starts_with("~/.a2a/presets.toml, line 3: unknown field `program`"), "{presets:?}");
    let policy = said("policy");
    assert!(policy[0].starts_with("~/.AWCP/policy.toml, line 3: unknown field `mount_root`"), "{policy:?}");
    let ran = home.attache(&["adapter", "preset", "mine"]).exits(2);
    assert!(ran.stderr.contains("presets.toml, line 3: unknown field `program`"), "{}", ran.stderr);

    fs::write(awcp.join("policy.toml"), "[delegator]\nroots = [\"/srv\"]\n").unwrap();
    fs::remove_file(home.a2a().join("presets.toml")).unwrap();
    let report = home.attache(&["doctor", "--json"]).succeeds().json();
    let message =
        |check: &str| findings(&report, check).iter().map(|finding| finding["message"].clone()).collect::<Vec<_>>();
    assert_eq!(message("policy"), ["folders below 1 roots may be lent to 0 agents elsewhere"]);
    assert_eq!(message("collaborator"), ["this machine takes no folders that others lend"]);
    assert_eq!(message("daemon"), ["no daemon runs; one is started when a folder is lent"]);
    assert_eq!(message("host"), ["no host of agents is on this machine besides the shell"]);
}

#[test]
fn up_names_the_hosts_of_the_machine_and_the_command_that_adds_each() {
    let home = home();
    // Nothing is started only to be named.
    program(&home, "claude", "touch \"$0.started\"");
    program(&home, "cursor-agent", "touch \"$0.started\"");
    let up = home.up(&[]);
    let said = up.process.says("--local-executor-type cursor --start");
    let lines: Vec<&str> = said.lines().skip_while(|line| !line.starts_with("On this machine")).collect();
    let expected = [
        "On this machine, and an agent with one command in a terminal of its own:",
        "  Claude Code: attache runtime pair --agent claude --local-executor-type claude_cli --start",
        "  Cursor: attache runtime pair --agent cursor --local-executor-type cursor --start",
    ];
    assert_eq!(lines, expected);
    assert!(!home.path().join("bin/claude.started").exists());
}

#[test]
fn adapters_of_hosts_say_what_they_miss() {
    let home = home();
    let ran = home.attache(&["adapter", "claude"]).exits(1);
    assert!(ran.stderr.contains("there is no `claude` in PATH"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--program PATH"), "{}", ran.stderr);
    let ran = home.attache(&["adapter", "preset", "nobody"]).exits(2);
    assert!(ran.stderr.contains("Known are shell, command, claude_cli, codex,"), "{}", ran.stderr);
    home.attache(&["adapter", "acp"]).exits(2);
    let ran = home.attache(&["adapter", "acp", "--", "nothing-here"]).exits(2);
    assert!(ran.stderr.contains("there is no program `nothing-here`"), "{}", ran.stderr);
    program(&home, "codex", "echo codex-cli 0.166.0");
    let (_adapter, url) = home.adapter(&["codex"]);
    let health = crate::harness::http::send("GET", &format!("{url}/health"), &[], b"").unwrap().expect(200).json();
    assert_eq!(health["ok"], true);
}
