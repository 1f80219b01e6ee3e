//! The exec driver, against a fake host.

use attache_adapter::{
    HostSetup,
    driver::ExecDriver,
    preset::{ExecOutputRules, PresetTable},
};
use serde_json::{Value, json};

use crate::{
    hosts::{failure, fake, result, texts},
    world::{AdapterWorld, task, with},
};

/// Output rules for the fake host's JSON lines.
pub(crate) const LINES: &str = r#"
format = "jsonl"
counts = "step"
[[read]]
when = { "/type" = "text" }
chunk = "/text"
[[read]]
when = { "/type" = "thinking" }
thought = "/text"
[[read]]
when = { "/type" = "tool" }
tool = "/name"
tool_id = "/id"
tool_input = "/input"
[[read]]
when = { "/type" = "tool_result" }
tool_id = "/id"
tool_output = "/text"
[[read]]
when = { "/type" = "usage" }
input_tokens = "/input_tokens"
output_tokens = "/output_tokens"
cost_usd = "/cost_usd"
[[read]]
when = { "/type" = "result" }
text = "/text"
failed = "/is_error"
"#;

pub(crate) fn shape(text: &str) -> ExecOutputRules {
    toml::from_str(text).unwrap()
}

/// `sh -c script`, with output in the given form.
async fn script(script: &str, form: &str) -> AdapterWorld {
    let setup = HostSetup { args: vec!["-c".into(), script.into()], ..HostSetup::new("sh", "Script", "sh") };
    AdapterWorld::start(ExecDriver::new(setup, shape(form)), |_| {}).await
}

#[tokio::test]
async fn cursor_output_is_read_by_its_preset() {
    let row = PresetTable::parse("").unwrap().get("cursor").unwrap().clone();
    let mut setup = fake("cursor");
    setup.args.extend(row.args.iter().map(Into::into));
    let world = AdapterWorld::start(ExecDriver::new(setup, row.output.clone()), |_| {}).await;
    let events = world.stream(&task("THINK:hm\nRUN:echo hi")).await.rest().await;
    let expected = json!({"success": true, "output": {"text": "FAKE-OK after tool: hi", "artifact_refs": []}});
    assert_eq!(*result(&events), expected);
    assert_eq!(texts(&events, "tool_call", "name"), ["shellToolCall", "shellToolCall"]);
    assert_eq!(texts(&events, "tool_call", "status"), ["started", "completed"]);
    assert_eq!(texts(&events, "thought", "text").concat(), "hm");
    let failed = world.run(&task("FAIL:500")).await;
    let expected = "model_unreachable: Fake host can't reach its model: it exited with status 1: The model answered 500; \
                    retry 1/2\nThe model answered 500; retry 2/2\nthe model cannot be reached: 500. Check the device's \
                    network and the host's login";
    assert_eq!(failure(&failed), expected);
    world.stop().await;
}

#[tokio::test]
async fn text_is_the_answer_and_usage_comes_from_a_file() {
    let setup = HostSetup {
        args: ["-c", "printf '%s' \"$1\"; echo '{\"in\":3,\"out\":4}' > \"$2\"", "sh", "{prompt}", "{usage_file}"]
            .map(Into::into)
            .to_vec(),
        ..HostSetup::new("sh", "Script", "sh")
    };
    let form = "[[usage_file]]\ninput_tokens = \"/in\"\noutput_tokens = \"/out\"\n";
    let world = AdapterWorld::start(ExecDriver::new(setup, shape(form)), |options| {
        options.instructions = Some("be brief".to_owned());
    })
    .await;
    let usage = json!({"tokens": 7, "input_tokens": 3, "output_tokens": 4, "cost_source": "unknown"});
    let text = "<instructions>\nbe brief\n</instructions>\n\n$(id) {cwd}";
    let expected = json!({"success": true, "output": {"text": text, "artifact_refs": []}, "usage": usage});
    assert_eq!(world.run(&task("$(id) {cwd}")).await, expected);
    assert_eq!(std::fs::read_dir(&world.scratch).unwrap().count(), 0);
    world.stop().await;

    let plain = AdapterWorld::start(ExecDriver::new(fake("text"), ExecOutputRules::default()), |_| {}).await;
    assert_eq!(plain.run(&task("SAY:hello")).await["output"]["text"], "hello\n");
    plain.stop().await;
}

