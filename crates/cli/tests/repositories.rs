//! Repositories that a run worked in, or made: git executes nothing that it left there.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process::Command,
};

use crate::{
    harness::{
        TestHome, TestHub,
        process::{children, signal},
        until,
    },
    sandbox::has_namespaces,
};

/// A folder with a repository, a linked working tree beside it, a submodule and a repository of its own below it.
struct TestRepository {
    home: TestHome,
    work: PathBuf,
    /// Created by whatever is executed that should not be.
    trap: PathBuf,
}

/// Tries every way to lead git to settings with a program, then waits.
const PLANT: &str = r#"evil=$PWD/evil.sh
settings() { printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = %s\n' "$evil"; }
mkdir other; cp -r .git/objects .git/refs other/; settings > other/config
for git in .git .git/worktrees/beside .git/modules/lib nested/.git; do
    for file in config config.worktree commondir hooks; do rm -rf $git/$file; mv $git/$file $git/old; done
    settings > $git/config; settings > $git/config.worktree; settings >> $git/config
    echo "$PWD/other" > $git/commondir
    mkdir $git/hooks; cp evil.sh $git/hooks/post-index-change
done
for folder in lib nested; do
    mv $folder gone; mv $folder/.git $folder/old; rm -f $folder/.git
    git init -q $folder; git -C $folder config core.fsmonitor "$evil"
done
mkdir .git/worktrees/later 2>/dev/null && echo made a folder of a linked working tree
commit() { git -C $1 -c user.name=a -c user.email=a@b commit -q --allow-empty -m more; }
commit . && commit lib && commit nested && echo works
touch planted; until [ -e go ]; do sleep 0.05; done"#;

impl TestRepository {
    fn new() -> Self {
        let mut home = TestHome::new();
        let temporary = home.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        home.set("TMPDIR", temporary.to_str().unwrap());
        let (work, trap) = (home.path().join("work"), home.path().join("trapped"));
        fs::create_dir(&work).unwrap();
        let repository = Self { home, work, trap };
        repository.write_evil();
        repository
    }

    fn write_evil(&self) {
        let evil = self.work.join("evil.sh");
        fs::write(&evil, format!("#!/bin/sh\ntouch {}\n", self.trap.display())).unwrap();
        fs::set_permissions(evil, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn populate(&self) {
        self.host(
            "git init -q ../origin && git -C ../origin -c user.name=a -c user.email=a@b commit -q --allow-empty -m x",
        );
        self.host("git init -q . && git init -q nested && git config extensions.worktreeConfig true");
        self.host("git -c protocol.file.allow=always submodule --quiet add ../origin lib");
        self.host("git add .gitmodules lib && git -c user.name=a -c user.email=a@b commit -qm first");
        self.host("git worktree add -q ../beside");
    }

    /// What a person does in a terminal in the folder.
    #[track_caller]
    fn host(&self, script: &str) {
        let output = self.try_host(script);
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    }

    fn try_host(&self, script: &str) -> std::process::Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(&self.work).env("HOME", self.home.path()).env_remove("GIT_DIR");
        shell.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0").output().unwrap()
    }

    /// A person's plain `git status` executes nothing, anywhere.
    #[track_caller]
    fn is_safe(&self) {
        for folder in [".", "lib", "nested", "../beside"] {
            self.host(&format!("git -C {folder} status && git -C {folder} add -u"));
            assert!(!self.trap.exists(), "git executed what a run left behind, in {folder}");
        }
    }

    /// Nothing is left of what keeps others out while something runs.
    fn is_tidy(&self) -> bool {
        let absent = [".git/commondir", ".git/config.worktree", ".git/worktrees/beside/config.worktree"];
        let nested = [".git/modules/lib/commondir", "nested/.git/commondir", "nested/.git/config.worktree"];
        absent.iter().chain(&nested).all(|name| !self.work.join(name).exists())
    }

    fn builder(&self) -> TestHub {
        let hub = self.home.hub(&[]);
        hub.add_agent("builder");
        let code = hub.pairing_code("builder");
        let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--workspace", self.work.to_str().unwrap()];
        self.home.attache(&pair).succeeds();
        hub
    }
}

#[test]
fn a_run_inside_walls_leads_git_to_no_other_settings() {
    if !has_namespaces() {
        return;
    }
    let repository = TestRepository::new();
    repository.populate();
    let _hub = repository.builder();
    let _runtime = repository.home.runtime(&["--concurrency", "2"]);
    let run = repository.home.spawn("ask", &["ask", "builder", PLANT, "--sandbox", "cwd-only"]);
    until("the run to plant everything", || repository.work.join("planted").exists().then_some(()));
    repository.is_safe();
    // Another run beside it ends first.
    repository.home.attache(&["ask", "builder", "git status", "--sandbox", "cwd-only"]).succeeds();
    assert_eq!(fs::read_to_string(repository.work.join(".git/commondir")).unwrap(), ".\n");
    fs::write(repository.work.join("go"), "").unwrap();
    assert!(run.wait().success(), "{}", run.stderr());
    assert_eq!(run.stdout(), "works\n", "{}", run.stderr());
    repository.is_safe();
    assert!(repository.is_tidy());
}

#[test]
fn what_keeps_git_safe_is_removed_after_a_kill() {
    if !has_namespaces() {
        return;
    }
    let repository = TestRepository::new();
    repository.populate();
    let _hub = repository.builder();
    let runtime = repository.home.runtime(&[]);
    let _run = repository.home.spawn("ask", &["ask", "builder", PLANT, "--sandbox", "cwd-only"]);
    until("the run to plant everything", || repository.work.join("planted").exists().then_some(()));
    let adapters = children(runtime.id());
    runtime.kill();
    adapters.into_iter().for_each(|adapter| signal(adapter, "KILL"));
    repository.is_safe();
    assert!(!repository.is_tidy());
    fs::write(repository.work.join("go"), "").unwrap();
    let _runtime = repository.home.runtime(&[]);
    until("the next adapter to tidy up", || repository.is_tidy().then_some(()));
    repository.is_safe();
}

#[test]
fn a_command_inside_walls_leads_git_to_no_other_settings() {
    if !has_namespaces() {
        return;
    }
    let repository = TestRepository::new();
    repository.populate();
    fs::write(repository.work.join("go"), "").unwrap();
    let command = |script: &str| {
        let mut command = repository.home.command(&["sandbox", "--", "sh", "-c", script]);
        command.current_dir(&repository.work);
        command
    };
    let ended = command(&format!("{PLANT}; exit 7")).output().unwrap();
    assert_eq!(ended.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "works\n", "{}", String::from_utf8_lossy(&ended.stderr));
    repository.is_safe();
    assert!(repository.is_tidy());
    // Stopped, it tidies up. Killed, it leaves that to the next.
    for (name, tidies) in [("TERM", true), ("KILL", false)] {
        let started = repository.work.join(name);
        let mut child = command(&format!("touch {name}; sleep 1000")).spawn().unwrap();
        until("the command to start", || started.exists().then_some(()));
        signal(child.id(), name);
        assert!(!child.wait().unwrap().success());
        assert_eq!(repository.is_tidy(), tidies, "{name}");
    }
    assert!(command("true").status().unwrap().success());
    assert!(repository.is_tidy());
}

/// A link can't be kept from being replaced.
#[test]
fn nothing_starts_beside_a_link_to_a_repository() {
    if !has_namespaces() {
        return;
    }
    let repository = TestRepository::new();
    repository.host("git init -q . && mv .git real");
    symlink("real", repository.work.join(".git")).unwrap();
    let _hub = repository.builder();
    let _runtime = repository.home.runtime(&[]);
    let script =
        "git config core.fsmonitor $PWD/evil.sh; rm .git; git init -q .; git config core.fsmonitor $PWD/evil.sh";
    let refused = repository.home.attache(&["ask", "builder", script, "--sandbox", "cwd-only"]).exits(1);
    assert!(refused.stderr.contains(".git is a link, which the task could replace; put a file"), "{}", refused.stderr);
    let mut command = repository.home.command(&["sandbox", "--", "sh", "-c", script]);
    assert!(!command.current_dir(&repository.work).status().unwrap().success());
    repository.host("git status");
    assert!(!repository.trap.exists());
    // As the message says.
    repository.host("rm .git && echo 'gitdir: real' > .git");
    repository.home.attache(&["ask", "builder", &format!("{script}; true"), "--sandbox", "cwd-only"]).succeeds();
    repository.host("git status");
    assert!(!repository.trap.exists());
}

/// How a repository names programs, and the command that executes them.
const HOSTILE: [(&str, &str); 16] = [
    (
        "git config gpg.format ssh; git config commit.gpgsign true; git config gpg.ssh.defaultKeyCommand $PWD/evil.sh",
        "git commit --allow-empty -m x",
    ),
    (
        "mkdir git-remote-x; git config remote.origin.url foo; git config remote.origin.vcs x/../evil.sh",
        "git fetch origin",
    ),
    ("git config remote.origin.url .; git config remote.origin.uploadpack $PWD/evil.sh", "git fetch origin"),
    ("git config remote.origin.url .; git config remote.origin.receivepack $PWD/evil.sh", "git push origin HEAD:x"),
    ("git config remote.origin.url .; cp evil.sh .git/hooks/pre-receive", "git push origin HEAD:x"),
    (
        "git config branch.main.remote .; git config push.default upstream; git config branch.main.merge refs/heads/x; cp evil.sh .git/hooks/pre-receive",
        "git push",
    ),
    ("git config core.gitProxy $PWD/evil.sh", "git fetch git://127.0.0.1:1/x"),
    ("git config gc.recentObjectsHook $PWD/evil.sh; echo x | git hash-object -w --stdin", "git prune"),
    (
        "git switch -qc other HEAD~1; git commit -q --allow-empty -m y; git config rebase.instructionFormat \"%s%nexec $PWD/evil.sh\"",
        "git rebase --keep-empty main",
    ),
    (
        "git config diff.tool ../../../../../../../../../../../../$PWD/evil.sh; echo x > file; git add -N file",
        "timeout 20 git difftool -y file",
    ),
    (
        "git config difftool.meld.path $PWD/evil.sh; git config diff.tool meld; echo x > file; git add -N file",
        "timeout 20 git difftool -y file",
    ),
    ("git config tar.x.command $PWD/evil.sh", "git archive --format=x HEAD"),
    (
        "printf '[filter \"x\"]\\n\\tclean = %s\\n' $PWD/evil.sh > .git/more; git config includeIf.onbranch:topic.path more; \
         echo '*.txt filter=x' > .gitattributes; echo x > a.txt",
        "git switch -qc topic; git add a.txt",
    ),
    (
        "printf '[filter \"x\"]\\n\\tclean = %s\\n' $PWD/evil.sh > inc; echo '*.txt filter=x' > .gitattributes; git switch -qc topic; \
         git add .gitattributes inc; git commit -qm inc; git switch -q main; git config include.path '~/work/inc'",
        "git switch -q topic; echo x > a.txt; git add a.txt",
    ),
    (
        "name=$(printf '\\377'); git config filter.$name.clean $PWD/evil.sh; echo \"*.txt filter=$name\" > .gitattributes; \
         echo x > a.txt",
        "git add a.txt",
    ),
    (
        "yes '[x] y = 01234567890123456789' | head -n 60000 >> .git/config; git config filter.x.clean $PWD/evil.sh; \
         echo '*.txt filter=x' > .gitattributes; echo x > a.txt",
        "git add a.txt",
    ),
];

/// Somebody else's run can make a repository with any settings. The owner's own runs, outside the walls, obey none that
/// names a program.
#[test]
fn a_run_outside_walls_executes_no_program_of_a_repository() {
    let repository = TestRepository::new();
    let _hub = repository.builder();
    let _runtime = repository.home.runtime(&[]);
    let identity = "GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b";
    for (settings, command) in HOSTILE {
        let prepare = || {
            fs::remove_dir_all(&repository.work).unwrap();
            fs::create_dir(&repository.work).unwrap();
            repository.write_evil();
            let start = "git init -q -b main . && git commit -q --allow-empty -m a && git commit -q --allow-empty -m b";
            repository.host(&format!("export {identity}; {start}; {settings}"));
        };
        prepare();
        let script = format!("export {identity}; {command}; true");
        repository.home.attache(&["ask", "builder", &script]).succeeds();
        assert!(!repository.trap.exists(), "executed by `{command}` with: {settings}");
        prepare();
        repository.try_host(&script);
        assert!(repository.trap.exists(), "the attempt proves nothing: `{command}` with: {settings}");
        fs::remove_file(&repository.trap).unwrap();
    }
}

/// How the repository of a folder leads git to what is beside the folder: to files, or to another repository.
const LEADING: [&str; 9] = [
    "git init -q -b main . && git config core.worktree ../../elsewhere",
    "git init -q -b main . && git config extensions.worktreeConfig true && git config --worktree core.worktree ../../elsewhere",
    "echo 'gitdir: ../prod/.git' > .git",
    "ln -s ../prod/.git .git",
    "git init -q -b main . && echo ../../prod/.git > .git/commondir",
    "git init -q -b main . && rm -r .git/refs .git/objects && ln -s ../../prod/.git/refs ../../prod/.git/objects .git/",
    "git init -q -b planted . && rmdir .git/refs/heads && ln -s ../../../prod/.git/refs/heads .git/refs/heads",
    "git init -q -b main . && mkdir .git/logs && ln -s ../../../elsewhere/profile .git/logs/HEAD",
    "git init -q -b main . && ln -s ../../elsewhere/profile .git/COMMIT_EDITMSG",
];

/// Somebody else's run can plant such a repository, and the owner's own runs read or write nothing by it.
#[test]
fn a_run_outside_walls_is_led_to_no_other_files() {
    let repository = TestRepository::new();
    let hub = repository.builder();
    let _runtime = repository.home.runtime(&[]);
    let home = repository.home.path();
    let identity = "GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b";
    let script =
        format!("export {identity}; echo done > result; git add -A; git commit -qm wip; git status --short; true");
    let prepare = |plant: &str| {
        for folder in ["work", "elsewhere", "prod"] {
            let _ = fs::remove_dir_all(home.join(folder));
            fs::create_dir(home.join(folder)).unwrap();
        }
        fs::write(home.join("elsewhere/profile"), "SECRET\n").unwrap();
        repository
            .host(&format!("export {identity}; cd ../prod; git init -q -b main .; git commit -q --allow-empty -m a"));
        repository.host(plant);
        contents(&[home.join("elsewhere"), home.join("prod")])
    };
    let is_read = || {
        let read = "git --git-dir=.git --work-tree=. cat-file -e $(git hash-object --no-filters ../elsewhere/profile)";
        repository.try_host(&format!("cd .; {read}")).status.success()
    };
    let is_written = |before| contents(&[home.join("elsewhere"), home.join("prod")]) != before;
    for plant in LEADING {
        let before = prepare(plant);
        let ran = repository.home.attache(&["ask", "builder", &script]).succeeds();
        assert!(!is_written(before) && !is_read(), "{plant}\n{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.stdout, "", "{plant}");
        let run = hub.get("/api/v1/task-runs")["task_runs"][0]["task_run_id"].as_str().unwrap().to_owned();
        let events = hub.get(&format!("/api/v1/task-runs/{run}/events")).to_string();
        assert!(events.contains("git isn't usable in this run"), "{plant}\n{events}");
        let before = prepare(plant);
        repository.try_host(&script);
        assert!(is_written(before) || is_read(), "the attempt proves nothing: {plant}");
    }
    // What a person has.
    for own in [
        "git init -q -b main .",
        "git init -q -b main . && git config core.worktree ..",
        "git init -q -b main --separate-git-dir ../elsewhere/git . && git --git-dir=../elsewhere/git config core.worktree $PWD",
        "git -C ../prod worktree add -q --detach -f ../work",
        "git init -q -b main . && rm -rf .git/hooks && ln -s /etc .git/hooks && ln -s ../../elsewhere .git/rr-cache && ln -sf refs/heads/main .git/HEAD",
    ] {
        prepare(&format!("rm -rf .git; {own}"));
        let ran =
            repository.home.attache(&["ask", "builder", &format!("{script}; git log --format=%s -n 1")]).succeeds();
        assert_eq!(ran.stdout, "wip\n", "{own}\n{}", ran.stderr);
    }
}

/// How a repository makes git copy what is beside the folder into it, where a run inside walls reads it later, and the command.
const COPYING: [(&str, &str); 3] = [
    (
        "git switch -qc topic; git commit -q --allow-empty -m b; git switch -q main; git commit -q --allow-empty -m c; \
         git config branch.main.mergeoptions '-F ../elsewhere/profile --no-edit'",
        "git merge topic",
    ),
    ("git config fsck.skipList ../elsewhere/profile", "git fsck 2>&1 | git hash-object -w --stdin"),
    ("git remote add origin ../prod", "git fetch origin"),
];

#[test]
fn a_run_outside_walls_copies_nothing_for_a_repository() {
    let repository = TestRepository::new();
    let _hub = repository.builder();
    let _runtime = repository.home.runtime(&[]);
    let home = repository.home.path();
    let identity = "GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b";
    let prepare = |plant: &str| {
        for folder in ["work", "elsewhere", "prod"] {
            let _ = fs::remove_dir_all(home.join(folder));
            fs::create_dir(home.join(folder)).unwrap();
        }
        fs::write(home.join("elsewhere/profile"), "SECRET\n").unwrap();
        repository.host(&format!(
            "export {identity}; git init -q -b main ../prod; cp ../elsewhere/profile ../prod; git -C ../prod add .; \
             git -C ../prod commit -qm a; git init -q -b main .; git commit -q --allow-empty -m a; {plant}"
        ));
    };
    let is_copied = || {
        let objects = repository.try_host("git cat-file --batch-all-objects --batch").stdout;
        String::from_utf8_lossy(&objects).contains("SECRET")
    };
    for (plant, command) in COPYING {
        let script = format!("export {identity}; {command}; true");
        prepare(plant);
        repository.home.attache(&["ask", "builder", &script]).succeeds();
        assert!(!is_copied(), "{plant}");
        prepare(plant);
        repository.try_host(&script);
        assert!(is_copied(), "the attempt proves nothing: {plant}");
    }
    // The person's own settings allow it.
    prepare(COPYING[2].0);
    repository.host("git config --global protocol.file.allow always");
    repository.home.attache(&["ask", "builder", COPYING[2].1]).succeeds();
    assert!(is_copied());
}

/// Settings that don't fit into a variable make git unusable, not the run.
#[test]
fn too_many_settings_do_not_keep_a_run_from_starting() {
    let repository = TestRepository::new();
    let _hub = repository.builder();
    let _runtime = repository.home.runtime(&[]);
    repository
        .host("git init -q . && { echo '[alias]'; for i in $(seq 6000); do echo \"a$i = log\"; done; } >> .git/config");
    let ran = repository.home.attache(&["ask", "builder", "git status 2>/dev/null || echo fine"]).succeeds();
    assert_eq!(ran.stdout, "fine\n", "{}", ran.stderr);
}

/// Every file in these folders, links not followed.
fn contents(folders: &[PathBuf]) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let (mut folders, mut found) = (folders.to_vec(), std::collections::BTreeMap::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => drop(found.insert(entry.path(), fs::read(entry.path()).unwrap())),
                _ => {}
            }
        }
    }
    found
}

