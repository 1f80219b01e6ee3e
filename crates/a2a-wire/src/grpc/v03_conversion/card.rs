//! The 0.3 card. Write-only: clients read cards as JSON.

use super::super::{v03, written};
use crate::{
    SecurityRequirement,
    v03::{self as json, SecurityRequirementV03},
};

// === impl AgentCard ===

impl From<json::AgentCardV03> for v03::AgentCard {
    fn from(card: json::AgentCardV03) -> Self {
        let interface = |interface: json::AgentInterfaceV03| v03::AgentInterface {
            url: interface.url,
            transport: interface.transport,
        };
        let scheme = |(name, scheme): (String, json::SecuritySchemeV03)| Some((name, scheme.known()?.into()));
        Self {
            protocol_version: card.protocol_version,
            name: card.name,
            description: card.description,
            url: card.url,
            preferred_transport: card.preferred_transport.unwrap_or_default(),
            additional_interfaces: card.additional_interfaces.into_iter().map(interface).collect(),
            provider: card.provider.map(Into::into),
            version: card.version,
            documentation_url: card.documentation_url.unwrap_or_default(),
            capabilities: Some(card.capabilities.into()),
            security_schemes: card.security_schemes.into_iter().filter_map(scheme).collect(),
            security: security(card.security),
            default_input_modes: card.default_input_modes,
            default_output_modes: card.default_output_modes,
            skills: card.skills.into_iter().map(Into::into).collect(),
            supports_authenticated_extended_card: card.supports_authenticated_extended_card.unwrap_or_default(),
            signatures: written(card.signatures),
            icon_url: card.icon_url.unwrap_or_default(),
        }
    }
}

impl From<json::CardCapabilitiesV03> for v03::AgentCapabilities {
    fn from(capabilities: json::CardCapabilitiesV03) -> Self {
        Self {
            streaming: capabilities.streaming.unwrap_or_default(),
            push_notifications: capabilities.push_notifications.unwrap_or_default(),
            extensions: written(capabilities.extensions),
        }
    }
}

impl From<json::AgentSkillV03> for v03::AgentSkill {
    fn from(skill: json::AgentSkillV03) -> Self {
        Self {
            id: skill.id,
            name: skill.name,
            description: skill.description,
            tags: skill.tags,
            examples: skill.examples,
            input_modes: skill.input_modes,
            output_modes: skill.output_modes,
            security: security(skill.security),
        }
    }
}

fn security(requirements: Vec<SecurityRequirementV03>) -> Vec<v03::Security> {
    requirements.into_iter().map(|requirement| SecurityRequirement::from(requirement).into()).collect()
}
