//! The second stage: inside the namespaces, it adds Landlock and seccomp and becomes the program.

use std::{
    convert::Infallible,
    env,
    ffi::OsString,
    fs,
    io::{self, BufRead as _, Read as _},
    os::unix::{ffi::OsStringExt as _, fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::{Resource, Rlimit};

use crate::{FileView, Launcher, Mechanism, NetworkAccess, Walls};

use super::{
    bubblewrap::{self, NamespaceSide},
    exec_once::PreparedExec,
    landlock,
    open_path::{self, OpenPath},
    order::StageInstructions,
    proxy_listener, seccomp,
};

/// How many files a process can have open. Programs that raise this themselves, as many runtimes do, stop here.
const MAX_OPEN_FILES: u64 = 65_536;

/// Interpreters that only start another program.
const ENV: &str = "/usr/bin/env";

/// The whole command up to `--`: bubblewrap with its arguments, if it is there, and the second stage.
pub(crate) fn arguments(launcher: &Launcher, walls: &Walls) -> io::Result<Vec<OsString>> {
    let stage = &launcher.stage;
    let bwrap = launcher.bwrap.as_deref().filter(|_| uses(walls, Mechanism::Namespaces));
    if bwrap.is_none() && walls.files == FileView::Declared {
        check_hidden(walls)?;
    }
    let mut walls = walls.clone();
    let identity = if bwrap.is_some() {
        bubblewrap::settle(&mut walls)?;
        bubblewrap::identity(&walls, NamespaceSide::Outside)?
    } else {
        open_path::resolve(&mut walls)?;
        open_path::identity(&open_path::open_all(&walls)?)
    };
    let mut words = bwrap.map(|bwrap| bubblewrap::arguments(bwrap, &walls, &stage.program)).unwrap_or_default();
    let order = StageInstructions { walls, is_in_namespaces: bwrap.is_some(), identity };
    words.push(stage.program.clone().into());
    words.extend(stage.enter.iter().cloned());
    words.extend(order.into_words()?);
    Ok(words)
}

fn uses(walls: &Walls, mechanism: Mechanism) -> bool {
    !walls.without.contains(&mechanism)
}

/// Landlock can show a folder, but not all of it except for one.
fn check_hidden(walls: &Walls) -> io::Result<()> {
    let visible: Vec<PathBuf> =
        walls.read.iter().chain(&walls.write).chain([&walls.cwd]).filter_map(|path| path.canonicalize().ok()).collect();
    let hidden = bubblewrap::real_paths(&walls.hide)?;
    match hidden.into_iter().find(|path| visible.iter().any(|folder| path.starts_with(folder))) {
        Some(path) => Err(io::Error::other(format!(
            "{} can't be hidden from it without bubblewrap; work in another folder, or install bubblewrap",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Builds the walls around this process and becomes the program. Returns only if it can't. For a process with one
/// thread. The words are those that follow [`StageCommand::enter`](crate::StageCommand).
pub fn enter(words: impl IntoIterator<Item = OsString>) -> io::Result<Infallible> {
    let mut words = words.into_iter();
    let order = StageInstructions::from_words(&mut words);
    // What separates the order from the command.
    let command: Vec<OsString> = words.skip(1).collect();
    let program = command.first().cloned().unwrap_or_default();
    order.and_then(|order| become_program(order, command)).map_err(|error| {
        io::Error::new(error.kind(), format!("can't start `{}` in its sandbox: {error}", program.display()))
    })
}

fn become_program(order: StageInstructions, command: Vec<OsString>) -> io::Result<Infallible> {
    let StageInstructions { walls, is_in_namespaces, identity } = order;
    let opened = if is_in_namespaces { None } else { open_path::open_all(&walls).ok() };
    let now = match &opened {
        Some(opened) => Some(open_path::identity(opened)),
        None if is_in_namespaces => bubblewrap::identity(&walls, NamespaceSide::Inside).ok(),
        None => None,
    };
    if now != Some(identity) {
        return Err(io::Error::other(
            "its folder, or a repository in it, was replaced while the sandbox was being set up; try again",
        ));
    }
    let mut words = command.into_iter();
    let name = words.next().ok_or_else(|| io::Error::other("no program was named"))?;
    let program = find(&name)?;
    match opened.as_deref() {
        // The first is the working folder.
        Some([cwd, ..]) => rustix::process::fchdir(cwd)?,
        Some([]) | None => env::set_current_dir(&walls.cwd)?,
    }
    if !walls.terminal {
        // Without bubblewrap, it may lead its group, and then it keeps its session.
        let _ = rustix::process::setsid();
    }
    limit_resources(&walls, is_in_namespaces)?;
    if let NetworkAccess::Proxy(descriptor) = walls.network {
        if !is_in_namespaces {
            return Err(io::Error::other("a proxy as the only way out needs namespaces"));
        }
        proxy_listener::send(descriptor, &walls.ports)?;
    }
    if walls.exec {
        restrict(&walls, opened.as_deref(), None)?;
        return Err(Command::new(program).arg0(name).args(words).exec());
    }
    // The only program there will be: a script's interpreter is started directly, because `env` would start it.
    let mut arguments = interpreter(&program)?.unwrap_or_else(|| vec![program.into_os_string()]);
    let program = find(&arguments[0])?;
    arguments.extend(words);
    let last = PreparedExec::prepare(program.into_os_string(), arguments)?;
    restrict(&walls, opened.as_deref(), Some(&last))?;
    Err(last.call())
}

/// Limits of single processes. The size of files isn't one of them: many small ones fill a disk as well.
fn limit_resources(walls: &Walls, is_in_namespaces: bool) -> io::Result<()> {
    // A crash must not leave the memory of a host, with its login, in the folder.
    lower(Resource::Core, 0)?;
    lower(Resource::Nofile, MAX_OPEN_FILES)?;
    // A process with real-time priority keeps everyone else from running.
    lower(Resource::Rtprio, 0)?;
    if let Some(processes) = walls.processes.filter(|_| is_in_namespaces) {
        lower(Resource::Nproc, processes.get().into())?;
    }
    Ok(())
}

/// For this process and everything it starts. What is lower already stays so.
fn lower(resource: Resource, to: u64) -> io::Result<()> {
    let Rlimit { current, maximum } = rustix::process::getrlimit(resource);
    let lowered = |limit: Option<u64>| Some(limit.map_or(to, |limit| limit.min(to)));
    Ok(rustix::process::setrlimit(resource, Rlimit { current: lowered(current), maximum: lowered(maximum) })?)
}

/// `opened` is what can be seen besides the system, if there are no namespaces.
fn restrict(walls: &Walls, opened: Option<&[OpenPath]>, last: Option<&PreparedExec>) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    if uses(walls, Mechanism::Landlock) {
        landlock::restrict(walls, opened)?;
    }
    if uses(walls, Mechanism::Seccomp) {
        seccomp::restrict(walls, opened.is_none(), last.map(PreparedExec::permit))?;
    }
    Ok(())
}

/// As a shell would find it.
fn find(name: &OsString) -> io::Result<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return Ok(path.to_owned());
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&folders).map(|folder| folder.join(name)).find(is_program).ok_or(io::ErrorKind::NotFound.into())
}

/// For a script that starts with `#!/usr/bin/env PROGRAM`: the program, its arguments, and the script.
fn interpreter(script: &Path) -> io::Result<Option<Vec<OsString>>> {
    let mut line = Vec::new();
    // As much as the kernel reads of it.
    io::BufReader::new(fs::File::open(script)?.take(256)).read_until(b'\n', &mut line)?;
    let Some(rest) = line.strip_prefix(b"#!") else { return Ok(None) };
    let mut words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    if words.next() != Some(ENV.as_bytes()) {
        return Ok(None);
    }
    let words = words.filter(|word| *word != b"-S").map(|word| OsString::from_vec(word.to_vec()));
    let mut words: Vec<OsString> = words.collect();
    if words.is_empty() {
        return Ok(None);
    }
    words.push(script.into());
    Ok(Some(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_of_a_script_is_started_without_env() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("host");
        let first = |text: &str| {
            fs::write(&script, text).unwrap();
            interpreter(&script).unwrap()
        };
        let at = |words: &[&str]| Some(words.iter().map(OsString::from).chain([script.clone().into()]).collect());
        assert_eq!(first("#!/usr/bin/env node\n1"), at(&["node"]));
        assert_eq!(first("#!/usr/bin/env -S node --flag\n"), at(&["node", "--flag"]));
        assert_eq!(first("#!/bin/sh\n"), None);
        assert_eq!(first("\x7fELF"), None);
    }
}
