//! The page of one run: status, log and result.

use std::collections::HashMap;

use askama::Template;
use attache_hub::{
    control::{PageRequest, RunQuery},
    stream::OutlineScope,
};
use attache_protocol::{
    Code, EventKind, RunId, RuntimeId, Timestamp,
    rules::run::RunStatus,
    wire::{
        account::Account,
        event::Event,
        run::{CancelRequest, Run},
        runtime::{Runtime, TAKES_INPUT},
    },
};
use axum::extract::{Path, Query};
use serde::Deserialize;

use crate::{
    form::SubmittedForm,
    layout::PageLayout,
    page::{
        PageViewer, html, redirect_after_form, run_facts,
        run_wait::{self, RunWaitView},
        run_worktree,
    },
    problem::{PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        delivery,
        escape_stripper::{excerpt, plain},
        fact::Fact,
        failure,
        html::Markup,
        log::{LogItem, LogItemBody, LogItemReader, join, requeue_reason},
        log_questions,
        permission::ApprovalCard,
        question::QuestionCard,
        run::{RunAgentFacts, RunPageDetail, WaitSpan, device_names, task},
        status,
        time::{TimeElement, size},
        tool_input::ToolInputBlock,
        worktree::WorktreePanel,
    },
};

/// The number and total size of events per page. The rest follows over the stream or on the next page.
const MAX_EVENTS: usize = 1_000;
const MAX_PAGE_BYTES: usize = 384 * 1024;
const READ_BATCH: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunPageQuery {
    after: i64,
}

#[derive(Debug)]
struct TimelineStep {
    class: &'static str,
    icon: &'static str,
    word: &'static str,
    note: Option<Markup>,
    at: TimeElement,
}

#[derive(Debug)]
struct ArtifactLink {
    id: String,
    name: String,
    size: String,
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    t: &'static Text,
    shell: PageLayout,
    run: RunPageDetail,
    log: Vec<LogItem>,
    /// The seq of the first event shown.
    first: i64,
    /// The seq of the newest event shown.
    after: i64,
    /// The seq of the run's newest event.
    last_seq: i64,
    more: bool,
    timeline: Vec<TimelineStep>,
    artifacts: Vec<ArtifactLink>,
    facts: Vec<Fact>,
    told: Vec<delivery::DeliveryListRow>,
    cards: Vec<ApprovalCard>,
    question: Option<QuestionCard>,
    worktree: Option<WorktreePanel>,
    /// The path to return to after a decision.
    back: &'static str,
}

#[derive(Template)]
#[template(path = "run_part.html")]
struct RunPartFragment {
    t: &'static Text,
    shell: PageLayout,
    run: RunPageDetail,
    timeline: Vec<TimelineStep>,
    artifacts: Vec<ArtifactLink>,
    facts: Vec<Fact>,
    told: Vec<delivery::DeliveryListRow>,
    cards: Vec<ApprovalCard>,
    question: Option<QuestionCard>,
    worktree: Option<WorktreePanel>,
    /// The path to return to after a decision.
    back: &'static str,
}

/// A run and everything that its page needs.
pub(crate) struct RunPageData {
    pub(crate) run: Run,
    account: Option<Account>,
    pub(crate) runtimes: Vec<Runtime>,
    busy_with: Option<Run>,
    /// Lifecycle events.
    life: Vec<Event>,
    waits: Vec<WaitSpan>,
    pub(crate) wait: RunWaitView,
}

pub(crate) async fn show(
    session: BrowserSession,
    Path(run): Path<String>,
    Query(asked): Query<RunPageQuery>,
) -> PageResult {
    let t = session.t;
    let after = asked.after.max(0);
    let shell = PageLayout::new(&session).await?;
    let loaded = load(&session, run.parse().map_err(|_| PageError::NoSuchPath)?).await?;
    let events = log_page(&session, &loaded.run, after).await?;
    let viewer = viewer(&session, &loaded.run, &events).await?;
    let mut reader = reader(&loaded.run, &loaded.runtimes, &viewer, t);
    let last = events.last().map_or(after, |event| event.seq);
    let log = join(events.iter().map(|event| reader.item(event)));
    html(&RunPage {
        t,
        run: RunPageDetail::new(&loaded.run, loaded.around(), viewer.view_context()),
        log,
        first: events.first().map_or(after + 1, |event| event.seq),
        after: last,
        last_seq: loaded.run.last_seq,
        more: last < loaded.run.last_seq,
        timeline: timeline(&loaded, &viewer, t),
        artifacts: files(&session, &loaded.run).await?,
        facts: run_facts::facts(&session, &loaded.run).await?,
        worktree: run_worktree::panel(&session, &loaded, &loaded.life).await?,
        told: run_facts::recent_deliveries(&session, &loaded.run).await?,
        cards: loaded.wait.cards,
        question: loaded.wait.question,
        back: "run",
        shell,
    })
}

