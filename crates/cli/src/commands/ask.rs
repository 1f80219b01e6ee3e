//! `attache ask`: put an agent to work and wait for its answer.

mod attachment;

use std::{io::Read as _, path::PathBuf, time::Duration};

use attache_client::{CallBuilder, Client, HubClient, PageQuery, RunFilter};
use attache_protocol::{
    ConversationId, Json, RunId,
    error::exit,
    wire::{a2a::Part, run::Sandbox, usage::Budget},
};
use clap::ValueEnum;

use crate::{
    CommandContext, CommandFailure, amount,
    context::HubArgs,
    follow::{self, FollowEnd, FollowOutput, RunFollower},
    ids::IdArg,
    queue_reason,
};

/// Give an agent a task and follow it to the end
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache ask local \"uname -a\"
  attache ask builder \"run the tests\" --timeout 600
  attache ask builder \"train the model\" --run-timeout 8h
  attache ask builder \"…\" --sandbox cwd-only,no-network
  attache ask builder \"…\" --cost 0.50 --tokens 200000      stopped at the first that is reached
  git diff | attache ask reviewer -          the task from standard input
  attache ask claude \"what is wrong here\" --file screen.png --file app.log
  attache ask builder \"…\" --no-wait          print the run's id and go on
  attache ask builder \"…\" --json             the run as JSON when it has ended

The answer goes to standard output, everything else to standard error. A terminal shows it as it comes; a pipe or a file
gets it once, at the end. When the run waits for an approval or for input, standard error says with which command it goes
on; on a terminal, input can be typed. Exits with 0 when the run completed, 1 when it failed or was cancelled, 124 when --timeout
passed. Ctrl-C cancels the run unless --no-cancel is given.")]
pub(crate) struct Args {
    /// The agent's name or id, or a skill that one agent has
    agent: String,
    /// What to do; `-` reads it from standard input
    task: String,
    /// Hand this file to the agent with the task, of any size that the hub takes as an artifact; may be repeated
    #[arg(long = "file", short = 'f', value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the answer to a pipe or a file as it comes, as a terminal sees it
    #[arg(long, conflicts_with = "no_wait")]
    stream: bool,
    /// How long the agent may work on it (90s, 30m, 8h, 7d) [default: what the agent or the hub says, else 60m]
    #[arg(long, value_name = "TIME", value_parser = amount::duration)]
    run_timeout: Option<Duration>,
    /// Give up waiting after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Leave the run alone when this command is interrupted or times out
    #[arg(long)]
    no_cancel: bool,
    /// Print the run's id and do not wait
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// Ask within this conversation: its title or id, a part of the id, or `last`
    #[arg(long, value_name = "CONVERSATION")]
    conversation: Option<IdArg>,
    /// The same key makes the same run, however often it is sent [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Tell this URL when the run has ended, see docs/webhooks.md
    #[arg(long, value_name = "URL")]
    callback: Option<String>,
    /// Limits that the agent's device must enforce, or refuse the task: cwd-only, no-network, no-exec
    #[arg(long, value_name = "LIMIT,…", value_delimiter = ',')]
    sandbox: Vec<SandboxLimitArg>,
    /// The most tokens that the run may use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tokens: Option<u64>,
    /// The most dollars that the run may cost
    #[arg(long, value_name = "USD", value_parser = amount::dollars)]
    cost: Option<Json>,
    /// Higher goes first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SandboxLimitArg {
    /// Nothing outside the working folder
    CwdOnly,
    NoNetwork,
    /// No programs
    NoExec,
}

