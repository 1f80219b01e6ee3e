//! What ssh and sftp can do with a lease, and what they can't.

use std::{fs, os::unix::fs::PermissionsExt};

use attache_protocol::env::Env;
use attache_workspace::ssh::{HostKey, make_key};

use super::{SshTestHost, cannot_run, run, text_of};

#[tokio::test(flavor = "multi_thread")]
async fn sftp_works_as_with_any_server() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    fs::write(lease.folder.join("a file"), "hello").unwrap();
    let output = lease.sftp(
        "pwd\nget \"a file\" got\nput got put\nmkdir sub\nrename put sub/put\nchmod 600 sub/put\nln -s put sub/link\n\
         ls -l sub\ndf\n",
    );
    assert!(output.status.success(), "{}", text_of(&output));
    assert!(text_of(&output).contains("Remote working directory: /loc\n"), "{}", text_of(&output));
    assert!(text_of(&output).lines().any(|line| line.starts_with("-rw-------") && line.ends_with("put")));
    assert_eq!(fs::read_to_string(lease.folder.join("sub/put")).unwrap(), "hello");
    assert_eq!(fs::metadata(lease.folder.join("sub/put")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_link(lease.folder.join("sub/link")).unwrap().to_str(), Some("put"));
    let output = lease.sftp("rm sub/link\nrm sub/put\nrmdir sub\n");
    assert!(output.status.success(), "{}", text_of(&output));
    assert!(!lease.folder.join("sub").exists());
}

/// Defect 1 of the peer: its credential was a login.
#[tokio::test(flavor = "multi_thread")]
async fn the_credential_is_not_a_login() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let port = host.port.to_string();
    let (local, remote) = (format!("0:127.0.0.1:{port}"), format!("127.0.0.1:{port}"));
    let touched = lease.folder.join("touched");
    let touch = format!("touch {}", touched.display());
    for (before, after, refusal) in [
        (&[][..], &[touch.as_str()][..], "exec request failed on channel 0"),
        (&[], &[], "shell request failed on channel 0"),
        (&["-tt"], &[touch.as_str()], "PTY allocation request failed on channel 0"),
        (&["-s"], &["shell"], "subsystem request failed on channel 0"),
        (&["-s"], &["sftp-server"], "subsystem request failed on channel 0"),
        (&["-W", remote.as_str()], &[], "administratively prohibited"),
        (&["-N", "-o", "ExitOnForwardFailure=yes", "-R", local.as_str()], &[], "remote port forwarding failed"),
        (
            &["-N", "-o", "ExitOnForwardFailure=yes", "-R", "/tmp/x.sock:127.0.0.1:1"],
            &[],
            "remote port forwarding failed",
        ),
        (&["-o", "SetEnv=A=b", "-A", "-X"], &["true"], "exec request failed on channel 0"),
    ] {
        let output = lease.ssh(before, after);
        assert!(!output.status.success(), "{before:?} {after:?}: {}", text_of(&output));
        assert!(text_of(&output).contains(refusal), "{before:?} {after:?}: {}", text_of(&output));
    }
    assert!(!touched.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_key_and_no_other_method_gets_in() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let dir = tempfile::tempdir().unwrap();
    let stranger = host.login(make_key(&Env::system()).private).write(dir.path()).unwrap();
    let output = run(stranger.command("ssh").arg("-s").arg(stranger.host()).arg("sftp"), b"");
    assert!(text_of(&output).contains("Permission denied (publickey)"), "{}", text_of(&output));
    for method in ["none", "password", "keyboard-interactive", "hostbased"] {
        let output = lease.ssh(&["-s", "-o", &format!("PreferredAuthentications={method}")], &["sftp"]);
        assert!(text_of(&output).contains("Permission denied (publickey)"), "{method}: {}", text_of(&output));
    }
    // A client that pins another host key stops there.
    let pinned = HostKey::generate(&Env::system()).public_openssh();
    let mut elsewhere = host.login(lease.private_key);
    elsewhere.host_key = pinned;
    let elsewhere = elsewhere.write(dir.path()).unwrap();
    let output = run(elsewhere.command("ssh").arg("-s").arg(elsewhere.host()).arg("sftp"), b"");
    assert!(text_of(&output).contains("Host key verification failed"), "{}", text_of(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_its_own_lease_and_no_other() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let (mine, other) = (host.lend("mine"), host.lend("other"));
    fs::write(mine.folder.join("file"), "mine").unwrap();
    fs::write(other.folder.join("file"), "other").unwrap();
    for path in ["/other/file", "/other", "/", "/etc/passwd", "/mine/../other/file", "..", "/mine2", "/min"] {
        let output = mine.sftp(&format!("ls {path}\n"));
        assert!(!output.status.success(), "{path}: {}", text_of(&output));
        assert!(!text_of(&output).contains("root"), "{path}: {}", text_of(&output));
    }
    let output = mine.sftp("get /mine/file got\n");
    assert!(output.status.success(), "{}", text_of(&output));
    // The other one isn't affected when this one ends.
    mine.admission.revoke();
    assert!(text_of(&mine.sftp("ls\n")).contains("Permission denied (publickey)"));
    assert!(text_of(&other.sftp("ls\n")).contains("file"));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_ciphers_and_compression_are_not_offered() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let output = lease.ssh(&["-v", "-C", "-s"], &["sftp"]);
    let text = text_of(&output);
    assert!(text.contains("cipher: aes256-gcm@openssh.com MAC: <implicit> compression: none"), "{text}");
    let output = lease.ssh(&["-c", "aes256-ctr", "-s"], &["sftp"]);
    assert!(super::text_of(&output).contains("no matching cipher found"), "{}", super::text_of(&output));
}
