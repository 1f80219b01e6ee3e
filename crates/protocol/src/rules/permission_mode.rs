//! Permission modes: which steps of an agent are approved without asking a person, because its owner trusts them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    Json,
    json::Members,
    rules::{
        command_pattern::{CommandPattern, plain},
        permission::hides_input,
    },
    text_enum,
};

text_enum! {
    /// Which steps of an agent need no approval by a person.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum PermissionMode {
        /// None, and nothing is changed before a person has approved the agent's plan. Then as with `ask`.
        PlanFirst = "plan_first",
        /// None.
        #[default]
        Ask = "ask",
        /// Changes to ordinary files in the run's folder.
        AcceptEdits = "accept_edits",
        /// Everything, as long as the run is inside the walls of its device.
        AcceptWalled = "accept_walled",
    }
}

text_enum! {
    /// What a device vouches for when it asks for permission.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum StepAssurance {
        /// The step only changes files in the run's folder, and no program runs or obeys them on its own.
        FolderEdit = "folder_edit",
        /// The command runs in the run's folder.
        InFolder = "in_folder",
        /// The run is inside walls that the device has proved.
        Walled = "walled",
    }
}

/// Whether a run still has to get its plan approved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PlanState {
    /// It doesn't have to plan first, or a person has approved its plan.
    #[default]
    Settled,
    /// It plans first, and nobody has approved its plan yet.
    Open,
}

/// The tool name under which a run asks for the approval of its plan. Only a person answers that.
pub const PLAN_TOOL: &str = "plan";

/// A step that a worker asks permission for, as modes see it.
#[derive(Debug, Clone, Copy)]
pub struct StepFacts<'a> {
    pub input: &'a Json,
    pub cwd: Option<&'a str>,
    pub undisclosed: &'a [String],
    pub assured: &'a [StepAssurance],
    /// The agent's owner started the run in person, in a folder of their own device. What others send along, or have in a
    /// folder that they lend, may decide what a trusted command does.
    pub is_own: bool,
}

/// Why nobody is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustReason {
    Edit,
    Walled,
    /// The pattern that the command matches.
    Command(String),
}

/// The members of a tool's input that hold a command.
const COMMANDS: [&str; 3] = ["command", "cmd", "script"];

/// The members that name the folder in which it runs.
const FOLDERS: [&str; 3] = ["cwd", "workdir", "directory"];

/// Members that don't change what a command does.
const HARMLESS: [&str; 6] = ["description", "timeout", "timeout_ms", "is_background", "run_in_background", "actions"];

/// Why a step needs no approval by a person under this mode and these patterns. A step whose input is hidden, even partly,
/// always does, and so does every step of a run whose plan isn't approved, and of somebody else's task
/// outside walls.
pub fn trusted(
    mode: PermissionMode,
    plan: PlanState,
    commands: &[CommandPattern],
    step: StepFacts<'_>,
) -> Option<TrustReason> {
    if plan == PlanState::Open || hides_input(step.undisclosed) {
        return None;
    }
    let is_assured = |what| step.assured.contains(&what);
    if !step.is_own && !is_assured(StepAssurance::Walled) {
        return None;
    }
    match mode {
        PermissionMode::AcceptWalled if is_assured(StepAssurance::Walled) => return Some(TrustReason::Walled),
        PermissionMode::AcceptEdits if is_assured(StepAssurance::FolderEdit) => return Some(TrustReason::Edit),
        _ => {}
    }
    let words = plain(&command(step)?)?;
    let matching = commands.iter().find(|pattern| pattern.matches(&words))?;
    Some(TrustReason::Command(matching.to_string()))
}

/// The command of a step that is nothing but a command in the run's folder.
fn command(step: StepFacts<'_>) -> Option<String> {
    let members = step.input.parse::<Members>().ok().filter(Members::are_distinct)?;
    let (name, command) = COMMANDS.iter().find_map(|name| Some((*name, members.text(name)?)))?;
    let is_folder = |value: &Json| step.cwd.is_some() && value.parse::<String>().ok().as_deref() == step.cwd;
    if !step.assured.contains(&StepAssurance::InFolder) {
        return None;
    }
    let is_harmless = |(member, value): &(String, Json)| match member.as_str() {
        member if member == name || HARMLESS.contains(&member) => true,
        member if FOLDERS.contains(&member) => is_folder(value),
        // Outside the sandbox of its host, it can do more than it usually does.
        "sandbox" => value.get() == "\"on\"",
        _ => matches!(value.get(), "null" | "false"),
    };
    members.0.iter().all(is_harmless).then_some(command)
}

