//! Snapshots of a delegation with the real git, in a repository that would notice every touch.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use attache_protocol::{DelegationId, Timestamp};
use attache_workspace::{
    export::ExportPatterns,
    report::git::{Error, GitRepository, GitSnapshot},
};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(["-c", "user.name=Ann", "-c", "user.email=ann@localhost", "-c", "commit.gpgSign=false"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository with a commit, something staged, something edited, something new, and traps that leave a trace.
fn repository(all: &Path) {
    git(all, &["init", "--quiet", "--initial-branch=main", "repo"]);
    let repo = all.join("repo");
    fs::create_dir_all(repo.join("sub")).unwrap();
    for (file, content) in [("a", "a\n"), ("staged", "s\n"), ("sub/b", "b\n"), (".gitignore", "ignored\n")] {
        fs::write(repo.join(file), content).unwrap();
    }
    git(&repo, &["add", "."]);
    git(&repo, &["commit", "--quiet", "-m", "first"]);
    fs::write(repo.join("staged"), "staged\n").unwrap();
    git(&repo, &["add", "staged"]);
    fs::write(repo.join("a"), "edited\n").unwrap();
    for (file, content) in [("new", "new\n"), (".env", "SECRET\n"), ("ignored", "i\n"), ("sub/new", "n\n")] {
        fs::write(repo.join(file), content).unwrap();
    }
    let trap = format!("#!/bin/sh\ntouch {}\n", all.join("trapped").display());
    for hook in ["pre-commit", "post-commit", "reference-transaction", "post-index-change", "prepare-commit-msg"] {
        let path = repo.join(".git/hooks").join(hook);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &trap).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let hook = repo.join(".git/hooks/pre-commit");
    git(&repo, &["config", "core.fsmonitor", hook.to_str().unwrap()]);
    git(&repo, &["config", "gpg.program", hook.to_str().unwrap()]);
    git(&repo, &["config", "commit.gpgSign", "true"]);
}

/// The user's state: index, branch, files.
fn theirs(repo: &Path) -> (Vec<u8>, String, String) {
    let index = fs::read(repo.join(".git/index")).unwrap();
    let quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];
    let run = |args: &[&str]| git(repo, &[&quiet[..], args].concat());
    (index, run(&["for-each-ref", "refs/heads", "refs/tags"]), run(&["--no-optional-locks", "status", "--porcelain"]))
}

#[test]
fn snapshots_have_their_own_ref_and_touch_nothing_of_the_user() {
    let all = tempfile::tempdir().unwrap();
    repository(all.path());
    let repo = all.path().join("repo");
    let before = theirs(&repo);
    fs::remove_file(all.path().join("trapped")).ok();
    let found = GitRepository::find(&repo).unwrap().unwrap();
    let delegation = DelegationId::from_uuid(attache_protocol::env::Env::seeded(1).uuid());
    let (scratch, rules) = (all.path().join("scratch"), ExportPatterns::default());
    let snapshot = GitSnapshot {
        delegation: &delegation,
        changed: &[],
        message: "before the lease",
        rules: &rules,
        scratch: &scratch,
        now: NOW,
    };
    let baseline = found.snapshot(&snapshot).unwrap();
    fs::write(repo.join("a"), "by the remote\n").unwrap();
    fs::remove_file(repo.join("sub/b")).unwrap();
    let result = found.snapshot(&GitSnapshot { message: "by the remote", ..snapshot }).unwrap();
    assert!(!all.path().join("trapped").exists(), "a hook or program of the repository ran");

    fs::write(repo.join("a"), "edited\n").unwrap();
    fs::write(repo.join("sub/b"), "b\n").unwrap();
    assert_eq!(theirs(&repo).1, before.1);
    assert_eq!(fs::read(repo.join(".git/index")).unwrap(), before.0);
    let read = |args: &[&str]| git(&repo, args);
    assert_eq!(read(&["rev-parse", &format!("refs/attache/{delegation}")]), result);
    assert_eq!(read(&["rev-parse", &format!("{result}^")]), baseline);
    assert_eq!(read(&["rev-parse", &format!("{baseline}^")]), read(&["rev-parse", "main"]));
    assert_eq!(read(&["ls-tree", "-r", "--name-only", &baseline]), ".gitignore\na\nnew\nstaged\nsub/b\nsub/new");
    assert_eq!(read(&["show", &format!("{baseline}:a")]), "edited");
    assert_eq!(read(&["diff", "--name-status", &baseline, &result]), "M\ta\nD\tsub/b");
    assert_eq!(
        read(&["show", "-s", "--format=%an %ae %ct %s", &result]),
        "Attaché attache@localhost 1700000000 by the remote"
    );
}

/// A remote writes the index, with the times of the file as it left it and the content from before.
#[test]
fn what_a_lease_changed_is_read_whatever_the_index_says() {
    let all = tempfile::tempdir().unwrap();
    git(all.path(), &["init", "--quiet", "--initial-branch=main", "repo"]);
    let repo = all.path().join("repo");
    fs::write(repo.join("Makefile"), "all:\n\ttrue\n").unwrap();
    git(&repo, &["add", "."]);
    git(&repo, &["commit", "--quiet", "-m", "first"]);
    let id = |path: &str| git(&repo, &["rev-parse", path]);
    let before = id("HEAD:Makefile");
    fs::write(repo.join("Makefile"), "all:\n\tevil\n").unwrap();
    // Git reads what is as new as its index.
    let earlier = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    fs::File::options().write(true).open(repo.join("Makefile")).unwrap().set_modified(earlier).unwrap();
    git(&repo, &["-c", "index.skipHash=true", "add", "Makefile"]);
    let bytes = |id: &str| -> Vec<u8> {
        (0..id.len() / 2).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap()).collect()
    };
    let (now, was) = (bytes(&id(":Makefile")), bytes(&before));
    let mut index = fs::read(repo.join(".git/index")).unwrap();
    let at = index.windows(now.len()).position(|window| window == now).unwrap();
    index[at..at + was.len()].copy_from_slice(&was);
    fs::write(repo.join(".git/index"), index).unwrap();
    assert_eq!(git(&repo, &["status", "--porcelain"]), "", "git believes it");
    let found = GitRepository::find(&repo).unwrap().unwrap();
    let delegation = DelegationId::from_uuid(attache_protocol::env::Env::seeded(1).uuid());
    let (scratch, rules) = (all.path().join("scratch"), ExportPatterns::default());
    let changed = [b"Makefile".to_vec(), b"new".to_vec()];
    let snapshot = GitSnapshot {
        delegation: &delegation,
        changed: &changed,
        message: "after",
        rules: &rules,
        scratch: &scratch,
        now: NOW,
    };
    let commit = found.snapshot(&snapshot).unwrap();
    assert_eq!(git(&repo, &["show", &format!("{commit}:Makefile")]), "all:\n\tevil");
}

