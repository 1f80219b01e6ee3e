//! The secrets of a delegation's START: a credential and a tunnel token. The store has `***` in their place. The
//! secrets are kept only in memory, until the runtime that holds the run has received them or the run ends.

mod conceal;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use attache_protocol::{ChannelId, Code, Json, RunId, RuntimeId, Secret, TenantId, Timestamp};
use attache_store::record::worker_request::{InputRecord, WorkerRequestRecord};

use crate::{Error, Handle, Result};

/// How many secrets are kept at a time.
const CAPACITY: usize = 1024;
/// The size limit of all of them.
const MAX_BYTES: usize = 64 << 20;
/// Nothing is kept longer.
const MAX_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// The response may be lost: for this long, the same runtime can get it again.
const REDELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct StartSecrets {
    kept: Mutex<HashMap<StartSecretKey, KeptInput>>,
}

/// A run and the hash of the stored input.
type StartSecretKey = (RunId, [u8; 32]);

/// An input as received.
#[derive(Debug)]
struct KeptInput {
    tenant: TenantId,
    parts: Secret<Json>,
    message: Option<Secret<Json>>,
    until: Timestamp,
}

/// An input with its secrets hidden, and their key if it has any.
#[derive(Debug)]
pub(crate) struct ConcealedInput {
    pub(crate) parts: Json,
    pub(crate) message: Option<Json>,
    place: Option<StartSecretKey>,
}

/// Who is about to receive an input.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InputRecipient {
    Channel(ChannelId),
    Runtime(RuntimeId),
}

// === impl StartSecrets ===

impl StartSecrets {
    fn lock(&self) -> MutexGuard<'_, HashMap<StartSecretKey, KeptInput>> {
        // A panic leaves no inconsistent state here.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, place: StartSecretKey, kept: KeptInput, now: Timestamp) -> Result<()> {
        let mut all = self.lock();
        all.retain(|_, kept| now < kept.until);
        let held: usize = all.values().map(KeptInput::size).sum();
        if all.len() >= CAPACITY || held + kept.size() > MAX_BYTES {
            return Err(Error::new(Code::Overloaded, "Too many delegations are starting at once."));
        }
        all.insert(place, kept);
        Ok(())
    }

    fn has(&self, run: RunId) -> bool {
        let all = self.lock();
        !all.is_empty() && all.keys().any(|(kept, _)| *kept == run)
    }

    /// The input kept under this key. From now on, it can be fetched again only for a moment.
    fn give(&self, place: StartSecretKey, now: Timestamp) -> Option<(Json, Option<Json>)> {
        let mut all = self.lock();
        let kept = all.get_mut(&place).filter(|kept| now < kept.until)?;
        kept.until = kept.until.min(now.plus(REDELIVERY_TIMEOUT));
        Some((kept.parts.expose().clone(), kept.message.as_ref().map(|message| message.expose().clone())))
    }

    fn forget(&self, place: StartSecretKey) {
        self.lock().remove(&place);
    }

    /// Drops expired secrets, and returns the runs that still have some.
    fn runs(&self, now: Timestamp) -> Vec<(TenantId, RunId)> {
        let mut all = self.lock();
        all.retain(|_, kept| now < kept.until);
        all.iter().map(|((run, _), kept)| (kept.tenant, *run)).collect()
    }

    fn forget_run(&self, run: RunId) {
        self.lock().retain(|(kept, _), _| *kept != run);
    }
}

// === impl KeptInput ===

impl KeptInput {
    fn size(&self) -> usize {
        self.parts.expose().get().len() + self.message.as_ref().map_or(0, |message| message.expose().get().len())
    }
}

fn place(run: RunId, stored: &Json) -> StartSecretKey {
    (run, *blake3::hash(stored.get().as_bytes()).as_bytes())
}

// === impl Handle ===

impl Handle {
    /// The part of an input that may be stored. Its secrets are kept before it is stored, so that no one receives it
    /// without them.
    pub(crate) fn conceal(
        &self,
        tenant: TenantId,
        run: RunId,
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
            return Ok(ConcealedInput { parts, message, place: None });
        }
        let stored = hidden.unwrap_or_else(|| parts.clone());
        let stored_message = hidden_message.or_else(|| message.clone());
        let place = place(run, &stored);
        let until = self.now().plus(MAX_RETENTION);
        let kept = KeptInput { tenant, parts: Secret::new(parts), message: message.map(Secret::new), until };
        self.start_secrets().keep(place, kept, self.now())?;
        Ok(ConcealedInput { parts: stored, message: stored_message, place: Some(place) })
    }

    /// The input was not stored after all.
    pub(crate) fn drop_concealed(&self, place: Option<StartSecretKey>) {
        if let Some(place) = place {
            self.start_secrets().forget(place);
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
        match self.hand_over(tenant, ask.run, answer, holder).await {
            Some((parts, message)) => {
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
        match self.hand_over(tenant, input.run, &input.parts, holder).await {
            Some((parts, message)) => InputRecord { parts, message: message.or(input.message), ..input },
            None => input,
        }
    }

    async fn hand_over(
        &self,
        tenant: TenantId,
        run: RunId,
        stored: &Json,
        holder: InputRecipient,
    ) -> Option<(Json, Option<Json>)> {
        if !self.start_secrets().has(run) {
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
        self.start_secrets().give(place(run, stored), self.now())
    }

    /// Drops the secrets of ended runs.
    pub(crate) async fn sweep_handover(&self) {
        for (tenant, run) in self.start_secrets().runs(self.now()) {
            let is_over = match self.store().run(tenant, run).await {
                Ok(record) => record.state.status().is_terminal(),
                Err(error) => matches!(error, attache_store::Error::NotFound),
            };
            if is_over {
                self.start_secrets().forget_run(run);
            }
        }
    }
}

// === impl ConcealedInput ===

impl ConcealedInput {
    pub(crate) const fn place(&self) -> Option<StartSecretKey> {
        self.place
    }
}
