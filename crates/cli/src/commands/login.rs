//! `attache login`: creates a one-time link that signs a browser in to the console.

use attache_protocol::wire::session::LoginLinkRequest;

use crate::{
    env::context::{CommandContext, HubArgs},
    text::setup as texts,
    ui::{
        failure::CommandFailure,
        output::{TextStyle, clean, time},
    },
};

/// Create a link that signs a browser in to the console
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache login                 print a one-time link, valid for ten minutes
  xdg-open \"$(attache login)\"   open the console, signed in
  attache login --user ada      print a link that signs ada in; send it to her

The session has at most your key's permissions and ends when the key does.")]
pub(crate) struct Args {
    /// User to sign in (name or id) [default: the user of your key]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    let request = LoginLinkRequest { user: args.user };
    let link = hub.create_login_link(&request).await.map_err(|error| CommandFailure::from(error).with_user_hint())?;
    let output = &context.output;
    if output.is_json() {
        return output.json(&link);
    }
    output.line(&link.url)?;
    let until = time::relative(link.expires_at, context.now());
    let who = link.user_name.as_deref().map_or_else(|| texts::no_user().into(), clean::line);
    let role = link.role.as_str();
    output.say_styled(TextStyle::Dim, texts::signs_in(who, role, until));
    Ok(())
}
