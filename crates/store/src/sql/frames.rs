//! Frames that wait for a channel's peer, and the runs whose events become frames.

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{ChannelId, RunId, TenantId};
use rusqlite::params;

use super::{
    lookup_cache::CachedChannel,
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    Error, MAX_FRAMES, Result, WakeHint,
    record::channel::{ChannelConnection, FollowRecord, NewFollow, OutboxFrame, OutboxFrames},
};

/// Bits of a seq in the key of a frame.
const SEQ_BITS: u32 = 36;
const LAST_SEQ: i64 = (1 << SEQ_BITS) - 1;

/// The seq of the newest frame of `channels c`. Frames are only removed from the front.
pub(super) const HEAD: &str = "coalesce((select f.key & 68719476735 from channel_frames f \
     where f.key between c.no << 36 and c.no << 36 | 68719476735 order by f.key desc limit 1), c.floor)";

/// The seq of the newest event of `channels c`, likewise.
pub(super) const LAST_EVENT: &str = "coalesce((select max(e.seq) from channel_events e where e.channel = c.no), \
     c.event_floor)";

const FOLLOW: &str = "select c.id, r.uid, f.message, f.pushed from follows f \
     cross join channels c on c.no = f.channel cross join task_runs r on r.id = f.run";

/// A frame as its row has it.
struct FrameRow {
    kind: i64,
    subject: uuid::Uuid,
    number: Option<i64>,
    input: Option<uuid::Uuid>,
}

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn cached_channel(&mut self, channel: ChannelId) -> Result<CachedChannel> {
        self.directory.channel(self.connection, channel)
    }

    /// Adds a frame for a channel's peer.
    pub(super) fn add_frame(&mut self, channel: ChannelId, frame: OutboxFrame) -> Result<()> {
        let mut line = self.cached_channel(channel)?;
        line.head += 1;
        let FrameRow { kind, subject, number, input } = FrameRow::of(frame);
        self.connection
            .prepare_cached(
                "insert into channel_frames (key, kind, subject, number, input) values (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![key(line.no, line.head), kind, IdBytes(subject), number, input.map(IdBytes)])?;
        if line.head - line.floor > MAX_FRAMES {
            line = self.raise_floor(line, line.head - MAX_FRAMES)?;
        }
        self.directory.set_channel(channel, line);
        self.woken.push(WakeHint::Channel(channel));
        Ok(())
    }

    pub(super) fn acknowledge(&mut self, connection: ChannelConnection, seq: i64) -> Result<()> {
        self.check_current(connection)?;
        self.acknowledge_up_to(connection.channel, seq)
    }

    /// Whether nobody has taken over the channel of the connection.
    pub(super) fn check_current(&mut self, connection: ChannelConnection) -> Result<CachedChannel> {
        let line = self.cached_channel(connection.channel)?;
        if line.resume == Some(connection.resume) { Ok(line) } else { Err(Error::NotFound) }
    }

    pub(super) fn acknowledge_up_to(&mut self, channel: ChannelId, seq: i64) -> Result<()> {
        let line = self.cached_channel(channel)?;
        let seq = seq.min(line.head);
        if seq > line.floor {
            let line = self.raise_floor(line, seq)?;
            self.directory.set_channel(channel, line);
        }
        Ok(())
    }

    /// Frames up to this seq no longer need to be sent.
    pub(super) fn raise_floor(&self, line: CachedChannel, seq: i64) -> Result<CachedChannel> {
        self.connection
            .prepare_cached("delete from channel_frames where key between ?1 and ?2")?
            .execute([key(line.no, 0), key(line.no, seq)])?;
        self.connection.prepare_cached("update channels set floor = ?2 where no = ?1")?.execute([line.no, seq])?;
        Ok(CachedChannel { floor: seq, ..line })
    }

    /// Whether a channel can follow a new run: it belongs to the tenant and wasn't superseded.
    pub(super) fn able_to_follow(&mut self, tenant: TenantId, channel: ChannelId) -> Result<CachedChannel> {
        let line = self.cached_channel(channel)?;
        if line.tenant == tenant && line.resume.is_some() { Ok(line) } else { Err(Error::NotFound) }
    }

    pub(super) fn follow(&mut self, run: i64, new: &NewFollow) -> Result<()> {
        let line = self.cached_channel(new.channel)?;
        self.connection
            .prepare_cached(
                "insert into follows (run, channel, message) values (?1, ?2, ?3)
                 on conflict (run) do update
                    set channel = excluded.channel, message = excluded.message, done = 0, pushed = 0",
            )?
            .execute(params![run, line.no, new.message])?;
        self.woken.push(WakeHint::Channel(new.channel));
        Ok(())
    }

    /// The request that created a run is repeated over another channel of the same principal, which follows the run
    /// from now on.
    pub(super) fn follow_again(&mut self, tenant: TenantId, run: RunId, new: &NewFollow) -> Result<()> {
        self.able_to_follow(tenant, new.channel)?;
        let moves = self
            .connection
            .prepare_cached(
                "select r.id from task_runs r cross join follows f on f.run = r.id
                    cross join channels c on c.no = f.channel cross join channels n on n.id = ?2
                 where r.uid = ?1 and c.no <> n.no and c.principal = n.principal",
            )?
            .query_row([IdBytes(run.uuid()), IdBytes(new.channel.uuid())], |row| row.get(0))
            .optional()?;
        match moves {
            Some(row) => self.follow(row, new),
            None => Ok(()),
        }
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
        let follow = follower(self.connection, run)?.filter(|follow| follow.channel == channel);
        let follow = follow.ok_or(Error::NotFound)?;
        let hot = self.run_state(run)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let to = upto.min(hot.last_seq).min(follow.pushed.saturating_add(limit));
        if to <= follow.pushed {
            return Ok(follow);
        }
        for seq in follow.pushed + 1..=to {
            self.add_frame(channel, OutboxFrame::Event { run, seq })?;
        }
        let done = hot.state.status().is_terminal() && to == hot.last_seq;
        self.connection
            .prepare_cached("update follows set pushed = ?2, done = ?3 where run = ?1")?
            .execute(params![hot.row, to, done])?;
        Ok(FollowRecord { pushed: to, ..follow })
    }
}

