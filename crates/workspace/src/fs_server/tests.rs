//! One session against a host that changes the same files at the same time: with hostile requests, while folders and files
//! are swapped for links to the outside, nothing outside is ever changed, listed, read or described, and neither is any
//! secret inside. And a change of the host's is never outranked by an older answer.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use attache_protocol::wire::awcp::AccessMode;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tokio::sync::Semaphore;

use super::{host::FsHost, outbox::FsOutbox, session::FsSession};
use crate::{
    export::{
        AttributeChange, Export, ExportAudit, ExportAuditEntry, ExportOperation, ExportTerms, FileTime, LeaseQuota,
        LinkPolicy, NoExportAudit, OriginalsFolder,
    },
    fs_wire::{FrameBuffer, FsEvent, FsOpenFlags, FsRequest, FsVersion, VERSION},
};

const MARK: &[u8] = b"CANARY";
const NAMES: &[&[u8]] = &[
    b"..",
    b".",
    b"",
    b"a",
    b"b",
    b"swap",
    b"swap",
    b"file",
    b"file",
    b"f",
    b"host_out",
    b"absolute",
    b"canary",
    b"lent",
    b"..\0",
    b"a\0b",
    b"proc",
    b"self",
    b"root",
    b".env",
    b".ENV",
    b".e\xe2\x80\x8cnv",
    b".git",
    b"hooks",
    b"config",
    b"\xff",
    b"...",
    b"secret.pem",
];

/// A small random generator: a failure can be replayed from its seed.
struct HostileDice(u64);

impl HostileDice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn path(&mut self, all: &Path) -> Vec<u8> {
        let mut path = match self.roll(12) {
            0 => b"/".to_vec(),
            1 => b"../".to_vec(),
            2 => format!("{}/canary/", all.display()).into_bytes(),
            3 => format!("/proc/self/fd/{}/", self.roll(12)).into_bytes(),
            4 => b"swap/".to_vec(),
            _ => Vec::new(),
        };
        for at in 0..=self.roll(3) {
            if at > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(NAMES[self.roll(NAMES.len())]);
        }
        path
    }

    fn request<'a>(&mut self, path: &'a [u8], other: &'a [u8]) -> Vec<FsRequest<'a>> {
        let change = AttributeChange { size: Some(3), mode: Some(0o755), ..AttributeChange::default() };
        let flags = FsOpenFlags {
            read: true,
            write: self.roll(2) == 0,
            truncate: self.roll(4) == 0,
            create: self.roll(2) == 0,
            exclusive: self.roll(4) == 0,
            append: self.roll(4) == 0,
        };
        let (id, handle) = (7, 1);
        let (modified, changed) = (FileTime::default(), FileTime::default());
        let version = FsVersion { inode: 1, size: 3, modified, changed };
        match self.roll(14) {
            0 => vec![FsRequest::Stat { id, path }],
            1 => vec![FsRequest::List { id, path }],
            2 => vec![FsRequest::Fetch { id, path }],
            3..6 => vec![
                FsRequest::Open { id, handle, path, flags, mode: 0o644 },
                FsRequest::Read { id, handle, offset: 0, length: 64 },
                FsRequest::Write { id, handle, offset: 1, data: b"written by the remote" },
                FsRequest::SetHandleAttributes { id, handle, change },
                FsRequest::Close { id, handle },
            ],
            6 => vec![FsRequest::MakeDir { id, path, mode: 0o755 }],
            7 => vec![FsRequest::RemoveFile { id, path }, FsRequest::RemoveDir { id, path }],
            8 => vec![FsRequest::Rename { id, from: path, to: other, replace: flags.write }],
            9 => vec![FsRequest::Symlink { id, path, target: other }],
            10 => vec![FsRequest::HardLink { id, from: path, to: other }],
            11 => vec![FsRequest::Chunks { id, path }, FsRequest::RemoveVersion { id, path, version }],
            12 => vec![
                FsRequest::Open { id, handle, path, flags, mode: 0o644 },
                FsRequest::Open { id, handle: 2, path: other, flags, mode: 0o644 },
                FsRequest::Copy { id, from: handle, offset: 0, length: 64, to: 2, to_offset: u64::MAX },
                FsRequest::Copy { id, from: handle, offset: 0, length: 3, to: 2, to_offset: 1 },
                FsRequest::Replace { id, from: path, to: other, version },
                FsRequest::Close { id, handle: 2 },
                FsRequest::Close { id, handle },
            ],
            _ => vec![
                FsRequest::SetAttributes { id, path, change },
                FsRequest::SetVersionAttributes { id, path, version, change },
            ],
        }
    }
}

