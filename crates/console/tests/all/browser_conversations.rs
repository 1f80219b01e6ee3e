//! A conversation in a real browser: what the agent does appears while it does it, and a follow-up stays on the page.

use attache_protocol::rules::run::RunStatus;

use crate::{browser::ListeningConsole, webdriver::WebdriverBrowser};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_followed_answered_and_stopped_in_its_conversation() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Upgrade the parser").await;
    device.claim().await;
    site.sign_in(&browser).await;
    let conversation = world.hub.run(&world.owner, run).await.unwrap().conversation_id;
    let page = format!("/conversations/{conversation}");
    browser.go(&site.at(&page)).await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    browser.run("window.mark = 'the same page'").await;

    device.say(run, "Reading the grammar first.").await;
    browser.wait("document.getElementById('turns').textContent.includes('Reading the grammar first.')").await;
    device.complete(run, "It is **done**.").await;
    browser.wait(&format!("document.querySelector('#{run}-answer strong')?.textContent === 'done'")).await;
    assert_eq!(browser.run("return window.mark").await, "the same page");

    browser.write("#reply-text", "And the docs?").await;
    browser.click("#reply button[type=submit]").await;
    browser.wait("document.getElementById('turns')?.textContent.includes('And the docs?')").await;
    assert!(browser.url().await.contains(&page), "{}", browser.url().await);
    browser.wait("document.activeElement?.id === 'reply-text'").await;
    let second = device.claim().await;
    let read = world.hub.run(&world.owner, second).await.unwrap();
    assert_eq!(read.conversation_id, conversation);

    browser.wait(&format!("document.querySelector('form[action=\"/runs/{second}/cancel\"] button') !== null")).await;
    browser.click(&format!("form[action=\"/runs/{second}/cancel\"] button")).await;
    browser.wait(&format!("document.querySelector('form[action=\"/runs/{second}/again\"]') !== null")).await;
    assert!(browser.url().await.contains(&page), "{}", browser.url().await);
    assert_eq!(world.hub.run(&world.owner, second).await.unwrap().status, RunStatus::Cancelled);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    site.close().await;
}
