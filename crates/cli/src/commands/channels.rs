//! `attache channels`: the live connections of a hub, and those that were.

use attache_client::{ChannelFilter, Hub};
use attache_protocol::{
    ChannelId,
    json::pretty,
    wire::channel::{Channel, Connection},
};
use clap::Subcommand;

use super::page::{self, Listing, PageArgs};
use crate::{
    Context, Failure,
    context::HubArgs,
    ids::IdArg,
    names::Names,
    output::{Cell, Style, Table, clean, time},
};

/// List live connections and what happened to them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache channels                        the newest channels
  attache channels list --status connected --agent builder
  attache channels show chn_…             who it is, and whether it is there
  attache channels events chn_…           everything that happened to it",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    filter: Filter,
    #[command(subcommand)]
    command: Option<Channels>,
}

#[derive(Debug, Subcommand)]
enum Channels {
    /// List channels, newest first (what `attache channels` does)
    List(Filter),
    /// Show one channel with its capabilities and tools
    Show {
        /// Its id, a part of it, or `last`
        #[arg(value_parser = IdArg::of_channel)]
        channel: IdArg,
    },
    /// Show the events of one channel, oldest first
    Events {
        /// Its id, a part of it, or `last`
        #[arg(value_parser = IdArg::of_channel)]
        channel: IdArg,
        /// Start after this event
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: i64,
        /// How many to show at most
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=200))]
        limit: u32,
    },
}

#[derive(Debug, Default, clap::Args)]
struct Filter {
    /// Only those that are there, or those that are not
    #[arg(long, value_parser = parse_status, value_name = "connected|disconnected")]
    status: Option<Connection>,
    /// Only of this agent (name or id)
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

fn parse_status(text: &str) -> Result<Connection, String> {
    Connection::from_text(text).ok_or_else(|| "one of connected, disconnected".to_owned())
}

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(Channels::List(args.filter)) {
        Channels::List(filter) => list(&context, &hub, filter).await,
        Channels::Show { channel } => show(&context, &hub, channel.channel(&hub).await?).await,
        Channels::Events { channel, after, limit } => {
            events(&context, &hub, channel.channel(&hub).await?, after, limit).await
        }
    }
}

async fn list(context: &Context, hub: &Hub, filter: Filter) -> Result<(), Failure> {
    let Filter { status, agent, page } = filter;
    let list = hub.channels(&ChannelFilter { status, agent, page: page.page() }).await?;
    let names = page::names(context, hub, list.channels.iter().map(|channel| &channel.account_ref)).await;
    let next_cursor = list.next_cursor.as_deref();
    let when_empty = "There are no such channels. A device opens one when its runtime starts: attache runtime start";
    Listing { answer: &list, items: &list.channels, next_cursor, when_empty }.print(
        context,
        &[
            ("ID", &|channel| Cell::plain(channel.channel_id.to_string())),
            ("STATUS", &status_cell),
            ("ROLE", &|channel| Cell::plain(channel.peer_role.as_str())),
            ("TRANSPORT", &|channel| Cell::plain(channel.transport.as_str())),
            ("LAST SEEN", &|channel| Cell::plain(time::relative(channel.last_seen_at, context.now()))),
            ("UNACKED", &|channel| Cell::plain(channel.unacknowledged.to_string())),
            ("ACCOUNT", &|channel| Cell::plain(names.get(&channel.account_ref))),
            ("REASON", &|channel| Cell::dim(channel.reason.as_deref().unwrap_or("–"))),
        ],
    )
}

async fn show(context: &Context, hub: &Hub, channel: ChannelId) -> Result<(), Failure> {
    let (output, now) = (&context.output, context.now());
    let channel = hub.channel(channel).await?;
    if output.is_json() {
        return output.json(&channel);
    }
    let agent = channel.agent_id.map(|id| id.to_string());
    let runtime = channel.runtime_id.map(|id| id.to_string());
    let ids = [Some(&channel.account_ref), agent.as_ref(), runtime.as_ref()];
    let names = Names::of(hub, ids.into_iter().flatten()).await;
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: Cell| table.row([Cell::dim(name), value]);
    let or_none = |text: Option<&str>| Cell::plain(text.unwrap_or("–"));
    row("channel", Cell::strong(channel.channel_id.to_string()));
    row("status", status_cell(&channel));
    if let Some(at) = channel.disconnected_at {
        let reason = channel.reason.as_deref().unwrap_or("nobody said why");
        row("disconnected", Cell::plain(format!("{} ({reason})", time::relative(at, now))));
    }
    row("connected", Cell::plain(time::relative(channel.connected_at, now)));
    row("last seen", Cell::plain(time::relative(channel.last_seen_at, now)));
    row("created", Cell::plain(time::relative(channel.created_at, now)));
    row("role", Cell::plain(channel.peer_role.as_str()));
    row("transport", Cell::plain(channel.transport.as_str()));
    row("protocol", or_none(channel.native_protocol.as_deref()));
    row("account", Cell::plain(names.with_id(&channel.account_ref)));
    row("agent", Cell::plain(agent.map_or_else(|| "–".to_owned(), |id| names.with_id(id))));
    row("device", Cell::plain(runtime.map_or_else(|| "–".to_owned(), |id| names.with_id(id))));
    row("card", or_none(channel.agent_card_ref.as_deref()));
    row("address", or_none(channel.address.as_deref()));
    row("resume token", or_none(channel.resume_token_ref.as_deref()));
    let capabilities = channel.capabilities.join(", ");
    row("capabilities", or_none(Some(capabilities.as_str()).filter(|text| !text.is_empty())));
    row("unacknowledged", Cell::plain(channel.unacknowledged.to_string()));
    output.table(&table)?;
    let section = |name: &str, text: &str| {
        let heading = output.paint(Style::Dim, name);
        output.line(format_args!("\n{heading}\n{}", clean::exact(text)))
    };
    if let Some(info) = &channel.device_info {
        section("device", &pretty(info.get()))?;
    }
    if channel.tools.get() != "[]" {
        section("tools", &pretty(channel.tools.get()))?;
    }
    output.say(format_args!("\nWhat happened to it: attache channels events {}", channel.channel_id));
    Ok(())
}

async fn events(context: &Context, hub: &Hub, channel: ChannelId, after: i64, limit: u32) -> Result<(), Failure> {
    let (output, now) = (&context.output, context.now());
    let page = hub.channel_events(channel, after, Some(limit)).await?;
    if output.is_json() {
        return output.json(&page);
    }
    if page.events.is_empty() {
        output.say("There are no further events.");
        return Ok(());
    }
    let mut table = Table::new(&["SEQ", "WHEN", "EVENT", "DATA"]);
    for event in &page.events {
        table.row([
            Cell::plain(event.seq.to_string()),
            Cell::plain(time::relative(event.at, now)),
            Cell::plain(&event.kind),
            Cell::dim(clean::exact_line(event.data.get())),
        ]);
    }
    output.table(&table)?;
    if page.events.len() == usize::try_from(limit).unwrap_or(usize::MAX) {
        output.say(format_args!("There may be more: add --after {}", page.next));
    }
    Ok(())
}

fn status_cell(channel: &Channel) -> Cell {
    match channel.status {
        Connection::Connected => Cell::styled("connected", Style::Good),
        Connection::Disconnected => Cell::plain("disconnected"),
    }
}
