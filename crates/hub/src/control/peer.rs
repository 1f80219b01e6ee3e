//! Outside A2A agents: what their owners say of them, and what the bridge that works for them needs to know and to keep.

use attache_client::egress;
use attache_protocol::{
    AgentId, Json, RunId, Secret, TenantId,
    log::{hex, unhex},
    wire::{
        account::{Account, PeerRequest, PeerView, TrustCard},
        key::{CreateKeyRequest, Scope},
    },
};
use attache_store::{
    Context,
    record::{
        self, AgentRef, Page, RuntimeKind,
        peer::{NewPeer, Peer, PeerTask, Pin},
    },
};

use crate::{
    Error, Handle, Principal, Result,
    bus::{Topic, Watch},
    control::{Registered, check},
    error::about,
    identity::Action,
    render,
};

const MAX_URL: usize = 2048;
const MAX_KEY: usize = 8 * 1024;

/// Hears that somebody made, changed, trusted or archived an outside agent.
#[derive(Debug)]
pub struct PeerHints(Watch);

// === impl Handle ===

impl Handle {
    /// The card that waits becomes the trusted one.
    pub async fn trust_card(&self, by: &Principal, agent: &str, request: TrustCard) -> Result<Account> {
        let agent = self.own_agent(by, Action::EditAgent, agent).await?;
        let seen = match &request.digest {
            Some(digest) => Some(unhex(digest).ok_or_else(|| Error::invalid("digest", "must be 64 hex digits"))?),
            None => None,
        };
        let account = self.store().account(by.tenant, agent).await.map_err(about("agent"))?;
        let trusted = self.store().trust_card(self.context(by), AgentRef::Id(account.id), seen).await;
        trusted.map_err(|error| match error {
            attache_store::Error::NotFound => Error::from_store("agent", attache_store::Error::NothingOffered)
                .say("This agent is not an outside one, so there is no card to trust."),
            attache_store::Error::VersionChanged => {
                Error::from_store("agent", error).say("Another card waits now than the one that you looked at.")
            }
            other => Error::from_store("agent", other),
        })?;
        self.show_account(account).await
    }

    /// Whether a request may make an agent an outside one; before anything is changed.
    pub(crate) async fn check_peer(&self, peer: Option<&PeerRequest>) -> Result<()> {
        let Some(PeerRequest { url, key }) = peer else { return Ok(()) };
        check::line("peer.url", url, 1..=MAX_URL)?;
        if let Some(key) = key {
            check::line("peer.key", key.expose(), 0..=MAX_KEY)?;
        }
        self.check_egress("peer.url", url).await
    }

    /// Makes an agent an outside one, or changes it. An empty key takes the one away that there is.
    pub(crate) async fn set_peer(&self, context: Context, agent: AgentId, request: PeerRequest) -> Result<()> {
        let PeerRequest { url, key } = request;
        let sealed = key.map(|key| match key.expose().is_empty() {
            true => None,
            false => Some(self.seal(&sealed_for(agent), key.expose().as_bytes())),
        });
        let set = self.store().set_peer(context, AgentRef::Id(agent), NewPeer { url, sealed }).await;
        set.map(drop).map_err(about("agent"))
    }

