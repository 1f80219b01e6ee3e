//! The Chinese help: one line per command, the groups of commands, and what clap writes itself.
//!
//! The English help stands at the commands and their arguments. Here and in [`help_options`] it is the key, so a changed
//! English line needs a Chinese one again; a test names what is missing and what isn't used any more.

use super::help_options::OPTIONS;

texts! {
    heading(name): "{name}:" zh "{name}：";
    group_start: "Start" zh "开始使用";
    group_agents: "Agents and devices" zh "智能体与设备";
    group_work: "Work" zh "工作";
    group_folders: "Folders" zh "文件夹";
    group_people: "People and limits" zh "用户与限制";
    group_operate: "Operate" zh "运维";
}

/// Every visible command's line in English and Chinese.
const COMMANDS: &[(&str, &str)] = &[
    (
        "Put agents on any machine to work, and see, approve, stop and account for what they do",
        "让任意机器上的智能体为你工作；一切都看得到、批得了、停得下、算得清",
    ),
    (
        "Start everything on this machine: a hub, the console and a shell agent named `local`",
        "在本机启动全部组件：Hub、控制台和名为 `local` 的 Shell 智能体",
    ),
    ("Create a link that signs a browser in to the console", "创建让浏览器登录控制台的链接"),
    ("Save hubs and their keys under names, and switch between them", "以名称保存 Hub 及其密钥，并在它们之间切换"),
    ("List saved hubs (default)", "列出已保存的 Hub（默认）"),
    (
        "Save a hub, or replace a saved one; the first one becomes the current hub",
        "保存 Hub，或替换已保存的；第一个成为当前 Hub",
    ),
    ("Switch to a saved hub", "切换到已保存的 Hub"),
    ("Remove a saved hub and its key", "移除已保存的 Hub 及其密钥"),
    ("Check this machine for problems and suggest fixes", "检查本机的问题并给出修复建议"),
    ("Print shell completions", "输出 Shell 补全脚本"),
    ("Manage agents and create pairing codes", "管理智能体，创建配对码"),
    ("List agents (default)", "列出智能体（默认）"),
    ("Add an agent; pair a device with it afterwards", "添加智能体，之后可为其配对设备"),
    ("Change an agent", "更改智能体"),
    ("Trust the current card of an outside agent after it changed", "外部智能体的 Agent Card 更改后，信任其当前版本"),
    ("Show an agent and its device", "查看智能体及其设备"),
    (
        "Archive an agent permanently: disconnects its device and keeps its history",
        "永久归档智能体：断开其设备，保留历史记录",
    ),
    (
        "Register an agent and print its API key, which lets it open a channel or call other agents",
        "注册智能体并输出其 API 密钥，用于打开通道或调用其他智能体",
    ),
    ("Create a one-time pairing code for an agent, valid for ten minutes", "为智能体创建一次性配对码，十分钟内有效"),
    ("Pair this device with an agent and run its tasks", "将本设备与智能体配对，并执行其任务"),
    ("Pair this device with an agent of a hub", "将本设备与 Hub 上的智能体配对"),
    ("Stay connected and run the agent's tasks in the foreground", "保持连接，在前台执行智能体的任务"),
    ("Show this device's pairing and whether its hub is reachable", "查看本设备的配对，以及能否连接其 Hub"),
    ("List the pairings of this device, or choose the active one", "列出本设备的配对，或选择使用哪一个"),
    (
        "Change a pairing's hub address, certificate pin, device name, folder, sandbox or sessions",
        "更改配对的 Hub 地址、证书指纹、设备名称、文件夹、沙箱或会话",
    ),
    ("Remove a pairing from this device", "从本设备移除配对"),
    ("List and disconnect paired devices", "列出并断开已配对的设备"),
    ("List devices (default)", "列出设备（默认）"),
    ("Disconnect a device and revoke its token and claims immediately", "断开设备，并立即撤销其令牌和领取"),
    ("Confirm a device that shows a code, and pair it with an agent", "确认显示代码的设备，并将其与智能体配对"),
    ("Reject a device that shows a code", "拒绝显示代码的设备"),
    (
        "Serve an agent to this device's runtime: a coding agent, a shell or any program",
        "为本设备的运行时提供智能体：编程智能体、Shell 或任意程序",
    ),
    ("Run each task as a script with `sh`", "用 `sh` 将每项任务作为脚本执行"),
    ("Pass each task to a program, which prints the answer", "将每项任务交给一个打印答案的程序"),
    ("Claude Code", "Claude Code"),
    ("Codex", "Codex"),
    ("A host from the preset table: gemini, hermes, opencode, …", "预设表中的智能体程序：gemini、hermes、opencode 等"),
    ("A program that speaks the Agent Client Protocol", "支持 Agent Client Protocol 的程序"),
    (
        "An agent for the public A2A conformance kits; runs many tasks at a time",
        "用于公开 A2A 一致性测试套件的智能体；可同时执行多项任务",
    ),
    (
        "Run a command in a sandbox: its own folder, no network, no other programs",
        "在沙箱中运行命令：只有自己的文件夹，没有网络，没有其他程序",
    ),
    ("List channels (live connections) and their events", "列出通道（实时连接）及其事件"),
    ("List channels, newest first (default)", "列出通道，最新的在前（默认）"),
    ("Show a channel with its capabilities and tools", "查看通道及其能力和工具"),
    ("Show the events of a channel, oldest first", "查看通道的事件，最早的在前"),
    (
        "Serve tools over MCP, or install them in a client such as Claude Code",
        "通过 MCP 提供工具，或将其安装到 Claude Code 等客户端",
    ),
    ("Add this server to the configuration of MCP clients", "将此服务器添加到 MCP 客户端的配置"),
    ("Remove this server from the configuration of MCP clients", "从 MCP 客户端的配置中移除此服务器"),
    ("Give an agent a task and follow it to the end", "把任务交给智能体，并跟踪到结束"),
    ("Follow a run until it finishes", "跟踪运行直到结束"),
    ("List, show, answer, cancel and delete runs", "列出、查看、答复、取消和删除运行"),
    ("List runs, newest first (default)", "列出运行，最新的在前（默认）"),
    ("Show a run with its input and result", "查看运行及其输入和结果"),
    ("Cancel a run; the device stops it within a second", "取消运行；设备会在一秒内停止它"),
    (
        "Delete a finished run with its result, events, approvals and artifacts",
        "删除已结束的运行，包括结果、事件、审批和产物",
    ),
    ("Answer the agent's open question; without an answer, show the question", "答复智能体的提问；不带答复时显示问题"),
    ("Send input to a run; it answers the agent's oldest open question", "向运行发送输入，作为对最早一个提问的答复"),
    ("List your saved views of the run list", "列出你保存的运行列表视图"),
    ("Review and decide approval requests from agents", "查看并处理智能体的审批请求"),
    ("List pending requests, newest first (default)", "列出待审批的请求，最新的在前（默认）"),
    ("Show exactly what a request asks for, and its decision", "查看请求的确切内容及其决定"),
    ("Approve a request", "允许请求"),
    ("Deny a request", "拒绝请求"),
    ("List or revoke standing grants", "列出或撤销已记住的决定"),
    ("List current and past grants (default)", "列出现有和以往已记住的决定（默认）"),
    ("Revoke a grant, so that matching requests need approval again", "撤销已记住的决定，之后匹配的请求需要重新审批"),
    ("List, start, read and delete conversations", "列出、开启、阅读和删除对话"),
    (
        "List conversations that were created explicitly (default), not those that a run started; `attache runs` lists runs",
        "列出单独开启的对话（默认），不含运行自行开启的对话；`attache runs` 列出运行",
    ),
    ("Start a conversation", "开启对话"),
    ("Show the messages of a conversation", "查看对话的消息"),
    (
        "Delete a conversation with its runs, messages and artifacts; its runs must be finished",
        "删除对话及其运行、消息和产物；其运行必须已结束",
    ),
    (
        "List the sessions that your agent keeps for its folder, including those started in a terminal on its device",
        "列出你的智能体为其文件夹保存的会话，包括在其设备的终端中开始的",
    ),
    ("List, download and upload artifacts", "列出、下载和上传产物"),
    ("List the artifacts of a workspace", "列出工作区的产物"),
    ("Download an artifact", "下载产物"),
    ("Upload a file as an artifact", "将文件作为产物上传"),
    ("Delegate a folder to an agent on another machine", "将文件夹委派给另一台机器上的智能体"),
    ("Manage delegated folders and the allow-list", "管理委派的文件夹和白名单"),
    ("List delegations, newest first (default)", "列出委派，最新的在前（默认）"),
    ("Show a delegation", "查看委派"),
    ("Print the remote agent's final answer, or the current status", "输出远端智能体的最终答复，或当前状态"),
    ("Print the remote agent's output while it worked", "输出远端智能体工作期间的输出"),
    ("Revoke access to the folder and stop the remote agent", "收回对文件夹的访问权限，并停止远端智能体"),
    ("Show changes to the folder as a unified diff", "以统一 diff 格式显示文件夹的更改"),
    (
        "Review the changes: accept or discard each file, or each hunk of a text file",
        "逐项检查更改：按文件或按文本块接受或放弃",
    ),
    ("Apply the changes of a staged delegation to the folder", "将暂存委派的更改应用到文件夹"),
    ("Discard the unapplied changes of a staged delegation", "放弃暂存委派中未应用的更改"),
    (
        "Restore the folder to its state before the lease, except files that you changed since",
        "将文件夹还原到租约之前的状态，你之后改过的文件除外",
    ),
    ("Wait for delegations to finish", "等待委派结束"),
    ("Add a trusted agent or a folder to the allow-list", "将受信任的智能体或文件夹加入白名单"),
    (
        "Remove an agent or a folder from the allow-list; active delegations continue",
        "从白名单中移除智能体或文件夹；进行中的委派会继续",
    ),
    ("Run the delegation daemon (starts automatically when needed)", "运行委派守护进程（需要时会自动启动）"),
    ("Manage a hub's users", "管理 Hub 的用户"),
    ("List people (default)", "列出用户（默认）"),
    ("Add a person", "添加用户"),
    ("Show a person; `me` is the user of your key", "查看用户；`me` 是你的密钥所属的用户"),
    ("Change a person", "更改用户"),
    ("Change your own password", "更改你自己的密码"),
    ("Remove a person; their agents and runs are kept", "移除用户；其智能体和运行会保留"),
    ("Manage API keys", "管理 API 密钥"),
    ("List keys (default)", "列出密钥（默认）"),
    ("Create a key; it is shown only once", "创建密钥；只显示一次"),
    ("Revoke a key immediately", "立即撤销密钥"),
    ("Create a short-lived token (JWT) from your key", "用你的密钥创建短期令牌（JWT）"),
    ("List and end console sessions", "列出并结束控制台会话"),
    ("List sessions (default)", "列出会话（默认）"),
    (
        "Sign a browser out immediately, along with the browsers it signed in",
        "立即让浏览器退出登录，包括由它登录的其他浏览器",
    ),
    ("Show, edit and test access rules", "查看、编辑和测试访问规则"),
    ("Show the current rules (default)", "查看当前规则（默认）"),
    (
        "Replace the rules with those in a file; `-` reads standard input",
        "用文件中的规则替换现有规则；`-` 表示读取标准输入",
    ),
    (
        "Check whether an agent can access something, and which rule decides",
        "检查智能体能否访问某项内容，以及由哪条规则决定",
    ),
    ("Manage daily quotas", "管理每日配额"),
    ("List quotas (default)", "列出配额（默认）"),
    (
        "Set limits for a user, an agent, a user with an agent, or the entire hub",
        "为用户、智能体、用户与智能体的组合或整个 Hub 设置上限",
    ),
    ("Remove a quota", "移除配额"),
    ("Show usage: calls, tokens and cost", "查看用量：调用、Token 和费用"),
    ("Run a hub: the API and the console on one port", "运行 Hub：API 和控制台使用同一端口"),
    ("Run the hub or the runtime as a service (systemd, launchd)", "将 Hub 或运行时作为服务运行（systemd、launchd）"),
    ("Install and start a service; run it again to change the service", "安装并启动服务；再次执行可更改服务"),
    ("Stop a service and remove it; data and pairings are kept", "停止并移除服务；数据和配对会保留"),
    ("Show the installed services and whether they are running", "查看已安装的服务及其是否在运行"),
    ("Show a service's log", "查看服务的日志"),
    (
        "Replace this program with a signed release, and roll back if it doesn't work",
        "将本程序更新为已签名的发行版，无法工作时自动回退",
    ),
    ("Read, verify and export the audit log", "读取、验证和导出审计日志"),
    ("List entries (default)", "列出记录（默认）"),
    ("Recompute the hash chain; exits with 1 if it is broken", "重新计算哈希链；如果断裂则以 1 退出"),
    ("Print the complete log, one JSON row per line", "输出完整日志，每行一条 JSON"),
    ("Print the head of the log, signed by the hub, as JSON", "以 JSON 输出由 Hub 签名的日志头"),
    ("List webhook deliveries and resend them", "列出 Webhook 投递并重新发送"),
    ("List deliveries, newest first (default)", "列出投递，最新的在前（默认）"),
    ("Show a delivery", "查看投递"),
    ("Resend a delivery now, with the same id", "以相同的 ID 立即重新发送投递"),
    ("Print the signing secret of your deliveries", "输出你的投递的签名密钥"),
    ("Back up a hub's data to one file, even while it runs", "将 Hub 的数据备份到一个文件，运行期间也可以"),
    ("Copy a hub's database to PostgreSQL, or back to a file", "将 Hub 的数据库复制到 PostgreSQL，或复制回文件"),
    ("Measure this build on this machine", "在本机测量此版本的性能"),
    (
        "Show, commit, apply and discard what runs changed in their own worktrees",
        "查看、提交、应用或丢弃运行在其独立工作树中所做的更改",
    ),
    ("List the worktrees on this device (default)", "列出本设备上的工作树（默认）"),
    ("Show what a run changed, committed or not, as a patch", "以补丁形式显示运行的更改，无论是否已提交"),
    ("Print the folder of a worktree", "输出工作树所在的文件夹"),
    ("Commit the changes to the worktree's branch, in your name", "以你的名义将更改提交到工作树的分支"),
    (
        "Apply the changes, uncommitted, to the folder the worktree was created from; all or nothing",
        "将更改作为未提交的更改带入创建工作树时所用的文件夹；要么全部，要么都不",
    ),
    ("Remove a worktree and its branch", "移除工作树及其分支"),
    (
        "Manage the devices and chats that receive your notifications",
        "列出、添加、更改、测试和移除接收通知的设备与聊天",
    ),
    ("List your devices and chats (default)", "列出你的设备与聊天（默认）"),
    ("Connect a chat; requires an admin", "连接聊天；需要管理员"),
    ("Change what a device or chat is notified of", "更改设备或聊天接收哪些通知"),
    ("Send a test message and show what its service answered", "发送测试消息，并显示对方服务的回应"),
    ("Stop notifying a device or chat", "不再通知某个设备或聊天"),
    ("A Slack channel, via an incoming webhook", "Slack 频道，通过传入 Webhook"),
    ("A Telegram chat, via a bot", "Telegram 聊天，通过机器人"),
    ("A Feishu group, via a custom bot", "飞书群，通过自定义机器人"),
    (
        "Runs per second (create, claim, complete): bare SQLite loop, our store, our HTTP API",
        "每秒运行数（创建、领取、完成）：裸 SQLite 循环、我们的存储、我们的 HTTP API",
    ),
    (
        "Calls per second to an agent on a channel, with and without keys, rules, quotas and limits, compared with a bare server",
        "每秒对通道上的智能体的调用数，有无密钥、规则、配额和上限，与裸服务器对比",
    ),
    (
        "A2A messages per second, durable and executed in the hub's process, compared with a bare server; time to a stream's first event",
        "每秒 A2A 消息数（持久化并在 Hub 进程内执行），与裸服务器对比；流的首个事件用时",
    ),
    (
        "How the cost of a claim and of the run list grows with the number of stored runs",
        "领取和运行列表的开销随已存储运行数的增长",
    ),
    (
        "Memory of an idle channel, time until a run reaches a device, fan-out of one stream to many watchers",
        "空闲通道的内存、运行到达设备的用时、一个流分发给许多观察者",
    ),
    (
        "How long the console takes to show a page, a line of output and an approval, with a long history stored",
        "存有大量历史时，使用浏览器的人等待多久：页面、一行输出、一次审批",
    ),
    (
        "A delegated folder under stock sshfs compared with OpenSSH's own server: throughput, small files, time to revoke a lease",
        "标准 sshfs 下的委派文件夹与 OpenSSH 自带服务器对比：吞吐量、小文件、收回租约的用时",
    ),
    (
        "Time from the delegate command to the remote's first byte, through the hub's tunnel and directly, and time to revoke access",
        "从委派命令到远端首个字节的用时（经 Hub 隧道和直连），以及收回访问权限的用时",
    ),
    (
        "Overhead compared with running the host's program directly, and delay until its output is visible",
        "相对于智能体程序本身的额外开销，以及其输出可见之前的延迟",
    ),
    ("Startup time of `attache up`, and its memory when idle", "`attache up` 的启动时间和空闲时的内存"),
];