/// What was harmless when a run outside walls began could be replaced by one inside while it works: by links, or, in a
/// repository that the one inside made, by other settings.
#[test]
fn runs_inside_and_outside_walls_take_turns_in_a_folder() {
    if !has_namespaces() {
        return;
    }
    let repository = TestRepository::new();
    repository.host("git init -q -b main . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a");
    let hub = repository.builder();
    let _runtime = repository.home.runtime(&["--concurrency", "4"]);
    let is_there = |name: &str| repository.work.join(name).exists().then_some(());
    let ask = |name: &str, script: &str, options: &[&str]| {
        repository.home.spawn(name, &[&["ask", "builder", script], options].concat())
    };
    let works = |name: &str| format!("touch {name}; until [ -e go ]; do sleep 0.05; done; echo {name}");
    let inside = ["--sandbox", "cwd-only"];
    let waits = |what: &str| {
        until("the other one to wait", || {
            hub.get("/api/v1/task-runs")["task_runs"].as_array().unwrap().iter().find_map(|run| {
                let run = run["task_run_id"].as_str().unwrap();
                let events = hub.get(&format!("/api/v1/task-runs/{run}/events")).to_string();
                events.contains(&format!("waiting until {what} in ")).then_some(())
            })
        });
    };
    // Several outside work side by side, and one inside waits for all of them.
    let outside = [ask("first", &works("first"), &[]), ask("second", &works("second"), &[])];
    until("those outside to work", || is_there("first").and(is_there("second")));
    let plant = "rm -f .git/logs/HEAD; mkdir -p .git/logs; ln -s ../../../profile .git/logs/HEAD; ls go; touch planted";
    let planted = ask("planted", plant, &inside);
    waits("a run outside the sandbox");
    assert_eq!(is_there("planted"), None);
    // One that sees its own worktree only is in nobody's way.
    repository.home.attache(&["ask", "builder", "echo x > x", "--worktree", "--sandbox", "cwd-only"]).succeeds();
    fs::write(repository.work.join("go"), "").unwrap();
    for run in outside {
        assert!(run.wait().success(), "{}", run.stderr());
    }
    assert!(planted.wait().success(), "{}", planted.stderr());
    assert_eq!(planted.stdout(), "go\n", "it began after them");
    // The other way round, also for a run in a worktree of that repository.
    repository.host("rm -rf go .git/logs");
    let walled = [ask("third", &works("third"), &inside), ask("fourth", &works("fourth"), &inside)];
    until("those inside to work", || is_there("third").and(is_there("fourth")));
    let next = ask("next", "ls go", &[]);
    let tree = ask("tree", "git rev-parse --is-inside-work-tree", &["--worktree"]);
    waits("a sandboxed run");
    fs::write(repository.work.join("go"), "").unwrap();
    for run in walled.into_iter().chain([next, tree]) {
        assert!(run.wait().success(), "{}", run.stderr());
    }
}

