//! The console in Chinese: every page of a hub with data, the switch, and what scripts write.

use std::collections::BTreeSet;

use attache_protocol::wire::key::Role;
use axum::{
    body::Body,
    http::{Request, StatusCode},
};

use crate::{
    browser::ListeningConsole,
    busy_hub,
    webdriver::WebdriverBrowser,
    world::{ConsoleWorld, PageAnswer, TestVisitor, between},
};

/// Words that a Chinese reader expects in Latin letters: names of programs, protocols and formats, and keys.
const WORDS: &[&str] = &[
    "API", "Agent", "Attaché", "Card", "Claude", "Codex", "CLI", "Code", "Enter", "Esc", "English", "HTTP", "HTTPS",
    "Hub", "ID", "iPad", "iPhone", "JSON", "Markdown", "Schema", "Token", "URL", "UTC", "Webhook", "KiB", "md", "llms",
    "txt", "uname",
];
/// Commands within a sentence, error codes, and what the people and agents of this hub are called, do and say.
const DATA: &[&str] = &[
    "attache delegations diff",
    "attache delegate DIR --to URL",
    "403 forbidden",
    "owner (admin.key)",
    "websocket, attache.envelope.v1",
    "Looks things up",
    "https://hub.example/a2a/reviewer",
    "review <b>",
    "reads src/lexer.rs",
    "cargo test",
    "ls true",
    "ls false",
    "alice",
    "builder",
    "console",
    "Edit",
    "ESC",
    "memory",
    "owner",
    "parser",
    "permissions",
    "prompt",
    "resume",
    "Run",
    "scribe",
    "search",
    "streaming",
    "websocket",
    "workstation",
];
/// Elements whose content isn't prose of the console: code, data, times, names, and texts in another language.
const OPAQUE: &[&str] = &["code", "pre", "script", "style", "textarea", "time", "bdi", "datalist"];
/// Attributes that people read or hear, and those whose texts a script shows.
const READ: &[&str] = &["title", "aria-label", "placeholder", "alt", "content"];

async fn get(visitor: &TestVisitor, path: &str) -> PageAnswer {
    let request = Request::get(path).header("accept-language", "zh-CN,zh;q=0.9,en;q=0.8");
    visitor.send(request, Body::empty()).await
}

/// The texts of a page that people read: its prose, and attributes such as labels.
fn prose(html: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The elements that are open inside an opaque one, that one first.
    let mut closed: Vec<String> = Vec::new();
    let mut rest = html;
    while let Some((text, after)) = rest.split_once('<') {
        if closed.is_empty() {
            found.push(text.to_owned());
        }
        let end = tag_end(after);
        let (tag, after) = (&after[..end], &after[end + 1..]);
        rest = after;
        if let Some(comment) = tag.strip_prefix("!--") {
            assert!(comment.ends_with("--"), "{tag}");
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            if closed.last().is_some_and(|last| last == name) {
                closed.pop();
            }
            continue;
        }
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect();
        let attributes = attributes(tag);
        let is_foreign = attributes.iter().any(|(key, value)| *key == "lang" && name != "html" && *value == "en");
        if closed.is_empty() {
            let read = attributes.iter().filter(|(key, value)| is_read(&name, key, value, &attributes));
            found.extend(read.map(|(_, value)| (*value).to_owned()));
        }
        let is_void = ["input", "meta", "link", "br", "img", "path", "rect", "circle", "use", "line", "hr", "col"]
            .contains(&name.as_str());
        if !is_void && !tag.ends_with('/') && (!closed.is_empty() || is_foreign || OPAQUE.contains(&name.as_str())) {
            closed.push(name);
        }
    }
    found.push(rest.to_owned());
    found
}

/// Where a tag ends. A `>` within a quoted value doesn't end it.
fn tag_end(tag: &str) -> usize {
    let mut quoted = false;
    for (at, letter) in tag.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '>' if !quoted => return at,
            _ => {}
        }
    }
    panic!("a tag has no end: {tag}");
}

fn attributes(tag: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = tag;
    while let Some((before, after)) = rest.split_once("=\"") {
        let key = before.rsplit([' ', '\n', '"']).next().unwrap();
        let (value, after) = after.split_once('"').unwrap();
        found.push((key, value));
        rest = after;
    }
    found
}

