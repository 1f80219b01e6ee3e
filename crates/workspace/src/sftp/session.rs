//! The host's side of one SFTP channel: one request in, one reply out, in order.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{
    handles::{DirectoryListing, MAX_HANDLES, OpenHandle, SftpHandles},
    list::{change, line, on_the_wire},
    path::{below, real},
    reply::{self, SftpName, SftpStatus},
    request::{MalformedPacket, SftpRequest, flag, read_request, read_version},
    wire::{self, MAX_DATA},
};
use crate::export::{
    CreateMode, DirectoryEntry, Export, ExportConnection, ExportRefusal, FileOpenOptions, ReplaceMode,
};

/// How many names one reply lists. With two names of 255 bytes each, the entries stay far below a packet.
const MAX_NAMES_PER_REPLY: usize = 100;
/// For a new folder, if the client gives none.
const FOLDER_MODE: u32 = 0o777;

pub(crate) struct SftpSession {
    export: Arc<Export>,
    connection: ExportConnection,
    locator: Vec<u8>,
    handles: SftpHandles,
    began: bool,
}

/// Why a session can't continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SftpSessionEnd {
    #[error(transparent)]
    Malformed(#[from] MalformedPacket),
    #[error("the lease has ended")]
    Revoked,
}

/// The SFTP status of a refusal. Like OpenSSH, because clients infer the rest from that.
fn status_of(refusal: &ExportRefusal) -> SftpStatus {
    match refusal {
        ExportRefusal::NotFound | ExportRefusal::NotADirectory => SftpStatus::NoSuchFile,
        ExportRefusal::Denied(_) | ExportRefusal::ReadOnly => SftpStatus::PermissionDenied,
        ExportRefusal::Invalid => SftpStatus::BadMessage,
        ExportRefusal::Unsupported => SftpStatus::Unsupported,
        ExportRefusal::Revoked
        | ExportRefusal::Exists
        | ExportRefusal::NotEmpty
        | ExportRefusal::IsADirectory
        | ExportRefusal::Quota(_)
        | ExportRefusal::DiskFull
        | ExportRefusal::Interrupted
        | ExportRefusal::Locked
        | ExportRefusal::Changed
        | ExportRefusal::Io(_) => SftpStatus::Failure,
    }
}

// === impl SftpSession ===

impl SftpSession {
    /// `budget` is how many files the lease can have open in all its sessions.
    pub(crate) fn new(export: Arc<Export>, locator: &str, budget: Arc<Semaphore>) -> Self {
        let (connection, locator) = (export.connect(), locator.as_bytes().to_vec());
        Self { export, connection, locator, handles: SftpHandles::new(budget), began: false }
    }

    /// Carries out the request in one packet, and appends the reply.
    pub(crate) fn answer(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), SftpSessionEnd> {
        if !self.began {
            read_version(packet)?;
            self.began = true;
            reply::write_version(out);
            return Ok(());
        }
        let (id, request) = read_request(packet)?;
        let Some(request) = request else {
            reply::write_status(out, id, SftpStatus::BadMessage, "the request is incomplete");
            return Ok(());
        };
        match self.carry_out(id, &request, out) {
            Ok(RequestOutcome::Answered) => Ok(()),
            Ok(RequestOutcome::Plain) => {
                reply::write_status(out, id, SftpStatus::Ok, "");
                Ok(())
            }
            Ok(RequestOutcome::Ended) => {
                reply::write_status(out, id, SftpStatus::EndOfFile, "");
                Ok(())
            }
            // No version 3 status tells a client "I/O error", but a closed channel does.
            Err(ExportRefusal::Revoked) => Err(SftpSessionEnd::Revoked),
            Err(refusal) => {
                reply::write_status(out, id, status_of(&refusal), &refusal.to_string());
                Ok(())
            }
        }
    }

