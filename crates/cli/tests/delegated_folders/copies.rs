//! Sync mode from end to end: a remote that can't mount, or doesn't want to, works in a copy.

use std::{fs, process::Command};

use super::world::{DelegationWorld, FolderRoute};
use crate::harness::until;

const ONLY_COPIES: &str = "mount_transports = [\"sync\"]\n";

#[test]
fn a_remote_that_mounts_nothing_works_in_a_copy() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, ONLY_COPIES) else { return };
    world.write("src/main.txt", "given\n");
    world.write("old.txt", "old\n");
    world.write("renamed.txt", "the same\n");
    world.write(".env", "SECRET=1\n");
    // The copy is no mount, and what the host edits meanwhile arrives.
    let script = "grep -c \" $(pwd) \" /proc/self/mounts; ls -A | tr '\\n' ' '; cat src/main.txt
        echo edited > src/main.txt; mkdir made; echo made > made/new.txt; rm old.txt; mv renamed.txt moved.txt
        while ! test -e from-the-host.txt; do sleep 0.1; done; cat from-the-host.txt";
    let delegation = world.delegate_in_background(&[], script);
    until("the agent's work to arrive", || (world.read("made/new.txt") == "made\n").then_some(()));
    assert_eq!(delegation.show()["transport"], "sync/1");
    world.write("from-the-host.txt", "hello\n");
    let ended = delegation.ended();
    assert_eq!(ended["status"], "completed", "{ended}");
    let said = ended["result"]["final_summary"].as_str().unwrap();
    assert!(said.ends_with("old.txt renamed.txt src given\nhello\n"), "{said}");
    assert!(!said.contains(".env"), "{said}");
    assert_eq!(world.read("src/main.txt"), "edited\n");
    assert_eq!(world.read("moved.txt"), "the same\n");
    assert!(!world.folder.join("old.txt").exists() && !world.folder.join("renamed.txt").exists());
    world.is_clean(std::time::Duration::from_secs(30));
    // The changes are known as those of any other lease.
    world.delegations(&["revert", ended["delegation_id"].as_str().unwrap()]).succeeds();
    assert_eq!((world.read("src/main.txt"), world.read("old.txt")), ("given\n".to_owned(), "old\n".to_owned()));
    assert!(!world.folder.join("made").exists());
}

/// Inside walls, files that keep git's settings fixed are in the repository for as long as the agent works. They are not the
/// agent's work.
#[test]
fn the_agent_commits_in_its_copy() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, ONLY_COPIES) else { return };
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(&world.folder).args(["-c", "user.name=Ann", "-c", "user.email=ann@localhost"]).args(args);
        let output = git.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    world.write("file.txt", "one\n");
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "first"]);
    let script = "echo two > file.txt
        git -c user.name=Bob -c user.email=bob@localhost commit --quiet -a -m second && git log --format=%s";
    let ended = world.delegate(&[], script);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["result"]["final_summary"], "second\nfirst\n");
    assert_eq!(ended["result"]["notes"], serde_json::Value::Null, "{ended}");
    assert_eq!(git(&["log", "--format=%s %an"]), "second Bob\nfirst Ann\n");
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert!(!world.folder.join(".git/commondir").exists());
    world.is_clean(std::time::Duration::from_secs(30));
}

#[test]
fn a_copy_is_removed_when_the_delegation_is_cancelled() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, ONLY_COPIES) else { return };
    world.write("file.txt", "confidential\n");
    let delegation = world.delegate_in_background(&[], "echo here > here.txt; sleep 600");
    until("the agent to work", || (world.read("here.txt") == "here\n").then_some(()));
    world.delegations(&["cancel", &delegation.id]).succeeds();
    assert_eq!(delegation.ended()["status"], "cancelled");
    world.is_clean(std::time::Duration::from_secs(30));
}

/// A host can ask for it, and `ro` holds: what the agent changes stays in its copy, and is named.
#[test]
fn a_read_only_copy_changes_nothing() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    world.write("file.txt", "kept\n");
    let ended = world.delegate(&["--transport", "sync", "--access-mode", "ro"], "cat file.txt; echo x > file.txt");
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(world.read("file.txt"), "kept\n");
    let notes = ended["result"]["notes"].as_str().unwrap_or_default();
    assert!(notes.contains("file.txt (the folder is shared read-only)"), "{ended}");
    assert_eq!(fs::read_dir(&world.folder).unwrap().count(), 1);
}
