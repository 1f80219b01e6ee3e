//! Attachments of a task: the files, data and links among the parts of its message (`input.message.parts`, as in A2A
//! 1.0).
//!
//! A host receives the content types it supports natively. Everything else is written to a file in the run's folder,
//! kept until the run ends and listed in the prompt, so nothing a caller sends is dropped silently.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use attache_protocol::{
    Json,
    wire::{
        adapter::{ATTACHMENT_FOLDER, TaskFile, TaskReply},
        awcp, base64,
        part::{Part, PartContent},
    },
};
use serde::Deserialize;

use crate::DriverRun;

/// Files up to this size are read into memory, so a host that supports their type can receive them inline.
const IN_MEMORY: u64 = 4 << 20;

/// One attachment of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    /// A plain file name, unique among the attachments of the task.
    pub(crate) name: String,
    pub(crate) media_type: String,
    pub(crate) body: AttachmentBody,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttachmentBody {
    Bytes(Vec<u8>),
    /// Too large for memory: a file the runtime fetched.
    File(PathBuf),
    /// Links chosen by a caller are never opened here. The host only gets the URL.
    Link(String),
}

/// Attachment files placed in the run's folder. Dropping this removes them.
#[derive(Debug, Default)]
pub(crate) struct PlacedFiles {
    folder: Option<PathBuf>,
    /// Relative to the run's folder.
    pub(crate) files: Vec<PlacedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedFile {
    pub(crate) path: PathBuf,
    pub(crate) media_type: String,
}

#[derive(Deserialize)]
struct AttachmentInput {
    message: Option<AttachmentMessage>,
    parts: Option<Vec<Json>>,
}

#[derive(Deserialize)]
struct AttachmentMessage {
    #[serde(default)]
    parts: Vec<Json>,
}

/// All parts of the task's message that aren't text.
pub(crate) fn of(job: &DriverRun) -> Result<Vec<Attachment>, TaskReply> {
    let Ok(AttachmentInput { message, parts }) = job.task.input.parse::<AttachmentInput>() else {
        return Ok(Vec::new());
    };
    let parts = message.map(|message| message.parts).or(parts).unwrap_or_default();
    read(&parts, &job.task.files).map_err(|message| TaskReply::failed("rejected", message))
}

fn read(parts: &[Json], files: &[TaskFile]) -> Result<Vec<Attachment>, String> {
    let mut attachments: Vec<Attachment> = Vec::new();
    for (index, json) in parts.iter().enumerate() {
        let number = index + 1;
        let part: Part = json.parse().map_err(|error| format!("part {number} of the task cannot be read: {error}"))?;
        let (body, usual, extension) = match part.content {
            PartContent::Text(_) => continue,
            PartContent::Raw(text) => {
                let bytes = base64::decode(&text).ok_or_else(|| format!("part {number} of the task is no base64"))?;
                (AttachmentBody::Bytes(bytes), "application/octet-stream", "bin")
            }
            PartContent::Data(json) => {
                (AttachmentBody::Bytes(json.get().as_bytes().to_vec()), "application/json", "json")
            }
            PartContent::Url(url) => match files.iter().find(|file| file.url == url) {
                Some(file) => (fetched(Path::new(&file.path))?, "application/octet-stream", "bin"),
                None => (AttachmentBody::Link(url), "application/octet-stream", "url"),
            },
        };
        let media_type = part.media_type.filter(|kind| !kind.trim().is_empty()).unwrap_or_else(|| usual.to_owned());
        let wanted = part.filename.as_deref().and_then(plain).unwrap_or_else(|| format!("part-{number}.{extension}"));
        let is_taken = attachments.iter().any(|other| other.name == wanted);
        let name = if is_taken { format!("{number}-{wanted}") } else { wanted };
        attachments.push(Attachment { name, media_type, body });
    }
    Ok(attachments)
}

/// Small files are read into memory, like inline content.
fn fetched(path: &Path) -> Result<AttachmentBody, String> {
    let failed = |error: io::Error| format!("a file that came with the task cannot be read: {error}");
    if fs::metadata(path).map_err(failed)?.len() <= IN_MEMORY {
        return fs::read(path).map(AttachmentBody::Bytes).map_err(failed);
    }
    Ok(AttachmentBody::File(path.to_owned()))
}

/// The last component of a path, if it is a safe plain file name.
fn plain(name: &str) -> Option<String> {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default().trim();
    let name: String = name.chars().filter(|letter| !letter.is_control()).take(120).collect();
    (!name.is_empty() && !name.starts_with('.')).then_some(name)
}

/// A task, ready to hand to a host.
#[derive(Debug)]
pub(crate) struct PreparedTask {
    /// Ends with a list of the placed files and links, if there are any.
    pub(crate) task: String,
    /// Attachments the host takes inline.
    pub(crate) native: Vec<Attachment>,
    /// Kept until the run ends.
    pub(crate) placed: PlacedFiles,
}

/// Splits the attachments into those the host takes inline and those placed as files.
pub(crate) fn prepare(
    job: &DriverRun,
    task: &str,
    attached: Vec<Attachment>,
    takes: impl Fn(&Attachment) -> bool,
) -> Result<PreparedTask, TaskReply> {
    let (native, rest): (Vec<Attachment>, Vec<Attachment>) =
        attached.into_iter().partition(|one| one.bytes().is_some() && takes(one));
    let rest: Vec<&Attachment> = rest.iter().collect();
    let placed = PlacedFiles::place(job, &rest)?;
    let links: Vec<&Attachment> = rest.iter().copied().filter(|one| one.is_link()).collect();
    Ok(PreparedTask { task: describe_attachments(task, &placed, &links), native, placed })
}

/// For a program that only reads files: links become files that contain the URL.
pub(crate) fn as_files(job: &DriverRun) -> Result<PlacedFiles, TaskReply> {
    let mut attached = of(job)?;
    for one in &mut attached {
        if let AttachmentBody::Link(url) = &one.body {
            one.body = AttachmentBody::Bytes(format!("{url}\n").into_bytes());
        }
    }
    PlacedFiles::place(job, &attached.iter().collect::<Vec<_>>())
}

/// The task text, followed by a list of its attachments.
fn describe_attachments(task: &str, placed: &PlacedFiles, links: &[&Attachment]) -> String {
    if placed.files.is_empty() && links.is_empty() {
        return task.to_owned();
    }
    let files = placed.files.iter().map(|file| format!("- {} ({})", file.path.display(), file.media_type));
    let links = links.iter().filter_map(|link| match &link.body {
        AttachmentBody::Link(url) => Some(format!("- {url} ({})", link.media_type)),
        AttachmentBody::Bytes(_) | AttachmentBody::File(_) => None,
    });
    let list: Vec<String> = files.chain(links).collect();
    format!("{task}\n\nThese came with the task:\n{}", list.join("\n"))
}

// === impl Attachment ===

impl Attachment {
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.body {
            AttachmentBody::Bytes(bytes) => Some(bytes),
            AttachmentBody::File(_) | AttachmentBody::Link(_) => None,
        }
    }

