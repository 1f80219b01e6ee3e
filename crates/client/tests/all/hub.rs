//! The client against small servers that misbehave on purpose.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_client::{ArtifactSource, Error, HubClient, HubClientOptions, HubCredential, PairingPoll};
use attache_protocol::{
    Code, RunId, Secret, Timestamp, WorkspaceId,
    error::exit,
    wire::{
        event::Event,
        run::{CreateRunRequest, RunQuery},
    },
};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};

/// Answers the n-th request with the n-th answer, and remembers what was asked.
#[derive(Clone)]
struct ScriptedHub(Arc<Mutex<ScriptedHubState>>);

struct ScriptedHubState {
    answers: Vec<ScriptedAnswer>,
    seen: Vec<String>,
}

enum ScriptedAnswer {
    Json(u16, String),
    /// A stream of events that breaks off after them without a proper end.
    Broken(String),
    Stream(String),
    /// The request's own body comes back as the artifact's name.
    Echo,
}

impl ScriptedHub {
    async fn start(answers: Vec<ScriptedAnswer>) -> (Self, String) {
        let script = Self(Arc::new(Mutex::new(ScriptedHubState { answers, seen: Vec::new() })));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(script.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (script, url)
    }

    fn seen(&self) -> Vec<String> {
        self.0.lock().unwrap().seen.clone()
    }
}

async fn answer(State(script): State<ScriptedHub>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let answer = {
        let mut inner = script.0.lock().unwrap();
        let mut seen = format!("{} {}", parts.method, parts.uri);
        for name in ["authorization", "x-runtime-token", "last-event-id", "content-length", "range"] {
            if let Some(value) = header(name).filter(|_| name != "content-length" || parts.method == "PUT") {
                seen += &format!(" {name}={value}");
            }
        }
        if !body.is_empty() && body.len() < 200 {
            seen += &format!(" {}", String::from_utf8_lossy(&body));
        }
        inner.seen.push(seen);
        if inner.answers.is_empty() { ScriptedAnswer::Json(500, String::new()) } else { inner.answers.remove(0) }
    };
    let events = |body: Body| ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response();
    match answer {
        ScriptedAnswer::Json(status, body) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
        ScriptedAnswer::Stream(text) => events(Body::from(text)),
        ScriptedAnswer::Broken(text) => events(Body::from_stream(broken(text))),
        ScriptedAnswer::Echo => {
            let hash = "0".repeat(64);
            format!(
                r#"{{"artifact_id":"art_{:032x}","workspace_id":"wsp_{:032x}","name":"{}","media_type":"{}","size":{},
                "blake3":"{hash}","produced_by":null,"created_at":"2026-01-01T00:00:00.000Z"}}"#,
                1,
                2,
                parts.uri.path().rsplit('/').next().unwrap(),
                header("content-type").unwrap_or_default(),
                body.len()
            )
            .into_response()
        }
    }
}

fn broken(text: String) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
    futures_util::stream::unfold(Some(text), |text| async {
        match text {
            Some(text) => Some((Ok(Bytes::from(text)), None)),
            None => {
                // The server flushes what it has when the body makes it wait.
                tokio::task::yield_now().await;
                Some((Err(std::io::Error::other("the line was cut")), None))
            }
        }
    })
}

fn hub(url: &str) -> HubClient {
    HubClient::new(HubClientOptions::new(url, HubCredential::Key(Secret::new("ak_secret".to_owned())))).unwrap()
}

fn run_id() -> RunId {
    "run_00000000000000000000000000000007".parse().unwrap()
}

fn event(seq: i64, kind: &str) -> String {
    format!("id: {seq}\nevent: {kind}\ndata: {}\n\n", event_json(seq, kind))
}

fn event_json(seq: i64, kind: &str) -> String {
    format!(r#"{{"seq":{seq},"type":"{kind}","at":"2026-01-01T00:00:00.000Z","data":{{"n":{seq}.0}}}}"#)
}

fn run_json(status: &str) -> String {
    let id = "0".repeat(31);
    format!(
        r#"{{"task_run_id":"run_{id}7","agent_id":"agt_{id}1","agent_name":"a","conversation_id":"cnv_{id}7",
        "workspace_id":"wsp_{id}7","parent_task_run_id":null,"status":"{status}","waiting":null,"recovery":null,
        "task_type":"prompt","attempt":1,"max_attempts":1,"epoch":2,"priority":0,"timeout_ms":1,"input":{{}},
        "task_result":null,"usage":null,"caller":"key:k","trace_id":null,"runtime_id":null,
        "created_at":"2026-01-01T00:00:00.000Z","claimed_at":null,"lease_expires_at":null,"expires_at":null,
        "ended_at":null,"last_seq":1}}"#
    )
}

async fn collect(url: &str, after: i64) -> Result<Vec<(i64, String)>, Error> {
    let mut stream = hub(url).follow(run_id(), after);
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        let Event { seq, kind, .. } = event?;
        events.push((seq, kind));
    }
    Ok(events)
}

