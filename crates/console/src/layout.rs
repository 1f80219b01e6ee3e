//! The layout of every page: navigation, theme and the viewer's rights.

use attache_hub::identity::{AccessVerdict, Action};
use axum::http::{HeaderMap, Uri};

use crate::{
    assets,
    page::{NAV, names},
    problem::PageResult,
    session::{BrowserSession, cookie},
    text::Text,
    view::person,
};

#[derive(Debug, Clone)]
pub(crate) struct PageLayout {
    pub(crate) assets: &'static str,
    pub(crate) theme: Theme,
    pub(crate) shortcuts: Shortcuts,
    /// The viewer's name, or their role if they have none.
    pub(crate) me: String,
    pub(crate) csrf: String,
    /// Idempotency key: a form that is submitted twice is one request.
    pub(crate) nonce: String,
    pub(crate) may: ViewerRights,
    /// The number of approval requests and questions that wait for a person.
    pub(crate) asked: u64,
    pub(crate) live_runs: Option<String>,
    pub(crate) origin_host: String,
    pub(crate) store_line: String,
    pub(crate) notice: Option<&'static str>,
    /// The position where the live feed starts, if the viewer may read the log.
    pub(crate) after: String,
    /// The page's own path, even if a form rendered it.
    pub(crate) here: String,
}

/// The layout of a page without navigation.
#[derive(Debug, Clone)]
pub(crate) struct BareLayout {
    pub(crate) assets: &'static str,
    pub(crate) theme: Theme,
    /// Where the language switch leads back to.
    pub(crate) here: String,
}

/// A link of the navigation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NavLink {
    pub(crate) path: &'static str,
    /// The link that stands for this one in the main navigation. Empty if this one does.
    parent: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) width: NavWidth,
    text: fn(&'static Text) -> &'static str,
    condition: fn(ViewerRights) -> bool,
}

/// The windows whose main navigation has a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NavWidth {
    Any,
    /// Not on a phone, where it is on the page of all others.
    Wide,
    /// Only on a phone.
    Narrow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    Auto,
    Light,
    Dark,
}

/// Whether single keys do something. Some people's input software types letters that nobody pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortcuts {
    On,
    Off,
}

/// The viewer's rights, so that a page offers nothing that the hub would refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ViewerRights {
    pub(crate) operate: bool,
    /// Decide approval requests.
    pub(crate) decide: bool,
    /// Answer input requests.
    pub(crate) answer: bool,
    /// Create agents, and pair devices with agents that they manage.
    pub(crate) manage: bool,
    /// Use API keys, at least their own.
    pub(crate) keys: bool,
    /// Add, change and remove people.
    pub(crate) users: bool,
    /// See sessions, at least their own.
    pub(crate) sessions: bool,
    /// See their own notification targets.
    pub(crate) notifications: bool,
    pub(crate) audit: bool,
    pub(crate) rules: bool,
    pub(crate) usage: bool,
    /// Resend deliveries.
    pub(crate) resend: bool,
}

// === impl PageLayout ===

