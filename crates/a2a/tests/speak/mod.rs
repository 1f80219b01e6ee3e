//! Clients that speak one binding of one version, and answer in the model of 1.0 whatever they speak.

mod form;
pub mod grpc;
mod rest;
mod rpc;
mod sse;

pub use form::{RefusalForm, SpokenRefusal};

use std::{sync::LazyLock, time::Duration};

use attache_a2a_wire::{
    AgentCard, CancelTask, GetPushConfig, GetTask, ListPushConfigs, ListTasks, PushConfig, SendMessage,
    SubscribeToTask, Task, TaskState,
};
use attache_protocol::Json;
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::timeout;

/// Made once: it reads every certificate of the machine. Each test has a runtime of its own, so no connection is kept.
pub fn http() -> reqwest::Client {
    static HTTP: LazyLock<reqwest::Client> =
        LazyLock::new(|| reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap());
    HTTP.clone()
}

/// Nothing in these tests takes so long.
pub const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TestBinding {
    Rpc,
    Rest,
    Grpc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TestVersion {
    V10,
    V03,
}

pub const BINDINGS: [TestBinding; 3] = [TestBinding::Rpc, TestBinding::Rest, TestBinding::Grpc];
pub const VERSIONS: [TestVersion; 2] = [TestVersion::V10, TestVersion::V03];

/// Every way to speak.
pub fn every_way() -> impl Iterator<Item = (TestBinding, TestVersion)> {
    VERSIONS.into_iter().flat_map(|version| BINDINGS.map(|binding| (binding, version)))
}

/// One of the eleven operations.
#[derive(Debug, Clone)]
pub enum TestOperation {
    Send(SendMessage),
    Stream(SendMessage),
    Get(GetTask),
    List(ListTasks),
    Cancel(CancelTask),
    Subscribe(SubscribeToTask),
    CreatePush(PushConfig),
    GetPush(GetPushConfig),
    ListPushes(ListPushConfigs),
    DeletePush(GetPushConfig),
    Card,
}

pub enum TestAnswer {
    Once(Json),
    Stream(IncomingEvents),
}

/// A stream, each of its events in the model of 1.0.
pub struct IncomingEvents(BoxStream<'static, Result<Json, SpokenRefusal>>);

/// A caller of one agent.
#[derive(Debug, Clone)]
pub struct TestClient {
    pub binding: TestBinding,
    pub version: TestVersion,
    pub url: String,
    pub agent: String,
    pub headers: Vec<(&'static str, String)>,
    /// What it says that its version is.
    pub says: String,
}

// === impl TestVersion ===

impl TestVersion {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V10 => "1.0",
            Self::V03 => "0.3",
        }
    }
}

// === impl TestOperation ===

impl TestOperation {
    pub fn get(task: &str) -> Self {
        Self::Get(GetTask { id: task.to_owned(), ..GetTask::default() })
    }

    pub fn cancel(task: &str) -> Self {
        Self::Cancel(CancelTask { id: task.to_owned(), ..CancelTask::default() })
    }

    pub fn subscribe(task: &str) -> Self {
        Self::Subscribe(SubscribeToTask { id: task.to_owned(), ..SubscribeToTask::default() })
    }

    pub fn get_push(task: &str, id: &str) -> Self {
        Self::GetPush(GetPushConfig { task_id: task.to_owned(), id: id.to_owned(), ..GetPushConfig::default() })
    }

    pub fn delete_push(task: &str, id: &str) -> Self {
        Self::DeletePush(GetPushConfig { task_id: task.to_owned(), id: id.to_owned(), ..GetPushConfig::default() })
    }

    pub fn list_pushes(task: &str) -> Self {
        Self::ListPushes(ListPushConfigs { task_id: task.to_owned(), ..ListPushConfigs::default() })
    }

    pub fn create_push(task: &str, config: PushConfig) -> Self {
        Self::CreatePush(PushConfig { task_id: Some(task.to_owned()), ..config })
    }
}

// === impl TestClient ===

impl TestClient {
    pub fn new(binding: TestBinding, version: TestVersion, url: &str, agent: &str) -> Self {
        let says = version.as_str().to_owned();
        Self { binding, version, url: url.to_owned(), agent: agent.to_owned(), headers: Vec::new(), says }
    }

    /// The same request under another version's name.
    #[must_use]
    pub fn saying(self, version: &str) -> Self {
        Self { says: version.to_owned(), ..self }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.with("authorization", format!("Bearer {key}"))
    }

    /// Whether the version has this operation on this binding.
    pub fn can(&self, ask: &TestOperation) -> bool {
        self.version == TestVersion::V10 || !matches!(ask, TestOperation::List(_))
    }

    pub async fn ask(&self, ask: TestOperation) -> Result<TestAnswer, SpokenRefusal> {
        let shown = format!("{:?} {:?} does not answer {ask:?}", self.binding, self.version);
        let answered = async {
            match self.binding {
                TestBinding::Rpc => rpc::ask(self, ask).await,
                TestBinding::Rest => rest::ask(self, ask).await,
                TestBinding::Grpc => grpc::ask(self, ask).await,
            }
        };
        timeout(PATIENCE, answered).await.expect(&shown)
    }

    pub async fn once(&self, ask: TestOperation) -> Result<Json, SpokenRefusal> {
        match self.ask(ask).await? {
            TestAnswer::Once(answer) => Ok(answer),
            TestAnswer::Stream(_) => panic!("this answers with a stream"),
        }
    }

    pub async fn open(&self, ask: TestOperation) -> Result<IncomingEvents, SpokenRefusal> {
        match self.ask(ask).await? {
            TestAnswer::Stream(incoming) => Ok(incoming),
            TestAnswer::Once(answer) => panic!("this answers once: {}", answer.get()),
        }
    }

    /// What the operation refuses with.
    pub async fn refused(&self, ask: TestOperation) -> SpokenRefusal {
        match self.ask(ask).await {
            Err(refusal) => refusal,
            Ok(TestAnswer::Once(answer)) => panic!("{:?} {:?} answers: {}", self.binding, self.version, answer.get()),
            Ok(TestAnswer::Stream(_)) => panic!("{:?} {:?} opens a stream", self.binding, self.version),
        }
    }

    /// Sends a message that becomes a task.
    pub async fn send(&self, request: SendMessage) -> Task {
        let told =
            self.once(TestOperation::Send(request)).await.unwrap_or_else(|refusal| panic!("{self:?}: {refusal:?}"));
        assert!(told.get().starts_with(r#"{"task":"#), "{}", told.get());
        #[derive(serde::Deserialize)]
        struct Sent {
            task: Task,
        }
        told.parse::<Sent>().unwrap().task
    }

    pub async fn get(&self, task: &str) -> Task {
        self.once(TestOperation::get(task)).await.unwrap().parse().unwrap()
    }

    /// The task as soon as it is in this state.
    pub async fn until(&self, task: &str, state: TaskState) -> Task {
        let reached = async {
            loop {
                let found = self.get(task).await;
                if found.status.state == state {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{task} does not reach {state:?}"))
    }
}

// === impl IncomingEvents ===

impl IncomingEvents {
    /// The next event; `None` at the end.
    pub async fn next(&mut self) -> Option<Json> {
        let next = timeout(PATIENCE, self.0.next()).await.expect("an event or the end in time");
        next.map(|event| event.unwrap_or_else(|refusal| panic!("the stream breaks: {refusal:?}")))
    }

    /// The stream, unless all that it has to say is a refusal.
    async fn unless_refused(mut self) -> Result<Self, SpokenRefusal> {
        let first = self.0.next().await.transpose()?;
        Ok(Self(stream::iter(first.map(Ok)).chain(self.0).boxed()))
    }

    /// Everything to the end.
    pub async fn rest(mut self) -> Vec<Json> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }

    /// Everything up to the first event in which the text occurs, with it.
    pub async fn up_to(&mut self, text: &str) -> Vec<Json> {
        let mut all = Vec::new();
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("{text} does not come: {all:?}"));
            let found = event.get().contains(text);
            all.push(event);
            if found {
                return all;
            }
        }
    }
}

/// Read as one thing and written as another.
fn read_as<Read, Written>(json: &Json) -> Json
where
    Read: DeserializeOwned,
    Written: TryFrom<Read> + Serialize,
    Written::Error: std::fmt::Debug,
{
    let read: Read = json.parse().unwrap_or_else(|error| panic!("{error}: {}", json.get()));
    Json::of(&Written::try_from(read).unwrap())
}

/// What two versions' cards have in common.
fn card(card: &AgentCard) -> Json {
    let skills: Vec<&String> = card.skills.iter().map(|skill| &skill.id).collect();
    let both = json!({"name": card.name, "description": card.description, "version": card.version, "skills": skills});
    Json::of(&both)
}