#[test]
fn only_the_exported_folder_inside_a_repository_is_committed() {
    let all = tempfile::tempdir().unwrap();
    repository(all.path());
    let found = GitRepository::find(&all.path().join("repo/sub")).unwrap().unwrap();
    let delegation = DelegationId::from_uuid(attache_protocol::env::Env::seeded(2).uuid());
    let (scratch, rules) =
        (all.path().join("scratch"), ExportPatterns { exclude: vec!["/b".into()], ..ExportPatterns::default() });
    fs::write(all.path().join("repo/sub/b"), "excluded, so not committed\n").unwrap();
    let commit = found
        .snapshot(&GitSnapshot {
            delegation: &delegation,
            changed: &[],
            message: "m",
            rules: &rules,
            scratch: &scratch,
            now: NOW,
        })
        .unwrap();
    let read = |args: &[&str]| git(&all.path().join("repo"), args);
    assert_eq!(read(&["diff", "--name-status", "main", &commit]), "M\tstaged\nA\tsub/new");
}

#[test]
fn only_the_opt_ins_create_a_repository_or_move_the_branch() {
    let all = tempfile::tempdir().unwrap();
    fs::create_dir(all.path().join("plain")).unwrap();
    let (plain, scratch) = (all.path().join("plain"), all.path().join("scratch"));
    assert!(GitRepository::find(&plain).unwrap().is_none());
    let new_repository = GitRepository::init(&plain).unwrap();
    assert!(!plain.join(".git/hooks").exists());
    fs::write(plain.join("f"), "f").unwrap();
    let commit = new_repository.commit(&[b"f".to_vec()], "made by a delegation", &scratch, NOW).unwrap().unwrap();
    assert_eq!(git(&plain, &["log", "--format=%H %s", "main"]), format!("{commit} made by a delegation"));
    assert_eq!(new_repository.commit(&[b"f".to_vec()], "again", &scratch, NOW).unwrap(), None);

    repository(all.path());
    let repo = all.path().join("repo");
    fs::remove_file(all.path().join("trapped")).ok();
    let found = GitRepository::find(&repo).unwrap().unwrap();
    fs::remove_file(repo.join("sub/b")).unwrap();
    let paths = ["a", "new", "sub/b", "ignored", "never"].map(|path| path.as_bytes().to_vec());
    let commit = found.commit(&paths, "the lease's changes", &scratch, NOW).unwrap().unwrap();
    assert!(!all.path().join("trapped").exists(), "a hook or program of the repository ran");
    let quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];
    let read = |args: &[&str]| git(&repo, &[&quiet[..], args].concat());
    assert_eq!(read(&["rev-parse", "main"]), commit);
    assert_eq!(read(&["diff", "--name-status", "main^", "main"]), "M\ta\nA\tnew\nD\tsub/b");
    // What the user had staged is still staged, and nothing else is.
    assert_eq!(read(&["diff", "--cached", "--name-status"]), "M\tstaged");
    read(&["checkout", "--quiet", "--detach"]);
    assert!(matches!(found.commit(&paths, "m", &scratch, NOW), Err(Error::NoBranch(_))));
}

