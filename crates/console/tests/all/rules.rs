//! The rules editor: saving, errors with positions, conflicts and access tests.

use attache_protocol::wire::{access::SetAccessRules, key::Role};
use axum::http::StatusCode;

use crate::world::{ConsoleWorld, between};

const RULES: &str =
    "agents:\n  \"*\":\n    can_access:\n      - resources/public/*\n    cannot_access:\n      - agents/vault\n";

#[tokio::test]
async fn rules_are_saved_and_tested() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    world.agent("vault").await;
    let admin = world.signed_in(Role::Admin).await;
    let page = admin.get("/rules").await.body;
    let version = between(&page, "name=\"version\" value=\"", "\"").to_owned();
    // Browsers submit line breaks as CRLF.
    let text = RULES.replace('\n', "\r\n");
    let saved = admin.post("/rules", &[("do", "save"), ("text", &text), ("version", &version)]).await;
    assert_eq!((saved.status, saved.header("location")), (StatusCode::SEE_OTHER, "/rules?said=rules"));
    assert_eq!(world.hub.access_rules(&world.owner).await.unwrap().text, RULES);
    assert!(admin.get("/rules").await.body.contains("resources/public/*\n    cannot_access"));

    // Testing access keeps the unsaved text.
    for (object, verdict, because) in [
        ("resources/public/logo", "Allowed: ", "resources/public/*"),
        ("agents/vault", "Denied: ", "agents/vault"),
        ("conversations/other/1", "Denied: ", "No rule matches"),
    ] {
        let fields = [("do", "check"), ("agent", "builder"), ("object", object), ("text", "a draft"), ("version", "1")];
        let page = admin.post("/rules", &fields).await;
        assert_eq!(page.status, StatusCode::OK, "{object}");
        let decision = between(&page.body, "id=\"decision\"", "</p>");
        assert!(decision.contains(verdict) && decision.contains(because), "{decision}");
        assert_eq!(
            between(&page.body, "<textarea id=\"rules-text\"", "</textarea>").split('>').next_back(),
            Some("\na draft")
        );
    }
    let fields = [("do", "check"), ("agent", "builder"), ("object", "nonsense"), ("text", "a draft")];
    let page = admin.post("/rules", &fields).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    assert!(page.body.contains("value=\"nonsense\"") && page.body.contains("a draft"));
    assert_eq!(world.hub.access_rules(&world.owner).await.unwrap().text, RULES);
}

#[tokio::test]
async fn a_mistake_is_shown_at_its_line_and_nothing_changes() {
    let world = ConsoleWorld::new().await;
    let owner = world.signed_in(Role::Owner).await;
    let text = "agents:\n  \"*\":\n    can_acess:\n      - <script>alert(1)</script>\n    cannot_access: [nowhere/*]\n";
    let page = owner.post("/rules", &[("do", "save"), ("text", text), ("version", "0")]).await;
    assert!(page.status.is_client_error(), "{}", page.status);
    let mistakes = between(&page.body, "<ol class=\"mistakes\"", "</ol>");
    assert!(mistakes.contains("Line 3, column 5") && mistakes.contains("Line 5, column "), "{mistakes}");
    assert!(mistakes.contains("can_acess"), "{mistakes}");
    let numbers = between(&page.body, "<pre class=\"lines\" aria-hidden=\"true\">", "</pre>");
    assert!(numbers.starts_with("1\n2\n<b>3</b>\n4\n<b>5</b>\n6\n"), "{numbers}");
    assert!(!page.body.contains("<script>alert"));
    assert!(page.body.contains("can_acess:\n"), "what was typed is still there");
    assert_eq!(world.hub.access_rules(&world.owner).await.unwrap().text, "");
}

#[tokio::test]
async fn a_conflicting_save_is_reported_and_keeps_the_text() {
    let world = ConsoleWorld::new().await;
    let owner = world.signed_in(Role::Owner).await;
    let before = between(&owner.get("/rules").await.body, "name=\"version\" value=\"", "\"").to_owned();
    let theirs = SetAccessRules { text: RULES.to_owned(), version: None };
    let now = world.hub.set_access_rules(&world.owner, theirs).await.unwrap().version;
    let mine = "# mine\nagents: {}\n";
    let page = owner.post("/rules", &[("do", "save"), ("text", mine), ("version", &before)]).await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(page.body.contains("Someone changed the rules while you were editing"), "{}", page.body);
    assert!(page.body.contains("# mine") && between(&page.body, "id=\"theirs\">", "</pre>").contains("agents/vault"));
    let version = between(&page.body, "name=\"version\" value=\"", "\"").to_owned();
    assert_eq!(version, now.to_string(), "now that they have seen it, they may decide");
    let saved = owner.post("/rules", &[("do", "save"), ("text", mine), ("version", &version)]).await;
    assert_eq!(saved.header("location"), "/rules?said=rules");
    assert_eq!(world.hub.access_rules(&world.owner).await.unwrap().text, mine);
}

#[tokio::test]
async fn rules_are_for_admins() {
    let world = ConsoleWorld::new().await;
    for role in [Role::Viewer, Role::Operator] {
        let visitor = world.signed_in(role).await;
        assert!(!visitor.get("/settings").await.body.contains("href=\"/rules\""));
        for act in ["save", "check"] {
            let fields = [("do", act), ("text", ""), ("agent", "a"), ("object", "agents/b")];
            assert_eq!(visitor.post("/rules", &fields).await.status, StatusCode::FORBIDDEN, "{role:?} {act}");
        }
    }
}

#[tokio::test]
async fn the_rules_file_is_named_and_its_errors_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("permissions.yaml");
    std::fs::write(&file, RULES).unwrap();
    let permissions = file.clone();
    let world =
        ConsoleWorld::with("127.0.0.1:7800".parse().unwrap(), |options| options.permissions = Some(permissions)).await;
    let owner = world.signed_in(Role::Owner).await;
    let page = owner.get("/rules").await.body;
    assert!(page.contains(&format!("stored in <code>{}</code>", file.display())), "{page}");
    assert!(page.contains("- agents/vault\n</textarea>"), "{page}");

    // On save, the hub reads the file first. A version that the user hasn't seen is a conflict.
    std::fs::write(&file, "agents: [<script>\n").unwrap();
    let page = owner.post("/rules", &[("do", "save"), ("text", RULES), ("version", "999")]).await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(page.body.contains("The rules file is invalid") && !page.body.contains("<script>"), "{}", page.body);
    assert_eq!(world.hub.access_rules(&world.owner).await.unwrap().text, RULES);
}
