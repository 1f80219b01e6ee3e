//! Walls around processes: what holds is tried out, a missing wall is noticed, and runs with limits work inside.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use attache_protocol::wire::run::SandboxLimit;
use attache_sandbox::{EscapeAttempt, Launcher, Mechanism, StageCommand, Walls};
use serde_json::Value;

use crate::harness::{TestHome, until};

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
pub fn has_namespaces() -> bool {
    if cfg!(attache_portable) {
        println!("skipped: only Linux has walls");
        return false;
    }
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
pub fn is_running(seconds: &str) -> bool {
    let wanted = format!("sleep\0{seconds}\0");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok()).any(|line| line == wanted.as_bytes())
}

/// How the project is committed, on one line.
pub const COMMIT: &str = "git add . && git -c user.name=a -c user.email=a@b commit -qm x";

/// The Python of the tests, which `./test` installs pytest for.
fn python() -> String {
    std::env::var("ATTACHE_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// How the project is tested in Python.
#[allow(clippy::print_stdout, reason = "says what is tested instead")]
pub fn python_tests() -> &'static str {
    let found = Command::new(python()).args(["-m", "pytest", "--version"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return "python3 -m pytest -q -p no:cacheprovider";
    }
    println!("pytest is not installed (./test installs it), so unittest stands in for it");
    "python3 -m unittest -q"
}

/// Puts the machine's toolchains into a home folder, as a person has them, and an environment with pytest into its path.
pub fn show_toolchains(home: &mut TestHome) {
    let own = std::env::var("HOME").unwrap();
    for folder in [".cargo/bin", ".rustup", ".pyenv"] {
        let (real, shown) = (Path::new(&own).join(folder), home.path().join(folder));
        fs::create_dir_all(shown.parent().unwrap()).unwrap();
        if real.exists() && !shown.exists() {
            std::os::unix::fs::symlink(real, shown).unwrap();
        }
    }
    if let Some(programs) = Path::new(&python()).parent().filter(|folder| folder.is_absolute()) {
        let path = home.variable("PATH").unwrap_or_else(|| std::env::var("PATH").unwrap());
        home.set("PATH", &format!("{}:{path}", programs.display()));
    }
}

/// A project that three toolchains can test.
pub fn write_project(folder: &Path) {
    let files = [
        ("Cargo.toml", "[package]\nname = \"tiny\"\nedition = \"2024\"\n\n[workspace]\n"),
        ("src/lib.rs", "#[test]\nfn adds() {\n    assert_eq!(1 + 1, 2);\n}\n"),
        ("package.json", r#"{"name":"tiny","version":"1.0.0","scripts":{"test":"node --test"}}"#),
        ("adds.test.js", "require('node:test')('adds', () => require('node:assert').equal(1 + 1, 2));\n"),
        (
            "test_adds.py",
            "import unittest\n\nclass Adds(unittest.TestCase):\n    def test_adds(self):\n        assert 1 + 1 == 2\n",
        ),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
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
    let typing = fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").is_ok_and(|value| value.trim() == "1");
    let terminal = typing.then_some(EscapeAttempt::Terminal);
    for attempt in [EscapeAttempt::Exec, EscapeAttempt::Trace, EscapeAttempt::Keyring, EscapeAttempt::PathSocket]
        .into_iter()
        .chain(terminal)
    {
        assert!(without.contains(&attempt), "{attempt:?} {without:?}");
    }
    let without = open(&[Mechanism::Namespaces, Mechanism::Landlock]);
    for attempt in [
        EscapeAttempt::ReadOutside,
        EscapeAttempt::WriteOutside,
        EscapeAttempt::FollowLink,
        EscapeAttempt::ProcRoot,
        EscapeAttempt::OtherEnvironment,
        EscapeAttempt::SignalOther,
    ] {
        assert!(without.contains(&attempt), "{attempt:?} {without:?}");
    }
    let launcher = Launcher::without_namespaces(stage());
    let without = launcher.prove_without(&[Mechanism::Seccomp]).broken().collect::<Vec<_>>();
    for attempt in [EscapeAttempt::OutsideSocket, EscapeAttempt::LimitOther, EscapeAttempt::ChangeOutside] {
        assert!(without.contains(&attempt), "{attempt:?} {without:?}");
    }
    let without = open(&[Mechanism::Namespaces, Mechanism::Landlock, Mechanism::Seccomp]);
    for attempt in [EscapeAttempt::Tcp, EscapeAttempt::Udp, EscapeAttempt::AbstractSocket] {
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
    assert_eq!(proof.broken().filter(|open| open.limits() != SandboxLimit::ALL).collect::<Vec<_>>(), [], "{proof:?}");
    assert!(proof.missing[0].contains("bubblewrap"), "{proof:?}");
}

/// Landlock knows no right to change a file's mode, and everything below `/dev` would show other people's terminals.
#[test]
fn without_namespaces_nothing_outside_is_changed_or_overheard() {
    let launcher = Launcher::without_namespaces(stage());
    if !launcher.prove().made_of.contains("Landlock") {
        println!("skipped: this kernel has no Landlock");
        return;
    }
    let home = TestHome::new();
    let (folder, outside) = (home.path().join("work"), home.path().join("key"));
    fs::create_dir(&folder).unwrap();
    fs::write(&outside, "secret").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o600)).unwrap();
    let shared = PathBuf::from(format!("/dev/shm/attache-test-{}", std::process::id()));
    fs::write(&shared, "overheard").unwrap();
    let walls = Walls::open(folder.clone()).limit(&[SandboxLimit::CwdOnly]);
    let (program, words) = launcher.command(&walls, "sh".as_ref()).unwrap();
    let script = format!(
        "chmod 666 {key} && echo changed; chown 65534 {key} && echo given; cat {shm} && echo overheard; ls /dev/pts && echo listed; \
         echo own > own; echo well",
        key = outside.display(),
        shm = shared.display(),
    );
    let output = Command::new(program).args(words).args(["-c", &script]).current_dir(&folder).output().unwrap();
    fs::remove_file(&shared).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "well\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(folder.join("own")).unwrap(), "own\n");
}

/// A descriptor that may only be read is enough to change a file's mode, owner, attributes and times.
#[test]
fn without_namespaces_a_tool_that_is_shown_is_not_changed() {
    let home = TestHome::new();
    let (folder, tool) = (home.path().join("work"), home.path().join("tool"));
    fs::create_dir(&folder).unwrap();
    fs::write(&tool, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let before = fs::metadata(&tool).unwrap();
    let script = format!(
        "import os
def attempt(name, what):
    try: what(); print(name, 'works')
    except OSError: print(name, 'refused')
fd = os.open({tool:?}, os.O_RDONLY)
attempt('fchmod', lambda: os.fchmod(fd, 0o4777))
attempt('fchown', lambda: os.fchown(fd, -1, os.getgid()))
attempt('fsetxattr', lambda: os.setxattr(fd, 'user.x', b'1'))
attempt('futimens', lambda: os.utime(fd, (1, 1)))
attempt('utimensat', lambda: os.utime({outside:?}, (1, 1)))
open('own', 'w').close()
os.close(os.open('own', os.O_RDONLY))
print(os.system('touch own && cp own copy && mv copy moved && tar cf own.tar own && ls moved >/dev/null'))",
        outside = home.path(),
    );
    let mut walls = Walls::open(folder).limit(&[SandboxLimit::CwdOnly]);
    walls.read.push(tool.clone());
    let Some(mut inside) = in_bare_walls(&walls, &["python3", "-c", &script]) else { return };
    let output = inside.output().unwrap();
    let expected = "fchmod refused\nfchown refused\nfsetxattr refused\nfutimens refused\nutimensat refused\n0\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
    let now = fs::metadata(&tool).unwrap();
    assert_eq!((now.permissions(), now.modified().unwrap()), (before.permissions(), before.modified().unwrap()));
}

/// The tests' own Landlock walls around a command, without namespaces. `None` if the kernel has no Landlock.
#[allow(clippy::print_stdout, reason = "says why a test is skipped")]
fn in_bare_walls(walls: &Walls, command: &[&str]) -> Option<Command> {
    let launcher = Launcher::without_namespaces(stage());
    if !launcher.prove().made_of.contains("Landlock") {
        println!("skipped: this kernel has no Landlock");
        return None;
    }
    let (program, words) = launcher.command(walls, command[0].as_ref()).unwrap();
    let mut inside = Command::new(program);
    // The system's programs, and no toolchain of the person who runs the tests.
    inside.args(words).args(&command[1..]).current_dir(&walls.cwd).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    Some(inside)
}

/// Another run in the folder replaces what this one's walls were decided for, by a link or by a folder.
#[test]
fn without_namespaces_what_was_replaced_is_not_inside() {
    use std::os::unix::fs::symlink;

    let home = TestHome::new();
    let (folder, outside) = (home.path().join("work"), home.path().join("keys"));
    let (handed, other) = (folder.join(".attache/run_1"), folder.join("other"));
    for made in [&outside, &handed, &other] {
        fs::create_dir_all(made).unwrap();
    }
    fs::write(outside.join("key"), "secret").unwrap();
    let script = format!("cat {key}; echo evil >> {key}", key = outside.join("key").display());
    let mut walls = Walls::open(folder.clone()).limit(&[SandboxLimit::CwdOnly]);
    walls.write.push(handed.clone());
    let away = folder.join("away");
    let replacements: [&dyn Fn(); 3] =
        [&|| symlink(&outside, &handed).unwrap(), &|| fs::rename(&outside, &handed).unwrap(), &|| {
            symlink(&other, &handed).unwrap();
        }];
    for (number, replace) in replacements.into_iter().enumerate() {
        let Some(mut inside) = in_bare_walls(&walls, &["sh", "-c", &script]) else { return };
        fs::rename(&handed, &away).unwrap();
        replace();
        let output = inside.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{number}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("was replaced while the sandbox was being set up"), "{number} {told}");
        if number == 1 {
            fs::rename(&handed, &outside).unwrap();
        } else {
            fs::remove_file(&handed).unwrap();
        }
        fs::rename(&away, &handed).unwrap();
    }
    assert_eq!(fs::read_to_string(outside.join("key")).unwrap(), "secret");
    let Some(mut inside) = in_bare_walls(&walls, &["sh", "-c", "echo own > .attache/run_1/file; echo well"]) else {
        return;
    };
    assert_eq!(String::from_utf8_lossy(&inside.output().unwrap().stdout), "well\n");
    assert_eq!(fs::read_to_string(handed.join("file")).unwrap(), "own\n");
}

/// A socket can be connected to even where it can't be seen: an agent with keys, a session's bus, our own daemon.
#[test]
fn without_namespaces_no_service_of_the_user_is_reached() {
    let home = TestHome::new();
    let (folder, outside) = (home.path().join("work"), home.path().join("keys"));
    for made in [&folder, &outside] {
        fs::create_dir(made).unwrap();
    }
    let (streams, datagrams) = (outside.join("agent.sock"), outside.join("log.sock"));
    let _listener = std::os::unix::net::UnixListener::bind(&streams).unwrap();
    let _log = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
    let script = format!(
        "import socket as s
def attempt(name, what):
    try: what(); print(name, 'works')
    except OSError: print(name, 'refused')
attempt('stream', lambda: s.socket(s.AF_UNIX, s.SOCK_STREAM).connect({streams:?}))
attempt('datagram', lambda: s.socket(s.AF_UNIX, s.SOCK_DGRAM).sendto(b'x', {datagrams:?}))
attempt('pair of datagrams', lambda: s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)[0].sendto(b'x', {datagrams:?}))
attempt('raw pair', lambda: s.socketpair(s.AF_UNIX, s.SOCK_RAW)[0].sendto(b'x', {datagrams:?}))
ends = s.socketpair()
attempt('pair', lambda: ends[0].send(b'x'))
attempt('pair elsewhere', lambda: ends[0].connect({streams:?}))
attempt('tcp', lambda: s.socket(s.AF_INET, s.SOCK_STREAM))"
    );
    let walls = Walls::open(folder).limit(&[SandboxLimit::CwdOnly]);
    let Some(mut inside) = in_bare_walls(&walls, &["python3", "-c", &script]) else { return };
    let output = inside.output().unwrap();
    let expected = "stream refused\ndatagram refused\npair of datagrams refused\nraw pair refused\npair works\n\
                    pair elsewhere refused\ntcp works\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn without_namespaces_no_other_process_is_limited_or_slowed_down() {
    let home = TestHome::new();
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    let script = format!(
        "import os, resource as r
def attempt(name, what):
    try: what(); print(name, 'works')
    except OSError: print(name, 'refused')
attempt('limit', lambda: r.prlimit({pid}, r.RLIMIT_NOFILE, (0, 0)))
attempt('look', lambda: r.prlimit({pid}, r.RLIMIT_NOFILE))
attempt('own', lambda: r.setrlimit(r.RLIMIT_NOFILE, (50, 50)))
attempt('renice', lambda: os.setpriority(os.PRIO_PROCESS, {pid}, 19))
attempt('renice user', lambda: os.setpriority(os.PRIO_USER, 0, 19))
attempt('own priority', lambda: os.setpriority(os.PRIO_PROCESS, 0, 5))
attempt('affinity', lambda: os.sched_setaffinity({pid}, [0]))
attempt('scheduler', lambda: os.sched_setscheduler({pid}, os.SCHED_IDLE, os.sched_param(0)))",
        pid = other.id()
    );
    let walls = Walls::open(home.path()).limit(&[SandboxLimit::CwdOnly]);
    let output = in_bare_walls(&walls, &["python3", "-c", &script]).map(|mut inside| inside.output().unwrap());
    other.kill().unwrap();
    other.wait().unwrap();
    let Some(output) = output else { return };
    let expected = "limit refused\nlook works\nown works\nrenice refused\nrenice user refused\nown priority works\n\
                    affinity refused\nscheduler refused\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
}

/// What the document says of each kind of machine is what this one proves when it is that kind.
#[test]
fn the_document_says_what_is_proved() {
    if !has_namespaces() || !rustix::process::geteuid().is_root() {
        return;
    }
    let home = TestHome::new();
    let program = home.path().join("attache");
    fs::copy(env!("CARGO_BIN_EXE_attache"), &program).unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let without = ["unshare", "--user", "--map-user=65534"];
    let kinds: [(&str, Vec<&str>); 3] = [
        ("root", Vec::new()),
        ("ordinary user", user.to_vec()),
        ("ordinary user without user namespaces", [&user[..], &without].concat()),
    ];
    let document = include_str!("../../../docs/sandbox.md");
    for (kind, prefix) in kinds {
        let program = program.to_str().unwrap();
        let words = [&prefix[..], &[program, "sandbox", "--json"]].concat();
        let mut command = home.program(words[0]);
        let output = command.args(&words[1..]).env("A2A_HOME", "/nonexistent").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let proof: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{kind}: {error} {text} {}", String::from_utf8_lossy(&output.stderr)));
        let limits: Vec<_> =
            proof["enforces"].as_array().unwrap().iter().map(|limit| limit.as_str().unwrap()).collect();
        let made_of =
            proof["made_of"].as_str().unwrap().replace(|letter: char| letter.is_ascii_digit(), "").replace(" ,", ",");
        let row = format!("| {kind} | {} | {made_of} |", limits.join(", "));
        assert!(document.contains(&row), "{row}");
    }
}

/// Landlock can't leave a folder out of a visible one, so nothing is started there.
#[test]
#[cfg_attr(attache_portable, ignore = "only Linux has walls")]
fn a_folder_that_cannot_be_hidden_keeps_a_program_from_starting() {
    let home = TestHome::new();
    let own = home.path().join("work/.a2a");
    fs::create_dir_all(&own).unwrap();
    let launcher = Launcher::without_namespaces(stage());
    let mut walls = Walls::open(home.path().join("work")).limit(&[SandboxLimit::CwdOnly]);
    walls.hide.push(own.clone());
    let refused = launcher.command(&walls, "true".as_ref()).unwrap_err().to_string();
    assert!(refused.contains("can't be hidden from it without bubblewrap"), "{refused}");
    walls.cwd = own.join("below");
    fs::create_dir(&walls.cwd).unwrap();
    assert!(launcher.command(&walls, "true".as_ref()).is_ok(), "the keys are outside of what it sees");
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

/// A service that is down for a moment, such as the hub, would be replaced, and told the secrets of its clients.
#[test]
fn a_program_inside_takes_nobodys_port() {
    if !has_namespaces() || !listens_are_limited() {
        return;
    }
    let home = TestHome::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = format!(
        "import socket as s
def attempt(name, *kind, bind=None):
    try:
        made = s.socket(*kind)
        if bind is not None: made.bind(('127.0.0.1', bind))
        print(name, 'made')
    except PermissionError: print(name, 'refused')
attempt('free port', s.AF_INET, s.SOCK_STREAM, bind=0)
attempt('their port', s.AF_INET, s.SOCK_STREAM, bind={port})
attempt('mptcp', s.AF_INET, s.SOCK_STREAM, 262)
attempt('mptcp6', s.AF_INET6, s.SOCK_STREAM | s.SOCK_CLOEXEC, 262)
attempt('sctp', s.AF_INET, s.SOCK_STREAM, 132)
attempt('seqpacket', s.AF_INET, s.SOCK_SEQPACKET)
attempt('vsock', s.AF_VSOCK, s.SOCK_STREAM)
attempt('audit', s.AF_NETLINK, s.SOCK_RAW, 9)
attempt('routes', s.AF_NETLINK, s.SOCK_RAW, 0)
attempt('udp', s.AF_INET6, s.SOCK_DGRAM)
attempt('tcp', s.AF_INET, s.SOCK_STREAM | s.SOCK_NONBLOCK, s.IPPROTO_TCP)
attempt('file', s.AF_UNIX, s.SOCK_SEQPACKET)"
    );
    let ran = home.attache(&["sandbox", "--net", "all", "--", "python3", "-c", &script]).succeeds();
    let expected = "free port made\ntheir port refused\nmptcp refused\nmptcp6 refused\nsctp refused\nseqpacket refused\n\
                    vsock refused\naudit refused\nroutes made\nudp made\ntcp made\nfile made\n";
    assert_eq!(ran.stdout, expected);
}

/// Landlock knows ports since Linux 6.7.
fn listens_are_limited() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(7))
}

#[test]
fn a_command_makes_none_of_our_folders() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let folder = home.path().to_owned();
    let mut command =
        home.command(&["sandbox", "--", "sh", "-c", "mkdir -p .AWCP && echo mine > .AWCP/policy.toml; ls -A .AWCP"]);
    let ran = command.current_dir(&folder).env("AWCP_HOME", folder.join(".AWCP")).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(!folder.join(".AWCP/policy.toml").exists());
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
    // A person's whole home, with our folders in it.
    let folder = home.path();
    let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--workspace", folder.to_str().unwrap()];
    home.attache(&pair).succeeds();
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
    // A service's socket in its folder, and what came with somebody else's run.
    let _service = std::os::unix::net::UnixListener::bind(folder.join("service")).unwrap();
    let connect = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"service\")'; echo $?";
    assert_eq!(home.attache(&["ask", "builder", connect]).succeeds().stdout, "0\n", "without limits it connects");
    assert_eq!(ask("no-network", connect).succeeds().stdout, "1\n");
    fs::create_dir_all(folder.join(".attache/run_of_others")).unwrap();
    fs::write(folder.join(".attache/run_of_others/note"), "theirs").unwrap();
    let look = "cat .attache/run_of_others/note; echo $?";
    assert_eq!(home.attache(&["ask", "builder", look]).succeeds().stdout, "theirs0\n");
    assert_eq!(ask("cwd-only", look).succeeds().stdout, "1\n");
    // Files are handed over by a process outside, which knows what is hidden inside.
    let handed = ask("cwd-only", "echo .a2a/hub/admin.key > $ATTACHE_ARTIFACTS").exits(1);
    assert!(handed.stderr.contains("that hold keys"), "{}", handed.stderr);
    let programs = ask("no-exec", "echo builtins; /bin/ls / && echo OPEN").exits(1);
    assert!(!programs.stdout.contains("OPEN"), "{}", programs.stdout);
}

