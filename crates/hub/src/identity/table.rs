//! The access table: one row per action, with the scope that a restricted key needs for it and what each kind of caller
//! may do (DESIGN §9).
//!
//! A person's own things are those of the same user. A key without a user owns what has no user. A key with scopes may
//! do what both its role and its scopes allow.

use attache_protocol::wire::key::{KeyScope, Role};

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

macro_rules! cell {
    (yes) => {
        AccessVerdict::Yes
    };
    (own) => {
        AccessVerdict::Own
    };
    (-) => {
        AccessVerdict::No
    };
}

macro_rules! actions {
    ($($name:ident $resource:literal $verb:literal $scope:ident
       $owner:tt $admin:tt $operator:tt $viewer:tt $agent_key:tt $runtime:tt $run:tt $anonymous:tt;)*) => {
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
                match self { $(Self::$name => $verb,)* }
            }

            /// The scope a key with scopes needs for this.
            pub const fn scope(self) -> KeyScope {
                match self { $(Self::$name => KeyScope::$scope,)* }
            }
        }

        /// Looks up a cell.
        pub const fn verdict(column: RoleColumn, action: Action) -> AccessVerdict {
            match action {
                $(Action::$name => match column {
                    RoleColumn::Role(Role::Owner) => cell!($owner),
                    RoleColumn::Role(Role::Admin) => cell!($admin),
                    RoleColumn::Role(Role::Operator) => cell!($operator),
                    RoleColumn::Role(Role::Viewer) => cell!($viewer),
                    RoleColumn::AgentKey => cell!($agent_key),
                    RoleColumn::Runtime => cell!($runtime),
                    RoleColumn::Run => cell!($run),
                    RoleColumn::Anonymous => cell!($anonymous),
                },)*
            }
        }
    };
}

