//! Locks of programs, reserved space and extended attributes in a mounted lease.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use attache_protocol::wire::awcp::AccessMode;
use attache_workspace::export::{ExportTerms, LeaseQuota};
use rustix::{
    fs::{FallocateFlags, XattrFlags, fallocate, getxattr, listxattr, setxattr},
    io::Errno,
};

use super::{MountedLease, cannot_mount};
use crate::ssh::{SshTestHost, eventually};

/// Locks a file and says so. Holds the lock until its input ends.
const LOCKER: &str = "import fcntl, sys
file = open(sys.argv[1], 'r+')
eval(sys.argv[2])
print('locked', flush=True)
sys.stdin.read()
";
/// Adds one to the number in a file, again and again, always under a lock.
const COUNTER: &str = "import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for _ in range(40):
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 1000)
    number = int(os.pread(file, 100, 0)) + 1
    os.pwrite(file, b'%08d' % number, 0)
    fcntl.lockf(file, fcntl.LOCK_UN, 1, 1000)
";
/// Locks every other byte until it is refused, unlocks half of them, and locks once more.
const HOARDER: &str = "import fcntl, os, sys
file = open(sys.argv[1], 'r+')
count = 0
try:
    while count < 5000:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * count)
        count += 1
except OSError as error:
    print(count, os.strerror(error.errno))
fcntl.lockf(file, fcntl.LOCK_UN, count, 0)
fcntl.lockf(file, fcntl.LOCK_EX, 1, 20000)
print('locked')
";

/// Ten bytes, as SQLite locks them, and the whole file, as cargo does.
const CALLS: [&str; 2] = ["fcntl.lockf(file, fcntl.KIND, 10, 100)", "fcntl.flock(file, fcntl.KIND)"];

/// A program that holds a lock, or waits for one.
struct Locker {
    child: Child,
    said: PathBuf,
    _dir: tempfile::TempDir,
}

fn python(script: &str, file: &Path) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(file);
    python
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: this machine has no python3");
    }
    found
}

impl Locker {
    fn start(call: &str, kind: &str, file: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let said = dir.path().join("said");
        let mut python = python(LOCKER, file);
        python.arg(call.replace("KIND", kind)).stdin(Stdio::piped());
        python.stdout(File::create(&said).unwrap()).stderr(Stdio::null());
        Self { child: python.spawn().unwrap(), said, _dir: dir }
    }

    fn has_lock(&self) -> bool {
        fs::read_to_string(&self.said).unwrap() == "locked\n"
    }

