//! Builds the card of an agent (A2A 1.0) as a pure function of known facts.
//!
//! No member is written empty or with its default value, because signature verifiers drop those, each in its own way.

use std::collections::BTreeMap;

use attache_a2a_wire::{
    AgentCard, AgentExtension, AgentInterface, AgentSkill, CardCapabilities, SecurityRequirement, SecurityScheme,
    StringList,
};
use attache_hub::ClientCertificates;
use attache_protocol::{
    Json,
    wire::{
        a2a_options::A2aOptions,
        account::{Account, Skill},
        key::KeyScope,
        runtime,
    },
};

use crate::view::EVENTS;

const JSONRPC: &str = "JSONRPC";
const HTTP_JSON: &str = "HTTP+JSON";
const GRPC: &str = "GRPC";

/// Everything a card is built from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CardFacts<'a> {
    pub(crate) account: &'a Account,
    pub(crate) switches: &'a A2aOptions,
    /// The extensions the agent's active runtime supports.
    pub(crate) declared: &'a [runtime::DeclaredExtension],
    pub(crate) place: &'a CardHubInfo,
    pub(crate) standing: DefaultAgent,
}

/// The hub's address and settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CardHubInfo {
    /// `https://hub.example`, without a trailing slash.
    pub(crate) origin: String,
    /// The program's version.
    pub(crate) version: String,
    pub(crate) client_certificates: ClientCertificates,
}

/// Whether this is the hub's default agent. Over gRPC, version 0.3 can't name an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultAgent {
    Default,
    Named,
}

/// The card without signatures.
pub(crate) fn card(facts: &CardFacts<'_>) -> AgentCard {
    let CardFacts { account, switches, place, .. } = *facts;
    let about = |text: &Option<String>| text.as_ref().filter(|text| !text.trim().is_empty()).cloned();
    AgentCard {
        name: account.name.clone(),
        description: about(&account.description).unwrap_or_else(|| format!("The agent {}.", account.name)),
        supported_interfaces: interfaces(&account.name, &place.origin, facts.standing)
            .into_iter()
            .filter(|interface| switches.offers(&interface.protocol_binding))
            .collect(),
        provider: None,
        version: place.version.clone(),
        documentation_url: None,
        capabilities: CardCapabilities {
            streaming: switches.streams().then_some(true),
            push_notifications: switches.pushes().then_some(true),
            extensions: extensions(switches, facts.declared),
            extended_agent_card: switches.has_extended_card().then_some(true),
        },
        security_schemes: schemes(place.client_certificates),
        security_requirements: match switches.anonymous {
            true => Vec::new(),
            false => requirements(place.client_certificates),
        },
        default_input_modes: modes(&switches.input_modes),
        default_output_modes: modes(&switches.output_modes),
        skills: skills(&account.skills),
        signatures: Vec::new(),
        icon_url: None,
    }
}

/// The agent's interfaces, best first.
fn interfaces(agent: &str, origin: &str, standing: DefaultAgent) -> Vec<AgentInterface> {
    let base = format!("{origin}/a2a/{agent}");
    let at_base = |binding: &str, version: &str| AgentInterface {
        url: base.clone(),
        protocol_binding: binding.to_owned(),
        tenant: None,
        protocol_version: version.to_owned(),
    };
    let mut interfaces = vec![at_base(JSONRPC, "1.0"), at_base(HTTP_JSON, "1.0")];
    interfaces.push(AgentInterface {
        url: target(origin),
        protocol_binding: GRPC.to_owned(),
        tenant: Some(agent.to_owned()),
        protocol_version: "1.0".to_owned(),
    });
    interfaces.extend([at_base(JSONRPC, "0.3"), at_base(HTTP_JSON, "0.3")]);
    if standing == DefaultAgent::Default {
        // 0.3 clients dial it this way too: none of them extracts host and port from a URL.
        interfaces.push(AgentInterface { url: target(origin), ..at_base(GRPC, "0.3") });
    }
    interfaces
}

