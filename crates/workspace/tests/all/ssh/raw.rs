//! Raw SFTP through ssh, for requests that no program would make.

use std::{
    io::{Read, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    thread::JoinHandle,
};

use super::{LeaseFixture, SshTestHost, cannot_run};

/// One channel of a lease.
pub(crate) struct RawSftp {
    child: Child,
    pub(crate) input: Option<ChildStdin>,
    output: ChildStdout,
}

/// A reply: its kind, its id, and the rest.
pub(crate) type RawSftpReply = (u8, u32, Vec<u8>);

pub(crate) fn packet(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&u32::try_from(body.len() + 1).unwrap().to_be_bytes()[..], &[kind], &body].concat()
}

pub(crate) fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// The status, if the reply is one.
pub(crate) fn status(reply: &RawSftpReply) -> Option<u32> {
    (reply.0 == 101).then(|| u32::from_be_bytes(reply.2[..4].try_into().unwrap()))
}

// === impl RawSftp ===

impl RawSftp {
    /// Opens a channel and sends the version.
    pub(crate) fn open(lease: &LeaseFixture) -> Self {
        let mut raw = Self::connect(lease, &[]);
        raw.write(&packet(1, &[&3_u32.to_be_bytes()]));
        let (kind, version, _) = raw.reply();
        assert_eq!((kind, version), (2, 3));
        raw
    }

    pub(crate) fn connect(lease: &LeaseFixture, more: &[&str]) -> Self {
        Self::subsystem(lease, more, "sftp")
    }

