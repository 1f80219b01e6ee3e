//! Rows of channels: what the tables of [`crate::ChannelStore`] and [`crate::WorkerRequestStore`] call `channel.*`.

use attache_protocol::{
    ChannelId, EventKind, Json, PermissionId, RunId,
    wire::channel::{PeerRole, Transport},
};
use serde::Serialize;

use super::LogEntry;
use crate::record::channel::NewChannel;

#[derive(Serialize)]
struct ChannelConnectedData<'a> {
    channel_id: ChannelId,
    transport: Transport,
    peer_role: PeerRole,
    account_ref: &'a str,
}

#[derive(Serialize)]
struct ChannelDisconnectedData<'a> {
    channel_id: ChannelId,
    reason: &'a str,
}

#[derive(Serialize)]
struct ChannelResumedData {
    channel_id: ChannelId,
    last_seq: i64,
}

#[derive(Serialize)]
struct ChannelMessageData<'a> {
    channel_id: ChannelId,
    message: &'a Json,
}

#[derive(Serialize)]
struct PermissionForwardedData {
    channel_id: ChannelId,
    permission_request_id: PermissionId,
    task_run_id: RunId,
}

#[derive(Serialize)]
struct PermissionReturnedData {
    channel_id: ChannelId,
    permission_request_id: PermissionId,
    task_run_id: RunId,
    approved: bool,
}

/// Why a channel is disconnected when another channel or connection replaces it.
pub(crate) mod reason {
    pub(crate) const SUPERSEDED: &str = "superseded";
    pub(crate) const REPLACED: &str = "replaced";
}

pub(crate) fn connected(new: &NewChannel) -> LogEntry {
    let NewChannel { id, transport, peer_role, account_ref, .. } = new;
    let row = ChannelConnectedData { channel_id: *id, transport: *transport, peer_role: *peer_role, account_ref };
    (EventKind::ChannelConnected, Json::of(&row))
}

pub(crate) fn disconnected(channel: ChannelId, reason: &str) -> LogEntry {
    (EventKind::ChannelDisconnected, Json::of(&ChannelDisconnectedData { channel_id: channel, reason }))
}

pub(crate) fn resumed(channel: ChannelId, last_seq: i64) -> LogEntry {
    (EventKind::ChannelResumed, Json::of(&ChannelResumedData { channel_id: channel, last_seq }))
}

pub(crate) fn message(channel: ChannelId, message: &Json) -> LogEntry {
    (EventKind::ChannelMessage, Json::of(&ChannelMessageData { channel_id: channel, message }))
}

pub(crate) fn permission_forwarded(channel: ChannelId, permission: PermissionId, run: RunId) -> LogEntry {
    let row = PermissionForwardedData { channel_id: channel, permission_request_id: permission, task_run_id: run };
    (EventKind::ChannelPermissionForwarded, Json::of(&row))
}

pub(crate) fn permission_returned(
    channel: ChannelId,
    permission: PermissionId,
    run: RunId,
    approved: bool,
) -> LogEntry {
    let row =
        PermissionReturnedData { channel_id: channel, permission_request_id: permission, task_run_id: run, approved };
    (EventKind::ChannelPermissionReturned, Json::of(&row))
}
