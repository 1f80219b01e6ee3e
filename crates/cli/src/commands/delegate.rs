//! `attache delegate`: delegate a folder to a remote agent and follow the delegation until it finishes.

pub(super) mod outcome;

use std::{path::PathBuf, time::Duration};

use attache_client::daemon::{self, DaemonClient};
use attache_delegation::awcp_policy::PolicyChange;
use attache_protocol::{
    Code,
    error::exit,
    rules::delegation::DelegationStatus,
    wire::{
        awcp::{AccessMode, TransportChoice},
        delegation::{DelegateRequest, Delegation},
    },
};

use super::ask::read_all;
use crate::{
    env::{amount, context::CommandContext},
    server::daemon_access,
    text::{ask, delegations as texts, errors, terms},
    ui::{
        failure::CommandFailure,
        output::{TextStyle, clean, time},
        prompt,
        signals::TerminationSignals,
    },
};

/// Delegate a folder to an agent on another machine
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache delegate . --to http://127.0.0.1:7800/a2a/builder \"make the tests pass\"
  attache delegate ~/src/site --to https://hub.example.org/a2a/reviewer --access-mode ro \"review the last commit\"
  attache delegate . --to URL --ttl 600 --exclude target/ \"…\"
  attache delegate . --to URL --staged \"…\"             its changes wait for your review
  attache delegate . --to URL --background \"…\"         print the id and exit
  git log -1 | attache delegate . --to URL -           read the task from standard input

The remote agent's summary goes to standard output, everything else to standard error. Access to the folder is revoked when
the work is done, when the lease expires, and when you cancel. Ctrl-C cancels unless --no-cancel is set. Files with secrets
(.env, keys) are never shared. policy.toml lists the trusted peers and shared folders; in a terminal, you're asked to add
missing ones.

Exits with 0 if the delegation completed, 1 if it failed or was cancelled, 4 if it wasn't allowed or the remote agent
declined, and 124 if the lease expired.")]
pub(crate) struct Args {
    /// The folder to delegate
    dir: PathBuf,
    /// The task; `-` reads it from standard input
    prompt: String,
    /// The agent's URL
    #[arg(long, value_name = "URL")]
    to: String,
    /// Short description for lists [default: the start of the task]
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Access: `ro` (read-only) or `rw` [default: from policy.toml, otherwise `rw`]
    #[arg(long, value_name = "ro|rw")]
    access_mode: Option<AccessMode>,
    /// Lease duration in seconds [default: from policy.toml, otherwise 3600]
    #[arg(long, value_name = "SECONDS", value_parser = amount::seconds)]
    ttl: Option<u64>,
    /// Print the id and exit without waiting
    #[arg(long)]
    background: bool,
    /// Keep the delegation going if this command is interrupted
    #[arg(long)]
    no_cancel: bool,
    /// Share only files that match this .gitignore-style pattern; repeatable
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Hide files that match this .gitignore-style pattern; repeatable
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// How the remote gets the folder: mounted with attache-fs or sshfs, or as a copy that is kept in sync [default:
    /// attache-fs if the remote supports it]
    #[arg(long, value_name = TransportChoice::CHOICES, value_parser = transport)]
    transport: Option<TransportChoice>,
    /// The URL belongs to an executor of the AWCP reference implementation: use its dialect and send the folder as an archive
    #[arg(long, conflicts_with_all = ["transport", "staged"])]
    awcp_compat: bool,
    /// Let the agent work in a copy: nothing changes in the folder until you apply it (`attache delegations apply`)
    #[arg(long)]
    staged: bool,
    /// File with the key for the agent [default: the key in policy.toml, otherwise this machine's hub key]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// Maximum time of one long poll to the daemon.
const POLL_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_DESCRIPTION: usize = 60;

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let request = request(&args)?;
    let mut signals = TerminationSignals::new()?;
    let daemon = daemon_access::daemon(&context).await?;
    let delegation = delegate(&context, &daemon, &request).await?;
    let id = delegation.delegation_id;
    if args.background {
        if context.output.is_json() {
            return context.output.json(&delegation);
        }
        context.output.line(id)?;
        context.output.say(texts::follow_it(id));
        return Ok(());
    }
    let ended = tokio::select! {
        ended = follow(&context, &daemon, delegation, "") => ended?,
        () = signals.next() => {
            if args.no_cancel {
                return Err(CommandFailure::new("interrupted", exit::FAILED, texts::interrupted())
                    .hint(texts::follow_it(id)));
            }
            context.output.say(texts::cancelling());
            daemon.cancel(id).await?
        }
    };
    show(&context, &ended)
}

fn request(args: &Args) -> Result<DelegateRequest, CommandFailure> {
    let prompt = if args.prompt == "-" { read_all(terms::the_task())? } else { args.prompt.clone() };
    if prompt.trim().is_empty() {
        return Err(CommandFailure::usage(ask::empty_task()).hint(texts::empty_task_do()));
    }
    let dir = std::fs::canonicalize(&args.dir).map_err(|error| CommandFailure::file("delegate", &args.dir, &error))?;
    let key_file = args
        .key_file
        .as_ref()
        .map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()).to_string_lossy().into_owned());
    Ok(DelegateRequest {
        description: args.description.clone().unwrap_or_else(|| short_description(&prompt)),
        prompt,
        peer_url: args.to.clone(),
        workspace_dir: dir.to_string_lossy().into_owned(),
        ttl_seconds: args.ttl,
        access_mode: args.access_mode,
        session_id: None,
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        transport: args.transport,
        key_file,
        awcp_compat: args.awcp_compat,
        staged: args.staged,
    })
}

