//! The audit log: newest first, filtered by type, with a check of the hash chain over the rows shown.

use askama::Template;
use attache_protocol::{EventKind, digest::unhex, log::LogRow, wire::audit::AuditPage};
use axum::extract::Query;
use serde::Deserialize;

use crate::{
    layout::PageLayout,
    page::{PageViewer, address, html},
    problem::PageResult,
    session::BrowserSession,
    text::Text,
    view::{
        actor::{ActorLabel, mentioned, short},
        escape_stripper::plain,
        html::Markup,
        run::ViewContext,
        time::TimeElement,
    },
};

const PAGE_SIZE: i64 = 50;
const WINDOW_SIZE: i64 = 199;
/// How many windows a filter reads before it shows its matches.
const MAX_WINDOWS: usize = 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AuditPageQuery {
    #[serde(rename = "type")]
    kind: String,
    /// Rows before this seq.
    before: Option<i64>,
}

#[derive(Debug)]
struct AuditLogRow {
    seq: i64,
    kind: String,
    class: &'static str,
    data: String,
    run: Option<String>,
    run_short: String,
    actor: ActorLabel,
    at: TimeElement,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditLogPage {
    t: &'static Text,
    shell: PageLayout,
    summary: String,
    kind: String,
    kinds: Vec<&'static str>,
    rows: Vec<AuditLogRow>,
    chain: Markup,
    chain_ok: bool,
    scanned: Option<String>,
    newest: Option<String>,
    older: Option<String>,
}

/// The rows read, newest first, and the state of their hash chain.
#[derive(Debug, Default)]
struct AuditWindow {
    rows: Vec<LogRow>,
    scanned: i64,
    /// The oldest and newest seq whose link was checked.
    checked: Option<(i64, i64)>,
    broken_at: Option<i64>,
    /// Rows before this seq were not read.
    rest: Option<i64>,
}

pub(crate) async fn list(session: BrowserSession, Query(asked): Query<AuditPageQuery>) -> PageResult {
    let t = session.t;
    // The hub checks permission before anything is rendered.
    let head = session.hub.audit(&session.principal, Some(i64::MAX), Some(1)).await?.head;
    let shell = PageLayout::new(&session).await?;
    let kind: String = asked.kind.trim().chars().take(64).collect();
    let before = asked.before.unwrap_or(head.saturating_add(1)).clamp(1, head.saturating_add(1));
    let found = find(&session, &kind, before).await?;
    let mentioned = found.rows.iter().flat_map(|row| {
        let run = row.run.map(|run| run.to_string());
        mentioned(head_of(row.data.get())).chain([row.actor.clone()]).chain(run)
    });
    let viewer = PageViewer::naming(&session, mentioned).await?;
    let (chain, chain_ok) = chain(&found, t);
    html(&AuditLogPage {
        t,
        shell,
        summary: t.audit_summary(head.unsigned_abs()),
        rows: found.rows.iter().map(|row| AuditLogRow::new(row, viewer.view_context())).collect(),
        chain,
        chain_ok,
        scanned: (!kind.is_empty()).then(|| t.scanned(found.scanned.unsigned_abs())),
        newest: (before <= head).then(|| address("/audit", &[("type", &kind)])),
        older: found.rest.map(|seq| address("/audit", &[("type", &kind), ("before", &seq.to_string())])),
        kinds: EventKind::logged().map(EventKind::as_str).collect(),
        kind,
    })
}

async fn find(session: &BrowserSession, kind: &str, before: i64) -> PageResult<AuditWindow> {
    let mut found = AuditWindow::default();
    let size = if kind.is_empty() { PAGE_SIZE } else { WINDOW_SIZE };
    let mut before = before;
    let mut size = size;
    for _ in 0..MAX_WINDOWS {
        let after = (before - 1 - size).max(0);
        // Read one row more than shown, to check the link of the oldest one.
        let limit = usize::try_from(before - 1 - (after - 1).max(0)).unwrap_or(1).clamp(1, 200);
        let mut page = session.hub.audit(&session.principal, Some((after - 1).max(0)), Some(limit)).await?;
        // If the page is too heavy to include the newest row, retry with a smaller window.
        if page.next < page.head.min(before - 1) && size > 1 {
            size = (size / 4).max(1);
            continue;
        }
        page.events.retain(|row| row.seq < before);
        found.check(&page);
        let floor = page.floor;
        let mut rows: Vec<LogRow> = page.events.into_iter().filter(|row| row.seq > after).collect();
        found.scanned += i64::try_from(rows.len()).unwrap_or(0);
        rows.reverse();
        for row in rows {
            let full = i64::try_from(found.rows.len()).is_ok_and(|count| count >= PAGE_SIZE);
            if full {
                break;
            }
            before = row.seq;
            if kind.is_empty() || row.kind == kind || row.kind.starts_with(&format!("{kind}.")) {
                found.rows.push(row);
            }
        }
        if i64::try_from(found.rows.len()).is_ok_and(|count| count >= PAGE_SIZE) {
            break;
        }
        before = before.min(after + 1);
        if after <= floor {
            before = 0;
            break;
        }
    }
    found.rest = (before > 1).then_some(before);
    Ok(found)
}

fn chain(found: &AuditWindow, t: &Text) -> (Markup, bool) {
    match (found.broken_at, found.checked) {
        (Some(at), _) => (t.chain_broken(at), false),
        (None, Some((from, to))) => (t.chain_ok(from, to), true),
        (None, None) => (Markup::text(t.chain_empty), true),
    }
}

/// How many bytes of a row's data are used. A task may be long.
fn head_of(data: &str) -> &str {
    &data[..data.floor_char_boundary(4096)]
}

/// The label of a run: its agent and the end of its id.
fn run_name(run: &str, view_context: ViewContext<'_>) -> String {
    match view_context.names.get(run) {
        Some(agent) => format!("{agent} · {}", short(run)),
        None => short(run),
    }
}

// === impl AuditWindow ===

impl AuditWindow {
    /// Checks that every row links to the one before it.
    fn check(&mut self, page: &AuditPage) {
        let mut previous =
            page.events.first().filter(|row| row.seq == page.floor + 1).and_then(|_| unhex(&page.floor_hash));
        for row in &page.events {
            if let Some(hash) = previous {
                if !row.follows(&hash) {
                    self.broken_at = Some(row.seq);
                }
                let (from, to) = self.checked.unwrap_or((row.seq, row.seq));
                self.checked = Some((from.min(row.seq), to.max(row.seq)));
            }
            previous = unhex(&row.hash);
        }
    }
}

// === impl AuditLogRow ===

impl AuditLogRow {
    fn new(row: &LogRow, view_context: ViewContext<'_>) -> Self {
        let class = match row.event_kind() {
            Some(
                EventKind::TaskFailed
                | EventKind::TaskRefused
                | EventKind::RuntimeRevoked
                | EventKind::RuntimeTokenReused
                | EventKind::KeyRevoked,
            ) => "fail",
            Some(EventKind::TaskCompleted | EventKind::RuntimeOnline | EventKind::RuntimeAttached) => "done",
            Some(EventKind::TaskClaimed) => "live",
            _ => "",
        };
        let data = plain(&view_context.names.fill(head_of(row.data.get())));
        Self {
            seq: row.seq,
            kind: row.kind.clone(),
            class,
            data: data.chars().take(400).collect(),
            run: row.run.map(|run| run.to_string()),
            run_short: row.run.map(|run| run_name(&run.to_string(), view_context)).unwrap_or_default(),
            actor: view_context.caller(&row.actor),
            at: TimeElement::relative(row.at),
        }
    }
}
