//! Makes steps from a seed. It knows what exists, so most steps mean something, and some are wrong on purpose.

mod people;
mod reads;
mod work;

use std::time::Duration;

use attache_protocol::{
    AgentId, RuntimeId, TenantId, Timestamp,
    rules::run::{Status, next_deadline},
    wire::runtime::RuntimeState,
};

use super::{
    answer::Answer,
    draw::Draw,
    known::{Border, Known, SILENCE},
    step::Step,
};
use crate::{
    Context, Store,
    memory::Memory,
    record::{Page, RunFilter, RunRecord},
};

const HOUR: u64 = 60 * 60 * 1000;
const DAY: u64 = 24 * HOUR;
/// Far enough for a lease or a short queue to end, near enough for the rest to live on.
const SOON: Duration = Duration::from_secs(5 * 60);

/// Makes the steps of one sequence.
#[derive(Debug)]
pub(super) struct Generator {
    draw: Draw,
    /// The tenant of the sequence.
    tenant: TenantId,
    /// Another tenant; in half of the sequences it does not exist.
    foreign: TenantId,
    /// What comes next, last one first; drawn when empty. Most sequences begin with making something to work with.
    planned: Vec<Kind>,
    known: Known,
}

/// What to do next, before its arguments are drawn.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Crash,
    EnsureTenant,
    CreateTenant,
    CreateAccount,
    UpdateAccount,
    ArchiveAccount,
    CreatePairingCode,
    RequestPairing,
    ReadPairing,
    DecidePairing,
    AttachRuntime,
    /// The whole way from a code to a runtime.
    Pair,
    RevokeRuntime,
    Heartbeat,
    CreateKey,
    RevokeKey,
    CreateRun,
    Claim,
    Progress,
    Finish,
    Cancel,
    Release,
    Sweep,
    Retain,
    CreateConversation,
    AddMessage,
    AddArtifact,
    ReadOne,
    ReadEvents,
    ReadLog,
    List,
    WrongCursor,
}

/// How often each kind of step comes, relative to the others.
const WEIGHTS: [(u64, Kind); 31] = [
    (4, Kind::Crash),
    (1, Kind::EnsureTenant),
    (6, Kind::CreateAccount),
    (4, Kind::UpdateAccount),
    (1, Kind::ArchiveAccount),
    (3, Kind::CreatePairingCode),
    (3, Kind::RequestPairing),
    (2, Kind::ReadPairing),
    (4, Kind::DecidePairing),
    (6, Kind::AttachRuntime),
    (5, Kind::Pair),
    (2, Kind::RevokeRuntime),
    (14, Kind::Heartbeat),
    (3, Kind::CreateKey),
    (2, Kind::RevokeKey),
    (28, Kind::CreateRun),
    (28, Kind::Claim),
    (28, Kind::Progress),
    (28, Kind::Finish),
    (6, Kind::Cancel),
    (6, Kind::Release),
    (12, Kind::Sweep),
    (5, Kind::Retain),
    (4, Kind::CreateConversation),
    (5, Kind::AddMessage),
    (6, Kind::AddArtifact),
    (10, Kind::ReadOne),
    (8, Kind::ReadEvents),
    (6, Kind::ReadLog),
    (10, Kind::List),
    (1, Kind::WrongCursor),
];

