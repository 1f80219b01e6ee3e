//! Channels, as people see them.

use attache_protocol::{
    ChannelId,
    wire::channel::{Channel, ChannelEventPage, ChannelList, ConnectionState},
};

use crate::{HubClient, PageQuery, Result};

/// Which channels to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelFilter {
    pub status: Option<ConnectionState>,
    /// An agent's id or name.
    pub agent: Option<String>,
    pub page: PageQuery,
}

// === impl HubClient ===

impl HubClient {
    pub async fn channels(&self, filter: &ChannelFilter) -> Result<ChannelList> {
        let mut url = self.api(&["channels"]);
        if let Some(status) = filter.status {
            url.query_pairs_mut().append_pair("status", status.as_str());
        }
        if let Some(agent) = &filter.agent {
            url.query_pairs_mut().append_pair("agent_id", agent);
        }
        filter.page.write(&mut url);
        self.get(url).await
    }

    pub async fn channel(&self, channel: ChannelId) -> Result<Channel> {
        self.get(self.api(&["channels", &channel.to_string()])).await
    }

    /// One page of the channel's own events, after the event with the seq `after`.
    pub async fn channel_events(&self, channel: ChannelId, after: i64, limit: Option<u32>) -> Result<ChannelEventPage> {
        let mut url = self.api(&["channels", &channel.to_string(), "events"]);
        url.query_pairs_mut().append_pair("after", &after.to_string());
        PageQuery { limit, cursor: None }.write(&mut url);
        self.get(url).await
    }
}
