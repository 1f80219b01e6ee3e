//! Staged delegations: several remotes work in one folder at the same time, and the folder changes when its owner applies it.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::world::{DelegationWorld, FolderRoute, StartedDelegation};
use crate::harness::{TestTerminal, has, until};

/// Twenty lines, some of them changed.
fn lines(changed: &[(usize, &str)]) -> String {
    let line = |number: usize| {
        changed.iter().find(|(at, _)| *at == number).map_or_else(|| number.to_string(), |(_, text)| (*text).to_owned())
    };
    (1..=20).map(|number| line(number) + "\n").collect()
}

/// A remote that works on several delegations at a time.
fn world_of_several() -> Option<DelegationWorld> {
    let mut world = DelegationWorld::new(FolderRoute::Direct, "")?;
    world.runtime.take().unwrap().terminate();
    world.runtime = Some(world.remote.runtime(&["--concurrency", "3"]));
    Some(world)
}

/// The copy that a remote works in.
fn copy(world: &DelegationWorld, id: &str) -> PathBuf {
    world.host.path().join(".AWCP/delegations").join(id).join("staged/files")
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
}

fn paths(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect()
}

/// One after another would never end: each waits until all of them work.
fn together(script: &str) -> String {
    format!("echo here > here.txt; until test -e go; do sleep 0.1; done; rm here.txt; {script}")
}

