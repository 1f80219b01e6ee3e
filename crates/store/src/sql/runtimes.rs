//! Writes on runtimes: pairing, heartbeats, supersession, revocation.

use std::time::Duration;

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{
    AgentId, Json, KeyId, RunId, RuntimeId, TenantId, Timestamp, rules::run::RunCommand, secret::SecretHash,
    wire::runtime::RuntimeState,
};
use rusqlite::params;

use super::{
    journal::{LogStamp, TransitionWrites},
    lookup_cache::CachedRuntime,
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WakeHint, WriteContext, entry,
    record::{
        AgentRef, HeartbeatResult, LeaseTimes, NewPairingCode, NewPairingRequest, NewRuntime, Pairing, PairingDecision,
        PairingProof, PairingRequest, REPLACED_TOKEN_TTL, REUSE_INTERVAL, RuntimeKind, RuntimeRecord, TokenChange,
    },
};

/// States of a pairing code.
const OPEN: i64 = 0;
const CONFIRMED: i64 = 1;
const REJECTED: i64 = 2;
const USED: i64 = 3;

const PAIRING: &str = "code, poll is not null, tenant, agent, device_name, labels, address, expires, state, maker \
     from pairing_codes";

struct PairingRow {
    code: SecretHash,
    /// Shown by a device, not created for an agent.
    device_first: bool,
    agent: Option<(TenantId, AgentId)>,
    device_name: Option<String>,
    labels: Option<Json>,
    address: Option<String>,
    expires_at: Timestamp,
    state: i64,
    maker: Option<KeyId>,
}

