//! The 0.3 agent card, and a card for both versions.

use std::collections::BTreeMap;

use attache_protocol::{Json, json::Members};
use serde::{Deserialize, Serialize};

use crate::{
    self as new, AgentCardSignature, AgentExtension, AgentProvider, ApiKeyScheme, HttpAuthScheme, KnownScheme,
    MutualTlsScheme, OAuth2Scheme, OpenIdConnectScheme, StringList, or_default,
};

/// The protocol version in 0.3 cards.
const VERSION: &str = "0.3.0";
/// The default transport of a card.
const JSON_RPC: &str = "JSONRPC";

/// A 0.3 card. Missing members count as empty, but the name and URL are required.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCardV03 {
    #[serde(default)]
    pub protocol_version: String,
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// The URL for `preferred_transport`.
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_transport: Option<String>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub additional_interfaces: Vec<AgentInterfaceV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<AgentProvider>,
    #[serde(default)]
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documentation_url: Option<String>,
    #[serde(default)]
    pub capabilities: CardCapabilitiesV03,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub security_schemes: BTreeMap<String, SecuritySchemeV03>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub security: Vec<SecurityRequirementV03>,
    #[serde(default, deserialize_with = "or_default")]
    pub default_input_modes: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub default_output_modes: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub skills: Vec<AgentSkillV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supports_authenticated_extended_card: Option<bool>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<AgentCardSignature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon_url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInterfaceV03 {
    pub url: String,
    pub transport: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CardCapabilitiesV03 {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_notifications: Option<bool>,
    /// Not in 1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_transition_history: Option<bool>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<AgentExtension>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSkillV03 {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Vec<String>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub security: Vec<SecurityRequirementV03>,
}

/// Schemes that are all required, each with its scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityRequirementV03(pub BTreeMap<String, Vec<String>>);

/// A scheme, distinguished by its `type`. It contains no relayed JSON, so a tagged enum is safe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum SecuritySchemeV03 {
    #[serde(rename = "apiKey")]
    ApiKey {
        #[serde(rename = "in")]
        location: String,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    #[serde(rename = "http")]
    Http(HttpAuthScheme),
    #[serde(rename = "oauth2")]
    OAuth2(Box<OAuth2Scheme>),
    #[serde(rename = "openIdConnect")]
    OpenIdConnect(OpenIdConnectScheme),
    #[serde(rename = "mutualTLS")]
    MutualTls(MutualTlsScheme),
    /// A type unknown to 0.3.
    #[serde(other, rename = "unknown")]
    Unknown,
}

/// One card for clients of both versions: the members of 1.0, plus those of 0.3 that it lacks. A card without a 0.3
/// interface is unchanged.
pub fn union(card: &new::AgentCard) -> Json {
    let json = Json::of(card);
    match AgentCardV03::of_card(card) {
        Some(old) => merged(&json, &Json::of(&old)),
        None => json,
    }
}

/// Merges two objects, and lists of equal length item by item. The first wins on conflict.
fn merged(first: &Json, second: &Json) -> Json {
    if let (Ok(Members(mut first)), Ok(Members(second))) = (first.parse::<Members>(), second.parse::<Members>()) {
        for (name, value) in second {
            match first.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = merged(known, &value),
                None => first.push((name, value)),
            }
        }
        return Json::of(&Members(first));
    }
    match (first.parse::<Vec<Json>>(), second.parse::<Vec<Json>>()) {
        (Ok(items), Ok(others)) if items.len() == others.len() => {
            Json::of(&items.iter().zip(&others).map(|(item, other)| merged(item, other)).collect::<Vec<_>>())
        }
        _ => first.clone(),
    }
}

// === impl AgentCardV03 ===

impl AgentCardV03 {
    /// The agent's card for its 0.3 interfaces.
    pub fn of_card(card: &new::AgentCard) -> Option<Self> {
        let speaks = |interface: &&new::AgentInterface| interface.protocol_version == "0.3";
        let interfaces: Vec<_> = card.supported_interfaces.iter().filter(speaks).cloned().collect();
        Self::of(card, &interfaces)
    }

    /// The card of an agent with these 0.3 interfaces, the first one preferred. `None` without interfaces. Signatures
    /// of a 1.0 card don't apply to it.
    pub fn of(card: &new::AgentCard, interfaces: &[new::AgentInterface]) -> Option<Self> {
        let preferred = interfaces.first()?;
        let scheme = |(name, scheme): (&String, _)| Some((name.clone(), KnownScheme::of(scheme)?.into()));
        let interface = |interface: &new::AgentInterface| AgentInterfaceV03 {
            url: interface.url.clone(),
            transport: interface.protocol_binding.clone(),
        };
        Some(Self {
            protocol_version: VERSION.to_owned(),
            name: card.name.clone(),
            description: card.description.clone(),
            url: preferred.url.clone(),
            preferred_transport: Some(preferred.protocol_binding.clone()),
            additional_interfaces: interfaces.iter().map(interface).collect(),
            provider: card.provider.clone(),
            version: card.version.clone(),
            documentation_url: card.documentation_url.clone(),
            capabilities: CardCapabilitiesV03 {
                streaming: card.capabilities.streaming,
                push_notifications: card.capabilities.push_notifications,
                state_transition_history: None,
                extensions: card.capabilities.extensions.clone(),
            },
            security_schemes: card.security_schemes.iter().filter_map(scheme).collect(),
            security: card.security_requirements.iter().cloned().map(Into::into).collect(),
            default_input_modes: card.default_input_modes.clone(),
            default_output_modes: card.default_output_modes.clone(),
            skills: card.skills.iter().cloned().map(Into::into).collect(),
            supports_authenticated_extended_card: card.capabilities.extended_agent_card,
            signatures: Vec::new(),
            icon_url: card.icon_url.clone(),
        })
    }
}

