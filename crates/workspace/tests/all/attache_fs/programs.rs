//! Real programs in a mounted lease.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

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
    finish(&mut git)
}

/// Runs a program that may take its time on a busy machine. Returns its output.
fn finish(command: &mut Command) -> String {
    let output = Command::new("timeout")
        .arg("300")
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(command.get_current_dir().unwrap_or_else(|| Path::new("/")))
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{command:?}: {}", text_of(&output));
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

/// A lease doesn't allow what git on the host would run or continue. Where the repository is elsewhere, all of git works.
#[tokio::test(flavor = "multi_thread")]
async fn git_clones_and_rebases() {
    if cannot_mount() || !has("git") {
        return;
    }
    let mounted = MountedLease::prepared(|folder| {
        fs::create_dir(folder.join("project")).unwrap();
        let project = &folder.join("project");
        git(project, &["init", "--quiet", "--initial-branch=main"]);
        for number in 0..4 {
            fs::write(project.join(format!("file{number}")), format!("{number}\n")).unwrap();
            git(project, &["add", "."]);
            git(project, &["commit", "--quiet", "-m", &format!("commit {number}")]);
        }
    })
    .await;
    let here = &mounted.mount.mount_point;
    let outside = tempfile::tempdir().unwrap();
    let project = here.join("project");
    let project = project.to_str().unwrap();
    git(outside.path(), &["clone", "--quiet", project, "clone"]);
    let clone = outside.path().join("clone");
    git(&clone, &["gc", "--quiet"]);
    git(&clone, &["fsck", "--strict"]);
    // The working tree is in the lease, the repository is not.
    let tree = here.join("tree");
    fs::create_dir(&tree).unwrap();
    let (repository, tree) = (format!("--git-dir={}", clone.join(".git").display()), tree.to_str().unwrap());
    let work_tree = format!("--work-tree={tree}");
    let in_tree = |args: &[&str]| git(Path::new(tree), &[&[repository.as_str(), &work_tree][..], args].concat());
    in_tree(&["checkout", "--quiet", "--force", "-b", "topic", "HEAD~2"]);
    fs::write(Path::new(tree).join("file0"), "topic\n").unwrap();
    in_tree(&["commit", "--quiet", "-am", "topic"]);
    in_tree(&["rebase", "--quiet", "main"]);
    assert_eq!(in_tree(&["log", "--format=%s", "-2"]), "topic\ncommit 3");
    assert_eq!(in_tree(&["status", "--porcelain"]), "");
    mounted.mount.flush().unwrap();
    assert_eq!(fs::read_to_string(mounted.lease.folder.join("tree/file0")).unwrap(), "topic\n");
    assert_eq!(fs::read_to_string(mounted.lease.folder.join("tree/file3")).unwrap(), "3\n");
    for refused in [&["clone", "--quiet", project, "new"][..], &["-C", project, "rebase", "HEAD~1", "--force-rebase"]] {
        let output =
            run(Command::new("git").args(refused).current_dir(here).env("GIT_CONFIG_GLOBAL", "/dev/null"), b"");
        assert!(!output.status.success(), "{refused:?}");
        assert!(text_of(&output).contains("Permission denied"), "{refused:?}: {}", text_of(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_installs_a_package() {
    if cannot_mount() || !has("npm") {
        return;
    }
    let mounted = MountedLease::start().await;
    let (here, outside) = (&mounted.mount.mount_point, tempfile::tempdir().unwrap());
    let tool = outside.path().join("tool");
    fs::create_dir(&tool).unwrap();
    fs::write(tool.join("package.json"), r#"{"name":"tool","version":"1.0.0","bin":{"tool":"tool.js"}}"#).unwrap();
    fs::write(tool.join("tool.js"), "#!/usr/bin/env node\nconsole.log('from the tool');\n").unwrap();
    let npm = |dir: &Path, args: &[&str]| {
        let mut npm = Command::new("npm");
        npm.args(args).arg("--cache").arg(outside.path().join("cache")).current_dir(dir);
        finish(npm.env("HOME", outside.path()))
    };
    npm(outside.path(), &["pack", "--silent", "./tool"]);
    fs::write(here.join("package.json"), r#"{"name":"app","version":"1.0.0"}"#).unwrap();
    let packed = outside.path().join("tool-1.0.0.tgz");
    npm(here, &["install", "--offline", "--no-audit", "--no-fund", packed.to_str().unwrap()]);
    assert_eq!(finish(&mut Command::new(here.join("node_modules/.bin/tool"))), "from the tool");
    mounted.mount.flush().unwrap();
    let there = &mounted.lease.folder;
    assert_eq!(fs::read_link(there.join("node_modules/.bin/tool")).unwrap(), Path::new("../tool/tool.js"));
}

/// With a rollback journal, also against a program on the host. A write-ahead log is in memory that machines don't share.
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_loses_nothing() {
    if cannot_mount() || !has("sqlite3") {
        return;
    }
    let mounted = MountedLease::start().await;
    let (here, there) = (&mounted.mount.mount_point, &mounted.lease.folder);
    let sql = |database: &Path, text: &str| {
        finish(Command::new("sqlite3").args(["-bail", "-cmd", ".timeout 240000"]).arg(database).arg(text))
    };
    for (mode, writers) in [("delete", [here, here, there]), ("wal", [here, here, here])] {
        let name = format!("{mode}.db");
        let begun = sql(&here.join(&name), &format!("PRAGMA journal_mode={mode}; CREATE TABLE rows (writer, number);"));
        assert_eq!(begun, mode);
        std::thread::scope(|scope| {
            for (writer, dir) in writers.into_iter().enumerate() {
                let database = dir.join(&name);
                scope.spawn(move || {
                    for number in 0..4 {
                        sql(
                            &database,
                            &format!("BEGIN IMMEDIATE; INSERT INTO rows VALUES ({writer}, {number}); COMMIT;"),
                        );
                    }
                });
            }
        });
        mounted.mount.flush().unwrap();
        for dir in [here, there] {
            let read =
                sql(&dir.join(&name), "PRAGMA integrity_check; SELECT count(DISTINCT writer * 10 + number) FROM rows;");
            assert_eq!(read, "ok\n12", "{mode} {dir:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn vim_and_rsync_write_what_they_should() {
    if cannot_mount() || !has("vim") || !has("rsync") {
        return;
    }
    let mounted = MountedLease::prepared(|folder| fs::write(folder.join("text"), "old line\nother\n").unwrap()).await;
    let (here, there) = (&mounted.mount.mount_point, &mounted.lease.folder);
    let mut vim = Command::new("vim");
    vim.args([
        "-es",
        "-u",
        "NONE",
        "-N",
        "-c",
        "set backup writebackup backupskip=",
        "-c",
        "%s/old/new/",
        "-c",
        "wq",
        "text",
    ]);
    finish(vim.current_dir(here).env("TERM", "dumb"));
    mounted.mount.flush().unwrap();
    assert_eq!(fs::read_to_string(there.join("text")).unwrap(), "new line\nother\n");
    assert_eq!(fs::read_to_string(there.join("text~")).unwrap(), "old line\nother\n");
    let outside = tempfile::tempdir().unwrap();
    let from = outside.path().join("from");
    for number in 0..30 {
        let dir = from.join(format!("dir{}", number % 5));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("file{number}")), vec![b'r'; number * 1000]).unwrap();
    }
    std::os::unix::fs::symlink("dir1/file1", from.join("link")).unwrap();
    let rsync = |from: &Path, to: &Path| {
        let from = format!("{}/", from.display());
        finish(Command::new("rsync").args(["-aHX", "--delete", "--itemize-changes", &from]).arg(to))
    };
    rsync(&from, &here.join("copy"));
    // Times and modes have arrived, so there is nothing to do.
    assert_eq!(rsync(&from, &here.join("copy")), "");
    fs::remove_dir_all(from.join("dir2")).unwrap();
    rsync(&from, &here.join("copy"));
    assert_eq!(rsync(&here.join("copy"), &from), "");
    mounted.mount.flush().unwrap();
    finish(Command::new("diff").arg("-r").arg(&from).arg(there.join("copy")));
}
