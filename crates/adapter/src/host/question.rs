//! A host's approval questions as shown to people, and their answers.

use std::{borrow::Cow, path::Path, time::Duration};

use attache_protocol::{
    Json,
    rules::permission_mode::{PLAN_TOOL, StepAssurance},
    wire::{
        adapter::{AdapterPermissionDecision, AdapterPermissionRequest},
        questionnaire::QuestionAnswer,
    },
};
use serde::Serialize;
use similar::TextDiff;

use super::edit_scope;

/// A step a host asks approval for. Undisclosed details are `None`, which is shown to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalQuestion {
    pub(crate) tool: String,
    pub(crate) input: Option<Json>,
    pub(crate) paths: Option<Vec<String>>,
    pub(crate) reason: Option<String>,
    pub(crate) risk: ApprovalRisk,
    /// The change, if the host discloses it.
    pub(crate) diff: Option<String>,
    /// Whether it does nothing but change the files at `paths`.
    pub(crate) edits: bool,
    /// Whether it is a command that runs in the run's folder.
    pub(crate) in_folder: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApprovalRisk {
    Low,
    Medium,
    High,
}

/// A person's answer. Hosts only ever get "this once": broader decisions are grants at the hub, where they are visible
/// and can be revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApprovalAnswer {
    Allowed,
    Denied {
        comment: Option<String>,
    },
    /// The answers to questions with options, one per question.
    Chosen(Vec<QuestionAnswer>),
    /// The run was stopped while the question was open.
    Stopped,
}

/// An answer with the host's own key for the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyedAnswer<K> {
    pub(crate) key: K,
    /// A short description of the step.
    pub(crate) step: String,
    pub(crate) answer: ApprovalAnswer,
}

/// How much of a diff is shown, per file and in total.
const MAX_DIFF: usize = 64 * 1024;
const MAX_DIFFS: usize = 192 * 1024;

/// Limits for everything else: more than people read, less than the hub accepts.
const MAX_INPUT: usize = 192 * 1024;
const MAX_REASON: usize = 8 * 1024;
const MAX_PATHS: usize = 500;

/// Time limit for computing a diff.
const DIFF_TIMEOUT: Duration = Duration::from_millis(200);

// === impl ApprovalQuestion ===

impl ApprovalQuestion {
    /// A step of which only the tool is known.
    pub(crate) fn about(tool: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            input: None,
            paths: None,
            reason: None,
            risk: ApprovalRisk::Medium,
            diff: None,
            edits: false,
            in_folder: false,
        }
    }

    /// The approval of a run's plan (Markdown).
    pub(crate) fn plan(plan: &str) -> Self {
        #[derive(Serialize)]
        struct PlanInput<'a> {
            plan: &'a str,
        }
        Self {
            input: Some(Json::of(&PlanInput { plan })),
            paths: Some(Vec::new()),
            reason: Some("Nothing was changed yet. If you deny it, your comment goes to the agent.".to_owned()),
            ..Self::about(PLAN_TOOL)
        }
    }

    /// The same, but never taken for a plan: whoever approves a step has not approved one.
    pub(crate) fn as_step(&self) -> Cow<'_, Self> {
        match self.tool == PLAN_TOOL {
            true => Cow::Owned(Self { tool: format!("{PLAN_TOOL} (tool)"), ..self.clone() }),
            false => Cow::Borrowed(self),
        }
    }

    /// A short description: the tool and the first path it touches.
    pub(crate) fn step(&self) -> String {
        match self.paths.as_deref() {
            Some([path, ..]) => format!("{} {path}", self.tool),
            _ => self.tool.clone(),
        }
    }

    /// As it goes to the hub, with what this device vouches for besides edits.
    pub(crate) fn to_request(
        &self,
        id: String,
        cwd: String,
        mut assured: Vec<StepAssurance>,
    ) -> AdapterPermissionRequest {
        let edited = self.paths.as_deref().filter(|_| self.edits);
        if edited.is_some_and(|paths| edit_scope::are_ordinary(Path::new(&cwd), paths)) {
            assured.push(StepAssurance::FolderEdit);
        }
        assured.extend(self.in_folder.then_some(StepAssurance::InFolder));
        let input = self.input.clone().unwrap_or_else(Json::empty_object);
        let paths = self.paths.as_deref().unwrap_or_default();
        let input_is_cut = input.get().len() > MAX_INPUT;
        let diff_is_cut = self.diff.as_ref().is_some_and(|diff| diff.len() > MAX_DIFFS);
        let undisclosed = [
            ("input", self.input.is_none()),
            ("paths", self.paths.is_none()),
            ("the rest of the input", input_is_cut),
            ("the rest of the diff", diff_is_cut),
            ("more paths", paths.len() > MAX_PATHS),
        ];
        AdapterPermissionRequest {
            cwd: Some(cwd),
            paths: paths[..paths.len().min(MAX_PATHS)].to_vec(),
            reason: self.reason.as_ref().map(|reason| cut(reason, MAX_REASON).to_owned()),
            risk: Some(self.risk.name().to_owned()),
            diff: self.diff.as_ref().map(|diff| cut(diff, MAX_DIFFS).to_owned()),
            undisclosed: undisclosed
                .into_iter()
                .filter(|(_, hidden)| *hidden)
                .map(|(name, _)| name.to_owned())
                .collect(),
            assured: assured.into_iter().map(|word| word.as_str().to_owned()).collect(),
            ..AdapterPermissionRequest::new(id, &self.tool, shortened(input, MAX_INPUT))
        }
    }
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Input that is too long is shown as the start of its text.
pub(crate) fn shortened(json: Json, most: usize) -> Json {
    #[derive(Serialize)]
    struct TruncatedInput<'a> {
        bytes: usize,
        cut: &'a str,
    }
    let text = json.get();
    // Escaped as a JSON string it may take twice the space.
    if text.len() > most { Json::of(&TruncatedInput { bytes: text.len(), cut: cut(text, most / 2) }) } else { json }
}

