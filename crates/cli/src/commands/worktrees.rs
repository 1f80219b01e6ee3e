//! `attache worktrees`: shows, commits, applies and discards what runs changed in git worktrees of their own.

mod remote;

use attache_protocol::{
    RunId, Timestamp,
    error::exit,
    wire::worktree::{DecideWorktreeRequest, WorktreeAction},
};
use attache_workspace::report::git::worktree::{Error, KEPT_FOR, RunWorktree, WorktreeFolder, WorktreeState};
use clap::Subcommand;
use serde::Serialize;

use self::remote::RemoteArgs;
use crate::{
    env::context::CommandContext,
    text::{terms, worktrees as text},
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextTable, clean, time},
        prompt,
    },
};

/// Show, commit, apply and discard what runs changed in their own worktrees
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache ask builder \"…\" --worktree       a run that works in a worktree of its own, on the branch attache/run_…
  attache worktrees                        list the worktrees on this device
  attache worktrees diff last              show what the newest one changed
  attache worktrees commit last -m \"…\"     commit the changes to its branch; merge it with git
  attache worktrees apply last             bring the changes into your files, uncommitted
  attache worktrees discard last           remove the worktree and its branch
  attache worktrees apply run_… --remote   have the agent's device do it, from any machine

Run these on the agent's device, or the last three with `--remote`. RUN is a run's id, a unique part of it, or `last` for the newest \
                  worktree (with `--remote`, the newest run).")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<WorktreesCommand>,
}

