//! Sessions begun in a terminal: listed, continued in a conversation, and handed back. Without scripts.

use attache_protocol::wire::{
    account::{AccountRequest, Callers},
    key::Role,
};
use axum::http::StatusCode;

use crate::world::{ConsoleDevice, ConsoleWorld, TestVisitor, between};

const HEADING: &str = "Started in a terminal";

/// Ada's own agent on her own device.
async fn own_agent(world: &ConsoleWorld, name: &str) -> (TestVisitor, ConsoleDevice) {
    let (_, ada) = world.person("ada", Role::Operator).await;
    let by_ada = ada.principal(world).await;
    let callers = Some(Callers::Everyone);
    let account = AccountRequest { name: Some(name.to_owned()), callers, ..AccountRequest::default() };
    world.hub.create_account(&by_ada, account).await.unwrap();
    let code = world.hub.create_pairing_code(&by_ada, name).await.unwrap().pairing_code;
    (ada, world.join(&code, "laptop", "claude_cli").await)
}

#[tokio::test]
async fn a_session_of_a_terminal_becomes_a_conversation_and_goes_back() {
    let world = ConsoleWorld::new().await;
    let (ada, device) = own_agent(&world, "adas").await;
    assert!(!ada.get("/conversations").await.body.contains(HEADING), "nothing is shown while there is none");
    device.keep_sessions(&[("s-2", "fix <b>it</b>"), ("s-1", "an earlier one")]).await;
    for path in ["/conversations", "/agents/adas"] {
        let page = ada.get(path).await.body;
        let list = &page[page.find(HEADING).unwrap_or_else(|| panic!("{path}: {page}"))..];
        let order = ["fix &#60;b&#62;it&#60;/b&#62;", "an earlier one"].map(|title| list.find(title).unwrap());
        assert!(order.is_sorted() && list.contains("Continue here</button>"), "{path}: {list}");
    }

    let agent = device.agent_id();
    let begun = ada.post(&format!("/agents/{agent}/sessions"), &[("session", "s-2")]).await;
    assert_eq!(begun.status, StatusCode::SEE_OTHER, "{}", begun.body);
    let conversation = begun.header("location").to_owned();
    let again = ada.post(&format!("/agents/{agent}/sessions"), &[("session", "s-2")]).await;
    assert_eq!(again.header("location"), conversation, "it is continued once");
    let page = ada.get(&conversation).await.body;
    assert!(page.contains("Your next message continues the session from the terminal."), "{page}");
    assert!(page.contains(&format!("<option value=\"{agent}\" selected>")), "{page}");
    assert_eq!(
        between(&page, "id=\"terminal-command\">", "</span>"),
        "cd /home/ada/site &#38;&#38; claude --resume s-2"
    );
    let list = ada.get("/conversations").await.body;
    assert!(!list.contains("fix &#60;b&#62;") && list.contains("an earlier one"), "{list}");

    // The reply of the page reaches the device with the session.
    let id = conversation.trim_start_matches("/conversations/");
    let sent = [("agent", &*agent), ("conversation", id), ("text", "go on"), ("back", "conversation")];
    assert_eq!(ada.post("/runs", &sent).await.header("location"), format!("{conversation}#reply"));
    let claim = device.claim_whole().await;
    assert_eq!((claim.for_owner, claim.host_session.as_deref()), (true, Some("s-2")));
    let page = ada.get(&conversation).await.body;
    assert!(!page.contains("Your next message continues") && page.contains("Continue in the terminal"), "{page}");
}

#[tokio::test]
async fn nobody_else_sees_them() {
    let world = ConsoleWorld::new().await;
    let (ada, device) = own_agent(&world, "adas").await;
    device.keep_sessions(&[("s-1", "a secret plan")]).await;
    let agent = device.agent_id();
    let begun = ada.post(&format!("/agents/{agent}/sessions"), &[("session", "s-1")]).await;
    let conversation = begun.header("location").to_owned();
    device.keep_sessions(&[("s-1", "a secret plan"), ("s-2", "another secret plan")]).await;
    let (_, bob) = world.person("bob", Role::Operator).await;
    let (_, eve) = world.person("eve", Role::Admin).await;
    for visitor in [&bob, &eve, &world.owner_signed_in().await, &world.signed_in(Role::Viewer).await] {
        for path in ["/conversations", "/agents/adas", &conversation] {
            let page = visitor.get(path).await.body;
            assert!(!page.contains("secret plan") && !page.contains("--resume"), "{path}: {page}");
        }
        let refused = visitor.post(&format!("/agents/{agent}/sessions"), &[("session", "s-2")]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }
}

#[tokio::test]
async fn they_are_shown_in_the_language_of_the_reader() {
    let world = ConsoleWorld::new().await;
    let (mut ada, device) = own_agent(&world, "adas").await;
    device.keep_sessions(&[("s-1", "修复测试")]).await;
    ada.set("language", "zh-CN");
    let page = ada.get("/conversations").await.body;
    assert!(page.contains("从终端开始的会话") && page.contains("在这里继续") && page.contains("修复测试"), "{page}");
}
