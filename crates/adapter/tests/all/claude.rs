//! The driver for Claude Code, against a host that is played.

use attache_adapter::{HostMemory, HostSetup, SandboxLimit, driver::ClaudeDriver};
use serde_json::{Value, json};

use crate::{
    hosts::{ended, failure, fake, said},
    world::{AdapterWorld, task, with},
};

async fn world() -> AdapterWorld {
    AdapterWorld::start(ClaudeDriver::new(fake("claude")), |_| {}).await
}

async fn world_of(setup: HostSetup) -> AdapterWorld {
    AdapterWorld::start(ClaudeDriver::new(setup), |_| {}).await
}

#[tokio::test]
async fn a_no_of_its_own_rules_is_a_no() {
    let world = world().await;
    let expected = "permission_denied: Fake host was not allowed to do this: Forbidden. It said: FAKE-OK after tool: denied by \
                    the rules of this host";
    assert_eq!(failure(&ended(&world, &task("DENIED")).await), expected);
    world.stop().await;
}

#[tokio::test]
async fn one_that_does_not_know_its_arguments_says_so() {
    let world = world_of(HostSetup { args: vec!["claude".into(), "--no-such-option".into()], ..fake("claude") }).await;
    let expected = "host_crashed: Fake host ended with exit status 1 before it had answered. The end of its standard error:\n\
                    error: unknown option '--no-such-option'";
    assert_eq!(failure(&ended(&world, &task("x")).await), expected);
    world.stop().await;
}

#[tokio::test]
async fn closed_doors_are_not_knocked_at_for_minutes() {
    let world = world().await;
    let reply = failure(&ended(&world, &task("FAIL:401x9 SAY:never")).await);
    assert!(
        reply.starts_with("sign_in_required: Fake host is not signed in on this device: start `claude`"),
        "{reply}"
    );
    world.stop().await;
}

#[tokio::test]
async fn it_takes_our_tools_only_and_neither_updates_itself_nor_asks_the_folder() {
    let world = world().await;
    assert_eq!(said(&world, &task("ENV:DISABLE_AUTOUPDATER")).await, "DISABLE_AUTOUPDATER=1");
    let tools = json!({"url": "http://127.0.0.1:9/mcp", "token": "sesame"});
    let arguments = said(&world, &with(task("ARGS"), "mcp", tools)).await;
    assert!(arguments.contains("--strict-mcp-config") && arguments.contains("--mcp-config"), "{arguments}");
    assert!(arguments.contains(r#""--setting-sources", "user""#), "{arguments}");
    world.stop().await;
}

#[tokio::test]
async fn limits_are_passed_on() {
    let limited = |script: &str, sandbox: Value| with(task(script), "sandbox", sandbox);
    let world =
        world_of(HostSetup { enforces: vec![SandboxLimit::CwdOnly, SandboxLimit::NoExec], ..fake("claude") }).await;
    let arguments = said(&world, &limited("ARGS", json!({"cwd_only": true, "allow_exec": false}))).await;
    let expected =
        r#""--restricted", "--tools", "Agent,Edit,Glob,Grep,NotebookEdit,Read,TodoWrite,Write,WebFetch,WebSearch""#;
    assert!(arguments.contains(expected), "{arguments}");
    let arguments = said(&world, &with(task("ARGS"), "allowed_tools", json!(["read"]))).await;
    assert!(arguments.contains(r#""--tools", "Read""#), "{arguments}");
    let reply = ended(&world, &with(task("SAY:never"), "allowed_tools", json!(["Bash(git *)"]))).await;
    assert_eq!(reply["error"]["code"], "rejected", "{reply}");
    world.stop().await;
}

#[tokio::test]
async fn an_earlier_record_is_an_argument_only_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("sessions");
    let world = world_of(HostSetup { memory: HostMemory::PerConversation(sessions.clone()), ..fake("claude") }).await;
    let first = task("ARGS");
    let arguments = said(&world, &first).await;
    assert!(!arguments.contains("--resume") && !arguments.contains("--no-session-persistence"), "{arguments}");
    assert_eq!(std::fs::read_dir(&sessions).unwrap().count(), 1);
    let second = with(task("ARGS"), "conversation_id", first["conversation_id"].clone());
    let second = with(second, "workspace_id", first["workspace_id"].clone());
    let arguments = said(&world, &second).await;
    assert!(arguments.contains(r#""--resume", "6f1f2c9e-5d3c-4a55-9d0e-0c8e3f1f7a11""#), "{arguments}");
    world.stop().await;

    let stateless = crate::claude::world().await;
    assert!(said(&stateless, &task("ARGS")).await.contains("--no-session-persistence"));
    stateless.stop().await;
}

#[tokio::test]
async fn an_end_that_cannot_be_read_is_an_end() {
    let script = "read a; read b; echo '{\"type\":\"result\",\"is_error\":\"maybe\"}'; exec cat";
    let world =
        world_of(HostSetup { args: vec!["-c".into(), script.into()], ..HostSetup::new("sh", "Script", "sh") }).await;
    let reply = failure(&ended(&world, &task("x")).await);
    assert!(reply.starts_with("adapter_invalid_reply: Script said something that cannot be read: `{"), "{reply}");
    world.stop().await;
}
