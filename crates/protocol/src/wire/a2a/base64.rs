//! Base64 in JSON. Readers of ProtoJSON accept both alphabets, padded or not.

use base64ct::{Base64, Base64Unpadded, Encoding as _};

/// Decodes text in either alphabet.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let plain: String = text
        .trim_end_matches('=')
        .chars()
        .map(|character| match character {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    Base64Unpadded::decode_vec(&plain).ok()
}

pub fn encode(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

/// The value of `file_with_bytes` in 0.3: the field is for bytes, but most 0.3 SDKs put the file's base64 text there
/// and fail on anything else, so we do the same. `None` for text that is not base64.
pub fn to_old_file(text: &str) -> Option<String> {
    let bytes = decode(text)?;
    Some(if Base64::decode_vec(text).is_ok() { text.to_owned() } else { encode(&bytes) })
}

/// The base64 text of `file_with_bytes` in 0.3: the text itself, or bytes from a sender that took the field literally.
pub fn from_old_file(bytes: Vec<u8>) -> String {
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
    fn both_alphabets_decode_with_or_without_padding() {
        for text in ["+/8=", "-_8=", "+/8", "-_8"] {
            assert_eq!(decode(text), Some(vec![0xfb, 0xff]), "{text}");
        }
        assert_eq!(decode("a b"), None);
        assert_eq!(encode(&[0xfb, 0xff]), "+/8=");
    }

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
