//! What is fixed in repositories, found below a folder, and left behind.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

#[test]
fn everything_that_leads_git_to_programs_is_fixed_and_nothing_stays() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    assert_eq!(
        GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap().fixed,
        Vec::<PathBuf>::new()
    );
    for repository in [".git", ".git/modules/lib/sub", "nested/.git", ".git/worktrees/other"] {
        fs::create_dir_all(root.join(repository)).unwrap();
        for file in ["HEAD", "config"] {
            fs::write(root.join(repository).join(file), "").unwrap();
        }
    }
    fs::write(root.join(".git/worktrees/other/commondir"), "../..").unwrap();
    fs::create_dir_all(root.join("lib/sub")).unwrap();
    fs::write(root.join("lib/sub/.git"), "gitdir: ../../.git/modules/lib/sub\n").unwrap();
    let own = || {
        let mut found: Vec<_> =
            walk(&root).into_iter().filter(|path| !FOLDERS.iter().any(|name| path.ends_with(name))).collect();
        found.sort();
        found
    };
    let before = own();
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    let mut fixed = guarded.fixed.clone();
    fixed.sort();
    let mut expected = vec![root.join("lib/sub/.git")];
    for repository in [".git", ".git/modules/lib/sub", "nested/.git"] {
        let names = ["hooks", "remotes", "branches", "worktrees", "config", "config.worktree", "commondir"];
        expected.extend(names.map(|name| root.join(repository).join(name)));
    }
    expected.sort();
    assert_eq!(fixed, expected);
    assert_eq!(fs::read_to_string(root.join(".git/commondir")).unwrap(), ".\n");
    // The next one shares them.
    let second = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    drop(guarded);
    assert!(root.join(".git/commondir").exists());
    drop(second);
    assert_eq!(own(), before);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// Git would print lines of what it leads to.
#[test]
fn what_leads_to_other_objects_is_fixed() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir_all(root.join(".git/objects")).unwrap();
    let lists = OTHER_OBJECTS.map(|name| root.join(".git/objects/info").join(name));
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    for list in &lists {
        assert!(guarded.fixed.contains(list) && list.is_file(), "{guarded:?}");
    }
    drop(guarded);
    assert!(lists.iter().all(|list| !list.exists()));
    symlink("/etc/passwd", &lists[0]).unwrap();
    let refused = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap_err().to_string();
    assert!(refused.contains("info/alternates is a link"), "{refused}");
}

/// A run could make so many that the folder's own was left out.
#[test]
fn the_folders_own_repository_is_always_fixed() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    for name in ["objects", "refs", "HEAD", ".git"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    fs::write(root.join(".git/config"), "").unwrap();
    let long = "x".repeat(200);
    let make = |count: usize| {
        for number in 0..count {
            let module = root.join(format!("modules/{long}{number}"));
            fs::create_dir_all(&module).unwrap();
            fs::write(module.join("HEAD"), "").unwrap();
        }
    };
    make(60);
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    assert!(guarded.fixed.contains(&root.join(".git/config")));
    assert!(guarded.fixed.contains(&root.join(".git/remotes")));
    drop(guarded);
    // Links lead nowhere, and too many are refused rather than left out.
    symlink(root.join("modules"), root.join(".git/modules")).unwrap();
    fs::create_dir_all(root.join("sub/store")).unwrap();
    fs::write(root.join("sub/store/config"), "").unwrap();
    symlink("store", root.join("sub/.git")).unwrap();
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    assert!(guarded.fixed.contains(&root.join("sub/store/config")));
    drop(guarded);
    // Otherwise no later run could start.
    make(1500);
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    for own in [".git/config", ".git/remotes", "config", "sub/store/config"] {
        assert!(guarded.fixed.contains(&root.join(own)), "{own}");
    }
    assert!(guarded.left_out > 1000, "{}", guarded.left_out);
}

/// A run changes them, and git obeys them outside.
#[test]
fn what_the_settings_include_is_fixed() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir_all(root.join(".git/deep")).unwrap();
    let settings = "[include]\n\tpath = more\n\tpath = ../team.ini\n\tpath = /etc/passwd\n[IncludeIf \"onbranch:x\"]\n\tpath = deep/later\n";
    fs::write(root.join(".git/config"), settings).unwrap();
    fs::write(root.join(".git/more"), "[include]\n\tpath = even-more\n").unwrap();
    fs::write(root.join("team.ini"), "").unwrap();
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    for name in [".git/more", ".git/even-more", ".git/deep/later", "team.ini"] {
        assert!(guarded.fixed.contains(&root.join(name)) && root.join(name).is_file(), "{name} {guarded:?}");
    }
    assert!(!guarded.fixed.contains(&PathBuf::from("/etc/passwd")));
    drop(guarded);
    assert!(!root.join(".git/even-more").exists() && !root.join(".git/deep/later").exists());
}

