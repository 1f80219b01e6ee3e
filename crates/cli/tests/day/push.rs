//! A push service on loopback, and the browser's side of its subscription: what arrives is decrypted with its own keys.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{harness::LIMIT, push_browser::TestBrowser};

/// A push service with one subscription.
pub struct PushService {
    browser: TestBrowser,
    messages: Receiver<Vec<u8>>,
}

// === impl PushService ===

impl PushService {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let browser = TestBrowser::at(&format!("http://{}", listener.local_addr().unwrap()), "phone");
        let (sender, messages) = channel();
        // Runs until the test process exits; one connection per message.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(message) = receive(stream)
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        Self { browser, messages }
    }

    /// What the browser's `PushSubscription.toJSON()` says.
    pub fn subscription(&self) -> Value {
        let address = &self.browser.request(json!({}))["address"];
        json!({"endpoint": address["endpoint"], "keys": address["keys"]})
    }

    /// The next message, decrypted.
    #[track_caller]
    pub fn next(&self) -> Value {
        let message = self.messages.recv_timeout(LIMIT).expect("the hub sends a message");
        self.browser.decrypt(&message)
    }
}

/// Reads one request and accepts it.
fn receive(stream: TcpStream) -> Option<Vec<u8>> {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok()?,
            Some(_) => {}
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut message = vec![0; length];
    reader.read_exact(&mut message).ok()?;
    let created = "HTTP/1.1 201 Created\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    reader.into_inner().write_all(created.as_bytes()).ok()?;
    Some(message)
}
