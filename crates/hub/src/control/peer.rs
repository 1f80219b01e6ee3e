//! Outside agents: their accounts, trusted cards, and what a bridge to them needs.

use std::time::Duration;

use attache_a2a_wire::AgentCard;
use attache_client::{
    a2a::{self, CardSignatureTrust, DiscoveredPeer, PeerCredentials},
    egress,
};
use attache_protocol::{
    AgentId, Code, KeyPin, Secret, TenantId,
    secret::Kind,
    wire::{
        account::{Account, AccountRequest, PeerRequest, Skill, TrustRequest},
        key::{KeyScope, Role},
    },
};
use attache_store::{
    WriteContext,
    record::{self, AgentRef, KeyKind, NewKey, RuntimeKind, peer as store},
};

use crate::{
    Error, Handle, Principal, Result,
    bus::{Topic, TopicWatch},
    check,
    control::AgentRegistration,
    error::about,
    identity::Action,
    render,
};

const MAX_KEY: usize = 8192;
/// Limits for the description and skills taken from a card.
const MAX_TEXT: usize = 4096;
const MAX_SKILLS: usize = 50;

/// An outside agent as a bridge works with it.
#[derive(Debug, Clone)]
pub struct OutsideAgent {
    pub tenant: TenantId,
    pub agent: AgentId,
    pub url: String,
    pub credentials: PeerCredentials,
    /// The trusted card and its pin.
    pub card: Option<(KeyPin, AgentCard)>,
    /// Whether a changed card is waiting to be trusted.
    pub is_changed: bool,
    pub problem: Option<String>,
    /// The trusted card's ETag, if it was read just now.
    pub seen: Option<a2a::CardETag>,
}

/// Wakes when somebody adds, changes, trusts or archives an outside agent.
#[derive(Debug)]
pub struct OutsideAgentWatch(TopicWatch);

/// The peer a request asks for, after its card was read.
#[derive(Debug)]
pub(crate) struct PeerLookup {
    url: String,
    /// `None`: the key stays as it is.
    key: Option<Secret<String>>,
    found: DiscoveredPeer,
}

/// Why a card whose signature can't be verified is accepted anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CardTrust {
    /// A person checked this exact card, now or earlier.
    Vouched,
    Unheard,
}

// === impl Handle ===

impl Handle {
    /// Reads the card of an agent to be added, and rejects agents that can't be used.
    pub(crate) async fn look_at_peer(
        &self,
        request: PeerRequest,
        known: Option<&record::AccountRecord>,
    ) -> Result<PeerLookup> {
        let PeerRequest { url, key, card_pin } = request;
        check::line("peer.url", &url, 1..=2048)?;
        if url.contains('?') {
            return Err(Error::invalid("peer.url", "must not have a query; send a secret as `peer.key`"));
        }
        if let Some(key) = &key {
            check::line("peer.key", key, 0..=MAX_KEY)?;
        }
        let expected = card_pin.map(|pin| pin.parse::<KeyPin>()).transpose();
        let expected =
            expected.map_err(|_| Error::invalid("peer.card_pin", "must be `sha256:` followed by 64 hex digits"))?;
        // The store would refuse it too, but only after the rest of the change.
        let paired =
            |account: &record::AccountRecord| account.runtime.as_ref().is_some_and(|it| it.kind != RuntimeKind::Hub);
        if known.is_some_and(paired) {
            return Err(Error::from_store("agent", attache_store::Error::IsPaired));
        }
        self.check_egress("peer.url", &url).await?;
        let key = key.map(|key| Secret::new(key.trim().to_owned()));
        let credentials = match (&key, known) {
            (Some(key), _) if key.expose().is_empty() => PeerCredentials::none(),
            (Some(key), _) => PeerCredentials::key(key.clone()),
            (None, Some(account)) => {
                let peer = self.store().peer(account.tenant, account.id).await.map_err(about("agent"))?;
                // A key given for one URL is not sent to another.
                peer.filter(|peer| peer.url == url)
                    .map_or_else(PeerCredentials::none, |peer| self.credentials_of(&peer))
            }
            (None, None) => PeerCredentials::none(),
        };
        let unusable = |why: &dyn std::fmt::Display| {
            // No full stop: the reason may end with a pin to copy.
            Error::invalid("peer.url", "can't be added as an agent")
                .say(format!("`peer.url` can't be added as an agent: {why}"))
        };
        let found = a2a::discover(&self.options().egress, &url, &credentials, &[]).await;
        let found = found.map_err(|error| unusable(&error))?;
        let peer = a2a::PeerClient::new(&self.options().egress, &found.card, credentials.clone());
        let peer = peer.map_err(|error| unusable(&error))?;
        // A caller who gives the card's pin has checked it.
        let unless =
            format!("If you have checked the card and trust it, pass its pin: --card-pin {}", found.fingerprint);
        match found.trust() {
            CardSignatureTrust::Forged(why) => {
                return Err(unusable(&format!("its card's signature is invalid: {why}.")));
            }
            CardSignatureTrust::Unknown(why) if expected.is_none() => {
                return Err(unusable(&format!("its card's signature can't be verified: {why}. {unless}")));
            }
            CardSignatureTrust::Unknown(_) | CardSignatureTrust::Verified | CardSignatureTrust::Unsigned => {}
        }
        if let Some(elsewhere) =
            peer.interface().elsewhere(&url).filter(|_| expected.is_none() && !credentials.is_none())
        {
            return Err(unusable(&format!(
                "your key would be sent to {elsewhere}, which is not the host of its card. {unless}"
            )));
        }
        if expected.is_some_and(|expected| expected != found.fingerprint) {
            let shown = format!("does not match the card, whose pin is {}", found.fingerprint);
            return Err(Error::invalid("peer.card_pin", &shown));
        }
        Ok(PeerLookup { url, key, found })
    }

