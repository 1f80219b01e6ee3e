//! What a run inside walls may use: memory and processes, limited by control groups where the machine has them.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::Value;

use crate::{
    harness::{TestHome, TestHub, TestProcess, until},
    sandbox::has_namespaces,
};

/// The control group of this test, where groups can be made.
#[allow(clippy::print_stdout, reason = "says why a test is skipped")]
fn own_group() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()? == "cgroup2")).filter(|(_, is_unified)| *is_unified)
    });
    let found = path.zip(mount).map(|(path, (mount, _))| Path::new(mount).join(path));
    let found = found.filter(|folder| rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok());
    if found.is_none() {
        println!("skipped: there is no control group (cgroup v2) that this test can write to");
    }
    found
}

/// A control group that is delegated to one adapter, as a service manager would.
struct TestGroup(PathBuf);

struct GroupDevice {
    hub: TestHub,
    adapter: TestProcess,
    _runtime: TestProcess,
}

impl TestGroup {
    /// `None` if this machine can't limit memory and processes.
    #[allow(clippy::print_stdout, reason = "says why a test is skipped")]
    fn with_limits() -> Option<Self> {
        let group = Self::new()?;
        let above = group.0.parent().unwrap();
        let enabled = fs::write(above.join("cgroup.subtree_control"), "+memory +pids");
        if let Err(error) = enabled {
            println!("skipped: {} can't limit memory and processes: {error}", above.display());
            return None;
        }
        Some(group)
    }

    fn new() -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = own_group()?.join(format!("attache-test-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Some(Self(folder))
    }

    /// A device whose adapter is in this group, with walls around these runs.
    fn device(&self, home: &TestHome, walled: &str) -> GroupDevice {
        let hub = home.hub(&[]);
        hub.add_agent("builder");
        let code = hub.pairing_code("builder");
        let (adapter, endpoint) = self.adapter(home);
        let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--local-agent-endpoint", &endpoint];
        home.attache(&pair).succeeds();
        home.attache(&["runtime", "set", "--sandbox", walled]).succeeds();
        let runtime = home.runtime(&[]);
        hub.agent_is("builder", "online");
        GroupDevice { hub, adapter, _runtime: runtime }
    }

    /// An adapter in this group, ready, and its address.
    fn adapter(&self, home: &TestHome) -> (TestProcess, String) {
        self.adapter_of(home, Path::new(env!("CARGO_BIN_EXE_attache")))
    }

    fn adapter_of(&self, home: &TestHome, program: &Path) -> (TestProcess, String) {
        let work = home.path().join("work");
        fs::create_dir_all(&work).unwrap();
        let ready = home.path().join("adapter.ready");
        let _ = fs::remove_file(&ready);
        // What an earlier adapter switched on: a group with limited groups below it can't hold processes itself.
        let _ = fs::write(self.0.join("cgroup.subtree_control"), "-memory -pids");
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        let mut command = home.program("sh");
        command.args(["-c", &enter, "sh"]).arg(program).args(["adapter", "shell", "--cwd"]).arg(&work);
        command.arg("--ready-file").arg(&ready);
        let process = TestProcess::spawn("adapter", &mut command, &home.logs());
        let ready: Value = until("the adapter", || serde_json::from_slice(&fs::read(&ready).ok()?).ok());
        (process, ready["url"].as_str().unwrap().to_owned())
    }

    /// The groups of runs.
    fn of_runs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().flatten().map(|entry| entry.path());
        entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("attache-run-")).collect()
    }

    fn read(path: &Path, name: &str) -> String {
        fs::read_to_string(path.join(name)).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let remove = |folder: &Path| {
            (0..500).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                !folder.exists() || fs::remove_dir(folder).is_ok()
            })
        };
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
            remove(&entry.path());
        }
        remove(&self.0);
    }
}

fn choose(home: &TestHome, resources: &str) {
    fs::create_dir_all(home.path().join(".a2a")).unwrap();
    fs::write(home.path().join(".a2a/presets.toml"), format!("[walls]\n{resources}\n")).unwrap();
}

/// Starts processes until that fails, and says how many there were.
const COUNT: &str = "import os, signal
started = []
try:
    while len(started) < 5000:
        child = os.fork()
        if child == 0: signal.pause()
        started.append(child)
