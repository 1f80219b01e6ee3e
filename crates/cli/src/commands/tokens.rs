//! `attache tokens`: creates short-lived tokens for programs that shouldn't hold a key.

use attache_protocol::wire::{key::KeyScope, token::TokenRequest};

use super::keys::parse_scope;
use crate::{
    env::context::{CommandContext, HubArgs},
    text::people,
    ui::{
        failure::CommandFailure,
        output::{TextStyle, time},
    },
};

/// Create a short-lived token (JWT) from your key
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache tokens                                   print a token that is valid for 15 minutes
  attache tokens --scope read --ttl 60             a read-only token, valid for a minute
  attache tokens --audience https://api.example    a token for another service, which verifies it with the hub's JWKS

A token has at most your key's permissions and is revoked with it.")]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    /// Lifetime in seconds, at most 3600 [default: 900]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    ttl: Option<u64>,
    /// Limit the token to this scope of the key; repeatable
    #[arg(long = "scope", value_parser = parse_scope, value_name = KeyScope::CHOICES)]
    scopes: Vec<KeyScope>,
    /// Audience of the token [default: the hub itself]
    #[arg(long, value_name = "URL")]
    audience: Option<String>,
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    let scopes = (!args.scopes.is_empty()).then_some(args.scopes);
    let token = hub.create_token(&TokenRequest { ttl_seconds: args.ttl, scopes, audience: args.audience }).await?;
    let output = &context.output;
    if output.is_json() {
        return output.json(&token);
    }
    output.line(&token.token)?;
    let until = time::relative(token.expires_at, context.now());
    output.say_styled(TextStyle::Dim, people::token_expires(until));
    Ok(())
}
