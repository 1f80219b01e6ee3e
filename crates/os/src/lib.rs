//! Operating system services that need care: private files, locks between processes, paths that must not lead out of a
//! folder, the processes of a run (what they may use, and what is left behind), and the service manager. A port to another
//! system starts here.

pub mod confined;
pub mod control_group;
pub mod lock;
pub mod path_error;
pub mod placeholder;
pub mod private_file;
pub mod process_group;
pub mod process_tree;
pub mod service_manager;
pub mod small_file;
