//! The ACP driver, against a fake host.

use attache_adapter::{HostSetup, driver::AcpDriver};
use serde_json::json;

use crate::{
    hosts::{answered, ended, failure, fake, no, result, texts, unasked, yes},
    world::{AdapterWorld, task},
};

async fn world() -> AdapterWorld {
    AdapterWorld::start(AcpDriver::new(fake("acp")), |_| {}).await
}

#[tokio::test]
async fn a_plan_is_reported_as_progress() {
    let world = world().await;
    let events = unasked(&world, &task("PLAN")).await;
    let told = ["starting Fake host", "Fake host is working on the task", "plan:\n[ ] look\n[ ] do"];
    assert_eq!(texts(&events, "progress", "message"), told);
    world.stop().await;
}

#[tokio::test]
async fn a_banner_is_skipped() {
    let agent = fake("acp");
    let script = format!("echo Welcome; echo; echo '{{\"level\":\"info\"}}'; exec '{}' acp", agent.program.display());
    let setup = HostSetup { args: vec!["-c".into(), script.into()], ..HostSetup::new("sh", "Shell", "sh") };
    let world = AdapterWorld::start(AcpDriver::new(setup), |_| {}).await;
    assert_eq!(ended(&world, &task("SAY:hello")).await["output"]["text"], "hello\n");
    world.stop().await;
}

#[tokio::test]
async fn files_outside_the_folder_are_always_refused() {
    let world = world().await;
    let outside = world.scratch.join("secret");
    std::fs::write(&outside, "secret").unwrap();
    std::os::unix::fs::symlink(&world.scratch, world.cwd.join("link")).unwrap();
    let call = |method: &str, path: &std::path::Path| {
        task(&format!("CALL:fs/{method}_text_file {}", json!({"path": path, "content": "changed"})))
    };
    for path in [outside.clone(), world.cwd.join("../scratch/secret"), world.cwd.join("link/secret")] {
        for method in ["read", "write"] {
            let reply = ended(&world, &call(method, &path)).await;
            let text = reply["output"]["text"].as_str().unwrap();
            assert!(text.starts_with(&format!("FAKE-OK after tool: {}: ", path.display())), "{method}: {text}");
        }
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "secret");
    // Inside the folder nothing is written before people approve, even though the agent didn't ask.
    let file = world.cwd.join("new/a.txt");
    let (questions, events) = answered(&world, &call("write", &file), no).await;
    let question = json!({
        "id": "q1", "tool": "write_text_file", "input": {"path": file, "content": "changed"}, "cwd": world.cwd,
        "paths": [file], "risk": "medium",
        "diff": format!("--- {0}\n+++ {0}\n@@ -0,0 +1 @@\n+changed\n\\ No newline at end of file\n", file.display()),
    });
    assert_eq!((questions, file.exists()), (vec![question], false));
    assert!(failure(result(&events)).starts_with("permission_denied: "), "{events:?}");
    answered(&world, &call("write", &file), yes).await;
    let reply = ended(&world, &call("read", &world.cwd.join("new/a.txt"))).await;
    assert_eq!(reply["output"]["text"], "FAKE-OK after tool: {\"content\":\"changed\"}\n");
    let reply = ended(&world, &task("CALL:terminal/create {\"command\":\"id\"}")).await;
    assert_eq!(reply["output"]["text"], "FAKE-OK after tool: `terminal/create` isn't supported\n");
    world.stop().await;
}

#[tokio::test]
async fn an_approved_change_can_be_written_once() {
    let world = world().await;
    let file = world.cwd.join("a.txt");
    let write = format!("CALL:fs/write_text_file {}", json!({"path": file, "content": "again"}));
    let (questions, _) = answered(&world, &task(&format!("WRITE:a.txt one\n{write}\n{write}")), yes).await;
    let tools: Vec<_> = questions.iter().map(|question| question["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["edit", "write_text_file"]);
    world.stop().await;
}
