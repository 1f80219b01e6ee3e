//! Refusals of a hub, by their code.
//!
//! The English words are the hub's own, in the protocol's table of codes. The Chinese ones are here; a new code doesn't
//! compile without them. What only the hub's message says stays as a detail, in English.

use attache_protocol::{Code, error::Remedy};

texts! {
    // what a message of the hub becomes
    explained(message, detail): "{message} ({detail})" zh "{message}：“{detail}”";

    // next steps in commands, where the API names requests
    use_device_token: "Only paired devices can do this: `attache runtime start`." zh "只有已配对的设备才能执行此操作：`attache runtime start`。";
    use_person_key: "Use a person's key: --key-file FILE or ATTACHE_KEY." zh "请使用个人的密钥：--key-file FILE 或 ATTACHE_KEY。";
    create_token: "Get a new one with a key: `attache tokens`." zh "请用密钥获取新的令牌：`attache tokens`。";
    create_login_link: "Create a new one with `attache login`." zh "请用 `attache login` 创建新的链接。";
    name_agent: "Name the agent: attache ask AGENT \"…\"" zh "请指定智能体：attache ask AGENT \"…\"";
    name_or_create_agent: "Name the agent: attache ask AGENT \"…\", or create an agent with this name." zh "请指定智能体：attache ask AGENT \"…\"，或创建一个此名称的智能体。";
    create_agent: "Add one: attache agents add NAME" zh "添加一个：attache agents add NAME";
    register_again: "Register the agent again: attache agents register NAME" zh "请重新注册此智能体：attache agents register NAME";
    omit_callback: "Omit --callback." zh "请省略 --callback。";
    raise_budget: "Give the first run a larger budget: --cost or --tokens." zh "请为第一个运行设置更大的预算：--cost 或 --tokens。";
}

/// A refusal's message in Chinese, from its code and the hub's message.
pub(crate) fn message(code: Code, words: &str) -> String {
    let (sentence, _) = chinese(code);
    if says_everything(code) || words.is_empty() { sentence.to_owned() } else { explained(sentence, words) }
}

/// The next step for a code in Chinese.
pub(crate) const fn hint(code: Code) -> &'static str {
    chinese(code).1
}

pub(crate) fn remedy(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::UseDeviceToken => use_device_token(),
        Remedy::UsePersonKey => use_person_key(),
        Remedy::CreateToken => create_token(),
        Remedy::CreateLoginLink => create_login_link(),
        Remedy::NameAgent | Remedy::ChooseAgent => name_agent(),
        Remedy::NameOrCreateAgent => name_or_create_agent(),
        Remedy::CreateAgent => create_agent(),
        Remedy::RegisterAgain => register_again(),
        Remedy::OmitCallback => omit_callback(),
        Remedy::RaiseBudget => raise_budget(),
    }
}

/// Whether the code alone says what the hub's message says.
const fn says_everything(code: Code) -> bool {
    matches!(
        code,
        Code::Unauthenticated
            | Code::RuntimeRevoked
            | Code::RuntimeSuperseded
            | Code::RunEnded
            | Code::NameTaken
            | Code::AgentArchived
            | Code::KeyReused
            | Code::VersionChanged
            | Code::LastOwner
            | Code::IsPeer
            | Code::DiskFull
            | Code::DiskLow
            | Code::ReadOnly
            | Code::DatabaseUnreachable
            | Code::ServedElsewhere
            | Code::Unknown
            | Code::Overloaded
            | Code::Draining
            | Code::TooManyRequests
    )
}

