//! `attache keys`: manages API keys of people and programs.

use std::{fs, path::PathBuf, time::Duration};

use attache_client::HubClient;
use attache_protocol::{
    Timestamp,
    wire::key::{CreateKeyRequest, Key, KeyScope, Role},
};
use clap::Subcommand;

use super::page::{self, Listing, PageArgs};
use crate::{
    env::{
        context::{CommandContext, HubArgs},
        home,
        ids::IdArg,
    },
    text::{people, terms},
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextStyle, time},
    },
};

/// Manage API keys
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache keys                                       list keys
  attache keys add ci --role operator --days 90 --to-file ci.key
  attache keys add watcher --scope read --user ada --expires 2027-01-01T00:00:00Z
  attache keys add robot --certificate robot.pem     requires `attache hub --tls-client-certs`
  ATTACHE_KEY=\"$(cat ci.key)\" attache runs           use a key
  attache keys revoke ci                             by name, id or unique part of an id",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    command: Option<KeysCommand>,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// List keys (default)
    List(PageArgs),
    /// Create a key; it is shown only once
    Add {
        /// Name of the key
        name: String,
        /// Role of the key [default: operator, or its user's role if that is lower]
        #[arg(long, value_parser = parse_role, value_name = Role::CHOICES)]
        role: Option<Role>,
        /// Limit the key to this scope of the role; repeatable [default: all scopes]
        #[arg(long = "scope", value_parser = parse_scope, value_name = KeyScope::CHOICES)]
        scopes: Vec<KeyScope>,
        /// User that the key acts for (name or id) [default: your user]
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Expiry time
        #[arg(long, value_name = "TIME", conflicts_with = "days", value_parser = parse_time)]
        expires: Option<Timestamp>,
        /// Expire after this many days
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: Option<u32>,
        /// Write the key to this file (mode 0600) instead of printing it
        #[arg(long, value_name = "FILE")]
        to_file: Option<PathBuf>,
        /// Bind to this client certificate (PEM), which clients then present instead of a key
        #[arg(long, value_name = "FILE", conflicts_with = "to_file")]
        certificate: Option<PathBuf>,
    },
    /// Revoke a key immediately
    Revoke {
        /// Key name, id, unique part of an id, or `last`
        key: IdArg,
    },
}

pub(super) fn parse_role(text: &str) -> Result<Role, String> {
    Role::from_text(text).ok_or_else(|| expected(Role::CHOICES))
}

pub(super) fn parse_scope(text: &str) -> Result<KeyScope, String> {
    KeyScope::from_text(text).ok_or_else(|| expected(KeyScope::CHOICES))
}

fn expected(choices: &str) -> String {
    format!("expected one of {}", choices.replace('|', ", "))
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "expected a time such as 2027-01-01T00:00:00Z".to_owned())
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(KeysCommand::List(args.page)) {
        KeysCommand::List(page) => list(&context, &hub, &page).await,
        KeysCommand::Add { name, role, scopes, user, expires, days, to_file, certificate } => {
            let days = days.map(|days| context.now().plus(Duration::from_secs(u64::from(days) * 86_400)));
            let scopes = (!scopes.is_empty()).then_some(scopes);
            let read =
                |file: PathBuf| fs::read_to_string(&file).map_err(|error| CommandFailure::file("read", &file, &error));
            let certificate = certificate.map(read).transpose()?;
            let request = CreateKeyRequest { name, role, user, scopes, expires_at: expires.or(days), certificate };
            add(&context, &hub, request, to_file).await
        }
        KeysCommand::Revoke { key } => {
            let key = key.key(&hub).await?;
            hub.revoke_key(key).await?;
            context.output.done("revoked", key, people::key_revoked(key))
        }
    }
}

async fn list(context: &CommandContext, hub: &HubClient, page: &PageArgs) -> Result<(), CommandFailure> {
    let list = hub.keys(&page.page()).await?;
    let names = page::names(context, hub, list.api_keys.iter().filter_map(|key| key.user_id)).await;
    let next_cursor = list.next_cursor.as_deref();
    Listing { answer: &list, items: &list.api_keys, next_cursor, when_empty: "" }.print(
        context,
        &[
            (terms::id(), &|key| TextCell::plain(key.key_id.to_string())),
            (terms::state(), &|key| state(key, context)),
            (people::role(), &|key| TextCell::plain(key.role.as_str())),
            (people::scopes(), &|key| TextCell::plain(scopes(key))),
            (people::acts_for(), &|key| TextCell::plain(names.or_dash(key.user_id))),
            (terms::created(), &|key| TextCell::plain(time::relative(key.created_at, context.now()))),
            (terms::expires(), &|key| {
                TextCell::plain(time::relative_or(key.expires_at, context.now(), terms::never()))
            }),
            (terms::name(), &|key| TextCell::strong(&key.name)),
        ],
    )
}

fn scopes(key: &Key) -> String {
    match &key.scopes {
        None => people::all().to_owned(),
        Some(scopes) => scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" "),
    }
}

fn state(key: &Key, context: &CommandContext) -> TextCell {
    if key.revoked_at.is_some() {
        TextCell::dim(people::revoked())
    } else if key.expires_at.is_some_and(|at| at <= context.now()) {
        TextCell::dim(people::expired())
    } else {
        TextCell::styled(people::valid(), TextStyle::Good)
    }
}

async fn add(
    context: &CommandContext,
    hub: &HubClient,
    request: CreateKeyRequest,
    to_file: Option<PathBuf>,
) -> Result<(), CommandFailure> {
    let output = &context.output;
    if let Some(file) = to_file.as_ref().filter(|file| file.exists()) {
        return Err(CommandFailure::usage(people::file_exists(file.display())).hint(people::file_exists_do()));
    }
    let created = hub.create_key(&request).await?;
    match (&to_file, &created.api_key) {
        (_, None) if output.is_json() => return output.json(&created),
        (_, None) => output.say(people::key_of_certificate(created.key.key_id)),
        (Some(file), Some(secret)) => {
            let text = format!("{secret}\n");
            if let Err(error) = home::create_private(file, text.as_bytes()) {
                // The key was never shown to anyone, so it is safe to revoke.
                let _ = hub.revoke_key(created.key.key_id).await;
                return Err(CommandFailure::file("write", file, &error));
            }
            if output.is_json() {
                return output.json(&created.key);
            }
            output.say(people::key_written(file.display()));
        }
        (None, Some(_)) if output.is_json() => return output.json(&created),
        (None, Some(secret)) => {
            output.line(secret)?;
            output.say(people::key_once());
            output.say(format_args!("  attache keys revoke {}", created.key.key_id));
        }
    }
    Ok(())
}
