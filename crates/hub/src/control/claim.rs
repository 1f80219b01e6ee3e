//! Who requested a run, as the owner of a device would name them in an allow-list.

use attache_protocol::{
    Actor,
    wire::{awcp, run::ClaimedRun},
};
use attache_store::record::{AgentRef, ClaimedRunRecord, user::UserRef};

use crate::{Handle, Result, error::about, render};

impl Handle {
    /// The claim as its runtime receives it. A delegator is shown by name, because the device's owner decides by name
    /// whose folders to accept.
    pub(crate) async fn show_claim(&self, claimed: ClaimedRunRecord) -> Result<Option<ClaimedRun>> {
        let run = &claimed.run;
        let caller = match (run.task_type.as_str(), &run.caller, run.user) {
            (awcp::TASK_TYPE, Actor::Agent(id), _) => {
                let agent = self.store().account(run.tenant, AgentRef::Id(*id)).await.map_err(about("agent"))?;
                Some(format!("agent:{}", agent.name))
            }
            (awcp::TASK_TYPE, _, Some(user)) => {
                let user = self.store().user(run.tenant, UserRef::Id(user)).await.map_err(about("user"))?;
                Some(format!("user:{}", user.name))
            }
            _ => None,
        };
        let mcp = self.tools_for(run)?;
        Ok(render::claimed(claimed).map(|shown| match caller {
            Some(caller) => ClaimedRun { caller, mcp, ..shown },
            None => ClaimedRun { mcp, ..shown },
        }))
    }
}
