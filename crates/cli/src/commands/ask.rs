//! `attache ask`: give an agent a task and wait for its answer.

mod attachment;

use std::{io::Read as _, path::PathBuf, time::Duration};

use attache_client::{CallBuilder, Client, HubClient};
use attache_protocol::{
    ConversationId, Json, RunId,
    error::exit,
    rules::{permission_mode::PermissionMode, run::RunStatus},
    wire::{
        conversation::CreateConversationRequest,
        part::Part,
        run::{RunQuery, Sandbox},
        usage::Budget,
    },
};
use clap::ValueEnum;

use crate::{
    env::{
        amount,
        context::{CommandContext, HubArgs},
        ids::IdArg,
        permission_mode,
    },
    text::{ask as texts, errors, terms},
    ui::{
        failure::CommandFailure,
        follow::{self, FollowEnd, FollowOutput, RunFollower},
        queue_reason,
        signals::TerminationSignals,
    },
};

/// Give an agent a task and follow it to the end
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache ask local \"uname -a\"
  attache ask builder \"run the tests\" --timeout 600
  attache ask builder \"train the model\" --run-timeout 8h
  attache ask builder \"…\" --mode plan_first     approve its plan before it changes anything
  attache ask builder \"…\" --worktree           work on its own branch; then see attache worktrees
  attache ask builder \"…\" --sandbox cwd-only,no-network
  attache ask builder \"…\" --cost 0.50 --tokens 200000      stop at whichever limit is reached first
  attache ask claude --session last \"go on\"   continue a session that was started in a terminal on its device
  git diff | attache ask reviewer -          read the task from standard input
  attache ask claude \"what is wrong here\" --file screen.png --file app.log
  attache ask claude \"…\" --fallback codex   continue with codex if claude reaches a usage limit
  attache ask builder \"…\" --no-wait          print the run's id and exit
  attache ask builder \"…\" --json             print the finished run as JSON

The answer goes to standard output, everything else to standard error. A terminal shows the answer as it arrives; a pipe or
a file gets it once, at the end. When the run needs approval or input, standard error shows the command that continues it;
in a terminal, you can type the input directly. Exits with 0 if the run completed, 1 if it failed or was cancelled, and 124
if --timeout was reached. Ctrl-C cancels the run unless --no-cancel is set.")]
pub(crate) struct Args {
    /// Agent name or id, or a skill that exactly one agent has
    agent: String,
    /// The task; `-` reads it from standard input
    task: String,
    /// Attach a file to the task, up to the hub's artifact size limit; repeatable
    #[arg(long = "file", short = 'f', value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Stream the answer even if standard output is a pipe or a file
    #[arg(long, conflicts_with = "no_wait")]
    stream: bool,
    /// Time limit for the run (90s, 30m, 8h, 7d) [default: the agent's or the hub's limit, or 60m]
    #[arg(long, value_name = "TIME", value_parser = amount::duration)]
    run_timeout: Option<Duration>,
    /// Stop waiting after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = amount::seconds)]
    timeout: Option<u64>,
    /// Keep the run going if this command is interrupted or times out
    #[arg(long)]
    no_cancel: bool,
    /// Print the run's id and exit without waiting
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// Continue this conversation: title, id, unique part of an id, or `last`
    #[arg(long, value_name = "CONVERSATION")]
    conversation: Option<IdArg>,
    /// Continue this session of your agent's device, for example one started in a terminal: its id, or `last` for the newest
    /// one that no conversation continues yet (`attache conversations sessions AGENT`)
    #[arg(long, value_name = "SESSION", conflicts_with = "conversation")]
    session: Option<String>,
    /// Idempotency key: repeated requests with the same key create only one run [default: a new key]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Webhook URL to notify when the run finishes (see docs/webhooks.md)
    #[arg(long, value_name = "URL")]
    callback: Option<String>,
    /// Permission mode of this run, instead of the agent's: `plan_first` asks you to approve its plan before it changes
    /// anything; only people who can edit the agent can choose a mode that isn't stricter
    #[arg(long, value_name = PermissionMode::CHOICES, value_parser = permission_mode::parse)]
    mode: Option<PermissionMode>,
    /// Let the run work in its own git worktree, created from what the agent's folder has checked out; only for people
    /// who can edit the agent (see `attache worktrees`)
    #[arg(long)]
    worktree: bool,
    /// Sandbox limits; a device that can't enforce them refuses the task: cwd-only, no-network, no-exec
    #[arg(long, value_name = "LIMIT,…", value_delimiter = ',')]
    sandbox: Vec<SandboxLimitArg>,
    /// Maximum number of tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tokens: Option<u64>,
    /// Maximum cost in US dollars
    #[arg(long, value_name = "USD", value_parser = amount::dollars)]
    cost: Option<Json>,
    /// Agent that gets the task if this one has reached a usage limit of its model account
    #[arg(long, value_name = "AGENT")]
    fallback: Option<String>,
    /// Queue priority; higher runs first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SandboxLimitArg {
    /// No access outside the working folder
    CwdOnly,
    NoNetwork,
    /// No subprocesses
    NoExec,
}

