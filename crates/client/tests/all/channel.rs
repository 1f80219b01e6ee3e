//! A channel against a hub that is played by hand, frame by frame.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_client::{
    Error, HubClientOptions, HubCredential,
    channel::{ChannelEvent, ChannelHandle, ChannelOpening, ChannelPeer, ChannelState, ChannelTimings, Options},
};
use attache_protocol::{
    ChannelId, Code, Json, RunId, Secret,
    wire::envelope::{Chunk, FrameType, Ready, Release, ResumeRepair},
};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::server::{Request, Response},
        http::HeaderValue,
    },
};

/// Far longer than anything here takes, on a machine that is slow and busy too: only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(30);
const CHANNEL: &str = "chn_00000000000000000000000000000001";

/// A worker that remembers what it heard, and takes what it is given.
struct RememberingWorker {
    heard: watch::Sender<Vec<ChannelEvent>>,
    running: Mutex<Vec<RunId>>,
}

impl ChannelPeer for RememberingWorker {
    fn running(&self) -> Option<Vec<RunId>> {
        Some(self.running.lock().unwrap().clone())
    }

    fn receive(&self, event: ChannelEvent) {
        if let ChannelEvent::Execute(run) = &event {
            self.running.lock().unwrap().push(run.task_run_id);
        }
        self.heard.send_modify(|heard| heard.push(event));
    }
}

impl RememberingWorker {
    fn new() -> Arc<Self> {
        Arc::new(Self { heard: watch::Sender::new(Vec::new()), running: Mutex::default() })
    }

    /// Everything heard, once there is so much of it.
    async fn heard(&self, count: usize) -> Vec<ChannelEvent> {
        let mut heard = self.heard.subscribe();
        let enough = heard.wait_for(|heard| heard.len() >= count);
        let enough = tokio::time::timeout(PATIENCE, enough).await;
        enough.unwrap_or_else(|_| panic!("only heard {:#?}", self.heard.borrow())).unwrap().clone()
    }
}

struct ChannelFixture {
    listener: TcpListener,
    url: String,
}

impl ChannelFixture {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { listener, url }
    }

    /// A channel that does not ping while a test lasts.
    fn connect(&self, worker: &Arc<RememberingWorker>) -> ChannelHandle {
        self.connect_pinging(worker, 2 * PATIENCE)
    }

    fn connect_pinging(&self, worker: &Arc<RememberingWorker>, ping: Duration) -> ChannelHandle {
        let token = HubCredential::RuntimeToken(Secret::new("rt_planted".to_owned()));
        let mut options = Options::worker(HubClientOptions::new(self.url.as_str(), token));
        options.capabilities = vec!["resume".to_owned()];
        options.pace = ChannelTimings {
            ping,
            retry: (Duration::from_millis(5), Duration::from_millis(20)),
            unwanted: (Duration::from_millis(5), Duration::from_millis(20)),
        };
        ChannelHandle::connect(options, worker.clone()).unwrap()
    }

    async fn accept(&self) -> TestSocket {
        let (stream, _) = tokio::time::timeout(PATIENCE, self.listener.accept()).await.unwrap().unwrap();
        #[allow(clippy::result_large_err, reason = "the handshake's callback has this type")]
        let speak = |_: &Request, mut response: Response| {
            let protocol = HeaderValue::from_static("attache.envelope.v1");
            response.headers_mut().insert("sec-websocket-protocol", protocol);
            Ok(response)
        };
        TestSocket(tokio_tungstenite::accept_hdr_async(stream, speak).await.unwrap())
    }

    /// Accepts, answers `register`, and gives the line.
    async fn registered(&self) -> TestSocket {
        let mut line = self.accept().await;
        let register = line.read().await;
        assert_eq!(register["payload"]["action"], "register");
        line.answer(&register, registered("rs_1")).await;
        line
    }
}

struct TestSocket(WebSocketStream<TcpStream>);

