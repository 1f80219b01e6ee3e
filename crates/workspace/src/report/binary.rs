//! Binary files as `git diff --binary` writes them: complete, uncompressed, and with the ids by which git checks them.

use std::fmt::Write as _;

use attache_protocol::digest::hex;
use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

/// How many bytes a line of the patch carries.
const LINE: usize = 52;
/// How many bytes an uncompressed zlib block carries.
const BLOCK: usize = 0xffff;
const DIGITS: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Writes what follows the modes.
pub(super) fn write(old: &[u8], new: &[u8], was_there: bool, is_there: bool, text: &mut String) {
    let id = |bytes: &[u8], exists: bool| if exists { id(bytes) } else { "0".repeat(40) };
    let _ = writeln!(text, "index {}..{}\nGIT binary patch", id(old, was_there), id(new, is_there));
    literal(new, text);
    literal(old, text);
}

/// The id of a blob.
fn id(bytes: &[u8]) -> String {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    context.update(format!("blob {}\0", bytes.len()).as_bytes());
    context.update(bytes);
    hex(context.finish().as_ref())
}

fn literal(bytes: &[u8], text: &mut String) {
    let _ = writeln!(text, "literal {}", bytes.len());
    for line in stored(bytes).chunks(LINE) {
        let length = u8::try_from(line.len()).unwrap_or(0);
        text.push(char::from(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 }));
        for group in line.chunks(4) {
            let mut word = [0; 4];
            word[..group.len()].copy_from_slice(group);
            let mut value = u32::from_be_bytes(word);
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = DIGITS[(value % 85) as usize];
                value /= 85;
            }
            text.extend(digits.map(char::from));
        }
        text.push('\n');
    }
    text.push('\n');
}

/// Uncompressed bytes in zlib format (RFC 1950).
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut blocks = bytes.chunks(BLOCK).peekable();
    if blocks.peek().is_none() {
        stream.extend([1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend_from_slice(block);
    }
    let (mut low, mut high) = (1_u32, 0_u32);
    for &byte in bytes {
        low = (low + u32::from(byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    stream.extend((high << 16 | low).to_be_bytes());
    stream
}
