//! What a program has printed so far, by the rules of its row, and what it comes to.

use std::{collections::HashMap, os::unix::process::ExitStatusExt as _};

use attache_protocol::Json;
use serde::de::IgnoredAny;
use tokio::process::ChildStdout;

use crate::{
    host::{
        Lines, Turn, Usage, Verdict,
        budget::Source,
        lines::Line,
        outage::{self, trouble},
        process::Ended,
        rpc::excerpt,
        turn::{Summary, ToolCall, ToolStatus},
    },
    output::{Cut, pump},
    preset::{Counts, ExecShape, Format, Said, Tool},
};

#[derive(Debug)]
pub(super) struct Heard {
    turn: Turn,
    shape: ExecShape,
    told: Told,
    /// What was used, where a line tells of one step only.
    used: Usage,
    /// The names of tools that have not ended.
    tools: HashMap<String, String>,
    serial: u64,
    /// A document that is not complete yet.
    document: String,
}

/// What decides how the run ended.
#[derive(Debug, Default)]
struct Told {
    spoke: bool,
    answer: Option<String>,
    failed: bool,
    error: Option<String>,
    /// The first line that cannot be read.
    noise: Option<String>,
}

/// A document that is longer is none.
const LONGEST: usize = 16 * 1024 * 1024;

/// How many tools may be at work at once.
const MOST_TOOLS: usize = 1024;

/// How much of the standard error a failure holds.
const LAST_WORDS: usize = 2 * 1024;

// === impl Heard ===

impl Heard {
    pub(super) fn new(turn: Turn, shape: ExecShape) -> Self {
        let (told, used, tools) = (Told::default(), Usage::default(), HashMap::new());
        Self { turn, shape, told, used, tools, serial: 0, document: String::new() }
    }

    /// Reads to the end of the output, or until `closed`. Fails when the program must be stopped. A program that says its first
    /// word has loaded what it loads: that is when `look` is asked.
    pub(super) async fn read(
        &mut self,
        stdout: Option<ChildStdout>,
        closed: impl Future<Output = ()>,
        look: impl Fn() -> Result<(), Verdict>,
    ) -> Result<(), Verdict> {
        self.turn.working();
        let mut has_begun = false;
        if self.shape.format == Format::Text {
            if let Some(stdout) = stdout {
                let mut looked = Ok(());
                let take = |piece: &str| {
                    if !std::mem::replace(&mut has_begun, true) {
                        looked = look();
                    }
                    if looked.is_ok() {
                        self.told.spoke |= !piece.trim().is_empty();
                        self.turn.say(piece);
                    }
                };
                pump(stdout, closed, Cut::Anywhere, take).await;
                return looked;
            }
            return Ok(());
        }
        let mut lines = Lines::of(stdout);
        tokio::pin!(closed);
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                () = &mut closed => None,
            };
            match line {
                Some(Line::Whole(line)) => {
                    if !std::mem::replace(&mut has_begun, true) {
                        look()?;
                    }
                    self.line(&line)?;
                }
                Some(Line::TooLong) => return Err(too_long()),
                None => break,
            }
        }
        if self.shape.format == Format::Json { self.whole() } else { Ok(()) }
    }

    fn line(&mut self, line: &str) -> Result<(), Verdict> {
        if self.shape.format == Format::Json {
            // Diagnostics before the document are none of it.
            if self.document.is_empty() && !line.starts_with(['{', '[']) {
                self.noise(line);
                return Ok(());
            }
            self.document.push_str(line);
            self.document.push('\n');
            return if self.document.len() > LONGEST { Err(too_long()) } else { Ok(()) };
        }
        match self.shape.read(line) {
            Ok(said) => self.take(said),
            Err(_) => {
                self.noise(line);
                Ok(())
            }
        }
    }

    /// The one document, now that all of it is there.
    fn whole(&mut self) -> Result<(), Verdict> {
        let document = std::mem::take(&mut self.document);
        let read = self.shape.read(&document).or_else(|error| match longest_value(&document) {
            Some(value) => self.shape.read(value),
            None => Err(error),
        });
        match read {
            Ok(said) => self.take(said),
            Err(_) if document.is_empty() => Ok(()),
            Err(error) => {
                self.told.noise = Some(format!("{error} in {}", excerpt(&document)));
                Ok(())
            }
        }
    }

    fn noise(&mut self, line: &str) {
        self.turn.log("debug", line);
        self.told.noise.get_or_insert_with(|| excerpt(line).to_owned());
    }

    fn take(&mut self, said: Said) -> Result<(), Verdict> {
        let usage = usage(&said);
        if let Some(thought) = said.thought {
            self.turn.think(&thought);
        }
        if let Some(chunk) = said.chunk {
            self.told.spoke |= !chunk.trim().is_empty();
            self.turn.say(&chunk);
        }
        if let Some(progress) = said.progress {
            self.turn.note(progress);
        }
        for tool in said.tools {
            let call = self.tool(tool);
            self.turn.tool(call);
        }
        if let Some(text) = said.text {
            if !self.told.spoke {
                self.turn.say(&text);
            }
            self.told.answer = Some(text);
        }
        self.told.failed = said.failed.unwrap_or(self.told.failed);
        self.told.error = said.error.or(self.told.error.take());
        self.used(usage)
    }

    fn used(&mut self, usage: Usage) -> Result<(), Verdict> {
        if !usage.is_known() {
            return Ok(());
        }
        self.used = match self.shape.counts {
            Counts::Total => usage,
            Counts::Step => sum(&self.used, &usage),
        };
        if self.turn.used(self.used) {
            return Err(Verdict::OverBudget { message: self.turn.exceeded().unwrap_or_default() });
        }
        Ok(())
    }

    /// What the program wrote into its file: a total, and perhaps that it failed.
    pub(super) fn usage_file(&mut self, document: &str) {
        match self.shape.read_usage(document) {
            Ok(said) => {
                // It has ended: what is over the budget now is seen in the outcome.
                let _ = self.turn.used(usage(&said));
                self.told.failed |= said.failed.unwrap_or_default();
                self.told.error = self.told.error.take().or(said.error);
            }
            Err(error) => self.turn.log("info", format!("its file about usage cannot be read: {error}")),
        }
    }

    fn tool(&mut self, tool: Tool) -> ToolCall {
        let id = tool.id.unwrap_or_else(|| {
            self.serial += 1;
            format!("tool-{}", self.serial)
        });
        let known = self.tools.remove(&id);
        let name = tool.name.or(known).unwrap_or_else(|| "tool".to_owned());
        let status = if tool.output.is_some() { ToolStatus::Completed } else { ToolStatus::Started };
        if status == ToolStatus::Started && self.tools.len() < MOST_TOOLS {
            self.tools.insert(id.clone(), name.clone());
        }
        let input = tool.input.and_then(|input| Json::from_text(input).ok());
        ToolCall { id, name, status, title: None, input, output: tool.output }
    }

    /// What all of it means, now that the program has ended by itself.
    pub(super) fn verdict(&mut self, ended: &Ended) -> Verdict {
        let promises_an_answer = self.shape.format != Format::Text && self.shape.promises_an_answer();
        self.told.verdict(promises_an_answer, ended)
    }

    pub(super) fn finish(self) -> Summary {
        self.turn.finish()
    }
}

