//! Files that a program runs or obeys without being asked: an editor that opens the folder, a shell that enters it, an
//! agent that works in it, a service to which it is pushed.

/// Which program runs which files, in gitignore syntax.
pub const RUN_BY: &[(&str, &[&str])] = &[
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
            "AGENT.md",
            "CRUSH.md",
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
    ("Python", &["sitecustomize.py", "usercustomize.py", "conftest.py", "*.pth"]),
    ("Nix", &["flake.nix", "devenv.nix", "shell.nix"]),
    // An editor's extension loads these as soon as one is saved.
    (
        "JavaScript tools",
        &[
            "eslint.config.*",
            "prettier.config.*",
            "stylelint.config.*",
            "jest.config.*",
            "vitest.config.*",
            "vitest.workspace.*",
            "vite.config.*",
            "playwright.config.*",
            "babel.config.*",
            "postcss.config.*",
            "tailwind.config.*",
            "svelte.config.*",
        ],
    ),
    ("rust-analyzer", &["build.rs", "rust-toolchain", "rust-toolchain.toml"]),
    ("Gradle", &["build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "init.gradle"]),
    ("Ruby", &["Gemfile", "gems.rb", "*.gemspec"]),
    ("CMake", &["CMakeLists.txt", "CMakePresets.json", "CMakeUserPresets.json"]),
    (".NET", &["Directory.Build.props", "Directory.Build.targets"]),
    ("other language servers", &["build.zig", "mix.exs", "Package.swift"]),
    ("debuggers", &[".gdbinit", ".lldbinit"]),
    ("the desktop", &["*.desktop", "**/.config/autostart", "**/.config/systemd"]),
];

/// Manifests of projects: they name programs, build steps and plugins that editors and language servers run. Every project has
/// one, so a change of it isn't listed among the files above.
const MANIFESTS: &[&str] = &[
    "*.cabal",
    "*.csproj",
    "*.fsproj",
    "*.sln",
    "*.vbproj",
    "build.sbt",
    "cargo.toml",
    "composer.json",
    "deno.json",
    "deno.jsonc",
    "jsconfig.json",
    "makefile",
    "gnumakefile",
    "meson.build",
    "package.json",
    "pom.xml",
    "pyproject.toml",
    "pytest.ini",
    "setup.cfg",
    "setup.py",
    "tox.ini",
    "tsconfig*",
];

/// Files that make the folder around them a repository, whose settings name programs.
const REPOSITORY_FILES: [&str; 2] = ["head", "commondir"];

/// Folders of installed programs, whose files run with whatever uses them.
const INSTALLED: [&str; 4] = ["node_modules", "site-packages", "__pycache__", "venv"];

/// Whether a path, relative to its folder, is an ordinary file: neither hidden, nor part of something installed, nor one that a
/// program runs or obeys on its own.
pub fn is_ordinary(path: &str) -> bool {
    let twin = path.to_ascii_lowercase();
    let names: Vec<&str> = twin.split('/').collect();
    let is_listed = |name: &str| {
        let patterns = RUN_BY.iter().flat_map(|(_, patterns)| *patterns).chain(MANIFESTS);
        patterns.map(|pattern| pattern.rsplit('/').next().unwrap_or(pattern)).any(|pattern| {
            match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
                (Some(end), _) => name.ends_with(&end.to_ascii_lowercase()),
                (None, Some(start)) => name.starts_with(&start.to_ascii_lowercase()),
                (None, None) => name.eq_ignore_ascii_case(pattern),
            }
        })
    };
    let is_plain = |name: &&str| !name.is_empty() && !name.starts_with('.') && !INSTALLED.contains(name);
    let makes_repository = names.last().is_some_and(|name| REPOSITORY_FILES.contains(name));
    names.iter().all(|name| is_plain(name) && !is_listed(name)) && !makes_repository
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_and_obeyed_files_are_not_ordinary() {
        for path in ["src/main.rs", "README.md", "a b/c.txt", "src/build.rs.txt", "my.jest.config.js", "head/a.txt"] {
            assert!(is_ordinary(path), "{path}");
        }
        for path in [
            "",
            ".git/hooks/x",
            "a/.vscode/tasks.json",
            ".envrc",
            "claude.md",
            "docs/AGENTS.md",
            "x.code-workspace",
            "../x",
            "a//b",
            "conftest.py",
            "lib/Node_Modules/x/index.js",
            "a.pth",
            "flake.nix",
            "eslint.config.js",
            "crates/x/build.rs",
            "app/build.gradle.kts",
            "Gemfile",
            "x.gemspec",
            "web/prettier.config.mjs",
            "Jest.Config.TS",
            "vitest.config.mts",
            "package.json",
            "crates/x/Cargo.toml",
            "pyproject.toml",
            "tsconfig.base.json",
            "App.csproj",
            "Makefile",
            "docs/HEAD",
            "docs/commondir",
        ] {
            assert!(!is_ordinary(path), "{path}");
        }
    }
}
