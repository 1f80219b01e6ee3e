//! Staged leases on real file systems: the copy that a remote works in, and how its changes get into the folder.

use std::{
    cell::Cell,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use attache_protocol::wire::{
    awcp::AccessMode,
    delegation::{ApplyChoice, ApplyRequest, ApplyResult, ConflictHunk},
};
use attache_workspace::{
    export::{
        AttributeChange, CreateMode, Export, ExportPatterns, ExportTerms, FileOpenOptions, LeaseRecord, NoExportAudit,
        OriginalsFolder,
    },
    report::{self, AcceptedStates},
    staging::{self, ApplyTarget, CopyError, CopyLimits},
};

const LIMITS: CopyLimits = CopyLimits { bytes: 1 << 30 };
const MAKING: &str = ".attache-apply-test";

/// A folder of an owner.
struct OwnedFolder {
    all: tempfile::TempDir,
    rules: ExportPatterns,
}

/// A copy of it, as one collaborator has it.
struct Collaborator<'a> {
    of: &'a OwnedFolder,
    name: &'static str,
    applied: AcceptedStates,
}

impl OwnedFolder {
    fn new(prepare: impl FnOnce(&Path)) -> Self {
        Self::with(ExportPatterns::default(), prepare)
    }

    fn with(rules: ExportPatterns, prepare: impl FnOnce(&Path)) -> Self {
        let all = tempfile::tempdir().unwrap();
        fs::create_dir(all.path().join("folder")).unwrap();
        prepare(&all.path().join("folder"));
        Self { all, rules }
    }

    fn path(&self) -> PathBuf {
        self.all.path().canonicalize().unwrap().join("folder")
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path().join(path)).unwrap_or_else(|error| format!("({error})"))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn stage(&self, name: &'static str) -> Collaborator<'_> {
        fs::create_dir(self.all.path().join(name)).unwrap();
        let staged = Collaborator { of: self, name, applied: AcceptedStates::new() };
        staging::make_copy(&self.path(), &staged.copy(), &self.rules, LIMITS, &|| true).unwrap();
        staged
    }

    /// Every path in the folder, with what makes it up.
    fn listed(&self) -> Vec<(String, String)> {
        listed(&self.path())
    }
}

fn listed(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let attributes = path.symlink_metadata().unwrap();
            let content = if attributes.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if attributes.is_dir() {
                folders.push(path.clone());
                "folder".to_owned()
            } else {
                String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
            };
            let mode = if attributes.is_symlink() { 0 } else { attributes.mode() & 0o777 };
            found.push((path.strip_prefix(dir).unwrap().display().to_string(), format!("{mode:o} {content}")));
        }
    }
    found.sort();
    found
}

impl Collaborator<'_> {
    fn place(&self) -> PathBuf {
        self.of.all.path().canonicalize().unwrap().join(self.name)
    }

    fn copy(&self) -> PathBuf {
        self.place().join("files")
    }

    /// What the remote does, through the export that serves the copy.
    fn works(&self, work: impl FnOnce(&Export)) {
        let terms = ExportTerms {
            rules: self.of.rules.clone(),
            copy_of: Some(self.of.path()),
            ..ExportTerms::new(AccessMode::Rw)
        };
        let base = OriginalsFolder::in_folder(self.place().join("base"));
        let export = Export::open(&self.copy(), terms, base, Arc::new(NoExportAudit)).unwrap();
        work(&export);
        export.revoke();
    }

    fn record(&self) -> LeaseRecord {
        LeaseRecord::load(&self.place().join("base")).unwrap()
    }

    fn apply(&mut self, request: &ApplyRequest) -> ApplyResult {
        let (before, folder) = (self.place().join("before"), self.of.path());
        let target = ApplyTarget { folder: &folder, before: &before, rules: &self.of.rules, making: MAKING };
        let applied = std::mem::take(&mut self.applied);
        let done = staging::apply(&self.copy(), &self.record(), &target, request, applied, &mut |_| {}).unwrap();
        self.applied = done.applied;
        done.result
    }

    fn apply_all(&mut self) -> ApplyResult {
        self.apply(&ApplyRequest::default())
    }

    fn reverts(&self) -> Vec<String> {
        let record = LeaseRecord::load(&self.place().join("before")).unwrap();
        let reverted = report::revert(&self.of.path(), &record, &Default::default()).unwrap();
        assert_eq!(reverted.kept, []);
        reverted.restored
    }
}

