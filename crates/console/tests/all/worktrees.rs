//! Worktrees of runs on their pages: what their owner sees and decides, without scripts and in a browser.

use std::time::Duration;

use attache_protocol::{
    Json, RunId,
    wire::{
        account::{AccountRequest, Callers},
        key::Role,
        run::{CreateRunRequest, ProgressRequest},
        runtime::{HeartbeatRequest, WORKTREE_DECISIONS, WORKTREES},
        worktree::{SettleWorktreeRequest, WorktreeAction, WorktreeOutcome, WorktreeResult},
    },
};
use axum::http::StatusCode;

use crate::{
    browser::ListeningConsole,
    webdriver::WebdriverBrowser,
    world::{ConsoleDevice, ConsoleWorld, TestVisitor},
};

/// Ada's run with a worktree, which has ended and changed something.
struct OwnWorktree {
    ada: TestVisitor,
    device: ConsoleDevice,
    run: RunId,
}

// === impl OwnWorktree ===

impl OwnWorktree {
    async fn start(world: &ConsoleWorld) -> Self {
        let (_, ada) = world.person("ada", Role::Operator).await;
        let by_ada = ada.principal(world).await;
        let callers = Some(Callers::Everyone);
        let account = AccountRequest { name: Some("adas".to_owned()), callers, ..AccountRequest::default() };
        world.hub.create_account(&by_ada, account).await.unwrap();
        let code = world.hub.create_pairing_code(&by_ada, "adas").await.unwrap().pairing_code;
        let device = world.join(&code, "laptop", "claude_cli").await;
        device.declares(&[WORKTREES, WORKTREE_DECISIONS]).await;
        let own = CreateRunRequest { worktree: true, ..CreateRunRequest::default() };
        let run = world.ask_with(&by_ada, "adas", "Fix it", own).await;
        device.claim().await;
        let changes = r#"{"artifact_id":"worktree-changes","name":"changes.diff","parts":[{"text":"+x"}]}"#;
        let artifact = Some(Json::from_text(changes).unwrap());
        device.report(run, ProgressRequest { artifact, ..ProgressRequest::default() }).await;
        device.complete(run, "done").await;
        Self { ada, device, run }
    }

    async fn page(&self) -> String {
        self.ada.get(&format!("/runs/{}", self.run)).await.body
    }

    /// Sends the form, with a device that answers at once if it has an outcome.
    async fn decide(&self, world: &ConsoleWorld, fields: &[(&str, &str)], outcome: WorktreeOutcome) -> String {
        let answering = answer(world, &self.device, outcome);
        let path = format!("/runs/{}/worktree", self.run);
        let (answer, _) = tokio::join!(self.ada.post(&path, fields), answering);
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
        assert_eq!(answer.header("location"), format!("/runs/{}#run-worktree", self.run));
        self.page().await
    }
}

/// Waits for a decision and answers it. Returns its action and message.
async fn answer(
    world: &ConsoleWorld,
    device: &ConsoleDevice,
    outcome: WorktreeOutcome,
) -> (WorktreeAction, Option<String>) {
    loop {
        let pending = world.hub.pending_worktree_decisions(&device.principal).await.unwrap().worktree_decisions;
        let Some(told) = pending.into_iter().next() else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let request = SettleWorktreeRequest { number: told.number, outcome };
        world.hub.settle_worktree(&device.principal, told.task_run_id, request).await.unwrap();
        return (told.action, told.message);
    }
}

fn outcome(result: WorktreeResult, files: &[&str]) -> WorktreeOutcome {
    WorktreeOutcome {
        folder: Some("/home/ada/<site>".to_owned()),
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        commit: Some("0123456789abcdef".to_owned()),
        ..WorktreeOutcome::of(result)
    }
}

#[tokio::test]
async fn its_owner_decides_on_the_page_of_the_run() {
    let world = ConsoleWorld::new().await;
    let own = OwnWorktree::start(&world).await;
    let page = own.page().await;
    assert!(page.contains("The run’s changes are in a worktree on the agent’s device."), "{page}");
    for button in ["value=\"apply\"", "value=\"commit\"", "value=\"discard\""] {
        assert!(page.contains(button), "{button}: {page}");
    }

    let conflict = outcome(WorktreeResult::Conflict, &["a", "<b>"]);
    let page = own.decide(&world, &[("action", "apply")], conflict).await;
    assert!(page.contains("Nothing was applied. These files were also changed in <code>/home/ada/&lt;site&gt;</code>"));
    assert!(
        page.contains("&#60;b&#62;</code>") && page.contains(&format!("<code>git merge attache/{}</code>", own.run))
    );
    assert!(page.contains("value=\"apply\""), "it can be tried again");

    let page =
        own.decide(&world, &[("action", "commit"), ("message", "mine")], outcome(WorktreeResult::Done, &[])).await;
    assert!(page.contains("Committed as <code>0123456789ab</code>."), "{page}");
    let page = own.decide(&world, &[("action", "apply")], outcome(WorktreeResult::Done, &["a"])).await;
    assert!(page.contains("Applied to <code>/home/ada/&lt;site&gt;</code>, uncommitted:"), "{page}");
    let page = own.decide(&world, &[("action", "discard")], outcome(WorktreeResult::Done, &[])).await;
    assert!(page.contains("Discarded, with its branch.") && !page.contains("worktree-decide"), "{page}");
}

