//! kill -9 of each process leaves nothing mounted, and nothing reaches the disk under the mount point.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_protocol::env::Env;
use attache_workspace::mount::{MountHandle, MountPoint, MountRequest, MountTransport, UnmountReason, mount, sweep};
use rustix::process::{Pid, Signal, kill_process};

use super::cannot_mount;
use crate::{
    mount::guard,
    ssh::{LeaseFixture, SshTestHost, eventually},
    sshd::root,
};

fn is_mounted(mount_point: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", mount_point.display()))
}

async fn mounted(lease: &LeaseFixture, root: &Path, lasts: Duration) -> MountHandle {
    let place = MountPoint::reserve(&[root.to_owned()], "dlg_test", &Env::system()).unwrap();
    let request = MountRequest { lasts, ..lease.mount_request(MountTransport::AttacheFs) };
    mount(&guard(), place, request).await.unwrap()
}

/// The process that serves a mount: the child of its guard.
pub(crate) fn server_of(guard: u32) -> Pid {
    let threads = fs::read_dir(format!("/proc/{guard}/task")).unwrap().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let child = children.flat_map(|children| children.split_whitespace().next().map(str::to_owned)).next();
    Pid::from_raw(child.expect("the guard has a child").parse().unwrap()).unwrap()
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_file_system_swallows_no_writes() {
    if cannot_mount() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let root = root();
    let handle = mounted(&lease, root.path(), Duration::from_secs(60)).await;
    let at = handle.mount_point().to_owned();
    fs::write(at.join("kept"), "kept").unwrap();
    kill_process(server_of(handle.guard_pid().unwrap()), Signal::KILL).unwrap();
    // From the first moment on, not only once it is noticed.
    assert!(fs::write(at.join("lost"), "x").is_err() || lease.folder.join("lost").exists());
    assert_eq!(handle.gone().await, UnmountReason::Died);
    assert!(!is_mounted(&at));
    assert!(fs::write(at.join("lost"), "x").is_err());
    handle.unmount().await;
    assert!(!at.exists());
    assert_eq!(fs::read_to_string(lease.folder.join("kept")).unwrap(), "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_guard_leaves_no_mount() {
    if cannot_mount() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let root = root();
    let handle = mounted(&lease, root.path(), Duration::from_secs(60)).await;
    let at = handle.mount_point().to_owned();
    let busy = fs::File::create(at.join("busy")).unwrap();
    let guard = handle.guard_pid().unwrap();
    let server = server_of(guard);
    kill_process(pid(guard), Signal::KILL).unwrap();
    assert_eq!(handle.gone().await, UnmountReason::Unguarded);
    eventually("it is unmounted", || !is_mounted(&at)).await;
    assert!(fs::write(at.join("x"), "x").is_err(), "it is still unwritable");
    let server = PathBuf::from(format!("/proc/{}", server.as_raw_nonzero()));
    eventually("its server is gone", || !server.exists()).await;
    drop((handle, busy));
    assert_eq!(sweep(&[root.path().to_owned()]), [at]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_lease_unmounts_even_with_busy_processes() {
    if cannot_mount() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let root = root();
    let handle = mounted(&lease, root.path(), Duration::from_secs(3)).await;
    let at = handle.mount_point().to_owned();
    let busy = fs::File::create(at.join("busy")).unwrap();
    assert_eq!(handle.gone().await, UnmountReason::Expired);
    assert!(!is_mounted(&at) && fs::write(at.join("x"), "x").is_err());
    drop(busy);
    handle.unmount().await;
}

/// Outages are counted, and the host's death alone unmounts nothing: it may come back.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_host_is_an_error_and_no_local_folder() {
    if cannot_mount() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let root = root();
    let handle = mounted(&lease, root.path(), Duration::from_secs(60)).await;
    let at = handle.mount_point().to_owned();
    fs::write(at.join("file"), "text").unwrap();
    drop(host);
    let fails = || fs::write(at.join("lost"), "x").is_err_and(|error| error.raw_os_error() == Some(5));
    eventually("writing fails with an I/O error", fails).await;
    assert!(is_mounted(&at));
    assert!(!handle.is_alive(Duration::from_secs(10)).await);
    handle.unmount().await;
    assert!(!lease.folder.join("lost").exists());
}
