//! The access table: which role may do what.
//!
//! A person's own things are those of the same user. A key without a user owns what has no user. A key with scopes may
//! do what both its role and its scopes allow.

use attache_protocol::wire::key::{KeyScope, Role};
use attache_store::record::RuntimeKind;

use crate::{
    Error, Result,
    identity::{Principal, PrincipalKind},
};

macro_rules! actions {
    ($($name:ident $resource:literal $action:literal;)*) => {
        /// An action on a resource.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Action {
            $($name,)*
        }

        impl Action {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub const fn resource(self) -> &'static str {
                match self { $(Self::$name => $resource,)* }
            }

            pub const fn verb(self) -> &'static str {
                match self { $(Self::$name => $action,)* }
            }
        }
    };
}

actions! {
    SeeAgents           "agents"        "see";
    CreateAgent         "agents"        "create";
    EditAgent           "agents"        "edit";
    ArchiveAgent        "agents"        "archive";
    GiveAgent           "agents"        "give";
    CreatePairingCode   "pairing"       "create_code";
    DecidePairing       "pairing"       "decide";
    SeeRuntimes         "runtimes"      "see";
    RevokeRuntime       "runtimes"      "revoke";
    SeeRuns             "runs"          "see";
    CreateRun           "runs"          "create";
    CancelRun           "runs"          "cancel";
    DeleteRun           "runs"          "delete";
    GiveInput           "runs"          "give_input";
    Work                "runs"          "work";
    SeePermissions      "permissions"   "see";
    DecidePermission    "permissions"   "decide";
    SeeGrants           "grants"        "see";
    RevokeGrant         "grants"        "revoke";
    SeeChannels         "channels"      "see";
    RegisterAgent       "agents"        "register";
    SeeConversations    "conversations" "see";
    ListConversations   "conversations" "list";
    CreateConversation  "conversations" "create";
    AddMessage          "conversations" "add_message";
    DeleteConversation  "conversations" "delete";
    SeeArtifacts        "artifacts"     "see";
    UploadArtifact      "artifacts"     "upload";
    OpenTunnel          "tunnels"       "open";
    SeeDelegations      "delegations"   "see";
    PublishDelegation   "delegations"   "publish";
    CancelDelegation    "delegations"   "cancel";
    SeeDeliveries       "deliveries"    "see";
    ResendDelivery      "deliveries"    "resend";
    SeeDeliverySecret   "deliveries"    "see_secret";
    SeeKeys             "keys"          "see";
    CreateKey           "keys"          "create";
    RevokeKey           "keys"          "revoke";
    SeeSessions         "sessions"      "see";
    EndSession          "sessions"      "end";
    CreateToken         "tokens"        "create";
    SeeUsers            "users"         "see";
    CreateUser          "users"         "create";
    EditUser            "users"         "edit";
    RemoveUser          "users"         "remove";
    SeeAudit            "audit"         "see";
    SeeRules            "rules"         "see";
    SetRules            "rules"         "set";
    SeeQuotas           "quotas"        "see";
    SetQuota            "quotas"        "set";
    SeeUsage            "usage"         "see";
    CreateLoginLink     "login_links"   "create";
    SeeMetrics          "metrics"       "see";
}

/// A cell of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessVerdict {
    Yes,
    /// Only what belongs to the caller: a person's agents, keys and own user, a runtime's claims and their
    /// conversations, the runs an agent created.
    Own,
    No,
}

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleColumn {
    Role(Role),
    /// A registered agent with its own key.
    AgentKey,
    Runtime,
    /// An agent with the token of the run it works on: it may pass that work on, and nothing else.
    Run,
    /// A caller without a credential, at an agent that allows them.
    Anonymous,
}

