//! Every operation over every dialect, and what is told when it fails.

use attache_a2a_wire::{
    self as wire, A2aRole, AgentCard, Artifact, ArtifactUpdate, GetTask, ListTasks, Message, Part,
    PushAuthenticationInfo, PushConfig, SendMessage, SendMessageResponse, StatusUpdate, StreamResponse, Task,
    TaskState, TaskStatus,
};
use attache_client::a2a::{Error, PeerClient, PeerCredentials, PeerEvent, PeerFault};
use attache_protocol::{Json, Secret};

use super::server::PeerServer;

const DIALECTS: [(&str, &str, &str); 3] =
    [("/rpc", "JSONRPC", "1.0"), ("/rest", "HTTP+JSON", "1.0"), ("/old", "JSONRPC", "0.3.0")];

fn card(server: &PeerServer, path: &str, binding: &str, version: &str) -> AgentCard {
    let text = format!(
        r#"{{"name":"x","supportedInterfaces":[{{"url":"{}{path}","protocolBinding":"{binding}","protocolVersion":"{version}","tenant":"acme"}}]}}"#,
        server.origin
    );
    Json::from_text(text).unwrap().parse().unwrap()
}

fn peer(server: &PeerServer, (path, binding, version): (&str, &str, &str)) -> PeerClient {
    let key = PeerCredentials::key(Secret::new("hunter2".to_owned()));
    PeerClient::new(&server.guard(), &card(server, path, binding, version), key).unwrap()
}

fn message(parts: Vec<Part>) -> Message {
    Message {
        message_id: "m-1".to_owned(),
        role: A2aRole::User,
        parts,
        context_id: None,
        task_id: None,
        metadata: None,
        extensions: vec!["https://x/v1".to_owned()],
        reference_task_ids: vec![],
    }
}

fn request(parts: Vec<Part>) -> SendMessage {
    SendMessage { tenant: None, message: message(parts), configuration: None, metadata: None }
}

/// What must not change on the way there and back.
fn exact() -> Vec<Part> {
    let data = r#"{"n":9007199254740993,"f":42.0,"e":1e400,"z":1,"z":2,"timestamp":"2026-01-01T00:00:00+00:00"}"#;
    vec![Part::text("hello"), Part::new(wire::PartContent::Data(Json::from_text(data).unwrap()))]
}

fn native(state: TaskState, version: &str) -> Option<String> {
    let name = match (state, version) {
        (TaskState::TaskStateWorking, "1.0") => "TASK_STATE_WORKING",
        (TaskState::TaskStateWorking, _) => "working",
        (TaskState::TaskStateCompleted, "1.0") => "TASK_STATE_COMPLETED",
        (TaskState::TaskStateCompleted, _) => "completed",
        (TaskState::TaskStateCanceled, "1.0") => "TASK_STATE_CANCELED",
        (TaskState::TaskStateCanceled, _) => "canceled",
        _ => unreachable!(),
    };
    Some(name.to_owned())
}

fn task(id: &str, parts: &[Part], state: TaskState) -> Task {
    let artifact = Artifact {
        artifact_id: "a".to_owned(),
        name: None,
        description: None,
        parts: parts.to_vec(),
        metadata: None,
        extensions: vec![],
    };
    Task {
        id: id.to_owned(),
        context_id: "ctx".to_owned(),
        status: TaskStatus { state, message: None, timestamp: None },
        artifacts: (state == TaskState::TaskStateCompleted).then(|| vec![artifact]),
        history: Some(vec![message(parts.to_vec())]),
        metadata: None,
    }
}

