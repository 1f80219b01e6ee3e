//! Attachments of a task: the files, data and links among the parts of its message (`input.message.parts`, as in A2A
//! 1.0).
//!
//! A host receives the content types it supports natively. Everything else is written to a file in the run's folder,
//! kept until the run ends and listed in the prompt, so nothing a caller sends is dropped silently.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use attache_protocol::{
    Json,
    wire::{
        adapter::{TaskFile, TaskReply},
        base64,
        part::{Part, PartContent},
    },
};
use serde::Deserialize;

use crate::{DriverRun, placed_files::PlacedFiles};

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
                let bytes = base64::decode(&text).ok_or_else(|| format!("part {number} of the task isn't base64"))?;
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
    let failed = |error: io::Error| format!("an attachment of the task can't be read: {error}");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placed_files::PlacedFile;

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
    fn what_came_with_a_task_is_listed() {
        let read = parts(r#"[{"raw":"aGk=","filename":"a.txt"},{"url":"https://x/"}]"#).unwrap();
        let path = ".attache/run_1/a.txt".into();
        let file = PlacedFile { path, media_type: "application/octet-stream".to_owned() };
        let mut placed = PlacedFiles::default();
        placed.files.push(file);
        assert_eq!(
            describe_attachments("do it", &placed, &[&read[1]]),
            "do it\n\nThese came with the task:\n- .attache/run_1/a.txt (application/octet-stream)\n\
             - https://x/ (application/octet-stream)"
        );
    }
}
