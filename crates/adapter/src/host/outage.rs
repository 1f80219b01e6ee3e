//! Whether what a host says about a failure means that its model cannot be reached. Pure.

use super::Verdict;

/// Words of the network, of model providers, and of the libraries that hosts reach them with.
const SIGNS: &[&str] = &[
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
    "too many requests",
    "rate limit",
    "rate_limit",
    "cannot be reached",
    "model unreachable",
    "api call failed",
];

/// Statuses of HTTP that mean "not now"; they count only beside a word that makes them statuses.
const STATUSES: &[&str] = &["429", "500", "502", "503", "504", "529"];
const STATUS_WORDS: &[&str] = &["api error", "status", "http", "error code", "got status"];

pub(crate) fn is_outage(text: &str) -> bool {
    let text = text.to_lowercase();
    let number = |wanted: &&str| text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == *wanted);
    SIGNS.iter().any(|sign| text.contains(sign))
        || (STATUS_WORDS.iter().any(|word| text.contains(word)) && STATUSES.iter().any(number))
}

/// How hosts begin that give such a failure out as their answer.
const CONFESSIONS: &[&str] = &["api call failed", "api error"];

/// Some hosts end in good order and say that there is no model.
pub(crate) fn honest(verdict: Verdict, answer: &str) -> Verdict {
    match verdict {
        Verdict::Done { .. } if is_all_there_is(answer) => {
            Verdict::ModelUnreachable { message: answer.trim().to_owned() }
        }
        verdict => verdict,
    }
}

/// Whether a whole answer is nothing but such a failure. An answer that only talks about one is none.
fn is_all_there_is(answer: &str) -> bool {
    let answer = answer.trim().to_lowercase();
    answer.lines().count() == 1 && CONFESSIONS.iter().any(|words| answer.starts_with(words)) && is_outage(&answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_say_of_a_model_that_is_away() {
        let away = [
            "exception TypeError: fetch failed sending request",
            "API Error: 529 {\"type\":\"error\"}",
            "connect ECONNREFUSED 127.0.0.1:9",
            "Error code: 503 - upstream",
            "API call failed after 3 retries: Connection error.",
            "got status: 500 Internal Server Error",
            "RESOURCE_EXHAUSTED: Too Many Requests",
        ];
        for text in away {
            assert!(is_outage(text), "{text}");
        }
        let other = ["the file has 500 lines", "Invalid API key", "status: done", "tool not found: http500x", ""];
        for text in other {
            assert!(!is_outage(text), "{text}");
        }
    }

    #[test]
    fn an_answer_that_is_a_failure_is_told_from_one_about_failures() {
        assert!(is_all_there_is("API call failed after 3 retries: Connection error."));
        for answer in
            ["A connection error means that nobody listens.", "API errors are rare\nConnection error", "fine", ""]
        {
            assert!(!is_all_there_is(answer), "{answer}");
        }
    }
}
