//! Remembers which Claude Code session belongs to a conversation, from one run to the next.

use std::io;

use attache_protocol::ConversationId;

use super::arguments::ClaudeSessionMode;
use crate::host::{HostMemory, HostSetup};

/// The record of one conversation.
#[derive(Debug)]
pub(super) struct ClaudeSessionRecord<'a> {
    setup: &'a HostSetup,
    conversation: ConversationId,
    session: Option<String>,
}

// === impl ClaudeSessionRecord ===

impl<'a> ClaudeSessionRecord<'a> {
    pub(super) fn find(setup: &'a HostSetup, conversation: ConversationId) -> Self {
        // It becomes a command line argument, so only accept something that looks like a session id.
        let plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let session = setup.memory.recall(setup, conversation);
        Self { setup, conversation, session: session.filter(|text| plain(text) && !text.starts_with('-')) }
    }

    pub(super) fn record(&self) -> ClaudeSessionMode<'_> {
        match (&self.setup.memory, &self.session) {
            (HostMemory::Stateless, _) => ClaudeSessionMode::Nothing,
            (HostMemory::PerConversation(_), None) => ClaudeSessionMode::New,
            (HostMemory::PerConversation(_), Some(session)) => ClaudeSessionMode::Resumed(session),
        }
    }

    /// The session no longer exists. The next run starts a new one.
    pub(super) fn forget(&mut self) {
        self.session = None;
    }

    pub(super) fn save(&self, session: &str) -> io::Result<()> {
        if session.is_empty() || self.session.as_deref() == Some(session) {
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
        assert_eq!(ClaudeSessionRecord::find(&stateless, one).record(), ClaudeSessionMode::Nothing);
        let note = ClaudeSessionRecord::find(&setup, one);
        assert_eq!(note.record(), ClaudeSessionMode::New);
        note.save("6f2c4c76-eb1e").unwrap();
        assert_eq!(ClaudeSessionRecord::find(&setup, one).record(), ClaudeSessionMode::Resumed("6f2c4c76-eb1e"));
        assert_eq!(ClaudeSessionRecord::find(&setup, other).record(), ClaudeSessionMode::New);
        note.save("--dangerous").unwrap();
        assert_eq!(ClaudeSessionRecord::find(&setup, one).record(), ClaudeSessionMode::New);
        ClaudeSessionRecord::find(&stateless, one).save("6f2c").unwrap();
        assert_eq!(ClaudeSessionRecord::find(&stateless, one).record(), ClaudeSessionMode::Nothing);
    }
}
