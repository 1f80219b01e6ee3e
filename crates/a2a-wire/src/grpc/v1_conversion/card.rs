//! Agent cards.

use super::super::{list, text, v1, written};
use crate::{
    AgentCard, AgentInterface, AgentSkill, CardCapabilities, InvalidField, KnownScheme, SecurityScheme,
    invalid_field::WithinField as _,
};

// === impl AgentCard ===

impl TryFrom<v1::AgentCard> for AgentCard {
    type Error = InvalidField;

    fn try_from(card: v1::AgentCard) -> Result<Self, InvalidField> {
        let scheme = |(name, scheme)| {
            let scheme = SecurityScheme::try_from(scheme).within(format_args!("security_schemes[{name:?}]"))?;
            Ok((name, scheme))
        };
        Ok(Self {
            name: card.name,
            description: card.description,
            supported_interfaces: card.supported_interfaces.into_iter().map(Into::into).collect(),
            provider: card.provider.map(Into::into),
            version: card.version,
            documentation_url: card.documentation_url,
            capabilities: card.capabilities.unwrap_or_default().try_into().within("capabilities")?,
            security_schemes: card.security_schemes.into_iter().map(scheme).collect::<Result<_, _>>()?,
            security_requirements: card.security_requirements.into_iter().map(Into::into).collect(),
            default_input_modes: card.default_input_modes,
            default_output_modes: card.default_output_modes,
            skills: card.skills.into_iter().map(Into::into).collect(),
            signatures: list("signatures", card.signatures)?,
            icon_url: card.icon_url,
        })
    }
}

/// Schemes of unknown kinds can't be represented and are omitted.
impl From<AgentCard> for v1::AgentCard {
    fn from(card: AgentCard) -> Self {
        let known = |(name, scheme): (String, SecurityScheme)| Some((name, KnownScheme::of(&scheme)?.into()));
        Self {
            name: card.name,
            description: card.description,
            supported_interfaces: card.supported_interfaces.into_iter().map(Into::into).collect(),
            provider: card.provider.map(Into::into),
            version: card.version,
            documentation_url: card.documentation_url,
            capabilities: Some(card.capabilities.into()),
            security_schemes: card.security_schemes.into_iter().filter_map(known).collect(),
            security_requirements: card.security_requirements.into_iter().map(Into::into).collect(),
            default_input_modes: card.default_input_modes,
            default_output_modes: card.default_output_modes,
            skills: card.skills.into_iter().map(Into::into).collect(),
            signatures: written(card.signatures),
            icon_url: card.icon_url,
        }
    }
}

// === impl AgentInterface ===

impl From<v1::AgentInterface> for AgentInterface {
    fn from(interface: v1::AgentInterface) -> Self {
        let v1::AgentInterface { url, protocol_binding, tenant, protocol_version } = interface;
        Self { url, protocol_binding, tenant: text(tenant), protocol_version }
    }
}

impl From<AgentInterface> for v1::AgentInterface {
    fn from(interface: AgentInterface) -> Self {
        let AgentInterface { url, protocol_binding, tenant, protocol_version } = interface;
        Self { url, protocol_binding, tenant: tenant.unwrap_or_default(), protocol_version }
    }
}

// === impl CardCapabilities ===

impl TryFrom<v1::AgentCapabilities> for CardCapabilities {
    type Error = InvalidField;

    fn try_from(capabilities: v1::AgentCapabilities) -> Result<Self, InvalidField> {
        let v1::AgentCapabilities { streaming, push_notifications, extensions, extended_agent_card } = capabilities;
        Ok(Self { streaming, push_notifications, extensions: list("extensions", extensions)?, extended_agent_card })
    }
}

impl From<CardCapabilities> for v1::AgentCapabilities {
    fn from(capabilities: CardCapabilities) -> Self {
        let CardCapabilities { streaming, push_notifications, extensions, extended_agent_card } = capabilities;
        Self { streaming, push_notifications, extensions: written(extensions), extended_agent_card }
    }
}

// === impl AgentSkill ===

impl From<v1::AgentSkill> for AgentSkill {
    fn from(skill: v1::AgentSkill) -> Self {
        Self {
            id: skill.id,
            name: skill.name,
            description: skill.description,
            tags: skill.tags,
            examples: skill.examples,
            input_modes: skill.input_modes,
            output_modes: skill.output_modes,
            security_requirements: skill.security_requirements.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<AgentSkill> for v1::AgentSkill {
    fn from(skill: AgentSkill) -> Self {
        Self {
            id: skill.id,
            name: skill.name,
            description: skill.description,
            tags: skill.tags,
            examples: skill.examples,
            input_modes: skill.input_modes,
            output_modes: skill.output_modes,
            security_requirements: skill.security_requirements.into_iter().map(Into::into).collect(),
        }
    }
}
