//! How a delegation ends: reported by the remote, decided here, or caused by a failure.

use attache_protocol::{
    rules::delegation::DelegationCommand,
    wire::{
        awcp::{self, AwcpErrorCode},
        delegation::{DelegationFailure, DelegationOutcome},
    },
};

/// How it ended. `is_ours`: the remote must be notified even though the rules assume that it knows.
pub(super) struct DelegationEnd {
    pub(super) command: DelegationCommand,
    pub(super) result: DelegationOutcome,
    pub(super) is_ours: bool,
}

// === impl DelegationEnd ===

impl DelegationEnd {
    pub(super) fn done(done: awcp::AwcpDone) -> Box<Self> {
        let result = DelegationOutcome {
            final_summary: Some(done.final_summary),
            highlights: done.highlights,
            notes: done.notes,
            full_output: done.full_output,
            error: None,
        };
        Box::new(Self { command: DelegationCommand::Complete, result, is_ours: false })
    }

    /// The remote reported the failure.
    pub(super) fn failed(failure: DelegationFailure) -> Box<Self> {
        Box::new(Self { command: DelegationCommand::Fail(failure.code), result: outcome(failure), is_ours: false })
    }

    /// It failed on this side, and the remote doesn't know yet.
    pub(super) fn local_failure(failure: DelegationFailure) -> Box<Self> {
        let mut end = Self::failed(failure);
        end.is_ours = true;
        end
    }

    pub(super) fn because(command: DelegationCommand, code: AwcpErrorCode, message: String) -> Box<Self> {
        let failure = DelegationFailure { code, message, hint: code.hint().to_owned() };
        Box::new(Self { command, result: outcome(failure), is_ours: false })
    }

    /// It ended before the folder was shared, so there can't be changes.
    pub(super) fn unshared(mut self: Box<Self>) -> Box<Self> {
        if let Some(failure) = &mut self.result.error {
            failure.hint = "No action needed. The folder was not shared.".to_owned();
        }
        self
    }

    /// The remote reported DONE, but some changes failed.
    pub(super) fn incomplete(mut self: Box<Self>, failure: DelegationFailure) -> Box<Self> {
        self.command = DelegationCommand::Fail(failure.code);
        self.result.error = Some(failure);
        self
    }
}

fn outcome(failure: DelegationFailure) -> DelegationOutcome {
    DelegationOutcome {
        final_summary: None,
        highlights: Vec::new(),
        notes: None,
        full_output: None,
        error: Some(failure),
    }
}

pub(super) fn local(message: String) -> DelegationFailure {
    DelegationFailure {
        code: AwcpErrorCode::TaskFailed,
        message,
        hint: "Check the daemon's log in $AWCP_HOME/logs.".to_owned(),
    }
}

pub(super) fn no_key(hub: &str) -> DelegationFailure {
    DelegationFailure {
        code: AwcpErrorCode::AuthFailed,
        message: format!("no key for {hub}, the hub whose tunnel the remote would use"),
        hint: "Set `key_file` for the peer or in [delegator] of policy.toml.".to_owned(),
    }
}
