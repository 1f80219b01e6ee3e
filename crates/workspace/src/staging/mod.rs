//! Staged leases: the remote works in a private copy of the folder (`copy`), and what it changed there is brought into the
//! folder path by path when the owner wants that (`apply`).
//!
//! The copy is exported like any folder, with a record and originals of its own. So its record says what the remote changed, and its
//! originals are the base of a three-way comparison with the folder (`rules`).

mod apply;
mod copy;
mod rules;
mod version;

pub use self::{
    apply::{
        AppliedChanges, ApplyTarget, apply, clear_interrupted, mark_changed_in_folder, note_reverted, states, unapplied,
    },
    copy::{CopyError, CopyLimits, CopySummary, make_copy},
};
