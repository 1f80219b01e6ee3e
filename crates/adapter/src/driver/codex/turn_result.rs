//! Judges how a turn of Codex ended, from its status, its error and its output. Pure.

use attache_protocol::Json;
use serde::Deserialize;

use super::message::{CodexItem, CodexTurnEnd, CodexTurnError};
use crate::host::{TurnVerdict, outage};

/// What happened during a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnActivity {
    /// No output and no tool use.
    Nothing,
    Something,
}

/// The error kind, and the HTTP status that came with it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kind {
    word: String,
    status: Option<u16>,
}

pub(super) fn verdict(end: &CodexTurnEnd, heard: TurnActivity) -> TurnVerdict {
    match end.status.as_str() {
        "completed" => {
            let text =
                end.items.iter().rev().find(|item| item.kind == "agentMessage").and_then(|item| item.text.clone());
            if heard == TurnActivity::Nothing && text.is_none() {
                // Codex reports nothing at all when its model refuses.
                return TurnVerdict::Refused { message: "its model returned no answer".to_owned() };
            }
            TurnVerdict::Done { text }
        }
        "interrupted" => failed("its turn was interrupted unexpectedly"),
        "failed" => match &end.error {
            Some(error) => failure(error),
            None => failed("it gave no reason"),
        },
        other => TurnVerdict::Unreadable { message: format!("a turn that ended as `{other}`") },
    }
}

/// A login problem and how to fix it.
pub(super) fn not_logged_in(why: &str) -> TurnVerdict {
    let why = if why.is_empty() { String::new() } else { format!("{why}. ") };
    // An environment variable with a key isn't enough: unlike `codex exec`, the app-server ignores it.
    let fix = "Run `codex login` on this device, or give it a key with `codex login --with-api-key`";
    TurnVerdict::SignIn { message: format!("{why}{fix}") }
}

/// The attempt number and the maximum, from `Reconnecting... 2/5`.
pub(super) fn attempt(message: &str) -> Option<(u64, u64)> {
    let (attempt, most) = message.rsplit(' ').next()?.split_once('/')?;
    Some((attempt.parse().ok()?, most.parse().ok()?))
}

/// The sandbox error of a command that never ran, on a system that doesn't let Codex create a sandbox.
pub(super) fn sandbox_failure(item: &CodexItem) -> Option<&str> {
    let output = item.aggregated_output.as_deref()?.trim();
    let is_trouble = output.starts_with("bwrap: ") || output.contains("codex-linux-sandbox");
    (item.kind == "commandExecution" && item.status.as_deref() == Some("failed") && is_trouble).then_some(output)
}

/// The verdict for a turn in which nothing could run, whatever Codex reports.
pub(super) fn without_sandbox(trouble: &str) -> TurnVerdict {
    let fix = "Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, \
               kernel.apparmor_restrict_unprivileged_userns), and don't put CODEX_HOME in a temporary folder";
    failed(&format!("its sandbox doesn't work on this device ({trouble}). {fix}"))
}

fn failure(error: &CodexTurnError) -> TurnVerdict {
    let message = match &error.additional_details {
        Some(details) => format!("{} ({details})", error.message),
        None => error.message.clone(),
    };
    let Kind { word, status } = Kind::of(error.codex_error_info.as_ref());
    match (word.as_str(), status) {
        ("unauthorized", _) | (_, Some(401 | 403)) => not_logged_in(&message),
        ("usageLimitExceeded" | "rateLimitExceeded", _) | (_, Some(429)) => {
            TurnVerdict::UsageLimit { message, resets_at: None }
        }
        ("contextWindowExceeded", _) => failed(&format!("the task is too long for its model: {message}")),
        ("sandboxError", _) => without_sandbox(&message),
        ("sessionBudgetExceeded", _) => TurnVerdict::OverBudget { message },
        ("cyberPolicy" | "misalignmentPolicyViolation", _) => TurnVerdict::Refused { message },
        // Codex gave up after too many denials, so the denials decide.
        ("tooManyDenials", _) => TurnVerdict::Done { text: Some(message) },
        ("modelNotFound" | "badRequest", _) | (_, Some(400 | 404 | 422)) => failed(&message),
        (
            "flexUnavailable"
            | "serverOverloaded"
            | "policyCapacityUnavailable"
            | "internalServerError"
            | "httpConnectionFailed"
            | "responseStreamConnectionFailed"
            | "responseStreamDisconnected"
            | "responseTooManyFailedAttempts",
            _,
        ) => TurnVerdict::ModelUnreachable { message },
        _ => outage::verdict(&message, message.clone()),
    }
}

fn failed(message: &str) -> TurnVerdict {
    TurnVerdict::Failed { message: message.to_owned() }
}

// === impl Kind ===