#[test]
fn no_request_and_no_race_gets_out() {
    let tries = if std::env::var_os("ATTACHE_LONG").is_some() { 500_000 } else { 20_000 };
    let all = tempfile::tempdir().unwrap();
    prepare(all.path());
    let terms =
        ExportTerms { quota: LeaseQuota::UNLIMITED, links: LinkPolicy::Any, ..ExportTerms::new(AccessMode::Rw) };
    let before = OriginalsFolder::in_folder(all.path().join("before"));
    let export = Export::open(&all.path().join("lent"), terms, before, Arc::new(NoExportAudit)).unwrap();
    let host = Arc::new(FsHost::new(Arc::new(export), FsOutbox::default()));
    let mut session = FsSession::new(Arc::clone(&host), "loc".to_owned(), Arc::new(Semaphore::new(64)), Arc::default());
    let hello =
        FsRequest::Hello { version: VERSION, locator: b"loc", push_bytes: 1 << 20, push_file: 1 << 20, mount: 1 };
    session.carry_out(&hello.write()[4..]).unwrap();
    let stop = AtomicBool::new(false);
    let (mut done, mut failed) = (0, 0);
    thread::scope(|scope| {
        let (stop, root) = (&stop, all.path());
        scope.spawn(move || swap(root, stop));
        // Everything that is sent, asked for or not.
        let sent = scope.spawn(|| {
            let mut frames = FrameBuffer::default();
            let (mut done, mut failed) = (0, 0);
            while let Some(batch) = host.outbox.next_batch() {
                assert!(!batch.windows(MARK.len()).any(|window| window == MARK), "a secret was sent");
                frames.extend(&batch);
                while let Some(frame) = frames.next().unwrap() {
                    match FsEvent::read(frame).unwrap() {
                        FsEvent::Content { data, .. } => host.outbox.confirm(data.len() as u64 + 1000),
                        FsEvent::Done(_) => done += 1,
                        FsEvent::Failed(_) => failed += 1,
                        FsEvent::Listing(listing) => check(listing.entries.iter().map(|(name, _)| &name[..])),
                        FsEvent::Changed(change) => check([&change.name[..]].into_iter()),
                        FsEvent::Welcome(_) | FsEvent::Reset | FsEvent::TreeComplete | FsEvent::Ended => {}
                    }
                }
            }
            (done, failed)
        });
        let mut dice = HostileDice(1);
        for _ in 0..tries {
            let (path, other) = (dice.path(all.path()), dice.path(all.path()));
            for request in dice.request(&path, &other) {
                session.carry_out(&request.write()[4..]).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        host.end();
        (done, failed) = sent.join().unwrap();
    });
    for thread in session.finish() {
        thread.join().unwrap();
    }
    for file in ["canary/f", "canary/file", "lent/.env", "lent/secret.pem", "lent/a/.env"] {
        assert!(fs::read(all.path().join(file)).unwrap().starts_with(b"CANARY"), "{file} was changed");
    }
    // If everything were refused, the test would prove nothing.
    assert!(done * 50 > done + failed, "only {done} of {} requests did anything", done + failed);
}

/// Nothing withheld is named, in no spelling.
fn check<'a>(names: impl Iterator<Item = &'a [u8]>) {
    for name in names {
        assert!(!matches!(name, b".env" | b".ENV" | b"secret.pem" | b"outside only"), "{name:?} was mentioned");
    }
}

fn prepare(all: &Path) {
    for folder in ["canary", "store", "lent/a", "lent/b", "lent/swap", "lent/.git/hooks"] {
        fs::create_dir_all(all.join(folder)).unwrap();
    }
    for file in ["canary/f", "canary/file", "canary/outside only", "lent/.env", "lent/secret.pem", "lent/a/.env"] {
        fs::write(all.join(file), [MARK, file.as_bytes()].concat()).unwrap();
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
                } else {
                    fs::write(&new, "fresh").unwrap();
                }
                let _ = renameat_with(CWD, &new, CWD, &here, RenameFlags::NOREPLACE);
            }
        }
    }
}

/// Once a file is open, and before that is answered: renames something on the host, and waits until that is reported.
struct Overtaking {
    from: PathBuf,
    to: PathBuf,
    reported: Mutex<mpsc::Receiver<()>>,
}

impl ExportAudit for Overtaking {
    fn record(&self, line: &ExportAuditEntry<'_>) {
        if matches!(line.op, ExportOperation::Open | ExportOperation::Create) {
            fs::rename(&self.from, &self.to).unwrap();
            self.reported.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
        }
    }
}

