//! What one connection can request, and our answers. By default, the library accepts any key and ignores other
//! requests, so every request is refused explicitly here.

use std::{collections::HashMap, sync::Arc};

use russh::{
    Channel, ChannelId, ChannelOpenFailure, Pty, Sig,
    server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey},
};
use tokio::runtime;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    SshServerOptions,
    backpressure::RequestBackpressure,
    channel::Sftp,
    lease_keys::{ActiveLease, ActiveLeases, ConnectionCutter},
    subsystem::{ChannelOutbox, Subsystem, SubsystemChannel, SubsystemInbox},
    unauthenticated::UnauthenticatedSlot,
};
use crate::fs_server::AttacheFs;

/// What a lease's holder can speak.
const SUBSYSTEMS: [&dyn Subsystem; 2] = [&Sftp, &AttacheFs];

/// One connection, from the first byte to the last.
pub(super) struct SshConnection {
    place: SshConnectionContext,
    /// Known after authentication.
    lease: Option<Arc<ActiveLease>>,
    /// Open channels. Those with an inbox speak one of [`SUBSYSTEMS`].
    channels: HashMap<ChannelId, Option<Arc<dyn SubsystemInbox>>>,
    unauthenticated: Option<UnauthenticatedSlot>,
}

/// What a connection shares with the server.
pub(super) struct SshConnectionContext {
    pub(super) number: u64,
    pub(super) leases: Arc<ActiveLeases>,
    pub(super) options: Arc<SshServerOptions>,
    pub(super) gate: Arc<RequestBackpressure>,
    /// Ends the connection.
    pub(super) cutter: Arc<ConnectionCutter>,
    pub(super) thread: ConnectionThread,
    /// Cancelled after authentication.
    pub(super) authenticated: CancellationToken,
    /// The task that serves the connection waits for these.
    pub(super) channels: TaskTracker,
}

/// Where a connection is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionThread {
    /// On its own thread, which can block.
    Own,
    /// Among other tasks.
    Shared,
}

type SshResult<T = ()> = Result<T, russh::Error>;

// === impl SshConnection ===

impl SshConnection {
    pub(super) fn new(place: SshConnectionContext, slot: UnauthenticatedSlot) -> Self {
        Self { place, lease: None, channels: HashMap::new(), unauthenticated: Some(slot) }
    }

    /// Starts a subsystem on a channel. `false` if that isn't possible.
    fn start_subsystem(&mut self, name: &str, channel: ChannelId, session: &Session) -> bool {
        let Some(subsystem) = SUBSYSTEMS.into_iter().find(|subsystem| subsystem.name() == name) else { return false };
        let (Some(lease), Some(slot @ None)) = (&self.lease, self.channels.get_mut(&channel)) else { return false };
        let started = subsystem.start(SubsystemChannel {
            export: Arc::clone(&lease.export),
            locator: lease.locator.clone(),
            handles: Arc::clone(&lease.handles),
            mounts: Arc::clone(&lease.mounts),
            gate: Arc::clone(&self.place.gate),
            outbox: ChannelOutbox { runtime: runtime::Handle::current(), session: session.handle(), channel },
            running: self.place.channels.token(),
        });
        match started {
            Ok(inbox) => *slot = Some(inbox),
            Err(error) => tracing::warn!(%error, name, "failed to start a subsystem"),
        }
        slot.is_some()
    }
}

impl Drop for SshConnection {
    fn drop(&mut self) {
        for inbox in self.channels.values().flatten() {
            inbox.abandon();
        }
        if let Some(lease) = &self.lease {
            lease.disconnect(self.place.number);
        }
    }
}

impl Handler for SshConnection {
    type Error = russh::Error;

