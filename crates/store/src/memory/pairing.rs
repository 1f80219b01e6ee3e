//! Pairing in both directions: a code created by a person, or one shown by a device and confirmed by a person.

use attache_protocol::{AgentId, Json, KeyId, Timestamp, secret::SecretHash, wire::runtime::RuntimeState};

use super::state::{ModelPairingCode, ModelPairingDecision, ModelPairingRequest, ModelState};
use crate::{
    Error, Result, WakeHint, WriteContext, entry,
    record::{
        AgentRef, NewPairingCode, NewPairingRequest, NewRuntime, Pairing, PairingDecision, PairingProof,
        PairingRequest, RuntimeKind, RuntimeRecord,
    },
};

/// What a valid proof entitles a device to.
struct ModelEntitlement {
    agent: AgentId,
    device_name: Option<String>,
    labels: Json,
}

// === impl ModelState ===

impl ModelState {
    pub(super) fn create_pairing_code(&mut self, context: &WriteContext, new: NewPairingCode) -> Result<()> {
        let agent = self.living_agent(context.tenant, &new.agent)?.id;
        self.no_peer(agent)?;
        self.codes
            .insert(new.code, ModelPairingCode { agent, maker: new.maker, expires_at: new.expires_at, used: false });
        let entry = entry::pairing_code_created(agent, new.expires_at);
        self.append(context.tenant, context.at, &context.actor, entry);
        Ok(())
    }

    pub(super) fn request_pairing(&mut self, new: NewPairingRequest) {
        self.requests.insert(new.code, ModelPairingRequest { asked: new, decision: ModelPairingDecision::Pending });
    }

    pub(super) fn pairing_request(&self, code: SecretHash, at: Timestamp) -> Result<PairingRequest> {
        let request = self.requests.get(&code).ok_or(Error::PairingInvalid { agent: None })?;
        if request.decision != ModelPairingDecision::Pending || request.asked.expires_at <= at {
            return Err(Error::PairingInvalid { agent: None });
        }
        let NewPairingRequest { device_name, labels, address, expires_at, .. } = request.asked.clone();
        Ok(PairingRequest { device_name, labels, address, expires_at })
    }

    /// The pairing behind a proof, as long as it can be redeemed.
    pub(super) fn pairing(&self, proof: PairingProof, at: Timestamp) -> Result<Pairing> {
        let (agent, maker) = match proof {
            PairingProof::Code(code) => self.open_code(code, at)?,
            PairingProof::Poll(poll) => self.confirmed(poll, at)?.1,
            PairingProof::Owner { tenant, agent } => (self.agent(tenant, &AgentRef::Id(agent))?.id, None),
        };
        Ok(Pairing { tenant: self.accounts[&agent].tenant, agent, maker })
    }

    fn open_code(&self, code: SecretHash, at: Timestamp) -> Result<(AgentId, Option<KeyId>)> {
        // The code a device shows is for a person to confirm, and not a proof.
        let shown_for = self.requests.get(&code).and_then(|request| request.decision.agent());
        let code = self.codes.get(&code).ok_or(Error::PairingInvalid { agent: shown_for })?;
        if code.used || code.expires_at <= at {
            return Err(Error::PairingInvalid { agent: Some(code.agent) });
        }
        Ok((code.agent, code.maker))
    }

    /// A device's confirmed request, with the agent and who confirmed it.
    fn confirmed(&self, poll: SecretHash, at: Timestamp) -> Result<(&ModelPairingRequest, (AgentId, Option<KeyId>))> {
        let request = self.polled(poll).ok_or(Error::PairingInvalid { agent: None })?;
        let agent = request.decision.agent();
        if request.asked.expires_at <= at {
            return Err(Error::PairingInvalid { agent });
        }
        match request.decision {
            ModelPairingDecision::Used(_) => Err(Error::PairingInvalid { agent }),
            ModelPairingDecision::Rejected => Err(Error::PairingRejected),
            ModelPairingDecision::Pending => Err(Error::PairingPending),
            ModelPairingDecision::Confirmed(agent, maker) => Ok((request, (agent, maker))),
        }
    }

