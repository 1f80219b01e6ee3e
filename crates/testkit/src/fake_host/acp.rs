//! Speaks the Agent Client Protocol, version 1, like an agent that asks before it acts.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    client::{Client, Incoming},
    deed::{Answer, Deed, What},
    play::{End, Flow, Leave, Retry, Spent, Stage, play},
};

struct Agent {
    client: Client,
    arguments: Vec<String>,
    serial: u64,
    session: Session,
    /// Requests that came while a turn was at work.
    waiting: Vec<Value>,
    spent: Spent,
}

#[derive(Default)]
struct Session {
    id: String,
    folder: PathBuf,
    /// What `_meta.systemPrompt` says; the protocol itself has no place for it.
    system: Option<String>,
}

/// What came in while something was waited for.
enum Heard {
    Nothing,
    Cancel,
    Answer { to: u64, answer: Value },
}

/// Runs until the input ends.
pub(super) fn main(arguments: Vec<String>) -> u8 {
    let spent = Spent { input: 0, output: 0, cost: 0.0 };
    let (client, session) = (Client::speaking(), Session::default());
    let mut agent = Agent { client, arguments, serial: 0, session, waiting: Vec::new(), spent };
    loop {
        while !agent.waiting.is_empty() {
            let request = agent.waiting.remove(0);
            agent.serve(&request);
        }
        match agent.client.next() {
            Incoming::Message(message) => {
                agent.hear(message);
            }
            Incoming::Interrupt => return 130,
            Incoming::Closed => return 0,
        }
    }
}

impl Agent {
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
                let id = format!("fake-session-{}", self.serial());
                self.open(id.clone(), parameters);
                Ok(json!({"sessionId": id}))
            }
            "session/load" => {
                self.open(text(&parameters["sessionId"]), parameters);
                self.update("user_message_chunk", json!({"content": {"type": "text", "text": "said before"}}));
                self.update("agent_message_chunk", json!({"content": {"type": "text", "text": "answered before"}}));
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
                    End::Done => Ok(json!({"stopReason": "end_turn"})),
                    End::Interrupted => Ok(json!({"stopReason": "cancelled"})),
                    End::OverBudget => Ok(json!({"stopReason": "max_tokens"})),
                    End::Refused => Ok(json!({"stopReason": "refusal"})),
                    End::Unreachable(status) => Err(json!({"code": -32603, "message": "Internal error",
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
        self.client.send(&response);
    }

    fn open(&mut self, id: String, parameters: &Value) {
        let prompt = &parameters["_meta"]["systemPrompt"];
        let system = prompt.as_str().or_else(|| prompt["append"].as_str()).map(str::to_owned);
        self.session = Session { id, folder: PathBuf::from(text(&parameters["cwd"])), system };
    }

    fn hear(&mut self, message: Value) -> Heard {
        match (message.get("method"), message.get("id")) {
            (Some(_), Some(_)) => self.waiting.push(message),
            (Some(method), None) if method == "session/cancel" => return Heard::Cancel,
            (Some(_), None) | (None, None) => {}
            (None, Some(id)) => {
                if let Some(to) = id.as_u64() {
                    return Heard::Answer { to, answer: message };
                }
            }
        }
        Heard::Nothing
    }

    fn update(&mut self, kind: &str, mut update: Value) {
        update["sessionUpdate"] = json!(kind);
        self.client.send(&json!({"jsonrpc": "2.0", "method": "session/update",
            "params": {"sessionId": self.session.id, "update": update}}));
    }

    /// Asks the client and waits for its answer; nothing if the turn was cancelled meanwhile.
    fn request(&mut self, method: &str, parameters: &Value) -> Option<Value> {
        let id = self.serial();
        self.client.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}));
        loop {
            let message = match self.client.next() {
                Incoming::Message(message) => message,
                Incoming::Interrupt | Incoming::Closed => return None,
            };
            match self.hear(message) {
                Heard::Cancel => return None,
                Heard::Answer { to, answer } if to == id => return Some(answer),
                Heard::Answer { .. } | Heard::Nothing => {}
            }
        }
    }

    /// A tool call as it is announced. What only asks discloses neither input nor places.
    fn tool_call(&self, deed: &Deed) -> Value {
        let (_, input) = deed.what.tool();
        let kind = match deed.what {
            What::Write { .. } => "edit",
            What::Run(_) => "execute",
            What::Read(_) => "read",
            What::Call { .. } | What::Ask(_) => "other",
        };
        let mut call = json!({"toolCallId": deed.id, "title": deed.what.title(), "kind": kind, "status": "pending"});
        if !matches!(deed.what, What::Ask(_)) {
            call["rawInput"] = input;
        }
        if let Some(path) = deed.what.path() {
            call["locations"] = json!([{"path": self.session.folder.join(path)}]);
        }
        if let What::Write { path, text } = &deed.what {
            let file = self.session.folder.join(path);
            let old = std::fs::read_to_string(&file).ok();
            call["content"] = json!([{"type": "diff", "path": file, "oldText": old, "newText": format!("{text}\n")}]);
        }
        call
    }
}

