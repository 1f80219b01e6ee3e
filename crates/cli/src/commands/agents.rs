//! `attache agents`: manages the agent accounts of a hub.

mod settings;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use attache_client::HubClient;
use attache_protocol::{
    AgentId, Json, KeyPin, Timestamp,
    error::exit,
    rules::permission_mode::PermissionMode,
    wire::{
        a2a_options::A2aOptions,
        account::{
            Account, AccountRequest, AddedPart, ApprovalConfirmation, Callers, OnLimit, PeerRequest, Presence,
            TrustRequest,
        },
        channel::RegisterAgent,
        permission::ApprovalPolicy,
        runtime::{DeclaredExtension, DeclaredSandbox, Runtime},
    },
};
use clap::Subcommand;
use serde::Serialize;

use settings::AgentSettingsArgs;

use super::page::{self, PageArgs};
use crate::{
    env::{
        context::{CommandContext, HubArgs},
        home, walls,
    },
    text::{agents as texts, errors, terms},
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextStyle, TextTable, clean, time},
        prompt,
    },
};

/// Manage agents and create pairing codes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache agents                                  list agents
  attache agents add builder --description \"Builds things\"
  attache agents add travel --peer https://agents.example.org/travel --peer-key-file travel.key
  attache agents set builder --a2a '{\"anonymous\":true}'   accept A2A calls without credentials
  attache agents set builder --callers owner      let only its owner call it
  attache agents set builder --run-timeout 8h --skill review=\"Reviews changes\"
  attache agents set builder --permission-mode accept_edits --trust-command \"git diff *\" --trust-command \"cargo test *\"
  attache agents register crawler --to-file crawler.key   create a key for an agent that opens its own channel
  attache agents trust travel                     trust its current agent card
  attache agents code builder                     create a pairing code for one device
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
    command: Option<AgentsCommand>,
}

#[derive(Debug, Subcommand)]
enum AgentsCommand {
    /// List agents (default)
    List(PageArgs),
    /// Add an agent; pair a device with it afterwards
    Add {
        /// Name, unique on this hub
        name: String,
        #[command(flatten)]
        settings: Box<AgentSettingsArgs>,
        #[command(flatten)]
        peer: PeerAgentArgs,
    },
    /// Change an agent
    Set {
        /// Agent name or id
        agent: String,
        /// New name
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        settings: Box<AgentSettingsArgs>,
        /// New owner's user name; "" for no owner
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
    },
    /// Trust the current card of an outside agent after it changed
    Trust {
        /// Agent name or id
        agent: String,
        /// Pin of the card that you reviewed; fails if the card changed again since
        #[arg(long, value_name = "PIN")]
        card_pin: Option<String>,
    },
    /// Show an agent and its device
    Show {
        /// Agent name or id
        agent: String,
    },
    /// Archive an agent permanently: disconnects its device and keeps its history
    Remove {
        /// Agent name or id
        agent: String,
        /// Skip the confirmation prompt
        #[arg(long, short)]
        yes: bool,
    },
    /// Register an agent and print its API key, which lets it open a channel or call other agents
    Register {
        /// Agent name; if it's already registered, its key is replaced
        name: String,
        /// Capability of the agent; repeatable
        #[arg(long = "capability", value_name = "WORD")]
        capabilities: Vec<String>,
        /// URL of the agent, if it is an A2A agent
        #[arg(long, value_name = "URL")]
        url: Option<String>,
        /// Write the key to this file (mode 0600) instead of printing it
        #[arg(long, value_name = "FILE")]
        to_file: Option<PathBuf>,
    },
    /// Create a one-time pairing code for an agent, valid for ten minutes
    Code {
        /// Agent name or id
        agent: String,
    },
}

