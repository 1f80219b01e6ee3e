//! A hub with the obedient agent, and callers of every kind.

use std::{sync::Arc, time::Duration};

use attache_hub::{
    control::{DecisionOrigin, PageRequest, PermissionQuery},
    in_process::HostedAgent,
};
use attache_protocol::{
    Json,
    rules::permission::{DecisionScope, PermissionState},
    wire::{
        account::AccountRequest,
        key::{CreateKeyRequest, Role},
        permission::{DecisionRequest, PermissionRequest},
        user::CreateUserRequest,
    },
};
use attache_testkit::{RunningWorld, World};
use serde_json::Value;
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    obedient::ScriptedA2aAgent,
    speak::{PATIENCE, TestBinding, TestClient, TestVersion},
};

pub const AGENT: &str = "obedient";

pub struct A2aFixture {
    pub world: RunningWorld,
    pub gate: Arc<Semaphore>,
    pub agent: String,
    /// Dropped with the scene.
    _hosted: HostedAgent,
}

pub fn world() -> World {
    World::new().surface(attache_a2a::router)
}

impl A2aFixture {
    pub async fn start(world: World) -> Self {
        Self::on(world.start().await).await
    }

    async fn on(world: RunningWorld) -> Self {
        Self::hosting(world, AGENT).await
    }

    /// The same hub with another agent.
    pub async fn another(self, agent: &str) -> Self {
        Self::hosting(self.world, agent).await
    }

    async fn hosting(world: RunningWorld, name: &str) -> Self {
        let agent = ScriptedA2aAgent::default();
        let gate = agent.gate.clone();
        let hosted = world.hub.host(&world.owner, name, agent).await.unwrap();
        Self { world, gate, agent: name.to_owned(), _hosted: hosted }
    }

    /// The owner, speaking so.
    pub fn client(&self, binding: TestBinding, version: TestVersion) -> TestClient {
        self.stranger(binding, version).key(self.world.owner_key.expose())
    }

    /// Somebody without a credential.
    pub fn stranger(&self, binding: TestBinding, version: TestVersion) -> TestClient {
        TestClient::new(binding, version, &self.world.url, &self.agent)
    }

    /// The owner over JSON-RPC of 1.0.
    pub fn owner(&self) -> TestClient {
        self.client(TestBinding::Rpc, TestVersion::V10)
    }

    /// Changes what the agent's owner decided about its A2A face.
    pub async fn switch(&self, a2a: Value) {
        let a2a = Some(Json::from_text(a2a.to_string()).unwrap());
        let request = AccountRequest { a2a, ..AccountRequest::default() };
        self.world.hub.update_account(&self.world.owner, AGENT, request).await.unwrap();
    }

    /// Another person with a key.
    pub async fn person(&self, name: &str, role: Role) -> String {
        let hub = &self.world.hub;
        let user = CreateUserRequest { name: name.to_owned(), role: Some(role), password: None };
        hub.create_user(&self.world.owner, user).await.unwrap();
        let key = CreateKeyRequest {
            name: name.to_owned(),
            user: Some(name.to_owned()),
            role: Some(role),
            ..CreateKeyRequest::default()
        };
        hub.create_key(&self.world.owner, key).await.unwrap().api_key.unwrap()
    }

    /// The oldest permission request that waits for a person.
    pub async fn pending(&self) -> PermissionRequest {
        let query = PermissionQuery { state: Some(PermissionState::Pending), ..PermissionQuery::default() };
        let found = async {
            loop {
                let page = PageRequest { limit: None, cursor: None };
                let mut found = self.world.hub.permissions(&self.world.owner, query.clone(), page).await.unwrap();
                if let Some(oldest) = found.permission_requests.pop() {
                    return oldest;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, found).await.expect("somebody asks for a permission")
    }

    /// A person decides the oldest one.
    pub async fn decide(&self, approved: bool) {
        let asked = self.pending().await;
        let request = DecisionRequest {
            approved,
            scope: DecisionScope::Once,
            tool_pattern: None,
            until: None,
            this_channel_only: false,
            comment: None,
        };
        let place = DecisionOrigin { via: "rest", from: None };
        self.world.hub.decide(&self.world.owner, asked.permission_request_id, request, place).await.unwrap();
    }

    /// Waits until an event of the run says this.
    pub async fn until_said(&self, task: &str, text: &str) {
        let (hub, run) = (&self.world.hub, task.parse().unwrap());
        let mut events = hub.follow_run(&self.world.owner, run, None).await.unwrap();
        let said = async {
            while let Some(event) = events.next().await {
                if event.data.get().contains(text) {
                    return;
                }
            }
            panic!("the run ended without saying {text}");
        };
        timeout(PATIENCE, said).await.expect("it is said in time");
    }

    pub fn open_gate(&self) {
        self.gate.add_permits(1);
    }
}
