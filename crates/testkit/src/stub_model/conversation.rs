//! What a request to a model asks, in the same terms for every dialect.

use serde_json::Value;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelConversation {
    pub(crate) model: String,
    pub(crate) mode: ReplyMode,
    pub(crate) tools: Vec<ModelTool>,
    pub(crate) turns: Vec<ModelTurn>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    #[default]
    Whole,
    Stream,
    /// A stream that ends with the usage (chat completions, on demand).
    StreamWithUsage,
    /// The answer must be JSON, as programs want it that ask a model about their own affairs.
    Json,
    JsonStream,
}

/// What the user said, and what a tool answered. What the model itself said does not matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelTurn {
    User(String),
    Result(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelTool {
    pub(crate) name: String,
    /// Codex groups the tools of an MCP server so.
    pub(crate) namespace: Option<String>,
    pub(crate) kind: ModelToolKind,
    /// JSON Schema of the input; null where there is none.
    pub(crate) schema: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelToolKind {
    Function,
    /// The input is free text.
    Custom,
}

// === impl ReplyMode ===

impl ReplyMode {
    /// Of a member `stream`.
    pub(crate) fn of(request: &Value) -> Self {
        if request["stream"] == true { Self::Stream } else { Self::Whole }
    }

    pub(crate) fn streams(self) -> bool {
        !matches!(self, Self::Whole | Self::Json)
    }
}

// === impl ModelTool ===

impl ModelTool {
    pub(crate) fn function(name: &str, schema: &Value) -> Self {
        Self { name: name.to_owned(), namespace: None, kind: ModelToolKind::Function, schema: schema.clone() }
    }

    /// Whether a script that says `wanted` means this tool: by its name, or by its name with the namespace before it.
    pub(crate) fn is_called(&self, wanted: &str) -> bool {
        if self.name == wanted {
            return true;
        }
        let Some(namespace) = &self.namespace else {
            return false;
        };
        let Some(rest) = wanted.strip_prefix(namespace.as_str()) else {
            return false;
        };
        rest.trim_start_matches(['_', '.', '/']) == self.name
    }
}

/// All text in a value that is text, a list of parts, or a part with `text`, `content`, `parts` or `output`.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n"),
        Value::Object(part) => ["text", "content", "parts", "output"]
            .into_iter()
            .filter_map(|key| part.get(key))
            .map(text_of)
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join("\n"),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// The members of a list, or nothing.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
