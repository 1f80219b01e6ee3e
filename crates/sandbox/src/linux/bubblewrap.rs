//! Namespaces of its own for a process: mounts, processes, messages, host name and, without network, the network.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{FileView, Walls};

use super::view;

const PLACES: [&str; 3] = ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"];
/// Where services of the machine have their sockets. A process without network must not reach them either.
const SOCKET_FOLDERS: [&str; 2] = ["/run", "/var/run"];

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
    let mut words = Words(vec![program.into()]);
    words.add(["--die-with-parent", "--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]);
    words.add(["--unshare-cgroup-try", "--cap-drop", "ALL"]);
    if !walls.network {
        words.add(["--unshare-net"]);
    }
    match walls.files {
        FileView::Declared => {
            for path in view::system() {
                words.bind("--ro-bind", &path);
            }
            words.add(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]);
        }
        FileView::All => {
            words.add(["--bind", "/", "/", "--proc", "/proc", "--dev-bind", "/dev", "/dev"]);
            if !walls.network {
                for folder in SOCKET_FOLDERS.into_iter().filter(|folder| is_folder(folder)) {
                    words.add(["--tmpfs", folder]);
                }
            }
        }
    }
    words.bind("--ro-bind", stage);
    for path in &walls.read {
        words.bind("--ro-bind", path);
    }
    for path in walls.write.iter().chain([&walls.cwd]) {
        words.bind("--bind", path);
    }
    // What is in a hidden folder is hidden with it.
    let is_nested = |path: &Path| walls.hide.iter().any(|other| path != other && path.starts_with(other));
    for path in walls.hide.iter().filter(|path| path.is_dir() && !is_nested(path)) {
        words.add(["--tmpfs"]);
        words.0.push(path.into());
    }
    words.add(["--chdir"]);
    words.0.push(walls.cwd.clone().into());
    words.add(["--"]);
    words.0
}

/// A folder of its own: a link such as `/var/run` leads to one that is hidden already.
fn is_folder(path: &str) -> bool {
    Path::new(path).symlink_metadata().is_ok_and(|found| found.is_dir())
}

struct Words(Vec<OsString>);

// === impl Words ===

impl Words {
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
        let words = arguments(Path::new("/usr/bin/bwrap"), walls, Path::new("/opt/attache"));
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_working_folder_comes_last_so_that_nothing_hides_it() {
        let mut walls = Walls::open("/tmp/work").limit(&SandboxLimit::ALL);
        walls.write.push("/tmp/scratch".into());
        let line = line(&walls);
        assert!(line.contains(" --tmpfs /tmp "), "{line}");
        let end = "--ro-bind /opt/attache /opt/attache --bind /tmp/scratch /tmp/scratch --bind /tmp/work /tmp/work \
                   --chdir /tmp/work --";
        assert!(line.ends_with(end), "{line}");
        assert!(line.contains("--unshare-net") && !line.contains(" /etc/shadow"), "{line}");
    }

    #[test]
    fn without_limits_everything_stays_visible() {
        let line = line(&Walls::open("/srv"));
        assert!(line.contains("--bind / /") && !line.contains("--unshare-net"), "{line}");
    }
}