impl TestSocket {
    /// The next frame; pings are answered on the way.
    async fn read(&mut self) -> Value {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("a frame in time");
            match message.expect("an open line").unwrap() {
                Message::Text(text) => return serde_json::from_str(text.as_str()).unwrap(),
                Message::Close(_) => panic!("the line was closed"),
                _ => {}
            }
        }
    }

    async fn write(&mut self, kind: &str, seq: Option<i64>, parent: Option<&str>, payload: Value) {
        let frame = json!({"header": {"msg_id": format!("hub-{seq:?}"), "parent_id": parent, "type": kind,
            "from": "hub", "to": "w", "timestamp": 1, "seq": seq}, "payload": payload});
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn answer(&mut self, request: &Value, payload: Value) {
        self.write("response", None, request["header"]["msg_id"].as_str(), payload).await;
    }
}

fn registered(token: &str) -> Value {
    json!({"action": "register", "ok": true, "agent_id": null, "channel_id": CHANNEL, "resume_token": token,
        "heartbeat_ms": 30000})
}

fn run(number: u128) -> RunId {
    format!("run_{number:032x}").parse().unwrap()
}

fn channel() -> ChannelId {
    CHANNEL.parse().unwrap()
}

fn cancel(number: u128) -> Value {
    json!({"action": "cancel", "task_run_id": run(number)})
}

fn execute(number: u128) -> Value {
    json!({"action": "execute", "task_run_id": run(number), "epoch": 1, "query": "q",
        "conversation_id": format!("cnv_{number:032x}"), "context_fragments": [], "allowed_tools": [],
        "workspace_root": null, "tools": [], "agent_id": format!("agt_{number:032x}"),
        "workspace_id": format!("wsp_{number:032x}"), "task_type": "prompt", "input": {"text":"q"},
        "instructions": null, "parent_task_run_id": null, "trace_id": null, "attempt": 1,
        "lease_expires_at": "2030-01-01T00:00:00.000Z", "deadline": "2030-01-01T00:00:00.000Z"})
}

#[tokio::test]
async fn a_channel_registers_and_acknowledges_what_it_heard() {
    let (stage, worker) = (ChannelFixture::new().await, RememberingWorker::new());
    worker.running.lock().unwrap().push(run(9));
    let line = stage.connect(&worker);
    let mut hub = stage.accept().await;
    let register = hub.read().await;
    assert_eq!(
        register["payload"],
        json!({"action": "register", "peer_role": "worker", "capabilities": ["resume"], "running": [run(9)]})
    );
    // Nothing is said before the hub knows the channel.
    assert!(matches!(
        line.notify(Ready { credits: 1, enforces: None }.payload()).await,
        Err(Error::Unreachable { .. })
    ));
    hub.answer(&register, registered("rs_1")).await;
    worker.heard(1).await;
    line.notify(Ready { credits: 1, enforces: None }.payload()).await.unwrap();
    assert_eq!(hub.read().await["payload"], json!({"action": "ready", "credits": 1}));

    hub.write("request", Some(1), None, execute(1)).await;
    let ack = hub.read().await;
    assert_eq!(
        (&ack["header"]["type"], &ack["payload"]),
        (&json!("notification"), &json!({"action": "ack", "seq": 1}))
    );
    // The hub did not hear that and says it again: it is acknowledged again and heard once.
    hub.write("request", Some(1), None, execute(1)).await;
    assert_eq!(hub.read().await["payload"], json!({"action": "ack", "seq": 1}));
    hub.write("notification", Some(2), None, cancel(1)).await;
    assert_eq!(hub.read().await["payload"], json!({"action": "ack", "seq": 2}));
    let heard = worker.heard(3).await;
    assert_eq!(heard[0], ChannelEvent::Connected { channel: channel(), opened: ChannelOpening::Registered });
    assert!(matches!(&heard[1], ChannelEvent::Execute(claimed) if claimed.task_run_id == run(1) && claimed.epoch == 1));
    assert_eq!(heard[2..], [ChannelEvent::Cancel(run(1))]);
    line.close().await;
}

