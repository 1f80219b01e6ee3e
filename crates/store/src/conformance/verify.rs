//! The final checks of a sequence: everything readable, and the invariants of the log and the streams.

use std::collections::BTreeMap;

use attache_protocol::{
    AgentId, EventKind, RunId, TenantId, Timestamp,
    digest::{hex, unhex},
    rules::{
        permission::PermissionState,
        quota::UtcDay,
        run::{RunStatus, RunWaits, WaitReason, next_deadline},
    },
    wire::{
        delivery::{DeliveryKind, DeliveryState},
        input_request::WorkerRequestState,
    },
};

use super::{
    generator_state::GeneratorState,
    step::{ListToRead, StoreStep},
    step_result::StepValue,
};
use crate::{
    Store as _, WorkerRequestStore as _,
    memory::MemoryStore,
    record::{
        AgentRef, KeyKind, LogPage, OutlineScope, Pagination, RunEvents, RunFilter, RunRecord,
        channel::ChannelFilter,
        delegation::DelegationFilter,
        delivery::{DeliveryFilter, DeliveryRecord},
        shared_value::SharedValueKind,
        task::TaskFilter,
        user::UserRef,
        worker_request::{PermissionFilter, WorkerRequestRecord},
    },
};

/// More than any sequence creates, so that one page shows everything.
const ALL: usize = 100_000;

/// Beyond the end of any sequence.
const NEVER: Timestamp = Timestamp::from_millis(i64::MAX / 2);

/// Reads that show everything a sequence created.
pub(super) fn reads(known: &GeneratorState, at: Option<Timestamp>) -> Vec<StoreStep> {
    let Some(tenant) = known.tenant else { return Vec::new() };
    let list = |list| StoreStep::List { tenant, list, limit: ALL };
    let mut reads = vec![
        StoreStep::Live(tenant),
        StoreStep::Clock,
        StoreStep::Log { tenant, after: 0, limit: ALL },
        list(ListToRead::Accounts),
        list(ListToRead::Runtimes(None)),
        list(ListToRead::Keys(KeyKind::Api, None)),
        list(ListToRead::Keys(KeyKind::Session, None)),
        list(ListToRead::Conversations),
        // Also in small pages, so that cursors meet every kind of row.
        StoreStep::List { tenant, list: ListToRead::Runs(RunFilter::default()), limit: 7 },
        list(ListToRead::Channels(ChannelFilter::default())),
        list(ListToRead::Permissions(PermissionFilter::default())),
        list(ListToRead::Grants),
        StoreStep::PendingPermissions(tenant),
        list(ListToRead::Users),
        list(ListToRead::Deliveries(DeliveryFilter::default())),
        list(ListToRead::Delegations(DelegationFilter::default())),
        StoreStep::DueDeliveries { node: None, at: NEVER, limit: ALL },
        StoreStep::NotificationTargets(tenant),
        StoreStep::LastNotified(tenant),
        StoreStep::AccessRules(tenant),
        every_day(tenant),
    ];
    // From before any of them expired, so that also those are shown that are still there.
    reads.extend(SharedValueKind::ALL.map(|kind| StoreStep::SharedValues(kind, Timestamp::default())));
    reads.extend(known.agents.iter().map(|agent| StoreStep::List { tenant, list: tasks_of(*agent), limit: 7 }));
    reads.extend(known.runs.iter().map(|run| StoreStep::WorktreeDecision(tenant, *run)));
    reads.extend(known.pushes.iter().map(|run| StoreStep::PushConfigs(tenant, *run)));
    reads.extend(known.users.iter().map(|user| StoreStep::Passkeys(tenant, *user)));
    reads.extend(known.users.iter().map(|user| StoreStep::User(tenant, UserRef::Id(*user))));
    reads.extend(known.keys.iter().map(|key| StoreStep::KeyCredential(*key)));
    if let Some(at) = at {
        reads.push(StoreStep::Quotas(tenant, at));
        reads.push(StoreStep::Quotas(tenant, UtcDay(UtcDay::of(at).0 - 1).begins_at()));
        reads.push(StoreStep::DueDeliveries { node: None, at, limit: ALL });
    }
    for (channel, _) in &known.channels {
        let channel = *channel;
        reads.push(StoreStep::ChannelEvents { tenant, channel, after: 0, limit: ALL });
        reads.push(StoreStep::Frames { channel, after: 0, limit: ALL });
        reads.push(StoreStep::Follows(channel));
    }
    reads.extend(known.follows.iter().map(|(_, run)| StoreStep::Follower(*run)));
    reads.extend(known.asks.iter().map(|ask| StoreStep::Asked(tenant, *ask)));
    reads.extend(known.inputs.iter().map(|(run, input)| StoreStep::Input(*run, *input)));
    reads.extend(known.agents.iter().map(|agent| StoreStep::Account(tenant, AgentRef::Id(*agent))));
    reads.push(StoreStep::Peers);
    reads.extend(
        known.agents.iter().flat_map(|agent| [StoreStep::Peer(tenant, *agent), StoreStep::OpenPeerTasks(*agent)]),
    );
    reads.extend(known.runs.iter().map(|run| StoreStep::PeerTask(tenant, *run)));
    reads.extend(known.secrets.iter().map(|secret| StoreStep::Credential(*secret)));
    if let Some(at) = at {
        reads.extend(known.requests.iter().map(|(code, _)| StoreStep::PairingRequest(*code, at)));
    }
    reads.extend(known.runs.iter().map(|run| StoreStep::RunEvents { tenant, run: *run, after: 0, limit: ALL }));
    for shown in [OutlineScope::Everything, OutlineScope::Artifacts] {
        reads.extend(known.runs.iter().map(|run| StoreStep::RunOutline { tenant, run: *run, upto: i64::MAX, shown }));
    }
    reads.extend(known.conversations.iter().map(|conversation| StoreStep::Conversation(tenant, *conversation)));
    for conversation in known.filled.iter().chain(known.conversations.last()) {
        reads.push(list(ListToRead::Messages(*conversation)));
        reads.push(list(ListToRead::Artifacts(conversation.workspace())));
    }
    reads.push(StoreStep::UnusedBlobs(known.blobs.clone()));
    reads.extend(known.runs.last().into_iter().flat_map(|run| strange_reads(known, *run)));
    reads
}

