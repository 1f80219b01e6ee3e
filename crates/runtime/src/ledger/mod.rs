//! The execution ledger: one JSON line per step of every run, on disk before it is reported to the hub.
//!
//! The hub's runs are the only source of truth. The ledger is what this device remembers, and where an outcome waits
//! while the hub is away.

mod entry;
mod history;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use attache_os::{file_space::reserve, path_error::private_folder};
use attache_protocol::AgentId;

pub use entry::{ExecutionOutcome, LedgerEntry, LedgerStep};
pub use history::{LedgerHistory, OpenClaim};

use crate::Error;

/// The ledger of one agent. Clones write to the same file.
#[derive(Debug, Clone)]
pub struct ExecutionLedger(Arc<Mutex<LedgerFile>>);

#[derive(Debug)]
struct LedgerFile {
    path: PathBuf,
    file: File,
    size: u64,
    /// The file is rotated when it exceeds this size.
    limit: u64,
    /// There may be a partial line after `size`.
    torn: bool,
}

const MAX_LEDGER: u64 = 8 << 20;
/// Free space that is required beyond the lines that start a task, so that its end can be written too.
const ROTATION_RESERVE: u64 = 16 << 10;
const LEDGER_FILE: &str = "execution-ledger.jsonl";

// === impl ExecutionLedger ===

impl ExecutionLedger {
    /// Opens the ledger of an agent below a home folder, and reads it.
    pub fn open(home: &Path, agent: AgentId) -> Result<(Self, LedgerHistory), Error> {
        Self::open_limited(home, agent, MAX_LEDGER)
    }

    fn open_limited(home: &Path, agent: AgentId, limit: u64) -> Result<(Self, LedgerHistory), Error> {
        let folder = make_folder(home, agent)?;
        let path = folder.join(LEDGER_FILE);
        let next = next(&path);
        // An older version rotated with two renames and may have been interrupted in between.
        if !path.exists() && next.exists() {
            fs::rename(&next, &path).map_err(Error::io(&path))?;
        }
        let (file, text) = open(&path).map_err(Error::io(&path))?;
        sync_folder(&folder).map_err(Error::io(&folder))?;
        let mut inner = LedgerFile { size: text.len() as u64, path, file, limit, torn: false };
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            // The last line is torn: the next one must not be appended to it.
            inner.size = whole as u64;
            inner.cut().map_err(Error::io(&inner.path))?;
        }
        Ok((Self(Arc::new(Mutex::new(inner))), LedgerHistory::read(&text)))
    }

    /// Reads the file without opening it for writing.
    pub fn read(home: &Path, agent: AgentId) -> Result<Vec<LedgerEntry>, Error> {
        let path = folder(home, agent).join(LEDGER_FILE);
        match fs::read(&path) {
            Ok(text) => Ok(entry::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Error::io(path)(error)),
        }
    }

    pub fn path(home: &Path, agent: AgentId) -> PathBuf {
        folder(home, agent).join(LEDGER_FILE)
    }

    /// The current summary of the file. An unreadable file is empty and not intact.
    pub(crate) async fn history(&self) -> LedgerHistory {
        let inner = self.0.clone();
        let read = tokio::task::spawn_blocking(move || {
            let inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
            fs::read(&inner.path).map(|text| LedgerHistory::read(&text)).unwrap_or_default()
        });
        read.await.unwrap_or_default()
    }

    /// Appends an entry. When this returns, it survives a power loss.
    pub async fn append(&self, line: &LedgerEntry) -> Result<(), Error> {
        self.write(line.text(), 0).await
    }

    /// Appends the entries that start a task, with a single sync, if the disk has room for more: the last block of a
    /// file may accept some bytes even on a full disk. Without entries, it writes an empty line, which tells whether a
    /// task can start.
    pub async fn begin(&self, lines: &[LedgerEntry]) -> Result<(), Error> {
        let text = if lines.is_empty() { "\n".to_owned() } else { lines.iter().map(LedgerEntry::text).collect() };
        self.write(text, ROTATION_RESERVE).await
    }

    async fn write(&self, text: String, room: u64) -> Result<(), Error> {
        let inner = self.0.clone();
        let written = tokio::task::spawn_blocking(move || {
            inner.lock().unwrap_or_else(PoisonError::into_inner).append(text.as_bytes(), room)
        });
        written.await.unwrap_or_else(|_| Err(Error::io(LEDGER_FILE)(io::Error::other("the writer stopped"))))
    }
}

// === impl LedgerFile ===

impl LedgerFile {
    fn append(&mut self, text: &[u8], room: u64) -> Result<(), Error> {
        if self.size > self.limit {
            self.rotate().map_err(Error::io(&self.path))?;
        }
        self.write(text, room).map_err(Error::io(&self.path))
    }

    /// Writes everything or, as far as possible, nothing: a partial line would spoil the next one.
    fn write(&mut self, text: &[u8], room: u64) -> io::Result<()> {
        if self.torn {
            self.cut()?;
        }
        if room > 0 {
            reserve(&self.file, self.size, text.len() as u64 + room)?;
        }
        self.torn = true;
        let written = self.file.write_all(text).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => {
                self.size += text.len() as u64;
                self.torn = false;
                Ok(())
            }
            Err(error) => {
                let _ = self.cut();
                Err(error)
            }
        }
    }

    /// Removes what a failed write may have left after the last complete line.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.size)?;
        self.torn = false;
        Ok(())
    }

    /// Starts a new file with only the unsettled entries. The old file is kept as `….1.jsonl`.
    fn rotate(&mut self) -> io::Result<()> {
        let carried = LedgerHistory::read(&fs::read(&self.path)?).unsettled_lines();
        let next = next(&self.path);
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&next)?;
        file.set_len(0)?;
        file.write_all(carried.as_bytes())?;
        file.sync_all()?;
        // The old lines are for people. Unsettled entries are in both files, and one of them always has the name.
        let old = self.path.with_extension("1.jsonl");
        if let Err(error) = keep(&self.path, &old) {
            tracing::warn!(path = %old.display(), %error, "failed to keep the old lines of the ledger");
        }
        fs::rename(&next, &self.path)?;
        if let Some(folder) = self.path.parent() {
            sync_folder(folder)?;
        }
        self.file = file;
        self.size = carried.len() as u64;
        // Many unsettled entries must not make every line rotate again.
        self.limit = self.limit.max(self.size * 2);
        Ok(())
    }
}

/// Gives a file a second name, replacing what had it.
fn keep(path: &Path, name: &Path) -> io::Result<()> {
    match fs::remove_file(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::hard_link(path, name)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn folder(home: &Path, agent: AgentId) -> PathBuf {
    home.join("logs").join(agent.to_string())
}

/// The private folder of an agent's ledger and lock.
pub(crate) fn make_folder(home: &Path, agent: AgentId) -> Result<PathBuf, Error> {
    let folder = folder(home, agent);
    private_folder(home)?;
    private_folder(&home.join("logs"))?;
    private_folder(&folder)?;
    Ok(folder)
}

fn next(path: &Path) -> PathBuf {
    path.with_extension("next.jsonl")
}

fn open(path: &Path) -> io::Result<(File, Vec<u8>)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut text = Vec::new();
    file.seek(io::SeekFrom::Start(0))?;
    file.read_to_end(&mut text)?;
    Ok((file, text))
}

#[cfg(test)]
mod tests;
