//! Checks before a host starts: the run's limits against those its host enforces, folders the host must not open, and
//! the remaining budget.

use std::path::{Path, PathBuf};

pub use attache_protocol::wire::run::SandboxLimit;
use attache_protocol::{
    Json,
    wire::{adapter::TaskReply, awcp, run::Sandbox},
};

use super::{HostMemory, HostSetup, HostUsage, TurnVerdict, budget::RunBudget, outcome};
use crate::{AdapterWalls, DriverRun};

/// The limits of a run, and who enforces them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgreedLimits {
    /// By the host itself.
    pub(crate) own: Vec<SandboxLimit>,
    /// By the walls around it.
    pub(crate) walled: Vec<SandboxLimit>,
}

/// The task's limits, if all of them are enforced. Otherwise the failure reply, and nothing is started.
pub(crate) fn agreed(setup: &HostSetup, job: &DriverRun) -> Result<AgreedLimits, TaskReply> {
    let proved = job.walls.as_ref().map(|walls| walls.proved.as_slice()).unwrap_or_default();
    let enforced: Vec<SandboxLimit> = setup.enforces.iter().chain(proved).copied().collect();
    let mut limits = check_limits(job.task.sandbox.as_ref(), &setup.label, &enforced)?;
    add_defaults(&mut limits, job.task.default_sandbox.as_ref(), proved)?;
    // A host with an option for it runs without programs. Any other one would only run into errors.
    let by_walls = |limit: &SandboxLimit| {
        proved.contains(limit) && !(*limit == SandboxLimit::NoExec && setup.enforces.contains(limit))
    };
    let (walled, own) = limits.into_iter().partition(by_walls);
    let limits = AgreedLimits { own, walled };
    check_folder(setup, job)?;
    let budget = RunBudget::of(job.task.budget.as_ref());
    if budget.cost_usd.is_some() && !setup.tells_cost {
        let message = format!(
            "{} doesn't report what a run costs, so a dollar limit (of the run, or of a quota) can't be enforced and the task \
             was not started; limit the tokens instead (--tokens), or use an agent that reports its cost",
            setup.label
        );
        return Err(TaskReply::failed("refused", message));
    }
    match budget.exceeded_by(&HostUsage::of_tokens(0, 0).with_cost(0.0)) {
        None => Ok(limits),
        Some(message) => Err(outcome::over_budget(&setup.label, &message)),
    }
}

/// Whether walls show the run nothing of the person's but its folder.
pub(crate) fn sees_only_folder(job: &DriverRun) -> bool {
    let is_asked = |sandbox: Option<&Json>| {
        requested_sandbox(sandbox).is_ok_and(|sandbox| sandbox.limits().contains(&SandboxLimit::CwdOnly))
    };
    job.walls.as_ref().is_some_and(|walls| walls.proved.contains(&SandboxLimit::CwdOnly))
        && (is_asked(job.task.sandbox.as_ref()) || is_asked(job.task.default_sandbox.as_ref()))
}

/// Whether walls hold any of its limits, so that they hide the folders of other agents from it.
pub(crate) fn is_walled(job: &DriverRun) -> bool {
    let is_held = |sandbox: Option<&Json>, walls: &AdapterWalls| {
        requested_sandbox(sandbox).is_ok_and(|sandbox| sandbox.limits().iter().any(|it| walls.proved.contains(it)))
    };
    let asked = [job.task.sandbox.as_ref(), job.task.default_sandbox.as_ref()];
    job.walls.as_ref().is_some_and(|walls| asked.into_iter().any(|sandbox| is_held(sandbox, walls)))
}

/// The setup of a host for this run. One that sees only its folder has no session to continue: the records of a host's
/// sessions aren't kept apart, and those of one person are not for another. Neither has one in a folder that is lent, or in a worktree of its own: hosts
/// keep sessions by folder.
pub(crate) fn setup_for(setup: &HostSetup, job: &DriverRun) -> HostSetup {
    let memory = match sees_only_folder(job) || job.task.task_type == awcp::TASK_TYPE || job.worktree.is_some() {
        true => HostMemory::Stateless,
        false => setup.memory.of_run(job.task.for_owner),
    };
    HostSetup { memory, ..setup.clone() }
}

/// The same for a plain program, which runs inside the machine's walls if there are limits.
pub(crate) fn of_walls(label: &str, job: &DriverRun) -> Result<Vec<SandboxLimit>, TaskReply> {
    let proved = job.walls.as_ref().map(|walls| walls.proved.as_slice()).unwrap_or_default();
    let mut limits = check_limits(job.task.sandbox.as_ref(), label, proved)?;
    add_defaults(&mut limits, job.task.default_sandbox.as_ref(), proved)?;
    Ok(limits)
}

/// Adds the limits that the device's owner wants wherever walls enforce them.
fn add_defaults(
    limits: &mut Vec<SandboxLimit>,
    wanted: Option<&Json>,
    proved: &[SandboxLimit],
) -> Result<(), TaskReply> {
    let wanted = requested_sandbox(wanted)?.limits();
    limits.extend(wanted.into_iter().filter(|limit| proved.contains(limit)));
    limits.sort_unstable();
    limits.dedup();
    Ok(())
}