#[test]
fn a_folder_with_a_newline_in_its_name_works() {
    let all = tempfile::tempdir().unwrap();
    // The part before the newline is a repository as well.
    for name in ["one", "one\ntwo\n"] {
        let dir = all.path().join(name);
        fs::create_dir_all(dir.join("sub\n")).unwrap();
        git(&dir, &["init", "--quiet", "--initial-branch=main"]);
        fs::write(dir.join("sub\n/f"), name).unwrap();
    }
    let dir = all.path().join("one\ntwo\n");
    let found = GitRepository::find(&dir.join("sub\n")).unwrap().unwrap();
    let found = GitRepository::from_bytes(&found.to_bytes()).unwrap();
    let delegation = DelegationId::from_uuid(attache_protocol::env::Env::seeded(3).uuid());
    let (scratch, rules) = (all.path().join("scratch"), ExportPatterns::default());
    let commit = found
        .snapshot(&GitSnapshot {
            delegation: &delegation,
            changed: &[],
            message: "m",
            rules: &rules,
            scratch: &scratch,
            now: NOW,
        })
        .unwrap();
    assert_eq!(git(&dir, &["ls-tree", "-r", "-z", "--name-only", &commit]), "sub\n/f\0");
    assert_eq!(git(&dir, &["show", &format!("{commit}:sub\n/f")]), "one\ntwo");
    assert_eq!(git(&all.path().join("one"), &["for-each-ref"]), "");
}

