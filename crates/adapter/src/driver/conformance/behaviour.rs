//! The behaviours by their names, and what they make.

use attache_protocol::{
    Json,
    wire::a2a::{Content, Part},
};

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    Complete,
    /// Without a word.
    CompleteQuietly,
    /// Answers with a message instead of a task.
    Message,
    /// Completes with this in its result.
    Make(Made),
    /// Shows this while it works, then completes.
    Stream(Made),
    /// The same, piece by piece.
    StreamPieces(&'static [Made]),
    /// Works for twice the kit's time-out.
    Linger,
    /// Works for the kit's time-out, and has something to show for it.
    TakeTime,
    UntilCancelled,
    /// Asks for input, and completes with it.
    AskOnce,
    /// Asks until somebody says `done`.
    AskUntilDone,
    KeepAsking,
    AskPermission,
    Reject,
    Fail,
}

/// What a task makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    Text,
    File,
    FileUrl,
    Data,
    StreamHello,
    StreamLifecycle,
    StreamOrdered,
    StreamText,
    StreamBasic,
    First,
    Middle,
    Last,
    LongRunning,
}

const NAMES: &[(&str, Behaviour)] = &[
    ("tck-complete-task", Behaviour::Complete),
    ("tck-artifact-text", Behaviour::Make(Made::Text)),
    ("tck-artifact-file", Behaviour::Make(Made::File)),
    ("tck-artifact-file-url", Behaviour::Make(Made::FileUrl)),
    ("tck-artifact-data", Behaviour::Make(Made::Data)),
    ("tck-message-response", Behaviour::Message),
    ("tck-input-required", Behaviour::AskOnce),
    ("tck-auth-required", Behaviour::AskPermission),
    ("tck-reject-task", Behaviour::Reject),
    ("tck-task-failure", Behaviour::Fail),
    ("tck-multi-turn", Behaviour::AskUntilDone),
    ("tck-cancel", Behaviour::UntilCancelled),
    ("tck-long-running", Behaviour::TakeTime),
    ("test-resubscribe-message-id", Behaviour::Linger),
    ("tck-stream-001", Behaviour::Stream(Made::StreamHello)),
    ("tck-stream-002", Behaviour::CompleteQuietly),
    ("tck-stream-003", Behaviour::Stream(Made::StreamLifecycle)),
    ("tck-stream-ordering-001", Behaviour::Stream(Made::StreamOrdered)),
    ("tck-stream-artifact-text", Behaviour::Stream(Made::StreamText)),
    ("tck-stream-artifact-file", Behaviour::Stream(Made::File)),
    ("tck-stream-artifact-chunked", Behaviour::StreamPieces(&[Made::First, Made::Last])),
    ("tck-stream-basic", Behaviour::Stream(Made::StreamBasic)),
    ("tck-stream-chunked", Behaviour::StreamPieces(&[Made::First, Made::Middle, Made::Last])),
];

// === impl Behaviour ===

impl Behaviour {
    /// The behaviour whose name the text begins with; of several the one with the longest name.
    pub(super) fn named(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let named = NAMES.iter().filter(|(name, _)| text.starts_with(name));
        named.max_by_key(|(name, _)| name.len()).map(|(_, behaviour)| *behaviour)
    }
}

// === impl Made ===

impl Made {
    /// Pieces of one thing share it.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::First | Self::Middle | Self::Last => "pieces",
            _ => "output",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::File | Self::FileUrl => "output.txt",
            _ => self.id(),
        }
    }

    pub(super) fn part(self) -> Part {
        let file = |content| Part {
            filename: Some("output.txt".to_owned()),
            media_type: Some("text/plain".to_owned()),
            ..Part::new(content)
        };
        match self {
            // "tck" in base64.
            Self::File => file(Content::Raw("dGNr".to_owned())),
            Self::FileUrl => file(Content::Url("https://example.com/output.txt".to_owned())),
            Self::Data => {
                Part::data(Json::from_text(r#"{"key":"value","count":42}"#).expect("it is written as JSON above"))
            }
            Self::Text => Part::text("Generated text content"),
            Self::StreamHello => Part::text("Stream hello from TCK"),
            Self::StreamLifecycle => Part::text("Stream task lifecycle"),
            Self::StreamOrdered => Part::text("Ordered output"),
            Self::StreamText => Part::text("Streamed text content"),
            Self::StreamBasic => Part::text("Streamed content"),
            Self::First => Part::text("chunk-1 "),
            Self::Middle => Part::text("chunk-1.5 "),
            Self::Last => Part::text("chunk-2"),
            Self::LongRunning => Part::text("The result of the long task"),
        }
    }
}