/// Nothing else is reported about the name, so the client would show the file forever.
#[test]
fn a_file_that_lost_its_name_while_it_was_opened_does_not_have_it() {
    for (exists, from, to) in
        [(false, "saved", "other"), (false, "new", "saved"), (true, "saved", "other"), (true, "new", "saved")]
    {
        let all = tempfile::tempdir().unwrap();
        let lent = all.path().join("lent");
        fs::create_dir(&lent).unwrap();
        fs::write(lent.join("new"), "").unwrap();
        if exists {
            fs::write(lent.join("saved"), "").unwrap();
        }
        let new = fs::metadata(lent.join("new")).unwrap().ino();
        let expected = (to == "saved").then_some(new);
        let (report, reported) = mpsc::channel();
        let audit = Overtaking { from: lent.join(from), to: lent.join(to), reported: Mutex::new(reported) };
        let before = OriginalsFolder::in_folder(all.path().join("before"));
        let export = Export::open(&lent, ExportTerms::new(AccessMode::Rw), before, Arc::new(audit)).unwrap();
        let host = Arc::new(FsHost::new(Arc::new(export), FsOutbox::default()));
        let mut session =
            FsSession::new(Arc::clone(&host), "loc".to_owned(), Arc::new(Semaphore::new(64)), Arc::default());
        let hello = FsRequest::Hello { version: VERSION, locator: b"loc", push_bytes: 0, push_file: 0, mount: 1 };
        session.carry_out(&hello.write()[4..]).unwrap();
        let (listed, is_listed) = mpsc::channel();
        let sending = Arc::clone(&host);
        let sent = thread::spawn(move || {
            let mut frames = FrameBuffer::default();
            let mut newest = (0, None);
            while let Some(batch) = sending.outbox.next_batch() {
                frames.extend(&batch);
                while let Some(frame) = frames.next().unwrap() {
                    let (stamp, entry) = match FsEvent::read(frame).unwrap() {
                        FsEvent::TreeComplete => {
                            listed.send(()).unwrap();
                            continue;
                        }
                        FsEvent::Changed(change) if change.name == b"saved" => (change.stamp, change.entry),
                        FsEvent::Done(reply) => (reply.stamp, reply.entry),
                        _ => continue,
                    };
                    let inode = entry.map(|entry| entry.attributes.inode);
                    newest = newest.max((stamp, inode));
                    if inode == expected {
                        let _ = report.send(());
                    }
                }
            }
            newest
        });
        is_listed.recv().unwrap();
        let flags = FsOpenFlags { write: true, create: true, truncate: true, ..FsOpenFlags::default() };
        let open = FsRequest::Open { id: 7, handle: 1, path: b"saved", flags, mode: 0o644 };
        session.carry_out(&open.write()[4..]).unwrap();
        host.end();
        let (_, inode) = sent.join().unwrap();
        assert_eq!(inode, expected, "{from} was renamed to {to}, and the file existed: {exists}");
        for thread in session.finish() {
            thread.join().unwrap();
        }
    }
}

/// The client has no other way to know that somebody on the host wrote between two of its changes.
#[test]
fn an_answer_says_what_a_change_found() {
    let all = tempfile::tempdir().unwrap();
    let lent = all.path().join("lent");
    fs::create_dir(&lent).unwrap();
    fs::write(lent.join("file"), "12345678").unwrap();
    let before = OriginalsFolder::in_folder(all.path().join("before"));
    let export = Export::open(&lent, ExportTerms::new(AccessMode::Rw), before, Arc::new(NoExportAudit)).unwrap();
    let host = Arc::new(FsHost::new(Arc::new(export), FsOutbox::default()));
    let mut session = FsSession::new(Arc::clone(&host), "loc".to_owned(), Arc::new(Semaphore::new(64)), Arc::default());
    let hello = FsRequest::Hello { version: VERSION, locator: b"loc", push_bytes: 0, push_file: 0, mount: 1 };
    let flags = FsOpenFlags { write: true, ..FsOpenFlags::default() };
    let (change, path) = (AttributeChange { mode: Some(0o600), ..AttributeChange::default() }, b"file");
    let requests = [
        hello,
        FsRequest::Open { id: 1, handle: 1, path, flags, mode: 0 },
        FsRequest::Write { id: 2, handle: 1, offset: 0, data: b"ours" },
        FsRequest::Write { id: 3, handle: 1, offset: 4, data: b"ours" },
        FsRequest::SetHandleAttributes { id: 4, handle: 1, change },
        FsRequest::SetAttributes { id: 5, path, change },
        FsRequest::Open { id: 6, handle: 2, path, flags: FsOpenFlags { truncate: true, ..flags }, mode: 0 },
    ];
    let mut expected = Vec::new();
    for request in requests {
        // With another size each time, so that the test doesn't depend on how fine times are.
        if let Some(id) = request.id().filter(|id| *id > 1) {
            let size = 100 + u64::from(id);
            fs::File::options().write(true).open(lent.join("file")).unwrap().set_len(size).unwrap();
            expected.push((id, Some(size)));
        } else if request.id().is_some() {
            expected.push((1, None));
        }
        session.carry_out(&request.write()[4..]).unwrap();
    }
    host.end();
    let (mut frames, mut found) = (FrameBuffer::default(), Vec::new());
    while let Some(batch) = host.outbox.next_batch() {
        frames.extend(&batch);
        while let Some(frame) = frames.next().unwrap() {
            if let FsEvent::Done(reply) = FsEvent::read(frame).unwrap() {
                found.push((reply.id, reply.before.map(|before| before.size)));
            }
        }
    }
    assert_eq!(found, expected);
    for thread in session.finish() {
        thread.join().unwrap();
    }
}
