//! Hubs that serve one PostgreSQL database, each with a data folder of its own, and a proxy in front that gives every
//! connection to the next one that is ready.

use std::{
    io::{self, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use attache_store::conformance::postgres_server::TestPostgresServer;

use crate::harness::{TestHome, TestHub, until};

pub struct Cluster {
    pub server: TestPostgresServer,
    pub url: String,
    /// The first one has the owner key.
    pub homes: Vec<TestHome>,
    pub nodes: Vec<TestHub>,
    pub proxy: Proxy,
    /// Options that all of them have, besides those that make them one.
    options: Vec<String>,
}

/// Round robin. A node is asked for `/readyz` all the time, and its connections are cut when it doesn't answer.
pub struct Proxy {
    pub url: String,
    state: Arc<ProxyState>,
    threads: Vec<JoinHandle<()>>,
}

struct ProxyState {
    nodes: Vec<ProxiedNode>,
    next: AtomicUsize,
    ends: AtomicBool,
}

struct ProxiedNode {
    address: SocketAddr,
    is_ready: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

const CHECK_INTERVAL: Duration = Duration::from_millis(100);
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// An address that nobody else uses now.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

// === impl Cluster ===

impl Cluster {
    /// `None` where PostgreSQL isn't installed.
    pub fn start(count: usize) -> Option<Self> {
        Self::start_with(count, &[])
    }

    pub fn start_with(count: usize, options: &[&str]) -> Option<Self> {
        let server = TestPostgresServer::start()?;
        let url = server.create_database("hub");
        let addresses: Vec<SocketAddr> = (0..count).map(|_| free_address()).collect();
        let proxy = Proxy::start(&addresses);
        let mut cluster = Self {
            server,
            url,
            homes: (0..count).map(|_| TestHome::new()).collect(),
            nodes: Vec::new(),
            proxy,
            options: options.iter().map(|&option| option.to_owned()).collect(),
        };
        for (number, address) in addresses.iter().enumerate() {
            let node = cluster.start_node(number, *address);
            cluster.nodes.push(node);
        }
        Some(cluster)
    }

    /// The arguments of a hub that is one of them.
    pub fn arguments(&self) -> Vec<String> {
        let common = self.homes[0].path();
        let [key, artifacts] = ["cluster.key", "artifacts"].map(|name| common.join(name).to_str().unwrap().to_owned());
        ["--database-url", &self.url, "--cluster-key-file", &key, "--artifacts-folder", &artifacts]
            .into_iter()
            .chain(["--public-url", &self.proxy.url])
            // For the tests' own webhooks.
            .chain(["--egress-allow", "127.0.0.1"])
            .map(str::to_owned)
            .chain(self.options.iter().cloned())
            .collect()
    }

    fn start_node(&self, number: usize, address: SocketAddr) -> TestHub {
        let home = &self.homes[number];
        let (name, listen) = (format!("hub-{number}"), address.to_string());
        until("the port to be free", || TcpListener::bind(address).ok().map(drop));
        let arguments = self.arguments();
        let mut all = vec!["hub", "--listen", &listen];
        all.extend(arguments.iter().map(String::as_str));
        let (process, ready) = home.ready(&name, &all);
        TestHub { process, url: ready["url"].as_str().unwrap().to_owned(), key: self.homes[0].owner_key() }
    }

    /// Starts a node again, at its address.
    pub fn restart(&mut self, number: usize) {
        let address = self.nodes[number].address().parse().unwrap();
        self.nodes[number] = self.start_node(number, address);
    }

    /// A hub as callers see it: whatever node is next.
    pub fn through_proxy(&self) -> Caller {
        Caller { url: self.proxy.url.clone(), key: self.nodes[0].key.clone() }
    }

    pub fn is_served(&self) {
        until("the proxy to find every node", || {
            self.proxy.state.nodes.iter().all(|node| node.is_ready.load(Ordering::Relaxed)).then_some(())
        });
    }
}

/// Somebody with the owner key, who repeats what failed on the way.
#[derive(Debug, Clone)]
pub struct Caller {
    pub url: String,
    pub key: String,
}

// === impl Caller ===

impl Caller {
    pub fn try_call(
        &self,
        method: &str,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> io::Result<crate::harness::TestReply> {
        let key = format!("Bearer {}", self.key);
        crate::harness::http::json(method, &format!("{}{path}", self.url), &[("authorization", &key)], body)
    }

    /// Repeats the call until it has an answer that is no failure of the hub.
    pub fn call(&self, method: &str, path: &str, body: Option<&serde_json::Value>) -> crate::harness::TestReply {
        until(&format!("an answer to {method} {path}"), || {
            let answer = self.try_call(method, path, body).ok().filter(|reply| reply.status < 500);
            if answer.is_none() {
                thread::sleep(Duration::from_millis(50));
            }
            answer
        })
    }
}

// === impl Proxy ===

impl Proxy {
    fn start(nodes: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let node = |address: &SocketAddr| ProxiedNode {
            address: *address,
            is_ready: AtomicBool::new(false),
            open: Mutex::default(),
        };
        let state = Arc::new(ProxyState {
            nodes: nodes.iter().map(node).collect(),
            next: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
        });
        let mut threads = Vec::new();
        for number in 0..nodes.len() {
            let state = state.clone();
            threads.push(thread::spawn(move || state.watch(number)));
        }
        let accepting = state.clone();
        threads.push(thread::spawn(move || {
            for incoming in listener.incoming() {
                if accepting.ends.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(incoming) = incoming {
                    let state = accepting.clone();
                    thread::spawn(move || state.relay(incoming));
                }
            }
        }));
        Self { url, state, threads }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        for node in &self.state.nodes {
            node.cut();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

// === impl ProxyState ===

impl ProxyState {
    fn watch(&self, number: usize) {
        let node = &self.nodes[number];
        while !self.ends.load(Ordering::Relaxed) {
            let is_ready = node.answers();
            if node.is_ready.swap(is_ready, Ordering::Relaxed) && !is_ready {
                node.cut();
            }
            thread::sleep(CHECK_INTERVAL);
        }
    }

    fn relay(&self, incoming: TcpStream) {
        let _ = incoming.set_nodelay(true);
        for _ in 0..self.nodes.len() {
            let node = &self.nodes[self.next.fetch_add(1, Ordering::Relaxed) % self.nodes.len()];
            if !node.is_ready.load(Ordering::Relaxed) {
                continue;
            }
            let Ok(outgoing) = TcpStream::connect_timeout(&node.address, CHECK_TIMEOUT) else { continue };
            let _ = outgoing.set_nodelay(true);
            let clones = (incoming.try_clone(), outgoing.try_clone(), incoming.try_clone(), outgoing.try_clone());
            let (Ok(from), Ok(to), Ok(kept_in), Ok(kept_out)) = clones else { return };
            node.open.lock().unwrap().extend([kept_in, kept_out]);
            let back = thread::spawn(move || pump(&outgoing, &incoming));
            pump(&from, &to);
            let _ = back.join();
            return;
        }
        // Nobody serves. The caller tries again.
        let _ = incoming.shutdown(Shutdown::Both);
    }
}

fn pump(from: &TcpStream, to: &TcpStream) {
    let (mut reader, mut writer) = (from, to);
    let _ = io::copy(&mut reader, &mut writer);
    let _ = to.shutdown(Shutdown::Write);
}

// === impl ProxiedNode ===

impl ProxiedNode {
    fn answers(&self) -> bool {
        let ask = || -> io::Result<bool> {
            let mut stream = TcpStream::connect_timeout(&self.address, CHECK_TIMEOUT)?;
            stream.set_read_timeout(Some(CHECK_TIMEOUT))?;
            let request = format!("GET /readyz HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
            stream.write_all(request.as_bytes())?;
            let mut answer = [0; 12];
            io::Read::read_exact(&mut stream, &mut answer)?;
            Ok(answer.ends_with(b"200"))
        };
        ask().unwrap_or(false)
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