#[tokio::test]
async fn a_broken_channel_resumes_where_it_was() {
    let (stage, worker) = (ChannelFixture::new().await, RememberingWorker::new());
    let line = stage.connect(&worker);
    let mut hub = stage.registered().await;
    hub.write("notification", Some(1), None, cancel(1)).await;
    hub.read().await;
    let waiting = tokio::spawn({
        let line = line.clone();
        async move { line.request(Some("question-1".to_owned()), Json::from_text(r#"{"action":"x"}"#).unwrap()).await }
    });
    assert_eq!(hub.read().await["header"]["msg_id"], "question-1");
    drop(hub);
    assert!(matches!(waiting.await.unwrap(), Err(Error::Unreachable { .. })), "whoever waits hears of the break");

    let mut hub = stage.accept().await;
    let resume = hub.read().await;
    assert_eq!(
        resume["payload"],
        json!({"action": "resume", "channel_id": CHANNEL, "resume_token": "rs_1", "last_seq": 1})
    );
    hub.answer(
        &resume,
        json!({"action": "resume", "ok": true, "resume_token": "rs_2", "resumed_from": 1, "heartbeat_ms": 1,
            "repaired": {"from": 2, "to": 5}, "snapshot": {}}),
    )
    .await;
    // An answer that nobody waits for any more is taken note of, and that is all.
    hub.write("response", Some(6), Some("question-1"), json!({"action": "x", "ok": true})).await;
    assert_eq!(hub.read().await["payload"], json!({"action": "ack", "seq": 6}));
    drop(hub);

    // The answer to this one gets lost, so its token is used up.
    let mut hub = stage.accept().await;
    assert_eq!(hub.read().await["payload"]["resume_token"], "rs_2");
    drop(hub);
    worker.running.lock().unwrap().push(run(4));
    let mut hub = stage.accept().await;
    let resume = hub.read().await;
    let refused = json!({"code": "resume_refused", "message": "No.", "field": null});
    hub.answer(&resume, json!({"action": "resume", "ok": false, "error": refused})).await;
    let register = hub.read().await;
    assert_eq!(
        (&register["payload"]["action"], &register["payload"]["running"]),
        (&json!("register"), &json!([run(4)])),
        "over the same line, naming what runs"
    );
    hub.answer(&register, registered("rs_3")).await;
    // A new channel counts from the beginning.
    hub.write("notification", Some(1), None, cancel(2)).await;
    assert_eq!(hub.read().await["payload"], json!({"action": "ack", "seq": 1}));
    let heard = worker.heard(7).await;
    let opened: Vec<_> = heard
        .iter()
        .filter_map(|event| match event {
            ChannelEvent::Connected { opened, .. } => Some(*opened),
            _ => None,
        })
        .collect();
    assert_eq!(
        opened,
        [
            ChannelOpening::Registered,
            ChannelOpening::Resumed(Some(ResumeRepair { from: 2, to: 5 })),
            ChannelOpening::Registered
        ]
    );
    line.close().await;
}

#[tokio::test]
async fn a_hub_that_forgot_the_newest_frames_is_registered_with_anew() {
    let (stage, worker) = (ChannelFixture::new().await, RememberingWorker::new());
    let line = stage.connect(&worker);
    let mut hub = stage.registered().await;
    hub.write("notification", Some(1), None, cancel(1)).await;
    assert_eq!(hub.read().await["payload"], json!({"action": "ack", "seq": 1}));
    drop(hub);
    let mut hub = stage.accept().await;
    let resume = hub.read().await;
    let refused = json!({"code": "invalid_frame", "message": "No.", "field": "payload.last_seq"});
    hub.answer(&resume, json!({"action": "resume", "ok": false, "error": refused})).await;
    let register = hub.read().await;
    assert_eq!(register["payload"]["action"], "register");
    hub.answer(&register, registered("rs_2")).await;
    hub.write("notification", Some(1), None, cancel(2)).await;
    assert_eq!(
        hub.read().await["payload"],
        json!({"action": "ack", "seq": 1}),
        "a new channel counts from the beginning"
    );
    line.close().await;
}

#[tokio::test]
async fn what_is_told_is_numbered_and_taken_when_it_is_acknowledged() {
    let (stage, worker) = (ChannelFixture::new().await, RememberingWorker::new());
    let line = stage.connect(&worker);
    let mut hub = stage.registered().await;
    worker.heard(1).await;
    let chunk = |text: &str| {
        let (task_run_id, text) = (run(1), Json::of(text));
        Chunk { task_run_id, epoch: 1, text, report: Some(7) }.payload()
    };
    let tell = |text: &str| {
        let (line, payload) = (line.clone(), chunk(text));
        tokio::spawn(async move { line.send_and_confirm(FrameType::Chunk, payload).await })
    };
    let first = tell("a");
    let frame = hub.read().await;
    assert_eq!((&frame["header"]["type"], &frame["header"]["seq"]), (&json!("chunk"), &json!(1)));
    assert_eq!(
        frame["payload"],
        json!({"action": "chunk", "task_run_id": run(1), "epoch": 1, "text": "a", "report": 7})
    );
    let second = tell("b");
    let frame = hub.read().await;
    assert_eq!(frame["header"]["seq"], 2);
    let refused = json!({"code": "stale_epoch", "message": "Too late.", "field": null});
    hub.answer(&frame, json!({"action": "chunk", "ok": false, "error": refused})).await;
    assert_eq!(second.await.unwrap().unwrap_err().code(), Some(Code::StaleEpoch));
    assert!(!first.is_finished());
    hub.write("notification", None, None, json!({"action": "ack", "seq": 2})).await;
    first.await.unwrap().unwrap();

    let answer = line.request(None, Release { task_run_id: run(1), epoch: 1 }.payload());
    let played = async {
        let release = hub.read().await;
        hub.answer(&release, json!({"action": "release", "ok": true, "n": 1.0})).await;
    };
    let (answer, ()) = tokio::join!(answer, played);
    assert_eq!(answer.unwrap().get(), r#"{"action":"release","ok":true,"n":1.0}"#);
    line.close().await;
}

#[tokio::test]
async fn a_silent_line_is_given_up() {
    let (stage, worker) = (ChannelFixture::new().await, RememberingWorker::new());
    let line = stage.connect_pinging(&worker, Duration::from_millis(200));
    let hub = stage.registered().await;
    worker.heard(1).await;
    // Nobody reads or answers on the first line any more.
    let mut again = stage.accept().await;
    assert_eq!(again.read().await["payload"]["action"], "resume");
    assert!(
        matches!(&worker.heard(2).await[1], ChannelEvent::Broken(Error::Unreachable { reason, .. }) if reason == "the hub stopped responding")
    );
    drop(hub);
    line.close().await;
}

/// A hub that replaced the device closes the channel. What the device works on is stopped then, not when it has a result.
#[tokio::test]
async fn a_closed_line_is_left_although_the_connection_stays() {
    let (stage, worker) = (ChannelFixture::new().await, RememberingWorker::new());
    let line = stage.connect(&worker);
    let mut hub = stage.registered().await;
    worker.heard(1).await;
    hub.0.send(Message::Close(None)).await.unwrap();
    let mut again = stage.accept().await;
    assert_eq!(again.read().await["payload"]["action"], "resume");
    assert!(
        matches!(&worker.heard(2).await[1], ChannelEvent::Broken(Error::Unreachable { reason, .. }) if reason == "the hub closed the channel")
    );
    drop(hub);
    line.close().await;
}

#[tokio::test]
async fn a_line_is_not_silent_because_this_side_stood_still() {
    let ping = Duration::from_secs(1);
    let (stage, worker) = (ChannelFixture::new().await, RememberingWorker::new());
    let line = stage.connect_pinging(&worker, ping);
    let mut hub = stage.registered().await;
    worker.heard(1).await;
    for number in 1..=4 {
        // Every other time there are words of the hub to be read afterwards.
        let speaks = number % 2 == 0;
        if speaks {
            hub.write("notification", Some(number / 2), None, cancel(1)).await;
        }
        // Nobody in this process does anything, and longer than anybody may be silent.
        std::thread::sleep(2 * ping + ping / 4);
        if speaks {
            assert_eq!(hub.read().await["payload"], json!({"action": "ack", "seq": number / 2}));
        } else {
            let asked = tokio::time::timeout(PATIENCE, hub.0.next()).await.expect("a ping in time");
            assert!(matches!(asked, Some(Ok(Message::Ping(_)))), "{asked:?}");
        }
        let confirmed = line.confirm();
        tokio::pin!(confirmed);
        let confirmed = loop {
            tokio::select! {
                confirmed = &mut confirmed => break confirmed,
                // Reading answers the ping.
                read = hub.0.next() => drop(read.expect("an open line").unwrap()),
            }
        };
        confirmed.unwrap();
    }
    let broken = worker.heard.borrow().iter().filter(|event| matches!(event, ChannelEvent::Broken(_))).count();
    assert_eq!(broken, 0);
    line.close().await;
}

#[tokio::test]
async fn everything_written_before_a_ping_has_arrived_after_it() {
    let (stage, worker) = (ChannelFixture::new().await, RememberingWorker::new());
    let line = stage.connect(&worker);
    let mut hub = stage.registered().await;
    worker.heard(1).await;
    hub.write("notification", Some(1), None, cancel(1)).await;
    let confirmed = tokio::spawn(async move {
        line.confirm().await.unwrap();
        line
    });
    // Reading answers the ping.
    hub.read().await;
    let reading = tokio::spawn(async move {
        let _ = hub.0.next().await;
        hub
    });
    let line = tokio::time::timeout(PATIENCE, confirmed).await.unwrap().unwrap();
    assert_eq!(worker.heard.borrow().last(), Some(&ChannelEvent::Cancel(run(1))));
    reading.abort();
    line.close().await;
}

/// Answers every request with this, as something that knows no channels would.
async fn without_channels(answer: &'static str) -> Error {
    let (stage, worker) = (ChannelFixture::new().await, RememberingWorker::new());
    let line = stage.connect(&worker);
    let (mut stream, _) = stage.listener.accept().await.unwrap();
    let mut request = [0; 4096];
    let read = stream.read(&mut request).await.unwrap();
    let request = String::from_utf8_lossy(&request[..read]).to_ascii_lowercase();
    assert!(request.starts_with("get /api/envelope/ws http/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nx-runtime-token: rt_planted\r\n"), "{request}");
    assert!(request.contains("\r\nsec-websocket-protocol: attache.envelope.v1\r\n"), "{request}");
    stream.write_all(answer.as_bytes()).await.unwrap();
    drop(stream);
    worker.heard(1).await;
    let ChannelState::Broken(error) = line.state() else { panic!("{:?}", line.state()) };
    line.close().await;
    error
}

#[tokio::test]
async fn only_a_hubs_own_refusal_denies_the_device() {
    let body = r#"{"error":{"code":"runtime_revoked","message":"Gone.","hint":"Pair."}}"#;
    let answer = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let denied = without_channels(answer.leak()).await;
    assert!(denied.is_denied() && denied.code() == Some(Code::RuntimeRevoked), "{denied:?}");
    let proxy = without_channels("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await;
    assert!(matches!(&proxy, Error::BadReply { reason, .. } if reason.contains("status 403")), "{proxy:?}");
    let closed = without_channels("").await;
    assert!(matches!(closed, Error::Unreachable { .. }), "{closed:?}");
}
