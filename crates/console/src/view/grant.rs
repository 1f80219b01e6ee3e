//! A standing answer: what it covers, for how long, and whether it still counts.

use std::collections::HashMap;

use attache_protocol::{AgentId, rules::permission::Scope, wire::permission::PermissionGrant};

use super::{
    caller::short,
    exact::exact_line,
    html::{Blank, Markup},
    permission::scope,
    run::Scene,
    time::When,
};

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) id: String,
    pub(crate) class: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) what: Markup,
    pub(crate) reach: Markup,
    pub(crate) until: Markup,
    pub(crate) by: Markup,
    /// It counts and can be revoked.
    pub(crate) alive: bool,
}

// === impl Line ===

impl Line {
    pub(crate) fn new(grant: &PermissionGrant, agents: &HashMap<AgentId, String>, scene: Scene<'_>) -> Self {
        let Scene { t, now, .. } = scene;
        let ended = grant.ends_at().is_some_and(|end| end <= now);
        let alive = grant.revoked_at.is_none() && !ended;
        let (class, icon) = match (alive, grant.approved) {
            (false, _) => ("stop", "s-stop"),
            (true, true) => ("done", "s-done"),
            (true, false) => ("fail", "s-fail"),
        };
        let request = short(&grant.permission_request_id.to_string());
        let href = format!("/approvals/{}", grant.permission_request_id);
        let exact = Markup::sentence(t.grant_exact, &[("request", Blank::Link(&href, &request))]);
        let subject = match &grant.tool_pattern {
            Some(pattern) => Markup::own(format!("<code>{}</code>", exact_line(pattern))),
            None => exact,
        };
        let sentence = if grant.approved { t.grant_allows } else { t.grant_denies };
        let agent = agents.get(&grant.agent_id).cloned().unwrap_or_else(|| short(&grant.agent_id.to_string()));
        let reach = [("agent", Blank::Text(&agent)), ("scope", Blank::Text(scope(grant.scope, t)))];
        let reach = Markup::sentence(t.grant_reach, &reach);
        let reach = match grant.channel_id {
            Some(channel) => {
                let blanks = [("reach", Blank::Markup(&reach)), ("channel", Blank::Text(&short(&channel.to_string())))];
                Markup::sentence(t.grant_channel, &blanks)
            }
            None => reach,
        };
        let until = match (grant.revoked_at, grant.ends_at()) {
            (Some(at), _) => Markup::sentence(t.grant_revoked, &[("at", Blank::When(When::relative(at)))]),
            (None, Some(at)) if ended => Markup::sentence(t.grant_ended, &[("at", Blank::When(When::relative(at)))]),
            (None, Some(at)) => Markup::sentence(t.grant_until, &[("at", Blank::When(When::relative(at)))]),
            (None, None) if grant.scope == Scope::Run => Markup::text(t.grant_until_run_ends),
            (None, None) => Markup::text(t.grant_until_revoked),
        };
        let who = scene.caller(&grant.created_by).who;
        let by = [("who", Blank::Text(&who)), ("at", Blank::When(When::relative(grant.created_at)))];
        Self {
            id: grant.grant_id.to_string(),
            class,
            icon,
            what: Markup::sentence(sentence, &[("what", Blank::Markup(&subject))]),
            reach,
            until,
            by: Markup::sentence(t.grant_by, &by),
            alive,
        }
    }
}
