//! What must hold at the end of a sequence: everything that can be read, and the promises of the log and the streams.

use std::collections::BTreeMap;

use attache_protocol::{
    AgentId, EventKind, RunId, TenantId, Timestamp,
    log::{hex, unhex},
    rules::{
        permission::State,
        quota::Day,
        run::{Status, Waiting, Waits, next_deadline},
    },
    wire::{
        ask::AskState,
        delivery::{DeliveryKind, DeliveryState},
    },
};

use super::{
    answer::Value,
    known::Known,
    step::{List, Step},
};
use crate::{
    Asks as _, Store as _,
    memory::Memory,
    record::{
        AgentRef, KeyKind, LogPage, Outlined, Page, RunEvents, RunFilter, RunRecord,
        ask::{Ask, PermissionFilter},
        channel::ChannelFilter,
        delegation::DelegationFilter,
        delivery::{Delivery, DeliveryFilter},
        people::UserRef,
        task::TaskFilter,
    },
};

/// More than any sequence makes, so that one page shows everything.
const ALL: usize = 100_000;

/// Beyond the end of any sequence.
const NEVER: Timestamp = Timestamp::from_millis(i64::MAX / 2);

/// Reads that show everything a sequence made.
pub(super) fn reads(known: &Known, at: Option<Timestamp>) -> Vec<Step> {
    let Some(tenant) = known.tenant else { return Vec::new() };
    let list = |list| Step::List { tenant, list, limit: ALL };
    let mut reads = vec![
        Step::Live(tenant),
        Step::Clock,
        Step::Log { tenant, after: 0, limit: ALL },
        list(List::Accounts),
        list(List::Runtimes(None)),
        list(List::Keys(KeyKind::Api, None)),
        list(List::Keys(KeyKind::Session, None)),
        list(List::Conversations),
        // In small pages once, so that cursors meet every kind of row.
        Step::List { tenant, list: List::Runs(RunFilter::default()), limit: 7 },
        list(List::Channels(ChannelFilter::default())),
        list(List::Permissions(PermissionFilter::default())),
        list(List::Grants),
        Step::PendingPermissions(tenant),
        list(List::Users),
        list(List::Deliveries(DeliveryFilter::default())),
        list(List::Delegations(DelegationFilter::default())),
        Step::DueDeliveries { at: NEVER, limit: ALL },
        Step::AccessRules(tenant),
        every_day(tenant),
    ];
    reads.extend(known.agents.iter().map(|agent| Step::List { tenant, list: tasks_of(*agent), limit: 7 }));
    reads.extend(known.pushes.iter().map(|run| Step::PushConfigs(tenant, *run)));
    reads.extend(known.users.iter().map(|user| Step::User(tenant, UserRef::Id(*user))));
    reads.extend(known.keys.iter().map(|key| Step::KeyCredential(*key)));
    if let Some(at) = at {
        reads.push(Step::Quotas(tenant, at));
        reads.push(Step::Quotas(tenant, Day(Day::of(at).0 - 1).begins_at()));
        reads.push(Step::DueDeliveries { at, limit: ALL });
    }
    for (channel, _) in &known.channels {
        let channel = *channel;
        reads.push(Step::ChannelEvents { tenant, channel, after: 0, limit: ALL });
        reads.push(Step::Frames { channel, after: 0, limit: ALL });
        reads.push(Step::Follows(channel));
    }
    reads.extend(known.follows.iter().map(|(_, run)| Step::Follower(*run)));
    reads.extend(known.asks.iter().map(|ask| Step::Asked(tenant, *ask)));
    reads.extend(known.inputs.iter().map(|(run, input)| Step::Input(*run, *input)));
    reads.extend(known.agents.iter().map(|agent| Step::Account(tenant, AgentRef::Id(*agent))));
    reads.push(Step::Peers);
    reads.extend(known.agents.iter().flat_map(|agent| [Step::Peer(tenant, *agent), Step::OpenPeerTasks(*agent)]));
    reads.extend(known.runs.iter().map(|run| Step::PeerTask(tenant, *run)));
    reads.extend(known.secrets.iter().map(|secret| Step::Credential(*secret)));
    if let Some(at) = at {
        reads.extend(known.requests.iter().map(|(code, _)| Step::PairingRequest(*code, at)));
    }
    reads.extend(known.runs.iter().map(|run| Step::RunEvents { tenant, run: *run, after: 0, limit: ALL }));
    for shown in [Outlined::Everything, Outlined::Artifacts] {
        reads.extend(known.runs.iter().map(|run| Step::RunOutline { tenant, run: *run, upto: i64::MAX, shown }));
    }
    reads.extend(known.conversations.iter().map(|conversation| Step::Conversation(tenant, *conversation)));
    for conversation in known.filled.iter().chain(known.conversations.last()) {
        reads.push(list(List::Messages(*conversation)));
        reads.push(list(List::Artifacts(conversation.workspace())));
    }
    reads.push(Step::UnusedBlobs(known.blobs.clone()));
    reads.extend(known.runs.last().into_iter().flat_map(|run| strange_reads(known, *run)));
    reads
}

