//! Archives of hostile and of forgetful programs.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use miniz_oxide::deflate::compress_to_vec;
use proptest::prelude::*;

use super::{zip_writer::ZipWriter, *};

const LIMITS: ArchiveLimits = ArchiveLimits { packed: 1 << 20, entries: 50, file: 1 << 20, unpacked: 2 << 20 };
const NAME: &str = "workspace";

/// A folder to work in and one for staged files, on one file system.
struct TestFolders {
    root: tempfile::TempDir,
}

impl TestFolders {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("copy")).unwrap();
        fs::create_dir(root.path().join("staging")).unwrap();
        Self { root }
    }

    fn copy(&self) -> std::path::PathBuf {
        self.root.path().join("copy")
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.copy().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.copy().join(path)).unwrap_or_else(|error| error.kind().to_string())
    }

    fn pack(&self) -> PackedFolder {
        pack(&self.copy(), NAME, LIMITS, &|| false).unwrap()
    }

    fn unpack(&self, archive: &[u8]) -> Result<(), ArchiveError> {
        let archive = ZipArchive::read(archive, LIMITS, &|| false)?;
        unpack(&archive, &self.copy(), &[NAME.to_owned()].into(), &self.root.path().join("staging"), &|| false)
    }

    fn apply(&self, archive: &[u8], sent: &SentFiles) -> AppliedArchive {
        self.apply_while(archive, sent, &|| false).unwrap()
    }

    fn apply_while(
        &self,
        archive: &[u8],
        sent: &SentFiles,
        is_cancelled: IsCancelled<'_>,
    ) -> Result<AppliedArchive, ArchiveError> {
        let archive = ZipArchive::read(archive, LIMITS, &|| false)?;
        let folders = (&*self.copy(), &*self.root.path().join("staging"));
        apply(&archive, NAME, sent, folders, LIMITS, is_cancelled)
    }

    /// Every path with its content.
    fn all(&self) -> BTreeMap<String, Vec<u8>> {
        fn visit(folder: &Path, prefix: &str, found: &mut BTreeMap<String, Vec<u8>>) {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
                match entry.file_type().unwrap().is_dir() {
                    true => visit(&entry.path(), &format!("{name}/"), found),
                    false => drop(found.insert(name, fs::read(entry.path()).unwrap())),
                }
            }
        }
        let mut found = BTreeMap::new();
        visit(self.root.path(), "", &mut found);
        found
    }
}

fn archive(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(ArchiveLimits::default());
    for (name, content) in entries {
        let mode = if name.ends_with('/') { 0o040_755 } else { 0o100_644 };
        writer.entry(name, content.as_bytes(), mode).unwrap();
    }
    writer.finish()
}

/// Changes bytes of the directory's first entry, or of the header before its data.
fn patched(mut archive: Vec<u8>, record: &[u8; 4], at: usize, bytes: &[u8]) -> Vec<u8> {
    let start = archive.windows(4).position(|window| window == record).unwrap() + at;
    archive[start..start + bytes.len()].copy_from_slice(bytes);
    archive
}

/// Bytes that can't be packed any smaller.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[track_caller]
fn refused(archive: &[u8]) -> String {
    let folders = TestFolders::new();
    let error = folders.unpack(archive).expect_err("it was unpacked").to_string();
    assert_eq!(folders.all(), BTreeMap::new(), "something was written");
    error
}

#[test]
fn no_entry_leads_out_of_the_folder() {
    let entry = |name: &str, what: &str| format!("the archive is refused: `{}` {what}", name.escape_debug());
    let long = format!("workspace/{}", "x".repeat(256));
    let deep = format!("workspace/{}x", "d/".repeat(2100));
    for (name, what) in [
        ("../evil", "leads out of the folder"),
        ("workspace/../../evil", "leads out of the folder"),
        ("workspace/./evil", "leads out of the folder"),
        ("/etc/cron.d/evil", "is an absolute path"),
        ("C:/evil", "is an absolute path"),
        ("workspace\\..\\evil", "has a name with a backslash or NUL"),
        ("workspace/evil\0.txt", "has a name with a backslash or NUL"),
        ("workspace//evil", "has an empty name"),
        ("", "has an empty name"),
        (&long, "has a name that is too long"),
        (&deep, "has a name that is too long"),
    ] {
        // Also after a good one, which isn't written either.
        assert_eq!(refused(&archive(&[("workspace/good", "good"), (name, "evil")])), entry(name, what));
    }
}

