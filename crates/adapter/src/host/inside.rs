//! A host inside the machine's walls: what it sees besides its folder, and how it reaches its model.

use std::{
    collections::BTreeSet,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use attache_client::egress::{AllowedHost, EgressProxy, TargetTraffic};
use attache_os::{program, small_file};
use attache_sandbox::{FileView, NetworkAccess, Walls};
use serde::Deserialize;
use tokio::task::JoinHandle;

use crate::{
    AdapterWalls, DriverRun, Environment, EventSink, SandboxLimit,
    placed_files::PlacedFiles,
    repository::{GuardedRepository, MAX_POINTER},
    scratch::ScratchFolder,
    worktree,
};

use super::{
    HostSetup,
    login_copy::{LoginChange, LoginCopy},
};

/// What a host needs inside walls: a row of its preset. Paths are relative to the host's own folder, `~/…`, or
/// absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostNeeds {
    /// Settings and programs that it reads.
    pub reads: Vec<String>,
    /// Its login, which it renews.
    #[serde(skip)]
    pub login: Vec<String>,
    /// The hosts of its model.
    pub hosts: Vec<AllowedHostName>,
    /// Variables with the address of its model, if the owner chose another one.
    pub address_variables: Vec<String>,
}

/// A host of a model, as in `presets.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct AllowedHostName(AllowedHost);

/// The host's own folder: the variable that names it, or its place in the home folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFolder {
    pub variable: Option<String>,
    pub name: String,
}

/// Held while the host runs.
#[derive(Debug)]
pub(super) struct HostEnclosure {
    _scratch: ScratchFolder,
    _reserved: Option<PlacedFiles>,
    _repository: GuardedRepository,
    /// Not visible inside, except for the copies themselves.
    _copies: ScratchFolder,
    logins: Vec<LoginCopy>,
    proxy: Option<(EgressProxy, JoinHandle<()>)>,
    events: EventSink,
}

/// How to start a host inside.
pub(super) struct EnclosedLaunch {
    pub(super) walls: Walls,
    /// The end of the proxy's socket that the host's first stage gets.
    pub(super) handed: Option<Arc<OwnedFd>>,
    pub(super) enclosure: HostEnclosure,
    /// Where temporary files go.
    pub(super) temporary: PathBuf,
}

/// How many refused targets of a run are reported one by one.
const MAX_REFUSALS: usize = 50;

/// Folders of toolchains in a home folder, without anybody's credentials.
const TOOLS: [&str; 18] = [
    ".asdf",
    ".bun",
    ".cargo/bin",
    ".cargo/git",
    ".cargo/registry",
    ".deno/bin",
    ".local/bin",
    ".local/share/mise/installs",
    ".local/share/mise/shims",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".nvm",
    ".pyenv",
    ".rustup",
    ".sdkman",
    ".volta",
    "go/bin",
    "go/pkg/mod",
];

// === impl HostNeeds ===

impl HostNeeds {
    #[must_use]
    pub(crate) fn with(mut self, more: Self) -> Self {
        self.reads.extend(more.reads);
        self.hosts.extend(more.hosts);
        self.address_variables.extend(more.address_variables);
        self
    }
}

// === impl HostEnclosure ===

