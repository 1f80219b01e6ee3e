//! `attache backup`: writes all data of a hub to one archive, even while the hub runs.

mod tar;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use attache_os::private_file;
use attache_protocol::{env::Env, error::exit};
use attache_store::sql::{DatabaseAddress, SqlStore};
use serde::Serialize;

use crate::{
    env::{
        context::CommandContext,
        home::{DATABASE, MOVED_DATABASE},
    },
    server::shared_database::{self, DatabaseArgs, DatabaseServer},
    ui::{failure::CommandFailure, output::TextStyle, signals::TerminationSignals},
};

/// Back up a hub's data to one file, even while it runs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache backup hub-2026-11-16.tar
  attache backup /mnt/backup/hub.tar --data /srv/attache
  attache backup hub.tar --database-url postgres://…     of a hub on PostgreSQL

The file is a tar archive with a consistent snapshot of the database, the artifacts and the keys. It contains secrets:
protect it like the data folder. To restore it: mkdir -m 700 DIR && tar -xpf FILE -C DIR && attache hub --data DIR. See docs/backup.md.")]
pub(crate) struct Args {
    /// Archive to write; it must not exist yet
    file: PathBuf,
    /// The hub's data folder [default: $A2A_HOME/hub]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Debug, Serialize)]
struct BackupSummary {
    file: PathBuf,
    bytes: u64,
    files: u64,
}

/// A private folder beside the archive, with everything that isn't finished yet. Removed with its contents.
struct BackupFolder(PathBuf);

/// Beginning of the names of folders and files that belong to a process.
const PROCESS_PREFIX: &str = ".attache-";
/// How often to try to remove the folder of an interrupted backup that is still being written.
const REMOVAL_ATTEMPTS: usize = 10;

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let data = match args.data {
        Some(data) => data,
        None => context.home()?.hub(),
    };
    let file = std::path::absolute(&args.file).map_err(|error| CommandFailure::file("use", &args.file, &error))?;
    let server = args.database.server(&context)?;
    check(&data, server.as_ref(), &file)?;
    let database = match server {
        Some(server) => server.address()?,
        None => DatabaseAddress::File(data.join(DATABASE)),
    };
    let mut signals = TerminationSignals::new()?;
    let folder = BackupFolder::beside(&file, &context.env).map_err(|error| unwritable(&file, &error))?;
    let path = folder.0.clone();
    let working = tokio::task::spawn_blocking(move || back_up(database, &data, &file, &path));
    let made = tokio::select! {
        made = working => {
            made.map_err(|error| CommandFailure::failed(format!("the backup was interrupted: {error}")))??
        }
        () = signals.next() => {
            return Err(CommandFailure::new("interrupted", exit::FAILED, "the backup was interrupted")
                .hint("Run the command again."));
        }
    };
    drop(folder);
    if context.output.is_json() {
        return context.output.json(&made);
    }
    let BackupSummary { file, bytes, files } = made;
    context.output.line(file.display())?;
    context.output.say_styled(
        TextStyle::Dim,
        format_args!("{files} files, {bytes} bytes. The archive contains the hub's keys: protect it like the hub."),
    );
    Ok(())
}

/// Fails early, before anything is copied.
fn check(data: &Path, server: Option<&DatabaseServer>, file: &Path) -> Result<(), CommandFailure> {
    // With its database on a server, the folder still has the keys.
    let has_hub = match server {
        Some(_) => data.is_dir(),
        None => fs::metadata(data.join(DATABASE)).is_ok_and(|metadata| metadata.len() > 0),
    };
    if !has_hub && data.join(MOVED_DATABASE).exists() {
        let moved = format!("the database of the hub in {} was moved to PostgreSQL", data.display());
        return Err(CommandFailure::failed(moved).hint("Set ATTACHE_DATABASE_URL, or pass --database-url."));
    }
    if !has_hub {
        return Err(CommandFailure::new("not_found", exit::NOT_FOUND, format!("no hub found in {}", data.display()))
            .hint(
                "Pass the hub's data folder: --data DIR. If its database is on PostgreSQL, also pass --database-url.",
            ));
    }
    match fs::symlink_metadata(file) {
        Ok(_) => Err(unwritable(file, &io::ErrorKind::AlreadyExists.into())),
        Err(_) => Ok(()),
    }
}

