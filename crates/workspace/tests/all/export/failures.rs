//! Disks that are full, and daemons that are killed: nothing that was there before a lease is lost by it.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use attache_protocol::wire::delegation::{FileChangeKind, RevertRequest, RevertResult};
use attache_workspace::{
    export::{AttributeChange, ExportRefusal, FileOpenOptions, LeaseRecord, OriginalsFolder, ReplaceMode},
    report,
};

use super::{ExportFixture, limits::CREATE};

/// A disk of 64 KiB; it is unmounted when this is dropped.
struct TinyDisk(PathBuf);

impl TinyDisk {
    /// `None`, and a word about it, where nothing can be mounted.
    fn at(path: PathBuf) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self(path));
        }
        println!("skipped: a small disk cannot be mounted here");
        None
    }

    /// Leaves no room, except in what has a block already.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A lease whose originals are on a small disk.
fn cramped(prepare: impl FnOnce(&Path)) -> Option<(ExportFixture, TinyDisk)> {
    let mut disk = None;
    let lent = ExportFixture::new(|dir| {
        prepare(dir);
        disk = TinyDisk::at(dir.with_file_name("before"));
    });
    disk.map(|disk| (lent, disk))
}

fn index(lent: &ExportFixture) -> PathBuf {
    lent.all.path().join("before/index.jsonl")
}

fn told(lent: &ExportFixture) -> Vec<(String, FileChangeKind)> {
    let record = LeaseRecord::load(&lent.all.path().join("before")).unwrap();
    let told = report::changes(&lent.dir(), &record).unwrap();
    told.changed_paths.into_iter().map(|path| (path.path, path.change)).collect()
}

#[test]
fn a_full_disk_is_called_that_and_nothing_is_lost() {
    let Some((lent, _disk)) = cramped(|dir| fs::write(dir.join("large"), vec![1; 200_000]).unwrap()) else { return };
    let write = FileOpenOptions { write: true, truncate: true, ..FileOpenOptions::default() };
    let refused = lent.export.open_file(b"large", &write).err().unwrap();
    assert!(matches!(refused, ExportRefusal::DiskFull), "{refused:?}");
    assert_eq!((refused.name(), refused.to_string()), ("disk_full", "the host's disk is full".to_owned()));
    assert!(matches!(lent.export.remove_file(b"large"), Err(ExportRefusal::DiskFull)));
    assert_eq!(fs::read(lent.dir().join("large")).unwrap(), vec![1; 200_000]);
    // What needs no room can still be done.
    let file = lent.export.open_file(b"new", &CREATE).unwrap();
    file.write_at(0, b"small").unwrap();
}

#[test]
fn a_disk_that_gets_full_in_the_middle_of_a_line_costs_only_that_change() {
    let Some((lent, disk)) = cramped(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("first"), "first").unwrap();
        fs::write(dir.join("last"), "last").unwrap();
    }) else {
        return;
    };
    let close = AttributeChange { mode: Some(0o711), ..AttributeChange::default() };
    lent.write("first", b"by the remote");
    lent.export.make_dir(b"d/made", 0o755).unwrap();
    disk.fill();
    let refused = (0..200).find_map(|at| lent.export.make_dir(format!("made{at}").as_bytes(), 0o755).err());
    assert!(matches!(refused, Some(ExportRefusal::DiskFull)), "{refused:?}");
    assert!(matches!(lent.export.set_attributes(b"d", &close), Err(ExportRefusal::DiskFull)));
    // What was done before is known, while the line is cut short and when the disk has room again.
    let first = ("first".to_owned(), FileChangeKind::Modified);
    assert!(told(&lent).contains(&first));
    disk.empty();
    lent.write("last", b"by the remote");
    lent.export.set_attributes(b"d", &close).unwrap();
    lent.export.revoke();
    let now = told(&lent);
    for change in [first, ("last".to_owned(), FileChangeKind::Modified), ("d".to_owned(), FileChangeKind::Attributes)] {
        assert!(now.contains(&change), "{change:?}: {now:?}");
    }
    let record = LeaseRecord::load(&lent.all.path().join("before")).unwrap();
    let reverted = report::revert(&lent.dir(), &record, &RevertRequest::default()).unwrap();
    assert_eq!(fs::read_to_string(lent.dir().join("first")).unwrap(), "first");
    assert_eq!(fs::read_to_string(lent.dir().join("last")).unwrap(), "last");
    // There was no room to note that they were made.
    assert!(reverted.kept.iter().all(|kept| kept.path.starts_with("made")), "{reverted:?}");
}

