//! What an agent's card says about lending folders to it, held against what is to be lent.

use attache_protocol::{
    rules::delegation::LeaseTerms,
    wire::{
        a2a::AgentCard,
        awcp::{AccessMode, AwcpErrorCode, EXTENSION, SSHFS},
        delegation::DelegationFailure,
    },
};
use serde::Deserialize;

/// The params of the extension, as far as they can exclude something.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CardOffer {
    transports: Option<Vec<String>>,
    access_modes: Option<Vec<String>>,
    max_ttl_seconds: Option<u64>,
}

/// The agent takes folders, and nothing that it says excludes this one. A shorter lease is a matter of agreement, and so is
/// to read where writing was offered.
pub(super) fn check(card: &AgentCard, terms: LeaseTerms) -> Result<(), DelegationFailure> {
    let name = &card.name;
    let declined =
        |message: String, hint: String| Err(DelegationFailure { code: AwcpErrorCode::Declined, message, hint });
    let Some(extension) = card.capabilities.extensions.iter().find(|extension| extension.uri == EXTENSION) else {
        return declined(
            format!("the agent {name} takes no folders: its card does not name {EXTENSION}"),
            "Its owner starts its runtime with `attache runtime start --collaborator`, or sets `enabled = true` in [collaborator] of policy.toml there.".to_owned(),
        );
    };
    let offered: CardOffer = match &extension.params {
        None => CardOffer::default(),
        Some(params) => match params.parse() {
            Ok(offered) => offered,
            Err(error) => {
                let message = format!("the card of {name} says something about folders that cannot be read: {error}");
                return declined(message, "Ask its owner which version of AWCP it speaks.".to_owned());
            }
        },
    };
    if offered.transports.is_some_and(|transports| !transports.iter().any(|transport| transport == SSHFS)) {
        let message = format!("the agent {name} does not mount folders by {SSHFS}");
        return declined(message, "Ask its owner to allow it, or delegate to another agent.".to_owned());
    }
    let takes = |modes: &[String], wanted: AccessMode| modes.iter().any(|mode| mode == wanted.as_str());
    let fits = |modes: &Vec<String>| takes(modes, terms.access_mode) || takes(modes, AccessMode::Ro);
    if offered.access_modes.is_some_and(|modes| !fits(&modes)) {
        let mode = terms.access_mode;
        let message = format!("the agent {name} does not take folders `{mode}`");
        return declined(message, "Delegate with another --access-mode, or ask its owner.".to_owned());
    }
    if offered.max_ttl_seconds == Some(0) {
        let message = format!("the agent {name} takes folders for no time at all");
        return declined(message, AwcpErrorCode::Declined.hint().to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use attache_protocol::Json;

    use super::*;

    fn checked(extensions: &str, access_mode: AccessMode) -> Result<(), String> {
        let card = format!(r#"{{"name":"b","supportedInterfaces":[],"capabilities":{{"extensions":[{extensions}]}}}}"#);
        let card: AgentCard = Json::from_text(card).unwrap().parse().unwrap();
        check(&card, LeaseTerms { access_mode, ttl: Duration::from_secs(9) }).map_err(|failure| failure.message)
    }

    #[test]
    fn a_card_must_name_the_extension_and_may_exclude_some_uses() {
        let with = |params: &str| format!(r#"{{"uri":"{EXTENSION}","params":{params}}}"#);
        let refused = "the agent b takes no folders: its card does not name https://awcp-protocol.org/v1";
        assert_eq!(checked(r#"{"uri":"https://other"}"#, AccessMode::Ro), Err(refused.to_owned()));
        assert_eq!(checked(&format!(r#"{{"uri":"{EXTENSION}"}}"#), AccessMode::Rw), Ok(()));
        let open = with(r#"{"transports":["sshfs"],"access_modes":["ro"],"max_ttl_seconds":3,"other":1}"#);
        assert_eq!(checked(&open, AccessMode::Ro), Ok(()));
        assert_eq!(checked(&open, AccessMode::Rw), Ok(()), "ACCEPT makes it `ro`");
        let writers = with(r#"{"access_modes":["rw"]}"#);
        assert_eq!(checked(&writers, AccessMode::Rw), Ok(()));
        assert_eq!(checked(&writers, AccessMode::Ro), Err("the agent b does not take folders `ro`".to_owned()));
        let other = checked(&with(r#"{"transports":["webdav"]}"#), AccessMode::Ro);
        assert_eq!(other, Err("the agent b does not mount folders by sshfs".to_owned()));
        assert!(checked(&with(r#"{"access_modes":7}"#), AccessMode::Ro).is_err());
    }
}
