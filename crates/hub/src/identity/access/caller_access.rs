//! What a caller may reach: people by role, devices by their claims, agents with their own key by the access rules. An
//! agent always sees what it created and what it was assigned.

use std::{collections::HashMap, sync::Arc};

use attache_protocol::{
    AgentId, Code, ConversationId, RunId, Timestamp, UserId,
    rules::{
        access::{AccessObject, RuleAgent, RuleDecision, RuleReason},
        run::RunPhase,
    },
    wire::account::Callers,
};
use attache_store::record::{
    AccountRecord, AgentRef, ConversationRecord, Pagination, RunRecord, RuntimeKind,
    user::{UserRecord, UserRef},
};
use tokio::time::Instant;

use super::ActiveRules;
use crate::{
    Error, Handle, Principal, Result, check,
    error::about,
    identity::{Action, Permit, PrincipalKind, RoleColumn},
};

/// One caller's access, for the duration of one request.
#[derive(Debug)]
pub(crate) enum CallerAccess<'a> {
    /// A device or a caller without a credential: only the table applies, no rules.
    Table,
    Person(Person<'a>),
    Rules(AgentAccess<'a>),
}

/// A person sees what their role allows, except what belongs to someone else's private agent.
#[derive(Debug)]
pub(crate) struct Person<'a> {
    hub: &'a Handle,
    by: &'a Principal,
    /// What is hidden from them of an agent, as far as looked up.
    kept: HashMap<AgentId, HiddenWork>,
}

/// What of an agent's work is hidden from a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HiddenWork {
    /// All of it: the agent is private to someone else.
    All,
    /// What it did while it was private, as far as others started it.
    Until(Timestamp),
    Nothing,
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

/// Everyone who passed a task on, up to the caller. A further call has only the rights they share.
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
    /// Nothing grants it, but nothing hides it from someone involved either.
    No,
    /// A rule denies it.
    Never,
}

/// Stands for the user of things that have none.
pub(crate) const NOBODY: &str = "_";

// === impl Handle ===

