//! Who asks, and what they may do.

pub(crate) mod access;
mod attempts;
mod authenticate;
mod cache;
mod card_key;
mod folder;
pub(crate) mod limiter;
pub(crate) mod password;
mod principal;
mod rotation;
mod seal;
mod session;
mod table;
pub(crate) mod token;

pub(crate) use attempts::Attempts;
pub(crate) use authenticate::Guard;
pub(crate) use cache::{By, Cache};
pub use card_key::CardKey;
pub(crate) use folder::Folder;
pub use limiter::Left;
pub(crate) use principal::{ANONYMOUS, Proof};
pub use principal::{Principal, Who};
pub use seal::Broken;
pub(crate) use seal::Seal;
pub(crate) use session::Logins;
pub use session::{LinkTarget, Session};
pub use table::{Action, Column, Verdict, verdict};
