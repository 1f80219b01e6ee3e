//! Changes that this mount makes before the host has them. Each has a stamp of its own, which is greater than all of the
//! host's: until the host has answered, its reports about the same file or name are older.

use super::{FileKind, Folder, FsAttributes, FsEntry, Invalidation, Name, Node, Origin, ROOT, Stamp, Tree, Validity};
use std::time::Instant;

/// Stamps of unconfirmed changes start here.
const LOCAL: Stamp = 1 << 63;
/// Numbers of files that were created here start here. No file system has inode numbers like these.
const CREATED: u64 = 1 << 62;

pub(super) const fn is_local(stamp: Stamp) -> bool {
    stamp >= LOCAL
}

/// What the host says about a file after a change of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Confirmation {
    pub(in super::super) stamp: Stamp,
    /// What it was just before, if the change was one of its content or times.
    pub(in super::super) before: Option<FsAttributes>,
    /// What it is now. Without it, nothing is known about the file.
    pub(in super::super) now: Option<FsAttributes>,
}

// === impl Tree ===

impl Tree {
    /// The stamp of a new change.
    pub(in super::super) const fn begin_change(&mut self) -> Stamp {
        self.local_changes += 1;
        LOCAL | self.local_changes
    }

    /// Whether everything in a folder is known and stays so: what a change does there is known without asking.
    pub(in super::super) fn is_known_folder(&self, ino: u64) -> bool {
        self.nodes
            .get(&ino)
            .and_then(|node| node.folder.as_ref())
            .is_some_and(|folder| folder.listed.is_some() && folder.validity == Validity::Watched)
    }

    pub(in super::super) fn is_empty_folder(&self, ino: u64) -> bool {
        self.is_known_folder(ino) && self.entries(ino).is_empty()
    }

    /// A name that is free gets a new file, folder or link. Returns its number.
    pub(in super::super) fn create_locally(
        &mut self,
        (folder, name): (u64, &[u8]),
        change: Stamp,
        entry: FsEntry,
    ) -> u64 {
        let ino = CREATED | self.local_changes;
        let kind = entry.attributes.kind;
        let mut node = Node::new(FsAttributes { inode: 0, ..entry.attributes }, change, entry.target.as_deref(), 0);
        let name: Name = name.into();
        node.validity = Validity::Watched;
        node.names = vec![(folder, Name::clone(&name))];
        if kind == FileKind::Folder {
            // Nothing is in it.
            node.folder = Some(Box::new(Folder { listed: Some(0), validity: Validity::Watched, ..Folder::default() }));
        }
        self.insert(ino, node);
        self.insert_entry(folder, name, (change, Some(ino)));
        self.touch(folder, change);
        ino
    }

    pub(in super::super) fn remove_locally(
        &mut self,
        (folder, name): (u64, &[u8]),
        change: Stamp,
        out: &mut Vec<Invalidation>,
    ) {
        self.remove(folder, name, change, Origin::Own, out);
        self.touch(folder, change);
    }

    pub(in super::super) fn rename_locally(
        &mut self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        change: Stamp,
        out: &mut Vec<Invalidation>,
    ) {
        let moved = self.named(from.0, from.1);
        self.apply_rename(from, to, change, out);
        for ino in moved.into_iter().chain([from.0, to.0]) {
            self.touch(ino, change);
        }
    }

