//! A paired device from outside: concurrent tasks, output of any size, attachments, and nothing that outlives a task.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, is_long, process, until};

/// A hub with the agent `builder`, paired with this home.
fn paired(home: &TestHome) -> TestHub {
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let code = hub.pairing_code("builder");
    home.attache(&["runtime", "pair", &code, "--api-base", &hub.url]).succeeds();
    hub
}

#[test]
fn the_configured_number_of_tasks_runs_at_once() {
    let home = TestHome::new();
    let hub = paired(&home);
    let _runtime = home.runtime(&["--concurrency", "4"]);
    let meeting = home.path().join("meeting");
    fs::create_dir(&meeting).unwrap();
    // All four must be running before any finishes.
    let script = format!(
        "cd {} && touch $ATTACHE_TASK_RUN_ID && while [ $(ls | wc -l) -lt 4 ]; do sleep 0.05; done; echo met",
        meeting.display()
    );
    let request = json!({"agent_id": "builder", "input": {"text": script}, "timeout_ms": 60_000});
    let create =
        || hub.post("/api/v1/task-runs", &request).expect(201).json()["task_run_id"].as_str().unwrap().to_owned();
    let runs: Vec<String> = (0..4).map(|_| create()).collect();
    for run in runs {
        let ended = hub.ended(&run);
        assert_eq!(
            (&ended["status"], &ended["task_result"]["text"]),
            (&json!("completed"), &json!("met\n")),
            "{ended}"
        );
    }
}

#[test]
fn more_tasks_than_the_adapter_supports_are_refused_at_startup() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let (_adapter, url) = home.adapter(&["shell"]);
    let code = hub.pairing_code("builder");
    home.attache(&["runtime", "pair", &code, "--api-base", &hub.url, "--local-agent-endpoint", &url]).succeeds();
    let refused = home.attache(&["runtime", "start", "--concurrency", "4"]).exits(2);
    assert!(
        refused.stderr.contains("executes 1 task(s) at a time, but --concurrency asks for 4"),
        "{}",
        refused.stderr
    );
}

/// A leftover child that cleared its environment and left its process group and session.
#[test]
#[cfg_attr(attache_portable, ignore = "only Linux finds a process that left its group")]
fn a_detached_child_is_killed_with_its_task() {
    let home = TestHome::new();
    let hub = paired(&home);
    let _runtime = home.runtime(&["--concurrency", "2"]);
    let pid_file = home.path().join("stray");
    let hide = |pid_file: &str| {
        format!("env -i setsid sh -c 'echo $$ > {pid_file}; exec sleep 600' </dev/null >/dev/null 2>&1 &")
    };
    let stray = |name: &str| -> u32 {
        until("the stray child", || fs::read_to_string(home.path().join(name)).ok()?.trim().parse().ok())
    };
    // The task finished normally.
    let script = format!(
        "{}\nuntil [ -s {1} ]; do sleep 0.02; done; echo gone",
        hide(pid_file.to_str().unwrap()),
        pid_file.display()
    );
    let ended = hub.ask("builder", &script);
    assert_eq!(ended["task_result"]["text"], "gone\n", "{ended}");
    let pid = stray("stray");
    assert!(!process::exists(pid), "{pid} outlived its task");

    // The task was cancelled while another one continues.
    let other = hub.create_run("builder", "sleep 600");
    let second = home.path().join("second");
    let run = hub.create_run("builder", &format!("{}\nsleep 600", hide(second.to_str().unwrap())));
    let pid = stray("second");
    assert!(process::exists(pid));
    hub.post(&format!("/api/v1/task-runs/{run}/cancel"), &json!({})).expect(200);
    until("the stray child of a cancelled task to be dead", || (!process::exists(pid)).then_some(()));
    assert_eq!(hub.run(&other)["status"], "running");
}

/// Standard output of `attache ask`, byte for byte.
fn asked(home: &TestHome, script: &str) -> Vec<u8> {
    asked_with(home, script, &[]).expect("the run succeeds")
}

/// The same with more options. What is said on standard error if it fails.
fn asked_with(home: &TestHome, script: &str, options: &[&str]) -> Result<Vec<u8>, String> {
    let mut command: Command = home.command(&[&["ask", "builder", script], options].concat());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(output.stdout) } else { Err(said.into_owned()) }
}

