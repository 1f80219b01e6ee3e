//! What every Unix has. A path is resolved name by name, a folder is watched by looking at it, and a run is the processes of its
//! group.

pub(crate) mod beneath;
pub mod file_space;
pub(crate) mod folder_marks;
pub mod folder_watcher;
pub mod machine;
pub mod mounts;
pub mod path_handle;
pub(crate) mod processes;
