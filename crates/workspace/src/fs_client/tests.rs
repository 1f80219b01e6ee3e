//! The tree against reports that arrive in any order.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use proptest::prelude::*;

use super::{
    listing_parts::ListingParts,
    tree::{Confirmation, HostClock, Invalidation, Lookup, ROOT, Tree, TreeFull},
};
use crate::{
    export::{FileKind, FileTime},
    fs_wire::{FsAttributes, FsEntry, FsListing, FsReply, FsTreeChange},
};

fn attributes(kind: FileKind, inode: u64, version: u64) -> FsAttributes {
    let time = FileTime { seconds: version.cast_signed(), nanos: 0 };
    let (accessed, modified, changed) = (time, time, time);
    FsAttributes { kind, mode: 0o644, links: 1, inode, size: version, accessed, modified, changed }
}

fn file(inode: u64, version: u64) -> FsEntry {
    FsEntry { attributes: attributes(FileKind::File, inode, version), target: None }
}

fn folder(inode: u64) -> FsEntry {
    FsEntry { attributes: attributes(FileKind::Folder, inode, 1), target: None }
}

fn listing(path: &str, own: u64, stamp: u64, entries: &[(&str, FsEntry)]) -> FsListing {
    FsListing {
        id: 0,
        path: path.as_bytes().to_vec(),
        stamp,
        is_watched: true,
        is_last: true,
        own: attributes(FileKind::Folder, own, 1),
        entries: entries.iter().map(|(name, entry)| (name.as_bytes().to_vec(), entry.clone())).collect(),
    }
}

fn change(path: &str, own: u64, stamp: u64, name: &str, entry: Option<FsEntry>) -> FsTreeChange {
    let own = attributes(FileKind::Folder, own, 1);
    FsTreeChange { stamp, folder: path.as_bytes().to_vec(), own, name: name.as_bytes().to_vec(), entry }
}

fn confirmed(stamp: u64, before: Option<FsAttributes>, now: FsAttributes) -> Confirmation {
    Confirmation { stamp, before, now: Some(now) }
}

/// Of the same size, so that only its times tell it from another.
fn version(inode: u64, time: i64) -> FsAttributes {
    let time = FileTime { seconds: time, nanos: 0 };
    FsAttributes { modified: time, changed: time, ..attributes(FileKind::File, inode, 8) }
}

/// The kernel knows `a`, and its content is kept here.
fn tree_with_file() -> Tree {
    let mut tree = tree();
    let entry = FsEntry { attributes: version(10, 1), target: None };
    tree.apply_listing(&listing("", 99, 1, &[("a", entry)]), Instant::now()).unwrap();
    tree.node_mut(10).unwrap().lookups = 1;
    assert!(tree.keep_content(10, &version(10, 1), Arc::from(*b"content1")));
    tree
}

/// A hostile host would fill the memory of the remote with them.
#[test]
fn listings_that_never_end_are_refused() {
    let mut parts = ListingParts::default();
    let part = |path: &str, name: &str, is_last| FsListing { is_last, ..listing(path, 1, 7, &[(name, file(10, 1))]) };
    assert_eq!(parts.add(part("a", "x", false)), Ok(None));
    let whole = parts.add(part("a", "y", true)).unwrap().unwrap();
    assert_eq!(whole.entries.iter().map(|(name, _)| name.as_slice()).collect::<Vec<_>>(), [b"x", b"y"]);
    // One that began anew replaces the first.
    assert_eq!(parts.add(part("b", "x", false)), Ok(None));
    let anew = FsListing { stamp: 8, ..part("b", "z", true) };
    assert_eq!(parts.add(anew.clone()), Ok(Some(anew)));
    let long = "n".repeat(1 << 20);
    let refused = (0..1000).any(|number| parts.add(part(&number.to_string(), &long, false)).is_err());
    assert!(refused);
}

fn tree() -> Tree {
    Tree::new(1000, 1 << 20)
}

