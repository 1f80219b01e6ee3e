//! Judges the end of a turn from all members of the `result` message, because no single one can be trusted. Pure.

use std::collections::BTreeMap;

use attache_protocol::Json;
use serde::Deserialize;

use super::message::ClaudeTokens;
use crate::host::{
    HostUsage, TurnVerdict,
    outage::{HostFailureCause, failure_cause},
};

/// The members of the `result` message that we use.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct ClaudeTurnResult {
    pub(super) subtype: String,
    pub(super) is_error: bool,
    pub(super) terminal_reason: Option<String>,
    pub(super) stop_reason: Option<String>,
    /// The last answer, or the error.
    pub(super) result: Option<String>,
    pub(super) errors: Vec<String>,
    /// For example `connection_failed`.
    pub(super) api_error: Option<String>,
    pub(super) api_error_status: Option<u16>,
    pub(super) permission_denials: Vec<ClaudeToolDenial>,
    pub(super) session_id: String,
    /// The total of the conversation, including earlier runs.
    total_cost_usd: Option<f64>,
    /// Of this turn.
    usage: Option<ClaudeTokens>,
    /// Totals of the conversation, including earlier runs.
    #[serde(rename = "modelUsage")]
    models: BTreeMap<String, ClaudeModelUsage>,
    /// Of this turn, in versions that say it.
    #[serde(rename = "model_usage_since_last_result")]
    models_now: Option<BTreeMap<String, ClaudeModelUsage>>,
}

/// A tool use that was denied, by people or by the program's own rules.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct ClaudeToolDenial {
    pub(super) tool_name: String,
    pub(super) tool_use_id: String,
    pub(super) tool_input: Option<Json>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaudeModelUsage {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_input_tokens: u64,
    cache_creation_input_tokens: u64,
    #[serde(rename = "costUSD")]
    cost_usd: f64,
}

/// What a turn used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ClaudeUsage {
    /// What this turn adds.
    pub(super) turn: HostUsage,
    /// What the run has used at least, where the program reports only totals.
    pub(super) total: HostUsage,
}

/// What to do when the model API rejects this device's credentials.
pub(super) const SIGN_IN: &str = "run `claude` on this device and log in, or set ANTHROPIC_API_KEY for the adapter";

// === impl ClaudeTurnResult ===

impl ClaudeTurnResult {
    pub(super) fn verdict(&self) -> TurnVerdict {
        let reason = self.terminal_reason.as_deref().unwrap_or_default();
        if reason == "budget_exhausted" || self.subtype == "error_max_budget_usd" {
            return TurnVerdict::OverBudget { message: self.error_text() };
        }
        if self.stop_reason.as_deref() == Some("refusal") {
            return TurnVerdict::Refused { message: self.error_text() };
        }
        let failed = self.is_error || self.subtype != "success";
        if failed && self.lacks_sign_in() {
            return TurnVerdict::SignIn { message: format!("{SIGN_IN} ({})", self.error_text()) };
        }
        if failed && (reason == "api_error" || self.api_error.is_some() || self.api_error_status.is_some()) {
            // A request that the model rejects did reach it.
            let message = self.error_text();
            return match self.api_error_status {
                Some(429) => TurnVerdict::UsageLimit { message, resets_at: None },
                Some(400 | 404 | 413 | 422) => TurnVerdict::Failed { message },
                _ if failure_cause(&message) == Some(HostFailureCause::Limit) => {
                    TurnVerdict::UsageLimit { message, resets_at: None }
                }
                _ => TurnVerdict::ModelUnreachable { message },
            };
        }
        match reason {
            _ if failed && failure_cause(&self.error_text()) == Some(HostFailureCause::Limit) => {
                TurnVerdict::UsageLimit { message: self.error_text(), resets_at: None }
            }
            _ if failed => TurnVerdict::Failed { message: self.error_text() },
            "" | "completed" => TurnVerdict::Done { text: self.result.clone() },
            other => {
                TurnVerdict::Failed { message: format!("it ended its turn early (`{other}`): {}", self.error_text()) }
            }
        }
    }

    /// The usage that this turn adds to the run's, and a total that the run has at least. The per-model counts include requests
    /// made besides the task.
    pub(super) fn usage(&self) -> ClaudeUsage {
        let by_tokens =
            || self.usage.map_or_else(HostUsage::default, |used| HostUsage::of_tokens(used.input(), used.output()));
        match &self.models_now {
            Some(models) if !models.is_empty() => {
                let (tokens, cost) = summed(models);
                ClaudeUsage { turn: tokens.with_cost(cost), total: HostUsage::default() }
            }
            Some(_) => ClaudeUsage { turn: by_tokens(), total: HostUsage::default() },
            None if !self.models.is_empty() => {
                let (tokens, _) = summed(&self.models);
                let total = self.total_cost_usd.map_or(tokens, |usd| tokens.with_cost(usd));
                ClaudeUsage { turn: HostUsage::default(), total }
            }
            None => {
                // When interrupted at the very start, it reports zero usage.
                let usd = self.total_cost_usd.filter(|usd| *usd > 0.0);
                let total = usd.map_or_else(HostUsage::default, |usd| HostUsage::default().with_cost(usd));
                ClaudeUsage { turn: by_tokens(), total }
            }
        }
    }