impl HostEnclosure {
    /// Prepares the walls for a host that is about to start. `limits` are those that walls hold; `writes` is what the
    /// run needs besides its folder.
    pub(super) fn prepare(
        setup: &HostSetup,
        needs: &HostNeeds,
        (limits, writes): (&[SandboxLimit], &[PathBuf]),
        own: &AdapterWalls,
        job: &DriverRun,
    ) -> io::Result<EnclosedLaunch> {
        let scratch = ScratchFolder::create(&job.scratch, &job.env)?;
        let temporary = scratch.path().canonicalize()?;
        let mut walls = Walls::open(job.real_folder()?).limit(limits);
        walls.write.push(temporary.clone());
        walls.write.extend_from_slice(writes);
        walls.hide.clone_from(&job.hidden);
        let repository = GuardedRepository::of_run(own, job)?;
        walls.fixed.clone_from(&repository.fixed);
        walls.processes = Some(own.resources.processes);
        // What comes with other runs isn't this one's.
        let reserved = PlacedFiles::reserve(job);
        if let Some((came, own)) = PlacedFiles::hidden(job, &walls.cwd)? {
            walls.write.extend(own);
            walls.hide.push(came);
        }
        if walls.files == FileView::Declared {
            declare(&mut walls, setup, needs, job)?;
        }
        worktree::open(&mut walls, job);
        let copies = ScratchFolder::create(&job.scratch, &job.env)?;
        let logins = match (walls.files, own.launcher.has_namespaces()) {
            (FileView::All, _) => Vec::new(),
            (FileView::Declared, true) => copied(&logins(setup, needs, job), &copies)?,
            // Without namespaces there is no copy at its place, and the login itself must not be written.
            (FileView::Declared, false) => {
                walls.read.extend(logins(setup, needs, job).into_iter().filter(|path| path.exists()));
                Vec::new()
            }
        };
        walls.overlays.extend(logins.iter().map(LoginCopy::overlay));
        let events = job.events.clone();
        let (mut handed, mut proxy) = (None, None);
        if walls.network == NetworkAccess::None {
            let (outside, inside) = UnixStream::pair()?;
            let inside = Arc::new(OwnedFd::from(inside));
            walls.network = NetworkAccess::Proxy(std::os::fd::AsRawFd::as_raw_fd(&*inside));
            handed = Some(inside);
            let allowed = allowed_hosts(needs, job);
            walls.ports = allowed.iter().filter_map(AllowedHost::loopback_port).collect();
            walls.ports.sort_unstable();
            walls.ports.dedup();
            let ports = walls.ports.clone();
            let server = EgressProxy::new(allowed, refusals(events.clone()));
            proxy = Some((server.clone(), tokio::spawn(serve(server, outside, ports))));
        }
        Ok(EnclosedLaunch {
            walls,
            handed,
            enclosure: Self {
                _scratch: scratch,
                _reserved: reserved,
                _repository: repository,
                _copies: copies,
                logins,
                proxy,
                events,
            },
            temporary,
        })
    }
}

impl Drop for HostEnclosure {
    fn drop(&mut self) {
        for login in &self.logins {
            match login.take_over() {
                Ok(LoginChange::Unchanged) => {}
                // Whoever owns the machine can see which run did it.
                Ok(LoginChange::Renewed) => {
                    self.events.log("info", "the agent renewed its login; it is kept".to_owned());
                }
                Err(error) => {
                    self.events.log("warning", format!("the login as the run left it was discarded: {error}"));
                }
            }
        }
        let Some((proxy, serving)) = &self.proxy else { return };
        serving.abort();
        for TargetTraffic { target, connections, sent, received } in proxy.reached() {
            let times = if connections == 1 { "once".to_owned() } else { format!("{connections} times") };
            let text = format!("network: {target} was reached {times}, {sent} bytes out, {received} bytes in");
            self.events.network("info", text);
        }
    }
}

/// Reports each refused target once.
fn refusals(events: EventSink) -> impl Fn(&str, &str) + Send + Sync + 'static {
    let told = Mutex::new(BTreeSet::new());
    move |target, why| {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MAX_REFUSALS && told.insert(target.to_owned()) {
            events.network("warning", format!("network: {why}"));
        }
    }
}

/// Serves the host as soon as it is inside. The ports lead to the same ports of this machine.
async fn serve(proxy: EgressProxy, outside: UnixStream, ports: Vec<u16>) {
    let received = tokio::task::spawn_blocking(move || attache_sandbox::receive_listeners(&outside)).await;
    let listeners = received.map_err(io::Error::other).and_then(|listeners| {
        let ready = |listener: std::net::TcpListener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        };
        listeners?.into_iter().map(ready).collect::<io::Result<Vec<_>>>()
    });
    let mut listeners = match listeners {
        Ok(listeners) => listeners.into_iter(),
        Err(error) => return tracing::warn!(%error, "a host has no way to its model"),
    };
    let Some(own) = listeners.next() else { return };
    let forwarded = listeners.zip(ports).map(|(listener, port)| proxy.clone().forward(listener, port));
    futures_util::future::join(proxy.clone().serve(own), futures_util::future::join_all(forwarded)).await;
}

