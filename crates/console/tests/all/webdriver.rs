//! A minimal WebDriver client for the browser tests. Those of the command line use it, too.

#![allow(clippy::disallowed_methods, reason = "the driver speaks JSON that we write, not JSON that we relay")]

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};
use tokio_tungstenite::tungstenite::Message;

/// Timeout for page conditions and driver responses.
const WEBDRIVER_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for the first start of the browser.
const START: Duration = Duration::from_secs(120);

/// One browser and its driver. Dropping it stops both.
pub(crate) struct WebdriverBrowser {
    driver: Child,
    port: u16,
    session: String,
    /// Where the browser itself answers the DevTools protocol.
    debugger: String,
    _profile: tempfile::TempDir,
}

// === impl WebdriverBrowser ===

impl WebdriverBrowser {
    /// `None` if Chromium isn't installed. Prints the reason.
    pub(crate) async fn open() -> Option<Self> {
        for program in ["chromium", "chromedriver"] {
            let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if !found.is_ok_and(|status| status.success()) {
                println!("skipped: `{program}` is not installed (Debian: apt-get install chromium chromium-driver)");
                return None;
            }
        }
        let mut driver =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = loop {
            let line = lines.next().expect("chromedriver says its port").unwrap();
            if let Some((_, rest)) = line.split_once("started successfully on port ") {
                break rest.trim_end_matches('.').parse().unwrap();
            }
        };
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self { driver, port, session: String::new(), debugger: String::new(), _profile: profile };
        let folder = format!("--user-data-dir={}", browser._profile.path().display());
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync",
                     "--hide-scrollbars", "--window-size=1280,900", folder],
        });
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let mut answer = browser.call(START, "POST", "/session", &capabilities).await;
        if answer["sessionId"].is_null() {
            // On a cold disk, the browser may start too slowly for the driver. The second attempt is faster.
            answer = browser.call(START, "POST", "/session", &capabilities).await;
        }
        let debugger = &answer["capabilities"]["goog:chromeOptions"]["debuggerAddress"];
        debugger.as_str().unwrap_or_else(|| panic!("{answer}")).clone_into(&mut browser.debugger);
        browser.session = answer["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        Some(browser)
    }

    pub(crate) async fn go(&self, url: &str) {
        self.command("POST", "/url", &json!({"url": url})).await;
    }

    pub(crate) async fn url(&self) -> String {
        self.command("GET", "/url", &Value::Null).await.as_str().unwrap().to_owned()
    }

    /// Runs a function body in the page.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": script, "args": []})).await
    }

    /// Waits until an expression in the page is true.
    pub(crate) async fn wait(&self, expression: &str) {
        let until = Instant::now() + WEBDRIVER_TIMEOUT;
        loop {
            // A page that is navigating away returns an error. Retry on the next one.
            let answer = self.try_run(&format!("return Boolean({expression})")).await;
            if answer == Ok(Value::Bool(true)) {
                return;
            }
            if Instant::now() > until {
                let text = self.run("return document.body.innerText").await;
                panic!("never true: {expression} ({answer:?}) at {}\n{text}", self.url().await);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.command("POST", &format!("/element/{element}/click"), &json!({})).await;
    }

    /// The same for an element that may be replaced by a newer copy meanwhile, or still moves.
    pub(crate) async fn tap(&self, selector: &str) {
        let until = Instant::now() + WEBDRIVER_TIMEOUT;
        loop {
            let wanted = json!({"using": "css selector", "value": selector});
            let found = self.try_command("POST", "/element", &wanted).await;
            let id = found.as_ref().ok().and_then(|found| found.as_object()?.values().next()?.as_str());
            let tapped = match id {
                Some(id) => self.try_command("POST", &format!("/element/{id}/click"), &json!({})).await,
                None => found,
            };
            match tapped {
                Ok(_) => return,
                Err(error) => assert!(Instant::now() < until, "{selector} can't be tapped: {error}"),
            }
            // What the driver scrolls to may be at the edge, below what is fixed there; a person scrolls further.
            let script = format!("document.querySelector({selector:?})?.scrollIntoView({{ block: 'center' }})");
            let _ = self.try_run(&script).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn write(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.command("POST", &format!("/element/{element}/value"), &json!({"text": text})).await;
    }

    pub(crate) async fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({selector:?})?.textContent ?? ''");
        self.run(&script).await.as_str().unwrap().to_owned()
    }

    /// Sets the page size: phone or desktop.
    pub(crate) async fn size(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700});
        let command = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics});
        self.command("POST", "/goog/cdp/execute", &command).await;
    }

    pub(crate) async fn screenshot(&self, folder: &Path, name: &str) {
        let command = json!({"cmd": "Page.captureScreenshot", "params": {"format": "png"}});
        let answer = self.command("POST", "/goog/cdp/execute", &command).await;
        std::fs::write(folder.join(format!("{name}.png")), base64(answer["data"].as_str().unwrap())).unwrap();
    }

    /// A device with passkeys whose person is there and says yes to everything.
    pub(crate) async fn authenticator(&self) {
        let device = json!({"protocol": "ctap2", "transport": "internal", "hasResidentKey": true,
            "hasUserVerification": true, "isUserConsenting": true, "isUserVerified": true});
        self.command("POST", "/webauthn/authenticator", &device).await;
    }

    /// A command of the DevTools protocol.
    pub(crate) async fn devtools(&self, command: &str, params: Value) -> Value {
        self.command("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": params})).await
    }

    /// What the browser does with a decrypted message of its push service: wakes the service worker with it. Waits until
    /// there is a notification that fits.
    pub(crate) async fn push(&self, origin: &str, message: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.devtools("ServiceWorker.enable", json!({})).await;
        let until = Instant::now() + WEBDRIVER_TIMEOUT;
        let mut round = 0;
        loop {
            // The registration may not be known to the tools yet, and its number isn't told.
            if round % 20 == 0 {
                for registration in 0..4 {
                    let data = json!({"origin": origin, "registrationId": registration.to_string(), "data": message});
                    self.devtools("ServiceWorker.deliverPushMessage", data).await;
                }
            }
            let shown = self.notifications().await;
            if let Some(found) = shown.as_array().unwrap().iter().find(|one| fits(one)) {
                return found.clone();
            }
            assert!(Instant::now() < until, "no such notification: {shown}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            round += 1;
        }
    }

    /// The notifications that are shown.
    pub(crate) async fn notifications(&self) -> Value {
        let read = "(all) => all.map(({title, body, tag, actions, data}) => ({title, body, tag, data, actions: actions.map(({action, title}) => [action, title])}))";
        let shown = "navigator.serviceWorker.ready.then((registration) => registration.getNotifications())";
        self.run(&format!("return {shown}.then({read})")).await
    }

    /// Presses a button of a notification. Without a screen there is nothing to press, so the service worker gets the
    /// event as the system would send it, and what it does is waited for.
    pub(crate) async fn press(&self, tag: &str, action: &str) {
        let script = format!(
            "(async () => {{
                const [notification] = await registration.getNotifications({{ tag: {tag:?} }});
                const event = new NotificationEvent('notificationclick', {{ notification, action: {action:?} }});
                const work = [];
                Object.defineProperty(event, 'waitUntil', {{ value: (promise) => work.push(promise) }});
                self.dispatchEvent(event);
                await Promise.all(work);
                return work.length;
            }})()"
        );
        assert_eq!(self.run_in_service_worker(&script).await, 1, "the service worker takes the event");
    }

    async fn run_in_service_worker(&self, expression: &str) -> Value {
        let mut stream = TcpStream::connect(&self.debugger).await.unwrap();
        let request = format!("GET /json/list HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.debugger);
        stream.write_all(request.as_bytes()).await.unwrap();
        let targets: Value = serde_json::from_str(&read(&mut stream).await).unwrap();
        let worker = targets.as_array().unwrap().iter().find(|target| target["type"] == "service_worker");
        let address = worker.unwrap_or_else(|| panic!("{targets}"))["webSocketDebuggerUrl"].as_str().unwrap();
        let (mut socket, _) = tokio_tungstenite::connect_async(address).await.unwrap();
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let command = json!({"id": 1, "method": "Runtime.evaluate", "params": params});
        socket.send(Message::text(command.to_string())).await.unwrap();
        let answered = async {
            loop {
                let message = socket.next().await.unwrap().unwrap();
                let message: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
                if message["id"] == 1 {
                    return message;
                }
            }
        };
        let mut answer = tokio::time::timeout(WEBDRIVER_TIMEOUT, answered).await.expect("the service worker answers");
        assert!(answer["result"].get("exceptionDetails").is_none(), "{answer}");
        answer["result"]["result"]["value"].take()
    }

    /// Console errors and policy violations since the last call.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let entries = self.command("POST", "/se/log", &json!({"type": "browser"})).await;
        let text = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        entries.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE").map(text).collect()
    }

    async fn element(&self, selector: &str) -> String {
        let wanted = json!({"using": "css selector", "value": selector});
        let found = self.command("POST", "/element", &wanted).await;
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    async fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_command(method, path, body).await.unwrap_or_else(|answer| panic!("{method} {path}: {answer}"))
    }

    async fn try_command(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let answer = self.call(WEBDRIVER_TIMEOUT, method, &format!("/session/{}{path}", self.session), body).await;
        if answer.get("error").is_some() { Err(answer) } else { Ok(answer) }
    }

    async fn try_run(&self, script: &str) -> Result<Value, Value> {
        self.try_command("POST", "/execute/sync", &json!({"script": script, "args": []})).await
    }

    async fn call(&self, patience: Duration, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        let answer = tokio::time::timeout(patience, read(&mut stream)).await.expect("the driver answers");
        let mut answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        answer["value"].take()
    }
}

impl Drop for WebdriverBrowser {
    fn drop(&mut self) {
        // The driver stops its browser on shutdown. Kill it only if it doesn't respond.
        let stop = std::net::TcpStream::connect(("127.0.0.1", self.port)).and_then(|mut stream| {
            use std::io::{Read as _, Write as _};
            write!(
                stream,
                "DELETE /session/{} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
                self.session
            )?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.read(&mut [0; 1024])
        });
        drop(stop);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The body of one response. The driver keeps the connection open, so Content-Length marks the end.
async fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut more = vec![0; 16 * 1024];
        let count = stream.read(&mut more).await.unwrap();
        bytes.extend_from_slice(&more[..count]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            let start = head.len() + 4;
            if length.is_some_and(|length| bytes.len() >= start + length) {
                return body.to_owned();
            }
        }
        assert!(count > 0, "the driver hung up: {text}");
    }
}

fn base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    for character in text.bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits & 0xff) as u8);
        }
    }
    bytes
}
