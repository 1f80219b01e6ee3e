//! The four dialects of model providers: which path speaks which, and what each has in common.

use serde_json::{Value, json};

use super::{
    answer::{ModelContent, ModelReply},
    conversation::ModelConversation,
};

mod anthropic;
mod chat;
mod gemini;
mod responses;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelDialect {
    /// Anthropic's messages.
    Anthropic,
    /// OpenAI's responses.
    Responses,
    /// OpenAI's chat completions, which most others speak too.
    Chat,
    /// Google's generateContent.
    Gemini,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelStreamEvent {
    pub(crate) name: Option<&'static str>,
    pub(crate) data: String,
}

/// What names an answer: the model that was asked for, and a number that no other answer has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyLabel<'a> {
    pub(crate) model: &'a str,
    pub(crate) serial: u64,
}

// === impl ModelDialect ===

impl ModelDialect {
    /// Whom a POST to this path is for.
    pub(crate) fn of(path: &str) -> Option<Self> {
        if path.ends_with("/messages") {
            Some(Self::Anthropic)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.ends_with(":generateContent") || path.ends_with(":streamGenerateContent") {
            Some(Self::Gemini)
        } else {
            None
        }
    }

    /// The path is needed because Gemini says there whether it wants a stream.
    pub(crate) fn read(self, path: &str, request: &Value) -> ModelConversation {
        match self {
            Self::Anthropic => anthropic::read(request),
            Self::Responses => responses::read(request),
            Self::Chat => chat::read(request),
            Self::Gemini => gemini::read(path, request),
        }
    }

    /// The answer as one document.
    pub(crate) fn whole(self, label: ReplyLabel<'_>, reply: &ModelReply) -> Value {
        match self {
            Self::Anthropic => anthropic::whole(label, reply),
            Self::Responses => responses::whole(label, reply),
            Self::Chat => chat::whole(label, reply),
            Self::Gemini => gemini::whole(label, reply),
        }
    }

    /// The answer as a stream: what comes at once, and what comes after the delay.
    pub(crate) fn events(
        self,
        label: ReplyLabel<'_>,
        conversation: &ModelConversation,
        reply: &ModelReply,
    ) -> (Vec<ModelStreamEvent>, Vec<ModelStreamEvent>) {
        match self {
            Self::Anthropic => anthropic::events(label, reply),
            Self::Responses => responses::events(label, reply),
            Self::Chat => chat::events(label, conversation.mode, reply),
            Self::Gemini => (Vec::new(), vec![ModelStreamEvent::unnamed(&gemini::whole(label, reply))]),
        }
    }

    /// What a failure looks like.
    pub(crate) fn failure(self, status: u16) -> Value {
        let message = format!("STUB-FAIL {status}");
        match self {
            Self::Anthropic => {
                let kind = match status {
                    400 => "invalid_request_error",
                    401 => "authentication_error",
                    403 => "permission_error",
                    429 => "rate_limit_error",
                    529 => "overloaded_error",
                    _ => "api_error",
                };
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
            Self::Responses | Self::Chat => {
                let kind = if status == 429 { "rate_limit_exceeded" } else { "server_error" };
                json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
            }
            Self::Gemini => {
                let kind = if status == 429 { "RESOURCE_EXHAUSTED" } else { "INTERNAL" };
                json!({"error": {"code": status, "message": message, "status": kind}})
            }
        }
    }
}

// === impl ModelStreamEvent ===

impl ModelStreamEvent {
    fn named(name: &'static str, data: &Value) -> Self {
        Self { name: Some(name), data: data.to_string() }
    }

    fn unnamed(data: &Value) -> Self {
        Self { name: None, data: data.to_string() }
    }

    /// As it goes over the wire.
    pub(crate) fn line(&self) -> String {
        let name = self.name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        format!("{name}data: {}\n\n", self.data)
    }
}

/// A text in the pieces in which a model says it: word by word.
fn chunks(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

/// The input of a call as dialects want it that carry JSON in a string.
fn arguments(input: &Value) -> String {
    input.as_str().map_or_else(|| input.to_string(), str::to_owned)
}

/// Why a model stops, in the words of a dialect.
fn reason(content: &ModelContent, text: &'static str, call: &'static str, refusal: &'static str) -> &'static str {
    match content {
        ModelContent::Text(_) => text,
        ModelContent::Call(_) => call,
        ModelContent::Refusal(_) => refusal,
    }
}

#[cfg(test)]
mod tests;
