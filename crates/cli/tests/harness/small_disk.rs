//! A disk of a few megabytes that only the processes of one home see, so that a test can fill it.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{TestProcess, until};

/// A tmpfs in its own mount namespace. Unmounted on drop.
#[derive(Debug)]
pub struct SmallDisk {
    /// Keeps the namespace alive.
    holder: TestProcess,
    place: PathBuf,
}

// === impl SmallDisk ===

impl SmallDisk {
    /// Mounted at `place`. Prints why and returns None if the test has no permission to mount.
    pub fn at(place: &Path, size: &str, logs: &Path) -> Option<Self> {
        fs::create_dir_all(place).unwrap();
        let mount =
            format!("mount -t tmpfs -o size={size},mode=0700 attache-test \"$0\" && echo mounted && exec sleep 900");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &mount]).arg(place);
        let holder = TestProcess::spawn("disk", &mut command, logs);
        let mounted = until("the small disk", || match holder.stdout().contains("mounted") {
            true => Some(true),
            false => holder.try_wait().map(|_| false),
        });
        if !mounted {
            eprintln!("skipped: this user may not mount a file system ({})", holder.stderr().trim());
            return None;
        }
        Some(Self { holder, place: place.to_owned() })
    }

    /// The prefix of a command that runs in the namespace.
    pub fn enter(&self) -> [String; 2] {
        ["nsenter".to_owned(), format!("--mount=/proc/{}/ns/mnt", self.holder.id())]
    }

    /// A path of the home as seen from outside.
    pub fn seen(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.holder.id(), path.display()))
    }

    /// Fills the disk completely.
    pub fn fill(&self) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(self.seen(&self.place.join("filler"))).unwrap();
        while file.write(&[0; 64 << 10]).is_ok_and(|written| written > 0) {}
    }

    /// Fills the disk until this many bytes are left.
    pub fn fill_except(&self, left: u64) {
        let disk = rustix::fs::statvfs(self.seen(&self.place)).unwrap();
        let size = (disk.f_bavail * disk.f_frsize).saturating_sub(left);
        fs::write(self.seen(&self.place.join("filler")), vec![0; usize::try_from(size).unwrap()]).unwrap();
    }

    /// Frees the space again.
    pub fn free(&self) {
        fs::remove_file(self.seen(&self.place.join("filler"))).unwrap();
    }

    /// Remounts it read-only.
    pub fn make_read_only(&self, is_read_only: bool) {
        let [program, namespace] = self.enter();
        let how = if is_read_only { "remount,ro" } else { "remount,rw" };
        let mut command = Command::new(program);
        command.arg(namespace).args(["mount", "-o", how]).arg(&self.place).stdin(Stdio::null());
        assert!(command.status().unwrap().success());
    }
}
