//! Runs that work in a git worktree of their own, with the real binary: what they change, and what its owner makes of it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    harness::{TestHome, TestHub, process::TestProcess, until},
    sandbox::has_namespaces,
};

struct WorktreeDevice {
    home: TestHome,
    work: PathBuf,
    hub: TestHub,
    _runtime: TestProcess,
}

impl WorktreeDevice {
    /// `prepare` is what a person does in the agent's folder first.
    fn new(prepare: &str) -> Self {
        Self::running(prepare, "", &[])
    }

    /// The same for an agent in a folder below, with arguments for the runtime.
    fn running(prepare: &str, below: &str, runtime: &[&str]) -> Self {
        let mut home = TestHome::new();
        let temporary = home.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        home.set("TMPDIR", temporary.to_str().unwrap());
        let work = home.path().canonicalize().unwrap().join("work");
        let cwd = work.join(below);
        fs::create_dir_all(&cwd).unwrap();
        let hub = home.hub(&[]);
        hub.add_agent("builder");
        let code = hub.pairing_code("builder");
        let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--workspace", cwd.to_str().unwrap()];
        home.attache(&pair).succeeds();
        person(&home, &work, prepare);
        let runtime = home.runtime(runtime);
        Self { home, work, hub, _runtime: runtime }
    }

    fn with_repository() -> Self {
        let device = Self::new(
            "git init -q -b main . && printf '1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n' > a && echo out > .gitignore && git add . \
             && git -c user.name=a -c user.email=a@b commit -qm first",
        );
        let trap = device.home.path().join("trap.sh");
        fs::write(&trap, format!("#!/bin/sh\ntouch {}\n", device.trapped().display())).unwrap();
        fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).unwrap();
        for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-commit"] {
            fs::copy(&trap, device.work.join(".git/hooks").join(hook)).unwrap();
        }
        device.person(&format!("git config core.fsmonitor {0}; git config alias.status '!{0}'", trap.display()));
        device
    }

    fn trapped(&self) -> PathBuf {
        self.home.path().join("trapped")
    }

    #[track_caller]
    fn person(&self, script: &str) -> String {
        person(&self.home, &self.work, script)
    }

    fn worktrees(&self) -> Vec<serde_json::Value> {
        let listed = self.home.attache(&["worktrees", "--json"]).succeeds().json();
        listed["worktrees"].as_array().unwrap().clone()
    }
}

/// What somebody does in the agent's folder, without the repository's programs.
#[track_caller]
fn person(home: &TestHome, work: &Path, script: &str) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(work).env("HOME", home.path()).env("GIT_CONFIG_NOSYSTEM", "1");
    shell.env("GIT_CONFIG_COUNT", "2").env("GIT_CONFIG_KEY_0", "core.hooksPath").env("GIT_CONFIG_VALUE_0", "/dev/null");
    shell.env("GIT_CONFIG_KEY_1", "core.fsmonitor").env("GIT_CONFIG_VALUE_1", "false");
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_run_works_apart_and_its_owner_decides() {
    let device = WorktreeDevice::with_repository();
    let script = "pwd; git branch --show-current; sed -i 's/^2$/two/' a; echo new > b; echo built > out";
    let ran = device.home.attache(&["ask", "builder", script, "--worktree"]).succeeds();
    let listed = device.worktrees();
    let one = &listed[0];
    let (run, folder) = (one["task_run_id"].as_str().unwrap(), one["folder"].as_str().unwrap());
    let branch = format!("attache/{run}");
    assert_eq!(ran.stdout, format!("{folder}\n{branch}\n"));
    assert_eq!(
        (&one["branch"], &one["commits"], &one["uncommitted"]),
        (&branch.clone().into(), &0.into(), &true.into())
    );
    assert_eq!(one["changed"], serde_json::json!(["a", "b"]));
    assert_eq!(device.person("git status --porcelain; git branch --show-current"), "main\n", "untouched");
    let shown = device.hub.get(&format!("/api/v1/task-runs/{run}"));
    assert_eq!(shown["worktree"], true);
    // Everybody who may see the run sees the changes.
    let events = device.hub.get(&format!("/api/v1/task-runs/{run}/events"));
    let artifact =
        events["events"].as_array().unwrap().iter().find(|event| event["type"].as_str().unwrap().contains("artifact"));
    assert!(artifact.unwrap().to_string().contains("+two"), "{artifact:?}");

    let diff = device.home.attache(&["worktrees", "diff", "last"]).succeeds().stdout;
    assert!(diff.contains("-2\n+two\n") && diff.contains("+new\n") && !diff.contains("built"), "{diff}");
    // The owner edits the same file elsewhere, and takes the changes over.
    device.person("sed -i 's/^7$/seven/' a");
    let applied = device.home.attache(&["worktrees", "apply", run]).succeeds();
    assert_eq!(applied.stdout, "a\nb\n");
    assert_eq!(fs::read_to_string(device.work.join("a")).unwrap(), "1\ntwo\n3\n4\n5\n6\nseven\n8\n");
    assert_eq!(device.person("git status --porcelain"), " M a\n?? b\n");

    let committed =
        device.home.attache(&["worktrees", "commit", &run[run.len() - 8..], "-m", "by the agent"]).succeeds();
    assert!(committed.stderr.contains(&format!("Next: git merge {branch}")), "{}", committed.stderr);
    assert_eq!(
        device.person(&format!("git log --format=%s {branch} && git show {branch}:b")),
        "by the agent\nfirst\nnew\n"
    );
    let again = device.home.attache(&["worktrees", "commit", "last"]).exits(1);
    assert!(again.stderr.contains("nothing was changed"), "{}", again.stderr);
    let table = device.home.attache(&["worktrees"]).succeeds().stdout;
    assert!(table.contains("2 files, committed"), "{table}");

    device.home.attache(&["worktrees", "discard", "last", "--yes"]).succeeds();
    assert_eq!(device.person("git branch --list 'attache/*'; git worktree list | wc -l"), "1\n");
    assert!(!PathBuf::from(folder).exists() && device.worktrees().is_empty());
    device.home.attache(&["worktrees", "diff", run]).exits(3);
    assert!(!device.trapped().exists(), "git executed a program of the repository");
}

