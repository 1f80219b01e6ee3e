//! The driver for Claude Code, against a host that is played.

use attache_adapter::{Environment, Limit, Memory, Setup, driver::Claude};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    hosts::{answered, cancelled, failure, fake, no, result, texts, until_told, yes},
    world::{Event, World, is_alive, task, until, with},
};

async fn world() -> World {
    World::start(Claude::new(fake("claude")), |_| {}).await
}

async fn world_of(setup: Setup) -> World {
    World::start(Claude::new(setup), |_| {}).await
}

/// All events of a run without questions.
async fn unasked(world: &World, task: &Value) -> Vec<Event> {
    let (questions, events) = answered(world, task, |question| panic!("nobody is to be asked {question}")).await;
    assert_eq!(questions, Vec::<Value>::new());
    events
}

/// What a run without questions ends as.
async fn ended(world: &World, task: &Value) -> Value {
    result(&unasked(world, task).await).clone()
}

/// All that a run without questions says.
async fn said(world: &World, task: &Value) -> String {
    texts(&unasked(world, task).await, "chunk", "text").concat()
}

#[tokio::test]
async fn a_step_is_asked_about_with_all_that_is_known_and_done_after_a_yes() {
    let world = world().await;
    std::fs::write(world.cwd.join("a.txt"), "old\n").unwrap();
    let (questions, events) = answered(&world, &task("THINK:hm, so\nSAY:I begin\nWRITE:a.txt=new"), yes).await;
    let file = world.cwd.join("a.txt").display().to_string();
    let question = json!({
        "id": "q1", "tool": "Write", "input": {"file_path": file, "content": "new\n"}, "cwd": world.cwd, "paths": [file],
        "reason": "Write a.txt", "risk": "medium", "diff": format!("--- {file}\n+++ {file}\n@@ -1 +1 @@\n-old\n+new\n"),
    });
    assert_eq!(questions, [question]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new\n");
    let usage = json!({
        "tokens": 18, "input_tokens": 11, "output_tokens": 7, "cost_usd": 0.001, "cost_source": "reported",
    });
    let expected = json!({
        "success": true, "output": {"text": "FAKE-OK after tool: wrote a.txt", "artifact_refs": []}, "usage": usage,
    });
    assert_eq!(*result(&events), expected);
    assert_eq!(texts(&events, "thought", "text").concat(), "hm, so");
    // Each text once, although it comes in pieces and whole.
    assert_eq!(texts(&events, "chunk", "text").concat(), "I begin\n\nFAKE-OK after tool: wrote a.txt");
    assert_eq!(texts(&events, "tool_call", "status"), ["started", "completed"]);
    assert_eq!(texts(&events, "tool_call", "title"), ["Write a.txt"]);
    let told = [
        "starting Fake host",
        "Fake host works on the task",
        &format!("waiting for approval: Write {file}"),
        "Fake host goes on",
    ];
    assert_eq!(texts(&events, "progress", "message"), told);
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
        "permission_denied: Fake host was not allowed to do this: Write {file} (not today). It said: FAKE-OK after tool: denied"
    );
    assert_eq!(failure(result(&events)), expected);
    // What is got done after a no counts.
    let decide = |question: &Value| json!({"approved": question["tool"] == "Bash"});
    let (questions, events) = answered(&world, &task("WRITE:a.txt=x\nRUN:echo instead > b.txt"), decide).await;
    assert_eq!((questions.len(), &questions[1]["undisclosed"]), (2, &json!(["paths"])));
    assert_eq!(result(&events)["success"], true);
    assert_eq!((world.cwd.join("a.txt").exists(), world.cwd.join("b.txt").exists()), (false, true));
    // A no of its own rules is one as well.
    let expected = "permission_denied: Fake host was not allowed to do this: Forbidden. It said: FAKE-OK after tool: denied by \
                    the rules of this host";
    assert_eq!(failure(&ended(&world, &task("DENIED")).await), expected);
    world.stop().await;
}

