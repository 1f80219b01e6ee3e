//! A forward proxy with an allow-list: the only way out for a process without network of its own. It speaks `CONNECT`
//! and plain HTTP, one request per connection.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use super::{CheckedUrl, EgressGuard, EgressPolicy, EgressRule, UrlHost};

/// A host that can be reached: `api.example.com` (https only, at a public address), `*.example.com`, or with a port,
/// wherever it is: `10.0.0.5:8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    rule: EgressRule,
    port: Option<u16>,
}

/// What went to a target so far, open connections included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetTraffic {
    /// `api.example.com:443`.
    pub target: String,
    pub connections: u64,
    pub sent: u64,
    pub received: u64,
}

/// Serves one process. Dropping the future of [`Self::serve`] ends all its connections.
#[derive(Clone)]
pub struct EgressProxy(Arc<ProxyShared>);

type RefusalObserver = Box<dyn Fn(&str, &str) + Send + Sync>;

struct ProxyShared {
    allowed: Vec<AllowedHost>,
    guard: EgressGuard,
    /// Told of every refused or failed request: its target, and why.
    refused: RefusalObserver,
    reached: Mutex<BTreeMap<String, Arc<TrafficCounters>>>,
    connections: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct TrafficCounters {
    connections: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// The head of a request, understood.
struct ProxyRequest {
    target: CheckedUrl,
    /// What the target gets first. `None` for `CONNECT`, where the process is told that it is connected.
    head: Option<Vec<u8>>,
}

const MAX_CONNECTIONS: usize = 64;
/// How many targets are counted one by one.
const MAX_TARGETS: usize = 1000;
const REST: &str = "other hosts";
const MAX_HEAD: usize = 32 * 1024;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Without a port of its own, a host is reached only here.
const HTTPS: u16 = 443;

// === impl AllowedHost ===

impl AllowedHost {
    /// The host and port of a URL that the owner chose, such as that of a model on their own machine.
    pub fn of_url(url: &str) -> Option<Self> {
        let checked = CheckedUrl::read(url.trim()).ok()?;
        let rule = match checked.host() {
            UrlHost::Name(name) => name.parse().ok()?,
            UrlHost::Address(address) => address.to_string().parse().ok()?,
        };
        Some(Self { rule, port: Some(checked.port()) })
    }

    /// The port, if it is on this machine.
    pub fn loopback_port(&self) -> Option<u16> {
        let is_here = match &self.rule {
            EgressRule::Network(network) => network.contains(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            EgressRule::Host(name) => name == "localhost",
            EgressRule::Below(_) => false,
        };
        self.port.filter(|_| is_here)
    }

    fn covers(&self, target: &CheckedUrl) -> bool {
        let is_named = match (&self.rule, target.host()) {
            (rule, UrlHost::Name(name)) => rule.names(name),
            (EgressRule::Network(network), UrlHost::Address(address)) => network.contains(*address),
            (EgressRule::Host(_) | EgressRule::Below(_), UrlHost::Address(_)) => false,
        };
        is_named && self.port.unwrap_or(HTTPS) == target.port()
    }
}

impl FromStr for AllowedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && text.parse::<IpAddr>().is_err() => {
                (host, Some(port.parse().map_err(|_| format!("`{port}` in `{text}` isn't a port"))?))
            }
            _ => (text, None),
        };
        Ok(Self { rule: host.parse().map_err(|error: super::InvalidEgressRule| error.to_string())?, port })
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

// === impl EgressProxy ===

impl EgressProxy {
    /// `refused` is called for every request that didn't get through, with its target and the reason.
    pub fn new(allowed: Vec<AllowedHost>, refused: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        // A host that the owner named with its port may be anywhere.
        let own = allowed.iter().filter(|host| host.port.is_some()).map(|host| host.rule.clone());
        let guard = EgressGuard::new(EgressPolicy { allow: own.collect() });
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let (refused, reached) = (Box::new(refused), Mutex::default());
        Self(Arc::new(ProxyShared { allowed, guard, refused, reached, connections }))
    }

    pub fn reached(&self) -> Vec<TargetTraffic> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let reached = self.0.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let traffic = |(target, counters): (&String, &Arc<TrafficCounters>)| TargetTraffic {
            target: target.clone(),
            connections: of(&counters.connections),
            sent: of(&counters.sent),
            received: of(&counters.received),
        };
        reached.iter().map(traffic).collect()
    }

    pub async fn serve(self, listener: TcpListener) {
        self.accept(listener, |shared, stream| async move { shared.handle(stream).await }).await;
    }

    /// Passes every connection on to this port of the machine, for programs that use no proxy for their own machine.
    pub async fn forward(self, listener: TcpListener, port: u16) {
        self.accept(listener, move |shared, stream| async move { shared.forward(stream, port).await }).await;
    }

    async fn accept<F>(self, listener: TcpListener, handle: impl Fn(Arc<ProxyShared>, TcpStream) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut open = JoinSet::new();
        loop {
            let permit = self.0.connections.clone().acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let handled = handle(self.0.clone(), stream);
                    open.spawn(async move {
                        handled.await;
                        drop(permit);
                    });
                }
                // Out of descriptors, for instance.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
            while open.try_join_next().is_some() {}
        }
    }
}

