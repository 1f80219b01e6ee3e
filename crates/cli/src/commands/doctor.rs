//! `attache doctor`: what is right and wrong on this machine, each with its fix, and never a secret.

mod hosts;

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use attache_client::{HubClient, PageQuery};
use attache_protocol::{Code, error::exit, wire::system::Storage};
use attache_runtime::{
    ConnectionStatus,
    profile::{Profile, Profiles},
};
use serde::Serialize;

use super::runtime::status;
use crate::{
    CommandContext, CommandFailure, adapter_probe,
    collaborator_setup::{self, CollaboratorReadiness},
    context::{ChosenHub, HubArgs, KeySource},
    daemon_access,
    home::Home,
    local_server::LOST_KEY_HINT,
    output::{TextStyle, clean, time},
    runtime_notices,
};

/// Check this machine for problems and suggest fixes
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache doctor
  attache doctor --json          the same, for programs; it holds no secret
  attache doctor --hub https://hub.example.org --key-file my.key

Exits with 0 when nothing is wrong and 1 otherwise; warnings do not count.")]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Debug, Clone, Serialize)]
struct DoctorReport {
    ok: bool,
    version: &'static str,
    findings: Vec<DoctorFinding>,
    /// The hosts of agents that are installed.
    hosts: Vec<hosts::DoctorHost>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct DoctorFinding {
    /// A stable name: `home`, `hub`, `key`, `profiles`, …
    check: &'static str,
    state: FindingState,
    message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum FindingState {
    Ok,
    Warning,
    Problem,
}

/// Megabytes.
const MIN_FREE_MIB: u64 = 200;

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let mut findings = vec![check_home(&context)];
    let choice = check_hub(&context, &args.hub, &mut findings).await;
    check_profiles(&context, choice.as_ref(), &mut findings).await;
    check_delegations(&context, &mut findings).await;
    let hosts = hosts::check(&context, &mut findings).await;
    if args.hub.hub.is_none() && context.config.url.is_none() {
        downgrade_missing_hub(&context, &mut findings);
    }
    let ok = findings.iter().all(|finding| finding.state != FindingState::Problem);
    let mut report = DoctorReport { ok, version: env!("CARGO_PKG_VERSION"), findings, hosts };
    let output = &context.output;
    if output.is_json() {
        report.redact(&context);
        output.json(&report)?;
    } else {
        for finding in &report.findings {
            let (sign, style) = match finding.state {
                FindingState::Ok => ("✓", TextStyle::Good),
                FindingState::Warning => ("!", TextStyle::Busy),
                FindingState::Problem => ("✗", TextStyle::Bad),
            };
            output.line(format_args!("{} {}", output.paint(style, sign), clean::line(&finding.message)))?;
            if let Some(fix) = &finding.fix {
                output.line(format_args!("  → {}", clean::line(fix)))?;
            }
        }
    }
    if report.ok { Ok(()) } else { Err(CommandFailure::quiet(exit::FAILED)) }
}

fn check_home(context: &CommandContext) -> DoctorFinding {
    let path = match context.config.home() {
        Ok(path) => path,
        Err(failure) => return DoctorFinding::problem("home", failure.message).fix(failure.hint),
    };
    let shown = path.display();
    let metadata = match fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return DoctorFinding::ok(
                "home",
                format!("{shown} is not there yet; the first command that needs it makes it"),
            );
        }
        Err(error) => return DoctorFinding::problem("home", format!("{shown}: {error}")).fix("Check who owns it."),
    };
    let (mode, own) = (metadata.permissions().mode() & 0o777, metadata.uid() == rustix::process::geteuid().as_raw());
    if !own {
        return DoctorFinding::problem("home", format!("{shown} belongs to another user"))
            .fix("Set A2A_HOME to a folder of yours.");
    }
    if mode & 0o077 != 0 {
        return DoctorFinding::problem("home", format!("others can enter {shown} (mode {mode:03o})"))
            .fix(format!("chmod 700 {shown}"));
    }
    if let Some(finding) = check_room(&path) {
        return finding;
    }
    DoctorFinding::ok("home", format!("{shown} is private"))
}

