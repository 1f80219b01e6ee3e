//! Anyone who downloads a release can verify it, and only the maintainers can create one.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Runs a program without the person's own environment.
fn run(program: &Path, args: &[&str]) -> Output {
    Command::new(program).args(args).env_remove("SSH_AUTH_SOCK").output().unwrap()
}

/// Creates a key; returns its file and the line that allows it to sign.
fn key(folder: &Path, name: &str) -> (String, String) {
    let file = folder.join(name).to_str().unwrap().to_owned();
    let made = run(Path::new("ssh-keygen"), &["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", &file]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let public = fs::read_to_string(format!("{file}.pub")).unwrap();
    (file, format!("release@attache {public}"))
}

#[test]
fn a_modified_or_foreign_release_is_rejected() {
    if Command::new("ssh-keygen").arg("-?").output().is_err() {
        println!("skipped: `ssh-keygen` is not installed (Debian: apt-get install openssh-client)");
        return;
    }
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../release");
    let folder = tempfile::tempdir().unwrap();
    let (own, line) = key(folder.path(), "own");
    let (foreign, _) = key(folder.path(), "foreign");
    let signers = folder.path().join("signers");
    fs::write(&signers, line).unwrap();
    // The real binary takes a minute to pack and makes no difference to the script.
    let binary = folder.path().join("attache");
    fs::write(&binary, "#!/bin/sh\necho attache 0.1.0\n").unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    let make = |key: &str, name: &str| -> PathBuf {
        let out = folder.path().join(name);
        let args = ["--key", key, "--binary", binary.to_str().unwrap(), "--out", out.to_str().unwrap()];
        let made = run(&release, &args);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        out
    };
    let verifies = |out: &Path| {
        let args = ["--verify", out.to_str().unwrap(), "--signers", signers.to_str().unwrap()];
        run(&release, &args).status.success()
    };

    let out = make(&own, "release");
    assert!(verifies(&out));
    let archive = fs::read_dir(&out).unwrap().flatten().map(|entry| entry.path());
    let archive = archive.into_iter().find(|path| path.extension().is_some_and(|end| end == "gz")).unwrap();
    let listed = run(Path::new("tar"), &["-tzf", archive.to_str().unwrap()]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("/attache\n") && listed.contains("/Cargo.lock\n"), "{listed}");

    // A different binary.
    let good = fs::read(&archive).unwrap();
    let mut changed = good.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    fs::write(&archive, &changed).unwrap();
    assert!(!verifies(&out));
    // With a matching checksum, but an invalid signature.
    let sums = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    let fitting = run(Path::new("sha256sum"), &[archive.to_str().unwrap()]).stdout;
    let fitting = String::from_utf8(fitting).unwrap().split(' ').next().unwrap().to_owned();
    fs::write(out.join("SHA256SUMS"), format!("{fitting}{}", &sums[64..])).unwrap();
    assert!(!verifies(&out));
    fs::write(out.join("SHA256SUMS"), sums).unwrap();
    fs::write(&archive, good).unwrap();
    assert!(verifies(&out));
    // Signed by someone else.
    assert!(!verifies(&make(&foreign, "other")));
}
