//! Tests of `policy.toml`: what it can contain, how mistakes are reported, and that commands keep the rest of the file.

use attache_protocol::wire::awcp::AccessMode;

use super::{
    delegator::{ExportSection, FolderEligibility, host_port},
    *,
};

const WRITTEN: &str = r#"# mine
[delegator]
max_ttl_seconds = 7200 # two hours
roots = [
  "/src", # everything
  "/data",
]

[[delegator.peers]]
url = "https://hub.example.org/a2a/builder/"
key_file = "~/keys/hub"
reach = "tunnel"

# the one in the cellar
[[ delegator.peers ]] # by hand
url = "http://10.0.0.5:7800/a2a/cellar"

# what others may do here
[collaborator]
enabled = true
"#;

fn file(text: &str) -> (tempfile::TempDir, PolicyFile) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    fs::write(&path, text).unwrap();
    (folder, PolicyFile::at(path, Some("/home/ann".into())))
}

fn after(text: &str, change: &PolicyChange) -> String {
    let (_folder, file) = file(text);
    assert!(file.change(change, &Env::seeded(1)).unwrap());
    fs::read_to_string(file.path()).unwrap()
}

fn peer(url: &str) -> PolicyChange {
    PolicyChange::AddPeer { url: url.to_owned(), key_file: None, pin: None }
}

#[test]
fn a_missing_file_allows_nothing() {
    let policy = PolicyFile::at("/nowhere/policy.toml".into(), None).read().unwrap();
    assert_eq!(policy, AwcpPolicy::default());
    assert_eq!(policy.delegator.peer("http://127.0.0.1:1/a2a/x"), None);
    assert_eq!(policy.delegator.folder_eligibility(Path::new("/"), None), FolderEligibility::No);
}

#[test]
fn every_key_is_read_and_peer_urls_are_normalised() {
    let policy = file(WRITTEN).1.read().unwrap().delegator;
    assert_eq!((policy.max_ttl_seconds, policy.default_ttl_seconds), (7200, None));
    assert_eq!(policy.default_access_mode, AccessMode::Rw);
    let found = policy.peer("HTTPS://hub.example.org:443/a2a/builder/.well-known/agent-card.json").unwrap();
    assert_eq!((found.reach, found.key_file.as_deref()), (RouteMode::Tunnel, Some("~/keys/hub")));
    for other in ["https://hub.example.org/a2a/builder2", "http://hub.example.org/a2a/builder", "nonsense"] {
        assert_eq!(policy.peer(other), None, "{other}");
    }
}

#[test]
fn a_mistake_is_reported_with_its_line() {
    for (text, line, what) in [
        ("[delegator]\nmax_ttl = 3\n", Some(2), "unknown field `max_ttl`"),
        ("[delegator]\n\nmax_running = \"many\"\n", Some(3), "invalid type"),
        ("[delegater]\n", Some(1), "unknown field `delegater`"),
        ("[delegator]\nroots = [\"src\"]\n", Some(2), "the root `src` is not an absolute path"),
        ("[delegator]\nmax_running = 0\n", Some(2), "`max_running` is 0"),
        ("[[delegator.peers]]\nurl = \"builder\"\n", Some(2), "`builder` is not the URL of an agent"),
        ("[[delegator.peers]]\nurl = \"http://x\"\nadvertise = \"host\"\n", Some(3), "`host` is not an address"),
        (
            "[delegator.export]\nexclude = [\n  \"ok\",\n  \"a[b\",\n]\n",
            Some(4),
            "`a[b` is not a valid gitignore pattern",
        ),
        ("[delegator.export]\nwithhold = [\"a[b\"]\n", Some(2), "`a[b` is not a valid gitignore pattern"),
        (
            "[delegator]\nmax_ttl_seconds = 60\ndefault_ttl_seconds = 90\n",
            Some(3),
            "`default_ttl_seconds` is more than",
        ),
        ("[delegator\n", Some(1), ""),
    ] {
        let invalid = file(text).1.read().unwrap_err();
        assert!(invalid.what.contains(what), "{text}: {invalid}");
        assert_eq!(invalid.line, line, "{text}: {invalid}");
    }
}

#[test]
fn adding_and_removing_peers_keeps_the_rest() {
    let added = after(WRITTEN, &peer("https://other.example.org/a2a/x/"));
    let block = "\n[[delegator.peers]]\nurl = \"https://other.example.org/a2a/x\"\n";
    assert_eq!(added, format!("{WRITTEN}{block}"));
    assert_eq!(after(&added, &PolicyChange::RemovePeer { url: "https://other.example.org/a2a/x".to_owned() }), WRITTEN);
    let removed = after(WRITTEN, &PolicyChange::RemovePeer { url: "http://10.0.0.5:7800/a2a/cellar/".to_owned() });
    let cut = "[[ delegator.peers ]] # by hand\nurl = \"http://10.0.0.5:7800/a2a/cellar\"\n";
    assert_eq!(removed, WRITTEN.replace(cut, ""));
    let first = after("", &peer("http://127.0.0.1:7800/a2a/b"));
    assert_eq!(first, "[[delegator.peers]]\nurl = \"http://127.0.0.1:7800/a2a/b\"\n");
}

#[test]
fn a_key_is_added_to_an_existing_peer() {
    let change =
        PolicyChange::AddPeer { url: "http://x/a2a/b".to_owned(), key_file: Some("/keys/x".into()), pin: None };
    let written = after("[[delegator.peers]]\nurl = \"http://x/a2a/b\"\nreach = \"direct\"\n", &change);
    assert_eq!(written, "[[delegator.peers]]\nurl = \"http://x/a2a/b\"\nkey_file = \"/keys/x\"\nreach = \"direct\"\n");
}

