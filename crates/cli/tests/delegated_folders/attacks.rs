//! A malicious remote: tries to get secrets, code execution on the host, and the keys and folders of other leases.

use std::{fs, path::Path, process::Command};

use super::world::{DelegationWorld, FolderRoute};
use crate::{
    harness::TestHome,
    hosts::{
        device::patiently,
        model::TestModel,
        programs::{self, HostProgram},
        walled,
    },
    sandbox::{COMMIT, has_namespaces, python_tests, show_toolchains, write_project},
};

const NO_NETWORK: &str = "[collaborator.sandbox]\nallow_network = false\n";

fn git(dir: &Path, args: &[&str]) -> (bool, String) {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=Ann", "-c", "user.email=ann@localhost"]).args(args);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_EDITOR", "true");
    let output = git.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[track_caller]
fn git_does(dir: &Path, args: &[&str]) -> String {
    let (ok, text) = git(dir, args);
    assert!(ok, "git {args:?}: {text}");
    text.trim().to_owned()
}

fn repository(world: &DelegationWorld) {
    git_does(&world.folder, &["init", "--quiet", "--initial-branch=main"]);
    world.write("file.txt", "first\n");
    git_does(&world.folder, &["add", "."]);
    git_does(&world.folder, &["commit", "--quiet", "-m", "first"]);
}

#[track_caller]
fn summary(ended: &serde_json::Value) -> String {
    assert_eq!(ended["status"], "completed", "{ended:#}");
    ended["result"]["final_summary"].as_str().unwrap().to_owned()
}

#[test]
fn secrets_are_hidden_and_tokens_in_settings_are_masked() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    repository(&world);
    git_does(&world.folder, &["remote", "add", "origin", "https://ann:SECRET@example.org/x.git"]);
    git_does(&world.folder, &["config", "http.https://example.org/.extraheader", "AUTHORIZATION: basic SECRET"]);
    world.write(".npmrc", "registry=https://r.example/\n//r.example/:_authToken=SECRET\n");
    world.write(".yarnrc.yml", "nodeLinker: node-modules\nnpmAuthToken: SECRET\n");
    for secret in [
        ".a2a/runtime.json",
        ".a2a/adapters/127.0.0.1:1.secret",
        "state/hub.db",
        ".gemini/oauth_creds.json",
        ".config/google-chrome/Default/Login Data",
        ".local/share/keyrings/login.keyring",
        ".kaggle/kaggle.json",
        ".huggingface/token",
        ".local/share/fish/fish_history",
        "infra/prod.tfvars.json",
        "serviceAccountKey.json",
        "server.pem.bak",
        "auth.json",
    ] {
        world.write(secret, "SECRET\n");
    }
    let script = "grep -rs SECRET . | cat; find . -path ./.git -prune -o -type f -print; cat .npmrc .yarnrc.yml; git remote -v; \
                  ln .npmrc x; mv .npmrc y; cp .npmrc z; ln .git/config w; mv .git/logs/HEAD v; cat x y v w z; \
                  echo '//r.example/:_authToken=mine' > .npmrc; true";
    let said = summary(&world.delegate(&[], script));
    assert!(!said.contains("SECRET"), "{said}");
    for shown in
        ["registry=https://r.example/", ":_authToken=******", "nodeLinker: node-modules", "npmAuthToken: ******"]
    {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    assert!(said.contains("@example.org/x.git"), "{said}");
    // The masked content overwrote nothing.
    assert!(world.read(".npmrc").contains("_authToken=SECRET"), "{}", world.read(".npmrc"));
    assert!(world.read(".git/config").contains("ann:SECRET@"));
    // Not even through the commits of the earlier state.
    let all = git_does(&world.folder, &["rev-list", "--all", "--objects", "--no-object-names"]);
    for object in all.lines().filter(|object| git_does(&world.folder, &["cat-file", "-t", object]) == "blob") {
        assert!(!git(&world.folder, &["cat-file", "-p", object]).1.contains("SECRET"), "{object}");
    }
}

