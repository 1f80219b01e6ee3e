//! What lets a notification's button decide: a sealed note of which decision the notification offered, to which session.
//!
//! It reaches nobody but the browser that the notification was encrypted for, and it is worthless without that browser's
//! session, so neither another site nor somebody who reads the notification elsewhere can use it.

use attache_protocol::{KeyId, PermissionId};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Serialize};

use crate::Handle;

const CONTEXT: &str = "decision of a notification";

/// One decision that a notification offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DecisionTicket {
    pub(crate) permission: PermissionId,
    /// The hash of what it covers.
    pub(crate) subject: String,
    /// The session that may use it.
    pub(crate) key: KeyId,
    pub(crate) approved: bool,
}

// === impl DecisionTicket ===

impl DecisionTicket {
    pub(crate) fn write(&self, hub: &Handle) -> String {
        let plain = serde_json::to_vec(self).expect("ids and texts serialise to JSON");
        Base64UrlUnpadded::encode_string(&hub.seal(CONTEXT, &plain))
    }

    /// `None` for anything that this hub didn't write.
    pub(crate) fn read(hub: &Handle, text: &str) -> Option<Self> {
        let sealed = Base64UrlUnpadded::decode_vec(text).ok()?;
        let plain = hub.unseal(CONTEXT, &sealed).ok()?;
        serde_json::from_slice(plain.expose()).ok()
    }
}
