//! Worktrees of runs with the real git, in a repository with programs that git would execute.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use attache_os::lock::FolderLock;
use attache_protocol::{RunId, Timestamp, env::Env};
use attache_workspace::report::git::{
    self,
    worktree::{Error, KEPT_FOR, RunWorktree, WorktreeFolder},
};
use tempfile::TempDir;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

struct WorktreeFixture {
    all: TempDir,
    repo: PathBuf,
    folder: WorktreeFolder,
    run: RunId,
}

fn try_git(dir: &Path, args: &[&str]) -> Output {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args([
        "-c",
        "user.name=Ann",
        "-c",
        "user.email=ann@localhost",
        "-c",
        "core.hooksPath=/dev/null",
    ]);
    git.args(["-c", "core.fsmonitor=false", "-c", "filter.x.clean=cat", "-c", "filter.x.smudge=cat"]).args(args);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn git(dir: &Path, args: &[&str]) -> String {
    let output = try_git(dir, args);
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl WorktreeFixture {
    fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        let root = all.path().canonicalize().unwrap();
        let repo = root.join("repo");
        git(&root, &["init", "--quiet", "--initial-branch=main", "repo"]);
        fs::create_dir(repo.join("sub")).unwrap();
        let lines: String = (1..=20).map(|line| format!("{line}\n")).collect();
        for (file, content) in [
            ("a", lines.as_str()),
            ("sub/b", "b\n"),
            ("c.x", "c\n"),
            (".gitattributes", "*.x filter=x\n"),
            (".gitignore", "out\n"),
        ] {
            fs::write(repo.join(file), content).unwrap();
        }
        git(&repo, &["add", "."]);
        git(&repo, &["commit", "--quiet", "-m", "first"]);
        let trap = root.join("trap.sh");
        fs::write(&trap, format!("#!/bin/sh\ntouch {}\ncat\n", root.join("trapped").display())).unwrap();
        fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).unwrap();
        for hook in [
            "post-checkout",
            "reference-transaction",
            "post-index-change",
            "pre-commit",
            "post-commit",
            "pre-applypatch",
        ] {
            fs::create_dir_all(repo.join(".git/hooks")).unwrap();
            fs::copy(&trap, repo.join(".git/hooks").join(hook)).unwrap();
        }
        for key in ["core.fsmonitor", "filter.x.clean", "filter.x.smudge", "diff.external", "core.editor"] {
            git(&repo, &["config", key, trap.to_str().unwrap()]);
        }
        git(&repo, &["config", "alias.update-ref", &format!("!{}", trap.display())]);
        let run = Env::seeded(1).run_id();
        Self { folder: WorktreeFolder::at(root.join("worktrees")), all, repo, run }
    }

    #[track_caller]
    fn create(&self) -> RunWorktree {
        self.folder.create(self.run, &self.repo, NOW).unwrap()
    }

    fn status(&self) -> String {
        git(&self.repo, &["status", "--porcelain"])
    }
}

impl Drop for WorktreeFixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(!self.all.path().join("trapped").exists(), "git executed a program of the repository");
            let left = fs::read_dir(self.all.path().join("worktrees")).into_iter().flatten().flatten();
            let scratch: Vec<_> =
                left.map(|entry| entry.file_name()).filter(|name| name.to_str().unwrap().contains(".git-")).collect();
            assert!(scratch.is_empty(), "{scratch:?}");
        }
    }
}