/// What a valid proof entitles a device to.
struct PairingEntitlement {
    tenant: TenantId,
    agent: AgentId,
    /// The code that is used up by it.
    code: Option<SecretHash>,
    device_name: Option<String>,
    labels: Json,
}

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn create_pairing_code(&mut self, context: &WriteContext, new: &NewPairingCode) -> Result<()> {
        let account = self.account(context.tenant, &new.agent)?;
        if account.archived_at.is_some() {
            return Err(Error::AgentArchived);
        }
        self.no_peer(account.id)?;
        self.connection.execute(
            "insert into pairing_codes (code, tenant, agent, expires, state, maker) values (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                new.code.0,
                IdBytes(context.tenant.uuid()),
                IdBytes(account.id.uuid()),
                new.expires_at.millis(),
                OPEN,
                new.maker.map(|maker| IdBytes(maker.uuid())),
            ],
        )?;
        let created = entry::pairing_code_created(account.id, new.expires_at);
        self.log(context.tenant, context.stamp(), &created, None).map(drop)
    }

    pub(super) fn request_pairing(&mut self, new: &NewPairingRequest) -> Result<()> {
        self.connection.execute(
            "insert into pairing_codes (code, poll, device_name, labels, address, expires, state)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                new.code.0,
                new.poll.0,
                new.device_name,
                new.labels.get(),
                new.address,
                new.expires_at.millis(),
                OPEN
            ],
        )?;
        Ok(())
    }

    pub(super) fn decide_pairing(
        &mut self,
        context: &WriteContext,
        code: SecretHash,
        decision: &PairingDecision,
    ) -> Result<()> {
        open_request(self.connection, code, context.at)?;
        let (state, agent, maker, logged) = match decision {
            PairingDecision::Confirm { agent, maker } => {
                let account = self.account(context.tenant, agent)?;
                if account.archived_at.is_some() {
                    return Err(Error::AgentArchived);
                }
                self.no_peer(account.id)?;
                (CONFIRMED, Some(account.id), *maker, entry::pairing_confirmed(account.id))
            }
            PairingDecision::Reject => (REJECTED, None, None, entry::pairing_rejected()),
        };
        self.connection.execute(
            "update pairing_codes set state = ?2, tenant = ?3, agent = ?4, maker = ?5 where code = ?1",
            params![
                code.0,
                state,
                IdBytes(context.tenant.uuid()),
                agent.map(|agent| IdBytes(agent.uuid())),
                maker.map(|maker| IdBytes(maker.uuid())),
            ],
        )?;
        self.log(context.tenant, context.stamp(), &logged, None).map(drop)
    }

    pub(super) fn attach_runtime(&mut self, new: &NewRuntime, at: Timestamp) -> Result<RuntimeRecord> {
        let PairingEntitlement { tenant, agent, code, device_name, labels } = self.check_proof(new, at)?;
        let account = self.account(tenant, &AgentRef::Id(agent))?;
        if account.archived_at.is_some() {
            return Err(Error::AgentArchived);
        }
        if new.kind != RuntimeKind::Hub {
            self.no_peer(agent)?;
            account.check_paired_by(new.paired_by)?;
        }
        if let Some(code) = code {
            self.connection.execute("update pairing_codes set state = ?2 where code = ?1", params![code.0, USED])?;
        }
        let actor = entry::runtime_actor(new.id);
        let stamp = LogStamp { actor: &actor, at };
        if let Some(old) = account.runtime {
            self.end_runtime(&old, RuntimeState::Superseded, at)?;
            self.log(tenant, stamp, &entry::runtime_superseded(agent, old.id), None)?;
            self.lose_claims(old.id, stamp)?;
        }
        self.connection.execute(
            "insert into agent_runtimes (id, tenant, agent, token, state, online, device_name, labels, attached, kind,
                paired_by)
             values (?1, ?2, ?3, ?4, 0, 0, ?5, ?6, ?7, ?8, ?9)",
            params![
                IdBytes(new.id.uuid()),
                IdBytes(tenant.uuid()),
                IdBytes(agent.uuid()),
                new.token.0,
                device_name,
                labels.get(),
                at.millis(),
                rows::runtime_kind_number(new.kind),
                new.paired_by.map(|user| IdBytes(user.uuid())),
            ],
        )?;
        self.log(tenant, stamp, &entry::runtime_attached(agent, new.id, device_name.as_deref()), None)?;
        self.directory.accounts_changed();
        self.woken.push(WakeHint::Runtime(agent));
        read_runtime(self.connection, tenant, new.id)
    }

    /// What the device may become now.
    fn check_proof(&self, new: &NewRuntime, at: Timestamp) -> Result<PairingEntitlement> {
        let given = |tenant, agent, code| PairingEntitlement {
            tenant,
            agent,
            code,
            device_name: new.device_name.clone(),
            labels: new.labels.clone(),
        };
        let (pairing, tenant, agent) = match new.proof {
            PairingProof::Owner { tenant, agent } => return Ok(given(tenant, agent, None)),
            PairingProof::Code(code) => proven(self.connection, new.proof, code, at)?,
            PairingProof::Poll(poll) => proven(self.connection, new.proof, poll, at)?,
        };
        if !pairing.device_first {
            return Ok(given(tenant, agent, Some(pairing.code)));
        }
        let labels = pairing.labels.unwrap_or_else(Json::empty_object);
        Ok(PairingEntitlement { tenant, agent, code: Some(pairing.code), device_name: pairing.device_name, labels })
    }

    pub(super) fn revoke_runtime(&mut self, context: &WriteContext, id: RuntimeId) -> Result<RuntimeRecord> {
        let runtime = read_runtime(self.connection, context.tenant, id)?;
        if runtime.state != RuntimeState::Active {
            return Ok(runtime);
        }
        self.end_runtime(&runtime, RuntimeState::Revoked, context.at)?;
        self.log(context.tenant, context.stamp(), &entry::runtime_revoked(runtime.agent, id), None)?;
        self.lose_claims(id, context.stamp())?;
        read_runtime(self.connection, context.tenant, id)
    }

    pub(super) fn change_token(&mut self, id: RuntimeId, change: TokenChange, at: Timestamp) -> Result<RuntimeRecord> {
        self.working(id)?;
        let RuntimeRecord { tenant, agent, token_reused_at, .. } = any_runtime(self.connection, id)?;
        let key = IdBytes(id.uuid());
        let actor = entry::runtime_actor(id);
        let stamp = LogStamp { actor: &actor, at };
        match change {
            TokenChange::Offer(token) => {
                self.connection
                    .execute("update agent_runtimes set token_offered = ?2 where id = ?1", params![key, token.0])?;
            }
            TokenChange::Adopt(token) => {
                let is_offered = "select 1 from agent_runtimes where id = ?1 and token_offered = ?2";
                let offered = self.connection.prepare_cached(is_offered)?.exists(params![key, token.0])?;
                if offered {
                    let forgotten = at.minus(REPLACED_TOKEN_TTL).millis();
                    self.connection.execute(
                        "delete from replaced_tokens where runtime = ?1 and replaced <= ?2",
                        params![key, forgotten],
                    )?;
                    self.connection.execute(
                        "insert into replaced_tokens (token, runtime, replaced)
                         select token, id, ?2 from agent_runtimes where id = ?1",
                        params![key, at.millis()],
                    )?;
                    self.connection.execute(
                        "update agent_runtimes set token = token_offered, token_offered = null, token_rotated = ?2
                         where id = ?1",
                        params![key, at.millis()],
                    )?;
                    self.log(tenant, stamp, &entry::runtime_token_rotated(agent, id), None)?;
                }
            }
            TokenChange::Reuse if token_reused_at.is_some_and(|last| at.since(last) < REUSE_INTERVAL) => {}
            TokenChange::Reuse => {
                self.connection
                    .execute("update agent_runtimes set token_reused = ?2 where id = ?1", params![key, at.millis()])?;
                self.log(tenant, stamp, &entry::runtime_token_reused(agent, id), None)?;
                self.woken.push(WakeHint::Runtime(agent));
            }
        }
        any_runtime(self.connection, id)
    }

    fn end_runtime(&mut self, runtime: &RuntimeRecord, state: RuntimeState, at: Timestamp) -> Result<()> {
        self.connection.execute(
            "update agent_runtimes set state = ?2, online = 0, ended = ?3 where id = ?1",
            params![IdBytes(runtime.id.uuid()), rows::runtime_state_number(state), at.millis()],
        )?;
        self.directory.accounts_changed();
        self.woken.push(WakeHint::Runtime(runtime.agent));
        Ok(())
    }

    fn lose_claims(&mut self, runtime: RuntimeId, stamp: LogStamp<'_>) -> Result<()> {
        for row in self.cache.claims(runtime) {
            let Some(hot) = self.live_at(row, stamp.at)? else { continue };
            self.step(&hot, &RunCommand::Lose, stamp, TransitionWrites::default())?;
        }
        Ok(())
    }

    pub(super) fn heartbeat(
        &mut self,
        id: RuntimeId,
        running: Option<&[RunId]>,
        leases: LeaseTimes,
        at: Timestamp,
    ) -> Result<HeartbeatResult> {
        let actor = entry::runtime_actor(id);
        let stamp = LogStamp { actor: &actor, at };
        self.runtime_seen(id, stamp)?;
        self.beat_claims(id, running, leases, stamp)
    }

    pub(super) fn disconnect_runtime(&mut self, id: RuntimeId, at: Timestamp) -> Result<()> {
        let agent = self.working(id)?;
        let (tenant, online) = self
            .connection
            .prepare_cached("select tenant, online from agent_runtimes where id = ?1")?
            .query_row([IdBytes(id.uuid())], |row| Ok((rows::tenant_id(row.get(0)?), row.get(1)?)))?;
        let actor = entry::runtime_actor(id);
        if online { self.runtime_gone(tenant, agent, id, LogStamp { actor: &actor, at }) } else { Ok(()) }
    }

    pub(super) fn runtime_gone(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        id: RuntimeId,
        stamp: LogStamp<'_>,
    ) -> Result<()> {
        self.connection
            .prepare_cached("update agent_runtimes set online = 0 where id = ?1")?
            .execute([IdBytes(id.uuid())])?;
        self.log(tenant, stamp, &entry::runtime_offline(agent, id), None)?;
        self.woken.push(WakeHint::Runtime(agent));
        Ok(())
    }

    /// A runtime that is allowed to work.
    pub(super) fn working(&mut self, runtime: RuntimeId) -> Result<AgentId> {
        let CachedRuntime { agent, state } = self.directory.runtime(self.connection, runtime)?;
        if state == RuntimeState::Active { Ok(agent) } else { Err(Error::RuntimeEnded(state)) }
    }

    /// Marks a runtime as alive, if it is active.
    pub(super) fn runtime_seen(&mut self, id: RuntimeId, stamp: LogStamp<'_>) -> Result<()> {
        let (tenant, agent, state, online): (_, _, _, bool) = self
            .connection
            .prepare_cached("select tenant, agent, state, online from agent_runtimes where id = ?1")?
            .query_row([IdBytes(id.uuid())], |row| {
                Ok((
                    rows::tenant_id(row.get(0)?),
                    rows::agent_id(row.get(1)?),
                    rows::runtime_state(row, 2)?,
                    row.get(3)?,
                ))
            })
            .optional()?
            .ok_or(Error::NotFound)?;
        if state != RuntimeState::Active {
            return Err(Error::RuntimeEnded(state));
        }
        self.connection
            .prepare_cached("update agent_runtimes set heartbeat = ?2, online = 1 where id = ?1")?
            .execute(params![IdBytes(id.uuid()), stamp.at.millis()])?;
        if !online {
            self.log(tenant, stamp, &entry::runtime_online(agent, id), None)?;
            self.woken.push(WakeHint::Runtime(agent));
        }
        Ok(())
    }

    pub(super) fn renew_claims(&mut self, lease: Duration, at: Timestamp) -> Result<()> {
        let running: Vec<i64> = self.cache.running().collect();
        for row in running {
            let Some(hot) = self.live_at(row, at)? else { continue };
            let Some(runtime) = hot.state.claim().map(|claim| claim.runtime) else { continue };
            let stamp = LogStamp { actor: WriteContext::SYSTEM, at };
            self.step(&hot, &RunCommand::Renew { runtime, lease }, stamp, TransitionWrites::default())?;
        }
        Ok(())
    }

    fn beat_claims(
        &mut self,
        id: RuntimeId,
        running: Option<&[RunId]>,
        leases: LeaseTimes,
        stamp: LogStamp<'_>,
    ) -> Result<HeartbeatResult> {
        let mut beat = HeartbeatResult::default();
        let mut held = Vec::new();
        for row in self.cache.claims(id) {
            let Some(hot) = self.live_at(row, stamp.at)? else { continue };
            held.push(hot.id);
            let named = running.is_none_or(|running| running.contains(&hot.id));
            let young = hot.claimed.is_some_and(|claimed| stamp.at.since(claimed) < leases.grace);
            if named {
                self.step(
                    &hot,
                    &RunCommand::Renew { runtime: id, lease: leases.lease },
                    stamp,
                    TransitionWrites::default(),
                )?;
            } else if !young {
                self.step(&hot, &RunCommand::Lose, stamp, TransitionWrites::default())?;
                beat.lost.push(hot.id);
            }
        }
        beat.not_held = running.unwrap_or_default().iter().filter(|run| !held.contains(run)).copied().collect();
        Ok(beat)
    }
}