/// Looks up a cell.
pub const fn verdict(column: RoleColumn, action: Action) -> AccessVerdict {
    use AccessVerdict::{No, Own, Yes};
    use Action as A;
    match action {
        A::SeeAgents => match column {
            RoleColumn::Role(_) | RoleColumn::AgentKey | RoleColumn::Run => Yes,
            RoleColumn::Runtime | RoleColumn::Anonymous => No,
        },
        A::SeeRuntimes | A::ListConversations | A::SeePermissions | A::SeeGrants => match column {
            RoleColumn::Role(_) => Yes,
            RoleColumn::AgentKey | RoleColumn::Runtime | RoleColumn::Run | RoleColumn::Anonymous => No,
        },
        A::SeeRuns => match column {
            RoleColumn::Role(_) => Yes,
            RoleColumn::AgentKey | RoleColumn::Runtime | RoleColumn::Run | RoleColumn::Anonymous => Own,
        },
        A::SeeConversations | A::SeeArtifacts => match column {
            RoleColumn::Role(_) => Yes,
            RoleColumn::AgentKey | RoleColumn::Runtime => Own,
            RoleColumn::Run | RoleColumn::Anonymous => No,
        },
        A::SeeChannels | A::SeeDeliveries | A::SeeDelegations => match column {
            RoleColumn::Role(_) => Yes,
            RoleColumn::AgentKey => Own,
            RoleColumn::Runtime | RoleColumn::Run | RoleColumn::Anonymous => No,
        },
        A::CreateRun => match column {
            RoleColumn::Role(Role::Owner | Role::Admin | Role::Operator) | RoleColumn::AgentKey => Yes,
            RoleColumn::Run | RoleColumn::Anonymous => Own,
            RoleColumn::Role(Role::Viewer) | RoleColumn::Runtime => No,
        },
        A::OpenTunnel | A::PublishDelegation | A::SeeDeliverySecret => match column {
            RoleColumn::Role(Role::Owner | Role::Admin | Role::Operator) | RoleColumn::AgentKey => Own,
            RoleColumn::Role(Role::Viewer) | RoleColumn::Runtime | RoleColumn::Run | RoleColumn::Anonymous => No,
        },
        A::CancelRun | A::GiveInput => match column {
            RoleColumn::Role(Role::Owner | Role::Admin | Role::Operator) => Yes,
            RoleColumn::AgentKey | RoleColumn::Run | RoleColumn::Anonymous => Own,
            RoleColumn::Role(Role::Viewer) | RoleColumn::Runtime => No,
        },
        A::ResendDelivery | A::CancelDelegation => match column {
            RoleColumn::Role(Role::Owner | Role::Admin | Role::Operator) => Yes,
            RoleColumn::AgentKey => Own,
            RoleColumn::Role(Role::Viewer) | RoleColumn::Runtime | RoleColumn::Run | RoleColumn::Anonymous => No,
        },
        A::EditAgent
        | A::ArchiveAgent
        | A::CreatePairingCode
        | A::DecidePairing
        | A::RevokeRuntime
        | A::DeleteRun
        | A::DeleteConversation => match column {
            RoleColumn::Role(Role::Owner | Role::Admin) => Yes,
            RoleColumn::Role(Role::Operator) => Own,
            RoleColumn::Role(Role::Viewer)
            | RoleColumn::AgentKey
            | RoleColumn::Runtime
            | RoleColumn::Run
            | RoleColumn::Anonymous => No,
        },
        A::CreateAgent
        | A::RegisterAgent
        | A::DecidePermission
        | A::RevokeGrant
        | A::CreateConversation
        | A::AddMessage => match column {
            RoleColumn::Role(Role::Owner | Role::Admin | Role::Operator) => Yes,
            RoleColumn::Role(Role::Viewer)
            | RoleColumn::AgentKey
            | RoleColumn::Runtime
            | RoleColumn::Run
            | RoleColumn::Anonymous => No,
        },
        A::UploadArtifact => match column {
            RoleColumn::Role(Role::Owner | Role::Admin | Role::Operator) => Yes,
            RoleColumn::Role(Role::Viewer) | RoleColumn::Run | RoleColumn::Anonymous => No,
            RoleColumn::AgentKey | RoleColumn::Runtime => Own,
        },
        A::SeeKeys | A::CreateKey => match column {
            RoleColumn::Role(Role::Owner | Role::Admin) => Yes,
            RoleColumn::Role(Role::Operator) => Own,
            RoleColumn::Role(Role::Viewer)
            | RoleColumn::AgentKey
            | RoleColumn::Runtime
            | RoleColumn::Run
            | RoleColumn::Anonymous => No,
        },
        A::CreateToken => match column {
            RoleColumn::Role(_) => Yes,
            RoleColumn::AgentKey | RoleColumn::Runtime | RoleColumn::Run | RoleColumn::Anonymous => No,
        },
        A::RevokeKey | A::SeeUsers | A::EditUser | A::SeeSessions | A::EndSession | A::CreateLoginLink => {
            match column {
                RoleColumn::Role(Role::Owner | Role::Admin) => Yes,
                RoleColumn::Role(Role::Operator | Role::Viewer) => Own,
                RoleColumn::AgentKey | RoleColumn::Runtime | RoleColumn::Run | RoleColumn::Anonymous => No,
            }
        }
        // Anyone who may see every run may see all usage. An operator sees their own.
        A::SeeUsage => match column {
            RoleColumn::Role(Role::Owner | Role::Admin | Role::Viewer) => Yes,
            RoleColumn::Role(Role::Operator) => Own,
            RoleColumn::AgentKey | RoleColumn::Runtime | RoleColumn::Run | RoleColumn::Anonymous => No,
        },
        A::SeeRules | A::SetRules | A::SeeQuotas | A::SetQuota => match column {
            RoleColumn::Role(Role::Owner | Role::Admin) => Yes,
            RoleColumn::Role(Role::Operator | Role::Viewer)
            | RoleColumn::AgentKey
            | RoleColumn::Runtime
            | RoleColumn::Run
            | RoleColumn::Anonymous => No,
        },
        A::GiveAgent | A::CreateUser | A::RemoveUser | A::SeeAudit | A::SeeMetrics => match column {
            RoleColumn::Role(Role::Owner | Role::Admin) => Yes,
            RoleColumn::Role(Role::Operator | Role::Viewer)
            | RoleColumn::AgentKey
            | RoleColumn::Runtime
            | RoleColumn::Run
            | RoleColumn::Anonymous => No,
        },
        A::Work => match column {
            RoleColumn::Role(_) | RoleColumn::Run | RoleColumn::Anonymous => No,
            RoleColumn::AgentKey | RoleColumn::Runtime => Own,
        },
    }
}

