//! What the START of a delegation hands over: a credential and the token of a tunnel. The store, and everything that reads
//! it, has `***` in their place; they themselves are in this memory alone, until the runtime that holds the run was given
//! them or the run is over.

mod conceal;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use attache_protocol::{ChannelId, Code, Json, RunId, RuntimeId, Secret, TenantId, Timestamp};
use attache_store::record::ask::{Ask, Input};

use crate::{Error, Handle, Result};

/// More than this many hand-overs at a time are not kept.
const CAPACITY: usize = 1024;
/// Of all of them together.
const MAX_BYTES: usize = 64 << 20;
/// Nothing is kept for longer.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The answer that brought it may be lost on its way: for so long the same runtime is given it again.
const AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Handover {
    kept: Mutex<HashMap<Place, Kept>>,
}

/// A run and the hash of what the store has of the input.
type Place = (RunId, [u8; 32]);

/// An input as it came.
#[derive(Debug)]
struct Kept {
    tenant: TenantId,
    parts: Secret<Json>,
    message: Option<Secret<Json>>,
    until: Timestamp,
}

/// An input with its secrets hidden, and the place where they are kept if it has any.
#[derive(Debug)]
pub(crate) struct Concealed {
    pub(crate) parts: Json,
    pub(crate) message: Option<Json>,
    place: Option<Place>,
}

/// Who is about to be given an input.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Holder {
    Channel(ChannelId),
    Runtime(RuntimeId),
}

// === impl Handover ===

impl Handover {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Kept>> {
        // Nothing in here is left half done by a panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, place: Place, kept: Kept, now: Timestamp) -> Result<()> {
        let mut all = self.lock();
        all.retain(|_, kept| now < kept.until);
        let held: usize = all.values().map(Kept::size).sum();
        if all.len() >= CAPACITY || held + kept.size() > MAX_BYTES {
            return Err(Error::new(Code::Overloaded, "Too many delegations are being started."));
        }
        all.insert(place, kept);
        Ok(())
    }

    fn has(&self, run: RunId) -> bool {
        let all = self.lock();
        !all.is_empty() && all.keys().any(|(kept, _)| *kept == run)
    }

    /// What was kept in this place, which from now on is given again only for a moment.
    fn give(&self, place: Place, now: Timestamp) -> Option<(Json, Option<Json>)> {
        let mut all = self.lock();
        let kept = all.get_mut(&place).filter(|kept| now < kept.until)?;
        kept.until = kept.until.min(now.plus(AGAIN));
        Some((kept.parts.expose().clone(), kept.message.as_ref().map(|message| message.expose().clone())))
    }

    fn forget(&self, place: Place) {
        self.lock().remove(&place);
    }

    /// Drops what is too old, and answers the runs that something is kept for.
    fn runs(&self, now: Timestamp) -> Vec<(TenantId, RunId)> {
        let mut all = self.lock();
        all.retain(|_, kept| now < kept.until);
        all.iter().map(|((run, _), kept)| (kept.tenant, *run)).collect()
    }

    fn forget_run(&self, run: RunId) {
        self.lock().retain(|(kept, _), _| *kept != run);
    }
}

// === impl Kept ===

impl Kept {
    fn size(&self) -> usize {
        self.parts.expose().get().len() + self.message.as_ref().map_or(0, |message| message.expose().get().len())
    }
}

fn place(run: RunId, stored: &Json) -> Place {
    (run, *blake3::hash(stored.get().as_bytes()).as_bytes())
}

// === impl Handle ===

impl Handle {
    /// What may be stored of an input. Its secrets are kept before it is stored, so that nobody is given it without them.
    pub(crate) fn conceal(
        &self,
        tenant: TenantId,
        run: RunId,
        parts: Json,
        message: Option<Json>,
    ) -> Result<Concealed> {
        let twice = |_| Error::invalid("parts", "carry `awcp` with a member that comes twice");
        let hidden = conceal::parts(&parts).map_err(twice)?;
        let hidden_message = match &message {
            Some(message) => conceal::message(message).map_err(twice)?,
            None => None,
        };
        if hidden.is_none() && hidden_message.is_none() {
            return Ok(Concealed { parts, message, place: None });
        }
        let stored = hidden.unwrap_or_else(|| parts.clone());
        let stored_message = hidden_message.or_else(|| message.clone());
        let place = place(run, &stored);
        let until = self.now().plus(LONGEST);
        let kept = Kept { tenant, parts: Secret::new(parts), message: message.map(Secret::new), until };
        self.handover().keep(place, kept, self.now())?;
        Ok(Concealed { parts: stored, message: stored_message, place: Some(place) })
    }

    /// The input was not stored after all.
    pub(crate) fn drop_concealed(&self, place: Option<Place>) {
        if let Some(place) = place {
            self.handover().forget(place);
        }
    }

    /// An answered question as its asker gets it.
    pub(crate) async fn ask_in_full(&self, tenant: TenantId, ask: Ask, holder: Holder) -> Ask {
        let Some(answer) = &ask.answer else { return ask };
        match self.hand_over(tenant, ask.run, answer, holder).await {
            Some((parts, message)) => Ask { answer: Some(parts), message: message.or(ask.message), ..ask },
            None => ask,
        }
    }

    /// An input as the worker gets it.
    pub(crate) async fn input_in_full(&self, tenant: TenantId, input: Input, holder: Holder) -> Input {
        match self.hand_over(tenant, input.run, &input.parts, holder).await {
            Some((parts, message)) => Input { parts, message: message.or(input.message), ..input },
            None => input,
        }
    }

    async fn hand_over(
        &self,
        tenant: TenantId,
        run: RunId,
        stored: &Json,
        holder: Holder,
    ) -> Option<(Json, Option<Json>)> {
        if !self.handover().has(run) {
            return None;
        }
        // Who worked on it once gets nothing any more.
        let record = self.store().run(tenant, run).await.ok()?;
        let is_holder = match holder {
            Holder::Channel(channel) => record.channel == Some(channel),
            Holder::Runtime(runtime) => record.runtime == Some(runtime),
        };
        if !is_holder || record.state.claim().is_none() {
            return None;
        }
        self.handover().give(place(run, stored), self.now())
    }

    /// Forgets what was kept for runs that are over.
    pub(crate) async fn sweep_handover(&self) {
        for (tenant, run) in self.handover().runs(self.now()) {
            let is_over = match self.store().run(tenant, run).await {
                Ok(record) => record.state.status().is_terminal(),
                Err(error) => matches!(error, attache_store::Error::NotFound),
            };
            if is_over {
                self.handover().forget_run(run);
            }
        }
    }
}

// === impl Concealed ===

impl Concealed {
    pub(crate) const fn place(&self) -> Option<Place> {
        self.place
    }
}
