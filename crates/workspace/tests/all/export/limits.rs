//! Quotas, and the end of a lease while calls are in progress.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use attache_protocol::wire::awcp::AccessMode;
use attache_workspace::{
    export::{AttributeChange, CreateMode, ExportRefusal, ExportTerms, FileOpenOptions, LeaseQuota, ReplaceMode},
    report,
};

use super::ExportFixture;

pub(super) const CREATE: FileOpenOptions = FileOpenOptions {
    read: true,
    write: true,
    append: false,
    truncate: false,
    create: CreateMode::IfMissing,
    mode: None,
};

#[test]
fn quotas_are_enforced() {
    let quota = LeaseQuota {
        bytes: Some(100),
        files: Some(3),
        file_bytes: Some(60),
        kept_bytes: Some(1000),
        operations_per_second: None,
    };
    let fixture = ExportFixture::with(ExportTerms { quota, ..ExportTerms::new(AccessMode::Rw) }, |dir| {
        fs::write(dir.join("large"), vec![1; 2000]).unwrap();
        fs::write(dir.join("small"), vec![1; 10]).unwrap();
    });
    let export = &fixture.export;
    let file = export.open_file(b"a", &CREATE).unwrap();
    file.write_at(0, &[0; 60]).unwrap();
    assert!(matches!(file.write_at(60, &[0]), Err(ExportRefusal::Quota("size of one file"))));
    assert!(matches!(file.write_at(u64::MAX, &[0]), Err(ExportRefusal::Invalid)));
    let size = AttributeChange { size: Some(61), ..AttributeChange::default() };
    assert!(matches!(export.set_attributes(b"a", &size), Err(ExportRefusal::Quota("size of one file"))));
    assert!(matches!(file.write_at(0, &[0; 41]), Err(ExportRefusal::Quota("bytes written"))));
    file.write_at(0, &[0; 40]).unwrap();
    export.make_dir(b"d", 0o755).unwrap();
    export.symlink(b"a", b"l").unwrap();
    assert!(matches!(export.make_dir(b"e", 0o755), Err(ExportRefusal::Quota("files made or moved"))));
    assert!(matches!(export.hard_link(b"a", b"b"), Err(ExportRefusal::Quota("files made or moved"))));
    // Reflinks cost nothing. Without them, an original that doesn't fit is not sacrificed: the change is refused.
    let opened = export.open_file(b"large", &FileOpenOptions { write: true, ..FileOpenOptions::default() });
    assert!(matches!(opened, Ok(_) | Err(ExportRefusal::Quota("copies of originals"))));
    export.open_file(b"small", &FileOpenOptions { write: true, ..FileOpenOptions::default() }).unwrap();
}

#[test]
fn free_names_are_counted_even_if_nothing_is_created() {
    let quota = LeaseQuota { files: Some(10), ..LeaseQuota::UNLIMITED };
    let fixture = ExportFixture::with(ExportTerms { quota, ..ExportTerms::new(AccessMode::Rw) }, |dir| {
        fs::create_dir(dir.join("d")).unwrap();
        for name in ["a", "b"] {
            fs::write(dir.join("d").join(name), name).unwrap();
        }
    });
    let name = |at: usize| if at == 0 { b"d".to_vec() } else { format!("d{at}").into_bytes() };
    let rename = |from: usize, to: usize| fixture.export.rename(&name(from), &name(to), ReplaceMode::Never);
    for at in 0..3 {
        rename(at, at + 1).unwrap();
    }
    assert!(matches!(rename(3, 4), Err(ExportRefusal::Quota("files made or moved"))));
    // Known names cost nothing more.
    for _ in 0..10 {
        rename(3, 2).unwrap();
        rename(2, 3).unwrap();
    }
    let over = fixture.export.make_dir(b"made", 0o755);
    assert!(matches!(over, Err(ExportRefusal::Quota("files made or moved"))), "{over:?}");
    let changes = report::changes(&fixture.dir(), &fixture.export.changes()).unwrap();
    let changes: Vec<_> = changes.changed_paths.iter().map(|path| &path.path[..]).collect();
    assert_eq!(changes, ["d/a", "d/b", "d3/a", "d3/b"]);
}

