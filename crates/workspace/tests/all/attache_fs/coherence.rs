//! What the host changes is seen at the remote, and what a lease doesn't show is never mentioned.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, symlink},
    path::Path,
};

use attache_protocol::wire::awcp::AccessMode;
use attache_workspace::{
    export::{ExportTerms, LeaseQuota},
    mount::MountTransport,
};

use super::{MountedLease, cannot_mount};
use crate::ssh::{eventually, unauthenticated::CuttablePort};

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| format!("{error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_on_the_host_are_seen() {
    if cannot_mount() {
        return;
    }
    let mounted = MountedLease::prepared(|folder| {
        fs::create_dir_all(folder.join("src/deep")).unwrap();
        for file in ["a", "src/b", "src/deep/c"] {
            fs::write(folder.join(file), "before").unwrap();
        }
    })
    .await;
    let (here, there) = (&mounted.mount.mount_point, &mounted.lease.folder);
    // Everything is in the caches of the kernel and the client, also that a name is free.
    for file in ["a", "src/b", "src/deep/c"] {
        assert_eq!(text(&here.join(file)), "before");
    }
    assert!(!here.join("src/new").exists() && !here.join("new folder").exists());
    let mut held = File::open(here.join("a")).unwrap();

    // In place, replaced, created, removed, moved: files and folders.
    fs::write(there.join("a"), "after, and longer").unwrap();
    fs::write(there.join("b.tmp"), "replaced").unwrap();
    fs::rename(there.join("b.tmp"), there.join("src/b")).unwrap();
    fs::write(there.join("src/new"), "new").unwrap();
    fs::rename(there.join("src/deep"), there.join("moved")).unwrap();
    fs::create_dir(there.join("new folder")).unwrap();
    fs::write(there.join("new folder/x"), "x").unwrap();
    symlink("a", there.join("link")).unwrap();
    eventually("the file that was written is current", || text(&here.join("a")) == "after, and longer").await;
    eventually("the replaced file is current", || text(&here.join("src/b")) == "replaced").await;
    eventually("the new file is there", || text(&here.join("src/new")) == "new").await;
    eventually("the folder has moved", || text(&here.join("moved/c")) == "before").await;
    eventually("it is nowhere else", || !here.join("src/deep").exists()).await;
    eventually("the new folder is there", || text(&here.join("new folder/x")) == "x").await;
    eventually("the link is there", || text(&here.join("link")) == "after, and longer").await;
    // A file that was open all the time shows what it is now.
    let mut shown = String::new();
    held.read_to_string(&mut shown).unwrap();
    assert_eq!(shown, "after, and longer");
    // What appeared is watched as well.
    fs::write(there.join("new folder/x"), "y").unwrap();
    fs::write(there.join("moved/c"), "z").unwrap();
    eventually("a file in the new folder is current", || text(&here.join("new folder/x")) == "y").await;
    eventually("a file in the moved folder is current", || text(&here.join("moved/c")) == "z").await;
    fs::remove_dir_all(there.join("new folder")).unwrap();
    eventually("the folder is gone", || !here.join("new folder").exists()).await;
    let names = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    eventually("both show the same names", || names(here) == names(there)).await;
}

/// The kernel can remember the names in a folder. It has to be told of every change, also of one that doesn't show in the
/// folder's times.
#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_names_reaches_the_kernel() {
    if cannot_mount() {
        return;
    }
    let mounted = MountedLease::prepared(|folder| {
        for number in 0..400 {
            fs::create_dir_all(folder.join("many")).unwrap();
            fs::write(folder.join(format!("many/file{number}")), "").unwrap();
        }
    })
    .await;
    let (here, there) = (mounted.mount.mount_point.clone(), mounted.lease.folder.clone());
    let names = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let look = move |root: &Path| [names(root), names(&root.join("many"))];
    for _ in 0..3 {
        assert_eq!(look(&here), look(&there));
    }
    let keep_times = |folder: &Path, act: &dyn Fn()| {
        let before = fs::metadata(folder).unwrap();
        act();
        let times = fs::FileTimes::new().set_modified(before.modified().unwrap());
        File::open(folder).unwrap().set_times(times).unwrap();
    };
    let many = there.join("many");
    keep_times(&many, &|| fs::write(many.join("new"), "").unwrap());
    eventually("the new name is shown", || look(&here) == look(&there)).await;
    keep_times(&many, &|| fs::remove_file(many.join("file7")).unwrap());
    eventually("the removed name isn't", || look(&here) == look(&there)).await;
    keep_times(&many, &|| fs::rename(many.join("new"), there.join("moved")).unwrap());
    eventually("nor the one that was moved", || look(&here) == look(&there)).await;
    // Changes from here are seen at once.
    fs::write(here.join("many/mine"), "").unwrap();
    fs::remove_file(here.join("many/file8")).unwrap();
    fs::rename(here.join("many/file9"), here.join("file9")).unwrap();
    assert_eq!(look(&here), look(&there));
    // Names that are removed while the folder is read don't hide others.
    for entry in fs::read_dir(here.join("many")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::remove_dir(here.join("many")).unwrap();
}

