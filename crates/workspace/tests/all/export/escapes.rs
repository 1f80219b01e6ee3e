//! Hostile paths and races against one export, while folders and files are swapped for links to the outside: nothing
//! outside is ever changed, listed, read or even described, and neither is any secret inside.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use attache_protocol::wire::awcp::AccessMode;
use attache_workspace::export::{
    AttributeChange, CreateMode, Export, ExportRefusal, ExportTerms, FileAttributes, FileOpenOptions, FileTime,
    LeaseQuota, LinkPolicy, ReplaceMode, show,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::ExportFixture;

const MARK: &[u8] = b"CANARY";
const WORKERS: u64 = 4;

/// Names from which hostile paths are assembled.
const NAMES: &[&[u8]] = &[
    b"..",
    b".",
    b"",
    b"a",
    b"b",
    b"c",
    b"A",
    b"swap",
    b"swap",
    b"swap",
    b"file",
    b"file",
    b"f",
    b"f",
    b"host_out",
    b"absolute",
    b"canary",
    b"lent",
    b"lent-twin",
    b"%2e%2e",
    b"..\0",
    b"\0",
    b"a\0b",
    b"proc",
    b"self",
    b"fd",
    b"root",
    b"3",
    b".env",
    b".ENV",
    b".e\xe2\x80\x8cnv",
    b"\xef\xbc\x8eenv",
    b".git",
    b".GIT",
    b"hooks",
    b"config",
    b"\xff",
    b"..a",
    b"...",
    b"\xc3\xa9",
    b"e\xcc\x81",
    b"..\\..",
    b" ",
    b"-",
    b"~",
    b"id_rsa",
    b"secret.pem",
];

/// A small random generator: a failure can be replayed from its seed.
struct TestDice(u64);

/// Everything that must stay unchanged: path, inode, size, times, content.
type UntouchedTree = BTreeMap<PathBuf, (u64, u64, i64, i64, Vec<u8>)>;

struct EscapeWatch<'a> {
    export: &'a Export,
    outside: Vec<u64>,
    tries: AtomicU64,
    done: AtomicU64,
}

#[test]
fn no_path_and_no_race_gets_out() {
    let tries = if std::env::var_os("ATTACHE_LONG").is_some() { 1_000_000 } else { 100_000 };
    let terms =
        ExportTerms { quota: LeaseQuota::UNLIMITED, links: LinkPolicy::Any, ..ExportTerms::new(AccessMode::Rw) };
    let fixture = ExportFixture::with(terms, prepare);
    let all = fixture.all.path();
    let (canary, twin) = (still(&all.join("canary")), still(&all.join("lent-twin")));
    let secrets = [".env", "secret.pem", "a/.env", ".git/config", ".git/hooks/pre-commit"];
    let inside: Vec<UntouchedTree> = secrets.iter().map(|path| still(&fixture.dir().join(path))).collect();
    let outside = canary.values().chain(twin.values()).map(|file| file.0).collect();
    let watch = EscapeWatch { export: &fixture.export, outside, tries: AtomicU64::new(0), done: AtomicU64::new(0) };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| swap(all, &stop));
        let workers: Vec<_> = (0..WORKERS)
            .map(|seed| {
                let (watch, all) = (&watch, all.to_owned());
                scope.spawn(move || {
                    let mut dice = TestDice(seed + 1);
                    for _ in 0..tries / WORKERS {
                        watch.attempt(&mut dice, &all);
                    }
                })
            })
            .collect();
        let ends: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        for end in ends {
            end.unwrap();
        }
    });
    assert_eq!(still(&all.join("canary")), canary);
    assert_eq!(still(&all.join("lent-twin")), twin);
    for (path, before) in secrets.iter().zip(inside) {
        assert_eq!(still(&fixture.dir().join(path)), before, "{path}");
    }
    // If everything were refused, the test would prove nothing.
    let (tries, done) = (watch.tries.into_inner(), watch.done.into_inner());
    assert!(done * 50 > tries, "only {done} of {tries} calls did anything");
}

fn prepare(dir: &Path) {
    let all = dir.parent().unwrap();
    for folder in ["canary/f.d", "lent-twin", "store", "lent/a", "lent/b", "lent/swap", "lent/.git/hooks"] {
        fs::create_dir_all(all.join(folder)).unwrap();
    }
    for file in [
        "canary/f",
        "canary/file",
        "canary/a",
        "lent-twin/f",
        "lent/.env",
        "lent/secret.pem",
        "lent/a/.env",
        "lent/.git/config",
        "lent/.git/hooks/pre-commit",
    ] {
        // Files that git reads can be read. They must only stay unchanged.
        let mark = if file.contains(".git") { &b"git"[..] } else { MARK };
        fs::write(all.join(file), [mark, file.as_bytes()].concat()).unwrap();
    }
    for file in ["lent/a/f", "lent/b/f", "lent/swap/f", "lent/file"] {
        fs::write(all.join(file), file).unwrap();
    }
    symlink("../canary", all.join("lent/host_out")).unwrap();
    symlink(all.join("canary"), all.join("lent/absolute")).unwrap();
    symlink(all.join("canary"), all.join("store/swap")).unwrap();
    symlink(all.join("canary/f"), all.join("store/file")).unwrap();
}

