//! Agent hosts from a person's point of view: `doctor` and `up` find them, one option pairs them, and a preset adds
//! one.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::harness::{TestHome, process};

/// A home with its own `bin` first in a short `PATH`, so that nothing else on this machine is found.
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

/// The testkit's fake host, built by `./test`. None if only this crate was built.
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
fn a_custom_preset_is_paired_with_one_option() {
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
    // One command creates the agent, pairs the device and starts the host.
    let args = ["runtime", "pair", "--agent", "coder", "--local-executor-type", "mine", "--start"];
    let runtime = home.spawn("runtime", &args);
    let messages = runtime.tells("Paired with coder at ");
    assert!(messages.contains("My agent 1.2.3 at ~/bin/my-agent\n"), "{messages}");
    hub.agent_is("coder", "online");
    let account = hub.get("/api/v1/agent-accounts/coder");
    assert_eq!(account["runtime"]["labels"], json!({ "host_type": "mine" }));

    let output = |text: &str| hub.ask("coder", text)["task_result"]["text"].as_str().unwrap_or_default().to_owned();
    assert!(output("SAY:good morning").contains("good morning"));
    assert!(output("ENV:MY_KEY").contains("k3y-for-the-host"));
    assert!(output("ENV:MODE").contains("calm"));
    assert!(output("ENV:OTHER_SECRET").contains("unset"));
    // The adapter doesn't see what its host must not see either.
    let adapter = process::children(runtime.id());
    assert_eq!(adapter.len(), 1, "the adapter is the only child");
    let environment = fs::read(format!("/proc/{}/environ", adapter[0])).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("MY_KEY=") && !environment.contains("OTHER_SECRET"), "{environment}");
    assert!(runtime.terminate().success());
}

