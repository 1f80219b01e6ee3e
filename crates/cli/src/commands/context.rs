//! `attache context`: the hubs that this client knows, each with its key, and which one commands mean.

use std::path::PathBuf;

use attache_client::HubAddress;
use attache_protocol::{KeyPin, Secret};
use clap::Subcommand;
use serde::Serialize;

use crate::{
    CommandContext, CommandFailure,
    contexts::{self, Contexts, SavedHub},
    home,
    output::{TextCell, TextStyle, TextTable},
    secret_prompt,
};

/// Save hubs and keys under a name, and switch between them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache context                                          the hubs that are known, and which one is used
  attache context add work --hub https://hub.example.org --key-file work.key
  attache context add lab --hub https://10.0.0.5:7800 --pin sha256:…      asks for the key
  attache context use work                                 from now on, commands mean this hub; the first one is used
                                                           by itself, and one that is added with --use
  attache context use --none                               back to the hub of this machine
  attache agents --context lab                             for one command

--hub and ATTACHE_URL come first, then --context, then the one in use, then the hub of this machine. Keys are kept in
$A2A_HOME/contexts, for you alone.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<ContextCommand>,
}

#[derive(Debug, Subcommand)]
enum ContextCommand {
    /// List the hubs that are known (what `attache context` does)
    List,
    /// Remember a hub, or replace what is remembered; the first one is used from now on
    Add {
        /// A name of your choice
        name: String,
        /// The hub's address
        #[arg(long, value_name = "URL")]
        hub: String,
        /// A file with the key; without one it is asked for, or read from standard input
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// The pin of a hub that made its own certificate
        #[arg(long, value_name = "sha256:…")]
        pin: Option<KeyPin>,
        /// Use it from now on, as `attache context use` does
        #[arg(long = "use")]
        choose: bool,
    },
    /// Choose the hub that commands mean
    Use {
        #[arg(required_unless_present = "none")]
        name: Option<String>,
        /// None of them: the hub of this machine
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// Forget a hub and its key
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
    let mut all = Contexts::load(home.path())?;
    let output = &context.output;
    match args.command.unwrap_or(ContextCommand::List) {
        ContextCommand::List => list(context, &all),
        ContextCommand::Add { name, hub, key_file, pin, choose } => {
            contexts::check_name(&name)?;
            let address = HubAddress::parse(&hub)?;
            let key = match key_file {
                Some(file) => home::read_secret(&file)?,
                None => Secret::new(secret_prompt::ask("Key of the hub: ")?.expose().trim().to_owned()),
            };
            all.save_key(home.path(), &name, &key)?;
            // Only where there was no choice: nobody expects the next command at another hub.
            let is_first = all.contexts.keys().all(|known| *known == name);
            all.contexts.insert(name.clone(), SavedHub { hub: address.origin(), pin });
            if choose || is_first {
                all.current = Some(name.clone());
            }
            all.save(home.path())?;
            if all.current.as_ref() == Some(&name) {
                output.say(format_args!("Commands mean {name} ({address}) from now on."));
            } else {
                let now = all.current.as_deref().unwrap_or("the hub of this machine");
                output.say(format_args!(
                    "Remembered {name} ({address}). Commands still mean {now}; to change that: attache context use {name}"
                ));
            }
            Ok(())
        }
        ContextCommand::Use { name, .. } => {
            if let Some(name) = &name {
                all.get(name)?;
            }
            all.current.clone_from(&name);
            all.save(home.path())?;
            match name {
                Some(name) => output.say(format_args!("Commands mean {name} from now on.")),
                None => output.say("Commands mean the hub of this machine from now on."),
            }
            Ok(())
        }
        ContextCommand::Remove { name } => {
            all.get(&name)?;
            all.remove(home.path(), &name)?;
            output.say(format_args!("Forgot {name} and its key."));
            Ok(())
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
        output.say("No hub is remembered. Remember one: attache context add NAME --hub URL --key-file FILE");
        return Ok(());
    }
    let mut table = TextTable::new(&["NAME", "IN USE", "HUB", "KEY"]);
    for hub in &shown.contexts {
        let in_use = shown.current == Some(hub.name);
        table.row([
            TextCell::strong(hub.name),
            if in_use { TextCell::styled("yes", TextStyle::Good) } else { TextCell::plain("") },
            TextCell::plain(hub.hub),
            TextCell::plain(if hub.has_key { "kept" } else { "none" }),
        ]);
    }
    output.table(&table)
}
