//! The accounts behind agent cards, and who may see which card.

use attache_protocol::wire::{a2a_options::A2aOptions, account::Account};
use attache_store::record::{self, Pagination, channel::ChannelFilter};

use crate::{
    Error, Handle, Principal, PrincipalKind, Result, check,
    control::route::{is_showable, registered, words},
    error::about,
    identity::{AccessVerdict, Action},
    render,
};

/// How many of an agent's capabilities are repeated.
const MAX_WORDS: usize = 100;

impl Handle {
    /// The agent behind a card, by name or id. Anyone may see it unless its owner hides it: then only the agent itself
    /// and callers who may see the agent. For everyone else it does not exist.
    pub async fn card_account(&self, by: Option<&Principal>, agent: &str) -> Result<Account> {
        let agent = check::agent_in_path(agent)?;
        let tenant = by.map_or(self.tenant(), |by| by.tenant);
        let account = self.store().account(tenant, agent).await.map_err(about("agent"))?;
        if account.archived_at.is_none() && (is_public(&account) || self.sees(by, &account).await?) {
            return Ok(render::account(account));
        }
        Err(Error::not_found("agent"))
    }

    /// The agent for clients that name none: the hub's default agent, or the only agent.
    pub async fn default_card_account(&self, by: Option<&Principal>) -> Result<Account> {
        if let Some(name) = self.default_agent_name() {
            return self.card_account(by, name).await;
        }
        let mut all = self.card_accounts(by).await?;
        match (all.pop(), all.is_empty()) {
            (Some(only), true) => Ok(only),
            (Some(_) | None, _) => Err(Error::not_found("agent")
                .hint("This hub has no default agent. See /.well-known/ai-catalog.json for its agents.")),
        }
    }

    /// Every agent whose card the caller finds in the catalogue, by name: those they may see, or, without the right to
    /// see agents, those that are not hidden.
    pub async fn card_accounts(&self, by: Option<&Principal>) -> Result<Vec<Account>> {
        let tenant = by.map_or(self.tenant(), |by| by.tenant);
        let mut reach = match by {
            Some(by) if may_see(by) => Some(self.caller_access(by).await?),
            Some(_) | None => None,
        };
        let mut found = Vec::new();
        let mut accounts = check::all_pages("agent", |page| self.store().accounts(tenant, page));
        while let Some(account) = accounts.next().await? {
            let seen = match &mut reach {
                Some(reach) => reach.agent(&account).await?,
                None => is_public(&account),
            };
            if seen {
                found.push(render::account(account));
            }
        }
        Ok(found)
    }

    /// The capabilities the agent gave at registration and those of its connected channels: plain words, without
    /// duplicates.
    pub async fn card_words(&self, by: &Principal, account: &Account) -> Result<Vec<String>> {
        let mut found = account.runtime.as_ref().map(|runtime| registered(&runtime.labels)).unwrap_or_default();
        let filter = ChannelFilter { connected: Some(true), agent: Some(account.agent_id) };
        let page = Pagination { limit: check::MAX_PAGE, cursor: None };
        let listed = self.store().channels(by.tenant, filter, page).await.map_err(about("channel"))?;
        // Only a channel that works for the agent can declare its capabilities.
        for channel in listed.items.iter().filter(|channel| channel.runtime.is_some()) {
            found.extend(words(&channel.capabilities));
        }
        found.retain(|word| is_showable(word));
        found.sort_unstable();
        found.dedup();
        found.truncate(MAX_WORDS);
        Ok(found)
    }

    /// Whether this is the agent for callers that name none.
    pub fn is_default_agent(&self, account: &Account) -> bool {
        self.default_agent_name()
            .is_some_and(|default| default == account.name || default == account.agent_id.to_string())
    }

    async fn sees(&self, by: Option<&Principal>, account: &record::AccountRecord) -> Result<bool> {
        match by {
            Some(Principal {
                who: PrincipalKind::Runtime { agent, .. } | PrincipalKind::Outside { agent, .. },
                ..
            }) if *agent == account.id => Ok(true),
            Some(by) if may_see(by) => self.caller_access(by).await?.agent(account).await,
            Some(_) | None => Ok(false),
        }
    }
}

fn may_see(by: &Principal) -> bool {
    by.verdict(Action::SeeAgents) != AccessVerdict::No
}

fn is_public(account: &record::AccountRecord) -> bool {
    !A2aOptions::of(account.a2a.as_ref()).hidden
}
