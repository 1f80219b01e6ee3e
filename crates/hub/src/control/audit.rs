//! Pages of the tenant's log, with what is needed to check the chain.

use attache_protocol::{log, wire::audit::AuditPage};
use attache_store::record::Live;

use crate::{Handle, Principal, Result, control::check, error::about, identity::Action};

impl Handle {
    pub async fn audit(&self, by: &Principal, after: Option<i64>, limit: Option<usize>) -> Result<AuditPage> {
        by.may(Action::SeeAudit)?;
        let after = check::after(after)?;
        let page = self.store().log(by.tenant, after, check::limit(limit)?).await.map_err(about("log"))?;
        let next = page.rows.last().map_or(after, |row| row.seq);
        let floor_hash = log::hex(&page.floor_hash);
        Ok(AuditPage { events: page.rows, next, head: page.head, floor: page.floor, floor_hash })
    }

    /// How many runs wait and work right now.
    pub async fn live(&self, by: &Principal) -> Result<Live> {
        by.may(Action::SeeAgents)?;
        self.store().live(by.tenant).await.map_err(about("tenant"))
    }
}