/// Folders of ours below the working folder can be neither moved away nor made from inside, and what came with another
/// run can't be handed over.
#[test]
fn a_process_inside_cannot_move_what_is_hidden() {
    if !has_namespaces() {
        return;
    }
    let mut home = TestHome::new();
    let own = home.path().join("people/ann");
    fs::create_dir_all(&own).unwrap();
    home.set("A2A_HOME", own.join("a2a").to_str().unwrap());
    home.set("AWCP_HOME", own.join("awcp").to_str().unwrap());
    let (up, ready) = home.ready("up", &["up", "--listen", "127.0.0.1:0"]);
    let hub = ready["url"].as_str().unwrap();
    let key = own.join("a2a/hub/admin.key");
    let ask = |script: &str| home.attache(&["ask", "local", script, "--hub", hub, "--key-file", key.to_str().unwrap()]);
    let moved = ask("mv people p2; mv people/ann p2; rm -rf people; ls").succeeds();
    assert!(moved.stdout.lines().any(|name| name == "people"), "{}", moved.stdout);
    // At most a copy is made of what is visible.
    assert!(key.exists() && !home.path().join("p2/a2a/hub").exists(), "{}", moved.stderr);
    ask("echo 'enabled = true' > people/ann/awcp/policy.toml; true").succeeds();
    assert!(!own.join("awcp/policy.toml").exists(), "a policy was planted");
    // A link to a folder of ours could be replaced, so nothing starts beside one.
    fs::rename(own.join("awcp"), own.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", own.join("awcp")).unwrap();
    let refused = ask("true").exits(1);
    assert!(refused.stderr.contains("is a link, which the task could replace"), "{}", refused.stderr);
    fs::remove_file(own.join("awcp")).unwrap();
    fs::rename(own.join("elsewhere"), own.join("awcp")).unwrap();
    // A link instead of the folder for attachments breaks nothing.
    ask("ln -s /usr .attache").succeeds();
    assert_eq!(ask("echo still works").succeeds().stdout, "still works\n");
    assert!(up.is_running());
}

/// Whoever works beside another run doesn't see what came with it, even if nothing had come before.
#[test]
fn what_comes_with_another_run_stays_hidden() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(home.path().join("sent.txt"), "theirs").unwrap();
    let code = hub.pairing_code("builder");
    let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--workspace", work.to_str().unwrap()];
    home.attache(&pair).succeeds();
    let _runtime = home.runtime(&["--concurrency", "2"]);
    let watch = "until [ -e came ]; do sleep 0.05; done; find .attache -name sent.txt | wc -l; touch seen";
    let watching = home.spawn("ask", &["ask", "builder", watch, "--sandbox", "cwd-only"]);
    until("the watching run to begin", || work.join(".attache").exists().then_some(()));
    let come = "cat $ATTACHE_FILES/sent.txt; touch came; until [ -e seen ]; do sleep 0.05; done";
    let came = home.attache(&["ask", "builder", come, "--file", "sent.txt", "--sandbox", "cwd-only"]).succeeds();
    assert!(watching.wait().success());
    assert_eq!((came.stdout.as_str(), watching.stdout().as_str()), ("theirs", "0\n"));
    until("the shared folder to be gone", || (!work.join(".attache").exists()).then_some(()));
}

