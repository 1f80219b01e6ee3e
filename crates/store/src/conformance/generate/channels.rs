//! Steps around channels: open, resume, close, and their waiting frames.

use attache_protocol::{
    ChannelId, RunId, RuntimeId,
    wire::channel::{PeerRole, Transport},
};

use super::StepGenerator;
use crate::{
    ChannelStore as _, Store as _, WriteContext,
    conformance::{generator_state::LEASE, step::StoreStep},
    memory::MemoryStore,
    record::{
        Pagination,
        channel::{ChannelConnection, ChannelFilter, ChannelResume, NewChannel, NewFollow, ReportKey},
    },
};

// === impl StepGenerator ===

impl StepGenerator {
    pub(super) async fn open_channel(&self, model: &MemoryStore) -> StoreStep {
        let runtime = if self.draw.percent(75) { Some(self.some_runtime(model).await) } else { None };
        let running = match runtime {
            Some(runtime) if self.draw.percent(50) => {
                let held = self.held_by(model, runtime).await;
                Some(held.into_iter().filter(|_| self.draw.percent(60)).collect())
            }
            Some(_) | None => None,
        };
        let new = NewChannel {
            id: self.draw.env.channel_id(),
            node: self.some_node(),
            transport: self.draw.one_of(&Transport::ALL).unwrap_or(Transport::Websocket),
            peer_role: self.draw.one_of(&PeerRole::ALL).unwrap_or(PeerRole::Worker),
            account_ref: self.draw.text(),
            runtime,
            capabilities: self.draw.json(),
            native_protocol: self.draw.maybe_text(),
            tools: self.draw.json(),
            device_info: self.draw.maybe_json(),
            address: self.draw.maybe_text(),
            resume: self.draw.secret(),
            running,
        };
        StoreStep::OpenChannel(self.context(), Box::new(new))
    }

    /// Usually with the right token and the right principal.
    pub(super) async fn resume_channel(&self, model: &MemoryStore) -> StoreStep {
        let known = self.draw.recent(&self.known.channels);
        let (channel, token) = known.unwrap_or_else(|| (self.draw.env.channel_id(), self.draw.secret()));
        let token = if self.draw.percent(8) { self.draw.secret() } else { token };
        let resume = ChannelResume {
            channel,
            node: self.some_node(),
            token,
            fresh: self.draw.secret(),
            last_seq: self.frame_seq(model, channel).await,
            address: self.draw.maybe_text(),
        };
        StoreStep::ResumeChannel(self.as_principal(model, channel).await, resume)
    }

    pub(super) async fn close_channel(&self, model: &MemoryStore) -> StoreStep {
        if self.draw.percent(60) {
            let connection = self.some_connection();
            let context = self.as_principal(model, connection.channel).await;
            return StoreStep::CloseConnection(context, connection, self.draw.text());
        }
        let channel = self.some_channel();
        StoreStep::CloseChannel(self.as_principal(model, channel).await, channel, self.draw.text())
    }

    pub(super) fn close_channels(&self) -> StoreStep {
        StoreStep::CloseChannels { reason: self.draw.text(), at: self.at() }
    }

    pub(super) fn seen_channels(&self) -> StoreStep {
        let connections = (0..1 + self.draw.below(3)).map(|_| self.some_connection()).collect();
        StoreStep::SeenChannels { connections, lease: LEASE, at: self.at() }
    }

    pub(super) fn channel_message(&self) -> StoreStep {
        StoreStep::ChannelMessage(self.context(), self.some_channel(), self.draw.json())
    }

    pub(super) fn read_frames(&self) -> StoreStep {
        StoreStep::Frames { channel: self.some_channel(), after: self.after() / 5, limit: self.limit() }
    }

    pub(super) async fn acknowledge(&self, model: &MemoryStore) -> StoreStep {
        let connection = self.some_connection();
        StoreStep::Acknowledge { connection, seq: self.frame_seq(model, connection.channel).await }
    }

    pub(super) fn push_events(&self) -> StoreStep {
        let known = self.draw.recent(&self.known.follows);
        let (channel, run) = known.unwrap_or_else(|| (self.some_channel(), self.run()));
        let upto = if self.draw.percent(70) { i64::MAX } else { self.after() };
        let limit = if self.draw.percent(10) { 0 } else { self.limit() };
        StoreStep::PushEvents { connection: self.connection_of(channel), run, upto, limit }
    }

