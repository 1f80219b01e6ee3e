//! The documents, served by the hub: as pages for people, as Markdown for agents. Public.

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
    text::{self, Language, Text},
    view::html::{CodeSpan, Markup},
};
use book::{DocBook, DocEntry};

const HTML: &str = "text/html; charset=utf-8";
const MARKDOWN: &str = "text/markdown; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// A page depends on theme and language, so the browser must revalidate it. The usual response is 304.
const CACHE_REVALIDATE: &str = "no-cache";
/// Content that is the same for everyone. It may be briefly stale after a hub upgrade.
const CACHE_BRIEFLY: &str = "public, max-age=300";

#[derive(Template)]
#[template(path = "docs.html")]
struct DocsPage<'a> {
    t: &'static Text,
    /// The theme switch expects this name.
    shell: BareLayout,
    book: &'static DocBook,
    /// `None` for the list of all pages.
    page: Option<&'static DocEntry>,
    missing: Option<Markup>,
    title: &'a str,
}

/// The address and title of every page.
pub(crate) fn titles(t: &'static Text) -> Vec<(&'static str, String)> {
    let language = Language::ALL.into_iter().find(|language| std::ptr::eq(language.text(), t)).unwrap_or(Language::En);
    book::book(language).pages().map(|page| (page.slug, page.title.clone())).collect()
}

/// The list of all pages. Its Markdown version is `/llms.txt`.
pub(crate) async fn index(State(console): State<ConsoleState>, request_headers: HeaderMap) -> PageResult {
    if wants_markdown(&request_headers) {
        return Ok(markdown_response(&request_headers, book::book(Language::En).llms(&console.hub.origin())));
    }
    let t = text::for_request(&request_headers);
    let html = render_page(&request_headers, "/docs", None, None, t.docs)?;
    Ok(answer(&request_headers, HTML, CACHE_REVALIDATE, html))
}

/// Redirects the URL with a trailing slash.
pub(crate) async fn home() -> Redirect {
    Redirect::permanent("/docs")
}

/// A page. Served as Markdown if the name ends in `.md` or the client prefers it.
pub(crate) async fn show(Path(name): Path<String>, request_headers: HeaderMap) -> PageResult {
    let (slug, is_markdown) = name.strip_suffix(".md").map_or((name.as_str(), false), |slug| (slug, true));
    let Some(page) = book::book(Language::of(&request_headers)).page(slug) else {
        return missing(&name, &request_headers);
    };
    if is_markdown || wants_markdown(&request_headers) {
        return Ok(markdown_response(&request_headers, page.markdown.clone()));
    }
    let here = format!("/docs/{slug}");
    let html = render_page(&request_headers, &here, Some(page), None, &page.title)?;
    Ok(answer(&request_headers, HTML, CACHE_REVALIDATE, html))
}

/// An example program that a page links to.
pub(crate) async fn example(Path((folder, file)): Path<(String, String)>, request_headers: HeaderMap) -> PageResult {
    let name = format!("{folder}/{file}");
    let example = book::EXAMPLES.iter().find(|example| example.name == name).ok_or(PageError::NoSuchPath)?;
    Ok(answer(&request_headers, PLAIN, CACHE_BRIEFLY, example.content.to_owned()))
}

/// `/llms.txt`, the entry point for agents.
pub(crate) async fn llms(State(console): State<ConsoleState>, request_headers: HeaderMap) -> Response<Body> {
    answer(&request_headers, PLAIN, CACHE_BRIEFLY, book::book(Language::En).llms(&console.hub.origin()))
}

/// The 404 response, as HTML or JSON, with a list of all pages.
fn missing(name: &str, request_headers: &HeaderMap) -> PageResult {
    if weight(request_headers, "text/html") > 0 {
        let t = text::for_request(request_headers);
        let message = t.docs_missing(CodeSpan(name));
        let html = render_page(request_headers, "/docs", None, Some(message), t.error_not_found)?;
        return Ok((StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, HTML)], html).into_response());
    }
    let pages: Vec<_> = book::book(Language::En).pages().map(|page| format!("/docs/{}.md", page.slug)).collect();
    let error = ErrorDetail {
        code: Code::NoSuchPath.as_str().to_owned(),
        message: format!("No page called `{name}`."),
        hint: format!("Available pages: {}.", pages.join(", ")),
        remedy: None,
    };
    Ok((StatusCode::NOT_FOUND, Json(ErrorBody { error })).into_response())
}

fn render_page(
    request_headers: &HeaderMap,
    here: &str,
    page: Option<&'static DocEntry>,
    missing: Option<Markup>,
    title: &str,
) -> PageResult<String> {
    let language = Language::of(request_headers);
    let shell = BareLayout::new(request_headers, here);
    Ok(DocsPage { t: language.text(), shell, book: book::book(language), page, missing, title }.render()?)
}

fn markdown_response(request_headers: &HeaderMap, markdown: String) -> Response<Body> {
    answer(request_headers, MARKDOWN, CACHE_BRIEFLY, markdown)
}

/// The content with its ETag, or 304 if the client already has it.
fn answer(request_headers: &HeaderMap, kind: &'static str, caching: &'static str, content: String) -> Response<Body> {
    let tag = format!("\"{}\"", &blake3::hash(content.as_bytes()).to_hex()[..16]);
    let mut response = if headers::has_cached(request_headers, &tag) {
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

/// Markdown is served if the client accepts it explicitly and prefers it at least as much as HTML.
fn wants_markdown(request_headers: &HeaderMap) -> bool {
    let markdown = weight(request_headers, "text/markdown");
    markdown > 0 && markdown >= weight(request_headers, "text/html")
}

/// The quality value of a media type in thousandths. Zero if it isn't listed.
fn weight(request_headers: &HeaderMap, kind: &str) -> u32 {
    let given = request_headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|value| value.split(',')).find_map(|part| part_weight(part, kind)).unwrap_or(0)
}

fn part_weight(part: &str, kind: &str) -> Option<u32> {
    let mut members = part.split(';').map(str::trim);
    if !members.next()?.eq_ignore_ascii_case(kind) {
        return None;
    }
    Some(headers::quality(members))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_served_to_clients_that_prefer_it() {
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
