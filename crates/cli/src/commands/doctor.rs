//! `attache doctor`: checks this machine and suggests fixes. Never prints secrets.

mod adapter_probe;
mod finding;
mod hosts;

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use attache_client::{HubClient, PageQuery};
use attache_protocol::{
    Code, Secret,
    error::exit,
    wire::{run::SandboxLimit, system::Storage},
};
use attache_runtime::{
    ConnectionStatus,
    profile::{Profile, Profiles},
};
use serde::Serialize;

use super::runtime::status;
use crate::{
    env::{
        context::{ChosenHub, CommandContext, HubArgs, KeySource},
        home::Home,
        walls,
    },
    server::{
        collaborator_setup::{self, CollaboratorReadiness},
        daemon_access,
    },
    text::{doctor as texts, errors, terms},
    ui::{
        failure::CommandFailure,
        hint,
        output::{TextStyle, clean, time},
        runtime_notices,
    },
};
use adapter_probe::AdapterProblem;
use finding::{DoctorFinding, FindingState};

/// Check this machine for problems and suggest fixes
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache doctor
  attache doctor sandbox         only whether agents can be confined here, and what is missing
  attache doctor --json          machine-readable report, without secrets
  attache doctor --hub https://hub.example.org --key-file my.key

Exits with 1 if there are problems, otherwise with 0. Warnings don't count as problems.")]
pub(crate) struct Args {
    /// Run only this check
    #[arg(value_name = "CHECK")]
    only: Option<DoctorTopic>,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DoctorTopic {
    Home,
    Hub,
    Devices,
    Delegations,
    Sandbox,
    Hosts,
}

#[derive(Debug, Clone, Serialize)]
struct DoctorReport {
    ok: bool,
    version: &'static str,
    findings: Vec<DoctorFinding>,
    /// Installed agent hosts.
    hosts: Vec<hosts::DoctorHost>,
}

/// Megabytes.
const MIN_FREE_MIB: u64 = 200;

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let wants = |topic| args.only.is_none_or(|only| only == topic);
    let (mut findings, mut choice, mut hosts) = (Vec::new(), None, Vec::new());
    if wants(DoctorTopic::Home) {
        findings.push(check_home(&context));
    }
    if wants(DoctorTopic::Hub) {
        choice = check_hub(&context, &args.hub, &mut findings).await;
    }
    if wants(DoctorTopic::Devices) {
        check_profiles(&context, choice.as_ref(), &mut findings).await;
    }
    if wants(DoctorTopic::Delegations) {
        check_delegations(&context, &mut findings).await;
    }
    if wants(DoctorTopic::Sandbox) {
        findings.push(check_walls().await);
    }
    if wants(DoctorTopic::Hosts) {
        hosts = hosts::check(&context, &mut findings).await;
    }
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
            return DoctorFinding::ok("home", texts::home_later(shown));
        }
        Err(error) => {
            return DoctorFinding::problem("home", texts::home_unreadable(shown, error))
                .fix(texts::check_permissions());
        }
    };
    let (mode, own) = (metadata.permissions().mode() & 0o777, metadata.uid() == rustix::process::geteuid().as_raw());
    if !own {
        return DoctorFinding::problem("home", texts::home_foreign(shown)).fix(texts::home_foreign_do());
    }
    if mode & 0o077 != 0 {
        return DoctorFinding::problem("home", texts::home_open(&shown, format_args!("{mode:03o}")))
            .fix(format!("chmod 700 {shown}"));
    }
    if let Some(finding) = check_room(&path) {
        return finding;
    }
    DoctorFinding::ok("home", texts::home_private(shown))
}

