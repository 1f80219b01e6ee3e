//! The documents, served by the hub itself: for people as pages, for agents as Markdown. Open to everybody.

mod book;
mod markdown;

use askama::Template;
use attache_protocol::{
    Code,
    error::{ErrorBody, ErrorDetail},
};
use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
    response::{IntoResponse as _, Redirect},
};

use crate::{
    ConsoleState, headers,
    layout::BareLayout,
    problem::{PageError, PageResult},
    text::{self, Text},
    view::html::Markup,
};
use book::{DocBook, DocEntry};

const HTML: &str = "text/html; charset=utf-8";
const MARKDOWN: &str = "text/markdown; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// A page for people depends on their theme and language, so a browser asks again; the answer is mostly 304.
const CACHE_REVALIDATE: &str = "no-cache";
/// What is the same for everybody may be old for a moment after an upgrade of the hub.
const CACHE_BRIEFLY: &str = "public, max-age=300";

#[derive(Template)]
#[template(path = "docs.html")]
struct DocsPage<'a> {
    t: &'static Text,
    /// Under this name the theme switch finds it.
    shell: BareLayout,
    book: &'static DocBook,
    /// None for the list of all pages.
    page: Option<&'static DocEntry>,
    missing: Option<Markup>,
    title: &'a str,
}

/// Every page, with what it is about. Its twin is `/llms.txt`.
pub(crate) async fn index(State(console): State<ConsoleState>, asked: HeaderMap) -> PageResult {
    if wants_markdown(&asked) {
        return Ok(twin(&asked, book::book().llms(&console.hub.origin())));
    }
    let t = text::for_request(&asked);
    let html = sheet(&asked, None, None, t.docs)?;
    Ok(answer(&asked, HTML, CACHE_REVALIDATE, html))
}

/// The address with a stroke at its end.
pub(crate) async fn home() -> Redirect {
    Redirect::permanent("/docs")
}

/// A page; its Markdown when the name ends in `.md` or the reader prefers it.
pub(crate) async fn show(Path(name): Path<String>, asked: HeaderMap) -> PageResult {
    let (slug, is_twin) = name.strip_suffix(".md").map_or((name.as_str(), false), |slug| (slug, true));
    let Some(page) = book::book().page(slug) else { return missing(&name, &asked) };
    if is_twin || wants_markdown(&asked) {
        return Ok(twin(&asked, markdown::served(page.markdown)));
    }
    let html = sheet(&asked, Some(page), None, &page.title)?;
    Ok(answer(&asked, HTML, CACHE_REVALIDATE, html))
}

/// A program that a page speaks of.
pub(crate) async fn example(Path((folder, file)): Path<(String, String)>, asked: HeaderMap) -> PageResult {
    let name = format!("{folder}/{file}");
    let example = book::EXAMPLES.iter().find(|example| example.name == name).ok_or(PageError::NoSuchPath)?;
    Ok(answer(&asked, PLAIN, CACHE_BRIEFLY, example.content.to_owned()))
}

/// What an agent reads first.
pub(crate) async fn llms(State(console): State<ConsoleState>, asked: HeaderMap) -> Response<Body> {
    answer(&asked, PLAIN, CACHE_BRIEFLY, book::book().llms(&console.hub.origin()))
}

/// There is no such page: says so in the reader's form, with all that there is.
fn missing(name: &str, asked: &HeaderMap) -> PageResult {
    if weight(asked, "text/html") > 0 {
        let t = text::for_request(asked);
        let said = Markup::sentence(t.docs_missing, &[("name", crate::view::html::PlaceholderValue::Code(name))]);
        let html = sheet(asked, None, Some(said), t.error_not_found)?;
        return Ok((StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, HTML)], html).into_response());
    }
    let pages: Vec<_> = book::book().pages().map(|page| format!("/docs/{}.md", page.slug)).collect();
    let error = ErrorDetail {
        code: Code::NoSuchPath.as_str().to_owned(),
        message: format!("There is no document `{name}`."),
        hint: format!("There are: {}.", pages.join(", ")),
    };
    Ok((StatusCode::NOT_FOUND, Json(ErrorBody { error })).into_response())
}

fn sheet(
    asked: &HeaderMap,
    page: Option<&'static DocEntry>,
    missing: Option<Markup>,
    title: &str,
) -> PageResult<String> {
    let t = text::for_request(asked);
    Ok(DocsPage { t, shell: BareLayout::new(asked), book: book::book(), page, missing, title }.render()?)
}

fn twin(asked: &HeaderMap, markdown: String) -> Response<Body> {
    answer(asked, MARKDOWN, CACHE_BRIEFLY, markdown)
}

/// The content with its tag, or 304 to whoever has it already.
fn answer(asked: &HeaderMap, kind: &'static str, caching: &'static str, content: String) -> Response<Body> {
    let tag = format!("\"{}\"", &blake3::hash(content.as_bytes()).to_hex()[..16]);
    let mut response = if headers::has_cached(asked, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], content).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(header::VARY, HeaderValue::from_static("accept, accept-language, cookie"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// Browsers name `text/html`; whoever names Markdown and likes it at least as much as HTML gets Markdown.
fn wants_markdown(asked: &HeaderMap) -> bool {
    let markdown = weight(asked, "text/markdown");
    markdown > 0 && markdown >= weight(asked, "text/html")
}

/// How much a media type is wanted, in thousandths, where it is named at all.
fn weight(asked: &HeaderMap, kind: &str) -> u32 {
    let given = asked.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|value| value.split(',')).find_map(|part| part_weight(part, kind)).unwrap_or(0)
}

fn part_weight(part: &str, kind: &str) -> Option<u32> {
    let mut members = part.split(';').map(str::trim);
    if !members.next()?.eq_ignore_ascii_case(kind) {
        return None;
    }
    let quality = members.find_map(|member| member.strip_prefix("q=")).unwrap_or("1");
    // `0.85` and the like: what cannot be read counts as 1, as if nothing had been said.
    let (whole, rest) = quality.split_once('.').unwrap_or((quality, ""));
    if whole == "0" { format!("{rest:0<3}").get(..3).and_then(|digits| digits.parse().ok()) } else { Some(1000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_given_to_whoever_prefers_it() {
        for (accept, expected) in [
            ("text/markdown", true),
            ("text/markdown, */*;q=0.1", true),
            ("text/markdown;q=0.9, text/html;q=0.85", true),
            ("text/markdown, text/html", true),
            ("Text/Markdown", true),
            ("text/html, text/markdown;q=0.5", false),
            ("text/markdown;q=0", false),
            ("text/html,application/xhtml+xml,*/*;q=0.8", false),
            ("*/*", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(wants_markdown(&headers), expected, "{accept}");
        }
        assert!(!wants_markdown(&HeaderMap::new()));
    }
}
