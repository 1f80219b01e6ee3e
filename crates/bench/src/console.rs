//! What a person with a browser waits for: the first page of a hub with a long history, a line of output, and an agent that
//! goes on after an approval.
//!
//! The browser is imitated: it asks for what one asks for, and paints nothing.

mod browser;

use std::{path::PathBuf, time::Duration};

use attache_client::{HubClient, HubClientOptions, HubCredential};
use attache_protocol::{
    Json, RunId,
    wire::{
        adapter::AdapterText,
        run::{CreateRunRequest, Run},
        session::LoginLinkRequest,
    },
};
use attache_store::Store as _;
use serde::Serialize;

use self::browser::{BrowserSession, LiveLog};
use super::{
    BenchResult, FiguresFormat,
    channels::device::{self, AgentObservation, BenchDevice},
    growth,
    load::quantile,
    machine::{BenchMachine, text},
    report::millis,
    server_process::ServerProcess,
    world::{BenchFolder, BenchWorld},
};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Number of runs stored before the first page is opened
    #[arg(long, default_value_t = 100_000)]
    runs: usize,
    /// Number of times that a page is opened
    #[arg(long, default_value_t = 40)]
    pages: usize,
    /// Number of lines of output
    #[arg(long, default_value_t = 200)]
    lines: usize,
    /// Number of approvals
    #[arg(long, default_value_t = 100)]
    approvals: usize,
    /// Folder for the test data
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Serialize)]
struct ConsoleFigures {
    stored: usize,
    pages: Vec<PageFigures>,
    /// From the print of a line until a page's stream has it.
    printed_to_browser: Latencies,
    /// From the tap until the agent's process has the answer.
    approved_to_agent: Latencies,
}

#[derive(Serialize)]
struct PageFigures {
    path: &'static str,
    bytes: usize,
    compressed_bytes: usize,
    /// Until its last byte, on a connection of its own.
    page: Latencies,
    /// The same with the style sheet, without which nothing is painted. `None` for others than the first page.
    page_and_style: Option<Latencies>,
}

/// In milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
struct Latencies {
    p50_ms: f64,
    p95_ms: f64,
    worst_ms: f64,
}

const PATHS: [&str; 3] = ["/runs", "/conversations", "/inbox"];
const PRINTER: &str = "printer";
/// The lines of one run. Nobody reads a longer log from its beginning.
const LINES_PER_RUN: usize = 50;

pub(super) async fn run(args: Args, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(args.dir.as_deref())?;
    let home = scratch.folder("hub", 0)?;
    eprintln!("storing {} runs …", args.runs);
    let world = BenchWorld::of_hub(&home.join("home/hub"), 1).await?;
    growth::fill(&world, args.runs).await?;
    world.store.close().await;
    let hub = ServerProcess::start("hub", &home).await?;
    let owner = HubClient::new(HubClientOptions::new(hub.url.as_str(), HubCredential::Key(hub.key.clone())))?;
    let link = owner.create_login_link(&LoginLinkRequest::default()).await?;
    let browser = BrowserSession::sign_in(&hub.url, &link.url).await?;

    let mut pages = Vec::new();
    for path in PATHS {
        pages.push(open(&browser, path, args.pages).await?);
    }
    eprintln!("opened the pages");
    let key = scratch.folder("key", 0)?.join("key");
    std::fs::write(&key, hub.key.expose())?;
    let mut printer = BenchMachine::new(scratch.folder("printer", 0)?);
    let folder = scratch.folder("printed", 0)?;
    printer.serve(&hub, &key, PRINTER, &["--workspace", text(&folder)?])?;
    let printed_to_browser = follow(&owner, &browser, args.lines).await?;
    eprintln!("followed the output");
    let mut device = BenchDevice::start(&hub, &owner, &scratch.folder("device", 0)?).await?;
    let approved_to_agent = approve(&owner, &browser, &mut device, args.approvals).await?;
    let figures = ConsoleFigures { stored: args.runs, pages, printed_to_browser, approved_to_agent };
    figures.print(shape);
    Ok(())
}

