//! A standing decision as a list row: what it covers, for how long, and whether it is still active.

use std::collections::HashMap;

use attache_protocol::{AgentId, rules::permission::DecisionScope, wire::permission::PermissionGrant};

use super::{
    actor::short,
    exact::exact_line,
    html::{Markup, PlaceholderValue},
    permission::scope,
    run::ViewContext,
    time::TimeElement,
};

#[derive(Debug, Clone)]
pub(crate) struct GrantListRow {
    pub(crate) id: String,
    pub(crate) class: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) what: Markup,
    pub(crate) reach: Markup,
    pub(crate) until: Markup,
    pub(crate) by: Markup,
    /// It is active and can be revoked.
    pub(crate) alive: bool,
}

// === impl GrantListRow ===

impl GrantListRow {
    pub(crate) fn new(grant: &PermissionGrant, agents: &HashMap<AgentId, String>, scene: ViewContext<'_>) -> Self {
        let ViewContext { t, now, .. } = scene;
        let ended = grant.ends_at().is_some_and(|end| end <= now);
        let alive = grant.revoked_at.is_none() && !ended;
        let (class, icon) = match (alive, grant.approved) {
            (false, _) => ("stop", "s-stop"),
            (true, true) => ("done", "s-done"),
            (true, false) => ("fail", "s-fail"),
        };
        let request = short(&grant.permission_request_id.to_string());
        let href = format!("/approvals/{}", grant.permission_request_id);
        let exact = Markup::sentence(t.grant_exact, &[("request", PlaceholderValue::Link(&href, &request))]);
        let subject = match &grant.tool_pattern {
            Some(pattern) => Markup::trusted(format!("<code>{}</code>", exact_line(pattern))),
            None => exact,
        };
        let sentence = if grant.approved { t.grant_allows } else { t.grant_denies };
        let agent = agents.get(&grant.agent_id).cloned().unwrap_or_else(|| short(&grant.agent_id.to_string()));
        let reach =
            [("agent", PlaceholderValue::Text(&agent)), ("scope", PlaceholderValue::Text(scope(grant.scope, t)))];
        let reach = Markup::sentence(t.grant_reach, &reach);
        let reach = match grant.channel_id {
            Some(channel) => {
                let blanks = [
                    ("reach", PlaceholderValue::Markup(&reach)),
                    ("channel", PlaceholderValue::Text(&short(&channel.to_string()))),
                ];
                Markup::sentence(t.grant_channel, &blanks)
            }
            None => reach,
        };
        let until = match (grant.revoked_at, grant.ends_at()) {
            (Some(at), _) => {
                Markup::sentence(t.grant_revoked, &[("at", PlaceholderValue::When(TimeElement::relative(at)))])
            }
            (None, Some(at)) if ended => {
                Markup::sentence(t.grant_ended, &[("at", PlaceholderValue::When(TimeElement::relative(at)))])
            }
            (None, Some(at)) => {
                Markup::sentence(t.grant_until, &[("at", PlaceholderValue::When(TimeElement::relative(at)))])
            }
            (None, None) if grant.scope == DecisionScope::Run => Markup::text(t.grant_until_run_ends),
            (None, None) => Markup::text(t.grant_until_revoked),
        };
        let who = scene.caller(&grant.created_by).who;
        let by = [
            ("who", PlaceholderValue::Text(&who)),
            ("at", PlaceholderValue::When(TimeElement::relative(grant.created_at))),
        ];
        Self {
            id: grant.grant_id.to_string(),
            class,
            icon,
            what: Markup::sentence(sentence, &[("what", PlaceholderValue::Markup(&subject))]),
            reach,
            until,
            by: Markup::sentence(t.grant_by, &by),
            alive,
        }
    }
}