#[test]
fn a_conflict_changes_nothing_and_a_run_without_changes_leaves_nothing() {
    let device = WorktreeDevice::with_repository();
    device.home.attache(&["ask", "builder", "ls; git status --porcelain", "--worktree"]).succeeds();
    assert!(device.worktrees().is_empty());
    assert_eq!(device.person("git branch --list 'attache/*'"), "");
    // A run that fails leaves what it did.
    device.home.attache(&["ask", "builder", "sed -i 's/^2$/two/' a; echo new > b; exit 3", "--worktree"]).exits(1);
    device.person("sed -i 's/^2$/zwei/' a");
    let refused = device.home.attache(&["worktrees", "apply", "last"]).exits(1);
    assert!(
        refused.stderr.contains("changed in") && refused.stderr.contains(": a; nothing was applied"),
        "{}",
        refused.stderr
    );
    assert_eq!(device.person("git status --porcelain; cat a | head -n 2"), " M a\n1\nzwei\n");
}

/// The device's owner, with a key and a home of their own, on another machine.
struct OtherMachine {
    home: TestHome,
    hub: Vec<String>,
}

impl OtherMachine {
    fn of(device: &WorktreeDevice) -> Self {
        let home = TestHome::new();
        let key = device.home.keep_secret("other.key", &device.home.owner_key());
        Self { home, hub: ["--hub", &device.hub.url, "--key-file", &key].map(str::to_owned).to_vec() }
    }

    fn worktrees(&self, args: &[&str]) -> crate::harness::process::FinishedProcess {
        let mut all = vec!["worktrees"];
        all.extend(args);
        all.push("--remote");
        all.extend(self.hub.iter().map(String::as_str));
        self.home.attache(&all)
    }
}

