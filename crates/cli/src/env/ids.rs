//! Id arguments: a complete id, a unique part of a recent one, or `last`.

use std::{fmt, str::FromStr};

use attache_client::{ChannelFilter, DeliveryFilter, HubClient, PageQuery, PermissionFilter, daemon::DaemonClient};
use attache_protocol::{
    ChannelId, ConversationId, DelegationId, DeliveryId, GrantId, KeyId, PermissionId, RunId, RuntimeId, WorkspaceId,
    error::exit,
    rules::permission::PermissionState,
    wire::{call::CallId, key::Key, run::RunQuery, runtime::Runtime},
};

use crate::{
    text::errors,
    ui::{failure::CommandFailure, output::clean},
};

/// An id argument, resolved when it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdArg(String);

/// Maximum number of pages to search, newest first.
const MAX_PAGES: usize = 10;
const PAGE_SIZE: u32 = 200;
/// A shorter part would match by accident.
const MIN_PART: usize = 4;

/// Selects the newest item.
const LAST: &str = "last";

// === impl IdArg ===

impl FromStr for IdArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Err(errors::id_expected().to_owned()),
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
    pub(crate) fn is_last(&self) -> bool {
        self.0 == LAST
    }

    /// An argument for a run. Here and below, an id of another kind is a usage error, found without asking the hub.
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

    pub(crate) fn of_delegation(text: &str) -> Result<Self, String> {
        Self::of(text, DelegationId::PREFIX)
    }

    /// An argument for a workspace: its own id, or that of its conversation or run.
    pub(crate) fn of_workspace(text: &str) -> Result<Self, String> {
        let arg: Self = text.parse()?;
        let prefixes = [WorkspaceId::PREFIX, ConversationId::PREFIX, RunId::PREFIX];
        if arg.0.contains('_') && !prefixes.iter().any(|prefix| arg.0.starts_with(prefix)) {
            return Err(errors::workspace_expected().to_owned());
        }
        Ok(arg)
    }

    fn of(text: &str, prefix: &str) -> Result<Self, String> {
        let arg: Self = text.parse()?;
        if arg.0.contains('_') && !arg.0.starts_with(prefix) {
            return Err(errors::id_expected_of(prefix));
        }
        Ok(arg)
    }

    pub(crate) async fn run(&self, hub: &HubClient) -> Result<RunId, CommandFailure> {
        if let Ok(call) = self.0.parse::<CallId>() {
            return Ok(call.run());
        }
        let pages = async |page: PageQuery| {
            let limit = page.limit.and_then(|limit| usize::try_from(limit).ok());
            let list = hub.runs(&RunQuery { limit, cursor: page.cursor, ..RunQuery::default() }).await?;
            candidates(list.task_runs.iter().map(|run| run.task_run_id), list.next_cursor)
        };
        self.resolve(errors::a_run(), pages).await
    }

    /// `last` selects the newest pending request, if any.
    pub(crate) async fn permission(&self, hub: &HubClient) -> Result<PermissionId, CommandFailure> {
        let pages = async |page: PageQuery, state| {
            let list = hub.permissions(&PermissionFilter { state, page, ..PermissionFilter::default() }).await?;
            candidates(list.permission_requests.iter().map(|request| request.permission_request_id), list.next_cursor)
        };
        if self.0 == LAST {
            let first = PageQuery { limit: Some(1), cursor: None };
            let (pending, _) = pages(first, Some(PermissionState::Pending)).await?;
            if let Some(waiting) = pending.first() {
                return Ok(waiting.id);
            }
        }
        self.resolve(errors::an_approval(), async |page: PageQuery| pages(page, None).await).await
    }

    pub(crate) async fn grant(&self, hub: &HubClient) -> Result<GrantId, CommandFailure> {
        let pages = async |page: PageQuery| {
            let list = hub.grants(&page).await?;
            candidates(list.permission_grants.iter().map(|grant| grant.grant_id), list.next_cursor)
        };
        self.resolve(errors::a_grant(), pages).await
    }

    pub(crate) async fn delivery(&self, hub: &HubClient) -> Result<DeliveryId, CommandFailure> {
        let pages = async |page: PageQuery| {
            let list = hub.deliveries(&DeliveryFilter { page, ..DeliveryFilter::default() }).await?;
            candidates(list.deliveries.iter().map(|delivery| delivery.delivery_id), list.next_cursor)
        };
        self.resolve(errors::a_delivery(), pages).await
    }

    pub(crate) async fn channel(&self, hub: &HubClient) -> Result<ChannelId, CommandFailure> {
        let pages = async |page: PageQuery| {
            let list = hub.channels(&ChannelFilter { page, ..ChannelFilter::default() }).await?;
            candidates(list.channels.iter().map(|channel| channel.channel_id), list.next_cursor)
        };
        self.resolve(errors::a_channel(), pages).await
    }

    /// Also accepts a device name, if only one active device has it.
    pub(crate) async fn runtime(&self, hub: &HubClient) -> Result<RuntimeId, CommandFailure> {
        let name = |runtime: &Runtime| runtime.device_name.clone().filter(|_| runtime.ended_at.is_none());
        let pages = async |page: PageQuery| {
            let list = hub.runtimes(&page).await?;
            let found = list.agent_runtimes.iter().map(|one| Candidate { id: one.runtime_id, name: name(one) });
            candidates(found, list.next_cursor)
        };
        self.resolve(errors::a_device(), pages).await
    }

    /// Also accepts a key name, if only one active key has it.
    pub(crate) async fn key(&self, hub: &HubClient) -> Result<KeyId, CommandFailure> {
        let name = |key: &Key| key.revoked_at.is_none().then(|| key.name.clone());
        let pages = async |page: PageQuery| {
            let list = hub.keys(&page).await?;
            let found = list.api_keys.iter().map(|key| Candidate { id: key.key_id, name: name(key) });
            candidates(found, list.next_cursor)
        };
        self.resolve(errors::a_key(), pages).await
    }

    pub(crate) async fn session(&self, hub: &HubClient) -> Result<KeyId, CommandFailure> {
        let pages = async |page: PageQuery| {
            let list = hub.sessions(&page).await?;
            candidates(list.sessions.iter().map(|session| session.session_id), list.next_cursor)
        };
        self.resolve(errors::a_session(), pages).await
    }

    /// Also accepts a title, if only one conversation has it.
    pub(crate) async fn conversation(&self, hub: &HubClient) -> Result<ConversationId, CommandFailure> {
        if self.0 == LAST
            && let Some(newest) = newest_conversation(hub).await?
        {
            return Ok(newest);
        }
        let pages = async |page: PageQuery| {
            let list = hub.conversations(&page).await?;
            let found = list.conversations.into_iter();
            candidates(found.map(|one| Candidate { id: one.conversation_id, name: one.title }), list.next_cursor)
        };
        self.resolve(errors::a_conversation(), pages).await
    }

    /// The workspace of a run or a conversation. `last` selects that of the newest run.
    pub(crate) async fn workspace(&self, hub: &HubClient) -> Result<WorkspaceId, CommandFailure> {
        if let Ok(workspace) = self.0.parse() {
            return Ok(workspace);
        }
        // A workspace shares the uuid of its conversation.
        if let Some(bare) = self.0.strip_prefix(WorkspaceId::PREFIX) {
            let conversation = Self(format!("{}{bare}", ConversationId::PREFIX));
            return Ok(conversation.conversation(hub).await?.workspace());
        }
        if self.0.starts_with(ConversationId::PREFIX) {
            return Ok(self.conversation(hub).await?.workspace());
        }
        let is_missing = |failure: &CommandFailure| failure.exit == exit::NOT_FOUND;
        match self.run(hub).await {
            Ok(run) => Ok(hub.run(run).await?.workspace_id),
            Err(failure) if is_missing(&failure) && !self.is_last() && !self.0.starts_with(RunId::PREFIX) => {
                match self.conversation(hub).await {
                    Ok(conversation) => Ok(conversation.workspace()),
                    Err(failure) if is_missing(&failure) => Err(not_found(errors::a_run_or_conversation(), &self.0)),
                    Err(failure) => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    /// A delegation of this machine.
    pub(crate) async fn delegation(&self, daemon: &DaemonClient) -> Result<DelegationId, CommandFailure> {
        let pages = async |_: PageQuery| {
            let list = daemon.list().await?;
            candidates(list.iter().map(|delegation| delegation.delegation_id), None)
        };
        self.resolve(errors::a_delegation(), pages).await
    }

    /// Returns a complete id as is; otherwise resolves a name or a part of an id among the newest items.
    async fn resolve<T: fmt::Display + FromStr + Copy>(
        &self,
        what: &'static str,
        pages: impl AsyncFn(PageQuery) -> Result<IdCandidates<T>, CommandFailure>,
    ) -> Result<T, CommandFailure> {
        if let Ok(id) = self.0.parse() {
            return Ok(id);
        }
        let limit = if self.0 == LAST { 1 } else { PAGE_SIZE };
        let (mut found, mut named) = (Vec::new(), Vec::new());
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let (page, next) = pages(PageQuery { limit: Some(limit), cursor }).await?;
            named.extend(page.iter().filter(|one| one.name.as_deref() == Some(&self.0)).map(|one| one.id));
            found.extend(page.iter().filter(|one| fits(&self.0, &one.id.to_string())).map(|one| one.id));
            cursor = next.filter(|_| self.0 != LAST);
            if cursor.is_none() {
                break;
            }
        }
        only(&self.0, what, if named.is_empty() { &found } else { &named })
    }
}

/// An item that the argument may refer to.
#[derive(Debug)]
struct Candidate<T> {
    id: T,
    /// Its display name, if any.
    name: Option<String>,
}

/// A page of candidates and the cursor of the next page.
type IdCandidates<T> = (Vec<Candidate<T>>, Option<String>);

// === impl Candidate ===

impl<T> From<T> for Candidate<T> {
    fn from(id: T) -> Self {
        Self { id, name: None }
    }
}

fn candidates<T, C: Into<Candidate<T>>>(
    found: impl Iterator<Item = C>,
    next: Option<String>,
) -> Result<IdCandidates<T>, CommandFailure> {
    Ok((found.map(Into::into).collect(), next))
}

/// The single match for the argument; `found` is sorted newest first.
fn only<T: fmt::Display + Copy>(typed: &str, what: &str, found: &[T]) -> Result<T, CommandFailure> {
    let shown = clean::line(typed);
    match found {
        [only] => Ok(*only),
        [first, ..] if typed == LAST => Ok(*first),
        [] => Err(not_found(what, typed)),
        several => {
            let several: Vec<String> = several.iter().take(5).map(ToString::to_string).collect();
            Err(CommandFailure::usage(errors::id_ambiguous(shown, several.join(", "))).hint(errors::id_ambiguous_do()))
        }
    }
}

fn not_found(what: &str, typed: &str) -> CommandFailure {
    CommandFailure::new("not_found", exit::NOT_FOUND, errors::id_not_found(what, clean::line(typed)))
        .hint(errors::id_not_found_do())
}

/// The conversation of the newest run, most of which have one of their own, or one that was added since.
async fn newest_conversation(hub: &HubClient) -> Result<Option<ConversationId>, CommandFailure> {
    let runs = hub.runs(&RunQuery { limit: Some(1), ..RunQuery::default() }).await?.task_runs;
    let added = hub.conversations(&PageQuery { limit: Some(1), ..PageQuery::default() }).await?.conversations;
    let run = runs.first().map(|run| (run.created_at, run.conversation_id));
    let added = added.first().map(|added| (added.created_at, added.conversation_id));
    Ok(run.max(added).map(|(_, newest)| newest))
}

/// Whether the argument matches an id: `last`, its start, its end, or both joined with `…` as shown in lists.
fn fits(typed: &str, id: &str) -> bool {
    let typed = typed.replace("...", "…");
    let bare = id.split_once('_').map_or(id, |(_, bare)| bare);
    let long_enough = |part: &str| part.len() >= MIN_PART;
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
    fn an_id_of_another_kind_is_a_usage_error() {
        for good in ["run_019a8e6b", "run_…e4f5", "e4f5", "last", "a2a-019a8e6bd0c57c3f9a55b7a1c2d3e4f5"] {
            assert_eq!(IdArg::of_run(good), Ok(IdArg(good.to_owned())));
        }
        for bad in ["agt_019a8e6b", "prm_…e4f5", "", " "] {
            assert!(IdArg::of_run(bad).is_err(), "{bad}");
        }
    }
}
