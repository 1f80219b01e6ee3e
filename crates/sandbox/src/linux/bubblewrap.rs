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
    for path in writable(walls) {
        words.bind("--bind", path);
    }
    // From the outside in, so that nothing uncovers what is below it.
    let mut layers = layers(walls);
    layers.sort_by_key(|(_, place)| place.components().count());
    for (layer, place) in layers {
        match layer {
            MountLayer::Open => words.bind("--bind", place),
            MountLayer::Fixed => words.bind("--ro-bind", place),
            MountLayer::Hidden => words.0.extend(["--tmpfs".into(), place.into()]),
            MountLayer::Overlay(file) => words.0.extend(["--bind".into(), file.into(), place.into()]),
        }
    }
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

/// Leaves only what is there now and isn't hidden. Looked at once: another file system may say something else every time.
pub(super) fn settle(walls: &mut Walls) -> io::Result<()> {
    // They may not have been there when the adapter started.
    let mut hidden = real_paths(&walls.hide)?;
    hidden.retain(|path| path.is_dir());
    walls.hide = hidden.into_iter().collect();
    // What is in a hidden folder is hidden with it.
    let mut inner = walls.hide.clone();
    inner.retain(|path| is_covered(path, walls, |other| other != path));
    walls.hide.retain(|path| !inner.contains(path));
    let fixed = std::mem::take(&mut walls.fixed);
    let is_visible = |path: &Path| is_inside(path, walls) && !is_hidden(path, walls);
    // One that can't be looked up may be there.
    let is_there = |path: &PathBuf| path.try_exists().map(|is_there| is_there.then(|| path.clone())).transpose();
    let fixed = fixed.iter().filter(|path| is_visible(path)).filter_map(is_there).collect::<io::Result<_>>()?;
    let overlays = walls.overlays.iter().filter(|overlay| !is_hidden(&overlay.shown_at, walls)).cloned().collect();
    (walls.fixed, walls.overlays) = (fixed, overlays);
    Ok(())
}

/// Without links. What isn't there has none, and whatever else can't be looked up might be there.
pub(super) fn real_paths(paths: &[PathBuf]) -> io::Result<BTreeSet<PathBuf>> {
    let real = |path: &PathBuf| match path.canonicalize() {
        Ok(real) => Some(Ok(real)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        Err(error) => Some(Err(io::Error::new(error.kind(), format!("{} can't be hidden: {error}", path.display())))),
    };
    paths.iter().filter_map(real).collect()
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
/// decides what is at a path, every time; only the kernel's mount table is reliable. What is hidden must be covered inside.
pub(super) fn identity(walls: &Walls, side: NamespaceSide) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    let mounts = MountTable::read()?;
    let folders = [&walls.cwd].into_iter().chain(&walls.write).chain(&walls.exact).map(PathBuf::as_path);
    let fixed = walls.fixed.iter().map(PathBuf::as_path).chain(pinned(walls));
    for path in folders.chain(fixed).collect::<BTreeSet<&Path>>() {
        let found = fstat(open_path::open(path)?)?;
        let device = match side {
            NamespaceSide::Outside => mounts.device_of(path),
            NamespaceSide::Inside => mounts.device_at(path),
        };
        let device = device.ok_or_else(|| io::Error::other("something else is mounted there"))?;
        (path, device, found.st_dev, found.st_ino).hash(&mut hasher);
    }
    if side == NamespaceSide::Inside {
        walls.hide.iter().filter(|path| !is_writable(path, walls)).try_for_each(|path| check_covered(path, &mounts))?;
    }
    Ok(hasher.finish())
}

/// The path itself leads to the empty folder that is mounted there, and not to something that is mounted above it.
fn check_covered(hidden: &Path, mounts: &MountTable) -> io::Result<()> {
    let found = fstat(open_path::open(hidden)?)?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(found), rustix::fs::minor(found));
    match mounts.empty_folder_at(hidden) {
        Some(empty) if empty == device => Ok(()),
        _ => Err(io::Error::other(format!("{} isn't hidden", hidden.display()))),
    }
}

/// What is at a place inside.
enum MountLayer<'a> {
    /// As it is outside.
    Open,
    Hidden,
    Overlay(&'a Path),
    Fixed,
}

