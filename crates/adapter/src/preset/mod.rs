//! Presets: one row per kind of agent that people have installed, and nothing about any of them in code.
//!
//! A row says which driver speaks with the host, which program it is, what it may see, how its version and its login
//! are checked, and what a person does when something is missing. The rows are in `presets.toml`, a person's own rows
//! come after them and win. Adding a host that speaks a protocol that a driver knows is adding a row.

mod detect;
mod factory;
mod output;
mod row;
mod table;
mod trust;
mod versions;

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use serde::Deserialize;

use crate::{HostSetup, SandboxLimit};

pub use self::{
    detect::{DetectedHost, DetectionEnvironment, HostProblem, LoginState, PROBE_TIMEOUT, detect, probe, version},
    factory::driver,
    output::{ExecOutputFormat, ExecOutputRule, ExecOutputRules, OutputPointer, ParsedOutput, ParsedTool, UsageScope},
    table::{PresetMistake, PresetTable},
    trust::UntrustedProgram,
    versions::HostVersion,
};

/// One row of the table, complete.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// What `--local-executor-type` and `labels.host_type` say: `claude_cli`.
    pub name: String,
    /// What people call it: `Claude Code`.
    pub label: String,
    pub driver: DriverKind,
    /// Names to look for in `PATH`, or absolute paths, the best first. Empty when a person must name the program.
    pub programs: Vec<String>,
    /// Arguments of every run, before those of the driver.
    pub args: Vec<String>,
    /// Variables that reach the host besides those that every task sees.
    pub env: Vec<String>,
    /// Variables that the host always gets.
    pub set: BTreeMap<String, String>,
    pub version: VersionRule,
    pub login: LoginRule,
    /// How a person installs it.
    pub install: String,
    /// How a person logs in.
    pub sign_in: String,
    /// How an `exec` host's standard output is read.
    pub output: ExecOutputRules,
    /// The limits of a run that the host keeps by itself, with the arguments that an `exec` host needs for each.
    pub enforces: BTreeMap<SandboxLimit, Vec<String>>,
    /// What it would execute of a folder, with no way to switch that off.
    pub executes: Vec<String>,
    pub asks: ApprovalSupport,
    /// Whether it says what a run costs.
    pub costs: bool,
    /// Arguments that give the host what is left of the budget; `{cost_usd}` stands for it.
    pub budget: Vec<String>,
}

/// Which driver speaks with the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverKind {
    /// Claude Code: JSON lines in both directions.
    Claude,
    /// `codex app-server`: JSON-RPC.
    Codex,
    /// Anything that speaks the Agent Client Protocol.
    Acp,
    /// A program that gets the task, prints and ends.
    Exec,
}

/// Whether a host asks before a risky step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalSupport {
    /// Before it changes files and before it runs programs.
    Yes,
    /// Before it changes files; it runs programs unasked.
    Partly,
    No,
    /// That is up to the program.
    Unknown,
}

/// How a host's version is asked and what is too old.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VersionRule {
    /// Another program that knows the version, beside the host's or in `PATH`.
    pub program: Option<String>,
    pub args: Vec<String>,
    pub least: Option<HostVersion>,
}

/// How one sees that the host is logged in. Any one of these is enough; none at all means that nobody can tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoginRule {
    /// Variables that hold a key or a token.
    pub variables: Vec<String>,
    /// The variable that moves the host's folder.
    pub folder_variable: Option<String>,
    /// The host's folder below the home folder.
    pub folder: String,
    /// Files in that folder that exist once somebody has logged in.
    pub files: Vec<String>,
    /// Arguments with which the program says by its exit status whether it is logged in.
    pub command: Vec<String>,
}

// === impl Preset ===

impl Preset {
    /// The host as a driver takes it, started with this program.
    pub fn setup(&self, program: impl Into<OsString>) -> HostSetup {
        HostSetup {
            args: self.args.iter().map(OsString::from).collect(),
            enforces: self.enforces.keys().copied().collect(),
            executes: self.executes.iter().map(PathBuf::from).collect(),
            tells_cost: self.costs,
            asks: self.asks == ApprovalSupport::Yes,
            ..HostSetup::new(&self.name, &self.label, program)
        }
    }
}

// === impl DriverKind ===

impl DriverKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Acp => "acp",
            Self::Exec => "exec",
        }
    }

    /// Whether the driver can keep a host's sessions per conversation.
    pub const fn keeps_sessions(self) -> bool {
        match self {
            Self::Claude | Self::Codex | Self::Acp => true,
            Self::Exec => false,
        }
    }
}

// === impl ApprovalSupport ===

impl ApprovalSupport {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }

    /// What whoever pairs such a host should know; nothing about one that asks.
    pub fn warning(self, label: &str) -> Option<String> {
        Some(match self {
            Self::Yes => return None,
            Self::Partly => format!(
                "{label} asks before it changes files, and only before commands that it takes for dangerous; it runs others unasked."
            ),
            Self::No => {
                format!(
                    "{label} asks nobody before it acts: whoever may call this agent runs commands here with your rights."
                )
            }
            Self::Unknown => format!("Whether {label} asks before a risky step is up to that program."),
        })
    }

    const fn of(driver: DriverKind) -> Self {
        match driver {
            DriverKind::Claude | DriverKind::Codex => Self::Yes,
            DriverKind::Acp => Self::Unknown,
            DriverKind::Exec => Self::No,
        }
    }
}

// === impl VersionRule ===

impl Default for VersionRule {
    fn default() -> Self {
        Self { program: None, args: vec!["--version".to_owned()], least: None }
    }
}