proptest! {
    /// Each change is reported as it was when the host looked. Whatever the order of arrival, the last look counts.
    #[test]
    fn the_newest_report_counts(
        changes in proptest::collection::vec((0_usize..4, proptest::option::of(10_u64..14)), 1..24),
        order in any::<u64>(),
    ) {
        let now = Instant::now();
        let names = ["a", "b", "c", "d"];
        let mut truth: BTreeMap<&str, Option<(u64, u64)>> = BTreeMap::new();
        let mut reports = Vec::new();
        for (at, (name, inode)) in changes.into_iter().enumerate() {
            let stamp = at as u64 + 2;
            // Each name has numbers of its own, so that no two names share a file.
            let entry = inode.map(|inode| (inode * 10 + name as u64, stamp));
            truth.insert(names[name], entry);
            reports.push(change("", 99, stamp, names[name], entry.map(|(inode, version)| file(inode, version))));
        }
        let mut dice = order;
        let mut tree = tree();
        tree.apply_listing(&listing("", 99, 1, &[]), now).unwrap();
        while !reports.is_empty() {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let report = reports.swap_remove(usize::try_from(dice >> 33).unwrap() % reports.len());
            tree.apply_change(&report, now);
        }
        // A listing that was made before all of them changes nothing.
        tree.apply_listing(&listing("", 99, 1, &[("a", file(1, 1))]), now).unwrap();
        for (name, expected) in truth {
            let found = tree.look_up(ROOT, name.as_bytes(), now);
            match expected {
                None => prop_assert_eq!(found, Lookup::Free),
                Some((inode, version)) => {
                    prop_assert_eq!(found, Lookup::Found(inode));
                    prop_assert_eq!(tree.node(inode).unwrap().attributes.size, version);
                }
            }
        }
    }
}

#[test]
fn the_kernel_forgets_only_what_it_knows() {
    let now = Instant::now();
    let mut tree = tree();
    assert_eq!(tree.apply_listing(&listing("", 99, 1, &[("a", file(10, 1)), ("d", folder(20))]), now).unwrap(), []);
    assert_eq!(tree.apply_listing(&listing("d", 20, 2, &[("x", file(30, 1))]), now).unwrap(), []);
    // Nobody looked yet.
    assert_eq!(tree.apply_change(&change("", 99, 3, "a", Some(file(10, 2))), now), []);
    for ino in [10, 20, 30] {
        tree.node_mut(ino).unwrap().lookups = 1;
    }
    assert_eq!(tree.apply_change(&change("", 99, 4, "a", Some(file(10, 3))), now), [Invalidation::Content(10)]);
    assert_eq!(tree.apply_change(&change("", 99, 5, "a", Some(file(10, 3))), now), [], "nothing is new");
    // Another file with this name, and a name that was shown as free.
    let entry = |folder, name: &str| Invalidation::Entry { folder, name: name.as_bytes().to_vec() };
    assert_eq!(tree.apply_change(&change("", 99, 6, "a", Some(file(11, 1))), now), [entry(ROOT, "a")]);
    assert!(tree.note_free(ROOT));
    assert_eq!(tree.apply_change(&change("", 99, 7, "new", Some(file(12, 1))), now), [entry(ROOT, "new")]);
    // What is below a folder goes with it.
    assert_eq!(tree.apply_change(&change("", 99, 8, "d", None), now), [entry(ROOT, "d")]);
    assert_eq!(tree.path(30), None);
}

/// Its number says nothing: a new folder often gets that of a removed one.
#[test]
fn a_listing_from_before_a_folder_was_made_again_is_ignored() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[("d", folder(20))]), now).unwrap();
    tree.apply_listing(&listing("d", 20, 2, &[("old", file(30, 1))]), now).unwrap();
    tree.apply_change(&change("", 99, 4, "d", None), now);
    tree.apply_change(&change("", 99, 5, "d", Some(folder(20))), now);
    tree.apply_listing(&listing("d", 20, 3, &[("old", file(30, 1))]), now).unwrap();
    assert!(!tree.is_known_folder(20), "nobody watches it for us");
    tree.apply_listing(&listing("d", 20, 6, &[("new", file(31, 1))]), now).unwrap();
    assert!(tree.is_known_folder(20));
    assert_eq!(tree.look_up(20, b"old", now), Lookup::Free);
    assert_eq!(tree.look_up(20, b"new", now), Lookup::Found(31));
}

