//! `delegate_cancel`: cancels one delegation, or all delegations of this session.

use std::sync::Arc;

use rmcp::{RoleServer, model::CallToolResult, service::RequestContext};
use schemars::JsonSchema;
use serde::Deserialize;

use super::delegate_output;
use crate::{
    DelegationBackend, McpToolServer, ToolError,
    delegation_result::{self, DelegationToolMetadata, DelegationToolOutput},
};

pub(crate) const DESCRIPTION: &str = "Cancels a delegation or, with all set to true, every active delegation of this \
    session. Access to the folder is revoked immediately, then the remote agent is notified. Changes it has already \
    made are kept. Delegations that have already ended are not affected. Next, use delegate_output to see what was \
    changed.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelegateCancelArguments {
    /// The delegation to cancel. Omit it if all is true
    delegation_id: Option<String>,
    /// Cancel every active delegation of this session. Default: false
    all: Option<bool>,
}

pub(crate) async fn run(
    server: &McpToolServer,
    delegations: &Arc<dyn DelegationBackend>,
    arguments: DelegateCancelArguments,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let session = server.session_id(context);
    let delegations = delegations.clone();
    let cancelled = match (arguments.delegation_id, arguments.all.unwrap_or(false)) {
        (Some(text), false) => match delegate_output::id(&text) {
            // Access is revoked even if the client stops waiting for the result.
            Ok(id) => server.session().finish(async move { delegations.cancel(id).await.map(|one| vec![one]) }).await,
            Err(trouble) => Some(Err(trouble)),
        },
        (None, true) => {
            let session = session.clone();
            server.session().finish(async move { delegations.cancel_session(&session).await }).await
        }
        (Some(_), true) | (None, false) => Some(Err(ToolError::invalid(
            "delegate_cancel takes either a delegation_id or all: true",
            "Call delegate_cancel again with exactly one of the two.",
        ))),
    };
    let is_one = arguments.all != Some(true);
    match cancelled {
        Some(Ok(ended)) => {
            let (output, status) = match &ended[..] {
                [] => ("This session has no active delegations.".to_owned(), "cancelled".to_owned()),
                [one] if is_one => (
                    format!(
                        "The delegation is {}. Next: call delegate_output with delegation_id \"{}\" to see what was \
                         changed.",
                        one.status, one.delegation_id
                    ),
                    one.status.as_str().to_owned(),
                ),
                many => {
                    let each: Vec<_> =
                        many.iter().map(|one| format!("{} is {}", one.delegation_id, one.status)).collect();
                    let text = format!(
                        "Ended {} in this session: {}. Next: call delegate_output for each to see what was changed.",
                        many.len(),
                        each.join(", ")
                    );
                    (text, "cancelled".to_owned())
                }
            };
            let first = ended.first().filter(|_| is_one);
            let metadata = DelegationToolMetadata {
                delegation_id: first.map(|one| one.delegation_id.to_string()),
                status,
                session_id: session,
                peer_url: first.map(|one| one.peer_url.clone()),
                code: None,
                cancelled: ended.iter().map(|one| one.delegation_id.to_string()).collect(),
            };
            let mut result = DelegationToolOutput { output, metadata }.into_result(None);
            // `cancelled` is the requested outcome here, not an error.
            result.is_error = Some(false);
            result
        }
        Some(Err(trouble)) => delegation_result::refused(&trouble, &session, None),
        None => {
            let trouble = ToolError::new("failed", "cancelling was interrupted", "Call delegate_cancel again.");
            delegation_result::refused(&trouble, &session, None)
        }
    }
}
