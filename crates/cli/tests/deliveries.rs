//! Callbacks with the real binary: they survive `kill -9`, are retried with the same id, and stop after a recorded
//! acknowledgement.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::harness::{LIMIT, TestHome, TestHub, until};

/// A webhook that answers according to a script; `None` means no answer.
pub struct CallbackReceiver {
    pub origin: String,
    shared: Arc<CallbackReceiverState>,
}

#[derive(Default)]
struct CallbackReceiverState {
    told: Mutex<Vec<ReceivedCallback>>,
    /// The header lines of each request.
    heads: Mutex<Vec<String>>,
    more: Condvar,
    /// Answers 200 once it is empty.
    script: Mutex<Vec<Option<u16>>>,
    /// Connections without an answer stay open.
    open: Mutex<Vec<TcpStream>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedCallback {
    id: String,
    body: Value,
}

impl CallbackReceiver {
    pub fn start(script: &[Option<u16>]) -> Self {
        let mut script = script.to_vec();
        script.reverse();
        let shared = Arc::new(CallbackReceiverState { script: Mutex::new(script), ..CallbackReceiverState::default() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let heard = shared.clone();
        // Runs until the test process exits; one connection per delivery.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                heard.hear(stream);
            }
        });
        Self { origin, shared }
    }

    /// The delivery with this number, from 0.
    #[track_caller]
    pub fn told(&self, number: usize) -> ReceivedCallback {
        let give_up = Instant::now() + LIMIT;
        let mut told = self.shared.told.lock().unwrap();
        while told.len() <= number {
            assert!(Instant::now() < give_up, "waited {LIMIT:?} for delivery {number}");
            told = self.shared.more.wait_timeout(told, Duration::from_millis(100)).unwrap().0;
        }
        told[number].clone()
    }

    /// The header lines of a delivery.
    pub fn head(&self, number: usize) -> String {
        self.shared.heads.lock().unwrap()[number].clone()
    }

    fn count(&self) -> usize {
        self.shared.told.lock().unwrap().len()
    }

    /// Each delivery's id and body, so far.
    pub fn received(&self) -> Vec<(String, Value)> {
        self.shared.told.lock().unwrap().iter().map(|told| (told.id.clone(), told.body.clone())).collect()
    }
}

