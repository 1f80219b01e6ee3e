//! `attache runtimes`: lists, confirms and disconnects paired devices.

use attache_client::HubClient;
use attache_protocol::{
    error::exit,
    wire::{
        account::Presence,
        pairing::PairingDecision,
        runtime::{Runtime, RuntimeState},
    },
};
use clap::Subcommand;

use super::{
    agents,
    page::{self, Listing, PageArgs},
};
use crate::{
    env::{
        context::{CommandContext, HubArgs},
        ids::IdArg,
    },
    ui::{
        failure::CommandFailure,
        names::DisplayNames,
        output::{TextCell, TextStyle, clean, time},
        prompt,
    },
};

/// List and disconnect paired devices
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache runtimes                 list devices
  attache runtimes revoke laptop   disconnect a device (name or id); its agent stays
  attache runtimes confirm K7QM-2XHD --agent builder   pair a device that shows this code",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    command: Option<RuntimesCommand>,
}

#[derive(Debug, Subcommand)]
enum RuntimesCommand {
    /// List devices (default)
    List(PageArgs),
    /// Disconnect a device and revoke its token and claims immediately
    Revoke {
        /// Device name, id or unique part of an id
        runtime: IdArg,
    },
    /// Confirm a device that shows a code, and pair it with an agent
    Confirm {
        /// Code shown on the device, like K7QM-2XHD
        code: String,
        /// Agent to pair the device with (name or id)
        #[arg(long)]
        agent: String,
        /// Skip the confirmation prompt
        #[arg(long, short)]
        yes: bool,
    },
    /// Reject a device that shows a code
    Reject {
        /// Code shown on the device
        code: String,
    },
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(RuntimesCommand::List(args.page)) {
        RuntimesCommand::List(page) => list(&context, &hub, &page).await,
        RuntimesCommand::Revoke { runtime } => {
            let id = runtime.runtime(&hub).await?;
            let names = DisplayNames::of(&hub, [id]).await;
            hub.revoke_runtime(id).await?;
            let text = format!(
                "Disconnected {}. To reconnect the device, pair it with the same agent again: attache agents code AGENT",
                names.with_id(id)
            );
            context.output.done("revoked", id, text)
        }
        RuntimesCommand::Confirm { code, agent, yes } => confirm(&context, &hub, &code, &agent, yes).await,
        RuntimesCommand::Reject { code } => {
            hub.decide_pairing(&code, &PairingDecision { agent_id: None }).await?;
            context.output.done("rejected", code, "Rejected. The device is notified.")
        }
    }
}

/// Shows the device and asks for confirmation before pairing it.
async fn confirm(
    context: &CommandContext,
    hub: &HubClient,
    code: &str,
    agent: &str,
    yes: bool,
) -> Result<(), CommandFailure> {
    let output = &context.output;
    let device = hub.pairing_request(code).await?;
    let name = clean::line(device.device_name.as_deref().unwrap_or("An unnamed device")).into_owned();
    let account = hub.account(agent).await.map_err(|error| agents::explain(error, agent))?;
    if let Some(replaced) = agents::replaced_device(&account).filter(|_| !output.is_json()) {
        output.say_styled(TextStyle::Busy, replaced);
    }
    let question =
        format!("{name} at {} wants to pair with {}. Pair it?", clean::line(&device.address), clean::line(agent));
    if !yes && prompt::confirm(output, &question)? == Some(false) {
        return Err(CommandFailure::new("cancelled", exit::FAILED, "the device was not paired")
            .hint(format!("It waits until the code expires. To reject it: attache runtimes reject {code}")));
    }
    hub.decide_pairing(code, &PairingDecision { agent_id: Some(account.agent_id.to_string()) }).await?;
    output.say_styled(TextStyle::Good, format_args!("{name} is paired with {}.", clean::line(&account.name)));
    Ok(())
}

async fn list(context: &CommandContext, hub: &HubClient, page: &PageArgs) -> Result<(), CommandFailure> {
    let output = &context.output;
    let list = hub.runtimes(&page.page()).await?;
    let names = page::names(context, hub, list.agent_runtimes.iter().map(|runtime| runtime.agent_id)).await;
    let next_cursor = list.next_cursor.as_deref();
    let when_empty = "No paired devices. Create a pairing code for an agent: attache agents code AGENT";
    Listing { answer: &list, items: &list.agent_runtimes, next_cursor, when_empty }.print(
        context,
        &[
            ("DEVICE", &|runtime| TextCell::strong(runtime.device_name.as_deref().unwrap_or("unnamed"))),
            ("AGENT", &|runtime| TextCell::plain(names.get(runtime.agent_id))),
            ("STATE", &state),
            ("HOST", &|runtime| TextCell::plain(runtime.labels.text_member("host_type").as_deref().unwrap_or("–"))),
            ("LAST SEEN", &|runtime| {
                TextCell::plain(time::relative_or(runtime.last_heartbeat_at, context.now(), "never"))
            }),
            ("PAIRED", &|runtime| TextCell::plain(time::relative(runtime.attached_at, context.now()))),
            ("ID", &|runtime| TextCell::dim(runtime.runtime_id.to_string())),
        ],
    )?;
    if output.is_json() {
        return Ok(());
    }
    for runtime in list.agent_runtimes.iter().filter(|runtime| runtime.state == RuntimeState::Active) {
        if let Some(at) = runtime.token_reused_at {
            output.say_styled(
                TextStyle::Bad,
                format_args!(
                    "{}: an old token of this device was used {}. Unless the device was restored from a backup, pair it again: attache agents code {}",
                    clean::line(runtime.device_name.as_deref().unwrap_or("unnamed")),
                    time::relative(at, context.now()),
                    names.get(runtime.agent_id)
                ),
            );
        }
    }
    Ok(())
}

fn state(runtime: &Runtime) -> TextCell {
    match (runtime.state, runtime.status) {
        (RuntimeState::Active, Presence::Online) => TextCell::styled("online", TextStyle::Good),
        (RuntimeState::Active, Presence::Offline) => TextCell::plain("offline"),
        (RuntimeState::Superseded, _) => TextCell::dim("replaced"),
        (RuntimeState::Revoked, _) => TextCell::dim("revoked"),
    }
}
