//! Bytes as hexadecimal digits, and hashes cut to 16 bytes: keys and ids that identify without proving anything.

use std::fmt::Write as _;

use uuid::Uuid;

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// 32 bytes from exactly 64 digits.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

/// The first 16 bytes of a hash.
pub fn half(hash: blake3::Hash) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

/// 32 digits that stand for a text.
pub fn of_text(text: &str) -> String {
    hex(&half(blake3::hash(text.as_bytes())))
}

/// An id derived from a hash: a custom uuid (version 8), so that it looks like every other id.
pub fn uuid(hash: blake3::Hash) -> Uuid {
    uuid::Builder::from_custom_bytes(half(hash)).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_digits_of_32_bytes_are_read() {
        let bytes: [u8; 32] = std::array::from_fn(|index| 0x9f_u8.wrapping_mul(index as u8));
        assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        assert_eq!(unhex(&hex(&bytes).to_uppercase()), Some(bytes));
        for wrong in ["", "00", &"0".repeat(63), &"+f".repeat(32), &"0g".repeat(32), &"\u{e9}".repeat(32)] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}
