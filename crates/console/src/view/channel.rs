//! A channel as a list row and as a page.

use std::collections::HashMap;

use attache_protocol::{
    AgentId, EventKind, Json,
    json::pretty,
    wire::{
        channel::{Channel, ConnectionState, PeerRole},
        event::Event,
    },
};
use serde::Deserialize;

use super::{
    actor::short, callsign, exact::exact_line, fact::Fact, html::Markup, status::StatusBadge, time::TimeElement,
    tool_input::FoldedText,
};
use crate::text::Text;

#[derive(Debug, Clone)]
pub(crate) struct ChannelListRow {
    pub(crate) id: String,
    pub(crate) short: String,
    pub(crate) status: StatusBadge,
    pub(crate) note: Markup,
    /// Status and note as one sentence.
    pub(crate) sentence: Markup,
    /// The agent, or the account if there is no agent.
    pub(crate) sign: Option<Markup>,
    pub(crate) who: Markup,
    pub(crate) agent: Option<String>,
    pub(crate) role: &'static str,
    pub(crate) transport: &'static str,
    pub(crate) native: Option<Markup>,
    pub(crate) seen: TimeElement,
    pub(crate) unacknowledged: i64,
}

/// A tool that the peer registered. All of its text is untrusted.
#[derive(Debug, Clone)]
pub(crate) struct ChannelTool {
    pub(crate) name: Markup,
    pub(crate) description: Markup,
    pub(crate) schema: Option<FoldedText>,
}

/// An event of the channel's own stream.
#[derive(Debug, Clone)]
pub(crate) struct ChannelEventItem {
    pub(crate) seq: i64,
    pub(crate) class: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) words: Markup,
    pub(crate) at: TimeElement,
}

// === impl ChannelListRow ===

impl ChannelListRow {
    pub(crate) fn new(channel: &Channel, agents: &HashMap<AgentId, String>, t: &'static Text) -> Self {
        let agent = channel.agent_id;
        let who = agent.and_then(|id| agents.get(&id)).map_or_else(|| exact_line(&channel.account_ref), Markup::of);
        let (note, sentence) = note(channel, t);
        Self {
            id: channel.channel_id.to_string(),
            short: short(&channel.channel_id.to_string()),
            status: status(channel, t),
            note,
            sentence,
            sign: agent.map(callsign::small),
            who,
            agent: agent.map(|id| id.to_string()),
            role: role(channel.peer_role, t),
            transport: channel.transport.as_str(),
            native: channel.native_protocol.as_deref().map(exact_line),
            seen: TimeElement::relative(channel.last_seen_at),
            unacknowledged: channel.unacknowledged,
        }
    }
}

pub(crate) fn status(channel: &Channel, t: &'static Text) -> StatusBadge {
    match channel.status {
        ConnectionState::Connected => StatusBadge { key: "connected", class: "done", icon: "s-on", word: t.connected },
        ConnectionState::Disconnected => {
            StatusBadge { key: "disconnected", class: "off", icon: "s-off", word: t.disconnected }
        }
    }
}

/// When it connected, or when and why it disconnected: below its status, and as a whole sentence.
fn note(channel: &Channel, t: &Text) -> (Markup, Markup) {
    match channel.status {
        ConnectionState::Connected => (t.connected_since(channel.connected_at), t.connected_now(channel.connected_at)),
        ConnectionState::Disconnected => {
            let at = channel.disconnected_at.unwrap_or(channel.last_seen_at);
            let reason = reason(channel.reason.as_deref().unwrap_or_default(), t);
            (t.disconnected_since(at, &reason), t.disconnected_now(at, &reason))
        }
    }
}

/// The text for a disconnect reason. Unknown reasons are shown as they are.
fn reason(reason: &str, t: &Text) -> Markup {
    Markup::text(match reason {
        "" => t.gone_unsaid,
        "superseded" => t.gone_superseded,
        "replaced" => t.gone_replaced,
        "heartbeat_timeout" => t.gone_silent,
        "closed" => t.gone_closed,
        "connection_lost" => t.gone_lost,
        "hub_restarted" | "node_lost" => t.gone_restart,
        "hub_stopped" => t.gone_stopping,
        "unauthenticated" => t.gone_revoked,
        "finished" => t.gone_finished,
        other => return exact_line(other),
    })
}

fn role(role: PeerRole, t: &Text) -> &'static str {
    match role {
        PeerRole::Client => t.peer_client,
        PeerRole::Host => t.peer_host,
        PeerRole::Worker => t.peer_worker,
        PeerRole::RemoteRuntime => t.peer_runtime,
        PeerRole::PeerAgent => t.peer_agent,
        PeerRole::ToolServer => t.peer_tools,
    }
}