#[test]
fn a_report_about_another_folder_with_the_same_path_is_ignored() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[("a", folder(20)), ("b", folder(21))]), now).unwrap();
    let mut out = Vec::new();
    // The client moved `a` away and `b` in its place.
    tree.apply_rename((ROOT, b"a"), (ROOT, b"c"), 2, &mut out);
    tree.apply_rename((ROOT, b"b"), (ROOT, b"a"), 3, &mut out);
    tree.apply_listing(&listing("a", 20, 4, &[("x", file(30, 1))]), now).unwrap();
    assert!(!tree.is_listed(21, now));
    tree.apply_listing(&listing("a", 21, 5, &[("y", file(31, 1))]), now).unwrap();
    assert_eq!(tree.path(31), Some(b"a/y".to_vec()));
    assert_eq!(out, []);
}

#[test]
fn a_number_that_is_used_again_is_another_file() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[("a", file(10, 1))]), now).unwrap();
    tree.node_mut(10).unwrap().lookups = 1;
    tree.apply_change(&change("", 99, 2, "a", None), now);
    // Still open somewhere.
    assert_eq!(tree.path(10), None);
    assert!(tree.node(10).is_some());
    tree.apply_change(&change("", 99, 3, "b", Some(file(10, 7))), now);
    assert_eq!(tree.node(10).unwrap().generation, 1);
    // The kernel doesn't know it, so it can't take the next one for it.
    tree.apply_change(&change("", 99, 4, "b", None), now);
    tree.apply_change(&change("", 99, 5, "c", Some(file(10, 8))), now);
    assert_eq!(tree.node(10).unwrap().generation, 1);
}

/// A hostile host would fill the memory of the remote with them.
#[test]
fn more_files_than_fit_are_refused_and_unused_ones_make_room() {
    let now = Instant::now();
    // Enough for the top, both folders, and the files of one.
    let mut tree = Tree::new(1000, 3407);
    let full = |tree: &mut Tree, path: &str, own, first: u64| {
        let names: Vec<String> = (0..5).map(|number| format!("file{number}")).collect();
        let entries: Vec<_> = names.iter().zip(first..).map(|(name, inode)| (name.as_str(), file(inode, 1))).collect();
        tree.apply_listing(&FsListing { id: 1, ..listing(path, own, first, &entries) }, now)
    };
    tree.apply_listing(&listing("", 99, 1, &[("a", folder(20)), ("b", folder(21))]), now).unwrap();
    for folder in [20, 21] {
        tree.node_mut(folder).unwrap().lookups = 1;
    }
    full(&mut tree, "a", 20, 30).unwrap();
    // Nobody looks into the first one.
    full(&mut tree, "b", 21, 40).unwrap();
    assert!(!tree.is_listed(20, now) && tree.is_listed(21, now));
    assert_eq!(tree.look_up(21, b"file4", now), Lookup::Found(44));
    assert_eq!(tree.look_up(20, b"file4", now), Lookup::Unknown);
    tree.node_mut(44).unwrap().lookups = 1;
    assert_eq!(full(&mut tree, "a", 20, 30), Err(TreeFull));
    assert!(!tree.is_listed(20, now));
    // The same again takes no more room, and what is new is asked for.
    full(&mut tree, "b", 21, 40).unwrap();
    tree.apply_change(&change("b", 21, 60, "new", Some(file(50, 1))), now);
    tree.apply_change(&change("b", 21, 61, "newer", Some(file(51, 1))), now);
    assert_eq!(tree.look_up(21, b"newer", now), Lookup::Unknown);
}

