//! The ledger across torn lines, restarts and rotation.

use attache_protocol::{Json, RunId, env::Env};

use super::*;

struct World {
    home: tempfile::TempDir,
    agent: AgentId,
    env: Env,
}

impl World {
    fn new() -> Self {
        let env = Env::seeded(1);
        Self { home: tempfile::tempdir().unwrap(), agent: env.agent_id(), env }
    }

    fn open(&self) -> (Ledger, Vec<Open>) {
        let (ledger, history) = Ledger::open_limited(self.home.path(), self.agent, 2_000).unwrap();
        (ledger, history.open())
    }

    fn line(&self, step: Step, run: RunId) -> Line {
        Line::new(self.env.now(), step).of_run(run, 1)
    }

    fn text(&self) -> String {
        fs::read_to_string(Ledger::path(self.home.path(), self.agent)).unwrap()
    }
}

fn done(text: &str) -> Outcome {
    Outcome::completed(&Json::from_text(format!("{{\n\"text\":{text:?},\r\n\"n\":1.0}}")).unwrap(), None)
}

#[tokio::test]
async fn the_room_that_a_task_is_given_is_no_part_of_the_file() {
    let world = World::new();
    let (ledger, _) = world.open();
    let run = world.env.run_id();
    let lines = [Step::TaskPulled, Step::TaskStarted].map(|step| world.line(step, run));
    ledger.begin(&lines).await.unwrap();
    ledger.begin(&[]).await.unwrap();
    assert_eq!(world.text(), format!("{}{}\n", lines[0].text(), lines[1].text()));
    let (_, open) = world.open();
    assert!(matches!(open.as_slice(), [Open::Unfinished(_)]), "{open:?}");
}

#[tokio::test]
async fn an_outcome_stays_open_until_it_is_reported() {
    let world = World::new();
    let (ledger, open) = world.open();
    assert_eq!(open, []);
    let [one, two, three, four] = std::array::from_fn(|_| world.env.run_id());
    for run in [one, two, three, four] {
        ledger.append(&world.line(Step::TaskPulled, run)).await.unwrap();
    }
    for run in [one, two, three] {
        ledger.append(&world.line(Step::TaskStarted, run)).await.unwrap();
    }
    for run in [one, two] {
        ledger.append(&Line::outcome(world.env.now(), run, 1, &done("ok"))).await.unwrap();
    }
    ledger.append(&world.line(Step::TaskReported, one)).await.unwrap();
    let (_, mut open) = world.open();
    open.sort_by_key(|open| match open {
        Open::Unreported { .. } => 0,
        Open::Unfinished(_) => 1,
        Open::Unstarted(_) => 2,
    });
    assert_eq!(
        open,
        [
            Open::Unreported { run: two, epoch: 1, outcome: done("ok") },
            Open::Unfinished(world.line(Step::TaskPulled, three)),
            Open::Unstarted(world.line(Step::TaskPulled, four)),
        ]
    );
    assert!(world.text().contains(r#""output":{ "text":"ok",  "n":1.0}"#), "{}", world.text());
}

#[tokio::test]
async fn a_torn_last_line_hides_nothing_else() {
    let world = World::new();
    let run = world.env.run_id();
    let (ledger, _) = world.open();
    ledger.append(&Line::outcome(world.env.now(), run, 1, &done("kept"))).await.unwrap();
    drop(ledger);
    let path = Ledger::path(world.home.path(), world.agent);
    let mut torn = fs::read(&path).unwrap();
    torn.extend_from_slice(br#"{"at":"2026-01-01T00:00:00.000Z","event":"task_rep"#);
    fs::write(&path, &torn).unwrap();

    let (ledger, open) = world.open();
    assert_eq!(open, [Open::Unreported { run, epoch: 1, outcome: done("kept") }]);
    ledger.append(&world.line(Step::TaskReported, run)).await.unwrap();
    assert_eq!(world.open().1, []);
}

#[tokio::test]
async fn rotation_keeps_what_is_not_reported() {
    let world = World::new();
    let (ledger, _) = world.open();
    let waiting = world.env.run_id();
    ledger.append(&Line::outcome(world.env.now(), waiting, 1, &done("waiting"))).await.unwrap();
    for _ in 0..100 {
        let run = world.env.run_id();
        ledger.append(&Line::outcome(world.env.now(), run, 1, &done("told"))).await.unwrap();
        ledger.append(&world.line(Step::TaskReported, run)).await.unwrap();
    }
    assert!(world.text().len() < 3_000, "{}", world.text().len());
    assert!(Ledger::path(world.home.path(), world.agent).with_extension("1.jsonl").exists());
    assert_eq!(world.open().1, [Open::Unreported { run: waiting, epoch: 1, outcome: done("waiting") }]);
}

/// The place of the old lines cannot be written to: that costs the old lines, and neither a task nor what is not reported.
#[tokio::test]
async fn a_rotation_that_cannot_keep_the_old_lines_loses_nothing_else() {
    let world = World::new();
    let (ledger, _) = world.open();
    let waiting = world.env.run_id();
    ledger.append(&Line::outcome(world.env.now(), waiting, 1, &done("waiting"))).await.unwrap();
    let old = Ledger::path(world.home.path(), world.agent).with_extension("1.jsonl");
    fs::create_dir_all(old.join("in the way")).unwrap();
    for _ in 0..100 {
        let run = world.env.run_id();
        ledger.append(&Line::outcome(world.env.now(), run, 1, &done("told"))).await.unwrap();
        ledger.append(&world.line(Step::TaskReported, run)).await.unwrap();
    }
    assert!(world.text().len() < 3_000, "{}", world.text().len());
    assert_eq!(world.open().1, [Open::Unreported { run: waiting, epoch: 1, outcome: done("waiting") }]);
}

#[tokio::test]
async fn an_interrupted_rotation_is_finished_at_the_next_start() {
    let world = World::new();
    let (ledger, _) = world.open();
    let run = world.env.run_id();
    ledger.append(&world.line(Step::TaskPulled, run)).await.unwrap();
    let path = Ledger::path(world.home.path(), world.agent);
    fs::rename(&path, path.with_extension("next.jsonl")).unwrap();
    assert_eq!(world.open().1, [Open::Unstarted(world.line(Step::TaskPulled, run))]);
}
