//! Wake-ups for the other nodes on a PostgreSQL database, as the texts of its notifications: the writer's number, then a
//! letter and an id for each hint.

use uuid::Uuid;

use attache_protocol::{AgentId, ChannelId, KeyId, RunId, TenantId};

use crate::WakeHint;

/// PostgreSQL takes texts of less than 8000 bytes. The writer's number comes first.
const MAX_TEXT: usize = 7_900;

/// What a transaction wakes, in as many texts as it takes.
pub(super) fn texts(woken: &[WakeHint]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for hint in woken {
        let item = item(*hint);
        match texts.last_mut() {
            Some(text) if text.len() + item.len() < MAX_TEXT => {
                text.push(' ');
                text.push_str(&item);
            }
            Some(_) | None => texts.push(item),
        }
    }
    texts
}

/// Who sent a notification, and what it wakes. What isn't understood wakes everything.
pub(super) fn read(text: &str) -> (Option<i64>, Vec<WakeHint>) {
    let (writer, items) = text.split_once(' ').unwrap_or(("", text));
    let hints = items.split(' ').map(|item| hint(item).unwrap_or(WakeHint::Everything));
    (writer.parse().ok(), hints.collect())
}

fn item(hint: WakeHint) -> String {
    let (letter, id) = match hint {
        WakeHint::Run(run) => ('r', Some(run.uuid())),
        WakeHint::Tenant(tenant) => ('t', Some(tenant.uuid())),
        WakeHint::Queue(agent) => ('q', Some(agent.uuid())),
        WakeHint::Runtime(agent) => ('m', Some(agent.uuid())),
        WakeHint::Channel(channel) => ('c', Some(channel.uuid())),
        WakeHint::Asked(run) => ('a', Some(run.uuid())),
        WakeHint::Deliveries => ('d', None),
        WakeHint::Peers => ('p', None),
        WakeHint::Key(key) => ('k', Some(key.uuid())),
        WakeHint::Rights(tenant) => ('u', Some(tenant.uuid())),
        WakeHint::Everything => ('e', None),
    };
    id.map_or_else(|| letter.to_string(), |id| format!("{letter}{}", id.simple()))
}

fn hint(item: &str) -> Option<WakeHint> {
    let (letter, id) = item.split_at_checked(1)?;
    let id = || Uuid::try_parse(id).ok();
    Some(match letter {
        "r" => WakeHint::Run(RunId::from_uuid(id()?)),
        "t" => WakeHint::Tenant(TenantId::from_uuid(id()?)),
        "q" => WakeHint::Queue(AgentId::from_uuid(id()?)),
        "m" => WakeHint::Runtime(AgentId::from_uuid(id()?)),
        "c" => WakeHint::Channel(ChannelId::from_uuid(id()?)),
        "a" => WakeHint::Asked(RunId::from_uuid(id()?)),
        "d" => WakeHint::Deliveries,
        "p" => WakeHint::Peers,
        "k" => WakeHint::Key(KeyId::from_uuid(id()?)),
        "u" => WakeHint::Rights(TenantId::from_uuid(id()?)),
        // `e`, or from a version that has more hints.
        _ => WakeHint::Everything,
    })
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    #[test]
    fn hints_arrive_as_they_were_sent() {
        let env = Env::seeded(1);
        let hints = [
            WakeHint::Run(env.run_id()),
            WakeHint::Tenant(env.tenant_id()),
            WakeHint::Queue(env.agent_id()),
            WakeHint::Runtime(env.agent_id()),
            WakeHint::Channel(env.channel_id()),
            WakeHint::Asked(env.run_id()),
            WakeHint::Deliveries,
            WakeHint::Peers,
            WakeHint::Key(env.key_id()),
            WakeHint::Rights(env.tenant_id()),
            WakeHint::Everything,
        ];
        let [text] = <[String; 1]>::try_from(texts(&hints)).unwrap();
        assert_eq!(read(&format!("7 {text}")), (Some(7), hints.to_vec()));
        assert_eq!(texts(&[]), Vec::<String>::new());
    }

    #[test]
    fn many_hints_take_several_texts() {
        let env = Env::seeded(1);
        let hints: Vec<WakeHint> = (0..1_000).map(|_| WakeHint::Run(env.run_id())).collect();
        let texts = texts(&hints);
        assert!(texts.len() > 1 && texts.iter().all(|text| text.len() < 7_950));
        let arrived: Vec<WakeHint> = texts.iter().flat_map(|text| read(&format!("-1 {text}")).1).collect();
        assert_eq!(arrived, hints);
    }

    #[test]
    fn what_is_not_understood_wakes_everything() {
        for text in ["7 z0123", "7 r", "7 rab", "7 \u{e9}", "", "7"] {
            assert_eq!(read(text).1, [WakeHint::Everything], "{text}");
        }
    }
}
