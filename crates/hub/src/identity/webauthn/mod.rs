//! Passkeys (WebAuthn): what a browser and an authenticator say, and whether it proves anything. Pure.
//!
//! Attestation isn't asked for and not read: which device a person uses is theirs to choose.

mod cbor;
mod cose_key;
#[cfg(test)]
pub(crate) mod fake;

use std::net::Ipv4Addr;

use attache_protocol::wire::base64;
use aws_lc_rs::digest::{SHA256, digest};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Deserializer, Serialize};

pub(crate) use self::cose_key::ALGORITHMS;
use self::{cbor::CborMap, cose_key::CoseKey};

/// Longer ones are no credential's id.
const MAX_CREDENTIAL: usize = 1023;
/// A page can add nothing to it. Browsers send about 150 bytes.
const MAX_CLIENT_DATA: usize = 4096;

/// Where passkeys are made and used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelyingParty {
    origin: String,
    /// The host name. A passkey works only there.
    id: String,
}

/// What the person does with the passkey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ceremony {
    Create,
    Get,
}

/// What the browser hands over for a new passkey.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewCredential {
    #[serde(deserialize_with = "bytes")]
    pub(crate) id: Vec<u8>,
    #[serde(rename = "clientDataJSON", deserialize_with = "bytes")]
    pub(crate) client_data: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(crate) authenticator_data: Vec<u8>,
}

/// What the browser hands over when a passkey has signed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PasskeyAssertion {
    #[serde(deserialize_with = "bytes")]
    pub(crate) id: Vec<u8>,
    #[serde(rename = "clientDataJSON", deserialize_with = "bytes")]
    pub(crate) client_data: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(crate) authenticator_data: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(crate) signature: Vec<u8>,
    /// Whose passkey it is, as the authenticator keeps it. Empty if it doesn't say.
    #[serde(default, deserialize_with = "bytes")]
    pub(crate) user_handle: Vec<u8>,
}

/// What is kept of a new passkey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegisteredCredential {
    /// A COSE key.
    pub(crate) public_key: Vec<u8>,
    pub(crate) counter: u32,
}

/// The options of `navigator.credentials.create`, with bytes in base64url.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CreationOptions {
    pub rp_id: String,
    pub challenge: String,
    pub user_id: String,
    pub user_name: String,
    /// What the hub can verify.
    pub algorithms: [i64; 3],
    /// An authenticator that has one of these makes no other.
    pub exclude: Vec<String>,
    pub timeout_ms: u64,
}

/// The options of `navigator.credentials.get`, with bytes in base64url.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestOptions {
    pub rp_id: String,
    pub challenge: String,
    /// Empty: whichever the person chooses.
    pub allow: Vec<String>,
    pub timeout_ms: u64,
}

/// Why what a browser handed over proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PasskeyFlaw {
    #[error("the browser's data can't be read")]
    Malformed,
    #[error("it was made for another purpose")]
    Ceremony,
    #[error("it answers another challenge")]
    Challenge,
    #[error("it was made on another page")]
    Origin,
    #[error("it was made for another host")]
    Host,
    #[error("the authenticator didn't verify who is there")]
    Unverified,
    #[error("the passkey is of a kind that the hub doesn't know")]
    Algorithm,
    #[error("the signature is wrong")]
    Signature,
}

/// What the browser says of itself and the page.
#[derive(Deserialize)]
struct ClientData {
    #[serde(rename = "type")]
    ceremony: String,
    challenge: String,
    origin: String,
    #[serde(rename = "crossOrigin", default)]
    cross_origin: bool,
}

/// What the authenticator says.
struct AuthenticatorData<'a> {
    host: &'a [u8],
    flags: u8,
    counter: u32,
    /// A new passkey, and extensions, which nobody asked for.
    rest: &'a [u8],
}

const PRESENT: u8 = 0x01;
const VERIFIED: u8 = 0x04;
const ATTESTED: u8 = 0x40;
const EXTENDED: u8 = 0x80;

