//! The envelope: the frame of a channel, as text, in both directions.
//!
//! A frame is read member by member, so that a refusal names the member that is wrong; `payload` and whatever is relayed
//! inside it stay byte for byte as they came. Unknown members are ignored.

mod action;
mod hub_frame;
mod object;

use std::fmt;

use serde::{Serialize, Serializer};

pub use action::{
    Ack, Action, CallTool, Cancel, Chunk, Done, Drain, Execute, Extend, Fail, FrameToken, Input, Log, Message,
    Progress, Ready, Register, Release, RequireApproval, RequireInput, ResponsePayload, Resume, Think,
};
pub use hub_frame::{
    ApprovalResponse, CancelFrame, ExecuteFrame, FrameRefusalBody, HubFrame, InputFrame, RegisterResponse,
    ResumeRepair, ResumeResponse,
};
pub use object::FrameObject;

use crate::{Code, Json, Secret, json, secret::mask};

/// The WebSocket subprotocol of envelopes on `/api/a2a/connect`.
pub const SUBPROTOCOL: &str = "attache.envelope.v1";

/// A larger frame is refused: large things travel as artifacts.
pub const MAX_FRAME: usize = 1 << 20;

const MAX_NAME: usize = 200;

#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    pub header: EnvelopeHeader,
    pub metadata: Option<EnvelopeMetadata>,
    /// An object whose `action` says what is meant.
    pub payload: Json,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnvelopeHeader {
    pub msg_id: String,
    /// Of a response: the request's `msg_id`. Of an event: the `msg_id` of the request that made the run.
    pub parent_id: Option<String>,
    #[serde(rename = "type")]
    pub kind: FrameType,
    pub from: String,
    pub to: String,
    /// Unix seconds.
    pub timestamp: i64,
    /// Of a frame that must survive: its place among the sender's frames of this channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameType {
    Request,
    Response,
    Notification,
    Chunk,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct EnvelopeMetadata {
    pub trace_id: Option<String>,
    /// How many more hops the work may take.
    pub ttl: Option<i64>,
    /// `bearer …`
    pub auth_token: Option<Secret<String>>,
}

/// Why a frame cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct FrameError {
    pub code: Code,
    pub message: String,
    /// The member that is wrong, for example `header.msg_id`.
    pub field: Option<String>,
    /// Of the frame, if that much could be read.
    pub msg_id: Option<String>,
}

// === impl Envelope ===

impl Envelope {
    /// Never panics, whatever the text.
    pub fn parse(text: &str) -> Result<Self, FrameError> {
        if text.len() > MAX_FRAME {
            return Err(FrameError::new(
                Code::TooLarge,
                None,
                "A frame is at most 1 MiB. Upload what is larger as an artifact and send its id.",
            ));
        }
        Self::parse_of_any_size(text)
    }

