//! Configuration files of MCP clients, and the format of a server entry in each.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{jsonc, server_entry::McpServerEntry, toml_text};
use crate::env::config::Config;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum McpClient {
    Claude,
    Codex,
    Gemini,
    Vscode,
    Cursor,
}

/// The name of our entry in every client.
pub(super) const NAME: &str = "attache";

// === impl McpClient ===

impl McpClient {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Vscode => "VS Code",
            Self::Cursor => "Cursor",
        }
    }

    /// The user-level configuration file, which applies to all projects.
    pub(super) fn file(self, config: &Config) -> Option<PathBuf> {
        let home = config.user_home.clone()?;
        Some(match self {
            Self::Claude => config.claude_home.clone().unwrap_or(home).join(".claude.json"),
            Self::Codex => config.codex_home.clone().unwrap_or_else(|| home.join(".codex")).join("config.toml"),
            Self::Gemini => home.join(".gemini/settings.json"),
            Self::Vscode if cfg!(target_os = "macos") => home.join("Library/Application Support/Code/User/mcp.json"),
            Self::Vscode => {
                config.config_home.clone().unwrap_or_else(|| home.join(".config")).join("Code/User/mcp.json")
            }
            Self::Cursor => home.join(".cursor/mcp.json"),
        })
    }

    /// Returns the file's text with our entry, or without it if `entry` is `None`.
    pub(super) fn edit(self, text: &str, entry: Option<&McpServerEntry>) -> Result<String, String> {
        match self {
            Self::Codex => toml_text::edit(text, NAME, entry),
            Self::Claude | Self::Gemini | Self::Vscode | Self::Cursor => {
                let value = entry.map(|entry| self.value(entry));
                jsonc::edit(text, [self.section(), NAME], value.as_ref())
            }
        }
    }

    const fn section(self) -> &'static str {
        match self {
            Self::Vscode => "servers",
            Self::Claude | Self::Codex | Self::Gemini | Self::Cursor => "mcpServers",
        }
    }

    fn value(self, entry: &McpServerEntry) -> Value {
        let mut value = Map::new();
        if matches!(self, Self::Claude | Self::Vscode) {
            value.insert("type".to_owned(), Value::from("stdio"));
        }
        value.insert("command".to_owned(), Value::from(entry.command.as_str()));
        value.insert("args".to_owned(), Value::from(entry.args.clone()));
        if !entry.env.is_empty() {
            let env = entry.env.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
            value.insert("env".to_owned(), Value::Object(env));
        }
        Value::Object(value)
    }
}

/// The path of the backup copy.
pub(super) fn backup(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".before-attache");
    name.into()
}
