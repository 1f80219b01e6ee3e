//! Which of the program's own records belongs to a conversation, from one run to the next.

use std::{io, os::unix::fs::DirBuilderExt as _, path::PathBuf};

use attache_protocol::ConversationId;

use super::arguments::Record;
use crate::host::Memory;

/// The note of one conversation.
#[derive(Debug)]
pub(super) struct Note {
    /// None when nothing is to be remembered.
    file: Option<PathBuf>,
    session: Option<String>,
}

// === impl Note ===

impl Note {
    pub(super) fn find(memory: &Memory, conversation: ConversationId) -> Self {
        let file = match memory {
            Memory::Stateless => None,
            Memory::PerConversation(folder) => Some(folder.join(conversation.to_string())),
        };
        let session = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        // It becomes an argument: only what looks like one of the program's names is one.
        let plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let session = session.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty() && plain(text));
        Self { file, session: session.filter(|text| !text.starts_with('-')) }
    }

    pub(super) fn record(&self) -> Record<'_> {
        match (&self.file, &self.session) {
            (None, _) => Record::Nothing,
            (Some(_), None) => Record::New,
            (Some(_), Some(session)) => Record::Resumed(session),
        }
    }

    /// The record is not there any more: the next one is new.
    pub(super) fn forget(&mut self) {
        self.session = None;
    }

    pub(super) fn keep(&mut self, session: &str) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| !session.is_empty() && self.session.as_deref() != Some(session))
        else {
            return Ok(());
        };
        if let Some(folder) = file.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        std::fs::write(file, session)
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
        let memory = Memory::PerConversation(home.path().join("sessions"));
        assert_eq!(Note::find(&Memory::Stateless, one).record(), Record::Nothing);
        let mut note = Note::find(&memory, one);
        assert_eq!(note.record(), Record::New);
        note.keep("6f2c4c76-eb1e").unwrap();
        assert_eq!(Note::find(&memory, one).record(), Record::Resumed("6f2c4c76-eb1e"));
        assert_eq!(Note::find(&memory, other).record(), Record::New);
        note.keep("--dangerous").unwrap();
        assert_eq!(Note::find(&memory, one).record(), Record::New);
        Note::find(&Memory::Stateless, one).keep("6f2c").unwrap();
    }
}
