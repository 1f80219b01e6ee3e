//! Questions of agents in forms that the client shows its user.

use std::{sync::Arc, time::Duration};

use attache_mcp::{AgentCallAnswer, AgentCallRef, AnswerContent, McpService, Options, RemoteAgentRequest};
use serde_json::{Value, json};

use crate::{
    fakes::{FakeAgents, FakeDaemon},
    pipe::{McpEra, McpPipe, options, service, text},
};

/// A client that shows forms, and the agents that it calls.
struct FormClient {
    pipe: McpPipe,
    agents: FakeAgents,
    era: McpEra,
}

// === impl FormClient ===

impl FormClient {
    async fn open(version: &str) -> Self {
        Self::with(version, json!({ "elicitation": {} }), options()).await
    }

    async fn with(version: &str, capabilities: Value, options: Options) -> Self {
        let agents = FakeAgents::default();
        let service = McpService { agents: Arc::new(agents.clone()), ..service(&FakeDaemon::default(), options) };
        let era = if version == crate::pipe::MODERN { McpEra::Modern } else { McpEra::Legacy };
        let mut pipe = McpPipe::of(service, era).with_capabilities(capabilities);
        if era == McpEra::Legacy {
            pipe.initialize(version).await;
        }
        Self { pipe, agents, era }
    }

    /// Calls the tool and deals with every form as given. Returns the messages' parameters, and the tool's result.
    async fn call(&mut self, arguments: Value, deal: impl Fn(&Value) -> Value) -> (Vec<Value>, Value) {
        let mut forms = Vec::new();
        let mut params = json!({ "name": "remote_agent", "arguments": arguments });
        loop {
            let id = self.pipe.begin("tools/call", params.clone()).await;
            let result = loop {
                let mut message = self.pipe.read().await;
                if message["id"] == json!(id) && message.get("method").is_none() {
                    break message["result"].take();
                }
                if message["method"] == "elicitation/create" {
                    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": deal(&message["params"]) });
                    self.pipe.send(&answer).await;
                    // The library adds a token for progress.
                    message["params"].as_object_mut().unwrap().remove("_meta");
                    forms.push(message["params"].take());
                }
            };
            if result["resultType"] != "input_required" {
                return (forms, result);
            }
            assert_eq!(self.era, McpEra::Modern, "{result}");
            let request = &result["inputRequests"]["question"];
            assert_eq!(request["method"], "elicitation/create", "{result}");
            params["inputResponses"] = json!({ "question": deal(&request["params"]) });
            params["requestState"] = result["requestState"].clone();
            forms.push(request["params"].clone());
        }
    }

    async fn ask(&mut self, agent: &str, deal: impl Fn(&Value) -> Value) -> (Vec<Value>, Value) {
        self.call(json!({ "task": "t", "agent_url": agent }), deal).await
    }

    fn answers(&self) -> Vec<AgentCallAnswer> {
        let asked = self.agents.asked.lock().unwrap().clone();
        let answer = |ask| match ask {
            RemoteAgentRequest::Answer(answer) => Some(answer),
            RemoteAgentRequest::Task(_) | RemoteAgentRequest::Wait(_) => None,
        };
        asked.into_iter().filter_map(answer).collect()
    }
}

const VERSIONS: [&str; 3] = ["2025-06-18", "2025-11-25", "2026-07-28"];

fn accept(content: Value) -> impl Fn(&Value) -> Value {
    move |_| json!({ "action": "accept", "content": content })
}

fn never(form: &Value) -> Value {
    panic!("asked: {form}")
}

