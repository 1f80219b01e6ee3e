//! What mounting needs on this machine, and which packages provide it.

use std::{fmt, fs};

use attache_os::{mounts, program};

/// A missing program or device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingProgram {
    /// A program's name or a device's path.
    pub what: &'static str,
    /// The package that provides it on Debian and its derivatives.
    pub package: &'static str,
}

pub(super) const SSHFS: &str = "sshfs";
pub(super) const FUSERMOUNT: &str = "fusermount3";
pub(super) const SETPRIV: &str = "setpriv";
const DEVICE: &str = "/dev/fuse";
/// Mounting is written for Linux.
const LINUX: MissingProgram = MissingProgram { what: "Linux", package: "" };

/// In the order in which a person would install them.
const PROGRAMS: [MissingProgram; 4] = [
    MissingProgram { what: SSHFS, package: "sshfs" },
    MissingProgram { what: FUSERMOUNT, package: "fuse3" },
    MissingProgram { what: "ssh", package: "openssh-client" },
    MissingProgram { what: SETPRIV, package: "util-linux" },
];

/// Everything that is missing on this machine.
pub fn missing() -> Vec<MissingProgram> {
    if !mounts::CAN_MOUNT {
        return vec![LINUX];
    }
    let mut missing: Vec<MissingProgram> =
        PROGRAMS.into_iter().filter(|need| program::find(need.what).is_none()).collect();
    let device = MissingProgram { what: DEVICE, package: "fuse3" };
    if fs::OpenOptions::new().read(true).write(true).open(DEVICE).is_err() {
        missing.push(device);
    }
    missing
}

/// What a FUSE file system of our own needs: the device, and for everyone but root the program that mounts.
pub(super) fn missing_for_fuse() -> Vec<MissingProgram> {
    let is_needed = |missing: &MissingProgram| match missing.what {
        FUSERMOUNT => !rustix::process::geteuid().is_root(),
        what => what == DEVICE || what == LINUX.what,
    };
    missing().into_iter().filter(is_needed).collect()
}

/// Git, if it is missing. Mounting doesn't need it, but the work in a folder may.
pub fn missing_git() -> Option<MissingProgram> {
    program::find("git").is_none().then_some(MissingProgram { what: "git", package: "git" })
}

// === impl MissingProgram ===

impl MissingProgram {
    pub fn fix(&self) -> String {
        if *self == LINUX {
            return "Work in folders of other machines on a machine with Linux. Folders of this machine can be delegated.".to_owned();
        }
        if self.what == DEVICE {
            return format!(
                "Load the kernel module with `modprobe fuse`, allow this user to open {DEVICE}, or start the container with `--device {DEVICE} --cap-add SYS_ADMIN`."
            );
        }
        format!("Install it: `apt install {}`.", self.package)
    }
}

impl fmt::Display for MissingProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == LINUX {
            f.write_str("folders of other machines can't be mounted on this system")
        } else if self.what == DEVICE {
            write!(f, "can't open {DEVICE} (package {})", self.package)
        } else {
            write!(f, "the program `{}` is missing (package {})", self.what, self.package)
        }
    }
}