fn let_go(world: &DelegationWorld, all: &[&StartedDelegation<'_>]) {
    for started in all {
        let here = copy(world, &started.id).join("here.txt");
        until("all of them to work", || here.exists().then_some(()));
    }
    for started in all {
        fs::write(copy(world, &started.id).join("go"), "").unwrap();
    }
}

#[test]
fn three_remotes_work_in_one_folder_over_every_transport() {
    let Some(world) = world_of_several() else { return };
    world.write("shared.txt", &lines(&[]));
    world.write("clash.txt", &lines(&[]));
    world.write("old/unused.txt", "unused\n");
    world.write(".env", "TOKEN=secret\n");
    world.write("target/out", "built\n");
    let begin = |transport: &str, script: &str| {
        let more = ["--staged", "--exclude", "target/", "--transport", transport];
        world.delegate_in_background(&more, &together(script))
    };
    let fs_script = "test ! -e .env && test ! -e target && sed -i 's/^2$/fs/' shared.txt && sed -i 's/^10$/fs/' clash.txt && echo fs > fs.txt";
    let sshfs_script =
        "sed -i 's/^11$/sshfs/' shared.txt && sed -i 's/^10$/sshfs/' clash.txt && rm -r old && echo sshfs > sshfs.txt";
    let sync_script = "sed -i 's/^19$/sync/' shared.txt && echo sync > sync.txt && chmod +x sync.txt";
    let started = [begin("attache-fs", fs_script), begin("sshfs", sshfs_script), begin("sync", sync_script)];
    let_go(&world, &started.each_ref());
    let ended = started.each_ref().map(StartedDelegation::ended);
    let transports: Vec<_> = ended.iter().map(|one| one["transport"].as_str().unwrap()).collect();
    assert_eq!(transports, ["attache-fs/1", "sshfs", "sync/1"]);
    for one in &ended {
        assert_eq!(one["status"], "completed", "{one:#}");
    }
    // Nothing has changed yet, and everybody is told.
    assert_eq!((world.read("shared.txt"), world.read("old/unused.txt")), (lines(&[]), "unused\n".into()));
    assert!(!world.folder.join("fs.txt").exists());
    let [fs_id, sshfs_id, sync_id] = started.each_ref().map(|one| &*one.id);
    assert_eq!(ended[0]["staged"]["unapplied"], 3, "{:#}", ended[0]);
    let list = world.delegations(&["list"]).succeeds();
    assert!(list.stdout.contains("rw, staged"), "{}", list.stdout);
    assert!(list.stderr.contains(&format!("{fs_id}: 3 changes not applied, in a copy of ")), "{}", list.stderr);
    let shown = world.delegations(&["show", fs_id]).succeeds().stdout;
    assert!(shown.contains("3 changes not applied, in a copy of"), "{shown}");
    let diff = world.delegations(&["diff", fs_id]).succeeds();
    assert!(
        diff.stdout.contains("+fs") && diff.stderr.contains("This delegation is staged: 3 changes"),
        "{}",
        diff.stderr
    );
    let diff = world.delegations(&["diff", sshfs_id, "clash.txt"]).succeeds().stdout;
    assert!(diff.contains("+sshfs"), "{diff}");

    // One after another, into the folder.
    world.delegations(&["apply", fs_id]).succeeds();
    assert_eq!((world.read("shared.txt"), world.read("fs.txt")), (lines(&[(2, "fs")]), "fs\n".into()));
    world.delegations(&["apply", sync_id]).succeeds();
    assert_eq!(world.read("shared.txt"), lines(&[(2, "fs"), (19, "sync")]));
    let check = world.delegations(&["apply", sshfs_id, "--check", "--json"]).exits(6).json();
    assert_eq!(
        (strings(&check["merged"]), paths(&check["kept"])),
        (vec!["shared.txt"], vec!["clash.txt"]),
        "{check:#}"
    );
    assert!(!world.folder.join("sshfs.txt").exists());
    let applied = world.delegations(&["apply", sshfs_id, "--json"]).exits(6).json();
    assert_eq!(strings(&applied["merged"]), ["shared.txt"], "{applied:#}");
    assert_eq!(
        applied["kept"][0]["hunks"],
        json!([{ "line": 10, "base": "10\n", "mine": "fs\n", "theirs": "sshfs\n" }])
    );
    assert_eq!(applied["kept"][0]["conflict"], true);
    assert_eq!(world.read("shared.txt"), lines(&[(2, "fs"), (11, "sshfs"), (19, "sync")]));
    assert_eq!((world.read("clash.txt"), world.folder.join("old").exists()), (lines(&[(10, "fs")]), false));
    let again = world.delegations(&["apply", sshfs_id]).exits(6);
    assert!(again.stderr.contains("conflict: clash.txt (the same lines"), "{}", again.stderr);
    assert!(again.stderr.contains("    fs\n") && again.stderr.contains("    sshfs\n"), "{}", again.stderr);
    assert!(
        again.stderr.contains(&format!("attache delegations apply {sshfs_id} --take mine|theirs PATH…")),
        "{}",
        again.stderr
    );
    let shown = world.delegations(&["show", sshfs_id, "--json"]).succeeds().json();
    assert_eq!(shown["staged"]["unapplied"], 1, "{shown:#}");
    assert_eq!(strings(&shown["accepted"]), ["old/unused.txt", "shared.txt", "sshfs.txt"]);
    world.delegations(&["apply", sshfs_id, "--take", "theirs", "clash.txt"]).succeeds();
    assert_eq!(world.read("clash.txt"), lines(&[(10, "sshfs")]));
    // With nothing left to apply, the copies are kept for a revert.
    for one in [fs_id, sshfs_id, sync_id] {
        assert!(copy(&world, one).exists());
        assert_eq!(world.delegations(&["show", one, "--json"]).succeeds().json()["staged"]["unapplied"], 0);
        world.delegations(&["apply", one]).exits(3);
    }
    let left = world.delegations(&["review", sshfs_id]).succeeds();
    assert_eq!(left.stderr, "Nothing is left to review.\n");
    world.delegations(&["revert", sshfs_id]).succeeds();
    assert_eq!(world.read("shared.txt"), lines(&[(2, "fs"), (19, "sync")]));
    assert_eq!((world.read("clash.txt"), world.read("old/unused.txt")), (lines(&[(10, "fs")]), "unused\n".into()));
    assert_eq!((world.read(".env"), world.read("target/out")), ("TOKEN=secret\n".into(), "built\n".into()));
}

/// A lease on the folder itself and a staged one don't disturb each other once the copy is made.
#[test]
fn a_staged_delegation_runs_beside_another_one() {
    let Some(world) = world_of_several() else { return };
    world.write("file.txt", "one\n");
    let staged = world.delegate_in_background(&["--staged"], &together("cat file.txt; echo staged > file.txt"));
    let here = copy(&world, &staged.id).join("here.txt");
    until("the staged one to work", || here.exists().then_some(()));
    let direct = world.delegate(&[], "echo direct > file.txt");
    assert_eq!(direct["status"], "completed", "{direct:#}");
    assert_eq!(world.read("file.txt"), "direct\n");
    let refused = world.delegations(&["apply", &staged.id]).exits(1);
    assert!(refused.stderr.contains("has not ended"), "{}", refused.stderr);
    let_go(&world, &[&staged]);
    let ended = staged.ended();
    assert_eq!(ended["result"]["final_summary"], "one\n", "{ended:#}");
    let applied = world.delegations(&["apply", &staged.id, "--json"]).exits(6).json();
    assert_eq!(paths(&applied["kept"]), ["file.txt"]);
    // The owner's version stays, and nothing is left.
    let applied = world.delegations(&["apply", &staged.id, "--take", "mine", "--json"]).succeeds().json();
    assert_eq!((strings(&applied["discarded"]), &applied["unapplied"]), (vec!["file.txt"], &json!(0)));
    assert_eq!(world.read("file.txt"), "direct\n");
    // A copy is not made while somebody writes to the folder.
    let writer =
        world.delegate_in_background(&[], "echo 1 > started; until test -e done; do sleep 0.1; done; echo 2 > started");
    until("the writer to work", || world.folder.join("started").exists().then_some(()));
    let waiting = world.delegate_in_background(&["--staged"], "cat started");
    until("it to wait", || {
        waiting.show()["waits_for"].as_str().is_some_and(|reason| reason.contains(&writer.id)).then_some(())
    });
    world.write("done", "");
    writer.ended();
    assert_eq!(waiting.ended()["result"]["final_summary"], "2\n");
}

#[test]
fn discarded_changes_never_reach_the_folder() {
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    world.write("keep.txt", "old\n");
    let ended =
        world.delegate(&["--staged"], "echo new > keep.txt; mkdir made; echo a > made/a.txt; echo b > made/b.txt");
    let id = ended["delegation_id"].as_str().unwrap().to_owned();
    assert_eq!(ended["staged"]["unapplied"], 3, "{ended:#}");
    let discarded = world.delegations(&["discard", &id, "made/a.txt", "--json"]).succeeds().json();
    assert_eq!(strings(&discarded["restored"]), ["made/a.txt"]);
    let diff = world.delegations(&["diff", &id]).succeeds().stdout;
    assert!(diff.contains("made/b.txt") && !diff.contains("made/a.txt"), "{diff}");
    world.delegations(&["discard", &id, "never"]).exits(3);
    // Another daemon finds the copy.
    world.daemon.take().unwrap().kill();
    world.start_daemon();
    assert_eq!(world.delegations(&["show", &id, "--json"]).succeeds().json()["staged"]["unapplied"], 2);
    world.delegations(&["apply", &id, "made"]).succeeds();
    assert_eq!((world.read("made/b.txt"), world.folder.join("made/a.txt").exists()), ("b\n".into(), false));
    let refused = world.delegations(&["discard", &id, "made/b.txt"]).exits(3);
    assert!(refused.stderr.contains("no change to `made/b.txt` is left to discard"), "{}", refused.stderr);
    // What was applied and reverted can be applied again.
    world.delegations(&["revert", &id, "made/b.txt"]).succeeds();
    assert!(!world.folder.join("made/b.txt").exists());
    assert_eq!(world.delegations(&["show", &id, "--json"]).succeeds().json()["staged"]["unapplied"], 2);
    world.delegations(&["apply", &id, "made/b.txt"]).succeeds();
    world.delegations(&["revert", &id, "made/b.txt"]).succeeds();
    world.delegations(&["apply", &id, "made/b.txt"]).succeeds();
    world.delegations(&["discard", &id]).succeeds();
    assert_eq!((world.read("keep.txt"), world.read("made/b.txt")), ("old\n".into(), "b\n".into()));
    // The rest was applied.
    assert!(copy(&world, &id).exists());
    let shown = world.delegations(&["show", &id, "--json"]).succeeds().json();
    assert_eq!(paths(&shown["changes"]["changed_paths"]), ["made/b.txt"], "{shown:#}");
}

#[test]
fn the_daemon_is_killed_while_it_applies() {
    const FILES: usize = 300;
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let old = "old line\n".repeat(2000);
    (0..FILES).for_each(|number| world.write(&format!("f{number}.txt"), &old));
    let ended = world.delegate(&["--staged"], "for f in f*.txt; do sed -i s/old/new/ $f; done");
    assert_eq!(ended["status"], "completed", "{ended:#}");
    let id = ended["delegation_id"].as_str().unwrap().to_owned();
    let new = "new line\n".repeat(2000);
    let names: Vec<String> = (0..FILES).map(|number| format!("f{number}.txt")).collect();
    let counts = |world: &DelegationWorld| {
        let mut count = (0, 0);
        for name in &names {
            match world.read(name) {
                text if text == old => count.0 += 1,
                text if text == new => count.1 += 1,
                text => panic!("{name} is neither old nor new: {} bytes", text.len()),
            }
        }
        count
    };
    assert_eq!(counts(&world), (FILES, 0));
    let mut kills = 0;
    for at in [1, 60, 150] {
        let daemon = world.daemon.take().unwrap();
        std::thread::scope(|scope| {
            let applying = scope.spawn(|| world.host.attache(&["delegations", "apply", &id]));
            let begun = Instant::now();
            let is_new = |at: usize| names.iter().filter(|name| world.read(name) == new).count() >= at;
            while !is_new(at) && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(1));
            }
            daemon.kill();
            applying.join().unwrap();
        });
        let (left, done) = counts(&world);
        kills += usize::from(left > 0 && done > 0);
        world.start_daemon();
        // The next daemon has cleared up.
        let made: Vec<_> = fs::read_dir(&world.folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(
            made.len(),
            FILES,
            "{:?}",
            made.iter().filter(|name| !name.to_string_lossy().starts_with('f')).collect::<Vec<_>>()
        );
        if left == 0 {
            break;
        }
    }
    assert!(kills > 0, "the daemon was always done before it was killed");
    world.delegations(&["apply", &id, "--json"]);
    assert_eq!(counts(&world), (0, FILES));
    let shown = world.delegations(&["show", &id, "--json"]).succeeds().json();
    assert_eq!((&shown["staged"]["unapplied"], copy(&world, &id).exists()), (&json!(0), true), "{shown:#}");
    // The originals are those from before the first try.
    world.delegations(&["revert", &id]).succeeds();
    assert_eq!(counts(&world), (FILES, 0));
}

