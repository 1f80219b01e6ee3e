//! Says in commands and options what the hints of the API say in requests.

use attache_client::HubRefusal;
use attache_protocol::Code;

use crate::text::{is_chinese, refusals};

/// The message of a refusal: the hub's words, or the sentence for its code.
pub(crate) fn message(refusal: &HubRefusal) -> String {
    message_of(refusal.code, refusal.message.trim_end_matches('.'))
}

pub(crate) fn message_of(code: Code, words: &str) -> String {
    if is_chinese() { refusals::message(code, words) } else { words.to_owned() }
}

/// The hint of an error in the hub's own process.
pub(crate) fn of_code(code: Code, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => hint.to_owned(),
        None if is_chinese() => refusals::hint(code).to_owned(),
        None => code.hint().to_owned(),
    }
}

/// The hint of a refusal for command-line users.
pub(crate) fn of(refusal: &HubRefusal) -> String {
    match refusal.remedy {
        // Whatever was wrong with the credential, the next step is the same.
        _ if refusal.code == Code::Unauthenticated => general(refusal.code).to_owned(),
        Some(remedy) => refusals::remedy(remedy).to_owned(),
        None if refusal.hint == refusal.code.hint() => general(refusal.code).to_owned(),
        None => refusal.hint.clone(),
    }
}

/// The hint of a refusal of the daemon, which says commands itself.
pub(crate) fn of_daemon(refusal: &HubRefusal) -> String {
    if refusal.hint == refusal.code.hint() && is_chinese() {
        return refusals::hint(refusal.code).to_owned();
    }
    refusal.hint.clone()
}

/// The default hint of a code. The error message already states the problem.
pub(crate) fn general(code: Code) -> &'static str {
    match code {
        _ if is_chinese() => refusals::hint(code),
        Code::InvalidRequest => "See the command's --help.",
        Code::InvalidJson | Code::UnsupportedType | Code::NoSuchPath | Code::MethodNotAllowed => {
            "The hub may have a different version than this program. Check with `attache doctor`."
        }
        Code::Unauthenticated => {
            "Pass a key for this hub with --key-file FILE or ATTACHE_KEY. The owner key is `admin.key` in the hub's data folder."
        }
        Code::NotFound => {
            "Check the name or id. To list them: `attache agents`, `attache runs`, `attache conversations`, `attache users`."
        }
        Code::Forbidden => "Use a key whose role allows this (--key-file), or ask an owner.",
        Code::KeyReused => "Use another --idempotency-key, or omit it.",
        Code::TooLarge => {
            "Send less. A task can have files: attache ask AGENT \"…\" --file FILE. Anything else can be an artifact: attache artifacts put"
        }
        _ => code.hint(),
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::error::Remedy;

    use super::*;

    #[test]
    fn no_hint_mentions_requests() {
        let refusal = |code: Code, hint: &str, remedy| {
            let (message, hint) = (String::new(), hint.to_owned());
            of(&HubRefusal { code, message, hint, remedy, status: code.http_status(), conflict: None, decided: None })
        };
        assert_eq!(
            refusal(Code::Forbidden, Code::Forbidden.hint(), None),
            "Use a key whose role allows this (--key-file), or ask an owner."
        );
        assert_eq!(refusal(Code::Forbidden, "Ask its owner or an admin.", None), "Ask its owner or an admin.");
        for remedy in Remedy::ALL {
            let shown = refusal(Code::Forbidden, remedy.hint(), Some(remedy));
            for foreign in ["POST ", "Authorization", "X-Runtime-Token", "agent_type", "callback_url", "`budget`"] {
                assert!(!shown.contains(foreign), "{shown}");
            }
        }
    }
}
