//! The tree as far as the client knows it: folders, attributes, targets of links and contents of small files.
//!
//! It is pure: events and replies go in, and what the kernel has to forget comes out. Reports about the same thing may
//! arrive in any order; the one with the greatest stamp counts. Changes of this mount that the host has not confirmed are
//! newer than all of them (`local`).

mod contents;
mod limits;
mod local;

pub(super) use self::local::Confirmation;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    export::FileKind,
    fs_wire::{FsAttributes, FsEntry, FsListing, FsReply, FsTreeChange, FsVersion, Stamp},
};

/// The kernel's number for the shared folder.
pub(super) const ROOT: u64 = 1;

pub(super) struct Tree {
    nodes: HashMap<u64, Box<Node>>,
    /// How often a number was used before by a file that is gone. The kernel must not take the next one for it.
    generations: HashMap<u64, u64>,
    /// Files that this mount created, by the host's inode number: the kernel knows them by the number that they got here
    /// before the host had them.
    aliases: HashMap<u64, u64>,
    /// How many changes were made here first.
    local_changes: u64,
    /// Files with content, oldest first, and how much it is.
    contents: VecDeque<u64>,
    content_bytes: usize,
    content_budget: usize,
    /// About what everything but contents takes in memory, and the most that it may.
    bytes: usize,
    max_bytes: usize,
}

/// Shared by the folder that has it and what it names.
pub(super) type Name = Arc<[u8]>;

/// A file, folder or link. The host's inode number is its number here too, unless it was created here.
pub(super) struct Node {
    pub(super) attributes: FsAttributes,
    stamp: Stamp,
    validity: Validity,
    pub(super) target: Option<Box<[u8]>>,
    /// When it got its name. What was listed before may have been in another folder.
    named: Stamp,
    /// Its names, with their folders. Without any, it was removed but may still be open.
    names: Vec<(u64, Name)>,
    folder: Option<Box<Folder>>,
    content: Option<Arc<[u8]>>,
    /// How many references the kernel has.
    pub(super) lookups: u64,
    pub(super) generation: u64,
    /// The newest report that was ignored because of an unconfirmed change.
    missed: Option<Box<(Stamp, FsAttributes)>>,
    /// While changes of it are unconfirmed: what the host had before the first of them, or after the last that it
    /// confirmed. If the next one finds something else there, somebody on the host was in between.
    basis: Option<Box<FsVersion>>,
}

#[derive(Debug, Default)]
struct Folder {
    /// What each name is: nothing, if it is known to be free.
    entries: BTreeMap<Name, (Stamp, Option<u64>)>,
    /// The newest reports about names with an unconfirmed change.
    missed: HashMap<Vec<u8>, (Stamp, Option<FsEntry>)>,
    /// When all of it was listed.
    listed: Option<Stamp>,
    validity: Validity,
    /// The kernel was told of free names, and may remember them.
    has_shown_free: bool,
    /// The kernel was told all names, and may remember them.
    has_shown_all: bool,
}

/// How long something that the host said holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Validity {
    /// Until the host says otherwise.
    Watched,
    /// The host doesn't watch it.
    Until(Instant),
    #[default]
    Unknown,
}

/// Who made a change that is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// This mount: the kernel knows.
    Own,
    Host,
}

/// Whether stamps go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostClock {
    /// With another connection, the host counts from the start again.
    New,
    /// What was reported before is older than what follows, also if it arrives later.
    Continued,
}

/// What the kernel has to forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Invalidation {
    /// What a name is, and with it the names in its folder.
    Entry { folder: u64, name: Vec<u8> },
    /// Attributes only.
    Attributes(u64),
    /// Attributes and content, or the names in a folder.
    Content(u64),
}

/// What is known about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    Found(u64),
    Free,
    Unknown,
}

/// The host has more files than are kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TreeFull;

/// No path of a real file system is deeper.
const MAX_DEPTH: usize = 4096;
/// How long a report about an unwatched folder holds.
pub(super) const UNWATCHED: Duration = Duration::from_secs(1);

// === impl Tree ===

impl Tree {
    pub(super) fn new(content_budget: usize, max_bytes: usize) -> Self {
        let (nodes, generations, aliases) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (contents, content_bytes, local_changes, bytes) = (VecDeque::new(), 0, 0, 0);
        Self { nodes, generations, aliases, local_changes, contents, content_bytes, content_budget, bytes, max_bytes }
    }

