//! Speaks the Agent Client Protocol, version 1, like an agent that asks before it acts.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{
    client::HostPipes,
    player::{FakeHostDialect, FakeRetry, FakeTurnEnd, FakeUsage, PermissionReply, TurnFlow, play},
    program::{FakeProgram, TurnSignal, serve, text},
    tool_use::{FakeToolAction, ToolAnswer, ToolUse},
};

struct FakeAcpAgent {
    program: FakeProgram,
    session: FakeAcpSession,
}

#[derive(Default)]
struct FakeAcpSession {
    id: String,
    folder: PathBuf,
    /// What it has cost in earlier runs.
    cost: f64,
    /// What `_meta.systemPrompt` says; the protocol itself has no place for it.
    system: Option<String>,
}

/// What a conversation that is loaded has cost before.
const EARLIER_COST: f64 = 0.3;

/// Runs until the input ends.
pub(super) fn main(arguments: Vec<String>) -> u8 {
    let mut agent = FakeAcpAgent {
        program: FakeProgram::new(HostPipes::from_stdin(), arguments),
        session: FakeAcpSession::default(),
    };
    serve(&mut agent, FakeAcpAgent::serve);
    0
}

impl FakeAcpAgent {
    fn serve(&mut self, request: &Value) {
        let parameters = &request["params"];
        let answer = match request["method"].as_str().unwrap_or_default() {
            "initialize" => Ok(json!({"protocolVersion": 1,
                "agentInfo": {"name": "fake-host", "title": "Fake host", "version": "1.2.3"},
                "agentCapabilities": {"loadSession": true, "promptCapabilities": {"image": false, "audio": false,
                    "embeddedContext": true}, "mcpCapabilities": {"http": true, "sse": false}},
                "authMethods": []})),
            "authenticate" => Ok(json!({})),
            "session/new" => {
                let id = format!("fake-session-{}", self.program.serial());
                self.open(id.clone(), parameters);
                Ok(json!({"sessionId": id}))
            }
            "session/load" => {
                self.open(text(&parameters["sessionId"]), parameters);
                self.update("user_message_chunk", json!({"content": {"type": "text", "text": "said before"}}));
                self.update("agent_message_chunk", json!({"content": {"type": "text", "text": "answered before"}}));
                self.session.cost = EARLIER_COST;
                self.spent();
                Ok(json!({}))
            }
            "session/prompt" if text(&parameters["sessionId"]) == self.session.id => {
                let parts = parameters["prompt"].as_array();
                let parts = parts
                    .into_iter()
                    .flatten()
                    .filter_map(|part| part["text"].as_str().or_else(|| part["resource"]["text"].as_str()));
                let prompt = parts.collect::<Vec<_>>().join("\n");
                match play(self, &prompt) {
                    FakeTurnEnd::Done => Ok(json!({"stopReason": "end_turn"})),
                    FakeTurnEnd::Interrupted => Ok(json!({"stopReason": "cancelled"})),
                    FakeTurnEnd::OverBudget => Ok(json!({"stopReason": "max_tokens"})),
                    FakeTurnEnd::Refused => Ok(json!({"stopReason": "refusal"})),
                    FakeTurnEnd::Unreachable(status) => Err(json!({"code": -32603, "message": "Internal error",
                            "data": {"details": format!("API Error: {status} FAKE-FAIL {status}")}})),
                }
            }
            "session/prompt" => Err(json!({"code": -32602, "message": "there is no such session"})),
            method => Err(json!({"code": -32601, "message": format!("Method not found: {method}")})),
        };
        let mut response = json!({"jsonrpc": "2.0", "id": request["id"]});
        match answer {
            Ok(result) => response["result"] = result,
            Err(error) => response["error"] = error,
        }
        self.program.client.send(&response);
    }

    fn open(&mut self, id: String, parameters: &Value) {
        let prompt = &parameters["_meta"]["systemPrompt"];
        let system = prompt.as_str().or_else(|| prompt["append"].as_str()).map(str::to_owned);
        self.session = FakeAcpSession { id, folder: PathBuf::from(text(&parameters["cwd"])), cost: 0.0, system };
    }

    /// Tells what the whole conversation has used.
    fn spent(&mut self) {
        let FakeUsage { input, output, cost } = self.program.spent;
        let cost = json!({"amount": self.session.cost + cost, "currency": "USD"});
        self.update("usage_update", json!({"used": input + output, "size": 200_000, "cost": cost}));
    }

    fn update(&mut self, kind: &str, mut update: Value) {
        update["sessionUpdate"] = json!(kind);
        self.program.client.send(&json!({"jsonrpc": "2.0", "method": "session/update",
            "params": {"sessionId": self.session.id, "update": update}}));
    }

