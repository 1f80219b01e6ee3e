//! Artifacts in a bucket, under the names that they have on disk. The folder keeps copies of those that were used last.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use attache_client::bucket::{Bucket, BucketError, BucketUpload};
use attache_protocol::{
    Code, TenantId, Timestamp,
    digest::{hex, unhex},
    env::Env,
};
use aws_lc_rs::digest::{SHA256, digest};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::{fs::File, io::AsyncWriteExt as _};

use super::{Blob, BlobStoreError, CHECK_EVERY, IncomingBlob, OWNER, damaged, failed};
use crate::{Error, Options, Result, disk_space::DiskUse};

type BucketResult<T> = std::result::Result<T, BucketError>;

/// What is read at most of the object that names the owner.
const MAX_OWNER: usize = 1024;
/// How long a start waits for that object.
const OWNER_TIMEOUT: Duration = Duration::from_secs(10);
/// How many objects are removed at a time.
const REMOVALS: usize = 16;
/// Old copies are looked for after this part of the limit was added.
const TRIM_PART: u64 = 10;

/// A bucket for artifacts, and how much of the disk copies of them may take.
#[derive(Debug, Clone)]
pub struct ArtifactBucket {
    pub bucket: Arc<Bucket>,
    /// In bytes.
    pub cache: u64,
}

#[derive(Debug)]
pub(super) struct RemoteBlobs {
    options: ArtifactBucket,
    root: PathBuf,
    env: Env,
    /// What this hub is called in [`OWNER`].
    hub: String,
    /// Whether that was seen there.
    ours: AtomicBool,
    /// Bytes added since old copies were last looked for.
    added: AtomicU64,
}

// === impl RemoteBlobs ===

impl RemoteBlobs {
    pub(super) fn new(options: ArtifactBucket, root: PathBuf, env: Env, hub: TenantId) -> Self {
        // What is there from before counts.
        let added = AtomicU64::new(options.cache);
        Self { options, root, env, hub: hub.to_string(), ours: AtomicBool::new(false), added }
    }

    /// A bucket that can't be reached is asked again before anything in it is changed.
    pub(super) async fn check_at_start(&self) -> std::result::Result<(), BlobStoreError> {
        match tokio::time::timeout(OWNER_TIMEOUT, self.is_ours()).await {
            Ok(Ok(true)) | Err(_) => Ok(()),
            Ok(Ok(false)) => Err(BlobStoreError::Taken(self.bucket().to_string())),
            Ok(Err(error)) => {
                tracing::warn!(%error, "can't tell which hub the artifacts in the bucket belong to");
                Ok(())
            }
        }
    }

    /// Whether these are the artifacts of this hub. An unclaimed bucket becomes its own.
    async fn is_ours(&self) -> BucketResult<bool> {
        if self.ours.load(Relaxed) {
            return Ok(true);
        }
        let mut owner = self.owner().await?;
        if owner.is_none() {
            self.take_over().await?;
            // Another hub may have done the same at this moment.
            owner = self.owner().await?;
        }
        let ours = owner.as_ref() == Some(&self.hub);
        self.ours.store(ours, Relaxed);
        Ok(ours)
    }

    async fn owner(&self) -> BucketResult<Option<String>> {
        let mut content = match self.bucket().get(OWNER, self.env.wall()).await {
            Err(BucketError::Missing) => return Ok(None),
            content => content?,
        };
        let mut owner = Vec::new();
        while let Some(part) = content.try_next().await? {
            owner.extend_from_slice(&part);
            if owner.len() > MAX_OWNER {
                break;
            }
        }
        Ok(Some(String::from_utf8_lossy(&owner).trim().to_owned()))
    }

