//! The docs: public, well-formed, with working links, and complete compared to the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use attache_protocol::{Code, rules::run::FailureCode};
use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};

use crate::{
    browser::ListeningConsole,
    webdriver::WebdriverBrowser,
    world::{ConsoleWorld, PageAnswer, TestVisitor, between},
};

/// Files of `docs/` for contributors, which are not served.
const NOT_SERVED: &[&str] = &["seeds"];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The slugs of all pages.
fn slugs() -> Vec<String> {
    let files = fs::read_dir(docs()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut slugs: Vec<_> = files.filter_map(|name| name.strip_suffix(".md").map(str::to_owned)).collect();
    slugs.retain(|slug| !NOT_SERVED.contains(&slug.as_str()));
    slugs.sort();
    slugs
}

/// A visitor without a session, on the complete site.
async fn stranger() -> (ConsoleWorld, TestVisitor) {
    let mut world = ConsoleWorld::new().await;
    world.router = attache_hub::router(world.hub.clone()).merge(world.router.clone());
    let visitor = world.visitor();
    (world, visitor)
}

async fn ask(visitor: &TestVisitor, path: &str, headers: &[(&str, &str)]) -> PageAnswer {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    visitor.send(request, Body::empty()).await
}

/// The values of an attribute.
fn values<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let before = format!(" {name}=\"");
    html.split(before.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[tokio::test]
async fn every_file_is_a_public_page_with_a_markdown_version() {
    let (_world, visitor) = stranger().await;
    let index = visitor.get("/docs").await;
    let mut listed: Vec<_> =
        values(&index.body, "href").into_iter().filter_map(|href| href.strip_prefix("/docs/")).collect();
    listed.sort_unstable();
    listed.dedup();
    assert_eq!(listed, slugs(), "the table in console/src/docs/book.rs has every file of docs/");
    for slug in slugs() {
        let file = fs::read_to_string(docs().join(format!("{slug}.md"))).unwrap();
        // Links to folders beside `docs/` lead to what the hub serves instead.
        let file = file.replace("](../examples/", "](/docs/examples/");
        let file = file.replace("](../openapi/openapi.json)", "](/api/v1/openapi.json)");
        assert!(!file.contains("](../"), "{slug}");
        for rest in file.split("](/docs/examples/").skip(1) {
            let example = format!("/docs/examples/{}", rest.split_once(')').unwrap().0);
            assert_eq!(visitor.get(&example).await.status, StatusCode::OK, "{example}");
        }
        let path = format!("/docs/{slug}");
        let page = visitor.get(&path).await;
        assert_eq!((page.status, page.header("content-type")), (StatusCode::OK, "text/html; charset=utf-8"), "{slug}");
        assert!(page.body.contains(&format!("rel=\"alternate\" type=\"text/markdown\" href=\"/docs/{slug}.md\"")));
        let by_name = visitor.get(&format!("{path}.md")).await;
        let by_wish = ask(&visitor, &path, &[("accept", "text/markdown, text/html;q=0.9")]).await;
        for twin in [by_name, by_wish] {
            assert_eq!((twin.status, twin.header("content-type")), (StatusCode::OK, "text/markdown; charset=utf-8"));
            assert_eq!(twin.header("cache-control"), "public, max-age=300");
            assert_eq!(twin.body, file, "{slug}");
        }
    }
    assert_eq!(visitor.get("/docs/").await.header("location"), "/docs");
    let twin = ask(&visitor, "/docs", &[("accept", "text/markdown")]).await;
    assert_eq!(twin.body, visitor.get("/llms.txt").await.body);
}

#[tokio::test]
async fn cached_pages_are_not_sent_again() {
    let (_world, visitor) = stranger().await;
    for path in ["/docs", "/docs/calls", "/docs/calls.md", "/llms.txt", "/docs/examples/python-adapter/adapter.py"] {
        let first = visitor.get(path).await;
        assert_eq!(first.status, StatusCode::OK, "{path}");
        assert_eq!(first.header("vary"), "accept, accept-language, cookie", "{path}");
        let again = ask(&visitor, path, &[("if-none-match", first.header("etag"))]).await;
        assert_eq!((again.status, again.body.as_str()), (StatusCode::NOT_MODIFIED, ""), "{path}");
        assert_eq!(again.header("etag"), first.header("etag"), "{path}");
        // Each theme has its own ETag.
        if first.header("cache-control") == "no-cache" {
            let dark = ask(&visitor, path, &[("if-none-match", first.header("etag")), ("cookie", "theme=dark")]).await;
            assert_eq!(dark.status, StatusCode::OK, "{path}");
            assert!(dark.body.contains("data-theme=\"dark\""), "{path}");
        }
    }
}

#[tokio::test]
async fn pages_are_well_formed_without_inline_scripts_or_styles() {
    let (_world, visitor) = stranger().await;
    let pages = slugs().into_iter().map(|slug| format!("/docs/{slug}"));
    for path in pages.chain(["/docs".to_owned()]) {
        let page = visitor.get(&path).await;
        assert!(page.header("content-security-policy").starts_with("default-src 'none'; script-src 'self';"), "{path}");
        assert_well_formed(&page.body, &path);
        assert_eq!(page.body.matches("<script").count(), 1, "{path}");
        assert!(page.body.contains("<script type=\"module\" src=\"/assets/"), "{path}");
        assert_eq!(page.body.matches("<style").count(), 0, "{path}");
        assert_eq!(page.body.matches("<h1").count(), 1, "{path}");
        let mut names = values(&page.body, "id");
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert_eq!(twice, Vec::<&[&str]>::new(), "{path}");
    }
}

/// Every element is closed, and there are no style or event handler attributes.
#[track_caller]
fn assert_well_formed(html: &str, path: &str) {
    const VOID: &[&str] = &["br", "hr", "img", "input", "link", "meta"];
    let mut open: Vec<&str> = Vec::new();
    for piece in html.split('<').skip(1) {
        let (tag, _text) = piece.split_once('>').unwrap_or_else(|| panic!("{path}: `<{piece}` has no end"));
        if tag.eq_ignore_ascii_case("!doctype html") {
            continue;
        }
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap_or_else(|| panic!("{path}: <{tag}>"));
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{path}: </{name}> closes another element");
            continue;
        }
        for attribute in tag.split_whitespace().skip(1) {
            let attribute = attribute.split('=').next().unwrap_or_default();
            assert!(attribute != "style" && !attribute.starts_with("on"), "{path}: <{tag}>");
        }
        if !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<&str>::new(), "{path}: never closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_fit_a_phone_in_light_and_dark_and_a_block_can_be_copied() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let pages: Vec<_> = slugs().into_iter().map(|slug| format!("/docs/{slug}")).chain(["/docs".to_owned()]).collect();
    for theme in ["light", "dark"] {
        browser.size(1280, 1400).await;
        browser.go(&site.at("/docs")).await;
        browser.run(&format!("document.querySelector('.theme [value={theme}]').click()")).await;
        for path in &pages {
            browser.size(390, 1600).await;
            browser.go(&site.at(path)).await;
            assert_eq!(browser.run("return document.documentElement.dataset.theme").await, theme, "{path}");
            let overflow = "return document.documentElement.scrollWidth - innerWidth";
            assert_eq!(browser.run(overflow).await, 0, "{path} is wider than a phone");
            browser.screenshot(&site.shots, &format!("{theme}{}-phone", path.replace('/', "-"))).await;
        }
    }
    browser.go(&site.at("/docs/start")).await;
    browser.wait("!document.querySelector('[data-copy-from]').hidden").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}

#[tokio::test]
async fn every_link_leads_somewhere() {
    for language in ["en", "zh-CN"] {
        check_links(language).await;
    }
}

async fn check_links(language: &str) {
    let (_world, visitor) = stranger().await;
    let mut pages: BTreeMap<String, PageAnswer> = BTreeMap::new();
    let mut waiting = vec!["/docs".to_owned()];
    let mut broken = BTreeSet::new();
    let mut anchors = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        if pages.contains_key(&path) {
            continue;
        }
        let page = ask(&visitor, &path, &[("accept-language", language)]).await;
        // The console redirects visitors without a session to the login.
        if !page.status.is_success() && page.status != StatusCode::SEE_OTHER {
            broken.insert(format!("{path}: {}", page.status));
        }
        let is_page = path == "/docs" || path.starts_with("/docs/") && !path.contains('.');
        let links = if is_page { values(&page.body, "href") } else { Vec::new() };
        for href in links {
            if href.starts_with("https://") || href.starts_with("http://") {
                continue;
            }
            let (target, anchor) = href.split_once('#').unwrap_or((href, ""));
            let target = if target.is_empty() { &path } else { target };
            if !target.starts_with('/') {
                broken.insert(format!("{path} links to {href}, which is not served"));
                continue;
            }
            if !anchor.is_empty() {
                anchors.insert((path.clone(), target.to_owned(), decoded(anchor)));
            }
            waiting.push(target.to_owned());
        }
        pages.insert(path, page);
    }
    for (from, target, anchor) in anchors {
        if !values(&pages[&target].body, "id").contains(&anchor.as_str()) {
            broken.insert(format!("{from} links to {target}#{anchor}, and there is no such heading"));
        }
    }
    assert_eq!(broken, BTreeSet::new());
    assert!(pages.len() > slugs().len(), "{:?}", pages.keys());
}

/// The level of every heading, and the code blocks without comments, which are translated too.
fn outline(markdown: &str) -> (Vec<usize>, Vec<String>) {
    let (mut levels, mut blocks, mut block) = (Vec::new(), Vec::new(), None::<String>);
    for line in markdown.lines() {
        match &mut block {
            _ if line.starts_with("```") => match block.take() {
                Some(block) => blocks.push(block),
                None => block = Some(format!("{line}\n")),
            },
            Some(block) => {
                let comment = if line.starts_with('#') { Some(0) } else { line.find(" # ") };
                let code = line[..comment.unwrap_or(line.len())].trim_end();
                block.push_str(&format!("{code}\n"));
            }
            None if line.starts_with('#') => levels.push(line.chars().take_while(|letter| *letter == '#').count()),
            None => {}
        }
    }
    (levels, blocks)
}

#[tokio::test]
async fn a_translation_follows_its_page_and_is_served_in_its_place() {
    let (_world, visitor) = stranger().await;
    let chinese = ("accept-language", "zh-CN,zh;q=0.9,en;q=0.8");
    let index = ask(&visitor, "/docs", &[chinese]).await;
    let mut translated = Vec::new();
    for slug in slugs() {
        let path = format!("/docs/{slug}");
        let page = ask(&visitor, &path, &[chinese]).await;
        assert!(page.body.contains("<html lang=\"zh-CN\""), "{slug}");
        let file = docs().join(format!("zh/{slug}.md"));
        let is_translated = file.exists();
        assert_eq!(page.body.contains("<article class=\"prose\">"), is_translated, "{slug}");
        assert_eq!(page.body.contains("<article class=\"prose\" lang=\"en\">"), !is_translated, "{slug}");
        // The list says which pages are in English.
        let link = format!("<li><a href=\"{path}\">");
        let entry = index.body.rsplit(&link).next().and_then(|rest| rest.split("</li>").next()).unwrap();
        assert_eq!(entry.contains("（英文）"), !is_translated, "{entry}");
        if !is_translated {
            continue;
        }
        let (translation, original) =
            (fs::read_to_string(file).unwrap(), fs::read_to_string(docs().join(format!("{slug}.md"))).unwrap());
        let (levels, blocks) = outline(&translation);
        let (original_levels, original_blocks) = outline(&original);
        assert_eq!(levels, original_levels, "docs/zh/{slug}.md has the headings of docs/{slug}.md");
        assert_eq!(blocks, original_blocks, "docs/zh/{slug}.md has the code of docs/{slug}.md");
        let title = translation.lines().next().unwrap().trim_start_matches("# ");
        assert!(page.body.contains(&format!("<title>{title} · Attaché</title>")), "{slug}");
        let markdown = ask(&visitor, &format!("{path}.md"), &[chinese]).await;
        assert!(markdown.body.starts_with(&format!("# {title}\n")) && !markdown.body.contains("](../"), "{slug}");
        translated.push(slug);
    }
    assert_eq!(translated, ["delegations", "hosts", "start"]);
    // A table that tests write is in both.
    let hosts = ask(&visitor, "/docs/hosts", &[chinese]).await.body;
    assert!(hosts.contains("<th>adapter killed</th>"), "{hosts}");
}

/// The Markdown writer percent-encodes non-ASCII characters in URLs.
fn decoded(anchor: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = anchor.bytes();
    while let Some(byte) = rest.next() {
        let hex = (byte == b'%').then(|| [rest.next().unwrap(), rest.next().unwrap()]);
        let byte = hex.map_or(byte, |hex| u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
        bytes.push(byte);
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn llms_txt_is_well_formed_and_its_claims_hold() {
    let (world, visitor) = stranger().await;
    let text = visitor.get("/llms.txt").await;
    assert_eq!((text.status, text.header("content-type")), (StatusCode::OK, "text/plain; charset=utf-8"));
    let text = text.body;
    let origin = world.hub.origin();
    assert!(text.starts_with("# Attaché\n\n> "), "a title, then a summary");
    assert!(!text.contains("{HUB}"));
    let links: Vec<_> =
        text.lines().filter(|line| line.starts_with("- [")).map(|line| between(line, "](", ")")).collect();
    let mut linked: Vec<_> = links.iter().map(|link| between(link, "/docs/", ".md").to_owned()).collect();
    linked.sort();
    assert_eq!(linked, slugs());
    for link in links {
        let twin = visitor.get(link.strip_prefix(origin.as_str()).unwrap()).await;
        assert_eq!(
            (twin.status, twin.header("content-type")),
            (StatusCode::OK, "text/markdown; charset=utf-8"),
            "{link}"
        );
    }
    // The hub serves every other path in it, with the method named before it.
    let mut claims = 0;
    for (before, after) in text.match_indices(&origin).map(|(at, _)| text.split_at(at)) {
        let end = after.find([' ', '`', '\n', ')', ',']).unwrap_or(after.len());
        let path = after[..end].trim_end_matches('.').strip_prefix(origin.as_str()).unwrap();
        if !path.starts_with("/api/") {
            continue;
        }
        let method = if before.trim_end_matches('`').ends_with("POST ") { Method::POST } else { Method::GET };
        let path = path.replace("{call_id}", "a2a-00000000000000000000000000000000");
        let path = path.replace("{id}", "run_00000000000000000000000000000000");
        let request = Request::builder().method(&method).uri(&path);
        let answer = visitor.send(request, Body::empty()).await;
        let known = ![Code::NoSuchPath.as_str(), Code::MethodNotAllowed.as_str()]
            .iter()
            .any(|code| answer.body.contains(&format!("\"{code}\"")));
        assert!(known && !answer.body.contains("<html"), "{method} {path}: {} {}", answer.status, answer.body);
        claims += 1;
    }
    assert!(claims >= 7, "{claims} paths of the API");
}

#[tokio::test]
async fn a_missing_page_lists_the_existing_ones() {
    let (_world, visitor) = stranger().await;
    let page = ask(&visitor, "/docs/%3Cb%3E", &[("accept", "text/html,*/*;q=0.8")]).await;
    assert_eq!((page.status, page.header("content-type")), (StatusCode::NOT_FOUND, "text/html; charset=utf-8"));
    assert_eq!(page.header("cache-control"), "no-store");
    assert_well_formed(&page.body, "the missing page");
    assert!(page.body.contains("No page called <code>&lt;b&gt;</code>."), "{}", page.body);
    assert!(page.body.contains("href=\"/docs/calls\""));

    let pages: Vec<_> = visitor
        .get("/llms.txt")
        .await
        .body
        .lines()
        .filter(|line| line.starts_with("- ["))
        .map(|line| format!("/docs/{}.md", between(line, "/docs/", ".md")))
        .collect();
    let missing = visitor.get("/docs/nothing.md").await;
    assert_eq!((missing.status, missing.header("content-type")), (StatusCode::NOT_FOUND, "application/json"));
    let said = format!(
        "{{\"error\":{{\"code\":\"no_such_path\",\"message\":\"No page called `nothing.md`.\",\"hint\":\"Available pages: {}.\"}}}}",
        pages.join(", ")
    );
    assert_eq!(missing.body, said);
    for path in ["/docs/examples/python-adapter/nothing.py", "/docs/examples/..%2f/Cargo.toml"] {
        assert_eq!(visitor.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn the_errors_page_has_every_code() {
    let page = fs::read_to_string(docs().join("errors.md")).unwrap();
    let section = |from: &str| {
        let rest = page.split_once(from).unwrap_or_else(|| panic!("errors.md has the section {from}")).1;
        let rows = rest.split("\n## ").next().unwrap_or_default().lines().filter(|line| line.starts_with("| `"));
        rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let rows = section("## Error codes\n");
    let (mut expected, mut written) = (Vec::new(), Vec::new());
    for code in Code::ALL {
        let name = format!("`{code}`");
        let meaning = rows.iter().find(|row| row[0] == name).map_or("?", |row| row[3].as_str());
        expected.push(vec![
            name,
            code.http_status().to_string(),
            code.exit_code().to_string(),
            meaning.to_owned(),
            code.hint().to_owned(),
        ]);
    }
    written.extend(rows);
    let line = |row: &Vec<String>| format!("| {} |", row.join(" | "));
    let wrong: Vec<_> = expected.iter().filter(|row| !written.contains(row) || row[3] == "?").map(line).collect();
    assert_eq!(wrong, Vec::<String>::new(), "docs/errors.md wants these rows, with a meaning");
    assert_eq!(written, expected, "docs/errors.md has the codes in the order of the code, and no others");

    let failures: Vec<_> = section("## How a run fails\n").into_iter().map(|row| row[0].clone()).collect();
    let known: Vec<_> = FailureCode::ALL.iter().map(|code| format!("`{}`", code.as_str())).collect();
    assert_eq!(failures, known, "docs/errors.md, How a run fails");
}
