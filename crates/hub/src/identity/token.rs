//! Short-lived tokens (JWT, EdDSA): signing and strict verification.

use std::time::Duration;

use attache_protocol::{
    KeyId, RunId, Secret, TenantId, Timestamp, UserId,
    wire::{
        key::{KeyScope, Role},
        token::PublicKey,
    },
};
use aws_lc_rs::{
    digest,
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Our tokens are far shorter. Anything longer is rejected unread.
const MAX_TOKEN: usize = 4096;
/// How far another hub's clock may be off.
const LEEWAY: Duration = Duration::from_secs(5);
const ALGORITHM: &str = "EdDSA";
const TYPE: &str = "JWT";
/// A separate type, so that the two kinds of token can't be confused.
const RUN_TYPE: &str = "attache-run+jwt";

/// The key that signs tokens, and its key id.
pub(crate) struct TokenSigner {
    key: Ed25519KeyPair,
    kid: String,
    /// The issuer, and the audience a token must have here.
    origin: String,
}

/// The claims of a token. All members are required, and no others are allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenClaims {
    pub(crate) iss: String,
    /// The user, or the key if it has no user.
    pub(crate) sub: String,
    pub(crate) aud: String,
    pub(crate) exp: i64,
    pub(crate) iat: i64,
    pub(crate) nbf: i64,
    pub(crate) jti: String,
    pub(crate) tenant: TenantId,
    pub(crate) key: KeyId,
    pub(crate) role: Role,
    /// Null: everything the role allows.
    pub(crate) scopes: Option<Vec<KeyScope>>,
}

/// The claims of a run's token. All members are required, and no others are allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunTokenClaims {
    iss: String,
    /// The run.
    pub(crate) sub: RunId,
    aud: String,
    pub(crate) exp: i64,
    iat: i64,
    nbf: i64,
    pub(crate) tenant: TenantId,
    /// The epoch of the claim it came with.
    pub(crate) epoch: i64,
}

/// The content of a new token.
#[derive(Debug, Clone)]
pub(crate) struct TokenGrant {
    pub(crate) audience: Option<String>,
    pub(crate) at: Timestamp,
    pub(crate) ttl: Duration,
    pub(crate) jti: String,
    pub(crate) tenant: TenantId,
    pub(crate) key: KeyId,
    pub(crate) user: Option<UserId>,
    pub(crate) role: Role,
    pub(crate) scopes: Option<Vec<KeyScope>>,
}

/// The claim a run's token is issued for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunTokenGrant {
    pub(crate) at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) tenant: TenantId,
    pub(crate) run: RunId,
    pub(crate) epoch: i64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JwtHeader {
    alg: String,
    kid: String,
    typ: String,
}

