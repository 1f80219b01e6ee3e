//! Speaks like Claude Code with `-p`: one prompt, or stream-json both ways with the control protocol.

mod flags;

use std::io::{Read as _, Write as _, stderr, stdin};

use serde_json::{Value, json};

use self::flags::FakeClaudeFlags;
use super::{
    client::HostPipes,
    player::{FakeHostDialect, FakeRetry, FakeTurnEnd, FakeUsage, PermissionReply, TurnFlow, play},
    program::{FakeProgram, TurnSignal, serve, text},
    tool_use::{FakeToolAction, ToolAnswer, ToolUse},
};

const SESSION: &str = "6f1f2c9e-5d3c-4a55-9d0e-0c8e3f1f7a11";

struct FakeClaude {
    program: FakeProgram,
    flags: FakeClaudeFlags,
    turn: FakeClaudeTurn,
    /// What was used up to the last result.
    reported: FakeUsage,
}

/// What the result of this turn will tell.
#[derive(Default)]
struct FakeClaudeTurn {
    text: String,
    denials: Vec<Value>,
    steps: u64,
}

/// Runs until the input ends or the one prompt is done, and answers with the exit status.
pub(super) fn main(arguments: Vec<String>) -> u8 {
    let flags = match FakeClaudeFlags::parse(&arguments) {
        Ok(flags) => flags,
        Err(flag) => {
            let _ = writeln!(stderr(), "error: unknown option '{flag}'");
            return 1;
        }
    };
    let talks = flags.value("--input-format") == Some("stream-json");
    let client = if talks { HostPipes::from_stdin() } else { HostPipes::signals_only().0 };
    let mut claude = FakeClaude {
        program: FakeProgram::new(client, arguments),
        flags,
        turn: FakeClaudeTurn::default(),
        reported: FakeUsage::default(),
    };
    if !talks {
        let mut prompt = claude.flags.prompt.clone().unwrap_or_default();
        if prompt.is_empty() {
            let _ = stdin().read_to_string(&mut prompt);
        }
        return claude.turn(&prompt);
    }
    let mut status = 0;
    serve(&mut claude, |claude, prompt| {
        claude.replay(prompt);
        status = claude.turn(&text_of(&prompt["message"]["content"]));
    });
    status
}

impl FakeClaude {
    /// The prompt as it is given to the model, if that was asked for.
    fn replay(&mut self, prompt: &Value) {
        if self.flags.is_set("--replay-user-messages") {
            let mut replayed = prompt.clone();
            replayed["session_id"] = json!(SESSION);
            replayed["isReplay"] = json!(true);
            self.program.client.send(&replayed);
        }
    }

    fn turn(&mut self, prompt: &str) -> u8 {
        self.turn = FakeClaudeTurn::default();
        self.event(json!({"type": "system", "subtype": "init", "cwd": self.folder(), "model": "fake-model",
            "tools": ["Bash", "Read", "Write"], "mcp_servers": [], "apiKeySource": "ANTHROPIC_API_KEY",
            "permissionMode": self.flags.value("--permission-mode").unwrap_or("default"),
            "claude_code_version": "2.1.325"}));
        self.event(json!({"type": "system", "subtype": "status", "status": "requesting"}));
        let end = play(self, prompt);
        self.result(end)
    }

