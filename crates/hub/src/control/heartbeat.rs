//! A device reports that it is alive and which runs it executes.

use attache_protocol::{
    Json, RunId, RuntimeId,
    wire::{
        account::Presence,
        runtime::{DeclaredExtension, HeartbeatRequest, HeartbeatResponse},
    },
};
use attache_store::record::LeaseTimes;

use super::host_session::plain_sessions;
use crate::{Error, Handle, Principal, Result, check, error::about, identity::Action, recovery::DeviceReport};

const MAX_RUNNING: usize = 1000;

impl Handle {
    pub async fn heartbeat(&self, by: &Principal, request: HeartbeatRequest) -> Result<HeartbeatResponse> {
        by.over_http()?;
        self.heartbeat_here(by, request).await
    }

    /// The same for in-process workers, whatever their credential.
    pub(crate) async fn heartbeat_here(&self, by: &Principal, request: HeartbeatRequest) -> Result<HeartbeatResponse> {
        let (runtime, agent) = by.may(Action::Work)?.device()?;
        if let Some(named) = request.agent_id.filter(|named| named.parse() != Ok(agent)) {
            let named = check::agent_ref("agent_id", &named)?;
            let named = self.store().account(by.tenant, named).await.map_err(about("agent"))?;
            if named.id != agent {
                return Err(Error::not_found("agent"));
            }
        }
        if request.running.as_ref().is_some_and(|running| running.len() > MAX_RUNNING) {
            return Err(Error::invalid("running", "must have at most 1000 entries"));
        }
        if request.unreported.len() > MAX_RUNNING {
            return Err(Error::invalid("unreported", "must have at most 1000 entries"));
        }
        if let Some(extensions) = &request.extensions {
            check::extensions("extensions", extensions)?;
        }
        // A run that has ended on the device but is not yet accepted by the hub is still held by the device.
        let running = request.running.map(|mut running| {
            running.extend(request.unreported.iter().filter(|run| !running.contains(run)).copied().collect::<Vec<_>>());
            running
        });
        let at = self.now();
        let beat = self.store().heartbeat(runtime, running.clone(), self.leases(), at).await;
        let beat = beat.map_err(about("runtime"))?;
        let held = |runs: Vec<RunId>| runs.into_iter().filter(|run| !beat.not_held.contains(run)).collect::<Vec<_>>();
        let said = DeviceReport { agent, at, running: running.map(held), unreported: held(request.unreported) };
        self.record_report(by.tenant, runtime, said, plain_sessions(request.host_sessions)).await?;
        if let Some(extensions) = request.extensions {
            self.declare_extensions(runtime, &extensions).await?;
        }
        let runtime_token = if request.token_rotation { self.next_token(by).await? } else { None };
        Ok(HeartbeatResponse {
            status: Presence::Online,
            runtime_id: runtime,
            server_time: self.now(),
            cancelled: beat.not_held,
            worktree_decisions: self.has_pending_worktrees(agent).await?,
            runtime_token,
        })
    }

    /// The extensions a runtime declares. The store writes only changes.
    pub(crate) async fn declare_extensions(&self, runtime: RuntimeId, extensions: &[DeclaredExtension]) -> Result<()> {
        let extensions = Some(Json::of(extensions)).filter(|_| !extensions.is_empty());
        self.store().declare_extensions(runtime, extensions).await.map(drop).map_err(about("runtime"))
    }

    fn leases(&self) -> LeaseTimes {
        LeaseTimes { lease: self.options().heartbeat_timeout, grace: self.options().claim_grace }
    }
}
