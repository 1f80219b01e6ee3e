//! Renders Markdown as HTML: heading anchors, links between documents, no raw HTML.

use std::collections::HashMap;

use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use super::book;
use crate::view::html::{Markup, escape};

#[derive(Debug)]
pub(super) struct RenderedMarkdown {
    /// The first heading.
    pub(super) title: Option<String>,
    pub(super) html: Markup,
    /// Sections and subsections, in order.
    pub(super) headings: Vec<DocHeading>,
    /// The ids of all headings, in order.
    pub(super) ids: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DocHeading {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) is_part: bool,
}

/// Ids that the page layout already uses.
const TAKEN: &[&str] = &["main"];

/// `copy` is the label of copy buttons. The headings can be linked to by `other_ids`, too: those of the same headings in
/// another language.
pub(super) fn render(source: &str, copy: &str, other_ids: &[String]) -> RenderedMarkdown {
    let options = Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS | Options::ENABLE_STRIKETHROUGH;
    let mut events: Vec<_> = Parser::new_ext(source, options).map(sanitize).collect();
    let outline = name_headings(&mut events, other_ids);
    let mut out = Vec::with_capacity(events.len() + 64);
    let (mut in_shell, mut blocks) = (false, 0);
    for event in events {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                blocks += 1;
                in_shell = matches!(&kind, CodeBlockKind::Fenced(language) if &**language == "sh");
                out.push(raw_html(format!("<div class=\"block\"><pre id=\"block-{blocks}\"><code>")));
            }
            Event::End(TagEnd::CodeBlock) => {
                out.push(raw_html("</code></pre>".to_owned()));
                if in_shell {
                    out.push(raw_html(format!(
                        "<button class=\"btn tiny\" type=\"button\" data-copy-from=\"block-{blocks}\" hidden>{copy}</button>"
                    )));
                }
                out.push(raw_html("</div>\n".to_owned()));
            }
            // A wide table scrolls on its own, so that the page doesn't.
            Event::Start(Tag::Table(_)) => {
                out.push(raw_html("<div class=\"wide\">".to_owned()));
                // Alignment would become an inline style, which the content security policy forbids.
                out.push(Event::Start(Tag::Table(Vec::new())));
            }
            Event::End(TagEnd::Table) => out.extend([event, raw_html("</div>\n".to_owned())]),
            other => out.push(other),
        }
    }
    let mut page = String::with_capacity(source.len() * 2);
    html::push_html(&mut page, out.into_iter());
    let title = outline.iter().find(|(level, _)| *level == HeadingLevel::H1).map(|(_, heading)| heading.text.clone());
    let ids = outline.iter().map(|(_, heading)| heading.id.clone()).collect();
    let shown = |level| level == HeadingLevel::H2 || level == HeadingLevel::H3;
    let headings = outline.into_iter().filter(|(level, _)| shown(*level)).map(|(_, heading)| heading).collect();
    RenderedMarkdown { title, html: Markup::trusted(page), headings, ids }
}

/// Escapes raw HTML, drops comments and rewrites links to files into links to pages.
fn sanitize(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(html) if html.starts_with("<!--") => Event::Text("".into()),
        Event::Html(html) | Event::InlineHtml(html) => Event::Text(html),
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url: address(&dest_url).into(), title, id })
        }
        other => other,
    }
}

/// The Markdown of a file in `docs/`, with links that work on the hub: neighbouring files are served there, other
/// folders are not.
pub(super) fn served(markdown: &str) -> String {
    let markdown = markdown.replace("](../openapi/openapi.json)", "](/api/v1/openapi.json)");
    markdown.replace("](../examples/", "](/docs/examples/")
}

/// The Markdown of a file in `docs/zh/`, as if it were in `docs/`.
pub(super) fn from_parent(markdown: &str) -> String {
    let links = markdown.split("](").enumerate().map(|(index, part)| match index {
        0 => part,
        _ => part.strip_prefix("../").unwrap_or(part),
    });
    links.collect::<Vec<_>>().join("](")
}

/// The served target of a link in a file in `docs/` or `docs/zh/`.
fn address(target: &str) -> String {
    let (path, anchor) = target.find('#').map_or((target, ""), |at| target.split_at(at));
    let from_parent = path.strip_prefix("../");
    let is_page = |path: &str| path.strip_suffix(".md").is_some_and(book::has);
    let path = from_parent.filter(|path| path.starts_with("../") || is_page(path)).unwrap_or(path);
    if let Some(slug) = path.strip_suffix(".md").filter(|slug| book::has(slug)) {
        return format!("/docs/{slug}{anchor}");
    }
    if path == "../openapi/openapi.json" {
        return "/api/v1/openapi.json".to_owned();
    }
    if let Some(name) = path.strip_prefix("../examples/") {
        return format!("/docs/examples/{name}");
    }
    // Never a scheme that can run code.
    match target.split_once(':') {
        Some(("http" | "https" | "mailto", _)) | None => target.to_owned(),
        Some(_) => "#".to_owned(),
    }
}

