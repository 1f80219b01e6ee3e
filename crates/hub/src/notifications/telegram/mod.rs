//! Buttons in private chats of Telegram: what a message offers, and a task per bot that asks Telegram which were pressed.
//!
//! In a private chat, the chat's id is the id of its only person. What they press decides as the key that connected the chat, in
//! the same way as a button of a notification in a browser. Groups get no buttons: Telegram's users there aren't ours.
//!
//! Telegram keeps what was pressed until it is confirmed, so nothing is lost while no hub runs, and a decision that was made but
//! not confirmed is repeated without effect. Of several nodes, one asks: Telegram allows no more.

mod bot;
mod button;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use attache_protocol::wire::notification::NotificationService;
use attache_store::record::notification::NotificationTargetRecord;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use self::bot::{BotError, PressedButton, TelegramBot};
pub(crate) use self::{bot::BotId, button::DecisionButton};
use super::{chat, message::TargetAddress, notice::Notice, text::NotificationText};
use crate::{Error, Handle, Result, error::about};

/// The `callback_data` of a message's buttons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessageButtons {
    /// Only if the message shows everything that is approved.
    pub(super) approve: Option<String>,
    pub(super) deny: String,
}

/// Why buttons of bots don't work, for the people who connected them. Of several nodes, only the one that asks knows.
#[derive(Debug, Default)]
pub(crate) struct BotProblems(Mutex<HashMap<BotId, String>>);

/// The tasks that ask, one per bot.
#[derive(Default)]
pub(super) struct BotPollers {
    tasks: JoinSet<()>,
    stops: HashMap<BotId, CancellationToken>,
}

/// What pressing a button led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ButtonOutcome {
    /// The request was decided, now or before.
    Decided { approved: bool },
    /// It can't be decided here any more.
    Closed,
    /// The hub never offered this there.
    Unknown,
}

/// A bot more is not asked. Its messages can be opened.
const MAX_BOTS: usize = 32;
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// A conflict lasts until a person resolves it.
const CONFLICT_INTERVAL: Duration = Duration::from_secs(30);
/// How often a button is dealt with again while the store fails.
const MAX_TRIES: u32 = 60;
/// One conflict alone is a request of a node that has just stopped.
const MAX_CONFLICTS: u32 = 2;

/// The buttons of a message to the target's chat.
pub(super) fn buttons(
    hub: &Handle,
    target: &NotificationTargetRecord,
    notice: &Notice,
    chat: i64,
) -> Option<MessageButtons> {
    let offered = notice.decision.as_ref().filter(|_| is_private(chat))?;
    let button = |approved| DecisionButton::new(hub, target, offered.permission, &offered.subject, approved).write();
    Some(MessageButtons { approve: offered.may_approve.then(|| button(true)), deny: button(false) })
}

/// Groups and channels have negative ids.
const fn is_private(chat: i64) -> bool {
    chat > 0
}

/// The bot of the target and its chat, if it is a private one.
fn bot_of(hub: &Handle, target: &NotificationTargetRecord) -> Option<(TelegramBot, i64)> {
    if target.service != NotificationService::Telegram {
        return None;
    }
    match TargetAddress::unseal(hub, target) {
        Ok(TargetAddress::Telegram { api_url, bot_token, chat_id }) if is_private(chat_id) => {
            Some((TelegramBot::new(hub, &api_url, bot_token), chat_id))
        }
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(%error, target.id = %target.id, "can't read the address of a notification target");
            None
        }
    }
}

/// Why the buttons in the target's chat don't work.
pub(crate) fn problem(hub: &Handle, target: &NotificationTargetRecord) -> Option<String> {
    hub.bot_problems().get(bot_of(hub, target)?.0.id())
}

// === impl BotPollers ===

impl BotPollers {
    /// Asks the bots of these targets, and no others.
    pub(super) fn keep(&mut self, hub: &Handle, targets: &[NotificationTargetRecord]) {
        let wanted = targets.iter().filter(|target| target.choices.approvals);
        let mut wanted: HashMap<BotId, TelegramBot> =
            wanted.filter_map(|target| bot_of(hub, target)).map(|(bot, _)| (bot.id(), bot)).collect();
        self.stops.retain(|id, stop| {
            let is_wanted = wanted.remove(id).is_some();
            if !is_wanted {
                stop.cancel();
            }
            is_wanted
        });
        for (id, bot) in wanted {
            if self.stops.len() >= MAX_BOTS {
                tracing::debug!("too many bots: the buttons of some don't work");
                break;
            }
            let stop = CancellationToken::new();
            self.stops.insert(id, stop.clone());
            self.tasks.spawn(poll(hub.clone(), bot, stop));
        }
        while self.tasks.try_join_next().is_some() {}
    }

