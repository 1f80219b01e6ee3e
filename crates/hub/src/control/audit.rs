//! Pages of the tenant's log, with what is needed to check the chain.

use attache_protocol::{
    TenantId, log,
    wire::audit::{AuditPage, Checkpoint},
};
use attache_store::record::LiveCounts;
use base64ct::{Base64UrlUnpadded, Encoding as _};

use crate::{Handle, Principal, Result, control::check, error::about, identity::Action};

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

    /// Signs that the log has this row. Whoever changes the database cannot do that: the key lies in a file of its own.
    fn checkpoint(&self, tenant_id: TenantId, seq: i64, hash: &[u8; 32]) -> Result<Checkpoint> {
        let (hash, key) = (log::hex(hash), self.card_key().public());
        let mut checkpoint = Checkpoint { tenant_id, seq, hash, at: self.now(), key, signature: String::new() };
        let signature = self.card_key().sign(checkpoint.message().as_bytes())?;
        checkpoint.signature = Base64UrlUnpadded::encode_string(&signature);
        Ok(checkpoint)
    }

    /// How many runs wait and work right now.
    pub async fn live(&self, by: &Principal) -> Result<LiveCounts> {
        by.may(Action::SeeAgents)?;
        self.store().live(by.tenant).await.map_err(about("tenant"))
    }
}
