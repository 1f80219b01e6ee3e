//! Channels for people: list them, show one, read its events.

use attache_protocol::{
    ChannelId, EventKind, Json, TenantId,
    wire::{
        channel::{Channel, ChannelEventPage, ChannelList},
        event::{Event, SeqRange, SnapshotRepair},
    },
};
use attache_store::record::{
    AgentRef,
    channel::{self, ChannelFilter},
};

use crate::{
    Error, Handle, Principal, Result, check,
    control::PageRequest,
    error::{about, about_list},
    identity::{Action, Permit, PrincipalKind, access::CallerAccess},
    render,
    visible_page::VisiblePage,
};

/// Filters for channels. All given members must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelQuery {
    pub connected: Option<bool>,
    /// By id or name.
    pub agent: Option<String>,
}

impl Handle {
    /// Newest first. An agent sees the channels over which it works or calls.
    pub async fn channels(&self, by: &Principal, query: ChannelQuery, page: PageRequest) -> Result<ChannelList> {
        let permit = by.may(Action::SeeChannels)?;
        let mut visible = VisiblePage::new(page.page()?);
        let agent = match query.agent {
            Some(agent) => Some(self.resolve_agent(by, &agent).await?),
            None => None,
        };
        let filter = ChannelFilter { connected: query.connected, agent };
        let mut reach = self.caller_access(by).await?;
        while let Some(asked) = visible.next_read(self, by).await {
            let failed = about_list("channel", &asked);
            let listed = self.store().channels(by.tenant, filter.clone(), asked).await.map_err(failed)?;
            let mut seen = Vec::with_capacity(listed.items.len());
            for channel in &listed.items {
                seen.push(covers(&permit, channel) && shows(&mut reach, channel).await?);
            }
            visible.take(listed, &seen);
        }
        let (channels, next_cursor) = visible.finish();
        Ok(ChannelList { channels: channels.into_iter().map(render::channel).collect(), next_cursor })
    }

    /// A channel that the caller registered itself. `None` when there is none, or it is someone else's.
    pub(crate) async fn own_channel(
        &self,
        by: &Principal,
        channel: ChannelId,
    ) -> Result<Option<channel::ChannelRecord>> {
        match self.store().channel(by.tenant, channel).await {
            Ok(channel) => Ok(Some(channel).filter(|channel| channel.principal == by.actor())),
            Err(attache_store::Error::NotFound) => Ok(None),
            Err(error) => Err(about("channel")(error)),
        }
    }

    pub async fn channel(&self, by: &Principal, channel: ChannelId) -> Result<Channel> {
        self.visible_channel(by, channel).await.map(render::channel)
    }

    /// One page of the channel's events.
    pub async fn channel_events(
        &self,
        by: &Principal,
        channel: ChannelId,
        after: Option<i64>,
        limit: Option<usize>,
    ) -> Result<ChannelEventPage> {
        let (after, limit) = (check::after(after)?, check::limit(limit)?);
        self.visible_channel(by, channel).await?;
        let events = self.channel_page(by.tenant, channel, after, limit).await?;
        let next = events.last().map_or(after, |event| event.seq);
        Ok(ChannelEventPage { events, next })
    }

    /// The channel, if the caller may see it. Unknown and forbidden ids get the same answer.
    pub(crate) async fn visible_channel(&self, by: &Principal, channel: ChannelId) -> Result<channel::ChannelRecord> {
        let permit = by.may(Action::SeeChannels)?;
        let found = self.store().channel(by.tenant, channel).await.map_err(about("channel"))?;
        let is_shown = covers(&permit, &found) && shows(&mut self.caller_access(by).await?, &found).await?;
        if is_shown { Ok(found) } else { Err(Error::not_found("channel")) }
    }

    /// Events after a seq, preceded by `snapshot.repaired` if some of them were removed.
    pub(crate) async fn channel_page(
        &self,
        tenant: TenantId,
        channel: ChannelId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Event>> {
        let read = self.store().channel_events(tenant, channel, after, limit).await.map_err(about("channel"))?;
        let (mut events, now) = (read.events, self.store().channel(tenant, channel).await.map_err(about("channel"))?);
        if let Some(agent) = now.agent {
            // What a worker says over its channel is part of its work.
            let account = self.store().account(tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
            let is_hidden = |event: &Event| account.private_until.is_some_and(|until| event.at <= until);
            events.retain(|event| event.kind != EventKind::ChannelMessage || !is_hidden(event));
        }
        if after < read.floor {
            let missing = SeqRange { from: after + 1, to: read.floor };
            let repaired = Event {
                seq: read.floor,
                kind: EventKind::SnapshotRepaired.to_string(),
                at: self.now(),
                data: Json::of(&SnapshotRepair { missing, snapshot: Json::of(&render::channel(now)) }),
            };
            events.retain(|event| event.seq > read.floor);
            events.insert(0, repaired);
        }
        Ok(events)
    }
}

/// Whether the channel's agent is not hidden from the caller.
async fn shows(reach: &mut CallerAccess<'_>, channel: &channel::ChannelRecord) -> Result<bool> {
    match channel.agent {
        Some(agent) => reach.belongings(agent).await,
        None => Ok(true),
    }
}

/// An agent's own channels are those over which it works or calls.
fn covers(permit: &Permit<'_>, channel: &channel::ChannelRecord) -> bool {
    let works = match permit.by().who {
        PrincipalKind::Runtime { agent, .. } | PrincipalKind::Outside { agent, .. } => channel.agent == Some(agent),
        PrincipalKind::Key { .. } | PrincipalKind::Run { .. } | PrincipalKind::Anonymous { .. } => false,
    };
    works || permit.covers_creator(&channel.principal)
}