#[test]
fn what_was_applied_completely_can_be_reverted_and_applied_again() {
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    world.write("old.txt", "old\n");
    world.write("gone.txt", "gone\n");
    let ended = world.delegate(&["--staged"], "echo new > old.txt; echo made > made.txt; rm gone.txt");
    let id = ended["delegation_id"].as_str().unwrap().to_owned();
    let state = |world: &DelegationWorld| {
        let read = |name: &str| fs::read_to_string(world.folder.join(name)).ok();
        [read("old.txt"), read("made.txt"), read("gone.txt")]
    };
    let text = |text: &str| Some(text.to_owned());
    let (before, after) = ([text("old\n"), None, text("gone\n")], [text("new\n"), text("made\n"), None]);
    for _ in 0..2 {
        world.delegations(&["apply", &id]).succeeds();
        assert_eq!(state(&world), after);
        let nothing = world.delegations(&["apply", &id]).exits(3).stderr;
        assert!(nothing.contains("is left to apply") && nothing.contains("attache delegations revert"), "{nothing}");
        world.delegations(&["discard", &id]).exits(3);
        // Another daemon still has the copy.
        world.daemon.take().unwrap().kill();
        world.start_daemon();
        world.delegations(&["revert", &id]).succeeds();
        assert_eq!(state(&world), before);
        let shown = world.delegations(&["show", &id, "--json"]).succeeds().json();
        assert_eq!(shown["staged"]["unapplied"], 3, "{shown:#}");
        let diff = world.delegations(&["diff", &id]).succeeds().stdout;
        assert!(diff.contains("+new") && diff.contains("+made") && diff.contains("-gone"), "{diff}");
    }
    // One file of all.
    world.delegations(&["apply", &id]).succeeds();
    world.delegations(&["revert", &id, "made.txt"]).succeeds();
    assert_eq!(state(&world), [text("new\n"), None, None]);
    world.delegations(&["apply", &id, "made.txt"]).succeeds();
    assert_eq!(state(&world), after);
}