/// Whether the text could be a token rather than a key: it has three parts.
pub(crate) fn looks_like_one(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

// === impl TokenSigner ===

impl TokenSigner {
    pub(crate) fn new(key: Ed25519KeyPair, origin: String) -> Self {
        // RFC 7638: the digest of the key's required members in order, so that no file is needed.
        let x = Base64UrlUnpadded::encode_string(key.public_key().as_ref());
        let thumbprint = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        let thumbprint = digest::digest(&digest::SHA256, thumbprint.as_bytes());
        Self { key, kid: Base64UrlUnpadded::encode_string(thumbprint.as_ref()), origin }
    }

    /// The public key that verifies the tokens.
    pub(crate) fn public(&self) -> PublicKey {
        PublicKey {
            kty: "OKP".to_owned(),
            crv: "Ed25519".to_owned(),
            alg: ALGORITHM.to_owned(),
            usage: "sig".to_owned(),
            kid: self.kid.clone(),
            x: Base64UrlUnpadded::encode_string(self.key.public_key().as_ref()),
            y: None,
        }
    }

    pub(crate) fn sign(&self, grant: TokenGrant) -> Result<(Secret<String>, Timestamp)> {
        let expires_at = grant.at.plus(grant.ttl);
        let claims = TokenClaims {
            iss: self.origin.clone(),
            sub: grant.user.map_or_else(|| grant.key.to_string(), |user| user.to_string()),
            aud: grant.audience.unwrap_or_else(|| self.origin.clone()),
            exp: seconds(expires_at),
            iat: seconds(grant.at),
            nbf: seconds(grant.at),
            jti: grant.jti,
            tenant: grant.tenant,
            key: grant.key,
            role: grant.role,
            scopes: grant.scopes,
        };
        Ok((self.write(TYPE, &claims)?, Timestamp::from_millis(claims.exp * 1000)))
    }

    /// Its audience is always this hub.
    pub(crate) fn sign_run(&self, grant: RunTokenGrant) -> Result<Secret<String>> {
        let claims = RunTokenClaims {
            iss: self.origin.clone(),
            sub: grant.run,
            aud: self.origin.clone(),
            exp: seconds(grant.expires_at),
            iat: seconds(grant.at),
            nbf: seconds(grant.at),
            tenant: grant.tenant,
            epoch: grant.epoch,
        };
        self.write(RUN_TYPE, &claims)
    }

    fn write<T: Serialize>(&self, kind: &str, claims: &T) -> Result<Secret<String>> {
        let signed = format!("{}.{}", encode(&self.header(kind)), encode(claims));
        let signature = self.key.try_sign(signed.as_bytes()).map_err(|error| Error::internal(&error))?;
        Ok(Secret::new(format!("{signed}.{}", Base64UrlUnpadded::encode_string(signature.as_ref()))))
    }

    fn header(&self, kind: &str) -> JwtHeader {
        JwtHeader { alg: ALGORITHM.to_owned(), kid: self.kid.clone(), typ: kind.to_owned() }
    }

    /// The token's claims, if we signed it for ourselves and it is valid now. All failures get the same error, so that
    /// a forger learns nothing.
    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Result<TokenClaims> {
        self.read(token, now).ok_or_else(|| {
            Error::unauthenticated("The token is invalid or has expired.")
                .remedy(attache_protocol::error::Remedy::CreateToken)
        })
    }

    fn read(&self, token: &str, now: Timestamp) -> Option<TokenClaims> {
        let claims: TokenClaims = self.signed(TYPE, token)?;
        let is_ours = claims.iss == self.origin && claims.aud == self.origin;
        (is_ours && is_now(claims.nbf, claims.exp, now)).then_some(claims)
    }

    /// The claims of a run's token. `None` for any other token.
    pub(crate) fn read_run(&self, token: &str, now: Timestamp) -> Option<RunTokenClaims> {
        let claims: RunTokenClaims = self.signed(RUN_TYPE, token)?;
        let is_ours = claims.iss == self.origin && claims.aud == self.origin;
        (is_ours && is_now(claims.nbf, claims.exp, now)).then_some(claims)
    }

    /// The claims of a token of this kind that we signed.
    fn signed<T: for<'de> Deserialize<'de>>(&self, kind: &str, token: &str) -> Option<T> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        // The header selects nothing: there is one algorithm and one key.
        if decode::<JwtHeader>(header)? != self.header(kind) {
            return None;
        }
        let signature = Base64UrlUnpadded::decode_vec(signature).ok()?;
        let key = UnparsedPublicKey::new(&ED25519, self.key.public_key().as_ref());
        key.verify(signed.as_bytes(), &signature).ok()?;
        decode(payload)
    }
}

impl std::fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("kid", &self.kid).finish_non_exhaustive()
    }
}

fn seconds(at: Timestamp) -> i64 {
    at.millis().div_euclid(1000)
}

fn is_now(not_before: i64, expires: i64, now: Timestamp) -> bool {
    let (now, leeway) = (now.millis(), i64::try_from(LEEWAY.as_millis()).unwrap_or(0));
    not_before.saturating_mul(1000) <= now.saturating_add(leeway) && now < expires.saturating_mul(1000)
}

fn encode<T: Serialize>(value: &T) -> String {
    Base64UrlUnpadded::encode_string(&serde_json::to_vec(value).expect("our own types serialise to JSON"))
}

