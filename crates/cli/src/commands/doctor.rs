//! `attache doctor`: what is right and wrong on this machine, each with its fix, and never a secret.

mod hosts;

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use attache_client::{Hub, Page};
use attache_protocol::{Code, error::exit, wire::system::Storage};
use attache_runtime::{
    Connection,
    profile::{Profile, Profiles},
};
use serde::Serialize;

use super::runtime::status;
use crate::{
    Context, Failure,
    borrowing::{self, Readiness},
    context::{Choice, HubArgs, KeySource},
    home::Home,
    lending, notices,
    output::{Style, clean, time},
    probe,
    site::LOST_KEY,
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
struct Report {
    ok: bool,
    version: &'static str,
    findings: Vec<Finding>,
    /// The hosts of agents that are installed.
    hosts: Vec<hosts::View>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// A stable name: `home`, `hub`, `key`, `profiles`, …
    check: &'static str,
    state: State,
    message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Warning,
    Problem,
}

/// Megabytes.
const LITTLE_ROOM: u64 = 200;

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    let mut findings = vec![check_home(&context)];
    let choice = check_hub(&context, &args.hub, &mut findings).await;
    check_profiles(&context, choice.as_ref(), &mut findings).await;
    check_delegations(&context, &mut findings).await;
    let hosts = hosts::check(&context, &mut findings).await;
    if args.hub.hub.is_none() && context.config.url.is_none() {
        excuse_device(&context, &mut findings);
    }
    let ok = findings.iter().all(|finding| finding.state != State::Problem);
    let mut report = Report { ok, version: env!("CARGO_PKG_VERSION"), findings, hosts };
    let output = &context.output;
    if output.is_json() {
        report.redact(&context);
        output.json(&report)?;
    } else {
        for finding in &report.findings {
            let (sign, style) = match finding.state {
                State::Ok => ("✓", Style::Good),
                State::Warning => ("!", Style::Busy),
                State::Problem => ("✗", Style::Bad),
            };
            output.line(format_args!("{} {}", output.paint(style, sign), clean::line(&finding.message)))?;
            if let Some(fix) = &finding.fix {
                output.line(format_args!("  → {}", clean::line(fix)))?;
            }
        }
    }
    if report.ok { Ok(()) } else { Err(Failure::quiet(exit::FAILED)) }
}

fn check_home(context: &Context) -> Finding {
    let path = match context.config.home() {
        Ok(path) => path,
        Err(failure) => return Finding::problem("home", failure.message).fix(failure.hint),
    };
    let shown = path.display();
    let metadata = match fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::ok("home", format!("{shown} is not there yet; the first command that needs it makes it"));
        }
        Err(error) => return Finding::problem("home", format!("{shown}: {error}")).fix("Check who owns it."),
    };
    let (mode, own) = (metadata.permissions().mode() & 0o777, metadata.uid() == rustix::process::geteuid().as_raw());
    if !own {
        return Finding::problem("home", format!("{shown} belongs to another user"))
            .fix("Set A2A_HOME to a folder of yours.");
    }
    if mode & 0o077 != 0 {
        return Finding::problem("home", format!("others can enter {shown} (mode {mode:03o})"))
            .fix(format!("chmod 700 {shown}"));
    }
    if let Some(finding) = check_room(&path) {
        return finding;
    }
    Finding::ok("home", format!("{shown} is private"))
}

/// Without room a device takes no work and a hub stores nothing.
fn check_room(path: &Path) -> Option<Finding> {
    let room = rustix::fs::statvfs(path).ok()?;
    let left = room.f_bavail.saturating_mul(room.f_frsize) >> 20;
    let shown = path.display();
    match left {
        0 => Some(Finding::problem("home", format!("the disk of {shown} is full")).fix("Free some space.")),
        1..LITTLE_ROOM => Some(
            Finding::warning("home", format!("only {left} MB are left on the disk of {shown}"))
                .fix("Free some space before it is full: then nothing new is begun here."),
        ),
        _ => None,
    }
}

async fn check_hub(context: &Context, args: &HubArgs, findings: &mut Vec<Finding>) -> Option<Choice> {
    let choice = match context.choose_hub(args) {
        Ok(choice) => choice,
        Err(failure) => {
            findings.push(Finding::problem("hub", failure.message).fix(failure.hint));
            return None;
        }
    };
    let origin = choice.address.origin();
    let hub = match Hub::new(choice.options()) {
        Ok(hub) => hub,
        Err(error) => {
            findings.push(Finding::problem("hub", error.to_string()));
            return None;
        }
    };
    match hub.health().await {
        Ok(health) => {
            findings.push(Finding::ok("hub", format!("the hub at {origin} answers (version {})", health.version)));
            let durability = format!("what it acknowledges survives: {} ({})", health.durability, health.store);
            findings.push(if health.durability == "nothing" {
                Finding::warning("durability", durability).fix("Run a hub with a data folder: attache hub --data DIR")
            } else {
                Finding::ok("durability", durability)
            });
            findings.extend(health.storage.map(|storage| check_storage(&origin, storage)));
            findings.push(check_key(context, &hub, &choice).await);
        }
        Err(error) => {
            let absent = choice.address.is_loopback() && matches!(error, attache_client::Error::Unreachable { .. });
            let failure = Failure::from(error);
            let fix = if absent { "Start one: attache up".to_owned() } else { failure.hint };
            findings.push(Finding::problem("hub", failure.message).fix(fix));
        }
    }
    Some(choice)
}

