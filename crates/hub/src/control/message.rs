//! The messages of a conversation, including the inputs and results of its runs, oldest first.

use std::collections::{HashMap, hash_map::Entry};

use attache_protocol::{
    Actor, ConversationId, Json, RunId,
    json::Members,
    rules::run::RunStatus,
    wire::conversation::{AddMessageRequest, ConversationMessage, MessageList, MessageRole},
};
use attache_store::record::{NewMessage, Pagination, RunDetail, RunFilter, RunRecord};

use crate::{
    Error, Handle, Principal, Result, check,
    control::{PageRequest, conversation::MAX_METADATA},
    error::about,
    identity::Action,
    render,
};

const MAX_TEXT: usize = 256 * 1024;
/// All runs are read to sort their messages. Runs beyond this number are not shown.
const MAX_RUNS: usize = 5000;

/// The end of a page: its last message, and where to continue reading the conversation's own messages.
struct MessageCursor {
    millis: i64,
    message: String,
    own: Option<String>,
}

/// A conversation's own message, and the store page it is on.
struct OwnMessage {
    message: ConversationMessage,
    page: Option<String>,
}

impl Handle {
    /// Adds a message. It is stored and shown, but does not start a run.
    pub async fn add_message(
        &self,
        by: &Principal,
        conversation: ConversationId,
        request: AddMessageRequest,
    ) -> Result<ConversationMessage> {
        by.may_all(Action::AddMessage)?;
        self.check_kept(by, conversation, "conversation").await?;
        check::text("text", &request.text, 1..=MAX_TEXT)?;
        if let Some(metadata) = &request.metadata {
            check::object("metadata", metadata, MAX_METADATA)?;
        }
        self.check_space(request.text.len())?;
        let new = NewMessage {
            id: self.env().message_id(),
            conversation,
            role: MessageRole::User,
            text: request.text,
            metadata: request.metadata,
        };
        let added = self.store().add_message(self.context(by), new).await;
        added.map(render::message).map_err(about("conversation"))
    }

    pub async fn messages(
        &self,
        by: &Principal,
        conversation: ConversationId,
        page: PageRequest,
    ) -> Result<MessageList> {
        self.check_conversation(&by.may(Action::SeeConversations)?, conversation, "conversation").await?;
        let (limit, after) = (check::limit(page.limit)?, page.cursor.as_deref().map(MessageCursor::read).transpose()?);
        self.store().conversation(by.tenant, conversation).await.map_err(about("conversation"))?;
        // One more than is shown, to know whether there is another page.
        let own = self.own_messages(by, conversation, after.as_ref(), limit + 1).await?;
        let turn = self.long_read(by).await;
        let mut messages = self.messages_of_runs(by, conversation, after.as_ref(), limit + 1).await?;
        drop(turn);
        let pages: Vec<(String, Option<String>)> =
            own.iter().map(|own| (own.message.message_id.clone(), own.page.clone())).collect();
        messages.extend(own.into_iter().map(|own| own.message));
        keep_first(&mut messages, limit + 1);
        let more = messages.len() > limit;
        messages.truncate(limit);
        let shown = |(id, _): &&(String, Option<String>)| messages.iter().any(|message| message.message_id == *id);
        let own =
            pages.iter().rev().find(shown).map_or_else(|| after.and_then(|after| after.own), |(_, page)| page.clone());
        let next_cursor = messages.last().filter(|_| more).map(|last| MessageCursor::of(last, own).text());
        Ok(MessageList { messages, next_cursor })
    }

    /// The first message that somebody added. The inputs of runs don't count: finding the oldest takes reading all of them.
    pub async fn first_added_message(
        &self,
        by: &Principal,
        conversation: ConversationId,
    ) -> Result<Option<ConversationMessage>> {
        self.check_conversation(&by.may(Action::SeeConversations)?, conversation, "conversation").await?;
        let first = Pagination { limit: 1, cursor: None };
        let listed = self.store().messages(by.tenant, conversation, first).await.map_err(about("conversation"))?;
        Ok(listed.items.into_iter().next().map(render::message))
    }

    /// The conversation's own messages after the position, in order: up to the limit, plus any with the same timestamp
    /// as the last.
    async fn own_messages(
        &self,
        by: &Principal,
        conversation: ConversationId,
        after: Option<&MessageCursor>,
        limit: usize,
    ) -> Result<Vec<OwnMessage>> {
        let mut found: Vec<OwnMessage> = Vec::new();
        let mut cursor = after.and_then(|after| after.own.clone());
        loop {
            // One more, to see whether the next message has the same timestamp.
            let page = Pagination { limit: limit + 1, cursor: cursor.clone() };
            // "Not found" with a cursor means the cursor was made up.
            let failed = |error| match error {
                attache_store::Error::NotFound if cursor.is_some() => unknown_cursor(),
                error => Error::from_store("conversation", error),
            };
            let listed = self.store().messages(by.tenant, conversation, page).await.map_err(failed)?;
            for message in listed.items.into_iter().map(render::message) {
                let last = found.last().map(|last| last.message.created_at);
                if found.len() >= limit && last != Some(message.created_at) {
                    return Ok(found);
                }
                if after.is_none_or(|after| after.is_before(&message)) {
                    found.push(OwnMessage { message, page: cursor.clone() });
                }
            }
            cursor = listed.next;
            if cursor.is_none() {
                return Ok(found);
            }
        }
    }