#[test]
fn output_of_any_size_and_kind_reaches_a_pipe_unchanged() {
    let home = TestHome::new();
    let hub = paired(&home);
    let _runtime = home.runtime(&[]);
    // Every byte value, many times.
    let binary = asked(
        &home,
        "i=0; while [ $i -lt 391 ]; do printf \"$(printf '\\\\%03o' $(seq 0 255))\"; i=$((i+1)); done | head -c 100000",
    );
    let every: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert_eq!(binary.len(), 100_000);
    assert!(binary == every, "bytes were changed on the way");

    let long = asked(&home, "yes 'a line of thirty-two characters' | head -c 30000000");
    assert_eq!(long.len(), 30_000_000);
    let line = b"a line of thirty-two characters\n";
    assert!(long.iter().eq(line.iter().cycle().take(30_000_000)), "bytes were changed on the way");

    // The run itself stays small and refers to the rest.
    let runs = hub.get("/api/v1/task-runs?limit=1");
    let result = &runs["task_runs"][0]["task_result"];
    assert_eq!(result["full_output"], json!({"bytes": 30_000_000, "artifact_index": 0}), "{}", result["full_output"]);
    assert!(result["text"].as_str().unwrap().len() <= 1 << 20);
    assert_eq!(result["artifact_refs"].as_array().unwrap().len(), 1);

    let short = asked(&home, "echo all of it");
    assert_eq!(short, b"all of it\n");

    // What doesn't fit into the stream follows at its end.
    let streamed = asked_with(&home, "seq 1 300000", &["--stream"]).unwrap();
    let numbers: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    assert!(streamed == numbers.as_bytes(), "{} bytes", streamed.len());
    let said = asked_with(&home, "head -c 3000 /dev/urandom", &["--stream"]).unwrap_err();
    assert!(
        said.contains("the streamed output differs from the complete output") && said.contains("artifacts get"),
        "{said}"
    );

    // A failed run produces no artifact: the partial output is kept, and the truncation is reported.
    let mut failed = home.command(&["ask", "builder", "yes | head -c 5000000; exit 3"]);
    let failed = failed.stdin(Stdio::null()).output().unwrap();
    assert_eq!((failed.status.code(), failed.stdout.len()), (Some(1), 1 << 20));
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(said.contains("the output was truncated to 1048576 of 5000000 bytes"), "{said}");
}

/// However long the output is, no process on the way holds all of it in memory.
#[test]
fn two_hundred_megabytes_reach_a_pipe_in_little_memory() {
    let home = TestHome::new();
    let hub = paired(&home);
    let runtime = home.runtime(&[]);
    let size = if is_long() { 200_000_000 } else { 60_000_000 };
    let script = format!("head -c {size} /dev/urandom | tee whole.bin");
    let out = home.path().join("out.bin");
    let mut command = home.command(&["ask", "builder", &script]);
    let status = command.stdin(Stdio::null()).stdout(std::fs::File::create(&out).unwrap()).status().unwrap();
    assert!(status.success());
    let whole = until("the file of the task", || find(home.path(), "whole.bin"));
    let same = Command::new("cmp").args([&whole, &out]).status().unwrap();
    assert!(same.success() && std::fs::metadata(&out).unwrap().len() == size, "bytes were lost or changed");
    for (name, peak) in [("hub", hub.process.peak_memory()), ("runtime", runtime.peak_memory())] {
        assert!(peak < 250 << 20, "the {name} had {peak} bytes");
    }
}

/// The first file of this name below a folder.
fn find(below: &Path, name: &str) -> Option<PathBuf> {
    let found = Command::new("find").arg(below).args(["-name", name]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().next().map(PathBuf::from)
}

#[test]
fn attachments_exist_while_the_task_runs() {
    let home = TestHome::new();
    let hub = paired(&home);
    let _runtime = home.runtime(&[]);
    let run = |parts: Value| {
        let text = "cd \"$ATTACHE_FILES\" && for f in *; do echo \"$f: $(cat \"$f\")\"; done; pwd";
        let input = json!({"text": text, "message": {"parts": parts}});
        let created = hub.post("/api/v1/task-runs", &json!({"agent_id": "builder", "input": input})).expect(201).json();
        hub.ended(created["task_run_id"].as_str().unwrap())
    };
    let ended = run(json!([
        {"text": "look"},
        {"raw": "aGVsbG8=", "filename": "../notes.txt", "mediaType": "text/plain"},
        {"data": {"n": 1}},
        {"url": "https://example.org/x.pdf"},
    ]));
    let text = ended["task_result"]["text"].as_str().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        ["notes.txt: hello", "part-3.json: {\"n\":1}", "part-4.url: https://example.org/x.pdf"],
        "{ended}"
    );
    assert!(!std::path::Path::new(lines[3]).exists(), "{} is still there", lines[3]);
    let refused = run(json!([{"raw": "*!*"}]));
    assert_eq!(refused["task_result"]["code"], "rejected", "{refused}");
}

#[test]
fn undelivered_input_is_not_reported_as_delivered() {
    let home = TestHome::new();
    let hub = paired(&home);
    let _runtime = home.runtime(&[]);
    let begun = home.path().join("begun");
    let run = hub.create_run("builder", &format!("touch {}; sleep 600", begun.display()));
    until("the task to be at work", || begun.exists().then_some(()));
    let said = home.attache(&["runs", "input", &run, "faster"]).exits(1);
    assert!(said.stderr.contains("the input wasn't delivered") && !said.stderr.contains("Answered"), "{}", said.stderr);
}

#[test]
fn a_run_with_limits_that_a_device_does_not_enforce_never_reaches_it() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let (_adapter, url) = home.adapter(&["conformance"]);
    let code = hub.pairing_code("builder");
    home.attache(&["runtime", "pair", &code, "--api-base", &hub.url, "--local-agent-endpoint", &url]).succeeds();
    let _runtime = home.runtime(&[]);
    let refused = home.attache(&["ask", "builder", "hello", "--sandbox", "no-exec"]).exits(1);
    assert!(refused.stderr.contains("(refused)") && refused.stderr.contains("no programs"), "{}", refused.stderr);
    assert_eq!(hub.get("/api/v1/task-runs?limit=1")["task_runs"][0]["status"], "failed");
}