    /// Asks the client and waits for its answer; nothing if the turn was cancelled meanwhile.
    fn request(&mut self, method: &str, parameters: &Value) -> Option<Value> {
        let id = json!(self.program.serial());
        self.program.client.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}));
        self.answer_to(&id)
    }

    /// A tool call as it is announced. What only asks discloses neither input nor places.
    fn tool_call(&self, deed: &ToolUse) -> Value {
        let (_, input) = deed.what.tool();
        let kind = match deed.what {
            FakeToolAction::Write { .. } => "edit",
            FakeToolAction::Run(_) => "execute",
            FakeToolAction::Read(_) => "read",
            FakeToolAction::Call { .. } | FakeToolAction::Ask(_) => "other",
        };
        let mut call = json!({"toolCallId": deed.id, "title": deed.what.title(), "kind": kind, "status": "pending"});
        if !matches!(deed.what, FakeToolAction::Ask(_)) {
            call["rawInput"] = input;
        }
        if let Some(path) = deed.what.path() {
            call["locations"] = json!([{"path": self.session.folder.join(path)}]);
        }
        if let FakeToolAction::Write { path, text } = &deed.what {
            let file = self.session.folder.join(path);
            let old = std::fs::read_to_string(&file).ok();
            call["content"] = json!([{"type": "diff", "path": file, "oldText": old, "newText": format!("{text}\n")}]);
        }
        call
    }
}

impl FakeHostDialect for FakeAcpAgent {
    fn say(&mut self, text: &str) {
        for piece in text.split_inclusive(' ') {
            self.update("agent_message_chunk", json!({"content": {"type": "text", "text": piece}}));
        }
        self.update("agent_message_chunk", json!({"content": {"type": "text", "text": "\n"}}));
    }

    fn think(&mut self, text: &str) {
        self.update("agent_thought_chunk", json!({"content": {"type": "text", "text": text}}));
    }

    fn plan(&mut self, steps: &[&str]) {
        let entries: Vec<Value> =
            steps.iter().map(|step| json!({"content": step, "priority": "medium", "status": "pending"})).collect();
        self.update("plan", json!({"entries": entries}));
    }

    fn begin(&mut self, deed: &ToolUse) {
        let call = self.tool_call(deed);
        self.update("tool_call", call);
    }

    fn ask(&mut self, deed: &ToolUse) -> PermissionReply {
        if matches!(deed.what, FakeToolAction::Read(_)) {
            return PermissionReply::Given;
        }
        let request = json!({"sessionId": self.session.id, "toolCall": self.tool_call(deed), "options": [
            {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
            {"optionId": "once", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"}]});
        let Some(answer) = self.request("session/request_permission", &request) else {
            return PermissionReply::Interrupted;
        };
        let outcome = &answer["result"]["outcome"];
        match (outcome["outcome"].as_str(), outcome["optionId"].as_str()) {
            (Some("selected"), Some("once" | "always")) => PermissionReply::Given,
            (Some("cancelled"), _) => PermissionReply::Interrupted,
            _ => PermissionReply::Denied,
        }
    }

    fn end(&mut self, deed: &ToolUse, answer: &ToolAnswer) {
        let (Ok(text) | Err(text)) = answer;
        let status = if answer.is_ok() { "completed" } else { "failed" };
        self.update(
            "tool_call_update",
            json!({"toolCallId": deed.id, "status": status,
            "content": [{"type": "content", "content": {"type": "text", "text": text}}]}),
        );
    }

    /// The protocol has no word for it; agents say it in passing.
    fn retry(&mut self, retry: FakeRetry) {
        self.think(&format!("The model answered {}; attempt {} of {}.", retry.status, retry.attempt, retry.of));
    }

    fn spend(&mut self, _: FakeUsage) -> TurnFlow {
        self.spent();
        TurnFlow::Go
    }

    fn on_message(&mut self, message: Value) -> TurnSignal {
        if message["method"] == "session/cancel" && message.get("id").is_none() {
            return TurnSignal::Interrupt;
        }
        self.program.on_rpc_message(message)
    }

    fn interrupted(&mut self) -> TurnFlow {
        std::process::exit(130)
    }

    fn on_client_gone(&mut self) {
        std::process::exit(0)
    }

    fn garbage(&self) -> &'static [u8] {
        b"{\"jsonrpc\":\"2.0\",\nnot json \xff\xfe {]\n"
    }

    fn system(&self) -> Option<String> {
        self.session.system.clone()
    }

    fn folder(&self) -> PathBuf {
        self.session.folder.clone()
    }

    fn program(&mut self) -> &mut FakeProgram {
        &mut self.program
    }

    fn call(&mut self, deed: &ToolUse) -> Option<ToolAnswer> {
        let FakeToolAction::Call { tool, input } = &deed.what else {
            return None;
        };
        if !tool.contains('/') {
            return None;
        }
        let mut parameters = input.clone();
        parameters["sessionId"] = json!(self.session.id);
        let answer = self.request(tool, &parameters).unwrap_or_default();
        Some(match answer.get("result") {
            Some(result) => Ok(result.to_string()),
            None => Err(text(&answer["error"]["message"])),
        })
    }
}
