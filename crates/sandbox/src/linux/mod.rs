//! The walls of Linux: bubblewrap's namespaces, then Landlock and seccomp in the second stage.

mod bubblewrap;
mod exec_once;
mod landlock;
mod mount_table;
mod open_path;
mod order;
mod probe;
mod prove;
mod proxy_listener;
mod seccomp;
mod stage;
mod unmediated;
mod view;

pub(crate) use self::{
    bubblewrap::{file_view, find as bwrap},
    prove::prove,
    stage::arguments,
};
pub use self::{probe::probe, proxy_listener::receive_listeners, stage::enter};
