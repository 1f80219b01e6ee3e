//! A remote that plants a repository in the folder, and what the daemon commits there.

use std::{fs, path::Path, process::Command};

use attache_protocol::{rules::delegation::DelegationStatus, wire::delegation::Delegation};

use super::{DelegatorFixture, RemoteScript};

/// All that makes the folder a repository with a configuration of the remote's, and one that is there none.
const PLANT: &str = "put made.txt
-put HEAD.none .git/HEAD
-rm .git/HEAD
-mkdir meta
-mkdir meta/objects
-mkdir meta/refs
-put config meta/config
-put config.worktree
-put .gitattributes
-put commondir
-put HEAD";

fn git(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(args).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    String::from_utf8(git.output().unwrap().stdout).unwrap().trim().to_owned()
}

async fn planted(scene: &DelegatorFixture) -> Delegation {
    let (here, trace) = (scene.remote.folder.path(), scene.machine.root().join("trapped"));
    let run = format!("touch {}; cat", trace.display());
    let config = "[core]\nrepositoryformatversion = 1\n[extensions]\nworktreeConfig = true\n[filter \"x\"]\nclean = ";
    for (name, content) in [
        ("HEAD", "ref: refs/heads/main\n"),
        ("HEAD.none", "nothing\n"),
        ("commondir", "meta\n"),
        ("config", &format!("{config}\"{run}\"\n")),
        ("config.worktree", "[core]\nbare = false\nworktree = .\n"),
        (".gitattributes", "* filter=x\n"),
    ] {
        fs::write(here.join(name), content).unwrap();
    }
    let ended = scene.machine.ended(&scene.delegate().await).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    assert_eq!(fs::read_to_string(scene.machine.project().join("made.txt")).unwrap(), "made there\n");
    assert!(!trace.exists(), "the daemon ran a program of the remote's");
    git(&scene.machine.project(), &["add", "--all"]);
    assert!(!trace.exists(), "git ran a program of the remote's");
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_a_remote_plants_runs_nothing() {
    let scene = DelegatorFixture::new(RemoteScript::Run(PLANT)).await;
    planted(&scene).await;
    assert!(!scene.machine.project().join("HEAD").exists(), "the last part is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_a_remote_plants_beside_the_real_one_runs_nothing() {
    let scene = DelegatorFixture::new(RemoteScript::Run(PLANT)).await;
    let project = scene.machine.project();
    git(&project, &["init", "--quiet", "--initial-branch=main"]);
    let ended = planted(&scene).await;
    let head = project.join(".git/HEAD");
    assert_eq!(fs::read_to_string(&head).unwrap(), "ref: refs/heads/main\n", "it was neither written nor removed");
    let kept = format!("refs/attache/{}", ended.delegation_id);
    let before = git(&project, &["rev-list", "--max-parents=0", &kept]);
    assert_eq!(git(&project, &["ls-tree", "--name-only", &before]), "here.txt", "the real one has what was before");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_before_and_what_came_of_it_are_committed() {
    let scene = DelegatorFixture::new(RemoteScript::Work).await;
    let project = scene.machine.project();
    git(&project, &["init", "--quiet", "--initial-branch=main"]);
    let ended = scene.machine.ended(&scene.delegate().await).await;
    let after = format!("refs/attache/{}", ended.delegation_id);
    assert_eq!(git(&project, &["ls-tree", "--name-only", &after]), "here.txt\nmade.txt");
    assert_eq!(git(&project, &["ls-tree", "--name-only", &format!("{after}^")]), "here.txt");
}
