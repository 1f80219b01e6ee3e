//! Who asks, and what they may do.

mod authenticate;
mod cache;
mod folder;
pub(crate) mod limiter;
mod principal;
mod session;
mod table;

pub(crate) use authenticate::Guard;
pub(crate) use cache::Cache;
pub(crate) use folder::{Folder, write_private};
pub use principal::{Principal, Who};
pub(crate) use session::Logins;
pub use session::Session;
pub use table::{Action, Column, Verdict, verdict};
