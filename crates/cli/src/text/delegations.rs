//! `attache delegate` and `attache delegations`.

texts! {
    // delegate
    empty_task_do: "Describe the task: attache delegate DIR --to URL \"…\"" zh "请描述任务：attache delegate DIR --to URL \"…\"";
    follow_it(id): "Follow it: attache delegations wait {id}" zh "跟踪：attache delegations wait {id}";
    interrupted: "interrupted; the delegation continues" zh "已中断；委派仍在继续";
    cancelling: "Cancelling…" zh "正在取消…";
    ask_peer(url): "{url} isn't a trusted peer yet. Allow it to borrow folders from this machine?" zh "{url} 还不是受信任的对端。允许它使用本机的文件夹吗？";
    ask_folder(folder): "{folder} isn't on the allow-list yet. Allow delegating it?" zh "{folder} 还不在白名单中。允许委派它吗？";
    not_allowed: "not allowed; nothing was delegated" zh "未获允许；没有委派任何内容";
    added_to(path): "Added to {path}." zh "已添加到 {path}。";
    waits_for(reason): "waiting for {reason}" zh "等待：{reason}";

    // how far it is
    created(id): "created {id}" zh "已创建 {id}";
    invited(url): "invited {url}" zh "已邀请 {url}";
    accepted: "accepted" zh "对端已接受";
    shared(mode, until): "shared ({mode}), lease ends {until}" zh "文件夹已共享（{mode}），租约到期：{until}";
    working: "the remote agent is working" zh "远端智能体正在工作";
    failed_revoked: "failed; access revoked" zh "失败；访问权限已收回";
    failed_unshared: "failed; the folder was never shared" zh "失败；文件夹从未共享";
    ended_revoked(status): "{status}; access revoked" zh "{status}；访问权限已收回";
    ended_unshared(status): "{status}; the folder was never shared" zh "{status}；文件夹从未共享";
    not_changed_yet(id): "Nothing has been changed in the folder yet. Review the changes: attache delegations review {id}\nor apply them all: attache delegations apply {id}" zh "文件夹尚未有任何更改。逐项检查：attache delegations review {id}\n或全部应用：attache delegations apply {id}";

    // how it went
    result(code, message): "{code}: {message}" zh "{code}：{message}";
    is_now(status): "the delegation is {status}" zh "委派状态：{status}";
    cut(here, all): "the output is truncated: only {here} of text, out of {all} in total" zh "输出不完整：共 {all}，仅有 {here} 的文本";
    cut_artifact(artifact, remote): "The complete output is artifact {artifact} at {remote}. With a key for that hub: attache artifacts get {artifact} --output FILE" zh "完整输出是 {remote} 上的产物 {artifact}。使用该 Hub 的密钥获取：attache artifacts get {artifact} --output FILE";
    cut_artifact_of(artifact, run, remote): "The complete output is artifact {artifact} of {run} at {remote}. With a key for that hub: attache artifacts get {artifact} --output FILE" zh "完整输出是 {remote} 上 {run} 的产物 {artifact}。使用该 Hub 的密钥获取：attache artifacts get {artifact} --output FILE";
    cut_lost: "The remote agent didn't keep the rest." zh "远端智能体没有保留其余部分。";
    no_changes: "No changes to the folder." zh "文件夹没有更改。";
    changes(n, added, removed, id): "1 file changed, +{added} −{removed} lines. See: attache delegations diff {id}" | "{n} files changed, +{added} −{removed} lines. See: attache delegations diff {id}" zh "{n} 个文件已更改，+{added} −{removed} 行。查看：attache delegations diff {id}";

    // the list
    none_yet: "No delegations. Delegate a folder: attache delegate DIR --to URL \"…\"" zh "没有委派。委派文件夹：attache delegate DIR --to URL \"…\"";
    staged_mode(mode): "{mode}, staged" zh "{mode}，暂存";
    staged_text(id, text): "{id}: {text}" zh "{id}：{text}";
    unapplied_kept(n, size): "1 change not applied, in a copy of {size}" | "{n} changes not applied, in a copy of {size}" zh "{n} 项更改未应用，副本大小 {size}";
    unapplied_until(n, size, until): "1 change not applied, in a copy of {size} that will be removed {until}" | "{n} changes not applied, in a copy of {size} that will be removed {until}" zh "{n} 项更改未应用，副本大小 {size}，删除时间：{until}";
    unapplied_removed(n, at): "1 change not applied; the copy was removed {at}, but the diff is kept" | "{n} changes not applied; the copy was removed {at}, but the diff is kept" zh "{n} 项更改未应用；副本已于{at}删除，diff 仍保留";
    unchanged_yet: "nothing changes in the folder until you apply it" zh "应用之前，文件夹不会有任何更改";

    // one delegation
    row_delegation: "delegation" zh "委派";
    row_status: "status" zh "状态";
    row_task: "task" zh "任务";
    row_peer: "peer" zh "对端";
    row_folder: "folder" zh "文件夹";
    row_mode: "mode" zh "访问方式";
    row_staged: "staged" zh "暂存";
    row_created: "created" zh "创建";
    row_started: "started" zh "开始";
    row_expires: "expires" zh "到期";
    row_ended: "ended" zh "结束";
    row_sandbox: "sandbox" zh "沙箱";
    row_waiting: "waiting for" zh "等待";
    row_mounted: "mounted at" zh "挂载点";
    row_transport: "transport" zh "传输方式";
    row_remote_task: "remote task" zh "远端任务";
    row_progress: "progress" zh "进度";
    row_error: "error" zh "错误";
    row_hint: "hint" zh "建议";
    change_added: "added" zh "新增";
    change_modified: "modified" zh "修改";
    change_removed: "removed" zh "删除";
    change_attributes: "attributes" zh "属性";
    applied(path): "{path} (applied)" zh "{path}（已应用）";
    accepted_path(path): "{path} (accepted)" zh "{path}（已接受）";
    review_first(path, who): "{path} (executed or read by {who}: review it first)" zh "{path}（会被 {who} 执行或读取，请先检查）";
    sandbox_none: "none: the agent runs with all the rights of the remote's user" zh "无：智能体以远端用户的全部权限运行";
    sandbox_proved(limits, at, how): "{limits}; verified by the remote at {at}: {how}" zh "{limits}；远端验证于 {at}：{how}";
    sandbox_said(limits): "{limits}, according to the remote" zh "{limits}（远端声明）";
    now(status): "Status: {status}" zh "状态：{status}";
    now_known(status, known): "Status: {status}: {known}" zh "状态：{status}：{known}";
    no_log: "The remote agent wrote no output." zh "远端智能体没有输出。";

    // cancel, wait, allow
    one_is(id, status): "{id} is {status}." zh "{id} {status}。";
    none_live: "No active delegations." zh "没有进行中的委派。";
    timed_out(n): "timed out after {n} second; the delegations continue" | "timed out after {n} seconds; the delegations continue" zh "等待 {n} 秒后超时；委派仍在继续";
    timed_out_do: "Check their status: attache delegations list --live" zh "查看其状态：attache delegations list --live";
    no_session(session): "session `{session}` has no delegations" zh "会话 `{session}` 没有委派";
    no_session_do: "Find the `session_id` of each delegation: attache delegations list --json" zh "查看各委派的 `session_id`：attache delegations list --json";
    only_below(folder): "Only folders in {folder} can be delegated, not {folder} itself: it contains $AWCP_HOME." zh "只能委派 {folder} 中的文件夹，不能委派 {folder} 本身：它包含 $AWCP_HOME。";
    broad(folder): "warning: everything in {folder} can now be delegated; to undo: attache delegations disallow --folder {folder}" zh "警告：{folder} 中的一切现在都可以被委派；撤销：attache delegations disallow --folder {folder}";
    policy_changed(path): "Updated {path}." zh "已更新 {path}。";
    policy_same(path): "No changes to {path}." zh "{path} 没有更改。";
}
