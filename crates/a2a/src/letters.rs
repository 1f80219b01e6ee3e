//! Push notifications: a task as it was at an event, in the version that its subscriber speaks.
//!
//! The whole task is sent, not the step: notifications may come late, twice or out of order, and a task is complete by
//! itself. Its `generation` says which is newer.

use std::sync::Arc;

use attache_hub::{
    Error, Result,
    control::PushVersion,
    outbox::{Letter, Letters, Update},
};
use attache_protocol::wire::a2a::{StreamResponse, Task, v03};
use axum::http::{HeaderMap, HeaderValue, header};
use futures_util::future::BoxFuture;

use crate::view::View;

/// How many events are read at a time.
const PAGE: usize = 200;

#[derive(Debug)]
pub(crate) struct PushLetters;

impl Letters for PushLetters {
    fn write<'a>(&'a self, update: &'a Update<'a>) -> BoxFuture<'a, Result<Letter>> {
        Box::pin(async move {
            let task = task(update).await?;
            let (media_type, body) = match update.push.version {
                PushVersion::V10 => ("application/a2a+json", serde_json::to_vec(&StreamResponse::Task(task))),
                PushVersion::V03 => ("application/json", serde_json::to_vec(&v03::Task::from(task))),
            };
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
            headers.insert(
                "a2a-version",
                HeaderValue::from_static(match update.push.version {
                    PushVersion::V10 => "1.0",
                    PushVersion::V03 => "0.3",
                }),
            );
            if let Some(token) = &update.push.token {
                headers.insert("x-a2a-notification-token", hidden(token.expose())?);
            }
            if let Some((scheme, credentials)) = &update.push.authentication {
                let credentials = credentials.as_ref().map_or("", |credentials| credentials.expose().as_str());
                let value = format!("{scheme} {credentials}");
                headers.insert(header::AUTHORIZATION, hidden(value.trim_end())?);
            }
            Ok(Letter { headers, body: body.map_err(|error| Error::internal(&error))? })
        })
    }
}

/// As it was at the update's event.
async fn task(update: &Update<'_>) -> Result<Task> {
    let run = update.run().await?;
    let mut view = View::begin(&run, Arc::from(update.hub().origin()));
    loop {
        let events = update.events(view.seq(), PAGE).await?;
        events.iter().for_each(|event| drop(view.take(event)));
        if events.is_empty() || view.seq() >= update.seq {
            return Ok(view.task(None));
        }
    }
}

/// Never shown, also not when the headers are printed.
fn hidden(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text).map_err(|error| Error::internal(&error))?;
    value.set_sensitive(true);
    Ok(value)
}
