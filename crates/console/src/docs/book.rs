//! The table of documents: files of this repository, compiled into the binary, in reading order for a newcomer.

use std::{fmt::Write as _, sync::LazyLock};

use super::markdown::{self, DocHeading};
use crate::view::html::Markup;

/// A file served as a page.
#[derive(Debug, Clone, Copy)]
struct DocSource {
    slug: &'static str,
    /// The short title for the navigation.
    name: &'static str,
    /// A one-line summary for lists.
    about: &'static str,
    markdown: &'static str,
}

#[derive(Debug)]
pub(crate) struct DocBook {
    pub(crate) parts: Vec<DocPart>,
}

/// A group of pages.
#[derive(Debug)]
pub(crate) struct DocPart {
    pub(crate) title: &'static str,
    pub(crate) pages: Vec<DocEntry>,
}

#[derive(Debug)]
pub(crate) struct DocEntry {
    pub(crate) slug: &'static str,
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) markdown: &'static str,
    pub(crate) title: String,
    pub(crate) html: Markup,
    pub(crate) headings: Vec<DocHeading>,
}

/// An example program that pages link to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DocExample {
    pub(crate) name: &'static str,
    pub(crate) content: &'static str,
}

macro_rules! source {
    ($slug:literal, $name:literal, $about:literal) => {
        DocSource {
            slug: $slug,
            name: $name,
            about: $about,
            markdown: include_str!(concat!("../../../../docs/", $slug, ".md")),
        }
    };
}

macro_rules! example {
    ($name:literal) => {
        DocExample { name: $name, content: include_str!(concat!("../../../../examples/", $name)) }
    };
}

const PARTS: &[(&str, &[DocSource])] = &[
    (
        "Get started",
        &[
            source!(
                "start",
                "Getting started",
                "what Attaché is, and how to install it, pair a laptop, call an agent and approve a step"
            ),
            source!("install", "Installing", "get a package, run Attaché as a service, update it and remove it"),
            source!(
                "walkthrough-laptop",
                "Cloud to laptop",
                "walkthrough: a cloud assistant calls the agent on a laptop"
            ),
            source!(
                "walkthrough-knowledge",
                "Terminal to knowledge agent",
                "walkthrough: a terminal agent calls the organisation's knowledge agent"
            ),
        ],
    ),
    (
        "Call agents",
        &[
            source!("calls", "Calls", "send one task to one agent, follow it and get its result"),
            source!(
                "a2a",
                "A2A",
                "the A2A endpoint of every agent: URLs, tasks, streaming, push notifications, outside agents"
            ),
            source!("a2a-cards", "Agent cards", "agent cards, their signatures, A2A options and client certificates"),
            source!(
                "a2a-conformance",
                "A2A conformance",
                "results of the public conformance kits and third-party clients"
            ),
            source!(
                "mcp",
                "MCP",
                "tools for models in Claude Code, Codex, Gemini, VS Code and Cursor: delegate folders, call agents"
            ),
            source!(
                "delegations",
                "Delegations",
                "let an agent on another machine work in a local folder: policy, daemon, connectivity, revert"
            ),
            source!("webhooks", "Webhooks", "get notified when a call ends or needs approval; signatures and retries"),
            source!("sandbox", "Sandbox", "limits of a run, the walls that enforce them, and what is proved"),
            source!("access", "Access rules and quotas", "access rules, quotas, usage and the audit log"),
            source!("cli", "Command line", "every command, option, file and exit code"),
            source!("api", "HTTP API", "credentials, runs, approvals, input, streams, artifacts, limits"),
            source!("errors", "Errors", "every error and failure code: what it means and what to do next"),
            source!("glossary", "Glossary", "every term, what it means and where it lives in the code"),
        ],
    ),
    (
        "Connect an agent",
        &[
            source!(
                "hosts",
                "Hosts",
                "connect Claude Code, Codex, Gemini CLI, Hermes or any ACP agent, or add your own"
            ),
            source!("adapter", "Adapters", "write an adapter in any language with two HTTP endpoints"),
            source!(
                "runtime",
                "Runtime",
                "the process that connects a device to the hub, and how it recovers from failures"
            ),
            source!(
                "channels",
                "Channels",
                "implement a channel yourself: envelopes and plain frames over WebSocket or SSE"
            ),
        ],
    ),
    (
        "Run a hub",
        &[
            source!(
                "identity",
                "People, keys and tokens",
                "roles and permissions, passwords, scopes, JWT and JWKS, rate limits"
            ),
            source!(
                "tls",
                "TLS",
                "serve other machines with your own certificate, or with a self-signed one and its pin"
            ),
            source!("platforms", "Platforms", "what works on which system, and how that is known"),
            source!("benchmarks", "Benchmarks", "measured performance, and how to run the benchmarks yourself"),
        ],
    ),
    (
        "Troubleshooting",
        &[
            source!("diagnosis", "Diagnosis", "symptoms, checks and commands, step by step, for people and agents"),
            source!("backup", "Backup and recovery", "back up and restore a hub, retention, full and damaged disks"),
        ],
    ),
];

pub(crate) const EXAMPLES: &[DocExample] = &[
    example!("python-adapter/adapter.py"),
    example!("python-asking-adapter/adapter.py"),
    example!("python-subagent/subagent.py"),
    example!("hermes-adapter/adapter.py"),
];

/// The handwritten part of `/llms.txt`. The list of pages is generated from the table.
const LLMS: &str = include_str!("../../../../docs/llms.txt");

static BOOK: LazyLock<DocBook> = LazyLock::new(|| DocBook {
    parts: PARTS
        .iter()
        .map(|(title, sources)| DocPart { title, pages: sources.iter().copied().map(DocEntry::new).collect() })
        .collect(),
});

pub(crate) fn book() -> &'static DocBook {
    &BOOK
}

/// Whether a page with this slug exists.
pub(super) fn has(slug: &str) -> bool {
    PARTS.iter().flat_map(|(_, sources)| *sources).any(|source| source.slug == slug)
}

// === impl DocBook ===

impl DocBook {
    pub(crate) fn pages(&self) -> impl Iterator<Item = &DocEntry> {
        self.parts.iter().flat_map(|part| &part.pages)
    }

    pub(crate) fn page(&self, slug: &str) -> Option<&DocEntry> {
        self.pages().find(|page| page.slug == slug)
    }

    /// `/llms.txt` of the hub at this origin. Its URLs are absolute, because an agent may read the file elsewhere.
    pub(crate) fn llms(&self, origin: &str) -> String {
        let mut text = LLMS.replace("{HUB}", origin);
        for part in &self.parts {
            let _ = write!(text, "\n## {}\n\n", part.title);
            for page in &part.pages {
                let _ = writeln!(text, "- [{}]({origin}/docs/{}.md): {}", page.title, page.slug, page.about);
            }
        }
        text
    }
}

// === impl DocEntry ===

impl DocEntry {
    fn new(source: DocSource) -> Self {
        let rendered = markdown::render(source.markdown);
        Self {
            slug: source.slug,
            name: source.name,
            about: source.about,
            markdown: source.markdown,
            title: rendered.title.unwrap_or_else(|| source.slug.to_owned()),
            html: rendered.html,
            headings: rendered.headings,
        }
    }

    pub(crate) fn is_at(&self, page: &Option<&Self>) -> bool {
        page.is_some_and(|page| page.slug == self.slug)
    }
}
