//! What a caller may reach: people what their role says, a device its claims, an agent with a key of its own what the
//! rules say. What an agent asked for itself, and what it was given to do, it sees whatever the rules say.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use attache_protocol::{
    AgentId, Code, ConversationId, UserId,
    rules::{
        access::{AccessObject, RuleAgent, RuleDecision, RuleReason},
        run::RunPhase,
    },
    wire::{account::Callers, key::Role},
};
use attache_store::record::{
    AccountRecord, AgentRef, ConversationRecord, RunRecord, RuntimeKind,
    user::{UserRecord, UserRef},
};
use tokio::time::Instant;

use super::ActiveRules;
use crate::{
    Error, Handle, Principal, Result,
    error::about,
    identity::{PrincipalKind, RoleColumn},
};

/// The reach of one caller, for as long as one request takes.
#[derive(Debug)]
pub(crate) enum CallerAccess<'a> {
    /// A device, or somebody without a credential: the table says what they see, and no rule speaks about them.
    Table,
    Person(Person<'a>),
    Rules(AgentAccess<'a>),
}

/// A person sees what their role says, except for what belongs to an agent that is somebody else's alone.
#[derive(Debug)]
pub(crate) struct Person<'a> {
    hub: &'a Handle,
    by: &'a Principal,
    /// Whether what belongs to an agent is kept from them, as far as it was looked up.
    kept: HashMap<AgentId, bool>,
}

/// An agent under the rules, with what was looked up for it.
#[derive(Debug)]
pub(crate) struct AgentAccess<'a> {
    hub: &'a Handle,
    by: &'a Principal,
    in_force: Arc<ActiveRules>,
    /// The caller.
    own: RuleParty,
}

/// Those who passed a piece of work on, up to the caller, whose rights a further call has only in common.
#[derive(Debug)]
pub(crate) struct CallerChain<'r, 'a> {
    agents: &'r mut AgentAccess<'a>,
    links: Vec<RuleParty>,
}

/// An agent as rules name it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RuleParty {
    id: String,
    name: String,
    owner: Option<String>,
}

/// Whether something can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    Yes,
    /// Nothing gives it to the caller, but nothing keeps it from somebody who has a part in it.
    No,
    /// A rule says no.
    Never,
}

/// What stands for the user where something belongs to nobody.
pub(crate) const NOBODY: &str = "_";

// === impl Handle ===

impl Handle {
    pub(crate) async fn caller_access<'a>(&'a self, by: &'a Principal) -> Result<CallerAccess<'a>> {
        if matches!(by.who, PrincipalKind::Key { .. }) {
            return Ok(CallerAccess::Person(Person { hub: self, by, kept: HashMap::new() }));
        }
        let (
            RoleColumn::AgentKey | RoleColumn::Run,
            PrincipalKind::Runtime { agent, .. }
            | PrincipalKind::Outside { agent, .. }
            | PrincipalKind::Run { agent, .. },
        ) = (by.column(), by.who)
        else {
            return Ok(CallerAccess::Table);
        };
        let in_force = self.rules_in_force(by.tenant).await?;
        let own = RuleParty { id: agent.to_string(), name: String::new(), owner: None };
        let mut agents = AgentAccess { hub: self, by, in_force, own };
        let owner = agents.owner(by.user).await?;
        let name = match agents.needs_names() {
            true => agents.name(agent).await?,
            false => agents.own.id.clone(),
        };
        agents.own = RuleParty { name, owner, ..agents.own };
        Ok(CallerAccess::Rules(agents))
    }

