//! The table of documents: the repository's own files, part of the binary, in the order in which a stranger reads them.

use std::{fmt::Write as _, sync::LazyLock};

use super::markdown::{self, DocHeading};
use crate::view::html::Markup;

/// A file that is served as a page.
#[derive(Debug, Clone, Copy)]
struct DocSource {
    slug: &'static str,
    /// A short one, for the navigation.
    name: &'static str,
    /// One sentence for lists.
    about: &'static str,
    markdown: &'static str,
}

#[derive(Debug)]
pub(crate) struct DocBook {
    pub(crate) parts: Vec<DocPart>,
}

/// Pages that belong together.
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

/// A program that pages link to.
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
        "Begin here",
        &[
            source!("start", "Getting started", "what Attaché is; install, start, pair a laptop, ask, approve"),
            source!(
                "walkthrough-laptop",
                "The cloud asks a laptop",
                "a cloud assistant asks the agent on a laptop, to paste step by step"
            ),
            source!(
                "walkthrough-knowledge",
                "A terminal asks for knowledge",
                "a terminal agent asks the organisation's knowledge agent, to paste step by step"
            ),
        ],
    ),
    (
        "Call agents",
        &[
            source!("calls", "Calls", "call, watch, result: one task for one agent, wherever it is"),
            source!(
                "a2a",
                "A2A",
                "the standard protocol in front of every agent: addresses, tasks, streams, push, peers"
            ),
            source!(
                "a2a-cards",
                "Cards",
                "what an agent says about itself: cards, signatures, switches, client certificates"
            ),
            source!("a2a-conformance", "A2A conformance", "what the public kits and other people's clients say"),
            source!(
                "mcp",
                "MCP",
                "tools for models in Claude Code, Codex, Gemini, VS Code, Cursor: lend folders, ask agents"
            ),
            source!(
                "delegations",
                "Delegations",
                "lend a folder to an agent on another machine, under a lease: policy, daemon, reach, undo"
            ),
            source!("webhooks", "Webhooks", "be told when a call has ended or a person is asked; signatures, retries"),
            source!(
                "access",
                "Access",
                "who may call whom, how much it may cost, and what happened: rules, quotas, usage, audit"
            ),
            source!("cli", "Command line", "every command, option, file and exit code"),
            source!("api", "HTTP API", "the HTTP API: credentials, runs, approvals, input, streams, artifacts, limits"),
            source!("errors", "Errors", "every error and failure code: what it means and what to do next"),
            source!(
                "glossary",
                "Glossary",
                "the words of this system, one for each concept, and where they live in the code"
            ),
        ],
    ),
    (
        "Be an agent",
        &[
            source!(
                "hosts",
                "Hosts",
                "connect Claude Code, Codex, Gemini, Hermes and others that speak ACP; add your own"
            ),
            source!("adapter", "Adapters", "serve an agent on a device: two HTTP calls in any language"),
            source!(
                "runtime",
                "The runtime",
                "what connects a device to its agent, and what happens when something breaks"
            ),
            source!(
                "channels",
                "Channels",
                "hold a channel yourself: envelopes and plain frames over WebSocket or SSE"
            ),
        ],
    ),
    (
        "Run a hub",
        &[
            source!(
                "identity",
                "People, keys and tokens",
                "who may do what; passwords, scopes, JWT and JWKS, rate limits"
            ),
            source!("tls", "TLS", "other machines reach the hub: with a certificate, or a pin for its own one"),
            source!("benchmarks", "Benchmarks", "how fast it is on one machine, and how to measure it on yours"),
        ],
    ),
    (
        "When something is wrong",
        &[
            source!("diagnosis", "Diagnosis", "symptom, check, command; a protocol that an agent can follow by itself"),
            source!(
                "backup",
                "Backup and faults",
                "back up and restore a hub, what is kept how long, full and damaged disks"
            ),
        ],
    ),
];

pub(crate) const EXAMPLES: &[DocExample] = &[
    example!("python-adapter/adapter.py"),
    example!("python-asking-adapter/adapter.py"),
    example!("python-subagent/subagent.py"),
    example!("hermes-adapter/adapter.py"),
];

/// The part of `/llms.txt` that people write; the list of pages follows from the table.
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

/// Whether a page of this name is served.
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

    /// `/llms.txt` of the hub at this origin. Its addresses are whole, because an agent may read it far from here.
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
