//! The remote's side of attache-fs: a FUSE file system over one connection to the host.
//!
//! The host sends the tree, small contents and every change on its own, so most requests of programs are answered from
//! memory (`tree`). Changes are made there first and sent at once (`write_back`). `filesystem` answers the kernel, `link`
//! is the connection, and `shared` is what both use.

mod answers;
mod convert;
mod filesystem;
mod folder_reads;
mod journal;
mod link;
mod listing_parts;
mod locks;
mod names;
mod replay;
mod shared;
#[cfg(test)]
mod tests;
mod tree;
mod write_back;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::{Read, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use attache_protocol::wire::awcp::AccessMode;
use fuser::{BackgroundSession, Errno, INodeNo, MountOption, Notifier};

pub(crate) use self::replay::replay;
use self::{
    filesystem::MountedFs,
    journal::Journal,
    shared::{FsOptions, FsShared, KernelNotice},
    tree::Invalidation,
};
use crate::{
    export::show,
    fs_connect::LinkTerms,
    mount::{
        LostChange, MountError, MountRequest,
        attache_fs::{FLUSH_TIMEOUT, KIND, LOST, MountRecovery, OUTAGE, SYNC},
    },
};

/// So many losses are named.
const MAX_NAMED: usize = 200;

/// How long the host can take to show the folder.
const READY_TIMEOUT: Duration = Duration::from_secs(18);
const SESSION_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Threads that take requests from the kernel. None of them waits for the host.
const THREADS: usize = 2;

/// Mounts the folder and serves it until it is unmounted, or until the input ends. `unmount` is called in the latter
/// case.
pub(crate) fn run(
    at: &Path,
    request: &MountRequest,
    recovery: &MountRecovery,
    input: impl Read + Send + 'static,
    unmount: impl FnOnce(),
) -> Result<(), MountError> {
    let failed = |error: std::io::Error| MountError::Sshfs(error.to_string());
    let (kernel, invalidations) = mpsc::channel();
    let is_write_back = !request.options.iter().any(|option| option == SYNC);
    let journal = Journal::create(&recovery.journal).map_err(failed)?;
    // A read-only mount has no reason to lock others out, and the host wouldn't allow it.
    let has_locks = request.access_mode == AccessMode::Rw;
    let shared = Arc::new(FsShared::new(kernel, FsOptions { is_write_back, has_locks }, Some(journal)));
    let terms = LinkTerms::new(request, recovery.number);
    let (ready, connected) = mpsc::channel();
    let linked = Arc::clone(&shared);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    thread::Builder::new()
        .name("attache-fs-link".to_owned())
        .spawn(move || runtime.block_on(link::run(&linked.link, &linked, &terms, ready)))
        .map_err(failed)?;
    connected.recv().unwrap_or_else(|_| Err(MountError::Sshfs("the connection ended".to_owned())))?;
    if !shared.wait_until_ready(READY_TIMEOUT) {
        return Err(MountError::Sshfs("the host doesn't show the folder".to_owned()));
    }
    let mut config = fuser::Config::default();
    // As the kernel's own option, so that the table of mounts shows it however it was mounted.
    let subtype = MountOption::CUSTOM(format!("subtype={}", KIND.trim_start_matches("fuse.")));
    config.mount_options =
        vec![MountOption::FSName("attache".to_owned()), subtype, MountOption::NoDev, MountOption::NoSuid];
    if request.access_mode == AccessMode::Ro {
        config.mount_options.push(MountOption::RO);
    }
    config.n_threads = Some(THREADS);
    let session = fuser::spawn_mount(MountedFs(Arc::clone(&shared)), at, &config).map_err(failed)?;
    let (notifier, telling) = (session.notifier(), Arc::clone(&shared));
    thread::Builder::new()
        .name("attache-fs-notify".to_owned())
        .spawn(move || tell_kernel(&notifier, &invalidations, &telling))
        .map_err(failed)?;
    serve(&session, &shared, input, unmount);
    shared.link.close(FLUSH_TIMEOUT);
    report_losses(&shared.lock().lost);
    Ok(())
}

fn report_losses(lost: &BTreeMap<Vec<u8>, Errno>) {
    for (path, errno) in lost.iter().take(MAX_NAMED) {
        let reason = std::io::Error::from_raw_os_error(errno.code()).to_string();
        if let Ok(line) = serde_json::to_string(&LostChange { path: show(path), reason }) {
            let _ = writeln!(std::io::stderr(), "{LOST}{line}");
        }
    }
}

fn serve(
    session: &BackgroundSession,
    shared: &Arc<FsShared>,
    mut input: impl Read + Send + 'static,
    unmount: impl FnOnce(),
) {
    let (open, ended) = mpsc::sync_channel::<()>(0);
    thread::spawn(move || {
        let _open = open;
        let _ = std::io::copy(&mut input, &mut std::io::sink());
    });
    let mut reported = 0;
    while !session.guard.is_finished() {
        match ended.recv_timeout(SESSION_POLL_INTERVAL) {
            Err(RecvTimeoutError::Timeout) | Ok(()) => {}
            // The guard is gone.
            Err(RecvTimeoutError::Disconnected) => return unmount(),
        }
        shared.retry_locks();
        shared.forget_unwatched();
        while reported < shared.link.outages() {
            let _ = writeln!(std::io::stderr(), "{OUTAGE}");
            reported += 1;
        }
    }
}

/// On a thread of its own: the kernel may wait for an answer of ours before it takes a notice.
fn tell_kernel(notifier: &Notifier, notices: &mpsc::Receiver<KernelNotice>, shared: &FsShared) {
    for notice in notices {
        let invalidation = match notice {
            KernelNotice::Forget(invalidation) => invalidation,
            KernelNotice::Then(then) => {
                then();
                continue;
            }
        };
        // What the kernel doesn't know, it needn't forget.
        let _ = match invalidation {
            Invalidation::Entry { folder, name } => {
                // It waits for programs that are reading the folder. Afterwards, none of them adds old names to what
                // the kernel remembers of it.
                let _ = notifier.inval_entry(INodeNo(folder), OsStr::from_bytes(&name));
                shared.note_told_name();
                notifier.inval_inode(INodeNo(folder), 0, 0)
            }
            Invalidation::Attributes(ino) => notifier.inval_inode(INodeNo(ino), -1, 0),
            Invalidation::Content(ino) => notifier.inval_inode(INodeNo(ino), 0, 0),
        };
    }
}