    /// The number of a file here, from the host's.
    pub(super) fn number(&self, inode: u64) -> u64 {
        match self.aliases.get(&inode) {
            Some(known) => *known,
            // The host may use the number of our root for something else.
            None if inode == ROOT => u64::MAX - 1,
            None => inode,
        }
    }

    pub(super) fn node(&self, ino: u64) -> Option<&Node> {
        self.nodes.get(&ino).map(Box::as_ref)
    }

    pub(super) fn node_mut(&mut self, ino: u64) -> Option<&mut Node> {
        self.nodes.get_mut(&ino).map(Box::as_mut)
    }

    fn folder_mut(&mut self, ino: u64) -> Option<&mut Folder> {
        self.nodes.get_mut(&ino)?.folder.as_deref_mut()
    }

    /// The path of a node, if it has one: through any of its names.
    pub(super) fn path(&self, ino: u64) -> Option<Vec<u8>> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut at = ino;
        while at != ROOT {
            let (folder, name) = self.nodes.get(&at)?.names.first()?;
            // A host that claims that a folder contains itself is not followed forever.
            if parts.len() > MAX_DEPTH {
                return None;
            }
            parts.push(name);
            at = *folder;
        }
        parts.reverse();
        Some(parts.join(&b'/'))
    }

    /// The path of a name in a folder.
    pub(super) fn path_of(&self, folder: u64, name: &[u8]) -> Option<Vec<u8>> {
        let path = self.path(folder)?;
        Some(if path.is_empty() { name.to_vec() } else { [&path[..], b"/", name].concat() })
    }

    fn at(&self, path: &[u8]) -> Option<u64> {
        let mut at = ROOT;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let (_, entry) = self.nodes.get(&at)?.folder.as_ref()?.entries.get(name)?;
            at = (*entry)?;
        }
        Some(at)
    }

    /// Whether everything in a folder is known.
    pub(super) fn is_listed(&self, ino: u64, now: Instant) -> bool {
        self.nodes
            .get(&ino)
            .and_then(|node| node.folder.as_ref())
            .is_some_and(|folder| folder.listed.is_some() && folder.validity.holds(now))
    }

    /// Whether the attributes of a node can be used.
    pub(super) fn is_valid(&self, ino: u64, now: Instant) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.validity.holds(now) && !node.is_pending())
    }

    /// Whether changes of it will be reported, so that the kernel may keep it.
    pub(super) fn is_watched(&self, ino: u64) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.validity == Validity::Watched)
    }

    pub(super) fn look_up(&self, folder: u64, name: &[u8], now: Instant) -> Lookup {
        let Some(known) = self.nodes.get(&folder).and_then(|node| node.folder.as_ref()) else { return Lookup::Unknown };
        let is_listed = known.listed.is_some() && known.validity.holds(now);
        match known.entries.get(name) {
            Some((_, Some(ino))) if known.validity.holds(now) && self.is_known(*ino, now) => Lookup::Found(*ino),
            Some((_, None)) | None if is_listed => Lookup::Free,
            _ => Lookup::Unknown,
        }
    }

    /// A name in it is shown as free. Whether the kernel may remember that.
    pub(super) fn note_free(&mut self, ino: u64) -> bool {
        let Some(folder) = self.nodes.get_mut(&ino).and_then(|node| node.folder.as_mut()) else { return false };
        folder.has_shown_free |= folder.validity == Validity::Watched;
        folder.validity == Validity::Watched
    }

    /// All names in it are shown. Whether the kernel may remember them until the host says otherwise.
    pub(super) fn note_all(&mut self, ino: u64) -> bool {
        let Some(folder) = self.folder_mut(ino) else { return false };
        folder.has_shown_all = true;
        folder.listed.is_some() && folder.validity == Validity::Watched
    }

    fn is_known(&self, ino: u64, now: Instant) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.validity.holds(now))
    }

    /// The entries of a listed folder.
    pub(super) fn entries(&self, ino: u64) -> Vec<(Name, u64)> {
        let folder = self.nodes.get(&ino).and_then(|node| node.folder.as_ref());
        let entries = folder.into_iter().flat_map(|folder| &folder.entries);
        entries.filter_map(|(name, (_, ino))| Some((Name::clone(name), (*ino)?))).collect()
    }

    /// What has a name, as far as that is known.
    pub(super) fn named(&self, folder: u64, name: &[u8]) -> Option<u64> {
        self.nodes.get(&folder)?.folder.as_ref()?.entries.get(name)?.1
    }

    /// Whether a name is known to be that of what the host found there, if it looked.
    pub(super) fn is_answer(&self, (folder, name): (u64, &[u8]), answer: &FsReply) -> bool {
        let Some(FsEntry { attributes, .. }) = &answer.entry else { return true };
        let known = self.named(folder, name);
        known == Some(self.number(attributes.inode))
            && known.and_then(|ino| self.node(ino)).is_some_and(|node| node.attributes.kind == attributes.kind)
    }

    /// The folder above, for `..`.
    pub(super) fn above(&self, ino: u64) -> u64 {
        self.nodes.get(&ino).and_then(|node| node.names.first()).map_or(ROOT, |(folder, _)| *folder)
    }

    /// Whether a report is about this folder.
    fn is_folder(&mut self, ino: u64, reported: &FsAttributes, out: &mut Vec<Invalidation>) -> bool {
        // One that was made here, and whose answer was lost with a connection.
        if self.nodes.get(&ino).is_some_and(|node| !node.is_pending()) {
            self.recognise(ino, reported, out);
        }
        ino == ROOT || ino == self.number(reported.inode)
    }

    /// Takes in a folder, all parts of it. If that is more than can be kept, nothing is known about the folder.
    pub(super) fn apply_listing(&mut self, listing: &FsListing, now: Instant) -> Result<Vec<Invalidation>, TreeFull> {
        let mut out = Vec::new();
        if !self.makes_room_for(listing, &mut out)? {
            return Ok(out);
        }
        if listing.path.is_empty() && !self.nodes.contains_key(&ROOT) {
            let generation = 0;
            self.insert(ROOT, Node::new(root(listing.own), listing.stamp, None, generation));
        }
        let Some(ino) = self.at(&listing.path) else { return Ok(out) };
        // The path may be that of another folder by now.
        if !self.is_folder(ino, &listing.own, &mut out) {
            return Ok(out);
        }
        let validity = if listing.is_watched { Validity::Watched } else { Validity::Until(now + UNWATCHED) };
        self.apply_attributes(ino, listing.stamp, listing.own, Origin::Host, &mut out);
        let named = self.nodes.get(&ino).map_or(0, |node| node.named);
        let Some(folder) = self.nodes.get_mut(&ino).map(|node| node.folder.get_or_insert_default()) else {
            return Ok(out);
        };
        if folder.listed.unwrap_or(named) > listing.stamp {
            return Ok(out);
        }
        let fresh: BTreeMap<&[u8], &FsEntry> = listing.entries.iter().map(|(name, entry)| (&name[..], entry)).collect();
        let gone: Vec<Name> = folder.entries.keys().filter(|name| !fresh.contains_key(&name[..])).cloned().collect();
        for name in gone {
            self.remove(ino, &name, listing.stamp, Origin::Host, &mut out);
        }
        for (name, entry) in fresh {
            self.put(ino, name, listing.stamp, entry, validity, Origin::Host, &mut out);
        }
        // Names that are known to be free need no entry any more, except where something newer says so.
        self.retain_entries(ino, |(stamp, ino)| ino.is_some() || stamp > listing.stamp);
        let above = self.nodes.get(&ino).and_then(|node| node.names.first().cloned());
        if let Some(folder) = self.folder_mut(ino) {
            folder.listed = Some(listing.stamp);
            folder.validity = validity;
            if !listing.is_watched && std::mem::take(&mut folder.has_shown_free) {
                // Which free names the kernel remembers is unknown, and nobody will say when they are taken.
                out.extend(above.map(|(folder, name)| Invalidation::Entry { folder, name: name.to_vec() }));
            }
        }
        if let Some(node) = self.nodes.get_mut(&ino).filter(|node| ino == ROOT || node.validity == Validity::Unknown) {
            node.validity = validity;
        }
        Ok(out)
    }

    pub(super) fn apply_change(&mut self, change: &FsTreeChange, now: Instant) -> Vec<Invalidation> {
        let mut out = Vec::new();
        let Some(ino) = self.at(&change.folder) else { return out };
        if !self.is_folder(ino, &change.own, &mut out) {
            return out;
        }
        self.apply_attributes(ino, change.stamp, change.own, Origin::Host, &mut out);
        let folder = self.nodes[&ino].folder.as_ref();
        let validity = folder.map_or(Validity::Unknown, |folder| folder.validity);
        let has_shown_free = folder.is_some_and(|folder| folder.has_shown_free);
        match &change.entry {
            None => self.remove(ino, &change.name, change.stamp, Origin::Host, &mut out),
            Some(entry) if validity.holds(now) => {
                self.put(ino, &change.name, change.stamp, entry, validity, Origin::Host, &mut out);
            }
            // Nothing is known about that folder, but the kernel may remember that the name is free.
            Some(_) if has_shown_free => {
                out.push(Invalidation::Entry { folder: ino, name: change.name.clone() });
            }
            Some(_) => {}
        }
        out
    }

    /// A name that this mount created, moved or asked about. Returns the node that has it now, which is another one, or
    /// none, if something newer was reported.
    pub(super) fn apply_entry(
        &mut self,
        folder: u64,
        name: &[u8],
        stamp: Stamp,
        entry: &FsEntry,
        now: Instant,
        out: &mut Vec<Invalidation>,
    ) -> Option<u64> {
        let known = self.nodes.get(&folder)?.folder.as_ref();
        let watched = known.is_some_and(|folder| folder.validity == Validity::Watched);
        let validity = if watched { Validity::Watched } else { Validity::Until(now + UNWATCHED) };
        self.put(folder, name, stamp, entry, validity, Origin::Own, out);
        self.named(folder, name)
    }

    /// A name that this mount removed or moved away.
    pub(super) fn apply_removal(&mut self, folder: u64, name: &[u8], stamp: Stamp, out: &mut Vec<Invalidation>) {
        self.remove(folder, name, stamp, Origin::Own, out);
    }

    /// A name that this mount moved. What is known below a folder stays known.
    pub(super) fn apply_rename(
        &mut self,
        (from, name): (u64, &[u8]),
        (to, new_name): (u64, &[u8]),
        stamp: Stamp,
        out: &mut Vec<Invalidation>,
    ) {
        let Some(moved) = self.named(from, name) else { return };
        if self.named(to, new_name) == Some(moved) {
            // Two names of one file: the call did nothing.
            return;
        }
        self.remove(to, new_name, stamp, Origin::Own, out);
        if let Some(node) = self.nodes.get_mut(&moved) {
            node.names.retain(|(folder, known)| (*folder, &known[..]) != (from, name));
            node.names.push((to, new_name.into()));
        }
        for (folder, name, ino) in [(from, name, None), (to, new_name, Some(moved))] {
            self.insert_entry(folder, name, (stamp, ino));
        }
    }

    /// New attributes of a node. Older ones are ignored.
    pub(super) fn apply_attributes(
        &mut self,
        ino: u64,
        stamp: Stamp,
        attributes: FsAttributes,
        origin: Origin,
        out: &mut Vec<Invalidation>,
    ) {
        let attributes = if ino == ROOT { root(attributes) } else { attributes };
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        if stamp < node.stamp {
            if node.is_pending() && node.missed.as_ref().is_none_or(|missed| missed.0 < stamp) {
                node.missed = Some(Box::new((stamp, attributes)));
            }
            return;
        }
        self.recognise(ino, &attributes, out);
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        let before = node.attributes;
        node.attributes = attributes;
        node.stamp = stamp;
        if before == attributes {
            return;
        }
        let is_same = match origin {
            // Its times can be set back, but not that of its change.
            Origin::Host => before.is_same_content(&attributes),
            // A name more, or another mode, is no other content.
            Origin::Own => (before.size, before.modified) == (attributes.size, attributes.modified),
        };
        if node.lookups > 0 || ino == ROOT {
            match attributes.kind {
                // The answer to a request of this mount may be the first that says what somebody on the host wrote.
                FileKind::File | FileKind::Link if !is_same => out.push(Invalidation::Content(ino)),
                _ if origin == Origin::Host => out.push(Invalidation::Attributes(ino)),
                _ => {}
            }
        }
        if !is_same {
            self.drop_content(ino);
        }
    }

    /// What the host answered when it was asked about a file. `false` if its path has become that of another file: then
    /// nothing is known about this one.
    pub(super) fn apply_answer(
        &mut self,
        ino: u64,
        stamp: Stamp,
        attributes: FsAttributes,
        now: Instant,
        out: &mut Vec<Invalidation>,
    ) -> bool {
        self.recognise(ino, &attributes, out);
        if ino != ROOT && self.number(attributes.inode) != ino {
            if let Some(node) = self.nodes.get_mut(&ino) {
                node.validity = Validity::Unknown;
            }
            return false;
        }
        self.apply_attributes(ino, stamp, attributes, Origin::Own, out);
        self.revalidate(ino, now);
        true
    }

    /// The attributes hold again, after the host was asked.
    pub(super) fn revalidate(&mut self, ino: u64, now: Instant) {
        let watched = self.nodes.get(&ino).is_some_and(|node| {
            node.names.first().is_some_and(|(folder, _)| {
                self.nodes
                    .get(folder)
                    .and_then(|node| node.folder.as_ref())
                    .is_some_and(|folder| folder.validity == Validity::Watched)
            })
        });
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.validity = if watched { Validity::Watched } else { Validity::Until(now + UNWATCHED) };
        }
    }

    /// Nothing that is known holds any more, until the host says it again. Unconfirmed changes still count.
    pub(super) fn doubt_all(&mut self, clock: HostClock) {
        let is_new = clock == HostClock::New;
        for node in self.nodes.values_mut() {
            if !node.is_pending() {
                node.validity = Validity::Unknown;
            }
            if let Some(folder) = &mut node.folder {
                (folder.validity, folder.listed) = (Validity::Unknown, None);
            }
            if !is_new {
                continue;
            }
            (node.missed, node.named) = (None, 0);
            if !node.is_pending() {
                node.stamp = 0;
            }
            if let Some(folder) = &mut node.folder {
                folder.missed.clear();
                for (stamp, _) in folder.entries.values_mut().filter(|(stamp, _)| !local::is_local(*stamp)) {
                    *stamp = 0;
                }
            }
        }
    }

    /// The entries of folders that the host did not list again after [`Self::doubt_all`].
    pub(super) fn still_doubted(&self) -> Vec<Invalidation> {
        let doubted = self.nodes.iter().filter_map(|(ino, node)| {
            let folder = node.folder.as_ref().filter(|folder| folder.validity == Validity::Unknown)?;
            let shown = folder.has_shown_all.then_some(Invalidation::Content(*ino));
            let entries = folder.entries.keys();
            Some(shown.into_iter().chain(entries.map(|name| Invalidation::Entry { folder: *ino, name: name.to_vec() })))
        });
        doubted.flatten().collect()
    }

    /// Folders that the host did not list again, and of which the kernel remembers free names. Only a listing tells
    /// which of them are taken by now, and makes the host watch the folder.
    pub(super) fn doubted_with_free_names(&self) -> Vec<u64> {
        let is_doubted = |node: &Node| {
            node.folder.as_ref().is_some_and(|folder| folder.has_shown_free && folder.validity == Validity::Unknown)
        };
        self.nodes.iter().filter(|(_, node)| is_doubted(node)).map(|(ino, _)| *ino).collect()
    }

    /// Everything the kernel could show without asking: the names at the top, and the files that it knows.
    pub(super) fn all_known(&self) -> Vec<Invalidation> {
        let top =
            self.entries(ROOT).into_iter().map(|(name, _)| Invalidation::Entry { folder: ROOT, name: name.to_vec() });
        top.chain(self.known_files()).collect()
    }

    /// What the kernel has of files and folders, except their names: a program that works in a folder stays there.
    pub(super) fn known_files(&self) -> Vec<Invalidation> {
        let known = self.nodes.iter().filter(|(ino, node)| node.lookups > 0 || **ino == ROOT);
        let forget = |(ino, kind)| match kind {
            FileKind::File | FileKind::Folder => Invalidation::Content(ino),
            FileKind::Link | FileKind::Special => Invalidation::Attributes(ino),
        };
        known.map(|(ino, node)| (*ino, node.attributes.kind)).map(forget).collect()
    }

    /// The kernel dropped references. A removed file that it no longer knows is forgotten.
    pub(super) fn forget(&mut self, ino: u64, lookups: u64) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 && node.names.is_empty() && ino != ROOT {
            self.bury(ino);
        }
    }

    /// Gives a name to an entry, and takes it from what had it before.
    #[allow(clippy::too_many_arguments, reason = "private, and each is a different type")]
    fn put(
        &mut self,
        folder: u64,
        name: &[u8],
        stamp: Stamp,
        entry: &FsEntry,
        validity: Validity,
        origin: Origin,
        out: &mut Vec<Invalidation>,
    ) {
        let ino = self.number(entry.attributes.inode);
        let Some(known) = self.nodes.get_mut(&folder).map(|node| node.folder.get_or_insert_default()) else { return };
        let is_remembered = known.has_shown_free || known.has_shown_all;
        let before = known.entries.get(name).copied();
        if before.is_some_and(|(known, _)| known > stamp) {
            known.miss(name, stamp, Some(entry));
            // The name is newer, but its attributes may still be news.
            if before.is_some_and(|(_, known)| known == Some(ino)) {
                self.apply_attributes(ino, stamp, entry.attributes, origin, out);
            }
            return;
        }
        if let Some((_, Some(known))) = before {
            self.recognise(known, &entry.attributes, out);
        }
        self.bury_predecessor(ino, &entry.attributes);
        let ino = self.number(entry.attributes.inode);
        let is_other_kind = |node: &Node| node.attributes.kind != entry.attributes.kind;
        let is_full = self.bytes >= self.max_bytes;
        let is_same = before.is_some_and(|(_, known)| known == Some(ino)) && !self.node(ino).is_some_and(is_other_kind);
        if !is_same {
            if before.is_some_and(|(_, known)| known.is_some()) {
                self.remove(folder, name, stamp, origin, out);
            } else if origin == Origin::Host && is_remembered {
                // The kernel may remember that the name is free, or the names without it.
                out.push(Invalidation::Entry { folder, name: name.to_vec() });
            }
            // A folder has one name, and a number belongs to one kind of file. Anything else is news that came early.
            let is_stale = |node: &Node| is_other_kind(node) || node.attributes.kind == FileKind::Folder;
            if self.node(ino).is_some_and(is_stale) {
                for (folder, name) in self.nodes[&ino].names.clone() {
                    self.remove(folder, &name, stamp, Origin::Host, out);
                }
                if self.nodes.contains_key(&ino) {
                    self.bury(ino);
                }
            }
        }
        let name: Name = name.into();
        match self.nodes.get_mut(&ino) {
            Some(node) if is_same || !is_full => {
                if !node.names.iter().any(|(known, other)| (*known, other) == (folder, &name)) {
                    node.named = stamp;
                    node.names.push((folder, Name::clone(&name)));
                }
                node.validity = validity;
                if node.target.as_deref() != entry.target.as_deref() && node.lookups > 0 {
                    // The kernel keeps targets. A new link can have the number of the one before.
                    out.push(Invalidation::Content(ino));
                }
                self.set_target(ino, entry.target.as_deref());
                self.apply_attributes(ino, stamp, entry.attributes, origin, out);
            }
            // Nothing is known about the folder then.
            _ if is_full => {
                if let Some(folder) = self.folder_mut(folder) {
                    (folder.listed, folder.validity) = (None, Validity::Unknown);
                }
                return;
            }
            _ => {
                let generation = self.generations.get(&ino).copied().unwrap_or(0);
                let mut node = Node::new(entry.attributes, stamp, entry.target.as_deref(), generation);
                node.validity = validity;
                node.names = vec![(folder, Name::clone(&name))];
                self.insert(ino, node);
                if self.number(entry.attributes.inode) != ino {
                    // It keeps the number that the kernel has for it.
                    self.aliases.insert(entry.attributes.inode, ino);
                }
            }
        }
        self.insert_entry(folder, name, (stamp, Some(ino)));
    }

    /// Takes a name away. What is below a folder is forgotten.
    fn remove(&mut self, folder: u64, name: &[u8], stamp: Stamp, origin: Origin, out: &mut Vec<Invalidation>) {
        let is_full = self.bytes >= self.max_bytes;
        let Some(known) = self.folder_mut(folder) else { return };
        let ino = match known.entries.get(name) {
            Some((newer, _)) if *newer > stamp => return known.miss(name, stamp, None),
            Some((_, ino)) => *ino,
            // A hostile host could name free names without end.
            None if is_full => return,
            None => None,
        };
        let has_shown_all = known.has_shown_all;
        self.insert_entry(folder, name, (stamp, None));
        let is_shown = ino.and_then(|ino| self.nodes.get(&ino)).is_some_and(|node| node.lookups > 0);
        if origin == Origin::Host && (is_shown || (has_shown_all && ino.is_some())) {
            out.push(Invalidation::Entry { folder, name: name.to_vec() });
        }
        if let Some(ino) = ino {
            self.unname(ino, folder, name, out);
        }
    }

    fn unname(&mut self, ino: u64, folder: u64, name: &[u8], out: &mut Vec<Invalidation>) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.names.retain(|(known, other)| (*known, &other[..]) != (folder, name));
        if !node.names.is_empty() {
            // The number of its names has changed.
            node.validity = Validity::Unknown;
            out.push(Invalidation::Attributes(ino));
            return;
        }
        node.attributes.links = node.attributes.links.saturating_sub(1);
        let is_unknown = node.lookups == 0;
        let below = self.take_folder(ino).map(|folder| folder.entries).unwrap_or_default();
        for (name, (_, child)) in below {
            if let Some(child) = child {
                self.unname(child, ino, &name, out);
            }
        }
        if is_unknown {
            self.bury(ino);
        }
    }

    /// A removed file may still be open when its number appears again. If it is another file, the kernel must not take
    /// it for the old one. The same file, only with another name, stays what it is.
    fn bury_predecessor(&mut self, ino: u64, now: &FsAttributes) {
        let Some(node) = self.nodes.get(&ino).filter(|node| node.names.is_empty() && ino != ROOT) else { return };
        let was = &node.attributes;
        if (was.kind, was.size, was.modified) != (now.kind, now.size, now.modified) {
            self.bury(ino);
        }
    }

    fn bury(&mut self, ino: u64) {
        self.drop_content(ino);
        self.take_folder(ino);
        if let Some(node) = self.nodes.remove(&ino) {
            self.bytes -= limits::weight_of_node(node.target.as_deref());
            if self.aliases.get(&node.attributes.inode) == Some(&ino) {
                self.aliases.remove(&node.attributes.inode);
            }
            if node.lookups > 0 {
                // The next file with this number is another one. What the kernel doesn't know, it can't mix up.
                self.generations.insert(ino, node.generation + 1);
            }
        }
    }
}

