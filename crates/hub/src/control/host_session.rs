//! The sessions that an agent's host keeps on its device: the agent's owner sees them, and continues one in a conversation.
//!
//! They are private: they come from a terminal of the owner's device, and only the owner in person gets them, with a
//! device that they paired themselves. The hub keeps what the device reports in memory.

use std::collections::HashMap;

use attache_protocol::{
    Code, ConversationId, Json, UserId,
    json::Members,
    wire::{
        account::Callers,
        conversation::CreateConversationRequest,
        host_session::{ContinuedSession, HostSession, HostSessionList, LAST, MAX_SESSIONS, is_session_id},
        run::CreateRunRequest,
    },
};
use attache_store::record::{AccountRecord, AgentRef, Pagination, RuntimeRecord};

use super::{create_run::WHAT, route::AgentSelector};
use crate::{
    Error, Handle, Principal, Result, check,
    error::about,
    identity::{Action, Permit},
};

/// The member of a conversation's metadata. Only the hub sets it.
const MEMBER: &str = "host_session";

/// How many bytes of a device's report are kept.
const MAX_REPORT: usize = 64 << 10;

/// How many conversations are looked at for one that continues a session.
const MAX_CONVERSATIONS: usize = 200;

/// A session that a new conversation continues.
#[derive(Debug)]
pub(super) struct SessionToContinue {
    account: AccountRecord,
    session: HostSession,
}

// === impl Handle ===

impl Handle {
    /// What the host of an agent keeps for its working folder, as the device last reported, for the agent's owner in
    /// person.
    pub async fn host_sessions(&self, by: &Principal, agent: &str) -> Result<HostSessionList> {
        let permit = by.may(Action::SeeHostSessions)?;
        let agent = check::agent_in_path(agent)?;
        let account = self.store().account(by.tenant, agent).await.map_err(about("agent"))?;
        if !permit.covers_user(account.owner) {
            return Err(not_in_person(&account));
        }
        let device = own_device(by, &account)?;
        let Some((mut host_sessions, reported_at)) = self.reported_sessions(account.id, device.id).await? else {
            return Ok(HostSessionList { host_sessions: Vec::new(), reported_at: None });
        };
        let continued = self.continued_sessions(by, &account).await?;
        for session in &mut host_sessions {
            session.conversation_id = match continued.get(&session.session_id) {
                Some(conversation) => Some(*conversation),
                None => self.own_conversation(by, session.conversation_id).await?,
            };
        }
        Ok(HostSessionList { host_sessions, reported_at: Some(reported_at) })
    }

