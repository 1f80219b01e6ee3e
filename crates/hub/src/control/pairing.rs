//! Pairing in both directions: a person creates a code for an agent, or a device shows a code that a person confirms.

use std::net::IpAddr;

use attache_protocol::{
    AgentId, Code, Json, Secret,
    pairing::PairingCode,
    secret::{Kind, SecretHash},
    wire::pairing::{
        AttachRequest, AttachResponse, PairingCodeResponse, PairingDecision, PairingPollRequest, PairingRequest,
        PairingRequestResponse, PairingRequestView,
    },
};
use attache_store::record::{self, AgentRef, NewPairingCode, NewPairingRequest, NewRuntime, PairingProof};

use crate::{
    Error, Handle, Principal, Result, check,
    error::about,
    identity::{
        Action,
        limiter::{ClientNetwork, CountedAttempt},
    },
};

const WHAT: &str = "pairing code or agent";

/// How often a device polls for the decision.
const POLL_INTERVAL_MS: u64 = 2000;

impl Handle {
    /// The only response that contains the code.
    pub async fn create_pairing_code(&self, by: &Principal, agent: &str) -> Result<PairingCodeResponse> {
        let agent = AgentRef::Id(self.may_pair(by, Action::CreatePairingCode, agent).await?.id);
        let code = PairingCode::generate(self.env());
        let expires_at = self.now().plus(self.options().pairing_ttl);
        let new = NewPairingCode { agent, maker: by.key(), code: self.hash_code(&code), expires_at };
        self.store().create_pairing_code(self.context(by), new).await.map_err(about("agent"))?;
        let (api_base, pin) = (self.options().reachable_origin(), self.options().needed_pin());
        Ok(PairingCodeResponse { pairing_code: code.shown(), expires_at, api_base, pin })
    }

    /// A device redeems the code a person gave it. The previously active runtime is superseded.
    pub async fn attach(&self, from: IpAddr, request: AttachRequest) -> Result<AttachResponse> {
        check::device(request.device_name.as_deref(), request.labels.as_ref())?;
        let slot = self.pairing().by_address.reserve(from)?;
        let Some(code) = PairingCode::parse(request.pairing_token.expose()) else {
            return Err(Error::invalid("pairing_token", "is not a pairing code; codes look like K7QM-2XHD"));
        };
        let proof = PairingProof::Code(self.hash_code(&code));
        let found = self.store().pairing(proof, self.now()).await;
        let (maker, _) = self.check_pairing(self.redeemed(slot, found)?).await?;
        let (token, new) = self.new_device(&maker, proof, request.device_name, request.labels);
        let attached = self.store().attach_runtime(new, self.now()).await;
        self.attached(attached.map_err(|error| self.failed_redemption(from, error))?, &token).await
    }

