//! `attache backup`: everything that a hub keeps, as one file, while it runs.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use attache_store::sqlite::SqliteStore;
use serde::Serialize;

use crate::{CommandContext, CommandFailure, output::TextStyle, tar};

/// Back up a hub's data to one file, even while it runs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache backup hub-2026-11-16.tar
  attache backup /mnt/backup/hub.tar --data /srv/attache

The file is a tar archive with the database as of one moment, the artifacts and the keys: keep it as safe as the folder.
To restore it: mkdir -m 700 DIR && tar -xpf FILE -C DIR && attache hub --data DIR. See docs/backup.md.")]
pub(crate) struct Args {
    /// The file to write; it must not exist
    file: PathBuf,
    /// The hub's folder [default: $A2A_HOME/hub]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct BackupSummary {
    file: PathBuf,
    bytes: u64,
    files: u64,
}

/// A file that is removed unless the backup succeeds.
struct UnfinishedBackup(PathBuf);

const DATABASE: &str = "hub.db";

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let data = match args.data {
        Some(data) => data,
        None => context.home()?.hub(),
    };
    let file = std::path::absolute(&args.file).map_err(|error| CommandFailure::file("use", &args.file, &error))?;
    let made = tokio::task::spawn_blocking(move || back_up(&data, &file)).await;
    let made = made.map_err(|error| CommandFailure::failed(format!("the backup was cut off: {error}")))??;
    if context.output.is_json() {
        return context.output.json(&made);
    }
    let BackupSummary { file, bytes, files } = made;
    context.output.line(file.display())?;
    context.output.say_styled(
        TextStyle::Dim,
        format_args!("{files} files, {bytes} bytes. It holds the hub's keys: keep it as safe as the hub."),
    );
    Ok(())
}

fn back_up(data: &Path, file: &Path) -> Result<BackupSummary, CommandFailure> {
    let database = data.join(DATABASE);
    if fs::metadata(&database).map_or(true, |metadata| metadata.len() == 0) {
        return Err(CommandFailure::new(
            "not_found",
            attache_protocol::error::exit::NOT_FOUND,
            format!("there is no hub in {}", data.display()),
        )
        .hint("Name its folder: --data DIR."));
    }
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => CommandFailure::failed(format!("{} is there already", file.display()))
            .hint("Nothing was changed. Name another file, or remove this one first."),
        _ => CommandFailure::file("write", file, &error),
    };
    let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
    let archive = UnfinishedBackup(file.to_owned());
    // Beside the archive: there is room for it, if there is room for a backup.
    let copy = UnfinishedBackup(copy_beside(file));
    SqliteStore::backup(&database, &copy.0).map_err(|error| {
        CommandFailure::failed(format!("cannot copy {}: {error}", database.display()))
            .hint("Check the room on the disk, and whether the hub runs well: attache doctor")
    })?;
    let mut out = BufWriter::new(out);
    let mut files = 0;
    add(&mut out, &copy.0, DATABASE, 0o600).map_err(failed)?;
    files += 1;
    // After the database: whatever it names is there by now.
    add_folder(&mut out, data, Path::new(""), &mut files)?;
    out.write_all(&tar::END).map_err(failed)?;
    let out = out.into_inner().map_err(|error| failed(error.into_error()))?;
    out.sync_all().map_err(failed)?;
    let bytes = out.metadata().map_err(failed)?.len();
    archive.commit();
    Ok(BackupSummary { file: file.to_owned(), bytes, files })
}

/// Everything below a folder of the hub that is not of the running process.
fn add_folder(out: &mut impl io::Write, data: &Path, below: &Path, files: &mut u64) -> Result<(), CommandFailure> {
    let folder = data.join(below);
    let failed = |error: io::Error| CommandFailure::file("read", &folder, &error);
    let mut entries = fs::read_dir(&folder).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = below.join(entry.file_name());
        let kind = entry.file_type().map_err(failed)?;
        if is_of_process(&path) {
            continue;
        }
        if kind.is_dir() {
            let mode = entry.metadata().map_err(failed)?.permissions().mode();
            let header = tar::folder(&path.to_string_lossy(), mode);
            out.write_all(&header).map_err(|error| CommandFailure::file("write", &path, &error))?;
            add_folder(out, data, &path, files)?;
        } else if kind.is_file() {
            let mode = entry.metadata().map_err(failed)?.permissions().mode();
            match add(out, &entry.path(), &path.to_string_lossy(), mode) {
                Ok(()) => *files += 1,
                // Retention may have removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(CommandFailure::file("copy", &entry.path(), &error)),
            }
        }
    }
    Ok(())
}

/// The database was copied already; locks, addresses and half uploads mean nothing elsewhere.
fn is_of_process(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.starts_with(DATABASE)
        || text.starts_with(".attache-")
        || matches!(&*text, "hub.lock" | "address" | "blobs/incoming")
}

fn add(out: &mut impl io::Write, from: &Path, name: &str, mode: u32) -> io::Result<()> {
    let file = File::open(from)?;
    let metadata = file.metadata()?;
    let size = metadata.len();
    out.write_all(&tar::file(name, mode, size, metadata.mtime()))?;
    // As long as its header says, whatever happens to it meanwhile.
    let copied = io::copy(&mut file.take(size), out)?;
    io::copy(&mut io::repeat(0).take(size - copied + tar::padding(size)), out)?;
    Ok(())
}

fn copy_beside(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.db", std::process::id()));
    file.with_file_name(name)
}

// === impl UnfinishedBackup ===

impl UnfinishedBackup {
    fn commit(self) {
        std::mem::forget(self);
    }
}

impl Drop for UnfinishedBackup {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
