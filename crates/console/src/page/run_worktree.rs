//! What becomes of a run's worktree, decided on the run's page by the agent's owner.

use std::time::Duration;

use attache_hub::Error;
use attache_protocol::{
    Code, EventKind, RunId,
    wire::{
        account::Presence,
        event::Event,
        run::Run,
        runtime::{RuntimeState, WORKTREE_DECISIONS},
        worktree::{DecideWorktreeRequest, WorktreeAction},
    },
};
use axum::extract::Path;

use crate::{
    form::SubmittedForm,
    page::{redirect_after_form, run::RunPageData},
    problem::{PageError, PageResult},
    session::BrowserSession,
    view::worktree::{WorktreeDevice, WorktreePanel},
};

/// The artifact in which a device shows what a run changed.
const CHANGES: &str = "worktree-changes";

/// How long a form waits for the device's answer, so that the page that follows has it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What the viewer can decide. `None` if it isn't theirs to decide, or if nothing was changed.
pub(crate) async fn panel(
    session: &BrowserSession,
    loaded: &RunPageData,
    life: &[Event],
) -> PageResult<Option<WorktreePanel>> {
    let run: &Run = &loaded.run;
    if !run.worktree || !run.status.is_terminal() {
        return Ok(None);
    }
    let known = match session.hub.worktree_decision(&session.principal, run.task_run_id, Duration::ZERO).await {
        Ok(known) => known,
        Err(Error { code: Code::Forbidden | Code::NotFound, .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if known.decision.is_none() && !life.iter().any(shows_changes) {
        return Ok(None);
    }
    let device = loaded.runtimes.iter().find(|device| device.state == RuntimeState::Active);
    let device = match device {
        Some(device) if device.status != Presence::Online => WorktreeDevice::Offline,
        Some(device) if device.extensions.iter().any(|extension| extension.uri == WORKTREE_DECISIONS) => {
            WorktreeDevice::Ready
        }
        Some(_) => WorktreeDevice::Outdated,
        None => WorktreeDevice::Offline,
    };
    Ok(Some(WorktreePanel::new(run.task_run_id, known.decision.as_ref(), device, session.t)))
}

fn shows_changes(event: &Event) -> bool {
    event.event_kind() == Some(EventKind::ArtifactChanged)
        && event.data.text_member("artifact_id").as_deref() == Some(CHANGES)
}

pub(crate) async fn decide(Path(run): Path<String>, posted: SubmittedForm) -> PageResult {
    let id: RunId = run.parse().map_err(|_| PageError::NoSuchPath)?;
    let SubmittedForm { session, fields } = posted;
    let action = WorktreeAction::from_text(fields.get("action")).ok_or(PageError::Form)?;
    let message = fields.non_empty("message").map(|message| message.replace("\r\n", "\n"));
    let (hub, by) = (&session.hub, &session.principal);
    let said = match hub.decide_worktree(by, id, DecideWorktreeRequest { action, message }).await {
        Ok(_) => {
            hub.worktree_decision(by, id, ANSWER_TIMEOUT).await?;
            ""
        }
        Err(Error { code: Code::DeviceOffline, .. }) => "?said=worktree_offline",
        // It was decided in another window.
        Err(Error { code: Code::InUse, .. }) => "?said=worktree_busy",
        Err(error) => return Err(error.into()),
    };
    Ok(redirect_after_form(&format!("/runs/{id}{said}#run-worktree")))
}
