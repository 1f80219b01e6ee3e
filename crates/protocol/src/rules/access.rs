//! Access rules: which agent may reach what (`can_access`, `cannot_access`). A denial always wins.
//!
//! Objects are named like paths:
//!
//! | pattern | covers |
//! |---|---|
//! | `agents/<name>` | seeing and calling an agent, but not its memory; denied, it covers the memory too |
//! | `agents/<name>/memory/<path>` | what that agent remembers |
//! | `conversations/<user>/<id>` | a user's conversation, with its runs |
//! | `resources/<space>/<artifact>` | an artifact |
//! | `*` | all of these |
//!
//! `*` inside a part matches any characters of that part, and at the end everything below. An agent can be given by id.
//! `other_users` in place of a user means everyone except the agent's own.
//!
//! Incomplete patterns (`conversations/ann`) are rejected on purpose: a denial that silently covers nothing is worse
//! than a visible error.

use crate::text_enum;
use std::{fmt, str::FromStr};

use super::permission::matches;

/// All rules of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRuleSet {
    pub fallback: Fallback,
    pub entries: Vec<AccessRule>,
}

text_enum! {
    /// What applies if no pattern matches.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    plain pub enum Fallback {
        /// An agent reaches what belongs to its own user, and agents without an owner, which belong to the organisation.
        #[default]
        Own = "own",
        Deny = "deny",
        Allow = "allow",
    }
}

/// What one agent, or every agent with a matching name, may and may not reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRule {
    pub agents: NameGlob,
    pub can_access: Vec<AccessPattern>,
    pub cannot_access: Vec<AccessPattern>,
}

/// A name in which `*` matches any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameGlob(String);

/// A pattern for objects, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessPattern {
    text: String,
    what: PatternTarget,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternTarget {
    Everything,
    Agents(NameGlob),
    Memory { agents: NameGlob, path: NameGlob },
    Conversations { users: UserPattern, ids: NameGlob },
    Resources { spaces: NameGlob, artifacts: NameGlob },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum UserPattern {
    /// Everyone except the calling agent's user.
    Others,
    Named(NameGlob),
}

/// An invalid pattern or name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}. {hint}")]
pub struct PatternError {
    pub what: String,
    pub hint: String,
}

/// An agent, as the caller or as the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleAgent<'a> {
    pub name: &'a str,
    pub id: &'a str,
    /// Its owner. `None` for an agent of the organisation.
    pub owner: Option<&'a str>,
}

