//! Real hosts inside walls: they work in their folder and reach their model, and nothing else.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    path::PathBuf,
    process::Command,
};

use serde_json::json;

use super::{
    device::{AGENT, HostDevice},
    programs::{self, HostProgram},
};
use crate::{
    device_or_skip,
    sandbox::{has_namespaces, is_running, show_toolchains, write_project},
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
    show_toolchains(device.home.path());
    show(&mut device, program);
    write_project(&device.folder);
    let works = [
        "cargo test --offline -q >cargo.log 2>&1 && echo CARGO-4''1",
        "npm test >npm.log 2>&1 && echo NPM-4''2",
        "python3 -m unittest -q >python.log 2>&1 && echo PYTHON-4''3",
        "(git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -qm x) >git.log 2>&1 && echo GIT-4''4",
    ];
    let run = device
        .create(&format!("RUN:{}", works.join("; ")), json!({"sandbox": {"cwd_only": true, "allow_network": false}}));
    let (ended, _) = device.answer(&run, true);
    assert_eq!(ended["status"], "completed", "{ended}");
    let told: String = device.model.requests().iter().map(|request| format!("{request:?}")).collect();
    for done in ["CARGO-41", "NPM-42", "PYTHON-43", "GIT-44"] {
        let log = |name: &str| fs::read_to_string(device.folder.join(name)).unwrap_or_default();
        assert!(
            told.contains(done),
            "{done} {} {} {} {}",
            log("cargo.log"),
            log("npm.log"),
            log("python.log"),
            log("git.log")
        );
    }
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

    let outside = OutsideTargets::new(&device);
    fs::write(device.folder.join("attempts.sh"), &outside.script).unwrap();
    // OpenClaw fails by itself if a process stays behind.
    let seconds = format!("{}", 200_000 + u32::from(outside.datagrams.local_addr().unwrap().port()));
    let survivor = match program.kind {
        "openclaw" => "true".to_owned(),
        _ => format!("env -i setsid -f sleep {seconds} >/dev/null 2>/dev/null"),
    };
    let run =
        device.create(&format!("RUN:sh attempts.sh >attempts.log 2>errors.log; {survivor}; echo RAN-4''2"), limits);
    let (ended, _) = device.answer(&run, true);
    assert_eq!(ended["status"], "completed", "{ended}");
    let told: String = device.model.requests().iter().map(|request| format!("{request:?}")).collect();
    assert!(told.contains("RAN-42"), "the command ran: {ended} {told}");
    let got_out = fs::read_to_string(device.folder.join("attempts.log")).unwrap();
    assert!(!OutsideTargets::written(&device).exists() && !outside.heard_a_datagram());
    assert_eq!(got_out, "", "nothing gets out");
    assert!(!is_running(&seconds), "a process survived its run");
    // Outside, every one of them succeeds.
    let control = Command::new("sh").arg("attempts.sh").current_dir(&device.folder).output().unwrap();
    let control = String::from_utf8_lossy(&control.stdout).into_owned();
    let mount = rustix::process::geteuid().is_root().then_some("MOUNT");
    let all = [
        "FILE",
        "KEY",
        "LINK",
        "ROOT",
        "WRITE",
        "TCP",
        "ABSTRACT",
        "SOCKET",
        "SIGNAL",
        "ENVIRONMENT",
        "TRACE",
        "NAMESPACE",
    ];
    for done in all.into_iter().chain(mount) {
        assert!(control.lines().any(|line| line == done), "{done} proves nothing: {control}");
    }
    assert!(outside.heard_a_datagram(), "a datagram proves nothing");
    fs::remove_file(OutsideTargets::written(&device)).unwrap();
    let events = device.hub.get(&format!("/api/v1/task-runs/{run}/events?after=0")).to_string();
    assert!(events.contains("network: 127.0.0.1:") && events.contains("was reached"), "{events}");
    let shown = device.home.attache(&["runs", "show", &run]).succeeds().stdout;
    assert!(shown.contains("\nnetwork\n") && shown.contains("was reached"), "{shown}");
    device.hub.agent_is(AGENT, "online");
}

/// What a process inside must not reach, and a script that tries and names each success.
struct OutsideTargets {
    script: String,
    datagrams: UdpSocket,
    _listeners: (TcpListener, UnixListener, UnixListener),
}

impl OutsideTargets {
    fn new(device: &HostDevice) -> Self {
        let home = device.home.path();
        let secret = home.join("secret.txt");
        fs::write(&secret, "OUTSIDE").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let name = format!("attache-test-{}-{}", std::process::id(), datagrams.local_addr().unwrap().port());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let socket = UnixListener::bind_addr(&address).unwrap();
        let path_socket = UnixListener::bind(device.folder.join("service")).unwrap();
        let script = format!(
            "grep -q OUTSIDE {secret} && echo FILE
             grep -q ak_ {key} && echo KEY
             ln -sf {secret} link; grep -q OUTSIDE link && echo LINK
             grep -q OUTSIDE /proc/{test}/root{secret} && echo ROOT
             echo x >{written} && echo WRITE
             bash -c 'exec 3<>/dev/tcp/127.0.0.1/{tcp}' && echo TCP
             bash -c 'echo x >/dev/udp/127.0.0.1/{udp}'
             python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\")' && echo ABSTRACT
             python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"service\")' && echo SOCKET
             kill -0 {test} && echo SIGNAL
             tr '\\0' '\\n' </proc/{test}/environ | grep -q PATH && echo ENVIRONMENT
             python3 -c 'import ctypes; exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0))' && echo TRACE
             unshare -U true && echo NAMESPACE
             mkdir -p mnt; mount -t tmpfs none mnt && umount mnt && echo MOUNT
             true\n",
            secret = secret.display(),
            key = home.join(".a2a/hub/admin.key").display(),
            written = Self::written(device).display(),
            tcp = tcp.local_addr().unwrap().port(),
            udp = datagrams.local_addr().unwrap().port(),
            test = std::process::id(),
        );
        Self { script, datagrams, _listeners: (tcp, socket, path_socket) }
    }

    /// Beside the home folder, which is empty inside and can be written to.
    fn written(device: &HostDevice) -> PathBuf {
        device.home.path().with_extension("written")
    }

    fn heard_a_datagram(&self) -> bool {
        self.datagrams.recv(&mut [0; 8]).is_ok()
    }
}

/// The programs of the tests are in a folder that no installation would use, and their model is on this machine.
fn show(device: &mut HostDevice, program: &HostProgram) {
    let programs = std::env::var("ATTACHE_HOSTS").unwrap();
    let model = device.model.url().trim_start_matches("http://");
    let row = format!("[{}.walls]\nreads = [{programs:?}]\nhosts = [{model:?}]\n", program.kind);
    fs::write(device.home.path().join(".a2a/presets.toml"), row).unwrap();
    device.runtime.kill();
    device.runtime = device.home.runtime(&[]);
}
