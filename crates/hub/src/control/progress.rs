//! A worker reports progress. Each member of its report becomes one event.

use std::collections::BTreeMap;

use attache_protocol::{
    Code, EventKind, Json, RunId,
    json::{Members, explain},
    rules::run::{FailureCode, RunStatus, WorkerRef},
    wire::{
        part::Part,
        run::{ProgressRequest, ProgressResponse, ReleaseRequest, Run},
        usage::ReportedUsage,
    },
};
use attache_store::{
    Error as StoreError,
    record::{NewEvent, NewProgress, RunResult, channel::ReportKey},
};

use crate::{Error, Handle, Principal, Result, check, disk_space::DiskUse, identity::Action};

const MAX_USAGE: usize = 16 * 1024;
/// Artifacts may be larger than messages.
const MAX_ARTIFACT: usize = 1 << 20;
const MAX_ARTIFACT_ID: usize = 200;

impl Handle {
    pub async fn progress(&self, by: &Principal, run: RunId, request: ProgressRequest) -> Result<ProgressResponse> {
        let report = request.report.map(|seq| ReportKey { source: None, seq });
        self.report(by, run, request, report).await
    }

    /// The same for reports with another deduplication key, such as the frame numbers of a channel.
    pub(crate) async fn report(
        &self,
        by: &Principal,
        run: RunId,
        request: ProgressRequest,
        report: Option<ReportKey>,
    ) -> Result<ProgressResponse> {
        let worker = by.may(Action::Work)?.worker(request.epoch)?;
        check_usage(request.usage.as_ref())?;
        let usage = request.usage.clone();
        let counts = usage.is_some();
        let events = events(request)?;
        // Workers then stop reporting and finish.
        if !events.is_empty() && DiskUse::Record.check(self.options()).is_err() {
            return Err(Error::new(
                Code::LogFull,
                "The hub's disk is almost full, so it doesn't store the progress of runs.",
            )
            .hint("`complete` and `fail` still work."));
        }
        let lease = self.options().heartbeat_timeout;
        let progress = NewProgress { events, usage, report };
        match self.store().progress(worker, run, progress, lease, self.now()).await {
            Ok(status) if counts && !status.is_terminal() => {
                Ok(ProgressResponse { status: self.hold_to_budget(by, worker, run).await?.unwrap_or(status) })
            }
            Ok(status) => Ok(ProgressResponse { status }),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// Fails a run that exceeds its own budget or an ancestor's, together with its child runs.
    async fn hold_to_budget(&self, by: &Principal, worker: WorkerRef, run: RunId) -> Result<Option<RunStatus>> {
        let Some(used) = self.over_budget_with_parts(by, run).await? else { return Ok(None) };
        let code = FailureCode::QuotaExceeded;
        let error = format!("The run and its child runs used {used}.");
        let result = Json::of(&BTreeMap::from([("error", error.as_str()), ("code", code.as_str())]));
        let ended = self.store().finish(worker, run, RunResult::Failed { code, result }, None, None, self.now()).await;
        match ended {
            Ok(status) => Ok(Some(status)),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// Returns the run to the queue without using an attempt, before any work is reported.
    pub async fn release(&self, by: &Principal, run: RunId, request: ReleaseRequest) -> Result<Run> {
        let worker = by.may(Action::Work)?.worker(Some(request.epoch))?;
        match self.store().release(worker, run, self.now()).await {
            Ok(run) => self.show_run(run).await,
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// Converts a store error about a run. Includes the run's current state if the caller may see it.
    pub(crate) async fn refusal(&self, by: &Principal, error: StoreError) -> Error {
        let record = match &error {
            StoreError::Refused { run, .. } => Some((**run).clone()),
            _ => None,
        };
        let mut error = worker_error(by, error);
        if let (Some(shown), Some(record)) = (&mut error.run, record)
            && let Ok(run) = self.show_run(record).await
        {
            **shown = run;
        }
        error
    }
}

/// A worker whose call came too late gets the run's current state. One that never held the run learns nothing.
pub(crate) fn worker_error(by: &Principal, error: StoreError) -> Error {
    match (&error, by.device()) {
        (StoreError::Refused { run, .. }, Ok((runtime, _))) if run.runtime != Some(runtime) => Error::not_found("run"),
        _ => Error::from_store("run", error),
    }
}

pub(crate) fn check_usage(usage: Option<&Json>) -> Result<()> {
    let Some(usage) = usage else { return Ok(()) };
    check::object("usage", usage, MAX_USAGE)?;
    match ReportedUsage::read(usage) {
        Ok(_) => Ok(()),
        Err(uncountable) => Err(Error::invalid(uncountable.member, uncountable.problem)),
    }
}

fn events(request: ProgressRequest) -> Result<Vec<NewEvent>> {
    let mut events = Vec::new();
    if request.message.is_some() || request.percent.is_some() {
        let data = progress_data(request.message.as_deref(), request.percent)?;
        push(&mut events, "message", EventKind::TaskProgress, data)?;
    }
    if let Some(chunk) = request.chunk {
        push(&mut events, "chunk", EventKind::TaskChunk, wrapped("chunk", "text", chunk)?)?;
    }
    if let Some(thought) = request.thought {
        push(&mut events, "thought", EventKind::TaskThought, wrapped("thought", "text", thought)?)?;
    }
    if let Some(log) = request.log {
        push(&mut events, "log", EventKind::TaskLog, wrapped("log", "message", log)?)?;
    }
    if let Some(call) = request.tool_call {
        check::object("tool_call", &call, check::MAX_EVENT)?;
        push(&mut events, "tool_call", EventKind::TaskToolCall, call)?;
    }
    if let Some(data) = request.artifact {
        check_artifact(&data)?;
        events.push(NewEvent { kind: EventKind::ArtifactChanged, data });
    }
    Ok(events)
}

/// Readers of the stream can show the artifact as A2A does. Its text is kept as sent.
fn check_artifact(given: &Json) -> Result<()> {
    check::object("artifact", given, MAX_ARTIFACT)?;
    let members: Members = given.parse().map_err(|_| Error::invalid("artifact", "must be a JSON object"))?;
    if !members.are_distinct() {
        return Err(Error::invalid("artifact", "contains a duplicate member"));
    }
    let Some(id) = members.text("artifact_id") else {
        return Err(Error::invalid("artifact.artifact_id", "must be a string"));
    };
    check::line("artifact.artifact_id", &id, 1..=MAX_ARTIFACT_ID)?;
    match members.find("parts").map(Json::parse::<Vec<Part>>) {
        None => return Err(Error::invalid("artifact.parts", "is missing")),
        Some(Ok(parts)) if parts.is_empty() => return Err(Error::invalid("artifact.parts", "must not be empty")),
        Some(Ok(_)) => {}
        Some(Err(error)) => {
            let why = format!("must be a list of A2A parts: {}", explain(&error));
            return Err(Error::invalid("artifact.parts", &why));
        }
    }
    optional::<String>(&members, "name", "must be a string")?;
    optional::<bool>(&members, "append", "must be true or false")?;
    optional::<bool>(&members, "last_chunk", "must be true or false")
}

fn optional<T: serde::de::DeserializeOwned>(members: &Members, name: &str, wanted: &str) -> Result<()> {
    match members.find(name).map(Json::parse::<T>) {
        Some(Err(_)) => Err(Error::invalid(&format!("artifact.{name}"), wanted)),
        Some(Ok(_)) | None => Ok(()),
    }
}

fn push(events: &mut Vec<NewEvent>, field: &str, kind: EventKind, data: Json) -> Result<()> {
    check::sized(field, &data, check::MAX_EVENT)?;
    events.push(NewEvent { kind, data });
    Ok(())
}

fn progress_data(message: Option<&str>, percent: Option<f64>) -> Result<Json> {
    let percent = match percent {
        None => "null".to_owned(),
        // A whole number stays one: 50, not 50.0.
        Some(percent) if (0.0..=100.0).contains(&percent) => percent.to_string(),
        Some(_) => return Err(Error::invalid("percent", "must be between 0 and 100")),
    };
    let message = Json::of(&message);
    raw(format!(r#"{{"message":{},"percent":{percent}}}"#, message.get()))
}

/// A string becomes the only member of an object. An object is kept byte for byte.
fn wrapped(field: &str, member: &str, given: Json) -> Result<Json> {
    match given.get().as_bytes().first() {
        Some(b'{') => Ok(given),
        Some(b'"') => raw(format!(r#"{{"{member}":{}}}"#, given.get())),
        _ => Err(Error::invalid(field, "must be a string or a JSON object")),
    }
}

fn raw(text: String) -> Result<Json> {
    Json::from_text(text).map_err(|error| Error::internal(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_become_events_in_order_and_objects_stay_as_they_are() {
        let request: ProgressRequest = serde_json::from_str(
            r#"{"artifact":{"artifact_id":"a","parts":[ {"data":{"n":42.0}}]},"tool_call":{"b":1.0, "a":[]},"log":"hi","chunk":"a\nb","thought":{"text" : "x"},"percent":50,"message":"m"}"#,
        )
        .unwrap();
        let shown: Vec<_> =
            events(request).unwrap().into_iter().map(|event| format!("{} {}", event.kind, event.data.get())).collect();
        assert_eq!(
            shown,
            [
                r#"task.progress {"message":"m","percent":50}"#,
                r#"task.chunk {"text":"a\nb"}"#,
                r#"task.thought {"text" : "x"}"#,
                r#"task.log {"message":"hi"}"#,
                r#"task.tool_call {"b":1.0, "a":[]}"#,
                r#"artifact.changed {"artifact_id":"a","parts":[ {"data":{"n":42.0}}]}"#,
            ]
        );
    }

    #[test]
    fn an_artifact_is_one_that_every_a2a_client_can_read() {
        let refused = |text: &str| check_artifact(&Json::from_text(text).unwrap()).unwrap_err().message.to_string();
        let long = format!(r#"{{"artifact_id":"{}","parts":[{{"text":""}}]}}"#, "x".repeat(201));
        for (given, message) in [
            ("[]", "`artifact` must be a JSON object."),
            (r#"{"parts":[{"text":""}]}"#, "`artifact.artifact_id` must be a string."),
            (r#"{"artifact_id":"","parts":[{"text":""}]}"#, "`artifact.artifact_id` must be 1 to 200 bytes long."),
            (
                r#"{"artifact_id":"a\nb","parts":[{"text":""}]}"#,
                "`artifact.artifact_id` must not contain control characters.",
            ),
            (long.as_str(), "`artifact.artifact_id` must be 1 to 200 bytes long."),
            (r#"{"artifact_id":"a"}"#, "`artifact.parts` is missing."),
            (r#"{"artifact_id":"a","parts":[]}"#, "`artifact.parts` must not be empty."),
            (
                r#"{"artifact_id":"a","parts":[{"text":"t","url":"u"}]}"#,
                "`artifact.parts` must be a list of A2A parts: a part can have only one of `text`, `raw`, `url` and `data`.",
            ),
            (
                r#"{"artifact_id":"a","artifact_id":"b","parts":[{"text":""}]}"#,
                "`artifact` contains a duplicate member.",
            ),
            (r#"{"artifact_id":"a","parts":[{"text":""}],"append":1}"#, "`artifact.append` must be true or false."),
            (r#"{"artifact_id":"a","parts":[{"text":""}],"name":null}"#, "`artifact.name` must be a string."),
        ] {
            assert_eq!(refused(given), message, "{given}");
        }
        let large = format!(r#"{{"artifact_id":"a","parts":[{{"text":"{}"}}]}}"#, "x".repeat(MAX_ARTIFACT));
        assert_eq!(refused(&large), "`artifact` is larger than 1048576 bytes.");
    }
}