#[test]
fn the_daemon_is_killed_while_a_remote_works_in_a_copy() {
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    world.write("file.txt", "old\n");
    let id = {
        let started =
            world.delegate_in_background(&["--staged"], "echo new > file.txt; sync .; echo 1 > here.txt; sleep 600");
        let here = copy(&world, &started.id).join("here.txt");
        until("the remote to work", || here.exists().then_some(()));
        started.id
    };
    world.daemon.take().unwrap().kill();
    world.start_daemon();
    let shown = StartedDelegation::of(&world, id.clone()).ended();
    assert_eq!((&shown["status"], &shown["staged"]["unapplied"]), (&json!("error"), &json!(2)), "{shown:#}");
    assert_eq!(world.read("file.txt"), "old\n");
    world.delegations(&["apply", &id, "file.txt"]).succeeds();
    assert_eq!(world.read("file.txt"), "new\n");
}

#[test]
fn commits_of_a_staged_remote_are_applied() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
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
    let script = "echo two > file.txt && echo x > .git/hooks/post-checkout || echo refused
        git -c safe.directory='*' -c user.name=Bob -c user.email=bob@localhost commit --quiet -a -m second && git -c safe.directory='*' status --porcelain";
    let ended = world.delegate(&["--staged"], script);
    assert_eq!(
        (&ended["status"], &ended["result"]["final_summary"]),
        (&json!("completed"), &json!("refused\n")),
        "{ended:#}"
    );
    assert_eq!((git(&["log", "--format=%s"]), git(&["status", "--porcelain"])), ("first\n".into(), String::new()));
    let id = ended["delegation_id"].as_str().unwrap();
    world.delegations(&["apply", id]).succeeds();
    assert_eq!(git(&["log", "--format=%s %an"]), "second Bob\nfirst Ann\n");
    assert_eq!((world.read("file.txt"), git(&["status", "--porcelain"])), ("two\n".into(), String::new()));
    git(&["fsck", "--strict"]);
}