/// The document among diagnostics that look like one (`[plugins] loaded`) or that follow it.
fn longest_value(text: &str) -> Option<&str> {
    let (mut longest, mut at) = (None::<&str>, 0);
    for line in text.split_inclusive('\n') {
        let begin = line.as_ptr().addr() - text.as_ptr().addr();
        if begin < at || !line.starts_with(['{', '[']) {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<IgnoredAny>();
        if values.next().is_some_and(|value| value.is_ok()) {
            at = begin + values.byte_offset();
            longest = longest.filter(|longest| longest.len() > at - begin).or(Some(&text[begin..at]));
        }
    }
    longest
}

fn too_long() -> Verdict {
    Verdict::Unreadable { message: "a line of many megabytes".to_owned() }
}

fn usage(said: &Said) -> Usage {
    let both = || Some(said.input_tokens?.saturating_add(said.output_tokens?));
    let usage = Usage {
        tokens: said.tokens.or_else(both),
        input_tokens: said.input_tokens,
        output_tokens: said.output_tokens,
        ..Usage::default()
    };
    match (said.cost_usd, said.estimated_cost_usd) {
        (Some(cost), _) => usage.with_cost(cost),
        (None, Some(cost)) => Usage { cost_usd: Some(cost), cost_source: Source::Estimated, ..usage },
        (None, None) => usage,
    }
}

fn sum(one: &Usage, other: &Usage) -> Usage {
    let add = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    };
    let tokens = Usage {
        tokens: add(one.tokens, other.tokens),
        input_tokens: add(one.input_tokens, other.input_tokens),
        output_tokens: add(one.output_tokens, other.output_tokens),
        ..Usage::default()
    };
    match (one.cost_usd, other.cost_usd) {
        (None, None) => tokens,
        (one, other) => tokens.with_cost(one.unwrap_or_default() + other.unwrap_or_default()),
    }
}

// === impl Told ===

