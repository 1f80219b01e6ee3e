//! The pin of a hub's TLS key, written as `sha256:` and 64 hexadecimal digits. A client with the pin needs no
//! certificate authority.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::digest::{hex, unhex};

/// The SHA-256 of a certificate's public key (its `SubjectPublicKeyInfo`, DER). A renewed certificate with the same key has
/// the same pin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyPin([u8; 32]);

/// Text that is not a pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a pin; a pin is `sha256:` followed by 64 hexadecimal digits, and the hub prints it at start")]
pub struct PinParseError;

const PREFIX: &str = "sha256:";

// === impl KeyPin ===

impl KeyPin {
    pub const fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    pub const fn digest(self) -> [u8; 32] {
        self.0
    }
}

impl FromStr for KeyPin {
    type Err = PinParseError;

    fn from_str(text: &str) -> Result<Self, PinParseError> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(PinParseError)?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        unhex(digits).filter(|_| plain).map(Self).ok_or(PinParseError)
    }
}

impl fmt::Display for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", hex(&self.0))
    }
}

impl fmt::Debug for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({self})")
    }
}

impl Serialize for KeyPin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyPin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_read_as_it_is_written() {
        let pin = KeyPin::from_digest([0xa5; 32]);
        let text = format!("sha256:{}", "a5".repeat(32));
        assert_eq!(pin.to_string(), text);
        assert_eq!(text.to_uppercase().replace("SHA256", "sha256").parse(), Ok(pin));
        assert_eq!(format!(" {text}\n").parse(), Ok(pin));
        let short = text[..text.len() - 1].to_owned();
        for wrong in [short, text.replace("a5", "+5"), text.replace("sha256", "sha1"), "a5".repeat(32), String::new()] {
            assert_eq!(wrong.parse::<KeyPin>(), Err(PinParseError), "{wrong}");
        }
    }
}
