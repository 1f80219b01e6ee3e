//! What is settled before a host is started: the limits that a run asks for, against those that its host keeps; folders that a
//! host is not let into; something left to spend.

use std::path::{Path, PathBuf};

pub use attache_protocol::wire::run::SandboxLimit;
use attache_protocol::{
    Json,
    wire::{adapter::TaskReply, run::Sandbox},
};

use super::{HostSetup, HostUsage, TurnVerdict, budget::RunBudget, outcome};
use crate::DriverRun;

/// The limits of a task, all of which its host keeps; the answer of a run for which nothing is to be started.
pub(crate) fn agreed(setup: &HostSetup, job: &DriverRun) -> Result<Vec<SandboxLimit>, TaskReply> {
    let limits = check_limits(job.task.sandbox.as_ref(), &setup.label, &setup.enforces)?;
    check_folder(setup, job)?;
    let budget = RunBudget::of(job.task.budget.as_ref());
    if budget.cost_usd.is_some() && !setup.tells_cost {
        let message = format!(
            "{} does not say what a run costs, so a limit in dollars (of the run, or of a quota) cannot be kept, and nothing was \
             started; limit the tokens instead (--tokens), or send the task to an agent that tells its costs",
            setup.label
        );
        return Err(TaskReply::failed("refused", message));
    }
    match budget.exceeded_by(&HostUsage::of_tokens(0, 0).with_cost(0.0)) {
        None => Ok(limits),
        Some(message) => Err(outcome::over_budget(&setup.label, &message)),
    }
}

/// The same for a plain program, which keeps no limits.
pub(crate) fn without_limits(label: &str, job: &DriverRun) -> Result<(), TaskReply> {
    check_limits(job.task.sandbox.as_ref(), label, &[]).map(drop)
}

fn check_limits(sandbox: Option<&Json>, host: &str, enforces: &[SandboxLimit]) -> Result<Vec<SandboxLimit>, TaskReply> {
    let asked = requested_sandbox(sandbox)?;
    let Some(unmet) = asked.unmet(enforces) else { return Ok(asked.limits()) };
    let message = format!(
        "the run asks for limits that {host} does not keep on this device ({unmet}), so nothing was started; ask without them, \
         or send the task to an agent that keeps them"
    );
    Err(TaskReply::failed("refused", message))
}

/// A host that would execute what lies in a folder is not let into one that has such things. What lies in the person's own
/// home folder, or above it, is theirs.
fn check_folder(setup: &HostSetup, job: &DriverRun) -> Result<(), TaskReply> {
    match executable_of(setup, job) {
        None => Ok(()),
        Some(path) => Err(TaskReply::failed(
            "refused",
            format!(
                "{} would execute what lies in `{}`, and cannot be told not to, so nothing was started; remove it, or, if you \
                 trust the folder, set `executes = []` for {} in presets.toml",
                setup.label,
                path.display(),
                setup.kind
            ),
        )),
    }
}

/// The second look, once the host has loaded what it loads: what appeared since the first one may have been executed, and
/// nothing more of the run is.
pub(crate) fn still_harmless(setup: &HostSetup, job: &DriverRun) -> Result<(), TurnVerdict> {
    match executable_of(setup, job) {
        None => Ok(()),
        Some(path) => Err(TurnVerdict::NotAllowed {
            message: format!(
                "`{}` appeared while {} started, which executes what lies there, so it was stopped; see who put it there and \
                 remove it",
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
    // Limits that cannot be read are limits that nobody keeps.
    sandbox.parse().map_err(|error| {
        TaskReply::failed("refused", format!("the run's `sandbox` cannot be read ({error}), so nothing was started"))
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
    fn what_nobody_keeps_is_named_and_refused() {
        assert_eq!(check_limits(None, "the host", &[]), Ok(Vec::new()));
        assert_eq!(check("null", &[]), Ok(Vec::new()));
        assert_eq!(check(r#"{"cwd_only":false,"allow_network":true,"allow_exec":true}"#, &[]), Ok(Vec::new()));
        let all = r#"{"cwd_only":true,"allow_network":false,"allow_exec":false}"#;
        let limits = [SandboxLimit::CwdOnly, SandboxLimit::NoNetwork, SandboxLimit::NoExec];
        assert_eq!(check(all, &limits), Ok(limits.to_vec()));
        assert_eq!(
            check(all, &[SandboxLimit::CwdOnly]).unwrap_err(),
            "refused: the run asks for limits that the host does not keep on this device (no network (allow_network: false), \
             no programs (allow_exec: false)), so nothing was started; ask without them, or send the task to an agent that \
             keeps them"
        );
        assert!(check("[1]", &limits).unwrap_err().starts_with("refused: the run's `sandbox` cannot be read"));
    }
}
