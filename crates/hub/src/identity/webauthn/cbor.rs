//! Reads the one kind of CBOR that passkeys need: a small map from numbers to numbers and byte strings, as a COSE key is.
//! Pure.

/// A COSE key has five members at most.
const MAX_MEMBERS: u64 = 16;

/// What a member of the map holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CborValue<'a> {
    Number(i64),
    Bytes(&'a [u8]),
}

/// The members of a map, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CborMap<'a>(Vec<(i64, CborValue<'a>)>);

struct CborReader<'a>(&'a [u8]);

// === impl CborMap ===

impl<'a> CborMap<'a> {
    /// The map at the beginning of these bytes, and what follows it. `None` unless it is one in which no key is repeated.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut reader = CborReader(bytes);
        let (5, count @ 0..=MAX_MEMBERS) = reader.head()? else { return None };
        let mut members: Vec<(i64, CborValue<'a>)> = Vec::new();
        for _ in 0..count {
            let CborValue::Number(key) = reader.value()? else { return None };
            if members.iter().any(|(known, _)| *known == key) {
                return None;
            }
            members.push((key, reader.value()?));
        }
        Some((Self(members), reader.0))
    }

    pub(super) fn number(&self, key: i64) -> Option<i64> {
        match self.find(key)? {
            CborValue::Number(number) => Some(number),
            CborValue::Bytes(_) => None,
        }
    }

    pub(super) fn bytes(&self, key: i64) -> Option<&'a [u8]> {
        match self.find(key)? {
            CborValue::Number(_) => None,
            CborValue::Bytes(bytes) => Some(bytes),
        }
    }

    fn find(&self, key: i64) -> Option<CborValue<'a>> {
        self.0.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }
}

// === impl CborReader ===

impl<'a> CborReader<'a> {
    /// The major type of the next item, and its argument. Indefinite lengths are refused.
    fn head(&mut self) -> Option<(u8, u64)> {
        let first = *self.take(1)?.first()?;
        let argument = match first & 0x1f {
            small @ 0..24 => u64::from(small),
            size @ 24..28 => self.take(1 << (size - 24))?.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)),
            _ => return None,
        };
        Some((first >> 5, argument))
    }

    fn value(&mut self) -> Option<CborValue<'a>> {
        let (kind, argument) = self.head()?;
        match kind {
            0 => i64::try_from(argument).ok().map(CborValue::Number),
            1 => i64::try_from(argument).ok().map(|argument| CborValue::Number(-1 - argument)),
            2 => self.take(usize::try_from(argument).ok()?).map(CborValue::Bytes),
            _ => None,
        }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_and_what_follows_is_left() {
        let bytes = [0xa4, 0x01, 0x02, 0x03, 0x26, 0x20, 0x43, 7, 8, 9, 0x39, 0x01, 0x00, 0x19, 0x01, 0x00, 0xff];
        let (map, rest) = CborMap::read(&bytes).unwrap();
        assert_eq!((map.number(1), map.number(3), map.bytes(-1)), (Some(2), Some(-7), Some(&[7, 8, 9][..])));
        assert_eq!((map.number(-257), map.number(9), map.bytes(1), map.number(-1)), (Some(256), None, None, None));
        assert_eq!(rest, [0xff]);
        for end in 0..bytes.len() - 1 {
            assert_eq!(CborMap::read(&bytes[..end]), None, "{end}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let refused: [&[u8]; 12] = [
            &[],
            &[0x80],
            &[0xbf, 0xff],
            &[0xb1],
            &[0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            // A repeated key, a key of bytes, a text, a list, a number that is too large, and a length that is too large.
            &[0xa2, 0x01, 0x02, 0x01, 0x03],
            &[0xa1, 0x41, 0x01, 0x02],
            &[0xa1, 0x01, 0x61, 0x61],
            &[0xa1, 0x01, 0x81, 0x01],
            &[0xa1, 0x01, 0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0xa1, 0x01, 0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0xa1, 0x01, 0x1c],
        ];
        for bytes in refused {
            assert_eq!(CborMap::read(bytes), None, "{bytes:x?}");
        }
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                let _ = CborMap::read(&[first, second, 0x01, 0x02]);
            }
        }
    }
}
