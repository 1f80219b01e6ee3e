//! Presets: one row per kind of agent program that people may have installed. Nothing about a particular one is in
//! code.
//!
//! A row names the driver and program of a host, the variables it may see, how its version and login are checked, and
//! how a person fixes what is missing. The built-in rows are in `presets.toml`. A person's own rows come after them and
//! take precedence. To add a host that speaks a supported protocol, add a row.

mod detect;
mod factory;
mod output;
mod row;
mod table;
mod versions;

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use serde::Deserialize;

use crate::{HostFolder, HostNeeds, HostSetup, SandboxLimit};

pub use attache_os::program_trust::UntrustedProgram;

pub use self::{
    detect::{DetectedHost, DetectionEnvironment, HostProblem, LoginState, PROBE_TIMEOUT, detect, probe, version},
    factory::driver,
    output::{
        ExecOutputFormat, ExecOutputRule, ExecOutputRules, OutputPointer, ParsedOutput, ParsedTool, UsageCounting,
    },
    row::ChosenResources,
    table::{PresetError, PresetTable},
    versions::HostVersion,
};

/// One complete row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// The value of `--local-executor-type` and `labels.host_type`, such as `claude_cli`.
    pub name: String,
    /// The name shown to people, such as `Claude Code`.
    pub label: String,
    pub driver: DriverKind,
    /// Names to look up in `PATH`, or absolute paths, in order of preference. Empty if a person must name the program.
    pub programs: Vec<String>,
    /// Arguments of every run, before those the driver adds.
    pub args: Vec<String>,
    /// Variables passed to the host, besides those every task sees.
    pub env: Vec<String>,
    /// Variables that are always set for the host.
    pub set: BTreeMap<String, String>,
    pub version: VersionRule,
    pub login: LoginRule,
    /// How to install it.
    pub install: String,
    /// How to log in.
    pub sign_in: String,
    /// How to read an `exec` host's standard output.
    pub output: ExecOutputRules,
    /// The limits the host can enforce itself, with the arguments an `exec` host needs for each.
    pub enforces: BTreeMap<SandboxLimit, Vec<String>>,
    /// Files in a folder that it would execute, with no way to turn that off.
    pub executes: Vec<String>,
    pub asks: ApprovalSupport,
    /// Whether it reports the cost of a run.
    pub costs: bool,
    /// Arguments that pass the remaining budget to the host. `{cost_usd}` is replaced by the amount.
    pub budget: Vec<String>,
    /// What it needs inside the machine's walls. `None` if it can't run inside.
    pub walls: Option<HostNeeds>,
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
    /// A program that gets the task, prints its answer and exits.
    Exec,
}

/// Whether a host asks before a risky step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalSupport {
    /// Before it changes files and before it runs programs.
    Yes,
    /// Before it changes files. It runs programs without asking.
    Partly,
    No,
    /// It depends on the program.
    Unknown,
}

/// How to determine a host's version, and which versions are too old.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VersionRule {
    /// Another program that knows the version, next to the host's or in `PATH`.
    pub program: Option<String>,
    pub args: Vec<String>,
    pub least: Option<HostVersion>,
}

/// How to check that the host is logged in. Any match is enough. An empty rule means it can't be determined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoginRule {
    /// Variables that contain a key or a token.
    pub variables: Vec<String>,
    /// The variable that overrides the host's folder.
    pub folder_variable: Option<String>,
    /// The host's folder, relative to the home folder.
    pub folder: String,
    /// Files in that folder that exist once someone has logged in.
    pub files: Vec<String>,
    /// Arguments that make the program report its login state by exit status.
    pub command: Vec<String>,
}

// === impl Preset ===

impl Preset {
    /// The setup for a driver, with this program.
    pub fn setup(&self, program: impl Into<OsString>) -> HostSetup {
        HostSetup {
            args: self.args.iter().map(OsString::from).collect(),
            enforces: self.enforces.keys().copied().collect(),
            executes: self.executes.iter().map(PathBuf::from).collect(),
            tells_cost: self.costs,
            asks: self.asks == ApprovalSupport::Yes,
            needs: self.walls.clone().map(|needs| HostNeeds { login: self.login.files.clone(), ..needs }),
            folder: HostFolder { variable: self.login.folder_variable.clone(), name: self.login.folder.clone() },
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

    /// Whether the driver can keep host sessions per conversation.
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

    /// A warning for the person who pairs such a host. `None` if it asks.
    pub fn warning(self, label: &str) -> Option<String> {
        Some(match self {
            Self::Yes => return None,
            Self::Partly => format!(
                "{label} asks before it changes files and before commands it considers dangerous. It runs all other \
                 commands without asking."
            ),
            Self::No => {
                format!(
                    "{label} never asks before it acts. Anyone who can call this agent can run commands on this device: in \
                     its folder if this machine can enforce that (attache sandbox), otherwise with your permissions."
                )
            }
            Self::Unknown => format!("Whether {label} asks before a risky step depends on that program."),
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
