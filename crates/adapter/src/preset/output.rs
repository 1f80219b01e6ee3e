//! Rules for reading a program's standard output: as text, as one JSON document, or as JSON lines, with pointers to the
//! values that matter. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// How to read an `exec` host's output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecOutputRules {
    pub format: ExecOutputFormat,
    pub counts: UsageCounting,
    /// What to extract from a document or line. Every rule whose `when` matches is applied, in order.
    pub read: Vec<ExecOutputRule>,
    /// What to extract from the file that replaces `{usage_file}` in the arguments.
    pub usage_file: Vec<ExecOutputRule>,
}

/// The scope of token and cost values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageCounting {
    /// The run so far.
    #[default]
    Total,
    /// A single step. Values are added up.
    Step,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecOutputFormat {
    /// The entire output is the answer, streamed as it arrives.
    #[default]
    Text,
    /// One document, parsed when the program exits.
    Json,
    /// One document per line, parsed as they arrive.
    Jsonl,
}

/// Pointers into one document. Which of them are set depends on the preset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecOutputRule {
    /// Each pointer must lead to exactly this text. Numbers and booleans are compared as written.
    pub when: BTreeMap<OutputPointer, String>,
    /// A piece of the answer to stream.
    pub chunk: Option<OutputPointer>,
    pub thought: Option<OutputPointer>,
    /// The name of a tool being used. For an object, the name of its first member, whose value is the tool's input.
    pub tool: Option<OutputPointer>,
    pub tool_id: Option<OutputPointer>,
    pub tool_input: Option<OutputPointer>,
    /// A tool's result. If present, the tool has ended.
    pub tool_output: Option<OutputPointer>,
    /// A progress note for people.
    pub progress: Option<OutputPointer>,
    /// The complete answer. If present, the host is done.
    pub text: Option<OutputPointer>,
    /// Whether it failed: anything except absent, `false`, `null`, `0` and the empty string.
    pub failed: Option<OutputPointer>,
    /// Why it failed. If present, it failed.
    pub error: Option<OutputPointer>,
    pub tokens: Option<OutputPointer>,
    pub input_tokens: Option<OutputPointer>,
    pub output_tokens: Option<OutputPointer>,
    pub cost_usd: Option<OutputPointer>,
    /// The host's own estimate of the cost.
    pub estimated_cost_usd: Option<OutputPointer>,
    /// The host's session id.
    pub session: Option<OutputPointer>,
}

/// A JSON pointer (RFC 6901) such as `/message/content/*/text`, in which `*` matches every element of an array, or
/// every member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct OutputPointer(Vec<String>);

/// Values extracted from one document or line. Later ones of a run are merged into it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParsedOutput {
    pub chunk: Option<String>,
    pub thought: Option<String>,
    pub tools: Vec<ParsedTool>,
    pub progress: Option<String>,
    pub text: Option<String>,
    pub failed: Option<bool>,
    pub error: Option<String>,
    pub tokens: Option<u64>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub cost_usd: Option<f64>,
    pub estimated_cost_usd: Option<f64>,
    pub session: Option<String>,
}

/// A tool call, started or ended. Calls with the same id are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedTool {
    pub name: Option<String>,
    pub id: Option<String>,
    /// As JSON.
    pub input: Option<String>,
    /// Set once it has ended.
    pub output: Option<String>,
}

// === impl ExecOutputRules ===

impl ExecOutputRules {
    /// Whether the output includes the cost of a run.
    pub fn tells_cost(&self) -> bool {
        let tells = |rule: &ExecOutputRule| rule.cost_usd.is_some() || rule.estimated_cost_usd.is_some();
        self.read.iter().chain(&self.usage_file).any(tells)
    }

    /// Applies the rules to one JSON document or line.
    pub fn read(&self, document: &str) -> Result<ParsedOutput, serde_json::Error> {
        read(&self.read, document)
    }

    /// Applies the rules for `{usage_file}`.
    pub fn read_usage(&self, document: &str) -> Result<ParsedOutput, serde_json::Error> {
        read(&self.usage_file, document)
    }

    /// Whether any rule yields a complete answer. If so, output without one is incomplete.
    pub fn has_answer_rule(&self) -> bool {
        self.read.iter().any(|rule| rule.text.is_some())
    }
}

fn read(rules: &[ExecOutputRule], document: &str) -> Result<ParsedOutput, serde_json::Error> {
    let document: Value = serde_json::from_str(document)?;
    let mut said = ParsedOutput::default();
    for rule in rules.iter().filter(|rule| rule.holds(&document)) {
        said.take(rule, &document);
    }
    Ok(said)
}

// === impl ExecOutputRule ===

impl ExecOutputRule {
    fn holds(&self, document: &Value) -> bool {
        self.when.iter().all(|(pointer, expected)| pointer.text(document).is_some_and(|text| text == *expected))
    }
}

// === impl ParsedOutput ===

