//! Authentication and authorization.

pub(crate) mod access;
mod access_guard;
mod authenticate;
mod cache;
mod card_key;
mod folder;
mod in_person;
pub mod key_ring;
pub(crate) mod limiter;
pub(crate) mod password;
mod permit;
mod principal;
mod request_limits;
mod rotation;
mod seal;
mod session;
mod table;
pub(crate) mod token;
pub(crate) mod webauthn;

pub(crate) use access_guard::{AccessGuard, StreamRight};
pub(crate) use cache::{CredentialCache, CredentialLookup};
pub use card_key::CardKey;
pub(crate) use folder::IdentityFolder;
pub(crate) use in_person::{CredentialForm, PersonalCredential};
pub use limiter::RateLimitStatus;
pub(crate) use permit::Permit;
pub(crate) use principal::PresentedCredential;
pub use principal::{Principal, PrincipalKind};
pub(crate) use request_limits::RequestLimits;
pub(crate) use seal::SealingKey;
pub use seal::UnsealError;
pub use session::{LoginLinkTarget, SignedInSession};
pub use table::{AccessVerdict, Action, RoleColumn, verdict};
pub use webauthn::{CreationOptions, NewCredential, PasskeyAssertion, RequestOptions};