/// Nor does a link in a repository that a run made keep the next one from starting.
#[test]
fn what_is_no_repository_does_not_count() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("empty/.git")).unwrap();
    fs::create_dir_all(root.join("led/.git/objects/info")).unwrap();
    fs::write(root.join("led/.git/HEAD"), "").unwrap();
    symlink("/etc/passwd", root.join("led/.git/objects/info/alternates")).unwrap();
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    assert!(guarded.fixed.contains(&root.join("led/.git/hooks")));
    assert!(guarded.fixed.iter().all(|path| !path.starts_with(root.join("empty"))), "{guarded:?}");
}

/// Nor can it make so many folders that another repository isn't found.
#[test]
fn older_repositories_are_found_among_many_folders() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    let git = root.join("team/sub/lib/.git");
    fs::create_dir_all(&git).unwrap();
    fs::write(git.join("config"), "").unwrap();
    fs::write(git.join("HEAD"), "").unwrap();
    let before = created(&git).expect("this file system knows when a folder was made");
    let later = || {
        let probe = root.join("probe");
        fs::create_dir(&probe).unwrap();
        let is_later = created(&probe).unwrap() > before;
        fs::remove_dir(&probe).unwrap();
        is_later
    };
    while !later() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for number in 0..=MAX_FOLDERS {
        fs::create_dir(root.join(format!("d{number}"))).unwrap();
    }
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    assert!(guarded.fixed.contains(&git.join("config")));
}

#[test]
fn what_a_killed_process_left_is_removed_by_its_record() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir(root.join(".git")).unwrap();
    fs::write(root.join(".git/config"), "").unwrap();
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    let record = guarded.record.as_ref().unwrap().path().to_owned();
    tidy(&record);
    assert!(root.join(".git/commondir").exists(), "it is still held");
    let copy = scratch.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(record.join(RECORD), copy.join(RECORD)).unwrap();
    drop(guarded);
    fs::write(root.join(".git/commondir"), HERE).unwrap();
    fs::write(root.join(".git/config.worktree"), "[core]\n").unwrap();
    tidy(&copy);
    assert!(!root.join(".git/commondir").exists());
    assert!(root.join(".git/config.worktree").exists() && root.join(".git/config").exists(), "not ours");
    // What a run put there doesn't stop the next adapter.
    fs::remove_file(copy.join(RECORD)).unwrap();
    let private = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, copy.join(RECORD), rustix::fs::FileType::Fifo, private, 0).unwrap();
    tidy(&copy);
}

/// What isn't text leads git somewhere all the same, and is cleaned up as well.
#[test]
fn names_that_are_not_utf8_are_guarded_like_others() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    let store = root.join(OsStr::from_bytes(b"store\n\xff"));
    fs::create_dir(&store).unwrap();
    fs::write(store.join("config"), "").unwrap();
    fs::create_dir(root.join("linked")).unwrap();
    let pointer = [b"gitdir: ", store.as_os_str().as_bytes(), b"\n"].concat();
    fs::write(root.join("linked/.git"), pointer).unwrap();
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    let mut fixed = guarded.fixed.clone();
    fixed.sort();
    let mut expected = vec![root.join("linked/.git")];
    let names = ["branches", "commondir", "config", "config.worktree", "hooks", "remotes", "worktrees"];
    expected.extend(names.map(|name| store.join(name)));
    assert_eq!(fixed, expected);
    // As after a crash.
    let copy = scratch.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(guarded.record.as_ref().unwrap().path().join(RECORD), copy.join(RECORD)).unwrap();
    drop(guarded);
    fs::write(store.join(COMMON_FOLDER), HERE).unwrap();
    tidy(&copy);
    assert!(!store.join(COMMON_FOLDER).exists());
}

#[test]
fn a_link_is_refused_because_the_run_could_replace_it() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir(root.join("real")).unwrap();
    let link = |target: &str, name: &str| symlink(target, root.join(name)).unwrap();
    let refused = || GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap_err().to_string();
    link("real", ".git");
    let remedy = format!("put a file there instead: echo 'gitdir: {}/real' > .git", root.display());
    assert!(refused().ends_with(&remedy), "{}", refused());
    fs::remove_file(root.join(".git")).unwrap();
    fs::create_dir(root.join(".git")).unwrap();
    link("../real", ".git/hooks");
    let remedy = format!("remove it and use `git config core.hooksPath {}/real`", root.display());
    assert!(refused().ends_with(&remedy), "{}", refused());
}