    /// Links the account to the outside agent. The card just read becomes the trusted one, unless another already is.
    pub(crate) async fn keep_peer(
        &self,
        by: &Principal,
        account: &record::AccountRecord,
        looked: PeerLookup,
    ) -> Result<()> {
        let PeerLookup { url, key, found } = looked;
        let agent = account.id;
        let seal = |key: Secret<String>| {
            let key = key.expose().as_bytes();
            (!key.is_empty()).then(|| self.seal(&sealed_for(agent), key))
        };
        let new = store::NewPeer { url: url.clone(), sealed: key.map(seal), set_by: by.own_user() };
        self.store().set_peer(self.context(by), AgentRef::Id(agent), new).await.map_err(about("agent"))?;
        self.take_card(self.context(by), agent, &url, &found, CardTrust::Vouched).await?;
        self.bus().wake([Topic::Peers]);
        Ok(())
    }

    /// Registers an outside agent by its URL. Its key is for calls it makes here. Calls to it go to its URL.
    pub(crate) async fn register_peer(&self, by: &Principal, name: String, url: String) -> Result<AgentRegistration> {
        let looked = self.look_at_peer(PeerRequest { url, key: None, card_pin: None }, None).await?;
        let agent = self.agent_named(by, &name).await?;
        let account = self.store().account(by.tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
        // As when it registers again without a URL: the previous key is revoked.
        if let Some(former) = account.runtime.as_ref().filter(|runtime| runtime.kind == RuntimeKind::AgentKey) {
            self.store().revoke_runtime(self.context(by), former.id).await.map_err(about("runtime"))?;
            self.credentials().forget_agent(agent);
        }
        self.keep_peer(by, &account, looked).await?;
        for former in self.every_key(by, KeyKind::Api).await? {
            if former.agent == Some(agent) && former.revoked_at.is_none() {
                self.end_key(by, former.id).await?;
            }
        }
        let api_key = Kind::ApiKey.generate(self.env());
        // The agent's key, not a person's: access rules decide what it may reach.
        let key = NewKey {
            id: self.env().key_id(),
            opening: None,
            issuer: by.key().filter(|_| by.is_issued),
            agent: Some(agent),
            name: format!("outside agent {agent}"),
            role: by.role().map_or(Role::Viewer, |role| role.min(Role::Operator)),
            user: account.owner,
            scopes: Some(vec![KeyScope::Read, KeyScope::Call]),
            secret: api_key.hash(),
            expires_at: by.ends_at(),
        };
        self.store().create_key(self.context(by), key).await.map_err(about("agent"))?;
        Ok(AgentRegistration { api_key, agent_id: name, account_id: agent })
    }

    /// Makes the offered card the trusted one.
    pub async fn trust_peer(&self, by: &Principal, agent: &str, request: TrustRequest) -> Result<Account> {
        let agent = self.find_agent(&by.may(Action::EditAgent)?, agent).await?;
        let seen = request.card_pin.map(|pin| pin.parse::<KeyPin>()).transpose();
        let seen = seen.map_err(|_| Error::invalid("card_pin", "must be `sha256:` followed by 64 hex digits"))?;
        let seen = seen.map(KeyPin::digest);
        let account = self.store().account(by.tenant, agent).await.map_err(about("agent"))?;
        // The trusted card decides where the owner's key and tasks go.
        self.check_caller(by, &account).await?;
        self.check_forwarding(by).await?;
        self.check_owner(by, account.owner).await?;
        if seen.is_none() {
            self.check_offer(&account).await?;
        }
        let trusted = self.store().trust_card(self.context(by), AgentRef::Id(account.id), seen).await;
        trusted.map_err(|error| {
            let sentence = match &error {
                attache_store::Error::NotFound => "This is not an outside agent, so it has no card to trust.",
                attache_store::Error::VersionChanged => "The card has changed again since you checked it.",
                _ => return Error::from_store("agent", error),
            };
            let error = match error {
                attache_store::Error::NotFound => attache_store::Error::NothingOffered,
                other => other,
            };
            Error::from_store("agent", error).say(sentence)
        })?;
        self.show_account(account).await
    }

    /// A card that sends the key to another host is trusted only by its pin.
    async fn check_offer(&self, account: &record::AccountRecord) -> Result<()> {
        let peer = self.store().peer(account.tenant, account.id).await.map_err(about("agent"))?;
        let Some(store::PeerRecord { url, sealed: Some(_), offered: Some(offered), .. }) = peer else { return Ok(()) };
        let interface = a2a::read_card(&offered.card).and_then(|card| a2a::PeerInterface::choose(&card).ok());
        match interface.and_then(|interface| interface.elsewhere(&url)) {
            None => Ok(()),
            Some(elsewhere) => {
                let pin = KeyPin::from_digest(offered.digest);
                let text = format!(
                    "With the new card, your key would be sent to {elsewhere}, not to the card's host. If that is correct, \
                     trust it by its pin: attache agents trust {} --card-pin {pin}",
                    account.name
                );
                Err(Error::new(Code::InvalidRequest, text))
            }
        }
    }

    /// The public view of the account, including the outside agent it stands for.
    pub(crate) async fn show_account(&self, account: record::AccountRecord) -> Result<Account> {
        let peer = match &account.runtime {
            Some(runtime) if runtime.kind != record::RuntimeKind::Hub => None,
            Some(_) | None => self.store().peer(account.tenant, account.id).await.map_err(about("agent"))?,
        };
        Ok(Account { peer: peer.as_ref().map(render::peer), ..render::account(account) })
    }

    /// All outside agents of this hub, for its bridge.
    pub async fn outside_agents(&self) -> Result<Vec<OutsideAgent>> {
        let peers = self.store().peers().await.map_err(about("agent"))?;
        Ok(peers.into_iter().map(|(tenant, peer)| self.outside(tenant, peer)).collect())
    }

    pub fn outside_changes(&self) -> OutsideAgentWatch {
        OutsideAgentWatch(self.bus().watch(Topic::Peers))
    }

    /// Reads an outside agent's card again. The first card is trusted. A card that differs from the trusted one is
    /// offered to the owner and not used.
    pub async fn read_card(&self, outside: &OutsideAgent) -> Result<OutsideAgent> {
        let OutsideAgent { tenant, agent, url, credentials, .. } = outside;
        if let Some(seen) = outside.seen.as_ref().filter(|_| !outside.is_changed && outside.problem.is_none())
            && a2a::is_unchanged(&self.options().egress, seen, credentials).await == Ok(true)
        {
            return Ok(outside.clone());
        }
        let found = match a2a::discover(&self.options().egress, url, credentials, &[]).await {
            Ok(found) => found,
            Err(error) => {
                let problem = Some(error.to_string());
                self.store().note_peer(*agent, problem.clone()).await.map_err(about("agent"))?;
                return Ok(OutsideAgent { problem, ..outside.clone() });
            }
        };
        let context = WriteContext::new(*tenant, WriteContext::SYSTEM, self.now());
        // The person who adds it may be about to confirm it.
        if let (None, CardSignatureTrust::Unknown(why)) = (&outside.card, found.trust()) {
            tracing::warn!(agent.id = %agent, %why, "the first card of an outside agent can't be verified");
            return Ok(outside.clone());
        }
        let is_known = outside.card.as_ref().is_some_and(|(pin, _)| *pin == found.fingerprint);
        let belief = if is_known { CardTrust::Vouched } else { CardTrust::Unheard };
        let peer = self.take_card(context, *agent, url, &found, belief).await?;
        Ok(OutsideAgent { seen: found.seen, ..self.outside(*tenant, peer) })
    }

    async fn take_card(
        &self,
        context: WriteContext,
        agent: AgentId,
        url: &str,
        found: &DiscoveredPeer,
        belief: CardTrust,
    ) -> Result<store::PeerRecord> {
        let (digest, card) = (found.fingerprint.digest(), found.card_text.clone());
        let pin = store::PinnedCard { digest, card, pinned_at: context.at };
        let wrong = match found.trust() {
            CardSignatureTrust::Forged(why) => Some(format!("The signature of the agent's card is invalid: {why}.")),
            CardSignatureTrust::Unknown(why) if belief == CardTrust::Unheard => Some(format!(
                "The agent's card has changed, and its signature can't be verified: {why}. Check it. If it is correct, \
                 trust it: attache agents trust NAME."
            )),
            CardSignatureTrust::Unsigned | CardSignatureTrust::Verified | CardSignatureTrust::Unknown(_) => None,
        };
        let taken = match wrong {
            None => self.store().pin_card(context.clone(), agent, url, pin.clone()).await,
            Some(_) => Err(attache_store::Error::CardPinned),
        };
        match taken {
            Err(attache_store::Error::CardPinned) => {
                let problem = wrong.unwrap_or_else(|| {
                    format!(
                        "The agent's card has changed. Its pin is now {}. Check it. If it is correct, trust it: \
                         attache agents trust NAME.",
                        found.fingerprint
                    )
                });
                tracing::warn!(agent.id = %agent, url = %egress::origin(url), "the card of an outside agent is not trusted");
                self.store().offer_card(context, agent, url, pin, &problem).await.map_err(about("agent"))
            }
            taken => taken.map_err(about("agent")),
        }
    }

    fn outside(&self, tenant: TenantId, peer: store::PeerRecord) -> OutsideAgent {
        let credentials = self.credentials_of(&peer);
        let read = |pin: store::PinnedCard| Some((KeyPin::from_digest(pin.digest), a2a::read_card(&pin.card)?));
        OutsideAgent {
            tenant,
            agent: peer.agent,
            url: peer.url,
            credentials,
            card: peer.pin.and_then(read),
            is_changed: peer.offered.is_some(),
            problem: peer.problem,
            seen: None,
        }
    }

    fn credentials_of(&self, peer: &store::PeerRecord) -> PeerCredentials {
        let Some(sealed) = &peer.sealed else { return PeerCredentials::none() };
        let opened = self.unseal(&sealed_for(peer.agent), sealed);
        let opened = opened.ok().and_then(|bytes| String::from_utf8(bytes.expose().clone()).ok());
        match opened {
            Some(key) => PeerCredentials::key(Secret::new(key)),
            None => {
                tracing::warn!(agent.id = %peer.agent, "the key of an outside agent can't be decrypted");
                PeerCredentials::none()
            }
        }
    }
}

fn sealed_for(agent: AgentId) -> String {
    format!("peer {agent}")
}

// === impl OutsideAgentWatch ===

impl OutsideAgentWatch {
    /// Resolves on a change, or after a while.
    pub async fn next(&mut self, while_waiting: Duration) {
        let _ = tokio::time::timeout(while_waiting, self.0.moved()).await;
    }
}

// === impl PeerLookup ===

impl PeerLookup {
    /// Fills in the agent's own description where its owner gave none.
    pub(crate) fn describe(&self, request: AccountRequest) -> AccountRequest {
        let card = &self.found.card;
        let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        let line = |text: &str| -> String { cut(text, 200).chars().filter(|letter| !letter.is_control()).collect() };
        let skill = |skill: &attache_a2a_wire::AgentSkill| Skill {
            id: line(&skill.id),
            name: line(&skill.name),
            description: cut(&skill.description, 1000),
            tags: skill.tags.iter().take(20).map(|tag| line(tag)).filter(|tag| !tag.is_empty()).collect(),
        };
        let skills = card.skills.iter().take(MAX_SKILLS).map(skill);
        let skills: Vec<_> = skills.filter(|skill| !skill.id.is_empty() && !skill.name.is_empty()).collect();
        let description = Some(cut(&card.description, MAX_TEXT)).filter(|text| !text.is_empty());
        AccountRequest {
            description: request.description.or(description),
            skills: request.skills.or(Some(skills)),
            ..request
        }
    }
}
