//! Keeps one node from removing the content that another one is uploading.
//!
//! A file is placed before its row is written, so for a moment nothing refers to it. At one node, a lock keeps removals away.
//! Between nodes, each side writes down what it is about to do before it looks at what the others are doing: at least one of
//! the two sees the other.

use std::time::Duration;

use attache_protocol::Code;
use attache_store::record::shared_value::{SharedValue, SharedValueKind, SharedValueLimit};
use tokio::time::{Instant, sleep};

use crate::{Error, Handle, Result, error::about};

/// Something that the other nodes can see until it is withdrawn.
#[derive(Debug)]
pub(super) struct ContentNotice {
    kind: SharedValueKind,
    /// `None` if there is only one node, so there is nobody to tell.
    name: Option<String>,
}

/// An upload writes its row right after its file is placed. A node that stops in between delays the removal of that content.
const UPLOAD_TTL: Duration = Duration::from_secs(60 * 60);
/// A node that stops while it removes something keeps the same content from being uploaded for this long.
const REMOVAL_TTL: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

// === impl Handle ===

impl Handle {
    /// Announces that content is about to be placed, and waits until no other node is removing it.
    pub(super) async fn announce_upload(&self, blake3: &[u8; 32]) -> Result<ContentNotice> {
        let notice = self.announce(SharedValueKind::ArtifactUpload, &[*blake3], UPLOAD_TTL).await?;
        let begun = Instant::now();
        while notice.name.is_some() && self.announced(SharedValueKind::ArtifactRemoval).await?.contains(blake3) {
            if begun.elapsed() > REMOVAL_TTL {
                self.withdraw(notice).await;
                return Err(Error::new(Code::Overloaded, "This content is being removed at the moment."));
            }
            sleep(LOOK_INTERVAL).await;
        }
        Ok(notice)
    }

    pub(super) async fn withdraw(&self, notice: ContentNotice) {
        let Some(name) = notice.name else { return };
        let now = self.now();
        if let Err(error) = self.store().take_value(notice.kind, &name, now, now).await {
            tracing::warn!(%error, "the notice of an artifact's content stays until it expires");
        }
    }

    /// Removes files that no artifact refers to any more.
    pub(crate) async fn remove_blobs(&self, blobs: Vec<[u8; 32]>) -> Result<()> {
        if blobs.is_empty() {
            return Ok(());
        }
        // Excludes concurrent uploads of the same content whose row is not written yet.
        let uploads = self.blobs().without_uploads().await;
        let begun = Instant::now();
        let notice = self.announce(SharedValueKind::ArtifactRemoval, &blobs, REMOVAL_TTL).await?;
        let removed = async {
            // Before the rows: an upload withdraws its notice when its row is there.
            let arriving = match notice.name {
                Some(_) => self.announced(SharedValueKind::ArtifactUpload).await?,
                None => Vec::new(),
            };
            let mut unused = self.store().unused_blobs(blobs).await.map_err(about("artifact"))?;
            unused.retain(|blob| !arriving.contains(blob));
            // Uploads no longer wait after that time.
            if notice.name.is_some() && begun.elapsed() > REMOVAL_TTL / 2 {
                return Err(Error::new(Code::Overloaded, "The store took too long to answer."));
            }
            self.blobs().remove(unused).await
        };
        let removed = removed.await;
        self.withdraw(notice).await;
        drop(uploads);
        removed
    }

    async fn announce(&self, kind: SharedValueKind, blobs: &[[u8; 32]], ttl: Duration) -> Result<ContentNotice> {
        if self.options().nodes.is_none() {
            return Ok(ContentNotice { kind, name: None });
        }
        let name = self.env().uuid().to_string();
        let value = SharedValue {
            kind,
            name: name.clone(),
            tenant: self.tenant(),
            holder: name.clone(),
            value: blobs.concat(),
            expires_at: self.now().plus(ttl),
        };
        self.store().keep_value(value, SharedValueLimit::None, self.now()).await.map_err(about("artifact"))?;
        Ok(ContentNotice { kind, name: Some(name) })
    }

    /// The contents that notices of a kind name, at all nodes.
    async fn announced(&self, kind: SharedValueKind) -> Result<Vec<[u8; 32]>> {
        let notices = self.store().shared_values(kind, self.now()).await.map_err(about("artifact"))?;
        Ok(notices.iter().flat_map(|notice| notice.value.as_chunks::<32>().0.to_vec()).collect())
    }
}
