//! All event kinds: wire name, where they are stored, whether they end a run, and whether they are pushed.

use std::fmt;

/// Where events of a kind are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventScope {
    /// In the tenant's log, and in the stream of the run or channel.
    Log,
    /// In the run's own stream only.
    Run,
    /// Nowhere: a stream generates it for a reader that missed something.
    Stream,
}

macro_rules! event_kinds {
    ($($scope:ident { $($variant:ident = $text:literal),+ $(,)? })+) => {
        /// An event kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $($($variant,)+)+
        }

        impl EventKind {
            pub const ALL: &'static [Self] = &[$($(Self::$variant,)+)+];

            /// Its name on the wire and in the log.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$variant => $text,)+)+
                }
            }

            /// `None` for kinds of a newer hub.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($($text => Some(Self::$variant),)+)+
                    _ => None,
                }
            }

            pub const fn scope(self) -> EventScope {
                match self {
                    $($(Self::$variant => EventScope::$scope,)+)+
                }
            }
        }
    };
}

event_kinds! {
    Log {
        TaskCreated = "task.created",
        TaskClaimed = "task.claimed",
        TaskRequeued = "task.requeued",
        TaskDeferred = "task.deferred",
        TaskWaiting = "task.waiting",
        TaskCompleted = "task.completed",
        TaskFailed = "task.failed",
        TaskCancelled = "task.cancelled",
        TaskRefused = "task.refused",
        TaskUsage = "task.usage",
        TaskDamaged = "task.damaged",
        TaskInputRequired = "task.input_required",
        TaskAuthorizationRequired = "task.authorization_required",
        TaskInputWithdrawn = "task.input_withdrawn",
        TaskInputReceived = "task.input_received",
        PermissionRequested = "permission.requested",
        PermissionDecided = "permission.decided",
        PermissionLate = "permission.late",
        PermissionGrantRevoked = "permission.grant_revoked",
        ActionRequired = "action.required",
        ArtifactChanged = "artifact.changed",
        AgentCreated = "agent.created",
        AgentUpdated = "agent.updated",
        AgentArchived = "agent.archived",
        PairingCodeCreated = "pairing.code_created",
        PairingConfirmed = "pairing.confirmed",
        PairingRejected = "pairing.rejected",
        RuntimeAttached = "runtime.attached",
        RuntimeOnline = "runtime.online",
        RuntimeOffline = "runtime.offline",
        RuntimeSuperseded = "runtime.superseded",
        RuntimeRevoked = "runtime.revoked",
        RuntimeTokenRotated = "runtime.token_rotated",
        RuntimeTokenReused = "runtime.token_reused",
        ChannelConnected = "channel.connected",
        ChannelDisconnected = "channel.disconnected",
        ChannelResumed = "channel.resumed",
        ChannelMessage = "channel.message",
        ChannelPermissionForwarded = "channel.permission_forwarded",
        ChannelPermissionReturned = "channel.permission_returned",
        ChannelPeerTaskLinked = "channel.peer_task.linked",
        ChannelPeerTaskUpdated = "channel.peer_task.updated",
        ConversationCreated = "conversation.created",
        MessageAdded = "message.added",
        PushConfigured = "push.configured",
        PushRemoved = "push.removed",
        DeliveryDelivered = "delivery.delivered",
        DeliveryFailed = "delivery.failed",
        DeliveryResent = "delivery.resent",
        NotificationTargetAdded = "notification_target.added",
        NotificationTargetChanged = "notification_target.changed",
        NotificationTargetRemoved = "notification_target.removed",
        DelegationChanged = "delegation.changed",
        DelegationCancelRequested = "delegation.cancel_requested",
        WorktreeDecided = "worktree.decided",
        WorktreeSettled = "worktree.settled",
        TunnelOpened = "tunnel.opened",
        TunnelClosed = "tunnel.closed",
        PeerSet = "peer.set",
        PeerPinned = "peer.pinned",
        PeerCardChanged = "peer.card_changed",
        PeerTrusted = "peer.trusted",
        KeyCreated = "key.created",
        KeyRevoked = "key.revoked",
        PasskeyAdded = "passkey.added",
        PasskeyRemoved = "passkey.removed",
        SessionOpened = "session.opened",
        SessionEnded = "session.ended",
        LoginLinkCreated = "login_link.created",
        TokenCreated = "token.created",
        UserCreated = "user.created",
        UserUpdated = "user.updated",
        UserRemoved = "user.removed",
        RulesChanged = "rules.changed",
        QuotaChanged = "quota.changed",
        QuotaRemoved = "quota.removed",
        LogRemoved = "log.removed",
        ConversationDeleted = "conversation.deleted",
        DataRemoved = "data.removed",
        TaskDeleted = "task.deleted",
        TenantCreated = "tenant.created",
    }
    Run {
        TaskProgress = "task.progress",
        TaskChunk = "task.chunk",
        TaskThought = "task.thought",
        TaskLog = "task.log",
        TaskToolCall = "task.tool_call",
    }
    Stream {
        SnapshotRepaired = "snapshot.repaired",
        StreamGap = "stream.gap",
    }
}

// === impl EventKind ===

impl EventKind {
    /// Whether it is the last event of its run. Only these contain the run's result.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::TaskCompleted | Self::TaskFailed | Self::TaskCancelled)
    }

    /// Whether its data quotes what was asked of an agent or by it.
    pub const fn quotes_work(self) -> bool {
        matches!(
            self,
            Self::PermissionRequested
                | Self::PermissionDecided
                | Self::TaskInputRequired
                | Self::TaskAuthorizationRequired
                | Self::TaskInputReceived
                | Self::TaskCancelled
                | Self::ArtifactChanged
        )
    }

    /// Whether it triggers push notifications.
    pub const fn is_pushed(self) -> bool {
        self.is_terminal()
            || matches!(self, Self::TaskClaimed | Self::TaskRequeued | Self::TaskDeferred | Self::TaskWaiting)
    }

    /// The kinds in the tenant's log.
    pub fn logged() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|kind| kind.scope() == EventScope::Log)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PartialEq<EventKind> for String {
    fn eq(&self, kind: &EventKind) -> bool {
        self == kind.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::EventKind;

    #[test]
    fn every_kind_has_a_unique_name_that_parses_back() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::parse(kind.as_str()), Some(*kind));
        }
        assert_eq!(EventKind::parse("task.exploded"), None);
    }
}
