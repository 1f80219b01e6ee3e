//! Tunnels: relay bytes between two machines that can both reach the hub but not each other. Each carries one
//! delegation published here, and ends with it. They live in memory, so their owner reopens them after a restart. Of several
//! nodes, one has a tunnel, and the others pass on what concerns it.
//! Opening and closing are logged. The content is neither read nor logged.

mod elsewhere;
mod relay;

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use attache_protocol::{
    Actor, Code, DelegationId, TenantId, Timestamp, TunnelId,
    digest::unhex,
    wire::tunnel::{OpenTunnelRequest, Tunnel},
};
use attache_store::record::AuditEvent;
use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    digest::{SHA256, digest},
};
use axum::extract::ws::WebSocket;
use tokio::{
    sync::{Notify, oneshot, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Handle, Principal, Result,
    connection_slot::ConnectionSlot,
    identity::{AccessGuard, Action, Permit, StreamRight},
};

pub(crate) use elsewhere::pass_on;
pub(crate) use relay::{serve_host, serve_remote};

/// Per owner at a time.
const MAX_TUNNELS: usize = 64;
/// Concurrent socket pairs per tunnel.
const MAX_CONNECTIONS: u32 = 32;
/// Host sockets that wait for a remote.
const MAX_WAITING_HOSTS: usize = 8;
const MAX_BYTES: u64 = 64 << 30;
const MAX_TUNNEL_TTL: Duration = Duration::from_secs(31 * 24 * 60 * 60);
/// How often the clock is checked.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
const URL: &str = "/api/v1/tunnels/";

/// The tunnels that are open here.
#[derive(Debug, Default)]
pub(crate) struct OpenTunnels {
    open: Mutex<HashMap<TunnelId, Arc<RelayedTunnel>>>,
}

/// One open tunnel.
#[derive(Debug)]
pub(crate) struct RelayedTunnel {
    id: TunnelId,
    delegation: DelegationId,
    owner: (TenantId, Actor),
    terms: Mutex<TunnelLimits>,
    /// Publishes until when the tunnel is open, and for whom.
    holder: watch::Sender<TunnelHolder>,
    relayed: AtomicU64,
    connections: AtomicU32,
    waiting_hosts: Mutex<VecDeque<oneshot::Sender<TunnelRemote>>>,
    /// A host socket has arrived and waits for a remote.
    host_arrived: Notify,
    closed: CancellationToken,
}

/// Whoever opened or last renewed a tunnel. It ends with their credential.
#[derive(Debug, Clone)]
struct TunnelHolder {
    by: Principal,
    expires_at: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct TunnelLimits {
    token: [u8; 32],
    max_bytes: u64,
}

/// A remote's socket with its slot.
struct TunnelRemote {
    socket: WebSocket,
    tunnel_slot: TunnelSlot,
    connection_slot: Option<ConnectionSlot>,
}

/// A connection slot of a tunnel, freed on drop.
#[derive(Debug)]
pub(crate) struct TunnelSlot {
    hub: Handle,
    tunnel: Arc<RelayedTunnel>,
}

// === impl Handle ===

impl Handle {
    /// Opens a tunnel, or renews the caller's own.
    pub async fn open_tunnel(&self, by: &Principal, id: TunnelId, request: OpenTunnelRequest) -> Result<Tunnel> {
        let permit = by.may(Action::OpenTunnel)?;
        let token = token_hash(&request.token_sha256)?;
        let now = self.now();
        if request.expires_at <= now || request.expires_at > now.plus(MAX_TUNNEL_TTL) {
            return Err(Error::invalid("expires_at", "must be in the future, within one month"));
        }
        let max_bytes = request.max_bytes.unwrap_or(MAX_BYTES);
        if max_bytes == 0 || max_bytes > MAX_BYTES {
            return Err(Error::invalid("max_bytes", &format!("must be from 1 to {MAX_BYTES}")));
        }
        let (owner, terms) = (owner(&permit), TunnelLimits { token, max_bytes });
        let delegation = request.delegation_id;
        self.check_live_delegation(&permit, delegation).await?;
        let holder = TunnelHolder { by: by.clone(), expires_at: request.expires_at };
        let (tunnel, is_new) = self.tunnels().open_or_renew(id, delegation, owner, terms, holder)?;
        // Anyone who ends the delegation from now on finds the tunnel. Check for those who ended it just before.
        if let Err(error) = self.check_live_delegation(&permit, delegation).await {
            self.tunnels().close(&tunnel);
            return Err(error);
        }
        if let Err(error) = self.claim_tunnel(&tunnel, request.expires_at).await {
            self.tunnels().close(&tunnel);
            return Err(error);
        }
        if is_new {
            let event = AuditEvent::TunnelOpened { tunnel: id, delegation, expires_at: request.expires_at, max_bytes };
            if let Err(error) = self.store().record_event(self.context(by), event).await {
                self.tunnels().close(&tunnel);
                return Err(Error::from_store("tunnel", error));
            }
            self.metrics().tunnels.add(1);
            self.tasks().spawn(watch_until_end(self.clone(), tunnel.clone()));
        }
        Ok(self.show_tunnel(&tunnel))
    }

    pub async fn tunnel(&self, by: &Principal, id: TunnelId) -> Result<Tunnel> {
        Ok(self.show_tunnel(&*self.own_tunnel(by, id)?))
    }

    /// Cuts all connections immediately.
    pub async fn close_tunnel(&self, by: &Principal, id: TunnelId) -> Result<()> {
        let tunnel = self.own_tunnel(by, id)?;
        self.tunnels().close(&tunnel);
        Ok(())
    }

    /// The delegation has ended or is about to: its traffic is cut.
    pub(crate) fn cut_tunnels_of(&self, delegation: DelegationId) {
        self.tunnels().close_all_of(delegation);
    }

    /// Unknown and foreign tunnels get the same answer.
    pub(crate) fn own_tunnel(&self, by: &Principal, id: TunnelId) -> Result<Arc<RelayedTunnel>> {
        let owner = owner(&by.may(Action::OpenTunnel)?);
        self.tunnels().find(id).filter(|found| found.owner == owner).ok_or_else(|| Error::not_found("tunnel"))
    }

    /// The tunnel that this token opens for a remote.
    pub(crate) fn tunnel_of(&self, id: TunnelId, token: &str) -> Result<Arc<RelayedTunnel>> {
        let shown = digest(&SHA256, token.as_bytes());
        let fits = |found: &Arc<RelayedTunnel>| verify_slices_are_equal(&found.terms().token, shown.as_ref()).is_ok();
        self.tunnels().find(id).filter(fits).ok_or_else(|| {
            Error::not_found("tunnel").hint("It has ended, its host has not opened it yet, or the token is wrong.")
        })
    }

    fn show_tunnel(&self, tunnel: &RelayedTunnel) -> Tunnel {
        let origin = self.origin();
        let origin = match origin.strip_prefix("http") {
            Some(rest) => format!("ws{rest}"),
            None => origin,
        };
        Tunnel {
            tunnel_id: tunnel.id,
            delegation_id: tunnel.delegation,
            url: format!("{origin}{URL}{}", tunnel.id),
            expires_at: tunnel.holder.borrow().expires_at,
            max_bytes: tunnel.terms().max_bytes,
            relayed_bytes: tunnel.relayed.load(Ordering::Relaxed),
            open_connections: tunnel.connections.load(Ordering::Relaxed),
        }
    }
}

fn owner(permit: &Permit<'_>) -> (TenantId, Actor) {
    (permit.by().tenant, permit.holder())
}

fn token_hash(hex: &str) -> Result<[u8; 32]> {
    unhex(hex).ok_or_else(|| Error::invalid("token_sha256", "must be 64 hexadecimal digits"))
}

/// Cuts the tunnel when it expires, when its holder's credential or right to open tunnels ends, and when the hub stops.
async fn watch_until_end(hub: Handle, tunnel: Arc<RelayedTunnel>) {
    let mut holders = tunnel.holder.subscribe();
    let mut holder = holders.borrow_and_update().clone();
    let guarded = |holder: &TunnelHolder| AccessGuard::new(&hub, &holder.by, StreamRight::May(Action::OpenTunnel));
    let mut guard = guarded(&holder);
    loop {
        // Timers don't count the time a machine was suspended.
        let left = holder.expires_at.since(hub.now()).min(CLOCK_INTERVAL);
        tokio::select! {
            () = tunnel.closed.cancelled() => break,
            () = hub.drained() => break,
            _ = guard.broken() => break,
            // It was renewed, perhaps with another credential, and may now end later or earlier.
            Ok(()) = holders.changed() => {
                holder = holders.borrow_and_update().clone();
                guard = guarded(&holder);
            }
            () = sleep(left) => if holder.expires_at <= hub.now() || hub.is_ended_elsewhere(&tunnel).await { break },
        }
    }
    hub.tunnels().close(&tunnel);
    hub.release_tunnel(tunnel.id).await;
    hub.metrics().tunnels.take(1);
    let (id, delegation, bytes) = (tunnel.id, tunnel.delegation, tunnel.relayed.load(Ordering::Relaxed));
    let event = AuditEvent::TunnelClosed { tunnel: id, delegation, bytes };
    if let Err(error) = hub.store().record_event(hub.context(&holder.by), event).await {
        tracing::warn!(tunnel.id = %id, %error, "could not log the end of a tunnel");
    }
}

// === impl OpenTunnels ===

impl OpenTunnels {
    fn lock(&self) -> MutexGuard<'_, HashMap<TunnelId, Arc<RelayedTunnel>>> {
        lock(&self.open)
    }

    fn find(&self, id: TunnelId) -> Option<Arc<RelayedTunnel>> {
        self.lock().get(&id).cloned()
    }

    fn open_or_renew(
        &self,
        id: TunnelId,
        delegation: DelegationId,
        owner: (TenantId, Actor),
        terms: TunnelLimits,
        holder: TunnelHolder,
    ) -> Result<(Arc<RelayedTunnel>, bool)> {
        let mut open = self.lock();
        if let Some(found) = open.get(&id) {
            if found.owner != owner {
                return Err(Error::not_found("tunnel"));
            }
            if found.delegation != delegation {
                return Err(Error::invalid("delegation_id", "must be the delegation the tunnel was opened for"));
            }
            *lock(&found.terms) = terms;
            found.holder.send_replace(holder);
            return Ok((found.clone(), false));
        }
        if open.values().filter(|tunnel| tunnel.owner == owner).count() >= MAX_TUNNELS {
            return Err(Error::new(Code::TooManyRequests, format!("You can have at most {MAX_TUNNELS} open tunnels."))
                .hint("Close those you no longer need."));
        }
        let tunnel = Arc::new(RelayedTunnel {
            id,
            delegation,
            owner,
            terms: Mutex::new(terms),
            holder: watch::Sender::new(holder),
            relayed: AtomicU64::new(0),
            connections: AtomicU32::new(0),
            waiting_hosts: Mutex::default(),
            host_arrived: Notify::new(),
            closed: CancellationToken::new(),
        });
        open.insert(id, tunnel.clone());
        Ok((tunnel, true))
    }

    fn close_all_of(&self, delegation: DelegationId) {
        self.lock().retain(|_, tunnel| {
            let stays = tunnel.delegation != delegation;
            if !stays {
                tunnel.closed.cancel();
            }
            stays
        });
    }

    fn close(&self, tunnel: &RelayedTunnel) {
        tunnel.closed.cancel();
        let mut open = self.lock();
        // Meanwhile the same id may have been reused.
        if open.get(&tunnel.id).is_some_and(|found| std::ptr::eq(&**found, tunnel)) {
            open.remove(&tunnel.id);
        }
    }
}

/// A panic leaves no inconsistent state here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl RelayedTunnel ===

impl RelayedTunnel {
    fn terms(&self) -> TunnelLimits {
        *lock(&self.terms)
    }

    /// Counts bytes before they pass. `false` if the limit is exceeded.
    fn admit(&self, bytes: usize) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let before = self.relayed.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) <= self.terms().max_bytes
    }

    /// A slot for one more remote.
    pub(crate) fn take_slot(self: &Arc<Self>, hub: &Handle) -> Result<TunnelSlot> {
        let taken = self
            .connections
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| (open < MAX_CONNECTIONS).then_some(open + 1));
        taken.map_err(|_| Error::new(Code::TooManyRequests, "The tunnel has reached its connection limit."))?;
        hub.metrics().tunnel_connections.add(1);
        Ok(TunnelSlot { hub: hub.clone(), tunnel: self.clone() })
    }
}

// === impl TunnelRemote ===

impl fmt::Debug for TunnelRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunnelRemote").finish_non_exhaustive()
    }
}

// === impl TunnelSlot ===

impl Drop for TunnelSlot {
    fn drop(&mut self) {
        self.tunnel.connections.fetch_sub(1, Ordering::Relaxed);
        self.hub.metrics().tunnel_connections.take(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_64_digits() {
        assert_eq!(token_hash(&"0f".repeat(32)).unwrap(), [15; 32]);
        assert_eq!(token_hash(&"0F".repeat(32)).unwrap(), [15; 32]);
        for bad in ["", "0f", &"0g".repeat(32), &"+1".repeat(32), &"é".repeat(32), &"0f".repeat(33)] {
            assert!(token_hash(bad).is_err(), "{bad}");
        }
    }
}
