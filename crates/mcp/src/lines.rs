//! The line-based transport between a client and its server. Answers lines that aren't JSON-RPC messages, which the
//! library would silently ignore.

use std::pin::pin;

use serde_json::{Value, json};
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf,
    },
    sync::mpsc,
};

/// The server's end of the transport.
pub(crate) type ServerPipes = (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>);

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
/// Bytes buffered in each direction.
const PIPE_BUFFER: usize = 1 << 16;
/// Lines waiting to be written to the client.
const MAX_QUEUED_LINES: usize = 16;

/// Forwards lines while the future is polled. Completes when the client has disconnected and the server has sent
/// everything.
pub(crate) fn between<R, W>(input: R, output: W) -> (impl Future<Output = ()> + Send, ServerPipes)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (ours, theirs) = tokio::io::duplex(PIPE_BUFFER);
    let (from_server, to_server) = tokio::io::split(ours);
    let (say, said) = mpsc::channel(MAX_QUEUED_LINES);
    let lines = async move {
        let passed = async move {
            let heard = pin!(listen(input, to_server, say.clone()));
            let mut answered = pin!(pass_on(from_server, say));
            tokio::select! {
                () = heard => answered.await,
                // The server is gone, so further input is useless.
                () = &mut answered => {}
            }
        };
        tokio::join!(passed, write(output, said));
    };
    (lines, tokio::io::split(theirs))
}

async fn listen(
    input: impl AsyncRead + Send + Unpin,
    mut to_server: WriteHalf<DuplexStream>,
    say: mpsc::Sender<Vec<u8>>,
) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    while matches!(input.read_until(b'\n', &mut line).await, Ok(length) if length > 0) {
        let passed = match invalid_line_answer(&line) {
            None => to_server.write_all(&line).await.is_ok(),
            Some(answer) => say.send(format!("{answer}\n").into_bytes()).await.is_ok(),
        };
        if !passed {
            break;
        }
        line.clear();
    }
    // Signals end of input to the server.
    let _ = to_server.shutdown().await;
}

async fn pass_on(from_server: ReadHalf<DuplexStream>, say: mpsc::Sender<Vec<u8>>) {
    let mut from_server = BufReader::new(from_server);
    loop {
        let mut line = Vec::new();
        match from_server.read_until(b'\n', &mut line).await {
            Ok(length) if length > 0 => {
                if say.send(line).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

async fn write(mut output: impl AsyncWrite + Send + Unpin, mut said: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = said.recv().await {
        // The client is gone. Its requests continue.
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

/// The error response to a line that isn't a message. `None` for messages and empty lines.
fn invalid_line_answer(line: &[u8]) -> Option<Value> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let (code, id, message) = match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(message)) => {
            let is_message = ["method", "result", "error"].iter().any(|name| message.contains_key(*name));
            if is_message {
                return None;
            }
            let id = message.get("id").cloned().unwrap_or(Value::Null);
            (INVALID_REQUEST, id, "The line has neither `method` nor `result` nor `error`.".to_owned())
        }
        Ok(Value::Array(_)) => {
            (INVALID_REQUEST, Value::Null, "Batches are not supported: write each message on its own line.".to_owned())
        }
        Ok(_) => (INVALID_REQUEST, Value::Null, "A message must be a JSON object.".to_owned()),
        Err(error) => (PARSE_ERROR, Value::Null, format!("The line is not JSON: {error}.")),
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
}