// === impl Generator ===

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        let draw = Draw::new(seed);
        let (tenant, foreign) = (draw.env.tenant_id(), draw.env.tenant_id());
        let mut planned = Vec::new();
        if draw.percent(97) {
            planned.push(Kind::EnsureTenant);
        }
        if draw.percent(50) {
            planned.push(Kind::CreateTenant);
        }
        if draw.percent(90) {
            planned.extend([Kind::CreateAccount, Kind::Pair, Kind::CreateRun]);
        }
        planned.reverse();
        Self { draw, tenant, foreign, planned, known: Known::default() }
    }

    /// The time of the sequence.
    fn now(&self) -> Timestamp {
        self.draw.env.now()
    }

    /// What a sequence ends with: nothing may be overdue afterwards.
    pub(super) fn last(&self) -> Step {
        Step::Sweep { silence: SILENCE, at: self.now() }
    }

    /// The next step. Looks at the model for what would make sense, for example the current epoch of a run.
    pub(super) async fn next(&mut self, model: &Memory) -> Step {
        self.pass_time(model).await;
        let kind = self.planned.pop().unwrap_or_else(|| self.kind());
        match self.sensible(kind, model).await {
            Kind::Crash => Step::Crash,
            Kind::EnsureTenant => self.ensure_tenant(),
            Kind::CreateTenant => self.create_tenant(),
            Kind::CreateAccount => self.create_account(),
            Kind::UpdateAccount => self.update_account(),
            Kind::ArchiveAccount => self.archive_account(),
            Kind::CreatePairingCode => self.create_pairing_code(),
            Kind::RequestPairing => self.request_pairing(),
            Kind::ReadPairing => self.read_pairing(),
            Kind::DecidePairing => self.decide_pairing(),
            Kind::AttachRuntime => self.attach_runtime(),
            Kind::Pair => self.pair(),
            Kind::RevokeRuntime => self.revoke_runtime(model).await,
            Kind::Heartbeat => self.heartbeat(model).await,
            Kind::CreateKey => self.create_key(),
            Kind::RevokeKey => self.revoke_key(),
            Kind::CreateRun => self.create_run(model).await,
            Kind::Claim => self.claim(model).await,
            Kind::Progress => self.progress(model).await,
            Kind::Finish => self.finish(model).await,
            Kind::Cancel => self.cancel(model).await,
            Kind::Release => self.release(model).await,
            Kind::Sweep => self.sweep(),
            Kind::Retain => self.retain(),
            Kind::CreateConversation => self.create_conversation(),
            Kind::AddMessage => self.add_message(),
            Kind::AddArtifact => self.add_artifact(model).await,
            Kind::ReadOne => self.read_one(),
            Kind::ReadEvents => self.read_events(),
            Kind::ReadLog => self.read_log(),
            Kind::List => self.list(),
            Kind::WrongCursor => self.wrong_cursor(),
        }
    }

    pub(super) fn learn(&mut self, step: &Step, answer: &Answer) {
        self.known.learn(step, answer);
    }

    /// What to do instead, mostly, if there is nothing to do it with.
    async fn sensible(&self, kind: Kind, model: &Memory) -> Kind {
        if self.draw.percent(10) {
            return kind;
        }
        if self.known.tenant.is_none() {
            return Kind::EnsureTenant;
        }
        if matches!(kind, Kind::CreateTenant) {
            return kind;
        }
        if self.known.agents.is_empty() {
            return Kind::CreateAccount;
        }
        let instead = match kind {
            Kind::Progress | Kind::Finish | Kind::Release if self.running(model).await.is_empty() => Kind::Claim,
            kind => kind,
        };
        match instead {
            Kind::Claim if model.live(self.tenant).await.is_ok_and(|live| live.pending == 0) => Kind::CreateRun,
            Kind::Claim | Kind::Heartbeat if self.active(model).await.is_empty() => Kind::Pair,
            Kind::AttachRuntime if self.known.newest_proof.is_none() => Kind::Pair,
            Kind::RevokeKey if self.known.keys.is_empty() => Kind::CreateKey,
            Kind::DecidePairing | Kind::ReadPairing if self.known.requests.is_empty() => Kind::RequestPairing,
            Kind::AddMessage if self.known.conversations.is_empty() => Kind::CreateConversation,
            instead => instead,
        }
    }

    fn kind(&self) -> Kind {
        let mut left = self.draw.below(WEIGHTS.iter().map(|(weight, _)| weight).sum());
        for (weight, kind) in WEIGHTS {
            if left < weight {
                return kind;
            }
            left -= weight;
        }
        Kind::Sweep
    }

    /// Moves the clock by milliseconds mostly, by days sometimes, and now and then exactly onto a border.
    async fn pass_time(&mut self, model: &Memory) {
        let millis = match self.draw.below(100) {
            _ if !self.planned.is_empty() => self.draw.below(20),
            0..20 => 0,
            20..50 => self.draw.below(20),
            50..78 => self.draw.below(3_000),
            78..88 => self.draw.below(40_000),
            88..91 => self.draw.below(20 * 60_000),
            91..92 => self.draw.below(2 * DAY),
            92..93 => DAY,
            _ => return self.meet_a_border(model).await,
        };
        self.draw.env.advance(Duration::from_millis(millis));
    }

    /// Moves the clock exactly to where something changes by itself, and has somebody look.
    async fn meet_a_border(&mut self, model: &Memory) {
        let now = self.now();
        let border = if self.draw.percent(50) {
            let deadline = self.some_run(model).await.and_then(|run| next_deadline(&run.state));
            let near = deadline.filter(|deadline| self.draw.percent(15) || deadline.since(now) < SOON);
            near.map(|deadline| (deadline, if self.draw.percent(70) { Kind::Sweep } else { Kind::Claim }))
        } else {
            let mut ahead: Vec<(Timestamp, Border)> =
                self.known.borders.iter().copied().filter(|(at, _)| *at > now).collect();
            ahead.sort_unstable();
            self.draw.one_of(&ahead[..ahead.len().min(3)]).map(|(at, border)| {
                let kind = match border {
                    Border::Pairing if self.draw.percent(30) => Kind::DecidePairing,
                    Border::Pairing => Kind::AttachRuntime,
                    Border::Grace => Kind::Heartbeat,
                    Border::Silence => Kind::Sweep,
                    Border::Key => Kind::CreateRun,
                };
                (at, kind)
            })
        };
        if let Some((at, kind)) = border {
            self.draw.env.advance(at.since(now));
            self.planned.push(kind);
        }
    }

    /// The time of a step; a clock may also go back a little.
    fn at(&self) -> Timestamp {
        let back = if self.draw.percent(3) { self.draw.below(2_000) } else { 0 };
        self.now().minus(Duration::from_millis(back))
    }

    fn tenant(&self) -> TenantId {
        let foreign = if self.known.neighbour.is_some() { 8 } else { 3 };
        if self.draw.percent(foreign) { self.foreign } else { self.tenant }
    }

    fn context(&self) -> Context {
        let actor = self.draw.one_of(&["key:owner", "key:other", Context::SYSTEM, "user:日本"]).unwrap_or_default();
        Context::new(self.tenant(), actor, self.at())
    }

    /// A run of the model: one that somebody works on mostly, any other sometimes.
    async fn some_run(&self, model: &Memory) -> Option<RunRecord> {
        if self.draw.percent(75) {
            let mut running = self.running(model).await;
            if !running.is_empty() {
                let bound = u64::try_from(running.len()).unwrap_or(1);
                return Some(running.swap_remove(usize::try_from(self.draw.below(bound)).unwrap_or(0)));
            }
        }
        let run = self.draw.recent(&self.known.runs)?;
        model.run(self.tenant, run).await.ok()
    }

    /// The newest few runs that somebody works on.
    async fn running(&self, model: &Memory) -> Vec<RunRecord> {
        let filter = RunFilter { status: Some(Status::Running), ..RunFilter::default() };
        let page = Page { limit: 3, cursor: None };
        model.runs(self.tenant, filter, page).await.map(|listed| listed.items).unwrap_or_default()
    }

    /// Active runtimes with their agents.
    async fn active(&self, model: &Memory) -> Vec<(RuntimeId, AgentId)> {
        let page = Page { limit: 20, cursor: None };
        let runtimes = model.runtimes(self.tenant, None, page).await.map(|listed| listed.items).unwrap_or_default();
        let active = runtimes.iter().filter(|runtime| runtime.state == RuntimeState::Active);
        active.map(|runtime| (runtime.id, runtime.agent)).collect()
    }

    /// An active runtime mostly, any other or none that exists sometimes.
    async fn some_runtime(&self, model: &Memory) -> RuntimeId {
        let active = if self.draw.percent(90) { self.draw.one_of(&self.active(model).await) } else { None };
        active.map_or_else(|| self.runtime(), |(runtime, _)| runtime)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::conformance::perform;

    /// How often each kind of step had each kind of answer, and how often each type of row was logged.
    async fn reached(sequences: u64) -> BTreeMap<String, u64> {
        let mut reached = BTreeMap::new();
        let first_word = |debug: String| debug.split([' ', '(', '{', ',']).next().unwrap_or_default().to_owned();
        for seed in 0..sequences {
            let (mut generator, model) = (Generator::new(seed), Memory::new());
            for _ in 0..60 {
                let step = generator.next(&model).await;
                let answer = perform(&model, step.clone()).await;
                generator.learn(&step, &answer);
                let answer_kind = match &answer {
                    Ok(_) => "Ok".to_owned(),
                    Err(crate::Error::Refused { refusal, .. }) => format!("{refusal:?}"),
                    Err(error) => first_word(format!("{error:?}")),
                };
                *reached.entry(format!("{} {answer_kind}", first_word(format!("{step:?}")))).or_insert(0) += 1;
            }
            let log = model.log(generator.tenant, 0, 1_000).await.unwrap();
            for row in log.rows {
                *reached.entry(row.kind).or_insert(0) += 1;
            }
        }
        reached
    }

    /// Answers that sequences must meet, besides success of every step.
    const ANSWERS: [&str; 45] = [
        "AddArtifact NotFound",
        "AddMessage NotFound",
        "ArchiveAccount NotFound",
        "Artifact NotFound",
        "AttachRuntime AgentArchived",
        "AttachRuntime PairingInvalid",
        "AttachRuntime PairingPending",
        "AttachRuntime PairingRejected",
        "CancelRun Ended",
        "CancelRun NotFound",
        "Claim NotFound",
        "Claim RuntimeEnded",
        "Conversation NotFound",
        "CreateAccount NameTaken",
        "CreateAccount NotFound",
        "CreateConversation NotFound",
        "CreateKey NotFound",
        "CreatePairingCode AgentArchived",
        "CreatePairingCode NotFound",
        "CreateRun AgentArchived",
        "CreateRun KeyReused",
        "CreateRun NotFound",
        "DecidePairing AgentArchived",
        "DecidePairing NotFound",
        "DecidePairing PairingInvalid",
        "Finish Ended",
        "Finish ForeignArtifact",
        "Finish NotFound",
        "Finish NotRunning",
        "Finish StaleEpoch",
        "Heartbeat NotFound",
        "Heartbeat RuntimeEnded",
        "List NotFound",
        "PairingRequest PairingInvalid",
        "Progress Ended",
        "Progress NotRunning",
        "Progress StaleEpoch",
        "Release Ended",
        "Release NotRunning",
        "Release StaleEpoch",
        "RevokeKey NotFound",
        "RevokeRuntime NotFound",
        "RunEvents NotFound",
        "UpdateAccount AgentArchived",
        "UpdateAccount NameTaken",
    ];

    /// Every type of row in the table of [`Store`].
    const ROWS: [&str; 23] = [
        "agent.archived",
        "agent.created",
        "agent.updated",
        "artifact.changed",
        "conversation.created",
        "key.created",
        "key.revoked",
        "message.added",
        "pairing.code_created",
        "pairing.confirmed",
        "pairing.rejected",
        "runtime.attached",
        "runtime.offline",
        "runtime.online",
        "runtime.revoked",
        "runtime.superseded",
        "task.cancelled",
        "task.claimed",
        "task.completed",
        "task.created",
        "task.failed",
        "task.refused",
        "task.requeued",
    ];

    #[tokio::test]
    async fn sequences_reach_every_answer_and_every_row() {
        let reached = reached(400).await;
        let wanted = ANSWERS.iter().chain(&ROWS);
        let missed: Vec<_> = wanted.filter(|wanted| !reached.contains_key(**wanted)).collect();
        assert!(missed.is_empty(), "never reached: {missed:?} of {reached:#?}");
        // Work is done, and not only refused.
        for (step, share) in [("Claim Ok", 400), ("Progress Ok", 400), ("Finish Ok", 400), ("Release Ok", 100)] {
            assert!(reached[step] >= share, "{step} only {} times in {reached:#?}", reached[step]);
        }
    }
}