/// Whatever is in them: a git repository, or a file that the run only has to name.
#[test]
fn a_run_neither_sees_nor_hands_over_what_other_agents_have() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let work = home.path().join("work");
    for (agent, folder) in [("bee", "bee"), ("cee", "sub/cee"), ("builder", "")] {
        fs::create_dir_all(work.join(folder)).unwrap();
        hub.add_agent(agent);
        let code = hub.pairing_code(agent);
        let folder = work.join(folder);
        let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--workspace", folder.to_str().unwrap()];
        home.attache(&pair).succeeds();
    }
    for folder in ["bee", "sub/cee"] {
        fs::write(work.join(folder).join("secret.txt"), "theirs").unwrap();
    }
    let git = Command::new("git").args(["init", "-q", "."]).current_dir(work.join("bee")).status();
    assert!(git.unwrap().success());
    let made_by_git = fs::read_dir(work.join("bee/.git")).unwrap().count();
    let _runtime = home.runtime(&[]);
    let ask = |script: &str| home.attache(&["ask", "builder", script, "--sandbox", "cwd-only"]);
    let seen = ask("cat */secret.txt */*/secret.txt; ls -A bee sub/cee; echo planted > bee/planted; true").succeeds();
    assert_eq!(seen.stdout, "bee:\n\nsub/cee:\n");
    assert!(!work.join("bee/planted").exists(), "a file was planted");
    assert_eq!(fs::read_dir(work.join("bee/.git")).unwrap().count(), made_by_git);
    for named in ["sub/cee/secret.txt", "bee/.git/config", "link"] {
        let script = format!("ln -sfn sub/cee/secret.txt link; echo {named} > $ATTACHE_ARTIFACTS");
        let refused = ask(&script).exits(1);
        assert!(refused.stderr.contains("files of other agents"), "{named}: {}", refused.stderr);
    }
    // Its own are handed over.
    ask("echo fine > own.txt; echo own.txt > $ATTACHE_ARTIFACTS").succeeds();
}

