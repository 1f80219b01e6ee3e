//! A host's prompt, environment and memory.

use attache_adapter::{Environment, HostMemory, HostSetup};
use serde_json::json;

use super::{HOSTS, InstructionPlacement};
use crate::{
    hosts::{fake, result, said, texts, unasked},
    world::{task, with},
};

#[tokio::test]
async fn instructions_come_first_and_in_order() {
    for host in HOSTS {
        let world = host.world_with(|options| options.instructions = Some("SAY:three".to_owned())).await;
        let long = "x".repeat(200_000);
        let task = with(task("SYSTEM\nSAY:four"), "instructions", format!("SAY:one {long}"));
        let task = with(task, "context_fragments", json!([{"text": "SAY:two"}]));
        let expected = match host.system {
            InstructionPlacement::BeforeTheTask => {
                host.streamed(&[&format!("one {long}"), "two", "three", "SYSTEM=unset", "four"])
            }
            InstructionPlacement::Apart => {
                let system = format!("SAY:one {long}\n\nContext provided with the task:\n\nSAY:two\n\nSAY:three");
                host.streamed(&[&format!("SYSTEM={system}"), "four"])
            }
        };
        assert!(said(&world, &task).await == expected, "{}", host.manner);
        assert_eq!(std::fs::read_dir(&world.cwd).unwrap().count(), 0);
        world.stop().await;
    }
}

#[tokio::test]
async fn a_host_sees_only_allowed_variables_and_no_secret_is_an_argument() {
    for host in HOSTS {
        let change = |options: &mut attache_adapter::Options| {
            let variables = [("PATH", "/usr/bin:/bin"), ("AWS_SECRET_ACCESS_KEY", "x"), ("SOME_API_KEY", "k")];
            options.environment = Environment::select(variables, &["SOME_API_KEY".to_owned()]);
        };
        let world = host.world_with(change).await;
        let seen = ["AWS_SECRET_ACCESS_KEY=unset", "SOME_API_KEY=k", "HOME=unset"];
        host.says(&world, &task("ENV:AWS_SECRET_ACCESS_KEY ENV:SOME_API_KEY ENV:HOME"), &seen).await;

        let tools = json!({"url": "http://127.0.0.1:9/mcp", "token": "sesame"});
        let task = with(with(task("ARGS"), "mcp", tools), "instructions", "a secret plan");
        let arguments = said(&world, &task).await;
        assert!(arguments.starts_with("ARGS=["), "{arguments}");
        assert!(!arguments.contains("sesame") && !arguments.contains("secret plan"), "{arguments}");
        assert_eq!(std::fs::read_dir(&world.scratch).unwrap().count(), 0, "{}", host.manner);
        world.stop().await;
    }
}

#[tokio::test]
async fn a_conversation_is_resumed_only_with_memory() {
    for host in HOSTS {
        let folder = tempfile::tempdir().unwrap();
        let sessions = folder.path().join("sessions");
        let setup = HostSetup { memory: HostMemory::PerConversation(sessions.clone()), ..fake(host.manner) };
        let world = host.world_of(setup).await;
        let first = task("SAY:first");
        host.says(&world, &first, &["first"]).await;
        let notes = std::fs::read_dir(&sessions).into_iter().flatten();
        let notes: Vec<String> = notes.map(|note| std::fs::read_to_string(note.unwrap().path()).unwrap()).collect();
        assert_eq!(notes, host.session.into_iter().collect::<Vec<_>>(), "{}", host.manner);
        let second = with(task("SAY:second"), "conversation_id", first["conversation_id"].clone());
        let second = with(second, "workspace_id", first["workspace_id"].clone());
        // Output that a host replays from the earlier run isn't reported again.
        host.says(&world, &second, &["second"]).await;
        world.stop().await;
    }
}

#[tokio::test]
async fn model_retries_are_reported_as_progress() {
    for host in HOSTS {
        let world = host.world().await;
        host.says(&world, &task("FAIL:529x1 SAY:at last"), &["at last"]).await;
        let events = unasked(&world, &task("FAIL:529x2 SAY:at last")).await;
        assert_eq!(*result(&events), host.done(&["at last"]), "{}", host.manner);
        assert_eq!(texts(&events, "progress", "message")[2..], *host.retries, "{}", host.manner);
        world.stop().await;
    }
}
