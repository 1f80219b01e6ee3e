//! Steps around accounts, pairing, runtimes and keys.

use std::time::Duration;

use attache_protocol::{
    AgentId, DelegationId, KeyId, PasskeyId, Timestamp, UserId,
    wire::{
        account::{ApprovalConfirmation, Callers, OnLimit},
        key::Role,
    },
};

use super::{HOUR, Kind, StepGenerator};
use crate::{
    conformance::step::StoreStep,
    memory::MemoryStore,
    record::{
        AccountPatch, AgentRef, ArchivedNames, AuditEvent, NewAccount, NewKey, NewPairingCode, NewPairingRequest,
        NewRuntime, PairingDecision, PairingProof, RuntimeKind, SessionOpening, passkey::NewPasskey,
    },
};

/// Only a few, so that they collide, in an order that a sorting engine may get wrong.
const NAMES: [&str; 7] = ["builder", "Builder", "böse", "b", "日本", "z'", "crawler"];

// === impl StepGenerator ===

impl StepGenerator {
    pub(super) fn ensure_tenant(&self) -> StoreStep {
        // Once a tenant exists, every other id maps to it.
        let id = if self.known.agents.is_empty() { self.tenant } else { self.draw.env.tenant_id() };
        StoreStep::EnsureTenant { id, name: self.draw.text(), at: self.at() }
    }

    pub(super) fn create_tenant(&self) -> StoreStep {
        StoreStep::CreateTenant { id: self.foreign, name: self.draw.text(), at: self.at() }
    }

    pub(super) fn create_account(&self) -> StoreStep {
        let new = NewAccount {
            archived_names: self.archived_names(),
            author: self.author(),
            approvals: self.draw.maybe_json(),
            id: self.draw.env.agent_id(),
            name: self.name(),
            description: self.draw.maybe_text(),
            instructions: self.draw.maybe_text(),
            skills: self.draw.json(),
            a2a: self.draw.maybe_json(),
            callers: self.callers(),
            run_timeout: self.run_timeout(),
            on_limit: OnLimit::default(),
            confirm_approvals: ApprovalConfirmation::default(),
        };
        StoreStep::CreateAccount(self.context(), new)
    }

    pub(super) fn update_account(&self) -> StoreStep {
        let patch = AccountPatch {
            archived_names: self.archived_names(),
            author: self.author(),
            owner: self.draw.percent(30).then(|| self.draw.percent(80).then(|| self.user())),
            approvals: self.draw.maybe_json(),
            name: self.draw.percent(50).then(|| self.name()),
            description: self.draw.maybe_text(),
            instructions: self.draw.maybe_text(),
            skills: self.draw.maybe_json(),
            a2a: self.draw.maybe_json(),
            callers: self.draw.percent(30).then(|| self.callers()),
            run_timeout: self.draw.percent(30).then(|| self.run_timeout()),
            // Derived from the time: another draw would change every following sequence.
            confirm_approvals: ApprovalConfirmation::ALL
                .get(usize::try_from(self.now().millis() % 11).unwrap_or(0))
                .copied(),
            on_limit: OnLimit::ALL.get(usize::try_from(self.now().millis() % 4).unwrap_or(0)).copied(),
        };
        StoreStep::UpdateAccount(self.context(), self.agent_ref(), patch)
    }

    /// Derived from the time: another draw would change every following sequence.
    fn archived_names(&self) -> ArchivedNames {
        if self.now().millis() % 8 == 0 { ArchivedNames::All } else { ArchivedNames::Own }
    }

    /// Derived from the time, too.
    fn author(&self) -> Option<UserId> {
        let users = &self.known.users;
        usize::try_from(self.now().millis()).ok().and_then(|millis| users.get(millis % (users.len() + 1)).copied())
    }

    fn callers(&self) -> Callers {
        if self.draw.percent(30) { Callers::Owner } else { Callers::Everyone }
    }

    fn run_timeout(&self) -> Option<Duration> {
        self.draw.percent(30).then(|| Duration::from_millis(1000 + self.draw.below(100_000)))
    }

    pub(super) fn archive_account(&self) -> StoreStep {
        StoreStep::ArchiveAccount(self.context(), self.agent_ref())
    }

    pub(super) fn create_pairing_code(&self) -> StoreStep {
        let (agent, code, expires_at) = (self.agent_ref(), self.draw.secret(), self.pairing_expiry());
        let new = NewPairingCode { agent, code, expires_at, maker: self.maker() };
        StoreStep::CreatePairingCode(self.context(), new)
    }

    pub(super) fn request_pairing(&self) -> StoreStep {
        let new = NewPairingRequest {
            code: self.draw.secret(),
            poll: self.draw.secret(),
            device_name: self.draw.maybe_text(),
            labels: self.draw.json(),
            address: self.draw.text(),
            expires_at: self.pairing_expiry(),
        };
        StoreStep::RequestPairing(new, self.at())
    }