/// So would one that lists folders that nobody asked for.
#[test]
fn folders_that_nobody_asked_for_get_only_a_part_of_the_room() {
    let now = Instant::now();
    let mut tree = Tree::new(1000, 8000);
    tree.apply_listing(&listing("", 99, 1, &[("a", folder(20)), ("b", folder(21))]), now).unwrap();
    let link = FsEntry { target: Some(vec![b't'; 1200]), ..file(0, 1) };
    let links = |inodes: std::ops::Range<u64>| -> Vec<(&str, FsEntry)> {
        let named = ["one", "two", "three"].into_iter().zip(inodes);
        let at = |inode| FsAttributes { inode, ..link.attributes };
        named.map(|(name, inode)| (name, FsEntry { attributes: at(inode), ..link.clone() })).collect()
    };
    tree.apply_listing(&listing("a", 20, 2, &links(30..31)), now).unwrap();
    assert!(tree.is_listed(20, now));
    tree.apply_listing(&listing("b", 21, 3, &links(40..43)), now).unwrap();
    assert!(!tree.is_listed(21, now), "it would be more than half of it");
    tree.apply_listing(&FsListing { id: 1, ..listing("b", 21, 4, &links(40..43)) }, now).unwrap();
    assert!(tree.is_listed(21, now), "but somebody asked");
    // Names that are reported as free take room as well.
    for stamp in 10..1000 {
        tree.apply_change(&change("a", 20, stamp, &format!("free{stamp}"), None), now);
    }
    let full = tree.apply_listing(&FsListing { id: 1, ..listing("a", 20, 2000, &links(30..33)) }, now);
    assert_eq!(full.map(|_| tree.is_listed(21, now)), Ok(false), "the other folder had to go");
}

#[test]
fn the_kernel_forgets_names_that_it_was_shown() {
    let now = Instant::now();
    let mut tree = tree();
    let entry = |folder, name: &str| Invalidation::Entry { folder, name: name.as_bytes().to_vec() };
    tree.apply_listing(&listing("", 99, 1, &[("a", file(10, 1)), ("d", folder(20))]), now).unwrap();
    tree.apply_listing(&listing("d", 20, 2, &[]), now).unwrap();
    assert!(tree.note_all(ROOT) && tree.note_all(20));
    // Even if nobody looked for them.
    assert_eq!(tree.apply_change(&change("", 99, 3, "new", Some(file(11, 1))), now), [entry(ROOT, "new")]);
    assert_eq!(tree.apply_change(&change("", 99, 4, "a", None), now), [entry(ROOT, "a")]);
    assert_eq!(tree.apply_change(&change("d", 20, 5, "x", Some(file(30, 1))), now), [entry(20, "x")]);
    // After an outage, the host doesn't list one of them again.
    assert!(tree.note_free(20));
    tree.doubt_all(HostClock::New);
    tree.apply_listing(&listing("", 99, 1, &[("new", file(11, 1)), ("d", folder(20))]), now).unwrap();
    assert_eq!(tree.still_doubted(), [Invalidation::Content(20), entry(20, "x")]);
    assert_eq!(tree.doubted_with_free_names(), [20]);
    // A name that is taken meanwhile, before it is listed again.
    assert_eq!(tree.apply_change(&change("d", 20, 2, "y", Some(file(31, 1))), now), [entry(20, "y")]);
    // If it isn't watched any more, the kernel can't be told of names. It asks for the folder again.
    let unwatched = FsListing { is_watched: false, ..listing("d", 20, 3, &[("x", file(30, 1))]) };
    assert_eq!(tree.apply_listing(&unwatched, now).unwrap(), [entry(ROOT, "d")]);
    assert!(!tree.note_all(20), "and may remember its names only for a moment");
}

#[test]
fn a_folder_that_claims_to_contain_itself_has_no_path() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[("a", folder(20))]), now).unwrap();
    tree.apply_listing(&listing("a", 20, 2, &[("b", folder(21))]), now).unwrap();
    tree.apply_listing(&listing("a/b", 21, 3, &[("c", folder(20))]), now).unwrap();
    assert_eq!(tree.path(20), None);
}

#[test]
fn hard_links_share_a_file() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[("a", file(10, 1)), ("b", file(10, 1))]), now).unwrap();
    tree.apply_change(&change("", 99, 2, "b", Some(file(10, 5))), now);
    assert_eq!(tree.look_up(ROOT, b"a", now), Lookup::Found(10));
    assert_eq!(tree.node(10).unwrap().attributes.size, 5);
    let mut out = Vec::new();
    tree.apply_removal(ROOT, b"a", 3, &mut out);
    assert_eq!(out, [Invalidation::Attributes(10)]);
    assert_eq!(tree.path(10), Some(b"b".to_vec()));
    assert!(!tree.is_valid(10, now), "the number of links has changed");
}