/// Nothing in a hidden folder is looked at, changed, or shown because of what is in it.
#[test]
fn hidden_repositories_are_left_alone() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    for git in ["other/.git", "own/.git"] {
        fs::create_dir_all(root.join(git)).unwrap();
        fs::write(root.join(git).join("HEAD"), "").unwrap();
    }
    fs::create_dir(root.join("led")).unwrap();
    fs::write(root.join("led/.git"), "gitdir: ../other/.git\n").unwrap();
    let hidden = [root.join("other"), root.join("absent")];
    let guarded = GuardedRepository::new([root.as_path()], &hidden, scratch.path(), &env).unwrap();
    assert!(guarded.fixed.contains(&root.join("own/.git/config")), "{guarded:?}");
    assert!(guarded.fixed.iter().all(|path| !path.starts_with(root.join("other"))), "{guarded:?}");
    assert_eq!(fs::read_dir(root.join("other/.git")).unwrap().count(), 1);
    // The folder itself may be in a hidden one, as a worktree is.
    let above = [root.parent().unwrap().to_owned()];
    let guarded = GuardedRepository::new([root.as_path()], &above, scratch.path(), &env).unwrap();
    assert!(guarded.fixed.contains(&root.join("other/.git/config")), "{guarded:?}");
}

/// Whoever works in a folder chooses its mode, for the next run and for the owner.
#[test]
fn a_closed_folder_hides_no_repository() {
    as_ordinary_user(|| {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        for git in [".git/modules/lib", "sub/deep/.git"] {
            fs::create_dir_all(root.join(git)).unwrap();
            fs::write(root.join(git).join("HEAD"), "").unwrap();
        }
        fs::write(root.join(".git/config"), "[include]\n\tpath = ../team.ini\n").unwrap();
        let set = |path: &str, mode| fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        let wanted = [
            ".git/config",
            ".git/hooks",
            ".git/commondir",
            ".git/modules/lib/config",
            "sub/deep/.git/config",
            "team.ini",
        ];
        for mode in [0o000, 0o300, 0o500] {
            let close = || {
                set(".git/config", 0o000);
                [".git/modules", ".git", "sub/deep", "sub", "."].into_iter().for_each(|path| set(path, mode));
            };
            close();
            let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
            for path in wanted {
                assert!(guarded.fixed.contains(&root.join(path)), "{path} {mode:o} {guarded:?}");
            }
            // While the run works: its owner isn't left with that, and nothing stays.
            close();
            drop(guarded);
            assert!(!root.join(".git/commondir").exists() && fs::read_dir(root.join(".git")).is_ok());
        }
    });
}

#[test]
fn bare_repositories_are_found_below() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    for path in ["a/origin.git/objects/ab", "a/origin.git/refs", "a/origin.git/inner/.git", "store"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    for file in ["a/origin.git/HEAD", "a/origin.git/inner/.git/HEAD", "store/HEAD", "store/commondir"] {
        fs::write(root.join(file), "").unwrap();
    }
    let guarded = GuardedRepository::new([root.as_path()], &[], scratch.path(), &env).unwrap();
    for path in [
        "a/origin.git/hooks",
        "a/origin.git/config",
        "a/origin.git/inner/.git/config",
        "store/hooks",
        "store/commondir",
    ] {
        assert!(guarded.fixed.contains(&root.join(path)), "{path} {guarded:?}");
    }
}

/// A run would replace the link, or make the folder.
#[test]
fn what_the_settings_include_is_fixed_where_git_finds_it() {
    let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("sub/.git")).unwrap();
    fs::create_dir(root.join(".git")).unwrap();
    fs::write(root.join("sub/.git/HEAD"), "").unwrap();
    fs::write(root.join(".git/config"), "[include]\n\tpath = ../local/deep/git.inc\n").unwrap();
    let guarded = || GuardedRepository::new([root.as_path()], &[], scratch.path(), &env);
    let held = guarded().unwrap();
    assert!(held.fixed.contains(&root.join("local/deep/git.inc")), "{held:?}");
    drop(held);
    assert!(!root.join("local").exists());
    fs::create_dir(root.join("conf")).unwrap();
    symlink("conf/git.inc", root.join("gitinc")).unwrap();
    fs::write(root.join("sub/.git/config"), "[include]\n\tpath = ../../gitinc\n").unwrap();
    let held = guarded().unwrap();
    assert_eq!(held.exposed, [root.join("gitinc")]);
    assert!(held.fixed.contains(&root.join("conf/git.inc")), "{held:?}");
    drop(held);
    for link in ["../gitinc", "../way/git.inc"] {
        fs::write(root.join(".git/config"), format!("[include]\n\tpath = {link}\n")).unwrap();
        let _ = symlink("conf", root.join("way"));
        let refused = guarded().unwrap_err().to_string();
        assert!(refused.contains("is a link, which the task could replace"), "{refused}");
    }
}

/// Root may look everywhere, so it tries this as another user.
fn as_ordinary_user(attempt: impl FnOnce() + Send) {
    let in_thread = || {
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        attempt();
    };
    std::thread::scope(|scope| scope.spawn(in_thread).join().unwrap());
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], walk(&path)].concat() } else { vec![path] })
        .collect()
}
