//! Folders that are not lent although they are below one that may be: inside of them nothing would be guarded or withheld.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::Path,
};

use attache_client::daemon;
use attache_protocol::{Code, rules::delegation::DelegationStatus, wire::delegation::DelegateRequest};

use super::{DelegatorFixture, RemoteScript};

/// A policy with these roots.
fn allow(scene: &DelegatorFixture, roots: &[&Path]) {
    let (root, url) = (scene.machine.root(), scene.url());
    let key = root.join("key");
    let text = format!("[delegator]\nroots = {roots:?}\n\n[[delegator.peers]]\nurl = {url:?}\nkey_file = {key:?}\n");
    fs::write(root.join("awcp/policy.toml"), text).unwrap();
}

fn request(scene: &DelegatorFixture, folder: &Path) -> DelegateRequest {
    DelegateRequest { workspace_dir: folder.to_str().unwrap().to_owned(), ..scene.machine.request(&scene.url()) }
}

async fn refused(scene: &DelegatorFixture, folder: &Path) -> (Code, String, String) {
    match scene.machine.client.delegate(&request(scene, folder)).await {
        Err(daemon::Error::Refused(refusal)) => (refusal.code, refusal.message, refusal.hint),
        other => panic!("{}: {other:?}", folder.display()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_folder_guards_and_withholds_is_not_lent_by_itself() {
    let scene = DelegatorFixture::new(RemoteScript::Work).await;
    let root = scene.machine.root();
    for folder in ["project/.git/hooks", "mirror/hooks", "mirror/objects", "mirror/refs", "mirror/tree", ".ssh/keys"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("mirror/HEAD"), "ref: refs/heads/main\n").unwrap();
    let everything: [&Path; 4] =
        [&root, &root.join("project/.git/hooks"), &root.join("awcp/delegations"), &root.join("mirror/hooks")];
    allow(&scene, &everything);
    let git = ("it is a part of a git repository's own files", "Lend the folder in which people work.");
    let home = format!("keys and records of Attaché are in {}", root.join("awcp").display());
    for (name, (why, hint)) in [
        ("project/.git/hooks", git),
        ("project/.git", git),
        ("mirror/hooks", git),
        ("awcp/delegations", (&*home, "Lend a folder elsewhere.")),
    ] {
        let folder = root.join(name);
        let message = format!("{} cannot be lent: {why}", folder.display());
        assert_eq!(refused(&scene, &folder).await, (Code::InvalidRequest, message, hint.to_owned()));
    }
    // A link is what it leads to.
    let (keys, plain) = (root.join(".ssh/keys"), root.join("plain"));
    symlink(&keys, &plain).unwrap();
    let (code, _, hint) = refused(&scene, &plain).await;
    let allows =
        format!("A person allows this very folder with: attache delegations allow --folder {}", keys.display());
    assert_eq!((code, hint), (Code::FolderNotAllowed, allows));
    assert_eq!(scene.machine.client.list().await.unwrap(), []);
    // What is named itself is meant, and a folder of files inside of a bare repository is one like any other.
    allow(&scene, &[&root, &keys]);
    for folder in [&keys, &root.join("mirror/tree")] {
        let created = scene.machine.client.delegate(&request(&scene, folder)).await.unwrap();
        assert_eq!(scene.machine.ended(&created).await.status, DelegationStatus::Completed);
        assert!(folder.join("made.txt").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_by_the_name_of_its_folder_is_one_when_that_is_lent() {
    for (commands, got) in [("get daemon.json", "wrote: true"), ("get config.json", "wrote: false")] {
        let scene = DelegatorFixture::new(RemoteScript::Run(commands)).await;
        let folder = scene.machine.root().join(".docker");
        fs::create_dir(&folder).unwrap();
        for file in ["daemon.json", "config.json"] {
            fs::write(folder.join(file), "{}").unwrap();
        }
        allow(&scene, &[&folder]);
        let created = scene.machine.client.delegate(&request(&scene, &folder)).await.unwrap();
        assert_eq!(scene.machine.ended(&created).await.status, DelegationStatus::Completed);
        assert_eq!(*scene.remote.said.lock().unwrap(), [got]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_whose_path_is_no_text_is_refused() {
    let scene = DelegatorFixture::new(RemoteScript::Work).await;
    let root = scene.machine.root();
    allow(&scene, &[&root]);
    let unreadable = root.join(OsStr::from_bytes(b"p\xff"));
    fs::create_dir(&unreadable).unwrap();
    symlink(&unreadable, root.join("link")).unwrap();
    let (code, message, hint) = refused(&scene, &root.join("link")).await;
    assert_eq!((code, &*hint), (Code::InvalidRequest, "Rename it, or the folder in which it is, then delegate again."));
    assert!(message.ends_with("its real path is not UTF-8"), "{message}");
}
