//! The host's side of one SFTP channel: one request in, one reply out, in order.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{
    handles::{Handles, Listing, MAX_HANDLES, Open},
    list::{change, line, on_the_wire},
    path::{below, real},
    reply::{self, Name, Status},
    request::{Malformed, Request, flag, read_request, read_version},
    wire::{self, MAX_DATA},
};
use crate::export::{Connection, Create, DirectoryEntry, Export, OpenHow, Refusal, Replace};

/// How many names one reply lists. Two names of 255 bytes and the rest of an entry stay far below a packet.
const NAMES: usize = 100;
/// Of a new folder, when the client names none.
const FOLDER_MODE: u32 = 0o777;

pub(crate) struct Conversation {
    export: Arc<Export>,
    connection: Connection,
    locator: Vec<u8>,
    handles: Handles,
    began: bool,
}

/// Why a conversation cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Over {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the lease has ended")]
    Revoked,
}

/// What SFTP calls a refusal. As OpenSSH does it, because clients guess the rest from there.
fn status_of(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::NotFound | Refusal::NotADirectory => Status::NoSuchFile,
        Refusal::Denied(_) | Refusal::ReadOnly => Status::PermissionDenied,
        Refusal::Invalid => Status::BadMessage,
        Refusal::Unsupported => Status::Unsupported,
        Refusal::Revoked
        | Refusal::Exists
        | Refusal::NotEmpty
        | Refusal::IsADirectory
        | Refusal::Quota(_)
        | Refusal::DiskFull
        | Refusal::Interrupted
        | Refusal::Io(_) => Status::Failure,
    }
}

// === impl Conversation ===

impl Conversation {
    /// `budget` is how many files the lease may have open, in all its conversations.
    pub(crate) fn new(export: Arc<Export>, locator: &str, budget: Arc<Semaphore>) -> Self {
        let (connection, locator) = (export.connect(), locator.as_bytes().to_vec());
        Self { export, connection, locator, handles: Handles::new(budget), began: false }
    }

    /// Carries out what one packet asks for, and appends the reply.
    pub(crate) fn answer(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), Over> {
        if !self.began {
            read_version(packet)?;
            self.began = true;
            reply::write_version(out);
            return Ok(());
        }
        let (id, request) = read_request(packet)?;
        let Some(request) = request else {
            reply::write_status(out, id, Status::BadMessage, "the request is not complete");
            return Ok(());
        };
        match self.carry_out(id, &request, out) {
            Ok(Done::Answered) => Ok(()),
            Ok(Done::Plain) => {
                reply::write_status(out, id, Status::Ok, "");
                Ok(())
            }
            Ok(Done::Ended) => {
                reply::write_status(out, id, Status::EndOfFile, "");
                Ok(())
            }
            // No status of version 3 says "I/O error" to a client; a channel that ends does.
            Err(Refusal::Revoked) => Err(Over::Revoked),
            Err(refusal) => {
                reply::write_status(out, id, status_of(&refusal), &refusal.to_string());
                Ok(())
            }
        }
    }

    fn carry_out(&mut self, id: u32, request: &Request<'_>, out: &mut Vec<u8>) -> Result<Done, Refusal> {
        match *request {
            Request::Open { path, flags, attributes } => {
                let room = self.handles.reserve()?;
                let file = self.export.open_file(&self.below(path)?, &how(flags, &attributes))?.of(self.connection);
                reply::write_handle(out, id, &self.handles.insert(Open::File(file), room));
            }
            Request::OpenDirectory { path } => {
                let room = self.handles.reserve()?;
                let path = self.below(path)?;
                let listing =
                    Listing { directory: self.export.read_dir(&path)?, own: Some(self.export.attributes(&path)?) };
                reply::write_handle(out, id, &self.handles.insert(Open::Listing(listing), room));
            }
            Request::Read { handle, offset, length } => {
                let file = self.handles.file(handle)?;
                let length = usize::try_from(length).unwrap_or(MAX_DATA).min(MAX_DATA);
                if length == 0 || reply::write_data(out, id, length, |buffer| file.read_at(offset, buffer))? == 0 {
                    return Ok(Done::Ended);
                }
            }
            Request::ReadDirectory { handle } => {
                let names = self.handles.listing(handle)?.next()?;
                if names.is_empty() {
                    return Ok(Done::Ended);
                }
                reply::write_names(out, id, &names);
            }
            // The server follows no link, so both kinds of asking are the same.
            Request::Attributes { path } | Request::LinkAttributes { path } => {
                let attributes = self.export.attributes(&self.below(path)?)?;
                reply::write_attributes(out, id, &on_the_wire(&attributes));
            }
            Request::HandleAttributes { handle } => {
                let attributes = self.handles.file(handle)?.attributes()?;
                reply::write_attributes(out, id, &on_the_wire(&attributes));
            }
            Request::RealPath { path } => {
                let name = real(&self.locator, path)?;
                let attributes = wire::Attributes::default();
                reply::write_names(out, id, &[Name { long: name.clone(), name, attributes }]);
            }
            Request::ReadLink { path } => {
                let name = self.export.read_link(&self.below(path)?)?;
                let attributes = wire::Attributes::default();
                reply::write_names(out, id, &[Name { long: name.clone(), name, attributes }]);
            }
            Request::Space { path } => {
                // The path has to be there, and the lease too; then all of an export is on one file system.
                self.export.attributes(&self.below(path)?)?;
                reply::write_space(out, id, &self.space()?);
            }
            Request::HandleSpace { handle } => {
                self.handles.file(handle)?;
                reply::write_space(out, id, &self.space()?);
            }
            Request::Limits => reply::write_limits(out, id, MAX_HANDLES),
            _ => {
                self.change(request)?;
                return Ok(Done::Plain);
            }
        }
        Ok(Done::Answered)
    }