/// The page without its log, to refresh it after a change.
pub(crate) async fn part(session: BrowserSession, Path(run): Path<String>) -> PageResult {
    let t = session.t;
    let shell = PageLayout::new(&session).await?;
    let loaded = load(&session, run.parse().map_err(|_| PageError::NoSuchPath)?).await?;
    let viewer = viewer(&session, &loaded.run, &[]).await?;
    html(&RunPartFragment {
        t,
        run: RunPageDetail::new(&loaded.run, loaded.around(), viewer.view_context()),
        timeline: timeline(&loaded, &viewer, t),
        artifacts: files(&session, &loaded.run).await?,
        facts: run_facts::facts(&session, &loaded.run).await?,
        worktree: run_worktree::panel(&session, &loaded, &loaded.life).await?,
        told: run_facts::recent_deliveries(&session, &loaded.run).await?,
        cards: loaded.wait.cards,
        question: loaded.wait.question,
        back: "run",
        shell,
    })
}

pub(crate) async fn cancel(Path(run): Path<String>, posted: SubmittedForm) -> PageResult {
    let id: RunId = run.parse().map_err(|_| PageError::NoSuchPath)?;
    let request = CancelRequest { reason: posted.fields.non_empty("reason") };
    match posted.session.hub.cancel_run(&posted.session.principal, id, request).await {
        Ok(_) => {}
        // The run has just ended. Its page shows how.
        Err(error) if error.code == Code::RunEnded => {}
        Err(error) => return Err(error.into()),
    }
    Ok(match posted.fields.get("back") {
        "conversation" => {
            let run = posted.session.hub.run(&posted.session.principal, id).await?;
            redirect_after_form(&format!("/conversations/{}", run.conversation_id))
        }
        _ => redirect_after_form(&format!("/runs/{id}")),
    })
}

/// The view context of a run, with the names that it and these events mention.
pub(crate) async fn viewer(session: &BrowserSession, run: &Run, events: &[Event]) -> PageResult<PageViewer> {
    PageViewer::naming(session, events.iter().filter_map(log_questions::actor).chain([run.caller.clone()])).await
}

/// Creates the log reader of a run, for its page and its stream.
pub(crate) fn reader(run: &Run, runtimes: &[Runtime], viewer: &PageViewer, t: &'static Text) -> LogItemReader {
    let view_context = viewer.view_context();
    let asked_by = view_context.caller(&run.caller).who;
    LogItemReader::new(view_context, asked_by, excerpt(task(run), t), device_names(runtimes, t))
}

