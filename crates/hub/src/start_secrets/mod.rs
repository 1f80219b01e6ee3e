//! The secrets of a delegation's START: a credential and a tunnel token. The stored input has `***` in their place. The
//! complete input is kept beside it, encrypted, until the runtime that holds the run has received it or the run ends.

mod conceal;

use std::time::Duration;

use attache_protocol::{
    ChannelId, Code, Json, RunId, RuntimeId, TenantId, digest,
    wire::awcp::{REDACTED, TASK_TYPE},
};
use attache_store::record::{
    RunRecord,
    shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
    worker_request::{InputRecord, WorkerRequestRecord},
};
use serde::{Deserialize, Serialize};

use crate::{Error, Handle, Result, error::about};

/// How many are kept at a time for a run and for all, and the size limit of all of them. A delegation has one START, which
/// may be sent again.
const LIMIT: SharedValueLimit = SharedValueLimit::Total { per_holder: MAX_PER_RUN, values: 1024, bytes: 64 << 20 };
const MAX_PER_RUN: usize = 4;
/// Nothing is kept longer.
const MAX_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// The response may be lost: for this long, the same runtime can get it again.
const REDELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// An input as received.
#[derive(Serialize, Deserialize)]
struct ReceivedInput {
    parts: Json,
    message: Option<Json>,
}

/// An input with its secrets hidden.
#[derive(Debug)]
pub(crate) struct ConcealedInput {
    pub(crate) parts: Json,
    pub(crate) message: Option<Json>,
    /// The name under which it is kept completely, if it has secrets.
    pub(crate) kept: Option<String>,
}

/// Who is about to receive an input.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InputRecipient {
    Channel(ChannelId),
    Runtime(RuntimeId),
}

// === impl ConcealedInput ===

impl ConcealedInput {
    /// Whether something may be kept beside an input that is stored like this.
    fn may_be(parts: &Json, message: Option<&Json>) -> bool {
        parts.get().contains(REDACTED) || message.is_some_and(|message| message.get().contains(REDACTED))
    }
}

/// What is kept beside the stored input of a run.
fn name(run: RunId, stored: &Json) -> String {
    format!("{run}/{}", digest::hex(blake3::hash(stored.get().as_bytes()).as_bytes()))
}

/// The secrets of one input can't be put in another one's place.
fn context(name: &str) -> String {
    format!("start_secrets/{name}")
}

// === impl Handle ===

impl Handle {
    /// The part of an input that may be stored. Its secrets are kept before it is stored, so that no one receives it
    /// without them. Only a delegation's run has a START: whatever looks like one elsewhere loses its secrets, so that
    /// nobody fills the room of the delegations with it.
    pub(crate) async fn conceal(
        &self,
        record: &RunRecord,
        parts: Json,
        message: Option<Json>,
    ) -> Result<ConcealedInput> {
        let twice = |_| Error::invalid("parts", "contain `awcp` with a duplicate member");
        let hidden = conceal::parts(&parts).map_err(twice)?;
        let hidden_message = match &message {
            Some(message) => conceal::message(message).map_err(twice)?,
            None => None,
        };
        if hidden.is_none() && hidden_message.is_none() {
            return Ok(ConcealedInput { parts, message, kept: None });
        }
        let complete = ReceivedInput { parts, message };
        if record.spec.task_type != TASK_TYPE {
            let parts = hidden.unwrap_or(complete.parts);
            return Ok(ConcealedInput { parts, message: hidden_message.or(complete.message), kept: None });
        }
        let (tenant, run) = (record.tenant, record.id);
        let text = Json::of(&complete);
        let stored = hidden.unwrap_or(complete.parts);
        let name = name(run, &stored);
        let value = SharedValue {
            kind: SharedValueKind::StartSecrets,
            tenant,
            holder: run.to_string(),
            value: self.seal(&context(&name), text.get().as_bytes()),
            expires_at: self.now().plus(MAX_RETENTION),
            name: name.clone(),
        };
        if !self.store().keep_value(value, LIMIT, self.now()).await.map_err(about("run"))? {
            return Err(Error::new(Code::Overloaded, "Too many delegations are starting at once."));
        }
        Ok(ConcealedInput { parts: stored, message: hidden_message.or(complete.message), kept: Some(name) })
    }

