//! Handshake, server info, tools and invalid input in every era of the protocol.

use serde_json::{Value, json};

use crate::{
    fakes::FakeDaemon,
    pipe::{McpEra, McpPipe, options},
};

async fn tools(era: McpEra) -> Vec<Value> {
    let mut pipe = McpPipe::open(era, options()).await;
    let answer = pipe.ask("tools/list", json!({})).await;
    answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

#[tokio::test]
async fn every_legacy_version_is_accepted_and_the_server_identifies_itself() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut pipe = McpPipe::silent(&FakeDaemon::default(), McpEra::Legacy, options());
        let answer = pipe.initialize(version).await;
        let result = &answer["result"];
        assert_eq!(result["protocolVersion"], version);
        let about = json!({ "name": "attache", "title": "Attaché", "version": env!("CARGO_PKG_VERSION") });
        assert_eq!(result["serverInfo"], about);
        assert_eq!(result["capabilities"], json!({ "logging": {}, "resources": {}, "tools": {} }));
        assert!(result["instructions"].as_str().unwrap().contains("delegate_output"), "{result}");
        assert_eq!(pipe.close().await, Ok(()));
    }
}

#[tokio::test]
async fn the_new_era_needs_no_handshake() {
    let mut pipe = McpPipe::open(McpEra::Modern, options()).await;
    let answer = pipe.ask("server/discover", json!({})).await;
    let versions = answer["result"]["supportedVersions"].as_array().unwrap_or_else(|| panic!("{answer}"));
    assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-06-18")), "{answer}");
    assert!(answer["result"]["instructions"].as_str().unwrap().contains("remote_agent"), "{answer}");
    let unknown = pipe.ask("nonsense/method", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let ping = pipe.ask("ping", json!({})).await;
    assert_eq!(ping["error"]["code"], -32601, "{ping}");
}

#[tokio::test]
async fn both_eras_offer_the_same_tools() {
    let legacy = tools(McpEra::Legacy).await;
    let names: Vec<_> = legacy.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["delegate", "delegate_output", "delegate_cancel", "remote_agent", "remote_cancel", "list_agents"]
    );
    assert_eq!(tools(McpEra::Modern).await, legacy);
}

#[tokio::test]
async fn schemas_are_simple_and_list_required_arguments() {
    let tools = tools(McpEra::Legacy).await;
    for tool in &tools {
        let name = &tool["name"];
        for schema in [&tool["inputSchema"], &tool["outputSchema"]] {
            assert_eq!(schema["type"], "object", "{name}");
            let text = schema.to_string();
            for odd in ["\"format\"", "$ref", "$schema", "\"null\"", "anyOf"] {
                assert!(!text.contains(odd), "{name} has {odd}: {text}");
            }
            assert!(jsonschema::meta::is_valid(schema), "{name}: {text}");
        }
        assert!(tool["description"].as_str().unwrap().len() > 80 && tool["title"].is_string(), "{tool}");
    }
    let delegate = &tools[0]["inputSchema"];
    assert_eq!(delegate["required"], json!(["description", "prompt", "peer_url", "workspace_dir"]));
    assert_eq!(delegate["properties"]["access_mode"]["enum"], json!(["ro", "rw"]), "{delegate}");
    assert_eq!(delegate["properties"]["background"]["type"], "boolean");
    assert_eq!(delegate["properties"]["ttl_seconds"]["type"], "number");
    let output = &tools[0]["outputSchema"];
    assert_eq!(output["required"], json!(["output", "metadata"]));
    let remote = &tools[3];
    assert_eq!(remote["inputSchema"].get("required"), None, "a call is begun, waited for or answered: {remote}");
    assert_eq!(remote["outputSchema"]["required"], json!(["output", "metadata"]));
    let hints = |at: usize, hint: &str| tools[at]["annotations"][hint].clone();
    assert_eq!([hints(0, "openWorldHint"), hints(0, "destructiveHint")], [json!(true), json!(true)]);
    assert_eq!([hints(1, "readOnlyHint"), hints(5, "readOnlyHint")], [json!(true), json!(true)]);
    assert_eq!(hints(2, "idempotentHint"), json!(true));
}

#[tokio::test]
async fn invalid_lines_get_an_error_and_the_session_continues() {
    let mut pipe = McpPipe::open(McpEra::Legacy, options()).await;
    for (line, id, code, says) in [
        ("{nonsense", Value::Null, -32700, "The line is not JSON"),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Value::Null, -32600, "Batches are not supported"),
        ("7", Value::Null, -32600, "A message must be a JSON object"),
        (r#"{"jsonrpc":"2.0","id":7}"#, json!(7), -32600, "neither `method`"),
        (r#"{"jsonrpc":"2.0","id":8,"method":"nonsense"}"#, json!(8), -32601, "Method `nonsense` is not supported."),
    ] {
        pipe.send_text(line).await;
        let answer = pipe.read().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{line}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(says), "{answer}");
    }
    pipe.send_text("").await;
    assert_eq!(pipe.ask("ping", json!({})).await["result"], json!({}));
    assert_eq!(pipe.close().await, Ok(()));
}

#[tokio::test]
async fn a_client_that_does_not_speak_mcp_is_disconnected() {
    let mut pipe = McpPipe::silent(&FakeDaemon::default(), McpEra::Legacy, options());
    pipe.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let ended = pipe.close().await;
    assert!(ended.as_ref().is_err_and(|error| error.starts_with("the client does not speak MCP")), "{ended:?}");
}
