//! `attache deliveries`: what webhooks were told, and one more try.

use attache_client::{DeliveryFilter, HubClient};
use attache_protocol::wire::{
    call::CallId,
    delivery::{Delivery, DeliveryKind, DeliverySecret, DeliveryState},
};
use clap::Subcommand;

use super::page::{Listing, PageArgs};
use crate::{
    CommandContext, CommandFailure,
    context::HubArgs,
    ids::IdArg,
    output::{TextCell, TextStyle, TextTable, clean, time},
};

/// List webhook deliveries and resend them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache deliveries                      the newest
  attache deliveries list --state failed
  attache deliveries show dlv_…           how often it was tried, and what came back
  attache deliveries resend dlv_…         once more, now, also what was delivered
  attache deliveries secret               what your deliveries are signed with

The values in a URL's query are shown as ***; they are sent as they were given.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    filter: DeliveryListArgs,
    #[command(subcommand)]
    command: Option<DeliveriesCommand>,
}

#[derive(Debug, Subcommand)]
enum DeliveriesCommand {
    /// List deliveries, newest first (what `attache deliveries` does)
    List(DeliveryListArgs),
    /// Show one delivery
    Show {
        /// Its id, a part of it, or `last`
        #[arg(value_parser = IdArg::of_delivery)]
        delivery: IdArg,
    },
    /// Send one once more, now, under the same id
    Resend {
        /// Its id, a part of it, or `last`
        #[arg(value_parser = IdArg::of_delivery)]
        delivery: IdArg,
    },
    /// Print the secret that your deliveries are signed with
    Secret {
        /// That of this agent's approval webhook instead (name or id)
        #[arg(long)]
        agent: Option<String>,
    },
}

#[derive(Debug, Default, clap::Args)]
struct DeliveryListArgs {
    /// Only in this state
    #[arg(long, value_parser = parse_state, value_name = "pending|delivered|failed")]
    state: Option<DeliveryState>,
    /// Only of this run (`run_…`, or a call's `a2a-…`)
    #[arg(long, value_name = "RUN")]
    run: Option<CallId>,
    #[command(flatten)]
    page: PageArgs,
}

fn parse_state(text: &str) -> Result<DeliveryState, String> {
    let states = [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::Failed];
    let found = states.into_iter().find(|state| state.as_str() == text);
    found.ok_or_else(|| "one of pending, delivered, failed".to_owned())
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    let output = &context.output;
    match args.command.unwrap_or(DeliveriesCommand::List(args.filter)) {
        DeliveriesCommand::List(filter) => list(&context, &hub, filter).await,
        DeliveriesCommand::Show { delivery } => show(&context, &hub.delivery(delivery.delivery(&hub).await?).await?),
        DeliveriesCommand::Resend { delivery } => {
            let delivery = delivery.delivery(&hub).await?;
            let resent = hub.resend_delivery(delivery).await?;
            if output.is_json() {
                return output.json(&resent);
            }
            output.say(format_args!("It is sent again now. How that went: attache deliveries show {delivery}"));
            Ok(())
        }
        DeliveriesCommand::Secret { agent } => {
            let secret = hub.delivery_secret(agent.as_deref()).await?.expose().clone();
            if output.is_json() {
                return output.json(&DeliverySecret { secret });
            }
            output.line(secret)
        }
    }
}

async fn list(context: &CommandContext, hub: &HubClient, filter: DeliveryListArgs) -> Result<(), CommandFailure> {
    let DeliveryListArgs { state, run, page } = filter;
    let list = hub.deliveries(&DeliveryFilter { state, run: run.map(CallId::run), page: page.page() }).await?;
    let next_cursor = list.next_cursor.as_deref();
    let when_empty = "There are no such deliveries. A call with a callback_url makes one when it has ended.";
    Listing { answer: &list, items: &list.deliveries, next_cursor, when_empty }.print(
        context,
        &[
            ("ID", &|delivery| TextCell::plain(delivery.delivery_id.to_string())),
            ("STATE", &|delivery| state_cell(delivery.state)),
            ("WHAT", &|delivery| TextCell::plain(kind(delivery.kind))),
            ("TRIED", &|delivery| TextCell::plain(delivery.attempts.to_string())),
            ("ANSWER", &|delivery| {
                TextCell::plain(delivery.last_status.map_or_else(|| "–".to_owned(), |status| status.to_string()))
            }),
            ("CREATED", &|delivery| TextCell::plain(time::relative(delivery.created_at, context.now()))),
            ("URL", &|delivery| TextCell::dim(clean::exact_line(&delivery.url))),
        ],
    )
}

fn show(context: &CommandContext, delivery: &Delivery) -> Result<(), CommandFailure> {
    let (output, now) = (&context.output, context.now());
    if output.is_json() {
        return output.json(delivery);
    }
    let mut table = TextTable::new(&["", ""]);
    let mut row = |name: &str, value: TextCell| table.row([TextCell::dim(name), value]);
    row("delivery", TextCell::strong(delivery.delivery_id.to_string()));
    row("state", state_cell(delivery.state));
    row("what", TextCell::plain(kind(delivery.kind)));
    row("run", TextCell::plain(delivery.task_run_id.to_string()));
    if let Some(permission) = delivery.permission_request_id {
        row("request", TextCell::plain(permission.to_string()));
    }
    row("url", TextCell::plain(clean::exact_line(&delivery.url)));
    row("created", TextCell::plain(time::relative(delivery.created_at, now)));
    row("tried", TextCell::plain(delivery.attempts.to_string()));
    if let Some(at) = delivery.last_attempt_at {
        row("last tried", TextCell::plain(time::relative(at, now)));
    }
    if let Some(status) = delivery.last_status {
        row("answer", TextCell::plain(status.to_string()));
    }
    if let Some(error) = &delivery.last_error {
        row("error", TextCell::plain(clean::exact_line(error)));
    }
    if let Some(at) = delivery.next_attempt_at {
        row("next try", TextCell::plain(time::relative(at, now)));
    }
    if let Some(at) = delivery.delivered_at {
        row("delivered", TextCell::plain(time::relative(at, now)));
    }
    output.table(&table)?;
    if delivery.state == DeliveryState::Failed {
        output.say(format_args!("\nSend it again: attache deliveries resend {}", delivery.delivery_id));
    }
    Ok(())
}

const fn kind(kind: DeliveryKind) -> &'static str {
    match kind {
        DeliveryKind::RunEnded => "run ended",
        DeliveryKind::PermissionRequested => "permission requested",
        DeliveryKind::TaskUpdated => "task updated",
    }
}

fn state_cell(state: DeliveryState) -> TextCell {
    let style = match state {
        DeliveryState::Pending => TextStyle::Busy,
        DeliveryState::Delivered => TextStyle::Good,
        DeliveryState::Failed => TextStyle::Bad,
    };
    TextCell::styled(state.as_str(), style)
}
