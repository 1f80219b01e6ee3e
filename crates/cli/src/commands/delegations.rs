//! `attache delegations`: what is lent from this machine, what came of it, and what may be lent.

mod revert;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use attache_client::daemon::DaemonClient;
use attache_protocol::{
    DelegationId, KeyPin,
    error::exit,
    wire::delegation::{Delegation, DelegationDiff, DelegationList},
};
use attache_runtime::awcp_policy::PolicyChange;
use clap::Subcommand;
use serde::Serialize;

use super::delegate;
use crate::{
    CommandContext, CommandFailure, daemon_access, home,
    ids::IdArg,
    output::{TextCell, TextStyle, TextTable, clean, time},
};

/// Manage delegated folders and the allow-list
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  attache delegations                                     what is lent, and what was
  attache delegations show dlg_…                          a part of the id is enough, or `last`
  attache delegations output dlg_…                        what the remote said in the end
  attache delegations log dlg_…                           what it wrote while it worked
  attache delegations diff dlg_…                          what it changed
  attache delegations revert dlg_… src/main.rs            put it back as it was
  attache delegations diff dlg_… | git apply --reverse    the same by git
  attache delegations cancel dlg_… | --all
  attache delegations wait                                until nothing is lent any more
  attache delegations allow --peer http://127.0.0.1:7800/a2a/builder
  attache delegations allow --folder ~/src

Exit codes of `output` and `wait` are those of `attache delegate`."
)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: DelegationListArgs,
    #[command(subcommand)]
    command: Option<DelegationsCommand>,
}

#[derive(Debug, clap::Args)]
struct DelegationListArgs {
    /// Only those that have not ended
    #[arg(long)]
    live: bool,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Its id, a part of it, or `last`
    #[arg(value_parser = IdArg::of_delegation)]
    delegation: IdArg,
}