/// What clap writes itself.
const FRAME: &[(&str, &str)] = &[
    ("Print help (see more with '--help')", "显示帮助（使用 --help 查看更多）"),
    ("Print help (see a summary with '-h')", "显示帮助（使用 -h 查看摘要）"),
    ("Print help", "显示帮助"),
    ("Print version", "显示版本"),
    ("[OPTIONS]", "[选项]"),
    ("[COMMAND]", "[命令]"),
    ("<COMMAND>", "<命令>"),
    ("[default: ", "[默认值："),
    ("[possible values: ", "[可选值："),
    ("[aliases: ", "[别名："),
];

/// Headings, which stand on a line of their own.
const HEADINGS: &[(&str, &str)] = &[
    ("Options:", "选项："),
    ("Arguments:", "参数："),
    ("Commands:", "命令："),
    ("Possible values:", "可选值："),
    ("Examples:", "示例："),
    ("Hub:", "Hub："),
];

/// The text after the help of `attache`.
const AFTER_HELP: &str = "示例：
  attache up                          在本机启动全部组件
  attache ask local \"uname -a\"        把任务交给内置的 Shell 智能体
  attache runtime pair --api-base URL 将本设备与远程 Hub 配对

退出码：0 成功，1 失败，2 用法错误，3 未找到，4 被拒绝，5 无法连接，6 部分完成，124 超时。";