#[test]
fn our_own_folders_cannot_be_delegated() {
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let url = world.agent_url();
    let refused = |world: &DelegationWorld, folder: &Path| {
        let path = folder.to_str().unwrap();
        let ran = world.delegations(&["allow", "--folder", path]).exits(2);
        assert!(ran.stderr.contains("can't be delegated"), "{}", ran.stderr);
        // Nor does a policy help that a person wrote.
        let file = world.host.path().join(".AWCP/policy.toml");
        let policy = fs::read_to_string(&file).unwrap();
        let written = policy.replacen("roots = [", &format!("roots = [{path:?}, "), 1);
        assert_ne!(written, policy);
        fs::write(&file, written).unwrap();
        let ran = world.host.attache(&["delegate", path, "--to", &url, "--background", "true"]);
        assert!(ran.status != Some(0), "{} was lent", folder.display());
        assert!(ran.stderr.contains("can't be delegated"), "{}", ran.stderr);
    };
    let home = world.host.a2a();
    fs::create_dir_all(home.join("adapters")).unwrap();
    refused(&world, &home);
    refused(&world, &home.join("adapters"));
    // The data of a hub that another program keeps elsewhere.
    let elsewhere = world.host.path().join("src/data");
    fs::create_dir_all(elsewhere.join("blobs")).unwrap();
    fs::write(elsewhere.join("hub.db"), "").unwrap();
    refused(&world, &elsewhere);
    refused(&world, &elsewhere.join("blobs"));
    // Under another name, inside the delegated folder.
    world.daemon.take().unwrap().terminate();
    let state = world.folder.join("state of mine");
    fs::create_dir_all(state.join("adapters")).unwrap();
    fs::write(state.join("runtime.json"), "SECRET").unwrap();
    world.host.set("A2A_HOME", state.to_str().unwrap());
    world.start_daemon();
    let said =
        summary(&world.delegate(&[], "ls -A; cat 'state of mine/runtime.json' 2>&1; mkdir 'state of mine' 2>&1; true"));
    assert!(!said.contains("SECRET") && said.contains("No such file"), "{said}");
}

#[test]
fn nothing_that_git_would_run_or_trust_can_be_planted() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    repository(&world);
    let trap = world.host.path().join("trapped");
    let script = format!(
        "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=R GIT_AUTHOR_EMAIL=r@r GIT_COMMITTER_NAME=R GIT_COMMITTER_EMAIL=r@r
         for folder in rebase-merge rebase-apply sequencer; do
           mkdir .git/$folder && echo made $folder
           echo 'exec touch {trap}' > .git/$folder/git-rebase-todo && echo wrote $folder
         done
         mkdir .git/logs/x && mv .git/logs/x .git/rebase-merge && echo moved
         mkdir stage && echo 'exec touch {trap}' > stage/git-rebase-todo && mv stage .git/rebase-merge && echo moved in
         echo x > .git/info/exclude && echo wrote exclude
         echo x > .git/BISECT_RUN && echo wrote bisect
         ln -s ../../file.txt .git/refs/heads/link && echo linked
         echo nonsense > .git/HEAD && echo wrote HEAD
         echo nonsense > .git/HEAD.lock && mv .git/HEAD.lock .git/HEAD && echo replaced HEAD
         rm -f .git/HEAD.lock
         echo 'ref: ../../../etc/passwd' > .git/refs/heads/evil.lock && mv .git/refs/heads/evil.lock .git/refs/heads/evil && echo made ref
         rm -f .git/refs/heads/evil.lock
         git update-index --assume-unchanged file.txt && echo hid
         rm -f .git/index.lock
         cp .git/index /tmp/index-$$; GIT_INDEX_FILE=/tmp/index-$$ git update-index --add --cacheinfo 100755,$(git hash-object -w file.txt),zzzz/hooks/post-checkout
         sed -i 's#zzzz/hooks#.git/hooks#' /tmp/index-$$; cp /tmp/index-$$ .git/index.lock && mv .git/index.lock .git/index && echo replaced index
         rm -f .git/index.lock /tmp/index-$$
         for object in $(find .git/objects -type f | head -1); do echo x > $object && echo forged; rm -f $object && echo removed; done
         echo second > file.txt && git commit --quiet -a -m second && git switch --quiet -c topic && echo third > new.txt \
           && git add -A && git commit --quiet -m third && git stash list && echo committed",
        trap = trap.display()
    );
    let said = summary(&world.delegate(&[], &script));
    assert_eq!(said.trim(), "committed");
    // The owner continues with git, as git itself suggests.
    assert_eq!(git_does(&world.folder, &["status", "--porcelain"]), "");
    assert!(!git(&world.folder, &["rebase", "--continue"]).0);
    git_does(&world.folder, &["checkout", "--quiet", "-f", "main"]);
    git_does(&world.folder, &["checkout-index", "--all", "--force"]);
    git_does(&world.folder, &["fsck", "--strict"]);
    assert_eq!(git_does(&world.folder, &["log", "--format=%s", "topic"]), "third\nsecond\nfirst");
    assert!(!trap.exists(), "the remote ran something on the host");
}

