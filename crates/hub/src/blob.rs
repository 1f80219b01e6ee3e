//! Artifact files on disk, named by the hash of their content: written once, never changed. With a bucket, that has all of
//! them, and the disk those that were used last.

mod remote;

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use attache_protocol::{
    Code, TenantId, Timestamp,
    digest::{hex, unhex},
    env::Env,
};
use attache_store::StorageFault;
use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use tokio::{
    fs::File,
    io::AsyncWriteExt as _,
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
};

pub use self::remote::ArtifactBucket;
use self::remote::RemoteBlobs;
use crate::{Error, Options, Result, disk_space::DiskUse};

/// Frames are buffered to this size before they are written.
const BLOCK: usize = 256 * 1024;
/// The free space is checked this often.
const CHECK_EVERY: u64 = 1 << 20;
/// A file or object that says which hub's artifacts these are. Two hubs would remove each other's.
const OWNER: &str = ".attache-hub";
/// Clocks differ, and the end of an upload comes later than its beginning.
const KNOWN_MARGIN: Duration = Duration::from_secs(24 * 60 * 60);
/// How many verified files are remembered.
const MAX_VERIFIED: usize = 10_000;

/// The folder `blobs/`: finished content under `ab/cdef…`, unfinished uploads under `incoming/`.
#[derive(Debug)]
pub(crate) struct BlobStore {
    root: PathBuf,
    /// Files whose content matched their name when last read.
    verified: Mutex<HashMap<[u8; 32], FileVersion>>,
    /// Held shared while a file is placed and its row is written, exclusively while unreferenced files are removed.
    placing: RwLock<()>,
    /// Where all of them are, if that isn't this folder.
    remote: Option<RemoteBlobs>,
}

/// Why a place for artifacts can't be used.
#[derive(Debug)]
pub(crate) enum BlobStoreError {
    Folder(io::Error),
    /// Another hub has its artifacts in this place.
    Taken(String),
}

/// Size and modification time of a file.
type FileVersion = (u64, i64, i64);

/// Content that is safely on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) size: u64,
    pub(crate) blake3: [u8; 32],
}

/// A file that is removed unless it becomes a blob.
struct IncomingBlob {
    path: PathBuf,
    kept: bool,
}

/// Content that was received, and is removed unless it is placed.
pub(crate) struct PendingBlob {
    incoming: IncomingBlob,
    received: ReceivedBlob,
}

/// What was received, and what a bucket has to be told about it.
struct ReceivedBlob {
    blob: Blob,
    /// Only computed for a bucket.
    sha256: Option<[u8; 32]>,
}

// === impl BlobStore ===

impl BlobStore {
    /// Creates the folders. An unclaimed folder becomes this hub's.
    pub(crate) async fn open(options: &Options, env: Env, hub: TenantId) -> std::result::Result<Self, BlobStoreError> {
        let (root, bucket) = (options.artifact_folder(), options.bucket.clone());
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(root.join("incoming"))
            .map_err(BlobStoreError::Folder)?;
        if !is_folder_of(&root, hub).map_err(BlobStoreError::Folder)? {
            return Err(BlobStoreError::Taken(root.display().to_string()));
        }
        let remote = bucket.map(|bucket| RemoteBlobs::new(bucket, root.clone(), env, hub));
        if let Some(remote) = &remote {
            remote.check_at_start().await?;
        }
        Ok(Self { root, verified: Mutex::default(), placing: RwLock::default(), remote })
    }

    /// Removes uploads that were interrupted by a stop. Only for a hub that is alone: others may be uploading.
    pub(crate) fn remove_interrupted(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join("incoming"))? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    /// Streams to a temporary file while hashing, and syncs it to disk. `max` is what is left for the run.
    pub(crate) async fn receive<E>(
        &self,
        name: &str,
        bytes: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
        options: &Options,
        max: u64,
    ) -> Result<PendingBlob> {
        let incoming = IncomingBlob::new(&self.root, name);
        let file = File::create_new(&incoming.path).await.map_err(failed)?;
        let hasher = self.remote.as_ref().map(|_| Context::new(&SHA256));
        let received = receive(file, hasher, bytes, options, max).await?;
        if let (Some(remote), Some(sha256)) = (&self.remote, received.sha256) {
            remote.upload(&received.blob, sha256, &incoming.path).await?;
        }
        Ok(PendingBlob { incoming, received })
    }

