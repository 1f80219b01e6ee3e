//! What every part of a running runtime shares.

use std::{path::PathBuf, sync::Arc};

use attache_client::{Hub, channel::Channel};
use attache_protocol::{RunId, WorkspaceId, env::Env, wire::runtime::Extension};

use crate::{
    adapter::Adapter,
    artifacts::Shelf,
    claims::Claims,
    clock::Clock,
    collaborator::Collaborator,
    inbox::Inbox,
    ledger::{Ledger, Line, Step},
    link::Link,
    presence::Presence,
    profile::Profile,
    report::Reports,
    speak::Ways,
};

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) ways: Ways,
    /// What came over the channel.
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) presence: Presence,
    pub(crate) adapter: Adapter,
    pub(crate) ledger: Ledger,
    pub(crate) profile: Profile,
    /// Where tasks work and where their files are taken from.
    pub(crate) cwd: Option<PathBuf>,
    /// Where adapters of this device keep what tasks print.
    pub(crate) scratch: PathBuf,
    /// Instructions of this device for an adapter that does not read them itself.
    pub(crate) instruction_file: Option<PathBuf>,
    /// Borrows folders, where its owner lets it.
    pub(crate) collaborator: Option<Collaborator>,
    /// What every heartbeat declares.
    pub(crate) extensions: Option<Vec<Extension>>,
    pub(crate) env: Env,
    pub(crate) clock: Clock,
    pub(crate) link: Link,
    pub(crate) claims: Claims,
    pub(crate) reports: Reports,
}

// === impl Device ===

impl Device {
    pub(crate) const fn hub(&self) -> &Hub {
        &self.ways.hub
    }

    pub(crate) const fn channel(&self) -> Option<&Channel> {
        self.ways.channel.as_ref()
    }

    /// Where the files of a result go to.
    pub(crate) fn shelf(&self, workspace: WorkspaceId) -> Shelf {
        let (hub, cwd) = (self.hub().clone(), self.cwd.clone());
        let scratch = self.scratch.clone();
        Shelf { hub, workspace, cwd, scratch, env: self.env.clone(), link: self.link.clone() }
    }

    /// Writes a line. A full disk must not stop the work: the hub has the truth, the ledger only helps.
    pub(crate) async fn note(&self, line: Line) {
        self.note_all(&[line]).await;
    }

    pub(crate) async fn note_all(&self, lines: &[Line]) {
        if let Err(error) = self.ledger.append_all(lines).await {
            tracing::error!(%error, "the ledger cannot be written; free some space");
        }
    }

    pub(crate) fn line(&self, step: Step) -> Line {
        Line::new(self.env.now(), step)
    }

    pub(crate) fn run_line(&self, step: Step, run: RunId, epoch: i64) -> Line {
        self.line(step).of_run(run, epoch)
    }
}