/// Gives every heading a unique id and a link to itself.
fn name_headings(events: &mut Vec<Event<'_>>, other_ids: &[String]) -> Vec<(HeadingLevel, DocHeading)> {
    let mut used: HashMap<String, usize> = TAKEN.iter().map(|name| ((*name).to_owned(), 1)).collect();
    let mut outline = Vec::new();
    let mut at = 0;
    while at < events.len() {
        let Event::Start(Tag::Heading { level, .. }) = events[at] else {
            at += 1;
            continue;
        };
        let length = events[at..].iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_)))).count();
        let text: String = events[at..at + length].iter().filter_map(event_text).collect();
        let id = unique(&mut used, slug(&text));
        if let Event::Start(Tag::Heading { id: name, .. }) = &mut events[at] {
            *name = Some(CowStr::from(id.clone()));
        }
        let mut link = String::new();
        if let Some(other) = other_ids.get(outline.len())
            && !used.contains_key(other)
        {
            used.insert(other.clone(), 1);
            link.push_str("<span id=\"");
            escape(&mut link, other);
            link.push_str("\"></span>");
        }
        link.push_str("<a class=\"anchor\" href=\"#");
        escape(&mut link, &id);
        link.push_str("\" aria-hidden=\"true\" tabindex=\"-1\">#</a>");
        events.insert(at + length, raw_html(link));
        outline.push((level, DocHeading { id, text, is_part: level == HeadingLevel::H3 }));
        at += length + 2;
    }
    outline
}

fn event_text<'a>(event: &'a Event<'_>) -> Option<&'a str> {
    match event {
        Event::Text(text) | Event::Code(text) => Some(text),
        _ => None,
    }
}

/// The anchor of a heading, compatible with GitHub's.
fn slug(text: &str) -> String {
    let kept = text.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
    kept.flat_map(char::to_lowercase).map(|character| if character == ' ' { '-' } else { character }).collect()
}

fn unique(used: &mut HashMap<String, usize>, slug: String) -> String {
    let count = used.entry(slug.clone()).or_insert(0);
    *count += 1;
    if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
}

fn raw_html(html: String) -> Event<'static> {
    Event::Html(html.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_html_is_escaped_and_nothing_is_styled_or_run() {
        let source = "# T\n\n<script>alert(1)</script>\n\nan <b onclick=x>inline</b> tag, `<code>`\n\n\
                      [x](javascript:alert(1)) [y](data:text/html,x) <https://example.org>\n\n| a |\n|:-:|\n| b |\n";
        let html = render(source, "Copy", &[]).html.to_string();
        assert_eq!(
            html,
            "<h1 id=\"t\">T<a class=\"anchor\" href=\"#t\" aria-hidden=\"true\" tabindex=\"-1\">#</a></h1>\n\
             &lt;script&gt;alert(1)&lt;/script&gt;\n\
             <p>an &lt;b onclick=x&gt;inline&lt;/b&gt; tag, <code>&lt;code&gt;</code></p>\n\
             <p><a href=\"#\">x</a> <a href=\"#\">y</a> <a href=\"https://example.org\">https://example.org</a></p>\n\
             <div class=\"wide\"><table><thead><tr><th>a</th></tr></thead><tbody>\n<tr><td>b</td></tr>\n\
             </tbody></table>\n</div>\n"
        );
    }

    #[test]
    fn headings_have_unique_ids() {
        let source = "# The *whole*\n## `GET /health`\n## Main\n### Errors, again\n### Errors, again\n";
        let rendered = render(source, "Copy", &[]);
        assert_eq!(rendered.title.as_deref(), Some("The whole"));
        let heading = |id: &str, text: &str, is_part| DocHeading { id: id.to_owned(), text: text.to_owned(), is_part };
        assert_eq!(
            rendered.headings,
            [
                heading("get-health", "GET /health", false),
                heading("main-1", "Main", false),
                heading("errors-again", "Errors, again", true),
                heading("errors-again-1", "Errors, again", true),
            ]
        );
    }

    #[test]
    fn a_link_to_a_file_leads_to_its_page() {
        for (given, expected) in [
            ("calls.md", "/docs/calls"),
            ("calls.md#who-is-meant", "/docs/calls#who-is-meant"),
            ("#here", "#here"),
            ("nothing.md", "nothing.md"),
            ("../openapi/openapi.json", "/api/v1/openapi.json"),
            ("../examples/python-adapter/adapter.py", "/docs/examples/python-adapter/adapter.py"),
            ("../calls.md#who-is-meant", "/docs/calls#who-is-meant"),
            ("../../examples/python-adapter/adapter.py", "/docs/examples/python-adapter/adapter.py"),
            ("../nothing.md", "../nothing.md"),
            ("/llms.txt", "/llms.txt"),
            ("https://example.org/a", "https://example.org/a"),
        ] {
            assert_eq!(address(given), expected);
        }
    }

    #[test]
    fn a_translated_heading_keeps_the_id_of_the_original() {
        let ids = render("# One\n## Codex\n", "Copy", &[]).ids;
        let html = render("# 一\n## Codex\n", "复制", &ids).html.to_string();
        assert!(html.starts_with("<h1 id=\"一\">一<span id=\"one\"></span><a class"), "{html}");
        assert!(html.contains("<h2 id=\"codex\">Codex<a class"), "{html}");
        let text = "[a](../calls.md) [b](../../examples/x) [c](hosts.md)";
        assert_eq!(from_parent(text), "[a](calls.md) [b](../examples/x) [c](hosts.md)");
    }

    #[test]
    fn a_shell_block_can_be_copied_without_its_frame() {
        assert_eq!(
            render("```sh\na < b\n```\n```text\nc\n```\n", "Copy", &[]).html.to_string(),
            "<div class=\"block\"><pre id=\"block-1\"><code>a &lt; b\n</code></pre>\
             <button class=\"btn tiny\" type=\"button\" data-copy-from=\"block-1\" hidden>Copy</button></div>\n\
             <div class=\"block\"><pre id=\"block-2\"><code>c\n</code></pre></div>\n"
        );
    }
}
