//! The list of channels.

use askama::Template;
use attache_hub::control::{ChannelQuery, PageRequest};
use attache_protocol::{
    Code,
    wire::channel::{ChannelList, Connection},
};
use axum::{
    extract::{Query, State},
    http::Uri,
};
use serde::Deserialize;

use crate::{
    Console,
    page::{Tab, address, agent_names, html},
    problem::Result,
    session::Session,
    shell::{Place, Shell},
    text::{Text, fill},
    view::channel::Row,
};

const PAGE: usize = 50;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    status: String,
    agent: String,
    cursor: String,
}

#[derive(Template)]
#[template(path = "channels.html")]
struct Page {
    t: &'static Text,
    shell: Shell,
    summary: String,
    tabs: Vec<Tab>,
    agent: String,
    rows: Vec<Row>,
    newest: bool,
    older: Option<String>,
    empty_title: &'static str,
    empty_text: &'static str,
}

pub(crate) async fn list(
    State(console): State<Console>,
    session: Session,
    Query(asked): Query<Asked>,
    uri: Uri,
) -> Result {
    let t = session.t;
    let shell = Shell::new(&console, &session, Place::Channels, &uri).await?;
    let status = Connection::from_text(&asked.status);
    let list = find(&console, &session, &asked, status).await?;
    let names = agent_names(&console, &session).await?;
    let connected = list.channels.iter().filter(|channel| channel.status == Connection::Connected).count();
    let href = |status: &str, cursor: &str| {
        address("/channels", &[("status", status), ("agent", &asked.agent), ("cursor", cursor)])
    };
    let tab = |one: Option<Connection>, label| Tab {
        href: href(one.map(Connection::as_str).unwrap_or_default(), ""),
        label,
        current: status == one,
    };
    let filtered = status.is_some() || !asked.agent.is_empty() || !asked.cursor.is_empty();
    let (empty_title, empty_text) =
        if filtered { (t.channels_none, t.channels_none_text) } else { (t.channels_empty, t.channels_empty_text) };
    html(&Page {
        t,
        summary: fill(t.channels_summary, &[("n", &connected.to_string())]),
        tabs: vec![
            tab(None, t.tab_all),
            tab(Some(Connection::Connected), t.connected),
            tab(Some(Connection::Disconnected), t.disconnected),
        ],
        rows: list.channels.iter().map(|channel| Row::new(channel, &names, t)).collect(),
        newest: !asked.cursor.is_empty(),
        older: list.next_cursor.map(|cursor| href(status.map(Connection::as_str).unwrap_or_default(), &cursor)),
        empty_title,
        empty_text,
        agent: asked.agent.clone(),
        shell,
    })
}

async fn find(console: &Console, session: &Session, asked: &Asked, status: Option<Connection>) -> Result<ChannelList> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let query = ChannelQuery {
        connected: status.map(|status| status == Connection::Connected),
        agent: given(asked.agent.trim()),
    };
    let page = PageRequest { limit: Some(PAGE), cursor: given(&asked.cursor) };
    match console.hub.channels(&session.principal, query, page).await {
        Ok(list) => Ok(list),
        // An agent that does not exist has no channels; the filter can be taken away on the page.
        Err(error) if !asked.agent.is_empty() && matches!(error.code, Code::NotFound | Code::InvalidRequest) => {
            Ok(ChannelList { channels: Vec::new(), next_cursor: None })
        }
        Err(error) => Err(error.into()),
    }
}