/// A worktree is a git repository among Attaché's keys.
#[test]
fn a_repository_among_the_keys_shows_none_of_them() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let keys = home.path().join(".a2a");
    fs::create_dir_all(keys.join("worktrees/run_1")).unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(keys.join("admin.key"), "KEY").unwrap();
    fs::write(keys.join("worktrees/run_1/.git"), "gitdir: /x/.git/worktrees/run_1\n").unwrap();
    let script = "cat .a2a/admin.key; echo changed >> .a2a/admin.key; ls -A .a2a";
    let output = home.attache(&["sandbox", "--", "sh", "-c", script]).succeeds();
    assert_eq!(output.stdout, "admin.key\n", "what it wrote itself");
    assert_eq!(fs::read_to_string(keys.join("admin.key")).unwrap(), "KEY");
}

#[test]
fn the_shell_of_up_sees_only_its_folder_unless_told_otherwise() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    fs::create_dir(home.path().join("work")).unwrap();
    fs::write(home.path().join("secret"), "outside").unwrap();
    let look = ["ask", "local", "cat ../secret 2>/dev/null; echo $? > seen; cat seen"];
    let up = home.up(&["--cwd", "work"]);
    up.agent_is("local", "online");
    assert_eq!(home.attache(&look).succeeds().stdout, "1\n");
    assert_eq!(fs::read_to_string(home.path().join("work/seen")).unwrap(), "1\n");
    let shown = home.attache(&["agents", "show", "local"]).succeeds().stdout;
    assert!(shown.contains("each run sees only its own folder (verified "), "{shown}");
    assert!(up.process.stdout().contains("Its tasks see only "), "{}", up.process.stdout());
    up.process.terminate();
    let up = home.up(&["--cwd", "work", "--sandbox", "off"]);
    up.agent_is("local", "online");
    assert_eq!(home.attache(&look).succeeds().stdout, "outside0\n");
}

