//! Resource names in gRPC and HTTP+JSON of 0.3: `tasks/{id}` and `tasks/{id}/pushNotificationConfigs/{id}`.

use crate::{GetPushConfig, InvalidField, PushConfig};

const TASKS: &str = "tasks/";
const CONFIGS: &str = "/pushNotificationConfigs/";

/// The name of a task.
pub fn task(id: &str) -> String {
    format!("{TASKS}{id}")
}

/// The name of a task's push config.
pub fn push_config(task_id: &str, id: &str) -> String {
    format!("{TASKS}{task_id}{CONFIGS}{id}")
}

/// The name of a config that has its task and id.
pub fn of_push_config(config: &PushConfig) -> String {
    push_config(config.task_id.as_deref().unwrap_or_default(), config.id.as_deref().unwrap_or_default())
}

/// The id in a task's name, given in `field`.
pub fn read_task(field: &str, name: &str) -> Result<String, InvalidField> {
    match name.strip_prefix(TASKS) {
        Some(id) if is_id(id) => Ok(id.to_owned()),
        _ => Err(InvalidField::new(field, "must be a name like tasks/{id}")),
    }
}

/// The ids in a push config's name, given in `field`.
pub fn read_push_config(field: &str, name: &str) -> Result<GetPushConfig, InvalidField> {
    match name.strip_prefix(TASKS).and_then(|ids| ids.split_once(CONFIGS)) {
        Some((task_id, id)) if is_id(task_id) && is_id(id) => {
            Ok(GetPushConfig { tenant: None, task_id: task_id.to_owned(), id: id.to_owned() })
        }
        _ => Err(InvalidField::new(field, "must be a name like tasks/{id}/pushNotificationConfigs/{id}")),
    }
}

fn is_id(text: &str) -> bool {
    !text.is_empty() && !text.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_rejected() {
        assert_eq!(read_task("name", &task("t-1")), Ok("t-1".to_owned()));
        let config = GetPushConfig { tenant: None, task_id: "t".to_owned(), id: "c".to_owned() };
        assert_eq!(read_push_config("name", &push_config("t", "c")), Ok(config));
        for name in ["", "t", "tasks/", "tasks/a/b", "task/a", "/tasks/a"] {
            assert!(read_task("name", name).is_err(), "{name}");
        }
        for name in ["tasks/t", "tasks/t/pushNotificationConfigs/", "tasks//pushNotificationConfigs/c"] {
            let refused = read_push_config("config.name", name).unwrap_err();
            assert_eq!(refused.field, "config.name");
        }
    }
}