#[test]
fn the_owner_decides_from_another_machine() {
    let device = WorktreeDevice::with_repository();
    let other = OtherMachine::of(&device);
    let script = "sed -i 's/^2$/two/' a; echo new > b";
    device.home.attache(&["ask", "builder", script, "--worktree"]).succeeds();
    let run = device.worktrees()[0]["task_run_id"].as_str().unwrap().to_owned();
    let branch = format!("attache/{run}");

    device.person("sed -i 's/^2$/zwei/' a");
    let refused = other.worktrees(&["apply", &run]).exits(1);
    let folder = device.work.display();
    assert!(
        refused.stderr.contains(&format!("these files were also changed in {folder}: a; nothing was applied")),
        "{}",
        refused.stderr
    );
    device.person("git checkout -q a && sed -i 's/^7$/seven/' a");
    let applied = other.worktrees(&["apply", "last"]).succeeds();
    assert_eq!(applied.stdout, "a\nb\n");
    assert_eq!(fs::read_to_string(device.work.join("a")).unwrap(), "1\ntwo\n3\n4\n5\n6\nseven\n8\n");

    let committed = other.worktrees(&["commit", &run, "-m", "by the agent"]).succeeds();
    assert!(committed.stderr.contains(&format!("Next: git merge {branch}")), "{}", committed.stderr);
    assert_eq!(device.person(&format!("git log --format=%s {branch}")), "by the agent\nfirst\n");
    let again = other.worktrees(&["commit", &run]).exits(1);
    assert!(again.stderr.contains("nothing was changed"), "{}", again.stderr);

    let discarded = other.worktrees(&["discard", &run, "--yes", "--json"]).succeeds().json();
    assert_eq!((&discarded["action"], &discarded["outcome"]["result"]), (&"discard".into(), &"done".into()));
    assert_eq!(device.person("git branch --list 'attache/*'; git worktree list | wc -l"), "1\n");
    assert!(device.worktrees().is_empty());
    let gone = other.worktrees(&["apply", &run]).exits(3);
    assert!(gone.stderr.contains(&format!("the device has no worktree of {run}")), "{}", gone.stderr);
    assert!(!device.trapped().exists(), "git executed a program of the repository");
}

/// Neither the hub's restart nor the device's loses a decision, and a device that is gone gets none.
#[test]
fn a_decision_survives_restarts_and_does_not_wait_for_a_device() {
    let device = WorktreeDevice::with_repository();
    let other = OtherMachine::of(&device);
    device.home.attache(&["ask", "builder", "echo new > b", "--worktree"]).succeeds();
    let run = device.worktrees()[0]["task_run_id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/task-runs/{run}/worktree");
    let WorktreeDevice { home, work, hub, _runtime: runtime } = device;

    // Killed, it counts as online for a while. The decision waits for the next process.
    runtime.kill();
    runtime.wait();
    let decided = hub.post(&path, &serde_json::json!({"action": "apply"})).expect(202).json();
    assert_eq!(decided["decision"]["state"], "pending");
    let restarted = home.runtime(&[]);
    until("the device answers", || (hub.get(&path)["decision"]["state"] == "settled").then_some(()));
    assert_eq!(hub.get(&path)["decision"]["outcome"]["files"], serde_json::json!(["b"]));
    assert_eq!(fs::read_to_string(work.join("b")).unwrap(), "new\n");

    restarted.terminate();
    let refused = other.worktrees(&["discard", &run, "--yes"]).exits(5);
    assert!(
        refused.stderr.contains("The device of `builder` is offline, so nothing was decided"),
        "{}",
        refused.stderr
    );
    assert_eq!(hub.get(&path)["decision"]["action"], "apply");
}

/// Git looks neither below a submodule's folder nor at a repository's own files.
#[test]
fn work_in_a_submodule_is_kept_and_named() {
    let device = WorktreeDevice::new(
        "git init -q ../lib && git -C ../lib -c user.name=a -c user.email=a@b commit -q --allow-empty -m lib && \
         git init -q -b main . && git -c protocol.file.allow=always submodule --quiet add ../lib lib && \
         mkdir tracked && echo x > tracked/a && git add . && git -c user.name=a -c user.email=a@b commit -qm first",
    );
    let script = "echo work > lib/new.txt; git init -q tracked";
    device.home.attache(&["ask", "builder", script, "--worktree"]).succeeds();
    let one = device.worktrees().remove(0);
    assert_eq!(one["nested"], serde_json::json!(["lib/", "tracked/"]), "{one}");
    let folder = PathBuf::from(one["folder"].as_str().unwrap());
    assert_eq!(fs::read_to_string(folder.join("lib/new.txt")).unwrap(), "work\n");
    let run = one["task_run_id"].as_str().unwrap();
    let events = device.hub.get(&format!("/api/v1/task-runs/{run}/events")).to_string();
    assert!(events.contains("separate repositories or submodules: lib/, tracked/"), "{events}");
}

