//! Files that a program on the host runs or obeys without being asked. When a remote writes one, it deserves a second
//! look.

use attache_protocol::autorun::RUN_BY;

use crate::export::{ExportError, GlobPatterns};

/// The compiled patterns.
pub(super) struct AutorunPatterns(Vec<(&'static str, GlobPatterns)>);

impl AutorunPatterns {
    pub(super) fn new() -> Result<Self, ExportError> {
        let parsed = RUN_BY
            .iter()
            .map(|(who, lines)| Ok((*who, GlobPatterns::parse(lines.iter().copied(), <[u8]>::to_ascii_lowercase)?)));
        parsed.collect::<Result<_, _>>().map(Self)
    }

    /// The program that runs what is at the path.
    pub(super) fn run_by(&self, path: &[u8]) -> Option<&'static str> {
        let twin = path.to_ascii_lowercase();
        let slashes = twin.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let ends: Vec<usize> = slashes.chain([twin.len()]).collect();
        let lists = |patterns: &GlobPatterns| ends.iter().any(|end| patterns.lists(&twin[..*end], true) == Some(true));
        self.0.iter().find(|(_, patterns)| lists(patterns)).map(|(who, _)| *who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autorun_files_are_recognised() {
        let planted = AutorunPatterns::new().unwrap();
        for (path, program) in [
            (".vscode/tasks.json", Some("VS Code")),
            ("web/.VSCode/Tasks.json", Some("VS Code")),
            (".mcp.json", Some("MCP clients")),
            (".claude/settings.json", Some("coding agents")),
            ("sub/AGENTS.md", Some("coding agents")),
            (".envrc", Some("direnv")),
            (".husky/pre-commit", Some("git")),
            (".github/workflows/ci.yml", Some("CI")),
            (".cargo/config.toml", Some("package managers")),
            ("src/main.rs", None),
            ("Makefile", None),
            ("docs/claude.md.txt", None),
            ("web/src/hooks/useUser.ts", None),
        ] {
            assert_eq!(planted.run_by(path.as_bytes()), program, "{path}");
        }
    }
}
