//! What `dist/build` makes: the same bytes every time, with everything that belongs into it, and signed.

pub mod bare;
mod booted;
mod image;
mod static_program;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::harness::has;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{messages}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `dist/build` with a program.
#[track_caller]
pub fn pack(program: &Path, out: &Path, options: &[&str]) {
    let mut build = Command::new(root().join("dist/build"));
    // A folder of its own, so that the test doesn't depend on how the repository was obtained.
    build.env("SOURCE_DATE_EPOCH", "1790000000").env("CARGO", env!("CARGO"));
    succeeds(build.arg("--program").arg(program).arg("--out").arg(out).args(options));
}

/// A small program that does what the real one does: packing that takes long, and makes no difference.
fn small_program(folder: &Path) -> PathBuf {
    let file = folder.join("attache");
    fs::write(&file, format!("#!/bin/sh\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_attache"))).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

/// The files of a folder with their content.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

fn machine() -> String {
    succeeds(Command::new("uname").arg("-m")).trim().to_owned()
}

fn archive_name() -> String {
    format!("attache-{VERSION}-linux-{}.tar.gz", machine())
}

#[test]
fn packing_twice_gives_the_same_bytes_with_everything_inside() {
    let folder = tempfile::tempdir().unwrap();
    let program = small_program(folder.path());
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    pack(&program, &first, &["--level", "1"]);
    // Another time, another umask, another order of files in the folder.
    fs::copy(&program, folder.path().join("other")).unwrap();
    pack(&folder.path().join("other"), &second, &["--level", "1"]);
    let (made, again) = (contents(&first), contents(&second));
    assert_eq!(made.keys().collect::<Vec<_>>(), again.keys().collect::<Vec<_>>());
    for (name, content) in &made {
        assert!(*content == again[name], "{name} differs");
    }
    succeeds(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&first));
    let sums = String::from_utf8(made["SHA256SUMS"].clone()).unwrap();
    assert_eq!(sums.lines().count(), made.len() - 1, "{sums}");

    // The archive.
    let listed = succeeds(Command::new("tar").arg("-tzvf").arg(first.join(archive_name())));
    let stem = archive_name().replace(".tar.gz", "");
    for name in ["attache", "LICENSE", "man/attache.1", "man/attache-service-install.1", "completions/_attache"] {
        let line = listed.lines().find(|line| line.ends_with(&format!(" {stem}/{name}")));
        let line = line.unwrap_or_else(|| panic!("{name} is missing:\n{listed}"));
        assert!(line.contains(" 0/0 ") && line.contains("2026-09-21"), "{line}");
    }
    assert!(listed.contains("/a2a-runtime -> attache\n"), "{listed}");
    assert!(!listed.contains("attache-mount-guard.1"), "a hidden command has a page:\n{listed}");
    sbom(&made[&format!("attache-{VERSION}.cdx.json")]);
    npm(&made, &first);
    if has("dpkg-deb", "dpkg") {
        debian(&first);
    }
    pages(&first.join(archive_name()), folder.path());
}

/// What is wrong is said before anything is compiled, packed or removed.
#[test]
fn mistakes_are_named_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = small_program(folder.path());
    let (program, other) = (program.to_str().unwrap(), folder.path().join("photos"));
    fs::create_dir(&other).unwrap();
    fs::write(other.join("cat.jpg"), "a cat").unwrap();
    let new = folder.path().join("new");
    let (photos, new_folder) = (other.to_str().unwrap(), new.to_str().unwrap());
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--frobnicate"], 2, "unknown argument --frobnicate"),
        (&["--program"], 2, "--program needs a value"),
        (&["--program", "/nowhere", "--out", new_folder], 1, "there is no file /nowhere"),
        (&["--program", program, "--out", photos], 1, "isn't empty, and wasn't made by dist/build"),
        (&["--program", program, "--out", new_folder, "--level", "fast"], 2, "--level is a number from 1 to 9"),
        (&["--program", "/bin/true", "--out", new_folder], 1, "isn't attache"),
        (&["--program", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "--out", new_folder], 1, "isn't a program"),
        (&["--verify", photos], if has("minisign", "minisign") { 2 } else { 1 }, "minisign|--key PUB"),
    ];
    for (args, status, message) in cases {
        let output = Command::new(root().join("dist/build")).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
        assert!(message.split('|').any(|message| said.contains(message)), "{args:?}: {said}");
    }
    assert!(!new.exists());
    assert_eq!(contents(&other), BTreeMap::from([("cat.jpg".to_owned(), b"a cat".to_vec())]));
}