#[tokio::test]
async fn cancel_ends_everything_at_work_and_while_people_are_asked() {
    let world = world().await;
    for script in ["CHILD SLEEP:600", "CHILD HANG", "CHILD WRITE:a.txt"] {
        let task = task(script);
        let mut events = world.stream(&task).await;
        let mut pids = Vec::new();
        if script.ends_with("HANG") {
            let said = until_told(&mut events, "chunk", "HANGING").await;
            pids.extend(said.as_str().unwrap().lines().next().unwrap().split(' ').skip(1).map(str::to_owned));
        } else {
            pids.extend(until_children(&mut events).await);
        }
        if script.contains("WRITE") {
            until_told(&mut events, "progress", "waiting for approval").await;
        }
        cancelled(&world, &task, &pids).await;
    }
    assert!(!world.cwd.join("a.txt").exists());
    world.stop().await;
}

/// The two processes of `CHILD`, which this host tells of without a line break at the end.
async fn until_children(events: &mut crate::world::Events) -> Vec<String> {
    let mut said = String::new();
    loop {
        let (_, name, data) = events.next().await.expect("more of the stream");
        if name == "chunk" {
            said.push_str(data["text"].as_str().unwrap());
        }
        let pids: Vec<String> = said.split_whitespace().skip(1).map(str::to_owned).collect();
        if pids.len() == 2 && pids.iter().all(|pid| is_alive(pid)) {
            return pids;
        }
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_run_that_ended_by_itself() {
    let world = world().await;
    let events = unasked(&world, &task("CHILD")).await;
    assert_eq!(result(&events)["success"], true);
    let said = texts(&events, "chunk", "text").concat();
    let pids: Vec<&str> = said.split_whitespace().skip(1).collect();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| !is_alive(pid)), "{pids:?}");
    world.stop().await;
}

#[tokio::test]
async fn each_end_is_told_apart() {
    let world = world().await;
    let sign_in = "model_unreachable: Fake host cannot reach its model: it is not signed in on this device; start `claude` here \
                   and log in, or set ANTHROPIC_API_KEY for the adapter (API Error: 401 FAKE-FAIL 401.). Check the device's \
                   network and the host's login";
    let table = [
        ("CRASH", "host_crashed: Fake host was killed by signal 6"),
        ("EXIT:3", "host_crashed: Fake host ended with exit status 3 before it had answered"),
        ("REFUSE", "refused: Fake host will not do this: API Error: the safeguards flagged this message"),
        (
            "FAIL:529",
            "model_unreachable: Fake host cannot reach its model: API Error: 529 FAKE-FAIL 529. Check the device's network and \
             the host's login",
        ),
        ("FAIL:401", sign_in),
        ("FAIL:400", "task_failed: Fake host failed: API Error: 400 FAKE-FAIL 400"),
    ];
    for (script, expected) in table {
        assert_eq!(failure(&ended(&world, &task(script)).await), expected, "{script}");
    }
    let garbage = failure(&ended(&world, &task("GARBAGE")).await);
    assert!(garbage.starts_with("adapter_invalid_reply: Fake host said something that cannot be read: "), "{garbage}");
    world.stop().await;

    let nothing = world_of(Setup::new("none", "None", "no-such-program-here")).await;
    let ended_as = failure(&ended(&nothing, &task("x")).await);
    assert!(ended_as.starts_with("host_crashed: `no-such-program-here` cannot be started"), "{ended_as}");
    nothing.stop().await;
    let old = Setup { args: vec!["claude".into(), "--no-such-option".into()], ..fake("claude") };
    let old = world_of(old).await;
    let ended_as = failure(&ended(&old, &task("x")).await);
    let expected = "host_crashed: Fake host ended with exit status 1 before it had answered. The end of its standard error:\n\
                    error: unknown option '--no-such-option'";
    assert_eq!(ended_as, expected);
    old.stop().await;
}