#[test]
fn runs_of_others_see_only_their_folder() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    home.attache(&["users", "add", "ann"]).succeeds();
    let key = home.path().join("ann.key").to_str().unwrap().to_owned();
    home.attache(&["keys", "add", "laptop", "--user", "ann", "--to-file", &key]).succeeds();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(home.path().join("secret"), "outside").unwrap();
    let code = hub.pairing_code("builder");
    let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--workspace", work.to_str().unwrap()];
    home.attache(&pair).succeeds();
    let look = ["ask", "builder", "cat ../secret 2>/dev/null; echo $?"];
    let (mine, theirs) = (look.to_vec(), [&look[..], &["--key-file", &key]].concat());
    for (walled, seen_by_me, seen_by_them) in
        [("others", "outside0\n", "1\n"), ("off", "outside0\n", "outside0\n"), ("all", "1\n", "1\n")]
    {
        if walled != "others" {
            home.attache(&["runtime", "set", "--sandbox", walled]).succeeds();
        }
        let runtime = home.runtime(&[]);
        assert_eq!(home.attache(&mine).succeeds().stdout, seen_by_me, "{walled}");
        assert_eq!(home.attache(&theirs).succeeds().stdout, seen_by_them, "{walled}");
        runtime.terminate();
    }
    home.attache(&["runtime", "set", "--sandbox", "some"]).exits(2);
}

