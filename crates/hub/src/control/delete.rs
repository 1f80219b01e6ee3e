//! Deletes ended runs, and conversations with their runs.

use attache_protocol::{ConversationId, RunId};
use attache_store::record::RetentionResult;

use crate::{Error, Handle, Principal, Result, error::about, identity::Action};

impl Handle {
    /// Deletes an ended run with its result and everything that belongs to it.
    pub async fn delete_run(&self, by: &Principal, run: RunId) -> Result<()> {
        self.find_run(&by.may(Action::DeleteRun)?, run).await?;
        let removed = self.store().delete_run(self.context(by), run).await.map_err(about("run"))?;
        self.remove_blobs(removed.blobs).await
    }

    /// Deletes a conversation, with its runs, messages and artifacts.
    pub async fn delete_conversation(&self, by: &Principal, conversation: ConversationId) -> Result<()> {
        let permit = by.may(Action::DeleteConversation)?;
        let found = self.store().conversation(by.tenant, conversation).await.map_err(about("conversation"))?;
        // Its runs are deleted with it, so the caller must be able to see all of them.
        self.check_kept(by, conversation, "conversation").await?;
        if !permit.covers_user(found.user) {
            return Err(Error::forbidden("This conversation belongs to someone else."));
        }
        loop {
            let removed = self.store().delete_conversation(self.context(by), conversation).await;
            let RetentionResult { more, blobs } = removed.map_err(about("conversation"))?;
            self.remove_blobs(blobs).await?;
            if !more {
                return Ok(());
            }
        }
    }
}