    pub(crate) const fn is_link(&self) -> bool {
        matches!(self.body, AttachmentBody::Link(_))
    }

    /// The media type without parameters, in lower case.
    pub(crate) fn kind(&self) -> String {
        self.media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// The content as base64.
    pub(crate) fn base64(&self) -> Option<String> {
        self.bytes().map(base64::encode)
    }
}

// === impl PlacedFiles ===

impl PlacedFiles {
    /// Writes the attachments into a folder of their own, inside the host's working folder.
    pub(crate) fn place(job: &DriverRun, attachments: &[&Attachment]) -> Result<Self, TaskReply> {
        let failed = |error: io::Error| {
            let message = format!("what came with the task cannot be put into `{}`: {error}", job.cwd.display());
            TaskReply::failed("host_crashed", message)
        };
        Self::write(&job.cwd, &job.task.task_run_id.to_string(), attachments).map_err(failed)
    }

    fn write(cwd: &Path, run: &str, attachments: &[&Attachment]) -> io::Result<Self> {
        if attachments.iter().all(|attachment| attachment.is_link()) {
            return Ok(Self::default());
        }
        let mut placed = Self::make_folder(cwd, run)?;
        for attachment in attachments {
            let path = cwd.join(ATTACHMENT_FOLDER).join(run).join(&attachment.name);
            match &attachment.body {
                AttachmentBody::Bytes(bytes) => create(&path, bytes)?,
                AttachmentBody::File(from) => copy(from, &path)?,
                AttachmentBody::Link(_) => continue,
            }
            let path = Path::new(ATTACHMENT_FOLDER).join(run).join(&attachment.name);
            placed.files.push(PlacedFile { path, media_type: attachment.media_type.clone() });
        }
        Ok(placed)
    }

    /// Keeps the shared folder there while a run is inside walls, which hide what comes with other runs. `None` if the
    /// run has a folder already, or if nobody can make one.
    pub(crate) fn reserve(job: &DriverRun) -> Option<Self> {
        // A delegated folder is used by one run only, and what is made in it is made at its owner's.
        if job.task.task_type == awcp::TASK_TYPE {
            return None;
        }
        Self::make_folder(&job.cwd, &job.task.task_run_id.to_string()).ok()
    }

