//! Frames from a corpus, unchanged and mutated from a seed: no panic, and always a reply or a documented silence (a
//! notification, a chunk, a response, or a question that is answered later).

use std::path::Path;

use attache_protocol::env::Env;
use serde_json::json;

use super::peer::{TestPeer, engine, run, worker};
use crate::world::World;

const ROUNDS: usize = 1500;

/// Random numbers that repeat for the same seed.
struct Dice(Env);

impl Dice {
    fn below(&self, limit: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        (u64::from_le_bytes(bytes) % limit.max(1) as u64) as usize
    }
}

fn corpus() -> Vec<(String, String)> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/channel/corpus"));
    let mut frames: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap()))
        .collect();
    frames.sort();
    assert!(frames.len() >= 25, "the corpus is here");
    frames
}

/// Whether the hub must reply to a frame it may not understand.
fn is_answered_at_once(text: &str) -> bool {
    let Ok(frame) = serde_json::from_str::<serde_json::Value>(text) else { return true };
    let kind = frame["header"]["type"].as_str().unwrap_or("request");
    let action = frame["payload"]["action"].as_str().unwrap_or_default();
    kind == "request" && !["require_approval", "require_input", "call_tool"].contains(&action)
}

fn mutate(dice: &Dice, text: &str, others: &[(String, String)]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len());
        match dice.below(8) {
            0 => {
                bytes.truncate(at);
            }
            1 => {
                let to = at + dice.below(bytes.len() - at + 1);
                bytes.drain(at..to);
            }
            2 => {
                let piece = [
                    "null",
                    "{}",
                    "[]",
                    "-1",
                    "1e999",
                    "\"\"",
                    "\\u0000",
                    "true",
                    "9223372036854775808",
                    "\"\\ud800\"",
                ];
                bytes.splice(at..at, piece[dice.below(piece.len())].bytes());
            }
            3 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = b"{}[]\",:0a\\ \n"[dice.below(12)];
                }
            }
            4 => {
                let other = others[dice.below(others.len())].1.as_bytes();
                let from = dice.below(other.len());
                bytes.splice(at..at, other[from..].iter().copied());
            }
            5 => {
                let again = bytes[at..].to_vec();
                bytes.extend(again);
            }
            6 => {
                bytes.splice(at..at, "[".repeat(dice.below(200)).bytes());
            }
            _ => {
                bytes.splice(at..at, std::iter::repeat_n(b'x', dice.below(5000)));
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn still_answers(peer: &mut TestPeer, what: &str) {
    // A name that no mutation can have used.
    let frame = peer.frame("request", json!({"action": "ack", "seq": 0}));
    peer.send(&frame).await;
    loop {
        let told = peer.next().await;
        if told["header"]["parent_id"] == frame["header"]["msg_id"] {
            assert_eq!(told["payload"]["ok"], true, "after {what}");
            return;
        }
    }
}

#[tokio::test]
async fn the_corpus_is_answered_frame_by_frame() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    for (name, text) in corpus() {
        let text = text.replace("run_00000000000000000000000000000000", &id);
        let owed = is_answered_at_once(&text);
        peer.send_text(text.clone()).await;
        if owed {
            let answer = peer.find(|frame| frame["header"]["type"] == "response").await;
            assert!(answer["payload"]["ok"].is_boolean(), "{name}: {answer}");
        }
        still_answers(&mut peer, &name).await;
    }
}

#[tokio::test]
async fn mutated_frames_never_break_a_worker() {
    let world = World::start().await;
    world.agent("builder").await;
    let (peer, _) = worker(&world, "builder").await;
    mutate_at(world, peer, 0x5eed).await;
}

#[tokio::test]
async fn mutated_frames_never_break_an_engine() {
    let world = World::start().await;
    world.agent("builder").await;
    let (peer, _) = engine(&world, json!([{"name": "lookup", "input_schema": {"type": "object"}}])).await;
    mutate_at(world, peer, 0xfeed).await;
}

#[tokio::test]
async fn mutated_posts_are_always_answered() {
    let world = World::start().await;
    world.agent("builder").await;
    let (dice, corpus) = (Dice(Env::seeded(0xb0d1)), corpus());
    let client = world.owner.with("accept", "application/json").with("content-type", "application/json");
    for _ in 0..ROUNDS / 5 {
        let (name, text) = &corpus[dice.below(corpus.len())];
        let text = mutate(&dice, text, &corpus);
        let reply = client.call(hyper::Method::POST, "/api/envelope", text.clone()).await;
        assert!((200..500).contains(&reply.status), "{} from {name}: {text:.400}", reply.status);
    }
}

async fn mutate_at(world: World, mut peer: TestPeer, seed: u64) {
    let dice = Dice(Env::seeded(seed));
    let corpus = corpus();
    for round in 0..ROUNDS {
        let (name, text) = &corpus[dice.below(corpus.len())];
        let text = mutate(&dice, text, &corpus);
        peer.send_text(text.clone()).await;
        if round % 10 == 9 {
            still_answers(&mut peer, &format!("round {round} of seed {seed:#x}, from {name}: {text:.400}")).await;
        }
    }
    let metrics = world.owner.get("/metrics").await;
    assert!(String::from_utf8_lossy(&metrics.body).contains("attache_panics_total 0"));
}