    /// The first messages of runs after the position. A run may end long after later ones, so excerpts of all runs are
    /// read, one page at a time, and only as many messages as needed are kept and read whole.
    async fn messages_of_runs(
        &self,
        by: &Principal,
        conversation: ConversationId,
        after: Option<&MessageCursor>,
        limit: usize,
    ) -> Result<Vec<ConversationMessage>> {
        let (conversation, detail) = (Some(conversation), RunDetail::Excerpt);
        let filter = RunFilter { conversation, detail, ..RunFilter::default() };
        let mut messages = Vec::new();
        let (mut cursor, mut seen) = (None, 0);
        loop {
            let page = Pagination { limit: check::MAX_PAGE, cursor };
            let listed = self.store().runs(by.tenant, filter.clone(), page).await.map_err(about("conversation"))?;
            seen += listed.items.len();
            for run in listed.items {
                let run = match lacks_text(&run) {
                    true => self.store().run(by.tenant, run.id).await.map_err(about("run"))?,
                    false => run,
                };
                let found = run_messages(run);
                messages.extend(found.filter(|message| after.is_none_or(|after| after.is_before(message))));
            }
            keep_first(&mut messages, limit);
            cursor = listed.next;
            if cursor.is_none() || seen >= MAX_RUNS {
                return self.whole_messages(by, messages).await;
            }
        }
    }

    /// The same messages as they are in whole runs.
    async fn whole_messages(
        &self,
        by: &Principal,
        messages: Vec<ConversationMessage>,
    ) -> Result<Vec<ConversationMessage>> {
        let mut whole: HashMap<RunId, Vec<ConversationMessage>> = HashMap::new();
        let mut complete = Vec::with_capacity(messages.len());
        for message in messages {
            let Some(run) = message.task_run_id else { continue };
            if let Entry::Vacant(missing) = whole.entry(run) {
                let record = self.store().run(by.tenant, run).await.map_err(about("run"))?;
                missing.insert(run_messages(record).collect());
            }
            let of_run = whole.get(&run).into_iter().flatten();
            complete.extend(of_run.filter(|whole| whole.message_id == message.message_id).cloned());
        }
        Ok(complete)
    }
}

/// A run's messages: its input and, once it has ended, its result or error.
fn run_messages(run: RunRecord) -> impl Iterator<Item = ConversationMessage> {
    let input = text_of(&run.spec.input, "text").map(|text| ConversationMessage {
        message_id: format!("{}/input", run.id),
        role: MessageRole::User,
        author: run.caller.to_string(),
        text,
        metadata: None,
        task_run_id: Some(run.id),
        created_at: run.created_at,
    });
    let member = if run.state.status() == RunStatus::Completed { "text" } else { "error" };
    let text = run.result.as_ref().and_then(|result| text_of(result, member));
    let result = text.zip(run.ended_at).map(|(text, ended_at)| ConversationMessage {
        message_id: format!("{}/result", run.id),
        role: MessageRole::Agent,
        author: Actor::Agent(run.agent).to_string(),
        text,
        metadata: None,
        task_run_id: Some(run.id),
        created_at: ended_at,
    });
    input.into_iter().chain(result)
}

/// Whether an excerpt doesn't tell if there is a text.
fn lacks_text(run: &RunRecord) -> bool {
    let is_cut = |json: &Json| {
        let members = json.parse::<Members>();
        members.is_ok_and(|members| members.find("truncated").is_some() && members.text("text").is_none())
    };
    is_cut(&run.spec.input) || run.result.as_ref().is_some_and(is_cut)
}

fn text_of(json: &Json, member: &str) -> Option<String> {
    json.parse::<Members>().ok()?.text(member)
}

fn key(message: &ConversationMessage) -> (i64, &str) {
    (message.created_at.millis(), &message.message_id)
}

fn keep_first(messages: &mut Vec<ConversationMessage>, limit: usize) {
    messages.sort_by(|one, other| key(one).cmp(&key(other)));
    messages.truncate(limit);
}

fn unknown_cursor() -> Error {
    Error::invalid("cursor", "was not issued for this list")
}

// === impl MessageCursor ===

impl MessageCursor {
    fn of(message: &ConversationMessage, own: Option<String>) -> Self {
        Self { millis: message.created_at.millis(), message: message.message_id.clone(), own }
    }

    fn is_before(&self, message: &ConversationMessage) -> bool {
        key(message) > (self.millis, self.message.as_str())
    }

    fn text(&self) -> String {
        let own = self.own.as_deref().map(|own| format!("@{own}")).unwrap_or_default();
        format!("{}.{}{own}", self.millis, self.message)
    }

    fn read(cursor: &str) -> Result<Self> {
        let (place, own) = match cursor.split_once('@') {
            Some((place, own)) => (place, Some(own.to_owned())),
            None => (cursor, None),
        };
        let (millis, message) = place.split_once('.').ok_or_else(unknown_cursor)?;
        let millis = millis.parse().map_err(|_| unknown_cursor())?;
        Ok(Self { millis, message: message.to_owned(), own })
    }
}
