//! `attache delegations`: delegations of this machine, their results and the allow-list.

mod apply;
mod diff;
mod revert;
mod review;
mod review_dialogue;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use attache_client::daemon::DaemonClient;
use attache_delegation::{
    awcp_policy::PolicyChange,
    delegator::{DelegatorRefusal, refuse_private},
};
use attache_protocol::{
    DelegationId, KeyPin,
    error::exit,
    wire::{
        awcp::{SandboxProfile, SandboxProof},
        delegation::{Delegation, DelegationList, FileChangeKind},
        run::Sandbox,
    },
};
use clap::Subcommand;
use serde::Serialize;

use super::delegate::{self, outcome};
use crate::{
    env::{amount, context::CommandContext, home, ids::IdArg},
    server::daemon_access,
    text::{delegations as texts, terms},
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextStyle, TextTable, clean, time},
    },
};

/// Manage delegated folders and the allow-list
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  attache delegations                                     list active and past delegations
  attache delegations show dlg_…                          a unique part of the id also works, or `last`
  attache delegations output dlg_…                        the remote agent's final answer
  attache delegations log dlg_…                           its output while it worked
  attache delegations diff dlg_…                          its changes
  attache delegations diff dlg_… src/main.rs              its changes to one file, even a large one
  attache delegations review dlg_…                        accept or discard them, file by file or hunk by hunk
  attache delegations review dlg_… --accept src --discard Makefile
  attache delegations apply dlg_…                         apply the changes of a staged delegation to the folder
  attache delegations revert dlg_… src/main.rs            restore a file
  attache delegations diff dlg_… | git apply --reverse    revert with git
  attache delegations cancel dlg_… | --all
  attache delegations wait                                wait for all active delegations
  attache delegations allow --peer http://127.0.0.1:7800/a2a/builder
  attache delegations allow --folder ~/src

`output` and `wait` use the exit codes of `attache delegate`."
)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: DelegationListArgs,
    #[command(subcommand)]
    command: Option<DelegationsCommand>,
}

#[derive(Debug, clap::Args)]
struct DelegationListArgs {
    /// Only active delegations
    #[arg(long)]
    live: bool,
    /// Maximum number of delegations
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(Debug, clap::Args)]
struct DelegationArg {
    /// Delegation id, a unique part of it, or `last`
    #[arg(value_parser = IdArg::of_delegation)]
    delegation: IdArg,
}

