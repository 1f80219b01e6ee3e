//! `attache tokens`: short-lived tokens for programs that should not hold a key.

use attache_protocol::wire::{key::KeyScope, token::TokenRequest};

use super::keys::parse_scope;
use crate::{
    CommandContext, CommandFailure,
    context::HubArgs,
    output::{TextStyle, time},
};

/// Create a short-lived token (JWT) from your key
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache tokens                                   print one; it lives 15 minutes
  attache tokens --scope read --ttl 60             one that only reads, for a minute
  attache tokens --audience https://api.example    one for another service, which verifies it with the hub's JWKS

A token is worth what your key is worth, or less, and ends with it.")]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    /// How long it lives, at most 3600 [default: 900]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    ttl: Option<u64>,
    /// Only this part of what the key may do; repeatable
    #[arg(long = "scope", value_parser = parse_scope, value_name = "read|call|decide|manage|admin")]
    scopes: Vec<KeyScope>,
    /// For whom it is meant [default: the hub itself]
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
    output.say_styled(TextStyle::Dim, format_args!("It expires {until}."));
    Ok(())
}
