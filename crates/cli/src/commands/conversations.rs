//! `attache conversations`: lists, starts, reads and deletes conversations.

use attache_client::{HubClient, PageQuery};
use attache_protocol::{
    ConversationId,
    error::exit,
    wire::{
        conversation::{CreateConversationRequest, MessageRole},
        host_session::HostSession,
    },
};
use clap::Subcommand;

use super::page::{self, Listing, PageArgs};
use crate::{
    env::{
        context::{CommandContext, HubArgs},
        ids::IdArg,
    },
    ui::{
        failure::CommandFailure,
        names::DisplayNames,
        output::{TextCell, TextStyle, clean, time},
        prompt,
    },
};

/// List, start, read and delete conversations
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache conversations
  attache conversations add --title \"Release 2\"
  attache ask builder --conversation cnv_… \"go on\"
  attache conversations show \"Release 2\"     by title, id, unique part of an id, or `last`
  attache conversations sessions claude        sessions that the agent keeps on its device
  attache ask claude --session last \"go on\"   continue the newest one that was started in a terminal
  attache conversations delete cnv_…",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    command: Option<ConversationsCommand>,
}

#[derive(Debug, Subcommand)]
enum ConversationsCommand {
    /// List conversations that were created explicitly (default), not those that a run started; `attache runs` lists runs
    List(PageArgs),
    /// Start a conversation
    Add {
        #[arg(long)]
        title: Option<String>,
    },
    /// Delete a conversation with its runs, messages and artifacts; its runs must be finished
    Delete {
        /// Title, id, unique part of an id, or `last`
        conversation: IdArg,
        /// Skip the confirmation prompt
        #[arg(long, short)]
        yes: bool,
    },
    /// List the sessions that your agent keeps for its folder, including those started in a terminal on its device
    Sessions {
        /// Agent name or id; one of your own
        agent: String,
    },
    /// Show the messages of a conversation
    Show {
        /// Title, id, unique part of an id, or `last`
        conversation: IdArg,
        #[command(flatten)]
        page: PageArgs,
    },
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(ConversationsCommand::List(args.page)) {
        ConversationsCommand::List(page) => list(&context, &hub, &page).await,
        ConversationsCommand::Add { title } => {
            let request = CreateConversationRequest { title, ..CreateConversationRequest::default() };
            let conversation = hub.create_conversation(&request).await?;
            if context.output.is_json() {
                return context.output.json(&conversation);
            }
            context.output.line(conversation.conversation_id)
        }
        ConversationsCommand::Delete { conversation, yes } => {
            delete(&context, &hub, conversation.conversation(&hub).await?, yes).await
        }
        ConversationsCommand::Sessions { agent } => sessions(&context, &hub, &agent).await,
        ConversationsCommand::Show { conversation, page } => {
            show(&context, &hub, conversation.conversation(&hub).await?, &page.page()).await
        }
    }
}

async fn delete(
    context: &CommandContext,
    hub: &HubClient,
    conversation: ConversationId,
    yes: bool,
) -> Result<(), CommandFailure> {
    if !yes {
        let question =
            format!("Delete {conversation}? This can't be undone: its runs, messages and artifacts are deleted too.");
        if prompt::confirm(&context.output, &question)? == Some(false) {
            return Err(CommandFailure::new("cancelled", exit::FAILED, "nothing was deleted"));
        }
    }
    hub.delete_conversation(conversation).await?;
    let text = format_args!("Deleted {conversation} and its runs.");
    context.output.done("deleted", conversation, text)
}

async fn list(context: &CommandContext, hub: &HubClient, page: &PageArgs) -> Result<(), CommandFailure> {
    let list = hub.conversations(&page.page()).await?;
    let next_cursor = list.next_cursor.as_deref();
    let when_empty = "No conversation was created explicitly. Each run has its own; list runs with `attache runs`, and read the newest conversation with `attache conversations show last`.";
    Listing { answer: &list, items: &list.conversations, next_cursor, when_empty }.print(
        context,
        &[
            ("ID", &|conversation| TextCell::plain(conversation.conversation_id.to_string())),
            ("BEGUN", &|conversation| TextCell::plain(time::relative(conversation.created_at, context.now()))),
            ("TITLE", &|conversation| TextCell::excerpt(conversation.title.as_deref().unwrap_or("–"))),
        ],
    )
}

async fn sessions(context: &CommandContext, hub: &HubClient, agent: &str) -> Result<(), CommandFailure> {
    let list = hub.host_sessions(agent).await?;
    let when_empty = match list.reported_at {
        Some(_) => "The agent keeps no sessions for its folder.",
        None => "The device hasn't reported yet. Is its runtime running?",
    };
    let place = |session: &HostSession| session.conversation_id.map_or("terminal".to_owned(), |id| id.to_string());
    Listing { answer: &list, items: &list.host_sessions, next_cursor: None, when_empty }.print(
        context,
        &[
            ("ID", &|session| TextCell::plain(session.session_id.clone())),
            ("LAST USED", &|session| TextCell::plain(time::relative(session.updated_at, context.now()))),
            ("CONVERSATION", &|session| TextCell::plain(place(session))),
            ("TITLE", &|session| TextCell::excerpt(&session.title)),
        ],
    )?;
    if !context.output.is_json() && !list.host_sessions.is_empty() {
        context.output.say(format_args!("Continue one: attache ask {agent} --session ID \"…\""));
    }
    Ok(())
}

async fn show(
    context: &CommandContext,
    hub: &HubClient,
    conversation: ConversationId,
    page: &PageQuery,
) -> Result<(), CommandFailure> {
    let output = &context.output;
    let list = hub.messages(conversation, page).await?;
    if output.is_json() {
        return output.json(&list);
    }
    let names = DisplayNames::of(hub, list.messages.iter().map(|message| &message.author)).await;
    for message in &list.messages {
        let style = match message.role {
            MessageRole::User => TextStyle::Strong,
            MessageRole::Agent => TextStyle::Good,
        };
        let author = output.paint(style, &names.get(&message.author));
        let when = output.paint(TextStyle::Dim, &time::relative(message.created_at, context.now()));
        output.line(format_args!("{author}  {when}\n{}\n", clean::lines(message.text.trim_end())))?;
    }
    page::more(context, list.next_cursor.as_deref());
    Ok(())
}
