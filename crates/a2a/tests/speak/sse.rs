//! Server-sent events, read by hand.

use attache_protocol::Json;
use futures_util::{StreamExt as _, stream};
use reqwest::Response;

use super::{IncomingEvents, SpokenRefusal};

struct SseReading<F> {
    response: Response,
    buffer: Vec<u8>,
    read: F,
}

/// `read` turns the data of one event into the model.
pub(super) fn incoming(
    response: Response,
    read: impl Fn(Json) -> Result<Json, SpokenRefusal> + Send + 'static,
) -> IncomingEvents {
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(content_type.starts_with("text/event-stream"), "{content_type}");
    let reading = SseReading { response, buffer: Vec::new(), read };
    IncomingEvents(stream::unfold(reading, next).boxed())
}

async fn next<F: Fn(Json) -> Result<Json, SpokenRefusal>>(
    mut reading: SseReading<F>,
) -> Option<(Result<Json, SpokenRefusal>, SseReading<F>)> {
    loop {
        if let Some(end) = reading.buffer.windows(2).position(|two| two == b"\n\n") {
            let block: Vec<u8> = reading.buffer.drain(..end + 2).collect();
            let block = String::from_utf8(block).expect("events are UTF-8");
            let data: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
            // What begins with a colon only says that the stream is alive.
            if !data.is_empty() {
                let event = Json::from_text(data.join("\n")).expect("the data of an event is JSON");
                return Some(((reading.read)(event), reading));
            }
            continue;
        }
        match reading.response.chunk().await {
            Ok(Some(bytes)) => reading.buffer.extend_from_slice(&bytes),
            Ok(None) => return None,
            // A hub that stops cuts its streams off.
            Err(_) => return None,
        }
    }
}