#[derive(Debug, Subcommand)]
enum WorktreesCommand {
    /// List the worktrees on this device (default)
    List,
    /// Show what a run changed, committed or not, as a patch
    Diff {
        /// Run id (`run_…`), a unique part of it, or `last` for the newest worktree
        run: String,
    },
    /// Print the folder of a worktree
    Path {
        /// Run id (`run_…`), a unique part of it, or `last` for the newest worktree
        run: String,
    },
    /// Commit the changes to the worktree's branch, in your name
    Commit {
        /// Run id (`run_…`), a unique part of it, or `last` for the newest worktree
        run: String,
        /// The commit message [default: the run's id]
        #[arg(long, short, value_name = "TEXT")]
        message: Option<String>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Apply the changes, uncommitted, to the folder the worktree was created from; all or nothing
    Apply {
        /// Run id (`run_…`), a unique part of it, or `last` for the newest worktree
        run: String,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Remove a worktree and its branch
    Discard {
        /// Run id (`run_…`), a unique part of it, or `last` for the newest worktree
        run: String,
        /// Skip the confirmation prompt
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        remote: RemoteArgs,
    },
}

/// JSON output of `list`.
#[derive(Serialize)]
struct WorktreeList {
    worktrees: Vec<ListedWorktree>,
}

#[derive(Serialize)]
struct ListedWorktree {
    task_run_id: RunId,
    branch: String,
    folder: String,
    /// The top of the working tree that it was made from.
    source: String,
    base: String,
    created_at: Timestamp,
    /// Whether its run is still working there. Nothing is looked at until it ends.
    working: bool,
    /// Null if git can't tell.
    changed: Option<Vec<String>>,
    commits: Option<u64>,
    uncommitted: Option<bool>,
    /// Repositories and submodules in it with what the changes don't contain.
    nested: Option<Vec<String>>,
    /// Files whose content in commits of the branch differs from the worktree.
    differs_on_branch: Option<Vec<String>>,
}

/// JSON output of the other commands.
#[derive(Serialize)]
struct WorktreeAnswer {
    task_run_id: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<String>,
    discarded: bool,
}

pub(super) async fn run(context: &CommandContext, args: Args) -> Result<(), CommandFailure> {
    let ask = |action, message| DecideWorktreeRequest { action, message };
    match &args.command {
        Some(WorktreesCommand::Commit { run, message, remote }) if remote.remote => {
            return remote.decide(context, run, ask(WorktreeAction::Commit, message.clone()), true).await;
        }
        Some(WorktreesCommand::Apply { run, remote }) if remote.remote => {
            return remote.decide(context, run, ask(WorktreeAction::Apply, None), true).await;
        }
        Some(WorktreesCommand::Discard { run, yes, remote }) if remote.remote => {
            return remote.decide(context, run, ask(WorktreeAction::Discard, None), *yes).await;
        }
        _ => {}
    }
    let folder = WorktreeFolder::at(context.home()?.worktrees());
    match args.command.unwrap_or(WorktreesCommand::List) {
        WorktreesCommand::List => list(context, &folder),
        WorktreesCommand::Diff { run } => diff(context, &find(&folder, &run)?),
        WorktreesCommand::Path { run } => {
            let found = find(&folder, &run)?;
            let path = found.files().display().to_string();
            match context.output.is_json() {
                true => context.output.json(&WorktreeAnswer { folder: Some(path), ..WorktreeAnswer::of(&found) }),
                false => context.output.line(path),
            }
        }
        WorktreesCommand::Commit { run, message, .. } => commit(context, &find(&folder, &run)?, message),
        WorktreesCommand::Apply { run, .. } => apply(context, &find(&folder, &run)?),
        WorktreesCommand::Discard { run, yes, .. } => discard(context, &find(&folder, &run)?, yes),
    }
}

fn find(folder: &WorktreeFolder, wanted: &str) -> Result<RunWorktree, CommandFailure> {
    let mut all = folder.list();
    if wanted == "last" {
        return all.pop().ok_or_else(|| none(text::none_here()));
    }
    let is_wanted = |worktree: &RunWorktree| worktree.record().run.to_string().contains(wanted);
    all.retain(is_wanted);
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(none(&text::none_of(wanted))),
        count => Err(CommandFailure::usage(text::ambiguous(count as u64, wanted)).hint(text::ambiguous_do())),
    }
}

fn none(message: &str) -> CommandFailure {
    CommandFailure::new("not_found", exit::NOT_FOUND, message).hint(text::none_do())
}

fn list(context: &CommandContext, folder: &WorktreeFolder) -> Result<(), CommandFailure> {
    let all: Vec<(RunWorktree, Result<WorktreeState, Error>)> = folder
        .list()
        .into_iter()
        .rev()
        .map(|worktree| {
            let state = worktree.state();
            (worktree, state)
        })
        .collect();
    if context.output.is_json() {
        let worktrees = all.iter().map(|(worktree, state)| ListedWorktree::of(worktree, state)).collect();
        return context.output.json(&WorktreeList { worktrees });
    }
    if all.is_empty() {
        context.output.say(text::none());
        return Ok(());
    }
    let mut table = TextTable::new(&[text::run(), text::changes(), terms::created(), terms::folder()]);
    for (worktree, state) in &all {
        let record = worktree.record();
        table.row([
            TextCell::strong(record.run.to_string()),
            TextCell::plain(match state {
                Ok(state) => summary(state),
                Err(Error::Working(_)) => text::working().to_owned(),
                Err(Error::Busy(_)) => text::in_use().to_owned(),
                Err(_) => text::unknown().to_owned(),
            }),
            TextCell::plain(time::relative(record.created_at, context.now())),
            TextCell::plain(record.source.display().to_string()),
        ]);
    }
    context.output.table(&table)?;
    let days = KEPT_FOR.as_secs() / 86_400;
    context.output.say(text::kept_for(days));
    Ok(())
}

fn summary(state: &WorktreeState) -> String {
    let files = match state.changed.len() {
        0 if state.differs_on_branch.is_empty() => return with_nested(text::unchanged().to_owned(), state),
        count => text::files(count as u64),
    };
    let summary = if state.is_uncommitted { text::uncommitted(files) } else { text::committed(files) };
    let summary = if state.differs_on_branch.is_empty() { summary } else { text::branch_has_more(summary) };
    with_nested(summary, state)
}

fn with_nested(summary: String, state: &WorktreeState) -> String {
    if state.nested.is_empty() { summary } else { text::nested_have_more(summary) }
}

fn diff(context: &CommandContext, worktree: &RunWorktree) -> Result<(), CommandFailure> {
    let diff = worktree.diff().map_err(|error| explain(&error, worktree))?;
    let text = String::from_utf8_lossy(&diff).into_owned();
    if context.output.is_json() {
        return context.output.json(&WorktreeAnswer { diff: Some(text), ..WorktreeAnswer::of(worktree) });
    }
    context.output.raw(&text)?;
    if text.is_empty() {
        context.output.say(text::nothing_changed());
    }
    if let Ok(state) = worktree.state() {
        if !state.differs_on_branch.is_empty() {
            let files: Vec<_> = state.differs_on_branch.iter().map(|file| clean::line(file).into_owned()).collect();
            let base = worktree.record().base.get(..12).unwrap_or_default();
            context.output.say(text::differs_on_branch(files.join(", "), base, worktree.branch()));
        }
        for nested in &state.nested {
            context.output.say(text::nested(clean::line(nested)));
        }
    }
    Ok(())
}

fn commit(context: &CommandContext, worktree: &RunWorktree, message: Option<String>) -> Result<(), CommandFailure> {
    let message = message.unwrap_or_else(|| text::default_message(worktree.record().run));
    let commit = worktree.commit(&message, context.now()).map_err(|error| explain(&error, worktree))?;
    if context.output.is_json() {
        return context.output.json(&WorktreeAnswer { commit: Some(commit), ..WorktreeAnswer::of(worktree) });
    }
    let short = commit.get(..12).unwrap_or(&commit);
    context.output.say(text::done_commit(short, worktree.branch()));
    Ok(())
}

fn apply(context: &CommandContext, worktree: &RunWorktree) -> Result<(), CommandFailure> {
    let applied = worktree.apply(context.now()).map_err(|error| explain(&error, worktree))?;
    if context.output.is_json() {
        let applied = Some(applied.files);
        return context.output.json(&WorktreeAnswer { applied, ..WorktreeAnswer::of(worktree) });
    }
    for file in &applied.files {
        context.output.line(clean::line(file))?;
    }
    let (run, source) = (worktree.record().run, worktree.record().source.display());
    context.output.say(match applied.files.len() {
        0 => text::nothing_to_apply(source, run),
        count => text::applied(count as u64, source, run),
    });
    Ok(())
}

fn discard(context: &CommandContext, worktree: &RunWorktree, yes: bool) -> Result<(), CommandFailure> {
    let (run, branch) = (worktree.record().run, worktree.branch());
    if !yes {
        let changes = worktree.state().map_or_else(|_| text::unknown().to_owned(), |state| summary(&state));
        let question = text::ask_discard(run, &branch, changes);
        if prompt::confirm(&context.output, &question)? == Some(false) {
            return Err(CommandFailure::new("cancelled", exit::FAILED, text::not_discarded()));
        }
    }
    let has_repository = worktree.discard().map_err(|error| explain(&error, worktree))?;
    if context.output.is_json() {
        return context.output.json(&WorktreeAnswer { discarded: true, ..WorktreeAnswer::of(worktree) });
    }
    match has_repository {
        true => context.output.say(text::discarded(branch)),
        false => {
            context.output.say(text::discarded_without_repository(worktree.record().source.display(), branch));
        }
    }
    Ok(())
}

fn explain(error: &Error, worktree: &RunWorktree) -> CommandFailure {
    let (run, source) = (worktree.record().run, worktree.record().source.display());
    match error {
        Error::Unchanged => CommandFailure::failed(text::unchanged_there()).hint(text::see_all(run)),
        Error::Conflicts(files) => {
            let files: Vec<_> = files.iter().map(|file| clean::line(file).into_owned()).collect();
            CommandFailure::new("conflict", exit::FAILED, text::conflicts(source, files.join(", ")))
                .hint(text::conflicts_do(run, worktree.branch()))
        }
        Error::Working(run) => {
            CommandFailure::new("working", exit::FAILED, text::still_working(run)).hint(text::working_do(run))
        }
        _ => CommandFailure::failed(clean::lines(&error.to_string()).into_owned()).hint(text::its_files(run)),
    }
}

// === impl WorktreeAnswer ===

impl WorktreeAnswer {
    fn of(worktree: &RunWorktree) -> Self {
        let task_run_id = worktree.record().run;
        Self { task_run_id, commit: None, applied: None, diff: None, folder: None, discarded: false }
    }
}

// === impl ListedWorktree ===

impl ListedWorktree {
    fn of(worktree: &RunWorktree, state: &Result<WorktreeState, Error>) -> Self {
        let record = worktree.record();
        let working = matches!(state, Err(Error::Working(_)));
        let state = state.as_ref().ok();
        Self {
            task_run_id: record.run,
            branch: worktree.branch(),
            folder: worktree.files().display().to_string(),
            source: record.source.display().to_string(),
            base: record.base.clone(),
            created_at: record.created_at,
            working,
            changed: state.map(|state| state.changed.clone()),
            commits: state.map(|state| state.commits),
            uncommitted: state.map(|state| state.is_uncommitted),
            nested: state.map(|state| state.nested.clone()),
            differs_on_branch: state.map(|state| state.differs_on_branch.clone()),
        }
    }
}
