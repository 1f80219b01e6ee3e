//! `attache delegations apply` and `discard`: apply the changes of a staged delegation to the folder, or discard them.

use std::io::{self, BufRead as _, Write as _};

use attache_client::daemon::DaemonClient;
use attache_protocol::{
    DelegationId,
    error::exit,
    wire::delegation::{ApplyChoice, ApplyRequest, ApplyResult, DiscardRequest, UnappliedPath},
};

use super::revert::say_skipped;
use crate::{
    env::{context::CommandContext, ids::IdArg},
    server::daemon_access,
    ui::{
        failure::CommandFailure,
        output::{TextStyle, clean},
        prompt,
    },
};

#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    /// Delegation id, a unique part of it, or `last`
    #[arg(value_parser = IdArg::of_delegation)]
    delegation: IdArg,
    /// Apply only these paths, relative to the folder
    paths: Vec<String>,
    /// For conflicts with your own changes: `mine` keeps your version and discards the agent's, `theirs` takes the agent's
    /// and keeps yours with the originals. [default: ask in a terminal, otherwise skip the file]
    #[arg(long, value_name = "VERSION", value_parser = ["mine", "theirs"])]
    take: Option<String>,
    /// Only show what would be applied, and the conflicts
    #[arg(long)]
    check: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct DiscardArgs {
    /// Delegation id, a unique part of it, or `last`
    #[arg(value_parser = IdArg::of_delegation)]
    delegation: IdArg,
    /// Discard only these paths, relative to the folder
    paths: Vec<String>,
}

pub(super) async fn run(context: &CommandContext, args: ApplyArgs) -> Result<(), CommandFailure> {
    let daemon = daemon_access::daemon(context).await?;
    let id = args.delegation.delegation(&daemon).await?;
    let take = args.take.as_deref().and_then(version);
    let request = ApplyRequest { paths: args.paths, take, check: args.check, ..ApplyRequest::default() };
    let applied = apply(context, &daemon, id, &request).await?;
    let ended = if applied.kept.is_empty() { Ok(()) } else { Err(CommandFailure::quiet(exit::INCOMPLETE)) };
    if context.output.is_json() {
        context.output.json(&applied)?;
        return ended;
    }
    for path in &applied.applied {
        let merged = if applied.merged.contains(path) { " (merged)" } else { "" };
        context.output.line(format_args!("{}{merged}", clean::line(path)))?;
    }
    say_unapplied(context, id, &applied.kept);
    let (done, skipped) = (applied.applied.len(), applied.kept.len());
    context.output.say(match (args.check, applied.discarded.len()) {
        (true, _) => format!("{done} can be applied, {skipped} can't. Nothing was changed."),
        (false, 0) => format!("{done} applied, {skipped} skipped."),
        (false, discarded) => format!("{done} applied, {discarded} discarded, {skipped} skipped."),
    });
    ended
}

pub(super) async fn discard(context: &CommandContext, args: DiscardArgs) -> Result<(), CommandFailure> {
    let daemon = daemon_access::daemon(context).await?;
    let id = args.delegation.delegation(&daemon).await?;
    let request = DiscardRequest { paths: args.paths, ..DiscardRequest::default() };
    let discarded = daemon.discard(id, &request).await?;
    let ended = if discarded.kept.is_empty() { Ok(()) } else { Err(CommandFailure::quiet(exit::INCOMPLETE)) };
    if context.output.is_json() {
        context.output.json(&discarded)?;
        return ended;
    }
    for path in &discarded.restored {
        context.output.line(clean::line(path))?;
    }
    discarded.kept.iter().for_each(|kept| say_skipped(context, &kept.path, &kept.reason));
    context.output.say(format_args!("{} discarded, {} skipped.", discarded.restored.len(), discarded.kept.len()));
    ended
}

/// Applies, and on a terminal asks about the conflicts.
pub(super) async fn apply(
    context: &CommandContext,
    daemon: &DaemonClient,
    id: DelegationId,
    request: &ApplyRequest,
) -> Result<ApplyResult, CommandFailure> {
    let mut applied = daemon.apply(id, request).await?;
    if request.check || !prompt::is_attended(&context.output) {
        return Ok(applied);
    }
    let conflicts: Vec<UnappliedPath> = applied.kept.iter().filter(|kept| kept.conflict).cloned().collect();
    for conflict in conflicts {
        say_conflict(context, &conflict);
        let Some(take) = ask()? else { continue };
        // What the person saw of it is the conflict, so nothing else is applied along with it.
        let paths = vec![conflict.path.clone()];
        let asked = ApplyRequest { paths, take: Some(take), ..ApplyRequest::default() };
        let decided = daemon.apply(id, &asked).await?;
        applied.kept.retain(|kept| kept.path != conflict.path);
        applied.applied.extend(decided.applied);
        applied.merged.extend(decided.merged);
        applied.discarded.extend(decided.discarded);
        applied.kept.extend(decided.kept);
        applied.unapplied = decided.unapplied;
    }
    Ok(applied)
}

/// Says what wasn't applied and why, and how to decide on conflicts.
pub(super) fn say_unapplied(context: &CommandContext, id: DelegationId, kept: &[UnappliedPath]) {
    for kept in kept {
        if kept.conflict && !prompt::is_attended(&context.output) {
            say_conflict(context, kept);
        } else {
            say_skipped(context, &kept.path, &kept.reason);
        }
    }
    let conflicts = kept.iter().filter(|kept| kept.conflict).count();
    if conflicts > 0 {
        let conflict = if conflicts == 1 { "conflicts" } else { "conflict" };
        context.output.say(format_args!(
            "{conflicts} of them {conflict} with your own changes. Choose a version: attache delegations apply {id} \
             --take mine|theirs PATH…"
        ));
    }
}

fn say_conflict(context: &CommandContext, kept: &UnappliedPath) {
    let output = &context.output;
    output.say_styled(
        TextStyle::Busy,
        format_args!("conflict: {} ({})", clean::line(&kept.path), clean::line(&kept.reason)),
    );
    for hunk in &kept.hunks {
        output.say_styled(TextStyle::Dim, format_args!("  line {}:", hunk.line));
        for (name, text, style) in [("yours", &hunk.mine, TextStyle::Plain), ("agent's", &hunk.theirs, TextStyle::Good)]
        {
            output.say_styled(TextStyle::Dim, format_args!("  {name}:"));
            for line in text.lines() {
                output.say_styled(style, format_args!("    {}", clean::exact(line)));
            }
        }
    }
}

/// Nothing if it is left.
fn ask() -> Result<Option<ApplyChoice>, CommandFailure> {
    let _ = write!(io::stderr(), "Keep [m]ine and discard the agent's, take [t]heirs, or [l]eave it for later? [l] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(version(&answer.trim().to_lowercase()))
}

fn version(name: &str) -> Option<ApplyChoice> {
    match name {
        "mine" | "m" => Some(ApplyChoice::Mine),
        "theirs" | "t" => Some(ApplyChoice::Theirs),
        _ => None,
    }
}
