//! Shared by all drivers of real agents: the host's process, the reporting of a turn, and its outcome.
//!
//! A driver starts a [`process::HostProcess`], speaks its host's dialect over it, reports everything to a [`HostTurn`],
//! and ends with a [`TurnVerdict`]. [`outcome::reply`] combines the three into the run's reply.

pub(crate) mod budget;
mod edit_scope;
mod exchange;
pub(crate) mod git;
mod git_settings;
pub(crate) mod inside;
pub(crate) mod limits;
pub(crate) mod lines;
mod login_copy;
pub(crate) mod memory;
pub(crate) mod outage;
pub(crate) mod outcome;
pub(crate) mod process;
pub(crate) mod prompt;
pub(crate) mod question;
pub(crate) mod recent;
pub(crate) mod rpc;
pub(crate) mod session_file;
pub(crate) mod text_stream;
pub(crate) mod turn;

use std::{ffi::OsString, path::PathBuf};

pub(crate) use self::{
    budget::HostUsage,
    exchange::{HostExchange, HostInput, OpenHostQuestion},
    lines::{HostLines, HostWriter},
    outcome::TurnVerdict,
    process::{HostLaunch, HostProcess, InheritedSecret},
    question::{ApprovalAnswer, ApprovalQuestion, KeyedAnswer},
    turn::HostTurn,
};
pub use self::{
    inside::{AllowedHostName, HostFolder, HostNeeds},
    limits::SandboxLimit,
    session_file::{SessionChoice, StoredHostSession},
};

/// Name of the MCP server with our tools for one run. Not `attache`: `attache mcp install` uses that name for the
/// person's own server, and hosts merge servers of the same name.
pub(crate) const TOOLS_SERVER: &str = "attache_run";

/// Identifies a host: its program, type and label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSetup {
    /// The host type reported to the hub and by `/health`, such as `claude_cli`.
    pub kind: String,
    /// The name shown to people, such as `Claude Code`.
    pub label: String,
    pub program: OsString,
    /// Placed before the arguments the driver adds.
    pub args: Vec<OsString>,
    pub version: Option<String>,
    /// The limits this host can enforce itself.
    pub enforces: Vec<SandboxLimit>,
    /// What it needs inside the machine's walls. `None` if it can't run inside.
    pub needs: Option<HostNeeds>,
    pub folder: HostFolder,
    /// Files in the working folder that this host would execute, whatever it is told. A run in a folder that contains
    /// one of them is refused.
    pub executes: Vec<PathBuf>,
    /// Whether it asks before a risky step.
    pub asks: bool,
    pub memory: HostMemory,
    /// Whether it reports the cost of a run. If not, limits in dollars can't be enforced.
    pub tells_cost: bool,
}

/// How a host remembers earlier runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HostMemory {
    /// Not at all: each run starts fresh.
    #[default]
    Stateless,
    /// The host resumes its own session for the conversation. This folder records which one.
    PerConversation(PathBuf),
    /// The same, but only for runs of the agent's owner ([`RunTask::for_owner`]). Other runs start fresh.
    ///
    /// [`RunTask::for_owner`]: attache_protocol::wire::adapter::RunTask::for_owner
    OfOwner(PathBuf),
}

// === impl HostSetup ===

impl HostSetup {
    /// A host without extra arguments, limits or memory.
    pub fn new(kind: impl Into<String>, label: impl Into<String>, program: impl Into<OsString>) -> Self {
        Self {
            kind: kind.into(),
            label: label.into(),
            program: program.into(),
            args: Vec::new(),
            version: None,
            enforces: Vec::new(),
            needs: None,
            folder: HostFolder::default(),
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