/// An outside A2A agent
#[derive(Debug, Default, clap::Args)]
struct PeerAgentArgs {
    /// URL of an outside A2A agent or its card; tasks go there instead of to a device
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// File with the API key for the outside agent
    #[arg(long, value_name = "FILE", requires = "peer")]
    peer_key_file: Option<PathBuf>,
    /// Pin of the card that you reviewed (sha256:…). Required if the card's signature can't be verified or the card
    /// would send the key to another origin; otherwise the first card is trusted
    #[arg(long, value_name = "PIN", requires = "peer")]
    card_pin: Option<String>,
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(AgentsCommand::List(args.page)) {
        AgentsCommand::List(page) => list(&context, &hub, &page).await,
        AgentsCommand::Add { name, settings, peer } => {
            let request = AccountRequest { name: Some(name), peer: peer.request()?, ..settings.request(None)? };
            add(&context, &hub, &request).await
        }
        AgentsCommand::Set { agent, name, settings, owner } => {
            let known = match settings.touches_approvals() {
                true => Some(hub.account(&agent).await.map_err(|error| explain(error, &agent))?),
                false => None,
            };
            let change = AccountRequest { name, owner, ..settings.request(known.as_ref())? };
            set(&context, &hub, &agent, &change).await
        }
        AgentsCommand::Trust { agent, card_pin } => trust(&context, &hub, &agent, card_pin).await,
        AgentsCommand::Show { agent } => show(&context, &hub, &agent).await,
        AgentsCommand::Remove { agent, yes } => remove(&context, &hub, &agent, yes).await,
        AgentsCommand::Register { name, capabilities, url, to_file } => {
            let capabilities = (!capabilities.is_empty()).then(|| Json::of(&capabilities));
            let request = RegisterAgent { agent_id: Some(name), capabilities, url, ..RegisterAgent::default() };
            register(&context, &hub, &request, to_file.as_deref()).await
        }
        AgentsCommand::Code { agent } => code(&context, &hub, &agent, context.choose_hub(&args.hub)?.pin).await,
    }
}

async fn list(context: &CommandContext, hub: &HubClient, page: &PageArgs) -> Result<(), CommandFailure> {
    let output = &context.output;
    let list = hub.accounts(&page.page()).await?;
    if output.is_json() {
        return output.json(&list);
    }
    if list.agent_accounts.is_empty() {
        output.say(texts::none_yet());
        return Ok(());
    }
    let mut table = TextTable::new(&[
        terms::name(),
        terms::status(),
        terms::device(),
        terms::last_seen(),
        terms::id(),
        terms::description(),
    ]);
    for account in &list.agent_accounts {
        let runtime = account.runtime.as_ref();
        let device =
            runtime.map_or(texts::not_paired(), |runtime| runtime.device_name.as_deref().unwrap_or(terms::unnamed()));
        let device = account.peer.as_ref().map_or(device, |peer| peer.url.as_str());
        let seen = runtime.and_then(|runtime| runtime.last_heartbeat_at);
        table.row([
            TextCell::strong(&account.name),
            presence(account),
            TextCell::plain(device),
            TextCell::plain(time::relative_or(seen, context.now(), unseen(runtime))),
            TextCell::dim(account.agent_id.to_string()),
            TextCell::excerpt(account.description.as_deref().unwrap_or_default()),
        ]);
    }
    output.table(&table)?;
    page::more(context, list.next_cursor.as_deref());
    Ok(())
}

fn presence(account: &Account) -> TextCell {
    match account.status {
        _ if account.archived_at.is_some() => TextCell::dim(terms::archived()),
        _ if account.peer.as_ref().is_some_and(|peer| peer.problem.is_some()) => {
            TextCell::styled(terms::trouble(), TextStyle::Bad)
        }
        Presence::Online => TextCell::styled(terms::online(), TextStyle::Good),
        Presence::Offline => TextCell::plain(terms::offline()),
    }
}

