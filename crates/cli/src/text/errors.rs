//! Failures: of files, of the connection to a hub or to the daemon, and of arguments that name something.

texts! {
    // files
    file(doing, path, error): "can't {doing} {path}: {error}" zh "无法{doing} {path}：{error}";
    check_path: "Check the path." zh "请检查路径。";
    check_owner: "Check its owner and mode with `ls -ld`." zh "请用 `ls -ld` 检查其所有者和权限。";
    free_space: "Free up disk space." zh "请释放磁盘空间。";
    check_disk: "Check the path and the disk." zh "请检查路径和磁盘。";
    stdin_unreadable(what, error): "can't read {what} from standard input: {error}" zh "无法从标准输入读取{what}：{error}";
    stdin_text: "The input must be UTF-8 text." zh "输入必须是 UTF-8 文本。";
    no_secret(path): "{path} doesn't contain a secret" zh "{path} 中没有密钥";
    only_secret: "The file must contain only the secret and a newline." zh "该文件只能包含密钥和一个换行符。";
    not_a_file(path): "{path} is not a file" zh "{path} 不是文件";
    one_file_each: "Pass one --file option per file." zh "请为每个文件分别使用 --file。";
    not_a_folder(path): "{path} is not a folder" zh "{path} 不是文件夹";
    cant_start(error): "can't start: {error}" zh "无法启动：{error}";
    no_signals(error): "can't listen for signals: {error}" zh "无法监听信号：{error}";

    // home folders
    no_home: "no home folder found" zh "找不到主文件夹";
    set_home: "Set A2A_HOME to the absolute path of a folder that you own." zh "请将 A2A_HOME 设为你自己的文件夹的绝对路径。";
    no_awcp_home: "no home folder found for delegations" zh "找不到用于委派的主文件夹";
    set_awcp_home: "Set AWCP_HOME to the absolute path of a folder that you own." zh "请将 AWCP_HOME 设为你自己的文件夹的绝对路径。";
    own_folder(folder, home): "agents can't work in {folder}: it is part of {home}" zh "智能体不能在 {folder} 中工作：它位于 {home} 之内";
    own_folder_do: "That folder holds keys and pairings. Choose another folder with --cwd DIR." zh "该文件夹保存密钥和配对信息。请用 --cwd DIR 选择其他文件夹。";

    // the hub
    no_hub: "no hub is running on this machine" zh "本机没有正在运行的 Hub";
    no_hub_do: "Start one with `attache up`, or choose one with --hub URL or ATTACHE_URL." zh "请用 `attache up` 启动一个，或用 --hub URL 或 ATTACHE_URL 指定 Hub。";
    hub_unreachable(address, reason): "can't reach the hub at {address}: {reason}" zh "无法连接位于 {address} 的 Hub：{reason}";
    hub_unreachable_do: "Is it running? Start one with `attache up`, or choose another with --hub. Run `attache doctor` for details." zh "Hub 是否在运行？请用 `attache up` 启动一个，或用 --hub 指定其他 Hub。运行 `attache doctor` 查看详情。";
    status_reason(status): "it answered with status {status}" zh "响应状态为 {status}";
    not_a_hub(address, status): "not an Attaché hub: {address} answered with status {status}" zh "不是 Attaché Hub：{address} 的响应状态为 {status}";
    not_a_hub_do: "Check the address and port, or choose another hub with --hub." zh "请检查地址和端口，或用 --hub 指定其他 Hub。";
    unexplained(address, status): "{address} answered with status {status}" zh "{address} 的响应状态为 {status}";
    unexplained_do: "Check that this is the address of an Attaché hub." zh "请确认该地址属于一个 Attaché Hub。";
    untrusted(address, reason): "can't trust {address}: {reason}" zh "无法信任 {address}：{reason}";
    wrong_pin(error): "ATTACHE_PIN is {error}" zh "ATTACHE_PIN 无效：{error}";
    wrong_pin_do: "Fix it or unset it." zh "请更正或取消设置。";

    // the daemon
    daemon_unreachable(socket, reason): "can't reach the daemon at {socket}: {reason}" zh "无法连接位于 {socket} 的守护进程：{reason}";
    daemon_unreachable_do: "Start it with `attache daemon`. Its log is in $AWCP_HOME/logs." zh "请用 `attache daemon` 启动。日志位于 $AWCP_HOME/logs。";
    daemon_silent(socket, reason): "the daemon at {socket} didn't answer: {reason}" zh "位于 {socket} 的守护进程没有响应：{reason}";
    daemon_silent_do: "The request may still have succeeded: check `attache delegations` before you retry. Its log is in $AWCP_HOME/logs." zh "请求可能已经成功：重试前请先查看 `attache delegations`。日志位于 $AWCP_HOME/logs。";
    daemon_mute: "the daemon was started but doesn't answer" zh "守护进程已启动，但没有响应";
    see_log(log): "See its log: {log}" zh "请查看日志：{log}";
    daemon_start(error): "can't start the daemon: {error}" zh "无法启动守护进程：{error}";

    // arguments that name something
    agent_not_found(agent): "agent `{agent}` not found" zh "未找到智能体 `{agent}`";
    agent_not_found_do: "List the agents that you can use: attache agents" zh "列出你可以使用的智能体：attache agents";
    fallback_not_found(agent, fallback): "agent `{agent}` or its fallback `{fallback}` not found" zh "未找到智能体 `{agent}` 或其备用智能体 `{fallback}`";
    fallback_not_found_do: "List them: `attache agents`." zh "列出智能体：`attache agents`。";
    conversation_not_found(agent, conversation): "agent `{agent}` or conversation {conversation} not found" zh "未找到智能体 `{agent}` 或对话 {conversation}";
    conversation_not_found_do: "List them: `attache agents` and `attache conversations`." zh "分别列出：`attache agents` 和 `attache conversations`。";
    user_not_found_do: "Check the name or id. To list them: `attache users`, `attache agents`." zh "请检查名称或 ID。列出：`attache users`、`attache agents`。";
    id_not_found(what, typed): "{what} `{typed}` not found" zh "未找到{what} `{typed}`";
    id_not_found_do: "Use a complete id, a unique part of a recent id, or `last`." zh "请使用完整的 ID、最近 ID 中唯一的一部分，或 `last`。";
    id_ambiguous(typed, found): "`{typed}` is ambiguous: {found}" zh "`{typed}` 不唯一：{found}";
    id_ambiguous_do: "Use a longer part of the id." zh "请使用 ID 中更长的一部分。";
    id_expected: "expected an id, a unique part of one, or `last`" zh "应为 ID、ID 中唯一的一部分，或 `last`";
    workspace_expected: "expected an id of the form `wsp_…`, `cnv_…` or `run_…`, a unique part of one, or `last`" zh "应为 `wsp_…`、`cnv_…` 或 `run_…` 形式的 ID、ID 中唯一的一部分，或 `last`";
    id_expected_of(prefix): "expected an id of the form `{prefix}…`, a unique part of one, or `last`" zh "应为 `{prefix}…` 形式的 ID、ID 中唯一的一部分，或 `last`";
    moment_expected: "expected a time such as 30m, 8h, 7d (ago) or 2027-01-31T12:00:00Z" zh "应为 30m、8h、7d（之前）或 2027-01-31T12:00:00Z 这样的时间";
    dollars_expected: "expected a number of dollars such as 0.5" zh "应为美元金额，例如 0.5";
    duration_expected: "expected a duration such as 90s, 30m, 8h or 7d" zh "应为 90s、30m、8h 或 7d 这样的时长";
    until_expected: "expected a time such as 30m, 8h, 7d or 2027-01-31T12:00:00Z" zh "应为 30m、8h、7d 或 2027-01-31T12:00:00Z 这样的时间";
    state_expected: "expected one of pending, approved, denied, expired, cancelled, all" zh "应为 pending、approved、denied、expired、cancelled、all 之一";
    scope_expected: "expected one of once, run, conversation, agent" zh "应为 once、run、conversation、agent 之一";
    transport_expected(choices): "it must be one of {choices}" zh "必须是 {choices} 之一";

    // kinds of things with an id
    a_run_or_conversation: "run or conversation" zh "运行或对话";
    a_run: "run" zh "运行";
    an_approval: "approval request" zh "审批请求";
    a_grant: "grant" zh "已记住的决定";
    a_delivery: "delivery" zh "投递";
    a_channel: "channel" zh "通道";
    a_device: "device" zh "设备";
    a_key: "key" zh "密钥";
    a_session: "session" zh "会话";
    a_conversation: "conversation" zh "对话";
    a_delegation: "delegation" zh "委派";

    // passwords
    no_password: "missing password" zh "缺少密码";
    no_password_do: "Type it, or pass it as one line on standard input." zh "请输入密码，或在标准输入中以一行传入。";
    no_key: "missing hub key" zh "缺少 Hub 密钥";
    no_key_do: "Pass its file: --key-file FILE. Or type it, or pass it as one line on standard input." zh "请用 --key-file FILE 指定密钥文件，或直接输入，或在标准输入中以一行传入。";
    password_unreadable(error): "can't read the password: {error}" zh "无法读取密码：{error}";
    password_text: "It must be UTF-8 text." zh "密码必须是 UTF-8 文本。";
}

/// What a command does with a file, as it goes into [`file()`]. English callers name it themselves.
pub(crate) fn file_action(doing: &str) -> &str {
    if !super::is_chinese() {
        return doing;
    }
    match doing {
        "allow" => "允许",
        "copy" => "复制",
        "create" => "创建",
        "delegate" => "委派",
        "read"
        | "read the instructions in"
        | "read the log"
        | "read the originals in"
        | "read the secret in"
        | "read the signature" => "读取",
        "remove" => "删除",
        "replace" => "替换",
        "use the folder" => "使用文件夹",
        "use" => "使用",
        "write" | "write the log" | "write the ready file" => "写入",
        "write the key to" => "将密钥写入",
        "write the pages into" => "将页面写入",
        _ => "处理",
    }
}
