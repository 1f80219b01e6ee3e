//! Why the export does not do something: one short list, which every door to it (SFTP today) translates.

use std::{io, path::PathBuf};

use rustix::io::Errno;

/// Why a call is not carried out. The texts are for the log and for doors that can carry one.
#[derive(Debug, thiserror::Error)]
pub enum ExportRefusal {
    #[error("there is no such file or folder")]
    NotFound,
    #[error("{0}")]
    Denied(&'static str),
    #[error("the folder is lent read-only")]
    ReadOnly,
    #[error("the lease has ended")]
    Revoked,
    #[error("it exists already")]
    Exists,
    #[error("the folder is not empty")]
    NotEmpty,
    #[error("it is not a folder")]
    NotADirectory,
    #[error("it is a folder")]
    IsADirectory,
    #[error("the name or an argument is not valid")]
    Invalid,
    #[error("over the limit: {0}")]
    Quota(&'static str),
    /// Of the folder, or of the folder of originals.
    #[error("the host's disk is full")]
    DiskFull,
    /// Of a file, found when the remote connects again.
    #[error("the connection broke while the file was open for writing")]
    Interrupted,
    #[error("it cannot be done here")]
    Unsupported,
    #[error(transparent)]
    Io(io::Error),
}

/// Why a folder cannot be lent at all, with what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{dir}: cannot be opened ({source}); check that the folder exists and that you may read it")]
    Folder { dir: PathBuf, source: io::Error },
    #[error("{dir}: is not a folder; name the folder that holds it")]
    NotAFolder { dir: PathBuf },
    #[error(
        "this kernel cannot confine a path (openat2, Linux 5.6 or newer); update the kernel or its sandbox profile"
    )]
    NoConfinement,
    #[error("/proc is not mounted; mount it (mount -t proc proc /proc), file handles are reopened through it")]
    NoProc,
    #[error("`{pattern}` is no pattern in gitignore's syntax ({reason})")]
    Pattern { pattern: String, reason: &'static str },
    #[error(
        "{dir}: originals cannot be kept there ({source}); check that the folder can be written and the disk has space"
    )]
    Before { dir: PathBuf, source: io::Error },
    #[error("{dir}: originals would be kept inside of what is lent; choose a folder outside of it")]
    BeforeInside { dir: PathBuf },
}

// === impl ExportRefusal ===

impl ExportRefusal {
    /// A word for the audit line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Denied(_) => "denied",
            Self::ReadOnly => "read_only",
            Self::Revoked => "revoked",
            Self::Exists => "exists",
            Self::NotEmpty => "not_empty",
            Self::NotADirectory => "not_a_directory",
            Self::IsADirectory => "is_a_directory",
            Self::Invalid => "invalid",
            Self::Quota(_) => "quota",
            Self::DiskFull => "disk_full",
            Self::Interrupted => "interrupted",
            Self::Unsupported => "unsupported",
            Self::Io(_) => "io",
        }
    }
}

impl From<Errno> for ExportRefusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::ISDIR => Self::IsADirectory,
            Errno::EXIST => Self::Exists,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::LOOP => Self::Denied("a symbolic link is not followed; resolve it on your side"),
            Errno::XDEV => Self::Denied("another file system begins there, and it is not lent"),
            Errno::ACCESS | Errno::PERM => Self::Denied("the host's own permissions do not allow it"),
            Errno::ROFS => Self::ReadOnly,
            Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => Self::Invalid,
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull,
            Errno::FBIG => Self::Quota("the host's file system takes no larger file"),
            Errno::OPNOTSUPP | Errno::NOSYS => Self::Unsupported,
            other => Self::Io(other.into()),
        }
    }
}

impl From<io::Error> for ExportRefusal {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::Io(error),
        }
    }
}
