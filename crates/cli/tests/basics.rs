//! Common behaviour of every command: help, version, exit codes, data and messages.

use std::io::Read as _;

use crate::{
    harness::{TestHome, TestProcess, until},
    sandbox::has_namespaces,
};

const HELP: &str = "\
Put agents on any machine to work, and see, approve, stop and account for what they do

Usage: attache [OPTIONS] <COMMAND>

Start:
  up             Start everything on this machine: a hub, the console and a shell agent named `local`
  login          Create a link that signs a browser in to the console
  context        Save hubs and their keys under names, and switch between them
  doctor         Check this machine for problems and suggest fixes
  completions    Print shell completions

Agents and devices:
  agents         Manage agents and create pairing codes
  runtime        Pair this device with an agent and run its tasks
  runtimes       List and disconnect paired devices
  adapter        Serve an agent to this device's runtime: a coding agent, a shell or any program
  sandbox        Run a command in a sandbox: its own folder, no network, no other programs
  channels       List channels (live connections) and their events
  mcp            Serve tools over MCP, or install them in a client such as Claude Code

Work:
  ask            Give an agent a task and follow it to the end
  watch          Follow a run until it finishes
  runs           List, show, answer, cancel and delete runs
  approvals      Review and decide approval requests from agents
  conversations  List, start, read and delete conversations
  artifacts      List, download and upload artifacts
  worktrees      Show, commit, apply and discard what runs changed in their own worktrees

Folders:
  delegate       Delegate a folder to an agent on another machine
  delegations    Manage delegated folders and the allow-list
  daemon         Run the delegation daemon (starts automatically when needed)

People and limits:
  users          Manage a hub's users
  keys           Manage API keys
  tokens         Create a short-lived token (JWT) from your key
  sessions       List and end console sessions
  rules          Show, edit and test access rules
  quotas         Manage daily quotas
  usage          Show usage: calls, tokens and cost

Operate:
  hub            Run a hub: the API and the console on one port
  service        Run the hub or the runtime as a service (systemd, launchd)
  update         Replace this program with a signed release, and roll back if it doesn't work
  audit          Read, verify and export the audit log
  deliveries     List webhook deliveries and resend them
  notifications  Manage the devices and chats that receive your notifications
  backup         Back up a hub's data to one file, even while it runs
  migrate        Copy a hub's database to PostgreSQL, or back to a file
  bench          Measure this build on this machine

Options:
      --json          Print JSON with a stable schema
      --lang <en|zh>  Language of messages and help [default: $ATTACHE_LANG, or that of the locale]
  -h, --help          Print help
  -V, --version       Print version

Examples:
  attache up                          start everything on this machine
  attache ask local \"uname -a\"        give the built-in shell agent a task
  attache runtime pair --api-base URL pair this device with a remote hub

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 denied, 5 unreachable, 6 partial, 124 timed out.
";

