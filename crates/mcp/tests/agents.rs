//! `remote_agent` and `list_agents`.

use std::{sync::Arc, time::Duration};

use attache_mcp::{AgentCallRef, McpService, Options, RemoteAgentRequest};
use serde_json::{Value, json};

use crate::{
    fakes::{FakeAgents, FakeDaemon},
    pipe::{McpEra, McpPipe, options, service, text},
};

async fn ask(pipe: &mut McpPipe, agent: &str, more: Value) -> Value {
    let mut arguments = json!({ "task": "say hello", "agent_url": agent });
    for (name, value) in more.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    go_on(pipe, arguments).await
}

async fn go_on(pipe: &mut McpPipe, arguments: Value) -> Value {
    let result = pipe.call("remote_agent", arguments).await;
    let tools = pipe.ask("tools/list", json!({})).await;
    let tools = tools["result"]["tools"].as_array().unwrap().clone();
    let schema = &tools.iter().find(|one| one["name"] == "remote_agent").unwrap()["outputSchema"];
    let problem = jsonschema::validate(schema, &result["structuredContent"]).err().map(|error| error.to_string());
    assert_eq!(problem, None, "{result}");
    result
}

#[tokio::test]
async fn a_call_returns_the_agents_answer() {
    for era in [McpEra::Legacy, McpEra::Modern] {
        let mut pipe = McpPipe::open(era, options()).await;
        let result = ask(&mut pipe, "echo", json!({ "context": { "files": ["a"] }, "agent_type": "explore" })).await;
        let expected = json!({
            "output": "say hello",
            "metadata": { "status": "completed", "agent_url": "echo", "call_id": "a2a-1" },
        });
        assert_eq!(result["structuredContent"], expected);
        assert_eq!(text(&result), "say hello\n\n(completed, call_id a2a-1)");
        assert_eq!(result["isError"], json!(false));
    }
}

#[tokio::test]
async fn a_slow_call_is_waited_for_in_several_turns() {
    let agents = FakeAgents::default();
    let options = Options { answer_timeout: Duration::from_secs(1), ..options() };
    let service = McpService { agents: Arc::new(agents.clone()), ..service(&FakeDaemon::default(), options) };
    let mut pipe = McpPipe::of(service, McpEra::Legacy);
    pipe.initialize("2025-06-18").await;
    let call = pipe.begin_call_with_progress("remote_agent", json!({ "task": "t", "agent_url": "slow" })).await;
    while pipe.notification("notifications/progress").await["params"]["message"] != "thinking" {}
    agents.heard.notify_one();
    let result = pipe.answer(call).await["result"].take();
    assert_eq!(result["structuredContent"]["metadata"]["status"], "running");
    let says = text(&result);
    assert!(says.contains("Last message: \"npm test\"") && says.contains("with only call_id \"a2a-1\""), "{says}");
    let result = go_on(&mut pipe, json!({ "call_id": "a2a-1" })).await;
    assert_eq!(result["structuredContent"]["output"], "done with a2a-1");
    // Waiting sends nothing to the agent.
    let wait = RemoteAgentRequest::Wait(AgentCallRef { call_id: "a2a-1".to_owned(), agent_url: None });
    assert_eq!(agents.asked.lock().unwrap().last(), Some(&wait));
}

/// A caller that only keeps waiting must not answer "Delete production?" by accident.
#[tokio::test]
async fn waiting_and_answering_are_different_calls() {
    let agents = FakeAgents::default();
    let service = McpService { agents: Arc::new(agents.clone()), ..service(&FakeDaemon::default(), options()) };
    let mut pipe = McpPipe::of(service, McpEra::Legacy);
    pipe.initialize("2025-06-18").await;
    let result = ask(&mut pipe, "shy", json!({})).await;
    let metadata = &result["structuredContent"]["metadata"];
    assert_eq!([&metadata["status"], &metadata["question_id"]], ["input_required", "ask_1"], "{result}");
    assert!(text(&result).starts_with("Question from the agent: Delete production?"), "{result}");
    for (arguments, says) in [
        (json!({ "task": "clean up", "agent_url": "shy", "call_id": "a2a-1" }), "task starts a new call"),
        (json!({ "call_id": "a2a-1", "answer": "yes" }), "an answer needs call_id, question_id and answer"),
        (json!({ "call_id": "a2a-1", "question_id": "ask_1" }), "an answer needs"),
        (json!({ "task": "t", "agent_url": "shy", "answer": "yes" }), "neither task nor call_id was provided"),
        (json!({ "agent_url": "shy" }), "neither task nor call_id was provided"),
        (json!({ "task": "t" }), "a new task needs agent_url"),
        (json!({ "task": " ", "agent_url": "echo" }), "neither task nor call_id was provided"),
        (json!({ "task": "t", "agent_url": "echo", "context": "text" }), "invalid type"),
    ] {
        let result = pipe.call("remote_agent", arguments).await;
        assert_eq!(result["isError"], json!(true));
        assert_eq!(result["structuredContent"]["metadata"]["code"], "invalid_arguments");
        assert!(text(&result).starts_with("Request failed: ") && text(&result).contains(says), "{result}");
    }
    assert_eq!(agents.asked.lock().unwrap().len(), 1, "none of these reached an agent");
    let arguments = json!({ "call_id": "a2a-1", "question_id": "ask_1", "answer": "no" });
    assert_eq!(go_on(&mut pipe, arguments).await["structuredContent"]["output"], "heard no");
}

