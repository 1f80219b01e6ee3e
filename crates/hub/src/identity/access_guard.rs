//! Watches the rights of a caller who holds something open: a stream, a wait, a tunnel.

use std::time::Duration;

use attache_protocol::{ChannelId, Json};
use attache_store::record::{RunRecord, RunSpec};
use tokio::time::Instant;

use crate::{
    Error, Handle, Principal, Result,
    bus::{Topic, TopicWatch},
    identity::{Action, PrincipalKind},
};

/// How often the credential is checked.
const CREDENTIAL_INTERVAL: Duration = Duration::from_millis(500);

/// How often the right is checked if nothing hints at a change, because that may read the store.
const RIGHT_INTERVAL: Duration = Duration::from_secs(2);

/// The right that something was opened with. It is checked again as long as it stays open.
#[derive(Debug)]
pub(crate) enum StreamRight {
    /// The credential alone, for work on a runtime's own claims and for waits that check on every look.
    Credential,
    /// An action on what belongs to the caller.
    May(Action),
    /// An action on everything in the tenant.
    MayAll(Action),
    SeeRun(Box<RunRecord>),
    SeeChannel(ChannelId),
}

/// Checks a caller's credential and right again while something is open.
#[derive(Debug)]
pub(crate) struct AccessGuard {
    hub: Handle,
    /// The caller with the rights of the last check.
    principal: Principal,
    right: StreamRight,
    credential_watch: TopicWatch,
    rights_watch: TopicWatch,
    /// When to check the credential next.
    due: Instant,
    /// When to check the right next.
    right_due: Instant,
    /// The version of the access rules at the last check of the right.
    rules: i64,
}

// === impl StreamRight ===

impl StreamRight {
    /// Seeing this run. Only what decides about it is kept.
    pub(crate) fn see_run(run: RunRecord) -> Self {
        Self::SeeRun(Box::new(RunRecord {
            spec: RunSpec { input: Json::of(&()), context_fragments: None, allowed_tools: None, ..run.spec },
            result: None,
            usage: None,
            ..run
        }))
    }

    async fn check(&self, hub: &Handle, by: &Principal) -> Result<()> {
        match self {
            Self::Credential => Ok(()),
            Self::May(action) => by.may(*action).map(drop),
            Self::MayAll(action) => by.may_all(*action),
            // A worker sees what it has claimed. For everyone else the run's state doesn't matter, so any number of them
            // can watch a run without reading it again.
            Self::SeeRun(run) if matches!(by.who, PrincipalKind::Runtime { .. }) => {
                hub.visible_run(by, run.id).await.map(drop)
            }
            Self::SeeRun(run) => hub.check_run_access(&by.may(Action::SeeRuns)?, run).await,
            Self::SeeChannel(channel) => hub.visible_channel(by, *channel).await.map(drop),
        }
    }
}

// === impl AccessGuard ===

impl AccessGuard {
    /// The caller has just shown that they have the right.
    pub(crate) fn new(hub: &Handle, principal: &Principal, right: StreamRight) -> Self {
        let topic = match principal.who {
            PrincipalKind::Key { key, .. } | PrincipalKind::Outside { key, .. } => Topic::Key(key),
            PrincipalKind::Runtime { agent, .. } | PrincipalKind::Anonymous { agent } => Topic::Runtime(agent),
            PrincipalKind::Run { run, .. } => Topic::Run(run),
        };
        let now = Instant::now();
        Self {
            hub: hub.clone(),
            principal: principal.clone(),
            right,
            credential_watch: hub.bus().watch(topic),
            rights_watch: hub.bus().watch(Topic::Rights(principal.tenant)),
            due: now + CREDENTIAL_INTERVAL,
            right_due: now + RIGHT_INTERVAL,
            rules: hub.access().version(principal.tenant),
        }
    }

    pub(crate) fn with_right(self, right: StreamRight) -> Self {
        Self { right, ..self }
    }

    /// The caller with the rights of the last check.
    pub(crate) const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Resolves with the reason when the caller loses access. Safe to drop and call again.
    pub(crate) async fn broken(&mut self) -> Error {
        loop {
            tokio::select! {
                () = self.credential_watch.moved() => self.due = Instant::now(),
                () = self.rights_watch.moved() => self.check_right_now(),
                () = tokio::time::sleep_until(self.due) => {}
            }
            if let Err(error) = self.check_if_due().await {
                return error;
            }
        }
    }

    /// Checks when due. Called before anything is shown, so that nothing is shown after a change of rights.
    pub(crate) async fn check_if_due(&mut self) -> Result<()> {
        if self.credential_watch.take_moved() {
            self.due = Instant::now();
        }
        if self.rights_watch.take_moved() {
            self.check_right_now();
        }
        if Instant::now() < self.due {
            return Ok(());
        }
        match self.check().await {
            // A briefly busy store is no reason to cut a stream.
            Err(error) if error.code.http_status() < 500 => Err(error),
            Ok(()) | Err(_) => {
                self.due = Instant::now() + CREDENTIAL_INTERVAL;
                Ok(())
            }
        }
    }

    fn check_right_now(&mut self) {
        self.due = Instant::now();
        self.right_due = self.due;
    }

    async fn check(&mut self) -> Result<()> {
        let principal = self.hub.recheck(&self.principal).await?;
        let (now, rules) = (Instant::now(), self.hub.access().version(principal.tenant));
        if principal != self.principal || rules != self.rules || self.right_due <= now {
            self.right.check(&self.hub, &principal).await?;
            (self.rules, self.right_due) = (rules, now + RIGHT_INTERVAL);
        }
        self.principal = principal;
        Ok(())
    }
}
