//! `attache channels`: lists the channels of a hub and their events.

use attache_client::{ChannelFilter, HubClient};
use attache_protocol::{
    ChannelId,
    json::pretty,
    wire::channel::{Channel, ConnectionState},
};
use clap::Subcommand;

use super::page::{self, Listing, PageArgs};
use crate::{
    env::{
        context::{CommandContext, HubArgs},
        ids::IdArg,
    },
    ui::{
        failure::CommandFailure,
        names::DisplayNames,
        output::{TextCell, TextStyle, TextTable, clean, time},
    },
};

/// List channels (live connections) and their events
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache channels                        list the newest channels
  attache channels list --status connected --agent builder
  attache channels show chn_…             show its peer and connection state
  attache channels events chn_…           show its events",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    filter: ChannelListArgs,
    #[command(subcommand)]
    command: Option<ChannelsCommand>,
}

#[derive(Debug, Subcommand)]
enum ChannelsCommand {
    /// List channels, newest first (default)
    List(ChannelListArgs),
    /// Show a channel with its capabilities and tools
    Show {
        /// Channel id, a unique part of it, or `last`
        #[arg(value_parser = IdArg::of_channel)]
        channel: IdArg,
    },
    /// Show the events of a channel, oldest first
    Events {
        /// Channel id, a unique part of it, or `last`
        #[arg(value_parser = IdArg::of_channel)]
        channel: IdArg,
        /// Start after this event number
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: i64,
        /// Maximum number of events
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=200))]
        limit: u32,
    },
}

