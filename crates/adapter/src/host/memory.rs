//! Which session of a host belongs to a conversation, where a host may remember: a file per conversation.

use std::{io, path::PathBuf};

use attache_protocol::ConversationId;

use super::{Memory, Setup};
use crate::private;

/// A host's own name for a session is never longer.
const LONGEST: u64 = 4096;

// === impl Memory ===

impl Memory {
    /// The host's session of a conversation, if it has one.
    pub(crate) fn recall(&self, setup: &Setup, conversation: ConversationId) -> Option<String> {
        let session = private::read(&self.file(setup, conversation)?, LONGEST)?;
        (!session.trim().is_empty()).then(|| session.trim().to_owned())
    }

    /// Notes the session for the next run. One that cannot be noted costs the memory and not the run.
    pub(crate) fn note(&self, setup: &Setup, conversation: ConversationId, session: &str) {
        if let Err(error) = self.try_note(setup, conversation, session) {
            tracing::warn!(%conversation, %error, "the session of a conversation could not be noted");
        }
    }

    /// The same, for drivers that tell people when it fails.
    pub(crate) fn try_note(&self, setup: &Setup, conversation: ConversationId, session: &str) -> io::Result<()> {
        match self {
            Self::Stateless => Ok(()),
            Self::PerConversation(folder) => private::write(folder, &name(setup, conversation), session.as_bytes()),
        }
    }

    /// Forgets a session that the host does not know any more.
    pub(crate) fn forget(&self, setup: &Setup, conversation: ConversationId) {
        if let Some(file) = self.file(setup, conversation) {
            let _ = std::fs::remove_file(file);
        }
    }

    fn file(&self, setup: &Setup, conversation: ConversationId) -> Option<PathBuf> {
        match self {
            Self::Stateless => None,
            Self::PerConversation(folder) => Some(folder.join(name(setup, conversation))),
        }
    }
}

fn name(setup: &Setup, conversation: ConversationId) -> String {
    format!("{conversation}.{}", setup.kind)
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    #[test]
    fn each_conversation_and_kind_of_host_has_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::PerConversation(folder.path().join("sessions"));
        let (claude, codex) = (Setup::new("claude_cli", "Claude", "claude"), Setup::new("codex", "Codex", "codex"));
        let conversation = Env::system().conversation_id();
        assert_eq!(memory.recall(&claude, conversation), None);
        memory.note(&claude, conversation, "s-1");
        memory.note(&claude, conversation, "s-2");
        memory.note(&codex, conversation, "t");
        assert_eq!(memory.recall(&claude, conversation).as_deref(), Some("s-2"));
        assert_eq!(memory.recall(&codex, conversation).as_deref(), Some("t"));
        assert_eq!(memory.recall(&codex, Env::system().conversation_id()), None);
        memory.forget(&codex, conversation);
        assert_eq!(memory.recall(&codex, conversation), None);
        Memory::Stateless.note(&claude, conversation, "s-3");
        assert_eq!(Memory::Stateless.recall(&claude, conversation), None);
    }
}
