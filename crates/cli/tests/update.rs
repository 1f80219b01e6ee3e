//! `attache update`: only signed releases replace the program, and only those that work stay.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    harness::{FinishedProcess, TestHome, has},
    packages::{bare::stripped, key},
};

/// A person's installation: the program in a folder of its own, and the key of those who make releases.
struct Installation {
    home: TestHome,
    folder: TempDir,
    secret: PathBuf,
    public: String,
}

// === impl Installation ===

impl Installation {
    fn new() -> Option<Self> {
        if !has("minisign", "minisign") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        stripped(&folder.path().join("bin"));
        let (secret, public) = key(folder.path(), "release");
        let public = public.to_str().unwrap().to_owned();
        Some(Self { home: TestHome::new(), folder, secret, public })
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("bin/attache")
    }

    fn update(&self, args: &[&str]) -> FinishedProcess {
        let mut command = self.home.program(self.program());
        FinishedProcess::of(command.args(["--json", "update", "--no-restart"]).args(args), &self.home.logs())
    }

    /// Updates from a file, with the key of the releases.
    fn update_from(&self, file: &Path, args: &[&str]) -> FinishedProcess {
        self.update(&[&["--from", file.to_str().unwrap(), "--key", &self.public], args].concat())
    }

    fn sign(&self, file: &Path) {
        let mut minisign = Command::new("minisign");
        let output = minisign.args(["-S", "-q", "-s"]).arg(&self.secret).arg("-m").arg(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A signed archive with a script as its program.
    fn release(&self, name: &str, script: &str) -> PathBuf {
        let stage = self.folder.path().join(name);
        fs::create_dir(&stage).unwrap();
        let program = stage.join("attache");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let file = self.folder.path().join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        let status = tar.arg("-C").arg(self.folder.path()).arg("-czf").arg(&file).arg(name).status().unwrap();
        assert!(status.success());
        self.sign(&file);
        file
    }

    /// What is in the program's folder.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("bin")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[track_caller]
fn message(ran: &FinishedProcess) -> String {
    let error: Value = serde_json::from_str(&ran.stderr).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr));
    error["error"]["message"].as_str().unwrap().to_owned()
}

const VERSION: &str = r#"[ "$1" = --version ] && echo "attache 9.9.9" && exit"#;

#[test]
fn a_release_that_works_stays_and_the_old_program_is_kept() {
    let Some(installed) = Installation::new() else { return };
    let program = installed.program();
    let old = fs::read(&program).unwrap();
    // The same program in other bytes.
    let new = [&old[..], b"new"].concat();
    let file = installed.folder.path().join("attache-new");
    fs::write(&file, &new).unwrap();
    installed.sign(&file);
    let ran = installed.update_from(&file, &[]).succeeds();
    let version = env!("CARGO_PKG_VERSION");
    let (path, kept) = (fs::canonicalize(&program).unwrap(), program.with_file_name("attache.old"));
    let kept_path = fs::canonicalize(&kept).unwrap();
    let expected = json!({
        "program": path, "from_version": version, "to_version": version, "kept": kept_path, "restarted": [],
    });
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap(), expected);
    assert!(fs::read(&program).unwrap() == new && fs::read(&kept).unwrap() == old);
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(installed.files(), ["attache", "attache.old"]);

    // And back.
    let ran = installed.update(&["--rollback"]).succeeds();
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap()["kept"], Value::Null);
    assert!(fs::read(&program).unwrap() == old);
    assert_eq!(installed.files(), ["attache"]);
    let ran = installed.update(&["--rollback"]).exits(3);
    assert!(message(&ran).starts_with("no earlier version is kept"), "{}", ran.stderr);
}

