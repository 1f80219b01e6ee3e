//! What the delegation tools ask of this machine's daemon.

use std::time::Duration;

use async_trait::async_trait;
use attache_protocol::{
    DelegationId,
    wire::delegation::{DelegateRequest, Delegation},
};

use crate::ToolError;

/// The delegations of this machine's user.
#[async_trait]
pub trait DelegationBackend: Send + Sync + 'static {
    /// Makes one, and answers at once; what is not allowed by the person's policy is refused with the command that allows it.
    async fn delegate(&self, request: DelegateRequest) -> Result<Delegation, ToolError>;

    /// How it stands, as soon as more has happened than `after`, or when `wait` is over.
    async fn get(&self, id: DelegationId, after: Option<u64>, wait: Duration) -> Result<Delegation, ToolError>;

    /// Ends it: the folder is taken back before this answers. One that is over stays as it is.
    async fn cancel(&self, id: DelegationId) -> Result<Delegation, ToolError>;

    /// Ends all of a session that are not over, and answers with those.
    async fn cancel_session(&self, session: &str) -> Result<Vec<Delegation>, ToolError>;

    /// What the lease changed, as a unified diff.
    async fn diff(&self, id: DelegationId) -> Result<String, ToolError>;

    /// What happened, line by line.
    async fn log(&self, id: DelegationId) -> Result<String, ToolError>;
}
