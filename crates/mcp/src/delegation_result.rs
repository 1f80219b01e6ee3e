//! Results of the delegation tools: structured content for programs, and the same as text that ends with
//! `<AWCP_metadata>` for models.

use std::fmt::Write as _;

use attache_protocol::{
    DelegationId,
    rules::delegation::DelegationStatus,
    wire::delegation::{Delegation, FileChangeKind, FolderChanges},
};
use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{ToolError, resources};

/// The result of a delegation tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct DelegationToolOutput {
    /// The outcome or current state, and what to do next.
    pub(crate) output: String,
    pub(crate) metadata: DelegationToolMetadata,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct DelegationToolMetadata {
    /// Identifies the delegation in delegate_output and delegate_cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delegation_id: Option<String>,
    /// Active: created, invited, accepted, started, running. Ended: completed, error, cancelled, expired. Refused: the
    /// request failed and changed nothing.
    pub(crate) status: String,
    pub(crate) session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer_url: Option<String>,
    /// With error and refused: a stable error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// The delegations that this call cancelled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cancelled: Vec<String>,
}

/// The text of a result, before its metadata.
#[derive(Debug, Default)]
pub(crate) struct ResultText(String);

const MAX_PATHS: usize = 20;
/// Longer texts are truncated, in characters.
const MAX_SUMMARY: usize = 100_000;

// === impl DelegationToolOutput ===

impl DelegationToolOutput {
    /// The current state of a delegation.
    pub(crate) fn of(delegation: &Delegation, session: &str) -> Self {
        let failure = delegation.result.as_ref().and_then(|result| result.error.as_ref());
        let mut metadata = DelegationToolMetadata::of(delegation, session);
        metadata.code = failure.map(|failure| failure.code.as_str().to_owned());
        Self { output: describe(delegation), metadata }
    }

    pub(crate) fn into_result(self, delegation: Option<&Delegation>) -> CallToolResult {
        let failed = matches!(self.metadata.status.as_str(), "error" | "expired" | "cancelled" | "refused");
        let mut content = vec![ContentBlock::text(self.text())];
        content.extend(delegation.filter(|one| one.status.has_ended()).into_iter().flat_map(resources::links));
        let mut result = if failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
        result.structured_content = Some(serde_json::json!(self));
        result
    }

    fn text(&self) -> String {
        let DelegationToolMetadata { delegation_id, status, session_id, peer_url, code, cancelled } = &self.metadata;
        let cancelled = (!cancelled.is_empty()).then(|| cancelled.join(", "));
        let lines = [
            ("delegation_id", delegation_id.as_ref()),
            ("status", Some(status)),
            ("session_id", Some(session_id)),
            ("peer_url", peer_url.as_ref()),
            ("code", code.as_ref()),
            ("cancelled", cancelled.as_ref()),
        ];
        let mut text = format!("{}\n\n<AWCP_metadata>\n", self.output.trim_end());
        for (name, value) in lines {
            if let Some(value) = value {
                let _ = writeln!(text, "{name}: {}", value.replace(['\n', '\r'], " "));
            }
        }
        text + "</AWCP_metadata>"
    }
}

impl DelegationToolMetadata {
    fn of(delegation: &Delegation, session: &str) -> Self {
        Self {
            delegation_id: Some(delegation.delegation_id.to_string()),
            status: delegation.status.as_str().to_owned(),
            // It may belong to another session of the same user.
            session_id: delegation.session_id.clone().unwrap_or_else(|| session.to_owned()),
            peer_url: Some(delegation.peer_url.clone()),
            ..Self::default()
        }
    }
}

/// The result of a request that failed and changed nothing.
pub(crate) fn refused(trouble: &ToolError, session: &str, id: Option<DelegationId>) -> CallToolResult {
    let metadata = DelegationToolMetadata {
        delegation_id: id.map(|id| id.to_string()),
        status: "refused".to_owned(),
        session_id: session.to_owned(),
        code: Some(trouble.code.clone()),
        ..DelegationToolMetadata::default()
    };
    DelegationToolOutput { output: trouble.to_string(), metadata }.into_result(None)
}