#[test]
fn adding_and_removing_roots_keeps_the_rest() {
    let added = after(WRITTEN, &PolicyChange::AddRoot("/home/ann/it's new".into()));
    assert_eq!(added, WRITTEN.replace("\"/data\"", "\"/data\", \"/home/ann/it's new\""));
    assert_eq!(after(&added, &PolicyChange::RemoveRoot("/home/ann/it's new".into())), WRITTEN);
    assert_eq!(
        after(WRITTEN, &PolicyChange::RemoveRoot("/src".into())),
        WRITTEN.replace("\"/src\", # everything\n  \"/data\"", "\"/data\"")
    );
    assert_eq!(
        after("[delegator]\nroots = [\"~/src\",]\n", &PolicyChange::RemoveRoot("/home/ann/src".into())),
        "[delegator]\nroots = []\n"
    );
    assert_eq!(after("", &PolicyChange::AddRoot("/a".into())), "[delegator]\nroots = [\"/a\"]\n");
    let peers = "[[delegator.peers]]\nurl = \"http://x\"\n";
    assert_eq!(after(peers, &PolicyChange::AddRoot("/a".into())), format!("{peers}\n[delegator]\nroots = [\"/a\"]\n"));
    assert_eq!(after("[delegator]", &PolicyChange::AddRoot("/a".into())), "[delegator]\nroots = [\"/a\"]\n");
}

#[test]
fn existing_entries_are_not_added_and_missing_ones_not_removed() {
    let (_folder, file) = file(WRITTEN);
    let env = Env::seeded(1);
    assert!(!file.change(&peer("https://hub.example.org/a2a/builder"), &env).unwrap());
    assert!(!file.change(&PolicyChange::AddRoot("/src".into()), &env).unwrap());
    let missing = file.change(&PolicyChange::RemoveRoot("/nothing".into()), &env).unwrap_err();
    assert!(matches!(missing, PolicyChangeError::NotThere { what: "folder", .. }), "{missing}");
    assert!(matches!(file.change(&peer("builder"), &env), Err(PolicyChangeError::NotAUrl(_))));
    assert_eq!(fs::read_to_string(file.path()).unwrap(), WRITTEN);
}

#[test]
fn text_that_cannot_be_edited_is_left_alone() {
    let text = "delegator = { peers = [{ url = \"http://x\" }] }\n";
    let (_folder, file) = file(text);
    let removed = file.change(&PolicyChange::RemovePeer { url: "http://x".to_owned() }, &Env::seeded(1));
    assert!(matches!(removed, Err(PolicyChangeError::ByHand(_))), "{removed:?}");
    assert_eq!(fs::read_to_string(file.path()).unwrap(), text);
}

#[test]
fn folders_are_judged_by_their_real_path() {
    let folder = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(folder.path()).unwrap();
    for name in ["src/a", "src2", "other"] {
        fs::create_dir_all(real.join(name)).unwrap();
    }
    std::os::unix::fs::symlink(real.join("other"), real.join("src/link")).unwrap();
    let policy =
        DelegatorSection { roots: vec!["~/src".to_owned(), "/gone".to_owned()], ..DelegatorSection::default() };
    let eligibility = |name: &str| policy.folder_eligibility(&fs::canonicalize(real.join(name)).unwrap(), Some(&real));
    let eligibilities = ["src", "src/a", "src2", "other", "src/link"].map(eligibility);
    assert_eq!(
        eligibilities,
        [
            FolderEligibility::Yes,
            FolderEligibility::Yes,
            FolderEligibility::No,
            FolderEligibility::No,
            FolderEligibility::No
        ]
    );
}

#[test]
fn a_folder_that_no_export_of_a_root_shows_cannot_be_delegated() {
    let folder = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(folder.path()).unwrap();
    let names =
        ["src/a", ".ssh/keys", ".Kube", "src/target/debug", "src/private", "src/a/private", ".aws/one", "kept/x"];
    for name in names {
        fs::create_dir_all(real.join(name)).unwrap();
    }
    let export = ExportSection {
        exclude: vec!["target/".to_owned(), "/private".to_owned()],
        withhold: vec!["kept".to_owned()],
        ..ExportSection::default()
    };
    let policy =
        DelegatorSection { roots: vec!["~".to_owned(), "~/.aws".to_owned()], export, ..DelegatorSection::default() };
    let eligibilities = names.map(|name| (name, policy.folder_eligibility(&real.join(name), Some(&real))));
    let withheld = eligibilities
        .into_iter()
        .filter(|entry| entry.1 == FolderEligibility::Withheld)
        .map(|entry| entry.0)
        .collect::<Vec<_>>();
    // An export of src/a would not show its `private`. ~/.aws is itself a root, so it is allowed.
    assert_eq!(withheld, [".ssh/keys", ".Kube", "src/target/debug", "src/private", "src/a/private", "kept/x"]);
    let others = eligibilities.into_iter().filter(|entry| !withheld.contains(&entry.0));
    assert_eq!(others.collect::<Vec<_>>(), [("src/a", FolderEligibility::Yes), (".aws/one", FolderEligibility::Yes)]);
}

#[test]
fn an_address_has_a_host_and_a_port() {
    assert_eq!(host_port("192.0.2.7:22"), Some(("192.0.2.7".to_owned(), 22)));
    assert_eq!(host_port("[::1]:22"), Some(("::1".to_owned(), 22)));
    assert_eq!([host_port("x"), host_port(":1"), host_port("x:0")], [None, None, None]);
}
