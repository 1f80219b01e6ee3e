//! The control plane: identity, actions, streams, sweeping, and the platform's REST surface.
//!
//! [`Hub::start`] turns [`Options`] and a store into a [`Handle`]. A surface, in this crate or outside, is a function
//! `router(hub: Handle) -> axum::Router` over that handle: authenticate, act, read streams. [`serve`] serves a router
//! on a port with the checks for every surface. The hub knows nothing of devices, adapters or file systems.

mod blob;
mod bus;
mod channel;
mod check;
mod connection_slot;
pub mod control;
pub mod deliveries;
mod disk_space;
mod error;
mod hub;
pub mod identity;
pub mod in_process;
mod keep;
mod long_reads;
mod metrics;
mod nodes;
mod notifications;
mod options;
mod owner_key;
mod recovery;
mod render;
mod serve;
mod stall_detector;
mod start_secrets;
pub mod stream;
pub mod surface;
mod sweep;
mod tls;
mod tunnel;
mod visible_page;
mod waiter;

pub use attache_client::all_pages;
pub use blob::ArtifactBucket;
pub use error::{Error, FieldProblem, Result};
pub use hub::{Handle, Hub, StartError, has_keys};
pub use identity::{CardKey, Principal, PrincipalKind, SignedInSession};
pub use in_process::InProcessAgent;
pub use keep::KeepClass;
pub use nodes::NodeOptions;
pub use options::{OnTokenReuse, Options, OwnerKey};
pub use owner_key::OwnerKeyState;
pub use serve::serve;
pub use surface::platform::{openapi, router};
pub use tls::{Certificate, ClientCertificates, PIN_FILE, Tls, TlsError};
