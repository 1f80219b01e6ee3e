//! Channels: their identity, which outlives connections, and the frames that wait for a peer.

use std::time::Duration;

use attache_protocol::{ChannelId, Json, RunId, TenantId, Timestamp};

use crate::{
    Result, WriteContext,
    record::{
        ListPage, Pagination,
        channel::{
            ChannelConnection, ChannelEvents, ChannelFilter, ChannelRecord, ChannelResume, ChannelResumption,
            FollowRecord, NewChannel, OutboxFrames,
        },
    },
    store_part::store_part,
};

/// How many frames may wait for one peer. Beyond that the oldest are dropped, and the floor shows it.
pub const MAX_FRAMES: i64 = 10_000;

store_part! {
    /// The rules of [`crate::Store`] apply here too. A row whose type starts with `channel.` carries the channel and its
    /// next channel seq, from 1 and without gaps, and its data starts with `"channel_id"`.
    ///
    /// | method | log rows |
    /// |---|---|
    /// | `open_channel` | of every other connected channel of the same runtime `channel.disconnected {"channel_id","reason":"superseded"}`; `runtime.online` if it was offline; `channel.connected {"channel_id","transport","peer_role","account_ref"}`; per claim that the worker cannot know of `task.requeued {"reason":"undelivered"}` |
    /// | `resume_channel` | `channel.disconnected {"channel_id","reason":"replaced"}` if it was connected; `runtime.online` if it was offline; `channel.resumed {"channel_id","last_seq"}` |
    /// | `close_channel`, `close_connection` | `channel.disconnected {"channel_id","reason"}` if it was connected |
    /// | `close_channels` | the same for each, in order of creation |
    /// | `channel_message` | `channel.message {"channel_id","message"}` |
    ///
    /// Frames have a seq per channel, from 1 and without gaps. They are written together with what they tell of:
    /// - `claim` over a channel: `Execute` to it, and the run is of that channel from then on;
    /// - a run of a channel that leaves `running` by anything but its worker's own report: `Cancel` to that channel;
    /// - a permission request of such a run that is approved, denied or expired: `Permission`;
    /// - an ask of such a run that is answered or expired: `Answer`; input that answers no ask: `Input`;
    /// - an ask for a tool: `ToolCall` to the channel that follows the run;
    /// - `push_events`: `Event`.
    ///
    /// Returning a claim because its worker can't know of it is not a report: the `Cancel` stops a worker that knows of it
    /// anyway. A superseded channel passes on its frames, claims and follows, so nothing is addressed to it any more. When
    /// more than [`MAX_FRAMES`] wait, the oldest are dropped.
    pub trait ChannelStore, layer ChannelStoreLayer, call ChannelCall {
        /// The actor of all its log rows is the principal that may resume it. `NotFound` for a runtime of another tenant.
        /// With a runtime (`RuntimeEnded` if it isn't active) this shows that the runtime is alive, as a heartbeat does,
        /// but renews no claim. It supersedes the runtime's other channels, connected or not: their resume tokens become
        /// invalid, their unacknowledged frames, except `Execute`, become frames of this channel, in order, and this
        /// channel follows the runs they followed. Claims made over them move to this one, except claims the worker can't
        /// know of, which go back to the queue without counting the attempt: with `running`, the claims it doesn't name;
        /// without, those whose `Execute` wasn't acknowledged and that have no event since the claim. Claims made over HTTP
        /// stay as they are. A superseded channel that was disconnected keeps its reason.
        async fn open_channel(&self, context: WriteContext, channel: NewChannel) -> Result<ChannelRecord>;

        /// `ResumeRefused` for an unknown channel, another principal, a token that isn't the current one, or a superseded
        /// channel. The token is used up. `last_seq` (at least 0 and at most the head, also in the row) is acknowledged.
        /// With a runtime this shows that it is alive, as in `open_channel` (`RuntimeEnded` if it isn't active).
        async fn resume_channel(&self, context: WriteContext, resume: ChannelResume) -> Result<ChannelResumption>;

        /// The connection is closed. Claims, frames and the resume token stay. Closing again changes nothing.
        async fn close_channel(&self, context: WriteContext, channel: ChannelId, reason: &str) -> Result<ChannelRecord>;

        /// The same for this connection of the channel: if another one has taken it over, nothing changes. Returns whether it
        /// was the current one.
        async fn close_connection(
            &self,
            context: WriteContext,
            connection: ChannelConnection,
            reason: &str,
        ) -> Result<bool>;

        /// Closes every connected channel of every tenant, when the only hub of a database starts: no connection survives a
        /// restart. The actor is `system`.
        async fn close_channels(&self, reason: &str, at: Timestamp) -> Result<()>;

        /// These peers were active. Renews the claims made over their channels and marks their runtimes online (with the
        /// row of a heartbeat if one was offline, actor `runtime:<id>`). Unknown or disconnected channels, connections that
        /// another one has taken over, and ended runtimes are skipped.
        async fn mark_channels_seen(
            &self,
            connections: Vec<ChannelConnection>,
            lease: Duration,
            at: Timestamp,
        ) -> Result<()>;

        async fn channel_message(&self, context: WriteContext, channel: ChannelId, message: Json) -> Result<()>;

        async fn channel(&self, tenant: TenantId, channel: ChannelId) -> Result<ChannelRecord>;

        /// Newest first.
        async fn channels(
            &self,
            tenant: TenantId,
            filter: ChannelFilter,
            page: Pagination,
        ) -> Result<ListPage<ChannelRecord>>;

        /// Events after `after` and above the floor, in order.
        async fn channel_events(
            &self,
            tenant: TenantId,
            channel: ChannelId,
            after: i64,
            limit: usize,
        ) -> Result<ChannelEvents>;

        /// Frames after `after` and above the floor, in order.
        async fn frames(&self, channel: ChannelId, after: i64, limit: usize) -> Result<OutboxFrames>;

        /// Everything up to `seq` (at most the head) has arrived. `NotFound` if another connection has taken the channel over.
        /// Not logged.
        async fn acknowledge(&self, connection: ChannelConnection, seq: i64) -> Result<()>;

        /// The runs the channel's peer follows and whose last event isn't a frame yet, in order of creation.
        async fn follows(&self, channel: ChannelId) -> Result<Vec<FollowRecord>>;

        /// The channel that follows a run, if there is one, even if the run is unknown or every event is already a frame.
        async fn follower(&self, run: RunId) -> Result<Option<FollowRecord>>;

        /// Makes frames of the run's events that aren't frames yet, up to the run's seq `upto` (at most its newest), and at
        /// most `limit`. Returns the current follow. `NotFound` if the channel doesn't follow the run, or if another
        /// connection has taken it over.
        async fn push_events(
            &self,
            connection: ChannelConnection,
            run: RunId,
            upto: i64,
            limit: usize,
        ) -> Result<FollowRecord>;
    }
}
