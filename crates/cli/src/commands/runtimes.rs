//! `attache runtimes`: the devices that are paired with agents.

use attache_client::Hub;
use attache_protocol::{
    RuntimeId,
    wire::{
        account::Presence,
        runtime::{Runtime, RuntimeState},
    },
};
use clap::Subcommand;

use super::page::{self, PageArgs};
use crate::{
    Context, Failure,
    context::HubArgs,
    output::{Cell, Style, Table, clean, time},
};

/// List the devices that are paired with agents, and disconnect one
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache runtimes                 list the devices
  attache runtimes revoke rtm_…    disconnect one at once; its agent stays",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    command: Option<Runtimes>,
}

#[derive(Debug, Subcommand)]
enum Runtimes {
    /// List the devices (what `attache runtimes` does)
    List(PageArgs),
    /// Disconnect a device: its token and its claims are void at once
    Revoke {
        /// Its id, as `attache runtimes` shows it
        runtime: RuntimeId,
    },
}

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(Runtimes::List(args.page)) {
        Runtimes::List(page) => list(&context, &hub, &page).await,
        Runtimes::Revoke { runtime } => {
            hub.revoke_runtime(runtime).await?;
            context.output.say(format_args!(
                "Disconnected {runtime}. To use that device again, pair it with the same agent: attache agents code AGENT"
            ));
            Ok(())
        }
    }
}

async fn list(context: &Context, hub: &Hub, page: &PageArgs) -> Result<(), Failure> {
    let output = &context.output;
    let list = hub.runtimes(&page.page()).await?;
    if output.is_json() {
        return output.json(&list);
    }
    if list.agent_runtimes.is_empty() {
        output.say("No device is paired. Make a code for an agent: attache agents code AGENT");
        return Ok(());
    }
    let mut table = Table::new(&["ID", "STATE", "DEVICE", "HOST", "LAST SEEN", "PAIRED", "AGENT"]);
    for runtime in &list.agent_runtimes {
        table.row([
            Cell::plain(runtime.runtime_id.to_string()),
            state(runtime),
            Cell::strong(runtime.device_name.as_deref().unwrap_or("unnamed")),
            Cell::plain(runtime.labels.text_member("host_type").as_deref().unwrap_or("–")),
            Cell::plain(time::relative_or(runtime.last_heartbeat_at, context.now(), "never")),
            Cell::plain(time::relative(runtime.attached_at, context.now())),
            Cell::dim(runtime.agent_id.to_string()),
        ]);
    }
    output.table(&table)?;
    for runtime in list.agent_runtimes.iter().filter(|runtime| runtime.state == RuntimeState::Active) {
        if let Some(at) = runtime.token_reused_at {
            output.say_styled(
                Style::Bad,
                format_args!(
                    "{}: somebody used an old token of this device {}. If that was not a restored copy of it, pair it again: attache agents code {}",
                    clean::line(runtime.device_name.as_deref().unwrap_or("unnamed")),
                    time::relative(at, context.now()),
                    runtime.agent_id
                ),
            );
        }
    }
    page::more(context, list.next_cursor.as_deref());
    Ok(())
}

fn state(runtime: &Runtime) -> Cell {
    match (runtime.state, runtime.status) {
        (RuntimeState::Active, Presence::Online) => Cell::styled("online", Style::Good),
        (RuntimeState::Active, Presence::Offline) => Cell::plain("offline"),
        (RuntimeState::Superseded, _) => Cell::dim("replaced"),
        (RuntimeState::Revoked, _) => Cell::dim("revoked"),
    }
}
