//! `delegate_cancel`: takes a folder back, or all that this session lent.

use std::sync::Arc;

use rmcp::{RoleServer, model::CallToolResult, service::RequestContext};
use schemars::JsonSchema;
use serde::Deserialize;

use super::delegate_output;
use crate::{
    DelegationBackend, McpToolServer, ToolError,
    delegation_result::{self, DelegationToolMetadata, DelegationToolOutput},
};

pub(crate) const DESCRIPTION: &str = "Ends a delegation, or with all true every delegation of this session. The folder is \
    taken back at once, then the remote agent is told. What was changed until then stays; one that is over stays as it is.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelegateCancelArguments {
    /// Which one
    delegation_id: Option<String>,
    /// All of this session; false unless given
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
            // The folder comes back although the client may stop waiting for it.
            Ok(id) => server.session().finish(async move { delegations.cancel(id).await.map(|one| vec![one]) }).await,
            Err(trouble) => Some(Err(trouble)),
        },
        (None, true) => {
            let session = session.clone();
            server.session().finish(async move { delegations.cancel_session(&session).await }).await
        }
        (Some(_), true) | (None, false) => Some(Err(ToolError::invalid(
            "delegate_cancel takes either a delegation_id or all: true",
            "Call it again with one of the two.",
        ))),
    };
    let is_one = arguments.all != Some(true);
    match cancelled {
        Some(Ok(ended)) => {
            let (output, status) = match &ended[..] {
                [] => ("This session has no delegation that is not over.".to_owned(), "cancelled".to_owned()),
                [one] if is_one => (
                    format!(
                        "The delegation is {}. Next: delegate_output with delegation_id \"{}\" shows what was changed \
                         until then.",
                        one.status, one.delegation_id
                    ),
                    one.status.as_str().to_owned(),
                ),
                many => {
                    let each: Vec<_> =
                        many.iter().map(|one| format!("{} is {}", one.delegation_id, one.status)).collect();
                    let text = format!(
                        "{} of this session: {}. Next: delegate_output shows what each changed until then.",
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
            // What was asked for happened.
            result.is_error = Some(false);
            result
        }
        Some(Err(trouble)) => delegation_result::refused(&trouble, &session, None),
        None => {
            let trouble = ToolError::new("failed", "cancelling broke off", "Call delegate_cancel again.");
            delegation_result::refused(&trouble, &session, None)
        }
    }
}
