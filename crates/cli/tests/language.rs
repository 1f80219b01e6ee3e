//! The command line in Chinese: the real binary with `--lang zh`, `ATTACHE_LANG` and a Chinese locale.

use serde_json::json;

use crate::harness::{TestHome, TestHub};

/// A home whose locale is Chinese.
fn chinese_home() -> TestHome {
    let mut home = TestHome::new();
    home.set("LANG", "zh_CN.UTF-8");
    home
}

/// The lines that a program printed.
fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// A simulated device that claimed the agent's next run: its token, the run and its epoch.
#[track_caller]
fn claimed(hub: &TestHub, agent: &str) -> (String, String, i64) {
    let device = hub.attach(&hub.pairing_code(agent));
    let token = device["runtime_token"].as_str().unwrap().to_owned();
    let id = device["agent_id"].as_str().unwrap();
    let beat = json!({ "agent_id": id, "running": [] });
    hub.worker(&token, "POST", "/api/v1/agent-runtimes/runtime/heartbeat", &beat).expect(200);
    let path = format!("/api/v1/agent-accounts/{id}/task-runs/pull?wait_ms=20000");
    let run = hub.worker(&token, "POST", &path, &json!({})).expect(200).json()["task_run"].clone();
    (token, run["task_run_id"].as_str().unwrap().to_owned(), run["epoch"].as_i64().unwrap())
}

#[test]
fn the_help_is_in_chinese() {
    let home = TestHome::new();
    let help = home.attache(&["--help", "--lang", "zh"]).succeeds().stdout;
    let start: Vec<&str> = help.lines().take(6).collect();
    assert_eq!(
        start,
        [
            "让任意机器上的智能体为你工作；一切都看得到、批得了、停得下、算得清",
            "",
            "用法：attache [选项] <命令>",
            "",
            "开始使用：",
            "  up             在本机启动全部组件：Hub、控制台和名为 `local` 的 Shell 智能体",
        ]
    );
    for line in [
        "智能体与设备：",
        "  ask            把任务交给智能体，并跟踪到结束",
        "  approvals      查看并处理智能体的审批请求",
        "选项：",
        "      --lang <en|zh>  消息和帮助的语言 [默认值：$ATTACHE_LANG，或系统区域设置]",
        "  -h, --help          显示帮助",
        "示例：",
        "退出码：0 成功，1 失败，2 用法错误，3 未找到，4 被拒绝，5 无法连接，6 部分完成，124 超时。",
    ] {
        assert!(help.lines().any(|shown| shown == line), "{line:?} is missing in:\n{help}");
    }
    // The locale says the same as the option, and the option is stronger than the locale.
    let home = chinese_home();
    assert_eq!(home.attache(&["--help"]).succeeds().stdout, help);
    let english = home.attache(&["--help", "--lang=en"]).succeeds().stdout;
    assert!(english.starts_with("Put agents on any machine to work"), "{english}");
    let mut variable = TestHome::new();
    variable.set("ATTACHE_LANG", "zh");
    assert_eq!(variable.attache(&["--help"]).succeeds().stdout, help);
}

#[test]
fn the_help_of_a_command_is_in_chinese() {
    let help = chinese_home().attache(&["ask", "--help"]).succeeds().stdout;
    assert!(
        help.starts_with("把任务交给智能体，并跟踪到结束\n\n用法：attache ask [选项] <AGENT> <TASK>\n\n参数：\n"),
        "{help}"
    );
    for heading in ["选项：", "Hub：", "示例："] {
        assert!(help.lines().any(|shown| shown == heading), "{heading:?} is missing in:\n{help}");
    }
    assert!(help.contains("智能体的名称或 ID，或只有一个智能体具备的技能"), "{help}");
    assert!(!help.contains("Options:") && !help.contains("Usage:") && !help.contains("Print help"), "{help}");
}