/// The mode of a run: the one chosen for it, or its agent's. An agent's change to `plan_first` is for later runs, because
/// this one was started without it.
pub const fn of_run(chosen: Option<PermissionMode>, agents: PermissionMode) -> PermissionMode {
    match (chosen, agents) {
        (Some(chosen), _) => chosen,
        (None, PermissionMode::PlanFirst) => PermissionMode::Ask,
        (None, agents) => agents,
    }
}

// === impl PermissionMode ===

impl PermissionMode {
    /// Whether a person has to approve everything under this mode that they have to approve under the other.
    pub const fn is_within(self, other: Self) -> bool {
        match (self, other) {
            (Self::PlanFirst, _) => true,
            (Self::Ask, other) => !matches!(other, Self::PlanFirst),
            (Self::AcceptEdits, other) => matches!(other, Self::AcceptEdits),
            // Inside walls it accepts all edits and more, outside none.
            (Self::AcceptWalled, other) => matches!(other, Self::AcceptWalled),
        }
    }

    /// Whether it approves any step in advance.
    pub const fn trusts(self) -> bool {
        match self {
            Self::PlanFirst | Self::Ask => false,
            Self::AcceptEdits | Self::AcceptWalled => true,
        }
    }
}

// === impl PlanState ===

impl PlanState {
    /// `is_approved` says whether a person has approved the run's plan.
    pub fn of(mode: PermissionMode, is_approved: bool) -> Self {
        if mode == PermissionMode::PlanFirst && !is_approved { Self::Open } else { Self::Settled }
    }
}