/// The root's attributes, with the number that the kernel expects.
const fn root(attributes: FsAttributes) -> FsAttributes {
    FsAttributes { inode: ROOT, ..attributes }
}

// === impl Node ===

impl Node {
    fn new(attributes: FsAttributes, stamp: Stamp, target: Option<&[u8]>, generation: u64) -> Self {
        Self {
            attributes,
            stamp,
            validity: Validity::Unknown,
            target: target.map(Into::into),
            named: if local::is_local(stamp) { 0 } else { stamp },
            names: Vec::new(),
            folder: None,
            content: None,
            lookups: 0,
            generation,
            missed: None,
            basis: None,
        }
    }

    /// Whether a change of it is not confirmed yet.
    pub(super) const fn is_pending(&self) -> bool {
        local::is_local(self.stamp)
    }
}

// === impl Folder ===

impl Folder {
    /// A report about a name that something newer is known about.
    fn miss(&mut self, name: &[u8], stamp: Stamp, entry: Option<&FsEntry>) {
        let is_pending = self.entries.get(name).is_some_and(|(known, _)| local::is_local(*known));
        if is_pending && self.missed.get(name).is_none_or(|(known, _)| *known < stamp) {
            self.missed.insert(name.to_vec(), (stamp, entry.cloned()));
        }
    }
}

// === impl Validity ===

impl Validity {
    fn holds(self, now: Instant) -> bool {
        match self {
            Self::Watched => true,
            Self::Until(end) => now < end,
            Self::Unknown => false,
        }
    }
}