impl Stage for Agent {
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

    fn begin(&mut self, deed: &Deed) {
        let call = self.tool_call(deed);
        self.update("tool_call", call);
    }

    fn ask(&mut self, deed: &Deed) -> Leave {
        if matches!(deed.what, What::Read(_)) {
            return Leave::Given;
        }
        let request = json!({"sessionId": self.session.id, "toolCall": self.tool_call(deed), "options": [
            {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
            {"optionId": "once", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"}]});
        let Some(answer) = self.request("session/request_permission", &request) else {
            return Leave::Interrupted;
        };
        let outcome = &answer["result"]["outcome"];
        match (outcome["outcome"].as_str(), outcome["optionId"].as_str()) {
            (Some("selected"), Some("once" | "always")) => Leave::Given,
            (Some("cancelled"), _) => Leave::Interrupted,
            _ => Leave::Denied,
        }
    }

    fn end(&mut self, deed: &Deed, answer: &Answer) {
        let (Ok(text) | Err(text)) = answer;
        let status = if answer.is_ok() { "completed" } else { "failed" };
        self.update(
            "tool_call_update",
            json!({"toolCallId": deed.id, "status": status,
            "content": [{"type": "content", "content": {"type": "text", "text": text}}]}),
        );
    }

    /// The protocol has no word for it; agents say it in passing.
    fn retry(&mut self, retry: Retry) {
        self.think(&format!("The model answered {}; attempt {} of {}.", retry.status, retry.attempt, retry.of));
    }

    fn spend(&mut self, spent: Spent) -> Flow {
        self.spent.input += spent.input;
        self.spent.output += spent.output;
        self.spent.cost += spent.cost;
        let used = self.spent.input + self.spent.output;
        let cost = json!({"amount": self.spent.cost, "currency": "USD"});
        self.update("usage_update", json!({"used": used, "size": 200_000, "cost": cost}));
        Flow::Go
    }

    fn pause(&mut self, time: Duration) -> Flow {
        let deadline = Instant::now() + time;
        loop {
            match self.client.next_until(deadline) {
                Some(Incoming::Message(message)) => {
                    if matches!(self.hear(message), Heard::Cancel) {
                        return Flow::Interrupted;
                    }
                }
                Some(Incoming::Interrupt) => std::process::exit(130),
                // Nobody is there any more who could want an answer.
                Some(Incoming::Closed) => std::process::exit(0),
                None => return Flow::Go,
            }
        }
    }

    fn garbage(&mut self) {
        self.client.print_bytes(b"{\"jsonrpc\":\"2.0\",\nnot json \xff\xfe {]\n");
    }

    fn hang(&mut self) -> ! {
        self.client.hang()
    }

    fn system(&self) -> Option<String> {
        self.session.system.clone()
    }

    fn arguments(&self) -> &[String] {
        &self.arguments
    }

    fn folder(&self) -> PathBuf {
        self.session.folder.clone()
    }

    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn call(&mut self, deed: &Deed) -> Option<Answer> {
        let What::Call { tool, input } = &deed.what else {
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

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
