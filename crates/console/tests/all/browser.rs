//! The console in a real browser: scripts, styles and content security policy together.

use std::path::PathBuf;

use attache_protocol::{
    Json,
    wire::run::{CancelRequest, ProgressRequest},
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::{
    webdriver::WebdriverBrowser,
    world::{ConsoleWorld, between},
};

/// A test world that listens on a port.
pub(crate) struct ListeningConsole {
    pub(crate) world: ConsoleWorld,
    origin: String,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
    pub(crate) shots: PathBuf,
}

// === impl ListeningConsole ===

impl ListeningConsole {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(tune: impl FnOnce(&mut attache_hub::Options)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let world = ConsoleWorld::with(address, tune).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = attache_hub::serve(listener, world.router.clone(), world.hub.clone(), async {
            let _ = stopped.await;
        });
        let server = tokio::spawn(serving);
        let shots = std::env::temp_dir().join("attache-console-screenshots");
        std::fs::create_dir_all(&shots).unwrap();
        Self { world, origin: format!("http://{address}"), stop: Some(stop), server: Some(server), shots }
    }

    pub(crate) async fn sign_in(&self, browser: &WebdriverBrowser) {
        browser.go(&format!("{}/login?token={}", self.origin, self.world.login_token().await)).await;
        browser.wait("location.pathname === '/runs'").await;
    }

    /// The origin under which browsers have passkeys.
    pub(crate) fn local(&self) -> String {
        self.origin.replace("127.0.0.1", "localhost")
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    pub(crate) async fn close(mut self) {
        drop(self.stop.take());
        self.server.take().unwrap().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_pairs_a_device_runs_a_task_and_watches_it_live() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    site.sign_in(&browser).await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    assert!(browser.text("#empty").await.contains("No runs yet"));

    // A new agent, and its pairing dialog.
    browser.go(&site.at("/agents")).await;
    browser.write("#new input[name=name]", "builder").await;
    browser.click("#new button[type=submit]").await;
    browser.wait("location.pathname.startsWith('/agents/agt_')").await;
    browser.click("#agent-head form button").await;
    browser.wait("/\\d:\\d\\d more/.test(document.querySelector('[data-until]')?.textContent)").await;
    browser.screenshot(&site.shots, "pair-dialog").await;
    let command = browser.text("#pair-command").await;
    let code = between(&command, "pair ", " ").to_owned();
    assert_eq!(command, format!("attache runtime pair {code} --api-base {}", site.origin));

    // The dialog advances when the device connects, and offers a first run.
    let device = world.join(&code, "workstation-2", "claude_cli").await;
    browser.wait("document.getElementById('paired') !== null").await;
    assert!(browser.text("#pair").await.contains("workstation-2 is connected as builder. Claude Code CLI."));
    browser.screenshot(&site.shots, "pair-joined").await;
    browser.click("#paired button[type=submit]").await;
    browser.wait("location.pathname.startsWith('/runs/run_')").await;

    // The log is live: no reload, chunks are joined, and the state around it updates.
    let run = device.claim().await;
    browser.run("window.mark = 'the same page'").await;
    browser.wait("document.getElementById('status').textContent.startsWith('Running on workstation-2')").await;
    device.say(run, "hello \u{1b}[32mfrom").await;
    browser.wait("document.querySelector('#log [data-kind=chunk] .line')?.textContent === 'hello from'").await;
    device.say(run, "\u{1b}[0m the device\n").await;
    device.say(run, "hello again, <b>no markup</b>").await;
    let text = "hello from the device\nhello again, <b>no markup</b>";
    browser.wait(&format!("document.querySelector('#log [data-kind=chunk] .line').textContent === {text:?}")).await;
    let call = Json::from_text(r#"{"tool_name":"Run","command":"cargo test -p parser","exit":0}"#).unwrap();
    let more = ProgressRequest {
        message: Some("testing".to_owned()),
        percent: Some(40.0),
        thought: Some(Json::of("The combinators map one to one. hello!")),
        log: Some(Json::from_text(r#"{"level":"warn","message":"slow disk"}"#).unwrap()),
        tool_call: Some(call),
        ..ProgressRequest::default()
    };
    device.report(run, more).await;
    browser.wait("document.querySelectorAll('#log > li').length === 7").await;
    // A call is one row, from its start to its end.
    for call in [
        r#"{"id":"c1","name":"Bash","status":"started","input":{"command":"git status --short"}}"#,
        r#"{"id":"c1","name":"Bash","status":"completed","output":" M src/lexer.rs\n"}"#,
    ] {
        let report = ProgressRequest { tool_call: Some(Json::from_text(call).unwrap()), ..ProgressRequest::default() };
        device.report(run, report).await;
        browser.wait("document.querySelector('[data-call=c1] code').textContent === 'git status --short'").await;
    }
    browser.wait("document.querySelector('[data-call=c1] .callout pre')?.textContent.includes('lexer.rs')").await;
    browser.wait("document.querySelectorAll('#log > li').length === 8").await;

    // The search counts every match.
    browser.write("#find input", "HELLO").await;
    browser.wait("document.querySelector('#find output').textContent === '1 of 3'").await;
    browser.write("#find input", "\u{e007}").await;
    browser.wait("document.querySelector('#find output').textContent === '2 of 3'").await;
    browser.screenshot(&site.shots, "run-live").await;

    // Cancel with a reason, from the page.
    browser.click("#cancel > summary").await;
    browser.write("#cancel input[name=reason]", "not needed").await;
    browser.screenshot(&site.shots, "run-cancel").await;
    browser.click("#cancel button").await;
    browser.wait("document.querySelector('.stopped')?.textContent.includes('not needed')").await;
    assert!(browser.text("#log").await.contains("Cancelled: not needed"));
    assert_eq!(
        world.hub.run(&world.owner, run).await.unwrap().task_result.unwrap().text_member("error").unwrap(),
        "not needed"
    );

    // Someone else cancels another run: this page updates without a reload.
    let other = world.ask("builder", "Prepare the staging upgrade").await;
    browser.go(&site.at(&format!("/runs/{other}"))).await;
    browser.run("window.mark = 'the same page'").await;
    let reason = CancelRequest { reason: Some("superseded".to_owned()) };
    world.hub.cancel_run(&world.owner, other, reason).await.unwrap();
    browser.wait("document.querySelector('.stopped')?.textContent.includes('superseded')").await;
    browser.wait("document.querySelector('#follow [role=status]').textContent === 'End of log'").await;
    assert_eq!(browser.run("return window.mark").await, "the same page");

    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_list_updates_without_jumping() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let first = world.ask("builder", "Collect release notes of 40 dependencies").await;
    site.sign_in(&browser).await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    browser.run("window.mark = 'the same page'").await;

    device.claim().await;
    browser.wait(&format!("document.getElementById('{first}').classList.contains('r-running')")).await;
    device.complete(first, "done").await;
    browser.wait(&format!("document.getElementById('{first}').textContent.includes('Done')")).await;
    // A new run is announced, not inserted.
    world.ask("builder", "Bisect the flaky lease test").await;
    browser.wait("document.querySelector('#fresh:not([hidden])')?.textContent.includes('1 new run')").await;
    assert_eq!(browser.run("return document.querySelectorAll('#rows tr').length").await, 1);
    assert_eq!(browser.run("return window.mark").await, "the same page");
    browser.click("#fresh a").await;
    browser.wait("document.querySelectorAll('#rows tr').length === 2").await;

    // The keyboard moves and opens.
    browser.run("document.activeElement.blur()").await;
    browser.write("body", "jjk").await;
    browser.wait("document.querySelector('#rows tr')?.hasAttribute('aria-current')").await;
    browser.write("body", "\u{e007}").await;
    browser.wait("location.pathname.startsWith('/runs/run_')").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_fits_a_phone_in_light_and_dark_without_errors() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    let (run, failed) = furnish(world).await;
    browser.go(&site.at("/login")).await;
    browser.screenshot(&site.shots, "login").await;
    site.sign_in(&browser).await;

    let pages = [
        ("runs", "/runs".to_owned()),
        ("run", format!("/runs/{run}")),
        ("failed", format!("/runs/{failed}")),
        ("new", "/runs/new".to_owned()),
        ("agents", "/agents".to_owned()),
        ("agent", "/agents/builder".to_owned()),
        ("pair", "/pair".to_owned()),
        ("audit", "/audit".to_owned()),
        ("settings", "/settings".to_owned()),
        ("missing", "/runs/run_none".to_owned()),
    ];
    for (theme, scheme) in [("light", "light"), ("dark", "dark")] {
        browser.size(1280, 900).await;
        browser.go(&site.at("/runs")).await;
        browser.run(&format!("document.querySelector('.theme [value={theme}]').click()")).await;
        for (name, path) in &pages {
            browser.size(1280, 900).await;
            browser.go(&site.at(path)).await;
            let shown = browser.run("return getComputedStyle(document.documentElement).colorScheme").await;
            assert_eq!(shown, scheme, "{name}");
            browser.screenshot(&site.shots, &format!("{theme}-{name}")).await;
            browser.size(390, 844).await;
            let overflow = "return document.documentElement.scrollWidth - innerWidth";
            assert_eq!(browser.run(overflow).await, 0, "{name} is wider than a phone");
            browser.screenshot(&site.shots, &format!("{theme}-{name}-phone")).await;
        }
    }
    let complaints = browser.complaints().await;
    let unexpected: Vec<_> = complaints.iter().filter(|text| !text.contains("404")).collect();
    assert_eq!(unexpected, Vec::<&String>::new());
    println!("screenshots are in {}", site.shots.display());
    drop(browser);
    site.close().await;
}

/// Agents, devices and runs in every state, so that a page has something to show.
async fn furnish(world: &ConsoleWorld) -> (attache_protocol::RunId, attache_protocol::RunId) {
    for name in ["builder", "scribe", "crawler", "shell", "planner"] {
        world.agent(name).await;
    }
    let builder = world.pair("builder", "workstation-2", "claude_cli").await;
    let scribe = world.pair("scribe", "ops laptop", "codex").await;
    let crawler = world.pair("crawler", "cloud-1", "hermes").await;
    for (text, result) in [
        ("Port the tunnel tests to the fake clock", "All 214 tests pass."),
        ("Summarise yesterday’s failed runs", "Three runs failed, two of them for want of disk."),
    ] {
        let run = world.ask("scribe", text).await;
        scribe.claim().await;
        scribe.complete(run, result).await;
    }
    let failed = world.ask("crawler", "Mirror the docs to the archive bucket").await;
    crawler.claim().await;
    crawler.say(failed, "GET https://docs.example/…\n").await;
    crawler.fail(failed, "the bucket refused the upload: 403", "task_failed").await;
    let cancelled = world.ask("scribe", "Draft the change log for 0.9 from the merged branches").await;
    let reason = CancelRequest { reason: Some("the branch has moved".to_owned()) };
    world.hub.cancel_run(&world.owner, cancelled, reason).await.unwrap();
    world.ask("shell", "Rotate the staging certificates").await;
    let run = world.ask("builder", "Upgrade the parser to winnow 0.7, keep the fuzz corpus green\n\nMove `parser` from nom 7 to winnow 0.7. Keep every case in fuzz/corpus passing.").await;
    builder.claim().await;
    world.ask("builder", "Bisect the flaky lease test").await;
    let thought = "The combinators map one to one except many0. I start with the lexer, it has no dependants.";
    let call = r#"{"tool_name":"Run","command":"cargo test -p parser","output":"running 214 tests\ntest lexer::nested_comment ... FAILED"}"#;
    let reports = [
        ProgressRequest { thought: Some(Json::of(thought)), ..ProgressRequest::default() },
        ProgressRequest { tool_call: Some(Json::from_text(call).unwrap()), ..ProgressRequest::default() },
        ProgressRequest {
            chunk: Some(Json::of(
                "One failure: a nested comment now cuts instead of backtracking.\nwinnow wants backtrack_err there. Fixing and running the fuzz corpus again.\n",
            )),
            ..ProgressRequest::default()
        },
        ProgressRequest {
            log: Some(
                Json::from_text(r#"{"level":"warn","message":"model retry 2 of 5 (overloaded), next try in 18 s"}"#)
                    .unwrap(),
            ),
            ..ProgressRequest::default()
        },
        ProgressRequest { message: Some("fuzzing".to_owned()), percent: Some(62.0), ..ProgressRequest::default() },
    ];
    for report in reports {
        builder.report(run, report).await;
    }
    (run, failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_attaches_a_file_to_a_task() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    site.world.agent("builder").await;
    site.sign_in(&browser).await;
    let folder = tempfile::tempdir().unwrap();
    let (small, large) = (folder.path().join("note.txt"), folder.path().join("large.bin"));
    std::fs::write(&small, "hello\n").unwrap();
    std::fs::write(&large, vec![7; 2_000_000]).unwrap();
    browser.go(&site.at("/runs/new")).await;
    browser.write("textarea[name=text]", "Look at these").await;
    browser.write("input[type=file]", &format!("{}\n{}", small.display(), large.display())).await;
    browser.screenshot(&site.shots, "new-with-files").await;
    browser.click(".form button[type=submit]").await;
    browser.wait("location.pathname.startsWith('/runs/run_')").await;
    let run = browser.run("return location.pathname").await.as_str().unwrap().replace("/runs/", "");
    let run = site.world.hub.run(&site.world.owner, run.parse().unwrap()).await.unwrap();
    let input: serde_json::Value = run.input.parse().unwrap();
    let parts = input["message"]["parts"].as_array().unwrap();
    assert_eq!(parts[1]["raw"], "aGVsbG8K");
    assert_eq!([&parts[1]["filename"], &parts[2]["filename"]], ["note.txt", "large.bin"]);
    let artifact = parts[2]["url"].as_str().unwrap().strip_prefix("artifact:").unwrap().parse().unwrap();
    assert_eq!(site.world.hub.artifact(&site.world.owner, artifact).await.unwrap().size, 2_000_000);
    drop(browser);
    site.close().await;
}
