//! What is told of a run while its host works on it, and what is known of it at the end.

use attache_protocol::{
    Json,
    wire::adapter::{AdapterProgress, FullOutput},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use serde::Serialize;

use super::{
    ApprovalAnswer, ApprovalQuestion, HostUsage, KeyedAnswer,
    budget::RunBudget,
    question::shortened,
    text_stream::{TextStream, TextStreamKind},
};
use crate::{
    Asker, DriverRun, EventSink,
    output::{GateOutput, TextHead},
    process::MAX_STREAM,
};

/// The one place through which a driver reports.
#[derive(Debug)]
pub(crate) struct HostTurn {
    label: String,
    cwd: String,
    events: EventSink,
    asker: Asker,
    answer: TextStream,
    thoughts: TextStream,
    said: TextHead,
    /// Whether anything was said, and whether the next piece begins a new message.
    has_spoken: bool,
    begins: bool,
    usage: HostUsage,
    budget: RunBudget,
    questions: u64,
    denied: Vec<DeniedStep>,
}

/// A step that people did not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeniedStep {
    pub(crate) step: String,
    pub(crate) comment: Option<String>,
    /// Whether the host got something else done afterwards.
    pub(crate) got_on: bool,
}

/// What a turn comes to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnSummary {
    pub(crate) label: String,
    /// Everything that was said, as far as it is kept.
    pub(crate) text: String,
    /// How long it was, where not all of it is kept.
    pub(crate) cut: Option<FullOutput>,
    pub(crate) usage: HostUsage,
    pub(crate) denied: Vec<DeniedStep>,
    pub(crate) exceeded: Option<String>,
}

/// One use of a tool, as it is shown: once when it begins, once when it ends.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: ToolStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<Json>,
    /// What came of it, cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolStatus {
    Started,
    Completed,
    Failed,
}

/// How much of a tool's output is shown.
const MAX_TOOL_OUTPUT: usize = 4 * 1024;

/// How much of its input; a tool that writes a file is given all of it.
const MAX_TOOL_INPUT: usize = 32 * 1024;

/// What is told of an answer that is longer than what is kept of one.
pub(super) fn cut(said: &TextHead) -> Option<FullOutput> {
    said.is_cut().then(|| FullOutput {
        bytes: said.total(),
        artifact_index: None,
        lost: Some("Of a host's answer the first MiB is kept. Let it write long output to a file.".to_owned()),
    })
}

// === impl HostTurn ===

impl HostTurn {
    /// Tells people that the host is being started.
    pub(crate) fn begin(label: &str, job: &DriverRun) -> Self {
        let turn = Self {
            label: label.to_owned(),
            cwd: job.cwd.display().to_string(),
            events: job.events.clone(),
            asker: job.asker.clone(),
            answer: TextStream::new(TextStreamKind::Answer, job.events.clone()),
            thoughts: TextStream::new(TextStreamKind::Thought, job.events.clone()),
            said: TextHead::new(MAX_STREAM),
            has_spoken: false,
            begins: false,
            usage: HostUsage::default(),
            budget: RunBudget::of(job.task.budget.as_ref()),
            questions: 0,
            denied: Vec::new(),
        };
        turn.note(format!("starting {label}"));
        turn
    }

    pub(crate) const fn budget(&self) -> &RunBudget {
        &self.budget
    }

    /// The host is up and works on the task.
    pub(crate) fn working(&mut self) {
        self.note(format!("{} works on the task", self.label));
    }

    /// Something that people should know while they wait.
    pub(crate) fn note(&self, message: impl Into<String>) {
        self.events.progress(&AdapterProgress { message: Some(message.into()), ..AdapterProgress::default() });
    }

    /// The host cannot reach its model and tries again.
    pub(crate) fn retry(&self, attempt: u64, most: Option<u64>, why: &str) {
        let of = most.map_or_else(String::new, |most| format!("/{most}"));
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        self.note(format!("model retry {attempt}{of}{why}"));
    }

    pub(crate) fn log(&self, level: &str, message: impl Into<String>) {
        self.events.log(level, message);
    }

