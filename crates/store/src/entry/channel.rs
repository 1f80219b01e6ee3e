//! Rows of channels: what the tables of [`crate::Channels`] and [`crate::Asks`] call `channel.*`.

use attache_protocol::{
    ChannelId, EventKind, Json, PermissionId, RunId,
    wire::channel::{PeerRole, Transport},
};
use serde::Serialize;

use super::Entry;
use crate::record::channel::NewChannel;

#[derive(Serialize)]
struct Connected<'a> {
    channel_id: ChannelId,
    transport: Transport,
    peer_role: PeerRole,
    account_ref: &'a str,
}

#[derive(Serialize)]
struct Disconnected<'a> {
    channel_id: ChannelId,
    reason: &'a str,
}

#[derive(Serialize)]
struct Resumed {
    channel_id: ChannelId,
    last_seq: i64,
}

#[derive(Serialize)]
struct Message<'a> {
    channel_id: ChannelId,
    message: &'a Json,
}

#[derive(Serialize)]
struct Forwarded {
    channel_id: ChannelId,
    permission_request_id: PermissionId,
    task_run_id: RunId,
}

#[derive(Serialize)]
struct Returned {
    channel_id: ChannelId,
    permission_request_id: PermissionId,
    task_run_id: RunId,
    approved: bool,
}

/// Why a channel is disconnected when another one takes its place, or another connection of its own does.
pub(crate) mod reason {
    pub(crate) const SUPERSEDED: &str = "superseded";
    pub(crate) const REPLACED: &str = "replaced";
}

pub(crate) fn connected(new: &NewChannel) -> Entry {
    let NewChannel { id, transport, peer_role, account_ref, .. } = new;
    let row = Connected { channel_id: *id, transport: *transport, peer_role: *peer_role, account_ref };
    (EventKind::ChannelConnected, Json::of(&row))
}

pub(crate) fn disconnected(channel: ChannelId, reason: &str) -> Entry {
    (EventKind::ChannelDisconnected, Json::of(&Disconnected { channel_id: channel, reason }))
}

pub(crate) fn resumed(channel: ChannelId, last_seq: i64) -> Entry {
    (EventKind::ChannelResumed, Json::of(&Resumed { channel_id: channel, last_seq }))
}

pub(crate) fn message(channel: ChannelId, message: &Json) -> Entry {
    (EventKind::ChannelMessage, Json::of(&Message { channel_id: channel, message }))
}

pub(crate) fn permission_forwarded(channel: ChannelId, permission: PermissionId, run: RunId) -> Entry {
    let row = Forwarded { channel_id: channel, permission_request_id: permission, task_run_id: run };
    (EventKind::ChannelPermissionForwarded, Json::of(&row))
}

pub(crate) fn permission_returned(channel: ChannelId, permission: PermissionId, run: RunId, approved: bool) -> Entry {
    let row = Returned { channel_id: channel, permission_request_id: permission, task_run_id: run, approved };
    (EventKind::ChannelPermissionReturned, Json::of(&row))
}
