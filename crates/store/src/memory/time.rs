//! What the passing of time brings: deadlines, silence and forgetting.

use std::time::Duration;

use attache_protocol::{RuntimeId, Timestamp, log::unhex, rules::run::Command, wire::delivery::DeliveryState};

use super::state::{Request, State, Tenant};
use crate::{
    Context,
    record::{Retention, Runtime, Swept, delivery::Delivery},
};

// === impl State ===

impl State {
    pub(super) fn sweep(&mut self, silence: Duration, at: Timestamp) -> Swept {
        let silent = |runtime: &&Runtime| {
            runtime.online && runtime.last_heartbeat_at.is_none_or(|heard| heard.plus(silence) <= at)
        };
        let offline: Vec<RuntimeId> = self.runtimes.values().filter(silent).map(|runtime| runtime.id).collect();
        for runtime in &offline {
            self.gone(*runtime, Context::SYSTEM, at);
        }
        let mut runs = Vec::new();
        for place in 0..self.runs.len() {
            if self.by_rule(place, &Command::Tick, Context::SYSTEM, at) {
                runs.push(self.runs[place].record.id);
            }
        }
        self.expire_permissions(at, &mut runs);
        self.expire_asks(at, &mut runs);
        Swept { runs, offline }
    }

    pub(super) fn retain(&mut self, retention: Retention) {
        // A line that only moves forward; what ended before it is hidden when it is read.
        self.chunks_before = self.chunks_before.max(retention.chunks_before);
        let waits = |request: &Request| request.asked.expires_at >= retention.chunks_before;
        self.requests.retain(|_, request| request.decision.agent().is_some() || waits(request));
        let kept = |delivery: &Delivery| {
            delivery.state == DeliveryState::Pending || delivery.created_at >= retention.log_before
        };
        self.deliveries.retain(|_, delivery| kept(delivery));
        self.cut_pushes(retention.log_before);
        self.cut_delegations(retention.log_before);
        for tenant in &mut self.tenants {
            let kept = tenant.log.iter().position(|row| row.at >= retention.log_before).unwrap_or(tenant.log.len());
            let Tenant { log, floor, floor_hash, .. } = tenant;
            for row in log.drain(..kept) {
                *floor = row.seq;
                *floor_hash = unhex(&row.hash).expect("we wrote the hash");
                if let (Some(run), Some(run_seq)) = (row.run, row.run_seq) {
                    let run = &mut self.runs[self.places[&run]];
                    run.log_floor = run.log_floor.max(run_seq);
                }
            }
            for peer in self.channels.values_mut().filter(|peer| peer.channel.tenant == tenant.id) {
                let gone = peer.events.partition_point(|(log_seq, _)| *log_seq <= tenant.floor);
                peer.log_floor = peer.events.drain(..gone).next_back().map_or(peer.log_floor, |(_, event)| event.seq);
            }
        }
    }
}
