//! A call over a WebSocket: sends frames until the call has ended. Input from the watcher is ignored.

use axum::{
    body::Body,
    extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code},
    http::Response,
    response::IntoResponse as _,
};
use bytes::Bytes;
use tokio::time::timeout;

use crate::{Handle, connection_slot::ConnectionSlot, stream::CallFollow};

/// A watcher only ever sends a close frame.
const MAX_MESSAGE: usize = 64 << 10;

/// Turns the request into a WebSocket that shows the call.
pub(super) fn upgrade(
    upgrade: WebSocketUpgrade,
    hub: Handle,
    followed: CallFollow,
    connection_slot: Option<ConnectionSlot>,
) -> Response<Body> {
    let upgrade = upgrade.read_buffer_size(4096).max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    let response = upgrade.on_upgrade(move |socket| {
        let tracker = hub.tasks().clone();
        tracker.track_future(async move {
            hub.metrics().streams.add(1);
            Box::pin(show(&hub, socket, followed)).await;
            hub.metrics().streams.take(1);
            drop(connection_slot);
        })
    });
    response.into_response()
}

async fn show(hub: &Handle, mut socket: WebSocket, mut followed: CallFollow) {
    loop {
        let message = tokio::select! {
            frame = followed.next() => match frame {
                Some(frame) => Message::text(frame.text()),
                None => break,
            },
            heard = socket.recv() => match heard {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
            () = tokio::time::sleep(hub.options().keep_alive) => Message::Ping(Bytes::new()),
        };
        // A watcher that accepts nothing for this long is gone.
        match timeout(hub.options().heartbeat_timeout, socket.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
    let (code, reason) = match followed.is_ended() {
        true => (close_code::NORMAL, "the call has ended"),
        false if hub.is_draining() => (close_code::AWAY, "the hub is shutting down; watch again when it is back"),
        false => (close_code::POLICY, "the credential is no longer valid"),
    };
    let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    let _ = timeout(hub.options().keep_alive, async {
        if socket.send(close).await.is_ok() {
            // Waits for the watcher's close frame, so that nothing sent is lost.
            while let Some(Ok(message)) = socket.recv().await {
                if matches!(message, Message::Close(_)) {
                    break;
                }
            }
        }
    })
    .await;
}