    /// The attributes of a file change. What they are is known when the change is confirmed.
    pub(in super::super) fn touch(&mut self, ino: u64, change: Stamp) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            if !node.is_pending() {
                node.basis = (node.attributes.inode != 0).then(|| Box::new(node.attributes.version()));
            }
            node.stamp = change;
        }
    }

    /// The host has carried out a change of a file, and says what it is now, if it can. Another change may be under way.
    pub(in super::super) fn confirm(
        &mut self,
        ino: u64,
        change: Stamp,
        Confirmation { stamp, before, now }: Confirmation,
        out: &mut Vec<Invalidation>,
    ) {
        if let Some(attributes) = &now {
            self.recognise(ino, attributes, out);
        }
        // Its path may be that of another file by now.
        let is_same = now.is_some_and(|now| ino == ROOT || self.number(now.inode) == ino);
        let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.stamp == change || node.is_pending()) else {
            return;
        };
        let is_file = node.attributes.kind == FileKind::File;
        // What the kernel has may be another file's, or without what somebody on the host wrote in between. The answers to
        // later changes don't show that any more.
        let mut was_disturbed = now.is_some_and(|now| !is_same || node.has_other_basis(before, now));
        if now.is_some() {
            node.basis = now.filter(|_| is_same).map(|now| Box::new(now.version()));
        }
        if node.stamp == change {
            let (shown, missed) = (node.attributes, node.missed.take());
            (node.stamp, node.basis) = (stamp, None);
            match now.filter(|_| is_same) {
                None => node.validity = Validity::Unknown,
                Some(now) => {
                    node.attributes = if ino == ROOT { super::root(now) } else { now };
                    self.revalidate(ino, Instant::now());
                    was_disturbed |= shown.size != now.size;
                    match missed.map(|missed| *missed) {
                        Some((newer, missed)) if newer > stamp => {
                            self.apply_attributes(ino, newer, missed, Origin::Host, out);
                        }
                        Some((_, missed)) => {
                            was_disturbed |= (missed.size, missed.modified) != (now.size, now.modified);
                        }
                        None => {}
                    }
                }
            }
        }
        if is_file && was_disturbed {
            self.drop_content(ino);
            out.push(Invalidation::Content(ino));
        }
    }

    /// The host has carried out a change of a name. Reports that came too early are looked at now.
    pub(in super::super) fn confirm_name(
        &mut self,
        (folder, name): (u64, &[u8]),
        change: Stamp,
        stamp: Stamp,
        out: &mut Vec<Invalidation>,
    ) {
        let Some(known) = self.nodes.get_mut(&folder).and_then(|node| node.folder.as_mut()) else { return };
        match known.entries.get_mut(name) {
            Some((known, _)) if *known == change => *known = stamp,
            _ => return,
        }
        let validity = known.validity;
        match known.missed.remove(name).filter(|(newer, _)| *newer > stamp) {
            Some((newer, Some(entry))) => self.put(folder, name, newer, &entry, validity, Origin::Host, out),
            Some((newer, None)) => self.remove(folder, name, newer, Origin::Host, out),
            None => {}
        }
    }

    /// A change of a name failed. What has the name is asked for again.
    pub(in super::super) fn doubt_name(
        &mut self,
        (folder, name): (u64, &[u8]),
        change: Stamp,
        out: &mut Vec<Invalidation>,
    ) {
        let Some(known) = self.nodes.get_mut(&folder).and_then(|node| node.folder.as_mut()) else { return };
        let Some((stamp, ino)) = known.entries.get(name).copied() else { return };
        if stamp != change {
            return;
        }
        known.missed.remove(name);
        (known.listed, known.validity) = (None, Validity::Unknown);
        self.remove_entry(folder, name);
        out.push(Invalidation::Entry { folder, name: name.to_vec() });
        if let Some(ino) = ino {
            self.unname(ino, folder, name, out);
        }
    }

    /// A file that was created here turns out to be the one with this number on the host.
    pub(in super::super) fn recognise(&mut self, ino: u64, attributes: &FsAttributes, out: &mut Vec<Invalidation>) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        if node.attributes.inode != 0 || node.attributes.kind != attributes.kind {
            return;
        }
        node.attributes.inode = attributes.inode;
        // Somebody on the host gave it another name meanwhile. That is looked up again.
        let number = self.number(attributes.inode);
        let names = self.nodes.get(&number).map(|other| other.names.clone()).unwrap_or_default();
        for (folder, name) in names {
            self.remove_entry(folder, &name);
            if let Some(known) = self.folder_mut(folder) {
                (known.listed, known.validity) = (None, Validity::Unknown);
            }
            self.unname(number, folder, &name, out);
            out.push(Invalidation::Entry { folder, name: name.to_vec() });
        }
        self.aliases.insert(attributes.inode, ino);
    }
}

// === impl Node ===

impl Node {
    /// Whether a change found another version than the one that is known here.
    fn has_other_basis(&self, before: Option<FsAttributes>, now: FsAttributes) -> bool {
        match (self.basis.as_deref(), before) {
            (Some(basis), Some(before)) => before.version() != *basis,
            // The change was of something else.
            (Some(basis), None) => (now.size, now.modified) != (basis.size, basis.modified),
            // It is new.
            (None, _) => now.size > 0,
        }
    }
}
