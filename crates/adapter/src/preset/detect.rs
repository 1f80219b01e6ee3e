//! Detects installed hosts, their versions and login state. Reads only what the caller provides, shows no secrets, and
//! never starts a program that other users can write to.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use attache_os::program_trust;
use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, Command},
    time::timeout,
};

use super::{HostVersion, Preset, PresetTable, UntrustedProgram};
use crate::Environment;

/// The environment to search, as seen by the caller's process.
#[derive(Clone)]
pub struct DetectionEnvironment {
    /// The folders to search for programs, as in `PATH`.
    pub path: OsString,
    pub home: Option<PathBuf>,
    /// The full environment. A host only sees the variables its preset names.
    pub environment: Vec<(OsString, OsString)>,
    /// Time limit for a program to report about itself.
    pub probe_timeout: Duration,
}

/// An installed host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectedHost {
    /// The name of its preset.
    pub preset: String,
    pub label: String,
    pub program: PathBuf,
    pub version: Option<HostVersion>,
    pub login: LoginState,
    pub problem: Option<HostProblem>,
    /// How to fix its problem or its login.
    pub fix: Option<String>,
}

/// Whether the host is logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginState {
    /// With the evidence: the name of a variable, a file or a command.
    In(String),
    Out,
    /// The preset has no login check, or the program can't be started safely.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostProblem {
    #[error("not started: {0}")]
    Untrusted(UntrustedProgram),
    #[error("version {has} is older than {least}, the oldest tested version")]
    TooOld { has: HostVersion, least: HostVersion },
    #[error("can't determine its version: {0}")]
    NoVersion(String),
}

/// The output of a program, and whether it succeeded.
#[derive(Debug)]
struct ProbeOutput {
    success: bool,
    stdout: String,
    stderr: String,
}

/// The process group of a probed program. Dropping it kills whatever is left.
struct ProbeProcess(Option<Pid>);

/// Long enough for programs that take seconds to start.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_PROBE_OUTPUT: u64 = 16 << 10;

/// Probes every host in the table, concurrently.
pub async fn detect(table: &PresetTable, around: &DetectionEnvironment) -> Vec<DetectedHost> {
    let installed = table.iter().filter_map(|preset| Some((preset, around.find(preset)?)));
    join_all(installed.map(|(preset, program)| probe(preset, program, around))).await
}

/// Probes one host.
pub async fn probe(preset: &Preset, program: PathBuf, around: &DetectionEnvironment) -> DetectedHost {
    let found = DetectedHost {
        preset: preset.name.clone(),
        label: preset.label.clone(),
        program,
        version: None,
        login: LoginState::Unknown,
        problem: None,
        fix: None,
    };
    if let Err(untrusted) = program_trust::check(&found.program) {
        let fix = Some(untrusted.fix());
        return DetectedHost { problem: Some(HostProblem::Untrusted(untrusted)), fix, ..found };
    }
    let (version, login) = tokio::join!(version(preset, &found.program, around), login(preset, &found.program, around));
    let (version, trouble) = match (version, &preset.version.least) {
        (Ok(has), Some(least)) if has < *least => {
            (Some(has.clone()), Some(HostProblem::TooOld { has, least: least.clone() }))
        }
        (Ok(has), _) => (Some(has), None),
        (Err(trouble), _) => (None, Some(trouble)),
    };
    let fix = match (&trouble, &login) {
        (Some(HostProblem::TooOld { .. }), _) => Some(preset.install.clone()),
        (Some(HostProblem::Untrusted(untrusted)), _) => Some(untrusted.fix()),
        (Some(HostProblem::NoVersion(_)), _) => {
            let asked = around.beside(&found.program, preset.version.program.as_deref());
            Some(format!("Try to run it: {} {}", asked.display(), preset.version.args.join(" ")))
        }
        (None, LoginState::Out) => Some(preset.sign_in.clone()),
        (None, LoginState::In(_) | LoginState::Unknown) => None,
    };
    DetectedHost { version, login, problem: trouble, fix: fix.filter(|fix| !fix.is_empty()), ..found }
}

/// Determines a host's version.
pub async fn version(
    preset: &Preset,
    program: &Path,
    around: &DetectionEnvironment,
) -> Result<HostVersion, HostProblem> {
    let asked = around.beside(program, preset.version.program.as_deref());
    for started in [program, &asked] {
        program_trust::check(started).map_err(HostProblem::Untrusted)?;
    }
    let environment = around.environment_of(preset);
    let answer =
        ask(&asked, &preset.version.args, &environment, around.probe_timeout).await.map_err(HostProblem::NoVersion)?;
    let version = HostVersion::find_in(&answer.stdout).or_else(|| HostVersion::find_in(&answer.stderr));
    version.filter(|_| answer.success).ok_or_else(|| {
        let said = [&answer.stderr, &answer.stdout].into_iter().flat_map(|text| text.lines());
        let line = said.map(str::trim).find(|line| !line.is_empty()).unwrap_or("no output");
        HostProblem::NoVersion(line.chars().take(200).collect())
    })
}

