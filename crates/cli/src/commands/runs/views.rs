//! The views of the list of runs that a person keeps: `attache runs views` and `attache runs list --view NAME`.

use attache_client::HubClient;
use attache_protocol::{
    Timestamp,
    error::exit,
    rules::run::RunStatus,
    wire::{
        run::RunQuery,
        run_view::{RunViewFilter, RunViewStatus},
    },
};

use crate::{
    env::context::CommandContext,
    text::{runs as texts, terms},
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextTable, clean},
    },
};

pub(super) async fn list(context: &CommandContext, hub: &HubClient) -> Result<(), CommandFailure> {
    let list = hub.run_views().await?;
    if context.output.is_json() {
        return context.output.json(&list);
    }
    if list.run_views.is_empty() {
        context.output.say(texts::no_views());
        return Ok(());
    }
    let mut table = TextTable::new(&[terms::name(), texts::shows()]);
    for view in &list.run_views {
        let name = clean::line(&view.name).into_owned();
        table.row([TextCell::strong(name), TextCell::plain(clean::line(&words(&view.filter)))]);
    }
    context.output.table(&table)
}

/// What the options leave open is as the view has it.
pub(super) async fn add(
    hub: &HubClient,
    name: &str,
    query: RunQuery,
    now: Timestamp,
) -> Result<RunQuery, CommandFailure> {
    let views = hub.run_views().await?.run_views;
    let Some(view) = views.into_iter().find(|view| view.name == name) else {
        let message = texts::no_view(name);
        return Err(CommandFailure::new("not_found", exit::NOT_FOUND, message).hint(texts::no_view_do()));
    };
    let RunViewFilter { status, agent, caller, since, min_cost_usd, text } = view.filter;
    let is_open = query.status.is_none() && !query.waiting;
    let status = status.filter(|_| is_open);
    Ok(RunQuery {
        status: query.status.or(status.and_then(known)),
        waiting: query.waiting || status == Some(RunViewStatus::Waiting),
        agent_id: query.agent_id.or(agent),
        caller: query.caller.or(caller),
        since: query.since.or(since.map(|since| now.minus(since.length()))),
        min_cost_usd: query.min_cost_usd.or(min_cost_usd),
        text: query.text.or(text),
        ..query
    })
}

/// None for a filter that isn't a run status.
const fn known(status: RunViewStatus) -> Option<RunStatus> {
    Some(match status {
        RunViewStatus::Pending => RunStatus::Pending,
        RunViewStatus::Running => RunStatus::Running,
        RunViewStatus::Completed => RunStatus::Completed,
        RunViewStatus::Failed => RunStatus::Failed,
        RunViewStatus::Cancelled => RunStatus::Cancelled,
        RunViewStatus::Waiting => return None,
    })
}

/// As in the console's search.
fn words(filter: &RunViewFilter) -> String {
    let RunViewFilter { status, agent, caller, since, min_cost_usd, text } = filter;
    let all = [
        ("status:", status.map(RunViewStatus::as_str)),
        ("agent:", agent.as_deref()),
        ("caller:", caller.as_deref()),
        ("since:", since.map(|since| since.as_str())),
        ("cost:", min_cost_usd.as_deref()),
        ("", text.as_deref()),
    ];
    let words = all.into_iter().filter_map(|(name, value)| value.map(|value| format!("{name}{value}")));
    words.collect::<Vec<_>>().join(" ")
}
