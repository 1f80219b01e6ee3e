//! The parts of a long log that its page loads, and the search in it.
#![allow(clippy::disallowed_methods, reason = "tests build JSON as values")]

use attache_protocol::{
    EventKind, Json, RunId,
    rules::run::WorkerRef,
    wire::{
        account::{AccountRequest, Callers},
        key::Role,
        run::{CreateRunRequest, ProgressRequest},
    },
};
use attache_store::record::{NewEvent, NewProgress};
use axum::http::StatusCode;

use crate::{
    browser::ListeningConsole,
    webdriver::WebdriverBrowser,
    world::{ConsoleDevice, ConsoleWorld, TestVisitor, between, encode},
};

/// A run of one's own with this many lines of a log, numbered from zero. Line 0 is event 3.
async fn long_run(world: &ConsoleWorld, lines: usize) -> (RunId, ConsoleDevice) {
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Count").await;
    device.claim().await;
    lines_of(world, run, 0..lines).await;
    (run, device)
}

async fn lines_of(world: &ConsoleWorld, run: RunId, lines: std::ops::Range<usize>) {
    let runtime = world.hub.run(&world.owner, run).await.unwrap().runtime_id.unwrap();
    let lines: Vec<usize> = lines.collect();
    for part in lines.chunks(500) {
        let line = |number: &usize| NewEvent {
            kind: EventKind::TaskLog,
            data: Json::of(&serde_json::json!({"level": "info", "message": format!("line {number} 第{number}行")})),
        };
        let progress = NewProgress { events: part.iter().map(line).collect(), ..NewProgress::default() };
        let by = WorkerRef { runtime, epoch: Some(1) };
        world.store.progress(by, run, progress, std::time::Duration::from_secs(600), world.hub.now()).await.unwrap();
    }
}

/// The first and last event of a part, and its items.
async fn window(visitor: &TestVisitor, run: RunId, query: &str) -> (i64, i64, usize) {
    let page = visitor.get(&format!("/runs/{run}/log?{query}")).await;
    assert_eq!(page.status, StatusCode::OK, "{query}: {}", page.body);
    let number = |name: &str| between(&page.body, &format!("data-{name}=\""), "\"").parse().unwrap();
    (number("first"), number("last"), page.body.matches("<li ").count())
}

async fn found(visitor: &TestVisitor, run: RunId, words: &str) -> (Vec<i64>, bool) {
    let page = visitor.get(&format!("/runs/{run}/find?q={}", encode(words))).await;
    assert_eq!(page.status, StatusCode::OK, "{words}: {}", page.body);
    let seqs = between(&page.body, "data-seqs=\"", "\"").split_whitespace().map(|seq| seq.parse().unwrap()).collect();
    (seqs, page.body.contains("data-more=\"true\""))
}

#[tokio::test]
async fn a_long_log_is_read_in_parts_in_both_directions_without_a_gap() {
    let world = ConsoleWorld::new().await;
    let (run, device) = long_run(&world, 2_400).await;
    let visitor = world.owner_signed_in().await;
    let newest = 2_402;
    let (first, last, items) = window(&visitor, run, "before=9007199254740991").await;
    assert_eq!((first, last, items), (newest - 199, newest, 200));
    assert_eq!(window(&visitor, run, &format!("before={first}")).await, (first - 200, first - 1, 200));
    assert_eq!(window(&visitor, run, "before=4").await, (1, 3, 3));
    assert_eq!(window(&visitor, run, "before=1").await.2, 0);
    assert_eq!(window(&visitor, run, "before=-7").await.2, 0);
    assert_eq!(window(&visitor, run, "after=1500").await, (1_501, 2_402, 902));
    assert_eq!(window(&visitor, run, &format!("after={newest}")).await, (newest + 1, newest, 0));
    // Large events fill a part before it reaches its end. Nothing between them is lost.
    let large = Some(Json::of(&serde_json::json!({"message": "x".repeat(60_000)})));
    for _ in 0..14 {
        device.report(run, ProgressRequest { log: large.clone(), ..ProgressRequest::default() }).await;
    }
    let (mut before, mut seen) = (newest + 15, Vec::new());
    while before > newest - 100 {
        let (first, last, _) = window(&visitor, run, &format!("before={before}")).await;
        assert_eq!(last, before - 1);
        seen.push((first, last));
        before = first;
    }
    assert!(seen.len() >= 3, "{seen:?}");
}

