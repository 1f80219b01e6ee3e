//! The receiver in `docs/webhooks.md`, in plain Python, accepts what the hub sends and nothing else.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    time::timeout,
};

use super::receiver::{completed, secret, tried, world};
use crate::world::{Engine, PATIENCE};

const DOCS: &str = include_str!("../../../../docs/webhooks.md");

fn receiver() -> &'static str {
    let code = DOCS.split_once("```python\n").expect("the page shows a receiver").1;
    code.split_once("```").unwrap().0
}

#[tokio::test]
async fn the_documented_receiver_verifies_deliveries() {
    let (world, device) = world(Engine::Model, |options| options.outbox.retries = Vec::new()).await;
    // The receiver uses the machine's clock.
    let apart = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = u64::try_from(world.env.now().millis()).unwrap();
    world.advance(apart.saturating_sub(std::time::Duration::from_millis(now)));
    for (key, heard, state) in [
        (secret(&world.owner).await, "run_ended completed", "delivered"),
        ("wh_wrong".to_owned(), "not genuine", "failed"),
    ] {
        let mut child = tokio::process::Command::new("python3")
            .args(["-u", "-c", receiver()])
            .env("WEBHOOK_SECRET", key)
            .env("PORT", "0")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python3 is installed");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = timeout(PATIENCE, lines.next_line()).await.expect("a line in time").unwrap().unwrap();
        let port = listening.strip_prefix("listening on ").unwrap();
        let delivery = completed(&world.owner, &device, &format!("http://127.0.0.1:{port}/done")).await;
        let line = timeout(PATIENCE, lines.next_line()).await.expect("a line in time").unwrap().unwrap();
        assert_eq!(line, heard);
        tried(&world, &delivery, 1, state).await;
    }
}