/// What is mounted in and on the writable folders. At one place, the last of these counts.
fn layers(walls: &Walls) -> Vec<(MountLayer<'_>, &Path)> {
    let pinned = pinned(walls).into_iter().map(|folder| (MountLayer::Open, folder));
    let hidden = walls.hide.iter().map(|path| (MountLayer::Hidden, path.as_path()));
    // A folder of ours may hold the one to work in, such as a mounted one.
    let is_shown = |path: &&PathBuf| walls.hide.iter().any(|hidden| path.starts_with(hidden));
    let shown = writable(walls).filter(is_shown).map(|path| (MountLayer::Open, path.as_path()));
    let overlays =
        walls.overlays.iter().map(|FileOverlay { file, shown_at }| (MountLayer::Overlay(file), shown_at.as_path()));
    let fixed = walls.fixed.iter().map(|path| (MountLayer::Fixed, path.as_path()));
    pinned.chain(hidden).chain(shown).chain(overlays).chain(fixed).collect()
}

/// The folders on the way to what is hidden, fixed or shown in the place of something else. A mount can't be moved, so
/// whoever is inside can't move a folder away with what is in it.
fn pinned(walls: &Walls) -> BTreeSet<&Path> {
    let overlays = walls.overlays.iter().map(|overlay| &overlay.shown_at);
    let mounted = walls.hide.iter().chain(&walls.fixed).chain(overlays);
    let above = mounted.flat_map(|path| path.ancestors().skip(1));
    let is_fixed = |folder: &Path| walls.fixed.iter().any(|fixed| folder.starts_with(fixed));
    above.filter(|folder| is_inside(folder, walls) && !is_hidden(folder, walls) && !is_fixed(folder)).collect()
}

fn writable(walls: &Walls) -> impl Iterator<Item = &PathBuf> {
    walls.write.iter().chain([&walls.cwd])
}

fn is_writable(path: &Path, walls: &Walls) -> bool {
    writable(walls).any(|folder| folder == path)
}

/// Below a folder that can be written to.
fn is_inside(path: &Path, walls: &Walls) -> bool {
    writable(walls).any(|folder| path != folder && path.starts_with(folder))
}

/// A hidden folder, or in one without being in a writable folder that is shown there.
fn is_hidden(path: &Path, walls: &Walls) -> bool {
    is_covered(path, walls, |_| true)
}

/// The same, as if only these folders were hidden.
fn is_covered(path: &Path, walls: &Walls, counts: impl Fn(&PathBuf) -> bool) -> bool {
    let depth = |folder: &PathBuf| path.starts_with(folder).then(|| folder.components().count());
    let hidden = walls.hide.iter().filter(|folder| counts(folder)).filter_map(depth).max();
    hidden > writable(walls).filter_map(depth).max()
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
        settle(&mut walls).unwrap();
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
        let order = [bind(&root), bind(&root.join("a")), bind(&root.join("a/b")), cover(&first), cover(&second)];
        assert!(order.is_sorted(), "{line}");
    }

    /// What is fixed in a hidden folder is hidden, and so is another hidden folder in one that is shown in it.
    #[test]
    fn what_is_fixed_uncovers_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        for path in ["keys/tree/.git", "other/.git", "came/mine/.git", "came/theirs", "came/mine/deep", "login"] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        for file in ["keys/tree/.git/config", "other/.git/config", "came/mine/.git/config", "login/.git"] {
            std::fs::write(at(file), "").unwrap();
        }
        let mut walls = Walls::open(&root).limit(&[SandboxLimit::CwdOnly]);
        walls.hide = ["keys", "other", "came", "came/mine/deep", "absent"].map(at).into();
        walls.write = vec![at("came/mine")];
        walls.fixed = ["keys/tree/.git/config", "other/.git", "came/mine/.git/config", "login/.git"].map(at).into();
        let overlay = |place: &str| FileOverlay { file: "/srv/copy".into(), shown_at: at(place) };
        walls.overlays = ["login/token", "other/token"].map(overlay).into();
        let line = line(&walls);
        let last = |path: &str| {
            let place = format!(" {} ", at(path).display());
            line.rfind(&place).map(|found| line[..found].rsplit("--").next().unwrap().split(' ').next().unwrap())
        };
        for hidden in ["keys", "other", "came", "came/mine/deep"] {
            assert_eq!(last(hidden), Some("tmpfs"), "{hidden} {line}");
        }
        for absent in ["keys/tree", "keys/tree/.git", "keys/tree/.git/config", "other/.git", "other/token", "absent"] {
            assert_eq!(last(absent), None, "{absent} {line}");
        }
        assert_eq!(last("came/mine/.git/config"), Some("ro-bind"), "{line}");
        assert_eq!(last("came/mine/.git"), Some("bind"), "{line}");
        // A folder comes before what is mounted in it.
        let first_in = |folder: &str, inside: &str| {
            let at = |path: &str| line.rfind(&format!(" {} ", at(path).display())).unwrap();
            assert!(at(folder) < at(inside), "{folder} {inside} {line}");
        };
        first_in("login", "login/token");
        first_in("came", "came/mine");
        first_in("came/mine", "came/mine/deep");
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
