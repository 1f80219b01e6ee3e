//! The page of one channel: identity, state, tools and events.

use askama::Template;
use attache_protocol::{ChannelId, json::pretty, wire::event::Event};
use axum::extract::{Path, Query};
use serde::Deserialize;

use crate::{
    layout::PageLayout,
    page::{address, agent_names, html},
    problem::{PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        channel::{ChannelEventItem, ChannelListRow, ChannelTool, facts},
        exact::exact_line,
        fact::Fact,
        html::Markup,
        tool_input::FoldedText,
    },
};

/// Events on one page, newest first.
const PAGE_SIZE: i64 = 50;
const READ_BATCH: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChannelPageQuery {
    /// Show events before this one.
    before: i64,
}

#[derive(Template)]
#[template(path = "channel.html")]
struct ChannelPage {
    t: &'static Text,
    shell: PageLayout,
    row: ChannelListRow,
    facts: Vec<Fact>,
    capabilities: Vec<Markup>,
    tools: Vec<ChannelTool>,
    device_info: Option<FoldedText>,
    events: Vec<ChannelEventItem>,
    newest: bool,
    older: Option<String>,
}

pub(crate) async fn show(
    session: BrowserSession,
    Path(channel): Path<String>,
    Query(asked): Query<ChannelPageQuery>,
) -> PageResult {
    let t = session.t;
    let id: ChannelId = channel.parse().map_err(|_| PageError::NoSuchPath)?;
    let shell = PageLayout::new(&session).await?;
    let channel = session.hub.channel(&session.principal, id).await?;
    let names = agent_names(&session).await?;
    let before = (asked.before > 1).then_some(asked.before);
    let events = events(&session, id, before).await?;
    let older = events.last().map(|event| event.seq).filter(|seq| *seq > 1);
    html(&ChannelPage {
        t,
        row: ChannelListRow::new(&channel, &names, t),
        facts: facts(&channel, t),
        capabilities: channel.capabilities.iter().map(|word| exact_line(word)).collect(),
        tools: ChannelTool::all(&channel.tools, t),
        device_info: channel.device_info.as_ref().map(|info| FoldedText::new(&pretty(info.get()), t)),
        events: events.iter().map(|event| ChannelEventItem::new(event, t)).collect(),
        newest: before.is_some(),
        older: older.map(|seq| address(&format!("/channels/{id}"), &[("before", &seq.to_string())])),
        shell,
    })
}

/// The newest events before a seq, newest first. The hub only reads forwards, so the end is found by binary search.
async fn events(session: &BrowserSession, id: ChannelId, before: Option<i64>) -> PageResult<Vec<Event>> {
    let (hub, by) = (&session.hub, &session.principal);
    let end = match before {
        Some(before) => before - 1,
        None => {
            let is_there = async |after: i64| -> PageResult<bool> {
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
    let page = hub.channel_events(by, id, Some((end - PAGE_SIZE).max(0)), Some(READ_BATCH)).await?;
    let mut events: Vec<_> = page.events.into_iter().filter(|event| event.seq <= end).collect();
    events.reverse();
    events.truncate(usize::try_from(PAGE_SIZE).unwrap_or(READ_BATCH));
    Ok(events)
}
