//! Signs cards: a JWS with a detached payload (RFC 7515) over the canonical form (RFC 8785) of the card.

use attache_a2a_wire::{AgentCard, AgentCardSignature};
use attache_client::a2a::{
    jcs::{EmptyMembers, canonical_without},
    verify::SIGNATURES,
};
use attache_hub::{CardKey, Result};
use attache_protocol::Json;
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::Serialize;

#[derive(Serialize)]
struct CardJwsHeader<'a> {
    alg: &'a str,
    typ: &'a str,
    kid: &'a str,
    /// Where the public key is published.
    jku: String,
}

/// Adds the signatures. Some verifiers drop empty parameters and `required: false` of extensions, others keep them, so
/// such a card gets a signature for each. A card without a canonical form stays unsigned.
pub(crate) fn sign(card: AgentCard, key: &CardKey, origin: &str) -> Result<AgentCard> {
    let mut plain = card.clone();
    plain.capabilities.extensions.iter_mut().for_each(|it| it.required = it.required.filter(|required| *required));
    let (said, plain) = (Json::of(&card), Json::of(&plain));
    let mut forms = Vec::new();
    for (text, empties) in
        [&said, &plain].into_iter().flat_map(|it| [(it, EmptyMembers::Dropped), (it, EmptyMembers::Kept)])
    {
        match canonical_without(text, SIGNATURES, empties) {
            Ok(form) if !forms.contains(&form) => forms.push(form),
            Ok(_) => {}
            Err(why) => {
                tracing::warn!(agent.name = card.name, %why, "the card has no canonical form and is not signed");
                return Ok(card);
            }
        }
    }
    let jku = format!("{origin}/.well-known/jwks.json");
    let header = CardJwsHeader { alg: CardKey::ALGORITHM, typ: "JOSE", kid: key.kid(), jku };
    let protected = Base64UrlUnpadded::encode_string(Json::of(&header).get().as_bytes());
    let mut signatures = Vec::new();
    for form in forms {
        let signed = format!("{protected}.{}", Base64UrlUnpadded::encode_string(form.as_bytes()));
        let signature = Base64UrlUnpadded::encode_string(&key.sign(signed.as_bytes())?);
        signatures.push(AgentCardSignature { protected: protected.clone(), signature, header: None });
    }
    Ok(AgentCard { signatures, ..card })
}
