//! `attache worktrees commit|apply|discard RUN --remote`: has the agent's device do it, through the hub.

use std::time::Duration;

use attache_client::HubClient;
use attache_protocol::{
    RunId,
    error::exit,
    wire::worktree::{
        DecideWorktreeRequest, WorktreeAction, WorktreeDecision, WorktreeDecisionState, WorktreeOutcome, WorktreeResult,
    },
};

use crate::{
    env::{
        context::{CommandContext, HubArgs},
        ids::IdArg,
    },
    text::worktrees as text,
    ui::{failure::CommandFailure, output::clean, prompt},
};

/// How long one request waits for the device's answer.
const WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(super) struct RemoteArgs {
    /// Have the agent's device do it, from any machine; only for the agent's owner
    #[arg(long)]
    pub(super) remote: bool,
    #[command(flatten)]
    hub: HubArgs,
}

// === impl RemoteArgs ===

impl RemoteArgs {
    pub(super) async fn decide(
        &self,
        context: &CommandContext,
        run: &str,
        request: DecideWorktreeRequest,
        is_confirmed: bool,
    ) -> Result<(), CommandFailure> {
        let hub = context.hub(&self.hub)?;
        let run = IdArg::of_run(run).map_err(CommandFailure::usage)?.run(&hub).await?;
        if request.action == WorktreeAction::Discard && !is_confirmed {
            let question = text::ask_discard(run, format_args!("attache/{run}"), text::unknown());
            if prompt::confirm(&context.output, &question)? == Some(false) {
                return Err(CommandFailure::new("cancelled", exit::FAILED, text::not_discarded()));
            }
        }
        let action = request.action;
        hub.decide_worktree(run, &request).await?;
        let decision = answer(&hub, run).await?;
        let Some(outcome) = &decision.outcome else {
            return Err(CommandFailure::failed(text::unanswered()).hint(text::unanswered_do()));
        };
        if let Some(failure) = refusal(run, outcome) {
            return Err(failure);
        }
        if context.output.is_json() {
            return context.output.json(&decision);
        }
        report(context, run, action, outcome)
    }
}

/// The device's answer. Without one, the decision as it is when its time is over.
async fn answer(hub: &HubClient, run: RunId) -> Result<WorktreeDecision, CommandFailure> {
    loop {
        let known = hub.worktree_decision(run, WAIT).await?.decision;
        match known {
            Some(decision) if decision.state != WorktreeDecisionState::Pending => return Ok(decision),
            Some(_) => {}
            None => return Err(CommandFailure::failed(text::unanswered()).hint(text::unanswered_do())),
        }
    }
}

fn report(
    context: &CommandContext,
    run: RunId,
    action: WorktreeAction,
    outcome: &WorktreeOutcome,
) -> Result<(), CommandFailure> {
    let shown = |text: &Option<String>| clean::line(text.as_deref().unwrap_or_default()).into_owned();
    let (branch, folder, commit) = (shown(&outcome.branch), shown(&outcome.folder), shown(&outcome.commit));
    let again = format!("{run} --remote");
    match action {
        WorktreeAction::Commit => {
            context.output.say(text::done_commit(commit.get(..12).unwrap_or(&commit), branch));
        }
        WorktreeAction::Apply => {
            for file in &outcome.files {
                context.output.line(clean::line(file))?;
            }
            context.output.say(match outcome.files.len() {
                0 => text::nothing_to_apply(folder, again),
                count => text::applied(count as u64, folder, again),
            });
        }
        WorktreeAction::Discard if outcome.message.is_some() => {
            context.output.say(text::discarded_without_repository(folder, branch));
        }
        WorktreeAction::Discard => context.output.say(text::discarded(branch)),
    }
    Ok(())
}

fn refusal(run: RunId, outcome: &WorktreeOutcome) -> Option<CommandFailure> {
    let shown = |text: &Option<String>| clean::line(text.as_deref().unwrap_or_default()).into_owned();
    Some(match outcome.result {
        WorktreeResult::Done => return None,
        WorktreeResult::Unchanged => CommandFailure::failed(text::unchanged_there()).hint(text::see_all(run)),
        WorktreeResult::Conflict => {
            let files: Vec<_> = outcome.files.iter().map(|file| clean::line(file).into_owned()).collect();
            let message = text::conflicts(shown(&outcome.folder), files.join(", "));
            CommandFailure::new("conflict", exit::FAILED, message)
                .hint(text::conflicts_do(format_args!("{run} --remote"), shown(&outcome.branch)))
        }
        WorktreeResult::Busy => CommandFailure::new("working", exit::FAILED, shown(&outcome.message)),
        WorktreeResult::Absent => {
            CommandFailure::new("not_found", exit::NOT_FOUND, text::absent_there(run)).hint(text::none_do())
        }
        WorktreeResult::Failed => CommandFailure::failed(text::failed_there(shown(&outcome.message))),
    })
}
