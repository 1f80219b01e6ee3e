//! `attache runs`: lists, shows, answers, cancels and deletes runs.

mod views;

use std::time::Duration;

use attache_client::{HubClient, PermissionFilter};
use attache_protocol::{
    EventKind, InputId, Json, RunId, Timestamp,
    error::exit,
    rules::{permission::PermissionState, quota::usd, recovery::Recovery, run::RunStatus},
    wire::{
        adapter::{AdapterInputAnswer, AdapterLogLine},
        input_request::GiveInputRequest,
        run::{PendingQuestion, Run, RunQuery, Sandbox, WaitReason},
        usage::ReportedUsage,
    },
};
use clap::{Subcommand, ValueEnum};
use serde::Deserialize;

use super::{
    ask,
    page::{self, PageArgs},
};
use crate::{
    env::{
        amount::{self, PastTime},
        context::{CommandContext, HubArgs},
        ids::IdArg,
    },
    text::{runs as texts, terms},
    ui::{
        failure::CommandFailure,
        names::DisplayNames,
        output::{self, TextCell, TextStyle, TextTable, clean, time},
        prompt, queue_reason, tool_input,
    },
};

/// How long to wait for a device to report that its agent doesn't accept input.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(3);

/// How many of a run's last events are searched for what it reached.
const MAX_LAST_EVENTS: u32 = 200;

/// List, show, answer, cancel and delete runs
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache runs                               list the newest runs
  attache runs list --agent builder --status failed
  attache runs list --status waiting         runs that wait for approval or input
  attache runs list --since 8h --caller ada --text deploy
  attache runs list --view mine              one of your saved views
  attache runs show run_…                    show a run and its result
  attache runs cancel run_… --reason \"no longer needed\"
  attache runs answer run_… 2                answer the agent's question by one of its options
  attache runs input run_… \"use the other branch\"   tell it something while it works
  attache runs delete run_…                  delete a run with its result and artifacts",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    filter: RunListArgs,
    #[command(subcommand)]
    command: Option<RunsCommand>,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// List runs, newest first (default)
    List(RunListArgs),
    /// Show a run with its input and result
    Show {
        /// Run id (`run_…`), a unique part of it, `last`, or a call id (`a2a-…`)
        #[arg(value_parser = IdArg::of_run)]
        run: IdArg,
    },
    /// Cancel a run; the device stops it within a second
    Cancel {
        /// Run id (`run_…`), a unique part of it, `last`, or a call id (`a2a-…`)
        #[arg(value_parser = IdArg::of_run)]
        run: IdArg,
        /// Reason to record in the log
        #[arg(long)]
        reason: Option<String>,
    },
    /// Delete a finished run with its result, events, approvals and artifacts
    Delete {
        /// Run id (`run_…`), a unique part of it, `last`, or a call id (`a2a-…`)
        #[arg(value_parser = IdArg::of_run)]
        run: IdArg,
        /// Skip the confirmation prompt
        #[arg(long, short)]
        yes: bool,
    },
    /// Answer the agent's open question; without an answer, show the question
    Answer {
        /// Run id (`run_…`), a unique part of it, `last`, or a call id (`a2a-…`)
        #[arg(value_parser = IdArg::of_run)]
        run: IdArg,
        /// Number or name of an option (several if the question allows it), or your own words;
        /// `-` reads the answer from standard input
        #[arg(value_name = "ANSWER")]
        answers: Vec<String>,
    },
    /// Send input to a run; it answers the agent's oldest open question
    Input {
        /// Run id (`run_…`), a unique part of it, `last`, or a call id (`a2a-…`)
        #[arg(value_parser = IdArg::of_run)]
        run: IdArg,
        /// The input; `-` reads it from standard input
        text: String,
    },
    /// List your saved views of the run list
    Views,
}