/// Without room a device takes no work and a hub stores nothing.
fn check_room(path: &Path) -> Option<DoctorFinding> {
    let room = rustix::fs::statvfs(path).ok()?;
    let left = room.f_bavail.saturating_mul(room.f_frsize) >> 20;
    let shown = path.display();
    match left {
        0 => Some(DoctorFinding::problem("home", format!("the disk of {shown} is full")).fix("Free some space.")),
        1..MIN_FREE_MIB => Some(
            DoctorFinding::warning("home", format!("only {left} MB are left on the disk of {shown}"))
                .fix("Free some space before it is full: then nothing new is begun here."),
        ),
        _ => None,
    }
}

async fn check_hub(context: &CommandContext, args: &HubArgs, findings: &mut Vec<DoctorFinding>) -> Option<ChosenHub> {
    let choice = match context.choose_hub(args) {
        Ok(choice) => choice,
        Err(failure) => {
            findings.push(DoctorFinding::problem("hub", failure.message).fix(failure.hint));
            return None;
        }
    };
    let origin = choice.address.origin();
    let hub = match HubClient::new(choice.options()) {
        Ok(hub) => hub,
        Err(error) => {
            findings.push(DoctorFinding::problem("hub", error.to_string()));
            return None;
        }
    };
    match hub.health().await {
        Ok(health) => {
            findings
                .push(DoctorFinding::ok("hub", format!("the hub at {origin} answers (version {})", health.version)));
            let durability = format!("what it acknowledges survives: {} ({})", health.durability, health.store);
            findings.push(if health.durability == "nothing" {
                DoctorFinding::warning("durability", durability)
                    .fix("Run a hub with a data folder: attache hub --data DIR")
            } else {
                DoctorFinding::ok("durability", durability)
            });
            findings.extend(health.storage.map(|storage| check_storage(&origin, storage)));
            findings.push(check_key(context, &hub, &choice).await);
        }
        Err(error) => {
            let absent = choice.address.is_loopback() && matches!(error, attache_client::Error::Unreachable { .. });
            let failure = CommandFailure::from(error);
            let fix = if absent { "Start one: attache up".to_owned() } else { failure.hint };
            findings.push(DoctorFinding::problem("hub", failure.message).fix(fix));
        }
    }
    Some(choice)
}

fn check_storage(origin: &str, storage: Storage) -> DoctorFinding {
    let Some(problem) = storage.problem() else {
        return DoctorFinding::ok("storage", format!("the hub at {origin} can store what it is told"));
    };
    let fix = match storage {
        Storage::DiskFull => Code::DiskFull.hint(),
        Storage::ReadOnly => Code::ReadOnly.hint(),
        Storage::Ok | Storage::Failed | Storage::Slow => Code::StorageFailed.hint(),
    };
    DoctorFinding::problem("storage", format!("the hub at {origin} can store nothing: {problem}")).fix(fix)
}

/// A device that works for a hub elsewhere needs none of its own.
fn downgrade_missing_hub(context: &CommandContext, findings: &mut [DoctorFinding]) {
    let own = context.config.home.clone().map(Home::at).is_some_and(|home| home.hub().join("admin.key").exists());
    let works = findings.iter().any(|finding| finding.check == "profile_hub" && finding.state == FindingState::Ok);
    let missing = findings.iter_mut().find(|finding| finding.check == "hub" && finding.state == FindingState::Problem);
    if let Some(finding) = missing.filter(|_| works && !own) {
        *finding = DoctorFinding::ok("hub", "no hub runs on this machine; this device works for another one");
    }
}

/// The key file of this machine's hub is not there, or what it holds is not good.
fn lost_owner_key(context: &CommandContext, choice: &ChosenHub) -> Option<String> {
    let home = context.config.home.clone().map(Home::at)?;
    let local = home.recorded_hub().filter(|local| local.is_at(&choice.address.origin()))?;
    let is_its = match &choice.source {
        KeySource::File(path) => *path == local.key_file,
        KeySource::None => !local.key_file.exists(),
        KeySource::Environment => false,
    };
    is_its.then(|| format!("The owner key belongs in {}. {LOST_KEY_HINT}", local.key_file.display()))
}