#[tokio::test]
async fn a_message_is_sent_and_its_task_followed_in_every_dialect() {
    for dialect in DIALECTS {
        let server = PeerServer::start().await;
        let peer = peer(&server, dialect);
        let version = dialect.2;
        let done = task("task/1", &exact(), TaskState::TaskStateCompleted);
        let sent = peer.send(request(exact())).await.unwrap();
        let native_status = native(TaskState::TaskStateCompleted, version);
        let what = SendMessageResponse::Task(done.clone());
        assert_eq!(sent, PeerEvent { what, native_status: native_status.clone() }, "{dialect:?}");

        let got = peer.get(GetTask { tenant: None, id: "task/1".to_owned(), history_length: Some(3) }).await;
        assert_eq!(got.unwrap(), PeerEvent { what: done, native_status: native_status.clone() }, "{dialect:?}");

        let mut events = peer.stream(request(exact())).await.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            seen.push(event.unwrap());
        }
        let (task_id, context_id) = ("task/2".to_owned(), "ctx".to_owned());
        let done = task("task/2", &exact(), TaskState::TaskStateCompleted);
        let first = task("task/2", &exact(), TaskState::TaskStateWorking);
        let artifact = StreamResponse::ArtifactUpdate(ArtifactUpdate {
            task_id: task_id.clone(),
            context_id: context_id.clone(),
            artifact: done.artifacts.unwrap().remove(0),
            append: None,
            last_chunk: Some(true),
            metadata: None,
        });
        let status = done.status;
        let end = StreamResponse::StatusUpdate(StatusUpdate { task_id, context_id, status, metadata: None });
        let working = native(TaskState::TaskStateWorking, version);
        assert_eq!(
            seen,
            [
                PeerEvent { what: StreamResponse::Task(first), native_status: working },
                PeerEvent { what: artifact, native_status: None },
                PeerEvent { what: end, native_status },
            ],
            "{dialect:?}"
        );

        let reply = peer.send(request(vec![Part::text("answer")])).await.unwrap();
        let wanted =
            Message { role: A2aRole::Agent, message_id: "reply".to_owned(), ..message(vec![Part::text("answer")]) };
        assert_eq!(reply, PeerEvent { what: SendMessageResponse::Message(wanted), native_status: None }, "{dialect:?}");
    }
}

#[tokio::test]
async fn a_task_is_subscribed_to_cancelled_and_told_about_in_every_dialect() {
    for dialect in DIALECTS {
        let server = PeerServer::start().await;
        let peer = peer(&server, dialect);
        let waiting = || vec![Part::text("wait")];
        peer.send(request(waiting())).await.unwrap();
        let mut events = peer.subscribe("task/1").await.unwrap();
        let now = task("task/1", &waiting(), TaskState::TaskStateWorking);
        let native_status = native(TaskState::TaskStateWorking, dialect.2);
        assert_eq!(events.next().await, Some(Ok(PeerEvent { what: StreamResponse::Task(now), native_status })));
        assert_eq!(events.next().await, None);

        let authentication =
            Some(PushAuthenticationInfo { scheme: "Bearer".to_owned(), credentials: Some("c".to_owned()) });
        let config = PushConfig {
            url: "https://hub/push".to_owned(),
            token: Some("t".to_owned()),
            authentication,
            ..PushConfig::default()
        };
        let kept = peer.create_push_config("task/1", config.clone()).await.unwrap();
        let tenant = kept.tenant.clone();
        let (id, task_id) = (Some("cfg-1".to_owned()), Some("task/1".to_owned()));
        assert_eq!(kept, PushConfig { tenant, id, task_id, ..config }, "{dialect:?}");
        peer.delete_push_config("task/1", "cfg-1").await.unwrap();
        let again = peer.delete_push_config("task/1", "cfg-1").await.unwrap_err();
        assert_eq!(again.fault(), Some(wire::Fault::TaskNotFound), "{dialect:?}");

        let cancelled = peer.cancel("task/1").await.unwrap();
        let wanted = task("task/1", &waiting(), TaskState::TaskStateCanceled);
        let native_status = native(TaskState::TaskStateCanceled, dialect.2);
        assert_eq!(cancelled, PeerEvent { what: wanted, native_status }, "{dialect:?}");
        assert_eq!(peer.cancel("task/1").await.unwrap_err().fault(), Some(wire::Fault::TaskNotCancelable));
        assert_eq!(peer.subscribe("task/1").await.unwrap_err().fault(), Some(wire::Fault::UnsupportedOperation));
        let unknown = peer.get(GetTask { id: "nope".to_owned(), ..GetTask::default() }).await.unwrap_err();
        assert_eq!(unknown.fault(), Some(wire::Fault::TaskNotFound), "{dialect:?}");
        assert!(unknown.is_unexecuted() && !unknown.is_passing());

        let listed = peer.list(ListTasks { page_size: Some(5), ..ListTasks::default() }).await;
        match dialect.2 {
            "1.0" => assert_eq!(listed.unwrap().tasks.len(), 1, "{dialect:?}"),
            _ => assert_eq!(listed, Err(Error::Unsupported { version: "0.3", what: "ListTasks" })),
        }
    }
}

