//! What an agent tells while it works.

use attache_protocol::Json;
use serde::Deserialize;

use crate::host::Usage;

/// One thing that an agent tells.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Update {
    Said(String),
    Thought(String),
    Call(Box<Call>),
    Plan(String),
    Used(Usage),
    /// Of no use to a run, or new.
    Other,
}

#[derive(Debug, Deserialize)]
struct Updated {
    update: Json,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tag {
    session_update: String,
}

#[derive(Debug, Deserialize)]
struct Chunk {
    content: Block,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Block {
    text: Option<String>,
    resource: Option<Resource>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Resource {
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Plan {
    entries: Option<Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    content: Option<String>,
    status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct UsageUpdate {
    used: Option<u64>,
    cost: Option<Cost>,
}

#[derive(Debug, Deserialize)]
struct Cost {
    amount: Option<f64>,
    currency: Option<String>,
}

/// A use of a tool, or what is new about one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Call {
    #[serde(default)]
    pub(super) tool_call_id: String,
    pub(super) title: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) status: Option<String>,
    pub(super) content: Option<Vec<Content>>,
    pub(super) locations: Option<Vec<Location>>,
    pub(super) raw_input: Option<Json>,
    pub(super) raw_output: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    pub(super) content: Option<Block>,
    pub(super) path: Option<String>,
    pub(super) old_text: Option<String>,
    pub(super) new_text: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Location {
    pub(super) path: String,
}

// === impl Update ===

impl Update {
    /// Of the parameters of `session/update`.
    pub(super) fn read(params: &Json) -> Self {
        Self::try_read(params).unwrap_or(Self::Other)
    }

    fn try_read(params: &Json) -> Option<Self> {
        let update = params.parse::<Updated>().ok()?.update;
        let text = || Some(update.parse::<Chunk>().ok()?.content.into_text().unwrap_or_default());
        Some(match update.parse::<Tag>().ok()?.session_update.as_str() {
            "agent_message_chunk" => Self::Said(text()?),
            "agent_thought_chunk" => Self::Thought(text()?),
            "tool_call" | "tool_call_update" => Self::Call(Box::new(update.parse().ok()?)),
            "plan" => Self::Plan(update.parse::<Plan>().ok()?.to_text()),
            "usage_update" => Self::Used(update.parse::<UsageUpdate>().ok()?.to_usage()),
            _ => Self::Other,
        })
    }
}

// === impl Block ===

impl Block {
    /// Pictures and sounds have none.
    pub(super) fn into_text(self) -> Option<String> {
        self.text.or_else(|| self.resource?.text)
    }
}

// === impl Plan ===

impl Plan {
    fn to_text(&self) -> String {
        let line = |entry: &Entry| {
            let mark = match entry.status.as_deref() {
                Some("completed") => "[x]",
                Some("in_progress") => "[>]",
                _ => "[ ]",
            };
            format!("\n{mark} {}", entry.content.as_deref().unwrap_or_default())
        };
        format!("plan:{}", self.entries.iter().flatten().map(line).collect::<String>())
    }
}

// === impl UsageUpdate ===

impl UsageUpdate {
    /// `used` is what the context holds now: the run has used that many tokens at least.
    fn to_usage(&self) -> Usage {
        let usage = Usage { tokens: self.used, ..Usage::default() };
        let dollars = |cost: &&Cost| cost.currency.as_deref().is_none_or(|currency| currency == "USD");
        let cost = self.cost.as_ref().filter(dollars).and_then(|cost| cost.amount);
        cost.map_or(usage, |amount| usage.with_cost(amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::from_text(text).unwrap()
    }

    fn update(text: &str) -> Update {
        Update::read(&json(&format!(r#"{{"sessionId":"s","update":{text}}}"#)))
    }

    #[test]
    fn updates_are_read_and_new_kinds_passed_over() {
        let said = update(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}"#);
        assert_eq!(said, Update::Said("hi".to_owned()));
        let thought = update(r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}"#);
        assert_eq!(thought, Update::Thought("hm".to_owned()));
        let plan = update(
            r#"{"sessionUpdate":"plan","entries":[{"content":"a","status":"completed"},{"content":"b","status":"pending"}]}"#,
        );
        assert_eq!(plan, Update::Plan("plan:\n[x] a\n[ ] b".to_owned()));
        let used =
            update(r#"{"sessionUpdate":"usage_update","used":7,"size":9,"cost":{"amount":0.5,"currency":"USD"}}"#);
        assert_eq!(used, Update::Used(Usage { tokens: Some(7), ..Usage::default() }.with_cost(0.5)));
        let euros =
            update(r#"{"sessionUpdate":"usage_update","used":7,"size":9,"cost":{"amount":1,"currency":"EUR"}}"#);
        assert_eq!(euros, Update::Used(Usage { tokens: Some(7), ..Usage::default() }));
        for other in
            [r#"{"sessionUpdate":"user_message_chunk"}"#, r#"{"sessionUpdate":"tool_call","locations":3}"#, "1"]
        {
            assert_eq!(update(other), Update::Other, "{other}");
        }
    }

    #[test]
    fn what_a_tool_gets_stays_as_it_was_written() {
        let call =
            update(r#"{"sessionUpdate":"tool_call","toolCallId":"c","title":null,"rawInput":{"n": 1E400,"n":2}}"#);
        let expected =
            Call { tool_call_id: "c".to_owned(), raw_input: Some(json(r#"{"n": 1E400,"n":2}"#)), ..Call::default() };
        assert_eq!(call, Update::Call(Box::new(expected)));
    }
}
