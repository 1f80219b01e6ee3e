//! The state that all parts of a running runtime share.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use attache_client::{HubClient, channel::ChannelHandle};
use attache_delegation::collaborator::Collaborator;
use attache_protocol::{
    Json, RunId, WorkspaceId,
    env::Env,
    wire::{
        adapter::{AdapterHealth, WallsProof},
        run::Sandbox,
        runtime::{
            ASKS, DeclaredExtension, DeclaredSandbox, PLANS, SANDBOX, TAKES_INPUT, WORKTREE_DECISIONS, WORKTREES,
            WalledRuns,
        },
    },
};

use crate::{
    adapter::AdapterClient,
    artifacts::ArtifactUploader,
    claims::HeldClaims,
    clock::HubClock,
    connection_status::ConnectionStatusFile,
    hub_transport::HubTransport,
    inbox::ChannelInbox,
    ledger::{ExecutionLedger, LedgerEntry, LedgerStep},
    link::HubLink,
    profile::{Profile, Profiles},
    report::ReportQueue,
    worktree_decisions::WorktreeNotice,
};

#[derive(Debug)]
pub(crate) struct DeviceRuntime {
    pub(crate) transport: HubTransport,
    /// What arrived over the channel.
    pub(crate) inbox: Arc<ChannelInbox>,
    pub(crate) presence: ConnectionStatusFile,
    pub(crate) adapter: AdapterClient,
    pub(crate) ledger: ExecutionLedger,
    pub(crate) profile: Profile,
    /// The working folder of tasks, from which their files are uploaded.
    pub(crate) cwd: Option<PathBuf>,
    /// The folder in which adapters create the private folders of runs.
    pub(crate) scratch: PathBuf,
    /// The folder in which they make worktrees.
    pub(crate) worktrees: PathBuf,
    /// Wakes who carries out decisions about them.
    pub(crate) worktree_notice: Arc<WorktreeNotice>,
    /// Of all agents of the device.
    pub(crate) profiles: Profiles,
    /// Folders with keys, from which nothing is handed over.
    pub(crate) withheld: Vec<PathBuf>,
    /// Instructions of this device, for an adapter that doesn't read them itself.
    pub(crate) instruction_file: Option<PathBuf>,
    /// Accepts delegated folders, if its owner allows that.
    pub(crate) collaborator: Option<Collaborator>,
    /// Declared by every heartbeat, in addition to whether the agent asks.
    pub(crate) extensions: Vec<DeclaredExtension>,
    /// Whether the agent asks before a risky step, and its walls, as its adapter last reported.
    pub(crate) agent: Mutex<ReportedAgent>,
    pub(crate) walled: WalledRuns,
    pub(crate) env: Env,
    pub(crate) clock: HubClock,
    pub(crate) link: HubLink,
    pub(crate) claims: HeldClaims,
    pub(crate) reports: ReportQueue,
}

/// What the adapter says of its agent.
#[derive(Debug, Default)]
pub(crate) struct ReportedAgent {
    asks: bool,
    plans: bool,
    takes_input: bool,
    worktrees: bool,
    walls: Option<WallsProof>,
}

// === impl DeviceRuntime ===

impl DeviceRuntime {
    /// Everything this device declares, even if it is nothing: the hub remembers what an earlier process declared.
    pub(crate) async fn declared(&self) -> Vec<DeclaredExtension> {
        // If the adapter doesn't answer, the last known value stays.
        let health = self.adapter.health().await.ok();
        let mut agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(health) = health {
            let AdapterHealth { asks, plans, takes_input, worktrees, walls, .. } = health;
            *agent = ReportedAgent { asks, plans, takes_input, worktrees, walls };
        }
        let asks = agent.asks.then(|| DeclaredExtension::new(ASKS));
        let plans = agent.plans.then(|| DeclaredExtension::new(PLANS));
        let takes_input = agent.takes_input.then(|| DeclaredExtension::new(TAKES_INPUT));
        let worktrees = [WORKTREES, WORKTREE_DECISIONS].map(DeclaredExtension::new);
        let worktrees = worktrees.into_iter().filter(|_| agent.worktrees);
        let walls = agent.walls.clone().map(|proof| {
            let params = Json::of(&DeclaredSandbox { runs: self.walled, proof });
            DeclaredExtension { uri: SANDBOX.to_owned(), params: Some(params) }
        });
        self.extensions
            .iter()
            .cloned()
            .chain(asks)
            .chain(plans)
            .chain(takes_input)
            .chain(worktrees)
            .chain(walls)
            .collect()
    }

    /// The limits of a run whose caller asked for none, wherever walls enforce them.
    pub(crate) fn default_sandbox(&self, for_owner: bool) -> Option<Sandbox> {
        let walled = match self.walled {
            WalledRuns::Off => false,
            WalledRuns::Others => !for_owner,
            WalledRuns::All => true,
        };
        walled.then(|| Sandbox { cwd_only: Some(true), ..Sandbox::default() })
    }

    pub(crate) const fn hub(&self) -> &HubClient {
        &self.transport.hub
    }

    pub(crate) const fn channel(&self) -> Option<&ChannelHandle> {
        self.transport.channel.as_ref()
    }

    /// Uploads the files of results in this workspace.
    pub(crate) fn artifact_uploader(&self, workspace: WorkspaceId) -> ArtifactUploader {
        let (hub, cwd) = (self.hub().clone(), self.cwd.clone());
        let scratch = self.scratch.clone();
        let withheld = self.withheld.clone();
        let (env, link) = (self.env.clone(), self.link.clone());
        ArtifactUploader { hub, workspace, cwd, scratch, withheld, others: None, env, link }
    }

    /// Appends an entry about work in progress. A full disk must not stop the work: without the entry, it counts as
    /// lost after a restart and isn't done twice.
    pub(crate) async fn note(&self, line: LedgerEntry) {
        if let Err(error) = self.ledger.append(&line).await {
            self.link.ledger_failed(&error);
        }
    }

    /// Appends the entries that start work. `false` if they are not on disk, or if later entries would not fit. Work
    /// starts only after its entries are written.
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

    /// Whether the ledger can be written. Tries again after a failure.
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
