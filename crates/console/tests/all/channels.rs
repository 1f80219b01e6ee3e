//! Channels without scripts: the list, the page of one channel, and links to it.

use attache_protocol::wire::key::Role;
use attache_store::WriteContext;

use crate::world::{ConsoleWorld, asking};

#[tokio::test]
async fn channels_are_listed_filtered_and_shown_in_full() {
    let world = ConsoleWorld::new().await;
    let agent = world.agent("builder").await;
    world.agent("idle").await;
    let visitor = world.signed_in(Role::Viewer).await;
    assert!(visitor.get("/channels").await.body.contains("No channels yet"));
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let channel = device.open_channel(&world).await;
    let list = visitor.get("/channels").await.body;
    assert!(list.contains(&format!("href=\"/channels/{}\"", channel.id)) && list.contains("Connected"), "{list}");
    assert!(list.contains("1 connected on this page.") && list.contains("websocket, attache.envelope.v1"), "{list}");
    assert!(visitor.get("/channels?status=disconnected").await.body.contains("No matching channels"));
    assert!(visitor.get("/channels?agent=idle").await.body.contains("No matching channels"));
    assert!(visitor.get("/channels?agent=nobody").await.body.contains("No matching channels"));
    assert!(visitor.get("/channels?agent=builder&status=connected").await.body.contains("<tr id=\"chn_"));

    let page = visitor.get(&format!("/channels/{}", channel.id)).await.body;
    for shown in [
        &*channel.id.to_string(),
        "websocket",
        "remote_runtime",
        &format!("agent:{}", agent.agent_id),
        "attache.envelope.v1",
        "192.0.2.7",
        "<span class=\"tag\">permissions</span>",
        "search",
        "Looks things up",
        "&quot;os&quot;: &quot;linux&quot;",
        "<dt>Unacknowledged</dt><dd>0</dd>",
        "<span class=\"wrap\">Connected</span>",
    ] {
        assert!(page.contains(shown), "{shown} is missing in {page}");
    }
    let page = visitor.get("/agents/builder").await.body;
    assert!(page.contains(&format!("href=\"/channels/{}\"", channel.id)), "the agent leads to its channel");
    assert!(visitor.get("/agents/idle").await.body.contains("none (its device uses HTTP)"));

    let context = WriteContext::new(world.owner.tenant, "test", world.hub.now());
    world.store.close_channel(context, channel.id, "odd <b>\u{1b}reason").await.unwrap();
    let page = visitor.get(&format!("/channels/{}", channel.id)).await.body;
    assert!(page.contains("Disconnected") && page.contains("odd &lt;b&gt;<i class=\"odd\">ESC</i>reason"), "{page}");
}

#[tokio::test]
async fn the_events_of_a_channel_page_backwards() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let channel = device.open_channel(&world).await;
    for number in 0..120 {
        let context = WriteContext::new(world.owner.tenant, device.principal.actor(), world.hub.now());
        let message = attache_protocol::Json::of(&format!("message {number}"));
        world.store.channel_message(context, channel.id, message).await.unwrap();
    }
    let run = world.ask("builder", "go on").await;
    device.claim().await;
    let mut request = asking("Run", r#"{"command":"ls"}"#);
    request.request_id = Some("1".to_owned());
    let asked = world.hub.request_permission(&device.principal, run, request, Some(channel.id)).await.unwrap();
    let visitor = world.signed_in(Role::Viewer).await;
    let mut path = format!("/channels/{}", channel.id);
    let mut seen = Vec::new();
    loop {
        let page = visitor.get(&path).await.body;
        seen.extend(
            page.split("<li id=\"e").skip(1).map(|item| item.split('"').next().unwrap().parse::<i64>().unwrap()),
        );
        let Some((before, _)) = page.split_once("\" rel=\"next\"") else { break };
        path = before.rsplit('"').next().unwrap().to_owned();
    }
    let head = seen[0];
    assert!(head >= 121, "{head}");
    assert_eq!(seen, (1..=head).rev().collect::<Vec<_>>());
    // A request over a channel links to it and can be limited to it.
    let operator = world.signed_in(Role::Operator).await;
    let page = operator.get(&format!("/approvals/{}", asked.permission_request_id)).await.body;
    assert!(
        page.contains(&format!("href=\"/channels/{}\"", channel.id)) && page.contains("this_channel_only"),
        "{page}"
    );
}
