//! A client of any A2A agent: finds its card, decides whether the card is to be believed, and speaks the version and the
//! binding that the card offers. Every call goes through the egress guard; whatever a peer speaks, what is seen here is the
//! model of version 1.0.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use attache_client::{a2a::{self, Credentials, Peer}, egress::{Guard, Policy}};
//! use attache_protocol::wire::a2a::{Message, Part, Role, SendMessage};
//!
//! let guard = Guard::new(Policy::default());
//! let found = a2a::discover(&guard, "https://agents.example.org/travel", &Credentials::none(), &[]).await?;
//! let peer = Peer::new(&guard, &found.card, Credentials::none())?;
//! let message = Message {
//!     message_id: "m-1".to_owned(),
//!     role: Role::User,
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