/// bubblewrap finds what it mounts by its path. Another run in the same folder could put a link there at the right moment,
/// and what it leads to would be writable.
#[test]
fn what_is_fixed_cannot_be_replaced_while_the_walls_are_built() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let root = home.path().canonicalize().unwrap();
    for folder in ["work/nested/.git", "outside/.git"] {
        fs::create_dir_all(root.join(folder)).unwrap();
        fs::write(root.join(folder).join("config"), "").unwrap();
    }
    let nested = root.join("work/nested");
    let mut walls = Walls::open(root.join("work")).limit(&[SandboxLimit::CwdOnly]);
    walls.read.push(root.join("outside"));
    walls.fixed.push(nested.join(".git/config"));
    let start = |replace: &dyn Fn(&mut Vec<OsString>)| {
        let (program, mut words) = Launcher::new(stage()).command(&walls, "sh".as_ref()).unwrap();
        replace(&mut words);
        Command::new(program).args(words).args(["-c", "touch nested/new; echo started"]).output().unwrap()
    };
    assert_eq!(String::from_utf8_lossy(&start(&|_| {}).stdout), "started\n");
    let refused = |replace: &dyn Fn(&mut Vec<OsString>)| {
        let replaced = start(replace);
        assert_eq!(String::from_utf8_lossy(&replaced.stdout), "");
        let why = String::from_utf8_lossy(&replaced.stderr);
        assert!(why.contains("was replaced while the sandbox was being set up"), "{why}");
    };
    // Whoever serves a file system can show a link to bubblewrap, and to everybody else what was there: as if bubblewrap had
    // been told to mount something else, or somewhere else.
    fs::write(root.join("work/x"), "").unwrap();
    let config = nested.join(".git/config");
    let at = |words: &[OsString]| words.iter().rposition(|word| *word == *config).unwrap();
    refused(&|words| {
        let to = at(words);
        words[to] = root.join("work/x").into();
    });
    refused(&|words| {
        let from = at(words) - 1;
        words[from] = "/proc/self/status".into();
    });
    refused(&|_| {
        fs::rename(&nested, root.join("work/old")).unwrap();
        std::os::unix::fs::symlink("../outside", &nested).unwrap();
    });
    assert!(!root.join("outside/new").exists());
}

