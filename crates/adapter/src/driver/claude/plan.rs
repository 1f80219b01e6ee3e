//! A run that plans first: which of Claude Code's requests are answered without asking people, until they approve the plan.
//!
//! In its plan mode, the program keeps its plan in a file of its own and presents it with `ExitPlanMode`. The request for
//! that tool carries the text of the file.

use std::path::{Path, PathBuf};

use attache_protocol::Json;
use serde::Deserialize;

use super::{message::ClaudeToolRequest, permission};

/// How far a run is with its plan.
#[derive(Debug, Default)]
pub(super) enum ClaudePlan {
    /// It doesn't have to plan, or its plan was approved.
    #[default]
    Settled,
    Open {
        /// Where the program keeps plans.
        folder: Option<PathBuf>,
        /// The file that it may write its plan to.
        file: Option<PathBuf>,
        /// The program's id of the request for approval.
        presented: Option<String>,
    },
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PlanStep {
    /// It is decided like any other step.
    Ask,
    /// People decide on this plan.
    Present(String),
    /// It only writes down the plan.
    Allow,
    /// The message for the model.
    Deny(&'static str),
}

const PLAN_FIRST: &str = "Nothing may be changed before your plan is approved. Write the plan to the plan file and present \
                          it with ExitPlanMode.";
const NO_PLAN: &str = "There is no plan yet. Write it to the plan file first, then present it with ExitPlanMode.";

/// The input of `ExitPlanMode`, which the program fills in itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaudePlanInput {
    plan: String,
    plan_file_path: Option<PathBuf>,
}

// === impl ClaudePlan ===

impl ClaudePlan {
    pub(super) const fn open(folder: Option<PathBuf>) -> Self {
        Self::Open { folder, file: None, presented: None }
    }

    /// `exists` says whether there is a file.
    pub(super) fn step(&mut self, id: &str, ask: &ClaudeToolRequest, exists: impl Fn(&Path) -> bool) -> PlanStep {
        let Self::Open { folder, file, presented } = self else { return PlanStep::Ask };
        if ask.tool_name == "ExitPlanMode" {
            // A sub-agent has no plan to present.
            let presents = ClaudePlanInput::read(&ask.input).filter(|_| ask.agent_id.is_none());
            let Some(ClaudePlanInput { plan, plan_file_path }) = presents else { return PlanStep::Deny(NO_PLAN) };
            // A session that goes on has its file from before.
            let own = plan_file_path.filter(|path| folder.is_some() && path.parent() == folder.as_deref());
            *file = own.or(file.take());
            *presented = Some(id.to_owned());
            return PlanStep::Present(plan);
        }
        if !permission::edits(ask) {
            return PlanStep::Ask;
        }
        // The owner's settings can make it ask even about its own file. It doesn't overwrite what was there before.
        let Some(path) = permission::changes(ask).map(PathBuf::from) else { return PlanStep::Deny(PLAN_FIRST) };
        let is_plan = folder.is_some() && path.parent() == folder.as_deref() && !exists(&path);
        if file.as_ref() == Some(&path) || is_plan {
            *file = Some(path);
            return PlanStep::Allow;
        }
        PlanStep::Deny(PLAN_FIRST)
    }

    /// Whether this request was for the approval of the plan.
    pub(super) fn is_presented(&self, id: &str) -> bool {
        matches!(self, Self::Open { presented: Some(presented), .. } if presented == id)
    }

    pub(super) fn approve(&mut self) {
        *self = Self::Settled;
    }
}

// === impl ClaudePlanInput ===

impl ClaudePlanInput {
    /// `None` if there is no plan.
    fn read(input: &Json) -> Option<Self> {
        input.parse().ok().filter(|input: &Self| !input.plan.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(tool: &str, input: &str) -> ClaudeToolRequest {
        ClaudeToolRequest {
            tool_name: tool.to_owned(),
            input: Json::from_text(input).unwrap(),
            description: None,
            decision_reason: None,
            blocked_path: None,
            tool_use_id: "toolu_1".to_owned(),
            agent_id: None,
        }
    }

    fn write(path: &str) -> ClaudeToolRequest {
        ask("Write", &format!(r#"{{"file_path":"{path}","content":"x"}}"#))
    }

    #[test]
    fn nothing_is_edited_before_the_plan_is_approved() {
        let mut open = ClaudePlan::open(Some("/home/a/.claude/plans".into()));
        let mut step = |ask: &ClaudeToolRequest| open.step("1", ask, |path| path.ends_with("old.md"));
        for path in
            ["/ws/a", "/home/a/.claude/plans/old.md", "/home/a/.claude/plans/../settings.json", "/home/a/.claude/x"]
        {
            assert_eq!(step(&write(path)), PlanStep::Deny(PLAN_FIRST), "{path}");
        }
        for tool in ["Edit", "MultiEdit", "NotebookEdit", "Write"] {
            assert_eq!(step(&ask(tool, "{}")), PlanStep::Deny(PLAN_FIRST), "{tool}");
        }
        assert_eq!(step(&ask("Bash", r#"{"command":"git log"}"#)), PlanStep::Ask);
        let file = "/home/a/.claude/plans/new.md";
        assert_eq!(step(&write(file)), PlanStep::Allow);
        let mut again = |ask: &ClaudeToolRequest| open.step("1", ask, |_| true);
        assert_eq!(again(&write(file)), PlanStep::Allow);
        assert_eq!(again(&write("/home/a/.claude/plans/other.md")), PlanStep::Deny(PLAN_FIRST));
    }

    #[test]
    fn people_decide_on_a_plan_that_there_is() {
        let mut open = ClaudePlan::open(None);
        let mut step = |id: &str, ask: &ClaudeToolRequest| open.step(id, ask, |_| false);
        assert_eq!(step("1", &ask("ExitPlanMode", "{}")), PlanStep::Deny(NO_PLAN));
        assert_eq!(step("2", &ask("ExitPlanMode", r#"{"plan":" "}"#)), PlanStep::Deny(NO_PLAN));
        let presented = ask("ExitPlanMode", r##"{"plan":"# Plan","planFilePath":"/p"}"##);
        let within = ClaudeToolRequest { agent_id: Some("a".to_owned()), ..ask("ExitPlanMode", r#"{"plan":"x"}"#) };
        assert_eq!(step("3", &within), PlanStep::Deny(NO_PLAN));
        assert_eq!(step("4", &presented), PlanStep::Present("# Plan".to_owned()));
        assert!(open.is_presented("4") && !open.is_presented("3"));
        open.approve();
        assert_eq!(open.step("5", &write("/ws/a"), |_| false), PlanStep::Ask);
        assert!(!open.is_presented("4"));
    }

    #[test]
    fn a_plan_of_an_earlier_run_can_be_changed_once_it_was_presented() {
        let mut open = ClaudePlan::open(Some("/plans".into()));
        assert_eq!(open.step("1", &write("/plans/old.md"), |_| true), PlanStep::Deny(PLAN_FIRST));
        for (file, path, then) in [
            ("/elsewhere/old.md", "/elsewhere/old.md", PlanStep::Deny(PLAN_FIRST)),
            ("/plans/old.md", "/plans/old.md", PlanStep::Allow),
        ] {
            let presented = ask("ExitPlanMode", &format!(r#"{{"plan":"x","planFilePath":"{file}"}}"#));
            assert_eq!(open.step("2", &presented, |_| true), PlanStep::Present("x".to_owned()));
            assert_eq!(open.step("3", &write(path), |_| true), then, "{file}");
        }
    }
}
