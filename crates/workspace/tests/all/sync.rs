//! Sync mode: a copy of the folder where nothing can be mounted, kept the same as the host's.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use attache_protocol::wire::awcp::AccessMode;
use attache_workspace::{
    export::ExportTerms,
    mount::{LostChange, MountRequest, MountTransport, UnmountReason, sweep},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    attache_fs::server_of,
    ssh::{LeaseFixture, SshTestHost, TestMount, eventually, run, text_of, unauthenticated::CuttablePort},
};

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| format!("({error})"))
}

async fn copied(lease: &LeaseFixture) -> TestMount {
    lease.mount_as(MountTransport::Sync).await
}

/// Content that doesn't compress and has no repetitions.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 11_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_see_each_other_s_changes() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let there = lease.folder.clone();
    fs::create_dir_all(there.join("src/deep")).unwrap();
    fs::write(there.join("src/deep/file"), "given").unwrap();
    fs::write(there.join("tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(there.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(there.join("large"), noise(3 << 20)).unwrap();
    fs::write(there.join(".env"), "SECRET=1").unwrap();
    symlink("src/deep", there.join("link")).unwrap();
    let mounted = copied(&lease).await;
    let here = mounted.mount_point.clone();

    // The copy is complete before anybody works in it.
    assert_eq!(text(&here.join("link/file")), "given");
    assert_eq!(fs::read(here.join("large")).unwrap(), noise(3 << 20));
    assert_eq!(fs::metadata(here.join("tool")).unwrap().mode(), 0o100_755);
    let modified = |root: &Path| fs::metadata(root.join("tool")).unwrap().modified().unwrap();
    assert_eq!(modified(&here), modified(&there));
    assert!(!here.join(".env").exists(), "withheld files aren't copied");
    assert_eq!(fs::metadata(&here).unwrap().mode() & 0o777, 0o700);

    // What the agent does reaches the host.
    fs::write(here.join("new"), "from the agent").unwrap();
    fs::write(here.join("src/deep/file"), "edited").unwrap();
    fs::create_dir_all(here.join("made/inner")).unwrap();
    fs::write(here.join("made/inner/x"), "x").unwrap();
    fs::rename(here.join("large"), here.join("made/moved")).unwrap();
    fs::remove_file(here.join("link")).unwrap();
    symlink("../tool", here.join("made/link")).unwrap();
    fs::set_permissions(here.join("tool"), fs::Permissions::from_mode(0o700)).unwrap();
    eventually("everything is on the host", || {
        text(&there.join("new")) == "from the agent"
            && text(&there.join("src/deep/file")) == "edited"
            && text(&there.join("made/inner/x")) == "x"
            && fs::read(there.join("made/moved")).is_ok_and(|content| content == noise(3 << 20))
            && !there.join("large").exists()
            && fs::symlink_metadata(there.join("link")).is_err()
            && fs::read_link(there.join("made/link")).is_ok_and(|target| target == Path::new("../tool"))
            && fs::metadata(there.join("tool")).unwrap().mode() == 0o100_700
    })
    .await;
    assert_eq!(modified(&here), modified(&there));

    // What the host does reaches the copy.
    fs::write(there.join("new"), "from the host").unwrap();
    fs::rename(there.join("made"), there.join("renamed")).unwrap();
    fs::remove_dir_all(there.join("src")).unwrap();
    fs::write(there.join("renamed/inner/y"), "y").unwrap();
    eventually("everything is in the copy", || {
        text(&here.join("new")) == "from the host"
            && !here.join("made").exists()
            && !here.join("src").exists()
            && text(&here.join("renamed/inner/x")) == "x"
            && text(&here.join("renamed/inner/y")) == "y"
            && fs::metadata(here.join("renamed/moved")).is_ok_and(|found| found.len() == 3 << 20)
    })
    .await;

    // The last edit counts, even if it is made at the last moment.
    fs::write(here.join("last"), "at the end").unwrap();
    let ended = mounted.unmount().await;
    assert_eq!((ended.why, ended.lost), (UnmountReason::Asked, Vec::new()));
    assert_eq!(text(&there.join("last")), "at the end");
    assert!(!here.exists(), "nothing is left at the remote");
    let names: Vec<_> = fs::read_dir(&there).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("attache-sync")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_the_same_text_are_merged_or_both_are_kept() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let port = CuttablePort::to(host.port).await;
    let there = lease.folder.clone();
    let lines = |edit: &dyn Fn(usize) -> Option<String>| {
        (1..=9).map(|line| edit(line).unwrap_or_else(|| format!("line {line}")) + "\n").collect::<String>()
    };
    let first = |with: &'static str| move |line| (line == 1).then(|| with.to_owned());
    let last = |with: &'static str| move |line| (line == 9).then(|| with.to_owned());
    for name in ["merged.txt", "conflict.txt", "removed.txt"] {
        fs::write(there.join(name), lines(&|_| None)).unwrap();
    }
    let mounted = lease.mount_at(port.port, MountTransport::Sync).await;
    let here = mounted.mount_point.clone();
    // Neither side hears of the other for a moment.
    let pause = mounted.pause();
    fs::write(here.join("merged.txt"), lines(&first("by the agent"))).unwrap();
    fs::write(there.join("merged.txt"), lines(&last("by the host"))).unwrap();
    fs::write(here.join("conflict.txt"), lines(&first("by the agent"))).unwrap();
    fs::write(there.join("conflict.txt"), lines(&first("by the host"))).unwrap();
    fs::write(here.join("removed.txt"), "edited by the agent").unwrap();
    fs::remove_file(there.join("removed.txt")).unwrap();
    fs::write(here.join("kind"), "a file").unwrap();
    fs::create_dir(there.join("kind")).unwrap();
    fs::write(there.join("kind/inner"), "in a folder").unwrap();
    drop(pause);
    let both = |name: &'static str, expected: String| {
        let (here, there) = (here.join(name), there.join(name));
        async move {
            eventually(name, || text(&here) == expected && text(&there) == expected).await;
        }
    };
    let merged = lines(&|line| match line {
        1 => Some("by the agent".to_owned()),
        9 => Some("by the host".to_owned()),
        _ => None,
    });
    both("merged.txt", merged).await;
    both("conflict.txt", lines(&first("by the host"))).await;
    both("conflict.txt.remote-conflict", lines(&first("by the agent"))).await;
    both("removed.txt", "edited by the agent".to_owned()).await;
    both("kind/inner", "in a folder".to_owned()).await;
    both("kind.remote-conflict", "a file".to_owned()).await;
    let ended = mounted.unmount().await;
    let conflict = |path: &str| LostChange {
        path: path.to_owned(),
        reason: format!("changed on both sides; this version is in {path}.remote-conflict"),
    };
    assert_eq!(ended.lost, [conflict("conflict.txt"), conflict("kind")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_lease_gets_no_change_and_names_what_was_tried() {
    let host = SshTestHost::start().await;
    let lease = host.lend_on("loc", ExportTerms::new(AccessMode::Ro));
    fs::write(lease.folder.join("file"), "kept").unwrap();
    let request = MountRequest { access_mode: AccessMode::Ro, ..lease.mount_request(MountTransport::Sync) };
    let mounted = lease.mount_with(request).await;
    fs::write(mounted.mount_point.join("file"), "changed").unwrap();
    fs::write(mounted.mount_point.join("new"), "new").unwrap();
    fs::write(lease.folder.join("other"), "from the host").unwrap();
    eventually("the host's changes arrive", || text(&mounted.mount_point.join("other")) == "from the host").await;
    let ended = mounted.unmount().await;
    let refused =
        |path: &str| LostChange { path: path.to_owned(), reason: "the folder is shared read-only".to_owned() };
    assert_eq!(ended.lost, [refused("file"), refused("new")]);
    assert_eq!(text(&lease.folder.join("file")), "kept");
    assert!(!lease.folder.join("new").exists());
}

/// Also if only the host knows that it is read-only. What it refuses doesn't keep the rest from it.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_refuses_is_named() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let there = lease.folder.clone();
    git(&there, &["init", "--quiet"]);
    let mounted = copied(&lease).await;
    let here = mounted.mount_point.clone();
    fs::write(here.join(".git/config"), "[core]\n\tfsmonitor = /bin/evil\n").unwrap();
    fs::write(here.join(".env"), "withheld").unwrap();
    symlink("/etc/passwd", here.join("outside")).unwrap();
    fs::write(here.join("fine"), "fine").unwrap();
    eventually("the rest is there", || text(&there.join("fine")) == "fine").await;
    let ended = mounted.unmount().await;
    let paths: Vec<_> = ended.lost.iter().map(|lost| lost.path.as_str()).collect();
    assert_eq!(paths, [".env", ".git/config", "outside"]);
    assert!(!text(&there.join(".git/config")).contains("evil"));
    assert!(!there.join(".env").exists() && fs::symlink_metadata(there.join("outside")).is_err());
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=Ann", "-c", "user.email=ann@localhost"]).args(args);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = run(&mut git, b"");
    assert!(output.status.success(), "git {args:?}: {}", text_of(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A folder that is made again often has the inode number of the one before.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_the_host_makes_again_is_followed() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let mounted = copied(&lease).await;
    let (here, there) = (mounted.mount_point.clone(), lease.folder.clone());
    for round in 0..10 {
        let [first, second] = ["first", "second"].map(|name| format!("d/{name}{round}"));
        fs::create_dir(there.join("d")).unwrap();
        eventually("the folder is seen", || here.join("d").is_dir()).await;
        fs::remove_dir(there.join("d")).unwrap();
        fs::create_dir(there.join("d")).unwrap();
        fs::write(there.join(&first), "1").unwrap();
        eventually("a file in it is seen", || here.join(&first).exists()).await;
        fs::write(there.join(&second), "2").unwrap();
        eventually("and the next", || here.join(&second).exists()).await;
        fs::remove_dir_all(there.join("d")).unwrap();
        eventually("and the end", || !here.join("d").exists()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_git_works_in_the_copy() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let there = lease.folder.clone();
    git(&there, &["init", "--quiet", "--initial-branch=main"]);
    fs::write(there.join("file"), "host\n").unwrap();
    git(&there, &["add", "."]);
    git(&there, &["commit", "--quiet", "-m", "first"]);
    let mounted = copied(&lease).await;
    let here = mounted.mount_point.clone();
    assert_eq!(git(&here, &["status", "--porcelain"]), "");
    git(&here, &["switch", "--quiet", "-c", "work"]);
    for number in 0..5 {
        fs::write(here.join("file"), format!("remote {number}\n")).unwrap();
        git(&here, &["commit", "--quiet", "-a", "-m", &format!("edit {number}")]);
    }
    git(&here, &["switch", "--quiet", "main"]);
    git(&here, &["merge", "--quiet", "--no-ff", "-m", "merged", "work"]);
    git(&here, &["tag", "done"]);
    git(&here, &["pack-refs", "--all"]);
    let (log, status) = (git(&here, &["log", "--oneline", "--graph", "--all"]), git(&here, &["status", "--porcelain"]));
    let ended = mounted.unmount().await;
    assert_eq!(ended.lost, []);
    assert_eq!(git(&there, &["log", "--oneline", "--graph", "--all"]), log);
    assert_eq!(git(&there, &["status", "--porcelain"]), status);
    assert_eq!(text(&there.join("file")), "remote 4\n");
    git(&there, &["fsck", "--strict"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_client_leaves_no_copy_and_what_was_sent_stays() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let mounted = copied(&lease).await;
    let here = mounted.mount_point.clone();
    fs::create_dir(here.join("d")).unwrap();
    fs::write(here.join("d/kept"), "kept").unwrap();
    eventually("it is sent", || text(&lease.folder.join("d/kept")) == "kept").await;
    kill_process(server_of(mounted.guard_pid()), Signal::KILL).unwrap();
    let is_empty = || fs::read_dir(&here).is_ok_and(|mut entries| entries.next().is_none());
    // Also what got there in between is gone.
    eventually("the copy is gone for good", || fs::write(here.join("lost"), "x").is_err() && is_empty()).await;
    let ended = mounted.gone().await;
    assert_eq!(ended.why, UnmountReason::Died);
    assert!(!here.exists());
    assert_eq!(text(&lease.folder.join("d/kept")), "kept");
}

/// What it hadn't sent is gone with the copy, so nobody may believe that the host has everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_killed_while_it_sends_the_rest_is_no_clean_end() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let mounted = copied(&lease).await;
    let server = server_of(mounted.guard_pid());
    kill_process(server, Signal::STOP).unwrap();
    fs::write(mounted.mount_point.join("work"), "of an hour").unwrap();
    let ended = tokio::spawn(mounted.unmount());
    tokio::time::sleep(Duration::from_millis(500)).await;
    kill_process(server, Signal::KILL).unwrap();
    let ended = ended.await.unwrap();
    assert_eq!(ended.why, UnmountReason::Died);
    let reason = "the process that sends changes was ended, so it isn't known what is missing".to_owned();
    assert_eq!(ended.lost, [LostChange { path: ".".to_owned(), reason }]);
    assert!(!lease.folder.join("work").exists());
}

/// The end waits as long as anything moves, and what is small doesn't wait for what is large.
#[tokio::test(flavor = "multi_thread")]
async fn what_takes_longer_than_the_usual_end_is_sent() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let port = CountingPort::slow(host.port, Duration::from_millis(80)).await;
    let mounted = lease.mount_at(port.port, MountTransport::Sync).await;
    let here = mounted.mount_point.clone();
    let large = noise(20 << 20);
    let pause = mounted.pause();
    fs::write(here.join("a-large"), &large).unwrap();
    fs::write(here.join("z-small"), "small").unwrap();
    drop(pause);
    let since = Instant::now();
    let ended = tokio::spawn(mounted.unmount());
    eventually("the small one is there", || text(&lease.folder.join("z-small")) == "small").await;
    assert!(!lease.folder.join("a-large").exists());
    let ended = ended.await.unwrap();
    assert_eq!((ended.why, ended.lost), (UnmountReason::Asked, Vec::new()));
    assert!(since.elapsed() > Duration::from_secs(21), "{:?} is too fast to show anything", since.elapsed());
    assert!(fs::read(lease.folder.join("a-large")).unwrap() == large);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_guard_leaves_no_copy() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    fs::write(lease.folder.join("file"), "text").unwrap();
    let mounted = copied(&lease).await;
    let here = mounted.mount_point.clone();
    fs::write(here.join("last"), "flushed").unwrap();
    let guard = Pid::from_raw(i32::try_from(mounted.guard_pid()).unwrap()).unwrap();
    kill_process(guard, Signal::KILL).unwrap();
    eventually("the copy is gone", || fs::read_dir(&here).is_ok_and(|mut entries| entries.next().is_none())).await;
    assert_eq!(text(&lease.folder.join("last")), "flushed");
    let root = here.parent().unwrap().parent().unwrap().to_owned();
    mounted.gone().await;
    sweep(&[root]);
    assert!(!here.exists());
}

/// If everybody was killed at once, the next start removes the copy.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_left_behind_is_swept() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    fs::create_dir(lease.folder.join("d")).unwrap();
    fs::write(lease.folder.join("d/file"), "text").unwrap();
    let mounted = copied(&lease).await;
    let (here, guard) = (mounted.mount_point.clone(), mounted.guard_pid());
    let server = server_of(guard);
    kill_process(server, Signal::STOP).unwrap();
    kill_process(Pid::from_raw(i32::try_from(guard).unwrap()).unwrap(), Signal::KILL).unwrap();
    kill_process(server, Signal::KILL).unwrap();
    let root = here.parent().unwrap().parent().unwrap().to_owned();
    mounted.gone().await;
    eventually("it is removed", || {
        sweep(std::slice::from_ref(&root));
        !here.exists()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_removes_the_copy() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    fs::write(lease.folder.join("file"), "confidential").unwrap();
    let mounted = copied(&lease).await;
    let here = mounted.mount_point.clone();
    lease.admission.revoke();
    eventually("the copy is gone", || !here.join("file").exists()).await;
    let ended = mounted.gone().await;
    assert_eq!(ended.why, UnmountReason::Died);
    assert!(!here.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_loses_nothing() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let port = CuttablePort::to(host.port).await;
    let mounted = lease.mount_at(port.port, MountTransport::Sync).await;
    let here = mounted.mount_point.clone();
    for round in 0..3 {
        port.cut();
        fs::write(here.join(format!("ours-{round}")), noise(400_000)).unwrap();
        fs::write(lease.folder.join(format!("theirs-{round}")), noise(300_000)).unwrap();
        port.cut();
        eventually("both have both", || {
            let length = |root: &Path, name: &str| {
                fs::metadata(root.join(format!("{name}-{round}"))).map_or(0, |found| found.len())
            };
            length(&lease.folder, "ours") == 400_000 && length(&here, "theirs") == 300_000
        })
        .await;
    }
    let ended = mounted.unmount().await;
    assert_eq!(ended.lost, []);
    assert!(ended.outages >= 1, "{ended:?}");
    let names: Vec<_> = fs::read_dir(&lease.folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 6, "{names:?}");
}

/// The agent swaps a folder for a link to somewhere else, while the host changes what was in it.
#[tokio::test(flavor = "multi_thread")]
async fn no_link_leads_out_of_the_copy() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    fs::write(outside.path().join("secret"), "of the remote").unwrap();
    fs::create_dir(lease.folder.join("d")).unwrap();
    fs::write(lease.folder.join("d/file"), "inside").unwrap();
    let mounted = copied(&lease).await;
    let here = mounted.mount_point.clone();
    let pause = mounted.pause();
    fs::rename(here.join("d"), here.join("moved")).unwrap();
    symlink(outside.path(), here.join("d")).unwrap();
    fs::write(lease.folder.join("d/file"), "by the host").unwrap();
    fs::write(lease.folder.join("d/new"), "by the host").unwrap();
    drop(pause);
    eventually("the moved folder is there", || text(&lease.folder.join("moved/file")) == "inside").await;
    eventually("the host's folder stays", || text(&here.join("d/new")) == "by the host").await;
    mounted.unmount().await;
    assert_eq!(text(&outside.path().join("file")), "outside");
    assert!(!outside.path().join("new").exists());
    assert!(!lease.folder.join("d/secret").exists() && !lease.folder.join("d.remote-conflict/secret").exists());
    assert_eq!(text(&lease.folder.join("d/file")), "by the host");
}

/// Passes connections on, and counts their bytes.
struct CountingPort {
    port: u16,
    bytes: Arc<AtomicU64>,
}

impl CountingPort {
    async fn to(port: u16) -> Self {
        Self::slow(port, Duration::ZERO).await
    }

    /// Waits so long after each piece of at most 64 KiB.
    async fn slow(port: u16, pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().port();
        let bytes = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&bytes);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(pass_on(near_in, far_out, Arc::clone(&counter), pause));
                tokio::spawn(pass_on(far_in, near_out, Arc::clone(&counter), pause));
            }
        });
        Self { port: here, bytes }
    }

    fn take(&self) -> u64 {
        self.bytes.swap(0, Ordering::SeqCst)
    }
}

async fn pass_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    bytes: Arc<AtomicU64>,
    pause: Duration,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        bytes.fetch_add(length as u64, Ordering::SeqCst);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Only the chunks around an edit go over the wire, in either direction. Keep-alives and events count as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_edit_of_a_large_file_is_small_on_the_wire() {
    const MOST: u64 = 64 << 10;
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let there = lease.folder.join("large");
    let mut content = noise(1 << 20);
    fs::write(&there, &content).unwrap();
    let port = CountingPort::to(host.port).await;
    let mounted = lease.mount_at(port.port, MountTransport::Sync).await;
    let here = mounted.mount_point.join("large");
    assert!(port.take() > 1 << 20);

    // As editors do: nobody sees half of it.
    let save = |root: &Path, content: &[u8]| {
        let saved = tempfile::NamedTempFile::new_in(root.parent().unwrap()).unwrap();
        fs::write(saved.path(), content).unwrap();
        fs::rename(saved.path(), root.join("large")).unwrap();
    };
    content.splice(400_000..400_100, *b"inserted by the agent");
    save(&mounted.mount_point, &content);
    eventually("the host has the edit", || fs::read(&there).is_ok_and(|found| found == content)).await;
    let sent = port.take();
    content.splice(700_000..700_001, *b"inserted by the host");
    save(&lease.folder, &content);
    eventually("the copy has the edit", || fs::read(&here).is_ok_and(|found| found == content)).await;
    let received = port.take();
    println!("a small edit of a file of 1 MB: {sent} bytes to the host, {received} from it");
    assert!(sent < MOST && received < MOST, "{sent} and {received}");

    // A file that only moved isn't sent again.
    fs::rename(&here, mounted.mount_point.join("moved")).unwrap();
    eventually("it has moved", || fs::read(lease.folder.join("moved")).is_ok_and(|found| found == content)).await;
    let moved = port.take();
    assert!(moved < MOST, "{moved}");
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_with_many_files_and_any_names_is_copied() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    for folder in 0..20 {
        let folder = lease.folder.join(format!("folder {folder}"));
        fs::create_dir(&folder).unwrap();
        (0..50).for_each(|file| fs::write(folder.join(format!("file \u{fc} {file}")), format!("{file}")).unwrap());
    }
    let mounted = copied(&lease).await;
    let count = |root: &Path| {
        let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        folders.map(|folder| fs::read_dir(folder).unwrap().count()).sum::<usize>()
    };
    assert_eq!(count(&mounted.mount_point), 1000);
    for folder in 0..20 {
        fs::remove_dir_all(mounted.mount_point.join(format!("folder {folder}"))).unwrap();
    }
    fs::create_dir(mounted.mount_point.join("new")).unwrap();
    (0..500).for_each(|file| fs::write(mounted.mount_point.join(format!("new/{file}")), "x").unwrap());
    let ended = mounted.unmount().await;
    assert_eq!(ended.lost, []);
    assert_eq!((count(&lease.folder), fs::read_dir(&lease.folder).unwrap().count()), (500, 1));
}
