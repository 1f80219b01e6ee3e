//! Translates a `can_use_tool` request of Claude Code into a question for people, and their answer back. Pure.

use std::{borrow::Cow, collections::BTreeMap};

use attache_protocol::{
    Json,
    wire::questionnaire::{OptionQuestion, QuestionAnswer, QuestionOption, Questionnaire},
};
use serde::{Deserialize, Serialize};

use super::message::ClaudeToolRequest;
use crate::host::{
    ApprovalAnswer, ApprovalQuestion,
    question::{ApprovalRisk, diff},
};

/// Content of a file before the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileBefore {
    Text(String),
    /// The file doesn't exist.
    Absent,
    /// It is outside the folder, or isn't readable as text.
    Unknown,
}

/// The members of a tool's input that name files or describe changes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaudeToolInput {
    file_path: Option<String>,
    notebook_path: Option<String>,
    path: Option<String>,
    content: Option<String>,
    command: Option<String>,
    url: Option<String>,
    pattern: Option<String>,
    edits: Vec<ClaudeEdit>,
    #[serde(flatten)]
    edit: ClaudeEdit,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaudeEdit {
    old_string: Option<String>,
    new_string: Option<String>,
    replace_all: bool,
}

pub(super) fn question(ask: &ClaudeToolRequest, present: &FileBefore) -> ApprovalQuestion {
    let input: ClaudeToolInput = ask.input.parse().unwrap_or_default();
    ApprovalQuestion {
        tool: ask.tool_name.clone(),
        input: Some(ask.input.clone()),
        paths: paths(ask, &input),
        reason: reason(ask),
        risk: risk(&ask.tool_name),
        diff: change(&ask.tool_name, &input, present),
        edits: changes(ask).is_some(),
        // See `CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR`. A sub-agent may have a working tree of its own.
        in_folder: ask.tool_name == "Bash" && ask.agent_id.is_none(),
    }
}

/// The tool by which it asks people something. It isn't a step to approve.
const QUESTION_TOOL: &str = "AskUserQuestion";