pub(super) fn read_runtime(connection: &Connection, tenant: TenantId, id: RuntimeId) -> Result<RuntimeRecord> {
    connection
        .prepare_cached(&format!("select {} where id = ?1 and tenant = ?2", rows::RUNTIME))?
        .query_row([IdBytes(id.uuid()), IdBytes(tenant.uuid())], rows::runtime)
        .optional()?
        .ok_or(Error::NotFound)
}

/// A runtime of any tenant.
pub(super) fn any_runtime(connection: &Connection, id: RuntimeId) -> Result<RuntimeRecord> {
    connection
        .prepare_cached(&format!("select {} where id = ?1", rows::RUNTIME))?
        .query_row([IdBytes(id.uuid())], rows::runtime)
        .optional()?
        .ok_or(Error::NotFound)
}

/// A device's request that can still be decided.
pub(super) fn open_request(connection: &Connection, code: SecretHash, at: Timestamp) -> Result<PairingRequest> {
    let found = connection
        .prepare_cached(&format!("select {PAIRING} where code = ?1"))?
        .query_row([code.0], pairing)
        .optional()?
        .filter(|pairing| pairing.device_first && pairing.state == OPEN && pairing.expires_at > at)
        .ok_or(Error::PairingInvalid { agent: None })?;
    Ok(PairingRequest {
        device_name: found.device_name,
        labels: found.labels.unwrap_or_else(Json::empty_object),
        address: found.address.unwrap_or_default(),
        expires_at: found.expires_at,
    })
}

