//! Speaks like `codex app-server` 0.166: JSON-RPC without the version, a thread with turns made of items.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{
    client::HostPipes,
    player::{FakeHostDialect, FakeRetry, FakeTurnEnd, FakeUsage, PermissionReply, TurnFlow, play},
    program::{FakeProgram, TurnSignal, serve, text},
    tool_use::{FakeToolAction, ToolAnswer, ToolUse},
};

struct FakeCodex {
    program: FakeProgram,
    thread: FakeCodexThread,
    turn: String,
    /// What was said in this turn.
    said: Vec<Value>,
    /// The change of a file that is about to be made, or was.
    change: Value,
}

#[derive(Default)]
struct FakeCodexThread {
    id: String,
    folder: PathBuf,
    policy: String,
    instructions: Option<String>,
    /// Whether what the model said is told as it is, too.
    is_raw: bool,
}

/// Runs until the input ends. The arguments begin with `app-server`, as the real ones do.
pub(super) fn main(arguments: Vec<String>) -> u8 {
    let mut codex = FakeCodex {
        program: FakeProgram::new(HostPipes::from_stdin(), arguments),
        thread: FakeCodexThread::default(),
        turn: String::new(),
        said: Vec::new(),
        change: Value::Null,
    };
    serve(&mut codex, FakeCodex::serve);
    0
}

impl FakeCodex {
    fn serve(&mut self, request: &Value) {
        let parameters = &request["params"];
        let answer = match request["method"].as_str().unwrap_or_default() {
            "initialize" => Ok(json!({"userAgent": "fake/0.166.0 (Linux; x86_64)", "codexHome": "/nowhere",
                "platformFamily": "unix", "platformOs": "linux"})),
            "account/read" => Ok(json!({"account": null, "requiresOpenaiAuth": false, "workspaceRouting": null})),
            "thread/start" | "thread/resume" => {
                let known = parameters["threadId"].as_str().map(str::to_owned);
                let id = known.unwrap_or_else(|| format!("fake-thread-{}", self.program.serial()));
                let instructions = ["baseInstructions", "developerInstructions"].into_iter();
                let instructions: Vec<&str> = instructions.filter_map(|name| parameters[name].as_str()).collect();
                self.thread = FakeCodexThread {
                    id: id.clone(),
                    folder: PathBuf::from(text(&parameters["cwd"])),
                    policy: text(&parameters["approvalPolicy"]),
                    instructions: (!instructions.is_empty()).then(|| instructions.join("\n")),
                    is_raw: parameters["experimentalRawEvents"] == true,
                };
                let thread = json!({"id": id, "preview": "", "ephemeral": parameters["ephemeral"] == true,
                    "status": {"type": "idle"}, "cwd": parameters["cwd"], "cliVersion": "0.166.0", "turns": []});
                self.program.client.send(
                    &json!({"id": request["id"], "result": {"thread": thread, "model": "fake-model",
                    "modelProvider": "fake", "cwd": parameters["cwd"], "approvalPolicy": parameters["approvalPolicy"],
                    "sandbox": {"type": "readOnly", "networkAccess": false}}}),
                );
                self.notify("thread/started", json!({"thread": thread}));
                return;
            }
            "turn/start" => {
                self.run(request);
                return;
            }
            // Nothing is at work: what is at work is interrupted where it waits.
            "turn/interrupt" => Ok(json!({})),
            method => Err(json!({"code": -32601, "message": format!("unknown method {method}")})),
        };
        match answer {
            Ok(result) => self.program.client.send(&json!({"id": request["id"], "result": result})),
            Err(error) => self.program.client.send(&json!({"id": request["id"], "error": error})),
        }
    }

    fn run(&mut self, request: &Value) {
        self.turn = format!("fake-turn-{}", self.program.serial());
        self.said.clear();
        let parts = request["params"]["input"].as_array();
        let prompt =
            parts.into_iter().flatten().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n");
        self.program
            .client
            .send(&json!({"id": request["id"], "result": {"turn": self.turn_now("inProgress", &Value::Null)}}));
        self.notify("turn/started", json!({"turn": self.turn_now("inProgress", &Value::Null)}));
        let item = json!({"type": "userMessage", "id": format!("item-{}", self.program.serial()),
            "content": [{"type": "text", "text": prompt, "text_elements": []}]});
        self.notify("item/started", json!({"item": item}));
        self.notify("item/completed", json!({"item": item}));
        let (status, error) = match play(self, &prompt) {
            FakeTurnEnd::Done => ("completed", Value::Null),
            FakeTurnEnd::Interrupted => ("interrupted", Value::Null),
            // The real one says nothing at all when its model refuses.
            FakeTurnEnd::Refused => {
                self.said.clear();
                ("completed", Value::Null)
            }
            FakeTurnEnd::OverBudget => ("failed", failure("over budget", &json!("sessionBudgetExceeded"))),
            FakeTurnEnd::Unreachable(429) => {
                let message = "exceeded retry limit, last status: 429 Too Many Requests";
                ("failed", failure(message, &json!({"responseTooManyFailedAttempts": {"httpStatusCode": 429}})))
            }
            FakeTurnEnd::Unreachable(status) => {
                ("failed", failure(&format!("FAKE-FAIL {status}"), &json!("internalServerError")))
            }
        };
        if status == "failed" {
            self.notify("error", json!({"error": error, "willRetry": false}));
        }
        self.notify("thread/status/changed", json!({"status": {"type": "idle"}}));
        self.notify("turn/completed", json!({"turn": self.turn_now(status, &error)}));
        self.turn.clear();
    }

