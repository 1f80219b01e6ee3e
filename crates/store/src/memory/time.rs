//! Effects of time: deadlines, lost runtimes and retention.

use std::time::Duration;

use attache_protocol::{
    ChannelId, RunId, RuntimeId, Timestamp,
    digest::unhex,
    rules::{
        retention,
        run::{RunCommand, RunPhase},
    },
    wire::{channel::Transport, delivery::DeliveryState},
};

use super::state::{ModelState, ModelTenant};
use crate::{
    WriteContext, entry,
    record::{
        Class, RetentionLimits, RetentionResult, RuntimeRecord, SweepResult, channel::ChannelRecord,
        delivery::DeliveryRecord,
    },
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn sweep(&mut self, silence: Duration, at: Timestamp) -> SweepResult {
        let silent = |runtime: &&RuntimeRecord| {
            runtime.online && runtime.last_heartbeat_at.is_none_or(|heard| heard.plus(silence) <= at)
        };
        let offline: Vec<RuntimeId> = self.runtimes.values().filter(silent).map(|runtime| runtime.id).collect();
        for runtime in &offline {
            self.runtime_gone(*runtime, WriteContext::SYSTEM, at);
        }
        let mut runs = Vec::new();
        for place in self.runs.places() {
            if self.by_rule(place, &RunCommand::Tick, WriteContext::SYSTEM, at) {
                runs.push(self.runs[place].record.id);
            }
        }
        self.expire_permissions(at, &mut runs);
        self.expire_worker_requests(at, &mut runs);
        self.drop_expired_values(at);
        SweepResult { runs, offline }
    }

    pub(super) fn advance_clock(&mut self, step: Duration, at: Timestamp) -> Timestamp {
        *self.clock.insert(retention::clock(self.clock, at, step))
    }

    pub(super) fn retain(&mut self, retention: RetentionLimits) -> RetentionResult {
        // This time only moves forward. Chunks of runs that ended before it are hidden on read.
        self.chunks_before = self.chunks_before.max(retention.chunks_before);
        self.requests.retain(|_, request| request.asked.expires_at >= retention.chunks_before);
        self.codes.retain(|_, code| code.expires_at >= retention.chunks_before);
        let kept = |delivery: &DeliveryRecord| {
            delivery.state == DeliveryState::Pending || delivery.created_at >= retention.log_before
        };
        self.deliveries.retain(|_, delivery| kept(delivery));
        self.cut_pushes(retention.log_before);
        self.cut_delegations(retention.log_before);
        let (mut more, mut removed) = (false, Vec::new());
        for tenant in &mut self.tenants {
            let old = tenant.log.iter().position(|row| row.at >= retention.log_before).unwrap_or(tenant.log.len());
            let cut = old.min(retention.max_rows);
            more |= cut < old;
            let ModelTenant { log, floor, floor_hash, .. } = tenant;
            for row in log.drain(..cut) {
                *floor = row.seq;
                *floor_hash = unhex(&row.hash).expect("we wrote the hash");
                if let (Some(run), Some(run_seq)) = (row.run, row.run_seq) {
                    // It may have been removed.
                    if let Some(place) = self.places.get(&run) {
                        let run = &mut self.runs[*place];
                        run.log_floor = run.log_floor.max(run_seq);
                    }
                }
            }
            for peer in self.channels.values_mut().filter(|peer| peer.channel.tenant == tenant.id) {
                let gone = peer.events.partition_point(|(log_seq, _)| *log_seq <= tenant.floor);
                peer.log_floor = peer.events.drain(..gone).next_back().map_or(peer.log_floor, |(_, event)| event.seq);
            }
            if cut > 0 {
                removed.push((tenant.id, entry::log_removed(tenant.floor, &tenant.floor_hash)));
            }
        }
        for (tenant, entry) in removed {
            self.append(tenant, retention.at, WriteContext::SYSTEM, entry);
        }
        more |= self.remove_channels(retention);
        let mut retained = RetentionResult { more, blobs: Vec::new() };
        for class in Class::ALL {
            self.remove_old(class, &retention, &mut retained);
        }
        retained.sorted()
    }

    /// Returns true if there are more to remove.
    fn remove_channels(&mut self, retention: RetentionLimits) -> bool {
        let newest = self.channels.values().last().map(|peer| peer.channel.id);
        let is_live = |run: &RunId| !self.runs[self.places[run]].record.state.status().is_terminal();
        let old = |channel: &ChannelRecord| {
            let mut follows = self.follows.values().filter(|follow| follow.channel == channel.id).peekable();
            let is_stream = channel.transport == Transport::Sse && follows.peek().is_some();
            let before = if is_stream { retention.streams_before } else { retention.channels_before };
            let is_held = self.runs.iter().any(|run| {
                run.record.channel == Some(channel.id) && matches!(run.record.state.phase, RunPhase::Running(_))
            });
            !channel.connected
                && channel.disconnected_at.is_some_and(|at| at < before)
                && !is_held
                && !follows.any(|follow| is_live(&follow.run))
                && Some(channel.id) != newest
        };
        let mut removed: Vec<ChannelId> = self
            .channels
            .values()
            .map(|peer| &peer.channel)
            .filter(|channel| old(channel))
            .map(|channel| channel.id)
            .collect();
        let more = removed.len() > retention.max_rows;
        removed.truncate(retention.max_rows);
        for channel in removed {
            self.channels.remove(&channel);
            self.follows.retain(|_, follow| follow.channel != channel);
        }
        more
    }
}
