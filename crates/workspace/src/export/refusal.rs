//! Why the export refuses a call: one short list, which every protocol (SFTP today) translates.

use std::{io, path::PathBuf};

use rustix::io::Errno;

/// Why a call is refused. The texts are for the log and for protocols that can carry one.
#[derive(Debug, thiserror::Error)]
pub enum ExportRefusal {
    #[error("no such file or folder")]
    NotFound,
    #[error("{0}")]
    Denied(&'static str),
    #[error("the folder is shared read-only")]
    ReadOnly,
    #[error("the lease has ended")]
    Revoked,
    #[error("it already exists")]
    Exists,
    #[error("the folder is not empty")]
    NotEmpty,
    #[error("it is not a folder")]
    NotADirectory,
    #[error("it is a folder")]
    IsADirectory,
    #[error("the name or an argument is invalid")]
    Invalid,
    #[error("over the limit: {0}")]
    Quota(&'static str),
    /// The disk of the folder, or of the originals.
    #[error("the host's disk is full")]
    DiskFull,
    /// A file's connection broke. Found when the remote reconnects.
    #[error("the connection broke while the file was open for writing")]
    Interrupted,
    #[error("someone else has locked it")]
    Locked,
    /// The request was for another version of it.
    #[error("it has changed in the meantime")]
    Changed,
    #[error("not supported here")]
    Unsupported,
    #[error(transparent)]
    Io(io::Error),
}

/// Why a folder can't be exported at all, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{dir}: can't open it ({source}); check that the folder exists and that you can read it")]
    Folder { dir: PathBuf, source: io::Error },
    #[error("{dir}: not a folder; use the folder that contains it")]
    NotAFolder { dir: PathBuf },
    #[error("this kernel can't confine a path (openat2, Linux 5.6 or newer); update the kernel or its sandbox profile")]
    NoConfinement,
    #[error("/proc is not mounted, but file handles are reopened through it; mount it (mount -t proc proc /proc)")]
    NoProc,
    #[error("`{pattern}` is not a valid gitignore pattern ({reason})")]
    Pattern { pattern: String, reason: &'static str },
    #[error("{dir}: can't keep originals there ({source}); check that the folder is writable and the disk has space")]
    Before { dir: PathBuf, source: io::Error },
    #[error("{dir}: originals would be kept inside the exported folder; choose a folder outside it")]
    BeforeInside { dir: PathBuf },
}

// === impl ExportRefusal ===

impl ExportRefusal {
    /// The name for the audit entry.
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
            Self::Locked => "locked",
            Self::Changed => "changed",
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
            Errno::XDEV => Self::Denied("another file system is mounted there, which is not shared"),
            Errno::ACCESS | Errno::PERM => Self::Denied("the host's file permissions don't allow it"),
            Errno::ROFS => Self::ReadOnly,
            Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => Self::Invalid,
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull,
            Errno::FBIG => Self::Quota("file size limit of the host's file system"),
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
