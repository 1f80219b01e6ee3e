//! The tenant's log as a feed, and a bare hint that something changed.

use std::collections::VecDeque;

use attache_protocol::{log::LogRow, wire::event::SeqRange};

use crate::{
    Handle, Principal, Result,
    bus::Topic,
    check,
    error::about,
    identity::{Action, StreamRight},
    stream::StreamSlot,
    waiter::Waiter,
};

/// Follows the tenant's log, for callers who may read it.
#[derive(Debug)]
pub struct TenantFollow {
    hub: Handle,
    after: i64,
    ready: VecDeque<LogRow>,
    /// Rows that retention removed before they could be read.
    gap: Option<SeqRange>,
    waiter: Waiter,
    ended: bool,
    _slot: StreamSlot,
}

/// Signals that something in the tenant changed, without details, so that each person can reload what they may see.
#[derive(Debug)]
pub struct TenantChanges {
    waiter: Waiter,
    _slot: StreamSlot,
}

// === impl Handle ===

impl Handle {
    /// Rows after `after` and all new rows. `None` starts at the newest row.
    pub async fn follow_audit(&self, by: &Principal, after: Option<i64>) -> Result<TenantFollow> {
        by.may_all(Action::SeeAudit)?;
        let waiter = Waiter::new(self, by, Topic::Tenant(by.tenant), None);
        let waiter = waiter.with_right(StreamRight::MayAll(Action::SeeAudit));
        let after = match after {
            Some(after) => check::after(Some(after))?,
            None => self.store().log(by.tenant, i64::MAX, 1).await.map_err(about("log"))?.head,
        };
        Ok(TenantFollow {
            hub: self.clone(),
            after,
            ready: VecDeque::new(),
            gap: None,
            waiter,
            ended: false,
            _slot: self.stream_slot(by)?,
        })
    }

    /// Hints for a page that shows live state.
    pub fn changes(&self, by: &Principal) -> Result<TenantChanges> {
        by.may_all(Action::SeeAgents)?;
        let waiter = Waiter::new(self, by, Topic::Tenant(by.tenant), None).poll_every(self.options().keep_alive);
        let waiter = waiter.with_right(StreamRight::MayAll(Action::SeeAgents));
        Ok(TenantChanges { waiter, _slot: self.stream_slot(by)? })
    }
}

// === impl TenantFollow ===

impl TenantFollow {
    /// The rows missing before the one [`Self::next`] returned last. Reported once.
    pub fn take_gap(&mut self) -> Option<SeqRange> {
        self.gap.take()
    }

    /// Puts a row back, to be returned again.
    pub(crate) fn hold(&mut self, row: LogRow) {
        self.ready.push_front(row);
    }

    /// The next row. `None` if the hub drains or the caller loses access.
    pub async fn next(&mut self) -> Option<LogRow> {
        loop {
            if self.ended || self.waiter.check_access().await.is_err() {
                return None;
            }
            if let Some(row) = self.ready.pop_front() {
                self.after = row.seq;
                return Some(row);
            }
            let by = self.waiter.principal();
            match self.hub.store().log(by.tenant, self.after, check::MAX_PAGE).await {
                Ok(mut page) => {
                    if let Err(error) = self.hub.withhold_private(by, &mut page.rows).await {
                        tracing::debug!(%error, "the log could not be read");
                        page.rows.clear();
                    }
                    if page.floor > self.after {
                        self.gap = Some(SeqRange { from: self.after + 1, to: page.floor });
                        self.after = page.floor;
                    }
                    self.ready = page.rows.into();
                }
                Err(error) => tracing::debug!(%error, "the log could not be read"),
            }
            if !self.ready.is_empty() {
                continue;
            }
            self.ended = !self.waiter.changed().await.unwrap_or(false);
        }
    }
}

// === impl TenantChanges ===

impl TenantChanges {
    /// Resolves with `Some` on a change, and with `None` if there are no more hints. A lost hint costs one slow poll.
    pub async fn next(&mut self) -> Option<()> {
        self.waiter.changed().await.unwrap_or(false).then_some(())
    }
}
