//! `attache delegations review`: goes through the changes of a lease, file by file or hunk by hunk.

use attache_client::daemon::DaemonClient;
use attache_protocol::{
    DelegationId,
    error::exit,
    wire::delegation::{
        AcceptRequest, AcceptedFile, ApplyRequest, DiscardRequest, KeptPath, RevertRequest, RevertResult, ReviewFile,
        ReviewFileList, UnappliedPath,
    },
};
use serde::Serialize;

use super::{
    apply::{apply, say_unapplied},
    revert::{revert, say_kept},
    review_dialogue,
};
use crate::{
    env::{context::CommandContext, ids::IdArg},
    server::daemon_access,
    ui::{
        failure::CommandFailure,
        output::{TerminalOutput, TextCell, TextStyle, TextTable, clean},
        prompt,
    },
};

#[derive(Debug, clap::Args)]
pub(super) struct ReviewArgs {
    /// Delegation id, a unique part of it, or `last`
    #[arg(value_parser = IdArg::of_delegation)]
    delegation: IdArg,
    /// Review only these paths, relative to the folder
    paths: Vec<String>,
    /// Accept the changes to these paths without asking; those of a staged delegation are applied to the folder
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with_all = ["paths", "accept_all"])]
    accept: Vec<String>,
    /// Accept all changes without asking, or those to PATHS
    #[arg(long, conflicts_with = "discard")]
    accept_all: bool,
    /// Restore these paths as they were before the lease, without asking
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "paths")]
    discard: Vec<String>,
}

/// What became of the changes; the JSON output if any were decided.
#[derive(Debug, Default, Serialize)]
pub(super) struct ReviewOutcome {
    pub(super) accepted: Vec<String>,
    /// Restored, or with discarded hunks.
    pub(super) discarded: Vec<String>,
    /// To be discarded, and left alone with the reason.
    pub(super) kept: Vec<KeptPath>,
    /// Of a staged delegation: accepted, but not applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unapplied: Vec<UnappliedPath>,
    /// Not decided.
    pub(super) left: Vec<String>,
}

/// The changes of one delegation, and how they are accepted and discarded.
pub(super) struct ChangeReview<'a> {
    pub(super) context: &'a CommandContext,
    pub(super) daemon: &'a DaemonClient,
    pub(super) id: DelegationId,
    /// They wait in a copy.
    pub(super) is_staged: bool,
}

pub(super) async fn run(context: &CommandContext, args: ReviewArgs) -> Result<(), CommandFailure> {
    let daemon = daemon_access::daemon(context).await?;
    let id = args.delegation.delegation(&daemon).await?;
    let changes = ChangeReview::of(context, &daemon, id).await?;
    let mut files = daemon.review(id).await?.files;
    if !args.paths.is_empty() {
        check_paths(id, &files, &args.paths)?;
        files.retain(|file| is_among(&file.changed.path, &args.paths));
    }
    if args.is_decided() {
        let outcome = decide(&changes, files, &args).await?;
        return report(context, id, &outcome);
    }
    if !prompt::is_attended(&context.output) {
        return list(context, id, files);
    }
    files.retain(|file| !file.accepted);
    if files.is_empty() {
        context.output.say("Nothing is left to review.");
        return Ok(());
    }
    let outcome = review_dialogue::run(&changes, files).await?;
    report(context, id, &outcome)
}

/// Does what the options say.
async fn decide(
    changes: &ChangeReview<'_>,
    files: Vec<ReviewFile>,
    args: &ReviewArgs,
) -> Result<ReviewOutcome, CommandFailure> {
    let id = changes.id;
    check_paths(id, &files, &args.accept)?;
    check_paths(id, &files, &args.discard)?;
    let mut outcome = ReviewOutcome::default();
    let (mut chosen, mut left): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| args.accept_all || is_among(&file.changed.path, &args.accept));
    chosen.retain(|file| !file.accepted);
    changes.accept(&chosen, &mut outcome).await?;
    if !args.discard.is_empty() {
        let request = RevertRequest { paths: args.discard.clone(), ..RevertRequest::default() };
        let reverted = changes.discard(&request).await?;
        outcome.discarded.extend(reverted.restored);
        outcome.kept.extend(reverted.kept);
        left.retain(|file| !is_among(&file.changed.path, &args.discard));
    }
    outcome.left.extend(left.into_iter().filter(|file| !file.accepted).map(|file| file.changed.path));
    Ok(outcome)
}

impl<'a> ChangeReview<'a> {
    async fn of(
        context: &'a CommandContext,
        daemon: &'a DaemonClient,
        id: DelegationId,
    ) -> Result<Self, CommandFailure> {
        let staged = daemon.get(id).await?.staged;
        let is_staged = staged.is_some_and(|staged| staged.unapplied > 0 && staged.removed_at.is_none());
        Ok(Self { context, daemon, id, is_staged })
    }

