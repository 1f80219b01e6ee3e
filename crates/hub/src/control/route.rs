//! Selects the agent for a call: by name or id, skill, capability, or the hub's default.

use std::collections::HashMap;

use attache_protocol::{
    AgentId, Code, Json, UserId,
    secret::mask,
    wire::{
        account::{Callers, Skill},
        channel::CAPABILITIES,
    },
};
use attache_store::record::{AccountRecord, channel::ChannelFilter};

use crate::{
    Error, Handle, Principal, Result, check,
    error::about,
    identity::{Permit, RoleColumn},
};

/// How many agents an error lists, and how many words for each.
const SHOWN: usize = 20;
const SHOWN_WORDS: usize = 8;
/// How many of an agent's words are considered.
const MAX_WORDS: usize = 1000;
const MAX_REQUIRED: usize = 100;

/// How a call selects its agent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AgentSelector<'a> {
    Default,
    /// A name, an id, a skill or a capability.
    Type(&'a str),
    /// Everything the agent must be able to do.
    All(&'a [String]),
}

/// An agent and the words it can be found by.
#[derive(Debug)]
struct RouteCandidate {
    id: AgentId,
    name: String,
    /// Ids, names and tags of its skills.
    skills: Vec<String>,
    /// Declared at registration or connection.
    capabilities: Vec<String>,
    owner: Option<UserId>,
    /// Whether it belongs to the caller's user.
    is_own: bool,
    is_private: bool,
}

impl Handle {
    pub(crate) async fn route(&self, permit: &Permit<'_>, wanted: AgentSelector<'_>) -> Result<AgentId> {
        let by = permit.by();
        match wanted {
            AgentSelector::Default => self.default_agent(by).await,
            AgentSelector::Type(text) => self.agent_of_type(by, text).await,
            AgentSelector::All(words) => self.agent_with_all(by, words).await,
        }
    }

    async fn default_agent(&self, by: &Principal) -> Result<AgentId> {
        if let Some(name) = self.default_agent_name() {
            return self.named(by, name).await?.map(|account| account.id).ok_or_else(|| match by.column() {
                RoleColumn::AgentKey | RoleColumn::Run | RoleColumn::Anonymous => {
                    Error::new(Code::NotFound, "This hub has no default agent that you may call.")
                        .remedy(attache_protocol::error::Remedy::NameAgent)
                }
                RoleColumn::Role(_) | RoleColumn::Runtime => {
                    Error::new(Code::NotFound, format!("This hub's default agent, `{name}`, does not exist."))
                        .remedy(attache_protocol::error::Remedy::NameOrCreateAgent)
                }
            });
        }
        match self.candidates(by).await?.as_slice() {
            [only] => Ok(only.id),
            [] => Err(Error::new(Code::NotFound, "This hub has no agents yet.")
                .remedy(attache_protocol::error::Remedy::CreateAgent)),
            several => {
                let candidates = listed(several);
                Err(Error::invalid("agent_type", "is missing, and this hub has no default agent").hint(format!(
                    "Name one of: {candidates}. To set a default, start the hub with `--default-agent NAME`."
                )))
            }
        }
    }

    async fn agent_of_type(&self, by: &Principal, text: &str) -> Result<AgentId> {
        check::line("agent_type", text, 1..=200)?;
        let named = self.named(by, text).await?;
        if let Some(agent) = named.as_ref().filter(|agent| agent.id.to_string() == text || owns(by, agent)) {
            return Ok(agent.id);
        }
        let mut candidates = self.candidates(by).await?;
        if let Some(agent) = named {
            // Anyone can name an agent like a skill. That must not divert what the caller sends to their private agent.
            if candidates.iter().any(|candidate| candidate.is_own && candidate.is_private) {
                self.add_channel_words(by, &mut candidates).await?;
            }
            let private = matching(&candidates, |candidate| {
                candidate.is_own && candidate.is_private && candidate.answers_to(text)
            });
            return if private.is_empty() { Ok(agent.id) } else { only(text, &private) };
        }
        // Callers may still use the name that an agent had. Nobody else gets what they send by having such a skill.
        if let Some(owner) = self.store().last_owner_of(by.tenant, text).await.map_err(about("agent"))? {
            candidates.retain(|candidate| candidate.is_own || (owner.is_some() && candidate.owner == owner));
        }
        let skilled = matching(&candidates, |candidate| has(&candidate.skills, text));
        if !skilled.is_empty() {
            return only(text, &skilled);
        }
        self.add_channel_words(by, &mut candidates).await?;
        let capable = matching(&candidates, |candidate| has(&candidate.capabilities, text));
        if capable.is_empty() {
            return Err(unknown(text, &candidates));
        }
        only(text, &capable)
    }

    /// This form of a call can't name an agent. If several match, the hub's default is used.
    async fn agent_with_all(&self, by: &Principal, words: &[String]) -> Result<AgentId> {
        if words.len() > MAX_REQUIRED {
            return Err(Error::invalid("task.capabilities_required", "must have at most 100 entries"));
        }
        for word in words {
            check::line("task.capabilities_required", word, 1..=200)?;
        }
        let mut candidates = self.candidates(by).await?;
        self.add_channel_words(by, &mut candidates).await?;
        let able = matching(&candidates, |candidate| words.iter().all(|word| candidate.answers_to(word)));
        let wanted = words.join(", ");
        match able.as_slice() {
            [] => Err(unknown(&wanted, &candidates)),
            [one] => Ok(one.id),
            several => {
                let default = self.default_agent_name();
                let default = several.iter().find(|candidate| Some(candidate.name.as_str()) == default);
                default.map_or_else(|| only(&wanted, several), |candidate| Ok(candidate.id))
            }
        }
    }

    /// An agent the caller can't reach does not exist for them.
    async fn named(&self, by: &Principal, text: &str) -> Result<Option<AccountRecord>> {
        let Ok(agent) = check::agent_ref("agent_type", text) else { return Ok(None) };
        match self.store().account(by.tenant, agent).await {
            Ok(account) => Ok(self.caller_access(by).await?.agent(&account).await?.then_some(account)),
            Err(attache_store::Error::NotFound) => Ok(None),
            Err(error) => Err(Error::from_store("agent", error)),
        }
    }

    /// Every agent of the tenant that accepts work from the caller.
    async fn candidates(&self, by: &Principal) -> Result<Vec<RouteCandidate>> {
        let (mut found, mut reach) = (Vec::new(), self.caller_access(by).await?);
        let mut accounts = check::all_pages("agent", |page| self.store().accounts(by.tenant, page));
        while let Some(account) = accounts.next().await? {
            // People see the private agents of others, but can't call them.
            let is_closed = by.role().is_some() && !owns(by, &account) && self.private_work(by).is_kept(&account);
            if !is_closed && reach.agent(&account).await? {
                found.push(RouteCandidate::new(by, account));
            }
        }
        Ok(found)
    }

    /// Capabilities declared by connected channels.
    async fn add_channel_words(&self, by: &Principal, candidates: &mut [RouteCandidate]) -> Result<()> {
        let places: HashMap<AgentId, usize> =
            candidates.iter().enumerate().map(|(place, candidate)| (candidate.id, place)).collect();
        let filter = ChannelFilter { connected: Some(true), agent: None };
        let mut channels = check::all_pages("channel", |page| self.store().channels(by.tenant, filter.clone(), page));
        while let Some(channel) = channels.next().await? {
            // Only a channel that works for the agent can declare its capabilities.
            let agent = channel.runtime.and(channel.agent);
            if let Some(place) = agent.and_then(|agent| places.get(&agent)) {
                candidates[*place].capabilities.extend(words(&channel.capabilities));
            }
        }
        Ok(())
    }
}

// === impl RouteCandidate ===

impl RouteCandidate {
    fn new(by: &Principal, account: AccountRecord) -> Self {
        let (is_own, is_private) = (owns(by, &account), account.callers == Callers::Owner);
        let skills: Vec<Skill> = account.skills.parse().unwrap_or_default();
        let skills =
            skills.into_iter().flat_map(|skill| [skill.id, skill.name].into_iter().chain(skill.tags)).collect();
        let capabilities = account.runtime.map(|runtime| registered(&runtime.labels)).unwrap_or_default();
        Self { id: account.id, name: account.name, skills, capabilities, owner: account.owner, is_own, is_private }
    }

    fn answers_to(&self, word: &str) -> bool {
        self.name == word || has(&self.skills, word) || has(&self.capabilities, word)
    }
}

/// The capabilities declared at registration.
pub(super) fn registered(labels: &Json) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct CapabilityLabels {
        capabilities: Option<Json>,
    }
    let labels = labels.parse::<CapabilityLabels>().ok();
    labels.and_then(|labels| labels.capabilities).map(|given| words(&given)).unwrap_or_default()
}

