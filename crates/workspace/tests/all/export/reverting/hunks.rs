//! Parts of a change: hunks that are discarded, and files that are accepted in the state that was seen.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use attache_protocol::wire::delegation::{
    AcceptedFile, ConflictChoice, HunkSelection, RevertRequest, RevertResult, ReviewFile,
};
use attache_workspace::{
    export::LeaseRecord,
    report::{self, AcceptedStates},
};

use super::{super::ExportFixture, state};

/// A folder after a lease, with nothing but what is on disk.
struct EndedLease {
    all: tempfile::TempDir,
}

impl EndedLease {
    fn new(prepare: impl FnOnce(&Path), work: impl FnOnce(&ExportFixture)) -> Self {
        let fixture = ExportFixture::new(prepare);
        work(&fixture);
        fixture.export.revoke();
        let ExportFixture { all, export, .. } = fixture;
        drop(export);
        Self { all }
    }

    fn dir(&self) -> PathBuf {
        self.all.path().join("lent")
    }

    fn record(&self) -> LeaseRecord {
        LeaseRecord::load(&self.all.path().join("before")).unwrap()
    }

    fn review(&self, path: &str) -> ReviewFile {
        report::review_file(&self.dir(), &self.record(), path, &AcceptedStates::default()).unwrap()
    }

    /// The hunks with these numbers, of what is there now.
    fn selection(&self, path: &str, numbers: &[usize]) -> RevertRequest {
        let fingerprint = self.review(path).patch.unwrap().fingerprint;
        let hunks = HunkSelection { path: path.to_owned(), numbers: numbers.to_vec(), fingerprint };
        RevertRequest { hunks: Some(hunks), ..RevertRequest::default() }
    }

    fn revert(&self, request: &RevertRequest) -> Result<RevertResult, String> {
        report::revert(&self.dir(), &self.record(), request).map_err(|error| error.to_string())
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir().join(path)).unwrap()
    }
}

fn restored(path: &str) -> Result<RevertResult, String> {
    Ok(RevertResult { restored: vec![path.to_owned()], kept: Vec::new() })
}

fn lines(changed: &[usize]) -> String {
    let line = |number| if changed.contains(&number) { format!("changed {number}\r\n") } else { format!("{number}\n") };
    (1..=40).map(line).collect::<String>() + "end"
}

fn prepare(dir: &Path) {
    fs::write(dir.join("f"), lines(&[])).unwrap();
    fs::set_permissions(dir.join("f"), fs::Permissions::from_mode(0o640)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_600_000_000, 7);
    fs::File::open(dir.join("f")).unwrap().set_modified(old).unwrap();
    fs::File::open(dir).unwrap().set_modified(old).unwrap();
}

#[test]
fn hunks_are_discarded_until_nothing_is_left_of_the_change() {
    let mut before = None;
    let lease = EndedLease::new(prepare, |fixture| {
        before = Some(state(&fixture.dir()));
        fixture.write("f", lines(&[2, 20, 38]).as_bytes());
    });
    assert_eq!(lease.review("f").hunks.len(), 3);
    assert_eq!(lease.revert(&lease.selection("f", &[2])), restored("f"));
    assert_eq!(lease.read("f"), lines(&[2, 38]));
    assert_eq!(fs::metadata(lease.dir().join("f")).unwrap().mode() & 0o777, 0o640);
    // What remains is the lease's, and not an edit on this machine.
    let left = lease.review("f");
    assert_eq!((left.hunks.len(), left.changed.also_changed_here), (2, false));
    assert_eq!(lease.revert(&lease.selection("f", &[])), restored("f"));
    assert_eq!(lease.read("f"), lines(&[2, 38]));
    assert_eq!(lease.revert(&lease.selection("f", &[1, 2])), restored("f"));
    assert_eq!(Some(state(&lease.dir())), before);
    assert!(report::changes(&lease.dir(), &lease.record()).unwrap().changed_paths.is_empty());
}

#[test]
fn a_partly_reverted_file_is_reverted_as_a_whole() {
    let lease = EndedLease::new(prepare, |fixture| fixture.write("f", lines(&[2, 20]).as_bytes()));
    assert_eq!(lease.revert(&lease.selection("f", &[1])), restored("f"));
    assert_eq!(lease.read("f"), lines(&[20]));
    assert_eq!(lease.revert(&RevertRequest::default()), restored("f"));
    assert_eq!(lease.read("f"), lines(&[]));
}

