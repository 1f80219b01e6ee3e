//! Mounts, and the folders under them.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::MetadataExt as _,
    },
    path::Path,
};

use rustix::{
    fs::{IFlags, ioctl_getflags, ioctl_setflags},
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

/// Whether folders of other machines can be mounted here.
pub const CAN_MOUNT: bool = true;

/// Sets the file system's immutable flag of a folder.
pub fn set_immutable(folder: &Path) -> io::Result<()> {
    change_flags(folder, IFlags::union)
}

pub fn clear_immutable(folder: &Path) -> io::Result<()> {
    change_flags(folder, IFlags::difference)
}

fn change_flags(folder: &Path, change: impl FnOnce(IFlags, IFlags) -> IFlags) -> io::Result<()> {
    let folder = File::open(folder)?;
    let flags = ioctl_getflags(&folder)?;
    Ok(ioctl_setflags(&folder, change(flags, IFlags::IMMUTABLE))?)
}

/// Mounts an empty file system on a folder that nobody can write to.
pub fn cover(folder: &Path) -> io::Result<()> {
    Ok(mount("none", folder, "tmpfs", MountFlags::RDONLY, Some(c"size=4k,mode=555"))?)
}

/// Removes what [`cover`] has mounted.
pub fn uncover(folder: &Path) {
    if mounted_at(folder).ok().flatten().as_deref() == Some("tmpfs") {
        let _ = unmount(folder, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

/// Sets how much is read ahead from a mounted file system. Only root can do that.
pub fn set_read_ahead(mount_point: &Path, kibibytes: u32) {
    let Ok(found) = fs::metadata(mount_point) else { return };
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let _ = fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), kibibytes.to_string());
}

/// The type of the topmost file system mounted exactly there.
pub fn mounted_at(mount_point: &Path) -> io::Result<Option<String>> {
    Ok(find(&fs::read("/proc/self/mountinfo")?, mount_point))
}

fn find(table: &[u8], mount_point: &Path) -> Option<String> {
    let mut lines = table.rsplit(|byte| *byte == b'\n');
    let of_line = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let here = unescape(fields.get(4)?).as_bytes() == mount_point.as_os_str().as_bytes();
        let dash = fields.iter().position(|field| *field == b"-")?;
        let kind = String::from_utf8_lossy(fields.get(dash + 1)?).into_owned();
        here.then_some(kind)
    };
    lines.find_map(of_line)
}

/// Spaces and backslashes are escaped as three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                plain.push(escaped);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_at_exactly_this_path_is_found() {
        let table = b"27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            41 27 0:38 / /m/a\\040b ro - tmpfs none ro\n\
            42 41 0:39 / /m/a\\040b rw,nosuid shared:1 - fuse.sshfs lease:/x rw\n";
        for (place, expected) in
            [("/m/a b", Some("fuse.sshfs")), ("/", Some("ext4")), ("/m", None), ("/m/a\\040b", None)]
        {
            assert_eq!(find(table, Path::new(place)).as_deref(), expected, "{place}");
        }
    }
}
