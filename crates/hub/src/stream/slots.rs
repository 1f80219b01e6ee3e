//! Limits what a caller holds open: streams, waiting requests and WebSockets. Each costs a connection, memory and a
//! reader for as long as it lasts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use attache_protocol::Code;
use attache_store::record::RuntimeKind;

use crate::{Error, Principal, PrincipalKind, Result};

/// The limit for all anonymous callers of an agent together.
const MAX_ANONYMOUS: usize = 64;

/// How much each caller holds open.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamSlots(Arc<Mutex<HashMap<String, usize>>>);

/// One open stream, wait or WebSocket. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    slots: StreamSlots,
    /// `None`: not counted.
    holder: Option<String>,
}

// === impl StreamSlots ===

impl StreamSlots {
    /// A slot for one more stream of this caller. All keys of a person count together, and so do all anonymous callers
    /// of one agent. The hub's own workers are not counted.
    pub(crate) fn take(&self, by: &Principal, most: usize) -> Result<StreamSlot> {
        let holder = match by.who {
            PrincipalKind::Runtime { kind: RuntimeKind::Hub, .. } => {
                return Ok(StreamSlot { slots: self.clone(), holder: None });
            }
            PrincipalKind::Anonymous { agent } => format!("anonymous:{agent}"),
            PrincipalKind::Key { .. }
            | PrincipalKind::Runtime { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. } => by.holder().to_string(),
        };
        let most = if matches!(by.who, PrincipalKind::Anonymous { .. }) { most.min(MAX_ANONYMOUS) } else { most };
        let mut open = self.lock();
        let count = open.entry(holder.clone()).or_default();
        if *count >= most {
            let message = format!("You have {most} open streams, waiting requests and WebSockets, which is the limit.");
            let hint = "Close one, or read pages instead. The hub's --max-streams option sets the limit.";
            return Err(Error::new(Code::TooManyRequests, message).hint(hint));
        }
        *count += 1;
        drop(open);
        Ok(StreamSlot { slots: self.clone(), holder: Some(holder) })
    }

    /// A panic leaves no inconsistent state here.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl StreamSlot ===

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let Some(holder) = &self.holder else { return };
        let mut open = self.slots.lock();
        if let Some(count) = open.get_mut(holder) {
            *count -= 1;
            if *count == 0 {
                open.remove(holder);
            }
        }
    }
}
