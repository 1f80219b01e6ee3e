//! The next step for people at a command line: what the API tells programs, in terms of commands and options.

use attache_protocol::Code;

use crate::CommandFailure;

/// What the API says, and what a person who typed a command needs to know instead.
const PHRASES: &[(&str, &str)] = &[
    ("Send the runtime's token as `X-Runtime-Token: rt_…`.", "This is for paired devices: `attache runtime start`."),
    ("Use a person's key: `Authorization: Bearer ak_…`.", "Use a person's key: --key-file FILE or ATTACHE_KEY."),
    ("Get a new one with a key: POST /api/v1/tokens.", "Get a new one with a key: `attache tokens`."),
    (", or POST /api/v1/login-links with an owner's key.", "."),
    ("Say which agent you mean with `agent_type`", "Name the agent: attache ask AGENT \"…\""),
    ("Say which one you mean by its name, as `agent_type`.", "Name the one that you mean: attache ask AGENT \"…\""),
    ("Make one in the console, or with POST /api/a2a/register.", "Add one: attache agents add NAME"),
    ("Register the agent again: POST /api/a2a/register.", "Register the agent again: attache agents register NAME"),
    ("Leave `callback_url` out; watch the run, or ask for its result.", "Leave --callback out."),
    ("Give the first run a larger `budget`.", "Give the first run a larger budget: --cost or --tokens."),
];

/// The hint of a refusal, for somebody who sees commands and no requests.
pub(crate) fn for_people(code: Code, hint: &str) -> String {
    // The general hints speak about requests; the message says what is wrong with the command.
    let general = match code {
        Code::InvalidRequest => Some("See what the command takes with --help."),
        Code::InvalidJson | Code::UnsupportedType | Code::NoSuchPath | Code::MethodNotAllowed => {
            Some("The hub may be of another version than this program: `attache doctor` compares them.")
        }
        Code::NotFound => Some("Check the name or id; `attache agents` and `attache runs` list what there is."),
        Code::Forbidden => Some("Use a key whose role allows this (--key-file), or ask an owner."),
        Code::KeyReused => Some("Use another --idempotency-key, or none."),
        Code::TooLarge => Some("Send less at once, or upload it: attache artifacts put"),
        _ => None,
    };
    if let Some(general) = general.filter(|_| hint == code.hint()) {
        return general.to_owned();
    }
    PHRASES.iter().fold(hint.to_owned(), |text, (said, meant)| text.replace(said, meant))
}

/// Where a person was named, those that there are help on.
pub(crate) fn users(failure: CommandFailure) -> CommandFailure {
    if failure.code == Code::NotFound.as_str() {
        return failure
            .hint("Check the name or id; `attache users` lists whom there is, and `attache agents` the agents.");
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hint_speaks_of_requests() {
        assert_eq!(
            for_people(Code::Forbidden, Code::Forbidden.hint()),
            "Use a key whose role allows this (--key-file), or ask an owner."
        );
        assert_eq!(for_people(Code::Forbidden, "Ask its owner or an admin."), "Ask its owner or an admin.");
        for (said, _) in PHRASES {
            let shown = for_people(Code::Internal, said);
            for foreign in ["POST ", "Authorization", "X-Runtime-Token", "agent_type", "callback_url", "`budget`"] {
                assert!(!shown.contains(foreign), "{shown}");
            }
        }
    }
}
