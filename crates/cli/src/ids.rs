//! Ids as people type them: whole, by a part that only one of the newest has, or `last`.

use std::{fmt, str::FromStr};

use attache_client::{ChannelFilter, DeliveryFilter, Hub, Page, PermissionFilter, RunFilter};
use attache_protocol::{
    ChannelId, DeliveryId, GrantId, PermissionId, RunId, RuntimeId, error::exit, wire::call::CallId,
};

use crate::{Failure, output::clean};

/// An argument that means one thing of a kind; which one is found out when it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdArg(String);

/// So many pages of the newest are looked through.
const PAGES: usize = 10;
const PAGE: u32 = 200;
/// A shorter part fits by accident.
const SHORTEST: usize = 4;

/// The newest thing.
const LAST: &str = "last";

// === impl IdArg ===

impl FromStr for IdArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Err("write an id, a part of one, or `last`".to_owned()),
            text => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for IdArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl IdArg {
    /// What names a run. Here and below, an id of another kind is wrong usage, which no hub is asked about.
    pub(crate) fn of_run(text: &str) -> Result<Self, String> {
        Self::of(text, RunId::PREFIX)
    }

    pub(crate) fn of_permission(text: &str) -> Result<Self, String> {
        Self::of(text, PermissionId::PREFIX)
    }

    pub(crate) fn of_grant(text: &str) -> Result<Self, String> {
        Self::of(text, GrantId::PREFIX)
    }

    pub(crate) fn of_delivery(text: &str) -> Result<Self, String> {
        Self::of(text, DeliveryId::PREFIX)
    }

    pub(crate) fn of_channel(text: &str) -> Result<Self, String> {
        Self::of(text, ChannelId::PREFIX)
    }

    fn of(text: &str, prefix: &str) -> Result<Self, String> {
        let arg: Self = text.parse()?;
        if arg.0.contains('_') && !arg.0.starts_with(prefix) {
            return Err(format!("write an id of the form `{prefix}…`, a part of one, or `last`"));
        }
        Ok(arg)
    }

    pub(crate) async fn run(&self, hub: &Hub) -> Result<RunId, Failure> {
        if let Ok(call) = self.0.parse::<CallId>() {
            return Ok(call.run());
        }
        let mut found = Candidates::new(&self.0, "run");
        let mut cursor = None;
        for _ in 0..PAGES {
            let page = Page { limit: Some(found.limit()), cursor };
            let list = hub.runs(&RunFilter { page, ..RunFilter::default() }).await?;
            found.add(list.task_runs.iter().map(|run| run.task_run_id));
            cursor = list.next_cursor.filter(|_| !found.is_enough());
            if cursor.is_none() {
                break;
            }
        }
        found.only()
    }

    /// `last` is the newest that waits for an answer, if there is one.
    pub(crate) async fn permission(&self, hub: &Hub) -> Result<PermissionId, Failure> {
        if let Ok(id) = self.0.parse() {
            return Ok(id);
        }
        let mut found = Candidates::new(&self.0, "approval request");
        if self.0 == LAST {
            let page = Page { limit: Some(1), cursor: None };
            let state = Some(attache_protocol::rules::permission::State::Pending);
            let list = hub.permissions(&PermissionFilter { state, page, ..PermissionFilter::default() }).await?;
            found.add(list.permission_requests.iter().map(|request| request.permission_request_id));
            if found.is_enough() {
                return found.only();
            }
        }
        let mut cursor = None;
        for _ in 0..PAGES {
            let page = Page { limit: Some(found.limit()), cursor };
            let list = hub.permissions(&PermissionFilter { page, ..PermissionFilter::default() }).await?;
            found.add(list.permission_requests.iter().map(|request| request.permission_request_id));
            cursor = list.next_cursor.filter(|_| !found.is_enough());
            if cursor.is_none() {
                break;
            }
        }
        found.only()
    }

    pub(crate) async fn grant(&self, hub: &Hub) -> Result<GrantId, Failure> {
        if let Ok(id) = self.0.parse() {
            return Ok(id);
        }
        let mut found = Candidates::new(&self.0, "grant");
        let mut cursor = None;
        for _ in 0..PAGES {
            let list = hub.grants(&Page { limit: Some(found.limit()), cursor }).await?;
            found.add(list.permission_grants.iter().map(|grant| grant.grant_id));
            cursor = list.next_cursor.filter(|_| !found.is_enough());
            if cursor.is_none() {
                break;
            }
        }
        found.only()
    }

    pub(crate) async fn delivery(&self, hub: &Hub) -> Result<DeliveryId, Failure> {
        if let Ok(id) = self.0.parse() {
            return Ok(id);
        }
        let mut found = Candidates::new(&self.0, "delivery");
        let mut cursor = None;
        for _ in 0..PAGES {
            let page = Page { limit: Some(found.limit()), cursor };
            let list = hub.deliveries(&DeliveryFilter { page, ..DeliveryFilter::default() }).await?;
            found.add(list.deliveries.iter().map(|delivery| delivery.delivery_id));
            cursor = list.next_cursor.filter(|_| !found.is_enough());
            if cursor.is_none() {
                break;
            }
        }
        found.only()
    }

    pub(crate) async fn channel(&self, hub: &Hub) -> Result<ChannelId, Failure> {
        if let Ok(id) = self.0.parse() {
            return Ok(id);
        }
        let mut found = Candidates::new(&self.0, "channel");
        let mut cursor = None;
        for _ in 0..PAGES {
            let page = Page { limit: Some(found.limit()), cursor };
            let list = hub.channels(&ChannelFilter { page, ..ChannelFilter::default() }).await?;
            found.add(list.channels.iter().map(|channel| channel.channel_id));
            cursor = list.next_cursor.filter(|_| !found.is_enough());
            if cursor.is_none() {
                break;
            }
        }
        found.only()
    }

    /// A device's name will do as well, where only one active device has it.
    pub(crate) async fn runtime(&self, hub: &Hub) -> Result<RuntimeId, Failure> {
        if let Ok(id) = self.0.parse() {
            return Ok(id);
        }
        let mut found = Candidates::new(&self.0, "device");
        let mut named = Candidates::new(&self.0, "device");
        let mut cursor = None;
        for _ in 0..PAGES {
            let list = hub.runtimes(&Page { limit: Some(PAGE), cursor }).await?;
            let has_name = |runtime: &&attache_protocol::wire::runtime::Runtime| {
                runtime.ended_at.is_none() && runtime.device_name.as_deref() == Some(&self.0)
            };
            named.keep(list.agent_runtimes.iter().filter(has_name).map(|runtime| runtime.runtime_id));
            found.add(list.agent_runtimes.iter().map(|runtime| runtime.runtime_id));
            cursor = list.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        if named.is_empty() { found.only() } else { named.only() }
    }
}

/// What fits what was typed, the newest first.
#[derive(Debug)]
struct Candidates<'a, T> {
    typed: &'a str,
    what: &'static str,
    found: Vec<T>,
}