fn check_limits(sandbox: Option<&Json>, host: &str, enforces: &[SandboxLimit]) -> Result<Vec<SandboxLimit>, TaskReply> {
    let asked = requested_sandbox(sandbox)?;
    let Some(unmet) = asked.unmet(enforces) else { return Ok(asked.limits()) };
    let message = format!(
        "{host} can't enforce these limits on this device: {unmet}, so the task was not started; remove the limits, or use \
         an agent that enforces them"
    );
    Err(TaskReply::failed("refused", message))
}

/// Keeps a host that would execute files in the folder out of folders that contain such files. Files in the person's
/// own home folder, or above it, are theirs.
fn check_folder(setup: &HostSetup, job: &DriverRun) -> Result<(), TaskReply> {
    match executable_of(setup, job) {
        None => Ok(()),
        Some(path) => Err(TaskReply::failed(
            "refused",
            format!(
                "{} would execute `{}` and has no option to prevent that, so the task was not started; remove it or, if you \
                 trust the folder, set `executes = []` for {} in presets.toml",
                setup.label,
                path.display(),
                setup.kind
            ),
        )),
    }
}

/// The second check, after the host has loaded its files: anything that appeared since the first check may have been
/// executed, so the run stops.
pub(crate) fn still_harmless(setup: &HostSetup, job: &DriverRun) -> Result<(), TurnVerdict> {
    match executable_of(setup, job) {
        None => Ok(()),
        Some(path) => Err(TurnVerdict::NotAllowed {
            message: format!(
                "`{}` appeared while {} was starting, which executes such files, so it was stopped; find out who created it \
                 and remove it",
                path.display(),
                setup.label
            ),
        }),
    }
}

fn executable_of(setup: &HostSetup, job: &DriverRun) -> Option<PathBuf> {
    let home = job.environment.get("HOME").map(Path::new);
    let folders = job.cwd.ancestors().take_while(|folder| Some(*folder) != home);
    let mut names = folders.flat_map(|folder| setup.executes.iter().map(|name| folder.join(name)));
    names.find(|path| path.symlink_metadata().is_ok())
}

fn requested_sandbox(sandbox: Option<&Json>) -> Result<Sandbox, TaskReply> {
    let Some(sandbox) = sandbox.filter(|sandbox| sandbox.get() != "null") else { return Ok(Sandbox::default()) };
    // Limits that can't be read can't be enforced.
    sandbox.parse().map_err(|error| {
        TaskReply::failed("refused", format!("the run's `sandbox` is invalid ({error}), so the task was not started"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sandbox: &str, enforced: &[SandboxLimit]) -> Result<Vec<SandboxLimit>, String> {
        let json = Json::from_text(sandbox).unwrap();
        let kept = check_limits(Some(&json), "the host", enforced);
        kept.map_err(|reply| {
            let error = reply.error.unwrap();
            format!("{}: {}", error.code, error.message)
        })
    }

    #[test]
    fn limits_the_host_does_not_enforce_are_refused() {
        assert_eq!(check_limits(None, "the host", &[]), Ok(Vec::new()));
        assert_eq!(check("null", &[]), Ok(Vec::new()));
        assert_eq!(check(r#"{"cwd_only":false,"allow_network":true,"allow_exec":true}"#, &[]), Ok(Vec::new()));
        let all = r#"{"cwd_only":true,"allow_network":false,"allow_exec":false}"#;
        let limits = [SandboxLimit::CwdOnly, SandboxLimit::NoNetwork, SandboxLimit::NoExec];
        assert_eq!(check(all, &limits), Ok(limits.to_vec()));
        assert_eq!(
            check(all, &[SandboxLimit::CwdOnly]).unwrap_err(),
            "refused: the host can't enforce these limits on this device: no network (allow_network: false), no programs \
             (allow_exec: false), so the task was not started; remove the limits, or use an agent that enforces them"
        );
        assert!(check("[1]", &limits).unwrap_err().starts_with("refused: the run's `sandbox` is invalid"));
    }

    #[test]
    fn limits_of_the_devices_owner_apply_where_walls_enforce_them() {
        let wanted = Json::from_text(r#"{"cwd_only":true,"allow_network":false}"#).unwrap();
        let with = |asked: &[SandboxLimit], proved: &[SandboxLimit]| {
            let mut limits = asked.to_vec();
            add_defaults(&mut limits, Some(&wanted), proved).map(|()| limits)
        };
        assert_eq!(with(&[], &[]), Ok(Vec::new()));
        assert_eq!(with(&[], &[SandboxLimit::CwdOnly]), Ok(vec![SandboxLimit::CwdOnly]));
        let both = vec![SandboxLimit::CwdOnly, SandboxLimit::NoNetwork];
        assert_eq!(with(&[SandboxLimit::NoNetwork], &SandboxLimit::ALL), Ok(both));
    }
}
