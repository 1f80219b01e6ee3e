//! Pages of the tenant's log, with the data needed to verify the chain.

use attache_protocol::{
    TenantId, log,
    wire::audit::{AuditPage, Checkpoint},
};
use attache_store::record::LiveCounts;
use base64ct::{Base64UrlUnpadded, Encoding as _};

use crate::{Handle, Principal, Result, check, error::about, identity::Action};

impl Handle {
    pub async fn audit(&self, by: &Principal, after: Option<i64>, limit: Option<usize>) -> Result<AuditPage> {
        by.may(Action::SeeAudit)?;
        let after = check::after(after)?;
        let page = self.store().log(by.tenant, after, check::limit(limit)?).await.map_err(about("log"))?;
        let next = page.rows.last().map_or(after, |row| row.seq);
        let floor_hash = log::hex(&page.floor_hash);
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

    /// Signs that the log contains this row. Access to the database is not enough to forge it: the key is in a separate
    /// file.
    fn checkpoint(&self, tenant_id: TenantId, seq: i64, hash: &[u8; 32]) -> Result<Checkpoint> {
        let (hash, key) = (log::hex(hash), self.card_key().public());
        let mut checkpoint = Checkpoint { tenant_id, seq, hash, at: self.now(), key, signature: String::new() };
        let signature = self.card_key().sign(checkpoint.message().as_bytes())?;
        checkpoint.signature = Base64UrlUnpadded::encode_string(&signature);
        Ok(checkpoint)
    }

    /// How many runs are queued and running right now.
    pub async fn live(&self, by: &Principal) -> Result<LiveCounts> {
        by.may(Action::SeeAgents)?;
        self.store().live(by.tenant).await.map_err(about("tenant"))
    }
}
