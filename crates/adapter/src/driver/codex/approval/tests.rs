//! Tests with questions and answers in the format of the real Codex.

use super::*;

const COMMAND: &str = r#"{"kind":"command","threadId":"t","turnId":"u","itemId":"call_1","startedAtMs":1,"environmentId":"local",
    "reason":"must write there","command":"/bin/bash -lc 'touch /x'","cwd":"/ws","commandActions":[{"type":"unknown","command":
    "touch /x"}],"proposedExecpolicyAmendment":["touch","/x"],"availableDecisions":["accept","cancel"]}"#;

const PATCH: &str = r#"{"threadId":"t","turnId":"u","itemId":"call_2","startedAtMs":1,"reason":null,"grantRoot":null}"#;

const TOOL: &str = r#"{"threadId":"t","turnId":"u","serverName":"files","mode":"form","_meta":{"codex_approval_kind":
    "mcp_tool_call","persist":["session","always"],"tool_description":"d","tool_params":{"to":"x"},"tool_params_display":[]},
    "message":"Allow the files MCP server to run tool \"move\"?","requestedSchema":{"type":"object","properties":{}}}"#;

fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}

fn ask(steps: &mut CodexSteps, method: &str, params: &str, limits: &[SandboxLimit]) -> CodexApprovalRequest {
    steps.approval_request(method, &json(params), Path::new("/ws"), limits).unwrap()
}

fn command(steps: &mut CodexSteps, limits: &[SandboxLimit]) -> CodexApprovalRequest {
    ask(steps, "item/commandExecution/requestApproval", COMMAND, limits)
}

fn called(arguments: &str) -> CodexSteps {
    let mut steps = CodexSteps::default();
    steps.note_raw(CodexRawItem::FunctionCall { call_id: "call_1".to_owned(), arguments: arguments.to_owned() });
    steps
}

fn patched(path: &str) -> CodexSteps {
    let mut steps = CodexSteps::default();
    let change = |path: &str, kind, diff: &str| CodexFileChange { path: path.to_owned(), kind, diff: diff.to_owned() };
    let update = CodexChangeKind::Update { move_path: None };
    let changes =
        vec![change(path, update, "@@ -1 +1 @@\n-old\n+new\n"), change("/ws/b", CodexChangeKind::Add, "hi\n")];
    steps.note(&CodexItem { kind: "fileChange".to_owned(), id: "call_2".to_owned(), changes, ..CodexItem::default() });
    steps
}