async fn check_key(context: &CommandContext, hub: &HubClient, choice: &ChosenHub) -> DoctorFinding {
    let lost = lost_owner_key(context, choice);
    let from = match &choice.source {
        KeySource::File(path) => path.display().to_string(),
        KeySource::Environment => "ATTACHE_KEY".to_owned(),
        KeySource::None => {
            return DoctorFinding::problem("key", "there is no key for this hub").fix(lost.unwrap_or_else(|| {
                "Give one with --key-file FILE or ATTACHE_KEY; an owner makes keys with `attache keys add`.".to_owned()
            }));
        }
    };
    if let KeySource::File(path) = &choice.source
        && is_loose(path)
    {
        return DoctorFinding::problem("key", format!("others can read the key in {from}"))
            .fix(format!("chmod 600 {from}"));
    }
    match hub.accounts(&PageQuery { limit: Some(1), cursor: None }).await {
        Ok(_) => DoctorFinding::ok("key", format!("the key in {from} is accepted")),
        Err(error) => {
            let failure = CommandFailure::from(error);
            DoctorFinding::problem("key", format!("the key in {from} is not accepted: {}", failure.message))
                .fix(lost.unwrap_or(failure.hint))
        }
    }
}

async fn check_profiles(context: &CommandContext, choice: Option<&ChosenHub>, findings: &mut Vec<DoctorFinding>) {
    let Ok(path) = context.config.home() else { return };
    let home = Home::at(path);
    let set = match Profiles::at(home.path(), context.env.clone()).load() {
        Ok(set) => set,
        Err(error) => {
            let fix = format!("chmod 600 {}", home.profiles().display());
            let finding = DoctorFinding::problem("profiles", error.to_string());
            let loose = matches!(error, attache_runtime::Error::LooseProfile { .. });
            findings.push(if loose { finding.fix(fix) } else { finding });
            return;
        }
    };
    if set.profiles.is_empty() {
        let fix = "To run tasks here: attache agents code AGENT, then attache runtime pair CODE --api-base URL";
        findings.push(DoctorFinding::ok("profiles", "this device is paired with no agent").fix(fix));
    }
    for profile in set.profiles.values() {
        findings.push(check_profile(context, &home, profile));
        if let Some(endpoint) = &profile.local_agent_endpoint {
            findings.push(check_adapter(endpoint).await);
        } else if let Some(finding) = hosts::check_executor(context, profile) {
            findings.push(finding);
        } else {
            findings.extend(hosts::try_start(context, profile).await);
        }
        let known = choice.is_some_and(|choice| choice.address.api_base() == profile.api_base);
        if !known && let Ok(hub) = status::hub(context, profile) {
            findings.push(match hub.health().await {
                Ok(_) => DoctorFinding::ok("profile_hub", format!("the profile's hub at {} answers", hub.address())),
                Err(_) => DoctorFinding::warning(
                    "profile_hub",
                    format!("the profile's hub at {} does not answer", hub.address()),
                )
                .fix("Start that hub, or use another of its addresses: attache runtime start --api-base URL"),
            });
        }
    }
}

/// What policy.toml says about folders, and whether what it needs is here.
async fn check_delegations(context: &CommandContext, findings: &mut Vec<DoctorFinding>) {
    let Ok(file) = daemon_access::policy(context) else { return };
    match file.read() {
        Ok(policy) => {
            let (roots, peers) = (policy.delegator.roots.len(), policy.delegator.peers.len());
            findings.push(if roots == 0 && peers == 0 {
                DoctorFinding::ok("policy", "no folder of this machine may be lent")
            } else {
                DoctorFinding::ok(
                    "policy",
                    format!("folders below {roots} roots may be lent to {peers} agents elsewhere"),
                )
            });
            check_collaborator(context, findings);
        }
        // Nothing is lent and nothing is taken until it is mended.
        Err(invalid) => {
            let line = invalid.line.map(|line| format!(", line {line}")).unwrap_or_default();
            let message = format!("{}{line}: {}", invalid.path.display(), invalid.what);
            findings.push(DoctorFinding::problem("policy", message).fix(invalid.fix));
        }
    }
    let Ok(client) = daemon_access::client(context) else { return };
    findings.push(match client.health().await {
        Ok(_) => DoctorFinding::ok("daemon", "the daemon that lends folders runs"),
        Err(attache_client::daemon::Error::NotRunning { .. }) => {
            DoctorFinding::ok("daemon", "no daemon runs; one is started when a folder is lent")
        }
        Err(error) => {
            let failure = CommandFailure::from(error);
            DoctorFinding::problem("daemon", failure.message).fix(failure.hint)
        }
    });
}

