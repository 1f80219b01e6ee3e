//! SFTP spoken by hand through ssh, for what no program would ever ask.

use std::{
    io::{Read, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    thread::JoinHandle,
};

use super::{Host, Lent, cannot_run};

/// One channel of a lease.
pub(crate) struct Raw {
    child: Child,
    pub(crate) input: Option<ChildStdin>,
    output: ChildStdout,
}

/// A reply: its kind, its number, and the rest.
pub(crate) type Reply = (u8, u32, Vec<u8>);

pub(crate) fn packet(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&u32::try_from(body.len() + 1).unwrap().to_be_bytes()[..], &[kind], &body].concat()
}

pub(crate) fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// The status of a reply that is one.
pub(crate) fn status(reply: &Reply) -> Option<u32> {
    (reply.0 == 101).then(|| u32::from_be_bytes(reply.2[..4].try_into().unwrap()))
}

// === impl Raw ===

impl Raw {
    /// Opens a channel and says which version.
    pub(crate) fn open(lent: &Lent) -> Self {
        let mut raw = Self::connect(lent, &[]);
        raw.write(&packet(1, &[&3_u32.to_be_bytes()]));
        let (kind, version, _) = raw.reply();
        assert_eq!((kind, version), (2, 3));
        raw
    }

    pub(crate) fn connect(lent: &Lent, more: &[&str]) -> Self {
        let mut command = lent.options.command("ssh");
        command.args(more).args(["-s", &lent.options.host(), "sftp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Goes on writing on a thread of its own.
    pub(crate) fn write_aside(&mut self, work: impl FnOnce(&mut ChildStdin) + Send + 'static) -> JoinHandle<()> {
        let mut input = self.input.take().unwrap();
        std::thread::spawn(move || work(&mut input))
    }

    pub(crate) fn reply(&mut self) -> Reply {
        self.next().expect("a reply")
    }

    /// `None` when the channel ended.
    pub(crate) fn next(&mut self) -> Option<Reply> {
        let mut head = [0; 9];
        self.output.read_exact(&mut head).ok()?;
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        let mut rest = vec![0; number(&head[..4]) as usize - 5];
        self.output.read_exact(&mut rest).ok()?;
        Some((head[4], number(&head[5..]), rest))
    }

    pub(crate) fn ask(&mut self, kind: u8, id: u32, parts: &[&[u8]]) -> Reply {
        self.write(&packet(kind, &[&id.to_be_bytes(), &parts.concat()]));
        let reply = self.reply();
        assert_eq!(reply.1, id, "{reply:?}");
        reply
    }

    /// The handle of a file opened with these flags.
    pub(crate) fn open_file(&mut self, path: &str, flags: u32) -> Vec<u8> {
        let reply = self.ask(3, 1, &[&string(path.as_bytes()), &flags.to_be_bytes(), &0_u32.to_be_bytes()]);
        assert_eq!(reply.0, 102, "{reply:?}");
        reply.2
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_understood_is_answered_or_ends_the_channel() {
    if cannot_run() {
        return;
    }
    let host = Host::start().await;
    let lent = host.lend("loc");
    let mut raw = Raw::open(&lent);
    let zero = 0_u32.to_be_bytes();
    let asked = [
        // Incomplete, unknown, an unknown extension, a handle that is none, a path with a zero in it.
        raw.ask(3, 7, &[&string(b"/loc/a")]),
        raw.ask(99, 8, &[b"whatever"]),
        raw.ask(200, 9, &[&string(b"copy-data")]),
        raw.ask(5, 10, &[&string(b"nope"), &[0; 8], &[0, 0, 1, 0]]),
        raw.ask(17, 11, &[&string(b"/loc/a\0b")]),
        raw.ask(3, 12, &[&string(b"/loc/../../etc/passwd"), &1_u32.to_be_bytes(), &zero]),
        raw.ask(4, 13, &[&string(&[0, 0, 0, 9])]),
    ];
    assert_eq!(asked.map(|reply| status(&reply)), [Some(5), Some(8), Some(8), Some(5), Some(5), Some(5), Some(5)]);
    // What it says of its limits is what it keeps to.
    let (kind, _, limits) = raw.ask(200, 14, &[&string(b"limits@openssh.com")]);
    let limits: Vec<u64> = limits.chunks(8).map(|number| u64::from_be_bytes(number.try_into().unwrap())).collect();
    assert_eq!((kind, limits), (201, vec![262_144, 261_120, 261_120, 1024]));

    raw.write(&(262_145_u32).to_be_bytes());
    assert_eq!(raw.next(), None);
    for first in [&packet(3, &[&zero])[..], &[0, 0, 0, 0], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut raw = Raw::connect(&lent, &[]);
        raw.write(first);
        assert_eq!(raw.next(), None, "{first:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_holds_a_limited_number_of_files_open() {
    if cannot_run() {
        return;
    }
    let host = Host::start().await;
    let lent = host.lend("loc");
    std::fs::write(lent.folder.join("file"), "text").unwrap();
    let (mut one, mut two) = (Raw::open(&lent), Raw::open(&lent));
    let handles: Vec<_> = (0..1024).map(|_| one.open_file("/loc/file", 1)).collect();
    let more = [&string(b"/loc/file")[..], &1_u32.to_be_bytes(), &0_u32.to_be_bytes()];
    assert_eq!(status(&one.ask(3, 2, &more)), Some(4));
    assert_eq!(status(&two.ask(3, 2, &more)), Some(4));
    // What is open goes on, and what is closed makes room.
    assert_eq!(one.ask(5, 3, &[&handles[1023], &[0; 8], &[0, 0, 1, 0]]).2, string(b"text"));
    assert_eq!(status(&one.ask(4, 4, &[&handles[0]])), Some(0));
    two.open_file("/loc/file", 1);
    drop(one);
    super::eventually("the files of a closed channel are closed", || {
        let mut three = Raw::open(&lent);
        let reply = three.ask(3, 2, &more);
        reply.0 == 102
    })
    .await;
}
