//! One table of scenarios, told over every binding in every version: the hub's log says the same each time, once ids, times
//! and the version are taken out, and so do the answers, once they are in the model of 1.0.

mod scenarios;
mod scrub;

use std::{collections::BTreeSet, panic::AssertUnwindSafe};

use attache_a2a_wire::{Message, SendMessage, Task};
use attache_protocol::{Json, RunId};
use futures_util::{FutureExt as _, future::BoxFuture};

use crate::{
    scene::{A2aFixture, world},
    speak::{SpokenRefusal, TestAnswer, TestBinding, TestClient, TestOperation, TestVersion, every_way},
};
use scrub::{ScrubbedIds, sorted};

/// One telling of a scenario.
pub struct ScenarioRun {
    pub scene: A2aFixture,
    pub client: TestClient,
    /// What came back, each with what it was the answer to.
    told: Vec<(String, String)>,
    names: ScrubbedIds,
}

type Scenario = (&'static str, for<'a> fn(&'a mut ScenarioRun) -> BoxFuture<'a, ()>);

/// What a binding or a version has no way to ask, by the name of the answer.
fn can_say(binding: TestBinding, version: TestVersion, label: &str) -> bool {
    match label {
        // 0.3 has no lists of tasks.
        "all tasks" | "first page" | "second page" | "those that failed" | "those of the context" => {
            version == TestVersion::V10
        }
        // An empty text is an absent one in gRPC.
        "an empty url" => binding != TestBinding::Grpc,
        // So is nought, where nobody thought of it.
        "the last 0" => (binding, version) != (TestBinding::Grpc, TestVersion::V03),
        _ => true,
    }
}

/// What an answer loses in a version, which is taken out of both before they are compared.
const LOST: &[(&str, &str)] = &[
    // False is absent in gRPC and in HTTP+JSON of 0.3.
    (r#""append":false,"#, ""),
    (r#","lastChunk":false"#, ""),
    // Data is JSON: 0.3 does not say so again.
    (r#","mediaType":"application/json"}"#, "}"),
    // The end of a list is an absent token.
    (r#","nextPageToken":"""#, ""),
];

/// What came back, and what the log says.
type ScenarioTrace = (Vec<(String, String)>, Vec<String>);

#[tokio::test]
async fn every_binding_of_every_version_tells_the_same_story() {
    let mut different = Vec::new();
    let mut tellings: Vec<(TestBinding, TestVersion, Vec<Option<ScenarioTrace>>)> = Vec::new();
    for (binding, version) in every_way() {
        let told = tell_all(binding, version).await;
        tellings.push((binding, version, told));
    }
    for (at, (name, _)) in scenarios::ALL.iter().enumerate() {
        let Some((first_told, first_log)) = &tellings[0].2[at] else {
            different.push(format!("{name} breaks, as said above"));
            continue;
        };
        assert!(!first_told.is_empty(), "{name} says nothing");
        let labels: BTreeSet<&String> = first_told.iter().map(|(label, _)| label).collect();
        assert_eq!(labels.len(), first_told.len(), "{name}: each answer has a name of its own");
        for (binding, version, told) in &tellings[1..] {
            let who = format!("{binding:?} {version:?}");
            let Some((told, log)) = &told[at] else {
                different.push(format!("{name} over {who} breaks, as said above"));
                continue;
            };
            let can = |(label, _): &&(String, String)| can_say(*binding, *version, label);
            let wanted: Vec<_> = first_told.iter().filter(can).collect();
            let got: Vec<_> = told.iter().filter(can).collect();
            if wanted != got {
                different.push(format!("{name} over {who} answers\n{}", first_difference(&wanted, &got)));
            }
            if log != first_log {
                let (wanted, got): (Vec<_>, Vec<_>) = (first_log.iter().collect(), log.iter().collect());
                different.push(format!("{name} over {who} logs\n{}", first_difference(&wanted, &got)));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}

/// Every scenario with an agent of its own; `None` where one broke.
async fn tell_all(binding: TestBinding, version: TestVersion) -> Vec<Option<ScenarioTrace>> {
    let begin = || A2aFixture::start(world().agent("nobody").tuned(scenarios::tune));
    let mut scene = begin().await;
    let mut tellings = Vec::new();
    for (at, (_, scenario)) in scenarios::ALL.iter().enumerate() {
        scene = scene.another(&format!("agent-{at}")).await;
        match AssertUnwindSafe(tell(scene, *scenario, binding, version)).catch_unwind().await {
            Ok((telling, same)) => {
                tellings.push(Some(telling));
                scene = same;
            }
            Err(_) => {
                tellings.push(None);
                scene = begin().await;
            }
        }
    }
    scene.gate.add_permits(100);
    scene.world.stop().await;
    tellings
}

fn first_difference<T: std::fmt::Debug + PartialEq>(wanted: &[T], got: &[T]) -> String {
    let at = wanted.iter().zip(got).position(|(one, other)| one != other).unwrap_or(wanted.len().min(got.len()));
    format!("{:#?}\ninstead of\n{:#?}", got.get(at), wanted.get(at))
}

async fn tell(
    scene: A2aFixture,
    scenario: for<'a> fn(&'a mut ScenarioRun) -> BoxFuture<'a, ()>,
    binding: TestBinding,
    version: TestVersion,
) -> (ScenarioTrace, A2aFixture) {
    let client = scene.client(binding, version);
    let before = scene.world.hub.audit(&scene.world.owner, None, Some(1)).await.unwrap().head;
    let mut story = ScenarioRun { scene, client, told: Vec::new(), names: ScrubbedIds::default() };
    scenario(&mut story).await;
    let log = story.log(before).await;
    ((story.told, log), story.scene)
}

// === impl ScenarioRun ===

impl ScenarioRun {
    /// The rows that the scenario left, in the run's own order.
    async fn log(&self, after: i64) -> Vec<String> {
        let page = self.scene.world.hub.audit(&self.scene.world.owner, Some(after), Some(200)).await.unwrap();
        // What an earlier scenario left behind may still end.
        let runs: Vec<RunId> =
            page.events.iter().filter(|row| row.kind == "task.created").filter_map(|row| row.run).collect();
        let (mut log, mut names) = (Vec::new(), ScrubbedIds::default());
        for row in page.events.iter().filter(|row| row.run.is_some_and(|run| runs.contains(&run))) {
            let line = format!("{} {} {:?} {}", row.kind, row.actor, row.run_seq, row.data.get());
            log.push(names.scrub(&line));
        }
        for run in runs {
            let page = self.scene.world.hub.run_events(&self.scene.world.owner, run, None, Some(200)).await.unwrap();
            for event in page.events {
                log.push(names.scrub(&format!("{} {} {}", event.seq, event.kind, event.data.get())));
            }
        }
        log
    }

    pub fn note(&mut self, label: &str, text: &str) {
        let lines = text.lines().map(|line| match Json::from_text(line) {
            Ok(json) => sorted(&json),
            Err(_) => line.to_owned(),
        });
        let text = lines.collect::<Vec<_>>().join("\n").replace(&self.scene.world.url, "ORIGIN");
        let mut text = self.names.scrub(&text);
        for (lost, kept) in LOST {
            text = text.replace(lost, kept);
        }
        self.told.push((label.to_owned(), text));
    }

    fn refused(&mut self, label: &str, refusal: &SpokenRefusal) {
        self.note(label, &format!("refused: {}", refusal.says()));
    }

    /// Asks, and notes the answer or the refusal. What the version cannot ask is left out.
    pub async fn ask(&mut self, label: &str, ask: TestOperation) -> Option<Json> {
        if !self.client.can(&ask) {
            assert!(!can_say(self.client.binding, self.client.version, label), "{label} can be asked");
            return None;
        }
        match self.client.ask(ask).await {
            Ok(TestAnswer::Once(answer)) => {
                self.note(label, answer.get());
                Some(answer)
            }
            Ok(TestAnswer::Stream(_)) => panic!("{label} is a stream"),
            Err(refusal) => {
                self.refused(label, &refusal);
                None
            }
        }
    }

    /// Sends, and notes the task that comes back.
    pub async fn send(&mut self, label: &str, request: SendMessage) -> Task {
        let task = self.client.send(request).await;
        self.note(label, Json::of(&task).get());
        task
    }

    /// Opens a stream of a message whose first step is to hold, lets it go on, and notes what comes from there on. Whether
    /// the task shows first as submitted or as working depends on who is quicker.
    pub async fn stream(&mut self, label: &str, message: Message) -> Vec<Json> {
        let mut incoming = self.client.open(TestOperation::Stream(crate::obedient::request(message))).await.unwrap();
        let first = incoming.next().await.unwrap();
        assert!(first.get().starts_with(r#"{"task":{"id":"run_"#), "a stream begins with the task: {}", first.get());
        if first.get().contains("TASK_STATE_SUBMITTED") {
            let second = incoming.next().await.unwrap();
            assert!(second.get().contains("TASK_STATE_WORKING"), "{}", second.get());
        }
        self.scene.open_gate();
        let rest = incoming.rest().await;
        let text: Vec<&str> = rest.iter().map(Json::get).collect();
        self.note(label, &text.join("\n"));
        rest
    }
}
