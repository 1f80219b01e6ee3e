//! One channel: its identity, its state, its tools, and its own stream of events.

use askama::Template;
use attache_protocol::{ChannelId, json::pretty, wire::event::Event};
use axum::{
    extract::{Path, Query, State},
    http::Uri,
};
use serde::Deserialize;

use crate::{
    Console,
    page::{address, agent_names, html},
    problem::{Fault, Result},
    session::Session,
    shell::{Place, Shell},
    text::Text,
    view::{
        asked::Folded,
        channel::{Moment, Row, Tool, facts},
        exact::exact_line,
        fact::Fact,
        html::Markup,
    },
};

/// Events on one page, newest first.
const EVENTS: i64 = 50;
const READ: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    /// Show what came before this event.
    before: i64,
}

#[derive(Template)]
#[template(path = "channel.html")]
struct Page {
    t: &'static Text,
    shell: Shell,
    row: Row,
    facts: Vec<Fact>,
    capabilities: Vec<Markup>,
    tools: Vec<Tool>,
    device_info: Option<Folded>,
    events: Vec<Moment>,
    newest: bool,
    older: Option<String>,
}

pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    Path(channel): Path<String>,
    Query(asked): Query<Asked>,
    uri: Uri,
) -> Result {
    let t = session.t;
    let id: ChannelId = channel.parse().map_err(|_| Fault::NoSuchPath)?;
    let shell = Shell::new(&console, &session, Place::Channels, &uri).await?;
    let channel = console.hub.channel(&session.principal, id).await?;
    let names = agent_names(&console, &session).await?;
    let before = (asked.before > 1).then_some(asked.before);
    let events = events(&console, &session, id, before).await?;
    let older = events.last().map(|event| event.seq).filter(|seq| *seq > 1);
    html(&Page {
        t,
        row: Row::new(&channel, &names, t),
        facts: facts(&channel, t),
        capabilities: channel.capabilities.iter().map(|word| exact_line(word)).collect(),
        tools: Tool::all(&channel.tools, t),
        device_info: channel.device_info.as_ref().map(|info| Folded::new(&pretty(info.get()), t)),
        events: events.iter().map(|event| Moment::new(event, t)).collect(),
        newest: before.is_some(),
        older: older.map(|seq| address(&format!("/channels/{id}"), &[("before", &seq.to_string())])),
        shell,
    })
}

/// The newest events before a seq, newest first. The hub reads forwards, so the end is found by halving what is unknown.
async fn events(console: &Console, session: &Session, id: ChannelId, before: Option<i64>) -> Result<Vec<Event>> {
    let (hub, by) = (&console.hub, &session.principal);
    let end = match before {
        Some(before) => before - 1,
        None => {
            let is_there = async |after: i64| -> Result<bool> {
                Ok(!hub.channel_events(by, id, Some(after), Some(1)).await?.events.is_empty())
            };
            let (mut low, mut high) = (0_i64, 1_i64);
            while is_there(high).await? {
                low = high;
                high = high.saturating_mul(4);
            }
            while low < high {
                let middle = low + (high - low) / 2;
                if is_there(middle).await? { low = middle + 1 } else { high = middle }
            }
            low
        }
    };
    let page = hub.channel_events(by, id, Some((end - EVENTS).max(0)), Some(READ)).await?;
    let mut events: Vec<_> = page.events.into_iter().filter(|event| event.seq <= end).collect();
    events.reverse();
    events.truncate(usize::try_from(EVENTS).unwrap_or(READ));
    Ok(events)
}
