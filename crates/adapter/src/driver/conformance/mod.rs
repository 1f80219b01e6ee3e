//! The agent expected by the public A2A conformance kits: the message id, or the start of its text, selects the
//! behaviour.

mod behaviour;

use std::time::Duration;

use attache_a2a_wire::{Message, Part, PartContent};
use attache_protocol::{
    Json,
    wire::{
        adapter::{AdapterPermissionRequest, ArtifactChange, HostInfo, TaskOutput, TaskReply},
        run::{OutputArtifact, OutputMessage, OutputReply},
    },
};
use futures_util::{FutureExt as _, future::BoxFuture};
use serde::Deserialize;

use self::behaviour::{ConformanceBehaviour, ConformanceOutput};
use super::{Driver, DriverRun};

/// Behaves as the kits expect, for callers of A2A 1.0 and 0.3.
#[derive(Debug, Clone)]
pub struct ConformanceDriver {
    /// The kits' `TCK_STREAMING_TIMEOUT`: how long a slow behaviour takes.
    pub streaming_timeout: Duration,
    /// How long a question stays open. The kits leave most of them unanswered.
    pub answer_timeout: Duration,
}

/// The input of an A2A call. A plain task only has text.
#[derive(Debug, Default, Deserialize)]
struct ConformanceInput {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    message: Option<Json>,
    #[serde(default)]
    a2a_version: Option<String>,
}

/// One task from a kit.
struct ConformanceTask {
    job: DriverRun,
    pace: ConformanceDriver,
}

/// The caller's answer to a question.
struct ConformanceAnswer {
    named: Option<ConformanceBehaviour>,
    text: String,
}

const GREETING: &str = "Hello from TCK";
const INPUT_PROMPT: &str = "More input is needed.";
const DONE: &str = "done";

// === impl ConformanceDriver ===

impl Default for ConformanceDriver {
    fn default() -> Self {
        Self { streaming_timeout: Duration::from_secs(2), answer_timeout: Duration::from_secs(120) }
    }
}

impl Driver for ConformanceDriver {
    fn host(&self) -> HostInfo {
        HostInfo { kind: "conformance".to_owned(), version: Some(env!("CARGO_PKG_VERSION").to_owned()) }
    }

    fn run(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        let play = ConformanceTask { job, pace: self.clone() };
        async move {
            let stop = play.job.stop.clone();
            tokio::select! {
                reply = play.run_behaviour() => reply,
                () = stop.cancelled() => TaskReply::failed("cancelled", "the run was stopped"),
            }
        }
        .boxed()
    }
}

// === impl ConformanceInput ===

impl ConformanceInput {
    fn read(input: &Json) -> Self {
        input.parse().unwrap_or_default()
    }

    /// Selected by the message id, else by the start of the text, else by the version.
    fn behaviour(&self) -> ConformanceBehaviour {
        let message = self.message.as_ref().and_then(|message| message.parse::<Message>().ok());
        let by_id = message.as_ref().and_then(|message| ConformanceBehaviour::named(&message.message_id));
        let said = message.as_ref().and_then(|message| first_text(&message.parts)).or(self.text.as_deref());
        let by_text = || said.and_then(ConformanceBehaviour::named);
        by_id.or_else(by_text).unwrap_or(match self.a2a_version.as_deref() {
            Some("0.3") => ConformanceBehaviour::KeepAsking,
            _ => ConformanceBehaviour::Complete,
        })
    }
}

fn first_text(parts: &[Part]) -> Option<&str> {
    parts.iter().find_map(|part| match &part.content {
        PartContent::Text(text) => Some(text.as_str()),
        PartContent::Raw(_) | PartContent::Url(_) | PartContent::Data(_) => None,
    })
}

// === impl ConformanceTask ===

impl ConformanceTask {
    async fn run_behaviour(&self) -> TaskReply {
        match ConformanceInput::read(&self.job.task.input).behaviour() {
            ConformanceBehaviour::Complete => completed_with(GREETING),
            ConformanceBehaviour::CompleteQuietly => done(TaskOutput::default()),
            ConformanceBehaviour::Message => {
                done(TaskOutput { reply: Some(OutputReply::Message), ..text_output("Direct message response") })
            }
            ConformanceBehaviour::Make(made) => {
                let artifact = OutputArtifact {
                    artifact_id: Some(made.id().to_owned()),
                    name: Some(made.name().to_owned()),
                    parts: vec![made.part()],
                };
                done(TaskOutput { artifacts: vec![artifact], ..TaskOutput::default() })
            }
            ConformanceBehaviour::Stream(made) => {
                self.show(made, false, true);
                done(TaskOutput::default())
            }
            ConformanceBehaviour::StreamPieces(pieces) => {
                for (place, made) in pieces.iter().enumerate() {
                    self.show(*made, place > 0, place + 1 == pieces.len());
                }
                done(TaskOutput::default())
            }
            ConformanceBehaviour::Linger => {
                tokio::time::sleep(self.pace.streaming_timeout * 2).await;
                done(TaskOutput::default())
            }
            ConformanceBehaviour::TakeTime => {
                tokio::time::sleep(self.pace.streaming_timeout).await;
                self.show(ConformanceOutput::LongRunning, false, true);
                completed_with("The long task is done.")
            }
            ConformanceBehaviour::UntilCancelled => std::future::pending().await,
            ConformanceBehaviour::AskOnce => self.ask_until(|_| true).await,
            ConformanceBehaviour::AskUntilDone => {
                self.ask_until(|text| text.to_ascii_lowercase().starts_with(DONE)).await
            }
            ConformanceBehaviour::KeepAsking => self.keep_asking().await,
            ConformanceBehaviour::AskPermission => self.ask_permission().await,
            ConformanceBehaviour::Reject => TaskReply::failed("rejected", "rejected"),
            ConformanceBehaviour::Fail => TaskReply::failed("task_failed", "The task failed as requested."),
        }
    }

