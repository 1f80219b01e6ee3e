//! Agent hosts as commands use them: the preset table with the user's own presets, and the chosen program.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_adapter::preset::{self, DetectedHost, DetectionEnvironment, HostProblem, LoginState, Preset, PresetTable};

use attache_protocol::wire::host_session::KeptSessions;

use crate::{
    env::{config, context::CommandContext, home::Home},
    text::doctor,
    ui::failure::CommandFailure,
};

/// The chosen host and its program.
#[derive(Debug, Clone)]
pub(crate) struct ChosenHost {
    pub(crate) preset: Preset,
    pub(crate) program: PathBuf,
    /// The user's arguments, appended to those of the preset.
    pub(crate) args: Vec<OsString>,
}

/// The preset without a program, for any ACP agent.
pub(crate) const CUSTOM: &str = "custom";

/// Maximum time to wait for a host's version when it starts.
const VERSION_TIMEOUT: Duration = Duration::from_secs(2);

/// Parses `--keep-sessions=off|own|all`.
pub(crate) fn kept_sessions(text: &str) -> Result<KeptSessions, String> {
    KeptSessions::from_text(text).ok_or_else(|| format!("must be one of {}", KeptSessions::CHOICES.replace('|', ", ")))
}

/// All presets: the built-in ones and those in `$A2A_HOME/presets.toml`.
pub(crate) fn table(context: &CommandContext) -> Result<PresetTable, CommandFailure> {
    let Some(file) = context.config.home.clone().map(|path| Home::at(path).presets()) else {
        return Ok(PresetTable::parse("").expect("a test reads the table that comes along"));
    };
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(CommandFailure::file("read", &file, &error)),
    };
    PresetTable::parse(&text).map_err(|mistake| {
        let place = mistake.line.map(|line| format!(", line {line}")).unwrap_or_default();
        CommandFailure::usage(format!("{}{place}: {}", file.display(), mistake.what))
            .hint("Fix it; docs/hosts.md explains every key.")
    })
}

/// The host with this name, with the program from `reference` or found in `PATH`.
pub(crate) fn host(
    context: &CommandContext,
    name: &str,
    reference: Option<&str>,
) -> Result<ChosenHost, CommandFailure> {
    let (table, around) = (table(context)?, config::detection_environment());
    let Some(preset) = table.get(name) else {
        return Err(CommandFailure::usage(format!("unknown executor type `{name}`")).hint(format!(
            "Use one of shell, command, {}, or your own adapter with --local-agent-endpoint URL.",
            table.names()
        )));
    };
    let mut words = match reference {
        Some(reference) if name == CUSTOM => split_command(reference).into_iter(),
        Some(reference) => vec![OsString::from(reference)].into_iter(),
        None => Vec::new().into_iter(),
    };
    match words.next() {
        Some(program) => named(&around, preset, program, words.collect()),
        None => detected(&around, preset),
    }
}

/// Checks that a command exists. A plain name must be in `PATH`; a path may be relative to one of the folders, in which tasks may
/// work.
pub(crate) fn has_command(reference: &str, folders: &[&Path]) -> Result<(), CommandFailure> {
    let program = split_command(reference).into_iter().next().unwrap_or_default();
    let is_name = !program.to_string_lossy().contains('/');
    let exists = match is_name {
        true => config::detection_environment().find_program(&program).is_some(),
        false => folders.iter().any(|folder| folder.join(&program).is_file()),
    };
    if exists { Ok(()) } else { Err(no_program(Path::new(&program))) }
}

fn no_program(path: &Path) -> CommandFailure {
    CommandFailure::usage(format!("program `{}` not found", path.display())).hint("Use its path, or a program in PATH.")
}

