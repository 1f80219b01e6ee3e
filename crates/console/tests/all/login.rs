//! Sign-in, sign-out and cross-site forms.

use attache_protocol::{
    Secret,
    wire::{key::Role, user::CreateUserRequest},
};
use axum::{
    body::Body,
    http::{Request, StatusCode},
};

use crate::world::ConsoleWorld;

#[tokio::test]
async fn a_login_link_works_once_and_a_preview_changes_nothing() {
    let world = ConsoleWorld::new().await;
    let token = world.login_token().await;
    let mut visitor = world.visitor();

    for _ in 0..2 {
        let page = visitor.get(&format!("/login?token={token}")).await;
        assert_eq!(page.status, StatusCode::OK);
        assert!(page.body.contains(&format!("name=\"token\" value=\"{token}\"")));
        assert_eq!(page.header("set-cookie"), "");
    }

    let entered = visitor.post_bare("/login", &[("token", &token)], &[]).await;
    assert_eq!((entered.status, entered.header("location")), (StatusCode::SEE_OTHER, "/runs"));
    let cookie = entered.header("set-cookie");
    assert!(cookie.starts_with("attache_session=cs_"), "{cookie}");
    assert!(cookie.ends_with("Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    visitor.keep(&entered);
    assert_eq!(visitor.get("/runs").await.status, StatusCode::OK);

    let again = world.visitor().post_bare("/login", &[("token", &token)], &[]).await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
    assert!(again.body.contains("already used"), "{}", again.body);
    assert!(!again.body.contains(&token));

    let left = visitor.post("/logout", &[]).await;
    assert_eq!((left.status, left.header("location")), (StatusCode::SEE_OTHER, "/login"));
    let after = visitor.get("/runs").await;
    assert_eq!((after.status, after.header("location")), (StatusCode::SEE_OTHER, "/login?over=1"));
}

#[tokio::test]
async fn a_login_leads_to_the_page_that_was_asked_for() {
    let world = ConsoleWorld::new().await;
    let mut visitor = world.visitor();
    let away = visitor.get("/inbox?decided=1").await;
    assert_eq!((away.status, away.header("location")), (StatusCode::SEE_OTHER, "/login"));
    visitor.keep(&away);
    let token = world.login_token().await;
    let entered = visitor.post_bare("/login", &[("token", &token)], &[]).await;
    assert_eq!(entered.header("location"), "/inbox?decided=1");
    visitor.keep(&entered);
    assert_eq!(visitor.get("/login").await.header("location"), "/runs", "only once");

    // A link on another site leads here without the session, which browsers hold back.
    let mut linked = world.visitor();
    let away = linked.send(Request::get("/agents").header("sec-fetch-mode", "navigate"), Body::empty()).await;
    linked.keep(&away);
    let foreign = linked.send(Request::get("/login").header("sec-fetch-site", "cross-site"), Body::empty()).await;
    assert!(foreign.body.contains("data-ask-again"), "{}", foreign.body);
    assert!(!linked.get("/login").await.body.contains("data-ask-again"));
    linked.keep(&entered);
    linked.keep(&away);
    assert_eq!(linked.get("/login").await.header("location"), "/agents");

    let pasted = "/runs?q=%61k_0123456789abcdef0123456789abcdef0123456789abcdef";
    for (path, hostile) in [("//example.org/", true), ("/login?token=x", true), (pasted, true), ("/runs/a%3bb", false)]
    {
        let answer = world.visitor().get(path).await;
        let kept = answer.header("set-cookie").starts_with("attache_place=");
        assert!(!(kept && hostile), "{path}: {answer:?}");
    }
    let mut lured = world.visitor();
    for place in ["//example.org", "https://example.org", "/\\example.org", "/login"] {
        lured.set("attache_place", place);
        let token = world.login_token().await;
        let entered = lured.post_bare("/login", &[("token", &token)], &[]).await;
        assert_eq!(entered.header("location"), "/runs", "{place}");
    }
}

#[tokio::test]
async fn a_password_signs_in_and_a_wrong_one_reveals_nothing() {
    let world = ConsoleWorld::new().await;
    let request = CreateUserRequest {
        name: "ada".to_owned(),
        role: Some(Role::Viewer),
        password: Some(Secret::new("correct horse battery".to_owned())),
    };
    world.hub.create_user(&world.owner, request).await.unwrap();
    let visitor = world.visitor();
    let page = visitor.get("/login").await;
    assert!(page.body.contains("name=\"password\" type=\"password\""), "{}", page.body);
    let enter = async |name: &str, password: &str, headers: &[(&str, &str)]| {
        world.visitor().post_bare("/login", &[("name", name), ("password", password)], headers).await
    };
    for (name, password) in [("ada", "wrong"), ("nobody", "correct horse battery"), ("", "")] {
        let answer = enter(name, password, &[]).await;
        assert_eq!((answer.status, answer.header("set-cookie")), (StatusCode::UNAUTHORIZED, ""), "{name}");
        assert!(answer.body.contains("Wrong name or password."));
    }
    let planted = enter("ada", "correct horse battery", &[("sec-fetch-site", "cross-site")]).await;
    assert_eq!((planted.status, planted.header("set-cookie")), (StatusCode::FORBIDDEN, ""));
    let entered = enter("ada", "correct horse battery", &[]).await;
    assert_eq!((entered.status, entered.header("location")), (StatusCode::SEE_OTHER, "/runs"));
    let mut visitor = world.visitor();
    visitor.keep(&entered);
    assert_eq!(visitor.get("/runs").await.status, StatusCode::OK);
    // Three attempts were wrong, so seven more are allowed in this minute.
    for _ in 0..7 {
        assert_eq!(enter("ada", "wrong", &[]).await.status, StatusCode::UNAUTHORIZED);
    }
    let answer = enter("ada", "correct horse battery", &[]).await;
    assert_eq!((answer.status, answer.header("set-cookie")), (StatusCode::TOO_MANY_REQUESTS, ""));
    assert!(answer.header("retry-after").parse::<u64>().unwrap() <= 60);
}

/// Guessing session cookies is rate-limited, like guessing passwords or keys.
#[tokio::test]
async fn wrong_session_cookies_are_rate_limited() {
    let world = ConsoleWorld::with("127.0.0.1:7800".parse().unwrap(), |options| options.failures_per_minute = 10).await;
    let signed_in = world.signed_in(Role::Viewer).await;
    let guess = async |number: usize| {
        let request = Request::get("/runs").header("cookie", format!("attache_session=cs_{number:064x}"));
        world.visitor().send(request, Body::empty()).await
    };
    let mut answers = Vec::new();
    for number in 0..12 {
        answers.push(guess(number).await.status);
    }
    assert_eq!(answers[..10], [StatusCode::SEE_OTHER; 10]);
    assert_eq!(answers[10..], [StatusCode::TOO_MANY_REQUESTS; 2]);
    // A signed-in browser and a visitor without a cookie are not affected.
    assert_eq!(signed_in.get("/runs").await.status, StatusCode::OK);
    assert_eq!(world.visitor().get("/login").await.status, StatusCode::OK);
}

#[tokio::test]
async fn concurrent_password_attempts_are_counted_before_they_are_checked() {
    let world = ConsoleWorld::new().await;
    let guess = async |number: usize| {
        let password = format!("wrong-guess-{number:04}");
        world.visitor().post_bare("/login", &[("name", "ada"), ("password", &password)], &[]).await.status
    };
    let answers = futures_util::future::join_all((0..40).map(guess)).await;
    let judged = answers.iter().filter(|status| **status != StatusCode::TOO_MANY_REQUESTS).count();
    assert_eq!(judged, 10, "{answers:?}");
}

#[tokio::test]
async fn over_tls_the_cookie_is_bound_to_the_host() {
    let world = ConsoleWorld::new().await;
    let options = attache_console::Options::for_origin("https://hub.example");
    let router = attache_console::router(world.hub.clone(), options);
    let token = world.login_token().await;
    let request = Request::post("/login").header("content-type", "application/x-www-form-urlencoded");
    let request = request.body(axum::body::Body::from(format!("token={token}"))).unwrap();
    let answer = tower::ServiceExt::oneshot(router, request).await.unwrap();
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-attache_session=cs_"), "{cookie}");
    assert!(cookie.ends_with("Path=/; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
}

#[tokio::test]
async fn a_hub_with_tls_sets_secure_cookies_only() {
    let world = ConsoleWorld::with("127.0.0.1:7800".parse().unwrap(), |options| {
        let certificate = attache_hub::Certificate::SelfSigned { names: vec!["localhost".to_owned()] };
        let env = attache_protocol::env::Env::system();
        options.tls = Some(attache_hub::Tls::open(&options.data, certificate, &env).unwrap());
    })
    .await;
    let token = world.login_token().await;
    let mut visitor = world.visitor();
    let entered = visitor.post_bare("/login", &[("token", &token)], &[("origin", "https://127.0.0.1:7800")]).await;
    assert_eq!(entered.status, StatusCode::SEE_OTHER);
    let cookie = entered.header("set-cookie");
    assert!(cookie.starts_with("__Host-attache_session=cs_"), "{cookie}");
    assert!(cookie.ends_with("Path=/; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
    // A cookie that plain HTTP could have set is not accepted.
    let secret = crate::world::between(cookie, "__Host-attache_session=", ";").to_owned();
    let plain = Request::get("/runs").header("cookie", format!("attache_session={secret}"));
    assert_eq!(visitor.send(plain, axum::body::Body::empty()).await.status, StatusCode::SEE_OTHER);
    visitor.keep(&entered);
    assert_eq!(visitor.get("/runs").await.status, StatusCode::OK);
}

/// Every POST path of the console, with placeholder parameters.
fn forms() -> Vec<String> {
    let routes = include_str!("../../src/page/mod.rs");
    let taking = routes.lines().map(str::trim).filter(|line| line.starts_with(".route(") && line.contains("post("));
    taking
        .map(|line| {
            let path = crate::world::between(line, ".route(\"", "\"");
            let segments = path.split('/').map(|segment| if segment.starts_with('{') { "x" } else { segment });
            segments.collect::<Vec<_>>().join("/")
        })
        .collect()
}

#[tokio::test]
async fn every_form_requires_the_csrf_token_of_its_session() {
    let world = ConsoleWorld::new().await;
    let visitor = world.signed_in(Role::Owner).await;
    let forms = forms();
    assert!(forms.len() > 12 && forms.contains(&"/settings/keys".to_owned()), "{forms:?}");
    for path in forms {
        let answer = visitor.post_bare(&path, &[("csrf", "0"), ("token", "lt_0")], &[]).await;
        let expected = match path.as_str() {
            // The login form has no session yet. The link itself is the proof.
            "/login" => StatusCode::UNAUTHORIZED,
            // The language is the browser's, not the session's.
            "/language" => StatusCode::BAD_REQUEST,
            _ => StatusCode::FORBIDDEN,
        };
        assert_eq!(answer.status, expected, "{path}");
        let headers = [("sec-fetch-site", "cross-site")];
        assert_eq!(visitor.post_bare(&path, &[], &headers).await.status, StatusCode::FORBIDDEN, "{path}");
        let stranger = world.visitor().post_bare(&path, &[("csrf", "0")], &[]).await;
        assert_ne!(stranger.status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn every_page_requires_a_session() {
    let world = ConsoleWorld::new().await;
    let visitor = world.visitor();
    for path in ["/runs", "/agents", "/audit", "/settings", "/pair?code=ABCD-EFGH", "/runs/new", "/live"] {
        let answer = visitor.get(path).await;
        assert_eq!((answer.status, answer.header("location")), (StatusCode::SEE_OTHER, "/login"), "{path}");
    }
    let module = Request::get("/runs/rows").header("sec-fetch-mode", "cors");
    assert_eq!(visitor.send(module, axum::body::Body::empty()).await.status, StatusCode::UNAUTHORIZED);
    let stream = Request::get("/live").header("accept", "text/event-stream");
    assert_eq!(visitor.send(stream, axum::body::Body::empty()).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_form_of_another_session_or_site_changes_nothing() {
    let world = ConsoleWorld::new().await;
    let (mine, theirs) = (world.signed_in(Role::Owner).await, world.signed_in(Role::Owner).await);
    let page = theirs.get("/settings").await;
    let foreign = crate::world::between(&page.body, "name=\"csrf\" value=\"", "\"").to_owned();
    for token in ["", "x", &foreign] {
        let answer = mine.post_bare("/agents", &[("name", "planted"), ("csrf", token)], &[]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        assert!(answer.body.contains("This form has expired"));
    }
    let page = mine.get("/settings").await;
    let own = crate::world::between(&page.body, "name=\"csrf\" value=\"", "\"").to_owned();
    for header in [("sec-fetch-site", "cross-site"), ("origin", "http://evil.example"), ("origin", "null")] {
        let answer = mine.post_bare("/agents", &[("name", "planted"), ("csrf", &own)], &[header]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{header:?}");
    }
    let token = world.login_token().await;
    let headers = [("sec-fetch-site", "cross-site")];
    let planted = world.visitor().post_bare("/login", &[("token", &token)], &headers).await;
    assert_eq!((planted.status, planted.header("set-cookie")), (StatusCode::FORBIDDEN, ""));
    let agents = world.hub.accounts(&world.owner, attache_hub::control::PageRequest::default()).await.unwrap();
    assert_eq!(agents.agent_accounts, []);
    // With its own token and origin it works.
    let headers = [("origin", "http://127.0.0.1:7800"), ("sec-fetch-site", "same-origin")];
    let answer = mine.post_bare("/agents", &[("name", "builder"), ("csrf", &own)], &headers).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
}

/// Whoever has a link for their own account could otherwise have a page switch everybody who opens it into it.
#[tokio::test]
async fn only_a_link_that_a_person_opens_submits_itself() {
    let world = ConsoleWorld::new().await;
    let token = world.login_token().await;
    let visitor = world.visitor();
    for (site, submits) in [
        (Some("none"), true),
        (Some("cross-site"), false),
        (Some("same-site"), false),
        (Some("same-origin"), false),
        (None, false),
    ] {
        let mut request = Request::get(format!("/login?token={token}"));
        if let Some(site) = site {
            request = request.header("sec-fetch-site", site);
        }
        let page = visitor.send(request, Body::empty()).await.body;
        assert_eq!(page.contains("data-submit"), submits, "{site:?}");
        assert!(page.contains("name=\"token\"") && !page.contains("data-ask-again"), "{site:?}: {page}");
    }
}