fn is_read(element: &str, key: &str, value: &str, all: &[(&str, &str)]) -> bool {
    // An address, a kind or a state is written without spaces, and a sentence in Chinese without words.
    let is_script_text = key.starts_with("data-") && (value.contains(' ') || !value.is_ascii());
    let is_code = all.iter().any(|(key, value)| *key == "class" && value.split(' ').any(|class| class == "mono"));
    match key {
        "content" => element == "meta" && all.contains(&("name", "description")),
        // A title of code or of an id repeats it in full.
        "title" => !is_code && value.contains(' '),
        "placeholder" => value.contains(' ') || !value.is_ascii(),
        "data-copy" | "data-units" | "data-live" => false,
        _ => READ.contains(&key) || is_script_text,
    }
}

/// The English words of a text that no list allows.
fn english(text: &str) -> BTreeSet<String> {
    let entities = [("&#38;", "&"), ("&#39;", "'"), ("&#34;", "\""), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    let text = entities.iter().fold(text.to_owned(), |text, (entity, letter)| text.replace(entity, letter));
    let text = DATA.iter().fold(text, |text, data| text.replace(data, " "));
    let ends = |letter: char| letter.is_whitespace() || !letter.is_ascii() && letter != 'é' && letter != '…';
    // Ids, addresses, paths, placeholders of scripts and names such as `task.failed` are no words.
    let is_name = |token: &str| token.contains(['_', '/', ':', '{', '@', '…']) || token.trim_matches('.').contains('.');
    let words = text.split(ends).filter(|token| !is_name(token));
    let words = words.flat_map(|token| token.split(|letter: char| !letter.is_alphabetic()));
    words.filter(|word| word.chars().count() > 1 && !WORDS.contains(word)).map(str::to_owned).collect()
}

/// What is left of English on a page.
fn left_on(page: &PageAnswer, path: &str) -> Vec<String> {
    assert!(page.body.contains("<html lang=\"zh-CN\"") || !page.body.contains("<html"), "{path}");
    let texts = prose(&page.body).into_iter().map(|text| (english(&text), text));
    texts.filter(|(words, _)| !words.is_empty()).map(|(words, text)| format!("{path}: {words:?} in {text}")).collect()
}

#[test]
fn an_english_text_is_found() {
    let of = |html: &str| prose(html).iter().flat_map(|text| english(text)).collect::<Vec<_>>();
    assert_eq!(
        of("<p title=\"Not yet\">好 <code>cargo test</code> run_0a1b <b>Saved</b></p>"),
        ["Not", "yet", "Saved"]
    );
    assert_eq!(
        of("<p data-on=\"实时 Live\" data-kind=\"chunk\">Hub 已满</p><span lang=\"en\">English text</span>"),
        ["Live"]
    );
    assert_eq!(of("<pre>a <b>bold</b> word</pre><input placeholder=\"Your answer\"><br>x"), ["Your", "answer"]);
}

#[tokio::test]
async fn no_page_in_chinese_has_an_english_text() {
    let world = ConsoleWorld::with("127.0.0.1:7800".parse().unwrap(), busy_hub::options).await;
    let paths = busy_hub::furnish(&world).await;
    let mut left = BTreeSet::new();
    for role in [Role::Owner, Role::Viewer] {
        let visitor = world.signed_in(role).await;
        for path in &paths {
            left.extend(left_on(&get(&visitor, path).await, path));
        }
    }
    let (_, other) = world.person("alice-2", Role::Owner).await;
    for path in ["/people", "/sessions", "/runs", "/usage"] {
        left.extend(left_on(&get(&other, path).await, path));
    }
    let empty = ConsoleWorld::new().await;
    let owner = empty.signed_in(Role::Owner).await;
    for path in ["/runs", "/agents", "/inbox", "/conversations", "/channels", "/deliveries", "/delegations", "/usage"] {
        left.extend(left_on(&get(&owner, path).await, path));
    }
    let stranger = empty.visitor();
    for path in ["/login", "/login?over=1", &format!("/login?token={}", empty.login_token().await)] {
        left.extend(left_on(&get(&stranger, path).await, path));
    }
    assert_eq!(left, BTreeSet::new());
}

#[tokio::test]
async fn a_question_and_a_run_on_a_silent_device_are_in_chinese() {
    let world = ConsoleWorld::paused().await;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "codex").await;
    let run = world.ask("builder", "问一下").await;
    device.claim().await;
    device.wonder(run, "用哪个版本？").await;
    let owner = world.signed_in(Role::Owner).await;
    let inbox = get(&owner, "/inbox").await;
    assert!(inbox.body.contains("<bdi>builder</bdi> 有一个问题"), "{}", inbox.body);
    let page = format!("/runs/{run}");
    let mut left = left_on(&inbox, "/inbox");
    left.extend(left_on(&get(&owner, &page).await, "the waiting run"));
    world.hub.env().advance(std::time::Duration::from_secs(90));
    left.extend(left_on(&get(&owner, &page).await, "the silent run"));
    left.extend(left_on(&get(&owner, "/runs").await, "/runs"));
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn a_person_chooses_the_language_without_scripts() {
    let world = ConsoleWorld::new().await;
    let mut visitor = world.visitor();
    let login = visitor.get("/login").await;
    assert!(login.body.contains("<html lang=\"en\"") && login.body.contains("action=\"/language\""), "{}", login.body);
    assert!(login.body.contains("lang=\"en\" aria-pressed=\"true\">English<"), "{}", login.body);

    let fields = [("language", "zh-CN"), ("back", "/login")];
    let chosen = visitor.post_bare("/language", &fields, &[]).await;
    assert_eq!((chosen.status, chosen.header("location")), (StatusCode::SEE_OTHER, "/login"));
    assert_eq!(chosen.header("set-cookie"), "language=zh-CN; Path=/; Max-Age=31536000; SameSite=Lax");
    visitor.keep(&chosen);
    // The choice comes before what the browser prefers.
    let english = Request::get("/login").header("accept-language", "en");
    let login = visitor.send(english, Body::empty()).await;
    assert!(login.body.contains("<html lang=\"zh-CN\"") && login.body.contains("登录"), "{}", login.body);

    for (fields, headers, status, location) in [
        // Nothing leads to another site.
        ([("language", "en"), ("back", "//example.org/")], &[][..], 303, "/runs"),
        ([("language", "en"), ("back", "https://example.org/")], &[], 303, "/runs"),
        ([("language", "en"), ("back", "/runs?agent=a")], &[], 303, "/runs?agent=a"),
        ([("language", "xx"), ("back", "/runs")], &[], 400, ""),
        ([("language", "en"), ("back", "/runs")], &[("sec-fetch-site", "cross-site")], 403, ""),
    ] {
        let answer = visitor.post_bare("/language", &fields, headers).await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (status, location), "{fields:?}");
        assert_eq!(answer.headers.contains_key("set-cookie"), status == 303, "{fields:?}");
    }

    // Signed in, the settings say what is chosen, and can forget it.
    let mut owner = world.signed_in(Role::Owner).await;
    let settings = owner.get("/settings").await.body;
    assert!(!between(&settings, "<select name=\"language\">", "</select>").contains(" selected"), "{settings}");
    let saved = owner.post("/settings/theme", &[("theme", "auto"), ("shortcuts", "on"), ("language", "zh-CN")]).await;
    owner.keep(&saved);
    let settings = owner.get("/settings").await.body;
    assert!(settings.contains("<option value=\"zh-CN\" lang=\"zh-CN\" selected>中文</option>"), "{settings}");
    let saved = owner.post("/settings/theme", &[("theme", "auto"), ("shortcuts", "on"), ("language", "")]).await;
    let cookies: Vec<_> = saved.headers.get_all("set-cookie").iter().map(|cookie| cookie.to_str().unwrap()).collect();
    assert!(cookies.contains(&"language=; Path=/; Max-Age=0; SameSite=Lax"), "{cookies:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_write_chinese_too() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "升级解析器").await;
    device.claim().await;
    site.sign_in(&browser).await;
    browser.go(&site.at("/more")).await;
    browser.click("main .languages button[lang=zh-CN]").await;
    browser.wait("document.documentElement.lang === 'zh-CN' && location.pathname === '/more'").await;

    browser.go(&site.at("/runs")).await;
    browser.wait("document.getElementById('pulse').textContent === '实时更新中'").await;
    browser.wait("/^\\d+ 秒$/.test(document.querySelector('time[data-form=tick]')?.textContent)").await;
    world.ask("builder", "再来一个").await;
    browser.wait("document.querySelector('#fresh a')?.textContent === '显示 1 个新运行'").await;

    browser.go(&site.at(&format!("/runs/{run}"))).await;
    browser.wait("document.body.textContent.includes('秒前') || document.body.textContent.includes('现在')").await;
    device.complete(run, "完成。").await;
    browser.wait("document.body.textContent.includes('日志结束')").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    site.close().await;
}
