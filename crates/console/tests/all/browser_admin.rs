//! Usage and the rules editor in a real browser: light and dark, desktop and phone, without console errors.

use attache_protocol::wire::{key::Role, run::CreateRunRequest, usage::SetQuotaRequest};

use crate::{browser::ListeningConsole, webdriver::WebdriverBrowser};

#[tokio::test(flavor = "multi_thread")]
async fn usage_rules_people_and_deliveries_fit_every_screen() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    let mut people = Vec::new();
    for name in ["alice", "bob"] {
        people.push(world.person(name, Role::Operator).await);
    }
    for (place, agent) in ["builder", "scribe", "crawler", "planner"].into_iter().enumerate() {
        world.agent(agent).await;
        let device = world.pair(agent, "workstation-2", "claude_cli").await;
        for round in 0..=place {
            let by = people[round % 2].1.principal(world).await;
            let run = world.ask_with(&by, agent, "work", CreateRunRequest::default()).await;
            device.claim().await;
            let usage = format!(r#"{{"tokens":{},"cost_usd":0.{}}}"#, 12_345 * (round + 1), 17 + place);
            device.complete_for(run, "done", Some(&usage)).await;
        }
    }
    for (user, calls) in [(None, 40), (Some("alice"), 7), (Some("bob"), 4)] {
        let request =
            SetQuotaRequest { user: user.map(str::to_owned), calls: Some(calls), ..SetQuotaRequest::default() };
        world.hub.set_quota(&world.owner, request).await.unwrap();
    }
    site.sign_in(&browser).await;

    let person = format!("/people/{}", people[0].0.user_id);
    let pages = [
        ("usage", "/usage?show=cost&days=7"),
        ("usage-90", "/usage?show=tokens&days=90&by=user"),
        ("rules", "/rules"),
        ("people", "/people"),
        ("person", &person),
        ("deliveries", "/deliveries"),
        ("general", "/settings"),
    ];
    for theme in ["light", "dark"] {
        browser.size(1280, 900).await;
        browser.go(&site.at("/runs")).await;
        browser.run(&format!("document.querySelector('.theme [value={theme}]').click()")).await;
        for (name, path) in pages {
            browser.size(1280, 900).await;
            browser.go(&site.at(path)).await;
            let shown = browser.run("return getComputedStyle(document.documentElement).colorScheme").await;
            assert_eq!(shown, theme, "{name}");
            browser.screenshot(&site.shots, &format!("{theme}-{name}")).await;
            browser.size(390, 844).await;
            let overflow = "return document.documentElement.scrollWidth - innerWidth";
            assert_eq!(browser.run(overflow).await, 0, "{name} is wider than a phone");
            browser.screenshot(&site.shots, &format!("{theme}-{name}-phone")).await;
        }
    }

    // The bars have the colours of the legend, and the colours differ.
    browser.size(1280, 900).await;
    browser.go(&site.at("/usage?show=cost&days=7")).await;
    let colours = "return new Set([...document.querySelectorAll('.legend .swatch')].map((one) => getComputedStyle(one).color)).size";
    assert_eq!(browser.run(colours).await, 4);
    let bars = "return [...document.querySelectorAll('.plot rect')].every((bar) => bar.getBBox().height > 0 && \
                getComputedStyle(bar).fill === getComputedStyle(document.querySelector('.legend .' + bar.getAttribute('class'))).color)";
    assert_eq!(browser.run(bars).await, true);
    browser.run("document.getElementById('quotas').scrollIntoView()").await;
    browser.screenshot(&site.shots, "usage-quotas").await;
    // The page updates live.
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    browser.run("window.mark = 'the same page'").await;
    let device = world.pair("builder", "workstation-3", "claude_cli").await;
    let run = world.ask("builder", "more").await;
    device.claim().await;
    device.complete_for(run, "done", Some(r#"{"cost_usd":100}"#)).await;
    browser.wait("document.querySelector('.figures .v').textContent.startsWith('$10')").await;
    assert_eq!(browser.run("return window.mark").await, "the same page");

    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_edited_corrected_and_tested_in_the_editor() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    world.agent("builder").await;
    site.sign_in(&browser).await;
    browser.go(&site.at("/rules")).await;
    browser.write("#rules-text", "agents:\n  builder:\n    can_acess: [resources/public/*]\n").await;
    browser.click("button[value=save].go").await;
    browser.wait("document.getElementById('mistakes')?.textContent.includes('Line 3, column 5')").await;
    assert_eq!(browser.run("return document.querySelector('.lines b').textContent").await, "3");
    browser.screenshot(&site.shots, "rules-mistake").await;
    // Line numbers stay aligned however long the text is.
    let beside = "const area = document.getElementById('rules-text'); area.value = 'x: y\\n'.repeat(60); \
                  const lines = document.querySelector('.lines'); \
                  return Math.abs(lines.getBoundingClientRect().height - area.getBoundingClientRect().height) < 2 && \
                  getComputedStyle(lines).lineHeight === getComputedStyle(area).lineHeight";
    assert_eq!(browser.run(beside).await, true);
    let text = "agents:\\n  builder:\\n    can_access: [resources/public/*]\\n";
    browser.run(&format!("document.getElementById('rules-text').value = '{text}'")).await;
    browser.click("button[value=save].go").await;
    browser.wait("location.search === '?said=rules'").await;

    // Enter in a field of the test form tests and doesn't save.
    browser.run("document.getElementById('rules-text').value += '# a draft'").await;
    browser.write("#check input[name=agent]", "builder").await;
    browser.write("#check input[name=object]", "resources/public/logo\u{e007}").await;
    browser.wait("document.getElementById('decision')?.textContent.startsWith('Allowed: builder can access')").await;
    assert!(browser.text("#decision").await.contains("resources/public/*"));
    let draft = "return document.getElementById('rules-text').value.endsWith('# a draft')";
    assert_eq!(browser.run(draft).await, true);
    assert!(!world.hub.access_rules(&world.owner).await.unwrap().text.contains("draft"));
    browser.screenshot(&site.shots, "rules-checked").await;

    let complaints = browser.complaints().await;
    let unexpected: Vec<_> = complaints.iter().filter(|text| !text.contains("422") && !text.contains("400")).collect();
    assert_eq!(unexpected, Vec::<&String>::new());
    drop(browser);
    site.close().await;
}
