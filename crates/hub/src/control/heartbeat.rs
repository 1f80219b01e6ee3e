//! A device says that it is alive and which runs it executes.

use attache_protocol::wire::{
    account::Presence,
    runtime::{HeartbeatRequest, HeartbeatResponse},
};
use attache_store::record::Leases;

use crate::{Error, Handle, Principal, Result, error::about, identity::Action};

const MAX_RUNNING: usize = 1000;

impl Handle {
    pub async fn heartbeat(&self, by: &Principal, request: HeartbeatRequest) -> Result<HeartbeatResponse> {
        by.may(Action::Work)?;
        let (runtime, agent) = by.device()?;
        if request.agent_id.is_some_and(|named| named != agent) {
            return Err(Error::not_found("agent"));
        }
        if request.running.as_ref().is_some_and(|running| running.len() > MAX_RUNNING) {
            return Err(Error::invalid("running", "must have at most 1000 entries"));
        }
        let beat = self.store().heartbeat(runtime, request.running, self.leases(), self.now()).await;
        let beat = beat.map_err(about("runtime"))?;
        Ok(HeartbeatResponse {
            status: Presence::Online,
            runtime_id: runtime,
            server_time: self.now(),
            cancelled: beat.not_held,
        })
    }

    fn leases(&self) -> Leases {
        Leases { lease: self.options().heartbeat_timeout, grace: self.options().claim_grace }
    }
}