#[derive(Debug, Deserialize)]
struct ClaudeQuestions {
    questions: Vec<ClaudeQuestion>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaudeQuestion {
    question: String,
    header: Option<String>,
    #[serde(default)]
    options: Vec<QuestionOption>,
    #[serde(default)]
    multi_select: bool,
}

/// What it asks people, if it isn't for permission.
pub(super) fn questionnaire(ask: &ClaudeToolRequest) -> Option<Questionnaire> {
    if ask.tool_name != QUESTION_TOOL {
        return None;
    }
    let asked: ClaudeQuestions = ask.input.parse().ok()?;
    let one = |ClaudeQuestion { question, header, options, multi_select }| OptionQuestion {
        question,
        header,
        options,
        multi_select,
    };
    let questions: Vec<OptionQuestion> = asked.questions.into_iter().map(one).collect();
    (!questions.is_empty()).then_some(Questionnaire { questions })
}

/// The input with the answers, by the text of the question. `None` if nothing was answered.
fn with_answers(input: &Json, answers: &[QuestionAnswer]) -> Option<Json> {
    let asked: ClaudeQuestions = input.parse().ok()?;
    let answers: BTreeMap<String, String> = asked
        .questions
        .into_iter()
        .zip(answers)
        .map(|(asked, answer)| (asked.question, answer.in_words()))
        .filter(|(_, answer)| !answer.is_empty())
        .collect();
    let mut members: BTreeMap<String, Json> = input.parse().ok()?;
    members.insert("answers".to_owned(), Json::of(&answers));
    (!answers.is_empty()).then(|| Json::of(&members))
}

/// Whether the tool does nothing but change files.
pub(super) fn edits(ask: &ClaudeToolRequest) -> bool {
    matches!(ask.tool_name.as_str(), "Edit" | "MultiEdit" | "NotebookEdit" | "Write")
}

/// The file that the step would change.
pub(super) fn changes(ask: &ClaudeToolRequest) -> Option<String> {
    let changes = matches!(ask.tool_name.as_str(), "Edit" | "MultiEdit" | "Write");
    changes.then(|| ask.input.parse::<ClaudeToolInput>().ok()?.file_path).flatten()
}

/// A short title for a tool use: its main argument.
pub(super) fn title(name: &str, input: &Json) -> Option<String> {
    let input: ClaudeToolInput = input.parse().unwrap_or_default();
    let about = [input.command, input.file_path, input.notebook_path, input.url, input.pattern, input.path];
    let about = about.into_iter().flatten().next()?;
    let line = about.lines().next().unwrap_or_default();
    Some(format!("{name} {}", &line[..line.floor_char_boundary(200)]))
}

/// `None` if the tool doesn't say which paths it touches.
fn paths(ask: &ClaudeToolRequest, input: &ClaudeToolInput) -> Option<Vec<String>> {
    let named = [&input.file_path, &input.notebook_path, &input.path, &ask.blocked_path];
    let mut paths: Vec<String> = named.into_iter().flatten().cloned().collect();
    paths.dedup();
    let touches_none = matches!(ask.tool_name.as_str(), "WebFetch" | "WebSearch");
    (touches_none || !paths.is_empty()).then_some(paths)
}

fn reason(ask: &ClaudeToolRequest) -> Option<String> {
    let parts = [ask.description.as_deref(), ask.decision_reason.as_deref()];
    let clean = |part: &str| part.chars().filter(|letter| !letter.is_control() || *letter == '\n').collect::<String>();
    let parts: Vec<String> = parts.into_iter().flatten().map(clean).filter(|part| !part.trim().is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn risk(tool: &str) -> ApprovalRisk {
    match tool {
        "Read" | "Glob" | "Grep" | "LS" | "TodoWrite" | "NotebookRead" => ApprovalRisk::Low,
        "Edit" | "MultiEdit" | "Write" | "NotebookEdit" | "WebFetch" | "WebSearch" | "Agent" | "Task" => {
            ApprovalRisk::Medium
        }
        // Programs, tools of other servers, and tools of future versions.
        _ => ApprovalRisk::High,
    }
}

fn change(tool: &str, input: &ClaudeToolInput, present: &FileBefore) -> Option<String> {
    let path = input.file_path.as_deref()?;
    match (tool, present) {
        ("Write", FileBefore::Text(old)) => Some(diff(path, old, input.content.as_deref()?)),
        ("Write", FileBefore::Absent) => Some(diff(path, "", input.content.as_deref()?)),
        ("Edit" | "MultiEdit", _) => {
            let edits: Vec<&ClaudeEdit> =
                if input.edits.is_empty() { vec![&input.edit] } else { input.edits.iter().collect() };
            if let FileBefore::Text(old) = present
                && let Some(new) = edits.iter().try_fold(old.clone(), |text, edit| edit.applied(&text))
            {
                return Some(diff(path, old, &new));
            }
            // Only the edited fragments are known.
            let parts: Option<Vec<String>> = edits
                .iter()
                .map(|edit| Some(diff(path, edit.old_string.as_deref()?, edit.new_string.as_deref()?)))
                .collect();
            parts.map(|parts| parts.concat())
        }
        _ => None,
    }
}

// === impl ClaudeEdit ===

impl ClaudeEdit {
    /// `None` if the edit doesn't apply to the text.
    fn applied(&self, text: &str) -> Option<String> {
        let (old, new) = (self.old_string.as_deref()?, self.new_string.as_deref()?);
        if old.is_empty() || !text.contains(old) {
            return None;
        }
        Some(if self.replace_all { text.replace(old, new) } else { text.replacen(old, new, 1) })
    }
}

/// The answer to the program. Always for this one time: broader grants are the hub's business.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaudePermissionResult<'a> {
    behavior: &'static str,
    /// If allowed: the exact input that was approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_input: Option<Cow<'a, Json>>,
    /// If denied: the message for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

// === impl ClaudePermissionResult ===

impl<'a> ClaudePermissionResult<'a> {
    /// `None` if there was no answer.
    pub(super) fn of(answer: &ApprovalAnswer, input: &'a Json) -> Option<Self> {
        match answer {
            ApprovalAnswer::Allowed => Some(Self::allowed(Cow::Borrowed(input))),
            ApprovalAnswer::Chosen(answers) => Some(match with_answers(input, answers) {
                Some(answered) => Self::allowed(Cow::Owned(answered)),
                None => Self::denied("There was no answer. Decide for yourself, and say what you assumed.".to_owned()),
            }),
            ApprovalAnswer::Denied { comment } => {
                let why = comment.as_deref().map_or_else(String::new, |comment| format!(" Comment: {comment}"));
                Some(Self::denied(format!("Denied by the approver.{why}")))
            }
            ApprovalAnswer::Stopped => None,
        }
    }

    /// The same for the approval of a plan.
    pub(super) fn of_plan(answer: &ApprovalAnswer, input: &'a Json) -> Option<Self> {
        match answer {
            ApprovalAnswer::Denied { comment } => {
                let why = comment.as_deref().map_or_else(String::new, |comment| format!(" Comment: {comment}"));
                Some(Self::denied(format!("The plan was not approved. Keep planning and present it again.{why}")))
            }
            answer => Self::of(answer, input),
        }
    }

    pub(super) const fn allowed(input: Cow<'a, Json>) -> Self {
        Self { behavior: "allow", updated_input: Some(input), message: None }
    }

    pub(super) const fn denied(message: String) -> Self {
        Self { behavior: "deny", updated_input: None, message: Some(message) }
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

    fn text(text: &str) -> FileBefore {
        FileBefore::Text(text.to_owned())
    }

    #[test]
    fn only_the_main_agent_is_known_to_work_in_the_folder() {
        let mut bash = ask("Bash", r#"{"command":"make test"}"#);
        assert!(question(&bash, &FileBefore::Unknown).in_folder);
        bash.agent_id = Some("a44dd".to_owned());
        assert!(!question(&bash, &FileBefore::Unknown).in_folder);
    }

    #[test]
    fn a_file_write_shows_its_path_and_its_diff() {
        let input = r#"{"file_path":"/srv/a.txt","content":"two\n"}"#;
        let mut write = ask("Write", input);
        write.description = Some("a.txt".to_owned());
        let expected = ApprovalQuestion {
            tool: "Write".to_owned(),
            input: Some(Json::from_text(input).unwrap()),
            paths: Some(vec!["/srv/a.txt".to_owned()]),
            reason: Some("a.txt".to_owned()),
            risk: ApprovalRisk::Medium,
            diff: Some("--- /srv/a.txt\n+++ /srv/a.txt\n@@ -1 +1 @@\n-one\n+two\n".to_owned()),
            edits: true,
            in_folder: false,
        };
        assert_eq!(question(&write, &text("one\n")), expected);
        let created = "--- /srv/a.txt\n+++ /srv/a.txt\n@@ -0,0 +1 @@\n+two\n".to_owned();
        assert_eq!(question(&write, &FileBefore::Absent), ApprovalQuestion { diff: Some(created), ..expected.clone() });
        assert_eq!(question(&write, &FileBefore::Unknown), ApprovalQuestion { diff: None, ..expected });
        assert_eq!(changes(&write).as_deref(), Some("/srv/a.txt"));
    }

    #[test]
    fn an_edit_shows_its_context_if_the_file_is_known() {
        let edit = ask("Edit", r#"{"file_path":"a","old_string":"b","new_string":"B","replace_all":true}"#);
        let change = |present: &FileBefore| question(&edit, present).diff.unwrap();
        assert_eq!(change(&text("a b b\n")), "--- a\n+++ a\n@@ -1 +1 @@\n-a b b\n+a B B\n");
        let part = "--- a\n+++ a\n@@ -1 +1 @@\n-b\n\\ No newline at end of file\n+B\n\\ No newline at end of file\n";
        assert_eq!(change(&FileBefore::Unknown), part);
        assert_eq!(change(&text("something else\n")), part);
        let several =
            r#"{"file_path":"a","edits":[{"old_string":"1","new_string":"2"},{"old_string":"2","new_string":"3"}]}"#;
        let diff = question(&ask("MultiEdit", several), &text("1\n")).diff.unwrap();
        assert_eq!(diff, "--- a\n+++ a\n@@ -1 +1 @@\n-1\n+3\n");
    }

    #[test]
    fn undisclosed_details_are_not_invented() {
        let mut bash = ask("Bash", r#"{"command":"ls -la\nrm x","description":"Lists"}"#);
        bash.description = Some("Lists".to_owned());
        bash.decision_reason = Some("\u{1b}[31mneeds approval".to_owned());
        let asked = question(&bash, &FileBefore::Unknown);
        assert_eq!((asked.paths, asked.diff, asked.risk), (None, None, ApprovalRisk::High));
        assert_eq!(asked.reason.as_deref(), Some("Lists; [31mneeds approval"));
        assert_eq!(title("Bash", &bash.input).as_deref(), Some("Bash ls -la"));
        let fetch = question(&ask("WebFetch", r#"{"url":"http://x"}"#), &FileBefore::Unknown);
        assert_eq!((fetch.paths, fetch.risk), (Some(Vec::new()), ApprovalRisk::Medium));
        assert_eq!(question(&ask("Read", r#"{"file_path":"/etc/x"}"#), &FileBefore::Unknown).risk, ApprovalRisk::Low);
        assert_eq!((changes(&bash), title("Other", &Json::empty_object())), (None, None));
    }

    #[test]
    fn answers_use_the_programs_own_format() {
        let input = Json::from_text(r#"{"b": 1.0,"a":"\u00e4"}"#).unwrap();
        let said = |answer: &ApprovalAnswer| {
            ClaudePermissionResult::of(answer, &input).map(|said| serde_json::to_string(&said).unwrap())
        };
        let allowed = r#"{"behavior":"allow","updatedInput":{"b": 1.0,"a":"\u00e4"}}"#;
        assert_eq!(said(&ApprovalAnswer::Allowed).as_deref(), Some(allowed));
        let denied = r#"{"behavior":"deny","message":"Denied by the approver. Comment: no"}"#;
        assert_eq!(said(&ApprovalAnswer::Denied { comment: Some("no".to_owned()) }).as_deref(), Some(denied));
        assert_eq!(said(&ApprovalAnswer::Stopped), None);
    }

    #[test]
    fn a_question_is_answered_by_its_text() {
        let input = r#"{"questions":[{"question":"Which?","header":"DB","multiSelect":true,
            "options":[{"label":"a","description":"first"},{"label":"b"}]},{"question":"Why?"}],"metadata":1}"#;
        let asked = questionnaire(&ask("AskUserQuestion", input)).unwrap();
        assert_eq!((asked.questions.len(), asked.questions[0].multi_select), (2, true));
        assert_eq!(asked.questions[0].options[0].description.as_deref(), Some("first"));
        assert_eq!(questionnaire(&ask("Bash", input)), None);
        let input = ask("AskUserQuestion", input).input;
        let said = |answers: &[QuestionAnswer]| {
            let answer = ApprovalAnswer::Chosen(answers.to_vec());
            serde_json::to_string(&ClaudePermissionResult::of(&answer, &input).unwrap()).unwrap()
        };
        let both = QuestionAnswer { selected: vec!["a".to_owned(), "b".to_owned()], text: Some("or c".to_owned()) };
        let allowed = said(&[both, QuestionAnswer::default()]);
        let start =
            r#"{"behavior":"allow","updatedInput":{"answers":{"Which?":"a, b, or c"},"metadata":1,"questions":["#;
        assert!(allowed.starts_with(start), "{allowed}");
        assert!(said(&[QuestionAnswer::default()]).starts_with(r#"{"behavior":"deny","#));
    }
}