fn check_storage(origin: &str, storage: Storage) -> Finding {
    let Some(problem) = storage.problem() else {
        return Finding::ok("storage", format!("the hub at {origin} can store what it is told"));
    };
    let fix = match storage {
        Storage::DiskFull => Code::DiskFull.hint(),
        Storage::ReadOnly => Code::ReadOnly.hint(),
        Storage::Ok | Storage::Failed | Storage::Slow => Code::StorageFailed.hint(),
    };
    Finding::problem("storage", format!("the hub at {origin} can store nothing: {problem}")).fix(fix)
}

/// A device that works for a hub elsewhere needs none of its own.
fn excuse_device(context: &Context, findings: &mut [Finding]) {
    let own = context.config.home.clone().map(Home::at).is_some_and(|home| home.hub().join("admin.key").exists());
    let works = findings.iter().any(|finding| finding.check == "profile_hub" && finding.state == State::Ok);
    let missing = findings.iter_mut().find(|finding| finding.check == "hub" && finding.state == State::Problem);
    if let Some(finding) = missing.filter(|_| works && !own) {
        *finding = Finding::ok("hub", "no hub runs on this machine; this device works for another one");
    }
}

/// The key file of this machine's hub is not there, or what it holds is not good.
fn lost_owner_key(context: &Context, choice: &Choice) -> Option<String> {
    let home = context.config.home.clone().map(Home::at)?;
    let local = home.recorded_hub().filter(|local| local.is_at(&choice.address.origin()))?;
    let is_its = match &choice.source {
        KeySource::File(path) => *path == local.key_file,
        KeySource::None => !local.key_file.exists(),
        KeySource::Environment => false,
    };
    is_its.then(|| format!("The owner key belongs in {}. {LOST_KEY}", local.key_file.display()))
}

async fn check_key(context: &Context, hub: &Hub, choice: &Choice) -> Finding {
    let lost = lost_owner_key(context, choice);
    let from = match &choice.source {
        KeySource::File(path) => path.display().to_string(),
        KeySource::Environment => "ATTACHE_KEY".to_owned(),
        KeySource::None => {
            return Finding::problem("key", "there is no key for this hub").fix(lost.unwrap_or_else(|| {
                "Give one with --key-file FILE or ATTACHE_KEY; an owner makes keys with `attache keys add`.".to_owned()
            }));
        }
    };
    if let KeySource::File(path) = &choice.source
        && is_loose(path)
    {
        return Finding::problem("key", format!("others can read the key in {from}")).fix(format!("chmod 600 {from}"));
    }
    match hub.accounts(&Page { limit: Some(1), cursor: None }).await {
        Ok(_) => Finding::ok("key", format!("the key in {from} is accepted")),
        Err(error) => {
            let failure = Failure::from(error);
            Finding::problem("key", format!("the key in {from} is not accepted: {}", failure.message))
                .fix(lost.unwrap_or(failure.hint))
        }
    }
}

async fn check_profiles(context: &Context, choice: Option<&Choice>, findings: &mut Vec<Finding>) {
    let Ok(path) = context.config.home() else { return };
    let home = Home::at(path);
    let set = match Profiles::at(home.path(), context.env.clone()).load() {
        Ok(set) => set,
        Err(error) => {
            let fix = format!("chmod 600 {}", home.profiles().display());
            let finding = Finding::problem("profiles", error.to_string());
            let loose = matches!(error, attache_runtime::Error::LooseProfile { .. });
            findings.push(if loose { finding.fix(fix) } else { finding });
            return;
        }
    };
    if set.profiles.is_empty() {
        let fix = "To run tasks here: attache agents code AGENT, then attache runtime pair CODE --api-base URL";
        findings.push(Finding::ok("profiles", "this device is paired with no agent").fix(fix));
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
                Ok(_) => Finding::ok("profile_hub", format!("the profile's hub at {} answers", hub.address())),
                Err(_) => {
                    Finding::warning("profile_hub", format!("the profile's hub at {} does not answer", hub.address()))
                        .fix("Start that hub, or use another of its addresses: attache runtime start --api-base URL")
                }
            });
        }
    }
}

