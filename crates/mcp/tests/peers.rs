//! Remote agents: keys go only to their origin, and a model can't reach private addresses.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_mcp::{
    AgentBackend as _, AgentCall, AgentCallAnswer, AgentCallRef, AgentCallState, AgentQuestion, AgentTask,
    AnswerContent, CallerKind, PeerAgentBackend, PeerAgentOptions, RemoteAgentRequest, ToolError,
};
use attache_protocol::{Secret, env::Env};
use axum::{
    Json, Router,
    extract::State as Shared,
    http::HeaderMap,
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

use crate::pipe::{McpEra, McpPipe, options};

/// An A2A agent that asks a question, then repeats the answer. Records the credentials it receives.
#[derive(Clone)]
struct RecordingA2aAgent {
    origin: String,
    /// The URL in its card.
    card_url: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl RecordingA2aAgent {
    async fn start(card_url: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let agent = Self { card_url: card_url.unwrap_or_else(|| origin.clone()), origin, seen: Arc::default() };
        let router = Router::new()
            .route("/.well-known/agent-card.json", get(card))
            .route("/", post(rpc))
            .with_state(agent.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        agent
    }

    fn note(&self, what: &str, headers: &HeaderMap) {
        let key = headers.get("authorization").map_or("nothing", |value| value.to_str().unwrap());
        self.seen.lock().unwrap().push(format!("{what}: {key}"));
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

async fn card(Shared(agent): Shared<RecordingA2aAgent>, headers: HeaderMap) -> Json<Value> {
    agent.note("card", &headers);
    Json(json!({
        "name": "parrot", "description": "Repeats", "version": "1",
        "supportedInterfaces": [{ "url": agent.card_url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        "capabilities": { "streaming": false },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
    }))
}

async fn rpc(Shared(agent): Shared<RecordingA2aAgent>, headers: HeaderMap, Json(request): Json<Value>) -> Json<Value> {
    let method = request["method"].as_str().unwrap();
    agent.note(method, &headers);
    let message = &request["params"]["message"];
    let status = |state: &str, says: &str| {
        let message = json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": says }] });
        json!({ "id": "task-1", "contextId": "c", "status": { "state": state, "message": message } })
    };
    let result = match (method, message["taskId"].as_str()) {
        ("GetTask", _) => status("TASK_STATE_INPUT_REQUIRED", "Which language?"),
        (_, None) => json!({ "task": status("TASK_STATE_INPUT_REQUIRED", "Which language?") }),
        (_, Some(_)) => {
            json!({ "task": status("TASK_STATE_COMPLETED", message["parts"][0]["text"].as_str().unwrap()) })
        }
    };
    Json(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
}

fn peers(keys: &[(&str, &str)]) -> PeerAgentBackend {
    let known = keys.iter().map(|(url, key)| ((*url).to_owned(), Some(Secret::new((*key).to_owned())))).collect();
    PeerAgentBackend::new(PeerAgentOptions { hub: Box::new(|| None), known, allow: vec![], env: Env::system() })
        .unwrap()
}

async fn ask(peers: &PeerAgentBackend, url: &str, task: &str) -> Result<AgentCall, ToolError> {
    let task = AgentTask { task: task.to_owned(), agent_url: url.to_owned(), agent_type: None, context: None };
    go_on(peers, RemoteAgentRequest::Task(task)).await
}

async fn go_on(peers: &PeerAgentBackend, ask: RemoteAgentRequest) -> Result<AgentCall, ToolError> {
    let (said, _keep) = watch::channel(String::new());
    peers.ask(attache_mcp::ToolCaller::local(), ask, Duration::from_secs(20), &said).await
}

/// An answer must carry the agent's own id of the question.
#[tokio::test]
async fn an_answer_is_sent_only_for_the_open_question() {
    let agent = RecordingA2aAgent::start(None).await;
    let peers = peers(&[(&agent.origin, "key-of-parrot")]);
    let call = ask(&peers, &agent.origin, "say it").await.unwrap();
    let question = AgentCallState::InputRequired(AgentQuestion {
        id: "m".to_owned(),
        text: "Which language?".to_owned(),
        questionnaire: None,
        caller: CallerKind::User,
    });
    assert_eq!(call, AgentCall { call_id: Some("task-1".to_owned()), state: question.clone() });
    assert_eq!(agent.seen(), ["card: Bearer key-of-parrot", "SendMessage: Bearer key-of-parrot"]);

    // Waiting sends no message and needs only the call id.
    let call = AgentCallRef { call_id: "task-1".to_owned(), agent_url: None };
    assert_eq!(go_on(&peers, RemoteAgentRequest::Wait(call.clone())).await.unwrap().state, question);
    assert_eq!(agent.seen(), ["card: Bearer key-of-parrot", "GetTask: Bearer key-of-parrot"]);
    let answer = |question_id: &str| {
        RemoteAgentRequest::Answer(AgentCallAnswer {
            call: call.clone(),
            question_id: question_id.to_owned(),
            answer: AnswerContent::Text("French".to_owned()),
        })
    };
    let refused = go_on(&peers, answer("another")).await.unwrap_err();
    assert_eq!(refused.code, "not_waiting", "{refused}");
    assert!(!agent.seen().iter().any(|seen| seen.starts_with("SendMessage")));
    let call = go_on(&peers, answer("m")).await.unwrap();
    assert!(matches!(&call.state, AgentCallState::Completed { summary, .. } if summary == "French"), "{call:?}");
    let unknown = AgentCallRef { call_id: "task-9".to_owned(), agent_url: None };
    assert_eq!(go_on(&peers, RemoteAgentRequest::Wait(unknown)).await.unwrap_err().code, "invalid_arguments");
}

#[tokio::test]
async fn a_key_is_never_sent_to_another_origin() {
    let other = RecordingA2aAgent::start(None).await;
    // Its card points to another origin.
    let liar = RecordingA2aAgent::start(Some(other.origin.clone())).await;
    let peers = peers(&[(&liar.origin, "key-of-liar")]);
    let refused = ask(&peers, &liar.origin, "say it").await.unwrap_err();
    assert_eq!(refused.code, "egress_refused", "{refused}");
    assert_eq!(liar.seen(), ["card: Bearer key-of-liar"]);
    assert_eq!(other.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn configured_agents_are_listed_by_their_addresses() {
    let known = ["https://agents.example.org/a2a/first", "https://agents.example.org/a2a/second/"];
    let known = known.into_iter().map(|url| (url.to_owned(), None)).collect();
    let options = PeerAgentOptions { hub: Box::new(|| None), known, allow: vec![], env: Env::system() };
    let listed = PeerAgentBackend::new(options).unwrap().list(attache_mcp::ToolCaller::local()).await.unwrap();
    let urls: Vec<&str> = listed.iter().map(|agent| agent.agent_url.as_str()).collect();
    assert_eq!(urls, ["https://agents.example.org/a2a/first", "https://agents.example.org/a2a/second"]);
}

#[tokio::test]
async fn unconfigured_origins_are_reached_only_if_public() {
    let agent = RecordingA2aAgent::start(None).await;
    let peers = peers(&[]);
    for url in [agent.origin.as_str(), "http://169.254.169.254/latest", "https://10.0.0.1/", "file:///etc/passwd"] {
        let refused = ask(&peers, url, "say it").await.unwrap_err();
        let expected = if url.starts_with("http") { "egress_refused" } else { "unreachable" };
        assert_eq!(refused.code, expected, "{url}: {refused}");
    }
    assert_eq!(agent.seen(), Vec::<String>::new());
    let refused = ask(&peers, "builder", "say it").await.unwrap_err();
    assert_eq!(refused.code, "not_found", "{refused}");
}

#[tokio::test]
async fn a_server_without_a_daemon_offers_no_delegations() {
    let mut service = crate::pipe::service(&crate::fakes::FakeDaemon::default(), options());
    service.delegations = None;
    let mut pipe = McpPipe::of(service, McpEra::Legacy);
    let hello = pipe.initialize("2025-06-18").await;
    assert_eq!(hello["result"]["capabilities"], json!({ "tools": {} }));
    assert!(!hello["result"]["instructions"].as_str().unwrap().contains("delegate"), "{hello}");
    let tools = pipe.ask("tools/list", json!({})).await;
    let names: Vec<_> = tools["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["remote_agent", "remote_cancel", "list_agents"]);
    let list_agents = &tools["result"]["tools"][2];
    assert!(!list_agents["description"].as_str().unwrap().contains("delegate"), "{list_agents}");
    // Methods outside the capabilities are not supported.
    for method in ["prompts/list", "resources/list", "resources/templates/list", "logging/setLevel"] {
        let answer = pipe.ask(method, json!({ "level": "info" })).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let unknown = pipe.ask("tools/call", json!({ "name": "delegate", "arguments": {} })).await;
    assert_eq!(unknown["error"]["code"], -32602);
}

#[tokio::test]
async fn a_private_address_is_called_only_if_allowed() {
    let agent = RecordingA2aAgent::start(None).await;
    let refused = ask(&peers(&[]), &agent.origin, "hi").await.unwrap_err();
    assert_eq!(refused.code, "egress_refused", "{refused}");
    let command = format!("attache delegations allow --peer {}", agent.origin);
    assert!(refused.hint.contains(&command) && !refused.to_string().contains("--egress-allow"), "{refused}");
    let known = vec![(agent.origin.clone(), None)];
    let options = PeerAgentOptions { hub: Box::new(|| None), known, allow: vec![], env: Env::system() };
    let answer = ask(&PeerAgentBackend::new(options).unwrap(), &agent.origin, "hi").await;
    assert!(answer.is_ok(), "{answer:?}");
}
