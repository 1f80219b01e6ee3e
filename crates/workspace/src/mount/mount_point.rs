//! Where a delegated folder appears: a new, empty folder below one of the owner's mount roots that no other user can
//! predict, replace or reach through a link.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Component, Path, PathBuf},
};

use attache_protocol::env::Env;
use rustix::process::geteuid;

use super::{
    copied,
    sshfs::{self, is_plain},
    transport::is_mounted,
    underneath,
};

/// A reserved mount point. Dropping it removes it, unless a guard has it.
#[derive(Debug)]
pub struct MountPoint {
    pub(super) at: MountPointPath,
    /// Held while this process lives, so that the mount point isn't mistaken for a leftover.
    _lock: File,
    is_handed_over: bool,
}

/// The paths of a mount point.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct MountPointPath {
    pub(super) root: PathBuf,
    pub(super) name: String,
}

/// Why there is no mount point, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountPointError {
    #[error("`mount_roots` in policy.toml is empty; add a folder")]
    NoRoots,
    #[error("the mount root {} must be an absolute path without `.` or `..`", .0.display())]
    NotPlain(PathBuf),
    #[error("the mount root {} contains characters that ssh would misread; use only letters, digits and `/._-+@`", .0.display())]
    Unreadable(PathBuf),
    #[error("{} is a symbolic link, which a mount root must not contain; use the path that it leads to", .0.display())]
    Link(PathBuf),
    #[error("{} is not a folder", .0.display())]
    NotAFolder(PathBuf),
    #[error("{} belongs to another user, who could replace mounts below it", .0.display())]
    Foreign(PathBuf),
    #[error("other users can write to {path}; use your own folder in mount_roots of policy.toml", path = .0.display())]
    Loose(PathBuf),
    #[error("no folder {}; create it, or fix `mount_roots` in policy.toml", .0.display())]
    Missing(PathBuf),
    #[error("{} contains other files; use an empty folder just for mounts in mount_roots of policy.toml", .0.display())]
    InUse(PathBuf),
    #[error("{}: {reason}", path.display())]
    Io { path: PathBuf, reason: String },
}

/// Locks, settings and journals of the mount points below a root. It contains no keys.
const LEASES: &str = ".leases";
const MOUNT_POINT: &str = "workspace";
const RUNTIME_LOCK: &str = "runtime.lock";
const GUARD_LOCK: &str = "guard.lock";
const JOURNAL: &str = "journal";
const COPY: &str = "copy";
const STICKY: u32 = 0o1000;
const MAX_NAME: usize = 48;

// === impl MountPoint ===

impl MountPoint {
    /// Creates one below the first usable root. The delegation's id helps people recognise it.
    pub fn reserve(roots: &[PathBuf], delegation: &str, env: &Env) -> Result<Self, MountPointError> {
        let mut first = None;
        for root in roots {
            match check_root(root).and_then(|()| Self::make(root, delegation, env)) {
                Ok(place) => return Ok(place),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(MountPointError::NoRoots))
    }

    fn make(root: &Path, delegation: &str, env: &Env) -> Result<Self, MountPointError> {
        let at = MountPointPath { root: root.to_owned(), name: name(delegation, env) };
        let leases = root.join(LEASES);
        match private_folder().create(&leases) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_error(&leases)(error)),
            _ => check_component(&leases, FinalComponent::Yes)?,
        }
        let _turn = lock_leases(&leases).map_err(io_error(&leases))?;
        let private = at.private();
        private_folder().create(&private).map_err(io_error(&private))?;
        let lock = private.join(RUNTIME_LOCK);
        let lock = File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(io_error(&lock))?;
        // From here on, dropping it removes whatever is there.
        let place = Self { at, _lock: lock, is_handed_over: false };
        let (folder, mount_point) = (place.at.folder(), place.mount_point());
        private_folder().create(&folder).map_err(io_error(&folder))?;
        DirBuilder::new().mode(0o555).create(&mount_point).map_err(io_error(&mount_point))?;
        Ok(place)
    }

    pub fn mount_point(&self) -> PathBuf {
        self.at.mount_point()
    }

    /// The guard is gone, perhaps without cleaning up: removes what it mounted and created.
    pub(super) fn reclaim(&self) {
        let mount_point = self.mount_point();
        if is_mounted(&mount_point) {
            sshfs::detach(&mount_point);
        }
        if !is_mounted(&mount_point) {
            self.at.remove();
        }
    }

    /// Keeps the lock and leaves the rest to the guard.
    pub(super) const fn hand_over(&mut self) {
        self.is_handed_over = true;
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        if !self.is_handed_over {
            self.at.remove();
        }
    }
}

// === impl MountPointPath ===

