//! `attache delegations diff`: what a lease changed, and whether anything is left out.

use std::path::{Path, PathBuf};

use attache_delegation::delegator::{originals_folder, staged_folders};
use attache_protocol::{DelegationId, error::exit, wire::delegation::DelegationDiff};
use attache_workspace::{
    export::LeaseRecord,
    report::{self, NOT_SHOWN},
};

use crate::{
    env::{context::CommandContext, ids::IdArg},
    server::daemon_access,
    ui::failure::CommandFailure,
};

pub(super) async fn run(context: &CommandContext, delegation: &IdArg, paths: &[String]) -> Result<(), CommandFailure> {
    let daemon = daemon_access::daemon(context).await?;
    let id = delegation.delegation(&daemon).await?;
    let diff = if paths.is_empty() {
        daemon.diff(id).await?
    } else {
        let delegation = daemon.get(id).await?;
        let staged = staged_folders(&context.config.awcp_home()?, id);
        let (before, folder) = match staged.filter(|_| delegation.staged.is_some()) {
            Some(staged) => (staged.base, staged.copy),
            None => (originals(context, id)?, PathBuf::from(&delegation.workspace_dir)),
        };
        let text = of_paths(&before, &folder, id, paths)?;
        DelegationDiff { text, accepted: delegation.accepted }
    };
    // No other line of a patch starts like this.
    let left = diff.text.lines().filter(|line| line.starts_with(NOT_SHOWN)).count();
    if context.output.is_json() {
        context.output.json(&diff)?;
    } else {
        context.output.raw(&diff.text)?;
    }
    let shown = daemon.get(id).await?;
    if !diff.text.is_empty()
        && let Some(text) = super::staged_text(context, &shown)
    {
        context.output.say(format_args!("This delegation is staged: {text}."));
    }
    if left == 0 {
        return Ok(());
    }
    let files = if left == 1 { "1 changed file is".to_owned() } else { format!("{left} changed files are") };
    context.output.say(if paths.is_empty() {
        format!(
            "{files} not shown because of the size limit. Their names are at the end of the diff. Show them: attache \
             delegations diff {id} PATH…"
        )
    } else {
        format!("{files} too large to show, or unreadable. The originals are in {}.", originals(context, id)?.display())
    });
    Err(CommandFailure::quiet(exit::INCOMPLETE))
}

/// Where the daemon keeps the originals of changed files.
fn originals(context: &CommandContext, delegation: DelegationId) -> Result<PathBuf, CommandFailure> {
    Ok(originals_folder(&context.config.awcp_home()?, delegation))
}

/// Compares the originals with the current files.
fn of_paths(before: &Path, folder: &Path, id: DelegationId, paths: &[String]) -> Result<String, CommandFailure> {
    if !before.exists() {
        let message = format!("there are no originals of {id}: it changed nothing, or they were removed to save space");
        return Err(CommandFailure::new("not_found", exit::NOT_FOUND, message)
            .hint(format!("Show what was saved at its end: attache delegations diff {id}")));
    }
    let record =
        LeaseRecord::load(before).map_err(|error| CommandFailure::file("read the originals in", before, &error))?;
    report::diff_of(folder, &record, paths).map_err(|error| {
        let failure = match &error {
            report::Error::NotBelow(_) => CommandFailure::usage(error.to_string()),
            report::Error::Untouched(_) => CommandFailure::new("not_found", exit::NOT_FOUND, error.to_string()),
            _ => CommandFailure::failed(error.to_string()),
        };
        failure.hint(format!("List the changed paths: attache delegations show {id}"))
    })
}