#[test]
fn a_release_that_does_not_become_ready_is_rolled_back() {
    let Some(installed) = Installation::new() else { return };
    let old = fs::read(installed.program()).unwrap();
    let unchanged = || {
        assert!(fs::read(installed.program()).unwrap() == old, "the program was replaced");
    };
    let file = installed.release("dies", &format!("{VERSION}\necho 'no such luck' >&2; exit 7"));
    let ran = installed.update_from(&file, &[]).exits(1);
    assert_eq!(message(&ran), "the new program doesn't work: its hub ended with exit status: 7: no such luck");
    unchanged();
    let file = installed.release("hangs", &format!("{VERSION}\nexec sleep 600"));
    let ran = installed.update_from(&file, &["--ready-timeout", "1s"]).exits(1);
    assert_eq!(message(&ran), "the new program doesn't work: its hub wasn't ready after 1 s");
    unchanged();
    // These don't even get that far.
    let file = installed.release("other", "echo something else");
    let ran = installed.update_from(&file, &[]).exits(1);
    assert_eq!(message(&ran), "the new program doesn't run here: it doesn't report its version");
    let file = installed.release("old", "echo attache 0.0.1");
    let ran = installed.update_from(&file, &[]).exits(1);
    assert_eq!(message(&ran), format!("0.0.1 is older than {}", env!("CARGO_PKG_VERSION")));
    unchanged();
    assert_eq!(installed.files(), ["attache"]);
    // The old program still works.
    FinishedProcess::of(installed.home.program(installed.program()).arg("--version"), &installed.home.logs())
        .succeeds();
}

#[test]
fn only_a_signed_release_is_installed() {
    let Some(installed) = Installation::new() else { return };
    let old = fs::read(installed.program()).unwrap();
    let file = installed.release("release", &format!("{VERSION}\nexit 1"));
    let signature = PathBuf::from(format!("{}.minisig", file.display()));
    let refused = |ran: &FinishedProcess, why: &str| {
        assert_eq!(message(ran), format!("{} can't be trusted: {why}", file.display()));
    };
    // Signed by someone else.
    let (_, foreign) = key(installed.folder.path(), "foreign");
    let args = ["--from", file.to_str().unwrap(), "--key", foreign.to_str().unwrap()];
    let ran = installed.update(&args).exits(4);
    refused(&ran, "The signature was created with a different key than the one provided");
    // A file that is named like the trusted key, beside a release of somebody else.
    let last = |path: &Path| fs::read_to_string(path).unwrap().lines().last().unwrap().to_owned();
    let trusted = last(&foreign);
    let namesake = installed.folder.path().join(&trusted);
    // Keys may have a slash in them.
    fs::create_dir_all(namesake.parent().unwrap()).unwrap();
    fs::copy(&installed.public, namesake).unwrap();
    let mut command = installed.home.program(installed.program());
    command.args(["--json", "update", "--no-restart", "--from"]).arg(&file).args(["--key", &trusted]);
    let ran = FinishedProcess::of(command.current_dir(installed.folder.path()), &installed.home.logs()).exits(4);
    refused(&ran, "The signature was created with a different key than the one provided");
    // Changed after it was signed.
    let good = fs::read(&file).unwrap();
    let mut changed = good.clone();
    changed[30] ^= 1;
    fs::write(&file, changed).unwrap();
    refused(&installed.update_from(&file, &[]).exits(4), "The signature verification failed");
    fs::write(&file, good).unwrap();
    // A comment that was changed: it is signed too.
    let text = fs::read_to_string(&signature).unwrap();
    fs::write(&signature, text.replace("trusted comment: timestamp", "trusted comment: timesTamp")).unwrap();
    refused(&installed.update_from(&file, &[]).exits(4), "The signature verification failed");
    fs::write(&signature, "nonsense").unwrap();
    refused(&installed.update_from(&file, &[]).exits(4), "Invalid encoding in minisign data");
    fs::remove_file(&signature).unwrap();
    let ran = installed.update_from(&file, &[]).exits(1);
    assert!(message(&ran).starts_with("can't read the signature"), "{}", ran.stderr);
    // Without a key.
    let ran = installed.update(&["--from", file.to_str().unwrap()]).exits(2);
    assert_eq!(message(&ran), "this build has no release key");
    assert!(fs::read(installed.program()).unwrap() == old);
    assert_eq!(installed.files(), ["attache"]);
}
