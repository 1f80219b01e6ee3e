//! Console sessions: list them and sign them out.

use attache_protocol::{
    KeyId,
    wire::{
        key::Role,
        session::{ConsoleSession, ConsoleSessionList},
    },
};
use attache_store::record::{self, KeyKind};

use crate::{
    Error, Handle, Principal, Result,
    control::PageRequest,
    error::about_list,
    identity::{Action, PrincipalKind},
    render,
};

impl Handle {
    /// Newest first, including ended ones: all sessions for admins, their own for others.
    pub async fn sessions(&self, by: &Principal, page: PageRequest) -> Result<ConsoleSessionList> {
        let permit = by.may(Action::SeeSessions)?;
        let page = page.page()?;
        // A caller without a user has only this session.
        if !permit.covers_others() && by.user.is_none() {
            return Ok(ConsoleSessionList { sessions: Vec::new(), next_cursor: None });
        }
        let user = by.user.filter(|_| !permit.covers_others());
        let failed = about_list("session", &page);
        let listed = self.store().keys(by.tenant, KeyKind::Session, user, page).await.map_err(failed)?;
        let own = own_key(by);
        let sessions = listed.items.into_iter().map(|session| render::session(session, own)).collect();
        Ok(ConsoleSessionList { sessions, next_cursor: listed.next })
    }

    /// Signs the browser out from the next request on, including every session opened from this one. Only an owner can
    /// end an owner's session.
    pub async fn end_session(&self, by: &Principal, session: KeyId) -> Result<ConsoleSession> {
        let permit = by.may(Action::EndSession)?;
        let found = self.every_key(by, KeyKind::Session).await?.into_iter().find(|found| found.id == session);
        let found = found.ok_or_else(|| Error::not_found("session"))?;
        let own = own_key(by) == Some(session) || (by.user.is_some() && by.owns(found.user));
        match permit.covers_others() {
            _ if own && own_key(by) != Some(session) && by.role() < Some(found.role) => {
                return Err(Error::forbidden("This key can't end a session that may do more than the key.")
                    .hint("Use a key with the session's role, or end the session in the console."));
            }
            _ if own => {}
            true if by.role() == Some(Role::Owner) || found.role != Role::Owner => {}
            true => return Err(Error::forbidden("Only an owner can end an owner's session.")),
            // Other people's sessions do not exist for this caller.
            false => return Err(Error::not_found("session")),
        }
        let ended: record::KeyRecord = self.end_key(by, session).await?;
        Ok(render::session(ended, own_key(by)))
    }
}

const fn own_key(by: &Principal) -> Option<KeyId> {
    match by.who {
        PrincipalKind::Key { key, .. } => Some(key),
        PrincipalKind::Runtime { .. }
        | PrincipalKind::Outside { .. }
        | PrincipalKind::Run { .. }
        | PrincipalKind::Anonymous { .. } => None,
    }
}
