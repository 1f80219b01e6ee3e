//! Reads an agent card of either A2A version into the 1.0 model.

use std::collections::BTreeMap;

use attache_a2a_wire::{
    AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill, CardCapabilities,
    SecurityRequirement, SecurityScheme, StringList,
};
use attache_protocol::{Json, json::Members};
use serde::Deserialize;

/// The parts of a 0.3 card that a caller needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldCard {
    name: String,
    #[serde(default)]
    description: String,
    url: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    protocol_version: Option<String>,
    #[serde(default)]
    preferred_transport: Option<String>,
    #[serde(default)]
    additional_interfaces: Option<Vec<OldCardInterface>>,
    #[serde(default)]
    provider: Option<AgentProvider>,
    #[serde(default)]
    documentation_url: Option<String>,
    #[serde(default)]
    icon_url: Option<String>,
    #[serde(default)]
    capabilities: Option<OldCardCapabilities>,
    #[serde(default)]
    default_input_modes: Option<Vec<String>>,
    #[serde(default)]
    default_output_modes: Option<Vec<String>>,
    #[serde(default)]
    skills: Option<Vec<AgentSkill>>,
    #[serde(default)]
    security: Option<Vec<BTreeMap<String, Vec<String>>>>,
    #[serde(default)]
    security_schemes: Option<BTreeMap<String, Json>>,
    #[serde(default)]
    supports_authenticated_extended_card: Option<bool>,
    #[serde(default)]
    signatures: Option<Vec<AgentCardSignature>>,
}