#[test]
fn what_can_have_no_worktree_is_refused_and_not_started() {
    let plain = WorktreeDevice::new("true");
    let refused = plain.home.attache(&["ask", "builder", "touch started", "--worktree"]);
    assert!(refused.stderr.contains("The agent `builder` can't give a run a worktree"), "{}", refused.stderr);
    assert!(refused.status != Some(0) && !plain.work.join("started").exists());

    let device = WorktreeDevice::new("git init -q .");
    let refused = |reason: &str| {
        let refused = device.home.attache(&["ask", "builder", "touch started", "--worktree"]).exits(1);
        assert!(refused.stderr.contains(reason), "{}", refused.stderr);
        assert!(!device.work.join("started").exists() && device.worktrees().is_empty());
    };
    refused("has no commit yet");
    // The device says so itself, until the hub has learnt of it.
    device.person("rm -rf .git");
    refused("isn't in a git repository with a working tree");
    device.person("git init -q --bare .");
    refused("isn't in a git repository with a working tree");
    // Somebody who may call the agent, but not change it.
    device.home.attache(&["users", "add", "ada", "--role", "operator"]).succeeds();
    let key = device.home.attache(&["keys", "add", "ada", "--user", "ada", "--json"]).succeeds().json();
    let file = device.home.keep_secret("ada.key", key["api_key"].as_str().unwrap());
    let theirs = ["ask", "builder", "touch started", "--worktree", "--hub", &device.hub.url, "--key-file", &file];
    let refused = device.home.attache(&theirs).exits(4);
    assert!(refused.stderr.contains("can give a run a worktree"), "{}", refused.stderr);
}