async fn login(preset: &Preset, program: &Path, around: &DetectionEnvironment) -> LoginState {
    let rule = &preset.login;
    if let Some(name) = rule.variables.iter().find(|name| around.variable(name).is_some()) {
        return LoginState::In(format!("{name} is set"));
    }
    let moved = rule.folder_variable.as_deref().and_then(|name| around.variable(name)).map(PathBuf::from);
    let folder = moved.or_else(|| around.home.as_ref().map(|home| home.join(&rule.folder)));
    let mut files = rule.files.iter().filter_map(|file| Some(folder.as_ref()?.join(file)));
    if let Some(file) = files.find(|file| file.is_file()) {
        return LoginState::In(around.shown(&file));
    }
    if !rule.command.is_empty() {
        return match ask(program, &rule.command, &around.environment_of(preset), around.probe_timeout).await {
            Ok(answer) if answer.success => LoginState::In(format!("`{}` says so", rule.command.join(" "))),
            Ok(_) => LoginState::Out,
            Err(_) => LoginState::Unknown,
        };
    }
    if rule.variables.is_empty() && rule.files.is_empty() { LoginState::Unknown } else { LoginState::Out }
}

/// Runs a program for one query, outside any project, and leaves no process behind.
async fn ask(
    program: &Path,
    args: &[String],
    environment: &Environment,
    patience: Duration,
) -> Result<ProbeOutput, String> {
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .envs(environment.pairs())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let asked = ProbeProcess::of(&child);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let answered = timeout(patience, async {
        let (stdout, stderr, status) = tokio::join!(read(stdout), read(stderr), child.wait());
        status.map(|status| ProbeOutput { success: status.success(), stdout, stderr })
    })
    .await;
    drop(asked);
    match answered {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", patience.as_secs())),
    }
}

/// Keeps the start of the output. The rest is read and dropped, so the program never blocks on a full pipe.
async fn read(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let mut bytes = Vec::new();
    let _ = (&mut pipe).take(MAX_PROBE_OUTPUT).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

// === impl ProbeProcess ===

impl ProbeProcess {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }
}

impl Drop for ProbeProcess {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // The group may be gone by now, which is fine.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

// === impl DetectionEnvironment ===

impl DetectionEnvironment {
    /// The path of the host's program, if it is installed.
    pub fn find(&self, preset: &Preset) -> Option<PathBuf> {
        preset.programs.iter().find_map(|name| self.find_program(name.as_ref()))
    }

    /// Finds a program by name in `PATH`, or by path.
    pub fn find_program(&self, name: &OsStr) -> Option<PathBuf> {
        if Path::new(name).is_absolute() {
            return Some(PathBuf::from(name)).filter(|path| is_program(path));
        }
        // An empty entry means the current folder, which isn't a safe place to look for programs.
        let folders = std::env::split_paths(&self.path).filter(|folder| folder.is_absolute());
        folders.map(|folder| folder.join(name)).find(|path| is_program(path))
    }

    /// The environment of a host: the variables every task sees, plus those its preset names or sets.
    pub fn environment_of(&self, preset: &Preset) -> Environment {
        let pairs = self.environment.iter().filter(|(name, _)| {
            // Variables the preset sets appear only once.
            !name.to_str().is_some_and(|name| preset.set.contains_key(name))
        });
        let selected = Environment::select(pairs.cloned(), &preset.env);
        preset.set.iter().fold(selected, |environment, (name, value)| environment.with(name, value))
    }

    fn beside(&self, program: &Path, other: Option<&str>) -> PathBuf {
        let Some(other) = other else { return program.to_owned() };
        let beside = program.with_file_name(other);
        if is_program(&beside) {
            beside
        } else {
            self.find_program(other.as_ref()).unwrap_or_else(|| program.to_owned())
        }
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        let value = self.environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_os_str());
        value.filter(|value| !value.is_empty())
    }

    /// A path for display, with `~` for the home folder.
    pub fn shown(&self, path: &Path) -> String {
        match self.home.as_ref().and_then(|home| path.strip_prefix(home).ok()) {
            Some(below) => format!("~/{}", below.display()),
            None => path.display().to_string(),
        }
    }
}

impl fmt::Debug for DetectionEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("Surroundings")
            .field("path", &self.path)
            .field("home", &self.home)
            .field("environment", &names)
            .finish()
    }
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
