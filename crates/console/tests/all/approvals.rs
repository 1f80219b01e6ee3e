//! The inbox without scripts: cards, decisions, grants and history.

use attache_hub::control::{DecisionOrigin, PageRequest};
use attache_protocol::{
    Json,
    rules::permission::{DecisionScope, OnTimeout, PermissionState},
    wire::{
        account::{AccountRequest, Callers},
        key::Role,
        permission::{ApprovalPolicy, CreatePermissionRequest, DecisionRequest},
        run::CreateRunRequest,
    },
};
use axum::http::StatusCode;

use crate::world::{ConsoleDevice, ConsoleWorld, asking, between};

const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> [x](http://evil) \u{1b}[31m\u{202e}";

async fn working(world: &ConsoleWorld, agent: &str) -> (ConsoleDevice, attache_protocol::RunId) {
    world.agent(agent).await;
    let device = world.pair(agent, "workstation-2", "claude_cli").await;
    let run = world.ask(agent, "Upgrade the parser").await;
    assert_eq!(device.claim().await, run);
    (device, run)
}

fn yes() -> DecisionRequest {
    DecisionRequest {
        approved: true,
        scope: DecisionScope::Once,
        tool_pattern: None,
        until: None,
        this_channel_only: false,
        comment: None,
    }
}

#[tokio::test]
async fn a_card_shows_the_exact_request_and_the_outcome_without_an_answer() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let first = device.ask(run, asking("Run", r#"{"command":"git push --force origin main","timeout":1.50}"#)).await;
    let edit = r#"{"file_path":"deploy/compose.yaml","old_string":"image: db:15.8\nports: []","new_string":"image: db:16.4\nports: []\nstop: 60s"}"#;
    let second = device.ask(run, asking("Edit", edit)).await;
    let visitor = world.signed_in(Role::Operator).await;
    let page = visitor.get("/inbox").await.body;

    assert!(page.contains("<title>(2) Inbox · Attaché</title>"));
    assert!(page.contains("2 requests need your answer."));
    let at = |mark: &str| page.find(mark).unwrap_or_else(|| panic!("{mark} is missing in {page}"));
    assert!(
        at(&format!("id=\"{}\"", second.permission_request_id))
            < at(&format!("id=\"{}\"", first.permission_request_id)),
        "newest first"
    );
    for shown in [
        "<bdi>builder</bdi> wants to run a command",
        "<bdi>builder</bdi> wants to edit a file",
        "<dt>Tool</dt><dd><code>Run</code></dd>",
        "<pre class=\"code\"><span>git push --force origin main</span></pre>",
        "&quot;timeout&quot;: 1.50",
        "High</span> <span class=\"dim\">reported by the agent",
        "the tests want it",
        "<code>/home/dev/parser</code>",
        "<code>/home/dev/parser/src</code>",
        ">Upgrade the parser</a> on workstation-2, called by",
        "if unanswered; the run then fails.",
        "<code>deploy/compose.yaml</code><span class=\"plus\">+2</span><span class=\"minus\">−1</span>",
        "<td>image: db:1<del>5.8</del></td>",
        "<td>image: db:1<ins>6.4</ins></td>",
        "<td>stop: 60s</td>",
    ] {
        assert!(page.contains(shown), "{shown} is missing in {page}");
    }
    assert!(page.contains(&first.subject[..4]), "the hash is shown");
}

#[tokio::test]
async fn a_card_shows_the_proposed_change_and_what_is_undisclosed() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old <b>\n+new <script>alert(1)</script>\n";
    let (diff, undisclosed) = (Some(diff.to_owned()), vec!["input".to_owned(), "the <i>model</i>".to_owned()]);
    device.ask(run, CreatePermissionRequest { diff, undisclosed, ..asking("Edit", "{}") }).await;
    let page = world.signed_in(Role::Operator).await.get("/inbox").await.body;
    for shown in [
        "old &lt;b&gt;",
        "new &lt;script&gt;alert(1)&lt;/script&gt;",
        "Not disclosed",
        "The agent doesn’t disclose the tool’s input.",
        "You can allow this only once",
        "the &lt;i&gt;model&lt;/i&gt;",
    ] {
        assert!(page.contains(shown), "{shown} is missing in {page}");
    }
    assert!(!page.contains("<script>alert"));
    // Undisclosed input can only be allowed once.
    assert!(!page.contains("value=\"allow_run\"") && !page.contains("value=\"allow_as\""), "{page}");
}

/// Whatever the number and form of the requests.
#[tokio::test]
async fn pages_of_large_requests_stay_below_five_megabytes() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let inputs = [
        format!(r#"{{"x":{}{}{}}}"#, "[".repeat(60), vec!["1"; 100_000].join(","), "]".repeat(60)),
        format!(r#"{{"command":"{}"}}"#, "&".repeat(250_000)),
        format!(r#"{{"text":"{}"}}"#, "\u{202e}".repeat(80_000)),
    ];
    let diffs =
        ["\n".repeat(250_000), "\u{1}".repeat(250_000), format!("@@ -1,1 +1,120000 @@\n{}", "+\n".repeat(120_000))];
    let mut paths = vec!["/inbox".to_owned(), format!("/runs/{run}")];
    for number in 0..9 {
        let request =
            CreatePermissionRequest { diff: Some(diffs[number % 3].clone()), ..asking("Run", &inputs[number % 3]) };
        paths.push(format!("/approvals/{}", device.ask(run, request).await.permission_request_id));
    }
    let visitor = world.signed_in(Role::Operator).await;
    for path in paths {
        let page = visitor.get(&path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(page.body.len() < 5_000_000, "{path}: {} bytes", page.body.len());
        assert!(page.body.contains("Upgrade the parser"), "{path}");
    }
    assert!(visitor.get("/inbox").await.body.contains("Older requests appear as you answer these."));
}

#[tokio::test]
async fn the_outcome_without_an_answer_follows_the_agents_policy() {
    let world = ConsoleWorld::new().await;
    for (agent, on_timeout, words) in [
        ("waiter", OnTimeout::KeepWaiting, "No time limit: the run waits"),
        ("goer", OnTimeout::DenyAndContinue, "if unanswered; the agent then continues without it."),
    ] {
        let (device, run) = working(&world, agent).await;
        let approvals =
            ApprovalPolicy { timeout_ms: Some(600_000), on_timeout: Some(on_timeout), ..Default::default() };
        let update = AccountRequest { approvals: Some(approvals), ..AccountRequest::default() };
        world.hub.update_account(&world.owner, agent, update).await.unwrap();
        let asked = device.ask(run, asking("Run", r#"{"command":"ls"}"#)).await;
        let visitor = world.signed_in(Role::Viewer).await;
        let page = visitor.get(&format!("/approvals/{}", asked.permission_request_id)).await.body;
        assert!(page.contains(words), "{page}");
        assert!(page.contains("can view this request but can’t decide it") && !page.contains("value=\"deny\""));
    }
}

#[tokio::test]
async fn the_buttons_allow_once_allow_for_the_run_and_deny() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let visitor = world.owner_signed_in().await;
    for (answer, state, scope, location) in [
        ("allow_once", PermissionState::Approved, DecisionScope::Once, "/inbox?said=allowed"),
        ("deny", PermissionState::Denied, DecisionScope::Once, "/inbox?said=denied"),
        ("allow_run", PermissionState::Approved, DecisionScope::Run, "/inbox?said=allowed"),
    ] {
        let asked = device.ask(run, asking("Run", &format!("{{\"command\":\"{answer}\"}}"))).await;
        let path = format!("/approvals/{}", asked.permission_request_id);
        let sent = visitor.post(&path, &[("answer", answer), ("comment", "as agreed"), ("scope", "agent")]).await;
        assert_eq!((sent.status, sent.header("location")), (StatusCode::SEE_OTHER, location));
        let heard = device.answer(run, &asked).await;
        assert_eq!((heard.state, heard.scope, heard.comment.as_deref()), (state, Some(scope), Some("as agreed")));
        let decided = world.hub.permission(&world.owner, asked.permission_request_id).await.unwrap();
        assert_eq!(decided.decided_via.as_deref(), Some("console"));
    }
    let page = visitor.get("/inbox?said=allowed").await.body;
    assert!(page.contains("Allowed. The agent continues.") && page.contains("You’re all caught up"));
    for shown in ["Allowed <bdi>once</bdi> by", "Denied <bdi>once</bdi> by", "Allowed <bdi>for this run</bdi> by"] {
        assert!(page.contains(shown), "{shown} is missing in {page}");
    }
    assert!(page.contains("“as agreed”") && page.contains("via console"));
    assert!(!page.contains("id=\"asked\""), "nothing is counted any more");

    // Invalid and cross-site answers change nothing.
    let asked = device.ask(run, asking("Run", r#"{"command":"last"}"#)).await;
    let path = format!("/approvals/{}", asked.permission_request_id);
    assert_eq!(visitor.post(&path, &[("answer", "perhaps")]).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(visitor.post(&path, &[]).await.status, StatusCode::BAD_REQUEST);
    let forged = visitor.post_bare(&path, &[("answer", "allow_once"), ("csrf", "0")], &[]).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    let viewer = world.signed_in(Role::Viewer).await;
    assert_eq!(viewer.post(&path, &[("answer", "allow_once")]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(device.answer(run, &asked).await.state, PermissionState::Pending);
}

#[tokio::test]
async fn a_plan_is_read_and_approved_or_sent_back() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let visitor = world.owner_signed_in().await;
    let plan = Json::of(&std::collections::BTreeMap::from([("plan", format!("# Steps\n- one\n- two\n{HOSTILE}"))]));
    for (answer, state) in [("deny", PermissionState::Denied), ("allow_once", PermissionState::Approved)] {
        let asked = device.ask(run, asking("plan", plan.get())).await;
        let page = visitor.get("/inbox").await.body;
        for shown in [
            "<bdi>builder</bdi> asks you to approve its plan",
            "<h3>Steps</h3>",
            "<li>one</li>",
            "<summary>Original text</summary>",
            "Keep planning",
            "Approve the plan",
        ] {
            assert!(page.contains(shown), "{shown} is missing in {page}");
        }
        assert!(!page.contains("<script>alert") && !page.contains("<img src=x"), "{page}");
        assert!(!page.contains("name=\"scope\"") && !page.contains("allow_run"), "a plan is approved once: {page}");
        let path = format!("/approvals/{}", asked.permission_request_id);
        visitor.post(&path, &[("answer", answer), ("comment", "in smaller steps")]).await;
        let heard = device.answer(run, &asked).await;
        assert_eq!((heard.state, heard.comment.as_deref()), (state, Some("in smaller steps")));
    }
}

#[tokio::test]
async fn a_quick_reason_denies_and_tells_the_agent_why() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let visitor = world.owner_signed_in().await;
    for (typed, told) in [
        ("", "This goes too far. Ask for something narrower."),
        ("Only src.", "This goes too far. Ask for something narrower. Only src."),
    ] {
        let asked = device.ask(run, asking("Run", &format!("{{\"command\":\"rm -rf {typed}\"}}"))).await;
        let page = visitor.get("/inbox").await.body;
        assert!(page.contains("name=\"because\" value=\"too_broad\""), "{page}");
        let path = format!("/approvals/{}", asked.permission_request_id);
        let sent = visitor.post(&path, &[("because", "too_broad"), ("comment", typed)]).await;
        assert_eq!(sent.header("location"), "/inbox?said=denied");
        let heard = device.answer(run, &asked).await;
        assert_eq!((heard.state, heard.comment.as_deref()), (PermissionState::Denied, Some(told)));
    }
    let asked = device.ask(run, asking("Run", r#"{"command":"ls"}"#)).await;
    let path = format!("/approvals/{}", asked.permission_request_id);
    let unknown = visitor.post(&path, &[("because", "<b>"), ("answer", "allow_once")]).await;
    assert_eq!(unknown.status, StatusCode::BAD_REQUEST);
    assert_eq!(device.answer(run, &asked).await.state, PermissionState::Pending);
}

#[tokio::test]
async fn questions_are_in_the_inbox_and_answered_there() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let visitor = world.owner_signed_in().await;
    let moved = visitor.get("/approvals").await;
    assert_eq!((moved.status, moved.header("location")), (StatusCode::PERMANENT_REDIRECT, "/inbox"));
    assert!(visitor.get("/inbox").await.body.contains("You’re all caught up"));

    // A question counts like an approval, on every page, whatever else the run waits for.
    let question = device.wonder(run, "Which <b>branch</b>?").await;
    let id = question.input_request_id;
    device.ask(run, asking("Run", r#"{"command":"ls"}"#)).await;
    for path in ["/inbox", "/agents"] {
        let page = visitor.get(path).await.body;
        assert!(page.contains("id=\"asked\">2</b>") && page.contains("<title>(2) "), "{path}: {page}");
    }
    let page = visitor.get("/inbox").await.body;
    for shown in [
        "2 requests need your answer.",
        "<bdi>builder</bdi> has a question",
        "<p class=\"question\">Which &lt;b&gt;branch&lt;/b&gt;?</p>",
        ">Upgrade the parser</a>, called by",
        "<bdi>builder</bdi> wants to run a command",
    ] {
        assert!(page.contains(shown), "{shown} is missing in {page}");
    }
    let viewer = world.signed_in(Role::Viewer).await.get("/inbox").await.body;
    assert!(
        viewer.contains("builder</bdi> has a question") && !viewer.contains("<textarea"),
        "a viewer can't answer: {viewer}"
    );

    let form = &page[page.find(&format!("<article class=\"slip\" id=\"{id}\"")).unwrap()..];
    let key = between(form, "name=\"key\" value=\"", "\"");
    let fields = [("text", "next"), ("key", key), ("question", &id.to_string()), ("back", "inbox")];
    let sent = visitor.post(&format!("/runs/{run}/input"), &fields).await;
    assert_eq!((sent.status, sent.header("location")), (StatusCode::SEE_OTHER, "/inbox?said=sent"));
    let heard = world.hub.input_answer(&device.principal, run, id, std::time::Duration::ZERO).await.unwrap();
    assert_eq!(heard.parts.unwrap().get(), r#"[{"text":"next"}]"#);
    let page = visitor.get("/inbox").await.body;
    assert!(page.contains("1 request needs your answer.") && !page.contains("builder</bdi> has a question"), "{page}");
}

/// Options are chosen, not typed, and the agent gets what was chosen per question.
#[tokio::test]
async fn a_question_with_options_is_a_form() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let visitor = world.owner_signed_in().await;
    let asked = r#"[{"data":{"questions":[
        {"question":"Which <b>one</b>?","options":[{"label":"\"a\"","description":"the first"},{"label":"b"}]},
        {"question":"What for?","multi_select":true,"options":[{"label":"tests"},{"label":"production"}]}]}}]"#;
    let id = device.wonder_with(run, "in words", Some(Json::from_text(asked).unwrap())).await.input_request_id;
    let page = visitor.get("/inbox").await.body;
    for shown in [
        "<legend>Which &#60;b&#62;one&#60;/b&#62;?</legend>",
        "type=\"radio\" name=\"choice-0\" value=\"&#34;a&#34;\"",
        "<small>the first</small>",
        "type=\"checkbox\" name=\"choice-1\" value=\"production\"",
    ] {
        assert!(page.contains(shown), "{shown} is missing in {page}");
    }
    assert!(!page.contains("in words") && !page.contains("<textarea"), "{page}");
    let id_text = id.to_string();
    let rest = [("questions", "2"), ("key", "k1"), ("question", id_text.as_str()), ("back", "inbox")];
    let nothing = visitor.post(&format!("/runs/{run}/input"), &rest).await;
    assert_eq!(nothing.status, StatusCode::BAD_REQUEST);
    let chosen = [("choice-0", "b"), ("choice-1", "tests"), ("choice-1", "production"), ("own-1", "and more")];
    let sent = visitor.post(&format!("/runs/{run}/input"), &[&rest[..], &chosen[..]].concat()).await;
    assert_eq!((sent.status, sent.header("location")), (StatusCode::SEE_OTHER, "/inbox?said=sent"));
    let heard = world.hub.input_answer(&device.principal, run, id, std::time::Duration::ZERO).await.unwrap();
    let expected =
        r#"[{"data":{"answers":[{"selected":["b"]},{"selected":["tests","production"],"text":"and more"}]}}]"#;
    assert_eq!(heard.parts.unwrap().get(), expected);
}

/// What is hidden from a person isn't counted for them.
#[tokio::test]
async fn questions_of_private_agents_are_their_owners() {
    let world = ConsoleWorld::new().await;
    let (ada, hers) = world.person("ada", Role::Operator).await;
    let principal = hers.principal(&world).await;
    let account =
        AccountRequest { name: Some("diary".to_owned()), callers: Some(Callers::Owner), ..AccountRequest::default() };
    let account = world.hub.create_account(&principal, account).await.unwrap();
    assert_eq!(account.owner_id, Some(ada.user_id));
    let code = world.hub.create_pairing_code(&principal, "diary").await.unwrap().pairing_code;
    let device = world.join(&code, "laptop", "claude_cli").await;
    let run = world.ask_with(&principal, "diary", "Write it down", CreateRunRequest::default()).await;
    device.claim().await;
    device.wonder(run, "How was it?").await;
    let (_, eve) = world.person("eve", Role::Admin).await;
    for (visitor, sees) in [(&hers, true), (&eve, false)] {
        let page = visitor.get("/inbox").await.body;
        assert_eq!((page.contains("How was it?"), page.contains("id=\"asked\"")), (sees, sees), "{page}");
    }
}

#[tokio::test]
async fn more_options_create_a_grant_that_is_listed_and_revoked() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    // In a run of theirs, only what they allow themselves answers later.
    let visitor = world.owner_signed_in().await;
    let asked = device.ask(run, asking("Run", r#"{"command":"one"}"#)).await;
    let path = format!("/approvals/{}", asked.permission_request_id);
    // A pattern needs a scope.
    let refused = visitor
        .post(&path, &[("answer", "allow_as"), ("scope", "once"), ("tool_pattern", "R*"), ("back", "run")])
        .await;
    assert_eq!(refused.status, StatusCode::OK);
    assert!(refused.body.contains("class=\"note fail said\" role=\"alert\""), "{}", refused.body);
    let fields =
        [("answer", "allow_as"), ("scope", "agent"), ("tool_pattern", "R*"), ("until", "3600"), ("back", "run")];
    let sent = visitor.post(&path, &fields).await;
    assert_eq!(sent.header("location"), format!("/runs/{run}"));
    // The grant answers the next request.
    let next = device.ask(run, asking("Run", r#"{"command":"two"}"#)).await;
    assert_eq!(next.state, PermissionState::Approved);
    let page = visitor.get("/inbox").await.body;
    assert!(page.contains("Allows <code>R*</code>") && page.contains("<bdi>for this agent</bdi>"), "{page}");
    assert!(page.contains("Allowed by a standing decision"));
    let grant = between(&page, "action=\"/grants/", "/revoke\"").to_owned();
    let viewer = world.signed_in(Role::Viewer).await;
    assert_eq!(viewer.post(&format!("/grants/{grant}/revoke"), &[]).await.status, StatusCode::FORBIDDEN);
    let revoked = visitor.post(&format!("/grants/{grant}/revoke"), &[]).await;
    assert_eq!(revoked.header("location"), "/inbox?said=revoked");
    let grants = world.hub.grants(&world.owner, PageRequest::default()).await.unwrap().permission_grants;
    assert!(grants[0].revoked_at.is_some());
    let page = visitor.get("/inbox").await.body;
    assert!(page.contains("<li class=\"gone\">") && !page.contains("/revoke\""));
    let last = device.ask(run, asking("Run", r#"{"command":"three"}"#)).await;
    assert_eq!(last.state, PermissionState::Pending);
}

#[tokio::test]
async fn a_late_decision_shows_who_decided_and_when() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let visitor = world.signed_in(Role::Operator).await;
    let asked = device.ask(run, asking("Run", r#"{"command":"ls"}"#)).await;
    let place = DecisionOrigin { via: "rest", from: Some("192.0.2.9".to_owned()) };
    world.hub.decide(&world.owner, asked.permission_request_id, yes(), place).await.unwrap();
    let path = format!("/approvals/{}", asked.permission_request_id);
    let late = visitor.post(&path, &[("answer", "deny"), ("back", "inbox")]).await;
    assert_eq!(late.status, StatusCode::OK);
    assert!(late.body.contains("Already decided: Allowed <bdi>once</bdi> by <bdi>owner</bdi>"), "{}", late.body);
    assert!(late.body.contains("via rest from <bdi>192.0.2.9</bdi>"), "{}", late.body);
    assert!(!late.body.contains("value=\"deny\""), "nothing is left to decide");
    assert_eq!(device.answer(run, &asked).await.state, PermissionState::Approved);
    // Repeating one's own decision is not a conflict.
    let asked = device.ask(run, asking("Run", r#"{"command":"pwd"}"#)).await;
    let path = format!("/approvals/{}", asked.permission_request_id);
    for _ in 0..2 {
        assert_eq!(visitor.post(&path, &[("answer", "deny")]).await.header("location"), "/inbox?said=denied");
    }
}

#[tokio::test]
async fn agent_text_is_inert_everywhere() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let text = Json::of(HOSTILE);
    let tool = HOSTILE.replace('\u{1b}', "");
    let mut request = asking(&tool, &format!("{{\"command\":{0},{0}:{0},\"new\":{0},\"old\":{0}}}", text.get()));
    request.cwd = Some(tool.clone());
    request.paths = vec![HOSTILE.to_owned()];
    request.reason = Some(HOSTILE.to_owned());
    request.risk = Some("<b>\u{202e}".to_owned());
    let asked = device.ask(run, request).await;
    device.wonder(run, HOSTILE).await;
    let visitor = world.signed_in(Role::Owner).await;
    let pages = [
        "/inbox".to_owned(),
        format!("/approvals/{}", asked.permission_request_id),
        format!("/runs/{run}"),
        format!("/runs/{run}/part"),
    ];
    let check = |body: &str, path: &str| {
        for mark in ["<script>alert", "<img src=x", "\"'><img", "\u{1b}", "\u{202e}", "href=\"http://evil", "style=\""]
        {
            assert!(!body.contains(mark), "{mark:?} is on {path}");
        }
    };
    for path in &pages {
        let page = visitor.get(path).await.body;
        check(&page, path);
        assert!(page.contains("<i class=\"odd\">ESC</i>[31m<i class=\"odd\">U+202E</i>"), "{path} hides nothing");
        assert!(page.contains("&lt;script&gt;alert(1)"), "{path}");
    }
    let place = DecisionOrigin { via: "rest", from: None };
    let decision = DecisionRequest { comment: Some(HOSTILE.replace(['\u{1b}', '\u{202e}'], "")), ..yes() };
    world.hub.decide(&world.owner, asked.permission_request_id, decision, place).await.unwrap();
    for path in &pages {
        check(&visitor.get(path).await.body, path);
    }
}

#[tokio::test]
async fn the_run_page_decides_and_answers_in_place() {
    let world = ConsoleWorld::new().await;
    let (device, run) = working(&world, "builder").await;
    let visitor = world.owner_signed_in().await;
    let asked = device.ask(run, asking("Run", r#"{"command":"ls"}"#)).await;
    let page = visitor.get(&format!("/runs/{run}")).await.body;
    for shown in [
        "Waiting for approval: <bdi>workstation-2</bdi> keeps the run until someone answers.",
        "This run is waiting for a decision",
        "name=\"back\" value=\"run\"",
        "Wants to use Run: ls",
        "Paused: waiting for approval",
    ] {
        assert!(page.contains(shown), "{shown} is missing in {page}");
    }
    let list = visitor.get("/runs").await.body;
    assert!(list.contains("<span class=\"why wait\">Approval: Run: ls"), "{list}");
    assert!(list.contains("Waiting</span>"), "{list}");
    let path = format!("/approvals/{}", asked.permission_request_id);
    visitor.post(&path, &[("answer", "allow_once"), ("back", "run")]).await;
    let page = visitor.get(&format!("/runs/{run}")).await.body;
    assert!(page.contains("Running on the device") && !page.contains("This run is waiting for a decision"), "{page}");
    assert!(page.contains("Allowed <bdi>once</bdi> by"));

    let question = device.wonder(run, "Which branch, <b>main</b>\nor next?").await;
    let page = visitor.get(&format!("/runs/{run}")).await.body;
    assert!(page.contains("<bdi>builder</bdi> has a question"), "{page}");
    assert!(page.contains("<p class=\"question\">Which branch, &lt;b&gt;main&lt;/b&gt;\nor next?</p>"), "{page}");
    let nonce = between(&page, "name=\"key\" value=\"", "\"").to_owned();
    let path = format!("/runs/{run}/input");
    assert_eq!(visitor.post(&path, &[("text", " ")]).await.status, StatusCode::BAD_REQUEST);
    for _ in 0..2 {
        let sent = visitor.post(&path, &[("text", "next"), ("key", &nonce)]).await;
        assert_eq!(sent.header("location"), format!("/runs/{run}?said=sent"));
    }
    let heard = world
        .hub
        .input_answer(&device.principal, run, question.input_request_id, std::time::Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(heard.parts.unwrap().get(), r#"[{"text":"next"}]"#);
    let page = visitor.get(&format!("/runs/{run}?said=sent")).await.body;
    assert!(page.contains("Answer: next") && !page.contains("builder</bdi> has a question"), "{page}");
    assert_eq!(page.matches("Answer: next").count(), 1, "a form that is sent twice is one answer");
    let viewer = world.signed_in(Role::Viewer).await;
    assert_eq!(viewer.post(&path, &[("text", "x")]).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn the_state_of_a_run_on_its_device_is_shown() {
    let listen = "127.0.0.1:7800".parse().unwrap();
    let world = ConsoleWorld::with(listen, |options| options.idle_after = std::time::Duration::ZERO).await;
    let (device, run) = working(&world, "builder").await;
    let visitor = world.signed_in(Role::Viewer).await;
    let page = visitor.get(&format!("/runs/{run}")).await.body;
    assert!(
        page.contains("<bdi>workstation-2</bdi> is connected but has sent nothing about this run for <time"),
        "{page}"
    );
    assert!(page.contains("<span>Connected, no updates</span>"), "the facts say it too: {page}");
    let list = visitor.get("/runs").await.body;
    let sign = "<span class=\"why queued\"><svg class=\"m s queued\" aria-hidden=\"true\"><use href=\"#s-queued\"/></svg>Connected, no updates</span>";
    assert!(list.contains(sign), "{list}");
    device.beat(vec![run], vec![run]).await;
    let page = visitor.get(&format!("/runs/{run}")).await.body;
    assert!(page.contains("Finished on <bdi>workstation-2</bdi>. The hub hasn’t accepted the result yet."), "{page}");
    assert!(visitor.get("/runs").await.body.contains("Finished on the device, result not yet accepted</span>"));
}
