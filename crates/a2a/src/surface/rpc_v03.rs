//! The methods of version 0.3: their parameters are read into those of 1.0, and the answers written back.

use attache_protocol::{
    Json,
    wire::a2a::{
        self, CancelTask, GetTask, ListPushConfigs, Method, SendMessage, SendMessageResponse, StreamResponse,
        Subscribe, v03,
    },
};

use super::{
    read,
    rpc::{Answered, once},
};
use crate::{
    ask::Asked,
    error::{Error, Kind, Result},
};

pub(super) async fn answer(asked: &Asked, method: Method, params: &Json) -> Result<Answered> {
    let text = params.get().as_bytes();
    Ok(match method {
        Method::SendMessage => {
            let sent: v03::SendParams = read::params(text)?;
            once(&match asked.send(SendMessage::from(sent)).await? {
                SendMessageResponse::Task(task) => v03::Stream::Task(task.into()),
                SendMessageResponse::Message(message) => v03::Stream::Message(message.into()),
            })
        }
        Method::SendStreamingMessage => {
            let sent: v03::SendParams = read::params(text)?;
            Answered::Stream(Box::new(asked.stream(SendMessage::from(sent)).await?))
        }
        Method::GetTask => {
            let v03::TaskQueryParams { id, history_length } = read::params(text)?;
            once(&v03::Task::from(asked.get(GetTask { tenant: None, id, history_length }).await?))
        }
        Method::CancelTask => {
            let v03::TaskIdParams { id, metadata } = read::params(text)?;
            once(&v03::Task::from(asked.cancel(CancelTask { tenant: None, id, metadata }).await?))
        }
        Method::SubscribeToTask => {
            let v03::TaskIdParams { id, .. } = read::params(text)?;
            Answered::Stream(Box::new(asked.subscribe(Subscribe { tenant: None, id }).await?))
        }
        Method::CreatePushConfig => {
            let given: v03::TaskPushConfig = read::params(text)?;
            once(&old_config(asked.create_push(given.into()).await?))
        }
        Method::GetPushConfig => {
            let v03::GetPushConfig { id, push_notification_config_id } = read::params(text)?;
            once(&old_config(asked.get_only_push(id, push_notification_config_id).await?))
        }
        Method::ListPushConfigs => {
            let v03::TaskIdParams { id, .. } = read::params(text)?;
            let request = ListPushConfigs { task_id: id, ..ListPushConfigs::default() };
            let found = asked.list_pushes(request).await?.configs;
            once(&found.into_iter().map(old_config).collect::<Vec<_>>())
        }
        Method::DeletePushConfig => {
            let v03::DeletePushConfig { id, push_notification_config_id } = read::params(text)?;
            let request = a2a::DeletePushConfig { tenant: None, task_id: id, id: push_notification_config_id };
            asked.delete_push(request).await?;
            Answered::Once(Json::of(&()))
        }
        Method::GetExtendedCard => Answered::Once(asked.extended_card().await?),
        Method::ListTasks => return Err(Error::new(Kind::Method, "0.3 has no list of tasks over JSON-RPC.")),
    })
}

/// An update as 0.3 writes it.
pub(super) fn update(update: StreamResponse) -> Json {
    Json::of(&v03::Stream::from(update))
}

fn old_config(config: a2a::PushConfig) -> v03::TaskPushConfig {
    v03::TaskPushConfig { task_id: config.task_id.clone().unwrap_or_default(), push_notification_config: config.into() }
}