except OSError: pass
for child in started: os.kill(child, signal.SIGKILL)
print(len(started))";

#[test]
fn a_fork_bomb_stays_within_its_limit_and_ends_with_its_run() {
    if !has_namespaces() {
        return;
    }
    let Some(group) = TestGroup::with_limits() else { return };
    let home = TestHome::new();
    choose(&home, "processes = 64");
    let GroupDevice { hub, .. } = &group.device(&home, "all");
    fs::write(home.path().join("work/count.py"), COUNT).unwrap();
    let counted = home.attache(&["ask", "builder", "python3 count.py"]).succeeds().stdout;
    // The walls themselves take a few.
    let started: usize = counted.trim().parse().unwrap();
    assert!((40..64).contains(&started), "{started}");
    let completed = hub.get("/api/v1/task-runs?status=completed");
    let run = completed["task_runs"][0]["task_run_id"].as_str().unwrap();
    let events = hub.get(&format!("/api/v1/task-runs/{run}/events?after=0")).to_string();
    assert!(events.contains("it tried to start more than 64 processes"), "{events}");
    let bomb = "bomb() { bomb | bomb & }; bomb; while :; do sleep 1; done";
    let asked = home.spawn("ask", &["ask", "builder", bomb]);
    let limited = until("the bomb to reach its limit", || {
        let run = group.of_runs().pop()?;
        (TestGroup::read(&run, "pids.events").strip_prefix("max ")? != "0").then_some(run)
    });
    let peak: usize = TestGroup::read(&limited, "pids.current").parse().unwrap();
    assert!(peak <= 64, "{peak} processes");
    let name = limited.file_name().unwrap().to_str().unwrap();
    let run = name.rsplit('-').next().unwrap().to_owned();
    // It may be over: a shell that can't start a program any more ends by itself.
    let _ = home.attache(&["runs", "cancel", &run]);
    assert!(!asked.wait().success());
    until("the group of the run to be gone", || (!limited.exists()).then_some(()));
    // The device works on.
    let after = home.attache(&["ask", "builder", "echo well"]).succeeds();
    assert_eq!(after.stdout, "well\n");
}

#[test]
fn a_run_that_uses_too_much_memory_fails_and_says_so() {
    if !has_namespaces() {
        return;
    }
    let Some(group) = TestGroup::with_limits() else { return };
    let home = TestHome::new();
    choose(&home, "memory = \"256MiB\"");
    let GroupDevice { hub, .. } = &group.device(&home, "all");
    let shown = hub.get("/api/v1/agent-runtimes").to_string();
    assert!(shown.contains("seccomp, cgroup"), "{shown}");
    let hog = "python3 -c 'kept = []\nwhile True: kept.append(bytearray(1 << 20))'";
    let failed = home.attache(&["ask", "builder", hog]).exits(1);
    let said = "The task reached a limit of this device: it used more than 256 MiB of memory, so the system killed one of \
                its processes";
    assert!(failed.stderr.contains(said), "{}", failed.stderr);
    // Whoever goes on without the killed process completes, with a warning.
    let survived = home.attache(&["ask", "builder", &format!("{hog}; echo went on")]).succeeds();
    assert_eq!(survived.stdout, "went on\n");
    let runs = hub.get("/api/v1/task-runs?status=completed");
    let run = runs["task_runs"][0]["task_run_id"].as_str().unwrap();
    let events = hub.get(&format!("/api/v1/task-runs/{run}/events?after=0")).to_string();
    assert!(events.contains(said), "{events}");
    assert_eq!(group.of_runs(), Vec::<PathBuf>::new());
    assert_eq!(home.attache(&["ask", "builder", "echo well"]).succeeds().stdout, "well\n");
}

