//! Pairs this device: redeems a code that a person created, or shows a code and waits for a person to confirm it.

use std::{path::Path, time::Duration};

use attache_client::{AttachedRuntime, HubClient, HubClientOptions, HubCredential, PairingPoll, PairingTicket};
use attache_protocol::{Code, Json, KeyPin, Secret, env::Env};

use crate::{
    Error,
    profile::{LocalExecutor, Profile, Profiles},
};

/// What the device reports about itself and what its profile contains. Absent values are taken from an earlier pairing
/// with the same agent.
#[derive(Debug, Clone)]
pub struct PairOptions {
    /// The hub's origin, or the origin with `/api/v1`.
    pub api_base: String,
    pub device_name: Option<String>,
    pub local_executor: LocalExecutor,
    /// Whether the agent asks before a risky step (`yes`, `partly`, `no`), if known. A label for people.
    pub asks: Option<String>,
    pub local_agent_endpoint: Option<String>,
    pub adapter_secret: Option<Secret<String>>,
    /// A certificate (PEM) to trust in addition to the machine's own.
    pub trusted_certificate: Option<Vec<u8>>,
    /// The hub must have this key. Stored in the profile.
    pub pin: Option<KeyPin>,
    pub env: Env,
}

/// The executor of an agent for which this device neither has nor had another one.
pub const DEFAULT_EXECUTOR: &str = "shell";

/// Redeems a code and writes the profile.
pub async fn redeem(home: &Path, options: PairOptions, code: &Secret<String>) -> Result<Profile, Error> {
    let hub = hub(&options)?;
    let attached = hub.attach(code, options.device_name.as_deref(), labels(&options).as_ref()).await?;
    save_profile(home, options, &hub, attached)
}

/// Requests a code, passes it to `show`, waits until a person confirms it, and writes the profile.
pub async fn request(
    home: &Path,
    options: PairOptions,
    show: impl FnOnce(&PairingTicket) + Send,
) -> Result<Profile, Error> {
    let hub = hub(&options)?;
    let ticket = hub.request_pairing(options.device_name.as_deref(), labels(&options).as_ref()).await?;
    show(&ticket);
    let interval = Duration::from_millis(ticket.poll_interval_ms.clamp(200, 10_000));
    loop {
        tokio::time::sleep(interval).await;
        match hub.poll_pairing(&ticket.poll_token).await {
            Ok(PairingPoll::Attached(attached)) => return save_profile(home, options, &hub, attached),
            Ok(PairingPoll::Pending) if options.env.now() < ticket.expires_at => {}
            // The hub may restart while a person looks for the page: keep trying.
            Err(error) if error.is_passing() && options.env.now() < ticket.expires_at => {
                tracing::debug!(%error, "the hub did not answer; trying again");
            }
            Err(error) if !error.is_passing() => return Err(error.into()),
            Ok(PairingPoll::Pending) | Err(_) => return Err(expired().into()),
        }
    }
}

fn expired() -> attache_client::Error {
    attache_client::Error::Refused(Box::new(attache_client::HubRefusal {
        code: Code::PairingFailed,
        message: "The code was not confirmed before it expired.".to_owned(),
        hint: "Run `attache runtime pair` again for a new one.".to_owned(),
        remedy: None,
        status: Code::PairingFailed.http_status(),
        conflict: None,
        decided: None,
    }))
}

fn hub(options: &PairOptions) -> Result<HubClient, Error> {
    let mut hub = HubClientOptions::new(options.api_base.as_str(), HubCredential::None);
    hub.trusted_certificate.clone_from(&options.trusted_certificate);
    hub.pin = options.pin;
    hub.env = options.env.clone();
    Ok(HubClient::new(hub)?)
}

fn labels(options: &PairOptions) -> Option<Json> {
    let host_type = options.local_executor.kind.as_deref()?;
    let asks = options.asks.as_deref().map(|asks| ("asks", asks));
    Some(Json::of(&[("host_type", host_type)].into_iter().chain(asks).collect::<std::collections::BTreeMap<_, _>>()))
}

fn save_profile(
    home: &Path,
    options: PairOptions,
    hub: &HubClient,
    attached: AttachedRuntime,
) -> Result<Profile, Error> {
    let AttachedRuntime { agent_id, agent_name, runtime_id, runtime_token, heartbeat_timeout_ms } = attached;
    let api_base = hub.address().api_base();
    Profiles::at(home, options.env).update(|set| {
        // Pairing again keeps the settings of this device.
        let mut profile = match set.of_agent(agent_id, &api_base) {
            Some(earlier) => Profile { runtime_id, runtime_token, ..earlier.clone() },
            None => Profile::new(agent_id, runtime_id, runtime_token, api_base),
        };
        profile.agent_name = agent_name.or(profile.agent_name);
        profile.heartbeat_timeout_ms = heartbeat_timeout_ms;
        profile.last_heartbeat_at = None;
        profile.pin = options.pin.or(profile.pin);
        profile.device_name = options.device_name.or(profile.device_name);
        let is_other_kind =
            options.local_executor.kind.is_some() && options.local_executor.kind != profile.local_executor.kind;
        if options.local_agent_endpoint.is_some() || is_other_kind {
            // A secret belongs to its endpoint, and an endpoint to the program behind it.
            profile.local_agent_endpoint = options.local_agent_endpoint;
            profile.adapter_secret = None;
        }
        profile.adapter_secret = options.adapter_secret.or(profile.adapter_secret);
        profile.local_executor.take_over(options.local_executor);
        if profile.local_agent_endpoint.is_none() {
            profile.local_executor.kind.get_or_insert_with(|| DEFAULT_EXECUTOR.to_owned());
        }
        set.insert(profile.clone());
        profile
    })
}

// === impl LocalExecutor ===

impl LocalExecutor {
    /// Replaces what `other` specifies.
    fn take_over(&mut self, other: Self) {
        if other.kind.is_some() && other.kind != self.kind {
            // The program of one kind isn't valid for another.
            (self.reference, self.keep_sessions) = (None, None);
        }
        self.keep_sessions = other.keep_sessions.or(self.keep_sessions);
        let pairs = [
            (&mut self.kind, other.kind),
            (&mut self.reference, other.reference),
            (&mut self.workspace, other.workspace),
            (&mut self.cwd, other.cwd),
            (&mut self.instruction_file, other.instruction_file),
        ];
        for (mine, theirs) in pairs {
            if theirs.is_some() {
                *mine = theirs;
            }
        }
    }
}