/// Whether agents can be confined on this machine.
async fn check_walls() -> DoctorFinding {
    let proof = match walls::launcher() {
        Ok(launcher) => tokio::task::spawn_blocking(move || launcher.prove()).await,
        Err(failure) => return DoctorFinding::warning("sandbox", failure.message),
    };
    match proof {
        Ok(proof) if proof.limits() == SandboxLimit::ALL => DoctorFinding::ok("sandbox", texts::walls_hold(proof)),
        Ok(proof) => {
            let fix = proof.missing.first().cloned().unwrap_or_else(|| texts::walls_leak_do().to_owned());
            DoctorFinding::warning("sandbox", texts::walls_leak(proof)).fix(fix)
        }
        Err(error) => DoctorFinding::warning("sandbox", texts::walls_untried(error)),
    }
}

/// Without free disk space, a device accepts no tasks and a hub can't store anything.
fn check_room(path: &Path) -> Option<DoctorFinding> {
    let room = rustix::fs::statvfs(path).ok()?;
    let left = room.f_bavail.saturating_mul(room.f_frsize) >> 20;
    let shown = path.display();
    match left {
        0 => Some(DoctorFinding::problem("home", texts::disk_full(shown)).fix(errors::free_space())),
        1..MIN_FREE_MIB => Some(DoctorFinding::warning("home", texts::disk_low(left, shown)).fix(texts::disk_low_do())),
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
            findings.push(DoctorFinding::ok("hub", texts::hub_reachable(&origin, &health.version)));
            let durability = texts::durability(&health.durability, &health.store);
            findings.push(if health.durability == "nothing" {
                let fix = match health.store.starts_with("PostgreSQL") {
                    true => texts::durability_postgres(),
                    false => texts::durability_file(),
                };
                DoctorFinding::warning("durability", durability).fix(fix)
            } else {
                DoctorFinding::ok("durability", durability)
            });
            findings.extend(health.storage.map(|storage| check_storage(&origin, storage)));
            findings.push(check_key(context, &hub, &choice).await);
        }
        Err(error) => {
            let absent = choice.address.is_loopback() && matches!(error, attache_client::Error::Unreachable { .. });
            let failure = CommandFailure::from(error);
            let fix = if absent { texts::start_hub().to_owned() } else { failure.hint };
            findings.push(DoctorFinding::problem("hub", failure.message).fix(fix));
        }
    }
    Some(choice)
}

fn check_storage(origin: &str, storage: Storage) -> DoctorFinding {
    if storage == Storage::DiskLow {
        return DoctorFinding::warning("storage", texts::storage_low(origin)).fix(hint::of_code(Code::DiskLow, None));
    }
    let Some(problem) = storage.problem() else {
        return DoctorFinding::ok("storage", texts::storage_works(origin));
    };
    let fix = match storage {
        Storage::DiskFull => Code::DiskFull,
        Storage::ReadOnly => Code::ReadOnly,
        Storage::Unreachable => Code::DatabaseUnreachable,
        Storage::ServedElsewhere => Code::ServedElsewhere,
        Storage::Ok | Storage::DiskLow | Storage::Failed | Storage::Slow => Code::StorageFailed,
    };
    DoctorFinding::problem("storage", texts::storage_broken(origin, problem)).fix(hint::of_code(fix, None))
}

/// A device that is paired with a remote hub doesn't need a local one.
fn downgrade_missing_hub(context: &CommandContext, findings: &mut [DoctorFinding]) {
    let own = context.config.home.clone().map(Home::at).is_some_and(|home| home.hub().join("admin.key").exists());
    let works = findings.iter().any(|finding| finding.check == "profile_hub" && finding.state == FindingState::Ok);
    let missing = findings.iter_mut().find(|finding| finding.check == "hub" && finding.state == FindingState::Problem);
    if let Some(finding) = missing.filter(|_| works && !own) {
        *finding = DoctorFinding::ok("hub", texts::remote_hub());
    }
}

