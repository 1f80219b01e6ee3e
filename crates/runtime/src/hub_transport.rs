//! Sends reports to the hub, over the channel while it is open and over HTTP otherwise. Both carry the same content, so
//! the first to arrive counts and the other changes nothing.

use std::time::Duration;

use attache_client::{Error, HubClient, channel::ChannelHandle};
use attache_protocol::{
    Json, RunId,
    json::Members,
    wire::{
        envelope::{Chunk, Done, Fail, FrameType, Log, MAX_FRAME, Progress, Release, Think},
        run::{CompleteRequest, FailRequest, ProgressRequest, ProgressResponse},
    },
};
use serde::Deserialize;
use tokio::time::timeout;

use crate::ledger::ExecutionOutcome;

/// The two transports to the hub.
#[derive(Debug, Clone)]
pub(crate) struct HubTransport {
    pub(crate) hub: HubClient,
    pub(crate) channel: Option<ChannelHandle>,
}

/// How long to wait for the channel before HTTP is used: the connection may be broken without either side noticing.
const CHANNEL_SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// Leaves room for the rest of the frame.
const MAX_PAYLOAD: usize = MAX_FRAME - (16 << 10);

// === impl HubTransport ===

impl HubTransport {
    /// The channel, if it is open now.
    pub(crate) fn open(&self) -> Option<&ChannelHandle> {
        self.channel.as_ref().filter(|channel| channel.is_connected())
    }

    /// The channel, open or not, for a payload that fits into a frame. For a larger one, the hub couldn't say which one
    /// it refuses.
    pub(crate) fn channel_for(&self, payload: &Json) -> Option<&ChannelHandle> {
        self.channel.as_ref().filter(|_| payload.get().len() <= MAX_PAYLOAD)
    }

