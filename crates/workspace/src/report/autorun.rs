//! Files that a program on the host runs or obeys without being asked: an editor that opens the folder, a shell that
//! enters it, an agent that works in it, a service to which it is pushed. When a remote writes one, it deserves a
//! second look.

use crate::export::{ExportError, GlobPatterns};

/// Which program runs which files, in gitignore syntax.
const RUN_BY: &[(&str, &[&str])] = &[
    (
        "VS Code",
        &[
            "**/.vscode/tasks.json",
            "**/.vscode/settings.json",
            "**/.vscode/launch.json",
            "**/.vscode/mcp.json",
            "*.code-workspace",
        ],
    ),
    ("dev containers", &[".devcontainer", ".devcontainer.json"]),
    ("JetBrains IDEs", &["**/.idea/runConfigurations", "**/.idea/workspace.xml", "**/.idea/externalDependencies.xml"]),
    ("Zed", &["**/.zed/tasks.json", "**/.zed/settings.json"]),
    ("Vim", &[".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".lvimrc"]),
    ("Emacs", &[".dir-locals.el", ".dir-locals-2.el"]),
    ("MCP clients", &[".mcp.json", "mcp.json", "**/.cursor/mcp.json", "**/.gemini/settings.json"]),
    (
        "coding agents",
        &[
            ".claude",
            ".codex",
            ".gemini",
            ".qwen",
            ".opencode",
            ".hermes",
            ".openclaw",
            ".cursor",
            ".continue",
            ".windsurf",
            "opencode.json",
            "opencode.jsonc",
            ".cursorrules",
            ".windsurfrules",
            ".aider.conf.yml",
            "CLAUDE.md",
            "CLAUDE.local.md",
            "AGENTS.md",
            "AGENTS.override.md",
            "GEMINI.md",
            "QWEN.md",
            "**/.github/copilot-instructions.md",
        ],
    ),
    ("direnv", &[".envrc"]),
    ("mise", &["mise.toml", ".mise.toml", "mise.local.toml", "**/.mise/config.toml", "**/.config/mise"]),
    ("shells", &[".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".autoenv.zsh", ".in"]),
    (
        "git",
        &[
            ".husky",
            ".githooks",
            "lefthook.yml",
            "lefthook.yaml",
            ".lefthook.yml",
            ".pre-commit-config.yaml",
            ".gitattributes",
            ".gitmodules",
            ".lfsconfig",
            ".overcommit.yml",
        ],
    ),
    (
        "CI",
        &[
            "**/.github/workflows",
            "**/.github/actions",
            "**/.forgejo/workflows",
            "**/.gitea/workflows",
            ".gitlab-ci.yml",
            ".circleci",
            ".buildkite",
            ".woodpecker",
            ".woodpecker.yml",
            ".drone.yml",
            ".travis.yml",
            "Jenkinsfile",
            "azure-pipelines.yml",
            "bitbucket-pipelines.yml",
        ],
    ),
    (
        "package managers",
        &[
            "**/.cargo/config.toml",
            "**/.cargo/config",
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".pnpmfile.cjs",
            "bunfig.toml",
        ],
    ),
    ("Python", &["sitecustomize.py", "usercustomize.py", "conftest.py"]),
    ("debuggers", &[".gdbinit", ".lldbinit"]),
    ("the desktop", &["*.desktop", "**/.config/autostart", "**/.config/systemd"]),
];

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
