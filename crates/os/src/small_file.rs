//! Small files that somebody else may have put there: never a link, never a pipe that blocks, never more than expected.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

/// Opens a regular file. Fails with [`io::ErrorKind::InvalidInput`] if it is something else, or longer than this.
pub fn open(path: &Path, max_bytes: u64) -> io::Result<File> {
    // A pipe is opened at once, and refused then: it could take the place of a file that was looked at before.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        opened => opened?,
    };
    let found = file.metadata()?;
    if found.is_file() && found.len() <= max_bytes { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// The text of such a file.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    open(path, max_bytes)?.take(max_bytes).read_to_string(&mut text)?;
    Ok(text)
}

/// What is in such a file, which may name others: names need not be UTF-8.
pub fn read_bytes(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, max_bytes)?.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_small_regular_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&at("file"), 4).unwrap(), "text");
        assert_eq!(read_bytes(&at("file"), 4).unwrap(), b"text");
        for name in ["link", "pipe", "huge", "."] {
            assert_eq!(read(&at(name), 100).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(read(&at("file"), 3).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(read(&at("none"), 3).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
