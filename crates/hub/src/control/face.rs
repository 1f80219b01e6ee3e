//! An agent as callers from outside meet it: by name, by callers with a credential or without one, and conversations by the
//! name that a caller gave them.

use std::{sync::Arc, time::Duration};

use attache_protocol::{
    AgentId, ConversationId, RunId, TenantId,
    wire::{a2a::Switches, run::Run},
};
use attache_store::record::{AgentRef, NewConversation};
use tokio::time::Instant;

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    control::check,
    error::about,
    identity::{Action, Column, Guard},
};

/// The agent that a caller means, and the caller as it may ask it.
#[derive(Debug, Clone)]
pub struct Face {
    pub by: Principal,
    pub agent: AgentId,
    pub name: Arc<str>,
    pub switches: Arc<Switches>,
}

impl Handle {
    /// The agent with this name or id, or the hub's default one. Whoever shows no credential is served where the owner lets
    /// everybody in, and learns nothing about other agents.
    pub async fn face(&self, by: Option<Principal>, agent: Option<&str>) -> Result<Face> {
        let tenant = by.as_ref().map_or(self.tenant(), |by| by.tenant);
        let account = match self.named_face(tenant, agent).await {
            Ok(account) => account,
            Err(_) if by.is_none() => return Err(Error::unauthenticated("The request carries no credential.")),
            Err(error) => return Err(error),
        };
        let switches = Arc::new(Switches::of(account.a2a.as_ref()));
        let by = match by {
            Some(by) => {
                if by.column() == Column::Runtime || !self.reach(&by).await?.agent(&account).await? {
                    return Err(Error::not_found("agent"));
                }
                by
            }
            None => self.anonymous(account.id).await?,
        };
        Ok(Face { by, agent: account.id, name: account.name.into(), switches })
    }

    async fn named_face(&self, tenant: TenantId, agent: Option<&str>) -> Result<attache_store::record::Account> {
        let named = match (agent, &self.options().default_agent) {
            (Some(text), _) => check::agent_ref("agent", text).map_err(|_| Error::not_found("agent"))?,
            (None, Some(name)) => AgentRef::Name(name.clone()),
            (None, None) => {
                return Err(
                    Error::not_found("agent").hint("Say which agent you mean, or start the hub with --default-agent.")
                );
            }
        };
        let account = self.store().account(tenant, named).await.map_err(about("agent"))?;
        if account.archived_at.is_some() { Err(Error::not_found("agent")) } else { Ok(account) }
    }

    /// The conversation that this caller calls so. The same name means another conversation to another caller.
    pub fn conversation_called(&self, by: &Principal, name: &str) -> ConversationId {
        let mut hasher = blake3::Hasher::new_derive_key("attache conversations by their callers' names");
        hasher.update(by.tenant.uuid().as_bytes());
        match by.user.filter(|_| by.column() != Column::AgentKey) {
            Some(user) => hasher.update(user.uuid().as_bytes()),
            None => hasher.update(by.actor().as_bytes()),
        };
        hasher.update(b"\0").update(name.as_bytes());
        let mut half = [0; 16];
        half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        ConversationId::from_uuid(uuid::Builder::from_custom_bytes(half).into_uuid())
    }

    /// Makes it, unless it is there.
    pub async fn open_conversation(&self, by: &Principal, id: ConversationId) -> Result<()> {
        by.may(Action::CreateRun)?;
        let found = self.store().conversation(by.tenant, id).await;
        if !matches!(found, Err(attache_store::Error::NotFound)) {
            return found.map(drop).map_err(about("conversation"));
        }
        let new = NewConversation { id, title: None, metadata: None };
        match self.store().create_conversation(self.context(by), new).await {
            Ok(_) => Ok(()),
            // Two messages of a new conversation at the same time: the other one was quicker.
            Err(_) => self.store().conversation(by.tenant, id).await.map(drop).map_err(about("conversation")),
        }
    }

    /// The run as soon as it has ended or waits for somebody; as it is after `wait`, or when the hub drains.
    pub async fn await_run(&self, by: &Principal, run: RunId, wait: Option<Duration>) -> Result<Run> {
        let deadline = wait.map(|wait| Instant::now() + wait);
        let mut moved = self.bus().watch(Topic::Run(run));
        let mut guard = Guard::new(self, by);
        loop {
            let found = self.visible_run(by, run).await?;
            let waits = found.state.claim().is_some_and(|claim| claim.waits.waiting().is_some());
            if found.state.status().is_terminal()
                || waits
                || self.is_draining()
                || deadline.is_some_and(|at| at <= Instant::now())
            {
                return self.show_run(found).await;
            }
            let look_again = Instant::now() + self.options().poll_every;
            tokio::select! {
                () = moved.moved() => {}
                () = tokio::time::sleep_until(deadline.map_or(look_again, |at| at.min(look_again))) => {}
                () = self.drained() => {}
                error = guard.broken() => return Err(error),
            }
        }
    }
}
