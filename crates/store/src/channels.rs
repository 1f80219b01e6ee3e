//! Channels as the hub sees them: identity that outlives a connection, and the frames that wait for a peer.

use std::time::Duration;

use async_trait::async_trait;
use attache_protocol::{ChannelId, Json, RunId, TenantId, Timestamp};

use crate::{
    Result, WriteContext,
    record::{
        ListPage, Pagination,
        channel::{
            ChannelEvents, ChannelFilter, ChannelRecord, ChannelResume, ChannelResumption, FollowRecord, NewChannel,
            OutboxFrames,
        },
    },
};

/// How many frames may wait for one peer. Beyond it the oldest are given up, and the floor tells of it.
pub const MAX_FRAMES: i64 = 10_000;

/// The rules of [`crate::Store`] hold here too. A row whose type starts with `channel.` carries the channel and its next
/// channel seq, from 1 and without gaps, and its data starts with `"channel_id"`.
///
/// | method | log rows |
/// |---|---|
/// | `open_channel` | of every other connected channel of the same runtime `channel.disconnected {"channel_id","reason":"superseded"}`; `runtime.online` if it was offline; `channel.connected {"channel_id","transport","peer_role","account_ref"}`; per claim that the worker cannot know of `task.requeued {"reason":"undelivered"}` |
/// | `resume_channel` | `channel.disconnected {"channel_id","reason":"replaced"}` if it was connected; `runtime.online` if it was offline; `channel.resumed {"channel_id","last_seq"}` |
/// | `close_channel` | `channel.disconnected {"channel_id","reason"}` if it was connected |
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
/// Giving a claim back because its worker cannot know of it is no report: its `Cancel` stops a worker that knows of it all
/// the same. A channel that is superseded hands its frames, claims and follows on, so nothing is addressed to it any more.
/// When more than [`MAX_FRAMES`] wait, the oldest are given up.
#[async_trait]
pub trait ChannelStore: Send + Sync {
    /// The log's actor, of all its rows, is the principal that may resume it. `NotFound` for a runtime of another tenant.
    /// With a runtime (`RuntimeEnded` if it is not active) this shows that the runtime is alive, as a heartbeat does, but
    /// renews no claim, and it supersedes the runtime's other channels, connected or not: their resume tokens are void,
    /// their frames that were not acknowledged become frames of this one, in order, except for `Execute`, and the runs
    /// that they follow are followed by this one. Claims that were made over them move to this one, except those that the
    /// worker cannot know of, which go back to the queue with their attempt given back: with `running`, the claims that it
    /// does not name; without, those whose `Execute` was not acknowledged and that have no event since they were claimed.
    /// Claims that were made over HTTP stay as they are. A superseded channel that was disconnected keeps its reason.
    async fn open_channel(&self, context: WriteContext, channel: NewChannel) -> Result<ChannelRecord>;

    /// `ResumeRefused` for an unknown channel, another principal, a token that is not the current one, or a channel that
    /// was superseded. The token is used up; `last_seq` (at least 0 and at most the head, also in the row) is acknowledged.
    /// With a runtime this shows that it is alive, as in `open_channel` (`RuntimeEnded` if it is not active).
    async fn resume_channel(&self, context: WriteContext, resume: ChannelResume) -> Result<ChannelResumption>;

    /// The connection is gone. Claims, frames and the resume token stay. Closing again changes nothing.
    async fn close_channel(&self, context: WriteContext, channel: ChannelId, reason: &str) -> Result<ChannelRecord>;

    /// Closes every connected channel of every tenant, for a hub that starts: no connection survives it. The actor is
    /// `system`.
    async fn close_channels(&self, reason: &str, at: Timestamp) -> Result<()>;

    /// These peers were heard. Renews the claims made over their channels, and marks their runtimes online (with the row
    /// of a heartbeat when one was offline, actor `runtime:<id>`). Channels that are unknown or not connected are passed
    /// over, and so are runtimes that have ended.
    async fn mark_channels_seen(&self, channels: Vec<ChannelId>, lease: Duration, at: Timestamp) -> Result<()>;

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

    /// Everything up to `seq` (at most the head) has arrived. Not logged.
    async fn acknowledge(&self, channel: ChannelId, seq: i64) -> Result<()>;

    /// The runs that the channel's peer follows and whose last event is not a frame yet, in order of creation.
    async fn follows(&self, channel: ChannelId) -> Result<Vec<FollowRecord>>;

    /// The channel that follows a run, if there is one; also when the run is unknown or every event is a frame.
    async fn follower(&self, run: RunId) -> Result<Option<FollowRecord>>;

    /// Makes frames of the run's events that are not frames yet, up to the run's seq `upto` (at most its newest), and at
    /// most `limit`. Answers the follow as it is now. `NotFound` if the channel does not follow the run.
    async fn push_events(&self, channel: ChannelId, run: RunId, upto: i64, limit: usize) -> Result<FollowRecord>;
}
