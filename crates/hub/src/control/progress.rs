//! A worker reports while it works; each member of its report becomes one event.

use attache_protocol::{
    Json, RunId,
    wire::{
        event::kind,
        run::{ProgressRequest, ProgressResponse, ReleaseRequest, Run},
        usage::Used,
    },
};
use attache_store::{
    Error as StoreError,
    record::{NewEvent, NewProgress, channel::Report},
};

use crate::{Error, Handle, Principal, Result, control::check, identity::Action};

const MAX_USAGE: usize = 16 * 1024;

impl Handle {
    pub async fn progress(&self, by: &Principal, run: RunId, request: ProgressRequest) -> Result<ProgressResponse> {
        let report = request.report.map(|seq| Report { source: None, seq });
        self.report(by, run, request, report).await
    }

    /// The same for a report that is counted otherwise, for example by the frames of a channel.
    pub(crate) async fn report(
        &self,
        by: &Principal,
        run: RunId,
        request: ProgressRequest,
        report: Option<Report>,
    ) -> Result<ProgressResponse> {
        by.may(Action::Work)?;
        let worker = by.worker(request.epoch)?;
        check_usage(request.usage.as_ref())?;
        let usage = request.usage.clone();
        let events = events(request)?;
        let lease = self.options().heartbeat_timeout;
        let progress = NewProgress { events, usage, report };
        match self.store().progress(worker, run, progress, lease, self.now()).await {
            Ok(status) => Ok(ProgressResponse { status }),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// Back to the queue without spending an attempt, before the work has begun.
    pub async fn release(&self, by: &Principal, run: RunId, request: ReleaseRequest) -> Result<Run> {
        by.may(Action::Work)?;
        let worker = by.worker(Some(request.epoch))?;
        match self.store().release(worker, run, self.now()).await {
            Ok(run) => self.show_run(run).await,
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// A store's error about a run, with the run as everybody sees it where the caller may know how it is.
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

/// A worker whose call came too late is told how the run is now; one that never held the run learns nothing.
pub(crate) fn worker_error(by: &Principal, error: StoreError) -> Error {
    match (&error, by.device()) {
        (StoreError::Refused { run, .. }, Ok((runtime, _))) if run.runtime != Some(runtime) => Error::not_found("run"),
        _ => Error::from_store("run", error),
    }
}

pub(crate) fn check_usage(usage: Option<&Json>) -> Result<()> {
    let Some(usage) = usage else { return Ok(()) };
    check::object("usage", usage, MAX_USAGE)?;
    match Used::read(usage) {
        Ok(_) => Ok(()),
        Err(uncountable) => Err(Error::invalid(uncountable.member, uncountable.problem)),
    }
}

fn events(request: ProgressRequest) -> Result<Vec<NewEvent>> {
    let mut events = Vec::new();
    if request.message.is_some() || request.percent.is_some() {
        let data = progress_data(request.message.as_deref(), request.percent)?;
        push(&mut events, "message", kind::PROGRESS, data)?;
    }
    if let Some(chunk) = request.chunk {
        push(&mut events, "chunk", kind::CHUNK, wrapped("chunk", "text", chunk)?)?;
    }
    if let Some(thought) = request.thought {
        push(&mut events, "thought", kind::THOUGHT, wrapped("thought", "text", thought)?)?;
    }
    if let Some(log) = request.log {
        push(&mut events, "log", kind::LOG, wrapped("log", "message", log)?)?;
    }
    if let Some(call) = request.tool_call {
        check::object("tool_call", &call, check::MAX_EVENT)?;
        push(&mut events, "tool_call", kind::TOOL_CALL, call)?;
    }
    Ok(events)
}

fn push(events: &mut Vec<NewEvent>, field: &str, kind: &'static str, data: Json) -> Result<()> {
    check::sized(field, &data, check::MAX_EVENT)?;
    events.push(NewEvent { kind, data });
    Ok(())
}

fn progress_data(message: Option<&str>, percent: Option<f64>) -> Result<Json> {
    let percent = match percent {
        None => "null".to_owned(),
        // A whole number stays one: people send 50, not 50.0.
        Some(percent) if (0.0..=100.0).contains(&percent) => percent.to_string(),
        Some(_) => return Err(Error::invalid("percent", "must be between 0 and 100")),
    };
    let message = Json::of(&message);
    raw(format!(r#"{{"message":{},"percent":{percent}}}"#, message.get()))
}

/// A string becomes the one member of an object; an object is kept byte for byte.
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
            r#"{"tool_call":{"b":1.0, "a":[]},"log":"hi","chunk":"a\nb","thought":{"text" : "x"},"percent":50,"message":"m"}"#,
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
            ]
        );
    }
}