    /// Waits until what was pressed last is dealt with.
    pub(super) async fn finish(mut self) {
        self.stops.values().for_each(CancellationToken::cancel);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Asks until `stop`. What has begun by then is finished.
async fn poll(hub: Handle, bot: TelegramBot, stop: CancellationToken) {
    let (id, mut after, mut failures, mut tries) = (bot.id(), None, 0_u32, 0_u32);
    loop {
        let pause = match is_ours(&hub, id).await {
            false => {
                // Another node may have confirmed more by the time it is ours again.
                after = None;
                hub.bot_problems().set(id, None);
                hub.options().outbox.look_every
            }
            true => {
                let asked = Instant::now();
                let updates = tokio::select! {
                    updates = bot.updates(after) => updates,
                    () = stop.cancelled() => break,
                };
                match updates {
                    Ok(updates) => {
                        // A server that doesn't wait is not asked all the time.
                        let is_hasty = updates.is_empty() && asked.elapsed() < MIN_BACKOFF;
                        failures = 0;
                        hub.bot_problems().set(id, None);
                        for update in updates {
                            if let Some(pressed) = &update.pressed
                                && !deal(&hub, &bot, pressed).await
                                && tries < MAX_TRIES
                            {
                                // It comes again.
                                tries += 1;
                                break;
                            }
                            tries = 0;
                            after = Some(update.id);
                        }
                        if tries > 0 || is_hasty { MIN_BACKOFF } else { Duration::ZERO }
                    }
                    Err(error) => {
                        failures = failures.saturating_add(1);
                        tracing::debug!(?error, failures, "can't ask Telegram for pressed buttons");
                        hub.bot_problems().set(id, error.problem(failures));
                        error.pause(failures)
                    }
                }
            }
        };
        if pause.is_zero() && !stop.is_cancelled() {
            continue;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => break,
        }
    }
    hub.bot_problems().set(id, None);
    if let Some(node) = hub.node() {
        let _ = hub.store().release_lease(node, &id.lease()).await;
    }
}

/// Whether no other node asks this bot.
async fn is_ours(hub: &Handle, bot: BotId) -> bool {
    let Some(node) = hub.node() else { return true };
    match hub.store().lease(node, &bot.lease()).await {
        Ok(leased) => leased,
        Err(error) => {
            tracing::debug!(%error, "a bot could not be leased");
            false
        }
    }
}

/// Decides, and confirms it in the chat. `false` if it should be tried again.
async fn deal(hub: &Handle, bot: &TelegramBot, pressed: &PressedButton) -> bool {
    let PressedButton { from, message, data, .. } = pressed;
    // In a private chat, these are the same. Anything else isn't from the person of the chat.
    if message.chat.kind != "private" || !is_private(message.chat.id) || from.id != message.chat.id || from.is_bot {
        tracing::warn!(chat = message.chat.id, "a button was pressed by somebody else");
        return true;
    }
    let outcome = async {
        let Some(target) = target_of(hub, bot, message.chat.id).await? else { return Ok(None) };
        let Some(by) = hub.target_person(&target).await? else { return Ok(None) };
        let outcome = hub.decide_with_button(&by, &target, data).await?;
        Ok::<_, Error>(Some((outcome, target)))
    };
    let (outcome, target) = match outcome.await {
        Ok(Some(decided)) => decided,
        Ok(None) => return true,
        Err(error) => {
            tracing::warn!(%error, "can't apply a decision made in a chat");
            return false;
        }
    };
    let t = NotificationText::of(target.choices.language);
    let said = match outcome {
        ButtonOutcome::Decided { approved: true } => t.approved,
        ButtonOutcome::Decided { approved: false } => t.denied,
        ButtonOutcome::Closed | ButtonOutcome::Unknown => t.undecided,
    };
    let answered = bot.answer(pressed, said).await;
    let closed = match (outcome, DecisionButton::read(data)) {
        (ButtonOutcome::Decided { .. } | ButtonOutcome::Closed, Some(button)) => {
            let page = format!("{}/approvals/{}", hub.origin(), button.permission);
            bot.close(message, said, &chat::telegram_keyboard(t, &page, None)).await
        }
        (ButtonOutcome::Unknown, _) | (_, None) => Ok(()),
    };
    // The decision stands, whatever the chat shows.
    for error in [answered, closed].into_iter().filter_map(std::result::Result::err) {
        tracing::debug!(?error, "can't report a decision to a chat");
    }
    true
}

async fn target_of(hub: &Handle, bot: &TelegramBot, chat: i64) -> Result<Option<NotificationTargetRecord>> {
    let targets = hub.store().notification_targets(hub.tenant()).await.map_err(about("notification target"))?;
    let is_it = |target: &NotificationTargetRecord| {
        bot_of(hub, target).is_some_and(|(other, its)| other.id() == bot.id() && its == chat)
    };
    Ok(targets.into_iter().find(is_it))
}

// === impl BotError ===

impl BotError {
    /// What its person should know.
    fn problem(&self, failures: u32) -> Option<String> {
        match self {
            Self::Conflict(_) if failures < MAX_CONFLICTS => None,
            Self::Conflict(reason) => Some(format!(
                "The buttons don't work: another program receives this bot's updates ({reason}). Connect a bot that nothing \
                 else uses."
            )),
            Self::Unauthorized => Some(
                "The buttons don't work: Telegram doesn't accept the bot's token. Connect the chat again with a new one."
                    .to_owned(),
            ),
            Self::TooMany(_) => None,
            Self::Failed(reason) => Some(format!("The buttons don't work now: {reason}")),
        }
    }

    fn pause(&self, failures: u32) -> Duration {
        let backoff = (MIN_BACKOFF * 2_u32.saturating_pow(failures.saturating_sub(1).min(10))).min(MAX_BACKOFF);
        match self {
            Self::Conflict(_) if failures < MAX_CONFLICTS => MIN_BACKOFF,
            Self::Conflict(_) => CONFLICT_INTERVAL,
            Self::Unauthorized => MAX_BACKOFF,
            Self::TooMany(pause) => (*pause).clamp(MIN_BACKOFF, MAX_BACKOFF),
            Self::Failed(_) => backoff,
        }
    }
}

// === impl BotProblems ===

impl BotProblems {
    fn lock(&self) -> MutexGuard<'_, HashMap<BotId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, bot: BotId) -> Option<String> {
        self.lock().get(&bot).cloned()
    }

    fn set(&self, bot: BotId, problem: Option<String>) {
        match problem {
            Some(problem) => drop(self.lock().insert(bot, problem)),
            None => drop(self.lock().remove(&bot)),
        }
    }
}
