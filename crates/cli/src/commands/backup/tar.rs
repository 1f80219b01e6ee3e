//! Writes headers of tar archives (POSIX ustar, with pax records for long names).

/// A header, preceded by a pax record if the name or size doesn't fit.
type TarHeader = Vec<u8>;

const BLOCK: usize = 512;
/// Maximum length of a name in a header.
const MAX_NAME: usize = 100;
/// The end-of-archive marker.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

pub(crate) fn file(name: &str, mode: u32, size: u64, modified: i64) -> TarHeader {
    entry(name, mode, size, modified, b'0')
}

pub(crate) fn folder(name: &str, mode: u32) -> TarHeader {
    entry(&format!("{name}/"), mode, 0, 0, b'5')
}

/// The number of padding bytes after content of this size.
pub(crate) const fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

fn entry(name: &str, mode: u32, size: u64, modified: i64, kind: u8) -> TarHeader {
    let mut header = Vec::new();
    // Sizes beyond 8 GiB and long names go into a pax record.
    let mut records = String::new();
    if name.len() > MAX_NAME {
        records += &record("path", name);
    }
    if size >= 1 << 33 {
        records += &record("size", &size.to_string());
    }
    if !records.is_empty() {
        header.extend(block("pax", 0o600, records.len() as u64, 0, b'x'));
        header.extend_from_slice(records.as_bytes());
        header.resize(header.len() + usize::try_from(padding(records.len() as u64)).unwrap_or(0), 0);
    }
    let short = &name[..name.floor_char_boundary(MAX_NAME)];
    header.extend(block(short, mode, size, modified, kind));
    header
}

/// `LENGTH KEY=VALUE` and a line break; the length counts itself.
fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len() + 1;
    while length.to_string().len() + rest.len() != length {
        length = length.to_string().len() + rest.len();
    }
    format!("{length}{rest}")
}

fn block(name: &str, mode: u32, size: u64, modified: i64, kind: u8) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, &format!("{:07o}", mode & 0o7777));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", size & ((1 << 33) - 1)));
    put(136, &format!("{:011o}", modified.max(0) & ((1 << 33) - 1)));
    put(148, "        ");
    put(257, "ustar\x0000");
    block[156] = kind;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_valid_ustar() {
        let header = file("a/b", 0o100_600, 5, 1);
        assert_eq!(header.len(), BLOCK);
        assert_eq!(&header[..4], b"a/b\0");
        assert_eq!(&header[100..108], b"0000600\0");
        assert_eq!(&header[124..136], b"00000000005\0");
        assert_eq!(&header[257..265], b"ustar\x0000");
        assert_eq!((padding(0), padding(1), padding(512)), (0, 511, 0));
    }

    #[test]
    fn a_long_name_gets_a_pax_record_with_its_own_length() {
        assert_eq!(record("path", "x"), "9 path=x\n");
        assert_eq!(record("path", "xx"), "11 path=xx\n");
        let name = "n".repeat(120);
        let text = record("path", &name);
        assert_eq!(text.split(' ').next().and_then(|length| length.parse().ok()), Some(text.len()));
        assert_eq!(file(&name, 0o600, 0, 0).len(), 3 * BLOCK);
    }
}
