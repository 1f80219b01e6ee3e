//! Control groups (cgroup v2) for runs: how much memory and how many processes one may use, and one way to end all of
//! them. The groups of an adapter are below its own, so whatever limits that one also limits its runs.

use std::{
    fs, io,
    num::{NonZeroU32, NonZeroU64},
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use attache_protocol::RunId;
use rustix::{
    fs::{Access, FlockOperation, access, flock},
    io::Errno,
};

use crate::system::machine;

/// How much one run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunResources {
    /// Bytes.
    pub memory: NonZeroU64,
    /// Processes, each of their threads counted.
    pub processes: NonZeroU32,
}

/// Where the groups of an adapter's runs are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlGroups {
    folder: PathBuf,
    /// What can be limited here, of [`CONTROLLERS`].
    controllers: Vec<&'static str>,
    resources: RunResources,
}

/// What the runs of an adapter would be limited to, as found without changing anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlGroupSupport {
    pub memory: bool,
    pub processes: bool,
    /// Why something isn't limited, and what to do about it.
    pub missing: Option<String>,
}

/// The group of one run. Dropping it kills everything in it and removes it.
#[derive(Debug)]
pub struct ControlGroup {
    folder: PathBuf,
    resources: RunResources,
    /// Locked as long as its adapter lives.
    _lock: OwnedFd,
}

/// What a run wanted beyond its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExceededResources {
    /// The memory it could use, if processes were killed because they wanted more.
    pub memory: Option<NonZeroU64>,
    /// The number of processes it could have, if it tried to start more.
    pub processes: Option<NonZeroU32>,
}

/// The controllers that limit a run.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// The group that an adapter moves into, because a group with limited groups below it can't hold processes.
const OWN: &str = "attache-main";

/// The beginning of the name of every run's group. The process id of the adapter follows.
const PREFIX: &str = "attache-run-";

/// How often moving is repeated while processes of ours start others.
const MOVES: usize = 10;

const SEPARATE: &str = "start it in its own group: `systemd-run --user --scope -p Delegate=yes attache up`, or \
                        `Delegate=yes` in the unit of its service";

// === impl RunResources ===

impl RunResources {
    /// Three quarters of the machine's memory, and as many processes as a large build needs.
    pub fn of_this_machine() -> Self {
        let total = machine::memory().unwrap_or(8 << 30);
        let memory = NonZeroU64::new(total / 4 * 3).unwrap_or(NonZeroU64::MAX);
        Self { memory, processes: NonZeroU32::new(4096).expect("not zero") }
    }
}

// === impl ControlGroups ===

impl ControlGroups {
    /// Reads what this machine supports.
    pub fn support() -> ControlGroupSupport {
        let missing = |why| ControlGroupSupport { missing: Some(why), ..ControlGroupSupport::default() };
        let place = match place() {
            Ok(place) => place,
            Err(why) => return missing(why),
        };
        let (controllers, group) = (available(&place), place.display());
        // Only the root of all groups, which has no type, can have both processes and limited groups.
        let is_root = !place.join("cgroup.type").exists();
        let can_be_moved = || processes(&place).iter().all(|process| is_ours(*process));
        if enabled(&place) != controllers && !is_root && !can_be_moved() {
            return missing(format!("the control group {group} also holds other programs; {SEPARATE}"));
        }
        let has = |name| controllers.contains(&name);
        let absent: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !has(name)).collect();
        let why = format!("the control group {group} has no controller {}", absent.join(", "));
        let missing = (!absent.is_empty()).then_some(why);
        ControlGroupSupport { memory: has("memory"), processes: has("pids"), missing }
    }

    /// Prepares this process's own group for those of its runs, and removes what a killed adapter left there. `None` if
    /// this process can't make any.
    pub fn prepare(resources: RunResources) -> Option<Self> {
        let folder = place().ok()?;
        remove_leftovers(&folder);
        let wanted = available(&folder);
        if enabled(&folder) != wanted && enable(&folder, &wanted).is_err() {
            let moved = move_own(&folder).and_then(|()| enable(&folder, &wanted));
            if let Err(error) = moved {
                tracing::debug!(%error, folder = %folder.display(), "the memory of runs isn't limited");
            }
        }
        let groups = Self { controllers: enabled(&folder), folder, resources };
        tracing::debug!(folder = %groups.folder.display(), controllers = ?groups.controllers, "control groups");
        Some(groups)
    }

    /// Whether both the memory and the processes of a run are limited.
    pub fn limits_everything(&self) -> bool {
        self.controllers == CONTROLLERS
    }

    /// A new group for a run, with its limits.
    pub fn create(&self, run: RunId) -> io::Result<ControlGroup> {
        let folder = self.folder.join(format!("{PREFIX}{}-{run}", std::process::id()));
        fs::create_dir(&folder)?;
        let lock = fs::File::open(&folder)?.into();
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let group = ControlGroup { folder, resources: self.resources, _lock: lock };
        for controller in &self.controllers {
            match *controller {
                "memory" => {
                    group.write("memory.max", &self.resources.memory.to_string())?;
                    // Only where there is swap: what doesn't fit into memory must not end up there.
                    let _ = group.write("memory.swap.max", "0");
                }
                _ => group.write("pids.max", &self.resources.processes.to_string())?,
            }
        }
        Ok(group)
    }
}