#[test]
fn every_call_is_refused_after_the_end() {
    let fixture = ExportFixture::new(|dir| fs::write(dir.join("f"), "abc").unwrap());
    let export = &fixture.export;
    let file = export.open_file(b"f", &CREATE).unwrap();
    let mut dir = export.read_dir(b"").unwrap();
    file.write_at(0, b"xyz").unwrap();
    export.revoke();
    export.revoke();
    assert!(export.is_revoked());
    let mut buffer = [0; 3];
    let change = AttributeChange { size: Some(0), ..AttributeChange::default() };
    for result in [
        file.write_at(0, b"no"),
        file.read_at(0, &mut buffer).map(|_| ()),
        file.set_attributes(&change),
        file.attributes().map(|_| ()),
        file.sync(),
        dir.next_batch(1).map(|_| ()),
        export.attributes(b"f").map(|_| ()),
        export.open_file(b"f", &CREATE).map(|_| ()),
        export.open_file(b"f", &FileOpenOptions::default()).map(|_| ()),
        export.read_dir(b"").map(|_| ()),
        export.make_dir(b"d", 0o755),
        export.remove_file(b"f"),
        export.rename(b"f", b"g", ReplaceMode::Always),
        export.set_attributes(b"f", &change),
        export.space().map(|_| ()),
    ] {
        assert!(matches!(result, Err(ExportRefusal::Revoked)), "{result:?}");
    }
    assert_eq!(fs::read(fixture.dir().join("f")).unwrap(), b"xyz");
}

#[test]
fn nothing_changes_once_revoke_has_returned() {
    for _ in 0..20 {
        let fixture = ExportFixture::new(|dir| fs::write(dir.join("f"), "").unwrap());
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in 0..4_u8 {
                let (export, stop) = (&fixture.export, &stop);
                scope.spawn(move || {
                    let Ok(file) = export.open_file(b"f", &CREATE) else { return };
                    let mut at = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let made = format!("{writer}-{at}");
                        let _ = file.write_at(at, &[writer; 64]);
                        let _ = export.make_dir(made.as_bytes(), 0o755);
                        let _ = export.rename(made.as_bytes(), format!("{made}-moved").as_bytes(), ReplaceMode::Always);
                        at += 64;
                    }
                });
            }
            while fs::read_dir(fixture.dir()).unwrap().count() < 20 {
                thread::yield_now();
            }
            let begin = Instant::now();
            fixture.export.revoke();
            assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
            let state = || {
                let mut names: Vec<_> =
                    fs::read_dir(fixture.dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                names.sort();
                (names, fs::read(fixture.dir().join("f")).unwrap())
            };
            let after = state();
            for _ in 0..50 {
                thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            assert!(state() == after);
        });
    }
}

#[test]
fn the_end_does_not_wait_for_a_large_original() {
    // Sparse if the file system supports it. Copied in pieces, and aborted between two of them.
    let fixture = ExportFixture::new(|dir| fs::File::create(dir.join("huge")).unwrap().set_len(6 << 30).unwrap());
    thread::scope(|scope| {
        let opening = scope.spawn(|| fixture.export.open_file(b"huge", &CREATE).map(|_| ()));
        while fs::read_dir(fixture.all.path().join("before")).unwrap().count() < 2 && !opening.is_finished() {
            thread::yield_now();
        }
        let begin = Instant::now();
        fixture.export.revoke();
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        let opened = opening.join().unwrap();
        assert!(matches!(opened, Ok(()) | Err(ExportRefusal::Revoked | ExportRefusal::Quota(_))), "{opened:?}");
    });
}