#[derive(Deserialize)]
struct OldCardInterface {
    url: String,
    transport: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldCardCapabilities {
    #[serde(default)]
    streaming: Option<bool>,
    #[serde(default)]
    push_notifications: Option<bool>,
    #[serde(default)]
    extensions: Option<Vec<AgentExtension>>,
}

/// The default of `preferredTransport`.
const DEFAULT_TRANSPORT: &str = "JSONRPC";
const DEFAULT_VERSION: &str = "0.3";

/// Parses a stored card, kept as it was served.
pub fn read(text: &Json) -> Option<AgentCard> {
    parse(text).ok()
}

/// A card with `supportedInterfaces` is a 1.0 card, whatever older members it keeps for older readers.
pub(super) fn parse(text: &Json) -> Result<AgentCard, serde_json::Error> {
    let members: Members = text.parse()?;
    let is_new = |name: &str| members.find(name).is_some_and(|list| !matches!(list.get(), "null" | "[]"));
    if is_new("supportedInterfaces") || is_new("supported_interfaces") || members.find("url").is_none() {
        text.parse()
    } else {
        text.parse::<OldCard>().map(Into::into)
    }
}

// === impl OldCard ===

impl From<OldCard> for AgentCard {
    fn from(old: OldCard) -> Self {
        let version = old.protocol_version.unwrap_or_else(|| DEFAULT_VERSION.to_owned());
        let interface = |url: String, transport: String| AgentInterface {
            url,
            protocol_binding: transport,
            tenant: None,
            protocol_version: version.clone(),
        };
        let transport = old.preferred_transport.unwrap_or_else(|| DEFAULT_TRANSPORT.to_owned());
        let mut supported_interfaces = vec![interface(old.url, transport)];
        for OldCardInterface { url, transport } in old.additional_interfaces.unwrap_or_default() {
            // 0.3 cards repeat the preferred interface among the others.
            let other = interface(url, transport);
            if !supported_interfaces.contains(&other) {
                supported_interfaces.push(other);
            }
        }
        let capabilities = old.capabilities.map_or_else(CardCapabilities::default, |old| CardCapabilities {
            streaming: old.streaming,
            push_notifications: old.push_notifications,
            extensions: old.extensions.unwrap_or_default(),
            extended_agent_card: None,
        });
        let requirement = |schemes: BTreeMap<String, Vec<String>>| SecurityRequirement {
            schemes: schemes.into_iter().map(|(name, list)| (name, StringList { list })).collect(),
        };
        Self {
            name: old.name,
            description: old.description,
            supported_interfaces,
            provider: old.provider,
            version: old.version,
            documentation_url: old.documentation_url,
            capabilities: CardCapabilities {
                extended_agent_card: old.supports_authenticated_extended_card,
                ..capabilities
            },
            security_schemes: old
                .security_schemes
                .unwrap_or_default()
                .into_iter()
                .filter_map(|(name, scheme)| Some((name, modern(&scheme)?)))
                .collect(),
            security_requirements: old.security.unwrap_or_default().into_iter().map(requirement).collect(),
            default_input_modes: old.default_input_modes.unwrap_or_default(),
            default_output_modes: old.default_output_modes.unwrap_or_default(),
            skills: old.skills.unwrap_or_default(),
            signatures: old.signatures.unwrap_or_default(),
            icon_url: old.icon_url,
        }
    }
}

/// 0.3 distinguishes the kinds by a member `type`, and uses `in` where 1.0 uses `location`.
fn modern(scheme: &Json) -> Option<SecurityScheme> {
    let members: Members = scheme.parse().ok()?;
    let kind = match members.text("type")?.as_str() {
        "apiKey" => "apiKeySecurityScheme",
        "http" => "httpAuthSecurityScheme",
        "oauth2" => "oauth2SecurityScheme",
        "openIdConnect" => "openIdConnectSecurityScheme",
        "mutualTLS" => "mtlsSecurityScheme",
        _ => return None,
    };
    let rename = |name: String| if name == "in" { "location".to_owned() } else { name };
    let Members(members) = members;
    let members = members.into_iter().filter(|(name, _)| name != "type").map(|(name, value)| (rename(name), value));
    Some(SecurityScheme::new(kind, Json::of(&Members(members.collect()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(text: &str) -> AgentCard {
        parse(&Json::from_text(text).unwrap()).unwrap()
    }

    #[test]
    fn a_card_of_0_3_becomes_one_of_1_0() {
        let old = card(
            r#"{"name":"old","description":"d","url":"https://p/rpc","version":"7","protocolVersion":"0.3.0",
            "additionalInterfaces":[{"url":"https://p/rpc","transport":"JSONRPC"},{"url":"https://p/r","transport":"HTTP+JSON"}],
            "capabilities":{"streaming":true,"stateTransitionHistory":false},"supportsAuthenticatedExtendedCard":true,
            "securitySchemes":{"k":{"type":"apiKey","in":"header","name":"X-Key"},"odd":{"type":"odd"}},
            "security":[{"k":[]}],"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],
            "skills":[{"id":"s","name":"S","description":"","tags":["t"],"security":[]}]}"#,
        );
        let new = card(
            r#"{"name":"old","description":"d","version":"7","supportedInterfaces":[
            {"url":"https://p/rpc","protocolBinding":"JSONRPC","protocolVersion":"0.3.0"},
            {"url":"https://p/r","protocolBinding":"HTTP+JSON","protocolVersion":"0.3.0"}],
            "capabilities":{"streaming":true,"extendedAgentCard":true},
            "securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"header","name":"X-Key"}}},
            "securityRequirements":[{"schemes":{"k":{}}}],"defaultInputModes":["text/plain"],
            "defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","description":"","tags":["t"]}]}"#,
        );
        assert_eq!(old, new);
    }

    #[test]
    fn missing_members_of_a_card_are_empty() {
        let old = card(r#"{"name":"x","url":"https://p"}"#);
        let interface = &old.supported_interfaces[0];
        assert_eq!((&*interface.protocol_binding, &*interface.protocol_version), ("JSONRPC", "0.3"));
        // ProtoJSON writers omit empty members, even required ones.
        let new = r#"{"name":"x","supportedInterfaces":[{"url":"https://p","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}"#;
        let new = card(new);
        assert_eq!(
            (new.skills, new.capabilities, new.description),
            (vec![], CardCapabilities::default(), String::new())
        );
        let union = r#"{"name":"x","url":"https://old","protocolVersion":"0.3.0","supportedInterfaces":[{"url":"https://new",
            "protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}"#;
        assert_eq!(card(union).supported_interfaces[0].url, "https://new");
        for wrong in ["[]", "{}", r#"{"name":"x"}"#, r#"{"url":"https://p"}"#] {
            assert!(parse(&Json::from_text(wrong).unwrap()).is_err(), "{wrong}");
        }
    }
}
