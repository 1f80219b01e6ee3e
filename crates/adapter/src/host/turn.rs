//! Reports on a run while its host works, and summarizes it at the end.

use attache_protocol::{
    Json,
    rules::permission_mode::StepAssurance,
    wire::{
        adapter::{AdapterInputAnswer, AdapterProgress, FullOutput},
        questionnaire::Questionnaire,
        run::SandboxLimit,
    },
};
use futures_util::FutureExt as _;
use serde::Serialize;

use super::{
    ApprovalAnswer, ApprovalQuestion, HostUsage, KeyedAnswer, OpenHostQuestion,
    budget::RunBudget,
    question::shortened,
    text_stream::{TextStream, TextStreamKind},
};
use crate::{
    DriverRun, EventSink, QuestionHandle,
    output::{GatedText, TextHead},
    process::MAX_STREAM,
};

/// The single place through which a driver reports.
#[derive(Debug)]
pub(crate) struct HostTurn {
    label: String,
    cwd: String,
    events: EventSink,
    question_handle: QuestionHandle,
    answer: TextStream,
    thoughts: TextStream,
    said: TextHead,
    /// Whether there was any output, and whether the next piece starts a new message.
    has_spoken: bool,
    begins: bool,
    usage: HostUsage,
    budget: RunBudget,
    questions: u64,
    denied: Vec<DeniedStep>,
    /// Whether the host sees only its folder, because of the walls around it.
    is_walled: bool,
}

/// A step that people denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeniedStep {
    pub(crate) step: String,
    pub(crate) comment: Option<String>,
    /// Whether the host made progress afterwards.
    pub(crate) got_on: bool,
}

/// The summary of a turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnSummary {
    pub(crate) label: String,
    /// All output, as far as it is kept.
    pub(crate) text: String,
    /// The full length, if not all of it is kept.
    pub(crate) cut: Option<FullOutput>,
    pub(crate) usage: HostUsage,
    pub(crate) denied: Vec<DeniedStep>,
    pub(crate) exceeded: Option<String>,
}

/// A tool call as shown to people: once when it starts, once when it ends.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: ToolStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<Json>,
    /// Its result, truncated.
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

/// How much of its input is shown. A tool that writes a file gets all of its content as input.
const MAX_TOOL_INPUT: usize = 32 * 1024;

/// The note for an answer that is longer than what is kept.
pub(super) fn cut(said: &TextHead) -> Option<FullOutput> {
    said.is_cut().then(|| FullOutput {
        bytes: said.total(),
        artifact_index: None,
        lost: Some("Only the first MiB of a host's answer is kept. Have it write long output to a file.".to_owned()),
    })
}

// === impl HostTurn ===

impl HostTurn {
    /// Announces that the host is being started.
    pub(crate) fn begin(label: &str, job: &DriverRun) -> Self {
        let turn = Self {
            label: label.to_owned(),
            cwd: job.cwd.display().to_string(),
            events: job.events.clone(),
            question_handle: job.question_handle.clone(),
            answer: TextStream::new(TextStreamKind::Answer, job.events.clone()),
            thoughts: TextStream::new(TextStreamKind::Thought, job.events.clone()),
            said: TextHead::new(MAX_STREAM),
            has_spoken: false,
            begins: false,
            usage: HostUsage::default(),
            budget: RunBudget::of(job.task.budget.as_ref()),
            questions: 0,
            denied: Vec::new(),
            is_walled: false,
        };
        turn.note(format!("starting {label}"));
        turn
    }

    /// The limits that walls around the host enforce.
    #[must_use]
    pub(crate) fn inside(mut self, walled: &[SandboxLimit]) -> Self {
        self.is_walled = walled.contains(&SandboxLimit::CwdOnly);
        self
    }

    /// Where the caller speaks without being asked.
    pub(crate) fn caller(&self) -> QuestionHandle {
        self.question_handle.clone()
    }

    pub(crate) const fn budget(&self) -> &RunBudget {
        &self.budget
    }

    /// The host has started and is working on the task.
    pub(crate) fn working(&mut self) {
        self.note(format!("{} is working on the task", self.label));
    }

    /// A progress note for people.
    pub(crate) fn note(&self, message: impl Into<String>) {
        self.events.progress(&AdapterProgress { message: Some(message.into()), ..AdapterProgress::default() });
    }

    /// The host can't reach its model and retries.
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