    pub(super) fn read_pairing(&self) -> StoreStep {
        if self.draw.below(2) == 0 {
            return StoreStep::PairingRequest(self.shown_code(), self.at());
        }
        let proof = match self.draw.below(4) {
            0 => PairingProof::Poll(
                self.draw.recent(&self.known.requests).map_or_else(|| self.draw.secret(), |(_, poll)| poll),
            ),
            _ => PairingProof::Code(self.draw.recent(&self.known.codes).unwrap_or_else(|| self.shown_code())),
        };
        StoreStep::PairingCode(proof, self.at())
    }

    fn maker(&self) -> Option<KeyId> {
        self.draw.percent(50).then(|| self.draw.recent(&self.known.keys)).flatten()
    }

    pub(super) fn decide_pairing(&self) -> StoreStep {
        let decision = match self.draw.below(10) {
            0..8 => PairingDecision::Confirm { agent: self.agent_ref(), maker: self.maker() },
            _ => PairingDecision::Reject,
        };
        StoreStep::DecidePairing(self.context(), self.shown_code(), decision)
    }

    pub(super) fn attach_runtime(&self) -> StoreStep {
        let unknown = self.draw.secret();
        let proof = match self.draw.below(100) {
            // Mostly the newest of both kinds: older ones are used or expired.
            0..50 => self.known.newest_proof.unwrap_or(PairingProof::Code(unknown)),
            50..75 => PairingProof::Code(self.draw.recent(&self.known.codes).unwrap_or(unknown)),
            75..92 => PairingProof::Poll(self.draw.recent(&self.known.requests).map_or(unknown, |(_, poll)| poll)),
            // The code a device shows is not a proof, and neither is a poll token used as a code.
            92..95 => PairingProof::Code(self.draw.recent(&self.known.requests).map_or(unknown, |(code, _)| code)),
            95..97 => PairingProof::Poll(self.draw.recent(&self.known.codes).unwrap_or(unknown)),
            97..98 => PairingProof::Code(unknown),
            _ => PairingProof::Owner { tenant: self.tenant(), agent: self.agent() },
        };
        let kind = if self.draw.percent(80) { RuntimeKind::Device } else { RuntimeKind::AgentKey };
        let new = NewRuntime {
            kind,
            id: self.draw.env.runtime_id(),
            token: self.draw.secret(),
            proof,
            paired_by: self.draw.percent(80).then(|| self.user()),
            device_name: self.draw.maybe_text(),
            labels: self.draw.json(),
        };
        StoreStep::AttachRuntime(new, self.at())
    }

    /// Starts with a code. The following steps are planned.
    pub(super) fn pair(&mut self) -> StoreStep {
        if self.draw.percent(65) {
            self.planned.push(Kind::AttachRuntime);
            // Sometimes the agent is removed in between.
            self.planned.extend(self.draw.percent(5).then_some(Kind::ArchiveAccount));
            self.create_pairing_code()
        } else {
            self.planned.extend([Kind::AttachRuntime, Kind::DecidePairing]);
            self.request_pairing()
        }
    }

    pub(super) async fn revoke_runtime(&self, model: &MemoryStore) -> StoreStep {
        StoreStep::RevokeRuntime(self.context(), self.some_runtime(model).await)
    }

    pub(super) fn create_key(&self) -> StoreStep {
        let opening = self.draw.percent(40).then(|| SessionOpening {
            opener: self.draw.percent(60).then(|| self.draw.recent(&self.known.keys)).flatten(),
            address: self.draw.maybe_text(),
            passkey: None,
        });
        let is_issued = opening.is_none() && self.draw.percent(30);
        let new = NewKey {
            user: self.draw.percent(if self.known.users.is_empty() { 3 } else { 75 }).then(|| self.user()),
            scopes: self.scopes(),
            id: self.draw.env.key_id(),
            opening,
            issuer: is_issued.then(|| self.draw.recent(&self.known.keys)).flatten(),
            agent: self.draw.percent(10).then(|| self.agent()),
            name: self.draw.text(),
            role: self.draw.one_of(&Role::ALL).unwrap_or(Role::Viewer),
            secret: self.draw.secret(),
            expires_at: self.draw.percent(50).then(|| self.now().plus(Duration::from_millis(HOUR))),
        };
        StoreStep::CreateKey(self.context(), new)
    }