/// The group below which those of runs are made: this process's own, or the one it moved out of.
fn place() -> Result<PathBuf, String> {
    if !machine::HAS_CONTROL_GROUPS {
        return Err("this system has no control groups; run such agents on Linux".to_owned());
    }
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let folder = own_folder(&own, &mounts).ok_or("this system has no control groups of version 2 (cgroup2)")?;
    let folder = match folder.file_name() {
        Some(name) if name == OWN => folder.parent().map(Path::to_owned).unwrap_or(folder),
        _ => folder,
    };
    let writable = ["", "cgroup.procs", "cgroup.subtree_control"]
        .iter()
        .all(|name| access(folder.join(name), Access::WRITE_OK).is_ok());
    if !writable {
        return Err(format!("the control group {} can't be written to; {SEPARATE}", folder.display()));
    }
    Ok(folder)
}

/// Where the group of a process is, from its `cgroup` and `mountinfo` in `/proc`.
fn own_folder(own: &str, mounts: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        // `36 25 0:31 ROOT MOUNT_POINT options … - cgroup2 …`
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then_some(())?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below).components().collect())
    })
}

fn controllers(file: &Path) -> Vec<&'static str> {
    let text = fs::read_to_string(file).unwrap_or_default();
    CONTROLLERS.into_iter().filter(|name| text.split_whitespace().any(|word| word == *name)).collect()
}

fn available(folder: &Path) -> Vec<&'static str> {
    controllers(&folder.join("cgroup.controllers"))
}

/// For the groups below.
fn enabled(folder: &Path) -> Vec<&'static str> {
    controllers(&folder.join("cgroup.subtree_control"))
}

fn enable(folder: &Path, wanted: &[&str]) -> io::Result<()> {
    let words: Vec<String> = wanted.iter().map(|name| format!("+{name}")).collect();
    fs::write(folder.join("cgroup.subtree_control"), words.join(" "))
}

fn processes(folder: &Path) -> Vec<u32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Moves the processes of ours out of a group. Fails if it holds others: where they are is their owner's decision.
fn move_own(folder: &Path) -> io::Result<()> {
    let own = folder.join(OWN);
    for _ in 0..MOVES {
        let found = processes(folder);
        if found.is_empty() {
            return Ok(());
        }
        if !found.iter().all(|process| is_ours(*process)) {
            return Err(io::Error::other("the group holds other programs"));
        }
        match fs::create_dir(&own) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for process in found {
            // One that has just ended can't be moved, and needn't be.
            let _ = fs::write(own.join("cgroup.procs"), process.to_string());
        }
    }
    Err(io::Error::other("the group does not become empty"))
}

/// Whether a process is this program, or was started by it.
fn is_ours(process: u32) -> bool {
    let file = |process: u32| {
        let found = fs::metadata(format!("/proc/{process}/exe")).ok()?;
        Some((found.dev(), found.ino()))
    };
    let own = file(std::process::id());
    let mut process = process;
    while process > 1 {
        if own.is_some() && file(process) == own {
            return true;
        }
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        process = parent.unwrap_or(0);
    }
    // A container may have this program as its first process.
    process == 1 && own.is_some() && file(1) == own
}

