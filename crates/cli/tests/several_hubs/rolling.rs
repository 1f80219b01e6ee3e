//! Hubs are restarted one after the other, as for an update, behind the proxy whose configuration is handed out. Nobody
//! who calls them notices.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    cluster::{Caller, Cluster, free_address},
    load::{AcknowledgedRun, DEVICES, Device},
    verdict::judge_executions,
};
use crate::{
    deployment::configuration,
    harness::{TestHome, TestProcess, TestReply, has, until},
};

/// Longer than the proxy takes to notice: two checks, one a second.
const SHUTDOWN_DELAY: &str = "4s";
const READERS: usize = 3;

/// HAProxy in front of the nodes. What it can't hand to a hub is an answer of its own, with a status of 500 or above.
struct HaProxy {
    _process: TestProcess,
    _home: TestHome,
    url: String,
}

impl HaProxy {
    fn start(cluster: &Cluster) -> Self {
        let (home, outside) = (TestHome::new(), free_address());
        let servers = |indent: &str, more: &dyn Fn(usize) -> String| -> String {
            let line = |(number, node): (usize, &crate::harness::TestHub)| {
                format!("{indent}server hub-{number} {}{}\n", node.address(), more(number))
            };
            cluster.nodes.iter().enumerate().map(line).collect()
        };
        let public = cluster.proxy.url.trim_start_matches("http://");
        let file = home.path().join("haproxy.cfg");
        let changed = configuration(&[
            ("maxconn 8000", "maxconn 100"),
            ("    server hub-1 hub-1:7800\n    server hub-2 hub-2:7800\n", &servers("    ", &|_| String::new())),
            (
                "    server hub-1 hub-1:7800 track hubs/hub-1\n    server hub-2 hub-2:7800 track hubs/hub-2\n",
                &servers("    ", &|number| format!(" track hubs/hub-{number}")),
            ),
            ("bind :80\n", &format!("bind {outside}\n")),
            // The callers of this test are on this machine, and the hubs' name is another proxy's.
            ("    bind :443 ssl crt /etc/haproxy/hub.pem alpn h2,http/1.1\n", ""),
            (
                "http-request redirect scheme https code 308 unless { ssl_fc }",
                &format!("http-request set-header Host {public}"),
            ),
            ("Host hub.example.org", &format!("Host {public}")),
        ]);
        fs::write(&file, changed).unwrap();
        let process =
            TestProcess::spawn("haproxy", home.program("haproxy").arg("-db").arg("-f").arg(&file), &home.logs());
        Self { _process: process, _home: home, url: format!("http://{outside}") }
    }
}

/// One try, and no second one.
#[track_caller]
fn answered(caller: &Caller, method: &str, path: &str, body: Option<&Value>) -> TestReply {
    let reply = caller.try_call(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    let text = || String::from_utf8_lossy(&reply.body).into_owned();
    assert!(reply.status < 300, "{method} {path} was answered with {}: {}", reply.status, text());
    reply
}

#[test]
fn a_rolling_restart_fails_no_request_and_repeats_no_run() {
    if !has("haproxy", "haproxy") {
        return;
    }
    let Some(mut cluster) = Cluster::start_with(3, &["--shutdown-delay", SHUTDOWN_DELAY]) else { return };
    cluster.is_served();
    let proxy = HaProxy::start(&cluster);
    let caller = Caller { url: proxy.url, key: cluster.nodes[0].key.clone() };
    until("HAProxy to find the hubs", || {
        caller.try_call("GET", "/api/v1/agent-accounts", None).ok().filter(|reply| reply.status == 200)
    });
    let executed = cluster.homes[0].path().join("executed");
    fs::write(&executed, "").unwrap();
    let devices: Vec<_> = (0..DEVICES).map(|number| Device::start(&cluster, &format!("agent-{number}"))).collect();
    let (stop, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let runs: Vec<AcknowledgedRun> = thread::scope(|scope| {
        // Whatever happens here, the others stop, too.
        let stopping = StopAtTheEnd(&stop);
        let creating = scope.spawn(|| {
            let create = |number: usize| {
                let (mark, agent) = (format!("run-{number}"), format!("agent-{}", number % DEVICES));
                let text = format!("echo {mark} >> {}", executed.display());
                // Without a key that would make it safe to send again.
                let body = json!({ "agent_id": agent, "input": { "text": text }, "max_attempts": 1 });
                // Not more than the devices can work off.
                thread::sleep(Duration::from_millis(50));
                let created = answered(&caller, "POST", "/api/v1/task-runs", Some(&body)).json();
                AcknowledgedRun { id: created["task_run_id"].as_str().unwrap().to_owned(), mark }
            };
            (0..).take_while(|_| !stop.load(Ordering::Relaxed)).map(create).collect()
        });
        for _ in 0..READERS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    answered(&caller, "GET", "/api/v1/agent-accounts", None);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for node in 0..3 {
            cluster.nodes[node].process.terminate();
            cluster.restart(node);
            // As people do it: the next one when this one is ready, here at the proxy that the callers don't use.
            cluster.is_served();
        }
        drop(stopping);
        creating.join().unwrap()
    });
    println!("{} runs and {} other requests, none of them failed", runs.len(), reads.load(Ordering::Relaxed));
    for run in &runs {
        let path = format!("/api/v1/task-runs/{}", run.id);
        until("the run to end", || (caller.call("GET", &path, None).json()["status"] == "completed").then_some(()));
    }
    let wanted: Vec<&str> = runs.iter().map(|run| run.mark.as_str()).collect();
    assert_eq!(judge_executions(&fs::read_to_string(&executed).unwrap(), &wanted), Ok(()));
    drop(devices);
}

struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
