//! Detection of hosts: programs, versions and logins, with small scripts in a folder as the machine.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_adapter::preset::{
    DetectedHost, DetectionEnvironment, HostProblem, HostVersion, LoginState, PROBE_TIMEOUT, PresetTable,
    UntrustedProgram, detect,
};
use tempfile::TempDir;

/// A miniature machine: `bin` is its `PATH`.
struct PresetMachine {
    folder: TempDir,
    environment: Vec<(OsString, OsString)>,
    patience: Duration,
}

// === impl PresetMachine ===

impl PresetMachine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        fs::create_dir(folder.path().join("home")).unwrap();
        Self { folder, environment: Vec::new(), patience: PROBE_TIMEOUT }
    }

    fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.folder.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    fn around(&self) -> DetectionEnvironment {
        let mut environment = self.environment.clone();
        environment.extend([("PATH", "/usr/bin:/bin"), ("SECRET", "s3cr3t")].map(|(a, b)| (a.into(), b.into())));
        let path = std::env::join_paths([Path::new("relative"), &self.folder.path().join("bin")]).unwrap();
        DetectionEnvironment { path, home: Some(self.home()), environment, probe_timeout: self.patience }
    }

    async fn detect(&self, user: &str) -> Vec<DetectedHost> {
        detect(&PresetTable::parse(user).unwrap(), &self.around()).await
    }
}

fn version(text: &str) -> HostVersion {
    HostVersion::find_in(text).unwrap()
}

#[tokio::test]
async fn installed_hosts_are_found_with_version_and_login() {
    let machine = PresetMachine::new().with("GEMINI_API_KEY", "k3y");
    // Only queries about itself are allowed. Anything else fails.
    let claude = machine.program("claude", "case $* in --version) echo '2.1.325 (Claude Code)';; *) exit 1;; esac");
    let codex = machine.program("codex", "case $* in --version) echo 'codex-cli 0.166.0';; *) exit 0;; esac");
    let gemini = machine.program("gemini", "echo 0.61.0");
    let hermes = machine.program("hermes-acp", "echo 0.19.0");
    fs::create_dir(machine.home().join(".hermes")).unwrap();
    fs::write(machine.home().join(".hermes/auth.json"), "{\"key\":\"k3y\"}").unwrap();
    let found =
        |preset: &str, label: &str, program: PathBuf, has: &str, login: LoginState, fix: Option<&str>| DetectedHost {
            preset: preset.to_owned(),
            label: label.to_owned(),
            program,
            version: Some(version(has)),
            login,
            problem: None,
            fix: fix.map(str::to_owned),
        };
    let all = machine.detect("").await;
    let expected = [
        found(
            "claude_cli",
            "Claude Code",
            claude,
            "2.1.325",
            LoginState::Out,
            Some("Start `claude` and log in, or set ANTHROPIC_API_KEY."),
        ),
        found("codex", "Codex", codex, "0.166.0", LoginState::In("`login status` says so".to_owned()), None),
        found("hermes", "Hermes", hermes, "0.19.0", LoginState::In("~/.hermes/auth.json".to_owned()), None),
        found("gemini", "Gemini CLI", gemini, "0.61.0", LoginState::In("GEMINI_API_KEY is set".to_owned()), None),
    ];
    assert_eq!(all, expected);
    assert!(!format!("{all:?} {:?}", machine.around()).contains("k3y"));
}

#[tokio::test]
async fn problems_come_with_a_fix() {
    let machine = PresetMachine::new();
    let codex = machine.program("codex", "echo 'codex-cli 0.20.1'");
    machine.program("openclaw", "echo 'needs Node 24' >&2; exit 1");
    let gemini = machine.program("gemini", "touch \"$0.started\"; echo 0.61.0");
    fs::set_permissions(&gemini, fs::Permissions::from_mode(0o777)).unwrap();
    let all = machine.detect("").await;
    let troubles: Vec<_> =
        all.iter().map(|found| (found.preset.as_str(), found.problem.clone(), found.fix.as_deref())).collect();
    let gemini = gemini.canonicalize().unwrap();
    let chmod = format!("chmod go-w {}", gemini.display());
    let try_it = format!("Try to run it: {} --version", codex.with_file_name("openclaw").display());
    let expected = [
        (
            "codex",
            Some(HostProblem::TooOld { has: version("0.20.1"), least: version("0.166.0") }),
            Some("npm install -g @openai/codex"),
        ),
        ("openclaw", Some(HostProblem::NoVersion("needs Node 24".to_owned())), Some(try_it.as_str())),
        (
            "gemini",
            Some(HostProblem::Untrusted(UntrustedProgram::Writable { path: gemini.clone(), mode: 0o777 })),
            Some(chmod.as_str()),
        ),
    ];
    assert_eq!(troubles, expected);
    assert!(!gemini.with_extension("started").exists(), "a program of others was started");
}

#[tokio::test]
async fn a_custom_host_is_detected_and_sees_only_named_variables() {
    let machine = PresetMachine::new().with("MY_KEY", "k3y").with("MY_MODE", "loud");
    let agent = machine.folder.path().join("my agent");
    fs::write(&agent, "#!/bin/sh\nenv > \"$0.env\"; pwd >> \"$0.env\"; echo my-agent-7.1\n").unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let row = format!(
        "[mine]\ndriver = \"acp\"\nlabel = \"Mine\"\nprograms = [\"not-there\", \"{}\"]\nenv = [\"MY_KEY\"]\n\
         set = {{ MY_MODE = \"quiet\" }}\nversion = {{ args = [\"about\"], least = \"7.0\" }}\n",
        agent.display()
    );
    let expected = DetectedHost {
        preset: "mine".to_owned(),
        label: "Mine".to_owned(),
        program: agent.clone(),
        version: Some(version("7.1")),
        login: LoginState::Unknown,
        problem: None,
        fix: None,
    };
    assert_eq!(machine.detect(&row).await, [expected]);
    let seen = fs::read_to_string(format!("{}.env", agent.display())).unwrap();
    let mut lines: Vec<_> = seen.lines().filter(|line| !line.starts_with("PWD=") && !line.starts_with("_=")).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["/", "MY_KEY=k3y", "MY_MODE=quiet", "PATH=/usr/bin:/bin"]);
}

#[tokio::test]
async fn a_silent_program_times_out_and_is_killed() {
    let machine = PresetMachine { patience: Duration::from_secs(4), ..PresetMachine::new() };
    machine.program("gemini", "sleep 600 & echo $! > \"$0.id\"; wait");
    let all = machine.detect("").await;
    assert_eq!(all[0].problem, Some(HostProblem::NoVersion("no answer within 4 s".to_owned())));
    let id = fs::read_to_string(machine.folder.path().join("bin/gemini.id")).unwrap();
    crate::world::until("nothing to be left of it", || !crate::world::is_alive(id.trim())).await;
}
