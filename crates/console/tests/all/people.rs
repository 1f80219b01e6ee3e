//! People and keys: what each role sees, what the forms do, and what they keep when refused.

use attache_hub::control::PageRequest;
use attache_protocol::wire::key::{KeyScope, Role};
use axum::http::StatusCode;

use crate::world::{ConsoleWorld, between};

const HOSTILE: &str = "<script>alert(1)</script>";

#[tokio::test]
async fn an_admin_adds_changes_and_removes_people() {
    let world = ConsoleWorld::new().await;
    let (_, admin) = world.person("root", Role::Admin).await;
    let fields = [("name", "alice"), ("role", "viewer"), ("password", "correct horse battery")];
    let added = admin.post("/people", &fields).await;
    assert_eq!((added.status, added.header("location")), (StatusCode::SEE_OTHER, "/people?said=added"));
    let alice = world.hub.user(&world.owner, "alice").await.unwrap();
    assert_eq!((alice.role, alice.has_password), (Role::Viewer, true));
    let list = admin.get("/people").await.body;
    assert!(list.contains(&format!("href=\"/people/{}\"", alice.user_id)), "{list}");

    let path = format!("/people/{}", alice.user_id);
    let page = admin.get(&path).await.body;
    assert!(page.contains("Set a password") && page.contains("Remove this person"), "{page}");
    assert!(!page.contains("value=\"owner\""), "nobody gives a role above their own");
    let changed = admin.post(&path, &[("role", "operator")]).await;
    assert_eq!(changed.header("location"), format!("{path}?said=saved"));
    assert_eq!(world.hub.user(&world.owner, "alice").await.unwrap().role, Role::Operator);
    let changed = admin.post(&path, &[("password", "another long password")]).await;
    assert_eq!(changed.header("location"), format!("{path}?said=password"));
    assert_eq!(admin.post(&path, &[]).await.status, StatusCode::BAD_REQUEST, "an empty form changes nothing");

    let removed = admin.post(&format!("{path}/remove"), &[]).await;
    assert_eq!(removed.header("location"), "/people?said=removed");
    let gone = world.hub.user(&world.owner, &alice.user_id.to_string()).await.unwrap();
    assert!(gone.removed_at.is_some());
    assert!(!admin.get(&path).await.body.contains("Remove this person"));
}

