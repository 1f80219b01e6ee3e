//! Frames that wait for a channel's peer, and the runs whose events become frames.

use attache_protocol::{ChannelId, RunId, TenantId, rules::run::RunPhase};

use super::state::{ModelChannel, ModelState};
use crate::{
    Error, MAX_FRAMES, Result, WakeHint,
    record::channel::{ChannelConnection, FollowRecord, NewFollow, OutboxFrame, OutboxFrames},
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn frames(&self, channel: ChannelId, after: i64, limit: usize) -> Result<OutboxFrames> {
        let ModelChannel { channel, outbox, .. } = self.channels.get(&channel).ok_or(Error::NotFound)?;
        let frames = outbox.iter().filter(|(seq, _)| *seq > after).take(limit).copied().collect();
        Ok(OutboxFrames { frames, floor: channel.floor, head: channel.head })
    }

    pub(super) fn acknowledge(&mut self, connection: ChannelConnection, seq: i64) -> Result<()> {
        self.check_current(connection)?;
        self.raise_floor(connection.channel, seq);
        Ok(())
    }

    /// Whether nobody has taken over the channel of the connection.
    pub(super) fn check_current(&self, connection: ChannelConnection) -> Result<()> {
        let known = self.channels.get(&connection.channel);
        known.filter(|peer| peer.channel.is_current(connection)).map(drop).ok_or(Error::NotFound)
    }

    /// Frames up to this seq no longer need to be sent.
    pub(super) fn raise_floor(&mut self, channel: ChannelId, seq: i64) {
        let peer = self.channels.get_mut(&channel).expect("callers have found it");
        let ModelChannel { channel, outbox, .. } = peer;
        channel.floor = channel.floor.max(seq.min(channel.head));
        outbox.retain(|(seq, _)| *seq > channel.floor);
    }

    /// Adds a frame for a channel's peer.
    pub(super) fn add_frame(&mut self, to: ChannelId, frame: OutboxFrame) {
        let ModelChannel { channel, outbox, .. } = self.channels.get_mut(&to).expect("only known channels are told");
        channel.head += 1;
        outbox.push((channel.head, frame));
        if channel.head - channel.floor > MAX_FRAMES {
            channel.floor += 1;
            outbox.remove(0);
        }
        self.woken.push(WakeHint::Channel(to));
    }

    /// The channel whose worker must stop when the run leaves `running`.
    pub(super) fn told_to_stop(&self, place: usize) -> Option<ChannelId> {
        let record = &self.runs[place].record;
        record.channel.filter(|_| matches!(record.state.phase, RunPhase::Running(_)))
    }

    /// Tells a worker that it no longer holds the run.
    pub(super) fn tell_to_stop(&mut self, worker: Option<ChannelId>, place: usize) {
        let record = &self.runs[place].record;
        if let Some(worker) = worker.filter(|_| record.state.claim().is_none()) {
            self.add_frame(worker, OutboxFrame::Cancel { run: record.id });
        }
    }

    /// Whether a channel can follow a new run: it belongs to the tenant and wasn't superseded.
    pub(super) fn able_to_follow(&self, tenant: TenantId, channel: ChannelId) -> Result<()> {
        let channel = self.channel(tenant, channel)?;
        if channel.resume.is_some() { Ok(()) } else { Err(Error::NotFound) }
    }

    pub(super) fn follow(&mut self, run: RunId, new: NewFollow) {
        let NewFollow { channel, message } = new;
        self.follows.insert(run, FollowRecord { channel, run, message, pushed: 0 });
        self.woken.push(WakeHint::Channel(channel));
    }

    /// The request that created a run is repeated over another channel of the same principal, which follows the run
    /// from now on.
    pub(super) fn follow_again(&mut self, tenant: TenantId, run: RunId, new: NewFollow) -> Result<()> {
        self.able_to_follow(tenant, new.channel)?;
        let principal = |channel: &ChannelId| &self.channels[channel].channel.principal;
        let moves = self.follows.get(&run).is_some_and(|follow| {
            follow.channel != new.channel && principal(&follow.channel) == principal(&new.channel)
        });
        if moves {
            self.follow(run, new);
        }
        Ok(())
    }

    pub(super) fn follows(&self, channel: ChannelId) -> Result<Vec<FollowRecord>> {
        self.channels.get(&channel).ok_or(Error::NotFound)?;
        let mut follows: Vec<(usize, &FollowRecord)> = self
            .follows
            .values()
            .filter(|follow| follow.channel == channel)
            .map(|follow| (self.places[&follow.run], follow))
            .filter(|(place, follow)| {
                let record = &self.runs[*place].record;
                !record.state.status().is_terminal() || follow.pushed < record.last_seq
            })
            .collect();
        follows.sort_by_key(|(place, _)| *place);
        Ok(follows.into_iter().map(|(_, follow)| follow.clone()).collect())
    }

    pub(super) fn follower(&self, run: RunId) -> Option<FollowRecord> {
        self.follows.get(&run).cloned()
    }

    pub(super) fn push_events(
        &mut self,
        connection: ChannelConnection,
        run: RunId,
        upto: i64,
        limit: usize,
    ) -> Result<FollowRecord> {
        self.check_current(connection)?;
        let channel = connection.channel;
        let follow = self.follows.get(&run).filter(|follow| follow.channel == channel).ok_or(Error::NotFound)?;
        let last_seq = self.runs[self.places[&run]].record.last_seq;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (from, to) = (follow.pushed, upto.min(last_seq).min(follow.pushed.saturating_add(limit)));
        for seq in from + 1..=to {
            self.add_frame(channel, OutboxFrame::Event { run, seq });
        }
        let follow = self.follows.get_mut(&run).expect("it was just found");
        follow.pushed = from.max(to);
        Ok(follow.clone())
    }
}
