//! The hosts' programs: their locations, and the files and variables that point each at the stub model.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::model::TestModel;
use crate::harness::TestHome;

/// A host in this suite.
#[derive(Debug, Clone, Copy)]
pub struct HostProgram {
    /// The preset's name.
    pub kind: &'static str,
    /// The program's file.
    pub file: &'static str,
    /// Whether it asks before it writes, by default.
    pub asks: HostAsks,
    /// Whether it reports its token usage.
    pub counts: HostCounts,
    /// Its name for our tool that lists agents, if it supports tools over HTTP.
    pub tool: Option<&'static str>,
    /// Whether `./test` installs it, or only `./test --agents`.
    pub since: HostSince,
    pub prepare: fn(&mut TestHome, &TestModel),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAsks {
    BeforeItWrites,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostCounts {
    Tokens,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostSince {
    Always,
    Agents,
}

pub const CLAUDE: HostProgram = HostProgram {
    kind: "claude_cli",
    file: "claude",
    asks: HostAsks::BeforeItWrites,
    counts: HostCounts::Tokens,
    tool: Some("mcp__attache_run__list_agents"),
    since: HostSince::Always,
    prepare: |home, model| {
        home.set("ANTHROPIC_BASE_URL", model.url());
        home.set("ANTHROPIC_API_KEY", "stub-key");
        home.set("CLAUDE_CODE_MAX_RETRIES", "1");
    },
};

pub const CODEX: HostProgram = HostProgram {
    kind: "codex",
    file: "codex",
    asks: HostAsks::BeforeItWrites,
    counts: HostCounts::Tokens,
    tool: Some("mcp__attache_run__list_agents"),
    since: HostSince::Always,
    prepare: |home, model| {
        let provider = format!(
            "model = \"stub-model\"\nmodel_provider = \"stub\"\n[model_providers.stub]\nname = \"stub\"\nbase_url = \
             \"{}/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\nrequest_max_retries = 1\n\
             stream_max_retries = 1\n",
            model.url()
        );
        write(home, ".codex/config.toml", &provider);
        home.set("OPENAI_API_KEY", "stub-key");
    },
};

pub const GEMINI: HostProgram = HostProgram {
    kind: "gemini",
    file: "gemini",
    asks: HostAsks::BeforeItWrites,
    counts: HostCounts::Tokens,
    tool: None,
    since: HostSince::Agents,
    prepare: |home, model| {
        write(
            home,
            ".gemini/settings.json",
            r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"general":{"maxAttempts":2}}"#,
        );
        home.set("GEMINI_API_KEY", "stub-key");
        home.set("GOOGLE_GEMINI_BASE_URL", model.url());
    },
};

pub const OPENCODE: HostProgram = HostProgram {
    kind: "opencode",
    file: "opencode",
    asks: HostAsks::BeforeItWrites,
    counts: HostCounts::Tokens,
    tool: None,
    since: HostSince::Agents,
    prepare: |home, model| {
        let config = json!({
            "model": "stub/stub-model",
            "provider": {"stub": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": format!("{}/v1", model.url()), "apiKey": "stub-key"},
                "models": {"stub-model": {"name": "stub"}},
            }},
        });
        write(home, ".config/opencode/opencode.json", &config.to_string());
        home.set("OPENCODE_DISABLE_MODELS_FETCH", "1");
    },
};

pub const QWEN: HostProgram = HostProgram {
    kind: "qwen",
    file: "qwen",
    asks: HostAsks::BeforeItWrites,
    counts: HostCounts::Nothing,
    tool: None,
    since: HostSince::Agents,
    prepare: |home, model| {
        write(home, ".qwen/settings.json", r#"{"security":{"auth":{"selectedType":"openai"}}}"#);
        home.set("OPENAI_API_KEY", "stub-key");
        home.set("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
        home.set("OPENAI_MODEL", "stub-model");
    },
};

pub const HERMES: HostProgram = HostProgram {
    kind: "hermes",
    file: "hermes-acp",
    asks: HostAsks::BeforeItWrites,
    counts: HostCounts::Tokens,
    tool: None,
    since: HostSince::Agents,
    prepare: |home, model| {
        let config = format!(
            "model:\n  default: stub-model\n  provider: custom\n  base_url: {}/v1\n  api_key: stub-key\n",
            model.url()
        );
        write(home, ".hermes/config.yaml", &config);
    },
};

pub const OPENCLAW: HostProgram = HostProgram {
    kind: "openclaw",
    file: "openclaw",
    asks: HostAsks::Never,
    counts: HostCounts::Tokens,
    tool: None,
    since: HostSince::Agents,
    prepare: |home, model| {
        let config = json!({
            "models": {"providers": {"stub": {
                "baseUrl": format!("{}/v1", model.url()),
                "apiKey": "stub-key",
                "api": "openai-completions",
                "models": [{"id": "stub-model", "name": "stub"}],
            }}},
            "agents": {"defaults": {"model": {"primary": "stub/stub-model"}}},
        });
        write(home, ".openclaw/openclaw.json", &config.to_string());
    },
};

// === impl HostProgram ===

impl HostProgram {
    /// The folder with the programs, if this one is installed and enabled.
    pub fn found(&self) -> Option<PathBuf> {
        let wanted = self.since == HostSince::Always || std::env::var_os("ATTACHE_AGENTS").is_some();
        let folder = PathBuf::from(std::env::var_os("ATTACHE_HOSTS")?).join("bin");
        (wanted && folder.join(self.file).exists()).then_some(folder)
    }
}

fn write(home: &TestHome, name: &str, text: &str) {
    let file = home.path().join(name);
    fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).unwrap();
    fs::write(file, text).unwrap();
}