impl fmt::Debug for EgressProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressProxy").field("allowed", &self.0.allowed).finish_non_exhaustive()
    }
}

// === impl ProxyShared ===

impl ProxyShared {
    async fn handle(&self, mut inside: TcpStream) {
        let Ok(Some(head)) = timeout(HEAD_TIMEOUT, read_head(&mut inside)).await else { return };
        let request = match ProxyRequest::read(&head) {
            Ok(request) => request,
            Err(why) => return refuse(&mut inside, "400 Bad Request", why).await,
        };
        let target = request.target.authority();
        let mut outside = match self.connect(&request.target).await {
            Ok(outside) => outside,
            Err((status, why)) => {
                (self.refused)(&target, &why);
                return refuse(&mut inside, status, &why).await;
            }
        };
        let counters = self.counters(target);
        let begun = match &request.head {
            None => inside.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
            Some(head) => {
                counters.sent.fetch_add(head.len() as u64, Ordering::Relaxed);
                outside.write_all(head).await
            }
        };
        if begun.is_ok() {
            counters.copy(inside, outside).await;
        }
    }

    async fn forward(&self, inside: TcpStream, port: u16) {
        let target = format!("{}:{port}", Ipv4Addr::LOCALHOST);
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            Ok(outside) => self.counters(target).copy(inside, outside).await,
            Err(error) => (self.refused)(&target, &format!("{target} can't be reached: {error}")),
        }
    }

    /// The counters of a target, for one more connection to it.
    fn counters(&self, target: String) -> Arc<TrafficCounters> {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let target =
            if reached.len() < MAX_TARGETS || reached.contains_key(&target) { target } else { REST.to_owned() };
        let counters = reached.entry(target).or_default();
        counters.connections.fetch_add(1, Ordering::Relaxed);
        Arc::clone(counters)
    }

    async fn connect(&self, target: &CheckedUrl) -> Result<TcpStream, (&'static str, String)> {
        if !self.allowed.iter().any(|host| host.covers(target)) {
            let hosts: Vec<String> = self.allowed.iter().map(ToString::to_string).collect();
            let why = format!("{} is not allowed; this run can reach only {}", target.authority(), hosts.join(", "));
            return Err(("403 Forbidden", why));
        }
        let addresses = self.guard.resolve(target).await.map_err(|error| ("403 Forbidden", error.to_string()))?;
        let unreachable = |why: String| ("502 Bad Gateway", format!("{} can't be reached: {why}", target.authority()));
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(&*addresses)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Err(_) => Err(unreachable("no answer in time".to_owned())),
        }
    }
}

// === impl TrafficCounters ===

impl TrafficCounters {
    /// Copies in both directions until both have ended.
    async fn copy(&self, mut inside: TcpStream, mut outside: TcpStream) {
        let ((from_inside, to_inside), (from_outside, to_outside)) = (inside.split(), outside.split());
        // A connection that breaks has ended, too.
        let _ = tokio::join!(pump(from_inside, to_outside, &self.sent), pump(from_outside, to_inside, &self.received),);
    }
}

async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, count: &AtomicU64) -> io::Result<()> {
    let mut piece = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..length]).await?;
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Up to and including the empty line. `None` if it never comes.
async fn read_head(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    // Byte by byte from the kernel would be slow, and more than the head must not be taken; so it is looked at first.
    let mut seen = vec![0; MAX_HEAD];
    loop {
        let length = stream.peek(&mut seen).await.ok().filter(|length| *length > 0)?;
        let before = head.len();
        head.extend_from_slice(&seen[..length]);
        let end = head.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4);
        let taken = end.unwrap_or(head.len()) - before;
        stream.read_exact(&mut seen[..taken]).await.ok()?;
        match end {
            Some(end) => {
                head.truncate(end);
                return Some(head);
            }
            None if head.len() > MAX_HEAD => return None,
            None => {}
        }
    }
}

async fn refuse(stream: &mut TcpStream, status: &str, why: &str) {
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{why}\n",
        why.len() + 1
    );
    let _: io::Result<()> = stream.write_all(text.as_bytes()).await;
    let _: io::Result<()> = stream.shutdown().await;
}

// === impl ProxyRequest ===

