//! The conversation with a remote in either dialect: AWCP over A2A, or the reference implementation's own messages.

use attache_protocol::wire::awcp::{AwcpErrorCode, AwcpStart};

use super::peer::{RemoteConversation, RemoteEvent};
use crate::compat::conversation::CompatConversation;

#[derive(Debug)]
pub(super) enum LeaseConversation {
    A2a(Box<RemoteConversation>),
    Compat(Box<CompatConversation>),
}

// === impl LeaseConversation ===

impl LeaseConversation {
    /// Looks at the remote before anything is sent to it, where the dialect has a way to.
    pub(super) async fn connect(&mut self) -> Result<(), RemoteEvent> {
        match self {
            Self::A2a(conversation) => conversation.connect().await,
            Self::Compat(_) => Ok(()),
        }
    }

    pub(super) async fn back_off(&mut self) {
        match self {
            Self::A2a(conversation) => conversation.back_off().await,
            Self::Compat(conversation) => conversation.back_off().await,
        }
    }

    pub(super) async fn next(&mut self) -> RemoteEvent {
        match self {
            Self::A2a(conversation) => conversation.next().await,
            Self::Compat(conversation) => conversation.next().await,
        }
    }

    pub(super) fn start(&mut self, start: &AwcpStart) {
        match self {
            Self::A2a(conversation) => conversation.start(start),
            Self::Compat(conversation) => conversation.start(start),
        }
    }

    pub(super) const fn was_never_sent(&self) -> bool {
        match self {
            Self::A2a(conversation) => conversation.was_never_sent(),
            Self::Compat(conversation) => conversation.was_never_sent(),
        }
    }

    pub(super) fn resumed(self, task: Option<String>) -> Self {
        match self {
            Self::A2a(conversation) => Self::A2a(Box::new(conversation.resumed(task))),
            Self::Compat(conversation) => Self::Compat(Box::new(conversation.resumed())),
        }
    }

    pub(super) async fn notify_end(&mut self, code: AwcpErrorCode, reason: &str) -> Result<(), String> {
        match self {
            Self::A2a(conversation) => conversation.notify_end(code, reason).await,
            Self::Compat(conversation) => conversation.notify_end().await,
        }
    }
}
