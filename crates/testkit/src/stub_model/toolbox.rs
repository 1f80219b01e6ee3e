//! Finds among the tools on offer one that writes, runs or harmlessly reads, and fills in its input by its schema.

use serde_json::{Map, Value, json};

use super::conversation::{ModelTool, ModelToolKind};

/// Names of each host's tools, best first.
const WRITERS: &[&str] = &["Write", "write", "write_file", "create_file"];
const SHELLS: &[&str] = &[
    "Bash",
    "bash",
    "exec_command",
    "shell_command",
    "shell",
    "local_shell",
    "run_shell_command",
    "terminal",
    "execute_command",
    "exec",
];
const READERS: &[&str] = &["Read", "read", "read_file"];

const PATHS: &[&str] = &["file_path", "filePath", "absolute_path", "path"];
const TEXTS: &[&str] = &["content", "contents", "file_text", "fileText", "text"];
const COMMANDS: &[&str] = &["command", "cmd"];

/// A call that the model wants to be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelToolCall {
    pub(crate) tool: ModelTool,
    /// For a tool that takes free text, a string.
    pub(crate) input: Value,
}

/// Writes a file with a tool made for it, otherwise with a shell.
pub(crate) fn write(tools: &[ModelTool], path: &str, text: &str) -> Option<ModelToolCall> {
    let content = format!("{text}\n");
    let Some(tool) = find(tools, WRITERS) else {
        let folder = match path.rsplit_once('/') {
            Some((folder, _)) if !folder.is_empty() => format!("mkdir -p {} && ", quoted(folder)),
            _ => String::new(),
        };
        return run(tools, &format!("{folder}printf '%s\\n' {} > {}", quoted(text), quoted(path)));
    };
    let input = fill(tool, &|name, _| {
        if PATHS.contains(&name) {
            Some(json!(path))
        } else if TEXTS.contains(&name) {
            Some(json!(content))
        } else {
            None
        }
    });
    Some(ModelToolCall { tool: tool.clone(), input })
}

pub(crate) fn run(tools: &[ModelTool], command: &str) -> Option<ModelToolCall> {
    let tool = find(tools, SHELLS)?;
    if tool.kind == ModelToolKind::Custom {
        // Codex lets some models write programs that call its tools.
        let program =
            format!("const r = await tools.exec_command({}); text(JSON.stringify(r));", json!({"cmd": command}));
        return Some(ModelToolCall { tool: tool.clone(), input: json!(program) });
    }
    let input = fill(tool, &|name, schema| {
        let wanted = COMMANDS.contains(&name);
        wanted.then(|| if schema["type"] == "array" { json!(["bash", "-lc", command]) } else { json!(command) })
    });
    Some(ModelToolCall { tool: tool.clone(), input })
}

/// Something without effect, another thing each time: hosts notice a model that repeats itself.
pub(crate) fn harmless(tools: &[ModelTool], nth: usize) -> Option<ModelToolCall> {
    let Some(tool) = find(tools, READERS) else {
        return run(tools, &format!("echo again {nth}"));
    };
    let file = format!("no-such-file-{nth}.txt");
    let input = fill(tool, &|name, _| PATHS.contains(&name).then(|| json!(file)));
    Some(ModelToolCall { tool: tool.clone(), input })
}

/// The tool of that name; one that is not on offer is called all the same, because hosts keep the descriptions of many
/// tools back.
pub(crate) fn named(tools: &[ModelTool], name: &str, input: &Value) -> ModelToolCall {
    let tool = tools.iter().find(|tool| tool.is_called(name));
    let tool = tool.cloned().unwrap_or_else(|| ModelTool::function(name, &Value::Null));
    let input = match (tool.kind, &input["input"]) {
        (ModelToolKind::Custom, Value::String(text)) => json!(text),
        _ => input.clone(),
    };
    ModelToolCall { tool, input }
}

fn find<'a>(tools: &'a [ModelTool], names: &[&str]) -> Option<&'a ModelTool> {
    names.iter().find_map(|name| tools.iter().find(|tool| tool.name == *name))
}

/// The input: what `known` says of each property, and something of the right type for what else is required.
fn fill(tool: &ModelTool, known: &dyn Fn(&str, &Value) -> Option<Value>) -> Value {
    let mut input = Map::new();
    let required = tool.schema["required"].as_array();
    for (name, schema) in tool.schema["properties"].as_object().into_iter().flatten() {
        let must = required.is_some_and(|required| required.iter().any(|required| required == name));
        if let Some(value) = known(name, schema).or_else(|| must.then(|| anything(schema))) {
            input.insert(name.clone(), value);
        }
    }
    Value::Object(input)
}

fn anything(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str().map(str::to_ascii_lowercase).as_deref() {
        Some("boolean") => json!(false),
        Some("integer" | "number") => json!(1),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("as asked"),
    }
}

/// As one word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, properties: &Value, required: &Value) -> ModelTool {
        ModelTool::function(name, &json!({"type": "object", "properties": properties, "required": required}))
    }

    #[test]
    fn a_file_is_written_with_the_tool_that_is_there() {
        let text = json!({"type": "string"});
        let claude = tool("Write", &json!({"file_path": text, "content": text}), &json!(["file_path", "content"]));
        let call = write(std::slice::from_ref(&claude), "a/b.txt", "hi").unwrap();
        assert_eq!(call, ModelToolCall { tool: claude, input: json!({"file_path": "a/b.txt", "content": "hi\n"}) });

        let codex = tool("exec_command", &json!({"cmd": text, "tty": {"type": "boolean"}}), &json!(["cmd"]));
        let call = write(std::slice::from_ref(&codex), "a/it's.txt", "hi").unwrap();
        let command = r"mkdir -p 'a' && printf '%s\n' 'hi' > 'a/it'\''s.txt'";
        assert_eq!(call, ModelToolCall { tool: codex, input: json!({"cmd": command}) });

        assert_eq!(write(&[tool("Read", &json!({}), &json!([]))], "a", "b"), None);
    }

    #[test]
    fn required_members_are_filled_in_by_type() {
        let properties = json!({
            "command": {"type": "array", "items": {"type": "string"}},
            "description": {"type": "string"},
            "background": {"type": "BOOLEAN"},
            "how": {"enum": ["fast", "slow"]},
            "unused": {"type": "string"},
        });
        let shell = tool("shell", &properties, &json!(["command", "description", "background", "how"]));
        assert_eq!(
            run(&[shell], "ls").unwrap().input,
            json!({"command": ["bash", "-lc", "ls"], "description": "as asked", "background": false, "how": "fast"})
        );
    }

    #[test]
    fn a_tool_is_called_by_name_whether_or_not_it_is_on_offer() {
        let namespaced =
            ModelTool { namespace: Some("mcp__hub".to_owned()), ..ModelTool::function("delegate", &Value::Null) };
        let tools = [namespaced.clone()];
        assert_eq!(
            named(&tools, "mcp__hub__delegate", &json!({"a": 1})),
            ModelToolCall { tool: namespaced, input: json!({"a": 1}) }
        );
        assert_eq!(named(&tools, "other", &json!({})).tool, ModelTool::function("other", &Value::Null));
        let patch = ModelTool { kind: ModelToolKind::Custom, ..ModelTool::function("apply_patch", &Value::Null) };
        assert_eq!(named(&[patch], "apply_patch", &json!({"input": "*** Begin"})).input, json!("*** Begin"));
    }
}
