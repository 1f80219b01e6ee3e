//! Translates Codex items into tool calls: commands, file changes, MCP tools, searches. Pure.

use attache_protocol::Json;
use serde::{Deserialize, Serialize};

use super::message::{CodexFileChange, CodexItem};
use crate::host::turn::{ToolCall, ToolStatus};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemPhase {
    Started,
    Completed,
}

#[derive(Debug, Serialize)]
struct CommandItem<'a> {
    command: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct FileChangeItem<'a> {
    paths: Vec<&'a str>,
    /// All changes, as people review them.
    #[serde(skip_serializing_if = "String::is_empty")]
    diff: String,
}

#[derive(Debug, Serialize)]
struct WebSearchItem<'a> {
    query: &'a str,
}

/// `None` if the item isn't a tool use.
pub(super) fn tool_call(item: &CodexItem, moment: ItemPhase) -> Option<ToolCall> {
    let (name, title, input) = match item.kind.as_str() {
        "commandExecution" => {
            let command = item.command.as_deref()?;
            let input = Json::of(&CommandItem { command, cwd: item.cwd.as_deref() });
            ("shell".to_owned(), Some(command.to_owned()), Some(input))
        }
        "fileChange" => {
            let paths: Vec<&str> = item.changes.iter().map(|change| change.path.as_str()).collect();
            let title = paths.first().map(|path| (*path).to_owned());
            let diff = item.changes.iter().map(CodexFileChange::unified).collect();
            ("apply_patch".to_owned(), title, Some(Json::of(&FileChangeItem { paths, diff })))
        }
        "mcpToolCall" => {
            let name = format!("mcp__{}__{}", item.server.as_deref()?, item.tool.as_deref()?);
            (name, None, item.arguments.clone())
        }
        "webSearch" => {
            let query = item.query.as_deref().unwrap_or_default();
            ("web_search".to_owned(), Some(query.to_owned()), Some(Json::of(&WebSearchItem { query })))
        }
        _ => return None,
    };
    let status = match (moment, item.status.as_deref()) {
        (ItemPhase::Started, _) => ToolStatus::Started,
        (ItemPhase::Completed, Some("completed") | None) => ToolStatus::Completed,
        (ItemPhase::Completed, Some(_)) => ToolStatus::Failed,
    };
    Some(ToolCall { id: item.id.clone(), name, status, title, input, output: output(item) })
}

fn output(item: &CodexItem) -> Option<String> {
    let error = item.error.as_ref().and_then(|error| error.text_member("message"));
    let exit = item.exit_code.filter(|code| *code != 0).map(|code| format!("exit status {code}"));
    item.aggregated_output.clone().or_else(|| result_text(item.result.as_ref()?)).or(error).or(exit)
}

/// The text of an MCP tool's result.
fn result_text(result: &Json) -> Option<String> {
    #[derive(Deserialize)]
    struct McpToolAnswer {
        #[serde(default)]
        content: Vec<Json>,
    }
    let answer: McpToolAnswer = result.parse().ok()?;
    let texts: Vec<String> = answer.content.iter().filter_map(|part| part.text_member("text")).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(item: &str, moment: ItemPhase) -> String {
        let call = tool_call(&serde_json::from_str(item).unwrap(), moment);
        call.map_or_else(|| "nothing".to_owned(), |call| Json::of(&call).get().to_owned())
    }

    #[test]
    fn each_kind_of_step_is_shown() {
        let command = r#"{"type":"commandExecution","id":"c","command":"ls","cwd":"/ws","status":"failed","aggregatedOutput":"no",
            "exitCode":2}"#;
        let expected = r#"{"id":"c","name":"shell","status":"failed","title":"ls","input":{"command":"ls","cwd":"/ws"},"output":"no"}"#;
        assert_eq!(shown(command, ItemPhase::Completed), expected);
        let patch = r#"{"type":"fileChange","id":"p","changes":[{"path":"/ws/a","kind":{"type":"add"},"diff":"x\n"}],"status":
            "inProgress"}"#;
        let expected = r#"{"id":"p","name":"apply_patch","status":"started","title":"/ws/a","input":{"paths":["/ws/a"],"diff":"--- /ws/a\n+++ /ws/a\n@@ -0,0 +1 @@\n+x\n"}}"#;
        assert_eq!(shown(patch, ItemPhase::Started), expected);
        let tool = r#"{"type":"mcpToolCall","id":"m","server":"attache_run","tool":"delegate","status":"completed","arguments":
            {"to":"x"},"result":{"content":[{"type":"text","text":"done"}]},"error":null}"#;
        let expected =
            r#"{"id":"m","name":"mcp__attache_run__delegate","status":"completed","input":{"to":"x"},"output":"done"}"#;
        assert_eq!(shown(tool, ItemPhase::Completed), expected);
        assert_eq!(shown(r#"{"type":"reasoning","id":"r"}"#, ItemPhase::Started), "nothing");
    }

    #[test]
    fn a_declined_step_counts_as_failed() {
        let declined = r#"{"type":"commandExecution","id":"c","command":"ls","status":"declined"}"#;
        assert!(shown(declined, ItemPhase::Completed).contains(r#""status":"failed""#));
    }
}