/// Removes the groups of runs whose adapter is gone. It may be any build of this program, on any side of a container: a
/// process with its id is alive, or it holds the lock.
fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, group) = (entry.file_name(), entry.path());
        let adapter = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let Some(adapter) = adapter else { continue };
        if machine::is_alive(adapter) || is_locked(&group) {
            continue;
        }
        let _ = fs::write(group.join("cgroup.kill"), "1");
        let removed = remove(&group);
        tracing::info!(group = %group.display(), removed, "the group of an ended adapter");
    }
}

fn is_locked(folder: &Path) -> bool {
    let lock = fs::File::open(folder).map(|folder| flock(&folder, FlockOperation::NonBlockingLockExclusive));
    matches!(lock, Ok(Err(Errno::WOULDBLOCK)))
}

/// A killed process leaves its group a moment later.
fn remove(folder: &Path) -> bool {
    const ATTEMPTS: usize = 200;
    const INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);
    for _ in 0..ATTEMPTS {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(INTERVAL),
            _ => return true,
        }
    }
    false
}

// === impl ControlGroup ===

impl ControlGroup {
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Whoever writes a `0` to it is in the group, with everything it starts.
    pub(crate) fn entrance(&self) -> io::Result<OwnedFd> {
        fs::File::options().write(true).open(self.folder.join("cgroup.procs")).map(Into::into)
    }

    /// Kills everything in it, wherever it is and whatever it is called.
    pub(crate) fn kill(&self) {
        let _ = self.write("cgroup.kill", "1");
    }

    pub(crate) fn is_empty(&self) -> bool {
        // An ended process that nobody waited for isn't in it any more.
        let events = fs::read_to_string(self.folder.join("cgroup.events")).unwrap_or_default();
        count(&events, "populated").unwrap_or(0) == 0
    }

    /// What it wanted beyond its limits up to now.
    pub fn exceeded(&self) -> ExceededResources {
        let read = |file: &str, name: &str| {
            let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
            count(&text, name).is_some_and(|times| times > 0)
        };
        ExceededResources {
            memory: read("memory.events", "oom_kill").then_some(self.resources.memory),
            processes: read("pids.events", "max").then_some(self.resources.processes),
        }
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.folder.join(name), text)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        self.kill();
        if !remove(&self.folder) {
            tracing::warn!(group = %self.folder.display(), "failed to remove the group of a run");
        }
    }
}

/// A line `name number` of a file with counters.
fn count(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_wherever_the_groups_are_mounted() {
        let unified = "25 1 0:23 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let at = |own: &str, mounts: &str| own_folder(own, mounts).map(|path| path.display().to_string());
        assert_eq!(at("0::/user.slice/a.scope\n", unified).as_deref(), Some("/sys/fs/cgroup/user.slice/a.scope"));
        assert_eq!(at("0::/\n", unified).as_deref(), Some("/sys/fs/cgroup"));
        let hybrid = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(at("4:memory:/x\n0::/y\n", hybrid).as_deref(), Some("/sys/fs/cgroup/unified/y"));
        // A container that sees only its own part.
        let part = "25 1 0:23 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(at("0::/docker/abc/x\n", part).as_deref(), Some("/sys/fs/cgroup/x"));
        assert_eq!(at("0::/elsewhere\n", part), None);
        assert_eq!(at("4:memory:/x\n", hybrid), None);
    }

    #[test]
    fn counters_are_parsed() {
        assert_eq!(count("low 0\noom 1\noom_kill 3\n", "oom_kill"), Some(3));
        assert_eq!(count("max 7\n", "max"), Some(7));
        assert_eq!(count("", "max"), None);
        let own = RunResources::of_this_machine();
        assert!(own.memory.get() > 1 << 20, "{own:?}");
    }

    #[test]
    #[cfg_attr(attache_portable, ignore = "reads /proc, as everything about control groups")]
    fn a_process_is_ours_if_this_program_started_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_ours(std::process::id()) && is_ours(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_ours(0));
    }
}
