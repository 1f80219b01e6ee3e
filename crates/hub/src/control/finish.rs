//! A worker completes or fails its run.

use attache_protocol::{
    ArtifactId, InputId, Json, RunId,
    json::Members,
    rules::run::FailureCode,
    wire::run::{CompleteRequest, FailRequest, FinishResponse},
};
use attache_store::record::RunResult;
use serde::Deserialize;

use crate::{
    Error, Handle, Principal, Result, check,
    control::{progress::check_usage, usage_limit::CONTINUED_BY},
    identity::Action,
};

const MAX_OUTPUT: usize = 4 << 20;
const MAX_ARTIFACTS: usize = 1000;
const MAX_INPUTS_TAKEN: usize = 10_000;

impl Handle {
    pub async fn complete(&self, by: &Principal, run: RunId, request: CompleteRequest) -> Result<FinishResponse> {
        check::object("output", &request.output, MAX_OUTPUT)?;
        let artifacts = artifacts(&request.output)?;
        let outcome = RunResult::Completed { output: request.output, artifacts };
        self.finish(by, run, request.epoch, outcome, (request.usage, request.inputs_taken)).await
    }

    pub async fn fail(&self, by: &Principal, run: RunId, request: FailRequest) -> Result<FinishResponse> {
        check::object("output", &request.output, MAX_OUTPUT)?;
        let (code, result) = failure(&request.output)?;
        let outcome = match code {
            FailureCode::UsageLimit => self.met_limit(by, run, request.epoch, result, request.usage.as_ref()).await?,
            _ => RunResult::Failed { code, result },
        };
        self.finish(by, run, request.epoch, outcome, (request.usage, request.inputs_taken)).await
    }

    async fn finish(
        &self,
        by: &Principal,
        run: RunId,
        epoch: Option<i64>,
        outcome: RunResult,
        (usage, inputs_taken): (Option<Json>, Option<Vec<InputId>>),
    ) -> Result<FinishResponse> {
        let worker = by.may(Action::Work)?.worker(epoch)?;
        check_usage(usage.as_ref())?;
        if inputs_taken.as_ref().is_some_and(|taken| taken.len() > MAX_INPUTS_TAKEN) {
            return Err(Error::invalid("inputs_taken", "must have at most 10000 entries"));
        }
        let status = match self.store().finish(worker, run, outcome, usage, inputs_taken, self.now()).await {
            Ok(status) => status,
            Err(error) => return Err(self.refusal(by, error).await),
        };
        self.metrics().runs_finished.add(1);
        Ok(FinishResponse { task_run_id: run, status })
    }
}

/// The artifacts referenced by the output. Other references are the worker's own and are kept as sent.
fn artifacts(output: &Json) -> Result<Vec<ArtifactId>> {
    #[derive(Deserialize)]
    struct FailOutput {
        #[serde(default)]
        artifact_refs: Option<Vec<Json>>,
    }
    if !output.get().contains("artifact_refs") {
        return Ok(Vec::new());
    }
    let output: FailOutput = output.parse().map_err(|_| Error::invalid("output.artifact_refs", "must be an array"))?;
    let refs = output.artifact_refs.unwrap_or_default();
    if refs.len() > MAX_ARTIFACTS {
        return Err(Error::invalid("output.artifact_refs", "must have at most 1000 entries"));
    }
    let mut ids = Vec::with_capacity(refs.len());
    for entry in refs {
        let Ok(text) = entry.parse::<String>() else { continue };
        if !text.starts_with(ArtifactId::PREFIX) {
            continue;
        }
        let id = text.parse().map_err(|_| Error::invalid("output.artifact_refs", "contains an invalid id"))?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// `{"error","code","native_code"?}` and any other members the worker sent.
fn failure(output: &Json) -> Result<(FailureCode, Json)> {
    let members: Members = output.parse().map_err(|_| Error::invalid("output", "must be a JSON object"))?;
    let said = members.find("code").and_then(|code| code.parse::<String>().ok());
    let known = said.as_deref().and_then(FailureCode::from_text);
    let code = known.unwrap_or(FailureCode::TaskFailed);
    let native = said.filter(|_| known.is_none());
    let error = match members.find("error") {
        Some(error) if error.get().starts_with('"') => error.clone(),
        // A value that is not a string is still better than nothing.
        Some(error) if error.get() != "null" => Json::of(error.get()),
        Some(_) | None => Json::of(code.message()),
    };
    let mut text = format!(r#"{{"error":{},"code":"{}""#, error.get(), code.as_str());
    let mut add = |key: &str, value: &str| {
        text.push(',');
        text.push_str(Json::of(key).get());
        text.push(':');
        text.push_str(value);
    };
    if let Some(native) = &native {
        add("native_code", Json::of(native).get());
    }
    for (key, value) in &members.0 {
        let ours =
            matches!(key.as_str(), "error" | "code" | CONTINUED_BY) || (key == "native_code" && native.is_some());
        if !ours {
            add(key, value.get());
        }
    }
    text.push('}');
    Ok((code, Json::from_text(text).map_err(|error| Error::internal(&error))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(output: &str) -> (FailureCode, String) {
        let (code, result) = failure(&Json::from_text(output).unwrap()).unwrap();
        (code, result.get().to_owned())
    }

    #[test]
    fn a_failure_keeps_the_workers_message() {
        assert_eq!(
            failed(r#"{"exit":1.0,"code":"host_crashed","error":"no","continued_by":"run_1"}"#),
            (FailureCode::HostCrashed, r#"{"error":"no","code":"host_crashed","exit":1.0}"#.to_owned())
        );
        assert_eq!(
            failed(r#"{"error":"no","code":"E42","x":{ }}"#),
            (FailureCode::TaskFailed, r#"{"error":"no","code":"task_failed","native_code":"E42","x":{ }}"#.to_owned())
        );
        assert_eq!(
            failed(r#"{"error":{"a":1}}"#),
            (FailureCode::TaskFailed, r#"{"error":"{\"a\":1}","code":"task_failed"}"#.to_owned())
        );
        assert_eq!(
            failed("{}"),
            (FailureCode::TaskFailed, r#"{"error":"The run failed.","code":"task_failed"}"#.to_owned())
        );
    }

    #[test]
    fn only_artifact_ids_are_checked() {
        let output = |refs: &str| Json::from_text(format!(r#"{{"artifact_refs":{refs}}}"#)).unwrap();
        let id = "art_00000000000000000000000000000007";
        assert_eq!(
            artifacts(&output(&format!(r#"["{id}","{id}",{{"path":"x"}},"report.md"]"#))).unwrap(),
            [id.parse().unwrap()]
        );
        assert!(artifacts(&output(r#"["art_x"]"#)).is_err());
        assert!(artifacts(&output("7")).is_err());
    }
}