#[derive(Debug, Default, clap::Args)]
struct ChannelListArgs {
    /// Only channels in this state
    #[arg(long, value_parser = parse_status, value_name = "connected|disconnected")]
    status: Option<ConnectionState>,
    /// Only channels of this agent (name or id)
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

fn parse_status(text: &str) -> Result<ConnectionState, String> {
    ConnectionState::from_text(text).ok_or_else(|| "expected one of connected, disconnected".to_owned())
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(ChannelsCommand::List(args.filter)) {
        ChannelsCommand::List(filter) => list(&context, &hub, filter).await,
        ChannelsCommand::Show { channel } => show(&context, &hub, channel.channel(&hub).await?).await,
        ChannelsCommand::Events { channel, after, limit } => {
            events(&context, &hub, channel.channel(&hub).await?, after, limit).await
        }
    }
}

async fn list(context: &CommandContext, hub: &HubClient, filter: ChannelListArgs) -> Result<(), CommandFailure> {
    let ChannelListArgs { status, agent, page } = filter;
    let list = hub.channels(&ChannelFilter { status, agent, page: page.page() }).await?;
    let names = page::names(context, hub, list.channels.iter().map(|channel| &channel.account_ref)).await;
    let next_cursor = list.next_cursor.as_deref();
    let when_empty = "No channels found. A device opens one when its runtime starts: attache runtime start";
    Listing { answer: &list, items: &list.channels, next_cursor, when_empty }.print(
        context,
        &[
            ("ID", &|channel| TextCell::plain(channel.channel_id.to_string())),
            ("STATUS", &status_cell),
            ("ROLE", &|channel| TextCell::plain(channel.peer_role.as_str())),
            ("TRANSPORT", &|channel| TextCell::plain(channel.transport.as_str())),
            ("LAST SEEN", &|channel| TextCell::plain(time::relative(channel.last_seen_at, context.now()))),
            ("UNACKED", &|channel| TextCell::plain(channel.unacknowledged.to_string())),
            ("ACCOUNT", &|channel| TextCell::plain(names.get(&channel.account_ref))),
            ("REASON", &|channel| TextCell::dim(channel.reason.as_deref().unwrap_or("–"))),
        ],
    )
}

async fn show(context: &CommandContext, hub: &HubClient, channel: ChannelId) -> Result<(), CommandFailure> {
    let (output, now) = (&context.output, context.now());
    let channel = hub.channel(channel).await?;
    if output.is_json() {
        return output.json(&channel);
    }
    let agent = channel.agent_id.map(|id| id.to_string());
    let runtime = channel.runtime_id.map(|id| id.to_string());
    let ids = [Some(&channel.account_ref), agent.as_ref(), runtime.as_ref()];
    let names = DisplayNames::of(hub, ids.into_iter().flatten()).await;
    let mut table = TextTable::new(&["", ""]);
    let mut row = |name: &str, value: TextCell| table.row([TextCell::dim(name), value]);
    let or_none = |text: Option<&str>| TextCell::plain(text.unwrap_or("–"));
    row("channel", TextCell::strong(channel.channel_id.to_string()));
    row("status", status_cell(&channel));
    if let Some(at) = channel.disconnected_at {
        let reason = channel.reason.as_deref().unwrap_or("no reason given");
        row("disconnected", TextCell::plain(format!("{} ({reason})", time::relative(at, now))));
    }
    row("connected", TextCell::plain(time::relative(channel.connected_at, now)));
    row("last seen", TextCell::plain(time::relative(channel.last_seen_at, now)));
    row("created", TextCell::plain(time::relative(channel.created_at, now)));
    row("role", TextCell::plain(channel.peer_role.as_str()));
    row("transport", TextCell::plain(channel.transport.as_str()));
    row("protocol", or_none(channel.native_protocol.as_deref()));
    row("account", TextCell::plain(names.with_id(&channel.account_ref)));
    row("agent", TextCell::plain(agent.map_or_else(|| "–".to_owned(), |id| names.with_id(id))));
    row("device", TextCell::plain(runtime.map_or_else(|| "–".to_owned(), |id| names.with_id(id))));
    row("card", or_none(channel.agent_card_ref.as_deref()));
    row("address", or_none(channel.address.as_deref()));
    row("resume token", or_none(channel.resume_token_ref.as_deref()));
    let capabilities = channel.capabilities.join(", ");
    row("capabilities", or_none(Some(capabilities.as_str()).filter(|text| !text.is_empty())));
    row("unacknowledged", TextCell::plain(channel.unacknowledged.to_string()));
    output.table(&table)?;
    let section = |name: &str, text: &str| {
        let heading = output.paint(TextStyle::Dim, name);
        output.line(format_args!("\n{heading}\n{}", clean::exact(text)))
    };
    if let Some(info) = &channel.device_info {
        section("device", &pretty(info.get()))?;
    }
    if channel.tools.get() != "[]" {
        section("tools", &pretty(channel.tools.get()))?;
    }
    output.say(format_args!("\nSee its events: attache channels events {}", channel.channel_id));
    Ok(())
}

async fn events(
    context: &CommandContext,
    hub: &HubClient,
    channel: ChannelId,
    after: i64,
    limit: u32,
) -> Result<(), CommandFailure> {
    let (output, now) = (&context.output, context.now());
    let page = hub.channel_events(channel, after, Some(limit)).await?;
    if output.is_json() {
        return output.json(&page);
    }
    if page.events.is_empty() {
        output.say("No more events.");
        return Ok(());
    }
    let mut table = TextTable::new(&["SEQ", "WHEN", "EVENT", "DATA"]);
    for event in &page.events {
        table.row([
            TextCell::plain(event.seq.to_string()),
            TextCell::plain(time::relative(event.at, now)),
            TextCell::plain(&event.kind),
            TextCell::dim(clean::exact_line(event.data.get())),
        ]);
    }
    output.table(&table)?;
    if page.events.len() == usize::try_from(limit).unwrap_or(usize::MAX) {
        output.say(format_args!("There may be more events: add --after {}", page.next));
    }
    Ok(())
}

fn status_cell(channel: &Channel) -> TextCell {
    match channel.status {
        ConnectionState::Connected => TextCell::styled("connected", TextStyle::Good),
        ConnectionState::Disconnected => TextCell::plain("disconnected"),
    }
}