/// Whether folders that others lend could be mounted here.
fn check_collaborator(context: &CommandContext, findings: &mut Vec<DoctorFinding>) {
    const CHECK: &str = "collaborator";
    match collaborator_setup::readiness(context) {
        Ok(CollaboratorReadiness::Off) => {
            findings.push(DoctorFinding::ok(CHECK, "this machine takes no folders that others lend"))
        }
        Ok(CollaboratorReadiness::Ready(place)) => {
            findings.push(DoctorFinding::ok(CHECK, format!("folders that others lend can be mounted below {place}")));
        }
        Ok(CollaboratorReadiness::Unready(wrong)) => {
            findings.extend(wrong.into_iter().map(|(what, fix)| DoctorFinding::problem(CHECK, what).fix(fix)));
        }
        Err(failure) => findings.push(DoctorFinding::problem(CHECK, failure.message).fix(failure.hint)),
    }
}

fn check_profile(context: &CommandContext, home: &Home, profile: &Profile) -> DoctorFinding {
    let key = profile.key();
    let seen = time::relative_or(profile.last_heartbeat_at, context.now(), "never");
    if status::is_running(home.path(), profile.agent_id) {
        let clock = ConnectionStatus::read(home.path(), profile.agent_id).and_then(|now| now.clock_ahead_minutes);
        if let Some(ahead) = clock {
            return DoctorFinding::warning("profile", format!("{key} runs; {}", runtime_notices::clock(ahead)))
                .fix("Set the clock that is wrong, best by NTP.");
        }
        if status::is_online(profile, context.now()) {
            return DoctorFinding::ok("profile", format!("{key} runs; last heartbeat {seen}"));
        }
        return DoctorFinding::warning("profile", format!("{key} runs, but its last heartbeat was {seen}"))
            .fix("Look at what `attache runtime start` says; the hub may be away.");
    }
    DoctorFinding::warning("profile", format!("{key} is paired and not running; last heartbeat {seen}"))
        .fix(format!("attache runtime start --profile {key}"))
}

/// Health is open to all, so no secret is needed for a look.
async fn check_adapter(endpoint: &str) -> DoctorFinding {
    match adapter_probe::adapter(endpoint).await {
        Ok(()) => DoctorFinding::ok("adapter", format!("the adapter at {endpoint} answers")),
        Err(reason) => {
            DoctorFinding::problem("adapter", format!("the adapter at {endpoint} does not answer: {reason}")).fix(
                "Start it; `attache adapter shell --listen ADDR` is one, docs/adapter.md says how to write others.",
            )
        }
    }
}

fn is_loose(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

// === impl DoctorReport ===

impl DoctorReport {
    /// What is sent to others does not say whose machine it is.
    fn redact(&mut self, context: &CommandContext) {
        let Some(person) = context.config.user_home.as_ref().map(|path| path.display().to_string()) else { return };
        let findings = self.findings.iter_mut().flat_map(|finding| [Some(&mut finding.message), finding.fix.as_mut()]);
        let troubles = self.hosts.iter_mut().map(|host| host.trouble.as_mut());
        for text in findings.chain(troubles).flatten().filter(|_| person.len() > 1) {
            *text = text.replace(&person, "~");
        }
    }
}

// === impl DoctorFinding ===

impl DoctorFinding {
    fn new(check: &'static str, state: FindingState, message: impl Into<String>) -> Self {
        Self { check, state, message: message.into(), fix: None }
    }

    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, FindingState::Ok, message)
    }

    fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, FindingState::Warning, message)
    }

    fn problem(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, FindingState::Problem, message)
    }

    fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()).filter(|fix| !fix.is_empty()), ..self }
    }
}
