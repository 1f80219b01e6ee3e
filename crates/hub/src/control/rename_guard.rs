//! Protects names used by quotas and rules: changing such a name could evade the limit.

use attache_protocol::{Code, rules::access::RuleAgent};
use attache_store::record::{AgentRef, user::UserRecord};

use crate::{
    Error, Handle, Principal, Result,
    error::about,
    identity::{Action, Permit},
};

impl Handle {
    /// Callers who may manage only their own agents can't change agents that a quota or rule names.
    pub(super) async fn keep_limits(&self, permit: &Permit<'_>, agent: &AgentRef) -> Result<()> {
        if permit.covers_others() {
            return Ok(());
        }
        let by = permit.by();
        let account = self.store().account(by.tenant, agent.clone()).await.map_err(about("agent"))?;
        let quotas = self.store().quotas(by.tenant, self.now()).await.map_err(about("tenant"))?;
        let in_force = self.rules_in_force(by.tenant).await?;
        let named = RuleAgent { name: &account.name, id: &account.id.to_string(), owner: None };
        let what = if quotas.iter().any(|quota| quota.target.agent == Some(account.id)) {
            "A quota limits this agent".to_owned()
        } else if let Some(rule) = in_force.rules.naming_agent(named) {
            format!("The rule `{rule}` names this agent")
        } else {
            return Ok(());
        };
        let message = format!("{what}, so only an owner or admin can archive or rename it.");
        Err(Error::new(Code::Forbidden, message).hint("Ask an owner or admin."))
    }

    /// An agent that takes a name used in a rule gets what the rule grants. A rule that also covers its former name
    /// grants nothing new.
    pub(super) async fn free_of_rules(&self, by: &Principal, name: &str, former: Option<&str>) -> Result<()> {
        if by.may_all(Action::GiveAgent).is_ok() {
            return Ok(());
        }
        let in_force = self.rules_in_force(by.tenant).await?;
        let known = former.and_then(|former| in_force.rules.meaning_name(former));
        match in_force.rules.meaning_name(name).filter(|rule| known != Some(*rule)) {
            Some(rule) => {
                let message =
                    format!("The rule `{rule}` covers the name `{name}`, so only an owner or admin can assign it.");
                Err(Error::new(Code::Forbidden, message).hint("Choose another name, or ask an owner or admin."))
            }
            None => Ok(()),
        }
    }

    /// A rule that names a user would stop matching after a rename.
    pub(super) async fn may_rename(&self, by: &Principal, user: &UserRecord) -> Result<()> {
        match self.rules_in_force(by.tenant).await?.rules.naming_user(&user.name) {
            Some(rule) => {
                let message =
                    format!("The rule `{rule}` uses the name `{}`, so this user can't be renamed.", user.name);
                Err(Error::new(Code::NameTaken, message).hint("Change the rule first: `attache rules set FILE`."))
            }
            None => Ok(()),
        }
    }
}
