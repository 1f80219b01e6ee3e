//! The table of documents: files of this repository, compiled into the binary, in reading order for a newcomer.

use std::{fmt::Write as _, sync::LazyLock};

use super::markdown::{self, DocHeading};
use crate::{
    text::{Language, Text},
    view::html::Markup,
};

/// A file served as a page.
#[derive(Debug, Clone, Copy)]
struct DocSource {
    slug: &'static str,
    /// The short title for the navigation.
    name: &'static str,
    /// A one-line summary for lists.
    about: &'static str,
    markdown: &'static str,
    zh_name: &'static str,
    zh_about: &'static str,
    /// The file in `docs/zh/`, if there is one.
    zh_markdown: Option<&'static str>,
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
    /// As it is served, with links that work on the hub.
    pub(crate) markdown: String,
    /// The language of the text. English if there is no translation.
    pub(crate) language: Language,
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
    ($slug:literal, $name:literal, $about:literal, zh $zh_name:literal, $zh_about:literal) => {
        DocSource {
            slug: $slug,
            name: $name,
            about: $about,
            markdown: include_str!(concat!("../../../../docs/", $slug, ".md")),
            zh_name: $zh_name,
            zh_about: $zh_about,
            zh_markdown: None,
        }
    };
    ($slug:literal, $name:literal, $about:literal, zh $zh_name:literal, $zh_about:literal, translated) => {
        DocSource {
            zh_markdown: Some(include_str!(concat!("../../../../docs/zh/", $slug, ".md"))),
            ..source!($slug, $name, $about, zh $zh_name, $zh_about)
        }
    };
}

macro_rules! example {
    ($name:literal) => {
        DocExample { name: $name, content: include_str!(concat!("../../../../examples/", $name)) }
    };
}

