//! One table of `presets.toml` as written: every key is optional, and a later file overrides individual keys.

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::Deserialize;

use super::{ApprovalSupport, DriverKind, ExecOutputFormat, ExecOutputRules, LoginRule, Preset, VersionRule};
use crate::{HostNeeds, MemorySize, SandboxLimit};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PresetRow {
    label: Option<String>,
    driver: Option<DriverKind>,
    programs: Option<Vec<String>>,
    args: Option<Vec<String>>,
    env: Option<Vec<String>>,
    set: Option<BTreeMap<String, String>>,
    version: Option<VersionRule>,
    login: Option<LoginRule>,
    install: Option<String>,
    sign_in: Option<String>,
    output: Option<ExecOutputRules>,
    enforces: Option<BTreeMap<SandboxLimit, Vec<String>>>,
    executes: Option<Vec<String>>,
    asks: Option<ApprovalSupport>,
    costs: Option<bool>,
    budget: Option<Vec<String>>,
    walls: Option<HostNeeds>,
    /// Only in the table `walls`, which is no host: what every run inside walls may use.
    memory: Option<MemoryRow>,
    processes: Option<NonZeroU32>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct MemoryRow(MemorySize);

/// What every run inside walls may use, where a person chose it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChosenResources {
    pub memory: Option<MemorySize>,
    pub processes: Option<NonZeroU32>,
}

/// The table with [`ChosenResources`].
pub(super) const WALLS: &str = "walls";

/// Reserved names of built-in drivers.
const RESERVED: &[&str] = &["shell", "command", "conformance"];

/// Proxy and certificate variables that every host needs to reach its model.
const NETWORK: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];

// === impl PresetRow ===

impl PresetRow {
    /// This row, with keys of `other` taking precedence.
    pub(super) fn replaced_by(self, other: Self) -> Self {
        Self {
            label: other.label.or(self.label),
            driver: other.driver.or(self.driver),
            programs: other.programs.or(self.programs),
            args: other.args.or(self.args),
            env: other.env.or(self.env),
            set: other.set.or(self.set),
            version: other.version.or(self.version),
            login: other.login.or(self.login),
            install: other.install.or(self.install),
            sign_in: other.sign_in.or(self.sign_in),
            output: other.output.or(self.output),
            enforces: other.enforces.or(self.enforces),
            executes: other.executes.or(self.executes),
            asks: other.asks.or(self.asks),
            costs: other.costs.or(self.costs),
            budget: other.budget.or(self.budget),
            // What a person adds doesn't take away what the host needs.
            walls: match (self.walls, other.walls) {
                (Some(own), Some(more)) => Some(own.with(more)),
                (own, more) => more.or(own),
            },
            memory: other.memory.or(self.memory),
            processes: other.processes.or(self.processes),
        }
    }

    /// The table [`WALLS`], or what is wrong with it.
    pub(super) fn resources(self) -> Result<ChosenResources, String> {
        if self.driver.is_some() || self.programs.is_some() {
            return Err(format!("`{WALLS}` isn't a host; it has the keys memory and processes"));
        }
        Ok(ChosenResources { memory: self.memory.map(|MemoryRow(size)| size), processes: self.processes })
    }

    /// The complete preset, or what is wrong with the row.
    pub(super) fn complete(self, name: &str) -> Result<Preset, String> {
        if !is_name(name) {
            return Err(format!("`{name}` isn't a valid host name; use lower-case letters, digits and underscores"));
        }
        if RESERVED.contains(&name) {
            return Err(format!("`{name}` is built in; choose another name"));
        }
        if self.memory.is_some() || self.processes.is_some() {
            return Err(format!(
                "`{name}` can't have its own memory and processes; put them into [{WALLS}], for all runs"
            ));
        }
        let Some(driver) = self.driver else {
            return Err(format!("`{name}` has no driver; add driver = \"acp\" (or claude, codex, exec)"));
        };
        let programs = self.programs.unwrap_or_default();
        if let Some(program) = programs.iter().find(|program| program.is_empty() || is_relative(program)) {
            return Err(format!("the program `{program}` of `{name}` must be a plain name or an absolute path"));
        }
        let (mut env, set) = (self.env.unwrap_or_default(), self.set.unwrap_or_default());
        if let Some(variable) = env.iter().chain(set.keys()).find(|variable| !is_variable(variable)) {
            return Err(format!("`{variable}` of `{name}` isn't a valid variable name"));
        }
        env.extend(NETWORK.iter().map(|name| (*name).to_owned()));
        let output = self.output.unwrap_or_default();
        if output.format != ExecOutputFormat::Text && output.read.is_empty() {
            return Err(format!("the output of `{name}` is JSON, but there is no [[{name}.output.read]] rule"));
        }
        let budget = self.budget.unwrap_or_default();
        if !budget.is_empty() && !budget.iter().any(|arg| arg.contains("{cost_usd}")) {
            return Err(format!("the budget of `{name}` has no placeholder for the amount; add {{cost_usd}}"));
        }
        Ok(Preset {
            name: name.to_owned(),
            label: self.label.unwrap_or_else(|| name.to_owned()),
            driver,
            programs,
            args: self.args.unwrap_or_default(),
            env,
            set,
            version: self.version.unwrap_or_default(),
            login: self.login.unwrap_or_default(),
            install: self.install.unwrap_or_default(),
            sign_in: self.sign_in.unwrap_or_default(),
            enforces: self.enforces.unwrap_or_default(),
            executes: self.executes.unwrap_or_default(),
            asks: self.asks.unwrap_or(ApprovalSupport::of(driver)),
            costs: self.costs.unwrap_or_else(|| match driver {
                DriverKind::Claude => true,
                DriverKind::Exec => output.tells_cost() || !budget.is_empty(),
                DriverKind::Codex | DriverKind::Acp => false,
            }),
            output,
            budget,
            walls: self.walls,
        })
    }
}

// === impl MemoryRow ===

impl TryFrom<String> for MemoryRow {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

fn is_relative(program: &str) -> bool {
    program.contains('/') && !program.starts_with('/')
}

fn is_variable(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit()) && name.bytes().all(allowed)
}
