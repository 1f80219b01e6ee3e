//! Many watchers of one run share one reader, and each sees every event once and in order.

use attache_hub::{Principal, stream::RunFollow};
use attache_protocol::{RunId, wire::event::Event};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    work::ClaimedRunFixture,
    world::{Engine, PATIENCE, World},
};

const WATCHERS: usize = 1000;

async fn metric(world: &World, name: &str) -> usize {
    let text = world.owner.get("/metrics").await.body;
    let text = std::str::from_utf8(&text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
    line.parse().unwrap()
}

async fn follow(work: &ClaimedRunFixture, after: i64) -> RunFollow {
    let key = work.world.owner.header("authorization").trim_start_matches("Bearer ").to_owned();
    let by: Principal = work.world.hub.authenticate_key(&key).await.unwrap();
    let run: RunId = work.run.parse().unwrap();
    work.world.hub.follow_run(&by, run, Some(after)).await.unwrap()
}

async fn next(watcher: &mut RunFollow) -> Event {
    tokio::time::timeout(PATIENCE, watcher.next()).await.expect("an event in time").expect("an event")
}

async fn say(work: &ClaimedRunFixture, text: &str) {
    work.device.client.post(&work.path("/progress"), json!({"chunk": text})).await.expect(200);
}

/// Reads everything to the end of the stream.
async fn rest(mut watcher: RunFollow) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = tokio::time::timeout(PATIENCE, watcher.next()).await.expect("an event in time") {
        events.push(event);
    }
    events
}

#[tokio::test]
async fn a_batch_costs_one_read_however_many_watch() {
    let (world, store) = World::counted(|options| options.max_streams = WATCHERS).await;
    let work = ClaimedRunFixture::within(world).await;
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        let mut watcher = follow(&work, 0).await;
        for seq in 1..=2 {
            assert_eq!(next(&mut watcher).await.seq, seq);
        }
        watchers.push(watcher);
    }
    assert_eq!(metric(&work.world, "attache_run_feeds").await, 1);
    let mut waiting = JoinSet::new();
    for watcher in watchers {
        waiting.spawn(rest(watcher));
    }
    let counted = || store.calls("run_events") + store.calls("run") + store.calls("log");
    let before = counted();
    for _ in 0..20 {
        say(&work, "x").await;
    }
    work.complete().await.expect(200);
    let mut seen = Vec::new();
    while let Some(events) = waiting.join_next().await {
        seen.push(events.unwrap());
    }
    let reads = counted() - before;
    // Every batch is one read, plus one that finds nothing more.
    assert!(reads <= 2 * 21 + 2, "{reads} readings for 21 batches and {WATCHERS} watchers");
    let page = work.world.owner.get(&work.path("/events?after=2&limit=200")).await;
    let page: attache_protocol::wire::event::EventPage = serde_json::from_slice(&page.body).unwrap();
    assert_eq!(page.events.len(), 21);
    assert_eq!(seen.len(), WATCHERS);
    assert!(seen.iter().all(|events| *events == page.events), "everybody sees the same");
    assert_eq!(metric(&work.world, "attache_run_feeds").await, 0);
}

#[tokio::test]
async fn a_watcher_that_falls_behind_reads_on_its_own_and_misses_nothing() {
    let work = ClaimedRunFixture::begin(Engine::Model).await;
    let (mut slow, mut quick) = (follow(&work, 1).await, follow(&work, 2).await);
    assert_eq!(next(&mut slow).await.kind, "task.claimed");
    say(&work, "first").await;
    assert_eq!((next(&mut slow).await.seq, next(&mut quick).await.seq), (3, 3));
    for index in 0..200 {
        say(&work, &index.to_string()).await;
        assert_eq!(next(&mut quick).await.seq, 4 + index);
    }
    let late = follow(&work, 100).await;
    work.complete().await.expect(200);
    let seqs = async |watcher| rest(watcher).await.into_iter().map(|event| event.seq).collect::<Vec<_>>();
    assert_eq!(seqs(slow).await, (4..=204).collect::<Vec<_>>());
    assert_eq!(seqs(quick).await, [204]);
    assert_eq!(seqs(late).await, (101..=204).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_feed_ends_with_its_last_watcher() {
    let work = ClaimedRunFixture::begin(Engine::Model).await;
    let (mut one, mut two) = (follow(&work, 0).await, follow(&work, 0).await);
    say(&work, "x").await;
    for watcher in [&mut one, &mut two] {
        for seq in 1..=3 {
            assert_eq!(next(watcher).await.seq, seq);
        }
    }
    drop(one);
    assert_eq!(metric(&work.world, "attache_run_feeds").await, 1);
    say(&work, "y").await;
    assert_eq!(next(&mut two).await.seq, 4);
    drop(two);
    for _ in 0..500 {
        if metric(&work.world, "attache_run_feeds").await == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the feed goes on without watchers");
}
