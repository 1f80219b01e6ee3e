//! What is mounted where, as the kernel says. A file system that a program serves, perhaps from another machine, can lie about
//! everything in it, but not about this.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

/// The mounts of this process, the newest last.
pub(super) struct MountTable(Vec<MountEntry>);

struct MountEntry {
    /// The number of the file system.
    device: String,
    mount_point: PathBuf,
    is_empty_folder: bool,
}

// === impl MountTable ===

impl MountTable {
    pub(super) fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read("/proc/self/mountinfo")?))
    }

    fn parse(table: &[u8]) -> Self {
        let entry = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ');
            let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
            let mount_point = unescape(fields.nth(1)?);
            // The kind of file system follows the optional fields, which a dash ends.
            let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
            Some(MountEntry { device, mount_point, is_empty_folder: kind == b"tmpfs" })
        };
        Self(table.split(|byte| *byte == b'\n').filter_map(entry).collect())
    }

    /// The file system that a path is in.
    pub(super) fn device_of(&self, path: &Path) -> Option<&str> {
        let above = self.0.iter().filter(|entry| path.starts_with(&entry.mount_point));
        above.max_by_key(|entry| entry.mount_point.as_os_str().len()).map(|entry| entry.device.as_str())
    }

    /// The file system that is mounted exactly there.
    pub(super) fn device_at(&self, path: &Path) -> Option<&str> {
        self.entry_at(path).map(|entry| entry.device.as_str())
    }

    /// The same, if it is one in memory, which was made empty.
    pub(super) fn empty_folder_at(&self, path: &Path) -> Option<&str> {
        self.entry_at(path).filter(|entry| entry.is_empty_folder).map(|entry| entry.device.as_str())
    }

    fn entry_at(&self, path: &Path) -> Option<&MountEntry> {
        self.0.iter().rfind(|entry| entry.mount_point == path)
    }
}

/// Spaces and backslashes are escaped as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let (mut plain, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(plain).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_and_innermost_mount_counts() {
        let table = MountTable::parse(
            b"21 1 8:1 / / rw - ext4 /dev/sda rw\n\
              22 21 0:40 / /home/ann/a\\040b rw shared:1 - fuse x rw\n\
              23 22 0:41 /in /home/ann/a\\040b rw - tmpfs x rw\n",
        );
        assert_eq!(table.device_of(Path::new("/home/ann/file")), Some("8:1"));
        assert_eq!(table.device_of(Path::new("/home/ann/a b/c")), Some("0:41"));
        assert_eq!(table.device_at(Path::new("/home/ann/a b")), Some("0:41"));
        assert_eq!(table.device_at(Path::new("/home/ann/a b/c")), None);
        assert_eq!(table.empty_folder_at(Path::new("/home/ann/a b")), Some("0:41"));
        assert_eq!(table.empty_folder_at(Path::new("/")), None);
    }
}
