//! The ledger across torn lines, restarts and rotation.

use attache_protocol::{Json, RunId, env::Env};

use super::*;

struct LedgerFixture {
    home: tempfile::TempDir,
    agent: AgentId,
    env: Env,
}

impl LedgerFixture {
    fn new() -> Self {
        let env = Env::seeded(1);
        Self { home: tempfile::tempdir().unwrap(), agent: env.agent_id(), env }
    }

    fn open(&self) -> (ExecutionLedger, Vec<OpenClaim>) {
        let (ledger, history) = ExecutionLedger::open_limited(self.home.path(), self.agent, 2_000).unwrap();
        (ledger, history.open())
    }

    fn line(&self, step: LedgerStep, run: RunId) -> LedgerEntry {
        LedgerEntry::new(self.env.now(), step).of_run(run, 1)
    }

    fn text(&self) -> String {
        fs::read_to_string(ExecutionLedger::path(self.home.path(), self.agent)).unwrap()
    }
}

fn done(text: &str) -> ExecutionOutcome {
    ExecutionOutcome::completed(&Json::from_text(format!("{{\n\"text\":{text:?},\r\n\"n\":1.0}}")).unwrap(), None)
}

#[tokio::test]
async fn reserved_space_is_not_part_of_the_file() {
    let world = LedgerFixture::new();
    let (ledger, _) = world.open();
    let run = world.env.run_id();
    let lines = [LedgerStep::TaskPulled, LedgerStep::TaskStarted].map(|step| world.line(step, run));
    ledger.begin(&lines).await.unwrap();
    ledger.begin(&[]).await.unwrap();
    assert_eq!(world.text(), format!("{}{}\n", lines[0].text(), lines[1].text()));
    let (_, open) = world.open();
    assert!(matches!(open.as_slice(), [OpenClaim::Unfinished(_)]), "{open:?}");
}

#[tokio::test]
async fn an_outcome_stays_open_until_it_is_reported() {
    let world = LedgerFixture::new();
    let (ledger, open) = world.open();
    assert_eq!(open, []);
    let [one, two, three, four] = std::array::from_fn(|_| world.env.run_id());
    for run in [one, two, three, four] {
        ledger.append(&world.line(LedgerStep::TaskPulled, run)).await.unwrap();
    }
    for run in [one, two, three] {
        ledger.append(&world.line(LedgerStep::TaskStarted, run)).await.unwrap();
    }
    for run in [one, two] {
        ledger.append(&LedgerEntry::outcome(world.env.now(), run, 1, &done("ok"))).await.unwrap();
    }
    ledger.append(&world.line(LedgerStep::TaskReported, one)).await.unwrap();
    let (_, mut open) = world.open();
    open.sort_by_key(|open| match open {
        OpenClaim::Unreported { .. } => 0,
        OpenClaim::Unfinished(_) => 1,
        OpenClaim::Unstarted(_) => 2,
    });
    assert_eq!(
        open,
        [
            OpenClaim::Unreported { run: two, epoch: 1, outcome: done("ok") },
            OpenClaim::Unfinished(world.line(LedgerStep::TaskPulled, three)),
            OpenClaim::Unstarted(world.line(LedgerStep::TaskPulled, four)),
        ]
    );
    assert!(world.text().contains(r#""output":{ "text":"ok",  "n":1.0}"#), "{}", world.text());
}

#[tokio::test]
async fn a_torn_last_line_hides_nothing_else() {
    let world = LedgerFixture::new();
    let run = world.env.run_id();
    let (ledger, _) = world.open();
    ledger.append(&LedgerEntry::outcome(world.env.now(), run, 1, &done("kept"))).await.unwrap();
    drop(ledger);
    let path = ExecutionLedger::path(world.home.path(), world.agent);
    let mut torn = fs::read(&path).unwrap();
    torn.extend_from_slice(br#"{"at":"2026-01-01T00:00:00.000Z","event":"task_rep"#);
    fs::write(&path, &torn).unwrap();

    let (ledger, open) = world.open();
    assert_eq!(open, [OpenClaim::Unreported { run, epoch: 1, outcome: done("kept") }]);
    ledger.append(&world.line(LedgerStep::TaskReported, run)).await.unwrap();
    assert_eq!(world.open().1, []);
}

#[tokio::test]
async fn rotation_keeps_what_is_not_reported() {
    let world = LedgerFixture::new();
    let (ledger, _) = world.open();
    let waiting = world.env.run_id();
    ledger.append(&LedgerEntry::outcome(world.env.now(), waiting, 1, &done("waiting"))).await.unwrap();
    for _ in 0..100 {
        let run = world.env.run_id();
        ledger.append(&LedgerEntry::outcome(world.env.now(), run, 1, &done("told"))).await.unwrap();
        ledger.append(&world.line(LedgerStep::TaskReported, run)).await.unwrap();
    }
    assert!(world.text().len() < 3_000, "{}", world.text().len());
    assert!(ExecutionLedger::path(world.home.path(), world.agent).with_extension("1.jsonl").exists());
    assert_eq!(world.open().1, [OpenClaim::Unreported { run: waiting, epoch: 1, outcome: done("waiting") }]);
}

/// The path of the old lines can't be written. That costs the old lines, but no task and no unreported outcome.
#[tokio::test]
async fn a_rotation_that_cannot_keep_old_lines_loses_nothing_else() {
    let world = LedgerFixture::new();
    let (ledger, _) = world.open();
    let waiting = world.env.run_id();
    ledger.append(&LedgerEntry::outcome(world.env.now(), waiting, 1, &done("waiting"))).await.unwrap();
    let old = ExecutionLedger::path(world.home.path(), world.agent).with_extension("1.jsonl");
    fs::create_dir_all(old.join("in the way")).unwrap();
    for _ in 0..100 {
        let run = world.env.run_id();
        ledger.append(&LedgerEntry::outcome(world.env.now(), run, 1, &done("told"))).await.unwrap();
        ledger.append(&world.line(LedgerStep::TaskReported, run)).await.unwrap();
    }
    assert!(world.text().len() < 3_000, "{}", world.text().len());
    assert_eq!(world.open().1, [OpenClaim::Unreported { run: waiting, epoch: 1, outcome: done("waiting") }]);
}

#[tokio::test]
async fn an_interrupted_rotation_is_completed_at_the_next_start() {
    let world = LedgerFixture::new();
    let (ledger, _) = world.open();
    let run = world.env.run_id();
    ledger.append(&world.line(LedgerStep::TaskPulled, run)).await.unwrap();
    let path = ExecutionLedger::path(world.home.path(), world.agent);
    fs::rename(&path, path.with_extension("next.jsonl")).unwrap();
    assert_eq!(world.open().1, [OpenClaim::Unstarted(world.line(LedgerStep::TaskPulled, run))]);
}
