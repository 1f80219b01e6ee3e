//! The ACP driver, against a fake host.

use attache_adapter::{HostSetup, driver::AcpDriver};
use serde_json::json;

use crate::{
    hosts::{answered, ended, fake, result, texts, unasked, yes},
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

/// A run inside walls can write to the agent's output, and the adapter is outside: it reads and writes no file for an agent,
/// asks nobody about it, and doesn't do it for a path that people approved either.
#[tokio::test]
async fn no_file_is_read_or_written_for_an_agent() {
    let world = world().await;
    let file = world.cwd.join(".git/config");
    std::fs::create_dir(world.cwd.join(".git")).unwrap();
    std::fs::write(&file, "before").unwrap();
    let call = |method: &str| format!("CALL:{method} {}", json!({"path": file, "content": "changed", "command": "id"}));
    for method in ["fs/read_text_file", "fs/write_text_file", "terminal/create"] {
        let events = unasked(&world, &task(&call(method))).await;
        let expected = format!("FAKE-OK after tool: `{method}` isn't supported\n");
        assert_eq!(result(&events)["output"]["text"], expected);
    }
    let write = call("fs/write_text_file");
    let (questions, _) = answered(&world, &task(&format!("WRITE:.git/config=one\n{write}")), yes).await;
    let tools: Vec<_> = questions.iter().map(|question| question["tool"].as_str().unwrap()).collect();
    assert_eq!((tools, std::fs::read_to_string(&file).unwrap()), (vec!["edit"], "one\n".to_owned()));
    world.stop().await;
}
