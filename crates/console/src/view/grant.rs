//! A standing decision as a list row: what it covers, for how long, and whether it is still active.

use std::collections::HashMap;

use attache_protocol::{AgentId, rules::permission::DecisionScope, wire::permission::PermissionGrant};

use super::{actor::short, exact::exact_line, html::Markup, permission::scope, run::ViewContext};

#[derive(Debug, Clone)]
pub(crate) struct GrantListRow {
    pub(crate) id: String,
    pub(crate) class: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) what: Markup,
    pub(crate) reach: Markup,
    /// For how long, and by whom.
    pub(crate) until: Markup,
    /// It is active and can be revoked.
    pub(crate) alive: bool,
}

// === impl GrantListRow ===

impl GrantListRow {
    pub(crate) fn new(
        grant: &PermissionGrant,
        agents: &HashMap<AgentId, String>,
        view_context: ViewContext<'_>,
    ) -> Self {
        let ViewContext { t, now, .. } = view_context;
        let ended = grant.ends_at().is_some_and(|end| end <= now);
        let alive = grant.revoked_at.is_none() && !ended;
        let (class, icon) = match (alive, grant.approved) {
            (false, _) => ("stop", "s-stop"),
            (true, true) => ("done", "s-done"),
            (true, false) => ("fail", "s-fail"),
        };
        let subject = match &grant.tool_pattern {
            Some(pattern) => Markup::trusted(format!("<code>{}</code>", exact_line(pattern))),
            None => t.grant_exact(Markup::id_link("approvals", &grant.permission_request_id.to_string())),
        };
        let agent = agents.get(&grant.agent_id).cloned().unwrap_or_else(|| short(&grant.agent_id.to_string()));
        let reach = t.grant_reach(agent, scope(grant.scope, t));
        let until = match (grant.revoked_at, grant.ends_at()) {
            (Some(at), _) => t.revoked_at(at),
            (None, Some(at)) if ended => t.grant_ended(at),
            (None, Some(at)) => t.grant_until(at),
            (None, None) if grant.scope == DecisionScope::Run => Markup::text(t.grant_until_run_ends),
            (None, None) => Markup::text(t.grant_until_revoked),
        };
        let who = view_context.caller(&grant.created_by).who;
        let by = t.grant_by(who, grant.created_at);
        Self {
            id: grant.grant_id.to_string(),
            class,
            icon,
            what: if grant.approved { t.grant_allows(subject) } else { t.grant_denies(subject) },
            reach: match grant.channel_id {
                Some(channel) => t.grant_channel(reach, short(&channel.to_string())),
                None => reach,
            },
            until: t.grant_until_by(until, by),
            alive,
        }
    }
}
