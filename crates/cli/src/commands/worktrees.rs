//! `attache worktrees`: shows, commits, applies and discards what runs changed in git worktrees of their own.

use attache_protocol::{RunId, Timestamp, error::exit};
use attache_workspace::report::git::worktree::{Error, KEPT_FOR, RunWorktree, WorktreeFolder, WorktreeState};
use clap::Subcommand;
use serde::Serialize;

use crate::{
    env::context::CommandContext,
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextTable, clean, time},
        prompt,
    },
};

/// Show, commit, apply and discard what runs changed in worktrees of their own
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache ask builder \"…\" --worktree       a run that works in a worktree of its own, on the branch attache/run_…
  attache worktrees                        list the worktrees on this device
  attache worktrees diff last              show what the newest one changed
  attache worktrees commit last -m \"…\"     commit the changes to its branch; merge it with git
  attache worktrees apply last             bring the changes into your files, uncommitted
  attache worktrees discard last           remove the worktree and its branch

Run these on the agent's device. RUN is a run's id, a unique part of it, or `last` for the newest worktree.")]
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
    },
    /// Bring the changes into the folder that the worktree was made from, as uncommitted changes; all of them or none
    Apply {
        /// Run id (`run_…`), a unique part of it, or `last` for the newest worktree
        run: String,
    },
    /// Remove a worktree and its branch
    Discard {
        /// Run id (`run_…`), a unique part of it, or `last` for the newest worktree
        run: String,
        /// Skip the confirmation prompt
        #[arg(long, short)]
        yes: bool,
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
struct WorktreeOutcome {
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

pub(super) fn run(context: &CommandContext, args: Args) -> Result<(), CommandFailure> {
    let folder = WorktreeFolder::at(context.home()?.worktrees());
    match args.command.unwrap_or(WorktreesCommand::List) {
        WorktreesCommand::List => list(context, &folder),
        WorktreesCommand::Diff { run } => diff(context, &find(&folder, &run)?),
        WorktreesCommand::Path { run } => {
            let found = find(&folder, &run)?;
            let path = found.files().display().to_string();
            match context.output.is_json() {
                true => context.output.json(&WorktreeOutcome { folder: Some(path), ..WorktreeOutcome::of(&found) }),
                false => context.output.line(path),
            }
        }
        WorktreesCommand::Commit { run, message } => commit(context, &find(&folder, &run)?, message),
        WorktreesCommand::Apply { run } => apply(context, &find(&folder, &run)?),
        WorktreesCommand::Discard { run, yes } => discard(context, &find(&folder, &run)?, yes),
    }
}

fn find(folder: &WorktreeFolder, wanted: &str) -> Result<RunWorktree, CommandFailure> {
    let mut all = folder.list();
    if wanted == "last" {
        return all.pop().ok_or_else(|| none("there are no worktrees on this device"));
    }
    let is_wanted = |worktree: &RunWorktree| worktree.record().run.to_string().contains(wanted);
    all.retain(is_wanted);
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(none(&format!("no run `{wanted}` has a worktree on this device"))),
        count => {
            Err(CommandFailure::usage(format!("`{wanted}` is a part of {count} runs")).hint("Write more of the id."))
        }
    }
}

fn none(message: &str) -> CommandFailure {
    CommandFailure::new("not_found", exit::NOT_FOUND, message)
        .hint("List them on the agent's device: attache worktrees")
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
        context.output.say("No worktrees on this device. Start a run with one: attache ask AGENT \"…\" --worktree");
        return Ok(());
    }
    let mut table = TextTable::new(&["RUN", "CHANGES", "CREATED", "FOLDER"]);
    for (worktree, state) in &all {
        let record = worktree.record();
        table.row([
            TextCell::strong(record.run.to_string()),
            TextCell::plain(match state {
                Ok(state) => summary(state),
                Err(Error::Working(_)) => "working".to_owned(),
                Err(Error::Busy(_)) => "folder in use".to_owned(),
                Err(_) => "unknown".to_owned(),
            }),
            TextCell::plain(time::relative(record.created_at, context.now())),
            TextCell::plain(record.source.display().to_string()),
        ]);
    }
    context.output.table(&table)?;
    let days = KEPT_FOR.as_secs() / 86_400;
    context.output.say(format_args!(
        "After {days} days, a worktree's changes are committed to its branch and its files are removed."
    ));
    Ok(())
}