/// The target of a proof that a device can still redeem.
pub(super) fn redeemable(connection: &Connection, proof: PairingProof, at: Timestamp) -> Result<Pairing> {
    let (found, tenant, agent) = match proof {
        PairingProof::Owner { tenant, agent } => return Ok(Pairing { tenant, agent, maker: None }),
        PairingProof::Code(secret) | PairingProof::Poll(secret) => proven(connection, proof, secret, at)?,
    };
    Ok(Pairing { tenant, agent, maker: found.maker })
}

/// The row of a redeemable proof, and its agent.
fn proven(
    connection: &Connection,
    proof: PairingProof,
    secret: SecretHash,
    at: Timestamp,
) -> Result<(PairingRow, TenantId, AgentId)> {
    let column = if matches!(proof, PairingProof::Poll(_)) { "poll" } else { "code" };
    let found = connection
        .prepare_cached(&format!("select {PAIRING} where {column} = ?1"))?
        .query_row([secret.0], pairing)
        .optional()?
        .ok_or(Error::PairingInvalid { agent: None })?;
    let invalid = Error::PairingInvalid { agent: found.agent.map(|(_, agent)| agent) };
    match (proof, found.device_first, found.state) {
        (PairingProof::Code(_), true, _) | (PairingProof::Poll(_), false, _) | (_, _, USED) => return Err(invalid),
        _ if found.expires_at <= at => return Err(invalid),
        (PairingProof::Poll(_), true, OPEN) => return Err(Error::PairingPending),
        (PairingProof::Poll(_), true, REJECTED) => return Err(Error::PairingRejected),
        (PairingProof::Code(_), false, OPEN) | (PairingProof::Poll(_), true, CONFIRMED) => {}
        _ => return Err(invalid),
    }
    let (tenant, agent) = found.agent.expect("a proven pairing has an agent");
    Ok((found, tenant, agent))
}

/// Reads [`PAIRING`].
fn pairing(row: &Row<'_>) -> rusqlite::Result<PairingRow> {
    let tenant = row.get::<Option<_>>(2)?.map(rows::tenant_id);
    let agent = row.get::<Option<_>>(3)?.map(rows::agent_id);
    Ok(PairingRow {
        code: SecretHash(row.get(0)?),
        device_first: row.get(1)?,
        agent: tenant.zip(agent),
        device_name: row.get(4)?,
        labels: rows::maybe_json(row, 5)?,
        address: row.get(6)?,
        expires_at: rows::time(row, 7)?,
        state: row.get(8)?,
        maker: rows::maybe_key(row, 9)?,
    })
}
