//! The envelope: a channel's frame, as text, in both directions.
//!
//! A frame is parsed member by member, so that an error names the invalid member. `payload` and the data relayed in it
//! are kept byte for byte. Unknown members are ignored.

mod action;
mod hub_frame;
mod object;

use crate::text_enum;
use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

pub use action::{
    Ack, Action, CallTool, Cancel, Chunk, Done, Drain, Execute, Extend, Fail, FrameToken, Input, Log, Message,
    Progress, Ready, Register, Release, RequireApproval, RequireInput, ResponsePayload, Resume, Think,
};
pub use hub_frame::{
    ApprovalResponse, CancelFrame, ExecuteFrame, FrameRefusalBody, HubFrame, RegisterResponse, ResumeRepair,
    ResumeResponse, UnsolicitedInputFrame,
};
pub use object::FrameObject;

use crate::{Code, Json, Secret, json, secret::mask};

/// The WebSocket subprotocol of envelopes on `/api/a2a/connect`.
pub const SUBPROTOCOL: &str = "attache.envelope.v1";

/// Larger frames are rejected. Send large data as artifacts.
pub const MAX_FRAME: usize = 1 << 20;

const MAX_NAME: usize = 200;

#[derive(Debug, Clone, PartialEq, ToSchema)]
pub struct Envelope {
    pub header: EnvelopeHeader,
    pub metadata: Option<EnvelopeMetadata>,
    /// An object whose `action` names the action.
    pub payload: Json,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct EnvelopeHeader {
    pub msg_id: String,
    /// In a response: the request's `msg_id`. In an event: the `msg_id` of the request that created the run.
    pub parent_id: Option<String>,
    #[serde(rename = "type")]
    pub kind: FrameType,
    pub from: String,
    pub to: String,
    /// Unix seconds.
    pub timestamp: i64,
    /// For a durable frame: its position among the sender's frames on this channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
}

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
    pub enum FrameType {
        Request = "request",
        Response = "response",
        Notification = "notification",
        Chunk = "chunk",
    }
}

#[derive(Debug, Clone, Default, PartialEq, ToSchema)]
pub struct EnvelopeMetadata {
    pub trace_id: Option<String>,
    /// How many more hops the work may take.
    pub ttl: Option<i64>,
    /// `bearer …`
    #[schema(value_type = Option<String>)]
    pub auth_token: Option<Secret<String>>,
}

/// Why a frame is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct FrameError {
    pub code: Code,
    pub message: String,
    /// The invalid member, for example `header.msg_id`.
    pub field: Option<String>,
    /// The frame's id, if it could be read.
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
                "A frame can have at most 1 MiB. Upload larger data as an artifact and send its id.",
            ));
        }
        Self::parse_of_any_size(text)
    }

    /// For peers of the hub: an `execute` may be larger, because it contains its input twice.
    pub fn parse_of_any_size(text: &str) -> Result<Self, FrameError> {
        if json::depth(text.as_bytes()) > json::MAX_DEPTH {
            let message = format!("The frame is nested deeper than {} levels.", json::MAX_DEPTH);
            return Err(FrameError::new(Code::TooDeep, None, message));
        }
        let frame = FrameObject::read("", text)?;
        let header = frame.object("header")?;
        let header = header.ok_or_else(|| FrameError::missing("header"))?;
        // If the frame's id can be read, the error refers to it, whatever else is invalid.
        let msg_id = header.name("msg_id", MAX_NAME)?.ok_or_else(|| FrameError::missing("header.msg_id"))?;
        if !msg_id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(FrameError::wrong("header.msg_id", "must be printable ASCII without spaces"));
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

/// The sender or recipient, if known: a peer has no name before it registers.
fn party(header: &FrameObject<'_>, name: &str) -> Result<String, FrameError> {
    match header.optional::<String>(name)? {
        Some(party) if party.is_empty() => Ok(party),
        _ => Ok(header.name(name, MAX_NAME)?.unwrap_or_default()),
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