pub(super) fn frames(connection: &Connection, channel: ChannelId, after: i64, limit: usize) -> Result<OutboxFrames> {
    let (no, floor, head): (i64, i64, i64) = connection
        .prepare_cached(&format!("select c.no, c.floor, {HEAD} from channels c where c.id = ?1"))?
        .query_row([IdBytes(channel.uuid())], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?
        .ok_or(Error::NotFound)?;
    let from = after.max(floor).min(LAST_SEQ);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let frames = connection
        .prepare_cached(
            "select key & 68719476735, kind, subject, number, input from channel_frames
             where key > ?1 and key <= ?2 order by key limit ?3",
        )?
        .query_map([key(no, from), key(no, LAST_SEQ), limit], frame)?
        .collect::<rusqlite::Result<_>>()?;
    Ok(OutboxFrames { frames, floor, head })
}

/// In order, from above the floor.
pub(super) fn all_frames(connection: &Connection, line: &CachedChannel) -> Result<Vec<(i64, OutboxFrame)>> {
    Ok(connection
        .prepare_cached(
            "select key & 68719476735, kind, subject, number, input from channel_frames
             where key between ?1 and ?2 order by key",
        )?
        .query_map([key(line.no, 0), key(line.no, LAST_SEQ)], frame)?
        .collect::<rusqlite::Result<_>>()?)
}

pub(super) fn follows(connection: &Connection, channel: ChannelId) -> Result<Vec<FollowRecord>> {
    let no: i64 = connection
        .prepare_cached("select no from channels where id = ?1")?
        .query_row([IdBytes(channel.uuid())], |row| row.get(0))
        .optional()?
        .ok_or(Error::NotFound)?;
    Ok(connection
        .prepare_cached(&format!("{FOLLOW} where f.channel = ?1 and f.done = 0 order by f.run"))?
        .query_map([no], follow)?
        .collect::<rusqlite::Result<_>>()?)
}

pub(super) fn follower(connection: &Connection, run: RunId) -> Result<Option<FollowRecord>> {
    Ok(connection
        .prepare_cached(&format!("{FOLLOW} where f.run = (select id from task_runs where uid = ?1)"))?
        .query_row([IdBytes(run.uuid())], follow)
        .optional()?)
}

/// Reads [`FOLLOW`].
fn follow(row: &Row<'_>) -> rusqlite::Result<FollowRecord> {
    Ok(FollowRecord {
        channel: rows::channel_id(row.get(0)?),
        run: rows::run_id(row.get(1)?),
        message: row.get(2)?,
        pushed: row.get(3)?,
    })
}

/// The key of a channel's frame with this seq.
pub(super) const fn key(channel: i64, seq: i64) -> i64 {
    channel << SEQ_BITS | seq
}

fn frame(row: &Row<'_>) -> rusqlite::Result<(i64, OutboxFrame)> {
    let stored = FrameRow {
        kind: row.get(1)?,
        subject: uuid::Uuid::from_bytes(row.get(2)?),
        number: row.get(3)?,
        input: row.get::<Option<_>>(4)?.map(uuid::Uuid::from_bytes),
    };
    Ok((row.get(0)?, stored.frame().ok_or_else(|| rows::corrupt(1, "an unknown frame"))?))
}

// === impl FrameRow ===

impl FrameRow {
    fn of(frame: OutboxFrame) -> Self {
        let (kind, subject, number, input) = match frame {
            OutboxFrame::Execute { run, epoch } => (0, run.uuid(), Some(epoch), None),
            OutboxFrame::Cancel { run } => (1, run.uuid(), None, None),
            OutboxFrame::Input { run, input } => (2, run.uuid(), None, Some(input.uuid())),
            OutboxFrame::Permission { permission } => (3, permission.uuid(), None, None),
            OutboxFrame::Answer { ask } => (4, ask.uuid(), None, None),
            OutboxFrame::ToolCall { ask } => (5, ask.uuid(), None, None),
            OutboxFrame::Event { run, seq } => (6, run.uuid(), Some(seq), None),
        };
        Self { kind, subject, number, input }
    }

    fn frame(self) -> Option<OutboxFrame> {
        let subject = *self.subject.as_bytes();
        Some(match self.kind {
            0 => OutboxFrame::Execute { run: rows::run_id(subject), epoch: self.number? },
            1 => OutboxFrame::Cancel { run: rows::run_id(subject) },
            2 => OutboxFrame::Input { run: rows::run_id(subject), input: rows::input_id(*self.input?.as_bytes()) },
            3 => OutboxFrame::Permission { permission: rows::permission_id(subject) },
            4 => OutboxFrame::Answer { ask: rows::ask_id(subject) },
            5 => OutboxFrame::ToolCall { ask: rows::ask_id(subject) },
            6 => OutboxFrame::Event { run: rows::run_id(subject), seq: self.number? },
            _ => return None,
        })
    }
}
