//! Passkeys: in a real browser with a device of its driver, and without scripts.

use attache_protocol::{
    rules::permission::PermissionState,
    wire::{
        account::{AccountRequest, ApprovalConfirmation},
        key::Role,
    },
};
use axum::http::StatusCode;

use crate::{
    browser::ListeningConsole,
    webdriver::WebdriverBrowser,
    world::{ConsoleWorld, asking},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_person_adds_a_passkey_signs_in_and_approves_with_it() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    browser.authenticator().await;

    // An address has no passkeys, and the page says where they are.
    browser.go(&site.at("/login")).await;
    let local = format!("open the console as {}/login", site.local());
    browser.wait(&format!("document.querySelector('[data-passkey-note]').textContent.includes({local:?})")).await;
    assert_eq!(browser.run("return document.getElementById('use-passkey').hidden").await, true);

    // Without a passkey, nobody could approve.
    browser.go(&format!("{}/login?token={}", site.local(), world.login_token().await)).await;
    browser.wait("location.pathname === '/runs'").await;
    let agent = world.agent("builder").await.agent_id;
    let page = format!("{}/agents/{agent}", site.local());
    let demand = "document.querySelector('select[name=confirm_approvals]').value = 'passkey'";
    browser.go(&page).await;
    browser.run(demand).await;
    browser.tap("form.form button[type=submit]").await;
    browser.wait("document.querySelector('[role=alert]')?.textContent.includes('takes a passkey')").await;

    browser.go(&format!("{}/passkeys", site.local())).await;
    assert!(browser.text("#passkey-list").await.contains("No passkeys"));
    browser.write("#add-passkey input[name=name]", "My laptop").await;
    browser.screenshot(&site.shots, "passkeys").await;
    browser.click("#add-passkey button[type=submit]").await;
    browser.wait("document.querySelector('.note.said')?.textContent.includes('Passkey added.')").await;
    assert!(browser.text("#passkey-list").await.contains("My laptop"));
    assert!(browser.text("#passkey-list").await.contains("never used"));
    let signed_in_before = world.hub.passkeys(&world.owner).await.unwrap();
    assert_eq!(signed_in_before.len(), 1);

    // Sign out, and in again with it.
    browser.go(&format!("{}/settings", site.local())).await;
    browser.click("form[action='/logout'] button").await;
    browser.wait("location.pathname === '/login'").await;
    browser.wait("!document.getElementById('use-passkey').hidden").await;
    browser.screenshot(&site.shots, "login-passkey").await;
    browser.click("#use-passkey").await;
    browser.wait("location.pathname === '/runs'").await;
    browser.go(&format!("{}/sessions", site.local())).await;
    browser.wait("document.getElementById('session-list').textContent.includes('signed in with a passkey')").await;

    // The agent's approvals need it from now on.
    browser.go(&page).await;
    browser.run(demand).await;
    browser.tap("form.form button[type=submit]").await;
    browser.wait("document.querySelector('.note.said')?.textContent.includes('Saved')").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Upgrade the parser").await;
    device.claim().await;
    let first = device.ask(run, asking("Run", r#"{"command":"cargo publish"}"#)).await;
    let id = first.permission_request_id;
    browser.go(&format!("{}/approvals/{id}", site.local())).await;
    assert!(browser.text(&format!("#{id}")).await.contains("Approving takes your passkey."));
    browser.screenshot(&site.shots, "approval-passkey").await;

    // Without one, the hub refuses, whatever the page sends.
    browser.run(&format!("const form = document.querySelector('#{id} form'); const answer = document.createElement('input'); answer.type = 'hidden'; answer.name = 'answer'; answer.value = 'allow_once'; form.append(answer); form.submit()")).await;
    browser.wait("document.querySelector('[role=alert]')?.textContent.includes('takes a passkey')").await;
    assert_eq!(device.answer(run, &first).await.state, PermissionState::Pending);

    browser.tap(&format!("#{id} button[value=allow_once]")).await;
    browser.wait("document.querySelector('.note.said')?.textContent.includes('Allowed. The agent continues.')").await;
    assert_eq!(device.answer(run, &first).await.state, PermissionState::Approved);
    let decided = world.hub.permission(&world.owner, id).await.unwrap();
    assert_eq!(decided.decided_via.as_deref(), Some("passkey"));

    // A denial needs none, and the inbox works like the page.
    browser.go(&format!("{}/inbox", site.local())).await;
    let second = device.ask(run, asking("Run", r#"{"command":"rm -r target"}"#)).await.permission_request_id;
    let third = device.ask(run, asking("Run", r#"{"command":"cargo test"}"#)).await;
    browser.wait(&format!("document.getElementById('{}')", third.permission_request_id)).await;
    browser.wait("!document.getElementById('slips').classList.contains('settling')").await;
    browser.tap(&format!("#{second} button[value=deny]")).await;
    browser.wait("document.querySelector('.note.said')?.textContent.includes('Denied')").await;
    browser.tap(&format!("#{} button[value=allow_run]", third.permission_request_id)).await;
    browser.wait("document.querySelector('.note.said')?.textContent.includes('Allowed')").await;
    assert_eq!(device.answer(run, &third).await.state, PermissionState::Approved);

    // Removing it ends the session.
    browser.go(&format!("{}/passkeys", site.local())).await;
    browser.wait("document.getElementById('passkey-list').textContent.includes('last used')").await;
    browser.click("#passkey-list summary").await;
    browser.click("#passkey-list button.no").await;
    browser.wait("location.pathname === '/login'").await;
    browser.click("#use-passkey").await;
    browser.wait("document.querySelector('[data-passkey-note]:not([hidden]), [role=alert]') !== null").await;
    assert_eq!(browser.run("return location.pathname").await, "/login");
    drop(browser);
    site.close().await;
}

#[tokio::test]
async fn without_scripts_the_pages_say_what_is_missing() {
    let world = ConsoleWorld::new().await;
    let (_, visitor) = world.person("ada", Role::Operator).await;
    let page = visitor.get("/passkeys").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.body.contains("<noscript>") && page.body.contains("Passkeys don’t work here."));
    let login = world.visitor().get("/login").await;
    assert!(login.body.contains("Passkeys need JavaScript."));

    let agent = world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let demand = AccountRequest { confirm_approvals: Some(ApprovalConfirmation::Passkey), ..AccountRequest::default() };
    let refused = world.hub.update_account(&world.owner, &agent.agent_id.to_string(), demand).await;
    assert!(refused.is_err(), "nobody could approve");
    drop(device);
}