/// A bare repository below the folder, and settings that aren't there yet: the owner's next push and status execute nothing.
#[test]
fn bare_repositories_and_settings_to_come_are_protected() {
    if !has_namespaces() {
        return;
    }
    let repository = TestRepository::new();
    repository.host("git init -q --bare stores/origin.git && git init -q app");
    repository.host("git -C app remote add origin ../stores/origin.git && git -C app config user.name a");
    repository.host("git -C app config user.email a@b && git -C app commit -q --allow-empty -m x");
    repository.host("git -C app config include.path ../local/git.inc");
    let _hub = repository.builder();
    let _runtime = repository.home.runtime(&[]);
    let plant = "cp evil.sh stores/origin.git/hooks/post-receive; mv stores other; cp evil.sh other/origin.git/hooks/post-receive
printf '[core]\\n\\tfsmonitor = %s\\n' $PWD/evil.sh | tee -a stores/origin.git/config > app/local/git.inc
mv app/local gone; mkdir app/local; cp stores/origin.git/config app/local/git.inc; echo tried";
    let tried = repository.home.attache(&["ask", "builder", plant, "--sandbox", "cwd-only"]).succeeds();
    assert_eq!(tried.stdout, "tried\n");
    repository.host("git -C app status && git -C app push -q origin HEAD:main && git -C stores/origin.git log --all");
    assert!(!repository.trap.exists(), "git executed what a run left behind");
    assert!(!repository.work.join("app/local").exists());
    // A link could be replaced, so nothing starts beside one in the folder's own repository.
    repository.host("git init -q . && ln -s conf/git.inc gitinc && git config include.path ../gitinc");
    let refused = repository.home.attache(&["ask", "builder", "true", "--sandbox", "cwd-only"]).exits(1);
    assert!(refused.stderr.contains("is a link, which the task could replace"), "{}", refused.stderr);
}

/// A run can put anything in the place of git's files. That neither blocks the next one nor is read into memory.
#[test]
fn what_cannot_be_read_does_not_stop_the_next_run() {
    if !has_namespaces() {
        return;
    }
    let repository = TestRepository::new();
    let _hub = repository.builder();
    let _runtime = repository.home.runtime(&[]);
    for left in [
        "mkfifo .git",
        "mkdir .git; mkfifo .git/commondir",
        "git init -q .; rm .git/config; mkfifo .git/config",
        "truncate -s 1T .git",
        "mkdir sub; truncate -s 1T sub/.git",
    ] {
        fs::remove_dir_all(&repository.work).unwrap();
        fs::create_dir(&repository.work).unwrap();
        repository.home.attache(&["ask", "builder", left, "--sandbox", "cwd-only"]).succeeds();
        for limits in [&[][..], &["--sandbox", "cwd-only"]] {
            let next = [&["ask", "builder", "echo fine", "--run-timeout", "60s"][..], limits].concat();
            assert_eq!(repository.home.attache(&next).succeeds().stdout, "fine\n", "{left}");
        }
    }
}
