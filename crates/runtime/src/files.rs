//! Private files: folders of mode 0700, files of mode 0600 that are replaced as a whole, and locks between processes.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::Duration,
};

use attache_client::private_file;
use attache_protocol::env::Env;
use rustix::fs::FlockOperation;

use crate::Error;

/// Makes a folder that only its owner can enter; one of ours that is looser is tightened.
pub(crate) fn private_folder(path: &Path) -> Result<(), Error> {
    private_file::folder(path).map_err(Error::io(path))
}

/// Replaces a file so that readers and a crash see the old content or the new one, never a part.
pub(crate) fn replace(path: &Path, content: &[u8], env: &Env) -> Result<(), Error> {
    private_file::write_with(path, content, env).map_err(Error::io(path))
}

pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Waits for the lock of a file and holds it until the answer is dropped.
pub(crate) fn lock(path: &Path) -> Result<File, Error> {
    let file = open_lock(path)?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::io(path)(error.into())),
        }
    }
}

/// Takes the lock within `patience`, or says that somebody else has it.
pub(crate) async fn try_lock(path: &Path, patience: Duration) -> Result<File, Error> {
    let file = open_lock(path)?;
    let step = Duration::from_millis(100);
    let mut waited = Duration::ZERO;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if waited < patience => {
                tokio::time::sleep(step).await;
                waited += step;
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::AlreadyRunning { path: path.to_owned() }),
            Err(error) => return Err(Error::io(path)(error.into())),
        }
    }
}

fn open_lock(path: &Path) -> Result<File, Error> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map_err(Error::io(path))
}
