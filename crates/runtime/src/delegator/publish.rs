//! Shows a delegation to the people at the hub, without paths and credentials, and ends it when they want that.

use attache_protocol::DelegationId;
use tokio_util::sync::CancellationToken;

use super::desk::{Delegator, Keyring};

pub(super) struct Publishing;

pub(super) fn start(
    _desk: &Delegator,
    _id: DelegationId,
    _keys: &Keyring,
    _cancel: CancellationToken,
) -> Option<Publishing> {
    None
}

impl Publishing {
    pub(super) async fn finish(self) {}
}
