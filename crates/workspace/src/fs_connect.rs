//! Connects to a host's attache-fs subsystem: one SSH connection to one server, with one key, and one channel.

use std::{borrow::Cow, sync::Arc, time::Duration};

use attache_protocol::Secret;
use russh::{
    ChannelMsg, Limits, Preferred, SshId, cipher, client, compression,
    keys::{Algorithm, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate},
};

use crate::{
    fs_wire::SUBSYSTEM,
    mount::{MountError, MountRequest},
};

/// Where the host is, and what opens it.
#[derive(Debug, Clone)]
pub(crate) struct LinkTerms {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) locator: String,
    pub(crate) host_key: String,
    pub(crate) private_key: Secret<String>,
    /// Keeps the same mount apart from others of the lease, over all its connections.
    pub(crate) mount: u64,
}

/// Why a link could not be made.
pub(crate) enum LinkFailure {
    /// It may work later.
    Passing(String),
    /// It may work later if it worked before: the host may have too many connections of this lease.
    Refused(String),
    Final(MountError),
}

pub(crate) struct PinnedHost(PublicKey);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const MAX_MISSED_KEEPALIVES: usize = 2;
/// How much can be on its way to us. The host's own windows are smaller.
const CHANNEL_WINDOW: u32 = 16 << 20;

// === impl LinkTerms ===

impl LinkTerms {
    pub(crate) fn new(request: &MountRequest, mount: u64) -> Self {
        Self {
            host: request.host.clone(),
            port: request.port,
            user: request.user.clone(),
            locator: request.locator.clone(),
            host_key: request.host_key.clone(),
            private_key: request.private_key.clone(),
            mount,
        }
    }
}

pub(crate) async fn connect(
    terms: &LinkTerms,
) -> Result<(client::Handle<PinnedHost>, russh::Channel<client::Msg>), LinkFailure> {
    let passing = |error: russh::Error| LinkFailure::Passing(error.to_string());
    let refused = |reason: &str| LinkFailure::Final(MountError::KeyRefused(reason.to_owned()));
    let host_key = PublicKey::from_openssh(terms.host_key.trim())
        .map_err(|_| LinkFailure::Final(MountError::OtherHost("its key in START is unreadable".to_owned())))?;
    let key = PrivateKey::from_openssh(terms.private_key.expose())
        .map_err(|_| refused("the lease's private key is invalid"))?;
    let config = client::Config {
        client_id: SshId::Standard(Cow::Borrowed("SSH-2.0-attache")),
        limits: Limits::new(1 << 30, 1 << 30, Duration::from_secs(3600)),
        window_size: CHANNEL_WINDOW,
        channel_buffer_size: 256,
        preferred: Preferred {
            key: Cow::Borrowed(&[Algorithm::Ed25519]),
            cipher: Cow::Borrowed(&[cipher::AES_256_GCM]),
            compression: Cow::Borrowed(&[compression::NONE]),
            ..Preferred::DEFAULT
        },
        keepalive_interval: Some(KEEPALIVE_INTERVAL),
        keepalive_max: MAX_MISSED_KEEPALIVES,
        nodelay: true,
        ..client::Config::default()
    };
    let address = (terms.host.as_str(), terms.port);
    let connecting = async {
        let mut session =
            client::connect(Arc::new(config), address, PinnedHost(host_key)).await.map_err(|error| match error {
                russh::Error::UnknownKey => {
                    LinkFailure::Final(MountError::OtherHost("it shows another key".to_owned()))
                }
                error => passing(error),
            })?;
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
        if !session.authenticate_publickey(&terms.user, key).await.map_err(passing)?.success() {
            return Err(refused("permission denied"));
        }
        let mut channel = session.channel_open_session().await.map_err(passing)?;
        channel.request_subsystem(true, SUBSYSTEM).await.map_err(passing)?;
        loop {
            match channel.wait().await {
                Some(ChannelMsg::Success) => return Ok((session, channel)),
                Some(ChannelMsg::Failure) => {
                    let text = format!("the host doesn't offer {SUBSYSTEM}, or no more connections for this lease");
                    return Err(LinkFailure::Refused(text));
                }
                Some(_) => {}
                None => return Err(LinkFailure::Passing("the host closed the connection".to_owned())),
            }
        }
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(LinkFailure::Passing("the host does not answer".to_owned())),
    }
}

impl client::Handler for PinnedHost {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        Ok(matches!(shown, PublicKeyOrCertificate::PublicKey { key, .. } if key.key_data() == self.0.key_data()))
    }
}
