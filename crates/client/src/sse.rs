//! Parser for server-sent events. Any split of the same bytes gives the same messages.

use std::{borrow::Cow, collections::VecDeque};

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseMessage {
    /// `message` unless the stream named it.
    pub event: String,
    /// The last id the stream has set.
    pub id: String,
    pub data: String,
}

/// A line or an event of the stream exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {limit} bytes")]
pub struct SseTooLong {
    pub limit: usize,
}

/// Takes bytes as they arrive and buffers incomplete input.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    line: Vec<u8>,
    /// The last byte was a CR: a following LF belongs to it.
    after_cr: bool,
    /// A byte order mark is only valid as the very first character.
    at_start: bool,
    event: String,
    data: String,
    has_data: bool,
    id: String,
    retry_ms: Option<u64>,
    ready: VecDeque<SseMessage>,
}

// === impl SseParser ===

impl SseParser {
    /// `limit` applies to one line, and to the data of one event.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            after_cr: false,
            at_start: true,
            event: String::new(),
            data: String::new(),
            has_data: false,
            id: String::new(),
            retry_ms: None,
            ready: VecDeque::new(),
        }
    }

    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), SseTooLong> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + part.len() > self.limit {
                return Err(SseTooLong { limit: self.limit });
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line()?;
        }
        Ok(())
    }

    /// The next complete message. An event cut off by the end of the stream is dropped.
    pub fn pop(&mut self) -> Option<SseMessage> {
        self.ready.pop_front()
    }

    /// The reconnection delay the stream asks for.
    pub const fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    fn end_line(&mut self) -> Result<(), SseTooLong> {
        let line = std::mem::take(&mut self.line);
        let mut text = String::from_utf8_lossy(&line);
        if std::mem::take(&mut self.at_start)
            && let Some(rest) = text.strip_prefix('\u{feff}')
        {
            text = Cow::Owned(rest.to_owned());
        }
        let taken = if text.is_empty() {
            self.dispatch();
            Ok(())
        } else {
            self.field(&text)
        };
        // Reuse the line's buffer.
        drop(text);
        self.line = line;
        self.line.clear();
        taken
    }

    fn field(&mut self, line: &str) -> Result<(), SseTooLong> {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.event),
            "data" => {
                if self.data.len() + value.len() + 1 > self.limit {
                    return Err(SseTooLong { limit: self.limit });
                }
                self.data.push_str(value);
                self.data.push('\n');
                self.has_data = true;
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry_ms = value.parse().ok();
            }
            // Comments start with a colon, so their field name is empty. Unknown fields are ignored.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self) {
        let event = std::mem::take(&mut self.event);
        let mut data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            data.pop();
            let event = if event.is_empty() { "message".to_owned() } else { event };
            self.ready.push_back(SseMessage { event, id: self.id.clone(), data });
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    fn parse<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<SseMessage> {
        let mut parser = SseParser::new(1 << 16);
        let mut messages = Vec::new();
        for part in parts {
            parser.push(part).unwrap();
            messages.extend(std::iter::from_fn(|| parser.pop()));
        }
        messages
    }

    fn message(event: &str, id: &str, data: &str) -> SseMessage {
        SseMessage { event: event.to_owned(), id: id.to_owned(), data: data.to_owned() }
    }

    const EVERYTHING: &[u8] = "\u{feff}: hello\r\n\r\nid: 1\nevent: task.chunk\ndata: a\ndata:  b\n\rdata\n\n\
        data:\ndata\n\nid: 2\n\nevent: lost\n\ndata: ü€😀\rid: 3\0\rretry: 20\rretry: x\r\rid\ndata: last: one\r\n\r\n\
        data: broken off"
        .as_bytes();

    #[test]
    fn every_rule_of_the_format_is_followed() {
        assert_eq!(
            parse([EVERYTHING]),
            vec![
                message("task.chunk", "1", "a\n b"),
                message("message", "1", ""),
                message("message", "1", "\n"),
                message("message", "2", "ü€😀"),
                message("message", "", "last: one"),
            ]
        );
    }

    #[test]
    fn any_split_of_the_bytes_gives_the_same_messages() {
        let whole = parse([EVERYTHING]);
        for at in 0..=EVERYTHING.len() {
            assert_eq!(parse([&EVERYTHING[..at], &EVERYTHING[at..]]), whole, "split at {at}");
        }
        assert_eq!(parse(EVERYTHING.chunks(1)), whole);
    }

    #[test]
    fn random_bytes_in_random_splits_never_differ() {
        const ALPHABET: &[u8] = b"\r\n\r\n:  dataidevent0\xff\xc3\xa9\xef\xbb\xbf\0";
        let env = Env::seeded(11);
        for _ in 0..2_000 {
            let mut random = [0; 300];
            env.fill(&mut random);
            let bytes: Vec<u8> =
                random[..200].iter().map(|byte| ALPHABET[usize::from(*byte) % ALPHABET.len()]).collect();
            let mut rest = bytes.as_slice();
            let mut parts = Vec::new();
            for size in &random[200..] {
                let (part, after) = rest.split_at(usize::from(size % 7).min(rest.len()));
                parts.push(part);
                rest = after;
            }
            parts.push(rest);
            assert_eq!(parse(parts), parse([bytes.as_slice()]), "{bytes:?}");
        }
    }

    #[test]
    fn lines_and_events_are_bounded() {
        let mut parser = SseParser::new(10);
        assert_eq!(parser.push(b"data: 12345"), Err(SseTooLong { limit: 10 }));
        let mut parser = SseParser::new(10);
        assert_eq!(parser.push(b"data: 1234\ndata: 5678\n"), Ok(()));
        assert_eq!(parser.push(b"data: 9\n"), Err(SseTooLong { limit: 10 }));
    }
}
