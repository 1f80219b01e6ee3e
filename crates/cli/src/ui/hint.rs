//! Says in commands and options what the hints of the API say in requests.

use attache_client::HubRefusal;
use attache_protocol::{Code, error::Remedy};

/// The hint of a refusal for command-line users.
pub(crate) fn of(refusal: &HubRefusal) -> String {
    match refusal.remedy {
        // Whatever was wrong with the credential, the next step is the same.
        _ if refusal.code == Code::Unauthenticated => general(refusal.code).to_owned(),
        Some(remedy) => command(remedy).to_owned(),
        None if refusal.hint == refusal.code.hint() => general(refusal.code).to_owned(),
        None => refusal.hint.clone(),
    }
}

/// The default hint of a code. The error message already states the problem.
pub(crate) const fn general(code: Code) -> &'static str {
    match code {
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

const fn command(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::UseDeviceToken => "Only paired devices can do this: `attache runtime start`.",
        Remedy::UsePersonKey => "Use a person's key: --key-file FILE or ATTACHE_KEY.",
        Remedy::CreateToken => "Get a new one with a key: `attache tokens`.",
        Remedy::CreateLoginLink => "Create a new one with `attache login`.",
        Remedy::NameAgent | Remedy::ChooseAgent => "Name the agent: attache ask AGENT \"…\"",
        Remedy::NameOrCreateAgent => "Name the agent: attache ask AGENT \"…\", or create an agent with this name.",
        Remedy::CreateAgent => "Add one: attache agents add NAME",
        Remedy::RegisterAgain => "Register the agent again: attache agents register NAME",
        Remedy::OmitCallback => "Omit --callback.",
        Remedy::RaiseBudget => "Give the first run a larger budget: --cost or --tokens.",
    }
}

#[cfg(test)]
mod tests {
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