impl From<AgentCardV03> for new::AgentCard {
    fn from(old: AgentCardV03) -> Self {
        let preferred = old.preferred_transport.unwrap_or_else(|| JSON_RPC.to_owned());
        let mut supported_interfaces = vec![speaks_old(old.url, preferred)];
        for AgentInterfaceV03 { url, transport } in old.additional_interfaces {
            let interface = speaks_old(url, transport);
            if !supported_interfaces.contains(&interface) {
                supported_interfaces.push(interface);
            }
        }
        let scheme = |(name, scheme): (String, SecuritySchemeV03)| Some((name, scheme.known()?.into()));
        Self {
            name: old.name,
            description: old.description,
            supported_interfaces,
            provider: old.provider,
            version: old.version,
            documentation_url: old.documentation_url,
            capabilities: new::CardCapabilities {
                streaming: old.capabilities.streaming,
                push_notifications: old.capabilities.push_notifications,
                extensions: old.capabilities.extensions,
                extended_agent_card: old.supports_authenticated_extended_card,
            },
            security_schemes: old.security_schemes.into_iter().filter_map(scheme).collect(),
            security_requirements: old.security.into_iter().map(Into::into).collect(),
            default_input_modes: old.default_input_modes,
            default_output_modes: old.default_output_modes,
            skills: old.skills.into_iter().map(Into::into).collect(),
            signatures: old.signatures,
            icon_url: old.icon_url,
        }
    }
}

fn speaks_old(url: String, protocol_binding: String) -> new::AgentInterface {
    new::AgentInterface { url, protocol_binding, tenant: None, protocol_version: "0.3".to_owned() }
}

// === impl SecuritySchemeV03 ===

impl SecuritySchemeV03 {
    /// The scheme, if 0.3 knows its type.
    pub fn known(self) -> Option<KnownScheme> {
        Some(match self {
            Self::ApiKey { location, name, description } => {
                KnownScheme::ApiKey(ApiKeyScheme { description, location, name })
            }
            Self::Http(http) => KnownScheme::HttpAuth(http),
            Self::OAuth2(oauth2) => KnownScheme::OAuth2(oauth2),
            Self::OpenIdConnect(connect) => KnownScheme::OpenIdConnect(connect),
            Self::MutualTls(mutual) => KnownScheme::MutualTls(mutual),
            Self::Unknown => return None,
        })
    }
}

impl From<KnownScheme> for SecuritySchemeV03 {
    fn from(scheme: KnownScheme) -> Self {
        match scheme {
            KnownScheme::ApiKey(ApiKeyScheme { description, location, name }) => {
                Self::ApiKey { location, name, description }
            }
            KnownScheme::HttpAuth(http) => Self::Http(http),
            KnownScheme::OAuth2(mut oauth2) => {
                // New in 1.0.
                oauth2.flows.device_code = None;
                if let Some(flow) = &mut oauth2.flows.authorization_code {
                    flow.pkce_required = None;
                }
                Self::OAuth2(oauth2)
            }
            KnownScheme::OpenIdConnect(connect) => Self::OpenIdConnect(connect),
            KnownScheme::MutualTls(mutual) => Self::MutualTls(mutual),
        }
    }
}

// === impl SecurityRequirementV03 ===

impl From<SecurityRequirementV03> for new::SecurityRequirement {
    fn from(SecurityRequirementV03(schemes): SecurityRequirementV03) -> Self {
        Self { schemes: schemes.into_iter().map(|(name, list)| (name, StringList { list })).collect() }
    }
}

impl From<new::SecurityRequirement> for SecurityRequirementV03 {
    fn from(new: new::SecurityRequirement) -> Self {
        Self(new.schemes.into_iter().map(|(name, StringList { list })| (name, list)).collect())
    }
}

// === impl AgentSkillV03 ===

impl From<AgentSkillV03> for new::AgentSkill {
    fn from(old: AgentSkillV03) -> Self {
        let AgentSkillV03 { id, name, description, tags, examples, input_modes, output_modes, security } = old;
        let security_requirements = security.into_iter().map(Into::into).collect();
        Self { id, name, description, tags, examples, input_modes, output_modes, security_requirements }
    }
}

impl From<new::AgentSkill> for AgentSkillV03 {
    fn from(new: new::AgentSkill) -> Self {
        let new::AgentSkill { id, name, description, tags, examples, input_modes, output_modes, .. } = new;
        let security = new.security_requirements.into_iter().map(Into::into).collect();
        Self { id, name, description, tags, examples, input_modes, output_modes, security }
    }
}
