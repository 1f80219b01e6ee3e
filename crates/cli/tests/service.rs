//! `attache service`: the units and property lists, and what installing them does to a home folder.
//!
//! Nothing here starts a service: the suite in `packages` does, where it can boot a systemd of its own.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::harness::{FinishedProcess, TestHome, has};

const UNIT: &str = ".config/systemd/user/attache-hub.service";

/// Every service there is: role, scope and further options.
const SERVICES: [&[&str]; 5] = [
    &["--hub", "--user"],
    &["--hub", "--system"],
    &["--runtime", "--user"],
    &["--runtime", "--system", "--run-as", "daemon"],
    &["--hub", "--system", "--run-as", "daemon"],
];

fn planned(home: &TestHome, args: &[&str]) -> Value {
    let ran = home.attache(&[&["--json", "service", "install", "--dry-run"], args].concat()).succeeds();
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Writes the unit that would be installed into a folder, under its own name.
fn unit_in(folder: &Path, home: &TestHome, args: &[&str]) -> PathBuf {
    let planned = planned(home, args);
    let file = folder.join(Path::new(planned["file"].as_str().unwrap()).file_name().unwrap());
    fs::write(&file, planned["text"].as_str().unwrap()).unwrap();
    file
}

fn error(ran: &FinishedProcess) -> Value {
    serde_json::from_str::<Value>(&ran.stderr).unwrap()["error"].clone()
}

#[test]
fn systemd_accepts_every_unit() {
    if !has("systemd-analyze", "systemd") {
        return;
    }
    let home = TestHome::new();
    for args in SERVICES {
        // As for a unit that a person has changed: spaces, quotes, specifiers and variables.
        let mut args = args.to_vec();
        if args.contains(&"--hub") {
            args.extend(["--", "--permissions", "/srv/100%/my \"rules\"/$HOME.yaml"]);
        }
        let folder = tempfile::tempdir().unwrap();
        let file = unit_in(folder.path(), &home, &args);
        let mut verify = home.program("systemd-analyze");
        verify.env("XDG_RUNTIME_DIR", folder.path());
        if args.contains(&"--user") {
            verify.arg("--user");
        }
        let output = verify.arg("--man=no").arg("verify").arg(&file).output().unwrap();
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        // The warnings of other units aren't ours.
        let ours: Vec<_> = messages.lines().filter(|line| line.contains("attache-")).collect();
        assert!(output.status.success() && ours.is_empty(), "{args:?}: {messages}");
    }
}

#[test]
fn a_hub_of_the_system_is_hardened() {
    if !has("systemd-analyze", "systemd") {
        return;
    }
    let home = TestHome::new();
    let folder = tempfile::tempdir().unwrap();
    let exposure = |args: &[&str], limit: &str| {
        let file = unit_in(folder.path(), &home, args);
        let mut command = home.program("systemd-analyze");
        command.args(["security", "--offline=true", "--no-pager", &format!("--threshold={limit}")]).arg(file);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // In tenths: 3.0 with a user of its own, and a little more for a named one.
    for (args, limit) in [(SERVICES[1], "30"), (SERVICES[4], "30"), (SERVICES[0], "65")] {
        let (good, table) = exposure(args, limit);
        assert!(good, "{args:?} is exposed more than {limit}:\n{table}");
    }
    // The test can fail: a runtime is exposed more, because its agents need that.
    assert!(!exposure(SERVICES[2], "65").0);
}

#[test]
fn property_lists_are_what_launchd_reads() {
    if !has("python3", "python3") {
        return;
    }
    let home = TestHome::new();
    let read = "import json, plistlib, sys; print(json.dumps(plistlib.load(sys.stdin.buffer)))";
    let args = ["--manager", "launchd", "--user", "--", "--public-url", "https://a.example/?a<b&c"];
    let text = planned(&home, &args);
    let file = text["file"].as_str().unwrap();
    assert!(file.ends_with("/Library/LaunchAgents/io.attache.hub.plist"), "{file}");
    let list = home.path().join("list.plist");
    fs::write(&list, text["text"].as_str().unwrap()).unwrap();
    let mut python = home.program("python3");
    let output = python.args(["-c", read]).stdin(fs::File::open(&list).unwrap()).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let log = home.path().join("Library/Logs/attache-hub.log");
    let program = fs::canonicalize(env!("CARGO_BIN_EXE_attache")).unwrap();
    let expected = json!({
        "Label": "io.attache.hub",
        "ProgramArguments": [program, "hub", "--public-url", "https://a.example/?a<b&c"],
        "RunAtLoad": true,
        "KeepAlive": {"SuccessfulExit": false},
        "ThrottleInterval": 5,
        "ExitTimeOut": 60,
        "SoftResourceLimits": {"Core": 0},
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "Umask": 63,
        "ProcessType": "Interactive",
    });
    assert_eq!(found, expected);
}

#[test]
fn a_service_is_written_once_updated_and_removed() {
    let home = TestHome::new();
    let file = home.path().join(UNIT);
    let install = |args: &[&str]| {
        let all = [&["--json", "service", "install", "--user", "--no-start"], args].concat();
        serde_json::from_str::<Value>(&home.attache(&all).succeeds().stdout).unwrap()
    };
    let expected = |changed: bool| {
        json!({
            "service": "attache-hub",
            "role": "hub",
            "scope": "user",
            "manager": "systemd",
            "file": file,
            "changed": changed,
            "started": false,
            "next": ["Start it: attache service install --hub --user"],
        })
    };
    let dry = home.attache(&["service", "install", "--user", "--dry-run"]).succeeds().stdout;
    assert!(!file.exists(), "a dry run wrote the unit");
    assert_eq!(install(&[]), expected(true));
    assert_eq!(fs::read_to_string(&file).unwrap(), dry);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(install(&[]), expected(false));
    assert_eq!(install(&["--", "--listen", "127.0.0.1:7801"]), expected(true));
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(" hub --listen 127.0.0.1:7801\n"), "{text}");
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "a temporary file remains");

    let list = home.attache(&["--json", "service", "status", "--user"]).succeeds().stdout;
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((&list["services"][0]["file"], &list["services"][1]), (&json!(file), &Value::Null));
    home.attache(&["service", "status", "--user", "--runtime"]).exits(3);
    home.attache(&["service", "logs", "--user", "--runtime"]).exits(3);

    for changed in [true, false] {
        let ran = home.attache(&["--json", "service", "uninstall", "--user"]).succeeds();
        let expected = json!({"service": "attache-hub", "scope": "user", "file": file, "changed": changed});
        assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap(), expected);
        assert!(!file.exists());
    }
}