fn describe(delegation: &Delegation) -> String {
    let mut words = ResultText::default();
    let id = delegation.delegation_id;
    let result = delegation.result.as_ref();
    match delegation.status {
        DelegationStatus::Completed => {
            let summary = result.and_then(|result| result.final_summary.as_deref());
            words.foreign(summary.unwrap_or("The remote agent reports that it is done."));
            if let Some(full) = result.and_then(|result| result.full_output.as_ref()) {
                let place = match (full.artifact_id, full.task_run_id) {
                    (Some(artifact), Some(run)) => {
                        format!("see artifact {artifact} of {run} at {}", delegation.peer_url)
                    }
                    (Some(artifact), None) => format!("see artifact {artifact} at {}", delegation.peer_url),
                    (None, _) => "the remote did not keep the rest".to_owned(),
                };
                words.line(&format!("This is only part of its output ({} bytes in total): {place}.", full.bytes));
            }
            if let Some(notes) = result.and_then(|result| result.notes.as_deref()) {
                words.line("Notes: ").more(notes);
            }
            let highlights = result.map(|result| result.highlights.join(", ")).filter(|paths| !paths.is_empty());
            if let Some(highlights) = highlights {
                words.line("Highlights: ").more(&highlights);
            }
        }
        DelegationStatus::Error => {
            let failure = result.and_then(|result| result.error.as_ref());
            match failure {
                Some(failure) => {
                    words.line("The delegation failed: ").more(failure.message.trim_end_matches('.'));
                    words.more(&format!(" ({}). {}", failure.code.as_str(), failure.hint));
                }
                None => drop(words.line("The delegation failed for an unknown reason.")),
            }
        }
        DelegationStatus::Cancelled if delegation.started_at.is_none() => {
            words.line("The delegation was cancelled before the agent had access to the folder.");
        }
        DelegationStatus::Cancelled => {
            words.line("The delegation was cancelled, and access to the folder was revoked.");
        }
        DelegationStatus::Expired if delegation.started_at.is_none() => {
            words.line(&format!(
                "The remote agent did not start within {} s, so it never had access to the folder. Check with \
                 list_agents that it is online, then delegate again.",
                delegation.ttl_seconds
            ));
        }
        DelegationStatus::Expired => {
            words.line(&format!(
                "The lease of {} s expired before the work was done, and access to the folder was revoked. Delegate \
                 again with a longer ttl_seconds.",
                delegation.ttl_seconds
            ));
        }
        DelegationStatus::Created
        | DelegationStatus::Invited
        | DelegationStatus::Accepted
        | DelegationStatus::Started
        | DelegationStatus::Running => {
            words.line(&format!("The delegation is {}: ", delegation.status)).more(&delegation.description);
            if let Some(reason) = &delegation.waits_for {
                words.line("Waiting for: ").more(reason);
            }
            if let Some(progress) = &delegation.progress {
                words.line("Last message: ").more(progress);
            }
        }
    }
    if delegation.status.has_ended() {
        if let Some(ended) = delegation.ended_at {
            words.line(&format!("It ended at {ended}."));
        }
        if let Some(changes) = &delegation.changes {
            words.line(&changes_text(changes));
        }
        let has_changed = match &delegation.changes {
            Some(changes) => !changes.changed_paths.is_empty(),
            // Unknown changes may still exist.
            None => delegation.started_at.is_some(),
        };
        if delegation.staged.as_ref().is_some_and(|staged| staged.unapplied > 0) {
            words.line(&format!(
                "Next: {} is unchanged so far, because the delegation is staged. The diff is {}. The user applies or discards the \
                 changes with `attache delegations review {id}`.",
                delegation.workspace_dir,
                resources::diff_uri(id)
            ));
        } else if has_changed {
            words.line(&format!(
                "Next: review the changes in {}. The diff is {}. To undo them, run `attache delegations revert {id}`.",
                delegation.workspace_dir,
                resources::diff_uri(id)
            ));
        } else if delegation.status == DelegationStatus::Completed {
            words.line("Next: there is nothing to review or undo.");
        } else {
            words.line(
                "Next: there is nothing to undo. Fix the problem and delegate again, or do the work without \
                this agent.",
            );
        }
    } else {
        words.line(&format!(
            "Next: the work continues. Call delegate_output with delegation_id \"{id}\" and block true to wait for the \
             result, or delegate_cancel to stop it."
        ));
    }
    words.0
}

fn changes_text(changes: &FolderChanges) -> String {
    let stat = changes.diff_stat;
    if changes.changed_paths.is_empty() {
        return "No files in the folder were changed.".to_owned();
    }
    let paths: Vec<_> = changes
        .changed_paths
        .iter()
        .take(MAX_PATHS)
        .map(|one| {
            let also = if one.also_changed_here { ", also changed locally in the meantime" } else { "" };
            let run_by = one
                .run_by
                .as_ref()
                .map(|who| format!(", run or read automatically by {who}: have a person review it first"));
            format!("{} ({}{also}{})", one.path, change_label(one.change), run_by.unwrap_or_default())
        })
        .collect();
    let more = if stat.files_changed > paths.len() as u64 { ", …" } else { "" };
    format!(
        "Changed files: {}, lines: +{} −{}: {}{more}",
        stat.files_changed,
        stat.insertions,
        stat.deletions,
        paths.join(", ")
    )
}

const fn change_label(change: FileChangeKind) -> &'static str {
    match change {
        FileChangeKind::Added => "added",
        FileChangeKind::Modified => "modified",
        FileChangeKind::Removed => "removed",
        FileChangeKind::Attributes => "attributes",
    }
}

// === impl ResultText ===

impl ResultText {
    /// Starts a new paragraph with text of our own.
    fn line(&mut self, text: &str) -> &mut Self {
        if !self.0.is_empty() {
            self.0.push_str("\n\n");
        }
        self.0.push_str(text);
        self
    }

    fn foreign(&mut self, text: &str) -> &mut Self {
        self.line("").more(text)
    }

    /// Appends third-party text, truncated and made unable to imitate our metadata block.
    fn more(&mut self, text: &str) -> &mut Self {
        let end = text.char_indices().nth(MAX_SUMMARY).map_or(text.len(), |(end, _)| end);
        self.0.push_str(&text[..end].replace("AWCP_metadata", "AWCP-metadata"));
        if end < text.len() {
            self.0.push_str(" … (truncated)");
        }
        self
    }
}