    /// A device without a code requests one to show.
    pub async fn request_pairing(&self, from: IpAddr, request: PairingRequest) -> Result<PairingRequestResponse> {
        check::device(request.device_name.as_deref(), request.labels.as_ref())?;
        self.pairing().requests.take(from)?;
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

    /// The device polls for a decision, and becomes the agent's runtime once it is confirmed.
    pub async fn poll_pairing(&self, from: IpAddr, request: PairingPollRequest) -> Result<AttachResponse> {
        // The token can't be guessed and devices poll repeatedly, so only wrong tokens count.
        let proof = PairingProof::Poll(request.poll_token.hash());
        let found = self.store().pairing(proof, self.now()).await;
        let (maker, _) = self.check_pairing(found.map_err(|error| self.failed_redemption(from, error))?).await?;
        let (token, new) = self.new_device(&maker, proof, None, None);
        let attached = self.store().attach_runtime(new, self.now()).await;
        self.attached(attached.map_err(|error| self.failed_redemption(from, error))?, &token).await
    }

    /// What a person sees before they confirm a device.
    pub async fn pairing_request(&self, by: &Principal, from: IpAddr, code: &str) -> Result<PairingRequestView> {
        by.may(Action::DecidePairing)?.for_unowned();
        let (code, slot) = self.typed_code(from, code)?;
        let found = self.store().pairing_request(code, self.now()).await;
        let found = self.redeemed(slot, found)?;
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
        by.may(Action::DecidePairing)?.for_unowned();
        let decision = match decision.agent_id {
            Some(agent) => {
                check::agent_ref("agent_id", &agent)?;
                let agent = AgentRef::Id(self.may_pair(by, Action::DecidePairing, &agent).await?.id);
                record::PairingDecision::Confirm { agent, maker: by.key() }
            }
            None => record::PairingDecision::Reject,
        };
        let (code, slot) = self.typed_code(from, code)?;
        let decided = self.store().decide_pairing(self.context(by), code, decision).await;
        self.redeemed(slot, decided)
    }

    /// The agent, if the caller may pair a device or program with it. What is paired works for the agent permanently
    /// and acts for its owner.
    async fn may_pair(&self, by: &Principal, action: Action, agent: &str) -> Result<record::AccountRecord> {
        self.check_endless(by).await?;
        let agent = self.find_agent(&by.may(action)?, agent).await?;
        let account = self.store().account(by.tenant, agent).await.map_err(about("agent"))?;
        self.check_caller(by, &account).await?;
        self.check_owner(by, account.owner).await?;
        Ok(account)
    }

    /// Whoever created the code or confirmed the device must still have that right: a key's actions can't outlast its
    /// rights. Returns the creator and the agent.
    pub(crate) async fn check_pairing(&self, found: record::Pairing) -> Result<(Principal, record::AccountRecord)> {
        let checked = async {
            let maker = found.maker.ok_or_else(|| Error::not_found("key"))?;
            let maker = self.check_maker(maker).await?;
            let account = self.may_pair(&maker, Action::CreatePairingCode, &found.agent.to_string()).await?;
            Ok((maker, account))
        };
        checked.await.map_err(|error: Error| match error.code.http_status() {
            500.. => error,
            _ => Error::new(
                Code::PairingFailed,
                "The creator of this pairing code is no longer allowed to pair the agent.",
            )
            .hint("Create a new code: `attache agents code NAME`."),
        })
    }

    fn new_device(
        &self,
        maker: &Principal,
        proof: PairingProof,
        device_name: Option<String>,
        labels: Option<Json>,
    ) -> (Secret<String>, NewRuntime) {
        let token = Kind::RuntimeToken.generate(self.env());
        let new = NewRuntime {
            kind: attache_store::record::RuntimeKind::Device,
            id: self.env().runtime_id(),
            token: token.hash(),
            proof,
            paired_by: maker.own_user(),
            device_name,
            labels: labels.unwrap_or_else(Json::empty_object),
        };
        (token, new)
    }

    async fn attached(&self, runtime: record::RuntimeRecord, token: &Secret<String>) -> Result<AttachResponse> {
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

    fn typed_code(&self, from: IpAddr, code: &str) -> Result<(SecretHash, CountedAttempt<'_, ClientNetwork>)> {
        let slot = self.pairing().by_address.reserve(from)?;
        match PairingCode::parse(code) {
            Some(code) => Ok((self.hash_code(&code), slot)),
            None => {
                slot.give_back();
                Err(Error::new(Code::PairingFailed, "This is not a pairing code; codes look like K7QM-2XHD."))
            }
        }
    }

    /// Only wrong codes count against an address or an agent. Waiting and success don't.
    pub(crate) fn redeemed<T>(
        &self,
        slot: CountedAttempt<'_, ClientNetwork>,
        outcome: std::result::Result<T, attache_store::Error>,
    ) -> Result<T> {
        match outcome {
            Err(attache_store::Error::PairingInvalid { agent }) => Err(self.wrong_code(agent)),
            other => {
                slot.give_back();
                other.map_err(|error| Error::from_store(WHAT, error))
            }
        }
    }

    /// The same where nothing was counted before.
    pub(crate) fn failed_redemption(&self, from: IpAddr, error: attache_store::Error) -> Error {
        let attache_store::Error::PairingInvalid { agent } = error else { return Error::from_store(WHAT, error) };
        match self.pairing().by_address.take(from) {
            Ok(_) => self.wrong_code(agent),
            Err(too_many) => too_many,
        }
    }

    fn wrong_code(&self, agent: Option<AgentId>) -> Error {
        match agent.map(|agent| self.pairing().by_agent.take(agent)) {
            Some(Err(too_many)) => too_many,
            Some(Ok(_)) | None => Error::from_store(WHAT, attache_store::Error::PairingInvalid { agent }),
        }
    }
}
