//! A browser's requests: signs in with a link, opens pages, sends a form and follows a run's log.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use attache_protocol::env::Env;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use super::BenchResult;

pub(super) struct BrowserSession {
    address: SocketAddr,
    cookie: String,
    csrf: String,
}

/// A page or an asset that was loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageLoad {
    /// From the start of the connection to the last byte.
    pub(super) took: Duration,
    /// Of the body, as it came.
    pub(super) bytes: usize,
}

/// The live log of a run's page.
pub(super) struct LiveLog {
    lines: BufReader<TcpStream>,
    /// Times of lines that are older than the newest event.
    ready: Vec<Duration>,
}

struct RawAnswer {
    head: String,
    body: Vec<u8>,
}

/// Nanoseconds since 1970, as `date +%s%N` prints them.
const STAMP_DIGITS: usize = 19;

// === impl BrowserSession ===

impl BrowserSession {
    pub(super) async fn sign_in(url: &str, link: &str) -> BenchResult<Self> {
        let address = url.trim_start_matches("http://").parse()?;
        let mut browser = Self { address, cookie: String::new(), csrf: String::new() };
        let token = link.split_once("token=").ok_or("a login link without a token")?.1;
        let form = "content-type: application/x-www-form-urlencoded\r\n";
        let answer = browser.send("POST", "/login", form, &format!("token={token}")).await?;
        let cookie = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        cookie.and_then(|cookie| cookie.split(';').next()).ok_or("no session")?.clone_into(&mut browser.cookie);
        let settings = browser.send("GET", "/settings", "", "").await?;
        let page = String::from_utf8(settings.body)?;
        between(&page, "name=\"csrf\" value=\"", "\"")?.clone_into(&mut browser.csrf);
        Ok(browser)
    }

    /// Loads it as browsers do: compressed if the console can.
    pub(super) async fn load(&self, path: &str) -> BenchResult<PageLoad> {
        let begun = Instant::now();
        let answer = self.send("GET", path, "accept-encoding: gzip\r\n", "").await?;
        Ok(PageLoad { took: begun.elapsed(), bytes: answer.body.len() })
    }

    /// The page as it is without compression, and the path of its style sheet.
    pub(super) async fn plain(&self, path: &str) -> BenchResult<(usize, String)> {
        let page = String::from_utf8(self.send("GET", path, "", "").await?.body)?;
        let style = format!("/assets/{}/style.css", between(&page, "/assets/", "/")?);
        Ok((page.len(), style))
    }

    /// Taps "Allow once" on the page of the request. Returns when.
    pub(super) async fn approve(&self, permission: &str) -> BenchResult<Instant> {
        let path = format!("/approvals/{permission}");
        self.send("GET", &path, "accept-encoding: gzip\r\n", "").await?;
        let form = "content-type: application/x-www-form-urlencoded\r\n";
        let tapped = Instant::now();
        self.send("POST", &path, form, &format!("csrf={}&back=inbox&answer=allow_once", self.csrf)).await?;
        Ok(tapped)
    }

    async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> BenchResult<RawAnswer> {
        let mut stream = self.start(method, path, &format!("connection: close\r\n{headers}"), body).await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or("no answer")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        if !["HTTP/1.1 200", "HTTP/1.1 303"].iter().any(|status| head.starts_with(status)) {
            return Err(format!("{method} {path}: {}", String::from_utf8_lossy(&bytes)).into());
        }
        Ok(RawAnswer { head, body: bytes.split_off(end + 4) })
    }

    async fn start(&self, method: &str, path: &str, headers: &str, body: &str) -> BenchResult<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            self.address,
            self.cookie,
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        Ok(stream)
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> BenchResult<&'a str> {
    let rest = text.split_once(before).ok_or_else(|| format!("`{before}` is not on the page"))?.1;
    Ok(rest.split_once(after).ok_or("the page ends early")?.0)
}

// === impl LiveLog ===

impl LiveLog {
    pub(super) async fn open(browser: &BrowserSession, run: &str) -> BenchResult<Self> {
        let stream =
            browser.start("GET", &format!("/runs/{run}/live?after=0"), "accept: text/event-stream\r\n", "").await?;
        Ok(Self { lines: BufReader::new(stream), ready: Vec::new() })
    }

    /// How old the next line is that the stream has.
    pub(super) async fn next_delay(&mut self) -> BenchResult<Duration> {
        loop {
            if let Some(delay) = self.ready.pop() {
                return Ok(delay);
            }
            let mut line = String::new();
            if self.lines.read_line(&mut line).await? == 0 {
                return Err("the live log ended early".into());
            }
            let now = Env::system().wall();
            if line.starts_with("data:") {
                let stamps = line.split(|character: char| !character.is_ascii_digit());
                let stamps =
                    stamps.filter(|digits| digits.len() == STAMP_DIGITS).filter_map(|digits| digits.parse().ok());
                self.ready.extend(stamps.map(|stamp: u64| {
                    let now = u64::try_from(now.millis()).unwrap_or_default() * 1_000_000;
                    Duration::from_nanos(now.saturating_sub(stamp))
                }));
            }
        }
    }
}