#[test]
fn only_files_and_folders_are_unpacked() {
    let of_mode = |name: &str, mode: u32| {
        let mut writer = ZipWriter::new(LIMITS);
        writer.entry(name, b"/etc/passwd", mode).unwrap();
        refused(&writer.finish())
    };
    assert_eq!(of_mode("workspace/x", 0o120_777), "the archive is refused: `workspace/x` is a link");
    for special in [0o010_644, 0o020_644, 0o060_644, 0o140_644, 0o040_755] {
        assert_eq!(
            of_mode("workspace/x", special),
            "the archive is refused: `workspace/x` is neither a file nor a folder"
        );
    }
    assert_eq!(of_mode("workspace/x/", 0o040_755), "the archive is refused: `workspace/x/` is a folder with data");
    let below = archive(&[("workspace/x", "a file"), ("workspace/x/y", "below it")]);
    assert_eq!(refused(&below), "the archive is refused: `workspace/x/y` is below a file");
    let top = archive(&[("workspace", "a file")]);
    assert_eq!(refused(&top), "the archive is refused: `workspace` is a file in place of a folder");
}

#[test]
fn a_name_is_in_it_once() {
    let twice = archive(&[("workspace/x", "one"), ("workspace/x", "two")]);
    assert_eq!(refused(&twice), "the archive is refused: `workspace/x` is in it twice");
    let as_both = archive(&[("workspace/x", "one"), ("workspace/x/", "")]);
    assert_eq!(refused(&as_both), "the archive is refused: `workspace/x` is in it twice");
    // Here, these are two files.
    let folders = TestFolders::new();
    folders.unpack(&archive(&[("workspace/x", "one"), ("workspace/X", "two")])).unwrap();
    assert_eq!((folders.read("workspace/x"), folders.read("workspace/X")), ("one".to_owned(), "two".to_owned()));
}

#[test]
fn bombs_are_not_unpacked() {
    // Says how large it is: more than is allowed.
    let mut writer = ZipWriter::new(ArchiveLimits::default());
    writer.file("workspace/zeros", &vec![0; 2 << 20], 0o644).unwrap();
    let honest = writer.finish();
    assert!(honest.len() < 10_000, "{} bytes", honest.len());
    assert_eq!(refused(&honest), "the archive is refused: `workspace/zeros` is too large");
    // Says that it is small.
    let small = 1000_u32.to_le_bytes();
    let lying = patched(patched(honest, b"PK\x01\x02", 24, &small), b"PK\x03\x04", 22, &small);
    assert_eq!(refused(&lying), "the archive is refused: `workspace/zeros` has data that doesn't match its size");
    // Many that are not too large on their own.
    let mut writer = ZipWriter::new(ArchiveLimits::default());
    for number in 0..3 {
        writer.file(&format!("workspace/{number}"), &vec![0; 1 << 20], 0o644).unwrap();
    }
    assert_eq!(refused(&writer.finish()), "the archive is refused: it has more than 2097152 bytes when unpacked");
    let names: Vec<String> = (0..51).map(|number| format!("workspace/{number}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "")).collect();
    assert_eq!(refused(&archive(&many)), "the archive is refused: it has more than 50 entries");
    let mut writer = ZipWriter::new(ArchiveLimits::default());
    writer.file("workspace/noise", &noise(1 << 20), 0o644).unwrap();
    assert_eq!(refused(&writer.finish()), "the archive is refused: it has more than 1048576 bytes");
}

/// An entry of a few bytes can name folders without end.
#[test]
fn folders_that_are_only_named_count() {
    let too_many = "the archive is refused: it has more than 50 entries";
    let nested = |depth: usize| format!("workspace/{}", "d/".repeat(depth));
    assert_eq!(refused(&archive(&[(&nested(50), "")])), too_many);
    let names: Vec<String> = (0..25).map(|number| format!("workspace/{number}/file")).collect();
    let mut entries: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "")).collect();
    assert_eq!(refused(&archive(&entries)), too_many);
    // With the folder that all of them are in, these are just as many as may be.
    entries.pop();
    entries.push(("workspace/last", ""));
    TestFolders::new().unpack(&archive(&entries)).unwrap();
    let deep = format!("{}file", nested(64));
    let too_deep = format!("the archive is refused: `{deep}` is in too many folders");
    assert_eq!(refused(&archive(&[(&deep, "")])), too_deep);
}

