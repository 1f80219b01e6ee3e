//! Remembers which host session belongs to a conversation, one file per conversation, if the host may remember.

use std::{io, path::PathBuf};

use attache_os::private_file;
use attache_protocol::ConversationId;

use super::{HostMemory, HostSetup};

/// A host's session id is never longer than this.
const MAX_RECORD: u64 = 4096;

// === impl HostMemory ===

impl HostMemory {
    /// The host's session for a conversation, if there is one.
    pub(crate) fn recall(&self, setup: &HostSetup, conversation: ConversationId) -> Option<String> {
        let session = private_file::read(&self.file(setup, conversation)?, MAX_RECORD)?;
        (!session.trim().is_empty()).then(|| session.trim().to_owned())
    }

    /// Records the session for the next run. A failure loses the session, but doesn't fail the run.
    pub(crate) fn remember(&self, setup: &HostSetup, conversation: ConversationId, session: &str) {
        if let Err(error) = self.try_note(setup, conversation, session) {
            tracing::warn!(%conversation, %error, "couldn't record the session of a conversation");
        }
    }

    /// Like [`Self::remember`], for drivers that report the failure to people.
    pub(crate) fn try_note(&self, setup: &HostSetup, conversation: ConversationId, session: &str) -> io::Result<()> {
        match self {
            Self::Stateless => Ok(()),
            Self::PerConversation(folder) => {
                private_file::folder(folder)?;
                private_file::write(&folder.join(name(setup, conversation)), session.as_bytes())
            }
        }
    }

    /// Forgets a session the host no longer knows.
    pub(crate) fn forget(&self, setup: &HostSetup, conversation: ConversationId) {
        if let Some(file) = self.file(setup, conversation) {
            let _ = std::fs::remove_file(file);
        }
    }

    fn file(&self, setup: &HostSetup, conversation: ConversationId) -> Option<PathBuf> {
        match self {
            Self::Stateless => None,
            Self::PerConversation(folder) => Some(folder.join(name(setup, conversation))),
        }
    }
}

fn name(setup: &HostSetup, conversation: ConversationId) -> String {
    format!("{conversation}.{}", setup.kind)
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    #[test]
    fn each_conversation_and_host_type_has_its_own_session() {
        let folder = tempfile::tempdir().unwrap();
        let memory = HostMemory::PerConversation(folder.path().join("sessions"));
        let (claude, codex) =
            (HostSetup::new("claude_cli", "Claude", "claude"), HostSetup::new("codex", "Codex", "codex"));
        let conversation = Env::system().conversation_id();
        assert_eq!(memory.recall(&claude, conversation), None);
        memory.remember(&claude, conversation, "s-1");
        memory.remember(&claude, conversation, "s-2");
        memory.remember(&codex, conversation, "t");
        assert_eq!(memory.recall(&claude, conversation).as_deref(), Some("s-2"));
        assert_eq!(memory.recall(&codex, conversation).as_deref(), Some("t"));
        assert_eq!(memory.recall(&codex, Env::system().conversation_id()), None);
        memory.forget(&codex, conversation);
        assert_eq!(memory.recall(&codex, conversation), None);
        HostMemory::Stateless.remember(&claude, conversation, "s-3");
        assert_eq!(HostMemory::Stateless.recall(&claude, conversation), None);
    }
}
