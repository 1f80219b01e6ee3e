//! Test world: an in-process hub with a console, visitors and devices.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use attache_console::Options;
use attache_hub::{
    Handle, Hub, Principal,
    control::{CallHeaders, CreatedRun, PageRequest},
};
use attache_protocol::{
    Json, RunId, Secret, UserId,
    env::Env,
    secret::Kind,
    wire::{
        account::{Account, AccountRequest},
        channel::{PeerRole, Transport},
        host_session::HostSession,
        input_request::{CreateInputRequest, InputAnswer},
        key::Role,
        pairing::AttachRequest,
        permission::{CreatePermissionRequest, PermissionAnswer, PermissionRequest},
        run::{ClaimedRun, CompleteRequest, CreateRunRequest, ProgressRequest, SandboxLimit},
        runtime::{DeclaredExtension, HeartbeatRequest},
        session::LoginLinkRequest,
        user::{CreateUserRequest, User},
    },
};
use attache_store::{
    Store, WriteContext,
    memory::MemoryStore,
    record::{
        NewKey, SessionOpening,
        channel::{ChannelRecord, NewChannel},
    },
};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, StatusCode, header},
};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

pub(crate) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) struct ConsoleWorld {
    pub(crate) hub: Handle,
    pub(crate) owner: Principal,
    pub(crate) router: Router,
    pub(crate) store: Arc<dyn Store>,
    _folder: tempfile::TempDir,
}

/// A browser without scripts: it only keeps cookies.
#[derive(Clone)]
pub(crate) struct TestVisitor {
    router: Router,
    cookies: Vec<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct PageAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    /// The body as it came.
    pub(crate) bytes: Vec<u8>,
}

/// A paired device.
pub(crate) struct ConsoleDevice {
    hub: Handle,
    pub(crate) principal: Principal,
    agent: String,
}

// === impl ConsoleWorld ===

impl ConsoleWorld {
    pub(crate) async fn new() -> Self {
        Self::with("127.0.0.1:7800".parse().unwrap(), |_| {}).await
    }

    /// A hub with other options.
    pub(crate) async fn with(listen: SocketAddr, change: impl FnOnce(&mut attache_hub::Options)) -> Self {
        Self::living(listen, Env::system(), change).await
    }

    /// A hub with a paused clock.
    pub(crate) async fn paused() -> Self {
        Self::living("127.0.0.1:7800".parse().unwrap(), Env::seeded(7), |_| {}).await
    }

