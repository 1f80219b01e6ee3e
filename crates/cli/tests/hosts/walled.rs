//! Real hosts inside walls: they work in their folder and reach their model, and nothing else.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::PermissionsExt as _,
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::json;

use super::{
    device::{AGENT, HostDevice},
    programs::{self, HostProgram},
};
use crate::{
    device_or_skip,
    harness::TestHome,
    sandbox::{COMMIT, has_namespaces, is_running, python_tests, show_toolchains, write_project},
};

#[test]
fn claude_code_works_inside_walls() {
    works_inside(&programs::CLAUDE);
}

#[test]
fn codex_works_inside_walls() {
    works_inside(&programs::CODEX);
}

#[test]
fn gemini_works_inside_walls() {
    works_inside(&programs::GEMINI);
}

#[test]
fn opencode_works_inside_walls() {
    works_inside(&programs::OPENCODE);
}

#[test]
fn qwen_works_inside_walls() {
    works_inside(&programs::QWEN);
}

#[test]
fn hermes_works_inside_walls() {
    works_inside(&programs::HERMES);
}

#[test]
fn openclaw_works_inside_walls() {
    works_inside(&programs::OPENCLAW);
}

#[test]
fn claude_code_builds_tests_and_commits_inside_walls() {
    builds_inside(&programs::CLAUDE);
}

#[test]
fn codex_builds_tests_and_commits_inside_walls() {
    builds_inside(&programs::CODEX);
}

/// The toolchains of the machine do real work, without network.
fn builds_inside(program: &HostProgram) {
    if !has_namespaces() {
        return;
    }
    let mut device = device_or_skip!(program);
    show_toolchains(&mut device.home);
    show(&mut device, program);
    let work = prepare_work(&device.folder);
    let run = device.create(&work, json!({"sandbox": {"cwd_only": true, "allow_network": false}}));
    let (ended, _) = device.answer(&run, true);
    assert_eq!(ended["status"], "completed", "{ended}");
    let told: String = device.model.requests().iter().map(|request| format!("{request:?}")).collect();
    worked(&told, &device.folder);
}

/// Prepares a folder for [`worked`], and returns what the model tells its host to do: edit a file, test with every
/// toolchain, and commit. A host may hand a command that takes long back to its model, which then waits for it.
pub fn prepare_work(folder: &Path) -> String {
    write_project(folder);
    let script = format!(
        "cargo test --offline -q >cargo.log 2>&1 && echo CARGO >>done
         npm test >npm.log 2>&1 && echo NPM >>done
         {} >python.log 2>&1 && echo PYTHON >>done
         ({COMMIT}) >git.log 2>&1 && echo GIT >>done
         mv done worked\n",
        python_tests()
    );
    fs::write(folder.join("work.sh"), script).unwrap();
    fs::write(folder.join(".gitignore"), "*.log\n__pycache__\ntarget\ndone\nworked\n").unwrap();
    let git = Command::new("git").args(["init", "-q"]).current_dir(folder).status();
    assert!(git.unwrap().success());
    let waits = (1..=12).map(|nth| {
        format!(
            "\nRUN:timeout 20 sh -c 'until test -e worked; do sleep 0.1; done'; echo wait {nth}; tr '\\n' '-' <worked"
        )
    });
    format!("WRITE:edited.txt=by the host\nRUN:sh work.sh{}", waits.collect::<String>())
}

/// Checks that all of it was done and committed, and that the model was told.
#[track_caller]
pub fn worked(told: &str, folder: &Path) {
    let log = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let logs = ["worked", "cargo.log", "npm.log", "python.log", "git.log"].map(log).join("\n---\n");
    assert!(told.contains("CARGO-NPM-PYTHON-GIT-"), "{logs}");
    let shown = Command::new("git").args(["show", "HEAD:edited.txt"]).current_dir(folder).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stdout).trim_end(), "by the host");
}

