//! Why a store can't write, as far as its operator can fix it.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFault {
    /// The disk is full, or its quota is used up.
    DiskFull,
    /// The file system is read-only.
    ReadOnly,
    /// The disk reports errors.
    Io,
    /// The file is no longer one of our databases.
    Damaged,
    /// The database server doesn't answer.
    Unreachable,
    /// Another hub has taken over the database.
    ServedElsewhere,
}

// === impl StorageFault ===

impl StorageFault {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DiskFull => "disk_full",
            Self::ReadOnly => "read_only",
            Self::Io => "io_error",
            Self::Damaged => "damaged",
            Self::Unreachable => "database_unreachable",
            Self::ServedElsewhere => "served_elsewhere",
        }
    }

    /// The fault behind an I/O error, if it is one of these.
    pub fn of_io(error: &std::io::Error) -> Option<Self> {
        use std::io::ErrorKind as Kind;
        match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => Some(Self::DiskFull),
            Kind::ReadOnlyFilesystem => Some(Self::ReadOnly),
            _ => None,
        }
    }
}

impl fmt::Display for StorageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DiskFull => "the disk is full",
            Self::ReadOnly => "the file system is read-only",
            Self::Io => "the disk reports errors",
            Self::Damaged => "the database is damaged",
            Self::Unreachable => "the database server can't be reached",
            Self::ServedElsewhere => "another hub serves the database",
        })
    }
}
