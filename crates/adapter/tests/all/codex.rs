//! The driver for Codex, against a host that is played.

use attache_adapter::{Environment, Limit, Memory, Setup, driver::Codex};
use serde_json::{Value, json};

use crate::{
    hosts::{answered, cancelled, children, failure, fake, no, result, texts, until_told, yes},
    world::{World, is_alive, task, with},
};

async fn world() -> World {
    World::start(Codex::new(fake("codex")), |_| {}).await
}

/// What a run without questions ends as.
async fn ended(world: &World, task: &Value) -> Value {
    let (questions, events) = answered(world, task, |question| panic!("nobody is to be asked {question}")).await;
    assert_eq!(questions, Vec::<Value>::new());
    result(&events).clone()
}

#[tokio::test]
async fn a_patch_is_asked_about_with_its_diff_and_made_after_a_yes() {
    let world = world().await;
    let (questions, events) = answered(&world, &task("THINK:hm\nWRITE:a.txt=new"), yes).await;
    let file = world.cwd.join("a.txt").display().to_string();
    let question = json!({
        "id": "q1", "tool": "apply_patch", "input": {"changes": [{"path": file, "change": "add"}]}, "cwd": world.cwd,
        "paths": [file], "risk": "medium", "diff": format!("--- {file}\n+++ {file}\n@@ -0,0 +1 @@\n+new\n"),
    });
    assert_eq!(questions, [question]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new\n");
    let usage = json!({"tokens": 18, "input_tokens": 11, "output_tokens": 7, "cost_source": "unknown"});
    let expected = json!({
        "success": true, "output": {"text": "FAKE-OK after tool: wrote a.txt", "artifact_refs": []}, "usage": usage,
    });
    assert_eq!(*result(&events), expected);
    assert_eq!(texts(&events, "thought", "text").concat(), "hm");
    assert_eq!(texts(&events, "chunk", "text").concat(), "FAKE-OK after tool: wrote a.txt");
    assert_eq!(texts(&events, "tool_call", "status"), ["started", "completed"]);
    let told = [
        "starting Fake host",
        "Fake host works on the task",
        &format!("waiting for approval: apply_patch {file}"),
        "Fake host goes on",
    ];
    assert_eq!(texts(&events, "progress", "message"), told);
    world.stop().await;
}

#[tokio::test]
async fn a_command_is_asked_about_as_it_is() {
    let world = world().await;
    let (questions, events) = answered(&world, &task("RUN:echo hi > b.txt"), yes).await;
    let [question] = questions.as_slice() else { panic!("{questions:?}") };
    let input = json!({
        "command": "/bin/bash -lc \"echo hi > b.txt\"", "cwd": world.cwd, "sandbox": "on",
        "actions": [{"type": "unknown", "command": "echo hi > b.txt"}],
    });
    let expected = json!({
        "id": "q1", "tool": "shell", "input": input, "cwd": world.cwd, "risk": "high", "undisclosed": ["paths"],
    });
    assert_eq!(*question, expected);
    assert_eq!(result(&events)["success"], true);
    assert!(world.cwd.join("b.txt").exists());

    let (questions, _) = answered(&world, &task("ASK:mystery"), yes).await;
    assert_eq!(questions[0]["undisclosed"], json!(["input", "paths"]));
    world.stop().await;
}

#[tokio::test]
async fn a_no_is_a_no_and_the_run_says_so() {
    let world = world().await;
    let (questions, events) = answered(&world, &task("WRITE:a.txt"), no).await;
    assert_eq!(questions.len(), 1);
    assert!(!world.cwd.join("a.txt").exists());
    let file = world.cwd.join("a.txt").display().to_string();
    let expected = format!(
        "permission_denied: Fake host was not allowed to do this: apply_patch {file} (not today). It said: FAKE-OK after tool: \
         denied"
    );
    assert_eq!(failure(result(&events)), expected);
    // What is got done after a no counts.
    let decide = |question: &Value| json!({"approved": question["tool"] == "shell"});
    let (questions, events) = answered(&world, &task("WRITE:a.txt=x\nRUN:echo instead > b.txt"), decide).await;
    assert_eq!(questions.len(), 2);
    assert_eq!(result(&events)["success"], true);
    assert_eq!((world.cwd.join("a.txt").exists(), world.cwd.join("b.txt").exists()), (false, true));
    world.stop().await;
}

#[tokio::test]
async fn cancel_ends_everything_at_work_and_while_people_are_asked() {
    let world = world().await;
    for script in ["CHILD\nSAY:then\nSLEEP:600", "CHILD HANG", "CHILD\nSAY:then\nWRITE:a.txt"] {
        let task = task(script);
        let mut events = world.stream(&task).await;
        let pids = children(&mut events, if script.ends_with("HANG") { "HANGING" } else { "then" }).await;
        if script.contains("WRITE") {
            until_told(&mut events, "progress", "waiting for approval").await;
        }
        cancelled(&world, &task, &pids).await;
    }
    assert!(!world.cwd.join("a.txt").exists());
    world.stop().await;
}

#[tokio::test]
async fn each_end_is_told_apart() {
    let world = world().await;
    let table = [
        ("CRASH", "host_crashed: Fake host was killed by signal 6"),
        ("EXIT:3", "host_crashed: Fake host ended with exit status 3 before it had answered"),
        ("REFUSE", "refused: Fake host will not do this: its model gave no answer"),
        (
            "FAIL:429",
            "model_unreachable: Fake host cannot reach its model: exceeded retry limit, last status: 429 Too Many Requests. \
             Check the device's network and the host's login",
        ),
        (
            "FAIL:500",
            "model_unreachable: Fake host cannot reach its model: FAKE-FAIL 500. Check the device's network and the host's login",
        ),
    ];
    for (script, expected) in table {
        assert_eq!(failure(&ended(&world, &task(script)).await), expected, "{script}");
    }
    let garbage = failure(&ended(&world, &task("GARBAGE")).await);
    assert!(garbage.starts_with("adapter_invalid_reply: Fake host said something that cannot be read: "), "{garbage}");
    world.stop().await;

    let nothing = World::start(Codex::new(Setup::new("none", "None", "no-such-program-here")), |_| {}).await;
    let reply = failure(&ended(&nothing, &task("x")).await);
    assert!(reply.starts_with("host_crashed: `no-such-program-here` cannot be started"), "{reply}");
    nothing.stop().await;
    let deaf = World::start(Codex::new(Setup::new("true", "True", "true")), |_| {}).await;
    assert_eq!(failure(&ended(&deaf, &task("x")).await), "host_crashed: True ended before it had answered");
    deaf.stop().await;
}

#[tokio::test]
async fn a_retry_is_seen() {
    let world = world().await;
    let (_, events) = answered(&world, &task("FAIL:529x2 SAY:at last"), yes).await;
    assert_eq!(result(&events)["output"]["text"], "at last");
    let told = texts(&events, "progress", "message");
    assert_eq!(
        told[2..],
        ["model retry 1/2: Reconnecting... 1/2".to_owned(), "model retry 2/2: Reconnecting... 2/2".to_owned()]
    );
    world.stop().await;
}

#[tokio::test]
async fn a_runaway_is_stopped_by_its_budget() {
    let world = world().await;
    let task = with(task("CHILD\nSAY:then\nLOOP TOKENS:89"), "budget", json!({"tokens": 250}));
    let mut events = world.stream(&task).await;
    let pids = children(&mut events, "then").await;
    let events = events.rest().await;
    let expected = "quota_exceeded: Fake host was stopped because the run's budget is used up: 300 tokens were used of the 250 \
                    that were left for it. Give the run a larger budget, or wait until its quota is filled up again";
    assert_eq!(failure(result(&events)), expected);
    let usage = json!({"tokens": 300, "input_tokens": 33, "output_tokens": 267, "cost_source": "unknown"});
    assert_eq!(result(&events)["usage"], usage);
    assert!(pids.iter().all(|pid| !is_alive(pid)), "{pids:?}");
    world.stop().await;
}

#[tokio::test]
async fn instructions_are_the_system_prompt_in_their_order() {
    let world =
        World::start(Codex::new(fake("codex")), |options| options.instructions = Some("three".to_owned())).await;
    let task = with(task("SYSTEM"), "instructions", "one");
    let task = with(task, "context_fragments", json!([{"text": "two"}]));
    let expected = "SYSTEM=one\n\nContext that came with the task:\n\ntwo\n\nthree";
    assert_eq!(ended(&world, &task).await["output"]["text"], expected);
    assert_eq!(std::fs::read_dir(&world.cwd).unwrap().count(), 0);
    world.stop().await;
}

#[tokio::test]
async fn codex_sees_only_what_is_on_the_list_and_the_token_is_no_argument() {
    let world = World::start(Codex::new(fake("codex")), |options| {
        let variables = [("PATH", "/usr/bin:/bin"), ("AWS_SECRET_ACCESS_KEY", "x"), ("CODEX_API_KEY", "k")];
        options.environment = Environment::select(variables, &["CODEX_API_KEY".to_owned()]);
    })
    .await;
    let tools = json!({"url": "http://127.0.0.1:9/mcp", "token": "sesame"});
    let task = with(task("ENV:AWS_SECRET_ACCESS_KEY ENV:CODEX_API_KEY ENV:ATTACHE_TOOLS_TOKEN ARGS"), "mcp", tools);
    let (_, events) = answered(&world, &task, yes).await;
    let said = texts(&events, "chunk", "text").concat();
    let lines: Vec<&str> = said.split("\n\n").collect();
    assert_eq!(lines[..3], ["AWS_SECRET_ACCESS_KEY=unset", "CODEX_API_KEY=k", "ATTACHE_TOOLS_TOKEN=sesame"]);
    assert!(lines[3].starts_with("ARGS=[\"app-server\", \"-c\", "), "{said}");
    assert!(!lines[3].contains("sesame"), "{said}");
    let untrusted = format!("projects={{\\\"{}\\\"={{trust_level=\\\"untrusted\\\"}}}}", world.cwd.display());
    assert!(lines[3].contains(&untrusted), "{said}");
    world.stop().await;
}

#[tokio::test]
async fn a_limit_that_is_not_kept_is_refused() {
    let world = world().await;
    let asked = with(task("WRITE:a.txt"), "sandbox", json!({"allow_network": false}));
    let reply = failure(&ended(&world, &asked).await);
    assert!(reply.starts_with("refused: the run asks for limits that Fake host does not keep"), "{reply}");
    world.stop().await;

    // A program that takes the limits and does not confirm them does not keep them.
    let setup = Setup { enforces: vec![Limit::NoNetwork], ..fake("codex") };
    let world = World::start(Codex::new(setup), |_| {}).await;
    let expected = "refused: Fake host will not do this: it did not take the limits of the run, so nothing was done";
    assert_eq!(failure(&ended(&world, &asked).await), expected);
    assert!(!world.cwd.join("a.txt").exists());
    world.stop().await;
}

#[tokio::test]
async fn a_run_that_may_not_start_programs_is_not_even_asked_about_them() {
    let setup = Setup { enforces: vec![Limit::NoExec], ..fake("codex") };
    let world = World::start(Codex::new(setup), |_| {}).await;
    let task = with(task("RUN:echo hi > b.txt"), "sandbox", json!({"allow_exec": false}));
    let reply = failure(&ended(&world, &task).await);
    let expected = "permission_denied: Fake host was not allowed to do this: shell (the run may not start programs)";
    assert!(reply.starts_with(expected), "{reply}");
    assert!(!world.cwd.join("b.txt").exists());
    world.stop().await;
}

#[tokio::test]
async fn a_conversation_is_taken_up_again_only_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { memory: Memory::PerConversation(folder.path().join("threads")), ..fake("codex") };
    let world = World::start(Codex::new(setup), |_| {}).await;
    let first = task("SAY:first");
    assert_eq!(ended(&world, &first).await["output"]["text"], "first");
    let notes: Vec<_> = std::fs::read_dir(folder.path().join("threads")).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(notes.len(), 1);
    assert_eq!(std::fs::read_to_string(notes[0].path()).unwrap(), "fake-thread-1");
    let second = with(task("SAY:second"), "conversation_id", first["conversation_id"].clone());
    let second = with(second, "workspace_id", first["workspace_id"].clone());
    assert_eq!(ended(&world, &second).await["output"]["text"], "second");
    world.stop().await;
}
