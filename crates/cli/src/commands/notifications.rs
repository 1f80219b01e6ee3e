//! `attache notifications`: the devices and chats that are notified of approval requests and finished runs.

use attache_client::HubClient;
use attache_protocol::{
    Secret,
    error::exit,
    wire::notification::{
        CreateNotificationTarget, NotificationAddress, NotificationChoices, NotificationDetail, NotificationLanguage,
        NotificationService, NotificationTarget, NotificationTest,
    },
};
use clap::{Subcommand, ValueEnum};

use super::page::Listing;
use crate::{
    env::context::{CommandContext, HubArgs},
    text::{notifications as text, terms},
    ui::{
        failure::CommandFailure,
        output::{TextCell, clean, time},
        prompt, secret_prompt,
    },
};

/// Manage the devices and chats that receive your notifications
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache notifications                      list your devices and chats
  attache notifications add slack ops        connect a Slack channel; asks for its webhook URL
  attache notifications add telegram me --chat-id 42 < token-file
  attache notifications add feishu ops --signed --runs --language zh
  attache notifications change ops --show full
  attache notifications test ops             send a test message
  attache notifications remove ops

URLs and tokens are read from the terminal without echo, or from standard input, one per line; they are never shown again. To
add a browser, open the console in it: Settings, Notifications. See docs/notifications.md.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(subcommand)]
    command: Option<NotificationsCommand>,
}

