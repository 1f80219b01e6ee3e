//! Where a folder can be mounted, and where not.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::PathBuf,
};

use attache_protocol::env::Env;
use attache_workspace::mount::{MountPoint, MountPointError, sweep};

use crate::sshd::root;

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_mount_point_is_new_empty_private_and_removed_when_dropped() {
    let (root, env) = (root(), Env::seeded(7));
    let below = root.path().join("mounts");
    let roots = [below.clone()];
    let place = MountPoint::reserve(&roots, "dlg_1/../../x y", &env).unwrap();
    let other = MountPoint::reserve(&roots, "dlg_1/../../x y", &env).unwrap();
    let mount_point = place.mount_point();
    let folder = mount_point.parent().unwrap();
    assert_eq!(folder.parent(), Some(below.as_path()));
    assert!(folder.file_name().unwrap().to_str().unwrap().starts_with("dlg_1xy-"), "{mount_point:?}");
    assert_eq!(fs::metadata(folder).unwrap().mode() & 0o7777, 0o700, "it is private to one lease");
    assert_ne!(other.mount_point(), mount_point);
    let found = fs::metadata(&mount_point).unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid()), (0o555, rustix::process::geteuid().as_raw()));
    assert_eq!(fs::metadata(&below).unwrap().mode() & 0o777, 0o700, "a created root is private");
    assert_eq!(sweep(&roots), Vec::<PathBuf>::new(), "a held mount point is not a leftover");
    drop((place, other));
    assert_eq!((names(&below), names(&below.join(".leases"))), (vec![".leases".to_owned()], vec!["lock".to_owned()]));
}

#[test]
fn a_root_that_others_could_tamper_with_is_refused() {
    let (root, env) = (root(), Env::seeded(7));
    let path = |name: &str| root.path().join(name);
    fs::create_dir(path("real")).unwrap();
    symlink(path("real"), path("link")).unwrap();
    fs::write(path("file"), "").unwrap();
    fs::create_dir(path("used")).unwrap();
    fs::write(path("used/file"), "").unwrap();
    fs::create_dir(path("loose")).unwrap();
    fs::set_permissions(path("loose"), fs::Permissions::from_mode(0o777)).unwrap();
    let reserve = |root: PathBuf| MountPoint::reserve(&[root], "d", &env).unwrap_err();
    let table = [
        (path("link"), MountPointError::Link(path("link"))),
        (path("link/below"), MountPointError::Link(path("link"))),
        (path("real/../real"), MountPointError::NotPlain(path("real/../real"))),
        (path("real/./x"), MountPointError::NotPlain(path("real/./x"))),
        (PathBuf::from("relative"), MountPointError::NotPlain("relative".into())),
        (path("a \"b"), MountPointError::Unreadable(path("a \"b"))),
        (path("file"), MountPointError::NotAFolder(path("file"))),
        (path("loose"), MountPointError::Loose(path("loose"))),
        (path("loose/below"), MountPointError::Loose(path("loose"))),
        (path("not/there"), MountPointError::Missing(path("not"))),
        (path("used"), MountPointError::InUse(path("used"))),
    ];
    for (root, expected) in table {
        assert_eq!(reserve(root.clone()), expected, "{}", root.display());
    }
    assert!(!path("not").exists() && !path("used/.leases").exists(), "nothing is created where nothing is mounted");
    assert_eq!(MountPoint::reserve(&[], "d", &env).unwrap_err(), MountPointError::NoRoots);
    let second = MountPoint::reserve(&[path("link"), path("real")], "d", &env).unwrap();
    let folder = second.mount_point().parent().unwrap().to_owned();
    assert_eq!(folder.parent(), Some(path("real").as_path()), "the first usable root is used");
}

#[test]
fn only_leftovers_of_earlier_processes_are_swept() {
    let (root, env) = (root(), Env::seeded(7));
    let roots = [root.path().to_owned()];
    let held = MountPoint::reserve(&roots, "held", &env).unwrap();
    // As a killed process leaves it.
    let left = root.path().join("left-1");
    let private = root.path().join(".leases/left-1");
    fs::create_dir(&left).unwrap();
    fs::create_dir(left.join("workspace")).unwrap();
    fs::create_dir(&private).unwrap();
    for name in ["runtime.lock", "guard.lock", "key"] {
        fs::write(private.join(name), "").unwrap();
    }
    fs::create_dir(root.path().join("somebody's")).unwrap();
    fs::write(root.path().join("somebody's/file"), "x").unwrap();
    assert_eq!(sweep(&roots), [left.join("workspace")]);
    let held = held.mount_point().parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(names(root.path()), [".leases".to_owned(), held.clone(), "somebody's".to_owned()]);
    assert_eq!(names(&root.path().join(".leases")), [held, "lock".to_owned()]);
}
