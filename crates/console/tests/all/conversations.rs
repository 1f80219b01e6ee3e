//! Conversations without scripts: the list, the turns, and what a person does in them.

use attache_hub::control::RunQuery;
use attache_protocol::{
    ConversationId, Json,
    rules::{permission_mode::PermissionMode, run::RunStatus},
    wire::{
        account::AccountRequest,
        conversation::{AddMessageRequest, CreateConversationRequest},
        input_request::GiveInputRequest,
        key::Role,
        permission::ApprovalPolicy,
        run::{CreateRunRequest, ProgressRequest, Run},
        runtime::TAKES_INPUT,
    },
};
use axum::http::StatusCode;

use crate::world::{ConsoleWorld, asking, between};

async fn runs(world: &ConsoleWorld, conversation: ConversationId) -> Vec<Run> {
    let query = RunQuery { conversation_id: Some(conversation), limit: Some(50), ..RunQuery::default() };
    world.hub.runs(&world.owner, query).await.unwrap().task_runs
}

#[tokio::test]
async fn a_conversation_shows_what_was_said_and_done() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let request =
        CreateConversationRequest { title: Some("Parser <1>".to_owned()), ..CreateConversationRequest::default() };
    let id = world.hub.create_conversation(&world.owner, request).await.unwrap().conversation_id;
    let inside = || CreateRunRequest { conversation_id: Some(id), ..CreateRunRequest::default() };
    let first = world.ask_with(&world.owner, "builder", "Is <b>it</b> green?", inside()).await;
    device.claim().await;
    let call = r#"{"id":"c1","name":"Bash","status":"started","input":{"command":"cargo test"}}"#;
    let tool_call = Some(Json::from_text(call).unwrap());
    device.report(first, ProgressRequest { tool_call, ..ProgressRequest::default() }).await;
    device.complete(first, "**All** green, <script>alert(1)</script>").await;
    let note = AddMessageRequest { text: "Remember the <i>docs</i>".to_owned(), metadata: None };
    world.hub.add_message(&world.owner, id, note).await.unwrap();
    let second = world.ask_with(&world.owner, "builder", "Then release it", inside()).await;
    device.claim().await;
    device.ask(second, asking("Bash", r#"{"command":"git push"}"#)).await;
    device.wonder(second, "Which version?").await;

    let visitor = world.owner_signed_in().await;
    let list = visitor.get("/conversations").await.body;
    assert!(list.contains(&format!("href=\"/conversations/{id}\">Parser &#60;1&#62;</a>")), "{list}");
    assert_eq!(list.matches("href=\"/conversations/cnv_").count(), 1, "one row for both runs: {list}");
    let page = visitor.get(&format!("/conversations/{id}")).await.body;
    let at = |mark: &str| page.find(mark).unwrap_or_else(|| panic!("{mark} is missing in {page}"));
    let order = [
        "Is &#60;b&#62;it&#60;/b&#62; green?",
        "1 step</summary>",
        "<code class=\"clip\">cargo test</code>",
        "<strong>All</strong> green, &lt;script&gt;",
        "Retry from here",
        "Then release it",
        "<bdi>builder</bdi> wants to run a command",
        "<p class=\"question\">Which version?</p>",
        "Stop</button>",
        "builder is still working. Your message comes next.",
    ];
    let places: Vec<_> = order.map(at).to_vec();
    assert!(places.is_sorted(), "{places:?}");
    assert!(page.contains("Remember the &#60;i&#62;docs&#60;/i&#62;"), "{page}");
    // What the agent asks is answered here, and leads back here.
    let back = format!("/conversations/{id}");
    let ask = between(&page[at("Which version?")..], "name=\"question\" value=\"", "\"");
    let fields = [("text", "2.0"), ("question", ask), ("back", "conversation")];
    assert_eq!(visitor.post(&format!("/runs/{second}/input"), &fields).await.header("location"), back);
    let stopped = visitor.post(&format!("/runs/{second}/cancel"), &[("back", "conversation")]).await;
    assert_eq!(stopped.header("location"), back);
    assert_eq!(world.hub.run(&world.owner, second).await.unwrap().status, RunStatus::Cancelled);
    assert_eq!(visitor.get("/conversations/cnv_x").await.status, StatusCode::NOT_FOUND);
    let unknown = visitor.get("/conversations/cnv_00000000000000000000000000000000").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_follow_up_goes_on_in_the_conversation_of_a_run() {
    let world = ConsoleWorld::new().await;
    world.agent("archive").await;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Name the modules").await;
    let id = run.own_conversation();
    device.claim().await;
    device.complete(run, "lexer, parser").await;
    let visitor = world.signed_in(Role::Operator).await;
    let page = visitor.get(&format!("/runs/{run}")).await.body;
    assert!(page.contains(&format!("href=\"/conversations/{id}#reply\"")), "{page}");
    let page = visitor.get(&format!("/conversations/{id}")).await.body;
    let form = between(&page, "id=\"reply\"", "</form>");
    assert!(form.contains("selected>builder</option>"), "the agent that answered: {form}");
    assert!(form.contains("type=\"file\" name=\"file\""), "{form}");
    let agent = world.hub.account(&world.owner, "builder").await.unwrap().agent_id.to_string();
    let key = between(form, "name=\"key\" value=\"", "\"");
    let conversation = id.to_string();
    let fields = [
        ("agent", &*agent),
        ("text", "And the tests?"),
        ("conversation", &*conversation),
        ("back", "conversation"),
        ("key", key),
    ];
    for _ in 0..2 {
        let sent = visitor.post("/runs", &fields).await;
        assert_eq!(
            (sent.status, sent.header("location")),
            (StatusCode::SEE_OTHER, &*format!("/conversations/{id}#reply"))
        );
    }
    let all = runs(&world, id).await;
    let texts: Vec<_> = all.iter().map(|run| run.input.text_member("text").unwrap()).collect();
    assert_eq!(texts, ["And the tests?", "Name the modules"], "a form that is sent twice is one message");

    // Retrying is the next turn of the same conversation.
    let sent = visitor.post(&format!("/runs/{run}/again"), &[("back", "conversation")]).await;
    assert_eq!(sent.header("location"), format!("/conversations/{id}#reply"));
    assert_eq!(runs(&world, id).await.len(), 3);
    let form = visitor.get(&format!("/runs/new?from={run}&reply=true")).await.body;
    assert!(form.contains(&format!("name=\"conversation\" value=\"{id}\"")), "{form}");
    let list = visitor.get("/conversations").await.body;
    assert_eq!(list.matches("href=\"/conversations/cnv_").count(), 1, "{list}");
    assert!(list.contains(">Name the modules</a>"), "the first task is its title: {list}");
    assert!(visitor.get("/conversations?q=modules").await.body.contains(">Name the modules</a>"));
    assert!(visitor.get("/conversations?q=nothing").await.body.contains("No matching conversations"));
    // A refused message doesn't take the conversation away.
    let refused = visitor.post("/runs", &[("agent", "nobody"), ("text", "x"), ("conversation", &conversation)]).await;
    assert_eq!(refused.status, StatusCode::OK);
    assert!(refused.body.contains("role=\"alert\"") && refused.body.contains(">x</textarea>"), "{}", refused.body);
    assert_eq!(runs(&world, id).await.len(), 3);

    let viewer = world.signed_in(Role::Viewer).await.get(&format!("/conversations/{id}")).await.body;
    assert!(viewer.contains("lexer, parser") && !viewer.contains("id=\"reply\"") && !viewer.contains("/again\""));
}

#[tokio::test]
async fn a_conversation_goes_on_with_the_permissions_of_its_latest_turn() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Name the modules").await;
    let id = run.own_conversation().to_string();
    device.claim().await;
    device.complete(run, "lexer, parser").await;
    let visitor = world.signed_in(Role::Operator).await;
    let chosen = async || {
        let page = visitor.get(&format!("/conversations/{id}")).await.body;
        let modes = between(&page, "name=\"mode\"", "</select>").to_owned();
        assert_eq!(modes.matches("<option").count(), 5, "{modes}");
        between(&modes, " selected>", "<").to_owned()
    };
    assert_eq!(chosen().await, "Agent’s setting");
    let agent = world.hub.account(&world.owner, "builder").await.unwrap().agent_id.to_string();
    let reply = |mode| [("agent", &*agent), ("text", "Rename them"), ("conversation", &*id), ("mode", mode)];
    assert_eq!(visitor.post("/runs", &reply("ask")).await.status, StatusCode::SEE_OTHER);
    assert_eq!(chosen().await, "Agent’s setting", "the agent asks anyway");
    let approvals = ApprovalPolicy { mode: Some(PermissionMode::AcceptEdits), ..ApprovalPolicy::default() };
    let update = AccountRequest { approvals: Some(approvals), ..AccountRequest::default() };
    world.hub.update_account(&world.owner, "builder", update).await.unwrap();
    assert_eq!(chosen().await, "Ask for everything");
    // Someone else's agent isn't trusted more than its owner says, and can't do what it can't.
    let refused = visitor.post("/runs", &reply("accept_walled")).await;
    assert_eq!(refused.status, StatusCode::OK, "the text is kept");
    assert!(
        refused.body.contains("role=\"alert\"") && refused.body.contains(">Rename them</textarea>"),
        "{}",
        refused.body
    );
    assert_eq!(visitor.post("/runs", &reply("everything")).await.status, StatusCode::BAD_REQUEST);
    let refused = visitor.post("/runs", &reply("plan_first")).await.body;
    assert!(refused.contains("be made to plan first"), "{refused}");
    assert_eq!(runs(&world, run.own_conversation()).await.len(), 2);
}

/// Each conversation is listed once, also over several pages.
#[tokio::test]
async fn conversations_are_listed_once_newest_first() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let old = world.ask("builder", "the long one").await;
    for number in 0..70 {
        world.ask("builder", &format!("task {number}")).await;
    }
    let again = CreateRunRequest { conversation_id: Some(old.own_conversation()), ..CreateRunRequest::default() };
    world.ask_with(&world.owner, "builder", "more of it", again).await;
    let visitor = world.signed_in(Role::Viewer).await;
    let first = visitor.get("/conversations").await.body;
    let older = between(&first, "<a class=\"btn\" href=\"/conversations?", "\"").replace("&#38;", "&");
    let second = visitor.get(&format!("/conversations?{older}")).await.body;
    let mut seen: Vec<String> = Vec::new();
    for page in [&first, &second] {
        let links = page.split("href=\"/conversations/").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        seen.extend(links);
    }
    assert_eq!(seen[0], old.own_conversation().to_string());
    assert_eq!(seen.len(), 71, "{seen:?}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 71);
    assert!(first.contains(">the long one</a>"), "{first}");
}

#[tokio::test]
async fn an_agent_is_told_something_while_it_works() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Upgrade the parser").await;
    device.claim().await;
    let visitor = world.owner_signed_in().await;
    let id = world.hub.run(&world.owner, run).await.unwrap().conversation_id;
    let conversation = format!("/conversations/{id}");
    let now = format!("formaction=\"/runs/{run}/input\"");
    let page = visitor.get(&conversation).await.body;
    assert!(!page.contains(&now) && page.contains("Your message comes next."), "its agent takes no message: {page}");

    device.declares(&[TAKES_INPUT]).await;
    let page = visitor.get(&conversation).await.body;
    assert!(page.contains(&now) && page.contains("Tell it now"), "{page}");
    let agent = world.hub.run(&world.owner, run).await.unwrap().agent_id.to_string();
    let conversation_id = id.to_string();
    let said = |text: &'static str, key: &'static str| {
        let form = [("text", text), ("key", key), ("back", "conversation"), ("agent", &agent)];
        [form.as_slice(), &[("conversation", &conversation_id), ("unsolicited", "true")]].concat()
    };
    assert!(page.contains(&format!("{now} formenctype=\"application/x-www-form-urlencoded\" name=\"unsolicited\"")));
    let path = format!("/runs/{run}/input");
    let told = visitor.post(&path, &said("Use <winnow>", "k1")).await;
    assert_eq!((told.status, told.header("location")), (StatusCode::SEE_OTHER, conversation.as_str()));
    let page = visitor.get(&conversation).await.body;
    assert!(page.contains("While it works: ") && page.contains("Use &lt;winnow&gt;"), "{page}");
    assert_eq!(runs(&world, id).await.len(), 1, "no run of its own");

    // A question is answered on its card.
    device.wonder(run, "Which branch?").await;
    assert!(!visitor.get(&conversation).await.body.contains(&now));
    // Not by what was written before it was asked.
    visitor.post(&path, &said("Yes, and the tests", "k3")).await;
    assert!(world.hub.run(&world.owner, run).await.unwrap().waits_for.is_some());
    let answer = GiveInputRequest { text: Some("main".to_owned()), ..GiveInputRequest::default() };
    world.hub.give_input(&world.owner, run, answer).await.unwrap();

    // What comes too late is the next message, and nothing has to be typed again.
    device.complete(run, "Done.").await;
    let late = visitor.post(&path, &said("And the docs", "k2")).await;
    assert_eq!(late.header("location"), format!("{conversation}#reply"));
    let again = visitor.post(&path, &said("And the docs", "k2")).await;
    assert_eq!(again.header("location"), late.header("location"));
    let all = runs(&world, id).await;
    assert_eq!(all.len(), 2, "sent twice, it is still one run");
    assert_eq!(all[0].input.text_member("text").unwrap(), "And the docs");
    assert_eq!(all[0].agent_id.to_string(), agent);
}