/// The devices of the run's agent, newest first.
pub(crate) async fn runtimes(session: &BrowserSession, run: &Run) -> PageResult<Vec<Runtime>> {
    let page = PageRequest { limit: Some(20), cursor: None };
    let agent = run.agent_id.to_string();
    let mut runtimes = match session.hub.runtimes(&session.principal, Some(&agent), page).await {
        Ok(list) => list.agent_runtimes,
        Err(error) if error.code == Code::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    if let Some(id) = run.runtime_id
        && !runtimes.iter().any(|runtime| runtime.runtime_id == id)
        && let Ok(runtime) = session.hub.runtime(&session.principal, id).await
    {
        runtimes.push(runtime);
    }
    Ok(runtimes)
}

pub(crate) async fn load(session: &BrowserSession, id: RunId) -> PageResult<RunPageData> {
    let (hub, by) = (&session.hub, &session.principal);
    let run = hub.run(by, id).await?;
    let account = hub.account(by, &run.agent_id.to_string()).await.ok();
    let runtimes = runtimes(session, &run).await?;
    let busy_with = match run.status {
        RunStatus::Pending => {
            let query = RunQuery {
                status: Some(RunStatus::Running),
                agent_id: Some(run.agent_id.to_string()),
                limit: Some(1),
                ..RunQuery::default()
            };
            hub.runs(by, query).await?.task_runs.into_iter().next()
        }
        RunStatus::Running | RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled => None,
    };
    let life = hub.run_outline(by, id, i64::MAX, OutlineScope::Artifacts).await?.events;
    let waits = wait_spans(&life);
    let wait = run_wait::load(session, &run).await?;
    Ok(RunPageData { run, account, runtimes, busy_with, life, waits, wait })
}

/// The events of one page: at least one, if there are any.
pub(crate) async fn log_page(session: &BrowserSession, run: &Run, after: i64) -> PageResult<Vec<Event>> {
    let (mut events, mut cursor, mut weight) = (Vec::new(), after, 0);
    while events.len() < MAX_EVENTS {
        let page = session.hub.run_events(&session.principal, run.task_run_id, Some(cursor), Some(READ_BATCH)).await?;
        if page.events.is_empty() {
            break;
        }
        cursor = page.next;
        for event in page.events {
            weight += shown_weight(&event);
            if weight > MAX_PAGE_BYTES && !events.is_empty() {
                return Ok(events);
            }
            events.push(event);
        }
    }
    Ok(events)
}

/// Only the name of an artifact is shown here, and the result is shown elsewhere.
fn shown_weight(event: &Event) -> usize {
    match event.event_kind() {
        Some(
            EventKind::ArtifactChanged | EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCancelled,
        ) => 0,
        _ => event.data.get().len(),
    }
}

async fn files(session: &BrowserSession, run: &Run) -> PageResult<Vec<ArtifactLink>> {
    let page = PageRequest { limit: Some(200), cursor: None };
    let list = session.hub.artifacts(&session.principal, run.workspace_id, page).await?;
    let own = list.artifacts.into_iter().filter(|file| file.produced_by == Some(run.task_run_id));
    Ok(own
        .map(|file| ArtifactLink { id: file.artifact_id.to_string(), name: file.name, size: size(file.size) })
        .collect())
}

/// When the run waited for people: from an event that says so to the next of its life.
fn wait_spans(life: &[Event]) -> Vec<WaitSpan> {
    let mut spans: Vec<WaitSpan> = Vec::new();
    for event in life {
        let Some(kind) = event.event_kind() else { continue };
        let waits = kind == EventKind::TaskWaiting && event.data.text_member("waiting").is_some();
        match spans.last_mut().filter(|span| span.until.is_none()) {
            Some(_) if waits => {}
            Some(open) if kind.is_pushed() => open.until = Some(event.at),
            None if waits => spans.push(WaitSpan { since: event.at, until: None }),
            _ => {}
        }
    }
    spans
}

fn timeline(loaded: &RunPageData, viewer: &PageViewer, t: &'static Text) -> Vec<TimelineStep> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct TimelineEventData {
        runtime_id: Option<RuntimeId>,
        attempt: Option<i64>,
        reason: Option<String>,
        code: Option<String>,
        waiting: Option<String>,
        until: Option<Timestamp>,
    }
    let run = &loaded.run;
    let names: HashMap<_, _> = device_names(&loaded.runtimes, t);
    let caller = viewer.view_context().caller(&run.caller).who;
    let mut steps = vec![TimelineStep {
        class: "",
        icon: "s-dot",
        word: t.created,
        note: Some(t.step_by(&caller)),
        at: TimeElement::clock(run.created_at),
    }];
    for event in &loaded.life {
        let data: TimelineEventData = event.data.parse().unwrap_or_default();
        let at = TimeElement::clock(event.at);
        let step = match event.event_kind() {
            Some(EventKind::TaskClaimed) => {
                let device = data.runtime_id.and_then(|id| names.get(&id)).map_or(t.unknown_device, String::as_str);
                let note = Some(t.step_claimed_note(device, data.attempt.unwrap_or(1)));
                TimelineStep { class: "", icon: "s-dot", word: t.step_claimed, note, at }
            }
            Some(EventKind::TaskRequeued) => {
                let reason = requeue_reason(data.reason.as_deref().unwrap_or_default(), t);
                let note = Some(Markup::text(&reason));
                TimelineStep { class: "queued", icon: "s-queued", word: t.step_requeued, note, at }
            }
            Some(EventKind::TaskDeferred) => {
                let note = data.until.map(|until| t.step_deferred_note(TimeElement::clock(until)));
                TimelineStep { class: "queued", icon: "s-queued", word: t.step_deferred, note, at }
            }
            Some(EventKind::TaskWaiting) => {
                let (class, icon, word) = match data.waiting.as_deref() {
                    Some("input") => ("wait", "s-wait", t.log_waiting_input),
                    Some(_) => ("wait", "s-wait", t.log_waiting_approval),
                    None => ("live", "s-dot", t.log_waiting_over),
                };
                TimelineStep { class, icon, word, note: None, at }
            }
            _ => continue,
        };
        steps.push(step);
    }
    if let Some(ended) = run.ended_at {
        let shown = status::of(run.status, t);
        let result = |name| run.task_result.as_ref().and_then(|result| result.text_member(name)).unwrap_or_default();
        let (word, note) = match run.status {
            RunStatus::Failed => (t.status_failed, Some(Markup::text(failure::explain(&result("code"), t).0))),
            RunStatus::Cancelled => {
                let reason = result("error");
                let said = !reason.is_empty() && reason != "cancelled";
                (t.status_cancelled, said.then(|| Markup::text(&plain(&reason))))
            }
            RunStatus::Completed | RunStatus::Pending | RunStatus::Running => (t.status_completed, None),
        };
        steps.push(TimelineStep { class: shown.class, icon: shown.icon, word, note, at: TimeElement::clock(ended) });
    }
    steps
}

// === impl RunPageData ===

impl RunPageData {
    /// Whether the agent takes a message while it works on this run.
    pub(crate) fn takes_input(&self) -> bool {
        let device = self.run.runtime_id.and_then(|id| self.runtimes.iter().find(|runtime| runtime.runtime_id == id));
        let declares = |device: &Runtime| device.extensions.iter().any(|extension| extension.uri == TAKES_INPUT);
        self.run.status == RunStatus::Running && device.is_some_and(declares)
    }

    pub(crate) fn around(&self) -> RunAgentFacts<'_> {
        let device = self.run.runtime_id.and_then(|id| self.runtimes.iter().find(|runtime| runtime.runtime_id == id));
        let (account, busy_with) = (self.account.as_ref(), self.busy_with.as_ref());
        RunAgentFacts { account, device, busy_with, moved: self.wait.moved, waits: &self.waits }
    }
}
