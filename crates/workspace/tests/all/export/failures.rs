//! Full disks and killed daemons: nothing that existed before a lease is lost.

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

/// A disk of 64 KiB, unmounted when dropped.
struct TinyDisk(PathBuf);

impl TinyDisk {
    /// `None`, with a printed reason, if nothing can be mounted.
    fn at(path: PathBuf) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self(path));
        }
        println!("skipped: can't mount a small disk here");
        None
    }

    /// Fills the disk, except for blocks that are already allocated.
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
    let fixture = ExportFixture::new(|dir| {
        prepare(dir);
        disk = TinyDisk::at(dir.with_file_name("before"));
    });
    disk.map(|disk| (fixture, disk))
}

fn index(fixture: &ExportFixture) -> PathBuf {
    fixture.all.path().join("before/index.jsonl")
}

fn changed_paths(fixture: &ExportFixture) -> Vec<(String, FileChangeKind)> {
    let record = LeaseRecord::load(&fixture.all.path().join("before")).unwrap();
    let changes = report::changes(&fixture.dir(), &record).unwrap();
    changes.changed_paths.into_iter().map(|path| (path.path, path.change)).collect()
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_lost() {
    let Some((fixture, _disk)) = cramped(|dir| fs::write(dir.join("large"), vec![1; 200_000]).unwrap()) else { return };
    let write = FileOpenOptions { write: true, truncate: true, ..FileOpenOptions::default() };
    let refused = fixture.export.open_file(b"large", &write).err().unwrap();
    assert!(matches!(refused, ExportRefusal::DiskFull), "{refused:?}");
    assert_eq!((refused.name(), refused.to_string()), ("disk_full", "the host's disk is full".to_owned()));
    assert!(matches!(fixture.export.remove_file(b"large"), Err(ExportRefusal::DiskFull)));
    assert_eq!(fs::read(fixture.dir().join("large")).unwrap(), vec![1; 200_000]);
    // What needs no space can still be done.
    let file = fixture.export.open_file(b"new", &CREATE).unwrap();
    file.write_at(0, b"small").unwrap();
}

#[test]
fn a_disk_that_fills_up_in_the_middle_of_a_line_costs_only_that_change() {
    let Some((fixture, disk)) = cramped(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("first"), "first").unwrap();
        fs::write(dir.join("last"), "last").unwrap();
    }) else {
        return;
    };
    let close = AttributeChange { mode: Some(0o711), ..AttributeChange::default() };
    fixture.write("first", b"by the remote");
    fixture.export.make_dir(b"d/made", 0o755).unwrap();
    disk.fill();
    let refused = (0..200).find_map(|at| fixture.export.make_dir(format!("made{at}").as_bytes(), 0o755).err());
    assert!(matches!(refused, Some(ExportRefusal::DiskFull)), "{refused:?}");
    assert!(matches!(fixture.export.set_attributes(b"d", &close), Err(ExportRefusal::DiskFull)));
    // Earlier changes are known, both while the line is cut short and when the disk has space again.
    let first = ("first".to_owned(), FileChangeKind::Modified);
    assert!(changed_paths(&fixture).contains(&first));
    disk.empty();
    fixture.write("last", b"by the remote");
    fixture.export.set_attributes(b"d", &close).unwrap();
    fixture.export.revoke();
    let now = changed_paths(&fixture);
    for change in [first, ("last".to_owned(), FileChangeKind::Modified), ("d".to_owned(), FileChangeKind::Attributes)] {
        assert!(now.contains(&change), "{change:?}: {now:?}");
    }
    let record = LeaseRecord::load(&fixture.all.path().join("before")).unwrap();
    let reverted = report::revert(&fixture.dir(), &record, &RevertRequest::default()).unwrap();
    assert_eq!(fs::read_to_string(fixture.dir().join("first")).unwrap(), "first");
    assert_eq!(fs::read_to_string(fixture.dir().join("last")).unwrap(), "last");
    // There was no space to record that they were created.
    assert!(reverted.kept.iter().all(|kept| kept.path.starts_with("made")), "{reverted:?}");
}

