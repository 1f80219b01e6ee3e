//! The stream of one channel: connects, disconnects, and messages for people.

use std::collections::VecDeque;

use attache_protocol::{ChannelId, wire::event::Event};

use crate::{Handle, Principal, Result, bus::Topic, check, identity::StreamRight, stream::StreamSlot, waiter::Waiter};

/// Follows a channel, even while it is disconnected, because its peer may come back. Ends if the hub drains or the
/// caller loses access.
#[derive(Debug)]
pub struct ChannelFollow {
    hub: Handle,
    channel: ChannelId,
    after: i64,
    ready: VecDeque<Event>,
    waiter: Waiter,
    _slot: StreamSlot,
}

// === impl Handle ===

impl Handle {
    /// Everything after `after` and all new events.
    pub async fn follow_channel(
        &self,
        by: &Principal,
        channel: ChannelId,
        after: Option<i64>,
    ) -> Result<ChannelFollow> {
        let after = check::after(after)?;
        // Subscribe before the first read, so that nothing is missed in between.
        let waiter = Waiter::new(self, by, Topic::Channel(channel), None);
        let waiter = waiter.with_right(StreamRight::SeeChannel(channel));
        self.visible_channel(by, channel).await?;
        Ok(ChannelFollow {
            hub: self.clone(),
            channel,
            after,
            ready: VecDeque::new(),
            waiter,
            _slot: self.stream_slot(by)?,
        })
    }
}

// === impl ChannelFollow ===

impl ChannelFollow {
    /// The next event. `None` if there are no more.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if self.waiter.check_access().await.is_err() {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                self.after = event.seq;
                return Some(event);
            }
            match self.hub.channel_page(self.waiter.principal().tenant, self.channel, self.after, check::MAX_PAGE).await
            {
                Ok(events) if !events.is_empty() => {
                    self.ready = events.into();
                    continue;
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(channel.id = %self.channel, %error, "a stream could not be read"),
            }
            if !self.waiter.changed().await.unwrap_or(false) {
                return None;
            }
        }
    }
}
