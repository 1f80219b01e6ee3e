//! The inbox and channels in a real browser: live updates, decisions, and inert agent text.

use attache_hub::control::DecisionOrigin;
use attache_protocol::{
    Json,
    rules::permission::{DecisionScope, PermissionState},
    wire::permission::DecisionRequest,
};

use crate::{
    browser::ListeningConsole,
    webdriver::WebdriverBrowser,
    world::{ConsoleWorld, asking},
};

#[tokio::test(flavor = "multi_thread")]
async fn requests_arrive_and_are_decided_without_a_reload() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Upgrade the parser").await;
    device.claim().await;
    site.sign_in(&browser).await;

    // The count in the navigation updates on every page.
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    browser.run("window.mark = 'the same page'").await;
    let first = device.ask(run, asking("Run", r#"{"command":"cargo test"}"#)).await;
    browser.wait("document.getElementById('asked')?.textContent.startsWith('1')").await;
    browser.wait("document.getElementById('announce').textContent === 'Something needs your answer.'").await;
    browser.wait("document.title === '(1) Runs · Attaché'").await;
    assert_eq!(browser.run("return window.mark").await, "the same page");

    // Another request arrives above the first one while the user is typing.
    browser.go(&site.at("/inbox")).await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    browser.run("window.mark = 'the same page'").await;
    let (one, more) = (first.permission_request_id, format!("#{}-more", first.permission_request_id));
    browser.click(&format!("{more} > summary")).await;
    browser.write(&format!("{more} input[name=comment]"), "fine by me").await;
    let second = device.ask(run, asking("Run", r#"{"command":"git push --force"}"#)).await;
    let two = second.permission_request_id;
    browser.wait(&format!("document.querySelector('#slips > [data-slip]')?.id === '{two}'")).await;
    let kept = format!("return document.querySelector('{more} input[name=comment]').value");
    assert_eq!(browser.run(&kept).await, "fine by me");
    assert_eq!(browser.run("return window.mark").await, "the same page");
    assert_eq!(browser.run("return document.title").await, "(2) Inbox · Attaché");
    browser.wait("!document.getElementById('slips').classList.contains('settling')").await;
    let button = format!("#{one} button[value=allow_once]");
    browser.run(&format!("document.querySelector('{button}').scrollIntoView({{ block: 'center' }})")).await;
    browser.click(&button).await;
    browser.wait("document.querySelector('.note.said')?.textContent.includes('Allowed. The agent continues.')").await;
    let heard = device.answer(run, &first).await;
    assert_eq!((heard.state, heard.comment.as_deref()), (PermissionState::Approved, Some("fine by me")));

    // Someone else decides the other request: it moves to the history.
    browser.run("window.mark = 'the same page'").await;
    let no = DecisionRequest {
        approved: false,
        scope: DecisionScope::Once,
        tool_pattern: None,
        until: None,
        this_channel_only: false,
        comment: Some("not on main".to_owned()),
    };
    let place = DecisionOrigin { via: "rest", from: None };
    world.hub.decide(&world.owner, two, no.clone(), place).await.unwrap();
    browser.wait(&format!("document.getElementById('{two}') === null")).await;
    browser.wait("document.getElementById('history').textContent.includes('not on main')").await;
    browser.wait("!document.getElementById('slips-empty').hidden && document.getElementById('asked') === null").await;
    assert_eq!(browser.run("return window.mark").await, "the same page");

    // A card in use stays, shows who decided, and is disabled.
    let taken = device.ask(run, asking("Run", r#"{"command":"cargo bench"}"#)).await;
    let id = taken.permission_request_id;
    browser.wait(&format!("document.getElementById('{id}') !== null")).await;
    browser.wait("!document.getElementById('slips').classList.contains('settling')").await;
    browser.click(&format!("#{id}-more > summary")).await;
    browser.write(&format!("#{id}-more input[name=comment]"), "hm").await;
    let yes = DecisionRequest { approved: true, comment: None, ..no };
    let place = DecisionOrigin { via: "rest", from: None };
    world.hub.decide(&world.owner, id, yes, place).await.unwrap();
    browser
        .wait(&format!("document.querySelector('#{id}.gone .st')?.textContent.includes('Allowed once by owner')"))
        .await;
    let dead = format!("return document.querySelector('#{id} button[value=deny]').disabled");
    assert_eq!(browser.run(&dead).await, true);
    browser.go(&site.at("/inbox")).await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;

    // Keys apply only to the selected card.
    let third = device.ask(run, asking("Run", r#"{"command":"ls"}"#)).await;
    browser.wait("document.querySelectorAll('#slips > [data-slip]').length === 1").await;
    browser.wait("!document.getElementById('slips').classList.contains('settling')").await;
    browser.write("body", "d").await;
    assert_eq!(device.answer(run, &third).await.state, PermissionState::Pending);
    browser.write("body", "j").await;
    browser.wait("document.activeElement.matches('[data-slip]')").await;
    browser.write("[data-slip]", "d").await;
    browser.wait("document.querySelector('.note.said')?.textContent.includes('Denied')").await;
    assert_eq!(device.answer(run, &third).await.state, PermissionState::Denied);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_run_is_decided_and_answered_on_its_page() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Upgrade the parser").await;
    device.claim().await;
    site.sign_in(&browser).await;
    browser.go(&site.at(&format!("/runs/{run}"))).await;
    browser.wait("document.getElementById('status').textContent.startsWith('Running on workstation-2')").await;
    browser.run("window.mark = 'the same page'").await;

    let asked = device.ask(run, asking("Run", r#"{"command":"cargo publish"}"#)).await;
    browser.wait("document.querySelector('#run-wait [data-slip] .code')?.textContent === 'cargo publish'").await;
    browser.wait("document.getElementById('status').textContent.startsWith('Waiting for approval')").await;
    assert_eq!(browser.run("return window.mark").await, "the same page");
    let slot = world.hub.clone();
    let (principal, id) = (device.principal.clone(), asked.permission_request_id);
    let hears = tokio::spawn(async move {
        slot.permission_answer(&principal, run, id, std::time::Duration::from_secs(60)).await.unwrap()
    });
    browser.click("#run-wait button[value=allow_once]").await;
    assert_eq!(hears.await.unwrap().approved, Some(true), "the device that waits goes on");
    browser.wait("document.querySelector('#run-wait [data-slip]') === null").await;

    device.wonder(run, "Which branch?").await;
    browser.wait("document.querySelector('#run-wait textarea') !== null").await;
    browser.write("#run-wait textarea", "next").await;
    browser.click("#run-wait button[type=submit]").await;
    browser.wait("document.getElementById('log').textContent.includes('Answer: next')").await;
    browser.wait("document.querySelector('#run-wait textarea') === null").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_come_and_go_without_a_reload() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    site.sign_in(&browser).await;
    browser.go(&site.at("/channels")).await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    browser.run("window.mark = 'the same page'").await;
    let channel = device.open_channel(world).await.id;
    browser.wait(&format!("document.getElementById('{channel}')?.textContent.includes('Connected')")).await;
    assert_eq!(browser.run("return window.mark").await, "the same page");
    // Enter opens the channel.
    browser.write("body", "j\u{e007}").await;
    browser.wait(&format!("location.pathname === '/channels/{channel}'")).await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    browser.run("window.mark = 'the same page'").await;
    let context = attache_store::WriteContext::new(world.owner.tenant, "test", world.hub.now());
    world.store.close_channel(context, channel, "heartbeat_timeout").await.unwrap();
    browser.wait("document.getElementById('channel-head').textContent.includes('no messages for too long')").await;
    browser.wait("document.querySelectorAll('#events li').length === 2").await;
    assert_eq!(browser.run("return window.mark").await, "the same page");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_input_is_inert_in_a_real_browser() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Upgrade the parser").await;
    device.claim().await;
    site.sign_in(&browser).await;
    browser.go(&site.at("/inbox")).await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    let hostile = "</span></pre></article><form action=/logout method=post><button name=answer value=allow_once>Deny</button></form>\
                   <img src=x onerror=\"window.owned=1\"><script>window.owned=1</script>[link](javascript:window.owned=1) \
                   https://evil.example \u{1b}]8;;https://evil.example\u{7}click\u{1b}[8mhidden\u{1b}[0m \u{202e}txt.exe\u{2066}";
    let input = format!("{{\"command\":{0},\"note\":{0}}}", Json::of(hostile).get());
    let mut request = asking("Run", &input);
    request.reason = Some(hostile.to_owned());
    let asked = device.ask(run, request).await;
    let card = format!("#{}", asked.permission_request_id);
    browser.wait(&format!("document.querySelector('{card} .code') !== null")).await;
    let one = "return document.querySelectorAll('form:not(.languages)').length";
    let forms = browser.run(one).await;
    assert_eq!(forms, 1, "the form of the card and no other, except for the languages");
    assert_eq!(browser.run(&format!("return document.querySelectorAll('{card} img, {card} script').length")).await, 0);
    let links = format!(
        "return [...document.querySelectorAll('{card} a')].every((a) => a.getAttribute('href').startsWith('/'))"
    );
    assert_eq!(browser.run(&links).await, true);
    assert_eq!(browser.run("return window.owned ?? null").await, serde_json::Value::Null);
    let shown = browser.text(&format!("{card} .code")).await;
    assert!(shown.contains("ESC]8;;https://evil.exampleBELclickESC[8mhiddenESC[0m U+202Etxt.exeU+2066"), "{shown}");
    assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{2066}', '\u{7}']), "{shown}");
    browser.screenshot(&site.shots, "approval-hostile").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inbox_and_channels_fit_a_phone_in_light_and_dark() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    let (waits, asks, channel) = furnish(world).await;
    site.sign_in(&browser).await;
    let pages = [
        ("inbox", "/inbox".to_owned()),
        ("waiting", format!("/runs/{waits}")),
        ("asking", format!("/runs/{asks}")),
        ("waiting-runs", "/runs".to_owned()),
        ("channels", "/channels".to_owned()),
        ("channel", format!("/channels/{channel}")),
        ("channel-agent", "/agents/builder".to_owned()),
    ];
    for theme in ["light", "dark"] {
        browser.size(1280, 1400).await;
        browser.go(&site.at("/runs")).await;
        browser.run(&format!("document.querySelector('.theme [value={theme}]').click()")).await;
        for (name, path) in &pages {
            browser.size(1280, 1400).await;
            browser.go(&site.at(path)).await;
            browser.run("document.querySelector('.always')?.setAttribute('open', '')").await;
            browser.screenshot(&site.shots, &format!("{theme}-{name}")).await;
            browser.size(390, 1600).await;
            let overflow = "return document.documentElement.scrollWidth - innerWidth";
            assert_eq!(browser.run(overflow).await, 0, "{name} is wider than a phone");
            browser.screenshot(&site.shots, &format!("{theme}-{name}-phone")).await;
        }
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

/// Requests of every kind, grants, history, channels and waiting runs.
pub(crate) async fn furnish(
    world: &ConsoleWorld,
) -> (attache_protocol::RunId, attache_protocol::RunId, attache_protocol::ChannelId) {
    for name in ["builder", "scribe", "reviewer", "crawler"] {
        world.agent(name).await;
    }
    let builder = world.pair("builder", "workstation-2", "claude_cli").await;
    let scribe = world.pair("scribe", "ops laptop", "codex").await;
    let reviewer = world.pair("reviewer", "build server", "acp").await;
    let channel = builder.open_channel(world).await;
    scribe.open_channel(world).await;
    let decide = async |id, approved, scope, tool_pattern: Option<&str>, comment: Option<&str>| {
        let decision = DecisionRequest {
            approved,
            scope,
            tool_pattern: tool_pattern.map(str::to_owned),
            until: None,
            this_channel_only: false,
            comment: comment.map(str::to_owned),
        };
        let place = DecisionOrigin { via: "rest", from: Some("192.0.2.9".to_owned()) };
        world.hub.decide(&world.owner, id, decision, place).await.unwrap();
    };
    let first = world.ask("builder", "Upgrade the parser to winnow 0.7").await;
    builder.claim().await;
    let low = |tool: &str, input: &str| {
        let mut request = asking(tool, input);
        request.risk = Some("low".to_owned());
        request
    };
    let one = builder.ask(first, low("Run", r#"{"command":"cargo fuzz run lexer"}"#)).await;
    decide(one.permission_request_id, true, DecisionScope::Once, None, None).await;
    let two = builder.ask(first, low("Run", r#"{"command":"rm -r docs/old"}"#)).await;
    decide(two.permission_request_id, false, DecisionScope::Once, None, Some("Move it instead.")).await;
    let three = builder.ask(first, low("Fetch", r#"{"url":"https://docs.rs/winnow"}"#)).await;
    decide(three.permission_request_id, true, DecisionScope::Agent, Some("Fetch"), None).await;
    builder.ask(first, low("Fetch", r#"{"url":"https://docs.rs/nom"}"#)).await;

    let review = world.ask("reviewer", "Review parser/ for unsafe slicing").await;
    reviewer.claim().await;
    reviewer.wonder(review, "The fuzz corpus has two branches.\nShall I review `main` or `winnow`?").await;
    let write = world.ask("scribe", "Prepare the staging upgrade").await;
    scribe.claim().await;
    let edit = r#"{"file_path":"deploy/compose.yaml","old_string":"services:\n  store:\n    image: postgres:15.8\n    volumes: [pgdata]","new_string":"services:\n  store:\n    image: postgres:16.4\n    stop_grace_period: 60s\n    volumes: [pgdata]"}"#;
    let mut request = asking("Edit", edit);
    request.risk = Some("medium".to_owned());
    request.reason = Some("a major version of a database".to_owned());
    scribe.ask(write, request).await;
    let mut request =
        asking("Run", r#"{"command":"git push --force-with-lease origin release/0.9","timeout_ms":60000}"#);
    request.request_id = Some("m1".to_owned());
    request.reason = Some("leaves the sandbox, rewrites history".to_owned());
    world.hub.request_permission(&builder.principal, first, request, Some(channel.id)).await.unwrap();
    (first, review, channel.id)
}
