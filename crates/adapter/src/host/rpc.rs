//! JSON-RPC with a host, one message per line, both ways. Parameters and results keep their original text.

use std::time::Duration;

use attache_protocol::Json;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{HostExchange, HostInput, HostWriter, KeyedAnswer, TurnVerdict, lines::HostLine};
use crate::UnsolicitedInput;

/// A conversation with a host that speaks JSON-RPC. [`step`] and [`answer_to`] drive it.
pub(crate) trait RpcConversation: Send {
    /// The key of a question: how its answer is passed to the host.
    type Question: Send;

    fn exchange(&mut self) -> &mut HostExchange<Self::Question>;

    /// Parses a line. `None` if it contains no message.
    fn read(&mut self, line: Option<HostLine>) -> Result<Option<HostRpcMessage>, TurnVerdict>;

    fn on_request(&mut self, id: Json, method: String, params: Json) -> impl Future<Output = ()> + Send;

    fn on_notification(&mut self, method: &str, params: &Json) -> Result<(), TurnVerdict>;

    /// Passes people's answer to the host, in its own terms and for this one time only.
    fn send_answer(&mut self, answered: KeyedAnswer<Self::Question>) -> impl Future<Output = ()> + Send;

    /// Passes on what the caller says without being asked. Only for an exchange [`with_caller`].
    ///
    /// [`with_caller`]: HostExchange::with_caller
    fn on_unsolicited(&mut self, _input: UnsolicitedInput) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A message from a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostRpcMessage {
    /// It expects an answer.
    Request {
        id: Json,
        method: String,
        params: Json,
    },
    Notification {
        method: String,
        params: Json,
    },
    /// The answer to one of our requests.
    Response {
        id: u64,
        result: Result<Json, Error>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Error {
    pub(crate) code: i64,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Json>,
}

/// Our side of the conversation.
#[derive(Debug)]
pub(crate) struct HostRpc {
    speaker: HostWriter,
    last: u64,
}

#[derive(Debug, Default, Deserialize)]
struct HostRpcFrame {
    id: Option<Json>,
    method: Option<String>,
    params: Option<Json>,
    result: Option<Json>,
    error: Option<Error>,
}

#[derive(Debug, Serialize)]
struct HostRpcRequest<'a, P: Serialize> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a P,
}

#[derive(Debug, Serialize)]
struct HostRpcReply<'a, R: Serialize> {
    jsonrpc: &'static str,
    id: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Error>,
}

const VERSION: &str = "2.0";

/// Parses an answer into the expected type.
pub(crate) fn understood<T: DeserializeOwned>(answer: &Json) -> Result<T, TurnVerdict> {
    answer.parse().map_err(|error| TurnVerdict::Unreadable { message: format!("{error} in {}", excerpt(answer.get())) })
}

/// The start of a text, short enough for an error message.
pub(crate) fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(300)]
}

/// Handles the next event: an answer from people, or a message from the host. Returns responses to our requests.
pub(crate) async fn step<C: RpcConversation>(
    conversation: &mut C,
) -> Result<Option<(u64, Result<Json, Error>)>, TurnVerdict> {
    match conversation.exchange().next().await {
        HostInput::Answer(answered) => conversation.send_answer(answered).await,
        HostInput::Unsolicited(input) => conversation.on_unsolicited(input).await,
        HostInput::Line(line) => match conversation.read(line)? {
            Some(HostRpcMessage::Response { id, result }) => return Ok(Some((id, result))),
            Some(HostRpcMessage::Request { id, method, params }) => conversation.on_request(id, method, params).await,
            Some(HostRpcMessage::Notification { method, params }) => conversation.on_notification(&method, &params)?,
            None => {}
        },
    }
    Ok(None)
}

/// Processes messages until the host answers this request.
pub(crate) async fn answer_to<C: RpcConversation>(
    conversation: &mut C,
    wanted: u64,
) -> Result<Result<Json, Error>, TurnVerdict> {
    loop {
        if let Some((_, result)) = step(conversation).await?.filter(|(id, _)| *id == wanted) {
            return Ok(result);
        }
    }
}

/// Limits the time a host has to start.
pub(crate) async fn started_within<T>(
    limit: Duration,
    starting: impl Future<Output = Result<T, TurnVerdict>>,
) -> Result<T, TurnVerdict> {
    let late = || TurnVerdict::Failed { message: format!("it didn't start within {} seconds", limit.as_secs()) };
    tokio::time::timeout(limit, starting).await.unwrap_or_else(|_| Err(late()))
}

