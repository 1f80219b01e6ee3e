//! `attache deliveries`: what webhooks were told, and one more try.

use attache_client::{DeliveryFilter, Hub};
use attache_protocol::wire::{
    call::CallId,
    delivery::{Delivery, DeliveryKind, DeliverySecret, DeliveryState},
};
use clap::Subcommand;

use super::page::{Listing, PageArgs};
use crate::{
    Context, Failure,
    context::HubArgs,
    ids::IdArg,
    output::{Cell, Style, Table, clean, time},
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
    filter: Filter,
    #[command(subcommand)]
    command: Option<Deliveries>,
}

#[derive(Debug, Subcommand)]
enum Deliveries {
    /// List deliveries, newest first (what `attache deliveries` does)
    List(Filter),
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
struct Filter {
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

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    let hub = context.hub(&args.hub)?;
    let output = &context.output;
    match args.command.unwrap_or(Deliveries::List(args.filter)) {
        Deliveries::List(filter) => list(&context, &hub, filter).await,
        Deliveries::Show { delivery } => show(&context, &hub.delivery(delivery.delivery(&hub).await?).await?),
        Deliveries::Resend { delivery } => {
            let delivery = delivery.delivery(&hub).await?;
            let resent = hub.resend_delivery(delivery).await?;
            if output.is_json() {
                return output.json(&resent);
            }
            output.say(format_args!("It is sent again now. How that went: attache deliveries show {delivery}"));
            Ok(())
        }
        Deliveries::Secret { agent } => {
            let secret = hub.delivery_secret(agent.as_deref()).await?.expose().clone();
            if output.is_json() {
                return output.json(&DeliverySecret { secret });
            }
            output.line(secret)
        }
    }
}

async fn list(context: &Context, hub: &Hub, filter: Filter) -> Result<(), Failure> {
    let Filter { state, run, page } = filter;
    let list = hub.deliveries(&DeliveryFilter { state, run: run.map(CallId::run), page: page.page() }).await?;
    let next_cursor = list.next_cursor.as_deref();
    let when_empty = "There are no such deliveries. A call with a callback_url makes one when it has ended.";
    Listing { answer: &list, items: &list.deliveries, next_cursor, when_empty }.print(
        context,
        &[
            ("ID", &|delivery| Cell::plain(delivery.delivery_id.to_string())),
            ("STATE", &|delivery| state_cell(delivery.state)),
            ("WHAT", &|delivery| Cell::plain(kind(delivery.kind))),
            ("TRIED", &|delivery| Cell::plain(delivery.attempts.to_string())),
            ("ANSWER", &|delivery| {
                Cell::plain(delivery.last_status.map_or_else(|| "–".to_owned(), |status| status.to_string()))
            }),
            ("CREATED", &|delivery| Cell::plain(time::relative(delivery.created_at, context.now()))),
            ("URL", &|delivery| Cell::dim(clean::exact_line(&delivery.url))),
        ],
    )
}

fn show(context: &Context, delivery: &Delivery) -> Result<(), Failure> {
    let (output, now) = (&context.output, context.now());
    if output.is_json() {
        return output.json(delivery);
    }
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: Cell| table.row([Cell::dim(name), value]);
    row("delivery", Cell::strong(delivery.delivery_id.to_string()));
    row("state", state_cell(delivery.state));
    row("what", Cell::plain(kind(delivery.kind)));
    row("run", Cell::plain(delivery.task_run_id.to_string()));
    if let Some(permission) = delivery.permission_request_id {
        row("request", Cell::plain(permission.to_string()));
    }
    row("url", Cell::plain(clean::exact_line(&delivery.url)));
    row("created", Cell::plain(time::relative(delivery.created_at, now)));
    row("tried", Cell::plain(delivery.attempts.to_string()));
    if let Some(at) = delivery.last_attempt_at {
        row("last tried", Cell::plain(time::relative(at, now)));
    }
    if let Some(status) = delivery.last_status {
        row("answer", Cell::plain(status.to_string()));
    }
    if let Some(error) = &delivery.last_error {
        row("error", Cell::plain(clean::exact_line(error)));
    }
    if let Some(at) = delivery.next_attempt_at {
        row("next try", Cell::plain(time::relative(at, now)));
    }
    if let Some(at) = delivery.delivered_at {
        row("delivered", Cell::plain(time::relative(at, now)));
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

fn state_cell(state: DeliveryState) -> Cell {
    let style = match state {
        DeliveryState::Pending => Style::Busy,
        DeliveryState::Delivered => Style::Good,
        DeliveryState::Failed => Style::Bad,
    };
    Cell::styled(state.as_str(), style)
}
