//! How a delegation ends: by the remote's word, by ours, or by something that went wrong on the way.

use attache_protocol::{
    rules::delegation::DelegationCommand,
    wire::{
        awcp::{self, AwcpErrorCode},
        delegation::{DelegationFailure, DelegationOutcome},
    },
};

/// How it ended, and whether the remote has to be told although the rules think that it knows.
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

    /// The remote said so.
    pub(super) fn failed(failure: DelegationFailure) -> Box<Self> {
        Box::new(Self { command: DelegationCommand::Fail(failure.code), result: outcome(failure), is_ours: false })
    }

    /// It failed on this side, and the remote does not know.
    pub(super) fn local_failure(failure: DelegationFailure) -> Box<Self> {
        let mut end = Self::failed(failure);
        end.is_ours = true;
        end
    }

    pub(super) fn because(command: DelegationCommand, code: AwcpErrorCode, message: String) -> Box<Self> {
        let failure = DelegationFailure { code, message, hint: code.hint().to_owned() };
        Box::new(Self { command, result: outcome(failure), is_ours: false })
    }

    /// What the remote calls done lacks something.
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
        hint: "Look at the log of the daemon in $AWCP_HOME/logs.".to_owned(),
    }
}

pub(super) fn no_key(hub: &str) -> DelegationFailure {
    DelegationFailure {
        code: AwcpErrorCode::AuthFailed,
        message: format!("there is no key for {hub}, through which the remote would get at the folder"),
        hint: "Name one: `key_file` of the peer or of [delegator] in policy.toml.".to_owned(),
    }
}
