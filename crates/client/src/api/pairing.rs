//! Pairing a device with an agent: a person makes a code and the device redeems it, or the device shows one and a person confirms it.

use attache_protocol::{
    AgentId, Json, RuntimeId, Secret, Timestamp,
    wire::pairing::{
        AttachResponse, PairingCodeResponse, PairingDecision, PairingRequest, PairingRequestResponse,
        PairingRequestView,
    },
};
use reqwest::Method;
use serde::Serialize;

use crate::{HubClient, Result, hub::HubRequest};

/// What a device gets once it is paired.
#[derive(Debug, Clone)]
pub struct AttachedRuntime {
    pub agent_id: AgentId,
    /// What the agent is called, where the hub says so.
    pub agent_name: Option<String>,
    pub runtime_id: RuntimeId,
    pub runtime_token: Secret<String>,
    pub heartbeat_timeout_ms: u64,
}

/// A code that a device shows, and the secret with which it asks whether a person has confirmed it.
#[derive(Debug, Clone)]
pub struct PairingTicket {
    /// For the screen of the device, and nowhere else.
    pub pairing_code: Secret<String>,
    /// Holds the code as well.
    pub confirm_url: Secret<String>,
    pub poll_token: Secret<String>,
    pub poll_interval_ms: u64,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone)]
pub enum PairingPoll {
    /// Nobody has decided yet.
    Pending,
    Attached(AttachedRuntime),
}

/// Bodies that hold a secret are written here and nowhere else, because secrets do not serialise.
#[derive(Serialize)]
struct AttachBody<'a> {
    pairing_token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a Json>,
}

#[derive(Serialize)]
struct PollBody<'a> {
    poll_token: &'a str,
}

// === impl HubClient ===

impl HubClient {
    /// A new code for an agent; the answer is the only place that shows it.
    pub async fn create_pairing_code(&self, agent: &str) -> Result<PairingCodeResponse> {
        self.ask(&HubRequest::new(Method::POST, self.api(&["agent-accounts", agent, "pairing-codes"]))).await
    }

    /// Redeems a code. Never repeated: a code works once.
    pub async fn attach(
        &self,
        code: &Secret<String>,
        device_name: Option<&str>,
        labels: Option<&Json>,
    ) -> Result<AttachedRuntime> {
        let body = AttachBody { pairing_token: code.expose(), device_name, labels };
        let url = self.api(&["agent-runtimes", "runtime", "attach-via-pairing"]);
        self.post::<_, AttachResponse>(url, &body).await.map(AttachedRuntime::from)
    }

    /// Asks for a code to show on the device.
    pub async fn request_pairing(&self, device_name: Option<&str>, labels: Option<&Json>) -> Result<PairingTicket> {
        let request = PairingRequest { device_name: device_name.map(str::to_owned), labels: labels.cloned() };
        let url = self.api(&["agent-runtimes", "runtime", "pairing-requests"]);
        let PairingRequestResponse { pairing_code, confirm_url, poll_token, poll_interval_ms, expires_at } =
            self.post(url, &request).await?;
        Ok(PairingTicket {
            pairing_code: Secret::new(pairing_code),
            confirm_url: Secret::new(confirm_url),
            poll_token: Secret::new(poll_token),
            poll_interval_ms,
            expires_at,
        })
    }

    /// Whether a person has confirmed the device yet.
    pub async fn poll_pairing(&self, poll_token: &Secret<String>) -> Result<PairingPoll> {
        let url = self.api(&["agent-runtimes", "runtime", "pairing-requests", "poll"]);
        let ask = HubRequest::new(Method::POST, url).json(&PollBody { poll_token: poll_token.expose() });
        match self.send(&ask).await? {
            (202, _) => Ok(PairingPoll::Pending),
            (_, body) => Ok(PairingPoll::Attached(self.decode::<AttachResponse>(&body)?.into())),
        }
    }

    /// What a person sees of a device that asks to be paired.
    pub async fn pairing_request(&self, code: &str) -> Result<PairingRequestView> {
        self.get(self.api(&["pairing-requests", code])).await
    }

    /// Pairs the device that shows `code` with an agent, or rejects it.
    pub async fn decide_pairing(&self, code: &str, decision: &PairingDecision) -> Result<()> {
        let url = self.api(&["pairing-requests", code, "decision"]);
        self.send(&HubRequest::new(Method::POST, url).json(decision)).await.map(drop)
    }
}

// === impl AttachedRuntime ===

impl From<AttachResponse> for AttachedRuntime {
    fn from(response: AttachResponse) -> Self {
        let AttachResponse { agent_id, runtime_id, runtime_token, heartbeat_timeout_ms, agent_name } = response;
        let runtime_token = Secret::new(runtime_token);
        Self { agent_id, agent_name, runtime_id, runtime_token, heartbeat_timeout_ms }
    }
}
