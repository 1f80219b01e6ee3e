//! `attache login`: a link that signs one browser in to the console, once.

use crate::{
    Context, Failure,
    context::HubArgs,
    output::{Style, time},
};

/// Make a link that signs one browser in to the console
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache login                 print a link; it works once, for ten minutes
  xdg-open \"$(attache login)\"   open the console, signed in")]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    let link = context.hub(&args.hub)?.create_login_link().await?;
    let output = &context.output;
    if output.is_json() {
        return output.json(&link);
    }
    output.line(&link.url)?;
    let until = time::relative(link.expires_at, context.now());
    output.say_styled(Style::Dim, format_args!("It works once and expires {until}."));
    Ok(())
}
