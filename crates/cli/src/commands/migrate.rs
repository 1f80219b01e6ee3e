//! `attache migrate`: copies a hub's database from its file to PostgreSQL, or back.

use std::{
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
};

use attache_protocol::{Secret, error::exit};
use attache_store::sql::{DatabaseAddress, MigrationSummary, SqlStore};
use serde::Serialize;

use crate::{
    env::{
        context::CommandContext,
        home::{self, DATABASE, MOVED_DATABASE},
    },
    server::shared_database::{self, DatabaseServer},
    ui::{failure::CommandFailure, output::TextStyle, progress_line::ProgressLine, signals::TerminationSignals},
};

/// Copy a hub's database to PostgreSQL, or back to a file
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache migrate --to postgres://attache@db.example.org/attache       from $A2A_HOME/hub
  attache migrate --from /srv/attache --to postgres://…
  attache migrate --from postgres://… --to /srv/attache

Stop the hub first. Everything is copied and verified: the rows of each table, and the hash chain of the log. The target must
be empty, and a copy that fails leaves nothing behind. The original keeps its rows, but no hub or backup will use it by
mistake: a file is renamed to hub.db.moved, and a database on a server is marked as moved. Artifacts and keys stay in the
data folder, which the hub still needs. If a URL contains a password, set ATTACHE_DATABASE_URL and leave out that side. See
docs/postgres.md.")]
pub(crate) struct Args {
    /// Where the database is: a data folder, or a URL [default: $A2A_HOME/hub if --to is a URL, otherwise $ATTACHE_DATABASE_URL]
    #[arg(long, value_name = "DIR|URL", value_parser = DatabaseSide::parse)]
    from: Option<DatabaseSide>,
    /// Where to copy it: a data folder, or a URL [default: $A2A_HOME/hub if --from is a URL, otherwise $ATTACHE_DATABASE_URL]
    #[arg(long, value_name = "DIR|URL", value_parser = DatabaseSide::parse)]
    to: Option<DatabaseSide>,
    /// Certificates (PEM) to trust for the database server, besides those of this machine
    #[arg(long, value_name = "FILE")]
    database_ca: Option<PathBuf>,
}

const DATA_FOLDER_HINT: &str = "Pass the data folder of the hub, which has its keys. If several hubs serve the database, each has them in its own.";

#[derive(Debug, Clone, PartialEq, Eq)]
enum DatabaseSide {
    Folder(PathBuf),
    Server(Secret<String>),
}

#[derive(Debug, Serialize)]
struct MigrationReport {
    tables: usize,
    rows: u64,
    log_rows: u64,
    /// Where the file that was copied is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<PathBuf>,
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let (from, to) = sides(&context, args.from, args.to)?;
    let (source, target) = (address(&from, args.database_ca.clone())?, address(&to, args.database_ca)?);
    if let DatabaseSide::Folder(folder) = &from {
        refuse_moved(folder)?;
    }
    if let DatabaseSide::Folder(folder) = &to {
        if !folder.is_dir() {
            let missing = format!("{} isn't a folder", folder.display());
            return Err(CommandFailure::new("not_found", exit::NOT_FOUND, missing).hint(DATA_FOLDER_HINT));
        }
        if !attache_hub::has_keys(folder) {
            let other = format!("{} doesn't have the keys of a hub", folder.display());
            return Err(CommandFailure::new("not_found", exit::NOT_FOUND, other).hint(DATA_FOLDER_HINT));
        }
        // As a hub would: nothing else uses the database meanwhile.
        home::private_folder(folder).map_err(|error| CommandFailure::file("use the folder", folder, &error))?;
    }
    let mut signals = TerminationSignals::new()?;
    let output = context.output;
    let working = tokio::task::spawn_blocking(move || {
        let mut line = ProgressLine::new(&output, "Copying rows:");
        SqlStore::migrate(source, target, &mut |progress| line.draw(progress.copied, progress.total))
    });
    let MigrationSummary { tables, rows, log_rows } = tokio::select! {
        done = working => done
            .map_err(|error| CommandFailure::failed(format!("the migration was interrupted: {error}")))?
            .map_err(|error| shared_database::refusal(&error))?,
        () = signals.next() => {
            return Err(CommandFailure::new("interrupted", exit::FAILED, "the migration was interrupted")
                .hint("Nothing was changed. Run the command again."));
        }
    };
    let kept = match &from {
        DatabaseSide::Folder(folder) => Some(set_aside(folder)?),
        DatabaseSide::Server(_) => None,
    };
    if output.is_json() {
        return output.json(&MigrationReport { tables, rows, log_rows, kept });
    }
    output.line(format_args!("Copied {rows} rows of {tables} tables, and verified the log's {log_rows} rows."))?;
    for line in next_steps(&from, &to, kept.as_deref()) {
        output.say_styled(TextStyle::Dim, line);
    }
    Ok(())
}

