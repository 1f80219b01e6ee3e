//! Access rules: read, replace and query them.

use attache_protocol::{
    WorkspaceId,
    rules::access::{self, AccessObject, RuleAgent, RuleDecision},
    wire::access::{AccessDecision, AccessReason, AccessRules, CheckAccess, SetAccessRules},
};
use attache_store::record::user;

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    check,
    error::about,
    identity::{
        Action,
        access::{invalid, parse},
    },
};

impl Handle {
    pub async fn access_rules(&self, by: &Principal) -> Result<AccessRules> {
        by.may_all(Action::SeeRules)?;
        let stored = self.store().access_rules(by.tenant).await.map_err(about("tenant"))?;
        Ok(self.shown_rules(by, stored))
    }

    /// Replaces all rules, and the rules file if there is one.
    pub async fn set_access_rules(&self, by: &Principal, request: SetAccessRules) -> Result<AccessRules> {
        by.may_all(Action::SetRules)?;
        self.check_lasting(by, "change who may call which agents").await?;
        let rules = parse(&request.text).map_err(|report| invalid(&report))?;
        let _turn = self.access().change().await;
        if let Some(file) = self.access().file_of(by.tenant) {
            // Load recent edits of the file first, so that a caller who has not seen them gets a version conflict.
            self.look_at_rules_file().await?;
            let version = self.rules_in_force(by.tenant).await?.version;
            if request.version.is_some_and(|expected| expected != version) {
                return Err(Error::from_store("tenant", attache_store::Error::VersionChanged));
            }
            file.write(&request.text).await.map_err(|error| {
                tracing::error!(%error, "the access rules file can't be written");
                Error::new(attache_protocol::Code::Internal, format!("{} can't be written: {error}.", file.name()))
                    .hint("Nothing was changed. Give the hub write access to the file and its folder, or edit it by hand.")
            })?;
        }
        let kept = self.put_in_force(self.context(by), request.text, rules, request.version).await?;
        self.bus().wake([Topic::Rights(by.tenant)]);
        if self.access().file_of(by.tenant).is_some() {
            self.look_at_rules_file().await?;
        }
        Ok(self.shown_rules(by, Some(kept)))
    }

    /// What the current rules decide about one agent and one object, and which rule decides.
    pub async fn check_access(&self, by: &Principal, request: CheckAccess) -> Result<AccessDecision> {
        by.may_all(Action::SeeRules)?;
        let (name, id, owner) = self.agent_in_rules(by, &request.agent, "agent").await?;
        let asking = RuleAgent { name: &name, id: &id, owner: owner.as_deref() };
        let (kind, rest) = request.object.split_once('/').unwrap_or((&request.object, ""));
        let parts = rest.split_once('/');
        let in_force = self.rules_in_force(by.tenant).await?;
        let rights = in_force.rules.rights(asking);
        let decision = match (kind, parts) {
            ("agents", None) if !rest.is_empty() => {
                let (name, id, owner) = self.agent_in_rules(by, rest, "object").await?;
                rights.decide(AccessObject::Agent(RuleAgent { name: &name, id: &id, owner: owner.as_deref() }))
            }
            ("agents", Some((agent, below))) if below.starts_with("memory/") => {
                let (name, id, owner) = self.agent_in_rules(by, agent, "object").await?;
                let agent = RuleAgent { name: &name, id: &id, owner: owner.as_deref() };
                rights.decide(AccessObject::Memory { agent, path: below.trim_start_matches("memory/") })
            }
            ("conversations", Some((user, id))) => rights.decide(AccessObject::Conversation { user, id }),
            ("resources", Some((space, name))) => {
                let owner = self.owner_of_space(by, space).await?;
                rights.decide(AccessObject::Artifact { space, name, owner: owner.as_deref() })
            }
            _ => {
                let forms = "must be agents/NAME, agents/NAME/memory/PATH, conversations/USER/ID or \
                             resources/SPACE/ARTIFACT";
                return Err(Error::invalid("object", forms));
            }
        };
        Ok(shown_decision(name.clone(), request.object.clone(), decision))
    }

    fn shown_rules(&self, by: &Principal, stored: Option<user::AccessRulesRecord>) -> AccessRules {
        let file = self.access().file_of(by.tenant);
        let problem = file.and_then(|_| self.access().problem());
        let file = file.map(|file| file.name());
        match stored {
            Some(user::AccessRulesRecord { text, version, changed_at, changed_by }) => {
                let changed_by = Some(changed_by.to_string());
                AccessRules { text, version, file, problem, changed_at: Some(changed_at), changed_by }
            }
            None => AccessRules { text: String::new(), version: 0, file, problem, changed_at: None, changed_by: None },
        }
    }

    /// Name, id and owner. Fails for an unknown agent, because a misspelt name would otherwise seem to be allowed.
    async fn agent_in_rules(
        &self,
        by: &Principal,
        text: &str,
        field: &'static str,
    ) -> Result<(String, String, Option<String>)> {
        let agent = check::agent_ref(field, text)?;
        let account = self.store().account(by.tenant, agent).await.map_err(about("agent"))?;
        let owner = match account.owner {
            Some(user) => Some(self.user_in_rules(by, user).await?),
            None => None,
        };
        Ok((account.name, account.id.to_string(), owner))
    }

    /// A workspace belongs to the owner of its conversation.
    async fn owner_of_space(&self, by: &Principal, space: &str) -> Result<Option<String>> {
        let Ok(workspace) = space.parse::<WorkspaceId>() else { return Ok(None) };
        match self.store().conversation(by.tenant, workspace.conversation()).await {
            Ok(conversation) => match conversation.user {
                Some(user) => self.user_in_rules(by, user).await.map(Some),
                None => Ok(None),
            },
            Err(attache_store::Error::NotFound) => Ok(None),
            Err(error) => Err(Error::from_store("workspace", error)),
        }
    }
}

fn shown_decision(agent: String, object: String, decision: RuleDecision<'_>) -> AccessDecision {
    let (RuleDecision::Allowed(reason) | RuleDecision::Denied(reason)) = decision;
    let (because, rule) = match reason {
        access::RuleReason::Rule(pattern) => (AccessReason::Rule, Some(pattern.to_string())),
        access::RuleReason::Own => (AccessReason::Own, None),
        access::RuleReason::Fallback => (AccessReason::Default, None),
        access::RuleReason::NoSuchName => (AccessReason::NoSuchName, None),
    };
    AccessDecision { agent, object, allowed: decision.is_allowed(), because, rule }
}
