//! HTTP+JSON of version 0.3: below `/v1`, in the JSON of its `.proto`.

use attache_protocol::{
    Json,
    wire::a2a::{
        CancelTask, DeletePushConfig, GetPushConfig, GetTask, ListPushConfigs, SendMessage, StreamResponse, Subscribe,
        v03::{self, rest},
    },
};
use axum::{
    body::Body,
    extract::{Path, State},
    http::{Method, Request, Response},
};

use super::rest::{Answered, Asking, Segments, json, no_such_path, serve};
use crate::{Site, ask::Version};

pub(super) async fn send(State(site): State<Site>, path: Path<Segments>, request: Request<Body>) -> Response<Body> {
    serve(site, path, request, Version::V03, async |asking: &mut Asking| {
        let request: rest::SendMessage = asking.body().await?;
        json(&rest::SendMessageResponse::from(asking.asked.send(SendMessage::from(request)).await?))
    })
    .await
}

pub(super) async fn stream(State(site): State<Site>, path: Path<Segments>, request: Request<Body>) -> Response<Body> {
    serve(site, path, request, Version::V03, async |asking: &mut Asking| {
        let request: rest::SendMessage = asking.body().await?;
        Ok(Answered::Stream(Box::new(asking.asked.stream(SendMessage::from(request)).await?), update))
    })
    .await
}

/// `GET tasks/{id}`, `POST tasks/{id}:cancel`, and `tasks/{id}:subscribe` with either method.
pub(super) async fn task(State(site): State<Site>, path: Path<Segments>, request: Request<Body>) -> Response<Body> {
    serve(site, path, request, Version::V03, async |asking: &mut Asking| {
        let (id, verb) = asking.verb();
        let method = asking.parts.method.clone();
        match (verb.as_deref(), method) {
            (None, Method::GET) => {
                let history_length = asking.number("historyLength")?;
                json(&rest::Task::from(asking.asked.get(GetTask { tenant: None, id, history_length }).await?))
            }
            (Some("cancel"), Method::POST) => {
                let request = CancelTask { tenant: None, id, metadata: None };
                json(&rest::Task::from(asking.asked.cancel(request).await?))
            }
            (Some("subscribe"), Method::GET | Method::POST) => {
                let updates = asking.asked.subscribe(Subscribe { tenant: None, id }).await?;
                Ok(Answered::Stream(Box::new(updates), update))
            }
            _ => Err(no_such_path()),
        }
    })
    .await
}

pub(super) async fn push_create(
    State(site): State<Site>,
    path: Path<Segments>,
    request: Request<Body>,
) -> Response<Body> {
    serve(site, path, request, Version::V03, async |asking: &mut Asking| {
        let given: rest::CreatePushConfig = asking.body().await?;
        let task = asking.segments.id.clone().unwrap_or_default();
        json(&rest::TaskPushConfig::from(asking.asked.create_push(given.of_task(&task)?).await?))
    })
    .await
}

pub(super) async fn push_list(
    State(site): State<Site>,
    path: Path<Segments>,
    request: Request<Body>,
) -> Response<Body> {
    serve(site, path, request, Version::V03, async |asking: &mut Asking| {
        let task_id = asking.segments.id.clone().unwrap_or_default();
        let found = asking.asked.list_pushes(ListPushConfigs { task_id, ..ListPushConfigs::default() }).await?;
        json(&rest::PushConfigList::from(found))
    })
    .await
}

pub(super) async fn push_get(State(site): State<Site>, path: Path<Segments>, request: Request<Body>) -> Response<Body> {
    serve(site, path, request, Version::V03, async |asking: &mut Asking| {
        let (task_id, id) = asking.config();
        let found = asking.asked.get_push(GetPushConfig { tenant: None, task_id, id }).await?;
        json(&rest::TaskPushConfig::from(found))
    })
    .await
}

pub(super) async fn push_delete(
    State(site): State<Site>,
    path: Path<Segments>,
    request: Request<Body>,
) -> Response<Body> {
    serve(site, path, request, Version::V03, async |asking: &mut Asking| {
        let (task_id, id) = asking.config();
        asking.asked.delete_push(DeletePushConfig { tenant: None, task_id, id }).await?;
        Ok(Answered::Done)
    })
    .await
}

/// Kits of 0.3 read it here in two forms, that of the JSON and that of the `.proto`, of which 1.0 kept the second: the
/// card of both versions has what either looks for.
pub(super) async fn card(State(site): State<Site>, path: Path<Segments>, request: Request<Body>) -> Response<Body> {
    serve(site, path, request, Version::V03, async |asking: &mut Asking| {
        Ok(Answered::Json(v03::union(&asking.asked.extended_agent_card().await?)))
    })
    .await
}

fn update(update: StreamResponse) -> Json {
    Json::of(&rest::StreamResponse::from(update))
}
