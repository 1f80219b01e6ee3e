//! Handles of files and watched folders, which each half of this crate has in its own way.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use attache_os::{
    confined::ConfinedFolder,
    file_attributes::FileKind,
    folder_event::FolderEvent,
    folder_watcher::FolderWatcher,
    path_handle::{PathHandle, folder, root},
};
use rustix::{
    fs::{CWD, OFlags, RenameFlags, renameat_with},
    io::Errno,
};

fn text(handle: &PathHandle) -> String {
    let mut text = String::new();
    let file = handle.reopen(OFlags::RDONLY).expect("the file can be opened");
    fs::File::from(file).read_to_string(&mut text).expect("the file can be read");
    text
}

#[test]
fn a_handle_stays_with_its_file() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    fs::write(path("file"), "first").unwrap();
    let root = root(home.path()).unwrap();
    let file = PathHandle::find(&root, b"file").unwrap();
    fs::rename(path("file"), path("moved")).unwrap();
    fs::write(path("file"), "second").unwrap();
    fs::set_permissions(path("file"), fs::Permissions::from_mode(0o600)).unwrap();
    file.set_mode(0o640).unwrap();
    let mode = |name: &str| fs::metadata(path(name)).unwrap().mode() & 0o777;
    assert_eq!((text(&file).as_str(), mode("moved"), mode("file")), ("first", 0o640, 0o600));
    fs::remove_file(path("moved")).unwrap();
    assert_eq!((text(&file).as_str(), text(&file).as_str()), ("first", "first"));
    let now = file.current_attributes().unwrap();
    assert_eq!((now.inode, now.size, now.links), (file.attributes.inode, 5, 0));
}

#[test]
fn links_and_special_files_are_found_but_not_followed() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("tree/inner")).unwrap();
    fs::write(home.path().join("tree/inner/file"), "inside").unwrap();
    fs::write(home.path().join("secret"), "secret").unwrap();
    symlink("inner", home.path().join("tree/link")).unwrap();
    symlink("../secret", home.path().join("tree/out")).unwrap();
    let tree = root(&home.path().join("tree")).unwrap();
    assert!(Command::new("mkfifo").arg(home.path().join("tree/fifo")).status().unwrap().success());
    let find = |path: &str| PathHandle::find(&tree, path.as_bytes());
    assert_eq!(text(&find("inner/file").unwrap()), "inside");
    assert_eq!(find("").unwrap().attributes.kind, FileKind::Folder);
    let link = find("out").unwrap();
    assert_eq!((link.attributes.kind, link.target().unwrap()), (FileKind::Link, b"../secret".to_vec()));
    assert_eq!(link.reopen(OFlags::RDONLY).unwrap_err(), Errno::LOOP);
    let fifo = find("fifo").unwrap();
    assert_eq!(fifo.attributes.kind, FileKind::Special);
    assert_eq!(fifo.reopen(OFlags::RDONLY).unwrap_err(), Errno::LOOP);
    assert_eq!(find("link/file").unwrap_err(), Errno::LOOP);
    assert_eq!(find("../secret").unwrap_err(), Errno::XDEV);
    assert_eq!(find("inner/../../secret").unwrap_err(), Errno::XDEV);
    assert_eq!(find("inner/file/x").unwrap_err(), Errno::NOTDIR);
    assert_eq!(find("missing").unwrap_err(), Errno::NOENT);
    assert_eq!(folder(&tree, b"inner/file").unwrap_err(), Errno::NOTDIR);
    assert!(folder(&tree, b"link").is_err());
    assert!(folder(&tree, b"inner").is_ok());
}