impl std::fmt::Display for TrustReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Edit => f.write_str("edits in the run's folder are accepted"),
            Self::Walled => f.write_str("everything in the sandbox of the device is accepted"),
            Self::Command(pattern) => write!(f, "`{pattern}` is a trusted command"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> CommandPattern {
        CommandPattern::parse(text).unwrap()
    }

    fn trusts(patterns: &[&str], input: &str) -> bool {
        let patterns: Vec<CommandPattern> = patterns.iter().map(|text| pattern(text)).collect();
        let input = Json::from_text(input).unwrap();
        let assured = [StepAssurance::InFolder];
        let step = StepFacts { input: &input, cwd: Some("/work"), undisclosed: &[], assured: &assured, is_own: true };
        let elsewhere = StepFacts { assured: &[StepAssurance::FolderEdit, StepAssurance::Walled], ..step };
        let is_trusted = |step| trusted(PermissionMode::Ask, PlanState::Settled, &patterns, step).is_some();
        assert!(!is_trusted(elsewhere), "{input:?}");
        is_trusted(step)
    }

    #[test]
    fn only_a_command_in_the_folder_is_trusted() {
        for (input, is_trusted) in [
            (r#"{"command":"git diff","description":"Look","timeout":5}"#, true),
            (r#"{"command":"git diff","cwd":"/work","sandbox":"on","network":null}"#, true),
            (r#"{"command":"git diff","cwd":"/etc"}"#, false),
            (r#"{"command":"git diff","sandbox":"off"}"#, false),
            (r#"{"command":"git diff","dangerouslyDisableSandbox":true}"#, false),
            (r#"{"command":"git diff","env":{"GIT_EXTERNAL_DIFF":"x"}}"#, false),
            (r#"{"command":"git diff","command":"rm x"}"#, false),
            (r#"{"command":["git","diff"]}"#, false),
            (r#""git diff""#, false),
        ] {
            assert_eq!(trusts(&["git diff *"], input), is_trusted, "{input}");
        }
    }

    #[test]
    fn modes_go_by_what_the_device_vouches_for() {
        let input = Json::empty_object();
        let hidden = ["input".to_owned()];
        let trust = |mode, assured: &[StepAssurance], undisclosed: &[String]| {
            trusted(
                mode,
                PlanState::Settled,
                &[],
                StepFacts { input: &input, cwd: None, undisclosed, assured, is_own: true },
            )
        };
        let (edit, walled) = ([StepAssurance::FolderEdit], [StepAssurance::Walled]);
        assert_eq!(trust(PermissionMode::AcceptEdits, &edit, &[]), Some(TrustReason::Edit));
        assert_eq!(trust(PermissionMode::AcceptWalled, &walled, &[]), Some(TrustReason::Walled));
        for (mode, assured) in [
            (PermissionMode::Ask, edit),
            (PermissionMode::Ask, walled),
            (PermissionMode::PlanFirst, edit),
            (PermissionMode::PlanFirst, walled),
            (PermissionMode::AcceptEdits, walled),
            (PermissionMode::AcceptWalled, edit),
        ] {
            assert_eq!(trust(mode, &assured, &[]), None, "{mode:?}");
        }
        let others = |mode, assured: &[StepAssurance]| {
            let step = StepFacts { input: &input, cwd: None, undisclosed: &[], assured, is_own: false };
            trusted(mode, PlanState::Settled, &[], step)
        };
        assert_eq!(others(PermissionMode::AcceptEdits, &edit), None, "somebody else's task, outside walls");
        assert_eq!(others(PermissionMode::AcceptWalled, &walled), Some(TrustReason::Walled));
        assert_eq!(trust(PermissionMode::AcceptEdits, &edit, &hidden), None);
        assert_eq!(trust(PermissionMode::AcceptWalled, &walled, &hidden), None);
    }

    #[test]
    fn a_run_has_the_mode_chosen_for_it() {
        for agents in PermissionMode::ALL {
            for chosen in PermissionMode::ALL {
                assert_eq!(of_run(Some(chosen), agents), chosen);
            }
        }
        assert_eq!(of_run(None, PermissionMode::AcceptEdits), PermissionMode::AcceptEdits);
        assert_eq!(of_run(None, PermissionMode::PlanFirst), PermissionMode::Ask);
        let open = |mode, is_approved| PlanState::of(mode, is_approved) == PlanState::Open;
        assert!(open(PermissionMode::PlanFirst, false) && !open(PermissionMode::PlanFirst, true));
        assert!(!open(PermissionMode::Ask, false));
    }

    fn mode() -> impl Strategy<Value = PermissionMode> {
        prop::sample::select(PermissionMode::ALL.to_vec())
    }

    fn assured() -> impl Strategy<Value = Vec<StepAssurance>> {
        prop::sample::subsequence(StepAssurance::ALL.to_vec(), 0..=StepAssurance::ALL.len())
    }

    proptest! {
        /// Nothing is approved in advance before the plan is.
        #[test]
        fn an_open_plan_leaves_no_trust(mode in mode(), assured in assured(), plan in "[a-z]{1,5}") {
            let input = Json::of(&std::collections::BTreeMap::from([("command", "git diff"), ("plan", plan.as_str())]));
            let step = StepFacts { input: &input, cwd: Some("/work"), undisclosed: &[], assured: &assured, is_own: true };
            prop_assert_eq!(trusted(mode, PlanState::Open, &[pattern("git diff *")], step), None);
        }

        /// A mode within another one trusts nothing that the other doesn't.
        #[test]
        fn a_stricter_mode_trusts_less(one in mode(), other in mode(), assured in assured()) {
            let input = Json::of(&std::collections::BTreeMap::from([("file_path", "/work/a")]));
            let step = StepFacts { input: &input, cwd: Some("/work"), undisclosed: &[], assured: &assured, is_own: true };
            let trusts = |mode| trusted(mode, PlanState::of(mode, false), &[], step).is_some();
            prop_assert!(!one.is_within(other) || !trusts(one) || trusts(other));
            prop_assert!(one.is_within(one));
            prop_assert!(!(one.is_within(other) && other.is_within(one)) || one == other);
            prop_assert!(!one.is_within(PermissionMode::Ask) || !one.trusts());
        }

    }
}
