//! Finds the program in what was downloaded: a release archive (`.tar.gz`), or the program itself.
//!
//! Only used on content whose signature is valid, so the formats are read strictly and without care for hostile sizes.

use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// Larger than any program of ours, with room for a build with debug information.
const MAX_UNPACKED: usize = 2 << 30;
const BLOCK: usize = 512;

/// The bytes of the program, or what is wrong with the file.
pub(super) fn program(content: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    if content.starts_with(b"\x7fELF") {
        return Ok(content);
    }
    if !content.starts_with(b"\x1f\x8b\x08") {
        return Err("it is neither a release archive nor a program");
    }
    let archive = gunzip(&content).ok_or("the archive is damaged")?;
    entry(&archive, "attache").map(<[u8]>::to_vec).ok_or("the archive has no program `attache`")
}

/// Unpacks gzip (RFC 1952). The signature covers the file, so its checksum isn't needed.
fn gunzip(content: &[u8]) -> Option<Vec<u8>> {
    let flags = *content.get(3)?;
    let mut rest = content.get(10..)?;
    if flags & 4 != 0 {
        let length = usize::from(u16::from_le_bytes([*rest.first()?, *rest.get(1)?]));
        rest = rest.get(2 + length..)?;
    }
    // A file name and a comment, each with a zero at the end.
    for flag in [8, 16] {
        if flags & flag != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & 2 != 0 {
        rest = rest.get(2..)?;
    }
    decompress_to_vec_with_limit(rest, MAX_UNPACKED).ok()
}

/// The content of the first regular file with this name in a tar archive, in whatever folder.
fn entry<'a>(archive: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut rest = archive;
    while let Some((header, after)) = rest.split_at_checked(BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            return None;
        }
        let text = |range: std::ops::Range<usize>| {
            let field = &header[range];
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            std::str::from_utf8(&field[..end]).ok()
        };
        let size = usize::from_str_radix(text(124..136)?.trim(), 8).ok()?;
        let is_file = matches!(header[156], b'0' | 0);
        if is_file && text(0..100)?.rsplit('/').next() == Some(name) {
            return after.get(..size);
        }
        rest = after.get(size.next_multiple_of(BLOCK)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_program_is_found_in_an_archive_that_tar_made() {
        let folder = tempfile::tempdir().unwrap();
        let stage = folder.path().join("attache-1.0");
        std::fs::create_dir_all(stage.join("man")).unwrap();
        std::fs::write(stage.join("attache"), "the program").unwrap();
        std::fs::write(stage.join("man/attache.1"), "a page").unwrap();
        std::fs::write(stage.join("README.md"), vec![b'x'; 1500]).unwrap();
        let made = |options: &str, names: &[&str]| {
            let mut tar = Command::new("tar");
            tar.args(["-C", folder.path().to_str().unwrap(), "--sort=name", options, "-"]).args(names);
            tar.output().unwrap().stdout
        };
        assert_eq!(program(made("-czf", &["attache-1.0"])).unwrap(), b"the program");
        assert_eq!(program(made("-czf", &["attache-1.0/man"])), Err("the archive has no program `attache`"));
        assert_eq!(program(made("-cf", &["attache-1.0"])), Err("it is neither a release archive nor a program"));
        let mut cut = made("-czf", &["attache-1.0"]);
        cut.truncate(cut.len() / 2);
        assert_eq!(program(cut), Err("the archive is damaged"));
        assert_eq!(program(b"\x7fELF\x02".to_vec()).unwrap(), b"\x7fELF\x02");
    }
}