fn put(export: &Export, path: &str, text: &str) {
    let how =
        FileOpenOptions { write: true, truncate: true, create: CreateMode::IfMissing, ..FileOpenOptions::default() };
    export.open_file(path.as_bytes(), &how).unwrap().write_at(0, text.as_bytes()).unwrap();
}

fn paths(paths: &[&str]) -> ApplyRequest {
    ApplyRequest { paths: paths.iter().map(|path| (*path).to_owned()).collect(), ..ApplyRequest::default() }
}

fn names(kept: &ApplyResult) -> Vec<(&str, bool)> {
    kept.kept.iter().map(|kept| (&*kept.path, kept.conflict)).collect()
}

#[test]
fn a_copy_has_what_the_lease_shows() {
    let rules = ExportPatterns { exclude: vec!["target/".to_owned()], ..ExportPatterns::default() };
    let owned = OwnedFolder::with(rules, |dir| {
        for (path, text) in
            [("a/b.txt", "b"), (".env", "SECRET"), ("target/x", "x"), ("run.sh", "#!"), (".git/HEAD", "ref: x")]
        {
            fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            fs::write(dir.join(path), text).unwrap();
        }
        fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
        fs::set_permissions(dir.join("a"), fs::Permissions::from_mode(0o555)).unwrap();
        symlink("a/b.txt", dir.join("link")).unwrap();
        assert!(Command::new("mkfifo").arg(dir.join("pipe")).status().unwrap().success());
    });
    let staged = owned.stage("one");
    let expected = [
        (".git", "755 folder"),
        (".git/HEAD", "644 ref: x"),
        ("a", "555 folder"),
        ("a/b.txt", "644 b"),
        ("link", "0 -> a/b.txt"),
        ("run.sh", "750 #!"),
    ];
    assert_eq!(listed(&staged.copy()), expected.map(|(path, what)| (path.to_owned(), what.to_owned())));
    let times = |dir: PathBuf| {
        ["a", "a/b.txt", "run.sh"].map(|path| {
            let found = dir.join(path).metadata().unwrap();
            (found.mtime(), found.mtime_nsec())
        })
    };
    assert_eq!(times(staged.copy()), times(owned.path()));
    assert_eq!(staged.place().join("files").metadata().unwrap().mode() & 0o777, 0o700);
    assert_ne!(
        staged.copy().join("run.sh").metadata().unwrap().ino(),
        owned.path().join("run.sh").metadata().unwrap().ino()
    );
}

#[test]
fn a_copy_that_does_not_fit_or_is_given_up_leaves_nothing() {
    let owned = OwnedFolder::new(|dir| fs::write(dir.join("file"), vec![1; 3 << 20]).unwrap());
    let to = owned.all.path().join("copy");
    let made = |limits, go_on: &dyn Fn() -> bool| staging::make_copy(&owned.path(), &to, &owned.rules, limits, go_on);
    let error = made(CopyLimits { bytes: 2 << 20 }, &|| true).unwrap_err();
    assert_eq!(error.to_string(), "the folder has 3 MiB, and all copies together may have 2 MiB more");
    let asked = Cell::new(0);
    let error = made(LIMITS, &|| asked.replace(asked.get() + 1) < 1).unwrap_err();
    assert!(matches!(error, CopyError::GivenUp), "{error}");
    assert!(!to.exists());
    assert_eq!(made(LIMITS, &|| true).unwrap().bytes, 3 << 20);
}