#[test]
fn the_version_goes_to_standard_output() {
    let ran = TestHome::new().attache(&["--version"]).succeeds();
    assert_eq!(ran.stdout, concat!("attache ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(ran.stderr, "");
}

#[test]
fn the_help_names_every_command() {
    let ran = TestHome::new().attache(&["--help"]).succeeds();
    assert_eq!(ran.stdout, HELP);
}

#[test]
fn every_command_has_examples_in_its_help() {
    let home = TestHome::new();
    let commands = HELP.lines().take_while(|line| *line != "Options:").filter(|line| line.starts_with("  "));
    let mut names: Vec<_> = commands.map(|line| vec![line.split_whitespace().next().unwrap()]).collect();
    names.extend(["pair", "start", "status", "profiles", "unpair"].map(|name| vec!["runtime", name]));
    for mut name in names {
        name.push("--help");
        let ran = home.attache(&name).succeeds();
        assert!(ran.stdout.contains("Examples:\n  attache "), "{name:?} has no examples:\n{}", ran.stdout);
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let home = TestHome::new();
    for args in [
        &["frobnicate"][..],
        &["ask", "local"],
        &["runs", "show", "agt_00000000000000000000000000000000"],
        &["runtime", "pair", "not a pairing code", "--api-base", "http://127.0.0.1:9"],
        &["agents", "--hub", "ftp://example.org"],
        &["hub", "--listen", "0.0.0.0:0"],
        &["up", "--listen", "0.0.0.0:0"],
        &["adapter", "shell", "--listen", "0.0.0.0:0"],
        &["adapter", "command"],
    ] {
        let ran = home.attache(args).exits(2);
        assert_eq!(ran.stdout, "", "{args:?}");
        assert!(!ran.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn wrong_usage_is_one_json_line_with_json() {
    let home = TestHome::new();
    for (args, message) in [
        (&["ask", "local", "--json"][..], "the following required arguments were not provided: <TASK>"),
        (&["--json", "frobnicate"], "unrecognized subcommand 'frobnicate'"),
        (&["agents", "--json", "--frob"], "unexpected argument '--frob' found"),
        (&["--json"], "missing command"),
        (&["--json", "runtime"], "missing command"),
    ] {
        let ran = home.attache(args).exits(2);
        assert_eq!((ran.stdout.as_str(), ran.stderr.lines().count()), ("", 1), "{}", ran.stderr);
        let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!((&error["error"]["code"], &error["error"]["message"]), (&"usage".into(), &message.into()));
        assert!(error["error"]["hint"].as_str().unwrap().starts_with("Usage: attache"), "{error}");
    }
    let ran = home.attache(&["adapter", "command", "--frob", "--", "prog", "--json"]).exits(2);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
}

#[test]
fn an_unreachable_hub_exits_with_5_and_a_hint() {
    let home = TestHome::new();
    // Port 9 is `discard`; nothing listens there.
    let ran = home.attache(&["agents", "--hub", "http://127.0.0.1:9"]).exits(5);
    assert!(ran.stderr.starts_with("error: can't reach the hub at http://127.0.0.1:9"), "{}", ran.stderr);
    assert!(ran.stderr.contains("attache up"), "{}", ran.stderr);
    assert!(!ran.stderr.contains('\x1b'), "colour off a terminal: {}", ran.stderr);
    let ran = home.attache(&["agents", "--hub", "http://127.0.0.1:9", "--json"]).exits(5);
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(error["error"]["code"], "unreachable");
}

#[test]
fn the_owner_key_is_not_sent_to_another_process_at_the_hubs_address() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let address = hub.address().to_owned();
    home.attache(&["agents"]).succeeds();
    hub.process.kill();
    // Another process takes the port of a hub that is gone.
    let stranger = std::net::TcpListener::bind(&address).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let ran = home.attache(&["agents"]).exits(5);
    assert!(ran.stderr.contains("no hub is running on this machine"), "{}", ran.stderr);
    assert_eq!(stranger.accept().map(drop).unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "somebody called");
}

/// Answers every request with a status and body that no hub sends, and returns the head of the first request.
fn stranger(status: &str, call: impl FnOnce(&str) -> TestProcess) -> (TestProcess, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let asking = call(&format!("http://{}", listener.local_addr().unwrap()));
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
    listener.set_nonblocking(true).unwrap();
    let mut heard = None;
    until("the command to end", || {
        if let Ok((mut stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
                head.extend(byte);
            }
            let _ = std::io::Write::write_all(&mut stream, answer.as_bytes());
            heard.get_or_insert(String::from_utf8(head).unwrap().to_lowercase());
        }
        asking.try_wait()
    });
    (asking, heard.unwrap())
}

#[test]
fn a_server_that_is_not_a_hub_is_recognised() {
    let home = TestHome::new();
    for status in ["404 Not Found", "501 Unsupported method"] {
        let (asking, _) = stranger(status, |url| home.spawn("agents", &["agents", "--hub", url]));
        let messages = asking.stderr();
        assert_eq!(asking.wait().code(), Some(1), "{messages}");
        assert!(messages.starts_with("error: not an Attaché hub: http://127.0.0.1:"), "{messages}");
    }
    let args = |url: &str| home.spawn("pair", &["runtime", "pair", "K7QM-2XHD", "--api-base", url]);
    let messages = stranger("501 Unsupported method", args).0.stderr();
    assert!(messages.contains("not an Attaché hub"), "{messages}");
    assert!(messages.contains("--api-base") && !messages.contains("--hub"), "{messages}");
    let ran = home.attache(&["runtime", "pair", "K7QM-2XHD"]).exits(5);
    assert!(ran.stderr.contains("--api-base") && !ran.stderr.contains("--hub"), "{}", ran.stderr);
}

#[test]
fn the_owner_key_is_not_sent_to_another_port() {
    let home = TestHome::new();
    let _hub = home.hub(&[]);
    let (asking, heard) = stranger("401 Unauthorized", |url| home.spawn("agents", &["agents", "--hub", url]));
    assert!(heard.starts_with("get /api/v1/agent-accounts"), "{heard}");
    assert!(!heard.contains("authorization"), "the key was offered");
    assert_eq!(asking.wait().code(), Some(4));
    assert!(asking.stderr().contains("--key-file"), "{}", asking.stderr());
}

#[test]
fn the_owner_key_is_used_for_every_loopback_name() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    home.attache(&["agents", "--hub", &hub.url.replace("127.0.0.1", "localhost")]).succeeds();
}

/// On many machines, `localhost` is `::1` first, and another user may listen there on the hub's port.
#[test]
fn the_owner_key_is_not_sent_to_another_loopback_address() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let port: u16 = hub.url.rsplit(':').next().unwrap().parse().unwrap();
    let Ok(thief) = std::net::TcpListener::bind(("::1", port)) else { return };
    thief.set_nonblocking(true).unwrap();
    let hosts = home.path().join("hosts");
    std::fs::write(&hosts, "::1 localhost\n127.0.0.1 localhost\n").unwrap();
    for name in ["localhost", "[::1]"] {
        let mut command = home.program("bwrap");
        command.args(["--dev-bind", "/", "/", "--bind"]).arg(&hosts).arg("/etc/hosts");
        command.args([env!("CARGO_BIN_EXE_attache"), "agents", "--hub", &format!("http://{name}:{port}")]);
        let asking = TestProcess::spawn("agents", &mut command, &home.logs());
        if name == "localhost" {
            assert!(asking.wait().success(), "{}", asking.stderr());
            assert!(thief.accept().is_err(), "somebody else was dialled");
            continue;
        }
        let (mut taken, _) = until("a connection to the other address", || thief.accept().ok());
        taken.set_nonblocking(false).unwrap();
        let mut heard = vec![0; 4096];
        let length = taken.read(&mut heard).unwrap();
        assert!(!String::from_utf8_lossy(&heard[..length]).to_lowercase().contains("authorization"));
    }
}

#[test]
fn a_device_without_a_profile_exits_with_3_and_suggests_no_new_agent() {
    let home = TestHome::new();
    for args in [&["runtime", "start"][..], &["runtime", "status"], &["runtime", "unpair"]] {
        let ran = home.attache(args).exits(3);
        assert!(ran.stderr.contains("attache runtime pair CODE"), "{}", ran.stderr);
        assert!(ran.stderr.contains("You don't need a new agent"), "{}", ran.stderr);
    }
}

#[test]
fn completions_are_printed_for_every_shell() {
    let home = TestHome::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = home.attache(&["completions", shell]).succeeds();
        assert!(ran.stdout.contains("conversations"), "{shell}");
    }
}

#[test]
fn the_second_name_is_the_runtime_command() {
    let home = TestHome::new();
    let mut command = home.program(env!("CARGO_BIN_EXE_a2a-runtime"));
    let ran = crate::harness::FinishedProcess::of(command.arg("--help"), &home.logs()).succeeds();
    assert!(ran.stdout.contains("pair") && ran.stdout.contains("unpair"), "{}", ran.stdout);
}

/// As the completion scripts call it: names from the hub, values from the help, and no output if the hub is
/// unreachable.
#[test]
fn agent_names_and_values_are_completed() {
    let home = TestHome::new();
    let complete = |words: &[&str]| {
        let ran = home.attache(&[&["complete", "--"], words].concat()).succeeds();
        assert_eq!(ran.stderr, "", "{words:?}");
        ran.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // Without a hub: immediately and without output.
    assert_eq!(complete(&["ask", ""]), [""; 0]);
    assert_eq!(complete(&["ask", "--hub", "http://127.0.0.1:9", ""]), [""; 0]);
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.add_agent("reviewer");
    assert_eq!(complete(&["ask", ""]), ["builder", "reviewer"]);
    assert_eq!(complete(&["ask", "re"]), ["reviewer"]);
    assert_eq!(complete(&["runs", "--agent", "b"]), ["builder"]);
    assert_eq!(complete(&["keys", "add", "ci", "--role", "o"]), ["operator", "owner"]);
    assert_eq!(complete(&["ask", "builder", ""]), [""; 0]);
    // In Bash, with the script that a person installs.
    let script = home.path().join("attache.bash");
    std::fs::write(&script, home.attache(&["completions", "bash"]).succeeds().stdout).unwrap();
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_attache")).parent().unwrap().display().to_string();
    let press = format!(
        "PATH={bin}:$PATH; source '{}'; COMP_WORDS=(attache ask re); COMP_CWORD=2; _attache_names attache re ask; \
         echo \"${{COMPREPLY[*]}}\"; COMP_WORDS=(attache conv); COMP_CWORD=1; _attache_names attache conv attache; \
         echo \"${{COMPREPLY[*]}}\"",
        script.display()
    );
    let ran = crate::harness::FinishedProcess::of(home.program("bash").args(["-c", &press]), &home.logs()).succeeds();
    assert_eq!((&*ran.stdout, &*ran.stderr), ("reviewer\nconversations\n", ""));
}