// Anyone who may see every run may see all usage; an operator sees their own. No person's key can work: the scope of
// `Work` only keeps it apart from the others.
actions! {
    // action          resource        verb          scope   owner admin operator viewer agent_key runtime run anonymous
    SeeAgents          "agents"        "see"         Read    yes   yes   yes      yes    yes       -       yes -;
    CreateAgent        "agents"        "create"      Manage  yes   yes   yes      -      -         -       -   -;
    EditAgent          "agents"        "edit"        Manage  yes   yes   own      -      -         -       -   -;
    ArchiveAgent       "agents"        "archive"     Manage  yes   yes   own      -      -         -       -   -;
    GiveAgent          "agents"        "give"        Manage  yes   yes   -        -      -         -       -   -;
    CreatePairingCode  "pairing"       "create_code" Manage  yes   yes   own      -      -         -       -   -;
    DecidePairing      "pairing"       "decide"      Manage  yes   yes   own      -      -         -       -   -;
    SeeRuntimes        "runtimes"      "see"         Read    yes   yes   yes      yes    -         -       -   -;
    RevokeRuntime      "runtimes"      "revoke"      Manage  yes   yes   own      -      -         -       -   -;
    SeeHostSessions    "host_sessions" "see"         Read    own   own   own      -      -         -       -   -;
    SeeRuns            "runs"          "see"         Read    yes   yes   yes      yes    own       own     own own;
    CreateRun          "runs"          "create"      Call    yes   yes   yes      -      yes       -       own own;
    CancelRun          "runs"          "cancel"      Call    yes   yes   yes      -      own       -       own own;
    DecideWorktree     "worktrees"     "decide"      Manage  own   own   own      -      -         -       -   -;
    DeleteRun          "runs"          "delete"      Manage  yes   yes   own      -      -         -       -   -;
    GiveInput          "runs"          "give_input"  Call    yes   yes   yes      -      own       -       own own;
    Work               "runs"          "work"        Manage  -     -     -        -      own       own     -   -;
    SeePermissions     "permissions"   "see"         Read    yes   yes   yes      yes    -         -       -   -;
    DecidePermission   "permissions"   "decide"      Decide  yes   yes   yes      -      -         -       -   -;
    SeeGrants          "grants"        "see"         Read    yes   yes   yes      yes    -         -       -   -;
    RevokeGrant        "grants"        "revoke"      Decide  yes   yes   yes      -      -         -       -   -;
    SeeChannels        "channels"      "see"         Read    yes   yes   yes      yes    own       -       -   -;
    RegisterAgent      "agents"        "register"    Manage  yes   yes   yes      -      -         -       -   -;
    SeeConversations   "conversations" "see"         Read    yes   yes   yes      yes    own       own     -   -;
    ListConversations  "conversations" "list"        Read    yes   yes   yes      yes    -         -       -   -;
    CreateConversation "conversations" "create"      Call    yes   yes   yes      -      -         -       -   -;
    AddMessage         "conversations" "add_message" Call    yes   yes   yes      -      -         -       -   -;
    DeleteConversation "conversations" "delete"      Manage  yes   yes   own      -      -         -       -   -;
    SeeArtifacts       "artifacts"     "see"         Read    yes   yes   yes      yes    own       own     -   -;
    UploadArtifact     "artifacts"     "upload"      Call    yes   yes   yes      -      own       own     -   -;
    OpenTunnel         "tunnels"       "open"        Call    own   own   own      -      own       -       -   -;
    SeeDelegations     "delegations"   "see"         Read    yes   yes   yes      yes    own       -       -   -;
    PublishDelegation  "delegations"   "publish"     Call    own   own   own      -      own       -       -   -;
    CancelDelegation   "delegations"   "cancel"      Call    yes   yes   yes      -      own       -       -   -;
    SeeDeliveries      "deliveries"    "see"         Read    yes   yes   yes      yes    own       -       -   -;
    ResendDelivery     "deliveries"    "resend"      Admin   yes   yes   yes      -      own       -       -   -;
    SeeDeliverySecret  "deliveries"    "see_secret"  Call    own   own   own      -      own       -       -   -;
    SeeNotifications   "notifications" "see"         Read    own   own   own      own    -         -       -   -;
    SetNotifications   "notifications" "set"         Admin   own   own   own      own    -         -       -   -;
    ConnectChat        "notifications" "connect_chat" Admin  yes   yes   -        -      -         -       -   -;
    SeeKeys            "keys"          "see"         Admin   yes   yes   own      -      -         -       -   -;
    CreateKey          "keys"          "create"      Admin   yes   yes   own      -      -         -       -   -;
    RevokeKey          "keys"          "revoke"      Admin   yes   yes   own      own    -         -       -   -;
    SeeSessions        "sessions"      "see"         Admin   yes   yes   own      own    -         -       -   -;
    EndSession         "sessions"      "end"         Admin   yes   yes   own      own    -         -       -   -;
    CreateToken        "tokens"        "create"      Read    yes   yes   yes      yes    -         -       -   -;
    SeeUsers           "users"         "see"         Admin   yes   yes   own      own    -         -       -   -;
    CreateUser         "users"         "create"      Admin   yes   yes   -        -      -         -       -   -;
    EditUser           "users"         "edit"        Admin   yes   yes   own      own    -         -       -   -;
    RemoveUser         "users"         "remove"      Admin   yes   yes   -        -      -         -       -   -;
    SeeAudit           "audit"         "see"         Admin   yes   yes   -        -      -         -       -   -;
    SeeRules           "rules"         "see"         Admin   yes   yes   -        -      -         -       -   -;
    SetRules           "rules"         "set"         Admin   yes   yes   -        -      -         -       -   -;
    SeeQuotas          "quotas"        "see"         Admin   yes   yes   -        -      -         -       -   -;
    SetQuota           "quotas"        "set"         Admin   yes   yes   -        -      -         -       -   -;
    SeeUsage           "usage"         "see"         Read    yes   yes   own      yes    -         -       -   -;
    CreateLoginLink    "login_links"   "create"      Admin   yes   yes   own      own    -         -       -   -;
    SeeMetrics         "metrics"       "see"         Read    yes   yes   -        -      -         -       -   -;
}