    fn result(&mut self, end: FakeTurnEnd) -> u8 {
        // As the real thing does: `usage` is of this turn, `modelUsage` and the cost are of the whole conversation.
        let (all, before) = (self.program.spent, std::mem::replace(&mut self.reported, self.program.spent));
        let (input, output) = (all.input - before.input, all.output - before.output);
        let usage = json!({"input_tokens": input, "output_tokens": output,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0});
        // `type` does not come first in the real thing either.
        let mut result = json!({
            "duration_api_ms": 5, "stop_reason": "end_turn", "session_id": SESSION, "total_cost_usd": self.program.spent.cost,
            "usage": usage, "modelUsage": {"fake-model": {"inputTokens": self.program.spent.input,
                "outputTokens": self.program.spent.output, "costUSD": self.program.spent.cost}},
            "model_usage_since_last_result": {"fake-model": {"inputTokens": input, "outputTokens": output,
                "costUSD": all.cost - before.cost}},
            "permission_denials": self.turn.denials, "terminal_reason": "completed", "safety_stops": 0,
            "is_error": false, "num_turns": self.turn.steps + 1, "subtype": "success", "api_error_status": null,
            "result": self.turn.text, "type": "result", "duration_ms": 10, "uuid": self.uuid(),
        });
        match end {
            FakeTurnEnd::Done => {}
            FakeTurnEnd::Interrupted => {
                result["is_error"] = json!(true);
                result["subtype"] = json!("error_during_execution");
                result["terminal_reason"] = json!("aborted_streaming");
                result["stop_reason"] = Value::Null;
                result["errors"] = json!(["interrupted"]);
            }
            FakeTurnEnd::OverBudget => {
                let limit = self.flags.value("--max-budget-usd").unwrap_or_default();
                result["is_error"] = json!(true);
                result["subtype"] = json!("error_max_budget_usd");
                result["terminal_reason"] = json!("budget_exhausted");
                result["stop_reason"] = json!("tool_use");
                result["errors"] = json!([format!("Reached maximum budget (${limit})")]);
            }
            FakeTurnEnd::Refused => {
                let text = "API Error: the safeguards flagged this message.";
                self.assistant(&json!({"type": "text", "text": text}));
                result["is_error"] = json!(true);
                result["terminal_reason"] = json!("api_error");
                result["stop_reason"] = json!("refusal");
                result["safety_stops"] = json!(2);
                result["result"] = json!(text);
            }
            FakeTurnEnd::Unreachable(status) => {
                let text = format!("API Error: {status} FAKE-FAIL {status}.");
                self.assistant(&json!({"type": "text", "text": text}));
                result["is_error"] = json!(true);
                result["terminal_reason"] = json!("api_error");
                result["stop_reason"] = json!("stop_sequence");
                result["api_error_status"] = json!(status);
                result["result"] = json!(text);
            }
        }
        if end != FakeTurnEnd::Done && end != FakeTurnEnd::Refused && !matches!(end, FakeTurnEnd::Unreachable(_)) {
            result.as_object_mut().expect("a result is an object").remove("result");
        }
        let failed = result["is_error"] == true;
        match self.flags.value("--output-format") {
            Some("stream-json" | "json") => self.program.client.send(&result),
            _ => self.program.client.print(&format!("{}\n", self.turn.text)),
        }
        u8::from(failed)
    }

    /// A line of stream-json; other formats have none but the result.
    fn event(&mut self, mut event: Value) {
        if self.flags.value("--output-format") != Some("stream-json") {
            return;
        }
        event["session_id"] = json!(SESSION);
        event["uuid"] = json!(self.uuid());
        self.program.client.send(&event);
    }

    fn assistant(&mut self, block: &Value) {
        let id = format!("msg_fake{}", self.program.serial());
        self.event(json!({"type": "assistant", "message": {"id": id, "type": "message", "role": "assistant",
            "model": "fake-model", "content": [block], "stop_reason": null,
            "usage": {"input_tokens": 0, "output_tokens": 0}}, "parent_tool_use_id": null}));
    }

    /// A block, first in pieces if those were asked for.
    fn streamed(&mut self, block: &Value, member: &str, text: &str) {
        if self.flags.is_set("--include-partial-messages") {
            let mut empty = block.clone();
            empty[member] = json!("");
            self.partial(json!({"type": "content_block_start", "index": 0, "content_block": empty}));
            for piece in text.split_inclusive(' ') {
                let mut delta = json!({"type": format!("{member}_delta")});
                delta[member] = json!(piece);
                self.partial(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
            }
        }
        self.assistant(block);
        if self.flags.is_set("--include-partial-messages") {
            self.partial(json!({"type": "content_block_stop", "index": 0}));
        }
    }

    fn partial(&mut self, event: Value) {
        self.event(json!({"type": "stream_event", "event": event, "parent_tool_use_id": null}));
    }

    fn uuid(&mut self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.program.serial())
    }

    /// Whether this needs leave, by the mode of permissions and the tools that are allowed from the start.
    fn needs_permission(&self, what: &FakeToolAction) -> bool {
        let mode = self.flags.value("--permission-mode").unwrap_or("default");
        let (tool, _) = what.tool();
        let allowed = self.flags.value("--allowedTools").or_else(|| self.flags.value("--allowed-tools"));
        let allowed = allowed.is_some_and(|list| list.split([',', ' ']).any(|name| name == tool));
        let skipped = mode == "bypassPermissions" || self.flags.is_set("--dangerously-skip-permissions");
        let accepted = mode == "acceptEdits" && matches!(what, FakeToolAction::Write { .. });
        !(allowed || skipped || accepted || matches!(what, FakeToolAction::Read(_)))
    }

    fn deny(&mut self, deed: &ToolUse) -> PermissionReply {
        let (tool, input) = deed.what.tool();
        self.turn.denials.push(json!({"tool_name": tool, "tool_use_id": deed.id, "tool_input": input}));
        PermissionReply::Denied
    }
}

impl FakeHostDialect for FakeClaude {
    fn say(&mut self, text: &str) {
        self.turn.text = text.to_owned();
        self.streamed(&json!({"type": "text", "text": text}), "text", text);
    }

    fn think(&mut self, text: &str) {
        self.streamed(&json!({"type": "thinking", "thinking": text, "signature": "fake"}), "thinking", text);
    }

