//! A run's worktree on its page: what was decided about it, and what can be.

use attache_protocol::{
    RunId,
    wire::worktree::{WorktreeAction, WorktreeDecision, WorktreeDecisionState, WorktreeOutcome, WorktreeResult},
};

use super::{
    escape_stripper::plain,
    html::{CodeSpan, Markup},
    time::TimeElement,
};
use crate::text::Text;

/// How many files are named.
const MAX_FILES: usize = 20;

/// Whether the device can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorktreeDevice {
    Ready,
    Offline,
    /// It takes no decisions from here.
    Outdated,
}

#[derive(Debug)]
pub(crate) struct WorktreePanel {
    pub(crate) branch: String,
    /// What became of the last decision: class, icon, sentence, and when.
    pub(crate) state: Option<(&'static str, &'static str, Markup, TimeElement)>,
    pub(crate) files: Vec<String>,
    pub(crate) more_files: Option<String>,
    pub(crate) advice: Option<Markup>,
    /// Whether something can be decided now.
    pub(crate) is_open: bool,
}

// === impl WorktreePanel ===

impl WorktreePanel {
    pub(crate) fn new(
        run: RunId,
        decision: Option<&WorktreeDecision>,
        device: WorktreeDevice,
        t: &'static Text,
    ) -> Self {
        let branch = format!("attache/{run}");
        let outcome = decision.and_then(|decision| decision.outcome.as_ref());
        let state = decision.map(|decision| {
            let (class, icon, text) = sentence(decision, t);
            (class, icon, text, TimeElement::relative(decision.settled_at.unwrap_or(decision.decided_at)))
        });
        let all = outcome.map_or(&[][..], |outcome| &outcome.files);
        let more = all.len().saturating_sub(MAX_FILES) as u64;
        let is_pending = decision.is_some_and(|decision| decision.state == WorktreeDecisionState::Pending);
        let is_gone = decision.is_some_and(is_gone);
        let merge = format!("git merge {branch}");
        let advice = match outcome.map(|outcome| outcome.result) {
            _ if is_pending || is_gone => None,
            Some(WorktreeResult::Conflict) => Some(t.worktree_conflict_do(CodeSpan(&merge))),
            _ if device == WorktreeDevice::Offline => Some(Markup::marked(t.worktree_offline)),
            _ if device == WorktreeDevice::Outdated => Some(Markup::marked(t.worktree_outdated)),
            Some(WorktreeResult::Done)
                if decision.is_some_and(|decision| decision.action == WorktreeAction::Commit) =>
            {
                Some(t.worktree_merge(CodeSpan(&merge)))
            }
            _ => None,
        };
        Self {
            branch,
            state,
            files: all.iter().take(MAX_FILES).map(|file| plain(file)).collect(),
            more_files: (more > 0).then(|| t.worktree_more(more)),
            advice,
            is_open: !is_pending && !is_gone && device == WorktreeDevice::Ready,
        }
    }
}

/// Nothing is left to decide about.
fn is_gone(decision: &WorktreeDecision) -> bool {
    let result = decision.outcome.as_ref().map(|outcome| outcome.result);
    match result {
        Some(WorktreeResult::Absent) => true,
        Some(WorktreeResult::Done) => decision.action == WorktreeAction::Discard,
        _ => false,
    }
}

fn sentence(decision: &WorktreeDecision, t: &'static Text) -> (&'static str, &'static str, Markup) {
    let Some(outcome) = &decision.outcome else {
        return match decision.state {
            WorktreeDecisionState::Pending => ("live", "s-live", Markup::text(t.worktree_pending)),
            WorktreeDecisionState::Settled | WorktreeDecisionState::Unanswered => {
                ("stop", "s-stop", Markup::marked(t.worktree_unanswered))
            }
        };
    };
    let WorktreeOutcome { result, commit, folder, files, message, .. } = outcome;
    let folder = plain(folder.as_deref().unwrap_or_default());
    let folder = CodeSpan(&folder);
    match result {
        WorktreeResult::Done => {
            let text = match decision.action {
                WorktreeAction::Commit => {
                    let commit = plain(commit.as_deref().unwrap_or_default());
                    t.worktree_committed(CodeSpan(commit.get(..12).unwrap_or(&commit)))
                }
                WorktreeAction::Apply if files.is_empty() => t.worktree_applied_none(folder),
                WorktreeAction::Apply => t.worktree_applied(folder),
                WorktreeAction::Discard if message.is_some() => t.worktree_discarded_moved(folder),
                WorktreeAction::Discard => Markup::text(t.worktree_discarded),
            };
            ("done", "s-done", text)
        }
        WorktreeResult::Unchanged => ("stop", "s-stop", Markup::text(t.worktree_unchanged)),
        WorktreeResult::Conflict => ("wait", "s-wait", t.worktree_conflict(folder)),
        WorktreeResult::Busy => ("wait", "s-wait", Markup::text(t.worktree_busy)),
        WorktreeResult::Absent => ("stop", "s-stop", Markup::text(t.worktree_absent)),
        WorktreeResult::Failed => {
            let message = plain(message.as_deref().unwrap_or_default());
            ("fail", "s-fail", t.worktree_failed(message))
        }
    }
}
