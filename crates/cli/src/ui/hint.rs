//! Translates API hints, which mention requests, into hints that mention commands and options.

use attache_protocol::Code;

/// API phrases and their command-line equivalents.
const PHRASES: &[(&str, &str)] = &[
    (
        "Send the runtime's token as `X-Runtime-Token: rt_…`.",
        "Only paired devices can do this: `attache runtime start`.",
    ),
    ("Use a person's key: `Authorization: Bearer ak_…`.", "Use a person's key: --key-file FILE or ATTACHE_KEY."),
    ("Get a new one with a key: POST /api/v1/tokens.", "Get a new one with a key: `attache tokens`."),
    (", or POST /api/v1/login-links with an owner's key.", "."),
    ("Name an agent with `agent_type`", "Name the agent: attache ask AGENT \"…\""),
    ("Set `agent_type` to the name of one of them.", "Name the agent: attache ask AGENT \"…\""),
    ("Create one in the console or with POST /api/a2a/register.", "Add one: attache agents add NAME"),
    ("Register the agent again: POST /api/a2a/register.", "Register the agent again: attache agents register NAME"),
    ("Omit `callback_url`. Watch the run or poll for its result instead.", "Omit --callback."),
    ("Give the first run a larger `budget`.", "Give the first run a larger budget: --cost or --tokens."),
];

/// The hint of a refusal for command-line users.
pub(crate) fn for_people(code: Code, hint: &str) -> String {
    // General API hints mention requests; the error message already states the problem.
    let general = match code {
        Code::InvalidRequest => Some("See the command's --help."),
        Code::InvalidJson | Code::UnsupportedType | Code::NoSuchPath | Code::MethodNotAllowed => {
            Some("The hub may have a different version than this program. Check with `attache doctor`.")
        }
        Code::NotFound => Some("Check the name or id. To list them: `attache agents`, `attache runs`."),
        Code::Forbidden => Some("Use a key whose role allows this (--key-file), or ask an owner."),
        Code::KeyReused => Some("Use another --idempotency-key, or omit it."),
        Code::TooLarge => Some("Send less, or upload it as an artifact: attache artifacts put"),
        _ => None,
    };
    if let Some(general) = general.filter(|_| hint == code.hint()) {
        return general.to_owned();
    }
    PHRASES.iter().fold(hint.to_owned(), |text, (said, meant)| text.replace(said, meant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hint_mentions_requests() {
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
