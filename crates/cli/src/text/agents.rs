//! `attache agents`: the list, one agent, its changes, keys and pairing codes.

texts! {
    none_yet: "No agents yet. Add one: attache agents add NAME" zh "还没有智能体。添加一个：attache agents add NAME";
    not_paired: "not paired" zh "未配对";
    nothing_to_change: "nothing to change" zh "没有要更改的内容";
    nothing_to_change_do: "Pass at least one option; see attache agents set --help." zh "请至少使用一个选项，参阅 attache agents set --help。";
    updated(agent): "Updated {agent}." zh "已更新 {agent}。";
    updated_shared(agent): "Updated {agent}. It is now shared. Its earlier work stays visible only to the people who started it." zh "已更新 {agent}。它现已共享，之前的工作仍只有发起者本人能看到。";
    ended_runtime: "Unpaired its device, which someone else had paired. Pair it again: attache agents code NAME" zh "已解除其设备的配对（由他人配对）。重新配对：attache agents code NAME";
    ended_key: "Revoked its key, which was created with someone else's credential." zh "已撤销其密钥（用他人的凭证创建）。";
    ended_peer: "Removed its outside agent, which someone else had set." zh "已移除其外部智能体（由他人设置）。";
    ended_webhook: "Removed its approval webhook, permission mode and trusted commands. Set them again: attache agents set NAME --approval-webhook URL" zh "已移除其审批 Webhook、权限模式和受信任的命令。重新设置：attache agents set NAME --approval-webhook URL";
    ended_grants: "Revoked standing approvals given by others." zh "已撤销他人已记住的决定。";
    added(agent): "Added {agent}. Pair a device with it: attache agents code {agent}" zh "已添加 {agent}。为它配对设备：attache agents code {agent}";
    added_peer(agent, url): "Added {agent}, an outside agent at {url}. Its card is now trusted:" zh "已添加外部智能体 {agent}（{url}）。其 Agent Card 现已受信任：";
    none_yet_pin: "none yet" zh "尚无";
    trusted(agent, pin): "The card of {agent} is now trusted: {pin}" zh "{agent} 的 Agent Card 现已受信任：{pin}";
    ask_archive(agent): "Archive {agent}? This stops its runs and can't be undone." zh "归档 {agent}？这会停止其运行，且无法撤销。";
    ask_archive_device(agent, device): "Archive {agent}? This stops its runs, disconnects {device} and can't be undone." zh "归档 {agent}？这会停止其运行并断开 {device}，且无法撤销。";
    not_archived: "nothing was archived" zh "未归档任何智能体";
    archived(agent): "Archived {agent}. Its run history and log are kept." zh "已归档 {agent}。其运行历史和日志会保留。";
    key_in(agent, file): "The key of {agent} is in {file}." zh "{agent} 的密钥在 {file} 中。";
    key_once: "The key won't be shown again. To replace it, register the agent again." zh "密钥不会再次显示。要更换密钥，请重新注册该智能体。";
    code_expires(until): "The code works once and expires {until}. On the device, run:" zh "配对码只能使用一次，到期：{until}。请在设备上运行：";
    replaces(device, state): "This replaces {device} ({state})." zh "这将取代 {device}（{state}）。";
    only_this_machine(port): "Only this machine can reach the hub. For other devices, start the hub with --listen 0.0.0.0:{port} --tls-self-signed" zh "只有本机能连接此 Hub。要供其他设备使用，请以 --listen 0.0.0.0:{port} --tls-self-signed 启动 Hub";
    or_behind_proxy: "(or behind a proxy with --public-url https://…), then create a new code." zh "（或在代理之后使用 --public-url https://…），然后创建新的配对码。";

    // one agent
    row_id: "id" zh "标识";
    row_status: "status" zh "状态";
    row_created: "created" zh "创建";
    row_description: "description" zh "描述";
    row_instructions: "instructions" zh "指令";
    row_callers: "callers" zh "可调用者";
    row_run_timeout: "run timeout" zh "运行时限";
    row_on_limit: "at usage limits" zh "达到用量上限时";
    row_permissions: "permissions" zh "权限模式";
    row_trusted: "trusted" zh "受信任的命令";
    row_skill: "skill" zh "技能";
    row_peer: "outside agent" zh "外部智能体";
    row_protocol: "protocol" zh "协议";
    row_key: "key" zh "密钥";
    row_card: "card" zh "Agent Card";
    row_pinned: "card pinned" zh "信任时间";
    row_new_card: "new card" zh "新的 Agent Card";
    row_problem: "problem" zh "问题";
    row_device: "device" zh "设备";
    row_host: "host" zh "智能体程序";
    row_sandbox: "sandbox" zh "沙箱";
    row_runtime: "runtime" zh "运行时";
    row_paired: "paired" zh "配对时间";
    row_last_seen: "last seen" zh "最近在线";
    row_next: "next step" zh "下一步";
    not_connected_yet: "not connected yet" zh "尚未连接";
    callers_anonymous: "everyone, even without a credential" zh "所有人，无需凭证";
    callers_everyone: "everyone who can call agents on this hub" zh "所有可以在此 Hub 上调用智能体的人";
    callers_owner: "owner only" zh "仅所有者";
    protocol(version, binding): "A2A {version} over {binding}" zh "A2A {version}，使用 {binding}";
    not_fetched: "not fetched yet" zh "尚未获取";
    offered(pin, agent): "{pin}; to accept it: attache agents trust {agent}" zh "{pin}；接受：attache agents trust {agent}";
    no_device(agent): "none; pair one: attache agents code {agent}" zh "无；请配对设备：attache agents code {agent}";
    walled(who, at, limits): "{who} (verified {at}: {limits})" zh "{who}；验证于{at}：{limits}";
    walled_all: "each run sees only its own folder" zh "所有运行只能看到自己的文件夹";
    walled_others: "other people's runs see only their own folders" zh "他人的运行只能看到自己的文件夹";
    walled_off: "only runs that ask for limits" zh "仅用于要求限制的运行";
    unwalled: "none; runs see everything its user can see" zh "无；运行可以看到其用户能看到的一切";
}
