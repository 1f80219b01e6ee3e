//! Channels: open, supersede, resume, close, mark as seen, and list.

use std::time::Duration;

use attache_protocol::{Actor, ChannelId, Json, RunId, RuntimeId, TenantId, Timestamp, rules::run::RunCommand};

use super::{
    page::{self, PageOrder},
    state::{ModelChannel, ModelState},
};
use crate::{
    Error, Result, WriteContext, entry,
    entry::channel::reason,
    record::{
        ListPage, Pagination,
        channel::{
            ChannelConnection, ChannelEvents, ChannelFilter, ChannelRecord, ChannelResume, ChannelResumption,
            NewChannel, OutboxFrame,
        },
    },
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn open_channel(&mut self, context: &WriteContext, new: NewChannel) -> Result<ChannelRecord> {
        let (tenant, actor, at) = (context.tenant, &context.actor, context.at);
        self.known_tenant(tenant)?;
        self.living_node(new.node)?;
        let agent = match new.runtime {
            None => None,
            Some(runtime) => {
                self.runtime(tenant, runtime)?;
                Some(self.working(runtime)?.agent)
            }
        };
        let connected = entry::channel::connected(&new);
        let former = new.runtime.map(|runtime| self.channels_of(runtime)).unwrap_or_default();
        let (known, unknown) = self.claims_over(&former, new.running.as_deref());
        let mut frames = Vec::new();
        for channel in &former {
            self.disconnect(*channel, reason::SUPERSEDED, actor, at);
            let peer = self.channels.get_mut(channel).expect("it was just found");
            peer.channel.resume = None;
            peer.channel.floor = peer.channel.head;
            frames.extend(std::mem::take(&mut peer.outbox).into_iter().map(|(_, frame)| frame));
        }
        if let Some(runtime) = new.runtime {
            self.runtime_seen(runtime, actor, at);
        }
        let channel = ChannelRecord {
            id: new.id,
            node: new.node,
            tenant,
            transport: new.transport,
            peer_role: new.peer_role,
            account_ref: new.account_ref,
            principal: context.actor.clone(),
            agent,
            runtime: new.runtime,
            capabilities: new.capabilities,
            native_protocol: new.native_protocol,
            tools: new.tools,
            device_info: new.device_info,
            address: new.address,
            resume: Some(new.resume),
            connected: true,
            created_at: at,
            connected_at: at,
            last_seen_at: at,
            disconnected_at: None,
            reason: None,
            floor: 0,
            head: 0,
        };
        let peer = ModelChannel { channel, outbox: Vec::new(), events: Vec::new(), last_seq: 0, log_floor: 0 };
        self.channels.insert(new.id, peer);
        self.append_to(new.id, at, actor, connected);

        for frame in frames {
            if !matches!(frame, OutboxFrame::Execute { .. }) {
                self.add_frame(new.id, frame);
            }
        }
        for follow in self.follows.values_mut().filter(|follow| former.contains(&follow.channel)) {
            follow.channel = new.id;
        }
        for place in known.iter().chain(&unknown) {
            self.runs[*place].record.channel = Some(new.id);
        }
        for place in unknown {
            self.by_rule(place, &RunCommand::Undelivered, actor, at);
        }
        Ok(self.channels[&new.id].channel.clone())
    }

    /// The channels of a runtime that weren't superseded, in order of creation.
    fn channels_of(&self, runtime: RuntimeId) -> Vec<ChannelId> {
        let channels = self.channels.values().map(|peer| &peer.channel);
        let wanted = channels.filter(|channel| channel.runtime == Some(runtime) && channel.resume.is_some());
        wanted.map(|channel| channel.id).collect()
    }

    /// The claims made over these channels: those their worker knows of, and the others.
    fn claims_over(&self, channels: &[ChannelId], running: Option<&[RunId]>) -> (Vec<usize>, Vec<usize>) {
        let over = |place: &usize| {
            let record = &self.runs[*place].record;
            record.state.claim().is_some() && record.channel.is_some_and(|channel| channels.contains(&channel))
        };
        let claims = self.runs.places().into_iter().filter(over);
        claims.partition(|place| {
            let run = &self.runs[*place];
            match running {
                Some(running) => running.contains(&run.record.id),
                None => run.record.last_seq > run.claimed_seq || !self.waits_to_execute(*place),
            }
        })
    }

    /// Whether the `Execute` of a run's claim is unacknowledged.
    fn waits_to_execute(&self, place: usize) -> bool {
        let record = &self.runs[place].record;
        let execute = OutboxFrame::Execute { run: record.id, epoch: record.state.epoch };
        let outbox = record.channel.and_then(|channel| self.channels.get(&channel)).map(|peer| &peer.outbox);
        outbox.is_some_and(|outbox| outbox.iter().any(|(_, frame)| *frame == execute))
    }

    /// Also appends the row, if it was connected.
    pub(super) fn disconnect(&mut self, channel: ChannelId, reason: &str, actor: &Actor, at: Timestamp) {
        let known = &mut self.channels.get_mut(&channel).expect("callers have found it").channel;
        if known.connected {
            known.connected = false;
            known.disconnected_at = Some(at);
            known.reason = Some(reason.to_owned());
            self.append_to(channel, at, actor, entry::channel::disconnected(channel, reason));
        }
    }

    pub(super) fn resume_channel(
        &mut self,
        context: &WriteContext,
        resume: ChannelResume,
    ) -> Result<ChannelResumption> {
        let (actor, at) = (&context.actor, context.at);
        self.living_node(resume.node)?;
        let known = self.channel(context.tenant, resume.channel).map_err(|_| Error::ResumeRefused)?;
        if known.principal != context.actor || known.resume != Some(resume.token) {
            return Err(Error::ResumeRefused);
        }
        if let Some(runtime) = known.runtime {
            self.working(runtime)?;
        }
        self.disconnect(known.id, reason::REPLACED, actor, at);
        if let Some(runtime) = known.runtime {
            self.runtime_seen(runtime, actor, at);
        }
        let last_seq = resume.last_seq.clamp(0, known.head);
        self.append_to(known.id, at, actor, entry::channel::resumed(known.id, last_seq));
        self.raise_floor(known.id, last_seq);
        let channel = &mut self.channels.get_mut(&known.id).expect("it was just found").channel;
        channel.node = resume.node;
        channel.resume = Some(resume.fresh);
        channel.connected = true;
        channel.connected_at = at;
        channel.last_seen_at = at;
        channel.disconnected_at = None;
        channel.reason = None;
        channel.address = resume.address;
        let missing = (last_seq < known.floor).then_some((last_seq + 1, known.floor));
        Ok(ChannelResumption { channel: channel.clone(), missing })
    }

    pub(super) fn close_channel(
        &mut self,
        context: &WriteContext,
        channel: ChannelId,
        reason: &str,
    ) -> Result<ChannelRecord> {
        self.channel(context.tenant, channel)?;
        self.disconnect(channel, reason, &context.actor, context.at);
        self.channel(context.tenant, channel)
    }

    pub(super) fn close_connection(
        &mut self,
        context: &WriteContext,
        connection: ChannelConnection,
        reason: &str,
    ) -> Result<bool> {
        let is_current = self.channel(context.tenant, connection.channel)?.is_current(connection);
        if is_current {
            self.disconnect(connection.channel, reason, &context.actor, context.at);
        }
        Ok(is_current)
    }

    pub(super) fn close_channels(&mut self, reason: &str, at: Timestamp) {
        let all: Vec<ChannelId> = self.channels.values().map(|peer| peer.channel.id).collect();
        for channel in all {
            self.disconnect(channel, reason, WriteContext::SYSTEM, at);
        }
    }

    pub(super) fn seen_channels(&mut self, connections: &[ChannelConnection], lease: Duration, at: Timestamp) {
        for connection in connections {
            let id = connection.channel;
            let known = self.channels.get_mut(&id).map(|peer| &mut peer.channel);
            let current = known.filter(|channel| channel.connected && channel.is_current(*connection));
            let Some(channel) = current else { continue };
            channel.last_seen_at = at;
            let Some(runtime) = channel.runtime else { continue };
            if self.working(runtime).is_ok() {
                self.runtime_seen(runtime, &entry::runtime_actor(runtime), at);
            }
            for place in self.claims_of(runtime) {
                if self.runs[place].record.channel == Some(id) {
                    self.renew(place, runtime, lease, at);
                }
            }
        }
    }

    pub(super) fn channel_message(&mut self, context: &WriteContext, channel: ChannelId, message: &Json) -> Result<()> {
        self.channel(context.tenant, channel)?;
        self.append_to(channel, context.at, &context.actor, entry::channel::message(channel, message));
        Ok(())
    }

    pub(super) fn channel(&self, tenant: TenantId, channel: ChannelId) -> Result<ChannelRecord> {
        let channel = self.channels.get(&channel).map(|peer| &peer.channel);
        channel.filter(|channel| channel.tenant == tenant).cloned().ok_or(Error::NotFound)
    }

    pub(super) fn channels(
        &self,
        tenant: TenantId,
        filter: &ChannelFilter,
        page: &Pagination,
    ) -> Result<ListPage<ChannelRecord>> {
        let wanted = |channel: &ChannelRecord| {
            channel.tenant == tenant
                && filter.connected.is_none_or(|connected| connected == channel.connected)
                && filter.agent.is_none_or(|agent| Some(agent) == channel.agent)
        };
        let items = self.channels.iter().rev().filter(|(_, peer)| wanted(&peer.channel));
        page::cut(items.map(|(place, peer)| (place, peer.channel.clone())), PageOrder::Descending, page)
    }

    pub(super) fn channel_events(
        &self,
        tenant: TenantId,
        channel: ChannelId,
        after: i64,
        limit: usize,
    ) -> Result<ChannelEvents> {
        self.channel(tenant, channel)?;
        let ModelChannel { events, last_seq, log_floor, .. } = &self.channels[&channel];
        let wanted = events.iter().map(|(_, event)| event).filter(|event| event.seq > after);
        let events = wanted.take(limit).cloned().collect();
        Ok(ChannelEvents { events, floor: *log_floor, last_seq: *last_seq })
    }
}
