//! Operating system services that need care: private files, locks between processes, who works in a folder, look-ups where others choose the modes, paths that must not lead out of a
//! folder, handles of files, watched folders, removal of what others have filled, the processes of a run (what they may use, and what is left behind), the
//! service manager, the programs we start ourselves, and ports that every program of the machine reaches.
//!
//! What differs between systems is in two modules with the same functions: `linux`, and `portable`, which uses only what
//! every Unix has. `--cfg attache_portable` chooses the second one on Linux, too, so that it is tested.

pub mod confined;
pub mod control_group;
pub mod file_attributes;
pub mod folder_event;
pub mod folder_use;
pub mod local_port;
pub mod lock;
pub mod look_up;
pub mod own_address;
pub mod path_error;
pub mod placeholder;
pub mod private_file;
pub mod process_group;
pub mod process_tree;
pub mod program;
pub mod program_trust;
pub mod removal;
pub mod service_manager;
pub mod small_file;

#[cfg(all(target_os = "linux", not(attache_portable)))]
mod linux;
#[cfg(all(target_os = "linux", not(attache_portable)))]
use linux as system;

#[cfg(not(all(target_os = "linux", not(attache_portable))))]
mod portable;
#[cfg(not(all(target_os = "linux", not(attache_portable))))]
use portable as system;

pub use system::{file_space, folder_watcher, machine, mounts, path_handle};