#[tokio::test]
async fn each_version_gets_its_own_headers_and_paths() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut seen = Vec::new();
    for dialect in DIALECTS {
        let server = PeerServer::start().await;
        let peer = peer(&server, dialect).traced(Some(trace.to_owned())).extended(vec!["https://y/v1".to_owned()]);
        peer.send(request(vec![Part::text("wait")])).await.unwrap();
        peer.get(GetTask { id: "task/1".to_owned(), ..GetTask::default() }).await.unwrap();
        peer.subscribe("task/1").await.unwrap();
        seen.extend(server.seen());
    }
    let both = "https://y/v1, https://x/v1";
    let new = |line: &str, extensions: &str| {
        format!("{line} a2a-version=1.0 a2a-extensions={extensions} traceparent={trace} authorization=Bearer hunter2")
    };
    let old = |extensions: &str| {
        format!(
            "POST /old a2a-extensions={extensions} x-a2a-extensions={extensions} traceparent={trace} authorization=Bearer hunter2"
        )
    };
    let one = "https://y/v1";
    assert_eq!(
        seen,
        [
            new("POST /rpc", both),
            new("POST /rpc", one),
            new("POST /rpc", one),
            new("POST /rest/acme/message:send", both),
            new("GET /rest/acme/tasks/task%2F1", one),
            new("GET /rest/acme/tasks/task%2F1:subscribe", one),
            new("POST /rest/acme/tasks/task%2F1:subscribe", one),
            old(both),
            old(one),
            old(one),
        ]
    );
}

#[tokio::test]
async fn what_is_no_answer_is_told_apart() {
    let server = PeerServer::start().await;
    let origin = server.origin.clone();
    server.serve("/html", "<html>");
    server.serve("/stream", "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":\"out of order\"}}");
    let send = async |path: &str| {
        let sent = peer(&server, (path, "JSONRPC", "1.0")).send(request(exact())).await;
        sent.unwrap_err()
    };
    assert_eq!(send("/denied").await, Error::Denied { origin: origin.clone(), status: 401 });
    assert_eq!(send("/broken").await, Error::Status { origin: origin.clone(), status: 502 });
    assert!(matches!(send("/html").await, Error::NotUnderstood { origin: named, .. } if named == origin));
    let wrong = peer(&server, ("/stream", "JSONRPC", "1.0")).stream(request(exact())).await.unwrap_err();
    let fault = PeerFault { known: None, code: -32603, message: "out of order".to_owned() };
    assert_eq!(wrong, Error::Refused(fault));
    let unguarded = attache_client::egress::EgressGuard::new(Default::default());
    let card = card(&server, "/rpc", "JSONRPC", "1.0");
    let refused = PeerClient::new(&unguarded, &card, PeerCredentials::none()).unwrap_err();
    assert!(matches!(refused, Error::Call(_)) && refused.is_unexecuted(), "{refused}");
    let peer = peer(&server, ("/rest", "HTTP+JSON", "1.0"));
    assert!(peer.get(GetTask { id: "..".to_owned(), ..GetTask::default() }).await.is_err(), "a way up is no task");
    assert!(!format!("{peer:?}").contains("hunter2"));
}