#[tokio::test]
async fn nobody_else_is_offered_a_decision() {
    let world = ConsoleWorld::new().await;
    let own = OwnWorktree::start(&world).await;
    let (_, eve) = world.person("eve", Role::Admin).await;
    for visitor in [&eve, &world.owner_signed_in().await, &world.signed_in(Role::Viewer).await] {
        let page = visitor.get(&format!("/runs/{}", own.run)).await.body;
        assert!(!page.contains("worktree-decide") && !page.contains("The run’s changes are in"), "{page}");
        let refused = visitor.post(&format!("/runs/{}/worktree", own.run), &[("action", "discard")]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }
    // Without changes there is nothing to decide.
    let by_ada = own.ada.principal(&world).await;
    let plain = CreateRunRequest { worktree: true, ..CreateRunRequest::default() };
    let run = world.ask_with(&by_ada, "adas", "Look", plain).await;
    own.device.claim().await;
    own.device.complete(run, "nothing").await;
    assert!(!own.ada.get(&format!("/runs/{run}")).await.body.contains("worktree-decide"));
}

#[tokio::test]
async fn a_device_that_is_offline_or_older_is_not_asked() {
    let world = ConsoleWorld::paused().await;
    let mut own = OwnWorktree::start(&world).await;
    own.device.declares(&[WORKTREES]).await;
    let page = own.page().await;
    assert!(page.contains("update Attaché on the device") && !page.contains("worktree-decide"), "{page}");
    own.device.declares(&[WORKTREES, WORKTREE_DECISIONS]).await;
    world.hub.env().advance(Duration::from_secs(300));
    world.store.sweep(Duration::from_secs(60), world.hub.now()).await.unwrap();
    let page = own.page().await;
    assert!(page.contains("The device is offline.") && !page.contains("worktree-decide"), "{page}");
    let path = format!("/runs/{}/worktree", own.run);
    let refused = own.ada.post(&path, &[("action", "discard")]).await;
    assert_eq!(refused.header("location"), format!("/runs/{}?said=worktree_offline#run-worktree", own.run));
    own.ada.set("language", "zh-CN");
    let page = own.page().await;
    assert!(page.contains("工作树") && page.contains("设备已离线。"), "{page}");
    world.hub.heartbeat(&own.device.principal, HeartbeatRequest::default()).await.unwrap();
    let page = own.page().await;
    assert!(page.contains("应用更改") && page.contains("丢弃"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_the_device_did_without_a_reload() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    let world = &site.world;
    let account = world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    device.declares(&[WORKTREES, WORKTREE_DECISIONS]).await;
    let own = CreateRunRequest { worktree: true, ..CreateRunRequest::default() };
    let run = world.ask_with(&world.owner, &account.name, "Upgrade the parser", own).await;
    device.claim().await;
    site.sign_in(&browser).await;
    browser.go(&site.at(&format!("/runs/{run}"))).await;
    assert_eq!(browser.run("return document.getElementById('worktree-decide')").await, serde_json::Value::Null);
    let changes = r#"{"artifact_id":"worktree-changes","name":"changes.diff","parts":[{"text":"+x"}]}"#;
    let artifact = Some(Json::from_text(changes).unwrap());
    device.report(run, ProgressRequest { artifact, ..ProgressRequest::default() }).await;
    device.complete(run, "done").await;
    browser.wait("document.getElementById('worktree-decide') !== null").await;

    // Discarding asks first. The device takes longer than the form waits.
    browser.click("#worktree-discard > summary").await;
    browser.wait("document.querySelector('#worktree-discard .drop').checkVisibility()").await;
    browser.screenshot(&site.shots, "run-worktree").await;
    browser.click("#worktree-discard .drop button").await;
    browser
        .wait("document.querySelector('#run-worktree [role=status]')?.textContent.includes('Waiting for the device')")
        .await;
    assert_eq!(browser.run("return document.getElementById('worktree-decide')").await, serde_json::Value::Null);
    browser.run("window.mark = 'the same page'").await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    let told = answer(world, &device, outcome(WorktreeResult::Done, &[])).await;
    assert_eq!(told, (WorktreeAction::Discard, None));
    browser.wait("document.querySelector('#run-worktree [role=status]')?.textContent.includes('Discarded, with its branch.')").await;
    assert_eq!(browser.run("return window.mark").await, "the same page");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    site.close().await;
}
