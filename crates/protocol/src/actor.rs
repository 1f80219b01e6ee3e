//! Who did something, as the log, runs, channels and decisions record it: `key:key_…`, `agent:agt_…`, `system`.

use std::{convert::Infallible, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{AgentId, GrantId, KeyId, RunId, RuntimeId, UserId};

macro_rules! actors {
    ($($(#[$doc:meta])* $name:ident($id:ident) = $kind:literal;)*) => {
        /// Who did something.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Actor {
            /// The hub itself.
            System,
            /// All callers without a credential.
            Anonymous,
            $($(#[$doc])* $name($id),)*
            /// Text that names no actor this build knows. Kept as it is.
            Other(String),
        }

        impl Actor {
            /// The one reader. Every text is the text of exactly one actor.
            fn read(text: &str) -> Self {
                match text.split_once(':') {
                    None if text == SYSTEM => Self::System,
                    None if text == ANONYMOUS => Self::Anonymous,
                    $(Some(($kind, id)) if is_canonical(id) => {
                        id.parse().map_or_else(|_| Self::Other(text.to_owned()), Self::$name)
                    })*
                    Some(_) | None => Self::Other(text.to_owned()),
                }
            }

            /// The actor with this id, whose prefix tells what it is.
            pub fn with_id(id: &str) -> Option<Self> {
                None$(.or_else(|| id.parse().ok().map(Self::$name)))*
            }
        }

        impl fmt::Display for Actor {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::System => f.write_str(SYSTEM),
                    Self::Anonymous => f.write_str(ANONYMOUS),
                    $(Self::$name(id) => write!(f, concat!($kind, ":{}"), id),)*
                    Self::Other(text) => f.write_str(text),
                }
            }
        }
    };
}

const SYSTEM: &str = "system";
const ANONYMOUS: &str = "anonymous";

actors! {
    /// A person, by key or console session.
    Key(KeyId) = "key";
    /// A person, with any of their keys. Owns what they open or publish.
    User(UserId) = "user";
    /// A device.
    Runtime(RuntimeId) = "runtime";
    /// An agent with its own key.
    Agent(AgentId) = "agent";
    /// An agent with the token of the run it works on.
    Run(RunId) = "run";
    /// A standing grant.
    Grant(GrantId) = "grant";
}

/// Ids have one spelling here, so that no two texts are the same actor.
fn is_canonical(id: &str) -> bool {
    let digits = id.len().checked_sub(32).and_then(|start| id.as_bytes().get(start..));
    digits.is_some_and(|digits| digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

// === impl Actor ===

impl FromStr for Actor {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::read(text))
    }
}

impl From<&str> for Actor {
    fn from(text: &str) -> Self {
        Self::read(text)
    }
}

impl From<String> for Actor {
    fn from(text: String) -> Self {
        Self::read(&text)
    }
}

impl From<&Self> for Actor {
    fn from(actor: &Self) -> Self {
        actor.clone()
    }
}

impl Serialize for Actor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Actor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer).map(|text| Self::read(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_one_actor() {
        let id = "0123456789abcdef0123456789abcdef";
        let known = [
            ("system".to_owned(), Actor::System),
            ("anonymous".to_owned(), Actor::Anonymous),
            (format!("key:key_{id}"), Actor::Key(format!("key_{id}").parse().unwrap())),
            (format!("user:usr_{id}"), Actor::User(format!("usr_{id}").parse().unwrap())),
            (format!("runtime:rtm_{id}"), Actor::Runtime(format!("rtm_{id}").parse().unwrap())),
            (format!("agent:agt_{id}"), Actor::Agent(format!("agt_{id}").parse().unwrap())),
            (format!("run:run_{id}"), Actor::Run(format!("run_{id}").parse().unwrap())),
            (format!("grant:gnt_{id}"), Actor::Grant(format!("gnt_{id}").parse().unwrap())),
        ];
        for (text, actor) in known {
            assert_eq!(Actor::from(text.as_str()), actor);
            assert_eq!(actor.to_string(), text);
        }
        let hyphens = "01234567-89ab-cdef-0123-456789abcdef";
        for other in [
            String::new(),
            "key:".to_owned(),
            "user:日本".to_owned(),
            "System".to_owned(),
            format!("agent:key_{id}"),
            format!("agt_{id}"),
            format!("key:key_{}", id.to_uppercase()),
            format!("key:key_{hyphens}"),
            format!("key:key_{id} "),
        ] {
            assert_eq!(Actor::from(other.as_str()), Actor::Other(other.clone()));
            assert_eq!(Actor::from(other.as_str()).to_string(), other);
        }
        assert_eq!(Actor::with_id(&format!("rtm_{id}")), Some(Actor::Runtime(format!("rtm_{id}").parse().unwrap())));
        assert_eq!(Actor::with_id("rtm_x"), None);
    }
}
