//! Configuration from the environment, read once.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use attache_adapter::{
    Environment,
    preset::{self, DetectionEnvironment},
};
use attache_os::program;
use attache_protocol::{Secret, env::Env};
use attache_runtime::profile::Profiles;

use crate::{
    text::errors,
    ui::{failure::CommandFailure, output::ColorChoice},
};

/// The environment variables that Attaché uses.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// `$A2A_HOME`, or `~/.a2a`.
    pub(crate) home: Option<PathBuf>,
    /// `$AWCP_HOME`, or `~/.AWCP`: data of delegations from and to this machine.
    pub(crate) awcp_home: Option<PathBuf>,
    /// `$HOME`.
    pub(crate) user_home: Option<PathBuf>,
    /// `$CODEX_HOME`, `$CLAUDE_CONFIG_DIR` and `$XDG_CONFIG_HOME`: where MCP clients keep their configuration, if not
    /// in `~`.
    pub(crate) codex_home: Option<PathBuf>,
    pub(crate) claude_home: Option<PathBuf>,
    pub(crate) config_home: Option<PathBuf>,
    /// The program that shows desktop notifications, if it exists and there is a desktop.
    pub(crate) desktop: Option<PathBuf>,
    /// `$ATTACHE_URL`: the hub to use.
    pub(crate) url: Option<String>,
    /// `$ATTACHE_KEY`: the API key.
    pub(crate) key: Option<Secret<String>>,
    /// `$ATTACHE_PIN`: the pin of the hub's TLS key.
    pub(crate) pin: Option<String>,
    /// `$ATTACHE_DATABASE_URL`: the database of a hub. It contains a password, which no argument should.
    pub(crate) database_url: Option<Secret<String>>,
    /// `$AWS_ACCESS_KEY_ID` and so on, under the names that every tool for object stores uses.
    pub(crate) object_store: ObjectStoreVariables,
    /// Never if `$NO_COLOR` is set and not empty, or `$TERM` is `dumb`: such a terminal supports no escape sequences.
    pub(crate) color: ColorChoice,
    /// `$RUST_LOG`: the log filter.
    pub(crate) log: Option<String>,
}

/// What the environment says about an object store.
#[derive(Debug, Clone)]
pub(crate) struct ObjectStoreVariables {
    pub(crate) access_key: Option<String>,
    pub(crate) secret_key: Option<Secret<String>>,
    pub(crate) session_token: Option<Secret<String>>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

// === impl Config ===

impl Config {
    pub(crate) fn from_environment() -> Self {
        let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = variable("A2A_HOME")
            .map(PathBuf::from)
            .map(absolute)
            .or_else(|| path("HOME").map(|home| home.join(".a2a")));
        let dull = variable("NO_COLOR").is_some() || variable("TERM").is_some_and(|term| term == "dumb");
        let awcp_home = variable("AWCP_HOME")
            .map(PathBuf::from)
            .map(absolute)
            .or_else(|| path("HOME").map(|home| home.join(".AWCP")));
        Self {
            home,
            awcp_home,
            user_home: path("HOME"),
            codex_home: path("CODEX_HOME"),
            claude_home: path("CLAUDE_CONFIG_DIR"),
            config_home: path("XDG_CONFIG_HOME"),
            desktop: desktop(),
            url: text("ATTACHE_URL"),
            key: text("ATTACHE_KEY").map(Secret::new),
            pin: text("ATTACHE_PIN"),
            database_url: text("ATTACHE_DATABASE_URL").map(Secret::new),
            object_store: ObjectStoreVariables {
                access_key: text("AWS_ACCESS_KEY_ID"),
                secret_key: text("AWS_SECRET_ACCESS_KEY").map(Secret::new),
                session_token: text("AWS_SESSION_TOKEN").map(Secret::new),
                region: text("AWS_REGION").or_else(|| text("AWS_DEFAULT_REGION")),
                endpoint: text("AWS_ENDPOINT_URL_S3").or_else(|| text("AWS_ENDPOINT_URL")),
            },
            color: if dull { ColorChoice::Never } else { ColorChoice::Auto },
            log: text("RUST_LOG"),
        }
    }

    pub(crate) fn home(&self) -> Result<PathBuf, CommandFailure> {
        self.home.clone().ok_or_else(|| CommandFailure::usage(errors::no_home()).hint(errors::set_home()))
    }

