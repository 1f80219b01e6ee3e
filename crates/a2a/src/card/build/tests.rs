//! Complete cards.

use attache_protocol::{
    Timestamp,
    env::Env,
    wire::{
        a2a_options::ExtensionOption,
        account::{Callers, Presence},
    },
};
use serde_json::{Value, json};

use super::*;

fn account(name: &str) -> Account {
    Account {
        agent_id: Env::seeded(1).agent_id(),
        name: name.to_owned(),
        status: Presence::Offline,
        description: None,
        instructions: Some("never shown".to_owned()),
        skills: Vec::new(),
        a2a: None,
        peer: None,
        approvals: None,
        owner_id: None,
        settings_by_owner: false,
        callers: Callers::Everyone,
        run_timeout_ms: None,
        on_limit: attache_protocol::wire::account::OnLimit::default(),
        confirm_approvals: attache_protocol::wire::account::ApprovalConfirmation::default(),
        runtime: None,
        created_at: Timestamp::from_millis(0),
        archived_at: None,
        ended: Vec::new(),
    }
}

fn place(origin: &str, client_certificates: ClientCertificates) -> CardHubInfo {
    CardHubInfo { origin: origin.to_owned(), version: "1.2.3".to_owned(), client_certificates }
}

fn facts<'a>(account: &'a Account, switches: &'a A2aOptions, place: &'a CardHubInfo) -> CardFacts<'a> {
    CardFacts { account, switches, declared: &[], place, standing: DefaultAgent::Named }
}

fn written(facts: &CardFacts<'_>) -> Value {
    serde_json::to_value(card(facts)).unwrap()
}