/// Bytes as browsers' scripts write them.
pub(crate) fn text(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

/// The challenge that the browser says it answers. Nothing is verified yet.
pub(crate) fn claimed_challenge(client_data: &[u8]) -> Option<Vec<u8>> {
    ClientData::read(client_data).ok().and_then(|said| base64::decode(&said.challenge))
}

/// Verifies a new passkey of this page.
pub(crate) fn register(
    new: &NewCredential,
    party: &RelyingParty,
    challenge: &[u8],
) -> Result<RegisteredCredential, PasskeyFlaw> {
    ClientData::read(&new.client_data)?.check(Ceremony::Create, party, challenge)?;
    let said = AuthenticatorData::read(&new.authenticator_data)?;
    said.check(party)?;
    let public_key = said.new_key(&new.id)?;
    Ok(RegisteredCredential { public_key: public_key.to_vec(), counter: said.counter })
}

/// Verifies that the passkey with this key signed the challenge on this page. Returns its counter.
pub(crate) fn verify(
    assertion: &PasskeyAssertion,
    party: &RelyingParty,
    challenge: &[u8],
    public_key: &[u8],
) -> Result<u32, PasskeyFlaw> {
    ClientData::read(&assertion.client_data)?.check(Ceremony::Get, party, challenge)?;
    let said = AuthenticatorData::read(&assertion.authenticator_data)?;
    said.check(party)?;
    let (key, _) = CoseKey::read(public_key).ok_or(PasskeyFlaw::Algorithm)?;
    let client_data = digest(&SHA256, &assertion.client_data);
    let signed = [&assertion.authenticator_data, client_data.as_ref()].concat();
    match key.verifies(&signed, &assertion.signature) {
        true => Ok(said.counter),
        false => Err(PasskeyFlaw::Signature),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    base64::decode(&text).ok_or_else(|| serde::de::Error::custom("not base64"))
}

// === impl RelyingParty ===

impl RelyingParty {
    /// Of a page's origin. `None` where browsers have no passkeys: without a host name, or over plain HTTP, except at
    /// `localhost`.
    pub(crate) fn of(origin: &str) -> Option<Self> {
        let (scheme, authority) = origin.split_once("://")?;
        let (host, port) = authority.split_once(':').unwrap_or((authority, "0"));
        let is_name = |host: &str| {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
            !host.is_empty() && host.len() <= 253 && host.bytes().all(is_plain) && host.parse::<Ipv4Addr>().is_err()
        };
        let is_local = host == "localhost" || host.ends_with(".localhost");
        let is_secure = scheme == "https" || (scheme == "http" && is_local);
        let is_valid = is_secure && is_name(host) && port.parse::<u16>().is_ok();
        is_valid.then(|| Self { origin: origin.to_owned(), id: host.to_owned() })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }
}

// === impl Ceremony ===

impl Ceremony {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "webauthn.create",
            Self::Get => "webauthn.get",
        }
    }
}

// === impl ClientData ===

impl ClientData {
    fn read(bytes: &[u8]) -> Result<Self, PasskeyFlaw> {
        if bytes.len() > MAX_CLIENT_DATA {
            return Err(PasskeyFlaw::Malformed);
        }
        serde_json::from_slice(bytes).map_err(|_| PasskeyFlaw::Malformed)
    }

    fn check(&self, ceremony: Ceremony, party: &RelyingParty, challenge: &[u8]) -> Result<(), PasskeyFlaw> {
        if self.ceremony != ceremony.as_str() {
            return Err(PasskeyFlaw::Ceremony);
        }
        if self.challenge != text(challenge) {
            return Err(PasskeyFlaw::Challenge);
        }
        match self.origin == party.origin && !self.cross_origin {
            true => Ok(()),
            false => Err(PasskeyFlaw::Origin),
        }
    }
}

// === impl AuthenticatorData ===

impl<'a> AuthenticatorData<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, PasskeyFlaw> {
        let malformed = PasskeyFlaw::Malformed;
        let (host, rest) = bytes.split_at_checked(32).ok_or(malformed)?;
        let (flags, rest) = rest.split_first().ok_or(malformed)?;
        let (counter, rest) = rest.split_first_chunk().ok_or(malformed)?;
        Ok(Self { host, flags: *flags, counter: u32::from_be_bytes(*counter), rest })
    }

    fn check(&self, party: &RelyingParty) -> Result<(), PasskeyFlaw> {
        if self.host != digest(&SHA256, party.id.as_bytes()).as_ref() {
            return Err(PasskeyFlaw::Host);
        }
        match self.has(PRESENT) && self.has(VERIFIED) {
            true => Ok(()),
            false => Err(PasskeyFlaw::Unverified),
        }
    }

    /// The key of a new passkey with this id.
    fn new_key(&self, id: &[u8]) -> Result<&'a [u8], PasskeyFlaw> {
        let malformed = PasskeyFlaw::Malformed;
        // The model of the authenticator comes first.
        let (_, rest) = self.rest.split_at_checked(16).filter(|_| self.has(ATTESTED)).ok_or(malformed)?;
        let (length, rest) = rest.split_first_chunk().ok_or(malformed)?;
        let (credential, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or(malformed)?;
        if credential != id || id.is_empty() || id.len() > MAX_CREDENTIAL {
            return Err(malformed);
        }
        CborMap::read(rest).ok_or(malformed)?;
        let (_, extensions) = CoseKey::read(rest).ok_or(PasskeyFlaw::Algorithm)?;
        if !self.has(EXTENDED) && !extensions.is_empty() {
            return Err(malformed);
        }
        Ok(&rest[..rest.len() - extensions.len()])
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag == flag
    }
}

#[cfg(test)]
mod tests;
