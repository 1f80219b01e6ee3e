//! The conformance behaviours by name, and their outputs.

use attache_protocol::{
    Json,
    wire::part::{Part, PartContent},
};

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConformanceBehaviour {
    Complete,
    /// Completes without output.
    CompleteQuietly,
    /// Answers with a message instead of a task.
    Message,
    /// Completes with this output in its result.
    Make(ConformanceOutput),
    /// Streams this output while working, then completes.
    Stream(ConformanceOutput),
    /// Streams these pieces, then completes.
    StreamPieces(&'static [ConformanceOutput]),
    /// Works for twice the kit's timeout.
    Linger,
    /// Works for the kit's timeout, then completes with output.
    TakeTime,
    UntilCancelled,
    /// Asks for input once, then completes with it.
    AskOnce,
    /// Asks for input until the answer is `done`.
    AskUntilDone,
    KeepAsking,
    AskPermission,
    Reject,
    Fail,
}

/// The output of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConformanceOutput {
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

const NAMES: &[(&str, ConformanceBehaviour)] = &[
    ("tck-complete-task", ConformanceBehaviour::Complete),
    ("tck-artifact-text", ConformanceBehaviour::Make(ConformanceOutput::Text)),
    ("tck-artifact-file", ConformanceBehaviour::Make(ConformanceOutput::File)),
    ("tck-artifact-file-url", ConformanceBehaviour::Make(ConformanceOutput::FileUrl)),
    ("tck-artifact-data", ConformanceBehaviour::Make(ConformanceOutput::Data)),
    ("tck-message-response", ConformanceBehaviour::Message),
    ("tck-input-required", ConformanceBehaviour::AskOnce),
    ("tck-auth-required", ConformanceBehaviour::AskPermission),
    ("tck-reject-task", ConformanceBehaviour::Reject),
    ("tck-task-failure", ConformanceBehaviour::Fail),
    ("tck-multi-turn", ConformanceBehaviour::AskUntilDone),
    ("tck-cancel", ConformanceBehaviour::UntilCancelled),
    ("tck-long-running", ConformanceBehaviour::TakeTime),
    ("test-resubscribe-message-id", ConformanceBehaviour::Linger),
    ("tck-stream-001", ConformanceBehaviour::Stream(ConformanceOutput::StreamHello)),
    ("tck-stream-002", ConformanceBehaviour::CompleteQuietly),
    ("tck-stream-003", ConformanceBehaviour::Stream(ConformanceOutput::StreamLifecycle)),
    ("tck-stream-ordering-001", ConformanceBehaviour::Stream(ConformanceOutput::StreamOrdered)),
    ("tck-stream-artifact-text", ConformanceBehaviour::Stream(ConformanceOutput::StreamText)),
    ("tck-stream-artifact-file", ConformanceBehaviour::Stream(ConformanceOutput::File)),
    (
        "tck-stream-artifact-chunked",
        ConformanceBehaviour::StreamPieces(&[ConformanceOutput::First, ConformanceOutput::Last]),
    ),
    ("tck-stream-basic", ConformanceBehaviour::Stream(ConformanceOutput::StreamBasic)),
    (
        "tck-stream-chunked",
        ConformanceBehaviour::StreamPieces(&[
            ConformanceOutput::First,
            ConformanceOutput::Middle,
            ConformanceOutput::Last,
        ]),
    ),
];

// === impl ConformanceBehaviour ===

impl ConformanceBehaviour {
    /// The behaviour whose name starts the text. The longest match wins.
    pub(super) fn named(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let named = NAMES.iter().filter(|(name, _)| text.starts_with(name));
        named.max_by_key(|(name, _)| name.len()).map(|(_, behaviour)| *behaviour)
    }
}

// === impl ConformanceOutput ===

impl ConformanceOutput {
    /// Pieces of one artifact share an id.
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
            Self::File => file(PartContent::Raw("dGNr".to_owned())),
            Self::FileUrl => file(PartContent::Url("https://example.com/output.txt".to_owned())),
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
