//! What the palette finds, without scripts: only what the viewer may see, and never markup.

use attache_protocol::wire::{
    account::{AccountRequest, Callers},
    conversation::CreateConversationRequest,
    key::Role,
    run::CreateRunRequest,
};
use axum::http::StatusCode;

use crate::{
    browser::ListeningConsole,
    webdriver::WebdriverBrowser,
    world::{ConsoleWorld, TestVisitor, encode},
};

/// The addresses of what is found, in order.
async fn found(visitor: &TestVisitor, text: &str) -> Vec<String> {
    let page = visitor.get(&format!("/palette?q={}", encode(text))).await;
    assert_eq!(page.status, StatusCode::OK, "{text}: {}", page.body);
    let options = page.body.split("role=\"option\"").skip(1);
    options.map(|rest| rest.split("href=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn pages_actions_agents_runs_conversations_and_documents_are_found() {
    let world = ConsoleWorld::new().await;
    let agent = world.agent("deployer").await;
    let request =
        CreateConversationRequest { title: Some("部署计划".to_owned()), ..CreateConversationRequest::default() };
    let conversation = world.hub.create_conversation(&world.owner, request).await.unwrap().conversation_id;
    let inside = CreateRunRequest { conversation_id: Some(conversation), ..CreateRunRequest::default() };
    let run = world.ask_with(&world.owner, "deployer", "把新版本部署到测试环境", inside).await;
    let owner = world.owner_signed_in().await;
    assert_eq!(
        found(&owner, "deploye").await,
        [format!("/agents/{}", agent.agent_id), format!("/runs/{run}"), format!("/conversations/{conversation}")]
    );
    assert_eq!(found(&owner, "部署").await, [format!("/runs/{run}"), format!("/conversations/{conversation}")]);
    assert_eq!(found(&owner, "PAIR A").await, ["/pair"]);
    assert_eq!(found(&owner, "audit").await[0], "/audit");
    assert!(found(&owner, "delegat").await.contains(&"/docs/delegations".to_owned()));
    assert_eq!(found(&owner, "no such thing").await, Vec::<String>::new());
    let all = found(&owner, "").await;
    for path in ["/runs/new", "/pair", "/inbox", "/settings", "/people#new-key"] {
        assert!(all.iter().any(|found| found == path), "{path} is missing in {all:?}");
    }
    assert_eq!(all[0], format!("/runs/{run}"), "recent runs come first");
}

#[tokio::test]
async fn the_palette_shows_nobody_what_they_may_not_see() {
    let world = ConsoleWorld::new().await;
    let (ada, hers) = world.person("ada", Role::Operator).await;
    let by = hers.principal(&world).await;
    let request = AccountRequest {
        name: Some("secretagent".to_owned()),
        callers: Some(Callers::Owner),
        ..AccountRequest::default()
    };
    world.hub.create_account(&by, request).await.unwrap();
    let run = world.ask_with(&by, "secretagent", "hidden <b>task</b>", CreateRunRequest::default()).await;
    assert_eq!(ada.name, "ada");
    assert!(found(&hers, "hidden").await.contains(&format!("/runs/{run}")));
    assert!(!found(&hers, "secretagent").await.is_empty());
    let (_, bob) = world.person("bob", Role::Operator).await;
    // That there is a private agent is no secret. What it does is.
    for text in ["hidden", "secretagent", "ada", &run.to_string(), ""] {
        let seen = found(&bob, text).await;
        let is_work = |href: &String| href.starts_with("/runs/run_") || href.starts_with("/conversations/");
        assert!(!seen.iter().any(is_work), "{text}: {seen:?}");
    }
    // A viewer creates nothing, and isn't offered to.
    let viewer = world.signed_in(Role::Viewer).await;
    let offered = found(&viewer, "").await;
    assert!(!offered.contains(&"/runs/new".to_owned()) && !offered.contains(&"/audit".to_owned()), "{offered:?}");
    let page = world.visitor().get("/palette?q=x").await;
    assert_ne!(page.status, StatusCode::OK);
}

#[tokio::test]
async fn what_is_found_is_text() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let hostile = r#"<img src=x onerror=alert(1)> " ' & { } * OR NOT"#;
    world.ask("builder", hostile).await;
    let owner = world.owner_signed_in().await;
    for text in [hostile, "<img", "* OR", "\" '", "'; drop table", "%", "_", "\\", "(", "\u{7f}", "\0"] {
        let page = owner.get(&format!("/palette?q={}", encode(text))).await;
        assert_eq!(page.status, StatusCode::OK, "{text:?}");
        assert!(!page.body.contains("<img"), "{}", page.body);
    }
    assert_eq!(found(&owner, hostile).await.len(), 1);
}

/// With keys alone, with a pointer alone, and switched off.
#[tokio::test(flavor = "multi_thread")]
async fn the_palette_goes_anywhere() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let agent = site.world.agent("deployer").await;
    let run = site.world.ask("deployer", "Fix the login page").await;
    site.sign_in(&browser).await;
    let press = |key: &str| {
        format!(
            "(document.activeElement ?? document.body).dispatchEvent(new KeyboardEvent('keydown', \
             {{key: '{key}', ctrlKey: true, bubbles: true, cancelable: true}}))"
        )
    };
    let is_open = "document.getElementById('palette').open";
    // Also while somebody types.
    browser.run("document.getElementById('q').focus()").await;
    browser.run(&press("k")).await;
    browser.wait(is_open).await;
    browser.wait("document.querySelector('#palette [role=option][aria-selected]') !== null").await;
    assert_eq!(browser.run("return document.activeElement.getAttribute('role')").await, "combobox");
    let active = "const input = document.querySelector('#palette [role=combobox]'); \
                  return document.getElementById(input.getAttribute('aria-activedescendant')).textContent.trim()";
    browser.write("#palette [role=combobox]", "login").await;
    browser.wait("document.querySelectorAll('#palette [role=option]').length === 1").await;
    assert!(browser.run(active).await.as_str().unwrap().starts_with("Fix the login page"));
    browser.write("#palette [role=combobox]", "\u{e007}").await;
    browser.wait(&format!("location.pathname === '/runs/{run}'")).await;
    // Arrows choose, Escape goes back to where the focus was.
    browser.run(&press("k")).await;
    browser.write("#palette [role=combobox]", "pair").await;
    browser.wait("document.querySelector('#palette [role=option]')?.getAttribute('href') === '/pair'").await;
    let first = browser.run(active).await;
    browser.write("#palette [role=combobox]", "\u{e015}\u{e013}").await;
    assert_eq!(browser.run(active).await, first);
    browser.write("#palette [role=combobox]", "\u{e00c}").await;
    browser.wait(&format!("!{is_open}")).await;
    // With a pointer.
    browser.size(390, 844).await;
    browser.go(&site.at("/runs")).await;
    browser.click("#palette-open").await;
    browser.wait(is_open).await;
    assert_eq!(browser.run("return document.documentElement.scrollWidth - innerWidth").await, 0);
    browser.write("#palette [role=combobox]", "deployer").await;
    browser
        .wait(&format!(
            "document.querySelector('#palette [role=option]')?.getAttribute('href') === '/agents/{}'",
            agent.agent_id
        ))
        .await;
    browser.click("#palette [role=option]").await;
    browser.wait(&format!("location.pathname === '/agents/{}'", agent.agent_id)).await;
    browser.write("body", "x").await;
    // Nothing found is said.
    browser.click("#palette-open").await;
    browser.write("#palette [role=combobox]", "no such thing").await;
    browser.wait("document.querySelector('#palette [role=status]:not(.hide)')?.textContent === 'Nothing found'").await;
    browser.click("#palette [data-close]").await;
    browser.wait(&format!("!{is_open}")).await;
    // Switched off, the key is the browser's again; the button stays.
    browser.size(1280, 900).await;
    browser.run("document.cookie = 'shortcuts=off; path=/'").await;
    browser.go(&site.at("/runs")).await;
    assert_eq!(browser.run(&format!("return {}", press("k"))).await, true, "nobody takes the key");
    assert_eq!(browser.run(&format!("return {is_open}")).await, false);
    browser.click("#palette-open").await;
    browser.wait(is_open).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}