impl ParsedOutput {
    fn take(&mut self, rule: &ExecOutputRule, document: &Value) {
        let text = |pointer: &Option<OutputPointer>| pointer.as_ref().and_then(|pointer| pointer.text(document));
        let count = |pointer: &Option<OutputPointer>| pointer.as_ref().and_then(|pointer| pointer.sum(document));
        set_if_some(&mut self.chunk, text(&rule.chunk));
        set_if_some(&mut self.thought, text(&rule.thought));
        self.tools.extend(ParsedTool::all(rule, document));
        set_if_some(&mut self.progress, text(&rule.progress));
        set_if_some(&mut self.text, text(&rule.text));
        set_if_some(&mut self.failed, rule.failed.as_ref().map(|pointer| pointer.is_true(document)));
        set_if_some(&mut self.error, text(&rule.error).filter(|error| !error.is_empty()));
        set_if_some(&mut self.tokens, count(&rule.tokens));
        set_if_some(&mut self.input_tokens, count(&rule.input_tokens));
        set_if_some(&mut self.output_tokens, count(&rule.output_tokens));
        let cost = |pointer: &Option<OutputPointer>| {
            let cost = pointer.as_ref().and_then(|pointer| pointer.find(document).first()?.as_f64());
            cost.filter(|cost| cost.is_finite() && *cost >= 0.0)
        };
        set_if_some(&mut self.cost_usd, cost(&rule.cost_usd));
        set_if_some(&mut self.estimated_cost_usd, cost(&rule.estimated_cost_usd));
        set_if_some(&mut self.session, text(&rule.session));
    }
}

// === impl ParsedTool ===

impl ParsedTool {
    /// One per name or output that the rule finds. Ids and inputs are matched by position.
    fn all(rule: &ExecOutputRule, document: &Value) -> Vec<Self> {
        let found = |pointer: &Option<OutputPointer>| {
            pointer.as_ref().map(|pointer| pointer.find(document)).unwrap_or_default()
        };
        let (names, ids) = (found(&rule.tool), found(&rule.tool_id));
        let (inputs, outputs) = (found(&rule.tool_input), found(&rule.tool_output));
        let tool = |at: usize| {
            let (name, inside) = match names.get(at) {
                Some(Value::Object(members)) => {
                    members.iter().next().map(|(name, input)| (name.clone(), input)).unzip()
                }
                Some(name) => (Some(written(name)), None),
                None => (None, None),
            };
            Self {
                name,
                id: ids.get(at).map(|id| written(id)),
                input: inputs.get(at).copied().or(inside).map(Value::to_string),
                output: outputs.get(at).map(|output| written(output)),
            }
        };
        (0..names.len().max(outputs.len())).map(tool).collect()
    }
}

/// A string as is, anything else as JSON.
fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn set_if_some<T>(slot: &mut Option<T>, new: Option<T>) {
    if new.is_some() {
        *slot = new;
    }
}

// === impl OutputPointer ===

impl OutputPointer {
    /// All values it leads to.
    pub fn find<'a>(&self, document: &'a Value) -> Vec<&'a Value> {
        self.0.iter().fold(vec![document], |found, step| {
            let next = |value: &'a Value| -> Vec<&'a Value> {
                match value {
                    Value::Array(items) if step == "*" => items.iter().collect(),
                    Value::Array(items) => step.parse().ok().and_then(|at: usize| items.get(at)).into_iter().collect(),
                    Value::Object(members) if step == "*" => members.values().collect(),
                    Value::Object(members) => members.get(step).into_iter().collect(),
                    _ => Vec::new(),
                }
            };
            found.into_iter().flat_map(next).collect()
        })
    }

    /// The string it leads to, or the JSON of any other value. Several values are concatenated.
    fn text(&self, document: &Value) -> Option<String> {
        let found = self.find(document);
        let mut pieces = found.into_iter().filter(|value| !value.is_null()).peekable();
        pieces.peek()?;
        Some(pieces.map(written).collect())
    }

    fn sum(&self, document: &Value) -> Option<u64> {
        self.find(document).into_iter().filter_map(Value::as_u64).reduce(u64::saturating_add)
    }

    fn is_true(&self, document: &Value) -> bool {
        self.find(document).into_iter().any(|value| match value {
            Value::Null => false,
            Value::Bool(value) => *value,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => !members.is_empty(),
        })
    }
}

