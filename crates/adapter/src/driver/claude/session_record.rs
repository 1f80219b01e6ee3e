//! Remembers which Claude Code session belongs to a conversation, from one run to the next.

use std::io;

use attache_protocol::ConversationId;

use super::arguments::ClaudeSessionMode;
use crate::host::{HostMemory, HostSetup, memory::EarlierSession};

/// The record of one conversation.
#[derive(Debug)]
pub(super) struct ClaudeSessionRecord<'a> {
    setup: &'a HostSetup,
    conversation: ConversationId,
    session: Option<EarlierSession>,
}

// === impl ClaudeSessionRecord ===

impl<'a> ClaudeSessionRecord<'a> {
    pub(super) fn new(setup: &'a HostSetup, conversation: ConversationId, earlier: Option<EarlierSession>) -> Self {
        // It becomes a command line argument, so only accept something that looks like a session id.
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let session = earlier.filter(|session| plain(&session.id) && !session.id.starts_with('-'));
        Self { setup, conversation, session }
    }

    /// Whether a person chose the session to resume.
    pub(super) fn is_chosen(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_chosen)
    }

    pub(super) fn record(&self) -> ClaudeSessionMode<'_> {
        match (&self.setup.memory, &self.session) {
            (HostMemory::Stateless, _) => ClaudeSessionMode::Nothing,
            (HostMemory::PerConversation(_) | HostMemory::OfOwner(_), None) => ClaudeSessionMode::New,
            (HostMemory::PerConversation(_) | HostMemory::OfOwner(_), Some(session)) => {
                ClaudeSessionMode::Resumed(&session.id)
            }
        }
    }

    /// The session no longer exists. The next run starts a new one.
    pub(super) fn forget(&mut self) {
        self.session = None;
    }

    pub(super) fn save(&self, session: &str) -> io::Result<()> {
        let is_recorded = |earlier: &EarlierSession| earlier.id == session && !earlier.is_chosen;
        if session.is_empty() || self.session.as_ref().is_some_and(is_recorded) {
            return Ok(());
        }
        self.setup.memory.try_note(self.setup, self.conversation, session)
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    #[test]
    fn a_conversation_finds_its_session_again() {
        let home = tempfile::tempdir().unwrap();
        let (one, other) = (Env::system().conversation_id(), Env::system().conversation_id());
        let stateless = HostSetup::new("claude_cli", "Claude Code", "claude");
        let setup =
            HostSetup { memory: HostMemory::PerConversation(home.path().join("sessions")), ..stateless.clone() };
        fn find(setup: &HostSetup, conversation: ConversationId) -> ClaudeSessionRecord<'_> {
            let recorded = setup.memory.recall(setup, conversation);
            let earlier = recorded.map(|id| EarlierSession { id, is_chosen: false });
            ClaudeSessionRecord::new(setup, conversation, earlier)
        }
        assert_eq!(find(&stateless, one).record(), ClaudeSessionMode::Nothing);
        let note = find(&setup, one);
        assert_eq!(note.record(), ClaudeSessionMode::New);
        note.save("6f2c4c76-eb1e").unwrap();
        assert_eq!(find(&setup, one).record(), ClaudeSessionMode::Resumed("6f2c4c76-eb1e"));
        assert_eq!(find(&setup, other).record(), ClaudeSessionMode::New);
        note.save("--dangerous").unwrap();
        assert_eq!(find(&setup, one).record(), ClaudeSessionMode::New);
        find(&stateless, one).save("6f2c").unwrap();
        assert_eq!(find(&stateless, one).record(), ClaudeSessionMode::Nothing);
    }
}