/// The strings in a list. Other entries and transport features are skipped.
pub(super) fn words(list: &Json) -> Vec<String> {
    let entries: Vec<Json> = list.parse().unwrap_or_default();
    let texts = entries.iter().take(MAX_WORDS).filter_map(|entry| entry.parse::<String>().ok());
    texts.filter(|word| !CAPABILITIES.contains(&word.as_str())).collect()
}

fn has(words: &[String], wanted: &str) -> bool {
    words.iter().any(|word| word == wanted)
}

/// Those that fit. The caller's own come first: no one else can add an agent that takes part in the choice.
fn matching(candidates: &[RouteCandidate], fits: impl Fn(&RouteCandidate) -> bool) -> Vec<&RouteCandidate> {
    let all: Vec<&RouteCandidate> = candidates.iter().filter(|candidate| fits(candidate)).collect();
    let own: Vec<&RouteCandidate> = all.iter().copied().filter(|candidate| candidate.is_own).collect();
    if own.is_empty() { all } else { own }
}

fn owns(by: &Principal, account: &AccountRecord) -> bool {
    account.owner.is_some() && by.owns(account.owner)
}

fn only(wanted: &str, found: &[&RouteCandidate]) -> Result<AgentId> {
    if let [one] = found {
        return Ok(one.id);
    }
    let mut names: Vec<String> = found.iter().take(SHOWN).map(|candidate| format!("`{}`", candidate.name)).collect();
    if found.len() > SHOWN {
        names.push(format!("and {} more", found.len() - SHOWN));
    }
    let message = format!("`{}` matches several agents: {}.", mask(wanted), names.join(", "));
    Err(Error::new(Code::InvalidRequest, message).remedy(attache_protocol::error::Remedy::ChooseAgent))
}

