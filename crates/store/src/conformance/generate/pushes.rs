//! Steps around push configs, and runs as A2A lists them.

use attache_protocol::{Json, RunId, rules::run::FailureCode};

use super::{DAY, HOUR, StepGenerator};
use crate::{
    conformance::step::StoreStep,
    memory::MemoryStore,
    record::{
        push::{NewPushConfig, PushVersion},
        task::{RunOwner, RunTaskState, TaskFilter},
    },
};

/// Only a few, so that configs are replaced.
const IDS: [&str; 4] = ["", "a", "b'\"", "日本"];
const STATES: [RunTaskState; 8] = [
    RunTaskState::Submitted,
    RunTaskState::Working,
    RunTaskState::InputRequired,
    RunTaskState::AuthRequired,
    RunTaskState::Completed,
    RunTaskState::Rejected,
    RunTaskState::Failed,
    RunTaskState::Cancelled,
];

// === impl StepGenerator ===

impl StepGenerator {
    /// Usually for a run that is or will be running, so that there is something to report.
    pub(super) async fn set_push(&self, model: &MemoryStore) -> StoreStep {
        let run = self.some_run(model).await.map_or_else(|| self.run(), |run| run.id);
        StoreStep::SetPushConfig(self.context(), run, self.push_config())
    }

    /// Adds one more to the newest run, under a new id.
    pub(super) fn fill_pushes(&self) -> StoreStep {
        let run = self.known.runs.last().copied().unwrap_or_else(|| self.run());
        let id = format!("{}", self.draw.below(1 << 40));
        StoreStep::SetPushConfig(self.context(), run, NewPushConfig { id, ..self.push_config() })
    }

    pub(super) fn remove_push(&self) -> StoreStep {
        StoreStep::RemovePushConfig(self.context(), self.told_run(), self.push_id())
    }

    pub(super) fn read_push(&self) -> StoreStep {
        match self.draw.percent(50) {
            true => StoreStep::PushConfig(self.tenant(), self.told_run(), self.push_id()),
            false => StoreStep::PushConfigs(self.tenant(), self.told_run()),
        }
    }

    pub(super) fn push_config(&self) -> NewPushConfig {
        NewPushConfig {
            id: self.push_id(),
            url: self.url(),
            sealed: self.draw.percent(60).then(|| self.draw.bytes::<16>().to_vec()),
            version: if self.draw.percent(60) { PushVersion::V10 } else { PushVersion::V03 },
        }
    }

    fn push_id(&self) -> String {
        self.draw.one_of(&IDS).unwrap_or_default().to_owned()
    }

    fn told_run(&self) -> RunId {
        self.draw.recent(&self.known.pushes).filter(|_| self.draw.percent(85)).unwrap_or_else(|| self.run())
    }

    pub(super) fn task_filter(&self) -> TaskFilter {
        let [one, two, three, four] = super::ACTORS;
        let caller = || self.draw.one_of(&[one, two, three, four, ""]).unwrap_or_default();
        let of = match self.draw.below(100) {
            0..65 => None,
            65..82 => Some(RunOwner::User(self.user())),
            _ => Some(RunOwner::Caller(caller().into())),
        };
        TaskFilter {
            // The first one has worked most.
            agent: self.known.agents.first().copied().filter(|_| self.draw.percent(60)).unwrap_or_else(|| self.agent()),
            of,
            conversation: self.draw.percent(12).then(|| self.conversation()),
            state: if self.draw.percent(45) { self.draw.one_of(&STATES) } else { None },
            after: self.draw.percent(15).then(|| self.now().minus(self.millis(&[0, 1_000, HOUR, DAY]))),
        }
    }

    /// The result of a failed worker: usually its own code, sometimes anything.
    pub(super) fn failure(&self, code: FailureCode) -> Json {
        if self.draw.percent(if self.lists_tasks() { 20 } else { 50 }) {
            return self.draw.json();
        }
        Json::from_text(format!(r#"{{"error":"no","code":"{}"}}"#, code.as_str())).expect("an object of two texts")
    }
}