    fn plan(&mut self, steps: &[&str]) {
        let todos: Vec<Value> =
            steps.iter().map(|step| json!({"content": step, "status": "pending", "activeForm": step})).collect();
        self.assistant(&json!({"type": "tool_use", "id": "deed_plan", "name": "TodoWrite", "input": {"todos": todos}}));
    }

    fn begin(&mut self, deed: &ToolUse) {
        self.turn.steps += 1;
        let (tool, input) = deed.what.tool();
        self.assistant(&json!({"type": "tool_use", "id": deed.id, "name": tool, "input": input}));
        if deed.what == FakeToolAction::Ask("Forbidden".to_owned()) {
            self.deny(deed);
        }
    }

    fn ask(&mut self, deed: &ToolUse) -> PermissionReply {
        if !self.needs_permission(&deed.what) {
            return PermissionReply::Given;
        }
        if self.flags.value("--permission-prompt-tool") != Some("stdio") {
            return self.deny(deed);
        }
        let (tool, mut input) = deed.what.tool();
        // Here, unlike in the stream, paths are whole.
        if let Some(path) = deed.what.path() {
            input["file_path"] = json!(self.folder().join(path));
        }
        let id = json!(self.uuid());
        self.program.client.send(
            &json!({"type": "control_request", "request_id": id, "request": {"subtype": "can_use_tool",
            "tool_name": tool, "display_name": tool, "input": input, "description": deed.what.title(),
            "permission_suggestions": [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}],
            "tool_use_id": deed.id}}),
        );
        let Some(answer) = self.answer_to(&id) else { return PermissionReply::Interrupted };
        if answer["behavior"] == "allow" {
            return PermissionReply::Given;
        }
        self.deny(deed);
        if answer["interrupt"] == true { PermissionReply::Interrupted } else { PermissionReply::Denied }
    }

    fn end(&mut self, deed: &ToolUse, answer: &ToolAnswer) {
        let (Ok(text) | Err(text)) = answer;
        self.event(json!({"type": "user", "message": {"role": "user", "content": [{"tool_use_id": deed.id,
            "type": "tool_result", "content": text, "is_error": answer.is_err()}]}, "parent_tool_use_id": null}));
    }

    fn retry(&mut self, retry: FakeRetry) {
        let error = if retry.status == 429 { "rate_limit" } else { "server_error" };
        self.event(json!({"type": "system", "subtype": "api_retry", "attempt": retry.attempt, "max_retries": retry.of,
            "retry_delay_ms": 20, "error_status": retry.status, "error": error}));
    }

    fn spend(&mut self, spent: FakeUsage) -> TurnFlow {
        if self.flags.is_set("--include-partial-messages") {
            let id = format!("msg_fake{}", self.program.serial());
            self.partial(json!({"type": "message_start", "message": {"id": id, "role": "assistant", "content": [],
                "usage": {"input_tokens": spent.input, "output_tokens": 0}}}));
            self.partial(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": spent.output}}));
            self.partial(json!({"type": "message_stop"}));
        }
        let limit: Option<f64> = self.flags.value("--max-budget-usd").and_then(|limit| limit.parse().ok());
        if limit.is_some_and(|limit| self.program.spent.cost > limit) { TurnFlow::OverBudget } else { TurnFlow::Go }
    }

    fn on_message(&mut self, message: Value) -> TurnSignal {
        match message["type"].as_str() {
            Some("user") => {
                self.program.waiting.push_back(message);
                TurnSignal::Nothing
            }
            Some("control_request") => {
                let request = &message["request"];
                let (response, heard) = match request["subtype"].as_str() {
                    Some("initialize") => {
                        self.flags.instruct(request);
                        let response = json!({"commands": [], "output_style": "default", "models": [], "account": {}});
                        (response, TurnSignal::Nothing)
                    }
                    Some("interrupt") => (json!({"still_queued": []}), TurnSignal::Interrupt),
                    _ => (json!({}), TurnSignal::Nothing),
                };
                self.program.client.send(&json!({"type": "control_response", "response": {"subtype": "success",
                    "request_id": message["request_id"], "response": response}}));
                heard
            }
            Some("control_response") => {
                let response = &message["response"];
                TurnSignal::Answer { to: response["request_id"].clone(), answer: response["response"].clone() }
            }
            _ => TurnSignal::Nothing,
        }
    }

    /// The real program tells its result after SIGINT and ends with 0.
    fn interrupted(&mut self) -> TurnFlow {
        self.result(FakeTurnEnd::Interrupted);
        std::process::exit(0)
    }

    fn interrupted_at_rest(&mut self) {}

    fn garbage(&self) -> &'static [u8] {
        b"{\"type\":\"assistant\",\"message\":{\nnot json \xff\xfe {]\n"
    }

    fn system(&self) -> Option<String> {
        self.flags.system()
    }

    fn program(&mut self) -> &mut FakeProgram {
        &mut self.program
    }
}

/// Of a string or of blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n"),
        other => text(other),
    }
}
