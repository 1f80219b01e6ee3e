//! The keys of a delegation: each is sent only to the origin that it belongs to.

use std::{fs, path::PathBuf};

use attache_client::{HubClientOptions, HubCredential, a2a::PeerCredentials, egress};
use attache_protocol::{Code, Secret};

use super::{DelegatorRefusal, Options, policy::DelegationAdmission, route, service::blocking};

/// The keys of one delegation.
#[derive(Debug, Clone)]
pub(super) struct DelegationKeys {
    pub(super) peer: PeerCredentials,
    /// The same, for a peer that expects it in a message.
    pub(super) peer_key: Option<Secret<String>>,
    /// The hub that provides the tunnel and shows the delegation, if any.
    pub(super) hub: Option<HubClientOptions>,
}

// === impl DelegationKeys ===

impl DelegationKeys {
    pub(super) async fn of(options: &Options, admitted: &DelegationAdmission) -> Result<Self, DelegatorRefusal> {
        let key_file = admitted.key_file.clone();
        let hub_key_file = admitted.hub.as_ref().and_then(|(_, file)| file.clone());
        let (peer, of_hub) =
            blocking(move || Ok::<_, DelegatorRefusal>((read(key_file)?, read(hub_key_file)?))).await??;
        let origin = egress::origin(&admitted.peer.url);
        let peer = peer.or_else(|| options.keys.key_for(&origin));
        let hub = match &admitted.hub {
            Some((hub, _)) => {
                let hub_origin = egress::origin(hub);
                let same = (hub_origin == origin).then(|| peer.clone()).flatten();
                Some((hub_origin.clone(), of_hub.or(same).or_else(|| options.keys.key_for(&hub_origin))))
            }
            None => route::hub_of(&admitted.peer.url).map(|hub| (hub, peer.clone())),
        };
        let hub = match hub {
            Some((hub, Some(key))) => {
                let pin = if hub == origin { admitted.peer.pin } else { admitted.hub_pin };
                Some(HubClientOptions { pin, ..HubClientOptions::new(hub, HubCredential::Key(key)) })
            }
            // Without a key, the hub can't be used.
            Some((_, None)) | None => None,
        };
        let peer_key = peer.clone();
        Ok(Self { peer: peer.map_or_else(PeerCredentials::none, PeerCredentials::key), peer_key, hub })
    }
}

fn read(file: Option<PathBuf>) -> Result<Option<Secret<String>>, DelegatorRefusal> {
    let Some(file) = file else { return Ok(None) };
    let text = fs::read_to_string(&file).map_err(|error| {
        let message = format!("can't read the key file {}: {error}", file.display());
        DelegatorRefusal::new(Code::InvalidRequest, message, "Check its path in policy.toml and its permissions.")
    })?;
    let key = text.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        let message = format!("{} contains no key", file.display());
        return Err(DelegatorRefusal::new(Code::InvalidRequest, message, "The file must contain only the key."));
    }
    Ok(Some(Secret::new(key.to_owned())))
}
