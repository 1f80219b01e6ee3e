//! `POST /api/envelope`: one frame, answered by its response frames as server-sent events. A run's stream can be
//! resumed: repeat the request with `Last-Event-ID`.

use attache_protocol::{
    ChannelId, Code, Json, RunId, Secret, digest, json,
    secret::Kind,
    wire::{
        channel::{PeerRole, Transport},
        envelope::{Action, Envelope, Execute, MAX_FRAME, Register, ResumeResponse},
    },
};
use attache_store::record::channel::ChannelRecord;
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Request, Response, StatusCode, request::Parts},
};
use bytes::Bytes;
use tokio::time::sleep_until;

use crate::{
    Error, Handle, Principal, Result,
    channel::{ChannelDialect, ChannelSession, ConnectionOrigin, FrameRefusal, SessionEnd, refusal_text, yes_text},
    identity::Action as Right,
    stream::{SseSource, StreamSlot, events, respond},
    surface::{
        accept_body, body,
        extract::{CallerAddress, MaybeCaller, accepts, header_text},
        reply,
    },
};

/// The response while it is being streamed.
struct EnvelopeStream {
    hub: Handle,
    session: Box<ChannelSession>,
    first: Option<String>,
    /// The response ends with this run.
    run: Option<RunId>,
    _slot: StreamSlot,
}

enum EnvelopeAnswer {
    /// The response to a frame that is answered at once.
    Settled(Option<String>),
    Stream(EnvelopeStream),
}