/// Strict: unknown and duplicate members are rejected.
fn decode<T: for<'de> Deserialize<'de>>(part: &str) -> Option<T> {
    serde_json::from_slice(&Base64UrlUnpadded::decode_vec(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    const ORIGIN: &str = "https://hub.example";

    fn signer(seed: u8) -> TokenSigner {
        TokenSigner::new(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap(), ORIGIN.to_owned())
    }

    fn grant(env: &Env) -> TokenGrant {
        TokenGrant {
            audience: None,
            at: env.now(),
            ttl: Duration::from_secs(900),
            jti: "jti-1".to_owned(),
            tenant: env.tenant_id(),
            key: env.key_id(),
            user: Some(env.user_id()),
            role: Role::Operator,
            scopes: Some(vec![KeyScope::Read]),
        }
    }

    fn raw(signer: &TokenSigner, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", Base64UrlUnpadded::encode_string(header.as_bytes()), {
            Base64UrlUnpadded::encode_string(claims.as_bytes())
        });
        let signature = signer.key.sign(signed.as_bytes());
        format!("{signed}.{}", Base64UrlUnpadded::encode_string(signature.as_ref()))
    }

    #[test]
    fn a_token_contains_its_grant() {
        let (env, signer) = (Env::seeded(1), signer(1));
        let grant = grant(&env);
        let (token, expires_at) = signer.sign(grant.clone()).unwrap();
        let claims = signer.verify(token.expose(), env.now()).unwrap();
        assert_eq!(
            claims,
            TokenClaims {
                iss: ORIGIN.to_owned(),
                sub: grant.user.unwrap().to_string(),
                aud: ORIGIN.to_owned(),
                exp: 1_700_000_900,
                iat: 1_700_000_000,
                nbf: 1_700_000_000,
                jti: "jti-1".to_owned(),
                tenant: grant.tenant,
                key: grant.key,
                role: Role::Operator,
                scopes: Some(vec![KeyScope::Read]),
            }
        );
        assert_eq!(expires_at, Timestamp::from_millis(1_700_000_900_000));
    }

    #[test]
    fn forged_tokens_are_rejected() {
        let (env, signer, other) = (Env::seeded(1), signer(1), signer(2));
        let now = env.now();
        let (good, _) = signer.sign(grant(&env)).unwrap();
        let good = good.expose().as_str();
        let (header, rest) = good.split_once('.').unwrap();
        let (payload, signature) = rest.split_once('.').unwrap();
        let text = |part: &str| String::from_utf8(Base64UrlUnpadded::decode_vec(part).unwrap()).unwrap();
        let (header_text, claims) = (text(header), text(payload));
        assert_eq!(raw(&signer, &header_text, &claims), good, "the table below forges with the right tool");
        let b64 = |text: &str| Base64UrlUnpadded::encode_string(text.as_bytes());
        let changed = claims.replace("operator", "owner");
        assert_ne!(changed, claims);
        let hs256 = {
            let signed = format!("{}.{payload}", b64(&header_text.replace("EdDSA", "HS256")));
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, signer.key.public_key().as_ref());
            let tag = aws_lc_rs::hmac::sign(&key, signed.as_bytes());
            format!("{signed}.{}", Base64UrlUnpadded::encode_string(tag.as_ref()))
        };
        let with = |claims: String| raw(&signer, &header_text, &claims);
        let forged = [
            ("nothing", String::new()),
            ("dots", "..".to_owned()),
            ("more dots", format!("{good}.x")),
            ("alg none", format!("{}.{payload}.", b64(&header_text.replace("EdDSA", "none")))),
            ("alg none, signed", format!("{}.{payload}.{signature}", b64(&header_text.replace("EdDSA", "none")))),
            ("alg none, truly signed", raw(&signer, &header_text.replace("EdDSA", "none"), &claims)),
            ("HS256 with the public key", hs256),
            ("ES256", raw(&signer, &header_text.replace("EdDSA", "ES256"), &claims)),
            ("another alg's case", raw(&signer, &header_text.replace("EdDSA", "eddsa"), &claims)),
            ("another kid", raw(&signer, &header_text.replace(&signer.kid, &other.kid), &claims)),
            ("another key", raw(&other, &header_text, &claims)),
            ("another type", raw(&signer, &header_text.replace("JWT", "JWE"), &claims)),
            ("a header with jwk", raw(&signer, &header_text.replace('}', r#","jwk":{}}"#), &claims)),
            ("a header with crit", raw(&signer, &header_text.replace('}', r#","crit":["exp"]}"#), &claims)),
            ("a header twice", raw(&signer, &header_text.replace('{', r#"{"alg":"EdDSA","#), &claims)),
            ("a changed payload", format!("{header}.{}.{signature}", b64(&changed))),
            ("a changed header", format!("{}.{payload}.{signature}", b64(&header_text.replace(':', ": ")))),
            ("no signature", format!("{header}.{payload}.")),
            ("half a signature", format!("{header}.{payload}.{}", &signature[..signature.len() / 2])),
            ("truncated", good[..good.len() - 1].to_owned()),
            ("padded", format!("{good}=")),
            ("blanks", format!("{good} ")),
            ("a newline inside", format!("{header}.{payload}\n.{signature}")),
            ("another base64", format!("{header}.{payload}+.{signature}")),
            ("a claim twice", with(claims.replace('{', r#"{"role":"owner","#))),
            ("an unknown claim", with(claims.replace('{', r#"{"admin":true,"#))),
            ("no expiry", with(claims.replace(r#""exp":1700000900,"#, ""))),
            ("an expiry in words", with(claims.replace("1700000900", r#""1700000900""#))),
            ("an endless number", with(claims.replace("1700000900", "1e400"))),
            ("expired", with(claims.replace("1700000900", "1700000000"))),
            ("expired long ago", with(claims.replace("1700000900", "-9223372036854775808"))),
            ("not yet", with(claims.replace(r#""nbf":1700000000"#, r#""nbf":1700000006"#))),
            ("another issuer", with(claims.replace(&format!(r#""iss":"{ORIGIN}"#), r#""iss":"https://evil.example"#))),
            (
                "another audience",
                with(claims.replace(&format!(r#""aud":"{ORIGIN}"#), r#""aud":"https://other.example"#)),
            ),
            (
                "many audiences",
                with(claims.replace(&format!(r#""aud":"{ORIGIN}""#), &format!(r#""aud":["{ORIGIN}"]"#))),
            ),
            ("an unknown role", with(claims.replace("operator", "god"))),
            ("no object", with("[]".to_owned())),
            ("no JSON", with("{".to_owned())),
            ("huge", with(claims.replace("jti-1", &"x".repeat(4096)))),
            ("deep", with("[".repeat(1000))),
        ];
        for (what, token) in &forged {
            assert_ne!(token, good, "{what} is not a forgery");
            assert_eq!(signer.read(token, now), None, "{what}");
        }
        assert!(signer.read(good, now).is_some());
        assert!(signer.read(good, Timestamp::from_millis(1_700_000_899_999)).is_some());
        assert_eq!(signer.read(good, Timestamp::from_millis(1_700_000_900_000)), None);
        let early = with(claims.replace(r#""nbf":1700000000"#, r#""nbf":1700000004"#));
        assert!(signer.read(&early, now).is_some(), "a clock may be off a little");
    }

    #[test]
    fn the_two_kinds_of_token_are_never_confused() {
        let (env, signer, other) = (Env::seeded(1), signer(1), signer(2));
        let (now, later) = (env.now(), env.now().plus(Duration::from_secs(900)));
        let grant = RunTokenGrant { at: now, expires_at: later, tenant: env.tenant_id(), run: env.run_id(), epoch: 3 };
        let token = signer.sign_run(grant).unwrap();
        let claims = signer.read_run(token.expose(), now).unwrap();
        assert_eq!((claims.sub, claims.epoch, claims.tenant), (grant.run, 3, grant.tenant));
        assert_eq!(signer.read(token.expose(), now), None, "not a key's token");
        assert_eq!(other.read_run(token.expose(), now), None, "another hub's");
        assert_eq!(signer.read_run(token.expose(), later), None, "expired");
        let (of_a_key, _) = signer.sign(self::grant(&env)).unwrap();
        assert_eq!(signer.read_run(of_a_key.expose(), now), None);
        // The right type, signed by us, with the claims of the other kind.
        let header = serde_json::to_string(&signer.header(RUN_TYPE)).unwrap();
        let payload = of_a_key.expose().split('.').nth(1).unwrap();
        let claims = String::from_utf8(Base64UrlUnpadded::decode_vec(payload).unwrap()).unwrap();
        assert_eq!(signer.read_run(&raw(&signer, &header, &claims), now), None);
    }
}
