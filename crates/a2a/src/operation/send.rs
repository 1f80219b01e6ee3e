//! Handles a message: it becomes a run, or input for the run it names.

use std::time::Duration;

use attache_a2a_wire::{
    A2aRole, Fault, Message, Part, PartContent, SendConfiguration, SendMessage, SendMessageResponse,
};
use attache_hub::control::CreatedRun;
use attache_protocol::{
    Code, ConversationId, Json, RunId,
    wire::{
        awcp,
        run::{CreateRunRequest, Run},
    },
};
use serde::Serialize;

use super::{TaskUpdates, delegation, history};
use crate::{
    agent_request::{A2aVersion, AgentRequest},
    error::{Error, Kind, Result},
    view::TaskView,
};

/// How long a 0.3 caller without `blocking` waits. The standard's text says not at all, but most 0.3 servers waited. So
/// a quick answer is returned at once, and callers don't hang on an offline agent.
const DEFAULT_BLOCKING_TIMEOUT: Duration = Duration::from_secs(1);

/// The input of a run created through A2A.
#[derive(Serialize)]
struct MessageRunInput<'a> {
    text: &'a str,
    message: &'a Message,
    a2a_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Json>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    extensions: &'a [String],
}

impl AgentRequest {
    /// Returns when the task has ended or waits for someone, or at once if the caller asks for that.
    pub(crate) async fn send(&self, request: SendMessage) -> Result<SendMessageResponse> {
        let configuration = request.configuration.clone().unwrap_or_default();
        let most = history(configuration.history_length)?;
        let wait = match (configuration.return_immediately, self.version) {
            (Some(true), _) => Some(Duration::ZERO),
            (None, A2aVersion::V03) => Some(DEFAULT_BLOCKING_TIMEOUT),
            (Some(false), _) | (None, A2aVersion::V10) => None,
        };
        if wait != Some(Duration::ZERO) {
            self.hub.check_stream_slot(self.by())?;
        }
        let run = self.begin(request).await?;
        let run = match wait {
            Some(Duration::ZERO) => run,
            wait => self.hub.await_run(self.by(), run.task_run_id, wait).await?,
        };
        let view = self.view(&run).await?;
        Ok(match view.reply() {
            Some(message) => SendMessageResponse::Message(message.clone()),
            None => SendMessageResponse::Task(view.task(most)),
        })
    }

    /// Returns the task, then its updates.
    pub(crate) async fn stream(&self, request: SendMessage) -> Result<TaskUpdates> {
        if !self.face.switches.streams() {
            return Err(Error::fault(Fault::UnsupportedOperation, "This agent doesn't support streaming."));
        }
        let most = history(request.configuration.as_ref().and_then(|given| given.history_length))?;
        self.hub.check_stream_slot(self.by())?;
        let run = self.begin(request).await?;
        TaskUpdates::of_message(self, &run, most).await
    }

    /// Creates the run, or passes the message to the run it names.
    async fn begin(&self, request: SendMessage) -> Result<Run> {
        self.tenant(request.tenant.as_deref())?;
        check(&request.message)?;
        self.check_modes(&request.message)?;
        let push = self.push_of(request.configuration.as_ref())?;
        match request.message.task_id.clone().filter(|task| !task.is_empty()) {
            Some(task) => {
                let run = self.go_on(&task, request.message).await?;
                if let Some(push) = push {
                    let set = self.hub.set_push(self.by(), run.task_run_id, push).await;
                    set.map_err(|error| of_push(error.into()))?;
                }
                Ok(run)
            }
            None => self.make(request, push).await,
        }
    }