fn unknown(wanted: &str, candidates: &[RouteCandidate]) -> Error {
    let message = format!("No agent has the name, skill or capability `{}`.", mask(wanted));
    let hint = match candidates {
        [] => "This hub has no agents yet. Create one in the console or with POST /api/a2a/register.".to_owned(),
        some => format!("Available agents: {}.", listed(some)),
    };
    Error::new(Code::NotFound, message).hint(hint)
}

/// `builder (explore, file_read), laptop`
fn listed(candidates: &[RouteCandidate]) -> String {
    let mut shown: Vec<String> = candidates.iter().take(SHOWN).map(show).collect();
    if candidates.len() > SHOWN {
        shown.push(format!("and {} more", candidates.len() - SHOWN));
    }
    shown.join(", ")
}

fn show(candidate: &RouteCandidate) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in candidate.skills.iter().chain(&candidate.capabilities) {
        if words.len() < SHOWN_WORDS && !words.contains(&word.as_str()) && is_showable(word) {
            words.push(word);
        }
    }
    match words.as_slice() {
        [] => format!("`{}`", candidate.name),
        words => format!("`{}` ({})", candidate.name, words.join(", ")),
    }
}

/// An agent's words reach its callers, which may be models that follow what they read. Anything that could be a
/// sentence is not repeated.
pub(super) fn is_showable(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    (1..=64).contains(&word.len()) && word.bytes().all(is_plain)
}