// === impl ApprovalRisk ===

impl ApprovalRisk {
    const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

// === impl ApprovalAnswer ===

impl From<Option<AdapterPermissionDecision>> for ApprovalAnswer {
    fn from(given: Option<AdapterPermissionDecision>) -> Self {
        match given {
            None => Self::Stopped,
            Some(AdapterPermissionDecision { approved: true, .. }) => Self::Allowed,
            Some(AdapterPermissionDecision { comment, .. }) => Self::Denied { comment },
        }
    }
}

/// The change of a file, for people.
pub(crate) fn diff(path: &str, old: &str, new: &str) -> String {
    let mut config = TextDiff::configure();
    let diff = config.timeout(DIFF_TIMEOUT).diff_lines(old, new);
    let mut text = diff.unified_diff().header(path, path).to_string();
    if text.len() > MAX_DIFF {
        text.truncate(text.floor_char_boundary(MAX_DIFF));
        text.push_str("\n(the rest is not shown)\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undisclosed_details_are_listed() {
        let mut question = ApprovalQuestion { risk: ApprovalRisk::High, ..ApprovalQuestion::about("Bash") };
        let asked = question.to_request("1".to_owned(), "/srv".to_owned(), Vec::new());
        let bare = AdapterPermissionRequest::new("1", "Bash", Json::empty_object());
        let expected = AdapterPermissionRequest {
            cwd: Some("/srv".to_owned()),
            risk: Some("high".to_owned()),
            undisclosed: vec!["input".to_owned(), "paths".to_owned()],
            ..bare
        };
        assert_eq!((asked, question.step()), (expected, "Bash".to_owned()));
        question.paths = Some(vec!["a.txt".to_owned()]);
        question.input = Some(Json::empty_object());
        assert_eq!(question.to_request("2".to_owned(), "/".to_owned(), Vec::new()).undisclosed, Vec::<String>::new());

        // Anything larger than the hub accepts is cut, and people are told.
        let large = ApprovalQuestion {
            input: Some(Json::of("\"".repeat(MAX_INPUT).as_str())),
            paths: Some(vec!["p".to_owned(); 2000]),
            reason: Some("é".repeat(MAX_REASON)),
            diff: Some("+\n".repeat(MAX_DIFFS)),
            ..ApprovalQuestion::about("write")
        };
        let asked = large.to_request("3".to_owned(), "/".to_owned(), Vec::new());
        let rest = ["the rest of the input", "the rest of the diff", "more paths"];
        assert_eq!((asked.undisclosed.as_slice(), asked.paths.len()), (&rest.map(str::to_owned)[..], 500));
        assert!(asked.input.get().len() < 256 << 10 && asked.diff.unwrap().len() < 256 << 10);
        assert_eq!(asked.reason.unwrap().len(), MAX_REASON);
        assert_eq!(question.step(), "Bash a.txt");
    }

    #[test]
    fn only_a_plan_is_called_one() {
        let plan = ApprovalQuestion::plan("# Do it");
        let asked = plan.to_request("1".to_owned(), "/".to_owned(), Vec::new());
        assert_eq!((asked.tool.as_str(), asked.input.get()), ("plan", r##"{"plan":"# Do it"}"##));
        assert_eq!(asked.undisclosed, Vec::<String>::new());
        assert_eq!(plan.as_step().tool, "plan (tool)");
        assert_eq!(ApprovalQuestion::about("Bash").as_step().tool, "Bash");
    }

    #[test]
    fn a_diff_names_the_file_and_is_cut() {
        assert_eq!(diff("a", "one\ntwo\n", "one\n2\n"), "--- a\n+++ a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
        let long = diff("a", "", &"line\n".repeat(100_000));
        assert!(long.len() < MAX_DIFF + 100 && long.ends_with("(the rest is not shown)\n"));
    }
}