/// Why the command stops following the run before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FollowStopReason {
    Closed,
    TimedOut,
    Interrupted,
}

/// Attachments up to this total size are sent inline: a run's input is limited to 1 MiB, and base64 adds a third.
/// Larger ones are uploaded as artifacts, which the device fetches.
const MAX_INLINE: u64 = 700 * 1024;

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let text = if args.task == "-" { read_all(terms::the_task())? } else { args.task.clone() };
    if text.trim().is_empty() {
        return Err(CommandFailure::usage(texts::empty_task()).hint(texts::empty_task_do()));
    }
    let hub = context.hub(&args.hub)?;
    if !args.no_wait {
        // Check first: a key that can call but not read would start a run whose answer it can't see.
        let newest = RunQuery { limit: Some(1), ..RunQuery::default() };
        hub.runs(&newest).await.map_err(|error| {
            let failure = CommandFailure::from(error);
            match failure.exit {
                exit::DENIED => {
                    let message = texts::cant_read_runs(&failure.message);
                    CommandFailure { message, ..failure }
                }
                _ => failure,
            }
        })?;
    }
    let conversation = match &args.conversation {
        Some(conversation) => Some(conversation.conversation(&hub).await?),
        None => match &args.session {
            Some(session) => Some(continue_session(&context, &hub, session, &args).await?),
            None => None,
        },
    };
    let files = attachment::AttachedFiles::look(&args.files)?;
    let mut run = match conversation {
        _ if files.total() <= MAX_INLINE => start(&hub, text, (conversation, files.inline()?), &args).await?,
        Some(id) => start(&hub, text, (conversation, files.upload(&context, &hub, id).await?), &args).await?,
        None => start_in_new_conversation(&context, &hub, text, &files, &args).await?,
    };
    if args.no_wait {
        if context.output.is_json() {
            return context.output.json(&hub.run(run).await?);
        }
        context.output.line(run)?;
        context.output.say(texts::follow_it(run));
        return Ok(());
    }
    // From here on, a signal cancels the run.
    let signals = TerminationSignals::new()?;
    if !context.output.is_json() {
        queue_reason::explain_new(&context.output, &context.env, &hub, run).await;
    }
    let show = if context.output.is_json() { FollowOutput::Nothing } else { FollowOutput::Answer };
    let limit = args.timeout.map(Duration::from_secs);
    let mut follower = RunFollower::new(context.output, &context.env, show)
        .with_hub(args.hub.hub_options())
        .typing()
        .streaming(args.stream)
        .listening(signals);
    let ended = follower.follow(&hub, &mut run, 0, limit).await;
    drop(follower);
    if let Err(failure) = &ended
        && failure.is_quiet()
    {
        // As after `| head`: the reader of the output is gone.
        let text = match cancel_or_leave(&context, &hub, run, &args, FollowStopReason::Closed).await? {
            Some(status) => texts::closed_cancelled(terms::run_status(status)),
            None => texts::closed_left(run),
        };
        context.output.say(text);
    }
    match ended? {
        FollowEnd::Run(run) => {
            if context.output.is_json() {
                context.output.json(&run)?;
            }
            follow::tell_files(&context.output, &run);
            follow::verdict(&run)
        }
        FollowEnd::TimedOut => {
            let seconds = args.timeout.unwrap_or_default();
            let message = match cancel_or_leave(&context, &hub, run, &args, FollowStopReason::TimedOut).await? {
                Some(status) => texts::timed_out_cancelled(seconds, terms::run_status(status)),
                None => texts::timed_out_left(seconds, run),
            };
            Err(CommandFailure::new("timed_out", exit::TIMED_OUT, message).hint(texts::see_the_run(run)))
        }
        FollowEnd::Interrupted => {
            let message = match cancel_or_leave(&context, &hub, run, &args, FollowStopReason::Interrupted).await? {
                Some(status) => texts::interrupted_cancelled(terms::run_status(status)),
                None => texts::interrupted_left(run),
            };
            Err(CommandFailure::new("cancelled", exit::FAILED, message).hint(texts::see_the_run(run)))
        }
    }
}

async fn start(
    hub: &HubClient,
    text: String,
    place: (Option<ConversationId>, Vec<Part>),
    args: &Args,
) -> Result<RunId, CommandFailure> {
    let started = call(hub, text, place, args).start().await.map_err(|error| explain(error, args))?;
    Ok(started.call_id.run())
}

/// Uploads the files to a conversation for the agent, which goes again if the hub refuses the run.
async fn start_in_new_conversation(
    context: &CommandContext,
    hub: &HubClient,
    text: String,
    files: &attachment::AttachedFiles,
    args: &Args,
) -> Result<RunId, CommandFailure> {
    let request =
        CreateConversationRequest { agent_type: Some(args.agent.clone()), ..CreateConversationRequest::default() };
    let created = hub.create_conversation(&request).await.map_err(|error| explain(error, args))?;
    let id = created.conversation_id;
    let started = async { start(hub, text, (Some(id), files.upload(context, hub, id).await?), args).await }.await;
    // Without a response, the run may exist.
    if let Err(failure) = &started
        && (failure.exit == exit::UNREACHABLE || hub.delete_conversation(id).await.is_err())
    {
        context.output.say(texts::files_left(id));
    }
    started
}