/// Swaps a folder and a file for links to the outside and back, as fast as it can. Never goes through them.
fn swap(all: &Path, stop: &AtomicBool) {
    let mut fresh = 0;
    while !stop.load(Ordering::Relaxed) {
        for name in ["swap", "file"] {
            let (here, there) = (all.join("lent").join(name), all.join("store").join(name));
            if renameat_with(CWD, &here, CWD, &there, RenameFlags::EXCHANGE).is_err() {
                fresh += 1;
                let new = all.join("store").join(fresh.to_string());
                if name == "swap" {
                    fs::create_dir(&new).unwrap();
                    fs::write(new.join("f"), "fresh").unwrap();
                } else {
                    fs::write(&new, "fresh").unwrap();
                }
                let _ = renameat_with(CWD, &new, CWD, &here, RenameFlags::NOREPLACE);
            }
        }
    }
}

fn still(path: &Path) -> UntouchedTree {
    let mut found = UntouchedTree::new();
    let mut paths = vec![path.to_owned()];
    while let Some(path) = paths.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        let content = if stat.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        if stat.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let seconds = stat.mtime() * 1_000_000_000 + stat.mtime_nsec();
        // Not the access time, because the test itself reads.
        found.insert(path, (stat.ino(), stat.len(), seconds, i64::from(stat.mode()), content));
    }
    found
}

// === impl TestDice ===

impl TestDice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn path(&mut self, all: &Path) -> Vec<u8> {
        let mut path = match self.roll(16) {
            0 => b"/".to_vec(),
            1 => b"../".to_vec(),
            2 => format!("{}/canary/", all.display()).into_bytes(),
            3 => format!("/proc/self/fd/{}/", self.roll(12)).into_bytes(),
            4 => format!("/proc/self/root{}/canary/", all.display()).into_bytes(),
            5 => b"swap/".to_vec(),
            6 => b"/proc/self/cwd/../".to_vec(),
            7 => vec![b'a'; 254 + self.roll(4)],
            _ => Vec::new(),
        };
        for at in 0..=self.roll(3) {
            if at > 0 {
                path.extend_from_slice(if self.roll(8) == 0 { b"//" } else { b"/" });
            }
            path.extend_from_slice(NAMES[self.roll(NAMES.len())]);
        }
        path
    }
}

// === impl EscapeWatch ===

impl EscapeWatch<'_> {
    fn attempt(&self, dice: &mut TestDice, all: &Path) {
        let path = dice.path(all);
        let changes = AttributeChange {
            size: (dice.roll(2) == 0).then(|| dice.roll(50) as u64),
            mode: Some(0o755),
            modified: Some(FileTime { seconds: 1, nanos: 0 }),
            accessed: None,
        };
        let export = self.export;
        let result = match dice.roll(12) {
            0 => export.attributes(&path).map(|found| self.check(&path, &found)),
            1 | 2 => self.read(dice, &path),
            3 | 4 => self.write(dice, &path),
            5 => self.list(&path),
            6 => export.make_dir(&path, 0o755),
            7 => export.remove_file(&path).or_else(|_| export.remove_dir(&path)),
            8 => {
                let other = dice.path(all);
                let replace = if dice.roll(2) == 0 { ReplaceMode::Never } else { ReplaceMode::Always };
                export.rename(&path, &other, replace)
            }
            9 => export.symlink(&dice.path(all), &path),
            10 => export.hard_link(&path, &dice.path(all)),
            _ => export.set_attributes(&path, &changes),
        };
        self.tries.fetch_add(1, Ordering::Relaxed);
        if let Err(refusal @ ExportRefusal::Io(_)) = &result {
            panic!("{}: {refusal}", show(&path));
        }
        self.done.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
    }

    fn read(&self, dice: &mut TestDice, path: &[u8]) -> Result<(), ExportRefusal> {
        let file = self
            .export
            .open_file(path, &FileOpenOptions { read: true, write: dice.roll(2) == 0, ..FileOpenOptions::default() })?;
        self.check(path, &file.attributes()?);
        let mut bytes = [0; 64];
        let read = file.read_at(0, &mut bytes)?;
        assert!(!bytes[..read].windows(MARK.len()).any(|window| window == MARK), "{} was read", show(path));
        Ok(())
    }

    fn write(&self, dice: &mut TestDice, path: &[u8]) -> Result<(), ExportRefusal> {
        let create = [CreateMode::Never, CreateMode::IfMissing, CreateMode::New][dice.roll(3)];
        let (truncate, append) = (dice.roll(2) == 0, dice.roll(4) == 0);
        let file = self
            .export
            .open_file(path, &FileOpenOptions { read: true, write: true, append, truncate, create, mode: None })?;
        self.check(path, &file.attributes()?);
        file.write_at(dice.roll(8) as u64, b"written by the remote")
    }

    fn list(&self, path: &[u8]) -> Result<(), ExportRefusal> {
        let mut dir = self.export.read_dir(path)?;
        loop {
            let batch = dir.next_batch(16)?;
            if batch.is_empty() {
                return Ok(());
            }
            for entry in batch {
                self.check(path, &entry.attributes);
                assert!(!matches!(&entry.name[..], b".env" | b"secret.pem" | b"f.d"), "{} was listed", show(path));
            }
        }
    }

    fn check(&self, path: &[u8], found: &FileAttributes) {
        assert!(!self.outside.contains(&found.inode), "{} is outside", show(path));
    }
}
