//! Asks an agent and prints its answer.
//!
//! Start a hub with `attache up`, then: `cargo run -p attache-client --example ask -- http://127.0.0.1:7800 KEY-FILE "uname -a" [AGENT]`.
//! KEY-FILE is the file that `attache up` keeps its owner key in, `~/.a2a/hub/admin.key` unless it was told otherwise. You will see the
//! agent's answer, and what it took.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it does")]

use attache_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(key_file), Some(task)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: ask URL KEY-FILE TASK [AGENT, SKILL OR CAPABILITY]".into());
    };
    let client = Client::connect(url, std::fs::read_to_string(key_file)?.trim())?;
    let mut call = client.call(task);
    if let Some(agent) = arguments.next() {
        call = call.agent_type(agent);
    }
    let reply = call.wait().await?;
    println!("{}", reply.summary);
    eprintln!("{:?}, tokens {:?}, cost {:?}", reply.usage.duration, reply.usage.tokens, reply.usage.cost);
    Ok(())
}
