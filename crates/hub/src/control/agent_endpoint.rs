//! An agent as outside callers address it: by name, with or without a credential.

use std::sync::Arc;

use attache_protocol::{
    AgentId, TenantId,
    wire::{a2a_options::A2aOptions, runtime::DeclaredExtension},
};

use crate::{Error, Handle, Principal, Result, check, error::about, identity::RoleColumn};

/// The agent a caller addresses, and the caller with its rights to it.
#[derive(Debug, Clone)]
pub struct AgentEndpoint {
    pub by: Principal,
    pub agent: AgentId,
    pub name: Arc<str>,
    pub switches: Arc<A2aOptions>,
    /// The A2A extensions its active runtime declares.
    pub declared: Arc<[String]>,
    /// The media types it accepts. Empty means any.
    pub input_modes: Arc<[String]>,
}

impl Handle {
    /// The agent with this name or id, or the hub's default agent. A caller without a credential is served only if the
    /// owner allows anonymous callers, and learns nothing about other agents.
    pub async fn agent_endpoint(&self, by: Option<Principal>, agent: Option<&str>) -> Result<AgentEndpoint> {
        let tenant = by.as_ref().map_or(self.tenant(), |by| by.tenant);
        let account = match self.named_endpoint(tenant, agent).await {
            Ok(account) => account,
            Err(_) if by.is_none() => return Err(Error::no_credential()),
            Err(error) => return Err(error),
        };
        let switches = Arc::new(A2aOptions::of(account.a2a.as_ref()));
        let by = match by {
            Some(by) => {
                if by.column() == RoleColumn::Runtime || !self.caller_access(&by).await?.agent(&account).await? {
                    return Err(Error::not_found("agent"));
                }
                by
            }
            None => self.anonymous(account.id).await?,
        };
        let input_modes = switches.input_modes.clone().into();
        let declared = account.runtime.map(declared).unwrap_or_default().into();
        Ok(AgentEndpoint { by, agent: account.id, name: account.name.into(), switches, declared, input_modes })
    }

    async fn named_endpoint(
        &self,
        tenant: TenantId,
        agent: Option<&str>,
    ) -> Result<attache_store::record::AccountRecord> {
        let named = match agent.or_else(|| self.default_agent_name()) {
            Some(text) => check::agent_in_path(text)?,
            None => {
                return Err(Error::not_found("agent").hint("Name an agent, or start the hub with --default-agent."));
            }
        };
        let account = self.store().account(tenant, named).await.map_err(about("agent"))?;
        if account.archived_at.is_some() { Err(Error::not_found("agent")) } else { Ok(account) }
    }
}

pub(super) fn declared(runtime: attache_store::record::RuntimeRecord) -> Vec<String> {
    let extensions: Vec<DeclaredExtension> =
        runtime.extensions.and_then(|given| given.parse().ok()).unwrap_or_default();
    extensions.into_iter().map(|extension| extension.uri).collect()
}
