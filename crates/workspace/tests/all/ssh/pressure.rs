//! Clients that send many requests at once, and read the answers late or never.

use std::{fs, io::Write, thread, time::Duration};

use attache_workspace::{mount::MountTransport, ssh::SshServerOptions};

use super::{
    SshTestHost, cannot_run,
    raw::{RawSftp, packet, status, string},
    text_of,
};

/// Paramiko requests a whole file before it reads the first answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_all_requests_first_gets_everything() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let content: Vec<u8> = (0..48_u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(lease.folder.join("big"), &content).unwrap();
    let mut raw = RawSftp::open(&lease);
    let handle = raw.open_file("/loc/big", 1);
    let step = 32 * 1024;
    let asks: Vec<u8> = (0..content.len() / step)
        .flat_map(|number| {
            let (id, offset) = (u32::try_from(number).unwrap(), (number * step) as u64);
            let length = u32::try_from(step).unwrap().to_be_bytes();
            packet(5, &[&id.to_be_bytes(), &handle, &offset.to_be_bytes(), &length])
        })
        .collect();
    raw.write(&asks);
    // Long enough for every buffer in between to fill up.
    thread::sleep(Duration::from_millis(300));
    for (number, expected) in content.chunks(step).enumerate() {
        let (kind, id, data) = raw.reply();
        assert_eq!((kind, id), (103, u32::try_from(number).unwrap()));
        assert!(data[4..] == *expected, "chunk {number} differs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_writes_everything_first_is_slowed_down_but_served() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let mut raw = RawSftp::open(&lease);
    let handle = raw.open_file("/loc/big", 2 | 8);
    let count = 1000_u32;
    let data = string(&vec![b'w'; 32 * 1024]);
    // Replies are small: they wait in the pipe until everything is written.
    for number in 0..count {
        let offset = u64::from(number) * 32 * 1024;
        raw.write(&packet(6, &[&number.to_be_bytes(), &handle, &offset.to_be_bytes(), &data]));
    }
    for number in 0..count {
        let reply = raw.reply();
        assert_eq!((reply.1, status(&reply)), (number, Some(0)));
    }
    assert_eq!(fs::metadata(lease.folder.join("big")).unwrap().len(), u64::from(count) * 32 * 1024);
}

/// Requests fill every inbound buffer while their replies fill every outbound one: waiting for one before moving the
/// other would wait forever.
#[tokio::test(flavor = "multi_thread")]
async fn full_buffers_in_both_directions_do_not_deadlock() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    fs::write(lease.folder.join("big"), vec![b'b'; 1 << 20]).unwrap();
    let mut raw = RawSftp::open(&lease);
    let (from, to) = (raw.open_file("/loc/big", 1), raw.open_file("/loc/new", 2 | 8));
    let data = string(&vec![b'w'; 32 * 1024]);
    let count = 250_u32;
    for number in 0..count {
        let read = [&number.to_be_bytes()[..], &from, &[0; 8], &250_000_u32.to_be_bytes()];
        raw.write(&packet(5, &read));
        raw.write(&packet(6, &[&number.to_be_bytes(), &to, &[0; 8], &data]));
    }
    for number in 0..count {
        assert_eq!((raw.reply().0, raw.reply().0), (103, 101), "{number}");
    }
}

/// Requests gigabytes and reads none of them: what waits on the host stays small, and other clients are served.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_does_not_block_others() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let (greedy, other) = (host.lend("greedy"), host.lend("other"));
    fs::write(greedy.folder.join("big"), vec![b'g'; 1 << 20]).unwrap();
    fs::write(other.folder.join("file"), "text").unwrap();
    let mut raw = RawSftp::open(&greedy);
    let handle = raw.open_file("/greedy/big", 1);
    let ask = packet(5, &[&[0; 4], &handle, &[0; 8], &250_000_u32.to_be_bytes()]);
    let before = resident();
    // 20,000 answers of 250 KB: every buffer in between is full long before.
    let asker = raw.write_aside(move |input| {
        let _ = (0..20_000).try_for_each(|_| input.write_all(&ask));
    });
    let text = other.sftp("get /other/file got\n");
    assert!(text.status.success(), "{}", super::text_of(&text));
    thread::sleep(Duration::from_millis(500));
    let grown = resident().saturating_sub(before);
    assert!(grown < 128 << 20, "{} MB wait in memory", grown >> 20);
    // It is still served as soon as it reads.
    assert_eq!(raw.reply().2.len(), 250_004);
    greedy.admission.revoke();
    asker.join().unwrap();
}

/// The memory use of this process.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Each channel of attache-fs has threads and an inotify instance, of which a user has few.
#[tokio::test(flavor = "multi_thread")]
async fn channels_of_attache_fs_are_limited() {
    if cannot_run() || crate::attache_fs::cannot_mount() {
        return;
    }
    let options = SshServerOptions { connections_per_lease: 40, ..SshServerOptions::default() };
    let host = SshTestHost::with(options).await;
    let (lease, other) = (host.lend("loc"), host.lend("other"));
    let open: Vec<_> = (0..16).map(|_| RawSftp::subsystem(&lease, &[], "attache-fs")).collect();
    // One that gets in before the others would wait here.
    super::eventually("all are connected", || lease.admission.connections() == 16).await;
    let is_refused = || text_of(&lease.ssh(&["-s"], &["attache-fs"])).contains("subsystem request failed");
    super::eventually("there are too many", is_refused).await;
    // Neither another protocol nor another lease is affected.
    assert!(lease.sftp("ls\n").status.success());
    drop(other.mount_as(MountTransport::AttacheFs).await);
    drop(open);
    super::eventually("there is room again", || !is_refused()).await;
    drop(lease.mount_as(MountTransport::AttacheFs).await);
}
