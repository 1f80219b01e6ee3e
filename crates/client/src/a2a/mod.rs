//! A client for any A2A agent: finds its card, decides whether to trust it, and speaks the version and binding the card
//! offers. Every call goes through the egress guard. Whatever version the agent speaks, callers see the 1.0 model.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use attache_client::{a2a::{self, PeerClient, PeerCredentials}, egress::{EgressGuard, EgressPolicy}};
//! use attache_a2a_wire::{A2aRole, Message, Part, SendMessage};
//!
//! let guard = EgressGuard::new(EgressPolicy::default());
//! let found = a2a::discover(&guard, "https://agents.example.org/travel", &PeerCredentials::none(), &[]).await?;
//! let peer = PeerClient::new(&guard, &found.card, PeerCredentials::none())?;
//! let message = Message {
//!     message_id: "m-1".to_owned(),
//!     role: A2aRole::User,
//!     parts: vec![Part::text("Where to?")],
//!     context_id: None,
//!     task_id: None,
//!     metadata: None,
//!     extensions: vec![],
//!     reference_task_ids: vec![],
//! };
//! let mut events = peer.stream(SendMessage { tenant: None, message, configuration: None, metadata: None }).await?;
//! while let Some(event) = events.next().await {
//!     println!("{:?}", event?.what);
//! }
//! # Ok(())
//! # }
//! ```

mod card;
mod credentials;
mod dialect;
mod discover;
mod error;
mod events;
mod grpc;
pub mod jcs;
mod lenient;
mod peer;
mod request;
pub mod verify;

pub use card::read as read_card;
pub use credentials::PeerCredentials;
pub use dialect::{PeerBinding, PeerInterface, PeerVersion};
pub use discover::{CardETag, CardSignatureTrust, CheckedSignature, DiscoveredPeer, discover, is_unchanged};
pub use error::{Error, PeerFault};
pub use events::{PeerEvent, PeerEventStream};
pub use peer::PeerClient;

pub type Result<T, E = Error> = std::result::Result<T, E>;
