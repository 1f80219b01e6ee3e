//! The views of the list of runs that a person keeps. They are the person's own: no role sees those of others.
//!
//! A view is stored as the query of the console's list, which programs get and set as a [`RunViewFilter`].

use attache_protocol::{
    UserId,
    rules::quota::micro_usd,
    wire::run_view::{RunView, RunViewFilter, RunViewList, RunViewPeriod, RunViewStatus},
};
use attache_store::record::user::SavedView;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{
    Error, Handle, Principal, Result, check,
    error::about,
    identity::{Action, Permit},
};

/// How many views a person may keep: as many as can be found among tabs.
const MAX_VIEWS: usize = 20;
const MAX_NAME: usize = 40;
const MAX_QUERY: usize = 2_000;
/// As long as the console's fields.
const MAX_VALUE: usize = 200;

const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

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

    /// The same as filters. What isn't a filter of runs is left out.
    pub async fn run_views(&self, by: &Principal) -> Result<RunViewList> {
        let saved = self.saved_views(by).await?;
        let view = |view: SavedView| RunView { filter: filter_of(&view.query), name: view.name };
        Ok(RunViewList { run_views: saved.into_iter().map(view).collect() })
    }

    /// Replaces the view that has the name.
    pub async fn set_run_view(&self, by: &Principal, name: &str, filter: RunViewFilter) -> Result<RunView> {
        let RunViewFilter { agent, caller, min_cost_usd, text, .. } = &filter;
        for (field, value) in [("agent", agent), ("caller", caller), ("text", text), ("min_cost_usd", min_cost_usd)] {
            if let Some(value) = value {
                check::line(field, value, 1..=MAX_VALUE)?;
                if value.trim() != value {
                    return Err(Error::invalid(field, "must not begin or end with a space"));
                }
            }
        }
        if min_cost_usd.as_deref().is_some_and(|cost| micro_usd(cost).is_none()) {
            return Err(Error::invalid("min_cost_usd", "must be an amount in dollars, such as \"0.50\""));
        }
        let query = query_of(&filter);
        if query.is_empty() {
            return Err(Error::invalid("status", "or another filter must be given"));
        }
        self.save_view(by, name, &query).await?;
        Ok(RunView { name: name.to_owned(), filter })
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

fn query_of(filter: &RunViewFilter) -> String {
    let RunViewFilter { status, agent, caller, since, min_cost_usd, text } = filter;
    let all = [
        ("status", status.map(RunViewStatus::as_str)),
        ("agent", agent.as_deref()),
        ("caller", caller.as_deref()),
        ("since", since.map(RunViewPeriod::as_str)),
        ("cost", min_cost_usd.as_deref()),
        ("q", text.as_deref()),
    ];
    let members = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let members = members.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, VALUE)));
    members.collect::<Vec<_>>().join("&")
}

fn filter_of(query: &str) -> RunViewFilter {
    let mut filter = RunViewFilter::default();
    for (name, value) in query.split('&').filter_map(|member| member.split_once('=')) {
        let value = value.replace('+', " ");
        let Ok(value) = percent_decode_str(&value).decode_utf8() else { continue };
        if value.is_empty() {
            continue;
        }
        match name {
            "status" => filter.status = RunViewStatus::from_text(&value),
            "agent" => filter.agent = Some(value.into_owned()),
            "caller" => filter.caller = Some(value.into_owned()),
            "since" => filter.since = RunViewPeriod::from_text(&value),
            "cost" => filter.min_cost_usd = Some(value.into_owned()),
            "q" => filter.text = Some(value.into_owned()),
            _ => {}
        }
    }
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_survives_as_a_query() {
        let whole = RunViewFilter {
            status: Some(RunViewStatus::Waiting),
            agent: Some("a&b=c".to_owned()),
            caller: Some("ada lovelace".to_owned()),
            since: Some(RunViewPeriod::Week),
            min_cost_usd: Some("0.50".to_owned()),
            text: Some("50% + 修复 \"x\"".to_owned()),
        };
        assert_eq!(filter_of(&query_of(&whole)), whole);
        assert_eq!(query_of(&RunViewFilter::default()), "");
        let typed = filter_of("q=a+b&status=unknown&cursor=x&agent=&since=8h&cost");
        assert_eq!(typed, RunViewFilter { text: Some("a b".to_owned()), ..RunViewFilter::default() });
    }
}
