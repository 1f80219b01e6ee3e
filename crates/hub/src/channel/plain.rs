//! The plain frames of 004: `{"type","task_id","data"}`, for clients that request no subprotocol. They carry no epoch
//! and no seq: a task is fenced by the epoch of its claim, and a written frame counts as received.

use attache_protocol::{
    AgentId, Code, Json, RunId,
    rules::run::RunPhase,
    wire::{
        envelope::{ExecuteFrame, FrameError, FrameObject, MAX_FRAME, Register},
        run::{CompleteRequest, FailRequest, ProgressRequest},
    },
};
use attache_store::record::{ClaimedRunRecord, channel::OutboxFrame};
use uuid::Uuid;

use super::{
    frame_text::{self, FrameAddress},
    response::FrameRefusal,
    session::ChannelSession,
};
use crate::{Error, Handle, Principal, Result, error::about, start_secrets::InputRecipient};

/// The prefix of a run's id in the call API.
const CALL: &str = "a2a-";

// === impl ChannelSession ===

impl ChannelSession {
    /// Connecting registers the client and grants one credit.
    pub(crate) async fn begin_plain(&mut self) -> std::result::Result<(), FrameRefusal> {
        let Some(by) = self.principal.clone() else { return Ok(()) };
        let (_, agent) = by.device()?;
        let token = attache_protocol::secret::Kind::Resume.generate(self.hub.env());
        let register = Register {
            peer_role: None,
            capabilities: None,
            tools: None,
            device_info: None,
            running: None,
            extensions: None,
        };
        self.open_channel(&by, self.hub.env().channel_id(), register, token.hash()).await?;
        self.grant(agent, 1);
        Ok(())
    }

    pub(super) async fn receive_plain(&mut self, text: &str) -> Option<String> {
        match self.hear_plain(text).await {
            Ok(reply) => reply,
            Err((task, refusal)) => {
                let refusal =
                    FrameRefusal { field: refusal.field.map(|field| field.replace("payload.", "data.")), ..refusal };
                Some(refused(task.as_deref(), &refusal))
            }
        }
    }

