//! The driver for agents that speak ACP, against a host that is played.

use attache_adapter::{Environment, Memory, Setup, driver::Acp};
use serde_json::{Value, json};

use crate::{
    hosts::{answer, answered, cancelled, children, failure, fake, no, result, texts, until_told, yes},
    world::{World, task, with},
};

async fn world() -> World {
    World::start(Acp::new(fake("acp")), |_| {}).await
}

/// What a run without questions ends as.
async fn ended(world: &World, task: &Value) -> Value {
    let (questions, events) = answered(world, task, |question| panic!("nobody is to be asked {question}")).await;
    assert_eq!(questions, Vec::<Value>::new());
    result(&events).clone()
}

#[tokio::test]
async fn a_step_is_asked_about_with_all_that_the_agent_tells_and_done_after_a_yes() {
    let world = world().await;
    std::fs::write(world.cwd.join("a.txt"), "old\n").unwrap();
    let (questions, events) = answered(&world, &task("THINK:hm\nPLAN WRITE:a.txt=new"), yes).await;
    let file = world.cwd.join("a.txt").display().to_string();
    let question = json!({
        "id": "q1", "tool": "edit", "input": {"file_path": "a.txt", "content": "new\n"}, "cwd": world.cwd, "paths": [file],
        "reason": "Write a.txt", "risk": "medium", "diff": format!("--- {file}\n+++ {file}\n@@ -1 +1 @@\n-old\n+new\n"),
    });
    assert_eq!(questions, [question]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new\n");
    let usage = json!({"tokens": 18, "cost_usd": 0.001, "cost_source": "reported"});
    let expected = json!({
        "success": true, "output": {"text": "FAKE-OK after tool: wrote a.txt\n", "artifact_refs": []}, "usage": usage,
    });
    assert_eq!(*result(&events), expected);
    assert_eq!(texts(&events, "thought", "text").concat(), "hm");
    assert_eq!(texts(&events, "chunk", "text").concat(), "FAKE-OK after tool: wrote a.txt\n");
    assert_eq!(texts(&events, "tool_call", "status"), ["started", "completed"]);
    let told = [
        "starting Fake host",
        "Fake host works on the task",
        "plan:\n[ ] look\n[ ] do",
        &format!("waiting for approval: edit {file}"),
        "Fake host goes on",
    ];
    assert_eq!(texts(&events, "progress", "message"), told);
    world.stop().await;
}

#[tokio::test]
async fn an_agent_that_would_execute_a_folders_files_is_not_let_in() {
    let setup = Setup { executes: vec![".agent/plugins".into()], ..fake("acp") };
    let world = World::start(Acp::new(setup), |_| {}).await;
    assert_eq!(ended(&world, &task("SAY:hello")).await["success"], true);
    std::fs::create_dir_all(world.cwd.join(".agent/plugins")).unwrap();
    let inside = world.cwd.join("deep/er");
    std::fs::create_dir_all(&inside).unwrap();
    let reply = ended(&world, &with(task("SAY:hello"), "cwd", inside.to_str().unwrap())).await;
    let place = world.cwd.join(".agent/plugins").display().to_string();
    let expected = format!(
        "refused: Fake host would execute what lies in `{place}`, and cannot be told not to, so nothing was started; remove it, \
         or, if you trust the folder, set `executes = []` for fake in presets.toml"
    );
    assert_eq!(failure(&reply), expected);
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
        "permission_denied: Fake host was not allowed to do this: edit {file} (not today). It said: FAKE-OK after tool: denied"
    );
    assert_eq!(failure(result(&events)), expected);
    // What is got done after a no counts.
    let decide = |question: &Value| json!({"approved": question["tool"] == "execute"});
    let (questions, events) = answered(&world, &task("WRITE:a.txt=x\nRUN:echo instead > b.txt"), decide).await;
    assert_eq!(questions.len(), 2);
    assert_eq!(result(&events)["success"], true);
    assert_eq!((world.cwd.join("a.txt").exists(), world.cwd.join("b.txt").exists()), (false, true));
    world.stop().await;
}

#[tokio::test]
async fn what_an_agent_does_not_tell_is_said() {
    let world = world().await;
    let (questions, events) = answered(&world, &task("ASK:mystery"), yes).await;
    let question = json!({
        "id": "q1", "tool": "mystery", "input": {}, "cwd": world.cwd, "reason": "mystery", "risk": "medium",
        "undisclosed": ["input", "paths"],
    });
    assert_eq!(questions, [question]);
    assert_eq!(result(&events)["output"]["text"], "FAKE-OK after tool: may use mystery\n");
    world.stop().await;
}