#[test]
fn nothing_is_discarded_but_what_was_seen() {
    let lease = EndedLease::new(prepare, |fixture| {
        fixture.write("f", lines(&[2, 20]).as_bytes());
        fixture.write("new", b"new\n");
    });
    let seen = lease.selection("f", &[1]);
    fs::write(lease.dir().join("f"), lines(&[2, 3, 20])).unwrap();
    assert_eq!(lease.revert(&seen), Err("`f` has changed since you looked at it".to_owned()));
    assert_eq!(lease.read("f"), lines(&[2, 3, 20]));
    // Edited here: skipped, unless the person wants it. Then their version is kept.
    let edited = lease.selection("f", &[1]);
    let skipped = lease.revert(&edited).unwrap();
    assert_eq!((skipped.restored.len(), skipped.kept.len(), skipped.kept[0].conflict), (0, 1, true));
    assert_eq!(lease.read("f"), lines(&[2, 3, 20]));
    let before = RevertRequest { take: Some(ConflictChoice::Before), ..edited };
    assert_eq!(lease.revert(&before), restored("f"));
    assert_eq!(lease.read("f"), lines(&[20]));
    let kept = fs::read_dir(lease.all.path().join("before")).unwrap();
    assert!(kept.flatten().any(|kept| fs::read_to_string(kept.path()).is_ok_and(|text| text == lines(&[2, 3, 20]))));

    assert_eq!(lease.revert(&lease.selection("f", &[1, 2])), Err("`f` has no hunk 2".to_owned()));
    assert_eq!(lease.revert(&lease.selection("new", &[1])), Err("`new` has no hunk 1".to_owned()));
    let alone = "hunks are discarded alone: without other paths, and without your own version of the file";
    let mine = RevertRequest { take: Some(ConflictChoice::Mine), ..lease.selection("f", &[1]) };
    let paths = RevertRequest { paths: vec!["new".to_owned()], ..lease.selection("f", &[1]) };
    assert_eq!((lease.revert(&mine), lease.revert(&paths)), (Err(alone.to_owned()), Err(alone.to_owned())));
    assert_eq!((lease.read("f"), lease.read("new")), (lines(&[20]), "new\n".to_owned()));
}

#[test]
fn names_of_one_file_stay_together() {
    let lease = EndedLease::new(
        |dir| {
            prepare(dir);
            fs::hard_link(dir.join("f"), dir.join("twin")).unwrap();
        },
        |fixture| fixture.write("f", lines(&[2, 20]).as_bytes()),
    );
    assert_eq!(lease.revert(&lease.selection("f", &[1])), restored("f"));
    assert_eq!((lease.read("f"), lease.read("twin")), (lines(&[20]), lines(&[20])));
}

#[test]
fn a_removed_file_comes_back_with_its_folders() {
    let lease = EndedLease::new(
        |dir| {
            fs::create_dir_all(dir.join("a/b")).unwrap();
            fs::write(dir.join("a/b/f"), "f\n").unwrap();
            fs::write(dir.join("a/other"), "other\n").unwrap();
        },
        |fixture| {
            fixture.export.remove_file(b"a/b/f").unwrap();
            fixture.export.remove_dir(b"a/b").unwrap();
            fixture.export.remove_file(b"a/other").unwrap();
            fixture.export.remove_dir(b"a").unwrap();
        },
    );
    let one = RevertRequest { paths: vec!["a/b/f".to_owned()], ..RevertRequest::default() };
    let reverted = lease.revert(&one).unwrap();
    assert_eq!(
        (reverted.restored, reverted.kept),
        (vec!["a".to_owned(), "a/b".to_owned(), "a/b/f".to_owned()], vec![])
    );
    assert_eq!(lease.read("a/b/f"), "f\n");
    assert!(!lease.dir().join("a/other").exists());
}

#[test]
fn a_file_is_accepted_in_the_state_that_was_seen() {
    let lease = EndedLease::new(prepare, |fixture| {
        fixture.write("f", lines(&[2]).as_bytes());
        fixture.write("new", b"new\n");
        fixture.write("same", b"same\n");
    });
    let accept = |path: &str| AcceptedFile { path: path.to_owned(), state: lease.review(path).state.unwrap() };
    let files = [accept("f"), accept("new")];
    report::check_states(&lease.dir(), &lease.record(), &files).unwrap();
    let states: AcceptedStates = files.iter().map(|file| (file.path.clone(), file.state.clone())).collect();
    let accepted = || -> Vec<String> {
        let review = report::review(&lease.dir(), &lease.record(), &states).unwrap();
        let paths = review.into_iter().filter(|file| file.accepted).map(|file| file.changed.path).collect();
        assert_eq!(report::accepted(&lease.dir(), &states).unwrap(), paths);
        paths
    };
    assert_eq!(accepted(), ["f", "new"]);
    // The same size and time, and other bytes.
    let time = fs::metadata(lease.dir().join("new")).unwrap().modified().unwrap();
    fs::write(lease.dir().join("new"), "NEW\n").unwrap();
    fs::File::open(lease.dir().join("new")).unwrap().set_modified(time).unwrap();
    assert_eq!(accepted(), ["f"]);
    let refused = report::check_states(&lease.dir(), &lease.record(), &files).unwrap_err();
    assert_eq!(refused.to_string(), "`new` has changed since you looked at it");
    fs::set_permissions(lease.dir().join("f"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(accepted(), [""; 0]);
}