fn tasks_of(agent: AgentId) -> ListToRead {
    ListToRead::Tasks(TaskFilter { agent, of: None, conversation: None, state: None, after: None })
}

fn every_day(tenant: TenantId) -> StoreStep {
    StoreStep::Usage { tenant, first: UtcDay(0), last: UtcDay::of(NEVER) }
}

/// Reads by another tenant, or by a nonexistent one.
fn strange_reads(known: &GeneratorState, run: RunId) -> Vec<StoreStep> {
    let tenant = known.neighbour.unwrap_or_else(|| TenantId::from_uuid(run.uuid()));
    let list = |list| StoreStep::List { tenant, list, limit: ALL };
    let mut reads = vec![
        StoreStep::Run(tenant, run),
        StoreStep::PeerTask(tenant, run),
        StoreStep::RunEvents { tenant, run, after: 0, limit: ALL },
        StoreStep::RunOutline { tenant, run, upto: 2, shown: OutlineScope::Everything },
        StoreStep::Live(tenant),
        StoreStep::Log { tenant, after: 0, limit: ALL },
        list(ListToRead::Runs(RunFilter::default())),
        list(ListToRead::Accounts),
        list(ListToRead::Runtimes(None)),
        list(ListToRead::Keys(KeyKind::Api, None)),
        list(ListToRead::Keys(KeyKind::Session, None)),
        list(ListToRead::Conversations),
        list(ListToRead::Channels(ChannelFilter::default())),
        list(ListToRead::Permissions(PermissionFilter::default())),
        list(ListToRead::Grants),
        StoreStep::PendingPermissions(tenant),
        StoreStep::Follower(RunId::from_uuid(tenant.uuid())),
        list(ListToRead::Users),
        list(ListToRead::Deliveries(DeliveryFilter::default())),
        list(ListToRead::Delegations(DelegationFilter::default())),
        StoreStep::AccessRules(tenant),
        StoreStep::Quotas(tenant, Timestamp::default()),
        every_day(tenant),
    ];
    reads.push(StoreStep::PushConfigs(tenant, run));
    reads.push(StoreStep::NotificationTargets(tenant));
    reads.push(StoreStep::LastNotified(tenant));
    reads.extend(known.notification_targets.last().map(|target| StoreStep::NotificationTarget(tenant, *target)));
    reads.extend(known.delegations.last().map(|delegation| StoreStep::Delegation(tenant, *delegation)));
    reads.extend(known.agents.last().map(|agent| list(tasks_of(*agent))));
    reads.extend(known.users.last().map(|user| StoreStep::User(tenant, UserRef::Id(*user))));
    reads.extend(known.deliveries.last().map(|delivery| StoreStep::Delivery(tenant, *delivery)));
    if let Some((channel, _)) = known.channels.last() {
        reads.push(StoreStep::Channel(tenant, *channel));
        reads.push(StoreStep::ChannelEvents { tenant, channel: *channel, after: 0, limit: ALL });
    }
    reads.extend(known.permissions.last().map(|permission| StoreStep::Permission(tenant, *permission)));
    reads.extend(known.asks.last().map(|ask| StoreStep::Asked(tenant, *ask)));
    reads.extend(known.agents.last().map(|agent| StoreStep::Account(tenant, AgentRef::Id(*agent))));
    reads.extend(known.agents.last().map(|agent| StoreStep::Peer(tenant, *agent)));
    reads.extend(known.runtimes.last().map(|runtime| StoreStep::Runtime(tenant, *runtime)));
    reads.extend(known.artifacts.last().map(|artifact| StoreStep::Artifact(tenant, *artifact)));
    if let Some(conversation) = known.conversations.last() {
        reads.push(StoreStep::Conversation(tenant, *conversation));
        reads.push(list(ListToRead::Messages(*conversation)));
        reads.push(list(ListToRead::Artifacts(conversation.workspace())));
    }
    reads
}

