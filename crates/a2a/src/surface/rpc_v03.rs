//! The methods of version 0.3: converts their parameters to 1.0, and the results back.

use attache_a2a_wire::{
    CancelTask, DeletePushConfig, GetTask, ListPushConfigs, Method, PushConfig, SendMessage, SendMessageResponse,
    StreamResponse, SubscribeToTask, v03,
};
use attache_protocol::Json;

use super::{
    read,
    rpc::{RpcAnswer, once},
};
use crate::{
    agent_request::AgentRequest,
    error::{Error, Kind, Result},
};

pub(super) async fn answer(asked: &AgentRequest, method: Method, params: &Json) -> Result<RpcAnswer> {
    let text = params.get().as_bytes();
    Ok(match method {
        Method::SendMessage => {
            let sent: v03::SendParamsV03 = read::params(text)?;
            once(&match asked.send(SendMessage::from(sent)).await? {
                SendMessageResponse::Task(task) => v03::StreamResponseV03::Task(task.into()),
                SendMessageResponse::Message(message) => v03::StreamResponseV03::Message(message.into()),
            })
        }
        Method::SendStreamingMessage => {
            let sent: v03::SendParamsV03 = read::params(text)?;
            RpcAnswer::Stream(Box::new(asked.stream(SendMessage::from(sent)).await?))
        }
        Method::GetTask => {
            let v03::TaskQueryParamsV03 { id, history_length } = read::params(text)?;
            once(&v03::TaskV03::from(asked.get(GetTask { tenant: None, id, history_length }).await?))
        }
        Method::CancelTask => {
            let v03::TaskIdParamsV03 { id, metadata } = read::params(text)?;
            once(&v03::TaskV03::from(asked.cancel(CancelTask { tenant: None, id, metadata }).await?))
        }
        Method::SubscribeToTask => {
            let v03::TaskIdParamsV03 { id, .. } = read::params(text)?;
            RpcAnswer::Stream(Box::new(asked.subscribe(SubscribeToTask { tenant: None, id }).await?))
        }
        Method::CreatePushConfig => {
            let given: v03::TaskPushConfigV03 = read::params(text)?;
            once(&old_config(asked.create_push(given.into()).await?))
        }
        Method::GetPushConfig => {
            let v03::GetPushConfigV03 { id, push_notification_config_id } = read::params(text)?;
            once(&old_config(asked.get_only_push(id, push_notification_config_id).await?))
        }
        Method::ListPushConfigs => {
            let v03::TaskIdParamsV03 { id, .. } = read::params(text)?;
            let request = ListPushConfigs { task_id: id, ..ListPushConfigs::default() };
            let found = asked.list_pushes(request).await?.configs;
            once(&found.into_iter().map(old_config).collect::<Vec<_>>())
        }
        Method::DeletePushConfig => {
            let v03::DeletePushConfigV03 { id, push_notification_config_id } = read::params(text)?;
            let request = DeletePushConfig { tenant: None, task_id: id, id: push_notification_config_id };
            asked.delete_push(request).await?;
            RpcAnswer::Once(Json::of(&()))
        }
        Method::GetExtendedCard => RpcAnswer::Once(asked.extended_card().await?),
        Method::ListTasks => return Err(Error::new(Kind::Method, "Version 0.3 can't list tasks over JSON-RPC.")),
    })
}

/// An update in the form of 0.3.
pub(super) fn update(update: StreamResponse) -> Json {
    Json::of(&v03::StreamResponseV03::from(update))
}

fn old_config(config: PushConfig) -> v03::TaskPushConfigV03 {
    v03::TaskPushConfigV03 {
        task_id: config.task_id.clone().unwrap_or_default(),
        push_notification_config: config.into(),
    }
}