/// Writes the archive in the private folder and moves it to its place when it is complete.
fn back_up(
    database: DatabaseAddress,
    data: &Path,
    file: &Path,
    folder: &Path,
) -> Result<BackupSummary, CommandFailure> {
    let failed = |error: io::Error| unwritable(file, &error);
    let (copy, draft) = (folder.join(DATABASE), folder.join("archive.tar"));
    let named = match &database {
        DatabaseAddress::File(path) => Some(path.display().to_string()),
        DatabaseAddress::Server { .. } => None,
    };
    SqlStore::backup(database, &copy).map_err(|error| match named {
        Some(path) => CommandFailure::failed(format!("can't copy {path}: {error}"))
            .hint("Check the free disk space and the hub's health: attache doctor"),
        None => shared_database::refusal(&error),
    })?;
    let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
    let mut out = BufWriter::new(out);
    let mut files = 0;
    add(&mut out, &copy, DATABASE, 0o600).map_err(failed)?;
    files += 1;
    // After the database, so that every file it refers to exists by now.
    add_folder(&mut out, data, Path::new(""), &mut files)?;
    out.write_all(&tar::END).map_err(failed)?;
    let out = out.into_inner().map_err(|error| failed(error.into_error()))?;
    out.sync_all().map_err(failed)?;
    let bytes = out.metadata().map_err(failed)?.len();
    private_file::move_new(&draft, file).map_err(failed)?;
    // Not every file system can flush a folder.
    let _ = File::open(parent(file)).and_then(|parent| parent.sync_all());
    Ok(BackupSummary { file: file.to_owned(), bytes, files })
}

/// Why the archive can't be written.
fn unwritable(file: &Path, error: &io::Error) -> CommandFailure {
    match error.kind() {
        io::ErrorKind::AlreadyExists => CommandFailure::failed(format!("{} already exists", file.display()))
            .hint("Nothing was changed. Choose another file name, or remove the file first."),
        _ => CommandFailure::file("write", file, error),
    }
}

/// Adds a folder of the hub recursively, except files that belong to the running process.
fn add_folder(out: &mut impl io::Write, data: &Path, below: &Path, files: &mut u64) -> Result<(), CommandFailure> {
    let folder = data.join(below);
    let failed = |error: io::Error| CommandFailure::file("read", &folder, &error);
    let mut entries = fs::read_dir(&folder).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = below.join(entry.file_name());
        if is_of_process(&path) {
            continue;
        }
        let mut metadata = entry.metadata().map_err(failed)?;
        if metadata.is_symlink() {
            // Two hubs share `blobs` that way. Deeper down, nothing of ours is a link.
            if below != Path::new("") {
                return Err(CommandFailure::failed(format!("{} is a link", entry.path().display()))
                    .hint("Replace the link with what it points to, so that the backup includes it."));
            }
            metadata =
                fs::metadata(entry.path()).map_err(|error| CommandFailure::file("read", &entry.path(), &error))?;
        }
        let mode = metadata.permissions().mode();
        if metadata.is_dir() {
            let header = tar::folder(&path.to_string_lossy(), mode);
            out.write_all(&header).map_err(|error| CommandFailure::file("write", &path, &error))?;
            add_folder(out, data, &path, files)?;
        } else if metadata.is_file() {
            match add(out, &entry.path(), &path.to_string_lossy(), mode) {
                Ok(()) => *files += 1,
                // Retention may have removed it in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(CommandFailure::file("copy", &entry.path(), &error)),
            }
        }
    }
    Ok(())
}

/// Whether to leave a file out: the database is already copied; locks, addresses and partial uploads are useless in a
/// backup.
fn is_of_process(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    text.starts_with(DATABASE)
        || name.starts_with(PROCESS_PREFIX)
        || matches!(&*text, "hub.lock" | "address" | "blobs/incoming")
}

fn add(out: &mut impl io::Write, from: &Path, name: &str, mode: u32) -> io::Result<()> {
    let file = File::open(from)?;
    let metadata = file.metadata()?;
    let size = metadata.len();
    out.write_all(&tar::file(name, mode, size, metadata.mtime()))?;
    // Write exactly the size in the header, even if the file changes in the meantime.
    let copied = io::copy(&mut file.take(size), out)?;
    io::copy(&mut io::repeat(0).take(size - copied + tar::padding(size)), out)?;
    Ok(())
}

/// The folder of an absolute path.
fn parent(file: &Path) -> &Path {
    file.parent().unwrap_or(file)
}

// === impl BackupFolder ===

impl BackupFolder {
    /// Beside the archive: a disk with space for the backup has space for the copy, and the archive only has to be
    /// renamed. The database's copy and its journal are as secret as the hub, so nobody else can open the folder or
    /// guess its name.
    fn beside(file: &Path, env: &Env) -> io::Result<Self> {
        let parent = parent(file);
        // Creating the private folder would create a missing parent too.
        fs::metadata(parent)?;
        let folder = Self(parent.join(format!("{PROCESS_PREFIX}backup-{}", env.uuid().simple())));
        private_file::folder(&folder.0)?;
        Ok(folder)
    }
}

impl Drop for BackupFolder {
    fn drop(&mut self) {
        // After an interruption, a file may be created while the folder is being removed.
        for _ in 0..REMOVAL_ATTEMPTS {
            match fs::remove_dir_all(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Ok(()) | Err(_) => return,
            }
        }
    }
}
