//! The shell driver.

use std::time::Instant;

use attache_adapter::{
    Environment,
    driver::{CommandDriver, ShellDriver},
};
use attache_protocol::env::Env;
use serde_json::{Value, json};

use crate::world::{AdapterWorld, done, failed, in_millis, long_ago, task, task_of, with};

fn text(reply: &Value) -> &str {
    reply["output"]["text"].as_str().unwrap_or_else(|| panic!("no text in {reply}"))
}

fn message(reply: &Value) -> &str {
    reply["error"]["message"].as_str().unwrap_or_else(|| panic!("no message in {reply}"))
}

#[tokio::test]
async fn the_standard_output_is_the_answer() {
    let world = AdapterWorld::shell().await;
    assert_eq!(world.run(&task("echo hello; echo aside >&2; printf end")).await, done("hello\nend"));
    assert_eq!(world.run(&task("cat")).await, json!({"success": true, "output": {"text": "", "artifact_refs": []}}));
    assert_eq!(world.run(&task_of(Env::system().run_id(), json!("echo a bare string"))).await, done("a bare string\n"));
    world.stop().await;
}

#[tokio::test]
async fn a_failure_says_how_the_script_ended() {
    let world = AdapterWorld::shell().await;
    let cases = [
        ("echo so far; echo broken >&2; exit 3", "`sh` exited with status 3. End of its standard error:\nbroken"),
        (
            "echo only this; exit 1",
            "`sh` exited with status 1. Its standard error is empty. End of its output:\nonly this",
        ),
        ("exit 7", "`sh` exited with status 7 without any output"),
        ("kill -9 $$", "`sh` was killed by signal 9 without any output"),
    ];
    for (script, message) in cases {
        assert_eq!(world.run(&task(script)).await, failed("task_failed", message), "{script}");
    }
    let missing = world.run(&task("no-such-program-here")).await;
    assert!(message(&missing).contains("exited with status 127") && message(&missing).contains("no-such-program-here"));
    world.stop().await;
}

#[tokio::test]
async fn a_task_without_text_is_rejected() {
    let world = AdapterWorld::shell().await;
    let expected = failed("rejected", "the task has no text; create it with an input like {\"text\":\"uname -a\"}");
    for input in [json!({}), json!({"text": " \n"}), json!({"text": 7}), json!(null), json!([]), json!("")] {
        assert_eq!(world.run(&task_of(Env::system().run_id(), input)).await, expected);
    }
    let zero = failed("rejected", "can't start `sh`: the task's text or instructions contain a NUL character");
    assert_eq!(world.run(&task("echo a\0b")).await, zero);
    world.stop().await;
}

#[tokio::test]
async fn the_environment_is_an_allow_list_and_names_the_run() {
    let own = Environment::select(
        [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("ADAPTER_TOKEN", "hush"), ("PROXY", "p")],
        &["PROXY".to_owned()],
    );
    let world = AdapterWorld::start(ShellDriver, |options| {
        options.environment = own;
        options.instructions = Some("You are terse.".to_owned());
    })
    .await;
    let script =
        "for name in $(env | cut -d= -f1 | sort); do case $name in PWD|OLDPWD|SHLVL|_) ;; *) echo $name;; esac; done";
    let names = world.run(&task(script)).await;
    let expected = "ATTACHE_ARTIFACTS\nATTACHE_CONVERSATION_ID\nATTACHE_INSTRUCTIONS\nATTACHE_TASK_RUN_ID\n\
                    ATTACHE_WORKSPACE_ID\nGIT_CONFIG_PARAMETERS\nGIT_PROXY_COMMAND\nLC_ALL\nPATH\nPROXY\n";
    assert_eq!(names, done(expected));

    let show =
        "echo $ATTACHE_TASK_RUN_ID $ATTACHE_CONVERSATION_ID $ATTACHE_WORKSPACE_ID; printf %s \"$ATTACHE_INSTRUCTIONS\"";
    let task = with(task(show), "instructions", "Count in binary.");
    let ids = ["task_run_id", "conversation_id", "workspace_id"].map(|name| task[name].as_str().unwrap()).join(" ");
    assert_eq!(world.run(&task).await, done(&format!("{ids}\nCount in binary.\n\nYou are terse.")));
    world.stop().await;

    let world = AdapterWorld::shell().await;
    assert_eq!(world.run(&crate::world::task("echo ${ATTACHE_INSTRUCTIONS-none}")).await, done("none\n"));
    world.stop().await;
}