impl Handle {
    pub(crate) async fn caller_access<'a>(&'a self, by: &'a Principal) -> Result<CallerAccess<'a>> {
        if matches!(by.who, PrincipalKind::Key { .. }) {
            return Ok(CallerAccess::Person(self.private_work(by)));
        }
        let (RoleColumn::AgentKey | RoleColumn::Run, Some(agent)) = (by.column(), by.agent()) else {
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

    /// Which private agents' work this caller may see.
    pub(crate) fn private_work<'a>(&'a self, by: &'a Principal) -> Person<'a> {
        Person { hub: self, by, kept: HashMap::new() }
    }

    /// A private agent is visible to everyone, but only its owner can put it to work, with a credential that has all of
    /// the owner's rights: the agent can reach what the owner can, so a narrower key would gain rights. Agents are
    /// rejected earlier: such an agent does not exist for them.
    pub(crate) async fn check_caller(&self, by: &Principal, account: &AccountRecord) -> Result<()> {
        if by.role().is_none() || account.callers != Callers::Owner {
            return Ok(());
        }
        if by.is_issued && account.owner.is_some() && by.user == account.owner {
            let message =
                format!("The agent `{}` is private, and this credential was created by someone else.", account.name);
            return Err(Error::new(Code::Forbidden, message)
                .hint("Sign in with your own password, or use a key that you created yourself."));
        }
        if !by.is_owner(account.owner) {
            let error = Error::new(Code::Forbidden, format!("The agent `{}` is private to its owner.", account.name));
            return Err(match self.has_left(by, account.owner).await? {
                true => error.hint(
                    "Its owner was removed. An owner of the hub can give it to someone (`attache agents set NAME --owner \
                     USER`), share it (`--callers everyone`) or archive it.",
                ),
                false => error.hint("Its owner can share it: `attache agents set NAME --callers everyone`."),
            });
        }
        if by.has_rights_of(account.owner) {
            return Ok(());
        }
        let message = format!(
            "The agent `{}` is private to its owner, and this key has fewer rights than its owner.",
            account.name
        );
        Err(Error::new(Code::Forbidden, message).hint(
            "Use an unscoped key with the owner's role, or share the agent: \
                   `attache agents set NAME --callers everyone`.",
        ))
    }

    /// The user as rules name them. A freed name belongs to its new holder, so a removed user's things go by the user's
    /// id.
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
    /// Whether the caller may see and call the agent. People see every agent.
    pub(crate) async fn agent(&mut self, account: &AccountRecord) -> Result<bool> {
        match self {
            Self::Table | Self::Person(_) => Ok(true),
            Self::Rules(agents) => agents.reaches(account).await,
        }
    }

    /// Whether the permit covers the run. A device sees what it holds, and what it held last once that has ended. Other
    /// actions of agents and of callers without a credential are for the runs they created.
    pub(crate) async fn run(&mut self, permit: &Permit<'_>, run: &RunRecord) -> Result<bool> {
        let by = permit.by();
        match self {
            Self::Person(person) => Ok(permit.covers_user(run.user) && person.sees_run(run).await?),
            _ if permit.action() != Action::SeeRuns => Ok(permit.covers_creator(&run.caller) && has_part(by, run)),
            _ if has_part(by, run) => Ok(true),
            Self::Table => Ok(false),
            // The rules grant rights to the agent, not to the caller it works for in this run.
            Self::Rules(_) if by.column() == RoleColumn::Run => Ok(false),
            Self::Rules(agents) => Ok(!agents.is_from_private_time(run.agent, run.created_at).await?
                && agents.sees_work_of(run.agent).await?
                && agents.conversation(run.user, run.conversation).await? == Visibility::Yes),
        }
    }

    /// Whether a request of this run is visible to the caller, as far as it is about this agent's work.
    pub(crate) async fn request(&mut self, agent: AgentId, run: RunId) -> Result<bool> {
        match self {
            Self::Person(person) => person.sees_request(agent, run).await,
            Self::Rules(_) | Self::Table => self.belongings(agent).await,
        }
    }

    /// Whether this agent's belongings (grants and channels) are visible to the caller.
    pub(crate) async fn belongings(&mut self, agent: AgentId) -> Result<bool> {
        match self {
            Self::Person(person) => person.sees(agent).await,
            Self::Rules(agents) => agents.sees_work_of(agent).await,
            Self::Table => Ok(true),
        }
    }

    /// Whether a run is open to the caller: its agent is not hidden from them, or they started it.
    pub(crate) async fn is_open(&mut self, run: &RunRecord) -> Result<bool> {
        match self {
            Self::Person(person) => person.sees_run(run).await,
            Self::Rules(agents) => Ok(has_part(agents.by, run) || agents.sees_work_of(run.agent).await?),
            Self::Table => Ok(true),
        }
    }

    /// Whether the rules grant a conversation to the caller.
    pub(crate) async fn conversation(&mut self, conversation: &ConversationRecord) -> Result<Visibility> {
        match self {
            Self::Table | Self::Person(_) => Ok(Visibility::No),
            Self::Rules(agents) => {
                let seen = agents.conversation(conversation.user, conversation.id).await?;
                agents.without_private_time(conversation, seen).await
            }
        }
    }

    /// Whether the rules grant an artifact of a conversation to the caller.
    pub(crate) async fn artifact(&mut self, of: &ConversationRecord, name: &str) -> Result<Visibility> {
        match self {
            Self::Table | Self::Person(_) => Ok(Visibility::No),
            Self::Rules(agents) => {
                let seen = agents.artifact(of, name).await?;
                agents.without_private_time(of, seen).await
            }
        }
    }

    /// The rights shared by everyone who passed the work on. `None` if no rules apply to the caller.
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

/// Whether the caller is involved in a run: a person in everything not hidden from them ([`CallerAccess::run`]), a
/// worker in what it holds or held last, an agent and a run also in what they created. Anonymous callers share what any
/// of them asked of the same agent.
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
        RunPhase::Pending { .. } | RunPhase::Deferred { .. } => false,
        RunPhase::Running(claim) => claim.runtime == runtime,
        RunPhase::Ended { .. } => run.runtime == Some(runtime),
    }
}

// === impl Person ===

impl Person<'_> {
    /// A private agent's belongings are visible only to its owner.
    pub(crate) async fn sees(&mut self, agent: AgentId) -> Result<bool> {
        Ok(self.hidden(agent).await? != HiddenWork::All)
    }

    /// Whether they see what the agent did at this time, whoever started it. Sharing an agent doesn't open what it did
    /// while it was private, and no one gets it by taking over the agent.
    pub(crate) async fn sees_work(&mut self, agent: AgentId, at: Timestamp) -> Result<bool> {
        Ok(match self.hidden(agent).await? {
            HiddenWork::All => false,
            HiddenWork::Until(until) => at > until,
            HiddenWork::Nothing => true,
        })
    }

    /// People keep seeing what they started, also after the agent became private.
    pub(crate) async fn sees_run(&mut self, run: &RunRecord) -> Result<bool> {
        Ok(self.started(run) || self.sees_work(run.agent, run.created_at).await?)
    }

    /// Only the owner of a private agent sees its requests. After it was shared, those of an earlier run are for whoever
    /// started the run.
    async fn sees_request(&mut self, agent: AgentId, run: RunId) -> Result<bool> {
        let HiddenWork::Until(until) = self.hidden(agent).await? else { return self.sees(agent).await };
        let run = self.hub.store().run(self.by.tenant, run).await.map_err(about("run"))?;
        Ok(run.created_at > until || self.started(&run))
    }

