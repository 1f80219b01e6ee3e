//! The list of runs without scripts: search, filters, what needs a person, and actions on several runs.

use attache_hub::control::RunQuery;
use attache_protocol::{
    Json, RunId,
    rules::run::RunStatus,
    wire::{
        account::AccountRequest,
        key::Role,
        run::{CreateRunRequest, Sandbox},
        usage::Budget,
    },
};
use axum::http::StatusCode;

use crate::world::{ConsoleWorld, TestVisitor, asking, between};

/// The runs on a page, in order.
async fn listed(visitor: &TestVisitor, path: &str) -> Vec<RunId> {
    let page = visitor.get(path).await;
    assert_eq!(page.status, StatusCode::OK, "{path}");
    page.body.split("data-run=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn runs_are_found_by_text_id_agent_caller_status_and_age() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    world.agent("scribe").await;
    let (_, ada) = world.person("ada", Role::Operator).await;
    let deploy = world.ask("builder", "Deploy the Parser").await;
    // A match behind many other runs is found at once.
    for number in 0..120 {
        world.ask("builder", &format!("chore {number}")).await;
    }
    let minutes = world.ask("scribe", "Write the minutes").await;
    let by = ada.principal(&world).await;
    let hers = world.ask_with(&by, "scribe", "Translate the parser manual", CreateRunRequest::default()).await;
    let device = world.pair("scribe", "laptop", "claude_cli").await;
    device.claim().await;
    device.fail(minutes, "no ink", "task_failed").await;

    let visitor = world.signed_in(Role::Operator).await;
    for (query, expected) in [
        ("q=PARSER", vec![hers, deploy]),
        (&*format!("q={deploy}"), vec![deploy]),
        (&*format!("q={}", &deploy.to_string()[4..]), vec![deploy]),
        ("q=scribe", vec![hers, minutes]),
        ("q=parser+agent:scribe", vec![hers]),
        ("agent=scribe&status=failed", vec![minutes]),
        ("q=status:failed", vec![minutes]),
        ("caller=ada", vec![hers]),
        ("q=caller:ada", vec![hers]),
        ("caller=ada&since=1d", vec![hers]),
        ("caller=nobody", vec![]),
        ("q=no+such+text", vec![]),
    ] {
        assert_eq!(listed(&visitor, &format!("/runs?{query}")).await, expected, "{query}");
    }
    // Filters are in the address, so a view can be shared, and each one can be taken away.
    let page = visitor.get("/runs?q=parser+agent:scribe+caller:ada+since:7d&status=pending").await.body;
    for link in [
        "href=\"/runs?status=pending&#38;caller=ada&#38;since=7d&#38;q=parser\"><span>agent</span> scribe",
        "href=\"/runs?status=pending&#38;agent=scribe&#38;since=7d&#38;q=parser\"><span>called by</span> ada",
        "href=\"/runs?status=pending&#38;agent=scribe&#38;caller=ada&#38;q=parser\"><span>since</span> last 7 days",
        "href=\"/runs?status=pending&#38;agent=scribe&#38;caller=ada&#38;since=7d\"><span>text</span> parser",
    ] {
        assert!(page.contains(link), "{link} is missing in {page}");
    }
}

#[tokio::test]
async fn what_needs_a_person_comes_first_with_what_is_asked() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    world.agent("scribe").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let other = world.pair("scribe", "laptop", "claude_cli").await;
    let [asks, wonders] = [world.ask("builder", "Release it").await, world.ask("scribe", "Write it").await];
    let newer = world.ask("builder", "Later").await;
    device.claim().await;
    other.claim().await;
    device.ask(asks, asking("Bash", r#"{"command":"git push <b>"}"#)).await;
    other.wonder(wonders, "In which\nlanguage?").await;

    let visitor = world.signed_in(Role::Operator).await;
    let page = visitor.get("/runs").await.body;
    assert_eq!(listed(&visitor, "/runs").await, [wonders, asks, newer]);
    for shown in [
        "Needs you<i>2</i>",
        "Needs you <i>2</i></th>",
        "Other runs</th>",
        "Approval: Bash: git push &lt;b&gt;",
        "Question: In which…",
        "Queued<i>1</i>",
        "Running<i>2</i>",
    ] {
        assert!(page.contains(shown), "{shown} is missing in {page}");
    }
    assert_eq!(listed(&visitor, "/runs?status=waiting").await, [wonders, asks]);
    assert_eq!(listed(&visitor, "/runs?status=waiting&agent=builder").await, [asks]);
    assert!(visitor.get(&format!("/runs/rows?ids={asks}")).await.body.contains("Approval: Bash: git push"));
}

#[tokio::test]
async fn several_runs_are_cancelled_and_run_again() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let done = world.ask("builder", "one").await;
    device.claim().await;
    device.complete(done, "fine").await;
    let queued = [world.ask("builder", "two").await, world.ask("builder", "three").await];
    let status = async |run: RunId| world.hub.run(&world.owner, run).await.unwrap().status;
    let visitor = world.signed_in(Role::Operator).await;

    let page = visitor.get("/runs?agent=builder").await.body;
    assert!(page.contains(&format!("form=\"bulk\" name=\"run\" value=\"{done}\"")), "{page}");
    assert!(page.contains("Select “two”"), "{page}");
    let key = between(&page, "action=\"/runs/bulk\"", "</form>");
    let key = between(key, "name=\"key\" value=\"", "\"").to_owned();
    let [first, second, last] = [queued[0].to_string(), queued[1].to_string(), done.to_string()];
    let chosen = [("run", &*first), ("run", &*last), ("key", &*key), ("back", "/runs?agent=builder")];
    let with = |action| [&chosen[..], &[("do", action)]].concat();
    let sent = visitor.post("/runs/bulk", &with("cancel")).await;
    assert_eq!(sent.header("location"), "/runs?agent=builder&said=cancelled");
    assert_eq!([status(queued[0]).await, status(queued[1]).await], [RunStatus::Cancelled, RunStatus::Pending]);
    assert_eq!(status(done).await, RunStatus::Completed, "what has ended stays as it is");
    let ended = visitor.post("/runs/bulk", &[("run", &*last), ("do", "cancel")]).await;
    assert_eq!(ended.header("location"), "/runs?said=cancelled_none");
    assert!(visitor.get("/runs?said=cancelled").await.body.contains("The selected runs were cancelled."));

    // Both have ended by now. A form that is sent twice starts them once.
    for _ in 0..2 {
        let sent = visitor.post("/runs/bulk", &with("again")).await;
        assert_eq!(sent.header("location"), "/runs?agent=builder&said=rerun");
    }
    let all =
        world.hub.runs(&world.owner, RunQuery { limit: Some(50), ..RunQuery::default() }).await.unwrap().task_runs;
    let texts: Vec<_> = all.iter().map(|run| run.input.text_member("text").unwrap()).collect();
    assert_eq!(texts.len(), 5, "{texts:?}");
    assert!(texts[..2].contains(&"one".to_owned()) && texts[..2].contains(&"two".to_owned()), "{texts:?}");
    let running = [("run", &*second), ("do", "again"), ("back", "https://example.org")];
    assert_eq!(visitor.post("/runs/bulk", &running).await.header("location"), "/runs?said=rerun_none");
    assert_eq!(visitor.post("/runs/bulk", &[("do", "delete")]).await.status, StatusCode::BAD_REQUEST);
    let viewer = world.signed_in(Role::Viewer).await;
    assert!(!viewer.get("/runs").await.body.contains("action=\"/runs/bulk\""));
    assert_eq!(viewer.post("/runs/bulk", &with("again")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(viewer.post("/runs/bulk", &[("run", &second), ("do", "cancel")]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(status(queued[1]).await, RunStatus::Pending);
}

#[tokio::test]
async fn a_task_is_edited_and_run_again() {
    let world = ConsoleWorld::new().await;
    world.agent("archive").await;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let rest = CreateRunRequest { timeout_ms: Some(14_400_000), ..CreateRunRequest::default() };
    let run = world.ask_with(&world.owner, "builder", "Fix <it>\nsoon", rest).await;
    device.claim().await;
    device.complete(run, "fine").await;
    let visitor = world.signed_in(Role::Operator).await;
    let page = visitor.get(&format!("/runs/{run}")).await.body;
    assert!(page.contains(&format!("href=\"/runs/new?from={run}\"")), "{page}");
    let form = visitor.get(&format!("/runs/new?from={run}")).await.body;
    assert!(form.contains(">Fix &#60;it&#62;\nsoon</textarea>"), "{form}");
    assert!(form.contains("<option value=\"14400000\" selected>"), "{form}");
    assert!(form.contains("selected>builder</option>"), "{form}");
    assert!(!form.contains("name=\"conversation\""), "a run of its own stays one: {form}");
    // Without a choice, an agent that can work comes first.
    assert!(visitor.get("/runs/new").await.body.contains("selected>builder</option>"));
    assert_eq!(visitor.get("/runs/new?from=run_x").await.status, StatusCode::NOT_FOUND);
}

/// Whichever way it is repeated, nobody gets around the walls and limits of a run, and its text stays its author's.
#[tokio::test]
async fn a_repeated_run_has_the_limits_of_the_first() {
    let world = ConsoleWorld::new().await;
    let (_, ada) = world.person("ada", Role::Operator).await;
    let (_, bob) = world.person("bob", Role::Operator).await;
    let [by_ada, by_bob] = [ada.principal(&world).await, bob.principal(&world).await];
    let account = AccountRequest { name: Some("adas".to_owned()), ..AccountRequest::default() };
    world.hub.create_account(&by_ada, account).await.unwrap();
    let code = world.hub.create_pairing_code(&by_ada, "adas").await.unwrap().pairing_code;
    let device = world.join(&code, "laptop", "claude_cli").await;
    let limits = || CreateRunRequest {
        sandbox: Some(Sandbox { cwd_only: Some(true), allow_network: Some(false), allow_exec: None }),
        allowed_tools: Some(Json::of(&["Read"])),
        budget: Some(Budget { tokens: Some(5000), ..Budget::default() }),
        workspace_root: Some("/srv/project".to_owned()),
        ..CreateRunRequest::default()
    };
    for (by, is_hers) in [(&by_ada, true), (&by_bob, false)] {
        let old = world.ask_with(by, "adas", "cat secrets", limits()).await;
        let first = device.claim_whole().await;
        assert_eq!(first.for_owner, is_hers);
        device.complete(old, "fine").await;
        let run = old.to_string();
        let edited =
            [("from", &*run), ("agent", &first.agent_id.to_string()), ("text", "cat others"), ("timeout", "60000")];
        for (path, fields) in [
            (&*format!("/runs/{run}/again"), &[][..]),
            ("/runs/bulk", &[("run", &*run), ("do", "again")]),
            ("/runs", &edited),
        ] {
            let sent = ada.post(path, fields).await;
            assert_eq!(sent.status, StatusCode::SEE_OTHER, "{path}: {}", sent.body);
            let again = device.claim_whole().await;
            assert_eq!(again.for_owner, is_hers, "{path}");
            assert_eq!(
                (&again.sandbox, &again.allowed_tools, &again.budget, &again.workspace_root),
                (&first.sandbox, &first.allowed_tools, &first.budget, &first.workspace_root),
                "{path}"
            );
            device.complete(again.task_run_id, "fine").await;
        }
        let form = ada.get(&format!("/runs/new?from={run}")).await.body;
        assert!(form.contains(&format!("name=\"from\" value=\"{run}\"")), "{form}");
    }
}

#[tokio::test]
async fn runs_are_found_by_caller_cost_and_chinese_words() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let (_, ada) = world.person("ada-lovelace", Role::Operator).await;
    let by = ada.principal(&world).await;
    let hers = world.ask_with(&by, "builder", "修复登录页面", CreateRunRequest::default()).await;
    let other = world.ask("builder", "Fix the login page").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    for (run, usage) in [(hers, r#"{"cost_usd":2.5}"#), (other, r#"{"cost_usd":0.01}"#)] {
        device.claim().await;
        device.complete_for(run, "done", Some(usage)).await;
    }
    let visitor = world.signed_in(Role::Operator).await;
    for (query, expected) in [
        ("q=%E7%99%BB%E5%BD%95".to_owned(), vec![hers]),
        ("q=lovelace".to_owned(), vec![hers]),
        ("cost=1".to_owned(), vec![hers]),
        ("q=cost:0.01".to_owned(), vec![other, hers]),
        ("cost=3".to_owned(), vec![]),
        ("cost=much".to_owned(), vec![]),
    ] {
        assert_eq!(listed(&visitor, &format!("/runs?{query}")).await, expected, "{query}");
    }
}

#[tokio::test]
async fn a_filter_is_kept_as_a_view_of_ones_own() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let (_, ada) = world.person("ada", Role::Viewer).await;
    let (_, bob) = world.person("bob", Role::Owner).await;
    let page = ada.get("/runs").await.body;
    assert!(!page.contains("action=\"/runs/views\""), "there is nothing to save without a filter");
    let filter = "/runs?status=failed&agent=builder&since=7d&q=a%22b";
    let page = ada.get(filter).await.body;
    assert!(page.contains("value=\"save\""), "{page}");
    let hostile = "<img src=x> \"&'";
    let save = async |visitor: &TestVisitor, name: &str, back: &str| {
        visitor.post("/runs/views", &[("do", "save"), ("name", name), ("back", back)]).await
    };
    let saved = save(&ada, hostile, filter).await;
    assert_eq!(saved.header("location"), format!("{filter}&said=view"));
    let page = ada.get(filter).await.body;
    let tab = "<a class=\"saved\" href=\"/runs?status=failed&#38;agent=builder&#38;since=7d&#38;q=a%22b\" aria-current=\"page\">\
               &lt;img src=x&gt; &quot;&amp;&#39;</a>";
    assert!(
        page.replace("&#60;", "&lt;")
            .replace("&#62;", "&gt;")
            .replace("&#34;", "&quot;")
            .contains(&tab.replace("&amp;", "&#38;")),
        "{page}"
    );
    assert!(page.contains("value=\"remove\"") && !page.contains("value=\"save\""), "{page}");
    assert!(ada.get("/runs").await.body.contains("class=\"saved\""), "it is a tab of every view");
    assert!(!bob.get(filter).await.body.contains("class=\"saved\""), "nobody else sees it");
    // Only filters are kept, whatever the form says.
    for back in
        ["/runs?next=https://example.org", "https://example.org/runs?status=failed", "/runs", "javascript:alert(1)"]
    {
        assert_eq!(save(&ada, "x", back).await.status, StatusCode::BAD_REQUEST, "{back}");
    }
    let kept = save(&ada, "x", "/runs?status=running&x=%0d%0aset-cookie").await;
    assert_eq!(kept.header("location"), "/runs?status=running&said=view");
    assert_eq!(save(&ada, "", filter).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(save(&ada, &"n".repeat(41), filter).await.status, StatusCode::BAD_REQUEST);
    // One view more than there may be.
    for number in 0..18 {
        assert_eq!(save(&ada, &format!("v{number}"), filter).await.status, StatusCode::SEE_OTHER);
    }
    assert_eq!(save(&ada, "one more", filter).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(save(&ada, "v3", "/runs?status=pending").await.status, StatusCode::SEE_OTHER, "a view can be replaced");
    // Others remove nothing of it.
    let remove = async |visitor: &TestVisitor, name: &str| {
        visitor.post("/runs/views", &[("do", "remove"), ("name", name), ("back", filter)]).await
    };
    assert_eq!(remove(&bob, hostile).await.status, StatusCode::SEE_OTHER);
    assert!(ada.get("/runs").await.body.contains("&#60;img src=x"), "it is still there");
    assert_eq!(remove(&ada, hostile).await.header("location"), format!("{filter}&said=view_removed"));
    assert!(!ada.get("/runs").await.body.contains("img src=x"));
}
