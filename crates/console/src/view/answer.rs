//! An agent's answer in Markdown. Nothing in it runs, loads or looks like a part of the page.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use super::html::Markup;

pub(crate) fn answer(source: &str) -> Markup {
    let options = Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS | Options::ENABLE_STRIKETHROUGH;
    let mut page = String::with_capacity(source.len() * 2);
    html::push_html(&mut page, Parser::new_ext(source, options).map(inert));
    Markup::trusted(page)
}

/// Raw HTML is text, an image is a link to it, and headings rank below those of the page.
fn inert(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(html) | Event::InlineHtml(html) => Event::Text(html),
        // Agents break lines where they want them broken.
        Event::SoftBreak => Event::HardBreak,
        Event::Start(Tag::Link { link_type, dest_url, title, id } | Tag::Image { link_type, dest_url, title, id }) => {
            let dest_url = if is_harmless(&dest_url) { dest_url } else { "#".into() };
            Event::Start(Tag::Link { link_type, dest_url, title, id })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        Event::Start(Tag::Heading { level, .. }) => {
            Event::Start(Tag::Heading { level: below(level), id: None, classes: Vec::new(), attrs: Vec::new() })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(below(level))),
        // A language would become a class, and alignment an inline style.
        Event::Start(Tag::CodeBlock(_)) => Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)),
        Event::Start(Tag::Table(_)) => Event::Start(Tag::Table(Vec::new())),
        other => other,
    }
}

const fn below(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => HeadingLevel::H6,
    }
}

/// Links leave the console. A path or another scheme would act in it, and a link with somebody's token or code, at
/// whatever name this hub has, would sign the reader in as them or pair their device.
fn is_harmless(target: &str) -> bool {
    let leaves = ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme));
    let takes_code = target
        .split_once('?')
        .is_some_and(|(place, _)| place.split(['/', '\\']).any(|name| matches!(name, "login" | "pair")));
    leaves && !takes_code && !target.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_rendered() {
        let text = "# Done\none\ntwo **bold** `code`\n\n```rust\nlet a = 1 < 2;\n```\n\n| a |\n|:-:|\n| b |\n";
        assert_eq!(
            answer(text).to_string(),
            "<h3>Done</h3>\n<p>one<br />\ntwo <strong>bold</strong> <code>code</code></p>\n\
             <pre><code>let a = 1 &lt; 2;\n</code></pre>\n\
             <table><thead><tr><th>a</th></tr></thead><tbody>\n<tr><td>b</td></tr>\n</tbody></table>\n"
        );
    }

    #[test]
    fn nothing_runs_loads_or_acts_in_the_console() {
        let text = "<script>alert(1)</script>\n\n<img src=x onerror=alert(1)> ![x](https://example.org/p.png) \
                    [a](javascript:alert(1)) [b](/runs/1/cancel) [c](//example.org) [d](https://example.org \"t\")";
        let html = answer(text).to_string();
        assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
        assert!(!html.contains("javascript:") && !html.contains("href=\"/"), "{html}");
        assert!(html.contains("<a href=\"https://example.org/p.png\">x</a>"), "{html}");
        assert!(html.contains("<a href=\"https://example.org\" title=\"t\">d</a>"), "{html}");
    }

    #[test]
    fn no_link_signs_the_reader_in_or_pairs_a_device() {
        for target in [
            "http://127.0.0.1:7800/login?token=cs_1",
            "https://hub.example/x/../login?token=cs_1",
            "https://hub.example\\login?token=cs_1",
            "https://hub.example//pair?code=ABCD-EFGH",
            "https://hub.example/lo&#9;gin?token=cs_1",
        ] {
            let html = answer(&format!("[the diff]({target}) ![an image]({target})")).to_string();
            assert!(html.contains("the diff") && !html.contains("href=\"http"), "{html}");
        }
        assert!(!answer("<https://hub.example/login?token=cs_1>").to_string().contains("href=\"http"));
        assert!(
            answer("[a](https://example.org/pairs?x=login)").to_string().contains("href=\"https://example.org/pairs")
        );
    }
}
