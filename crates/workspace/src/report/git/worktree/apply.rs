//! Brings the changes of a worktree into the working tree that it was made from: all of them, or none.

use attache_protocol::Timestamp;

use super::{
    super::{self as git, commit_tree, output},
    Error, PrivateRepository, RunWorktree, alone, names, run, show, text, write_tree,
};

/// What was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedFiles {
    /// Relative to the top.
    pub files: Vec<String>,
}

impl RunWorktree {
    /// Applies the changes to the source's files as uncommitted ones. What changed there since is merged line by line; if
    /// that isn't possible for one file, nothing is changed.
    pub fn apply(&self, now: Timestamp) -> Result<AppliedFiles, Error> {
        let _lock = self.lock()?;
        let theirs = {
            let private = self.repository()?;
            let state = self.state_in(&private)?;
            if names(&private, &self.record.base, &state.tree)?.is_empty() {
                return Err(Error::Unchanged);
            }
            state.tree
        };
        let (base, source) = (&self.record.base, self.source());
        self.check_source()?;
        let private = PrivateRepository::create(&source, &self.scratch())?;
        let changed = names(&private, base, &theirs)?;
        let _alone = alone::in_folders_of(&self.record.source, &changed)?;
        source.check_filters(&private, &changed)?;
        // The base with the owner's version of everything that the run changed.
        run("read-tree", private.git().args(["read-tree", base]), None)?;
        source.stage(&private, changed.iter().map(Vec::as_slice))?;
        let ours = write_tree(&private)?;
        let merged = merge(&private, (base, &ours, &theirs), now)?;
        let files = names(&private, &ours, &merged)?;
        if files.is_empty() {
            return Ok(AppliedFiles { files: Vec::new() });
        }
        self.patch(&private, &ours, &merged).map_err(|error| self.restore(&private, &ours, &files, error))?;
        Ok(AppliedFiles { files: files.iter().map(|name| show(name)).collect() })
    }

    fn patch(&self, private: &PrivateRepository, from: &str, to: &str) -> Result<(), Error> {
        let mut diff = private.git();
        diff.args([
            "diff-tree",
            "-r",
            "-p",
            "--binary",
            "--full-index",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
        ]);
        let patch = run("diff-tree", diff.args([from, to]), None)?;
        if patch.is_empty() {
            return Ok(());
        }
        // It looks at every file before it writes the first one.
        run("apply", private.git().args(["apply", "--whitespace=nowarn", "-"]), Some(&patch))?;
        Ok(())
    }

    /// A disk can fill up while files are written. Puts those back that were.
    fn restore(&self, private: &PrivateRepository, ours: &str, files: &[Vec<u8>], error: Error) -> Error {
        let source = self.source();
        let undone = source
            .stage(private, files.iter().map(Vec::as_slice))
            .and_then(|()| write_tree(private))
            .map_err(Error::from)
            .and_then(|now| self.patch(private, &now, ours));
        if let Err(left) = undone {
            tracing::error!(run.id = %self.record.run, %left, "couldn't undo what was applied in part");
        }
        error
    }
}

/// The merge of two trees.
fn merge(
    private: &PrivateRepository,
    (base, ours, theirs): (&str, &str, &str),
    now: Timestamp,
) -> Result<String, Error> {
    // Older versions of git take no base, and find it by its commits.
    let ours = commit_tree(private, ours, Some(base), "ours", now)?;
    let theirs = commit_tree(private, theirs, Some(base), "theirs", now)?;
    let mut merge = private.git();
    merge.args(["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", &ours, &theirs]);
    let output = output("merge-tree", &mut merge, None)?;
    let mut parts = output.stdout.split(|&byte| byte == 0).filter(|part| !part.is_empty());
    let tree = parts.next().map(text);
    match (output.status.code(), tree) {
        (Some(0), Some(tree)) => Ok(tree),
        (Some(1), Some(_)) => Err(Error::Conflicts(parts.map(show).collect())),
        _ => Err(git::Error::Failed("merge-tree".to_owned()).into()),
    }
}
