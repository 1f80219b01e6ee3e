//! The members of a JSON object in their original order and text, including duplicates.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap as _};

use super::Json;

#[derive(Debug)]
pub struct Members<K = String, V = Json>(pub Vec<(K, V)>);

// === impl Members ===

impl Members {
    /// The member's value. The last one wins among duplicates, as in most JSON parsers.
    pub fn find(&self, name: &str) -> Option<&Json> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// A member that is a string.
    pub fn text(&self, name: &str) -> Option<String> {
        self.find(name)?.parse().ok()
    }

    /// Whether all names are distinct. With duplicates, JSON parsers disagree about the object.
    pub fn are_distinct(&self) -> bool {
        let mut names: Vec<_> = self.0.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.windows(2).all(|pair| pair[0] != pair[1])
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Members<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor<K, V>(PhantomData<(K, V)>);
        impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> de::Visitor<'de> for MembersVisitor<K, V> {
            type Value = Members<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor(PhantomData))
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_their_bytes() {
        let text = r#"{"z":1.0,"a":{"n":9007199254740993},"m":[1e400]}"#;
        let members: Members = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&members).unwrap(), text);
        assert!(members.are_distinct());
    }

    #[test]
    fn the_last_of_duplicate_names_is_found() {
        let members: Members = serde_json::from_str(r#"{"a":"one","a":"two"}"#).unwrap();
        assert_eq!((members.text("a").as_deref(), members.are_distinct()), (Some("two"), false));
    }
}
