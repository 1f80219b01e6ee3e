//! The standard's error codes, with their names in every binding.

use serde::{Deserialize, Serialize};

/// The domain of these reasons.
pub const DOMAIN: &str = "a2a-protocol.org";

macro_rules! faults {
    ($($name:ident $reason:literal $rpc:literal $http:literal $grpc:literal;)*) => {
        /// A protocol error, as version 1.0.1 maps it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($name,)*
        }

        impl Fault {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The reason in `google.rpc.ErrorInfo`.
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$name => $reason,)* }
            }

            pub const fn rpc_code(self) -> i32 {
                match self { $(Self::$name => $rpc,)* }
            }

            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $http,)* }
            }

            /// The name of the gRPC status, also used by HTTP+JSON.
            pub const fn grpc_status(self) -> &'static str {
                match self { $(Self::$name => $grpc,)* }
            }
        }
    };
}

faults! {
    TaskNotFound                 "TASK_NOT_FOUND"                  -32001 404 "NOT_FOUND";
    TaskNotCancelable            "TASK_NOT_CANCELABLE"             -32002 400 "FAILED_PRECONDITION";
    PushNotificationNotSupported "PUSH_NOTIFICATION_NOT_SUPPORTED" -32003 400 "FAILED_PRECONDITION";
    UnsupportedOperation         "UNSUPPORTED_OPERATION"           -32004 400 "FAILED_PRECONDITION";
    ContentTypeNotSupported      "CONTENT_TYPE_NOT_SUPPORTED"      -32005 400 "INVALID_ARGUMENT";
    InvalidAgentResponse         "INVALID_AGENT_RESPONSE"          -32006 500 "INTERNAL";
    ExtendedCardNotConfigured    "EXTENDED_AGENT_CARD_NOT_CONFIGURED" -32007 400 "FAILED_PRECONDITION";
    ExtensionSupportRequired     "EXTENSION_SUPPORT_REQUIRED"      -32008 400 "FAILED_PRECONDITION";
    VersionNotSupported          "VERSION_NOT_SUPPORTED"           -32009 400 "FAILED_PRECONDITION";
}

/// `google.rpc.ErrorInfo` as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    #[serde(rename = "@type")]
    pub kind: String,
    pub reason: String,
    pub domain: String,
}

// === impl ErrorInfo ===

impl ErrorInfo {
    pub fn of(fault: Fault) -> Self {
        Self {
            kind: "type.googleapis.com/google.rpc.ErrorInfo".to_owned(),
            reason: fault.reason().to_owned(),
            domain: DOMAIN.to_owned(),
        }
    }
}