    async fn living(listen: SocketAddr, env: Env, change: impl FnOnce(&mut attache_hub::Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut options = attache_hub::Options::new(folder.path(), listen);
        options.disk_reserve = Some(0);
        change(&mut options);
        let hub = Hub::start(options, store.clone(), env).await.unwrap();
        let key = std::fs::read_to_string(folder.path().join("admin.key")).unwrap();
        let owner = hub.authenticate_key(key.trim()).await.unwrap();
        let router = attache_console::router(hub.clone(), Options::for_origin(&hub.origin()));
        Self { hub, owner, router, store, _folder: folder }
    }

    pub(crate) fn visitor(&self) -> TestVisitor {
        TestVisitor { router: self.router.clone(), cookies: Vec::new() }
    }

    /// A visitor signed in with this role.
    pub(crate) async fn signed_in(&self, role: Role) -> TestVisitor {
        self.session(role, None).await
    }

    /// The owner of all agents here, who starts runs with [`ask`](Self::ask), signed in.
    pub(crate) async fn owner_signed_in(&self) -> TestVisitor {
        self.session(Role::Owner, self.owner.user).await
    }

    /// A user with this name, signed in.
    pub(crate) async fn person(&self, name: &str, role: Role) -> (User, TestVisitor) {
        let request = CreateUserRequest { name: name.to_owned(), role: Some(role), password: None };
        let user = self.hub.create_user(&self.owner, request).await.unwrap();
        let visitor = self.session(role, Some(user.user_id)).await;
        (user, visitor)
    }

    async fn session(&self, role: Role, user: Option<UserId>) -> TestVisitor {
        let secret = Kind::Session.generate(self.hub.env());
        let key = NewKey {
            user,
            scopes: None,
            id: self.hub.env().key_id(),
            opening: Some(SessionOpening::default()),
            issuer: None,
            agent: None,
            name: "console".to_owned(),
            role,
            secret: secret.hash(),
            expires_at: None,
        };
        let context = WriteContext::new(self.owner.tenant, "test", self.hub.now());
        self.store.create_key(context, key).await.unwrap();
        let mut visitor = self.visitor();
        visitor.cookies.push(("attache_session".to_owned(), secret.expose().clone()));
        visitor
    }

    /// The token of a fresh login link.
    pub(crate) async fn login_token(&self) -> String {
        let link = self.hub.login_link(&self.owner, LoginLinkRequest::default()).await.unwrap();
        link.url.split_once("token=").unwrap().1.to_owned()
    }

    pub(crate) async fn agent(&self, name: &str) -> Account {
        let request = AccountRequest {
            name: Some(name.to_owned()),
            description: Some("Writes and tests code".to_owned()),
            ..AccountRequest::default()
        };
        self.hub.create_account(&self.owner, request).await.unwrap()
    }

    pub(crate) async fn pair(&self, agent: &str, device: &str, host: &str) -> ConsoleDevice {
        let code = self.hub.create_pairing_code(&self.owner, agent).await.unwrap().pairing_code;
        self.join(&code, device, host).await
    }

    pub(crate) async fn join(&self, code: &str, device: &str, host: &str) -> ConsoleDevice {
        let request = AttachRequest {
            pairing_token: Secret::new(code.to_owned()),
            device_name: Some(device.to_owned()),
            labels: Some(Json::of(&std::collections::BTreeMap::from([("host_type", host)]))),
        };
        let attached = self.hub.attach(LOCAL, request).await.unwrap();
        let principal = self.hub.authenticate_runtime(&attached.runtime_token).await.unwrap();
        self.hub.heartbeat(&principal, HeartbeatRequest::default()).await.unwrap();
        ConsoleDevice { hub: self.hub.clone(), principal, agent: attached.agent_id.to_string() }
    }

    pub(crate) async fn ask(&self, agent: &str, text: &str) -> RunId {
        self.ask_with(&self.owner, agent, text, CreateRunRequest::default()).await
    }

    /// Creates a run as another principal or with other options.
    pub(crate) async fn ask_with(&self, by: &Principal, agent: &str, text: &str, rest: CreateRunRequest) -> RunId {
        let request = CreateRunRequest {
            agent_id: agent.to_owned(),
            input: Some(Json::of(&std::collections::BTreeMap::from([("text", text)]))),
            ..rest
        };
        match self.hub.create_run(by, request, CallHeaders::default()).await.unwrap() {
            CreatedRun::New(run) | CreatedRun::Existing(run) => run.task_run_id,
        }
    }
}

// === impl TestVisitor ===

impl TestVisitor {
    pub(crate) async fn get(&self, path: &str) -> PageAnswer {
        self.send(Request::get(path), Body::empty()).await
    }

    /// Submits a form with the session's CSRF token.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> PageAnswer {
        let page = self.get("/settings").await;
        let token = between(&page.body, "name=\"csrf\" value=\"", "\"").to_owned();
        let mut fields = fields.to_vec();
        fields.push(("csrf", &token));
        self.post_bare(path, &fields, &[]).await
    }

    pub(crate) async fn post_bare(&self, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> PageAnswer {
        let body: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request, Body::from(body.join("&"))).await
    }

