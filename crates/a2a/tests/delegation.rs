//! Lending a folder over A2A: the five messages of AWCP against a runtime that takes them, over every binding.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use attache_a2a_wire::{Message, Part, PartContent, SendMessage, Task, TaskState};
use attache_hub::{Principal, control::RunQuery};
use attache_protocol::{
    Json, RunId, Secret, Timestamp,
    wire::{
        awcp::{self, AccessMode, AwcpErrorCode, EXTENSION, REDACTED, TASK_TYPE},
        input_request::{CreateInputRequest, InputAnswer, WorkerRequestState},
        run::{ClaimedRun, CompleteRequest, FailRequest},
        runtime::{DeclaredExtension, HeartbeatRequest},
    },
};
use attache_testkit::{RunningWorld, World};
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::{
    obedient::{message, request},
    scene::world,
    speak::{PATIENCE, TestBinding, TestClient, TestOperation, TestVersion, every_way},
};

const AGENT: &str = "builder";
const KEY: &str =
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA-planted-key\n-----END OPENSSH PRIVATE KEY-----\n";
const PLANTED_KEY: &str = "b3BlbnNzaC1rZXktdjEAAAAA-planted-key";
const TOKEN: &str = "tt_planted-tunnel-token-0123456789";

/// A hub with an agent whose device takes folders of others.
struct CollaboratorFixture {
    world: RunningWorld,
    device: Principal,
}

/// Everything that was logged.
#[derive(Debug, Clone, Default)]
struct LogCapture(Arc<Mutex<Vec<u8>>>);

impl CollaboratorFixture {
    async fn start(world: World) -> Self {
        let world = world.agent(AGENT).start().await;
        let attached = world.device(AGENT).await;
        let device = world.hub.authenticate_runtime(&attached.runtime_token).await.unwrap();
        let lent = Self { world, device };
        lent.declare(&[EXTENSION]).await;
        lent
    }

    async fn declare(&self, uris: &[&str]) {
        let extensions = uris.iter().map(|uri| DeclaredExtension { uri: (*uri).to_owned(), params: None }).collect();
        let request = HeartbeatRequest { extensions: Some(extensions), ..HeartbeatRequest::default() };
        self.world.hub.heartbeat(&self.device, request).await.unwrap();
    }

    fn client(&self, binding: TestBinding, version: TestVersion) -> TestClient {
        TestClient::new(binding, version, &self.world.url, AGENT).key(self.world.owner_key.expose())
    }

    async fn claim(&self) -> ClaimedRun {
        self.world.hub.pull(&self.device, AGENT, PATIENCE).await.unwrap().delivered().expect("a run is claimed")
    }

    /// The collaborator says yes; answers with the question that START is the answer to.
    async fn accept(&self, claimed: &ClaimedRun) -> InputAnswer {
        let parts = Some(Json::of(&[accept().part()]));
        let ask = CreateInputRequest {
            epoch: Some(claimed.epoch),
            prompt: "The folder may be lent.".to_owned(),
            parts,
            request_id: None,
        };
        self.world.hub.request_input(&self.device, claimed.task_run_id, ask).await.unwrap()
    }

    async fn answer(&self, run: RunId, asked: &InputAnswer) -> InputAnswer {
        self.world.hub.input_answer(&self.device, run, asked.input_request_id, PATIENCE).await.unwrap()
    }

    async fn fail(&self, claimed: &ClaimedRun, code: &str, error: AwcpErrorCode) {
        let part = awcp::AwcpMessage::Error(awcp::AwcpError {
            delegation_id: "dlg_1".to_owned(),
            code: error,
            message: "no".to_owned(),
            hint: error.hint().to_owned(),
        })
        .part();
        let output = Json::of(&json!({"error": "no", "code": code, "message": {"parts": [part]}}));
        let request = FailRequest { epoch: Some(claimed.epoch), output, usage: None, inputs_taken: None };
        self.world.hub.fail(&self.device, claimed.task_run_id, request).await.unwrap();
    }
}

fn invite() -> awcp::AwcpMessage {
    awcp::AwcpMessage::Invite(awcp::AwcpInvite {
        delegation_id: "dlg_1".to_owned(),
        task: awcp::AwcpTask { description: "mend the build".to_owned(), prompt: "make it green".to_owned() },
        lease: awcp::LeaseOffer { ttl_seconds: 7200, access_mode: AccessMode::Rw },
        workspace: awcp::OfferedWorkspace { export_name: "src".to_owned() },
        requirements: awcp::LeaseRequirements::default(),
    })
}

