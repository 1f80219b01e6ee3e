//! Which host session a run continues: the one recorded for its conversation, or one that was begun in a terminal.
//!
//! One file per conversation. Sessions of the agent's owner have records of their own, so that nobody else's run ever
//! continues one of them, whatever is said in the conversation later.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use attache_os::private_file;
use attache_protocol::{ConversationId, wire::adapter::TaskReply};

use super::{HostMemory, HostSetup, session_file::StoredHostSession};
use crate::DriverRun;

/// A host's session id is never longer than this.
const MAX_RECORD: u64 = 4096;
/// How many records are looked at to find the conversations of sessions.
const MAX_RECORDS: usize = 5000;

/// The ending of the owner's records.
const OWN: &str = ".own";

/// The session that a run continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EarlierSession {
    pub(crate) id: String,
    /// It was begun in a terminal, and a person chose it. Without it, the run fails instead of starting fresh.
    pub(crate) is_chosen: bool,
}

/// The session that this run continues, if any. `Err` if it has to continue one and can't. `kept` looks up one that
/// the host keeps for the run's folder.
pub(crate) fn earlier(
    setup: &HostSetup,
    job: &DriverRun,
    kept: impl FnOnce(&str) -> Vec<StoredHostSession>,
) -> Result<Option<EarlierSession>, TaskReply> {
    let recorded = setup.memory.recall(setup, job.task.conversation_id);
    let Some(chosen) = job.task.host_session.as_deref() else {
        return Ok(recorded.map(|id| EarlierSession { id, is_chosen: false }));
    };
    let refused = |why: &str| {
        let message = format!("{} can't continue the session {chosen} here: {why}", setup.label);
        Err(TaskReply::failed("refused", message))
    };
    if !matches!(setup.memory, HostMemory::OfOwner(_)) {
        return refused(
            "only a run of the agent's owner that isn't confined to its folder can, on a device that keeps sessions; start a \
             new conversation, or leave the limits out",
        );
    }
    // Once it was continued, the host may have moved on to another session.
    if let Some(id) = recorded.filter(|id| id != chosen) {
        return Ok(Some(EarlierSession { id, is_chosen: false }));
    }
    match kept(chosen).iter().any(|session| session.id == chosen) {
        true => Ok(Some(EarlierSession { id: chosen.to_owned(), is_chosen: true })),
        false => refused("the host no longer keeps it for this folder; start a new conversation"),
    }
}

/// Why a run ends whose chosen session can't be continued.
pub(crate) fn lost(setup: &HostSetup, session: &str, why: &str) -> String {
    let busy = if why.contains("active writer") {
        " It is open elsewhere: quit it there. Codex's background service can hold it a while longer; \
         `codex app-server daemon stop` ends that."
    } else {
        ""
    };
    format!("{} can't continue the session {session}: {}.{busy}", setup.label, why.trim_end_matches('.'))
}

// === impl HostMemory ===

impl HostMemory {
    /// What a run may use of it: one of the agent's owner has records of its own.
    pub(crate) fn of_run(&self, is_for_owner: bool) -> Self {
        match self {
            Self::PerConversation(folder) | Self::OfOwner(folder) if is_for_owner => Self::OfOwner(folder.clone()),
            Self::PerConversation(folder) => Self::PerConversation(folder.clone()),
            Self::OfOwner(_) | Self::Stateless => Self::Stateless,
        }
    }

    /// The host's session for a conversation, if there is one.
    pub(crate) fn recall(&self, setup: &HostSetup, conversation: ConversationId) -> Option<String> {
        let file = self.file(setup, conversation)?;
        let session = private_file::read(&file, MAX_RECORD)?;
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
        match self.folder().zip(self.file(setup, conversation)) {
            None => Ok(()),
            Some((folder, file)) => {
                private_file::folder(folder)?;
                private_file::write(&file, session.as_bytes())
            }
        }
    }

    /// Forgets a session the host no longer knows.
    pub(crate) fn forget(&self, setup: &HostSetup, conversation: ConversationId) {
        if let Some(file) = self.file(setup, conversation) {
            let _ = fs::remove_file(file);
        }
    }

    /// The conversations by the sessions that their runs continue.
    pub(crate) fn conversations(&self, setup: &HostSetup) -> HashMap<String, ConversationId> {
        let entries = self.folder().and_then(|folder| fs::read_dir(folder).ok());
        let record = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let (conversation, kind) = name.strip_suffix(OWN).unwrap_or(&name).split_once('.')?;
            let conversation = conversation.parse().ok().filter(|_| kind == setup.kind)?;
            Some((private_file::read(&entry.path(), MAX_RECORD)?.trim().to_owned(), conversation))
        };
        entries.into_iter().flatten().take(MAX_RECORDS).flatten().filter_map(record).collect()
    }

    fn folder(&self) -> Option<&Path> {
        match self {
            Self::Stateless => None,
            Self::PerConversation(folder) | Self::OfOwner(folder) => Some(folder),
        }
    }

    fn file(&self, setup: &HostSetup, conversation: ConversationId) -> Option<PathBuf> {
        let name = name(setup, conversation);
        match self {
            Self::Stateless => None,
            Self::PerConversation(folder) => Some(folder.join(name)),
            Self::OfOwner(folder) => Some(folder.join(name + OWN)),
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
        assert_eq!(memory.conversations(&claude), HashMap::from([("s-2".to_owned(), conversation)]));
        memory.forget(&codex, conversation);
        assert_eq!(memory.recall(&codex, conversation), None);
        HostMemory::Stateless.remember(&claude, conversation, "s-3");
        assert_eq!(HostMemory::Stateless.recall(&claude, conversation), None);
    }

    #[test]
    fn nobody_else_continues_a_session_of_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let at = || folder.path().join("sessions");
        let (own, all) = (HostMemory::OfOwner(at()), HostMemory::PerConversation(at()));
        let claude = HostSetup::new("claude_cli", "Claude", "claude");
        let conversation = Env::system().conversation_id();
        assert_eq!((own.of_run(false), own.of_run(true)), (HostMemory::Stateless, own.clone()));
        assert_eq!((all.of_run(false), all.of_run(true)), (all.clone(), own.clone()));
        all.of_run(true).remember(&claude, conversation, "hers");
        assert_eq!(all.of_run(false).recall(&claude, conversation), None);
        assert_eq!(own.of_run(false).recall(&claude, conversation), None);
        all.of_run(false).remember(&claude, conversation, "theirs");
        assert_eq!(own.of_run(true).recall(&claude, conversation).as_deref(), Some("hers"));
        assert_eq!(all.of_run(false).recall(&claude, conversation).as_deref(), Some("theirs"));

        // What others began is never the owner's, whatever is the only record.
        let earlier = Env::system().conversation_id();
        all.remember(&claude, earlier, "before");
        assert_eq!(own.recall(&claude, earlier), None);
        assert_eq!(all.recall(&claude, earlier).as_deref(), Some("before"));
    }
}
