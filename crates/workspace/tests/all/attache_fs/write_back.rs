//! Changes that are acknowledged before the host has them: when they return, in which order they arrive, and what becomes of
//! them when the link breaks, the host refuses, the lease ends or the file system is killed.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use attache_protocol::wire::awcp::AccessMode;
use attache_workspace::{
    export::{ExportTerms, LeaseQuota},
    mount::{LostChange, UnmountReason},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use rustix::process::{Signal, kill_process};

use super::{cannot_mount, kills::server_of};
use crate::ssh::{LeaseFixture, SshTestHost, TestMount, eventually};

/// A port in front of the host. While it holds, nothing from the client gets through. It can also be cut.
struct HoldingPort {
    port: u16,
    holds: watch::Sender<bool>,
    now: Arc<std::sync::Mutex<CancellationToken>>,
    _stop: DropGuard,
}

impl HoldingPort {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (holds, held) = watch::channel(false);
        let stop = CancellationToken::new();
        let now = Arc::new(std::sync::Mutex::new(CancellationToken::new()));
        let current = Arc::clone(&now);
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let cut = current.lock().unwrap().clone();
                let held = held.clone();
                tokio::spawn(cut.run_until_cancelled_owned(async move {
                    let ((mut from, mut back), (mut answers, mut to)) = (near.into_split(), far.into_split());
                    let requests = async {
                        let (mut held, mut buffer) = (held, vec![0; 64 << 10]);
                        while let Ok(read @ 1..) = from.read(&mut buffer).await {
                            let _ = held.wait_for(|holds| !holds).await;
                            if to.write_all(&buffer[..read]).await.is_err() {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        () = requests => {}
                        _ = tokio::io::copy(&mut answers, &mut back) => {}
                    }
                }));
            }
        }));
        Self { port: own, holds, now, _stop: stop.drop_guard() }
    }

    fn hold(&self, holds: bool) {
        self.holds.send_replace(holds);
    }

    /// Closes the open connections with all that they hold.
    fn cut(&self) {
        std::mem::take(&mut *self.now.lock().unwrap()).cancel();
    }
}

struct HeldLease {
    mount: TestMount,
    port: HoldingPort,
    lease: LeaseFixture,
    _host: SshTestHost,
}

async fn held_lease(terms: ExportTerms, prepare: impl FnOnce(&Path)) -> HeldLease {
    let host = SshTestHost::start().await;
    let lease = host.lend_on("loc", terms);
    prepare(&lease.folder);
    let port = HoldingPort::to(host.port).await;
    let mount = lease.mount_write_back(port.port).await;
    // So that the tree is there: from now on, it is known without asking.
    fs::read_dir(&mount.mount_point).unwrap().for_each(drop);
    mount.flush().unwrap();
    HeldLease { mount, port, lease, _host: host }
}