/// An object of an access check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessObject<'a> {
    Agent(RuleAgent<'a>),
    Memory { agent: RuleAgent<'a>, path: &'a str },
    Conversation { user: &'a str, id: &'a str },
    Artifact { space: &'a str, name: &'a str, owner: Option<&'a str> },
}

/// One agent's rights, extracted from all rules.
#[derive(Debug, Clone)]
pub struct AgentRights<'r> {
    user: Option<&'r str>,
    fallback: Fallback,
    can: Vec<&'r AccessPattern>,
    cannot: Vec<&'r AccessPattern>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleDecision<'r> {
    Allowed(RuleReason<'r>),
    Denied(RuleReason<'r>),
}

/// The basis of a decision, so that a person can find and change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleReason<'r> {
    Rule(&'r AccessPattern),
    /// It belongs to the agent's own user, or is an agent without an owner.
    Own,
    /// No pattern matches.
    Fallback,
    /// The name is missing or has empty, `.` or `..` parts. Nothing has such a name.
    NoSuchName,
}

/// The keyword for all users except the agent's own.
pub const OTHERS: &str = "other_users";

// === impl AccessRuleSet ===

impl AccessRuleSet {
    /// This agent's rights.
    pub fn rights<'r>(&'r self, agent: RuleAgent<'r>) -> AgentRights<'r> {
        let mut rights =
            AgentRights { user: agent.owner, fallback: self.fallback, can: Vec::new(), cannot: Vec::new() };
        for entry in self.entries.iter().filter(|entry| entry.agents.names(agent)) {
            rights.can.extend(&entry.can_access);
            rights.cannot.extend(&entry.cannot_access);
        }
        rights
    }

    /// The entry or pattern that names this agent by name or id, without a wildcard.
    pub fn naming_agent(&self, agent: RuleAgent<'_>) -> Option<&str> {
        let is_meant = |glob: &NameGlob| glob.0 == agent.name || glob.0 == agent.id;
        let entry = self.entries.iter().map(|entry| &entry.agents).find(|glob| is_meant(glob));
        let mut patterns = self.patterns();
        entry
            .map(NameGlob::as_str)
            .or_else(|| patterns.find(|pattern| pattern.agents().is_some_and(is_meant)).map(AccessPattern::as_str))
    }

    /// The entry that covers this name, or the pattern that names it without a wildcard. An entry for all agents
    /// doesn't count.
    pub fn meaning_name(&self, name: &str) -> Option<&str> {
        let named = self.naming_agent(RuleAgent { name, id: name, owner: None });
        let covers = |glob: &&NameGlob| glob.0 != "*" && glob.covers(name);
        named.or_else(|| self.entries.iter().map(|entry| &entry.agents).find(covers).map(NameGlob::as_str))
    }

    /// The pattern that names this user, without a wildcard.
    pub fn naming_user(&self, user: &str) -> Option<&str> {
        let is_meant = |pattern: &&AccessPattern| matches!(&pattern.what, PatternTarget::Conversations { users: UserPattern::Named(glob), .. } if glob.0 == user);
        self.patterns().find(is_meant).map(AccessPattern::as_str)
    }

    fn patterns(&self) -> impl Iterator<Item = &AccessPattern> {
        self.entries.iter().flat_map(|entry| entry.can_access.iter().chain(&entry.cannot_access))
    }
}

// === impl AgentRights ===

impl<'r> AgentRights<'r> {
    pub fn decide(&self, object: AccessObject<'_>) -> RuleDecision<'r> {
        if !object.is_named() {
            return RuleDecision::Denied(RuleReason::NoSuchName);
        }
        if let Some(pattern) = self.cannot.iter().find(|pattern| pattern.forbids(object, self.user)) {
            return RuleDecision::Denied(RuleReason::Rule(pattern));
        }
        if let Some(pattern) = self.can.iter().find(|pattern| pattern.covers(object, self.user)) {
            return RuleDecision::Allowed(RuleReason::Rule(pattern));
        }
        match self.fallback {
            Fallback::Allow => RuleDecision::Allowed(RuleReason::Fallback),
            Fallback::Own if object.is_own(self.user) => RuleDecision::Allowed(RuleReason::Own),
            Fallback::Own | Fallback::Deny => RuleDecision::Denied(RuleReason::Fallback),
        }
    }
}

// === impl RuleDecision ===

impl RuleDecision<'_> {
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

// === impl AccessObject ===

impl<'a> AccessObject<'a> {
    fn owner(self) -> Option<&'a str> {
        match self {
            Self::Agent(agent) | Self::Memory { agent, .. } => agent.owner,
            Self::Conversation { user, .. } => Some(user),
            Self::Artifact { owner, .. } => owner,
        }
    }

    /// Whether an agent of this user may reach it without any rule. Conversations and artifacts belong to their user
    /// alone.
    fn is_own(self, user: Option<&str>) -> bool {
        match self {
            Self::Agent(agent) => agent.owner.is_none() || agent.owner == user,
            Self::Memory { .. } | Self::Conversation { .. } | Self::Artifact { .. } => {
                user.is_some() && user == self.owner()
            }
        }
    }

    /// A path with `..` could match one pattern and mean another.
    fn is_named(self) -> bool {
        let is_part = |part: &str| !matches!(part, "" | "." | "..");
        let is_path = |path: &str| path.split('/').all(is_part);
        let is_word = |word: &str| is_part(word) && !word.contains('/');
        match self {
            Self::Agent(agent) => is_word(agent.name),
            Self::Memory { agent, path } => is_word(agent.name) && is_path(path),
            Self::Conversation { user, id } => is_word(user) && is_word(id),
            Self::Artifact { space, name, .. } => is_word(space) && is_path(name),
        }
    }
}

impl fmt::Display for AccessObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(agent) => write!(f, "agents/{}", agent.name),
            Self::Memory { agent, path } => write!(f, "agents/{}/memory/{path}", agent.name),
            Self::Conversation { user, id } => write!(f, "conversations/{user}/{id}"),
            Self::Artifact { space, name, .. } => write!(f, "resources/{space}/{name}"),
        }
    }
}

// === impl NameGlob ===

impl NameGlob {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn covers(&self, text: &str) -> bool {
        matches(&self.0, text)
    }

    /// An id matches only as a literal: all ids start the same, and `a*` must not match every agent.
    fn names(&self, agent: RuleAgent<'_>) -> bool {
        self.covers(agent.name) || self.0 == agent.id
    }
}

