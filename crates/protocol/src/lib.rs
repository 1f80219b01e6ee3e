//! Shared types of Attaché: ids, secrets, time, wire types and the pure rules.
//!
//! Nothing here does I/O or spawns a task. Only [`env::Env`] reads the clock and the random source.

pub mod access_file;
pub mod actor;
pub mod autorun;
pub mod clock;
pub mod crc32;
pub mod digest;
pub mod env;
pub mod error;
pub mod event_kind;
pub mod hidden_text;
pub mod id;
pub mod json;
pub mod log;
pub mod pairing;
pub mod pin;
pub mod rules;
pub mod secret;
mod text_enum;
pub mod time;
pub mod wire;

pub use actor::Actor;
pub use error::Code;
pub use event_kind::{EventKind, EventScope};
pub use id::{
    AgentId, ArtifactId, ChannelId, ConversationId, DelegationId, DeliveryId, GrantId, InputId, KeyId, MessageId,
    NodeId, NotificationTargetId, PasskeyId, PermissionId, RunId, RuntimeId, TenantId, TunnelId, UserId,
    WorkerRequestId, WorkspaceId,
};
pub use json::Json;
pub use pin::KeyPin;
pub use secret::Secret;
pub use time::Timestamp;