    async fn make(&self, request: SendMessage, push: Option<attache_hub::control::PushSubscription>) -> Result<Run> {
        let SendMessage { message, configuration, metadata, .. } = request;
        let conversation = match message.context_id.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Some(self.conversation_named(name).await?),
            None => None,
        };
        let invite = self.invitation(&message)?;
        let mut text = text(&message);
        if let Some(invite) = invite.as_ref().filter(|_| text.is_empty()) {
            text.clone_from(&invite.task.description);
        }
        let modes = configuration.map(|given| given.accepted_output_modes).unwrap_or_default();
        let input = Json::of(&MessageRunInput {
            text: &text,
            message: &message,
            a2a_version: self.version.as_str(),
            metadata: metadata.as_ref(),
            accepted_output_modes: &modes,
            extensions: &self.activated,
        });
        let mut headers = self.call_headers();
        headers.push = push;
        // Created with the run or not at all, so a refusal leaves nothing behind.
        headers.opens_conversation = conversation.is_some();
        if let Some(same) = self.resend_key(&message, metadata.as_ref(), &modes) {
            headers.idempotency_key = Some(format!("a2a-{}", same.to_hex()));
            // The key covers everything. The version of a message doesn't make it a different one.
            headers.sameness = Some([0; 16]);
        }
        let run = CreateRunRequest {
            agent_id: self.face.agent.to_string(),
            task_type: invite.as_ref().map(|_| awcp::TASK_TYPE.to_owned()),
            timeout_ms: invite.as_ref().map(delegation::timeout_ms),
            input: Some(input),
            conversation_id: conversation,
            ..CreateRunRequest::default()
        };
        match self.hub.create_run(self.by(), run, headers).await {
            Ok(CreatedRun::New(run) | CreatedRun::Existing(run)) => Ok(run),
            Err(error) if error.code == Code::TooLarge => Err(too_large("1 MiB, and its text counts twice")),
            Err(error) => Err(of_push(error.into())),
        }
    }

    /// Resending the same message returns the same task; any change makes it a new one. Anonymous callers can't be
    /// recognized.
    fn resend_key(&self, message: &Message, metadata: Option<&Json>, modes: &[String]) -> Option<blake3::Hash> {
        self.by().role().or(self.by().user.map(|_| attache_protocol::wire::key::Role::Viewer))?;
        let agent = self.face.agent.to_string();
        let all = Json::of(&(agent, message, metadata, modes, &self.activated));
        Some(blake3::hash(all.get().as_bytes()))
    }

    /// A conversation we created in which the caller has a task, or one the caller named itself, which may not exist
    /// yet.
    pub(super) async fn conversation_named(&self, name: &str) -> Result<ConversationId> {
        if name.len() > 300 {
            return Err(Error::invalid("contextId", "must have at most 300 characters"));
        }
        match name.parse::<ConversationId>() {
            Ok(id) if self.has_task_in(id).await? => Ok(id),
            Ok(_) | Err(_) => Ok(self.hub.conversation_called(self.by(), name)),
        }
    }

    async fn go_on(&self, task: &str, message: Message) -> Result<Run> {
        let run = self.own_run(task).await?;
        let id: RunId = run.task_run_id;
        if run.status.is_terminal() {
            let text = "The task has ended and accepts no more messages. Start a new task in the same context.";
            return Err(Error::fault(Fault::UnsupportedOperation, text).with("taskId", task));
        }
        if let Some(context) = message.context_id.as_deref().filter(|name| !name.is_empty()) {
            let own = TaskView::begin(&run, self.reader()).context().to_owned();
            if context != own && context != run.conversation_id.to_string() {
                return Err(Error::invalid("message.contextId", "isn't the context of the task"));
            }
        }
        let parts = Json::of(&message.parts);
        let message = Json::of(&message);
        // Resending the same message is the same input. Another message with the same id isn't.
        let key = blake3::hash(message.get().as_bytes()).to_hex().to_string();
        match self.hub.give_message(self.by(), id, parts, message, key).await {
            Ok(_) => {}
            Err(error) if matches!(error.code.http_status(), 404) => return Err(Error::no_task(task)),
            Err(error) if matches!(error.code.http_status(), 409) => {
                let text = format!("The task can't accept a message now. {}", error.message);
                return Err(Error::fault(Fault::UnsupportedOperation, text).with("taskId", task));
            }
            Err(error) if error.code == Code::TooLarge => return Err(too_large("512 KiB")),
            Err(error) => return Err(error.into()),
        }
        self.own_run(task).await
    }

    fn check_modes(&self, message: &Message) -> Result<()> {
        let taken = &self.face.input_modes;
        for (at, part) in message.parts.iter().enumerate() {
            let mode = media_type(part);
            if !is_media_type(mode) {
                return Err(Error::invalid(
                    format!("message.parts[{at}].mediaType"),
                    "isn't a media type such as image/png",
                ));
            }
            if !taken.is_empty() && !taken.iter().any(|pattern| fits(pattern, mode)) {
                let text = format!("This agent accepts {}, but not {mode}.", taken.join(", "));
                return Err(Error::fault(Fault::ContentTypeNotSupported, text)
                    .with("field", format!("message.parts[{at}].mediaType")));
            }
        }
        Ok(())
    }

    fn push_of(
        &self,
        configuration: Option<&SendConfiguration>,
    ) -> Result<Option<attache_hub::control::PushSubscription>> {
        match configuration.and_then(|given| given.task_push_notification_config.clone()) {
            Some(config) => self.read_push(config).map(Some).map_err(of_push),
            None => Ok(None),
        }
    }
}

