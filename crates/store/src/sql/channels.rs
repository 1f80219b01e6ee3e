//! Channels: open, supersede, resume, close, mark as seen, and list.

use std::{collections::HashSet, time::Duration};

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{
    ChannelId, Json, RunId, RuntimeId, TenantId, Timestamp,
    rules::run::RunCommand,
    secret::SecretHash,
    wire::{
        channel::{PeerRole, Transport},
        event::Event,
    },
};
use rusqlite::{ToSql, params};

use super::{
    frames::{self, HEAD, LAST_EVENT},
    journal::{LogStamp, TransitionWrites},
    lists,
    log_keys::LogKeys,
    lookup_cache::CachedChannel,
    rows::{self, IdBytes, RunState},
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WakeHint, WriteContext,
    entry::{self, LogEntry, channel::reason},
    record::{
        ListPage, Pagination, RetentionLimits,
        channel::{
            ChannelConnection, ChannelEvents, ChannelFilter, ChannelRecord, ChannelResume, ChannelResumption,
            NewChannel, OutboxFrame,
        },
    },
};

/// The columns that [`channel`] reads, without the newest frame, which comes last.
const CHANNEL: &str = "c.id, c.tenant, c.transport, c.peer_role, c.account_ref, c.principal, c.agent, c.runtime, \
     c.capabilities, c.native_protocol, \
     coalesce((select t.text from channel_tools t where t.no = c.tools_no), c.tools), c.device_info, c.address, c.resume, c.connected, c.created, \
     c.connected_at, c.last_seen, c.disconnected, c.reason, c.node, c.floor";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn open_channel(&mut self, context: &WriteContext, new: &NewChannel) -> Result<ChannelRecord> {
        let stamp = context.stamp();
        self.cache.head(context.tenant).ok_or(Error::NotFound)?;
        self.living_node(new.node)?;
        let mut agent = None;
        let mut former = Vec::new();
        if let Some(runtime) = new.runtime {
            agent = Some(super::runtimes::read_runtime(self.connection, context.tenant, runtime)?.agent);
            self.working(runtime)?;
            former = self.channels_of(runtime)?;
        }
        let (known, unknown) = self.claims_over(new.runtime, &former, new.running.as_deref())?;
        let mut handed_on = Vec::new();
        for channel in &former {
            self.disconnect(*channel, reason::SUPERSEDED, stamp)?;
            handed_on.extend(self.supersede(*channel)?);
        }
        if let Some(runtime) = new.runtime {
            self.runtime_seen(runtime, stamp)?;
        }
        self.insert_channel(context, new, agent.map(|agent| IdBytes(agent.uuid())))?;
        self.log_channel(new.id, stamp, &entry::channel::connected(new))?;
        for frame in handed_on {
            if !matches!(frame, OutboxFrame::Execute { .. }) {
                self.add_frame(new.id, frame)?;
            }
        }
        let line = self.cached_channel(new.id)?;
        for channel in &former {
            let old = self.cached_channel(*channel)?;
            self.connection
                .prepare_cached("update follows set channel = ?2 where channel = ?1")?
                .execute([old.no, line.no])?;
        }
        for hot in known {
            self.put(&hot, &RunState { channel: Some(new.id), ..hot.clone() }, None)?;
        }
        for hot in unknown {
            let moved = RunState { channel: Some(new.id), ..hot.clone() };
            self.put(&hot, &moved, None)?;
            self.step(&moved, &RunCommand::Undelivered, stamp, TransitionWrites::default())?;
        }
        read_channel(self.connection, context.tenant, new.id)
    }

    fn insert_channel(&self, context: &WriteContext, new: &NewChannel, agent: Option<IdBytes>) -> Result<()> {
        let tools = self.tools_of(&new.tools)?;
        self.connection
            .prepare_cached(
                "insert into channels (id, tenant, transport, peer_role, account_ref, principal, agent, runtime,
                    capabilities, native_protocol, tools, tools_no, device_info, address, resume, connected, created,
                    connected_at, last_seen, node)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, '', ?11, ?12, ?13, ?14, 1, ?15, ?15, ?15, ?16)",
            )?
            .execute(params![
                IdBytes(new.id.uuid()),
                IdBytes(context.tenant.uuid()),
                new.transport.as_str(),
                new.peer_role.as_str(),
                new.account_ref,
                context.actor.to_string(),
                agent,
                new.runtime.map(|runtime| IdBytes(runtime.uuid())),
                new.capabilities.get(),
                new.native_protocol,
                tools,
                new.device_info.as_ref().map(Json::get),
                new.address,
                new.resume.0,
                context.at.millis(),
                new.node.map(|node| IdBytes(node.uuid())),
            ])?;
        Ok(())
    }

    /// The channels of a runtime that weren't superseded, in order of creation.
    fn channels_of(&self, runtime: RuntimeId) -> Result<Vec<ChannelId>> {
        Ok(self
            .connection
            .prepare_cached(
                "select id from channels indexed by channels_runtime where runtime = ?1 and resume is not null
                 order by no",
            )?
            .query_map([IdBytes(runtime.uuid())], |row| row.get(0).map(rows::channel_id))?
            .collect::<rusqlite::Result<_>>()?)
    }

    /// The claims made over these channels: those their worker knows of, and the others.
    fn claims_over(
        &mut self,
        runtime: Option<RuntimeId>,
        channels: &[ChannelId],
        running: Option<&[RunId]>,
    ) -> Result<(Vec<RunState>, Vec<RunState>)> {
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for row in runtime.map(|runtime| self.cache.claims(runtime)).unwrap_or_default() {
            let Some(hot) = self.readable_hot(row)? else { continue };
            let Some(channel) = hot.channel.filter(|channel| channels.contains(channel)) else { continue };
            let knows = match running {
                Some(running) => running.contains(&hot.id),
                None => hot.last_seq > hot.claimed_seq || !self.waits_to_execute(channel, &hot)?,
            };
            if knows { known.push(hot) } else { unknown.push(hot) }
        }
        Ok((known, unknown))
    }

    /// Whether the `Execute` of a run's claim is unacknowledged.
    fn waits_to_execute(&mut self, channel: ChannelId, hot: &RunState) -> Result<bool> {
        let line = self.cached_channel(channel)?;
        let execute = OutboxFrame::Execute { run: hot.id, epoch: hot.state.epoch };
        Ok(frames::all_frames(self.connection, &line)?.iter().any(|(_, frame)| *frame == execute))
    }

    /// Invalidates the resume token and drops the frames, which are returned in order.
    fn supersede(&mut self, channel: ChannelId) -> Result<Vec<OutboxFrame>> {
        let line = self.cached_channel(channel)?;
        let frames = frames::all_frames(self.connection, &line)?;
        let line = self.raise_floor(line, line.head)?;
        self.connection.prepare_cached("update channels set resume = null where no = ?1")?.execute([line.no])?;
        self.directory.set_channel(channel, CachedChannel { resume: None, ..line });
        Ok(frames.into_iter().map(|(_, frame)| frame).collect())
    }

    /// Also appends the row, if it was connected.
    pub(super) fn disconnect(&mut self, channel: ChannelId, reason: &str, stamp: LogStamp<'_>) -> Result<()> {
        let line = self.cached_channel(channel)?;
        if !line.connected {
            return Ok(());
        }
        self.connection
            .prepare_cached("update channels set connected = 0, disconnected = ?2, reason = ?3 where no = ?1")?
            .execute(params![line.no, stamp.at.millis(), reason])?;
        self.directory.set_channel(channel, CachedChannel { connected: false, ..line });
        self.log_channel(channel, stamp, &entry::channel::disconnected(channel, reason))
    }

    /// Appends a row of a channel, which is also the next event of the channel's stream.
    pub(super) fn log_channel(&mut self, channel: ChannelId, stamp: LogStamp<'_>, entry: &LogEntry) -> Result<()> {
        let line = self.cached_channel(channel)?;
        let seq = self.log(line.tenant, stamp, entry, None)?;
        let last_seq = line.last_seq + 1;
        self.connection
            .prepare_cached("insert into channel_events (channel, seq, log) values (?1, ?2, ?3)")?
            .execute([line.no, last_seq, seq])?;
        self.directory.set_channel(channel, CachedChannel { last_seq, ..line });
        self.woken.push(WakeHint::Channel(channel));
        Ok(())
    }

    pub(super) fn resume_channel(
        &mut self,
        context: &WriteContext,
        resume: &ChannelResume,
    ) -> Result<ChannelResumption> {
        let stamp = context.stamp();
        self.living_node(resume.node)?;
        let known = read_channel(self.connection, context.tenant, resume.channel).map_err(|error| match error {
            Error::NotFound => Error::ResumeRefused,
            error => error,
        })?;
        if known.principal != context.actor || known.resume != Some(resume.token) {
            return Err(Error::ResumeRefused);
        }
        if let Some(runtime) = known.runtime {
            self.working(runtime)?;
        }
        self.disconnect(known.id, reason::REPLACED, stamp)?;
        if let Some(runtime) = known.runtime {
            self.runtime_seen(runtime, stamp)?;
        }
        let last_seq = resume.last_seq.clamp(0, known.head);
        self.log_channel(known.id, stamp, &entry::channel::resumed(known.id, last_seq))?;
        self.acknowledge_up_to(known.id, last_seq)?;
        self.connection
            .prepare_cached(
                "update channels set resume = ?2, connected = 1, connected_at = ?3, last_seen = ?3,
                    disconnected = null, reason = null, address = ?4, node = ?5
                 where id = ?1",
            )?
            .execute(params![
                IdBytes(known.id.uuid()),
                resume.fresh.0,
                stamp.at.millis(),
                resume.address,
                resume.node.map(|node| IdBytes(node.uuid())),
            ])?;
        self.directory.forget_channel(known.id);
        let missing = (last_seq < known.floor).then_some((last_seq + 1, known.floor));
        Ok(ChannelResumption { channel: read_channel(self.connection, context.tenant, known.id)?, missing })
    }

    pub(super) fn close_channel(
        &mut self,
        context: &WriteContext,
        channel: ChannelId,
        reason: &str,
    ) -> Result<ChannelRecord> {
        self.own_channel(context.tenant, channel)?;
        self.disconnect(channel, reason, context.stamp())?;
        read_channel(self.connection, context.tenant, channel)
    }

    pub(super) fn close_connection(
        &mut self,
        context: &WriteContext,
        connection: ChannelConnection,
        reason: &str,
    ) -> Result<bool> {
        let is_current = self.own_channel(context.tenant, connection.channel)?.resume == Some(connection.resume);
        if is_current {
            self.disconnect(connection.channel, reason, context.stamp())?;
        }
        Ok(is_current)
    }

    pub(super) fn close_channels(&mut self, reason: &str, at: Timestamp) -> Result<()> {
        let connected = self
            .connection
            .prepare_cached("select id from channels indexed by channels_connected where connected = 1 order by no")?
            .query_map((), |row| row.get(0).map(rows::channel_id))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for channel in connected {
            self.disconnect(channel, reason, LogStamp { actor: WriteContext::SYSTEM, at })?;
        }
        Ok(())
    }

    pub(super) fn seen_channels(
        &mut self,
        connections: &[ChannelConnection],
        lease: Duration,
        at: Timestamp,
    ) -> Result<()> {
        for ChannelConnection { channel, resume } in connections {
            let line = match self.cached_channel(*channel) {
                Ok(line) if line.connected && line.resume == Some(*resume) => line,
                Ok(_) | Err(Error::NotFound) => continue,
                Err(error) => return Err(error),
            };
            self.connection
                .prepare_cached("update channels set last_seen = ?2 where no = ?1")?
                .execute([line.no, at.millis()])?;
            let Some(runtime) = line.runtime else { continue };
            let actor = entry::runtime_actor(runtime);
            let stamp = LogStamp { actor: &actor, at };
            match self.runtime_seen(runtime, stamp) {
                Ok(()) | Err(Error::RuntimeEnded(_)) => {}
                Err(error) => return Err(error),
            }
            for row in self.cache.claims(runtime) {
                let Some(hot) = self.live_at(row, at)? else { continue };
                if hot.channel == Some(*channel) {
                    self.step(&hot, &RunCommand::Renew { runtime, lease }, stamp, TransitionWrites::default())?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn channel_message(&mut self, context: &WriteContext, channel: ChannelId, message: &Json) -> Result<()> {
        self.own_channel(context.tenant, channel)?;
        self.log_channel(channel, context.stamp(), &entry::channel::message(channel, message))
    }

    fn own_channel(&mut self, tenant: TenantId, channel: ChannelId) -> Result<CachedChannel> {
        let line = self.cached_channel(channel)?;
        if line.tenant == tenant { Ok(line) } else { Err(Error::NotFound) }
    }

    /// Removes abandoned channels. Returns true if there are more.
    pub(super) fn remove_channels(&mut self, retention: RetentionLimits) -> Result<bool> {
        let held: HashSet<ChannelId> = self.cache.channels_held().collect();
        let old = self
            .connection
            .prepare_cached(
                "select c.no, c.id from channels c
                 where c.connected = 0 and c.disconnected < case
                        when c.transport = 'sse' and exists (select 1 from follows f where f.channel = c.no)
                        then cast(?1 as bigint) else ?2 end
                    and c.no < (select max(no) from channels)
                    and not exists (select 1 from follows f cross join task_runs r on r.id = f.run
                        where f.channel = c.no and r.status <= 1)
                 order by c.no",
            )?
            .query_map([retention.streams_before.millis(), retention.channels_before.millis()], |row| {
                Ok((row.get::<i64>(0)?, rows::channel_id(row.get(1)?)))
            })?
            .filter(|row| !matches!(row, Ok((_, id)) if held.contains(id)))
            .take(retention.max_rows.saturating_add(1))
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for (no, id) in old.iter().take(retention.max_rows) {
            self.connection
                .prepare_cached("delete from channel_frames where key between ?1 and ?2")?
                .execute([frames::key(*no, 0), frames::key(*no + 1, 0) - 1])?;
            for table in ["channel_events", "follows"] {
                self.connection.prepare_cached(&format!("delete from {table} where channel = ?1"))?.execute([no])?;
            }
            self.connection.prepare_cached("delete from channels where no = ?1")?.execute([no])?;
            self.directory.forget_channel(*id);
        }
        if !old.is_empty() {
            self.connection.execute(
                "delete from channel_tools where no not in (select tools_no from channels where tools_no is not null)",
                (),
            )?;
        }
        Ok(old.len() > retention.max_rows)
    }

    /// The row of the list of tools. Equal lists are stored once, however many channels have them.
    fn tools_of(&self, tools: &Json) -> Result<i64> {
        let hash: [u8; 32] = *blake3::hash(tools.get().as_bytes()).as_bytes();
        self.connection
            .prepare_cached("insert into channel_tools (hash, text) values (?1, ?2) on conflict (hash) do nothing")?
            .execute(params![hash, tools.get()])?;
        Ok(self
            .connection
            .prepare_cached("select no from channel_tools where hash = ?1")?
            .query_row([hash], |row| row.get(0))?)
    }

    /// Removes the index entries of events that were removed with the front of a tenant's log.
    pub(super) fn cut_channel_events(&self, tenant: i64, log_floor: i64) -> Result<()> {
        self.connection.execute(
            "update channels set event_floor = (select max(e.seq) from channel_events e
                where e.channel = channels.no and e.log <= ?2)
             where tenant = (select id from tenants where no = ?1)
                and exists (select 1 from channel_events e where e.channel = channels.no and e.log <= ?2)",
            [tenant, log_floor],
        )?;
        self.connection.execute(
            "delete from channel_events where log <= ?2
                and channel in (select no from channels where tenant = (select id from tenants where no = ?1))",
            [tenant, log_floor],
        )?;
        Ok(())
    }
}

pub(super) fn read_channel(connection: &Connection, tenant: TenantId, channel: ChannelId) -> Result<ChannelRecord> {
    connection
        .prepare_cached(&format!("select {CHANNEL}, {HEAD} from channels c where c.id = ?1 and c.tenant = ?2"))?
        .query_row([IdBytes(channel.uuid()), IdBytes(tenant.uuid())], self::channel)
        .optional()?
        .ok_or(Error::NotFound)
}

pub(super) fn channels(
    connection: &Connection,
    tenant: TenantId,
    filter: &ChannelFilter,
    page: &Pagination,
) -> Result<ListPage<ChannelRecord>> {
    let (tenant, agent) = (IdBytes(tenant.uuid()), filter.agent.map(|agent| IdBytes(agent.uuid())));
    let (before, limit) = (lists::before(page)?, lists::one_more(page));
    let mut values: Vec<&dyn ToSql> = vec![&tenant, &before, &limit];
    // A literal, because a partial index is only used if its condition appears literally.
    let mut conditions = match filter.connected {
        Some(true) => " and c.connected = 1",
        Some(false) => " and c.connected = 0",
        None => "",
    }
    .to_owned();
    if let Some(agent) = &agent {
        values.push(agent);
        conditions += " and c.agent = ?4";
    }
    let selection = format!("{CHANNEL}, {HEAD} from channels c where c.tenant = ?1 and c.no < ?2{conditions}");
    lists::newest(connection, "c.no", &selection, &values, page, channel)
}

pub(super) fn channel_events(
    connection: &Connection,
    tenant: TenantId,
    channel: ChannelId,
    after: i64,
    limit: usize,
) -> Result<ChannelEvents> {
    let (no, floor, last_seq, tenant): (i64, i64, i64, i64) = connection
        .prepare_cached(&format!(
            "select c.no, c.event_floor, {LAST_EVENT}, t.no from channels c cross join tenants t on t.id = c.tenant
             where c.id = ?1 and c.tenant = ?2"
        ))?
        .query_row([IdBytes(channel.uuid()), IdBytes(tenant.uuid())], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?
        .ok_or(Error::NotFound)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let events = connection
        .prepare_cached(
            "select e.seq, l.type, l.at, l.data from channel_events e cross join log l on l.key = ?3 + e.log
             where e.channel = ?1 and e.seq > ?2 order by e.seq limit ?4",
        )?
        .query_map([no, after.max(floor), LogKeys::of(tenant).at(0), limit], |row| {
            Ok(Event { seq: row.get(0)?, kind: row.get(1)?, at: rows::time(row, 2)?, data: rows::json(row, 3)? })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(ChannelEvents { events, floor, last_seq })
}

/// Reads [`CHANNEL`] and [`HEAD`].
fn channel(row: &Row<'_>) -> rusqlite::Result<ChannelRecord> {
    let transport = Transport::from_text(&row.get::<String>(2)?);
    let peer_role = PeerRole::from_text(&row.get::<String>(3)?);
    Ok(ChannelRecord {
        id: rows::channel_id(row.get(0)?),
        tenant: rows::tenant_id(row.get(1)?),
        transport: transport.ok_or_else(|| rows::corrupt(2, "an unknown transport"))?,
        peer_role: peer_role.ok_or_else(|| rows::corrupt(3, "an unknown role of a peer"))?,
        account_ref: row.get(4)?,
        principal: rows::actor(row, 5)?,
        agent: row.get::<Option<_>>(6)?.map(rows::agent_id),
        runtime: row.get::<Option<_>>(7)?.map(rows::runtime_id),
        capabilities: rows::json(row, 8)?,
        native_protocol: row.get(9)?,
        tools: rows::json(row, 10)?,
        device_info: rows::maybe_json(row, 11)?,
        address: row.get(12)?,
        resume: row.get::<Option<_>>(13)?.map(SecretHash),
        connected: row.get(14)?,
        created_at: rows::time(row, 15)?,
        connected_at: rows::time(row, 16)?,
        last_seen_at: rows::time(row, 17)?,
        disconnected_at: rows::maybe_time(row, 18)?,
        reason: row.get(19)?,
        node: row.get::<Option<_>>(20)?.map(rows::node_id),
        floor: row.get(21)?,
        head: row.get(22)?,
    })
}
