//! The tools a run gets: the hub's own MCP server, with a token limited to that run's rights.
//!
//! Provided by default, because the token has only the rights shared by everyone in the call chain
//! (`docs/decisions/0011`). The token is created when the claim is shown, is not stored, and is valid only while the
//! claim lasts: every request checks the run.

use attache_protocol::{
    Actor,
    wire::{adapter::RunTools, awcp},
};
use attache_store::record::RunRecord;

use crate::{Handle, Result, identity::token::RunTokenGrant};

/// The names callers use to allow them. Hosts add their own prefix to MCP tool names.
const NAMES: [&str; 3] = ["remote_agent", "remote_cancel", "list_agents"];
const PREFIX: &str = "mcp__attache";

impl Handle {
    /// For the run's current claim.
    pub(crate) fn tools_for(&self, run: &RunRecord) -> Result<Option<RunTools>> {
        let (Some(path), Some(claim)) = (&self.options().tools, run.state.claim()) else { return Ok(None) };
        if !may_pass_on(run) {
            return Ok(None);
        }
        // Time spent waiting does not count against the run's deadline, so the token outlives it by that much.
        let patience = self.options().input_timeout.max(self.options().permission_timeout);
        let token = self.signer().sign_run(RunTokenGrant {
            at: claim.claimed_at,
            expires_at: claim.claimed_at.plus(run.state.limits.timeout).plus(patience),
            tenant: run.tenant,
            run: run.id,
            epoch: run.state.epoch,
        })?;
        Ok(Some(RunTools { url: format!("{}{path}", self.origin()), token: token.expose().clone() }))
    }
}

/// Whether the work may be passed on: hops are left, the caller had a credential, it is not a delegated folder, and the
/// caller did not list other tools instead.
fn may_pass_on(run: &RunRecord) -> bool {
    let listed: Vec<String> = run.spec.allowed_tools.as_ref().and_then(|tools| tools.parse().ok()).unwrap_or_default();
    let ours = |tool: &String| NAMES.contains(&tool.as_str()) || tool.starts_with(PREFIX);
    run.spec.ttl > 0
        && run.caller != Actor::Anonymous
        && run.spec.task_type != awcp::TASK_TYPE
        && (listed.is_empty() || listed.iter().any(ours))
}
