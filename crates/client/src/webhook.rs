//! Signs webhook deliveries, and verifies them at the receiver.
//!
//! Every delivery has three headers:
//!
//! | header | value |
//! |---|---|
//! | `x-attache-timestamp` | when it was signed, in Unix seconds; a repeat is signed anew |
//! | `x-attache-signature` | `v1=` and the HMAC-SHA256 of `<timestamp>.<body>` in hexadecimal, keyed with the webhook's secret |
//! | `x-attache-delivery` | the same for every repeat of one delivery: what was handled already can be skipped |
//!
//! While a secret is being replaced there may be several signatures, separated by commas. One match is enough. A
//! receiver needs no library of ours. In Python:
//!
//! ```python
//! import hashlib, hmac, time
//!
//! def verify(secret: str, headers, body: bytes, tolerance: int = 300) -> bool:
//!     timestamp = headers.get("x-attache-timestamp", "")
//!     if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > tolerance:
//!         return False
//!     expected = "v1=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
//!     given = headers.get("x-attache-signature", "").split(",")
//!     return any(hmac.compare_digest(expected, one.strip()) for one in given)
//! ```
//!
//! `body` is the raw bytes, before any parsing.

use std::time::Duration;

use attache_protocol::{Secret, Timestamp, digest::hex};
use aws_lc_rs::{constant_time, hmac};
use reqwest::header::{HeaderMap, HeaderValue};

pub const TIMESTAMP: &str = "x-attache-timestamp";
pub const SIGNATURE: &str = "x-attache-signature";
pub const DELIVERY: &str = "x-attache-delivery";

/// Maximum clock difference between sender and receiver, including transmission delay.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// A delivery that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedDelivery {
    pub delivery: String,
    pub signed_at: Timestamp,
}

/// Why a delivery can't be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    #[error(
        "the header {0} is missing or isn't plain text. Check that no proxy removes headers that start with x-attache-."
    )]
    Header(&'static str),
    #[error("the header {TIMESTAMP} isn't a number of seconds.")]
    Timestamp,
    #[error("it was signed too long ago or in the future. Check the clocks of both machines.")]
    OutOfTime,
    #[error("the signature doesn't match. Use the secret of this webhook, and the body exactly as it arrived.")]
    Signature,
}

/// The three headers of a delivery that is sent at `now`.
///
/// Returns `None` if `delivery` isn't valid in a header.
pub fn sign(secret: &Secret<String>, delivery: &str, body: &[u8], now: Timestamp) -> Option<HeaderMap> {
    let timestamp = (now.millis() / 1000).to_string();
    let signature = format!("v1={}", hex(tag(secret, &timestamp, body).as_ref()));
    let mut headers = HeaderMap::new();
    headers.insert(TIMESTAMP, timestamp.parse().ok()?);
    headers.insert(SIGNATURE, signature.parse().ok()?);
    headers.insert(DELIVERY, HeaderValue::from_str(delivery).ok()?);
    Some(headers)
}

/// Verifies that a delivery was signed with this secret, close to `now`.
pub fn verify(
    secret: &Secret<String>,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
    tolerance: Duration,
) -> Result<VerifiedDelivery, WebhookError> {
    let header =
        |name: &'static str| headers.get(name).and_then(|value| value.to_str().ok()).ok_or(WebhookError::Header(name));
    let (timestamp, signatures, delivery) = (header(TIMESTAMP)?, header(SIGNATURE)?, header(DELIVERY)?);
    let is_number = timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: i64 = timestamp.parse().ok().filter(|_| is_number).ok_or(WebhookError::Timestamp)?;
    let signed_at = Timestamp::from_millis(seconds.checked_mul(1000).ok_or(WebhookError::Timestamp)?);
    // The signature has a resolution of one second, so it may be almost a second older.
    let tolerance = tolerance + Duration::from_millis(999);
    if now.since(signed_at).max(signed_at.since(now)) > tolerance {
        return Err(WebhookError::OutOfTime);
    }
    let expected = tag(secret, timestamp, body);
    let fits = |given: &str| {
        let bytes = given.trim().strip_prefix("v1=").and_then(unhex);
        bytes.is_some_and(|bytes| constant_time::verify_slices_are_equal(&bytes, expected.as_ref()).is_ok())
    };
    if !signatures.split(',').any(fits) {
        return Err(WebhookError::Signature);
    }
    Ok(VerifiedDelivery { delivery: delivery.to_owned(), signed_at })
}