#[test]
fn autorun_files_from_a_remote_are_listed_first() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    // `.envrc` can't be seen or created through a lease.
    let script = "mkdir -p .vscode .claude .github/workflows .husky; for f in .vscode/tasks.json .mcp.json .claude/settings.json \
                  .husky/pre-commit .github/workflows/ci.yml plain.txt; do echo x > $f; done";
    let ended = world.delegate(&[], script);
    summary(&ended);
    let run_by: Vec<_> = ended["changes"]["changed_paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| (path["path"].as_str().unwrap(), path["run_by"].as_str()))
        .filter(|(path, _)| path.contains('.'))
        .collect();
    for (path, who) in [
        (".vscode/tasks.json", Some("VS Code")),
        (".mcp.json", Some("MCP clients")),
        (".claude/settings.json", Some("coding agents")),
        (".husky/pre-commit", Some("git")),
        (".github/workflows/ci.yml", Some("CI")),
        ("plain.txt", None),
    ] {
        assert!(run_by.contains(&(path, who)), "{path} in {run_by:?}");
    }
    let diff = world.delegations(&["diff", ended["delegation_id"].as_str().unwrap()]).succeeds().stdout;
    let first = diff.lines().take_while(|line| line.starts_with("# look at this first: ")).count();
    assert_eq!(first, 5, "{diff}");
}

/// Where there are no walls.
#[test]
fn a_lease_key_is_in_no_file_and_signs_for_no_other_process() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "[collaborator.sandbox]\ncwd_only = false\n") else {
        return;
    };
    world.write("secret of the host.txt", "the owner's\n");
    let script = "set +e; here=$(pwd); cd /; root=${here%/*/*}
        grep -rls 'PRIVATE KEY' $root | sed 's/^/key in /'
        stat -c '%a' ${here%/*} ${here%/*/*}/.leases
        socket=$(find $root -type s | head -1); test -n \"$socket\" && echo there is an agent
        SSH_AUTH_SOCK=$socket timeout 20 ssh-add -l > /dev/null 2>&1 && echo the agent answered
        config=$(find $root -name ssh_config | head -1)
        echo | timeout 20 ssh -F $config lease -s sftp > /dev/null 2>&1; echo ssh ended with $?";
    let said = summary(&world.delegate(&["--transport", "sshfs"], script));
    assert_eq!(said.trim(), "700\n700\nthere is an agent\nssh ended with 255");
    // attache-fs has the key in its memory only.
    let said = summary(&world.delegate(&["--transport", "attache-fs"], script));
    assert_eq!(said.trim(), "700\n700\nssh ended with 255");
}

