//! Sessions that one's own agents keep on their devices: those begun in a terminal, and continuing one here.

use attache_hub::Error;
use attache_protocol::{
    AgentId, Code, ConversationId,
    wire::{account::Account, conversation::CreateConversationRequest, host_session::HostSession},
};
use axum::extract::Path;

use crate::{
    form::SubmittedForm, page::redirect_after_form, problem::PageResult, session::BrowserSession,
    view::host_session::HostSessionRow,
};

/// How many sessions a page shows.
const MAX_ROWS: usize = 10;

/// Those of these agents that no conversation continues yet, newest first. Empty for agents of others.
pub(crate) async fn begun_in_terminal(
    session: &BrowserSession,
    accounts: &[Account],
) -> PageResult<Vec<HostSessionRow>> {
    let user = session.principal.user;
    let mut found = Vec::new();
    for account in accounts.iter().filter(|account| user.is_some() && account.owner_id == user) {
        let kept = of_agent(session, account.agent_id).await?;
        let kept = kept.into_iter().filter(|kept| kept.conversation_id.is_none());
        found.extend(kept.map(|kept| (kept, account)));
    }
    found.sort_by_key(|(kept, _)| std::cmp::Reverse(kept.updated_at));
    Ok(found.iter().take(MAX_ROWS).map(|(kept, account)| HostSessionRow::new(kept, account)).collect())
}

/// The command that goes on with a conversation in a terminal, if the agent's device reports its session.
pub(crate) async fn command(
    session: &BrowserSession,
    agent: AgentId,
    conversation: ConversationId,
) -> PageResult<Option<String>> {
    let kept = of_agent(session, agent).await?;
    Ok(kept.into_iter().find(|kept| kept.conversation_id == Some(conversation)).map(|kept| kept.command))
}

/// Begins a conversation that continues a session, or opens the one that does.
pub(crate) async fn continue_here(Path(agent): Path<String>, posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let request = CreateConversationRequest {
        agent_type: Some(agent),
        host_session: Some(fields.get("session").to_owned()),
        ..CreateConversationRequest::default()
    };
    let conversation = session.hub.create_conversation(&session.principal, request).await?;
    Ok(redirect_after_form(&format!("/conversations/{}", conversation.conversation_id)))
}

/// None for somebody else's agent or device.
async fn of_agent(session: &BrowserSession, agent: AgentId) -> PageResult<Vec<HostSession>> {
    match session.hub.host_sessions(&session.principal, &agent.to_string()).await {
        Ok(list) => Ok(list.host_sessions),
        Err(Error { code: Code::Forbidden | Code::NotFound, .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