#[test]
fn contents_stay_within_their_budget_and_belong_to_their_attributes() {
    let now = Instant::now();
    let mut tree = tree();
    let entries = [("a", file(10, 600)), ("b", file(11, 600)), ("c", file(12, 2000))];
    tree.apply_listing(&listing("", 99, 1, &entries), now).unwrap();
    let content = |size: usize| Arc::<[u8]>::from(vec![b'x'; size]);
    tree.keep_pushed(b"a", &file(10, 600).attributes, content(600));
    assert!(tree.content(10, now).is_some());
    tree.keep_pushed(b"b", &file(11, 600).attributes, content(600));
    assert!(tree.content(11, now).is_some() && tree.content(10, now).is_none(), "the oldest had to go");
    tree.keep_pushed(b"c", &file(12, 2000).attributes, content(2000));
    assert!(tree.content(12, now).is_none(), "larger than everything");
    tree.keep_pushed(b"a", &file(10, 599).attributes, content(599));
    assert!(tree.content(10, now).is_none(), "of another version");
    tree.apply_change(&change("", 99, 2, "b", Some(file(11, 601))), now);
    assert!(tree.content(11, now).is_none(), "it was changed");
}

#[test]
fn after_an_outage_everything_is_doubted_until_it_is_listed_again() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 50, &[("a", file(10, 1)), ("d", folder(20))]), now).unwrap();
    tree.apply_listing(&listing("d", 20, 51, &[("x", file(30, 1))]), now).unwrap();
    tree.doubt_all(HostClock::New);
    assert_eq!(tree.look_up(ROOT, b"a", now), Lookup::Unknown);
    // The host counts from the start again.
    tree.apply_listing(&listing("", 99, 1, &[("a", file(10, 2)), ("d", folder(20))]), now).unwrap();
    assert_eq!(tree.look_up(ROOT, b"a", now), Lookup::Found(10));
    assert_eq!(tree.node(10).unwrap().attributes.size, 2);
    assert_eq!(tree.still_doubted(), [Invalidation::Entry { folder: 20, name: b"x".to_vec() }]);
}

fn made(tree: &mut Tree, folder: u64, name: &[u8], kind: FileKind) -> (u64, u64) {
    let change = tree.begin_change();
    let entry = FsEntry { attributes: attributes(kind, 0, 0), target: None };
    (tree.create_locally((folder, name), change, entry), change)
}

#[test]
fn an_unconfirmed_change_is_newer_than_every_report() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[("old", file(10, 1))]), now).unwrap();
    let mut out = Vec::new();
    let (ino, change) = made(&mut tree, ROOT, b"new", FileKind::File);
    let removal = tree.begin_change();
    tree.remove_locally((ROOT, b"old"), removal, &mut out);
    // The host doesn't know of either yet.
    tree.apply_listing(&listing("", 99, 5, &[("old", file(10, 1))]), now).unwrap();
    assert_eq!(tree.look_up(ROOT, b"new", now), Lookup::Found(ino));
    assert_eq!(tree.look_up(ROOT, b"old", now), Lookup::Free);
    assert!(!tree.is_valid(ino, now), "its times are the host's");
    // The file is replaced on the host, and the report overtakes the reply.
    tree.apply_change(&change_of("new", 9, Some(file(12, 3))), now);
    tree.confirm(ino, change, confirmed(7, None, attributes(FileKind::File, 11, 2)), &mut out);
    tree.confirm_name((ROOT, b"new"), change, 7, &mut out);
    tree.confirm_name((ROOT, b"old"), removal, 8, &mut out);
    assert_eq!(tree.look_up(ROOT, b"new", now), Lookup::Found(12));
    assert_eq!(tree.look_up(ROOT, b"old", now), Lookup::Free);
}

