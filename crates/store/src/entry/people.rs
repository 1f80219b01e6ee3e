//! Rows of users, access rules, quotas and deliveries: the tables of [`crate::People`], [`crate::Spending`] and
//! [`crate::Deliveries`].

use attache_protocol::{
    AgentId, DeliveryId, EventKind, Json, RunId, UserId,
    log::hex,
    rules::quota::{Limits, usd},
    wire::key::Role,
};
use serde::Serialize;

use super::Entry;
use crate::record::{
    delivery::{Attempt, Delivery},
    people::{AccessRules, User, UserPatch},
    spending::Target,
};

#[derive(Serialize)]
struct Created<'a> {
    user_id: UserId,
    name: &'a str,
    role: Role,
}

#[derive(Serialize)]
struct Updated<'a> {
    user_id: UserId,
    name: Option<&'a str>,
    role: Option<Role>,
    password: bool,
}

#[derive(Serialize)]
struct Removed<'a> {
    user_id: UserId,
    name: &'a str,
}

#[derive(Serialize)]
struct Rules {
    version: i64,
    digest: String,
}

#[derive(Serialize)]
struct Limited {
    user_id: Option<UserId>,
    agent_id: Option<AgentId>,
    calls: Option<u64>,
    tokens: Option<u64>,
    cost_usd: Option<Json>,
}

#[derive(Serialize)]
struct Unlimited {
    user_id: Option<UserId>,
    agent_id: Option<AgentId>,
}

#[derive(Serialize)]
struct Delivered {
    delivery_id: DeliveryId,
    task_run_id: RunId,
    attempt: i64,
    status: Option<u16>,
}

#[derive(Serialize)]
struct Failed<'a> {
    delivery_id: DeliveryId,
    task_run_id: RunId,
    attempt: i64,
    status: Option<u16>,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Resent {
    delivery_id: DeliveryId,
    task_run_id: RunId,
}

pub(crate) fn user_created(user: &User) -> Entry {
    (EventKind::UserCreated, Json::of(&Created { user_id: user.id, name: &user.name, role: user.role }))
}

/// What a patch says, whether or not it changes anything.
pub(crate) fn user_updated(user: UserId, patch: &UserPatch) -> Entry {
    let UserPatch { name, role, password } = patch;
    let row = Updated { user_id: user, name: name.as_deref(), role: *role, password: password.is_some() };
    (EventKind::UserUpdated, Json::of(&row))
}

pub(crate) fn user_removed(user: &User) -> Entry {
    (EventKind::UserRemoved, Json::of(&Removed { user_id: user.id, name: &user.name }))
}

pub(crate) fn rules_changed(rules: &AccessRules) -> Entry {
    let digest = hex(blake3::hash(rules.text.as_bytes()).as_bytes());
    (EventKind::RulesChanged, Json::of(&Rules { version: rules.version, digest }))
}

pub(crate) fn quota_changed(target: Target, limits: Limits) -> Entry {
    let Target { user, agent } = target;
    let Limits { calls, tokens, micro_usd } = limits;
    let cost_usd = micro_usd.map(|cost| Json::from_text(usd(cost)).expect("dollars are written as a number"));
    (EventKind::QuotaChanged, Json::of(&Limited { user_id: user, agent_id: agent, calls, tokens, cost_usd }))
}

pub(crate) fn quota_removed(target: Target) -> Entry {
    (EventKind::QuotaRemoved, Json::of(&Unlimited { user_id: target.user, agent_id: target.agent }))
}

/// A delivery whose newest attempt, the given one, was acknowledged.
pub(crate) fn delivery_delivered(delivery: &Delivery, attempt: &Attempt) -> Entry {
    let row = Delivered {
        delivery_id: delivery.id,
        task_run_id: delivery.run,
        attempt: delivery.attempts,
        status: attempt.status,
    };
    (EventKind::DeliveryDelivered, Json::of(&row))
}

/// A delivery that is given up after its newest attempt, the given one.
pub(crate) fn delivery_failed(delivery: &Delivery, attempt: &Attempt) -> Entry {
    let row = Failed {
        delivery_id: delivery.id,
        task_run_id: delivery.run,
        attempt: delivery.attempts,
        status: attempt.status,
        error: attempt.error.as_deref(),
    };
    (EventKind::DeliveryFailed, Json::of(&row))
}

pub(crate) fn delivery_resent(delivery: &Delivery) -> Entry {
    (EventKind::DeliveryResent, Json::of(&Resent { delivery_id: delivery.id, task_run_id: delivery.run }))
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Secret, Timestamp};

    use super::*;

    #[test]
    fn data_has_the_documented_members_in_order() {
        let nil = "00000000000000000000000000000000";
        let user: UserId = format!("usr_{nil}").parse().unwrap();
        let agent: AgentId = format!("agt_{nil}").parse().unwrap();
        let run: RunId = format!("run_{nil}").parse().unwrap();
        let at = Timestamp::from_millis(0);
        let password = Some(Secret::new("$argon2id$".to_owned()));
        let patch = UserPatch { name: None, role: Some(Role::Viewer), password };
        let text = String::from("rules");
        let rules = AccessRules { text, version: 2, changed_at: at, changed_by: "system".to_owned() };
        let target = Target { user: Some(user), agent: Some(agent) };
        let limits = Limits { calls: Some(1), tokens: None, micro_usd: Some(50_000) };
        let tenant = format!("tnt_{nil}").parse().unwrap();
        let made = Delivery::due(tenant, run, None, "http://127.0.0.1/".to_owned(), at);
        let tried = Delivery { attempts: 3, ..made };
        let refused = Attempt { at, status: Some(500), error: Some("HTTP 500".to_owned()) };
        let rows = [
            user_updated(user, &patch),
            rules_changed(&rules),
            quota_changed(target, limits),
            quota_changed(Target::default(), Limits::default()),
            quota_removed(Target { user: None, agent: Some(agent) }),
            delivery_delivered(&tried, &Attempt { at, status: Some(204), error: None }),
            delivery_failed(&tried, &refused),
            delivery_resent(&tried),
        ];
        let rows: Vec<String> = rows.iter().map(|(kind, data)| format!("{kind} {data:?}")).collect();
        let ids = format!(r#""delivery_id":"{}","task_run_id":"{run}""#, tried.id);
        let digest = hex(blake3::hash(b"rules").as_bytes());
        assert_eq!(
            rows,
            [
                format!(r#"user.updated {{"user_id":"{user}","name":null,"role":"viewer","password":true}}"#),
                format!(r#"rules.changed {{"version":2,"digest":"{digest}"}}"#),
                format!(
                    r#"quota.changed {{"user_id":"{user}","agent_id":"{agent}","calls":1,"tokens":null,"cost_usd":0.05}}"#
                ),
                r#"quota.changed {"user_id":null,"agent_id":null,"calls":null,"tokens":null,"cost_usd":null}"#
                    .to_owned(),
                format!(r#"quota.removed {{"user_id":null,"agent_id":"{agent}"}}"#),
                format!(r#"delivery.delivered {{{ids},"attempt":3,"status":204}}"#),
                format!(r#"delivery.failed {{{ids},"attempt":3,"status":500,"error":"HTTP 500"}}"#),
                format!(r#"delivery.resent {{{ids}}}"#),
            ]
        );
    }
}