/// The invariant an answer breaks, if any. `swept` is the time of the preceding sweep.
pub(super) fn broken(step: &StoreStep, value: &StepValue, swept: Option<Timestamp>) -> Option<String> {
    match (step, value) {
        (_, StepValue::Log(page)) => broken_chain(page),
        (_, StepValue::RunEvents(events)) => broken_stream(events),
        (_, StepValue::Frames(frames)) => {
            broken_count(frames.floor, frames.frames.iter().map(|(seq, _)| *seq), frames.head)
        }
        (_, StepValue::ChannelEvents(events)) => {
            broken_count(events.floor, events.events.iter().map(|event| event.seq), events.last_seq)
        }
        (_, StepValue::Deliveries(pages)) => pages.iter().flatten().find_map(astray),
        (_, StepValue::Tasks(pages)) => out_of_order(pages),
        (StoreStep::OpenPeerTasks(agent), StepValue::PeerTasks(tasks)) => {
            let foreign = tasks.iter().find(|task| task.agent != *agent)?;
            Some(format!("{foreign:?} is not of {agent}"))
        }
        (StoreStep::List { tenant, .. }, StepValue::Runs(pages)) => {
            let runs = || pages.iter().flatten();
            runs().find_map(|run| overdue(run, swept)).or_else(|| {
                let foreign = runs().find(|run| run.tenant != *tenant)?;
                Some(format!("{} is of another tenant", foreign.id))
            })
        }
        _ => None,
    }
}

/// A delivery that waits for nothing, or that is attempted although it isn't pending.
fn astray(delivery: &DeliveryRecord) -> Option<String> {
    let is_push = delivery.kind == DeliveryKind::TaskUpdated;
    let is_notification = delivery.kind == DeliveryKind::Notification;
    if is_push != delivery.config.is_some() || is_notification != delivery.target.is_some() {
        return Some(format!("{delivery:?} is a push or it is not"));
    }
    if (is_push || is_notification) != delivery.seq.is_some() {
        return Some(format!("{delivery:?} reports a row or it does not"));
    }
    let waits = delivery.state == DeliveryState::Pending;
    (waits != delivery.next_at.is_some()).then(|| format!("{delivery:?} is tried or it is not"))
}

