//! The host's end of a tunnel: keeps it open, even across restarts of the hub, and serves every connection that
//! arrives.

use std::time::Duration;

use attache_client::{Backoff, HubClient, HubClientOptions, tunnel};
use attache_protocol::{
    DelegationId, Secret, Timestamp, TunnelId,
    env::Env,
    wire::{
        awcp::{self, AwcpErrorCode},
        delegation::{DelegationFailure, DelegationProjection},
        tunnel::OpenTunnelRequest,
    },
};
use attache_workspace::ssh::SshServer;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// A tunnel that is open at the hub, not served yet.
#[derive(Debug)]
pub(super) struct HostTunnel {
    hub: HubClient,
    options: HubClientOptions,
    id: TunnelId,
    request: OpenTunnelRequest,
    env: Env,
    /// For the remote, in START.
    pub(super) descriptor: awcp::TunnelAccess,
}

/// A tunnel that is served in the background.
#[derive(Debug)]
pub(super) struct ServedTunnel {
    task: AbortOnDropHandle<()>,
    hub: HubClient,
    id: TunnelId,
    tasks: TaskTracker,
}

const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_INTERVALS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Opens a tunnel for a delegation, with its own token. Publishes the delegation first, in case the hub doesn't know
/// it.
pub(super) async fn open(
    options: &HubClientOptions,
    (delegation, shown): (DelegationId, &DelegationProjection),
    expires_at: Timestamp,
    env: &Env,
) -> Result<HostTunnel, DelegationFailure> {
    let failed = |error: attache_client::Error| DelegationFailure {
        code: AwcpErrorCode::MountFailed,
        message: format!("the hub refused to open a tunnel: {error}"),
        hint: "Check the key for the hub, or let the remote connect directly: set `reach` in policy.toml.".to_owned(),
    };
    let hub = HubClient::new(options.clone()).map_err(failed)?;
    let token = Secret::new(env.random_hex::<32>());
    let id = TunnelId::from_uuid(env.uuid());
    let token_sha256 = tunnel::token_sha256(&token);
    let request = OpenTunnelRequest { delegation_id: delegation, token_sha256, expires_at, max_bytes: None };
    let mut backoff = Backoff::new(RETRY_INTERVALS.0, RETRY_INTERVALS.1);
    let opened = loop {
        let opened = match hub.publish_delegation(delegation, shown).await {
            Ok(_) => hub.open_tunnel(id, &request).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(opened) => break opened,
            Err(error) if error.is_passing() => tokio::time::sleep(backoff.next(env)).await,
            Err(error) => return Err(failed(error)),
        }
    };
    let descriptor = awcp::TunnelAccess { url: opened.url, token };
    Ok(HostTunnel { hub, options: options.clone(), id, request, env: env.clone(), descriptor })
}

// === impl HostTunnel ===

impl HostTunnel {
    /// Serves the tunnel until the result is closed or dropped.
    pub(super) fn serve(self, server: SshServer, tasks: &TaskTracker) -> ServedTunnel {
        let (hub, id) = (self.hub.clone(), self.id);
        ServedTunnel {
            task: AbortOnDropHandle::new(tasks.spawn(self.serve_until_closed(server))),
            hub,
            id,
            tasks: tasks.clone(),
        }
    }

    async fn serve_until_closed(self, server: SshServer) {
        let mut backoff = Backoff::new(RETRY_INTERVALS.0, RETRY_INTERVALS.1);
        let mut connections = tokio::task::JoinSet::new();
        loop {
            match tunnel::open_host(&self.options, self.id).await {
                Ok(stream) => {
                    backoff.reset();
                    let server = server.clone();
                    let from = self.id.to_string();
                    connections.spawn(async move { server.serve(stream, from).await });
                    while connections.try_join_next().is_some() {}
                }
                Err(error) => {
                    tracing::debug!(tunnel.id = %self.id, %error, "reopening the tunnel");
                    tokio::time::sleep(backoff.next(&self.env)).await;
                    // After a restart, the hub doesn't know the tunnel.
                    if let Err(error) = self.hub.open_tunnel(self.id, &self.request).await
                        && !error.is_passing()
                    {
                        tracing::warn!(tunnel.id = %self.id, %error, "the hub refuses to reopen the tunnel");
                        break;
                    }
                }
            }
        }
        // Open connections continue until the lease ends.
        while connections.join_next().await.is_some() {}
    }
}

// === impl ServedTunnel ===

impl ServedTunnel {
    /// Closes all connections through it. The hub is notified in the background: without its host, the tunnel carries
    /// nothing.
    pub(super) fn close(self) {
        drop(self.task);
        let (hub, id) = (self.hub, self.id);
        self.tasks.spawn(async move {
            let closed = tokio::time::timeout(CLOSE_TIMEOUT, hub.close_tunnel(id)).await;
            tracing::debug!(tunnel.id = %id, ok = matches!(closed, Ok(Ok(()))), "tunnel closed");
        });
    }
}