#[test]
fn a_custom_agent_is_given_by_its_command() {
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
fn an_unusable_executor_is_refused_before_the_code_is_redeemed() {
    let home = home();
    let hub = home.hub(&[]);
    hub.add_agent("coder");
    let code = hub.pairing_code("coder");
    let pair = |args: &[&str]| home.attache(&[&["runtime", "pair", &code, "--api-base", &hub.url][..], args].concat());
    let kind = |kind| ["--local-executor-type", kind];

    let ran = pair(&kind("cluade")).exits(2);
    assert!(ran.stderr.contains("unknown executor type `cluade`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("shell, command, claude_cli, codex, hermes, openclaw, cursor,"), "{}", ran.stderr);
    let ran = pair(&kind("claude_cli")).exits(1);
    assert!(ran.stderr.contains("Claude Code isn't installed: `claude` not found in PATH"), "{}", ran.stderr);
    assert!(ran.stderr.contains("npm install -g @anthropic-ai/claude-code"), "{}", ran.stderr);
    let ran = pair(&[&kind("claude_cli")[..], &["--local-executor-ref", "./nothing"]].concat()).exits(2);
    assert!(ran.stderr.contains("nothing` not found"), "{}", ran.stderr);
    let ran = pair(&kind("custom")).exits(2);
    assert!(ran.stderr.contains("`custom` needs a program that speaks ACP"), "{}", ran.stderr);
    let ran = pair(&kind("command")).exits(2);
    assert!(ran.stderr.contains("`command` needs a program"), "{}", ran.stderr);
    let ran = pair(&[&kind("command")[..], &["--local-executor-ref", "no-such-program x"]].concat()).exits(2);
    assert!(ran.stderr.contains("program `no-such-program` not found"), "{}", ran.stderr);
    program(&home, "cursor-agent", "echo 2026.10.29");
    let ran = pair(&[&kind("cursor")[..], &["--keep-sessions"]].concat()).exits(2);
    assert!(ran.stderr.contains("Cursor doesn't support resuming sessions"), "{}", ran.stderr);

    // The code still works. A device without a login is paired anyway, with a warning.
    program(&home, "codex", "case $1 in --version) echo 'codex-cli 0.166.0';; *) exit 1;; esac");
    let ran = pair(&[&kind("codex")[..], &["--keep-sessions"]].concat()).succeeds();
    assert!(ran.stderr.contains("Codex 0.166.0 at ~/bin/codex, no login found\n  → codex login\n"), "{}", ran.stderr);
    let file = home.profiles();
    let profile = &file["profiles"][file["active_profile"].as_str().unwrap()];
    assert_eq!(profile["local_executor"]["type"], "codex");
    assert_eq!(profile["local_executor"]["keep_sessions"], "all");

    // Switching to another executor type later doesn't keep the old program.
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

/// Another user of the machine could replace the program.
#[test]
fn a_host_writable_by_other_users_is_neither_paired_nor_started() {
    let home = home();
    let hub = home.hub(&[]);
    hub.add_agent("coder");
    let code = hub.pairing_code("coder");
    let codex = program(&home, "codex", "touch \"$HOME/was-started\"; echo codex-cli 0.166.0");
    fs::set_permissions(&codex, fs::Permissions::from_mode(0o777)).unwrap();
    // Another program reports the version of this one, which is fine.
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
            assert!(
                ran.stderr.contains("other users can write to") && ran.stderr.contains(&fix),
                "{kind}: {}",
                ran.stderr
            );
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
        "! Codex 0.20.0 at ~/bin/codex, no login found: version 0.20.0 is older than 0.166.0, the oldest tested version"
            .to_owned(),
        "  → npm install -g @openai/codex".to_owned(),
        "✓ Hermes 0.19.0 at ~/bin/hermes-acp, logged in (~/.hermes/.env)".to_owned(),
        format!(
            "! Gemini CLI at ~/bin/gemini: not started: other users can write to {} (mode 777)",
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
         "trouble": "version 0.20.0 is older than 0.166.0, the oldest tested version"},
        {"preset": "hermes", "label": "Hermes", "program": "~/bin/hermes-acp", "version": "0.19.0", "login": "in",
         "login_by": "~/.hermes/.env"},
        {"preset": "gemini", "label": "Gemini CLI", "program": "~/bin/gemini", "version": null, "login": "unknown",
         "trouble": "not started: other users can write to ~/bin/gemini (mode 777)"},
    ]);
    assert_eq!(hosts, expected);
    for secret in ["sk-very-secret", "sk-also-secret", &home.owner_key(), home.path().to_str().unwrap()] {
        assert!(!ran.stdout.contains(secret), "doctor --json shows {secret}:\n{}", ran.stdout);
    }
}

#[test]
fn doctor_starts_a_host_outside_our_own_folders() {
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
    let output = |check: &str| {
        findings(&report, check)
            .iter()
            .map(|finding| finding["message"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let presets = output("presets");
    assert!(presets[0].starts_with("~/.a2a/presets.toml, line 3: unknown field `program`"), "{presets:?}");
    let policy = output("policy");
    assert!(policy[0].starts_with("~/.AWCP/policy.toml, line 3: unknown field `mount_root`"), "{policy:?}");
    let ran = home.attache(&["adapter", "preset", "mine"]).exits(2);
    assert!(ran.stderr.contains("presets.toml, line 3: unknown field `program`"), "{}", ran.stderr);

    fs::write(awcp.join("policy.toml"), "[delegator]\nroots = [\"/srv\"]\n").unwrap();
    fs::remove_file(home.a2a().join("presets.toml")).unwrap();
    let report = home.attache(&["doctor", "--json"]).succeeds().json();
    let message =
        |check: &str| findings(&report, check).iter().map(|finding| finding["message"].clone()).collect::<Vec<_>>();
    assert_eq!(message("policy"), ["1 folder can be delegated to 0 trusted peers"]);
    assert_eq!(message("collaborator"), ["borrowing folders from other machines is off"]);
    assert_eq!(message("daemon"), ["the delegation daemon isn't running; it starts automatically when needed"]);
    assert_eq!(message("host"), ["no agent hosts are installed; only the built-in shell"]);
}

#[test]
fn up_lists_installed_hosts_and_the_commands_that_add_them() {
    let home = home();
    // Listing hosts doesn't start them.
    program(&home, "claude", "touch \"$0.started\"");
    program(&home, "cursor-agent", "touch \"$0.started\"");
    let up = home.up(&[]);
    let output = up.process.says("--local-executor-type cursor --start");
    let lines: Vec<&str> = output.lines().skip_while(|line| !line.starts_with("Installed on this machine")).collect();
    let expected = [
        "Installed on this machine. Run the command in a separate terminal to add it as an agent:",
        "  Claude Code: attache runtime pair --agent claude --local-executor-type claude_cli --start",
        "  Cursor: attache runtime pair --agent cursor --local-executor-type cursor --start",
    ];
    assert_eq!(lines, expected);
    assert!(!home.path().join("bin/claude.started").exists());
}

#[test]
fn host_adapters_report_what_is_missing() {
    let home = home();
    let ran = home.attache(&["adapter", "claude"]).exits(1);
    assert!(ran.stderr.contains("Claude Code isn't installed: `claude` not found in PATH"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--program PATH"), "{}", ran.stderr);
    let ran = home.attache(&["adapter", "preset", "nobody"]).exits(2);
    assert!(ran.stderr.contains("Use one of shell, command, claude_cli, codex,"), "{}", ran.stderr);
    home.attache(&["adapter", "acp"]).exits(2);
    let ran = home.attache(&["adapter", "acp", "--", "nothing-here"]).exits(2);
    assert!(ran.stderr.contains("program `nothing-here` not found"), "{}", ran.stderr);
    program(&home, "codex", "echo codex-cli 0.166.0");
    let (_adapter, url) = home.adapter(&["codex"]);
    let health = crate::harness::http::send("GET", &format!("{url}/health"), &[], b"").unwrap().expect(200).json();
    assert_eq!(health["ok"], true);
}