/// Tasks that aren't sorted by their last change, or don't match the reported total.
fn out_of_order(pages: &[(Vec<RunRecord>, u64)]) -> Option<String> {
    let runs: Vec<&RunRecord> = pages.iter().flat_map(|(runs, _)| runs).collect();
    let count = u64::try_from(runs.len()).unwrap_or(u64::MAX);
    if let Some((_, total)) = pages.iter().find(|(_, total)| *total != count) {
        return Some(format!("{count} tasks are said to be {total}"));
    }
    let late = runs.windows(2).find(|pair| pair[0].status_at() < pair[1].status_at())?;
    Some(format!("{} comes after {}, which changed before it", late[1].id, late[0].id))
}

/// Seqs with gaps.
fn broken_count(floor: i64, seqs: impl Iterator<Item = i64>, last: i64) -> Option<String> {
    let seqs: Vec<i64> = seqs.collect();
    let wanted = floor + 1..=last;
    (!wanted.clone().eq(seqs.iter().copied())).then(|| format!("{wanted:?} are {seqs:?}"))
}

/// A claimed run waits for exactly its open questions, and no other run has any.
pub(super) async fn unbalanced(model: &MemoryStore, known: &GeneratorState) -> Option<String> {
    let tenant = known.tenant?;
    let all = || Pagination { limit: ALL, cursor: None };
    let runs = model.runs(tenant, RunFilter::default(), all()).await.ok()?.items;
    let pending = PermissionFilter { state: Some(PermissionState::Pending), ..PermissionFilter::default() };
    let mut open: BTreeMap<RunId, (u32, u32)> = BTreeMap::new();
    for permission in model.permissions(tenant, pending, all()).await.ok()?.items {
        open.entry(permission.run).or_default().0 += 1;
    }
    for ask in &known.asks {
        let asked = model.worker_request(tenant, *ask).await.ok();
        let waits = |ask: &WorkerRequestRecord| ask.what.waiting().filter(|_| ask.state == WorkerRequestState::Pending);
        if let Some((run, what)) = asked.and_then(|ask| Some((ask.run, waits(&ask)?))) {
            let (approvals, inputs) = open.entry(run).or_default();
            *match what {
                WaitReason::Approval => approvals,
                WaitReason::Input => inputs,
            } += 1;
        }
    }
    runs.iter().find_map(|run| {
        let waits = run.state.claim().map(|claim| claim.waits).unwrap_or_default();
        let open = open.get(&run.id).copied().unwrap_or_default();
        let balanced = (waits.approvals, waits.inputs) == open && (waits.since.is_some() || open == (0, 0));
        (!balanced).then(|| format!("{} waits for {waits:?}, but open are {open:?}", run.id))
    })
}

fn broken_chain(page: &LogPage) -> Option<String> {
    let (mut seq, mut hash) = (page.floor, page.floor_hash);
    for row in &page.rows {
        if row.seq != seq + 1 {
            return Some(format!("the log goes from {seq} to {}", row.seq));
        }
        if !row.follows(&hash) {
            return Some(format!("row {} does not follow the hash {}", row.seq, hex(&hash)));
        }
        (seq, hash) = (row.seq, unhex(&row.hash)?);
    }
    (seq != page.head).then(|| format!("the log ends at {seq}, but its head is {}", page.head))
}

fn broken_stream(page: &RunEvents) -> Option<String> {
    let mut seq = page.floor;
    for event in &page.events {
        if event.seq != seq + 1 {
            return Some(format!("the stream goes from {seq} to {}", event.seq));
        }
        seq = event.seq;
        let ends = event.event_kind().is_some_and(EventKind::is_terminal);
        let last = event.seq == page.last_seq;
        if ends != (last && page.status.is_terminal()) {
            return Some(format!(
                "a run that is {} has {} at {seq} of {}",
                page.status.as_str(),
                event.kind,
                page.last_seq
            ));
        }
    }
    (seq != page.last_seq).then(|| format!("the stream ends at {seq}, but its last seq is {}", page.last_seq))
}

