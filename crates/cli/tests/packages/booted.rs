//! Services under a real systemd: a bare Debian that is booted in a container, switched off and booted again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    bare::{prepared, stripped, unpack},
    key, succeeds,
};
use crate::harness::{FinishedProcess, TestProcess, has, is_long, process, until};

/// A machine in a container, with the program in /usr/local/bin.
pub struct TestMachine {
    folder: TempDir,
}

/// The machine while it is on.
pub struct RunningMachine<'a> {
    machine: &'a TestMachine,
    container: TestProcess,
    init: u32,
}

// === impl TestMachine ===

impl TestMachine {
    /// None where none can be booted; says why.
    pub fn new() -> Option<Self> {
        if !is_long() {
            eprintln!("skipped: a machine is booted only in the long suite (./test --long)");
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can boot a container");
            return None;
        }
        if !has("systemd-nspawn", "systemd-container") {
            return None;
        }
        let prepared = prepared()?;
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        unpack(&prepared, &machine.root());
        let program = stripped(machine.folder.path());
        fs::rename(program, machine.program()).unwrap();
        succeeds(Command::new("chroot").arg(machine.root()).args([
            "useradd",
            "--create-home",
            "--shell=/bin/sh",
            "ann",
        ]));
        Some(machine)
    }

    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub fn program(&self) -> PathBuf {
        self.root().join("usr/local/bin/attache")
    }

    pub fn boot(&self) -> RunningMachine<'_> {
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn.args(["--quiet", "--register=no", "--keep-unit", "--private-network", "--boot", "--directory"]);
        nspawn.arg(self.root());
        let container = TestProcess::spawn("machine", &mut nspawn, &self.folder.path().join("logs"));
        let mut running = RunningMachine { machine: self, container, init: 0 };
        until("the machine to be up", || {
            let container = &running.container;
            assert!(container.is_running(), "it doesn't start:\n{}{}", container.stdout(), container.stderr());
            // The first child only prepares the container.
            running.init = process::children(container.id()).last().copied()?;
            let state = running.try_run(&["systemctl", "is-system-running"]);
            ["running\n", "degraded\n"].contains(&state.stdout.as_str()).then_some(())
        });
        running
    }
}

// === impl RunningMachine ===

impl RunningMachine<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--all", &format!("--target={}", self.init), "env", "-i", "-C", "/", "HOME=/root"]);
        command.arg("PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command
    }

    fn try_run(&self, args: &[&str]) -> FinishedProcess {
        FinishedProcess::of(self.command().args(args), &self.machine.folder.path().join("logs"))
    }

    /// Runs a command as root.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> String {
        self.try_run(args).succeeds().stdout
    }

    /// Runs a shell command as a person who is signed in.
    #[track_caller]
    pub fn as_ann(&self, script: &str) -> String {
        self.try_as_ann(script).succeeds().stdout
    }

    fn try_as_ann(&self, script: &str) -> FinishedProcess {
        let id = self.run(&["id", "-u", "ann"]);
        let script = format!("export XDG_RUNTIME_DIR=/run/user/{}; {script}", id.trim());
        self.try_run(&["su", "--login", "ann", "-c", &script])
    }

    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(args)).unwrap()
    }

    /// The state and the process of the hub's service.
    #[track_caller]
    pub fn hub(&self) -> (String, Option<u64>) {
        let list = self.json(&["attache", "--json", "service", "status", "--hub", "--system"]);
        let service = &list["services"][0];
        (service["active"].as_str().unwrap().to_owned(), service["pid"].as_u64())
    }

    /// Switches it off, as `poweroff` does.
    pub fn switch_off(self) {
        let _ = self.try_run(&["systemctl", "poweroff"]);
        self.container.wait();
    }
}

impl Drop for RunningMachine<'_> {
    fn drop(&mut self) {
        // A killed container would leave its processes to nobody.
        process::signal(self.init, "KILL");
    }
}

const OWNER: &str = "/var/lib/attache/hub/admin.key";

/// The agents of the hub of the system.
fn agents(machine: &RunningMachine<'_>) -> String {
    machine.run(&["attache", "agents", "--hub", "http://127.0.0.1:7800", "--key-file", OWNER])
}

