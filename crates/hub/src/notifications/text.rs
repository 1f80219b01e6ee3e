//! The texts of notifications, in the languages of the console.

use attache_protocol::wire::notification::NotificationLanguage;

/// Every text exists in every language, or this doesn't compile.
pub(super) struct NotificationText {
    pub(super) wants_command: fn(&str) -> String,
    pub(super) wants_edit: fn(&str) -> String,
    pub(super) wants_page: fn(&str) -> String,
    pub(super) wants_tool: fn(&str, &str) -> String,
    pub(super) wants_agent: fn(&str) -> String,
    pub(super) asks: fn(&str) -> String,
    pub(super) completed: fn(&str) -> String,
    pub(super) failed: fn(&str) -> String,
    pub(super) cancelled: fn(&str) -> String,
    pub(super) folder: fn(&str) -> String,
    pub(super) test_title: &'static str,
    pub(super) test_body: &'static str,
    pub(super) approve: &'static str,
    pub(super) deny: &'static str,
    pub(super) open: &'static str,
    pub(super) approved: &'static str,
    pub(super) denied: &'static str,
    pub(super) undecided: &'static str,
}

const ENGLISH: NotificationText = NotificationText {
    wants_command: |agent| format!("{agent} wants to run a command"),
    wants_edit: |agent| format!("{agent} wants to edit a file"),
    wants_page: |agent| format!("{agent} wants to open a web page"),
    wants_tool: |agent, tool| format!("{agent} wants to use {tool}"),
    wants_agent: |agent| format!("{agent} wants to call another agent"),
    asks: |agent| format!("{agent} has a question"),
    completed: |agent| format!("{agent} finished"),
    failed: |agent| format!("{agent} failed"),
    cancelled: |agent| format!("{agent} was stopped"),
    folder: |folder| format!("in {folder}"),
    test_title: "Notifications work",
    test_body: "This is a test. Approval requests and questions will arrive here.",
    approve: "Approve",
    deny: "Deny",
    open: "Open",
    approved: "Approved",
    denied: "Denied",
    undecided: "Not decided. Open the request to see why.",
};

const CHINESE: NotificationText = NotificationText {
    wants_command: |agent| format!("{agent} 请求运行命令"),
    wants_edit: |agent| format!("{agent} 请求修改文件"),
    wants_page: |agent| format!("{agent} 请求打开网页"),
    wants_tool: |agent, tool| format!("{agent} 请求使用 {tool}"),
    wants_agent: |agent| format!("{agent} 请求调用其他智能体"),
    asks: |agent| format!("{agent} 有问题要问你"),
    completed: |agent| format!("{agent} 已完成"),
    failed: |agent| format!("{agent} 执行失败"),
    cancelled: |agent| format!("{agent} 已停止"),
    folder: |folder| format!("目录：{folder}"),
    test_title: "通知已开启",
    test_body: "这是一条测试通知。审批请求和问题会发送到这里。",
    approve: "批准",
    deny: "拒绝",
    open: "打开",
    approved: "已批准",
    denied: "已拒绝",
    undecided: "未能处理，请打开请求查看原因。",
};

impl NotificationText {
    pub(super) const fn of(language: NotificationLanguage) -> &'static Self {
        match language {
            NotificationLanguage::English => &ENGLISH,
            NotificationLanguage::Chinese => &CHINESE,
        }
    }
}