/// The same attempts as a script of the shell.
#[test]
fn the_shell_works_inside_walls() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::within(env!("CARGO_TARGET_TMPDIR").as_ref(), "shell");
    let folder = home.path().join("project");
    fs::create_dir(&folder).unwrap();
    let hub = home.hub(&[]);
    hub.add_agent(AGENT);
    let code = hub.pairing_code(AGENT);
    let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--workspace", folder.to_str().unwrap()];
    home.attache(&pair).succeeds();
    let _runtime = home.runtime(&[]);
    let outside = OutsideTargets::new(home.path(), &folder);
    let ask = |script: &str, limits: &str| home.attache(&["ask", AGENT, script, "--sandbox", limits]);
    let tried = ask("sh attempts.sh 2>errors.log; echo RAN", "cwd-only,no-network").succeeds();
    assert_eq!(tried.stdout, "RAN\n", "nothing gets out");
    outside.held();
    outside.succeeds_outside();
    // Nothing but builtins.
    let program = "/bin/touch executed; echo builtin > made";
    ask(program, "cwd-only,no-exec").succeeds();
    assert!(folder.join("made").exists() && !folder.join("executed").exists());
    ask(program, "cwd-only").succeeds();
    assert!(folder.join("executed").exists(), "the attempt proves nothing");
}

fn works_inside(program: &HostProgram) {
    if !has_namespaces() {
        return;
    }
    let mut device = device_or_skip!(program);
    show(&mut device, program);
    let limits = json!({"sandbox": {"cwd_only": true, "allow_network": false}});
    let run = device.create("WRITE:inside.txt=written inside", limits.clone());
    let (ended, _) = device.answer(&run, true);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(fs::read_to_string(device.folder.join("inside.txt")).unwrap().trim_end(), "written inside");

    let outside = OutsideTargets::new(device.home.path(), &device.folder);
    // OpenClaw fails by itself if a process stays behind.
    let seconds = format!("{}", 200_000 + u32::from(outside.datagrams.local_addr().unwrap().port()));
    let survivor = match program.kind {
        "openclaw" => "true".to_owned(),
        _ => format!("env -i setsid -f sleep {seconds} >/dev/null 2>/dev/null"),
    };
    let script = format!("RUN:sh attempts.sh >attempts.log 2>errors.log; {survivor}; echo RAN-4''2");
    let run = device.create(&script, limits);
    let (ended, _) = device.answer(&run, true);
    assert_eq!(ended["status"], "completed", "{ended}");
    let told: String = device.model.requests().iter().map(|request| format!("{request:?}")).collect();
    assert!(told.contains("RAN-42"), "the command ran: {ended} {told}");
    assert_eq!(fs::read_to_string(device.folder.join("attempts.log")).unwrap(), "", "nothing gets out");
    outside.held();
    assert!(!is_running(&seconds), "a process survived its run");
    outside.succeeds_outside();
    let events = device.hub.get(&format!("/api/v1/task-runs/{run}/events?after=0")).to_string();
    assert!(events.contains("network: 127.0.0.1:") && events.contains("was reached"), "{events}");
    let shown = device.home.attache(&["runs", "show", &run]).succeeds().stdout;
    assert!(shown.contains("\nnetwork\n") && shown.contains("was reached"), "{shown}");
    starts_no_program(&device);
    if program.kind == programs::CLAUDE.kind {
        keeps_only_renewed_tokens(&device);
    }
    device.hub.agent_is(AGENT, "online");
}

