//! Parses a permission mode from an argument.

use attache_protocol::rules::permission_mode::PermissionMode;

/// `plan_first`, also with hyphens.
pub(crate) fn parse(text: &str) -> Result<PermissionMode, String> {
    PermissionMode::from_text(&text.replace('-', "_")).ok_or_else(|| format!("expected {}", PermissionMode::CHOICES))
}