// === impl Candidates ===

impl<'a, T: fmt::Display + Copy> Candidates<'a, T> {
    const fn new(typed: &'a str, what: &'static str) -> Self {
        Self { typed, what, found: Vec::new() }
    }

    fn limit(&self) -> u32 {
        if self.typed == LAST { 1 } else { PAGE }
    }

    fn add(&mut self, ids: impl Iterator<Item = T>) {
        let typed = self.typed;
        self.keep(ids.filter(|id| fits(typed, &id.to_string())));
    }

    fn keep(&mut self, ids: impl Iterator<Item = T>) {
        self.found.extend(ids);
    }

    const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether looking further changes nothing.
    fn is_enough(&self) -> bool {
        self.found.len() > usize::from(self.typed != LAST)
    }

    fn only(self) -> Result<T, Failure> {
        let typed = clean::line(self.typed);
        match self.found.as_slice() {
            [only] => Ok(*only),
            [first, ..] if self.typed == LAST => Ok(*first),
            [] => Err(Failure::new("not_found", exit::NOT_FOUND, format!("there is no {} `{typed}`", self.what))
                .hint("Write a whole id, a part that only one of the newest has, or `last`.")),
            several => {
                let shown: Vec<String> = several.iter().take(5).map(ToString::to_string).collect();
                Err(Failure::usage(format!("`{typed}` fits several: {}", shown.join(", ")))
                    .hint("Write more of the id."))
            }
        }
    }
}

/// Whether a whole id is meant by what was typed: `last`, its beginning, its end, or both with `…` between them, as they
/// are shown.
fn fits(typed: &str, id: &str) -> bool {
    let typed = typed.replace("...", "…");
    let bare = id.split_once('_').map_or(id, |(_, bare)| bare);
    let long_enough = |part: &str| part.len() >= SHORTEST;
    match typed.split_once('…') {
        _ if typed == LAST => true,
        Some((start, end)) => {
            let start = start.trim_end_matches('_');
            (long_enough(start) || long_enough(end)) && id.starts_with(start) && id.ends_with(end)
        }
        None => {
            long_enough(&typed)
                && (id.starts_with(&typed) && typed.contains('_') || bare.starts_with(&typed) || bare.ends_with(&typed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_id_is_enough() {
        let id = "run_019a8e6bd0c57c3f9a55b7a1c2d3e4f5";
        for good in [
            "last",
            "run_019a8e6b",
            "019a8e6bd0",
            "e4f5",
            "run_019a8547…e4f5".replace("8547", "8e6b").as_str(),
            "run_…e4f5",
            "...d3e4f5",
        ] {
            assert!(fits(good, id), "{good}");
        }
        for bad in ["4f5", "run", "run_02", "9a8e", "run_…0000", "…", "agt_…e4f5"] {
            assert!(!fits(bad, id), "{bad}");
        }
    }

    #[test]
    fn an_id_of_another_kind_is_wrong_usage() {
        for good in ["run_019a8e6b", "run_…e4f5", "e4f5", "last", "a2a-019a8e6bd0c57c3f9a55b7a1c2d3e4f5"] {
            assert_eq!(IdArg::of_run(good), Ok(IdArg(good.to_owned())));
        }
        for bad in ["agt_019a8e6b", "prm_…e4f5", "", " "] {
            assert!(IdArg::of_run(bad).is_err(), "{bad}");
        }
    }
}
