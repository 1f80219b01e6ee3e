//! Words that all commands share: table headings, states, times and short answers.

use attache_protocol::rules::{delegation::DelegationStatus, permission::PermissionState, run::RunStatus};

texts! {
    // headings of tables
    id: "ID" zh "ID";
    name: "NAME" zh "名称";
    status: "STATUS" zh "状态";
    state: "STATE" zh "状态";
    device: "DEVICE" zh "设备";
    last_seen: "LAST SEEN" zh "最近在线";
    description: "DESCRIPTION" zh "描述";
    agent: "AGENT" zh "智能体";
    caller: "CALLER" zh "调用方";
    created: "CREATED" zh "创建时间";
    took: "TOOK" zh "用时";
    task: "TASK" zh "任务";
    asked: "ASKED" zh "请求时间";
    expires: "EXPIRES" zh "到期";
    risk: "RISK" zh "风险";
    tool: "TOOL" zh "工具";
    what: "WHAT" zh "内容";
    answer: "ANSWER" zh "决定";
    reach: "REACH" zh "范围";
    ends: "ENDS" zh "结束";
    by: "BY" zh "决定者";
    mode: "MODE" zh "访问方式";
    folder: "FOLDER" zh "文件夹";
    peer: "PEER" zh "对端";

    // states of a run
    pending: "pending" zh "排队中";
    running: "running" zh "运行中";
    completed: "completed" zh "已完成";
    failed: "failed" zh "失败";
    cancelled: "cancelled" zh "已取消";
    waiting_input: "waiting: input" zh "等待输入";
    waiting_approval: "waiting: approval" zh "等待审批";
    waiting_limit: "waiting: usage limit" zh "等待用量上限重置";

    // states of an approval request
    undecided: "pending" zh "待审批";
    approved: "approved" zh "已允许";
    denied: "denied" zh "已拒绝";
    expired: "expired" zh "已过期";
    withdrawn: "cancelled" zh "已撤回";

    // states of a delegation
    lease_created: "created" zh "已创建";
    lease_invited: "invited" zh "已邀请";
    lease_accepted: "accepted" zh "已接受";
    lease_started: "started" zh "已开始";
    lease_error: "error" zh "出错";
    lease_expired: "expired" zh "租约已到期";

    // states of an agent
    online: "online" zh "在线";
    offline: "offline" zh "离线";
    archived: "archived" zh "已归档";
    trouble: "problem" zh "有问题";

    // times and amounts
    just_now: "just now" zh "刚刚";
    ago(distance): "{distance} ago" zh "{distance}前";
    later(distance): "in {distance}" zh "{distance}后";
    milliseconds(n): "{n} ms" zh "{n} 毫秒";
    seconds(n): "{n} s" zh "{n} 秒";
    minutes(n): "{n} min" zh "{n} 分钟";
    hours(n): "{n} h" zh "{n} 小时";
    days(n): "{n} d" zh "{n} 天";
    never: "never" zh "从不";
    never_seen: "never" zh "从未";
    soon: "soon" zh "很快";
    unknown_time: "at an unknown time" zh "时间未知";
    someone: "someone" zh "某人";
    someone_else: "someone else" zh "其他人";
    unnamed: "unnamed" zh "未命名";
    none: "none" zh "无";
    set: "set" zh "已设置";

    // what every command can print
    error: "error:" zh "错误：";
    more_results(cursor): "More results: add --cursor {cursor}" zh "还有更多结果：添加 --cursor {cursor}";
    the_task: "the task" zh "任务";
    the_input: "the input" zh "输入";
}

pub(crate) fn run_status(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Pending => pending(),
        RunStatus::Running => running(),
        RunStatus::Completed => completed(),
        RunStatus::Failed => failed(),
        RunStatus::Cancelled => cancelled(),
    }
}

pub(crate) fn permission_state(state: PermissionState) -> &'static str {
    match state {
        PermissionState::Pending => undecided(),
        PermissionState::Approved => approved(),
        PermissionState::Denied => denied(),
        PermissionState::Expired => expired(),
        PermissionState::Cancelled => withdrawn(),
    }
}

pub(crate) fn delegation_status(status: DelegationStatus) -> &'static str {
    match status {
        DelegationStatus::Created => lease_created(),
        DelegationStatus::Invited => lease_invited(),
        DelegationStatus::Accepted => lease_accepted(),
        DelegationStatus::Started => lease_started(),
        DelegationStatus::Running => running(),
        DelegationStatus::Completed => completed(),
        DelegationStatus::Error => lease_error(),
        DelegationStatus::Cancelled => cancelled(),
        DelegationStatus::Expired => lease_expired(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The English words are those of the API.
    #[test]
    fn english_states_are_those_of_the_api() {
        for status in RunStatus::ALL {
            assert_eq!(run_status(status), status.as_str());
        }
        for state in PermissionState::ALL {
            assert_eq!(permission_state(state), state.as_str());
        }
        for status in DelegationStatus::ALL {
            assert_eq!(delegation_status(status), status.as_str());
        }
    }
}
