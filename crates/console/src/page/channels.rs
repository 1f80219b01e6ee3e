//! The list of channels.

use askama::Template;
use attache_hub::control::{ChannelQuery, PageRequest};
use attache_protocol::{
    Code,
    wire::channel::{ChannelList, ConnectionState},
};
use axum::extract::Query;
use serde::Deserialize;

use crate::{
    layout::PageLayout,
    page::{ViewTab, address, agent_names, html},
    problem::PageResult,
    session::BrowserSession,
    text::Text,
    view::channel::ChannelListRow,
};

const PAGE_SIZE: usize = 50;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChannelsPageQuery {
    status: String,
    agent: String,
    cursor: String,
}

#[derive(Template)]
#[template(path = "channels.html")]
struct ChannelsPage {
    t: &'static Text,
    shell: PageLayout,
    summary: String,
    tabs: Vec<ViewTab>,
    agent: String,
    rows: Vec<ChannelListRow>,
    newest: bool,
    older: Option<String>,
    empty_title: &'static str,
    empty_text: &'static str,
}

pub(crate) async fn list(session: BrowserSession, Query(asked): Query<ChannelsPageQuery>) -> PageResult {
    let t = session.t;
    let shell = PageLayout::new(&session).await?;
    let status = ConnectionState::from_text(&asked.status);
    let list = find(&session, &asked, status).await?;
    let names = agent_names(&session).await?;
    let connected = list.channels.iter().filter(|channel| channel.status == ConnectionState::Connected).count();
    let href = |status: &str, cursor: &str| {
        address("/channels", &[("status", status), ("agent", &asked.agent), ("cursor", cursor)])
    };
    let tab = |one: Option<ConnectionState>, label| ViewTab {
        href: href(one.map(ConnectionState::as_str).unwrap_or_default(), ""),
        label,
        current: status == one,
    };
    let filtered = status.is_some() || !asked.agent.is_empty() || !asked.cursor.is_empty();
    let (empty_title, empty_text) =
        if filtered { (t.channels_none, t.channels_none_text) } else { (t.channels_empty, t.channels_empty_text) };
    html(&ChannelsPage {
        t,
        summary: t.channels_summary(connected),
        tabs: vec![
            tab(None, t.tab_all),
            tab(Some(ConnectionState::Connected), t.connected),
            tab(Some(ConnectionState::Disconnected), t.disconnected),
        ],
        rows: list.channels.iter().map(|channel| ChannelListRow::new(channel, &names, t)).collect(),
        newest: !asked.cursor.is_empty(),
        older: list.next_cursor.map(|cursor| href(status.map(ConnectionState::as_str).unwrap_or_default(), &cursor)),
        empty_title,
        empty_text,
        agent: asked.agent.clone(),
        shell,
    })
}

async fn find(
    session: &BrowserSession,
    asked: &ChannelsPageQuery,
    status: Option<ConnectionState>,
) -> PageResult<ChannelList> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let query = ChannelQuery {
        connected: status.map(|status| status == ConnectionState::Connected),
        agent: given(asked.agent.trim()),
    };
    let page = PageRequest { limit: Some(PAGE_SIZE), cursor: given(&asked.cursor) };
    match session.hub.channels(&session.principal, query, page).await {
        Ok(list) => Ok(list),
        // An unknown agent has no channels. The user can remove the filter on the page.
        Err(error) if !asked.agent.is_empty() && matches!(error.code, Code::NotFound | Code::InvalidRequest) => {
            Ok(ChannelList { channels: Vec::new(), next_cursor: None })
        }
        Err(error) => Err(error.into()),
    }
}
