//! Asks an agent and shows what it says while it works.
//!
//! Start a hub with `attache up`, then: `cargo run -p attache-client --example stream -- http://127.0.0.1:7800 KEY-FILE "seq 3"`.
//! You will see a line for everything that happens, and at last the answer. Kill the hub meanwhile and start it again: the
//! stream goes on where it broke.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use attache_client::{CallUpdate, Client};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(key_file), Some(task)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: stream URL KEY-FILE TASK".into());
    };
    let client = Client::connect(url, std::fs::read_to_string(key_file)?.trim())?;
    let mut updates = client.call(task).stream().await?;
    println!("{} has begun", updates.call_id());
    while let Some(update) = updates.next().await {
        match update? {
            CallUpdate::Progress { goal, progress } => println!("progress {goal:?} {progress:?}"),
            CallUpdate::Message { kind, text, details } => println!("{kind} {text:?} {details:?}"),
            CallUpdate::Completed(reply) => println!("{}", reply.summary),
        }
    }
    Ok(())
}
