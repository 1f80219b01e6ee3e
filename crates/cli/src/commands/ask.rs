//! `attache ask`: give an agent a task and wait for its answer.

mod attachment;

use std::{io::Read as _, path::PathBuf, time::Duration};

use attache_client::{CallBuilder, Client, HubClient, PageQuery, RunFilter};
use attache_protocol::{
    ConversationId, Json, RunId,
    error::exit,
    rules::permission_mode::PermissionMode,
    wire::{conversation::CreateConversationRequest, part::Part, run::Sandbox, usage::Budget},
};
use clap::ValueEnum;

use crate::{
    env::{
        amount,
        context::{CommandContext, HubArgs},
        ids::IdArg,
        permission_mode,
    },
    ui::{
        failure::CommandFailure,
        follow::{self, FollowEnd, FollowOutput, RunFollower},
        queue_reason,
    },
};

/// Give an agent a task and follow it to the end
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache ask local \"uname -a\"
  attache ask builder \"run the tests\" --timeout 600
  attache ask builder \"train the model\" --run-timeout 8h
  attache ask builder \"…\" --mode plan_first     approve its plan before it changes anything
  attache ask builder \"…\" --sandbox cwd-only,no-network
  attache ask builder \"…\" --cost 0.50 --tokens 200000      stop at whichever limit is reached first
  git diff | attache ask reviewer -          read the task from standard input
  attache ask claude \"what is wrong here\" --file screen.png --file app.log
  attache ask claude \"…\" --fallback codex   go on with codex if claude has reached a usage limit
  attache ask builder \"…\" --no-wait          print the run's id and exit
  attache ask builder \"…\" --json             print the finished run as JSON

The answer goes to standard output, everything else to standard error. A terminal shows the answer as it arrives; a pipe or
a file gets it once, at the end. When the run needs approval or input, standard error shows the command that continues it;
on a terminal, you can type the input directly. Exits with 0 if the run completed, 1 if it failed or was cancelled, and 124
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
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
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
    /// Idempotency key: repeated requests with the same key create only one run [default: a new key]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Webhook URL to notify when the run finishes (see docs/webhooks.md)
    #[arg(long, value_name = "URL")]
    callback: Option<String>,
    /// Permission mode of this run, instead of the agent's: `plan_first` asks you to approve its plan before it changes
    /// anything; only who may edit the agent can choose one that isn't stricter
    #[arg(long, value_name = PermissionMode::CHOICES, value_parser = permission_mode::parse)]
    mode: Option<PermissionMode>,
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

/// Attachments up to this total size are sent inline: a run's input is limited to 1 MiB, and base64 adds a third.
/// Larger ones are uploaded as artifacts, which the device fetches.
const MAX_INLINE: u64 = 700 * 1024;

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let text = if args.task == "-" { read_all("the task")? } else { args.task.clone() };
    if text.trim().is_empty() {
        return Err(CommandFailure::usage("the task is empty").hint("Describe the task: attache ask AGENT \"…\""));
    }
    let hub = context.hub(&args.hub)?;
    if !args.no_wait {
        // Check first: a key that can call but not read would start a run whose answer it can't see.
        let newest = RunFilter { page: PageQuery { limit: Some(1), cursor: None }, ..RunFilter::default() };
        hub.runs(&newest).await.map_err(|error| {
            let failure = CommandFailure::from(error);
            match failure.exit {
                exit::DENIED => {
                    let message = format!("no run was started: this key can't read runs ({})", failure.message);
                    CommandFailure { message, ..failure }
                }
                _ => failure,
            }
        })?;
    }
    let conversation = match &args.conversation {
        Some(conversation) => Some(conversation.conversation(&hub).await?),
        None => None,
    };
    let files = attachment::Files::look(&args.files)?;
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
        context.output.say(format_args!("Follow it: attache watch {run}"));
        return Ok(());
    }
    if !context.output.is_json() {
        queue_reason::explain_new(&context.output, &context.env, &hub, run).await;
    }
    let show = if context.output.is_json() { FollowOutput::Nothing } else { FollowOutput::Answer };
    let limit = args.timeout.map(Duration::from_secs);
    let mut follower = RunFollower::new(context.output, &context.env, show)
        .with_hub(args.hub.hub_options())
        .typing()
        .streaming(args.stream);
    let ended = follower.follow(&hub, &mut run, 0, limit).await;
    drop(follower);
    if let Err(failure) = &ended
        && failure.is_quiet()
    {
        // As after `| head`: nobody is left to read the answer.
        let what = cancel_or_leave(&context, &hub, run, &args, "the output was closed").await?;
        context.output.say(format_args!("The output was closed; {what}."));
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
            let what = cancel_or_leave(&context, &hub, run, &args, "timed out").await?;
            let message = format!("timed out after {} seconds; {what}", args.timeout.unwrap_or_default());
            Err(CommandFailure::new("timed_out", exit::TIMED_OUT, message)
                .hint(format!("See the run: attache runs show {run}")))
        }
        FollowEnd::Interrupted => {
            let what = cancel_or_leave(&context, &hub, run, &args, "interrupted").await?;
            Err(CommandFailure::new("cancelled", exit::FAILED, format!("interrupted; {what}"))
                .hint(format!("See the run: attache runs show {run}")))
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
    files: &attachment::Files,
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
        let delete = format!("attache conversations delete {id}");
        context.output.say(format_args!("The uploaded files are in {id}. To delete them: {delete}"));
    }
    started
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
    match &args.conversation {
        _ if failure.code != "not_found" => failure,
        Some(conversation) => CommandFailure {
            message: format!("agent `{}` or conversation {conversation} not found", args.agent),
            hint: "List them: `attache agents` and `attache conversations`.".to_owned(),
            ..failure
        },
        None => CommandFailure { message: format!("agent `{}` not found", args.agent), ..failure },
    }
}

/// Reads standard input to its end.
pub(super) fn read_all(what: &str) -> Result<String, CommandFailure> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| {
        CommandFailure::usage(format!("can't read {what} from standard input: {error}"))
            .hint("The input must be UTF-8 text.")
    })?;
    Ok(text)
}

/// Cancels the run unless `--no-cancel` is set, and returns a phrase that describes its state.
async fn cancel_or_leave(
    context: &CommandContext,
    hub: &HubClient,
    run: RunId,
    args: &Args,
    reason: &str,
) -> Result<String, CommandFailure> {
    if args.no_cancel {
        return Ok(format!("the run continues (attache watch {run})"));
    }
    let cancelled = hub.cancel_run(run, Some(reason)).await;
    let (state, run) = match cancelled {
        Ok(run) => (run.status, Some(run)),
        // It finished in the meantime.
        Err(error) => match error.conflict() {
            Some(run) => (run.status, Some(run.clone())),
            None => {
                let failure = CommandFailure::from(error);
                let message = format!("{reason}; the run was not cancelled: {}", failure.message);
                let hint = format!("It may still be working. Cancel it: attache runs cancel {run}");
                return Err(CommandFailure { message, hint, ..failure });
            }
        },
    };
    if let Some(run) = run.filter(|_| context.output.is_json()) {
        context.output.json(&run)?;
    }
    Ok(format!("the run is {}", state.as_str()))
}