    /// Variables for non-default home folders, which other programs must set when they start us.
    pub(crate) fn unusual_homes(&self) -> Vec<(String, String)> {
        let usual = |name: &str| self.user_home.as_ref().map(|person| person.join(name));
        let ours = [("A2A_HOME", &self.home, ".a2a"), ("AWCP_HOME", &self.awcp_home, ".AWCP")];
        let unusual = ours.into_iter().filter(|(_, home, name)| home.is_some() && **home != usual(name));
        let text = |home: &Option<PathBuf>| home.clone().unwrap_or_default().to_string_lossy().into_owned();
        unusual.map(|(variable, home, _)| (variable.to_owned(), text(home))).collect()
    }

    pub(crate) fn awcp_home(&self) -> Result<PathBuf, CommandFailure> {
        self.awcp_home
            .clone()
            .ok_or_else(|| CommandFailure::usage(errors::no_awcp_home()).hint(errors::set_awcp_home()))
    }
}

/// The system's `notify-send`, if there is a display.
fn desktop() -> Option<PathBuf> {
    variable("WAYLAND_DISPLAY").or_else(|| variable("DISPLAY"))?;
    program::find("notify-send")
}

/// Variables with the paths of our own folders and the hub key. Tasks never see them.
pub(crate) const OWN_VARIABLES: [&str; 4] = ["A2A_HOME", "AWCP_HOME", "ATTACHE_KEY", "ATTACHE_DATABASE_URL"];

/// The environment of an adapter's tasks: an allow-list plus the variables in `also`.
pub(crate) fn task_environment(also: &[String]) -> Environment {
    Environment::select(visible_variables(), also)
}

/// The environment of the adapter itself, which finds its secret in `$A2A_HOME`.
pub(crate) fn adapter_environment(also: &[String]) -> Environment {
    Environment::select(std::env::vars_os(), also)
}

/// Our environment without the variables that lead to our own folders.
fn visible_variables() -> Vec<(OsString, OsString)> {
    let config = Config::from_environment();
    let ours = [config.home, config.awcp_home];
    let leads_there = |value: &OsString| ours.iter().flatten().any(|home| Path::new(value).starts_with(home));
    let is_own = |name: &OsString| OWN_VARIABLES.iter().any(|own| name == own);
    std::env::vars_os().filter(|(name, value)| !is_own(name) && !leads_there(value)).collect()
}

/// Where the private folders of runs are created: `$TMPDIR`, or the system's temporary folder.
pub(crate) fn temporary_folder() -> PathBuf {
    std::env::temp_dir()
}

/// Where to look for agent hosts, and the environment for them.
pub(crate) fn detection_environment() -> DetectionEnvironment {
    let config = Config::from_environment();
    DetectionEnvironment {
        path: detection_path(&config),
        home: config.user_home,
        environment: visible_variables().into_iter().collect(),
        probe_timeout: preset::PROBE_TIMEOUT,
    }
}

/// `$PATH` without the folders in which the agents of this device work: a run could have put a program there. Whoever works
/// in a home folder as a whole needs none of them.
fn detection_path(config: &Config) -> OsString {
    let path = variable("PATH").unwrap_or_default();
    let profiles = config.home.as_ref().map(|home| Profiles::at(home, Env::system()));
    let mut worked_in = profiles.and_then(|profiles| profiles.folders().ok()).unwrap_or_default();
    worked_in.retain(|folder| !config.user_home.as_ref().is_some_and(|home| home.starts_with(folder)));
    std::env::join_paths(program::sound_folders(&path, &worked_in)).unwrap_or_default()
}

/// The person who ran this command with sudo.
pub(crate) fn invoking_user() -> Option<String> {
    text("SUDO_USER").filter(|user| user != "root")
}

/// The absolute folders of `$PATH`: a relative one means something else to another process.
pub(crate) fn absolute_search_path() -> Option<String> {
    let path = variable("PATH")?;
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    std::env::join_paths(folders).ok()?.into_string().ok().filter(|path| !path.is_empty())
}

/// The socket on which the service manager that started this process waits to hear that it is ready.
pub(crate) fn notify_socket() -> Option<OsString> {
    variable("NOTIFY_SOCKET")
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// A variable that is set, not empty, and text.
pub(crate) fn text(name: &str) -> Option<String> {
    variable(name).and_then(|value| value.into_string().ok())
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
