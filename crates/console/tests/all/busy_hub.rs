//! A hub on which everything happened once, in Chinese: something to show on every page.

use attache_client::egress::{EgressGuard, EgressPolicy};
use attache_hub::control::{DecisionOrigin, DeliveryQuery};
use attache_protocol::{
    DelegationId, Json, Secret,
    rules::{delegation::DelegationStatus, permission::DecisionScope},
    wire::{
        key::Role,
        notification::{CreateNotificationTarget, NotificationAddress, NotificationChoices},
        permission::{CreatePermissionRequest, DecisionRequest},
        run::{CancelRequest, CreateRunRequest, ProgressRequest},
        usage::SetQuotaRequest,
    },
};

use crate::{
    delegations::projection,
    world::{ConsoleWorld, asking},
};

/// The hub may deliver webhooks to this machine.
pub(crate) fn options(options: &mut attache_hub::Options) {
    options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
}

/// Makes everything happen once. Returns all pages.
pub(crate) async fn furnish(world: &ConsoleWorld) -> Vec<String> {
    let owner = &world.owner;
    let agent = world.agent("builder").await;
    world.agent("scribe").await;
    let described = attache_protocol::wire::account::AccountRequest {
        description: Some("写代码并测试".to_owned()),
        ..Default::default()
    };
    for name in ["builder", "scribe"] {
        world.hub.update_account(owner, name, described.clone()).await.unwrap();
    }
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let channel = device.open_channel(world).await;
    world.person("alice", Role::Operator).await;
    let quota = SetQuotaRequest {
        user: None,
        agent: Some("builder".to_owned()),
        calls: Some(9),
        tokens: Some(50_000),
        cost_usd: None,
    };
    world.hub.set_quota(owner, quota).await.unwrap();

    let request =
        CreateRunRequest { callback_url: Some("http://127.0.0.1:9/hook".to_owned()), ..CreateRunRequest::default() };
    let done = world.ask_with(owner, "builder", "升级解析器", request).await;
    device.claim().await;
    device.say(done, "先读语法。").await;
    for progress in [
        ProgressRequest { thought: Some(Json::of("想一想")), ..ProgressRequest::default() },
        ProgressRequest {
            tool_call: Some(
                Json::from_text(r#"{"name":"Run","status":"completed","input":{"command":"ls"}}"#).unwrap(),
            ),
            ..ProgressRequest::default()
        },
    ] {
        device.report(done, progress).await;
    }
    let low = || CreatePermissionRequest {
        reason: Some("测试需要".to_owned()),
        ..asking("Run", r#"{"command":"cargo test"}"#)
    };
    for (approved, scope) in [(true, DecisionScope::Agent), (false, DecisionScope::Once)] {
        let mut request = low();
        request.input = Json::from_text(format!(r#"{{"command":"ls {approved}"}}"#)).unwrap();
        let asked = device.ask(done, request).await;
        let decision = DecisionRequest {
            approved,
            scope,
            tool_pattern: None,
            until: None,
            this_channel_only: false,
            comment: Some("可以".to_owned()),
        };
        let place = DecisionOrigin { via: "console", from: None };
        world.hub.decide(owner, asked.permission_request_id, decision, place).await.unwrap();
    }
    device.complete_for(done, "完成。", Some(r#"{"tokens":12000,"cost_usd":0.5}"#)).await;

    let failed = world.ask("builder", "再试一次").await;
    device.claim().await;
    device.fail(failed, "磁盘已满", "task_failed").await;
    let cancelled = world.ask("scribe", "不用了").await;
    world.hub.cancel_run(owner, cancelled, CancelRequest::default()).await.unwrap();
    let waiting = world.ask("builder", "改一下文件").await;
    device.claim().await;
    let edit = r#"{"file_path":"a.rs","old_string":"一","new_string":"二"}"#;
    let asked = device.ask(waiting, CreatePermissionRequest { tool: "Edit".to_owned(), ..low() }).await;
    let edited = CreatePermissionRequest { input: Json::from_text(edit).unwrap(), risk: None, ..low() };
    device.ask(waiting, CreatePermissionRequest { tool: "Edit".to_owned(), ..edited }).await;
    let queued = world.ask("scribe", "排队").await;
    let busy = world.ask("builder", "下一个").await;
    let delegation = DelegationId::from_uuid(world.hub.env().uuid());
    let published = projection(world, DelegationStatus::Running);
    world.hub.publish_delegation(owner, delegation, published).await.unwrap();
    let webhook_url = Secret::new("http://127.0.0.1:9/hook".to_owned());
    let chat = CreateNotificationTarget {
        name: "值班群".to_owned(),
        address: NotificationAddress::Slack { webhook_url },
        choices: NotificationChoices::default(),
    };
    world.hub.create_notification_target(owner, chat).await.unwrap();
    let deliveries = world.hub.deliveries(owner, DeliveryQuery::default()).await.unwrap().deliveries;

    let mut paths: Vec<String> = [
        "/runs",
        "/runs?status=running&agent=builder&since=7d&caller=alice&q=x",
        "/runs/new",
        "/agents",
        "/agents/builder",
        "/agents/scribe",
        "/pair",
        "/nav?at=agents",
        "/inbox",
        "/conversations",
        "/conversations?q=x",
        "/channels",
        "/channels?status=disconnected",
        "/audit?type=task.failed",
        "/settings",
        "/more",
        "/people",
        "/people/alice",
        "/sessions",
        "/notifications",
        "/notifications?said=notify_on",
        "/offline",
        "/rules",
        "/usage",
        "/usage?show=cost&days=90&by=user",
        "/usage?show=tokens&days=7",
        "/deliveries",
        "/deliveries?state=failed",
        "/delegations",
        "/nowhere",
        "/runs/run_x",
        "/settings?said=saved",
        "/runs?said=rerun",
    ]
    .map(str::to_owned)
    .into();
    for run in [done, failed, cancelled, waiting, queued, busy] {
        paths.push(format!("/runs/{run}"));
        paths.push(format!("/conversations/{}", run.own_conversation()));
    }
    paths.push(format!("/runs/new?from={done}"));
    paths.push(format!("/runs/rows?ids={waiting},{queued}"));
    paths.push(format!("/runs/{waiting}/part"));
    paths.push(format!("/runs/{done}/log?before=99"));
    paths.push(format!("/runs/{done}/find?q=x"));
    paths.push("/palette".to_owned());
    paths.push(format!("/palette?q={done}"));
    paths.push("/runs?status=failed&cost=0.5".to_owned());
    paths.push(format!("/approvals/{}", asked.permission_request_id));
    paths.push(format!("/channels/{}", channel.id));
    paths.push(format!("/agents/{}", agent.agent_id));
    paths.push(format!("/delegations/{delegation}"));
    paths.push(format!("/deliveries/{}", deliveries[0].delivery_id));
    paths
}