    async fn take_over(&self) -> BucketResult<()> {
        let text = format!("{}\n", self.hub);
        let file = IncomingBlob::new(&self.root, &self.new_name());
        tokio::fs::write(&file.path, &text).await.map_err(|error| BucketError::File(error.to_string()))?;
        let sha256 = digest(&SHA256, text.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes");
        let upload = BucketUpload { file: &file.path, size: text.len() as u64, sha256 };
        self.bucket().put(OWNER, upload, self.env.wall()).await
    }

    async fn check_owner(&self) -> Result<()> {
        if self.is_ours().await.map_err(refused)? {
            return Ok(());
        }
        tracing::error!(bucket = %self.bucket(), "the bucket contains another hub's artifacts, so nothing is changed");
        Err(Error::new(Code::StorageFailed, "The hub's bucket contains another hub's artifacts.")
            .hint("Start the hub with its own prefix (--artifacts s3://BUCKET/PREFIX)."))
    }

    /// A name for a file that is received.
    pub(super) fn new_name(&self) -> String {
        self.env.uuid().to_string()
    }

    pub(super) async fn upload(&self, blob: &Blob, sha256: [u8; 32], file: &Path) -> Result<()> {
        self.check_owner().await?;
        let upload = BucketUpload { file, size: blob.size, sha256 };
        self.bucket().put(&key(&blob.blake3), upload, self.env.wall()).await.map_err(refused)
    }

    /// Uploads it again if it was removed since.
    pub(super) async fn ensure(&self, blob: &Blob, sha256: [u8; 32], file: &Path) -> Result<()> {
        if self.bucket().exists(&key(&blob.blake3), self.env.wall()).await.map_err(refused)? {
            return Ok(());
        }
        self.upload(blob, sha256, file).await
    }

    /// Writes the content to a new file, and returns its hash.
    pub(super) async fn download(&self, blake3: &[u8; 32], target: &Path, options: &Options) -> Result<[u8; 32]> {
        let found = self.bucket().get(&key(blake3), self.env.wall()).await;
        let mut content = found.map_err(|error| match error {
            BucketError::Missing => damaged("is missing from"),
            error => refused(error),
        })?;
        let mut file = File::create_new(target).await.map_err(failed)?;
        let mut hasher = blake3::Hasher::new();
        let (mut size, mut checked) = (0_u64, 0);
        DiskUse::Upload.check(options)?;
        while let Some(part) = content.next().await {
            let part = part.map_err(refused)?;
            size += part.len() as u64;
            if size - checked >= CHECK_EVERY {
                checked = size;
                DiskUse::Upload.check(options)?;
            }
            hasher.update(&part);
            file.write_all(&part).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        self.trim(size).await?;
        Ok(*hasher.finalize().as_bytes())
    }

    pub(super) async fn remove(&self, blobs: &[[u8; 32]]) -> Result<()> {
        self.check_owner().await?;
        let removals = stream::iter(blobs.iter().map(key));
        let removals = removals.map(|key| async move { self.bucket().remove(&key, self.env.wall()).await });
        removals.buffer_unordered(REMOVALS).try_collect::<()>().await.map_err(refused)
    }

    /// Everything in the bucket that has a name of ours and was written before `end`.
    pub(super) async fn written_before(&self, end: Timestamp) -> Result<Vec<[u8; 32]>> {
        let (mut found, mut next) = (Vec::new(), None);
        loop {
            let page = self.bucket().list(next.as_deref(), self.env.wall()).await.map_err(refused)?;
            let old = page.objects.iter().filter(|object| object.modified.is_some_and(|modified| modified < end));
            found.extend(old.filter_map(|object| blake3_of(&object.key)));
            next = page.next;
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Removes the oldest copies if there are too many. `added` was just written.
    pub(super) async fn trim(&self, added: u64) -> Result<()> {
        let limit = self.options.cache;
        if self.added.fetch_add(added, Relaxed).saturating_add(added) < limit / TRIM_PART {
            return Ok(());
        }
        self.added.store(0, Relaxed);
        let root = self.root.clone();
        let trimmed = tokio::task::spawn_blocking(move || trim(&root, limit)).await;
        trimmed.map_err(|error| Error::internal(&error))?.map_err(failed)
    }

    fn bucket(&self) -> &Bucket {
        &self.options.bucket
    }
}

/// `ab/cdef…`, as on disk: a folder of artifacts can be copied into a bucket as it is.
fn key(blake3: &[u8; 32]) -> String {
    let name = hex(blake3);
    format!("{}/{}", &name[..2], &name[2..])
}

fn blake3_of(key: &str) -> Option<[u8; 32]> {
    let (start, end) = key.split_once('/')?;
    unhex(&format!("{start}{end}")).filter(|_| start.len() == 2)
}

/// Readers that have a removed file open keep it.
fn trim(root: &Path, limit: u64) -> io::Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for folder in fs::read_dir(root)? {
        let folder = folder?;
        if folder.file_name().len() != 2 {
            continue;
        }
        for file in fs::read_dir(folder.path())? {
            let file = file?;
            let metadata = file.metadata()?;
            files.push((metadata.modified()?, metadata.len(), file.path()));
        }
    }
    files.sort_unstable();
    let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in files {
        if total <= limit {
            break;
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => total -= size,
        }
    }
    Ok(())
}

fn refused(error: BucketError) -> Error {
    tracing::warn!(%error, "the object store failed");
    let (what, hint) = if error.is_passing() {
        ("The hub's object store can't be reached.", "Try again later. If the problem persists, see the hub's log.")
    } else {
        ("The hub's object store refused the request.", "See the hub's log for the reason.")
    };
    Error::new(Code::StorageFailed, what).hint(hint)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn keys_are_the_names_on_disk() {
        let blake3 = [0xab; 32];
        let key = key(&blake3);
        assert_eq!(key, format!("ab/{}", "ab".repeat(31)));
        assert_eq!(blake3_of(&key), Some(blake3));
        for other in
            ["incoming/x", "ab", "a/b", &format!("abab/{}", "ab".repeat(30)), &format!("zz/{}", "ab".repeat(31))]
        {
            assert_eq!(blake3_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_oldest_copies_are_removed_first() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, age: u64| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, [0; 10]).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - age);
            fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
            path
        };
        let [new, old, oldest] = [write("aa/1", 1), write("ab/2", 2), write("ab/3", 3)];
        let unfinished = write("incoming/4", 9);
        trim(root.path(), 30).unwrap();
        assert!(oldest.exists(), "nothing is removed below the limit");
        trim(root.path(), 15).unwrap();
        assert_eq!([new, old, oldest, unfinished].map(|path| path.exists()), [true, false, false, true]);
    }
}