/// The details of a channel.
pub(crate) fn facts(channel: &Channel, t: &'static Text) -> Vec<Fact> {
    let none = |text: Option<&str>| text.map_or_else(|| Markup::text(t.none), exact_line);
    let mut facts = vec![
        Fact::code(t.fact_channel, &channel.channel_id.to_string()),
        Fact::code(t.fact_transport, channel.transport.as_str()),
        Fact::code(t.fact_peer_role, channel.peer_role.as_str()),
        Fact::exact(t.fact_account, exact_line(&channel.account_ref)),
        Fact::exact(t.fact_protocol, none(channel.native_protocol.as_deref())),
        Fact::exact(t.fact_card, none(channel.agent_card_ref.as_deref())),
        Fact::exact(t.fact_resume, none(channel.resume_token_ref.as_deref())),
    ];
    if let Some(runtime) = channel.runtime_id {
        facts.push(Fact::code(t.fact_runtime, &runtime.to_string()));
    }
    facts.push(Fact::exact(t.address, none(channel.address.as_deref())));
    facts.push(Fact::when(t.created, channel.created_at));
    facts.push(Fact::when(t.fact_connected, channel.connected_at));
    facts.push(Fact::when(t.fact_seen, channel.last_seen_at));
    if let Some(at) = channel.disconnected_at {
        facts.push(Fact::when(t.fact_disconnected, at));
    }
    facts.push(Fact::text(t.fact_frames, &channel.unacknowledged.to_string()));
    facts
}

// === impl ChannelTool ===

impl ChannelTool {
    pub(crate) fn all(tools: &Json, t: &Text) -> Vec<Self> {
        #[derive(Debug, Deserialize)]
        struct RegisteredTool {
            name: String,
            description: Option<String>,
            input_schema: Option<Json>,
        }
        let given: Vec<RegisteredTool> = tools.parse().unwrap_or_default();
        given
            .into_iter()
            .map(|tool| Self {
                name: exact_line(&tool.name),
                description: exact_line(tool.description.as_deref().unwrap_or_default()),
                schema: tool.input_schema.map(|schema| FoldedText::new(&pretty(schema.get()), t)),
            })
            .collect()
    }
}

// === impl ChannelEventItem ===

impl ChannelEventItem {
    pub(crate) fn new(event: &Event, t: &'static Text) -> Self {
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        struct ChannelEventData {
            reason: Option<String>,
            last_seq: Option<i64>,
            approved: Option<bool>,
            permission_request_id: Option<String>,
            task_run_id: Option<String>,
            message: Option<Json>,
        }
        let data: ChannelEventData = event.data.parse().unwrap_or_default();
        let link = |path: &str, id: &Option<String>| {
            let id = id.clone().unwrap_or_default();
            // Only valid ids become links.
            if id.chars().all(|character| character.is_ascii_alphanumeric() || character == '_') {
                Markup::id_link(path, &id)
            } else {
                exact_line(&id)
            }
        };
        let (class, icon, words) = match event.event_kind() {
            Some(EventKind::ChannelConnected) => ("done", "s-on", Markup::text(t.connected)),
            Some(EventKind::ChannelResumed) => ("done", "s-on", t.moment_resumed(data.last_seq.unwrap_or_default())),
            Some(EventKind::ChannelDisconnected) => {
                let reason = reason(data.reason.as_deref().unwrap_or_default(), t);
                ("off", "s-off", t.moment_gone(&reason))
            }
            Some(EventKind::ChannelPermissionForwarded | EventKind::ChannelPermissionReturned) => {
                let (run, request) = (link("runs", &data.task_run_id), link("approvals", &data.permission_request_id));
                match data.approved {
                    None => ("wait", "s-wait", t.moment_asked(request, run)),
                    Some(true) => ("done", "s-done", t.moment_allowed(request, run)),
                    Some(false) => ("fail", "s-fail", t.moment_denied(request, run)),
                }
            }
            Some(EventKind::ChannelMessage) => {
                let message = data.message.as_ref().map_or_else(|| event.data.get().to_owned(), |m| m.get().to_owned());
                let message = exact_line(&cut(&message));
                ("", "s-dot", t.moment_message(&message))
            }
            _ => ("", "s-dot", exact_line(&format!("{} {}", event.kind, cut(event.data.get())))),
        };
        Self { seq: event.seq, class, icon, words, at: TimeElement::clock(event.at) }
    }
}

/// Truncates a message for the list.
fn cut(text: &str) -> String {
    let mut short = text[..text.floor_char_boundary(1_000)].to_owned();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
