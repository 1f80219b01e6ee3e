//! Actors of the log (`kind:id`) as display names.

use std::collections::BTreeMap;

use attache_protocol::Actor;

use crate::text::Text;

/// Display names by id or actor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) BTreeMap<String, String>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActorLabel {
    /// The name, or the kind of caller.
    pub(crate) who: String,
    /// The kind of caller if there is a name, or else the end of the id.
    pub(crate) detail: String,
    known: bool,
}

// === impl Names ===

impl Names {
    pub(crate) fn get(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }

    /// Replaces ids in JSON with names where known. The API has the ids.
    pub(crate) fn fill(&self, json: &str) -> String {
        let mut text = json.to_owned();
        for (id, name) in &self.0 {
            let name = serde_json::to_string(name).unwrap_or_default();
            text = text.replace(&format!("\"{id}\""), &name);
        }
        text
    }
}

/// The ids and actors in the data of a row that may have names.
pub(crate) fn mentioned(json: &str) -> impl Iterator<Item = String> {
    let kinds = ["rtm_", "agt_", "usr_", "key_"];
    let strings = json.split('"').skip(1).step_by(2).map(str::to_owned);
    strings.filter(move |text| kinds.iter().any(|kind| text.split(':').next_back().unwrap_or(text).starts_with(kind)))
}

// === impl ActorLabel ===

impl ActorLabel {
    /// `me` is the viewer's actor.
    pub(crate) fn of(actor: &str, me: &str, names: &Names, t: &Text) -> Self {
        let (kind, id) = match Actor::from(actor) {
            Actor::System => (t.caller_system, String::new()),
            Actor::Key(id) => (t.caller_key, id.to_string()),
            Actor::Runtime(id) => (t.caller_runtime, id.to_string()),
            Actor::Anonymous => (t.caller_anonymous, String::new()),
            Actor::User(id) => (t.caller_user, id.to_string()),
            Actor::Agent(id) => (t.caller_agent, id.to_string()),
            Actor::Run(id) => (t.caller_run, id.to_string()),
            Actor::Grant(id) => (t.caller_grant, id.to_string()),
            Actor::Other(_) => {
                let (kind, id) = actor.split_once(':').unwrap_or((actor, ""));
                (kind, id.to_owned())
            }
        };
        let name = if actor == me { Some(t.caller_you) } else { names.get(actor) };
        match name {
            Some(name) => Self { who: name.to_owned(), detail: kind.to_owned(), known: true },
            None => Self { who: kind.to_owned(), detail: tail(&id), known: false },
        }
    }

    /// For use in a sentence: the name, or else the kind and the short id.
    pub(crate) fn in_words(&self) -> String {
        if self.known || self.detail.is_empty() {
            return self.who.clone();
        }
        format!("{} {}", self.who, self.detail)
    }
}

/// `key_…3f2c`: only the end of an id, because the beginning is mostly a timestamp.
fn tail(id: &str) -> String {
    let characters = id.chars().count();
    match id.split_once('_') {
        Some((prefix, _)) if characters > 14 => {
            let end: String = id.chars().skip(characters - 6).collect();
            format!("{prefix}_…{end}")
        }
        _ => short(id),
    }
}

/// `run_019a8547…3f2c`: long enough to recognise, short enough for a row.
pub(crate) fn short(id: &str) -> String {
    let characters = id.chars().count();
    if characters <= 20 {
        return id.to_owned();
    }
    let start: String = id.chars().take(12).collect();
    let end: String = id.chars().skip(characters - 4).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn a_name_takes_precedence_over_an_id() {
        let t = Language::En.text();
        let key = |last: u8| format!("key:key_{last:032}");
        let names = Names([(key(1), "ada".to_owned())].into());
        let shown = |actor: &str| {
            let caller = ActorLabel::of(actor, &key(9), &names, t);
            (caller.who.clone(), caller.detail.clone(), caller.in_words())
        };
        let of = |who: &str, detail: &str, words: &str| (who.to_owned(), detail.to_owned(), words.to_owned());
        assert_eq!(shown(&key(1)), of("ada", "API key", "ada"));
        assert_eq!(shown(&key(9)), of("You", "API key", "You"));
        assert_eq!(shown(&key(2)), of("API key", "key_…000002", "API key key_…000002"));
        assert_eq!(shown("system"), of("Hub", "", "Hub"));
    }

    #[test]
    fn ids_in_data_are_found_and_named() {
        let json = r#"{"runtime_id":"rtm_1","reason":"a \"rtm_\" of old","by":"key:key_1","n":1}"#;
        let found: Vec<_> = mentioned(r#"{"runtime_id":"rtm_1","by":"key:key_1","n":1}"#).collect();
        assert_eq!(found, ["rtm_1", "key:key_1"]);
        let names = Names([("rtm_1".to_owned(), "my \"laptop\"".to_owned())].into());
        assert!(names.fill(json).starts_with(r#"{"runtime_id":"my \"laptop\"","#), "{}", names.fill(json));
    }
}