    pub(super) fn read_channel(&self) -> StoreStep {
        let (tenant, channel) = (self.tenant(), self.some_channel());
        match self.draw.below(4) {
            0 => StoreStep::Channel(tenant, channel),
            1 => StoreStep::Follows(channel),
            2 => StoreStep::Follower(self.draw.recent(&self.known.follows).map_or_else(|| self.run(), |(_, run)| run)),
            _ => StoreStep::ChannelEvents { tenant, channel, after: self.after() / 5, limit: self.limit() },
        }
    }

    pub(super) fn channel_filter(&self) -> ChannelFilter {
        ChannelFilter {
            connected: self.draw.percent(50).then(|| self.draw.percent(50)),
            agent: self.draw.percent(30).then(|| self.agent()),
        }
    }

    pub(super) fn some_channel(&self) -> ChannelId {
        let unknown = self.draw.env.channel_id();
        let known = self.draw.recent(&self.known.channels).map(|(channel, _)| channel);
        known.filter(|_| !self.draw.percent(4)).unwrap_or(unknown)
    }

    /// Usually the newest connection of a channel.
    fn some_connection(&self) -> ChannelConnection {
        self.connection_of(self.some_channel())
    }

    /// Usually the newest connection of the channel, as far as it wasn't superseded.
    fn connection_of(&self, channel: ChannelId) -> ChannelConnection {
        let known = self.known.channels.iter().find(|(known, _)| *known == channel).map(|(_, token)| *token);
        let stale = self.draw.secret();
        let resume = known.filter(|_| !self.draw.percent(6)).unwrap_or(stale);
        ChannelConnection { channel, resume }
    }

    /// Sometimes a channel to follow a new run over.
    pub(super) fn follow(&self) -> Option<NewFollow> {
        let chance = if self.known.channels.is_empty() { 1 } else { 60 };
        self.draw.percent(chance).then(|| NewFollow { channel: self.some_channel(), message: self.draw.text() })
    }

    /// The channel over which a runtime claims: usually a connected one of its own.
    pub(super) async fn channel_to(&self, model: &MemoryStore, runtime: RuntimeId) -> Option<ChannelConnection> {
        let filter = ChannelFilter { connected: Some(true), agent: None };
        let listed = model.channels(self.tenant, filter, Pagination { limit: 50, cursor: None }).await.ok()?;
        let own = listed.items.iter().find(|channel| channel.runtime == Some(runtime)).map(|channel| channel.id);
        match self.draw.below(100) {
            0..75 => own.map(|channel| self.connection_of(channel)),
            75..82 if !self.known.channels.is_empty() => Some(self.some_connection()),
            _ => None,
        }
    }

    /// Only a few numbers, so that reports repeat.
    pub(super) async fn report(&self, model: &MemoryStore, run: RunId) -> Option<ReportKey> {
        let channel = model.run(self.tenant, run).await.ok().and_then(|run| run.channel);
        let seq = i64::try_from(self.draw.below(4)).unwrap_or(0);
        match self.draw.below(100) {
            0..40 => None,
            40..70 => Some(ReportKey { source: None, seq }),
            70..95 => Some(ReportKey { source: channel, seq }),
            _ => Some(ReportKey { source: Some(self.some_channel()), seq }),
        }
    }

    /// Usually the principal that opened the channel.
    pub(super) async fn as_principal(&self, model: &MemoryStore, channel: ChannelId) -> WriteContext {
        let context = self.context();
        match model.channel(self.tenant, channel).await {
            Ok(known) if self.draw.percent(92) => WriteContext { actor: known.principal, ..context },
            Ok(_) | Err(_) => context,
        }
    }

    /// A seq near the frames that wait on a channel.
    async fn frame_seq(&self, model: &MemoryStore, channel: ChannelId) -> i64 {
        let (floor, head) = model.channel(self.tenant, channel).await.map_or((0, 0), |known| (known.floor, known.head));
        let waiting = u64::try_from(head - floor).unwrap_or(0);
        match self.draw.below(100) {
            0..60 => floor + i64::try_from(self.draw.below(waiting + 1)).unwrap_or(0),
            60..75 => head,
            75..85 => floor - 1,
            85..95 => 0,
            _ => head + 3,
        }
    }
}
