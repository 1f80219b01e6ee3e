//! Real programs in a mounted lease.

use std::{fs, path::Path, process::Command};

use super::{MountedLease, cannot_mount};
use crate::ssh::{run, text_of};

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: this machine has no {program}");
    }
    found
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=Ann", "-c", "user.email=ann@localhost"]).args(args);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = run(&mut git, b"");
    assert!(output.status.success(), "git {args:?}: {}", text_of(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The host's index stays valid at the remote and the other way round: no file is read again.
#[tokio::test(flavor = "multi_thread")]
async fn git_status_reads_no_file_again() {
    if cannot_mount() || !has("git") {
        return;
    }
    let mounted = MountedLease::prepared(|folder| {
        for number in 0..40 {
            let dir = folder.join(format!("dir{}", number % 7));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("file{number}")), format!("content {number}\n")).unwrap();
        }
        git(folder, &["init", "--quiet", "--initial-branch=main"]);
        git(folder, &["add", "."]);
        git(folder, &["commit", "--quiet", "-m", "first"]);
    })
    .await;
    let (here, there) = (&mounted.mount.mount_point, &mounted.lease.folder);
    assert_eq!(git(here, &["status", "--porcelain"]), "");
    // Nothing differs from the index, not even a time.
    assert_eq!(git(here, &["diff-files", "--name-only"]), "");
    fs::write(here.join("dir1/file1"), "changed at the remote\n").unwrap();
    assert_eq!(git(here, &["status", "--porcelain"]), "M dir1/file1");
    git(here, &["commit", "--quiet", "-am", "second"]);
    assert_eq!(git(there, &["status", "--porcelain"]), "");
    assert_eq!(git(there, &["log", "--format=%s"]), "second\nfirst");
    git(there, &["fsck", "--strict"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cargo_builds_a_crate() {
    if cannot_mount() || !has("cargo") {
        return;
    }
    let mounted = MountedLease::prepared(|folder| {
        fs::create_dir(folder.join("src")).unwrap();
        let manifest = "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        fs::write(folder.join("src/main.rs"), "fn main() { println!(\"built in a lease\"); }\n").unwrap();
    })
    .await;
    let here = &mounted.mount.mount_point;
    let build = || {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--offline", "--quiet"]).current_dir(here);
        cargo.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS").env("CARGO_INCREMENTAL", "0");
        cargo.output().unwrap()
    };
    let output = build();
    assert!(output.status.success(), "{}", text_of(&output));
    let built = Command::new(here.join("target/debug/tiny")).output().unwrap();
    assert_eq!(String::from_utf8(built.stdout).unwrap(), "built in a lease\n");
    // Nothing has to be built again, because no time has changed.
    fs::write(here.join("src/main.rs"), "fn main() { println!(\"built again\"); }\n").unwrap();
    let output = build();
    assert!(output.status.success(), "{}", text_of(&output));
    let built = Command::new(mounted.lease.folder.join("target/debug/tiny")).output().unwrap();
    assert_eq!(String::from_utf8(built.stdout).unwrap(), "built again\n");
}