    /// Accepts the files in the state in which they were shown. One that can't be read is left. Changes of a staged delegation are
    /// applied.
    pub(super) async fn accept(&self, files: &[ReviewFile], outcome: &mut ReviewOutcome) -> Result<(), CommandFailure> {
        let mut chosen = Vec::new();
        for file in files {
            let path = file.changed.path.clone();
            match &file.state {
                Some(state) => chosen.push(AcceptedFile { path, state: state.clone() }),
                None => outcome.left.push(path),
            }
        }
        if chosen.is_empty() {
            return Ok(());
        }
        if self.is_staged {
            let request = ApplyRequest { files: chosen.clone(), ..ApplyRequest::default() };
            let applied = apply(self.context, self.daemon, self.id, &request).await?;
            let is_chosen = |path: &&String| chosen.iter().any(|file| file.path == **path);
            outcome.accepted.extend(applied.applied.iter().filter(is_chosen).cloned());
            outcome.discarded.extend(applied.discarded);
            outcome.unapplied.extend(applied.kept);
            return Ok(());
        }
        let request = AcceptRequest { files: chosen };
        self.daemon.accept(self.id, &request).await?;
        outcome.accepted.extend(request.files.into_iter().map(|file| file.path));
        Ok(())
    }

    /// Restores files or hunks: in the copy if the delegation is staged.
    pub(super) async fn discard(&self, request: &RevertRequest) -> Result<RevertResult, CommandFailure> {
        if !self.is_staged {
            // Only a whole file has other versions to choose from.
            return match request.hunks {
                Some(_) => Ok(self.daemon.revert(self.id, request).await?),
                None => revert(self.context, self.daemon, self.id, request).await,
            };
        }
        let RevertRequest { paths, alone, hunks, .. } = request.clone();
        Ok(self.daemon.discard(self.id, &DiscardRequest { paths, alone, hunks }).await?)
    }
}

fn report(context: &CommandContext, id: DelegationId, outcome: &ReviewOutcome) -> Result<(), CommandFailure> {
    if context.output.is_json() {
        context.output.json(outcome)?;
    } else {
        say_kept(context, id, &outcome.kept);
        say_unapplied(context, id, &outcome.unapplied);
        let left = outcome.left.len() + outcome.kept.len() + outcome.unapplied.len();
        let (accepted, discarded) = (outcome.accepted.len(), outcome.discarded.len());
        context.output.say(format_args!("{accepted} accepted, {discarded} discarded, {left} left."));
    }
    if outcome.kept.is_empty() && outcome.unapplied.is_empty() {
        Ok(())
    } else {
        Err(CommandFailure::quiet(exit::INCOMPLETE))
    }
}

/// Lists what is left to review. As JSON, also what is accepted.
fn list(context: &CommandContext, id: DelegationId, mut files: Vec<ReviewFile>) -> Result<(), CommandFailure> {
    if context.output.is_json() {
        return context.output.json(&ReviewFileList { files });
    }
    files.retain(|file| !file.accepted);
    if files.is_empty() {
        context.output.say("Nothing is left to review.");
        return Ok(());
    }
    let mut table = TextTable::new(&["CHANGE", "LINES", "HUNKS", "PATH", "NOTE"]);
    for file in &files {
        let hunks = if file.hunks.is_empty() { "–".to_owned() } else { file.hunks.len().to_string() };
        table.row([
            TextCell::plain(change(file)),
            TextCell::plain(lines(file).unwrap_or_else(|| "–".to_owned())),
            TextCell::plain(hunks),
            TextCell::plain(clean::line(&file.changed.path)),
            TextCell::styled(note(file), TextStyle::Busy),
        ]);
    }
    context.output.table(&table)?;
    context.output.say(format_args!(
        "Accept or discard them: attache delegations review {id} --accept PATH… --discard PATH…, or run it in a terminal."
    ));
    Ok(())
}

pub(super) fn change(file: &ReviewFile) -> String {
    format!("{:?}", file.changed.change).to_lowercase()
}

pub(super) fn lines(file: &ReviewFile) -> Option<String> {
    Some(format!("+{} −{}", file.changed.added?, file.changed.removed?))
}

/// What a person should know before they decide.
pub(super) fn note(file: &ReviewFile) -> String {
    let run_by = file.changed.run_by.as_ref();
    let run_by = run_by.map(|program| format!("executed or read by {}", clean::line(program)));
    let edited = file.changed.also_changed_here.then(|| "you edited it too".to_owned());
    run_by.into_iter().chain(edited).collect::<Vec<_>>().join(", ")
}

/// Whether it is one of the paths, or below one.
fn is_among(path: &str, paths: &[String]) -> bool {
    let is_below = |one: &String| {
        let one = one.trim_start_matches("./").trim_end_matches('/');
        path == one || path.strip_prefix(one).is_some_and(|rest| rest.starts_with('/'))
    };
    paths.iter().any(is_below)
}

fn check_paths(id: DelegationId, files: &[ReviewFile], paths: &[String]) -> Result<(), CommandFailure> {
    let names = |path: &String| files.iter().any(|file| is_among(&file.changed.path, std::slice::from_ref(path)));
    let Some(wrong) = paths.iter().find(|path| !names(path)) else { return Ok(()) };
    let message = format!("there is no change to `{wrong}`");
    Err(CommandFailure::new("not_found", exit::NOT_FOUND, message)
        .hint(format!("List the changes: attache delegations review {id} --json")))
}

// === impl ReviewArgs ===

impl ReviewArgs {
    fn is_decided(&self) -> bool {
        self.accept_all || !self.accept.is_empty() || !self.discard.is_empty()
    }

    /// Whether it only lists what is left.
    pub(super) fn only_looks(&self, output: &TerminalOutput) -> bool {
        !self.is_decided() && !prompt::is_attended(output)
    }
}