    pub(crate) async fn send(&self, request: axum::http::request::Builder, body: Body) -> PageAnswer {
        let request = request.header(header::COOKIE, self.cookie()).header(header::HOST, "127.0.0.1:7800");
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&bytes).into_owned();
        PageAnswer { status: parts.status, headers: parts.headers, body, bytes: bytes.into() }
    }

    /// What it sends of its cookies.
    pub(crate) fn cookie(&self) -> String {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        cookies.join("; ")
    }

    /// The visitor's principal.
    pub(crate) async fn principal(&self, world: &ConsoleWorld) -> Principal {
        let (_, secret) = self.cookies.iter().find(|(name, _)| name == "attache_session").unwrap();
        world.hub.authenticate_session(secret).await.unwrap()
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.cookies.retain(|(known, _)| known != name);
        self.cookies.push((name.to_owned(), value.to_owned()));
    }

    /// Stores the cookies of a response.
    pub(crate) fn keep(&mut self, answer: &PageAnswer) {
        for cookie in answer.headers.get_all(header::SET_COOKIE) {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.set(name, value);
        }
    }
}

// === impl PageAnswer ===

impl PageAnswer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

// === impl ConsoleDevice ===

impl ConsoleDevice {
    /// Sends a heartbeat with the running and the unaccepted runs.
    pub(crate) async fn beat(&self, running: Vec<RunId>, unreported: Vec<RunId>) {
        let request = HeartbeatRequest { running: Some(running), unreported, ..HeartbeatRequest::default() };
        self.hub.heartbeat(&self.principal, request).await.unwrap();
    }

    /// The id of its agent.
    pub(crate) fn agent_id(&self) -> String {
        self.agent.clone()
    }

    /// Reports the sessions of its host: ids and titles, newest first.
    pub(crate) async fn keep_sessions(&self, kept: &[(&str, &str)]) {
        let session = |(id, title): &(&str, &str)| HostSession {
            session_id: (*id).to_owned(),
            title: (*title).to_owned(),
            updated_at: self.hub.now(),
            folder: "/home/ada/site".to_owned(),
            command: format!("cd /home/ada/site && claude --resume {id}"),
            conversation_id: None,
        };
        let host_sessions = kept.iter().map(session).collect();
        let request = HeartbeatRequest { host_sessions, ..HeartbeatRequest::default() };
        self.hub.heartbeat(&self.principal, request).await.unwrap();
    }

    /// What its agent can do.
    pub(crate) async fn declares(&self, extensions: &[&str]) {
        let extensions = Some(extensions.iter().copied().map(DeclaredExtension::new).collect());
        let request = HeartbeatRequest { extensions, ..HeartbeatRequest::default() };
        self.hub.heartbeat(&self.principal, request).await.unwrap();
    }

    /// Claims the next run of the agent.
    pub(crate) async fn claim(&self) -> RunId {
        self.claim_whole().await.task_run_id
    }

    /// The same, with everything that the device is told.
    pub(crate) async fn claim_whole(&self) -> ClaimedRun {
        let enforces = SandboxLimit::ALL.to_vec();
        let pulled = self.hub.pull_enforcing(&self.principal, &self.agent, Duration::ZERO, enforces).await.unwrap();
        pulled.delivered().expect("a run waits")
    }

    pub(crate) async fn say(&self, run: RunId, text: &str) {
        let request = ProgressRequest { chunk: Some(Json::of(text)), ..ProgressRequest::default() };
        self.hub.progress(&self.principal, run, request).await.unwrap();
    }

    pub(crate) async fn report(&self, run: RunId, request: ProgressRequest) {
        self.hub.progress(&self.principal, run, request).await.unwrap();
    }

    /// Requests permission. The run waits from then on.
    pub(crate) async fn ask(&self, run: RunId, request: CreatePermissionRequest) -> PermissionRequest {
        self.hub.request_permission(&self.principal, run, request, None).await.unwrap()
    }

