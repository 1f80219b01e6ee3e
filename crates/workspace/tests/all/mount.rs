//! Real mounts: stock sshfs, a real guard process, and OpenSSH's server.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use attache_protocol::{Secret, Timestamp, env::Env, wire::awcp::AccessMode};
use attache_workspace::{
    mount::{
        ByteStream, GuardCommand, MountError, MountHandle, MountPoint, MountPointProtection, MountRequest,
        MountTransport, PortForward, TunnelDial, UnmountReason, mount, run_guard, sweep,
    },
    ssh::make_key,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::sshd::{SshdWithFolder, root};

/// The promise is 5 s. This leaves room for a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// Tells the two tests below, which are processes and not tests, what to do.
const HOLDER: &str = "ATTACHE_TEST_HOLDER";

/// This program itself, as a guard.
pub(crate) fn guard() -> GuardCommand {
    let args = ["--ignored", "--exact", "mount::guard_process", "--nocapture"];
    GuardCommand { program: std::env::current_exe().unwrap(), args: args.map(Into::into).to_vec() }
}

#[test]
#[ignore = "not a test: the process that the other tests start as a guard"]
fn guard_process() {
    run_guard(BufReader::new(std::io::stdin()), std::io::stdout());
}

/// Mounts what it is told, reports it, and waits to be killed.
#[tokio::test]
#[ignore = "not a test: the process that another test kills"]
async fn holder_process() {
    #[allow(
        clippy::disallowed_methods,
        reason = "the test that starts this process has no other way to pass arguments"
    )]
    let Ok(arguments) = std::env::var(HOLDER) else { return };
    let arguments: Vec<String> = serde_json::from_str(&arguments).unwrap();
    let [root, port, user, locator, host_key, private_key] = <[String; 6]>::try_from(arguments).unwrap();
    let mounting = MountRequest {
        host: "127.0.0.1".to_owned(),
        port: port.parse().unwrap(),
        user,
        locator,
        host_key,
        private_key: Secret::new(private_key),
        access_mode: AccessMode::Rw,
        lasts: Duration::from_secs(60),
        options: Vec::new(),
        transport: MountTransport::Sshfs,
    };
    let mounted = mount(&guard(), place(Path::new(&root)), mounting).await.unwrap();
    println!("\nmounted at {}", mounted.mount_point().display());
    std::io::stdout().flush().unwrap();
    std::future::pending::<()>().await;
}

fn place(root: &Path) -> MountPoint {
    MountPoint::reserve(&[root.to_owned()], "dlg_test", &Env::system()).unwrap()
}

fn is_mounted(mount_point: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", mount_point.display()))
}

/// Nothing of a mount is left below its root.
fn is_clean(root: &Path) -> bool {
    let count = |path: PathBuf| fs::read_dir(path).unwrap().count();
    count(root.to_owned()) == 1 && count(root.join(".leases")) == 1
}

fn until(what: &str, mut met: impl FnMut() -> bool) -> Duration {
    let since = Instant::now();
    while !met() {
        assert!(since.elapsed() < Duration::from_secs(60), "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    since.elapsed()
}

/// The sshfs process of a mount point.
fn sshfs(mount_point: &Path) -> Pid {
    let wanted = mount_point.to_str().unwrap().as_bytes();
    let of = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        (words.first()?.ends_with(b"sshfs") && words.contains(&wanted)).then_some(pid)
    };
    let pid = fs::read_dir("/proc").unwrap().find_map(|entry| of(entry.unwrap())).unwrap();
    Pid::from_raw(pid).unwrap()
}

async fn mounted(sshd: &SshdWithFolder, root: &Path) -> MountHandle {
    mount(&guard(), place(root), sshd.mount_request()).await.unwrap()
}

/// A mount with an open file, until its lease ends. Uses the shortest lease that this machine can handle.
async fn mounted_for_a_while(sshd: &SshdWithFolder, root: &Path) -> (MountHandle, fs::File, Timestamp) {
    for seconds in [2, 8, 32] {
        let lasts = Duration::from_secs(seconds);
        let expires_at = Env::system().now().plus(lasts);
        let mounted = mount(&guard(), place(root), sshd.mounting(AccessMode::Rw, lasts)).await;
        let Ok(mounted) = mounted else { continue };
        match fs::File::create(mounted.mount_point().join("busy")) {
            Ok(busy) => return (mounted, busy, expires_at),
            Err(_) => _ = mounted.unmount().await,
        }
    }
    panic!("32 s are not enough to mount a folder");
}

#[tokio::test]
async fn writes_reach_the_host_and_nothing_is_left_behind() {
    let Some(sshd) = SshdWithFolder::start() else { return };
    let root = root();
    fs::write(sshd.file("before"), "host").unwrap();
    let mounted = mounted(&sshd, root.path()).await;
    let mount_point = mounted.mount_point().to_owned();
    let expected =
        if rustix::process::geteuid().is_root() { MountPointProtection::Immutable } else { MountPointProtection::Mode };
    assert_eq!(mounted.underneath(), expected);
    assert_eq!(fs::read_to_string(mount_point.join("before")).unwrap(), "host");
    fs::write(mount_point.join("after"), "remote").unwrap();
    assert_eq!(fs::read_to_string(sshd.file("after")).unwrap(), "remote");
    // The key is in no file. Only the guard's own agent has it.
    let mut folders = vec![root.path().join(".leases")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                assert_eq!(entry.metadata().unwrap().mode() & 0o077, 0, "{}", path.display());
                folders.push(path);
            } else if kind.is_file() {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                assert!(!text.contains("PRIVATE KEY"), "{}", path.display());
            }
        }
    }
    assert!(mounted.is_alive(Duration::from_secs(5)).await);
    let options = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = options.lines().find(|line| line.contains(mount_point.to_str().unwrap())).unwrap();
    assert!(line.contains("nosuid,nodev") && !line.contains("default_permissions"), "{line}");
    assert_eq!(mounted.unmount().await.why, UnmountReason::Asked);
    assert!(!is_mounted(&mount_point) && is_clean(root.path()));
}