fn accept() -> awcp::AwcpMessage {
    awcp::AwcpMessage::Accept(awcp::AwcpAccept {
        delegation_id: "dlg_1".to_owned(),
        remote_mount: awcp::RemoteMount {
            mount_point: "/home/bob/.AWCP/mounts/dlg_1".to_owned(),
            requires_empty_dir: true,
            client_key: None,
            transports: Vec::new(),
        },
        remote_constraints: None,
    })
}

fn start() -> awcp::AwcpMessage {
    awcp::AwcpMessage::Start(awcp::AwcpStart {
        delegation_id: "dlg_1".to_owned(),
        lease: awcp::AwcpLease {
            expires_at: Timestamp::from_millis(1_900_000_000_000),
            ttl_seconds: None,
            access_mode: AccessMode::Rw,
        },
        mount: awcp::AwcpMount {
            transport: awcp::SSHFS.to_owned(),
            endpoint: awcp::SshEndpoint {
                host: "127.0.0.1".to_owned(),
                port: 2222,
                user: "lease".to_owned(),
                tunnel: Some(awcp::TunnelAccess {
                    url: "wss://hub.example/api/v1/tunnels/tun_1".to_owned(),
                    token: Secret::new(TOKEN.to_owned()),
                }),
            },
            export_locator: "x1".to_owned(),
            credential: awcp::SshCredential::PrivateKey { private_key: Secret::new(KEY.to_owned()) },
            host_key: None,
            mount_options: None,
        },
    })
}

/// A message that is about lending a folder.
fn about_lending(id: &str, said: &awcp::AwcpMessage) -> Message {
    Message { extensions: vec![EXTENSION.to_owned()], ..message(id, vec![said.part()]) }
}

fn on(task: &Task, id: &str, said: &awcp::AwcpMessage) -> SendMessage {
    request(Message { task_id: Some(task.id.clone()), ..about_lending(id, said) })
}

fn awcp_of(parts: &[Part]) -> awcp::AwcpMessage {
    awcp::AwcpMessage::among(parts).unwrap()
}

/// The input that the run was claimed with.
fn invited(claimed: &ClaimedRun) -> awcp::AwcpMessage {
    #[derive(serde::Deserialize)]
    struct Input {
        message: Message,
    }
    awcp_of(&claimed.input.parse::<Input>().unwrap().message.parts)
}