#[test]
fn only_what_can_change_is_staged() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "access_modes = [\"ro\"]") else { return };
    world.write("file.txt", "old\n");
    let refused = world.try_delegate(&["--staged", "--access-mode", "ro"], "true").exits(2);
    assert!(
        refused.stderr.contains("a read-only delegation changes nothing that could be staged"),
        "{}",
        refused.stderr
    );
    // A remote that takes less than it could have gets a copy that it can't change.
    let ended = world.delegate(&["--staged"], "cat file.txt; echo new > file.txt || echo refused");
    assert_eq!(
        (&ended["access_mode"], &ended["result"]["final_summary"]),
        (&json!("ro"), &json!("old\nrefused\n")),
        "{ended:#}"
    );
    assert_eq!(
        (&ended["staged"]["unapplied"], copy(&world, ended["delegation_id"].as_str().unwrap()).exists()),
        (&json!(0), false)
    );
    assert_eq!(world.read("file.txt"), "old\n");
}

#[test]
fn a_copy_that_does_not_fit_is_refused_with_what_helps() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let policy = world.host.path().join(".AWCP/policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    assert!(text.contains("[delegator]\n"), "{text}");
    fs::write(&policy, text.replacen("[delegator]\n", "[delegator]\nmax_staged_bytes = 1048576\n", 1)).unwrap();
    world.write("large.bin", &"x".repeat(2 << 20));
    let ended = world.delegate(&["--staged"], "true");
    let error = &ended["result"]["error"];
    assert_eq!(
        error["message"],
        "the folder can't be copied: the folder has 2 MiB, and all copies together may have 1 MiB more",
        "{ended:#}"
    );
    assert!(error["hint"].as_str().unwrap().contains("max_staged_bytes"), "{error}");
    world.write("medium.bin", &"x".repeat(700 << 10));
    let more = ["--staged", "--exclude", "large.bin"];
    let first = world.delegate(&more, "echo x > x");
    assert_eq!(first["status"], "completed", "{first:#}");
    assert_eq!(world.delegate(&more, "true")["status"], "error", "there is no room beside changes that aren't applied");
    // A copy that is only kept for a revert makes room.
    let id = first["delegation_id"].as_str().unwrap();
    world.delegations(&["apply", id]).succeeds();
    assert!(copy(&world, id).exists());
    assert_eq!(world.delegate(&more, "true")["status"], "completed");
    assert!(!copy(&world, id).exists());
    world.delegations(&["apply", id]).exits(3);
    world.delegations(&["revert", id]).succeeds();
    assert!(!world.folder.join("x").exists());
}

