//! Random work under a lease, then a revert: the folder is restored to the byte.

use std::{fs, os::unix::fs::symlink, path::Path};

use attache_protocol::wire::delegation::{FolderChanges, RevertRequest};
use attache_workspace::{
    export::{AttributeChange, CreateMode, FileOpenOptions, FileTime, LeaseRecord, ReplaceMode},
    report,
};

use super::{super::ExportFixture, state};

const NAMES: &[&str] = &["a", "b", "c", "d/a", "d/b", "d/e/a", "d/e", "d", "f", "f/a", "twin1", "twin2"];

fn prepare(dir: &Path) {
    fs::create_dir_all(dir.join("d/e")).unwrap();
    for file in ["a", "b", "d/a", "d/e/a", "twin1"] {
        fs::write(dir.join(file), format!("content of {file}")).unwrap();
    }
    fs::hard_link(dir.join("twin1"), dir.join("twin2")).unwrap();
    symlink("a", dir.join("c")).unwrap();
}

fn work(fixture: &ExportFixture, roll: &mut impl FnMut(usize) -> usize) -> String {
    let export = &fixture.export;
    let (path, other) = (NAMES[roll(NAMES.len())], NAMES[roll(NAMES.len())]);
    let (from, to) = (path.as_bytes(), other.as_bytes());
    let done = match roll(9) {
        0 | 1 => {
            let how = FileOpenOptions {
                write: true,
                truncate: roll(2) == 0,
                create: CreateMode::IfMissing,
                ..FileOpenOptions::default()
            };
            export.open_file(from, &how).and_then(|file| file.write_at(roll(20) as u64, b"by the remote"))
        }
        2 => export.make_dir(from, 0o755),
        3 => export.remove_file(from),
        4 => export.remove_dir(from),
        5 => export.rename(from, to, if roll(2) == 0 { ReplaceMode::Never } else { ReplaceMode::Always }),
        6 => export.symlink(b"a", from),
        7 => export.hard_link(from, to),
        _ => {
            let mode = Some([0o600, 0o755][roll(2)]);
            let modified = Some(FileTime { seconds: 1_000_000 + roll(9) as i64, nanos: 0 });
            export.set_attributes(from, &AttributeChange { mode, modified, ..AttributeChange::default() })
        }
    };
    format!("{path} {other} {done:?}")
}

#[test]
fn whatever_a_lease_does_can_be_reverted() {
    let seeds: u64 = if std::env::var_os("ATTACHE_LONG").is_some() { 3000 } else { 100 };
    for seed in 0..seeds {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut roll = |sides: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap() % sides
        };
        let fixture = ExportFixture::new(prepare);
        let before = state(&fixture.dir());
        let done: Vec<String> = (0..25).map(|_| work(&fixture, &mut roll)).collect();
        fixture.export.revoke();
        let journal = fixture.journal.take();
        let record = LeaseRecord::load(&fixture.all.path().join("before")).unwrap();
        let reverted = report::revert(&fixture.dir(), &record, &RevertRequest::default()).unwrap();
        assert_eq!(reverted.kept, [], "seed {seed}: {done:#?} {journal:#?}");
        assert_eq!(state(&fixture.dir()), before, "seed {seed}: {journal:#?}");
        assert_eq!(report::changes(&fixture.dir(), &record).unwrap(), FolderChanges::default(), "seed {seed}");
    }
}