impl PageLayout {
    pub(crate) async fn new(session: &BrowserSession) -> PageResult<Self> {
        let (hub, by, t) = (&session.hub, &session.principal, session.t);
        let may = |action| by.verdict(action) == AccessVerdict::Yes;
        let may = ViewerRights {
            operate: may(Action::CreateRun),
            decide: may(Action::DecidePermission),
            answer: may(Action::GiveInput),
            manage: may(Action::CreateAgent) && by.verdict(Action::CreatePairingCode) != AccessVerdict::No,
            keys: by.verdict(Action::CreateKey) != AccessVerdict::No,
            users: may(Action::CreateUser) && may(Action::EditUser),
            sessions: by.verdict(Action::SeeSessions) != AccessVerdict::No,
            notifications: by.verdict(Action::SeeNotifications) != AccessVerdict::No,
            audit: may(Action::SeeAudit),
            rules: may(Action::SeeRules),
            usage: by.verdict(Action::SeeUsage) != AccessVerdict::No,
            resend: may(Action::ResendDelivery),
        };
        // Read before everything else, so that the feed covers every change that the page misses.
        let after =
            if may.audit { hub.audit(by, Some(i64::MAX), Some(1)).await?.head.to_string() } else { String::new() };
        let live = hub.live(by).await?;
        let mut asked = 0;
        if by.verdict(Action::SeePermissions) == AccessVerdict::Yes {
            asked += hub.pending_permissions(by).await?;
        }
        if live.running > 0 {
            asked += u64::try_from(hub.open_questions(by).await?.len()).unwrap_or(u64::MAX);
        }
        let count = live.pending + live.running;
        let origin = hub.origin();
        let health = hub.health();
        let durability = durability(&health.durability, t);
        Ok(Self {
            assets: assets::base(),
            theme: session.theme,
            shortcuts: session.shortcuts,
            me: viewer_name(session).await?,
            csrf: session.csrf.clone(),
            nonce: format!("console-{}", hub.env().uuid().simple()),
            may,
            asked,
            live_runs: (count > 0).then(|| t.live_count(count)),
            origin_host: origin.split_once("://").map_or(origin.as_str(), |(_, host)| host).to_owned(),
            store_line: match health.durability.as_str() {
                "nothing" => durability,
                _ => t.store_line(&health.store, &durability),
            },
            notice: notice(&session.uri, t),
            after,
            here: session.uri.path_and_query().map_or_else(|| session.uri.path().to_owned(), ToString::to_string),
        })
    }

    /// The start of the window's title: how many things wait.
    pub(crate) fn title_count(&self) -> String {
        if self.asked == 0 { String::new() } else { format!("({}) ", self.asked) }
    }

    /// Whether the page belongs to this section.
    pub(crate) fn is_in(&self, path: &str) -> bool {
        let rest = self.here.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
    }

    /// The main navigation, as far as the viewer may use it.
    pub(crate) fn main_links(&self) -> impl Iterator<Item = NavLink> {
        self.links().filter(|link| link.parent.is_empty())
    }

    /// The tabs of the settings.
    pub(crate) fn settings_links(&self) -> impl Iterator<Item = NavLink> {
        self.links().filter(|link| link.parent == "/settings")
    }

    /// Every page that the viewer may use, once.
    pub(crate) fn all_links(&self) -> impl Iterator<Item = NavLink> {
        self.links().filter(|link| link.width != NavWidth::Narrow && link.path != "/approvals")
    }

    /// What a phone's main navigation has no room for.
    pub(crate) fn more_links(&self) -> impl Iterator<Item = NavLink> {
        self.links().filter(|link| link.width == NavWidth::Wide)
    }

    fn links(&self) -> impl Iterator<Item = NavLink> {
        NAV.into_iter().filter(|link| (link.condition)(self.may))
    }

    /// Whether a link of the main navigation leads to this page or stands for it.
    pub(crate) fn is_below(&self, link: &NavLink) -> bool {
        let below = |path| self.is_in(path) || NAV.iter().any(|other| other.parent == path && self.is_in(other.path));
        let stands_for = |other: &NavLink| link.width == NavWidth::Narrow && other.width == NavWidth::Wide;
        below(link.path) || NAV.iter().any(|other| stands_for(other) && below(other.path))
    }

    /// The first segment of the page's path.
    pub(crate) fn section(&self) -> &str {
        let end = self.here.get(1..).and_then(|rest| rest.find(['/', '?']));
        end.map_or(self.here.as_str(), |end| &self.here[..=end])
    }
}

async fn viewer_name(session: &BrowserSession) -> PageResult<String> {
    let by = &session.principal;
    let role = by.role().map_or_else(String::new, |role| person::role(role, session.t).to_owned());
    let Some(user) = by.user else { return Ok(role) };
    let id = user.to_string();
    let found = names(session, [id.clone()]).await?;
    Ok(found.get(&id).map_or(role.clone(), |name| session.t.me_as(name, &role)))
}