// === impl Action ===

impl Action {
    /// The scope a key with scopes needs for this.
    pub const fn scope(self) -> KeyScope {
        match self {
            Self::SeeAgents
            | Self::SeeRuntimes
            | Self::SeeRuns
            | Self::SeePermissions
            | Self::SeeGrants
            | Self::SeeChannels
            | Self::SeeConversations
            | Self::ListConversations
            | Self::SeeArtifacts
            | Self::SeeDeliveries
            | Self::SeeDelegations
            | Self::SeeMetrics
            | Self::SeeUsage
            | Self::CreateToken => KeyScope::Read,
            Self::CreateRun
            | Self::CancelRun
            | Self::GiveInput
            | Self::CreateConversation
            | Self::AddMessage
            | Self::UploadArtifact
            | Self::OpenTunnel
            | Self::PublishDelegation
            | Self::CancelDelegation
            | Self::SeeDeliverySecret => KeyScope::Call,
            Self::DecidePermission | Self::RevokeGrant => KeyScope::Decide,
            // No person's key can work. The scope only keeps it apart from the others.
            Self::Work
            | Self::CreateAgent
            | Self::EditAgent
            | Self::ArchiveAgent
            | Self::GiveAgent
            | Self::RegisterAgent
            | Self::CreatePairingCode
            | Self::DecidePairing
            | Self::RevokeRuntime
            | Self::DeleteRun
            | Self::DeleteConversation => KeyScope::Manage,
            Self::ResendDelivery
            | Self::SeeKeys
            | Self::CreateKey
            | Self::RevokeKey
            | Self::SeeSessions
            | Self::EndSession
            | Self::SeeUsers
            | Self::CreateUser
            | Self::EditUser
            | Self::RemoveUser
            | Self::SeeRules
            | Self::SetRules
            | Self::SeeQuotas
            | Self::SetQuota
            | Self::SeeAudit
            | Self::CreateLoginLink => KeyScope::Admin,
        }
    }
}