impl FromStr for NameGlob {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let mistake = |what: String, hint: &str| Err(PatternError { what, hint: hint.to_owned() });
        if text.is_empty() || matches!(text, "." | "..") {
            return mistake(format!("`{text}` is not a name"), "Write a name, or * for every name.");
        }
        if text.contains("**") {
            return mistake(
                format!("`{text}` has two stars"),
                "Use a single *. At the end, it covers everything below.",
            );
        }
        if let Some(odd) = text.chars().find(|odd| "?[]{}\\!".contains(*odd) || odd.is_control() || odd.is_whitespace())
        {
            let what = format!("`{}` contains {odd:?}", text.escape_debug());
            return mistake(what, "Only * is a wildcard. Names can't contain spaces or ? [ ] { } \\ !.");
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for NameGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl AccessPattern ===

impl AccessPattern {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn agents(&self) -> Option<&NameGlob> {
        match &self.what {
            PatternTarget::Agents(agents) | PatternTarget::Memory { agents, .. } => Some(agents),
            PatternTarget::Everything | PatternTarget::Conversations { .. } | PatternTarget::Resources { .. } => None,
        }
    }

    /// Whether the pattern covers the object in `can_access`. `user` is the calling agent's owner.
    fn covers(&self, object: AccessObject<'_>, user: Option<&str>) -> bool {
        match (&self.what, object) {
            (PatternTarget::Everything, _) => true,
            (PatternTarget::Agents(agents), AccessObject::Agent(agent)) => agents.names(agent),
            (PatternTarget::Memory { agents, path: covered }, AccessObject::Memory { agent, path }) => {
                agents.names(agent) && covered.covers(path)
            }
            (PatternTarget::Conversations { users, ids }, AccessObject::Conversation { user: owner, id }) => {
                users.cover(owner, user) && ids.covers(id)
            }
            (PatternTarget::Resources { spaces, artifacts }, AccessObject::Artifact { space, name, .. }) => {
                spaces.covers(space) && artifacts.covers(name)
            }
            (
                PatternTarget::Agents(_)
                | PatternTarget::Memory { .. }
                | PatternTarget::Conversations { .. }
                | PatternTarget::Resources { .. },
                AccessObject::Agent(_)
                | AccessObject::Memory { .. }
                | AccessObject::Conversation { .. }
                | AccessObject::Artifact { .. },
            ) => false,
        }
    }

    /// Whether the pattern covers the object in `cannot_access`. Denying an agent also denies its memory.
    fn forbids(&self, object: AccessObject<'_>, user: Option<&str>) -> bool {
        let is_above = match (&self.what, object) {
            (PatternTarget::Agents(agents), AccessObject::Memory { agent, .. }) => agents.names(agent),
            _ => false,
        };
        is_above || self.covers(object, user)
    }
}

impl FromStr for AccessPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let mistake =
            |what: &str, hint: String| Err(PatternError { what: format!("`{}` {what}", text.escape_debug()), hint });
        let (kind, rest) = text.split_once('/').unwrap_or((text, ""));
        let what = match (kind, rest.split_once('/')) {
            ("*", None) if rest.is_empty() => PatternTarget::Everything,
            ("agents", None) if !rest.is_empty() => PatternTarget::Agents(rest.parse()?),
            ("agents", Some((agents, below))) => {
                let Some(path) = below.strip_prefix("memory/") else {
                    return mistake(
                        "doesn't match anything below an agent",
                        format!("Write agents/{agents}/memory/*."),
                    );
                };
                PatternTarget::Memory { agents: agents.parse()?, path: path_glob(path)? }
            }
            ("conversations", Some((users, ids))) => PatternTarget::Conversations {
                users: if users == OTHERS { UserPattern::Others } else { UserPattern::Named(users.parse()?) },
                ids: word_glob(ids)?,
            },
            ("resources", Some((spaces, artifacts))) => {
                PatternTarget::Resources { spaces: spaces.parse()?, artifacts: path_glob(artifacts)? }
            }
            ("agents" | "conversations" | "resources", None) => {
                let rest = if rest.is_empty() { "*" } else { rest };
                let whole = if kind == "agents" { format!("agents/{rest}") } else { format!("{kind}/{rest}/*") };
                return mistake("is incomplete", format!("Write {whole} to cover everything."));
            }
            _ => {
                let forms =
                    "agents/NAME, agents/NAME/memory/PATH, conversations/USER/ID, resources/SPACE/ARTIFACT or *";
                return mistake("is not a valid object", format!("Write {forms}."));
            }
        };
        Ok(Self { text: text.to_owned(), what })
    }
}

fn word_glob(text: &str) -> Result<NameGlob, PatternError> {
    if text.contains('/') {
        let what = format!("`{}` has too many parts", text.escape_debug());
        return Err(PatternError { what, hint: "A conversation is conversations/USER/ID.".to_owned() });
    }
    text.parse()
}

fn path_glob(text: &str) -> Result<NameGlob, PatternError> {
    if let Some(part) = text.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        let what = format!("`{}` has the part `{part}`", text.escape_debug());
        return Err(PatternError { what, hint: "Write the path with a single / between its parts.".to_owned() });
    }
    text.parse()
}

impl fmt::Display for AccessPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

// === impl UserPattern ===

impl UserPattern {
    fn cover(&self, owner: &str, own: Option<&str>) -> bool {
        match self {
            Self::Others => own != Some(owner),
            Self::Named(names) => names.covers(owner),
        }
    }
}

#[cfg(test)]
mod tests;
