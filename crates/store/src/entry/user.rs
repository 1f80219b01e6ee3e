//! Rows of users, access rules, quotas and deliveries: the tables of [`crate::UserStore`], [`crate::QuotaStore`] and
//! [`crate::DeliveryStore`].

use attache_protocol::{
    AgentId, DeliveryId, EventKind, Json, PasskeyId, RunId, UserId,
    digest::hex,
    rules::quota::{QuotaLimits, usd},
    wire::key::Role,
};
use serde::Serialize;

use super::LogEntry;
use crate::record::{
    delivery::{DeliveryAttempt, DeliveryRecord},
    passkey::PasskeyRecord,
    quota::QuotaTarget,
    user::{AccessRulesRecord, UserPatch, UserRecord},
};

#[derive(Serialize)]
struct UserCreatedData<'a> {
    user_id: UserId,
    name: &'a str,
    role: Role,
}

#[derive(Serialize)]
struct UserUpdatedData<'a> {
    user_id: UserId,
    name: Option<&'a str>,
    role: Option<Role>,
    password: bool,
}

#[derive(Serialize)]
struct UserRemovedData<'a> {
    user_id: UserId,
    name: &'a str,
}

#[derive(Serialize)]
struct PasskeyData<'a> {
    passkey_id: PasskeyId,
    user_id: UserId,
    name: &'a str,
}

#[derive(Serialize)]
struct RulesChangedData {
    version: i64,
    digest: String,
}

#[derive(Serialize)]
struct QuotaChangedData {
    user_id: Option<UserId>,
    agent_id: Option<AgentId>,
    calls: Option<u64>,
    tokens: Option<u64>,
    cost_usd: Option<Json>,
}

#[derive(Serialize)]
struct QuotaRemovedData {
    user_id: Option<UserId>,
    agent_id: Option<AgentId>,
}

#[derive(Serialize)]
struct DeliveryDeliveredData {
    delivery_id: DeliveryId,
    task_run_id: RunId,
    attempt: i64,
    status: Option<u16>,
}

#[derive(Serialize)]
struct DeliveryFailedData<'a> {
    delivery_id: DeliveryId,
    task_run_id: RunId,
    attempt: i64,
    status: Option<u16>,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct DeliveryResentData {
    delivery_id: DeliveryId,
    task_run_id: RunId,
}

pub(crate) fn user_created(user: &UserRecord) -> LogEntry {
    (EventKind::UserCreated, Json::of(&UserCreatedData { user_id: user.id, name: &user.name, role: user.role }))
}

/// The content of a patch, whether or not it changes anything.
pub(crate) fn user_updated(user: UserId, patch: &UserPatch) -> LogEntry {
    let UserPatch { name, role, password } = patch;
    let row = UserUpdatedData { user_id: user, name: name.as_deref(), role: *role, password: password.is_some() };
    (EventKind::UserUpdated, Json::of(&row))
}

pub(crate) fn user_removed(user: &UserRecord) -> LogEntry {
    (EventKind::UserRemoved, Json::of(&UserRemovedData { user_id: user.id, name: &user.name }))
}

pub(crate) fn passkey_added(passkey: &PasskeyRecord) -> LogEntry {
    (EventKind::PasskeyAdded, passkey_data(passkey))
}

pub(crate) fn passkey_removed(passkey: &PasskeyRecord) -> LogEntry {
    (EventKind::PasskeyRemoved, passkey_data(passkey))
}

fn passkey_data(passkey: &PasskeyRecord) -> Json {
    Json::of(&PasskeyData { passkey_id: passkey.id, user_id: passkey.user, name: &passkey.name })
}

pub(crate) fn rules_changed(rules: &AccessRulesRecord) -> LogEntry {
    let digest = hex(blake3::hash(rules.text.as_bytes()).as_bytes());
    (EventKind::RulesChanged, Json::of(&RulesChangedData { version: rules.version, digest }))
}

pub(crate) fn quota_changed(target: QuotaTarget, limits: QuotaLimits) -> LogEntry {
    let QuotaTarget { user, agent } = target;
    let QuotaLimits { calls, tokens, micro_usd } = limits;
    let cost_usd = micro_usd.map(|cost| Json::from_text(usd(cost)).expect("dollars are written as a number"));
    (EventKind::QuotaChanged, Json::of(&QuotaChangedData { user_id: user, agent_id: agent, calls, tokens, cost_usd }))
}

pub(crate) fn quota_removed(target: QuotaTarget) -> LogEntry {
    (EventKind::QuotaRemoved, Json::of(&QuotaRemovedData { user_id: target.user, agent_id: target.agent }))
}

/// A delivery that was acknowledged in its newest attempt, the given one.
pub(crate) fn delivery_delivered(delivery: &DeliveryRecord, attempt: &DeliveryAttempt) -> LogEntry {
    let row = DeliveryDeliveredData {
        delivery_id: delivery.id,
        task_run_id: delivery.run,
        attempt: delivery.attempts,
        status: attempt.status,
    };
    (EventKind::DeliveryDelivered, Json::of(&row))
}

/// A delivery that was given up after its newest attempt, the given one.
pub(crate) fn delivery_failed(delivery: &DeliveryRecord, attempt: &DeliveryAttempt) -> LogEntry {
    let row = DeliveryFailedData {
        delivery_id: delivery.id,
        task_run_id: delivery.run,
        attempt: delivery.attempts,
        status: attempt.status,
        error: attempt.error.as_deref(),
    };
    (EventKind::DeliveryFailed, Json::of(&row))
}

pub(crate) fn delivery_resent(delivery: &DeliveryRecord) -> LogEntry {
    (EventKind::DeliveryResent, Json::of(&DeliveryResentData { delivery_id: delivery.id, task_run_id: delivery.run }))
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Actor, Secret, Timestamp};

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
        let rules = AccessRulesRecord { text, version: 2, changed_at: at, changed_by: Actor::System };
        let target = QuotaTarget { user: Some(user), agent: Some(agent) };
        let limits = QuotaLimits { calls: Some(1), tokens: None, micro_usd: Some(50_000) };
        let tenant = format!("tnt_{nil}").parse().unwrap();
        let made = DeliveryRecord::due(tenant, run, None, "http://127.0.0.1/".to_owned(), at);
        let tried = DeliveryRecord { attempts: 3, ..made };
        let refused = DeliveryAttempt { at, status: Some(500), error: Some("HTTP 500".to_owned()) };
        let rows = [
            user_updated(user, &patch),
            rules_changed(&rules),
            quota_changed(target, limits),
            quota_changed(QuotaTarget::default(), QuotaLimits::default()),
            quota_removed(QuotaTarget { user: None, agent: Some(agent) }),
            delivery_delivered(&tried, &DeliveryAttempt { at, status: Some(204), error: None }),
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