fn summary(state: &WorktreeState) -> String {
    let nested = if state.nested.is_empty() { "" } else { "; more in repositories or submodules" };
    let files = match state.changed.len() {
        0 if state.differs_on_branch.is_empty() => return format!("none{nested}"),
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let commits = if state.differs_on_branch.is_empty() { "" } else { "; the branch has more" };
    format!("{files}, {}{commits}{nested}", if state.is_uncommitted { "uncommitted" } else { "committed" })
}

fn diff(context: &CommandContext, worktree: &RunWorktree) -> Result<(), CommandFailure> {
    let diff = worktree.diff().map_err(|error| explain(&error, worktree))?;
    let text = String::from_utf8_lossy(&diff).into_owned();
    if context.output.is_json() {
        return context.output.json(&WorktreeOutcome { diff: Some(text), ..WorktreeOutcome::of(worktree) });
    }
    context.output.raw(&text)?;
    if text.is_empty() {
        context.output.say("Nothing was changed.");
    }
    if let Ok(state) = worktree.state() {
        if !state.differs_on_branch.is_empty() {
            let files: Vec<_> = state.differs_on_branch.iter().map(|file| clean::line(file).into_owned()).collect();
            context.output.say(format_args!(
                "The branch has commits with something else, which a merge would bring, in: {}. To see it: git diff {} {}",
                files.join(", "),
                worktree.record().base.get(..12).unwrap_or_default(),
                worktree.branch()
            ));
        }
        for nested in &state.nested {
            let nested = clean::line(nested);
            context.output.say(format_args!(
                "{nested} is a repository of its own, or a submodule. It isn't a part of the changes."
            ));
        }
    }
    Ok(())
}

fn commit(context: &CommandContext, worktree: &RunWorktree, message: Option<String>) -> Result<(), CommandFailure> {
    let message = message.unwrap_or_else(|| format!("Changes of {}", worktree.record().run));
    let commit = worktree.commit(&message, context.now()).map_err(|error| explain(&error, worktree))?;
    if context.output.is_json() {
        return context.output.json(&WorktreeOutcome { commit: Some(commit), ..WorktreeOutcome::of(worktree) });
    }
    let short = commit.get(..12).unwrap_or(&commit);
    context.output.say(format_args!("Committed {short}. Next: git merge {}", worktree.branch()));
    Ok(())
}

fn apply(context: &CommandContext, worktree: &RunWorktree) -> Result<(), CommandFailure> {
    let applied = worktree.apply(context.now()).map_err(|error| explain(&error, worktree))?;
    if context.output.is_json() {
        let applied = Some(applied.files);
        return context.output.json(&WorktreeOutcome { applied, ..WorktreeOutcome::of(worktree) });
    }
    for file in &applied.files {
        context.output.line(clean::line(file))?;
    }
    let (run, source) = (worktree.record().run, worktree.record().source.display());
    context.output.say(match applied.files.len() {
        0 => format!("{source} already has all changes. To remove the worktree: attache worktrees discard {run}"),
        count => format!("{count} applied to {source}. To remove the worktree: attache worktrees discard {run}"),
    });
    Ok(())
}

fn discard(context: &CommandContext, worktree: &RunWorktree, yes: bool) -> Result<(), CommandFailure> {
    let (run, branch) = (worktree.record().run, worktree.branch());
    if !yes {
        let changes = worktree.state().map_or_else(|_| "unknown".to_owned(), |state| summary(&state));
        let question = format!("Discard the worktree of {run} and the branch {branch}? Changes: {changes}.");
        if prompt::confirm(&context.output, &question)? == Some(false) {
            return Err(CommandFailure::new("cancelled", exit::FAILED, "nothing was discarded"));
        }
    }
    let has_repository = worktree.discard().map_err(|error| explain(&error, worktree))?;
    if context.output.is_json() {
        return context.output.json(&WorktreeOutcome { discarded: true, ..WorktreeOutcome::of(worktree) });
    }
    match has_repository {
        true => context.output.say(format_args!("Discarded the worktree and {branch}.")),
        false => context.output.say(format_args!(
            "Discarded the worktree. Its repository isn't at {} any more, so the branch {branch} may still be in it.",
            worktree.record().source.display()
        )),
    }
    Ok(())
}

fn explain(error: &Error, worktree: &RunWorktree) -> CommandFailure {
    let (run, source) = (worktree.record().run, worktree.record().source.display());
    match error {
        Error::Unchanged => CommandFailure::failed(error.to_string())
            .hint(format!("See what it changed in all: attache worktrees diff {run}")),
        Error::Conflicts(files) => {
            let files: Vec<_> = files.iter().map(|file| clean::line(file).into_owned()).collect();
            let message =
                format!("these files were changed in {source}, too: {}; nothing was applied", files.join(", "));
            CommandFailure::new("conflict", exit::FAILED, message).hint(format!(
                "Commit them to the branch and merge it with git: attache worktrees commit {run}, then git merge {}",
                worktree.branch()
            ))
        }
        Error::Working(_) => CommandFailure::new("working", exit::FAILED, error.to_string())
            .hint(format!("Follow it: attache runs show {run}. Cancel it: attache runs cancel {run}")),
        _ => CommandFailure::failed(clean::lines(&error.to_string()).into_owned())
            .hint(format!("Its files: attache worktrees path {run}")),
    }
}

// === impl WorktreeOutcome ===

impl WorktreeOutcome {
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
