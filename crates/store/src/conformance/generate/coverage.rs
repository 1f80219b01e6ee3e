//! Proves that sequences reach every answer, every row and every frame often enough.

use std::collections::BTreeMap;

use attache_protocol::{
    EventKind, RunId,
    rules::{quota::Spend, run::RunStatus},
};

use super::StepGenerator;
use crate::{
    ChannelStore as _, Store as _, UserStore as _, WorkerRequestStore as _,
    conformance::{
        perform,
        step::StoreStep,
        step_result::{StepResult, StepValue},
    },
    memory::MemoryStore,
    record::{Pagination, RunCreation, RunFilter, StoredCredential, task::RunTaskState, user::UserRef},
};

/// Counts each kind of answer per kind of step, each type of row, and other relevant events.
async fn reached(sequences: u64) -> BTreeMap<String, u64> {
    let mut reached = BTreeMap::new();
    let mut count = |what: String| *reached.entry(what).or_insert(0) += 1;
    for seed in 0..sequences {
        let (mut generator, model) = (StepGenerator::new(seed), MemoryStore::new());
        for _ in 0..60 {
            let step = generator.next(&model).await;
            let before = reported(&model, &generator, &step).await;
            let worked = worked_before(&model, &generator, &step).await;
            let answer = perform(&model, step.clone()).await;
            if before.is_some() && answer.is_ok() && before == reported(&model, &generator, &step).await {
                count("a report was heard before".to_owned());
            }
            for run in worked {
                let run = model.run(generator.tenant, run).await.unwrap();
                if run.state.status() == RunStatus::Failed {
                    count("a run that worked before was refused by a quota".to_owned());
                }
            }
            meaning(&generator, &step, &answer).into_iter().map(str::to_owned).for_each(&mut count);
            generator.learn(&step, &answer);
            let answer_kind = match &answer {
                Ok(_) => "Ok".to_owned(),
                Err(crate::Error::Refused { refusal, .. }) => format!("{refusal:?}"),
                Err(error) => first_word(&format!("{error:?}")),
            };
            count(format!("{} {answer_kind}", first_word(&format!("{step:?}"))));
        }
        let log = model.log(generator.tenant, 0, 1_000).await.unwrap();
        log.rows.into_iter().for_each(|row| count(row.kind));
        for (channel, _) in &generator.known.channels {
            // Retention may have removed it.
            let Ok(waiting) = model.frames(*channel, 0, 1_000).await else { continue };
            for (_, frame) in waiting.frames {
                count(format!("a frame {}", first_word(&format!("{frame:?}"))));
            }
        }
        for permission in &generator.known.permissions {
            let Ok(permission) = model.permission(generator.tenant, *permission).await else { continue };
            let source = permission.settled.and_then(|settled| settled.source);
            count(format!("a permission {:?} {source:?}", permission.state));
        }
        for run in &generator.known.runs {
            let Ok(run) = model.run(generator.tenant, *run).await else { continue };
            let exceeded = run.result.is_some_and(|result| result.get().contains(r#""code":"quota_exceeded""#));
            if exceeded && run.runtime.is_none() {
                count("a run was refused by a quota".to_owned());
            }
        }
        for key in &generator.known.keys {
            let Ok(Some(StoredCredential::Key { user: Some(user), revoked: true, .. })) =
                model.key_credential(*key).await
            else {
                continue;
            };
            if model.user(generator.tenant, UserRef::Id(user)).await.is_ok_and(|user| user.removed_at.is_some()) {
                count("a key was of a removed user".to_owned());
            }
        }
        for ask in &generator.known.asks {
            let Ok(ask) = model.worker_request(generator.tenant, *ask).await else { continue };
            count(format!("{} {:?}", first_word(&format!("{:?}", ask.what)), ask.state));
        }
    }
    reached
}

fn first_word(debug: &str) -> String {
    debug.split([' ', '(', '{', ',']).next().unwrap_or_default().to_owned()
}

/// The newest seq of the run that a step reports events of, if they are identifiable.
async fn reported(model: &MemoryStore, generator: &StepGenerator, step: &StoreStep) -> Option<i64> {
    match step {
        StoreStep::Progress { run, events, report: Some(_), .. } if !events.is_empty() => {
            model.run(generator.tenant, *run).await.ok().map(|run| run.last_seq)
        }
        _ => None,
    }
}

/// Before a claim: the pending runs that were claimed before.
async fn worked_before(model: &MemoryStore, generator: &StepGenerator, step: &StoreStep) -> Vec<RunId> {
    let StoreStep::Claim { .. } = step else { return Vec::new() };
    let filter = RunFilter { status: Some(RunStatus::Pending), ..RunFilter::default() };
    let page = Pagination { limit: 100, cursor: None };
    let pending = model.runs(generator.tenant, filter, page).await.map(|listed| listed.items).unwrap_or_default();
    pending.iter().filter(|run| run.state.epoch > 0).map(|run| run.id).collect()
}

/// What an answer shows beyond success.
fn meaning(generator: &StepGenerator, step: &StoreStep, answer: &StepResult) -> Vec<&'static str> {
    let Ok(value) = answer else { return Vec::new() };
    let mut shown = Vec::new();
    let mut note = |what: &'static str, is_so: bool| shown.extend(is_so.then_some(what));
    match (step, value) {
        (StoreStep::Claim { via, .. }, StepValue::Claimed(Some(_))) => note("a claim over a channel", via.is_some()),
        (StoreStep::Progress { .. }, StepValue::Status(status)) => {
            note("a run was stopped by a quota", *status == RunStatus::Failed);
        }
        (StoreStep::Quotas(..), StepValue::Quotas(quotas)) => {
            note("something is held", quotas.iter().any(|quota| quota.account.held != Spend::default()));
            note("something was spent", quotas.iter().any(|quota| quota.account.spent != Spend::default()));
        }
        (StoreStep::CloseConnection(..), StepValue::Held(held)) => note("a connection was taken over", !held),
        (StoreStep::EndNode { .. }, StepValue::Held(held)) => note("a node ended", *held),
        (StoreStep::LeaseDeliveries(..), StepValue::Leased(leased)) => {
            note("a delivery was leased", !leased.is_empty());
        }
        (StoreStep::Lease(..), StepValue::Held(held)) => note("a lease is another's", !held),
        (StoreStep::KeepValue(..), StepValue::Held(held)) => note("there was no room for a value", !held),
        (StoreStep::TakeValue { until, at, .. }, StepValue::SharedValues(taken)) => {
            note("a value was taken away", !taken.is_empty() && until <= at);
            note("a value was shown for the last time", !taken.is_empty() && until > at);
            note("a value was gone", taken.is_empty());
        }
        (StoreStep::DueDeliveries { .. }, StepValue::DueDeliveries(due)) => {
            note("a delivery is due", !due.is_empty());
            note("a push is due", due.iter().any(|delivery| delivery.config.is_some()));
            note("a notification is due", due.iter().any(|delivery| delivery.target.is_some()));
        }
        (_, StepValue::Tasks(pages)) => {
            let has = |state| pages.iter().flat_map(|(runs, _)| runs).any(|run| run.task_state() == state);
            note("tasks on several pages", pages.len() > 1);
            note("a task that waits", has(RunTaskState::InputRequired) || has(RunTaskState::AuthRequired));
            note("a task that was rejected", has(RunTaskState::Rejected));
        }
        (StoreStep::RecordAttempt { attempt, .. }, StepValue::Delivery(delivery)) => {
            note("an attempt came out of turn", delivery.last.as_ref() != Some(attempt));
        }
        (StoreStep::RequestPermission { permission, .. }, StepValue::Permission(answered)) => {
            note("a permission was asked for before", answered.id != permission.id);
        }
        (StoreStep::DecidePermission(_, id, _), StepValue::Permission(_)) => {
            note("a decision repeated", generator.known.decisions.iter().any(|(_, decided, _)| decided == id));
        }
        (StoreStep::Ask { ask, .. }, StepValue::Ask(answered)) => {
            note("something was asked before", answered.id != ask.id);
        }
        (StoreStep::AddInput(_, new), StepValue::Input(input)) => {
            note("an input was given before", input.id != new.id);
            note("an input answered", input.ask.is_some());
            note("an input answered nothing", input.ask.is_none());
            note("an input came with a message", input.message.is_some());
        }
        (StoreStep::ResumeChannel(..), StepValue::Resumed(resumed)) => {
            note("frames were missing", resumed.missing.is_some());
        }
        (StoreStep::OpenChannel(_, _), StepValue::Channel(channel)) => note("frames were handed on", channel.head > 0),
        (StoreStep::CreateRun(_, new), StepValue::Created(created)) => {
            let existing = matches!(**created, RunCreation::Existing(_));
            note("a run was followed again", existing && new.follow.is_some());
        }
        _ => {}
    }
    shown
}

/// Answers that sequences must produce, besides success of every step.
const ANSWERS: [&str; 161] = [
    "Acknowledge NotFound",
    "AddArtifact NotFound",
    "AddInput Ended",
    "AddPasskey NameTaken",
    "AddPasskey NotFound",
    "Passkey NotFound",
    "Passkeys NotFound",
    "RemovePasskey NotFound",
    "UsePasskey NotFound",
    "AddInput KeyReused",
    "AddInput NotAsked",
    "AddInput NotFound",
    "AddInput NotRunning",
    "AddMessage NotFound",
    "AnswerTool NotFound",
    "CreateNotificationTarget NotFound",
    "CreateNotificationTarget TooManyNotificationTargets",
    "WithdrawAsk NotFound",
    "ArchiveAccount NotFound",
    "Artifact NotFound",
    "Ask Ended",
    "Ask NoEngine",
    "Ask KeyReused",
    "Ask NotFound",
    "Ask NotRunning",
    "Ask StaleEpoch",
    "Asked NotFound",
    "AttachRuntime AgentArchived",
    "AttachRuntime IsPeer",
    "AttachRuntime NotFound",
    "AttachRuntime PairingInvalid",
    "AttachRuntime PairingPending",
    "AttachRuntime PairingRejected",
    "BeginPeerTask NotFound",
    "BeginPeerTask StaleEpoch",
    "CancelDelegation NotFound",
    "CancelRun Ended",
    "CancelRun NotFound",
    "ChangeToken NotFound",
    "ChangeToken RuntimeEnded",
    "Channel NotFound",
    "ChannelEvents NotFound",
    "ChannelMessage NotFound",
    "Claim NotFound",
    "Claim RuntimeEnded",
    "BeatNode NodeEnded",
    "CloseChannel NotFound",
    "CloseConnection NotFound",
    "Conversation NotFound",
    "CreateAccount NameReserved",
    "CreateAccount NameTaken",
    "CreateAccount NotFound",
    "CreateConversation NotFound",
    "CreateKey NotFound",
    "CreatePairingCode AgentArchived",
    "CreatePairingCode IsPeer",
    "CreatePairingCode NotFound",
    "CreateRun AgentArchived",
    "CreateRun ApprovalUsed",
    "CreateRun KeyReused",
    "CreateRun NotFound",
    "CreateRun QuotaExceeded",
    "CreateRun RunDeleted",
    "CreateUser NameTaken",
    "CreateUser NotFound",
    "DecidePairing AgentArchived",
    "DecidePairing IsPeer",
    "DecidePairing NotFound",
    "DecidePairing PairingInvalid",
    "DecidePermission AlreadyDecided",
    "DecidePermission NotFound",
    "DeclareExtensions RuntimeEnded",
    "DecideWorktree NotFound",
    "DecideWorktree VersionChanged",
    "Delegation NotFound",
    "DeleteConversation InUse",
    "DeleteConversation NotFound",
    "DeleteRun InUse",
    "DeleteRun NotFound",
    "Delivery NotFound",
    "Finish Ended",
    "Finish ForeignArtifact",
    "Finish NotFound",
    "Finish NotRunning",
    "Finish StaleEpoch",
    "Follows NotFound",
    "Frames NotFound",
    "Heartbeat NotFound",
    "Heartbeat RuntimeEnded",
    "Input NotFound",
    "Leave NotFound",
    "Leave RuntimeEnded",
    "Lease NodeEnded",
    "LeaseDeliveries NodeEnded",
    "LinkPeerTask NotFound",
    "LinkPeerTask PeerTaskDiffers",
    "LinkPeerTask StaleEpoch",
    "List NotFound",
    "NotePeer NotFound",
    "NotificationTarget NotFound",
    "OfferCard NotFound",
    "OpenChannel NodeEnded",
    "OpenChannel NotFound",
    "OpenChannel RuntimeEnded",
    "PairingCode PairingInvalid",
    "PairingRequest PairingInvalid",
    "Peer NotFound",
    "PeerTask NotFound",
    "Permission NotFound",
    "PinCard CardPinned",
    "PinCard NotFound",
    "Progress Ended",
    "Progress NotRunning",
    "Progress StaleEpoch",
    "PublishDelegation NotFound",
    "PushConfig NotFound",
    "PushConfigs NotFound",
    "PushEvents NotFound",
    "RecordAttempt NotFound",
    "Release Begun",
    "Release Ended",
    "Release NotRunning",
    "Release StaleEpoch",
    "RemoveNotificationTarget NotFound",
    "RemovePushConfig NotFound",
    "RemoveQuota NotFound",
    "RemoveUser LastOwner",
    "RemoveUser NotFound",
    "RequestPermission Ended",
    "RequestPermission KeyReused",
    "RequestPermission NotFound",
    "RequestPermission NotRunning",
    "RequestPermission StaleEpoch",
    "ResendDelivery NotFound",
    "ResumeChannel NodeEnded",
    "ResumeChannel ResumeRefused",
    "ResumeChannel RuntimeEnded",
    "RevokeGrant NotFound",
    "RevokeKey NotFound",
    "RevokeRuntime NotFound",
    "RunEvents NotFound",
    "SetAccessRules NotFound",
    "SetAccessRules VersionChanged",
    "SetPeer AgentArchived",
    "SetPeer IsPaired",
    "SetPeer NotFound",
    "SettleWorktree NotFound",
    "SetPushConfig NotFound",
    "SetPushConfig TooManyPushConfigs",
    "SetQuota NotFound",
    "TrustCard NotFound",
    "TrustCard NothingOffered",
    "TrustCard VersionChanged",
    "UpdateAccount AgentArchived",
    "UpdateAccount NameTaken",
    "UpdateAccount NotFound",
    "UpdateNotificationTarget NotFound",
    "UpdateUser LastOwner",
    "UpdateUser NameTaken",
    "UpdateUser NotFound",
    "User NotFound",
];

/// What must happen often, in this many sequences.
const OFTEN: [(&str, u64); 91] = [
    ("Claim Ok", 400),
    ("Progress Ok", 300),
    ("Finish Ok", 250),
    ("Release Ok", 50),
    ("DeleteRun Ok", 50),
    ("a claim over a channel", 200),
    ("OpenChannel Ok", 300),
    ("ResumeChannel Ok", 100),
    ("CloseChannel Ok", 20),
    ("CloseConnection Ok", 40),
    ("a connection was taken over", 2),
    ("a node ended", 8),
    ("a delivery was leased", 5),
    ("a lease is another's", 1),
    ("there was no room for a value", 3),
    ("a value was taken away", 5),
    ("a value was shown for the last time", 5),
    ("a value was gone", 5),
    ("SeenChannels Ok", 100),
    ("Acknowledge Ok", 150),
    ("PushEvents Ok", 80),
    ("RequestPermission Ok", 400),
    ("DecidePermission Ok", 150),
    ("DecidePermission AlreadyDecided", 150),
    ("RevokeGrant Ok", 10),
    ("Ask Ok", 250),
    ("AnswerTool Ok", 15),
    ("WithdrawAsk Ok", 15),
    ("AddInput Ok", 100),
    ("a decision repeated", 15),
    ("a frame Answer", 15),
    ("a frame Cancel", 60),
    ("a frame Event", 60),
    ("a frame Execute", 60),
    ("a frame Input", 20),
    ("a frame Permission", 30),
    ("a frame ToolCall", 30),
    ("a permission Approved Some(Policy)", 10),
    ("a permission Denied Some(Policy)", 5),
    ("a permission Expired Some(Timeout)", 8),
    ("a permission Cancelled None", 100),
    ("a permission was asked for before", 20),
    ("a report was heard before", 6),
    ("a run was followed again", 15),
    ("an input answered", 25),
    ("an input was given before", 4),
    ("frames were handed on", 40),
    ("something was asked before", 3),
    ("Input Expired", 8),
    ("Tool Expired", 1),
    ("CreateUser Ok", 150),
    ("UpdateUser Ok", 40),
    ("RemoveUser Ok", 15),
    ("SetAccessRules Ok", 60),
    ("SetQuota Ok", 150),
    ("CreateRun QuotaExceeded", 60),
    ("RecordAttempt Ok", 200),
    ("ResendDelivery Ok", 25),
    ("a run was refused by a quota", 5),
    ("a run was stopped by a quota", 20),
    ("a run that worked before was refused by a quota", 1),
    ("a delivery is due", 10),
    ("a key was of a removed user", 3),
    ("an attempt came out of turn", 15),
    ("something is held", 20),
    ("something was spent", 20),
    ("SetPushConfig Ok", 150),
    ("RemovePushConfig Ok", 20),
    ("a push is due", 10),
    ("CreateNotificationTarget Ok", 100),
    ("UpdateNotificationTarget Ok", 20),
    ("RemoveNotificationTarget Ok", 10),
    ("AddNotifications Ok", 60),
    ("a notification is due", 10),
    ("AddPasskey Ok", 20),
    ("UsePasskey Ok", 8),
    ("RemovePasskey Ok", 4),
    ("tasks on several pages", 20),
    ("a task that waits", 5),
    ("a task that was rejected", 3),
    ("an input came with a message", 50),
    ("SetPeer Ok", 60),
    ("PinCard Ok", 20),
    ("OfferCard Ok", 20),
    ("TrustCard Ok", 10),
    ("BeginPeerTask Ok", 40),
    ("LinkPeerTask Ok", 30),
    ("DecideWorktree Ok", 30),
    ("SettleWorktree Ok", 3),
    ("PublishDelegation Ok", 30),
    ("CancelDelegation Ok", 8),
];

#[tokio::test]
async fn sequences_reach_every_answer_and_every_row() {
    let reached = reached(1_000).await;
    // Only a file can be damaged; the model has none.
    let rows = EventKind::logged().filter(|kind| *kind != EventKind::TaskDamaged).map(EventKind::as_str);
    let wanted = ANSWERS.iter().copied().chain(rows);
    let missed: Vec<_> = wanted.filter(|wanted| !reached.contains_key(*wanted)).collect();
    assert!(missed.is_empty(), "never reached: {missed:?} of {reached:#?}");
    // Steps succeed, and aren't only refused.
    for (step, share) in OFTEN {
        let times = reached.get(step).copied().unwrap_or(0);
        assert!(times >= share, "{step} only {times} times in {reached:#?}");
    }
}