#[test]
fn the_unit_of_someone_else_is_left_alone() {
    let home = TestHome::new();
    let file = home.path().join(UNIT);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let foreign = "[Service]\nExecStart=/usr/bin/something\n";
    fs::write(&file, foreign).unwrap();
    for args in [&["install", "--user", "--no-start"][..], &["uninstall", "--user"]] {
        let ran = home.attache(&[&["--json", "service"], args].concat()).exits(1);
        let message = error(&ran)["message"].as_str().unwrap().to_owned();
        assert_eq!(message, format!("{} wasn't written by `attache service install`", file.display()));
        assert_eq!(fs::read_to_string(&file).unwrap(), foreign);
    }
    home.attache(&["service", "install", "--user", "--no-start", "--force"]).succeeds();
    assert_ne!(fs::read_to_string(&file).unwrap(), foreign);
}

#[test]
fn a_service_that_cannot_work_is_not_installed() {
    let home = TestHome::new();
    let file = home.path().join(UNIT);
    // There is no systemd of this user where the test runs: its environment has no address of one.
    let ran = home.attache(&["--json", "service", "install", "--user"]).exits(1);
    let failure = error(&ran);
    assert_eq!(failure["message"], "systemd isn't running for this user");
    assert!(failure["hint"].as_str().unwrap().contains("`attache hub`"), "{failure}");
    // Wrong arguments of the hub are found now.
    let args = ["service", "install", "--user", "--no-start", "--", "--lissten", "127.0.0.1:1"];
    let ran = home.attache(&args).exits(2);
    assert!(ran.stderr.contains("--lissten"), "{}", ran.stderr);
    // A device that isn't paired.
    let ran = home.attache(&["service", "install", "--user", "--runtime", "--no-start"]).exits(3);
    assert!(ran.stderr.contains("attache runtime pair CODE"), "{}", ran.stderr);
    // Another operating system's manager.
    let ran = home.attache(&["service", "install", "--user", "--manager", "launchd"]).exits(1);
    assert!(ran.stderr.contains("launchd exists only on macOS"), "{}", ran.stderr);
    // A person who doesn't exist, and no person at all.
    let plan = ["service", "install", "--system", "--runtime", "--dry-run"];
    let ran = home.attache(&[&plan[..], &["--run-as", "no-such-user"]].concat()).exits(3);
    assert!(ran.stderr.contains("there is no user `no-such-user`"), "{}", ran.stderr);
    let ran = home.attache(&plan).exits(2);
    assert!(ran.stderr.contains("--run-as USER"), "{}", ran.stderr);
    assert!(!file.exists());
}

#[test]
fn a_service_of_the_system_needs_root() {
    let home = TestHome::new();
    // A user namespace without a mapping: whoever runs the test is nobody there.
    let mut command = home.program("unshare");
    command.args(["--user", env!("CARGO_BIN_EXE_attache"), "--json", "service", "install", "--hub", "--system"]);
    let ran = FinishedProcess::of(&mut command, &home.logs());
    if ran.stderr.contains("unshare") {
        println!("skipped: this machine has no user namespaces: {}", ran.stderr);
        return;
    }
    let failure = error(&ran.exits(4));
    assert_eq!(failure["message"], "only root can install a system service");
    assert!(failure["hint"].as_str().unwrap().starts_with("Run `sudo attache service install --hub --system`"));
}

/// systemd learns from the hub that it is ready, as with `Type=notify`.
#[test]
fn a_hub_reports_readiness_to_its_service_manager() {
    let mut home = TestHome::new();
    let path = home.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(crate::harness::LIMIT)).unwrap();
    home.set("NOTIFY_SOCKET", path.to_str().unwrap());
    let hub = home.hub(&[]);
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"READY=1");
    hub.process.terminate();
}
