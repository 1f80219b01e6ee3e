//! HTTP+JSON of version 0.3: below `/v1`, in the JSON of its `.proto`.

use attache_a2a_wire::{
    CancelTask, DeletePushConfig, GetPushConfig, GetTask, ListPushConfigs, SendMessage, StreamResponse,
    SubscribeToTask,
    v03::{self, rest},
};
use attache_protocol::Json;
use axum::http::Method;

use super::rest::{RestAnswer, RestRequest, json, no_such_path};
use crate::error::Result;

pub(super) async fn send(asking: &mut RestRequest) -> Result<RestAnswer> {
    let request: rest::RestSendMessageV03 = asking.body().await?;
    json(&rest::RestSendMessageResponseV03::from(asking.asked.send(SendMessage::from(request)).await?))
}

pub(super) async fn stream(asking: &mut RestRequest) -> Result<RestAnswer> {
    let request: rest::RestSendMessageV03 = asking.body().await?;
    Ok(RestAnswer::Stream(Box::new(asking.asked.stream(SendMessage::from(request)).await?), update))
}

/// `GET tasks/{id}`, `POST tasks/{id}:cancel`, and `tasks/{id}:subscribe` with either method.
pub(super) async fn task(asking: &mut RestRequest) -> Result<RestAnswer> {
    let (id, verb) = asking.verb();
    let method = asking.parts.method.clone();
    match (verb.as_deref(), method) {
        (None, Method::GET) => {
            let history_length = asking.number("historyLength")?;
            json(&rest::RestTaskV03::from(asking.asked.get(GetTask { tenant: None, id, history_length }).await?))
        }
        (Some("cancel"), Method::POST) => {
            let request = CancelTask { tenant: None, id, metadata: None };
            json(&rest::RestTaskV03::from(asking.asked.cancel(request).await?))
        }
        (Some("subscribe"), Method::GET | Method::POST) => {
            let updates = asking.asked.subscribe(SubscribeToTask { tenant: None, id }).await?;
            Ok(RestAnswer::Stream(Box::new(updates), update))
        }
        _ => Err(no_such_path()),
    }
}

pub(super) async fn push_create(asking: &mut RestRequest) -> Result<RestAnswer> {
    let given: rest::RestCreatePushConfigBodyV03 = asking.body().await?;
    let task = asking.segments.id.clone().unwrap_or_default();
    json(&rest::RestTaskPushConfigV03::from(asking.asked.create_push(given.of_task(&task)?).await?))
}

pub(super) async fn push_list(asking: &mut RestRequest) -> Result<RestAnswer> {
    let task_id = asking.segments.id.clone().unwrap_or_default();
    let found = asking.asked.list_pushes(ListPushConfigs { task_id, ..ListPushConfigs::default() }).await?;
    json(&rest::RestPushConfigListV03::from(found))
}

pub(super) async fn push_get(asking: &mut RestRequest) -> Result<RestAnswer> {
    let (task_id, id) = asking.config();
    let found = asking.asked.get_push(GetPushConfig { tenant: None, task_id, id }).await?;
    json(&rest::RestTaskPushConfigV03::from(found))
}

pub(super) async fn push_delete(asking: &mut RestRequest) -> Result<RestAnswer> {
    let (task_id, id) = asking.config();
    asking.asked.delete_push(DeletePushConfig { tenant: None, task_id, id }).await?;
    Ok(RestAnswer::Done)
}

/// 0.3 kits expect it here in two forms, JSON and `.proto`, of which 1.0 kept the second. The card for both versions
/// satisfies either.
pub(super) async fn card(asking: &mut RestRequest) -> Result<RestAnswer> {
    Ok(RestAnswer::Json(v03::union(&asking.asked.extended_agent_card().await?)))
}

fn update(update: StreamResponse) -> Json {
    Json::of(&rest::RestStreamResponseV03::from(update))
}