/// A run can put any `.git` into a folder. What it says decides neither whose files are committed nor where.
#[test]
fn a_repository_that_leads_elsewhere_is_not_used() {
    let all = tempfile::tempdir().unwrap();
    let root = all.path().canonicalize().unwrap();
    let (lent, private, prod) = (root.join("src/lent"), root.join("private"), root.join("prod"));
    fs::create_dir_all(&private).unwrap();
    fs::write(private.join("config.json"), "SECRET\n").unwrap();
    git(&root, &["init", "--quiet", "--initial-branch=main", "prod"]);
    git(&prod, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
    let secret = prod.join(".git");
    let link = |target: &Path, name: &Path| std::os::unix::fs::symlink(target, name).unwrap();
    #[allow(clippy::type_complexity, reason = "a table of what is planted")]
    let plant: [(&str, &dyn Fn(&Path)); 9] = [
        ("worktree", &|_| drop(git(&lent, &["config", "core.worktree", "../../../private"]))),
        ("worktree with a comment", &|git_dir| {
            let config =
                "[core]\n\trepositoryformatversion = 0\n\tworktree = ../../lent\n[CORE]worktree=/ ; ../../lent\n";
            fs::write(git_dir.join("config"), config).unwrap();
        }),
        ("config.worktree", &|git_dir| {
            git(&lent, &["config", "extensions.worktreeConfig", "true"]);
            fs::write(git_dir.join("config.worktree"), "[core]\n\tworktree = ../../../private\n").unwrap();
        }),
        ("file", &|git_dir| {
            fs::remove_dir_all(git_dir).unwrap();
            fs::write(git_dir, "gitdir: ../../prod/.git\n").unwrap();
        }),
        ("link", &|git_dir| {
            fs::remove_dir_all(git_dir).unwrap();
            link(&secret, git_dir);
        }),
        ("commondir", &|git_dir| fs::write(git_dir.join("commondir"), "../../../prod/.git\n").unwrap()),
        ("commondir with a space", &|git_dir| {
            link(&secret, &git_dir.join(" "));
            fs::write(git_dir.join("commondir"), " \n").unwrap();
        }),
        ("objects", &|git_dir| {
            fs::remove_dir_all(git_dir.join("objects")).unwrap();
            link(&secret.join("objects"), &git_dir.join("objects"));
        }),
        ("refs", &|git_dir| {
            fs::remove_dir_all(git_dir.join("refs")).unwrap();
            link(&secret.join("refs"), &git_dir.join("refs"));
        }),
    ];
    let delegation = DelegationId::from_uuid(attache_protocol::env::Env::seeded(5).uuid());
    let (scratch, rules) = (root.join("scratch"), ExportPatterns::default());
    let snapshot =
        GitSnapshot { delegation: &delegation, changed: &[], message: "m", rules: &rules, scratch: &scratch, now: NOW };
    let before = theirs_of(&prod);
    for (what, plant) in plant {
        fs::create_dir_all(lent.join("sub")).unwrap();
        git(&lent, &["init", "--quiet", "--initial-branch=main"]);
        fs::write(lent.join("f"), "f\n").unwrap();
        // Found before it was planted: in a run that works there at the same time, or before a staged one is applied.
        let found = GitRepository::find(&lent).unwrap().unwrap();
        plant(&lent.join(".git"));
        for below in [&lent, &lent.join("sub")] {
            let refused = GitRepository::find(below).unwrap_err().to_string();
            let is_named = refused.contains("leads elsewhere") || refused.contains("is a link or a special file");
            assert!(is_named, "{what}: {refused}");
            assert_eq!(GitRepository::check_own(below, &[]).unwrap_err().to_string(), refused, "{what}");
        }
        assert!(found.snapshot(&snapshot).is_err(), "{what}");
        assert!(found.commit(&[b"f".to_vec()], "m", &scratch, NOW).is_err(), "{what}");
        assert_eq!(theirs_of(&prod), before, "{what}");
        assert!(!scratch.exists());
        fs::remove_dir_all(&lent).unwrap();
    }
    // Whatever is in the way, no other repository is made there.
    fs::create_dir_all(&lent).unwrap();
    fs::write(lent.join(".git"), "gitdir: ../../prod/.git\n").unwrap();
    assert!(GitRepository::init(&lent).is_err());
    assert_eq!(theirs_of(&prod), before);
}

/// Git writes to what a link leads to, and a line of a log can be a command.
#[test]
fn what_git_writes_in_a_repository_is_no_link() {
    let all = tempfile::tempdir().unwrap();
    let root = all.path().canonicalize().unwrap();
    let repo = root.join("repo");
    let start = || {
        git(&root, &["init", "--quiet", "--initial-branch=main", "repo"]);
        git(&repo, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
    };
    for name in [
        "logs/HEAD",
        "logs/refs/heads",
        "refs/heads/main",
        "refs/heads",
        "COMMIT_EDITMSG",
        "index",
        "modules",
        "objects/pack",
    ] {
        start();
        assert!(GitRepository::check_own(&repo, &[]).is_ok());
        let place = repo.join(".git").join(name);
        match place.is_dir() {
            true => fs::remove_dir_all(&place).unwrap(),
            false => drop(fs::remove_file(&place)),
        }
        std::os::unix::fs::symlink("../elsewhere", &place).unwrap();
        let refused = GitRepository::check_own(&repo, &[]).unwrap_err();
        assert!(matches!(&refused, Error::NotPlain(path) if *path == place), "{name}: {refused}");
        fs::remove_dir_all(&repo).unwrap();
    }
    start();
    let head = repo.join(".git/HEAD");
    fs::remove_file(&head).unwrap();
    std::os::unix::fs::symlink("refs/../../elsewhere", &head).unwrap();
    let refused = GitRepository::check_own(&repo, &[]).unwrap_err();
    assert!(matches!(&refused, Error::NotPlain(path) if *path == head), "{refused}");
    fs::remove_dir_all(&repo).unwrap();
    start();
    for (target, name) in [("/etc", "hooks"), ("../elsewhere", "rr-cache"), ("refs/heads/main", "HEAD")] {
        let place = repo.join(".git").join(name);
        let _ = fs::remove_dir_all(&place).or_else(|_| fs::remove_file(&place));
        std::os::unix::fs::symlink(target, &place).unwrap();
    }
    assert!(GitRepository::check_own(&repo, &[]).is_ok(), "people share those");
    assert!(GitRepository::check_own(&root, &[]).is_ok(), "there is none");
}

/// Git reads and writes whatever the files that it trusts lead to.
#[test]
fn what_git_trusts_in_a_repository_leads_nowhere_else() {
    type Planting<'a> = &'a dyn Fn(&Path);
    let all = tempfile::tempdir().unwrap();
    let root = all.path().canonicalize().unwrap();
    let (repo, secret) = (root.join("repo"), root.join("secret"));
    fs::write(&secret, "SECRET\n").unwrap();
    let index = |path: &str| {
        let mut bytes = [&b"DIRC\0\0\0\x02\0\0\0\x01"[..], &[0; 60]].concat();
        bytes[12 + 24..12 + 28].copy_from_slice(&0o100_644_u32.to_be_bytes());
        bytes.extend(u16::try_from(path.len()).unwrap().to_be_bytes());
        bytes.extend(path.as_bytes());
        bytes.resize(12 + ((62 + path.len()) / 8 + 1) * 8, 0);
        bytes.extend([0; 20]);
        bytes
    };
    let is = |error: &Error, name: &str| match error {
        Error::Index(path) | Error::SecondName(path) | Error::NotPlain(path) => path.ends_with(name),
        _ => false,
    };
    let plant: [(&str, Planting<'_>); 5] = [
        (".git/index", &|git_dir| fs::write(git_dir.join("index"), index("../secret")).unwrap()),
        (".git/modules/lib/index", &|git_dir| {
            let module = git_dir.join("modules/lib");
            fs::create_dir_all(&module).unwrap();
            fs::write(module.join("HEAD"), "ref: refs/heads/main\n").unwrap();
            fs::write(module.join("index"), index(".git/config")).unwrap();
        }),
        (".git/COMMIT_EDITMSG", &|git_dir| {
            fs::remove_file(git_dir.join("COMMIT_EDITMSG")).unwrap();
            fs::hard_link(git_dir.join("refs/heads/main"), git_dir.join("COMMIT_EDITMSG")).unwrap();
            fs::write(git_dir.join("packed-refs"), "").unwrap();
        }),
        ("other/info/alternates", &|git_dir| {
            let other = git_dir.join("other/info");
            fs::create_dir_all(&other).unwrap();
            fs::write(git_dir.join("objects/info/alternates"), "../other\n").unwrap();
            std::os::unix::fs::symlink(&secret, other.join("alternates")).unwrap();
        }),
        (".git/d/l", &|git_dir| {
            fs::create_dir(git_dir.join("d")).unwrap();
            std::os::unix::fs::symlink("../..", git_dir.join("d/l")).unwrap();
        }),
    ];
    for (name, plant) in plant {
        git(&root, &["init", "--quiet", "--initial-branch=main", "repo"]);
        git(&repo, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
        fs::write(repo.join(".git/index"), index("a")).unwrap();
        assert!(GitRepository::check_own(&repo, &[]).is_ok(), "{name}");
        plant(&repo.join(".git"));
        let refused = GitRepository::check_own(&repo, &[]).unwrap_err();
        let is_either = name == ".git/COMMIT_EDITMSG" && is(&refused, "main");
        assert!(is(&refused, name) || is_either, "{name}: {refused}");
        fs::remove_dir_all(&repo).unwrap();
    }
}

/// What nobody thought of leads nowhere, either.
#[test]
fn git_of_ours_sees_no_file_beside_the_folder() {
    if attache_sandbox::file_view(&[], &[]).is_empty() {
        eprintln!("skipped: there are no namespaces here");
        return;
    }
    let all = tempfile::tempdir().unwrap();
    let root = all.path().canonicalize().unwrap();
    let repo = root.join("repo");
    git(&root, &["init", "--quiet", "--initial-branch=main", "repo"]);
    fs::write(repo.join("f"), "f\n").unwrap();
    git(&repo, &["add", "f"]);
    git(&repo, &["commit", "--quiet", "-m", "first"]);
    let (branch, elsewhere) = (repo.join(".git/refs/heads/main"), root.join("elsewhere"));
    let head = git(&repo, &["rev-parse", "HEAD"]);
    let (scratch, rules) = (root.join("scratch"), ExportPatterns::default());
    let parents = |seed| {
        let delegation = DelegationId::from_uuid(attache_protocol::env::Env::seeded(seed).uuid());
        let snapshot = GitSnapshot {
            delegation: &delegation,
            changed: &[],
            message: "m",
            rules: &rules,
            scratch: &scratch,
            now: NOW,
        };
        let saved = GitRepository::find(&repo).unwrap().unwrap().snapshot(&snapshot).unwrap();
        assert_eq!(git(&repo, &["show", &format!("{saved}:f")]), "f");
        git(&repo, &["log", "-1", "--format=%P", &saved])
    };
    assert_eq!(parents(7), head);
    fs::rename(&branch, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &branch).unwrap();
    assert_eq!(git(&repo, &["rev-parse", "HEAD"]), head, "git follows it, so this test can fail");
    assert_eq!(parents(8), "");
}

/// A `.git` that git passes over isn't the repository that it uses.
#[test]
fn what_git_finds_is_what_is_checked() {
    let all = tempfile::tempdir().unwrap();
    let root = all.path().canonicalize().unwrap();
    let sub = root.join("work/sub");
    git(&root, &["init", "--quiet", "prod"]);
    fs::create_dir_all(&sub).unwrap();
    fs::write(root.join("work/.git"), "gitdir: ../prod/.git\n").unwrap();
    let decoys: [&dyn Fn(&Path); 3] = [
        &|decoy| drop(git(decoy, &["init", "--quiet"])),
        &|decoy| {
            git(decoy, &["init", "--quiet"]);
            fs::write(decoy.join(".git/HEAD"), "nothing\n").unwrap();
        },
        &|decoy| fs::create_dir_all(decoy.join(".git/objects")).unwrap(),
    ];
    for (at, decoy) in decoys.into_iter().enumerate() {
        decoy(&sub);
        let checked = GitRepository::check_own(&sub, &[]);
        assert_eq!(matches!(checked, Err(Error::Elsewhere(_))), at > 0, "{at}");
        fs::remove_dir_all(sub.join(".git")).unwrap();
    }
    // One that git can't use now may lead somewhere later.
    fs::write(root.join("work/.git"), "gitdir: ../later/.git\n").unwrap();
    let refused = GitRepository::check_own(&sub, &[]).unwrap_err();
    assert!(matches!(&refused, Error::Unusable(place) if *place == root.join("work/.git")), "{refused}");
}

/// Everything in a repository, by name and content.
fn theirs_of(repo: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![repo.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => found.push((entry.path(), fs::read(entry.path()).unwrap())),
            }
        }
    }
    found.sort();
    found
}

/// Those are a person's own ways to have a repository elsewhere.
#[test]
fn a_repository_elsewhere_that_names_the_folder_is_used() {
    let all = tempfile::tempdir().unwrap();
    let root = all.path().canonicalize().unwrap();
    repository(&root);
    let quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.file.allow=always"];
    let run = |dir: &Path, args: &[&str]| git(dir, &[&quiet[..], args].concat());
    run(&root, &["init", "--quiet", "outer"]);
    let outer = root.join("outer");
    run(&outer, &["submodule", "--quiet", "add", "../repo", "module"]);
    run(&outer, &["init", "--quiet", "--separate-git-dir", "../store", "apart"]);
    assert!(GitRepository::find(&outer.join("apart")).is_err(), "nothing there names the folder");
    run(&root, &["--git-dir=store", "config", "core.worktree", "../outer/apart"]);
    fs::create_dir(outer.join("apart/below")).unwrap();
    for folder in ["module", "module/sub", "apart", "apart/below"] {
        let found = GitRepository::find(&outer.join(folder)).unwrap().unwrap();
        fs::write(outer.join(folder).join("made"), "made\n").unwrap();
        let delegation = DelegationId::from_uuid(attache_protocol::env::Env::seeded(6).uuid());
        let (scratch, rules) = (root.join("scratch"), ExportPatterns::default());
        let commit = found
            .snapshot(&GitSnapshot {
                delegation: &delegation,
                changed: &[],
                message: "m",
                rules: &rules,
                scratch: &scratch,
                now: NOW,
            })
            .unwrap();
        let top = folder.split('/').next().unwrap();
        let path = format!("{folder}/made");
        let path = path.strip_prefix(&format!("{top}/")).unwrap();
        assert_eq!(run(&outer.join(top), &["show", &format!("{commit}:{path}")]), "made", "{folder}");
    }
    // As `git sparse-checkout` leaves a submodule.
    let store = outer.join(".git/modules/module");
    run(&outer.join("module"), &["config", "--unset", "core.worktree"]);
    run(&outer.join("module"), &["config", "extensions.worktreeConfig", "true"]);
    fs::write(store.join("config.worktree"), "[core]\n\tworktree = ../../../module\n").unwrap();
    assert!(GitRepository::find(&outer.join("module")).unwrap().is_some());
}

#[test]
fn a_linked_worktree_with_a_split_index_works() {
    let all = tempfile::tempdir().unwrap();
    repository(all.path());
    let (repo, linked, scratch) = (all.path().join("repo"), all.path().join("linked"), all.path().join("scratch"));
    let quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];
    let run = |dir: &Path, args: &[&str]| git(dir, &[&quiet[..], args].concat());
    run(&repo, &["worktree", "add", "--quiet", "-b", "side", linked.to_str().unwrap()]);
    run(&linked, &["update-index", "--split-index"]);
    let main = run(&repo, &["rev-parse", "main"]);
    fs::write(linked.join("a"), "by the remote\n").unwrap();
    fs::remove_file(all.path().join("trapped")).ok();
    let found = GitRepository::find(&linked).unwrap().unwrap();
    let delegation = DelegationId::from_uuid(attache_protocol::env::Env::seeded(4).uuid());
    let rules = ExportPatterns::default();
    let saved = found
        .snapshot(&GitSnapshot {
            delegation: &delegation,
            changed: &[],
            message: "m",
            rules: &rules,
            scratch: &scratch,
            now: NOW,
        })
        .unwrap();
    let commit = found.commit(&[b"a".to_vec()], "changed", &scratch, NOW).unwrap().unwrap();
    assert!(!all.path().join("trapped").exists(), "a hook or program of the repository ran");
    assert_eq!(run(&linked, &["diff", "--name-status", "main", &saved]), "M\ta");
    assert_eq!(run(&repo, &["rev-parse", "side", &format!("{commit}^"), "main"]), format!("{commit}\n{main}\n{main}"));
    assert_eq!(run(&linked, &["status", "--porcelain"]), "");
    assert_eq!(run(&linked, &["reflog", "-1", "--format=%gs", "HEAD"]), "commit: changed");
}
