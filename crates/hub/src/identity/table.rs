//! Who may do what: the table of DESIGN §9 for everything that is built so far.
//!
//! There are no users yet: every key of a tenant acts for the one person who owns it, so an operator's "own agents" are
//! all agents of the tenant. A key's "own keys" is itself alone, because nobody else is known to be the same person.

use attache_protocol::wire::key::Role;
use attache_store::record::RuntimeKind;

use crate::{
    Error, Result,
    identity::{Principal, Who},
};

macro_rules! actions {
    ($($name:ident $resource:literal $action:literal;)*) => {
        /// Something that can be asked of a resource.
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
    CreatePairingCode   "pairing"       "create_code";
    DecidePairing       "pairing"       "decide";
    SeeRuntimes         "runtimes"      "see";
    RevokeRuntime       "runtimes"      "revoke";
    SeeRuns             "runs"          "see";
    CreateRun           "runs"          "create";
    CancelRun           "runs"          "cancel";
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
    SeeArtifacts        "artifacts"     "see";
    UploadArtifact      "artifacts"     "upload";
    SeeDeliveries       "deliveries"    "see";
    ResendDelivery      "deliveries"    "resend";
    SeeDeliverySecret   "deliveries"    "see_secret";
    SeeKeys             "keys"          "see";
    CreateKey           "keys"          "create";
    RevokeKey           "keys"          "revoke";
    SeeAudit            "audit"         "see";
    CreateLoginLink     "login_links"   "create";
    SeeMetrics          "metrics"       "see";
}

/// What the table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Yes,
    /// Only what belongs to the caller: a runtime's claims and their conversations, the runs that an agent asked for, a key
    /// itself.
    Own,
    No,
}

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Role(Role),
    /// A registered agent with its own key.
    AgentKey,
    Runtime,
}

/// The cell of the table.
pub const fn verdict(column: Column, action: Action) -> Verdict {
    use Action as A;
    use Verdict::{No, Own, Yes};
    match action {
        A::SeeAgents => match column {
            Column::Role(_) | Column::AgentKey => Yes,
            Column::Runtime => No,
        },
        A::SeeRuntimes | A::ListConversations | A::SeePermissions | A::SeeGrants => match column {
            Column::Role(_) => Yes,
            Column::AgentKey | Column::Runtime => No,
        },
        A::SeeRuns | A::SeeConversations | A::SeeArtifacts => match column {
            Column::Role(_) => Yes,
            Column::AgentKey | Column::Runtime => Own,
        },
        A::SeeChannels | A::SeeDeliveries => match column {
            Column::Role(_) => Yes,
            Column::AgentKey => Own,
            Column::Runtime => No,
        },
        A::CreateRun => match column {
            Column::Role(Role::Owner | Role::Admin | Role::Operator) | Column::AgentKey => Yes,
            Column::Role(Role::Viewer) | Column::Runtime => No,
        },
        A::SeeDeliverySecret => match column {
            Column::Role(_) | Column::AgentKey => Own,
            Column::Runtime => No,
        },
        A::CancelRun | A::GiveInput | A::ResendDelivery => match column {
            Column::Role(Role::Owner | Role::Admin | Role::Operator) => Yes,
            Column::AgentKey => Own,
            Column::Role(Role::Viewer) | Column::Runtime => No,
        },
        A::CreateAgent
        | A::EditAgent
        | A::ArchiveAgent
        | A::RegisterAgent
        | A::CreatePairingCode
        | A::DecidePairing
        | A::RevokeRuntime
        | A::DecidePermission
        | A::RevokeGrant
        | A::CreateConversation
        | A::AddMessage => match column {
            Column::Role(Role::Owner | Role::Admin | Role::Operator) => Yes,
            Column::Role(Role::Viewer) | Column::AgentKey | Column::Runtime => No,
        },
        A::UploadArtifact => match column {
            Column::Role(Role::Owner | Role::Admin | Role::Operator) => Yes,
            Column::Role(Role::Viewer) => No,
            Column::AgentKey | Column::Runtime => Own,
        },
        A::RevokeKey => match column {
            Column::Role(Role::Owner | Role::Admin) => Yes,
            Column::Role(Role::Operator | Role::Viewer) => Own,
            Column::AgentKey | Column::Runtime => No,
        },
        A::SeeKeys | A::CreateKey | A::SeeAudit | A::CreateLoginLink | A::SeeMetrics => match column {
            Column::Role(Role::Owner | Role::Admin) => Yes,
            Column::Role(Role::Operator | Role::Viewer) | Column::AgentKey | Column::Runtime => No,
        },
        A::Work => match column {
            Column::Role(_) => No,
            Column::AgentKey | Column::Runtime => Own,
        },
    }
}

// === impl Principal ===

impl Principal {
    pub const fn column(&self) -> Column {
        match self.who {
            Who::Key { role, .. } => Column::Role(role),
            Who::Runtime { kind: RuntimeKind::Device, .. } => Column::Runtime,
            Who::Runtime { kind: RuntimeKind::AgentKey, .. } => Column::AgentKey,
        }
    }

    /// What this caller may do, so that a page need not offer what would be refused.
    pub const fn verdict(&self, action: Action) -> Verdict {
        verdict(self.column(), action)
    }

    /// Refuses what the table refuses. What is only the caller's own is for the action to check.
    pub fn may(&self, action: Action) -> Result<Verdict> {
        match (self.verdict(action), self.column()) {
            (Verdict::No, Column::Runtime) => Err(Error::forbidden("A runtime's token may not do this.")
                .hint("Use a person's key: `Authorization: Bearer ak_…`.")),
            (Verdict::No, Column::AgentKey) => Err(Error::forbidden("An agent's own key may not do this.")
                .hint("Use a person's key: `Authorization: Bearer ak_…`.")),
            (Verdict::No, Column::Role(_)) if matches!(action, Action::Work) => {
                Err(Error::forbidden("Only a paired runtime may do this.")
                    .hint("Send the runtime's token as `X-Runtime-Token: rt_…`."))
            }
            (Verdict::No, Column::Role(_)) => Err(Error::forbidden("This key's role may not do this.")),
            (allowed, _) => Ok(allowed),
        }
    }
}
