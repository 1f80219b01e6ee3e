//! Repositories that a remote tries to plant, judged by the real git: whatever it creates, git on the host runs none of
//! it. Each is first created by the host itself, which shows that git would run it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use attache_protocol::{DelegationId, Timestamp, env::Env};
use attache_workspace::{
    export::{AttributeChange, CreateMode, Export, ExportPatterns, ExportRefusal, FileOpenOptions, ReplaceMode},
    report::git::{Error, GitRepository, GitSnapshot},
};

use super::ExportFixture;

/// One step of planting a repository.
enum PlantingStep {
    Folder(&'static str),
    File(&'static str, String),
}

use PlantingStep::{File, Folder};

const NEW: FileOpenOptions = FileOpenOptions {
    read: false,
    write: true,
    append: false,
    truncate: true,
    create: CreateMode::IfMissing,
    mode: None,
};

impl PlantingStep {
    fn path(&self) -> &'static str {
        match self {
            Folder(path) | File(path, _) => path,
        }
    }

    fn by_host(&self, dir: &Path) {
        match self {
            Folder(path) => fs::create_dir_all(dir.join(path)).unwrap(),
            File(path, content) => fs::write(dir.join(path), content).unwrap(),
        }
    }

    fn by_remote(&self, export: &Export) -> Result<(), ExportRefusal> {
        match self {
            Folder(path) => export.make_dir(path.as_bytes(), 0o755),
            File(path, content) => export.open_file(path.as_bytes(), &NEW)?.write_at(0, content.as_bytes()),
        }
    }
}

/// A program that leaves a trace next to the exported folder.
fn trap(dir: &Path) -> String {
    format!("touch {}; cat", trace(dir).display())
}

fn trace(dir: &Path) -> PathBuf {
    dir.parent().unwrap().join("trapped")
}

/// What the person on the host does next, in their own folder.
fn git(dir: &Path, args: &[&str]) -> bool {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=Ann", "-c", "user.email=ann@localhost"]).args(args);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    git.env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap());
    git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

fn git_output(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(args).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    String::from_utf8(git.output().unwrap().stdout).unwrap()
}

fn work_as_host(dir: &Path) {
    git(dir, &["status"]);
    git(dir, &["add", "--all"]);
}

/// As at the end of a lease.
fn report(dir: &Path, found: &GitRepository) {
    let delegation = DelegationId::from_uuid(Env::seeded(1).uuid());
    let (scratch, rules) = (dir.parent().unwrap().join("scratch"), ExportPatterns::default());
    let now = Timestamp::from_millis(1_700_000_000_000);
    let snapshot =
        GitSnapshot { delegation: &delegation, changed: &[], message: "m", rules: &rules, scratch: &scratch, now };
    let _ = found.snapshot(&snapshot);
    let _ = found.commit(&[b"f".to_vec(), b".gitattributes".to_vec()], "m", &scratch, now);
}

/// A repository in the folder itself, with its configuration elsewhere.
fn by_commondir(dir: &Path) -> Vec<PlantingStep> {
    let trap = trap(dir);
    vec![
        Folder("meta"),
        Folder("meta/objects"),
        Folder("meta/refs"),
        File(
            "meta/config",
            format!(
                "[core]\nrepositoryformatversion = 1\n[extensions]\nworktreeConfig = true\n[filter \"x\"]\nclean = \"{trap}\"\n"
            ),
        ),
        File("config.worktree", "[core]\nbare = false\nworktree = .\n".to_owned()),
        File(".gitattributes", "* filter=x\n".to_owned()),
        File("f", "f\n".to_owned()),
        File("commondir", "meta\n".to_owned()),
        File("HEAD", "ref: refs/heads/main\n".to_owned()),
    ]
}

/// A repository below the folder of another one.
fn below_refs(dir: &Path) -> Vec<PlantingStep> {
    let trap = trap(dir);
    vec![
        File(".gitattributes", "* filter=x\n".to_owned()),
        Folder("sub"),
        Folder("sub/.git"),
        Folder("sub/.git/refs"),
        Folder("sub/.git/refs/e"),
        File(
            "sub/.git/refs/e/config",
            format!(
                "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = ../../../..\nfsmonitor = \"{trap}\"\n\
                 [filter \"x\"]\nclean = \"{trap}\"\n"
            ),
        ),
        Folder("sub/.git/refs/e/refs"),
        Folder("sub/.git/refs/e/objects"),
        File("sub/.git/refs/e/HEAD", "ref: refs/heads/main\n".to_owned()),
    ]
}

fn beside() -> (tempfile::TempDir, PathBuf) {
    let all = tempfile::tempdir().unwrap();
    let dir = all.path().join("lent");
    fs::create_dir(&dir).unwrap();
    (all, dir)
}

#[test]
fn a_repository_cannot_be_planted_with_a_commondir() {
    let (_all, dir) = beside();
    for step in by_commondir(&dir) {
        step.by_host(&dir);
    }
    work_as_host(&dir);
    assert!(trace(&dir).exists(), "git treats it as a repository, so this test can fail");

    for last in ["HEAD", "commondir"] {
        let fixture = ExportFixture::new(|_| {});
        let dir = fixture.dir();
        let (late, soon): (Vec<PlantingStep>, Vec<PlantingStep>) =
            by_commondir(&dir).into_iter().partition(|step| step.path() == last);
        for step in &soon {
            step.by_remote(&fixture.export).unwrap();
        }
        let refused = late[0].by_remote(&fixture.export).unwrap_err();
        assert!(refused.to_string().contains("would turn the folder into a git repository"), "{refused}");
        fixture.write("plain", late[0].path().as_bytes());
        for refused in [
            fixture.export.rename(b"plain", last.as_bytes(), ReplaceMode::Always),
            fixture.export.hard_link(b"plain", last.as_bytes()),
            fixture.export.symlink(b"plain", last.as_bytes()),
        ] {
            assert_eq!(refused.unwrap_err().name(), "denied");
        }
        assert!(GitRepository::find(&dir).unwrap().is_none());
        work_as_host(&dir);
        assert!(!trace(&dir).exists(), "{last} was last");
    }
}

#[test]
fn an_existing_pair_keeps_what_it_runs() {
    let fixture = ExportFixture::new(|dir| {
        fs::create_dir_all(dir.join("tree/info")).unwrap();
        fs::write(dir.join("tree/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(dir.join("tree/commondir"), "../elsewhere\n").unwrap();
    });
    for path in ["commondir", "config", "config.worktree", "hooks", "info/attributes"] {
        let denied = fixture.export.open_file(format!("tree/{path}").as_bytes(), &NEW);
        assert_eq!(denied.unwrap_err().name(), "denied", "{path}");
    }
    fixture.write("tree/HEAD", b"ref: refs/heads/other\n");
}

#[test]
fn the_parts_of_a_repository_stay_and_can_be_replaced() {
    let fixture = ExportFixture::new(|dir| {
        assert!(git(dir, &["init", "--quiet"]) && git(dir, &["init", "--quiet", "--bare", "mirror"]));
    });
    let export = &fixture.export;
    for repository in [".git", "mirror"] {
        let part = |name: &str| format!("{repository}/{name}").into_bytes();
        for name in ["HEAD", "objects", "refs", "config"] {
            let denied = export.rename(&part(name), b"away", ReplaceMode::Always).unwrap_err();
            assert_eq!(denied.name(), "denied", "{repository}/{name}");
        }
        assert_eq!(export.remove_file(&part("HEAD")).unwrap_err().name(), "denied");
        for name in ["refs/heads", "refs/tags"] {
            export.remove_dir(&part(name)).unwrap();
        }
        assert_eq!(export.remove_dir(&part("refs")).unwrap_err().name(), "denied");
        // As git does it.
        fixture.write(&format!("{repository}/HEAD.lock"), b"ref: refs/heads/other\n");
        export.rename(&part("HEAD.lock"), &part("HEAD"), ReplaceMode::Always).unwrap();
        assert_eq!(fixture.read(&format!("{repository}/HEAD")).unwrap(), b"ref: refs/heads/other\n");
    }
    assert!(git(&fixture.dir(), &["symbolic-ref", "HEAD", "refs/heads/main"]));
    // An incomplete one can be removed again.
    export.make_dir(b"half", 0o755).unwrap();
    export.make_dir(b"half/refs", 0o755).unwrap();
    fixture.write("half/HEAD", b"");
    export.remove_file(b"half/HEAD").unwrap();
    export.remove_dir(b"half/refs").unwrap();
}

#[test]
fn a_report_uses_the_repository_found_before_the_lease() {
    // As if the guard did not exist.
    let (_all, dir) = beside();
    assert!(git(&dir, &["init", "--quiet"]));
    fs::write(dir.join("f"), "before\n").unwrap();
    let found = GitRepository::find(&dir).unwrap().unwrap();
    let found = GitRepository::from_bytes(&found.to_bytes()).unwrap();
    fs::write(dir.join(".git/HEAD"), "nothing\n").unwrap();
    for step in by_commondir(&dir) {
        step.by_host(&dir);
    }
    report(&dir, &found);
    assert!(GitRepository::find(&dir).unwrap().is_none(), "a repository without the name is not searched for");
    assert!(!trace(&dir).exists());
    work_as_host(&dir);
    assert!(trace(&dir).exists(), "git treats it as a repository, so this test can fail");
}

#[test]
fn a_file_that_leads_to_a_repository_cannot_be_changed() {
    let planted = |dir: &Path| {
        let main = dir.parent().unwrap().join("main");
        fs::create_dir(&main).unwrap();
        assert!(git(&main, &["init", "--quiet"]));
        assert!(git(&main, &["commit", "--quiet", "--allow-empty", "-m", "first"]));
        fs::remove_dir(dir).unwrap();
        assert!(git(&main, &["worktree", "add", "--quiet", "-b", "lent", dir.to_str().unwrap()]));
    };
    let to = "gitdir: sub/.git/refs/e\n";
    let (_all, dir) = beside();
    planted(&dir);
    let found = GitRepository::find(&dir).unwrap().unwrap();
    for step in below_refs(&dir) {
        step.by_host(&dir);
    }
    fs::write(dir.join(".git"), to).unwrap();
    report(&dir, &found);
    assert!(!trace(&dir).exists(), "a report uses the repository found before the lease");
    report(&dir, &GitRepository::find(&dir).unwrap().unwrap());
    assert!(!trace(&dir).exists(), "a report runs no program of any repository");
    work_as_host(&dir);
    assert!(trace(&dir).exists(), "git treats it as a repository, so this test can fail");

    let fixture = ExportFixture::new(planted);
    let (dir, export) = (fixture.dir(), &fixture.export);
    let before = fs::read(dir.join(".git")).unwrap();
    let found = GitRepository::find(&dir).unwrap().unwrap();
    fixture.write("other", to.as_bytes());
    let change = AttributeChange { size: Some(0), ..AttributeChange::default() };
    let rewrite = FileOpenOptions { write: true, ..FileOpenOptions::default() };
    for refused in [
        export.open_file(b".git", &NEW).map(drop),
        export.open_file(b".git", &rewrite).map(drop),
        export.open_file(b".git", &FileOpenOptions { append: true, ..FileOpenOptions::default() }).map(drop),
        export.set_attributes(b".git", &change),
        export.rename(b"other", b".git", ReplaceMode::Always),
        export.rename(b".git", b"away", ReplaceMode::Always),
        export.hard_link(b".git", b"away"),
        export.remove_file(b".git"),
    ] {
        assert_eq!(refused.unwrap_err().name(), "denied");
    }
    assert_eq!(fs::read(dir.join(".git")).unwrap(), before);
    // And there is nothing that one could lead to.
    let refused: Vec<&str> =
        below_refs(&dir).iter().filter(|step| step.by_remote(export).is_err()).map(PlantingStep::path).collect();
    assert_eq!(refused, ["sub/.git/refs/e/config", "sub/.git/refs/e/HEAD"]);
    for path in ["sub/.git/refs/.git", "sub/.git/logs/.git", "sub/.git/objects/.GIT"] {
        let _ = export.make_dir(path.rsplit_once('/').unwrap().0.as_bytes(), 0o755);
        assert_eq!(export.make_dir(path.as_bytes(), 0o755).unwrap_err().name(), "denied", "{path}");
    }
    report(&dir, &found);
    work_as_host(&dir);
    work_as_host(&dir.join("sub"));
    assert!(!trace(&dir).exists());
}

/// Git with recorded resolutions copies the files that `MERGE_RR` names to where a remote can read them, and overwrites them
/// with what was recorded. `ORIG_HEAD` is replaced by whoever merges or resets, with what it refers to.
#[test]
fn what_an_unfinished_merge_names_is_not_followed() {
    const ID: &str = "1234567890123456789012345678901234567890";
    let named = format!("{ID}\t../private\0");
    let prepared = |dir: &Path| {
        fs::write(dir.parent().unwrap().join("private"), "SECRET\n").unwrap();
        assert!(git(dir, &["init", "--quiet", "--initial-branch=main"]));
        assert!(git(dir, &["config", "rerere.enabled", "true"]));
        assert!(git(dir, &["commit", "--quiet", "--allow-empty", "-m", "first"]));
        let recorded = dir.join(".git/rr-cache").join(ID);
        fs::create_dir_all(&recorded).unwrap();
        fs::write(recorded.join("preimage"), "x\n").unwrap();
    };
    let is_copied = |dir: &Path| dir.join(".git/rr-cache").join(ID).join("postimage").exists();
    let (_all, dir) = beside();
    prepared(&dir);
    fs::write(dir.join(".git/MERGE_RR"), &named).unwrap();
    git(&dir, &["commit", "--quiet", "--allow-empty", "-m", "second"]);
    assert!(is_copied(&dir), "git follows it, so this test can fail");

    let fixture = ExportFixture::new(prepared);
    let (dir, export) = (fixture.dir(), &fixture.export);
    fixture.write("plain", named.as_bytes());
    export.make_dir(b".git/worktrees/w", 0o755).unwrap_err();
    for name in ["MERGE_RR", "ORIG_HEAD"] {
        let (path, lock) = (format!(".git/{name}"), format!(".git/{name}.lock"));
        assert_eq!(export.open_file(path.as_bytes(), &NEW).unwrap_err().name(), "denied", "{name}");
        assert_eq!(export.hard_link(b"plain", path.as_bytes()).unwrap_err().name(), "denied", "{name}");
        for content in [&named, "ref: refs/heads/main\n"] {
            fixture.write(&lock, content.as_bytes());
            let refused = export.rename(lock.as_bytes(), path.as_bytes(), ReplaceMode::Always).unwrap_err();
            assert_eq!(refused.name(), "denied", "{name} {content}");
        }
        // Git leaves an empty one itself.
        assert!(fs::read(dir.join(path)).unwrap_or_default().is_empty());
    }
    git(&dir, &["commit", "--quiet", "--allow-empty", "-m", "second"]);
    assert!(!is_copied(&dir));
    // As git does it.
    for (name, content) in [("MERGE_RR", String::new()), ("ORIG_HEAD", format!("{ID}\n"))] {
        let (path, lock) = (format!(".git/{name}"), format!(".git/{name}.lock"));
        fixture.write(&lock, content.as_bytes());
        export.rename(lock.as_bytes(), path.as_bytes(), ReplaceMode::Always).unwrap();
    }
}

/// Git truncates the message of a commit in place, and appends to its logs.
#[test]
fn nothing_of_a_repository_is_the_same_file_as_anything_else() {
    let fixture = ExportFixture::new(|dir| {
        fs::write(dir.join("thesis"), "years of work\n").unwrap();
        assert!(git(dir, &["init", "--quiet", "--initial-branch=main"]));
        assert!(git(dir, &["commit", "--quiet", "--allow-empty", "-m", "first"]));
        assert!(git(dir, &["init", "--quiet", "--bare", "mirror"]));
    });
    let (dir, export) = (fixture.dir(), &fixture.export);
    export.remove_file(b".git/COMMIT_EDITMSG").unwrap();
    for (from, to) in [
        ("thesis", ".git/COMMIT_EDITMSG"),
        ("thesis", ".git/logs/refs/heads/other"),
        (".git/refs/heads/main", ".git/COMMIT_EDITMSG"),
        (".git/logs/HEAD", "log"),
        ("thesis", "mirror/FETCH_HEAD"),
        ("mirror/HEAD", "head"),
    ] {
        let refused = export.hard_link(from.as_bytes(), to.as_bytes()).unwrap_err();
        assert_eq!(refused.name(), "denied", "{from} {to}");
    }
    for target in [".git/config", "./.GIT/HEAD"] {
        assert_eq!(export.symlink(target.as_bytes(), b"out.log").unwrap_err().name(), "denied", "{target}");
    }
    export.symlink(b".git/annex/objects/ab", b"annexed").unwrap();
    assert!(git(&dir, &["commit", "--quiet", "--allow-empty", "-m", "second"]));
    assert_eq!(fs::read_to_string(dir.join("thesis")).unwrap(), "years of work\n");
    // As git does it.
    let object = ".git/objects/e6/9de29bb2d1d6434b8b29ae775ad8c2e48c5391";
    export.make_dir(b".git/objects/e6", 0o755).unwrap();
    let packed = [0x78, 0x9c, 0x4b, 0xca, 0xc9, 0x4f, 0x52, 0x30, 0x60, 0x00, 0x00, 0x09, 0xb0, 0x01, 0xf0];
    fixture.write(".git/objects/e6/tmp_obj_1", &packed);
    export.hard_link(b".git/objects/e6/tmp_obj_1", object.as_bytes()).unwrap();
    export.hard_link(b"thesis", b"copy").unwrap();
}

/// Whether or not its settings can be written.
#[test]
fn a_folder_of_the_right_name_does_not_become_a_repository() {
    let fixture = ExportFixture::new(|dir| fs::create_dir(dir.join("sub")).unwrap());
    let (dir, export) = (fixture.dir(), &fixture.export);
    for path in ["sub/.git", "sub/.git/objects", "sub/.git/refs"] {
        export.make_dir(path.as_bytes(), 0o755).unwrap();
    }
    fixture.write("sub/.git/HEAD.lock", b"ref: refs/heads/main\n");
    let refused = export.rename(b"sub/.git/HEAD.lock", b"sub/.git/HEAD", ReplaceMode::Always).unwrap_err();
    assert!(refused.to_string().contains("would turn the folder into a git repository"), "{refused}");
    assert!(!git(&dir.join("sub"), &["status"]));
}

#[test]
fn a_second_name_of_a_file_that_leads_to_a_repository_cannot_change_it() {
    let fixture = ExportFixture::new(|dir| {
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/.git"), "gitdir: ../elsewhere\n").unwrap();
        fs::hard_link(dir.join("sub/.git"), dir.join("alias")).unwrap();
        assert!(git(dir, &["init", "--quiet", "--bare", "mirror"]));
        fs::hard_link(dir.join("mirror/config"), dir.join("settings")).unwrap();
    });
    for path in ["alias", "settings"] {
        assert_eq!(fixture.export.open_file(path.as_bytes(), &NEW).unwrap_err().name(), "denied", "{path}");
    }
}

/// Saves the lease's result as the daemon does. The repository names `filter` for `a.txt`.
fn check_that_no_filter_runs(dir: &Path, filter: &str) {
    let found = GitRepository::find(dir).unwrap().unwrap();
    let delegation = DelegationId::from_uuid(Env::seeded(1).uuid());
    let (scratch, rules) = (dir.parent().unwrap().join("scratch"), ExportPatterns::default());
    let now = Timestamp::from_millis(1_700_000_000_000);
    let before = git_output(dir, &["rev-parse", "main"]);
    let saved = found
        .snapshot(&GitSnapshot {
            delegation: &delegation,
            changed: &[],
            message: "m",
            rules: &rules,
            scratch: &scratch,
            now,
        })
        .unwrap();
    let refused = found.commit(&[b"a.txt".to_vec()], "m", &scratch, now).unwrap_err();
    assert!(!trace(dir).exists(), "a filter of the repository ran");
    assert!(
        matches!(&refused, Error::Filtered { path, filter: named } if path == "a.txt" && named == filter),
        "{refused}"
    );
    assert_eq!(git_output(dir, &["show", &format!("{saved}:a.txt")]), "by the remote\n");
    assert_eq!(git_output(dir, &["rev-parse", &format!("{saved}^")]), before, "its parent is what is checked out");
    assert_eq!(git_output(dir, &["rev-parse", "main"]), before, "the branch hasn't moved");
    assert!(!scratch.exists());
    work_as_host(dir);
    assert!(trace(dir).exists(), "git on the host runs the filter, so this test can fail");
}

/// Git takes a folder for a bare repository whatever its name is.
#[test]
fn masked_credentials_are_not_committed_for_the_remote() {
    let fixture = ExportFixture::new(|dir| {
        assert!(git(dir, &["init", "--quiet", "--initial-branch=main"]));
        assert!(git(dir, &["init", "--quiet", "--bare", "mirror"]));
        assert!(git(&dir.join("mirror"), &["config", "remote.origin.url", "https://ann:SECRET@example.org/x"]));
        fs::create_dir(dir.join("plain")).unwrap();
        fs::write(dir.join("plain/config"), "url = https://ann:OTHER@example.org/x\n").unwrap();
    });
    let dir = fixture.dir();
    assert!(!String::from_utf8(fixture.read("mirror/config").unwrap()).unwrap().contains("SECRET"));
    let found = GitRepository::find(&dir).unwrap().unwrap();
    let delegation = DelegationId::from_uuid(Env::seeded(1).uuid());
    let (scratch, rules) = (dir.parent().unwrap().join("scratch"), ExportPatterns::default());
    let now = Timestamp::from_millis(1_700_000_000_000);
    let snapshot =
        GitSnapshot { delegation: &delegation, changed: &[], message: "m", rules: &rules, scratch: &scratch, now };
    let saved = found.snapshot(&snapshot).unwrap();
    let listed = git_output(&dir, &["ls-tree", "-r", "--name-only", &saved]);
    assert!(listed.contains("mirror/HEAD") && listed.contains("plain/config"), "{listed}");
    assert!(!listed.contains("mirror/config"), "{listed}");
}

#[test]
fn a_filter_in_an_included_file_of_the_folder_does_not_run() {
    let fixture = ExportFixture::new(|dir| {
        fs::write(dir.join("a.txt"), "before\n").unwrap();
        assert!(git(dir, &["init", "--quiet", "--initial-branch=main"]) && git(dir, &["add", "--all"]));
        assert!(git(dir, &["commit", "--quiet", "-m", "first"]));
        assert!(git(dir, &["config", "include.path", "../.gitconfig"]));
    });
    let trap = trap(&fixture.dir());
    let config = format!(
        "[filter \"x\"]\nclean = \"{trap}\"\n[core]\nfsmonitor = \"{trap}\"\n[diff \"x\"]\ntextconv = \"{trap}\"\n"
    );
    fixture.write(".gitconfig", config.as_bytes());
    fixture.write(".gitattributes", b"* filter=x diff=x\n");
    fixture.write("a.txt", b"by the remote\n");
    check_that_no_filter_runs(&fixture.dir(), "x");
}

#[test]
fn a_filter_whose_script_the_remote_rewrote_does_not_run() {
    let fixture = ExportFixture::new(|dir| {
        fs::create_dir(dir.join("tools")).unwrap();
        fs::write(dir.join("tools/strip.sh"), "cat\n").unwrap();
        fs::write(dir.join(".gitattributes"), "*.txt filter=strip\n").unwrap();
        fs::write(dir.join("a.txt"), "before\n").unwrap();
        assert!(git(dir, &["init", "--quiet", "--initial-branch=main"]));
        assert!(git(dir, &["config", "filter.strip.clean", "sh tools/strip.sh"]) && git(dir, &["add", "--all"]));
        assert!(git(dir, &["commit", "--quiet", "-m", "first"]));
    });
    fixture.write("tools/strip.sh", trap(&fixture.dir()).as_bytes());
    fixture.write("a.txt", b"by the remote\n");
    check_that_no_filter_runs(&fixture.dir(), "strip");
}