/// Somebody exchanges a folder and a link to another one, again and again.
#[test]
fn no_race_leads_out() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    for (folder, content) in [("tree/inner", "inside"), ("outside", "secret")] {
        fs::create_dir_all(path(folder)).unwrap();
        fs::write(path(folder).join("file"), content).unwrap();
    }
    symlink(path("outside"), path("tree/link")).unwrap();
    let tree = root(&path("tree")).unwrap();
    let confined = ConfinedFolder::open(&path("tree")).unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (here, there) = (path("tree/inner"), path("tree/link"));
            while !has_ended.load(Ordering::Relaxed) {
                renameat_with(CWD, &here, CWD, &there, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let read = |path: &Path| -> io::Result<String> {
            let found = PathHandle::find(&tree, path.as_os_str().as_encoded_bytes())?;
            let mut text = String::new();
            fs::File::from(found.reopen(OFlags::RDONLY)?).read_to_string(&mut text).map(|_| text)
        };
        let mut seen = BTreeSet::new();
        let give_up = Instant::now() + Duration::from_secs(60);
        // Until both the folder and the link were met, and often.
        for round in 0.. {
            let file = Path::new("inner/file");
            let found = [read(file), confined.read(file)];
            seen.extend(found.map(|found| found.map_err(|_| ())));
            if round > 2000 && seen.len() > 1 || Instant::now() > give_up {
                break;
            }
        }
        has_ended.store(true, Ordering::Relaxed);
        assert_eq!(seen, BTreeSet::from([Ok("inside".to_owned()), Err(())]));
    });
}

#[test]
fn changes_in_watched_folders_are_reported() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    fs::create_dir_all(path("folder/below")).unwrap();
    fs::write(path("file"), "first").unwrap();
    fs::write(path("gone"), "").unwrap();
    let tree = root(home.path()).unwrap();
    let watcher = FolderWatcher::new().unwrap();
    let number = watcher.watch(&PathHandle::find(&tree, b"").unwrap()).unwrap();
    let below = watcher.watch(&PathHandle::find(&tree, b"folder/below").unwrap()).unwrap();
    assert_eq!(watcher.watch(&PathHandle::find(&tree, b"").unwrap()).unwrap(), number);
    let expect = |mut wanted: BTreeSet<(i32, &str, bool)>| {
        let give_up = Instant::now() + Duration::from_secs(60);
        while !wanted.is_empty() {
            assert!(Instant::now() < give_up, "not reported: {wanted:?}");
            watcher.wait().unwrap();
            for event in watcher.read().unwrap() {
                if let FolderEvent::Touched { folder, name: Some(name), has_moved, .. } = event {
                    wanted.retain(|wanted| *wanted != (folder, std::str::from_utf8(&name).unwrap(), has_moved));
                }
            }
        }
    };
    fs::write(path("file"), "longer").unwrap();
    fs::write(path("new"), "").unwrap();
    fs::remove_file(path("gone")).unwrap();
    fs::write(path("folder/below/deep"), "").unwrap();
    expect(BTreeSet::from([
        (number, "file", false),
        (number, "new", false),
        (number, "gone", false),
        (below, "deep", false),
    ]));
    fs::rename(path("folder"), path("elsewhere")).unwrap();
    expect(BTreeSet::from([(number, "folder", true), (number, "elsewhere", false)]));
    fs::create_dir(path("brief")).unwrap();
    fs::remove_dir(path("brief")).unwrap();
    fs::create_dir(path("brief")).unwrap();
    expect(BTreeSet::from([(number, "brief", cfg!(all(target_os = "linux", not(attache_portable))))]));
    fs::remove_dir(path("brief")).unwrap();
    expect(BTreeSet::from([(number, "brief", true)]));
    fs::remove_dir_all(path("elsewhere/below")).unwrap();
    let give_up = Instant::now() + Duration::from_secs(60);
    while !watcher.read().unwrap().contains(&FolderEvent::Ended { folder: below }) {
        assert!(Instant::now() < give_up, "the end of a folder wasn't reported");
        watcher.wait().unwrap();
    }
    // A wait ends when it is told to.
    watcher.wake();
    watcher.wait().unwrap();
}
