//! Both connections of a run are cut repeatedly, from a seed: everything the worker sends reaches the engine once and
//! in order, under one claim.

use std::collections::VecDeque;

use attache_protocol::env::Env;
use serde_json::{Value, json};

use super::{
    engine::execute,
    peer::{TestPeer, WS, owner_key, read_run, register_agent},
};
use crate::world::World;

const CUTS: usize = 40;

struct Dice(Env);

impl Dice {
    fn below(&self, limit: usize) -> usize {
        let mut byte = [0; 1];
        self.0.fill(&mut byte);
        usize::from(byte[0]) % limit
    }
}

/// A peer that keeps the state `docs/channels.md` requires.
struct ResumingPeer<'a> {
    world: &'a World,
    key: String,
    peer: TestPeer,
    channel: Value,
    token: Value,
    last_seq: i64,
}

impl<'a> ResumingPeer<'a> {
    async fn new(world: &'a World, key: String, register: Value) -> Self {
        let mut peer = TestPeer::connect(world, WS, Some(&key)).await;
        let reply = peer.register(register).await;
        Self {
            world,
            key,
            peer,
            channel: reply["channel_id"].clone(),
            token: reply["resume_token"].clone(),
            last_seq: 0,
        }
    }

    fn resume(&self) -> Value {
        json!({"action": "resume", "channel_id": self.channel, "resume_token": self.token, "last_seq": self.last_seq})
    }

    /// Cuts the connection and resumes the channel. Sometimes the response is lost too, which costs the token.
    async fn cut(&mut self, dice: &Dice, register: Option<Value>) {
        self.peer = TestPeer::connect(self.world, WS, Some(&self.key)).await;
        if let Some(register) = register.filter(|_| dice.below(4) == 0) {
            let lost = self.peer.frame("request", self.resume());
            self.peer.ask(&lost).await;
            self.peer = TestPeer::connect(self.world, WS, Some(&self.key)).await;
            assert_eq!(self.peer.request(self.resume()).await["error"]["code"], "resume_refused");
            let reply = self.peer.register(register).await;
            (self.channel, self.token, self.last_seq) = (reply["channel_id"].clone(), reply["resume_token"].clone(), 0);
            return;
        }
        let reply = self.peer.request(self.resume()).await;
        assert_eq!(reply["ok"], true, "{reply}");
        self.token = reply["resume_token"].clone();
    }

    /// The next numbered frame, sometimes acknowledged.
    async fn heard(&mut self, dice: &Dice) -> Value {
        let frame = self.peer.find(|frame| frame["header"]["seq"].is_i64()).await;
        assert_eq!(frame["header"]["seq"], json!(self.last_seq + 1), "in order and once");
        self.last_seq += 1;
        if dice.below(3) == 0 {
            self.peer.notify(json!({"action": "ack", "seq": self.last_seq})).await;
        }
        frame
    }
}

async fn storm(world: World, seed: u64) {
    let dice = Dice(Env::seeded(seed));
    world.agent("builder").await;
    let mut sub = ResumingPeer::new(&world, register_agent(&world, "builder").await, json!({})).await;
    let mut host = ResumingPeer::new(&world, owner_key(&world), json!({"peer_role": "host"})).await;
    let frame = execute(&mut host.peer, "builder", json!({"query": "go"}));
    let id = host.peer.ask(&frame).await["payload"]["task_run_id"].as_str().unwrap().to_owned();
    sub.peer.notify(json!({"action": "ready", "credits": 1})).await;
    assert_eq!(sub.heard(&dice).await["payload"]["task_run_id"], json!(id));

    let (mut said, mut seen) = (0_i64, Vec::new());
    let mut unconfirmed: VecDeque<Value> = VecDeque::new();
    for _ in 0..CUTS {
        for _ in 0..dice.below(6) {
            said += 1;
            let chunk =
                json!({"action": "chunk", "task_run_id": id, "epoch": 1, "text": said.to_string(), "report": said});
            unconfirmed.push_back(chunk.clone());
            let chunk = sub.peer.frame("chunk", chunk);
            sub.peer.send(&chunk).await;
            // A network may also duplicate it.
            if dice.below(5) == 0 {
                sub.peer.send(&chunk).await;
            }
        }
        if dice.below(2) == 0 {
            // A round trip confirms what was sent before.
            assert_eq!(sub.peer.request(json!({"action": "extend", "task_run_id": id, "epoch": 1})).await["ok"], true);
            unconfirmed.clear();
        }
        for _ in 0..dice.below(4) {
            if (seen.len() as i64) < said - unconfirmed.len() as i64 {
                let told = host.heard(&dice).await;
                if told["payload"]["action"] == "chunk" {
                    seen.push(told["payload"]["text"].as_str().unwrap().to_owned());
                }
            }
        }
        match dice.below(3) {
            0 => {
                sub.cut(&dice, Some(json!({"running": [id]}))).await;
                for chunk in unconfirmed.clone() {
                    let chunk = sub.peer.frame("chunk", chunk);
                    sub.peer.send(&chunk).await;
                }
            }
            1 => host.cut(&dice, None).await,
            _ => {}
        }
    }
    for chunk in unconfirmed {
        let chunk = sub.peer.frame("chunk", chunk);
        sub.peer.send(&chunk).await;
    }
    let done = json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"});
    assert_eq!(sub.peer.request(done).await["status"], "completed", "seed {seed}");
    loop {
        let told = host.heard(&dice).await;
        match told["payload"]["action"].as_str().unwrap() {
            "chunk" => seen.push(told["payload"]["text"].as_str().unwrap().to_owned()),
            "done" => break,
            _ => {}
        }
    }
    let wanted: Vec<_> = (1..=said).map(|number| number.to_string()).collect();
    assert_eq!(seen, wanted, "seed {seed}");
    let read = read_run(&world, &id).await;
    assert_eq!((&read["epoch"], &read["attempt"]), (&json!(1), &json!(1)), "seed {seed}");
}

#[tokio::test]
async fn cut_connections_lose_and_repeat_nothing_on_the_model() {
    for seed in 1..=3 {
        storm(World::start().await, seed).await;
    }
}

#[tokio::test]
async fn cut_connections_lose_and_repeat_nothing_on_sqlite() {
    for seed in 4..=6 {
        storm(World::on_sqlite().await, seed).await;
    }
}