#[test]
fn changes_are_shown_committed_applied_and_discarded() {
    let fixture = WorktreeFixture::new();
    fs::write(fixture.repo.join("sub/b"), "not committed\n").unwrap();
    let worktree = fixture.folder.create(fixture.run, &fixture.repo.join("sub"), NOW).unwrap();
    let (files, branch) = (worktree.files(), worktree.branch());
    assert_eq!(worktree.cwd(), files.join("sub"));
    assert_eq!(fs::read_to_string(files.join("sub/b")).unwrap(), "b\n", "from HEAD");
    assert_eq!(fs::read_to_string(files.join("c.x")).unwrap(), "c\n", "no filter ran");
    // Git of a person sees an ordinary worktree.
    assert_eq!(git(&files, &["status", "--porcelain", "--branch"]), format!("## {branch}"));
    let listed = git(&fixture.repo, &["worktree", "list", "--porcelain"]);
    assert!(listed.contains(&format!("worktree {}\n", files.display())), "{listed}");
    assert!(listed.contains(&format!("branch refs/heads/{branch}")), "{listed}");

    // Somebody commits there, edits more and adds a file.
    fs::write(files.join("a"), fs::read_to_string(files.join("a")).unwrap().replace("\n3\n", "\nthree\n")).unwrap();
    git(&files, &["commit", "--quiet", "-am", "by the run"]);
    fs::write(files.join("new"), "new\n").unwrap();
    fs::write(files.join("out"), "ignored\n").unwrap();
    let attachments = worktree.cwd().join(".attache").join(fixture.run.to_string());
    fs::create_dir_all(&attachments).unwrap();
    fs::write(attachments.join("sent"), "with the task\n").unwrap();
    let state = worktree.state().unwrap();
    assert_eq!((state.changed, state.commits, state.is_uncommitted), (vec!["a".to_owned(), "new".to_owned()], 1, true));
    let diff = String::from_utf8(worktree.diff().unwrap()).unwrap();
    assert!(diff.contains("-3\n+three\n") && diff.contains("+new\n") && !diff.contains("ignored"), "{diff}");

    let commit = worktree.commit("the rest", NOW).unwrap();
    assert_eq!(git(&fixture.repo, &["rev-parse", &branch]), commit);
    assert_eq!(git(&fixture.repo, &["log", "--format=%s", &branch]), "the rest\nby the run\nfirst");
    assert_eq!(git(&files, &["status", "--porcelain"]), "?? sub/.attache/");
    assert!(matches!(worktree.commit("again", NOW), Err(Error::Unchanged)));

    // The owner edited the same file meanwhile, at another place.
    let own = fs::read_to_string(fixture.repo.join("a")).unwrap().replace("\n18\n", "\neighteen\n");
    fs::write(fixture.repo.join("a"), own).unwrap();
    let index = fs::read(fixture.repo.join(".git/index")).unwrap();
    assert_eq!(worktree.apply(NOW).unwrap().files, ["a", "new"]);
    let both = fs::read_to_string(fixture.repo.join("a")).unwrap();
    assert!(both.contains("\nthree\n") && both.contains("\neighteen\n"), "{both}");
    assert_eq!(fs::read(fixture.repo.join(".git/index")).unwrap(), index, "nothing was staged");
    assert_eq!(fixture.status(), "M a\n M sub/b\n?? new");
    assert_eq!(worktree.apply(NOW).unwrap().files, Vec::<String>::new(), "again");

    worktree.discard().unwrap();
    assert!(matches!(fixture.folder.open(fixture.run), Err(Error::Absent(_))));
    assert_eq!(git(&fixture.repo, &["branch", "--list", "attache/*"]), "");
    assert_eq!(git(&fixture.repo, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(fs::read_dir(fixture.all.path().join("worktrees")).unwrap().count(), 0);
}

#[test]
fn a_conflict_is_named_and_nothing_is_applied() {
    let fixture = WorktreeFixture::new();
    let worktree = fixture.create();
    let edit = |folder: &Path, to: &str| {
        let text = fs::read_to_string(folder.join("a")).unwrap();
        fs::write(folder.join("a"), text.replace("\n3\n", to)).unwrap();
    };
    edit(&worktree.files(), "\nthree\n");
    fs::write(worktree.files().join("sub/b"), "more\n").unwrap();
    fs::write(worktree.files().join("new"), "theirs\n").unwrap();
    edit(&fixture.repo, "\ndrei\n");
    fs::write(fixture.repo.join("new"), "mine\n").unwrap();
    let before = fixture.status();
    let Err(Error::Conflicts(files)) = worktree.apply(NOW) else { panic!("applied") };
    assert_eq!(files, ["a", "new"]);
    assert_eq!(fixture.status(), before);
    assert_eq!(fs::read_to_string(fixture.repo.join("new")).unwrap(), "mine\n");
    assert_eq!(fs::read_to_string(fixture.repo.join("sub/b")).unwrap(), "b\n");
    // What can't be written isn't written in part.
    fs::remove_file(fixture.repo.join("new")).unwrap();
    fs::create_dir(fixture.repo.join("new")).unwrap();
    fs::write(fixture.repo.join("new/file"), "in the way\n").unwrap();
    edit(&fixture.repo, "");
    fs::write(fixture.repo.join("a"), fs::read_to_string(worktree.files().join("a")).unwrap().replace("three", "3"))
        .unwrap();
    worktree.apply(NOW).unwrap_err();
    assert_eq!(fs::read_to_string(fixture.repo.join("sub/b")).unwrap(), "b\n");
    assert_eq!(fs::read_to_string(fixture.repo.join("new/file")).unwrap(), "in the way\n");
}

#[test]
fn a_file_of_a_filter_is_neither_committed_nor_applied() {
    let fixture = WorktreeFixture::new();
    let worktree = fixture.create();
    fs::write(worktree.files().join("c.x"), "changed\n").unwrap();
    for said in [worktree.commit("x", NOW).unwrap_err().to_string(), worktree.apply(NOW).unwrap_err().to_string()] {
        assert!(said.starts_with("`c.x` needs the git filter `x`"), "{said}");
    }
    assert_eq!(fs::read_to_string(fixture.repo.join("c.x")).unwrap(), "c\n");
}

#[test]
fn without_a_commit_or_a_repository_there_is_no_worktree() {
    let fixture = WorktreeFixture::new();
    let root = fixture.all.path().canonicalize().unwrap();
    let refused = |folder: &str| fixture.folder.create(fixture.run, &root.join(folder), NOW).unwrap_err();
    fs::create_dir(root.join("plain")).unwrap();
    assert!(matches!(refused("plain"), Error::NoRepository(_)));
    git(&root, &["init", "--quiet", "--bare", "bare"]);
    assert!(matches!(refused("bare"), Error::NoRepository(_)));
    git(&root, &["init", "--quiet", "unborn"]);
    assert!(matches!(refused("unborn"), Error::Unborn(_)));
    let inside = WorktreeFolder::at(fixture.repo.join("worktrees"));
    assert!(matches!(inside.create(fixture.run, &fixture.repo, NOW).unwrap_err(), Error::Inside(_)));
    assert!(matches!(fixture.folder.open(fixture.run), Err(Error::Absent(_))));
    assert_eq!(git(&fixture.repo, &["branch", "--list", "attache/*"]), "");
}

/// A run can put a `.git` into a folder that has none. No worktree shows what it leads to.
#[test]
fn a_folder_is_not_led_to_a_repository_elsewhere() {
    let fixture = WorktreeFixture::new();
    let root = fixture.all.path().canonicalize().unwrap();
    let secret = fixture.repo.join(".git");
    let folder = root.join("home/folder");
    let refused = |plant: &dyn Fn(&Path)| {
        fs::create_dir_all(folder.join("sub")).unwrap();
        plant(&folder.join(".git"));
        let refused = fixture.folder.create(fixture.run, &folder, NOW).unwrap_err();
        assert!(matches!(fixture.folder.open(fixture.run), Err(Error::Absent(_))), "{refused}");
        fs::remove_dir_all(&folder).unwrap();
        refused
    };
    let plain = |git_dir: &Path| git(&root, &["init", "--quiet", git_dir.parent().unwrap().to_str().unwrap()]);
    let leads_to =
        |git_dir: &Path, target: &Path| fs::write(git_dir, format!("gitdir: {}\n", target.display())).unwrap();
    let pointer = refused(&|git_dir| leads_to(git_dir, &secret));
    assert!(matches!(pointer, Error::Git(git::Error::Elsewhere(_))), "{pointer}");
    let link = refused(&|git_dir| std::os::unix::fs::symlink(&secret, git_dir).unwrap());
    assert!(matches!(link, Error::Git(git::Error::Elsewhere(_))), "{link}");
    let common = refused(&|git_dir| {
        plain(git_dir);
        fs::write(git_dir.join("commondir"), secret.to_str().unwrap()).unwrap();
    });
    assert!(matches!(common, Error::Git(git::Error::Elsewhere(_))), "{common}");
    let above = refused(&|git_dir| {
        plain(git_dir);
        git(git_dir.parent().unwrap(), &["config", "core.worktree", root.join("home").to_str().unwrap()]);
    });
    assert!(matches!(above, Error::Git(git::Error::Elsewhere(_))), "{above}");
    // A working tree of its own making that isn't that repository's.
    let linked = refused(&|git_dir| {
        let admin = git_dir.parent().unwrap().join("sub");
        leads_to(git_dir, &admin);
        fs::write(admin.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(admin.join("gitdir"), git_dir.to_str().unwrap()).unwrap();
        fs::write(admin.join("commondir"), secret.to_str().unwrap()).unwrap();
    });
    assert!(matches!(linked, Error::Git(git::Error::Elsewhere(_))), "{linked}");
    for part in ["objects", "refs"] {
        let replaced = refused(&|git_dir| {
            plain(git_dir);
            fs::remove_dir_all(git_dir.join(part)).unwrap();
            std::os::unix::fs::symlink(secret.join(part), git_dir.join(part)).unwrap();
        });
        assert!(matches!(replaced, Error::Git(git::Error::NotPlain(_))), "{replaced}");
    }
    let head = git(&fixture.repo, &["rev-parse", "HEAD"]);
    let borrowed = refused(&|git_dir| {
        plain(git_dir);
        let objects = format!("{}\n", secret.join("objects").display());
        fs::write(git_dir.join("objects/info/alternates"), objects).unwrap();
        fs::write(git_dir.join("HEAD"), format!("{head}\n")).unwrap();
    });
    assert!(matches!(borrowed, Error::Borrowed(_)), "{borrowed}");
    assert_eq!(git(&fixture.repo, &["branch", "--list", "attache/*"]), "");
}

/// Those are a person's own ways to have a repository elsewhere.
#[test]
fn linked_working_trees_and_submodules_have_worktrees() {
    let fixture = WorktreeFixture::new();
    let root = fixture.all.path().canonicalize().unwrap();
    git(&fixture.repo, &["worktree", "add", "--quiet", "--detach", "../linked"]);
    let allowed = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../repo", "module"];
    git(&root, &["init", "--quiet", "outer"]);
    git(&root.join("outer"), &allowed);
    for (seed, folder) in [(11, "linked"), (12, "linked/sub"), (13, "outer/module")] {
        let worktree = fixture.folder.create(Env::seeded(seed).run_id(), &root.join(folder), NOW).unwrap();
        assert!(worktree.files().join("a").is_file(), "{folder}");
        fs::write(worktree.files().join("a"), "changed\n").unwrap();
        worktree.apply(NOW).unwrap();
        let top = root.join(folder.trim_end_matches("/sub"));
        assert_eq!(fs::read_to_string(top.join("a")).unwrap(), "changed\n", "{folder}");
        worktree.discard().unwrap();
        git(&top, &["checkout", "--quiet", "a"]);
    }
}

#[test]
fn a_repository_that_was_moved_away_is_named() {
    let fixture = WorktreeFixture::new();
    let worktree = fixture.create();
    fs::rename(&fixture.repo, fixture.all.path().join("moved")).unwrap();
    for error in [worktree.diff().unwrap_err(), worktree.apply(NOW).unwrap_err()] {
        assert!(matches!(&error, Error::Gone(source) if *source == fixture.repo), "{error}");
    }
    assert!(!worktree.discard().unwrap(), "the branch may be there");
    assert!(fixture.folder.list().is_empty());
}

#[test]
fn a_worktree_that_was_removed_by_hand_is_discarded_with_its_branch() {
    let fixture = WorktreeFixture::new();
    let worktree = fixture.create();
    fs::remove_dir_all(worktree.files()).unwrap();
    assert!(worktree.discard().unwrap());
    assert_eq!(git(&fixture.repo, &["branch", "--list", "attache/*"]), "");
}

/// A run inside walls that works in the folder could put a link in git's way at any moment, to what only its owner sees.
#[test]
fn nothing_is_made_or_applied_while_another_run_works_in_the_repository() {
    let fixture = WorktreeFixture::new();
    let at_work = |folder: &Path| FolderLock::shared(folder, Duration::ZERO).unwrap().unwrap();
    let is_busy = |error: &Error, folder: &Path| matches!(error, Error::Busy(busy) if busy == folder);
    let above = fixture.repo.parent().unwrap();
    for folder in [above, &fixture.repo] {
        let _run = at_work(folder);
        let error = fixture.folder.create(fixture.run, &fixture.repo, NOW).unwrap_err();
        assert!(is_busy(&error, folder), "{error}");
    }
    // Below, it can't touch the repository itself.
    let below = fixture.repo.join("sub");
    let run = at_work(&below);
    let worktree = fixture.create();
    fs::write(worktree.files().join("sub/b"), "changed\n").unwrap();
    let error = worktree.apply(NOW).unwrap_err();
    assert!(is_busy(&error, &below), "{error}");
    drop(run);
    let run = at_work(&fixture.repo);
    for error in [worktree.apply(NOW).unwrap_err(), worktree.diff().unwrap_err(), worktree.discard().unwrap_err()] {
        assert!(is_busy(&error, &fixture.repo), "{error}");
    }
    drop(run);
    worktree.apply(NOW).unwrap();
    assert_eq!(fs::read_to_string(below.join("b")).unwrap(), "changed\n");
}

/// Attributes can say that a file has no diff, and a run can write them.
#[test]
fn the_diff_is_a_complete_patch_whatever_the_attributes_say() {
    let fixture = WorktreeFixture::new();
    let worktree = fixture.create();
    let files = worktree.files();
    fs::write(files.join(".gitattributes"), "* -diff\n*.sh binary\n").unwrap();
    fs::write(files.join("run.sh"), "#!/bin/sh\ncurl example | sh\n").unwrap();
    fs::write(files.join("picture"), [0, 1, 2, 0xff]).unwrap();
    let diff = worktree.diff().unwrap();
    let shown = String::from_utf8(diff.clone()).unwrap();
    assert!(shown.contains("+curl example | sh") && shown.contains("GIT binary patch"), "{shown}");
    let other = fixture.all.path().join("other");
    git(fixture.all.path(), &["clone", "--quiet", "repo", "other"]);
    fs::write(fixture.all.path().join("patch"), diff).unwrap();
    git(&other, &["apply", "../patch"]);
    assert_eq!(fs::read(other.join("picture")).unwrap(), [0, 1, 2, 0xff]);
}

/// The run can write to the worktree's administrative files, and to its own branch.
#[test]
fn what_a_run_puts_in_their_place_is_not_obeyed() {
    let fixture = WorktreeFixture::new();
    let worktree = fixture.create();
    let (files, admin) = (worktree.files(), fixture.repo.join(".git/worktrees").join(fixture.run.to_string()));
    let trap = fixture.all.path().join("trap.sh");
    assert!(worktree.access().is_ok());
    fs::write(files.join("a"), "changed\n").unwrap();
    let config = format!("[core]\n\tfsmonitor = {0}\n\thooksPath = {0}\n[diff]\n\texternal = {0}\n", trap.display());
    fs::write(admin.join("config.worktree"), &config).unwrap();
    fs::write(admin.join("commondir"), "/nonexistent\n").unwrap();
    fs::remove_file(files.join(".git")).unwrap();
    fs::create_dir(files.join(".git")).unwrap();
    fs::write(files.join(".git/config"), &config).unwrap();
    for pipe in ["HEAD", "index"] {
        fs::remove_file(admin.join(pipe)).unwrap();
        assert!(Command::new("mkfifo").arg(admin.join(pipe)).status().unwrap().success());
    }
    assert_eq!(worktree.state().unwrap().changed, ["a"]);
    assert!(String::from_utf8(worktree.diff().unwrap()).unwrap().contains("+changed"));
    worktree.commit("kept", NOW).unwrap();
    assert_eq!(git(&fixture.repo, &["log", "-1", "--format=%s", &worktree.branch()]), "kept");
    let reference = fixture.repo.join(".git/refs/heads").join(worktree.branch());
    fs::remove_file(&reference).unwrap();
    assert!(Command::new("mkfifo").arg(&reference).status().unwrap().success());
    assert!(matches!(worktree.state(), Err(Error::Replaced(_))));
    // A link in the place of what walls would open.
    let objects = fixture.repo.join(".git/objects");
    fs::rename(&objects, fixture.repo.join(".git/moved")).unwrap();
    std::os::unix::fs::symlink("moved", &objects).unwrap();
    assert!(matches!(worktree.access(), Err(Error::Replaced(_))));
    worktree.discard().unwrap();
    assert!(!reference.exists() && !files.exists() && !admin.exists());
}

#[test]
fn an_untouched_worktree_is_removed_and_old_ones_lose_nothing() {
    let fixture = WorktreeFixture::new();
    assert!(fixture.create().discard_if_untouched().unwrap().is_none());
    assert_eq!(fixture.folder.list().len(), 0);
    let ignored = fixture.create();
    fs::write(ignored.files().join("out"), "built\n").unwrap();
    assert!(ignored.discard_if_untouched().unwrap().is_some(), "somebody may want it");
    ignored.discard().unwrap();

    let (env, late) = (Env::seeded(2), NOW.plus(KEPT_FOR + Duration::from_secs(1)));
    let next = || fixture.folder.create(env.run_id(), &fixture.repo, NOW).unwrap();
    let (edited, committed, untouched, nested, moved) = (next(), next(), next(), next(), next());
    for worktree in [&edited, &committed] {
        fs::write(worktree.files().join("a"), "changed\n").unwrap();
    }
    let tip = committed.commit("done", NOW).unwrap();
    git(&nested.files(), &["init", "--quiet", "inner"]);
    fs::write(nested.files().join("inner/file"), "x\n").unwrap();
    git(&moved.files(), &["switch", "--quiet", "--detach"]);
    assert_eq!(fixture.folder.prune(NOW.plus(KEPT_FOR)), Vec::<String>::new());
    let mut removed = fixture.folder.prune(late);
    removed.sort();
    let mut expected = [&edited, &committed, &untouched].map(RunWorktree::branch);
    expected.sort();
    assert_eq!(removed, expected);
    assert_eq!(git(&fixture.repo, &["show", &format!("{}:a", edited.branch())]), "changed");
    assert_eq!(git(&fixture.repo, &["rev-parse", &committed.branch()]), tip);
    assert!(!try_git(&fixture.repo, &["rev-parse", "--verify", &untouched.branch()]).status.success());
    let kept: Vec<_> = fixture.folder.list().iter().map(|worktree| worktree.record().run).collect();
    assert_eq!(kept.len(), 2);
    assert!(nested.files().join("inner/file").exists() && moved.files().join("a").exists());
    for worktree in [edited, committed, untouched] {
        assert!(!worktree.files().exists());
    }
}

/// Git doesn't look below a submodule's folder, nor at a repository's own files.
#[test]
fn what_git_does_not_look_at_is_neither_removed_nor_overlooked() {
    let fixture = WorktreeFixture::new();
    let head = git(&fixture.repo, &["rev-parse", "HEAD"]);
    git(&fixture.repo, &["update-index", "--add", "--cacheinfo", &format!("160000,{head},lib/inner")]);
    git(&fixture.repo, &["commit", "--quiet", "-m", "a submodule"]);
    assert!(fixture.create().discard_if_untouched().unwrap().is_none(), "its folder is empty");
    let (env, late) = (Env::seeded(3), NOW.plus(KEPT_FOR + Duration::from_secs(1)));
    let inside = |dir: PathBuf, file: &str| {
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(file), "work\n").unwrap();
    };
    let init = |files: &Path, dir: &str| {
        fs::create_dir_all(files.join(dir)).unwrap();
        git(&files.join(dir), &["init", "--quiet"]);
        git(&files.join(dir), &["commit", "--quiet", "--allow-empty", "-m", "work"]);
    };
    #[allow(clippy::type_complexity, reason = "a table of what is left behind")]
    let leave: [(&dyn Fn(&RunWorktree), &str); 6] = [
        (&|left| inside(left.files().join("lib/inner"), "new.txt"), "lib/inner/"),
        (&|left| init(&left.files(), "lib/inner"), "lib/inner/"),
        (&|left| init(&left.files(), "sub"), "sub/"),
        (&|left| init(&left.files(), "out/deep"), "out/deep/"),
        (&|left| drop(git(&left.files(), &["init", "--quiet", "--bare", "out/bare"])), "out/bare/"),
        (
            &|left| {
                let (repo, run) = (&fixture.repo, left.record().run);
                inside(repo.join(format!(".git/worktrees/{run}/modules/lib/objects")), "kept");
            },
            ".git/modules/",
        ),
    ];
    for (leave, nested) in leave {
        let worktree = fixture.folder.create(env.run_id(), &fixture.repo, NOW).unwrap();
        leave(&worktree);
        let state = worktree.discard_if_untouched().unwrap().expect(nested);
        assert_eq!(state.nested, [nested]);
        assert_eq!(fixture.folder.prune(late), Vec::<String>::new(), "{nested}");
        assert!(worktree.files().join("a").is_file() && worktree.state().unwrap().nested == [nested]);
        worktree.discard().unwrap();
    }
}

/// A task's own files are removed when it ends. What else is in their folder is the run's.
#[test]
fn what_a_run_leaves_beside_its_attachments_is_kept() {
    let fixture = WorktreeFixture::new();
    let came = |worktree: &RunWorktree| {
        let own = worktree.cwd().join(".attache").join(worktree.record().run.to_string());
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("task.txt"), "came with the task\n").unwrap();
        fs::write(worktree.cwd().join(".attache/.gitignore"), "*\n").unwrap();
    };
    for (seed, folder) in [(21, ""), (22, "sub")] {
        let create = || fixture.folder.create(Env::seeded(seed).run_id(), &fixture.repo.join(folder), NOW).unwrap();
        let untouched = create();
        came(&untouched);
        assert!(untouched.discard_if_untouched().unwrap().is_none());
        let hidden = create();
        came(&hidden);
        fs::write(hidden.cwd().join(".attache/notes.txt"), "work\n").unwrap();
        assert!(hidden.discard_if_untouched().unwrap().is_some());
        // Not an ignored file, so it is saved.
        fs::remove_file(hidden.cwd().join(".attache/.gitignore")).unwrap();
        let saved = Path::new(folder).join(".attache/notes.txt").display().to_string();
        assert_eq!(hidden.discard_if_untouched().unwrap().unwrap().changed, std::slice::from_ref(&saved));
        assert_eq!(fixture.folder.prune(NOW.plus(KEPT_FOR + Duration::from_secs(1))), [hidden.branch()]);
        assert_eq!(git(&fixture.repo, &["show", &format!("{}:{saved}", hidden.branch())]), "work");
        git(&fixture.repo, &["branch", "--quiet", "-D", &hidden.branch()]);
    }
}

/// A run writes its branch as it likes, and git would follow it to the owner's.
#[test]
fn a_branch_that_refers_to_another_one_changes_neither() {
    let fixture = WorktreeFixture::new();
    let main = git(&fixture.repo, &["rev-parse", "main"]);
    for content in ["ref: refs/heads/main\n", "ref: refs/heads/release\n", "main\n", ""] {
        let worktree = fixture.create();
        fs::write(worktree.files().join("a"), "changed\n").unwrap();
        let reference = fixture.repo.join(".git/refs/heads").join(worktree.branch());
        fs::write(&reference, content).unwrap();
        assert!(matches!(worktree.commit("kept", NOW), Err(Error::Replaced(_))), "{content}");
        assert!(matches!(worktree.discard_if_untouched(), Err(Error::Replaced(_))), "{content}");
        assert_eq!(fixture.folder.prune(NOW.plus(KEPT_FOR + Duration::from_secs(1))), Vec::<String>::new());
        worktree.discard().unwrap();
        assert!(!reference.exists());
        assert_eq!(
            git(&fixture.repo, &["for-each-ref", "--format=%(objectname) %(refname)"]),
            format!("{main} refs/heads/main")
        );
    }
}

/// Git prints lines of the file to which it is led.
#[test]
fn what_a_link_among_the_objects_leads_to_is_not_in_a_message() {
    let fixture = WorktreeFixture::new();
    let secret = fixture.all.path().join("admin.key");
    fs::write(&secret, "/secret-of-the-owner\n").unwrap();
    let worktree = fixture.create();
    fs::write(worktree.files().join("a"), "changed\n").unwrap();
    let git_dir = fixture.repo.join(".git");
    let tree = git(&fixture.repo, &["rev-parse", "HEAD^{tree}"]);
    let object = git_dir.join("objects").join(&tree[..2]).join(&tree[2..]);
    let refused = |what: &str| {
        let other = Env::seeded(9).run_id();
        let errors = [
            worktree.state().unwrap_err(),
            worktree.apply(NOW).unwrap_err(),
            fixture.folder.create(other, &fixture.repo, NOW).unwrap_err(),
        ];
        for error in errors {
            assert!(!error.to_string().contains("secret"), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
    };
    let list = git_dir.join("objects/info/alternates");
    fs::create_dir_all(git_dir.join("objects/info")).unwrap();
    std::os::unix::fs::symlink(&secret, &list).unwrap();
    refused("info/alternates is a link or a special file");
    fs::remove_file(&list).unwrap();
    assert!(Command::new("mkfifo").arg(&list).status().unwrap().success());
    refused("info/alternates is a link or a special file");
    // One folder further.
    fs::remove_file(&list).unwrap();
    let other = fixture.all.path().join("other");
    fs::create_dir_all(other.join("info")).unwrap();
    std::os::unix::fs::symlink(&secret, other.join("info/alternates")).unwrap();
    fs::write(&list, format!("{}\n", other.display())).unwrap();
    refused("other/info/alternates is a link or a special file");
    fs::remove_file(&list).unwrap();
    // What git itself says is kept to it.
    fs::copy(&secret, &list).unwrap();
    fs::rename(&object, fixture.all.path().join("object")).unwrap();
    let said = worktree.diff().unwrap_err().to_string();
    assert!(said.starts_with("git ") && said.ends_with("may show why"), "{said}");
    let borrowed = fixture.folder.create(Env::seeded(9).run_id(), &fixture.repo, NOW).unwrap_err();
    assert!(matches!(borrowed, Error::Borrowed(_)), "{borrowed}");
}

/// A run in the agent's folder can know the name of the next one.
#[test]
fn what_was_put_there_before_the_run_is_not_written_to() {
    let planted = [
        "worktrees/RUN/HEAD",
        "worktrees/RUN",
        "worktrees",
        "refs/heads/attache/RUN",
        "refs/heads/attache",
        "logs/refs/heads/attache/RUN",
    ];
    for place in planted {
        let fixture = WorktreeFixture::new();
        let victim = fixture.all.path().join("victim");
        fs::create_dir_all(&victim).unwrap();
        fs::write(victim.join("file"), "precious\n").unwrap();
        let link = fixture.repo.join(".git").join(place.replace("RUN", &fixture.run.to_string()));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let target =
            if place.ends_with("RUN/HEAD") || place.starts_with("logs") { victim.join("file") } else { victim.clone() };
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let created = fixture.folder.create(fixture.run, &fixture.repo, NOW);
        assert!(created.is_err(), "{place}");
        let left: Vec<_> = fs::read_dir(&victim).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["file"], "{place}");
        assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "precious\n", "{place}");
    }
}

/// Git appends to a log that is there, whatever it is.
#[test]
fn no_log_is_written() {
    let fixture = WorktreeFixture::new();
    let worktree = fixture.create();
    let victim = fixture.all.path().join("victim");
    fs::write(&victim, "precious\n").unwrap();
    let log = fixture.repo.join(".git/logs/refs/heads").join(worktree.branch());
    fs::create_dir_all(log.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&victim, &log).unwrap();
    fs::write(worktree.files().join("a"), "changed\n").unwrap();
    worktree.commit("kept", NOW).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious\n");
    fs::remove_file(&log).unwrap();
    assert!(Command::new("mkfifo").arg(&log).status().unwrap().success());
    fs::write(worktree.files().join("a"), "again\n").unwrap();
    worktree.commit("kept", NOW).unwrap();
}

/// Links could take the place of folders at any moment.
#[test]
fn nothing_is_done_in_a_worktree_while_its_run_works() {
    let fixture = WorktreeFixture::new();
    let worktree = fixture.create();
    fs::write(worktree.files().join("a"), "changed\n").unwrap();
    let working = worktree.hold().unwrap();
    let objects = || git(&fixture.repo, &["count-objects"]);
    let before = objects();
    for refused in [
        worktree.state().map(drop),
        worktree.diff().map(drop),
        worktree.commit("x", NOW).map(drop),
        worktree.apply(NOW).map(drop),
        worktree.discard().map(drop),
        worktree.discard_if_untouched().map(drop),
        worktree.hold().map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Working(run)) if run == fixture.run), "{refused:?}");
    }
    assert_eq!(fixture.folder.prune(NOW.plus(KEPT_FOR + Duration::from_secs(1))), Vec::<String>::new());
    assert_eq!(objects(), before);
    drop(working);
    assert_eq!(worktree.state().unwrap().changed, ["a"]);
}