#[test]
fn walls_open_nothing_else_of_the_repository() {
    if !has_namespaces() {
        return;
    }
    let device = WorktreeDevice::with_repository();
    let main = device.work.display();
    let script = format!(
        "export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=/dev/null
         export GIT_CONFIG_KEY_1=core.fsmonitor GIT_CONFIG_VALUE_1=false
         echo mine >> a; git add a && git -c user.name=r -c user.email=r@r commit -qm inside && git log --format=%s -n 2
         own={main}/.git/worktrees/$ATTACHE_TASK_RUN_ID branch=attache/$ATTACHE_TASK_RUN_ID
         for file in config hooks/pre-commit HEAD refs/heads/main packed-refs index objects/planted objects/info/alternates \
            refs/heads/$branch logs/refs/heads/$branch refs/heads/attache/other; do
            (echo x >> {main}/.git/$file) 2>/dev/null && echo wrote $file
         done
         for file in commondir gitdir config.worktree HEAD index index.attache; do
            (echo x >> $own/$file) 2>/dev/null && echo wrote $file
            rm -f $own/$file 2>/dev/null; ln -s /etc/passwd $own/$file 2>/dev/null && echo linked $file
         done
         for object in {main}/.git/objects/??/*; do rm -f $object 2>/dev/null && echo removed $object; done
         mv .git moved 2>/dev/null && echo moved .git
         echo x > {main}/planted 2>/dev/null; cat {main}/a 2>/dev/null
         git update-ref refs/heads/main HEAD && git tag planted && echo x > .git"
    );
    let ran = device.home.attache(&["ask", "builder", &script, "--worktree", "--sandbox", "cwd-only"]).succeeds();
    assert_eq!(ran.stdout, "inside\nfirst\n", "{}", ran.stderr);
    let one = device.worktrees().remove(0);
    // Its own commits are not taken over, but its files are.
    assert_eq!(
        (&one["commits"], &one["uncommitted"], &one["changed"]),
        (&0.into(), &true.into(), &serde_json::json!(["a"]))
    );
    let run = one["task_run_id"].as_str().unwrap();
    let admin = device.work.join(".git/worktrees").join(run);
    assert!(!admin.join("config.worktree").exists(), "nothing is left of what kept others out");
    let pointer = fs::read_to_string(Path::new(one["folder"].as_str().unwrap()).join(".git")).unwrap();
    assert_eq!(pointer, format!("gitdir: {}\n", admin.display()));
    device.home.attache(&["worktrees", "commit", "last", "-m", "kept"]).succeeds();
    assert_eq!(device.person(&format!("git log --format=%s attache/{run}; git tag; git fsck 2>&1")), "kept\nfirst\n");
    assert_eq!(device.person("git log --format=%s -n 1; git status --porcelain"), "first\n");
    assert!(!device.trapped().exists());
}

/// Neither a `.git` that an earlier run left there nor a worktree of a part of a repository shows a run inside walls more
/// than its folder.
#[test]
fn a_worktree_shows_no_more_than_the_folder() {
    if !has_namespaces() {
        return;
    }
    let walled = |device: &WorktreeDevice, script: &str, options: &[&str]| {
        let arguments = ["ask", "builder", script, "--sandbox", "cwd-only"];
        device.home.attache(&[&arguments, options].concat())
    };
    let commit = "git add . && git -c user.name=a -c user.email=a@b commit -qm first";
    let device = WorktreeDevice::new(&format!(
        "mkdir ../other && cd ../other && git init -q -b main . && echo SECRET > s.txt && {commit}"
    ));
    let other = device.home.path().canonicalize().unwrap().join("other");
    let planted = walled(&device, &format!("echo 'gitdir: {}/.git' > .git; cat {0}/s.txt", other.display()), &[]);
    assert!(!planted.stdout.contains("SECRET") && device.work.join(".git").is_file(), "{}", planted.stderr);
    let script = format!("cat s.txt {0}/.git/HEAD; git log; echo started > started", other.display());
    let refused = until("the hub to learn of the repository", || {
        let asked = walled(&device, &script, &["--worktree"]);
        (!asked.stderr.contains("can't give a run a worktree")).then_some(asked)
    });
    assert!(refused.stderr.contains("doesn't name it as a working tree"), "{}", refused.stderr);
    assert!(refused.status != Some(0) && !refused.stdout.contains("SECRET"), "{}", refused.stdout);
    assert_eq!(
        (device.worktrees().len(), device.person("git -C ../other branch --list 'attache/*'")),
        (0, String::new())
    );

    let prepare = format!("git init -q -b main . && echo SECRET > s.txt && echo seen > part/a && {commit}");
    let part = WorktreeDevice::running(&prepare, "part", &[]);
    let ran = walled(&part, "cat a; cat ../s.txt; git show HEAD:s.txt", &["--worktree"]);
    assert_eq!(ran.stdout, "seen\n", "{}", ran.stderr);
}

/// What one run leaves behind is ended with it. The git that looks at another one's changes isn't that.
#[test]
fn runs_that_end_at_the_same_time_keep_their_changes() {
    let first = "git init -q -b main . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first";
    let device = WorktreeDevice::running(first, "", &["--concurrency", "3"]);
    for round in 0..4 {
        let ask = |number: usize| {
            let script = format!("echo x > file-{round}-{number}");
            device.home.spawn("ask", &["ask", "builder", &script, "--worktree"])
        };
        for run in [0, 1, 2].map(ask) {
            assert!(run.wait().success(), "{}", run.stderr());
            assert!(!run.stderr().contains("can't be shown"), "{}", run.stderr());
        }
    }
    let changed: Vec<_> = device.worktrees().iter().map(|one| one["changed"].as_array().unwrap().len()).collect();
    assert_eq!(changed, [1; 12]);
}

/// It could put a link in the place of a folder at any moment.
#[test]
fn a_worktree_is_left_alone_while_its_run_works() {
    let device = WorktreeDevice::with_repository();
    let script = "echo new > b; until [ -e out ]; do sleep 0.05; done";
    let run = device.home.spawn("ask", &["ask", "builder", script, "--worktree"]);
    let one = until("the run to work", || {
        let one = device.worktrees().into_iter().find(|one| one["working"] == true)?;
        Path::new(one["folder"].as_str().unwrap()).join("b").exists().then_some(one)
    });
    assert_eq!(one["changed"], serde_json::Value::Null);
    assert!(device.home.attache(&["worktrees"]).succeeds().stdout.contains("working"));
    for action in [&["diff", "last"][..], &["commit", "last"], &["apply", "last"], &["discard", "last", "--yes"]] {
        let refused = device.home.attache(&[&["worktrees"], action].concat()).exits(1);
        assert!(refused.stderr.contains("is still working in its worktree"), "{}", refused.stderr);
    }
    fs::write(Path::new(one["folder"].as_str().unwrap()).join("out"), "").unwrap();
    assert!(run.wait().success(), "{}", run.stderr());
    assert_eq!(device.worktrees()[0]["changed"], serde_json::json!(["b"]));
    device.home.attache(&["worktrees", "apply", "last"]).succeeds();
}
