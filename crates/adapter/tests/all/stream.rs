//! Events while a task runs, joining a run, and repeating a request.

use attache_adapter::{Driver, DriverRun};
use attache_protocol::wire::adapter::{HostInfo, TaskOutput, TaskReply};
use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::{Value, json};

use crate::world::{AdapterWorld, ReceivedEvent, done, task};

/// A script that prints `first`, waits for the file `go`, and prints `last`.
const HELD: &str = "echo first; echo x >> starts; while [ ! -e go ]; do sleep 0.01; done; echo last";

fn texts(events: &[ReceivedEvent], wanted: &str, member: &str) -> String {
    let texts = events.iter().filter(|(_, name, _)| name == wanted).map(|(_, _, data)| data[member].as_str().unwrap());
    texts.collect()
}

fn starts(world: &AdapterWorld) -> usize {
    std::fs::read_to_string(world.cwd.join("starts")).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn output_streams_and_ends_with_the_result() {
    let world = AdapterWorld::shell().await;
    let script = "held() { while [ ! -e $1 ]; do sleep 0.01; done; }
                  echo out; held one; echo aside >&2; held two; printf more";
    let mut events = world.stream(&task(script)).await;
    let go = |name: &str| std::fs::write(world.cwd.join(name), "").unwrap();
    assert_eq!(events.next().await, Some((1, "chunk".to_owned(), json!({"text": "out\n"}))));
    go("one");
    assert_eq!(events.next().await, Some((2, "log".to_owned(), json!({"level": "info", "message": "aside"}))));
    go("two");
    let rest = [(3, "chunk".to_owned(), json!({"text": "more"})), (4, "result".to_owned(), done("out\nmore"))];
    assert_eq!(events.rest().await, rest);

    let events = world.stream(&task("echo no >&2; exit 2")).await.rest().await;
    let (_, name, data) = events.last().unwrap();
    assert_eq!((name.as_str(), &data["error"]["code"]), ("result", &json!("task_failed")));
    world.stop().await;
}

#[tokio::test]
async fn a_chunk_is_not_held_back_until_the_end() {
    let world = AdapterWorld::shell().await;
    let task = task("printf 'no line end'; while [ ! -e go ]; do sleep 0.01; done");
    let mut events = world.stream(&task).await;
    assert_eq!(events.next().await, Some((1, "chunk".to_owned(), json!({"text": "no line end"}))));
    std::fs::write(world.cwd.join("go"), "").unwrap();
    assert_eq!(events.rest().await, [(2, "result".to_owned(), done("no line end"))]);
    world.stop().await;
}

#[tokio::test]
async fn small_writes_are_coalesced_and_large_ones_cut() {
    let world = AdapterWorld::shell().await;
    let small = world.stream(&task("i=0; while [ $i -lt 500 ]; do echo $i; i=$((i+1)); done")).await.rest().await;
    let expected: String = (0..500).map(|number| format!("{number}\n")).collect();
    assert_eq!(texts(&small, "chunk", "text"), expected);
    assert!(small.len() < 50, "{} events for 500 writes", small.len());

    let large = world.stream(&task("head -c 100000 /dev/zero | tr '\\0' x")).await.rest().await;
    assert_eq!(texts(&large, "chunk", "text").len(), 100_000);
    let longest = large.iter().filter_map(|(_, _, data)| data["text"].as_str()).map(str::len).max();
    assert_eq!(longest, Some(4096));
    world.stop().await;
}

#[tokio::test]
async fn a_character_is_never_split() {
    let world = AdapterWorld::shell().await;
    let split = world.stream(&task("printf 'a\\303'; sleep 0.3; printf '\\251b'")).await.rest().await;
    assert_eq!(texts(&split, "chunk", "text"), "aéb");
    let many = "i=0; while [ $i -lt 3000 ]; do printf 'x€é😀'; i=$((i+1)); done";
    let events = world.stream(&task(many)).await.rest().await;
    assert_eq!(texts(&events, "chunk", "text"), "x€é😀".repeat(3000));
    world.stop().await;
}

#[tokio::test]
async fn the_same_run_is_joined_and_another_is_refused() {
    let world = AdapterWorld::shell().await;
    let held = task(HELD);
    let mut first = world.stream(&held).await;
    assert_eq!(first.next().await, Some((1, "chunk".to_owned(), json!({"text": "first\n"}))));
    assert_eq!(world.running().await, held["task_run_id"]);

    let mut second = world.stream(&held).await;
    assert_eq!(second.next().await, Some((1, "chunk".to_owned(), json!({"text": "first\n"}))));
    let refused = world.send(&task("echo other")).await;
    let expected = json!({"error": {
        "code": "busy",
        "message": format!("this adapter runs one task at a time and is busy with {}", held["task_run_id"].as_str().unwrap()),
        "hint": "Retry when that run has ended, or cancel it.",
    }});
    assert_eq!((refused.status, serde_json::from_str::<Value>(&refused.body).unwrap()), (409, expected));

    let (plain, rest, also) = tokio::join!(
        world.run(&held),
        async {
            std::fs::write(world.cwd.join("go"), "").unwrap();
            first.rest().await
        },
        second.rest()
    );
    assert_eq!(plain, done("first\nlast\n"));
    assert_eq!(rest, [(2, "chunk".to_owned(), json!({"text": "last\n"})), (3, "result".to_owned(), plain)]);
    assert_eq!(rest, also);
    assert_eq!(starts(&world), 1);
    assert_eq!(world.running().await, Value::Null);
    world.stop().await;
}

#[tokio::test]
async fn a_run_continues_when_its_client_disconnects() {
    let world = AdapterWorld::shell().await;
    let held = task(HELD);
    let mut first = world.stream(&held).await;
    first.next().await.unwrap();
    drop(first);
    assert_eq!(world.running().await, held["task_run_id"]);
    std::fs::write(world.cwd.join("go"), "").unwrap();
    assert_eq!(world.run(&held).await, done("first\nlast\n"));
    assert_eq!(starts(&world), 1);
    world.stop().await;
}

#[tokio::test]
async fn the_last_run_is_answered_from_memory() {
    let world = AdapterWorld::shell().await;
    std::fs::write(world.cwd.join("go"), "").unwrap();
    let (one, two) = (task(HELD), task("echo two"));
    let events = world.stream(&one).await.rest().await;
    assert_eq!(world.stream(&one).await.rest().await, events);
    assert_eq!(world.run(&one).await, done("first\nlast\n"));
    assert_eq!(starts(&world), 1);

    let last = events.len() as u64;
    let after = world.stream_after(&one, &format!("last-event-id: {}\r\n", last - 1)).await.rest().await;
    assert_eq!(after, events[events.len() - 1..]);
    let nothing = world.stream_after(&one, &format!("last-event-id: {last}\r\n")).await.rest().await;
    assert_eq!(nothing, []);
    let unknown = world.stream_after(&one, &format!("last-event-id: {}\r\n", last + 1)).await.rest().await;
    assert_eq!(unknown, events, "a cursor of an earlier life starts anew");

    world.run(&two).await;
    world.run(&one).await;
    assert_eq!(starts(&world), 2, "only the last run is remembered");
    world.stop().await;
}

#[tokio::test]
async fn a_failure_is_remembered_too() {
    let world = AdapterWorld::shell().await;
    let broken = task("echo x >> starts; exit 9");
    assert_eq!(world.run(&broken).await, world.run(&broken).await);
    assert_eq!(starts(&world), 1);
    world.stop().await;
}

#[tokio::test]
async fn the_stream_matches_the_kept_output() {
    let world = AdapterWorld::shell().await;
    let cut = "the output is too long to show here; it is handed over as a file if the task completes";
    let cut_errors = "the standard error is too long; the rest is not shown";
    let warnings = |events: &[ReceivedEvent]| -> Vec<Value> {
        events
            .iter()
            .filter(|(_, _, data)| data["level"] == "warning")
            .map(|(_, _, data)| data["message"].clone())
            .collect()
    };
    for script in ["yes | head -c 5000000", "head -c 5000000 /dev/zero"] {
        let events = world.stream(&task(script)).await.rest().await;
        let answer = events.last().unwrap().2["output"]["text"].as_str().unwrap().to_owned();
        let kept = texts(&events, "chunk", "text");
        assert!(answer == kept, "{} bytes of {script}", answer.len());
        assert_eq!(events.last().unwrap().2["output"]["full_output"]["bytes"], 5_000_000);
        assert_eq!(warnings(&events), [cut], "{script}");
    }
    // A failed task hands over no file, and says what is missing.
    let events = world.stream(&task("yes | head -c 5000000; exit 3")).await.rest().await;
    let kept = texts(&events, "chunk", "text").len();
    let lost =
        format!("the output was truncated to {kept} of 5000000 bytes; the rest is only kept if the task completes");
    assert_eq!(warnings(&events), [json!(cut), json!(lost)]);
    let events = world.stream(&task("yes | head -c 5000000 >&2; echo fine")).await.rest().await;
    assert_eq!(warnings(&events), [cut_errors]);
    let shown = texts(&events, "log", "message").len();
    assert!((1_000_000..=1_048_576 + cut_errors.len()).contains(&shown), "{shown} bytes");
    assert_eq!(events.last().unwrap().2, done("fine\n"));
    world.stop().await;
}

/// An agent that prints more than is kept for late readers.
#[derive(Debug)]
struct FloodingDriver;

impl Driver for FloodingDriver {
    fn host(&self) -> HostInfo {
        HostInfo { kind: "flood".to_owned(), version: None }
    }

    fn run(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        for _ in 0..3000 {
            job.events.chunk("x".repeat(4096));
        }
        let output = TaskOutput::default();
        std::future::ready(TaskReply::done(&output)).boxed()
    }
}

#[tokio::test]
async fn the_log_for_late_readers_is_bounded() {
    let world = AdapterWorld::start(FloodingDriver, |_| {}).await;
    let flood = task("flood");
    world.run(&flood).await;
    let events = world.stream(&flood).await.rest().await;
    let (seq, name, data) = &events[0];
    assert_eq!(name, "log");
    let expected =
        format!("events 1 to {seq} of this run were dropped: only 8388608 bytes are kept for late or slow readers");
    assert_eq!(data, &json!({"level": "warning", "message": expected}));
    let seqs: Vec<u64> = events.iter().map(|(seq, _, _)| *seq).collect();
    assert_eq!(seqs, (*seq..*seq + events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap().1, "result");
    let kept = texts(&events, "chunk", "text").len();
    assert!((6_000_000..8_388_608).contains(&kept), "{kept} bytes");
    world.stop().await;
}

#[tokio::test]
async fn a_stalled_reader_blocks_nothing() {
    let world = AdapterWorld::start(FloodingDriver, |_| {}).await;
    let flood = task("flood");
    let unread = world.stream(&flood).await;
    let reply = world.run(&flood).await;
    assert_eq!(reply["success"], true);
    let events = unread.rest().await;
    assert_eq!(events.last().unwrap().1, "result");
    world.stop().await;
}
