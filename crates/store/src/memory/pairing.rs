//! Pairing in both directions: a code that a person made, or one that a device shows and a person confirms.

use attache_protocol::{AgentId, Json, KeyId, Timestamp, secret::SecretHash, wire::runtime::RuntimeState};

use super::state::{Code, Decision, Request, State};
use crate::{
    Context, Error, Result, Woken, entry,
    record::{
        AgentRef, NewPairingCode, NewPairingRequest, NewRuntime, Pairing, PairingDecision, PairingRequest, Proof,
        Runtime, RuntimeKind,
    },
};

/// What a valid proof entitles a device to.
struct Entitled {
    agent: AgentId,
    device_name: Option<String>,
    labels: Json,
}

// === impl State ===

impl State {
    pub(super) fn create_pairing_code(&mut self, context: &Context, new: NewPairingCode) -> Result<()> {
        let agent = self.living_agent(context.tenant, &new.agent)?.id;
        self.no_peer(agent)?;
        self.codes.insert(new.code, Code { agent, maker: new.maker, expires_at: new.expires_at, used: false });
        let entry = entry::pairing_code_created(agent, new.expires_at);
        self.append(context.tenant, context.at, &context.actor, entry);
        Ok(())
    }

    pub(super) fn request_pairing(&mut self, new: NewPairingRequest) {
        self.requests.insert(new.code, Request { asked: new, decision: Decision::Pending });
    }

    pub(super) fn pairing_request(&self, code: SecretHash, at: Timestamp) -> Result<PairingRequest> {
        let request = self.requests.get(&code).ok_or(Error::PairingInvalid { agent: None })?;
        if request.decision != Decision::Pending || request.asked.expires_at <= at {
            return Err(Error::PairingInvalid { agent: None });
        }
        let NewPairingRequest { device_name, labels, address, expires_at, .. } = request.asked.clone();
        Ok(PairingRequest { device_name, labels, address, expires_at })
    }

    /// What the proof is for, as long as it can be redeemed.
    pub(super) fn pairing(&self, proof: Proof, at: Timestamp) -> Result<Pairing> {
        let (agent, maker) = match proof {
            Proof::Code(code) => self.open_code(code, at)?,
            Proof::Poll(poll) => self.confirmed(poll, at)?.1,
            Proof::Owner { tenant, agent } => (self.agent(tenant, &AgentRef::Id(agent))?.id, None),
        };
        Ok(Pairing { tenant: self.accounts[&agent].tenant, agent, maker })
    }

    fn open_code(&self, code: SecretHash, at: Timestamp) -> Result<(AgentId, Option<KeyId>)> {
        // The code that a device shows is for a person to confirm, and no proof.
        let shown_for = self.requests.get(&code).and_then(|request| request.decision.agent());
        let code = self.codes.get(&code).ok_or(Error::PairingInvalid { agent: shown_for })?;
        if code.used || code.expires_at <= at {
            return Err(Error::PairingInvalid { agent: Some(code.agent) });
        }
        Ok((code.agent, code.maker))
    }

    /// A device's request that a person has confirmed, with the agent and who confirmed it.
    fn confirmed(&self, poll: SecretHash, at: Timestamp) -> Result<(&Request, (AgentId, Option<KeyId>))> {
        let request = self.polled(poll).ok_or(Error::PairingInvalid { agent: None })?;
        let agent = request.decision.agent();
        if request.asked.expires_at <= at {
            return Err(Error::PairingInvalid { agent });
        }
        match request.decision {
            Decision::Used(_) => Err(Error::PairingInvalid { agent }),
            Decision::Rejected => Err(Error::PairingRejected),
            Decision::Pending => Err(Error::PairingPending),
            Decision::Confirmed(agent, maker) => Ok((request, (agent, maker))),
        }
    }

    pub(super) fn decide_pairing(
        &mut self,
        context: &Context,
        code: SecretHash,
        decision: &PairingDecision,
    ) -> Result<()> {
        self.pairing_request(code, context.at)?;
        self.known_tenant(context.tenant)?;
        let (decision, entry) = match decision {
            PairingDecision::Confirm { agent, maker } => {
                let agent = self.living_agent(context.tenant, agent)?.id;
                self.no_peer(agent)?;
                (Decision::Confirmed(agent, *maker), entry::pairing_confirmed(agent))
            }
            PairingDecision::Reject => (Decision::Rejected, entry::pairing_rejected()),
        };
        self.requests.get_mut(&code).expect("it was just found").decision = decision;
        self.append(context.tenant, context.at, &context.actor, entry);
        Ok(())
    }

    pub(super) fn attach_runtime(&mut self, new: NewRuntime, at: Timestamp) -> Result<Runtime> {
        let Entitled { agent, device_name, labels } = self.entitled(&new, at)?;
        let account = &self.accounts[&agent];
        if account.archived_at.is_some() {
            return Err(Error::AgentArchived);
        }
        let tenant = account.tenant;
        if new.kind != RuntimeKind::Hub {
            self.no_peer(agent)?;
        }
        self.use_up(new.proof, agent);
        let actor = entry::runtime_actor(new.id);
        if let Some(former) = self.active_runtime(agent) {
            self.end_runtime(former, RuntimeState::Superseded, &actor, at);
        }
        let runtime = Runtime {
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
        };
        self.append(tenant, at, &actor, entry::runtime_attached(agent, new.id, runtime.device_name.as_deref()));
        self.tokens.insert(new.token, new.id);
        self.runtimes.insert(new.id, runtime.clone());
        self.woken.push(Woken::Runtime(agent));
        Ok(runtime)
    }

    fn entitled(&self, new: &NewRuntime, at: Timestamp) -> Result<Entitled> {
        let agent = self.pairing(new.proof, at)?.agent;
        let (device_name, labels) = match new.proof {
            Proof::Code(_) | Proof::Owner { .. } => (new.device_name.clone(), new.labels.clone()),
            Proof::Poll(poll) => {
                let asked = &self.confirmed(poll, at)?.0.asked;
                (asked.device_name.clone(), asked.labels.clone())
            }
        };
        Ok(Entitled { agent, device_name, labels })
    }

    fn use_up(&mut self, proof: Proof, agent: AgentId) {
        match proof {
            Proof::Code(code) => self.codes.get_mut(&code).expect("it was just found").used = true,
            Proof::Owner { .. } => {}
            Proof::Poll(poll) => {
                let request = self.requests.values_mut().find(|request| request.asked.poll == poll);
                request.expect("it was just found").decision = Decision::Used(agent);
            }
        }
    }

    fn polled(&self, poll: SecretHash) -> Option<&Request> {
        self.requests.values().find(|request| request.asked.poll == poll)
    }
}

// === impl Decision ===

impl Decision {
    pub(super) fn agent(self) -> Option<AgentId> {
        match self {
            Self::Pending | Self::Rejected => None,
            Self::Confirmed(agent, _) | Self::Used(agent) => Some(agent),
        }
    }
}