/// What policy.toml says about folders, and whether what it needs is here.
async fn check_delegations(context: &Context, findings: &mut Vec<Finding>) {
    let Ok(file) = lending::policy(context) else { return };
    match file.read() {
        Ok(policy) => {
            let (roots, peers) = (policy.delegator.roots.len(), policy.delegator.peers.len());
            findings.push(if roots == 0 && peers == 0 {
                Finding::ok("policy", "no folder of this machine may be lent")
            } else {
                Finding::ok("policy", format!("folders below {roots} roots may be lent to {peers} agents elsewhere"))
            });
            check_collaborator(context, findings);
        }
        // Nothing is lent and nothing is taken until it is mended.
        Err(invalid) => {
            let line = invalid.line.map(|line| format!(", line {line}")).unwrap_or_default();
            let message = format!("{}{line}: {}", invalid.path.display(), invalid.what);
            findings.push(Finding::problem("policy", message).fix(invalid.fix));
        }
    }
    let Ok(client) = lending::client(context) else { return };
    findings.push(match client.health().await {
        Ok(_) => Finding::ok("daemon", "the daemon that lends folders runs"),
        Err(attache_client::daemon::Error::NotRunning { .. }) => {
            Finding::ok("daemon", "no daemon runs; one is started when a folder is lent")
        }
        Err(error) => {
            let failure = Failure::from(error);
            Finding::problem("daemon", failure.message).fix(failure.hint)
        }
    });
}

/// Whether folders that others lend could be mounted here.
fn check_collaborator(context: &Context, findings: &mut Vec<Finding>) {
    const CHECK: &str = "collaborator";
    match borrowing::readiness(context) {
        Ok(Readiness::Off) => findings.push(Finding::ok(CHECK, "this machine takes no folders that others lend")),
        Ok(Readiness::Ready(place)) => {
            findings.push(Finding::ok(CHECK, format!("folders that others lend can be mounted below {place}")));
        }
        Ok(Readiness::Unready(wrong)) => {
            findings.extend(wrong.into_iter().map(|(what, fix)| Finding::problem(CHECK, what).fix(fix)));
        }
        Err(failure) => findings.push(Finding::problem(CHECK, failure.message).fix(failure.hint)),
    }
}

fn check_profile(context: &Context, home: &Home, profile: &Profile) -> Finding {
    let key = profile.key();
    let seen = time::relative_or(profile.last_heartbeat_at, context.now(), "never");
    if status::is_running(home.path(), profile.agent_id) {
        let clock = Connection::read(home.path(), profile.agent_id).and_then(|now| now.clock_ahead_minutes);
        if let Some(ahead) = clock {
            return Finding::warning("profile", format!("{key} runs; {}", notices::clock(ahead)))
                .fix("Set the clock that is wrong, best by NTP.");
        }
        if status::is_online(profile, context.now()) {
            return Finding::ok("profile", format!("{key} runs; last heartbeat {seen}"));
        }
        return Finding::warning("profile", format!("{key} runs, but its last heartbeat was {seen}"))
            .fix("Look at what `attache runtime start` says; the hub may be away.");
    }
    Finding::warning("profile", format!("{key} is paired and not running; last heartbeat {seen}"))
        .fix(format!("attache runtime start --profile {key}"))
}

/// Health is open to all, so no secret is needed for a look.
async fn check_adapter(endpoint: &str) -> Finding {
    match probe::adapter(endpoint).await {
        Ok(()) => Finding::ok("adapter", format!("the adapter at {endpoint} answers")),
        Err(reason) => Finding::problem("adapter", format!("the adapter at {endpoint} does not answer: {reason}"))
            .fix("Start it; `attache adapter shell --listen ADDR` is one, docs/adapter.md says how to write others."),
    }
}

fn is_loose(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

// === impl Report ===

impl Report {
    /// What is sent to others does not say whose machine it is.
    fn redact(&mut self, context: &Context) {
        let Some(person) = context.config.person.as_ref().map(|path| path.display().to_string()) else { return };
        let findings = self.findings.iter_mut().flat_map(|finding| [Some(&mut finding.message), finding.fix.as_mut()]);
        let troubles = self.hosts.iter_mut().map(|host| host.trouble.as_mut());
        for text in findings.chain(troubles).flatten().filter(|_| person.len() > 1) {
            *text = text.replace(&person, "~");
        }
    }
}

// === impl Finding ===

impl Finding {
    fn new(check: &'static str, state: State, message: impl Into<String>) -> Self {
        Self { check, state, message: message.into(), fix: None }
    }

    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Ok, message)
    }

    fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Warning, message)
    }

    fn problem(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Problem, message)
    }

    fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()).filter(|fix| !fix.is_empty()), ..self }
    }
}