#[tokio::test]
async fn a_pipe_in_place_of_the_usage_file_does_not_block() {
    let args = ["-c", "mkfifo \"$1\"; echo done", "sh", "{usage_file}"].map(Into::into).to_vec();
    let setup = HostSetup { args, ..HostSetup::new("sh", "Script", "sh") };
    let world = AdapterWorld::start(ExecDriver::new(setup, shape("[[usage_file]]\ntokens = \"/in\"\n")), |_| {}).await;
    let expected = json!({"success": true, "output": {"text": "done\n", "artifact_refs": []}});
    assert_eq!(world.run(&task("x")).await, expected);
    world.stop().await;
}

#[tokio::test]
async fn a_document_is_read_when_it_is_complete() {
    let row = PresetTable::parse("").unwrap().get("openclaw").unwrap().clone();
    let said = "echo 'Loading plugins'; echo '[plugins] up'; cat >/dev/null; printf '{\\n \"ok\": true, \"final\": \"fine\",\\n';
        echo '\"usage\":{\"input\":3,\"output\":4,\"total\":9},\"costUsd\":0.5}'; echo '[plugins] down'";
    let setup = HostSetup { args: vec!["-c".into(), said.into()], ..HostSetup::new("sh", "Script", "sh") };
    let world = AdapterWorld::start(ExecDriver::new(setup, row.output.clone()), |_| {}).await;
    let usage = json!({"tokens": 9, "input_tokens": 3, "output_tokens": 4, "cost_usd": 0.5, "cost_source": "reported"});
    let expected = json!({"success": true, "output": {"text": "fine", "artifact_refs": []}, "usage": usage});
    assert_eq!(world.run(&task("x")).await, expected);
    world.stop().await;
}

#[tokio::test]
async fn each_outcome_is_distinguished() {
    let text = "";
    let document = "format = \"json\"\n[[read]]\ntext = \"/text\"\nerror = \"/error\"\n";
    let table = [
        ("true", text, "task_failed: Script failed: it exited without any output"),
        ("echo no >&2; exit 2", text, "task_failed: Script failed: it exited with status 2: no"),
        ("kill -SEGV $$", text, "host_crashed: Script was killed by signal 11"),
        ("true", document, "task_failed: Script failed: its output ended without an answer"),
        ("echo '{\"error\":\"no such model\"}'", document, "task_failed: Script failed: no such model"),
        (
            "echo '{\"error\":\"connect ECONNREFUSED\"}'; exit 1",
            document,
            "model_unreachable: Script can't reach its model: it exited with status 1: connect ECONNREFUSED. Check the \
             device's network and the host's login",
        ),
        (
            "echo oops",
            document,
            "adapter_invalid_reply: Script sent unreadable output: oops. Its version may be too new or too old",
        ),
    ];
    for (said, form, expected) in table {
        let world = script(said, form).await;
        assert_eq!(failure(&world.run(&task("x")).await), expected, "{said}");
        world.stop().await;
    }
}

#[tokio::test]
async fn limits_become_arguments_or_a_refusal() {
    let limits = [(attache_adapter::SandboxLimit::NoNetwork, vec!["--offline".to_owned()])].into();
    let exec = ExecDriver::new(fake("text"), ExecOutputRules::default()).with_limits(limits);
    let world = AdapterWorld::start(exec, |_| {}).await;
    let limited = |sandbox: Value| with(task("ARGS"), "sandbox", sandbox);
    let reply = world.run(&limited(json!({"allow_network": false}))).await;
    assert_eq!(reply["output"]["text"], "ARGS=[\"--offline\"]\n");
    let reply = world.run(&limited(json!({"cwd_only": true}))).await;
    assert!(failure(&reply).starts_with("refused: Fake host can't enforce these limits on this device"), "{reply}");
    world.stop().await;
}

/// Rows a person might write for programs that also have another protocol.
pub(crate) const ROWS: &str = r#"
[hermes_text]
driver = "exec"
args = ["-z", "{prompt}", "--usage-file", "{usage_file}"]
env = ["HERMES_HOME"]
[[hermes_text.output.usage_file]]
tokens = "/total_tokens"
input_tokens = "/input_tokens"
output_tokens = "/output_tokens"
failed = "/failed"
[[hermes_text.output.usage_file]]
when = { "/cost_status" = "estimated" }
estimated_cost_usd = "/estimated_cost_usd"

