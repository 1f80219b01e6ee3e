//! Messages to an outside agent: the caller's own message if there is one, otherwise the run's task.

use attache_a2a_wire::{A2aRole, Message, Part, PushConfig, SendConfiguration, SendMessage};
use attache_hub::in_process::InProcessRun;
use attache_protocol::{Json, json::Members};

/// The first message of a run. Its id is derived from the run, not the caller's message, whose id others may have used
/// with the same agent.
pub(super) fn first(work: &InProcessRun, context: Option<String>, push: Option<PushConfig>) -> SendMessage {
    let claim = work.claim();
    let input = claim.input.parse::<Members>().ok();
    let member = |name: &str| input.as_ref().and_then(|input| input.find(name)).cloned();
    let own = member("message").and_then(|message| message.parse::<Message>().ok());
    let modes = member("accepted_output_modes").and_then(|modes| modes.parse().ok()).unwrap_or_default();
    let message = match own {
        // Our ids mean nothing there.
        Some(own) => Message { role: A2aRole::User, task_id: None, reference_task_ids: Vec::new(), ..own },
        None => Message::new(String::new(), A2aRole::User, parts(work)),
    };
    let message = Message { message_id: id(work), context_id: context, ..message };
    let mut request = request(message, push);
    if let Some(configuration) = &mut request.configuration {
        configuration.accepted_output_modes = modes;
    }
    SendMessage { metadata: member("metadata"), ..request }
}

/// Whether a file of the run is one of our artifacts, which an outside agent can't fetch.
pub(super) fn is_too_large(work: &InProcessRun) -> bool {
    let input = work.claim().input.parse::<Members>().ok();
    let message = input.as_ref().and_then(|input| input.find("message"));
    let message = message.and_then(|message| message.parse::<Message>().ok());
    message.is_some_and(|message| message.parts.iter().any(|part| part.as_artifact().is_some()))
}

/// The caller's answer to a question of the agent.
pub(super) fn answer(
    work: &InProcessRun,
    ask: &str,
    task: &str,
    context: Option<String>,
    given: PeerInput,
) -> SendMessage {
    let own = given.message.and_then(|message| message.parse::<Message>().ok());
    let message = own.unwrap_or_else(|| {
        let parts = given.parts.map(|parts| parts.parse::<Vec<Part>>().unwrap_or_else(|_| vec![Part::data(parts)]));
        Message::new(String::new(), A2aRole::User, parts.unwrap_or_default())
    });
    let message = Message {
        message_id: format!("{}-{ask}", id(work)),
        role: A2aRole::User,
        task_id: Some(task.to_owned()),
        context_id: context,
        reference_task_ids: Vec::new(),
        ..message
    };
    request(message, None)
}

/// A caller's input: its parts, and the message that contained them, if any.
#[derive(Debug)]
pub(super) struct PeerInput {
    pub(super) parts: Option<Json>,
    pub(super) message: Option<Json>,
}

/// The id of a run's first message.
pub(super) fn id(work: &InProcessRun) -> String {
    work.claim().task_run_id.to_string()
}

/// The W3C trace parent: the run's trace, with the run as the calling span.
pub(super) fn traceparent(work: &InProcessRun) -> Option<String> {
    let claim = work.claim();
    let trace =
        claim.trace_id.as_ref().filter(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    let run = claim.task_run_id.uuid().simple().to_string();
    Some(format!("00-{trace}-{}-01", &run[16..]))
}

fn parts(work: &InProcessRun) -> Vec<Part> {
    let text = Some(work.text()).filter(|text| !text.is_empty());
    let mut parts: Vec<Part> = text.map(Part::text).into_iter().collect();
    parts.extend(work.context().filter(|context| context.get() != "null").cloned().map(Part::data));
    if parts.is_empty() {
        parts.push(Part::data(work.claim().input.clone()));
    }
    parts
}

fn request(message: Message, push: Option<PushConfig>) -> SendMessage {
    let configuration = SendConfiguration {
        task_push_notification_config: push,
        history_length: Some(0),
        return_immediately: Some(true),
        ..SendConfiguration::default()
    };
    SendMessage { tenant: None, message, configuration: Some(configuration), metadata: None }
}
