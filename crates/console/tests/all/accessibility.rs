//! Every page as axe-core judges it: contrast, names, roles, landmarks, order of headings.

use std::{fs, path::PathBuf};

use crate::{browser::ListeningConsole, busy_hub, webdriver::WebdriverBrowser};

/// One way to look at a page.
struct Look {
    width: u32,
    height: u32,
    theme: &'static str,
    language: &'static str,
}

const DESK: Look = Look { width: 1280, height: 900, theme: "light", language: "en" };
const TABLET: Look = Look { width: 768, height: 1024, theme: "dark", language: "en" };
const PHONE: Look = Look { width: 390, height: 844, theme: "dark", language: "zh-CN" };

/// Judges the page, and says what is wrong with which elements.
const JUDGE: &str = "return axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations.flatMap(
    ({id, nodes}) => nodes.map(({target, failureSummary}) => `${id}: ${target.join(' ')}: ${failureSummary}`)))";

/// The script of axe-core, which `./test` installs.
fn axe() -> Option<String> {
    let script = std::env::var_os("ATTACHE_INTEROP")
        .map(|folder| PathBuf::from(folder).join("axe/node_modules/axe-core/axe.min.js"))
        .and_then(|file| fs::read_to_string(file).ok());
    if script.is_none() {
        println!("skipped: axe-core is not installed; ./test installs it and sets ATTACHE_INTEROP");
    }
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_passes_axe() {
    let Some(axe) = axe() else { return };
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::with(busy_hub::options).await;
    let pages = busy_hub::furnish(&site.world).await;
    // Parts of pages, for scripts. An address without a page is answered by the program, not here.
    let is_page = |path: &&String| {
        let part = ["/nav", "/runs/rows", "/palette"].iter().any(|part| path.starts_with(part))
            || ["/part", "/log?", "/find?"].iter().any(|part| path.contains(part));
        !part && *path != "/nowhere"
    };
    let pages: Vec<&String> = pages.iter().filter(is_page).collect();
    let (mut judged, mut wrong) = (0, Vec::new());
    let mut judge = async |look: &Look, path: &str| {
        browser.go(&site.at(path)).await;
        let found = browser.run(&format!("{axe}; {JUDGE}")).await;
        let found = found.as_array().unwrap_or_else(|| panic!("{path}: {found}"));
        let place = format!("{path} ({} px, {}, {})", look.width, look.theme, look.language);
        wrong.extend(found.iter().map(|text| format!("{place}: {}", text.as_str().unwrap_or_default())));
        judged += 1;
    };
    judge(&DESK, "/login").await;
    site.sign_in(&browser).await;
    let is_long = std::env::var_os("ATTACHE_LONG").is_some();
    for look in [Some(DESK), Some(PHONE), is_long.then_some(TABLET)].into_iter().flatten() {
        browser.size(look.width, look.height).await;
        browser.go(&site.at("/settings")).await;
        browser.run(&format!("document.cookie = 'language={}; path=/'", look.language)).await;
        browser.run(&format!("document.querySelector('.theme [value={}]').click()", look.theme)).await;
        for path in &pages {
            judge(&look, path).await;
        }
        // With the palette open: the page behind it can't be used.
        browser.go(&site.at("/runs")).await;
        browser.click("#palette-open").await;
        browser.wait("document.querySelectorAll('#palette [role=option]').length > 3").await;
        browser.screenshot(&site.shots, &format!("palette-{}", look.width)).await;
        let found = browser.run(&format!("{axe}; {JUDGE}")).await;
        assert_eq!(found.as_array(), Some(&Vec::new()), "the palette at {} px", look.width);
    }
    println!("{judged} pages were judged");
    assert!(wrong.is_empty(), "{} findings:\n{}", wrong.len(), wrong.join("\n"));
    drop(browser);
    site.close().await;
}