#[tokio::test]
async fn a_read_only_mount_cannot_be_written() {
    let Some(sshd) = SshdWithFolder::start() else { return };
    let root = root();
    let lasts = Duration::from_secs(60);
    let mounted = mount(&guard(), place(root.path()), sshd.mounting(AccessMode::Ro, lasts)).await.unwrap();
    let refused = fs::write(mounted.mount_point().join("x"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(30), "EROFS");
    mounted.unmount().await;
    assert!(is_clean(root.path()));
}

#[tokio::test]
async fn only_the_pinned_server_is_mounted_and_only_with_the_right_key() {
    let Some(sshd) = SshdWithFolder::start() else { return };
    let root = root();
    let key = make_key(&Env::system());
    let stranger = MountRequest { private_key: key.private, ..sshd.mount_request() };
    let error = mount(&guard(), place(root.path()), stranger).await.unwrap_err();
    assert!(matches!(error, MountError::KeyRefused(_)), "{error:?}");
    let other = MountRequest { host_key: key.public, ..sshd.mount_request() };
    let error = mount(&guard(), place(root.path()), other).await.unwrap_err();
    assert!(matches!(error, MountError::OtherHost(_)), "{error:?}");
    let away = MountRequest { port: 1, ..sshd.mount_request() };
    let error = mount(&guard(), place(root.path()), away).await.unwrap_err();
    assert!(matches!(&error, MountError::Unreachable(message) if message.contains("Connection refused")), "{error:?}");
    let nowhere = MountRequest { locator: "/no/such/folder".to_owned(), ..sshd.mount_request() };
    let error = mount(&guard(), place(root.path()), nowhere).await.unwrap_err();
    assert!(matches!(&error, MountError::Sshfs(message) if message.contains("No such file")), "{error:?}");
    assert!(is_clean(root.path()));
}

#[tokio::test]
async fn a_vanished_mount_swallows_no_writes() {
    let Some(sshd) = SshdWithFolder::start() else { return };
    for signal in [Signal::KILL, Signal::TERM] {
        let root = root();
        let mounted = mounted(&sshd, root.path()).await;
        let mount_point = mounted.mount_point().to_owned();
        kill_process(sshfs(&mount_point), signal).unwrap();
        // From the first moment on, not only once it is noticed.
        assert!(fs::write(mount_point.join("lost"), "x").is_err() || sshd.file("lost").exists());
        assert_eq!(mounted.gone().await, UnmountReason::Died, "{signal:?}");
        assert!(!is_mounted(&mount_point));
        let refused = fs::write(mount_point.join("lost"), "x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{signal:?}: also for root");
        assert!(fs::create_dir_all(mount_point.join("a/b")).is_err());
        mounted.unmount().await;
        assert!(is_clean(root.path()));
        let _ = fs::remove_file(sshd.file("lost"));
    }
}

#[tokio::test]
async fn the_end_of_the_lease_unmounts_even_with_busy_processes() {
    let Some(sshd) = SshdWithFolder::start() else { return };
    let root = root();
    let (mounted, mut busy, expires_at) = mounted_for_a_while(&sshd, root.path()).await;
    let mount_point = mounted.mount_point().to_owned();
    assert_eq!(mounted.gone().await, UnmountReason::Expired);
    let late = Env::system().now().since(expires_at);
    assert!(late < SOON, "{late:?}");
    assert!(busy.write_all(b"x").and_then(|()| busy.sync_all()).is_err());
    assert!(fs::write(mount_point.join("x"), "x").is_err());
    mounted.unmount().await;
    assert!(is_clean(root.path()));
}

#[tokio::test]
async fn a_killed_runtime_leaves_no_mount() {
    let Some(sshd) = SshdWithFolder::start() else { return };
    let root = root();
    let MountRequest { port, user, locator, host_key, private_key, .. } = sshd.mount_request();
    let arguments = [
        root.path().to_str().unwrap().to_owned(),
        port.to_string(),
        user,
        locator,
        host_key,
        private_key.expose().clone(),
    ];
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "mount::holder_process", "--nocapture"])
        .env(HOLDER, serde_json::to_string(&arguments).unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let mounted = lines.find_map(|line| line.unwrap().strip_prefix("mounted at ").map(PathBuf::from)).unwrap();
    assert!(is_mounted(&mounted));
    // A program works there.
    let busy = fs::File::create(mounted.join("busy")).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let took = until("an unmounted folder", || !is_mounted(&mounted));
    until("an empty root", || is_clean(root.path()));
    println!("kill -9 of the runtime to unmounted: {took:?}");
    assert!(took < SOON, "{took:?}");
    drop(busy);
}

