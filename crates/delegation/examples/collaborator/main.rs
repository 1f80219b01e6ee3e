//! The collaborator role in an A2A server that isn't a hub: a few hundred lines of axum that accept a delegated folder,
//! mount it, work in it and report the result.
//!
//! ```text
//! cargo run -p attache-delegation --example collaborator -- 127.0.0.1:7900 ~/.AWCP/mounts
//! ```
//!
//! It prints its URL and a key. A host sends INVITE with A2A's `SendMessage`, for example: `attache delegations allow
//! --peer http://127.0.0.1:7900 --key-file FILE`, then `attache delegate DIR --to http://127.0.0.1:7900 "…"`. The
//! result is a `SUMMARY.md` in the delegated folder, with the task and the names of the files.
//!
//! The same program is also the guard of its mounts: with the argument `mount-guard`, it calls `run_guard`.

#![allow(clippy::print_stdout, reason = "an example prints to its user")]

mod server;

use std::{io::BufReader, path::PathBuf, process::ExitCode, sync::Arc};

use attache_delegation::collaborator::{
    Collaborator, DirectDialGuard, GuardCommand, HubTunnelDialer, Options, SlotScheduler, run_guard,
};
use attache_protocol::env::Env;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "mount-guard") {
        return ExitCode::from(run_guard(BufReader::new(std::io::stdin()), std::io::stdout()));
    }
    let [listen, root] = &args[..] else {
        println!("usage: collaborator ADDRESS:PORT MOUNT_ROOT");
        return ExitCode::from(2);
    };
    match serve(listen, PathBuf::from(root)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve(listen: &str, root: PathBuf) -> std::io::Result<()> {
    let role = Collaborator::new(Options {
        policy: Arc::new(server::OneFolderPolicy { root: std::path::absolute(root)? }),
        audit: Arc::new(server::PrintingAudit),
        scheduler: Arc::new(SlotScheduler::new(2)),
        tunnels: Arc::new(HubTunnelDialer::of("http://127.0.0.1", &[], None)),
        direct: DirectDialGuard::of("http://127.0.0.1", &[]),
        guard: GuardCommand { program: std::env::current_exe()?, args: vec!["mount-guard".into()] },
        env: Env::system(),
    });
    role.sweep();
    let listener = tokio::net::TcpListener::bind(listen).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let key = Env::system().uuid().simple().to_string();
    println!("listening on {url}\nkey: {key}");
    axum::serve(listener, server::router(role, &url, key, Env::system())).await
}
