//! Runtimes for people: list, show, revoke.

use attache_protocol::{
    RuntimeId,
    wire::runtime::{Runtime, RuntimeList},
};

use crate::{
    Handle, Principal, Result, check,
    control::PageRequest,
    error::{about, about_list},
    identity::Action,
    render,
};

impl Handle {
    /// Active and ended runtimes, newest first, optionally of one agent by id or name.
    pub async fn runtimes(&self, by: &Principal, agent: Option<&str>, page: PageRequest) -> Result<RuntimeList> {
        by.may_all(Action::SeeRuntimes)?;
        let page = page.page()?;
        let agent = match agent {
            Some(agent) => Some(self.resolve_agent(by, agent).await?),
            None => None,
        };
        let failed = about_list("runtime", &page);
        let listed = self.store().runtimes(by.tenant, agent, page).await.map_err(failed)?;
        let agent_runtimes = listed.items.into_iter().map(render::runtime).collect();
        Ok(RuntimeList { agent_runtimes, next_cursor: listed.next })
    }

    pub async fn runtime(&self, by: &Principal, runtime: RuntimeId) -> Result<Runtime> {
        by.may_all(Action::SeeRuntimes)?;
        self.store().runtime(by.tenant, runtime).await.map(render::runtime).map_err(about("runtime"))
    }

    /// Fences the device and revokes its claims. Revoking again has no effect.
    pub async fn revoke_runtime(&self, by: &Principal, runtime: RuntimeId) -> Result<Runtime> {
        let permit = by.may(Action::RevokeRuntime)?;
        let found = self.store().runtime(by.tenant, runtime).await.map_err(about("runtime"))?;
        self.find_agent(&permit, &found.agent.to_string()).await?;
        let revoked = self.store().revoke_runtime(self.context(by), runtime).await.map_err(about("runtime"))?;
        self.credentials().forget_agent(revoked.agent);
        Ok(render::runtime(revoked))
    }

    /// Resolves an agent's id or name in a filter.
    pub(crate) async fn resolve_agent(&self, by: &Principal, agent: &str) -> Result<attache_protocol::AgentId> {
        match check::agent_ref("agent_id", agent)? {
            attache_store::record::AgentRef::Id(id) => Ok(id),
            name @ attache_store::record::AgentRef::Name(_) => {
                let account = self.store().account(by.tenant, name).await.map_err(about("agent"))?;
                match self.caller_access(by).await?.agent(&account).await? {
                    true => Ok(account.id),
                    false => Err(crate::Error::not_found("agent")),
                }
            }
        }
    }
}