#[tokio::test]
async fn a_killed_guard_leaves_no_mount_and_the_next_process_cleans_up() {
    let Some(sshd) = SshdWithFolder::start() else { return };
    let root = root();
    let mounted = mounted(&sshd, root.path()).await;
    let mount_point = mounted.mount_point().to_owned();
    let guard = i32::try_from(mounted.guard_pid().unwrap()).unwrap();
    kill_process(Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
    assert_eq!(mounted.gone().await, UnmountReason::Unguarded);
    until("an unmounted folder", || !is_mounted(&mount_point));
    assert!(fs::write(mount_point.join("x"), "x").is_err(), "it is still unwritable");
    assert_eq!(sweep(&[root.path().to_owned()]), Vec::<PathBuf>::new(), "this process still holds the mount point");
    drop(mounted);
    assert_eq!(sweep(&[root.path().to_owned()]), [mount_point]);
    assert!(is_clean(root.path()));
}

#[tokio::test]
async fn dropping_a_mount_unmounts_it() {
    let Some(sshd) = SshdWithFolder::start() else { return };
    let root = root();
    let mounted = mounted(&sshd, root.path()).await;
    let mount_point = mounted.mount_point().to_owned();
    drop(mounted);
    until("an unmounted folder", || !is_mounted(&mount_point) && is_clean(root.path()));
}

#[tokio::test]
async fn a_guard_that_exits_without_a_report_leaves_nothing_behind() {
    let root = root();
    let guard = GuardCommand { program: "/bin/sh".into(), args: ["-c", "read order"].map(Into::into).to_vec() };
    let (place, far) = (place(root.path()), Duration::from_secs(60));
    let key = make_key(&Env::system());
    let mounting = mute(1, &key.private, far);
    let mounted = mount(&guard, place, mounting).await;
    assert!(
        matches!(&mounted, Err(MountError::Guard(reason)) if reason == "it exited without a report"),
        "{mounted:?}"
    );
    assert!(is_clean(root.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_does_not_block_the_guard() {
    if SshdWithFolder::start().is_none() {
        return;
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let key = make_key(&Env::system());
    for (lease, called_off) in [(Duration::from_secs(60), true), (Duration::from_secs(5), false)] {
        let root = root();
        let place = place(root.path());
        let guard = guard();
        let mounting = tokio::spawn({
            let mounting = mute(port, &key.private, lease);
            async move { mount(&guard, place, mounting).await }
        });
        // Once it connects here, the guard is working.
        let (_connection, _) =
            tokio::time::timeout(4 * SOON, listener.accept()).await.expect("the guard connects").unwrap();
        let since = Instant::now();
        if called_off {
            mounting.abort();
            until("a clean root", || is_clean(root.path()));
        } else {
            let mounted = mounting.await.unwrap();
            let expected = "the lease expired before the folder was mounted";
            assert!(matches!(&mounted, Err(MountError::Guard(why)) if why == expected), "{mounted:?}");
            assert!(is_clean(root.path()));
        }
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    }
}

/// A mount request for a server that need not exist.
fn mute(port: u16, private_key: &Secret<String>, lease: Duration) -> MountRequest {
    MountRequest {
        host: "127.0.0.1".to_owned(),
        port,
        user: "lease".to_owned(),
        locator: "token".to_owned(),
        host_key: make_key(&Env::system()).public,
        private_key: private_key.clone(),
        access_mode: AccessMode::Rw,
        lasts: lease,
        options: Vec::new(),
        transport: MountTransport::Sshfs,
    }
}

#[tokio::test]
async fn stock_sshfs_works_through_a_tunnel() {
    let Some(sshd) = SshdWithFolder::start() else { return };
    let root = root();
    let port = sshd.port();
    let dial: TunnelDial = Arc::new(move || {
        Box::pin(async move {
            let far = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
            Ok(Box::new(far) as Box<dyn ByteStream>)
        })
    });
    let forward = PortForward::open(dial).await.unwrap();
    let mounting = MountRequest { port: forward.address().port(), ..sshd.mount_request() };
    let mounted = mount(&guard(), place(root.path()), mounting).await.unwrap();
    let mount_point = mounted.mount_point().to_owned();
    tokio::task::spawn_blocking(move || fs::write(mount_point.join("x"), "through").unwrap()).await.unwrap();
    assert_eq!(fs::read_to_string(sshd.file("x")).unwrap(), "through");
    mounted.unmount().await;
}
