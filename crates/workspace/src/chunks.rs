//! Content cut into chunks where the content says so (FastCDC): after an edit, all chunks but those around it are as before,
//! wherever they are now.

use std::io::{self, Read};

use aws_lc_rs::digest::{Context, SHA256, digest};
use fastcdc::v2020::{Error, StreamCDC};

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) hash: [u8; 32],
}

/// Identifies content by its chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ContentId(pub(crate) [u8; 32]);

/// The shortest, usual and longest chunk. Two of the longest fit into the 64 KB that a small change may cost.
const SIZES: (usize, usize, usize) = (2 << 10, 8 << 10, 31 << 10);

// === impl Chunk ===

impl Chunk {
    /// In a list of chunks, which has no offsets.
    pub(crate) const LENGTH: usize = 4 + 32;

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.length.to_be_bytes());
        out.extend(self.hash);
    }

    /// Reads a list of chunks. `None` if it isn't one.
    pub(crate) fn read_all(list: &[u8]) -> Option<Vec<Self>> {
        let (records, rest) = list.as_chunks::<{ Self::LENGTH }>();
        let mut offset = 0_u64;
        let chunks = records.iter().map(|record| {
            let (length, hash) = record.split_first_chunk::<4>()?;
            let chunk = Self { offset, length: u32::from_be_bytes(*length), hash: hash.try_into().ok()? };
            offset = offset.checked_add(u64::from(chunk.length))?;
            Some(chunk)
        });
        if rest.is_empty() { chunks.collect() } else { None }
    }
}

// === impl ContentId ===

impl ContentId {
    pub(crate) fn of(chunks: &[Chunk]) -> Self {
        let mut context = Context::new(&SHA256);
        for chunk in chunks {
            context.update(&chunk.hash);
        }
        Self(finish(context.finish().as_ref()))
    }
}

/// Reads content to its end, and passes on each chunk with its bytes.
pub(crate) fn each_chunk(content: impl Read, mut take: impl FnMut(Chunk, &[u8]) -> io::Result<()>) -> io::Result<()> {
    for piece in StreamCDC::new(content, SIZES.0, SIZES.1, SIZES.2) {
        let piece = piece.map_err(|error| match error {
            Error::IoError(error) => error,
            other => io::Error::other(other.to_string()),
        })?;
        let length = u32::try_from(piece.length).map_err(io::Error::other)?;
        let hash = finish(digest(&SHA256, &piece.data).as_ref());
        take(Chunk { offset: piece.offset, length, hash }, &piece.data)?;
    }
    Ok(())
}

pub(crate) fn chunks_of(content: impl Read) -> io::Result<Vec<Chunk>> {
    let mut chunks = Vec::new();
    each_chunk(content, |chunk, _| {
        chunks.push(chunk);
        Ok(())
    })?;
    Ok(chunks)
}

fn finish(hash: &[u8]) -> [u8; 32] {
    hash.try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 7_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn an_edit_changes_only_the_chunks_around_it() {
        let before = noise(1 << 20);
        let mut after = before.clone();
        after.splice(500_000..500_010, *b"a longer text than there was");
        let (old, new) = (chunks_of(&before[..]).unwrap(), chunks_of(&after[..]).unwrap());
        let is_new = |chunk: &&Chunk| !old.iter().any(|known| known.hash == chunk.hash);
        let sent: u64 = new.iter().filter(is_new).map(|chunk| u64::from(chunk.length)).sum();
        assert!((1..=62 << 10).contains(&sent), "{sent}");
        assert_eq!(new.iter().map(|chunk| u64::from(chunk.length)).sum::<u64>(), after.len() as u64);
        assert_ne!(ContentId::of(&old), ContentId::of(&new));
    }

    #[test]
    fn a_list_of_chunks_is_read_back() {
        let chunks = chunks_of(&noise(100_000)[..]).unwrap();
        let mut list = Vec::new();
        chunks.iter().for_each(|chunk| chunk.write(&mut list));
        assert_eq!(Chunk::read_all(&list), Some(chunks));
        assert_eq!(Chunk::read_all(&list[1..]), None);
        assert_eq!(chunks_of(io::empty()).unwrap(), []);
    }
}