/// The model's hosts, and the hub with the run's tools.
fn allowed_hosts(needs: &HostNeeds, job: &DriverRun) -> Vec<AllowedHost> {
    let chosen = needs.address_variables.iter().filter_map(|name| job.environment.get(name)?.to_str());
    let urls = chosen.chain(job.task.mcp.as_ref().map(|tools| tools.url.as_str()));
    let own = needs.hosts.iter().map(|AllowedHostName(host)| host.clone());
    own.chain(urls.filter_map(AllowedHost::of_url)).collect()
}

/// Shows the toolchains of the user: the folders in `PATH`, and those that toolchains have in a home folder, of which
/// nothing else is there. What is where runs work is left to [`keep_sound`], and says nothing about what else to show.
pub(crate) fn show_toolchains(walls: &mut Walls, environment: &Environment, worked_in: &[PathBuf]) {
    let home = home(environment);
    let tools = home.iter().flat_map(|home| TOOLS.iter().map(|tool| home.join(tool)));
    let folders = path_folders(environment, worked_in).into_iter();
    let read = folders.flat_map(|folder| whole_toolchain(folder, worked_in)).chain(tools);
    walls.read.extend(read.filter(|path| can_be_shown(path, home.as_deref())));
    walls.private.extend(home);
}

/// Leaves out what leads through a folder in which runs work: a run could put a link there to whatever the next one should
/// see. The run's own folder is shown anyway.
pub(crate) fn keep_sound(walls: &mut Walls, worked_in: &[PathBuf]) {
    walls.read.retain(|path| !program::leads_into(path, worked_in));
}

/// The folders in which this run and others work, whatever else is in them.
pub(crate) fn all_worked_in(walls: &Walls, job: &DriverRun) -> io::Result<Vec<PathBuf>> {
    Ok(std::iter::once(walls.cwd.clone()).chain(job.worked_in()?).collect())
}

/// The whole toolchain of a folder in `PATH`, wherever it is installed. A virtual environment of Python comes with the
/// Python it was made from.
fn whole_toolchain(folder: PathBuf, worked_in: &[PathBuf]) -> Vec<PathBuf> {
    let environment = folder.parent().filter(|parent| parent.join("pyvenv.cfg").is_file());
    let whole = folder.ancestors().find(|folder| TOOLS.iter().any(|tool| folder.ends_with(tool)));
    let base = environment.and_then(|environment| base_python(environment, worked_in));
    let whole = environment.or(whole).map_or_else(|| folder.clone(), Path::to_owned);
    std::iter::once(whole).chain(base).collect()
}

/// What isn't there can't be shown, and a folder with the whole home folder in it must not be.
fn can_be_shown(path: &Path, home: Option<&Path>) -> bool {
    path.canonicalize().is_ok_and(|real| !home.is_some_and(|home| home.starts_with(real)))
}

fn home(environment: &Environment) -> Option<PathBuf> {
    environment.get("HOME").map(PathBuf::from).and_then(|home| home.canonicalize().ok())
}

fn path_folders(environment: &Environment, worked_in: &[PathBuf]) -> Vec<PathBuf> {
    let path = environment.get("PATH").cloned().unwrap_or_default();
    program::sound_folders(&path, worked_in).collect()
}

/// Where the host's files of these names are.
fn places(setup: &HostSetup, job: &DriverRun, names: &[String]) -> Vec<PathBuf> {
    let home = home(&job.environment);
    let folder = setup.folder.path(job, home.as_deref());
    let place = |name: &String| match name.strip_prefix("~/") {
        Some(rest) => home.as_ref().map(|home| home.join(rest)),
        None if name.starts_with('/') => Some(PathBuf::from(name)),
        None => folder.as_ref().map(|folder| folder.join(name)),
    };
    names.iter().filter_map(place).collect()
}

/// Logins that aren't among the settings, which are read-only inside.
fn logins(setup: &HostSetup, needs: &HostNeeds, job: &DriverRun) -> Vec<PathBuf> {
    let names: Vec<String> = needs.login.iter().filter(|login| !needs.reads.contains(login)).cloned().collect();
    places(setup, job, &names)
}

