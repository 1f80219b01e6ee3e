//! Deletes ended runs, and conversations with their runs.

use attache_protocol::{ConversationId, RunId, UserId};
use attache_store::record::RetentionResult;

use crate::{
    Error, Handle, Principal, Result,
    error::about,
    identity::{AccessVerdict, Action},
};

impl Handle {
    /// Deletes an ended run with its result and everything that belongs to it.
    pub async fn delete_run(&self, by: &Principal, run: RunId) -> Result<()> {
        let verdict = by.may(Action::DeleteRun)?;
        let found = self.open_run(by, run).await?;
        if verdict == AccessVerdict::Own {
            check_own(by, found.user, "This run belongs to someone else.")?;
        }
        let removed = self.store().delete_run(self.context(by), run).await.map_err(about("run"))?;
        self.remove_blobs(removed.blobs).await
    }

    /// Deletes a conversation, with its runs, messages and artifacts.
    pub async fn delete_conversation(&self, by: &Principal, conversation: ConversationId) -> Result<()> {
        if by.may(Action::DeleteConversation)? == AccessVerdict::Own {
            let found = self.store().conversation(by.tenant, conversation).await.map_err(about("conversation"))?;
            check_own(by, found.user, "This conversation belongs to someone else.")?;
        }
        // Its runs are deleted with it, so the caller must be able to see all of them.
        self.check_kept(by, conversation, "conversation").await?;
        loop {
            let removed = self.store().delete_conversation(self.context(by), conversation).await;
            let RetentionResult { more, blobs } = removed.map_err(about("conversation"))?;
            self.remove_blobs(blobs).await?;
            if !more {
                return Ok(());
            }
        }
    }

    /// Removes files that no artifact refers to any more.
    pub(crate) async fn remove_blobs(&self, blobs: Vec<[u8; 32]>) -> Result<()> {
        if blobs.is_empty() {
            return Ok(());
        }
        // Excludes concurrent uploads of the same content whose row is not written yet.
        let uploads = self.blobs().without_uploads().await;
        let unused = self.store().unused_blobs(blobs).await.map_err(about("artifact"))?;
        self.blobs().remove(unused).await?;
        drop(uploads);
        Ok(())
    }
}

fn check_own(by: &Principal, user: Option<UserId>, message: &'static str) -> Result<()> {
    if by.owns(user) { Ok(()) } else { Err(Error::forbidden(message)) }
}