const PARTS: &[((&str, &str), &[DocSource])] = &[
    (
        ("Get started", "入门"),
        &[
            source!(
                "start",
                "Getting started",
                "what Attaché is, and how to install it, pair a laptop, call an agent and approve a step",
                zh "快速上手",
                "Attaché 是什么，如何安装、配对笔记本电脑、调用智能体并审批一个步骤", translated
            ),
            source!(
                "install",
                "Installing",
                "get a package, run Attaché as a service, update it and remove it",
                zh "安装",
                "获取软件包，将 Attaché 作为服务运行，更新和卸载"
            ),
            source!(
                "walkthrough-laptop",
                "Cloud to laptop",
                "walkthrough: a cloud assistant calls the agent on a laptop",
                zh "从云端到笔记本电脑",
                "演练：云端助理调用笔记本电脑上的智能体"
            ),
            source!(
                "walkthrough-knowledge",
                "Terminal to knowledge agent",
                "walkthrough: a terminal agent calls the organisation's knowledge agent",
                zh "从终端到知识库智能体",
                "演练：终端智能体调用组织的知识库智能体"
            ),
        ],
    ),
    (
        ("Call agents", "调用智能体"),
        &[
            source!(
                "calls",
                "Calls",
                "send one task to one agent, follow it and get its result",
                zh "调用",
                "把一项任务发给一个智能体，跟踪并取得结果"
            ),
            source!(
                "a2a",
                "A2A",
                "the A2A endpoint of every agent: URLs, tasks, streaming, push notifications, outside agents",
                zh "A2A",
                "每个智能体的 A2A 端点：URL、任务、流式传输、推送通知、外部智能体"
            ),
            source!(
                "a2a-cards",
                "Agent cards",
                "agent cards, their signatures, A2A options and client certificates",
                zh "Agent Card",
                "Agent Card 及其签名、A2A 选项和客户端证书"
            ),
            source!(
                "a2a-conformance",
                "A2A conformance",
                "results of the public conformance kits and third-party clients",
                zh "A2A 一致性",
                "公开一致性测试套件和第三方客户端的结果"
            ),
            source!(
                "mcp",
                "MCP",
                "tools for models in Claude Code, Codex, Gemini, VS Code and Cursor: delegate folders, call agents",
                zh "MCP",
                "供 Claude Code、Codex、Gemini、VS Code 和 Cursor 中的模型使用的工具：委派文件夹、调用智能体"
            ),
            source!(
                "delegations",
                "Delegations",
                "let an agent on another machine work in a local folder: policy, daemon, connectivity, revert",
                zh "委派",
                "让另一台机器上的智能体在本地文件夹中工作：策略、守护进程、连接、还原", translated
            ),
            source!(
                "notifications",
                "Notifications",
                "approval requests and questions on a phone or in a chat, and approving from the lock screen",
                zh "通知",
                "在手机或聊天中接收审批请求和问题，并在锁屏上批准"
            ),
            source!(
                "webhooks",
                "Webhooks",
                "get notified when a call ends or needs approval; signatures and retries",
                zh "Webhook",
                "在调用结束或需要审批时收到通知；签名与重试"
            ),
            source!(
                "sandbox",
                "Sandbox",
                "limits of a run, the sandbox that enforces them, and what is tested",
                zh "沙箱",
                "运行的限制、执行限制的沙箱，以及如何验证"
            ),
            source!(
                "access",
                "Access rules and quotas",
                "access rules, quotas, usage and the audit log",
                zh "访问规则与配额",
                "访问规则、配额、用量和审计日志"
            ),
            source!(
                "cli",
                "Command line",
                "every command, option, file and exit code",
                zh "命令行",
                "所有命令、选项、文件和退出代码"
            ),
            source!(
                "api",
                "HTTP API",
                "credentials, runs, approvals, input, streams, artifacts, limits",
                zh "HTTP API",
                "凭证、运行、审批、输入、流、产物、限制"
            ),
            source!(
                "errors",
                "Errors",
                "every error and failure code: what it means and what to do next",
                zh "错误",
                "所有错误代码和失败代码：含义与处理方法"
            ),
            source!(
                "glossary",
                "Glossary",
                "every term, what it means and where it lives in the code",
                zh "术语表",
                "所有术语、含义、代码中的位置，以及中文说法"
            ),
        ],
    ),
    (
        ("Connect an agent", "接入智能体"),
        &[
            source!(
                "hosts",
                "Hosts",
                "connect Claude Code, Codex, Gemini CLI, Hermes or any ACP agent, or add your own",
                zh "智能体程序",
                "接入 Claude Code、Codex、Gemini CLI、Hermes 或任何 ACP 智能体，或添加自己的", translated
            ),
            source!(
                "adapter",
                "Adapters",
                "write an adapter in any language with two HTTP endpoints",
                zh "适配器",
                "用任何语言编写适配器，只需两个 HTTP 端点"
            ),
            source!(
                "runtime",
                "Runtime",
                "the process that connects a device to the hub, and how it recovers from failures",
                zh "运行时",
                "将设备连接到 Hub 的进程，以及它如何从故障中恢复"
            ),
            source!(
                "channels",
                "Channels",
                "implement a channel yourself: envelopes and plain frames over WebSocket or SSE",
                zh "通道",
                "自行实现通道：基于 WebSocket 或 SSE 的信封与普通帧"
            ),
        ],
    ),
    (
        ("Run a hub", "运行 Hub"),
        &[
            source!(
                "identity",
                "People, keys and tokens",
                "roles and permissions, passwords, scopes, JWT and JWKS, rate limits",
                zh "用户、密钥与令牌",
                "角色与权限、密码、权限范围、JWT 与 JWKS、速率限制"
            ),
            source!(
                "tls",
                "TLS",
                "serve other machines with your own certificate, or with a self-signed one and its pin",
                zh "TLS",
                "使用自己的证书，或使用自签名证书及其 pin，为其他机器提供服务"
            ),
            source!(
                "platforms",
                "Platforms",
                "what works on which system, and how that is known",
                zh "平台",
                "哪些功能在哪些系统上可用，以及依据"
            ),
            source!(
                "benchmarks",
                "Benchmarks",
                "measured performance, and how to run the benchmarks yourself",
                zh "性能测试",
                "测得的性能，以及如何自己测试"
            ),
        ],
    ),
    (
        ("Troubleshooting", "排查问题"),
        &[
            source!(
                "diagnosis",
                "Diagnosis",
                "symptoms, checks and commands, step by step, for people and agents",
                zh "诊断",
                "供人和智能体使用的症状、检查和命令，一步一步"
            ),
            source!(
                "operations",
                "Operating a hub",
                "choose a setup, size it, put a proxy in front, watch it, and know what to do when something breaks",
                zh "运维",
                "选择部署方式、规划容量、配置反向代理、监控，以及故障时的处理"
            ),
            source!(
                "postgres",
                "PostgreSQL",
                "keep a hub's database on a PostgreSQL server, with a standby that takes over",
                zh "PostgreSQL",
                "将 Hub 的数据库放在 PostgreSQL 服务器上，并配备可接管的备用 Hub"
            ),
            source!(
                "backup",
                "Backup and recovery",
                "back up and restore a hub, retention, full and damaged disks",
                zh "备份与恢复",
                "备份和恢复 Hub、数据保留、磁盘已满或损坏"
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

/// The handwritten part of `/llms.txt`. The list of pages is generated from the table.
const LLMS: &str = include_str!("../../../../docs/llms.txt");

/// The place in a translation of the table that tests write into the English page.
const MATRIX: &str = "<!-- matrix -->";

/// The documents with names and summaries in this language, and the texts that are translated.
pub(crate) fn book(language: Language) -> &'static DocBook {
    static EN: LazyLock<DocBook> = LazyLock::new(|| DocBook::new(Language::En));
    static ZH: LazyLock<DocBook> = LazyLock::new(|| DocBook::new(Language::Zh));
    match language {
        Language::En => &EN,
        Language::Zh => &ZH,
    }
}

/// Whether a page with this slug exists.
pub(super) fn has(slug: &str) -> bool {
    PARTS.iter().flat_map(|(_, sources)| *sources).any(|source| source.slug == slug)
}

// === impl DocBook ===

impl DocBook {
    fn new(language: Language) -> Self {
        let parts = PARTS.iter().map(|((en, zh), sources)| DocPart {
            title: language.pick(en, zh),
            pages: sources.iter().map(|source| DocEntry::new(source, language)).collect(),
        });
        Self { parts: parts.collect() }
    }

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
    fn new(source: &DocSource, language: Language) -> Self {
        let (name, about) = (language.pick(source.name, source.zh_name), language.pick(source.about, source.zh_about));
        let copy = language.text().copy;
        let english = markdown::render(source.markdown, copy, &[]);
        let (markdown, rendered, written_in) = match (language, source.zh_markdown) {
            (Language::Zh, Some(translated)) => {
                let text = translated.replace(MATRIX, matrix(source.markdown));
                // Links from other pages name the English headings.
                let rendered = markdown::render(&text, copy, &english.ids);
                (markdown::served(&markdown::from_parent(&text)), rendered, Language::Zh)
            }
            _ => (markdown::served(source.markdown), english, Language::En),
        };
        let title = rendered.title.unwrap_or_else(|| source.slug.to_owned());
        Self {
            slug: source.slug,
            name,
            about,
            markdown,
            language: written_in,
            title: if written_in == language { title } else { name.to_owned() },
            html: rendered.html,
            headings: rendered.headings,
        }
    }

    /// Whether it isn't written in the language of the texts.
    pub(crate) fn is_foreign(&self, t: &Text) -> bool {
        self.language.tag() != t.lang
    }

    pub(crate) fn is_at(&self, page: &Option<&Self>) -> bool {
        page.is_some_and(|page| page.slug == self.slug)
    }
}

/// The table that tests write into a page, if it has one.
fn matrix(markdown: &'static str) -> &'static str {
    let table = markdown.split_once("<!-- matrix: ").and_then(|(_, rest)| rest.split_once("-->\n"));
    table.and_then(|(_, rest)| rest.split_once("<!-- end of matrix -->")).map_or("", |(table, _)| table)
}
