//! Checks of `attache doctor` for agent hosts on this machine: location, version, login and fix.

use std::{os::unix::fs::DirBuilderExt as _, path::PathBuf, time::Duration};

use attache_adapter::preset::{self, DetectedHost, DetectionEnvironment, DriverKind, LoginState};
use attache_protocol::{Secret, env::Env};
use attache_runtime::profile::Profile;
use serde::Serialize;
use tokio::time::Instant;

use super::finding::DoctorFinding;
use crate::{
    env::{config, context::CommandContext, hosts},
    server::supervised_adapter,
    text::doctor as texts,
};

/// Maximum time for a host to start.
const HOST_START_TIMEOUT: Duration = Duration::from_secs(60);

/// A private folder, removed on drop.
#[derive(Debug)]
struct HostProbeFolder(PathBuf);

/// A host in the `--json` report. The home folder is shown as `~`; of a login, only how it was detected.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DoctorHost {
    preset: String,
    label: String,
    program: String,
    version: Option<String>,
    login: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    login_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trouble: Option<String>,
}

/// Detects every host in the preset table.
pub(super) async fn check(context: &CommandContext, findings: &mut Vec<DoctorFinding>) -> Vec<DoctorHost> {
    let table = match hosts::table(context) {
        Ok(table) => table,
        Err(failure) => {
            findings.push(DoctorFinding::problem("presets", failure.message).fix(failure.hint));
            return Vec::new();
        }
    };
    let around = config::detection_environment();
    let found = preset::detect(&table, &around).await;
    if found.is_empty() {
        let fix = texts::no_hosts_do();
        findings.push(DoctorFinding::ok("host", texts::no_hosts()).fix(fix));
    }
    findings.extend(found.iter().map(|found| {
        let said = hosts::describe(found, &around);
        let finding =
            if hosts::is_ready(found) { DoctorFinding::ok("host", said) } else { DoctorFinding::warning("host", said) };
        finding.fix(found.fix.as_deref().unwrap_or_default())
    }));
    found.iter().map(|found| DoctorHost::of(found, &around)).collect()
}

/// Starts the host of a profile as for a task, but without a task, to find startup problems early.
pub(super) async fn try_start(context: &CommandContext, profile: &Profile) -> Option<DoctorFinding> {
    let executor = &profile.local_executor;
    let kind = executor
        .kind
        .as_deref()
        .filter(|kind| !matches!(*kind, supervised_adapter::SHELL | supervised_adapter::COMMAND))?;
    if profile.local_agent_endpoint.is_some() {
        return None;
    }
    let host = hosts::host(context, kind, executor.reference.as_deref()).ok()?;
    let around = config::detection_environment();
    // Other checks report missing hosts, and a program that other users can write to must not be started. A host
    // without a login is started: with its own provider, it may not need one.
    let found = host.detect(&around).await;
    if found.problem.is_some() {
        return None;
    }
    // Use an empty folder to test only the host, not a project. Not in $A2A_HOME, which agents must not see.
    let scratch = HostProbeFolder::make(&context.env).ok()?;
    let folder = scratch.0.join("work");
    attache_os::private_file::folder(&folder).ok()?;
    let label = host.preset.label.clone();
    let mut setup = host.preset.setup(&host.program);
    setup.args.extend(host.args);
    let driver = preset::driver(&host.preset, setup);
    let mut options = attache_adapter::Options::new(driver, Secret::new(String::new()), &folder, &scratch.0);
    options.environment = around.environment_of(&host.preset);
    let began = Instant::now();
    let tried = tokio::time::timeout(HOST_START_TIMEOUT, attache_adapter::try_start(&options)).await;
    Some(match tried {
        // Claude Code reports a missing login only at its first task.
        Ok(Ok(())) if found.login == LoginState::Out && host.preset.driver == DriverKind::Claude => return None,
        Ok(Ok(())) => {
            DoctorFinding::ok("host", texts::host_starts(label, format_args!("{:.1}", began.elapsed().as_secs_f64())))
        }
        Ok(Err(message)) => {
            DoctorFinding::problem("host", texts::host_fails(label, message)).fix(texts::host_fails_do())
        }
        Err(_) => DoctorFinding::warning("host", texts::host_slow(label, HOST_START_TIMEOUT.as_secs()))
            .fix(texts::host_slow_do()),
    })
}

/// Checks that the profile's tasks can be executed without a custom adapter.
pub(super) fn check_executor(context: &CommandContext, profile: &Profile) -> Option<DoctorFinding> {
    let executor = &profile.local_executor;
    match (executor.kind.as_deref(), executor.reference.as_deref()) {
        (None | Some(supervised_adapter::SHELL), _) | (Some(supervised_adapter::COMMAND), Some(_)) => None,
        (Some(supervised_adapter::COMMAND), None) => {
            Some(DoctorFinding::problem("adapter", texts::no_program(profile.key())).fix(texts::no_program_do()))
        }
        (Some(kind), reference) => {
            let failure = hosts::host(context, kind, reference).err()?;
            Some(DoctorFinding::problem("adapter", failure.message).fix(failure.hint))
        }
    }
}

// === impl HostProbeFolder ===

impl HostProbeFolder {
    fn make(env: &Env) -> std::io::Result<Self> {
        let folder = config::temporary_folder().join(format!("attache-doctor-{}", env.random_hex::<16>()));
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for HostProbeFolder {
    fn drop(&mut self) {
        // If this fails, the system cleans up its temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// === impl DoctorHost ===

impl DoctorHost {
    fn of(found: &DetectedHost, around: &DetectionEnvironment) -> Self {
        let (login, login_by) = match &found.login {
            LoginState::In(how) => ("in", Some(how.clone())),
            LoginState::Out => ("out", None),
            LoginState::Unknown => ("unknown", None),
        };
        Self {
            preset: found.preset.clone(),
            label: found.label.clone(),
            program: around.shown(&found.program),
            version: found.version.as_ref().map(ToString::to_string),
            login,
            login_by,
            trouble: found.problem.as_ref().map(ToString::to_string),
        }
    }
}