async fn set(
    context: &CommandContext,
    hub: &HubClient,
    agent: &str,
    change: &AccountRequest,
) -> Result<(), CommandFailure> {
    let output = &context.output;
    if *change == AccountRequest::default() {
        return Err(CommandFailure::usage(texts::nothing_to_change()).hint(texts::nothing_to_change_do()));
    }
    let was_private = match change.callers {
        Some(Callers::Everyone) => hub.account(agent).await.is_ok_and(|account| account.callers == Callers::Owner),
        Some(Callers::Owner) | None => false,
    };
    let account = hub.update_account(agent, change).await.map_err(|error| explain(error, agent))?;
    if output.is_json() {
        return output.json(&account);
    }
    let name = clean::line(&account.name);
    output.say(if was_private { texts::updated_shared(name) } else { texts::updated(name) });
    for part in &account.ended {
        output.say(match part {
            AddedPart::Runtime => texts::ended_runtime(),
            AddedPart::Key => texts::ended_key(),
            AddedPart::Peer => texts::ended_peer(),
            AddedPart::ApprovalWebhook => texts::ended_webhook(),
            AddedPart::Grants => texts::ended_grants(),
        });
    }
    Ok(())
}

async fn add(context: &CommandContext, hub: &HubClient, request: &AccountRequest) -> Result<(), CommandFailure> {
    let output = &context.output;
    let account = hub.create_account(request).await?;
    if output.is_json() {
        return output.json(&account);
    }
    output.line(account.agent_id)?;
    match &account.peer {
        None => output.say(texts::added(&account.name)),
        Some(peer) => {
            let pin = peer.card_pin.as_deref().unwrap_or(texts::none_yet_pin());
            output.say(texts::added_peer(&account.name, &peer.url));
            output.say(format_args!("  {pin}"));
        }
    }
    Ok(())
}

async fn trust(
    context: &CommandContext,
    hub: &HubClient,
    agent: &str,
    card_pin: Option<String>,
) -> Result<(), CommandFailure> {
    let output = &context.output;
    let account = hub.trust_account(agent, &TrustRequest { card_pin }).await.map_err(|error| explain(error, agent))?;
    if output.is_json() {
        return output.json(&account);
    }
    let pin = account.peer.and_then(|peer| peer.card_pin).unwrap_or_default();
    output.say(texts::trusted(clean::line(&account.name), pin));
    Ok(())
}