/// Every component is in the lock file with its hash, and none is there for tests only.
fn sbom(document: &[u8]) {
    let document: Value = serde_json::from_slice(document).unwrap();
    assert_eq!((&document["bomFormat"], &document["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(document["metadata"]["component"]["purl"], format!("pkg:cargo/attache@{VERSION}"));
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let components = document["components"].as_array().unwrap();
    let mut names = Vec::new();
    for component in components {
        let (name, version) = (component["name"].as_str().unwrap(), component["version"].as_str().unwrap());
        let entry = lock.split("[[package]]").find(|entry| {
            entry.contains(&format!("\nname = \"{name}\"\n")) && entry.contains(&format!("\nversion = \"{version}\"\n"))
        });
        let entry = entry.unwrap_or_else(|| panic!("{name} {version} isn't in Cargo.lock"));
        match component["hashes"][0]["content"].as_str() {
            Some(hash) => assert!(entry.contains(&format!("checksum = \"{hash}\"")), "{name}"),
            None => assert!(name.starts_with("attache-"), "{name} has no hash"),
        }
        assert!(component["licenses"][0]["expression"].is_string(), "{name} has no licence");
        names.push(name);
    }
    assert!(names.contains(&"tokio") && names.contains(&"attache-hub"), "{names:?}");
    assert!(!names.contains(&"proptest") && !names.contains(&"attache-testkit"), "{names:?}");
    let graph = document["dependencies"].as_array().unwrap();
    assert_eq!(graph.len(), components.len() + 1);
}

fn npm(made: &BTreeMap<String, Vec<u8>>, folder: &Path) {
    let file = made.keys().find(|name| name.starts_with("attache-cli-")).unwrap();
    let text = succeeds(Command::new("tar").args(["-xzOf", file, "package/package.json"]).current_dir(folder));
    let package: Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({"attache": "bin/attache", "a2a-runtime": "bin/attache"});
    assert_eq!((&package["version"], &package["bin"]), (&VERSION.into(), &expected));
}

fn debian(folder: &Path) {
    let file = contents(folder).into_keys().find(|name| name.ends_with(".deb")).unwrap();
    let deb = |args: &[&str]| succeeds(Command::new("dpkg-deb").args(args).arg(&file).current_dir(folder));
    let control = deb(&["--field"]);
    assert!(control.contains("Package: attache\n") && control.contains(&format!("Version: {VERSION}\n")), "{control}");
    let listed = deb(&["--contents"]);
    for path in [
        "usr/bin/attache",
        "usr/share/man/man1/attache-up.1.gz",
        "usr/share/bash-completion/completions/attache",
        "usr/share/zsh/vendor-completions/_attache",
        "usr/share/fish/vendor_completions.d/attache.fish",
        "usr/share/doc/attache/copyright",
    ] {
        let line = listed.lines().find(|line| line.ends_with(&format!(" ./{path}")));
        assert!(line.is_some_and(|line| line.contains(" root/root ")), "{path}:\n{listed}");
    }
}

/// The pages are pages: nothing in them is an unknown request.
fn pages(archive: &Path, folder: &Path) {
    if !has("man", "man-db") {
        return;
    }
    succeeds(Command::new("tar").arg("-xzf").arg(archive).current_dir(folder));
    let page = folder.join(archive_name().replace(".tar.gz", "")).join("man/attache-service.1");
    let mut man = Command::new("man");
    man.args(["--warnings=w", "-l"]).arg(&page).env("LC_ALL", "C.UTF-8").env("MANWIDTH", "120");
    let Output { status, stdout, stderr } = man.output().unwrap();
    let (text, warnings) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && warnings.is_empty(), "{warnings}");
    // Some machines replace `man` by a note that there are no pages.
    if text.contains("NAME") {
        assert!(text.contains("  attache service logs --runtime -f"), "{text}");
    }
}

/// A key of minisign: the files of its secret and its public half.
pub fn key(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (secret, public) = (folder.join(format!("{name}.key")), folder.join(format!("{name}.pub")));
    succeeds(Command::new("minisign").args(["-G", "-W", "-f", "-s"]).arg(&secret).arg("-p").arg(&public));
    (secret, public)
}

#[test]
fn a_modified_or_foreign_release_is_rejected() {
    if !has("minisign", "minisign") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = small_program(folder.path());
    let (own, public) = key(folder.path(), "own");
    let (foreign, _) = key(folder.path(), "foreign");
    let make = |key: &Path, name: &str| {
        let out = folder.path().join(name);
        pack(&program, &out, &["--level", "1", "--sign", key.to_str().unwrap()]);
        out
    };
    let verifies = |out: &Path| {
        let mut build = Command::new(root().join("dist/build"));
        build.arg("--verify").arg(out).arg("--key").arg(&public).output().unwrap().status.success()
    };
    let out = make(&own, "release");
    assert!(verifies(&out));
    let archive = out.join(archive_name());
    assert!(out.join(format!("{}.minisig", archive_name())).exists());

    // A different archive.
    let good = fs::read(&archive).unwrap();
    let mut changed = good.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    fs::write(&archive, &changed).unwrap();
    assert!(!verifies(&out));
    // With a matching checksum, but an invalid signature.
    let sums = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    let fitting = succeeds(Command::new("sha256sum").arg(archive_name()).current_dir(&out));
    let others = sums.lines().filter(|line| !line.ends_with(&archive_name()));
    let forged: Vec<_> = others.chain(fitting.lines()).collect();
    fs::write(out.join("SHA256SUMS"), forged.join("\n") + "\n").unwrap();
    succeeds(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&out));
    assert!(!verifies(&out));
    fs::write(out.join("SHA256SUMS"), sums).unwrap();
    fs::write(&archive, good).unwrap();
    assert!(verifies(&out));
    // Signed by someone else.
    assert!(!verifies(&make(&foreign, "other")));
}