impl MountPointPath {
    /// A private folder of this lease that contains the mount point.
    fn folder(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    pub(super) fn mount_point(&self) -> PathBuf {
        self.folder().join(MOUNT_POINT)
    }

    pub(super) fn private(&self) -> PathBuf {
        self.root.join(LEASES).join(&self.name)
    }

    /// What an attache-fs mount acknowledged and the host has not confirmed.
    pub(super) fn journal(&self) -> PathBuf {
        self.private().join(JOURNAL)
    }

    /// Exists if the mount point has a copy of the folder in it.
    pub(super) fn copy_mark(&self) -> PathBuf {
        self.private().join(COPY)
    }

    /// The lock that shows that the guard is alive.
    pub(super) fn lock_guard(&self) -> io::Result<File> {
        let file = File::create(self.private().join(GUARD_LOCK))?;
        file.try_lock().map_err(io::Error::from)?;
        Ok(file)
    }

    /// Removes the mount point, which must not be mounted over, and the keys. Removes nothing below the mount point,
    /// except a copy.
    pub(super) fn remove(&self) {
        let mount_point = self.mount_point();
        underneath::release(&mount_point);
        if self.copy_mark().exists() {
            copied::purge(&mount_point);
        }
        if let Err(error) = fs::remove_dir(&mount_point)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(mount_point = %mount_point.display(), %error, "failed to remove a mount point");
            if self.copy_mark().exists() {
                // The next sweep goes on with it.
                return;
            }
        }
        let _ = fs::remove_dir(self.folder());
        let _ = fs::remove_dir_all(self.private());
    }

    /// Nothing holds it any more.
    fn is_abandoned(&self) -> bool {
        [RUNTIME_LOCK, GUARD_LOCK].iter().all(|name| match File::open(self.private().join(name)) {
            Ok(file) => file.try_lock().is_ok(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        })
    }
}

/// Removes what earlier processes left below the roots: dead mounts, empty mount points, keys. Returns their paths.
pub fn sweep(roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut swept = Vec::new();
    for root in roots.iter().filter(|root| root.join(LEASES).is_dir() && check_root(root).is_ok()) {
        let leases = root.join(LEASES);
        let (Ok(_turn), Ok(entries)) = (lock_leases(&leases), fs::read_dir(&leases)) else { continue };
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let at = MountPointPath { root: root.clone(), name };
            if !at.is_abandoned() {
                continue;
            }
            let mount_point = at.mount_point();
            if is_mounted(&mount_point) {
                sshfs::detach(&mount_point);
            }
            at.remove();
            swept.push(mount_point);
        }
    }
    swept
}

/// A mount point that is just being created must not be mistaken for a leftover.
fn lock_leases(leases: &Path) -> io::Result<File> {
    let file = File::create(leases.join("lock"))?;
    file.lock()?;
    Ok(file)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FinalComponent {
    Yes,
    No,
}

/// Creates the folder if it is missing, but none above it. Refuses one that others could tamper with or that is used
/// for something else.
fn check_root(root: &Path) -> Result<(), MountPointError> {
    let mut components = root.components();
    let is_plain_path =
        components.next() == Some(Component::RootDir) && components.all(|each| matches!(each, Component::Normal(_)));
    // `components` drops a `.` in the middle, which is harmless, but not what the policy should say.
    if !is_plain_path || root.to_str().is_some_and(|text| text.contains("/./") || text.ends_with("/.")) {
        return Err(MountPointError::NotPlain(root.to_owned()));
    }
    if !is_plain(root) {
        return Err(MountPointError::Unreadable(root.to_owned()));
    }
    let mut so_far = PathBuf::from("/");
    for component in root.components().skip(1) {
        so_far.push(component);
        let last = if so_far == *root { FinalComponent::Yes } else { FinalComponent::No };
        if !so_far.exists() && !so_far.is_symlink() {
            if last == FinalComponent::No {
                return Err(MountPointError::Missing(so_far));
            }
            match private_folder().create(&so_far) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_error(&so_far)(error)),
                _ => {}
            }
        }
        check_component(&so_far, last)?;
    }
    let mut entries = fs::read_dir(root).map_err(io_error(root))?;
    if !root.join(LEASES).exists() && entries.next().is_some() {
        return Err(MountPointError::InUse(root.to_owned()));
    }
    Ok(())
}

fn check_component(path: &Path, last: FinalComponent) -> Result<(), MountPointError> {
    let found = fs::symlink_metadata(path).map_err(io_error(path))?;
    let (own, mode) = (found.uid() == geteuid().as_raw(), found.mode());
    if found.is_symlink() {
        return Err(MountPointError::Link(path.to_owned()));
    }
    if !found.is_dir() {
        return Err(MountPointError::NotAFolder(path.to_owned()));
    }
    if !own && (last == FinalComponent::Yes || found.uid() != 0) {
        return Err(MountPointError::Foreign(path.to_owned()));
    }
    // In a sticky folder such as /tmp, no other user can replace our entries.
    let is_loose = match last {
        FinalComponent::Yes => mode & 0o022 != 0,
        FinalComponent::No => mode & STICKY == 0 && (mode & 0o002 != 0 || !own && mode & 0o020 != 0),
    };
    if is_loose { Err(MountPointError::Loose(path.to_owned())) } else { Ok(()) }
}

/// The host chose the id. Only harmless characters of it go into a path.
fn name(delegation: &str, env: &Env) -> String {
    let harmless = |character: &char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    let known: String = delegation.chars().filter(harmless).take(MAX_NAME).collect();
    let mut random = [0; 4];
    env.fill(&mut random);
    let random = u32::from_le_bytes(random);
    if known.is_empty() { format!("lease-{random:08x}") } else { format!("{known}-{random:08x}") }
}

fn private_folder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> MountPointError + use<> {
    let path = path.to_owned();
    move |error| MountPointError::Io { path, reason: error.to_string() }
}
