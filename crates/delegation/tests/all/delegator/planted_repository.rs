//! A remote plants a git repository in the folder. The daemon's commits must not run its programs.

use std::{fs, path::Path, process::Command};

use attache_protocol::{rules::delegation::DelegationStatus, wire::delegation::Delegation};

use super::{DelegatorFixture, RemoteScript};

/// Everything that turns the folder into a repository with the remote's configuration, and one step that is refused.
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

async fn planted(fixture: &DelegatorFixture) -> Delegation {
    let (here, trace) = (fixture.remote.folder.path(), fixture.machine.root().join("trapped"));
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
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    assert_eq!(fs::read_to_string(fixture.machine.project().join("made.txt")).unwrap(), "made there\n");
    assert!(!trace.exists(), "the daemon ran a program of the remote");
    git(&fixture.machine.project(), &["add", "--all"]);
    assert!(!trace.exists(), "git ran a program of the remote");
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_repository_runs_nothing() {
    let fixture = DelegatorFixture::new(RemoteScript::Run(PLANT)).await;
    planted(&fixture).await;
    assert!(!fixture.machine.project().join("HEAD").exists(), "the last step is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_planted_beside_the_real_one_runs_nothing() {
    let fixture = DelegatorFixture::new(RemoteScript::Run(PLANT)).await;
    let project = fixture.machine.project();
    git(&project, &["init", "--quiet", "--initial-branch=main"]);
    let ended = planted(&fixture).await;
    let head = project.join(".git/HEAD");
    assert_eq!(fs::read_to_string(&head).unwrap(), "ref: refs/heads/main\n", "it was neither written nor removed");
    let reference = format!("refs/attache/{}", ended.delegation_id);
    let before = git(&project, &["rev-list", "--max-parents=0", &reference]);
    assert_eq!(
        git(&project, &["ls-tree", "--name-only", &before]),
        "here.txt",
        "the real repository has the state before the lease"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_states_before_and_after_the_lease_are_committed() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let project = fixture.machine.project();
    git(&project, &["init", "--quiet", "--initial-branch=main"]);
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    let after = format!("refs/attache/{}", ended.delegation_id);
    assert_eq!(git(&project, &["ls-tree", "--name-only", &after]), "here.txt\nmade.txt");
    assert_eq!(git(&project, &["ls-tree", "--name-only", &format!("{after}^")]), "here.txt");
}

/// Somebody else's run can leave a `.git` in a folder that is delegated later. Its owner lends what is in the folder, and
/// nothing else is stored or committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_leads_elsewhere_gives_nothing_away() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let (root, project) = (fixture.machine.root(), fixture.machine.project());
    let policy = root.join("awcp/policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, format!("{text}\n[delegator.git]\nauto_commit = true\n")).unwrap();
    let (private, prod) = (root.join("private"), root.join("prod"));
    for folder in [&private, &prod] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(private.join("config.json"), "SECRET\n").unwrap();
    git(&project, &["init", "--quiet", "--initial-branch=main"]);
    git(&project, &["config", "core.worktree", private.to_str().unwrap()]);
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    let secret = git(&root, &["hash-object", "--no-filters", "private/config.json"]);
    let object = project.join(".git/objects").join(&secret[..2]).join(&secret[2..]);
    assert!(secret.len() == 40 && !object.exists(), "a file of another folder is in the lent repository");
    assert!(!project.join(".git/refs/attache").exists());

    fs::remove_dir_all(project.join(".git")).unwrap();
    git(&prod, &["init", "--quiet", "--initial-branch=main"]);
    let identity = ["-c", "user.name=Ann", "-c", "user.email=ann@localhost"];
    git(&prod, &[&identity[..], &["commit", "--quiet", "--allow-empty", "-m", "first"]].concat());
    fs::write(project.join(".git"), format!("gitdir: {}\n", prod.join(".git").display())).unwrap();
    fs::remove_file(project.join("made.txt")).unwrap();
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    assert_eq!(git(&prod, &["log", "--format=%s", "--all"]), "first", "another repository got the remote's changes");
}
