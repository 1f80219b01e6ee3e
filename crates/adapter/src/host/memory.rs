//! Which session of a host belongs to a conversation, where a host may remember: a file per conversation.

use std::{
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::PathBuf,
};

use attache_protocol::ConversationId;

use super::{Memory, Setup};

/// A host's own name for a session is never longer.
const LONGEST: u64 = 4096;

// === impl Memory ===

impl Memory {
    /// The host's session of a conversation, if it has one.
    pub(crate) fn recall(&self, setup: &Setup, conversation: ConversationId) -> Option<String> {
        let file = self.file(setup, conversation)?;
        if std::fs::metadata(&file).ok()?.len() > LONGEST {
            return None;
        }
        let session = std::fs::read_to_string(file).ok()?;
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
        self.file(setup, conversation).map_or(Ok(()), |file| write(&file, session))
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
            Self::PerConversation(folder) => Some(folder.join(format!("{conversation}.{}", setup.kind))),
        }
    }
}

fn write(file: &std::path::Path, session: &str) -> io::Result<()> {
    use std::io::Write as _;
    if let Some(folder) = file.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(file)?;
    file.write_all(session.as_bytes())
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
