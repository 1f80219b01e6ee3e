//! The entry of our server in a client's configuration.

/// The command that starts the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct McpServerEntry {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    /// Set only if this machine uses non-default folders.
    pub(super) env: Vec<(String, String)>,
}
