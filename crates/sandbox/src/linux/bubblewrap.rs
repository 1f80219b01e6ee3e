//! Namespaces of its own for a process: mounts, processes, messages, host name and, without network, the network.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::fs::fstat;

use crate::{FileOverlay, FileView, NetworkAccess, Walls};

use super::{mount_table::MountTable, open_path, view};

const PLACES: [&str; 3] = ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"];
/// Where services of the machine have their sockets. A process without network must not reach them either.
const SOCKET_FOLDERS: [&str; 2] = ["/run", "/var/run"];
/// A process that could write here would leave its control group, and with it the limits of its run.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// What root needs to work with the files of others.
const KEPT_BY_ROOT: [&str; 3] = ["CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN"];

/// The program, if it is installed and the system lets it create namespaces.
pub(crate) fn find() -> Option<PathBuf> {
    let program = PLACES.into_iter().map(PathBuf::from).find(|place| place.exists())?;
    let mut trial = Command::new(&program);
    trial.args(["--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--", "/bin/true"]);
    let quiet = trial.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success()).then_some(program)
}

/// Everything up to the command to start. `stage` is visible inside.
pub(super) fn arguments(program: &Path, walls: &Walls, stage: &Path) -> Vec<OsString> {
    let mut words = BubblewrapArgs(vec![program.into()]);
    words.add(["--die-with-parent", "--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]);
    words.add(["--unshare-cgroup-try", "--cap-drop", "ALL"]);
    if walls.network != NetworkAccess::All {
        words.add(["--unshare-net"]);
    }
    let system = view::system();
    match walls.files {
        FileView::Declared => {
            for path in &system {
                words.bind("--ro-bind", path);
            }
            words.add(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]);
        }
        FileView::All => {
            words.add(["--bind", "/", "/", "--proc", "/proc", "--dev-bind", "/dev", "/dev"]);
            words.add(["--ro-bind-try", CONTROL_GROUPS, CONTROL_GROUPS]);
            if walls.network != NetworkAccess::All {
                for folder in SOCKET_FOLDERS.into_iter().filter(|folder| is_folder(folder)) {
                    words.add(["--tmpfs", folder]);
                }
            }
        }
    }
    for path in &walls.private {
        words.add(["--tmpfs"]);
        words.0.push(path.into());
    }
    words.bind("--ro-bind", stage);
    // What is there already would be shown twice.
    let is_new = |path: &&PathBuf| !system.iter().any(|shown| path.starts_with(shown));
    for path in walls.read.iter().filter(is_new) {
        words.bind("--ro-bind", path);
    }
    let writable = || walls.write.iter().chain([&walls.cwd]);
    for path in writable() {
        words.bind("--bind", path);
    }
    for FileOverlay { file, shown_at } in &walls.overlays {
        words.0.extend(["--bind".into(), file.into(), shown_at.into()]);
    }
    // Looked at now: they may not have been there when the adapter started.
    let hidden: Vec<PathBuf> = walls.hide.iter().filter_map(|path| path.canonicalize().ok()).collect();
    // What is in a hidden folder is hidden with it.
    let is_nested = |path: &Path| hidden.iter().any(|other| path != other && path.starts_with(other));
    let covered: Vec<&PathBuf> = hidden.iter().filter(|path| path.is_dir() && !is_nested(path)).collect();
    // A mount can't be moved, so whoever is inside can't move a folder away with what is hidden in it. Each once and all
    // before anything is covered: a second one would uncover what is below.
    let above = above(covered.iter().copied(), walls);
    above.iter().for_each(|folder| words.bind("--bind", folder));
    for path in covered {
        words.add(["--tmpfs"]);
        words.0.push(path.into());
    }
    // A folder of ours may hold the one to work in, such as a mounted one.
    let shown: Vec<&PathBuf> = writable().filter(|path| hidden.iter().any(|other| path.starts_with(other))).collect();
    shown.iter().for_each(|path| words.bind("--bind", path));
    // Those in it are covered with it.
    for FileOverlay { file, shown_at } in &walls.overlays {
        if shown.iter().any(|path| shown_at.starts_with(path)) {
            words.0.extend(["--bind".into(), file.into(), shown_at.into()]);
        }
    }
    for folder in self::above(walls.fixed.iter(), walls).difference(&above) {
        words.bind("--bind", folder);
    }
    walls.fixed.iter().for_each(|path| words.bind("--ro-bind", path));
    words.add(["--chdir"]);
    words.0.push(walls.cwd.clone().into());
    words.add(["--"]);
    words.0
}

/// Everything up to the program: it sees the system's programs and these files and folders, can only write to the latter ones,
/// and reaches nothing and nobody else. Like all others, it loses its rights over other users' files, unless it is root's.
pub(crate) fn file_view(program: &Path, read: &[&Path], write: &[&Path]) -> Vec<OsString> {
    let mut words = BubblewrapArgs(vec![program.into()]);
    words.add(["--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]);
    words.add(["--unshare-net", "--unshare-cgroup-try", "--cap-drop", "ALL"]);
    match rustix::process::geteuid().is_root() {
        // In a user namespace, it would own nothing of the others.
        true => KEPT_BY_ROOT.iter().for_each(|capability| words.add(["--cap-add", capability])),
        false => words.add(["--unshare-user-try"]),
    }
    for path in &view::system() {
        words.bind("--ro-bind", path);
    }
    words.add(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]);
    read.iter().for_each(|path| words.bind("--ro-bind-try", path));
    write.iter().for_each(|path| words.bind("--bind", path));
    words.add(["--"]);
    words.0
}

/// Leaves only what is there now. Looked at once: another file system may say something else every time.
pub(super) fn keep_existing(walls: &mut Walls) {
    let fixed = std::mem::take(&mut walls.fixed);
    walls.fixed = fixed.into_iter().filter(|path| path.exists() && is_inside(path, walls)).collect();
}

/// Whether the namespaces have been created yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamespaceSide {
    Outside,
    Inside,
}

/// Which files and folders those are that others may replace: the working folder, what else can be written to, the exact
/// ones, and the fixed ones with those above them. bubblewrap looks for them by their paths. Another process could have put a link
/// there meanwhile, and the inside would be larger than the walls. Whoever serves the file system of a borrowed folder
/// decides what is at a path, every time; only the kernel's mount table is reliable.
pub(super) fn identity(walls: &Walls, side: NamespaceSide) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    let mounts = MountTable::read()?;
    let folders = [&walls.cwd].into_iter().chain(&walls.write).chain(&walls.exact).map(PathBuf::as_path);
    let fixed = walls.fixed.iter().map(PathBuf::as_path).chain(above(walls.fixed.iter(), walls));
    for path in folders.chain(fixed).collect::<BTreeSet<&Path>>() {
        let found = fstat(open_path::open(path)?)?;
        let device = match side {
            NamespaceSide::Outside => mounts.device_of(path),
            NamespaceSide::Inside => mounts.device_at(path),
        };
        let device = device.ok_or_else(|| io::Error::other("something else is mounted there"))?;
        (path, device, found.st_dev, found.st_ino).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// The folders on the way to these that could be moved otherwise, from the outside in.
fn above<'a>(paths: impl Iterator<Item = &'a PathBuf>, walls: &Walls) -> BTreeSet<&'a Path> {
    paths.flat_map(|path| path.ancestors().skip(1)).filter(|folder| is_inside(folder, walls)).collect()
}

