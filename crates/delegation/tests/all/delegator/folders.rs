//! Folders that can't be delegated although they are below an allowed one: inside them nothing would be guarded or
//! withheld.

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
fn allow(fixture: &DelegatorFixture, roots: &[&Path]) {
    let (root, url) = (fixture.machine.root(), fixture.url());
    let key = root.join("key");
    let text = format!("[delegator]\nroots = {roots:?}\n\n[[delegator.peers]]\nurl = {url:?}\nkey_file = {key:?}\n");
    fs::write(root.join("awcp/policy.toml"), text).unwrap();
}

fn request(fixture: &DelegatorFixture, folder: &Path) -> DelegateRequest {
    DelegateRequest { workspace_dir: folder.to_str().unwrap().to_owned(), ..fixture.machine.request(&fixture.url()) }
}

async fn refused(fixture: &DelegatorFixture, folder: &Path) -> (Code, String, String) {
    match fixture.machine.client.delegate(&request(fixture, folder)).await {
        Err(daemon::Error::Refused(refusal)) => (refusal.code, refusal.message, refusal.hint),
        other => panic!("{}: {other:?}", folder.display()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guarded_and_withheld_folders_cannot_be_delegated_on_their_own() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let root = fixture.machine.root();
    for folder in ["project/.git/hooks", "mirror/hooks", "mirror/objects", "mirror/refs", "mirror/tree", ".ssh/keys"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("mirror/HEAD"), "ref: refs/heads/main\n").unwrap();
    let everything: [&Path; 4] =
        [&root, &root.join("project/.git/hooks"), &root.join("awcp/delegations"), &root.join("mirror/hooks")];
    allow(&fixture, &everything);
    let git = ("it belongs to the internal files of a git repository", "Delegate the work tree instead.");
    let home = format!("{} contains keys and records of Attaché", root.join("awcp").display());
    for (name, (reason, hint)) in [
        ("project/.git/hooks", git),
        ("project/.git", git),
        ("mirror/hooks", git),
        ("awcp/delegations", (&*home, "Delegate a folder outside it.")),
    ] {
        let folder = root.join(name);
        let message = format!("{} can't be delegated: {reason}", folder.display());
        assert_eq!(refused(&fixture, &folder).await, (Code::InvalidRequest, message, hint.to_owned()));
    }
    // Symbolic links are resolved.
    let (keys, plain) = (root.join(".ssh/keys"), root.join("plain"));
    symlink(&keys, &plain).unwrap();
    let (code, _, hint) = refused(&fixture, &plain).await;
    let expected = format!(
        "A person can allow this folder explicitly with: attache delegations allow --folder {}",
        keys.display()
    );
    assert_eq!((code, hint), (Code::FolderNotAllowed, expected));
    assert_eq!(fixture.machine.client.list().await.unwrap(), []);
    // An explicitly listed folder is allowed, and a plain folder inside a bare repository is like any other.
    allow(&fixture, &[&root, &keys]);
    for folder in [&keys, &root.join("mirror/tree")] {
        let created = fixture.machine.client.delegate(&request(&fixture, folder)).await.unwrap();
        assert_eq!(fixture.machine.ended(&created).await.status, DelegationStatus::Completed);
        assert!(folder.join("made.txt").exists());
    }
}

/// Nobody is told to allow what can't be delegated even then.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_can_never_be_delegated_is_refused_for_that_reason_first() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let root = fixture.machine.root();
    let awcp = root.join("awcp");
    let contained = format!("/ can't be delegated: it contains $AWCP_HOME ({})", awcp.display());
    let private = format!("{0} can't be delegated: {0} contains keys and records of Attaché", awcp.display());
    for (folder, expected) in [(Path::new("/"), contained), (awcp.as_path(), private)] {
        let (code, message, _) = refused(&fixture, folder).await;
        assert_eq!((code, message), (Code::InvalidRequest, expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_secret_by_its_folder_name_is_withheld_when_that_folder_is_delegated() {
    for (commands, got) in [("get daemon.json", "wrote: true"), ("get config.json", "wrote: false")] {
        let fixture = DelegatorFixture::new(RemoteScript::Run(commands)).await;
        let folder = fixture.machine.root().join(".docker");
        fs::create_dir(&folder).unwrap();
        for file in ["daemon.json", "config.json"] {
            fs::write(folder.join(file), "{}").unwrap();
        }
        allow(&fixture, &[&folder]);
        let created = fixture.machine.client.delegate(&request(&fixture, &folder)).await.unwrap();
        assert_eq!(fixture.machine.ended(&created).await.status, DelegationStatus::Completed);
        assert_eq!(*fixture.remote.log.lock().unwrap(), [got]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_whose_path_is_not_utf8_is_refused() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let root = fixture.machine.root();
    allow(&fixture, &[&root]);
    let unreadable = root.join(OsStr::from_bytes(b"p\xff"));
    fs::create_dir(&unreadable).unwrap();
    symlink(&unreadable, root.join("link")).unwrap();
    let (code, message, hint) = refused(&fixture, &root.join("link")).await;
    assert_eq!((code, &*hint), (Code::InvalidRequest, "Rename it or its parent folder, then delegate again."));
    assert!(message.ends_with("its real path is not UTF-8"), "{message}");
}