/// The command line with its help in Chinese. What has no Chinese text yet stays English.
pub(crate) fn localized(command: clap::Command) -> clap::Command {
    lines(command).after_help(AFTER_HELP)
}

fn lines(command: clap::Command) -> clap::Command {
    let about = command.get_about().and_then(|about| of(COMMANDS, &about.to_string()));
    let command = match about {
        Some(about) => command.about(about).long_about(None),
        None => command,
    };
    command
        .mut_args(|arg| match arg.get_help().and_then(|help| of(OPTIONS, &help.to_string())) {
            Some(help) => arg.help(help).long_help(None),
            None => arg,
        })
        .mut_subcommands(lines)
}

fn of(table: &[(&str, &'static str)], english: &str) -> Option<&'static str> {
    table.iter().find(|(key, _)| *key == english).map(|(_, chinese)| *chinese)
}

/// A rendered help or usage text with what clap writes itself in Chinese.
pub(crate) fn framed(text: &str) -> String {
    let mut framed = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let words = unstyled(line);
        let heading = HEADINGS.iter().find(|(english, _)| words.trim() == *english);
        let mut line = match heading {
            Some((english, chinese)) => line.replacen(english, chinese, 1),
            None if words.starts_with("Usage: ") => line.replacen("Usage:", "用法：", 1).replacen("： ", "：", 1),
            None => line.to_owned(),
        };
        for (english, chinese) in FRAME {
            line = line.replace(english, chinese);
        }
        framed += &line;
    }
    framed
}

/// A line without its escape sequences.
fn unstyled(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::commands::Cli;

    /// The names of programs are the same in both languages.
    const SAME: &[&str] = &["Claude Code", "Codex"];

    fn abouts(command: &clap::Command, found: &mut BTreeSet<String>) {
        found.extend(command.get_about().map(ToString::to_string));
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).for_each(|sub| abouts(sub, found));
    }

    fn helps(command: &clap::Command, found: &mut BTreeSet<String>) {
        found.extend(command.get_arguments().filter_map(|arg| arg.get_help()).map(ToString::to_string));
        command.get_subcommands().for_each(|sub| helps(sub, found));
    }

    #[test]
    fn every_command_has_a_chinese_line() {
        let mut wanted = BTreeSet::new();
        abouts(&Cli::command(), &mut wanted);
        let have: BTreeSet<String> = COMMANDS.iter().map(|(english, _)| (*english).to_owned()).collect();
        assert_eq!(wanted.difference(&have).collect::<Vec<_>>(), Vec::<&String>::new(), "without a Chinese line");
        assert_eq!(have.difference(&wanted).collect::<Vec<_>>(), Vec::<&String>::new(), "no command says this");
        assert_eq!(have.len(), COMMANDS.len());
    }

    #[test]
    fn every_chinese_option_belongs_to_one() {
        let mut wanted = BTreeSet::new();
        helps(&Cli::command(), &mut wanted);
        let unused: Vec<_> = OPTIONS.iter().filter(|(english, _)| !wanted.contains(*english)).collect();
        assert_eq!(unused, Vec::<&(&str, &str)>::new());
    }

    #[test]
    fn no_line_is_english_in_both_columns() {
        let is_chinese = |text: &str| text.chars().any(|character| matches!(character, '\u{4e00}'..='\u{9fff}'));
        let english: Vec<_> = COMMANDS
            .iter()
            .chain(OPTIONS)
            .filter(|(english, chinese)| !SAME.contains(english) && (!is_chinese(chinese) || is_chinese(english)))
            .collect();
        assert_eq!(english, Vec::<&(&str, &str)>::new());
    }

    /// Options that every command has, or that the commands that people use most have.
    #[test]
    fn the_main_commands_have_chinese_options() {
        let command = Cli::command();
        let mut missing = Vec::new();
        for name in ["up", "login", "ask", "watch", "runs", "agents", "approvals", "delegate", "delegations", "doctor"]
        {
            let mut wanted = BTreeSet::new();
            helps(command.find_subcommand(name).unwrap(), &mut wanted);
            missing.extend(wanted.into_iter().filter(|help| of(OPTIONS, help).is_none()));
        }
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn headings_are_translated_and_prose_is_not() {
        let help = "Usage: attache x [OPTIONS]\n\nOptions:\n  -h, --help  Print help\n\nThe Options: stay.\n";
        let chinese = "用法：attache x [选项]\n\n选项：\n  -h, --help  显示帮助\n\nThe Options: stay.\n";
        assert_eq!(framed(help), chinese);
        assert_eq!(framed("\x1b[1mUsage:\x1b[0m \x1b[1mattache\x1b[0m"), "\x1b[1m用法：\x1b[0m \x1b[1mattache\x1b[0m");
    }
}
