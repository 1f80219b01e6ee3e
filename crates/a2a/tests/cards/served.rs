//! Where cards are, who sees them, and how they are kept.

use attache_protocol::{Code, Json, wire::account::AccountRequest};
use reqwest::{Client, Method};
use serde_json::json;

use super::{CardAnswer, agent, bearer, get, world};

const CARD: &str = "/a2a/echo/.well-known/agent-card.json";

#[tokio::test]
async fn a_card_is_where_clients_look_for_it() {
    let world = world().on_sqlite().agent("echo").agent("other").tuned(|options| {
        options.default_agent = Some("echo".to_owned());
    });
    let world = world.start().await;
    let card = get(&world, CARD, &[("a2a-version", "1.0")]).await.expect(200);
    assert_eq!(card["name"], "echo");
    assert_eq!(card["supportedInterfaces"][0]["url"], format!("{}/a2a/echo", world.url));
    assert_eq!(card["supportedInterfaces"].as_array().unwrap().len(), 6, "the default agent also speaks 0.3 over gRPC");
    for path in ["/.well-known/agent-card.json", "/.well-known/agent.json", "/a2a/echo/.well-known/agent.json"] {
        assert_eq!(get(&world, path, &[("a2a-version", "1.0")]).await.expect(200), card, "{path}");
    }
    let id = world.hub.account(&world.owner, "echo").await.unwrap().agent_id;
    let by_id = get(&world, &format!("/a2a/{id}/.well-known/agent-card.json?A2A-Version=1.0"), &[]).await;
    assert_eq!(by_id.expect(200), card, "an id names an agent too, and the version may stand in the query");
    let other = get(&world, "/a2a/other/.well-known/agent-card.json", &[("a2a-version", "1.0")]).await.expect(200);
    assert_eq!(other["supportedInterfaces"].as_array().unwrap().len(), 5);
    world.stop().await;
}

