//! Display names for the actors, devices, agents and users that records mention by id.

use std::collections::BTreeMap;

use attache_protocol::{Actor, KeyId, UserId, wire::names::NameList};
use attache_store::record::{AgentRef, StoredCredential, user::UserRef};

use crate::{Error, Handle, Principal, Result, identity::Action};

/// How many ids one request may look up.
const MAX_NAMES: usize = 200;

impl Handle {
    /// The names behind ids (`rtm_…`, `agt_…`, `usr_…`, `key_…`, `run_…`) and actors (`key:key_…`). Unknown ids and
    /// runs hidden from the caller are left out. Only people may call this: identities may be secret to agents.
    pub async fn names(&self, by: &Principal, ids: &[String]) -> Result<NameList> {
        by.may_all(Action::SeeRuntimes)?;
        if ids.len() > MAX_NAMES {
            return Err(Error::invalid("ids", "must have at most 200 entries"));
        }
        let mut names = BTreeMap::new();
        for id in ids {
            if let Some(name) = self.name_of(by, id).await? {
                names.insert(id.clone(), name);
            }
        }
        Ok(NameList { names })
    }

    async fn name_of(&self, by: &Principal, id: &str) -> Result<Option<String>> {
        match Actor::with_id(id).unwrap_or_else(|| Actor::from(id)) {
            Actor::Anonymous => Ok(Some("anonymous caller".to_owned())),
            Actor::Key(key) => self.key_holder(by, key).await,
            Actor::User(user) => self.user_name(by, user).await,
            Actor::Agent(agent) => {
                let found = self.store().account(by.tenant, AgentRef::Id(agent)).await;
                found_or_none(found).map(|account| account.map(|account| account.name))
            }
            Actor::Runtime(runtime) => {
                let found = self.store().runtime(by.tenant, runtime).await;
                found_or_none(found).map(|runtime| runtime.and_then(|runtime| runtime.device_name))
            }
            Actor::Run(run) => {
                let Some(run) = found_or_none(self.store().run(by.tenant, run).await)? else { return Ok(None) };
                Ok(self.private_work(by).sees_run(&run).await?.then_some(run.agent_name))
            }
            Actor::System | Actor::Grant(_) | Actor::Other(_) => Ok(None),
        }
    }

    async fn key_holder(&self, by: &Principal, key: KeyId) -> Result<Option<String>> {
        match found_or_none(self.store().key_credential(key).await)?.flatten() {
            Some(StoredCredential::Key { tenant, user: Some(user), .. }) if tenant == by.tenant => {
                self.user_name(by, user).await
            }
            Some(_) | None => Ok(None),
        }
    }

    async fn user_name(&self, by: &Principal, user: UserId) -> Result<Option<String>> {
        let found = self.store().user(by.tenant, UserRef::Id(user)).await;
        found_or_none(found).map(|user| user.map(|user| user.name))
    }
}

/// "Not found" becomes `None`.
fn found_or_none<T>(found: attache_store::Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(attache_store::Error::NotFound) => Ok(None),
        Err(error) => Err(Error::from_store("name", error)),
    }
}