#[tokio::test]
async fn a_delegation_is_one_task_over_every_binding() {
    for (binding, version) in every_way() {
        let lent = CollaboratorFixture::start(world().on_sqlite()).await;
        let client = lent.client(binding, version);
        let who = format!("{binding:?} {version:?}");
        let sent = tokio::spawn({
            let (client, sent) = (client.clone(), request(about_lending("m1", &invite())));
            async move { client.send(sent).await }
        });
        let claimed = lent.claim().await;
        assert_eq!((claimed.task_type.as_str(), claimed.caller.as_str()), (TASK_TYPE, "user:owner"), "{who}");
        assert_eq!(invited(&claimed), invite(), "{who}");
        assert!(claimed.input.get().contains(r#""text":"mend the build""#), "{}", claimed.input.get());
        let asked = lent.accept(&claimed).await;
        assert_eq!(asked.state, WorkerRequestState::Pending);
        let task = match sent.await.unwrap() {
            // 0.3 waits for a moment only.
            task if task.status.state == TaskState::TaskStateInputRequired => task,
            task => client.until(&task.id, TaskState::TaskStateInputRequired).await,
        };
        assert_eq!(awcp_of(&task.status.message.as_ref().unwrap().parts), accept(), "{who}");

        let going = tokio::spawn({
            let (client, sent) = (client.clone(), on(&task, "m2", &start()));
            async move { client.send(sent).await }
        });
        let given = lent.answer(claimed.task_run_id, &asked).await;
        assert_eq!(given.state, WorkerRequestState::Answered, "{who}");
        let parts: Vec<Part> = given.parts.as_ref().unwrap().parse().unwrap();
        assert_eq!(awcp_of(&parts), start(), "{who}");
        if binding != TestBinding::Grpc {
            let PartContent::Data(data) = &parts[0].content else { panic!("{parts:?}") };
            assert_eq!(data, &start().data(), "{who}: to the byte");
        }
        let message: Message = given.message.as_ref().unwrap().parse().unwrap();
        assert_eq!((awcp_of(&message.parts), message.message_id.as_str()), (start(), "m2"), "{who}");

        let done = awcp::AwcpMessage::Done(awcp::AwcpDone {
            delegation_id: "dlg_1".to_owned(),
            final_summary: "it is green".to_owned(),
            highlights: vec!["one line".to_owned()],
            notes: None,
            full_output: None,
        });
        let output = json!({"text": "it is green", "artifacts": [{"name": "awcp", "parts": [done.part()]}]});
        let complete =
            CompleteRequest { epoch: Some(claimed.epoch), output: Json::of(&output), usage: None, inputs_taken: None };
        lent.world.hub.complete(&lent.device, claimed.task_run_id, complete).await.unwrap();
        going.await.unwrap();
        let task = client.until(&task.id, TaskState::TaskStateCompleted).await;
        let artifacts = task.artifacts.unwrap();
        assert_eq!((artifacts.len(), artifacts[0].name.as_deref()), (1, Some("awcp")), "{who}");
        assert_eq!(awcp_of(&artifacts[0].parts), done, "{who}");
        lent.world.stop().await;
    }
}

#[tokio::test]
async fn a_remote_says_no_with_its_reason() {
    let lent = CollaboratorFixture::start(world()).await;
    for (binding, version) in every_way() {
        for (code, error, state) in [
            ("rejected", AwcpErrorCode::Declined, TaskState::TaskStateRejected),
            ("task_failed", AwcpErrorCode::MountFailed, TaskState::TaskStateFailed),
        ] {
            let client = lent.client(binding, version);
            let id = format!("{binding:?}{version:?}{code}");
            let sent = tokio::spawn({
                let (client, sent) = (client.clone(), request(about_lending(&id, &invite())));
                async move { client.send(sent).await }
            });
            let claimed = lent.claim().await;
            lent.fail(&claimed, code, error).await;
            let task = client.until(&sent.await.unwrap().id, state).await;
            let awcp::AwcpMessage::Error(said) = awcp_of(&task.status.message.unwrap().parts) else { panic!("{id}") };
            assert_eq!((said.code, said.hint.as_str()), (error, error.hint()), "{id}");
        }
    }
    lent.world.stop().await;
}

#[tokio::test]
async fn the_header_activates_it_too_and_the_answer_says_so() {
    let lent = CollaboratorFixture::start(world()).await;
    for (version, header) in [(TestVersion::V10, "a2a-extensions"), (TestVersion::V03, "x-a2a-extensions")] {
        let client = lent.client(TestBinding::Rpc, version).with(header, EXTENSION);
        let plain = message(header, vec![invite().part()]);
        let sent = tokio::spawn(async move { client.send(request(plain)).await });
        let claimed = lent.claim().await;
        assert_eq!(claimed.task_type, TASK_TYPE, "{header}");
        lent.fail(&claimed, "rejected", AwcpErrorCode::Declined).await;
        sent.await.unwrap();
    }
    lent.world.stop().await;
}

#[tokio::test]
async fn what_cannot_become_a_delegation_is_refused() {
    let lent = CollaboratorFixture::start(world()).await;
    for (binding, version) in every_way() {
        let client = lent.client(binding, version);
        let refused = client.refused(TestOperation::Send(request(about_lending("m1", &start())))).await;
        let said = format!("{refused:?}");
        assert!(said.contains("carry START without a task"), "{said}");
        assert!(!said.contains(TOKEN) && !said.contains(PLANTED_KEY), "{said}");
        let two = Message { parts: vec![invite().part(), invite().part()], ..about_lending("m2", &invite()) };
        let refused = format!("{:?}", client.refused(TestOperation::Send(request(two))).await);
        assert!(refused.contains("more than one data part"), "{refused}");
    }
    lent.declare(&[]).await;
    for (binding, version) in every_way() {
        let client = lent.client(binding, version);
        let refused =
            format!("{:?}", client.refused(TestOperation::Send(request(about_lending("m3", &invite())))).await);
        assert!(refused.contains("does not speak now") && refused.contains("--collaborator"), "{refused}");
    }
    let none = lent.world.hub.runs(&lent.world.owner, RunQuery::default()).await.unwrap();
    assert_eq!(none.task_runs, [], "nothing was made");
    lent.world.stop().await;
}

#[tokio::test]
async fn the_secrets_of_start_reach_the_runtime_and_nothing_else() {
    let logged = LogCapture::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::TRACE).with_ansi(false);
    let _guard =
        tracing_subscriber::util::SubscriberInitExt::set_default(subscriber.with_writer(logged.clone()).finish());
    let lent = CollaboratorFixture::start(world().on_sqlite()).await;
    let client = lent.owner();
    let sent = tokio::spawn({
        let (client, sent) = (client.clone(), request(about_lending("m1", &invite())));
        async move { client.send(sent).await }
    });
    let claimed = lent.claim().await;
    let run = claimed.task_run_id;
    let asked = lent.accept(&claimed).await;
    let task = sent.await.unwrap();
    let going = tokio::spawn({
        let (client, sent) = (client.clone(), on(&task, "m2", &start()));
        async move { client.send(sent).await }
    });
    let given = lent.answer(run, &asked).await;
    assert!(given.parts.unwrap().get().contains(TOKEN), "the runtime is given what was sent");
    // An answer that was lost on its way is given again, to the one that holds the run.
    assert!(lent.answer(run, &asked).await.message.unwrap().get().contains(PLANTED_KEY));

    let hub = &lent.world.hub;
    let mut shown = vec![
        client.once(TestOperation::get(&task.id)).await.unwrap().get().to_owned(),
        Json::of(&hub.run_events(&lent.world.owner, run, None, None).await.unwrap()).get().to_owned(),
        Json::of(&hub.run(&lent.world.owner, run).await.unwrap()).get().to_owned(),
    ];
    let http = crate::speak::http();
    for path in [
        format!("/api/v1/task-runs/{run}"),
        format!("/api/v1/task-runs/{run}/events?after=0"),
        format!("/api/v1/conversations/{}/messages", claimed.conversation_id),
        "/api/v1/audit?after=0".to_owned(),
        "/api/v1/task-runs".to_owned(),
    ] {
        let url = format!("{}{path}", lent.world.url);
        let answer = http.get(url).bearer_auth(lent.world.owner_key.expose()).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        shown.push(answer.text().await.unwrap());
    }
    let history = client.get(&task.id).await.history.unwrap();
    let awcp::AwcpMessage::Start(kept) = awcp_of(&history[2].parts) else { panic!("{history:?}") };
    let tunnel = kept.mount.endpoint.tunnel.unwrap();
    assert_eq!(
        (tunnel.token.expose().as_str(), tunnel.url.as_str()),
        (REDACTED, "wss://hub.example/api/v1/tunnels/tun_1")
    );
    assert_eq!(
        kept.mount.credential,
        awcp::SshCredential::PrivateKey { private_key: Secret::new(REDACTED.to_owned()) }
    );

    let done = CompleteRequest {
        epoch: Some(claimed.epoch),
        output: Json::of(&json!({"text": "ok"})),
        usage: None,
        inputs_taken: None,
    };
    hub.complete(&lent.device, run, done).await.unwrap();
    going.await.unwrap();
    shown.push(client.once(TestOperation::get(&task.id)).await.unwrap().get().to_owned());
    let after = lent.answer(run, &asked).await;
    assert!(after.parts.unwrap().get().contains(REDACTED), "who does not hold the run any more is given nothing");
    let places: Vec<(String, Vec<u8>)> =
        shown.into_iter().map(|text| ("answers".to_owned(), text.into_bytes())).collect();
    let folder = lent.world.data.path().to_owned();
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let files: Vec<(String, Vec<u8>)> =
        files.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect();
    assert!(files.iter().any(|(_, bytes)| holds(bytes, "mend the build")), "the database is searched");
    let log = logged.0.lock().unwrap().clone();
    assert!(!log.is_empty(), "the log is searched");
    for (place, bytes) in places.into_iter().chain(files).chain([("log".to_owned(), log)]) {
        for secret in [TOKEN, PLANTED_KEY] {
            assert!(!holds(&bytes, secret), "{place} holds {secret}");
        }
    }
    lent.world.stop().await;
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

impl CollaboratorFixture {
    fn owner(&self) -> TestClient {
        self.client(TestBinding::Rpc, TestVersion::V10)
    }
}

// === impl LogCapture ===

impl Write for LogCapture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogCapture {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
