//! Which agent a call means: by name or id, by skill, by capability, or the hub's default one.

use std::collections::HashMap;

use attache_protocol::{
    AgentId, Code, Json,
    secret::mask,
    wire::{account::Skill, channel::CAPABILITIES},
};
use attache_store::record::{AccountRecord, Pagination, channel::ChannelFilter};

use crate::{Error, Handle, Principal, Result, control::check, error::about, identity::RoleColumn};

/// So many agents are listed in a refusal, each with so many of its words.
const SHOWN: usize = 20;
const SHOWN_WORDS: usize = 8;
/// How much of what an agent says about itself is looked at.
const MAX_WORDS: usize = 1000;
const MAX_REQUIRED: usize = 100;

/// What a call says about its agent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AgentSelector<'a> {
    Default,
    /// A name, an id, a skill or a capability.
    Type(&'a str),
    /// Everything that the agent must be able to do.
    All(&'a [String]),
}

/// An agent and the words by which it is found.
#[derive(Debug)]
struct RouteCandidate {
    id: AgentId,
    name: String,
    /// Ids, names and tags of its skills.
    skills: Vec<String>,
    /// What it said when it registered or connected.
    capabilities: Vec<String>,
}

impl Handle {
    pub(crate) async fn route(&self, by: &Principal, wanted: AgentSelector<'_>) -> Result<AgentId> {
        match wanted {
            AgentSelector::Default => self.default_agent(by).await,
            AgentSelector::Type(text) => self.agent_of_type(by, text).await,
            AgentSelector::All(words) => self.agent_with_all(by, words).await,
        }
    }

    async fn default_agent(&self, by: &Principal) -> Result<AgentId> {
        if let Some(name) = &self.options().default_agent {
            return self.named(by, name).await?.ok_or_else(|| match by.column() {
                RoleColumn::AgentKey | RoleColumn::Run | RoleColumn::Anonymous => {
                    Error::new(Code::NotFound, "This hub has no default agent that you may call.")
                        .hint("Say which agent you mean with `agent_type`.")
                }
                RoleColumn::Role(_) | RoleColumn::Runtime => {
                    Error::new(Code::NotFound, format!("This hub's default agent, `{name}`, does not exist."))
                        .hint("Say which agent you mean with `agent_type`, or make an agent with that name.")
                }
            });
        }
        match self.candidates(by).await?.as_slice() {
            [only] => Ok(only.id),
            [] => Err(Error::new(Code::NotFound, "This hub has no agents yet.")
                .hint("Make one in the console, or with POST /api/a2a/register.")),
            several => {
                let candidates = listed(several);
                Err(Error::invalid("agent_type", "is missing, and this hub has no default agent")
                    .hint(format!("Say which agent you mean: {candidates}. `--default-agent NAME` gives the hub one.")))
            }
        }
    }

    async fn agent_of_type(&self, by: &Principal, text: &str) -> Result<AgentId> {
        check::line("agent_type", text, 1..=200)?;
        if let Some(agent) = self.named(by, text).await? {
            return Ok(agent);
        }
        let mut everybody = self.candidates(by).await?;
        let skilled = matching(&everybody, |candidate| has(&candidate.skills, text));
        if !skilled.is_empty() {
            return only(text, &skilled);
        }
        self.add_channel_words(by, &mut everybody).await?;
        let capable = matching(&everybody, |candidate| has(&candidate.capabilities, text));
        if capable.is_empty() {
            return Err(unknown(text, &everybody));
        }
        only(text, &capable)
    }

    /// This form of a call cannot name an agent, so of several that can do it the hub's default one is meant.
    async fn agent_with_all(&self, by: &Principal, words: &[String]) -> Result<AgentId> {
        if words.len() > MAX_REQUIRED {
            return Err(Error::invalid("task.capabilities_required", "must have at most 100 entries"));
        }
        for word in words {
            check::line("task.capabilities_required", word, 1..=200)?;
        }
        let mut everybody = self.candidates(by).await?;
        self.add_channel_words(by, &mut everybody).await?;
        let able = matching(&everybody, |candidate| words.iter().all(|word| candidate.answers_to(word)));
        let wanted = words.join(", ");
        match able.as_slice() {
            [] => Err(unknown(&wanted, &everybody)),
            [one] => Ok(one.id),
            several => {
                let default = self.options().default_agent.as_deref();
                let default = several.iter().find(|candidate| Some(candidate.name.as_str()) == default);
                default.map_or_else(|| only(&wanted, several), |candidate| Ok(candidate.id))
            }
        }
    }

    /// To whom an agent is out of reach, it does not exist.
    async fn named(&self, by: &Principal, text: &str) -> Result<Option<AgentId>> {
        let Ok(agent) = check::agent_ref("agent_type", text) else { return Ok(None) };
        match self.store().account(by.tenant, agent).await {
            Ok(account) => Ok(self.caller_access(by).await?.agent(&account).await?.then_some(account.id)),
            Err(attache_store::Error::NotFound) => Ok(None),
            Err(error) => Err(Error::from_store("agent", error)),
        }
    }

    /// Every agent of the tenant that takes work from the caller.
    async fn candidates(&self, by: &Principal) -> Result<Vec<RouteCandidate>> {
        let (mut found, mut cursor) = (Vec::new(), None);
        let mut reach = self.caller_access(by).await?;
        loop {
            let page = Pagination { limit: check::MAX_PAGE, cursor };
            let listed = self.store().accounts(by.tenant, page).await.map_err(about("agent"))?;
            for account in listed.items {
                if reach.agent(&account).await? {
                    found.push(RouteCandidate::new(account));
                }
            }
            cursor = listed.next;
            if cursor.is_none() {
                return Ok(found);
            }
        }
    }

    /// What those who are connected said of themselves when they came.
    async fn add_channel_words(&self, by: &Principal, candidates: &mut [RouteCandidate]) -> Result<()> {
        let places: HashMap<AgentId, usize> =
            candidates.iter().enumerate().map(|(place, candidate)| (candidate.id, place)).collect();
        let filter = ChannelFilter { connected: Some(true), agent: None };
        let mut cursor = None;
        loop {
            let page = Pagination { limit: check::MAX_PAGE, cursor };
            let listed = self.store().channels(by.tenant, filter.clone(), page).await.map_err(about("channel"))?;
            for channel in listed.items {
                // Only a channel that works for an agent speaks for what the agent can do.
                let agent = channel.runtime.and(channel.agent);
                if let Some(place) = agent.and_then(|agent| places.get(&agent)) {
                    candidates[*place].capabilities.extend(words(&channel.capabilities));
                }
            }
            cursor = listed.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }
}

// === impl RouteCandidate ===

impl RouteCandidate {
    fn new(account: AccountRecord) -> Self {
        let skills: Vec<Skill> = account.skills.parse().unwrap_or_default();
        let skills =
            skills.into_iter().flat_map(|skill| [skill.id, skill.name].into_iter().chain(skill.tags)).collect();
        let capabilities = account.runtime.map(|runtime| registered(&runtime.labels)).unwrap_or_default();
        Self { id: account.id, name: account.name, skills, capabilities }
    }

    fn answers_to(&self, word: &str) -> bool {
        self.name == word || has(&self.skills, word) || has(&self.capabilities, word)
    }
}

/// What the agent said it can do when it registered.
pub(super) fn registered(labels: &Json) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct CapabilityLabels {
        capabilities: Option<Json>,
    }
    let labels = labels.parse::<CapabilityLabels>().ok();
    labels.and_then(|labels| labels.capabilities).map(|given| words(&given)).unwrap_or_default()
}

/// The texts of a list; what else it holds is nobody's word, and what the transport can do is nothing to ask an agent for.
pub(super) fn words(list: &Json) -> Vec<String> {
    let entries: Vec<Json> = list.parse().unwrap_or_default();
    let texts = entries.iter().take(MAX_WORDS).filter_map(|entry| entry.parse::<String>().ok());
    texts.filter(|word| !CAPABILITIES.contains(&word.as_str())).collect()
}

fn has(words: &[String], wanted: &str) -> bool {
    words.iter().any(|word| word == wanted)
}

fn matching(everybody: &[RouteCandidate], fits: impl Fn(&RouteCandidate) -> bool) -> Vec<&RouteCandidate> {
    everybody.iter().filter(|candidate| fits(candidate)).collect()
}

fn only(wanted: &str, found: &[&RouteCandidate]) -> Result<AgentId> {
    if let [one] = found {
        return Ok(one.id);
    }
    let mut names: Vec<String> = found.iter().take(SHOWN).map(|candidate| format!("`{}`", candidate.name)).collect();
    if found.len() > SHOWN {
        names.push(format!("and {} more", found.len() - SHOWN));
    }
    let message = format!("`{}` fits several agents: {}.", mask(wanted), names.join(", "));
    Err(Error::new(Code::InvalidRequest, message).hint("Say which one you mean by its name, as `agent_type`."))
}

fn unknown(wanted: &str, everybody: &[RouteCandidate]) -> Error {
    let message = format!("No agent here is called `{}`, and none has it as a skill or capability.", mask(wanted));
    let hint = match everybody {
        [] => "This hub has no agents yet. Make one in the console, or with POST /api/a2a/register.".to_owned(),
        some => format!("There are: {}.", listed(some)),
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

/// An agent's own words reach its callers, perhaps models that obey what they read: what could be a sentence is not repeated.
pub(super) fn is_showable(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    (1..=64).contains(&word.len()) && word.bytes().all(is_plain)
}
