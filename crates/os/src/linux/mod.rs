//! What Linux offers: paths that the kernel resolves in one step, handles that stay with their file, inotify, and the table
//! of processes.

pub(crate) mod beneath;
pub mod file_space;
pub(crate) mod folder_marks;
pub mod folder_watcher;
pub mod machine;
pub mod mounts;
pub mod path_handle;
pub(crate) mod processes;
