//! What a lease shows and allows, operation by operation.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::Path,
    process::Command,
};

use attache_protocol::wire::awcp::AccessMode;
use attache_workspace::export::{
    AttributeChange, CreateMode, Export, ExportError, ExportPatterns, ExportRefusal, ExportTerms, FileKind,
    FileOpenOptions, FileTime, LinkPolicy, NoExportAudit, OriginalsFolder, ReplaceMode,
};

use super::ExportFixture;

const READ: FileOpenOptions =
    FileOpenOptions { read: true, write: false, append: false, truncate: false, create: CreateMode::Never, mode: None };
const WRITE: FileOpenOptions =
    FileOpenOptions { read: true, write: true, append: false, truncate: false, create: CreateMode::Never, mode: None };
const NEW: FileOpenOptions = FileOpenOptions { create: CreateMode::New, ..WRITE };

fn name<T: std::fmt::Debug>(result: Result<T, ExportRefusal>) -> &'static str {
    result.map_or_else(|refusal| refusal.name(), |_| "ok")
}

#[test]
fn files_are_created_written_read_and_removed() {
    let fixture = ExportFixture::new(|dir| fs::write(dir.join("old"), "0123456789").unwrap());
    let export = &fixture.export;
    export.make_dir(b"/a", 0o755).unwrap();
    let how = FileOpenOptions { mode: Some(0o4750), ..NEW };
    let file = export.open_file(b"a/f", &how).unwrap();
    file.write_at(0, b"hello ").unwrap();
    file.write_at(6, b"world").unwrap();
    file.write_at(2, b"LL").unwrap();
    file.sync().unwrap();
    drop(file);
    assert_eq!(fixture.read("/a/f").unwrap(), b"heLLo world");
    assert_eq!(fs::metadata(fixture.dir().join("a/f")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(name(export.open_file(b"a/f", &NEW)), "exists");
    let append = FileOpenOptions { append: true, ..FileOpenOptions::default() };
    export.open_file(b"old", &append).unwrap().write_at(0, b"!").unwrap();
    assert_eq!(fixture.read("old").unwrap(), b"0123456789!");
    assert_eq!(fixture.names(""), ["a", "old"]);
    assert_eq!(name(export.remove_dir(b"a")), "not_empty");
    assert_eq!(name(export.remove_file(b"a")), "is_a_directory");
    assert_eq!(name(export.remove_dir(b"a/f")), "not_a_directory");
    export.rename(b"a/f", b"g", ReplaceMode::Never).unwrap();
    assert_eq!(name(export.rename(b"g", b"old", ReplaceMode::Never)), "exists");
    export.rename(b"g", b"old", ReplaceMode::Always).unwrap();
    export.remove_dir(b"a").unwrap();
    assert_eq!(fixture.names(""), ["old"]);
    assert_eq!(
        fixture.journal.take(),
        [
            "make_dir /a: ok",
            "create a/f: ok",
            "write a/f 11: ok",
            "write a/f 2: ok",
            "create a/f: exists".replace("create", "open").as_str(),
            "open old: ok",
            "write old 1: ok",
            "remove_dir a: not_empty",
            "remove_file a: is_a_directory",
            "remove_dir a/f: not_a_directory",
            "rename a/f -> g: ok",
            "rename g -> old: exists",
            "rename g -> old: ok",
            "remove_dir a: ok",
        ]
    );
}

#[test]
fn a_read_only_file_can_be_created_and_filled() {
    let fixture = ExportFixture::new(|_| {});
    let file = fixture.export.open_file(b"object", &FileOpenOptions { mode: Some(0o444), ..NEW }).unwrap();
    file.write_at(0, b"git makes its objects like this").unwrap();
    file.set_attributes(&AttributeChange { size: Some(3), mode: Some(0o400), ..AttributeChange::default() }).unwrap();
    drop(file);
    assert_eq!(fixture.read("object").unwrap(), b"git");
}

#[test]
fn attributes_are_read_and_changed_without_following_links() {
    let fixture = ExportFixture::new(|dir| {
        fs::write(dir.join("f"), "abc").unwrap();
        symlink("f", dir.join("l")).unwrap();
        fs::create_dir(dir.join("d")).unwrap();
        fs::set_permissions(dir.join("d"), fs::Permissions::from_mode(0o2775)).unwrap();
    });
    let export = &fixture.export;
    let time = FileTime { seconds: 1_000_000_000, nanos: 123_456_789 };
    let change =
        AttributeChange { mode: Some(0o6711), modified: Some(time), size: Some(2), ..AttributeChange::default() };
    export.set_attributes(b"f", &change).unwrap();
    let now = export.attributes(b"f").unwrap();
    assert_eq!((now.kind, now.mode, now.size, now.modified), (FileKind::File, 0o711, 2, time));
    // The owner's setgid bit on a shared folder stays, and the remote can't set it.
    export.set_attributes(b"d", &AttributeChange { mode: Some(0o700), ..AttributeChange::default() }).unwrap();
    assert_eq!(export.attributes(b"d").unwrap().mode, 0o2700);
    export.set_attributes(b"l", &AttributeChange { modified: Some(time), ..AttributeChange::default() }).unwrap();
    let link = export.attributes(b"l").unwrap();
    assert_eq!((link.kind, link.modified), (FileKind::Link, time));
    let mode = AttributeChange { mode: Some(0o777), ..AttributeChange::default() };
    assert_eq!(name(export.set_attributes(b"l", &mode)), "unsupported");
    assert_eq!(export.read_link(b"l").unwrap(), b"f");
    assert_eq!(name(export.read_link(b"f")), "invalid");
    assert_eq!(name(export.open_file(b"l", &READ)), "denied");
    assert_eq!(name(export.set_attributes(b"", &mode)), "denied");
}

#[test]
fn links_are_data_and_new_ones_stay_inside() {
    let fixture = ExportFixture::new(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        symlink("/etc", dir.join("out")).unwrap();
        symlink("../f", dir.join("d/up")).unwrap();
    });
    let export = &fixture.export;
    assert_eq!(export.read_link(b"out").unwrap(), b"/etc");
    for path in [&b"out/passwd"[..], b"out/", b"d/up/x"] {
        assert!(matches!(export.open_file(path, &READ), Err(ExportRefusal::Denied(_))), "{path:?}");
    }
    assert_eq!(name(export.read_dir(b"out")), "not_a_directory");
    for target in [&b"/etc/passwd"[..], b"..", b"../x", b"d/../../x"] {
        assert_eq!(name(export.symlink(target, b"new")), "denied");
    }
    export.symlink(b"../f", b"d/new").unwrap();
    // A detour through a real folder is harmless. Through a link, it could lead anywhere.
    export.symlink(b"d/../f", b"detour").unwrap();
    assert_eq!(export.read_link(b"detour").unwrap(), b"f");
    assert_eq!(name(export.symlink(b"out/../f", b"new")), "denied");
    // Moved up, the same link would lead out. So would the one in the folder.
    assert_eq!(name(export.rename(b"d/new", b"new", ReplaceMode::Never)), "denied");
    export.make_dir(b"e", 0o755).unwrap();
    export.make_dir(b"e/e", 0o755).unwrap();
    export.symlink(b"../../f", b"e/e/l").unwrap();
    assert_eq!(name(export.rename(b"e/e", b"x", ReplaceMode::Never)), "denied");
    let any = ExportFixture::with(ExportTerms { links: LinkPolicy::Any, ..ExportTerms::new(AccessMode::Rw) }, |_| {});
    any.export.symlink(b"/usr/bin/python3", b"python").unwrap();
    assert_eq!(any.export.read_link(b"python").unwrap(), b"/usr/bin/python3");
}

#[test]
fn special_files_are_left_alone_and_never_opened() {
    let fixture = ExportFixture::new(|dir| {
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("pipe"), rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
        std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
        fs::create_dir(dir.join("d")).unwrap();
        fs::rename(dir.join("pipe"), dir.join("d/pipe")).unwrap();
    });
    let export = &fixture.export;
    assert_eq!(export.attributes(b"d/pipe").unwrap().kind, FileKind::Special);
    for path in [&b"d/pipe"[..], b"socket"] {
        for how in [READ, WRITE, FileOpenOptions { truncate: true, ..WRITE }] {
            assert_eq!(name(export.open_file(path, &how)), "denied");
        }
        assert_eq!(name(export.remove_file(path)), "denied");
        assert_eq!(name(export.rename(path, b"x", ReplaceMode::Always)), "denied");
        assert_eq!(name(export.hard_link(path, b"x")), "denied");
        assert_eq!(
            name(export.set_attributes(path, &AttributeChange { mode: Some(0), ..Default::default() })),
            "denied"
        );
    }
    assert_eq!(name(export.rename(b"d", b"e", ReplaceMode::Always)), "denied");
}

#[test]
fn writes_to_a_read_only_export_are_refused_as_such() {
    let fixture = ExportFixture::with(ExportTerms::new(AccessMode::Ro), |dir| fs::write(dir.join("f"), "x").unwrap());
    let export = &fixture.export;
    assert_eq!(fixture.read("f").unwrap(), b"x");
    let change = AttributeChange { mode: Some(0), ..AttributeChange::default() };
    for refused in [
        name(export.open_file(b"f", &WRITE)),
        name(export.open_file(b"f", &FileOpenOptions { truncate: true, ..READ })),
        name(export.open_file(b"new", &FileOpenOptions { create: CreateMode::IfMissing, ..READ })),
        name(export.make_dir(b"d", 0o755)),
        name(export.remove_file(b"f")),
        name(export.remove_dir(b"f")),
        name(export.rename(b"f", b"g", ReplaceMode::Always)),
        name(export.symlink(b"f", b"l")),
        name(export.hard_link(b"f", b"l")),
        name(export.set_attributes(b"f", &change)),
        name(export.open_file(b"f", &READ).unwrap().set_attributes(&change)),
        name(export.open_file(b"f", &READ).unwrap().write_at(0, b"y")),
    ] {
        assert_eq!(refused, "read_only");
    }
    assert_eq!(fixture.journal.take().len(), 12);
    assert!(!fixture.all.path().join("before").exists());
}

#[test]
fn hidden_entries_look_absent_and_cannot_be_created_moved_or_lost() {
    let rules = ExportPatterns { exclude: vec!["/a/private.txt".into(), "build/".into()], ..ExportPatterns::default() };
    let fixture = ExportFixture::with(ExportTerms { rules, ..ExportTerms::new(AccessMode::Rw) }, |dir| {
        fs::create_dir_all(dir.join("a/deep")).unwrap();
        fs::create_dir(dir.join("build")).unwrap();
        fs::create_dir(dir.join("only")).unwrap();
        for file in ["a/private.txt", "a/shown", "a/deep/.env", ".env", "build/x", "only/id_rsa", "f"] {
            fs::write(dir.join(file), file).unwrap();
        }
    });
    let export = &fixture.export;
    assert_eq!(fixture.names(""), ["a", "f", "only"]);
    assert_eq!(fixture.names("a"), ["deep", "shown"]);
    assert_eq!(fixture.names("only"), [""; 0]);
    for path in [&b".env"[..], b"build", b"build/x", b"a/private.txt", b".env/x", b"only/id_rsa", b".ENV"] {
        assert_eq!(name(export.attributes(path)), "not_found");
        assert_eq!(name(export.open_file(path, &READ)), "not_found");
        assert_eq!(name(export.remove_file(path)), "not_found");
        assert_eq!(name(export.rename(path, b"x", ReplaceMode::Always)), "not_found");
        assert_eq!(name(export.hard_link(path, b"x")), "not_found");
        assert_eq!(name(export.read_dir(path)), "not_found");
    }
    for path in [&b".env"[..], b"new.pem", b"New.PEM", b"a/private.txt", b"A/private.txt", b"build/new"] {
        assert_eq!(name(export.open_file(path, &NEW)), "denied");
        assert_eq!(name(export.rename(b"f", path, ReplaceMode::Always)), "denied");
        assert_eq!(name(export.hard_link(b"f", path)), "denied");
        assert_eq!(name(export.symlink(b"f", path)), "denied");
    }
    // A file can have the name of an excluded folder, but must not replace it.
    assert_eq!(name(export.rename(b"f", b"build", ReplaceMode::Always)), "denied");
    assert_eq!(name(export.make_dir(b"build", 0o755)), "denied");
    // Folders that contain hidden entries can't be moved.
    assert_eq!(name(export.rename(b"a", b"b", ReplaceMode::Always)), "denied");
    assert_eq!(name(export.rename(b"a/deep", b"b", ReplaceMode::Always)), "denied");
    assert_eq!(name(export.remove_dir(b"only")), "not_empty");
    assert_eq!(fs::read(fixture.dir().join(".env")).unwrap(), b".env");
}

#[test]
fn nothing_gets_to_places_where_git_would_run_it() {
    let fixture = ExportFixture::new(|dir| {
        fs::create_dir_all(dir.join("repo/.git/hooks")).unwrap();
        fs::create_dir_all(dir.join("evil/hooks")).unwrap();
        for file in ["repo/.git/config", "repo/.git/HEAD", "repo/.git/hooks/pre-commit", "evil/config", "f"] {
            fs::write(dir.join(file), "x").unwrap();
        }
    });
    let export = &fixture.export;
    assert_eq!(fixture.read("repo/.git/config").unwrap(), b"x");
    for path in [&b"repo/.git/config"[..], b"repo/.git/hooks/pre-commit", b"repo/.GIT/config"] {
        assert!(["denied", "not_found"].contains(&name(export.open_file(path, &WRITE))));
        assert_eq!(name(export.rename(b"f", path, ReplaceMode::Always)), "denied");
        assert_eq!(name(export.hard_link(b"f", path)), "denied");
    }
    for (from, to) in [
        (&b"evil"[..], &b".git"[..]),
        (b"evil", b"repo/.git/modules"),
        (b"evil/hooks", b"repo/.git/hooks"),
        (b"repo/.git", b"plain"),
        (b"repo/.git/hooks", b"plain"),
        (b"repo/.git/hooks/pre-commit", b"plain"),
    ] {
        assert_eq!(name(export.rename(from, to, ReplaceMode::Always)), "denied");
    }
    assert_eq!(name(export.hard_link(b"repo/.git/config", b"alias")), "denied");
    assert_eq!(name(export.remove_file(b"repo/.git/hooks/pre-commit")), "denied");
    assert_eq!(name(export.symlink(b"../evil", b"f2/.git")), "denied");
    assert_eq!(name(export.symlink(b"evil", b".git")), "denied");
    assert_eq!(name(export.open_file(b".git", &NEW)), "denied");
    // The rest of a repository is like any other file, and a complete one can be moved.
    assert_eq!(name(export.open_file(b"repo/.git/HEAD", &WRITE)), "denied");
    fixture.write("repo/.git/HEAD.lock", b"nonsense\n");
    assert_eq!(name(export.rename(b"repo/.git/HEAD.lock", b"repo/.git/HEAD", ReplaceMode::Always)), "denied");
    fixture.write("repo/.git/HEAD.lock", b"ref: refs/heads/config\n");
    let late = export.open_file(b"repo/.git/HEAD.lock", &WRITE).unwrap();
    export.rename(b"repo/.git/HEAD.lock", b"repo/.git/HEAD", ReplaceMode::Always).unwrap();
    assert_eq!(name(late.write_at(0, b"nonsense")), "denied");
    drop(late);
    export.rename(b"repo", b"moved", ReplaceMode::Never).unwrap();
    assert_eq!(fixture.read("moved/.git/config").unwrap(), b"x");
}

#[test]
fn no_repository_can_be_planted_under_another_name() {
    let fixture = ExportFixture::new(|dir| {
        for folder in
            ["mirror.git/objects", "mirror.git/refs/heads", "mirror.git/hooks", "mirror.git/info", "parts/refs"]
        {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        for file in ["mirror.git/HEAD", "mirror.git/config", "f", "parts/config", "parts/hooks"] {
            fs::write(dir.join(file), "ref: refs/heads/main\n").unwrap();
        }
    });
    let export = &fixture.export;
    // An existing one is visible, and what it runs can't be changed.
    for path in [&b"mirror.git/config"[..], b"mirror.git/hooks/post-update", b"mirror.git/info/attributes"] {
        assert_eq!(name(export.open_file(path, &NEW)), "denied");
        assert_eq!(name(export.rename(b"f", path, ReplaceMode::Always)), "denied");
    }
    assert_eq!(name(export.open_file(b"mirror.git/config", &WRITE)), "denied");
    fixture.write("mirror.git/HEAD", b"ref: refs/heads/other\n");
    // The last part of a new one is refused, in whatever order and manner it arrives.
    export.make_dir(b"parts/objects", 0o755).unwrap();
    assert_eq!(name(export.open_file(b"parts/HEAD", &NEW)), "denied");
    assert_eq!(name(export.open_file(b"parts/head", &NEW)), "denied");
    assert_eq!(name(export.rename(b"f", b"parts/HEAD", ReplaceMode::Never)), "denied");
    assert_eq!(name(export.hard_link(b"f", b"parts/HEAD")), "denied");
    assert_eq!(name(export.symlink(b"../f", b"parts/HEAD")), "denied");
    export.remove_dir(b"parts/refs").unwrap();
    fixture.write("parts/HEAD", b"ref: refs/heads/main\n");
    assert_eq!(name(export.make_dir(b"parts/refs", 0o755)), "denied");
    export.make_dir(b"other", 0o755).unwrap();
    assert_eq!(name(export.rename(b"other", b"parts/refs", ReplaceMode::Always)), "denied");
    // A file called `config` elsewhere is like any other.
    fixture.write("parts/config", b"mine");
    fixture.write("other/config", b"mine");
    let mut git = std::process::Command::new("git");
    git.arg("-C").arg(fixture.dir().join("parts")).args(["rev-parse", "--git-dir"]);
    let output = git.env("GIT_CEILING_DIRECTORIES", fixture.dir()).output().unwrap();
    assert!(!output.status.success(), "git treats it as a repository: {}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_file_with_a_name_elsewhere_is_not_changed_in_place() {
    let fixture = ExportFixture::new(|dir| {
        let outside = dir.parent().unwrap().join("outside");
        fs::write(&outside, "outside").unwrap();
        fs::hard_link(&outside, dir.join("alias")).unwrap();
        fs::write(dir.join("one"), "both").unwrap();
        fs::hard_link(dir.join("one"), dir.join("two")).unwrap();
    });
    let export = &fixture.export;
    let change = AttributeChange { mode: Some(0), size: Some(0), ..AttributeChange::default() };
    assert_eq!(name(export.open_file(b"alias", &WRITE)), "denied");
    assert_eq!(name(export.open_file(b"alias", &FileOpenOptions { truncate: true, ..WRITE })), "denied");
    assert_eq!(name(export.set_attributes(b"alias", &change)), "denied");
    // Replacing it doesn't change the other one.
    fixture.write("copy", b"mine");
    export.rename(b"copy", b"alias", ReplaceMode::Always).unwrap();
    assert_eq!(fs::read(fixture.all.path().join("outside")).unwrap(), b"outside");
    // Two names inside are one file, before and after.
    fixture.write("one", b"changed");
    assert_eq!(fixture.read("two").unwrap(), b"changed");
    export.hard_link(b"one", b"three").unwrap();
    fixture.write("three", b"again");
    assert_eq!(fixture.read("one").unwrap(), b"again");
    assert_eq!(fs::metadata(fixture.dir().join("one")).unwrap().nlink(), 3);
}

#[test]
fn non_utf8_names_and_offsets_beyond_four_gigabytes_work() {
    let fixture = ExportFixture::new(|_| {});
    let export = &fixture.export;
    export.make_dir(b"d\xff", 0o755).unwrap();
    let file = export.open_file(b"d\xff/\xfe\n", &NEW).unwrap();
    let far = 5 << 30;
    file.write_at(far, b"far").unwrap();
    let mut bytes = [0; 8];
    assert_eq!(file.read_at(far, &mut bytes).unwrap(), 3);
    assert_eq!(&bytes[..3], b"far");
    assert_eq!(file.attributes().unwrap().size, far + 3);
    drop(file);
    assert_eq!(fixture.names(""), ["d\\xff"]);
    let name = std::ffi::OsStr::from_bytes(b"d\xff/\xfe\n");
    assert_eq!(fs::metadata(fixture.dir().join(name)).unwrap().len(), far + 3);
}

#[test]
fn a_folder_that_cannot_be_exported_says_what_to_do() {
    let all = tempfile::tempdir().unwrap();
    let dir = all.path();
    fs::write(dir.join("file"), "").unwrap();
    let open = |path: &str, before: &str, rules: ExportPatterns| {
        let terms = ExportTerms { rules, ..ExportTerms::new(AccessMode::Rw) };
        Export::open(
            &dir.join(path),
            terms,
            OriginalsFolder::in_folder(dir.join(before)),
            std::sync::Arc::new(NoExportAudit),
        )
        .err()
    };
    assert!(matches!(open("missing", "b", ExportPatterns::default()), Some(ExportError::Folder { .. })));
    assert!(matches!(open("file", "b", ExportPatterns::default()), Some(ExportError::NotAFolder { .. })));
    let rules = ExportPatterns { exclude: vec!["a[".into()], ..ExportPatterns::default() };
    assert!(matches!(open("", "b", rules), Some(ExportError::Pattern { .. })));
    assert!(matches!(open("", "inside/before", ExportPatterns::default()), Some(ExportError::BeforeInside { .. })));
    assert!(!dir.join("inside").exists());
}

/// Whatever a lease does to a file with credentials, and to the folders above it, it never reads them.
#[test]
fn masked_credentials_stay_masked() {
    const LOG: &str = "0 1 A <a@b> 1 +0\tclone: from https://ann:SECRET@h/x.git\n";
    let fixture = ExportFixture::new(|dir| {
        for folder in [".cargo", ".bundle", "plain", ".git/logs/refs", ".git/objects", ".git/refs"] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        fs::write(dir.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(dir.join(".cargo/config.toml"), "[registry]\ntoken = \"SECRET\"\n").unwrap();
        fs::write(dir.join(".bundle/config"), "BUNDLE_GEMS__EXAMPLE__COM: \"ann:SECRET\"\n").unwrap();
        fs::write(dir.join("plain/.npmrc"), "//r/:_authToken=SECRET\n").unwrap();
        fs::write(dir.join(".git/logs/HEAD"), LOG).unwrap();
        fs::write(dir.join(".git/FETCH_HEAD"), LOG).unwrap();
    });
    let export = &fixture.export;
    for (from, to) in [(".cargo", "cargo"), (".bundle", "b"), (".git/logs", "logs"), (".git/logs", ".git/objects/x")] {
        assert_eq!(name(export.rename(from.as_bytes(), to.as_bytes(), ReplaceMode::Never)), "denied", "{from}");
    }
    // Where it is masked as well, it can go.
    export.rename(b"plain", b"other", ReplaceMode::Never).unwrap();
    let shown = |path: &str| String::from_utf8(fixture.read(path).unwrap()).unwrap();
    assert_eq!(shown("other/.npmrc"), "//r/:_authToken=******\n");

    for path in [".git/logs/HEAD", ".git/FETCH_HEAD"] {
        let at = LOG.find("://").unwrap() as u64;
        let end = (LOG.find("SECRET").unwrap() + 6) as u64;
        let file = export.open_file(path.as_bytes(), &WRITE).unwrap();
        assert_eq!(name(file.write_at(at, b"___")), "denied", "{path}");
        let cut = AttributeChange { size: Some(end), ..AttributeChange::default() };
        assert_eq!(name(file.set_attributes(&cut)), "denied", "{path}");
        assert_eq!(name(export.set_attributes(path.as_bytes(), &cut)), "denied", "{path}");
        assert!(!shown(path).contains("SECRET"), "{}", shown(path));
        // As git does it: appending, and writing anew.
        file.write_at(LOG.len() as u64, b"more\n").unwrap();
        assert!(
            shown(path).ends_with("more\n") && fs::read_to_string(fixture.dir().join(path)).unwrap().starts_with(LOG)
        );
        drop(file);
        let anew = FileOpenOptions { truncate: true, ..WRITE };
        export.open_file(path.as_bytes(), &anew).unwrap().write_at(0, b"new\n").unwrap();
        assert_eq!(shown(path), "new\n");
    }
}

/// Otherwise a program of the host that writes credentials there would write them into a file that the remote can read.
#[test]
fn a_name_for_credentials_is_no_link_and_has_no_second_name() {
    let fixture = ExportFixture::new(|dir| {
        fs::write(dir.join("notes.txt"), "n\n").unwrap();
        fs::write(dir.join(".npmrc"), "color=true\n").unwrap();
    });
    let export = &fixture.export;
    for path in ["sub.npmrc/.npmrc", ".yarnrc.yml", ".docker", "sub/.Docker", ".config", ".huggingface"] {
        let folder = Path::new(path).parent().unwrap();
        if folder != Path::new("") {
            fs::create_dir_all(fixture.dir().join(folder)).unwrap();
        }
        assert_eq!(name(export.symlink(b"notes.txt", path.as_bytes())), "denied", "{path}");
        export.symlink(b"notes.txt", b"link").unwrap();
        assert_eq!(name(export.rename(b"link", path.as_bytes(), ReplaceMode::Always)), "denied", "{path}");
        export.remove_file(b"link").unwrap();
    }
    for (from, to) in [(".npmrc", "notes"), ("notes.txt", ".yarnrc.yml")] {
        assert_eq!(name(export.hard_link(from.as_bytes(), to.as_bytes())), "denied", "{from} {to}");
    }
    export.symlink(b"notes.txt", b"other").unwrap();
    export.hard_link(b"notes.txt", b"copy").unwrap();
}

/// No other user of the host gets into a repository, nor is its owner kept out.
#[test]
fn the_folders_of_a_repository_are_opened_to_nobody() {
    let fixture = ExportFixture::new(|dir| {
        fs::create_dir_all(dir.join(".git/refs/heads")).unwrap();
        fs::set_permissions(dir.join(".git/refs"), fs::Permissions::from_mode(0o775)).unwrap();
    });
    let set = |path: &str, mode| {
        let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
        name(fixture.export.set_attributes(path.as_bytes(), &change))
    };
    for (path, mode, expected) in [
        (".git", 0o777, "denied"),
        (".git", 0o500, "denied"),
        (".git/refs/heads", 0o757, "denied"),
        (".git/refs/heads", 0o700, "ok"),
        (".git/refs", 0o775, "ok"),
        (".git/refs", 0o777, "denied"),
    ] {
        assert_eq!(set(path, mode), expected, "{path} {mode:o}");
    }
}

/// Git on the host believes the index. It would take a file with credentials for unchanged and replace it with what the remote
/// saw of it.
#[test]
fn an_index_says_nothing_new_of_what_the_remote_sees_only_in_part() {
    const TOKEN: &str = "//r/:_authToken=SECRET\n";
    let git = |dir: &Path, index: &Path, args: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(dir)
            .env("GIT_INDEX_FILE", index);
        let output = git.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
        assert!(output.status.success(), "{args:?} {}", String::from_utf8_lossy(&output.stderr));
    };
    let fixture = ExportFixture::new(|dir| {
        let own = &dir.join(".git/index");
        git(dir, own, &["init", "-q", "-b", "main"]);
        for (file, text) in [("x.txt", "x\n"), (".npmrc", "color=true\n"), (".env", "KEY=1\n"), ("sub.txt", "s\n")] {
            fs::write(dir.join(file), text).unwrap();
        }
        git(dir, own, &["add", "-A"]);
        git(dir, own, &["commit", "-q", "-m", "first"]);
        fs::write(dir.join(".npmrc"), TOKEN).unwrap();
    });
    let (dir, seen, staged) = (fixture.dir(), fixture.all.path().join("seen"), fixture.all.path().join("staged"));
    fs::create_dir(&seen).unwrap();
    for file in ["x.txt", ".npmrc", "sub.txt"] {
        fs::write(seen.join(file), fixture.read(file).unwrap()).unwrap();
    }
    fs::write(seen.join("x.txt"), "y\n").unwrap();
    // As the remote's git does it, with these arguments.
    let stage = |args: &[&str]| {
        fs::copy(dir.join(".git/index"), &staged).unwrap();
        let git_dir = format!("--git-dir={}", dir.join(".git").display());
        git(&seen, &staged, &[&[&git_dir, "--work-tree=."], args].concat());
        fixture.write(".git/index.lock", &fs::read(&staged).unwrap());
        name(fixture.export.rename(b".git/index.lock", b".git/index", ReplaceMode::Always))
    };
    for refused in [&["add", "-A"][..], &["add", "-u"], &["add", ".npmrc"], &["rm", "-q", "--cached", ".env"]] {
        assert_eq!(stage(refused), "denied", "{refused:?}");
    }
    // What git stash would do: remove it, and make it again as the remote sees it.
    assert_eq!(name(fixture.export.remove_file(b".npmrc")), "denied");
    assert_eq!(stage(&["add", "x.txt"]), "ok");
    assert_eq!(stage(&["rm", "-q", "--cached", "sub.txt"]), "ok");
    // An index that isn't there says nothing of what a new one would leave out.
    assert_eq!(name(fixture.export.remove_file(b".git/index")), "denied");
    assert_eq!(name(fixture.export.rename(b".git/index", b".git/index.lock", ReplaceMode::Always)), "denied");
    // Where the files of another working tree are isn't certain.
    for other in [".git/worktrees/other", ".git/modules/other"] {
        fs::create_dir_all(dir.join(other)).unwrap();
        fs::copy(dir.join(".git/index"), dir.join(other).join("index")).unwrap();
        for (file, expected) in [("added.txt", "ok"), ("below/.npmrc", "denied")] {
            fs::copy(dir.join(other).join("index"), &staged).unwrap();
            fs::create_dir_all(seen.join("below")).unwrap();
            fs::write(seen.join(file), "token=******\n").unwrap();
            let git_dir = format!("--git-dir={}", dir.join(".git").display());
            git(&seen, &staged, &[&git_dir, "--work-tree=.", "add", file]);
            let [lock, index] = ["index.lock", "index"].map(|name| format!("{other}/{name}"));
            fixture.write(&lock, &fs::read(&staged).unwrap());
            let replaced = fixture.export.rename(lock.as_bytes(), index.as_bytes(), ReplaceMode::Always);
            assert_eq!(name(replaced), expected, "{other} {file}");
        }
    }
    // Without credentials, it is shown as it is.
    fs::write(dir.join(".npmrc"), "color=false\n").unwrap();
    assert_eq!(stage(&["add", ".npmrc"]), "ok");
}

/// The remote says that a file has the times of its new content, and the old content. Git on the host sees it all the same
/// once the lease has ended.
#[test]
fn an_index_hides_no_change_from_the_host() {
    let fixture = ExportFixture::new(|dir| {
        fs::write(dir.join("Makefile"), "all:\n\ttrue\n").unwrap();
        git_output(dir, &["init", "-q", "-b", "main"]);
        git_output(dir, &["add", "-A"]);
        git_output(dir, &["commit", "-q", "-m", "first"]);
    });
    let dir = fixture.dir();
    let id = |what: &str| -> Vec<u8> {
        let id = git_output(&dir, &["rev-parse", what]);
        (0..id.len() / 2).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap()).collect()
    };
    let before = id("HEAD:Makefile");
    fixture.write("Makefile", b"all:\n\tevil\n");
    let hour_ago = FileTime { seconds: 1_700_000_000, nanos: 0 };
    let change = AttributeChange { modified: Some(hour_ago), ..AttributeChange::default() };
    fixture.export.set_attributes(b"Makefile", &change).unwrap();
    git_output(&dir, &["-c", "index.skipHash=true", "add", "Makefile"]);
    let after = id(":Makefile");
    let mut index = fs::read(dir.join(".git/index")).unwrap();
    let at = index.windows(after.len()).position(|window| window == after).unwrap();
    index[at..at + before.len()].copy_from_slice(&before);
    fixture.write(".git/index.lock", &index);
    fixture.export.rename(b".git/index.lock", b".git/index", ReplaceMode::Always).unwrap();
    let status = || git_output(&dir, &["--no-optional-locks", "status", "--porcelain"]);
    assert_eq!(status(), "", "git believes it");
    fixture.export.revoke();
    assert_eq!(status(), "M Makefile");
}

fn git_output(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args).current_dir(dir);
    let output = git.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "{args:?} {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn reading_a_masked_file_far_behind_its_end_reads_nothing() {
    let fixture = ExportFixture::new(|dir| fs::write(dir.join(".npmrc"), "//r/:_authToken=SECRET\n").unwrap());
    let file = fixture.export.open_file(b".npmrc", &READ).unwrap();
    for offset in [23, 1 << 47, u64::MAX] {
        assert_eq!(file.read_at(offset, &mut [0; 10]).unwrap(), 0, "{offset}");
    }
    let mut end = [0; 10];
    assert_eq!(file.read_at(16, &mut end).unwrap(), 7);
    assert_eq!(&end[..7], b"******\n");
}

/// A path costs a remote nothing, so what can't be one isn't recorded.
#[test]
fn a_path_that_is_too_long_leaves_no_trace() {
    let fixture = ExportFixture::new(|_| {});
    let (export, long) = (&fixture.export, vec![1; 4096]);
    let refusals = [
        name(export.make_dir(&long, 0o755)),
        name(export.open_file(&long, &NEW)),
        name(export.rename(b"a", &long, ReplaceMode::Never)),
        name(export.symlink(&long, b"a")),
        name(export.attributes(&long)),
    ];
    assert!(refusals.iter().all(|refusal| *refusal == refusals[0] && *refusal != "ok"), "{refusals:?}");
    assert_eq!(fixture.journal.take(), [] as [&str; 0]);
}
