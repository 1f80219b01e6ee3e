//! The Codex driver, against a fake host.

use attache_adapter::{HostSetup, SandboxLimit, driver::CodexDriver};
use serde_json::json;

use crate::{
    hosts::{answered, ended, failure, fake, result, said, yes},
    world::{AdapterWorld, task, with},
};

async fn world() -> AdapterWorld {
    AdapterWorld::start(CodexDriver::new(fake("codex")), |_| {}).await
}

#[tokio::test]
async fn a_question_shows_the_exact_command() {
    let world = world().await;
    let (questions, events) = answered(&world, &task("RUN:echo hi > b.txt"), yes).await;
    let [question] = questions.as_slice() else { panic!("{questions:?}") };
    let input = json!({
        "command": "/bin/bash -lc \"echo hi > b.txt\"", "cwd": world.cwd, "sandbox": "on",
    });
    let expected = json!({
        "id": "q1", "tool": "shell", "input": input, "cwd": world.cwd, "risk": "high", "undisclosed": ["paths"],
        "assured": ["in_folder"],
    });
    assert_eq!(*question, expected);
    assert_eq!(result(&events)["success"], true);
    assert!(world.cwd.join("b.txt").exists());
    world.stop().await;
}

#[tokio::test]
async fn the_token_is_not_exposed_and_the_folder_is_not_trusted() {
    let world = world().await;
    let tools = json!({"url": "http://127.0.0.1:9/mcp", "token": "sesame"});
    let said = said(&world, &with(task("ARGS"), "mcp", tools)).await;
    let arguments = said.as_str();
    assert!(!arguments.contains("sesame"), "{said}");
    assert!(arguments.starts_with("ARGS=[\"app-server\", \"-c\", "), "{said}");
    let untrusted = format!("projects={{\\\"{}\\\"={{trust_level=\\\"untrusted\\\"}}}}", world.cwd.display());
    assert!(arguments.contains(&untrusted), "{said}");
    world.stop().await;
}

#[tokio::test]
async fn unconfirmed_limits_fail_the_run() {
    let setup = HostSetup { enforces: vec![SandboxLimit::NoNetwork], ..fake("codex") };
    let world = AdapterWorld::start(CodexDriver::new(setup), |_| {}).await;
    let asked = with(task("WRITE:a.txt"), "sandbox", json!({"allow_network": false}));
    let expected =
        "refused: Fake host refused the task: it didn't accept the run's limits, so the task was not started";
    assert_eq!(failure(&ended(&world, &asked).await), expected);
    assert!(!world.cwd.join("a.txt").exists());
    world.stop().await;
}

#[tokio::test]
async fn commands_forbidden_by_limits_are_denied_without_asking() {
    let setup = HostSetup { enforces: vec![SandboxLimit::NoExec], ..fake("codex") };
    let world = AdapterWorld::start(CodexDriver::new(setup), |_| {}).await;
    let task = with(task("RUN:echo hi > b.txt"), "sandbox", json!({"allow_exec": false}));
    let reply = failure(&ended(&world, &task).await);
    let expected =
        "permission_denied: Fake host was denied permission: shell (the run isn't allowed to start programs)";
    assert!(reply.starts_with(expected), "{reply}");
    assert!(!world.cwd.join("b.txt").exists());
    world.stop().await;
}