    /// The current answer to a permission request.
    pub(crate) async fn answer(&self, run: RunId, request: &PermissionRequest) -> PermissionAnswer {
        let id = request.permission_request_id;
        self.hub.permission_answer(&self.principal, run, id, Duration::ZERO).await.unwrap()
    }

    /// Asks the caller a question.
    pub(crate) async fn wonder(&self, run: RunId, prompt: &str) -> InputAnswer {
        self.wonder_with(run, prompt, None).await
    }

    pub(crate) async fn wonder_with(&self, run: RunId, prompt: &str, parts: Option<Json>) -> InputAnswer {
        let request = CreateInputRequest { epoch: None, prompt: prompt.to_owned(), parts, request_id: None };
        self.hub.request_input(&self.principal, run, request).await.unwrap()
    }

    /// Opens a channel, as a transport would.
    pub(crate) async fn open_channel(&self, world: &ConsoleWorld) -> ChannelRecord {
        let page = PageRequest::default();
        let runtimes = world.hub.runtimes(&world.owner, Some(&self.agent), page).await.unwrap().agent_runtimes;
        let (runtime, agent) = (runtimes[0].runtime_id, &self.agent);
        let channel = NewChannel {
            id: self.hub.env().channel_id(),
            node: None,
            transport: Transport::Websocket,
            peer_role: PeerRole::RemoteRuntime,
            account_ref: format!("agent:{agent}"),
            runtime: Some(runtime),
            capabilities: Json::of(&["streaming", "resume", "permissions"]),
            native_protocol: Some("attache.envelope.v1".to_owned()),
            tools: Json::from_text(
                r#"[{"name":"search","description":"Looks things up","input_schema":{"type":"object"}}]"#,
            )
            .unwrap(),
            device_info: Some(Json::from_text(r#"{"os":"linux"}"#).unwrap()),
            address: Some("192.0.2.7".to_owned()),
            resume: Kind::Resume.generate(self.hub.env()).hash(),
            running: None,
        };
        let context = WriteContext::new(world.owner.tenant, self.principal.actor(), self.hub.now());
        world.store.open_channel(context, channel).await.unwrap()
    }

    pub(crate) async fn complete(&self, run: RunId, text: &str) {
        self.complete_for(run, text, None).await;
    }

    /// Completes a run with usage, as JSON.
    pub(crate) async fn complete_for(&self, run: RunId, text: &str, usage: Option<&str>) {
        let output = Json::of(&std::collections::BTreeMap::from([("text", text)]));
        let usage = usage.map(|usage| Json::from_text(usage).unwrap());
        let request = CompleteRequest { epoch: None, output, usage, inputs_taken: None };
        self.hub.complete(&self.principal, run, request).await.unwrap();
    }

    pub(crate) async fn fail(&self, run: RunId, error: &str, code: &str) {
        let output = Json::of(&std::collections::BTreeMap::from([("error", error), ("code", code)]));
        let request = attache_protocol::wire::run::FailRequest { epoch: None, output, usage: None, inputs_taken: None };
        self.hub.fail(&self.principal, run, request).await.unwrap();
    }
}

/// A permission request. `input` is JSON.
pub(crate) fn asking(tool: &str, input: &str) -> CreatePermissionRequest {
    CreatePermissionRequest {
        epoch: None,
        tool: tool.to_owned(),
        input: Json::from_text(input).unwrap(),
        cwd: Some("/home/dev/parser".to_owned()),
        paths: vec!["/home/dev/parser/src".to_owned()],
        reason: Some("the tests want it".to_owned()),
        risk: Some("high".to_owned()),
        diff: None,
        undisclosed: Vec::new(),
        assured: Vec::new(),
        request_id: None,
    }
}

pub(crate) fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let start = text.find(before).unwrap_or_else(|| panic!("{before} is not in {text}")) + before.len();
    let end = text[start..].find(after).unwrap() + start;
    &text[start..end]
}

pub(crate) fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
