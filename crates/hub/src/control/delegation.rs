//! Delegations as their daemons publish them. People see them here and can ask to end them. The daemons do the rest.

use std::time::Duration;

use attache_client::egress;
use attache_protocol::{
    Actor, DelegationId, Json, TenantId,
    wire::delegation::{DelegationCancellation, DelegationProjection, PublishedDelegation, PublishedDelegationList},
};
use attache_store::{
    Error as StoreError,
    record::{
        AgentRef,
        delegation::{DelegationFilter, DelegationRecord, DelegationUpdate},
        user::UserRef,
    },
};

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    check,
    control::PageRequest,
    error::{about, about_list},
    identity::{Action, Permit, StreamRight},
    visible_page::VisiblePage,
    waiter::Waiter,
};

const WHAT: &str = "delegation";
const MAX_PATHS: usize = 1000;

impl Handle {
    /// A daemon publishes the state of one of its delegations.
    pub async fn publish_delegation(
        &self,
        by: &Principal,
        id: DelegationId,
        projection: DelegationProjection,
    ) -> Result<PublishedDelegation> {
        let owner = by.may(Action::PublishDelegation)?.holder();
        let projection = checked(projection)?;
        let agent = match agent_of(&projection.peer_url) {
            Some(agent) => match self.store().account(by.tenant, agent).await {
                Ok(account) => Some(account.id),
                Err(StoreError::NotFound) => None,
                Err(error) => return Err(Error::from_store("agent", error)),
            },
            None => None,
        };
        let new = DelegationUpdate { id, owner, agent, status: projection.status, shown: Json::of(&projection) };
        let kept = self.store().publish_delegation(self.context(by), new).await.map_err(about(WHAT))?;
        if !is_live(&kept) {
            self.cut_tunnels_of(id);
        }
        self.show_delegation(kept).await
    }

    pub async fn delegation(&self, by: &Principal, id: DelegationId) -> Result<PublishedDelegation> {
        self.show_delegation(self.visible_delegation(by, id).await?).await
    }

    /// Newest first. An agent sees its own and its owner's.
    pub async fn delegations(&self, by: &Principal, page: PageRequest) -> Result<PublishedDelegationList> {
        let permit = by.may(Action::SeeDelegations)?;
        let mut visible = VisiblePage::new(page.page()?);
        while let Some(asked) = visible.next_read(self, by).await {
            let failed = about_list(WHAT, &asked);
            let listed =
                self.store().delegations(by.tenant, DelegationFilter::default(), asked).await.map_err(failed)?;
            let mut seen = Vec::with_capacity(listed.items.len());
            for found in &listed.items {
                let is_covered = permit.covers_others() || is_owner(by, found);
                seen.push(is_covered && !self.works_for_private_agent(by, found).await?);
            }
            visible.take(listed, &seen);
        }
        let (found, next_cursor) = visible.finish();
        let mut delegations = Vec::with_capacity(found.len());
        for found in found {
            delegations.push(self.show_delegation(found).await?);
        }
        Ok(PublishedDelegationList { delegations, next_cursor })
    }

    /// Asks the daemon to end the delegation. No effect if it has already ended.
    pub async fn cancel_delegation(&self, by: &Principal, id: DelegationId) -> Result<PublishedDelegation> {
        let permit = by.may(Action::CancelDelegation)?;
        let found = self.visible_delegation(by, id).await?;
        if !permit.covers_holder(&found.owner) {
            return Err(Error::not_found(WHAT));
        }
        let kept = self.store().cancel_delegation(self.context(by), id).await.map_err(about(WHAT))?;
        // The daemon revokes the folder when it receives this. Traffic through the hub's tunnel is cut immediately.
        self.cut_tunnels_of(id);
        self.show_delegation(kept).await
    }

    /// The delegation's daemon waits up to `wait` (at most a minute) for a request to end it.
    pub async fn delegation_cancellation(
        &self,
        by: &Principal,
        id: DelegationId,
        wait: Duration,
    ) -> Result<DelegationCancellation> {
        let _slot = self.wait_slot(by, wait)?;
        let waiter = Waiter::new(self, by, Topic::Tenant(by.tenant), Some(wait.min(Waiter::MAX_WAIT)));
        let mut waiter = waiter.with_right(StreamRight::May(Action::PublishDelegation));
        loop {
            let permit = waiter.principal().may(Action::PublishDelegation)?;
            let found = self.store().delegation(by.tenant, id).await.map_err(about(WHAT))?;
            if !permit.covers_holder(&found.owner) {
                return Err(Error::not_found(WHAT));
            }
            if found.cancel_requested || !waiter.changed().await? {
                return Ok(DelegationCancellation { cancel_requested: found.cancel_requested });
            }
        }
    }

    /// Whether it belongs to the caller and is live. Unknown, foreign and ended delegations get the same answer.
    pub(crate) async fn check_live_delegation(&self, permit: &Permit<'_>, id: DelegationId) -> Result<()> {
        let gone = || {
            let hint = "Publish it first with the same key: `PUT /api/v1/delegations/{id}`. Ended ones have no tunnel.";
            Error::not_found(WHAT).hint(hint)
        };
        match self.store().delegation(permit.by().tenant, id).await {
            Ok(found) if permit.covers_holder(&found.owner) && is_live(&found) => Ok(()),
            Ok(_) | Err(StoreError::NotFound) => Err(gone()),
            Err(error) => Err(Error::from_store(WHAT, error)),
        }
    }