/// The conversation whose runs continue a session of the agent's device.
async fn continue_session(
    context: &CommandContext,
    hub: &HubClient,
    session: &str,
    args: &Args,
) -> Result<ConversationId, CommandFailure> {
    let request = CreateConversationRequest {
        agent_type: Some(args.agent.clone()),
        host_session: Some(session.to_owned()),
        ..CreateConversationRequest::default()
    };
    let id = hub.create_conversation(&request).await?.conversation_id;
    context.output.say(texts::continuing(id, &args.agent));
    Ok(id)
}

/// Builds the call from the arguments. Retries after a lost response create only one run.
fn call(
    hub: &HubClient,
    text: String,
    (conversation, parts): (Option<ConversationId>, Vec<Part>),
    args: &Args,
) -> CallBuilder {
    let mut call = Client::from(hub.clone()).call(text).agent_type(&args.agent);
    if let Some(conversation) = conversation {
        call = call.conversation(conversation);
    }
    if let Some(priority) = args.priority {
        call = call.priority(priority);
    }
    for part in parts {
        call = call.part(part);
    }
    if let Some(timeout) = args.run_timeout {
        call = call.timeout(timeout);
    }
    if let Some(mode) = args.mode {
        call = call.permission_mode(mode);
    }
    if args.worktree {
        call = call.worktree();
    }
    if !args.sandbox.is_empty() {
        call = call.sandbox(args.sandbox.iter().fold(Sandbox::default(), |sandbox, limit| match limit {
            SandboxLimitArg::CwdOnly => Sandbox { cwd_only: Some(true), ..sandbox },
            SandboxLimitArg::NoNetwork => Sandbox { allow_network: Some(false), ..sandbox },
            SandboxLimitArg::NoExec => Sandbox { allow_exec: Some(false), ..sandbox },
        }));
    }
    if args.tokens.is_some() || args.cost.is_some() {
        call = call.budget(Budget { tokens: args.tokens, cost_usd: args.cost.clone() });
    }
    if let Some(agent) = &args.fallback {
        call = call.fallback(agent);
    }
    if let Some(url) = &args.callback {
        call = call.callback(url);
    }
    if let Some(key) = &args.idempotency_key {
        call = call.idempotency_key(key);
    }
    call
}

/// Names the missing agent or conversation. The hub's hint already lists the available agents.
fn explain(error: attache_client::Error, args: &Args) -> CommandFailure {
    let failure = CommandFailure::from(error);
    match (&args.conversation, &args.fallback) {
        _ if failure.code != "not_found" => failure,
        (None, Some(fallback)) => CommandFailure {
            message: errors::fallback_not_found(&args.agent, fallback),
            hint: errors::fallback_not_found_do().to_owned(),
            ..failure
        },
        (Some(conversation), _) => CommandFailure {
            message: errors::conversation_not_found(&args.agent, conversation),
            hint: errors::conversation_not_found_do().to_owned(),
            ..failure
        },
        (None, None) => CommandFailure { message: errors::agent_not_found(&args.agent), ..failure },
    }
}

/// Reads standard input to its end.
pub(super) fn read_all(what: &str) -> Result<String, CommandFailure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| CommandFailure::usage(errors::stdin_unreadable(what, error)).hint(errors::stdin_text()))?;
    Ok(text)
}

/// Cancels the run unless `--no-cancel` is set, and returns its status. None if it continues.
async fn cancel_or_leave(
    context: &CommandContext,
    hub: &HubClient,
    run: RunId,
    args: &Args,
    reason: FollowStopReason,
) -> Result<Option<RunStatus>, CommandFailure> {
    if args.no_cancel {
        return Ok(None);
    }
    let cancelled = hub.cancel_run(run, Some(reason.recorded())).await;
    let (state, run) = match cancelled {
        Ok(run) => (run.status, Some(run)),
        // It finished in the meantime.
        Err(error) => match error.conflict() {
            Some(run) => (run.status, Some(run.clone())),
            None => {
                let failure = CommandFailure::from(error);
                let message = texts::not_cancelled(reason.text(), &failure.message);
                let hint = texts::not_cancelled_do(run);
                return Err(CommandFailure { message, hint, ..failure });
            }
        },
    };
    if let Some(run) = run.filter(|_| context.output.is_json()) {
        context.output.json(&run)?;
    }
    Ok(Some(state))
}

// === impl FollowStopReason ===

impl FollowStopReason {
    /// What the run's log says.
    const fn recorded(self) -> &'static str {
        match self {
            Self::Closed => "the output was closed",
            Self::TimedOut => "timed out",
            Self::Interrupted => "interrupted",
        }
    }

    /// What the person sees.
    fn text(self) -> &'static str {
        match self {
            Self::Closed => texts::closed(),
            Self::TimedOut => texts::timed_out(),
            Self::Interrupted => texts::interrupted(),
        }
    }
}
