//! Line-based messages, both ways, over a host's pipes.

use std::borrow::Cow;

use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, ChildStdout},
    sync::mpsc,
    task::JoinHandle,
};

/// A message may contain an entire file.
const MAX_LINE: u64 = 16 * 1024 * 1024;

/// How many messages may be queued in either direction. Then the host has to wait.
const MAX_QUEUED_LINES: usize = 64;

/// A longer message waits until all before it were taken, so that a queue never holds two.
const LONG_LINE: usize = 256 * 1024;

/// A host's output, line by line.
#[derive(Debug)]
pub(crate) struct HostLines {
    from: mpsc::Receiver<HostLine>,
    reader: JoinHandle<()>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostLine {
    /// Without the line ending; never empty. Invalid UTF-8 is replaced.
    Whole(String),
    /// Longer than `MAX_LINE`. The rest was discarded.
    TooLong,
}

/// Writes to a host. Cheap to clone. Dropping the last clone closes the pipe.
#[derive(Debug, Clone)]
pub(crate) struct HostWriter(mpsc::Sender<String>);

// === impl HostLines ===

impl HostLines {
    pub(crate) fn of(stdout: Option<ChildStdout>) -> Self {
        let (to, from) = mpsc::channel(MAX_QUEUED_LINES);
        Self { from, reader: tokio::spawn(read(stdout, to)) }
    }

    /// `None` once the host has closed its output.
    pub(crate) async fn next(&mut self) -> Option<HostLine> {
        self.from.recv().await
    }
}

impl HostLine {
    pub(crate) const fn bytes(&self) -> usize {
        match self {
            Self::Whole(text) => text.len(),
            Self::TooLong => 0,
        }
    }
}

impl Drop for HostLines {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(stdout: Option<ChildStdout>, to: mpsc::Sender<HostLine>) {
    let Some(stdout) = stdout else { return };
    let mut from = BufReader::with_capacity(64 * 1024, stdout);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let Ok(count @ 1..) = (&mut from).take(MAX_LINE).read_until(b'\n', &mut bytes).await else { return };
        let cut = count as u64 == MAX_LINE && bytes.last() != Some(&b'\n');
        let line = if cut {
            if skip(&mut from).await.is_err() {
                return;
            }
            HostLine::TooLong
        } else {
            match String::from_utf8_lossy(&bytes).trim() {
                "" => continue,
                text => HostLine::Whole(with_whole_characters(text).into_owned()),
            }
        };
        let slots = if line.bytes() > LONG_LINE { MAX_QUEUED_LINES } else { 1 };
        let Ok(mut free) = to.reserve_many(slots).await else { return };
        if let Some(slot) = free.next() {
            slot.send(line);
        }
    }
}

/// Replaces lone surrogates. JavaScript may cut a string inside a surrogate pair and write half of it as `\ud83d`,
/// which would make the entire message unreadable in Rust.
fn with_whole_characters(json: &str) -> Cow<'_, str> {
    let escape = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut mended, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = json[at..].find('\\') {
        at += found;
        at += match escape(at) {
            Some(0xD800..=0xDBFF) if matches!(escape(at + 6), Some(0xDC00..=0xDFFF)) => 12,
            Some(0xD800..=0xDFFF) => {
                mended.push_str(&json[copied..at]);
                mended.push_str("\\ufffd");
                copied = at + 6;
                6
            }
            // The next escape belongs to this one, whatever it is.
            _ => 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    mended.push_str(&json[copied..]);
    Cow::Owned(mended)
}

/// Discards the rest of a line.
async fn skip(from: &mut BufReader<ChildStdout>) -> std::io::Result<()> {
    loop {
        let buffer = from.fill_buf().await?;
        let (count, done) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        from.consume(count);
        if done {
            return Ok(());
        }
    }
}

// === impl HostWriter ===

impl HostWriter {
    /// The writing task ends when the host is gone or all writers are dropped.
    pub(crate) fn to(stdin: Option<ChildStdin>) -> Self {
        let (to, mut from) = mpsc::channel::<String>(MAX_QUEUED_LINES);
        tokio::spawn(async move {
            let Some(mut stdin) = stdin else { return };
            while let Some(line) = from.recv().await {
                if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
                    return;
                }
            }
        });
        Self(to)
    }

    /// Sends one message. If the host is gone the message is lost; the exit is noticed elsewhere.
    pub(crate) async fn write(&self, message: &impl Serialize) {
        if let Ok(mut line) = serde_json::to_string(message) {
            line.push('\n');
            let _ = self.0.send(line).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_surrogate_does_not_break_a_message() {
        for (text, expected) in [
            (r#"{"a":"\ud83d\ude00"}"#, "\u{1F600}"),
            (r#"{"a":"x\ud83d"}"#, "x\u{FFFD}"),
            (r#"{"a":"\uDE00y"}"#, "\u{FFFD}y"),
            (r#"{"a":"\ud83d\ud83d\ude00"}"#, "\u{FFFD}\u{1F600}"),
            (r#"{"a":"\\ud83d"}"#, r"\ud83d"),
            (r#"{"a":"\"é\u00e9"}"#, "\"éé"),
        ] {
            let mended = with_whole_characters(text);
            let read: std::collections::BTreeMap<String, String> = serde_json::from_str(&mended).unwrap();
            assert_eq!(read["a"], expected, "{text}");
        }
        for odd in [r"\", r"\u", r"\ud8", r"\é", r"\ud83\"] {
            assert_eq!(with_whole_characters(odd), odd);
        }
    }
}