#[derive(Debug, Subcommand)]
enum DelegationsCommand {
    /// List delegations, newest first (default)
    List(DelegationListArgs),
    /// Show a delegation
    Show(DelegationArg),
    /// Print the remote agent's final answer, or the current status
    Output(DelegationArg),
    /// Print the remote agent's output while it worked
    Log(DelegationArg),
    /// Revoke access to the folder and stop the remote agent
    Cancel {
        #[arg(required_unless_present = "all", value_parser = IdArg::of_delegation)]
        delegation: Vec<IdArg>,
        /// Cancel all active delegations
        #[arg(long, conflicts_with = "delegation")]
        all: bool,
    },
    /// Show changes to the folder as a unified diff
    Diff {
        /// Delegation id, a unique part of it, or `last`
        #[arg(value_parser = IdArg::of_delegation)]
        delegation: IdArg,
        /// Show only these paths, relative to the folder, as they are now
        paths: Vec<String>,
    },
    /// Review the changes: accept or discard each file, or each hunk of a text file
    #[command(after_help = "Examples:
  attache delegations review last                         asks about each change, in a terminal
  attache delegations review last src                     only the changes below src
  attache delegations review last --accept src --discard Makefile
  attache delegations review last --json                  lists the changes, and which are accepted

You aren't asked about an accepted change again unless the file changes. It can still be reverted.
Without a terminal, and without --accept, --accept-all or --discard, the command lists what is left to review.
It exits with 6 if a change to be discarded was skipped.")]
    Review(review::ReviewArgs),
    /// Apply the changes of a staged delegation to the folder
    #[command(after_help = "Examples:
  attache delegations apply last --check                  what can be applied, and what conflicts with your changes
  attache delegations apply last                          everything that isn't applied or discarded yet
  attache delegations apply last src --take theirs        the agent's version where both of you changed something

Each file is applied completely or not at all. Text files that you also changed are merged if the changes are in different places.
What was applied can be reverted. The command exits with 6 if something was skipped.")]
    Apply(apply::ApplyArgs),
    /// Discard the unapplied changes of a staged delegation
    Discard(apply::DiscardArgs),
    /// Restore the folder to its state before the lease, except files that you changed since
    Revert {
        /// Delegation id, a unique part of it, or `last`
        #[arg(value_parser = IdArg::of_delegation)]
        delegation: IdArg,
        /// Restore only these paths, relative to the folder
        paths: Vec<String>,
        /// For files that you also edited: restore the version from `before` the lease, or
        /// `mine`, your last saved version. The replaced version is kept. [default: ask in a terminal, otherwise skip the file]
        #[arg(long, value_name = "VERSION", value_parser = ["before", "mine"])]
        take: Option<String>,
    },
    /// Wait for delegations to finish
    Wait {
        /// Delegation ids [default: all active delegations]
        #[arg(value_parser = IdArg::of_delegation)]
        delegation: Vec<IdArg>,
        /// Wait for all delegations of this MCP client session
        #[arg(long, value_name = "SESSION", conflicts_with = "delegation")]
        session: Option<String>,
        /// Stop waiting after this many seconds; the delegations continue
        #[arg(long, value_name = "SECONDS", value_parser = amount::seconds)]
        timeout: Option<u64>,
    },
    /// Add a trusted agent or a folder to the allow-list
    Allow(AllowArgs),
    /// Remove an agent or a folder from the allow-list; active delegations continue
    Disallow(DisallowArgs),
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct AllowArgs {
    /// The agent's URL
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// File with the key for the agent
    #[arg(long, value_name = "FILE", requires = "peer")]
    key_file: Option<PathBuf>,
    /// Certificate pin of the agent's hub, if the hub uses a self-signed certificate
    #[arg(long, value_name = "sha256:…", requires = "peer")]
    pin: Option<KeyPin>,
    /// Folder to allow, including its subfolders
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct DisallowArgs {
    /// The agent's URL
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// Folder to remove
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// JSON output of `allow` and `disallow`.
#[derive(Serialize)]
struct PolicyChangeOutput {
    policy: PathBuf,
    changed: bool,
}

/// JSON output of `log`.
#[derive(Serialize)]
struct DelegationLogOutput {
    log: String,
}

const POLL_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let command = args.command.unwrap_or(DelegationsCommand::List(args.filter));
    let only_looks = match &command {
        DelegationsCommand::List(_)
        | DelegationsCommand::Show(_)
        | DelegationsCommand::Output(_)
        | DelegationsCommand::Log(_)
        | DelegationsCommand::Diff { .. } => true,
        DelegationsCommand::Review(args) => args.only_looks(&context.output),
        _ => false,
    };
    // A read-only command stops the daemon again if it had to start one.
    let stays = !only_looks || daemon_access::is_running(&context).await?;
    let done = perform(&context, command).await;
    if !stays {
        daemon_access::end_idle(&context).await;
    }
    done
}

async fn perform(context: &CommandContext, command: DelegationsCommand) -> Result<(), CommandFailure> {
    match command {
        DelegationsCommand::List(filter) => list(context, &filter).await,
        DelegationsCommand::Show(DelegationArg { delegation }) => show(context, &get(context, &delegation).await?),
        DelegationsCommand::Output(DelegationArg { delegation }) => output(context, &get(context, &delegation).await?),
        DelegationsCommand::Log(DelegationArg { delegation }) => {
            log(context, get(context, &delegation).await?.delegation_id)
        }
        DelegationsCommand::Cancel { delegation, all } => cancel(context, delegation, all).await,
        DelegationsCommand::Diff { delegation, paths } => diff::run(context, &delegation, &paths).await,
        DelegationsCommand::Review(args) => review::run(context, args).await,
        DelegationsCommand::Apply(args) => apply::run(context, args).await,
        DelegationsCommand::Discard(args) => apply::discard(context, args).await,
        DelegationsCommand::Revert { delegation, paths, take } => {
            revert::run(context, &delegation, paths, take.as_deref()).await
        }
        DelegationsCommand::Wait { delegation, session, timeout } => wait(context, delegation, session, timeout).await,
        DelegationsCommand::Allow(AllowArgs { peer, key_file, pin, folder }) => {
            let key_file = key_file.map(|file| std::path::absolute(&file).unwrap_or(file));
            if let Some(file) = &key_file {
                // Check now: an unreadable key file would otherwise surface only at the next delegation.
                home::read_secret(file).map_err(|failure| CommandFailure { exit: exit::USAGE, ..failure })?;
            }
            let mut changes: Vec<_> =
                peer.into_iter().map(|url| PolicyChange::AddPeer { url, key_file: key_file.clone(), pin }).collect();
            let found = match folder {
                Some(folder) => Some(
                    std::fs::canonicalize(&folder).map_err(|error| CommandFailure::file("allow", &folder, &error))?,
                ),
                None => None,
            };
            if let Some(folder) = &found {
                // No policy allows the folder or anything in it.
                refuse_private(folder, &home::own_folders(&context.config))
                    .map_err(|DelegatorRefusal { message, hint, .. }| CommandFailure::usage(message).hint(hint))?;
            }
            changes.extend(found.clone().map(PolicyChange::AddRoot));
            change(context, &changes)?;
            found.iter().for_each(|folder| warn_of(context, folder));
            Ok(())
        }
        DelegationsCommand::Disallow(DisallowArgs { peer, folder }) => {
            let mut changes: Vec<_> = peer.into_iter().map(|url| PolicyChange::RemovePeer { url }).collect();
            changes.extend(folder.map(|folder| {
                // The folder may no longer exist but still be listed.
                let whole = std::path::absolute(&folder).unwrap_or(folder);
                PolicyChange::RemoveRoot(std::fs::canonicalize(&whole).unwrap_or(whole))
            }));
            change(context, &changes)
        }
    }
}

/// Warns if the folder is much broader than the person probably intends.
fn warn_of(context: &CommandContext, folder: &Path) {
    let person = context.config.user_home.as_deref().and_then(|home| home.canonicalize().ok());
    if folder.parent().is_none() || person.is_some_and(|home| home.starts_with(folder)) {
        context.output.say_styled(TextStyle::Busy, texts::broad(folder.display()));
    }
    let records = context.config.awcp_home.as_deref().and_then(|home| home.canonicalize().ok());
    if records.is_some_and(|home| home.starts_with(folder)) {
        context.output.say_styled(TextStyle::Busy, texts::only_below(folder.display()));
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
    let path = policy.path().display();
    context.output.say(if changed { texts::policy_changed(path) } else { texts::policy_same(path) });
    Ok(())
}

async fn list(context: &CommandContext, filter: &DelegationListArgs) -> Result<(), CommandFailure> {
    let mut all = daemon_access::daemon(context).await?.list().await?;
    all.retain(|delegation| !filter.live || !delegation.status.has_ended());
    all.truncate(filter.limit.unwrap_or(usize::MAX));
    if context.output.is_json() {
        return context.output.json(&DelegationList { delegations: all });
    }
    if all.is_empty() {
        context.output.say(texts::none_yet());
        return Ok(());
    }
    let mut table = TextTable::new(&[
        terms::id(),
        terms::status(),
        terms::mode(),
        terms::created(),
        terms::ends(),
        terms::folder(),
        terms::peer(),
        terms::task(),
    ]);
    for delegation in &all {
        let ends = match (delegation.ended_at, delegation.expires_at) {
            (Some(at), _) | (None, Some(at)) => time::relative(at, context.now()),
            (None, None) => "–".to_owned(),
        };
        table.row([
            TextCell::plain(delegation.delegation_id.to_string()),
            TextCell::styled(terms::delegation_status(delegation.status), outcome::style(delegation.status)),
            TextCell::plain(mode(delegation)),
            TextCell::plain(time::relative(delegation.created_at, context.now())),
            TextCell::plain(ends),
            TextCell::plain(&delegation.workspace_dir),
            TextCell::plain(&delegation.peer_url),
            TextCell::plain(&delegation.description),
        ]);
    }
    context.output.table(&table)?;
    for delegation in &all {
        if let Some(text) = staged_text(context, delegation).filter(|_| delegation.status.has_ended()) {
            let id = delegation.delegation_id;
            context.output.say_styled(TextStyle::Busy, texts::staged_text(id, text));
        }
    }
    Ok(())
}

fn mode(delegation: &Delegation) -> String {
    let mode = delegation.access_mode.as_str();
    if delegation.staged.is_some() { texts::staged_mode(mode) } else { mode.to_owned() }
}

/// What waits to be applied, and until when. `None` if nothing does.
fn staged_text(context: &CommandContext, delegation: &Delegation) -> Option<String> {
    let staged = delegation.staged.as_ref()?;
    if !delegation.status.has_ended() {
        return Some(texts::unchanged_yet().to_owned());
    }
    let changes = staged.unapplied;
    if changes == 0 {
        return None;
    }
    if let Some(at) = staged.removed_at {
        return Some(texts::unapplied_removed(changes, time::relative(at, context.now())));
    }
    let size = time::size(staged.bytes);
    Some(match staged.kept_until {
        Some(until) => texts::unapplied_until(changes, size, time::relative(until, context.now())),
        None => texts::unapplied_kept(changes, size),
    })
}

fn show(context: &CommandContext, delegation: &Delegation) -> Result<(), CommandFailure> {
    if context.output.is_json() {
        return context.output.json(delegation);
    }
    let now = context.now();
    let mut table = TextTable::new(&["", ""]);
    let mut row = |name: &str, value: TextCell| table.row([TextCell::dim(name), value]);
    row(texts::row_delegation(), TextCell::strong(delegation.delegation_id.to_string()));
    row(
        texts::row_status(),
        TextCell::styled(terms::delegation_status(delegation.status), outcome::style(delegation.status)),
    );
    row(texts::row_task(), TextCell::plain(clean::line(&delegation.description)));
    row(texts::row_peer(), TextCell::plain(&delegation.peer_url));
    row(texts::row_folder(), TextCell::plain(&delegation.workspace_dir));
    row(texts::row_mode(), TextCell::plain(mode(delegation)));
    if let Some(text) = staged_text(context, delegation) {
        row(texts::row_staged(), TextCell::styled(text, TextStyle::Busy));
    }
    row(texts::row_created(), TextCell::plain(time::relative(delegation.created_at, now)));
    let expires = delegation.expires_at.filter(|_| !delegation.status.has_ended());
    for (name, at) in [
        (texts::row_started(), delegation.started_at),
        (texts::row_expires(), expires),
        (texts::row_ended(), delegation.ended_at),
    ] {
        if let Some(at) = at {
            row(name, TextCell::plain(time::relative(at, now)));
        }
    }
    let sandbox = delegation.sandbox.map(|profile| sandbox_text(profile, delegation.sandbox_proof.as_ref()));
    // The last activity of an ended delegation is in its log.
    let live = |text: &Option<String>| text.clone().filter(|_| !delegation.status.has_ended());
    let (waits_for, progress) = (live(&delegation.waits_for), live(&delegation.progress));
    for (name, text) in [
        (texts::row_sandbox(), &sandbox),
        (texts::row_waiting(), &waits_for),
        (texts::row_mounted(), &delegation.remote_mount_point),
        (texts::row_transport(), &delegation.transport),
        (texts::row_remote_task(), &delegation.task_id),
        (texts::row_progress(), &progress),
    ] {
        if let Some(text) = text {
            row(name, TextCell::plain(clean::line(text)));
        }
    }
    if let Some(failure) = delegation.result.as_ref().and_then(|result| result.error.as_ref()) {
        row(
            texts::row_error(),
            TextCell::styled(clean::line(&texts::result(failure.code, &failure.message)), TextStyle::Bad),
        );
        row(texts::row_hint(), TextCell::plain(clean::line(&failure.hint)));
    }
    for changed in delegation.changes.iter().flat_map(|changes| &changes.changed_paths) {
        let word = match changed.change {
            FileChangeKind::Added => texts::change_added(),
            FileChangeKind::Modified => texts::change_modified(),
            FileChangeKind::Removed => texts::change_removed(),
            FileChangeKind::Attributes => texts::change_attributes(),
        };
        let mut path = clean::line(&changed.path).into_owned();
        if delegation.accepted.contains(&changed.path) {
            path = if delegation.staged.is_some() { texts::applied(path) } else { texts::accepted_path(path) };
        }
        row(
            word,
            match &changed.run_by {
                Some(who) => TextCell::styled(texts::review_first(path, clean::line(who)), TextStyle::Busy),
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
    let status = terms::delegation_status(delegation.status);
    context.output.say(match known {
        Some(known) => texts::now_known(status, clean::line(known)),
        None => texts::now(status),
    });
    Ok(())
}

/// Fetches the delegation that the argument refers to.
async fn get(context: &CommandContext, delegation: &IdArg) -> Result<Delegation, CommandFailure> {
    let daemon = daemon_access::daemon(context).await?;
    Ok(daemon.get(delegation.delegation(&daemon).await?).await?)
}

/// Prints the log file that this machine's daemon wrote.
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
        context.output.say(texts::no_log());
        return Ok(());
    }
    context.output.raw(&clean::lines(&text))
}

async fn cancel(context: &CommandContext, named: Vec<IdArg>, all: bool) -> Result<(), CommandFailure> {
    let daemon = daemon_access::daemon(context).await?;
    // Resolve every id before cancelling any.
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
            context.output.say(texts::one_is(id, terms::delegation_status(ended.status)));
        }
        delegations.push(ended);
    }
    if context.output.is_json() {
        return context.output.json(&DelegationList { delegations });
    }
    if delegations.is_empty() {
        context.output.say(texts::none_live());
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
            CommandFailure::new("timed_out", exit::TIMED_OUT, texts::timed_out(seconds)).hint(texts::timed_out_do())
        })??,
    };
    if context.output.is_json() {
        context.output.json(&DelegationList { delegations: ended.clone() })?;
    } else {
        for delegation in &ended {
            context.output.line(format_args!("{} {}", delegation.delegation_id, delegation.status))?;
        }
    }
    ended.iter().try_for_each(outcome::verdict)
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
        // It predates this daemon process.
        ended = daemon.list().await?;
        ended.retain(|delegation| delegation.session_id.as_deref() == Some(session));
    }
    if ended.is_empty() {
        return Err(
            CommandFailure::new("not_found", exit::NOT_FOUND, texts::no_session(session)).hint(texts::no_session_do())
        );
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

/// What the remote says it enforces, and how it knows.
fn sandbox_text(profile: SandboxProfile, proof: Option<&SandboxProof>) -> String {
    let limits: Vec<String> = Sandbox::from(profile).limits().iter().map(ToString::to_string).collect();
    match (limits.is_empty(), proof) {
        (true, _) => texts::sandbox_none().to_owned(),
        (false, Some(proof)) => texts::sandbox_proved(limits.join(", "), proof.proved_at, &proof.made_of),
        (false, None) => texts::sandbox_said(limits.join(", ")),
    }
}
