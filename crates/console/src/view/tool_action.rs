//! What an agent wants to do with a tool, in familiar words. The exact tool and input are shown beside it.

use super::{
    exact::exact_line,
    html::Markup,
    tool_input::{ToolInputBlock, ToolInputView},
};
use crate::text::Text;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolAction {
    Command,
    Edit,
    Write,
    Delete,
    Read,
    Search,
    Fetch,
    WebSearch,
    Other,
}

// === impl ToolAction ===

impl ToolAction {
    /// What the input would do counts more than what the tool is called.
    pub(crate) fn of(tool: &str, input: &ToolInputView) -> Self {
        let has = |wanted: fn(&ToolInputBlock) -> bool| input.blocks.iter().any(wanted);
        if has(|block| matches!(block, ToolInputBlock::Command(_))) {
            return Self::Command;
        }
        if has(|block| matches!(block, ToolInputBlock::Diff(_))) {
            return Self::Edit;
        }
        match tool.to_ascii_lowercase().as_str() {
            "bash" | "shell" | "execute" | "exec" | "run" | "terminal" | "command" | "run_command"
            | "run_shell_command" => Self::Command,
            "edit" | "multiedit" | "notebookedit" | "apply_patch" | "patch" | "replace" => Self::Edit,
            "write" | "write_file" | "create_file" => Self::Write,
            "delete" | "delete_file" => Self::Delete,
            "read" | "read_file" | "view" => Self::Read,
            "search" | "grep" | "glob" | "list" | "ls" => Self::Search,
            "fetch" | "webfetch" | "web_fetch" => Self::Fetch,
            "websearch" | "web_search" => Self::WebSearch,
            _ => Self::Other,
        }
    }

    /// `builder wants to run a command`
    pub(crate) fn heading(self, agent: &str, tool: &str, t: &Text) -> Markup {
        match self {
            Self::Command => t.wants_command(agent),
            Self::Edit => t.wants_edit(agent),
            Self::Write => t.wants_write(agent),
            Self::Delete => t.wants_delete(agent),
            Self::Read => t.wants_read(agent),
            Self::Search => t.wants_search(agent),
            Self::Fetch => t.wants_fetch(agent),
            Self::WebSearch => t.wants_web_search(agent),
            Self::Other => t.wants(agent, exact_line(tool)),
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::Json;

    use super::*;
    use crate::text::Language;

    #[test]
    fn the_input_says_more_than_the_name_of_the_tool() {
        let t = Language::En.text();
        let action =
            |tool: &str, input: &str| ToolAction::of(tool, &ToolInputView::new(&Json::from_text(input).unwrap(), t));
        assert_eq!(action("Read", r#"{"command":"rm -rf ~"}"#), ToolAction::Command);
        assert_eq!(action("tool", r#"{"path":"a","old_string":"b","new_string":"c"}"#), ToolAction::Edit);
        assert_eq!(action("Write", r#"{"file_path":"a","content":"b"}"#), ToolAction::Write);
        assert_eq!(action("WebFetch", r#"{"url":"https://example.org"}"#), ToolAction::Fetch);
        assert_eq!(action("mcp__db__drop", "{}"), ToolAction::Other);
        assert_eq!(ToolAction::Other.heading("b", "<x>", t).to_string(), "<bdi>b</bdi> wants to use &lt;x&gt;");
    }
}