/// What a code means, and the next step.
const fn chinese(code: Code) -> (&'static str, &'static str) {
    match code {
        Code::InvalidRequest => ("请求无效", "请参阅该命令的 --help。"),
        Code::InvalidJson => ("请求不是有效的 JSON", OTHER_VERSION),
        Code::TooDeep => ("JSON 嵌套过深", "JSON 最多嵌套 64 层；也可以将数据作为产物上传。"),
        Code::Unauthenticated => (
            "缺少有效的密钥",
            "请用 --key-file FILE 或 ATTACHE_KEY 提供此 Hub 的密钥。所有者密钥是 Hub 数据文件夹中的 `admin.key`。",
        ),
        Code::RuntimeRevoked => (
            "此设备的配对已被撤销",
            "要重新连接，请在控制台中为同一智能体创建新的配对码，然后运行 `attache runtime pair CODE`。",
        ),
        Code::RuntimeSuperseded => {
            ("此智能体已与另一台设备配对", "要改回本设备，请重新配对：`attache runtime pair CODE`。")
        }
        Code::TokenReplaced => (
            "设备令牌已被替换",
            "如果不是本设备更换的令牌，可能有其他人持有其副本。重新配对可使所有副本失效：`attache runtime pair CODE`。",
        ),
        Code::Forbidden => ("无权执行此操作", "请使用角色允许此操作的密钥（--key-file），或联系所有者。"),
        Code::ForeignOrigin => ("请求来自其他源", "请从 Hub 自己的源发起调用，或省略 Origin 标头。"),
        Code::WrongHost => ("Hub 不使用此地址", "请使用 Hub 监听的地址，或在启动 Hub 时使用 --public-url。"),
        Code::NotFound => (
            "未找到",
            "请检查名称或 ID。列出：`attache agents`、`attache runs`、`attache conversations`、`attache users`。",
        ),
        Code::NoSuchPath => ("Hub 没有此路径", OTHER_VERSION),
        Code::MethodNotAllowed => ("此路径不支持该方法", OTHER_VERSION),
        Code::UnsupportedType => ("Hub 不支持此内容类型", OTHER_VERSION),
        Code::NameTaken => ("此名称已被使用", "请换一个名称，或使用现有的智能体。"),
        Code::StaleEpoch => ("此运行已由另一次领取接管", "请停止处理此运行。"),
        Code::RunEnded => ("运行已结束", "查看结果：`attache runs show RUN`。要继续其工作，请在同一对话中发送新任务。"),
        Code::NotRunning => ("此运行尚未被领取", "此调用仅在运行被领取期间有效。"),
        Code::InUse => ("仍在使用中", "只能删除已结束的运行。"),
        Code::AlreadyBegun => ("运行已开始", "只有在尚未上报任何内容时才能放弃领取。请改为完成运行或将其标为失败。"),
        Code::KeyReused => ("此幂等键已用于其他请求", "请换一个 --idempotency-key，或省略它。"),
        Code::AlreadyDecided => (
            "此请求已处理过",
            "每个审批请求只能决定一次。要更改后续请求的处理方式，请参阅 `attache approvals grants`。",
        ),
        Code::ApprovalRequired => {
            ("需要先经人审批", "请等待有人在控制台或用 `attache approvals` 审批，然后重复同一请求。")
        }
        Code::ApprovalDenied => ("审批未通过", "请跳过此步骤继续，或询问对方允许什么。"),
        Code::PasskeyRequired => {
            ("批准需要通行密钥", "请在控制台打开该审批的页面，使用通行密钥批准。拒绝则在任何地方都可以。")
        }
        Code::PasskeyRefused => ("通行密钥未被接受", "请重试。通行密钥须在两分钟内、在请求它的页面上使用。"),
        Code::NotWaiting => ("运行当前不接受输入", "运行只有在被领取期间才接受输入。请检查其状态。"),
        Code::LoopRefused => ("智能体之间出现循环调用", "调用链最多八级，且不能两次经过同一智能体。请减少级数。"),
        Code::ResumeRefused => (
            "通道无法恢复",
            "恢复令牌只能使用一次，且只用于它自己的通道。请发送 `register` 打开新的通道，进行中的运行会保留。",
        ),
        Code::NotRegistered => ("通道尚未注册", "请先发送 `register` 或 `resume`。"),
        Code::ToolRefused => ("工具调用被拒绝", "请调用对方已注册并允许的工具，参数须符合其 Schema。"),
        Code::InvalidFrame => ("帧无效", "请对照 docs/channels.md 检查该帧。`field` 指明无效的成员。"),
        Code::Busy => ("适配器正忙", "适配器一次只执行一项任务。请等待当前任务结束，或将其取消。"),
        Code::DeviceOffline => {
            ("智能体的设备已离线", "请在智能体的设备上启动运行时：`attache runtime start`，然后重试。")
        }
        Code::AgentArchived => ("此智能体已归档", "已归档的智能体不接受新的运行。请使用其他智能体。"),
        Code::PairingFailed => {
            ("配对码无效", "配对码只能使用一次，十分钟后过期。请在控制台中为同一智能体创建新的配对码。")
        }
        Code::PairingPending => ("配对等待确认", "请在控制台中确认该代码，然后重试。"),
        Code::PairingRejected => ("配对被拒绝", "如果仍要配对此设备，请申请新的代码并在控制台中确认。"),
        Code::RequestTimeout => ("请求超时", "发送请求时请不要长时间停顿。大文件请作为产物上传，可以花更长时间。"),
        Code::TooLarge => (
            "内容过大",
            "请减少发送的内容。任务可以附带文件：attache ask AGENT \"…\" --file FILE。其他内容可以作为产物：attache artifacts put",
        ),
        Code::LogFull => ("运行日志已满", "请将后续输出作为产物上传，并在结果中引用。仍可使用 `complete` 和 `fail`。"),
        Code::HeadersTooLarge => ("标头过大", "请减少标头或缩短其内容。"),
        Code::RangeInvalid => ("请求的范围无效", "请求的范围不能超出产物的大小。"),
        Code::AccessDenied => ("访问规则不允许", "请所有者添加允许它的规则。查看规则：`attache rules show`。"),
        Code::EgressRefused => ("不允许访问此地址", "请使用公网地址，或在启动 Hub 时用 --egress-allow 允许此地址。"),
        Code::RulesInvalid => ("访问规则无效", "未做任何更改。请修正消息中指出的行，然后重新提交规则。"),
        Code::VersionChanged => ("其他人已在此期间做了更改", "请重新读取，再重复你的更改。"),
        Code::IsPeer => {
            ("这是通过 URL 访问的外部智能体，不能由设备执行", "请为该设备另建一个智能体：`attache agents add NAME`。")
        }
        Code::IsPaired => {
            ("此智能体已有设备或密钥", "请先撤销其设备或密钥（`attache runtimes`），或以其他名称添加外部智能体。")
        }
        Code::NothingToTrust => (
            "没有需要信任的更改",
            "请检查此智能体：`attache agents show NAME`。只有更改过的 Agent Card 才需要重新信任。",
        ),
        Code::PeerNotAllowed => (
            "对端不在白名单中",
            "请在拥有该文件夹的机器上允许此对端：`attache delegations allow --peer URL`。只有人可以执行此操作。",
        ),
        Code::FolderNotAllowed => (
            "文件夹不在白名单中",
            "请在拥有该文件夹的机器上允许它：`attache delegations allow --folder DIR`。只有人可以执行此操作。",
        ),
        Code::PolicyInvalid => {
            ("policy.toml 有错误", "请修正消息中指出的 policy.toml 的行。在此之前不能委派任何文件夹。")
        }
        Code::StillLent => ("文件夹仍在委派中", "请等待委派结束，或将其取消：`attache delegations cancel ID`。"),
        Code::LastOwner => {
            ("Hub 至少需要一名所有者", "请先将另一个用户设为所有者：`attache users set NAME --role owner`。")
        }
        Code::QuotaExceeded => ("配额已用完", "请等待配额重置，或请所有者提高配额：`attache quotas`。"),
        Code::TooManyRequests => ("请求过于频繁", "请稍等一分钟再试。"),
        Code::Internal => ("Hub 发生意外故障", "这是 Hub 的缺陷。详情见 Hub 日志。"),
        Code::DiskFull => (
            "Hub 的磁盘已满，未保存任何内容",
            "请释放 Hub 所在机器的磁盘空间，之后 Hub 会自动恢复。已确认的内容不会丢失。",
        ),
        Code::DiskLow => (
            "Hub 的磁盘即将用尽，不接受上传，也可能拒绝新的工作",
            "请删除不再需要的运行，或释放 Hub 所在机器的磁盘空间。登录、删除和结束运行仍可进行。Hub 的 --disk-reserve 选项设定保留多少空间。",
        ),
        Code::ReadOnly => (
            "Hub 的文件系统为只读，未保存任何内容",
            "请将 Hub 数据文件夹所在的文件系统恢复为可写，之后 Hub 会自动恢复。",
        ),
        Code::StorageFailed => ("Hub 的存储出现故障", "请检查 Hub 的日志和磁盘。从备份恢复请参阅 /docs/backup。"),
        Code::DatabaseUnreachable => {
            ("Hub 无法连接数据库服务器，未保存任何内容", "请检查数据库服务器及其网络连接，之后 Hub 会自动恢复。")
        }
        Code::ServedElsewhere => (
            "数据库现由另一个 Hub 提供服务，此 Hub 未保存任何内容",
            "请使用正在提供服务的 Hub，或将其停止，之后由此 Hub 接管。",
        ),
        Code::Unknown => ("存储无法确认此更改", "Hub 无法判断更改是否已保存。请使用同一幂等键重复请求。"),
        Code::Overloaded => ("Hub 负载过高", "请稍后重试。"),
        Code::Draining => ("Hub 正在关闭", "请在其恢复后重试。"),
        Code::Unreachable => ("无法连接 Hub", "请检查地址，并确认 Hub 正在运行：`attache doctor`。"),
    }
}

const OTHER_VERSION: &str = "Hub 的版本可能与本程序不同。请用 `attache doctor` 检查。";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::hint;

    /// The commands, options and files that a hint names, which the reader has to type.
    fn typed(text: &str) -> Vec<&str> {
        let mut found: Vec<_> = text.split('`').skip(1).step_by(2).collect();
        let is_word = |character: char| character.is_ascii_alphanumeric() || "-_./".contains(character);
        found.extend(
            text.split(|character| !is_word(character))
                .filter_map(|word| word.trim_end_matches('.').strip_prefix("--")),
        );
        found.sort_unstable();
        found
    }

    #[test]
    fn a_chinese_hint_names_the_same_commands() {
        for code in Code::ALL {
            assert_eq!(typed(hint(*code)), typed(hint::general(*code)), "{code}");
        }
    }

    #[test]
    fn what_only_the_hub_knows_stays_as_a_detail() {
        crate::text::speak(crate::text::Language::En);
        assert_eq!(message(Code::DiskFull, "the disk is full"), "Hub 的磁盘已满，未保存任何内容");
        assert!(message(Code::NotFound, "no such run").contains("no such run"));
    }
}