fn tasks_of(agent: AgentId) -> List {
    List::Tasks(TaskFilter { agent, of: None, conversation: None, state: None, after: None })
}

fn every_day(tenant: TenantId) -> Step {
    Step::Usage { tenant, first: Day(0), last: Day::of(NEVER) }
}

/// Reads by another tenant, or by one that does not exist.
fn strange_reads(known: &Known, run: RunId) -> Vec<Step> {
    let tenant = known.neighbour.unwrap_or_else(|| TenantId::from_uuid(run.uuid()));
    let list = |list| Step::List { tenant, list, limit: ALL };
    let mut reads = vec![
        Step::Run(tenant, run),
        Step::PeerTask(tenant, run),
        Step::RunEvents { tenant, run, after: 0, limit: ALL },
        Step::RunOutline { tenant, run, upto: 2, shown: Outlined::Everything },
        Step::Live(tenant),
        Step::Log { tenant, after: 0, limit: ALL },
        list(List::Runs(RunFilter::default())),
        list(List::Accounts),
        list(List::Runtimes(None)),
        list(List::Keys(KeyKind::Api, None)),
        list(List::Keys(KeyKind::Session, None)),
        list(List::Conversations),
        list(List::Channels(ChannelFilter::default())),
        list(List::Permissions(PermissionFilter::default())),
        list(List::Grants),
        Step::PendingPermissions(tenant),
        Step::Follower(RunId::from_uuid(tenant.uuid())),
        list(List::Users),
        list(List::Deliveries(DeliveryFilter::default())),
        list(List::Delegations(DelegationFilter::default())),
        Step::AccessRules(tenant),
        Step::Quotas(tenant, Timestamp::default()),
        every_day(tenant),
    ];
    reads.push(Step::PushConfigs(tenant, run));
    reads.extend(known.delegations.last().map(|delegation| Step::Delegation(tenant, *delegation)));
    reads.extend(known.agents.last().map(|agent| list(tasks_of(*agent))));
    reads.extend(known.users.last().map(|user| Step::User(tenant, UserRef::Id(*user))));
    reads.extend(known.deliveries.last().map(|delivery| Step::Delivery(tenant, *delivery)));
    if let Some((channel, _)) = known.channels.last() {
        reads.push(Step::Channel(tenant, *channel));
        reads.push(Step::ChannelEvents { tenant, channel: *channel, after: 0, limit: ALL });
    }
    reads.extend(known.permissions.last().map(|permission| Step::Permission(tenant, *permission)));
    reads.extend(known.asks.last().map(|ask| Step::Asked(tenant, *ask)));
    reads.extend(known.agents.last().map(|agent| Step::Account(tenant, AgentRef::Id(*agent))));
    reads.extend(known.agents.last().map(|agent| Step::Peer(tenant, *agent)));
    reads.extend(known.runtimes.last().map(|runtime| Step::Runtime(tenant, *runtime)));
    reads.extend(known.artifacts.last().map(|artifact| Step::Artifact(tenant, *artifact)));
    if let Some(conversation) = known.conversations.last() {
        reads.push(Step::Conversation(tenant, *conversation));
        reads.push(list(List::Messages(*conversation)));
        reads.push(list(List::Artifacts(conversation.workspace())));
    }
    reads
}

/// The promise that an answer breaks, if any. `swept` is the time of the sweep before.
pub(super) fn broken(step: &Step, value: &Value, swept: Option<Timestamp>) -> Option<String> {
    match (step, value) {
        (_, Value::Log(page)) => broken_chain(page),
        (_, Value::RunEvents(events)) => broken_stream(events),
        (_, Value::Frames(frames)) => {
            broken_count(frames.floor, frames.frames.iter().map(|(seq, _)| *seq), frames.head)
        }
        (_, Value::ChannelEvents(events)) => {
            broken_count(events.floor, events.events.iter().map(|event| event.seq), events.last_seq)
        }
        (_, Value::Deliveries(pages)) => pages.iter().flatten().find_map(astray),
        (_, Value::Tasks(pages)) => out_of_order(pages),
        (Step::OpenPeerTasks(agent), Value::PeerTasks(tasks)) => {
            let foreign = tasks.iter().find(|task| task.agent != *agent)?;
            Some(format!("{foreign:?} is not of {agent}"))
        }
        (Step::List { tenant, .. }, Value::Runs(pages)) => {
            let runs = || pages.iter().flatten();
            runs().find_map(|run| overdue(run, swept)).or_else(|| {
                let foreign = runs().find(|run| run.tenant != *tenant)?;
                Some(format!("{} is of another tenant", foreign.id))
            })
        }
        _ => None,
    }
}