    /// The session that a new conversation is meant to continue, if it is.
    pub(super) async fn session_to_continue(
        &self,
        permit: &Permit<'_>,
        request: &CreateConversationRequest,
    ) -> Result<Option<SessionToContinue>> {
        if request.metadata.as_ref().is_some_and(|metadata| member(metadata).is_some()) {
            return Err(Error::invalid("metadata.host_session", "can't be set; use the member `host_session`"));
        }
        let Some(wanted) = request.host_session.as_deref() else { return Ok(None) };
        let Some(agent) = request.agent_type.as_deref() else {
            return Err(Error::invalid("agent_type", "must name the agent whose session is continued"));
        };
        if !is_session_id(wanted) {
            return Err(Error::invalid("host_session", "must be the id of a session, or `last`"));
        }
        let by = permit.by();
        let agent = self.route(permit, AgentSelector::Type(agent)).await?;
        let account = self.store().account(by.tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
        let listed = self.host_sessions(by, &account.id.to_string()).await?.host_sessions;
        let is_wanted = |session: &HostSession| match wanted {
            // The newest one that is only in a terminal.
            LAST => session.conversation_id.is_none(),
            id => session.session_id == id,
        };
        match listed.into_iter().find(is_wanted) {
            Some(session) => Ok(Some(SessionToContinue { account, session })),
            None => Err(Error::not_found("session").hint(
                "List the sessions of the agent's folder: `attache conversations sessions AGENT`. A new one is listed within half a \
                 minute.",
            )),
        }
    }

    /// Nobody but the agent's owner starts a run that continues a session of theirs, not even by way of an agent.
    pub(super) async fn check_continues(
        &self,
        by: &Principal,
        target: &AccountRecord,
        request: &CreateRunRequest,
    ) -> Result<()> {
        let Some(conversation) = request.conversation_id else { return Ok(()) };
        let metadata = match self.store().conversation(by.tenant, conversation).await {
            Ok(found) => found.metadata,
            // It is created with the run, or the run is refused.
            Err(attache_store::Error::NotFound) => return Ok(()),
            Err(error) => return Err(Error::from_store(WHAT, error)),
        };
        let continued = ContinuedSession::of(metadata.as_ref()).filter(|session| session.agent_id == target.id);
        if continued.is_some() {
            own_device(by, target)?;
            if request.parent_task_run_id.is_some() {
                return Err(not_in_person(target));
            }
        }
        Ok(())
    }

    /// The conversations of this person that were begun to continue a session of this agent's host.
    async fn continued_sessions(
        &self,
        by: &Principal,
        account: &AccountRecord,
    ) -> Result<HashMap<String, ConversationId>> {
        let page = Pagination { limit: MAX_CONVERSATIONS, cursor: None };
        let listed = self.store().conversations(by.tenant, page).await.map_err(about("conversation"))?;
        let own = listed.items.into_iter().rev().filter(|conversation| conversation.user == by.user);
        let continued = own.filter_map(|conversation| {
            let session = ContinuedSession::of(conversation.metadata.as_ref())?;
            (session.agent_id == account.id).then_some((session.session_id, conversation.id))
        });
        Ok(continued.collect())
    }

    /// The conversation of a device's record, if there still is one and it is the caller's.
    async fn own_conversation(
        &self,
        by: &Principal,
        conversation: Option<ConversationId>,
    ) -> Result<Option<ConversationId>> {
        let Some(id) = conversation else { return Ok(None) };
        match self.store().conversation(by.tenant, id).await {
            Ok(found) => Ok(Some(id).filter(|_| is_of(found.user, by))),
            Err(attache_store::Error::NotFound) => Ok(None),
            Err(error) => Err(Error::from_store("conversation", error)),
        }
    }
}

/// The agent's device, if it and the agent are the caller's, in person.
fn own_device<'a>(by: &Principal, account: &'a AccountRecord) -> Result<&'a RuntimeRecord> {
    let owner = account.owner.filter(|owner| by.is_in_person_as(*owner));
    let Some(owner) = owner else { return Err(not_in_person(account)) };
    match &account.runtime {
        Some(device) if device.paired_by == Some(owner) => Ok(device),
        // Somebody else's terminal.
        Some(_) => Err(Error::forbidden("Someone else paired this agent's device, so its sessions belong to them.")
            .hint("Pair your own device with the agent.")),
        None => Err(Error::not_found("device of this agent").hint("Pair one: `attache runtime pair`.")),
    }
}

fn is_of(user: Option<UserId>, by: &Principal) -> bool {
    user.is_some() && user == by.user
}

fn not_in_person(account: &AccountRecord) -> Error {
    let message =
        format!("Only the owner of `{}`, in person, can see and continue the sessions on its device.", account.name);
    Error::new(Code::Forbidden, message)
        .hint("Sign in as its owner, or use a key of theirs with their own role and without scopes. Others start a new conversation.")
}

fn member(metadata: &Json) -> Option<Json> {
    metadata.parse::<Members>().ok()?.find(MEMBER).cloned()
}

/// What a device reports, within bounds.
pub(super) fn plain_sessions(reported: Vec<HostSession>) -> Vec<HostSession> {
    let mut bytes = 0;
    let fits = |session: &HostSession| {
        let HostSession { session_id, title, folder, command, .. } = session;
        bytes += session_id.len() + title.len() + folder.len() + command.len();
        bytes <= MAX_REPORT
    };
    reported.into_iter().filter(HostSession::is_plain).take(MAX_SESSIONS).take_while(fits).collect()
}

// === impl SessionToContinue ===

impl SessionToContinue {
    /// The conversation that already continues it.
    pub(super) const fn conversation(&self) -> Option<ConversationId> {
        self.session.conversation_id
    }

    /// The title of a conversation that continues it. What was typed in a terminal is not for those who see the work of a shared
    /// agent.
    pub(super) fn title(&self) -> Option<String> {
        (self.account.callers == Callers::Owner).then(|| self.session.title.clone())
    }

    /// The metadata of the conversation, with the session.
    pub(super) fn added_to(&self, metadata: Option<&Json>) -> Json {
        let members = metadata.and_then(|metadata| metadata.parse::<Members>().ok());
        let mut members = members.unwrap_or(Members(Vec::new()));
        let session = ContinuedSession { agent_id: self.account.id, session_id: self.session.session_id.clone() };
        members.0.push((MEMBER.to_owned(), Json::of(&session)));
        Json::of(&members)
    }
}