async fn show(context: &CommandContext, hub: &HubClient, agent: &str) -> Result<(), CommandFailure> {
    let (output, now) = (&context.output, context.now());
    let account = hub.account(agent).await.map_err(|error| explain(error, agent))?;
    if output.is_json() {
        return output.json(&account);
    }
    output.line(output.paint(TextStyle::Strong, &clean::line(&account.name)))?;
    let mut table = TextTable::new(&["", ""]);
    let mut row = |name: &str, value: TextCell| table.row([TextCell::dim(name), value]);
    row(texts::row_id(), TextCell::plain(account.agent_id.to_string()));
    row(texts::row_status(), presence(&account));
    row(texts::row_created(), TextCell::plain(time::relative(account.created_at, now)));
    if let Some(description) = &account.description {
        row(texts::row_description(), TextCell::plain(description));
    }
    if let Some(instructions) = &account.instructions {
        row(texts::row_instructions(), TextCell::plain(instructions));
    }
    row(
        texts::row_callers(),
        TextCell::plain(match (account.callers, A2aOptions::of(account.a2a.as_ref()).anonymous) {
            (Callers::Everyone, true) => texts::callers_anonymous(),
            (Callers::Everyone, false) => texts::callers_everyone(),
            (Callers::Owner, _) => texts::callers_owner(),
        }),
    );
    if let Some(millis) = account.run_timeout_ms {
        row(texts::row_run_timeout(), TextCell::plain(time::duration(Duration::from_millis(millis))));
    }
    if account.confirm_approvals != ApprovalConfirmation::default() {
        row(texts::row_confirm_approvals(), TextCell::plain(account.confirm_approvals.as_str()));
    }
    if account.on_limit != OnLimit::default() {
        row(texts::row_on_limit(), TextCell::plain(account.on_limit.as_str()));
    }
    if let Some(ApprovalPolicy { mode, trusted_commands, .. }) = &account.approvals {
        if let Some(mode) = mode.filter(|mode| *mode != PermissionMode::Ask) {
            row(texts::row_permissions(), TextCell::plain(mode.as_str()));
        }
        for command in trusted_commands {
            row(texts::row_trusted(), TextCell::plain(clean::exact_line(command)));
        }
    }
    for skill in &account.skills {
        row(texts::row_skill(), TextCell::plain(format!("{}  {}", skill.id, skill.description).trim_end()));
    }
    if let Some(peer) = &account.peer {
        row(texts::row_peer(), TextCell::plain(&peer.url));
        if let (Some(binding), Some(version)) = (&peer.binding, &peer.protocol_version) {
            row(texts::row_protocol(), TextCell::plain(texts::protocol(version, binding)));
        }
        row(texts::row_key(), TextCell::plain(if peer.has_key { terms::set() } else { terms::none() }));
        row(texts::row_card(), TextCell::plain(peer.card_pin.as_deref().unwrap_or(texts::not_fetched())));
        row(texts::row_pinned(), TextCell::plain(time::relative_or(peer.pinned_at, now, terms::never_seen())));
        if let Some(offered) = &peer.offered_pin {
            let how = texts::offered(offered, &account.name);
            row(texts::row_new_card(), TextCell::styled(how, TextStyle::Bad));
        }
        if let Some(problem) = &peer.problem {
            row(texts::row_problem(), TextCell::styled(problem, TextStyle::Bad));
        }
        return output.table(&table);
    }
    match &account.runtime {
        Some(runtime) => {
            row(texts::row_device(), TextCell::plain(runtime.device_name.as_deref().unwrap_or(terms::unnamed())));
            row(texts::row_host(), TextCell::plain(runtime.labels.text_member("host_type").as_deref().unwrap_or("–")));
            row(texts::row_sandbox(), TextCell::plain(sandbox_text(runtime, now)));
            row(texts::row_runtime(), TextCell::plain(runtime.runtime_id.to_string()));
            row(texts::row_paired(), TextCell::plain(time::relative(runtime.attached_at, now)));
            row(
                texts::row_last_seen(),
                TextCell::plain(time::relative_or(runtime.last_heartbeat_at, now, unseen(Some(runtime)))),
            );
            if runtime.is_only_registered() {
                row(texts::row_next(), TextCell::plain(crate::text::ask::connect_it()));
            }
        }
        None => row(texts::row_device(), TextCell::plain(texts::no_device(&account.name))),
    }
    output.table(&table)
}

/// `other people's runs see only their own folders (verified 5 minutes ago: cwd_only, no_network, no_exec)`
fn sandbox_text(runtime: &Runtime, now: Timestamp) -> String {
    match DeclaredExtension::sandbox(&runtime.extensions).filter(|walls| !walls.proof.limits.is_empty()) {
        Some(DeclaredSandbox { runs, proof }) => {
            let limits = clean::line(&proof.limits.join(", ")).into_owned();
            texts::walled(walls::describe(runs), time::relative(proof.proved_at, now), limits)
        }
        None => texts::unwalled().to_owned(),
    }
}

/// Archives an agent. This can't be undone: its name becomes available to other agents.
async fn remove(context: &CommandContext, hub: &HubClient, agent: &str, yes: bool) -> Result<(), CommandFailure> {
    if !yes {
        let account = hub.account(agent).await.map_err(|error| explain(error, agent))?;
        let device = account.runtime.as_ref().and_then(|runtime| runtime.device_name.as_deref());
        let name = clean::line(&account.name);
        let question = match device {
            Some(device) => texts::ask_archive_device(name, clean::line(device)),
            None => texts::ask_archive(name),
        };
        if prompt::confirm(&context.output, &question)? == Some(false) {
            return Err(CommandFailure::new("cancelled", exit::FAILED, texts::not_archived()));
        }
    }
    hub.archive_account(agent).await.map_err(|error| explain(error, agent))?;
    context.output.done("archived", agent, texts::archived(clean::line(agent)))
}

