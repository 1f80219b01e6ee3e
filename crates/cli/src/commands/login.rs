//! `attache login`: a link that signs one browser in to the console, once.

use attache_protocol::wire::session::LoginLinkRequest;

use crate::{
    CommandContext, CommandFailure,
    context::HubArgs,
    hint,
    output::{TextStyle, clean, time},
};

/// Create a link that signs a browser in to the console
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache login                 print a link; it works once, for ten minutes
  xdg-open \"$(attache login)\"   open the console, signed in
  attache login --user ada      a link that signs ada in; give it to her

The session may do no more than your key, and ends with it.")]
pub(crate) struct Args {
    /// Whom it signs in, by name or id [default: whom your key acts for]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    let request = LoginLinkRequest { user: args.user };
    let link = hub.create_login_link(&request).await.map_err(|error| hint::users(error.into()))?;
    let output = &context.output;
    if output.is_json() {
        return output.json(&link);
    }
    output.line(&link.url)?;
    let until = time::relative(link.expires_at, context.now());
    let who = link.user_name.as_deref().map_or_else(|| "nobody in particular".into(), clean::line);
    let role = link.role.as_str();
    output.say_styled(TextStyle::Dim, format_args!("It signs in {who} ({role}), works once and expires {until}."));
    Ok(())
}