    /// Gives the content its name. It is not removed at this node while the guard lives, so write its row before dropping it.
    pub(crate) async fn place(&self, pending: PendingBlob) -> Result<RwLockReadGuard<'_, ()>> {
        let PendingBlob { mut incoming, received: ReceivedBlob { blob, sha256 } } = pending;
        let placing = self.placing.read().await;
        if let (Some(remote), Some(sha256)) = (&self.remote, sha256) {
            // The content had no row until now, so it may have been removed as unreferenced.
            remote.ensure(&blob, sha256, &incoming.path).await?;
            remote.trim(blob.size).await?;
        }
        self.keep(&mut incoming, &blob.blake3).await?;
        Ok(placing)
    }

    /// Gives a received file its name.
    async fn keep(&self, incoming: &mut IncomingBlob, blake3: &[u8; 32]) -> Result<()> {
        let (from, target) = (incoming.path.clone(), self.path(blake3));
        let placed = tokio::task::spawn_blocking(move || place(&from, &target)).await;
        placed.map_err(|error| Error::internal(&error))?.map_err(failed)?;
        incoming.kept = true;
        Ok(())
    }

    /// No file is placed while the guard lives.
    pub(crate) async fn without_uploads(&self) -> RwLockWriteGuard<'_, ()> {
        self.placing.write().await
    }

    /// Removes these files. Missing files are ignored.
    pub(crate) async fn remove(&self, blobs: Vec<[u8; 32]>) -> Result<()> {
        {
            let mut verified = self.verified();
            for blob in &blobs {
                verified.remove(blob);
            }
        }
        if let Some(remote) = &self.remote {
            remote.remove(&blobs).await?;
        }
        let paths: Vec<PathBuf> = blobs.iter().map(|blob| self.path(blob)).collect();
        let removed = tokio::task::spawn_blocking(move || {
            for path in paths {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            Ok(())
        });
        removed.await.map_err(|error| Error::internal(&error))?.map_err(failed)
    }

    /// All files, folder by folder, including those whose row was never written because of a stop. Only what was written
    /// before `known`, the time up to which this hub knows all uploads: its database may be older than what is there, or
    /// belong to a copy of the hub.
    pub(crate) async fn all(&self, known: Option<Timestamp>) -> Result<Vec<[u8; 32]>> {
        // A database that was just made knows nothing, whatever is there.
        let Some(known) = known else { return Ok(Vec::new()) };
        let end = known.minus(KNOWN_MARGIN);
        if let Some(remote) = &self.remote {
            return remote.written_before(end).await;
        }
        let root = self.root.clone();
        let found = tokio::task::spawn_blocking(move || {
            let mut found = Vec::new();
            for folder in fs::read_dir(root)? {
                let folder = folder?;
                let start = folder.file_name();
                let Some(start) = start.to_str().filter(|start| start.len() == 2) else { continue };
                for file in fs::read_dir(folder.path())? {
                    let file = file?;
                    if file.metadata().is_ok_and(|file| file.mtime() >= end.millis() / 1000) {
                        continue;
                    }
                    let name = file.file_name();
                    found.extend(name.to_str().and_then(|name| unhex(&format!("{start}{name}"))));
                }
            }
            io::Result::Ok(found)
        });
        found.await.map_err(|error| Error::internal(&error))?.map_err(failed)
    }

    /// Opens the content with this hash. A file that was modified on disk is not served.
    pub(crate) async fn open_file(&self, blake3: &[u8; 32], options: &Options) -> Result<File> {
        let file = match (File::open(self.path(blake3)).await, &self.remote) {
            (Err(error), Some(remote)) if error.kind() == io::ErrorKind::NotFound => {
                return self.fetch(remote, blake3, options).await;
            }
            (opened, _) => opened.map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => damaged("is missing from"),
                _ => failed(error),
            })?,
        };
        let metadata = file.metadata().await.map_err(failed)?;
        let state = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        if self.verified().get(blake3) == Some(&state) {
            return Ok(file);
        }
        let path = self.path(blake3);
        let hashed = tokio::task::spawn_blocking(move || {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(fs::File::open(path)?)?;
            io::Result::Ok(*hasher.finalize().as_bytes())
        });
        let hash = hashed.await.map_err(|error| Error::internal(&error))?.map_err(failed)?;
        if hash != *blake3 {
            tracing::error!(blob = %hex(blake3), "an artifact's file was modified on disk");
            return Err(damaged("was modified on"));
        }
        let mut verified = self.verified();
        if verified.len() >= MAX_VERIFIED {
            verified.clear();
        }
        verified.insert(*blake3, state);
        drop(verified);
        Ok(file)
    }

    /// Gets the content from the bucket, and keeps it for the next reader.
    async fn fetch(&self, remote: &RemoteBlobs, blake3: &[u8; 32], options: &Options) -> Result<File> {
        let mut incoming = IncomingBlob::new(&self.root, &remote.new_name());
        if remote.download(blake3, &incoming.path, options).await? != *blake3 {
            tracing::error!(blob = %hex(blake3), "an artifact's object was modified in the bucket");
            return Err(damaged("was modified on"));
        }
        let file = File::open(&incoming.path).await.map_err(failed)?;
        self.keep(&mut incoming, blake3).await?;
        Ok(file)
    }

    fn verified(&self) -> MutexGuard<'_, HashMap<[u8; 32], FileVersion>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, blake3: &[u8; 32]) -> PathBuf {
        let name = hex(blake3);
        self.root.join(&name[..2]).join(&name[2..])
    }
}