    fn turn_now(&self, status: &str, error: &Value) -> Value {
        json!({"id": self.turn, "items": self.said, "status": status, "error": error})
    }

    /// Says which thread and turn it is about.
    fn notify(&mut self, method: &str, mut parameters: Value) {
        parameters["threadId"] = json!(self.thread.id);
        if !self.turn.is_empty() && parameters.get("turn").is_none() {
            parameters["turnId"] = json!(self.turn);
        }
        self.program.client.send(&json!({"method": method, "params": parameters, "emittedAtMs": 0}));
    }

    fn item(&self, deed: &ToolUse, status: &str, answer: Option<&ToolAnswer>) -> Value {
        let said = answer.map(|answer| match answer {
            Ok(text) | Err(text) => text.clone(),
        });
        match &deed.what {
            FakeToolAction::Write { .. } => {
                json!({"type": "fileChange", "id": deed.id, "changes": [self.change], "status": status})
            }
            FakeToolAction::Run(command) => {
                let code = answer.map(|answer| i32::from(answer.is_err()));
                json!({"type": "commandExecution", "id": deed.id, "command": shell(command), "cwd": self.thread.folder,
                    "processId": null, "source": "agent", "status": status, "commandActions":
                    [{"type": "unknown", "command": command}], "aggregatedOutput": said, "exitCode": code})
            }
            FakeToolAction::Read(path) => {
                let command = format!("cat {path}");
                json!({"type": "commandExecution", "id": deed.id, "command": shell(&command), "cwd": self.thread.folder,
                    "status": status, "commandActions": [{"type": "read", "command": command, "path": path}],
                    "aggregatedOutput": said, "exitCode": answer.map(|answer| i32::from(answer.is_err()))})
            }
            FakeToolAction::Call { tool, input } => {
                json!({"type": "mcpToolCall", "id": deed.id, "server": "fake", "tool": tool,
                "arguments": input, "status": status, "result": said.map(|text|
                json!({"content": [{"type": "text", "text": text}]})), "error": null})
            }
            FakeToolAction::Ask(tool) => json!({"type": "commandExecution", "id": deed.id, "command": tool, "cwd":
                self.thread.folder, "status": status, "commandActions": [], "aggregatedOutput": said, "exitCode": null}),
        }
    }
}

impl FakeHostDialect for FakeCodex {
    fn say(&mut self, text: &str) {
        let id = format!("msg-{}", self.program.serial());
        let mut item = json!({"type": "agentMessage", "id": id, "text": "", "phase": null});
        self.notify("item/started", json!({"item": item}));
        for piece in text.split_inclusive(' ') {
            self.notify("item/agentMessage/delta", json!({"itemId": id, "delta": piece}));
        }
        item["text"] = json!(text);
        self.notify("item/completed", json!({"item": item}));
        self.said.push(item);
    }

    fn think(&mut self, text: &str) {
        let id = format!("reasoning-{}", self.program.serial());
        let mut item = json!({"type": "reasoning", "id": id, "summary": [], "content": []});
        self.notify("item/started", json!({"item": item}));
        self.notify("item/reasoning/summaryTextDelta", json!({"itemId": id, "delta": text, "summaryIndex": 0}));
        item["summary"] = json!([text]);
        self.notify("item/completed", json!({"item": item}));
    }

    fn plan(&mut self, steps: &[&str]) {
        let plan: Vec<Value> = steps.iter().map(|step| json!({"step": step, "status": "pending"})).collect();
        self.notify("turn/plan/updated", json!({"explanation": null, "plan": plan}));
    }

    fn begin(&mut self, deed: &ToolUse) {
        if let FakeToolAction::Write { path, text } = &deed.what {
            self.change = change(&self.thread.folder.join(path), text);
        }
        if let (FakeToolAction::Run(command), true) = (&deed.what, self.thread.is_raw) {
            let arguments = json!({"cmd": command}).to_string();
            let call =
                json!({"type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": deed.id});
            self.notify("rawResponseItem/completed", json!({"item": call}));
        }
        let item = self.item(deed, "inProgress", None);
        self.notify("item/started", json!({"item": item}));
    }