/// Its index could be a link by then.
#[test]
fn the_worktrees_index_is_replaced_and_not_written_through() {
    let fixture = WorktreeFixture::new();
    let worktree = fixture.create();
    let victim = fixture.all.path().join("victim");
    fs::write(&victim, "precious\n").unwrap();
    let admin = fixture.repo.join(".git/worktrees").join(fixture.run.to_string());
    fs::remove_file(admin.join("index")).unwrap();
    for name in ["index", "index.attache"] {
        std::os::unix::fs::symlink(&victim, admin.join(name)).unwrap();
    }
    fs::write(worktree.files().join("a"), "changed\n").unwrap();
    worktree.commit("kept", NOW).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious\n");
    assert!(admin.join("index").symlink_metadata().unwrap().is_file());
}

/// What a run inside walls has instead of the repository.
#[test]
fn a_repository_of_its_own_borrows_the_objects() {
    let fixture = WorktreeFixture::new();
    git(&fixture.repo, &["tag", "v1"]);
    let worktree = fixture.create();
    let access = worktree.access().unwrap();
    assert_eq!(worktree.access().unwrap(), access, "again");
    fs::copy(&access.own_git_file, &access.git_file).unwrap();
    let files = worktree.files();
    assert_eq!(git(&files, &["status", "--porcelain", "--branch"]), format!("## {}", worktree.branch()));
    assert_eq!(git(&files, &["rev-parse", "main", "v1"]), git(&fixture.repo, &["rev-parse", "main", "v1"]));
    assert_eq!(git(&files, &["config", "alias.update-ref"]), git(&fixture.repo, &["config", "alias.update-ref"]));
    let before = git(&fixture.repo, &["count-objects", "-v"]);
    fs::write(files.join("a"), "changed\n").unwrap();
    git(&files, &["commit", "--quiet", "-am", "inside"]);
    git(&files, &["branch", "--force", "main"]);
    assert_eq!(git(&files, &["log", "--format=%s"]), "inside\nfirst");
    assert_eq!(git(&fixture.repo, &["count-objects", "-v"]), before);
    assert_eq!(git(&fixture.repo, &["log", "--format=%s", "main", &worktree.branch()]), "first");
    let state = worktree.state().unwrap();
    assert_eq!((state.changed, state.commits, state.is_uncommitted), (vec!["a".to_owned()], 0, true));
    worktree.commit("kept", NOW).unwrap();
    assert_eq!(git(&fixture.repo, &["log", "--format=%s", &worktree.branch()]), "kept\nfirst");
    worktree.discard().unwrap();
    assert!(!access.own.exists() && !access.own_git_file.exists());
}

#[test]
fn what_is_only_on_the_branch_is_named() {
    let fixture = WorktreeFixture::new();
    let worktree = fixture.create();
    let files = worktree.files();
    fs::write(files.join("build.sh"), "evil\n").unwrap();
    fs::write(files.join("out"), "ignored\n").unwrap();
    git(&files, &["add", "--force", "build.sh", "out"]);
    git(&files, &["commit", "--quiet", "-m", "by the run"]);
    fs::write(files.join("build.sh"), "good\n").unwrap();
    fs::write(files.join("later"), "not committed\n").unwrap();
    let state = worktree.state().unwrap();
    assert_eq!(
        (&state.changed, &state.differs_on_branch),
        (&vec!["build.sh".to_owned(), "later".to_owned()], &vec!["build.sh".to_owned(), "out".to_owned()])
    );
    worktree.commit("the rest", NOW).unwrap();
    assert_eq!(worktree.state().unwrap().differs_on_branch, Vec::<String>::new());
    assert_eq!(git(&fixture.repo, &["diff", "--name-only", "main", &worktree.branch()]), "build.sh\nlater");
}