    /// For a peer of the hub: an `execute` may be larger, because it carries its input twice.
    pub fn parse_of_any_size(text: &str) -> Result<Self, FrameError> {
        if json::depth(text.as_bytes()) > json::MAX_DEPTH {
            let message = format!("The frame nests deeper than {} levels.", json::MAX_DEPTH);
            return Err(FrameError::new(Code::TooDeep, None, message));
        }
        let frame = FrameObject::read("", text)?;
        let header = frame.object("header")?;
        let header = header.ok_or_else(|| FrameError::missing("header"))?;
        // A frame whose name can be read is answered by that name, whatever else is wrong with it.
        let msg_id = header.name("msg_id", MAX_NAME)?.ok_or_else(|| FrameError::missing("header.msg_id"))?;
        if !msg_id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(FrameError::wrong("header.msg_id", "must be printable ASCII without blanks"));
        }
        Self::read(&frame, &header, &msg_id).map_err(|error| FrameError { msg_id: Some(msg_id), ..error })
    }

    fn read(frame: &FrameObject<'_>, header: &FrameObject<'_>, msg_id: &str) -> Result<Self, FrameError> {
        let kind = header.required::<String>("type")?;
        let kind = FrameType::from_text(&kind).ok_or_else(|| {
            FrameError::wrong("header.type", "must be `request`, `response`, `notification` or `chunk`")
        })?;
        let seq = header.optional::<i64>("seq")?;
        if seq.is_some_and(|seq| seq < 1) {
            return Err(FrameError::wrong("header.seq", "must be 1 or more"));
        }
        let header = EnvelopeHeader {
            msg_id: msg_id.to_owned(),
            parent_id: header.name("parent_id", MAX_NAME)?,
            kind,
            from: party(header, "from")?,
            to: party(header, "to")?,
            timestamp: header.seconds("timestamp")?,
            seq,
        };
        let metadata = match frame.object("metadata")? {
            None => None,
            Some(metadata) => Some(EnvelopeMetadata {
                trace_id: metadata.name("trace_id", MAX_NAME)?,
                ttl: metadata.optional("ttl")?,
                auth_token: metadata.optional::<Secret<String>>("auth_token")?,
            }),
        };
        let payload = frame.required::<Json>("payload")?;
        if !payload.is_object() {
            return Err(FrameError::wrong("payload", "must be a JSON object"));
        }
        Ok(Self { header, metadata, payload })
    }

    pub fn to_text(&self) -> String {
        #[derive(Serialize)]
        struct OutgoingEnvelope<'a> {
            header: &'a EnvelopeHeader,
            #[serde(skip_serializing_if = "Option::is_none")]
            metadata: Option<PrintedMetadata<'a>>,
            payload: &'a Json,
        }
        #[derive(Serialize)]
        struct PrintedMetadata<'a> {
            trace_id: Option<&'a str>,
            ttl: Option<i64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            auth_token: Option<&'a str>,
        }
        let metadata = self.metadata.as_ref().map(|metadata| PrintedMetadata {
            trace_id: metadata.trace_id.as_deref(),
            ttl: metadata.ttl,
            auth_token: metadata.auth_token.as_ref().map(|token| token.expose().as_str()),
        });
        let frame = OutgoingEnvelope { header: &self.header, metadata, payload: &self.payload };
        serde_json::to_string(&frame).expect("our own types serialise to JSON")
    }

    /// `payload.action`, if it is a string.
    pub fn action(&self) -> Option<String> {
        FrameObject::read("payload", self.payload.get()).ok()?.optional("action").ok()?
    }

    pub fn trace_id(&self) -> Option<&str> {
        self.metadata.as_ref()?.trace_id.as_deref()
    }

    pub fn ttl(&self) -> Option<i64> {
        self.metadata.as_ref()?.ttl
    }

    /// The frame's own credential, without its scheme.
    pub fn auth_token(&self) -> Option<Secret<String>> {
        let token = self.metadata.as_ref()?.auth_token.as_ref()?.expose().trim();
        let bare = match token.split_once(' ') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => rest.trim(),
            Some(_) | None => token,
        };
        Some(Secret::new(bare.to_owned()))
    }
}

/// Who a frame is from or for, as far as the sender knows: a peer has no name before it is registered.
fn party(header: &FrameObject<'_>, name: &str) -> Result<String, FrameError> {
    match header.optional::<String>(name)? {
        Some(party) if party.is_empty() => Ok(party),
        _ => Ok(header.name(name, MAX_NAME)?.unwrap_or_default()),
    }
}

// === impl FrameType ===

impl FrameType {
    pub const ALL: [Self; 4] = [Self::Request, Self::Response, Self::Notification, Self::Chunk];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Notification => "notification",
            Self::Chunk => "chunk",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl Serialize for FrameType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

// === impl FrameError ===

impl FrameError {
    pub fn new(code: Code, field: Option<&str>, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: field.map(str::to_owned), msg_id: None }
    }

    pub fn missing(field: &str) -> Self {
        Self::wrong(field, "is missing")
    }

    pub fn wrong(field: &str, why: impl fmt::Display) -> Self {
        let shown = mask(field);
        Self::new(Code::InvalidFrame, Some(&shown), format!("`{shown}` {}.", mask(&why.to_string())))
    }
}

#[cfg(test)]
mod tests;
