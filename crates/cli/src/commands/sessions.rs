//! `attache sessions`: the browsers that are signed in to the console.

use attache_client::Hub;
use attache_protocol::{KeyId, wire::session::Session};
use clap::Subcommand;

use super::{
    keys::names,
    page::{self, PageArgs},
};
use crate::{
    Context, Failure,
    context::HubArgs,
    output::{Cell, Style, Table, time},
};

/// List and end console sessions
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache sessions               list them; admins see everybody's
  attache sessions end key_…     sign that browser out

A session ends with the key that opened it, and never lives longer than 30 days.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    command: Option<Sessions>,
}

#[derive(Debug, Subcommand)]
enum Sessions {
    /// List the sessions (what `attache sessions` does)
    List(PageArgs),
    /// Sign a browser out at once, and those that it signed in
    End {
        /// The session's id, as `attache sessions` shows it
        session: KeyId,
    },
}

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(Sessions::List(args.page)) {
        Sessions::List(page) => list(&context, &hub, &page).await,
        Sessions::End { session } => {
            hub.end_session(session).await?;
            context.output.say(format_args!("Ended {session}."));
            Ok(())
        }
    }
}

async fn list(context: &Context, hub: &Hub, page: &PageArgs) -> Result<(), Failure> {
    let output = &context.output;
    let list = hub.sessions(&page.page()).await?;
    if output.is_json() {
        return output.json(&list);
    }
    let users = names(hub, list.sessions.iter().filter_map(|session| session.user_id)).await;
    let mut table = Table::new(&["ID", "STATE", "ROLE", "FOR", "OPENED BY", "FROM", "OPENED", "ENDS"]);
    for session in &list.sessions {
        table.row([
            Cell::plain(session.session_id.to_string()),
            state(session, context),
            Cell::plain(session.role.as_str()),
            Cell::strong(session.user_id.map_or_else(|| "–".to_owned(), |user| users[&user].clone())),
            Cell::plain(session.opened_by.map_or_else(|| "password".to_owned(), |key| key.to_string())),
            Cell::plain(session.address.as_deref().unwrap_or("–")),
            Cell::plain(time::relative(session.created_at, context.now())),
            Cell::plain(time::relative_or(session.ended_at.or(session.expires_at), context.now(), "never")),
        ]);
    }
    output.table(&table)?;
    page::more(context, list.next_cursor.as_deref());
    Ok(())
}

fn state(session: &Session, context: &Context) -> Cell {
    if session.ended_at.is_some() {
        Cell::dim("ended")
    } else if session.expires_at.is_some_and(|at| at <= context.now()) {
        Cell::dim("expired")
    } else {
        Cell::styled("open", Style::Good)
    }
}
