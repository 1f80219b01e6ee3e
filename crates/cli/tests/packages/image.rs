//! The container image: the program, an empty data folder, and nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{archive_name, contents, pack, succeeds};
use crate::harness::has;

/// A static program, which the image needs and a test build isn't. Outside of the image it is the real one; inside, where that
/// doesn't exist, it only says so.
const STATIC_PROGRAM: &str = r#"
use std::os::unix::process::CommandExt as _;
fn main() {
    let error = std::process::Command::new(env!("PROGRAM")).args(std::env::args_os().skip(1)).exec();
    println!("alone: {}", error.kind());
}
"#;

fn blob(image: &Path, descriptor: &Value) -> PathBuf {
    image.join("blobs").join(descriptor["digest"].as_str().unwrap().replace(':', "/"))
}

fn json_blob(image: &Path, descriptor: &Value) -> Value {
    serde_json::from_slice(&fs::read(blob(image, descriptor)).unwrap()).unwrap()
}

/// The settings of an image and the folder with its files.
pub fn unpack(archive: &Path, folder: &Path) -> (Value, PathBuf) {
    let (image, root) = (folder.join("image"), folder.join("root"));
    fs::create_dir(&image).unwrap();
    succeeds(Command::new("tar").arg("-xzf").arg(archive).current_dir(&image));
    let index: Value = serde_json::from_slice(&fs::read(image.join("index.json")).unwrap()).unwrap();
    let manifest = json_blob(&image, &index["manifests"][0]);
    fs::create_dir(&root).unwrap();
    for layer in manifest["layers"].as_array().unwrap() {
        succeeds(Command::new("tar").arg("--no-same-owner").arg("-xf").arg(blob(&image, layer)).current_dir(&root));
    }
    (json_blob(&image, &manifest["config"])["config"].clone(), root)
}

#[test]
fn the_image_is_the_program_and_nothing_else() {
    if !has("buildah", "buildah") || !has("bwrap", "bubblewrap") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.rs"), folder.path().join("attache"));
    fs::write(&source, STATIC_PROGRAM).unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "-C", "target-feature=+crt-static", "-o"]).arg(&program).arg(&source);
    succeeds(rustc.env("PROGRAM", env!("CARGO_BIN_EXE_attache")));
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    pack(&program, &first, &["--level", "1"]);
    pack(&program, &second, &["--level", "1"]);
    let name = archive_name().replace(".tar.gz", ".oci.tar.gz");
    let Some(archive) = contents(&first).remove(&name) else {
        eprintln!("skipped: buildah can't build here");
        return;
    };
    assert!(archive == contents(&second)[&name], "two images differ");

    let (config, root) = unpack(&first.join(&name), folder.path());
    let expected = json!({
        "User": "65532:65532",
        "Entrypoint": ["/attache"],
        "Cmd": ["hub", "--listen", "0.0.0.0:7800", "--tls-self-signed"],
        "Volumes": {"/data": {}},
        "ExposedPorts": {"7800/tcp": {}},
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&config[key], value, "{key}: {config}");
    }
    let variables = config["Env"].to_string();
    assert!(variables.contains("A2A_HOME=/data") && variables.contains("AWCP_HOME=/data/awcp"), "{variables}");

    assert_eq!(contents_names(&root), ["attache", "data"]);
    assert!(contents_names(&root.join("data")).is_empty());
    let mut bwrap = Command::new("bwrap");
    bwrap.args(["--unshare-all", "--die-with-parent", "--ro-bind"]).arg(&root).arg("/");
    assert_eq!(succeeds(bwrap.args(["/attache", "--version"])), "alone: entity not found\n");
}

fn contents_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
