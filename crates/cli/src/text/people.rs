//! `attache users`, `keys`, `tokens`, `sessions`, `rules`, `quotas`, `usage` and `context`.

texts! {
    // headings of tables, and what stands below them
    role: "ROLE" zh "角色";
    sign_in: "SIGN-IN" zh "登录方式";
    scopes: "SCOPES" zh "权限范围";
    acts_for: "FOR" zh "用户";
    opened_by: "OPENED BY" zh "打开方式";
    from: "FROM" zh "来源";
    opened: "OPENED" zh "打开时间";
    limited: "FOR" zh "对象";
    calls: "CALLS" zh "调用";
    tokens: "TOKENS" zh "TOKEN";
    cost: "COST" zh "费用";
    resets: "RESETS" zh "重置";
    day: "DAY" zh "日期";
    user: "USER" zh "用户";
    failed: "FAILED" zh "失败";
    source: "SOURCE" zh "来源";
    current: "CURRENT" zh "当前";
    hub: "HUB" zh "HUB";
    key: "KEY" zh "密钥";
    valid: "valid" zh "有效";
    revoked: "revoked" zh "已撤销";
    expired: "expired" zh "已过期";
    open: "open" zh "有效";
    ended: "ended" zh "已结束";
    all: "all" zh "全部";
    yes: "yes" zh "是";
    kept: "kept" zh "已保存";
    password: "password" zh "密码";
    by_password_or_link: "password or link" zh "密码或链接";
    by_link: "link" zh "链接";

    // people
    ask_password: "Password: " zh "密码：";
    ask_new_password: "New password: " zh "新密码：";
    ask_current_password: "Current password: " zh "当前密码：";
    added(name, role): "Added {name} ({role})." zh "已添加 {name}（{role}）。";
    updated(name, role): "Updated {name} ({role})." zh "已更新 {name}（{role}）。";
    changed_password(name, role): "Changed the password of {name} ({role})." zh "已更改 {name}（{role}）的密码。";
    ask_remove(name): "Remove {name}? This revokes their keys, tokens and sessions." zh "移除 {name}？其密钥、令牌和会话都会被撤销。";
    not_removed: "nobody was removed" zh "未移除任何人";
    removed(name): "Removed {name} and revoked their keys, tokens and sessions." zh "已移除 {name}，并撤销其密钥、令牌和会话。";
    signs_in_with(how): "signs in with {how}" zh "登录方式：{how}";

    // keys, tokens and sessions
    key_revoked(key): "Revoked {key}." zh "已撤销 {key}。";
    file_exists(file): "{file} already exists" zh "{file} 已存在";
    file_exists_do: "Choose another file name." zh "请换一个文件名。";
    key_of_certificate(key): "Created {key}. Anyone with the certificate's private key can use it." zh "已创建 {key}。持有该证书私钥的任何人都可以使用它。";
    key_written(file): "Wrote the key to {file}. Use it with --key-file." zh "已将密钥写入 {file}。用 --key-file 使用它。";
    key_once: "Save it now: it won't be shown again. To revoke it:" zh "请立即保存，密钥不会再次显示。撤销：";
    token_expires(until): "Expires {until}." zh "到期：{until}。";
    session_ended(session): "Ended {session}." zh "已结束 {session}。";

    // rules
    no_rules: "No access rules. Agents can access what their own user owns, and agents without an owner." zh "没有访问规则。智能体可以访问其用户拥有的内容，以及没有所有者的智能体。";
    no_rules_do: "To add rules, write them to a file, then run: attache rules set FILE" zh "要添加规则，请写入文件，然后运行：attache rules set FILE";
    rules_version(version, when, who): "Version {version}, changed {when} by {who}." zh "版本 {version}，{who} 更改于 {when}。";
    unknown: "unknown" zh "未知";
    rules_file(file): "Rules file on the hub: {file}" zh "Hub 上的规则文件：{file}";
    rules_problem(problem): "The current version of the file is not in effect: {problem}" zh "该文件的当前版本未生效：{problem}";
    rules_set(version): "Version {version} of the rules is now in effect." zh "规则版本 {version} 现已生效。";
    because_rule(rule): "rule `{rule}`" zh "规则 `{rule}`";
    because_a_rule: "a rule" zh "某条规则";
    because_own: "owned by the agent's own user, or an agent without an owner" zh "归该智能体的用户所有，或是没有所有者的智能体";
    because_default: "no rule matches, so the default applies" zh "没有匹配的规则，按默认处理";
    because_no_such: "not a valid name" zh "名称无效";
    decided(agent, object, why): ": {agent} → {object}: {why}" zh "：{agent} → {object}：{why}";
    word_allowed: "allowed" zh "允许";
    word_denied: "denied" zh "拒绝";

    // quotas and usage
    quota_set(subject): "Set the quota for {subject}." zh "已设置配额（{subject}）。";
    quota_emptied: "Removed the quota: it has no limits left." zh "已移除配额：其中没有任何上限了。";
    quota_removed: "Removed the quota." zh "已移除配额。";
    no_quotas: "No quotas. Usage is unlimited. To set one, see attache quotas set --help." zh "没有配额，用量不限。如需设置，参阅 attache quotas set --help。";
    quota_everything: "the entire hub" zh "整个 Hub";
    quota_user(user): "user {user}" zh "用户 {user}";
    quota_agent(agent): "agent {agent}" zh "智能体 {agent}";
    quota_both(user, agent): "user {user} with agent {agent}" zh "用户 {user} 使用智能体 {agent}";
    quota_spent(spent, held, limit): "{spent} + {held} reserved of {limit}" zh "已用 {spent}，预留 {held}，上限 {limit}";
    reported: "reported" zh "已上报";
    estimated: "estimated" zh "估算";
    usage_total(n, tokens, cost): "{n} call, {tokens} tokens, ${cost}" | "{n} calls, {tokens} tokens, ${cost}" zh "{n} 次调用，{tokens} 个 Token，${cost}";
    usage_unknown(n): "; the cost of {n} call is unknown" | "; the cost of {n} calls is unknown" zh "；{n} 次调用的费用未知";

    // saved hubs
    ask_key: "Hub key: " zh "Hub 密钥：";
    switched(name, address): "Switched to {name} ({address})." zh "已切换到 {name}（{address}）。";
    switched_to(name): "Switched to {name}." zh "已切换到 {name}。";
    switched_to_own: "Switched to this machine's hub." zh "已切换到本机的 Hub。";
    own_hub: "this machine's hub" zh "本机的 Hub";
    saved(name, address, now): "Saved {name} ({address}). The current hub is still {now}. To switch: attache context use {name}" zh "已保存 {name}（{address}）。当前 Hub 仍是 {now}。切换：attache context use {name}";
    forgotten(name): "Removed {name} and its key." zh "已移除 {name} 及其密钥。";
    none_saved: "No saved hubs. Add one: attache context add NAME --hub URL --key-file FILE" zh "没有保存的 Hub。添加一个：attache context add NAME --hub URL --key-file FILE";
}