/// The kernel would keep the name of the file that the answer is about.
#[test]
fn an_answer_that_a_report_overtook_says_nothing_of_the_name() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[("old", file(10, 1))]), now).unwrap();
    let mut out = Vec::new();
    let answer = |entry: &FsEntry| FsReply { entry: Some(entry.clone()), ..FsReply::EMPTY };
    // A new file is moved on the host, and the reports come before the answer.
    tree.apply_change(&change_of("new", 8, None), now);
    tree.apply_change(&change_of("moved", 9, Some(file(11, 1))), now);
    assert_eq!(tree.apply_entry(ROOT, b"new", 7, &file(11, 1), now, &mut out), None);
    assert!(!tree.is_answer((ROOT, b"new"), &answer(&file(11, 1))));
    assert!(tree.is_answer((ROOT, b"moved"), &answer(&file(11, 1))));
    // A file that is moved here is replaced on the host. The answer already describes the other one.
    let change = tree.begin_change();
    tree.rename_locally((ROOT, b"old"), (ROOT, b"new"), change, &mut out);
    tree.apply_change(&change_of("new", 10, Some(file(12, 1))), now);
    tree.confirm(10, change, confirmed(11, None, file(12, 1).attributes), &mut out);
    assert!(!tree.is_answer((ROOT, b"new"), &answer(&file(12, 1))));
    assert_eq!(tree.node(10).unwrap().attributes.inode, 10);
}

fn change_of(name: &str, stamp: u64, entry: Option<FsEntry>) -> FsTreeChange {
    change("", 99, stamp, name, entry)
}

#[test]
fn what_was_created_here_keeps_its_number() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[]), now).unwrap();
    let mut out = Vec::new();
    let (ino, change) = made(&mut tree, ROOT, b"d", FileKind::Folder);
    tree.node_mut(ino).unwrap().lookups = 1;
    tree.confirm(ino, change, confirmed(2, None, attributes(FileKind::Folder, 20, 1)), &mut out);
    tree.confirm_name((ROOT, b"d"), change, 2, &mut out);
    assert!(tree.is_valid(ino, now));
    assert_eq!(tree.node(ino).unwrap().attributes.inode, 20);
    tree.apply_listing(&listing("d", 20, 3, &[("x", file(30, 1))]), now).unwrap();
    assert_eq!(tree.path(30), Some(b"d/x".to_vec()));
    // A report that it has another name may come before the reply to the request that moved it.
    tree.apply_change(&change_of("moved", 4, Some(folder(20))), now);
    assert_eq!(tree.look_up(ROOT, b"moved", now), Lookup::Found(ino));
    tree.apply_change(&change_of("moved", 5, Some(folder(20))), now);
    assert_eq!(tree.path(ino), Some(b"moved".to_vec()));
}

#[test]
fn a_change_that_failed_is_asked_for_again() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[]), now).unwrap();
    let mut out = Vec::new();
    let (_, change) = made(&mut tree, ROOT, b"refused", FileKind::File);
    tree.doubt_name((ROOT, b"refused"), change, &mut out);
    assert_eq!(out, [Invalidation::Entry { folder: ROOT, name: b"refused".to_vec() }]);
    assert_eq!(tree.look_up(ROOT, b"refused", now), Lookup::Unknown);
    tree.apply_listing(&listing("", 99, 2, &[]), now).unwrap();
    assert_eq!(tree.look_up(ROOT, b"refused", now), Lookup::Free);
}

/// The host's report about it says nothing new then, so nobody else would tell the kernel.
#[test]
fn an_answer_that_shows_what_the_host_wrote_drops_the_content() {
    let now = Instant::now();
    let mut tree = tree_with_file();
    let mut out = Vec::new();
    assert!(tree.apply_answer(10, 2, FsAttributes { mode: 0o600, ..version(10, 1) }, now, &mut out));
    assert_eq!(out, [], "another mode is no other content");
    assert!(tree.content(10, now).is_some());
    assert!(tree.apply_answer(10, 3, version(10, 5), now, &mut out));
    assert_eq!(out, [Invalidation::Content(10)]);
    assert!(tree.content(10, now).is_none());
    let entry = FsEntry { attributes: version(10, 5), target: None };
    assert_eq!(tree.apply_change(&change_of("a", 4, Some(entry)), now), []);
}