#[test]
fn a_folder_that_is_too_deep_is_left_out() {
    let folders = TestFolders::new();
    let deep = format!("{}file", "d/".repeat(63));
    folders.write(&deep, "deep");
    folders.write("file", "");
    let limits = ArchiveLimits { entries: 100, ..LIMITS };
    let packed = pack(&folders.copy(), NAME, limits, &|| false).unwrap();
    assert_eq!(packed.left_out, [deep]);
    assert!(ZipArchive::read(&packed.archive, limits, &|| false).is_ok());
}

#[test]
fn nothing_goes_on_after_the_end() {
    let folders = TestFolders::new();
    let returned = archive(&[("workspace/a", "a"), ("workspace/b", "b"), ("workspace/c", "c")]);
    let asked = std::cell::Cell::new(0);
    let after_the_first = || asked.replace(asked.get() + 1) > 0;
    let ended = folders.apply_while(&returned, &SentFiles::new(), &after_the_first);
    assert!(matches!(ended, Err(ArchiveError::Cancelled)), "{ended:?}");
    assert_eq!(folders.all().keys().collect::<Vec<_>>(), ["copy/a"]);
    assert!(matches!(ZipArchive::read(&returned, LIMITS, &|| true), Err(ArchiveError::Cancelled)));
    assert!(matches!(pack(&folders.copy(), NAME, LIMITS, &|| true), Err(ArchiveError::Cancelled)));
}

/// The same data behind two names.
#[test]
fn entries_share_no_data() {
    let two = archive(&[("workspace/a", "same data"), ("workspace/b", "same data")]);
    let second = two.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    let mut shared = two;
    shared[second + 42..second + 46].copy_from_slice(&0_u32.to_le_bytes());
    // The header has the other name.
    assert_eq!(refused(&shared), "the archive is refused: `workspace/b` has a header that contradicts the directory");
    let one = archive(&[("workspace/a", "same data")]);
    let start = one.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let end = one.len() - 22;
    let mut shared = [&one[..end], &one[start..end], &one[end..]].concat();
    let at = shared.len() - 22;
    shared[at + 8..at + 12].copy_from_slice(&[2, 0, 2, 0]);
    let size = u32::try_from(2 * (end - start)).unwrap();
    shared[at + 12..at + 16].copy_from_slice(&size.to_le_bytes());
    assert_eq!(refused(&shared), "the archive is refused: `workspace/a` is in it twice");
    let content = [inner(), noise(400)].concat();
    let mut writer = ZipWriter::new(LIMITS);
    writer.file("workspace/a", &content, 0o644).unwrap();
    let inside = writer.finish();
    let mut nested = inside.clone();
    let directory = inside.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let entry = inner_entry(inside.windows(4).rposition(|window| window == b"PK\x03\x04").unwrap());
    nested.splice(inside.len() - 22..inside.len() - 22, entry.iter().copied());
    let at = nested.len() - 22;
    nested[at + 8..at + 12].copy_from_slice(&[2, 0, 2, 0]);
    let size = u32::try_from(at - directory).unwrap();
    nested[at + 12..at + 16].copy_from_slice(&size.to_le_bytes());
    assert_eq!(refused(&nested), "the archive is invalid: its entries overlap");
}