#[track_caller]
fn status(result: &Value) -> &str {
    result["structuredContent"]["metadata"]["status"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test]
async fn the_users_answer_goes_to_the_question_that_they_saw() {
    for version in VERSIONS {
        let mut client = FormClient::open(version).await;
        let (forms, result) = client.ask("shy", accept(json!({ "answer": "no" }))).await;
        let schema = json!({
            "type": "object",
            "properties": { "answer": { "type": "string", "title": "Answer" } },
            "required": ["answer"],
        });
        let message = "The agent shy asks:\n\nDelete production?\n\nDon't enter passwords, keys or other secrets.";
        assert_eq!(forms, [json!({ "mode": "form", "message": message, "requestedSchema": schema })], "{version}");
        assert_eq!(result["structuredContent"]["output"], "heard no", "{version}: {result}");
        let call = AgentCallRef { call_id: "a2a-1".to_owned(), agent_url: Some("shy".to_owned()) };
        let answer = AnswerContent::Text("no".to_owned());
        assert_eq!(client.answers(), [AgentCallAnswer { call, question_id: "ask_1".to_owned(), answer }]);
        // The task was sent once, however often the tool was called.
        let tasks = client.agents.asked.lock().unwrap().clone();
        assert_eq!(tasks.iter().filter(|ask| matches!(ask, RemoteAgentRequest::Task(_))).count(), 1, "{version}");
    }
}

#[tokio::test]
async fn an_option_is_chosen() {
    for version in VERSIONS {
        let mut client = FormClient::open(version).await;
        let (forms, result) = client.ask("chooser", accept(json!({ "answer": "SQLite" }))).await;
        let field = json!({ "type": "string", "title": "Answer", "enum": ["PostgreSQL", "SQLite"] });
        assert_eq!(forms[0]["requestedSchema"]["properties"]["answer"], field, "{version}");
        assert_eq!(result["structuredContent"]["output"], "chosen SQLite", "{version}: {result}");
    }
}

#[tokio::test]
async fn a_user_who_refuses_is_not_asked_again_and_the_model_is_told() {
    for version in VERSIONS {
        for (action, says) in [
            ("decline", "declined to answer it. Next: ask them how to go on."),
            ("cancel", "closed it without an answer."),
        ] {
            let mut client = FormClient::open(version).await;
            let (forms, result) = client.ask("shy", |_| json!({ "action": action })).await;
            assert_eq!((forms.len(), status(&result)), (1, "input_required"), "{version}: {result}");
            assert_eq!(result["structuredContent"]["metadata"]["question_id"], "ask_1");
            assert!(text(&result).starts_with("Question from the agent: Delete production?"), "{result}");
            assert!(text(&result).contains(says), "{version} {action}: {result}");
            assert_eq!(client.answers(), []);
            let (_, again) = client.call(json!({ "call_id": "a2a-1" }), never).await;
            assert_eq!(status(&again), "input_required", "{version}: {again}");
        }
    }
}

#[tokio::test]
async fn what_the_form_did_not_offer_is_no_answer() {
    for version in VERSIONS {
        let mut client = FormClient::open(version).await;
        let (_, result) = client.ask("chooser", accept(json!({ "answer": "Oracle" }))).await;
        assert_eq!(status(&result), "input_required", "{version}: {result}");
        assert!(text(&result).contains("came back without a usable answer"), "{result}");
        assert_eq!(client.answers(), []);
    }
}

#[tokio::test]
async fn a_client_that_shows_no_forms_sees_no_difference() {
    let mut plain = McpPipe::open(McpEra::Legacy, options()).await;
    let expected = plain.call("remote_agent", json!({ "task": "t", "agent_url": "shy" })).await;
    for (version, capabilities) in [
        ("2025-03-26", json!({ "elicitation": {} })),
        ("2025-06-18", json!({})),
        ("2025-11-25", json!({ "elicitation": { "url": {} } })),
        ("2026-07-28", json!({ "sampling": {} })),
    ] {
        let mut client = FormClient::with(version, capabilities, options()).await;
        let (_, mut result) = client.ask("shy", never).await;
        // Every result of the new era says what kind it is.
        assert_eq!(result.as_object_mut().unwrap().remove("resultType").is_some(), version == "2026-07-28");
        assert_eq!(result, expected, "{version}");
    }
}

/// A program that controls the client must not decide for a person.
#[tokio::test]
async fn approvals_are_never_asked_for_in_a_form() {
    for version in VERSIONS {
        let mut client = FormClient::open(version).await;
        let (_, result) = client.ask("careful", never).await;
        assert_eq!(status(&result), "approval_required", "{version}: {result}");
        // A run has no user to ask.
        let (_, result) = client.ask("busy", never).await;
        assert_eq!(status(&result), "input_required", "{version}: {result}");
    }
}

#[tokio::test]
async fn an_agent_that_keeps_asking_is_left_to_the_model() {
    for version in VERSIONS {
        let mut client = FormClient::open(version).await;
        let (forms, result) = client.ask("curious", accept(json!({ "answer": "so" }))).await;
        assert_eq!((forms.len(), status(&result)), (8, "input_required"), "{version}: {result}");
        assert_eq!(result["structuredContent"]["metadata"]["question_id"], "more_9");
    }
}

/// The tool returns before clients give up, and the form stays.
#[tokio::test]
async fn a_form_outlives_the_tool_call() {
    let short = Options { answer_timeout: Duration::from_millis(200), ..options() };
    let mut client = FormClient::with("2025-11-25", json!({ "elicitation": { "form": {} } }), short).await;
    let pipe = &mut client.pipe;
    let result = pipe.call("remote_agent", json!({ "task": "t", "agent_url": "shy" })).await;
    assert_eq!(status(&result), "input_required", "{result}");
    assert!(text(&result).contains("Your user sees this question in a form and hasn't answered yet"), "{result}");
    let form = pipe.notification("elicitation/create").await;

    // The same form is waited for again.
    let waiting = pipe.begin_call("remote_agent", json!({ "call_id": "a2a-1" })).await;
    let answer = json!({ "action": "accept", "content": { "answer": "no" } });
    pipe.send(&json!({ "jsonrpc": "2.0", "id": form["id"], "result": answer })).await;
    let result = pipe.answer(waiting).await["result"].take();
    assert_eq!(result["structuredContent"]["output"], "heard no", "{result}");
    assert!(!pipe.heard.iter().any(|heard| heard["method"] == "elicitation/create"), "{:?}", pipe.heard);
}

#[tokio::test]
async fn a_client_that_cannot_ask_after_all_leaves_the_question_to_the_model() {
    let mut client = FormClient::open("2025-11-25").await;
    let pipe = &mut client.pipe;
    let call = pipe.begin_call("remote_agent", json!({ "task": "t", "agent_url": "shy" })).await;
    let form = pipe.notification("elicitation/create").await;
    let error = json!({ "code": -32601, "message": "Method not found" });
    pipe.send(&json!({ "jsonrpc": "2.0", "id": form["id"], "error": error })).await;
    let result = pipe.answer(call).await["result"].take();
    assert!(
        text(&result).contains("Next: call remote_agent with call_id \"a2a-1\", question_id \"ask_1\""),
        "{result}"
    );
}

/// Whatever a client changes in the state, an answer is given only to the question that is open, as its form asks for it.
#[tokio::test]
async fn a_changed_state_answers_no_other_question() {
    let mut client = FormClient::open("2026-07-28").await;
    let ask = json!({ "task": "t", "agent_url": "shy" });
    let answer = json!({ "question": { "action": "accept", "content": { "answer": "yes" } } });
    let params = json!({ "name": "remote_agent", "arguments": ask });
    let first = client.pipe.ask("tools/call", params.clone()).await["result"].take();
    let state: Value = serde_json::from_str(first["requestState"].as_str().unwrap()).unwrap();
    let expected = json!({ "call_id": "a2a-1", "question_id": "ask_1", "agent_url": "shy", "round": 1 });
    assert_eq!(state, expected);
    let retry = |state: &str| {
        let mut params = params.clone();
        params["inputResponses"] = answer.clone();
        params["requestState"] = json!(state);
        params
    };
    let other = json!({ "call_id": "a2a-1", "question_id": "ask_9", "round": 1 }).to_string();
    let result = client.pipe.ask("tools/call", retry(&other)).await["result"].take();
    assert_eq!(result["resultType"], "input_required", "the open question is asked: {result}");
    let result = client.pipe.ask("tools/call", retry("nonsense")).await["result"].take();
    assert_eq!(result["structuredContent"]["metadata"]["code"], "invalid_arguments", "{result}");
    assert_eq!(client.answers(), []);

    // Somebody else answered meanwhile.
    *client.agents.open.lock().unwrap() = None;
    let result = client.pipe.ask("tools/call", retry(first["requestState"].as_str().unwrap())).await["result"].take();
    assert_eq!(result["structuredContent"]["output"], "done with a2a-1", "{result}");
    assert_eq!(client.answers(), []);
}