    /// The requests that are answered with a status alone.
    fn change(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        match *request {
            Request::Write { handle, offset, data } => self.handles.file(handle)?.write_at(offset, data),
            Request::Close { handle } => self.handles.close(handle),
            Request::SetAttributes { path, attributes } => {
                self.export.set_attributes(&self.below(path)?, &change(&attributes))
            }
            Request::SetHandleAttributes { handle, attributes } => {
                self.handles.file(handle)?.set_attributes(&change(&attributes))
            }
            Request::Remove { path } => self.export.remove_file(&self.below(path)?),
            Request::MakeDirectory { path, attributes } => {
                self.export.make_dir(&self.below(path)?, attributes.permissions.unwrap_or(FOLDER_MODE) & 0o7777)
            }
            Request::RemoveDirectory { path } => self.export.remove_dir(&self.below(path)?),
            Request::Rename { from, to } => self.export.rename(&self.below(from)?, &self.below(to)?, Replace::Never),
            Request::PosixRename { from, to } => {
                self.export.rename(&self.below(from)?, &self.below(to)?, Replace::Always)
            }
            Request::Symlink { target, path } => self.export.symlink(target, &self.below(path)?),
            Request::HardLink { from, to } => self.export.hard_link(&self.below(from)?, &self.below(to)?),
            Request::Sync { handle } => self.handles.file(handle)?.sync(),
            _ => Err(Refusal::Unsupported),
        }
    }

    fn below(&self, path: &[u8]) -> Result<Vec<u8>, Refusal> {
        below(&self.locator, path)
    }

    fn space(&self) -> Result<reply::Space, Refusal> {
        let space = self.export.space()?;
        Ok(reply::Space {
            block_size: space.block_size,
            fragment_size: space.block_size,
            blocks: space.blocks,
            blocks_free: space.blocks_free,
            blocks_available: space.blocks_available,
            files: space.files,
            files_free: space.files_free,
            files_available: space.files_free,
            name_max: space.name_max,
            ..reply::Space::default()
        })
    }
}

/// How a request was answered.
enum Done {
    /// The reply is written.
    Answered,
    /// It is done, and there is nothing to tell.
    Plain,
    /// There is no more of a file or listing.
    Ended,
}

fn how(flags: u32, attributes: &wire::Attributes) -> OpenHow {
    let is_set = |bit: u32| flags & bit != 0;
    OpenHow {
        read: is_set(flag::READ),
        write: is_set(flag::WRITE),
        append: is_set(flag::APPEND),
        truncate: is_set(flag::TRUNCATE),
        create: match (is_set(flag::CREATE), is_set(flag::EXCLUSIVE)) {
            (false, _) => Create::Never,
            (true, false) => Create::IfMissing,
            (true, true) => Create::New,
        },
        mode: attributes.permissions.map(|mode| mode & 0o7777),
    }
}

// === impl Listing ===

impl Listing {
    /// The next names; none at the end.
    fn next(&mut self) -> Result<Vec<Name>, Refusal> {
        let own = self.own.take().into_iter();
        let dots = own
            .flat_map(|attributes| [&b"."[..], b".."].map(|name| DirectoryEntry { name: name.to_vec(), attributes }));
        let names: Vec<Name> = dots.chain(self.directory.next_batch(NAMES)?).map(line).collect();
        Ok(names)
    }
}