/// Also where no controller can limit anything: all processes of a run are in one group, and end with it.
#[test]
fn the_group_of_a_run_is_gone_when_the_run_or_its_adapter_is() {
    if !has_namespaces() {
        return;
    }
    let Some(group) = TestGroup::new() else { return };
    let home = TestHome::new();
    let device = group.device(&home, "all");
    home.attache(&["ask", "builder", "env -i setsid sleep 1000 & echo away"]).succeeds();
    assert_eq!(group.of_runs(), Vec::<PathBuf>::new());
    let asked = home.spawn("ask", &["ask", "builder", "env -i setsid sleep 1000 & sleep 1000"]);
    let run = until("the run's group", || group.of_runs().pop());
    until("its processes", || (TestGroup::read(&run, "cgroup.procs").lines().count() >= 4).then_some(()));
    // Nobody tidies up but the watchdog.
    device.adapter.kill();
    until("the group of the killed adapter's run to be gone", || (!run.exists()).then_some(()));
    asked.kill();
    // What the watchdog didn't tidy up either, the next adapter does.
    let left = group.0.join(format!("attache-run-{}-run_left", u32::MAX));
    fs::create_dir(&left).unwrap();
    let (_adapter, _) = group.adapter(&home);
    assert!(!left.exists());
}

/// As when the program was replaced by a newer one while it runs.
#[test]
fn the_adapter_of_another_build_spares_the_runs_of_this_one() {
    if !has_namespaces() {
        return;
    }
    let Some(group) = TestGroup::new() else { return };
    let (home, other) = (TestHome::new(), TestHome::new());
    let _device = group.device(&home, "all");
    let asked = home.spawn("ask", &["ask", "builder", "touch begun; until [ -e go ]; do sleep 0.1; done; echo well"]);
    until("the run", || home.path().join("work/begun").exists().then_some(()));
    assert_eq!(group.of_runs().len(), 1);
    let copy = other.path().join("attache");
    fs::copy(env!("CARGO_BIN_EXE_attache"), &copy).unwrap();
    let (_adapter, _) = group.adapter_of(&other, &copy);
    fs::write(home.path().join("work/go"), "").unwrap();
    assert!(asked.wait().success(), "{}", asked.stderr());
    assert_eq!(asked.stdout(), "well\n");
}

/// With all files in view, those that move a process to another group can't be written to.
#[test]
fn a_run_cannot_leave_its_group() {
    if !has_namespaces() {
        return;
    }
    let Some(group) = TestGroup::new() else { return };
    let home = TestHome::new();
    let _device = group.device(&home, "off");
    let leave = format!("echo $$ > {}/cgroup.procs && echo LEFT; true", group.0.parent().unwrap().display());
    for limits in ["no-network", "cwd-only", "no-network,cwd-only"] {
        let tried = home.attache(&["ask", "builder", &leave, "--sandbox", limits]).succeeds();
        assert_eq!(tried.stdout, "", "{limits}");
    }
}

/// An ordinary user has no control group in most places. The kernel counts the processes of a user namespace.
#[test]
fn processes_are_limited_without_control_groups() {
    if !has_namespaces() || !rustix::process::geteuid().is_root() {
        return;
    }
    let home = TestHome::new();
    let program = home.path().join("attache");
    fs::copy(env!("CARGO_BIN_EXE_attache"), &program).unwrap();
    choose(&home, "processes = 50");
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("count.py"), COUNT).unwrap();
    for open in [home.path(), &home.path().join(".a2a"), &work] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let a2a = home.path().join(".a2a");
    let run = |words: &[&str]| {
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", program.to_str().unwrap(), "sandbox"];
        let mut command = home.program("setpriv");
        command.args(user).args(words).env("A2A_HOME", &a2a).current_dir(&work);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let started: usize = run(&["--", "/usr/bin/python3", "count.py"]).trim().parse().unwrap();
    assert!((30..50).contains(&started), "{started}");
    let shown: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert_eq!(shown["resources"]["processes"], 50, "{shown}");
    let text = run(&[]);
    assert!(text.contains("A run can use ") && text.contains("50 processes"), "{text}");
}

#[test]
fn files_and_crashes_of_a_run_are_limited() {
    if !has_namespaces() {
        return;
    }
    let home = TestHome::new();
    let shown =
        home.attache(&["sandbox", "--", "bash", "-c", "ulimit -Hc; ulimit -Hn; ulimit -Sn; ulimit -Hr"]).succeeds();
    let limits: Vec<u64> = shown.stdout.lines().map(|line| line.parse().unwrap()).collect();
    let [core, files, now, priority] = limits[..] else { panic!("{}", shown.stdout) };
    assert_eq!((core, priority), (0, 0));
    assert!(files <= 65_536 && now <= files, "{}", shown.stdout);
}
