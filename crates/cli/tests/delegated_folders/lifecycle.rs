//! The regular cases: work in the folder, read-only, with narrower terms, and declined.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    time::Duration,
};

use super::world::{DelegationWorld, FolderRoute};

const SOON: Duration = Duration::from_secs(10);

fn edits(way: FolderRoute) {
    let Some(world) = DelegationWorld::new(way, "") else { return };
    world.write("greeting.txt", "hello\n");
    world.write("old.txt", "to be removed\n");
    world.write(".env", "TOKEN=secret\n");
    let script = "set -e; cat greeting.txt; echo world >> greeting.txt; mkdir -p src; printf 'fn main() {}\\n' > src/main.rs; \
                  chmod +x src/main.rs; ln -s greeting.txt link; rm old.txt; test ! -e .env; pwd";
    let ended = world.delegate(&[], script);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    // The changes have arrived when DONE does.
    assert_eq!(world.read("greeting.txt"), "hello\nworld\n");
    assert_eq!(world.read("src/main.rs"), "fn main() {}\n");
    assert_eq!(fs::metadata(world.folder.join("src/main.rs")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read_link(world.folder.join("link")).unwrap().to_str(), Some("greeting.txt"));
    assert!(!world.folder.join("old.txt").exists());
    assert_eq!(world.read(".env"), "TOKEN=secret\n");
    let summary = ended["result"]["final_summary"].as_str().unwrap();
    let mount_point = ended["remote_mount_point"].as_str().unwrap();
    assert_eq!(summary, format!("hello\n{mount_point}\n"));
    let changed: Vec<_> = ended["changes"]["changed_paths"].as_array().unwrap().iter().collect();
    let changed: Vec<_> =
        changed.iter().map(|path| (path["path"].as_str().unwrap(), path["change"].as_str().unwrap())).collect();
    for expected in [("greeting.txt", "modified"), ("link", "added"), ("old.txt", "removed"), ("src/main.rs", "added")]
    {
        assert!(changed.contains(&expected), "{expected:?} in {changed:?}");
    }
    world.is_clean(SOON);
    // How a person views it.
    let id = ended["delegation_id"].as_str().unwrap();
    let diff = world.delegations(&["diff", id]).succeeds().stdout;
    assert!(diff.contains("+world") && diff.contains("-to be removed"), "{diff}");
    // Later changes on the host don't count as the remote's work.
    world.write("mine.txt", "mine\n");
    assert_eq!(world.delegations(&["diff", id]).succeeds().stdout, diff);
    let log = world.delegations(&["log", id]).succeeds().stdout;
    assert!(log.contains("hello\n"), "{log}");
    world.delegations(&["revert", id, "wrong.txt"]).exits(3);
    world.delegations(&["revert", id, "/etc/passwd"]).exits(2);
    // Revert everything.
    world.delegations(&["revert", id]).succeeds();
    assert_eq!(world.read("greeting.txt"), "hello\n");
    assert_eq!(world.read("old.txt"), "to be removed\n");
    assert!(!world.folder.join("link").is_symlink() && !world.folder.join("src").exists());
}

#[test]
fn a_remote_agent_works_in_a_delegated_folder() {
    edits(FolderRoute::Direct);
}

#[test]
fn a_remote_agent_works_in_a_folder_behind_nat() {
    edits(FolderRoute::Tunnel);
}

#[test]
fn a_remote_agent_works_through_a_hub_with_a_self_signed_certificate() {
    edits(FolderRoute::Encrypted);
}

#[test]
fn a_read_only_folder_cannot_be_written() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    world.write("data.txt", "as it was\n");
    let ended =
        world.delegate(&["--access-mode", "ro"], "cat data.txt; echo x > data.txt; touch new; rm data.txt; true");
    assert_eq!((ended["status"].as_str(), ended["access_mode"].as_str()), (Some("completed"), Some("ro")), "{ended:#}");
    assert_eq!(world.read("data.txt"), "as it was\n");
    assert!(!world.folder.join("new").exists());
    world.is_clean(SOON);
}

