//! SFTP version 3 over an export: bytes in, bytes out. It knows nothing of SSH. Any channel can drive it.

mod handles;
mod list;
mod path;
mod reply;
mod request;
mod session;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use self::{
    handles::{MAX_HANDLES, OPEN_FILES},
    request::{first_packet, is_quick},
    session::SftpSession,
};
