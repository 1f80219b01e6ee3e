//! Checks an agent's card: whether it accepts delegated folders on these terms.

use attache_a2a_wire::AgentCard;
use attache_protocol::{
    rules::delegation::LeaseTerms,
    wire::{
        awcp::{AccessMode, AwcpErrorCode, EXTENSION, SSHFS},
        delegation::DelegationFailure,
    },
};
use serde::Deserialize;

/// The parameters of the extension that can rule something out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CardOffer {
    transports: Option<Vec<String>>,
    access_modes: Option<Vec<String>>,
    max_ttl_seconds: Option<u64>,
}

/// Checks that the agent accepts folders and rules out none of these terms. A shorter lease, or read-only instead of
/// read-write, is left to negotiation.
pub(super) fn check(card: &AgentCard, terms: LeaseTerms) -> Result<(), DelegationFailure> {
    let name = &card.name;
    let declined =
        |message: String, hint: String| Err(DelegationFailure { code: AwcpErrorCode::Declined, message, hint });
    let Some(extension) = card.capabilities.extensions.iter().find(|extension| extension.uri == EXTENSION) else {
        return declined(
            format!("the agent {name} doesn't accept folders: its card doesn't list {EXTENSION}"),
            "Ask its owner to start its runtime with `attache runtime start --collaborator`, or to set `enabled = true` in [collaborator] of its policy.toml.".to_owned(),
        );
    };
    let offered: CardOffer = match &extension.params {
        None => CardOffer::default(),
        Some(params) => match params.parse() {
            Ok(offered) => offered,
            Err(error) => {
                let message = format!("the card of {name} has unreadable AWCP parameters: {error}");
                return declined(message, "Ask its owner which version of AWCP it supports.".to_owned());
            }
        },
    };
    if offered.transports.is_some_and(|transports| !transports.iter().any(|transport| transport == SSHFS)) {
        let message = format!("the agent {name} doesn't mount folders with {SSHFS}");
        return declined(message, "Ask its owner to support it, or delegate to another agent.".to_owned());
    }
    let accepts = |modes: &[String], wanted: AccessMode| modes.iter().any(|mode| mode == wanted.as_str());
    let fits = |modes: &Vec<String>| accepts(modes, terms.access_mode) || accepts(modes, AccessMode::Ro);
    if offered.access_modes.is_some_and(|modes| !fits(&modes)) {
        let mode = terms.access_mode;
        let message = format!("the agent {name} doesn't accept folders with access mode `{mode}`");
        return declined(message, "Delegate with another --access-mode, or ask its owner.".to_owned());
    }
    if offered.max_ttl_seconds == Some(0) {
        let message = format!("the agent {name} accepts folders only for 0 seconds");
        return declined(message, AwcpErrorCode::Declined.hint().to_owned());
    }
    Ok(())
}

/// A card may use another name of this machine than the person did. It is dialled under the person's name: somebody else can
/// listen on the same port of `[::1]`.
pub(super) fn at_named_origin(url: &str, named: &str) -> String {
    const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
    let read = |url: &str| {
        let url = reqwest::Url::parse(url).ok()?;
        let is_loopback = url.host_str().is_some_and(|host| LOOPBACK_NAMES.contains(&host));
        is_loopback.then_some(url)
    };
    let (Some(mut own), Some(named)) = (read(url), read(named)) else { return url.to_owned() };
    let is_same_port = own.scheme() == named.scheme() && own.port_or_known_default() == named.port_or_known_default();
    match own.set_host(named.host_str()) {
        Ok(()) if is_same_port => own.into(),
        _ => url.to_owned(),
    }
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
    fn a_card_must_list_the_extension_and_can_rule_out_terms() {
        let with = |params: &str| format!(r#"{{"uri":"{EXTENSION}","params":{params}}}"#);
        let refused = "the agent b doesn't accept folders: its card doesn't list https://awcp-protocol.org/v1";
        assert_eq!(checked(r#"{"uri":"https://other"}"#, AccessMode::Ro), Err(refused.to_owned()));
        assert_eq!(checked(&format!(r#"{{"uri":"{EXTENSION}"}}"#), AccessMode::Rw), Ok(()));
        let open = with(r#"{"transports":["sshfs"],"access_modes":["ro"],"max_ttl_seconds":3,"other":1}"#);
        assert_eq!(checked(&open, AccessMode::Ro), Ok(()));
        assert_eq!(checked(&open, AccessMode::Rw), Ok(()), "ACCEPT makes it `ro`");
        let writers = with(r#"{"access_modes":["rw"]}"#);
        assert_eq!(checked(&writers, AccessMode::Rw), Ok(()));
        assert_eq!(
            checked(&writers, AccessMode::Ro),
            Err("the agent b doesn't accept folders with access mode `ro`".to_owned())
        );
        let other = checked(&with(r#"{"transports":["webdav"]}"#), AccessMode::Ro);
        assert_eq!(other, Err("the agent b doesn't mount folders with sshfs".to_owned()));
        assert!(checked(&with(r#"{"access_modes":7}"#), AccessMode::Ro).is_err());
    }

    #[test]
    fn a_card_on_this_machine_is_dialled_as_it_was_named() {
        for (url, named, dialled) in [
            ("http://localhost:7800/a2a/b", "http://127.0.0.1:7800/a2a/b", "http://127.0.0.1:7800/a2a/b"),
            ("http://[::1]:7800/a2a/b", "http://127.0.0.1:7800/", "http://127.0.0.1:7800/a2a/b"),
            ("http://127.0.0.1:7800/a", "http://localhost:7800/", "http://localhost:7800/a"),
            ("http://localhost:7801/a", "http://127.0.0.1:7800/", "http://localhost:7801/a"),
            ("https://localhost:7800/a", "http://127.0.0.1:7800/", "https://localhost:7800/a"),
            ("http://10.0.0.5:7800/a", "http://127.0.0.1:7800/", "http://10.0.0.5:7800/a"),
            ("http://localhost:7800/a", "http://hub.example:7800/", "http://localhost:7800/a"),
        ] {
            assert_eq!(at_named_origin(url, named), dialled);
        }
    }
}
