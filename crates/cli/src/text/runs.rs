//! `attache runs`: the list, one run, its questions.

texts! {
    no_views: "You have no saved views. Save one in the console: filter the runs, then choose Save view." zh "你还没有保存视图。可在控制台中保存：先筛选运行，然后选择“保存视图”。";
    shows: "SHOWS" zh "显示";
    no_view(name): "you have no saved view named `{name}`" zh "你没有名为 `{name}` 的视图";
    no_view_do: "List your views: attache runs views" zh "列出你的视图：attache runs views";
    none_matching: "No matching runs." zh "没有符合条件的运行。";
    none_found: "No runs found. Start one: attache ask AGENT \"…\"" zh "没有找到运行。开始一个：attache ask AGENT \"…\"";
    some_wait: "Some runs are waiting for approval: attache approvals" zh "有运行在等待审批：attache approvals";
    is_now(run, status): "{run} is {status}." zh "{run} {status}。";
    ask_delete(run): "Delete {run}? This can't be undone: its result and artifacts are deleted too." zh "删除 {run}？此操作无法撤销：结果和产物也会一并删除。";
    not_deleted: "nothing was deleted" zh "未删除任何内容";
    deleted(run): "Deleted {run}. The audit log keeps a record of the run and of who deleted it." zh "已删除 {run}。审计日志会保留此运行及其删除者的记录。";
    no_question(run): "{run} has no open question" zh "{run} 没有待答复的问题";
    not_working_yet(run): "{run} isn't working yet, so it has no question" zh "{run} 尚未开始工作，因此没有问题";
    not_working_yet_do(run): "Wait for its question: attache watch {run}" zh "等待它提问：attache watch {run}";
    no_question_ended(run): "{run} has ended, so it has no open question" zh "{run} 已结束，因此没有待答复的问题";
    no_question_ended_do(run): "See its result: attache runs show {run}" zh "查看结果：attache runs show {run}";
    no_question_do(run): "To tell it something anyway: attache runs input {run} \"…\"" zh "如果仍要告诉它什么：attache runs input {run} \"…\"";
    asks: "asks" zh "提问";
    answer_it(run): "Answer it: attache runs answer {run} \"…\"" zh "答复：attache runs answer {run} \"…\"";
    empty_input: "the input is empty" zh "输入为空";
    empty_input_do: "Pass the text: attache runs input RUN \"…\"" zh "请提供内容：attache runs input RUN \"…\"";
    input_unheard(run): "{run} doesn't accept input while it's working; the input wasn't delivered" zh "{run} 在工作期间不接受输入；输入未送达";
    input_unheard_do(agent, conversation): "Wait until it finishes, then send another task in the same conversation: attache ask {agent} \"…\" --conversation {conversation}" zh "请等它结束，再在同一对话中发送新任务：attache ask {agent} \"…\" --conversation {conversation}";
    part_undelivered: "not delivered: the run had ended" zh "未送达：运行已结束";
    undelivered_do(agent, conversation): "Send it as the next task: attache ask {agent} \"…\" --conversation {conversation}" zh "作为下一个任务发送：attache ask {agent} \"…\" --conversation {conversation}";
    answered(run): "Answered the question of {run}. Follow it: attache watch {run}" zh "已答复 {run} 的问题。跟踪：attache watch {run}";
    sent(run): "Sent to {run}, which had no open question. Follow it: attache watch {run}" zh "已发送给 {run}（它没有待答复的问题）。跟踪：attache watch {run}";

    // the state on the device, in a list and as a sentence
    remote_running: "running" zh "运行中";
    remote_silent: "silent" zh "无更新";
    remote_waiting: "waiting" zh "等待中";
    remote_finished: "finished" zh "已完成";
    remote_unknown: "unknown" zh "未知";
    remote_away: "not connected" zh "未连接";
    remote_running_text: "running on the device" zh "设备正在运行";
    remote_silent_text: "the device is connected but hasn't reported on this run for a while" zh "设备已连接，但已有一段时间没有此运行的消息";
    remote_waiting_text: "the device is waiting for a person's answer" zh "设备在等待人的答复";
    remote_finished_text: "finished on the device; the hub hasn't accepted the result yet" zh "设备上已完成，Hub 尚未接收结果";
    remote_unknown_text: "the device no longer knows this run" zh "设备上已无此运行";
    remote_away_text: "the device isn't connected; the run may still be running there" zh "设备未连接，运行可能仍在其上继续";

    // one run
    row_run: "run" zh "运行";
    row_status: "status" zh "状态";
    row_code: "code" zh "错误代码";
    row_on_device: "on the device" zh "设备状态";
    row_agent: "agent" zh "智能体";
    row_device: "device" zh "设备";
    row_created: "created" zh "创建";
    row_time_limit: "time limit" zh "时间限制";
    row_took: "took" zh "用时";
    row_expires: "expires" zh "到期";
    row_used: "used" zh "用量";
    row_permissions: "permissions" zh "权限模式";
    row_sandbox: "sandbox" zh "沙箱";
    row_attempt: "attempt" zh "尝试";
    row_conversation: "conversation" zh "对话";
    created_by(at, who): "{at} by {who}" zh "{at}，{who}";
    attempt_of(attempt, max): "{attempt} of {max}" zh "第 {attempt} 次，最多 {max} 次";
    limit_paused(limit): "{limit}, paused while it waits" zh "{limit}，等待期间暂停计时";
    limit_ends(limit, at): "{limit}, times out {at}" zh "{limit}，超时时间：{at}";
    tokens(n): "{n} tokens" zh "{n} 个 Token";
    part_task: "task" zh "任务";
    part_result: "result" zh "结果";
    part_network: "network" zh "网络";
    part_waiting: "waiting for approval" zh "等待审批";
    follow_it(run): "\nFollow it: attache watch {run}" zh "\n跟踪：attache watch {run}";
    peer_waits(run): "\nThe outside agent is waiting for authorization. See what it needs: attache watch {run}" zh "\n外部智能体在等待授权。查看它需要什么：attache watch {run}";
    approval_details(id): "See details: attache approvals show {id}" zh "详情：attache approvals show {id}";
    approval_allow(id): "Allow it:    attache approvals approve {id}" zh "允许：attache approvals approve {id}";
    approval_deny(id): "Deny it:     attache approvals deny {id}" zh "拒绝：attache approvals deny {id}";
    waits_for_input(run): "\nThe run is waiting for input: attache runs answer {run} \"…\"" zh "\n运行在等待输入：attache runs answer {run} \"…\"";
}
