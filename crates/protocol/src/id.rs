//! Typed, prefixed ids: a run id can't be passed where an agent id is expected.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// Text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not an id of the form `{prefix}…`")]
pub struct IdParseError {
    given: String,
    prefix: &'static str,
}

// === impl IdParseError ===

impl IdParseError {
    fn new(text: &str, prefix: &'static str) -> Self {
        let given = text.chars().take(80).collect::<String>();
        Self { given: crate::secret::mask(&given).into_owned(), prefix }
    }
}

/// The uuid after the prefix.
pub(crate) fn parse_uuid(text: &str, prefix: &'static str) -> Result<Uuid, IdParseError> {
    let uuid = text.strip_prefix(prefix).and_then(|rest| Uuid::try_parse(rest).ok());
    uuid.ok_or_else(|| IdParseError::new(text, prefix))
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdParseError;

            fn from_str(text: &str) -> Result<Self, IdParseError> {
                parse_uuid(text, $prefix).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .pattern(Some(concat!("^", $prefix, "[0-9a-f]{32}$")))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    )*};
}

ids! {
    /// The top-level owner. A credential belongs to exactly one tenant.
    TenantId = "tnt_";
    /// An agent account: an agent's identity across devices.
    AgentId = "agt_";
    /// One device's pairing with an agent account.
    RuntimeId = "rtm_";
    /// One execution of one task.
    RunId = "run_";
    /// The boundary of context: nothing in one is visible in another.
    ConversationId = "cnv_";
    /// Holds the artifacts of one conversation. Shares the conversation's uuid.
    WorkspaceId = "wsp_";
    ArtifactId = "art_";
    MessageId = "msg_";
    /// A person in a tenant.
    UserId = "usr_";
    KeyId = "key_";
    /// A person's passkey.
    PasskeyId = "psk_";
    /// A peer's durable link. Outlives every socket.
    ChannelId = "chn_";
    PermissionId = "prm_";
    /// A standing answer to permission requests.
    GrantId = "gnt_";
    /// A question a worker waits for: input from its caller, or a tool call made by the caller's engine.
    WorkerRequestId = "ask_";
    /// One input from a caller to a run.
    InputId = "inp_";
    /// One webhook delivery. Shares the uuid of what it reports.
    DeliveryId = "dlv_";
    /// Where a person gets notifications: a browser or a chat.
    NotificationTargetId = "ntf_";
    /// One folder delegated to one remote agent under a lease.
    DelegationId = "dlg_";
    /// One process that serves a database together with others.
    NodeId = "nod_";
    /// Relays bytes between two machines that can't reach each other.
    TunnelId = "tun_";
}

impl ConversationId {
    /// Each conversation has one workspace, with the same uuid.
    pub const fn workspace(self) -> WorkspaceId {
        WorkspaceId::from_uuid(self.0)
    }
}

impl WorkspaceId {
    pub const fn conversation(self) -> ConversationId {
        ConversationId::from_uuid(self.0)
    }
}

impl DeliveryId {
    /// The delivery that reports a run's end.
    pub const fn of_run(run: RunId) -> Self {
        Self(run.0)
    }

    /// The delivery that reports a pending permission request.
    pub const fn of_permission(permission: PermissionId) -> Self {
        Self(permission.0)
    }

    /// The delivery that reports one event of a run's stream to a subscriber.
    pub fn of_push(run: RunId, config: &str, seq: i64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"push\0").update(run.0.as_bytes()).update(&seq.to_be_bytes()).update(config.as_bytes());
        Self(crate::digest::uuid(hasher.finalize()))
    }

    /// The delivery that notifies a target of one row of the tenant's log.
    pub fn of_notification(target: NotificationTargetId, seq: i64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"notification\0").update(target.0.as_bytes()).update(&seq.to_be_bytes());
        Self(crate::digest::uuid(hasher.finalize()))
    }
}

impl RunId {
    /// A run without a conversation gets its own.
    pub const fn own_conversation(self) -> ConversationId {
        ConversationId::from_uuid(self.0)
    }
}

impl ConversationId {
    /// The run that this is the own conversation of, if there is such a run.
    pub const fn first_run(self) -> RunId {
        RunId::from_uuid(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_refuses_another_kind() {
        let run = RunId::from_uuid(Uuid::from_u128(7));
        assert_eq!(run.to_string(), "run_00000000000000000000000000000007");
        assert_eq!(run.to_string().parse(), Ok(run));
        assert!(run.to_string().parse::<AgentId>().is_err());
        assert!("run_é".parse::<RunId>().is_err());
        assert_eq!(serde_json::from_str::<RunId>(&format!("\"{run}\"")).unwrap(), run);
    }
}