fn transport(text: &str) -> Result<TransportChoice, String> {
    TransportChoice::from_text(text).ok_or_else(|| errors::transport_expected(TransportChoice::CHOICES))
}

fn short_description(prompt: &str) -> String {
    let line = prompt.trim().lines().next().unwrap_or_default();
    let short: String = line.chars().take(MAX_DESCRIPTION).collect();
    if short.len() < line.len() { format!("{short}…") } else { short }
}

/// Starts the delegation. On a terminal, asks the person to allow a peer or folder that the policy doesn't allow yet.
async fn delegate(
    context: &CommandContext,
    daemon: &DaemonClient,
    request: &DelegateRequest,
) -> Result<Delegation, CommandFailure> {
    loop {
        let refusal = match daemon.delegate(request).await {
            Ok(delegation) => return Ok(delegation),
            Err(daemon::Error::Refused(refusal)) => refusal,
            Err(error) => return Err(error.into()),
        };
        let (question, change) = match refusal.code {
            Code::PeerNotAllowed => (
                texts::ask_peer(clean::line(&request.peer_url)),
                PolicyChange::AddPeer {
                    url: request.peer_url.clone(),
                    key_file: request.key_file.clone().map(PathBuf::from),
                    pin: None,
                },
            ),
            Code::FolderNotAllowed => (
                texts::ask_folder(clean::line(&request.workspace_dir)),
                PolicyChange::AddRoot(PathBuf::from(&request.workspace_dir)),
            ),
            _ => return Err(daemon::Error::Refused(refusal).into()),
        };
        if !ask_to_allow(context, &question, &change)? {
            return Err(daemon::Error::Refused(refusal).into());
        }
    }
}

/// Prints status changes, prefixed with `name`, until the delegation finishes.
pub(super) async fn follow(
    context: &CommandContext,
    daemon: &DaemonClient,
    mut delegation: Delegation,
    name: &str,
) -> Result<Delegation, CommandFailure> {
    let quiet = context.output.is_json();
    let (mut status, mut waits_for, mut progress) = (None::<DelegationStatus>, None::<String>, None::<String>);
    loop {
        if !quiet && status != Some(delegation.status) {
            status = Some(delegation.status);
            context.output.say_styled(TextStyle::Dim, format_args!("{name}{}", announcement(context, &delegation)));
        }
        if !quiet && waits_for != delegation.waits_for && !delegation.status.has_ended() {
            waits_for.clone_from(&delegation.waits_for);
            if let Some(reason) = &waits_for {
                context
                    .output
                    .say_styled(TextStyle::Busy, format_args!("{name}{}", texts::waits_for(clean::line(reason))));
            }
        }
        if !quiet && progress != delegation.progress {
            progress.clone_from(&delegation.progress);
            if let Some(text) = &progress {
                context.output.say(format_args!("{name}{}", clean::line(text)));
            }
        }
        if delegation.status.has_ended() {
            return Ok(delegation);
        }
        delegation = daemon.wait(delegation.delegation_id, delegation.revision, POLL_TIMEOUT).await?;
    }
}

fn announcement(context: &CommandContext, delegation: &Delegation) -> String {
    let id = delegation.delegation_id;
    match delegation.status {
        DelegationStatus::Created => texts::created(id),
        DelegationStatus::Invited => texts::invited(clean::line(&delegation.peer_url)),
        DelegationStatus::Accepted => texts::accepted().to_owned(),
        DelegationStatus::Started => {
            let until = time::relative_or(delegation.expires_at, context.now(), terms::soon());
            texts::shared(delegation.access_mode, until)
        }
        DelegationStatus::Running => texts::working().to_owned(),
        // The error and its hint are printed last.
        DelegationStatus::Error if delegation.started_at.is_some() => texts::failed_revoked().to_owned(),
        DelegationStatus::Error => texts::failed_unshared().to_owned(),
        ended if delegation.started_at.is_some() => texts::ended_revoked(terms::delegation_status(ended)),
        ended => texts::ended_unshared(terms::delegation_status(ended)),
    }
}

/// Prints the result of a finished delegation, or returns its failure with the exit code.
pub(super) fn show(context: &CommandContext, ended: &Delegation) -> Result<(), CommandFailure> {
    let output = &context.output;
    if output.is_json() {
        output.json(ended)?;
        return outcome::verdict(ended);
    }
    if let Some(result) = &ended.result {
        if let Some(summary) = &result.final_summary {
            output.raw(&format!("{}\n", summary.trim_end()))?;
        }
        for path in &result.highlights {
            output.say(format_args!("  {}", clean::line(path)));
        }
        if let Some(notes) = &result.notes {
            output.say(clean::lines(notes));
        }
    }
    if let Some(changed) = outcome::changed(ended) {
        output.say_styled(TextStyle::Dim, changed);
    }
    if ended.staged.as_ref().is_some_and(|staged| staged.unapplied > 0) {
        output.say(texts::not_changed_yet(ended.delegation_id));
    }
    outcome::verdict(ended)
}

/// Asks the person at the terminal whether to change the policy, and changes it. `false` if no one can be asked.
fn ask_to_allow(context: &CommandContext, question: &str, change: &PolicyChange) -> Result<bool, CommandFailure> {
    match prompt::confirm(&context.output, question)? {
        None => return Ok(false),
        Some(false) => {
            return Err(CommandFailure::new("denied", exit::DENIED, texts::not_allowed()));
        }
        Some(true) => {}
    }
    let policy = daemon_access::policy(context)?;
    policy.change(change, &context.env)?;
    context.output.say_styled(TextStyle::Dim, texts::added_to(policy.path().display()));
    Ok(true)
}