#[tokio::test]
async fn a_model_that_is_tried_again_is_progress() {
    let world = world().await;
    let events = unasked(&world, &task("FAIL:529x2 SAY:at last")).await;
    assert_eq!(result(&events)["output"]["text"], "at last");
    let told = texts(&events, "progress", "message");
    assert_eq!(told[2..], ["model retry 1/2: HTTP 529, server_error", "model retry 2/2: HTTP 529, server_error"]);
    // Closed doors are not knocked at for minutes.
    let reply = failure(&ended(&world, &task("FAIL:401x9 SAY:never")).await);
    assert!(reply.starts_with("model_unreachable: Fake host cannot reach its model: it is not signed in"), "{reply}");
    world.stop().await;
}

#[tokio::test]
async fn a_runaway_is_stopped_by_its_budget() {
    let world = world().await;
    let task = with(task("CHILD LOOP TOKENS:89"), "budget", json!({"tokens": 250}));
    let events = unasked(&world, &task).await;
    let expected = "quota_exceeded: Fake host was stopped because the run's budget is used up: 300 tokens were used of the 250 \
                    that were left for it. Give the run a larger budget, or wait until its quota is filled up again";
    assert_eq!(failure(result(&events)), expected);
    assert_eq!(result(&events)["usage"]["tokens"], 300);
    let said = texts(&events, "chunk", "text").concat();
    assert!(said.split_whitespace().skip(1).all(|pid| !is_alive(pid)), "{said}");

    let task = with(crate::world::task("LOOP COST:0.1"), "budget", json!({"cost_usd": 0.25}));
    let reply = ended(&world, &task).await;
    assert!(failure(&reply).contains("is used up: Reached maximum budget ($0.25)"), "{reply}");
    assert_eq!(reply["usage"]["cost_source"], "reported");

    let task = with(crate::world::task("SAY:never"), "budget", json!({"tokens": 0}));
    let events = unasked(&world, &task).await;
    assert_eq!(result(&events)["error"]["code"], "quota_exceeded");
    assert_eq!(texts(&events, "chunk", "text"), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test]
async fn instructions_are_the_system_prompt_in_their_order_however_long() {
    let world =
        World::start(Claude::new(fake("claude")), |options| options.instructions = Some("three".to_owned())).await;
    let long = "x".repeat(200_000);
    let task = with(task("SYSTEM"), "instructions", format!("one {long}"));
    let task = with(task, "context_fragments", json!([{"text": "two"}]));
    let expected = format!("SYSTEM=one {long}\n\nContext that came with the task:\n\ntwo\n\nthree");
    assert_eq!(said(&world, &task).await, expected);
    assert_eq!(std::fs::read_dir(&world.cwd).unwrap().count(), 0);
    world.stop().await;
}

#[tokio::test]
async fn the_program_sees_only_what_is_on_the_list_and_no_secret_is_an_argument() {
    let world = World::start(Claude::new(fake("claude")), |options| {
        let variables = [("PATH", "/usr/bin:/bin"), ("AWS_SECRET_ACCESS_KEY", "x"), ("ANTHROPIC_API_KEY", "k")];
        options.environment = Environment::select(variables, &["ANTHROPIC_API_KEY".to_owned()]);
    })
    .await;
    let said_of = "ENV:AWS_SECRET_ACCESS_KEY ENV:ANTHROPIC_API_KEY ENV:DISABLE_AUTOUPDATER";
    let expected = "AWS_SECRET_ACCESS_KEY=unset\n\nANTHROPIC_API_KEY=k\n\nDISABLE_AUTOUPDATER=1";
    assert_eq!(said(&world, &task(said_of)).await, expected);
    let tools = json!({"url": "http://127.0.0.1:9/mcp", "token": "sesame"});
    let task = with(with(task("ARGS"), "mcp", tools), "instructions", "a secret plan");
    let arguments = said(&world, &task).await;
    assert!(arguments.contains("--strict-mcp-config") && arguments.contains("--mcp-config"), "{arguments}");
    assert!(arguments.contains(r#""--setting-sources", "user""#), "{arguments}");
    assert!(!arguments.contains("sesame") && !arguments.contains("secret plan"), "{arguments}");
    assert_eq!(std::fs::read_dir(&world.scratch).unwrap().count(), 0);
    world.stop().await;
}

#[tokio::test]
async fn limits_are_passed_on_or_refused() {
    let world = world().await;
    let limited = |script: &str, sandbox: Value| with(task(script), "sandbox", sandbox);
    let reply = ended(&world, &limited("WRITE:a.txt", json!({"allow_network": false}))).await;
    assert!(failure(&reply).starts_with("refused: the run asks for limits that Fake host does not keep"), "{reply}");
    world.stop().await;

    let world = world_of(Setup { enforces: vec![Limit::CwdOnly, Limit::NoExec], ..fake("claude") }).await;
    let arguments = said(&world, &limited("ARGS", json!({"cwd_only": true, "allow_exec": false}))).await;
    let expected =
        r#""--restricted", "--tools", "Agent,Edit,Glob,Grep,NotebookEdit,Read,TodoWrite,Write,WebFetch,WebSearch""#;
    assert!(arguments.contains(expected), "{arguments}");
    let arguments = said(&world, &with(task("ARGS"), "allowed_tools", json!(["read"]))).await;
    assert!(arguments.contains(r#""--tools", "Read""#), "{arguments}");
    let reply = ended(&world, &with(task("SAY:never"), "allowed_tools", json!(["Bash(git *)"]))).await;
    assert_eq!(reply["error"]["code"], "rejected", "{reply}");
    world.stop().await;
}

#[tokio::test]
async fn a_conversation_is_taken_up_again_only_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("sessions");
    let world = world_of(Setup { memory: Memory::PerConversation(sessions.clone()), ..fake("claude") }).await;
    let first = task("ARGS");
    let arguments = said(&world, &first).await;
    assert!(!arguments.contains("--resume") && !arguments.contains("--no-session-persistence"), "{arguments}");
    assert_eq!(std::fs::read_dir(&sessions).unwrap().count(), 1);
    let second = with(task("ARGS"), "conversation_id", first["conversation_id"].clone());
    let second = with(second, "workspace_id", first["workspace_id"].clone());
    let arguments = said(&world, &second).await;
    assert!(arguments.contains(r#""--resume", "6f1f2c9e-5d3c-4a55-9d0e-0c8e3f1f7a11""#), "{arguments}");
    world.stop().await;

    let stateless = crate::claude::world().await;
    assert!(said(&stateless, &task("ARGS")).await.contains("--no-session-persistence"));
    stateless.stop().await;
}

/// Not a test of its own: the process that the next one kills.
#[tokio::test]
#[ignore = "started by `killing_the_adapter_leaves_nothing`"]
async fn an_adapter_that_waits_to_be_killed() {
    let world = world().await;
    let mut events = world.stream(&task("CHILD SLEEP:600")).await;
    let pids = until_children(&mut events).await;
    println!("children {}", pids.join(" "));
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn killing_the_adapter_leaves_nothing() {
    let mut adapter = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "claude::an_adapter_that_waits_to_be_killed"])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(adapter.stdout.take().unwrap()).lines();
    let pids = loop {
        let line = lines.next_line().await.unwrap().expect("a line with the children");
        if let Some((_, pids)) = line.split_once("children ") {
            break pids.split(' ').map(str::to_owned).collect::<Vec<_>>();
        }
    };
    assert_eq!(pids.iter().filter(|pid| is_alive(pid)).count(), 2, "{pids:?}");
    adapter.kill().await.unwrap();
    until("the children are gone", || pids.iter().all(|pid| !is_alive(pid))).await;
}
