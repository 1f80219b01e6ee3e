//! Pages of the tenant's log, with the data needed to verify the chain.

use std::collections::HashMap;

use attache_protocol::{
    EventKind, TenantId, WorkspaceId, digest,
    log::LogRow,
    wire::audit::{AuditPage, Checkpoint},
};
use attache_store::record::LiveCounts;
use base64ct::{Base64UrlUnpadded, Encoding as _};

use crate::{Error, Handle, Principal, Result, check, error::about, identity::Action};

impl Handle {
    pub async fn audit(&self, by: &Principal, after: Option<i64>, limit: Option<usize>) -> Result<AuditPage> {
        by.may_all(Action::SeeAudit)?;
        let after = check::after(after)?;
        let mut page = self.store().log(by.tenant, after, check::limit(limit)?).await.map_err(about("log"))?;
        self.withhold_private(by, &mut page.rows).await?;
        let next = page.rows.last().map_or(after, |row| row.seq);
        let floor_hash = digest::hex(&page.floor_hash);
        let kept_for = i64::try_from(self.options().keep_log.as_millis()).ok();
        let checkpoint = self.checkpoint(by.tenant, page.head, &page.head_hash)?;
        Ok(AuditPage {
            events: page.rows,
            next,
            head: page.head,
            floor: page.floor,
            floor_hash,
            kept_for_ms: kept_for,
            checkpoint: Some(checkpoint),
        })
    }

    /// Removes the data of rows about the work of private agents that this reader may not see.
    pub(crate) async fn withhold_private(&self, by: &Principal, rows: &mut [LogRow]) -> Result<()> {
        let (mut reach, mut hidden_runs, mut has_hidden) = (self.private_work(by), HashMap::new(), None);
        for row in rows {
            let is_hidden = match row.run {
                Some(run) => {
                    let known = match hidden_runs.get(&run) {
                        Some(known) => *known,
                        None => {
                            let known = match self.store().run(by.tenant, run).await {
                                Ok(record) => Some(!reach.sees_run(&record).await?),
                                // A damaged row shows as little as a deleted one.
                                Err(attache_store::Error::NotFound | attache_store::Error::Internal(_)) => None,
                                Err(error) => return Err(Error::from_store("run", error)),
                            };
                            hidden_runs.insert(run, known);
                            known
                        }
                    };
                    match known {
                        Some(is_hidden) => is_hidden,
                        None if !row.event_kind().is_some_and(EventKind::quotes_work) => false,
                        // The run is gone or unreadable, and with it whose it was.
                        None => match has_hidden {
                            Some(has_hidden) => has_hidden,
                            None => *has_hidden.insert(reach.has_hidden_agents().await?),
                        },
                    }
                }
                None if row.kind == EventKind::ChannelMessage => self.is_channel_hidden(by, row).await?,
                None if row.kind == EventKind::ArtifactChanged => self.is_artifact_hidden(by, row).await?,
                None => false,
            };
            if is_hidden {
                row.withhold();
            }
        }
        Ok(())
    }

    /// A file's name tells about the work in its conversation.
    async fn is_artifact_hidden(&self, by: &Principal, row: &LogRow) -> Result<bool> {
        let workspace: Option<WorkspaceId> = row.data.text_member("workspace_id").and_then(|id| id.parse().ok());
        let Some(workspace) = workspace else { return Ok(true) };
        match self.store().conversation(by.tenant, workspace.conversation()).await {
            Ok(found) => Ok(!self.private_work(by).sees_conversation(&found).await?),
            Err(attache_store::Error::NotFound) => self.private_work(by).has_hidden_agents().await,
            Err(error) => Err(Error::from_store("conversation", error)),
        }
    }

    async fn is_channel_hidden(&self, by: &Principal, row: &LogRow) -> Result<bool> {
        let channel = row.data.text_member("channel_id").and_then(|id| id.parse().ok());
        let Some(channel) = channel else { return Ok(true) };
        match self.store().channel(by.tenant, channel).await {
            Ok(found) => match found.agent {
                Some(agent) => Ok(!self.private_work(by).sees_work(agent, row.at).await?),
                None => Ok(false),
            },
            Err(attache_store::Error::NotFound) => self.private_work(by).has_hidden_agents().await,
            Err(error) => Err(Error::from_store("channel", error)),
        }
    }

    /// Signs that the log contains this row. Access to the database is not enough to forge it: the key is in a separate
    /// file.
    fn checkpoint(&self, tenant_id: TenantId, seq: i64, hash: &[u8; 32]) -> Result<Checkpoint> {
        let (hash, key) = (digest::hex(hash), self.card_key().public());
        let mut checkpoint = Checkpoint { tenant_id, seq, hash, at: self.now(), key, signature: String::new() };
        let signature = self.card_key().sign(checkpoint.message().as_bytes())?;
        checkpoint.signature = Base64UrlUnpadded::encode_string(&signature);
        Ok(checkpoint)
    }

    /// How many runs are queued and running right now.
    pub async fn live(&self, by: &Principal) -> Result<LiveCounts> {
        by.may_all(Action::SeeAgents)?;
        self.store().live(by.tenant).await.map_err(about("tenant"))
    }
}
