//! What notices say, and when they offer an approval.

use attache_protocol::{
    Json,
    rules::permission::{OnTimeout, PermissionSubject},
    wire::notification::NotificationLanguage,
};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const FULL: NotificationChoices = NotificationChoices {
    approvals: true,
    runs: true,
    detail: NotificationDetail::Full,
    language: NotificationLanguage::English,
};
const TITLE: NotificationChoices = NotificationChoices { detail: NotificationDetail::Title, ..FULL };

fn asked(tool: &str, input: &str) -> PermissionRecord {
    let input = Json::from_text(input.to_owned()).unwrap();
    let id = attache_protocol::env::Env::seeded(1);
    PermissionRecord {
        id: id.permission_id(),
        run: id.run_id(),
        agent: id.agent_id(),
        agent_name: "builder".to_owned(),
        conversation: id.conversation_id(),
        runtime: id.runtime_id(),
        epoch: 1,
        channel: None,
        tool: tool.to_owned(),
        subject: PermissionSubject::of(tool, &input, None, &[]),
        input,
        cwd: None,
        paths: Vec::new(),
        reason: None,
        risk: None,
        diff: None,
        undisclosed: Vec::new(),
        private_agent: false,
        request: None,
        requested_at: NOW,
        expires_at: None,
        on_timeout: OnTimeout::DenyAndHalt,
        state: attache_protocol::rules::permission::PermissionState::Pending,
        used_by: None,
        confirm_approvals: ApprovalConfirmation::None,
        settled: None,
    }
}

fn may_approve(asked: &PermissionRecord, choices: NotificationChoices) -> bool {
    Notice::of_permission(asked, choices, NOW).decision.unwrap().may_approve
}