#[tokio::test]
async fn a_refused_form_keeps_what_was_typed_but_no_password() {
    let world = ConsoleWorld::new().await;
    let owner = world.signed_in(Role::Owner).await;
    for name in [HOSTILE, "two words", ""] {
        let fields = [("name", name), ("role", "admin"), ("password", "correct horse battery")];
        let page = owner.post("/people", &fields).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{name}");
        assert!(page.body.contains("role=\"alert\"") && page.body.contains("<option value=\"admin\" selected>"));
        assert!(!page.body.contains("correct horse battery") && !page.body.contains(HOSTILE), "{name}");
    }
    let page = owner.post("/people", &[("name", "two words")]).await.body;
    assert!(page.contains("name=\"name\" required maxlength=\"64\" value=\"two words\""), "{page}");
    // A short password and a taken name.
    let short = owner.post("/people", &[("name", "bob"), ("password", "x")]).await;
    assert_eq!(short.status, StatusCode::BAD_REQUEST);
    world.person("bob", Role::Viewer).await;
    assert_eq!(owner.post("/people", &[("name", "bob")]).await.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn people_see_themselves_and_change_their_own_password() {
    let world = ConsoleWorld::new().await;
    let (_, bob) = world.person("bob", Role::Viewer).await;
    let (alice, visitor) = world.person("alice", Role::Operator).await;
    let page = visitor.get("/people").await.body;
    assert!(page.contains("<bdi>alice</bdi>") && !page.contains("<bdi>bob</bdi>"), "{page}");
    assert!(!page.contains("name=\"current_password\""), "there is none yet");
    let set = visitor.post("/people/password", &[("password", "correct horse battery")]).await;
    assert_eq!(set.header("location"), "/people?said=password");
    assert!(visitor.get("/people").await.body.contains("name=\"current_password\""));

    let fields = [("current_password", "wrong"), ("password", "another long password")];
    let wrong = visitor.post("/people/password", &fields).await;
    assert_eq!(wrong.status, StatusCode::FORBIDDEN);
    assert!(wrong.body.contains("The current password is wrong.") && !wrong.body.contains("another long"));
    let fields = [("current_password", "correct horse battery"), ("password", "another long password")];
    assert_eq!(visitor.post("/people/password", &fields).await.header("location"), "/people?said=password");
    assert_eq!(visitor.get("/people").await.status, StatusCode::OK, "who changed it stays signed in");

    // Other people don't exist for viewers who may not see them.
    let path = format!("/people/{}", alice.user_id);
    assert_eq!(bob.get(&path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(bob.post(&path, &[("role", "owner")]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(bob.post("/people", &[("name", "eve")]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(bob.post(&format!("{path}/remove"), &[]).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_key_has_a_user_scopes_and_an_expiry() {
    let world = ConsoleWorld::new().await;
    let (alice, operator) = world.person("alice", Role::Operator).await;
    let owner = world.signed_in(Role::Owner).await;
    let user = alice.user_id.to_string();
    let fields = [
        ("name", "ci"),
        ("role", "viewer"),
        ("user", &user),
        ("valid", "week"),
        ("scope_read", "1"),
        ("scope_call", "1"),
    ];
    let page = owner.post("/settings/keys", &fields).await;
    let secret = between(&page.body, "id=\"secret\">", "<").to_owned();
    assert!(world.hub.authenticate_key(&secret).await.is_ok());
    let keys = world.hub.keys(&world.owner, PageRequest::default()).await.unwrap().api_keys;
    let made = keys.iter().find(|key| key.name == "ci").unwrap();
    assert_eq!((made.role, made.user_id), (Role::Viewer, Some(alice.user_id)));
    assert_eq!(made.scopes, Some(vec![KeyScope::Read, KeyScope::Call]));
    assert_eq!(made.expires_at.unwrap().since(made.created_at).as_secs().div_ceil(86_400), 7);
    let page = owner.get(&format!("/people/{user}")).await.body;
    assert!(page.contains("viewer, acts for alice") && page.contains("view, call agents"), "{page}");

    // A role above the user's own is refused, and the form keeps its values.
    let fields = [("name", "big"), ("role", "admin"), ("user", &*user), ("scope_decide", "1"), ("valid", "week")];
    let refused = owner.post("/settings/keys", &fields).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    for kept in [
        "value=\"big\"",
        "<option value=\"admin\" selected>",
        &format!("<option value=\"{user}\" selected>"),
        "name=\"scope_decide\" value=\"1\" checked",
        "<option value=\"week\" selected>",
    ] {
        assert!(refused.body.contains(kept), "{kept}");
    }

    // An operator sees only their own keys.
    let page = operator.get("/people").await.body;
    assert!(page.contains("<b class=\"clip\">ci</b>") && page.contains("/revoke\""), "{page}");
    assert!(!page.contains("name=\"user\""), "only an admin makes keys for others");
    let other = keys.iter().find(|key| key.user_id != Some(alice.user_id)).unwrap();
    let refused = operator.post(&format!("/settings/keys/{}/revoke", other.key_id), &[]).await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
    let own = operator.post(&format!("/settings/keys/{}/revoke", made.key_id), &[]).await;
    assert_eq!(own.header("location"), "/people?said=revoked");
    assert!(world.hub.authenticate_key(&secret).await.is_err());
}

#[tokio::test]
async fn an_operator_manages_their_own_agents() {
    let world = ConsoleWorld::new().await;
    let foreign = world.agent("builder").await;
    let (alice, visitor) = world.person("alice", Role::Operator).await;
    visitor.post("/agents", &[("name", "helper")]).await;
    let own = world.hub.account(&world.owner, "helper").await.unwrap();
    assert_eq!(own.owner_id, Some(alice.user_id));
    for (account, managed) in [(&own, true), (&foreign, false)] {
        let page = visitor.get(&format!("/agents/{}", account.agent_id)).await.body;
        assert_eq!(page.contains("/pairing-codes\""), managed, "{}", account.name);
        assert_eq!(page.contains("/archive\""), managed, "{}", account.name);
        assert!(!page.contains("name=\"owner\""), "only an admin gives agents away");
        let code = visitor.post(&format!("/agents/{}/pairing-codes", account.agent_id), &[]).await;
        assert_eq!(code.status, if managed { StatusCode::OK } else { StatusCode::FORBIDDEN }, "{}", account.name);
    }
    assert!(visitor.get("/agents/helper").await.body.contains("<dd><bdi>you</bdi></dd>"));

    let owner = world.signed_in(Role::Owner).await;
    let path = format!("/agents/{}", own.agent_id);
    let page = owner.get(&path).await.body;
    assert!(page.contains(&format!("<option value=\"{}\" selected>alice</option>", alice.user_id)), "{page}");
    let given = owner.post(&path, &[("owner", ""), ("description", "for all"), ("instructions", "")]).await;
    assert_eq!(given.header("location"), format!("{path}?said=saved"));
    let account = world.hub.account(&world.owner, "helper").await.unwrap();
    assert_eq!((account.owner_id, account.description.as_deref()), (None, Some("for all")));
    assert!(owner.get(&path).await.body.contains("<dd><bdi>the organisation</bdi></dd>"));
}