#[test]
fn an_unreadable_line_costs_only_its_own_content() {
    let fixture = ExportFixture::new(|dir| {
        fs::write(dir.join("a"), "a").unwrap();
        fs::write(dir.join("b"), "b").unwrap();
    });
    fixture.write("a", b"by the remote");
    let mut torn = fs::OpenOptions::new().append(true).open(index(&fixture)).unwrap();
    torn.write_all(b"{\"path\":\"x\",\"was\":{\"fi\n").unwrap();
    fixture.write("b", b"by the remote");
    fixture.export.revoke();
    torn.write_all(b"{\"path\":\"y\",\"was\":\"absent\"}").unwrap();
    let (a, b) = (("a".to_owned(), FileChangeKind::Modified), ("b".to_owned(), FileChangeKind::Modified));
    assert_eq!(changed_paths(&fixture), [a, b]);
    let record = LeaseRecord::load(&fixture.all.path().join("before")).unwrap();
    let reverted = report::revert(&fixture.dir(), &record, &RevertRequest::default()).unwrap();
    assert_eq!(reverted, RevertResult { restored: vec!["a".to_owned(), "b".to_owned()], kept: Vec::new() });
}

#[test]
fn more_changes_than_open_files_allowed_are_reported_and_reverted() {
    const FEW: &str = "ATTACHE_TEST_FEW_FILES";
    const NAME: &str = "export::failures::more_changes_than_open_files_allowed_are_reported_and_reverted";
    if std::env::var_os(FEW).is_none() {
        // The limit applies to a whole process.
        let again = Command::new("sh")
            .args(["-c", "ulimit -n 64 && exec \"$0\" --exact \"$1\" --nocapture"])
            .arg(std::env::current_exe().unwrap())
            .arg(NAME)
            .env(FEW, "yes")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&again.stdout);
        assert!(
            again.status.success() && output.contains("1 passed"),
            "{output}{}",
            String::from_utf8_lossy(&again.stderr)
        );
        return;
    }
    let names: Vec<String> = (0..200).map(|at| format!("{at:03}")).collect();
    let fixture = ExportFixture::new(|dir| names.iter().for_each(|name| fs::write(dir.join(name), "before").unwrap()));
    for name in &names {
        fixture.write(name, b"by the remote\n");
    }
    fixture.export.revoke();
    let expected: Vec<_> = names.iter().map(|name| (name.clone(), FileChangeKind::Modified)).collect();
    assert_eq!(changed_paths(&fixture), expected);
    let record = LeaseRecord::load(&fixture.all.path().join("before")).unwrap();
    assert_eq!(report::diff(&fixture.dir(), &record, 1 << 20).unwrap().matches("+by the remote").count(), 200);
    let reverted = report::revert(&fixture.dir(), &record, &RevertRequest::default()).unwrap();
    assert_eq!(reverted, RevertResult { restored: names, kept: Vec::new() });
}

#[test]
fn unreadable_entries_are_reported() {
    let fixture = ExportFixture::new(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/f"), "before").unwrap();
    });
    fixture.write("d/f", b"by the remote");
    fixture.export.revoke();
    let hidden = fixture.dir().join("d");
    fs::rename(&hidden, fixture.dir().join("e")).unwrap();
    let Some(_disk) = TinyDisk::at(hidden) else { return };
    assert_eq!(changed_paths(&fixture), [("d/f".to_owned(), FileChangeKind::Modified)]);
    let record = LeaseRecord::load(&fixture.all.path().join("before")).unwrap();
    assert_eq!(
        report::diff(&fixture.dir(), &record, 10_000).unwrap(),
        "# moved on this machine, with the remote's changes in it: e/f (before: d/f)\n\
         # d/f: can't be read: another file system is mounted there, which is not shared\n"
    );
}

#[test]
fn originals_left_linked_by_a_killed_daemon_get_their_own_bytes() {
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
    // Written in place on this machine. The original doesn't change.
    fs::write(dir.join("there"), "EDITED").unwrap();
    let record = LeaseRecord::load(&before).unwrap();
    let reverted = report::revert(&dir, &record, &RevertRequest::default()).unwrap();
    assert_eq!(reverted.restored, ["gone", "moved"]);
    let kept: Vec<_> = reverted.kept.iter().map(|kept| &kept.path[..]).collect();
    assert_eq!(kept, ["edited", "over there", "there"]);
    assert_eq!(fs::read_to_string(dir.join("moved")).unwrap(), "before");
    OriginalsFolder::in_folder(all.path().join("nothing was lent")).finish().unwrap();
}
