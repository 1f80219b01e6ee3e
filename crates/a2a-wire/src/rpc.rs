//! The JSON-RPC 2.0 frame, and the method names.

use attache_protocol::Json;
use serde::{Deserialize, Serialize};

/// The request's id, repeated byte for byte in the response. Absent for notifications.
pub type RpcId = Option<Json>;

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct RpcRequest {
    pub jsonrpc: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: RpcId,
    pub method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Json>,
}

/// Has either a result or an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcResponse {
    pub jsonrpc: String,
    /// `null` if the request could not be parsed.
    pub id: RpcId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RpcError>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcError {
    pub code: i32,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

macro_rules! methods {
    ($($name:ident $new:literal $old:expr;)*) => {
        /// An operation, independent of the version's name for it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method {
            $($name,)*
        }

        impl Method {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in version 1.0 (JSON-RPC and gRPC).
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $new,)* }
            }

            /// Its name in JSON-RPC 0.3, if any.
            pub const fn old_name(self) -> Option<&'static str> {
                match self { $(Self::$name => $old,)* }
            }
        }
    };
}

methods! {
    SendMessage          "SendMessage"                      Some("message/send");
    SendStreamingMessage "SendStreamingMessage"             Some("message/stream");
    GetTask              "GetTask"                          Some("tasks/get");
    ListTasks            "ListTasks"                        None;
    CancelTask           "CancelTask"                       Some("tasks/cancel");
    SubscribeToTask      "SubscribeToTask"                  Some("tasks/resubscribe");
    CreatePushConfig     "CreateTaskPushNotificationConfig" Some("tasks/pushNotificationConfig/set");
    GetPushConfig        "GetTaskPushNotificationConfig"    Some("tasks/pushNotificationConfig/get");
    ListPushConfigs      "ListTaskPushNotificationConfigs"  Some("tasks/pushNotificationConfig/list");
    DeletePushConfig     "DeleteTaskPushNotificationConfig" Some("tasks/pushNotificationConfig/delete");
    GetExtendedCard      "GetExtendedAgentCard"             Some("agent/getAuthenticatedExtendedCard");
}

// === impl Method ===

impl Method {
    /// By its name in version 1.0.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.name() == name)
    }

    /// By its name in version 0.3.
    pub fn from_old_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.old_name() == Some(name))
    }
}