/// Below a folder that can be written to.
fn is_inside(path: &Path, walls: &Walls) -> bool {
    walls.write.iter().chain([&walls.cwd]).any(|folder| path != folder && path.starts_with(folder))
}

/// A folder of its own: a link such as `/var/run` leads to one that is hidden already.
fn is_folder(path: &str) -> bool {
    Path::new(path).symlink_metadata().is_ok_and(|found| found.is_dir())
}

struct BubblewrapArgs(Vec<OsString>);

// === impl BubblewrapArgs ===

impl BubblewrapArgs {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.into_iter().map(OsString::from));
    }

    /// At the same path inside as outside.
    fn bind(&mut self, how: &str, path: &Path) {
        // A link of the system, such as `/bin`, is one inside too.
        if let Ok(target) = path.read_link()
            && how == "--ro-bind"
            && path.parent() == Some(Path::new("/"))
        {
            self.add(["--symlink"]);
            self.0.extend([target.into_os_string(), path.into()]);
            return;
        }
        self.0.extend([OsStr::new(how).to_owned(), path.into(), path.into()]);
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::wire::run::SandboxLimit;

    use super::*;

    fn line(walls: &Walls) -> String {
        let mut walls = walls.clone();
        keep_existing(&mut walls);
        let words = arguments(Path::new("/usr/bin/bwrap"), &walls, Path::new("/opt/attache"));
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_working_folder_comes_last_so_that_nothing_hides_it() {
        let mut walls = Walls::open("/tmp/work").limit(&SandboxLimit::ALL);
        walls.write.push("/tmp/scratch".into());
        walls.overlays.push(FileOverlay { file: "/srv/copy".into(), shown_at: "/home/ann/login".into() });
        let line = line(&walls);
        assert!(line.contains(" --tmpfs /tmp "), "{line}");
        let end = "--ro-bind /opt/attache /opt/attache --bind /tmp/scratch /tmp/scratch --bind /tmp/work /tmp/work \
                   --bind /srv/copy /home/ann/login --chdir /tmp/work --";
        assert!(line.ends_with(end), "{line}");
        assert!(line.contains("--unshare-net") && !line.contains(" /etc/shadow"), "{line}");
    }

    #[test]
    fn a_stand_in_is_not_covered_by_the_folder_that_it_is_in() {
        let hidden = tempfile::tempdir().unwrap();
        let root = hidden.path().canonicalize().unwrap();
        let cwd = root.join("work");
        std::fs::create_dir(&cwd).unwrap();
        let mut walls = Walls::open(&cwd).limit(&[SandboxLimit::CwdOnly]);
        walls.hide = vec![root.clone()];
        walls.overlays.push(FileOverlay { file: "/srv/copy".into(), shown_at: cwd.join(".git") });
        let line = line(&walls);
        let end =
            format!("--tmpfs {0} --bind {0}/work {0}/work --bind /srv/copy {0}/work/.git --chdir", root.display());
        assert!(line.contains(&end), "{line}");
    }

    #[test]
    fn nothing_uncovers_what_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (first, second) = (root.join("a/b/one"), root.join("a/b/two"));
        for hidden in [&first, &second] {
            std::fs::create_dir_all(hidden).unwrap();
        }
        let mut walls = Walls::open(&root).limit(&[SandboxLimit::CwdOnly]);
        walls.hide = vec![second.clone(), first.clone()];
        let line = line(&walls);
        let at = |text: String| {
            assert_eq!(line.matches(&text).count(), 1, "{text} {line}");
            line.find(&text).unwrap()
        };
        let bind = |path: &Path| at(format!("--bind {0} {0} ", path.display()));
        let cover = |path: &Path| at(format!("--tmpfs {} ", path.display()));
        let order = [bind(&root), bind(&root.join("a")), bind(&root.join("a/b")), cover(&second), cover(&first)];
        assert!(order.is_sorted(), "{line}");
    }

    #[test]
    fn what_is_fixed_cannot_be_moved_with_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join(".git")).unwrap();
        std::fs::write(root.join(".git/config"), "").unwrap();
        let mut walls = Walls::open(&root).limit(&[SandboxLimit::CwdOnly]);
        walls.fixed = vec![root.join(".git/config"), root.join(".git/absent"), "/etc/hosts".into()];
        let line = line(&walls);
        let end = format!(
            "--bind {0} {0} --bind {0}/.git {0}/.git --ro-bind {0}/.git/config {0}/.git/config --chdir",
            root.display()
        );
        assert!(line.contains(&end), "{line}");
    }

    #[test]
    fn without_limits_everything_stays_visible() {
        let line = line(&Walls::open("/srv"));
        assert!(line.contains("--bind / /") && !line.contains("--unshare-net"), "{line}");
    }
}
