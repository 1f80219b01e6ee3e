//! A remote adds to the object store of a repository: what it adds must match its name.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    LeaseFixture, SshTestHost, cannot_run,
    raw::{RawSftp, status, string},
    run, text_of,
};

fn git(dir: &Path, args: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=Ann", "-c", "user.email=ann@localhost"]).args(args);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = run(&mut git, b"");
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// The path of an object below a repository.
fn place(id: &str) -> String {
    format!(".git/objects/{}/{}", &id[..2], &id[2..])
}

/// A repository of the remote, from which it takes what it sends.
fn theirs(lease: &LeaseFixture) -> (PathBuf, [String; 3]) {
    let dir = lease.dir.path().join("theirs");
    fs::create_dir(&dir).unwrap();
    git(&dir, &["init", "--quiet", "--initial-branch=main"]).unwrap();
    let ids = ["good\n", "evil\n", "other\n"].map(|content| {
        fs::write(dir.join("file"), content).unwrap();
        git(&dir, &["hash-object", "-w", "file"]).unwrap()
    });
    (dir, ids)
}

fn sftp(lease: &LeaseFixture, commands: &[String]) {
    let output = lease.sftp(&commands.join("\n"));
    assert!(output.status.success(), "{}", text_of(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_cannot_be_planted_under_another_name() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    git(&lease.folder, &["init", "--quiet", "--initial-branch=main"]).unwrap();
    let (theirs, [good, evil, other]) = theirs(&lease);
    let (good_file, evil_file) = (theirs.join(place(&good)), theirs.join(place(&evil)));
    let (good_file, evil_file) = (good_file.display(), evil_file.display());
    let (fan, target) = (&good[..2], place(&good));
    sftp(
        &lease,
        &[
            format!("mkdir .git/objects/{fan}"),
            format!("put {evil_file} .git/objects/{fan}/tmp_obj_evil"),
            // By rename, by hard link, directly, and with its folder.
            format!("-rename .git/objects/{fan}/tmp_obj_evil {target}"),
            format!("-ln .git/objects/{fan}/tmp_obj_evil {target}"),
            format!("-put {evil_file} {target}"),
            "mkdir .git/objects/zz".to_owned(),
            format!("put {evil_file} .git/objects/zz/{}", &other[2..]),
            format!("-rename .git/objects/zz .git/objects/{}", &other[..2]),
        ],
    );
    for id in [&good, &other] {
        assert_eq!(git(&lease.folder, &["cat-file", "-e", id]), None, "{id} was planted");
    }
    // An object that matches its name gets it, and can't be changed.
    sftp(
        &lease,
        &[
            format!("put {good_file} .git/objects/{fan}/tmp_obj_good"),
            format!("rename .git/objects/{fan}/tmp_obj_good {target}"),
            format!("-put {evil_file} {target}"),
            format!("-rename .git/objects/{fan}/tmp_obj_evil {target}"),
        ],
    );
    assert_eq!(git(&lease.folder, &["cat-file", "-p", &good]).as_deref(), Some("good"));
    git(&lease.folder, &["fsck", "--strict"]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_not_changed_through_a_file_that_is_still_open() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    git(&lease.folder, &["init", "--quiet", "--initial-branch=main"]).unwrap();
    let (theirs, [good, evil, _]) = theirs(&lease);
    let (good_bytes, evil_bytes) =
        (fs::read(theirs.join(place(&good))).unwrap(), fs::read(theirs.join(place(&evil))).unwrap());
    let (mut raw, folder) = (RawSftp::open(&lease), format!("/loc/.git/objects/{}", &good[..2]));
    assert_eq!(status(&raw.ask(14, 1, &[&string(folder.as_bytes()), &0_u32.to_be_bytes()])), Some(0));
    let temporary = format!("{folder}/tmp_obj_x");
    // Read, write, create and truncate.
    let handle = raw.open_file(&temporary, 0x1b);
    let start = 0_u64.to_be_bytes();
    assert_eq!(status(&raw.ask(6, 2, &[&handle, &start, &string(&good_bytes)])), Some(0));
    let target = format!("/loc/{}", place(&good));
    let rename =
        [string(b"posix-rename@openssh.com"), string(temporary.as_bytes()), string(target.as_bytes())].concat();
    assert_eq!(status(&raw.ask(200, 3, &[&rename])), Some(0));
    assert_eq!(status(&raw.ask(6, 4, &[&handle, &start, &string(&evil_bytes)])), Some(3));
    assert_eq!(fs::read(lease.folder.join(place(&good))).unwrap(), good_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_lies_about_its_pack_is_refused() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    git(&lease.folder, &["init", "--quiet", "--initial-branch=main"]).unwrap();
    let (theirs, _) = theirs(&lease);
    for text in ["one\n", "two\n"] {
        fs::write(theirs.join("file"), text.repeat(500)).unwrap();
        git(&theirs, &["add", "file"]).unwrap();
        git(&theirs, &["commit", "--quiet", "-m", text]).unwrap();
    }
    git(&theirs, &["repack", "-adq"]).unwrap();
    let head = git(&theirs, &["rev-parse", "HEAD"]).unwrap();
    let packs = theirs.join(".git/objects/pack");
    let pack = fs::read_dir(&packs).unwrap().map(|file| file.unwrap().path());
    let pack = pack.into_iter().find(|path| path.extension().is_some_and(|it| it == "pack")).unwrap();
    let index = fs::read(pack.with_extension("idx")).unwrap();
    // The ids of two objects point to each other's bytes.
    let count = u32::from_be_bytes(index[8 + 255 * 4..8 + 256 * 4].try_into().unwrap()) as usize;
    let offsets = 8 + 1024 + count * 24;
    let mut lies = index.clone();
    lies[offsets..offsets + 4].copy_from_slice(&index[offsets + 4..offsets + 8]);
    lies[offsets + 4..offsets + 8].copy_from_slice(&index[offsets..offsets + 4]);
    fs::write(lease.dir.path().join("lies"), lies).unwrap();
    let (from, to) = (packs.display(), ".git/objects/pack");
    let name = pack.file_stem().unwrap().to_str().unwrap();
    sftp(
        &lease,
        &[
            format!("put {from}/{name}.idx {to}/tmp_idx_good"),
            // Before its pack, there is nothing to compare it with.
            format!("-rename {to}/tmp_idx_good {to}/{name}.idx"),
            format!("put {from}/{name}.pack {to}/tmp_pack_x"),
            format!("rename {to}/tmp_pack_x {to}/{name}.pack"),
            format!("put lies {to}/tmp_idx_lies"),
            format!("-rename {to}/tmp_idx_lies {to}/{name}.idx"),
            format!("-put lies {to}/{name}.idx"),
            format!("-put lies {to}/multi-pack-index"),
        ],
    );
    let there = lease.folder.join(to);
    assert!(!there.join(format!("{name}.idx")).exists() && !there.join("multi-pack-index").exists());
    sftp(
        &lease,
        &[
            format!("rename {to}/tmp_idx_good {to}/{name}.idx"),
            // Another pack under a checked index.
            format!("put lies {to}/tmp_pack_y"),
            format!("-rename {to}/tmp_pack_y {to}/{name}.pack"),
        ],
    );
    assert_eq!(git(&lease.folder, &["log", "--format=%s", &head]).as_deref(), Some("two\none"));
    git(&lease.folder, &["fsck", "--strict", "--full"]).unwrap();
}
