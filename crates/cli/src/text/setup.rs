//! `attache up` and `attache login`, and what a runtime on this machine says.

texts! {
    // login
    no_user: "no specific user" zh "不特定用户";
    signs_in(who, role, until): "Signs in {who} ({role}). Works once; expires {until}." zh "以 {who}（{role}）身份登录。只能使用一次；到期：{until}。";

    // up
    only_loopback: "`attache up` only listens on loopback addresses" zh "`attache up` 只监听本机回环地址";
    only_loopback_do: "Use 127.0.0.1. To serve other machines, run `attache hub`." zh "请使用 127.0.0.1。要为其他机器提供服务，请运行 `attache hub`。";
    is_up(url): "Attaché is up: {url}" zh "Attaché 已启动：{url}";
    sign_in(url): "Sign in (one-time link, valid for ten minutes): {url}" zh "登录（一次性链接，十分钟内有效）：{url}";
    try_it(command): "Try it in another terminal: {command}" zh "在另一个终端中试一试：{command}";
    sees_only(folder): "Its tasks see only {folder}, as far as this machine can enforce that (attache sandbox). To show them everything: attache up --sandbox off" zh "其任务只能看到 {folder}，以本机能强制执行的程度为限（attache sandbox）。要让任务看到一切：attache up --sandbox off";
    installed: "Installed on this machine. Run the command in a separate terminal to add it as an agent:" zh "本机已安装以下智能体程序。在单独的终端中运行相应命令，即可将其添加为智能体：";
    offer(program, command): "  {program}: {command}" zh "  {program}：{command}";
    not_running(agent, failure): "The agent `{agent}` isn't running here: {failure}" zh "智能体 `{agent}` 未在此运行：{failure}";
    hub_stays: "The hub and the console keep running." zh "Hub 和控制台继续运行。";
    runtime_stopped(error): "the runtime stopped unexpectedly: {error}" zh "运行时意外停止：{error}";
    local_taken(holder, name): "The agent `local` belongs to {holder}, so this machine's agent is `{name}`." zh "智能体 `local` 属于 {holder}，因此本机的智能体是 `{name}`。";
    now_shared(agent): "The agent `{agent}` is now shared: everyone who can call agents on this hub has a shell on this machine. Its earlier work stays visible only to the people who started it." zh "智能体 `{agent}` 现已共享：所有可以在此 Hub 上调用智能体的人都拥有本机的 Shell。它之前的工作仍只有发起者本人能看到。";
    now_private(agent): "The agent `{agent}` is now private to you. To share it: attache up --share-local." zh "智能体 `{agent}` 现在仅供你使用。要共享它：attache up --share-local。";
    unprepared(agent, message): "can't prepare the agent `{agent}`: {message}" zh "无法准备智能体 `{agent}`：{message}";
    paired_elsewhere(agent, device): "The agent `{agent}` isn't running here: it's paired with another device ({device})." zh "智能体 `{agent}` 未在此运行：它已与另一台设备（{device}）配对。";
    disconnected(agent): "The agent `{agent}` isn't running here: someone disconnected it." zh "智能体 `{agent}` 未在此运行：有人断开了它。";
    run_here_again(profile): "To run it here again: attache runtime unpair --profile {profile}" zh "要重新在此运行：attache runtime unpair --profile {profile}";
    then_restart: "Then restart `attache up`." zh "然后重新启动 `attache up`。";
    cant_pair(message): "can't pair this machine: {message}" zh "无法配对本机：{message}";
    pass_folder: "Pass a folder with --cwd DIR." zh "请用 --cwd DIR 指定文件夹。";

    // starting a server
    no_permission(address): "no permission to listen on {address}" zh "没有在 {address} 上监听的权限";
    low_port(option): "Ports below 1024 require root. Use a higher port, such as {option} 127.0.0.1:7800." zh "1024 以下的端口需要 root 权限。请使用更高的端口，例如 {option} 127.0.0.1:7800。";
    not_own_address(address): "{address} isn't an address of this machine" zh "{address} 不是本机的地址";
    own_address(option): "Use {option} 127.0.0.1:7800." zh "请使用 {option} 127.0.0.1:7800。";
    cant_listen(address, error): "can't listen on {address}: {error}" zh "无法在 {address} 上监听：{error}";
    hub_running(url, owner): "an Attaché hub is already running at {url}{owner}" zh "已有一个 Attaché Hub 在 {url} 运行{owner}";
    hub_running_do(option, free): "Use it (`attache agents`), stop it, or use a free port: {option} {free}" zh "请直接使用它（`attache agents`），将其停止，或改用空闲端口：{option} {free}";
    port_taken(owner, address): "another program{owner} is already listening on {address}" zh "另一个程序{owner}已在 {address} 上监听";
    port_taken_do(option, free): "Stop it, or use a free port: {option} {free}" zh "请将其停止，或改用空闲端口：{option} {free}";
    folder_taken(folder): "another hub is using the folder {folder}" zh "另一个 Hub 正在使用文件夹 {folder}";
    folder_taken_do: "Stop it first, or start this one with another folder: --data DIR." zh "请先停止它，或为此 Hub 指定其他文件夹：--data DIR。";

    // a runtime
    runtime_of(agent, hub): "runtime of {agent} at {hub}" zh "{agent} 的运行时，Hub：{hub}";
    online: "online: waiting for tasks" zh "已上线：等待任务";
    hub_away(reason): "the hub is unreachable ({reason}); retrying" zh "无法连接 Hub（{reason}），正在重试";
    hub_back: "the hub is back" zh "Hub 已恢复连接";
    clock_ahead(n): "this device's clock is 1 minute ahead of the hub's" | "this device's clock is {n} minutes ahead of the hub's" zh "本设备的时钟比 Hub 快 {n} 分钟";
    clock_behind(n): "this device's clock is 1 minute behind the hub's" | "this device's clock is {n} minutes behind the hub's" zh "本设备的时钟比 Hub 慢 {n} 分钟";
    correct_clock(clock): "{clock}; correct the wrong clock" zh "{clock}，请校正错误的时钟";
    channel_open: "receiving tasks over a channel" zh "通过通道接收任务";
    no_channel(reason): "no channel ({reason}); polling for tasks instead" zh "没有通道（{reason}），改为轮询任务";
    run_asks_approval(run, tool): "{run} is waiting for approval to use {tool}; see attache approvals" zh "{run} 等待审批 {tool}；查看：attache approvals";
    run_asks_input(run, prompt): "{run} is waiting for input: {prompt}" zh "{run} 等待输入：{prompt}";
    run_approved(run): "{run} was approved" zh "{run} 已获允许";
    run_denied(run): "{run} was denied" zh "{run} 已被拒绝";
    run_answered(run): "{run} received its input" zh "{run} 已收到输入";
    ledger_unwritable(reason): "not accepting tasks: can't write the ledger ({reason}). Free up disk space; the runtime resumes automatically" zh "不接受任务：无法写入执行账本（{reason}）。请释放磁盘空间，运行时会自动恢复";
    ledger_writable: "the ledger is writable again" zh "执行账本已恢复可写";
    ledger_damaged: "this device's ledger is missing or damaged; tasks in progress count as lost" zh "本设备的执行账本缺失或损坏，进行中的任务视为丢失";
    adapter_away(reason): "the adapter is unreachable: {reason}" zh "无法连接适配器：{reason}";
    adapter_at(endpoint): "adapter at {endpoint}" zh "适配器：{endpoint}";
    run_started(run, kind): "{run} started ({kind})" zh "{run} 已开始（{kind}）";
    run_rejoined(run): "{run} is still running; following it again" zh "{run} 仍在运行，已重新跟踪";
    run_released(run): "{run} was returned to the queue" zh "{run} 已退回队列";
    run_ended(run, status): "{run} {status}" zh "{run} {status}";
    run_ended_with(run, status, error): "{run} {status}: {error}" zh "{run} {status}：{error}";
    run_stopped(run, reason): "{run} was stopped: {reason}" zh "{run} 已停止：{reason}";
    run_reported(run): "the outcome of {run} was reported" zh "{run} 已上报";
    report_kept(run, reason): "can't report the outcome of {run} ({reason}); it is kept in the ledger" zh "无法上报 {run} 的结果（{reason}），已保存在执行账本中";
    report_refused(run, reason): "the hub refused the outcome of {run}: {reason}" zh "Hub 拒绝了 {run} 的结果：{reason}";
    stopping_after(run): "stopping after {run} finishes" zh "将在 {run} 结束后停止";
    stopping: "stopping" zh "正在停止";
}
