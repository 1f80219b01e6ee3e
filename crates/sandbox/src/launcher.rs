//! Starts programs inside walls.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::PathBuf,
};

use crate::{Mechanism, Proof, Walls, system};

/// This program, to be started as the second stage inside the namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageCommand {
    pub program: PathBuf,
    /// Before the walls and the command: it calls [`crate::enter`] with everything that follows.
    pub enter: Vec<OsString>,
    /// Before the targets of the probe: it calls [`crate::probe`] and prints the results.
    pub probe: Vec<OsString>,
}

#[derive(Debug, Clone)]
pub struct Launcher {
    pub(crate) stage: StageCommand,
    /// bubblewrap, where it is installed and works.
    pub(crate) bwrap: Option<PathBuf>,
}

// === impl Launcher ===

impl Launcher {
    /// With bubblewrap, if it is installed and this system lets it create namespaces.
    pub fn new(stage: StageCommand) -> Self {
        Self { stage, bwrap: system::bwrap() }
    }

    /// Without namespaces of its own, as where bubblewrap is missing.
    pub const fn without_namespaces(stage: StageCommand) -> Self {
        Self { stage, bwrap: None }
    }

    /// Whether a process inside has its own view of files, so that single folders can be hidden from it or be its own.
    pub const fn has_namespaces(&self) -> bool {
        self.bwrap.is_some()
    }

    /// The command that starts a program inside the walls: its own program, then its arguments.
    ///
    /// Fails if a folder can't be hidden because it is inside a visible one.
    pub fn command(&self, walls: &Walls, program: &OsStr) -> io::Result<(OsString, Vec<OsString>)> {
        let mut words = system::arguments(self, walls)?;
        words.push("--".into());
        words.push(program.to_owned());
        let first = words.remove(0);
        Ok((first, words))
    }

    /// Tries to break out of the strictest walls and reports what held. Takes a moment, and blocks.
    pub fn prove(&self) -> Proof {
        self.prove_without(&[])
    }

    #[doc(hidden)]
    pub fn prove_without(&self, left_out: &[Mechanism]) -> Proof {
        system::prove(self, left_out)
    }
}