#[test]
fn a_full_disk_is_reported_with_what_is_needed() {
    let owned = OwnedFolder::new(|dir| fs::write(dir.join("file"), vec![1; 3 << 20]).unwrap());
    let small = owned.all.path().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(&small).output();
    if !mounted.is_ok_and(|done| done.status.success()) {
        println!("skipped: mounting a small disk needs root");
        return;
    }
    let error = staging::make_copy(&owned.path(), &small.join("copy"), &owned.rules, LIMITS, &|| true).unwrap_err();
    let left = fs::read_dir(&small).unwrap().count();
    assert!(Command::new("umount").arg(&small).status().unwrap().success());
    assert_eq!(error.to_string(), "the copy needs 3 MiB, and the disk has 2 MiB to spare");
    assert_eq!(left, 0);
}

#[test]
fn nothing_changes_in_the_folder_until_it_is_applied() {
    let owned = OwnedFolder::new(|dir| {
        for (path, text) in [("edit.txt", "old\n"), ("gone/old.txt", "old\n"), ("kind", "a file\n"), ("dir/x", "x\n")] {
            fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            fs::write(dir.join(path), text).unwrap();
        }
    });
    let mut staged = owned.stage("one");
    let before = owned.listed();
    staged.works(|export| {
        put(export, "edit.txt", "new\n");
        export
            .set_attributes(b"edit.txt", &AttributeChange { mode: Some(0o755), ..AttributeChange::default() })
            .unwrap();
        export.remove_file(b"gone/old.txt").unwrap();
        export.remove_dir(b"gone").unwrap();
        export.remove_file(b"kind").unwrap();
        export.make_dir(b"kind", 0o755).unwrap();
        put(export, "kind/now.txt", "in a folder\n");
        export.remove_file(b"dir/x").unwrap();
        export.remove_dir(b"dir").unwrap();
        export.symlink(b"edit.txt", b"dir").unwrap();
        // Absolute paths mean the owner's folder.
        assert_eq!(export.read_link(b"dir").unwrap(), b"edit.txt");
        export.make_dir(b"deep", 0o700).unwrap();
        export.make_dir(b"deep/er", 0o755).unwrap();
        put(export, "deep/er/made.txt", "made\n");
    });
    assert_eq!(owned.listed(), before);
    let check = staged.apply(&ApplyRequest { check: true, ..ApplyRequest::default() });
    assert_eq!((owned.listed(), check.kept.len()), (before.clone(), 0));
    // One file, with the folders that it needs.
    let applied = staged.apply(&paths(&["deep/er/made.txt"]));
    assert_eq!(applied.applied, ["deep/er/made.txt"]);
    assert_eq!((owned.read("deep/er/made.txt"), owned.read("edit.txt")), ("made\n".into(), "old\n".into()));
    // A removed file takes its folder along.
    staged.apply(&paths(&["gone/old.txt"]));
    assert!(!owned.path().join("gone").exists());
    let applied = staged.apply_all();
    assert_eq!((applied.unapplied, names(&applied)), (0, vec![]));
    assert_eq!(owned.listed(), listed(&staged.copy()));
    assert_eq!(staged.apply_all().applied, [""; 0]);
    // What was applied can be reverted like the changes of any lease.
    staged.reverts();
    assert_eq!(owned.listed(), before);
}

