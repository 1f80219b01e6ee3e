//! Reads a program's output by the rules of its preset, and judges the result.

use std::os::unix::process::ExitStatusExt as _;

use attache_protocol::Json;
use serde::de::IgnoredAny;
use tokio::process::ChildStdout;

use crate::{
    host::{
        HostLines, HostTurn, HostUsage, TurnVerdict,
        budget::CostCertainty,
        lines::HostLine,
        outage::{self, failure_cause},
        process::HostExit,
        recent::{NOTES, RecentEntries},
        rpc::excerpt,
        turn::{ToolCall, ToolStatus, TurnSummary},
    },
    output::{ChunkBoundary, pump},
    preset::{ExecOutputFormat, ExecOutputRules, ParsedOutput, ParsedTool, UsageCounting},
};

#[derive(Debug)]
pub(super) struct ExecOutputReader {
    turn: HostTurn,
    shape: ExecOutputRules,
    findings: ExecFindings,
    /// Usage so far, if each line reports a single step.
    used: HostUsage,
    /// Names of the tools in use, by id.
    tools: RecentEntries<String>,
    serial: u64,
    /// An incomplete document.
    document: String,
}

/// Everything that decides how the run ended.
#[derive(Debug, Default)]
struct ExecFindings {
    spoke: bool,
    answer: Option<String>,
    failed: bool,
    error: Option<String>,
    /// The first unreadable line.
    noise: Option<String>,
}

/// Larger documents are ignored.
const MAX_DOCUMENT: usize = 16 * 1024 * 1024;

/// How much of the standard error goes into a failure message.
const MAX_STDERR_EXCERPT: usize = 2 * 1024;

// === impl ExecOutputReader ===

impl ExecOutputReader {
    pub(super) fn new(turn: HostTurn, shape: ExecOutputRules) -> Self {
        let (told, used, tools) = (ExecFindings::default(), HostUsage::default(), RecentEntries::within(NOTES));
        Self { turn, shape, findings: told, used, tools, serial: 0, document: String::new() }
    }

