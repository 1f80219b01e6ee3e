//! Renders push notifications: the changes of an event, in the subscriber's version.
//!
//! 1.0 subscribers get the updates a stream would show, one per notification; the last one comes with every complete
//! artifact. 0.3 subscribers get the task. Notifications may arrive late, twice or out of order: `generation` tells
//! which is newer.

use std::sync::Arc;

use attache_a2a_wire::{StreamResponse, v03};
use attache_hub::{
    Error, Result,
    control::PushVersion,
    deliveries::{PushNotification, PushRenderer, PushUpdate},
};
use axum::http::{HeaderMap, HeaderValue, header};
use futures_util::future::BoxFuture;

use crate::view::{TaskReader, TaskView};

#[derive(Debug)]
pub(crate) struct A2aPushRenderer;

impl PushRenderer for A2aPushRenderer {
    fn write<'a>(&'a self, update: &'a PushUpdate<'a>) -> BoxFuture<'a, Result<PushNotification>> {
        Box::pin(async move {
            let (media_type, bodies) = match update.push.version {
                PushVersion::V10 => ("application/a2a+json", updates(update).await?.iter().map(written).collect()),
                PushVersion::V03 => {
                    let task = v03::TaskV03::from(view(update).await?.0.task(None));
                    ("application/json", written(&task).map(|body| vec![body]))
                }
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
            Ok(PushNotification { headers, bodies: bodies? })
        })
    }
}

/// The changes of the update's event, as a stream shows them.
async fn updates(update: &PushUpdate<'_>) -> Result<Vec<StreamResponse>> {
    let (view, updates) = view(update).await?;
    Ok(view.notices(updates))
}

/// The task as of the update's event, and its changes.
async fn view(update: &PushUpdate<'_>) -> Result<(TaskView, Vec<StreamResponse>)> {
    let (run, mut outline) = (update.run().await?, update.outline().await?);
    let newest = outline.events.pop_if(|event| event.seq == update.seq);
    // Callers without a credential have no configs.
    let reader = TaskReader { origin: Arc::from(update.hub().origin()), is_anonymous: false };
    let mut view = TaskView::of_outline(&run, &outline, reader.clone());
    let updates = match newest {
        Some(event) => view.take(&event),
        // The event is gone, so the current run is shown.
        None => {
            view = TaskView::now(&run, &outline, reader);
            Vec::new()
        }
    };
    Ok((view, updates))
}

fn written<T: serde::Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::internal(&error))
}

/// Marked as sensitive, so it isn't shown when headers are printed.
fn hidden(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text).map_err(|error| Error::internal(&error))?;
    value.set_sensitive(true);
    Ok(value)
}
