//! An adapter that the runtime starts as a child process.

use std::{fs, os::unix::fs::PermissionsExt as _};

use attache_runtime::{AdapterCommand, AdapterSource, Error, RuntimeNotice, RuntimeService, Shutdown};
use serde_json::json;

use crate::{
    adapter::AdapterReply,
    world::{RuntimeWorld, SECRET, claim},
};

/// A child that writes the ready file and exits when its stdin closes. The real adapter is the test's own.
fn script(world: &RuntimeWorld, body: &str) -> AdapterCommand {
    let path = world.path("adapter.sh");
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let ready_file = world.path("ready.json");
    AdapterCommand {
        program: "/bin/sh".into(),
        arguments: vec![path.into(), ready_file.clone().into(), world.adapter.url.clone().into()],
        environment: std::env::vars_os().collect(),
        ready_file: ready_file.into(),
    }
}

#[tokio::test]
async fn a_child_is_started_used_restarted_and_ended() {
    let world = RuntimeWorld::new().await;
    let address = world.adapter.url.strip_prefix("http://").unwrap().replace(':', "_");
    fs::create_dir(world.path("adapters")).unwrap();
    fs::write(world.path(&format!("adapters/{address}")), format!("{SECRET}\n")).unwrap();
    // The first child dies when the test says so. The second lives until its stdin closes.
    let (log, die) = (world.path("log"), world.path("die"));
    let body = format!(
        "echo started >> {log}\n\
         printf '{{\"url\":\"%s\"}}' \"$2\" > \"$1.part\" && mv \"$1.part\" \"$1\"\n\
         if [ \"$(wc -l < {log})\" = 1 ]; then while [ ! -e {die} ]; do sleep 0.05; done; exit 3; fi\n\
         cat > /dev/null\n\
         echo ended >> {log}"
    );
    let mut options = world.options();
    options.adapter = AdapterSource::Child(script(&world, &body));
    let shutdown = Shutdown::default();
    let running = tokio::spawn(RuntimeService::new(options).unwrap().run(shutdown.clone()));
    world.hub.heard("heartbeat", 1).await;
    fs::write(&die, "").unwrap();
    world
        .hub
        .until(|_| {
            let notices = world.notices.lock().unwrap();
            notices.iter().filter(|notice| matches!(notice, RuntimeNotice::AdapterReady { .. })).count() == 2
        })
        .await;
    world.adapter.play(AdapterReply::Json(json!({"success": true, "output": {"text": "by a child"}})));
    world.hub.offer(claim(1, "x"));
    world.hub.heard("complete", 1).await;
    assert_eq!(world.adapter.secrets(), [Some(format!("Bearer {SECRET}"))]);
    shutdown.finish();
    running.await.unwrap().unwrap();
    assert_eq!(fs::read_to_string(log).unwrap(), "started\nstarted\nended\n");
    assert!(
        world
            .notices
            .lock()
            .unwrap()
            .iter()
            .any(|notice| matches!(notice, RuntimeNotice::AdapterAway { reason } if reason.contains("exit status: 3")))
    );
}

#[tokio::test]
async fn a_child_that_does_not_start_gives_the_reason() {
    let world = RuntimeWorld::new().await;
    let mut options = world.options();
    options.adapter = AdapterSource::Child(script(&world, "exit 7"));
    let error = RuntimeService::new(options).unwrap().run(Shutdown::default()).await.unwrap_err();
    assert!(matches!(&error, Error::Adapter { reason, .. } if reason.contains("exit status: 7")), "{error}");
}
