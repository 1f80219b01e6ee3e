//! Finds an agent's card and determines how far it can be trusted.

use attache_a2a_wire::{AgentCard, AgentCardSignature};
use attache_protocol::{
    Json, KeyPin,
    json::{MAX_DEPTH, depth},
};
use bytes::Bytes;
use reqwest::{
    Method, Url,
    header::{ACCEPT, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH},
};

use super::{
    Error, PeerCredentials, Result, card,
    credentials::KeyPlacement,
    verify::{self, CardVerifyingKey, SignatureError, SignatureHeader},
};
use crate::egress::{self, EgressGuard, EgressReply, EgressRequest};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredPeer {
    /// Where the card was found.
    pub url: String,
    /// The exact bytes.
    pub card_text: Json,
    pub card: AgentCard,
    /// Identifies the card when it is seen again.
    pub fingerprint: KeyPin,
    pub signatures: Vec<CheckedSignature>,
    /// For conditional requests. `None` if the server doesn't support them.
    pub seen: Option<CardETag>,
}

/// The validator of a card that was fetched before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardETag {
    url: String,
    etag: HeaderValue,
}

/// One signature of a card, with the result of verifying it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedSignature {
    pub kid: Option<String>,
    pub verdict: Result<(), SignatureError>,
}

/// A card as served.
struct FetchedCard {
    card_text: Json,
    card: AgentCard,
    etag: Option<HeaderValue>,
}

/// What the signatures of a card prove together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardSignatureTrust {
    Unsigned,
    /// At least one is valid.
    Verified,
    /// No key is available to verify them.
    Unknown(SignatureError),
    /// One of them belongs to another card or an unknown signer.
    Forged(SignatureError),
}

/// Further signatures of a card are ignored.
const MAX_SIGNATURES: usize = 8;
const PLACES: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
const VERSION: HeaderName = HeaderName::from_static("a2a-version");

/// Fetches the card at a URL: an origin, an agent's base URL, or the card's own URL. `keys` are the owner's trusted
/// signing keys. Without any, the signer's own keys are fetched, if they are at the card's origin.
pub async fn discover(
    guard: &EgressGuard,
    url: &str,
    credentials: &PeerCredentials,
    keys: &[CardVerifyingKey],
) -> Result<DiscoveredPeer> {
    guard.check(url)?;
    let mut found = None;
    for candidate in candidates(url)? {
        match fetch(guard, &candidate, credentials).await {
            Ok(read) => {
                found = Some(Ok((candidate, read)));
                break;
            }
            // This location may belong to something else, and the agent may be at the next one.
            Err(error @ (Error::Status { status: 404 | 405 | 410, .. } | Error::NotUnderstood { .. })) => {
                found = found.or(Some(Err(error)));
            }
            Err(error) => return Err(error),
        }
    }
    let (url, FetchedCard { card_text, card, etag }) = match found {
        Some(Err(Error::Status { .. })) | None => return Err(Error::NoCard { url: egress::masked(url) }),
        Some(found) => found?,
    };
    let origin = egress::origin(url.as_str());
    let fingerprint = verify::fingerprint(&card_text).map_err(|error| Error::not_understood(origin.clone(), error))?;
    let mut signatures = Vec::new();
    for signature in card.signatures.iter().take(MAX_SIGNATURES) {
        let kid = SignatureHeader::read(signature).ok().and_then(|header| header.kid);
        let verdict = judge(guard, &origin, &card_text, signature, keys).await;
        signatures.push(CheckedSignature { kid, verdict });
    }
    let url = String::from(url);
    let seen = etag.map(|etag| CardETag { url: url.clone(), etag });
    Ok(DiscoveredPeer { url, card_text, card, fingerprint, signatures, seen })
}

/// Whether the server confirms that the card is unchanged. Any other response proves nothing.
pub async fn is_unchanged(guard: &EgressGuard, seen: &CardETag, credentials: &PeerCredentials) -> Result<bool> {
    let (url, mut headers) = dressed(&seen.url, credentials)?;
    headers.insert(IF_NONE_MATCH, seen.etag.clone());
    Ok(get(guard, url.as_str(), headers).await?.status == 304)
}

