//! The permission modes offered in forms.

use attache_protocol::{
    rules::permission_mode::PermissionMode,
    wire::{account::Account, run::Run},
};

use crate::text::Text;

/// One choice. The empty value is the agent's own mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PermissionModeChoice {
    pub(crate) value: &'static str,
    pub(crate) label: &'static str,
    pub(crate) chosen: bool,
}

pub(crate) fn modes(chosen: Option<PermissionMode>, t: &'static Text) -> Vec<PermissionModeChoice> {
    let default = PermissionModeChoice { value: "", label: t.mode_default, chosen: chosen.is_none() };
    let others = PermissionMode::ALL.into_iter().map(|mode| PermissionModeChoice {
        value: mode.as_str(),
        label: mode_label(mode, t),
        chosen: chosen == Some(mode),
    });
    std::iter::once(default).chain(others).collect()
}

/// The mode of an earlier run for the next one: only if it is stricter than the agent's, because not everybody may choose
/// another.
pub(crate) fn remembered(run: Option<&Run>, accounts: &[Account]) -> Option<PermissionMode> {
    let (run, mode) = (run?, run?.permission_mode?);
    let account = accounts.iter().find(|account| account.agent_id == run.agent_id)?;
    let agents = account.approvals.as_ref().and_then(|policy| policy.mode).unwrap_or_default();
    (mode != agents && mode.is_within(agents)).then_some(mode)
}

const fn mode_label(mode: PermissionMode, t: &'static Text) -> &'static str {
    match mode {
        PermissionMode::PlanFirst => t.mode_plan,
        PermissionMode::Ask => t.mode_ask,
        PermissionMode::AcceptEdits => t.mode_edits,
        PermissionMode::AcceptWalled => t.mode_walled,
    }
}