    /// Whether the session it was told to resume no longer exists.
    pub(super) fn is_session_lost(&self) -> bool {
        self.is_error && self.errors.iter().any(|error| error.starts_with("No conversation found"))
    }

    fn lacks_sign_in(&self) -> bool {
        let words = self.error_text();
        let said = ["Please run /login", "Not logged in", "Invalid API key", "OAuth token has expired"];
        matches!(self.api_error_status, Some(401 | 403)) || said.iter().any(|part| words.contains(part))
    }

    /// The program's own error text. Its diagnostics are for its developers.
    fn error_text(&self) -> String {
        let errors: Vec<&str> =
            self.errors.iter().map(String::as_str).filter(|error| !error.starts_with("[ede_diagnostic]")).collect();
        match (errors.is_empty(), self.result.as_deref().map(str::trim)) {
            (false, _) => errors.join("; "),
            (true, Some(result)) if !result.is_empty() => result.to_owned(),
            _ => match self.terminal_reason.as_deref() {
                Some("aborted_streaming" | "aborted_tools") => "it was interrupted".to_owned(),
                Some(reason) => format!("it ended with `{reason}`"),
                None => format!("it ended with `{}`", self.subtype),
            },
        }
    }
}

/// The tokens and the cost of all models.
fn summed(models: &BTreeMap<String, ClaudeModelUsage>) -> (HostUsage, f64) {
    let (input, output, cost) = models.values().fold((0_u64, 0_u64, 0.0), |(input, output, cost), model| {
        let parts = [model.input_tokens, model.cache_read_input_tokens, model.cache_creation_input_tokens];
        let input = parts.into_iter().fold(input, u64::saturating_add);
        (input, output.saturating_add(model.output_tokens), cost + model.cost_usd)
    });
    (HostUsage::of_tokens(input, output), cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Recorded from Claude Code 2.1.325, without the members we don't read.
    const DONE: &str = r#"{"stop_reason":"end_turn","session_id":"47aae263","total_cost_usd":0.000368,"usage":{"input_tokens":22,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":14},"modelUsage":{"claude-opus-5-5":{"inputTokens":22,"outputTokens":14,"cacheReadInputTokens":3,"cacheCreationInputTokens":4,"webSearchRequests":0,"costUSD":0.000368,"contextWindow":1000000}},"permission_denials":[],"terminal_reason":"completed","safety_stops":0,"is_error":false,"num_turns":2,"subtype":"success","api_error_status":null,"result":"STUB-OK","type":"result"}"#;
    // Recorded from Claude Code 2.1.328: the second turn of one process, with a turn of the same size before.
    const SECOND: &str = r#"{"subtype":"success","is_error":false,"result":"STUB-OK","total_cost_usd":0.000368,"usage":{"input_tokens":11,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":7},"modelUsage":{"claude-opus-5-5":{"inputTokens":22,"outputTokens":14,"cacheReadInputTokens":0,"cacheCreationInputTokens":0,"webSearchRequests":0,"costUSD":0.000368}},"model_usage_since_last_result":{"claude-opus-5-5":{"inputTokens":11,"outputTokens":7,"cacheReadInputTokens":0,"cacheCreationInputTokens":0,"webSearchRequests":0,"costUSD":0.000184}},"num_turns":1,"type":"result"}"#;
    const DENIED: &str = r#"{"stop_reason":"end_turn","permission_denials":[{"tool_name":"Write","tool_use_id":"toolu_stub53","tool_input":{"file_path":"/srv/b.txt","content":"hello\n"}}],"terminal_reason":"completed","is_error":false,"subtype":"success","result":"STUB-OK after tool","type":"result"}"#;
    const BUDGET: &str = r#"{"stop_reason":"tool_use","total_cost_usd":0.2,"terminal_reason":"budget_exhausted","is_error":true,"subtype":"error_max_budget_usd","errors":["Reached maximum budget ($0.2)"],"type":"result"}"#;
    const REFUSED: &str = r#"{"stop_reason":"refusal","terminal_reason":"api_error","safety_stops":2,"is_error":true,"subtype":"success","api_error_status":null,"result":"API Error: the safeguards flagged this message.","type":"result"}"#;
    const INTERRUPTED: &str = r#"{"stop_reason":null,"terminal_reason":"aborted_streaming","is_error":true,"subtype":"error_during_execution","errors":["[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null"],"type":"result"}"#;
    const DEAD: &str = r#"{"stop_reason":"stop_sequence","terminal_reason":"api_error","is_error":true,"subtype":"success","api_error_status":null,"api_error":"connection_failed","result":"API Error: Connection refused","type":"result"}"#;
    const BUSY: &str = r#"{"stop_reason":"stop_sequence","terminal_reason":"api_error","is_error":true,"subtype":"success","api_error_status":429,"api_error_type":"rate_limit_error","result":"API Error: Request rejected (429)","type":"result"}"#;
    const FORBIDDEN: &str = r#"{"terminal_reason":"api_error","is_error":true,"subtype":"success","api_error_status":403,"result":"Failed to authenticate. API Error: 403","type":"result"}"#;
    const STRANGER: &str = r#"{"terminal_reason":"api_error","is_error":true,"subtype":"success","api_error_status":null,"result":"Not logged in · Please run /login","type":"result"}"#;
    const FORGOTTEN: &str = r#"{"is_error":true,"subtype":"error_during_execution","errors":["No conversation found with session ID: 0000"],"type":"result"}"#;

    fn ending(text: &str) -> ClaudeTurnResult {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_verdict_considers_every_member() {
        let message = |text: &str| text.to_owned();
        let sign_in = |words: &str| TurnVerdict::SignIn { message: format!("{SIGN_IN} ({words})") };
        let table = [
            (DONE, TurnVerdict::Done { text: Some(message("STUB-OK")) }),
            (DENIED, TurnVerdict::Done { text: Some(message("STUB-OK after tool")) }),
            (BUDGET, TurnVerdict::OverBudget { message: message("Reached maximum budget ($0.2)") }),
            (REFUSED, TurnVerdict::Refused { message: message("API Error: the safeguards flagged this message.") }),
            (INTERRUPTED, TurnVerdict::Failed { message: message("it was interrupted") }),
            (DEAD, TurnVerdict::ModelUnreachable { message: message("API Error: Connection refused") }),
            (BUSY, TurnVerdict::UsageLimit { message: message("API Error: Request rejected (429)"), resets_at: None }),
            (FORBIDDEN, sign_in("Failed to authenticate. API Error: 403")),
            (STRANGER, sign_in("Not logged in · Please run /login")),
        ];
        for (text, verdict) in table {
            assert_eq!(ending(text).verdict(), verdict, "{text}");
        }
    }

    #[test]
    fn a_false_success_is_a_failure() {
        let early = r#"{"subtype":"success","is_error":false,"terminal_reason":"hook_stopped","result":"so far"}"#;
        let message = "it ended its turn early (`hook_stopped`): so far".to_owned();
        assert_eq!(ending(early).verdict(), TurnVerdict::Failed { message });
        let wrong = r#"{"subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":404,"result":"no such model"}"#;
        assert_eq!(ending(wrong).verdict(), TurnVerdict::Failed { message: "no such model".to_owned() });
        let bare = r#"{"subtype":"error_during_execution","is_error":false}"#;
        let message = "it ended with `error_during_execution`".to_owned();
        assert_eq!(ending(bare).verdict(), TurnVerdict::Failed { message });
    }

    #[test]
    fn usage_denials_and_lost_conversations_are_read() {
        let turn = |turn: HostUsage| ClaudeUsage { turn, total: HostUsage::default() };
        let total = |total: HostUsage| ClaudeUsage { turn: HostUsage::default(), total };
        assert_eq!(ending(DONE).usage(), total(HostUsage::of_tokens(29, 14).with_cost(0.000_368)));
        assert_eq!(ending(SECOND).usage(), turn(HostUsage::of_tokens(11, 7).with_cost(0.000_184)));
        let resumed = r#"{"total_cost_usd":0.3,"modelUsage":{"m":{"inputTokens":77,"outputTokens":16000,"costUSD":0.3}},"model_usage_since_last_result":{"m":{"inputTokens":55,"outputTokens":5000,"costUSD":0.1}}}"#;
        assert_eq!(ending(resumed).usage(), turn(HostUsage::of_tokens(55, 5000).with_cost(0.1)));
        let cut = r#"{"total_cost_usd":0,"modelUsage":{},"model_usage_since_last_result":{}}"#;
        assert_eq!(ending(cut).usage(), ClaudeUsage::default());
        let nothing = r#"{"total_cost_usd":0.3,"modelUsage":{"m":{"inputTokens":77,"costUSD":0.3}},"model_usage_since_last_result":{}}"#;
        assert_eq!(ending(nothing).usage(), ClaudeUsage::default(), "an earlier run's total isn't this one's");
        let plain = r#"{"usage":{"input_tokens":5,"output_tokens":6}}"#;
        assert_eq!(ending(plain).usage(), turn(HostUsage::of_tokens(5, 6)));
        let denied = ending(DENIED).permission_denials;
        let names: Vec<_> = denied.iter().map(|denial| (&*denial.tool_name, &*denial.tool_use_id)).collect();
        assert_eq!(names, [("Write", "toolu_stub53")]);
        assert!(ending(FORGOTTEN).is_session_lost() && !ending(INTERRUPTED).is_session_lost());
    }
}
