//! How a delegation went, for `attache delegate` and `attache delegations`: its style, exit code and changes.

use attache_protocol::{
    error::exit,
    rules::delegation::DelegationStatus,
    wire::{awcp::AwcpErrorCode, delegation::Delegation, output::OutputLocation},
};

use crate::{
    text::{delegations as texts, terms},
    ui::{
        failure::CommandFailure,
        output::{TextStyle, clean, time},
    },
};

pub(in crate::commands) const fn style(status: DelegationStatus) -> TextStyle {
    match status {
        DelegationStatus::Completed => TextStyle::Good,
        DelegationStatus::Error | DelegationStatus::Expired => TextStyle::Bad,
        DelegationStatus::Started | DelegationStatus::Running => TextStyle::Busy,
        DelegationStatus::Created | DelegationStatus::Invited | DelegationStatus::Accepted => TextStyle::Plain,
        DelegationStatus::Cancelled => TextStyle::Dim,
    }
}

/// The result of a command that waited for this delegation: 0 completed, 4 declined by the remote, 124 expired, 1
/// otherwise.
pub(in crate::commands) fn verdict(delegation: &Delegation) -> Result<(), CommandFailure> {
    let failure = delegation.result.as_ref().and_then(|result| result.error.as_ref());
    let (code, exit) = match (delegation.status, failure.map(|failure| failure.code)) {
        (DelegationStatus::Completed, _) => return cut(delegation).map_or(Ok(()), Err),
        (DelegationStatus::Expired, Some(AwcpErrorCode::StartExpired)) => ("start_expired", exit::TIMED_OUT),
        (DelegationStatus::Expired, _) => ("expired", exit::TIMED_OUT),
        (DelegationStatus::Cancelled, _) => ("cancelled", exit::FAILED),
        (_, None) => ("failed", exit::FAILED),
        (_, Some(code)) => match code {
            AwcpErrorCode::Declined => ("declined", exit::DENIED),
            AwcpErrorCode::MountpointDenied => ("mountpoint_denied", exit::DENIED),
            AwcpErrorCode::AuthFailed => ("auth_failed", exit::DENIED),
            AwcpErrorCode::DepMissing => ("dep_missing", exit::FAILED),
            AwcpErrorCode::MountFailed => ("mount_failed", exit::FAILED),
            AwcpErrorCode::StartExpired => ("start_expired", exit::FAILED),
            AwcpErrorCode::Expired => ("expired", exit::FAILED),
            AwcpErrorCode::Cancelled => ("cancelled", exit::FAILED),
            AwcpErrorCode::TaskFailed => ("task_failed", exit::FAILED),
        },
    };
    Err(match failure {
        Some(failure) => {
            CommandFailure::new(code, exit, texts::result(failure.code, &failure.message)).hint(failure.hint.clone())
        }
        None => CommandFailure::new(code, exit, texts::is_now(terms::delegation_status(delegation.status))),
    })
}

/// The failure for a truncated output: how much is missing, and where the remote keeps the complete output.
fn cut(delegation: &Delegation) -> Option<CommandFailure> {
    let result = delegation.result.as_ref()?;
    let OutputLocation { bytes, artifact_id, task_run_id, lost } = result.full_output.as_ref()?;
    let here = time::size(result.final_summary.as_ref().map_or(0, String::len) as u64);
    let message = texts::cut(here, time::size(*bytes));
    let failure = CommandFailure::new("output_cut", exit::FAILED, message);
    Some(match (artifact_id, lost) {
        (Some(artifact), _) => {
            let remote = clean::line(&delegation.peer_url);
            failure.hint(match task_run_id {
                Some(run) => texts::cut_artifact_of(artifact, run, remote),
                None => texts::cut_artifact(artifact, remote),
            })
        }
        (None, Some(why)) => failure.hint(clean::line(why).into_owned()),
        (None, None) => failure.hint(texts::cut_lost()),
    })
}

/// A one-line summary of changes to the folder.
pub(in crate::commands) fn changed(delegation: &Delegation) -> Option<String> {
    let changes = delegation.changes.as_ref()?;
    let stat = changes.diff_stat;
    Some(match stat.files_changed {
        0 => texts::no_changes().to_owned(),
        count => texts::changes(count, stat.insertions, stat.deletions, delegation.delegation_id),
    })
}
