//! How a run's end is told apart and told to people, once for every engine.

use attache_protocol::{
    Json,
    rules::{
        quota::Exceeded,
        run::{Digest, FailureCode},
    },
    wire::run::Failure,
};
use serde::Serialize;

use crate::record::Outcome;

/// The outcome of a cancelled run, and of a failure that the rules decide: no worker can report it.
pub(crate) const NO_DIGEST: Digest = Digest([0; 16]);

/// The result of a cancelled run. `cancelled` is no failure code, so it has a shape of its own.
#[derive(Serialize)]
struct Cancelled<'a> {
    error: &'a str,
    code: &'static str,
}

/// What a repeated report is recognised by. Artifacts and usage do not count: the output names the artifacts already.
pub(crate) fn digest_of(outcome: &Outcome) -> Digest {
    let mut hasher = blake3::Hasher::new();
    match outcome {
        Outcome::Completed { output, artifacts: _ } => hasher.update(b"completed\0").update(output.get().as_bytes()),
        Outcome::Failed { code: _, result } => hasher.update(b"failed\0").update(result.get().as_bytes()),
    };
    let mut digest = [0; 16];
    digest.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Digest(digest)
}

/// The result of a run that the rules themselves failed.
pub(crate) fn failed_by_rule(code: FailureCode) -> Json {
    Json::of(&Failure { error: code.message().to_owned(), code, native_code: None })
}

/// The result of a run that a quota ended.
pub(crate) fn failed_by_quota(exceeded: &Exceeded) -> Json {
    Json::of(&Failure { error: exceeded.to_string(), code: FailureCode::QuotaExceeded, native_code: None })
}

/// The result of a run whose row in the store cannot be read.
pub(crate) fn damaged() -> Json {
    let error = "The hub's record of this run is damaged, so it cannot go on.".to_owned();
    Json::of(&Failure { error, code: FailureCode::TaskFailed, native_code: Some("damaged_record".to_owned()) })
}

/// The result of a run whose limits the worker that would have claimed it does not enforce.
pub(crate) fn refused_for_limits(unmet: &str) -> Json {
    let error = format!(
        "the run asks for limits that nothing on this agent's device enforces ({unmet}), so nothing was started; ask without \
         them, or send the task to an agent that enforces them"
    );
    Json::of(&Failure { error, code: FailureCode::Refused, native_code: None })
}

/// The result of a cancelled run: `{"error":"cancelled"|reason,"code":"cancelled"}`.
pub(crate) fn cancelled(reason: Option<&str>) -> Json {
    Json::of(&Cancelled { error: reason.unwrap_or("cancelled"), code: "cancelled" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_with_the_same_text_differ_by_kind() {
        let text = Json::from_text(r#"{"error":"x"}"#).unwrap();
        let completed = digest_of(&Outcome::Completed { output: text.clone(), artifacts: Vec::new() });
        let failed = digest_of(&Outcome::Failed { code: FailureCode::TaskFailed, result: text });
        assert_ne!(completed, failed);
        assert_eq!(completed.0[..], blake3::hash(b"completed\0{\"error\":\"x\"}").as_bytes()[..16]);
    }

    #[test]
    fn results_read_as_documented() {
        assert_eq!(
            failed_by_rule(FailureCode::Expired).get(),
            r#"{"error":"No device claimed the run before it expired.","code":"expired"}"#
        );
        assert_eq!(cancelled(None).get(), r#"{"error":"cancelled","code":"cancelled"}"#);
        assert_eq!(cancelled(Some("no \"need\"")).get(), r#"{"error":"no \"need\"","code":"cancelled"}"#);
    }
}