    fn ask(&mut self, deed: &ToolUse) -> PermissionReply {
        if self.thread.policy == "never" || matches!(deed.what, FakeToolAction::Read(_)) {
            return PermissionReply::Given;
        }
        let mut parameters = json!({"threadId": self.thread.id, "turnId": self.turn, "itemId": deed.id,
            "startedAtMs": 0});
        let method = if let FakeToolAction::Write { .. } = deed.what {
            parameters["reason"] = Value::Null;
            parameters["grantRoot"] = Value::Null;
            "item/fileChange/requestApproval"
        } else {
            parameters["kind"] = json!("command");
            parameters["environmentId"] = json!("local");
            // What only asks discloses nothing.
            if let FakeToolAction::Run(command) = &deed.what {
                let amendment = json!(["/bin/bash", "-lc", command]);
                parameters["command"] = json!(shell(command));
                parameters["cwd"] = json!(self.thread.folder);
                parameters["commandActions"] = json!([{"type": "unknown", "command": command}]);
                parameters["availableDecisions"] = json!(["accept",
                    {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": amendment}}, "cancel"]);
                parameters["proposedExecpolicyAmendment"] = amendment;
            } else if let FakeToolAction::Call { tool, .. } = &deed.what {
                parameters["command"] = json!(tool);
            }
            "item/commandExecution/requestApproval"
        };
        self.notify(
            "thread/status/changed",
            json!({"status": {"type": "active", "activeFlags": ["waitingOnApproval"]}}),
        );
        let id = json!(self.program.serial());
        self.program.client.send(&json!({"method": method, "id": id, "params": parameters}));
        let Some(answer) = self.answer_to(&id) else { return PermissionReply::Interrupted };
        self.notify("serverRequest/resolved", json!({"requestId": id}));
        let decision = &answer["result"]["decision"];
        match decision.as_str() {
            Some("accept" | "acceptForSession") => PermissionReply::Given,
            Some("cancel") => PermissionReply::Interrupted,
            _ if decision.is_object() => PermissionReply::Given,
            _ => PermissionReply::Denied,
        }
    }

    fn end(&mut self, deed: &ToolUse, answer: &ToolAnswer) {
        let status = match answer {
            Ok(_) => "completed",
            Err(text) if text.starts_with("denied") || text == "interrupted" => "declined",
            Err(_) => "failed",
        };
        if let (FakeToolAction::Run(_), Ok(text)) = (&deed.what, answer) {
            self.notify("item/commandExecution/outputDelta", json!({"itemId": deed.id, "delta": text}));
        }
        let item = self.item(deed, status, Some(answer));
        self.notify("item/completed", json!({"item": item}));
    }

    fn retry(&mut self, retry: FakeRetry) {
        let message = format!("Reconnecting... {}/{}", retry.attempt, retry.of);
        let kind = json!({"responseStreamDisconnected": {"httpStatusCode": retry.status}});
        self.notify("error", json!({"error": failure(&message, &kind), "willRetry": true}));
    }

    fn spend(&mut self, spent: FakeUsage) -> TurnFlow {
        let usage = |spent: FakeUsage| {
            json!({"totalTokens": spent.input + spent.output, "inputTokens": spent.input, "cachedInputTokens": 0,
                "outputTokens": spent.output, "reasoningOutputTokens": 0})
        };
        let usage = json!({"total": usage(self.program.spent), "last": usage(spent), "modelContextWindow": 258_400});
        self.notify("thread/tokenUsage/updated", json!({"tokenUsage": usage}));
        TurnFlow::Go
    }

    fn on_message(&mut self, message: Value) -> TurnSignal {
        match message.get("id") {
            Some(id) if message["method"] == "turn/interrupt" && !self.turn.is_empty() => {
                self.program.client.send(&json!({"id": id, "result": {}}));
                TurnSignal::Interrupt
            }
            _ => self.program.on_rpc_message(message),
        }
    }

    fn interrupted(&mut self) -> TurnFlow {
        std::process::exit(0)
    }

    fn on_client_gone(&mut self) {
        std::process::exit(0)
    }

    fn garbage(&self) -> &'static [u8] {
        b"{\"method\":\"item/started\",\nnot json \xff\xfe {]\n"
    }

    fn system(&self) -> Option<String> {
        self.thread.instructions.clone()
    }

    fn folder(&self) -> PathBuf {
        self.thread.folder.clone()
    }

    fn program(&mut self) -> &mut FakeProgram {
        &mut self.program
    }
}

fn failure(message: &str, kind: &Value) -> Value {
    json!({"message": message, "codexErrorInfo": kind, "additionalDetails": null})
}

/// Of a new file the real one tells the text and no diff.
fn change(file: &Path, text: &str) -> Value {
    let Ok(old) = std::fs::read_to_string(file) else {
        return json!({"path": file, "kind": {"type": "add"}, "diff": format!("{text}\n")});
    };
    let gone: String = old.lines().map(|line| format!("-{line}\n")).collect();
    let count = match old.lines().count() {
        1 => String::new(),
        count => format!(",{count}"),
    };
    let diff = format!("@@ -1{count} +1 @@\n{gone}+{text}\n");
    json!({"path": file, "kind": {"type": "update", "move_path": null}, "diff": diff})
}

fn shell(command: &str) -> String {
    format!("/bin/bash -lc {command:?}")
}
