//! What every part of a running runtime shares.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use attache_client::{HubClient, channel::ChannelHandle};
use attache_protocol::{
    RunId, WorkspaceId,
    env::Env,
    wire::runtime::{ASKS, DeclaredExtension},
};

use crate::{
    adapter::AdapterClient,
    artifacts::ArtifactUploader,
    claims::HeldClaims,
    clock::HubClock,
    collaborator::Collaborator,
    connection_status::ConnectionStatusFile,
    hub_transport::HubTransport,
    inbox::ChannelInbox,
    ledger::{ExecutionLedger, LedgerEntry, LedgerStep},
    link::HubLink,
    profile::Profile,
    report::ReportQueue,
};

#[derive(Debug)]
pub(crate) struct DeviceRuntime {
    pub(crate) transport: HubTransport,
    /// What came over the channel.
    pub(crate) inbox: Arc<ChannelInbox>,
    pub(crate) presence: ConnectionStatusFile,
    pub(crate) adapter: AdapterClient,
    pub(crate) ledger: ExecutionLedger,
    pub(crate) profile: Profile,
    /// Where tasks work and where their files are taken from.
    pub(crate) cwd: Option<PathBuf>,
    /// Where adapters of this device make the private folders of runs.
    pub(crate) scratch: PathBuf,
    /// Instructions of this device for an adapter that does not read them itself.
    pub(crate) instruction_file: Option<PathBuf>,
    /// Borrows folders, where its owner lets it.
    pub(crate) collaborator: Option<Collaborator>,
    /// What every heartbeat declares, besides whether the agent asks.
    pub(crate) extensions: Vec<DeclaredExtension>,
    /// Whether the agent asks before it takes a risky step, as its adapter said last.
    pub(crate) asks: AtomicBool,
    pub(crate) env: Env,
    pub(crate) clock: HubClock,
    pub(crate) link: HubLink,
    pub(crate) claims: HeldClaims,
    pub(crate) reports: ReportQueue,
}

// === impl DeviceRuntime ===

impl DeviceRuntime {
    /// All that this device declares, and that there is nothing as well: the hub remembers what an earlier life declared.
    pub(crate) async fn declared(&self) -> Vec<DeclaredExtension> {
        // An adapter that does not answer is the one that it was; what it is next, it says next.
        if let Ok(health) = self.adapter.health().await {
            self.asks.store(health.asks, Ordering::Relaxed);
        }
        let asks = self.asks.load(Ordering::Relaxed).then(|| DeclaredExtension::new(ASKS));
        self.extensions.iter().cloned().chain(asks).collect()
    }

    pub(crate) const fn hub(&self) -> &HubClient {
        &self.transport.hub
    }

    pub(crate) const fn channel(&self) -> Option<&ChannelHandle> {
        self.transport.channel.as_ref()
    }

    /// Where the files of a result go to.
    pub(crate) fn artifact_uploader(&self, workspace: WorkspaceId) -> ArtifactUploader {
        let (hub, cwd) = (self.hub().clone(), self.cwd.clone());
        let scratch = self.scratch.clone();
        ArtifactUploader { hub, workspace, cwd, scratch, env: self.env.clone(), link: self.link.clone() }
    }

    /// Writes a line about work that is under way. A full disk must not stop that: without the line the work counts as
    /// lost after a restart, and is not done twice.
    pub(crate) async fn note(&self, line: LedgerEntry) {
        if let Err(error) = self.ledger.append(&line).await {
            self.link.ledger_failed(&error);
        }
    }

    /// Writes the lines that begin work; false when they are not on the disk, or nothing after them would be. Work begins
    /// only after its lines were written.
    pub(crate) async fn begin(&self, lines: &[LedgerEntry]) -> bool {
        match self.ledger.begin(lines).await {
            Ok(()) => {
                self.link.ledger_written();
                true
            }
            Err(error) => {
                self.link.ledger_failed(&error);
                false
            }
        }
    }

    /// Whether the ledger can be written; one that failed is tried again.
    pub(crate) async fn remembers(&self) -> bool {
        !self.link.ledger_fails() || self.begin(&[]).await
    }

    pub(crate) fn ledger_entry(&self, step: LedgerStep) -> LedgerEntry {
        LedgerEntry::new(self.env.now(), step)
    }

    pub(crate) fn run_entry(&self, step: LedgerStep, run: RunId, epoch: i64) -> LedgerEntry {
        self.ledger_entry(step).of_run(run, epoch)
    }
}