#[test]
fn a_minimal_account_has_a_complete_card() {
    let (account, switches) = (account("echo"), A2aOptions::default());
    let place = place("http://127.0.0.1:7800", ClientCertificates::Ignored);
    let base = "http://127.0.0.1:7800/a2a/echo";
    assert_eq!(
        written(&facts(&account, &switches, &place)),
        json!({
            "name": "echo",
            "description": "The agent echo.",
            "supportedInterfaces": [
                {"url": base, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
                {"url": base, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
                {"url": "127.0.0.1:7800", "protocolBinding": "GRPC", "tenant": "echo", "protocolVersion": "1.0"},
                {"url": base, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
                {"url": base, "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
            ],
            "version": "1.2.3",
            "capabilities": {
                "streaming": true,
                "pushNotifications": true,
                "extensions": [{
                    "uri": EVENTS,
                    "description": "Updates carry their event number, so that clients can detect gaps and duplicates.",
                    "params": {"generation": true},
                }],
                "extendedAgentCard": true,
            },
            "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {
                "scheme": "Bearer",
                "bearerFormat": "API key or JWT",
                "description": "An API key of the hub (ak_…), or a short-lived token created with one.",
            }}},
            "securityRequirements": [{"schemes": {"bearer": {"list": ["call"]}}}],
            "defaultInputModes": ["text/plain", "application/json", "*/*"],
            "defaultOutputModes": ["text/plain", "application/json", "*/*"],
            "skills": [{
                "id": "chat",
                "name": "Chat",
                "description": "Takes a task in plain language and answers it.",
                "tags": ["chat"],
            }],
        })
    );
}

#[test]
fn the_owner_disables_features_and_adds_others() {
    let mut account = account("builder");
    account.description = Some("Builds things.".to_owned());
    account.skills = vec![Skill {
        id: "rust".to_owned(),
        name: "Rust".to_owned(),
        description: String::new(),
        tags: vec!["code".to_owned()],
    }];
    let required = ExtensionOption {
        uri: "https://example.org/ext/v1".to_owned(),
        description: None,
        required: true,
        params: Some(Json::from_text(r#"{"n":42.0}"#).unwrap()),
    };
    let switches = A2aOptions {
        anonymous: true,
        streaming: Some(false),
        push: Some(false),
        extended_card: Some(false),
        extensions: vec![required.clone()],
        input_modes: vec!["image/*".to_owned()],
        output_modes: vec!["text/plain".to_owned()],
        ..A2aOptions::default()
    };
    let place = place("https://hub.example", ClientCertificates::Asked);
    let awcp = runtime::DeclaredExtension {
        uri: "https://awcp-protocol.org/v1".to_owned(),
        params: Some(
            Json::from_text(r#"{"transports":["sftp"],"max_ttl_seconds":3600,"access_modes":["rw"]}"#).unwrap(),
        ),
    };
    let again = runtime::DeclaredExtension { uri: required.uri, params: None };
    let declared = [awcp, again];
    let facts =
        CardFacts { declared: &declared, standing: DefaultAgent::Default, ..facts(&account, &switches, &place) };
    let card = written(&facts);
    assert_eq!(card["description"], "Builds things.");
    assert_eq!(
        card["supportedInterfaces"][5],
        json!({"url": "hub.example:443", "protocolBinding": "GRPC", "protocolVersion": "0.3"})
    );
    assert_eq!(card["supportedInterfaces"][2]["url"], "hub.example:443");
    let extensions = card["capabilities"]["extensions"].as_array().unwrap();
    assert_eq!(card["capabilities"].as_object().unwrap().len(), 1, "what is off is not written");
    assert_eq!(extensions.len(), 3, "{extensions:?}");
    assert_eq!(extensions[0], json!({"uri": "https://example.org/ext/v1", "required": true, "params": {"n": 42.0}}));
    assert_eq!(
        extensions[2],
        json!({
            "uri": "https://awcp-protocol.org/v1",
            "required": false,
            "params": {"transports": ["sftp"], "max_ttl_seconds": 3600, "access_modes": ["rw"]},
        })
    );
    assert_eq!(card["skills"], json!([{"id": "rust", "name": "Rust", "description": "Rust", "tags": ["code"]}]));
    assert_eq!(card.get("securityRequirements"), None, "whoever asks is served");
    let kinds: Vec<&String> =
        card["securitySchemes"].as_object().unwrap().values().flat_map(|it| it.as_object().unwrap().keys()).collect();
    assert_eq!(kinds, ["httpAuthSecurityScheme", "mtlsSecurityScheme"]);
    assert_eq!(
        [&card["defaultInputModes"], &card["defaultOutputModes"]],
        [&json!(["image/*"]), &json!(["text/plain"])]
    );
}

#[test]
fn either_a_key_or_a_certificate_is_enough() {
    let (account, switches) = (account("echo"), A2aOptions::default());
    let place = place("https://hub.example", ClientCertificates::Asked);
    assert_eq!(
        written(&facts(&account, &switches, &place))["securityRequirements"],
        json!([{"schemes": {"bearer": {"list": ["call"]}}}, {"schemes": {"mtls": {"list": ["call"]}}}])
    );
}

#[test]
fn no_member_is_empty_or_default() {
    fn check(value: &Value, path: &str) {
        match value {
            Value::Null => panic!("{path} is null"),
            Value::Bool(yes) => assert!(*yes, "{path} is false"),
            Value::Number(_) => {}
            Value::String(text) => assert!(!text.is_empty(), "{path} is empty"),
            Value::Array(entries) => {
                assert!(!entries.is_empty(), "{path} is empty");
                entries.iter().for_each(|entry| check(entry, path));
            }
            Value::Object(members) => {
                assert!(!members.is_empty(), "{path} is empty");
                members.iter().for_each(|(name, member)| check(member, &format!("{path}.{name}")));
            }
        }
    }
    for certificates in [ClientCertificates::Ignored, ClientCertificates::Asked] {
        for anonymous in [false, true] {
            let (mut account, switches) = (account("echo"), A2aOptions { anonymous, ..A2aOptions::default() });
            account.description = Some("  ".to_owned());
            check(&written(&facts(&account, &switches, &place("http://[::1]:80", certificates))), "card");
        }
    }
}

#[test]
fn grpc_is_dialled_by_host_and_port() {
    for (origin, wanted) in [
        ("http://127.0.0.1:7800", "127.0.0.1:7800"),
        ("https://hub.example", "hub.example:443"),
        ("http://hub.example", "hub.example:80"),
        ("https://[fd00::1]", "[fd00::1]:443"),
        ("https://[fd00::1]:8443", "[fd00::1]:8443"),
    ] {
        assert_eq!(target(origin), wanted);
    }
}

#[test]
fn the_card_lists_the_bindings_the_owner_chose() {
    let (account, place) = (account("echo"), place("http://127.0.0.1:7800", ClientCertificates::Ignored));
    let bindings = |names: &[&str]| {
        let bindings = names.iter().map(|name| (*name).to_owned()).collect();
        let switches = A2aOptions { bindings, ..A2aOptions::default() };
        let facts = CardFacts { standing: DefaultAgent::Default, ..facts(&account, &switches, &place) };
        let card = written(&facts);
        let interfaces = card["supportedInterfaces"].as_array().unwrap().iter();
        let shown = |it: &Value| {
            format!("{} {}", it["protocolBinding"].as_str().unwrap(), it["protocolVersion"].as_str().unwrap())
        };
        interfaces.map(shown).collect::<Vec<_>>()
    };
    assert_eq!(bindings(&["JSONRPC"]), ["JSONRPC 1.0", "JSONRPC 0.3"]);
    assert_eq!(bindings(&["GRPC", "HTTP+JSON"]), ["HTTP+JSON 1.0", "GRPC 1.0", "HTTP+JSON 0.3", "GRPC 0.3"]);
    assert_eq!(bindings(&[]).len(), 6);
}
