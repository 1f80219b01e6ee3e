//! `attache users`: manages the people of a hub.

use attache_client::{HubClient, NewUser, UserChange};
use attache_protocol::{
    Secret,
    error::exit,
    wire::{key::Role, user::User},
};
use clap::Subcommand;

use super::{
    keys::parse_role,
    page::{Listing, PageArgs},
};
use crate::{
    env::context::{CommandContext, HubArgs},
    text::{people, terms},
    ui::{
        failure::CommandFailure,
        output::{TextCell, clean, time},
        prompt, secret_prompt,
    },
};

/// Manage a hub's users
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache users                                  list people
  attache users add ada --role admin --password  add a person who signs in with a password
  attache keys add laptop --user ada             create a key that acts for her
  attache users set ada --role viewer
  attache users passwd                           change your own password
  attache users remove ada                       revoke her keys, tokens and sessions immediately

Passwords are prompted for on the terminal, or read as one line from standard input.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    command: Option<UsersCommand>,
}

#[derive(Debug, Subcommand)]
enum UsersCommand {
    /// List people (default)
    List(PageArgs),
    /// Add a person
    Add {
        /// User name: a-z, 0-9, dot, dash and underscore
        name: String,
        /// Role
        #[arg(long, value_parser = parse_role, default_value = "operator", value_name = Role::CHOICES)]
        role: Role,
        /// Set a password (prompts for it); without one, they can sign in only with a link
        #[arg(long)]
        password: bool,
    },
    /// Show a person; `me` is the user of your key
    Show {
        /// User name or id
        user: String,
    },
    /// Change a person
    Set {
        /// User name or id
        user: String,
        /// New name
        #[arg(long)]
        name: Option<String>,
        /// Role
        #[arg(long, value_parser = parse_role, value_name = Role::CHOICES)]
        role: Option<Role>,
        /// Set a new password (prompts for it); ends their sessions
        #[arg(long)]
        password: bool,
    },
    /// Change your own password
    Passwd,
    /// Remove a person; their agents and runs are kept
    Remove {
        /// User name or id
        user: String,
        /// Skip the confirmation prompt
        #[arg(long, short)]
        yes: bool,
    },
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(UsersCommand::List(args.page)) {
        UsersCommand::List(page) => list(&context, &hub, &page).await,
        UsersCommand::Add { name, role, password } => {
            let password = prompt_password(password, people::ask_password())?;
            let user = hub.create_user(&NewUser { name, role: Some(role), password }).await?;
            done(&context, &user, people::added)
        }
        UsersCommand::Show { user } => show(&context, &hub.user(&user).await?),
        UsersCommand::Set { user, name, role, password } => {
            let password = prompt_password(password, people::ask_new_password())?;
            let change = UserChange { name, role, password, current_password: None };
            done(&context, &hub.update_user(&user, &change).await?, people::updated)
        }
        UsersCommand::Passwd => {
            let own = hub.user("me").await?;
            let current_password = prompt_password(own.has_password, people::ask_current_password())?;
            let password = prompt_password(true, people::ask_new_password())?;
            let change = UserChange { password, current_password, ..UserChange::default() };
            done(&context, &hub.update_user("me", &change).await?, people::changed_password)
        }
        UsersCommand::Remove { user, yes } => {
            let question = people::ask_remove(clean::line(&user));
            if !yes && prompt::confirm(&context.output, &question)? == Some(false) {
                return Err(CommandFailure::new("cancelled", exit::FAILED, people::not_removed()));
            }
            hub.remove_user(&user).await?;
            context.output.done("removed", &user, people::removed(&user))
        }
    }
}

fn prompt_password(required: bool, question: &str) -> Result<Option<Secret<String>>, CommandFailure> {
    if required { secret_prompt::ask(question).map(Some) } else { Ok(None) }
}

fn done(context: &CommandContext, user: &User, said: fn(String, &'static str) -> String) -> Result<(), CommandFailure> {
    if context.output.is_json() {
        return context.output.json(user);
    }
    context.output.line(user.user_id)?;
    context.output.say(said(user.name.clone(), user.role.as_str()));
    Ok(())
}

async fn list(context: &CommandContext, hub: &HubClient, page: &PageArgs) -> Result<(), CommandFailure> {
    let list = hub.users(&page.page()).await?;
    let next_cursor = list.next_cursor.as_deref();
    Listing { answer: &list, items: &list.users, next_cursor, when_empty: "" }.print(
        context,
        &[
            (terms::name(), &|user| TextCell::strong(&user.name)),
            (people::role(), &|user| TextCell::plain(user.role.as_str())),
            (people::sign_in(), &|user| TextCell::plain(sign_in(user))),
            (terms::created(), &|user| TextCell::plain(time::relative(user.created_at, context.now()))),
            (terms::id(), &|user| TextCell::dim(user.user_id.to_string())),
        ],
    )
}

fn show(context: &CommandContext, user: &User) -> Result<(), CommandFailure> {
    let output = &context.output;
    if output.is_json() {
        return output.json(user);
    }
    output.line(format_args!("{}  {}", user.name, user.role.as_str()))?;
    output.line(people::signs_in_with(sign_in(user)))?;
    output.line(user.user_id)
}

fn sign_in(user: &User) -> &'static str {
    if user.has_password { people::by_password_or_link() } else { people::by_link() }
}
