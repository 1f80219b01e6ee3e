//! The HTTP surface of the stub model.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::{
    answer::{ModelAnswer, ModelReply, ScriptPrompt, answer},
    conversation::ModelConversation,
    dialect::{ModelDialect, ModelStreamEvent, ReplyLabel},
    record::{self, RequestRecord},
};

/// Conversations of a runaway grow; no program sends more than this.
const MAX_BODY: usize = 64 << 20;

pub(super) fn router(record: Arc<RequestRecord>) -> Router {
    Router::new().fallback(serve).with_state(record)
}

async fn serve(State(record): State<Arc<RequestRecord>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let path = parts.uri.path();
    if path == "/__requests" {
        return Json(record.requests().iter().map(record::RecordedRequest::to_json).collect::<Vec<_>>())
            .into_response();
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let serial = record.add(recorded(&parts.method, &parts.uri, &parts.headers, body.clone()));
    if parts.method != Method::POST {
        return about(path).into_response();
    }
    if path.ends_with("/count_tokens") {
        return Json(json!({"input_tokens": 11})).into_response();
    }
    if path.ends_with(":countTokens") {
        return Json(json!({"totalTokens": 11})).into_response();
    }
    let Some(dialect) = ModelDialect::of(path) else {
        return (StatusCode::NOT_FOUND, Json(json!({"error": {"message": "the stub does not know this path"}})))
            .into_response();
    };
    let conversation = dialect.read(path, &body);
    let told = ScriptPrompt::of(&conversation);
    // Programs ask for a title beside the work, without tools; that must not use up the failures meant for the work.
    let script = format!("{} {}", conversation.tools.len().min(1), told.prompt);
    match answer(&conversation, &told, record.failures(&script)) {
        ModelAnswer::Fail(status) => {
            record.failed(&script);
            let status_code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status_code, Json(dialect.failure(status))).into_response()
        }
        ModelAnswer::Reply(reply) => render_reply(dialect, serial, &conversation, &reply).await,
    }
}

async fn render_reply(
    dialect: ModelDialect,
    serial: u64,
    conversation: &ModelConversation,
    reply: &ModelReply,
) -> Response {
    let label = ReplyLabel { model: &conversation.model, serial };
    if !conversation.mode.streams() {
        tokio::time::sleep(reply.delay).await;
        return Json(dialect.whole(label, reply)).into_response();
    }
    let (first, rest) = dialect.events(label, conversation, reply);
    let lines =
        |events: Vec<ModelStreamEvent>| Bytes::from(events.iter().map(ModelStreamEvent::line).collect::<String>());
    let (first, rest, delay) = (lines(first), lines(rest), reply.delay);
    let late = stream::once(async move {
        tokio::time::sleep(delay).await;
        rest
    });
    let body = stream::iter([first]).chain(late).map(Ok::<_, std::convert::Infallible>);
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(body)).into_response()
}

/// What a program looks up before it asks: which models there are, whether anybody is there.
fn about(path: &str) -> Response {
    if !path.ends_with("/models") {
        return Json(json!({})).into_response();
    }
    let model = json!({"id": "stub-model", "object": "model", "type": "model", "display_name": "Stub", "created": 0,
        "created_at": "2026-01-01T00:00:00Z", "owned_by": "stub"});
    Json(json!({"object": "list", "data": [model], "models": [], "has_more": false, "first_id": "stub-model",
        "last_id": "stub-model"}))
    .into_response()
}

fn recorded(method: &Method, uri: &Uri, headers: &HeaderMap, body: Value) -> record::RecordedRequest {
    let headers = headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), Value::String(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    record::RecordedRequest { method: method.to_string(), path: uri.to_string(), headers: headers.collect(), body }
}

#[cfg(test)]
mod tests {
    use axum::http;
    use tower::ServiceExt as _;

    use super::*;

    fn post(path: &str, body: &Value) -> Request {
        http::Request::post(path).header("x-api-key", "k").body(Body::from(body.to_string())).unwrap()
    }

    async fn said(router: &Router, request: Request) -> (u16, String) {
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), MAX_BODY).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn it_fails_twice_then_answers_and_remembers() {
        let router = router(Arc::default());
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "FAIL:529x2 SAY:at last"}]});
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(said(&router, post("/v1/messages?beta=true", &body)).await);
        }
        let failure = "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"STUB-FAIL 529\"}}";
        assert_eq!(answers[..2], [(529, failure.to_owned()), (529, failure.to_owned())]);
        let message: Value = serde_json::from_str(&answers[2].1).unwrap();
        assert_eq!((answers[2].0, &message["content"][0]["text"]), (200, &json!("at last")));

        let (_, kept) = said(&router, http::Request::get("/__requests").body(Body::empty()).unwrap()).await;
        let kept: Value = serde_json::from_str(&kept).unwrap();
        let one =
            json!({"method": "POST", "path": "/v1/messages?beta=true", "headers": {"x-api-key": "k"}, "body": body});
        assert_eq!(kept, json!([one, one, one]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_stream_begins_at_once() {
        let router = router(Arc::default());
        let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "SLEEP:30 SAY:x"}]});
        let response = router.oneshot(post("/v1/chat/completions", &body)).await.unwrap();
        let mut pieces = response.into_body().into_data_stream();
        let begun = tokio::time::Instant::now();
        pieces.next().await.unwrap().unwrap();
        assert_eq!(begun.elapsed().as_secs(), 0);
        let rest = pieces.next().await.unwrap().unwrap();
        assert_eq!(begun.elapsed().as_secs(), 30);
        assert!(rest.ends_with(b"data: [DONE]\n\n"));
    }
}