#[test]
fn a_remote_accepts_narrower_terms() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "access_modes = [\"ro\"]\nmax_ttl_seconds = 90") else {
        return;
    };
    world.write("data.txt", "as it was\n");
    let ended = world.delegate(&["--access-mode", "rw", "--ttl", "600"], "echo x > data.txt || echo refused");
    assert_eq!((ended["status"].as_str(), ended["access_mode"].as_str()), (Some("completed"), Some("ro")), "{ended:#}");
    assert_eq!(ended["ttl_seconds"], 90);
    assert_eq!(world.read("data.txt"), "as it was\n");
}

#[test]
fn a_remote_declines_delegations_that_its_policy_forbids() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "delegators = [\"user:nobody\"]") else { return };
    let ended = world.delegate(&[], "true");
    assert_eq!(
        (ended["status"].as_str(), ended["result"]["error"]["code"].as_str()),
        (Some("error"), Some("DECLINED")),
        "{ended:#}"
    );
    assert!(!ended["result"]["error"]["hint"].as_str().unwrap().is_empty());
    assert_eq!(world.mounts(), Vec::<String>::new());
}

#[test]
fn a_delegation_that_is_not_allowed_is_refused_with_the_command_that_allows_it() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let outside = world.host.path().join("private");
    fs::create_dir(&outside).unwrap();
    let url = world.agent_url();
    let ran = world.host.attache(&["delegate", outside.to_str().unwrap(), "--to", &url, "true"]).exits(4);
    assert!(ran.stderr.contains("attache delegations allow --folder"), "{}", ran.stderr);
    let other = format!("{}/a2a/other", world.url);
    let ran = world.host.attache(&["delegate", world.folder.to_str().unwrap(), "--to", &other, "true"]).exits(4);
    assert!(ran.stderr.contains("attache delegations allow --peer"), "{}", ran.stderr);
}

#[test]
fn links_inside_the_folder_work_on_the_remote() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    world.write("node_modules/tool/cli.js", "the tool\n");
    fs::create_dir(world.folder.join("node_modules/.bin")).unwrap();
    symlink("../tool/cli.js", world.folder.join("node_modules/.bin/tool")).unwrap();
    symlink(world.folder.join("node_modules/tool"), world.folder.join("whole")).unwrap();
    let script =
        "set -e; cat node_modules/.bin/tool whole/cli.js; mkdir deep; ln -s \"$PWD/node_modules/tool/cli.js\" deep/made
        ln -s node_modules/../node_modules/tool deep/../detour; ln -s /etc/hostname out || echo refused
        cat deep/made detour/cli.js";
    let ended = world.delegate(&[], script);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    let output = ended["result"]["final_summary"].as_str().unwrap();
    assert_eq!(output, "the tool\nthe tool\nrefused\nthe tool\nthe tool\n");
    // On the host, they point to the same files.
    assert_eq!((world.read("deep/made"), world.read("detour/cli.js")), ("the tool\n".into(), "the tool\n".into()));
    assert!(!world.folder.join("out").is_symlink());
}

#[test]
fn git_add_works_on_the_remote_with_links() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let git =
        |args: &[&str]| std::process::Command::new("git").arg("-C").arg(&world.folder).args(args).output().unwrap();
    assert!(git(&["init", "--quiet"]).status.success());
    world.write("a/file", "x\n");
    fs::create_dir(world.folder.join("b")).unwrap();
    symlink("../a/file", world.folder.join("b/link")).unwrap();
    let script = "git -c safe.directory='*' add -A && git -c safe.directory='*' -c user.name=R -c user.email=r@r commit -q -m all && echo added";
    let ended = world.delegate(&[], script);
    assert_eq!(ended["result"]["final_summary"], "added\n", "{ended:#}");
    let listed = git(&["ls-tree", "-r", "--name-only", "HEAD"]).stdout;
    assert_eq!(String::from_utf8(listed).unwrap(), "a/file\nb/link\n");
}