    /// Sends one report. Returns the run's state if the transport reports it.
    pub(crate) async fn progress(
        &self,
        run: RunId,
        request: &ProgressRequest,
    ) -> Result<Option<ProgressResponse>, Error> {
        if let (Some(channel), Some((kind, payload))) = (self.open(), frame(run, request)) {
            match timeout(CHANNEL_SEND_TIMEOUT, channel.send_and_confirm(kind, payload)).await {
                Ok(Ok(())) => return Ok(None),
                Ok(Err(error)) if !is_disconnect(&error) => return Err(error),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        self.hub.progress(run, request).await.map(Some)
    }

    pub(crate) async fn finish(&self, run: RunId, epoch: i64, outcome: &ExecutionOutcome) -> Result<(), Error> {
        let payload = match outcome.clone() {
            ExecutionOutcome::Completed { output, usage, inputs_taken } => Done {
                task_run_id: run,
                epoch,
                result_summary: None,
                artifact_refs: None,
                usage_stats: usage,
                output: Some(output),
                inputs_taken,
            }
            .payload(),
            ExecutionOutcome::Failed { output, usage, inputs_taken } => Fail {
                task_run_id: run,
                epoch,
                error: None,
                code: None,
                usage_stats: usage,
                output: Some(output),
                inputs_taken,
            }
            .payload(),
        };
        if let Some(answer) = self.ask(payload).await {
            return answer.map(drop);
        }
        let epoch = Some(epoch);
        match outcome.clone() {
            ExecutionOutcome::Completed { output, usage, inputs_taken } => {
                self.hub.complete(run, &CompleteRequest { epoch, output, usage, inputs_taken }).await.map(drop)
            }
            ExecutionOutcome::Failed { output, usage, inputs_taken } => {
                self.hub.fail(run, &FailRequest { epoch, output, usage, inputs_taken }).await.map(drop)
            }
        }
    }

    pub(crate) async fn release(&self, run: RunId, epoch: i64) -> Result<(), Error> {
        match self.ask(Release { task_run_id: run, epoch }.payload()).await {
            Some(answer) => answer.map(drop),
            None => self.hub.release(run, epoch).await,
        }
    }

    /// A request that is answered immediately. `None` if it must be sent over HTTP.
    async fn ask(&self, payload: Json) -> Option<Result<Json, Error>> {
        let channel = self.channel_for(&payload).filter(|channel| channel.is_connected())?;
        let answer = timeout(CHANNEL_SEND_TIMEOUT, channel.request(None, payload)).await.ok()?;
        match answer {
            Err(error) if is_disconnect(&error) => None,
            answer => Some(answer),
        }
    }
}

/// The connection broke: the hub may or may not have received the request.
pub(crate) fn is_disconnect(error: &Error) -> bool {
    !matches!(error, Error::Refused(_))
}

/// The report as a frame. `None` if no frame can carry it.
fn frame(task_run_id: RunId, request: &ProgressRequest) -> Option<(FrameType, Json)> {
    #[derive(Deserialize)]
    struct TextMember {
        text: Json,
    }
    #[derive(Deserialize)]
    struct LogMember {
        level: Option<String>,
        message: Json,
    }
    let (epoch, report) = (request.epoch?, request.report);
    let ProgressRequest { message, percent, chunk, thought, log, tool_call, artifact, usage, .. } = request;
    let is_progress = message.is_some() || percent.is_some() || usage.is_some() || artifact.is_some();
    if artifact.as_ref().is_some_and(|artifact| artifact.get().len() > MAX_PAYLOAD) {
        return None;
    }
    let items = usize::from(is_progress) + [chunk, thought, log, tool_call].into_iter().flatten().count();
    if items != 1 {
        return None;
    }
    if let Some(chunk) = chunk {
        let TextMember { text } = chunk.parse().ok()?;
        return Some((FrameType::Chunk, Chunk { task_run_id, epoch, text, report }.payload()));
    }
    let payload = if let Some(thought) = thought {
        let TextMember { text: thought_text } = thought.parse().ok()?;
        Think { task_run_id, epoch, thought_text, report }.payload()
    } else if let Some(log) = log {
        let LogMember { level, message } = log.parse().ok()?;
        // A frame has only these two members. Anything else is sent unchanged over HTTP.
        if !message.get().starts_with('"') || members(log) > 1 + usize::from(level.is_some()) {
            return None;
        }
        Log { task_run_id, epoch, level, message, report }.payload()
    } else if is_progress {
        let (message, percent, usage_stats, artifact) = (message.clone(), *percent, usage.clone(), artifact.clone());
        Progress { task_run_id, epoch, message, percent, usage_stats, artifact, report }.payload()
    } else {
        return None;
    };
    Some((FrameType::Notification, payload))
}

fn members(json: &Json) -> usize {
    json.parse::<Members>().map_or(0, |members| members.0.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(request: &str) -> Option<(FrameType, String)> {
        let run = "run_00000000000000000000000000000001".parse().unwrap();
        let request: ProgressRequest = serde_json::from_str(request).unwrap();
        frame(run, &request).map(|(kind, payload)| (kind, payload.get().to_owned()))
    }

    #[test]
    fn a_report_keeps_its_content_and_number_as_a_frame() {
        let head = r#""task_run_id":"run_00000000000000000000000000000001","epoch":2"#;
        for (request, kind, expected) in [
            (
                r#"{"epoch":2,"report":7,"chunk":{"text":"\u00e9"}}"#,
                FrameType::Chunk,
                format!(r#"{{"action":"chunk",{head},"text":"\u00e9","report":7}}"#),
            ),
            (
                r#"{"epoch":2,"report":8,"thought":{"text":"hm"}}"#,
                FrameType::Notification,
                format!(r#"{{"action":"think",{head},"thought_text":"hm","report":8}}"#),
            ),
            (
                r#"{"epoch":2,"report":9,"log":{"level":"warning","message":"m"}}"#,
                FrameType::Notification,
                format!(r#"{{"action":"log",{head},"level":"warning","message":"m","report":9}}"#),
            ),
            (
                r#"{"epoch":2,"report":10,"message":"m","percent":5.5}"#,
                FrameType::Notification,
                format!(r#"{{"action":"progress",{head},"message":"m","percent":5.5,"report":10}}"#),
            ),
            (
                r#"{"epoch":2,"report":11,"usage":{"tokens":1.50}}"#,
                FrameType::Notification,
                format!(r#"{{"action":"progress",{head},"usage_stats":{{"tokens":1.50}},"report":11}}"#),
            ),
            (
                r#"{"epoch":2,"report":12,"artifact":{"artifact_id":"a","parts":[{"data":1.50}]}}"#,
                FrameType::Notification,
                format!(
                    r#"{{"action":"progress",{head},"artifact":{{"artifact_id":"a","parts":[{{"data":1.50}}]}},"report":12}}"#
                ),
            ),
        ] {
            assert_eq!(told(request), Some((kind, expected)));
        }
    }

    #[test]
    fn reports_without_a_frame_are_sent_over_http() {
        for request in [
            r#"{"epoch":2,"tool_call":{"name":"x"}}"#,
            r#"{"epoch":2,"log":{"level":"info","message":"m","more":1}}"#,
            r#"{"epoch":2,"log":"plain"}"#,
            r#"{"epoch":2,"message":"m","chunk":{"text":"two at once"}}"#,
        ] {
            assert_eq!(told(request), None, "{request}");
        }
    }
}