    /// Whether it is a folder of its own, and no link to another one.
    pub(crate) fn is_folder(path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
    }

    fn make_folder(cwd: &Path, run: &str) -> io::Result<Self> {
        // Another run that ends removes the shared folder, perhaps between two of these steps.
        let mut made = Self::try_make_folder(cwd, run);
        for _ in 0..3 {
            if !matches!(&made, Err(error) if error.kind() == io::ErrorKind::NotFound) {
                break;
            }
            made = Self::try_make_folder(cwd, run);
        }
        made
    }

    fn try_make_folder(cwd: &Path, run: &str) -> io::Result<Self> {
        let shared = cwd.join(ATTACHMENT_FOLDER);
        match fs::DirBuilder::new().mode(0o700).create(&shared) {
            // Keeps the files out of version control.
            Ok(()) => create(&shared.join(".gitignore"), b"*\n")?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Refuse a symlink: it would lead somewhere else.
                if !Self::is_folder(&shared) {
                    return Err(io::Error::new(
                        io::ErrorKind::AlreadyExists,
                        format!("`{ATTACHMENT_FOLDER}` is no folder"),
                    ));
                }
            }
            Err(error) => return Err(error),
        }
        let folder = shared.join(run);
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self { folder: Some(folder), files: Vec::new() })
    }

    /// The folder with the files, if any were placed.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref().filter(|_| !self.files.is_empty())
    }
}

fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use io::Write as _;
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = fs::File::open(from)?;
    io::copy(&mut from, &mut fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?).map(drop)
}

impl Drop for PlacedFiles {
    fn drop(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        if let Err(error) = fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %folder.display(), %error, "couldn't remove a task's attachment files");
        }
        if let Some(shared) = folder.parent() {
            // Remove the shared folder with its last run, unless it contains something else.
            let is_last = fs::read_dir(shared)
                .is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == ".gitignore"));
            if is_last {
                let _ = fs::remove_file(shared.join(".gitignore"));
                let _ = fs::remove_dir(shared);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<Vec<Attachment>, String> {
        let parts: Vec<Json> = serde_json::from_str(text).unwrap();
        read(&parts, &[])
    }

    #[test]
    fn non_text_parts_become_attachments() {
        let read = parts(
            r#"[{"text":"look"},{"raw":"aGk=","filename":"../a/b.png","mediaType":"image/png"},{"data":{"n":1.0}},
                {"url":"https://x/y.pdf","mediaType":"application/pdf"},{"raw":"aGk=","filename":"b.png"},{"raw":"aGk=","filename":".."}]"#,
        )
        .unwrap();
        let shown: Vec<(&str, &str)> = read.iter().map(|one| (&*one.name, &*one.media_type)).collect();
        assert_eq!(
            shown,
            [
                ("b.png", "image/png"),
                ("part-3.json", "application/json"),
                ("part-4.url", "application/pdf"),
                ("5-b.png", "application/octet-stream"),
                ("part-6.bin", "application/octet-stream"),
            ]
        );
        assert_eq!(read[0].bytes(), Some(&b"hi"[..]));
        assert_eq!(read[1].bytes(), Some(&br#"{"n":1.0}"#[..]));
        assert!(parts(r#"[{"raw":"*!*"}]"#).unwrap_err().contains("base64"));
        assert!(parts(r#"[{"text":"a","url":"b"}]"#).is_err());
    }

    #[test]
    fn placed_files_stay_in_the_folder_until_the_run_ends() {
        let folder = tempfile::tempdir().unwrap();
        let read = parts(r#"[{"raw":"aGk=","filename":"a.txt"},{"url":"https://x/"}]"#).unwrap();
        let all: Vec<&Attachment> = read.iter().collect();
        let placed = PlacedFiles::write(folder.path(), "run_1", &all).unwrap();
        assert_eq!(fs::read(folder.path().join(".attache/run_1/a.txt")).unwrap(), b"hi");
        let told = describe_attachments("do it", &placed, &[&read[1]]);
        assert_eq!(
            told,
            "do it\n\nThese came with the task:\n- .attache/run_1/a.txt (application/octet-stream)\n\
             - https://x/ (application/octet-stream)"
        );
        let other = PlacedFiles::write(folder.path(), "run_2", &all).unwrap();
        drop(placed);
        assert!(folder.path().join(".attache/run_2/a.txt").exists());
        drop(other);
        assert!(!folder.path().join(".attache").exists());
        // A symlink in place of the folder isn't followed.
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join(".attache")).unwrap();
        assert!(PlacedFiles::write(folder.path(), "run_3", &all).is_err());
        assert!(fs::read_dir(elsewhere.path()).unwrap().next().is_none());
    }
}
