//! `attache approvals`: requests, decisions and grants.

texts! {
    none_pending: "No pending approvals. See past decisions: attache approvals list --state all" zh "没有待审批的请求。查看以往的决定：attache approvals list --state all";
    none_found: "No requests found." zh "没有找到请求。";
    how_to_decide: "Details: attache approvals show ID. Decide: attache approvals approve ID, or attache approvals deny ID" zh "详情：attache approvals show ID。审批：attache approvals approve ID（允许），或 attache approvals deny ID（拒绝）";
    proposed: "proposed changes" zh "拟议的更改";
    allow_or_deny(id): "\nAllow it: attache approvals approve {id}\nDeny it:  attache approvals deny {id}" zh "\n允许：attache approvals approve {id}\n拒绝：attache approvals deny {id}";
    only_once(reason): "Only scope `once` is possible: {reason}." zh "范围只能是 `once`：{reason}。";
    once_hidden: "the agent doesn't disclose the tool's input" zh "智能体未披露此工具的输入";
    once_private: "a private agent acts with its owner's rights" zh "私有智能体以其所有者的权限行事";
    once_plan: "every plan is decided separately" zh "每个计划都单独审批";

    // a decision
    allowed(scope, agent, what): "Allowed {scope}: {agent} can use {what}." zh "已允许（{scope}）：{agent} 可以使用 {what}。";
    allowed_until(scope, agent, what, until): "Allowed {scope}: {agent} can use {what} until {until}." zh "已允许（{scope}）：{agent} 可以使用 {what}，直到 {until}。";
    denied(scope, agent, what): "Denied {scope}: {agent} can't use {what}." zh "已拒绝（{scope}）：{agent} 不能使用 {what}。";
    denied_until(scope, agent, what, until): "Denied {scope}: {agent} can't use {what} until {until}." zh "已拒绝（{scope}）：{agent} 不能使用 {what}，直到 {until}。";
    scope_once: "once" zh "仅此一次";
    scope_run: "for this run" zh "本次运行";
    scope_conversation: "for this conversation" zh "此对话";
    scope_agent: "for this agent" zh "此智能体";
    none_shown: "`last` means the request that was last shown to you, and none has been shown yet" zh "`last` 指最近向你显示过的请求，而目前还没有显示过";
    show_first(pending): "Look at a request before you decide: attache approvals show ID. Pending:\n{pending}" zh "先查看请求再决定：attache approvals show ID。待审批：\n{pending}";
    pending_line(id, agent, tool, subject): "  {id}  {agent}: {tool}: {subject}" zh "  {id}  {agent}：{tool}：{subject}";
    every_tool(pattern): "every tool that matches `{pattern}`" zh "名称匹配 `{pattern}` 的所有工具";
    one_use(tool, subject): "{tool}: {subject}" zh "{tool}：{subject}";
    exact_tool(tool, subject): "{tool} with exactly this input: {subject}" zh "{tool}（仅限完全相同的输入：{subject}）";
    saved_grant(grant): "Saved as grant {grant}. To revoke it: attache approvals grants revoke {grant}" zh "已记住此决定：{grant}。撤销：attache approvals grants revoke {grant}";
    already_decided(verdict): "already decided: {verdict}" zh "已处理过：{verdict}";

    // grants
    no_grants: "No grants. To create one, approve a request with a wider scope: attache approvals approve ID --scope run" zh "没有已记住的决定。审批时选择更大的范围即可记住：attache approvals approve ID --scope run";
    revoked(grant): "Revoked {grant}. Matching requests need approval again." zh "已撤销 {grant}。之后匹配的请求需要重新审批。";
    grant_revoked: "revoked" zh "已撤销";
    grant_ended: "ended" zh "已结束";
    grant_stands: "active" zh "有效";
    allow: "allow" zh "允许";
    deny: "deny" zh "拒绝";
    when_run_ends: "when the run ends" zh "运行结束时";
    over_channel(reach, channel): "{reach} over {channel}" zh "{reach}，仅限 {channel}";
    exactly(tool, what): "exactly {tool}: {what}" zh "完全相同的 {tool}：{what}";
    exactly_request(request): "exactly {request}" zh "与 {request} 完全相同的请求";

    // one request
    row_request: "request" zh "请求";
    row_state: "state" zh "状态";
    row_if_unanswered: "if unanswered" zh "无人答复时";
    row_decided: "decided" zh "决定";
    row_comment: "comment" zh "备注";
    row_agent: "agent" zh "智能体";
    row_run: "run" zh "运行";
    row_device: "device" zh "设备";
    row_channel: "channel" zh "通道";
    row_asked: "asked" zh "请求时间";
    row_risk: "risk" zh "风险";
    row_reason: "reason" zh "理由";
    row_folder: "folder" zh "文件夹";
    row_path: "path" zh "路径";
    row_undisclosed: "not disclosed" zh "未披露";
    row_bound: "bound to" zh "绑定到";
    row_tool: "tool" zh "工具";
    part_input: "input" zh "输入";
    part_change: "change" zh "更改";
    no_channel: "none (over HTTP)" zh "无（使用 HTTP）";
    risk_not_stated: "not stated" zh "未说明";
    then_fails(at): "denied {at}; the run fails" zh "{at}拒绝，运行失败";
    then_continues(at): "denied {at}; the agent continues without it" zh "{at}拒绝，智能体跳过此步骤继续";
    then_waits: "waits without a time limit" zh "一直等待，没有时间限制";

    // how a request was decided
    undecided: "not decided yet" zh "尚未处理";
    by_grant(by, at): "approved by a standing grant ({by}) {at}" zh "{at}按已记住的决定允许（{by}）";
    barred_by_grant(by, at): "denied by a standing grant ({by}) {at}" zh "{at}按已记住的决定拒绝（{by}）";
    by_settings(at): "approved by the agent's settings {at}" zh "{at}按智能体设置自动允许";
    approved_at(scope, by, at): "approved {scope} by {by} {at}" zh "{by} {at}允许（{scope}）";
    approved_through(scope, by, at, place): "approved {scope} by {by} {at} {place}" zh "{by} {at}允许（{scope}，{place}）";
    denied_at(scope, by, at): "denied {scope} by {by} {at}" zh "{by} {at}拒绝（{scope}）";
    denied_through(scope, by, at, place): "denied {scope} by {by} {at} {place}" zh "{by} {at}拒绝（{scope}，{place}）";
    expired_at(at): "denied {at}: no answer in time" zh "{at}拒绝：无人及时答复";
    withdrawn_at(at): "withdrawn {at}: the run ended or lost its device" zh "{at}撤回：运行已结束或设备失联";
    through_api: "through the API" zh "通过 API";
    through_console: "in the console" zh "在控制台中";
    through_notification: "from a notification" zh "通过通知";
    through_other(via): "over {via}" zh "通过 {via}";
    place_from(place, from): "{place} from {from}" zh "{place}，来自 {from}";
}