    async fn hear_plain(&mut self, text: &str) -> std::result::Result<Option<String>, (Option<String>, FrameRefusal)> {
        let nameless = |refusal: FrameRefusal| (None, refusal);
        if text.len() > MAX_FRAME {
            let message = "A frame can have at most 1 MiB. Upload larger data as an artifact and send its id.";
            return Err(nameless(FrameRefusal::new(Code::TooLarge, message)));
        }
        if attache_protocol::json::depth(text.as_bytes()) > attache_protocol::json::MAX_DEPTH {
            return Err(nameless(FrameRefusal::new(Code::TooDeep, "The frame is nested too deeply.")));
        }
        let Some(by) = self.principal.clone() else { return Ok(None) };
        let by = self.recheck(&by).await.map_err(nameless)?;
        let frame = FrameObject::read("", text).map_err(|error| nameless(error.into()))?;
        let kind = frame.required::<String>("type").map_err(|error| nameless(error.into()))?;
        match kind.as_str() {
            "ping" => return Ok(Some(r#"{"type":"pong"}"#.to_owned())),
            "pong" => return Ok(None),
            _ => {}
        }
        let task = frame.required::<String>("task_id").map_err(|error| nameless(error.into()))?;
        let named = |refusal: FrameRefusal| (Some(task.chars().take(80).collect()), refusal);
        let said = match kind.as_str() {
            "progress" | "result" | "error" => frame.object("data").map_err(FrameRefusal::from).map_err(named)?,
            other => {
                let shown: String = other.chars().take(40).collect();
                let why = format!("is `{shown}`; it must be `progress`, `result`, `error`, `ping` or `pong`");
                return Err(named(FrameError::wrong("type", why).into()));
            }
        };
        let data = said.ok_or_else(|| named(FrameRefusal::missing("data")))?;
        let run = task_id(&task).ok_or_else(|| named(FrameRefusal::wrong("task_id", "is not a task id")))?;
        let reported = self.report_plain(&by, run, &kind, &data).await;
        // The client is free even if its report came too late.
        let over = match &reported {
            Ok(()) => true,
            Err(refusal) => [Code::RunEnded, Code::StaleEpoch].iter().any(|code| code.as_str() == refusal.code),
        };
        if over
            && kind != "progress"
            && let Ok((_, agent)) = by.device()
        {
            self.ended_plain(run, agent);
        }
        reported.map(|()| None).map_err(named)
    }

    async fn report_plain(
        &self,
        by: &Principal,
        run: RunId,
        kind: &str,
        data: &FrameObject<'_>,
    ) -> std::result::Result<(), FrameRefusal> {
        let epoch = Some(self.epoch_of(by, run).await?);
        match kind {
            "progress" => {
                let share = data.optional::<f64>("progress")?;
                if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                    return Err(FrameRefusal::wrong("data.progress", "must be between 0 and 1"));
                }
                // Round away floating-point noise of the multiplication.
                let percent = share.map(|share| (share * 1e8).round() / 1e6);
                let message = data.optional::<String>("goal")?;
                let usage = usage(data)?;
                let artifact = data.optional("artifact")?;
                let request =
                    ProgressRequest { epoch, message, percent, usage, artifact, ..ProgressRequest::default() };
                self.hub.progress(by, run, request).await?;
            }
            "result" => {
                let summary = data.raw("summary").ok_or_else(|| FrameRefusal::missing("data.summary"))?;
                if !summary.starts_with('"') {
                    return Err(FrameRefusal::wrong("data.summary", "must be a string"));
                }
                let details = data.raw("details").unwrap_or("null");
                let mut output = format!(r#"{{"text":{summary},"details":{details}"#);
                for name in ["message", "artifacts", "reply"] {
                    if let Some(value) = data.raw(name) {
                        output.push_str(&format!(r#","{name}":{value}"#));
                    }
                }
                output.push('}');
                let output = Json::from_text(output).map_err(|error| Error::internal(&error))?;
                let usage = usage(data)?;
                self.hub.complete(by, run, CompleteRequest { epoch, output, usage, inputs_taken: None }).await?;
            }
            _ => {
                let error = data.raw("error").unwrap_or("null");
                let code = data.raw("code").filter(|code| code.starts_with('"'));
                let code = code.map(|code| format!(r#","code":{code}"#)).unwrap_or_default();
                let output = format!(r#"{{"error":{error}{code}}}"#);
                let output = Json::from_text(output).map_err(|error| Error::internal(&error))?;
                let usage = usage(data)?;
                self.hub.fail(by, run, FailRequest { epoch, output, usage, inputs_taken: None }).await?;
            }
        }
        Ok(())
    }

    /// The epoch of the task's claim, made over this connection or over one whose claims moved to it.
    async fn epoch_of(&self, by: &Principal, run: RunId) -> std::result::Result<i64, FrameRefusal> {
        let open = self.open.as_deref();
        let known = open.and_then(|open| open.epochs.iter().find(|(known, _)| *known == run));
        if let Some((_, epoch)) = known {
            return Ok(*epoch);
        }
        let (runtime, _) = by.device()?;
        let record = self.hub.store().run(by.tenant, run).await.map_err(about("task"))?;
        match &record.state.phase {
            RunPhase::Running(claim) if claim.runtime == runtime => Ok(record.state.epoch),
            RunPhase::Ended { .. } if record.runtime == Some(runtime) => Ok(record.state.epoch),
            RunPhase::Running(_) | RunPhase::Pending { .. } | RunPhase::Deferred { .. } | RunPhase::Ended { .. } => {
                Err(Error::not_found("task").into())
            }
        }
    }

    /// The end of a task grants a credit for the next. A repeated result grants none.
    fn ended_plain(&mut self, run: RunId, agent: AgentId) {
        let Some(open) = &mut self.open else { return };
        let before = open.epochs.len();
        open.epochs.retain(|(known, _)| *known != run);
        if open.epochs.len() < before || open.credits == 0 {
            self.grant(agent, 1);
        }
    }
}

/// `run_…`, or the call API's `a2a-…`.
fn task_id(text: &str) -> Option<RunId> {
    match text.strip_prefix(CALL) {
        Some(uuid) => Uuid::try_parse(uuid).ok().map(RunId::from_uuid),
        None => text.parse().ok(),
    }
}

/// `stats{tokens,cost}` as platform usage.
fn usage(data: &FrameObject<'_>) -> std::result::Result<Option<Json>, FrameRefusal> {
    let Some(stats) = data.object("stats")? else { return Ok(None) };
    let members: Vec<String> = [("tokens", "tokens"), ("cost", "cost_usd")]
        .into_iter()
        .filter_map(|(from, to)| stats.raw(from).map(|value| format!(r#""{to}":{value}"#)))
        .collect();
    let usage = Json::from_text(format!("{{{}}}", members.join(",")));
    usage.map(Some).map_err(|error| Error::internal(&error).into())
}

fn refused(task: Option<&str>, refusal: &FrameRefusal) -> String {
    #[derive(serde::Serialize)]
    struct PlainErrorFrame<'a> {
        r#type: &'a str,
        task_id: Option<&'a str>,
        data: attache_protocol::wire::envelope::FrameRefusalBody,
    }
    let mut data = refusal.body();
    data.task_run = None;
    serde_json::to_string(&PlainErrorFrame { r#type: "error", task_id: task, data })
        .expect("our own types serialise to JSON")
}

/// An outbox frame in plain format. `None` if it doesn't apply to plain clients.
pub(super) async fn frame(
    hub: &Handle,
    to: FrameAddress<'_>,
    frame: OutboxFrame,
    fresh: Option<Box<ClaimedRunRecord>>,
) -> Result<Option<String>> {
    let told = |kind: &str, run: RunId, data: &str| format!(r#"{{"type":"{kind}","task_id":"{run}","data":{data}}}"#);
    // It enforces no limits, so a run that requires some was, or is about to be, refused on its behalf.
    if let OutboxFrame::Execute { run, .. } = frame
        && fresh.as_ref().is_none_or(|fresh| fresh.run.id != run)
    {
        let run = hub.store().run(to.tenant, run).await.map_err(about("run"))?;
        if run.spec.sandbox.is_some_and(|sandbox| sandbox.unmet(&[]).is_some()) {
            return Ok(None);
        }
    }
    Ok(Some(match frame {
        OutboxFrame::Execute { run, epoch } => match frame_text::claimed(hub, to.tenant, run, epoch, fresh).await? {
            Some((claimed, _)) => told("task", run, &task(&claimed)),
            None => told("cancel", run, "{}"),
        },
        OutboxFrame::Cancel { run } | OutboxFrame::Event { run, .. } => told("cancel", run, "{}"),
        OutboxFrame::Input { run, input } => {
            let given = hub.store().input(run, input).await.map_err(about("input"))?;
            let given = hub.input_in_full(to.tenant, given, InputRecipient::Channel(to.channel)).await;
            told("input", run, &format!(r#"{{"parts":{}}}"#, given.parts.get()))
        }
        // A plain client asks no questions, so there are no answers for it.
        OutboxFrame::Permission { .. } | OutboxFrame::Answer { .. } | OutboxFrame::ToolCall { .. } => {
            r#"{"type":"pong"}"#.to_owned()
        }
    }))
}

fn task(claimed: &ExecuteFrame) -> String {
    let context = FrameObject::read("input", claimed.input.get()).ok().and_then(|input| input.raw("context"));
    format!(r#"{{"task":{},"context":{}}}"#, Json::of(&claimed.query).get(), context.unwrap_or("null"))
}
