//! `attache sessions`: lists and ends browser sessions of the console.

use attache_client::HubClient;
use attache_protocol::wire::session::ConsoleSession;
use clap::Subcommand;

use super::page::{self, Listing, PageArgs};
use crate::{
    env::{
        context::{CommandContext, HubArgs},
        ids::IdArg,
    },
    text::{people, terms},
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextStyle, time},
    },
};

/// List and end console sessions
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache sessions               list your sessions; admins see all sessions
  attache sessions end key_…     sign that browser out; a unique part of the id also works

A session ends when the key that opened it does, or after 30 days.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    command: Option<SessionsCommand>,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List sessions (default)
    List(PageArgs),
    /// Sign a browser out immediately, along with the browsers it signed in
    End {
        /// Session id, a unique part of it, or `last`
        session: IdArg,
    },
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(SessionsCommand::List(args.page)) {
        SessionsCommand::List(page) => list(&context, &hub, &page).await,
        SessionsCommand::End { session } => {
            let session = session.session(&hub).await?;
            hub.end_session(session).await?;
            context.output.done("ended", session, people::session_ended(session))
        }
    }
}

async fn list(context: &CommandContext, hub: &HubClient, page: &PageArgs) -> Result<(), CommandFailure> {
    let list = hub.sessions(&page.page()).await?;
    let users = list.sessions.iter().filter_map(|session| session.user_id.map(|id| id.to_string()));
    let keys = list.sessions.iter().filter_map(|session| session.opened_by.map(|id| id.to_string()));
    let names = page::names(context, hub, users.chain(keys)).await;
    let next_cursor = list.next_cursor.as_deref();
    Listing { answer: &list, items: &list.sessions, next_cursor, when_empty: "" }.print(
        context,
        &[
            (terms::id(), &|session| TextCell::plain(session.session_id.to_string())),
            (terms::state(), &|session| state(session, context)),
            (people::role(), &|session| TextCell::plain(session.role.as_str())),
            (people::acts_for(), &|session| TextCell::strong(names.or_dash(session.user_id))),
            (people::opened_by(), &|session| {
                TextCell::plain(session.opened_by.map_or_else(|| people::password().to_owned(), |key| names.get(key)))
            }),
            (people::from(), &|session| TextCell::plain(session.address.as_deref().unwrap_or("–"))),
            (people::opened(), &|session| TextCell::plain(time::relative(session.created_at, context.now()))),
            (terms::ends(), &|session| {
                TextCell::plain(time::relative_or(
                    session.ended_at.or(session.expires_at),
                    context.now(),
                    terms::never(),
                ))
            }),
        ],
    )
}

fn state(session: &ConsoleSession, context: &CommandContext) -> TextCell {
    if session.ended_at.is_some() {
        TextCell::dim(people::ended())
    } else if session.expires_at.is_some_and(|at| at <= context.now()) {
        TextCell::dim(people::expired())
    } else {
        TextCell::styled(people::open(), TextStyle::Good)
    }
}