#[derive(Debug, Default, clap::Args)]
struct RunListArgs {
    /// Only runs of this agent (name or id)
    #[arg(long)]
    agent: Option<String>,
    /// Only runs with this status; `waiting` means waiting for approval or input
    #[arg(long, value_enum)]
    status: Option<RunStatusArg>,
    /// Only runs of this conversation: title, id, unique part of an id, or `last`
    #[arg(long, value_name = "CONVERSATION")]
    conversation: Option<IdArg>,
    /// Only runs created since this time: `30m`, `8h` or `7d` ago, or a time such as 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = amount::moment)]
    since: Option<PastTime>,
    /// Only runs created before this time
    #[arg(long, value_name = "TIME", value_parser = amount::moment)]
    before: Option<PastTime>,
    /// Only runs that cost at least this many dollars
    #[arg(long, value_name = "USD", value_parser = amount::dollars_as_typed)]
    min_cost: Option<String>,
    /// Only runs created by this person or agent (name or id)
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,
    /// Only runs whose task, ID, agent's name or caller contains this text
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Only runs shown by one of your saved views (see `attache runs views`); other options take precedence
    #[arg(long, value_name = "NAME")]
    view: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RunStatusArg {
    Pending,
    Running,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

// === impl RunStatusArg ===

impl RunStatusArg {
    /// None for filters that aren't a run status.
    const fn status(self) -> Option<RunStatus> {
        match self {
            Self::Pending => Some(RunStatus::Pending),
            Self::Running => Some(RunStatus::Running),
            Self::Waiting => None,
            Self::Completed => Some(RunStatus::Completed),
            Self::Failed => Some(RunStatus::Failed),
            Self::Cancelled => Some(RunStatus::Cancelled),
        }
    }
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(RunsCommand::List(args.filter)) {
        RunsCommand::List(filter) => list(&context, &hub, filter).await,
        RunsCommand::Show { run } => show(&context, &hub, &hub.run(run.run(&hub).await?).await?).await,
        RunsCommand::Cancel { run, reason } => {
            let run = hub.cancel_run(run.run(&hub).await?, reason.as_deref()).await?;
            if context.output.is_json() {
                return context.output.json(&run);
            }
            context.output.say(texts::is_now(run.task_run_id, terms::run_status(run.status)));
            Ok(())
        }
        RunsCommand::Delete { run, yes } => delete(&context, &hub, run.run(&hub).await?, yes).await,
        RunsCommand::Answer { run, answers } => answer(&context, &hub, run.run(&hub).await?, &answers).await,
        RunsCommand::Input { run, text } => {
            let run = hub.run(run.run(&hub).await?).await?;
            input(&context, &hub, &run, text).await
        }
        RunsCommand::Views => views::list(&context, &hub).await,
    }
}

async fn delete(context: &CommandContext, hub: &HubClient, run: RunId, yes: bool) -> Result<(), CommandFailure> {
    if !yes {
        let question = texts::ask_delete(run);
        if prompt::confirm(&context.output, &question)? == Some(false) {
            return Err(CommandFailure::new("cancelled", exit::FAILED, texts::not_deleted()));
        }
    }
    hub.delete_run(run).await?;
    context.output.done("deleted", run, texts::deleted(run))
}

async fn answer(
    context: &CommandContext,
    hub: &HubClient,
    run: RunId,
    answers: &[String],
) -> Result<(), CommandFailure> {
    let before = hub.run(run).await?;
    let Some(question) = open_question(&before) else {
        let (message, hint) = match before.status {
            RunStatus::Pending => (texts::not_working_yet(run), texts::not_working_yet_do(run)),
            RunStatus::Running => (texts::no_question(run), texts::no_question_do(run)),
            RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled => {
                (texts::no_question_ended(run), texts::no_question_ended_do(run))
            }
        };
        return Err(CommandFailure::new("no_question", exit::FAILED, message).hint(hint));
    };
    if !answers.is_empty() {
        return input(context, hub, &before, answers.join(", ")).await;
    }
    if context.output.is_json() {
        return context.output.json(question);
    }
    section(context, texts::asks(), &question.what)?;
    context.output.say(texts::answer_it(run));
    Ok(())
}

/// What the agent wants to know.
fn open_question(run: &Run) -> Option<&PendingQuestion> {
    run.waits_for.as_ref().filter(|asked| asked.kind == WaitReason::Input)
}

async fn input(context: &CommandContext, hub: &HubClient, before: &Run, text: String) -> Result<(), CommandFailure> {
    let run = before.task_run_id;
    let text = if text == "-" { ask::read_all(terms::the_input())? } else { text };
    if text.trim().is_empty() {
        return Err(CommandFailure::usage(texts::empty_input()).hint(texts::empty_input_do()));
    }
    // Idempotent: a retry after a lost response still counts as one input.
    let key = format!("input-{}", context.env.uuid());
    // Bind the answer to the question that is open now.
    let input_request_id = open_question(before).and_then(|asked| asked.id.parse().ok());
    let request = GiveInputRequest {
        text: Some(text),
        input_request_id,
        unsolicited: before.waiting.is_none(),
        idempotency_key: Some(key),
        ..GiveInputRequest::default()
    };
    let given = hub.give_input(run, &request).await?;
    let is_answer = before.waiting == Some(WaitReason::Input);
    if !is_answer && was_input_refused(hub, run, before.last_seq).await? {
        return Err(CommandFailure::new("input_unheard", exit::FAILED, texts::input_unheard(run))
            .hint(texts::input_unheard_do(&before.agent_name, before.conversation_id)));
    }
    if context.output.is_json() {
        return context.output.json(&given);
    }
    if is_answer {
        context.output.say(texts::answered(run));
    } else {
        context.output.say(texts::sent(run));
    }
    Ok(())
}

/// Whether the device reports right away that its agent didn't take the input.
async fn was_input_refused(hub: &HubClient, run: RunId, after: i64) -> Result<bool, CommandFailure> {
    let mut events = hub.follow(run, after);
    let heard = async {
        while let Some(event) = events.next().await {
            let event = event?;
            let code = (event.kind == EventKind::TaskLog).then(|| event.data.text_member("code")).flatten();
            if code.as_deref() == Some(AdapterLogLine::INPUT_UNHEARD) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    tokio::time::timeout(REFUSAL_TIMEOUT, heard).await.unwrap_or(Ok(false))
}

async fn list(context: &CommandContext, hub: &HubClient, filter: RunListArgs) -> Result<(), CommandFailure> {
    let output = &context.output;
    let RunListArgs { agent, status, conversation, since, before, min_cost, caller, text, view, page } = filter;
    let page = page.page();
    let conversation = match conversation {
        Some(conversation) => Some(conversation.conversation(hub).await?),
        None => None,
    };
    let filter = RunQuery {
        status: status.and_then(RunStatusArg::status),
        waiting: status == Some(RunStatusArg::Waiting),
        agent_id: agent,
        conversation_id: conversation,
        parent_task_run_id: None,
        since: since.map(|since| since.at(context.now())),
        before: before.map(|before| before.at(context.now())),
        min_cost_usd: min_cost,
        caller,
        text,
        limit: page.limit.and_then(|limit| usize::try_from(limit).ok()),
        cursor: page.cursor,
    };
    let filter = match view {
        Some(view) => views::add(hub, &view, filter, context.now()).await?,
        None => filter,
    };
    let list = hub.runs(&filter).await?;
    if output.is_json() {
        return output.json(&list);
    }
    if list.task_runs.is_empty() {
        let everything = RunQuery { limit: filter.limit, cursor: filter.cursor.clone(), ..RunQuery::default() };
        output.say(if filter == everything { texts::none_found() } else { texts::none_matching() });
        page::more(context, list.next_cursor.as_deref());
        return Ok(());
    }
    let names = DisplayNames::of(hub, list.task_runs.iter().map(|run| &run.caller)).await;
    let mut table = TextTable::new(&[
        terms::id(),
        terms::status(),
        terms::device(),
        terms::agent(),
        terms::caller(),
        terms::created(),
        terms::took(),
        terms::task(),
    ]);
    for run in &list.task_runs {
        table.row([
            TextCell::plain(run.task_run_id.to_string()),
            state(run),
            TextCell::plain(run.recovery.map_or("–", |recovery| remote(recovery).0)),
            TextCell::plain(&run.agent_name),
            TextCell::plain(names.get(&run.caller)),
            TextCell::plain(time::relative(run.created_at, context.now())),
            TextCell::plain(duration_text(run).unwrap_or_else(|| "–".to_owned())),
            TextCell::excerpt(run.input.text_member("text").as_deref().unwrap_or(&run.task_type)),
        ]);
    }
    output.table(&table)?;
    page::more(context, list.next_cursor.as_deref());
    if list.task_runs.iter().any(|run| run.waiting == Some(WaitReason::Approval)) {
        output.say(texts::some_wait());
    }
    Ok(())
}

/// The state of a run on its device, as a short label and as a sentence.
fn remote(recovery: Recovery) -> (&'static str, &'static str) {
    match recovery {
        Recovery::RemoteRunning => (texts::remote_running(), texts::remote_running_text()),
        Recovery::RemoteIdle => (texts::remote_silent(), texts::remote_silent_text()),
        Recovery::RemoteWaiting => (texts::remote_waiting(), texts::remote_waiting_text()),
        Recovery::DoneUnreconciled => (texts::remote_finished(), texts::remote_finished_text()),
        Recovery::RemoteMissing => (texts::remote_unknown(), texts::remote_unknown_text()),
        Recovery::Unreachable => (texts::remote_away(), texts::remote_away_text()),
    }
}

fn state(run: &Run) -> TextCell {
    let text = match run.waiting {
        Some(WaitReason::Input) => terms::waiting_input(),
        Some(WaitReason::Approval) => terms::waiting_approval(),
        None if run.deferred_until.is_some() => terms::waiting_limit(),
        None => terms::run_status(run.status),
    };
    TextCell::styled(text, output::status(run.status))
}

fn duration_text(run: &Run) -> Option<String> {
    Some(time::duration(run.ended_at?.since(run.claimed_at?)))
}

async fn show(context: &CommandContext, hub: &HubClient, run: &Run) -> Result<(), CommandFailure> {
    let (output, now) = (&context.output, context.now());
    if output.is_json() {
        return output.json(run);
    }
    let runtime = run.runtime_id.map(|runtime| runtime.to_string());
    let names = DisplayNames::of(hub, [Some(&run.caller), runtime.as_ref()].into_iter().flatten()).await;
    let mut table = TextTable::new(&["", ""]);
    let mut row = |name: &str, value: TextCell| table.row([TextCell::dim(name), value]);
    row(texts::row_run(), TextCell::strong(run.task_run_id.to_string()));
    row(texts::row_status(), state(run));
    if let Some(code) = failure_code(run) {
        row(texts::row_code(), TextCell::plain(code));
    }
    if let Some(recovery) = run.recovery {
        row(texts::row_on_device(), TextCell::plain(remote(recovery).1));
    }
    row(texts::row_agent(), TextCell::plain(&run.agent_name));
    if let Some(runtime) = &runtime {
        row(texts::row_device(), TextCell::plain(names.with_id(runtime)));
    }
    let created = texts::created_by(time::relative(run.created_at, now), names.get(&run.caller));
    row(texts::row_created(), TextCell::plain(created));
    row(texts::row_time_limit(), TextCell::plain(limit(run, now)));
    if let Some(took) = duration_text(run) {
        row(texts::row_took(), TextCell::plain(took));
    }
    if run.status == RunStatus::Pending {
        row(texts::row_expires(), TextCell::plain(time::relative_or(run.expires_at, now, "–")));
    }
    if let Some(used) = run.usage.as_ref().and_then(usage_text) {
        row(texts::row_used(), TextCell::plain(used));
    }
    if let Some(mode) = run.permission_mode {
        row(texts::row_permissions(), TextCell::plain(mode.as_str()));
    }
    if let Some(limits) = run.sandbox.and_then(limits) {
        row(texts::row_sandbox(), TextCell::plain(limits));
    }
    row(texts::row_attempt(), TextCell::plain(texts::attempt_of(run.attempt, run.max_attempts)));
    row(texts::row_conversation(), TextCell::plain(run.conversation_id.to_string()));
    output.table(&table)?;
    section(context, texts::part_task(), run.input.text_member("text").as_deref().unwrap_or(run.input.get()))?;
    if let Some(result) = &run.task_result {
        let text = result.text_member("text").or_else(|| result.text_member("error"));
        section(context, texts::part_result(), text.as_deref().unwrap_or(result.get()))?;
    } else {
        queue_reason::explain(&context.output, &context.env, hub, run).await;
        print_questions(context, hub, run).await?;
        context.output.say(texts::follow_it(run.task_run_id));
    }
    let undelivered = undelivered(hub, run).await;
    if !undelivered.is_empty() {
        section(context, texts::part_undelivered(), &undelivered.join("\n"))?;
        context.output.say(texts::undelivered_do(&run.agent_name, run.conversation_id));
    }
    let network = network(hub, run).await;
    if network.is_empty() { Ok(()) } else { section(context, texts::part_network(), &network.join("\n")) }
}

/// What the agent was told while it worked, but didn't get before the run ended.
async fn undelivered(hub: &HubClient, run: &Run) -> Vec<String> {
    #[derive(Default, Deserialize)]
    struct EventData {
        #[serde(default)]
        undelivered_inputs: Vec<InputId>,
        input_id: Option<InputId>,
        parts: Option<Json>,
    }
    let after = run.last_seq.saturating_sub(MAX_LAST_EVENTS.into()).max(0);
    let Ok(page) = hub.run_events(run.task_run_id, after, Some(MAX_LAST_EVENTS)).await else { return Vec::new() };
    let told: Vec<EventData> =
        page.events.into_iter().map(|event| event.data.parse::<EventData>().unwrap_or_default()).collect();
    let ids: Vec<InputId> = told.iter().flat_map(|data| data.undelivered_inputs.clone()).collect();
    let text = |id: &InputId| {
        let given = told.iter().find(|data| data.input_id == Some(*id)).and_then(|data| data.parts.as_ref());
        given.map_or_else(|| id.to_string(), AdapterInputAnswer::text)
    };
    ids.iter().map(text).collect()
}

/// What a run without its own network access reached, or was refused. Known at its end.
async fn network(hub: &HubClient, run: &Run) -> Vec<String> {
    if run.sandbox.is_none_or(|sandbox| sandbox.allow_network != Some(false)) {
        return Vec::new();
    }
    let after = run.last_seq.saturating_sub(MAX_LAST_EVENTS.into()).max(0);
    let Ok(page) = hub.run_events(run.task_run_id, after, Some(MAX_LAST_EVENTS)).await else { return Vec::new() };
    let told = page.events.into_iter().filter_map(|event| event.data.parse::<AdapterLogLine>().ok());
    let told = told.filter(|line| line.code.as_deref() == Some(AdapterLogLine::NETWORK));
    told.map(|line| line.message.trim_start_matches("network: ").to_owned()).collect()
}

/// The failure code of a run, followed by the agent's own code if it differs.
fn failure_code(run: &Run) -> Option<String> {
    let result = run.task_result.as_ref().filter(|_| run.status == RunStatus::Failed)?;
    let code = result.text_member("code")?;
    let native = result.text_member("native_code").map(|native| format!(" ({native})"));
    Some(format!("{code}{}", native.unwrap_or_default()))
}

/// The time limit of a run and when it is reached.
fn limit(run: &Run, now: Timestamp) -> String {
    let length = Duration::from_millis(run.timeout_ms);
    let shown = time::duration(length);
    match run.claimed_at.filter(|_| run.status == RunStatus::Running) {
        Some(_) if run.waiting.is_some() => texts::limit_paused(shown),
        Some(at) => texts::limit_ends(shown, time::relative(at.plus(length), now)),
        None => shown,
    }
}

/// Tokens, cost and how reliable they are. None if usage is unknown.
fn usage_text(usage: &Json) -> Option<String> {
    let used = ReportedUsage::read(usage).ok()?;
    let tokens = used.tokens.map(texts::tokens);
    let cost = used.micro_usd.map(|cost| format!("${}", usd(cost)));
    let amounts: Vec<String> = tokens.into_iter().chain(cost).collect();
    (!amounts.is_empty()).then(|| format!("{} ({})", amounts.join(", "), used.source.as_str()))
}

/// The sandbox limits that the caller requested.
fn limits(sandbox: Sandbox) -> Option<String> {
    let words = [
        (sandbox.cwd_only == Some(true), "cwd-only"),
        (sandbox.allow_network == Some(false), "no-network"),
        (sandbox.allow_exec == Some(false), "no-exec"),
    ];
    let words: Vec<&str> = words.into_iter().filter(|(asked, _)| *asked).map(|(_, word)| word).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Prints the run's open questions and the commands that answer them.
async fn print_questions(context: &CommandContext, hub: &HubClient, run: &Run) -> Result<(), CommandFailure> {
    let output = &context.output;
    match run.waiting {
        Some(WaitReason::Approval) => {
            let query = PermissionFilter {
                state: Some(PermissionState::Pending),
                run: Some(run.task_run_id),
                ..PermissionFilter::default()
            };
            let requests = hub.permissions(&query).await?.permission_requests;
            if requests.is_empty() {
                output.say(texts::peer_waits(run.task_run_id));
            }
            for request in requests {
                let (tool, brief) = (clean::exact_line(&request.tool), tool_input::request_summary(&request));
                section(context, texts::part_waiting(), &format!("{tool}: {}", clean::exact_line(&brief)))?;
                let id = request.permission_request_id;
                output.say(texts::approval_details(id));
                output.say(texts::approval_allow(id));
                output.say(texts::approval_deny(id));
            }
        }
        Some(WaitReason::Input) => {
            if let Some(question) = open_question(run).filter(|question| !question.what.trim().is_empty()) {
                section(context, texts::asks(), &question.what)?;
            }
            output.say(texts::waits_for_input(run.task_run_id));
        }
        None => {}
    }
    Ok(())
}

fn section(context: &CommandContext, name: &str, text: &str) -> Result<(), CommandFailure> {
    let heading = context.output.paint(TextStyle::Dim, name);
    context.output.line(format_args!("\n{heading}\n{}", clean::lines(text.trim_end())))
}
