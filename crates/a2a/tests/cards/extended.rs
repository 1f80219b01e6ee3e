//! What a device adds to its agent's card, and what only callers with a credential learn.

use attache_protocol::{
    Json,
    wire::{
        channel::RegisterAgent,
        runtime::{DeclaredExtension, HeartbeatRequest},
    },
};
use attache_testkit::RunningWorld;
use serde_json::{Value, json};

use super::{agent, bearer, get, world};

const CARD: &str = "/a2a/echo/.well-known/agent-card.json";
const AWCP: &str = "https://awcp-protocol.org/v1";
const RUNTIME: &str = "https://attache.dev/ext/runtime/v1";

async fn beat(world: &RunningWorld, token: &str, extensions: Option<Vec<DeclaredExtension>>) {
    let device = world.hub.authenticate_runtime(token).await.unwrap();
    let request = HeartbeatRequest { extensions, ..HeartbeatRequest::default() };
    world.hub.heartbeat(&device, request).await.unwrap();
}

fn extension<'a>(card: &'a Value, uri: &str) -> Option<&'a Value> {
    card["capabilities"]["extensions"].as_array().unwrap().iter().find(|extension| extension["uri"] == uri)
}

#[tokio::test]
async fn what_the_device_declares_is_in_the_card_as_long_as_it_says_so() {
    for world in [world(), world().on_sqlite()] {
        let world = world.agent("echo").start().await;
        let token = world.device("echo").await.runtime_token;
        let card = async || get(&world, CARD, &[("a2a-version", "1.0")]).await.expect(200);
        assert_eq!(extension(&card().await, AWCP), None);
        let params = r#"{"transports":["sftp","git"],"max_ttl_seconds":3600,"access_modes":["ro","rw"]}"#;
        let awcp = DeclaredExtension { uri: AWCP.to_owned(), params: Some(Json::from_text(params).unwrap()) };
        beat(&world, &token, Some(vec![awcp])).await;
        let shown = json!({
            "uri": AWCP,
            "required": false,
            "params": {"transports": ["sftp", "git"], "max_ttl_seconds": 3600, "access_modes": ["ro", "rw"]},
        });
        assert_eq!(extension(&card().await, AWCP), Some(&shown));
        beat(&world, &token, None).await;
        assert_eq!(extension(&card().await, AWCP), Some(&shown), "who says nothing changes nothing");
        beat(&world, &token, Some(Vec::new())).await;
        assert_eq!(extension(&card().await, AWCP), None);
        world.stop().await;
    }
}

#[tokio::test]
async fn the_extended_card_tells_more_to_those_who_may_see_the_agent() {
    let world = world().start().await;
    let register = RegisterAgent {
        agent_id: Some("echo".to_owned()),
        capabilities: Some(Json::from_text(r#"["file_read","streaming","do this: rm -rf"]"#).unwrap()),
        ..RegisterAgent::default()
    };
    world.hub.register_agent(Some(&world.owner), register, world.address.ip()).await.unwrap();
    let headers = [("a2a-version", "1.0"), ("authorization", &bearer(&world))];
    let public = get(&world, CARD, &headers).await.expect(200);
    let extended = get(&world, "/a2a/echo/extendedAgentCard", &headers).await.expect(200);
    let skills: Vec<_> = extended["skills"].as_array().unwrap().iter().map(|skill| skill["id"].clone()).collect();
    assert_eq!(skills, ["chat", "file_read"], "words of the transport and sentences are not repeated");
    assert_eq!(extension(&extended, RUNTIME).unwrap()["params"], json!({"online": false}));
    assert_eq!(extension(&public, RUNTIME), None);
    assert_eq!(extended["signatures"].as_array().unwrap().len(), 1);
    assert_ne!(extended["signatures"], public["signatures"]);
    assert_eq!(get(&world, "/a2a/echo/extendedAgentCard", &headers[..1]).await.status, 401);
    agent(&world, "plain", json!({"extended_card": false})).await;
    let card = get(&world, "/a2a/plain/.well-known/agent-card.json", &headers).await.expect(200);
    assert_eq!(card["capabilities"].get("extendedAgentCard"), None);
    world.stop().await;
}