/// The header and data of an entry, which is the content of another one.
fn inner() -> Vec<u8> {
    let whole = archive(&[("workspace/b", "in")]);
    let directory = whole.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    // Its checksum may not be text.
    let inner = patched(whole, b"PK\x03\x04", 14, &[0; 4]);
    inner[..directory].to_vec()
}

fn inner_entry(offset: usize) -> Vec<u8> {
    let whole = patched(archive(&[("workspace/b", "in")]), b"PK\x01\x02", 16, &[0; 4]);
    let directory = whole.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let mut entry = whole[directory..whole.len() - 22].to_vec();
    entry[42..46].copy_from_slice(&u32::try_from(offset).unwrap().to_le_bytes());
    entry
}

#[test]
fn what_contradicts_itself_is_refused() {
    let good = || archive(&[("workspace/x", "content")]);
    let entry = |what: &str| format!("the archive is refused: `workspace/x` {what}");
    let both =
        |at: usize, bytes: &[u8]| patched(patched(good(), b"PK\x01\x02", at + 2, bytes), b"PK\x03\x04", at, bytes);
    for (archive, what) in [
        (both(6, &[1, 8]), "is encrypted"),
        (both(8, &[99, 0]), "is packed in an unknown way"),
        (both(14, &[0; 4]), "has a wrong checksum"),
        (both(18, &[3, 0, 0, 0]), "has data that doesn't match its size"),
        (both(22, &[0xff; 4]), "needs ZIP64"),
        (patched(good(), b"PK\x03\x04", 14, &[0; 4]), "has a header that contradicts the directory"),
        (patched(good(), b"PK\x03\x04", 30, b"W"), "has a header that contradicts the directory"),
        (patched(good(), b"PK\x01\x02", 42, &[1, 0, 0, 0]), "has no data"),
        (patched(good(), b"PK\x01\x02", 34, &[1, 0]), "is in another part"),
    ] {
        assert_eq!(refused(&archive), entry(what));
    }
    let invalid = |what: &str| format!("the archive is invalid: {what}");
    let no_end = invalid("it has no end, or something follows it");
    assert_eq!(refused(b""), no_end);
    assert_eq!(refused(&[&good()[..], b"more"].concat()), no_end);
    assert_eq!(refused(&good()[..good().len() - 1]), no_end);
    assert_eq!(refused(&[b"#!/bin/sh\n", &good()[..]].concat()), invalid("its directory isn't where its end says"));
    assert_eq!(refused(&patched(good(), b"PK\x05\x06", 8, &[2, 0, 2, 0])), invalid("it is cut off"));
    assert_eq!(refused(&patched(good(), b"PK\x05\x06", 8, &[0, 0, 0, 0])), invalid("it has more entries than it says"));
    assert_eq!(refused(&patched(good(), b"PK\x05\x06", 8, &[0xff; 4])), invalid("ZIP64 is not supported"));
    assert_eq!(refused(&patched(good(), b"PK\x05\x06", 4, &[1, 0])), invalid("it has several parts"));
}