async fn register(
    context: &CommandContext,
    hub: &HubClient,
    request: &RegisterAgent,
    to_file: Option<&Path>,
) -> Result<(), CommandFailure> {
    #[derive(Serialize)]
    struct CreatedAgentOutput<'a> {
        agent_id: &'a str,
        account_id: AgentId,
        #[serde(skip_serializing_if = "Option::is_none")]
        api_key: Option<&'a str>,
    }
    let output = &context.output;
    let registered = hub.register_agent(request).await?;
    let key = registered.api_key.expose();
    if let Some(file) = to_file {
        home::write_private(file, format!("{key}\n").as_bytes())
            .map_err(|error| CommandFailure::file("write the key to", file, &error))?;
    }
    if output.is_json() {
        let api_key = to_file.is_none().then_some(key.as_str());
        let shown = CreatedAgentOutput { agent_id: &registered.agent_id, account_id: registered.account_id, api_key };
        return output.json(&shown);
    }
    match to_file {
        Some(file) => output.say(texts::key_in(&registered.agent_id, file.display())),
        None => output.line(key)?,
    }
    output.say(texts::key_once());
    Ok(())
}

async fn code(
    context: &CommandContext,
    hub: &HubClient,
    agent: &str,
    pin: Option<KeyPin>,
) -> Result<(), CommandFailure> {
    let output = &context.output;
    let code = hub.create_pairing_code(agent).await.map_err(|error| explain(error, agent))?;
    if output.is_json() {
        return output.json(&code);
    }
    // Whoever may create codes might not see the agent. The code is good without this note.
    let replaced = hub.account(agent).await.ok().as_ref().and_then(replaced_device);
    output.line(&code.pairing_code)?;
    let until = time::relative(code.expires_at, context.now());
    output.say(texts::code_expires(until));
    // The address that this command used works on other machines too, unless it is a loopback address.
    let own = Some(hub.address().origin()).filter(|_| !hub.address().is_loopback());
    let reachable = own.or(code.api_base);
    let here = hub.address().origin();
    let base = reachable.as_deref().unwrap_or(&here);
    // Clients need the pin to trust a self-signed certificate.
    let pin = pin.or(code.pin).map(|pin| format!(" --pin {pin}")).unwrap_or_default();
    output.say(format_args!("  attache runtime pair {} --api-base {base}{pin}", code.pairing_code));
    if let Some(replaced) = replaced {
        output.say_styled(TextStyle::Busy, replaced);
    }
    if reachable.is_none() {
        output.say_styled(TextStyle::Busy, texts::only_this_machine(hub.address().port()));
        output.say_styled(TextStyle::Busy, texts::or_behind_proxy());
    }
    Ok(())
}

/// Says which device loses the agent when another one is paired with it.
pub(super) fn replaced_device(account: &Account) -> Option<String> {
    let runtime = account.runtime.as_ref()?;
    let device = clean::line(runtime.device_name.as_deref().unwrap_or(terms::unnamed())).into_owned();
    let state = match runtime.status {
        Presence::Online => terms::online(),
        Presence::Offline => terms::offline(),
    };
    Some(texts::replaces(device, state))
}

// === impl PeerAgentArgs ===

impl PeerAgentArgs {
    fn request(self) -> Result<Option<PeerRequest>, CommandFailure> {
        let Some(url) = self.peer else { return Ok(None) };
        let key = match self.peer_key_file {
            Some(path) => Some(home::read_secret(&path)?.expose().trim().to_owned()),
            None => None,
        };
        Ok(Some(PeerRequest { url, key, card_pin: self.card_pin }))
    }
}

/// Turns "not found" into a message that names the agent: usually a typo.
pub(super) fn explain(error: attache_client::Error, agent: &str) -> CommandFailure {
    let failure = CommandFailure::from(error);
    if failure.code != "not_found" {
        return failure;
    }
    CommandFailure { message: errors::agent_not_found(agent), ..failure }.hint(errors::agent_not_found_do())
}

/// The text for a device that was never seen.
fn unseen(runtime: Option<&Runtime>) -> &'static str {
    match runtime {
        Some(runtime) if runtime.is_only_registered() => texts::not_connected_yet(),
        Some(_) | None => terms::never_seen(),
    }
}