    /// Reads to the end of the output, or until `closed`. Fails if the program must be stopped. The first output means
    /// the program has finished loading, which is when `look` is called.
    pub(super) async fn read(
        &mut self,
        stdout: Option<ChildStdout>,
        closed: impl Future<Output = ()>,
        look: impl Fn() -> Result<(), TurnVerdict>,
    ) -> Result<(), TurnVerdict> {
        self.turn.working();
        let mut has_begun = false;
        if self.shape.format == ExecOutputFormat::Text {
            if let Some(stdout) = stdout {
                let mut looked = Ok(());
                let take = |piece: &str| {
                    if !std::mem::replace(&mut has_begun, true) {
                        looked = look();
                    }
                    if looked.is_ok() {
                        self.findings.spoke |= !piece.trim().is_empty();
                        self.turn.push_text(piece);
                    }
                };
                pump(stdout, closed, ChunkBoundary::Anywhere, take).await;
                return looked;
            }
            return Ok(());
        }
        let mut lines = HostLines::of(stdout);
        tokio::pin!(closed);
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                () = &mut closed => None,
            };
            match line {
                Some(HostLine::Whole(line)) => {
                    if !std::mem::replace(&mut has_begun, true) {
                        look()?;
                    }
                    self.on_line(&line)?;
                }
                Some(HostLine::TooLong) => return Err(too_long()),
                None => break,
            }
        }
        if self.shape.format == ExecOutputFormat::Json { self.whole() } else { Ok(()) }
    }

    fn on_line(&mut self, line: &str) -> Result<(), TurnVerdict> {
        if self.shape.format == ExecOutputFormat::Json {
            // Skip diagnostics before the document.
            if self.document.is_empty() && !line.starts_with(['{', '[']) {
                self.noise(line);
                return Ok(());
            }
            self.document.push_str(line);
            self.document.push('\n');
            return if self.document.len() > MAX_DOCUMENT { Err(too_long()) } else { Ok(()) };
        }
        match self.shape.read(line) {
            Ok(said) => self.take(said),
            Err(_) => {
                self.noise(line);
                Ok(())
            }
        }
    }

    /// Parses the single document, now that it is complete.
    fn whole(&mut self) -> Result<(), TurnVerdict> {
        let document = std::mem::take(&mut self.document);
        let read = self.shape.read(&document).or_else(|error| match longest_value(&document) {
            Some(value) => self.shape.read(value),
            None => Err(error),
        });
        match read {
            Ok(said) => self.take(said),
            Err(_) if document.is_empty() => Ok(()),
            Err(error) => {
                self.findings.noise = Some(format!("{error} in {}", excerpt(&document)));
                Ok(())
            }
        }
    }

    fn noise(&mut self, line: &str) {
        self.turn.log("debug", line);
        self.findings.noise.get_or_insert_with(|| excerpt(line).to_owned());
    }

    fn take(&mut self, said: ParsedOutput) -> Result<(), TurnVerdict> {
        let usage = usage(&said);
        if let Some(thought) = said.thought {
            self.turn.push_thought(&thought);
        }
        if let Some(chunk) = said.chunk {
            self.findings.spoke |= !chunk.trim().is_empty();
            self.turn.push_text(&chunk);
        }
        if let Some(progress) = said.progress {
            self.turn.note(progress);
        }
        for tool in said.tools {
            let call = self.tool(tool);
            self.turn.tool(call);
        }
        if let Some(text) = said.text {
            if !self.findings.spoke {
                self.turn.push_text(&text);
            }
            self.findings.answer = Some(text);
        }
        self.findings.failed = said.failed.unwrap_or(self.findings.failed);
        self.findings.error = said.error.or(self.findings.error.take());
        self.on_usage(usage)
    }

    fn on_usage(&mut self, usage: HostUsage) -> Result<(), TurnVerdict> {
        if !usage.is_known() {
            return Ok(());
        }
        self.used = match self.shape.counts {
            UsageCounting::Total => usage,
            UsageCounting::Step => sum(&self.used, &usage),
        };
        if self.turn.set_usage(self.used) {
            return Err(TurnVerdict::OverBudget { message: self.turn.exceeded().unwrap_or_default() });
        }
        Ok(())
    }

    /// Reads the program's usage file: totals, and possibly an error.
    pub(super) fn usage_file(&mut self, document: &str) {
        match self.shape.read_usage(document) {
            Ok(said) => {
                // It has exited. An exceeded budget shows in the outcome.
                let _ = self.turn.set_usage(usage(&said));
                self.findings.failed |= said.failed.unwrap_or_default();
                self.findings.error = self.findings.error.take().or(said.error);
            }
            Err(error) => self.turn.log("info", format!("can't read its usage file: {error}")),
        }
    }

    fn tool(&mut self, tool: ParsedTool) -> ToolCall {
        let id = tool.id.unwrap_or_else(|| {
            self.serial += 1;
            format!("tool-{}", self.serial)
        });
        let known = self.tools.remove(&id);
        let name = tool.name.or(known).unwrap_or_else(|| "tool".to_owned());
        let status = if tool.output.is_some() { ToolStatus::Completed } else { ToolStatus::Started };
        if status == ToolStatus::Started {
            self.tools.insert(&id, name.clone(), name.len());
        }
        let input = tool.input.and_then(|input| Json::from_text(input).ok());
        ToolCall { id, name, status, title: None, input, output: tool.output }
    }

    /// The verdict, after the program exited on its own.
    pub(super) fn verdict(&mut self, ended: &HostExit) -> TurnVerdict {
        let promises_an_answer = self.shape.format != ExecOutputFormat::Text && self.shape.has_answer_rule();
        self.findings.verdict(promises_an_answer, ended)
    }

    pub(super) fn finish(self) -> TurnSummary {
        self.turn.finish()
    }
}

/// Finds the document among diagnostics that look like one (`[plugins] loaded`) or follow it.
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

fn too_long() -> TurnVerdict {
    TurnVerdict::Unreadable { message: "a line larger than 16 MiB".to_owned() }
}

fn usage(said: &ParsedOutput) -> HostUsage {
    let both = || Some(said.input_tokens?.saturating_add(said.output_tokens?));
    let usage = HostUsage {
        tokens: said.tokens.or_else(both),
        input_tokens: said.input_tokens,
        output_tokens: said.output_tokens,
        ..HostUsage::default()
    };
    match (said.cost_usd, said.estimated_cost_usd) {
        (Some(cost), _) => usage.with_cost(cost),
        (None, Some(cost)) => HostUsage { cost_usd: Some(cost), cost_source: CostCertainty::Estimated, ..usage },
        (None, None) => usage,
    }
}

fn sum(one: &HostUsage, other: &HostUsage) -> HostUsage {
    let add = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    };
    let tokens = HostUsage {
        tokens: add(one.tokens, other.tokens),
        input_tokens: add(one.input_tokens, other.input_tokens),
        output_tokens: add(one.output_tokens, other.output_tokens),
        ..HostUsage::default()
    };
    match (one.cost_usd, other.cost_usd) {
        (None, None) => tokens,
        (one, other) => tokens.with_cost(one.unwrap_or_default() + other.unwrap_or_default()),
    }
}

// === impl ExecFindings ===