/// Programs that write while they compress know sizes only afterwards.
#[test]
fn sizes_may_follow_the_data() {
    let content = b"content content content";
    let packed = compress_to_vec(content, 6);
    let mut writer = ZipWriter::new(LIMITS);
    writer.file("workspace/x", content, 0o755).unwrap();
    let known = writer.finish();
    let flagged = patched(patched(known, b"PK\x01\x02", 8, &[8, 8]), b"PK\x03\x04", 6, &[8, 8]);
    let mut follows = patched(flagged, b"PK\x03\x04", 14, &[0; 12]);
    let at = 30 + "workspace/x".len() + packed.len();
    let descriptor: Vec<u8> = b"PK\x07\x08".iter().chain(&[0; 12]).copied().collect();
    follows.splice(at..at, descriptor);
    let end = follows.len() - 22;
    let start = u32::try_from(at + 16).unwrap();
    follows[end + 16..end + 20].copy_from_slice(&start.to_le_bytes());
    let folders = TestFolders::new();
    folders.unpack(&follows).unwrap();
    assert_eq!(folders.read("workspace/x").as_bytes(), content);
    let mode = fs::metadata(folders.copy().join("workspace/x")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn links_and_odd_names_are_not_packed() {
    let folders = TestFolders::new();
    folders.write("src/main.rs", "fn main() {}");
    folders.write("a\\b", "odd");
    fs::create_dir(folders.copy().join("empty")).unwrap();
    fs::write(folders.root.path().join("secret"), "outside").unwrap();
    symlink("../secret", folders.copy().join("link")).unwrap();
    symlink(folders.root.path(), folders.copy().join("linked")).unwrap();
    let packed = folders.pack();
    assert_eq!(packed.left_out, ["a\\\\b", "link", "linked"]);
    let archive = ZipArchive::read(&packed.archive, LIMITS, &|| false).unwrap();
    let names: Vec<&str> = archive.entries.keys().map(String::as_str).collect();
    assert_eq!(names, ["workspace", "workspace/empty", "workspace/src", "workspace/src/main.rs"]);
    let small = ArchiveLimits { file: 3, ..LIMITS };
    let error = pack(&folders.copy(), NAME, small, &|| false).unwrap_err().to_string();
    assert_eq!(error, "the folder is too large for an archive: it has more than 3 bytes in one file");
    let few = ArchiveLimits { entries: 3, ..LIMITS };
    let error = pack(&folders.copy(), NAME, few, &|| false).unwrap_err().to_string();
    assert_eq!(error, "the folder is too large for an archive: it has more than 3 entries");
}

#[test]
fn only_what_differs_is_applied() {
    let folders = TestFolders::new();
    for (path, text) in [("run.sh", "#!/bin/sh"), ("old/a", "a"), ("old/b", "b"), ("kept", "kept"), ("edit", "1")] {
        folders.write(path, text);
    }
    let script = folders.copy().join("run.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    symlink("kept", folders.copy().join("link")).unwrap();
    fs::create_dir(folders.copy().join("empty")).unwrap();
    let sent = folders.pack().files;
    let before = fs::metadata(&script).unwrap().modified().unwrap();
    // It has no modes, no link and no empty folder any more, like that of a program that knows only contents.
    let back = archive(&[
        ("workspace/run.sh", "#!/bin/sh"),
        ("workspace/kept", "kept"),
        ("workspace/edit", "2"),
        ("workspace/new/file", "new"),
        (".awcp/manifest.json", "{}"),
        ("other/file", "of another resource"),
    ]);
    let applied = folders.apply(&back, &sent);
    assert_eq!(applied, AppliedArchive { changed: 4, is_absent: false, conflicts: Vec::new() });
    let all: Vec<String> = folders.all().into_keys().collect();
    assert_eq!(all, ["copy/edit", "copy/kept", "copy/link", "copy/new/file", "copy/run.sh"]);
    assert_eq!((folders.read("edit"), folders.read("new/file")), ("2".to_owned(), "new".to_owned()));
    assert!(!folders.copy().join("old").exists() && folders.copy().join("empty").exists());
    assert!(folders.copy().join("link").is_symlink());
    let after = fs::metadata(&script).unwrap();
    assert_eq!((after.permissions().mode() & 0o777, after.modified().unwrap()), (0o750, before));
}

#[test]
fn a_file_becomes_a_folder_and_the_other_way_round() {
    let folders = TestFolders::new();
    folders.write("file", "1");
    folders.write("folder/a", "2");
    let sent = folders.pack().files;
    let back = archive(&[("workspace/file/a", "3"), ("workspace/folder", "4")]);
    assert_eq!(folders.apply(&back, &sent).conflicts, Vec::<String>::new());
    assert_eq!((folders.read("file/a"), folders.read("folder")), ("3".to_owned(), "4".to_owned()));
}

/// Nothing that was changed here meanwhile is overwritten or removed.
#[test]
fn edits_made_meanwhile_stay() {
    let folders = TestFolders::new();
    for path in ["both", "removed", "mine", "theirs"] {
        folders.write(path, "1");
    }
    symlink("mine", folders.copy().join("link")).unwrap();
    let sent = folders.pack().files;
    for path in ["both", "removed", "mine"] {
        folders.write(path, "edited here");
    }
    folders.write("new", "new here");
    fs::remove_file(folders.copy().join("theirs")).unwrap();
    let back = archive(&[
        ("workspace/both", "theirs"),
        ("workspace/mine", "1"),
        ("workspace/theirs", "changed"),
        ("workspace/new", "also new"),
        ("workspace/link", "a file"),
    ]);
    let applied = folders.apply(&back, &sent);
    assert_eq!(
        applied.conflicts,
        [
            "removed: the remote removed it, but it was changed here: it stays",
            "both: it was also changed here: the remote's version is in both.remote-conflict",
            "link: something other than a file is here, which was not sent: it stays",
            "new: it was also changed here: the remote's version is in new.remote-conflict",
        ]
    );
    let read = |path: &str| folders.read(path);
    assert_eq!(["both", "removed", "mine", "new"].map(read), ["edited here", "edited here", "edited here", "new here"]);
    assert_eq!(["both.remote-conflict", "new.remote-conflict", "theirs"].map(read), ["theirs", "also new", "changed"]);
    assert!(folders.copy().join("link").is_symlink());
}

/// A link in the copy is never written through.
#[test]
fn a_link_in_the_place_of_a_folder_is_not_followed() {
    let folders = TestFolders::new();
    folders.write("folder/file", "1");
    let sent = folders.pack().files;
    fs::remove_dir_all(folders.copy().join("folder")).unwrap();
    let outside = folders.root.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, folders.copy().join("folder")).unwrap();
    let applied = folders.apply(&archive(&[("workspace/folder/file", "2")]), &sent);
    assert_eq!(applied.conflicts, ["folder/file: its folder is something else here: it was left out"]);
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}

#[test]
fn an_archive_without_the_folder_removes_nothing() {
    let folders = TestFolders::new();
    folders.write("file", "1");
    let sent = folders.pack().files;
    assert!(folders.apply(&archive(&[("workspaces/other", "2")]), &sent).is_absent);
    assert_eq!(folders.read("file"), "1");
    // One with an empty folder does.
    assert_eq!(folders.apply(&archive(&[("workspace/", "")]), &sent).changed, 1);
    assert_eq!(folders.read("file"), "entity not found");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_packed_is_what_is_unpacked(
        files in proptest::collection::btree_map("[a-c]{1,2}(/[d-fß]{1,2}){0,2}", proptest::collection::vec(any::<u8>(), 0..200), 0..12),
    ) {
        let (from, to) = (TestFolders::new(), TestFolders::new());
        for (path, content) in &files {
            let path = from.copy().join(path);
            if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.exists() {
                fs::write(path, content).unwrap();
            }
        }
        to.unpack(&from.pack().archive).unwrap();
        let moved = from.all().into_iter().map(|(path, content)| (path.replacen("copy/", "copy/workspace/", 1), content));
        prop_assert_eq!(moved.collect::<BTreeMap<_, _>>(), to.all());
    }

    /// Whatever one byte becomes, an archive is refused or has the same files.
    #[test]
    fn no_damage_goes_unnoticed(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let good = archive(&[("workspace/a", "some content, some content"), ("workspace/b/c", "more")]);
        let mut bad = good.clone();
        let at = at.index(bad.len());
        bad[at] = byte;
        let (Ok(good), Ok(bad)) = (ZipArchive::read(&good, LIMITS, &|| false), ZipArchive::read(&bad, LIMITS, &|| false)) else { return Ok(()) };
        for name in bad.entries.keys().filter(|name| good.entries.contains_key(*name)) {
            prop_assert_eq!(good.content(name).unwrap(), bad.content(name).unwrap());
        }
    }
}
