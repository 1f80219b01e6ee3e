//! A complete hub in this process, called with no checks or with all of them.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use attache_client::{HubClient, HubClientOptions, HubCredential};
use attache_hub::{Hub, Options};
use attache_protocol::{
    Secret,
    env::Env,
    rules::quota::QuotaLimits,
    secret::Kind,
    wire::{
        access::SetAccessRules,
        call::{CallResult, CallStarted, CallStatus},
        channel::RegisterAgent,
        key::{KeyScope, Role},
    },
};
use attache_store::{
    Store, WriteContext,
    record::{NewKey, quota::QuotaTarget, user::NewUser},
    sql::SqlStore,
};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::worker::EchoWorker;
use crate::{
    BenchResult,
    http_connection::HttpConnection,
    load::{self, INPUT_BYTES, LoadCaller, LoadMeasurement},
};

pub(super) const CALL: &str = "/api/a2a/call";
/// Callers share this many agents.
const AGENTS: usize = 8;
/// A limit that is checked but never reached.
const UNREACHED_QUOTA: u64 = 1 << 40;

/// The checks between a caller and an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallChecks {
    /// An owner's key that belongs to no user.
    None,
    /// A registered agent calls on behalf of its user: rules, four quotas, a rate limit. Some callers have keys with
    /// scopes.
    All,
}

struct HubCallCaller {
    connection: HttpConnection,
    bearer: String,
    body: String,
}

#[derive(Serialize)]
struct BenchCallBody<'a> {
    task: &'a str,
    agent_type: &'a str,
}

pub(super) async fn drive(
    folder: &Path,
    callers: usize,
    time: Duration,
    checks: CallChecks,
) -> BenchResult<LoadMeasurement> {
    let env = Env::system();
    let store = Arc::new(SqlStore::open(&folder.join("hub.db"))?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let options = checks.options(Options::new(folder.join("data"), address));
    let hub = Hub::start(options, Arc::clone(&store) as Arc<dyn Store>, env.clone()).await?;
    let tenant = store.ensure_tenant(env.tenant_id(), "bench", env.now()).await?;
    let owner = Secret::new(std::fs::read_to_string(folder.join("data/admin.key"))?.trim().to_owned());
    let stop = CancellationToken::new();
    let router = attache_hub::router(hub.clone());
    let server = tokio::spawn(attache_hub::serve(listener, router, hub, stop.clone().cancelled_owned()));

    let context = WriteContext::new(tenant, WriteContext::SYSTEM, env.now());
    let keys = checks.prepare(&*store, &context, &env, &owner, address).await?;
    let mut workers = Vec::with_capacity(AGENTS);
    for number in 0..AGENTS {
        let key = register(address, &owner, &agent(number)).await?;
        workers.push(EchoWorker::connect(&format!("http://{address}"), key).await?);
    }
    let mut remotes = Vec::with_capacity(callers);
    for number in 0..callers {
        let bearer = format!("authorization: Bearer {}", keys[number % keys.len()].expose());
        remotes.push(HubCallCaller {
            connection: HttpConnection::connect(address).await?,
            bearer,
            body: body(&agent(number % AGENTS)),
        });
    }
    let measured = load::drive(remotes, time).await?;
    for worker in workers {
        worker.close().await;
    }
    stop.cancel();
    server.await?;
    Ok(measured)
}

pub(super) fn body(agent: &str) -> String {
    attache_protocol::Json::of(&BenchCallBody { task: &"x".repeat(INPUT_BYTES), agent_type: agent }).get().to_owned()
}

fn agent(number: usize) -> String {
    format!("bench-{number}")
}

fn client(address: SocketAddr, key: &Secret<String>) -> BenchResult<HubClient> {
    let options = HubClientOptions::new(format!("http://{address}"), HubCredential::Key(key.clone()));
    Ok(HubClient::new(options)?)
}

async fn register(address: SocketAddr, key: &Secret<String>, name: &str) -> BenchResult<Secret<String>> {
    let request = RegisterAgent {
        agent_id: Some(name.to_owned()),
        capabilities: None,
        device_info: None,
        url: None,
        pairing_token: None,
    };
    Ok(client(address, key)?.register_agent(&request).await?.api_key)
}

// === impl CallChecks ===

impl CallChecks {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::All => "checked",
        }
    }

    fn options(self, options: Options) -> Options {
        match self {
            Self::None => options,
            Self::All => Options { requests_per_minute: Some(u32::MAX), ..options },
        }
    }

    /// Creates the callers' keys, and what is checked when they are used.
    async fn prepare(
        self,
        store: &dyn Store,
        context: &WriteContext,
        env: &Env,
        owner: &Secret<String>,
        address: SocketAddr,
    ) -> BenchResult<Vec<Secret<String>>> {
        if self == Self::None {
            return Ok(vec![owner.clone()]);
        }
        let user = NewUser { id: env.user_id(), name: "ann".to_owned(), role: Role::Operator, password: None };
        let user = store.create_user(context.clone(), user).await?.id;
        let limits = QuotaLimits {
            calls: Some(UNREACHED_QUOTA),
            tokens: Some(UNREACHED_QUOTA),
            micro_usd: Some(UNREACHED_QUOTA),
        };
        store.set_quota(context.clone(), QuotaTarget::default(), limits).await?;
        store.set_quota(context.clone(), QuotaTarget { user: Some(user), agent: None }, limits).await?;
        let secret = Kind::ApiKey.generate(env);
        let key = NewKey {
            id: env.key_id(),
            opening: None,
            issuer: None,
            agent: None,
            name: "bench".to_owned(),
            role: Role::Operator,
            user: Some(user),
            scopes: Some(vec![KeyScope::Read, KeyScope::Call, KeyScope::Manage]),
            secret: secret.hash(),
            expires_at: None,
        };
        store.create_key(context.clone(), key).await?;
        let caller = register(address, &secret, "caller").await?;
        let rules = "agents:\n  caller:\n    can_access:\n      - agents/bench-*\n      - conversations/ann/*\n    \
                     cannot_access:\n      - conversations/other_users/*\n      - agents/*/memory/*\n";
        let rules = SetAccessRules { text: rules.to_owned(), version: None };
        client(address, owner)?.set_access_rules(&rules).await?;
        Ok(vec![secret, caller])
    }
}

// === impl HubCallCaller ===

impl LoadCaller for HubCallCaller {
    async fn cycle(&mut self) -> BenchResult<()> {
        let started: CallStarted = serde_json::from_slice(self.connection.post(CALL, &self.bearer, &self.body).await?)?;
        let path = format!("/api/a2a/result/{}?wait_ms=20000", started.call_id);
        let result: CallResult = serde_json::from_slice(self.connection.get(&path, &self.bearer).await?)?;
        match result.status {
            CallStatus::Completed => Ok(()),
            status => Err(format!("a call is {status:?}: {:?}", result.error).into()),
        }
    }
}