/// Which side is what. The side that is left out is the data folder, or the URL in the environment.
fn sides(
    context: &CommandContext,
    from: Option<DatabaseSide>,
    to: Option<DatabaseSide>,
) -> Result<(DatabaseSide, DatabaseSide), CommandFailure> {
    let other = |given: &DatabaseSide| match (given, &context.config.database_url) {
        (DatabaseSide::Server(_), _) => Ok(DatabaseSide::Folder(context.home()?.hub())),
        (DatabaseSide::Folder(_), Some(url)) => Ok(DatabaseSide::Server(url.clone())),
        (DatabaseSide::Folder(_), None) => Err(CommandFailure::usage("only one side of the migration was given")
            .hint("Also pass the other side's postgres:// URL, or set ATTACHE_DATABASE_URL.")),
    };
    match (from, to) {
        (Some(from), Some(to)) => Ok((from, to)),
        (Some(from), None) => other(&from).map(|to| (from, to)),
        (None, Some(to)) => other(&to).map(|from| (from, to)),
        (None, None) => Err(CommandFailure::usage("no source or target given")
            .hint("Pass --from or --to: a data folder, or a postgres:// URL.")),
    }
}

fn address(side: &DatabaseSide, ca: Option<PathBuf>) -> Result<DatabaseAddress, CommandFailure> {
    match side {
        DatabaseSide::Folder(folder) => Ok(DatabaseAddress::File(folder.join(DATABASE))),
        DatabaseSide::Server(url) => DatabaseServer { url: url.clone(), ca }.address(),
    }
}

/// Renames the copied database. Otherwise, a hub or backup that doesn't know of the server would silently use it.
fn set_aside(folder: &Path) -> Result<PathBuf, CommandFailure> {
    let free = (1..).map(|number| match number {
        1 => folder.join(MOVED_DATABASE),
        number => folder.join(format!("{MOVED_DATABASE}.{number}")),
    });
    let kept = free.into_iter().find(|path| fs::symlink_metadata(path).is_err()).expect("numbers don't end");
    fs::rename(folder.join(DATABASE), &kept).map_err(|error| CommandFailure::file("rename", &kept, &error))?;
    Ok(kept)
}

/// Says so if the database was moved from here already.
fn refuse_moved(folder: &Path) -> Result<(), CommandFailure> {
    let (database, moved) = (folder.join(DATABASE), folder.join(MOVED_DATABASE));
    if database.exists() || !moved.exists() {
        return Ok(());
    }
    let message = format!("the database in {} was already moved to PostgreSQL", folder.display());
    let hint = format!(
        "The file that was copied is kept as {}. To copy it again, rename it to {DATABASE} first.",
        moved.display()
    );
    Err(CommandFailure::failed(message).hint(hint))
}

fn next_steps(from: &DatabaseSide, to: &DatabaseSide, kept: Option<&Path>) -> Vec<String> {
    match (from, to) {
        (DatabaseSide::Folder(folder), _) => {
            let mut steps = vec![format!(
                "Start the hub on it, with its other options as before: attache hub --data {} --database-url …",
                folder.display()
            )];
            steps.extend(kept.map(|kept| {
                format!("The file is unchanged and is now called {}. Keep it as a backup.", kept.display())
            }));
            steps
        }
        (_, DatabaseSide::Folder(folder)) => {
            vec![
                format!(
                    "Start the hub on it, with its other options (such as --artifacts) as before, but without --database-url and --cluster-key-file: attache hub --data {}",
                    folder.display()
                ),
                "The database on the server is marked as moved, so no hub will start on it.".to_owned(),
            ]
        }
        (DatabaseSide::Server(_), DatabaseSide::Server(_)) => Vec::new(),
    }
}

// === impl DatabaseSide ===

impl DatabaseSide {
    #[allow(clippy::unnecessary_wraps, reason = "the signature of a value parser")]
    fn parse(text: &str) -> Result<Self, Infallible> {
        // Other URLs are refused when they are used, with the form of ours.
        Ok(if text.contains("://") { Self::Server(Secret::new(text.to_owned())) } else { Self::Folder(text.into()) })
    }
}
