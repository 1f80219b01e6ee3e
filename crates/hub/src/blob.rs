//! Bytes on disk under the hash of their content: written once, never changed.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use attache_protocol::{Code, log::hex};
use axum::body::BodyDataStream;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::{fs::File, io::AsyncWriteExt as _};

use crate::{Error, Options, Result};

/// Frames are gathered to this size before they are written.
const BLOCK: usize = 256 * 1024;

/// The folder `blobs/`: finished content under `ab/cdef…`, unfinished uploads under `incoming/`.
#[derive(Debug)]
pub(crate) struct Blobs {
    root: PathBuf,
}

/// Content that is safely on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) size: u64,
    pub(crate) blake3: [u8; 32],
}

/// A file that is removed unless it became a blob.
struct Incoming {
    path: PathBuf,
    kept: bool,
}

// === impl Blobs ===

impl Blobs {
    /// Makes the folders and removes uploads that a stop has cut short.
    pub(crate) fn open(root: PathBuf) -> io::Result<Self> {
        let incoming = root.join("incoming");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&incoming)?;
        for entry in fs::read_dir(&incoming)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(Self { root })
    }

    /// Streams to an unfinished file while hashing, flushes it to the disk, then gives it its name.
    pub(crate) async fn write(&self, name: &str, bytes: BodyDataStream, options: &Options) -> Result<Blob> {
        let mut incoming = Incoming { path: self.root.join("incoming").join(name), kept: false };
        let file = File::create_new(&incoming.path).await.map_err(failed)?;
        let blob = receive(file, bytes, options).await?;
        let target = self.path(&blob.blake3);
        let from = incoming.path.clone();
        let placed = tokio::task::spawn_blocking(move || place(&from, &target)).await;
        placed.map_err(|error| Error::internal(&error))?.map_err(failed)?;
        incoming.kept = true;
        Ok(blob)
    }

    pub(crate) async fn open_file(&self, blake3: &[u8; 32]) -> io::Result<File> {
        File::open(self.path(blake3)).await
    }

    fn path(&self, blake3: &[u8; 32]) -> PathBuf {
        let name = hex(blake3);
        self.root.join(&name[..2]).join(&name[2..])
    }
}

async fn receive(mut file: File, mut bytes: BodyDataStream, options: &Options) -> Result<Blob> {
    let mut hasher = blake3::Hasher::new();
    let mut size = 0_u64;
    let mut block = BytesMut::with_capacity(BLOCK);
    while let Some(frame) = next_frame(&mut bytes, options).await? {
        size += frame.len() as u64;
        if size > options.max_artifact {
            let message = format!("The artifact is larger than {} bytes.", options.max_artifact);
            return Err(Error::new(Code::TooLarge, message).hint("Split it, or start the hub with a larger limit."));
        }
        hasher.update(&frame);
        if block.len() + frame.len() > BLOCK {
            file.write_all(&block).await.map_err(failed)?;
            block.clear();
        }
        if frame.len() >= BLOCK {
            file.write_all(&frame).await.map_err(failed)?;
        } else {
            block.extend_from_slice(&frame);
        }
    }
    file.write_all(&block).await.map_err(failed)?;
    file.flush().await.map_err(failed)?;
    file.sync_all().await.map_err(failed)?;
    Ok(Blob { size, blake3: *hasher.finalize().as_bytes() })
}

/// A sender that stops in the middle must not hold the upload for ever.
async fn next_frame(bytes: &mut BodyDataStream, options: &Options) -> Result<Option<Bytes>> {
    match tokio::time::timeout(options.body_timeout, bytes.next()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame)),
        Ok(Some(Err(_))) => Err(Error::new(Code::InvalidRequest, "The upload broke off before its end.")),
        Err(_) => Err(Error::new(Code::InvalidRequest, "The upload stopped before its end.")),
    }
}

/// The same content twice is one file. Folders are flushed too, so that the name survives a power loss.
fn place(from: &Path, target: &Path) -> io::Result<()> {
    let folder = target.parent().expect("a blob lies in a folder");
    if let Err(error) = fs::DirBuilder::new().mode(0o700).create(folder)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    fs::rename(from, target)?;
    fs::File::open(folder)?.sync_all()?;
    folder.parent().map_or(Ok(()), |root| fs::File::open(root)?.sync_all())
}

fn failed(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::StorageFull {
        tracing::error!("the disk is full");
        return Error::new(Code::Overloaded, "The hub's disk is full.").hint("Free some space on the hub's machine.");
    }
    Error::internal(&error)
}

// === impl Incoming ===

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}
