//! What was said in a conversation: its messages, and the inputs and results of its runs, oldest first.

use attache_protocol::{
    ConversationId, Json, Timestamp,
    json::Members,
    rules::run::Status,
    wire::conversation::{AddMessageRequest, Message, MessageList, Role},
};
use attache_store::record::{NewMessage, Page, RunFilter, RunRecord};

use crate::{
    Error, Handle, Principal, Result,
    control::{PageRequest, check, conversation::MAX_METADATA},
    error::about,
    identity::Action,
    render,
};

const MAX_TEXT: usize = 256 * 1024;
/// A conversation is read as a whole to put it in order; beyond this many items of a kind the rest is not shown.
const MAX_ITEMS: usize = 5000;

impl Handle {
    /// Adds a message. It is kept and shown, and never starts work: runs do.
    pub async fn add_message(
        &self,
        by: &Principal,
        conversation: ConversationId,
        request: AddMessageRequest,
    ) -> Result<Message> {
        by.may(Action::AddMessage)?;
        self.check_kept(by, conversation, "conversation").await?;
        check::text("text", &request.text, 1..=MAX_TEXT)?;
        if let Some(metadata) = &request.metadata {
            check::object("metadata", metadata, MAX_METADATA)?;
        }
        let new = NewMessage {
            id: self.env().message_id(),
            conversation,
            role: Role::User,
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
        self.check_conversation(by, Action::SeeConversations, conversation, "conversation").await?;
        let (limit, after) = (check::limit(page.limit)?, page.cursor.as_deref().map(position).transpose()?);
        self.store().conversation(by.tenant, conversation).await.map_err(about("conversation"))?;
        let mut all = self.explicit_messages(by, conversation).await?;
        all.extend(self.said_by_runs(by, conversation).await?);
        all.sort_by(|one, other| key(one).cmp(&key(other)));
        let mut rest = all
            .into_iter()
            .filter(|message| after.as_ref().is_none_or(|(at, id)| key(message) > (at.millis(), id.as_str())));
        let messages: Vec<Message> = rest.by_ref().take(limit).collect();
        let more = rest.next().is_some();
        let next_cursor = messages.last().filter(|_| more).map(cursor);
        Ok(MessageList { messages, next_cursor })
    }

    async fn explicit_messages(&self, by: &Principal, conversation: ConversationId) -> Result<Vec<Message>> {
        let mut messages = Vec::new();
        let mut cursor = None;
        loop {
            let page = Page { limit: check::MAX_PAGE, cursor };
            let listed = self.store().messages(by.tenant, conversation, page).await.map_err(about("conversation"))?;
            messages.extend(listed.items.into_iter().map(render::message));
            cursor = listed.next;
            if cursor.is_none() || messages.len() >= MAX_ITEMS {
                return Ok(messages);
            }
        }
    }

    async fn said_by_runs(&self, by: &Principal, conversation: ConversationId) -> Result<Vec<Message>> {
        let filter = RunFilter { conversation: Some(conversation), ..RunFilter::default() };
        let mut messages = Vec::new();
        let mut cursor = None;
        loop {
            let page = Page { limit: check::MAX_PAGE, cursor };
            let listed = self.store().runs(by.tenant, filter.clone(), page).await.map_err(about("conversation"))?;
            messages.extend(listed.items.into_iter().flat_map(said));
            cursor = listed.next;
            if cursor.is_none() || messages.len() >= MAX_ITEMS {
                return Ok(messages);
            }
        }
    }
}

/// A run says its input, and at its end its result or its error.
fn said(run: RunRecord) -> impl Iterator<Item = Message> {
    let input = text_of(&run.input, "text").map(|text| Message {
        message_id: format!("{}/input", run.id),
        role: Role::User,
        author: run.caller.clone(),
        text,
        metadata: None,
        task_run_id: Some(run.id),
        created_at: run.created_at,
    });
    let member = if run.state.status() == Status::Completed { "text" } else { "error" };
    let text = run.result.as_ref().and_then(|result| text_of(result, member));
    let result = text.zip(run.ended_at).map(|(text, ended_at)| Message {
        message_id: format!("{}/result", run.id),
        role: Role::Agent,
        author: format!("agent:{}", run.agent),
        text,
        metadata: None,
        task_run_id: Some(run.id),
        created_at: ended_at,
    });
    input.into_iter().chain(result)
}

fn text_of(json: &Json, member: &str) -> Option<String> {
    json.parse::<Members>().ok()?.text(member)
}

fn key(message: &Message) -> (i64, &str) {
    (message.created_at.millis(), &message.message_id)
}

fn cursor(message: &Message) -> String {
    format!("{}.{}", message.created_at.millis(), message.message_id)
}

fn position(cursor: &str) -> Result<(Timestamp, String)> {
    let parsed = cursor.split_once('.').and_then(|(millis, id)| Some((millis.parse().ok()?, id.to_owned())));
    let (millis, id) = parsed.ok_or_else(|| Error::invalid("cursor", "is not one that this list gave out"))?;
    Ok((Timestamp::from_millis(millis), id))
}