#[test]
fn usage_errors_are_in_chinese() {
    let home = chinese_home();
    let unknown = home.attache(&["ask", "local", "hi", "--no-wiat"]).exits(2);
    assert_eq!(
        lines(&unknown.stderr),
        [
            "错误：不认识的参数 '--no-wiat'",
            "",
            "  提示：有一个相近的参数：'--no-wait'",
            "",
            "用法：attache ask --no-wait <AGENT> <TASK>",
            "",
            "如需更多信息，请使用 '--help'。",
        ]
    );
    let missing = home.attache(&["ask", "local"]).exits(2);
    assert_eq!(
        lines(&missing.stderr),
        [
            "错误：缺少以下必需的参数：",
            "  <TASK>",
            "",
            "用法：attache ask <AGENT> <TASK>",
            "",
            "如需更多信息，请使用 '--help'。",
        ]
    );
    let command = home.attache(&["aks"]).exits(2);
    assert!(
        command.stderr.starts_with("错误：不认识的命令 'aks'\n\n  提示：有一个相近的命令：'keys'\n"),
        "{}",
        command.stderr
    );
    let value = home.attache(&["ask", "local", "hi", "--run-timeout", "soon"]).exits(2);
    let first = value.stderr.lines().next().unwrap();
    assert_eq!(first, "错误：'--run-timeout <TIME>' 的值 'soon' 无效：应为 90s、30m、8h 或 7d 这样的时长");
    let language = home.attache(&["runs", "--lang", "fr"]).exits(2);
    assert!(
        language.stderr.starts_with("错误：'--lang <en|zh>' 的值 'fr' 无效\n  [可选值：en, zh]\n"),
        "{}",
        language.stderr
    );
}

#[test]
fn an_unreachable_hub_is_told_in_chinese_with_the_same_exit_code() {
    let home = chinese_home();
    let ran = home.attache(&["runs", "--hub", "http://127.0.0.1:9"]).exits(5);
    let told = lines(&ran.stderr);
    assert!(told[0].starts_with("错误：无法连接位于 http://127.0.0.1:9 的 Hub："), "{}", ran.stderr);
    assert_eq!(
        told[1..],
        ["  → Hub 是否在运行？请用 `attache up` 启动一个，或用 --hub 指定其他 Hub。运行 `attache doctor` 查看详情。"]
    );
    let none = home.attache(&["agents"]).exits(5);
    assert_eq!(
        lines(&none.stderr),
        ["错误：本机没有正在运行的 Hub", "  → 请用 `attache up` 启动一个，或用 --hub URL 或 ATTACHE_URL 指定 Hub。"]
    );
}

/// What programs read doesn't depend on the locale.
#[test]
fn json_and_its_errors_stay_english() {
    let home = chinese_home();
    let ran = home.attache(&["agents", "--json", "--lang", "zh"]).exits(5);
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(error["error"]["message"], "no hub is running on this machine");
    let wrong = home.attache(&["agents", "--json", "--nonsense"]).exits(2);
    let error: serde_json::Value = serde_json::from_str(&wrong.stderr).unwrap();
    assert_eq!(error["error"]["message"], "unexpected argument '--nonsense' found");
    let script = home.attache(&["completions", "bash"]).succeeds().stdout;
    assert_eq!(script, TestHome::new().attache(&["completions", "bash"]).succeeds().stdout);
}