/// A delivery that waits for nothing, or that is tried though nobody waits for it.
fn astray(delivery: &Delivery) -> Option<String> {
    let is_push = delivery.kind == DeliveryKind::TaskUpdated;
    if is_push != delivery.config.is_some() || is_push != delivery.seq.is_some() {
        return Some(format!("{delivery:?} is a push or it is not"));
    }
    let waits = delivery.state == DeliveryState::Pending;
    (waits != delivery.next_at.is_some()).then(|| format!("{delivery:?} is tried or it is not"))
}

/// Tasks that are not sorted by when they changed, or not as many as there are said to be.
fn out_of_order(pages: &[(Vec<RunRecord>, u64)]) -> Option<String> {
    let runs: Vec<&RunRecord> = pages.iter().flat_map(|(runs, _)| runs).collect();
    let count = u64::try_from(runs.len()).unwrap_or(u64::MAX);
    if let Some((_, total)) = pages.iter().find(|(_, total)| *total != count) {
        return Some(format!("{count} tasks are said to be {total}"));
    }
    let late = runs.windows(2).find(|pair| pair[0].status_at() < pair[1].status_at())?;
    Some(format!("{} comes after {}, which changed before it", late[1].id, late[0].id))
}

/// Seqs that do not lead from one to the other without gaps.
fn broken_count(floor: i64, seqs: impl Iterator<Item = i64>, last: i64) -> Option<String> {
    let seqs: Vec<i64> = seqs.collect();
    let wanted = floor + 1..=last;
    (!wanted.clone().eq(seqs.iter().copied())).then(|| format!("{wanted:?} are {seqs:?}"))
}

/// A claimed run waits for exactly its open questions, and no other run has any.
pub(super) async fn unbalanced(model: &Memory, known: &Known) -> Option<String> {
    let tenant = known.tenant?;
    let all = || Page { limit: ALL, cursor: None };
    let runs = model.runs(tenant, RunFilter::default(), all()).await.ok()?.items;
    let pending = PermissionFilter { state: Some(State::Pending), ..PermissionFilter::default() };
    let mut open: BTreeMap<RunId, (u32, u32)> = BTreeMap::new();
    for permission in model.permissions(tenant, pending, all()).await.ok()?.items {
        open.entry(permission.run).or_default().0 += 1;
    }
    for ask in &known.asks {
        let asked = model.asked(tenant, *ask).await.ok();
        let waits = |ask: &Ask| ask.what.waiting().filter(|_| ask.state == AskState::Pending);
        if let Some((run, what)) = asked.and_then(|ask| Some((ask.run, waits(&ask)?))) {
            let (approvals, inputs) = open.entry(run).or_default();
            *match what {
                Waiting::Approval => approvals,
                Waiting::Input => inputs,
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
    // A run that waits is as old as its questions.
    if run.state.waiting().is_some() {
        return None;
    }
    // A question that expires in a sweep, perhaps in the moment it was asked, may leave a run whose time-out has passed; the
    // next sweep sees to it.
    let waited = run.state.claim().filter(|claim| claim.waits != Waits::default());
    let deadline = waited.map_or_else(|| next_deadline(&run.state), |claim| Some(claim.lease_until));
    let (deadline, swept) = (deadline?, swept?);
    let late = run.state.status() == Status::Running && deadline <= swept;
    late.then(|| format!("{} still runs after a sweep at {swept}; its deadline was {deadline}", run.id))
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Json, env::Env, log::GENESIS, wire::event::Event};

    use super::*;
    use crate::{Context, record::NewConversation};

    fn stream(kinds: &[&str], status: Status) -> RunEvents {
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
    fn a_stream_has_no_gaps_and_ends_with_its_end() {
        let whole = stream(&["task.created", "task.claimed", "task.failed"], Status::Failed);
        assert_eq!(broken_stream(&whole), None);
        let mut gap = whole.clone();
        gap.events.remove(1);
        assert_eq!(broken_stream(&gap), Some("the stream goes from 1 to 3".to_owned()));
        let mut short = whole;
        short.events.pop();
        assert_eq!(broken_stream(&short), Some("the stream ends at 2, but its last seq is 3".to_owned()));
        for wrong in [
            stream(&["task.created", "task.failed", "task.chunk"], Status::Failed),
            stream(&["task.created", "task.failed", "task.failed"], Status::Failed),
            stream(&["task.created", "task.chunk"], Status::Completed),
            stream(&["task.created", "task.completed"], Status::Running),
        ] {
            assert!(broken_stream(&wrong).is_some(), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn a_changed_added_or_removed_row_breaks_the_chain() {
        let (store, env) = (Memory::new(), Env::seeded(1));
        let tenant = env.tenant_id();
        store.ensure_tenant(tenant, "t", Timestamp::default()).await.unwrap();
        for name in ["one", "two"] {
            let conversation =
                NewConversation { id: env.conversation_id(), title: Some(name.to_owned()), metadata: None };
            let context = Context::new(tenant, "system", Timestamp::default());
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
