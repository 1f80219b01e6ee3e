//! The Chinese help of arguments, by their English help. Arguments that aren't here are shown in English.

/// Arguments that many commands share, and those of the main commands.
pub(super) const OPTIONS: &[(&str, &str)] = &[
    // every command
    ("Print JSON with a stable schema", "输出 JSON，结构稳定"),
    (
        "Language of messages and help [default: $ATTACHE_LANG, or that of the locale]",
        "消息和帮助的语言 [默认值：$ATTACHE_LANG，或系统区域设置]",
    ),
    ("Hub URL [default: $ATTACHE_URL, or this machine's hub]", "Hub 的 URL [默认值：$ATTACHE_URL，或本机的 Hub]"),
    ("Saved hub and key to use (see `attache context`)", "要使用的已保存的 Hub 和密钥（参阅 `attache context`）"),
    (
        "File with the API key [default: $ATTACHE_KEY, or the owner key of this machine's hub]",
        "API 密钥文件 [默认值：$ATTACHE_KEY，或本机 Hub 的所有者密钥]",
    ),
    (
        "Certificate pin of a hub with a self-signed certificate [default: $ATTACHE_PIN, or the pin of this machine's hub]",
        "使用自签名证书的 Hub 的证书指纹 [默认值：$ATTACHE_PIN，或本机 Hub 的指纹]",
    ),
    ("Maximum number of items", "最多显示的条数"),
    ("Continue from an earlier page", "从之前的页面继续"),
    ("Skip the confirmation prompt", "跳过确认提示"),
    ("Agent name or id", "智能体的名称或 ID"),
    (
        "Run id (`run_…`), a unique part of it, `last`, or a call id (`a2a-…`)",
        "运行 ID（`run_…`）、其唯一的一部分、`last`，或调用 ID（`a2a-…`）",
    ),
    ("Delegation id, a unique part of it, or `last`", "委派 ID、其唯一的一部分，或 `last`"),
    ("Request id, a unique part of it, or `last`", "请求 ID、其唯一的一部分，或 `last`"),
    (
        "Request id, a unique part of it, or `last` for the one you last viewed with `show`",
        "请求 ID、其唯一的一部分，或 `last`（`show` 最近显示的请求）",
    ),
    ("Grant id, a unique part of it, or `last`", "已记住的决定的 ID、其唯一的一部分，或 `last`"),
    // up
    ("Loopback address to listen on; port 0 picks a free port", "监听的本机回环地址；端口 0 表示任选空闲端口"),
    (
        "Data folder for the database, artifacts and keys [default: $A2A_HOME/hub]",
        "保存数据库、产物和密钥的数据文件夹 [默认值：$A2A_HOME/hub]",
    ),
    (
        "Working folder for `local`'s tasks; their artifacts must be inside it [default: the current folder]",
        "`local` 执行任务的工作文件夹；其产物必须位于其中 [默认值：当前文件夹]",
    ),
    (
        "Let everyone who can call agents on this hub call `local`, a shell on this machine",
        "允许所有可以在此 Hub 上调用智能体的人调用 `local`（本机的 Shell）",
    ),
    (
        "Default time limit for runs (90s, 30m, 8h, 7d); callers and agents can override it [default: 60m]",
        "运行的默认时间限制（90s、30m、8h、7d）；调用方和智能体可以另行设置 [默认值：60m]",
    ),
    (
        "Retention of finished records as CLASS=TIME or CLASS=forever; repeatable [defaults: runs=90d, conversations=365d, artifacts=365d, credentials=90d, events=30d, log=400d, channels=30d, streams=1h]",
        "已结束记录的保留时间，写作 CLASS=TIME 或 CLASS=forever；可重复 [默认值：runs=90d，conversations=365d，artifacts=365d，credentials=90d，events=30d，log=400d，channels=30d，streams=1h]",
    ),
    (
        "Access rules file, reloaded when it changes [default: rules are kept in the store]",
        "访问规则文件，更改后自动重新加载 [默认值：规则保存在存储中]",
    ),
    (
        "Default agent for calls that name none (name or id) [default: this machine's agent]",
        "未指定智能体的调用所使用的默认智能体（名称或 ID）[默认值：本机的智能体]",
    ),
    (
        "Allow webhooks and outside agents (--peer) on this private network or host (10.0.0.0/8, an address, a name, *.example.org); repeatable",
        "允许 Webhook 和外部智能体（--peer）使用此私有网络或主机（10.0.0.0/8、地址、名称、*.example.org）；可重复",
    ),
    (
        "Whose tasks for `local` see only the working folder, if this machine can enforce it (`attache sandbox`)",
        "谁交给 `local` 的任务只能看到工作文件夹，前提是本机的沙箱有效（`attache sandbox`）",
    ),
    (
        "Refuse uploads while less than this is free on the disk [default: 2% of it, between 256 MiB and 1 GiB]",
        "磁盘剩余空间低于此值时拒绝上传 [默认值：磁盘的 2%，介于 256 MiB 与 1 GiB 之间]",
    ),
    (
        "Replace a lost owner key: write a new one to <data>/admin.key and revoke the old one",
        "更换丢失的所有者密钥：将新密钥写入 <data>/admin.key，并撤销旧密钥",
    ),
    (
        "Write {\"url\":…,\"agent_id\":…,\"pin\":…} to this file when ready",
        "就绪后将 {\"url\":…,\"agent_id\":…,\"pin\":…} 写入此文件",
    ),
    (
        "Certificate chain (PEM), starting with the hub's certificate; reloaded when the file changes",
        "证书链（PEM），以 Hub 的证书开头；文件更改后自动重新加载",
    ),
    ("Private key of the certificate (PEM, without a password)", "证书的私钥（PEM，不带密码）"),
    (
        "Create a self-signed certificate, keep it in the data folder, and print the pin that clients need",
        "创建自签名证书并保存在数据文件夹中，输出客户端所需的指纹",
    ),
    (
        "Request client certificates; a certificate added with `attache keys add --certificate` works as a credential",
        "要求客户端证书；用 `attache keys add --certificate` 添加的证书可作为凭证",
    ),
    (
        "Use this PostgreSQL database (postgres://USER@HOST/DATABASE) instead of a file; if the URL contains a password, set ATTACHE_DATABASE_URL",
        "Hub 使用 PostgreSQL 上的此数据库（postgres://USER@HOST/DATABASE），而不是文件；如果 URL 含有密码，请改为设置 ATTACHE_DATABASE_URL",
    ),
    (
        "Certificates (PEM) to trust for the database, besides those of this machine",
        "除本机信任的证书外，连接数据库时还信任的证书（PEM）",
    ),
    // login
    (
        "User to sign in (name or id) [default: the user of your key]",
        "要登录的用户（名称或 ID）[默认值：你的密钥所属的用户]",
    ),
    // ask and watch
    ("Agent name or id, or a skill that exactly one agent has", "智能体的名称或 ID，或只有一个智能体具备的技能"),
    ("The task; `-` reads it from standard input", "任务；`-` 表示从标准输入读取"),
    (
        "Attach a file to the task, up to the hub's artifact size limit; repeatable",
        "为任务附上文件，不超过 Hub 的产物大小上限；可重复",
    ),
    ("Stream the answer even if standard output is a pipe or a file", "即使标准输出是管道或文件，也流式输出答复"),
    (
        "Time limit for the run (90s, 30m, 8h, 7d) [default: the agent's or the hub's limit, or 60m]",
        "运行的时间限制（90s、30m、8h、7d）[默认值：智能体或 Hub 的限制，否则为 60m]",
    ),
    ("Stop waiting after this many seconds", "等待这么多秒后停止等待"),
    ("Keep the run going if this command is interrupted or times out", "此命令中断或超时时，让运行继续"),
    ("Print the run's id and exit without waiting", "输出运行的 ID 后立即退出，不等待"),
    (
        "Continue this conversation: title, id, unique part of an id, or `last`",
        "继续此对话：标题、ID、ID 中唯一的一部分，或 `last`",
    ),
    (
        "Continue this session of your agent's device, for example one started in a terminal: its id, or `last` for the newest one that no conversation continues yet (`attache conversations sessions AGENT`)",
        "继续你的智能体所在设备上的此会话，例如在终端中开始的会话：其 ID，或 `last` 表示尚未由对话延续的最新会话（`attache conversations sessions AGENT`）",
    ),
    (
        "Idempotency key: repeated requests with the same key create only one run [default: a new key]",
        "幂等键：使用同一键的重复请求只创建一个运行 [默认值：新的键]",
    ),
    (
        "Webhook URL to notify when the run finishes (see docs/webhooks.md)",
        "运行结束时通知的 Webhook URL（参阅 docs/webhooks.md）",
    ),
    (
        "Permission mode of this run, instead of the agent's: `plan_first` asks you to approve its plan before it changes anything; only people who can edit the agent can choose a mode that isn't stricter",
        "此运行的权限模式，代替智能体的设置：`plan_first` 会在做任何更改之前请你审批其计划；只有可以编辑该智能体的人才能选择更宽松的模式",
    ),
    (
        "Sandbox limits; a device that can't enforce them refuses the task: cwd-only, no-network, no-exec",
        "沙箱限制；无法强制执行的设备会拒绝任务：cwd-only、no-network、no-exec",
    ),
    ("Maximum number of tokens", "Token 数量上限"),
    ("Maximum cost in US dollars", "费用上限（美元）"),
    (
        "Let the run work in its own git worktree, created from what the agent's folder has checked out; only for people who can edit the agent (see `attache worktrees`)",
        "让运行在独立的 git 工作树中工作，以智能体文件夹当前检出的内容为起点；仅限可以编辑该智能体的人（参阅 `attache worktrees`）",
    ),
    (
        "Have the agent's device do it, from any machine; only for the agent's owner",
        "在任意机器上让智能体的设备执行此操作；仅限智能体的所有者",
    ),
    (
        "Agent that gets the task if this one has reached a usage limit of its model account",
        "此智能体达到其模型账号的用量上限时，接手任务的智能体",
    ),
    ("Queue priority; higher runs first", "排队优先级；数值大的先运行"),
    ("Start after this event number", "从此事件编号之后开始"),
    // runs
    ("Reason to record in the log", "记入日志的原因"),
    (
        "Number or name of an option (several if the question allows it), or your own words; `-` reads the answer from standard input",
        "选项的编号或名称（问题允许时可多选），或自己填写；`-` 表示从标准输入读取",
    ),
    ("The input; `-` reads it from standard input", "输入内容；`-` 表示从标准输入读取"),
    ("Only runs of this agent (name or id)", "仅此智能体的运行（名称或 ID）"),
    (
        "Only runs with this status; `waiting` means waiting for approval or input",
        "仅此状态的运行；`waiting` 表示等待审批或输入",
    ),
    (
        "Only runs of this conversation: title, id, unique part of an id, or `last`",
        "仅此对话的运行：标题、ID、ID 中唯一的一部分，或 `last`",
    ),
    (
        "Only runs created since this time: `30m`, `8h` or `7d` ago, or a time such as 2027-01-31T12:00:00Z",
        "仅此后创建的运行：`30m`、`8h` 或 `7d` 之前，或 2027-01-31T12:00:00Z 这样的时间",
    ),
    ("Only runs created before this time", "仅此前创建的运行"),
    ("Only runs that cost at least this many dollars", "仅费用不低于此金额（美元）的运行"),
    ("Only runs created by this person or agent (name or id)", "仅由此用户或智能体创建的运行（名称或 ID）"),
    (
        "Only runs shown by one of your saved views (see `attache runs views`); other options take precedence",
        "仅显示你的某个视图所包含的运行（参阅 `attache runs views`）；其他选项优先",
    ),
    (
        "Only runs whose task, ID, agent's name or caller contains this text",
        "仅任务、ID、智能体名称或调用方含有此文本的运行",
    ),
    // agents
    ("Name, unique on this hub", "名称，在此 Hub 上唯一"),
    ("New name", "新名称"),
    ("New owner's user name; \"\" for no owner", "新所有者的用户名；\"\" 表示没有所有者"),
    (
        "Pin of the card that you reviewed; fails if the card changed again since",
        "你检查过的 Agent Card 的指纹；如果之后又有更改则失败",
    ),
    ("Agent name; if it's already registered, its key is replaced", "智能体的名称；如果已注册，则更换其密钥"),
    ("Capability of the agent; repeatable", "智能体的能力；可重复"),
    ("URL of the agent, if it is an A2A agent", "智能体的 URL（如果是 A2A 智能体）"),
    ("Write the key to this file (mode 0600) instead of printing it", "将密钥写入此文件（权限 0600），而不是输出"),
    (
        "URL of an outside A2A agent or its card; tasks go there instead of to a device",
        "外部 A2A 智能体或其 Agent Card 的 URL；任务会发送到那里，而不是设备",
    ),
    ("File with the API key for the outside agent", "外部智能体的 API 密钥文件"),
    (
        "Pin of the card that you reviewed (sha256:…). Required if the card's signature can't be verified or the card would send the key to another origin; otherwise the first card is trusted",
        "你检查过的 Agent Card 的指纹（sha256:…）。如果其签名无法验证，或它会将密钥发送到其他源，则必须提供；否则信任首次获取的 Agent Card",
    ),
    ("Description of what the agent does", "描述智能体做什么"),
    ("File with instructions to send with every task", "随每项任务一起发送的指令文件"),
    (
        "A2A options (JSON), for example {\"anonymous\":true}; replaces the current options",
        "A2A 选项（JSON），例如 {\"anonymous\":true}；替换现有选项",
    ),
    (
        "Who can call it: `everyone` who can call agents on this hub, or only its `owner`",
        "谁可以调用它：`everyone`（所有可以在此 Hub 上调用智能体的人），或仅 `owner`（所有者）",
    ),
    (
        "Time limit for runs whose caller sets none (90s, 30m, 8h, 7d); `default` uses the hub's limit",
        "调用方未设置时的运行时间限制（90s、30m、8h、7d）；`default` 表示使用 Hub 的限制",
    ),
    (
        "What its runs do when its model account reaches a usage limit: wait until it resets, continue with the caller's fallback agent, or fail",
        "其模型账号达到用量上限时运行如何处理：等待重置、由调用方指定的备用智能体继续，或失败",
    ),
    (
        "What approving its requests needs: a person's `passkey`, in the console, or nothing more (`none`). Only its owner can change this",
        "批准其请求需要什么：由人在控制台使用通行密钥（`passkey`），或无需其他（`none`）。只有所有者可以更改",
    ),
    (
        "Skill of the agent, as ID or ID=DESCRIPTION; repeatable; replaces the current skills",
        "智能体的技能，写作 ID 或 ID=DESCRIPTION；可重复；替换现有技能",
    ),
    (
        "JSON file with all skills: [{\"id\",\"name\",\"description\",\"tags\"}]",
        "含有全部技能的 JSON 文件：[{\"id\",\"name\",\"description\",\"tags\"}]",
    ),
    ("How long its approval requests wait for a decision (30m, 8h, 7d)", "其审批请求等待决定的时间（30m、8h、7d）"),
    ("What to do when an approval request times out", "审批请求超时后如何处理"),
    (
        "Webhook to notify of this agent's approval requests; \"\" removes it",
        "通知此智能体的审批请求的 Webhook；\"\" 表示移除",
    ),
    (
        "Whether a plan is approved first (`plan_first`), or which steps need no approval: none (`ask`), changes to ordinary files in its folder (`accept_edits`), or everything in the sandbox of its device (`accept_walled`)",
        "是否先审批计划（`plan_first`），或哪些步骤无需审批：无（`ask`）、更改其文件夹中的普通文件（`accept_edits`），或其设备沙箱内的一切操作（`accept_walled`）",
    ),
    (
        "Command that needs no approval, such as \"git diff *\"; repeatable; replaces the current ones; \"\" removes them",
        "无需审批的命令，例如 \"git diff *\"；可重复；替换现有命令；\"\" 表示移除",
    ),
    // approvals
    ("Only requests in this state; `all` for every state", "仅此状态的请求；`all` 表示所有状态"),
    ("Only requests of this run (`run_…` or `a2a-…`)", "仅此运行的请求（`run_…` 或 `a2a-…`）"),
    ("Only requests of this agent (name or id)", "仅此智能体的请求（名称或 ID）"),
    ("What the decision applies to", "决定的适用范围"),
    (
        "Apply to every tool whose name matches, whatever its input (`*` matches anything); not for scope `once`",
        "适用于名称匹配的所有工具，不论输入（`*` 匹配任意内容）；不适用于范围 `once`",
    ),
    (
        "When the grant expires: `30m`, `8h`, `7d` or `2027-01-31T12:00:00Z`; not for scope `once`",
        "决定何时到期：`30m`、`8h`、`7d` 或 `2027-01-31T12:00:00Z`；不适用于范围 `once`",
    ),
    (
        "Apply only to requests over the same channel; not for scope `once`",
        "仅适用于同一通道的请求；不适用于范围 `once`",
    ),
    ("Comment for the agent and the log", "备注，发送给智能体并记入日志"),
    // delegate
    ("The folder to delegate", "要委派的文件夹"),
    ("The agent's URL", "智能体的 URL"),
    ("Short description for lists [default: the start of the task]", "列表中显示的简短描述 [默认值：任务的开头]"),
    (
        "Access: `ro` (read-only) or `rw` [default: from policy.toml, otherwise `rw`]",
        "访问方式：`ro`（只读）或 `rw` [默认值：取自 policy.toml，否则为 `rw`]",
    ),
    (
        "Lease duration in seconds [default: from policy.toml, otherwise 3600]",
        "租约时长（秒）[默认值：取自 policy.toml，否则为 3600]",
    ),
    ("Print the id and exit without waiting", "输出 ID 后立即退出，不等待"),
    ("Keep the delegation going if this command is interrupted", "此命令中断时，让委派继续"),
    (
        "Share only files that match this .gitignore-style pattern; repeatable",
        "仅共享匹配此模式的文件（写法同 .gitignore）；可重复",
    ),
    (
        "Hide files that match this .gitignore-style pattern; repeatable",
        "隐藏匹配此模式的文件（写法同 .gitignore）；可重复",
    ),
    (
        "How the remote gets the folder: mounted with attache-fs or sshfs, or as a copy that is kept in sync [default: attache-fs if the remote supports it]",
        "远端如何获得文件夹：用 attache-fs 或 sshfs 挂载，或作为保持同步的副本 [默认值：远端支持时为 attache-fs]",
    ),
    (
        "The URL belongs to an executor of the AWCP reference implementation: use its dialect and send the folder as an archive",
        "该 URL 属于 AWCP 参考实现的执行方：使用其协议变体，并将文件夹作为归档发送",
    ),
    (
        "Let the agent work in a copy: nothing changes in the folder until you apply it (`attache delegations apply`)",
        "让智能体在副本中工作：在你应用更改之前，文件夹不会有任何变化（`attache delegations apply`）",
    ),
    (
        "File with the key for the agent [default: the key in policy.toml, otherwise this machine's hub key]",
        "智能体的密钥文件 [默认值：policy.toml 中的密钥，否则为本机 Hub 的密钥]",
    ),
    // delegations
    ("Only active delegations", "仅进行中的委派"),
    ("Maximum number of delegations", "最多显示的委派数"),
    ("Cancel all active delegations", "取消所有进行中的委派"),
    ("Show only these paths, relative to the folder, as they are now", "仅显示这些路径（相对于文件夹）现在的更改"),
    ("Restore only these paths, relative to the folder", "仅还原这些路径（相对于文件夹）"),
    (
        "For files that you also edited: restore the version from `before` the lease, or `mine`, your last saved version. The replaced version is kept. [default: ask in a terminal, otherwise skip the file]",
        "对于你也编辑过的文件：还原为租约之前的版本（`before`），或你最后保存的版本（`mine`）。被替换的版本会保留。[默认值：在终端中询问，否则跳过该文件]",
    ),
    ("Delegation ids [default: all active delegations]", "委派 ID [默认值：所有进行中的委派]"),
    ("Wait for all delegations of this MCP client session", "等待此 MCP 客户端会话的所有委派"),
    ("Stop waiting after this many seconds; the delegations continue", "等待这么多秒后停止等待；委派会继续"),
    ("File with the key for the agent", "智能体的密钥文件"),
    (
        "Certificate pin of the agent's hub, if the hub uses a self-signed certificate",
        "智能体所在 Hub 的证书指纹（如果该 Hub 使用自签名证书）",
    ),
    ("Folder to allow, including its subfolders", "要允许的文件夹，包括其子文件夹"),
    ("Folder to remove", "要移除的文件夹"),
    ("Apply only these paths, relative to the folder", "仅应用这些路径（相对于文件夹）"),
    (
        "For conflicts with your own changes: `mine` keeps your version and discards the agent's, `theirs` takes the agent's and keeps yours with the originals. [default: ask in a terminal, otherwise skip the file]",
        "与你自己的更改冲突时：`mine` 保留你的版本并放弃智能体的版本，`theirs` 采用智能体的版本并将你的版本与原始文件一起保留。[默认值：在终端中询问，否则跳过该文件]",
    ),
    ("Only show what would be applied, and the conflicts", "仅显示将要应用的内容和冲突"),
    ("Discard only these paths, relative to the folder", "仅放弃这些路径（相对于文件夹）"),
    ("Review only these paths, relative to the folder", "仅检查这些路径（相对于文件夹）"),
    (
        "Accept the changes to these paths without asking; those of a staged delegation are applied to the folder",
        "不经询问即接受这些路径的更改；暂存委派的更改会应用到文件夹",
    ),
    ("Accept all changes without asking, or those to PATHS", "不经询问即接受所有更改，或 PATHS 的更改"),
    ("Restore these paths as they were before the lease, without asking", "不经询问即将这些路径还原到租约之前的状态"),
    // doctor
    ("Run only this check", "仅检查此项"),
];