#[test]
fn a_command_is_shown_with_all_known_details() {
    let shown = |sandbox: &str| json(&format!(r#"{{"command":"/bin/bash -lc 'touch /x'","cwd":"/ws"{sandbox}}}"#));
    let question = |sandbox: &str, reason: &str, in_folder| ApprovalQuestion {
        input: Some(shown(sandbox)),
        reason: Some(reason.to_owned()),
        risk: ApprovalRisk::High,
        in_folder,
        ..ApprovalQuestion::about("shell")
    };
    let inside = command(&mut called(r#"{"cmd":"touch /x"}"#), &[]);
    let expected = question(r#","sandbox":"on""#, "must write there", true);
    assert_eq!(inside, CodexApprovalRequest { question: expected, form: CodexReplyForm::Decision, forbidden: None });
    let outside = command(&mut called(r#"{"cmd":"touch /x","sandbox_permissions":"require_escalated"}"#), &[]);
    let reason = "it asks to run outside Codex's sandbox: must write there";
    assert_eq!(outside.question, question(r#","sandbox":"off""#, reason, false));
    let reason = "Codex doesn't say whether this runs inside its sandbox: must write there";
    assert_eq!(
        command(&mut CodexSteps::default(), &[]).question,
        question("", reason, false),
        "it may leave the sandbox"
    );
}

#[test]
fn a_run_with_limits_cannot_leave_the_sandbox() {
    let limits = [SandboxLimit::NoNetwork];
    let mut inside = called(r#"{"cmd":"touch /x","sandbox_permissions":"use_default"}"#);
    assert_eq!(command(&mut inside, &limits).forbidden, None);
    assert!(command(&mut inside, &limits).forbidden.is_some(), "asked again, it is to be tried without the sandbox");
    assert!(command(&mut called(r#"{"sandbox_permissions":"require_escalated"}"#), &limits).forbidden.is_some());
    assert!(command(&mut called(r#"{"sandbox_permissions":"something_new"}"#), &limits).forbidden.is_some());
    assert!(command(&mut CodexSteps::default(), &limits).forbidden.is_some());
    assert!(command(&mut called("{}"), &[SandboxLimit::NoExec]).forbidden.is_some());
}

#[test]
fn a_command_that_only_reads_names_its_files() {
    let params = r#"{"itemId":"c","command":"cat a","commandActions":[{"type":"read","command":"cat a","name":"a","path":"/ws/a"},
        {"type":"listFiles","command":"ls","path":null}]}"#;
    let asked = ask(&mut CodexSteps::default(), "item/commandExecution/requestApproval", params, &[]);
    assert_eq!(asked.question.paths, Some(vec!["/ws/a".to_owned()]));
    let hidden = ask(&mut CodexSteps::default(), "item/commandExecution/requestApproval", r#"{"itemId":"c"}"#, &[]);
    assert_eq!((hidden.question.input, hidden.question.paths), (None, None));
}

#[test]
fn a_patch_is_shown_as_a_diff() {
    let asked = ask(&mut patched("/ws/a"), "item/fileChange/requestApproval", PATCH, &[SandboxLimit::CwdOnly]);
    let question = ApprovalQuestion {
        input: Some(json(r#"{"changes":[{"path":"/ws/a","change":"update"},{"path":"/ws/b","change":"add"}]}"#)),
        paths: Some(vec!["/ws/a".to_owned(), "/ws/b".to_owned()]),
        diff: Some(
            "--- /ws/a\n+++ /ws/a\n@@ -1 +1 @@\n-old\n+new\n--- /ws/b\n+++ /ws/b\n@@ -0,0 +1 @@\n+hi\n".to_owned(),
        ),
        edits: true,
        ..ApprovalQuestion::about("apply_patch")
    };
    assert_eq!(asked, CodexApprovalRequest { question, form: CodexReplyForm::Decision, forbidden: None });
    for path in ["/other/a", "/ws/../other", "/wsx/a"] {
        let outside = ask(&mut patched(path), "item/fileChange/requestApproval", PATCH, &[SandboxLimit::CwdOnly]);
        assert!(outside.forbidden.is_some(), "{path}");
    }
    let unknown = ask(&mut CodexSteps::default(), "item/fileChange/requestApproval", PATCH, &[]);
    assert_eq!((unknown.question, unknown.forbidden), (ApprovalQuestion::about("apply_patch"), None));
}

#[test]
fn a_question_about_an_mcp_tool_names_it() {
    let asked = ask(&mut CodexSteps::default(), "mcpServer/elicitation/request", TOOL, &[]);
    let question = ApprovalQuestion {
        input: Some(json(r#"{"to":"x"}"#)),
        reason: Some("Allow the files MCP server to run tool \"move\"?".to_owned()),
        ..ApprovalQuestion::about("mcp__files__move")
    };
    assert_eq!(asked, CodexApprovalRequest { question, form: CodexReplyForm::Elicitation, forbidden: None });
    let form = json(r#"{"serverName":"files","mode":"form","_meta":{},"message":"Your name?","requestedSchema":{}}"#);
    assert_eq!(
        CodexSteps::default().approval_request("mcpServer/elicitation/request", &form, Path::new("/ws"), &[]),
        None
    );
}

#[test]
fn an_approval_is_for_one_time_only() {
    let told =
        |manner: &CodexReplyForm, answer: &ApprovalAnswer| Json::of(&manner.clone().reply(answer)).get().to_owned();
    let params = r#"{"questions":[{"id":"db","header":"DB","question":"Which?","isOther":true,"isSecret":false,
        "options":[{"label":"a","description":"first"}]},{"id":"why","question":"Why?","options":null}]}"#;
    let params = Json::from_text(params).unwrap();
    let (ids, asked) = user_input("item/tool/requestUserInput", &params).unwrap();
    let given = asked.answers(&Json::from_text(r#"[{"text":"1\nbecause"}]"#).unwrap());
    let reply = CodexReplyForm::UserInput(ids).reply(&ApprovalAnswer::Chosen(given));
    let expected = r#"{"answers":{"db":{"answers":["a"]},"why":{"answers":["because"]}}}"#;
    assert_eq!(serde_json::to_string(&reply).unwrap(), expected);
    let secret = Json::from_text(params.get().replace("\"isSecret\":false", "\"isSecret\":true")).unwrap();
    assert_eq!(user_input("item/tool/requestUserInput", &secret), None);

    let no = ApprovalAnswer::Denied { comment: None };
    let table = [
        (CodexReplyForm::Decision, &ApprovalAnswer::Allowed, r#"{"decision":"accept"}"#),
        (CodexReplyForm::Decision, &no, r#"{"decision":"decline"}"#),
        (CodexReplyForm::Decision, &ApprovalAnswer::Stopped, r#"{"decision":"cancel"}"#),
        (CodexReplyForm::Elicitation, &ApprovalAnswer::Allowed, r#"{"action":"accept","content":{}}"#),
        (CodexReplyForm::Elicitation, &no, r#"{"action":"decline","content":null}"#),
    ];
    for (manner, answer, expected) in table {
        assert_eq!(told(&manner, answer), expected);
    }
    let wanted = json(r#"{"network":{"enabled":true}}"#);
    let manner = CodexReplyForm::Permissions(wanted);
    assert_eq!(
        told(&manner, &ApprovalAnswer::Allowed),
        r#"{"permissions":{"network":{"enabled":true}},"scope":"turn"}"#
    );
    assert_eq!(told(&manner, &no), r#"{"permissions":{},"scope":"turn"}"#);
}