/// Send one envelope; its response frames are server-sent events
///
/// With `Accept: application/json`, a frame that is answered at once gets its response as JSON. To resume the stream of
/// a run, repeat the request with `Last-Event-ID`. The credential may also be in the envelope.
#[utoipa::path(post, path = "/api/envelope", tag = "channels", request_body = Envelope,
    params(("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, content((String = "text/event-stream"), (Envelope = "application/json")))))]
pub(super) async fn take(
    State(hub): State<Handle>,
    MaybeCaller(by): MaybeCaller,
    CallerAddress(address): CallerAddress,
    request: Request<Body>,
) -> Result<Response<Body>> {
    let (Parts { headers, extensions, .. }, body) = request.into_parts();
    // The credential may be in the frame.
    accept_body(&extensions, MAX_FRAME + 1);
    let text = read(body).await?;
    let replaced = json::replace_lone_surrogates(text.as_bytes());
    let text = std::str::from_utf8(&replaced).unwrap_or(&text);
    let envelope = match Envelope::parse(text) {
        Ok(envelope) => envelope,
        Err(error) => {
            let parent = error.msg_id.clone();
            return Ok(refused(&hub, None, parent.as_deref(), &error.into()));
        }
    };
    let last = last_event_id(&headers)?;
    let origin =
        ConnectionOrigin { transport: Transport::Sse, dialect: ChannelDialect::Envelope, address: Some(address) };
    let mut session = Box::new(ChannelSession::new(hub.clone(), origin, by));
    let by = match session.authenticate_frame(&envelope).await {
        Ok(by) => by,
        Err(refusal) => {
            return Ok(refused(&hub, envelope.action().as_deref(), Some(&envelope.header.msg_id), &refusal));
        }
    };
    let done = match Action::read(&envelope) {
        Ok(Action::Execute(execute)) => begin(&hub, session, &by, &envelope, execute, last).await,
        Ok(_) => settle(&hub, session, &by, text).await,
        Err(error) => Err(error.into()),
    };
    Ok(match done {
        Ok(answer) => answer.into_response(&hub, &headers),
        Err(refusal) => refused(&hub, envelope.action().as_deref(), Some(&envelope.header.msg_id), &refusal),
    })
}

/// Creates or finds a run, and follows it to its end.
async fn begin(
    hub: &Handle,
    mut session: Box<ChannelSession>,
    by: &Principal,
    envelope: &Envelope,
    execute: Execute,
    last: Option<i64>,
) -> std::result::Result<EnvelopeAnswer, FrameRefusal> {
    // Before anything is taken over or left behind: a token of the same key may do less than the one that waits.
    by.may_all(Right::CreateRun)?;
    by.may(Right::SeeRuns)?.for_unowned();
    let slot = hub.stream_slot(by)?;
    let id = channel_id(by, &envelope.header.msg_id);
    let repaired = match hub.own_channel(by, id).await? {
        Some(channel) => {
            // The position to continue from. Not an acknowledgement: the caller may start over next time.
            let last = last.unwrap_or(0);
            let resumed = resume(hub, &mut session, by, channel, last).await?;
            session.skip_to(last);
            resumed.repaired.zip(resumed.snapshot)
        }
        None => {
            let tools = tools(hub, by, execute.channel_id).await?;
            let register = Register {
                peer_role: Some(PeerRole::Client),
                capabilities: None,
                tools,
                device_info: None,
                running: None,
                extensions: None,
            };
            session.open_channel(by, id, register, new_token(hub).hash()).await?;
            None
        }
    };
    let run = match session.start(by, envelope, execute).await {
        Ok(run) => run,
        Err(refusal) => {
            session.end(SessionEnd::Closed);
            session.close(SessionEnd::Closed).await;
            return Err(refusal);
        }
    };
    let mut payload = crate::channel::started(&run)?;
    if let Some((range, snapshot)) = repaired {
        let text = payload.get().trim_end_matches('}').to_owned();
        let range = Json::of(&range);
        payload = Json::from_text(format!(r#"{text},"repaired":{},"snapshot":{}}}"#, range.get(), snapshot.get()))
            .map_err(|error| Error::internal(&error))?;
    }
    let first = Some(yes_text(hub, &envelope.header.msg_id, payload));
    let (hub, run) = (hub.clone(), Some(run.task_run_id));
    Ok(EnvelopeAnswer::Stream(EnvelopeStream { hub, session, first, run, _slot: slot }))
}

/// Frames that are answered immediately.
async fn settle(
    hub: &Handle,
    mut session: Box<ChannelSession>,
    by: &Principal,
    text: &str,
) -> std::result::Result<EnvelopeAnswer, FrameRefusal> {
    let first = session.settle(by, text).await?;
    if let Some(channel) = session.channel() {
        hub.register_tools(by, channel).await?;
        session.end(SessionEnd::Finished);
        session.close(SessionEnd::Finished).await;
    }
    Ok(EnvelopeAnswer::Settled(first))
}

/// The tools the caller registered earlier: on the named channel, or with its last registration here.
async fn tools(
    hub: &Handle,
    by: &Principal,
    named: Option<ChannelId>,
) -> std::result::Result<Option<Json>, FrameRefusal> {
    let registered = match named {
        Some(_) => named,
        None => hub.registered_tools(by).await?,
    };
    let Some(channel) = registered else { return Ok(None) };
    match hub.own_channel(by, channel).await? {
        Some(channel) => Ok(Some(channel.tools)),
        None if named.is_some() => Err(FrameRefusal::from(Error::not_found("channel")).field("payload.channel_id")),
        None => Ok(None),
    }
}

/// The same request from the same principal maps to the same channel.
fn channel_id(by: &Principal, msg_id: &str) -> ChannelId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(by.tenant.uuid().as_bytes());
    hasher.update(by.actor().to_string().as_bytes());
    hasher.update(b"/api/envelope");
    hasher.update(msg_id.as_bytes());
    ChannelId::from_uuid(digest::uuid(hasher.finalize()))
}

/// Takes the channel over from its connection. Whoever repeats the request at the same time may be faster.
async fn resume(
    hub: &Handle,
    session: &mut ChannelSession,
    by: &Principal,
    mut channel: ChannelRecord,
    last: i64,
) -> std::result::Result<ResumeResponse, FrameRefusal> {
    loop {
        let fresh = new_token(hub);
        let token = channel.resume.unwrap_or(fresh.hash());
        let resumed = session.resume_channel(by, channel.id, token, &fresh, last.min(channel.floor)).await;
        let Err(refusal) = resumed else { return resumed };
        match hub.own_channel(by, channel.id).await? {
            Some(current) if current.resume != channel.resume => channel = current,
            Some(_) | None => return Err(refusal),
        }
    }
}

/// It tells the connections of the channel apart. It is never given out: the caller authenticates every request, so only
/// the hub resumes the channel.
fn new_token(hub: &Handle) -> Secret<String> {
    Kind::Resume.generate(hub.env())
}

async fn read(given: Body) -> Result<String> {
    // Slightly more than a frame, so that the frame check reports the error.
    let bytes = body(given, MAX_FRAME + 1).await.map_err(|error| match error.code {
        Code::TooLarge => {
            let hint = "Upload larger data as an artifact and send its id.";
            Error::new(Code::TooLarge, "The frame is larger than 1 MiB.").hint(hint)
        }
        _ => error,
    })?;
    let text = String::from_utf8(bytes.into());
    text.map_err(|_| Error::new(Code::InvalidJson, "The frame is not valid JSON: it is not UTF-8."))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>> {
    match header_text(headers, "last-event-id")? {
        Some(text) if !text.is_empty() => match text.parse() {
            Ok(seq @ 0..) => Ok(Some(seq)),
            _ => Err(Error::invalid("Last-Event-ID", "must be the id of a frame in this response")),
        },
        Some(_) | None => Ok(None),
    }
}

/// The refusal as a frame, plus the hub's usual error body.
fn refused(hub: &Handle, action: Option<&str>, parent: Option<&str>, refusal: &FrameRefusal) -> Response<Body> {
    let frame = refusal_text(hub, action, parent, refusal);
    let error = Json::of(&refusal.body());
    let rest = frame.strip_prefix('{').unwrap_or("}");
    let status = Code::from_text(refusal.code).map_or(409, Code::http_status);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = reply::json(status, &Json::empty_object());
    *response.body_mut() = Body::from(format!(r#"{{"error":{},{rest}"#, error.get()));
    response
}

// === impl EnvelopeAnswer ===

impl EnvelopeAnswer {
    fn into_response(self, hub: &Handle, headers: &HeaderMap) -> Response<Body> {
        let first = match self {
            Self::Stream(stream) => return respond(hub, stream),
            Self::Settled(first) => first,
        };
        if accepts(headers, "application/json") && !accepts(headers, "text/event-stream") {
            let mut response = reply::json(StatusCode::OK, &Json::empty_object());
            *response.body_mut() = Body::from(first.unwrap_or_else(|| "{}".to_owned()));
            return response;
        }
        events(first.map_or_else(Body::empty, |first| Body::from(event(None, &first))))
    }
}

// === impl EnvelopeStream ===

impl EnvelopeStream {
    /// The run has been streamed to its end.
    fn finish(&mut self) {
        self.run = None;
        self.session.end(SessionEnd::Finished);
        if let Some(connection) = self.session.connection() {
            self.hub.live_channels().finish(connection);
        }
    }
}

impl SseSource for EnvelopeStream {
    async fn next_frame(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(event(None, &first));
        }
        self.run?;
        loop {
            // A reader counts as alive.
            self.session.mark_seen();
            if let Some(outgoing) = Box::pin(self.session.next_frame()).await {
                if outgoing.ends.is_some() && outgoing.ends == self.run {
                    self.finish();
                }
                return Some(event(outgoing.seq, &outgoing.text));
            }
            if self.session.ending().is_some() {
                return None;
            }
            // Its last frame may already have been read.
            if Box::pin(self.session.has_sent_end(self.run?)).await {
                self.finish();
                return None;
            }
            let due = self.session.due();
            tokio::select! {
                moved = self.session.moved() => Box::pin(self.session.note(moved)).await,
                () = sleep_until(due) => {
                    Box::pin(self.session.tick()).await;
                }
                () = self.hub.drained() => return None,
            }
        }
    }
}

/// Our frames are one line of JSON, but relayed content may contain newlines.
fn event(seq: Option<i64>, text: &str) -> Bytes {
    let mut event = String::with_capacity(text.len() + 40);
    if let Some(seq) = seq {
        event.push_str(&format!("id: {seq}\n"));
    }
    event.push_str("event: frame");
    for line in text.split(['\n', '\r']) {
        event.push_str("\ndata: ");
        event.push_str(line);
    }
    event.push_str("\n\n");
    Bytes::from(event)
}