// === impl HostRpcMessage ===

impl HostRpcMessage {
    /// `None` if the line isn't a message of this protocol.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let frame: HostRpcFrame = serde_json::from_str(line).ok()?;
        let params = || frame.params.clone().unwrap_or_else(Json::empty_object);
        match (frame.id, frame.method) {
            (Some(id), Some(method)) => Some(Self::Request { params: params(), id, method }),
            (None, Some(method)) => Some(Self::Notification { params: params(), method }),
            (Some(id), None) => {
                let result = match frame.error {
                    Some(error) => Err(error),
                    // A `null` result parses as `None`, but is a result.
                    None => Ok(frame.result.unwrap_or_else(|| Json::of(&()))),
                };
                Some(Self::Response { id: id.parse().ok()?, result })
            }
            (None, None) => None,
        }
    }
}

// === impl Error ===

impl Error {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// We don't have this method.
    pub(crate) fn unknown(method: &str) -> Self {
        Self::new(-32601, format!("`{method}` isn't supported"))
    }

    pub(crate) fn bad_params(why: impl std::fmt::Display) -> Self {
        Self::new(-32602, format!("invalid parameters: {why}"))
    }

    /// The complete error text, for people.
    pub(crate) fn text(&self) -> String {
        match &self.data {
            None => self.message.clone(),
            Some(data) => {
                // Hosts put the reason into one of these members, or send a plain string.
                let inside = ["details", "message", "error"].into_iter().find_map(|name| data.text_member(name));
                let data = inside.or_else(|| data.parse().ok()).unwrap_or_else(|| data.get().to_owned());
                format!("{} ({data})", self.message)
            }
        }
    }
}

// === impl HostRpc ===

impl HostRpc {
    pub(crate) const fn new(speaker: HostWriter) -> Self {
        Self { speaker, last: 0 }
    }

    /// Sends a request. The response carries the returned id.
    pub(crate) async fn ask(&mut self, method: &str, params: &impl Serialize) -> u64 {
        self.last += 1;
        self.speaker.write(&HostRpcRequest { jsonrpc: VERSION, id: Some(self.last), method, params }).await;
        self.last
    }

    pub(crate) async fn notify(&self, method: &str, params: &impl Serialize) {
        self.speaker.write(&HostRpcRequest { jsonrpc: VERSION, id: None, method, params }).await;
    }

    pub(crate) async fn answer(&self, id: &Json, result: &impl Serialize) {
        self.speaker.write(&HostRpcReply { jsonrpc: VERSION, id, result: Some(result), error: None }).await;
    }

    pub(crate) async fn refuse(&self, id: &Json, error: &Error) {
        self.speaker.write(&HostRpcReply { jsonrpc: VERSION, id, result: None::<&Json>, error: Some(error) }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::from_text(text).unwrap()
    }

    #[test]
    fn a_line_is_a_request_a_notification_or_a_response() {
        let asked = HostRpcMessage::Request { id: json("\"a\""), method: "m".to_owned(), params: json(r#"{"n":1E2}"#) };
        assert_eq!(HostRpcMessage::read(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"n":1E2}}"#), Some(asked));
        let told = HostRpcMessage::Notification { method: "m".to_owned(), params: Json::empty_object() };
        assert_eq!(HostRpcMessage::read(r#"{"method":"m"}"#), Some(told));
        let answered = HostRpcMessage::Response { id: 3, result: Ok(json("null")) };
        assert_eq!(HostRpcMessage::read(r#"{"jsonrpc":"2.0","id":3,"result":null}"#), Some(answered));
        let failed = HostRpcMessage::Response { id: 3, result: Err(Error::new(-32000, "no")) };
        assert_eq!(HostRpcMessage::read(r#"{"id":3,"error":{"code":-32000,"message":"no"}}"#), Some(failed));
        for noise in ["Loading…", "[]", "{}", "3", r#"{"id":"not ours","result":1}"#, "{\"id\":1"] {
            assert_eq!(HostRpcMessage::read(noise), None, "{noise}");
        }
    }

    #[test]
    fn an_error_text_includes_its_details() {
        let error = |data| Error { data: Some(json(data)), ..Error::new(-32603, "Internal error") };
        assert_eq!(error(r#"{"details":"no route"}"#).text(), "Internal error (no route)");
        assert_eq!(error("\"fetch failed\"").text(), "Internal error (fetch failed)");
        assert_eq!(error("[1]").text(), "Internal error ([1])");
        assert_eq!(Error::new(1, "no").text(), "no");
    }
}