/// Programs that copy files set their times.
#[test]
fn content_with_the_old_time_is_new() {
    let now = Instant::now();
    let mut tree = tree_with_file();
    let entry =
        FsEntry { attributes: FsAttributes { modified: version(10, 1).modified, ..version(10, 5) }, target: None };
    assert_eq!(tree.apply_change(&change_of("a", 2, Some(entry)), now), [Invalidation::Content(10)]);
    assert!(tree.content(10, now).is_none());
}

/// Only the host knows what was there before each of several writes that are under way.
#[test]
fn a_write_of_the_host_between_writes_from_here_is_noticed() {
    for (disturbed, expected) in [(None, vec![]), (Some(0), vec![10]), (Some(1), vec![10]), (Some(2), vec![10])] {
        let mut tree = tree_with_file();
        let changes: Vec<u64> = (0..3)
            .map(|_| {
                let change = tree.begin_change();
                tree.touch(10, change);
                change
            })
            .collect();
        let mut out = Vec::new();
        for (at, change) in changes.into_iter().enumerate() {
            let time = 10 * (i64::try_from(at).unwrap() + 1);
            let before = match (disturbed == Some(at), at) {
                (true, _) => version(10, time - 5),
                (false, 0) => version(10, 1),
                (false, _) => version(10, time - 10),
            };
            tree.confirm(10, change, confirmed(at as u64 + 2, Some(before), version(10, time)), &mut out);
        }
        let expected: Vec<Invalidation> = expected.into_iter().map(Invalidation::Content).collect();
        assert_eq!(out, expected, "{disturbed:?}");
        assert_eq!(tree.node(10).unwrap().attributes, version(10, 30));
    }
}

/// The report about what the host wrote comes while another change is unconfirmed, and its answer says the same.
#[test]
fn a_new_mode_or_name_does_not_hide_what_the_host_wrote() {
    let now = Instant::now();
    let report = |tree: &mut Tree| {
        let entry = FsEntry { attributes: version(10, 5), target: None };
        assert_eq!(tree.apply_change(&change_of("a", 2, Some(entry)), now), []);
    };
    let mut tree = tree_with_file();
    let change = tree.begin_change();
    tree.touch(10, change);
    report(&mut tree);
    let mut out = Vec::new();
    let mode = FsAttributes { mode: 0o600, changed: version(10, 6).changed, ..version(10, 5) };
    tree.confirm(10, change, confirmed(3, Some(version(10, 5)), mode), &mut out);
    assert_eq!(out, [Invalidation::Content(10)]);
    assert!(tree.content(10, now).is_none());

    let mut tree = tree_with_file();
    let change = tree.begin_change();
    tree.rename_locally((ROOT, b"a"), (ROOT, b"b"), change, &mut Vec::new());
    report(&mut tree);
    let mut out = Vec::new();
    tree.confirm(10, change, confirmed(3, None, version(10, 5)), &mut out);
    assert_eq!(out, [Invalidation::Content(10)]);
}

#[test]
fn what_was_written_to_another_file_is_not_kept_for_this_one() {
    let mut tree = tree_with_file();
    let change = tree.begin_change();
    tree.touch(10, change);
    let mut out = Vec::new();
    // It was opened by its path, which the host's user had given to another one.
    tree.confirm(10, change, confirmed(2, Some(version(12, 1)), version(12, 2)), &mut out);
    assert_eq!(out, [Invalidation::Content(10)]);
}