#[derive(Debug, Subcommand)]
enum DelegationsCommand {
    /// List delegations, newest first (what `attache delegations` does)
    List(DelegationListArgs),
    /// Show one
    Show(One),
    /// Print what the remote said in the end, or how far it is
    Output(One),
    /// Print what the remote wrote while it worked
    Log(One),
    /// Take the folder back and stop the remote
    Cancel {
        #[arg(required_unless_present = "all", value_parser = IdArg::of_delegation)]
        delegation: Vec<IdArg>,
        /// Everything that has not ended
        #[arg(long, conflicts_with = "delegation")]
        all: bool,
    },
    /// Show what changed in the folder as a unified diff
    Diff(One),
    /// Put back what was there before, except for what was changed here since
    Revert {
        /// Its id, a part of it, or `last`
        #[arg(value_parser = IdArg::of_delegation)]
        delegation: IdArg,
        /// Only these, relative to the folder
        paths: Vec<String>,
        /// Which version a file gets that you edited as well: `before` the lease, or `mine`, as you last saved it. What it
        /// replaces is kept. [default: ask on a terminal, else leave it alone]
        #[arg(long, value_name = "VERSION", value_parser = ["before", "mine"])]
        take: Option<String>,
    },
    /// Wait until they have ended
    Wait {
        /// [default: everything that has not ended]
        #[arg(value_parser = IdArg::of_delegation)]
        delegation: Vec<IdArg>,
        /// Everything that one session of an MCP client asked for
        #[arg(long, value_name = "SESSION", conflicts_with = "delegation")]
        session: Option<String>,
        /// Give up after so many seconds; they go on
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
        timeout: Option<u64>,
    },
    /// Trust an agent with folders, or a folder with being lent
    Allow(AllowArgs),
    /// The opposite; what is lent already stays lent
    Disallow(DisallowArgs),
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct AllowArgs {
    /// The agent's URL
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// The file with the key for it
    #[arg(long, value_name = "FILE", requires = "peer")]
    key_file: Option<PathBuf>,
    /// The pin of its hub, when that made its own certificate
    #[arg(long, value_name = "sha256:…", requires = "peer")]
    pin: Option<KeyPin>,
    /// A folder; everything below it may be lent
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct DisallowArgs {
    /// The agent's URL
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// A folder
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// What `allow` and `disallow` print as JSON.
#[derive(Serialize)]
struct PolicyChangeOutput {
    policy: PathBuf,
    changed: bool,
}

/// What `log` prints as JSON.
#[derive(Serialize)]
struct DelegationLogOutput {
    log: String,
}

const POLL_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let command = args.command.unwrap_or(DelegationsCommand::List(args.filter));
    let only_looks = matches!(
        command,
        DelegationsCommand::List(_)
            | DelegationsCommand::Show(_)
            | DelegationsCommand::Output(_)
            | DelegationsCommand::Log(_)
            | DelegationsCommand::Diff(_)
    );
    // Whoever only looks leaves nothing behind that was not there before.
    let stays = !only_looks || daemon_access::is_running(&context).await?;
    let done = perform(&context, command).await;
    if !stays {
        daemon_access::end_idle(&context).await;
    }
    done
}

async fn perform(context: &CommandContext, command: DelegationsCommand) -> Result<(), CommandFailure> {
    match command {
        DelegationsCommand::List(DelegationListArgs { live }) => list(context, live).await,
        DelegationsCommand::Show(One { delegation }) => show(context, &get(context, &delegation).await?),
        DelegationsCommand::Output(One { delegation }) => output(context, &get(context, &delegation).await?),
        DelegationsCommand::Log(One { delegation }) => log(context, get(context, &delegation).await?.delegation_id),
        DelegationsCommand::Cancel { delegation, all } => cancel(context, delegation, all).await,
        DelegationsCommand::Diff(One { delegation }) => {
            let daemon = daemon_access::daemon(context).await?;
            let text = daemon.diff(delegation.delegation(&daemon).await?).await?;
            if context.output.is_json() {
                return context.output.json(&DelegationDiff { text });
            }
            context.output.raw(&text)
        }
        DelegationsCommand::Revert { delegation, paths, take } => {
            revert::run(context, &delegation, paths, take.as_deref()).await
        }
        DelegationsCommand::Wait { delegation, session, timeout } => wait(context, delegation, session, timeout).await,
        DelegationsCommand::Allow(AllowArgs { peer, key_file, pin, folder }) => {
            let key_file = key_file.map(|file| std::path::absolute(&file).unwrap_or(file));
            if let Some(file) = &key_file {
                // One that cannot be read would only be noticed when a folder is lent.
                home::read_secret(file).map_err(|failure| CommandFailure { exit: exit::USAGE, ..failure })?;
            }
            let mut changes: Vec<_> =
                peer.into_iter().map(|url| PolicyChange::AddPeer { url, key_file: key_file.clone(), pin }).collect();
            if let Some(folder) = folder {
                let found =
                    std::fs::canonicalize(&folder).map_err(|error| CommandFailure::file("allow", &folder, &error))?;
                warn_of(context, &found);
                changes.push(PolicyChange::AddRoot(found));
            }
            change(context, &changes)
        }
        DelegationsCommand::Disallow(DisallowArgs { peer, folder }) => {
            let mut changes: Vec<_> = peer.into_iter().map(|url| PolicyChange::RemovePeer { url }).collect();
            changes.extend(folder.map(|folder| {
                // It may be gone, and is still listed.
                let whole = std::path::absolute(&folder).unwrap_or(folder);
                PolicyChange::RemoveRoot(std::fs::canonicalize(&whole).unwrap_or(whole))
            }));
            change(context, &changes)
        }
    }
}

/// What is allowed by this is much more than a person thinks of.
fn warn_of(context: &CommandContext, folder: &Path) {
    let person = context.config.user_home.as_deref().and_then(|home| home.canonicalize().ok());
    if folder.parent().is_none() || person.is_some_and(|home| home.starts_with(folder)) {
        let text = format!(
            "warning: everything below {} may be lent now; take it back: attache delegations disallow --folder {}",
            folder.display(),
            folder.display()
        );
        context.output.say_styled(TextStyle::Busy, text);
    }
}

fn change(context: &CommandContext, changes: &[PolicyChange]) -> Result<(), CommandFailure> {
    let policy = daemon_access::policy(context)?;
    let mut changed = false;
    for change in changes {
        changed |= policy.change(change, &context.env)?;
    }
    if context.output.is_json() {
        return context.output.json(&PolicyChangeOutput { policy: policy.path().to_owned(), changed });
    }
    let what = if changed { "Changed" } else { "Nothing to change in" };
    context.output.say(format_args!("{what} {}.", policy.path().display()));
    Ok(())
}

async fn list(context: &CommandContext, live: bool) -> Result<(), CommandFailure> {
    let mut all = daemon_access::daemon(context).await?.list().await?;
    all.retain(|delegation| !live || !delegation.status.has_ended());
    if context.output.is_json() {
        return context.output.json(&DelegationList { delegations: all });
    }
    if all.is_empty() {
        context.output.say("Nothing is lent. Lend a folder: attache delegate DIR --to URL \"…\"");
        return Ok(());
    }
    let mut table = TextTable::new(&["ID", "STATUS", "MODE", "CREATED", "ENDS", "FOLDER", "PEER", "TASK"]);
    for delegation in &all {
        let ends = match (delegation.ended_at, delegation.expires_at) {
            (Some(at), _) | (None, Some(at)) => time::relative(at, context.now()),
            (None, None) => "–".to_owned(),
        };
        table.row([
            TextCell::plain(delegation.delegation_id.to_string()),
            TextCell::styled(delegation.status.as_str(), daemon_access::style(delegation.status)),
            TextCell::plain(delegation.access_mode.as_str()),
            TextCell::plain(time::relative(delegation.created_at, context.now())),
            TextCell::plain(ends),
            TextCell::plain(&delegation.workspace_dir),
            TextCell::plain(&delegation.peer_url),
            TextCell::plain(&delegation.description),
        ]);
    }
    context.output.table(&table)
}

fn show(context: &CommandContext, delegation: &Delegation) -> Result<(), CommandFailure> {
    if context.output.is_json() {
        return context.output.json(delegation);
    }
    let now = context.now();
    let mut table = TextTable::new(&["", ""]);
    let mut row = |name: &str, value: TextCell| table.row([TextCell::dim(name), value]);
    row("delegation", TextCell::strong(delegation.delegation_id.to_string()));
    row("status", TextCell::styled(delegation.status.as_str(), daemon_access::style(delegation.status)));
    row("task", TextCell::plain(clean::line(&delegation.description)));
    row("peer", TextCell::plain(&delegation.peer_url));
    row("folder", TextCell::plain(&delegation.workspace_dir));
    row("mode", TextCell::plain(delegation.access_mode.as_str()));
    row("created", TextCell::plain(time::relative(delegation.created_at, now)));
    let expires = delegation.expires_at.filter(|_| !delegation.status.has_ended());
    for (name, at) in [("lent", delegation.started_at), ("expires", expires), ("ended", delegation.ended_at)] {
        if let Some(at) = at {
            row(name, TextCell::plain(time::relative(at, now)));
        }
    }
    for (name, text) in [
        ("waits for", &delegation.waits_for),
        ("mounted at", &delegation.remote_mount_point),
        ("remote task", &delegation.task_id),
        ("progress", &delegation.progress),
    ] {
        if let Some(text) = text {
            row(name, TextCell::plain(clean::line(text)));
        }
    }
    if let Some(failure) = delegation.result.as_ref().and_then(|result| result.error.as_ref()) {
        row("error", TextCell::styled(clean::line(&format!("{}: {}", failure.code, failure.message)), TextStyle::Bad));
        row("hint", TextCell::plain(clean::line(&failure.hint)));
    }
    for changed in delegation.changes.iter().flat_map(|changes| &changes.changed_paths) {
        let word = format!("{:?}", changed.change).to_lowercase();
        let path = clean::line(&changed.path);
        row(
            &word,
            match &changed.run_by {
                Some(who) => TextCell::styled(
                    format!("{path} (run or obeyed by {}: look at it first)", clean::line(who)),
                    TextStyle::Busy,
                ),
                None => TextCell::plain(path),
            },
        );
    }
    context.output.table(&table)?;
    if let Some(summary) = delegation.result.as_ref().and_then(|result| result.final_summary.as_ref()) {
        context.output.raw(&format!("\n{}\n", summary.trim_end()))?;
    }
    Ok(())
}

fn output(context: &CommandContext, delegation: &Delegation) -> Result<(), CommandFailure> {
    if delegation.status.has_ended() {
        return delegate::show(context, delegation);
    }
    if context.output.is_json() {
        return context.output.json(delegation);
    }
    let known = delegation.progress.as_ref().or(delegation.waits_for.as_ref());
    let known = known.map(|text| format!(": {}", clean::line(text))).unwrap_or_default();
    context.output.say(format_args!("It is {}{known}", delegation.status));
    Ok(())
}

/// The one that was named.
async fn get(context: &CommandContext, delegation: &IdArg) -> Result<Delegation, CommandFailure> {
    let daemon = daemon_access::daemon(context).await?;
    Ok(daemon.get(delegation.delegation(&daemon).await?).await?)
}

/// The daemon of this machine wrote it.
fn log(context: &CommandContext, delegation: DelegationId) -> Result<(), CommandFailure> {
    let folder = context.config.awcp_home()?.join("delegations").join(delegation.to_string());
    let path = folder.join("logs").join("remote.log");
    let text = match std::fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(CommandFailure::file("read the log", &path, &error)),
    };
    if context.output.is_json() {
        return context.output.json(&DelegationLogOutput { log: text });
    }
    if text.is_empty() {
        context.output.say("The remote wrote nothing.");
        return Ok(());
    }
    context.output.raw(&clean::lines(&text))
}

async fn cancel(context: &CommandContext, named: Vec<IdArg>, all: bool) -> Result<(), CommandFailure> {
    let daemon = daemon_access::daemon(context).await?;
    // None is cancelled before all of them are known.
    let mut wanted = Vec::new();
    for delegation in &named {
        wanted.push(delegation.delegation(&daemon).await?);
    }
    if all {
        let live = daemon.list().await?;
        wanted = live.iter().filter(|one| !one.status.has_ended()).map(|one| one.delegation_id).collect();
    }
    let mut delegations = Vec::new();
    for id in wanted {
        let ended = daemon.cancel(id).await?;
        if !context.output.is_json() {
            context.output.say(format_args!("{id} is {}.", ended.status));
        }
        delegations.push(ended);
    }
    if context.output.is_json() {
        return context.output.json(&DelegationList { delegations });
    }
    if delegations.is_empty() {
        context.output.say("Nothing is lent.");
    }
    Ok(())
}

async fn wait(
    context: &CommandContext,
    wanted: Vec<IdArg>,
    session: Option<String>,
    timeout: Option<u64>,
) -> Result<(), CommandFailure> {
    let daemon = daemon_access::daemon(context).await?;
    let waiting = async {
        match session {
            Some(session) => ended_of_session(&daemon, &session).await,
            None => ended_of(context, &daemon, wanted).await,
        }
    };
    let ended = match timeout {
        None => waiting.await?,
        Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds), waiting).await.map_err(|_| {
            CommandFailure::new("timed_out", exit::TIMED_OUT, format!("not done within {seconds} seconds; it goes on"))
                .hint("See how far it is: attache delegations list --live")
        })??,
    };
    if context.output.is_json() {
        context.output.json(&DelegationList { delegations: ended.clone() })?;
    } else {
        for delegation in &ended {
            context.output.line(format_args!("{} {}", delegation.delegation_id, delegation.status))?;
        }
    }
    ended.iter().try_for_each(daemon_access::verdict)
}