#[tokio::test]
async fn cancel_ends_everything_at_work_and_while_people_are_asked() {
    let world = world().await;
    for script in ["CHILD SLEEP:600", "CHILD HANG", "CHILD WRITE:a.txt"] {
        let task = task(script);
        let mut events = world.stream(&task).await;
        let pids = children(&mut events, if script.ends_with("HANG") { "HANGING" } else { "\n" }).await;
        if script.contains("WRITE") {
            until_told(&mut events, "progress", "waiting for approval").await;
        }
        cancelled(&world, &task, &pids).await;
    }
    assert!(!world.cwd.join("a.txt").exists());
    world.stop().await;
}

#[tokio::test]
async fn nothing_is_left_of_a_run_that_ended_by_itself() {
    let world = world().await;
    let task = task("CHILD");
    let mut events = world.stream(&task).await;
    let pids = children(&mut events, "\n").await;
    assert_eq!(events.rest().await.last().unwrap().2["success"], true);
    assert!(pids.iter().all(|pid| !crate::world::is_alive(pid)), "{pids:?}");
    world.stop().await;
}

#[tokio::test]
async fn each_end_is_told_apart() {
    let world = world().await;
    let table = [
        ("CRASH", "host_crashed: Fake host was killed by signal 6"),
        ("EXIT:3", "host_crashed: Fake host ended with exit status 3 before it had answered"),
        (
            "GARBAGE",
            "adapter_invalid_reply: Fake host said something that cannot be read: {\"jsonrpc\":\"2.0\",. Its version may be too \
             new or too old",
        ),
        ("REFUSE", "refused: Fake host will not do this"),
        (
            "FAIL:529",
            "model_unreachable: Fake host cannot reach its model: Internal error (API Error: 529 FAKE-FAIL 529). Check the \
             device's network and the host's login",
        ),
    ];
    for (script, expected) in table {
        assert_eq!(failure(&ended(&world, &task(script)).await), expected, "{script}");
    }
    assert_eq!(ended(&world, &task("FAIL:529x1 SAY:at last")).await["output"]["text"], "at last\n");
    world.stop().await;

    let nothing = World::start(Acp::new(Setup::new("none", "None", "no-such-program-here")), |_| {}).await;
    assert!(
        failure(&ended(&nothing, &task("x")).await)
            .starts_with("host_crashed: `no-such-program-here` cannot be started")
    );
    nothing.stop().await;
    let deaf = World::start(Acp::new(Setup::new("true", "True", "true")), |_| {}).await;
    assert_eq!(failure(&ended(&deaf, &task("x")).await), "host_crashed: True ended before it had answered");
    deaf.stop().await;
}

#[tokio::test]
async fn a_banner_is_passed_over() {
    let agent = fake("acp");
    let script = format!("echo Welcome; echo; echo '{{\"level\":\"info\"}}'; exec '{}' acp", agent.program.display());
    let setup = Setup { args: vec!["-c".into(), script.into()], ..Setup::new("sh", "Shell", "sh") };
    let world = World::start(Acp::new(setup), |_| {}).await;
    assert_eq!(ended(&world, &task("SAY:hello")).await["output"]["text"], "hello\n");
    world.stop().await;
}

#[tokio::test]
async fn a_runaway_is_stopped_by_its_budget() {
    let world = world().await;
    let task = with(task("CHILD LOOP TOKENS:89"), "budget", json!({"tokens": 250}));
    let mut events = world.stream(&task).await;
    let pids = children(&mut events, "\n").await;
    let events = events.rest().await;
    let expected = "quota_exceeded: Fake host was stopped because the run's budget is used up: 300 tokens were used of the 250 \
                    that were left for it. Give the run a larger budget, or wait until its quota is filled up again";
    assert_eq!(failure(result(&events)), expected);
    assert_eq!(result(&events)["usage"]["cost_source"], "reported");
    assert!(pids.iter().all(|pid| !crate::world::is_alive(pid)), "{pids:?}");

    let task = with(crate::world::task("LOOP COST:0.1"), "budget", json!({"cost_usd": 0.25}));
    let reply = ended(&world, &task).await;
    assert_eq!(reply["error"]["code"], "quota_exceeded", "{reply}");
    world.stop().await;
}