[gemini_stream]
driver = "exec"
args = ["-p", "{prompt}", "-o", "stream-json", "--skip-trust", "--approval-mode", "auto_edit"]
env = ["GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"]
[gemini_stream.output]
format = "jsonl"
[[gemini_stream.output.read]]
when = { "/type" = "message", "/role" = "assistant" }
chunk = "/content"
[[gemini_stream.output.read]]
when = { "/type" = "tool_use" }
tool = "/tool_name"
tool_id = "/tool_id"
tool_input = "/parameters"
[[gemini_stream.output.read]]
when = { "/type" = "tool_result" }
tool_id = "/tool_id"
tool_output = "/status"
[[gemini_stream.output.read]]
when = { "/type" = "result" }
tokens = "/stats/total_tokens"
input_tokens = "/stats/input_tokens"
output_tokens = "/stats/output_tokens"
error = "/error/message"

[qwen_stream]
driver = "exec"
args = ["--auth-type", "openai", "-o", "stream-json", "--approval-mode", "auto-edit", "{prompt}"]
env = ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"]
[qwen_stream.output]
format = "jsonl"
[[qwen_stream.output.read]]
when = { "/type" = "assistant" }
chunk = "/message/content/*/text"
thought = "/message/content/*/thinking"
tool = "/message/content/*/name"
tool_id = "/message/content/*/id"
tool_input = "/message/content/*/input"
[[qwen_stream.output.read]]
when = { "/type" = "user" }
tool_id = "/message/content/*/tool_use_id"
tool_output = "/message/content/*/content"
[[qwen_stream.output.read]]
when = { "/type" = "result" }
text = "/result"
failed = "/is_error"
tokens = "/usage/total_tokens"
input_tokens = "/usage/input_tokens"
output_tokens = "/usage/output_tokens"
cost_usd = "/total_cost_usd"
"#;

/// Prints recorded output and reads it by the rules of a row.
async fn played(row: &str, printed: &str) -> (Value, Vec<String>) {
    let row = PresetTable::parse(ROWS).unwrap().get(row).unwrap().clone();
    let print = format!("cat <<'END'\n{printed}\nEND");
    let setup = HostSetup { args: vec!["-c".into(), print.into()], ..HostSetup::new("sh", "Script", "sh") };
    let world = AdapterWorld::start(ExecDriver::new(setup, row.output.clone()), |_| {}).await;
    let events = world.stream(&task("x")).await.rest().await;
    world.stop().await;
    (result(&events).clone(), texts(&events, "tool_call", "status"))
}

#[tokio::test]
async fn a_custom_row_reads_gemini_and_qwen_output() {
    let usage = json!({"tokens": 54, "input_tokens": 33, "output_tokens": 21, "cost_source": "unknown"});
    let done = |text: &str| json!({"success": true, "output": {"text": text, "artifact_refs": []}, "usage": usage});
    let gemini = r#"{"type":"init","session_id":"s","model":"auto"}
{"type":"message","role":"user","content":"x"}
{"type":"tool_use","tool_name":"write_file","tool_id":"w1","parameters":{"file_path":"b.txt","content":"hi\n"}}
{"type":"tool_result","tool_id":"w1","status":"success"}
{"type":"message","role":"assistant","content":"all ","delta":true}
{"type":"message","role":"assistant","content":"done","delta":true}
{"type":"result","status":"success","stats":{"total_tokens":54,"input_tokens":33,"output_tokens":21}}"#;
    let both = vec!["started".to_owned(), "completed".to_owned()];
    assert_eq!(played("gemini_stream", gemini).await, (done("all done"), both.clone()));
    let failed =
        r#"{"type":"result","status":"error","error":{"type":"Error","message":"fetch failed sending request"}}"#;
    assert!(failure(&played("gemini_stream", failed).await.0).starts_with("model_unreachable: "));
    let qwen = r#"{"type":"system","subtype":"init"}
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"c","name":"write_file","input":{"file_path":"c.txt"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c","is_error":false,"content":"written"}]}}
{"type":"assistant","message":{"content":[{"type":"text","text":"all done"}]}}
{"type":"result","subtype":"success","is_error":false,"result":"all done","usage":{"input_tokens":33,"output_tokens":21,"total_tokens":54}}"#;
    assert_eq!(played("qwen_stream", qwen).await, (done("all done"), both));
}