    /// An agent that is its owner's alone is seen by everybody and put to work by its owner, with a credential that is worth
    /// all that the owner is: what such an agent can reach is the owner's, so a key that was made smaller would grow by it.
    /// Agents are refused earlier: to them such an agent does not exist.
    pub(crate) async fn check_caller(&self, by: &Principal, account: &AccountRecord) -> Result<()> {
        let Some(role) = by.role().filter(|_| account.callers == Callers::Owner) else { return Ok(()) };
        if !is_own(by, role, account) {
            return Err(Error::new(Code::Forbidden, format!("The agent `{}` is its owner's alone.", account.name))
                .hint("Its owner shares it with `attache agents set NAME --callers everyone`."));
        }
        let owner_role = match account.owner {
            Some(owner) => self.store().user(by.tenant, UserRef::Id(owner)).await.map_err(about("user"))?.role,
            None => Role::Owner,
        };
        if by.scopes.is_none() && role >= owner_role {
            return Ok(());
        }
        let message =
            format!("The agent `{}` is its owner's alone, and this key may do less than its owner.", account.name);
        Err(Error::new(Code::Forbidden, message)
            .hint("Use a key of the owner without scopes and with the owner's role, or share the agent: `attache agents set NAME --callers everyone`."))
    }

    /// The user as rules name it. A name that was freed belongs to whoever has it now, so the things of a removed user go
    /// by the user's id.
    pub(crate) async fn user_in_rules(&self, by: &Principal, user: UserId) -> Result<String> {
        let names = &self.access().names.users;
        if let Some(name) = names.get(&user) {
            return Ok(name);
        }
        let asked_at = Instant::now();
        let name = match self.store().user(by.tenant, UserRef::Id(user)).await {
            Ok(UserRecord { name, removed_at: None, .. }) => name,
            Ok(_) | Err(attache_store::Error::NotFound) => user.to_string(),
            Err(error) => return Err(Error::from_store("user", error)),
        };
        names.put(user, &name, asked_at);
        Ok(name)
    }
}

// === impl CallerAccess ===

impl<'a> CallerAccess<'a> {
    /// Seeing an agent and calling it are the same, but for people: they see every agent.
    pub(crate) async fn agent(&mut self, account: &AccountRecord) -> Result<bool> {
        match self {
            Self::Table | Self::Person(_) => Ok(true),
            Self::Rules(agents) => agents.reaches(account).await,
        }
    }

    /// A device sees what it holds, and what it held last once that has ended.
    pub(crate) async fn run(&mut self, by: &Principal, run: &RunRecord) -> Result<bool> {
        match self {
            Self::Person(person) => person.sees(run.agent).await,
            _ if has_part(by, run) => Ok(true),
            Self::Table => Ok(false),
            // What the rules give the agent is not what they give to whoever asked it for this run.
            Self::Rules(_) if by.column() == RoleColumn::Run => Ok(false),
            Self::Rules(agents) => Ok(agents.conversation(run.user, run.conversation).await? == Visibility::Yes),
        }
    }

    /// Whether what belongs to this agent (its runs, requests, grants and artifacts) is not kept from the caller.
    pub(crate) async fn belongings(&mut self, agent: AgentId) -> Result<bool> {
        match self {
            Self::Person(person) => person.sees(agent).await,
            Self::Table | Self::Rules(_) => Ok(true),
        }
    }

    /// Whether the rules give a conversation to the caller.
    pub(crate) async fn conversation(&mut self, conversation: &ConversationRecord) -> Result<Visibility> {
        match self {
            Self::Table | Self::Person(_) => Ok(Visibility::No),
            Self::Rules(agents) => agents.conversation(conversation.user, conversation.id).await,
        }
    }

    /// Whether the rules give an artifact of a conversation to the caller.
    pub(crate) async fn artifact(&mut self, of: &ConversationRecord, name: &str) -> Result<Visibility> {
        match self {
            Self::Table | Self::Person(_) => Ok(Visibility::No),
            Self::Rules(agents) => agents.artifact(of, name).await,
        }
    }

    /// The rights of everybody who passed the work on, in common; `None` where no rule speaks about the caller.
    pub(crate) async fn chain<'r>(&'r mut self, links: &[AgentId]) -> Result<Option<CallerChain<'r, 'a>>> {
        let Self::Rules(agents) = self else { return Ok(None) };
        let mut named = Vec::new();
        for link in links {
            named.push(agents.named(*link).await?);
        }
        Ok(Some(CallerChain { agents, links: named }))
    }
}