fn rw() -> ExportTerms {
    ExportTerms::new(AccessMode::Rw)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// `git status` takes this lock each time.
#[tokio::test(flavor = "multi_thread")]
async fn git_lets_go_of_its_lock_without_waiting() {
    if cannot_mount() {
        return;
    }
    let held = held_lease(rw(), |folder| fs::create_dir(folder.join(".git")).unwrap()).await;
    let (here, there) = (held.mount.mount_point.join(".git"), held.lease.folder.join(".git"));
    File::create_new(here.join("index.lock")).unwrap();
    assert_eq!(names(&there), ["index.lock"]);
    held.port.hold(true);
    fs::remove_file(here.join("index.lock")).unwrap();
    assert_eq!(names(&there), ["index.lock"]);
    held.port.hold(false);
    // The host decides about the next one.
    File::create_new(here.join("index.lock")).unwrap();
    assert_eq!(names(&there), ["index.lock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_return_before_the_host_has_them_and_arrive_in_order() {
    if cannot_mount() {
        return;
    }
    let held = held_lease(rw(), |folder| {
        fs::write(folder.join("old"), "old").unwrap();
        fs::write(folder.join("removed"), "").unwrap();
        fs::write(folder.join("longer"), "long content").unwrap();
    })
    .await;
    let (here, there) = (held.mount.mount_point.clone(), held.lease.folder.clone());
    for name in ["old", "removed", "longer"] {
        fs::metadata(here.join(name)).unwrap();
    }
    let before = names(&there);
    held.port.hold(true);
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let at = here.clone();
    let work = tokio::task::spawn_blocking(move || {
        // An atomic save, over a file that exists.
        fs::write(at.join(".old.tmp"), "saved").unwrap();
        fs::rename(at.join(".old.tmp"), at.join("old")).unwrap();
        fs::create_dir(at.join("folder")).unwrap();
        fs::write(at.join("folder/inner"), "inner").unwrap();
        symlink("old", at.join("folder/link")).unwrap();
        fs::remove_file(at.join("removed")).unwrap();
        fs::set_permissions(at.join("longer"), fs::Permissions::from_mode(0o600)).unwrap();
        let longer = OpenOptions::new().write(true).open(at.join("longer")).unwrap();
        longer.set_len(4).unwrap();
        longer.set_modified(long_ago).unwrap();
        drop(longer);
        fs::create_dir(at.join("gone")).unwrap();
        fs::remove_dir(at.join("gone")).unwrap();
        // What was done is seen at once, also what the host doesn't have yet.
        assert!(!at.join("removed").exists() && !at.join("gone").exists() && !at.join(".old.tmp").exists());
        assert_eq!(fs::read_link(at.join("folder/link")).unwrap(), Path::new("old"));
    });
    work.await.unwrap();
    assert_eq!(names(&there), before, "the host has nothing of it yet");
    held.port.hold(false);
    // A look at a folder with changes under way waits for them.
    assert_eq!(names(&here), ["folder", "longer", "old"]);
    assert_eq!(names(&here.join("folder")), ["inner", "link"]);
    held.mount.flush().unwrap();
    let text = |path: &str| fs::read_to_string(there.join(path)).unwrap();
    assert_eq!(names(&there), ["folder", "longer", "old"]);
    assert_eq!([text("old"), text("folder/inner"), text("longer")], ["saved", "inner", "long"]);
    assert_eq!(fs::read_link(there.join("folder/link")).unwrap(), Path::new("old"));
    let longer = fs::metadata(there.join("longer")).unwrap();
    assert_eq!((longer.mode() & 0o777, longer.modified().unwrap()), (0o600, long_ago));
    // And the remote shows what the host has: numbers and times, too.
    let facts = |path: &Path| {
        let found = fs::symlink_metadata(path).unwrap();
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        (found.ino(), found.len(), found.mode(), times)
    };
    for name in ["old", "longer", "folder", "folder/inner", "folder/link"] {
        assert_eq!(facts(&here.join(name)), facts(&there.join(name)), "{name}");
    }
    assert_eq!(held.mount.unmount().await.lost, []);
}

/// The answer to what is under way says the same as the report about it, but the kernel has what was there before.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_writes_while_a_change_is_under_way_is_seen() {
    if cannot_mount() {
        return;
    }
    const SIZE: usize = 40_000;
    let held = held_lease(rw(), |folder| {
        for name in ["mode", "name", "time", "writes"] {
            fs::write(folder.join(name), [b'a'; SIZE]).unwrap();
        }
    })
    .await;
    let (here, there) = (&held.mount.mount_point, &held.lease.folder);
    for (what, now) in [("mode", "mode"), ("name", "moved"), ("time", "time"), ("writes", "writes")] {
        assert_eq!(fs::read(here.join(what)).unwrap(), [b'a'; SIZE]);
        let open = |root: &Path| OpenOptions::new().write(true).open(root.join(what)).unwrap();
        let (ours, theirs) = (open(here), open(there));
        held.mount.flush().unwrap();
        held.port.hold(true);
        match what {
            "mode" => fs::set_permissions(here.join(what), fs::Permissions::from_mode(0o600)).unwrap(),
            "name" => fs::rename(here.join(what), here.join(now)).unwrap(),
            "time" => ours.set_modified(SystemTime::UNIX_EPOCH).unwrap(),
            _ => (0..3).for_each(|at| ours.write_all_at(b"ours", at * 4).unwrap()),
        }
        theirs.write_all_at(b"theirs", 30_000).unwrap();
        held.port.hold(false);
        held.mount.flush().unwrap();
        let is_same = || fs::read(here.join(now)).unwrap() == fs::read(there.join(now)).unwrap();
        eventually(&format!("{what}: what the host wrote is seen"), is_same).await;
    }
    assert_eq!(held.mount.unmount().await.lost, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_creation_is_the_hosts_decision() {
    if cannot_mount() {
        return;
    }
    let held = held_lease(rw(), |_| {}).await;
    let (here, there) = (&held.mount.mount_point, &held.lease.folder);
    // Before the remote can know of it.
    let create = |at: &Path| OpenOptions::new().write(true).create_new(true).open(at.join("lock")).map(drop);
    assert!(!here.join("lock").exists());
    create(there).unwrap();
    assert_eq!(create(here).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_loses_nothing_and_does_nothing_twice() {
    if cannot_mount() {
        return;
    }
    let held = held_lease(rw(), |folder| fs::write(folder.join("log"), "").unwrap()).await;
    let (here, there) = (held.mount.mount_point.clone(), held.lease.folder.clone());
    let mut log = OpenOptions::new().append(true).open(here.join("log")).unwrap();
    let mut removed = File::create(here.join("removed")).unwrap();
    let mut expected = String::new();
    for round in 0..5 {
        // A part of it reaches the host, and the answers are lost as well.
        held.port.hold(round % 2 == 0);
        for number in 0..20 {
            let line = format!("{round} {number}\n");
            log.write_all(line.as_bytes()).unwrap();
            expected += &line;
            fs::write(here.join(format!("file {round} {number}")), &line).unwrap();
        }
        held.port.cut();
        held.port.hold(false);
        eventually("it is connected again", || held.mount.flush().is_ok()).await;
        // The folder is known again, too.
        names(&here);
    }
    // A file that was open all the time, and has no name any more.
    fs::remove_file(here.join("removed")).unwrap();
    held.port.cut();
    eventually("it is connected again", || held.mount.flush().is_ok()).await;
    removed.write_all(b"still open").unwrap();
    removed.sync_all().unwrap();
    held.mount.flush().unwrap();
    assert_eq!(fs::read_to_string(there.join("log")).unwrap(), expected);
    assert_eq!(names(&there).len(), 101);
    for round in 0..5 {
        for number in 0..20 {
            let text = fs::read_to_string(there.join(format!("file {round} {number}"))).unwrap();
            assert_eq!(text, format!("{round} {number}\n"));
        }
    }
    drop((log, removed));
    assert_eq!(held.mount.unmount().await.lost, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_mount_waits_for_the_host() {
    if cannot_mount() {
        return;
    }
    let held = held_lease(rw(), |_| {}).await;
    let here = held.mount.mount_point.clone();
    held.port.hold(true);
    for number in 0..50 {
        fs::write(here.join(number.to_string()), number.to_string()).unwrap();
    }
    assert_eq!(names(&held.lease.folder), [""; 0]);
    let ending = tokio::spawn(held.mount.unmount());
    eventually("it is unmounted", || fs::read_dir(&here).is_ok_and(|entries| entries.count() == 0)).await;
    held.port.hold(false);
    let ended = ending.await.unwrap();
    assert_eq!((ended.why, ended.lost), (UnmountReason::Asked, vec![]));
    assert_eq!(names(&held.lease.folder).len(), 50);
    assert_eq!(fs::read_to_string(held.lease.folder.join("49")).unwrap(), "49");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_end_of_the_lease_cuts_off_is_named() {
    if cannot_mount() {
        return;
    }
    let held = held_lease(rw(), |_| {}).await;
    let here = held.mount.mount_point.clone();
    held.port.hold(true);
    fs::write(here.join("lost"), "lost").unwrap();
    fs::create_dir(here.join("folder")).unwrap();
    held.lease.admission.revoke();
    held.port.hold(false);
    eventually("the remote notices", || fs::write(here.join("late"), "late").is_err()).await;
    let ended = held.mount.unmount().await;
    let named: Vec<&str> = ended.lost.iter().map(|lost| &*lost.path).collect();
    assert!(named.contains(&"lost") && named.contains(&"folder"), "{named:?}");
    assert_eq!(names(&held.lease.folder), [""; 0]);
}

/// A limit that is exceeded later is told at the next `fsync`, and named. From then on, the host is asked first.
#[tokio::test(flavor = "multi_thread")]
async fn late_refusals_are_told_and_named() {
    if cannot_mount() {
        return;
    }
    let quota = LeaseQuota { bytes: Some(100_000), files: Some(3), ..LeaseQuota::UNLIMITED };
    let held = held_lease(ExportTerms { quota, ..rw() }, |_| {}).await;
    let here = held.mount.mount_point.clone();
    let errno = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    let over_limit = rustix::io::Errno::DQUOT.raw_os_error();
    held.port.hold(true);
    for name in ["a", "b", "c"] {
        fs::write(here.join(name), name).unwrap();
    }
    let mut refused = File::create(here.join("refused")).unwrap();
    refused.write_all(b"x").unwrap();
    held.port.hold(false);
    assert_eq!(errno(refused.sync_all()), Some(over_limit));
    drop(refused);
    // Nothing shows what isn't there.
    eventually("it isn't shown", || !here.join("refused").exists()).await;
    assert_eq!(errno(fs::create_dir(here.join("d"))), Some(over_limit));
    // A withheld name was never acknowledged.
    assert!(fs::write(here.join(".env"), "mine").is_err());
    let ended = held.mount.unmount().await;
    let reason = std::io::Error::from_raw_os_error(over_limit).to_string();
    assert_eq!(ended.lost, [LostChange { path: "refused".to_owned(), reason }]);
    assert_eq!(names(&held.lease.folder), ["a", "b", "c"]);
}

/// A program that saves a file writes a new one and moves it over the old one. If the host has refused a part of the new one,
/// which the program doesn't know yet, the old one stays.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_refused_in_part_replaces_nothing() {
    if cannot_mount() {
        return;
    }
    let quota = LeaseQuota { file_bytes: Some(1000), ..LeaseQuota::UNLIMITED };
    let prepare = |folder: &Path| fs::write(folder.join("file"), "old").unwrap();
    let held = held_lease(ExportTerms { quota, ..rw() }, prepare).await;
    let here = held.mount.mount_point.clone();
    assert_eq!(fs::read_to_string(here.join("file")).unwrap(), "old");
    held.port.hold(true);
    let mut new = File::create(here.join("file.new")).unwrap();
    new.write_all(&[1; 900]).unwrap();
    new.write_all(&[2; 900]).unwrap();
    fs::rename(here.join("file.new"), here.join("file")).unwrap();
    held.port.hold(false);
    drop(new);
    eventually("the old file is shown again", || fs::read_to_string(here.join("file")).is_ok_and(|text| text == "old"))
        .await;
    let ended = held.mount.unmount().await;
    assert!(ended.lost.iter().any(|lost| lost.path == "file"), "{:?}", ended.lost);
    assert_eq!(fs::read_to_string(held.lease.folder.join("file")).unwrap(), "old");
}

/// The guard sends what the killed process had acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_file_system_loses_nothing_that_was_acknowledged() {
    if cannot_mount() {
        return;
    }
    let held = held_lease(rw(), |folder| fs::write(folder.join("log"), "").unwrap()).await;
    let (here, there) = (held.mount.mount_point.clone(), held.lease.folder.clone());
    let mut log = OpenOptions::new().append(true).open(here.join("log")).unwrap();
    log.write_all(b"first\n").unwrap();
    log.sync_all().unwrap();
    held.port.hold(true);
    log.write_all(b"second\n").unwrap();
    for number in 0..30 {
        fs::write(here.join("tmp"), number.to_string()).unwrap();
        fs::rename(here.join("tmp"), here.join(number.to_string())).unwrap();
    }
    kill_process(server_of(held.mount.guard_pid()), Signal::KILL).unwrap();
    // What was under way is gone as well.
    held.port.cut();
    held.port.hold(false);
    let ended = held.mount.gone().await;
    assert_eq!((ended.why, ended.lost), (UnmountReason::Died, vec![]));
    assert_eq!(fs::read_to_string(there.join("log")).unwrap(), "first\nsecond\n");
    assert_eq!(names(&there).len(), 31);
    for number in 0..30 {
        assert_eq!(fs::read_to_string(there.join(number.to_string())).unwrap(), number.to_string());
    }
}

/// If the host doesn't take it any more, what is missing is named.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_file_system_could_not_send_is_named() {
    if cannot_mount() {
        return;
    }
    let held = held_lease(rw(), |_| {}).await;
    held.port.hold(true);
    fs::write(held.mount.mount_point.join("lost"), "lost").unwrap();
    held.lease.admission.revoke();
    kill_process(server_of(held.mount.guard_pid()), Signal::KILL).unwrap();
    held.port.cut();
    held.port.hold(false);
    let ended = held.mount.gone().await;
    let named: Vec<&str> = ended.lost.iter().map(|lost| &*lost.path).collect();
    assert_eq!((ended.why, named), (UnmountReason::Died, vec!["lost"]));
}

/// Edits of the host during changes of the remote are seen afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn edits_of_the_host_are_not_overlooked() {
    if cannot_mount() {
        return;
    }
    let held = held_lease(rw(), |folder| {
        fs::write(folder.join("shared"), "before").unwrap();
        fs::write(folder.join("other"), "before").unwrap();
    })
    .await;
    let (here, there) = (&held.mount.mount_point, &held.lease.folder);
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    assert_eq!(text(&here.join("shared")) + &text(&here.join("other")), "beforebefore");
    for round in 0..20 {
        held.port.hold(round % 2 == 0);
        let (ours, theirs) = (format!("remote {round}"), format!("host, in round {round}"));
        fs::write(here.join("shared"), &ours).unwrap();
        fs::write(here.join(format!("new {round}")), &ours).unwrap();
        fs::write(there.join("other"), &theirs).unwrap();
        held.port.hold(false);
        held.mount.flush().unwrap();
        // After the flush, the host has the last word.
        fs::write(there.join(format!("new {round}")), &theirs).unwrap();
        fs::write(there.join("shared"), &theirs).unwrap();
        for name in ["other", "shared", &format!("new {round}")] {
            eventually(name, || text(&here.join(name)) == theirs).await;
        }
    }
    assert_eq!(names(here), names(there));
}