/// The copy is private, so in it a mode means nothing. In the folder, it would let every user of the machine write.
#[test]
fn nobody_else_may_write_because_of_what_was_applied() {
    let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let owned = OwnedFolder::new(|dir| {
        for (path, mode) in [("plain", 0o644), ("group", 0o664), ("merged", 0o644)] {
            fs::write(dir.join(path), "old\n").unwrap();
            chmod(&dir.join(path), mode);
        }
    });
    let mut staged = owned.stage("one");
    staged.works(|export| {
        export.make_dir(b"new", 0o755).unwrap();
        for path in ["new/file", "plain", "group", "merged"] {
            put(export, path, "new\n");
        }
        for path in ["new", "new/file", "plain", "group", "merged"] {
            let change = AttributeChange { mode: Some(0o777), ..AttributeChange::default() };
            export.set_attributes(path.as_bytes(), &change).unwrap();
        }
    });
    fs::write(owned.path().join("merged"), "mine\n").unwrap();
    staged.apply(&paths(&["new/file"]));
    let applied = staged.apply(&ApplyRequest { take: Some(ApplyChoice::Theirs), ..ApplyRequest::default() });
    assert_eq!((applied.unapplied, names(&applied)), (0, vec![]));
    let mode = |path: &str| format!("{:o}", owned.path().join(path).metadata().unwrap().mode() & 0o7777);
    assert_eq!(["new", "new/file", "plain", "group", "merged"].map(mode), ["755", "755", "755", "775", "755"]);
    assert_eq!(staged.apply_all().applied, [""; 0]);
}

#[test]
fn results_merge_one_after_another() {
    let text = |changed: &[(usize, &str)]| -> String {
        (1..=20)
            .map(|number| {
                changed
                    .iter()
                    .find(|(at, _)| *at == number)
                    .map_or(format!("{number}\n"), |(_, line)| format!("{line}\n"))
            })
            .collect()
    };
    let owned = OwnedFolder::new(|dir| {
        for name in ["both.txt", "clash.txt", "removed.txt", "data.bin"] {
            fs::write(dir.join(name), text(&[])).unwrap();
        }
        fs::write(dir.join("data.bin"), b"\0base").unwrap();
    });
    let (mut first, mut second) = (owned.stage("first"), owned.stage("second"));
    first.works(|export| {
        put(export, "both.txt", &text(&[(2, "first")]));
        put(export, "clash.txt", &text(&[(3, "first"), (6, "kept"), (10, "same")]));
        put(export, "removed.txt", &text(&[(1, "first")]));
        put(export, "data.bin", "\0first");
        put(export, "new-first.txt", "first\n");
    });
    second.works(|export| {
        put(export, "both.txt", &text(&[(18, "second")]));
        put(export, "clash.txt", &text(&[(3, "second"), (10, "same"), (15, "fine")]));
        export.remove_file(b"removed.txt").unwrap();
        put(export, "data.bin", "\0second");
        put(export, "new-second.txt", "second\n");
    });
    assert_eq!(first.apply_all().kept, []);
    let applied = second.apply_all();
    assert_eq!(applied.applied, ["both.txt", "new-second.txt"]);
    assert_eq!(applied.merged, ["both.txt"]);
    assert_eq!(owned.read("both.txt"), text(&[(2, "first"), (18, "second")]));
    assert_eq!(names(&applied), [("removed.txt", true), ("clash.txt", true), ("data.bin", true)]);
    let hunk = ConflictHunk { line: 3, base: "3\n".into(), mine: "first\n".into(), theirs: "second\n".into() };
    assert_eq!(applied.kept[1].hunks, [hunk]);
    assert_eq!((applied.unapplied, owned.read("clash.txt")), (3, text(&[(3, "first"), (6, "kept"), (10, "same")])));
    // Each is asked about, only the lines that both changed are replaced, and the version that loses isn't lost.
    let taken = second.apply(&ApplyRequest { take: Some(ApplyChoice::Theirs), ..paths(&["clash.txt", "removed.txt"]) });
    let merged = text(&[(3, "second"), (6, "kept"), (10, "same"), (15, "fine")]);
    assert_eq!((taken.kept.len(), owned.read("clash.txt")), (0, merged));
    assert!(!owned.path().join("removed.txt").exists());
    let mine = second.apply(&ApplyRequest { take: Some(ApplyChoice::Mine), ..ApplyRequest::default() });
    assert_eq!((mine.discarded, mine.unapplied), (vec!["data.bin".to_owned()], 0));
    assert_eq!(fs::read(owned.path().join("data.bin")).unwrap(), b"\0first");
    // The second's changes go, and the first's stay.
    second.reverts();
    assert_eq!(owned.read("clash.txt"), text(&[(3, "first"), (6, "kept"), (10, "same")]));
    assert_eq!(owned.read("removed.txt"), text(&[(1, "first")]));
    assert_eq!(owned.read("both.txt"), text(&[(2, "first")]));
}