#[test]
fn an_answer_about_another_file_with_the_path_is_not_taken_for_this_one() {
    let now = Instant::now();
    let mut tree = tree_with_file();
    let mut out = Vec::new();
    assert!(!tree.apply_answer(10, 2, version(12, 5), now, &mut out));
    assert_eq!(tree.node(10).unwrap().attributes, version(10, 1));
    assert_eq!(tree.look_up(ROOT, b"a", now), Lookup::Unknown, "the name is asked for");
    // Somebody moved the file and put another in its place.
    let entry = |inode, time| Some(FsEntry { attributes: version(inode, time), target: None });
    tree.apply_change(&change_of("b", 1, entry(10, 1)), now);
    tree.apply_change(&change_of("a", 2, entry(12, 5)), now);
    assert_eq!((tree.named(ROOT, b"a"), tree.named(ROOT, b"b")), (Some(12), Some(10)));
    assert_eq!(tree.node(10).unwrap().attributes, version(10, 1));
}

/// With two numbers, what is written to one of them wouldn't be seen in the other.
#[test]
fn a_file_whose_creation_was_answered_to_a_lost_connection_stays_one_file() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[]), now).unwrap();
    let mut out = Vec::new();
    let (ino, change) = made(&mut tree, ROOT, b"new", FileKind::File);
    tree.node_mut(ino).unwrap().lookups = 1;
    tree.doubt_all(HostClock::New);
    tree.confirm(ino, change, Confirmation::default(), &mut out);
    tree.confirm_name((ROOT, b"new"), change, 0, &mut out);
    // A program asks for its attributes before the folder is listed again.
    assert!(tree.apply_answer(ino, 1, attributes(FileKind::File, 11, 0), now, &mut out));
    tree.apply_listing(&listing("", 99, 2, &[("new", file(11, 0))]), now).unwrap();
    assert_eq!(tree.look_up(ROOT, b"new", now), Lookup::Found(ino));
    assert!(tree.node(11).is_none());
    assert_eq!(out, []);
}

/// Programs would be told that nothing is in it.
#[test]
fn a_folder_whose_creation_was_answered_to_a_lost_connection_is_listed() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[]), now).unwrap();
    let mut out = Vec::new();
    let (ino, change) = made(&mut tree, ROOT, b"d", FileKind::Folder);
    tree.doubt_all(HostClock::New);
    tree.confirm(ino, change, Confirmation::default(), &mut out);
    tree.confirm_name((ROOT, b"d"), change, 0, &mut out);
    tree.apply_listing(&listing("d", 20, 1, &[("x", file(30, 1))]), now).unwrap();
    assert_eq!(tree.look_up(ino, b"x", now), Lookup::Found(30));
}

/// The host says that it has lost track, and what it said before is still on its way.
#[test]
fn an_older_report_stays_older_when_everything_is_doubted() {
    let now = Instant::now();
    let mut tree = tree();
    tree.apply_listing(&listing("", 99, 1, &[("a", file(10, 0))]), now).unwrap();
    tree.apply_change(&change_of("a", 5, Some(file(10, 503))), now);
    tree.doubt_all(HostClock::Continued);
    assert_eq!(tree.look_up(ROOT, b"a", now), Lookup::Unknown);
    tree.apply_listing(&listing("", 99, 4, &[("a", file(10, 0))]), now).unwrap();
    assert_eq!(tree.node(10).unwrap().attributes.size, 503);
}

/// A new one often has the number of the one before.
#[test]
fn the_kernel_forgets_the_target_of_a_link_that_was_made_again() {
    let now = Instant::now();
    let mut tree = tree();
    let link = |target: &[u8]| FsEntry { attributes: attributes(FileKind::Link, 10, 3), target: Some(target.to_vec()) };
    tree.apply_listing(&listing("", 99, 1, &[("l", link(b"one"))]), now).unwrap();
    tree.node_mut(10).unwrap().lookups = 1;
    assert_eq!(tree.apply_change(&change_of("l", 2, Some(link(b"two"))), now), [Invalidation::Content(10)]);
    assert_eq!(tree.node(10).unwrap().target.as_deref(), Some(&b"two"[..]));
}

#[test]
fn content_that_is_out_of_date_is_not_for_those_who_ask_now() {
    let mut tree = tree_with_file();
    let data = || Arc::<[u8]>::from(*b"content0");
    assert!(!tree.keep_content(10, &version(10, 0), data()));
    let change = tree.begin_change();
    tree.touch(10, change);
    assert!(!tree.keep_content(10, &version(10, 1), data()), "something is written to it meanwhile");
}
