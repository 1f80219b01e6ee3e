//! Which of the program's own records belongs to a conversation, from one run to the next.

use std::io;

use attache_protocol::ConversationId;

use super::arguments::Record;
use crate::host::{Memory, Setup};

/// The note of one conversation.
#[derive(Debug)]
pub(super) struct Note<'a> {
    setup: &'a Setup,
    conversation: ConversationId,
    session: Option<String>,
}

// === impl Note ===

impl<'a> Note<'a> {
    pub(super) fn find(setup: &'a Setup, conversation: ConversationId) -> Self {
        // It becomes an argument: only what looks like one of the program's names is one.
        let plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let session = setup.memory.recall(setup, conversation);
        Self { setup, conversation, session: session.filter(|text| plain(text) && !text.starts_with('-')) }
    }

    pub(super) fn record(&self) -> Record<'_> {
        match (&self.setup.memory, &self.session) {
            (Memory::Stateless, _) => Record::Nothing,
            (Memory::PerConversation(_), None) => Record::New,
            (Memory::PerConversation(_), Some(session)) => Record::Resumed(session),
        }
    }

    /// The record is not there any more: the next one is new.
    pub(super) fn forget(&mut self) {
        self.session = None;
    }

    pub(super) fn keep(&self, session: &str) -> io::Result<()> {
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
    fn a_conversation_finds_its_record_again() {
        let home = tempfile::tempdir().unwrap();
        let (one, other) = (Env::system().conversation_id(), Env::system().conversation_id());
        let stateless = Setup::new("claude_cli", "Claude Code", "claude");
        let setup = Setup { memory: Memory::PerConversation(home.path().join("sessions")), ..stateless.clone() };
        assert_eq!(Note::find(&stateless, one).record(), Record::Nothing);
        let note = Note::find(&setup, one);
        assert_eq!(note.record(), Record::New);
        note.keep("6f2c4c76-eb1e").unwrap();
        assert_eq!(Note::find(&setup, one).record(), Record::Resumed("6f2c4c76-eb1e"));
        assert_eq!(Note::find(&setup, other).record(), Record::New);
        note.keep("--dangerous").unwrap();
        assert_eq!(Note::find(&setup, one).record(), Record::New);
        Note::find(&stateless, one).keep("6f2c").unwrap();
        assert_eq!(Note::find(&stateless, one).record(), Record::Nothing);
    }
}