fn tag(secret: &Secret<String>, timestamp: &str, body: &[u8]) -> hmac::Tag {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(timestamp.as_bytes());
    context.update(b".");
    context.update(body);
    context.sign()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"call_id":"a2a-1","status":"completed"}"#;
    const NOW: Timestamp = Timestamp::from_millis(1_763_199_000_500);

    fn secret() -> Secret<String> {
        Secret::new("whsec".to_owned())
    }

    fn signed() -> HeaderMap {
        sign(&secret(), "dlv_1", BODY, NOW).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(NOW.millis() + seconds * 1000)
    }

    #[test]
    fn the_headers_match_the_documentation() {
        // Computed with Python's hmac module, by the snippet above.
        let signature = "v1=b6d78a9a8c95f54e7b7211fd1d35b906315f81a28be2f06c8d35099b31e1a50d";
        let headers = signed();
        let all: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(all, [(TIMESTAMP, "1763199000"), (SIGNATURE, signature), (DELIVERY, "dlv_1")]);
        assert_eq!(sign(&secret(), "dlv\n1", BODY, NOW), None);
    }

    #[test]
    fn a_signature_is_valid_for_a_while() {
        let verified =
            VerifiedDelivery { delivery: "dlv_1".to_owned(), signed_at: Timestamp::from_millis(1_763_199_000_000) };
        for now in [NOW, at(300), at(-300)] {
            assert_eq!(verify(&secret(), &signed(), BODY, now, TOLERANCE), Ok(verified.clone()));
        }
        for now in [at(302), at(-302), Timestamp::from_millis(i64::MAX), Timestamp::from_millis(0)] {
            assert_eq!(verify(&secret(), &signed(), BODY, now, TOLERANCE), Err(WebhookError::OutOfTime));
        }
        let mut two = signed();
        let given = two[SIGNATURE].to_str().unwrap().to_owned();
        two.insert(SIGNATURE, format!("v2=00, v1=00, {given}").parse().unwrap());
        assert_eq!(verify(&secret(), &two, BODY, NOW, TOLERANCE), Ok(verified));
    }

    #[test]
    fn everything_else_is_rejected() {
        let other = Secret::new("other".to_owned());
        assert_eq!(verify(&other, &signed(), BODY, NOW, TOLERANCE), Err(WebhookError::Signature));
        assert_eq!(verify(&secret(), &signed(), b"{}", NOW, TOLERANCE), Err(WebhookError::Signature));
        let with = |name: &'static str, value: &str| {
            let mut headers = signed();
            headers.insert(name, value.parse().unwrap());
            verify(&secret(), &headers, BODY, NOW, TOLERANCE)
        };
        assert_eq!(with(TIMESTAMP, "1763199001"), Err(WebhookError::Signature));
        let given = signed()[SIGNATURE].to_str().unwrap().to_owned();
        for forged in ["", "v1=", "v1=0", "v1=zz", &given[3..], &given[..given.len() - 2], &format!("{given}00")] {
            assert_eq!(with(SIGNATURE, forged), Err(WebhookError::Signature), "{forged}");
        }
        for odd in ["", "-5", "+1763199000", "1763199000.5", "9223372036854775807"] {
            assert_eq!(with(TIMESTAMP, odd), Err(WebhookError::Timestamp), "{odd}");
        }
        for name in [TIMESTAMP, SIGNATURE, DELIVERY] {
            let mut headers = signed();
            headers.remove(name);
            assert_eq!(verify(&secret(), &headers, BODY, NOW, TOLERANCE), Err(WebhookError::Header(name)));
        }
    }
}