    fn show(&self, made: ConformanceOutput, append: bool, last_chunk: bool) {
        self.job.events.artifact(&ArtifactChange {
            artifact_id: made.id().to_owned(),
            name: Some(made.name().to_owned()),
            parts: vec![made.part()],
            append,
            last_chunk,
        });
    }

    /// Asks for input until the answer is sufficient. An answer that names another behaviour switches to it.
    async fn ask_until(&self, enough: impl Fn(&str) -> bool) -> TaskReply {
        loop {
            let Some(ConformanceAnswer { named, text }) = self.ask().await else { return self.nobody_answered() };
            match named {
                Some(ConformanceBehaviour::AskOnce | ConformanceBehaviour::AskUntilDone) => {}
                Some(ConformanceBehaviour::Reject) => return TaskReply::failed("rejected", "rejected"),
                Some(_) => return completed_with(GREETING),
                None if enough(&text) => return completed_with(GREETING),
                None => {}
            }
        }
    }

    /// The 0.3 kit needs a task that stays alive: it works for a while, asks, and repeats that after every answer.
    async fn keep_asking(&self) -> TaskReply {
        loop {
            tokio::time::sleep(self.pace.streaming_timeout).await;
            if self.ask().await.is_none() {
                return self.nobody_answered();
            }
        }
    }

    async fn ask(&self) -> Option<ConformanceAnswer> {
        let given =
            tokio::time::timeout(self.pace.answer_timeout, self.job.question_handle.message(INPUT_PROMPT, None))
                .await
                .ok()??;
        let parts: Vec<Part> = given.parts.parse().unwrap_or_default();
        let text = first_text(&parts).unwrap_or_default().trim().to_owned();
        let message = given.message.and_then(|message| message.parse::<Message>().ok());
        let by_id = message.and_then(|message| ConformanceBehaviour::named(&message.message_id));
        Some(ConformanceAnswer { named: by_id.or_else(|| ConformanceBehaviour::named(&text)), text })
    }

    fn nobody_answered(&self) -> TaskReply {
        let message = format!("no answer within {} seconds", self.pace.answer_timeout.as_secs());
        TaskReply::failed("task_failed", message)
    }

    async fn ask_permission(&self) -> TaskReply {
        let asked = AdapterPermissionRequest {
            reason: Some("The conformance kit needs a task that waits for authorization.".to_owned()),
            risk: Some("low".to_owned()),
            ..AdapterPermissionRequest::new("tck", "conformance", Json::empty_object())
        };
        match tokio::time::timeout(self.pace.answer_timeout, self.job.question_handle.permission(&asked)).await {
            Ok(Some(given)) if given.approved => completed_with(GREETING),
            Ok(_) => TaskReply::failed("permission_denied", "the permission was denied"),
            Err(_) => self.nobody_answered(),
        }
    }
}

fn text_output(text: &str) -> TaskOutput {
    let message = OutputMessage { parts: vec![Part::text(text)] };
    TaskOutput { text: text.to_owned(), message: Some(message), ..TaskOutput::default() }
}

fn completed_with(text: &str) -> TaskReply {
    done(text_output(text))
}

fn done(output: TaskOutput) -> TaskReply {
    TaskReply::done(&output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(input: &str) -> ConformanceBehaviour {
        ConformanceInput::read(&Json::from_text(input).unwrap()).behaviour()
    }

    fn message(id: &str, text: &str, version: &str) -> ConformanceBehaviour {
        picked(&format!(
            r#"{{"text":"{text}","a2a_version":"{version}","message":{{"messageId":"{id}","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}"#
        ))
    }

    #[test]
    fn the_id_wins_over_the_text_and_the_longest_name_wins() {
        assert_eq!(
            message("tck-artifact-file-url-1f", "x", "1.0"),
            ConformanceBehaviour::Make(ConformanceOutput::FileUrl)
        );
        assert_eq!(message("tck-artifact-file-1f", "x", "1.0"), ConformanceBehaviour::Make(ConformanceOutput::File));
        assert_eq!(message("tck-reject-task-1f", "tck-cancel now", "1.0"), ConformanceBehaviour::Reject);
        assert_eq!(message("0b6c", "tck-multi-turn start", "1.0"), ConformanceBehaviour::AskUntilDone);
        assert_eq!(message("test-resubscribe-message-id-7", "x", "0.3"), ConformanceBehaviour::Linger);
        assert_eq!(message("0b6c", "x", "1.0"), ConformanceBehaviour::Complete);
        assert_eq!(message("0b6c", "x", "0.3"), ConformanceBehaviour::KeepAsking);
        assert_eq!(picked(r#"{"text":" tck-task-failure "}"#), ConformanceBehaviour::Fail);
        assert_eq!(picked(r#"{"text":"x"}"#), ConformanceBehaviour::Complete);
        assert_eq!(picked(r#""odd""#), ConformanceBehaviour::Complete);
    }
}