    /// Don't ask for a signature with a key that opens nothing.
    async fn auth_publickey_offered(&mut self, _user: &str, offer: PublicKeyOffer<'_>) -> SshResult<Auth> {
        let is_known = self.place.leases.of(offer.public_key).is_some();
        Ok(if is_known { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, _user: &str, key: VerifiedPublicKey<'_>) -> SshResult<Auth> {
        let SshConnectionContext { number, cutter, options, .. } = &self.place;
        // A lease has a limited number of connections. If it ended since the key was found, it accepts no more.
        let lease = self.place.leases.of(key.public_key);
        let Some(lease) = lease.filter(|lease| lease.connect(*number, cutter, options.connections_per_lease)) else {
            return Ok(Auth::reject());
        };
        if let Some(earlier) = self.lease.replace(lease) {
            earlier.disconnect(self.place.number);
        }
        Ok(Auth::Accept)
    }

    async fn auth_succeeded(&mut self, _session: &mut Session) -> SshResult {
        self.place.authenticated.cancel();
        self.unauthenticated = None;
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> SshResult {
        if self.channels.len() >= self.place.options.channels_per_connection {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
        } else {
            self.channels.insert(channel.id(), None);
            reply.accept().await;
        }
        Ok(())
    }

    async fn subsystem_request(&mut self, channel: ChannelId, name: &str, session: &mut Session) -> SshResult {
        if self.start_subsystem(name, channel, session) {
            session.channel_success(channel)
        } else {
            session.channel_failure(channel)
        }
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], session: &mut Session) -> SshResult {
        let Some(Some(inbox)) = self.channels.get(&channel) else { return Ok(()) };
        // If a client doesn't accept its replies, stop answering here: the thread waits for it.
        if self.place.thread == ConnectionThread::Own
            && !session.has_pending_data(channel)
            && let Some(reply) = inbox.answer_inline(data)
        {
            return session.data(channel, reply);
        }
        inbox.push(data);
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, _session: &mut Session) -> SshResult {
        if let Some(Some(inbox)) = self.channels.get(&channel) {
            inbox.finish();
        }
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> SshResult {
        if let Some(Some(inbox)) = self.channels.remove(&channel) {
            inbox.abandon();
        }
        Ok(())
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> SshResult {
        session.channel_failure(channel)
    }

    async fn exec_request(&mut self, channel: ChannelId, _command: &[u8], session: &mut Session) -> SshResult {
        session.channel_failure(channel)
    }

    async fn env_request(&mut self, channel: ChannelId, _name: &str, _value: &str, session: &mut Session) -> SshResult {
        session.channel_failure(channel)
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _columns: u32,
        _rows: u32,
        _width: u32,
        _height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> SshResult {
        session.channel_failure(channel)
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        _columns: u32,
        _rows: u32,
        _width: u32,
        _height: u32,
        session: &mut Session,
    ) -> SshResult {
        session.channel_failure(channel)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _single: bool,
        _protocol: &str,
        _cookie: &str,
        _screen: u32,
        session: &mut Session,
    ) -> SshResult {
        session.channel_failure(channel)
    }

    async fn agent_request(&mut self, channel: ChannelId, session: &mut Session) -> SshResult<bool> {
        session.channel_failure(channel)?;
        Ok(false)
    }

    async fn signal(&mut self, _channel: ChannelId, _signal: Sig, _session: &mut Session) -> SshResult {
        Ok(())
    }

    async fn channel_open_x11(
        &mut self,
        _channel: Channel<Msg>,
        _address: &str,
        _port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> SshResult {
        refuse(reply).await
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _host: &str,
        _port: u32,
        _from_address: &str,
        _from_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> SshResult {
        refuse(reply).await
    }

    async fn channel_open_forwarded_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _host: &str,
        _port: u32,
        _from_address: &str,
        _from_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> SshResult {
        refuse(reply).await
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _path: &str,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> SshResult {
        refuse(reply).await
    }

    async fn tcpip_forward(&mut self, _address: &str, _port: &mut u32, _session: &mut Session) -> SshResult<bool> {
        Ok(false)
    }

    async fn cancel_tcpip_forward(&mut self, _address: &str, _port: u32, _session: &mut Session) -> SshResult<bool> {
        Ok(false)
    }

    async fn streamlocal_forward(&mut self, _path: &str, _session: &mut Session) -> SshResult<bool> {
        Ok(false)
    }

    async fn cancel_streamlocal_forward(&mut self, _path: &str, _session: &mut Session) -> SshResult<bool> {
        Ok(false)
    }
}

async fn refuse(reply: ChannelOpenHandle) -> SshResult {
    reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
    Ok(())
}
