//! The wire types of the standard A2A protocol. The types of version 1.0 are also our own model: older versions are converted at the
//! edge, and the rest of the code uses only these.
//!
//! JSON is ProtoJSON: camelCase names (`.proto` names are accepted too), `null` means absent, unknown members are
//! ignored, and enums use their full names. User data (`data`, `metadata`, `params`) is kept byte for byte.

mod card;
mod error;
mod event;
#[cfg(feature = "grpc")]
pub mod grpc;
mod invalid_field;
mod push;
mod request;
mod rpc;
mod scheme;
mod task;
pub mod v03;

pub use attache_protocol::wire::part::{Part, PartContent};
pub use card::{
    AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill, CardCapabilities,
    SecurityRequirement, SecurityScheme, StringList,
};
pub use error::{DOMAIN, ErrorInfo, Fault};
pub use event::{ArtifactUpdate, StatusUpdate, StreamResponse};
pub use invalid_field::InvalidField;
pub use push::{PushAuthenticationInfo, PushConfig, PushConfigList};
pub use request::{
    CancelTask, DeletePushConfig, GetExtendedCard, GetPushConfig, GetTask, ListPushConfigs, ListTasks,
    SendConfiguration, SendMessage, SendMessageResponse, SubscribeToTask, TaskList,
};
pub use rpc::{Method, RpcError, RpcId, RpcRequest, RpcResponse};
pub use scheme::{
    ApiKeyScheme, HttpAuthScheme, KnownScheme, MutualTlsScheme, OAuth2Scheme, OAuthFlow, OAuthFlows,
    OpenIdConnectScheme,
};
pub use task::{A2aRole, Artifact, Message, Task, TaskState, TaskStatus};

use serde::{Deserialize, Deserializer};

/// The key of our own additions in `metadata`. On a task: the event's seq as `generation`, the kind of status message,
/// and the run's usage. On an artifact: that it is the complete answer, as `full_output`.
pub const EVENTS: &str = "https://attache.dev/ext/events/v1";

/// `null` in place of a list or string means absent.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