#[test]
fn a_command_is_shown_whole_or_not_at_all() {
    let asked = PermissionRecord {
        cwd: Some("/src".to_owned()),
        ..asked("Bash", r#"{"description":"publish","command":"make deploy","timeout":10}"#)
    };
    let full = Notice::of_permission(&asked, FULL, NOW);
    assert_eq!(full.title, "builder wants to run a command");
    assert_eq!(full.body.as_deref(), Some("make deploy\ndescription: publish\ntimeout: 10\nin /src"));
    assert_eq!(
        full.decision,
        Some(OfferedDecision { permission: asked.id, subject: digest::hex(&asked.subject.0), may_approve: true })
    );
    let title = Notice::of_permission(&asked, TITLE, NOW);
    assert_eq!((title.title.as_str(), title.body), ("builder wants to run a command", None));
    assert!(!title.decision.unwrap().may_approve, "nobody sees what it would be");
    let chinese = NotificationChoices { language: NotificationLanguage::Chinese, ..TITLE };
    assert_eq!(Notice::of_permission(&asked, chinese, NOW).title, "builder 请求运行命令");
}

#[test]
fn what_is_not_shown_completely_can_only_be_denied() {
    let whole = asked("Bash", r#"{"command":"ls"}"#);
    assert!(may_approve(&whole, FULL));
    let long = format!(r#"{{"command":"ls {}"}}"#, "a".repeat(MAX_BODY));
    for (why, asked) in [
        ("cut", asked("Bash", &long)),
        ("reordered", asked("Bash", "{\"command\":\"ls \u{202e}fr- mr\"}")),
        ("reordered letters", asked("Bash", "{\"command\":\"ls \u{5d0}; rm\"}")),
        ("below what a screen shows", asked("Bash", &format!(r#"{{"command":"ls{}rm x"}}"#, r"\n".repeat(300)))),
        ("beside what a screen shows", asked("Bash", &format!(r#"{{"command":"ls{}; rm x"}}"#, " ".repeat(90)))),
        ("blank letters", asked("Bash", &format!(r#"{{"command":"ls {}; rm x"}}"#, "\u{2800}".repeat(90)))),
        ("a tab", asked("Bash", r#"{"command":"ls\tx"}"#)),
        ("more than a screen shows", asked("Bash", &format!(r#"{{"command":"ls {}"}}"#, "a ".repeat(120)))),
        ("too many lines", asked("Bash", r#"{"command":"ls","a":1,"b":2,"c":3,"d":4}"#)),
        ("an empty value", asked("Bash", r#"{"command":"","script":"x"}"#)),
        ("a tool that isn't shown", asked("Bash\u{200b}", r#"{"command":"ls"}"#)),
        ("a tool that is cut", asked(&"x".repeat(MAX_TITLE + 1), r#"{"command":"ls"}"#)),
        ("invisible", asked("Bash", "{\"command\":\"ls\u{200b}\"}")),
        ("escaped control", asked("Bash", r#"{"command":"ls\u001b[2K"}"#)),
        ("said twice", asked("Bash", r#"{"command":"ls","command":"rm -r /"}"#)),
        ("a diff", PermissionRecord { diff: Some("+a".to_owned()), ..whole.clone() }),
        ("more undisclosed", PermissionRecord { undisclosed: vec!["more paths".to_owned()], ..whole.clone() }),
        (
            "undisclosed paths of what isn't a command",
            PermissionRecord { undisclosed: vec!["paths".to_owned()], ..asked("mcp__files__tidy", r#"{"depth":1}"#) },
        ),
        (
            "an agent whose approvals need a passkey",
            PermissionRecord { confirm_approvals: ApprovalConfirmation::Passkey, ..whole.clone() },
        ),
        ("private", PermissionRecord { private_agent: true, ..whole.clone() }),
        ("a hidden folder name", PermissionRecord { cwd: Some("/a\u{2066}b".to_owned()), ..whole }),
    ] {
        assert!(!may_approve(&asked, FULL), "{why}");
    }
}

/// Characters that take space but show nothing, or show nothing at all, wherever they are.
#[test]
fn no_hidden_character_is_approved() {
    for hidden in
        "\u{a0}\u{ad}\u{34f}\u{115f}\u{17b4}\u{17b5}\u{2000}\u{200a}\u{2800}\u{3000}\u{3164}\u{fe0f}\u{1f600}".chars()
    {
        assert!(!may_approve(&asked("Bash", &format!(r#"{{"command":"ls {hidden} x"}}"#)), FULL), "{hidden:?}");
    }
    assert!(may_approve(&asked("Bash", r#"{"command":"echo 你好 é > a.txt"}"#), FULL));
}

/// As Claude Code and Codex ask.
#[test]
fn a_command_is_approved_although_nobody_knows_its_paths() {
    let undisclosed = vec!["paths".to_owned()];
    let cwd = Some("/src".to_owned());
    for (tool, input, body) in [
        ("Bash", r#"{"command":"ls"}"#, "ls\nin /src"),
        ("shell", r#"{"command":"bash -lc ls","cwd":"/src","sandbox":"on"}"#, "bash -lc ls\nsandbox: on\nin /src"),
        ("shell", r#"{"command":"ls","cwd":"/etc"}"#, "ls\ncwd: /etc\nin /src"),
    ] {
        let asked = PermissionRecord {
            undisclosed: undisclosed.clone(),
            cwd: cwd.clone(),
            paths: Vec::new(),
            ..asked(tool, input)
        };
        assert_eq!(Notice::of_permission(&asked, FULL, NOW).body.as_deref(), Some(body));
        assert!(may_approve(&asked, FULL), "{input}");
    }
}

#[test]
fn a_tool_is_named_whatever_its_input_says() {
    let title = |asked: &PermissionRecord| Notice::of_permission(asked, FULL, NOW).title;
    for (tool, input, expected) in [
        ("mcp__prod__drop_database", r#"{"command":"ls"}"#, "builder wants to use mcp__prod__drop_database"),
        ("mcp__prod__post", r#"{"url":"https://a.example"}"#, "builder wants to use mcp__prod__post"),
        ("shell", r#"{"command":"ls"}"#, "builder wants to run a command"),
        ("WebFetch", r#"{"url":"https://a.example"}"#, "builder wants to open a web page"),
    ] {
        let asked = asked(tool, input);
        assert_eq!((title(&asked).as_str(), may_approve(&asked, FULL)), (expected, true));
    }
}

#[test]
fn a_value_cannot_look_like_other_lines() {
    let body = |asked: &PermissionRecord| Notice::of_permission(asked, FULL, NOW).body.unwrap();
    assert_eq!(body(&asked("Bash", r#"{"command":"ls\nin /src","x\ny":"1"}"#)), "\"ls\\nin /src\"\n\"x\\ny\": 1");
    let folder = PermissionRecord {
        cwd: Some("/a\nb".to_owned()),
        paths: vec!["c\nd".to_owned()],
        ..asked("Bash", r#"{"command":"ls"}"#)
    };
    assert_eq!(body(&folder), "ls\nin \"/a\\nb\"\n\"c\\nd\"");
}

#[test]
fn a_private_or_undisclosed_input_never_leaves_the_hub() {
    let secret = asked("Bash", r#"{"command":"echo hunter2"}"#);
    for asked in [
        PermissionRecord { private_agent: true, ..secret.clone() },
        PermissionRecord { undisclosed: vec!["input".to_owned()], ..secret.clone() },
    ] {
        assert_eq!(Notice::of_permission(&asked, FULL, NOW).body, None);
    }
    assert!(!format!("{:?}", Notice::of_permission(&secret, TITLE, NOW)).contains("hunter2"));
}

#[test]
fn names_stay_on_one_line_and_short() {
    let hostile =
        PermissionRecord { agent_name: "a\nYou won\u{202e}".to_owned(), ..asked(&"x".repeat(500), r#"{"a":1}"#) };
    let title = Notice::of_permission(&hostile, FULL, NOW).title;
    assert!(title.starts_with("a You won\u{fffd} wants to use xxx"), "{title}");
    assert!(!title.contains('\n') && title.chars().count() < 300, "{title}");
}

#[test]
fn a_notice_lasts_no_longer_than_its_request() {
    let soon = PermissionRecord { expires_at: Some(NOW.plus(Duration::from_secs(30))), ..asked("Bash", "{}") };
    assert_eq!(Notice::of_permission(&soon, FULL, NOW).lifetime, Duration::from_secs(30));
    let late = PermissionRecord { expires_at: Some(NOW.plus(Duration::from_secs(1 << 30))), ..soon };
    assert_eq!(Notice::of_permission(&late, FULL, NOW).lifetime, LIFETIME);
}
