//! `attache doctor`: what was found, and how to fix it.

texts! {
    // home
    home_later(folder): "{folder} doesn't exist yet; it's created when needed" zh "{folder} 尚不存在，需要时会创建";
    home_unreadable(folder, error): "{folder}: {error}" zh "{folder}：{error}";
    check_permissions: "Check its owner and permissions." zh "请检查其所有者和权限。";
    home_foreign(folder): "{folder} belongs to another user" zh "{folder} 属于其他用户";
    home_foreign_do: "Set A2A_HOME to a folder that you own." zh "请将 A2A_HOME 设为你自己的文件夹。";
    home_open(folder, mode): "other users can access {folder} (mode {mode})" zh "其他用户可以访问 {folder}（权限 {mode}）";
    home_private(folder): "{folder} is private" zh "{folder} 不对其他用户开放";
    disk_full(folder): "the disk that holds {folder} is full" zh "{folder} 所在的磁盘已满";
    disk_low(megabytes, folder): "only {megabytes} MB free on the disk that holds {folder}" zh "{folder} 所在的磁盘仅剩 {megabytes} MB";
    disk_low_do: "Free up disk space. When the disk is full, this machine accepts no new tasks." zh "请释放磁盘空间。磁盘已满时，本机不接受新任务。";

    // sandbox
    walls_hold(proof): "agents can be confined here: {proof}" zh "本机可以限制智能体：{proof}";
    walls_leak(proof): "agents can't be confined completely here: {proof}" zh "本机无法完全限制智能体：{proof}";
    walls_leak_do: "Run `attache sandbox` for details." zh "运行 `attache sandbox` 查看详情。";
    walls_untried(error): "can't test this machine's sandbox: {error}" zh "无法验证本机的沙箱：{error}";

    // hub
    hub_reachable(hub, version): "the hub at {hub} is reachable (version {version})" zh "可以连接位于 {hub} 的 Hub（版本 {version}）";
    durability(what, store): "acknowledged writes survive: {what} ({store})" zh "已确认的写入可经受：{what}（{store}）";
    durability_postgres: "Turn on synchronous_commit on the database server (docs/postgres.md)." zh "请在数据库服务器上开启 synchronous_commit（docs/postgres.md）。";
    durability_file: "Run a hub with a data folder: attache hub --data DIR" zh "请使用带数据文件夹的 Hub：attache hub --data DIR";
    start_hub: "Start one: attache up" zh "启动一个：attache up";
    storage_low(hub): "the disk of the hub at {hub} is almost full: it accepts no uploads" zh "位于 {hub} 的 Hub 的磁盘即将用尽，不接受上传";
    storage_works(hub): "the hub at {hub} can write to its storage" zh "位于 {hub} 的 Hub 可以写入存储";
    storage_broken(hub, problem): "the hub at {hub} can't write to its storage: {problem}" zh "位于 {hub} 的 Hub 无法写入存储：{problem}";
    remote_hub: "no hub is running on this machine; this device is paired with a remote hub" zh "本机没有运行 Hub；此设备已与远程 Hub 配对";
    owner_key_lost(file, how): "The owner key should be in {file}. {how}" zh "所有者密钥应在 {file} 中。{how}";
    lost_key: "Restore the key file, or start once with --recover-owner-key to create a new key and revoke the lost one." zh "请恢复密钥文件，或使用 --recover-owner-key 启动一次，以创建新的密钥并撤销丢失的密钥。";
    no_key: "no key for this hub" zh "没有此 Hub 的密钥";
    no_key_do: "Pass one with --key-file FILE or ATTACHE_KEY. The hub's owner can create keys with `attache keys add`." zh "请用 --key-file FILE 或 ATTACHE_KEY 提供密钥。Hub 的所有者可以用 `attache keys add` 创建密钥。";
    key_open(file): "other users can read the key in {file}" zh "其他用户可以读取 {file} 中的密钥";
    key_accepted(from): "the hub accepts the key in {from}" zh "Hub 接受 {from} 中的密钥";
    key_unchecked(from, message): "the hub can't check the key in {from} now: {message}" zh "Hub 现在无法检查 {from} 中的密钥：{message}";
    key_rejected(from, message): "the hub rejects the key in {from}: {message}" zh "Hub 拒绝 {from} 中的密钥：{message}";

    // devices
    not_paired: "this device isn't paired with an agent" zh "此设备尚未与智能体配对";
    not_paired_do: "To run tasks here: attache agents code AGENT, then attache runtime pair CODE --api-base URL" zh "要在此运行任务：先执行 attache agents code AGENT，再执行 attache runtime pair CODE --api-base URL";
    profile_hub(hub): "the profile's hub at {hub} is reachable" zh "可以连接配对档案中位于 {hub} 的 Hub";
    profile_hub_away(hub): "the profile's hub at {hub} isn't reachable" zh "无法连接配对档案中位于 {hub} 的 Hub";
    profile_hub_away_do: "Start that hub, or use another address: attache runtime start --api-base URL" zh "请启动该 Hub，或使用其他地址：attache runtime start --api-base URL";
    profile_clock(profile, clock): "{profile} is running; {clock}" zh "{profile} 正在运行；{clock}";
    correct_clock: "Correct the wrong clock, preferably with NTP." zh "请校正错误的时钟，建议使用 NTP。";
    profile_runs(profile, seen): "{profile} is running; last heartbeat {seen}" zh "{profile} 正在运行；最近心跳：{seen}";
    profile_silent(profile, seen): "{profile} is running, but its last heartbeat was {seen}" zh "{profile} 正在运行，但最近一次心跳是{seen}";
    profile_silent_do: "Check the output of `attache runtime start`; the hub may be unreachable." zh "请查看 `attache runtime start` 的输出；可能无法连接 Hub。";
    profile_stopped(profile, seen): "{profile} is paired but not running; last heartbeat {seen}" zh "{profile} 已配对但未运行；最近心跳：{seen}";
    adapter_reachable(endpoint): "the adapter at {endpoint} is reachable" zh "可以连接位于 {endpoint} 的适配器";
    adapter_secret(endpoint): "the adapter at {endpoint} doesn't accept the runtime's secret" zh "位于 {endpoint} 的适配器不接受运行时的密钥";
    adapter_secret_do: "Pair the device again while the adapter is running: attache runtime pair … --local-agent-endpoint URL" zh "请在适配器运行时重新配对设备：attache runtime pair … --local-agent-endpoint URL";
    adapter_away(endpoint, reason): "the adapter at {endpoint} isn't reachable: {reason}" zh "无法连接位于 {endpoint} 的适配器：{reason}";
    adapter_away_do: "Start it, for example with `attache adapter shell --listen ADDR`. To write your own, see docs/adapter.md." zh "请启动它，例如 `attache adapter shell --listen ADDR`。自行编写适配器请参阅 docs/adapter.md。";
    no_program(profile): "{profile} has no program to run tasks with" zh "{profile} 没有用来执行任务的程序";
    no_program_do: "Pair again with --local-executor-ref PROG." zh "请使用 --local-executor-ref PROG 重新配对。";

    // delegations
    nothing_delegated: "no folders of this machine can be delegated" zh "本机没有可以委派的文件夹";
    delegable(folders, peers): "{folders} can be delegated to {peers}" zh "可以将 {folders}委派给 {peers}";
    folders(n): "{n} folder" | "{n} folders" zh "{n} 个文件夹";
    trusted_peers(n): "{n} trusted peer" | "{n} trusted peers" zh "{n} 个受信任的对端";
    policy_wrong(file, what): "{file}: {what}" zh "{file}：{what}";
    policy_line(file, line, what): "{file}, line {line}: {what}" zh "{file}，第 {line} 行：{what}";
    daemon_runs: "the delegation daemon is running" zh "委派守护进程正在运行";
    daemon_later: "the delegation daemon isn't running; it starts automatically when needed" zh "委派守护进程未运行，需要时会自动启动";
    borrowing_off: "borrowing folders from other machines is off" zh "未开启使用其他机器的文件夹";
    borrowing_ready(folder): "borrowed folders can be mounted in {folder}" zh "可以将其他机器的文件夹挂载到 {folder}";
    borrowing_copies(folder): "borrowed folders are copied to {folder} where they can't be mounted (sync mode)" zh "无法挂载时，其他机器的文件夹会复制到 {folder}（同步模式）";

    // hosts
    no_hosts: "no agent hosts are installed; only the built-in shell" zh "未安装智能体程序，只有内置 Shell";
    no_hosts_do: "docs/hosts.md lists the supported hosts and how to install them." zh "docs/hosts.md 列出了支持的智能体程序及安装方法。";
    host_at(host, path): "{host} at {path}" zh "{host}，位于 {path}";
    host_in(host, path, how): "{host} at {path}, logged in ({how})" zh "{host}，位于 {path}，已登录（{how}）";
    host_out(host, path): "{host} at {path}, no login found" zh "{host}，位于 {path}，未找到登录";
    host_trouble(host, problem): "{host}: {problem}" zh "{host}：{problem}";
    host_starts(host, seconds): "{host} starts and accepts tasks ({seconds} s)" zh "{host} 可以启动并接受任务（{seconds} 秒）";
    host_fails(host, message): "{host} fails to start for a task: {message}" zh "{host} 无法为任务启动：{message}";
    host_fails_do: "Fix the reported problem or the host's configuration, then run `attache doctor` again." zh "请修复所报告的问题或该程序的配置，然后重新运行 `attache doctor`。";
    host_slow(host, seconds): "{host} didn't start within {seconds} seconds" zh "{host} 未能在 {seconds} 秒内启动";
    host_slow_do: "Start it manually on this device and check what it's waiting for." zh "请在此设备上手动启动它，看看它在等待什么。";
}