    /// A channel on which nothing was said yet.
    pub(crate) fn subsystem(lease: &LeaseFixture, more: &[&str], name: &str) -> Self {
        let mut command = lease.options.command("ssh");
        command.args(more).args(["-s", &lease.options.host(), name]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Continues writing on a separate thread.
    pub(crate) fn write_aside(&mut self, work: impl FnOnce(&mut ChildStdin) + Send + 'static) -> JoinHandle<()> {
        let mut input = self.input.take().unwrap();
        std::thread::spawn(move || work(&mut input))
    }

    pub(crate) fn reply(&mut self) -> RawSftpReply {
        self.next().expect("a reply")
    }

    /// `None` if the channel ended.
    pub(crate) fn next(&mut self) -> Option<RawSftpReply> {
        let mut head = [0; 9];
        self.output.read_exact(&mut head).ok()?;
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        let mut rest = vec![0; number(&head[..4]) as usize - 5];
        self.output.read_exact(&mut rest).ok()?;
        Some((head[4], number(&head[5..]), rest))
    }

    pub(crate) fn ask(&mut self, kind: u8, id: u32, parts: &[&[u8]]) -> RawSftpReply {
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

impl Drop for RawSftp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_answered_or_end_the_channel() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let mut raw = RawSftp::open(&lease);
    let zero = 0_u32.to_be_bytes();
    let replies = [
        // Incomplete, unknown, an unknown extension, an invalid handle, a path with a NUL.
        raw.ask(3, 7, &[&string(b"/loc/a")]),
        raw.ask(99, 8, &[b"whatever"]),
        raw.ask(200, 9, &[&string(b"copy-data")]),
        raw.ask(5, 10, &[&string(b"nope"), &[0; 8], &[0, 0, 1, 0]]),
        raw.ask(17, 11, &[&string(b"/loc/a\0b")]),
        raw.ask(3, 12, &[&string(b"/loc/../../etc/passwd"), &1_u32.to_be_bytes(), &zero]),
        raw.ask(4, 13, &[&string(&[0, 0, 0, 9])]),
    ];
    assert_eq!(replies.map(|reply| status(&reply)), [Some(5), Some(8), Some(8), Some(5), Some(5), Some(5), Some(5)]);
    // It keeps to the limits that it announces.
    let (kind, _, limits) = raw.ask(200, 14, &[&string(b"limits@openssh.com")]);
    let limits: Vec<u64> = limits.chunks(8).map(|number| u64::from_be_bytes(number.try_into().unwrap())).collect();
    assert_eq!((kind, limits), (201, vec![262_144, 261_120, 261_120, 1024]));

    raw.write(&(262_145_u32).to_be_bytes());
    assert_eq!(raw.next(), None);
    for first in [&packet(3, &[&zero])[..], &[0, 0, 0, 0], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut raw = RawSftp::connect(&lease, &[]);
        raw.write(first);
        assert_eq!(raw.next(), None, "{first:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_holds_a_limited_number_of_files_open() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    std::fs::write(lease.folder.join("file"), "text").unwrap();
    let (mut one, mut two) = (RawSftp::open(&lease), RawSftp::open(&lease));
    let handles: Vec<_> = (0..1024).map(|_| one.open_file("/loc/file", 1)).collect();
    let more = [&string(b"/loc/file")[..], &1_u32.to_be_bytes(), &0_u32.to_be_bytes()];
    assert_eq!(status(&one.ask(3, 2, &more)), Some(4));
    assert_eq!(status(&two.ask(3, 2, &more)), Some(4));
    // Open files still work, and closing one makes room.
    assert_eq!(one.ask(5, 3, &[&handles[1023], &[0; 8], &[0, 0, 1, 0]]).2, string(b"text"));
    assert_eq!(status(&one.ask(4, 4, &[&handles[0]])), Some(0));
    two.open_file("/loc/file", 1);
    drop(one);
    super::eventually("the files of a closed channel are closed", || {
        let mut three = RawSftp::open(&lease);
        let reply = three.ask(3, 2, &more);
        reply.0 == 102
    })
    .await;
}

/// Every operation of the protocol, with every way to write a path that leads out, by the holder of a valid key.
#[tokio::test(flavor = "multi_thread")]
async fn no_path_over_the_wire_leads_out_of_the_folder() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let (folder, outside) = (lease.folder.clone(), lease.folder.with_file_name("outside"));
    let twin = lease.folder.with_file_name("workspace-twin");
    for (place, mark) in [(&outside, "CANARY"), (&twin, "CANARY")] {
        std::fs::create_dir(place).unwrap();
        std::fs::write(place.join("f"), mark).unwrap();
    }
    std::fs::create_dir(folder.join("a")).unwrap();
    std::fs::write(folder.join("f"), "inside").unwrap();
    std::os::unix::fs::symlink(&outside, folder.join("absolute")).unwrap();
    std::os::unix::fs::symlink("../outside", folder.join("relative")).unwrap();
    let outside = outside.to_str().unwrap();
    let ways = [
        outside.to_owned(),
        format!("/loc/{outside}"),
        format!("/loc/../..{outside}"),
        "/loc/../outside".to_owned(),
        "/loc/a/../../outside".to_owned(),
        "/loc/./a//..//../outside".to_owned(),
        "/loc/../workspace-twin".to_owned(),
        "/loc-twin".to_owned(),
        "/loc/absolute".to_owned(),
        "/loc/relative".to_owned(),
        "/loc/a/../relative".to_owned(),
        format!("/loc/proc/self/root{outside}"),
        format!("/proc/self/root{outside}"),
        "/proc/self/cwd/../outside".to_owned(),
        "../outside".to_owned(),
        "~/../outside".to_owned(),
        "/loc/%2e%2e/outside".to_owned(),
        "/loc/..\\outside".to_owned(),
        "/loc/．．/outside".to_owned(),
        "/loc/..\0/outside".to_owned(),
    ];
    let (none, read, write) = (0_u32.to_be_bytes(), 1_u32.to_be_bytes(), (2_u32 | 8 | 16).to_be_bytes());
    let mut raw = RawSftp::open(&lease);
    let mut id = 100;
    let mut replies = Vec::new();
    for way in &ways {
        for name in [way.clone(), format!("{way}/f"), format!("{way}/new")] {
            let path = string(name.as_bytes());
            let inside = string(b"/loc/a/planted");
            let requests: [(u8, Vec<&[u8]>); 13] = [
                (3, vec![&path, &read, &none]),
                (3, vec![&path, &write, &none]),
                (7, vec![&path]),
                (9, vec![&path, &[0, 0, 0, 4], &[0, 0, 1, 0xff]]),
                (11, vec![&path]),
                (14, vec![&path, &none]),
                (16, vec![&path]),
                (17, vec![&path]),
                (18, vec![&inside, &path]),
                (18, vec![&path, &inside]),
                // A link's target is data. A link that would lead out isn't created.
                (20, vec![&path, &inside]),
                (13, vec![&path]),
                (15, vec![&path]),
            ];
            for (kind, parts) in requests {
                // The host's own two links can be removed, because they are inside.
                if [13, 18].contains(&kind) && ["/loc/absolute", "/loc/relative"].contains(&name.as_str()) {
                    continue;
                }
                id += 1;
                let reply = raw.ask(kind, id, &parts);
                if reply.0 == 102 {
                    id += 1;
                    replies.push(raw.ask(5, id, &[&reply.2, &[0; 8], &[0, 0, 1, 0]]).2);
                    id += 1;
                    replies.push(raw.ask(12, id, &[&reply.2]).2);
                    id += 1;
                    raw.ask(4, id, &[&reply.2]);
                }
                replies.push(reply.2);
            }
        }
    }
    assert!(replies.len() > 700);
    assert!(!replies.iter().any(|bytes| bytes.windows(6).any(|window| window == b"CANARY")), "it was read");
    for place in [Path::new(outside), &twin] {
        let names: Vec<_> = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["f"], "{}", place.display());
        assert_eq!(std::fs::read_to_string(place.join("f")).unwrap(), "CANARY");
    }
    assert_eq!(raw.ask(17, 1, &[&string(b"/loc/f")]).0, 105, "the good path still works");
}