    /// A session that someone opened with a passkey, usually of their own.
    fn passkey_session(&self) -> StoreStep {
        let (passkey, owner) = self.some_passkey();
        let opening = SessionOpening { opener: None, address: self.draw.maybe_text(), passkey: Some(passkey) };
        let new = NewKey {
            user: Some(if self.draw.percent(90) { owner } else { self.user() }),
            scopes: None,
            id: self.draw.env.key_id(),
            opening: Some(opening),
            issuer: None,
            agent: None,
            name: self.draw.text(),
            role: self.draw.one_of(&Role::ALL).unwrap_or(Role::Viewer),
            secret: self.draw.secret(),
            expires_at: None,
        };
        StoreStep::CreateKey(self.context(), new)
    }

    pub(super) fn passkey(&self) -> StoreStep {
        let (passkey, owner) = self.some_passkey();
        match self.draw.below(100) {
            0..35 => {
                let new = NewPasskey {
                    id: self.draw.env.passkey_id(),
                    user: self.user(),
                    name: self.draw.text(),
                    // Few, so that they meet.
                    credential: vec![u8::try_from(self.draw.below(12)).unwrap_or_default()],
                    public_key: self.draw.bytes::<4>().to_vec(),
                    counter: u32::try_from(self.draw.below(3)).unwrap_or_default(),
                };
                StoreStep::AddPasskey(self.context(), new)
            }
            35..60 => self.passkey_session(),
            60..75 => {
                let counter = u32::try_from(self.draw.below(6)).unwrap_or_default();
                StoreStep::UsePasskey { tenant: self.tenant(), passkey, counter, at: self.at() }
            }
            75..85 => {
                let user = if self.draw.percent(90) { owner } else { self.user() };
                StoreStep::RemovePasskey(self.context(), user, passkey)
            }
            85..93 => StoreStep::Passkeys(self.tenant(), self.user()),
            _ => StoreStep::Passkey(self.tenant(), vec![u8::try_from(self.draw.below(12)).unwrap_or_default()]),
        }
    }

    fn some_passkey(&self) -> (PasskeyId, UserId) {
        let known = self.draw.recent(&self.known.passkeys).filter(|_| self.draw.percent(95));
        known.unwrap_or_else(|| (self.draw.env.passkey_id(), self.user()))
    }

    pub(super) fn record_event(&self) -> StoreStep {
        let (tunnel, expires_at) = (self.draw.env.tunnel_id(), self.now());
        let delegation = DelegationId::from_uuid(tunnel.uuid());
        let event = match self.draw.below(4) {
            0 => AuditEvent::LoginLinkCreated {
                user: self.draw.percent(70).then(|| self.user()),
                role: self.draw.one_of(&Role::ALL).unwrap_or(Role::Viewer),
                expires_at,
            },
            1 => AuditEvent::TokenCreated {
                key: self.draw.env.key_id(),
                id: self.draw.text(),
                audience: self.draw.maybe_text(),
                role: self.draw.one_of(&Role::ALL).unwrap_or(Role::Viewer),
                scopes: self.scopes(),
                expires_at,
            },
            2 => AuditEvent::TunnelOpened { tunnel, delegation, expires_at, max_bytes: self.draw.below(u64::MAX) },
            _ => AuditEvent::TunnelClosed { tunnel, delegation, bytes: self.draw.below(1_000) },
        };
        StoreStep::RecordEvent(self.context(), event)
    }

    pub(super) fn revoke_key(&self) -> StoreStep {
        let unknown = self.draw.env.key_id();
        let key = if self.draw.percent(5) { None } else { self.draw.recent(&self.known.keys) };
        StoreStep::RevokeKey(self.context(), key.unwrap_or(unknown))
    }

    pub(super) fn agent(&self) -> AgentId {
        let unknown = self.draw.env.agent_id();
        if self.draw.percent(3) { unknown } else { self.draw.recent(&self.known.agents).unwrap_or(unknown) }
    }

    pub(super) fn agent_ref(&self) -> AgentRef {
        match self.draw.below(100) {
            0..5 => AgentRef::Name(self.name()),
            5..25 => AgentRef::Name(self.known.names.last().cloned().unwrap_or_else(|| self.name())),
            _ => AgentRef::Id(self.agent()),
        }
    }

    fn name(&self) -> String {
        self.draw.one_of(&NAMES).unwrap_or_default().to_owned()
    }

    /// The code of a pairing request, or an invalid one.
    fn shown_code(&self) -> attache_protocol::secret::SecretHash {
        let unknown = self.draw.secret();
        match self.draw.below(100) {
            0..50 => self.known.requests.last().map_or(unknown, |(code, _)| *code),
            50..90 => self.draw.recent(&self.known.requests).map_or(unknown, |(code, _)| code),
            90..95 => self.draw.recent(&self.known.codes).unwrap_or(unknown),
            _ => unknown,
        }
    }

    /// Usually ten minutes. Sometimes the code expires at once.
    fn pairing_expiry(&self) -> Timestamp {
        let life = if self.draw.percent(10) { 0 } else { 600_000 };
        self.now().plus(Duration::from_millis(life))
    }
}
