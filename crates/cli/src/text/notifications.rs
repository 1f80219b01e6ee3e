//! `attache notifications`.

texts! {
    service: "SERVICE" zh "服务";
    notifies_of: "NOTIFIES OF" zh "通知内容";
    added: "ADDED" zh "添加时间";
    nothing_set_up: "Nothing is set up. Connect a chat: attache notifications add slack NAME" zh "尚未设置。接入聊天：attache notifications add slack NAME";
    browser: "Browser" zh "浏览器";

    // what a device or chat is notified of
    approvals_and_runs: "approvals, questions and finished runs" zh "审批、提问和运行结束";
    approvals: "approvals and questions" zh "审批和提问";
    runs: "finished runs" zh "运行结束";
    nothing: "nothing" zh "无";
    in_full(what): "{what}, in full" zh "{what}（完整内容）";
    chosen(name, what): "{name}: {what}." zh "{name}：{what}。";

    // connecting a chat
    exists(name): "{name} already exists" zh "{name} 已存在";
    exists_do: "Choose another name, change it with `attache notifications change`, or remove it first." zh "请换一个名称，用 `attache notifications change` 修改它，或先移除它。";
    connected(name, what): "Connected {name}: {what}." zh "已接入 {name}：{what}。";
    connected_again(name, before, what): "Connected {name} (formerly {before}): {what}." zh "已接入 {name}（原名 {before}）：{what}。";
    test_it(id): "Send a test: attache notifications test {id}" zh "发送测试消息：attache notifications test {id}";
    webhook_url: "webhook URL" zh "Webhook 地址";
    bot_token: "bot token" zh "机器人令牌";
    signing_secret: "signing secret" zh "签名密钥";
    ask_webhook_url: "Webhook URL: " zh "Webhook 地址：";
    ask_bot_token: "Bot token: " zh "机器人令牌：";
    ask_signing_secret: "Signing secret: " zh "签名密钥：";
    missing(what): "missing {what}" zh "缺少{what}";
    missing_do: "Type it, or pass it as a line on standard input." zh "请输入，或作为一行从标准输入传入。";

    // finding, testing and removing one
    not_found(name): "you have no device or chat `{name}`" zh "你没有名为 `{name}` 的设备或聊天";
    not_found_do: "List them: attache notifications" zh "查看列表：attache notifications";
    ambiguous(n, name): "`{name}` matches {n} device or chat" | "`{name}` matches {n} devices or chats" zh "`{name}` 匹配 {n} 个设备或聊天";
    ambiguous_do: "Use the id: attache notifications" zh "请使用 ID：attache notifications";
    test_accepted(service, name): "{service} accepted the test for {name}." zh "{service} 已接受发给 {name} 的测试消息。";
    test_refused(service, name, why): "{service} didn't accept the test for {name}{why}" zh "{service} 未接受发给 {name} 的测试消息{why}";
    with_status(status): " with status {status}" zh "（状态 {status}）";
    test_refused_do: "Check the address at the service, then connect the chat again." zh "请在该服务中核对地址，然后重新接入聊天。";
    ask_remove(name): "Stop notifying {name}?" zh "停止通知 {name}？";
    not_removed: "nothing was removed" zh "未移除任何内容";
    removed(name): "Removed {name}." zh "已移除 {name}。";
}