    /// The input was not stored after all.
    pub(crate) async fn drop_concealed(&self, kept: Option<&str>) {
        if let Some(name) = kept {
            let at = self.now();
            // What can't be removed now is removed when the run has ended.
            let _ = self.store().take_value(SharedValueKind::StartSecrets, name, at, at).await;
        }
    }

    /// An answered question with its secrets, for the worker.
    pub(crate) async fn ask_in_full(
        &self,
        tenant: TenantId,
        ask: WorkerRequestRecord,
        holder: InputRecipient,
    ) -> WorkerRequestRecord {
        let Some(answer) = &ask.answer else { return ask };
        match self.hand_over(tenant, ask.run, (answer, ask.message.as_ref()), holder).await {
            Some(ReceivedInput { parts, message }) => {
                WorkerRequestRecord { answer: Some(parts), message: message.or(ask.message), ..ask }
            }
            None => ask,
        }
    }

    /// An input with its secrets, for the worker.
    pub(crate) async fn input_in_full(
        &self,
        tenant: TenantId,
        input: InputRecord,
        holder: InputRecipient,
    ) -> InputRecord {
        match self.hand_over(tenant, input.run, (&input.parts, input.message.as_ref()), holder).await {
            Some(ReceivedInput { parts, message }) => {
                InputRecord { parts, message: message.or(input.message), ..input }
            }
            None => input,
        }
    }

    /// The complete input, at whatever node it arrived. From now on, it can be fetched again only for a moment.
    async fn hand_over(
        &self,
        tenant: TenantId,
        run: RunId,
        (stored, message): (&Json, Option<&Json>),
        holder: InputRecipient,
    ) -> Option<ReceivedInput> {
        if !ConcealedInput::may_be(stored, message) {
            return None;
        }
        // A former worker gets nothing.
        let record = self.store().run(tenant, run).await.ok()?;
        let is_holder = match holder {
            InputRecipient::Channel(channel) => record.channel == Some(channel),
            InputRecipient::Runtime(runtime) => record.runtime == Some(runtime),
        };
        if !is_holder || record.state.claim().is_none() {
            return None;
        }
        let (name, at) = (name(run, stored), self.now());
        let until = at.plus(REDELIVERY_TIMEOUT);
        let kept = self.store().take_value(SharedValueKind::StartSecrets, &name, until, at).await;
        let kept = kept.inspect_err(|error| tracing::warn!(run.id = %run, %error, "can't read the secrets of a START"));
        let plain = self.unseal(&context(&name), &kept.ok()??.value);
        let plain = plain.inspect_err(|error| tracing::warn!(run.id = %run, %error, "the secrets of a START are lost"));
        serde_json::from_slice(plain.ok()?.expose()).ok()
    }

    /// Drops the secrets of ended runs.
    pub(crate) async fn sweep_handover(&self) {
        let Ok(holders) = self.store().value_holders(SharedValueKind::StartSecrets, self.now()).await else { return };
        for (tenant, holder) in holders {
            let Ok(run) = holder.parse::<RunId>() else { continue };
            let is_over = match self.store().run(tenant, run).await {
                Ok(record) => record.state.status().is_terminal(),
                Err(error) => matches!(error, attache_store::Error::NotFound),
            };
            if is_over
                && let Err(error) = self.store().drop_values(SharedValueKind::StartSecrets, tenant, &holder).await
            {
                tracing::debug!(run.id = %run, %error, "can't remove the secrets of a START");
            }
        }
    }
}
