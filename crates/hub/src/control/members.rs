//! An object's members in their order, each kept byte for byte.

use std::fmt;

use attache_protocol::Json;
use serde::{Deserialize, Deserializer, de};

pub(crate) struct Members(pub(crate) Vec<(String, Json)>);

// === impl Members ===

impl Members {
    /// The member's value; of several with the same name the last one, as most readers of JSON have it.
    pub(crate) fn find(&self, name: &str) -> Option<&Json> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// A member that is a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.find(name)?.parse().ok()
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> std::result::Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}
