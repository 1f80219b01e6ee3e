//! Old worktrees. Uncommitted changes are committed to the branch before the files are removed, so nothing is lost.

use std::time::Duration;

use attache_protocol::Timestamp;

use super::{Error, RunWorktree, WorktreeFolder};

/// How long a worktree is kept if it isn't discarded.
pub const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl WorktreeFolder {
    /// Removes the files of those that were made long ago, and returns their branches. A branch without commits is removed
    /// as well. One that can't be saved is kept.
    pub fn prune(&self, now: Timestamp) -> Vec<String> {
        let old = self.list().into_iter().filter(|worktree| now.since(worktree.record().created_at) > KEPT_FOR);
        let mut removed = Vec::new();
        for worktree in old {
            match worktree.retire(now) {
                Ok(true) => removed.push(worktree.branch()),
                Ok(false) => tracing::warn!(
                    run.id = %worktree.record().run,
                    "an old worktree is kept: it has another branch checked out, or repositories in it"
                ),
                Err(error) => tracing::warn!(run.id = %worktree.record().run, %error, "an old worktree is kept"),
            }
        }
        removed
    }
}

impl RunWorktree {
    /// `false` if something in it has no place on the branch.
    fn retire(&self, now: Timestamp) -> Result<bool, Error> {
        let lock = self.lock()?;
        let is_removed = self.save_and_remove(now)?;
        drop(lock);
        if is_removed {
            self.forget_lock();
        }
        Ok(is_removed)
    }

    fn save_and_remove(&self, now: Timestamp) -> Result<bool, Error> {
        if !self.record.common.is_dir() || !self.files().is_dir() {
            return Ok(false);
        }
        let private = self.repository()?;
        let state = self.state_in(&private)?;
        if !state.nested.is_empty() || !self.is_on_branch() {
            return Ok(false);
        }
        if state.is_unchanged() {
            drop(private);
            return self.remove().map(|()| true);
        }
        if state.is_uncommitted {
            let message = format!(
                "Uncommitted changes of {}\n\nSaved by Attaché before it removed the worktree.",
                self.record.run
            );
            self.commit_state(&private, &state, &message, now)?;
        }
        drop(private);
        self.remove_files().map(|()| true)
    }
}
