//! `attache context`: saves hubs with their keys and selects the one that commands use.

use std::path::PathBuf;

use attache_client::HubAddress;
use attache_protocol::{KeyPin, Secret};
use clap::Subcommand;
use serde::Serialize;

use crate::{
    env::{
        context::CommandContext,
        contexts::{self, Contexts, SavedHub},
        home,
    },
    text::{errors, people, terms},
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextStyle, TextTable},
        secret_prompt,
    },
};

/// Save hubs and their keys under names, and switch between them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache context                                          list saved hubs and show the current one
  attache context add work --hub https://hub.example.org --key-file work.key
  attache context add lab --hub https://10.0.0.5:7800 --pin sha256:…      prompts for the key
  attache context use work                                 switch to this hub
  attache context use --none                               switch back to this machine's hub
  attache agents --context lab                             use another hub for one command

The first hub that you add becomes the current one. Precedence: --hub or ATTACHE_URL, then --context, then the current
context, then this machine's hub. Keys are stored in $A2A_HOME/contexts and readable only by you.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<ContextCommand>,
}

#[derive(Debug, Subcommand)]
enum ContextCommand {
    /// List saved hubs (default)
    List,
    /// Save a hub, or replace a saved one; the first one becomes the current hub
    Add {
        /// Name for the hub
        name: String,
        /// The hub's address
        #[arg(long, value_name = "URL")]
        hub: String,
        /// File with the key [default: prompt for it, or read it from standard input]
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// Certificate pin, if the hub uses a self-signed certificate
        #[arg(long, value_name = "sha256:…")]
        pin: Option<KeyPin>,
        /// Make it the current hub
        #[arg(long = "use")]
        choose: bool,
    },
    /// Switch to a saved hub
    Use {
        #[arg(required_unless_present = "none")]
        name: Option<String>,
        /// Use this machine's hub
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// Remove a saved hub and its key
    Remove { name: String },
}

#[derive(Serialize)]
struct ContextListOutput<'a> {
    current: Option<&'a str>,
    contexts: Vec<ContextOutput<'a>>,
}

#[derive(Serialize)]
struct ContextOutput<'a> {
    name: &'a str,
    hub: &'a str,
    has_key: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<KeyPin>,
}

pub(super) fn run(context: &CommandContext, args: Args) -> Result<(), CommandFailure> {
    let home = context.home()?;
    let output = &context.output;
    match args.command.unwrap_or(ContextCommand::List) {
        ContextCommand::List => list(context, &Contexts::load(home.path())?),
        ContextCommand::Add { name, hub, key_file, pin, choose } => {
            contexts::check_name(&name)?;
            let address = HubAddress::parse(&hub)?;
            let key = match key_file {
                Some(file) => home::read_secret(&file)?,
                None => {
                    let typed = secret_prompt::ask(people::ask_key()).map_err(|failure| {
                        CommandFailure { message: errors::no_key().to_owned(), ..failure }.hint(errors::no_key_do())
                    })?;
                    Secret::new(typed.expose().trim().to_owned())
                }
            };
            let (_held, mut all) = Contexts::load_to_change(home.path())?;
            all.save_key(home.path(), &name, &key)?;
            // Only the first hub becomes current on its own; later commands must not switch hubs unexpectedly.
            let is_first = all.contexts.keys().all(|known| *known == name);
            all.contexts.insert(name.clone(), SavedHub { hub: address.origin(), pin });
            if choose || is_first {
                all.current = Some(name.clone());
            }
            all.save(home.path())?;
            if all.current.as_ref() == Some(&name) {
                output.say(people::switched(name, address));
            } else {
                let now = all.current.as_deref().unwrap_or(people::own_hub());
                output.say(people::saved(&name, address, now));
            }
            Ok(())
        }
        ContextCommand::Use { name, .. } => {
            let (_held, mut all) = Contexts::load_to_change(home.path())?;
            if let Some(name) = &name {
                all.get(name)?;
            }
            all.current.clone_from(&name);
            all.save(home.path())?;
            match name {
                Some(name) => output.say(people::switched_to(name)),
                None => output.say(people::switched_to_own()),
            }
            Ok(())
        }
        ContextCommand::Remove { name } => {
            let (_held, mut all) = Contexts::load_to_change(home.path())?;
            all.get(&name)?;
            all.remove(home.path(), &name)?;
            output.done("removed", &name, people::forgotten(&name))
        }
    }
}

fn list(context: &CommandContext, all: &Contexts) -> Result<(), CommandFailure> {
    let (output, home) = (&context.output, context.home()?);
    let contexts = all.contexts.iter().map(|(name, saved)| ContextOutput {
        name,
        hub: &saved.hub,
        has_key: contexts::key_file(home.path(), name).exists(),
        pin: saved.pin,
    });
    let shown = ContextListOutput { current: all.current.as_deref(), contexts: contexts.collect() };
    if output.is_json() {
        return output.json(&shown);
    }
    if shown.contexts.is_empty() {
        output.say(people::none_saved());
        return Ok(());
    }
    let mut table = TextTable::new(&[terms::name(), people::current(), people::hub(), people::key()]);
    for hub in &shown.contexts {
        let in_use = shown.current == Some(hub.name);
        table.row([
            TextCell::strong(hub.name),
            if in_use { TextCell::styled(people::yes(), TextStyle::Good) } else { TextCell::plain("") },
            TextCell::plain(hub.hub),
            TextCell::plain(if hub.has_key { people::kept() } else { terms::none() }),
        ]);
    }
    output.table(&table)
}
