//! `attache agents`: the agent accounts of a hub.

use std::path::PathBuf;

use attache_client::Hub;
use attache_protocol::{
    Json, Pin,
    wire::account::{Account, AccountRequest, PeerRequest, Presence, TrustRequest},
};
use clap::Subcommand;

use super::page::{self, PageArgs};
use crate::{
    Context, Failure,
    context::HubArgs,
    home,
    output::{Cell, Style, Table, clean, time},
};

/// List, add, change, show and remove agents, and make pairing codes for them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache agents                                  list the agents
  attache agents add builder --description \"Builds things\"
  attache agents add travel --peer https://agents.example.org/travel --peer-key-file travel.key
  attache agents set builder --a2a '{\"anonymous\":true}'   let A2A callers without a credential ask it
  attache agents trust travel                     use the card that it shows now
  attache agents code builder                     a code that pairs one device with it
  attache agents show builder --json
  attache agents remove builder",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    page: PageArgs,
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
        /// The switches of its A2A face, as JSON: {"anonymous":true}
        #[arg(long, value_name = "JSON", value_parser = switches)]
        a2a: Option<Json>,
        #[command(flatten)]
        peer: PeerArgs,
    },
    /// Change an agent
    Set {
        /// Its name or id
        agent: String,
        /// Another name
        #[arg(long)]
        name: Option<String>,
        /// What it is good at, for people
        #[arg(long)]
        description: Option<String>,
        /// A file with instructions that go with every task
        #[arg(long, value_name = "FILE")]
        instruction_file: Option<PathBuf>,
        /// The switches of its A2A face, as JSON, instead of those that it has
        #[arg(long, value_name = "JSON", value_parser = switches)]
        a2a: Option<Json>,
        /// The person it belongs to from now on, by name; "" for nobody in particular
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
    },
    /// Trust the card that an outside agent shows now, after it changed
    Trust {
        /// Its name or id
        agent: String,
        /// The pin of the card that you looked at; a still newer one is then not trusted
        #[arg(long, value_name = "PIN")]
        card_pin: Option<String>,
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

/// An A2A agent that is somewhere else
#[derive(Debug, Default, clap::Args)]
struct PeerArgs {
    /// The URL of an A2A agent outside, or of its card: tasks are done there instead of on a device
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// A file with the key that it wants from callers
    #[arg(long, value_name = "FILE", requires = "peer")]
    peer_key_file: Option<PathBuf>,
    /// The pin of the card that you looked at (sha256:…); needed where its signature cannot be verified or where it leads the
    /// key to another origin, else the first card is trusted
    #[arg(long, value_name = "PIN", requires = "peer")]
    card_pin: Option<String>,
}

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(Agents::List(args.page)) {
        Agents::List(page) => list(&context, &hub, &page).await,
        Agents::Add { name, description, instruction_file, a2a, peer } => {
            let (instructions, peer) = (instructions(instruction_file)?, peer.request()?);
            let name = Some(name);
            let request = AccountRequest { name, description, instructions, a2a, peer, ..AccountRequest::default() };
            add(&context, &hub, &request).await
        }
        Agents::Set { agent, name, description, instruction_file, a2a, owner } => {
            let instructions = instructions(instruction_file)?;
            let change = AccountRequest { name, description, instructions, a2a, owner, ..AccountRequest::default() };
            set(&context, &hub, &agent, &change).await
        }
        Agents::Trust { agent, card_pin } => trust(&context, &hub, &agent, card_pin).await,
        Agents::Show { agent } => show(&context, &hub, &agent).await,
        Agents::Remove { agent } => remove(&context, &hub, &agent).await,
        Agents::Code { agent } => code(&context, &hub, &agent, context.choose_hub(&args.hub)?.pin).await,
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
        let device = account.peer.as_ref().map_or(device, |peer| peer.url.as_str());
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
        _ if account.peer.as_ref().is_some_and(|peer| peer.problem.is_some()) => Cell::styled("trouble", Style::Bad),
        Presence::Online => Cell::styled("online", Style::Good),
        Presence::Offline => Cell::plain("offline"),
    }
}

