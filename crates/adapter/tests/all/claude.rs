//! The Claude Code driver, against a fake host.

use attache_adapter::{HostMemory, HostSetup, SandboxLimit, driver::ClaudeDriver};
use serde_json::{Value, json};

use crate::{
    hosts::{ended, failure, fake, result, said},
    real::given,
    world::{AdapterWorld, task, with},
};

async fn world() -> AdapterWorld {
    AdapterWorld::start(ClaudeDriver::new(fake("claude")), |_| {}).await
}

async fn world_of(setup: HostSetup) -> AdapterWorld {
    AdapterWorld::start(ClaudeDriver::new(setup), |_| {}).await
}

#[tokio::test]
async fn a_denial_by_its_own_rules_is_a_denial() {
    let world = world().await;
    let expected = "permission_denied: Fake host was denied permission: Forbidden. Its answer: FAKE-OK after tool: denied by \
                    the rules of this host";
    assert_eq!(failure(&ended(&world, &task("DENIED")).await), expected);
    world.stop().await;
}

#[tokio::test]
async fn unknown_arguments_are_reported() {
    let world = world_of(HostSetup { args: vec!["claude".into(), "--no-such-option".into()], ..fake("claude") }).await;
    let expected = "host_crashed: Fake host exited with status 1 before it answered. End of its standard error:\n\
                    error: unknown option '--no-such-option'";
    assert_eq!(failure(&ended(&world, &task("x")).await), expected);
    world.stop().await;
}

#[tokio::test]
async fn authentication_failures_are_not_retried_for_minutes() {
    let world = world().await;
    let reply = failure(&ended(&world, &task("FAIL:401x9 SAY:never")).await);
    assert!(reply.starts_with("sign_in_required: Fake host isn't signed in on this device: run `claude`"), "{reply}");
    world.stop().await;
}

#[tokio::test]
async fn it_uses_only_our_tools_and_ignores_the_folders_settings() {
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
    let expected = r#""--restricted", "--tools", "Agent,AskUserQuestion,Edit,Glob,Grep,NotebookEdit,Read,TodoWrite,Write,WebFetch,WebSearch""#;
    assert!(arguments.contains(expected), "{arguments}");
    let arguments = said(&world, &with(task("ARGS"), "allowed_tools", json!(["read"]))).await;
    assert!(arguments.contains(r#""--tools", "Read""#), "{arguments}");
    let reply = ended(&world, &with(task("SAY:never"), "allowed_tools", json!(["Bash(git *)"]))).await;
    assert_eq!(reply["error"]["code"], "rejected", "{reply}");
    world.stop().await;
}

#[tokio::test]
async fn a_session_is_resumed_only_with_memory() {
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
async fn an_unreadable_result_ends_the_turn() {
    let script = "read a; read b; echo '{\"type\":\"result\",\"is_error\":\"maybe\"}'; exec cat";
    let world =
        world_of(HostSetup { args: vec!["-c".into(), script.into()], ..HostSetup::new("sh", "Script", "sh") }).await;
    let reply = failure(&ended(&world, &task("x")).await);
    assert!(reply.starts_with("adapter_invalid_reply: Script sent unreadable output: `{"), "{reply}");
    world.stop().await;
}

const INPUT: &str = "inp_00000000000000000000000000000007";

/// What the caller says while it works is a turn of its own, with usage of its own.
#[tokio::test]
async fn the_usage_of_all_turns_adds_up() {
    let world = world().await;
    let usage = async |script: &str| ended(&world, &task(script)).await["usage"].clone();
    let first = "COST:0.25 TOKENS:40 WRITE:a.txt=x";
    let (one, two) = (usage("COST:0.25 TOKENS:40 SAY:one").await, usage("COST:0.5 TOKENS:9 SAY:two").await);
    assert_eq!((&one["tokens"], &one["cost_usd"]), (&json!(51), &json!(0.25)));
    let input = json!({"input_id": INPUT, "parts": [{"text": "COST:0.5 TOKENS:9 SAY:two"}]});
    let alone = crate::real::run(&world, &task(first), |_| json!({"approved": true})).await.1;
    let alone = result(&alone)["usage"].clone();
    let both = given(&world, &task(first), ("permission", "a.txt"), &input).await;
    let (sum, cost) = (
        |name: &str| alone[name].as_u64().unwrap() + two[name].as_u64().unwrap(),
        |all: &Value| all["cost_usd"].as_f64().unwrap(),
    );
    let expected = json!({"tokens": sum("tokens"), "input_tokens": sum("input_tokens"), "output_tokens": sum("output_tokens"),
        "cost_usd": cost(&alone) + cost(&two), "cost_source": "reported"});
    assert_eq!(result(&both)["usage"], expected, "{alone} {two}");
    assert_eq!(result(&both)["inputs_taken"], json!([INPUT]));
    world.stop().await;
}

/// The budget is for the run, with what is said to it while it works.
#[tokio::test]
async fn a_message_counts_towards_the_budget() {
    let world = world().await;
    let input = json!({"input_id": INPUT, "parts": [{"text": "TOKENS:20 SAY:two"}]});
    // A request of 51 tokens, and one of 31 that has the caller's message besides the result of the tool.
    for (tokens, success) in [(83, true), (82, false)] {
        let limited = with(task("TOKENS:40 WRITE:a.txt=x"), "budget", json!({"tokens": tokens}));
        let ended = given(&world, &limited, ("permission", "a.txt"), &input).await;
        let ended = result(&ended);
        let code = if success { Value::Null } else { json!("quota_exceeded") };
        assert_eq!((&ended["success"], &ended["error"]["code"]), (&json!(success), &code), "{ended}");
        assert_eq!((&ended["usage"]["tokens"], &ended["inputs_taken"]), (&json!(82), &json!([INPUT])), "{ended}");
    }
    world.stop().await;
}

#[tokio::test]
async fn what_it_cannot_read_is_not_taken() {
    let world = world().await;
    let data = json!({"input_id": INPUT, "parts": [{"data": {"a": 1}}]});
    let ended = given(&world, &task("WRITE:a.txt=x"), ("permission", "a.txt"), &data).await;
    let ended = result(&ended);
    assert_eq!((&ended["success"], &ended["inputs_taken"]), (&json!(true), &json!([])), "{ended}");
    world.stop().await;
}