#[test]
fn a_task_is_asked_and_listed_in_chinese() {
    let home = chinese_home();
    let up = home.up(&[]);
    let welcome = up.process.says("attache ask local");
    assert_eq!(welcome.lines().next(), Some(&*format!("Attaché 已启动：{}", up.url)));
    assert!(welcome.contains("登录（一次性链接，十分钟内有效）：http"), "{welcome}");
    assert!(welcome.lines().any(|line| line == "在另一个终端中试一试：attache ask local \"uname -a\""), "{welcome}");

    let none = home.attache(&["runs"]).succeeds();
    assert_eq!(lines(&none.stderr), ["没有找到运行。开始一个：attache ask AGENT \"…\""]);
    let asked = home.attache(&["ask", "local", "echo 你好"]).succeeds();
    assert_eq!(asked.stdout, "你好\n");
    let told = asked.stderr.lines().next().unwrap_or_default();
    assert!(told.starts_with("已在 ") && told.ends_with(" 上开始。"), "{}", asked.stderr);

    let failed = home.attache(&["ask", "local", "exit 3"]).exits(1);
    let last: Vec<&str> = failed.stderr.lines().rev().take(2).collect();
    assert!(last[1].starts_with("错误：运行失败（task_failed）："), "{}", failed.stderr);
    assert!(last[0].starts_with("  → 查看此运行：attache runs show run_"), "{}", failed.stderr);

    let list = home.attache(&["runs"]).succeeds().stdout;
    let rows = lines(&list);
    assert_eq!(rows.len(), 3, "{list}");
    assert_eq!(
        rows[0].split_whitespace().collect::<Vec<_>>(),
        ["ID", "状态", "设备", "智能体", "调用方", "创建时间", "用时", "任务"]
    );
    assert!(rows[1].contains(" 失败 ") && rows[2].contains(" 已完成 "), "{list}");
    // Columns line up by display width: each Chinese character takes two.
    let column = |row: &str, word: &str| {
        let before = &row[..row.find(word).unwrap()];
        before.chars().map(|character| if character < '\u{2e80}' { 1 } else { 2 }).sum::<usize>()
    };
    assert_eq!(column(rows[1], "失败"), column(rows[0], "状态"), "{list}");
    assert_eq!(column(rows[2], "已完成"), column(rows[0], "状态"), "{list}");
    assert_eq!(column(rows[2], "local"), column(rows[0], "智能体"), "{list}");

    let unknown = home.attache(&["ask", "nobody", "hi"]).exits(3);
    assert_eq!(unknown.stderr.lines().next(), Some("错误：未找到智能体 `nobody`"));
    let agents = home.attache(&["agents"]).succeeds().stdout;
    let headings: Vec<&str> = agents.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(headings, ["名称", "状态", "设备", "最近在线", "ID", "描述"]);
    assert!(agents.lines().nth(1).unwrap().contains(" 在线 "), "{agents}");
}

#[test]
fn an_approval_is_asked_for_and_given_in_chinese() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let none = home.attache(&["approvals", "--lang", "zh"]).succeeds();
    assert_eq!(lines(&none.stderr), ["没有待审批的请求。查看以往的决定：attache approvals list --state all"]);

    let asking = home.spawn("ask", &["--lang", "zh", "ask", "builder", "tidy up"]);
    let (token, run, epoch) = claimed(&hub, "builder");
    let body = json!({ "epoch": epoch, "tool": "shell", "input": { "command": "rm -r out" }, "risk": "high" });
    let path = format!("/api/v1/task-runs/{run}/permission-requests");
    let reply = hub.worker(&token, "POST", &path, &body);
    let request = reply.json()["permission_request_id"].as_str().unwrap().to_owned();
    asking.tells("attache approvals show");
    let told = asking.stderr();
    let from = told.find("等待审批").unwrap_or_else(|| panic!("{told}"));
    assert_eq!(
        lines(&told[from..]),
        [
            "等待审批 shell：rm -r out",
            &*format!("  允许：attache approvals approve {request}"),
            &*format!("  拒绝：attache approvals deny {request}"),
            &*format!("  查看：attache approvals show {request}"),
        ]
    );
    let list = home.attache(&["approvals", "--lang", "zh"]).succeeds();
    let row: Vec<&str> = list.stdout.lines().nth(1).unwrap().split_whitespace().take(3).collect();
    assert_eq!(row, [&*request, "待审批", "builder"]);
    let shown = home.attache(&["approvals", "show", &request, "--lang", "zh"]).succeeds();
    assert!(shown.stdout.lines().any(|line| line == "状态        待审批"), "{}", shown.stdout);
    let given = home.attache(&["approvals", "approve", &request, "--lang", "zh"]).succeeds();
    assert_eq!(lines(&given.stderr), ["已允许（仅此一次）：builder 可以使用 shell：rm -r out。"]);
    let again = home.attache(&["approvals", "deny", &request, "--lang", "zh"]).exits(1);
    assert!(again.stderr.starts_with("错误：已处理过："), "{}", again.stderr);
    let done = json!({ "epoch": epoch, "output": { "text": "done" } });
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/complete"), &done).expect(200);
    assert!(asking.wait().success());
}