fn instructions(file: Option<PathBuf>) -> Result<Option<String>, Failure> {
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path).map_err(|error| Failure::file("read the instructions in", &path, &error))
    };
    file.map(read).transpose()
}

/// The hub says which members it knows.
fn switches(text: &str) -> Result<Json, String> {
    let json = Json::from_text(text).map_err(|error| format!("this is not JSON: {error}"))?;
    if json.is_object() {
        Ok(json)
    } else {
        Err("this must be a JSON object, for example {\"anonymous\":true}".to_owned())
    }
}

async fn set(context: &Context, hub: &Hub, agent: &str, change: &AccountRequest) -> Result<(), Failure> {
    let output = &context.output;
    if *change == AccountRequest::default() {
        return Err(Failure::usage("say what to change").hint("See: attache agents set --help"));
    }
    let account = hub.update_account(agent, change).await.map_err(|error| explain(error, agent))?;
    if output.is_json() {
        return output.json(&account);
    }
    output.say(format_args!("Changed {}.", clean::line(&account.name)));
    Ok(())
}

async fn add(context: &Context, hub: &Hub, request: &AccountRequest) -> Result<(), Failure> {
    let output = &context.output;
    let account = hub.create_account(request).await?;
    if output.is_json() {
        return output.json(&account);
    }
    output.line(account.agent_id)?;
    match &account.peer {
        None => {
            let name = &account.name;
            output.say(format_args!("Added {name}. Pair a device with it: attache agents code {name}"));
        }
        Some(peer) => {
            let pin = peer.card_pin.as_deref().unwrap_or("none yet");
            output.say(format_args!(
                "Added {}, which is at {}. Its card is trusted from now on:",
                account.name, peer.url
            ));
            output.say(format_args!("  {pin}"));
        }
    }
    Ok(())
}

async fn trust(context: &Context, hub: &Hub, agent: &str, card_pin: Option<String>) -> Result<(), Failure> {
    let output = &context.output;
    let account = hub.trust_account(agent, &TrustRequest { card_pin }).await.map_err(|error| explain(error, agent))?;
    if output.is_json() {
        return output.json(&account);
    }
    let pin = account.peer.and_then(|peer| peer.card_pin).unwrap_or_default();
    output.say(format_args!("The card of {} is trusted: {pin}", clean::line(&account.name)));
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
    if let Some(peer) = &account.peer {
        row("outside at", Cell::plain(&peer.url));
        row("key", Cell::plain(if peer.has_key { "given" } else { "none" }));
        row("card", Cell::plain(peer.card_pin.as_deref().unwrap_or("not read yet")));
        row("card pinned", Cell::plain(time::relative_or(peer.pinned_at, now, "never")));
        if let Some(offered) = &peer.offered_pin {
            let how = format!("{offered}; if it is right: attache agents trust {}", account.name);
            row("another card", Cell::styled(how, Style::Bad));
        }
        if let Some(problem) = &peer.problem {
            row("trouble", Cell::styled(problem, Style::Bad));
        }
        return output.table(&table);
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

async fn code(context: &Context, hub: &Hub, agent: &str, pin: Option<Pin>) -> Result<(), Failure> {
    let output = &context.output;
    let code = hub.create_pairing_code(agent).await.map_err(|error| explain(error, agent))?;
    if output.is_json() {
        return output.json(&code);
    }
    output.line(&code.pairing_code)?;
    let until = time::relative(code.expires_at, context.now());
    output.say(format_args!("It works once and expires {until}. On the device, run:"));
    // A hub that made its own certificate is trusted by its pin alone.
    let pin = pin.map(|pin| format!(" --pin {pin}")).unwrap_or_default();
    output.say(format_args!("  attache runtime pair {} --api-base {}{pin}", code.pairing_code, hub.address()));
    Ok(())
}

// === impl PeerArgs ===

impl PeerArgs {
    fn request(self) -> Result<Option<PeerRequest>, Failure> {
        let Some(url) = self.peer else { return Ok(None) };
        let key = match self.peer_key_file {
            Some(path) => Some(home::read_secret(&path)?.expose().trim().to_owned()),
            None => None,
        };
        Ok(Some(PeerRequest { url, key, card_pin: self.card_pin }))
    }
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