    fn started(&self, run: &RunRecord) -> bool {
        run.caller == self.by.actor() || self.by.own_runs().matches(run)
    }

    async fn hidden(&mut self, agent: AgentId) -> Result<HiddenWork> {
        if let Some(hidden) = self.kept.get(&agent) {
            return Ok(*hidden);
        }
        let account = self.hub.store().account(self.by.tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
        let hidden = match account.private_until {
            _ if self.is_kept(&account) => HiddenWork::All,
            // An agent needs a part in it, or a rule, which does not open it either.
            Some(until) if self.by.agent() != Some(agent) => HiddenWork::Until(until),
            Some(_) | None => HiddenWork::Nothing,
        };
        self.kept.insert(agent, hidden);
        Ok(hidden)
    }

    /// Whether some agent is, or was, private to someone else.
    pub(crate) async fn has_hidden_agents(&self) -> Result<bool> {
        let mut cursor = None;
        loop {
            let page = Pagination { limit: check::MAX_PAGE, cursor };
            let listed = self.hub.store().accounts(self.by.tenant, page).await.map_err(about("agent"))?;
            if listed.items.iter().any(|account| self.is_kept(account) || account.private_until.is_some()) {
                return Ok(true);
            }
            cursor = listed.next;
            if cursor.is_none() {
                return Ok(false);
            }
        }
    }

    /// Whether no agent that ever worked in it is private to someone else, or was when it joined. People keep seeing their
    /// own conversations, also after an agent in them became private: a private agent never joins somebody else's. Until
    /// an agent works in it, other people see it only if it names a space, because it may be meant for a private agent.
    pub(crate) async fn sees_conversation(&mut self, conversation: &ConversationRecord) -> Result<bool> {
        let is_own = self.by.role().is_some() && self.by.owns(conversation.user);
        if is_own && conversation.user.is_some() && !self.by.is_issued {
            return Ok(true);
        }
        for (agent, joined) in &conversation.agents {
            if !self.sees_work(*agent, *joined).await? {
                return Ok(false);
            }
        }
        // Agents see it only by rule.
        let is_shared = !conversation.agents.is_empty() || named_space(conversation).is_some();
        Ok(is_own || is_shared || self.by.role().is_none())
    }

    /// Whether the agent is private to someone else.
    pub(crate) fn is_kept(&self, account: &AccountRecord) -> bool {
        let by = self.by;
        let is_own = match by.role() {
            Some(_) => by.is_owner(account.owner),
            None => by.agent() == Some(account.id),
        };
        account.callers == Callers::Owner && !is_own
    }
}

// === impl AgentAccess ===

impl AgentAccess<'_> {
    /// Without patterns only the owner matters, and ids distinguish owners as well as names do.
    fn needs_names(&self) -> bool {
        !self.in_force.rules.entries.is_empty()
    }

    /// No rule opens the work of another agent that is private, even if both have the same owner.
    async fn sees_work_of(&self, agent: AgentId) -> Result<bool> {
        self.hub.private_work(self.by).sees(agent).await
    }

    /// The rules are for admins, who may also pair an agent once it is shared, so no rule opens what even this agent did
    /// while it was private.
    async fn is_from_private_time(&self, agent: AgentId, at: Timestamp) -> Result<bool> {
        Ok(self.account(agent).await?.private_until.is_some_and(|until| at <= until))
    }

    async fn without_private_time(&self, conversation: &ConversationRecord, seen: Visibility) -> Result<Visibility> {
        for (agent, joined) in conversation.agents.iter().filter(|_| seen == Visibility::Yes) {
            if self.is_from_private_time(*agent, *joined).await? {
                return Ok(Visibility::No);
            }
        }
        Ok(seen)
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
        // No rule opens a private agent: rules are for admins, and the owner has not shared it. Nor does an agent's own key,
        // whoever the agent belongs to: the owner's restricted keys can register agents, and no person sees what such an
        // agent asks for. A run may reach one, because a person approves each of its calls.
        Ok(match account.callers {
            Callers::Everyone => true,
            Callers::Owner => {
                let is_run = matches!(self.by.who, PrincipalKind::Run { .. });
                is_run && account.owner.is_some() && account.owner == self.by.user
            }
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

/// The space of a conversation's artifacts: the one its metadata names, or its workspace.
pub(crate) fn space(of: &ConversationRecord) -> String {
    named_space(of).unwrap_or_else(|| of.id.workspace().to_string())
}

fn named_space(of: &ConversationRecord) -> Option<String> {
    of.metadata.as_ref().and_then(|metadata| metadata.text_member("space"))
}

// === impl CallerChain ===

impl CallerChain<'_, '_> {
    /// `Err` names the link that may not reach the agent, and the pattern that denies it.
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
                return Err(format!(
                    "`{}` is part of this call chain and is not allowed to reach {object}{why}.",
                    link.name
                ));
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