#[test]
fn a_person_applies_files_and_hunks() {
    if !has("script", "bsdutils") {
        return;
    }
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    world.write("clash.txt", "old\n");
    world.write("text.txt", &lines(&[]));
    let ended = world.delegate(
        &["--staged"],
        "sed -i 's/^2$/second/; s/^18$/eighteenth/' text.txt; echo theirs > clash.txt; echo no > no.txt",
    );
    let id = ended["delegation_id"].as_str().unwrap().to_owned();
    world.write("clash.txt", "mine\n");
    let mut terminal = TestTerminal::run(&world.host, &format!("delegations review {id}"));
    let screen = terminal.shows("clash.txt (1 of 3)");
    let screen = if screen.contains("[?] help") { screen } else { terminal.shows("[?] help") };
    assert!(screen.contains("you edited it too"), "{screen}");
    terminal.types("a");
    let screen = terminal.shows("Keep [m]ine and discard the agent's, take [t]heirs, or [l]eave it for later?");
    assert!(screen.contains("conflict: clash.txt"), "{screen}");
    terminal.types("t");
    terminal.shows("no.txt (2 of 3)");
    terminal.types("d");
    terminal.shows("text.txt (3 of 3)");
    terminal.shows("[h]unk by hunk");
    terminal.types("h");
    terminal.shows("Hunk 1 of 2");
    terminal.types("d");
    terminal.shows("Hunk 2 of 2");
    terminal.types("a");
    assert!(terminal.ends(), "{}", terminal.screen());
    terminal.shows("2 accepted, 2 discarded, 0 left.");
    assert_eq!((world.read("clash.txt"), world.folder.join("no.txt").exists()), ("theirs\n".into(), false));
    assert_eq!(world.read("text.txt"), lines(&[(18, "eighteenth")]));
    assert!(copy(&world, &id).exists());
}
