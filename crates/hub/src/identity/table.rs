<<<<<<< HEAD
//! The access table: which role may do what.
=======
//! The access table: one row per action, with the scope that a restricted key needs for it and what each kind of caller
//! may do (DESIGN §9).
>>>>>>> rights
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

<<<<<<< HEAD
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
=======
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
    SeeRuns            "runs"          "see"         Read    yes   yes   yes      yes    own       own     own own;
    CreateRun          "runs"          "create"      Call    yes   yes   yes      -      yes       -       own own;
    CancelRun          "runs"          "cancel"      Call    yes   yes   yes      -      own       -       own own;
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
>>>>>>> rights
}
