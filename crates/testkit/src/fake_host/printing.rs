//! Hosts that only print: text, one JSON object per line, or the documented stream of Cursor's agent.
//!
//! They are given the prompt as their last argument, or on stdin if there is none, and never ask. JSON lines are
//! `{"type":"text","text"}`, `{"type":"thinking","text"}`, `{"type":"tool","id","name","input"}`,
//! `{"type":"tool_result","id","text","is_error"}`, `{"type":"retry","attempt","of"}`,
//! `{"type":"usage","input_tokens","output_tokens","cost_usd"}` and, last, `{"type":"result","text","is_error"}`.

use std::io::{Read as _, Write as _, stderr, stdin};

use serde_json::{Value, json};

use super::{
    client::HostPipes,
    player::{FakeHostDialect, FakeRetry, FakeTurnEnd, FakeUsage, PermissionReply, TurnFlow, play},
    program::FakeProgram,
    tool_use::{FakeToolAction, ToolAnswer, ToolUse},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrintFormat {
    Text,
    JsonLines,
    Cursor,
}

/// Options of Cursor's agent with a value; everything else that begins with a dash stands alone.
const VALUED: &[&str] =
    &["--output-format", "--model", "--api-key", "-a", "--resume", "--mode", "--system-prompt", "--workspace"];

const SESSION: &str = "c6b62c6f-7ead-4fd6-9922-e952131177ff";

struct PrintingHost {
    format: PrintFormat,
    program: FakeProgram,
    text: String,
}

/// Plays the one prompt and answers with the exit status.
pub(super) fn main(manner: PrintFormat, arguments: Vec<String>) -> u8 {
    let mut prompt = prompt_of(&arguments);
    if prompt.is_empty() {
        let _ = stdin().read_to_string(&mut prompt);
    }
    let mut printer = PrintingHost {
        format: manner,
        program: FakeProgram::new(HostPipes::signals_only().0, arguments),
        text: String::new(),
    };
    if manner == PrintFormat::Cursor {
        let model = printer.value("--model").unwrap_or_else(|| "Auto".to_owned());
        printer.event(json!({"type": "system", "subtype": "init", "apiKeySource": "env", "cwd": printer.folder(),
            "session_id": SESSION, "model": model, "permissionMode": "default"}));
        printer
            .event(json!({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": prompt}]},
            "session_id": SESSION}));
    }
    let end = play(&mut printer, &prompt);
    printer.finish(end)
}

/// The last argument that is neither an option nor the value of one.
fn prompt_of(arguments: &[String]) -> String {
    let mut prompt = String::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if VALUED.contains(&argument.as_str()) {
            rest.next();
        } else if !argument.starts_with('-') {
            prompt.clone_from(argument);
        }
    }
    prompt
}

impl PrintingHost {
    fn finish(&mut self, end: FakeTurnEnd) -> u8 {
        let failure = match end {
            FakeTurnEnd::Done => None,
            FakeTurnEnd::Interrupted => Some((130, "interrupted".to_owned())),
            FakeTurnEnd::OverBudget => Some((1, "over budget".to_owned())),
            FakeTurnEnd::Refused => Some((1, "the model refused".to_owned())),
            FakeTurnEnd::Unreachable(status) => Some((1, format!("the model cannot be reached: {status}"))),
        };
        let is_error = failure.is_some();
        match self.format {
            PrintFormat::Text => {}
            PrintFormat::JsonLines => {
                let text = failure.as_ref().map_or(&self.text, |(_, text)| text);
                let result = json!({"type": "result", "text": text, "is_error": is_error});
                self.event(result);
            }
            // In case of a failure the documented stream just ends.
            PrintFormat::Cursor if is_error => {}
            PrintFormat::Cursor => {
                let result = json!({"type": "result", "subtype": "success", "duration_ms": 10, "duration_api_ms": 10,
                    "is_error": false, "result": self.text, "session_id": SESSION, "request_id": "fake-request"});
                self.event(result);
            }
        }
        failure.map_or(0, |(status, text)| {
            let _ = writeln!(stderr(), "{text}");
            status
        })
    }

    fn event(&self, event: Value) {
        self.program.client.send(&event);
    }

    fn value(&self, name: &str) -> Option<String> {
        let at = self.program.arguments.iter().position(|argument| argument == name)?;
        self.program.arguments.get(at + 1).cloned()
    }