    fn let_go(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a program that doesn't wait is refused.
fn is_refused(call: &str, kind: &str, file: &Path) -> bool {
    let mut locker = Locker::start(call, &format!("{kind}|fcntl.LOCK_NB"), file);
    drop(locker.child.stdin.take());
    !locker.child.wait().unwrap().success()
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_hold_on_both_sides() {
    if cannot_mount() || !has_python() {
        return;
    }
    let mounted = MountedLease::prepared(|folder| fs::write(folder.join("file"), "content").unwrap()).await;
    let (here, there) = (mounted.mount.mount_point.join("file"), mounted.lease.folder.join("file"));
    for call in CALLS {
        for (first, second) in [(&here, &there), (&there, &here), (&here, &here)] {
            let holder = Locker::start(call, "LOCK_EX", first);
            eventually("it is locked", || holder.has_lock()).await;
            let mut killed = Locker::start(call, "LOCK_EX", second);
            let waiting = Locker::start(call, "LOCK_SH", second);
            assert!(is_refused(call, "LOCK_EX", second) && is_refused(call, "LOCK_SH", second));
            // Whoever waits can be killed.
            killed.child.kill().unwrap();
            killed.child.wait().unwrap();
            assert!(!killed.has_lock() && !waiting.has_lock());
            holder.let_go();
            eventually("the next one gets it", || waiting.has_lock()).await;
            // Shared locks only keep out exclusive ones.
            assert!(!is_refused(call, "LOCK_SH", first) && is_refused(call, "LOCK_EX", first));
            waiting.let_go();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_the_lock_sees_what_was_written_before() {
    if cannot_mount() || !has_python() {
        return;
    }
    let mounted = MountedLease::prepared(|folder| fs::write(folder.join("number"), "00000000").unwrap()).await;
    let (here, there) = (mounted.mount.mount_point.join("number"), mounted.lease.folder.join("number"));
    let counters: Vec<Child> =
        [&here, &there, &here, &there].iter().map(|file| python(COUNTER, file).spawn().unwrap()).collect();
    for mut counter in counters {
        assert!(counter.wait().unwrap().success());
    }
    mounted.mount.flush().unwrap();
    assert_eq!(fs::read_to_string(&there).unwrap(), "00000160");
    assert_eq!(fs::read_to_string(&here).unwrap(), "00000160");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_files_of_one_program_lock_each_other_out() {
    if cannot_mount() {
        return;
    }
    let mounted = MountedLease::start().await;
    let path = mounted.mount.mount_point.join("file");
    let (one, other) = (File::create(&path).unwrap(), File::open(&path).unwrap());
    one.lock().unwrap();
    assert!(matches!(other.try_lock(), Err(fs::TryLockError::WouldBlock)));
    one.unlock().unwrap();
    other.try_lock().unwrap();
    assert!(matches!(one.try_lock_shared(), Err(fs::TryLockError::WouldBlock)));
    // The kernel unlocks a closed file a moment later.
    drop(other);
    one.lock_shared().unwrap();
}

/// Every range takes memory of the host's kernel.
#[tokio::test(flavor = "multi_thread")]
async fn locked_ranges_are_limited() {
    if cannot_mount() || !has_python() {
        return;
    }
    let mounted = MountedLease::prepared(|folder| fs::write(folder.join("file"), "content").unwrap()).await;
    let done = python(HOARDER, &mounted.mount.mount_point.join("file")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "256 No locks available\nlocked\n", "{done:?}");
}

/// A lease that can only read keeps nobody on the host from writing.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_lease_locks_nothing_on_the_host() {
    if cannot_mount() || !has_python() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend_on("loc", ExportTerms::new(AccessMode::Ro));
    fs::write(lease.folder.join("file"), "content").unwrap();
    let mount = lease.mount_write_back(lease.port).await;
    let file = mount.mount_point.join("file");
    let mut locker = python(&LOCKER.replace("'r+'", "'r'"), &file);
    let refused = locker.arg(CALLS[1].replace("KIND", "LOCK_EX")).stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Read-only file system"), "{refused:?}");
    assert!(!is_refused(CALLS[1], "LOCK_EX", &lease.folder.join("file")));
}

#[tokio::test(flavor = "multi_thread")]
async fn space_is_reserved_within_the_limits_of_the_lease() {
    if cannot_mount() {
        return;
    }
    let host = SshTestHost::start().await;
    let quota = LeaseQuota { bytes: Some(1 << 20), ..LeaseQuota::default() };
    let lease = host.lend_on("loc", ExportTerms { quota, ..ExportTerms::new(AccessMode::Rw) });
    fs::write(lease.folder.join("file"), "content").unwrap();
    let mount = lease.mount_write_back(lease.port).await;
    let file = OpenOptions::new().read(true).write(true).open(mount.mount_point.join("file")).unwrap();
    let there = || fs::metadata(lease.folder.join("file")).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 64 << 10).unwrap();
    assert_eq!((there().len(), there().blocks() >= 128), (7, true));
    fallocate(&file, FallocateFlags::empty(), 0, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    assert_eq!(there().len(), 100_000);
    let content = fs::read(mount.mount_point.join("file")).unwrap();
    assert_eq!((content.len(), &content[..9]), (100_000, &b"content\0\0"[..]));
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 2 << 20), Err(Errno::DQUOT));
    assert_eq!(fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 10), Err(Errno::OPNOTSUPP));
    assert_eq!(there().len(), 100_000);
}

/// Programs that copy them go on without.
#[tokio::test(flavor = "multi_thread")]
async fn extended_attributes_are_not_supported_and_programs_live_with_that() {
    if cannot_mount() {
        return;
    }
    let mounted = MountedLease::prepared(|folder| fs::write(folder.join("file"), "content").unwrap()).await;
    let here = &mounted.mount.mount_point;
    let file = here.join("file");
    assert_eq!(setxattr(&file, "user.x", b"y", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
    assert_eq!(getxattr(&file, "user.x", &mut [0_u8; 10][..]), Err(Errno::OPNOTSUPP));
    assert_eq!(listxattr(&file, &mut [0_u8; 10][..]), Err(Errno::OPNOTSUPP));
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("from")).unwrap();
    fs::write(outside.path().join("from/a"), "a").unwrap();
    let _ = setxattr(outside.path().join("from/a"), "user.x", b"y", XattrFlags::empty());
    let status = Command::new("cp").arg("-a").arg(outside.path().join("from")).arg(here.join("to")).status().unwrap();
    assert!(status.success());
    assert_eq!(fs::read_to_string(here.join("to/a")).unwrap(), "a");
}

/// More open files than the host keeps open for a lease.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_open_files_are_refused_clearly() {
    if cannot_mount() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let mount = lease.mount_write_back(lease.port).await;
    let mut refusal = None;
    let mut open = Vec::new();
    for number in 0..1100 {
        match File::create(mount.mount_point.join(format!("file{number}"))) {
            Ok(file) => open.push(file),
            Err(error) => {
                refusal = Errno::from_io_error(&error);
                break;
            }
        }
    }
    assert_eq!(refusal, Some(Errno::NFILE), "{} files are open", open.len());
    drop(open);
    fs::write(mount.mount_point.join("after"), "works").unwrap();
    mount.flush().unwrap();
    assert_eq!(fs::read_to_string(lease.folder.join("after")).unwrap(), "works");
}
