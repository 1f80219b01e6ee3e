//! Immediate replies to a peer: responses, refusals that name the field, and notices.

use attache_protocol::{
    Code, Json,
    wire::{
        envelope::{Envelope, EnvelopeHeader, EnvelopeMetadata, FrameError, FrameRefusalBody, FrameType},
        run::Run,
    },
};

use crate::{Error, Handle};

/// The hub's name in frames.
pub(super) const HUB: &str = "hub";
/// A peer that has not registered yet.
pub(super) const UNNAMED_PEER: &str = "peer";

/// Why a frame was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrameRefusal {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: String,
    pub(crate) field: Option<String>,
    pub(crate) run: Option<Box<Run>>,
}

/// A frame to be written.
#[derive(Debug)]
pub(super) struct FrameDraft<'a> {
    pub(super) kind: FrameType,
    /// A new id, unless the frame must be recognised when repeated.
    pub(super) msg_id: Option<String>,
    pub(super) parent: Option<&'a str>,
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    pub(super) seq: Option<i64>,
    pub(super) metadata: Option<EnvelopeMetadata>,
    pub(super) payload: Json,
}

// === impl FrameRefusal ===

impl FrameRefusal {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code.as_str(), message: message.into(), hint: code.hint().to_owned(), field: None, run: None }
    }

    /// A member of the frame is invalid.
    pub(crate) fn wrong(field: &str, why: &str) -> Self {
        Self::new(Code::InvalidFrame, format!("`{field}` {why}.")).field(field)
    }

    pub(crate) fn missing(field: &str) -> Self {
        Self::wrong(field, "is missing")
    }

    #[must_use]
    pub(crate) fn field(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    /// Translates a member of an action to its place in the frame.
    #[must_use]
    pub(super) fn rename(mut self, from: &str, to: &str) -> Self {
        let below = self.field.as_deref().and_then(|field| field.strip_prefix(from));
        if let Some(below) = below.filter(|below| below.is_empty() || below.starts_with('.')) {
            let field = format!("{to}{below}");
            self.message = self.message.replacen(from.trim_start_matches("payload."), to, 1);
            self.field = Some(field);
        }
        self
    }

    /// Whether the refusal is permanent, that is, not caused by a temporary condition.
    pub(super) fn is_final(&self) -> bool {
        match Code::from_text(self.code) {
            Some(Code::NotRegistered | Code::Unauthenticated | Code::TooManyRequests) => false,
            Some(code) => code.http_status() < 500,
            None => true,
        }
    }

    /// The `error` member of a response.
    pub(crate) fn body(&self) -> FrameRefusalBody {
        FrameRefusalBody {
            code: self.code.to_owned(),
            message: self.message.clone(),
            hint: Some(self.hint.clone()),
            field: self.field.clone(),
            task_run: self.run.as_ref().map(|run| Json::of(&**run)),
        }
    }
}

impl From<FrameError> for FrameRefusal {
    fn from(error: FrameError) -> Self {
        Self { field: error.field, ..Self::new(error.code, error.message) }
    }
}

impl From<Error> for FrameRefusal {
    fn from(error: Error) -> Self {
        let field = error.field.map(|field| format!("payload.{}", field.field));
        let hint = error.hint.as_deref().unwrap_or(error.code.hint()).to_owned();
        Self { code: error.code.as_str(), message: error.message.into_owned(), hint, field, run: error.run }
    }
}

// === impl FrameDraft ===

impl<'a> FrameDraft<'a> {
    pub(super) fn new(kind: FrameType, to: &'a str, payload: Json) -> Self {
        Self { kind, msg_id: None, parent: None, from: HUB, to, seq: None, metadata: None, payload }
    }

    pub(super) fn text(self, hub: &Handle) -> String {
        let envelope = Envelope {
            header: EnvelopeHeader {
                msg_id: self.msg_id.unwrap_or_else(|| hub.env().uuid().to_string()),
                parent_id: self.parent.map(str::to_owned),
                kind: self.kind,
                from: self.from.to_owned(),
                to: self.to.to_owned(),
                timestamp: hub.now().millis().div_euclid(1000),
                seq: self.seq,
            },
            metadata: self.metadata,
            payload: self.payload,
        };
        envelope.to_text()
    }
}

/// `{"action","ok":true,…}` with the members of an object.
pub(super) fn yes(action: &str, members: &Json) -> Json {
    let rest = members.get().strip_prefix('{').unwrap_or("}");
    let comma = if rest.trim_start() == "}" { "" } else { "," };
    Json::from_text(format!(r#"{{"action":"{action}","ok":true{comma}{rest}"#)).expect("an object stays one")
}

/// `{"action","ok":true}` for an action that may be unknown.
pub(super) fn done(action: Option<&str>) -> Json {
    Json::from_text(format!(r#"{{"action":{},"ok":true}}"#, Json::of(&action).get()))
        .expect("an object of JSON is JSON")
}

/// `{"action","ok":false,"error"}`.
pub(super) fn no(action: Option<&str>, refusal: &FrameRefusal) -> Json {
    let (action, error) = (Json::of(&action), Json::of(&refusal.body()));
    Json::from_text(format!(r#"{{"action":{},"ok":false,"error":{}}}"#, action.get(), error.get()))
        .expect("an object of JSON is JSON")
}

/// An object with an action and members that are already JSON.
pub(super) fn object(action: &str, members: &[(&str, &str)]) -> Json {
    let mut text = format!(r#"{{"action":"{action}""#);
    for (name, value) in members {
        text.push_str(",\"");
        text.push_str(name);
        text.push_str("\":");
        text.push_str(value);
    }
    text.push('}');
    Json::from_text(text).expect("an object of JSON is JSON")
}

/// A response as text, for a caller without a channel.
pub(crate) fn yes_text(hub: &Handle, parent: &str, payload: Json) -> String {
    FrameDraft { parent: Some(parent), ..FrameDraft::new(FrameType::Response, UNNAMED_PEER, payload) }.text(hub)
}

/// A refusal as text.
pub(crate) fn refusal_text(hub: &Handle, action: Option<&str>, parent: Option<&str>, refusal: &FrameRefusal) -> String {
    FrameDraft { parent, ..FrameDraft::new(FrameType::Response, UNNAMED_PEER, no(action, refusal)) }.text(hub)
}