#[tokio::test]
async fn files_outside_of_the_folder_are_refused_whatever_was_declared() {
    let world = world().await;
    let outside = world.scratch.join("secret");
    std::fs::write(&outside, "secret").unwrap();
    std::os::unix::fs::symlink(&world.scratch, world.cwd.join("link")).unwrap();
    let call = |method: &str, path: &std::path::Path| {
        task(&format!("CALL:fs/{method}_text_file {}", json!({"path": path, "content": "changed"})))
    };
    for path in [outside.clone(), world.cwd.join("../scratch/secret"), world.cwd.join("link/secret")] {
        for method in ["read", "write"] {
            let reply = ended(&world, &call(method, &path)).await;
            let text = reply["output"]["text"].as_str().unwrap();
            assert!(text.starts_with(&format!("FAKE-OK after tool: {}: ", path.display())), "{method}: {text}");
        }
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "secret");
    ended(&world, &call("write", &world.cwd.join("new/a.txt"))).await;
    let reply = ended(&world, &call("read", &world.cwd.join("new/a.txt"))).await;
    assert_eq!(reply["output"]["text"], "FAKE-OK after tool: {\"content\":\"changed\"}\n");
    let reply = ended(&world, &task("CALL:terminal/create {\"command\":\"id\"}")).await;
    assert_eq!(reply["output"]["text"], "FAKE-OK after tool: `terminal/create` is not offered here\n");
    world.stop().await;
}

#[tokio::test]
async fn instructions_come_before_the_task_in_their_order() {
    let world =
        World::start(Acp::new(fake("acp")), |options| options.instructions = Some("SAY:three".to_owned())).await;
    let task = with(task("SAY:four"), "instructions", "SAY:one");
    let task = with(task, "context_fragments", json!([{"text": "SAY:two"}]));
    assert_eq!(ended(&world, &task).await["output"]["text"], "one\ntwo\nthree\nfour\n");
    assert_eq!(std::fs::read_dir(&world.cwd).unwrap().count(), 0);
    world.stop().await;
}

#[tokio::test]
async fn an_agent_sees_only_what_is_on_the_list() {
    let world = World::start(Acp::new(fake("acp")), |options| {
        let variables = [("PATH", "/usr/bin:/bin"), ("AWS_SECRET_ACCESS_KEY", "x"), ("GEMINI_API_KEY", "k")];
        options.environment = Environment::select(variables, &["GEMINI_API_KEY".to_owned()]);
    })
    .await;
    let reply = ended(&world, &task("ENV:AWS_SECRET_ACCESS_KEY ENV:GEMINI_API_KEY ENV:HOME")).await;
    assert_eq!(reply["output"]["text"], "AWS_SECRET_ACCESS_KEY=unset\nGEMINI_API_KEY=k\nHOME=unset\n");
    world.stop().await;
}

#[tokio::test]
async fn a_limit_that_nobody_keeps_is_refused_before_anything_starts() {
    let world = world().await;
    let task = with(task("WRITE:a.txt"), "sandbox", json!({"allow_network": false}));
    let reply = ended(&world, &task).await;
    assert!(failure(&reply).starts_with("refused: the run asks for limits that Fake host does not keep"), "{reply}");
    world.stop().await;
}

#[tokio::test]
async fn a_conversation_is_taken_up_again_only_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { memory: Memory::PerConversation(folder.path().join("sessions")), ..fake("acp") };
    let world = World::start(Acp::new(setup), |_| {}).await;
    let first = task("SAY:first");
    assert_eq!(ended(&world, &first).await["output"]["text"], "first\n");
    let notes: Vec<_> =
        std::fs::read_dir(folder.path().join("sessions")).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(notes.len(), 1);
    assert_eq!(std::fs::read_to_string(notes[0].path()).unwrap(), "fake-session-1");
    let second = with(task("SAY:second"), "conversation_id", first["conversation_id"].clone());
    let second = with(second, "workspace_id", first["workspace_id"].clone());
    // What the agent repeats of the earlier run is not said again.
    assert_eq!(ended(&world, &second).await["output"]["text"], "second\n");
    world.stop().await;
}

#[tokio::test]
async fn a_question_that_is_answered_late_is_answered_all_the_same() {
    let world = world().await;
    let task = task("WRITE:a.txt=x\nSAY:after");
    let mut events = world.stream(&task).await;
    let question = loop {
        let (_, name, data) = events.next().await.unwrap();
        if name == "permission" {
            break data;
        }
    };
    assert!(!world.cwd.join("a.txt").exists());
    answer(&world, &task, &question, &json!({"approved": true})).await;
    assert_eq!(events.rest().await.last().unwrap().2["success"], true);
    assert!(world.cwd.join("a.txt").exists());
    world.stop().await;
}