    /// Whether the delegation is known to have ended.
    pub(crate) async fn has_delegation_ended(&self, tenant: TenantId, id: DelegationId) -> bool {
        match self.store().delegation(tenant, id).await {
            Ok(found) => !is_live(&found),
            Err(error) => matches!(error, StoreError::NotFound),
        }
    }

    async fn visible_delegation(&self, by: &Principal, id: DelegationId) -> Result<DelegationRecord> {
        let permit = by.may(Action::SeeDelegations)?;
        let found = self.store().delegation(by.tenant, id).await.map_err(about(WHAT))?;
        match (permit.covers_others() || is_owner(by, &found)) && !self.works_for_private_agent(by, &found).await? {
            true => Ok(found),
            false => Err(Error::not_found(WHAT)),
        }
    }

    /// Whether the folder went to an agent of this hub that is private to someone else: the agent's work is not shown to
    /// others, however it was asked for it.
    async fn works_for_private_agent(&self, by: &Principal, found: &DelegationRecord) -> Result<bool> {
        let is_theirs = by.role().is_some() || found.owner == by.holder();
        if is_owner(by, found) && is_theirs && !by.is_issued {
            return Ok(false);
        }
        let shown: DelegationProjection = found.shown.parse().map_err(|error| Error::internal(&error))?;
        match found.agent {
            Some(agent) => {
                let begun = shown.created_at.min(found.updated_at);
                Ok(!self.private_work(by).sees_work(agent, begun).await?)
            }
            // If the address is ours, nobody can tell any more that the agent wasn't private.
            None => Ok(agent_of(&shown.peer_url).is_some() && self.is_own_host(&shown.peer_url)),
        }
    }

    fn is_own_host(&self, url: &str) -> bool {
        let host = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let options = self.options();
        let own = [Some(options.origin()), options.reachable_origin()];
        let is_own = own.iter().flatten().any(|origin| origin.split("://").nth(1) == Some(host));
        is_own || host.split(':').next().is_some_and(|name| matches!(name, "127.0.0.1" | "localhost"))
    }

    /// The public view, with the owner's name.
    async fn show_delegation(&self, found: DelegationRecord) -> Result<PublishedDelegation> {
        let owner = match &found.owner {
            Actor::User(id) => {
                let user = self.store().user(found.tenant, UserRef::Id(*id)).await.map_err(about("user"))?;
                format!("user:{}", user.name)
            }
            Actor::Agent(id) => {
                let agent = self.store().account(found.tenant, AgentRef::Id(*id)).await.map_err(about("agent"))?;
                format!("agent:{}", agent.name)
            }
            other => other.to_string(),
        };
        Ok(PublishedDelegation {
            delegation_id: found.id,
            owner,
            updated_at: found.updated_at,
            cancel_requested: found.cancel_requested,
            delegation: found.shown.parse().map_err(|error| Error::internal(&error))?,
        })
    }
}

fn is_live(found: &DelegationRecord) -> bool {
    !found.status.has_ended() && !found.cancel_requested
}

/// Whether it belongs to the caller, or to the agent's owner.
fn is_owner(by: &Principal, found: &DelegationRecord) -> bool {
    found.owner == by.holder() || by.user.is_some_and(|user| found.owner == Actor::User(user))
}

/// The agent in an address of a hub, `…/a2a/{agent}`. The daemon may know this hub by any name, so only the path counts.
fn agent_of(peer_url: &str) -> Option<AgentRef> {
    let mut parts = peer_url.split(['?', '#', '/']).filter(|part| !part.is_empty());
    parts.find(|part| *part == "a2a")?;
    let name = percent_encoding::percent_decode_str(parts.next()?).decode_utf8().ok()?;
    check::agent_in_path(&name).ok()
}

/// Only what may be shown: names without paths, all of bounded size.
fn checked(projection: DelegationProjection) -> Result<DelegationProjection> {
    check::text("description", &projection.description, 0..=4000)?;
    check::line("peer_url", &projection.peer_url, 1..=2048)?;
    check::line("folder", &projection.folder, 1..=255)?;
    if projection.folder.contains(['/', '\\']) {
        return Err(Error::invalid("folder", "must be a folder name, not a path"));
    }
    check::line("device_name", &projection.device_name, 0..=200)?;
    for (field, text) in [("waits_for", &projection.waits_for), ("progress", &projection.progress)] {
        if let Some(text) = text {
            check::text(field, text, 0..=16_000)?;
        }
    }
    if let Some(changes) = &projection.changes {
        check::count("changes.changed_paths", changes.changed_paths.len(), MAX_PATHS)?;
        if changes.changed_paths.iter().any(|changed| changed.path.starts_with('/')) {
            return Err(Error::invalid("changes.changed_paths", "must be relative to the folder"));
        }
    }
    Ok(DelegationProjection { peer_url: egress::masked(&projection.peer_url), ..projection })
}
