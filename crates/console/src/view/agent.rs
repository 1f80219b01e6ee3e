//! An agent as a card and as a form choice, and its devices.

use attache_protocol::wire::{
    account::{Account, Presence},
    run::{Run, SandboxLimit},
    runtime::{DeclaredExtension, Runtime, RuntimeState, WalledRuns},
};

use super::{
    actor::short,
    callsign, host,
    html::{CodeSpan, Markup, PageLink},
    run::{self, RibbonScale, ViewContext, device_name},
    status::{self, StatusBadge},
    time::{DurationElement, TimeElement},
};
use crate::text::Text;

#[derive(Debug, Clone)]
pub(crate) struct AgentTile {
    pub(crate) id: String,
    pub(crate) short: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) sign: Markup,
    pub(crate) presence: StatusBadge,
    pub(crate) paired: bool,
    pub(crate) archived: bool,
    /// Whether the viewer may manage it. Set by the page.
    pub(crate) managed: bool,
    /// The viewer may give it tasks.
    pub(crate) callable: bool,
    pub(crate) device: String,
    pub(crate) host: String,
    pub(crate) seen: Markup,
    pub(crate) created: TimeElement,
    pub(crate) now: Option<CurrentRun>,
    pub(crate) idle: Markup,
    pub(crate) idle_next: Option<Markup>,
}

/// The current run of the agent.
#[derive(Debug, Clone)]
pub(crate) struct CurrentRun {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) status: StatusBadge,
    pub(crate) duration: DurationElement,
    pub(crate) ribbon: Markup,
}

/// An agent as a choice in a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentChoice {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) chosen: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct AgentDevice {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) note: Markup,
    /// How much of the machine its runs see.
    pub(crate) walls: Option<Markup>,
    /// Warning that an old token of the device was used.
    pub(crate) alarm: Option<Markup>,
    pub(crate) class: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) active: bool,
}

// === impl AgentTile ===

impl AgentTile {
    pub(crate) fn new(account: &Account, live: Option<&Run>, view_context: ViewContext<'_>) -> Self {
        let t = view_context.t;
        let runtime = account.runtime.as_ref();
        let last_seen = runtime.and_then(|runtime| runtime.last_heartbeat_at);
        let (idle, idle_next) = idle(account, t);
        Self {
            id: account.agent_id.to_string(),
            short: short(&account.agent_id.to_string()),
            name: account.name.clone(),
            description: account.description.clone().unwrap_or_default(),
            sign: callsign::big(account.agent_id),
            presence: status::presence(account, t),
            paired: runtime.is_some(),
            archived: account.archived_at.is_some(),
            managed: false,
            callable: false,
            device: runtime.map_or_else(|| t.none.to_owned(), |runtime| device_name(runtime, t)),
            host: runtime.and_then(|runtime| host::name(&runtime.labels, t)).unwrap_or_else(|| t.no_host.to_owned()),
            seen: match last_seen {
                Some(at) => t.seen(at),
                None => Markup::text(match runtime {
                    Some(runtime) if runtime.is_only_registered() => t.registered_only,
                    Some(_) => t.never_seen,
                    None => "",
                }),
            },
            created: TimeElement::full(account.created_at),
            now: live.map(|run| CurrentRun::new(run, view_context)),
            idle,
            idle_next,
        }
    }
}

fn idle(account: &Account, t: &Text) -> (Markup, Option<Markup>) {
    match (account.status, &account.runtime) {
        (Presence::Online, _) => (Markup::text(t.idle_online), None),
        (Presence::Offline, Some(runtime)) if runtime.is_only_registered() => {
            let next = t.idle_registered_next(PageLink("/docs/channels", t.idle_registered_how));
            (Markup::text(t.idle_registered), Some(next))
        }
        (Presence::Offline, Some(runtime)) => {
            let since = runtime.last_heartbeat_at.unwrap_or(runtime.attached_at);
            let next = t.idle_offline_next(CodeSpan("attache runtime start"));
            (t.idle_offline(since), Some(next))
        }
        (Presence::Offline, None) => (Markup::text(t.idle_unpaired), None),
    }
}

// === impl CurrentRun ===

impl CurrentRun {
    fn new(run: &Run, view_context: ViewContext<'_>) -> Self {
        Self {
            id: run.task_run_id.to_string(),
            title: run::title(run, view_context.t),
            status: super::recovery::status(run, view_context.t),
            duration: run::run_duration(run, view_context.now, view_context.t),
            ribbon: run::ribbon(run, &[], view_context.now, view_context.t, RibbonScale::Absolute),
        }
    }
}

// === impl AgentChoice ===

impl AgentChoice {
    /// A choice for a new run. Marks agents that are offline or have no device.
    pub(crate) fn worker(account: &Account, chosen: &str, t: &Text) -> Self {
        let label = match (account.status, &account.runtime) {
            (Presence::Online, _) => account.name.clone(),
            (Presence::Offline, Some(_)) => t.agent_option_offline(&account.name),
            (Presence::Offline, None) => t.agent_option_unpaired(&account.name),
        };
        Self::new(account, label, chosen)
    }

    /// A choice for pairing. Names the device that would be replaced.
    pub(crate) fn home(account: &Account, chosen: &str, t: &Text) -> Self {
        let label = match &account.runtime {
            Some(runtime) => t.agent_option_paired(&account.name, device_name(runtime, t)),
            None => account.name.clone(),
        };
        Self::new(account, label, chosen)
    }

    fn new(account: &Account, label: String, chosen: &str) -> Self {
        let id = account.agent_id.to_string();
        let chosen = !chosen.is_empty() && (chosen == id || chosen == account.name);
        Self { id, label, chosen }
    }
}

// === impl AgentDevice ===

impl AgentDevice {
    pub(crate) fn new(runtime: &Runtime, t: &Text) -> Self {
        let ended = runtime.ended_at.unwrap_or(runtime.attached_at);
        let note = match runtime.state {
            RuntimeState::Active => t.device_active(runtime.attached_at),
            RuntimeState::Superseded => t.device_superseded(ended),
            RuntimeState::Revoked => t.revoked_at(ended),
        };
        let (class, icon) = match (runtime.state, runtime.status) {
            (RuntimeState::Active, Presence::Online) => ("done", "s-on"),
            (RuntimeState::Active, Presence::Offline) => ("off", "s-off"),
            (RuntimeState::Superseded | RuntimeState::Revoked, _) => ("off", "s-stop"),
        };
        Self {
            id: runtime.runtime_id.to_string(),
            name: device_name(runtime, t),
            host: host::name(&runtime.labels, t).unwrap_or_else(|| t.no_host.to_owned()),
            note,
            walls: (runtime.state == RuntimeState::Active).then(|| walls(runtime, t)),
            alarm: runtime
                .token_reused_at
                .filter(|_| runtime.state == RuntimeState::Active)
                .map(|reused| t.device_token_reused(reused)),
            class,
            icon,
            active: runtime.state == RuntimeState::Active,
        }
    }
}

fn walls(runtime: &Runtime, t: &Text) -> Markup {
    let proved = DeclaredExtension::sandbox(&runtime.extensions)
        .filter(|walls| walls.proof.limits.iter().any(|limit| limit == SandboxLimit::CwdOnly.as_str()));
    match proved.map(|walls| (walls.runs, walls.proof.proved_at)) {
        Some((WalledRuns::All, at)) => t.device_walls_all(at),
        Some((WalledRuns::Others, at)) => t.device_walls_others(at),
        Some((WalledRuns::Off, _)) => Markup::text(t.device_walls_off),
        None => Markup::text(t.device_walls_none),
    }
}
