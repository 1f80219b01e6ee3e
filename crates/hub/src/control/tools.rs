//! The tools that a run is given: the hub's own MCP surface, with a token that is worth that run's rights and no more.
//!
//! Given unless something speaks against it, because the rights are those that everybody in the chain has in common
//! (`docs/decisions/0011`). The token is made when the claim is shown, is written down nowhere, and is good only while that
//! claim lasts: every request looks at the run.

use attache_protocol::wire::{adapter::RunTools, awcp};
use attache_store::record::RunRecord;

use crate::{
    Handle, Result,
    identity::{ANONYMOUS, token::RunTokenGrant},
};

/// The names under which callers allow them; hosts put a prefix of their own before the names of MCP tools.
const NAMES: [&str; 3] = ["remote_agent", "remote_cancel", "list_agents"];
const PREFIX: &str = "mcp__attache";

impl Handle {
    /// For the claim that the run is under now.
    pub(crate) fn tools_for(&self, run: &RunRecord) -> Result<Option<RunTools>> {
        let (Some(path), Some(claim)) = (&self.options().tools, run.state.claim()) else { return Ok(None) };
        if !may_pass_on(run) {
            return Ok(None);
        }
        // Time that the run spends waiting does not count against it, so the token outlives its deadline by as much.
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

/// Whether the work may go to another agent from here: there are hops left, somebody with a credential asked, it is no
/// folder of somebody else, and the caller did not list other tools instead.
fn may_pass_on(run: &RunRecord) -> bool {
    let listed: Vec<String> = run.allowed_tools.as_ref().and_then(|tools| tools.parse().ok()).unwrap_or_default();
    let ours = |tool: &String| NAMES.contains(&tool.as_str()) || tool.starts_with(PREFIX);
    run.ttl > 0
        && run.caller != ANONYMOUS
        && run.task_type != awcp::TASK_TYPE
        && (listed.is_empty() || listed.iter().any(ours))
}