    /// A piece of the answer.
    pub(crate) fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.thoughts.flush();
        if std::mem::take(&mut self.begins) && self.has_spoken {
            self.retain("\n\n");
        }
        self.has_spoken = true;
        self.retain(text);
    }

    /// What is said next is another message.
    pub(crate) fn next_message(&mut self) {
        self.begins = true;
    }

    fn retain(&mut self, text: &str) {
        // What is not kept of the answer is not streamed either.
        match self.said.push(text) {
            GateOutput::All(text) => self.answer.push(text),
            GateOutput::Last(text) => {
                self.answer.push(text);
                self.answer.flush();
                self.events.log("warning", "the answer is too long: what follows is neither kept nor shown");
            }
            GateOutput::Nothing => {}
        }
    }

    pub(crate) fn push_thought(&mut self, text: &str) {
        if !text.is_empty() {
            self.answer.flush();
            self.thoughts.push(text);
        }
    }

    /// A tool is used, or was. One that did its work means that the host got on after a no.
    pub(crate) fn tool(&mut self, mut call: ToolCall) {
        self.answer.flush();
        self.thoughts.flush();
        self.next_message();
        if call.status == ToolStatus::Completed {
            self.denied.iter_mut().for_each(|denied| denied.got_on = true);
        }
        if let Some(output) = &mut call.output {
            output.truncate(output.floor_char_boundary(MAX_TOOL_OUTPUT));
        }
        call.input = call.input.map(|input| shortened(input, MAX_TOOL_INPUT));
        self.events.tool_call(Json::of(&call));
    }

    /// What the run used so far. True when nothing is left of its budget: the driver stops the host then.
    #[must_use]
    pub(crate) fn set_usage(&mut self, usage: HostUsage) -> bool {
        let before = self.usage;
        self.usage.merge(usage);
        if self.usage != before {
            self.events.progress(&AdapterProgress { usage: Some(Json::of(&self.usage)), ..AdapterProgress::default() });
        }
        self.exceeded().is_some()
    }

    /// What is used up of the budget, said for people; none while something is left.
    pub(crate) fn exceeded(&self) -> Option<String> {
        self.budget.exceeded_by(&self.usage)
    }

    /// Whether people said no to a step, and nothing else was got done since.
    pub(crate) fn was_denied(&self) -> bool {
        self.denied.iter().any(|denied| !denied.got_on)
    }

    /// Asks people. Tell the answer to [`Self::answered`], then to the host.
    pub(crate) fn ask<K: Send + 'static>(
        &mut self,
        key: K,
        question: &ApprovalQuestion,
    ) -> BoxFuture<'static, KeyedAnswer<K>> {
        self.answer.flush();
        self.thoughts.flush();
        self.questions += 1;
        let step = question.step();
        self.note(format!("waiting for approval: {step}"));
        let asked = question.to_request(format!("q{}", self.questions), self.cwd.clone());
        let asker = self.asker.clone();
        async move { KeyedAnswer { key, step, answer: asker.permission(&asked).await.into() } }.boxed()
    }

    pub(crate) fn answered<K>(&mut self, answered: &KeyedAnswer<K>) {
        match &answered.answer {
            ApprovalAnswer::Allowed => self.note(format!("{} goes on", self.label)),
            ApprovalAnswer::Denied { comment } => {
                self.note(format!("not allowed: {}", answered.step));
                self.denied.push(DeniedStep { step: answered.step.clone(), comment: comment.clone(), got_on: false });
            }
            ApprovalAnswer::Stopped => {}
        }
    }

    /// A step that was refused without a question to people, by the host's own rules.
    pub(crate) fn refused_by_host(&mut self, step: impl Into<String>) {
        self.denied.push(DeniedStep { step: step.into(), comment: None, got_on: false });
    }

    pub(crate) fn finish(mut self) -> TurnSummary {
        self.thoughts.flush();
        self.answer.flush();
        let exceeded = self.exceeded();
        let said = std::mem::replace(&mut self.said, TextHead::new(MAX_STREAM));
        TurnSummary {
            label: self.label.clone(),
            cut: cut(&said),
            text: said.into_kept(),
            usage: self.usage,
            denied: std::mem::take(&mut self.denied),
            exceeded,
        }
    }
}
