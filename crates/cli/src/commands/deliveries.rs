//! `attache deliveries`: lists webhook deliveries and resends them.

use attache_client::{DeliveryFilter, HubClient};
use attache_protocol::wire::{
    call::CallId,
    delivery::{Delivery, DeliveryKind, DeliverySecret, DeliveryState},
};
use clap::Subcommand;

use super::page::{Listing, PageArgs};
use crate::{
    env::{
        context::{CommandContext, HubArgs},
        ids::IdArg,
    },
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextStyle, TextTable, clean, time},
    },
};

/// List webhook deliveries and resend them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache deliveries                      list the newest deliveries
  attache deliveries list --state failed
  attache deliveries show dlv_…           show its attempts and the last response
  attache deliveries resend dlv_…         resend now, even if it was delivered
  attache deliveries secret               print the signing secret of your deliveries

Query values in URLs are displayed as ***, but sent unchanged.",
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
    /// List deliveries, newest first (default)
    List(DeliveryListArgs),
    /// Show a delivery
    Show {
        /// Delivery id, a unique part of it, or `last`
        #[arg(value_parser = IdArg::of_delivery)]
        delivery: IdArg,
    },
    /// Resend a delivery now, with the same id
    Resend {
        /// Delivery id, a unique part of it, or `last`
        #[arg(value_parser = IdArg::of_delivery)]
        delivery: IdArg,
    },
    /// Print the signing secret of your deliveries
    Secret {
        /// Print the secret of this agent's approval webhook instead (name or id)
        #[arg(long)]
        agent: Option<String>,
    },
}

#[derive(Debug, Default, clap::Args)]
struct DeliveryListArgs {
    /// Only deliveries in this state
    #[arg(long, value_parser = parse_state, value_name = "pending|delivered|failed")]
    state: Option<DeliveryState>,
    /// Only deliveries of this run (`run_…` or `a2a-…`)
    #[arg(long, value_name = "RUN")]
    run: Option<CallId>,
    #[command(flatten)]
    page: PageArgs,
}

fn parse_state(text: &str) -> Result<DeliveryState, String> {
    let states = [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::Failed];
    let found = states.into_iter().find(|state| state.as_str() == text);
    found.ok_or_else(|| "expected one of pending, delivered, failed".to_owned())
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
            output.say(format_args!("Resending {delivery}. Check the result: attache deliveries show {delivery}"));
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
    let when_empty = "No deliveries found. A call with a callback_url creates one when it ends.";
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
        row("last attempt", TextCell::plain(time::relative(at, now)));
    }
    if let Some(status) = delivery.last_status {
        row("answer", TextCell::plain(status.to_string()));
    }
    if let Some(error) = &delivery.last_error {
        row("error", TextCell::plain(clean::exact_line(error)));
    }
    if let Some(at) = delivery.next_attempt_at {
        row("next attempt", TextCell::plain(time::relative(at, now)));
    }
    if let Some(at) = delivery.delivered_at {
        row("delivered", TextCell::plain(time::relative(at, now)));
    }
    output.table(&table)?;
    if delivery.state == DeliveryState::Failed {
        output.say(format_args!("\nResend it: attache deliveries resend {}", delivery.delivery_id));
    }
    Ok(())
}

const fn kind(kind: DeliveryKind) -> &'static str {
    match kind {
        DeliveryKind::RunEnded => "run finished",
        DeliveryKind::PermissionRequested => "permission requested",
        DeliveryKind::TaskUpdated => "task updated",
        DeliveryKind::Notification => "notification",
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