/// What a run makes of the login: the host obeys it in the owner's own runs, too.
fn keeps_only_renewed_tokens(device: &HostDevice) {
    let login = device.home.path().join(".claude/.credentials.json");
    fs::create_dir_all(login.parent().unwrap()).unwrap();
    let of = |token: &str, url: &str| format!(r#"{{"kept":{{"token":"{token}","url":"{url}"}}}}"#);
    fs::write(&login, of("first", "here")).unwrap();
    let limits = json!({"sandbox": {"cwd_only": true, "allow_network": false}});
    for (wrote, expected) in [(of("second", "here"), "second"), (of("third", "elsewhere"), "second")] {
        fs::write(device.folder.join("login.json"), &wrote).unwrap();
        let run = device
            .create(&format!("RUN:cat login.json >'{}' && touch {expected}-tried", login.display()), limits.clone());
        let (ended, _) = device.answer(&run, true);
        assert!(device.folder.join(format!("{expected}-tried")).exists(), "{ended}");
        assert_eq!(fs::read_to_string(&login).unwrap(), of(expected, "here"), "{ended}");
        fs::remove_file(device.folder.join(format!("{expected}-tried"))).unwrap();
    }
    fs::remove_file(&login).unwrap();
}

/// Told to run a program although it must not, a host may fail or go on without it.
fn starts_no_program(device: &HostDevice) {
    let executed = device.folder.join("executed");
    let limits = json!({"sandbox": {"cwd_only": true, "allow_network": false, "allow_exec": false}});
    let run = device.create("RUN:/bin/touch executed", limits);
    device.answer(&run, true);
    assert!(!executed.exists(), "a program was started");
    let run = device.create("RUN:/bin/touch executed", json!({"sandbox": {"cwd_only": true}}));
    let (ended, _) = device.answer(&run, true);
    assert!(executed.exists(), "the attempt proves nothing: {ended}");
}

/// What a process inside must not reach, and a script in its folder, `attempts.sh`, that tries and names each success.
struct OutsideTargets {
    folder: PathBuf,
    written: PathBuf,
    datagrams: UdpSocket,
    _resolver: TestResolver,
    _listeners: (TcpListener, UnixListener, UnixListener),
}

/// Answers queries on loopback, as a name server would.
struct TestResolver {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Nobody's id, whose program a process would run as.
const STRANGER: u32 = 65_533;

impl OutsideTargets {
    fn new(home: &Path, folder: &Path) -> Self {
        let secret = home.join("secret.txt");
        fs::write(&secret, "OUTSIDE").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let name = format!("attache-test-{}-{}", std::process::id(), datagrams.local_addr().unwrap().port());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let socket = UnixListener::bind_addr(&address).unwrap();
        let path_socket = UnixListener::bind(folder.join("service")).unwrap();
        let resolver = TestResolver::start();
        if rustix::process::geteuid().is_root() {
            let program = folder.join("setuid-id");
            fs::copy("/usr/bin/id", &program).unwrap();
            std::os::unix::fs::chown(&program, Some(STRANGER), None).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        }
        // Beside the home folder, which is empty inside and can be written to.
        let written = home.with_extension("written");
        fs::write(
            folder.join("keyring.py"),
            "import ctypes, platform\nnumber = 250 if platform.machine() == 'x86_64' else 219\n\
             exit(ctypes.CDLL(None).syscall(number, 0, -2, 1) < 0)\n",
        )
        .unwrap();
        fs::write(
            folder.join("terminal.py"),
            "import fcntl, os, pty, termios\nchild, terminal = pty.fork()\nif child == 0:\n    \
             try: fcntl.ioctl(0, termios.TIOCSTI, b'x')\n    except OSError: os._exit(1)\n    os._exit(0)\n\
             exit(os.waitpid(child, 0)[1] != 0)\n",
        )
        .unwrap();
        // A question for the address of `example.org`.
        let question =
            "b'\\x12\\x34\\x01\\x00\\x00\\x01' + bytes(6) + b'\\x07example\\x03org\\x00\\x00\\x01\\x00\\x01'";
        fs::write(
            folder.join("dns.py"),
            format!(
                "import socket\nasked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nasked.settimeout(5)\n\
                 asked.sendto({question}, ('127.0.0.1', {}))\nexit(asked.recv(512)[:2] != b'\\x12\\x34')\n",
                resolver.port
            ),
        )
        .unwrap();
        let script = format!(
            "grep -q OUTSIDE {secret} && echo FILE
             grep -q ak_ {key} && echo KEY
             ln -sf {secret} link; grep -q OUTSIDE link && echo LINK
             grep -q OUTSIDE /proc/{test}/root{secret} && echo ROOT
             echo x >{written} && echo WRITE
             bash -c 'exec 3<>/dev/tcp/127.0.0.1/{tcp}' && echo TCP
             bash -c 'echo x >/dev/udp/127.0.0.1/{udp}'
             python3 dns.py && echo DNS
             python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\")' && echo ABSTRACT
             python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"service\")' && echo SOCKET
             kill -0 {test} && echo SIGNAL
             tr '\\0' '\\n' </proc/{test}/environ | grep -q PATH && echo ENVIRONMENT
             python3 -c 'import ctypes; exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0))' && echo TRACE
             python3 keyring.py && echo KEYRING
             python3 terminal.py && echo TERMINAL
             unshare -U true && echo NAMESPACE
             test \"$(./setuid-id -u)\" = {STRANGER} && echo SETUID
             mkdir -p mnt; mount -t tmpfs none mnt && umount mnt && echo MOUNT
             true\n",
            secret = secret.display(),
            key = home.join(".a2a/hub/admin.key").display(),
            written = written.display(),
            tcp = tcp.local_addr().unwrap().port(),
            udp = datagrams.local_addr().unwrap().port(),
            test = std::process::id(),
        );
        fs::write(folder.join("attempts.sh"), script).unwrap();
        let listeners = (tcp, socket, path_socket);
        Self { folder: folder.to_owned(), written, datagrams, _resolver: resolver, _listeners: listeners }
    }

    /// What only shows outside.
    #[track_caller]
    fn held(&self) {
        assert!(!self.written.exists(), "a file was written outside");
        assert!(!self.heard_a_datagram(), "a datagram came out");
    }

    /// Outside, every one of them succeeds, where the kernel lets anybody do it.
    #[track_caller]
    fn succeeds_outside(&self) {
        let control = Command::new("sh").arg("attempts.sh").current_dir(&self.folder).output().unwrap();
        let _ = fs::remove_file(&self.written);
        let control = String::from_utf8_lossy(&control.stdout).into_owned();
        let all = [
            "FILE",
            "KEY",
            "LINK",
            "ROOT",
            "WRITE",
            "TCP",
            "DNS",
            "ABSTRACT",
            "SOCKET",
            "SIGNAL",
            "ENVIRONMENT",
            "TRACE",
            "KEYRING",
            "NAMESPACE",
        ];
        let of_root = if rustix::process::geteuid().is_root() { ["MOUNT", "SETUID"].as_slice() } else { &[] };
        let typing = fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").is_ok_and(|value| value.trim() == "1");
        for done in all.iter().chain(of_root).chain(typing.then_some(&"TERMINAL")) {
            assert!(control.lines().any(|line| line == *done), "{done} proves nothing: {control}");
        }
        assert!(self.heard_a_datagram(), "a datagram proves nothing");
    }

    fn heard_a_datagram(&self) -> bool {
        self.datagrams.recv(&mut [0; 8]).is_ok()
    }
}

impl TestResolver {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (port, stop) = (socket.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let answer = move || {
            let mut question = [0; 512];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, asker)) = socket.recv_from(&mut question) else { continue };
                // The same with the mark of an answer.
                question[2] |= 0x80;
                let _ = socket.send_to(&question[..length], asker);
            }
        };
        Self { port, stop, thread: Some(thread::spawn(answer)) }
    }
}

impl Drop for TestResolver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The programs of the tests are in a folder that no installation would use, and their model is on this machine.
fn show(device: &mut HostDevice, program: &HostProgram) {
    write_row(&device.home, device.model.url(), program);
    device.runtime.kill();
    device.runtime = device.home.runtime(&[]);
}

pub fn write_row(home: &TestHome, model: &str, program: &HostProgram) {
    let programs = std::env::var("ATTACHE_HOSTS").unwrap();
    let model = model.trim_start_matches("http://");
    let row = format!("[{}.walls]\nreads = [{programs:?}]\nhosts = [{model:?}]\n", program.kind);
    fs::create_dir_all(home.path().join(".a2a")).unwrap();
    fs::write(home.path().join(".a2a/presets.toml"), row).unwrap();
}