fn overdue(run: &RunRecord, swept: Option<Timestamp>) -> Option<String> {
    // A waiting run is as old as its questions.
    if run.state.waiting().is_some() {
        return None;
    }
    // A question that expires in a sweep, perhaps at the moment it was asked, may leave a run whose timeout has passed.
    // The next sweep handles it.
    let waited = run.state.claim().filter(|claim| claim.waits != RunWaits::default());
    let deadline = waited.map_or_else(|| next_deadline(&run.state), |claim| Some(claim.lease_until));
    let (deadline, swept) = (deadline?, swept?);
    let late = run.state.status() == RunStatus::Running && deadline <= swept;
    late.then(|| format!("{} still runs after a sweep at {swept}; its deadline was {deadline}", run.id))
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Json, env::Env, log::GENESIS, wire::event::Event};

    use super::*;
    use crate::{WriteContext, record::NewConversation};

    fn stream(kinds: &[&str], status: RunStatus) -> RunEvents {
        let at = Timestamp::default();
        let events = kinds.iter().zip(1..).map(|(kind, seq)| Event {
            seq,
            kind: (*kind).to_owned(),
            at,
            data: Json::empty_object(),
        });
        let events: Vec<Event> = events.collect();
        let last_seq = events.last().map_or(0, |event| event.seq);
        RunEvents { events, floor: 0, last_seq, status }
    }

    #[test]
    fn a_stream_has_no_gaps_and_ends_with_a_final_event() {
        let whole = stream(&["task.created", "task.claimed", "task.failed"], RunStatus::Failed);
        assert_eq!(broken_stream(&whole), None);
        let mut gap = whole.clone();
        gap.events.remove(1);
        assert_eq!(broken_stream(&gap), Some("the stream goes from 1 to 3".to_owned()));
        let mut short = whole;
        short.events.pop();
        assert_eq!(broken_stream(&short), Some("the stream ends at 2, but its last seq is 3".to_owned()));
        for wrong in [
            stream(&["task.created", "task.failed", "task.chunk"], RunStatus::Failed),
            stream(&["task.created", "task.failed", "task.failed"], RunStatus::Failed),
            stream(&["task.created", "task.chunk"], RunStatus::Completed),
            stream(&["task.created", "task.completed"], RunStatus::Running),
        ] {
            assert!(broken_stream(&wrong).is_some(), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn a_changed_added_or_removed_row_breaks_the_chain() {
        let (store, env) = (MemoryStore::new(), Env::seeded(1));
        let tenant = env.tenant_id();
        store.ensure_tenant(tenant, "t", Timestamp::default()).await.unwrap();
        for name in ["one", "two"] {
            let conversation = NewConversation {
                id: env.conversation_id(),
                title: Some(name.to_owned()),
                metadata: None,
                agent: None,
            };
            let context = WriteContext::new(tenant, "system", Timestamp::default());
            store.create_conversation(context, conversation).await.unwrap();
        }
        let page = store.log(tenant, 0, 10).await.unwrap();
        assert_eq!((page.rows.len(), page.floor_hash, broken_chain(&page)), (3, GENESIS, None));
        for change in [
            |page: &mut LogPage| page.rows[1].actor.push('x'),
            |page: &mut LogPage| page.rows[2].at = Timestamp::from_millis(1),
            |page: &mut LogPage| drop(page.rows.remove(1)),
            |page: &mut LogPage| drop(page.rows.pop()),
            |page: &mut LogPage| page.floor_hash = [1; 32],
            |page: &mut LogPage| page.rows.swap(1, 2),
        ] {
            let mut changed = page.clone();
            change(&mut changed);
            assert!(broken_chain(&changed).is_some(), "{changed:?}");
        }
    }
}
