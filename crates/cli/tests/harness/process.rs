//! Processes of a test: their output is kept, they never outlive the test, and a failing test shows their output.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Mutex,
    time::Instant,
};

use super::{LIMIT, until};

/// A process that runs alongside the test.
#[derive(Debug)]
pub struct TestProcess {
    pub name: String,
    child: Mutex<Child>,
    id: u32,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// A finished process.
#[derive(Debug, Clone)]
pub struct FinishedProcess {
    pub command: String,
    /// None if it was killed by a signal.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

// === impl TestProcess ===

impl TestProcess {
    /// Starts it with its output in files in `logs`, which can be read while it runs.
    #[track_caller]
    pub fn spawn(name: &str, command: &mut Command, logs: &Path) -> Self {
        fs::create_dir_all(logs).unwrap();
        let number = fs::read_dir(logs).unwrap().count();
        let stdout = logs.join(format!("{number:04}-{name}.stdout"));
        let stderr = logs.join(format!("{number:04}-{name}.stderr"));
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self { name: name.to_owned(), id: child.id(), child: Mutex::new(child), stdout, stderr }
    }

    pub const fn id(&self) -> u32 {
        self.id
    }

    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Its peak memory in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id)).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    pub fn try_wait(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().try_wait().unwrap()
    }

    pub fn is_running(&self) -> bool {
        self.try_wait().is_none()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// SIGTERM, and waits until it has exited.
    #[track_caller]
    pub fn terminate(&self) -> ExitStatus {
        signal(self.id, "TERM");
        self.wait()
    }

    #[track_caller]
    pub fn wait(&self) -> ExitStatus {
        let give_up = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.try_wait() {
                return status;
            }
            assert!(Instant::now() < give_up, "{} did not end within {LIMIT:?}\n{}", self.name, self.stderr());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Waits until its standard output contains the text, and returns all output so far.
    #[track_caller]
    pub fn says(&self, text: &str) -> String {
        until(&format!("{} to say {text:?}", self.name), || {
            let output = self.stdout();
            assert!(
                output.contains(text) || self.is_running(),
                "{} ended early:\n{output}\n{}",
                self.name,
                self.stderr()
            );
            output.contains(text).then_some(output)
        })
    }

    /// The same for standard error.
    #[track_caller]
    pub fn tells(&self, text: &str) -> String {
        until(&format!("{} to tell {text:?}", self.name), || {
            let messages = self.stderr();
            assert!(messages.contains(text) || self.is_running(), "{} ended early:\n{messages}", self.name);
            messages.contains(text).then_some(messages)
        })
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let mut stderr = std::io::stderr().lock();
            let _ = writeln!(stderr, "--- {} (stdout)\n{}", self.name, self.stdout());
            let _ = writeln!(stderr, "--- {} (stderr)\n{}", self.name, self.stderr());
        }
    }
}

/// Sends a signal by name (`TERM`, `INT`, `STOP`, `CONT`, `KILL`) to one process.
pub fn signal(id: u32, name: &str) {
    // Uses the `kill` program: no unsafe code and no library needed.
    let _ = Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).stderr(Stdio::null()).status();
}

/// Whether a process with this id exists and is not a zombie.
pub fn exists(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z')))
}

/// The children of a process, by id.
pub fn children(id: u32) -> Vec<u32> {
    let parent_of = |id: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|child| parent_of(*child) == Some(id))
        .collect()
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

// === impl FinishedProcess ===

impl FinishedProcess {
    /// Runs a command to completion.
    #[track_caller]
    pub fn of(command: &mut Command, logs: &Path) -> Self {
        let process = TestProcess::spawn("command", command, logs);
        let status = process.wait();
        Self {
            command: format!("{command:?}"),
            status: status.code(),
            stdout: process.stdout(),
            stderr: process.stderr(),
        }
    }

    #[track_caller]
    pub fn succeeds(self) -> Self {
        self.exits(0)
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.status, Some(code), "{}\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr);
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("{} printed no JSON ({error})\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr)
        })
    }
}