/// Files up to this size in all travel in the request itself: the input of a run has at most 1 MiB, and base64 makes four
/// bytes of three. Larger ones are artifacts, which the device fetches.
const MAX_INLINE: u64 = 700 * 1024;

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let text = if args.task == "-" { read_all("the task")? } else { args.task.clone() };
    if text.trim().is_empty() {
        return Err(CommandFailure::usage("the task is empty").hint("Say what to do: attache ask AGENT \"…\""));
    }
    let hub = context.hub(&args.hub)?;
    if !args.no_wait {
        // A key that may call but not read would start work whose answer it cannot see.
        let newest = RunFilter { page: PageQuery { limit: Some(1), cursor: None }, ..RunFilter::default() };
        hub.runs(&newest).await.map_err(|error| {
            let failure = CommandFailure::from(error);
            match failure.exit {
                exit::DENIED => {
                    let message = format!("nothing was started: this key cannot follow a run ({})", failure.message);
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
    let (conversation, parts) = match files.total() <= MAX_INLINE {
        true => (conversation, files.inline()?),
        false => files.upload(&context, &hub, conversation, &text).await?,
    };
    let started =
        call(&hub, text, (conversation, parts), &args).start().await.map_err(|error| explain(error, &args))?;
    let run = started.call_id.run();
    if args.no_wait {
        if context.output.is_json() {
            return context.output.json(&hub.run(run).await?);
        }
        context.output.line(run)?;
        context.output.say(format_args!("Follow it: attache watch {run}"));
        return Ok(());
    }
    if !context.output.is_json() {
        queue_reason::explain_new(&context, &hub, run).await;
    }
    let show = if context.output.is_json() { FollowOutput::Nothing } else { FollowOutput::Answer };
    let limit = args.timeout.map(Duration::from_secs);
    let mut follower = RunFollower::new(&context, show).with_hub(&args.hub).typing().streaming(args.stream);
    let ended = follower.follow(&hub, run, 0, limit).await;
    drop(follower);
    match ended? {
        FollowEnd::Run(run) => {
            if context.output.is_json() {
                context.output.json(&run)?;
            }
            follow::verdict(&run)
        }
        FollowEnd::TimedOut => {
            let what = cancel_or_leave(&context, &hub, run, &args, "timed out").await?;
            let message = format!("no answer within {} seconds; {what}", args.timeout.unwrap_or_default());
            Err(CommandFailure::new("timed_out", exit::TIMED_OUT, message)
                .hint(format!("See it with: attache runs show {run}")))
        }
        FollowEnd::Interrupted => {
            let what = cancel_or_leave(&context, &hub, run, &args, "interrupted").await?;
            Err(CommandFailure::new("cancelled", exit::FAILED, format!("interrupted; {what}"))
                .hint(format!("See it with: attache runs show {run}")))
        }
    }
}

/// What the arguments ask for. A request whose answer got lost is sent again and makes one run.
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
    if let Some(url) = &args.callback {
        call = call.callback(url);
    }
    if let Some(key) = &args.idempotency_key {
        call = call.idempotency_key(key);
    }
    call
}

/// The hub's own hint lists the agents that there are.
fn explain(error: attache_client::Error, args: &Args) -> CommandFailure {
    let failure = CommandFailure::from(error);
    match &args.conversation {
        _ if failure.code != "not_found" => failure,
        Some(conversation) => CommandFailure {
            message: format!("there is no agent `{}`, or no conversation {conversation}", args.agent),
            hint: "`attache agents` and `attache conversations` list what you can use.".to_owned(),
            ..failure
        },
        None => CommandFailure { message: format!("there is no agent `{}`", args.agent), ..failure },
    }
}

/// Everything that standard input has to say.
pub(super) fn read_all(what: &str) -> Result<String, CommandFailure> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| {
        CommandFailure::usage(format!("cannot read {what} from standard input: {error}"))
            .hint("It must be text in UTF-8.")
    })?;
    Ok(text)
}

/// Ends the run unless it was asked to be left alone, and says what became of it.
async fn cancel_or_leave(
    context: &CommandContext,
    hub: &HubClient,
    run: RunId,
    args: &Args,
    reason: &str,
) -> Result<String, CommandFailure> {
    if args.no_cancel {
        return Ok(format!("the run goes on (attache watch {run})"));
    }
    let cancelled = hub.cancel_run(run, Some(reason)).await;
    let (state, run) = match cancelled {
        Ok(run) => (run.status, Some(run)),
        // It ended in the same moment.
        Err(error) => match error.conflict() {
            Some(run) => (run.status, Some(run.clone())),
            None => return Err(error.into()),
        },
    };
    if let Some(run) = run.filter(|_| context.output.is_json()) {
        context.output.json(&run)?;
    }
    Ok(format!("the run is {}", state.as_str()))
}