fn named(events: &[(i64, &str)]) -> Vec<(i64, String)> {
    events.iter().map(|(seq, kind)| (*seq, (*kind).to_owned())).collect()
}

#[tokio::test]
async fn a_stream_resumes_after_every_break_and_ends_with_the_run() {
    let (script, url) = ScriptedHub::start(vec![
        ScriptedAnswer::Broken(event(1, "task.created") + &event(2, "task.claimed") + "id: 3\ndata: {\"half"),
        ScriptedAnswer::Json(503, r#"{"error":{"code":"draining","message":"m","hint":"h"}}"#.to_owned()),
        // The hub repeats what was seen already, and then skips one.
        ScriptedAnswer::Stream(event(2, "task.claimed") + &event(3, "task.chunk") + &event(5, "task.completed")),
        ScriptedAnswer::Stream(
            ": hello\n\n".to_owned() + &event(4, "task.chunk") + &event(5, "task.completed") + &event(6, "x"),
        ),
    ])
    .await;
    let events = collect(&url, 0).await.unwrap();
    assert_eq!(
        events,
        named(&[(1, "task.created"), (2, "task.claimed"), (3, "task.chunk"), (4, "task.chunk"), (5, "task.completed")])
    );
    let cursors: Vec<String> =
        script.seen().iter().map(|line| line.rsplit_once("last-event-id=").unwrap().1.to_owned()).collect();
    assert_eq!(cursors, ["0", "2", "2", "3"]);
}

#[tokio::test]
async fn following_an_ended_run_from_its_last_event_ends() {
    let (_, url) = ScriptedHub::start(vec![
        ScriptedAnswer::Stream(String::new()),
        ScriptedAnswer::Json(200, r#"{"events":[],"next":5,"status":"completed"}"#.to_owned()),
    ])
    .await;
    assert_eq!(collect(&url, 5).await.unwrap(), vec![]);
}

#[tokio::test]
async fn a_repaired_snapshot_passes_through_and_moves_the_cursor() {
    let repaired = r#"{"seq":9,"type":"snapshot.repaired","at":"2026-01-01T00:00:00.000Z","data":{"missing":{"from":1,"to":9},"snapshot":{}}}"#;
    let (_, url) = ScriptedHub::start(vec![ScriptedAnswer::Stream(
        format!("id: 9\nevent: snapshot.repaired\ndata: {repaired}\n\n") + &event(10, "task.failed"),
    )])
    .await;
    assert_eq!(collect(&url, 0).await.unwrap(), named(&[(9, "snapshot.repaired"), (10, "task.failed")]));
}

#[tokio::test]
async fn a_refused_stream_ends_with_the_hubs_words() {
    let (_, url) = ScriptedHub::start(vec![ScriptedAnswer::Json(
        401,
        r#"{"error":{"code":"runtime_revoked","message":"This device was revoked.","hint":"Pair again."}}"#.to_owned(),
    )])
    .await;
    let error = collect(&url, 0).await.unwrap_err();
    assert_eq!((error.code(), error.exit_code()), (Some(Code::RuntimeRevoked), exit::DENIED));
}

#[tokio::test]
async fn only_requests_that_are_safe_to_repeat_are_repeated() {
    let busy = || ScriptedAnswer::Json(503, r#"{"error":{"code":"overloaded","message":"m","hint":"h"}}"#.to_owned());
    let (script, url) = ScriptedHub::start(vec![
        busy(),
        ScriptedAnswer::Json(200, run_json("running")),
        busy(),
        ScriptedAnswer::Json(201, run_json("pending")),
        busy(),
    ])
    .await;
    let hub = hub(&url);
    assert_eq!(hub.run(run_id()).await.unwrap().epoch, 2);
    let keyed =
        CreateRunRequest { agent_id: "a".into(), idempotency_key: Some("k".into()), ..CreateRunRequest::default() };
    hub.create_run(&keyed).await.unwrap();
    let plain = CreateRunRequest { agent_id: "a".into(), ..CreateRunRequest::default() };
    assert_eq!(hub.create_run(&plain).await.unwrap_err().code(), Some(Code::Overloaded));
    let bearer = "authorization=Bearer ak_secret";
    assert_eq!(
        script.seen(),
        [
            format!("GET /api/v1/task-runs/{} {bearer}", run_id()),
            format!("GET /api/v1/task-runs/{} {bearer}", run_id()),
            format!(r#"POST /api/v1/task-runs {bearer} {{"agent_id":"a","idempotency_key":"k"}}"#),
            format!(r#"POST /api/v1/task-runs {bearer} {{"agent_id":"a","idempotency_key":"k"}}"#),
            format!(r#"POST /api/v1/task-runs {bearer} {{"agent_id":"a"}}"#),
        ]
    );
}

#[tokio::test]
async fn a_conflict_carries_the_run_as_it_is_now() {
    let body = format!(
        r#"{{"error":{{"code":"stale_epoch","message":"m","hint":"h"}},"task_run":{}}}"#,
        run_json("completed")
    );
    let (_, url) = ScriptedHub::start(vec![ScriptedAnswer::Json(409, body)]).await;
    let error = hub(&url).release(run_id(), 1).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::StaleEpoch));
    assert_eq!(error.conflict().unwrap().status.as_str(), "completed");
}

#[tokio::test]
async fn filters_and_pages_become_the_query() {
    let (script, url) =
        ScriptedHub::start(vec![ScriptedAnswer::Json(200, r#"{"task_runs":[],"next_cursor":null}"#.to_owned())]).await;
    let filter = RunQuery {
        status: Some(attache_protocol::rules::run::RunStatus::Failed),
        agent_id: Some("my agent".into()),
        waiting: true,
        min_cost_usd: Some("0.5".into()),
        text: Some("修复 & \"x\"".into()),
        limit: Some(5),
        cursor: Some("a=b&c".into()),
        ..RunQuery::default()
    };
    hub(&url).runs(&filter).await.unwrap();
    assert_eq!(
        script.seen(),
        [
            "GET /api/v1/task-runs?status=failed&agent_id=my+agent&waiting=true&min_cost_usd=0.5&text=%E4%BF%AE%E5%A4%8D+%26+%22x%22&limit=5&cursor=a%3Db%26c authorization=Bearer ak_secret"
        ]
    );
}

#[tokio::test]
async fn a_device_polls_until_a_person_has_decided() {
    let attached = r#"{"agent_id":"agt_00000000000000000000000000000001","runtime_id":"rtm_00000000000000000000000000000002",
        "runtime_token":"rt_hidden","heartbeat_timeout_ms":120000}"#;
    let (script, url) = ScriptedHub::start(vec![
        ScriptedAnswer::Json(202, r#"{"error":{"code":"pairing_pending","message":"m","hint":"h"}}"#.to_owned()),
        ScriptedAnswer::Json(200, attached.to_owned()),
        ScriptedAnswer::Json(403, r#"{"error":{"code":"pairing_rejected","message":"m","hint":"h"}}"#.to_owned()),
    ])
    .await;
    let hub = HubClient::new(HubClientOptions::new(url, HubCredential::None)).unwrap();
    let token = Secret::new("pp_poll".to_owned());
    assert!(matches!(hub.poll_pairing(&token).await.unwrap(), PairingPoll::Pending));
    let PairingPoll::Attached(attached) = hub.poll_pairing(&token).await.unwrap() else { panic!("confirmed") };
    assert_eq!(attached.runtime_token.expose(), "rt_hidden");
    assert!(!format!("{attached:?}").contains("rt_hidden"));
    assert_eq!(hub.poll_pairing(&token).await.unwrap_err().code(), Some(Code::PairingRejected));
    assert_eq!(
        script.seen()[0],
        r#"POST /api/v1/agent-runtimes/runtime/pairing-requests/poll {"poll_token":"pp_poll"}"#
    );
}

#[tokio::test]
async fn a_file_is_uploaded_as_a_stream_of_known_size() {
    let (script, url) = ScriptedHub::start(vec![ScriptedAnswer::Echo]).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, &vec![7; 300_000]).unwrap();
    let workspace: WorkspaceId = "wsp_00000000000000000000000000000002".parse().unwrap();
    let upload = ArtifactSource::File { file: tokio::fs::File::open(file.path()).await.unwrap(), size: 300_000 };
    let artifact = hub(&url).put_artifact(workspace, "a b.txt", Some("text/plain"), upload).await.unwrap();
    assert_eq!(
        (artifact.name.as_str(), artifact.size, artifact.media_type.as_str()),
        ("a%20b.txt", 300_000, "text/plain")
    );
    assert_eq!(artifact.created_at, "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
    assert_eq!(
        script.seen(),
        [format!(
            "PUT /api/v1/workspaces/{workspace}/artifacts/a%20b.txt authorization=Bearer ak_secret content-length=300000"
        )]
    );
}

#[tokio::test]
async fn a_hub_that_is_not_there_is_unreachable_and_no_secret_is_told() {
    // Bound, so that nobody else gets the port, and not listening.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let mut options = HubClientOptions::new(url, HubCredential::Key(Secret::new("ak_secret".into())));
    options.timeouts.request = Duration::from_secs(2);
    let hub = HubClient::new(options).unwrap();
    let error = hub.heartbeat(&Default::default()).await.unwrap_err();
    assert_eq!(error.exit_code(), exit::UNREACHABLE);
    let told = format!("{error} {error:?} {hub:?}");
    assert!(told.contains("Connection refused") && !told.contains("ak_secret"), "{told}");
    let unsendable =
        HubClientOptions::new("http://h", HubCredential::RuntimeToken(Secret::new("rt_ü\u{1}secret".into())));
    let error = HubClient::new(unsendable).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"));
}