/// A folder that is made again often has the inode number of the one before.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_the_host_makes_again_is_followed() {
    if cannot_mount() {
        return;
    }
    let mounted = MountedLease::start().await;
    let (here, there) = (mounted.mount.mount_point.clone(), mounted.lease.folder.clone());
    for round in 0..50 {
        let [first, second] = ["first", "second"].map(|name| format!("d/{name}{round}"));
        fs::create_dir(there.join("d")).unwrap();
        eventually("the folder is seen", || here.join("d").is_dir()).await;
        let _ = fs::read_dir(here.join("d")).map(Iterator::count);
        fs::remove_dir(there.join("d")).unwrap();
        fs::create_dir(there.join("d")).unwrap();
        fs::write(there.join(&first), "1").unwrap();
        eventually("a file in it is seen", || here.join(&first).exists()).await;
        fs::write(there.join(&second), "2").unwrap();
        eventually("and the next", || here.join(&second).exists()).await;
        fs::remove_dir_all(there.join("d")).unwrap();
    }
}

/// Git takes any difference in these for a change.
#[tokio::test(flavor = "multi_thread")]
async fn inode_numbers_and_times_are_those_of_the_host() {
    if cannot_mount() {
        return;
    }
    let mounted = MountedLease::prepared(|folder| fs::write(folder.join("old"), "old").unwrap()).await;
    let (here, there) = (&mounted.mount.mount_point, &mounted.lease.folder);
    fs::write(here.join("new"), "new").unwrap();
    let facts = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        (found.ino(), found.len(), found.mode(), times)
    };
    for name in ["old", "new"] {
        assert_eq!(facts(&here.join(name)), facts(&there.join(name)), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn withheld_names_are_never_mentioned() {
    if cannot_mount() {
        return;
    }
    let mounted = MountedLease::prepared(|folder| {
        fs::write(folder.join(".env"), "SECRET").unwrap();
        fs::write(folder.join("shown"), "").unwrap();
    })
    .await;
    let (here, there) = (&mounted.mount.mount_point, &mounted.lease.folder);
    let listed = || fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(listed(), ["shown"]);
    assert!(fs::read(here.join(".env")).is_err());
    // Events about it are not passed on either.
    fs::write(there.join(".env"), "SECRET again").unwrap();
    fs::write(there.join("id_rsa"), "SECRET").unwrap();
    fs::write(there.join("marker"), "").unwrap();
    eventually("a later event has arrived", || here.join("marker").exists()).await;
    assert!(!here.join(".env").exists() && !here.join("id_rsa").exists());
    assert!(fs::write(here.join(".env"), "mine").is_err(), "and can't be created");
    assert_eq!(text(&there.join(".env")), "SECRET again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_close_acknowledged_is_on_the_host() {
    if cannot_mount() {
        return;
    }
    let mounted = MountedLease::start().await;
    let (here, there) = (&mounted.mount.mount_point, &mounted.lease.folder);
    for number in 0..50 {
        let content = vec![b'x'; number * 4001];
        fs::write(here.join("file"), &content).unwrap();
        assert_eq!(fs::read(there.join("file")).unwrap().len(), content.len());
    }
    // Both sides append: nothing is overwritten.
    let mut ours = OpenOptions::new().append(true).create(true).open(here.join("log")).unwrap();
    let mut theirs = OpenOptions::new().append(true).open(there.join("log")).unwrap();
    for _ in 0..20 {
        ours.write_all(b"remote\n").unwrap();
        ours.sync_all().unwrap();
        theirs.write_all(b"host\n").unwrap();
    }
    let expected = "remote\nhost\n".repeat(20);
    assert_eq!(text(&there.join("log")), expected);
    eventually("the remote sees both", || text(&here.join("log")) == expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_files_survive_a_broken_connection() {
    if cannot_mount() {
        return;
    }
    let host = crate::ssh::SshTestHost::start().await;
    let lease = host.lend("loc");
    let port = CuttablePort::to(host.port).await;
    let mounted = lease.mount_at(port.port, MountTransport::AttacheFs).await;
    let here = mounted.mount_point.clone();
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(here.join("file")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    file.sync_all().unwrap();
    port.cut();
    // The host changes things that nobody can report meanwhile.
    fs::write(lease.folder.join("meanwhile"), "changed").unwrap();
    let again = || file.write_all_at(b"after!", 6).and_then(|()| file.sync_all()).is_ok();
    eventually("the open file can be written again", again).await;
    assert_eq!(text(&lease.folder.join("file")), "beforeafter!");
    let mut bytes = [0; 12];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"beforeafter!");
    eventually("changes during the outage are seen", || text(&here.join("meanwhile")) == "changed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_can_be_read_from_caches_after_the_end() {
    if cannot_mount() {
        return;
    }
    let mounted = MountedLease::prepared(|folder| {
        fs::create_dir(folder.join("folder")).unwrap();
        fs::write(folder.join("folder/file"), "text").unwrap();
    })
    .await;
    let here = &mounted.mount.mount_point;
    let held = File::open(here.join("folder/file")).unwrap();
    assert_eq!(text(&here.join("folder/file")), "text");
    mounted.lease.admission.revoke();
    let errno = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    eventually("reading fails", || errno(fs::read(here.join("folder/file")).map(drop)) == Some(5)).await;
    eventually("looking fails", || errno(fs::metadata(here.join("folder/file")).map(drop)) == Some(5)).await;
    eventually("an open file fails", || errno(held.read_at(&mut [0; 1], 0).map(drop)) == Some(5)).await;
    assert_eq!(errno(fs::write(here.join("new"), "x")), Some(5));
    assert!(!mounted.lease.folder.join("new").exists());
}

/// The limits of the lease hold here as everywhere, and whoever exceeds one is told so.
#[tokio::test(flavor = "multi_thread")]
async fn quotas_are_enforced() {
    if cannot_mount() {
        return;
    }
    let host = crate::ssh::SshTestHost::start().await;
    let quota = LeaseQuota { bytes: Some(100_000), files: Some(3), file_bytes: Some(60_000), ..LeaseQuota::UNLIMITED };
    let lease = host.lend_on("loc", ExportTerms { quota, ..ExportTerms::new(AccessMode::Rw) });
    let mounted = lease.mount_as(MountTransport::AttacheFs).await;
    let here = &mounted.mount_point;
    let over_limit = |result: std::io::Result<()>| {
        let errno = result.err().and_then(|error| error.raw_os_error());
        assert_eq!(errno, Some(rustix::io::Errno::DQUOT.raw_os_error()));
    };
    fs::write(here.join("a"), vec![b'a'; 50_000]).unwrap();
    // A write that runs ahead of the host fails at the latest when it is flushed.
    let mut file = OpenOptions::new().append(true).open(here.join("a")).unwrap();
    over_limit(file.write_all(&[b'a'; 20_000]).and_then(|()| file.sync_all()));
    drop(file);
    // A part of it may have fitted. Both sides agree how much.
    let length = |folder: &Path| fs::metadata(folder.join("a")).unwrap().len();
    assert!(length(here) < 60_000);
    assert_eq!(length(here), length(&lease.folder));
    fs::write(here.join("b"), vec![b'b'; 40_000]).unwrap();
    let mut file = OpenOptions::new().append(true).open(here.join("b")).unwrap();
    over_limit(file.write_all(&[b'b'; 15_000]).and_then(|()| file.sync_all()));
    drop(file);
    assert!(fs::read(here.join("b")).unwrap().starts_with(&[b'b'; 40_000]));
    fs::create_dir(here.join("c")).unwrap();
    over_limit(fs::create_dir(here.join("d")));
    over_limit(fs::write(here.join("e"), "e"));
    assert!(!lease.folder.join("d").exists() && !lease.folder.join("e").exists());
}
