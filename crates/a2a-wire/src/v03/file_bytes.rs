//! The bytes of a file in gRPC and HTTP+JSON of 0.3, which most senders put there as base64 text.

use attache_protocol::wire::base64::{decode, encode};
use base64ct::{Base64, Encoding as _};

/// The value of `file_with_bytes` in 0.3: the field is for bytes, but most 0.3 SDKs put the file's base64 text there
/// and fail on anything else, so we do the same. `None` for text that is not base64.
pub(crate) fn to_old_file(text: &str) -> Option<String> {
    let bytes = decode(text)?;
    Some(if Base64::decode_vec(text).is_ok() { text.to_owned() } else { encode(&bytes) })
}

/// The base64 text of `file_with_bytes` in 0.3: the text itself, or bytes from a sender that took the field literally.
pub(crate) fn from_old_file(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) if Base64::decode_vec(&text).is_ok() => text,
        Ok(text) => encode(text.as_bytes()),
        Err(error) => encode(error.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_0_3_is_its_base64_text_whether_it_came_as_text_or_as_bytes() {
        for text in ["aGk=", "aGk"] {
            assert_eq!(to_old_file(text).map(|text| from_old_file(text.into_bytes())).as_deref(), Some("aGk="));
        }
        assert_eq!(to_old_file("-_8").as_deref(), Some("+/8="));
        assert_eq!(to_old_file("no base64"), None);
        assert_eq!(from_old_file(vec![0, 255]), "AP8=");
        assert_eq!(from_old_file(b"hi!".to_vec()), "aGkh");
    }
}