impl Kind {
    fn of(info: Option<&Json>) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CodexErrorInfo {
            http_status_code: Option<u16>,
        }
        let Some(info) = info else { return Self::default() };
        if let Ok(word) = info.parse() {
            return Self { word, status: None };
        }
        let named = info.parse::<std::collections::BTreeMap<String, Json>>().unwrap_or_default();
        let first = named.into_iter().next();
        first.map_or_else(Self::default, |(word, inside)| Self {
            word,
            status: inside.parse::<CodexErrorInfo>().ok().and_then(|inside| inside.http_status_code),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(text: &str) -> TurnVerdict {
        verdict(&serde_json::from_str(text).unwrap(), TurnActivity::Something)
    }

    fn ended_by(info: &str, message: &str) -> TurnVerdict {
        let error = format!(
            r#"{{"message":"{message}","codexErrorInfo":{info},"additionalDetails":null,"misalignment":null}}"#
        );
        ended(&format!(r#"{{"id":"u","items":[],"itemsView":"notLoaded","status":"failed","error":{error}}}"#))
    }

    #[test]
    fn the_last_message_is_the_answer() {
        let turn = r#"{"id":"u","items":[{"type":"agentMessage","id":"m","text":"done","phase":null}],"itemsView":"summary",
            "status":"completed","error":null,"startedAt":1,"completedAt":2,"durationMs":671}"#;
        assert_eq!(ended(turn), TurnVerdict::Done { text: Some("done".to_owned()) });
        let silent = r#"{"id":"u","items":[],"status":"completed","error":null}"#;
        assert_eq!(ended(silent), TurnVerdict::Done { text: None });
        let refused = TurnVerdict::Refused { message: "its model returned no answer".to_owned() };
        assert_eq!(verdict(&serde_json::from_str(silent).unwrap(), TurnActivity::Nothing), refused);
        assert!(matches!(ended(r#"{"status":"interrupted"}"#), TurnVerdict::Failed { .. }));
        assert!(matches!(ended(r#"{"status":"paused"}"#), TurnVerdict::Unreadable { .. }));
    }

    #[test]
    fn an_outage_is_distinguished_from_a_failure() {
        let away = [
            (r#""internalServerError""#, "high demand"),
            (r#"{"httpConnectionFailed":{"httpStatusCode":null}}"#, "Connection failed: error sending request"),
            (r#"{"responseStreamDisconnected":{"httpStatusCode":null}}"#, "stream disconnected"),
            ("null", "connection refused"),
        ];
        for (info, message) in away {
            assert_eq!(
                ended_by(info, message),
                TurnVerdict::ModelUnreachable { message: message.to_owned() },
                "{info}"
            );
        }
        let other = [(r#""badRequest""#, "no"), (r#""other""#, "no"), ("null", "no"), (r#"{"new":[]}"#, "no")];
        for (info, message) in other {
            assert_eq!(ended_by(info, message), TurnVerdict::Failed { message: message.to_owned() }, "{info}");
        }
        let missing = ended_by(r#"{"httpConnectionFailed":{"httpStatusCode":404}}"#, "no such model");
        assert_eq!(missing, TurnVerdict::Failed { message: "no such model".to_owned() });
    }

    #[test]
    fn an_exhausted_account_is_not_an_outage() {
        for info in [r#"{"responseTooManyFailedAttempts":{"httpStatusCode":429}}"#, r#""usageLimitExceeded""#] {
            let expected = TurnVerdict::UsageLimit { message: "try later".to_owned(), resets_at: None };
            assert_eq!(ended_by(info, "try later"), expected, "{info}");
        }
    }

    #[test]
    fn a_missing_login_includes_the_fix() {
        let message =
            "status 401. Run `codex login` on this device, or give it a key with `codex login --with-api-key`";
        let expected = TurnVerdict::SignIn { message: message.to_owned() };
        assert_eq!(ended_by(r#"{"httpConnectionFailed":{"httpStatusCode":401}}"#, "status 401"), expected);
        assert_eq!(ended_by(r#""unauthorized""#, "status 401"), expected);
    }

    #[test]
    fn a_broken_sandbox_is_detected() {
        let item = |kind: &str, status: &str, output: &str| CodexItem {
            kind: kind.to_owned(),
            status: Some(status.to_owned()),
            aggregated_output: Some(output.to_owned()),
            ..CodexItem::default()
        };
        let output = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)\n";
        assert_eq!(sandbox_failure(&item("commandExecution", "failed", output)), Some(output.trim()));
        assert_eq!(sandbox_failure(&item("commandExecution", "completed", output)), None);
        assert_eq!(sandbox_failure(&item("commandExecution", "failed", "no bwrap: here")), None);
    }

    #[test]
    fn attempts_are_counted() {
        assert_eq!(attempt("Reconnecting... 2/5"), Some((2, 5)));
        assert_eq!(attempt("Reconnecting... waiting for network"), None);
    }
}