/// A host with a program and arguments from the command line.
pub(crate) fn named(
    around: &DetectionEnvironment,
    preset: &Preset,
    program: OsString,
    args: Vec<OsString>,
) -> Result<ChosenHost, CommandFailure> {
    let path = Path::new(&program);
    let place =
        if path.components().count() > 1 { std::path::absolute(path).ok() } else { around.find_program(&program) };
    match place.filter(|place| place.is_file()) {
        Some(program) => Ok(ChosenHost { preset: preset.clone(), program, args }),
        None => Err(no_program(path)),
    }
}

fn detected(around: &DetectionEnvironment, preset: &Preset) -> Result<ChosenHost, CommandFailure> {
    if preset.programs.is_empty() {
        return Err(CommandFailure::usage(format!("`{}` needs a program that speaks ACP", preset.name))
            .hint("Pass it with --local-executor-ref \"PROG ARG…\"."));
    }
    let Some(program) = around.find(preset) else {
        let names = preset.programs.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
        let how = if preset.install.is_empty() { String::new() } else { format!(" ({})", preset.install) };
        return Err(CommandFailure::failed(format!("{} isn't installed: {names} not found in PATH", preset.label))
            .hint(format!("Install it{how}, or pass its path with --local-executor-ref PATH.")));
    };
    Ok(ChosenHost { preset: preset.clone(), program, args: Vec::new() })
}

/// Splits a command at spaces, unless it is a path that contains spaces.
pub(crate) fn split_command(reference: &str) -> Vec<OsString> {
    if Path::new(reference).exists() {
        return vec![reference.into()];
    }
    reference.split_whitespace().map(Into::into).collect()
}

/// `claude 2.1.325 at ~/bin/claude, logged in (…)`, for people.
pub(crate) fn describe(found: &DetectedHost, around: &DetectionEnvironment) -> String {
    let host = found.version.as_ref().map_or_else(|| found.label.clone(), |it| format!("{} {it}", found.label));
    let path = around.shown(&found.program);
    let shown = match &found.login {
        LoginState::In(how) => doctor::host_in(host, path, how),
        LoginState::Out => doctor::host_out(host, path),
        LoginState::Unknown => doctor::host_at(host, path),
    };
    match &found.problem {
        Some(problem) => doctor::host_trouble(shown, problem),
        None => shown,
    }
}

/// Whether a host is ready for its first task.
pub(crate) fn is_ready(found: &DetectedHost) -> bool {
    found.problem.is_none() && found.login != LoginState::Out
}

// === impl ChosenHost ===

impl ChosenHost {
    /// Detects the program's version and login.
    pub(crate) async fn detect(&self, around: &DetectionEnvironment) -> DetectedHost {
        preset::probe(&self.preset, self.program.clone(), around).await
    }

    /// The folder that maps conversations to this host's sessions.
    pub(crate) fn sessions(&self, home: &Home) -> Result<PathBuf, CommandFailure> {
        if !self.preset.driver.keeps_sessions() {
            return Err(CommandFailure::usage(format!("{} doesn't support resuming sessions", self.preset.label))
                .hint("Omit --keep-sessions."));
        }
        Ok(home.host_sessions().join(&self.preset.name))
    }

    /// The version, if the program reports it quickly. Refuses a program that other users can write to.
    pub(crate) async fn quick_version(&self) -> Result<Option<String>, CommandFailure> {
        let around = DetectionEnvironment { probe_timeout: VERSION_TIMEOUT, ..config::detection_environment() };
        match preset::version(&self.preset, &self.program, &around).await {
            Ok(version) => Ok(Some(version.to_string())),
            Err(trouble @ HostProblem::Untrusted(_)) => Err(self.untrusted(&trouble)),
            Err(trouble) => {
                tracing::warn!(host = self.preset.name, "{trouble}");
                Ok(None)
            }
        }
    }

    /// The failure for an untrusted host program.
    pub(crate) fn untrusted(&self, trouble: &HostProblem) -> CommandFailure {
        let failure = CommandFailure::failed(format!("{} can't be used: {trouble}", self.preset.label));
        match trouble {
            HostProblem::Untrusted(why) => failure.hint(why.fix()),
            _ => failure,
        }
    }
}