#[test]
fn services_survive_a_crash_and_a_reboot() {
    let Some(machine) = TestMachine::new() else { return };
    let on = machine.boot();
    // A hub of the system.
    let installed = on.json(&["attache", "--json", "service", "install"]);
    assert_eq!((&installed["scope"], &installed["started"]), (&"system".into(), &true.into()), "{installed}");
    let login = installed["next"][0].as_str().unwrap();
    assert_eq!(login, format!("Sign in: sudo attache login --hub http://127.0.0.1:7800 --key-file {OWNER}"));
    let link = on.run(&["attache", "login", "--hub", "http://127.0.0.1:7800", "--key-file", OWNER]);
    assert!(link.starts_with("http://127.0.0.1:7800/"), "{link}");
    on.run(&["attache", "agents", "add", "survivor", "--hub", "http://127.0.0.1:7800", "--key-file", OWNER]);
    let (state, pid) = on.hub();
    assert_eq!(state, "active");
    // Its processes are what the unit says: a user of their own, without capabilities.
    let status = on.run(&["cat", &format!("/proc/{}/status", pid.unwrap())]);
    assert!(status.contains("NoNewPrivs:\t1\n") && status.contains("CapEff:\t0000000000000000\n"), "{status}");
    assert!(!status.contains("Uid:\t0\t"), "{status}");

    // A crash.
    on.run(&["systemctl", "kill", "--signal=KILL", "attache-hub"]);
    until("the hub to be back", || {
        let (state, now) = on.hub();
        (state == "active" && now.is_some() && now != pid).then_some(())
    });
    assert!(agents(&on).contains("survivor"));

    // A hub and a runtime of a person.
    on.run(&["loginctl", "enable-linger", "ann"]);
    until("the service manager of ann", || {
        let asked = on.try_as_ann("systemctl --user is-system-running");
        matches!(asked.stdout.trim(), "running" | "degraded").then_some(())
    });
    on.as_ann("attache service install -- --listen 127.0.0.1:7801");
    on.as_ann("attache runtime pair --agent builder");
    on.as_ann("attache service install --runtime");
    assert_eq!(on.as_ann("attache ask builder 'echo first' 2>/dev/null"), "first\n");

    on.switch_off();
    let on = machine.boot();
    until("the hub after the reboot", || (on.hub().0 == "active").then_some(()));
    assert!(agents(&on).contains("survivor"));
    until("the services of ann after the reboot", || {
        let list = on.try_as_ann("attache --json service status --user");
        (list.status == Some(0) && list.stdout.matches("\"active\":\"active\"").count() == 2).then_some(())
    });
    assert_eq!(on.as_ann("attache ask builder 'echo second' 2>/dev/null"), "second\n");
    assert!(on.run(&["attache", "service", "logs", "--hub", "--system"]).contains("attache"));

    // Installed again with other options; then removed.
    on.run(&["attache", "service", "install", "--", "--listen", "127.0.0.1:7802"]);
    on.run(&["attache", "agents", "--hub", "http://127.0.0.1:7802", "--key-file", OWNER]);
    on.run(&["attache", "service", "uninstall"]);
    on.run(&["attache", "service", "uninstall"]);
    assert!(!machine.root().join("etc/systemd/system/attache-hub.service").exists());
    let left = on.try_run(&["systemctl", "is-active", "attache-hub"]);
    assert_eq!(left.stdout, "inactive\n");
    assert!(Path::new(&machine.root().join("var/lib/private/attache/hub/hub.db")).exists(), "the data is kept");
    on.switch_off();
}

/// A script that claims to be a newer program. Its hubs work, except with the data of the service.
const BROKEN: &str = r#"#!/bin/sh
[ "$1" = --version ] && echo "attache 9.9.9" && exit
[ "$A2A_HOME" != /var/lib/attache ] || exit 2
exec /usr/local/bin/attache.old "$@"
"#;

#[test]
fn an_update_restarts_services_and_goes_back_if_they_fail() {
    if !has("minisign", "minisign") {
        return;
    }
    let Some(machine) = TestMachine::new() else { return };
    let (secret, public) = key(machine.folder.path(), "release");
    let share = machine.root().join("root");
    fs::copy(public, share.join("release.pub")).unwrap();
    let sign = |file: &Path| {
        succeeds(Command::new("minisign").args(["-S", "-q", "-s"]).arg(&secret).arg("-m").arg(file));
    };
    let old = fs::read(machine.program()).unwrap();
    let good = share.join("good");
    fs::write(&good, [&old[..], b"new"].concat()).unwrap();
    sign(&good);
    fs::create_dir(machine.folder.path().join("stage")).unwrap();
    let script = machine.folder.path().join("stage/attache");
    fs::write(&script, BROKEN).unwrap();
    let broken = share.join("broken.tar.gz");
    let stage = machine.folder.path().join("stage");
    succeeds(Command::new("tar").arg("-C").arg(stage).arg("-czf").arg(&broken).arg("attache"));
    sign(&broken);

    let on = machine.boot();
    on.run(&["attache", "service", "install"]);
    let (_, first) = on.hub();
    let update =
        |file: &str| ["attache", "--json", "update", "--from", file, "--key", "/root/release.pub"].map(str::to_owned);
    let good = update("/root/good");
    let updated = on.json(&good.each_ref().map(String::as_str));
    assert_eq!(updated["restarted"], serde_json::json!(["attache-hub"]), "{updated}");
    let (state, second) = on.hub();
    assert!(state == "active" && second != first, "{state} {second:?}");

    // The new hub starts, but not with the data of the service: the old program serves it again.
    let ran = on.try_run(&update("/root/broken.tar.gz").each_ref().map(String::as_str)).exits(1);
    assert!(ran.stderr.contains("`systemctl --system restart attache-hub` failed"), "{}", ran.stderr);
    assert!(ran.stderr.contains("was restored."), "{}", ran.stderr);
    let (state, third) = on.hub();
    assert!(state == "active" && third != second, "{state} {third:?}");
    assert_eq!(on.run(&["attache", "--version"]), concat!("attache ", env!("CARGO_PKG_VERSION"), "\n"));
    assert!(agents(&on).contains("NAME") || agents(&on).is_empty(), "{}", agents(&on));
    on.switch_off();
}