/// The card's own URL is used as is. Below any other URL, the well-known locations are tried.
fn candidates(url: &str) -> Result<Vec<Url>> {
    let url = Url::parse(url).map_err(|error| Error::not_understood(egress::origin(url), error))?;
    if url.path().ends_with(".json") {
        return Ok(vec![url]);
    }
    let base = url.path().trim_end_matches('/').to_owned();
    let place = |place: &&str| {
        let mut url = url.clone();
        url.set_path(&format!("{base}{place}"));
        url
    };
    Ok(PLACES.iter().map(place).collect())
}

async fn fetch(guard: &EgressGuard, url: &Url, credentials: &PeerCredentials) -> Result<FetchedCard> {
    let (url, headers) = dressed(url.as_str(), credentials)?;
    let reply = get(guard, url.as_str(), headers).await?;
    let origin = egress::origin(url.as_str());
    if !reply.is_success() {
        return Err(Error::of_status(origin, reply.status, &reply.body));
    }
    if depth(&reply.body) > MAX_DEPTH {
        return Err(Error::not_understood(origin, "its card is nested too deeply"));
    }
    let not_understood = |error: serde_json::Error| Error::not_understood(origin.clone(), error);
    let text: Json = serde_json::from_slice(&reply.body).map_err(not_understood)?;
    let card = card::parse(&text).map_err(not_understood)?;
    Ok(FetchedCard { card_text: text, card, etag: reply.headers.get(ETAG).cloned() })
}

/// Headers of every card request.
fn dressed(url: &str, credentials: &PeerCredentials) -> Result<(Url, HeaderMap)> {
    let mut url = Url::parse(url).map_err(|error| Error::not_understood(egress::origin(url), error))?;
    let mut headers = HeaderMap::new();
    // A request for 1.0 by name would get a card without the 0.3 members.
    headers.insert(VERSION, HeaderValue::from_static("1.0"));
    credentials.apply(&KeyPlacement::Bearer, &mut url, &mut headers)?;
    Ok((url, headers))
}

async fn get(guard: &EgressGuard, url: &str, mut headers: HeaderMap) -> Result<EgressReply> {
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let request = EgressRequest { method: Method::GET, headers, body: Bytes::new() };
    Ok(guard.send(&guard.check(url)?, request).await?)
}

async fn judge(
    guard: &EgressGuard,
    origin: &str,
    card: &Json,
    signature: &AgentCardSignature,
    keys: &[CardVerifyingKey],
) -> Result<(), SignatureError> {
    if !keys.is_empty() {
        return verify::verify(card, signature, keys);
    }
    let Some(place) = SignatureHeader::read(signature)?.jku else { return Err(SignatureError::NoKey) };
    // Accepting keys from another origin would let anyone sign anyone's card.
    if egress::origin(&place) != origin {
        return Err(SignatureError::Foreign);
    }
    let unfetched = |reason: String| SignatureError::Unfetched { reason };
    let reply = get(guard, &place, HeaderMap::new()).await.map_err(|error| unfetched(error.to_string()))?;
    if !reply.is_success() {
        return Err(unfetched(format!("status {}", reply.status)));
    }
    let keys = serde_json::from_slice::<Json>(&reply.body).map_err(|error| unfetched(error.to_string()))?;
    let keys = CardVerifyingKey::read_all(&keys).map_err(|error| unfetched(error.to_string()))?;
    verify::verify(card, signature, &keys)
}

// === impl DiscoveredPeer ===

impl DiscoveredPeer {
    pub fn trust(&self) -> CardSignatureTrust {
        if self.signatures.iter().any(|signature| signature.verdict.is_ok()) {
            return CardSignatureTrust::Verified;
        }
        let mut unknown = None;
        for signature in &self.signatures {
            match &signature.verdict {
                Ok(()) => {}
                Err(forged @ (SignatureError::Signature | SignatureError::Card(_) | SignatureError::Header)) => {
                    return CardSignatureTrust::Forged(forged.clone());
                }
                Err(other) => unknown = unknown.or_else(|| Some(other.clone())),
            }
        }
        unknown.map_or(CardSignatureTrust::Unsigned, CardSignatureTrust::Unknown)
    }
}
