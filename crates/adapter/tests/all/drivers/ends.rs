//! How a run ends, and that no process is left behind.

use attache_adapter::HostSetup;
use serde_json::{Value, json};

use super::{AsksWhom, HOSTS};
use crate::{
    hosts::{cancelled, children, ended, failure, fake, result, unasked, until_told},
    stop::dies_with_its_adapter,
    world::{is_alive, task, with},
};

const BUDGET: &str = "quota_exceeded: Fake host was stopped because the run's budget is used up";
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
const LARGER: &str = "Give the run a larger budget, or wait until the quota resets";

#[tokio::test]
async fn cancel_stops_everything_during_work_and_open_questions() {
    for host in HOSTS {
        let world = host.world().await;
        for (script, said) in [("SAY:then\nSLEEP:600", "then"), ("HANG", "HANGING"), ("SAY:then\nWRITE:a.txt", "then")]
        {
            let asks = script.contains("WRITE");
            if asks && host.asks == AsksWhom::Nobody {
                continue;
            }
            let task = task(&format!("CHILD\n{script}"));
            let mut events = world.stream(&task).await;
            let pids = children(&mut events, said).await;
            if asks {
                until_told(&mut events, "progress", "waiting for approval").await;
            }
            cancelled(&world, &task, &pids).await;
        }
        assert!(!world.cwd.join("a.txt").exists());
        world.stop().await;
    }
}

#[tokio::test]
async fn a_cancelled_run_reports_its_usage() {
    for host in HOSTS {
        let world = host.world().await;
        let task = task("LOOP TOKENS:89");
        let mut events = world.stream(&task).await;
        loop {
            let (_, _, data) = events.next_within(PATIENCE).await.expect("what it used so far");
            if data["usage"]["tokens"].is_u64() {
                break;
            }
        }
        let reply: Value = serde_json::from_str(&world.cancel(&task).await.body).unwrap();
        assert_eq!(reply["error"]["code"], "cancelled", "{}: {reply}", host.manner);
        assert!(reply["usage"]["tokens"].as_u64() >= Some(100), "{}: {reply}", host.manner);
        let told = events.rest().await;
        assert_eq!(result(&told)["usage"], reply["usage"], "{}", host.manner);
        world.stop().await;
    }
}

#[tokio::test]
async fn a_completed_run_leaves_no_process_behind() {
    for host in HOSTS {
        let world = host.world().await;
        let mut events = world.stream(&task("CHILD\nSAY:then\nSLEEP:0.1")).await;
        let pids = children(&mut events, "then").await;
        assert_eq!(events.rest().await.last().unwrap().2["success"], true, "{}", host.manner);
        assert!(pids.iter().all(|pid| !is_alive(pid)), "{}: {pids:?}", host.manner);
        world.stop().await;
    }
}

#[tokio::test]
async fn each_outcome_is_distinguished() {
    for host in HOSTS {
        let world = host.world().await;
        for (script, expected) in host.ends {
            assert_eq!(failure(&ended(&world, &task(script)).await), *expected, "{}: {script}", host.manner);
        }
        world.stop().await;

        let missing = host.world_of(HostSetup::new("none", "None", "no-such-program-here")).await;
        let expected = "host_crashed: can't start `no-such-program-here`: No such file or directory (os error 2); install \
                        it, or start the adapter with the program's full path";
        assert_eq!(failure(&ended(&missing, &task("x")).await), expected, "{}", host.manner);
        missing.stop().await;
        let deaf = host.world_of(HostSetup::new("true", "True", "true")).await;
        assert_eq!(failure(&ended(&deaf, &task("x")).await), host.deaf, "{}", host.manner);
        deaf.stop().await;
    }
}

#[tokio::test]
async fn a_runaway_is_stopped_by_its_budget() {
    for host in HOSTS {
        let world = host.world().await;
        let endless = with(task("CHILD\nSAY:then\nLOOP TOKENS:89"), "budget", json!({"tokens": 250}));
        let mut events = world.stream(&endless).await;
        let pids = children(&mut events, "then").await;
        let events = events.rest().await;
        let expected = format!("{BUDGET}: 300 tokens used, 250 allowed. {LARGER}");
        assert_eq!(failure(result(&events)), expected, "{}", host.manner);
        assert_eq!(result(&events)["usage"], host.usage(33, 267, 0.003), "{}", host.manner);
        assert_eq!(
            pids.iter().filter(|pid| is_alive(pid)).collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "{}",
            host.manner
        );

        if let Some(costly) = host.costly {
            let reply = ended(&world, &with(task("LOOP COST:0.1"), "budget", json!({"cost_usd": 0.25}))).await;
            assert_eq!(failure(&reply), format!("{BUDGET}: {costly}. {LARGER}"), "{}", host.manner);
            assert_eq!(reply["usage"], host.usage(33, 21, 0.1 + 0.1 + 0.1), "{}", host.manner);
        }
        world.stop().await;
    }
}