fn copied(logins: &[PathBuf], folder: &ScratchFolder) -> io::Result<Vec<LoginCopy>> {
    let copies = logins.iter().enumerate().map(|(number, login)| LoginCopy::create(login, folder, number));
    Ok(copies.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// What a host sees besides its folder and its login: its installation, its settings, and toolchains.
fn declare(walls: &mut Walls, setup: &HostSetup, needs: &HostNeeds, job: &DriverRun) -> io::Result<()> {
    let home = home(&job.environment);
    let folder = setup.folder.path(job, home.as_deref());
    let worked_in = all_worked_in(walls, job)?;
    show_toolchains(walls, &job.environment, &worked_in);
    let mut read = installation(Path::new(&setup.program), &path_folders(&job.environment, &worked_in), &worked_in);
    read.extend(places(setup, job, &needs.reads));
    walls.read.extend(read.into_iter().filter(|path| can_be_shown(path, home.as_deref())));
    keep_sound(walls, &worked_in);
    let is_elsewhere = |folder: &PathBuf| !home.as_ref().is_some_and(|home| folder.starts_with(home));
    walls.private.extend(folder.filter(is_elsewhere));
    Ok(())
}

/// Where a program is installed: its file, and the folder with everything that came with it.
fn installation(program: &Path, folders: &[PathBuf], worked_in: &[PathBuf]) -> Vec<PathBuf> {
    let found = if program.components().count() > 1 {
        Some(program.to_owned())
    } else {
        folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file())
    };
    let Some(found) = found.filter(|found| !program::leads_into(found, worked_in)) else { return Vec::new() };
    let Ok(file) = found.canonicalize() else { return vec![found] };
    let packages = file.ancestors().filter(|folder| folder.ends_with("node_modules")).last();
    let environment = file.ancestors().find(|folder| folder.join("pyvenv.cfg").is_file());
    let python = environment.and_then(|environment| base_python(environment, worked_in));
    let whole = packages.or(environment).map(Path::to_owned);
    [Some(found), whole.or(Some(file)), python].into_iter().flatten().collect()
}

/// The Python that a virtual environment was made from. Whoever can write to the environment must not choose what is shown:
/// one where runs work isn't asked, and there has to be a Python.
fn base_python(environment: &Path, worked_in: &[PathBuf]) -> Option<PathBuf> {
    let file = Some(environment.join("pyvenv.cfg")).filter(|file| !program::leads_into(file, worked_in))?;
    let text = small_file::read(&file, MAX_POINTER).ok()?;
    let programs = text.lines().find_map(|line| line.strip_prefix("home")?.trim_start().strip_prefix('='))?;
    let programs = Path::new(programs.trim());
    let is_python = programs.is_absolute() && programs.join("python3").is_file();
    programs.parent().filter(|_| is_python).map(Path::to_owned)
}

// === impl HostFolder ===

impl HostFolder {
    fn path(&self, job: &DriverRun, home: Option<&Path>) -> Option<PathBuf> {
        let chosen = self.variable.as_ref().and_then(|name| job.environment.get(name)).map(PathBuf::from);
        chosen.or_else(|| Some(home?.join(&self.name))).filter(|_| !self.name.is_empty())
    }
}

// === impl AllowedHostName ===

impl TryFrom<String> for AllowedHostName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    #[test]
    fn an_installation_is_shown_whole() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        for folder in ["lib/node_modules/@x/host/bin", "bin", "venv/bin", "plain", "python/bin", "mine/keys"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["lib/node_modules/@x/host/bin/cli.js", "venv/bin/hermes", "plain/tool", "python/bin/python3"] {
            fs::write(at(file), "").unwrap();
        }
        let made_from =
            |folder: &str| fs::write(at("venv/pyvenv.cfg"), format!("home = {}\nversion = 3\n", at(folder).display()));
        made_from("python/bin").unwrap();
        std::os::unix::fs::symlink("../lib/node_modules/@x/host/bin/cli.js", at("bin/host")).unwrap();
        let folders = [at("bin"), at("venv/bin"), at("plain")];
        let found = |program: &str| installation(Path::new(program), &folders, &[]);
        assert_eq!(found("host"), [at("bin/host"), at("lib/node_modules")]);
        assert_eq!(found("hermes"), [at("venv/bin/hermes"), at("venv"), at("python")]);
        assert_eq!(found("tool"), [at("plain/tool"), at("plain/tool")]);
        assert_eq!(found("absent"), Vec::<PathBuf>::new());
        assert_eq!(whole_toolchain(at("venv/bin"), &[]), [at("venv"), at("python")]);
        assert_eq!(whole_toolchain(at(".nvm/versions/bin"), &[]), [at(".nvm")]);
        assert_eq!(whole_toolchain(at("plain"), &[]), [at("plain")]);
        made_from("mine/keys").unwrap();
        assert_eq!(whole_toolchain(at("venv/bin"), &[]), [at("venv")]);
    }

    /// A run in `work` replaces its Python environment, to see a folder of the home folder in the next run.
    #[test]
    fn no_run_chooses_what_the_next_one_sees() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        for folder in ["work/.venv/bin", "work/.venv2", "home/keys/bin", "home/keys/p/bin", "base/bin", "tools/bin"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["home/keys/bin/python3", "base/bin/python3", "work/.venv/bin/host"] {
            fs::write(at(file), "").unwrap();
        }
        fs::write(at("tools/pyvenv.cfg"), format!("home = {}\n", at("base/bin").display())).unwrap();
        let link = |to: &str, from: &str| std::os::unix::fs::symlink(at(to), at(from)).unwrap();
        link("work/.venv", "way-in");
        link("home/keys", "work/.venv2/bin");
        link("home/keys/bin/python3", "work/agent");
        let path = ["work/.venv/bin", "way-in/bin", "work/.venv2/bin", "tools/bin"].map(at);
        let path = env::join_paths(path).unwrap().into_string().unwrap();
        let environment = Environment::default().with("PATH", path).with("HOME", at("home"));
        for home in ["home/keys/bin", "work/l/../../home/keys/bin"] {
            fs::write(at("work/.venv/pyvenv.cfg"), format!("home = {}\n", at(home).display())).unwrap();
            let mut walls = Walls::open(at("work"));
            show_toolchains(&mut walls, &environment, &[at("work")]);
            walls.read.push(at("work/agent"));
            keep_sound(&mut walls, &[at("work")]);
            assert_eq!(walls.read, [at("tools"), at("base")]);
        }
        let host = |name: &str| installation(&at(name), &[], &[at("work")]);
        assert_eq!(host("work/.venv/bin/host"), Vec::<PathBuf>::new());
        assert_eq!(host("way-in/bin/host"), Vec::<PathBuf>::new());
    }

    /// A run changes the environment of its folder, and the next one would see what it wants.
    #[test]
    fn nothing_in_the_working_folder_decides_what_is_shown() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        for folder in ["work/.venv", "work/own/bin", "keys/bin", "tools", "bin"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("keys/bin/python3"), "").unwrap();
        fs::write(at("work/own/pyvenv.cfg"), format!("home = {}\n", at("keys/bin").display())).unwrap();
        let link = |target: &str, place: &str| std::os::unix::fs::symlink(at(target), at(place)).unwrap();
        link("keys", "work/.venv/bin");
        link("work/.venv/bin", "tools/far");
        link("tools", "near");
        let shown = |folders: &[&str]| {
            let path = env::join_paths(folders.iter().map(|folder| at(folder))).unwrap();
            let environment = Environment::select([("PATH", path)], &[]);
            let mut walls = Walls::open(at("work"));
            show_toolchains(&mut walls, &environment, &[at("work")]);
            keep_sound(&mut walls, &[at("work")]);
            walls.read
        };
        let refused =
            ["work/.venv/bin", "work/own/bin", "tools/far", "near/far", "bin/../work/.venv/bin", "work/../keys/bin/."];
        assert_eq!(shown(&refused), Vec::<PathBuf>::new());
        assert_eq!(shown(&["bin", "near"]), [at("bin"), at("near")]);
        assert_eq!(installation(&at("tools/far/bin/python3"), &[], &[at("work")]), Vec::<PathBuf>::new());
    }
}
