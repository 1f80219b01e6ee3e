//! Pairing, in both directions: a person makes a code for an agent, or a device shows a code that a person confirms.

use std::net::IpAddr;

use attache_protocol::{
    Code, Json,
    pairing::PairingCode,
    secret::{Kind, SecretHash},
    wire::pairing::{
        AttachRequest, AttachResponse, PairingCodeResponse, PairingDecision, PairingPollRequest, PairingRequest,
        PairingRequestResponse, PairingRequestView,
    },
};
use attache_store::record::{self, NewPairingCode, NewPairingRequest, NewRuntime, Proof};

use crate::{Error, Handle, Principal, Result, control::check, error::about, identity::Action};

/// How often a device asks whether a person has decided.
const POLL_INTERVAL_MS: u64 = 2000;

impl Handle {
    /// The one answer that shows the code.
    pub async fn create_pairing_code(&self, by: &Principal, agent: &str) -> Result<PairingCodeResponse> {
        let agent = self.own_agent(by, Action::CreatePairingCode, agent).await?;
        let code = PairingCode::generate(self.env());
        let expires_at = self.now().plus(self.options().pairing_ttl);
        let new = NewPairingCode { agent, code: self.hash_code(&code), expires_at };
        self.store().create_pairing_code(self.context(by), new).await.map_err(about("agent"))?;
        let (api_base, pin) = (self.options().reachable_origin(), self.options().needed_pin());
        Ok(PairingCodeResponse { pairing_code: code.shown(), expires_at, api_base, pin })
    }

    /// A device redeems the code that a person gave it. The runtime that was active before is superseded.
    pub async fn attach(&self, from: IpAddr, request: AttachRequest) -> Result<AttachResponse> {
        self.pairing().by_address.check(from)?;
        check::device(request.device_name.as_deref(), request.labels.as_ref())?;
        let Some(code) = PairingCode::parse(request.pairing_token.expose()) else {
            self.pairing().by_address.mark(from);
            return Err(Error::invalid("pairing_token", "is not a pairing code; codes look like K7QM-2XHD"));
        };
        let proof = Proof::Code(self.hash_code(&code));
        self.attach_with(from, proof, request.device_name, request.labels).await
    }

    /// A device without a code asks for one to show.
    pub async fn request_pairing(&self, from: IpAddr, request: PairingRequest) -> Result<PairingRequestResponse> {
        self.pairing().requests.check(from)?;
        check::device(request.device_name.as_deref(), request.labels.as_ref())?;
        self.pairing().requests.mark(from);
        let code = PairingCode::generate(self.env());
        let poll = Kind::PairingPoll.generate(self.env());
        let expires_at = self.now().plus(self.options().pairing_ttl);
        let new = NewPairingRequest {
            code: self.hash_code(&code),
            poll: poll.hash(),
            device_name: request.device_name,
            labels: request.labels.unwrap_or_else(Json::empty_object),
            address: from.to_string(),
            expires_at,
        };
        self.store().request_pairing(new, self.now()).await.map_err(about("pairing request"))?;
        Ok(PairingRequestResponse {
            confirm_url: format!("{}/pair?code={}", self.origin(), code.shown()),
            pairing_code: code.shown(),
            poll_token: poll.expose().clone(),
            poll_interval_ms: POLL_INTERVAL_MS,
            expires_at,
        })
    }

    /// The device asks whether a person has confirmed it, and becomes the agent's runtime when one has.
    pub async fn poll_pairing(&self, from: IpAddr, request: PairingPollRequest) -> Result<AttachResponse> {
        self.pairing().by_address.check(from)?;
        self.attach_with(from, Proof::Poll(request.poll_token.hash()), None, None).await
    }

    /// What a person sees before deciding about a device.
    pub async fn pairing_request(&self, by: &Principal, from: IpAddr, code: &str) -> Result<PairingRequestView> {
        by.may(Action::DecidePairing)?;
        let code = self.typed_code(from, code)?;
        let found = self.store().pairing_request(code, self.now()).await;
        let found = found.map_err(|error| self.failed_redemption(from, error))?;
        Ok(PairingRequestView {
            device_name: found.device_name,
            labels: found.labels,
            address: found.address,
            expires_at: found.expires_at,
        })
    }

    pub async fn decide_pairing(
        &self,
        by: &Principal,
        from: IpAddr,
        code: &str,
        decision: PairingDecision,
    ) -> Result<()> {
        by.may(Action::DecidePairing)?;
        let decision = match decision.agent_id {
            Some(agent) => {
                check::agent_ref("agent_id", &agent)?;
                record::PairingDecision::Confirm(self.own_agent(by, Action::DecidePairing, &agent).await?)
            }
            None => record::PairingDecision::Reject,
        };
        let code = self.typed_code(from, code)?;
        let decided = self.store().decide_pairing(self.context(by), code, decision).await;
        decided.map_err(|error| self.failed_redemption(from, error))
    }

    async fn attach_with(
        &self,
        from: IpAddr,
        proof: Proof,
        device_name: Option<String>,
        labels: Option<Json>,
    ) -> Result<AttachResponse> {
        let token = Kind::RuntimeToken.generate(self.env());
        let new = NewRuntime {
            kind: attache_store::record::RuntimeKind::Device,
            id: self.env().runtime_id(),
            token: token.hash(),
            proof,
            device_name,
            labels: labels.unwrap_or_else(Json::empty_object),
        };
        let attached = self.store().attach_runtime(new, self.now()).await;
        let runtime = attached.map_err(|error| self.failed_redemption(from, error))?;
        self.credentials().forget_agent(runtime.agent);
        let timeout = self.options().heartbeat_timeout.as_millis();
        let account = self.store().account(runtime.tenant, runtime.agent.into()).await;
        Ok(AttachResponse {
            agent_name: account.ok().map(|account| account.name),
            agent_id: runtime.agent,
            runtime_id: runtime.id,
            runtime_token: token.expose().clone(),
            heartbeat_timeout_ms: u64::try_from(timeout).unwrap_or(u64::MAX),
        })
    }

    pub(crate) fn hash_code(&self, code: &PairingCode) -> SecretHash {
        code.hash(self.pairing().key.expose())
    }

    fn typed_code(&self, from: IpAddr, code: &str) -> Result<SecretHash> {
        self.pairing().by_address.check(from)?;
        match PairingCode::parse(code) {
            Some(code) => Ok(self.hash_code(&code)),
            None => Err(Error::new(Code::PairingFailed, "This is not a pairing code; codes look like K7QM-2XHD.")),
        }
    }

    /// Only a wrong code counts against an address or an agent; waiting and success never do.
    pub(crate) fn failed_redemption(&self, from: IpAddr, error: attache_store::Error) -> Error {
        if let attache_store::Error::PairingInvalid { agent } = &error {
            self.pairing().by_address.mark(from);
            if let Some(agent) = *agent {
                if let Err(too_many) = self.pairing().by_agent.check(agent) {
                    return too_many;
                }
                self.pairing().by_agent.mark(agent);
            }
        }
        Error::from_store("pairing code or agent", error)
    }
}