/// `host:port`, the form gRPC clients dial.
fn target(origin: &str) -> String {
    let (authority, port) = match origin.split_once("://") {
        Some(("https", authority)) => (authority, 443),
        Some((_, authority)) => (authority, 80),
        None => (origin, 80),
    };
    // The colons inside an IPv6 address don't precede a port.
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && !port.contains(']'));
    if has_port { authority.to_owned() } else { format!("{authority}:{port}") }
}

/// The owner's declarations take precedence over a device's declarations of the same extension.
fn extensions(switches: &A2aOptions, declared: &[runtime::DeclaredExtension]) -> Vec<AgentExtension> {
    let mut extensions: Vec<AgentExtension> = Vec::new();
    let owners = switches.extensions.iter().map(|extension| AgentExtension {
        uri: extension.uri.clone(),
        description: extension.description.clone().filter(|text| !text.is_empty()),
        required: extension.required.then_some(true),
        params: extension.params.clone(),
    });
    let events = AgentExtension {
        uri: EVENTS.to_owned(),
        description: Some(
            "Updates carry their event number, so that clients can detect gaps and duplicates.".to_owned(),
        ),
        required: None,
        params: Some(Json::of(&BTreeMap::from([("generation", true)]))),
    };
    let devices = declared.iter().map(|extension| AgentExtension {
        uri: extension.uri.clone(),
        description: None,
        // Written although it is the default, because AWCP clients look for it.
        required: Some(false),
        params: extension.params.clone(),
    });
    for extension in owners.chain([events]).chain(devices) {
        if !extension.uri.is_empty() && extensions.iter().all(|known| known.uri != extension.uri) {
            extensions.push(extension);
        }
    }
    extensions
}

fn schemes(certificates: ClientCertificates) -> BTreeMap<String, SecurityScheme> {
    let bearer = BTreeMap::from([
        ("scheme", "Bearer"),
        ("bearerFormat", "API key or JWT"),
        ("description", "An API key of the hub (ak_…), or a short-lived token created with one."),
    ]);
    let bearer = SecurityScheme::new("httpAuthSecurityScheme", Json::of(&bearer));
    let mut schemes = BTreeMap::from([("bearer".to_owned(), bearer)]);
    if certificates == ClientCertificates::Asked {
        let mtls = BTreeMap::from([("description", "A client certificate that is bound to an API key of the hub.")]);
        schemes.insert("mtls".to_owned(), SecurityScheme::new("mtlsSecurityScheme", Json::of(&mtls)));
    }
    schemes
}

/// One scheme is enough. The scope is the one a key needs to call agents.
fn requirements(certificates: ClientCertificates) -> Vec<SecurityRequirement> {
    let needs = |scheme: &str| SecurityRequirement {
        schemes: BTreeMap::from([(scheme.to_owned(), StringList { list: vec![KeyScope::Call.as_str().to_owned()] })]),
    };
    match certificates {
        ClientCertificates::Ignored => vec![needs("bearer")],
        ClientCertificates::Asked => vec![needs("bearer"), needs("mtls")],
    }
}

fn modes(given: &[String]) -> Vec<String> {
    if given.is_empty() {
        return ["text/plain", "application/json", "*/*"].map(str::to_owned).to_vec();
    }
    given.to_vec()
}

fn skills(given: &[Skill]) -> Vec<AgentSkill> {
    if given.is_empty() {
        return vec![skill("chat", "Chat", "Takes a task in plain language and answers it.", &[])];
    }
    given.iter().map(|given| skill(&given.id, &given.name, &given.description, &given.tags)).collect()
}

/// A skill must have a description and tags. The name and id are the fallback.
pub(crate) fn skill(id: &str, name: &str, description: &str, tags: &[String]) -> AgentSkill {
    AgentSkill {
        id: id.to_owned(),
        name: name.to_owned(),
        description: if description.trim().is_empty() { name } else { description }.to_owned(),
        tags: if tags.is_empty() { vec![id.to_owned()] } else { tags.to_vec() },
        examples: Vec::new(),
        input_modes: Vec::new(),
        output_modes: Vec::new(),
        security_requirements: Vec::new(),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "`json!` builds what a test expects")]
mod tests;
