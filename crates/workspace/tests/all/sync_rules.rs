//! What a lease forbids is forbidden in sync mode, too: the copy is the remote's, and whatever it does in there, the host
//! takes only what the lease allows, and the rest is named.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::SystemTime,
};

use attache_protocol::wire::awcp::AccessMode;
use attache_workspace::{
    export::{ExportTerms, LeaseQuota},
    mount::MountTransport,
};

use crate::ssh::{SshTestHost, eventually, run};

/// Every path, with its kind, mode, time and content.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let (path, stat) = (entry.path(), entry.metadata().unwrap());
            let content = match stat.file_type() {
                kind if kind.is_file() => fs::read(&path).unwrap(),
                kind if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                _ => Vec::new(),
            };
            if stat.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, (stat.mode(), stat.mtime(), content));
        }
    }
    found
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// What somebody can do to a file.
type Change = (&'static str, fn(&Path));

const CHANGES: [Change; 20] = [
    ("written", |path| fs::write(path, "other").unwrap()),
    ("emptied", |path| fs::write(path, "").unwrap()),
    ("appended", |path| open(path).write_all_at(b"more", 4).unwrap()),
    ("overwritten", |path| open(path).write_all_at(b"x", 0).unwrap()),
    ("shortened", |path| open(path).set_len(1).unwrap()),
    ("lengthened", |path| open(path).set_len(1 << 20).unwrap()),
    ("removed", |path| fs::remove_file(path).unwrap()),
    ("moved", |path| fs::rename(path, path.with_extension("elsewhere")).unwrap()),
    ("replaced", |path| {
        fs::write(path.with_extension("new"), "new").unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    }),
    ("executable", |path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap()),
    ("closed", |path| fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap()),
    ("setuid", |path| fs::set_permissions(path, fs::Permissions::from_mode(0o4755)).unwrap()),
    ("touched", |path| open(path).set_modified(SystemTime::UNIX_EPOCH).unwrap()),
    ("folder", |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
    ("full", |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::write(path.join("a/b/c"), "deep").unwrap();
    }),
    ("link", |path| {
        fs::remove_file(path).unwrap();
        symlink("other", path).unwrap();
    }),
    ("outside", |path| {
        fs::remove_file(path).unwrap();
        symlink("/etc/passwd", path).unwrap();
    }),
    ("above", |path| {
        fs::remove_file(path).unwrap();
        symlink("../../../../../../etc/passwd", path).unwrap();
    }),
    ("twin", |path| fs::hard_link(path, path.with_extension("twin")).unwrap()),
    ("pipe", |path| {
        fs::remove_file(path).unwrap();
        assert!(run(std::process::Command::new("mkfifo").arg(path), b"").status.success());
    }),
];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_a_copy_changes_a_read_only_folder() {
    let host = SshTestHost::start().await;
    let lease = host.lend_on("loc", ExportTerms::new(AccessMode::Ro));
    for (name, _) in CHANGES {
        fs::create_dir(lease.folder.join(name)).unwrap();
        fs::write(lease.folder.join(name).join("file"), "kept").unwrap();
    }
    let before = snapshot(&lease.folder);
    // Only the host knows that it is read-only.
    let mounted = lease.mount_as(MountTransport::Sync).await;
    let here = mounted.mount_point.clone();
    for (name, change) in CHANGES {
        change(&here.join(name).join("file"));
    }
    fs::create_dir_all(here.join("new/folder")).unwrap();
    fs::write(here.join("new/folder/file"), "new").unwrap();
    fs::remove_dir_all(here.join("touched")).unwrap();
    fs::rename(here.join("written"), here.join("renamed")).unwrap();
    let ended = mounted.unmount().await;
    assert_eq!(snapshot(&lease.folder), before);
    let is_named = |name: &str| ended.lost.iter().any(|lost| Path::new(&lost.path).starts_with(name));
    for (name, _) in CHANGES {
        assert!(is_named(name), "{name} isn't in {:?}", ended.lost);
    }
    assert!(is_named("new/folder/file") && is_named("renamed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_copy_gets_more_into_the_folder_than_the_lease_allows() {
    let host = SshTestHost::start().await;
    let quota = LeaseQuota { files: Some(20), file_bytes: Some(1000), bytes: Some(5000), ..LeaseQuota::UNLIMITED };
    let lease = host.lend_on("loc", ExportTerms { quota, ..ExportTerms::new(AccessMode::Rw) });
    fs::write(lease.folder.join("given"), vec![1; 1500]).unwrap();
    let mounted = lease.mount_as(MountTransport::Sync).await;
    let here = mounted.mount_point.clone();
    fs::write(here.join("first"), "fits").unwrap();
    eventually("what fits is there", || lease.folder.join("first").exists()).await;
    fs::write(here.join("large"), vec![2; 1001]).unwrap();
    fs::write(here.join("given"), vec![3; 1600]).unwrap();
    for number in 0..30 {
        fs::write(here.join(format!("n{number}")), vec![4; 900]).unwrap();
    }
    let ended = mounted.unmount().await;
    let is_named = |name: &str| ended.lost.iter().any(|lost| lost.path == name);
    assert!(is_named("large") && is_named("given"), "{:?}", ended.lost);
    assert_eq!(fs::read(lease.folder.join("given")).unwrap(), vec![1; 1500]);
    let names: Vec<_> = fs::read_dir(&lease.folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.len() <= 7, "at most 5000 bytes were written: {names:?}");
    for number in 0..30 {
        let name = format!("n{number}");
        let is_there = fs::read(lease.folder.join(&name)).is_ok_and(|content| content == vec![4; 900]);
        assert!(is_there != is_named(&name), "{name} is either there or named: {:?}", ended.lost);
    }
}