/// The repository of a worktree is in a folder in which others work, who could put a link to anything in its place.
#[test]
fn what_is_exact_is_no_link_by_the_time_the_walls_stand() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let root = home.path().canonicalize().unwrap();
    let (common, secret) = (root.join("repository/.git"), root.join("secret"));
    for folder in [&common, &secret, &root.join("work")] {
        fs::create_dir_all(folder).unwrap();
    }
    let mut walls = Walls::open(root.join("work")).limit(&[SandboxLimit::CwdOnly]);
    walls.read.push(common.clone());
    walls.exact.push(common.clone());
    let launcher = Launcher::new(stage());
    let command = || launcher.command(&walls, "sh".as_ref());
    let start = |(program, words): (OsString, Vec<OsString>)| {
        Command::new(program).args(words).args(["-c", "echo started"]).output().unwrap()
    };
    assert_eq!(String::from_utf8_lossy(&start(command().unwrap()).stdout), "started\n");
    let prepared = command().unwrap();
    fs::rename(&common, root.join("repository/old")).unwrap();
    std::os::unix::fs::symlink(&secret, &common).unwrap();
    for prepared in [prepared, command().unwrap()] {
        let replaced = start(prepared);
        assert_eq!(String::from_utf8_lossy(&replaced.stdout), "");
        let why = String::from_utf8_lossy(&replaced.stderr);
        assert!(why.contains("was replaced while the sandbox was being set up"), "{why}");
    }
}