#[test]
fn a_line_that_cannot_be_read_costs_what_it_says_and_not_the_rest() {
    let lent = ExportFixture::new(|dir| {
        fs::write(dir.join("a"), "a").unwrap();
        fs::write(dir.join("b"), "b").unwrap();
    });
    lent.write("a", b"by the remote");
    let mut torn = fs::OpenOptions::new().append(true).open(index(&lent)).unwrap();
    torn.write_all(b"{\"path\":\"x\",\"was\":{\"fi\n").unwrap();
    lent.write("b", b"by the remote");
    lent.export.revoke();
    torn.write_all(b"{\"path\":\"y\",\"was\":\"absent\"}").unwrap();
    let (a, b) = (("a".to_owned(), FileChangeKind::Modified), ("b".to_owned(), FileChangeKind::Modified));
    assert_eq!(told(&lent), [a, b]);
    let record = LeaseRecord::load(&lent.all.path().join("before")).unwrap();
    let reverted = report::revert(&lent.dir(), &record, &RevertRequest::default()).unwrap();
    assert_eq!(reverted, RevertResult { restored: vec!["a".to_owned(), "b".to_owned()], kept: Vec::new() });
}

#[test]
fn more_changes_than_files_may_be_open_are_told_and_taken_back() {
    const FEW: &str = "ATTACHE_TEST_FEW_FILES";
    const NAME: &str = "export::trouble::more_changes_than_files_may_be_open_are_told_and_taken_back";
    if std::env::var_os(FEW).is_none() {
        // The limit is one of a whole process.
        let again = Command::new("sh")
            .args(["-c", "ulimit -n 64 && exec \"$0\" --exact \"$1\" --nocapture"])
            .arg(std::env::current_exe().unwrap())
            .arg(NAME)
            .env(FEW, "yes")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(
            again.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&again.stderr)
        );
        return;
    }
    let names: Vec<String> = (0..200).map(|at| format!("{at:03}")).collect();
    let lent = ExportFixture::new(|dir| names.iter().for_each(|name| fs::write(dir.join(name), "before").unwrap()));
    for name in &names {
        lent.write(name, b"by the remote\n");
    }
    lent.export.revoke();
    let expected: Vec<_> = names.iter().map(|name| (name.clone(), FileChangeKind::Modified)).collect();
    assert_eq!(told(&lent), expected);
    let record = LeaseRecord::load(&lent.all.path().join("before")).unwrap();
    assert_eq!(report::diff(&lent.dir(), &record, 1 << 20).unwrap().matches("+by the remote").count(), 200);
    let reverted = report::revert(&lent.dir(), &record, &RevertRequest::default()).unwrap();
    assert_eq!(reverted, RevertResult { restored: names, kept: Vec::new() });
}

#[test]
fn what_cannot_be_looked_at_is_told() {
    let lent = ExportFixture::new(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/f"), "before").unwrap();
    });
    lent.write("d/f", b"by the remote");
    lent.export.revoke();
    let hidden = lent.dir().join("d");
    fs::rename(&hidden, lent.dir().join("e")).unwrap();
    let Some(_disk) = TinyDisk::at(hidden) else { return };
    assert_eq!(told(&lent), [("d/f".to_owned(), FileChangeKind::Modified)]);
    let record = LeaseRecord::load(&lent.all.path().join("before")).unwrap();
    assert_eq!(
        report::diff(&lent.dir(), &record, 10_000).unwrap(),
        "# d/f: it cannot be looked at: another file system begins there, and it is not lent\n"
    );
}

#[test]
fn originals_that_a_killed_daemon_left_linked_get_bytes_of_their_own() {
    let ExportFixture { all, export, .. } = ExportFixture::new(|dir| {
        for name in ["moved", "edited", "gone", "untouched"] {
            fs::write(dir.join(name), "before").unwrap();
        }
    });
    let (dir, before) = (all.path().join("lent"), all.path().join("before"));
    export.rename(b"moved", b"there", ReplaceMode::Never).unwrap();
    export.rename(b"edited", b"over there", ReplaceMode::Never).unwrap();
    export.remove_file(b"gone").unwrap();
    // Killed: nothing is dropped, and one more link has no line yet.
    std::mem::forget(export);
    fs::hard_link(dir.join("untouched"), before.join("99")).unwrap();
    fs::write(dir.join("over there"), "edited here").unwrap();
    let links = |name: &str| fs::metadata(dir.join(name)).unwrap().nlink();
    assert_eq!((links("there"), links("untouched")), (2, 2));
    OriginalsFolder::in_folder(&before).finish().unwrap();
    assert_eq!((links("there"), links("untouched")), (1, 1));
    // Written in place here; the original is not.
    fs::write(dir.join("there"), "EDITED").unwrap();
    let record = LeaseRecord::load(&before).unwrap();
    let reverted = report::revert(&dir, &record, &RevertRequest::default()).unwrap();
    assert_eq!(reverted.restored, ["gone", "moved"]);
    let kept: Vec<_> = reverted.kept.iter().map(|kept| &kept.path[..]).collect();
    assert_eq!(kept, ["edited", "over there", "there"]);
    assert_eq!(fs::read_to_string(dir.join("moved")).unwrap(), "before");
    OriginalsFolder::in_folder(all.path().join("nothing was lent")).finish().unwrap();
}