// === impl Principal ===

impl Principal {
    pub const fn column(&self) -> RoleColumn {
        match self.who {
            PrincipalKind::Key { role, .. } => RoleColumn::Role(role),
            PrincipalKind::Runtime { kind: RuntimeKind::Device | RuntimeKind::Hub, .. } => RoleColumn::Runtime,
            PrincipalKind::Runtime { kind: RuntimeKind::AgentKey, .. } | PrincipalKind::Outside { .. } => {
                RoleColumn::AgentKey
            }
            PrincipalKind::Run { .. } => RoleColumn::Run,
            PrincipalKind::Anonymous { .. } => RoleColumn::Anonymous,
        }
    }

    /// What this caller may do, so that pages don't offer what would be refused.
    pub fn verdict(&self, action: Action) -> AccessVerdict {
        if self.has_scope(action.scope()) { self.allowed(action) } else { AccessVerdict::No }
    }

    /// The cell of the table. For an agent with an owner, limited to what the owner may do, except for work it is
    /// assigned.
    fn allowed(&self, action: Action) -> AccessVerdict {
        let is_given = matches!(action, Action::Work | Action::UploadArtifact);
        match self.owner_role {
            Some(role) if !is_given && verdict(RoleColumn::Role(role), action) == AccessVerdict::No => {
                AccessVerdict::No
            }
            Some(_) | None => verdict(self.column(), action),
        }
    }

    fn has_scope(&self, scope: KeyScope) -> bool {
        self.scopes.as_ref().is_none_or(|scopes| scopes.contains(&scope))
    }

    /// Fails if the table denies the action. For `Own`, the action itself must check ownership.
    pub fn may(&self, action: Action) -> Result<AccessVerdict> {
        let allowed = self.allowed(action);
        if allowed != AccessVerdict::No && !self.has_scope(action.scope()) {
            let hint = format!("Use a key that has the scope `{}`.", action.scope().as_str());
            return Err(Error::forbidden("This key's scopes don't allow this.").hint(hint));
        }
        match (allowed, self.column()) {
            (AccessVerdict::No, RoleColumn::AgentKey | RoleColumn::Run)
                if verdict(self.column(), action) != AccessVerdict::No =>
            {
                Err(Error::forbidden("The agent's owner is no longer allowed to do this, so the agent isn't either."))
            }
            (AccessVerdict::No, RoleColumn::Runtime) => Err(Error::forbidden("A runtime's token can't do this.")
                .remedy(attache_protocol::error::Remedy::UsePersonKey)),
            (AccessVerdict::No, RoleColumn::AgentKey) => {
                Err(Error::forbidden("An agent's key can't do this.")
                    .remedy(attache_protocol::error::Remedy::UsePersonKey))
            }
            (AccessVerdict::No, RoleColumn::Run) => Err(Error::forbidden("A run's token can't do this.")
                .hint("It can only call agents and read the runs it created.")),
            (AccessVerdict::No, RoleColumn::Anonymous) => Err(Error::no_credential()),
            (AccessVerdict::No, RoleColumn::Role(_)) if matches!(action, Action::Work) => {
                Err(Error::forbidden("Only a paired runtime can do this.")
                    .remedy(attache_protocol::error::Remedy::UseDeviceToken))
            }
            (AccessVerdict::No, RoleColumn::Role(_)) => Err(Error::forbidden("This key's role doesn't allow this.")),
            (allowed, _) => Ok(allowed),
        }
    }
}
