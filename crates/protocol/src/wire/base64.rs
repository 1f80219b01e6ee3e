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
}