/// Errors of the config in a message, named by their path in the request.
fn of_push(error: Error) -> Error {
    let is_config = |field: &str| matches!(field, "id" | "url" | "token") || field.starts_with("authentication");
    error.below("configuration.taskPushNotificationConfig", is_config)
}

/// An agent gets the message and, for convenience, its text.
fn too_large(most: &str) -> Error {
    Error::invalid("message.parts", format!("must fit into {most}; send larger content as a `url`"))
}

/// Checks the required members of a message.
fn check(message: &Message) -> Result<()> {
    let mut wrong = Vec::new();
    let mut say = |field: &str, problem: &str| wrong.push((field.to_owned(), problem.to_owned()));
    if message.message_id.is_empty() {
        say("message.messageId", "must not be empty");
    }
    if message.message_id.len() > 500 {
        say("message.messageId", "must have at most 500 characters");
    }
    if message.parts.is_empty() {
        say("message.parts", "must have at least one part");
    }
    for (at, _) in message.parts.iter().enumerate().filter(|(_, part)| !part.is_whole()) {
        say(&format!("message.parts[{at}].raw"), "isn't base64");
    }
    if message.role != A2aRole::User {
        say("message.role", "must be ROLE_USER");
    }
    match wrong.first() {
        None => Ok(()),
        Some((field, problem)) => {
            let text = format!("`{field}` {problem}.");
            Err(Error::new(Kind::Invalid(wrong), text))
        }
    }
}

/// The text for the agent: all text parts, separated by newlines.
fn text(message: &Message) -> String {
    let texts: Vec<&str> = message
        .parts
        .iter()
        .filter_map(|part| match &part.content {
            PartContent::Text(text) => Some(text.as_str()),
            PartContent::Raw(_) | PartContent::Url(_) | PartContent::Data(_) => None,
        })
        .collect();
    texts.join("\n")
}

fn media_type(part: &Part) -> &str {
    let default = match part.content {
        PartContent::Text(_) => "text/plain",
        PartContent::Data(_) => "application/json",
        PartContent::Raw(_) | PartContent::Url(_) => "application/octet-stream",
    };
    part.media_type.as_deref().filter(|given| !given.is_empty()).unwrap_or(default)
}

/// `type/subtype`, with or without parameters.
fn is_media_type(mode: &str) -> bool {
    let is_token = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    let essence = mode.split(';').next().unwrap_or_default().trim();
    essence.split_once('/').is_some_and(|(kind, rest)| is_token(kind) && is_token(rest))
}

/// Whether `image/*`, `*/*` or the type itself matches. Parameters are ignored.
pub(super) fn fits(pattern: &str, mode: &str) -> bool {
    let essence = mode.split(';').next().unwrap_or_default().trim();
    match pattern.trim().split_once('/') {
        Some(("*", "*")) => true,
        Some((kind, "*")) => essence.split_once('/').is_some_and(|(given, _)| given.eq_ignore_ascii_case(kind)),
        _ => pattern.trim().eq_ignore_ascii_case(essence),
    }
}