/// A fix if the owner key file of this machine's hub is missing or invalid.
fn lost_owner_key(context: &CommandContext, choice: &ChosenHub) -> Option<String> {
    let home = context.config.home.clone().map(Home::at)?;
    let local = home.recorded_hub().filter(|local| local.is_at(&choice.address.origin()))?;
    let is_its = match &choice.source {
        KeySource::File(path) => *path == local.key_file,
        KeySource::None => !local.key_file.exists(),
        KeySource::Environment => false,
    };
    is_its.then(|| texts::owner_key_lost(local.key_file.display(), texts::lost_key()))
}

async fn check_key(context: &CommandContext, hub: &HubClient, choice: &ChosenHub) -> DoctorFinding {
    let lost = lost_owner_key(context, choice);
    let from = match &choice.source {
        KeySource::File(path) => path.display().to_string(),
        KeySource::Environment => "ATTACHE_KEY".to_owned(),
        KeySource::None => {
            return DoctorFinding::problem("key", texts::no_key())
                .fix(lost.unwrap_or_else(|| texts::no_key_do().to_owned()));
        }
    };
    if let KeySource::File(path) = &choice.source
        && is_loose(path)
    {
        return DoctorFinding::problem("key", texts::key_open(&from)).fix(format!("chmod 600 {from}"));
    }
    match hub.accounts(&PageQuery { limit: Some(1), cursor: None }).await {
        Ok(_) => DoctorFinding::ok("key", texts::key_accepted(from)),
        Err(error) => {
            let failure = CommandFailure::from(error);
            if failure.exit != exit::DENIED {
                // It says nothing about the key.
                return DoctorFinding::problem("key", texts::key_unchecked(from, &failure.message)).fix(failure.hint);
            }
            DoctorFinding::problem("key", texts::key_rejected(from, &failure.message)).fix(lost.unwrap_or(failure.hint))
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
        let fix = texts::not_paired_do();
        findings.push(DoctorFinding::ok("profiles", texts::not_paired()).fix(fix));
    }
    for profile in set.profiles.values() {
        findings.push(check_profile(context, &home, profile));
        if let Some(endpoint) = &profile.local_agent_endpoint {
            findings.push(check_adapter(endpoint, profile.adapter_secret.as_ref()).await);
        } else if let Some(finding) = hosts::check_executor(context, profile) {
            findings.push(finding);
        } else {
            findings.extend(hosts::try_start(context, profile).await);
        }
        let known = choice.is_some_and(|choice| choice.address.api_base() == profile.api_base);
        if !known && let Ok(hub) = status::hub(context, profile) {
            findings.push(match hub.health().await {
                Ok(_) => DoctorFinding::ok("profile_hub", texts::profile_hub(hub.address())),
                Err(_) => DoctorFinding::warning("profile_hub", texts::profile_hub_away(hub.address()))
                    .fix(texts::profile_hub_away_do()),
            });
        }
    }
}

/// Checks policy.toml, the daemon and the requirements for borrowed folders.
async fn check_delegations(context: &CommandContext, findings: &mut Vec<DoctorFinding>) {
    let Ok(file) = daemon_access::policy(context) else { return };
    match file.read() {
        Ok(policy) => {
            let (roots, peers) = (policy.delegator.roots.len(), policy.delegator.peers.len());
            findings.push(if roots == 0 && peers == 0 {
                DoctorFinding::ok("policy", texts::nothing_delegated())
            } else {
                let (folders, peers) = (texts::folders(roots as u64), texts::trusted_peers(peers as u64));
                DoctorFinding::ok("policy", texts::delegable(folders, peers))
            });
            check_collaborator(context, findings);
        }
        // Nothing is delegated or borrowed until the file is fixed.
        Err(invalid) => {
            let message = match invalid.line {
                Some(line) => texts::policy_line(invalid.path.display(), line, &invalid.what),
                None => texts::policy_wrong(invalid.path.display(), &invalid.what),
            };
            findings.push(DoctorFinding::problem("policy", message).fix(invalid.fix));
        }
    }
    let Ok(client) = daemon_access::client(context) else { return };
    findings.push(match client.health().await {
        Ok(_) => DoctorFinding::ok("daemon", texts::daemon_runs()),
        Err(attache_client::daemon::Error::NotRunning { .. }) => DoctorFinding::ok("daemon", texts::daemon_later()),
        Err(error) => {
            let failure = CommandFailure::from(error);
            DoctorFinding::problem("daemon", failure.message).fix(failure.hint)
        }
    });
}

/// Whether borrowed folders can be mounted on this machine.
fn check_collaborator(context: &CommandContext, findings: &mut Vec<DoctorFinding>) {
    const CHECK: &str = "collaborator";
    match collaborator_setup::readiness(context) {
        Ok(CollaboratorReadiness::Off) => {
            findings.push(DoctorFinding::ok(CHECK, texts::borrowing_off()));
        }
        Ok(CollaboratorReadiness::Ready(place)) => {
            findings.push(DoctorFinding::ok(CHECK, texts::borrowing_ready(place)));
        }
        Ok(CollaboratorReadiness::Copies { place, wrong }) => {
            let text = texts::borrowing_copies(place);
            findings.push(DoctorFinding::ok(CHECK, text));
            findings.extend(wrong.into_iter().map(|(what, fix)| DoctorFinding::warning(CHECK, what).fix(fix)));
        }
        Ok(CollaboratorReadiness::Unready(wrong)) => {
            findings.extend(wrong.into_iter().map(|(what, fix)| DoctorFinding::problem(CHECK, what).fix(fix)));
        }
        Err(failure) => findings.push(DoctorFinding::problem(CHECK, failure.message).fix(failure.hint)),
    }
}

fn check_profile(context: &CommandContext, home: &Home, profile: &Profile) -> DoctorFinding {
    let key = profile.key();
    let seen = time::relative_or(profile.last_heartbeat_at, context.now(), terms::never_seen());
    if status::is_running(home.path(), profile.agent_id) {
        let clock = ConnectionStatus::read(home.path(), profile.agent_id).and_then(|now| now.clock_ahead_minutes);
        if let Some(ahead) = clock {
            return DoctorFinding::warning("profile", texts::profile_clock(key, runtime_notices::clock(ahead)))
                .fix(texts::correct_clock());
        }
        if status::is_online(profile, context.now()) {
            return DoctorFinding::ok("profile", texts::profile_runs(key, seen));
        }
        return DoctorFinding::warning("profile", texts::profile_silent(key, seen)).fix(texts::profile_silent_do());
    }
    DoctorFinding::warning("profile", texts::profile_stopped(&key, seen))
        .fix(format!("attache runtime start --profile {key}"))
}

/// Probes the adapter as the runtime does.
async fn check_adapter(endpoint: &str, secret: Option<&Secret<String>>) -> DoctorFinding {
    match adapter_probe::adapter(endpoint, secret).await {
        Ok(()) => DoctorFinding::ok("adapter", texts::adapter_reachable(endpoint)),
        Err(AdapterProblem::WrongSecret) => {
            DoctorFinding::problem("adapter", texts::adapter_secret(endpoint)).fix(texts::adapter_secret_do())
        }
        Err(AdapterProblem::Unreachable(reason)) => {
            DoctorFinding::problem("adapter", texts::adapter_away(endpoint, reason)).fix(texts::adapter_away_do())
        }
    }
}

fn is_loose(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

// === impl DoctorReport ===

impl DoctorReport {
    /// Replaces the home folder with `~`: the report may be shared and must not identify the user.
    fn redact(&mut self, context: &CommandContext) {
        let Some(person) = context.config.user_home.as_ref().map(|path| path.display().to_string()) else { return };
        let findings = self.findings.iter_mut().flat_map(|finding| [Some(&mut finding.message), finding.fix.as_mut()]);
        let troubles = self.hosts.iter_mut().map(|host| host.trouble.as_mut());
        for text in findings.chain(troubles).flatten().filter(|_| person.len() > 1) {
            *text = text.replace(&person, "~");
        }
    }
}
