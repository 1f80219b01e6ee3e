//! Push configs, tasks and messages by example, on both engines: the corners, spelled out.

use std::time::Duration;

use attache_protocol::{
    DeliveryId, RunId, Timestamp, UserId,
    rules::run::{FailureCode, RunStatus},
    wire::delivery::DeliveryKind,
};
use attache_store::{
    Error, MAX_PUSH_CONFIGS, WakeHint,
    record::{
        NewRun, Pagination, RetentionLimits, RunResult,
        delivery::{DeliveryFilter, DeliveryRecord, RunCallback},
        push::{NewPushConfig, PushConfigRecord, PushVersion},
        task::{RunOwner, RunTaskState, TaskFilter},
        worker_request::{InputTarget, NewInput, NewWorkerRequest, WorkerRequestKind},
    },
};

use crate::peers::{LEASE, World, json};

const URL: &str = "http://127.0.0.1:9/push";

// === impl World ===

impl World {
    async fn subscribe(&self, run: RunId, id: &str) -> Result<PushConfigRecord, Error> {
        self.store.set_push_config(self.context("key:owner"), run, config(id, URL)).await
    }

    /// The config and seq of every push there is, oldest first.
    async fn pushed(&self, run: RunId) -> Vec<(String, i64)> {
        let page = Pagination { limit: 100, cursor: None };
        let filter = DeliveryFilter { run: Some(run), state: None };
        let mut made = self.store.deliveries(self.tenant, filter, page).await.unwrap().items;
        made.reverse();
        made.into_iter().filter_map(|delivery| delivery.config.zip(delivery.seq)).collect()
    }

    async fn end(&self, run: RunId, outcome: RunResult) -> RunStatus {
        self.store.finish(self.by(), run, outcome, None, None, self.env.now()).await.unwrap()
    }

    fn all_tasks(&self) -> TaskFilter {
        TaskFilter { agent: self.agent, of: None, conversation: None, state: None, after: None }
    }

    async fn listed(&self, filter: TaskFilter) -> Vec<RunId> {
        let page = Pagination { limit: 100, cursor: None };
        let listed = self.store.tasks(self.tenant, filter, page).await.unwrap();
        assert_eq!((listed.total, listed.next), (listed.items.len().try_into().unwrap(), None));
        listed.items.iter().map(|item| item.run.id).collect()
    }
}

fn config(id: &str, url: &str) -> NewPushConfig {
    NewPushConfig { id: id.to_owned(), url: url.to_owned(), sealed: Some(vec![0, 255]), version: PushVersion::V03 }
}

fn completed() -> RunResult {
    RunResult::Completed { output: json("{}"), artifacts: Vec::new() }
}

fn pairs(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    expected.iter().map(|(id, seq)| ((*id).to_owned(), *seq)).collect()
}

#[tokio::test]
async fn every_subscriber_is_told_of_every_change_until_the_run_ends() {
    for world in World::all().await {
        let callback = Some(RunCallback { url: URL.to_owned(), approvals: false });
        let run =
            world.queue(NewRun { push: Some(config("a", URL)), ..world.new_run_calling(callback) }).await.unwrap();
        world.subscribe(run, "b").await.unwrap();
        assert_eq!(world.pushed(run).await, []);
        assert_eq!(world.claim().await, Some(run));
        assert_eq!(world.pushed(run).await, pairs(&[("a", 2), ("b", 2)]));
        let first = world.store.delivery(world.tenant, DeliveryId::of_push(run, "a", 2)).await.unwrap();
        let made = DeliveryRecord {
            id: DeliveryId::of_push(run, "a", 2),
            kind: DeliveryKind::TaskUpdated,
            config: Some("a".to_owned()),
            seq: Some(2),
            ..DeliveryRecord::due(world.tenant, run, None, URL.to_owned(), world.env.now())
        };
        assert_eq!(first, made);

        // Somebody else speaks on the stream: what only informs is nobody's change.
        world.store.remove_push_config(world.context("key:owner"), run, "a").await.unwrap();
        let ask = NewWorkerRequest {
            id: world.env.worker_request_id(),
            run,
            what: WorkerRequestKind::Input { prompt: "Which?".to_owned(), parts: None },
            request: None,
            expires_at: None,
        };
        world.store.create_worker_request(world.by(), ask, LEASE, world.env.now()).await.unwrap();
        assert_eq!(world.pushed(run).await, pairs(&[("a", 2), ("b", 2), ("b", 5)]));
        let elsewhere = "https://example.com/";
        world.store.set_push_config(world.context("key:owner"), run, config("b", elsewhere)).await.unwrap();
        assert_eq!(world.end(run, completed()).await, RunStatus::Completed);
        assert_eq!(world.pushed(run).await, pairs(&[("a", 2), ("b", 2), ("b", 5), ("b", 6)]));
        let last = world.store.delivery(world.tenant, DeliveryId::of_push(run, "b", 6)).await.unwrap();
        assert_eq!(last.url, elsewhere);
        // The callback comes after them, and nothing comes after the end.
        world.subscribe(run, "c").await.unwrap();
        let page = Pagination { limit: 1, cursor: None };
        let newest = world.store.deliveries(world.tenant, DeliveryFilter::default(), page).await.unwrap().items;
        assert_eq!(newest[0].id, DeliveryId::of_run(run));
    }
}

