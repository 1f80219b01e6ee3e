//! A2A 0.3 over JSON-RPC: objects have a `kind`, states and roles are lower-case words. Converted to and from the 1.0
//! model. No other code depends on it.
//!
//! 0.3 can't carry data that is not an object: it is wrapped as `{"value": …}` and unwrapped on the way back.

mod card;
pub(crate) mod file_bytes;
pub mod name;
mod part;
mod request;
pub mod rest;
mod task;

pub use card::{
    AgentCardV03, AgentInterfaceV03, AgentSkillV03, CardCapabilitiesV03, SecurityRequirementV03, SecuritySchemeV03,
    union,
};
pub use part::{FileContentV03, FileV03, PartV03};
#[cfg(feature = "grpc")]
pub(crate) use part::{unwrapped, wrapped};
pub use request::{
    DeletePushConfigV03, GetPushConfigV03, PushAuthenticationV03, PushConfigV03, SendConfigurationV03, SendParamsV03,
    TaskIdParamsV03, TaskPushConfigV03, TaskQueryParamsV03,
};
pub use task::{
    A2aRoleV03, ArtifactUpdateV03, ArtifactV03, MessageV03, StatusUpdateV03, StreamResponseV03, TaskStateV03,
    TaskStatusV03, TaskV03,
};

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A `kind` member with a fixed value. May be absent, since some senders forget it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kind<const WHICH: u8>;

pub const TASK: u8 = 0;
pub const MESSAGE: u8 = 1;
pub const STATUS_UPDATE: u8 = 2;
pub const ARTIFACT_UPDATE: u8 = 3;

const NAMES: [&str; 4] = ["task", "message", "status-update", "artifact-update"];

// === impl Kind ===

impl<const WHICH: u8> Kind<WHICH> {
    const NAME: &'static str = NAMES[WHICH as usize];
}

impl<const WHICH: u8> Serialize for Kind<WHICH> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Self::NAME)
    }
}

impl<'de, const WHICH: u8> Deserialize<'de> for Kind<WHICH> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KindVisitor<const WHICH: u8>;
        impl<const WHICH: u8> de::Visitor<'_> for KindVisitor<WHICH> {
            type Value = Kind<WHICH>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`{}`", Kind::<WHICH>::NAME)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Kind<WHICH>, E> {
                if text == Kind::<WHICH>::NAME {
                    Ok(Kind)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }
        }
        deserializer.deserialize_str(KindVisitor::<WHICH>)
    }
}

#[cfg(test)]
mod tests;
