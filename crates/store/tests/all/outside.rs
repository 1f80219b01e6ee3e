//! Outside agents and the tasks that they do for runs, by example, on both engines.

use std::{sync::mpsc::Receiver, time::Duration};

use attache_protocol::{
    AgentId, RunId, RuntimeId,
    digest::hex,
    rules::{
        recovery::Recovery,
        run::{RunLimits, RunRefusal, WorkerRef},
    },
    secret::SecretHash,
    wire::account::{AddedPart, ApprovalConfirmation, Callers, OnLimit},
};
use attache_store::{
    Error, WakeHint,
    record::{
        AccountPatch, AgentRef, ArchivedNames, LeaseTimes, NewAccount, NewPairingCode, NewRun, NewRuntime,
        PairingProof, RunResult, RuntimeKind,
        peer::{NewPeer, NewPeerTask, PeerRecord, PeerTask, PeerTaskChange, PinnedCard},
    },
};

use crate::peers::{LEASE, World, json};

const URL: &str = "https://peer.example/a2a";
const LEASES: LeaseTimes = LeaseTimes { lease: LEASE, grace: Duration::from_secs(10) };

// === impl World ===

impl World {
    /// One more agent, which is outside.
    async fn outsider(&self) -> AgentId {
        let account = NewAccount {
            archived_names: ArchivedNames::Own,
            author: None,
            approvals: None,
            id: self.env.agent_id(),
            name: "remote".to_owned(),
            description: None,
            instructions: None,
            skills: json("[]"),
            a2a: None,
            callers: Callers::Everyone,
            run_timeout: None,
            on_limit: OnLimit::default(),
            confirm_approvals: ApprovalConfirmation::default(),
        };
        let agent = self.store.create_account(self.context("key:owner"), account).await.unwrap().id;
        self.set(agent, URL, None).await.unwrap();
        agent
    }

    async fn set(&self, agent: AgentId, url: &str, sealed: Option<Option<Vec<u8>>>) -> Result<PeerRecord, Error> {
        let new = NewPeer { url: url.to_owned(), sealed, set_by: None };
        self.store.set_peer(self.context("key:owner"), AgentRef::Id(agent), new).await
    }

