//! Two habits that this surface does not have: to take a caller's task id for its own, and to let a message be the only
//! trace of work.

use attache_a2a_wire::{Message, Part, TaskState};
use serde_json::json;

use crate::{
    obedient::{immediate, message, request, steps},
    scene::{A2aFixture, world},
    speak::{TestOperation, every_way},
};

#[tokio::test]
async fn their_task_id_never_becomes_ours() {
    let scene = A2aFixture::start(world().on_sqlite()).await;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        let mine = "run_0193f6a1b2c37d4e8f90a1b2c3d4e5f6";
        for id in [mine, "task-1", "0193f6a1-b2c3-7d4e-8f90-a1b2c3d4e5f6"] {
            let told = Message { task_id: Some(id.to_owned()), ..message("m1", vec![Part::text("hello")]) };
            for ask in [TestOperation::Send(request(told.clone())), TestOperation::Stream(request(told))] {
                let refusal = client.refused(ask).await;
                assert_eq!((refusal.reason.as_str(), refusal.facts["taskId"].as_str()), ("TASK_NOT_FOUND", id));
            }
            assert_eq!(client.refused(TestOperation::get(id)).await.reason, "TASK_NOT_FOUND", "nothing was made of it");
        }
        // A message's own id, a context's name and references are the caller's; the task's is not.
        let named = Message {
            context_id: Some(mine.to_owned()),
            reference_task_ids: Vec::new(),
            ..message(mine, vec![Part::text("hello")])
        };
        let task = client.send(request(named)).await;
        assert_ne!(task.id, mine);
        assert_eq!(task.context_id, mine);
        assert!(task.id.starts_with("run_"), "{}", task.id);
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn a_message_is_never_the_only_trace_of_work() {
    let scene = A2aFixture::start(world().on_sqlite()).await;
    for (at, (binding, version)) in every_way().enumerate() {
        let client = scene.client(binding, version);
        let told = json!([
            {"artifact": {"artifact_id": "report", "parts": [{"text": "what was found"}]}},
            {"output": {"text": "Done.", "reply": "message"}}
        ]);
        let answer = client.once(TestOperation::Send(request(steps(&format!("m{at}"), told)))).await.unwrap();
        let answer: serde_json::Value = answer.parse().unwrap();
        assert_eq!(answer["message"]["parts"], json!([{"text": "Done."}]));
        assert_eq!(answer["message"].get("taskId"), None, "the message stands for itself");
        // The agent's message is named after the run that it came from.
        let run = answer["message"]["messageId"].as_str().unwrap().rsplit_once('-').unwrap().0.to_owned();
        let found = scene.world.hub.run(&scene.world.owner, run.parse().unwrap()).await.unwrap();
        assert_eq!(found.task_result.unwrap().get(), r#"{"reply":"message","text":"Done."}"#);
        let task = client.get(&run).await;
        assert_eq!(task.status.state, TaskState::TaskStateCompleted);
        let artifacts = task.artifacts.unwrap();
        assert_eq!((artifacts.len(), artifacts[0].artifact_id.as_str()), (1, "report"));
        assert_eq!(artifacts[0].parts, [Part::text("what was found")]);
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn a_message_that_nobody_answers_yet_is_a_task() {
    let scene = A2aFixture::start(world().agent("away")).await;
    for (binding, version) in every_way() {
        let mut client = scene.client(binding, version);
        client.agent = "away".to_owned();
        let task = client.send(immediate(message("m1", vec![Part::text("hello")]))).await;
        assert_eq!(task.status.state, TaskState::TaskStateSubmitted);
        assert_eq!(client.get(&task.id).await, task);
    }
    scene.world.stop().await;
}
