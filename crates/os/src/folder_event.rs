//! What a watcher of folders reports.

/// What happened in a watched folder, which is identified by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FolderEvent {
    /// Something happened to an entry, or without a name to the folder itself. `has_moved` if it was a folder, and is
    /// somewhere else now or removed: another one may have its name, and even its inode number.
    Touched { folder: i32, name: Option<Vec<u8>>, is_folder: bool, has_moved: bool },
    /// It isn't watched any more.
    Ended { folder: i32 },
}
