//! A revert while somebody works in the folder: whatever they write stays in place, or is kept.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use attache_protocol::wire::delegation::RevertRequest;
use attache_workspace::{export::LeaseRecord, report};

use super::ExportFixture;

const FILES: usize = 200;

/// Every original and version that is kept for the lease.
fn kept(before: &Path) -> Vec<Vec<u8>> {
    let files = fs::read_dir(before).unwrap().map(|file| file.unwrap());
    files.filter(|file| file.file_name() != "index.jsonl").map(|file| fs::read(file.path()).unwrap()).collect()
}

/// Writes to one file after another until told to stop: in place, and by replacing the file. Returns what it last wrote
/// to each.
fn work(dir: &Path, stop: &AtomicBool) -> BTreeMap<String, Vec<u8>> {
    let mut last = BTreeMap::new();
    let mut turn = 0_usize;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("{:03}", (turn * 7) % FILES);
        let content = format!("mine, {turn}").into_bytes();
        if turn.is_multiple_of(2) {
            fs::write(dir.join(&name), &content).unwrap();
        } else {
            fs::write(dir.join("saved"), &content).unwrap();
            fs::rename(dir.join("saved"), dir.join(&name)).unwrap();
        }
        last.insert(name, content);
        turn += 1;
    }
    last
}

#[test]
fn concurrent_writes_are_kept() {
    // Half of the files existed before, the others are the remote's own.
    let fixture = ExportFixture::new(|dir| {
        for at in 0..FILES / 2 {
            fs::write(dir.join(format!("{at:03}")), "before").unwrap();
        }
    });
    for at in 0..FILES {
        fixture.write(&format!("{at:03}"), b"by the remote");
    }
    fixture.export.revoke();
    let (dir, before) = (fixture.dir(), fixture.all.path().join("before"));
    let record = LeaseRecord::load(&before).unwrap();
    let stop = AtomicBool::new(false);
    let (reverted, last) = std::thread::scope(|scope| {
        let working = scope.spawn(|| work(&dir, &stop));
        let reverted = report::revert(&dir, &record, &RevertRequest::default()).unwrap();
        stop.store(true, Ordering::Relaxed);
        (reverted, working.join().unwrap())
    });
    let kept = kept(&before);
    for (name, content) in &last {
        let now = fs::read(dir.join(name)).unwrap_or_default();
        assert!(now == *content || kept.contains(content), "{name}: {:?} is lost", String::from_utf8_lossy(content));
    }
    for name in fs::read_dir(&dir).unwrap() {
        let name = name.unwrap().file_name();
        assert!(!name.to_string_lossy().starts_with(".attache"), "{name:?} is left behind");
    }
    assert!(!reverted.restored.is_empty() || !reverted.kept.is_empty());
}

#[test]
fn writes_to_a_file_still_open_are_kept() {
    let fixture = ExportFixture::new(|dir| {
        fs::write(dir.join("log"), "before\n").unwrap();
        fs::write(dir.join("z"), "").unwrap();
    });
    fixture.write("log", b"by the remote\n");
    fixture.write("z", b"by the remote\n");
    fixture.export.revoke();
    let (dir, before) = (fixture.dir(), fixture.all.path().join("before"));
    let record = LeaseRecord::load(&before).unwrap();
    // The original of the second file never ends, so the revert blocks on it after the first.
    let original = before.join("2");
    fs::remove_file(&original).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &original, fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let endless = fs::OpenOptions::new().read(true).write(true).open(&original).unwrap();
    let mut open = fs::OpenOptions::new().append(true).open(dir.join("log")).unwrap();
    let reverted = std::thread::scope(|scope| {
        let reverting = scope.spawn(|| report::revert(&dir, &record, &RevertRequest::default()).unwrap());
        while fs::read(dir.join("log")).unwrap() != b"before\n" {
            std::thread::yield_now();
        }
        open.write_all(b"mine\n").unwrap();
        drop(endless);
        // A revert that opens it only now would wait for a writer.
        while !reverting.is_finished() {
            drop(fs::OpenOptions::new().read(true).write(true).open(&original));
            std::thread::yield_now();
        }
        reverting.join().unwrap()
    });
    assert_eq!(fs::read_to_string(dir.join("log")).unwrap(), "before\n");
    assert_eq!(fs::read_to_string(dir.join("z")).unwrap(), "");
    let noticed: Vec<_> = reverted.kept.iter().map(|kept| (&kept.path[..], kept.conflict)).collect();
    assert_eq!(noticed, [("log", true)]);
    fs::remove_file(&original).unwrap();
    assert!(kept(&before).contains(&b"by the remote\nmine\n".to_vec()));
}