#[tokio::test]
async fn a_config_is_replaced_in_its_place_and_a_run_has_only_so_many() {
    for world in World::all().await {
        let run = world.queue(world.new_run()).await.unwrap();
        let head = world.store.log(world.tenant, 0, 1).await.unwrap().head;
        let begun = world.env.now();
        for number in 0..MAX_PUSH_CONFIGS {
            world.subscribe(run, &number.to_string()).await.unwrap();
        }
        assert_eq!(world.subscribe(run, "more").await, Err(Error::TooManyPushConfigs));
        world.env.advance(Duration::from_secs(1));
        let new = NewPushConfig { sealed: None, version: PushVersion::V10, ..config("0", "") };
        let replaced = world.store.set_push_config(world.context("key:owner"), run, new).await.unwrap();
        let wanted = PushConfigRecord {
            id: "0".to_owned(),
            url: String::new(),
            sealed: None,
            version: PushVersion::V10,
            created_at: begun,
        };
        assert_eq!(replaced, wanted);
        let configs = world.store.push_configs(world.tenant, run).await.unwrap();
        assert_eq!((configs.len(), &configs[0], configs[1].id.as_str()), (MAX_PUSH_CONFIGS, &wanted, "1"));
        assert_eq!(world.store.push_config(world.tenant, run, "0").await, Ok(wanted));

        world.store.remove_push_config(world.context("key:owner"), run, "0").await.unwrap();
        let again = world.store.remove_push_config(world.context("key:owner"), run, "0").await;
        assert_eq!(again, Err(Error::NotFound));
        let stranger = world.env.tenant_id();
        assert_eq!(world.store.push_configs(stranger, run).await, Err(Error::NotFound));
        assert_eq!(world.store.push_config(world.tenant, run, "0").await, Err(Error::NotFound));
        let log = world.store.log(world.tenant, head, 100).await.unwrap().rows;
        let (first, last) = (&log[0], &log[log.len() - 1]);
        assert_eq!(log.len(), MAX_PUSH_CONFIGS + 2);
        assert_eq!((first.kind.as_str(), first.run), ("push.configured", None));
        assert_eq!(first.data.get(), format!(r#"{{"task_run_id":"{run}","config_id":"0"}}"#));
        assert_eq!((last.kind.as_str(), last.data.get()), ("push.removed", first.data.get()));
    }
}

#[tokio::test]
async fn a_report_that_was_undone_leaves_the_subscribers() {
    for world in World::all().await {
        let run = world.queue(NewRun { push: Some(config("a", URL)), ..world.new_run() }).await.unwrap();
        assert_eq!(world.claim().await, Some(run));
        let foreign = RunResult::Completed { output: json("{}"), artifacts: vec![world.env.artifact_id()] };
        let refused = world.store.finish(world.by(), run, foreign, None, None, world.env.now()).await;
        assert!(matches!(refused, Err(Error::ForeignArtifact(_))), "{refused:?}");
        assert_eq!(world.pushed(run).await, pairs(&[("a", 2)]));
        world.end(run, completed()).await;
        assert_eq!(world.pushed(run).await, pairs(&[("a", 2), ("a", 3)]));
    }
}

#[tokio::test]
async fn a_hint_follows_a_push_and_retention_takes_the_configs_of_old_runs() {
    for world in World::all().await {
        let (told, heard) = std::sync::mpsc::channel();
        world.store.on_wake(Box::new(move |woken| told.send(woken.contains(&WakeHint::Deliveries)).unwrap()));
        let last = async || {
            world.store.ping().await.unwrap();
            heard.try_iter().last()
        };
        let run = world.queue(NewRun { push: Some(config("a", URL)), ..world.new_run() }).await.unwrap();
        assert_eq!(last().await, Some(false));
        assert_eq!(world.claim().await, Some(run));
        assert_eq!(last().await, Some(true));
        world.end(run, completed()).await;

        let now = world.env.now();
        let forget = |log_before| RetentionLimits {
            at: log_before,
            max_rows: 1000,
            chunks_before: log_before,
            log_before,
            streams_before: Timestamp::default(),
            channels_before: Timestamp::default(),
            runs_before: Timestamp::default(),
            conversations_before: Timestamp::default(),
            artifacts_before: Timestamp::default(),
            credentials_before: Timestamp::default(),
        };
        world.store.retain(forget(now)).await.unwrap();
        assert_eq!(world.store.push_configs(world.tenant, run).await.unwrap().len(), 1);
        world.store.retain(forget(now.plus(Duration::from_millis(1)))).await.unwrap();
        assert_eq!(world.store.push_configs(world.tenant, run).await, Ok(Vec::new()));
    }
}

#[tokio::test]
async fn tasks_are_listed_by_their_last_change_and_by_whose_they_are() {
    for world in World::all().await {
        let user: UserId = world.env.user_id();
        let mut runs = Vec::new();
        for actor in ["key:a", "key:b", "key:a"] {
            let context = world.context(actor).for_user((actor == "key:b").then_some(user));
            let new = world.new_run();
            runs.push(new.id);
            world.store.create_run(context, new).await.unwrap();
            world.env.advance(Duration::from_secs(1));
        }
        let [oldest, middle, newest] = runs[..] else { panic!("{runs:?}") };
        assert_eq!(world.listed(world.all_tasks()).await, [newest, middle, oldest]);

        assert_eq!(world.claim().await, Some(oldest));
        let claimed_at = world.env.now();
        assert_eq!(world.listed(world.all_tasks()).await, [oldest, newest, middle]);
        let in_state = |state| TaskFilter { state: Some(state), ..world.all_tasks() };
        assert_eq!(world.listed(in_state(RunTaskState::Working)).await, [oldest]);
        assert_eq!(world.listed(in_state(RunTaskState::Submitted)).await, [newest, middle]);

        world.env.advance(Duration::from_secs(1));
        let result = json(r#"{"error":"no","code":"rejected"}"#);
        world.end(oldest, RunResult::Failed { code: FailureCode::Rejected, result }).await;
        assert_eq!(world.listed(in_state(RunTaskState::Rejected)).await, [oldest]);
        assert_eq!(world.listed(in_state(RunTaskState::Failed)).await, []);
        world.store.cancel_run(world.context("key:a"), newest, None).await.unwrap();
        // Of two that changed in the same moment the newer one comes first.
        assert_eq!(world.listed(world.all_tasks()).await, [newest, oldest, middle]);

        let of = |of| TaskFilter { of: Some(of), ..world.all_tasks() };
        assert_eq!(world.listed(of(RunOwner::Caller("key:a".into()))).await, [newest, oldest]);
        assert_eq!(world.listed(of(RunOwner::User(user))).await, [middle]);
        let own = TaskFilter { conversation: Some(middle.own_conversation()), ..world.all_tasks() };
        assert_eq!(world.listed(own).await, [middle]);
        let later = |after| TaskFilter { after: Some(after), ..world.all_tasks() };
        assert_eq!(world.listed(later(claimed_at)).await, [newest, oldest]);

        // A page holds its place while others change.
        let page = |cursor| Pagination { limit: 2, cursor };
        let first = world.store.tasks(world.tenant, world.all_tasks(), page(None)).await.unwrap();
        assert_eq!((first.items.len(), first.total, first.next.is_some()), (2, 3, true));
        let second = world.store.tasks(world.tenant, world.all_tasks(), page(first.next)).await.unwrap();
        assert_eq!((second.items[0].run.id, second.items.len(), second.total, second.next), (middle, 1, 3, None));
        let wrong = page(Some("yesterday".to_owned()));
        assert_eq!(world.store.tasks(world.tenant, world.all_tasks(), wrong).await, Err(Error::NotFound));
    }
}

#[tokio::test]
async fn a_message_stays_with_its_input_to_the_byte() {
    for world in World::all().await {
        let run = world.queue(world.new_run()).await.unwrap();
        assert_eq!(world.claim().await, Some(run));
        let ask = NewWorkerRequest {
            id: world.env.worker_request_id(),
            run,
            what: WorkerRequestKind::Input { prompt: "Which?".to_owned(), parts: None },
            request: None,
            expires_at: None,
        };
        let asked = world.store.create_worker_request(world.by(), ask, LEASE, world.env.now()).await.unwrap();
        let message = json(r#"{"messageId":"m", "metadata":{"n":1.50,"n":9007199254740993}}"#);
        let new = |message| NewInput {
            id: world.env.input_id(),
            run,
            parts: json("[]"),
            message,
            target: InputTarget::OldestQuestion,
            key: Some([1; 16]),
        };
        let given = world.store.add_input(world.context("key:a"), new(Some(message.clone()))).await.unwrap();
        assert_eq!((given.ask, given.message.as_ref()), (Some(asked.id), Some(&message)));
        assert_eq!(world.store.add_input(world.context("key:a"), new(None)).await, Ok(given.clone()));
        assert_eq!(world.store.input(run, given.id).await, Ok(given.clone()));
        let answered = world.store.worker_request(world.tenant, asked.id).await.unwrap();
        assert_eq!((answered.answer, answered.message.as_ref()), (Some(json("[]")), Some(&message)));
        let events = world.store.run_events(world.tenant, run, 0, 100).await.unwrap().events;
        let received = events.iter().find(|event| event.kind == "task.input_received").unwrap();
        let (input, ask, message) = (given.id, asked.id, message.get());
        assert_eq!(
            received.data.get(),
            format!(r#"{{"input_id":"{input}","input_request_id":"{ask}","parts":[],"message":{message}}}"#)
        );
    }
}
