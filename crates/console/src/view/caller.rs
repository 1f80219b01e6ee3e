//! Who did something, as the log names them: `kind:id`.

use crate::text::Text;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) kind: String,
    pub(crate) id: String,
}

// === impl Caller ===

impl Caller {
    pub(crate) fn of(actor: &str, t: &Text) -> Self {
        let (kind, id) = actor.split_once(':').unwrap_or((actor, ""));
        let kind = match kind {
            "key" => t.caller_key,
            "session" => t.caller_session,
            "runtime" => t.caller_runtime,
            "system" => t.caller_system,
            other => other,
        };
        Self { kind: kind.to_owned(), id: tail(id) }
    }
}

/// `key_…3f2c`: the end of an id tells it from others; the beginning is mostly its time.
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

/// `run_019a8547…3f2c`: enough to recognise an id, short enough for a row.
pub(crate) fn short(id: &str) -> String {
    let characters = id.chars().count();
    if characters <= 20 {
        return id.to_owned();
    }
    let start: String = id.chars().take(12).collect();
    let end: String = id.chars().skip(characters - 4).collect();
    format!("{start}…{end}")
}