/// Whether the caller is the worker that has claimed the run.
pub(crate) fn holds(by: &Principal, run: &RunRecord) -> bool {
    match (by.who, &run.state.phase) {
        (PrincipalKind::Runtime { runtime, .. }, RunPhase::Running(claim)) => claim.runtime == runtime,
        (PrincipalKind::Run { run: own, .. }, RunPhase::Running(_)) => run.id == own,
        (
            PrincipalKind::Runtime { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. }
            | PrincipalKind::Key { .. }
            | PrincipalKind::Anonymous { .. },
            _,
        ) => false,
    }
}

/// A person has a part in everything that is not kept from them ([`CallerAccess::run`]), a worker in what it holds or held last, an agent also in what it asked for, a run in
/// what it asked for. Whoever shows no credential has a part in what such callers asked of the same agent.
pub(crate) fn has_part(by: &Principal, run: &RunRecord) -> bool {
    let (runtime, kind) = match by.who {
        PrincipalKind::Key { .. } => return true,
        PrincipalKind::Anonymous { agent } => return run.caller == by.actor() && run.agent == agent,
        PrincipalKind::Run { .. } | PrincipalKind::Outside { .. } => return run.caller == by.actor(),
        PrincipalKind::Runtime { runtime, kind, .. } => (runtime, kind),
    };
    if kind == RuntimeKind::AgentKey && run.caller == by.actor() {
        return true;
    }
    match &run.state.phase {
        RunPhase::Pending { .. } => false,
        RunPhase::Running(claim) => claim.runtime == runtime,
        RunPhase::Ended { .. } => run.runtime == Some(runtime),
    }
}

/// Whether the agent belongs to the person whose credential this is; what belongs to nobody is the hub's owner's.
fn is_own(by: &Principal, role: Role, account: &AccountRecord) -> bool {
    match account.owner {
        Some(owner) => by.user == Some(owner),
        None => role == Role::Owner,
    }
}

// === impl Person ===

impl Person<'_> {
    /// An agent that is its owner's alone shows what it did to nobody else.
    async fn sees(&mut self, agent: AgentId) -> Result<bool> {
        match self.kept.entry(agent) {
            Entry::Occupied(known) => Ok(!known.get()),
            Entry::Vacant(unknown) => {
                let account = self.hub.store().account(self.by.tenant, AgentRef::Id(agent)).await;
                let account = account.map_err(about("agent"))?;
                let role = self.by.role().filter(|_| account.callers == Callers::Owner);
                let kept = role.is_some_and(|role| !is_own(self.by, role, &account));
                unknown.insert(kept);
                Ok(!kept)
            }
        }
    }
}

// === impl AgentAccess ===