impl CallbackReceiverState {
    /// Reads one request with a content length, sends the answer and closes.
    fn hear(&self, stream: TcpStream) {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut reader = BufReader::new(stream);
        let (mut id, mut length, mut head) = (String::new(), 0, String::new());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            head.push_str(&line);
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                if line.trim().is_empty() {
                    break;
                }
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "x-attache-delivery" => value.clone_into(&mut id),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let answer = self.script.lock().unwrap().pop().unwrap_or(Some(200));
        let mut stream = reader.into_inner();
        match answer {
            Some(status) => {
                let _ = write!(stream, "HTTP/1.1 {status} Status\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
            None => self.open.lock().unwrap().push(stream),
        }
        self.heads.lock().unwrap().push(head);
        self.told.lock().unwrap().push(ReceivedCallback { id, body: serde_json::from_slice(&body).unwrap() });
        self.more.notify_all();
    }
}

fn start(home: &TestHome, listen: &str) -> TestHub {
    home.hub(&["--egress-allow", "127.0.0.1", "--listen", listen])
}

/// A device simulated by the test.
struct DeliveryDevice {
    agent: String,
    token: String,
}

impl DeliveryDevice {
    fn pair(hub: &TestHub) -> Self {
        hub.add_agent("builder");
        let device = hub.attach(&hub.pairing_code("builder"));
        let text = |name: &str| device[name].as_str().unwrap().to_owned();
        Self { agent: text("agent_id"), token: text("runtime_token") }
    }

    /// Creates a run with a callback, completes it and returns the delivery's id.
    fn complete(&self, hub: &TestHub, url: &str) -> String {
        let body = json!({ "agent_id": "builder", "input": { "text": "x" }, "callback_url": url });
        let run = hub.post("/api/v1/task-runs", &body).expect(201).json()["task_run_id"].clone();
        let pull = format!("/api/v1/agent-accounts/{}/task-runs/pull?wait_ms=20000", self.agent);
        let claimed = hub.worker(&self.token, "POST", &pull, &json!({})).expect(200).json()["task_run"].clone();
        assert_eq!(claimed["task_run_id"], run);
        let path = format!("/api/v1/task-runs/{}/complete", run.as_str().unwrap());
        let done = json!({ "epoch": claimed["epoch"], "output": { "text": "nine" } });
        hub.worker(&self.token, "POST", &path, &done).expect(200);
        run.as_str().unwrap().replace("run_", "dlv_")
    }
}

#[track_caller]
fn delivered(hub: &TestHub, delivery: &str) -> Value {
    until(&format!("{delivery} to be delivered"), || {
        let found = hub.get(&format!("/api/v1/deliveries/{delivery}"));
        (found["state"] == "delivered").then_some(found)
    })
}

#[test]
fn a_callback_survives_a_killed_hub_and_stops_when_acknowledged() {
    let home = TestHome::new();
    // The first attempt is refused, the second gets no answer; each time the hub is killed before the next attempt.
    let receiver = CallbackReceiver::start(&[Some(503), None]);
    let url = format!("{}/done", receiver.origin);
    let hub = start(&home, "127.0.0.1:0");
    let address = hub.address().to_owned();
    let device = DeliveryDevice::pair(&hub);
    let delivery = device.complete(&hub, &url);
    let first = receiver.told(0);
    hub.process.kill();

    let hub = start(&home, &address);
    let second = receiver.told(1);
    hub.process.kill();

    let hub = start(&home, &address);
    let third = receiver.told(2);
    assert_eq!((first.id.as_str(), &first.body["status"]), (delivery.as_str(), &json!("completed")));
    assert_eq!([&second, &third], [&first, &first], "a repeat has the same id and the same body");
    delivered(&hub, &delivery);
    hub.process.kill();

    // A retry of the acknowledged delivery would arrive before the new one.
    let hub = start(&home, &address);
    let next = device.complete(&hub, &url);
    assert_eq!(receiver.told(3).id, next);
    delivered(&hub, &next);
    assert_eq!(receiver.count(), 4);
}

#[test]
fn deliveries_are_listed_shown_and_resent() {
    let home = TestHome::new();
    let receiver = CallbackReceiver::start(&[Some(410)]);
    let hub = start(&home, "127.0.0.1:0");
    let device = DeliveryDevice::pair(&hub);
    let delivery = device.complete(&hub, &format!("{}/done?key=hunter2", receiver.origin));
    until("it to be given up", || {
        (hub.get(&format!("/api/v1/deliveries/{delivery}"))["state"] == "failed").then_some(())
    });
    let list = home.attache(&["deliveries"]).succeeds();
    assert!(list.stdout.contains(&delivery) && list.stdout.contains("failed"), "{}", list.stdout);
    assert!(list.stdout.contains("/done?key=***") && !list.stdout.contains("hunter2"), "{}", list.stdout);
    let shown = home.attache(&["deliveries", "show", &delivery]).succeeds();
    assert!(shown.stdout.contains("no longer wants this delivery"), "{}", shown.stdout);
    assert!(shown.stderr.contains(&format!("attache deliveries resend {delivery}")), "{}", shown.stderr);
    home.attache(&["deliveries", "resend", &delivery]).succeeds();
    assert_eq!(receiver.told(1), receiver.told(0));
    delivered(&hub, &delivery);
    let json = home.attache(&["deliveries", "list", "--state", "delivered", "--json"]).succeeds().json();
    assert_eq!(
        (&json["deliveries"][0]["delivery_id"], &json["deliveries"][0]["attempts"]),
        (&json!(delivery), &json!(2))
    );
    let secret = home.attache(&["deliveries", "secret"]).succeeds().stdout;
    let asked = hub.get("/api/v1/deliveries/secret");
    assert_eq!(json!(secret.trim()), asked["secret"]);
    home.attache(&["deliveries", "show", "dlv_00000000000000000000000000000001"]).exits(3);
}

#[test]
fn a_private_callback_needs_the_owners_permission() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let refused = home.attache(&["ask", "builder", "x", "--no-wait", "--callback", "http://127.0.0.1:9/done"]).exits(4);
    assert!(refused.stderr.contains("loopback") && refused.stderr.contains("--egress-allow"), "{}", refused.stderr);
    let wrong = home.attache(&["hub", "--egress-allow", "10.0.0.1/8"]).exits(2);
    assert!(wrong.stderr.contains("the network with that prefix length is 10.0.0.0/8"), "{}", wrong.stderr);
}

#[test]
fn an_untrusted_certificate_is_rejected() {
    let (home, other) = (TestHome::new(), TestHome::new());
    let impostor = other.hub(&["--tls-self-signed"]);
    assert!(impostor.url.starts_with("https://127.0.0.1:"), "{}", impostor.url);
    let hub = start(&home, "127.0.0.1:0");
    let delivery = DeliveryDevice::pair(&hub).complete(&hub, &format!("{}/done", impostor.url));
    let tried = until("it to be tried", || {
        let found = hub.get(&format!("/api/v1/deliveries/{delivery}"));
        (found["attempts"] != 0).then_some(found)
    });
    assert_eq!((&tried["state"], &tried["last_status"]), (&json!("pending"), &Value::Null));
    assert!(tried["last_error"].as_str().unwrap().contains("certificate"), "{tried}");
}
