//! The backend of the delegation tools: this machine's daemon.

use std::time::Duration;

use async_trait::async_trait;
use attache_protocol::{
    DelegationId,
    wire::delegation::{DelegateRequest, Delegation},
};

use crate::ToolError;

/// The delegations of the local user.
#[async_trait]
pub trait DelegationBackend: Send + Sync + 'static {
    /// Creates a delegation and returns immediately. If the policy doesn't allow it, the error names the command that
    /// does.
    async fn delegate(&self, request: DelegateRequest) -> Result<Delegation, ToolError>;

    /// Returns the delegation once its revision exceeds `after`, or when `wait` has elapsed.
    async fn get(&self, id: DelegationId, after: Option<u64>, wait: Duration) -> Result<Delegation, ToolError>;

    /// Cancels a delegation. Access is revoked before this returns. One that has ended is returned unchanged.
    async fn cancel(&self, id: DelegationId) -> Result<Delegation, ToolError>;

    /// Cancels all active delegations of a session and returns them.
    async fn cancel_session(&self, session: &str) -> Result<Vec<Delegation>, ToolError>;

    /// The changes of the lease, as a unified diff.
    async fn diff(&self, id: DelegationId) -> Result<String, ToolError>;

    /// The log of the delegation.
    async fn log(&self, id: DelegationId) -> Result<String, ToolError>;
}
