//! `attache agents`: the agent accounts of a hub.

use std::path::PathBuf;

use attache_client::Hub;
use attache_protocol::wire::account::{Account, AccountRequest, Presence};
use clap::Subcommand;

use super::page::{self, PageArgs};
use crate::{
    Context, Failure,
    context::HubArgs,
    output::{Cell, Style, Table, clean, time},
};

/// List, add, show and remove agents, and make pairing codes for them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache agents                                  list the agents
  attache agents add builder --description \"Builds things\"
  attache agents code builder                     a code that pairs one device with it
  attache agents show builder --json
  attache agents remove builder",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(subcommand)]
    command: Option<Agents>,
}

#[derive(Debug, Subcommand)]
enum Agents {
    /// List the agents (what `attache agents` does)
    List(PageArgs),
    /// Add an agent; then pair a device with it
    Add {
        /// A name that is unique in this hub
        name: String,
        /// What it is good at, for people
        #[arg(long)]
        description: Option<String>,
        /// A file with instructions that go with every task
        #[arg(long, value_name = "FILE")]
        instruction_file: Option<PathBuf>,
    },
    /// Show one agent and its device
    Show {
        /// Its name or id
        agent: String,
    },
    /// Archive an agent: its history stays, it takes no new work
    Remove {
        /// Its name or id
        agent: String,
    },
    /// Make a pairing code for an agent; it works once, for ten minutes
    Code {
        /// Its name or id
        agent: String,
    },
}

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or_else(|| Agents::List(PageArgs::default())) {
        Agents::List(page) => list(&context, &hub, &page).await,
        Agents::Add { name, description, instruction_file } => {
            add(&context, &hub, name, description, instruction_file).await
        }
        Agents::Show { agent } => show(&context, &hub, &agent).await,
        Agents::Remove { agent } => remove(&context, &hub, &agent).await,
        Agents::Code { agent } => code(&context, &hub, &agent).await,
    }
}

async fn list(context: &Context, hub: &Hub, page: &PageArgs) -> Result<(), Failure> {
    let output = &context.output;
    let list = hub.accounts(&page.page()).await?;
    if output.is_json() {
        return output.json(&list);
    }
    if list.agent_accounts.is_empty() {
        output.say("There are no agents yet. Add one: attache agents add NAME");
        return Ok(());
    }
    let mut table = Table::new(&["NAME", "STATUS", "DEVICE", "LAST SEEN", "ID", "DESCRIPTION"]);
    for account in &list.agent_accounts {
        let runtime = account.runtime.as_ref();
        let device = runtime.map_or("not paired", |runtime| runtime.device_name.as_deref().unwrap_or("unnamed"));
        let seen = runtime.and_then(|runtime| runtime.last_heartbeat_at);
        table.row([
            Cell::strong(&account.name),
            presence(account),
            Cell::plain(device),
            Cell::plain(time::relative_or(seen, context.now(), "never")),
            Cell::dim(account.agent_id.to_string()),
            Cell::excerpt(account.description.as_deref().unwrap_or_default()),
        ]);
    }
    output.table(&table)?;
    page::more(context, list.next_cursor.as_deref());
    Ok(())
}

fn presence(account: &Account) -> Cell {
    match account.status {
        _ if account.archived_at.is_some() => Cell::dim("archived"),
        Presence::Online => Cell::styled("online", Style::Good),
        Presence::Offline => Cell::plain("offline"),
    }
}

async fn add(
    context: &Context,
    hub: &Hub,
    name: String,
    description: Option<String>,
    instruction_file: Option<PathBuf>,
) -> Result<(), Failure> {
    let output = &context.output;
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path).map_err(|error| Failure::file("read the instructions in", &path, &error))
    };
    let instructions = instruction_file.map(read).transpose()?;
    let request = AccountRequest { name: Some(name), description, instructions, ..AccountRequest::default() };
    let account = hub.create_account(&request).await?;
    if output.is_json() {
        return output.json(&account);
    }
    output.line(account.agent_id)?;
    output.say(format_args!("Added {}. Pair a device with it: attache agents code {}", account.name, account.name));
    Ok(())
}

async fn show(context: &Context, hub: &Hub, agent: &str) -> Result<(), Failure> {
    let (output, now) = (&context.output, context.now());
    let account = hub.account(agent).await.map_err(|error| explain(error, agent))?;
    if output.is_json() {
        return output.json(&account);
    }
    output.line(output.paint(Style::Strong, &clean::line(&account.name)))?;
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: Cell| table.row([Cell::dim(name), value]);
    row("id", Cell::plain(account.agent_id.to_string()));
    row("status", presence(&account));
    row("created", Cell::plain(time::relative(account.created_at, now)));
    if let Some(description) = &account.description {
        row("description", Cell::plain(description));
    }
    if let Some(instructions) = &account.instructions {
        row("instructions", Cell::plain(instructions));
    }
    match &account.runtime {
        Some(runtime) => {
            row("device", Cell::plain(runtime.device_name.as_deref().unwrap_or("unnamed")));
            row("host", Cell::plain(runtime.labels.text_member("host_type").as_deref().unwrap_or("–")));
            row("runtime", Cell::plain(runtime.runtime_id.to_string()));
            row("paired", Cell::plain(time::relative(runtime.attached_at, now)));
            row("last seen", Cell::plain(time::relative_or(runtime.last_heartbeat_at, now, "never")));
        }
        None => row("device", Cell::plain(format!("none; pair one: attache agents code {}", account.name))),
    }
    output.table(&table)
}

async fn remove(context: &Context, hub: &Hub, agent: &str) -> Result<(), Failure> {
    hub.archive_account(agent).await.map_err(|error| explain(error, agent))?;
    context.output.say(format_args!("Archived {}. Its runs and their log stay.", clean::line(agent)));
    Ok(())
}

async fn code(context: &Context, hub: &Hub, agent: &str) -> Result<(), Failure> {
    let output = &context.output;
    let code = hub.create_pairing_code(agent).await.map_err(|error| explain(error, agent))?;
    if output.is_json() {
        return output.json(&code);
    }
    output.line(&code.pairing_code)?;
    let until = time::relative(code.expires_at, context.now());
    output.say(format_args!("It works once and expires {until}. On the device, run:"));
    output.say(format_args!("  attache runtime pair {} --api-base {}", code.pairing_code, hub.address()));
    Ok(())
}

/// An agent that is not there is usually a typing error.
pub(super) fn explain(error: attache_client::Error, agent: &str) -> Failure {
    let failure = Failure::from(error);
    if failure.code != "not_found" {
        return failure;
    }
    Failure { message: format!("there is no agent `{agent}`"), ..failure }
        .hint("`attache agents` lists the agents that you can use.")
}