#[test]
fn what_the_lease_hides_is_not_reached_by_applying() {
    let rules = ExportPatterns { exclude: vec!["hidden/".to_owned()], ..ExportPatterns::default() };
    let owned = OwnedFolder::with(rules, |dir| {
        git(dir, &["init", "--quiet"]);
        fs::create_dir(dir.join("hidden")).unwrap();
        fs::write(dir.join(".env"), "SECRET\n").unwrap();
    });
    let mut staged = owned.stage("one");
    staged.works(|export| {
        assert!(export.attributes(b".env").is_err() && export.attributes(b"hidden").is_err());
        for path in ["hidden/x", ".env", ".git/config", ".git/hooks/post-checkout"] {
            let how = FileOpenOptions { write: true, create: CreateMode::IfMissing, ..FileOpenOptions::default() };
            assert!(export.open_file(path.as_bytes(), &how).is_err(), "{path}");
        }
        put(export, "plain.txt", "plain\n");
    });
    // Whoever writes to the copy by another way gets no further.
    put_in_record(&staged, ".env", "TAKEN\n");
    put_in_record(&staged, ".git/config", "[core]\nfsmonitor = touch trapped\n");
    let applied = staged.apply(&ApplyRequest { take: Some(ApplyChoice::Theirs), ..ApplyRequest::default() });
    assert_eq!(applied.applied, ["plain.txt"]);
    assert_eq!(names(&applied), [(".env", false), (".git/config", false)]);
    assert_eq!(owned.read(".env"), "SECRET\n");
    assert!(!owned.read(".git/config").contains("fsmonitor"));
}

/// A file in the copy, and its line in the record, that no export would have allowed.
fn put_in_record(staged: &Collaborator<'_>, path: &str, text: &str) {
    use std::io::Write as _;
    fs::write(staged.copy().join(path), text).unwrap();
    let line = format!("{{\"path\":{path:?},\"was\":\"absent\"}}\n");
    let mut index = fs::OpenOptions::new().append(true).open(staged.place().join("base/index.jsonl")).unwrap();
    index.write_all(line.as_bytes()).unwrap();
}