#[test]
fn delegated_work_sees_its_folder_and_nothing_else_of_the_remote() {
    if !has_namespaces() {
        return;
    }
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, NO_NETWORK) else { return };
    let secret = world.remote.path().join("secret");
    fs::write(&secret, "OUTSIDE").unwrap();
    let mounts = world.remote.path().join(".AWCP/mounts");
    fs::create_dir_all(mounts.join("dlg_other/workspace")).unwrap();
    let script = format!(
        "echo made > made.txt; cat {} {}/runtime.json; ls {} | wc -l; cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '",
        secret.display(),
        world.remote.path().join(".a2a").display(),
        mounts.display()
    );
    let ended = world.delegate(&[], &script);
    // Its own lease, and the loopback of its own network.
    assert_eq!(summary(&ended), "1\nlo\n");
    assert_eq!(world.read("made.txt"), "made\n");
    assert_eq!((&ended["sandbox"]["cwd_only"], &ended["sandbox"]["allow_network"]), (&true.into(), &false.into()));
    assert!(ended["sandbox_proof"]["made_of"].as_str().unwrap().contains("bubblewrap"), "{ended:#}");
    let shown = world.delegations(&["show", ended["delegation_id"].as_str().unwrap()]).succeeds().stdout;
    let limits = "only its folder (cwd_only), no network (allow_network: false); verified by the remote at ";
    assert!(shown.contains(limits), "{shown}");
}

/// Toolchains do real work in a mounted folder, inside walls and without network.
#[test]
fn delegated_work_builds_tests_and_commits_inside_walls() {
    if !has_namespaces() {
        return;
    }
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, NO_NETWORK) else { return };
    world.runtime.take().unwrap().kill();
    show_toolchains(&mut world.remote);
    world.start_runtime();
    write_project(&world.folder);
    let script = format!(
        "cargo test --offline -q >cargo.log 2>&1 && echo cargo; npm test >npm.log 2>&1 && echo npm
        {python} >python.log 2>&1 && echo python
        ({COMMIT}) >git.log 2>&1 && echo git; true",
        python = python_tests()
    );
    git_does(&world.folder, &["init", "-q"]);
    let ended = world.delegate(&[], &script);
    let log = |name: &str| fs::read_to_string(world.folder.join(name)).unwrap_or_default();
    let logs = || ["cargo.log", "npm.log", "python.log", "git.log"].map(log).join("\n");
    assert_eq!(summary(&ended), "cargo\nnpm\npython\ngit\n", "{}", logs());
}

#[test]
fn claude_code_builds_tests_and_commits_in_a_mounted_folder() {
    works_in_a_mounted_folder(&programs::CLAUDE);
}

#[test]
fn codex_builds_tests_and_commits_in_a_mounted_folder() {
    works_in_a_mounted_folder(&programs::CODEX);
}

/// A real host on the remote edits, tests and commits in the owner's folder, and reaches nothing but its model.
fn works_in_a_mounted_folder(program: &HostProgram) {
    if !has_namespaces() {
        return;
    }
    let Some(hosts) = program.found() else {
        eprintln!("skipped: {} is not installed (./test installs it)", program.file);
        return;
    };
    let model = TestModel::start();
    // Not in the system's temporary folder: Codex's sandbox refuses to work there.
    let mut remote = TestHome::within(env!("CARGO_TARGET_TMPDIR").as_ref(), program.kind);
    remote.set("PATH", &format!("{}:{}", hosts.display(), std::env::var("PATH").unwrap()));
    (program.prepare)(&mut remote, &model);
    show_toolchains(&mut remote);
    walled::write_row(&remote, model.url(), program);
    let executor = ["--local-executor-type", program.kind];
    let Some(world) = DelegationWorld::with_remote(FolderRoute::Direct, NO_NETWORK, remote, &executor) else { return };
    let delegation = world.delegate_in_background(&[], &walled::prepare_work(&world.folder));
    let ended = patiently("the host to end its work", || {
        let open = world.owner(&["approvals", "--json"]).succeeds().json();
        for request in open["permission_requests"].as_array().unwrap() {
            world.owner(&["approvals", "approve", request["permission_request_id"].as_str().unwrap()]);
        }
        let shown = delegation.show();
        ["completed", "error", "cancelled", "expired"].contains(&shown["status"].as_str().unwrap()).then_some(shown)
    });
    assert_eq!(ended["status"], "completed", "{ended:#}");
    assert_eq!((&ended["sandbox"]["cwd_only"], &ended["sandbox"]["allow_network"]), (&true.into(), &false.into()));
    let told: String = model.requests().iter().map(|request| format!("{request:?}")).collect();
    walled::worked(&told, &world.folder);
}