    /// Registers an outside agent by its url. Its key is for what it asks of others here; what it is asked goes to its url.
    pub(crate) async fn register_peer(&self, by: &Principal, name: String, url: String) -> Result<Registered> {
        self.check_egress("url", &url).await?;
        let agent = self.agent_named(by, &name).await?;
        let account = self.store().account(by.tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
        // As when it registers again without a url: the key before is void.
        if let Some(former) = account.runtime.filter(|runtime| runtime.kind == RuntimeKind::AgentKey) {
            self.store().revoke_runtime(self.context(by), former.id).await.map_err(about("runtime"))?;
            self.credentials().forget_agent(agent);
        }
        self.set_peer(self.context(by), agent, PeerRequest { url, key: None }).await?;
        let key_name = format!("outside agent {agent}");
        self.revoke_named(by, &key_name).await?;
        let scopes = Some(vec![Scope::Read, Scope::Call]);
        let request = CreateKeyRequest { name: key_name, scopes, ..CreateKeyRequest::default() };
        let created = self.create_key(by, request).await?;
        let api_key = created.api_key.ok_or_else(|| Error::internal(&"a key without a secret"))?;
        Ok(Registered { api_key: Secret::new(api_key), agent_id: name, account_id: agent })
    }

    /// Revokes the keys of the caller's user that have this name.
    async fn revoke_named(&self, by: &Principal, name: &str) -> Result<()> {
        let mut cursor = None;
        loop {
            let page = Page { limit: check::MAX_PAGE, cursor };
            let listed = self.store().keys(by.tenant, by.user, page).await.map_err(about("key"))?;
            let named = |key: &record::Key| key.name == name && key.user == by.user && key.revoked_at.is_none();
            for key in listed.items.into_iter().filter(named) {
                self.revoke_key(by, key.id).await?;
            }
            cursor = listed.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// The account as people see it, with what is known of the outside agent behind it.
    pub(crate) async fn show_account(&self, account: record::Account) -> Result<Account> {
        // An agent that a device works for is no outside one, and need not be looked up.
        let paired = account.runtime.as_ref().is_some_and(|runtime| runtime.kind != RuntimeKind::Hub);
        let peer = match paired {
            true => None,
            false => self.store().peer(account.tenant, account.id).await.map_err(about("agent"))?,
        };
        Ok(Account { peer: peer.map(view), ..render::account(account) })
    }

    // --- for the bridge

    /// Every outside agent that is not archived, of every tenant.
    pub async fn peers(&self) -> Result<Vec<(TenantId, Peer)>> {
        self.store().peers().await.map_err(about("agent"))
    }

    pub async fn peer(&self, tenant: TenantId, agent: AgentId) -> Result<Option<Peer>> {
        self.store().peer(tenant, agent).await.map_err(about("agent"))
    }

    pub fn watch_peers(&self) -> PeerHints {
        PeerHints(self.bus().watch(Topic::Peers))
    }

    /// The key that its owner gave for it.
    pub fn peer_key(&self, peer: &Peer) -> Result<Option<Secret<String>>> {
        let Some(sealed) = &peer.sealed else { return Ok(None) };
        let opened = self.unseal(&sealed_for(peer.agent), sealed).map_err(|error| Error::internal(&error))?;
        let text = String::from_utf8(opened.expose().clone()).map_err(|error| Error::internal(&error))?;
        Ok(Some(Secret::new(text)))
    }

    /// Trusts the first card that was read from the url.
    pub async fn pin_card(
        &self,
        tenant: TenantId,
        agent: AgentId,
        url: &str,
        digest: [u8; 32],
        card: Json,
    ) -> Result<Peer> {
        let card = Pin { digest, card, pinned_at: self.now() };
        self.store().pin_card(self.by_itself(tenant), agent, url, card).await.map_err(about("agent"))
    }

    /// Keeps a card that is not the trusted one until its owner says something, and why.
    pub async fn offer_card(
        &self,
        tenant: TenantId,
        agent: AgentId,
        url: &str,
        digest: [u8; 32],
        card: Json,
        problem: &str,
    ) -> Result<Peer> {
        let card = Pin { digest, card, pinned_at: self.now() };
        self.store().offer_card(self.by_itself(tenant), agent, url, card, problem).await.map_err(about("agent"))
    }

    /// Why the outside agent cannot be worked with at the moment, or that it can.
    pub async fn note_peer(&self, agent: AgentId, problem: Option<String>) -> Result<()> {
        self.store().note_peer(agent, problem).await.map_err(about("agent"))
    }

    pub async fn peer_task(&self, tenant: TenantId, run: RunId) -> Result<Option<PeerTask>> {
        self.store().peer_task(tenant, run).await.map_err(about("run"))
    }

    /// The newest task that has this id at the outside agent.
    pub async fn peer_task_by_id(&self, agent: AgentId, peer_task_id: &str) -> Result<Option<PeerTask>> {
        self.store().peer_task_by_id(agent, peer_task_id).await.map_err(about("agent"))
    }

    /// Those of runs that have not ended.
    pub async fn open_peer_tasks(&self, agent: AgentId) -> Result<Vec<PeerTask>> {
        self.store().open_peer_tasks(agent).await.map_err(about("agent"))
    }

    fn by_itself(&self, tenant: TenantId) -> Context {
        Context::new(tenant, Context::SYSTEM, self.now())
    }
}

/// The use for which an outside agent's key is sealed.
fn sealed_for(agent: AgentId) -> String {
    format!("peer:{agent}")
}

fn view(peer: Peer) -> PeerView {
    PeerView {
        url: egress::masked(&peer.url),
        pinned_digest: peer.pin.as_ref().map(|pin| hex(&pin.digest)),
        pinned_at: peer.pin.map(|pin| pin.pinned_at),
        offered_digest: peer.offered.map(|offered| hex(&offered.digest)),
        problem: peer.problem,
        has_key: peer.sealed.is_some(),
    }
}

// === impl PeerHints ===

impl PeerHints {
    /// Resolves at once if something changed since the last call, else with the next change.
    pub async fn moved(&mut self) {
        self.0.moved().await;
    }
}