impl Told {
    fn verdict(&mut self, promises_an_answer: bool, ended: &Ended) -> Verdict {
        let status = ended.status;
        if status.is_some_and(|status| status.signal().is_some()) {
            return Verdict::Vanished;
        }
        let code = status.and_then(|status| status.code()).unwrap_or_default();
        let last_words = last_words(&ended.errors);
        if self.failed || self.error.is_some() || code != 0 {
            let said = self.error.take().or_else(|| self.failed.then(|| self.answer.take()).flatten());
            let how = (code != 0).then(|| format!("it ended with exit status {code}"));
            let why = said.filter(|said| !said.trim().is_empty()).or((!last_words.is_empty()).then_some(last_words));
            let said = why.clone().unwrap_or_default();
            let message = match (why, how) {
                (Some(why), Some(how)) => format!("{how}: {}", why.trim()),
                (Some(why), None) => why,
                (None, how) => how.unwrap_or_else(|| "it did not say why".to_owned()),
            };
            return outage::verdict(&said, message);
        }
        let is_empty = !self.spoke && self.answer.as_ref().is_none_or(|answer| answer.trim().is_empty());
        match (self.answer.take(), self.noise.take()) {
            (None, Some(noise)) if promises_an_answer => Verdict::Unreadable { message: noise },
            (None, None) if promises_an_answer => {
                Verdict::Failed { message: "its output ended without an answer".to_owned() }
            }
            _ if is_empty && trouble(&last_words).is_some() => outage::verdict(&last_words, last_words.clone()),
            _ if is_empty => Verdict::Failed {
                message: match last_words.as_str() {
                    "" => "it ended without saying anything".to_owned(),
                    errors => format!("it ended without an answer; the end of its standard error: {errors}"),
                },
            },
            (text, _) => Verdict::Done { text },
        }
    }
}

fn last_words(errors: &str) -> String {
    let errors = errors.trim();
    errors[errors.ceil_char_boundary(errors.len().saturating_sub(LAST_WORDS))..].to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    fn ended(status: i32, errors: &str) -> Ended {
        Ended { status: Some(ExitStatus::from_raw(status)), errors: errors.to_owned() }
    }

    fn failed(message: &str) -> Verdict {
        Verdict::Failed { message: message.to_owned() }
    }

    #[test]
    fn everything_that_is_known_decides() {
        let answered = || Told { answer: Some("fine".to_owned()), ..Told::default() };
        let done = Verdict::Done { text: Some("fine".to_owned()) };
        assert_eq!(answered().verdict(true, &ended(0, "warning: x")), done);
        assert_eq!(answered().verdict(true, &ended(9, "")), Verdict::Vanished);
        assert_eq!(answered().verdict(true, &ended(256, "boom\n")), failed("it ended with exit status 1: boom"));
        let mut told = Told { failed: true, ..answered() };
        assert_eq!(told.verdict(true, &ended(0, "")), failed("fine"));
        let mut told = Told { error: Some("connect ECONNREFUSED".to_owned()), ..answered() };
        let expected = Verdict::ModelUnreachable { message: "connect ECONNREFUSED".to_owned() };
        assert_eq!(told.verdict(true, &ended(0, "")), expected);
        assert_eq!(Told::default().verdict(true, &ended(0, "")), failed("its output ended without an answer"));
        let mut told = Told { noise: Some("{]".to_owned()), ..Told::default() };
        assert_eq!(told.verdict(true, &ended(0, "")), Verdict::Unreadable { message: "{]".to_owned() });
        let mut told = Told { spoke: true, ..Told::default() };
        assert_eq!(told.verdict(false, &ended(0, "")), Verdict::Done { text: None });
        assert_eq!(Told::default().verdict(false, &ended(0, "")), failed("it ended without saying anything"));
        let expected = Verdict::ModelUnreachable { message: "fetch failed".to_owned() };
        assert_eq!(Told::default().verdict(false, &ended(0, "fetch failed\n")), expected);
        assert_eq!(Told::default().verdict(false, &ended(512, "")), failed("it ended with exit status 2"));
        let said = failed("it ended with exit status 2: 500 lines are too many");
        assert_eq!(Told::default().verdict(false, &ended(512, "500 lines are too many")), said);
    }

    #[test]
    fn the_document_is_found_among_diagnostics() {
        let document = "{\n\"a\": {\n\"b\": [1]\n}\n}";
        for around in ["%", "[plugins] up\n%\n", "%\nbye\n", "[1]\n%\n[2] {late}\n", "{oops\n%\n"] {
            assert_eq!(longest_value(&around.replace('%', document)), Some(document), "{around}");
        }
        assert_eq!((longest_value("[plugins"), longest_value("")), (None, None));
    }

    #[test]
    fn steps_are_added_up() {
        let step = Usage::of_tokens(3, 4).with_cost(0.5);
        assert_eq!(sum(&sum(&Usage::default(), &step), &step), Usage::of_tokens(6, 8).with_cost(1.0));
        assert_eq!(sum(&Usage::default(), &Usage::default()), Usage::default());
    }
}
