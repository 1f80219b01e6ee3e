//! How much the tree takes in memory. It is the host that fills it, so it has a limit.

use super::{Folder, FsListing, Invalidation, Name, Node, Stamp, Tree, TreeFull, local};

/// About what a file, folder or link takes besides its names, and what a name takes besides its letters.
const NODE: usize = 300;
const ENTRY: usize = 140;
/// The share of memory for content that wasn't requested.
const UNASKED: (usize, usize) = (1, 2);

pub(super) fn weight_of_node(target: Option<&[u8]>) -> usize {
    NODE + target.map_or(0, <[u8]>::len)
}

const fn weight_of_entry(name: &[u8]) -> usize {
    ENTRY + name.len()
}

// === impl Tree ===

impl Tree {
    /// Whether there is room for a folder, perhaps after others were forgotten. `false` if nobody asked for it, so that it
    /// need not be kept.
    pub(super) fn makes_room_for(
        &mut self,
        listing: &FsListing,
        out: &mut Vec<Invalidation>,
    ) -> Result<bool, TreeFull> {
        let is_asked = listing.id != 0 || listing.path.is_empty();
        let most = if is_asked { self.max_bytes } else { self.max_bytes / UNASKED.1 * UNASKED.0 };
        let all: usize = listing
            .entries
            .iter()
            .map(|(name, entry)| weight_of_entry(name) + weight_of_node(entry.target.as_deref()))
            .sum();
        if self.bytes + all <= most {
            return Ok(true);
        }
        // What is known already takes no more room.
        let known = self.at(&listing.path).and_then(|ino| self.nodes.get(&ino)?.folder.as_ref());
        let is_new = |(name, _): &&(Vec<u8>, _)| known.is_none_or(|folder| !folder.entries.contains_key(&name[..]));
        let added = listing.entries.iter().filter(is_new);
        let added: usize =
            added.map(|(name, entry)| weight_of_entry(name) + weight_of_node(entry.target.as_deref())).sum();
        if self.bytes + added <= most {
            return Ok(true);
        }
        if !is_asked {
            return Ok(false);
        }
        while self.bytes + added > most {
            if !self.shrink(out) {
                return Err(TreeFull);
            }
        }
        Ok(true)
    }

    /// Forgets folders of which the kernel knows nothing. They are listed again on demand. `false` if there
    /// are none.
    fn shrink(&mut self, out: &mut Vec<Invalidation>) -> bool {
        let is_unused = |ino: &u64| {
            self.nodes.get(ino).is_none_or(|node| node.lookups == 0 && node.folder.is_none() && !node.is_pending())
        };
        let unused = self.nodes.iter().filter(|(_, node)| {
            node.folder.as_ref().is_some_and(|folder| {
                let mut entries = folder.entries.values();
                (folder.listed.is_some() || !folder.entries.is_empty())
                    && folder.missed.is_empty()
                    && entries.all(|(stamp, ino)| !local::is_local(*stamp) && ino.iter().all(is_unused))
            })
        });
        let unused: Vec<u64> = unused.map(|(ino, _)| *ino).collect();
        for ino in &unused {
            let Some(folder) = self.take_folder(*ino) else { continue };
            for (name, (_, entry)) in folder.entries {
                if let Some(entry) = entry {
                    self.unname(entry, *ino, &name, out);
                }
            }
            if folder.has_shown_all {
                out.push(Invalidation::Content(*ino));
            }
            if let Some(node) = self.nodes.get_mut(ino).filter(|_| folder.has_shown_free) {
                node.folder = Some(Box::new(Folder { has_shown_free: true, ..Folder::default() }));
            }
        }
        !unused.is_empty()
    }

    pub(super) fn insert(&mut self, ino: u64, node: Node) {
        self.bytes += weight_of_node(node.target.as_deref());
        if let Some(before) = self.nodes.insert(ino, Box::new(node)) {
            self.bytes -= weight_of_node(before.target.as_deref());
        }
    }

    pub(super) fn set_target(&mut self, ino: u64, target: Option<&[u8]>) {
        let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.target.as_deref() != target) else { return };
        self.bytes -= weight_of_node(node.target.as_deref());
        self.bytes += weight_of_node(target);
        node.target = target.map(Into::into);
    }

    pub(super) fn insert_entry(&mut self, folder: u64, name: impl Into<Name>, entry: (Stamp, Option<u64>)) {
        let name = name.into();
        let weight = weight_of_entry(&name);
        if let Some(folder) = self.folder_mut(folder)
            && folder.entries.insert(name, entry).is_none()
        {
            self.bytes += weight;
        }
    }

    pub(super) fn remove_entry(&mut self, folder: u64, name: &[u8]) {
        if let Some(folder) = self.folder_mut(folder)
            && folder.entries.remove(name).is_some()
        {
            self.bytes -= weight_of_entry(name);
        }
    }

    pub(super) fn retain_entries(&mut self, folder: u64, is_kept: impl Fn((Stamp, Option<u64>)) -> bool) {
        let mut freed = 0;
        if let Some(folder) = self.folder_mut(folder) {
            folder.entries.retain(|name, entry| {
                let is_kept = is_kept(*entry);
                freed += if is_kept { 0 } else { weight_of_entry(name) };
                is_kept
            });
        }
        self.bytes -= freed;
    }

    /// Nothing is known about a folder any more.
    pub(super) fn take_folder(&mut self, ino: u64) -> Option<Box<Folder>> {
        let folder = self.nodes.get_mut(&ino)?.folder.take()?;
        self.bytes -= folder.entries.keys().map(|name| weight_of_entry(name)).sum::<usize>();
        Some(folder)
    }
}