    fn card(&self, digest: u8) -> PinnedCard {
        PinnedCard { digest: [digest; 32], card: json(r#"{"name" : 1.0}"#), pinned_at: self.env.now() }
    }

    async fn attach(&self, agent: AgentId, kind: RuntimeKind) -> Result<RuntimeId, Error> {
        let id = self.env.runtime_id();
        let proof = PairingProof::Owner { tenant: self.tenant, agent };
        let token = SecretHash::of(&id.to_string());
        let new = NewRuntime { kind, id, token, proof, paired_by: None, device_name: None, labels: json("{}") };
        self.store.attach_runtime(new, self.env.now()).await.map(|runtime| runtime.id)
    }

    /// A run of the agent that the hub's own worker has claimed.
    async fn sent(&self, agent: AgentId, runtime: RuntimeId) -> (RunId, WorkerRef) {
        let run = self.queue(NewRun { agent: AgentRef::Id(agent), ..self.new_run() }).await.unwrap();
        let claimed = self.store.claim(runtime, None, Vec::new(), LEASE, self.env.now()).await.unwrap().unwrap();
        assert_eq!(claimed.run.id, run);
        (run, WorkerRef { runtime, epoch: Some(1) })
    }

    async fn link(&self, by: WorkerRef, run: RunId, change: PeerTaskChange) -> Result<PeerTask, Error> {
        self.store.link_peer_task(by, run, change, LEASE, self.env.now()).await
    }

    /// The newest rows of the log, as `type data`.
    async fn newest(&self, count: usize) -> Vec<String> {
        let rows = self.store.log(self.tenant, 0, 1_000).await.unwrap().rows;
        rows[rows.len() - count..].iter().map(|row| format!("{} {}", row.kind, row.data.get())).collect()
    }
}

/// Hints follow a commit, sometimes after its answer.
fn wait_for(hear: &Receiver<bool>) {
    while !hear.recv_timeout(Duration::from_secs(10)).expect("somebody is told") {}
}

fn said(task: &str, status: &str) -> PeerTaskChange {
    let (peer_task_id, native_status) = (Some(task.to_owned()), Some(status.to_owned()));
    PeerTaskChange { peer_task_id, native_status, ..PeerTaskChange::default() }
}

/// Otherwise they would receive the tasks of the private agent.
#[tokio::test]
async fn a_peer_that_others_set_ends_when_its_agent_becomes_private() {
    for world in World::all().await {
        let agent = world.outsider().await;
        let runtime = world.attach(agent, RuntimeKind::Hub).await.unwrap();
        let private = AccountPatch { callers: Some(Callers::Owner), ..AccountPatch::default() };
        let updated = world.store.update_account(world.context("key:owner"), agent.into(), private).await.unwrap();
        assert_eq!((updated.ended, updated.runtime), (vec![AddedPart::Peer], None));
        assert_eq!(world.store.peer(world.tenant, agent).await.unwrap(), None);
        let expected = [
            format!(r#"runtime.revoked {{"agent_id":"{agent}","runtime_id":"{runtime}"}}"#),
            format!(r#"agent.updated {{"agent_id":"{agent}","callers":"owner","ended":["peer"]}}"#),
        ];
        assert_eq!(world.newest(2).await, expected);
    }
}

#[tokio::test]
async fn what_was_known_of_one_url_does_not_hold_for_another() {
    for world in World::all().await {
        let agent = world.outsider().await;
        let sealed = Some(Some(vec![1, 2, 3]));
        world.set(agent, URL, sealed).await.unwrap();
        let pinned = world.store.pin_card(world.context("system"), agent, URL, world.card(7)).await.unwrap();
        assert_eq!((pinned.pin, pinned.sealed.as_deref()), (Some(world.card(7)), Some(&[1, 2, 3][..])));

        let same = world.set(agent, URL, None).await.unwrap();
        assert_eq!((same.pin, same.sealed), (Some(world.card(7)), Some(vec![1, 2, 3])));
        let other = world.set(agent, "https://other.example", None).await.unwrap();
        let url = "https://other.example".to_owned();
        assert_eq!(
            other,
            PeerRecord { agent, url, sealed: None, pin: None, offered: None, problem: None, set_by: None }
        );
        // A card that was read before comes too late.
        let late = world.store.pin_card(world.context("system"), agent, URL, world.card(7)).await;
        assert_eq!(late, Err(Error::NotFound));
    }
}

#[tokio::test]
async fn a_changed_card_waits_for_trust() {
    for world in World::all().await {
        let agent = world.outsider().await;
        let (told, hear) = std::sync::mpsc::channel();
        world.store.on_wake(Box::new(move |woken| told.send(woken.contains(&WakeHint::Peers)).unwrap()));
        let system = || world.context("system");
        world.store.pin_card(system(), agent, URL, world.card(1)).await.unwrap();
        assert_eq!(world.store.pin_card(system(), agent, URL, world.card(2)).await, Err(Error::CardPinned));
        for problem in ["changed", "changed again"] {
            let offered = world.store.offer_card(system(), agent, URL, world.card(2), problem).await.unwrap();
            assert_eq!((offered.offered, offered.problem.as_deref()), (Some(world.card(2)), Some(problem)));
        }

        let trust = |seen| world.store.trust_card(world.context("key:owner"), AgentRef::Id(agent), seen);
        assert_eq!(trust(Some([9; 32])).await, Err(Error::VersionChanged));
        let trusted = trust(Some([2; 32])).await.unwrap();
        assert_eq!((trusted.pin, trusted.offered, trusted.problem), (Some(world.card(2)), None, None));
        assert_eq!(trust(None).await, Err(Error::NothingOffered));
        wait_for(&hear);

        let row =
            |kind: &str, digest: u8| format!(r#"{kind} {{"agent_id":"{agent}","digest":"{}"}}"#, hex(&[digest; 32]));
        let rows = [row("peer.pinned", 1), row("peer.card_changed", 2), row("peer.trusted", 2)];
        assert_eq!(world.newest(3).await, rows);
    }
}

#[tokio::test]
async fn an_agent_is_outside_or_has_a_device() {
    for world in World::all().await {
        let agent = world.outsider().await;
        // Its device was paired before.
        assert_eq!(world.set(world.agent, URL, None).await, Err(Error::IsPaired));
        let expires_at = world.env.now().plus(LEASE);
        let code = NewPairingCode { maker: None, agent: AgentRef::Id(agent), code: SecretHash([5; 32]), expires_at };
        let refused = world.store.create_pairing_code(world.context("key:owner"), code).await;
        assert_eq!(refused, Err(Error::IsPeer));
        for kind in [RuntimeKind::Device, RuntimeKind::AgentKey] {
            assert_eq!(world.attach(agent, kind).await, Err(Error::IsPeer));
        }
        world.attach(agent, RuntimeKind::Hub).await.unwrap();
        world.set(agent, URL, None).await.unwrap();

        let peers: Vec<AgentId> = world.store.peers().await.unwrap().into_iter().map(|(_, peer)| peer.agent).collect();
        assert_eq!(peers, [agent]);
        world.store.archive_account(world.context("key:owner"), AgentRef::Id(agent)).await.unwrap();
        assert_eq!(world.store.peers().await.unwrap(), []);
        assert!(world.store.peer(world.tenant, agent).await.unwrap().is_some(), "it can still be looked at");
    }
}

#[tokio::test]
async fn a_run_is_sent_once_and_both_ids_are_kept() {
    for world in World::all().await {
        let agent = world.outsider().await;
        let runtime = world.attach(agent, RuntimeKind::Hub).await.unwrap();
        let (run, by) = world.sent(agent, runtime).await;
        let begin = |message: &str| {
            let new = NewPeerTask { url: URL.to_owned(), message_id: message.to_owned() };
            world.store.begin_peer_task(by, run, new, LEASE, world.env.now())
        };
        assert_eq!(world.link(by, run, said("t-1", "working")).await, Err(Error::NotFound));
        let begun = begin("m-1").await.unwrap();
        let (sent_at, message_id) = (world.env.now(), "m-1".to_owned());
        let expected = PeerTask {
            run,
            agent,
            epoch: 1,
            url: URL.to_owned(),
            message_id,
            peer_task_id: None,
            peer_context_id: None,
            native_status: None,
            recovery: None,
            sent_at,
            updated_at: sent_at,
        };
        assert_eq!(begun, expected);
        world.env.advance(Duration::from_secs(1));
        assert_eq!(begin("m-2").await.unwrap(), expected, "it was sent before");

        let linked = world.link(by, run, said("t-1", "TASK_STATE_WORKING")).await.unwrap();
        assert_eq!((linked.peer_task_id.as_deref(), linked.updated_at), (Some("t-1"), world.env.now()));
        assert_eq!(world.link(by, run, said("t-2", "done")).await, Err(Error::PeerTaskDiffers));
        world.link(by, run, said("t-1", "TASK_STATE_COMPLETED")).await.unwrap();
        let missing = PeerTaskChange { recovery: Some(Some(Recovery::RemoteMissing)), ..PeerTaskChange::default() };
        let task = world.link(by, run, missing).await.unwrap();
        assert_eq!(task.native_status.as_deref(), Some("TASK_STATE_COMPLETED"), "ours never overwrites theirs");

        let rows = [
            format!(
                r#"channel.peer_task.linked {{"task_run_id":"{run}","peer_task_id":"t-1","peer_context_id":null,"native_status":"TASK_STATE_WORKING"}}"#
            ),
            format!(
                r#"channel.peer_task.updated {{"task_run_id":"{run}","peer_task_id":"t-1","native_status":"TASK_STATE_COMPLETED"}}"#
            ),
        ];
        assert_eq!(world.newest(2).await, rows);
        let events = world.store.run_events(world.tenant, run, 2, 10).await.unwrap();
        let kinds: Vec<(i64, &str)> = events.events.iter().map(|event| (event.seq, event.kind.as_str())).collect();
        assert_eq!(kinds, [(3, "channel.peer_task.linked"), (4, "channel.peer_task.updated")]);

        let found = [
            world.store.peer_task(world.tenant, run).await.unwrap(),
            world.store.peer_task_by_id(agent, "t-1").await.unwrap(),
            world.store.open_peer_tasks(agent).await.unwrap().pop(),
        ];
        assert_eq!(found, [Some(task.clone()), Some(task.clone()), Some(task.clone())]);
        let done = RunResult::Completed { output: json("{}"), artifacts: Vec::new() };
        world.store.finish(by, run, done, None, None, world.env.now()).await.unwrap();
        assert_eq!(world.store.open_peer_tasks(agent).await.unwrap(), []);
        assert_eq!(world.store.peer_task(world.tenant, run).await.unwrap(), Some(task));
    }
}

#[tokio::test]
async fn an_older_claim_tells_nothing_of_the_peer() {
    for world in World::all().await {
        let agent = world.outsider().await;
        let runtime = world.attach(agent, RuntimeKind::Hub).await.unwrap();
        let limits = RunLimits { max_attempts: 2, ..world.new_run().limits };
        let run = world.queue(NewRun { agent: AgentRef::Id(agent), limits, ..world.new_run() }).await.unwrap();
        world.store.claim(runtime, None, Vec::new(), LEASE, world.env.now()).await.unwrap().unwrap();
        let by = WorkerRef { runtime, epoch: Some(1) };
        let new = NewPeerTask { url: URL.to_owned(), message_id: "m".to_owned() };
        world.store.begin_peer_task(by, run, new, LEASE, world.env.now()).await.unwrap();
        let begun = world.store.release(by, run, world.env.now()).await;
        assert!(matches!(begun, Err(Error::Refused { refusal: RunRefusal::Begun, .. })), "{begun:?}");
        world.env.advance(LEASE);
        world.store.sweep(LEASE * 4, world.env.now()).await.unwrap();
        world.store.claim(runtime, None, Vec::new(), LEASE, world.env.now()).await.unwrap().unwrap();
        let stale = world.link(by, run, said("t", "working")).await;
        assert!(matches!(stale, Err(Error::Refused { refusal: RunRefusal::StaleEpoch, .. })), "{stale:?}");
        let refused = format!(r#"task.refused {{"task_run_id":"{run}","call":"peer_task","epoch":1}}"#);
        assert_eq!(world.newest(1).await, [refused]);
        let now = WorkerRef { epoch: Some(2), ..by };
        assert_eq!(world.link(now, run, said("t", "working")).await.unwrap().epoch, 1, "the claim that sent it");
    }
}

#[tokio::test]
async fn claims_of_the_hub_survive_closed_channels_and_live_as_long_as_their_lease() {
    for world in World::all().await {
        let agent = world.outsider().await;
        let runtime = world.attach(agent, RuntimeKind::Hub).await.unwrap();
        let (run, by) = world.sent(agent, runtime).await;
        // What a start does, before the lease is over.
        world.env.advance(LEASE - Duration::from_millis(1));
        world.store.close_channels("hub_restarted", world.env.now()).await.unwrap();
        world.store.sweep(LEASE * 4, world.env.now()).await.unwrap();
        let beat = world.store.heartbeat(runtime, Some(vec![run]), LEASES, world.env.now()).await.unwrap();
        assert_eq!((beat.not_held, beat.lost), (Vec::new(), Vec::new()));
        let held = world.store.run(world.tenant, run).await.unwrap();
        let claim = held.state.claim().cloned().unwrap();
        assert_eq!((claim.runtime, claim.lease_until), (by.runtime, world.env.now().plus(LEASE)));

        world.env.advance(LEASE);
        world.store.sweep(LEASE * 4, world.env.now()).await.unwrap();
        assert!(world.store.run(world.tenant, run).await.unwrap().state.claim().is_none());
    }
}

#[tokio::test]
async fn a_runtime_says_what_it_understands_until_it_says_otherwise() {
    for world in World::all().await {
        let (told, hear) = std::sync::mpsc::channel();
        let agent = world.agent;
        world.store.on_wake(Box::new(move |woken| told.send(woken.contains(&WakeHint::Runtime(agent))).unwrap()));
        let awcp = json(r#"[{"uri":"https://awcp-protocol.org/v1","params":{"max_ttl_seconds":1.0}}]"#);
        for declared in [Some(awcp), None] {
            let runtime = world.store.declare_extensions(world.runtime, declared.clone()).await.unwrap();
            assert_eq!(runtime.extensions, declared);
            wait_for(&hear);
            let account = world.store.account(world.tenant, AgentRef::Id(agent)).await.unwrap();
            assert_eq!(account.runtime.unwrap().extensions, declared);
        }
    }
}
