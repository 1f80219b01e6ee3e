//! What all drivers of real agents share: the host's process, what is reported of a turn, and what it ended as.
//!
//! A driver starts a [`Process`], speaks its host's dialect over it, tells everything to a [`Turn`], and ends with a
//! [`Verdict`]; [`outcome::reply`] makes the honest answer of the three.

pub(crate) mod budget;
mod git;
pub(crate) mod limits;
pub(crate) mod lines;
mod memory;
pub(crate) mod outage;
pub(crate) mod outcome;
pub(crate) mod paths;
pub(crate) mod process;
pub(crate) mod prompt;
pub(crate) mod question;
pub(crate) mod rpc;
pub(crate) mod text_stream;
pub(crate) mod turn;

use std::{ffi::OsString, path::PathBuf};

pub use self::limits::SandboxLimit;
pub(crate) use self::{
    budget::HostUsage,
    lines::{HostLines, HostWriter},
    outcome::TurnVerdict,
    process::{HostLaunch, HostProcess, InheritedSecret},
    question::{ApprovalAnswer, ApprovalQuestion, KeyedAnswer},
    turn::HostTurn,
};

/// Our tools for one run, as hosts know them. Not `attache`: that is what `attache mcp install` calls the person's own server,
/// and hosts merge what both say under one name.
pub(crate) const TOOLS_SERVER: &str = "attache_run";

/// Which program is the host, and what to call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSetup {
    /// What the hub and `/health` are told, such as `claude_cli`.
    pub kind: String,
    /// What people read, such as `Claude Code`.
    pub label: String,
    pub program: OsString,
    /// Come before those that the driver adds.
    pub args: Vec<OsString>,
    pub version: Option<String>,
    /// The limits that this host keeps by itself when it is told to.
    pub enforces: Vec<SandboxLimit>,
    /// What this host would execute of the folder that it works in, whatever it is told: a run in a folder that has one of
    /// these is refused.
    pub executes: Vec<PathBuf>,
    /// Whether it asks before it takes a risky step.
    pub asks: bool,
    pub memory: HostMemory,
    /// Whether it says what a run costs; if not, no limit in dollars can be kept.
    pub tells_cost: bool,
}

/// What a host remembers from one run to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HostMemory {
    /// Nothing: each run starts anew.
    #[default]
    Stateless,
    /// The host's own record of a conversation is taken up again; which one that is, is noted in this folder.
    PerConversation(PathBuf),
}

// === impl HostSetup ===

impl HostSetup {
    /// A host without arguments, limits or memory of its own.
    pub fn new(kind: impl Into<String>, label: impl Into<String>, program: impl Into<OsString>) -> Self {
        Self {
            kind: kind.into(),
            label: label.into(),
            program: program.into(),
            args: Vec::new(),
            version: None,
            enforces: Vec::new(),
            executes: Vec::new(),
            asks: false,
            memory: HostMemory::Stateless,
            tells_cost: true,
        }
    }

    pub(crate) fn host(&self) -> attache_protocol::wire::adapter::HostInfo {
        attache_protocol::wire::adapter::HostInfo { kind: self.kind.clone(), version: self.version.clone() }
    }
}