/// The folder isn't what it was when the copy was made, so every rule is asked again.
#[test]
fn the_rules_of_the_folder_hold_when_changes_are_applied() {
    let rules = ExportPatterns { exclude: vec!["objects/".to_owned()], ..ExportPatterns::default() };
    let outside = tempfile::tempdir().unwrap();
    let owned = OwnedFolder::with(rules, |dir| {
        fs::create_dir_all(dir.join("work")).unwrap();
        fs::create_dir_all(dir.join("dir")).unwrap();
        fs::write(dir.join("dir/file.txt"), "old\n").unwrap();
        fs::write(dir.join(".npmrc"), "color=true\n").unwrap();
    });
    let mut staged = owned.stage("one");
    staged.works(|export| {
        put(export, "work/HEAD", "ref: refs/heads/main\n");
        put(export, "dir/file.txt", "new\n");
        put(export, ".npmrc", "color=false\n");
        put(export, "plain.txt", "plain\n");
    });
    // What the copy doesn't have makes it a repository here.
    fs::create_dir_all(owned.path().join("work/objects")).unwrap();
    fs::create_dir_all(owned.path().join("work/refs")).unwrap();
    // A link in place of a folder leads out.
    fs::rename(owned.path().join("dir"), outside.path().join("dir")).unwrap();
    symlink(outside.path().join("dir"), owned.path().join("dir")).unwrap();
    owned.write(".npmrc", "//registry.example/:_authToken=secret\n");
    let applied = staged.apply(&ApplyRequest { take: Some(ApplyChoice::Theirs), ..ApplyRequest::default() });
    assert_eq!(applied.applied, ["plain.txt"]);
    let kept: Vec<_> = applied.kept.iter().map(|kept| &*kept.path).collect();
    assert_eq!(kept, [".npmrc", "dir/file.txt", "work/HEAD"]);
    assert!(!owned.path().join("work/HEAD").exists());
    assert_eq!(fs::read_to_string(outside.path().join("dir/file.txt")).unwrap(), "old\n");
    assert_eq!(owned.read(".npmrc"), "//registry.example/:_authToken=secret\n");
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=Ann", "-c", "user.email=ann@localhost"]).args(args);
    let output = git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Does in the copy what git at the remote would do: objects first, then the files that refer to them.
fn commits(staged: &Collaborator<'_>, text: &str) -> String {
    let elsewhere = staged.place().join("remote");
    assert!(Command::new("cp").arg("-a").arg(staged.copy()).arg(&elsewhere).status().unwrap().success());
    fs::write(elsewhere.join("file.txt"), text).unwrap();
    git(&elsewhere, &["commit", "--quiet", "--all", "--message", text]);
    let (there, here) = (listed_bytes(&elsewhere), listed_bytes(&staged.copy()));
    staged.works(|export| {
        let mut new: Vec<_> = there.iter().filter(|entry| !here.contains(entry)).collect();
        new.sort_by_key(|(path, _)| (!path.contains("objects/"), path.clone()));
        for (path, bytes) in new {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            if !staged.copy().join(folder).exists() {
                export.make_dir(folder.as_bytes(), 0o755).unwrap();
            }
            if !path.starts_with(".git/") || path.contains("logs/") || path.ends_with("COMMIT_EDITMSG") {
                let how = FileOpenOptions {
                    write: true,
                    truncate: true,
                    create: CreateMode::IfMissing,
                    ..FileOpenOptions::default()
                };
                export.open_file(path.as_bytes(), &how).unwrap().write_at(0, bytes).unwrap();
                continue;
            }
            let making = if path.contains("objects/") { format!("{folder}/tmp_obj_x") } else { format!("{path}.lock") };
            let how = FileOpenOptions {
                write: true,
                truncate: true,
                create: CreateMode::IfMissing,
                ..FileOpenOptions::default()
            };
            export.open_file(making.as_bytes(), &how).unwrap().write_at(0, bytes).unwrap();
            let replace = attache_workspace::export::ReplaceMode::Always;
            export.rename(making.as_bytes(), path.as_bytes(), replace).unwrap();
        }
    });
    git(&elsewhere, &["rev-parse", "HEAD"])
}

fn listed_bytes(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let files = listed(dir).into_iter().map(|(path, _)| path).filter(|path| dir.join(path).is_file());
    files.map(|path| (path.clone(), fs::read(dir.join(path)).unwrap())).collect()
}

#[test]
fn commits_are_applied_with_their_objects() {
    let owned = OwnedFolder::new(|dir| {
        git(dir, &["init", "--quiet", "--initial-branch=main"]);
        fs::write(dir.join("file.txt"), "one\n").unwrap();
        git(dir, &["add", "."]);
        git(dir, &["commit", "--quiet", "--message", "first"]);
    });
    let (mut first, mut second) = (owned.stage("first"), owned.stage("second"));
    let (one, other) = (commits(&first, "two\n"), commits(&second, "three\n"));
    // Git has looked at the folder meanwhile, which changes the index, and nothing that it says.
    fs::write(owned.path().join("file.txt"), "one\n").unwrap();
    git(&owned.path(), &["status"]);
    let applied = first.apply_all();
    assert_eq!((&*applied.kept, applied.unapplied), (&[][..], 0));
    assert_eq!(
        (git(&owned.path(), &["rev-parse", "HEAD"]), git(&owned.path(), &["status", "--porcelain"])),
        (one, String::new())
    );
    git(&owned.path(), &["fsck", "--strict"]);
    // The other commit is there, and a person merges it.
    let applied = second.apply_all();
    assert_eq!(applied.applied, [""; 0]);
    let branch = applied.kept.iter().find(|kept| kept.path == ".git/refs/heads/main").unwrap();
    assert!(branch.conflict && branch.reason.ends_with(&format!("git merge {other}")), "{branch:?}");
    assert_eq!(git(&owned.path(), &["cat-file", "-t", &other]), "commit");
    // Not even if the remote's version is wanted: the branch has commits that the remote doesn't know.
    let taken = second.apply(&ApplyRequest { take: Some(ApplyChoice::Theirs), ..ApplyRequest::default() });
    assert!(taken.kept.iter().any(|kept| kept.path == ".git/refs/heads/main" && kept.conflict), "{:?}", taken.kept);
    assert_eq!(owned.read("file.txt"), "three\n");
    assert_eq!(git(&owned.path(), &["log", "--format=%s"]), "two\nfirst");
}

/// An edit between the comparison and the change stays.
#[test]
fn an_apply_and_an_editor_race() {
    let owned = OwnedFolder::new(|dir| {
        for number in 0..300 {
            fs::write(dir.join(format!("{number}.txt")), "base\n").unwrap();
        }
    });
    let mut staged = owned.stage("one");
    staged.works(|export| (0..300).for_each(|number| put(export, &format!("{number}.txt"), "theirs\n")));
    let folder = owned.path();
    let editor = std::thread::spawn(move || {
        for number in (0..300).rev() {
            let (made, path) = (folder.join(format!(".{number}.tmp")), folder.join(format!("{number}.txt")));
            fs::write(&made, "edited here\n").unwrap();
            fs::rename(made, path).unwrap();
        }
    });
    let applied = staged.apply_all();
    editor.join().unwrap();
    let kept: Vec<&str> = applied.kept.iter().map(|kept| &*kept.path).collect();
    for number in 0..300 {
        let path = format!("{number}.txt");
        let content = owned.read(&path);
        // Edited before it was applied, or after.
        assert_eq!(content, "edited here\n", "{path}");
        assert!(kept.contains(&&*path) || applied.applied.contains(&path), "{path}");
    }
    assert_eq!(listed(&owned.path()).len(), 300, "nothing unfinished is left");
}

#[test]
fn an_interrupted_apply_leaves_whole_files_and_can_be_repeated() {
    let owned = OwnedFolder::new(|dir| {
        for name in ["a.txt", "b.txt", "m.txt"] {
            fs::write(dir.join(name), "1\n2\n3\n4\n5\n").unwrap();
        }
    });
    let mut staged = owned.stage("one");
    staged.works(|export| {
        for name in ["a.txt", "b.txt"] {
            put(export, name, "theirs\n");
        }
        put(export, "m.txt", "1\n2\n3\n4\nfive\n");
    });
    owned.write("m.txt", "one\n2\n3\n4\n5\n");
    staged.apply(&paths(&["a.txt", "m.txt"]));
    assert_eq!(owned.read("m.txt"), "one\n2\n3\n4\nfive\n");
    // As if the process had been killed before it could remember that: with a file in the making, and an old one swapped out.
    staged.applied = AcceptedStates::new();
    owned.write(MAKING, "half a fi");
    let applied = staged.apply_all();
    assert_eq!((applied.kept.len(), applied.unapplied), (0, 0));
    assert_eq!(owned.read("m.txt"), "one\n2\n3\n4\nfive\n");
    assert_eq!(["a.txt", "b.txt"].map(|name| owned.read(name)), ["theirs\n", "theirs\n"]);
    assert!(!owned.path().join(MAKING).exists());
    let left = fs::read_dir(staged.place().join("before")).unwrap().flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("leftover")).collect();
    assert_eq!(fs::read_to_string(left[0].path()).unwrap(), "half a fi");
}