/// A run of somebody else leaves nothing in a repository that git executes when its owner works there next.
#[test]
fn a_run_inside_walls_leaves_no_program_for_git() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments).current_dir(&work);
        let output = git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_EDITOR", "true").output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    git(&["init", "-q"]);
    fs::write(work.join("file.txt"), "first\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "first"]);
    let code = hub.pairing_code("builder");
    let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--workspace", work.to_str().unwrap()];
    home.attache(&pair).succeeds();
    let _runtime = home.runtime(&[]);
    let trap = home.path().join("trapped");
    let write_evil = || {
        fs::write(work.join("evil.sh"), format!("#!/bin/sh\ntouch {}\ncat\n", trap.display())).unwrap();
        fs::set_permissions(work.join("evil.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    };
    write_evil();
    let settings = fs::read(work.join(".git/config")).unwrap();
    let plant = "evil=$PWD/evil.sh
        git config core.fsmonitor $evil && echo set
        printf '[core]\\nfsmonitor = %s\\n' $evil >> .git/config && echo appended
        cp .git/config own; printf '[core]\\nfsmonitor = %s\\n' $evil >> own; mv own .git/config && echo replaced
        cp evil.sh .git/hooks/pre-commit && echo hooked
        mv .git/hooks .git/old && echo moved
        mv .git .old && echo moved all
        mkdir -p other && cp .git/config other/ && printf '[core]\\nfsmonitor = %s\\n' $evil >> other/config
        cp -r .git/objects .git/refs other/ && echo ../other > .git/commondir
        rm -f .git/index.lock; true";
    let planted = home.attache(&["ask", "builder", plant, "--sandbox", "cwd-only"]).succeeds();
    assert_eq!(planted.stdout, "", "{}", planted.stderr);
    assert_eq!(fs::read(work.join(".git/config")).unwrap(), settings);
    // Work goes on as usual.
    let commits = "echo second > file.txt && git switch -qc topic && git add file.txt \
                   && git -c user.name=a -c user.email=a@b commit -qm second && git log --format=%s";
    let worked = home.attache(&["ask", "builder", commits, "--sandbox", "cwd-only"]).succeeds();
    assert_eq!(worked.stdout, "second\nfirst\n", "{}", worked.stderr);
    let use_it = ["status", "diff", "log -p", "add -A", "commit -qm third", "checkout -q -"];
    for words in use_it {
        git(&words.split(' ').collect::<Vec<_>>());
    }
    assert!(!trap.exists(), "git executed what a run left behind");
    // In a repository that a run made itself, only the owner's own runs are protected.
    let make = "git init -q mine && cd mine && git config core.fsmonitor $PWD/../evil.sh \
                && git config filter.evil.clean $PWD/../evil.sh && echo '* filter=evil' > .gitattributes \
                && cp ../evil.sh .git/hooks/pre-commit && mv .git .gitattributes ..";
    fs::remove_dir_all(work.join(".git")).unwrap();
    write_evil();
    home.attache(&["ask", "builder", make, "--sandbox", "cwd-only"]).succeeds();
    let own = "git status >/dev/null; git add -A; git -c user.name=a -c user.email=a@b commit -qm x && echo done";
    let owned = home.attache(&["ask", "builder", own]).succeeds();
    assert_eq!(owned.stdout, "done\n", "{}", owned.stderr);
    assert!(!trap.exists(), "the owner's run executed what another run left behind");
    git(&["status"]);
    assert!(trap.exists(), "the attempt proves nothing");
}

/// A run can leave such a repository in its folder, and the owner's next run is inside walls as well.
#[test]
fn a_repository_whose_name_is_not_utf8_keeps_no_run_from_starting() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    let code = hub.pairing_code("builder");
    let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--workspace", work.to_str().unwrap()];
    home.attache(&pair).succeeds();
    let _runtime = home.runtime(&[]);
    let ask = |script: &str| home.attache(&["ask", "builder", script, "--sandbox", "cwd-only"]).succeeds().stdout;
    let name = r"$(printf 'caf\351\nx')";
    assert_eq!(ask(&format!("mkdir \"{name}\" && git init -q \"{name}\" && echo made")), "made\n");
    let look = format!("cd \"{name}\" && git status --short && ! echo x >> .git/config && echo fixed");
    assert_eq!(ask(&look), "fixed\n");
    let inside = Command::new("find").args([work.to_str().unwrap(), "-name", "commondir"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&inside.stdout), "", "a placeholder stayed");
}

/// All paths together can be longer than one word of a command line.
#[test]
fn many_long_paths_keep_no_program_from_starting() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let root = home.path().canonicalize().unwrap();
    let mut walls = Walls::open(&root).limit(&[SandboxLimit::CwdOnly]);
    let deep = root.join("x".repeat(250)).join("y".repeat(250));
    fs::create_dir_all(&deep).unwrap();
    for number in 0..300 {
        let file = deep.join(format!("{number}"));
        fs::write(&file, "").unwrap();
        walls.fixed.push(file);
    }
    let (program, words) = Launcher::new(stage()).command(&walls, "sh".as_ref()).unwrap();
    let started = Command::new(program).args(words).args(["-c", "echo started"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&started.stdout), "started\n", "{}", String::from_utf8_lossy(&started.stderr));
}
