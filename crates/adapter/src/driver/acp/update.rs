//! Updates an agent sends while it works (`session/update`).

use attache_protocol::Json;
use serde::Deserialize;

use crate::host::HostUsage;

/// One update.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AcpUpdate {
    Message(String),
    Thought(String),
    Call(Box<AcpToolCall>),
    Plan(String),
    Usage(HostUsage),
    /// Irrelevant to a run, or unknown.
    Other,
}

#[derive(Debug, Deserialize)]
struct AcpSessionUpdate {
    update: Json,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AcpUpdateTag {
    session_update: String,
}

#[derive(Debug, Deserialize)]
struct AcpChunk {
    content: AcpContentBlock,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct AcpContentBlock {
    text: Option<String>,
    resource: Option<AcpResource>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct AcpResource {
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
struct AcpPlan {
    entries: Option<Vec<AcpPlanEntry>>,
}

#[derive(Debug, Deserialize)]
struct AcpPlanEntry {
    content: Option<String>,
    status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct AcpUsageUpdate {
    used: Option<u64>,
    cost: Option<AcpCost>,
}

#[derive(Debug, Deserialize)]
struct AcpCost {
    amount: Option<f64>,
    currency: Option<String>,
}

/// A new tool call, or an update to one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpToolCall {
    #[serde(default)]
    pub(super) tool_call_id: String,
    pub(super) title: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) status: Option<String>,
    pub(super) content: Option<Vec<AcpToolContent>>,
    pub(super) locations: Option<Vec<AcpToolLocation>>,
    pub(super) raw_input: Option<Json>,
    pub(super) raw_output: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpToolContent {
    pub(super) content: Option<AcpContentBlock>,
    pub(super) path: Option<String>,
    pub(super) old_text: Option<String>,
    pub(super) new_text: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct AcpToolLocation {
    pub(super) path: String,
}

// === impl AcpUpdate ===

impl AcpUpdate {
    /// Reads the parameters of `session/update`.
    pub(super) fn read(params: &Json) -> Self {
        Self::try_read(params).unwrap_or(Self::Other)
    }

    fn try_read(params: &Json) -> Option<Self> {
        let update = params.parse::<AcpSessionUpdate>().ok()?.update;
        let text = || Some(update.parse::<AcpChunk>().ok()?.content.into_text().unwrap_or_default());
        Some(match update.parse::<AcpUpdateTag>().ok()?.session_update.as_str() {
            "agent_message_chunk" => Self::Message(text()?),
            "agent_thought_chunk" => Self::Thought(text()?),
            "tool_call" | "tool_call_update" => Self::Call(Box::new(update.parse().ok()?)),
            "plan" => Self::Plan(update.parse::<AcpPlan>().ok()?.to_text()),
            "usage_update" => Self::Usage(update.parse::<AcpUsageUpdate>().ok()?.to_usage()),
            _ => Self::Other,
        })
    }
}

// === impl AcpContentBlock ===

impl AcpContentBlock {
    /// `None` for images and audio.
    pub(super) fn into_text(self) -> Option<String> {
        self.text.or_else(|| self.resource?.text)
    }

    pub(super) fn bytes(&self) -> usize {
        let resource = self.resource.as_ref().and_then(|resource| resource.text.as_ref());
        self.text.as_ref().map_or(0, String::len) + resource.map_or(0, String::len)
    }
}

// === impl AcpPlan ===

impl AcpPlan {
    fn to_text(&self) -> String {
        let line = |entry: &AcpPlanEntry| {
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

// === impl AcpUsageUpdate ===

impl AcpUsageUpdate {
    /// `used` is the current size of the context, so the run has used at least that many tokens.
    fn to_usage(&self) -> HostUsage {
        let usage = HostUsage { tokens: self.used, ..HostUsage::default() };
        let dollars = |cost: &&AcpCost| cost.currency.as_deref().is_none_or(|currency| currency == "USD");
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

    fn update(text: &str) -> AcpUpdate {
        AcpUpdate::read(&json(&format!(r#"{{"sessionId":"s","update":{text}}}"#)))
    }

    #[test]
    fn updates_are_read_and_unknown_kinds_skipped() {
        let said = update(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}"#);
        assert_eq!(said, AcpUpdate::Message("hi".to_owned()));
        let thought = update(r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}"#);
        assert_eq!(thought, AcpUpdate::Thought("hm".to_owned()));
        let plan = update(
            r#"{"sessionUpdate":"plan","entries":[{"content":"a","status":"completed"},{"content":"b","status":"pending"}]}"#,
        );
        assert_eq!(plan, AcpUpdate::Plan("plan:\n[x] a\n[ ] b".to_owned()));
        let used =
            update(r#"{"sessionUpdate":"usage_update","used":7,"size":9,"cost":{"amount":0.5,"currency":"USD"}}"#);
        assert_eq!(used, AcpUpdate::Usage(HostUsage { tokens: Some(7), ..HostUsage::default() }.with_cost(0.5)));
        let euros =
            update(r#"{"sessionUpdate":"usage_update","used":7,"size":9,"cost":{"amount":1,"currency":"EUR"}}"#);
        assert_eq!(euros, AcpUpdate::Usage(HostUsage { tokens: Some(7), ..HostUsage::default() }));
        for other in
            [r#"{"sessionUpdate":"user_message_chunk"}"#, r#"{"sessionUpdate":"tool_call","locations":3}"#, "1"]
        {
            assert_eq!(update(other), AcpUpdate::Other, "{other}");
        }
    }

    #[test]
    fn tool_input_keeps_its_original_text() {
        let call =
            update(r#"{"sessionUpdate":"tool_call","toolCallId":"c","title":null,"rawInput":{"n": 1E400,"n":2}}"#);
        let expected = AcpToolCall {
            tool_call_id: "c".to_owned(),
            raw_input: Some(json(r#"{"n": 1E400,"n":2}"#)),
            ..AcpToolCall::default()
        };
        assert_eq!(call, AcpUpdate::Call(Box::new(expected)));
    }
}