#[derive(Debug, Subcommand)]
enum NotificationsCommand {
    /// List your devices and chats (default)
    List,
    /// Connect a chat; requires an admin
    Add {
        #[command(subcommand)]
        chat: ChatCommand,
    },
    /// Change what a device or chat is notified of
    Change {
        /// Name or id
        target: String,
        #[command(flatten)]
        choices: ChoiceArgs,
    },
    /// Send a test message and show what its service answered
    Test {
        /// Name or id
        target: String,
    },
    /// Stop notifying a device or chat
    Remove {
        /// Name or id
        target: String,
        /// Skip the confirmation prompt
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
enum ChatCommand {
    /// A Slack channel, via an incoming webhook
    Slack {
        /// What to call it
        name: String,
        #[command(flatten)]
        choices: ChoiceArgs,
    },
    /// A Telegram chat, via a bot
    Telegram {
        /// What to call it
        name: String,
        /// ID of the chat that the bot writes to; negative for groups
        #[arg(long, value_name = "ID", allow_negative_numbers = true)]
        chat_id: i64,
        /// Bot API server to use [default: Telegram's own]
        #[arg(long, value_name = "URL")]
        api_url: Option<String>,
        #[command(flatten)]
        choices: ChoiceArgs,
    },
    /// A Feishu group, via a custom bot
    Feishu {
        /// What to call it
        name: String,
        /// The bot requires signatures: also prompt for its signing secret
        #[arg(long)]
        signed: bool,
        #[command(flatten)]
        choices: ChoiceArgs,
    },
}

#[derive(Debug, Clone, Copy, Default, clap::Args)]
struct ChoiceArgs {
    /// Notify of approval requests and questions [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    approvals: Option<bool>,
    /// Notify when a run that you started ends [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    runs: Option<bool>,
    /// How much a notification shows: only who's asking and for what, or also the command or the question [default: title]
    #[arg(long, value_enum)]
    show: Option<DetailArg>,
    /// The language of notifications [default: en]
    #[arg(long, value_enum)]
    language: Option<LanguageArg>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DetailArg {
    Title,
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LanguageArg {
    En,
    Zh,
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(NotificationsCommand::List) {
        NotificationsCommand::List => list(&context, &hub).await,
        NotificationsCommand::Add { chat } => add(&context, &hub, chat).await,
        NotificationsCommand::Change { target, choices } => {
            let target = find(&hub, &target).await?;
            let choices = choices.over(target.choices);
            let changed = hub.update_notification_target(target.notification_target_id, choices).await?;
            if context.output.is_json() {
                return context.output.json(&changed);
            }
            context.output.say(text::chosen(clean::line(&changed.name), describe(&changed.choices)));
            Ok(())
        }
        NotificationsCommand::Test { target } => {
            let target = find(&hub, &target).await?;
            let test = hub.test_notification_target(target.notification_target_id).await?;
            tell_test(&context, &target, &test)
        }
        NotificationsCommand::Remove { target, yes } => remove(&context, &hub, &find(&hub, &target).await?, yes).await,
    }
}

async fn list(context: &CommandContext, hub: &HubClient) -> Result<(), CommandFailure> {
    let list = hub.notification_targets().await?;
    let when_empty = text::nothing_set_up();
    Listing { answer: &list, items: &list.notification_targets, next_cursor: None, when_empty }.print(
        context,
        &[
            (terms::id(), &|target| TextCell::plain(target.notification_target_id.to_string())),
            (terms::name(), &|target| TextCell::strong(&target.name)),
            (text::service(), &|target| TextCell::plain(service(target.service))),
            (text::notifies_of(), &|target| TextCell::plain(describe(&target.choices))),
            (text::added(), &|target| TextCell::plain(time::relative(target.created_at, context.now()))),
        ],
    )
}

async fn add(context: &CommandContext, hub: &HubClient, chat: ChatCommand) -> Result<(), CommandFailure> {
    let known = hub.notification_targets().await?.notification_targets;
    let wanted = chat.name();
    if known.iter().any(|target| target.name == wanted) {
        return Err(
            CommandFailure::new("conflict", exit::FAILED, text::exists(clean::line(wanted))).hint(text::exists_do())
        );
    }
    let (name, address, choices) = match chat {
        ChatCommand::Slack { name, choices } => (
            name,
            NotificationAddress::Slack { webhook_url: secret(text::ask_webhook_url(), text::webhook_url())? },
            choices,
        ),
        ChatCommand::Telegram { name, chat_id, api_url, choices } => (
            name,
            NotificationAddress::Telegram {
                bot_token: secret(text::ask_bot_token(), text::bot_token())?,
                chat_id,
                api_url,
            },
            choices,
        ),
        ChatCommand::Feishu { name, signed, choices } => {
            let webhook_url = secret(text::ask_webhook_url(), text::webhook_url())?;
            let secret = signed.then(|| secret(text::ask_signing_secret(), text::signing_secret())).transpose()?;
            (name, NotificationAddress::Feishu { webhook_url, secret }, choices)
        }
    };
    let choices = choices.over(NotificationChoices::default());
    let target = hub.create_notification_target(&CreateNotificationTarget { name, address, choices }).await?;
    if context.output.is_json() {
        return context.output.json(&target);
    }
    let (id, name) = (target.notification_target_id, clean::line(&target.name));
    // The same chat is connected once.
    let left = hub.notification_targets().await?.notification_targets;
    let before = known
        .iter()
        .find(|known| left.iter().all(|target| target.notification_target_id != known.notification_target_id));
    let what = describe(&target.choices);
    context.output.say(match before {
        Some(before) => text::connected_again(name, clean::line(&before.name), what),
        None => text::connected(name, what),
    });
    context.output.say(text::test_it(id));
    Ok(())
}

// === impl ChatCommand ===

impl ChatCommand {
    fn name(&self) -> &str {
        let (Self::Slack { name, .. } | Self::Telegram { name, .. } | Self::Feishu { name, .. }) = self;
        name
    }
}

/// Not an argument, which every user of the machine could see.
fn secret(question: &str, what: &str) -> Result<Secret<String>, CommandFailure> {
    secret_prompt::ask(question)
        .map_err(|failure| CommandFailure { message: text::missing(what), ..failure }.hint(text::missing_do()))
}

async fn find(hub: &HubClient, wanted: &str) -> Result<NotificationTarget, CommandFailure> {
    let mut all = hub.notification_targets().await?.notification_targets;
    let is_named = |target: &NotificationTarget| target.name == wanted;
    match all.iter().any(is_named) {
        true => all.retain(is_named),
        false => all.retain(|target| target.notification_target_id.to_string().contains(wanted)),
    }
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(CommandFailure::new("not_found", exit::NOT_FOUND, text::not_found(wanted)).hint(text::not_found_do())),
        count => Err(CommandFailure::usage(text::ambiguous(count as u64, wanted)).hint(text::ambiguous_do())),
    }
}

fn tell_test(
    context: &CommandContext,
    target: &NotificationTarget,
    test: &NotificationTest,
) -> Result<(), CommandFailure> {
    let name = clean::line(&target.name);
    if context.output.is_json() {
        context.output.json(test)?;
    }
    if test.delivered {
        if !context.output.is_json() {
            context.output.say(text::test_accepted(service(target.service), name));
            // Something besides the message doesn't work.
            if let Some(problem) = &test.error {
                context.output.say(clean::line(problem));
            }
        }
        return Ok(());
    }
    if context.output.is_json() {
        return Err(CommandFailure::quiet(exit::FAILED));
    }
    let status = test.status.map(text::with_status).unwrap_or_default();
    let reason = test.error.as_deref().map(|error| format!(": {}", clean::line(error))).unwrap_or_default();
    let message = text::test_refused(service(target.service), name, format_args!("{status}{reason}"));
    Err(CommandFailure::failed(message).hint(text::test_refused_do()))
}

async fn remove(
    context: &CommandContext,
    hub: &HubClient,
    target: &NotificationTarget,
    yes: bool,
) -> Result<(), CommandFailure> {
    let (id, name) = (target.notification_target_id, clean::line(&target.name));
    if !yes && prompt::confirm(&context.output, &text::ask_remove(&name))? == Some(false) {
        return Err(CommandFailure::new("cancelled", exit::FAILED, text::not_removed()));
    }
    hub.remove_notification_target(id).await?;
    context.output.done("removed", id, text::removed(name))
}

fn service(service: NotificationService) -> &'static str {
    match service {
        NotificationService::WebPush => text::browser(),
        NotificationService::Slack => "Slack",
        NotificationService::Telegram => "Telegram",
        NotificationService::Feishu => "Feishu",
    }
}

fn describe(choices: &NotificationChoices) -> String {
    let what = match (choices.approvals, choices.runs) {
        (true, true) => text::approvals_and_runs(),
        (true, false) => text::approvals(),
        (false, true) => text::runs(),
        (false, false) => return text::nothing().to_owned(),
    };
    match choices.detail {
        NotificationDetail::Title => what.to_owned(),
        NotificationDetail::Full => text::in_full(what),
    }
}

// === impl ChoiceArgs ===

impl ChoiceArgs {
    /// What wasn't chosen stays.
    fn over(self, before: NotificationChoices) -> NotificationChoices {
        NotificationChoices {
            approvals: self.approvals.unwrap_or(before.approvals),
            runs: self.runs.unwrap_or(before.runs),
            detail: match self.show {
                Some(DetailArg::Title) => NotificationDetail::Title,
                Some(DetailArg::Full) => NotificationDetail::Full,
                None => before.detail,
            },
            language: match self.language {
                Some(LanguageArg::En) => NotificationLanguage::English,
                Some(LanguageArg::Zh) => NotificationLanguage::Chinese,
                None => before.language,
            },
        }
    }
}