#[tokio::test]
async fn a_pending_approval_names_the_step_and_who_decides() {
    let mut pipe = McpPipe::open(McpEra::Legacy, options()).await;
    let result = ask(&mut pipe, "careful", json!({})).await;
    let metadata = &result["structuredContent"]["metadata"];
    assert_eq!([&metadata["status"], &metadata["approval_id"]], ["approval_required", "prm_1"], "{result}");
    let says = text(&result);
    for part in ["A person must approve", "(prm_1): Bash: touch x", "tell your user", "Do not poll", "\"a2a-1\""] {
        assert!(says.contains(part), "{part}: {says}");
    }
}

#[tokio::test]
async fn failures_name_the_agent_and_calls_can_be_cancelled() {
    let mut pipe = McpPipe::open(McpEra::Legacy, options()).await;
    for (agent, status, code, says) in [
        ("broken", "failed", "task_failed", "broken failed: it fell over (task_failed). Try again."),
        ("nobody", "refused", "not_found", "Request failed: nobody is at nobody (not_found). Check agent_url."),
    ] {
        let result = ask(&mut pipe, agent, json!({})).await;
        assert_eq!(result["isError"], json!(true));
        let metadata = &result["structuredContent"]["metadata"];
        assert_eq!([&metadata["status"], &metadata["code"]], [status, code], "{result}");
        assert!(text(&result).starts_with(says), "{result}");
    }
    let result = pipe.call("remote_cancel", json!({ "call_id": "a2a-1" })).await;
    let metadata = json!({ "status": "cancelled", "call_id": "a2a-1" });
    assert_eq!(result["structuredContent"]["metadata"], metadata, "{result}");
    let wrong = pipe.call("remote_cancel", json!({ "call_id": "" })).await;
    assert_eq!(wrong["structuredContent"]["metadata"]["code"], "invalid_arguments");
}

#[tokio::test]
async fn list_agents_returns_structured_content_and_text() {
    for era in [McpEra::Legacy, McpEra::Modern] {
        let mut pipe = McpPipe::open(era, options()).await;
        let result = pipe.call("list_agents", json!({})).await;
        let agents = json!([{
            "name": "echo",
            "agent_url": "http://127.0.0.1:7800/a2a/echo",
            "description": "Repeats",
            "status": "online",
            "skills": ["repeating"],
            "host": "claude_cli on vm",
            "asks_before_risky_steps": true,
            "takes_folders": false,
        }]);
        assert_eq!(result["structuredContent"]["agents"], agents);
        let line = "- echo (online) http://127.0.0.1:7800/a2a/echo: Repeats (skills: repeating) [claude_cli on vm; accepts folders: no; asks before risky steps: yes]\n";
        assert!(text(&result).starts_with(line), "{result}");
        let wrong = pipe.call("list_agents", json!({ "x": 1 })).await;
        assert_eq!(wrong["isError"], json!(true));
    }
}

#[tokio::test]
async fn invalid_arguments_are_refused_without_an_agent() {
    let mut pipe = McpPipe::open(McpEra::Legacy, options()).await;
    let refused = pipe.call("remote_agent", json!({ "tusk": "x" })).await;
    assert!(text(&refused).starts_with("Request failed: "), "{refused}");
    assert!(text(&refused).ends_with("\n\n(refused)"), "{refused}");
}
