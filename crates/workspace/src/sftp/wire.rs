//! What both directions of SFTP version 3 share: numbers, limits and attributes. Names and paths stay bytes.

/// The only supported version. OpenSSH's programs and sshfs use no other.
pub(crate) const VERSION: u32 = 3;
/// The longest packet accepted or sent, without its length. The same as OpenSSH's server.
pub(crate) const MAX_PACKET: usize = 256 * 1024;
/// The most file content in one packet. The rest is for the header.
pub(crate) const MAX_DATA: usize = MAX_PACKET - 1024;

/// The attributes of a file in version 3. Absent ones were not sent, or stay unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SftpAttributes {
    pub(crate) size: Option<u64>,
    /// User and group.
    pub(crate) owner: Option<(u32, u32)>,
    /// Includes the file type bits.
    pub(crate) permissions: Option<u32>,
    /// Access and modification time, in seconds.
    pub(crate) times: Option<(u32, u32)>,
}

pub(super) mod kind {
    pub(in crate::sftp) const INIT: u8 = 1;
    pub(in crate::sftp) const VERSION: u8 = 2;
    pub(in crate::sftp) const OPEN: u8 = 3;
    pub(in crate::sftp) const CLOSE: u8 = 4;
    pub(in crate::sftp) const READ: u8 = 5;
    pub(in crate::sftp) const WRITE: u8 = 6;
    pub(in crate::sftp) const LSTAT: u8 = 7;
    pub(in crate::sftp) const FSTAT: u8 = 8;
    pub(in crate::sftp) const SETSTAT: u8 = 9;
    pub(in crate::sftp) const FSETSTAT: u8 = 10;
    pub(in crate::sftp) const OPENDIR: u8 = 11;
    pub(in crate::sftp) const READDIR: u8 = 12;
    pub(in crate::sftp) const REMOVE: u8 = 13;
    pub(in crate::sftp) const MKDIR: u8 = 14;
    pub(in crate::sftp) const RMDIR: u8 = 15;
    pub(in crate::sftp) const REALPATH: u8 = 16;
    pub(in crate::sftp) const STAT: u8 = 17;
    pub(in crate::sftp) const RENAME: u8 = 18;
    pub(in crate::sftp) const READLINK: u8 = 19;
    pub(in crate::sftp) const SYMLINK: u8 = 20;
    pub(in crate::sftp) const STATUS: u8 = 101;
    pub(in crate::sftp) const HANDLE: u8 = 102;
    pub(in crate::sftp) const DATA: u8 = 103;
    pub(in crate::sftp) const NAME: u8 = 104;
    pub(in crate::sftp) const ATTRS: u8 = 105;
    pub(in crate::sftp) const EXTENDED: u8 = 200;
    pub(in crate::sftp) const EXTENDED_REPLY: u8 = 201;
}

pub(super) mod attribute {
    pub(in crate::sftp) const SIZE: u32 = 1;
    pub(in crate::sftp) const OWNER: u32 = 2;
    pub(in crate::sftp) const PERMISSIONS: u32 = 4;
    pub(in crate::sftp) const TIMES: u32 = 8;
    pub(in crate::sftp) const EXTENDED: u32 = 1 << 31;
}

// === impl SftpAttributes ===

impl SftpAttributes {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let bits = [
            (self.size.is_some(), attribute::SIZE),
            (self.owner.is_some(), attribute::OWNER),
            (self.permissions.is_some(), attribute::PERMISSIONS),
            (self.times.is_some(), attribute::TIMES),
        ];
        let bits = bits.into_iter().filter(|(is_there, _)| *is_there).fold(0, |bits, (_, bit)| bits | bit);
        out.extend(bits.to_be_bytes());
        out.extend(self.size.into_iter().flat_map(u64::to_be_bytes));
        let pairs = |(one, other): (u32, u32)| [one, other];
        out.extend(self.owner.into_iter().flat_map(pairs).flat_map(u32::to_be_bytes));
        out.extend(self.permissions.into_iter().flat_map(u32::to_be_bytes));
        out.extend(self.times.into_iter().flat_map(pairs).flat_map(u32::to_be_bytes));
    }
}