    /// As Cursor tells of tools: each under a name of its own.
    fn tool_call(&self, deed: &ToolUse, answer: Option<&ToolAnswer>) -> Value {
        let (name, arguments) = match &deed.what {
            FakeToolAction::Write { path, text } => {
                ("writeToolCall", json!({"path": path, "fileText": text, "toolCallId": deed.id}))
            }
            FakeToolAction::Read(path) => ("readToolCall", json!({"path": path})),
            FakeToolAction::Run(command) => ("shellToolCall", json!({"command": command, "workingDirectory": ""})),
            FakeToolAction::Call { .. } | FakeToolAction::Ask(_) => {
                let (tool, input) = deed.what.tool();
                ("function", json!({"name": tool, "arguments": input.to_string()}))
            }
        };
        let mut body = if name == "function" { arguments } else { json!({"args": arguments}) };
        if let Some(answer) = answer {
            body["result"] = match (answer, &deed.what) {
                (Ok(_), FakeToolAction::Write { path, text }) => {
                    json!({"success": {"path": self.folder().join(path), "linesCreated": 1, "fileSize": text.len() + 1}})
                }
                (Ok(text), _) => json!({"success": {"content": text}}),
                (Err(text), _) => json!({"error": {"errorMessage": text}}),
            };
        }
        let mut call = json!({});
        call[name] = body;
        call
    }
}

impl FakeHostDialect for PrintingHost {
    fn say(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
        match self.format {
            PrintFormat::Text => self.program.client.print(&format!("{text}\n")),
            PrintFormat::JsonLines => self.event(json!({"type": "text", "text": format!("{text}\n")})),
            PrintFormat::Cursor => self.event(json!({"type": "assistant", "message": {"role": "assistant",
                "content": [{"type": "text", "text": text}]}, "session_id": SESSION})),
        }
    }

    fn think(&mut self, text: &str) {
        match self.format {
            PrintFormat::Text => {}
            PrintFormat::JsonLines => self.event(json!({"type": "thinking", "text": text})),
            PrintFormat::Cursor => {
                self.event(json!({"type": "thinking", "subtype": "delta", "text": text, "session_id": SESSION}));
                self.event(json!({"type": "thinking", "subtype": "completed", "session_id": SESSION}));
            }
        }
    }

    fn plan(&mut self, steps: &[&str]) {
        if self.format == PrintFormat::JsonLines {
            self.event(json!({"type": "plan", "steps": steps}));
        }
    }

    fn begin(&mut self, deed: &ToolUse) {
        match self.format {
            PrintFormat::Text => {}
            PrintFormat::JsonLines => {
                let (name, input) = deed.what.tool();
                self.event(json!({"type": "tool", "id": deed.id, "name": name, "input": input}));
            }
            PrintFormat::Cursor => self.event(json!({"type": "tool_call", "subtype": "started", "call_id": deed.id,
                "tool_call": self.tool_call(deed, None), "session_id": SESSION})),
        }
    }

    fn ask(&mut self, _: &ToolUse) -> PermissionReply {
        PermissionReply::Given
    }

    fn end(&mut self, deed: &ToolUse, answer: &ToolAnswer) {
        let (Ok(text) | Err(text)) = answer;
        match self.format {
            PrintFormat::Text => {}
            PrintFormat::JsonLines => {
                self.event(json!({"type": "tool_result", "id": deed.id, "text": text, "is_error": answer.is_err()}));
            }
            PrintFormat::Cursor => self.event(json!({"type": "tool_call", "subtype": "completed", "call_id": deed.id,
                "tool_call": self.tool_call(deed, Some(answer)), "session_id": SESSION})),
        }
    }

    fn retry(&mut self, retry: FakeRetry) {
        if self.format == PrintFormat::JsonLines {
            self.event(json!({"type": "retry", "attempt": retry.attempt, "of": retry.of}));
        } else {
            let _ = writeln!(stderr(), "The model answered {}; retry {}/{}", retry.status, retry.attempt, retry.of);
        }
    }

    fn spend(&mut self, spent: FakeUsage) -> TurnFlow {
        if self.format == PrintFormat::JsonLines {
            self.event(json!({"type": "usage", "input_tokens": spent.input, "output_tokens": spent.output,
                "cost_usd": spent.cost}));
        }
        TurnFlow::Go
    }

    fn interrupted(&mut self) -> TurnFlow {
        TurnFlow::Interrupted
    }

    fn garbage(&self) -> &'static [u8] {
        b"{\"type\":\nnot json \xff\xfe {]\n"
    }

    fn system(&self) -> Option<String> {
        self.value("--system-prompt")
    }

    fn program(&mut self) -> &mut FakeProgram {
        &mut self.program
    }
}