#[tokio::test]
async fn the_root_has_a_card_when_it_is_clear_whose() {
    let world = world().start().await;
    let missing = get(&world, "/.well-known/agent-card.json", &[]).await;
    assert_eq!(missing.expect(404)["error"]["code"], "not_found");
    agent(&world, "one", json!({})).await;
    assert_eq!(get(&world, "/.well-known/agent-card.json", &[]).await.expect(200)["name"], "one");
    agent(&world, "two", json!({})).await;
    get(&world, "/.well-known/agent-card.json", &[]).await.expect(404);
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_has_the_card_does_not_fetch_it_again() {
    let world = world().agent("echo").start().await;
    let first = get(&world, CARD, &[]).await;
    first.expect(200);
    assert_eq!(first.header("content-type"), "application/json");
    assert_eq!(first.header("cache-control"), "public, max-age=60");
    assert_eq!(first.header("vary"), "A2A-Version, Authorization");
    assert!(!first.headers.contains_key("access-control-allow-origin"));
    let (tag, date) = (first.header("etag"), first.header("last-modified"));
    assert!(date.ends_with(" GMT"), "{date}");
    let again = get(&world, CARD, &[]).await;
    assert_eq!((again.body.as_str(), again.header("etag")), (first.body.as_str(), tag), "it is not signed again");
    let weak = format!("\"other\", W/{tag}");
    for (name, value) in
        [("if-none-match", tag), ("if-none-match", &weak), ("if-none-match", "*"), ("if-modified-since", date)]
    {
        let known = get(&world, CARD, &[(name, value)]).await;
        assert_eq!((known.status, known.body.as_str(), known.header("etag")), (304, "", tag), "{name}: {value}");
    }
    let before = "Sun, 06 Nov 1994 08:49:37 GMT";
    for headers in [
        &[("if-none-match", "\"other\"")][..],
        &[("if-modified-since", before)],
        &[("if-modified-since", "yesterday")],
        &[("if-none-match", "\"other\""), ("if-modified-since", date)],
    ] {
        assert_eq!(get(&world, CARD, headers).await.status, 200, "{headers:?}");
    }
    let head = Client::new().request(Method::HEAD, format!("{}{CARD}", world.url)).send().await.unwrap();
    let head = CardAnswer::of(head).await;
    assert_eq!((head.status, head.body.as_str(), head.header("etag")), (200, "", tag));
    assert_eq!(head.header("content-length"), first.body.len().to_string());

    let change = AccountRequest { description: Some("New.".to_owned()), ..AccountRequest::default() };
    world.hub.update_account(&world.owner, "echo", change).await.unwrap();
    let changed = get(&world, CARD, &[("if-none-match", tag)]).await;
    assert_eq!(changed.expect(200)["description"], "New.");
    assert_ne!(changed.header("etag"), tag);
    let changed = get(&world, CARD, &[("if-modified-since", date)]).await;
    assert_eq!(changed.status, 200, "also within the second in which it was made");
    world.stop().await;
}

#[tokio::test]
async fn a_hidden_agent_is_not_there_for_strangers() {
    let world = world().start().await;
    agent(&world, "open", json!({})).await;
    agent(&world, "secret", json!({"hidden": true})).await;
    let owner = bearer(&world);
    let path = |name: &str| format!("/a2a/{name}/.well-known/agent-card.json");
    let hidden = get(&world, &path("secret"), &[]).await;
    let missing = get(&world, &path("nobody"), &[]).await;
    assert_eq!((hidden.status, &hidden.body), (missing.status, &missing.body));
    assert_eq!(hidden.expect(404)["error"]["code"], "not_found");
    let seen = get(&world, &path("secret"), &[("authorization", &owner)]).await;
    assert_eq!(seen.expect(200)["name"], "secret");
    assert_eq!(seen.header("cache-control"), "private, max-age=60");

    let device = world.device("open").await;
    let stranger = [("x-runtime-token", device.runtime_token.as_str())];
    assert_eq!(get(&world, &path("secret"), &stranger).await.body, missing.body);
    let own = world.device("secret").await;
    let itself = [("x-runtime-token", own.runtime_token.as_str())];
    assert_eq!(get(&world, &path("secret"), &itself).await.expect(200)["name"], "secret");

    for name in ["open", "secret", "nobody"] {
        let wrong = get(&world, &path(name), &[("authorization", "Bearer ak_wrong")]).await;
        assert_eq!(wrong.expect(401)["error"]["code"], "unauthenticated", "a wrong credential is never ignored");
    }
    world.hub.archive_account(&world.owner, "open").await.unwrap();
    get(&world, &path("open"), &[]).await.expect(404);
    world.stop().await;
}

#[tokio::test]
async fn the_catalogue_lists_what_the_caller_may_see() {
    for world in [world(), world().on_sqlite()] {
        let world = world.start().await;
        agent(&world, "open", json!({})).await;
        agent(&world, "secret", json!({"hidden": true})).await;
        let describe = AccountRequest { description: Some("Opens.".to_owned()), ..AccountRequest::default() };
        world.hub.update_account(&world.owner, "open", describe).await.unwrap();
        let path = "/.well-known/ai-catalog.json";
        let host = world.url.strip_prefix("http://").unwrap();
        let open = json!({
            "identifier": format!("urn:air:{host}:open"),
            "displayName": "open",
            "description": "Opens.",
            "type": "application/a2a-agent-card+json",
            "url": format!("{}/a2a/open/.well-known/agent-card.json", world.url),
        });
        let anonymous = get(&world, path, &[]).await;
        assert_eq!(
            anonymous.expect(200),
            json!({
                "specVersion": "1.0",
                "host": {"displayName": format!("Attaché at {host}"), "identifier": world.url},
                "entries": [open],
            })
        );
        assert_eq!(anonymous.header("cache-control"), "public, max-age=60");
        let tag = anonymous.header("etag");
        assert_eq!(get(&world, path, &[("if-none-match", tag)]).await.status, 304);
        let owner = get(&world, path, &[("authorization", &bearer(&world))]).await;
        let names: Vec<_> =
            owner.expect(200)["entries"].as_array().unwrap().iter().map(|it| it["displayName"].clone()).collect();
        assert_eq!(
            (names, owner.header("cache-control")),
            (vec![json!("open"), json!("secret")], "private, max-age=60")
        );
        assert_eq!(get(&world, path, &[("authorization", "Bearer ak_wrong")]).await.status, 401);
        let url = open["url"].as_str().unwrap().strip_prefix(&world.url).unwrap().to_owned();
        assert_eq!(get(&world, &url, &[]).await.expect(200)["name"], "open");
        world.stop().await;
    }
}

#[tokio::test]
async fn the_public_url_is_in_the_card_and_other_sites_get_nothing() {
    let world = world().agent("echo").tuned(|options| options.public_url = Some("https://hub.example/".to_owned()));
    let world = world.start().await;
    let card = get(&world, CARD, &[("a2a-version", "1.0")]).await.expect(200);
    let urls: Vec<_> = card["supportedInterfaces"].as_array().unwrap().iter().map(|it| it["url"].clone()).collect();
    let base = "https://hub.example/a2a/echo";
    assert_eq!(urls, [base, base, "hub.example:443", base, base]);
    let foreign = get(&world, CARD, &[("origin", "https://elsewhere.example")]).await;
    assert_eq!(foreign.expect(403)["error"]["code"], "foreign_origin");
    world.stop().await;
}

#[tokio::test]
async fn switches_that_cannot_be_read_are_refused() {
    let world = world().agent("echo").start().await;
    let odd = Json::from_text(r#"{"hidden":true,"streaming":"perhaps"}"#).unwrap();
    let odd = AccountRequest { a2a: Some(odd), ..AccountRequest::default() };
    let refused = world.hub.update_account(&world.owner, "echo", odd).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidRequest);
    assert!(refused.message.starts_with("`a2a` is invalid: invalid type"), "{}", refused.message);
    get(&world, CARD, &[]).await.expect(200);
    for path in ["/a2a/%00/.well-known/agent-card.json", "/a2a/A%20B/.well-known/agent-card.json"] {
        get(&world, path, &[]).await.expect(404);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_client_gets_the_card_of_its_version() {
    let world = world().agent("echo").start().await;
    agent(&world, "strict", json!({"union_card": false})).await;
    let base = format!("{}/a2a/echo", world.url);
    let pure = get(&world, CARD, &[("a2a-version", "1.0")]).await.expect(200);
    let old = get(&world, CARD, &[("a2a-version", "0.3")]).await.expect(200);
    assert_eq!(
        old,
        json!({
            "protocolVersion": "0.3.0",
            "name": "echo",
            "description": "The agent echo.",
            "url": base,
            "preferredTransport": "JSONRPC",
            "additionalInterfaces": [{"url": base, "transport": "JSONRPC"}, {"url": base, "transport": "HTTP+JSON"}],
            "version": pure["version"],
            "capabilities": {
                "streaming": true,
                "pushNotifications": true,
                "extensions": pure["capabilities"]["extensions"],
            },
            "securitySchemes": {"bearer": {
                "type": "http",
                "scheme": "Bearer",
                "bearerFormat": "API key or JWT",
                "description": "An API key of the hub (ak_…), or a short-lived token created with one.",
            }},
            "security": [{"bearer": ["call"]}],
            "defaultInputModes": pure["defaultInputModes"],
            "defaultOutputModes": pure["defaultOutputModes"],
            "skills": pure["skills"],
            "supportsAuthenticatedExtendedCard": true,
        })
    );
    for path in [CARD, "/a2a/echo/.well-known/agent.json"] {
        let both = get(&world, path, &[]).await.expect(200);
        for card in [&pure, &old] {
            for (name, member) in card.as_object().unwrap() {
                if !["signatures", "securitySchemes"].contains(&name.as_str()) {
                    let same = [&pure, &old].iter().any(|card| card.get(name) == both.get(name));
                    assert!(same || name == "capabilities", "{name}: {member} became {}", both[name]);
                }
            }
        }
        let scheme = &both["securitySchemes"]["bearer"];
        assert_eq!([&scheme["type"], &scheme["httpAuthSecurityScheme"]["scheme"]], ["http", "Bearer"]);
        assert_eq!(both["signatures"].as_array().unwrap().len(), 1);
    }
    for (place, is_new) in [("agent-card.json", true), ("agent.json", false)] {
        let card = get(&world, &format!("/a2a/strict/.well-known/{place}"), &[]).await.expect(200);
        let found = [card.get("supportedInterfaces").is_some(), card.get("url").is_some()];
        assert_eq!(found, [is_new, !is_new], "{place}");
    }
    world.stop().await;
}
