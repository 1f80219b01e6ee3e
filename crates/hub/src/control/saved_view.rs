//! The views of the list of runs that a person keeps. They are the person's own: no role sees those of others.

use attache_protocol::UserId;
use attache_store::record::user::SavedView;

use crate::{
    Error, Handle, Principal, Result, check,
    error::about,
    identity::{Action, Permit},
};

/// How many views a person may keep: as many as can be found among tabs.
const MAX_VIEWS: usize = 20;
const MAX_NAME: usize = 40;
const MAX_QUERY: usize = 2_000;

impl Handle {
    /// In the order in which they were made. A credential that is no person's has none.
    pub async fn saved_views(&self, by: &Principal) -> Result<Vec<SavedView>> {
        match owner(&by.may(Action::SeeRuns)?) {
            Some(user) => self.store().saved_views(by.tenant, user).await.map_err(about("user")),
            None => Ok(Vec::new()),
        }
    }

    /// Replaces the view that has the name. `query` is kept as it is.
    pub async fn save_view(&self, by: &Principal, name: &str, query: &str) -> Result<()> {
        let user = owner(&by.may(Action::SeeRuns)?).ok_or_else(not_a_person)?;
        check::line("name", name, 1..=MAX_NAME)?;
        check::line("query", query, 1..=MAX_QUERY)?;
        let saved = self.store().saved_views(by.tenant, user).await.map_err(about("user"))?;
        if saved.len() >= MAX_VIEWS && saved.iter().all(|view| view.name != name) {
            return Err(Error::invalid("name", &format!("you already have {MAX_VIEWS} views; remove one first")));
        }
        let view = SavedView { name: name.to_owned(), query: query.to_owned() };
        self.store().save_view(by.tenant, user, view).await.map_err(about("user"))
    }

    pub async fn remove_view(&self, by: &Principal, name: &str) -> Result<()> {
        let user = owner(&by.may(Action::SeeRuns)?).ok_or_else(not_a_person)?;
        self.store().remove_view(by.tenant, user, name).await.map_err(about("view"))
    }
}

/// The person whose views the caller uses. Agents and tokens of runs have none, even if they act for somebody.
fn owner(permit: &Permit<'_>) -> Option<UserId> {
    let by = permit.by();
    by.user.filter(|_| by.role().is_some())
}

fn not_a_person() -> Error {
    Error::forbidden("Only people can save views.")
}
