//! Every page in a real browser: names for screen readers, room for thumbs, no sideways scrolling, and where the
//! keyboard leads.

use attache_protocol::{
    DelegationId,
    rules::delegation::DelegationStatus,
    wire::run::{CreateRunRequest, ProgressRequest},
};

use crate::{
    browser::ListeningConsole, browser_approvals::furnish, delegations::projection, webdriver::WebdriverBrowser,
};

/// Returns what is wrong with the page.
const AUDIT: &str = r#"
const problems = [];
const shown = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
const told = (element) => [
  element.getAttribute("aria-label"), element.labels?.[0]?.textContent, element.textContent, element.value,
  document.getElementById(element.getAttribute("aria-labelledby"))?.textContent,
].some((text) => text?.trim());
const what = (element) => element.outerHTML.replace(/\s+/g, " ").slice(0, 140);
for (const element of document.querySelectorAll("a[href], button, summary, input:not([type=hidden]), select, textarea, [role=img]")) {
  if (shown(element) && !told(element)) problems.push(`no name: ${what(element)}`);
}
if (document.querySelectorAll("h1").length !== 1) problems.push(`${document.querySelectorAll("h1").length} first headings`);
const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) problems.push(`id twice: ${id}`);
for (const element of document.querySelectorAll("main *")) {
  const scrolls = /auto|scroll/.test(getComputedStyle(element).overflowX) && element.scrollWidth > element.clientWidth + 1;
  if (scrolls && shown(element) && element.tabIndex < 0 && !element.querySelector("a, button, input, textarea, select, [tabindex='0']")) problems.push(`scrolls without the keyboard: ${what(element)}`);
}
if (document.documentElement.scrollWidth > innerWidth) problems.push(`wider than ${innerWidth} px`);
if (innerWidth < 700) {
  for (const element of document.querySelectorAll(".btn, .chip, .nav a, .tabs a, .menu a, .pick, .toggles label, select, textarea, input.text, details > summary")) {
    const { height } = element.getBoundingClientRect();
    if (shown(element) && height > 0 && height < 39.5) problems.push(`${height} px high: ${what(element)}`);
  }
}
return problems;
"#;

#[tokio::test(flavor = "multi_thread")]
async fn every_page_has_names_and_room_for_thumbs() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    let (waits, asks, channel) = furnish(world).await;
    let lent = projection(world, DelegationStatus::Running);
    let id = DelegationId::from_uuid(world.hub.env().uuid());
    world.hub.publish_delegation(&world.owner, id, lent).await.unwrap();
    let again = CreateRunRequest { conversation_id: Some(asks.own_conversation()), ..CreateRunRequest::default() };
    world.ask_with(&world.owner, "reviewer", "Look at the lexer, too", again).await;
    site.sign_in(&browser).await;
    let pages = [
        ("inbox", "/inbox".to_owned()),
        ("runs", "/runs".to_owned()),
        ("runs-found", "/runs?q=parser&since=7d&agent=builder".to_owned()),
        ("run-waiting", format!("/runs/{waits}")),
        ("new-run", format!("/runs/new?from={asks}")),
        ("conversations", "/conversations".to_owned()),
        ("conversation", format!("/conversations/{}", asks.own_conversation())),
        ("conversation-approval", format!("/conversations/{}", waits.own_conversation())),
        ("agents", "/agents".to_owned()),
        ("agent", "/agents/builder".to_owned()),
        ("delegations", "/delegations".to_owned()),
        ("delegation", format!("/delegations/{id}")),
        ("channels", "/channels".to_owned()),
        ("channel", format!("/channels/{channel}")),
        ("usage", "/usage".to_owned()),
        ("audit", "/audit".to_owned()),
        ("settings", "/settings".to_owned()),
        ("people", "/people".to_owned()),
        ("sessions", "/sessions".to_owned()),
        ("rules", "/rules".to_owned()),
        ("deliveries", "/deliveries".to_owned()),
        ("pair", "/pair".to_owned()),
        ("more", "/more".to_owned()),
    ];
    let mut problems = Vec::new();
    for theme in ["light", "dark"] {
        browser.size(1280, 900).await;
        browser.go(&site.at("/runs")).await;
        browser.run(&format!("document.querySelector('.theme [value={theme}]').click()")).await;
        for (name, path) in &pages {
            browser.size(1280, 900).await;
            browser.go(&site.at(path)).await;
            browser.screenshot(&site.shots, &format!("{theme}-{name}")).await;
            for (width, height) in [(1280, 900), (390, 844), (320, 700)] {
                browser.size(width, height).await;
                let found = browser.run(AUDIT).await;
                let found = found.as_array().unwrap().iter().map(|one| format!("{name} at {width}: {one}"));
                problems.extend(found);
                if width == 390 {
                    browser.screenshot(&site.shots, &format!("{theme}-{name}-phone")).await;
                }
            }
        }
    }
    assert_eq!(problems, Vec::<String>::new(), "{}", problems.join("\n"));
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_moves_the_focus_and_can_be_left_alone() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    site.world.agent("builder").await;
    let run = site.world.ask("builder", "Upgrade the parser").await;
    site.sign_in(&browser).await;
    browser.write("body", "j").await;
    browser.wait("document.activeElement.matches('tr[aria-current] a.t')").await;
    // Escape closes what dropped down, and leads back to its button.
    browser.go(&site.at(&format!("/runs/{run}"))).await;
    browser.click("#cancel > summary").await;
    browser.write("#cancel input[name=reason]", "\u{e00c}").await;
    browser
        .wait("!document.querySelector('#cancel').open && document.activeElement.matches('#cancel > summary')")
        .await;

    // The installed console starts where something may wait.
    let manifest = "return fetch(document.querySelector('link[rel=manifest]').href).then((answer) => answer.json()).then((read) => read.start_url)";
    assert_eq!(browser.run(manifest).await, "/inbox");

    // Without single keys, a letter does nothing.
    browser.go(&site.at("/settings")).await;
    browser.run("document.querySelector('select[name=shortcuts]').value = 'off'").await;
    browser.click("form[action='/settings/theme'] button").await;
    browser.wait("document.body.dataset.shortcuts === 'off'").await;
    browser.go(&site.at("/runs")).await;
    browser.write("body", "j").await;
    browser.write("body", "n").await;
    assert_eq!(browser.run("return document.querySelector('tr[aria-current]')").await, serde_json::Value::Null);
    assert_eq!(browser.run("return location.pathname").await, "/runs");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

/// A link to an event leads to the item that shows it, wherever in the log that is.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_to_a_line_lands_on_it() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Count").await;
    device.claim().await;
    for number in 0..400 {
        let message = Some(format!("step {number}"));
        let report = ProgressRequest { message, ..ProgressRequest::default() };
        device.report(run, report).await;
    }
    device.complete(run, "done").await;
    site.sign_in(&browser).await;
    let landed = |seq: u32| {
        format!(
            "(() => {{ const item = document.getElementById('s{seq}'); const box = item?.getBoundingClientRect(); \
             return item?.classList.contains('linked') && box.top > 40 && box.bottom < innerHeight; }})()"
        )
    };
    for seq in [300, 12] {
        browser.go(&site.at("/runs")).await;
        browser.go(&site.at(&format!("/runs/{run}#s{seq}"))).await;
        browser.wait(&landed(seq)).await;
    }
    browser.run("location.hash = '#s200'").await;
    browser.wait(&landed(200)).await;
    drop(browser);
    site.close().await;
}