    fn carry_out(
        &mut self,
        id: u32,
        request: &SftpRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<RequestOutcome, ExportRefusal> {
        match *request {
            SftpRequest::Open { path, flags, attributes } => {
                let room = self.handles.reserve()?;
                let file = self.export.open_file(&self.below(path)?, &how(flags, &attributes))?.of(self.connection);
                reply::write_handle(out, id, &self.handles.insert(OpenHandle::File(file), room));
            }
            SftpRequest::OpenDirectory { path } => {
                let room = self.handles.reserve()?;
                let path = self.below(path)?;
                let listing = DirectoryListing {
                    directory: self.export.read_dir(&path)?,
                    own: Some(self.export.attributes(&path)?),
                };
                reply::write_handle(out, id, &self.handles.insert(OpenHandle::Listing(listing), room));
            }
            SftpRequest::Read { handle, offset, length } => {
                let file = self.handles.file(handle)?;
                let length = usize::try_from(length).unwrap_or(MAX_DATA).min(MAX_DATA);
                if length == 0 || reply::write_data(out, id, length, |buffer| file.read_at(offset, buffer))? == 0 {
                    return Ok(RequestOutcome::Ended);
                }
            }
            SftpRequest::ReadDirectory { handle } => {
                let names = self.handles.listing(handle)?.next()?;
                if names.is_empty() {
                    return Ok(RequestOutcome::Ended);
                }
                reply::write_names(out, id, &names);
            }
            // The server follows no links, so both requests are the same.
            SftpRequest::Attributes { path } | SftpRequest::LinkAttributes { path } => {
                let attributes = self.export.attributes(&self.below(path)?)?;
                reply::write_attributes(out, id, &on_the_wire(&attributes));
            }
            SftpRequest::HandleAttributes { handle } => {
                let attributes = self.handles.file(handle)?.attributes()?;
                reply::write_attributes(out, id, &on_the_wire(&attributes));
            }
            SftpRequest::RealPath { path } => {
                let name = real(&self.locator, path)?;
                let attributes = wire::SftpAttributes::default();
                reply::write_names(out, id, &[SftpName { long: name.clone(), name, attributes }]);
            }
            SftpRequest::ReadLink { path } => {
                let name = self.export.read_link(&self.below(path)?)?;
                let attributes = wire::SftpAttributes::default();
                reply::write_names(out, id, &[SftpName { long: name.clone(), name, attributes }]);
            }
            SftpRequest::Space { path } => {
                // The path must exist, and the lease too. An export is on a single file system.
                self.export.attributes(&self.below(path)?)?;
                reply::write_space(out, id, &self.space()?);
            }
            SftpRequest::HandleSpace { handle } => {
                self.handles.file(handle)?;
                reply::write_space(out, id, &self.space()?);
            }
            SftpRequest::Limits => reply::write_limits(out, id, MAX_HANDLES),
            _ => {
                self.change(request)?;
                return Ok(RequestOutcome::Plain);
            }
        }
        Ok(RequestOutcome::Answered)
    }

    /// Requests that are answered with only a status.
    fn change(&mut self, request: &SftpRequest<'_>) -> Result<(), ExportRefusal> {
        match *request {
            SftpRequest::Write { handle, offset, data } => self.handles.file(handle)?.write_at(offset, data),
            SftpRequest::Close { handle } => self.handles.close(handle),
            SftpRequest::SetAttributes { path, attributes } => {
                self.export.set_attributes(&self.below(path)?, &change(&attributes))
            }
            SftpRequest::SetHandleAttributes { handle, attributes } => {
                self.handles.file(handle)?.set_attributes(&change(&attributes))
            }
            SftpRequest::Remove { path } => self.export.remove_file(&self.below(path)?),
            SftpRequest::MakeDirectory { path, attributes } => {
                self.export.make_dir(&self.below(path)?, attributes.permissions.unwrap_or(FOLDER_MODE) & 0o7777)
            }
            SftpRequest::RemoveDirectory { path } => self.export.remove_dir(&self.below(path)?),
            SftpRequest::Rename { from, to } => {
                self.export.rename(&self.below(from)?, &self.below(to)?, ReplaceMode::Never)
            }
            SftpRequest::PosixRename { from, to } => {
                self.export.rename(&self.below(from)?, &self.below(to)?, ReplaceMode::Always)
            }
            SftpRequest::Symlink { target, path } => self.export.symlink(target, &self.below(path)?),
            SftpRequest::HardLink { from, to } => self.export.hard_link(&self.below(from)?, &self.below(to)?),
            SftpRequest::Sync { handle } => self.handles.file(handle)?.sync(),
            _ => Err(ExportRefusal::Unsupported),
        }
    }

    fn below(&self, path: &[u8]) -> Result<Vec<u8>, ExportRefusal> {
        below(&self.locator, path)
    }

    fn space(&self) -> Result<reply::SftpSpace, ExportRefusal> {
        let space = self.export.space()?;
        Ok(reply::SftpSpace {
            block_size: space.block_size,
            fragment_size: space.block_size,
            blocks: space.blocks,
            blocks_free: space.blocks_free,
            blocks_available: space.blocks_available,
            files: space.files,
            files_free: space.files_free,
            files_available: space.files_free,
            name_max: space.name_max,
            ..reply::SftpSpace::default()
        })
    }
}

/// How a request was answered.
enum RequestOutcome {
    /// The reply is written.
    Answered,
    /// It is done, with nothing to return.
    Plain,
    /// The end of a file or listing.
    Ended,
}

fn how(flags: u32, attributes: &wire::SftpAttributes) -> FileOpenOptions {
    let is_set = |bit: u32| flags & bit != 0;
    FileOpenOptions {
        read: is_set(flag::READ),
        write: is_set(flag::WRITE),
        append: is_set(flag::APPEND),
        truncate: is_set(flag::TRUNCATE),
        create: match (is_set(flag::CREATE), is_set(flag::EXCLUSIVE)) {
            (false, _) => CreateMode::Never,
            (true, false) => CreateMode::IfMissing,
            (true, true) => CreateMode::New,
        },
        mode: attributes.permissions.map(|mode| mode & 0o7777),
    }
}

// === impl DirectoryListing ===

impl DirectoryListing {
    /// The next names. Empty at the end.
    fn next(&mut self) -> Result<Vec<SftpName>, ExportRefusal> {
        let own = self.own.take().into_iter();
        let dots = own
            .flat_map(|attributes| [&b"."[..], b".."].map(|name| DirectoryEntry { name: name.to_vec(), attributes }));
        let names: Vec<SftpName> = dots.chain(self.directory.next_batch(MAX_NAMES_PER_REPLY)?).map(line).collect();
        Ok(names)
    }
}