/// A code with a sentence of its own is told in Chinese; what only the hub's message says stays beside it.
#[test]
fn refusals_are_told_by_their_code() {
    let home = chinese_home();
    let hub = home.hub(&[]);
    let key = home.keep_secret("wrong.key", "ak_0000000000000000000000000000000000000000000000000000000000000000");
    let denied = home.attache(&["runs", "--hub", &hub.url, "--key-file", &key]).exits(4);
    assert_eq!(
        lines(&denied.stderr),
        [
            "错误：缺少有效的密钥",
            "  → 请用 --key-file FILE 或 ATTACHE_KEY 提供此 Hub 的密钥。所有者密钥是 Hub 数据文件夹中的 `admin.key`。",
        ]
    );
    hub.add_agent("builder");
    let taken = home.attache(&["agents", "add", "builder"]).exits(1);
    assert_eq!(lines(&taken.stderr), ["错误：此名称已被使用", "  → 请换一个名称，或使用现有的智能体。"]);
    let unknown = home.attache(&["users", "show", "ghost"]).exits(3);
    let told = lines(&unknown.stderr);
    assert!(told[0].starts_with("错误：未找到：“") && told[0].ends_with('”'), "{}", unknown.stderr);
    assert_eq!(
        told[1..],
        ["  → 请检查名称或 ID。列出：`attache agents`、`attache runs`、`attache conversations`、`attache users`。"]
    );
}

#[test]
fn people_keys_rules_and_limits_are_in_chinese() {
    let home = chinese_home();
    let _hub = home.hub(&[]);
    let said = |arguments: &[&str]| home.attache(arguments).succeeds();
    let added = said(&["users", "add", "ada", "--role", "admin"]);
    assert_eq!(lines(&added.stderr), ["已添加 ada（admin）。"]);
    let people = said(&["users"]).stdout;
    assert!(people.starts_with("名称") && people.contains("登录方式") && people.contains("链接"), "{people}");
    let file = home.path().join("ci.key");
    let written = said(&["keys", "add", "ci", "--user", "ada", "--to-file", file.to_str().unwrap()]);
    assert_eq!(lines(&written.stderr), [format!("已将密钥写入 {}。用 --key-file 使用它。", file.display())]);
    let keys = said(&["keys"]).stdout;
    assert!(keys.contains("权限范围") && keys.contains("有效") && keys.contains("全部"), "{keys}");
    assert_eq!(lines(&said(&["quotas", "set", "--user", "ada", "--calls", "5"]).stderr), ["已设置配额（用户 ada）。"]);
    let quotas = said(&["quotas"]).stdout;
    assert!(quotas.contains("已用 0，预留 0，上限 5"), "{quotas}");
    assert_eq!(lines(&said(&["usage"]).stderr), ["0 次调用，0 个 Token，$0"]);
    let rules = lines(&said(&["rules"]).stderr).join("\n");
    assert!(rules.contains("没有访问规则") && rules.contains("attache rules set FILE"), "{rules}");
    let none = lines(&said(&["context"]).stderr).join("\n");
    assert!(none.starts_with("没有保存的 Hub"), "{none}");
    let removed = said(&["users", "remove", "ada", "--yes"]);
    assert_eq!(lines(&removed.stderr), ["已移除 ada，并撤销其密钥、令牌和会话。"]);
}

#[test]
fn notifications_and_worktrees_are_in_chinese() {
    let home = chinese_home();
    let _hub = home.hub(&[]);
    let empty = home.attache(&["notifications"]).succeeds().stderr;
    assert_eq!(lines(&empty), ["尚未设置。接入聊天：attache notifications add slack NAME"]);
    let unknown = home.attache(&["notifications", "test", "ops"]).exits(3).stderr;
    assert_eq!(lines(&unknown), ["错误：你没有名为 `ops` 的设备或聊天", "  → 查看列表：attache notifications"]);
    let none = home.attache(&["worktrees"]).succeeds().stderr;
    assert_eq!(lines(&none), ["此设备上没有工作树。启动带工作树的运行：attache ask AGENT \"…\" --worktree"]);
    let missing = home.attache(&["worktrees", "diff", "last"]).exits(3).stderr;
    assert_eq!(lines(&missing), ["错误：此设备上没有工作树", "  → 在智能体的设备上查看列表：attache worktrees"]);
}