#[tokio::test]
async fn the_working_directory_is_the_requests_or_the_adapters() {
    let world = AdapterWorld::shell().await;
    let below = world.cwd.join("below");
    std::fs::create_dir(&below).unwrap();
    let (own, below) = (world.cwd.to_str().unwrap(), below.to_str().unwrap());
    assert_eq!(world.run(&task("pwd")).await, done(&format!("{own}\n")));
    assert_eq!(world.run(&with(task("pwd"), "cwd", below)).await, done(&format!("{below}\n")));
    assert_eq!(world.run(&with(task("pwd"), "cwd", "below")).await, done(&format!("{below}\n")));
    let missing =
        format!("the working folder `{own}/missing` doesn't exist on this device; create it or set another `cwd`");
    assert_eq!(world.run(&with(task("pwd"), "cwd", "missing")).await, failed("task_failed", &missing));
    world.stop().await;
}

#[tokio::test]
async fn output_and_errors_are_capped() {
    let world = AdapterWorld::shell().await;
    let reply = world.run(&task("head -c 3000000 /dev/zero | tr '\\0' x")).await;
    assert!(text(&reply) == "x".repeat(1_048_576), "{} bytes", text(&reply).len());
    // The full output is in a file that is handed over.
    assert_eq!(reply["output"]["full_output"], json!({"bytes": 3_000_000, "artifact_index": 0}));
    let file = &reply["output"]["artifact_refs"][0];
    assert_eq!((&file["name"], &file["media_type"]), (&json!("output.txt"), &json!("text/plain; charset=utf-8")));
    assert_eq!(std::fs::read(file["path"].as_str().unwrap()).unwrap(), vec![b'x'; 3_000_000]);

    let reply = world.run(&task("head -c 200000 /dev/zero | tr '\\0' y >&2; echo last >&2; exit 1")).await;
    let start = "`sh` exited with status 1. End of its standard error:\n[attache: the last 65536 of 200005 bytes]\n";
    assert!(message(&reply) == format!("{start}{}last", "y".repeat(65_536 - 5)), "{} bytes", message(&reply).len());
    world.stop().await;
}

#[tokio::test]
async fn the_json_form_is_capped_too() {
    let world = AdapterWorld::shell().await;
    let reply = world.run(&task("head -c 700000 /dev/zero")).await;
    // Six bytes each in JSON, within 3 MiB minus the room for the rest.
    assert!(text(&reply) == "\0".repeat(524_117), "{} bytes", text(&reply).len());
    assert_eq!(reply["output"]["full_output"]["bytes"], 700_000);
    assert!(reply.to_string().len() < 3 << 20, "{} bytes", reply.to_string().len());
    world.stop().await;
}

#[tokio::test]
async fn a_script_can_start_with_a_dash() {
    let world = AdapterWorld::shell().await;
    for (script, name) in [("-n foo", "-n"), ("-c id", "-c")] {
        let reply = world.run(&task(script)).await;
        assert!(message(&reply).contains("exited with status 127"), "{reply}");
        assert!(message(&reply).contains(&format!("{name}: ")) && message(&reply).contains("not found"), "{reply}");
    }
    world.stop().await;
}

#[tokio::test]
async fn output_that_is_not_utf8_is_replaced() {
    let world = AdapterWorld::shell().await;
    let reply = world.run(&task("printf 'a\\377b\\303'")).await;
    assert_eq!(text(&reply), "a\u{fffd}b\u{fffd}");
    // The original bytes are handed over.
    let file = reply["output"]["artifact_refs"][0]["path"].as_str().unwrap();
    assert_eq!(std::fs::read(file).unwrap(), b"a\xffb\xc3");
    world.stop().await;
}

#[tokio::test]
async fn a_script_may_be_longer_than_an_argument() {
    let world = AdapterWorld::shell().await;
    let script = format!(": '{}'\necho done", "x".repeat(500_000));
    assert_eq!(world.run(&task(&script)).await, done("done\n"));
    let long = world.run(&with(task("echo"), "instructions", "x".repeat(500_000))).await;
    let expected = "can't start `sh`: its arguments and environment are too long for the system; shorten the \
                    task's text or the instructions (each at most 130048 bytes)";
    assert_eq!(long, failed("rejected", expected));
    world.stop().await;
}

