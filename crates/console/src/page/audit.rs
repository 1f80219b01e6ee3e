//! The tenant's log for people: newest first, filtered by type, its chain checked over what is shown.

use askama::Template;
use attache_protocol::{
    EventKind,
    log::{Row, unhex},
    wire::audit::AuditPage,
};
use axum::{
    extract::{Query, State},
    http::Uri,
};
use serde::Deserialize;

use crate::{
    Console,
    page::{Viewer, address, html},
    problem::Result,
    session::Session,
    shell::{Place, Shell},
    text::{Text, fill},
    view::{
        caller::{Caller, mentioned, short},
        html::Markup,
        plain::plain,
        run::Scene,
        time::When,
    },
};

const PAGE: i64 = 50;
const WINDOW: i64 = 199;
/// How many windows a filter looks through before it shows what it has.
const SEARCH: usize = 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    #[serde(rename = "type")]
    kind: String,
    /// Rows before this seq.
    before: Option<i64>,
}

#[derive(Debug)]
struct Line {
    seq: i64,
    kind: String,
    class: &'static str,
    data: String,
    run: Option<String>,
    run_short: String,
    actor: Caller,
    at: When,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    t: &'static Text,
    shell: Shell,
    summary: String,
    kind: String,
    kinds: Vec<&'static str>,
    rows: Vec<Line>,
    chain: Markup,
    chain_ok: bool,
    scanned: Option<String>,
    newest: Option<String>,
    older: Option<String>,
}

/// Rows that were read, newest first, and what is known of their chain.
#[derive(Debug, Default)]
struct Found {
    rows: Vec<Row>,
    scanned: i64,
    /// The oldest and newest seq whose link was checked.
    checked: Option<(i64, i64)>,
    broken_at: Option<i64>,
    /// Rows before this seq were not looked at.
    rest: Option<i64>,
}

pub(crate) async fn list(
    State(console): State<Console>,
    session: Session,
    Query(asked): Query<Asked>,
    uri: Uri,
) -> Result {
    let t = session.t;
    // The hub refuses those who may not read it, before anything is rendered.
    let head = console.hub.audit(&session.principal, Some(i64::MAX), Some(1)).await?.head;
    let shell = Shell::new(&console, &session, Place::Audit, &uri).await?;
    let kind: String = asked.kind.trim().chars().take(64).collect();
    let before = asked.before.unwrap_or(head.saturating_add(1)).clamp(1, head.saturating_add(1));
    let found = find(&console, &session, &kind, before).await?;
    let mentioned = found.rows.iter().flat_map(|row| {
        let run = row.run.map(|run| run.to_string());
        mentioned(head_of(row.data.get())).chain([row.actor.clone()]).chain(run)
    });
    let viewer = Viewer::naming(&console, &session, mentioned).await?;
    let (chain, chain_ok) = chain(&found, t);
    html(&Page {
        t,
        shell,
        summary: fill(t.audit_summary, &[("head", &head.to_string())]),
        rows: found.rows.iter().map(|row| Line::new(row, viewer.scene())).collect(),
        chain,
        chain_ok,
        scanned: (!kind.is_empty()).then(|| fill(t.scanned, &[("n", &found.scanned.to_string())])),
        newest: (before <= head).then(|| address("/audit", &[("type", &kind)])),
        older: found.rest.map(|seq| address("/audit", &[("type", &kind), ("before", &seq.to_string())])),
        kinds: EventKind::logged().map(EventKind::as_str).collect(),
        kind,
    })
}

async fn find(console: &Console, session: &Session, kind: &str, before: i64) -> Result<Found> {
    let mut found = Found::default();
    let size = if kind.is_empty() { PAGE } else { WINDOW };
    let mut before = before;
    let mut size = size;
    for _ in 0..SEARCH {
        let after = (before - 1 - size).max(0);
        // One row more than shown, so that the oldest one's link can be checked too.
        let limit = usize::try_from(before - 1 - (after - 1).max(0)).unwrap_or(1).clamp(1, 200);
        let mut page = console.hub.audit(&session.principal, Some((after - 1).max(0)), Some(limit)).await?;
        // A page that is too heavy ends before its newest row: less of the log is looked at then.
        if page.next < page.head.min(before - 1) && size > 1 {
            size = (size / 4).max(1);
            continue;
        }
        page.events.retain(|row| row.seq < before);
        found.check(&page);
        let floor = page.floor;
        let mut rows: Vec<Row> = page.events.into_iter().filter(|row| row.seq > after).collect();
        found.scanned += i64::try_from(rows.len()).unwrap_or(0);
        rows.reverse();
        for row in rows {
            let full = i64::try_from(found.rows.len()).is_ok_and(|count| count >= PAGE);
            if full {
                break;
            }
            before = row.seq;
            if kind.is_empty() || row.kind == kind || row.kind.starts_with(&format!("{kind}.")) {
                found.rows.push(row);
            }
        }
        if i64::try_from(found.rows.len()).is_ok_and(|count| count >= PAGE) {
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

fn chain(found: &Found, t: &Text) -> (Markup, bool) {
    use crate::view::html::Blank;
    if let Some(at) = found.broken_at {
        return (Markup::sentence(t.chain_broken, &[("at", Blank::Text(&at.to_string()))]), false);
    }
    match found.checked {
        Some((from, to)) => {
            let (from, to) = (from.to_string(), to.to_string());
            let blanks = [("from", Blank::Text(&from)), ("to", Blank::Text(&to))];
            (Markup::sentence(t.chain_ok, &blanks), true)
        }
        None => (Markup::text(t.chain_empty), true),
    }
}

/// As much of a row's data as is looked at; a task may be long.
fn head_of(data: &str) -> &str {
    &data[..data.floor_char_boundary(4096)]
}

/// A run is called by its agent, and by the end of its id.
fn run_name(run: &str, scene: Scene<'_>) -> String {
    match scene.names.get(run) {
        Some(agent) => format!("{agent} · {}", short(run)),
        None => short(run),
    }
}

// === impl Found ===

impl Found {
    /// Checks that every row follows the one before it.
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

// === impl Line ===

impl Line {
    fn new(row: &Row, scene: Scene<'_>) -> Self {
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
        let data = plain(&scene.names.fill(head_of(row.data.get())));
        Self {
            seq: row.seq,
            kind: row.kind.clone(),
            class,
            data: data.chars().take(400).collect(),
            run: row.run.map(|run| run.to_string()),
            run_short: row.run.map(|run| run_name(&run.to_string(), scene)).unwrap_or_default(),
            actor: scene.caller(&row.actor),
            at: When::relative(row.at),
        }
    }
}