impl AgentAccess<'_> {
    /// Without patterns only the owner counts, and ids tell owners apart as well as names do.
    fn needs_names(&self) -> bool {
        !self.in_force.rules.entries.is_empty()
    }

    async fn account(&self, agent: AgentId) -> Result<AccountRecord> {
        self.hub.store().account(self.by.tenant, AgentRef::Id(agent)).await.map_err(about("agent"))
    }

    async fn named(&self, agent: AgentId) -> Result<RuleParty> {
        let account = self.account(agent).await?;
        let owner = self.owner(account.owner).await?;
        Ok(RuleParty { id: account.id.to_string(), name: account.name, owner })
    }

    async fn owner(&self, user: Option<UserId>) -> Result<Option<String>> {
        let Some(user) = user else { return Ok(None) };
        if !self.needs_names() {
            return Ok(Some(user.to_string()));
        }
        self.hub.user_in_rules(self.by, user).await.map(Some)
    }

    /// What the agent is called.
    async fn name(&self, agent: AgentId) -> Result<String> {
        let names = &self.hub.access().names.agents;
        if let Some(name) = names.get(&agent) {
            return Ok(name);
        }
        let asked_at = Instant::now();
        let name = self.account(agent).await?.name;
        names.put(agent, &name, asked_at);
        Ok(name)
    }

    async fn reaches(&self, account: &AccountRecord) -> Result<bool> {
        let target = self.target(account).await?;
        if !self.decide(&self.own, AccessObject::Agent(target.agent())).is_allowed() {
            return Ok(false);
        }
        // No rule opens an agent that is its owner's alone: rules are for admins, and the owner has not shared it.
        Ok(match account.callers {
            Callers::Everyone => true,
            Callers::Owner => account.owner.is_some() && account.owner == self.by.user,
        })
    }

    async fn target(&self, account: &AccountRecord) -> Result<RuleParty> {
        let owner = self.owner(account.owner).await?;
        Ok(RuleParty { id: account.id.to_string(), name: account.name.clone(), owner })
    }

    async fn conversation(&self, user: Option<UserId>, id: ConversationId) -> Result<Visibility> {
        let user = self.owner(user).await?;
        let user = user.as_deref().unwrap_or(NOBODY);
        let id = id.to_string();
        Ok(self.decide(&self.own, AccessObject::Conversation { user, id: &id }).into())
    }

    async fn artifact(&self, of: &ConversationRecord, name: &str) -> Result<Visibility> {
        let owner = self.owner(of.user).await?;
        let space = space(of);
        Ok(self.decide(&self.own, AccessObject::Artifact { space: &space, name, owner: owner.as_deref() }).into())
    }

    fn decide<'r>(&'r self, who: &'r RuleParty, object: AccessObject<'_>) -> RuleDecision<'r> {
        self.in_force.rules.rights(who.agent()).decide(object)
    }
}

/// The space of what a conversation brings forth: the one that its metadata names, or its workspace.
pub(crate) fn space(of: &ConversationRecord) -> String {
    let named = of.metadata.as_ref().and_then(|metadata| metadata.text_member("space"));
    named.unwrap_or_else(|| of.id.workspace().to_string())
}

// === impl CallerChain ===

impl CallerChain<'_, '_> {
    /// `Err` names the link that may not reach the agent, and the pattern that says so.
    pub(crate) async fn reaches(&mut self, account: &AccountRecord) -> Result<std::result::Result<(), String>> {
        let target = self.agents.target(account).await?;
        Ok(self.decide(AccessObject::Agent(target.agent())))
    }

    pub(crate) async fn converses(
        &mut self,
        conversation: &ConversationRecord,
    ) -> Result<std::result::Result<(), String>> {
        let user = self.agents.owner(conversation.user).await?;
        let id = conversation.id.to_string();
        Ok(self.decide(AccessObject::Conversation { user: user.as_deref().unwrap_or(NOBODY), id: &id }))
    }

    fn decide(&self, object: AccessObject<'_>) -> std::result::Result<(), String> {
        for link in &self.links {
            if let RuleDecision::Denied(because) = self.agents.decide(link, object) {
                let why = match because {
                    RuleReason::Rule(pattern) => format!(", by the rule `{pattern}`"),
                    RuleReason::Own | RuleReason::Fallback | RuleReason::NoSuchName => String::new(),
                };
                return Err(format!("`{}` has a part in this work and may not reach {object}{why}.", link.name));
            }
        }
        Ok(())
    }
}

// === impl RuleParty ===

impl RuleParty {
    fn agent(&self) -> RuleAgent<'_> {
        RuleAgent { name: &self.name, id: &self.id, owner: self.owner.as_deref() }
    }
}

// === impl Visibility ===

impl From<RuleDecision<'_>> for Visibility {
    fn from(decision: RuleDecision<'_>) -> Self {
        match decision {
            RuleDecision::Allowed(_) => Self::Yes,
            RuleDecision::Denied(RuleReason::Rule(_)) => Self::Never,
            RuleDecision::Denied(RuleReason::Own | RuleReason::Fallback | RuleReason::NoSuchName) => Self::No,
        }
    }
}
