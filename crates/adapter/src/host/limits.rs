//! What is settled before a host is started: the limits that a run asks for, against those that its host keeps; folders that a
//! host is not let into; something left to spend.

use std::{fmt, path::Path};

use attache_protocol::{Json, wire::adapter::TaskReply};
use serde::{Deserialize, Serialize};

use super::{Setup, Usage, budget::Budget, outcome};
use crate::Job;

/// One thing that a task must not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Touch files outside of its folder.
    CwdOnly,
    /// Use the network.
    NoNetwork,
    /// Run programs.
    NoExec,
}

/// `sandbox` of a task, as DESIGN has it.
#[derive(Debug, Default, Deserialize)]
struct Asked {
    cwd_only: Option<bool>,
    allow_network: Option<bool>,
    allow_exec: Option<bool>,
}

/// The limits of a task, all of which its host keeps; the answer of a run for which nothing is to be started.
pub(crate) fn agreed(setup: &Setup, job: &Job) -> Result<Vec<Limit>, TaskReply> {
    let limits = kept(job.task.sandbox.as_ref(), &setup.label, &setup.enforces)?;
    harmless(setup, job)?;
    match Budget::of(job.task.budget.as_ref()).exceeded_by(&Usage::of_tokens(0, 0).with_cost(0.0)) {
        None => Ok(limits),
        Some(message) => Err(outcome::over_budget(&setup.label, &message)),
    }
}

/// The same for a plain program, which keeps no limits.
pub(crate) fn without_limits(label: &str, job: &Job) -> Result<(), TaskReply> {
    kept(job.task.sandbox.as_ref(), label, &[]).map(drop)
}

fn kept(sandbox: Option<&Json>, host: &str, enforces: &[Limit]) -> Result<Vec<Limit>, TaskReply> {
    let asked = asked(sandbox)?;
    let missing: Vec<String> = asked.iter().filter(|limit| !enforces.contains(limit)).map(Limit::to_string).collect();
    if missing.is_empty() {
        return Ok(asked);
    }
    let message = format!(
        "the run asks for limits that {host} does not keep on this device ({}), so nothing was started; ask without them, or \
         send the task to an agent that keeps them",
        missing.join(", ")
    );
    Err(TaskReply::failed("refused", message))
}

/// A host that would execute what lies in a folder is not let into one that has such things. What lies in the person's own
/// home folder, or above it, is theirs.
fn harmless(setup: &Setup, job: &Job) -> Result<(), TaskReply> {
    let home = job.environment.get("HOME").map(Path::new);
    let folders = job.cwd.ancestors().take_while(|folder| Some(*folder) != home);
    let found = folders.flat_map(|folder| setup.executes.iter().map(|name| folder.join(name)));
    match found.into_iter().find(|path| path.symlink_metadata().is_ok()) {
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

fn asked(sandbox: Option<&Json>) -> Result<Vec<Limit>, TaskReply> {
    let Some(sandbox) = sandbox.filter(|sandbox| sandbox.get() != "null") else { return Ok(Vec::new()) };
    // Limits that cannot be read are limits that nobody keeps.
    let asked: Asked = sandbox.parse().map_err(|error| {
        TaskReply::failed("refused", format!("the run's `sandbox` cannot be read ({error}), so nothing was started"))
    })?;
    let wanted = [
        (asked.cwd_only == Some(true), Limit::CwdOnly),
        (asked.allow_network == Some(false), Limit::NoNetwork),
        (asked.allow_exec == Some(false), Limit::NoExec),
    ];
    Ok(wanted.into_iter().filter_map(|(is_asked, limit)| is_asked.then_some(limit)).collect())
}

// === impl Limit ===

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CwdOnly => "only its folder (cwd_only)",
            Self::NoNetwork => "no network (allow_network: false)",
            Self::NoExec => "no programs (allow_exec: false)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sandbox: &str, enforced: &[Limit]) -> Result<Vec<Limit>, String> {
        let json = Json::from_text(sandbox).unwrap();
        let kept = kept(Some(&json), "the host", enforced);
        kept.map_err(|reply| {
            let error = reply.error.unwrap();
            format!("{}: {}", error.code, error.message)
        })
    }

    #[test]
    fn what_nobody_keeps_is_named_and_refused() {
        assert_eq!(kept(None, "the host", &[]), Ok(Vec::new()));
        assert_eq!(check("null", &[]), Ok(Vec::new()));
        assert_eq!(check(r#"{"cwd_only":false,"allow_network":true,"allow_exec":true}"#, &[]), Ok(Vec::new()));
        let all = r#"{"cwd_only":true,"allow_network":false,"allow_exec":false}"#;
        let limits = [Limit::CwdOnly, Limit::NoNetwork, Limit::NoExec];
        assert_eq!(check(all, &limits), Ok(limits.to_vec()));
        assert_eq!(
            check(all, &[Limit::CwdOnly]).unwrap_err(),
            "refused: the run asks for limits that the host does not keep on this device (no network (allow_network: false), \
             no programs (allow_exec: false)), so nothing was started; ask without them, or send the task to an agent that \
             keeps them"
        );
        assert!(check("[1]", &limits).unwrap_err().starts_with("refused: the run's `sandbox` cannot be read"));
    }
}