impl TryFrom<String> for OutputPointer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let Some(steps) = text.strip_prefix('/') else {
            return Err(format!("`{text}` isn't a JSON pointer; it must start with a slash, like \"/result\""));
        };
        Ok(Self(steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(text: &str) -> ExecOutputRules {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn rules_extract_the_values_of_their_pointers() {
        let shape = shape(
            r#"
            format = "jsonl"
            [[read]]
            when = { "/type" = "assistant" }
            chunk = "/message/content/*/text"
            [[read]]
            when = { "/type" = "result" }
            text = "/result"
            failed = "/is_error"
            input_tokens = "/usage/in"
            output_tokens = "/usage/out"
            cost_usd = "/cost"
            [[read]]
            error = "/error/message"
            "#,
        );
        let line = r#"{"type":"assistant","message":{"content":[{"text":"a"},{"type":"image"},{"text":"b"}]}}"#;
        assert_eq!(shape.read(line).unwrap(), ParsedOutput { chunk: Some("ab".to_owned()), ..ParsedOutput::default() });
        let line = r#"{"type":"result","result":"done","is_error":false,"usage":{"in":3,"out":4},"cost":0.5}"#;
        let expected = ParsedOutput {
            text: Some("done".to_owned()),
            failed: Some(false),
            input_tokens: Some(3),
            output_tokens: Some(4),
            cost_usd: Some(0.5),
            ..ParsedOutput::default()
        };
        assert_eq!(shape.read(line).unwrap(), expected);
        let line = r#"{"type":"oops","error":{"message":"no model"}}"#;
        assert_eq!(
            shape.read(line).unwrap(),
            ParsedOutput { error: Some("no model".to_owned()), ..ParsedOutput::default() }
        );
        assert_eq!(shape.read(r#"{"type":"other","result":"no"}"#).unwrap(), ParsedOutput::default());
        assert!(shape.read("Loading…").is_err());
    }

    #[test]
    fn tools_are_read_one_by_one() {
        let shape = shape(
            r#"
            format = "jsonl"
            [[read]]
            when = { "/type" = "assistant" }
            tool = "/content/*/name"
            tool_id = "/content/*/id"
            tool_input = "/content/*/input"
            [[read]]
            when = { "/type" = "user" }
            tool_id = "/content/*/tool_use_id"
            tool_output = "/content/*/content"
            [[read]]
            when = { "/type" = "tool_call" }
            tool = "/tool_call"
            tool_id = "/call_id"
            tool_output = "/tool_call/*/result"
            "#,
        );
        let tools = |line| shape.read(line).unwrap().tools;
        let tool = |name: &str, id: &str, input: &str| ParsedTool {
            name: Some(name.to_owned()),
            id: Some(id.to_owned()),
            input: Some(input.to_owned()),
            output: None,
        };
        let line = r#"{"type":"assistant","content":[{"text":"a"},{"id":"1","name":"Read","input":{"p":1}},
            {"id":"2","name":"Write","input":{}}]}"#;
        assert_eq!(tools(line), [tool("Read", "1", r#"{"p":1}"#), tool("Write", "2", "{}")]);
        let line = r#"{"type":"user","content":[{"tool_use_id":"1","content":"fine"}]}"#;
        let ended = ParsedTool { id: Some("1".to_owned()), output: Some("fine".to_owned()), ..ParsedTool::default() };
        assert_eq!(tools(line), [ended]);
        let line = r#"{"type":"tool_call","call_id":"3","tool_call":{"readToolCall":{"args":{"path":"a"}}}}"#;
        assert_eq!(tools(line), [tool("readToolCall", "3", r#"{"args":{"path":"a"}}"#)]);
        let line = r#"{"type":"tool_call","call_id":"3","tool_call":{"readToolCall":{"result":{"success":1}}}}"#;
        assert_eq!(tools(line)[0].output.as_deref(), Some(r#"{"success":1}"#));
        assert_eq!(tools(r#"{"type":"other","tool_call":{}}"#), []);
    }

    #[test]
    fn conditions_compare_values_as_written() {
        let shape = shape("[[read]]\nwhen = { \"/done\" = \"true\", \"/n\" = \"2\" }\ntext = \"/~1a~0b\"");
        let said = |line| shape.read(line).unwrap().text;
        assert_eq!(said(r#"{"done":true,"n":2,"/a~b":"x"}"#).as_deref(), Some("x"));
        assert_eq!(said(r#"{"done":true,"n":3,"/a~b":"x"}"#), None);
        assert_eq!(said(r#"{"n":2,"/a~b":"x"}"#), None);
    }

    #[test]
    fn only_truthy_values_count_as_failures() {
        let shape = shape("[[read]]\nfailed = \"/e\"");
        let failed = |line| shape.read(line).unwrap().failed;
        for no in ["{}", r#"{"e":false}"#, r#"{"e":null}"#, r#"{"e":""}"#, r#"{"e":0}"#] {
            assert_eq!(failed(no), Some(false), "{no}");
        }
        for yes in [r#"{"e":true}"#, r#"{"e":"boom"}"#, r#"{"e":1}"#, r#"{"e":{"a":1}}"#] {
            assert_eq!(failed(yes), Some(true), "{yes}");
        }
    }

    #[test]
    fn a_pointer_starts_with_a_slash() {
        let error = toml::from_str::<ExecOutputRules>("[[read]]\ntext = \"result\"").unwrap_err();
        assert!(error.message().contains("`result` isn't a JSON pointer"), "{error}");
    }

    proptest! {
        #[test]
        fn no_output_makes_parsing_panic(line in ".{0,200}", json in r#"\{("[a-c/~]{0,3}":("x"|1|null|\[\]|\{\}),?){0,3}\}"#) {
            let shape = shape("[[read]]\ntext = \"/a/*/b\"\ncost_usd = \"/c\"");
            let _ = (shape.read(&line), shape.read(&json));
        }
    }
}