async fn ended_of_session(daemon: &DaemonClient, session: &str) -> Result<Vec<Delegation>, CommandFailure> {
    let mut state = daemon.session(session).await?;
    while !state.pending.is_empty() {
        state = daemon.wait_for_session(session, state.rounds, POLL_TIMEOUT).await?;
    }
    let mut ended = Vec::new();
    for id in state.ended {
        ended.push(daemon.get(id).await?);
    }
    if ended.is_empty() {
        // One of before the daemon was started.
        ended = daemon.list().await?;
        ended.retain(|delegation| delegation.session_id.as_deref() == Some(session));
    }
    if ended.is_empty() {
        let message = format!("nothing was delegated in a session `{session}`");
        return Err(CommandFailure::new("not_found", exit::NOT_FOUND, message)
            .hint("`attache delegations list --json` has the `session_id` of each."));
    }
    Ok(ended)
}

async fn ended_of(
    context: &CommandContext,
    daemon: &DaemonClient,
    wanted: Vec<IdArg>,
) -> Result<Vec<Delegation>, CommandFailure> {
    let all = if wanted.is_empty() {
        daemon.list().await?.into_iter().filter(|delegation| !delegation.status.has_ended()).collect()
    } else {
        let mut all = Vec::new();
        for id in wanted {
            all.push(daemon.get(id.delegation(daemon).await?).await?);
        }
        all
    };
    let mut ended = Vec::new();
    for delegation in all {
        let name = format!("{} ", delegation.delegation_id);
        ended.push(delegate::follow(context, daemon, delegation, &name).await?);
    }
    Ok(ended)
}