async fn open(browser: &BrowserSession, path: &'static str, times: usize) -> BenchResult<PageFigures> {
    let (mut page, mut with_style) = (Vec::new(), Vec::new());
    let (bytes, style) = browser.plain(path).await?;
    let mut compressed_bytes = 0;
    for _ in 0..times {
        let loaded = browser.load(path).await?;
        page.push(loaded.took);
        with_style.push(loaded.took + browser.load(&style).await?.took);
        compressed_bytes = loaded.bytes;
    }
    let page_and_style = (path == PATHS[0]).then(|| Latencies::of(with_style));
    Ok(PageFigures { path, bytes, compressed_bytes, page: Latencies::of(page), page_and_style })
}

/// Prints the time a few times a second, and compares it with the time at which the page's stream has it.
async fn follow(owner: &HubClient, browser: &BrowserSession, lines: usize) -> BenchResult<Latencies> {
    let mut delays = Vec::new();
    while delays.len() < lines {
        let count = LINES_PER_RUN.min(lines - delays.len());
        // It begins when the page is open.
        let script = format!("sleep 1; i=0; while [ $i -lt {count} ]; do date +%s%N; sleep 0.1; i=$((i+1)); done");
        let run = create(owner, PRINTER, &script).await?;
        let mut log = LiveLog::open(browser, &run.task_run_id.to_string()).await?;
        for _ in 0..count {
            delays.push(log.next_delay().await?);
        }
    }
    Ok(Latencies::of(delays))
}

async fn approve(
    owner: &HubClient,
    browser: &BrowserSession,
    device: &mut BenchDevice,
    times: usize,
) -> BenchResult<Latencies> {
    let mut delays = Vec::new();
    for _ in 0..times {
        let run = create(owner, device::AGENT, device::ASK).await?.task_run_id;
        let permission = asked(owner, run).await?;
        let tapped = browser.approve(&permission).await?;
        let answered = loop {
            match device.noticed.recv().await.ok_or("the device stopped")? {
                AgentObservation::Answered(answered, at) if answered == run => break at,
                AgentObservation::Answered(..) | AgentObservation::Arrived(..) => {}
            }
        };
        delays.push(answered.saturating_duration_since(tapped));
    }
    Ok(Latencies::of(delays))
}

async fn create(owner: &HubClient, agent: &str, text: &str) -> BenchResult<Run> {
    let input = Some(Json::of(&AdapterText { text: text.to_owned() }));
    let request = CreateRunRequest { agent_id: agent.to_owned(), input, ..CreateRunRequest::default() };
    Ok(owner.create_run(&request).await?)
}

/// The request that the run waits for.
async fn asked(owner: &HubClient, run: RunId) -> BenchResult<String> {
    for _ in 0..5_000 {
        if let Some(waits) = owner.run(run).await?.waits_for {
            return Ok(waits.id);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Err("the agent doesn't ask".into())
}

// === impl Latencies ===

impl Latencies {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let worst = all.last().copied().unwrap_or_default();
        Self { p50_ms: millis(quantile(&all, 50)), p95_ms: millis(quantile(&all, 95)), worst_ms: millis(worst) }
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p50_ms, p95_ms, worst_ms } = self;
        write!(f, "p50 {p50_ms:.1} ms, p95 {p95_ms:.1} ms, worst {worst_ms:.1} ms")
    }
}

// === impl ConsoleFigures ===

impl ConsoleFigures {
    #[allow(clippy::print_stdout, reason = "the report is the command's output")]
    fn print(&self, shape: FiguresFormat) {
        if shape == FiguresFormat::Json {
            return println!("{}", Json::of(self).get());
        }
        println!("{} runs stored; the browser paints nothing", self.stored);
        for PageFigures { path, bytes, compressed_bytes, page, page_and_style } in &self.pages {
            println!("{path}: {bytes} bytes, {compressed_bytes} compressed; {page}");
            if let Some(both) = page_and_style {
                println!("{path} and the style sheet, as for a first paint: {both}");
            }
        }
        println!("printed line -> stream of the page: {}", self.printed_to_browser);
        println!("tap on Allow once -> agent has the answer: {}", self.approved_to_agent);
    }
}
