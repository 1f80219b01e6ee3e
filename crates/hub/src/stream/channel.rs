//! The stream of one channel: when its peer came and went, and what crossed it for people.

use std::collections::VecDeque;

use attache_protocol::{ChannelId, wire::event::Event};

use crate::{
    Handle, Principal, Result,
    bus::{Topic, TopicWatch},
    control::check,
    identity::CredentialGuard,
    stream::StreamSlot,
};

/// Follows a channel, also while it is disconnected: its peer may come back. Ends when the hub drains or the caller is not
/// welcome any more.
#[derive(Debug)]
pub struct ChannelFollow {
    hub: Handle,
    principal: Principal,
    channel: ChannelId,
    after: i64,
    ready: VecDeque<Event>,
    watch: TopicWatch,
    guard: CredentialGuard,
    _slot: StreamSlot,
}

// === impl Handle ===

impl Handle {
    /// Everything after `after`, and what comes.
    pub async fn follow_channel(
        &self,
        by: &Principal,
        channel: ChannelId,
        after: Option<i64>,
    ) -> Result<ChannelFollow> {
        let after = check::after(after)?;
        // Interest is registered before the first look, so that nothing falls in between.
        let watch = self.bus().watch(Topic::Channel(channel));
        self.visible_channel(by, channel).await?;
        Ok(ChannelFollow {
            hub: self.clone(),
            principal: by.clone(),
            channel,
            after,
            ready: VecDeque::new(),
            watch,
            guard: CredentialGuard::new(self, by),
            _slot: self.stream_slot(by)?,
        })
    }
}

// === impl ChannelFollow ===

impl ChannelFollow {
    /// The next event; `None` when there will be no more.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.after = event.seq;
                return Some(event);
            }
            if self.guard.check_if_due().await.is_err() {
                return None;
            }
            match self.hub.channel_page(self.principal.tenant, self.channel, self.after, check::MAX_PAGE).await {
                Ok(events) if !events.is_empty() => {
                    self.ready = events.into();
                    continue;
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(channel.id = %self.channel, %error, "a stream could not be read"),
            }
            tokio::select! {
                () = self.watch.moved() => {}
                () = tokio::time::sleep(self.hub.options().poll_every) => {}
                () = self.hub.drained() => return None,
                _ = self.guard.broken() => return None,
            }
        }
    }
}
