//! Decompresses zlib data piece by piece: enough to check a git object before git reads it.

use std::io::{self, BufRead};

use miniz_oxide::{
    DataFormat, MZFlush, MZStatus,
    inflate::stream::{self, InflateState},
};

/// Not valid zlib data, or unreadable.
#[derive(Debug)]
pub(super) enum InflateError {
    Data,
    Io(io::Error),
}

/// The size of a piece.
const PIECE: usize = 64 << 10;

/// Passes the decompressed data to `sink`. Nothing may follow it in the input.
pub(super) fn inflate(
    mut input: impl BufRead,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), InflateError>,
) -> Result<(), InflateError> {
    let mut state = InflateState::new_boxed(DataFormat::Zlib);
    let mut out = vec![0; PIECE];
    loop {
        let packed = input.fill_buf().map_err(InflateError::Io)?;
        let is_over = packed.is_empty();
        let step = stream::inflate(&mut state, packed, &mut out, MZFlush::None);
        input.consume(step.bytes_consumed);
        sink(&out[..step.bytes_written])?;
        match step.status {
            Ok(MZStatus::StreamEnd) => break,
            Ok(_) if !is_over || step.bytes_written > 0 => {}
            Ok(_) | Err(_) => return Err(InflateError::Data),
        }
    }
    if input.fill_buf().map_err(InflateError::Io)?.is_empty() { Ok(()) } else { Err(InflateError::Data) }
}

#[cfg(test)]
mod tests {
    use miniz_oxide::deflate::compress_to_vec_zlib;

    use super::*;

    fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
        let mut whole = Vec::new();
        // A few bytes at a time, like a slow disk.
        let input = io::BufReader::with_capacity(7, packed);
        let read = inflate(input, &mut |piece| {
            whole.extend_from_slice(piece);
            Ok(())
        });
        read.is_ok().then_some(whole)
    }

    #[test]
    fn valid_data_is_decompressed_and_anything_else_is_refused() {
        let noise: Vec<u8> = (0..300_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for content in [&b""[..], b"blob 2\0ab", &[b'x'; 1_000_000], &noise] {
            for level in [0, 6] {
                let packed = compress_to_vec_zlib(content, level);
                assert!(unpacked(&packed).as_deref() == Some(content), "{} bytes at level {level}", content.len());
                assert_eq!(unpacked(&[&packed[..], b"\0"].concat()), None, "something follows");
                assert_eq!(unpacked(&packed[..packed.len() - 1]), None, "the end is missing");
                let mut other = packed.clone();
                *other.last_mut().unwrap() ^= 1;
                assert_eq!(unpacked(&other), None, "another checksum");
            }
        }
        assert_eq!(unpacked(b""), None);
        assert_eq!(unpacked(b"not packed at all"), None);
    }
}