#[tokio::test]
async fn words_are_found_anywhere_in_a_log_by_those_who_may_see_it() {
    let world = ConsoleWorld::new().await;
    let (run, device) = long_run(&world, 2_400).await;
    let visitor = world.owner_signed_in().await;
    assert_eq!(found(&visitor, run, "LINE 2345").await, (vec![2_348], false));
    assert_eq!(found(&visitor, run, "第17行").await, (vec![20], false));
    let (seqs, more) = found(&visitor, run, "line").await;
    assert_eq!((seqs.len(), seqs[0], more), (500, 3, true));
    assert_eq!(found(&visitor, run, "nothing of the kind").await, (vec![], false));
    device.say(run, "<script>alert(1)</script> a\\b \"c\"").await;
    for words in ["<script>", "a\\b \"C\"", "' or 1=1"] {
        let expected = if words.starts_with('\'') { vec![] } else { vec![2_403] };
        assert_eq!(found(&visitor, run, words).await.0, expected, "{words}");
    }
    assert_eq!(visitor.get(&format!("/runs/{run}/find?q=")).await.status, StatusCode::BAD_REQUEST);
    // Behind every line that can be.
    assert_eq!(window(&visitor, run, "after=9223372036854775807").await, (i64::MAX, i64::MAX, 0));
    // Somebody else's private run doesn't exist.
    let (_, ada) = world.person("ada", Role::Operator).await;
    let by = ada.principal(&world).await;
    let request =
        AccountRequest { name: Some("hers".to_owned()), callers: Some(Callers::Owner), ..AccountRequest::default() };
    world.hub.create_account(&by, request).await.unwrap();
    let hidden = world.ask_with(&by, "hers", "hidden", CreateRunRequest::default()).await;
    let (_, bob) = world.person("bob", Role::Operator).await;
    for path in [format!("/runs/{hidden}/find?q=hidden"), format!("/runs/{hidden}/log?after=0")] {
        assert_eq!(ada.get(&path).await.status, StatusCode::OK, "{path}");
        assert_eq!(bob.get(&path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

/// A person goes to the end, to a match, to a line, and scrolls back, in a log that is much longer than its page.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_is_followed_searched_and_linked_with_a_small_page() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    let (run, device) = long_run(world, 9_000).await;
    site.sign_in(&browser).await;
    let shown = |seq: usize| {
        format!(
            "(() => {{ const box = document.getElementById('s{seq}')?.getBoundingClientRect(); \
             return box !== undefined && box.top > 0 && box.bottom < innerHeight; }})()"
        )
    };
    // A live run is followed from its end, and goes on there.
    browser.go(&site.at(&format!("/runs/{run}"))).await;
    browser.wait(&shown(9_002)).await;
    device.say(run, "the newest line").await;
    browser.wait("document.querySelector('#log > li:last-child').textContent.includes('the newest line')").await;
    browser.wait("innerHeight + scrollY >= document.documentElement.scrollHeight - 130").await;
    // Whoever scrolls up stays where they are, and finds what is there.
    browser.run("scrollTo(0, document.getElementById('log').getBoundingClientRect().top + scrollY + 10)").await;
    browser.wait("document.querySelector('#follow [role=status]').textContent === 'Paused'").await;
    browser.wait("Number(document.querySelector('#log > li').id.slice(1)) < 8800").await;
    device.say(run, " and one more").await;
    browser.wait("innerHeight + scrollY < document.documentElement.scrollHeight - 130").await;
    // A match that isn't loaded is found and shown.
    browser.write("#find input", "第4321行").await;
    browser.wait("document.querySelector('#find output').textContent === '1 of 1'").await;
    browser.wait(&shown(4_324)).await;
    assert!(browser.run("return CSS.highlights.get('current')?.size === 1").await.as_bool().unwrap());
    browser.run("document.querySelector('#find input').value = ''").await;
    // So is a linked line.
    for seq in [7_000, 12] {
        browser.run(&format!("location.hash = '#s{seq}'")).await;
        browser
            .wait(&format!("document.getElementById('s{seq}')?.classList.contains('linked') && {}", shown(seq)))
            .await;
    }
    browser.go(&site.at("/runs")).await;
    browser.go(&site.at(&format!("/runs/{run}#s5000"))).await;
    browser.wait(&format!("document.getElementById('s5000')?.classList.contains('linked') && {}", shown(5_000))).await;
    assert!(browser.run("return document.getElementById('log').childElementCount").await.as_u64().unwrap() <= 3_000);
    // Back to the end.
    browser.click("#follow button").await;
    browser.wait("document.querySelector('#log > li:last-child').textContent.includes('and one more')").await;
    browser.wait("document.querySelector('#follow [role=status]').textContent === 'Following the log'").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}