#[tokio::test]
async fn the_deadline_ends_a_run() {
    let world = AdapterWorld::shell().await;
    let expected =
        failed("timed_out", "the run's deadline passed; every process it started on this device was stopped");
    let started = Instant::now();
    let late = with(task("sleep 600; echo never"), "deadline", in_millis(200));
    assert_eq!(world.run(&late).await, expected);
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());

    let over = with(task("touch started"), "deadline", long_ago());
    assert_eq!(world.run(&over).await, expected);
    assert!(!world.cwd.join("started").exists());
    assert_eq!(world.run(&with(task("echo in time"), "deadline", in_millis(60_000))).await, done("in time\n"));
    world.stop().await;
}

#[tokio::test]
async fn the_private_folder_is_removed() {
    let world = AdapterWorld::shell().await;
    let mode =
        world.run(&task("stat -c %a $(dirname $ATTACHE_ARTIFACTS); touch $(dirname $ATTACHE_ARTIFACTS)/more")).await;
    assert_eq!(mode, done("700\n"));
    assert_eq!(std::fs::read_dir(&world.scratch).unwrap().count(), 0);
    let gone = world.scratch.clone();
    std::fs::remove_dir(&gone).unwrap();
    let reply = world.run(&task("echo")).await;
    assert_eq!(reply["error"]["code"], "host_crashed");
    assert!(message(&reply).contains(gone.to_str().unwrap()), "{reply}");
    world.stop().await;
}

#[tokio::test]
async fn unenforceable_limits_are_refused_before_the_start() {
    let world = AdapterWorld::shell().await;
    let command = AdapterWorld::start(CommandDriver::new("sh", ["-c", "touch started"]), |_| {}).await;
    for (world, label) in [(&world, "the shell"), (&command, "`sh`")] {
        for (sandbox, limit) in [
            (json!({"cwd_only": true}), "only its folder (cwd_only)"),
            (json!({"allow_network": false}), "no network (allow_network: false)"),
            (json!({"allow_exec": false}), "no programs (allow_exec: false)"),
        ] {
            let reply = world.run(&with(task("touch started"), "sandbox", sandbox)).await;
            let expected = format!(
                "{label} can't enforce these limits on this device: {limit}, so the task was not started; remove the limits, \
                 or use an agent that enforces them"
            );
            assert_eq!(reply, failed("refused", &expected));
        }
        assert!(!world.cwd.join("started").exists());
        assert_eq!(world.run(&with(task("true"), "sandbox", json!({"allow_network": true}))).await["success"], true);
    }
    world.stop().await;
    command.stop().await;
}

/// What somebody put into a folder of `PATH` that lies in the working folder is started neither for the person's own runs
/// nor by the adapter itself, which asks git about the folder's settings.
#[tokio::test]
async fn no_program_of_the_working_folder_is_started_for_a_run() {
    let world = AdapterWorld::start(ShellDriver, |options| {
        let folder = options.cwd.join(".venv/bin");
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["git", "sh"] {
            let program = folder.join(name);
            let text =
                format!("#!/bin/sh\necho $0 >> {}/planted\nexec /usr/bin/{name} \"$@\"\n", options.cwd.display());
            std::fs::write(&program, text).unwrap();
            std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let path = format!("./.venv/bin:{}:/usr/bin:/bin", folder.display());
        options.environment = Environment::select([("PATH", path)], &[]);
    })
    .await;
    assert_eq!(world.run(&task("echo $0")).await, done("sh\n"));
    assert_eq!(std::fs::read_to_string(world.cwd.join("planted")).unwrap_or_default(), "");
    // The run itself gets the path as it is.
    assert_eq!(world.run(&task("git --version > /dev/null; cat planted")).await, done("./.venv/bin/git\n"));
    world.stop().await;
}

/// Somebody else's run can have left a repository there whose files are anywhere else.
#[tokio::test]
async fn git_reads_no_files_of_another_folder() {
    let world = AdapterWorld::shell().await;
    let (work, elsewhere) = (world.cwd.join("work"), world.cwd.join("elsewhere"));
    for folder in [&work, &elsewhere] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::write(elsewhere.join("profile"), "SECRET\n").unwrap();
    let person = |script: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script]).current_dir(&work).status().unwrap().success()
    };
    assert!(person("git init -q . && git config core.worktree ../../elsewhere"));
    let reply = world.run(&with(task("git add -A 2>&1; true"), "cwd", work.to_str().unwrap())).await;
    assert!(text(&reply).contains("GIT_CONFIG_PARAMETERS"), "{reply}");
    let stored = "git --git-dir=.git --work-tree=. cat-file -e $(git hash-object --no-filters ../elsewhere/profile)";
    assert!(!person(stored), "a file of another folder is in the repository");
    world.stop().await;
}