    pub(super) fn decide_pairing(
        &mut self,
        context: &WriteContext,
        code: SecretHash,
        decision: &PairingDecision,
    ) -> Result<()> {
        self.pairing_request(code, context.at)?;
        self.known_tenant(context.tenant)?;
        let (decision, entry) = match decision {
            PairingDecision::Confirm { agent, maker } => {
                let agent = self.living_agent(context.tenant, agent)?.id;
                self.no_peer(agent)?;
                (ModelPairingDecision::Confirmed(agent, *maker), entry::pairing_confirmed(agent))
            }
            PairingDecision::Reject => (ModelPairingDecision::Rejected, entry::pairing_rejected()),
        };
        self.requests.get_mut(&code).expect("it was just found").decision = decision;
        self.append(context.tenant, context.at, &context.actor, entry);
        Ok(())
    }

    pub(super) fn attach_runtime(&mut self, new: NewRuntime, at: Timestamp) -> Result<RuntimeRecord> {
        let ModelEntitlement { agent, device_name, labels } = self.check_proof(&new, at)?;
        let account = &self.accounts[&agent];
        if account.archived_at.is_some() {
            return Err(Error::AgentArchived);
        }
        let tenant = account.tenant;
        if new.kind != RuntimeKind::Hub {
            self.no_peer(agent)?;
            account.check_paired_by(new.paired_by)?;
        }
        self.use_up(new.proof, agent);
        let actor = entry::runtime_actor(new.id);
        if let Some(former) = self.active_runtime(agent) {
            self.end_runtime(former, RuntimeState::Superseded, &actor, at);
        }
        let runtime = RuntimeRecord {
            id: new.id,
            kind: new.kind,
            tenant,
            agent,
            state: RuntimeState::Active,
            online: false,
            device_name,
            labels,
            attached_at: at,
            last_heartbeat_at: None,
            ended_at: None,
            token_rotated_at: None,
            token_reused_at: None,
            extensions: None,
            paired_by: new.paired_by,
        };
        self.append(tenant, at, &actor, entry::runtime_attached(agent, new.id, runtime.device_name.as_deref()));
        self.tokens.insert(new.token, new.id);
        self.runtimes.insert(new.id, runtime.clone());
        self.woken.push(WakeHint::Runtime(agent));
        Ok(runtime)
    }

    fn check_proof(&self, new: &NewRuntime, at: Timestamp) -> Result<ModelEntitlement> {
        let agent = self.pairing(new.proof, at)?.agent;
        let (device_name, labels) = match new.proof {
            PairingProof::Code(_) | PairingProof::Owner { .. } => (new.device_name.clone(), new.labels.clone()),
            PairingProof::Poll(poll) => {
                let asked = &self.confirmed(poll, at)?.0.asked;
                (asked.device_name.clone(), asked.labels.clone())
            }
        };
        Ok(ModelEntitlement { agent, device_name, labels })
    }

    fn use_up(&mut self, proof: PairingProof, agent: AgentId) {
        match proof {
            PairingProof::Code(code) => self.codes.get_mut(&code).expect("it was just found").used = true,
            PairingProof::Owner { .. } => {}
            PairingProof::Poll(poll) => {
                let request = self.requests.values_mut().find(|request| request.asked.poll == poll);
                request.expect("it was just found").decision = ModelPairingDecision::Used(agent);
            }
        }
    }

    fn polled(&self, poll: SecretHash) -> Option<&ModelPairingRequest> {
        self.requests.values().find(|request| request.asked.poll == poll)
    }
}

// === impl ModelPairingDecision ===

impl ModelPairingDecision {
    pub(super) fn agent(self) -> Option<AgentId> {
        match self {
            Self::Pending | Self::Rejected => None,
            Self::Confirmed(agent, _) | Self::Used(agent) => Some(agent),
        }
    }
}
