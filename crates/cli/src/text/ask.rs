//! `attache ask` and `attache watch`: progress, waiting, questions, the end of a run.

texts! {
    // progress
    started: "Started." zh "已开始。";
    started_on(device): "Started on {device}." zh "已在 {device} 上开始。";
    status_waiting: "waiting" zh "等待中";
    status_running: "running" zh "运行中";
    status_disconnected: "waiting for the connection to the hub" zh "等待与 Hub 的连接恢复";
    status_limit: "waiting for the usage limit to reset" zh "等待用量上限重置";
    status_approval: "waiting for approval" zh "等待审批";
    status_input: "waiting for input" zh "等待输入";
    status_authorization: "waiting for authorization" zh "等待授权";
    artifact(title, about): "artifact {title}: {about}" zh "产物 {title}：{about}";
    requeued(reason): "back in the queue: {reason}" zh "重新排队：{reason}";
    fallback(agent, next): "{agent} has reached a usage limit; the fallback agent continues: {next}" zh "{agent} 已达到用量上限，由备用智能体继续：{next}";
    tool_failed(tool): "{tool} failed" zh "{tool} 失败";
    the_tool: "the tool" zh "工具";
    a_tool: "a tool" zh "工具";
    more_lines(n): "  … {n} more lines" zh "  … 另有 {n} 行";
    device_back: "the device is back" zh "设备已恢复连接";
    device_silent(until): "the device isn't responding; unless it comes back, its lease on the run expires {until}" zh "设备没有响应；如果不恢复，它对此运行的租约到期时间：{until}";
    connection_lost(limit): "Lost the connection to the hub; trying again for up to {limit}." zh "与 Hub 的连接已断开，正在重试，最长 {limit}。";
    connected_again: "Connected again." zh "已重新连接。";
    storage_broken(problem): "The hub can't write to its storage: {problem}. The run resumes automatically once that is fixed." zh "Hub 无法写入存储：{problem}。修复后运行会自动继续。";
    storage_works: "The hub's storage is working again." zh "Hub 的存储已恢复正常。";

    // why a run is still in the queue
    queued(why, when, what): "{why}. The run is queued and starts when {when}. {what}." zh "{why}。运行已排队，{when}后开始。{what}。";
    queued_until(why, when, until, what): "{why}. The run is queued and starts when {when} (expires {until}). {what}." zh "{why}。运行已排队，{when}后开始（到期：{until}）。{what}。";
    when_free: "the agent is free" zh "智能体空闲";
    when_online: "the agent is online" zh "智能体上线";
    when_trusted: "the card is trusted" zh "该 Agent Card 受信任";
    when_resolved: "that is resolved" zh "问题解决";
    limit_reached(agent, when, id): "{agent}'s model account has reached a usage limit. The run will continue automatically {when}. To stop waiting: attache runs cancel {id}." zh "{agent} 的模型账号已达到用量上限，运行会自动继续（{when}）。不再等待：attache runs cancel {id}。";
    busy(agent, run, place): "{agent} is busy with {run}; this run {place}" zh "{agent} 正在处理 {run}；{place}";
    busy_more(agent, run, n, place): "{agent} is busy with {run} and {n} more; this run {place}" zh "{agent} 正在处理 {run} 等运行（另有 {n} 个）；{place}";
    busy_approval(agent, run, place): "{agent} is busy with {run}, which is waiting for an approval; this run {place}" zh "{agent} 正在处理 {run}，它在等待审批；{place}";
    busy_more_approval(agent, run, n, place): "{agent} is busy with {run} (waiting for an approval) and {n} more; this run {place}" zh "{agent} 正在处理 {run}（等待审批）等运行（另有 {n} 个）；{place}";
    busy_input(agent, run, place): "{agent} is busy with {run}, which is waiting for an answer; this run {place}" zh "{agent} 正在处理 {run}，它在等待答复；{place}";
    busy_more_input(agent, run, n, place): "{agent} is busy with {run} (waiting for an answer) and {n} more; this run {place}" zh "{agent} 正在处理 {run}（等待答复）等运行（另有 {n} 个）；{place}";
    next_in_queue: "is next in the queue" zh "此运行排在下一个";
    behind(n): "is behind 1 other run" | "is behind {n} other runs" zh "此运行前面还有 {n} 个运行";
    see_run(run): "See attache runs show {run}" zh "查看：attache runs show {run}";
    decide_it: "Decide: attache approvals, or cancel that run" zh "请审批：attache approvals，或取消该运行";
    answer_or_cancel(run): "Answer it: attache runs answer {run} \"…\", or cancel it: attache runs cancel {run}" zh "请答复：attache runs answer {run} \"…\"，或取消：attache runs cancel {run}";
    agent_offline(agent, device, seen): "{agent} is offline ({device}: {seen})" zh "{agent} 已离线（{device}：{seen}）";
    its_device: "its device" zh "其设备";
    device_never_seen: "never seen" zh "从未在线";
    start_runtime: "On the device, run `attache runtime start`" zh "请在该设备上运行 `attache runtime start`";
    only_registered(agent): "{agent} is registered with a key of its own, but it hasn't connected yet" zh "{agent} 已用自己的密钥注册，但尚未连接";
    connect_it: "Connect it with that key, see /docs/channels on the hub" zh "请用该密钥连接它，参见 Hub 上的 /docs/channels";
    not_paired(agent): "no device is paired with {agent}" zh "{agent} 尚未配对设备";
    pair_one(agent): "Pair one: attache agents code {agent}" zh "请为它配对设备：attache agents code {agent}";
    card_changed(agent): "the agent card of {agent} changed and isn't trusted yet" zh "{agent} 的 Agent Card 已更改，尚未受信任";
    review_card(agent): "Review it (attache agents show {agent}), then trust it: attache agents trust {agent}" zh "请先检查（attache agents show {agent}），再信任它：attache agents trust {agent}";
    peer_unavailable(agent, problem): "{agent} is unavailable: {problem}" zh "{agent} 不可用：{problem}";
    see_agent(agent): "See attache agents show {agent}" zh "查看：attache agents show {agent}";

    // approvals and questions in place
    waiting_for_approval(tool, what): "waiting for approval of {tool}: {what}" zh "等待审批 {tool}：{what}";
    decide_with(id, options): "  allow it: attache approvals approve {id}{options}\n  deny it:  attache approvals deny {id}{options}\n  see it:   attache approvals show {id}{options}" zh "  允许：attache approvals approve {id}{options}\n  拒绝：attache approvals deny {id}{options}\n  查看：attache approvals show {id}{options}";
    private_call: "a private agent, so only its owner sees the request and decides" zh "这是私有智能体，仅其所有者可以查看和处理此请求";
    approved_by(who): "approved by {who}" zh "{who} 已允许";
    approved_because(who, comment): "approved by {who}: {comment}" zh "{who} 已允许：{comment}";
    denied_by(who): "denied by {who}" zh "{who} 已拒绝";
    denied_because(who, comment): "denied by {who}: {comment}" zh "{who} 已拒绝：{comment}";
    denied_late: "denied: no answer in time" zh "已拒绝：无人及时答复";
    asks_elsewhere(prompt, run, options): "asks for input: {prompt}\n  answer it: attache runs answer {run} \"…\"{options}" zh "请求输入：{prompt}\n  答复：attache runs answer {run} \"…\"{options}";
    asks_here(prompt): "asks for input: {prompt}\n  type your answer and press Enter:" zh "请求输入：{prompt}\n  请输入答复并按 Enter：";
    authorize(prompt, run, options): "{prompt}\n  to send it a message: attache runs input {run} \"…\"{options}" zh "{prompt}\n  向它发送消息：attache runs input {run} \"…\"{options}";
    answer_it(run, options): "  answer it: attache runs answer {run} \"…\"{options}" zh "  答复：attache runs answer {run} \"…\"{options}";
    undecidable(error): "  can't be decided here: {error}" zh "  无法在此审批：{error}";
    type_decision: "  type a to allow or d to deny" zh "  输入 a 允许，输入 d 拒绝";
    decision_refused(failure): "the decision wasn't accepted: {failure}" zh "决定未被接受：{failure}";
    answer_refused(error): "the answer wasn't accepted: {error}" zh "答复未被接受：{error}";
    wants_tool(agent, tool): "  {agent} wants to use {tool}" zh "  {agent} 想使用 {tool}";
    part(name): "  {name}:" zh "  {name}：";
    proposed: "  proposed changes:" zh "  拟议的更改：";
    in_folder(folder): "  in: {folder}" zh "  文件夹：{folder}";
    risk(risk): "  risk: {risk}" zh "  风险：{risk}";
    reason(reason): "  reason: {reason}" zh "  理由：{reason}";
    undisclosed(what): "  not disclosed: {what}" zh "  未披露：{what}";
    type_a_or_d: "  Type a to allow once, d to deny (d REASON tells the agent why):" zh "  输入 a 允许一次，输入 d 拒绝（d 理由 会告知智能体原因）：";
    type_a_r_or_d: "  Type a to allow once, r to allow for this run, d to deny (d REASON tells the agent why):" zh "  输入 a 允许一次，输入 r 在本次运行内允许，输入 d 拒绝（d 理由 会告知智能体原因）：";

    // the answer
    excerpt_shown(shown, all, artifact): "Showing {shown} of {all}. Complete output: attache artifacts get {artifact} --output FILE" zh "已显示 {shown}，共 {all}。完整输出：attache artifacts get {artifact} --output FILE";
    not_text(artifact): "The output isn't text. Complete output: attache artifacts get {artifact} --output FILE" zh "输出不是文本。完整输出：attache artifacts get {artifact} --output FILE";
    rest_lost: "The rest of the output was not kept." zh "其余输出未保留。";
    cut(shown, all): "the output is truncated: only {shown} of {all} available" zh "输出不完整：共 {all}，仅有 {shown}";
    streamed_differs: "the streamed output differs from the complete output" zh "流式输出与完整输出不一致";
    streamed_differs_do(artifact): "Complete output: attache artifacts get {artifact} --output FILE, or ask without --stream." zh "完整输出：attache artifacts get {artifact} --output FILE，或不使用 --stream 重新提问。";
    parts_lost: "Parts of the streamed output were lost. The complete result:" zh "部分流式输出已丢失。完整结果：";
    partial(kept, total): "The output is truncated: showing {kept} of {total} bytes." zh "输出不完整：共 {total} 字节，已显示 {kept} 字节。";
    files_came(n, run): "1 file came with the answer: attache artifacts list {run}" | "{n} files came with the answer: attache artifacts list {run}" zh "答复附有 {n} 个文件：attache artifacts list {run}";

    // the end
    see_the_run(run): "See the run: attache runs show {run}" zh "查看此运行：attache runs show {run}";
    was_cancelled: "the run was cancelled" zh "运行已取消";
    was_cancelled_because(reason): "the run was cancelled: {reason}" zh "运行已取消：{reason}";
    no_reason: "no reason given" zh "未说明原因";
    has_failed(error): "the run failed: {error}" zh "运行失败：{error}";
    has_failed_with(code, error): "the run failed ({code}): {error}" zh "运行失败（{code}）：{error}";
    hub_lost(run): "The run is not lost. When the hub is back, follow it with `attache watch {run}`." zh "运行没有丢失。Hub 恢复后，可用 `attache watch {run}` 继续查看。";
    not_followed(run, message): "run {run} continues, but can't be followed: {message}" zh "运行 {run} 仍在继续，但无法跟踪：{message}";
    closed_cancelled(status): "The output was closed; the run is {status}." zh "输出已关闭；运行状态：{status}。";
    closed_left(run): "The output was closed; the run continues (attache watch {run})." zh "输出已关闭；运行仍在继续（attache watch {run}）。";
    timed_out_cancelled(n, status): "timed out after {n} second; the run is {status}" | "timed out after {n} seconds; the run is {status}" zh "等待 {n} 秒后超时；运行状态：{status}";
    timed_out_left(n, run): "timed out after {n} second; the run continues (attache watch {run})" | "timed out after {n} seconds; the run continues (attache watch {run})" zh "等待 {n} 秒后超时；运行仍在继续（attache watch {run}）";
    interrupted_cancelled(status): "interrupted; the run is {status}" zh "已中断；运行状态：{status}";
    interrupted_left(run): "interrupted; the run continues (attache watch {run})" zh "已中断；运行仍在继续（attache watch {run}）";
    closed: "the output was closed" zh "输出已关闭";
    timed_out: "timed out" zh "已超时";
    interrupted: "interrupted" zh "已中断";
    not_cancelled(reason, message): "{reason}; the run was not cancelled: {message}" zh "{reason}；运行未能取消：{message}";
    not_cancelled_do(run): "It may still be working. Cancel it: attache runs cancel {run}" zh "它可能仍在工作。取消：attache runs cancel {run}";

    // the command
    empty_task: "the task is empty" zh "任务为空";
    empty_task_do: "Describe the task: attache ask AGENT \"…\"" zh "请描述任务：attache ask AGENT \"…\"";
    cant_read_runs(message): "no run was started: this key can't read runs ({message})" zh "未开始运行：此密钥无权查看运行（{message}）";
    follow_it(run): "Follow it: attache watch {run}" zh "跟踪：attache watch {run}";
    files_left(conversation): "The uploaded files are in {conversation}. To delete them: attache conversations delete {conversation}" zh "已上传的文件在 {conversation} 中。删除：attache conversations delete {conversation}";
    continuing(conversation, agent): "Continuing in {conversation}. Next: attache ask {agent} --conversation {conversation} \"…\"" zh "在 {conversation} 中继续。接下来：attache ask {agent} --conversation {conversation} \"…\"";
    uploaded(file, size): "Uploaded {file} ({size})." zh "已上传 {file}（{size}）。";
    file_too_large(file, size): "{file} ({size}) exceeds this hub's artifact size limit" zh "{file}（{size}）超出此 Hub 的产物大小上限";
    file_too_large_do: "Delegate the folder instead (attache delegate --help), or raise the hub's limit with --max-artifact-bytes." zh "请改为委派文件夹（attache delegate --help），或用 --max-artifact-bytes 提高 Hub 的上限。";
}
