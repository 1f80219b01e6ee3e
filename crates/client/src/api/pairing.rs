//! Pairing a device with an agent: a person creates a code that the device redeems, or the device shows one that a
//! person confirms.

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

/// The result of pairing, for the device.
#[derive(Debug, Clone)]
pub struct AttachedRuntime {
    pub agent_id: AgentId,
    /// The agent's name, if the hub discloses it.
    pub agent_name: Option<String>,
    pub runtime_id: RuntimeId,
    pub runtime_token: Secret<String>,
    pub heartbeat_timeout_ms: u64,
}

/// A code for the device to show, and the secret for polling whether a person has confirmed it.
#[derive(Debug, Clone)]
pub struct PairingTicket {
    /// For the device's screen only.
    pub pairing_code: Secret<String>,
    /// Also contains the code.
    pub confirm_url: Secret<String>,
    pub poll_token: Secret<String>,
    pub poll_interval_ms: u64,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone)]
pub enum PairingPoll {
    /// No decision yet.
    Pending,
    Attached(AttachedRuntime),
}

/// Bodies with a secret are written only here, because secrets don't serialize.
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
    /// Creates a code for an agent. The response is the only place that shows it.
    pub async fn create_pairing_code(&self, agent: &str) -> Result<PairingCodeResponse> {
        self.ask(&HubRequest::new(Method::POST, self.api(&["agent-accounts", agent, "pairing-codes"]))).await
    }

    /// Redeems a code. Never retried: a code works once.
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

    /// Requests a code to show on the device.
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

    /// The details of a device that asks to be paired, for people.
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
