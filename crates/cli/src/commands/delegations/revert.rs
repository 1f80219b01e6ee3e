//! `attache delegations revert`: restores files to their state before a lease and keeps the person's own edits.

use std::io::{self, BufRead as _, Write as _};

use attache_client::daemon::DaemonClient;
use attache_protocol::{
    DelegationId,
    error::exit,
    wire::delegation::{ConflictChoice, KeptPath, RevertRequest, RevertResult},
};

use crate::{
    env::{context::CommandContext, ids::IdArg},
    server::daemon_access,
    ui::{
        failure::CommandFailure,
        output::{TextStyle, clean},
        prompt,
    },
};

pub(super) async fn run(
    context: &CommandContext,
    delegation: &IdArg,
    paths: Vec<String>,
    take: Option<&str>,
) -> Result<(), CommandFailure> {
    let daemon = daemon_access::daemon(context).await?;
    let delegation = delegation.delegation(&daemon).await?;
    let request = RevertRequest { paths, take: take.and_then(version), ..RevertRequest::default() };
    let reverted = revert(context, &daemon, delegation, &request).await?;
    let ended = if reverted.kept.is_empty() { Ok(()) } else { Err(CommandFailure::quiet(exit::INCOMPLETE)) };
    if context.output.is_json() {
        context.output.json(&reverted)?;
        return ended;
    }
    for path in &reverted.restored {
        context.output.line(clean::line(path))?;
    }
    say_kept(context, delegation, &reverted.kept);
    context.output.say(format_args!("{} restored, {} skipped.", reverted.restored.len(), reverted.kept.len()));
    ended
}

/// Reverts, and on a terminal asks about the files that both sides edited.
pub(super) async fn revert(
    context: &CommandContext,
    daemon: &DaemonClient,
    delegation: DelegationId,
    request: &RevertRequest,
) -> Result<RevertResult, CommandFailure> {
    let mut reverted = daemon.revert(delegation, request).await?;
    for (path, take) in choose(context, &reverted)? {
        let asked =
            RevertRequest { paths: vec![path.clone()], alone: true, take: Some(take), ..RevertRequest::default() };
        let RevertResult { restored, kept } = daemon.revert(delegation, &asked).await?;
        reverted.kept.retain(|left| left.path != path);
        reverted.restored.extend(restored);
        reverted.kept.extend(kept);
    }
    Ok(reverted)
}

/// Says which files were skipped and why, and how to choose a version.
pub(super) fn say_kept(context: &CommandContext, delegation: DelegationId, kept: &[KeptPath]) {
    for kept in kept {
        say_skipped(context, &kept.path, &kept.reason);
        for version in &kept.versions {
            context.output.say_styled(TextStyle::Dim, format_args!("  your version: {}", clean::line(version)));
        }
    }
    let conflicts = kept.iter().filter(|kept| kept.conflict).count();
    if conflicts > 0 {
        context.output.say(format_args!(
            "You edited {conflicts} of them too. Choose a version: attache delegations revert {delegation} \
             --take before|mine PATH…"
        ));
    }
}

pub(super) fn say_skipped(context: &CommandContext, path: &str, reason: &str) {
    let line = format!("skipped: {} ({})", clean::line(path), clean::line(reason));
    context.output.say_styled(TextStyle::Busy, line);
}

fn version(name: &str) -> Option<ConflictChoice> {
    match name {
        "before" | "b" => Some(ConflictChoice::Before),
        "mine" | "m" => Some(ConflictChoice::Mine),
        _ => None,
    }
}

/// Asks the person at the terminal about each file that both sides edited.
fn choose(context: &CommandContext, reverted: &RevertResult) -> Result<Vec<(String, ConflictChoice)>, CommandFailure> {
    let mut chosen = Vec::new();
    if !prompt::is_attended(&context.output) {
        return Ok(chosen);
    }
    for kept in reverted.kept.iter().filter(|kept| kept.conflict) {
        let (path, reason) = (clean::line(&kept.path), clean::line(&kept.reason));
        let _ = write!(io::stderr(), "{path}: {reason}. Restore [b]efore the lease, [m]ine, or [l]eave as is? [l] ");
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        chosen.extend(version(&answer.trim().to_lowercase()).map(|take| (kept.path.clone(), take)));
    }
    Ok(chosen)
}