impl ExecFindings {
    fn verdict(&mut self, promises_an_answer: bool, ended: &HostExit) -> TurnVerdict {
        let status = ended.status;
        if status.is_some_and(|status| status.signal().is_some()) {
            return TurnVerdict::Vanished;
        }
        let code = status.and_then(|status| status.code()).unwrap_or_default();
        let last_words = stderr_excerpt(&ended.errors);
        if self.failed || self.error.is_some() || code != 0 {
            let said = self.error.take().or_else(|| self.failed.then(|| self.answer.take()).flatten());
            let how = (code != 0).then(|| format!("it exited with status {code}"));
            let why = said.filter(|said| !said.trim().is_empty()).or((!last_words.is_empty()).then_some(last_words));
            let said = why.clone().unwrap_or_default();
            let message = match (why, how) {
                (Some(why), Some(how)) => format!("{how}: {}", why.trim()),
                (Some(why), None) => why,
                (None, how) => how.unwrap_or_else(|| "it gave no reason".to_owned()),
            };
            return outage::verdict(&said, message);
        }
        let is_empty = !self.spoke && self.answer.as_ref().is_none_or(|answer| answer.trim().is_empty());
        match (self.answer.take(), self.noise.take()) {
            (None, Some(noise)) if promises_an_answer => TurnVerdict::Unreadable { message: noise },
            (None, None) if promises_an_answer => {
                TurnVerdict::Failed { message: "its output ended without an answer".to_owned() }
            }
            _ if is_empty && failure_cause(&last_words).is_some() => outage::verdict(&last_words, last_words.clone()),
            _ if is_empty => TurnVerdict::Failed {
                message: match last_words.as_str() {
                    "" => "it exited without any output".to_owned(),
                    errors => format!("it exited without an answer; end of its standard error: {errors}"),
                },
            },
            (text, _) => TurnVerdict::Done { text },
        }
    }
}

fn stderr_excerpt(errors: &str) -> String {
    let errors = errors.trim();
    errors[errors.ceil_char_boundary(errors.len().saturating_sub(MAX_STDERR_EXCERPT))..].to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    fn ended(status: i32, errors: &str) -> HostExit {
        HostExit { status: Some(ExitStatus::from_raw(status)), errors: errors.to_owned() }
    }

    fn failed(message: &str) -> TurnVerdict {
        TurnVerdict::Failed { message: message.to_owned() }
    }

    #[test]
    fn the_verdict_considers_all_findings() {
        let answered = || ExecFindings { answer: Some("fine".to_owned()), ..ExecFindings::default() };
        let done = TurnVerdict::Done { text: Some("fine".to_owned()) };
        assert_eq!(answered().verdict(true, &ended(0, "warning: x")), done);
        assert_eq!(answered().verdict(true, &ended(9, "")), TurnVerdict::Vanished);
        assert_eq!(answered().verdict(true, &ended(256, "boom\n")), failed("it exited with status 1: boom"));
        let mut told = ExecFindings { failed: true, ..answered() };
        assert_eq!(told.verdict(true, &ended(0, "")), failed("fine"));
        let mut told = ExecFindings { error: Some("connect ECONNREFUSED".to_owned()), ..answered() };
        let expected = TurnVerdict::ModelUnreachable { message: "connect ECONNREFUSED".to_owned() };
        assert_eq!(told.verdict(true, &ended(0, "")), expected);
        assert_eq!(ExecFindings::default().verdict(true, &ended(0, "")), failed("its output ended without an answer"));
        let mut told = ExecFindings { noise: Some("{]".to_owned()), ..ExecFindings::default() };
        assert_eq!(told.verdict(true, &ended(0, "")), TurnVerdict::Unreadable { message: "{]".to_owned() });
        let mut told = ExecFindings { spoke: true, ..ExecFindings::default() };
        assert_eq!(told.verdict(false, &ended(0, "")), TurnVerdict::Done { text: None });
        assert_eq!(ExecFindings::default().verdict(false, &ended(0, "")), failed("it exited without any output"));
        let expected = TurnVerdict::ModelUnreachable { message: "fetch failed".to_owned() };
        assert_eq!(ExecFindings::default().verdict(false, &ended(0, "fetch failed\n")), expected);
        assert_eq!(ExecFindings::default().verdict(false, &ended(512, "")), failed("it exited with status 2"));
        let said = failed("it exited with status 2: 500 lines are too many");
        assert_eq!(ExecFindings::default().verdict(false, &ended(512, "500 lines are too many")), said);
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
        let step = HostUsage::of_tokens(3, 4).with_cost(0.5);
        assert_eq!(sum(&sum(&HostUsage::default(), &step), &step), HostUsage::of_tokens(6, 8).with_cost(1.0));
        assert_eq!(sum(&HostUsage::default(), &HostUsage::default()), HostUsage::default());
    }
}
