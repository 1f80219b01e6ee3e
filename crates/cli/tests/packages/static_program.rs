//! The static program, as `dist/build` compiles it: everything that a static C library could break. It takes longer to build
//! than all tests together, so it is given (`ATTACHE_STATIC`); `./test --long` builds one.

use std::{fs, path::PathBuf, process::Command};

use super::{archive_name, contents, image, pack, succeeds};
use crate::harness::{TestHome, TestProcess, has, process, until};

/// The static program, if there is one.
pub fn given() -> Option<PathBuf> {
    let program = std::env::var_os("ATTACHE_STATIC").map(PathBuf::from);
    if program.is_none() {
        eprintln!("skipped: there is no static program here ($ATTACHE_STATIC; `./test --long` builds one)");
    }
    program
}

#[test]
fn the_static_program_completes_a_run_and_builds_walls() {
    let Some(program) = given() else { return };
    let headers = succeeds(Command::new("readelf").arg("--program-headers").arg(&program));
    assert!(!headers.contains("INTERP"), "{headers}");
    let home = TestHome::with_program(&program);
    let _up = home.up(&["--cwd", home.path().to_str().unwrap()]);
    assert_eq!(
        home.attache(&["ask", "local", "echo from a static program"]).succeeds().stdout,
        "from a static program\n"
    );
    // The same walls as with the other C library.
    let walls = |home: &TestHome| {
        let mut report = home.attache(&["doctor", "sandbox", "--json"]).succeeds().json();
        report.as_object_mut().unwrap().remove("hosts");
        report
    };
    assert_eq!(walls(&home), walls(&TestHome::new()));
}

/// The hub as a container engine starts it, and a device beside it that finds it by name, over TLS.
#[test]
fn the_hub_of_the_image_completes_a_run() {
    let Some(program) = given() else { return };
    if !has("buildah", "buildah") || !has("bwrap", "bubblewrap") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let packages = folder.path().join("packages");
    pack(&program, &packages, &["--level", "1"]);
    let name = archive_name().replace(".tar.gz", ".oci.tar.gz");
    if !contents(&packages).contains_key(&name) {
        eprintln!("skipped: buildah can't build here");
        return;
    }
    let (config, root) = image::unpack(&packages.join(name), folder.path());
    let words = |key: &str| {
        let list = config[key].as_array().unwrap().iter();
        list.map(|word| word.as_str().unwrap().replace("0.0.0.0:7800", "127.0.0.1:0")).collect::<Vec<_>>()
    };
    let mut bwrap = Command::new("bwrap");
    bwrap.args(["--unshare-user", "--uid", "65532", "--gid", "65532", "--unshare-pid", "--unshare-ipc"]);
    bwrap
        .args(["--die-with-parent", "--clearenv", "--bind"])
        .arg(&root)
        .args(["/", "--proc", "/proc", "--dev", "/dev"]);
    for (name, value) in words("Env").iter().filter_map(|variable| variable.split_once('=')) {
        bwrap.args(["--setenv", name, value]);
    }
    bwrap.arg("--").args(words("Entrypoint")).args(words("Cmd"));
    bwrap.args(["--ready-file", "/data/ready", "--disk-reserve", "0"]);
    let hub = TestProcess::spawn("hub", &mut bwrap, &folder.path().join("logs"));
    let ready: serde_json::Value = until("the hub of the image", || {
        assert!(hub.is_running(), "{}", hub.stderr());
        serde_json::from_slice(&fs::read(root.join("data/ready")).ok()?).ok()
    });
    let (url, pin) = (ready["url"].as_str().unwrap().replace("127.0.0.1", "localhost"), ready["pin"].as_str().unwrap());
    assert!(url.starts_with("https://localhost:"), "{url}");

    let device = TestHome::with_program(&program);
    let key = fs::read_to_string(root.join("data/hub/admin.key")).unwrap();
    let key = device.keep_secret("owner.key", key.trim());
    let attache = |args: &[&str]| {
        let options = ["--hub", &url, "--pin", pin, "--key-file", &key];
        device.attache(&[args, &options].concat()).succeeds()
    };
    attache(&["agents", "add", "builder"]);
    let code = attache(&["agents", "code", "builder", "--json"]).json();
    let code = code["pairing_code"].as_str().unwrap();
    device.attache(&["runtime", "pair", code, "--api-base", &url, "--pin", pin]).succeeds();
    let _runtime = device.runtime(&[]);
    assert_eq!(attache(&["ask", "builder", "echo from the image"]).stdout, "from the image\n");
    // bubblewrap doesn't pass signals on. The hub is the youngest below it.
    let child = |parent: &u32| {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    };
    let inside = std::iter::successors(Some(hub.id()), child).last().unwrap();
    process::signal(inside, "TERM");
    assert!(hub.wait().success(), "{}", hub.stderr());
}
