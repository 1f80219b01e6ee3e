//! The dialect of the AWCP reference implementation from end to end: with its published archive package and an exchange that was
//! recorded from it, in both directions, and with our own program on both sides.
//!
//! Its packages for the messages aren't on npm. `tests/interop/awcp` has the recorded exchange, and two programs that play the
//! other side as it was recorded.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::world::{DelegationWorld, FolderRoute};
use crate::{
    harness::{FinishedProcess, TestHome, TestProcess, until},
    interop::{installed, scripts_folder},
};

/// A machine that delegates a folder to someone who takes archives.
struct ArchiveSender {
    home: TestHome,
    folder: PathBuf,
}

/// An executor that answers as recorded.
struct RecordedExecutor {
    process: TestProcess,
    url: String,
    folder: PathBuf,
}

const FILES: [(&str, &str); 4] =
    [("edit.txt", "1\n"), ("old.txt", "old\n"), (".env", "SECRET=1\n"), ("sub/kept.txt", "kept\n")];

// === impl ArchiveSender ===

impl ArchiveSender {
    fn new() -> Self {
        let home = TestHome::new();
        let folder = home.path().join("src/project");
        for (name, text) in FILES {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::write(folder.join("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("edit.txt", folder.join("link")).unwrap();
        Self { home, folder }
    }

    fn allow(&self, url: &str, key: Option<&str>) {
        let key: Vec<&str> = key.into_iter().flat_map(|file| ["--key-file", file]).collect();
        self.home.attache(&[&["delegations", "allow", "--peer", url], &key[..]].concat()).succeeds();
        self.home.attache(&["delegations", "allow", "--folder", self.folder.to_str().unwrap()]).succeeds();
    }

    #[track_caller]
    fn delegate(&self, url: &str, more: &[&str], task: &str) -> FinishedProcess {
        let folder = self.folder.to_str().unwrap();
        self.home.attache(&[&["delegate", folder, "--to", url, "--awcp-compat", "--json"], more, &[task]].concat())
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_else(|error| error.kind().to_string())
    }

    fn show(&self, id: &str) -> Value {
        self.home.attache(&["delegations", "show", id, "--json"]).succeeds().json()
    }

    /// Waits until the remote works.
    fn is_running(&self, id: &str) {
        until("the remote to work", || (self.show(id)["status"] == "running").then_some(()));
    }

    #[track_caller]
    fn ended(&self, id: &str) -> Value {
        self.home.attache(&["delegations", "wait", id]);
        self.show(id)
    }

    /// Nothing of the copy is left.
    #[track_caller]
    fn is_clean(&self) {
        let archives = self.home.path().join(".AWCP/archives");
        until("the copy to be gone", || {
            let folders = ["copies", "staging", "copies/.leases"].map(|name| archives.join(name)).into_iter();
            let mut left = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
            (!left.any(|entry| entry.file_name() != ".leases" && entry.path().is_dir())).then_some(())
        });
    }
}

impl Drop for ArchiveSender {
    fn drop(&mut self) {
        self.home.attache(&["daemon", "--stop"]);
    }
}

// === impl RecordedExecutor ===

impl RecordedExecutor {
    /// `None` if the package isn't installed.
    fn new(home: &TestHome) -> Option<Self> {
        let script = script(home, "executor.mjs")?;
        let folder = home.path().join("executor");
        fs::create_dir_all(&folder).unwrap();
        let mut command = home.program("node");
        command.arg(script).arg(&folder);
        let process = TestProcess::spawn("executor", &mut command, &home.logs());
        let port = until("the executor to listen", || {
            let said = process.stdout();
            Some(said.lines().next()?.strip_prefix("listening ")?.to_owned())
        });
        Some(Self { process, url: format!("http://127.0.0.1:{port}/awcp"), folder })
    }
}

impl Drop for RecordedExecutor {
    fn drop(&mut self) {
        self.process.kill();
    }
}

/// A script beside the packages that it needs.
fn script(home: &TestHome, name: &str) -> Option<PathBuf> {
    let installed = installed("awcp")?;
    let folder = home.path().join("node");
    fs::create_dir_all(&folder).unwrap();
    symlink(installed.join("node_modules"), folder.join("node_modules")).unwrap();
    for name in ["executor.mjs", "delegator.mjs", "shape.mjs", "exchange.json"] {
        fs::copy(scripts_folder().join("awcp").join(name), folder.join(name)).unwrap();
    }
    Some(folder.join(name))
}

/// Starts the delegating machine's daemon again, so that it also takes archives for the agent.
fn take_archives(world: &mut DelegationWorld) -> String {
    if let Some(daemon) = world.daemon.take() {
        daemon.terminate();
    }
    let args = ["daemon", "--awcp-compat", "127.0.0.1:0", "--to", &world.agent_url()];
    let (daemon, ready) = world.host.ready("daemon", &args);
    world.daemon = Some(daemon);
    ready["awcp_compat"].as_str().unwrap().to_owned()
}

/// What is left of the tasks of others on the machine that takes archives.
fn exchanged(world: &DelegationWorld) -> Vec<PathBuf> {
    let folder = world.host.path().join(".AWCP-exchange");
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[track_caller]
fn forgotten(world: &DelegationWorld) {
    until("the folder to be removed", || exchanged(world).is_empty().then_some(()));
    let records = fs::read_dir(world.host.path().join(".AWCP/delegations")).unwrap();
    assert_eq!(records.count(), 0);
}

#[test]
fn a_recorded_executor_works_in_our_folder() {
    let sender = ArchiveSender::new();
    let Some(executor) = RecordedExecutor::new(&sender.home) else { return };
    sender.allow(&executor.url, None);
    let ended = sender.delegate(&executor.url, &[], "EDIT").succeeds().json();
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["transport"], "archive");
    assert_eq!(ended["result"]["final_summary"], "saw edit.txt old.txt run.sh sub");
    assert_eq!(ended["result"]["notes"], "An archive can't contain these, so they were not sent: link.");
    let changed: Vec<&str> =
        ended["changes"]["changed_paths"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(changed, ["edit.txt", "made/new.txt", "old.txt"]);
    assert_eq!(
        (sender.read("edit.txt"), sender.read("made/new.txt")),
        ("1\nand the peer\n".to_owned(), "made by the peer\n".to_owned())
    );
    // What the archive loses on the way isn't lost here.
    let mode = fs::metadata(sender.folder.join("run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert!(sender.folder.join("link").is_symlink());
    assert_eq!((sender.read("old.txt"), sender.read(".env")), ("entity not found".to_owned(), "SECRET=1\n".to_owned()));
    until("the result to be acknowledged", || executor.process.stdout().contains("done ").then_some(()));
    assert!(!executor.process.stdout().contains("failed"), "{}", executor.process.stdout());
    sender.is_clean();
    let id = ended["delegation_id"].as_str().unwrap();
    sender.home.attache(&["delegations", "revert", id]).succeeds();
    assert_eq!((sender.read("edit.txt"), sender.read("old.txt")), ("1\n".to_owned(), "old\n".to_owned()));
    assert!(!sender.folder.join("made").exists());
}

#[test]
fn a_recorded_executor_that_loses_its_stream_is_asked_for_the_result() {
    let sender = ArchiveSender::new();
    let Some(executor) = RecordedExecutor::new(&sender.home) else { return };
    sender.allow(&executor.url, None);
    let ended = sender.delegate(&executor.url, &[], "EDIT and DROP").succeeds().json();
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(sender.read("edit.txt"), "1\nand the peer\n");
}

#[test]
fn edits_made_while_a_recorded_executor_works_stay() {
    let sender = ArchiveSender::new();
    let Some(executor) = RecordedExecutor::new(&sender.home) else { return };
    sender.allow(&executor.url, None);
    let id = sender.delegate(&executor.url, &["--background"], "EDIT after WAIT").succeeds().json();
    let id = id["delegation_id"].as_str().unwrap();
    sender.is_running(id);
    fs::write(sender.folder.join("edit.txt"), "edited here\n").unwrap();
    fs::write(sender.folder.join("old.txt"), "still needed\n").unwrap();
    // The copy follows the folder.
    let copies = sender.home.path().join(".AWCP/archives/copies");
    until("the copy to have the edits", || {
        let copy = fs::read_dir(&copies).unwrap().flatten().find(|entry| entry.file_name() != ".leases")?;
        let read = |name| fs::read_to_string(copy.path().join("workspace").join(name)).unwrap_or_default();
        (read("edit.txt") == "edited here\n" && read("old.txt") == "still needed\n").then_some(())
    });
    fs::write(executor.folder.join("go"), "").unwrap();
    let ended = sender.ended(id);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(
        (sender.read("edit.txt"), sender.read("old.txt")),
        ("edited here\n".to_owned(), "still needed\n".to_owned())
    );
    assert_eq!(sender.read("edit.txt.remote-conflict"), "1\nand the peer\n");
    let notes = ended["result"]["notes"].as_str().unwrap();
    assert!(
        notes.contains("edit.txt: it was also changed here: the remote's version is in edit.txt.remote-conflict"),
        "{notes}"
    );
    assert!(notes.contains("old.txt: the remote removed it, but it was changed here: it stays"), "{notes}");
}

#[test]
fn a_hostile_archive_changes_nothing() {
    let sender = ArchiveSender::new();
    let Some(executor) = RecordedExecutor::new(&sender.home) else { return };
    sender.allow(&executor.url, None);
    let failed = sender.delegate(&executor.url, &[], "EVIL").exits(1).json();
    assert_eq!(failed["status"], "error");
    assert_eq!(
        failed["result"]["error"]["message"],
        "the archive is refused: `../../../../../evi` leads out of the folder"
    );
    assert_eq!(failed["changes"]["changed_paths"], serde_json::json!([]));
    assert_eq!((sender.read("edit.txt"), sender.read("old.txt")), ("1\n".to_owned(), "old\n".to_owned()));
    sender.is_clean();
}

#[test]
fn a_recorded_executor_fails_or_is_cancelled() {
    let sender = ArchiveSender::new();
    let Some(executor) = RecordedExecutor::new(&sender.home) else { return };
    sender.allow(&executor.url, None);
    let failed = sender.delegate(&executor.url, &[], "FAIL").exits(1).json();
    let error = &failed["result"]["error"];
    assert_eq!((&error["code"], &error["message"]), (&"TASK_FAILED".into(), &"the agent gave up".into()));
    let id = sender.delegate(&executor.url, &["--background"], "EDIT after WAIT").succeeds().json();
    let id = id["delegation_id"].as_str().unwrap();
    sender.is_running(id);
    sender.home.attache(&["delegations", "cancel", id]).succeeds();
    assert_eq!(sender.ended(id)["status"], "cancelled");
    until("the executor to be told", || executor.process.stdout().contains("cancelled").then_some(()));
    assert_eq!(sender.read("edit.txt"), "1\n");
    sender.is_clean();
}

#[test]
fn our_agent_works_for_a_recorded_delegator() {
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let home = TestHome::new();
    let Some(script) = script(&home, "delegator.mjs") else { return };
    let url = take_archives(&mut world);
    let folder = home.path().join("project");
    fs::create_dir_all(folder.join("sub")).unwrap();
    for (name, text) in FILES.into_iter().filter(|(name, _)| *name != ".env") {
        fs::write(folder.join(name), text).unwrap();
    }
    let run = |number: u32, prompt: &str| {
        let scratch = home.path().join(format!("scratch-{number}"));
        let mut command = home.program("node");
        let key = fs::read_to_string(world.key_file()).unwrap();
        command.env("ATTACHE_KEY", key.trim()).arg(&script).arg(&url).args([&folder, &scratch]).arg(prompt);
        FinishedProcess::of(&mut command, &home.logs()).succeeds().stdout
    };
    let said = run(1, "ls -A | tr '\\n' ' '; echo more >> edit.txt; rm old.txt; mkdir made; echo new > made/new.txt");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["status snapshot done", "edit.txt old.txt sub "], "{said}");
    assert!(lines.last().unwrap().starts_with("done "), "{said}");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!((read("edit.txt"), read("made/new.txt")), ("1\nmore\n".to_owned(), "new\n".to_owned()));
    assert_eq!(read("sub/kept.txt"), "kept\n");
    assert!(!folder.join("old.txt").exists());
    let said = run(2, "echo lost > edit.txt; exit 3");
    assert!(said.contains("TASK_FAILED: `sh` exited with status 3"), "{said}");
    assert_eq!(read("edit.txt"), "1\nmore\n");
    forgotten(&world);
}

/// Our program in both roles. The folder is never on the hub, and the machine in between keeps nothing.
#[test]
fn both_sides_are_ours() {
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let url = take_archives(&mut world);
    let sender = ArchiveSender::new();
    let key = world.key_file();
    sender.allow(&url, Some(key.to_str().unwrap()));
    let task =
        "ls -A | tr '\\n' ' '; cat edit.txt; echo 2 > edit.txt; rm old.txt; echo new > new.txt; chmod +x new.txt";
    let ended = sender.delegate(&url, &[], task).succeeds().json();
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["result"]["final_summary"], "edit.txt old.txt run.sh sub 1\n");
    assert_eq!((sender.read("edit.txt"), sender.read("new.txt")), ("2\n".to_owned(), "new\n".to_owned()));
    assert_eq!((sender.read("old.txt"), sender.read(".env")), ("entity not found".to_owned(), "SECRET=1\n".to_owned()));
    let mode = |name: &str| fs::metadata(sender.folder.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("run.sh"), mode("new.txt")), (0o755, 0o755));
    forgotten(&world);
    // Nothing is written where only reading was agreed on.
    let ended = sender.delegate(&url, &["--access-mode", "ro"], "cat edit.txt; echo 3 > edit.txt").json();
    assert!(ended["result"].to_string().contains("Read-only file system"), "{ended}");
    assert_eq!(sender.read("edit.txt"), "2\n");
    // An end here is an end there.
    let id = sender.delegate(&url, &["--background"], "echo here > here.txt; sleep 600").succeeds().json();
    let id = id["delegation_id"].as_str().unwrap();
    sender.is_running(id);
    until("the agent to have a mount", || (!world.mounts().is_empty()).then_some(()));
    sender.home.attache(&["delegations", "cancel", id]).succeeds();
    assert_eq!(sender.ended(id)["status"], "cancelled");
    world.is_clean(std::time::Duration::from_secs(30));
    until("only a remark about the end to be left", || {
        let left = exchanged(&world).iter().map(|task| fs::read_dir(task.join("work")).unwrap().count()).sum::<usize>();
        (left == 0).then_some(())
    });
    assert!(!sender.folder.join("here.txt").exists());
    sender.is_clean();
}

#[test]
fn a_key_of_the_hub_and_the_agents_owner_decide() {
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let url = take_archives(&mut world);
    let refused = |key: Option<&Path>, more: &[&str]| {
        let sender = ArchiveSender::new();
        sender.allow(&url, key.map(|key| key.to_str().unwrap()));
        let ended = sender.delegate(&url, more, "true").exits(4).json();
        let error = &ended["result"]["error"];
        (error["code"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
    };
    let (code, message) = refused(None, &[]);
    assert_eq!(
        (&*code, &*message),
        ("AUTH_FAILED", "INVITE.auth is missing: its credential is a key for the agent's hub")
    );
    let wrong = world.host.path().join("wrong");
    fs::write(&wrong, "ak_wrong").unwrap();
    assert_eq!(refused(Some(&wrong), &[]).0, "AUTH_FAILED");
    // The collaborator's own policy, which is read for every invitation.
    world.write_policy(
        &world.remote,
        "[collaborator]\nenabled = true\naccess_modes = [\"ro\"]\ndelegators = [\"user:nobody\"]\n",
    );
    let key = world.key_file();
    let (code, message) = refused(Some(&key), &[]);
    assert_eq!((&*code, &*message), ("DECLINED", "this agent doesn't accept folders from this caller"));
    until("everything to be removed", || {
        let left: usize = exchanged(&world).iter().map(|task| fs::read_dir(task.join("work")).unwrap().count()).sum();
        (left == 0).then_some(())
    });
    let open = world.host.attache(&["daemon", "--awcp-compat", "0.0.0.0:0", "--to", &world.agent_url()]).exits(2);
    assert!(open.stderr.contains("only loopback addresses are allowed"), "{}", open.stderr);
}