/// The reply of a run for which nothing was started.
async fn not_started(world: &crate::world::AdapterWorld, task: &Value) -> String {
    let events = unasked(world, task).await;
    assert_eq!(events.len(), 1, "{events:?}");
    failure(result(&events))
}

#[tokio::test]
async fn a_run_with_unenforceable_limits_or_no_budget_is_not_started() {
    for host in HOSTS {
        let world = host.world().await;
        let limited = with(task("WRITE:a.txt"), "sandbox", json!({"allow_network": false}));
        let expected = "refused: Fake host can't enforce these limits on this device: no network (allow_network: false), \
                        so the task was not started; remove the limits, or use an agent that enforces them";
        assert_eq!(not_started(&world, &limited).await, expected, "{}", host.manner);
        let unpaid = with(task("WRITE:a.txt"), "budget", json!({"tokens": 0}));
        let expected = format!("{BUDGET}: 0 tokens used, 0 allowed. {LARGER}");
        assert_eq!(not_started(&world, &unpaid).await, expected, "{}", host.manner);
        assert!(!world.cwd.join("a.txt").exists());
        world.stop().await;
    }
}

#[tokio::test]
async fn a_host_is_kept_out_of_folders_whose_files_it_would_execute() {
    for host in HOSTS {
        let world = host.world_of(HostSetup { executes: vec![".agent/plugins".into()], ..fake(host.manner) }).await;
        host.says(&world, &task("SAY:hello"), &["hello"]).await;
        std::fs::create_dir_all(world.cwd.join(".agent/plugins")).unwrap();
        let inside = world.cwd.join("deep/er");
        std::fs::create_dir_all(&inside).unwrap();
        let expected = format!(
            "refused: Fake host would execute `{}` and has no option to prevent that, so the task was not started; remove it \
             or, if you trust the folder, set `executes = []` for fake in presets.toml",
            world.cwd.join(".agent/plugins").display()
        );
        let task = with(task("SAY:hello"), "cwd", inside.to_str().unwrap());
        assert_eq!(not_started(&world, &task).await, expected, "{}", host.manner);
        world.stop().await;
    }
}

/// The configuration appears after the first check, before the host has loaded it.
#[tokio::test]
async fn executable_files_are_checked_again_after_the_host_loads() {
    for host in HOSTS.iter().filter(|host| !["claude", "codex"].contains(&host.manner)) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("host");
        let real = fake(host.manner);
        let script = format!("#!/bin/sh\nmkdir -p .agent/plugins\nexec '{}' \"$@\"\n", real.program.to_string_lossy());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let setup = HostSetup { program: program.into(), executes: vec![".agent/plugins".into()], ..real };
        let world = host.world_of(setup).await;
        let planted = world.cwd.join(".agent/plugins");
        let expected = format!(
            "refused: `{}` appeared while Fake host was starting, which executes such files, so it was stopped; find out who \
             created it and remove it",
            planted.display()
        );
        assert_eq!(failure(&ended(&world, &task("SAY:hello\nWRITE:a.txt")).await), expected, "{}", host.manner);
        world.stop().await;
    }
}

/// Not a test by itself: the process that the next test kills.
#[tokio::test]
#[ignore = "started by `killing_the_adapter_leaves_no_process_behind`"]
async fn an_adapter_that_waits_to_be_killed() {
    let (mut open, mut pids) = (Vec::new(), Vec::new());
    for host in HOSTS {
        let world = host.world().await;
        let mut events = world.stream(&task("CHILD\nSAY:then\nSLEEP:600")).await;
        pids.extend(children(&mut events, "then").await);
        open.push((world, events));
    }
    println!("family {}", pids.join(" "));
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn killing_the_adapter_leaves_no_process_behind() {
    dies_with_its_adapter("drivers::ends::an_adapter_that_waits_to_be_killed", 2 * HOSTS.len()).await;
}
