//! Classifies a host's failure text: model unreachable, account out of quota, or not signed in. Pure.

use super::TurnVerdict;

/// Phrases used by networks, model providers and the libraries hosts reach them with.
const OUTAGE_PHRASES: &[&str] = &[
    "econnrefused",
    "econnreset",
    "enotfound",
    "etimedout",
    "eai_again",
    "ehostunreach",
    "socket hang up",
    "fetch failed",
    "connection refused",
    "connection error",
    "connection reset",
    "unable to connect",
    "could not connect",
    "cannot connect to api",
    "failed to connect",
    "network error",
    "getaddrinfo",
    "dns error",
    "error sending request",
    "bad gateway",
    "service unavailable",
    "gateway timeout",
    "internal server error",
    "overloaded",
    "cannot be reached",
    "model unreachable",
    "api call failed",
];

/// HTTP statuses that mean "not now". They only count next to a word that marks them as statuses.
const STATUSES: &[&str] = &["500", "502", "503", "504", "529"];
const STATUS_WORDS: &[&str] = &["api error", "status", "http", "error code", "got status"];

/// Phrases for an account that is out of quota.
const LIMIT_PHRASES: &[&str] = &[
    "usage limit",
    "usage_limit",
    "rate limit",
    "rate_limit",
    "rate-limit",
    "too many requests",
    "quota exceeded",
    "exceeded your current quota",
    "insufficient_quota",
    "resource_exhausted",
    "resource has been exhausted",
    "hit your limit",
    "limit reached",
    "out of credits",
    "credit balance is too low",
];
const LIMIT_STATUSES: &[&str] = &["429", "402"];

/// Phrases for rejected or missing credentials.
const SIGN_IN_PHRASES: &[&str] = &[
    "please run /login",
    "not logged in",
    "not signed in",
    "invalid api key",
    "incorrect api key",
    "api key not valid",
    "invalid_api_key",
    "authentication_error",
    "unauthenticated",
    "oauth token has expired",
];
const SIGN_IN_STATUSES: &[&str] = &["401", "403"];

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostFailureCause {
    SignIn,
    Limit,
    Outage,
}

pub(crate) fn failure_cause(text: &str) -> Option<HostFailureCause> {
    let text = text.to_lowercase();
    let has = |signs: &[&str], statuses: &[&str]| {
        let number = |wanted: &&str| text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == *wanted);
        signs.iter().any(|sign| text.contains(sign))
            || (STATUS_WORDS.iter().any(|word| text.contains(word)) && statuses.iter().any(number))
    };
    if has(LIMIT_PHRASES, LIMIT_STATUSES) {
        Some(HostFailureCause::Limit)
    } else if has(SIGN_IN_PHRASES, SIGN_IN_STATUSES) {
        Some(HostFailureCause::SignIn)
    } else {
        has(OUTAGE_PHRASES, STATUSES).then_some(HostFailureCause::Outage)
    }
}

/// The verdict for a failure, based on its text.
pub(crate) fn verdict(said: &str, message: String) -> TurnVerdict {
    match failure_cause(said) {
        Some(HostFailureCause::SignIn) => TurnVerdict::SignIn { message },
        Some(HostFailureCause::Limit) => TurnVerdict::UsageLimit { message, resets_at: None },
        Some(HostFailureCause::Outage) => TurnVerdict::ModelUnreachable { message },
        None => TurnVerdict::Failed { message },
    }
}

/// Prefixes of answers that are really failures.
const FAILURE_PREFIXES: &[&str] = &["api call failed", "api error"];

/// Some hosts exit normally although their model was unreachable.
pub(crate) fn reclassify_failure(verdict: TurnVerdict, answer: &str) -> TurnVerdict {
    match verdict {
        TurnVerdict::Done { .. } if is_only_failure(answer) => verdict_of(answer.trim()),
        other => other,
    }
}

fn verdict_of(message: &str) -> TurnVerdict {
    verdict(message, message.to_owned())
}

/// Whether an answer is nothing but such a failure. An answer that merely discusses one isn't.
fn is_only_failure(answer: &str) -> bool {
    let answer = answer.trim().to_lowercase();
    answer.lines().count() == 1
        && FAILURE_PREFIXES.iter().any(|words| answer.starts_with(words))
        && failure_cause(&answer).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_phrases_for_an_unreachable_model_are_recognized() {
        let away = [
            "exception TypeError: fetch failed sending request",
            "API Error: 529 {\"type\":\"error\"}",
            "connect ECONNREFUSED 127.0.0.1:9",
            "Error code: 503 - upstream",
            "API call failed after 3 retries: Connection error.",
            "got status: 500 Internal Server Error",
        ];
        for text in away {
            assert_eq!(failure_cause(text), Some(HostFailureCause::Outage), "{text}");
        }
        let limits = [
            "RESOURCE_EXHAUSTED: Too Many Requests",
            "API Error: Request rejected (429)",
            "You've hit your usage limit. Try again at 3 pm.",
            "Error code: 429 - insufficient_quota",
        ];
        for text in limits {
            assert_eq!(failure_cause(text), Some(HostFailureCause::Limit), "{text}");
        }
        for text in ["Invalid API key · Please run /login", "unexpected status 401 Unauthorized", "HTTP 403"] {
            assert_eq!(failure_cause(text), Some(HostFailureCause::SignIn), "{text}");
        }
        for text in ["the file has 500 lines", "status: done", "tool not found: http500x", "it has 401 users", ""] {
            assert_eq!(failure_cause(text), None, "{text}");
        }
    }

    #[test]
    fn a_failure_is_distinguished_from_an_answer_about_failures() {
        assert!(is_only_failure("API call failed after 3 retries: Connection error."));
        for answer in
            ["A connection error means that nobody listens.", "API errors are rare\nConnection error", "fine", ""]
        {
            assert!(!is_only_failure(answer), "{answer}");
        }
    }
}
