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
use serde::{Deserialize, Serialize};

use crate::{FileView, Launcher, Mechanism, NetworkAccess, Walls};

use super::{
    bubblewrap::{self, Side},
    exec_once::LastExec,
    landlock, proxy_listener, seccomp,
};

/// How many files a process can have open. Programs that raise this themselves, as many runtimes do, stop here.
const MAX_OPEN_FILES: u64 = 65_536;

/// What the second stage is told.
#[derive(Debug, Serialize, Deserialize)]
struct StageOrder {
    walls: Walls,
    /// It has its own view of files, processes and network already.
    is_in_namespaces: bool,
    /// Which files and folders are inside, before the namespaces were made.
    #[serde(default)]
    identity: Option<u64>,
}

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
    bubblewrap::keep_existing(&mut walls);
    let identity = bwrap.map(|_| bubblewrap::identity(&walls, Side::Outside)).transpose()?;
    let mut words = bwrap.map(|bwrap| bubblewrap::arguments(bwrap, &walls, &stage.program)).unwrap_or_default();
    let order = StageOrder { walls, is_in_namespaces: bwrap.is_some(), identity };
    words.push(stage.program.clone().into());
    words.extend(stage.enter.iter().cloned());
    words.push(serde_json::to_string(&order).map_err(io::Error::other)?.into());
    Ok(words)
}

fn uses(walls: &Walls, mechanism: Mechanism) -> bool {
    !walls.without.contains(&mechanism)
}

/// Landlock can show a folder, but not all of it except for one.
fn check_hidden(walls: &Walls) -> io::Result<()> {
    let visible: Vec<PathBuf> =
        walls.read.iter().chain(&walls.write).chain([&walls.cwd]).filter_map(|path| path.canonicalize().ok()).collect();
    let hidden = walls.hide.iter().filter_map(|path| path.canonicalize().ok());
    match hidden.into_iter().find(|path| visible.iter().any(|folder| path.starts_with(folder))) {
        Some(path) => Err(io::Error::other(format!(
            "{} can't be hidden from it without bubblewrap; work in another folder, or install bubblewrap",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Builds the walls around this process and becomes the program. Returns only if it can't. For a process with one
/// thread.
pub fn enter(order: &str, command: Vec<OsString>) -> io::Result<Infallible> {
    let StageOrder { walls, is_in_namespaces, identity } = serde_json::from_str(order).map_err(io::Error::other)?;
    if identity.is_some_and(|before| bubblewrap::identity(&walls, Side::Inside).ok() != Some(before)) {
        return Err(io::Error::other(
            "its folder, or a repository in it, was replaced while the walls were built; try again",
        ));
    }
    let mut words = command.into_iter();
    let name = words.next().ok_or_else(|| io::Error::other("no program was named"))?;
    let program = find(&name)?;
    env::set_current_dir(&walls.cwd)?;
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
        restrict(&walls, is_in_namespaces, None)?;
        return Err(Command::new(program).arg0(name).args(words).exec());
    }
    // The only program there will be: a script's interpreter is started directly, because `env` would start it.
    let mut arguments = interpreter(&program)?.unwrap_or_else(|| vec![program.into_os_string()]);
    let program = find(&arguments[0])?;
    arguments.extend(words);
    let last = LastExec::prepare(program.into_os_string(), arguments)?;
    restrict(&walls, is_in_namespaces, Some(&last))?;
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

fn restrict(walls: &Walls, is_in_namespaces: bool, last: Option<&LastExec>) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    if uses(walls, Mechanism::Landlock) {
        landlock::restrict(walls, is_in_namespaces)?;
    }
    if uses(walls, Mechanism::Seccomp) {
        seccomp::restrict(walls, is_in_namespaces, last.map(LastExec::permit))?;
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
