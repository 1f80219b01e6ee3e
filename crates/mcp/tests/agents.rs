//! `remote_agent` and `list_agents`.

use std::{sync::Arc, time::Duration};

use attache_mcp::{Options, Service};
use serde_json::{Value, json};

use crate::{
    fakes::{FakeAgents, FakeDaemon},
    pipe::{Era, Pipe, options, service, text},
};

async fn ask(pipe: &mut Pipe, agent: &str, more: Value) -> Value {
    let mut arguments = json!({ "task": "say hello", "agent_url": agent });
    for (name, value) in more.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    let result = pipe.call("remote_agent", arguments).await;
    let tools = pipe.ask("tools/list", json!({})).await;
    let tools = tools["result"]["tools"].as_array().unwrap().clone();
    let schema = &tools.iter().find(|one| one["name"] == "remote_agent").unwrap()["outputSchema"];
    let problem = jsonschema::validate(schema, &result["structuredContent"]).err().map(|error| error.to_string());
    assert_eq!(problem, None, "{result}");
    result
}

#[tokio::test]
async fn an_agent_is_asked_and_its_answer_told_in_the_shape_of_the_seed() {
    for era in [Era::Legacy, Era::Modern] {
        let mut pipe = Pipe::open(era, options()).await;
        let result = ask(&mut pipe, "echo", json!({ "context": { "files": ["a"] }, "agent_type": "explore" })).await;
        let expected = json!({
            "title": "Remote agent done: say hello",
            "output": "say hello",
            "long_term_memory": "The agent at echo completed the task in 7 ms: say hello",
            "metadata": { "status": "completed", "agent_url": "echo", "call_id": "a2a-1" },
        });
        assert_eq!(result["structuredContent"], expected);
        assert_eq!(text(&result), "say hello\n\n(completed by echo, call a2a-1)");
        assert_eq!(result["isError"], json!(false));
    }
}

#[tokio::test]
async fn a_slow_agent_is_waited_for_in_turns() {
    let agents = FakeAgents::default();
    let options = Options { patience: Duration::from_secs(1), ..options() };
    let service = Service { agents: Arc::new(agents.clone()), ..service(&FakeDaemon::default(), options) };
    let mut pipe = Pipe::of(service, Era::Legacy);
    pipe.initialize("2025-06-18").await;
    let call = pipe.begin_call_with_progress("remote_agent", json!({ "task": "t", "agent_url": "slow" })).await;
    while pipe.notification("notifications/progress").await["params"]["message"] != "thinking" {}
    agents.heard.notify_one();
    let result = pipe.answer(call).await["result"].take();
    assert_eq!(result["structuredContent"]["metadata"]["status"], "running");
    assert!(text(&result).contains("call_id \"a2a-1\""), "{result}");
    let result = ask(&mut pipe, "slow", json!({ "call_id": "a2a-1" })).await;
    assert_eq!(result["structuredContent"]["output"], "done with a2a-1");
}

#[tokio::test]
async fn questions_and_failures_say_what_to_do_next() {
    let mut pipe = Pipe::open(Era::Legacy, options()).await;
    let result = ask(&mut pipe, "shy", json!({})).await;
    assert_eq!(result["structuredContent"]["metadata"]["status"], "input_required");
    assert!(text(&result).starts_with("The agent asks: Really?"), "{result}");
    for (agent, status, code) in [("broken", "failed", "task_failed"), ("nobody", "refused", "not_found")] {
        let result = ask(&mut pipe, agent, json!({})).await;
        assert_eq!(result["isError"], json!(true));
        let metadata = &result["structuredContent"]["metadata"];
        assert_eq!([&metadata["status"], &metadata["code"]], [status, code], "{result}");
    }
    for (arguments, says) in [
        (json!({ "task": "t" }), "missing field `agent_url`"),
        (json!({ "task": "", "agent_url": "echo" }), "task is empty"),
        (json!({ "task": "t", "agent_url": "echo", "context": "text" }), "invalid type"),
    ] {
        let result = pipe.call("remote_agent", arguments).await;
        assert_eq!(result["isError"], json!(true));
        assert_eq!(result["structuredContent"]["metadata"]["code"], "invalid_arguments");
        assert!(text(&result).contains(says), "{result}");
    }
}

#[tokio::test]
async fn agents_are_listed_for_programs_and_for_models() {
    for era in [Era::Legacy, Era::Modern] {
        let mut pipe = Pipe::open(era, options()).await;
        let result = pipe.call("list_agents", json!({})).await;
        let agents = json!([{
            "name": "echo",
            "agent_url": "http://127.0.0.1:7800/a2a/echo",
            "description": "Repeats",
            "status": "online",
            "skills": ["repeating"],
        }]);
        assert_eq!(result["structuredContent"]["agents"], agents);
        let line = "- echo [online] http://127.0.0.1:7800/a2a/echo: Repeats (skills: repeating)\n";
        assert!(text(&result).starts_with(line), "{result}");
        let wrong = pipe.call("list_agents", json!({ "x": 1 })).await;
        assert_eq!(wrong["isError"], json!(true));
    }
}

#[tokio::test]
async fn a_wrong_call_names_nobody() {
    let mut pipe = Pipe::open(Era::Legacy, options()).await;
    let refused = pipe.call("remote_agent", json!({ "tusk": "x" })).await;
    assert!(text(&refused).ends_with("\n\n(refused)"), "{refused}");
    assert_eq!(refused["structuredContent"]["title"], "Nobody was asked");
}
