//! Results of runs: how they are compared, and their texts for people. Shared by all engines.

use attache_protocol::{
    Json,
    digest::half,
    rules::{
        quota::ExceededLimit,
        run::{FailureCode, OutcomeDigest},
    },
    wire::run::RunFailure,
};
use serde::Serialize;

use crate::record::RunResult;

/// The digest of a cancellation, or of a failure decided by the rules: no worker can report it.
pub(crate) const NO_DIGEST: OutcomeDigest = OutcomeDigest([0; 16]);

/// The result of a cancelled run. `cancelled` isn't a failure code, so it has its own type.
#[derive(Serialize)]
struct CancelledResult<'a> {
    error: &'a str,
    code: &'static str,
}

/// Identifies a repeated report. Artifacts and usage don't count: the output already names the artifacts.
pub(crate) fn digest_of(outcome: &RunResult) -> OutcomeDigest {
    let mut hasher = blake3::Hasher::new();
    match outcome {
        RunResult::Completed { output, artifacts: _ } => hasher.update(b"completed\0").update(output.get().as_bytes()),
        RunResult::Failed { code: _, result } => hasher.update(b"failed\0").update(result.get().as_bytes()),
        // The run has no outcome yet.
        RunResult::Deferred { .. } => return NO_DIGEST,
    };
    OutcomeDigest(half(hasher.finalize()))
}

/// The result of a run that the rules failed.
pub(crate) fn failed_by_rule(code: FailureCode) -> Json {
    Json::of(&RunFailure { error: code.message().to_owned(), code, native_code: None })
}

/// The result of a run that a quota ended.
pub(crate) fn failed_by_quota(exceeded: &ExceededLimit) -> Json {
    Json::of(&RunFailure { error: exceeded.to_string(), code: FailureCode::QuotaExceeded, native_code: None })
}

/// The result of a run whose row in the store can't be read.
pub(crate) fn damaged() -> Json {
    let error = "The hub's record of this run is damaged, so it can't continue.".to_owned();
    Json::of(&RunFailure { error, code: FailureCode::TaskFailed, native_code: Some("damaged_record".to_owned()) })
}

/// The result of a run whose limits its worker doesn't enforce.
pub(crate) fn refused_for_limits(unmet: &str) -> Json {
    let error = format!(
        "the run asks for limits that nothing on this agent's device enforces ({unmet}), so nothing was started; ask without \
         them, or send the task to an agent that enforces them; on that device, `attache doctor sandbox` says what is missing"
    );
    Json::of(&RunFailure { error, code: FailureCode::Refused, native_code: None })
}

/// The result of a cancelled run: `{"error":"cancelled"|reason,"code":"cancelled"}`.
pub(crate) fn cancelled(reason: Option<&str>) -> Json {
    Json::of(&CancelledResult { error: reason.unwrap_or("cancelled"), code: "cancelled" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_with_the_same_text_differ_by_kind() {
        let text = Json::from_text(r#"{"error":"x"}"#).unwrap();
        let completed = digest_of(&RunResult::Completed { output: text.clone(), artifacts: Vec::new() });
        let failed = digest_of(&RunResult::Failed { code: FailureCode::TaskFailed, result: text });
        assert_ne!(completed, failed);
        assert_eq!(completed.0[..], blake3::hash(b"completed\0{\"error\":\"x\"}").as_bytes()[..16]);
    }

    #[test]
    fn results_match_the_documentation() {
        assert_eq!(
            failed_by_rule(FailureCode::Expired).get(),
            r#"{"error":"No device claimed the run before it expired.","code":"expired"}"#
        );
        assert_eq!(cancelled(None).get(), r#"{"error":"cancelled","code":"cancelled"}"#);
        assert_eq!(cancelled(Some("no \"need\"")).get(), r#"{"error":"no \"need\"","code":"cancelled"}"#);
    }
}