impl ProxyRequest {
    fn read(head: &[u8]) -> Result<Self, &'static str> {
        const NOT_HTTP: &str = "this proxy speaks HTTP/1.1";
        let text = std::str::from_utf8(head).map_err(|_| NOT_HTTP)?;
        let (first, fields) = text.split_once("\r\n").ok_or(NOT_HTTP)?;
        let mut words = first.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(NOT_HTTP);
        };
        if method == "CONNECT" {
            let target = CheckedUrl::read(&format!("https://{target}/")).map_err(|_| "the host isn't valid")?;
            return Ok(Self { target, head: None });
        }
        let checked = CheckedUrl::read(target).map_err(|_| "this is a proxy: send a complete http:// URL")?;
        if !target.starts_with("http://") {
            return Err("use CONNECT for https");
        }
        let path = target["http://".len()..].find(['/', '?']).map_or("/", |at| &target["http://".len() + at..]);
        let slash = if path.starts_with('/') { "" } else { "/" };
        let is_about_proxy = |line: &&str| {
            let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
            name == "connection" || name == "host" || name.starts_with("proxy-")
        };
        let fields: String = fields
            .lines()
            .filter(|line| !line.is_empty() && !is_about_proxy(line))
            .map(|line| format!("{line}\r\n"))
            .collect();
        let host = checked.authority();
        let head = format!("{method} {slash}{path} {version}\r\nhost: {host}\r\nconnection: close\r\n{fields}\r\n");
        Ok(Self { target: checked, head: Some(head.into_bytes()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> AllowedHost {
        text.parse().unwrap()
    }

    #[test]
    fn a_host_is_reached_only_where_it_is_allowed() {
        let covers = |allowed: &str, url: &str| host(allowed).covers(&CheckedUrl::read(url).unwrap());
        assert!(covers("api.example.com", "https://api.example.com/v1"));
        assert!(!covers("api.example.com", "http://api.example.com/v1"), "not in the clear");
        assert!(!covers("api.example.com", "https://api.example.com:8443/"));
        assert!(!covers("api.example.com", "https://api.example.com.evil.org/"));
        assert!(covers("*.example.com", "https://eu.example.com/") && !covers("*.example.com", "https://example.com/"));
        assert!(covers("10.0.0.5:8080", "http://10.0.0.5:8080/") && !covers("10.0.0.5:8080", "http://10.0.0.6:8080/"));
        assert!(
            AllowedHost::of_url("http://localhost:11434/v1")
                .unwrap()
                .covers(&CheckedUrl::read("http://localhost:11434/v1/chat").unwrap())
        );
        assert_eq!(host("127.0.0.1:1").to_string(), "127.0.0.1:1");
        let ports = ["127.0.0.1:1", "localhost:2", "10.0.0.5:3", "localhost"].map(|text| host(text).loopback_port());
        assert_eq!(ports, [Some(1), Some(2), None, None]);
        assert!("a b".parse::<AllowedHost>().is_err() && "host:x".parse::<AllowedHost>().is_err());
    }

    #[test]
    fn a_request_in_the_clear_is_passed_on_as_its_own() {
        let head = b"POST http://10.0.0.5:8080/v1?q=1 HTTP/1.1\r\nHost: other\r\nProxy-Authorization: x\r\nConnection: keep-alive\r\nA: b\r\n\r\n";
        let request = ProxyRequest::read(head).unwrap();
        let passed = String::from_utf8(request.head.unwrap()).unwrap();
        assert_eq!(passed, "POST /v1?q=1 HTTP/1.1\r\nhost: 10.0.0.5:8080\r\nconnection: close\r\nA: b\r\n\r\n");
        for wrong in ["GET / HTTP/1.1\r\n\r\n", "GET\r\n\r\n", "CONNECT a@b:1 HTTP/1.1\r\n\r\n", "\u{0}\r\n\r\n"] {
            assert!(ProxyRequest::read(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    /// A server that answers every connection with `pong`, and a proxy in front of it.
    async fn proxied(
        allow: impl Fn(u16) -> String,
        ask: impl Fn(u16) -> String,
    ) -> (String, Vec<TargetTraffic>, Vec<String>) {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let answering = tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut ask = [0; 4];
            stream.read_exact(&mut ask).await.unwrap();
            stream.write_all(b"pong").await.unwrap();
        });
        let refused = Arc::new(Mutex::new(Vec::new()));
        let (kept, listener) = (refused.clone(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let proxy = EgressProxy::new(vec![host(&allow(port))], move |_, why| kept.lock().unwrap().push(why.to_owned()));
        let serving = tokio::spawn(proxy.clone().serve(listener));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(ask(port).as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        // Still open: what went over it counts already.
        let reached = proxy.reached();
        drop(client);
        serving.abort();
        answering.abort();
        let refused = refused.lock().unwrap().clone();
        (answer, reached, refused)
    }

    #[tokio::test]
    async fn an_allowed_host_is_reached_and_others_are_not() {
        let own = |port: u16| format!("127.0.0.1:{port}");
        let connect = |port: u16| format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nping");
        let (answer, reached, refused) = proxied(own, connect).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\npong"), "{answer}");
        assert_eq!((reached[0].connections, reached[0].sent, reached[0].received), (1, 4, 4));
        assert!(refused.is_empty(), "{refused:?}");
        let (answer, reached, refused) = proxied(|_| "api.example.com".to_owned(), connect).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("only api.example.com"), "{answer}");
        assert!(refused[0].contains("is not allowed") && reached.is_empty(), "{refused:?} {reached:?}");
        // A public name that leads to this machine.
        let (answer, ..) =
            proxied(|_| "localhost".to_owned(), |_| "CONNECT localhost:443 HTTP/1.1\r\n\r\n".to_owned()).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
}