/// The durability of acknowledged writes, as text.
pub(crate) fn durability(class: &str, t: &Text) -> String {
    match class {
        "power_loss" => t.durability_power_loss.to_owned(),
        "nothing" => t.durability_nothing.to_owned(),
        other => t.durability_other(other),
    }
}

/// The notice after a form. Only known values are shown, so a link can't inject text.
fn notice(uri: &Uri, t: &'static Text) -> Option<&'static str> {
    let said = uri.query()?.split('&').find_map(|pair| pair.strip_prefix("said="))?;
    match said {
        "saved" => Some(t.said_saved),
        "shared" => Some(t.said_shared),
        "revoked" => Some(t.said_revoked),
        "archived" => Some(t.said_archived),
        "confirmed" => Some(t.said_confirmed),
        "rejected" => Some(t.said_rejected),
        "allowed" => Some(t.said_allowed),
        "denied" => Some(t.said_denied),
        "sent" => Some(t.said_sent),
        "cancelled" => Some(t.said_cancelled),
        "cancelled_none" => Some(t.said_cancelled_none),
        "rerun" => Some(t.said_rerun),
        "rerun_none" => Some(t.said_rerun_none),
        "added" => Some(t.said_added),
        "removed" => Some(t.said_removed),
        "password" => Some(t.said_password),
        "resent" => Some(t.said_resent),
        "rules" => Some(t.said_rules),
        "quota" => Some(t.said_quota),
        "ending" => Some(t.said_ending),
        "session" => Some(t.said_session),
        "view" => Some(t.said_view),
        "view_removed" => Some(t.said_view_removed),
        "worktree_offline" => Some(t.said_worktree_offline),
        "worktree_busy" => Some(t.said_worktree_busy),
        "passkey_added" => Some(t.said_passkey_added),
        "passkey_removed" => Some(t.said_passkey_removed),
        "notify_on" => Some(t.said_notify_on),
        "notify_off" => Some(t.said_notify_off),
        "notify_tested" => Some(t.said_notify_tested),
        _ => None,
    }
}

// === impl BareLayout ===

impl BareLayout {
    pub(crate) fn new(headers: &HeaderMap, here: &str) -> Self {
        Self { assets: assets::base(), theme: Theme::of(headers), here: here.to_owned() }
    }
}

// === impl NavLink ===

impl NavLink {
    pub(crate) const fn main(path: &'static str, icon: &'static str, text: fn(&'static Text) -> &'static str) -> Self {
        Self { path, parent: "", icon, width: NavWidth::Any, text, condition: |_| true }
    }

    pub(crate) const fn below(
        parent: &'static str,
        path: &'static str,
        text: fn(&'static Text) -> &'static str,
    ) -> Self {
        Self { parent, ..Self::main(path, "", text) }
    }

    pub(crate) const fn wide(self) -> Self {
        Self { width: NavWidth::Wide, ..self }
    }

    pub(crate) const fn narrow(self) -> Self {
        Self { width: NavWidth::Narrow, ..self }
    }

    /// The CSS class of its list item.
    pub(crate) const fn class(&self) -> &'static str {
        match self.width {
            NavWidth::Any => "",
            NavWidth::Wide => "wide",
            NavWidth::Narrow => "narrow-only",
        }
    }

    pub(crate) const fn only_if(self, condition: fn(ViewerRights) -> bool) -> Self {
        Self { condition, ..self }
    }

    pub(crate) fn label(&self, t: &'static Text) -> &'static str {
        (self.text)(t)
    }
}

// === impl Theme ===

impl Theme {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        cookie(headers, "theme").map_or(Self::Auto, Self::from_text)
    }

    pub(crate) fn from_text(text: &str) -> Self {
        match text {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::Auto,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    pub(crate) fn is_chosen(self) -> bool {
        self != Self::Auto
    }
}

// === impl Shortcuts ===

impl Shortcuts {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        cookie(headers, "shortcuts").map_or(Self::On, Self::from_text)
    }

    pub(crate) fn from_text(text: &str) -> Self {
        if text == "off" { Self::Off } else { Self::On }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}