    /// The next output is a new message.
    pub(crate) fn next_message(&mut self) {
        self.begins = true;
    }

    fn retain(&mut self, text: &str) {
        // Anything not kept of the answer isn't streamed either.
        match self.said.push(text) {
            GatedText::All(text) => self.answer.push(text),
            GatedText::Last(text) => {
                self.answer.push(text);
                self.answer.flush();
                self.events.log("warning", "the answer is too long; the rest is neither kept nor shown");
            }
            GatedText::Nothing => {}
        }
    }

    pub(crate) fn push_thought(&mut self, text: &str) {
        if !text.is_empty() {
            self.answer.flush();
            self.thoughts.push(text);
        }
    }

    /// A tool call started or ended. A successful one means the host made progress after a denial.
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

    /// Records the run's usage so far. Returns true if the budget is used up, in which case the driver stops the host.
    #[must_use]
    pub(crate) fn set_usage(&mut self, usage: HostUsage) -> bool {
        let before = self.usage;
        self.usage.merge(usage);
        if self.usage != before {
            self.events.progress(&AdapterProgress { usage: Some(Json::of(&self.usage)), ..AdapterProgress::default() });
        }
        self.exceeded().is_some()
    }

    /// The exceeded limit, in words for people. `None` while budget is left.
    pub(crate) fn exceeded(&self) -> Option<String> {
        self.budget.exceeded_by(&self.usage)
    }

    /// Whether people denied a step and the host has made no progress since.
    pub(crate) fn was_denied(&self) -> bool {
        self.denied.iter().any(|denied| !denied.got_on)
    }

    /// Asks people. Pass the answer to [`Self::answered`], then to the host.
    pub(crate) fn ask<K>(&mut self, key: K, question: &ApprovalQuestion) -> OpenHostQuestion<K> {
        self.request(key, &question.as_step())
    }

    /// Asks people to approve the plan (Markdown).
    pub(crate) fn ask_for_plan<K>(&mut self, key: K, plan: &str) -> OpenHostQuestion<K> {
        self.request(key, &ApprovalQuestion::plan(plan))
    }

    fn request<K>(&mut self, key: K, question: &ApprovalQuestion) -> OpenHostQuestion<K> {
        self.answer.flush();
        self.thoughts.flush();
        self.questions += 1;
        let step = question.step();
        self.note(format!("waiting for approval: {step}"));
        let assured = self.is_walled.then_some(StepAssurance::Walled).into_iter().collect();
        let asked = question.to_request(format!("q{}", self.questions), self.cwd.clone(), assured);
        let question_handle = self.question_handle.clone();
        OpenHostQuestion { key, step, answer: async move { question_handle.permission(&asked).await.into() }.boxed() }
    }

    /// Asks the caller questions with options. Pass the answer to [`Self::answered`], then to the host.
    pub(crate) fn ask_to_choose<K>(&mut self, key: K, asked: Questionnaire) -> OpenHostQuestion<K> {
        self.answer.flush();
        self.thoughts.flush();
        self.note("waiting for an answer");
        let question_handle = self.question_handle.clone();
        let answer = async move {
            let given = question_handle.input(asked.prompt(), Some(asked.to_parts())).await;
            given.map_or(ApprovalAnswer::Stopped, |given| ApprovalAnswer::Chosen(asked.answers(&given)))
        };
        OpenHostQuestion { key, step: "a question".to_owned(), answer: answer.boxed() }
    }

    pub(crate) fn answered<K>(&mut self, answered: &KeyedAnswer<K>) {
        match &answered.answer {
            ApprovalAnswer::Allowed | ApprovalAnswer::Chosen(_) => self.note(format!("{} continues", self.label)),
            ApprovalAnswer::Denied { comment } => {
                self.note(format!("denied: {}", answered.step));
                self.denied.push(DeniedStep { step: answered.step.clone(), comment: comment.clone(), got_on: false });
            }
            ApprovalAnswer::Stopped => {}
        }
    }

    /// What the caller says while the host works. Files and data can't reach it then.
    pub(crate) fn said_by_caller(&self, parts: &Json) -> Option<String> {
        let text = AdapterInputAnswer::text(parts);
        if text.trim().is_empty() {
            self.log("warning", "only text reaches the agent while it works; the input was not delivered");
            return None;
        }
        Some(text)
    }

    /// A step refused by the host's own rules, without asking people.
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
