//! Agents that go away, forget, lose replies or change their cards; and agents that only know 0.3 and no streams.

use attache_a2a_wire::{Part, TaskState};
use attache_protocol::{
    rules::{recovery::Recovery, run::RunStatus},
    wire::account::{AccountRequest, PeerRequest, TrustRequest},
};
use serde_json::json;

use super::{
    ours::{OwnHubPeer, PATIENCE, result},
    script::{PeerBehavior, ScriptedPeer},
};

async fn both(version: &'static str) -> (ScriptedPeer, OwnHubPeer) {
    let script = ScriptedPeer::start(version).await;
    let ours = OwnHubPeer::start().await;
    ours.add("outside", &script.url, None).await;
    (script, ours)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_streams_is_polled_in_either_version() {
    for (version, working, completed) in
        [("0.3", "working", "completed"), ("1.0", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED")]
    {
        let (script, ours) = both(version).await;
        let run = ours.run("outside", json!({"text": "hello", "context": {"n": 42.0}})).await;
        ours.in_state(run, Recovery::RemoteRunning).await;
        script.tell(TaskState::TaskStateCompleted, "all done");
        let ended = ours.ended(run).await;
        assert_eq!(
            (ended.status, result(&ended)["text"].clone()),
            (RunStatus::Completed, json!("all done")),
            "{version}"
        );
        let sent = script.sent();
        assert_eq!((sent.len(), sent[0].message_id.clone()), (1, run.to_string()), "ours, once");
        assert_eq!(sent[0].parts[0], Part::text("hello"));
        let theirs = |kind: &str, state: &str| (kind.to_owned(), "theirs-1".to_owned(), state.to_owned());
        assert_eq!(ours.native(run).await, [theirs("linked", working), theirs("updated", completed)], "its own words");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_away_for_a_while_is_waited_for() {
    let (script, ours) = both("0.3").await;
    let run = ours.run("outside", json!({"text": "hello"})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    script.mood(PeerBehavior::Down);
    ours.in_state(run, Recovery::Unreachable).await;
    // Our own hub may go away at the same time.
    let ours = ours.restart().await;
    script.mood(PeerBehavior::Good);
    ours.in_state(run, Recovery::RemoteRunning).await;
    script.tell(TaskState::TaskStateCompleted, "back");
    assert_eq!(ours.ended(run).await.status, RunStatus::Completed);
    assert_eq!(script.sent().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_never_becomes_a_second_execution() {
    let (script, ours) = both("1.0").await;
    script.mood(PeerBehavior::LosesReplies);
    let run = ours.run("outside", json!({"text": "hello"})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    assert_eq!(ours.native(run).await[0].1, "theirs-1", "it was found by our message");
    script.tell(TaskState::TaskStateCompleted, "found");
    assert_eq!(ours.ended(run).await.status, RunStatus::Completed);
    assert_eq!(script.sent().len(), 1);

    // 0.3 has no list, so nobody can know.
    let (script, ours) = both("0.3").await;
    script.mood(PeerBehavior::LosesReplies);
    let run = ours.run("outside", json!({"text": "hello"})).await;
    let ended = ours.ended(run).await;
    assert_eq!((ended.status, result(&ended)["code"].clone()), (RunStatus::Failed, json!("runtime_lost")), "{ended:?}");
    assert_eq!(script.sent().len(), 1);
}

/// The agent did the work; that its answer is not quite the standard's is no reason to lose it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_servers_of_others_really_send_is_read() {
    for version in ["1.0", "0.3"] {
        let (script, ours) = both(version).await;
        script.mood(PeerBehavior::Sloppy);
        let run = ours.run("outside", json!({"text": "hello"})).await;
        let ended = ours.ended(run).await;
        assert_eq!(ended.status, RunStatus::Completed, "{version}: {ended:?}");
        assert_eq!(result(&ended)["artifacts"][0]["parts"], json!([{"text": "it is done"}]), "{version}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_cannot_be_read_is_told_as_what_it_is() {
    for (mood, why) in
        [(PeerBehavior::Mumbles, "sent something that isn't A2A"), (PeerBehavior::Stumbles, "status 500")]
    {
        let (script, ours) = both("0.3").await;
        script.mood(mood);
        let run = ours.run("outside", json!({"text": "hello"})).await;
        let ended = result(&ours.ended(run).await);
        let error = ended["error"].as_str().unwrap().to_owned();
        assert_eq!(ended["code"], json!("runtime_lost"), "{ended}");
        assert!(error.contains(why) && error.contains("isn't resent"), "{error}");
        assert!(!error.contains("connection broke"), "{error}");
        assert_eq!(script.sent().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_is_too_long_is_refused_with_a_reason() {
    let (script, ours) = both("1.0").await;
    script.mood(PeerBehavior::Verbose);
    let run = ours.run("outside", json!({"text": "hello"})).await;
    let ended = ours.ended(run).await;
    let error = result(&ended)["error"].as_str().unwrap().to_owned();
    assert!(ended.status == RunStatus::Failed && error.contains("longer than 1 KiB"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_the_agent_forgot_is_lost_and_not_sent_again() {
    let (script, ours) = both("1.0").await;
    let run = ours.run("outside", json!({"text": "hello"})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    script.mood(PeerBehavior::Forgets);
    ours.in_state(run, Recovery::RemoteMissing).await;
    let ended = ours.ended(run).await;
    assert_eq!((ended.status, result(&ended)["code"].clone()), (RunStatus::Failed, json!("runtime_lost")));
    assert_eq!(script.sent().len(), 1);
    assert_eq!(ours.native(run).await.last().unwrap().2, "TASK_STATE_WORKING", "what it said last stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_run_is_cancelled_at_an_agent_of_0_3() {
    let (script, ours) = both("0.3").await;
    let run = ours.run("outside", json!({"text": "hello"})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    ours.hub.cancel_run(&ours.owner, run, Default::default()).await.unwrap();
    let cancelled = async {
        while script.states() != [TaskState::TaskStateCanceled] {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, cancelled).await.unwrap();
    assert_eq!(ours.read(run).await.status, RunStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_that_changes_is_not_used_until_it_is_trusted() {
    let (script, ours) = both("1.0").await;
    let before = ours.hub.account(&ours.owner, "outside").await.unwrap().peer.unwrap();
    assert!(before.card_pin.is_some() && before.offered_pin.is_none(), "pinned at first use: {before:?}");
    script.describe("something else entirely");
    let changed = tokio::time::timeout(PATIENCE, async {
        loop {
            let peer = ours.hub.account(&ours.owner, "outside").await.unwrap().peer.unwrap();
            if peer.offered_pin.is_some() {
                return peer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    let changed = changed.await.unwrap();
    assert_eq!(changed.card_pin, before.card_pin);
    assert!(changed.problem.as_ref().is_some_and(|why| why.contains("attache agents trust")), "{changed:?}");
    let run = ours.run("outside", json!({"text": "hello"})).await;
    let stale = TrustRequest { card_pin: before.card_pin };
    ours.hub.trust_peer(&ours.owner, "outside", stale).await.expect_err("another card was looked at");
    ours.when(run, |run| run.status == RunStatus::Pending).await;
    assert_eq!(script.sent().len(), 0, "nothing is sent");
    let seen = TrustRequest { card_pin: changed.offered_pin.clone() };
    let trusted = ours.hub.trust_peer(&ours.owner, "outside", seen).await.unwrap().peer.unwrap();
    assert_eq!((trusted.card_pin, trusted.offered_pin, trusted.problem), (changed.offered_pin, None, None));
    ours.in_state(run, Recovery::RemoteRunning).await;
    script.tell(TaskState::TaskStateCompleted, "with the new card");
    assert_eq!(ours.ended(run).await.status, RunStatus::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_registers_itself_by_its_url() {
    let (script, ours) = (ScriptedPeer::start("0.3").await, OwnHubPeer::start().await);
    let body = json!({"agent_id": "itself", "url": script.url});
    let (status, registered) = ours.post("/api/a2a/register", body.clone()).await;
    assert_eq!((status, &registered["agent_id"]), (200, &json!("itself")), "{registered}");
    let run = ours.run("itself", json!({"text": "hello"})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    script.tell(TaskState::TaskStateCompleted, "done");
    assert_eq!(ours.ended(run).await.status, RunStatus::Completed);
    let first = registered["api_key"].as_str().unwrap();
    ours.hub.authenticate_key(first).await.unwrap();
    let (_, again) = ours.post("/api/a2a/register", body).await;
    assert_eq!(again["account_id"], registered["account_id"]);
    ours.hub.authenticate_key(first).await.expect_err("the key before is void");
    ours.hub.authenticate_key(again["api_key"].as_str().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used_is_not_added() {
    let (script, ours) = both("1.0").await;
    let wrong = |url: &str, card_pin: Option<String>| {
        let peer = Some(PeerRequest { url: url.to_owned(), key: None, card_pin });
        AccountRequest { name: Some("other".to_owned()), peer, ..AccountRequest::default() }
    };
    let pin = format!("sha256:{}", "0".repeat(64));
    for (request, why) in [
        (wrong("http://10.0.0.1/agent", None), "a private network"),
        (wrong("ftp://agents.example", None), "https://"),
        (wrong(&format!("{}/?key=secret", script.url), None), "peer.key"),
        (wrong(&format!("{}/nobody", script.url), None), "no agent card found"),
        (wrong(&script.url, Some(pin)), "does not match the card"),
        (wrong(&script.url, Some("x".to_owned())), "64 hex digits"),
    ] {
        let refused = ours.hub.create_account(&ours.owner, request).await.unwrap_err();
        assert!(refused.message.contains(why), "{refused:?}");
    }
    let missing = ours.hub.account(&ours.owner, "other").await.unwrap_err();
    assert_eq!(missing.code.http_status(), 404, "nothing was made");
}
