//! Walls around processes: what holds is tried out, a missing wall is noticed, and runs with limits work inside.

use std::{ffi::OsString, fs, process::Command};

use attache_protocol::wire::run::SandboxLimit;
use attache_sandbox::{Attempt, Launcher, Mechanism, StageCommand};

use crate::harness::TestHome;

fn stage() -> StageCommand {
    let word = |word: &str| vec![OsString::from(word)];
    StageCommand {
        program: env!("CARGO_BIN_EXE_attache").into(),
        enter: word("sandbox-stage"),
        probe: word("sandbox-probe"),
    }
}

/// Whether bubblewrap is there and works. Without it, only some of the walls can be tried.
#[allow(clippy::print_stdout, reason = "says why a test is skipped")]
fn has_namespaces() -> bool {
    // Asked of bubblewrap alone, so that a fault of ours is no reason to skip.
    let trial =
        Command::new("bwrap").args(["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]).status();
    let works = trial.is_ok_and(|status| status.success());
    if !works {
        println!("skipped: bubblewrap is missing or can't create namespaces here (package bubblewrap)");
    }
    works
}

/// Whether a `sleep` for this long is running, whatever else it is called.
fn is_running(seconds: &str) -> bool {
    let wanted = format!("sleep\0{seconds}\0");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok()).any(|line| line == wanted.as_bytes())
}

#[test]
fn every_attempt_to_break_out_fails() {
    if !has_namespaces() {
        return;
    }
    let proof = Launcher::new(stage()).prove();
    assert_eq!(proof.broken().collect::<Vec<_>>(), [], "{proof:?}");
    assert_eq!(proof.limits(), SandboxLimit::ALL);
    let home = TestHome::new();
    let shown = home.attache(&["sandbox"]).succeeds();
    assert!(shown.stdout.contains("Enforced here: cwd_only, no_network, no_exec (bubblewrap, "), "{}", shown.stdout);
}

#[test]
fn a_wall_that_is_missing_is_noticed() {
    if !has_namespaces() {
        return;
    }
    let open = |left_out: &[Mechanism]| Launcher::new(stage()).prove_without(left_out).broken().collect::<Vec<_>>();
    let without = open(&[Mechanism::Seccomp]);
    for attempt in [Attempt::Exec, Attempt::Trace, Attempt::Keyring] {
        assert!(without.contains(&attempt), "{attempt:?} {without:?}");
    }
    let without = open(&[Mechanism::Namespaces, Mechanism::Landlock]);
    for attempt in [
        Attempt::ReadOutside,
        Attempt::WriteOutside,
        Attempt::FollowLink,
        Attempt::ProcRoot,
        Attempt::OtherEnvironment,
        Attempt::SignalOther,
    ] {
        assert!(without.contains(&attempt), "{attempt:?} {without:?}");
    }
    let without = open(&[Mechanism::Namespaces, Mechanism::Landlock, Mechanism::Seccomp]);
    for attempt in [Attempt::Tcp, Attempt::Udp, Attempt::AbstractSocket] {
        assert!(without.contains(&attempt), "{attempt:?} {without:?}");
    }
}

/// Where bubblewrap is missing, Landlock and seccomp still close files, network and programs. Processes of others can
/// be looked at, so nothing is promised.
#[test]
fn without_namespaces_files_network_and_programs_are_still_closed() {
    let proof = Launcher::without_namespaces(stage()).prove();
    if !proof.made_of.contains("Landlock") {
        println!("skipped: this kernel has no Landlock: {:?}", proof.missing);
        return;
    }
    assert_eq!(proof.broken().filter_map(Attempt::limit).collect::<Vec<_>>(), [], "{proof:?}");
    assert!(proof.missing[0].contains("bubblewrap"), "{proof:?}");
}

#[test]
fn a_command_sees_its_folder_and_nothing_else_of_its_user() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let _hub = home.hub(&[]);
    let folder = home.path().join("work");
    fs::create_dir(&folder).unwrap();
    fs::write(home.path().join("secret"), "outside").unwrap();
    let run = |options: &[&str], script: &str| {
        let command = [&["sandbox"], options, &["--", "sh", "-c", script]].concat();
        home.command(&command).current_dir(&folder).output().unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let own = run(&["--write", home.path().to_str().unwrap()], "ls -A ../.a2a");
    assert_eq!(text(&own.stdout), "", "our own folders are empty inside");
    let inside = run(&[], "echo made > here; cat ../secret; cat /etc/shadow; ls /proc | grep -c '^[0-9]'; exit 7");
    assert_eq!(inside.status.code(), Some(7), "{}", text(&inside.stderr));
    assert_eq!(fs::read_to_string(folder.join("here")).unwrap(), "made\n");
    assert!(!text(&inside.stdout).contains("outside"), "{}", text(&inside.stdout));
    let shown = home.path().join("secret");
    let read = run(&["--read", shown.to_str().unwrap()], "cat ../secret; echo changed > ../secret");
    assert_eq!(text(&read.stdout), "outside", "{}", text(&read.stderr));
    assert_eq!(fs::read_to_string(shown).unwrap(), "outside");
    let builtins = run(&["--no-exec"], "echo a builtin works; /bin/ls");
    assert_eq!(text(&builtins.stdout), "a builtin works\n");
    assert_ne!(builtins.status.code(), Some(0));
    // Work goes on as usual otherwise.
    let git = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline | wc -l";
    let works = run(&[], git);
    assert_eq!(text(&works.stdout).trim(), "1", "{}", text(&works.stderr));
}

#[test]
fn a_run_with_limits_works_inside_walls() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let code = hub.pairing_code("builder");
    home.attache(&["runtime", "pair", &code, "--api-base", &hub.url]).succeeds();
    let _runtime = home.runtime(&[]);
    let key = home.path().join(".a2a/hub/admin.key");
    assert!(key.exists());
    let ask = |limits: &str, script: &str| home.attache(&["ask", "builder", script, "--sandbox", limits]);
    let stolen = ask("cwd-only", &format!("cat {}; echo done", key.display())).succeeds();
    assert_eq!(stolen.stdout, "done\n");
    // What a run leaves behind ends with it, whatever it is called and wherever it went.
    let marker = format!("{}", 100_000 + std::process::id());
    ask("cwd-only,no-network", &format!("env -i setsid sleep {marker} & sleep 0.2; echo away")).succeeds();
    assert!(!is_running(&marker), "a process survived its run");
    let network = ask("no-network", "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '").succeeds();
    assert_eq!(network.stdout, "lo\n");
    let programs = ask("no-exec", "echo builtins; /bin/ls / && echo OPEN").exits(1);
    assert!(!programs.stdout.contains("OPEN"), "{}", programs.stdout);
}