async fn receive<E>(
    mut file: File,
    mut sha256: Option<Context>,
    mut bytes: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    options: &Options,
    max: u64,
) -> Result<ReceivedBlob> {
    let mut hasher = blake3::Hasher::new();
    let (mut size, mut checked) = (0_u64, 0);
    DiskUse::Upload.check(options)?;
    let mut block = BytesMut::with_capacity(BLOCK);
    while let Some(frame) = next_frame(&mut bytes, options).await? {
        size += frame.len() as u64;
        if size > options.max_artifact {
            let message = format!("The artifact is larger than {} bytes.", options.max_artifact);
            return Err(Error::new(Code::TooLarge, message).hint("Split it, or start the hub with a larger limit."));
        }
        if size > max {
            return Err(run_full(options));
        }
        if size - checked >= CHECK_EVERY {
            checked = size;
            DiskUse::Upload.check(options)?;
        }
        hasher.update(&frame);
        if let Some(sha256) = &mut sha256 {
            sha256.update(&frame);
        }
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
    let sha256 = sha256.map(|sha256| {
        let digest = sha256.finish();
        digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
    });
    Ok(ReceivedBlob { blob: Blob { size, blake3: *hasher.finalize().as_bytes() }, sha256 })
}

/// A sender that stalls must not hold the upload forever.
async fn next_frame<E>(
    bytes: &mut (impl Stream<Item = std::result::Result<Bytes, E>> + Unpin),
    options: &Options,
) -> Result<Option<Bytes>> {
    match tokio::time::timeout(options.body_timeout, bytes.next()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame)),
        Ok(Some(Err(_))) => Err(Error::new(Code::InvalidRequest, "The upload was cut off.")),
        Err(_) => Err(Error::new(Code::InvalidRequest, "The upload stalled and was cancelled.")),
    }
}

/// Whether the folder has the artifacts of this hub, or of none.
fn is_folder_of(root: &Path, hub: TenantId) -> io::Result<bool> {
    let (mark, hub) = (root.join(OWNER), hub.to_string());
    match fs::read_to_string(&mark) {
        Ok(owner) => Ok(owner.trim() == hub),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            attache_os::private_file::write(&mark, format!("{hub}\n").as_bytes())?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Identical content is stored once. Folders are synced too, so that the name survives a power loss.
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

/// The artifacts of a run take as much as they may.
pub(crate) fn run_full(options: &Options) -> Error {
    let message = format!("The artifacts of this run would take more than {} bytes.", options.max_run_artifacts);
    Error::new(Code::TooLarge, message).hint("Upload less. The hub's --max-run-artifact-bytes option sets the limit.")
}

fn damaged(what: &str) -> Error {
    let message = format!("The artifact's content {what} the hub's disk, so it can't be served.");
    Error::new(Code::StorageFailed, message).hint("Restore it from a backup. See /docs/backup.")
}

fn failed(error: io::Error) -> Error {
    match StorageFault::of_io(&error) {
        Some(fault) => Error::unwritable(fault),
        None => Error::internal(&error),
    }
}

// === impl PendingBlob ===

impl PendingBlob {
    pub(crate) const fn blob(&self) -> Blob {
        self.received.blob
    }
}

// === impl IncomingBlob ===

impl IncomingBlob {
    fn new(root: &Path, name: &str) -> Self {
        Self { path: root.join("incoming").join(name), kept: false }
    }
}

impl Drop for IncomingBlob {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}
