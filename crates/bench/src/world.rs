//! A store with agents and paired runtimes to drive, in a scratch folder that is removed afterwards.

use std::{
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use attache_protocol::{
    AgentId, Json, RuntimeId, Secret, TenantId,
    env::Env,
    rules::run::RunLimits,
    secret::{Kind, SecretHash},
    wire::account::{ApprovalConfirmation, Callers, OnLimit},
};
use attache_store::{
    Store, WriteContext,
    record::{
        AgentRef, ArchivedNames, NewAccount, NewPairingCode, NewRun, NewRuntime, PairingProof, RunSpec, RuntimeKind,
    },
    sql::SqlStore,
};

use super::{BenchResult, load::INPUT_BYTES};

/// A folder for the databases of one benchmark.
#[derive(Debug)]
pub(super) struct BenchFolder(PathBuf);

/// One agent, and the runtime that pulls for it.
#[derive(Debug, Clone)]
pub(super) struct BenchAgent {
    pub(super) agent: AgentId,
    pub(super) runtime: RuntimeId,
    pub(super) token: Secret<String>,
}

#[derive(Debug, Clone)]
pub(super) struct BenchWorld {
    pub(super) env: Env,
    pub(super) store: Arc<SqlStore>,
    pub(super) tenant: TenantId,
    pub(super) queues: Vec<BenchAgent>,
}

// === impl BenchFolder ===

impl BenchFolder {
    pub(super) fn make(parent: Option<&Path>) -> BenchResult<Self> {
        let name = format!("attache-bench-{}", Env::system().uuid().simple());
        let folder = parent.map_or_else(std::env::temp_dir, Path::to_owned).join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    pub(super) fn folder(&self, name: &str, round: usize) -> BenchResult<PathBuf> {
        let folder = self.0.join(format!("{name}-{round}"));
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// === impl BenchWorld ===

impl BenchWorld {
    pub(super) async fn make(folder: &Path, queues: usize) -> BenchResult<Self> {
        Self::of_tenant(folder, "bench", queues).await
    }

    /// The database of a hub that hasn't been started yet.
    pub(super) async fn of_hub(folder: &Path, queues: usize) -> BenchResult<Self> {
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
        Self::of_tenant(folder, "default", queues).await
    }

    async fn of_tenant(folder: &Path, tenant: &str, queues: usize) -> BenchResult<Self> {
        let env = Env::system();
        let store = Arc::new(SqlStore::open(&folder.join("hub.db"))?);
        let tenant = store.ensure_tenant(env.tenant_id(), tenant, env.now()).await?;
        let mut world = Self { env, store, tenant, queues: Vec::new() };
        for number in 0..queues {
            let queue = world.pair(number).await?;
            world.queues.push(queue);
        }
        Ok(world)
    }

    async fn pair(&self, number: usize) -> BenchResult<BenchAgent> {
        let (agent, runtime) = (self.env.agent_id(), self.env.runtime_id());
        let account = NewAccount {
            archived_names: ArchivedNames::Own,
            author: None,
            approvals: None,
            id: agent,
            name: format!("bench-{number}"),
            description: None,
            instructions: None,
            skills: Json::from_text("[]")?,
            a2a: None,
            callers: Callers::Everyone,
            run_timeout: None,
            on_limit: OnLimit::default(),
            confirm_approvals: ApprovalConfirmation::default(),
        };
        self.store.create_account(self.context(), account).await?;
        let code = SecretHash::of(&format!("code {number}"));
        let expires_at = self.env.now().plus(Duration::from_secs(600));
        let new = NewPairingCode { maker: None, agent: AgentRef::Id(agent), code, expires_at };
        self.store.create_pairing_code(self.context(), new).await?;
        let token = Kind::RuntimeToken.generate(&self.env);
        let new = NewRuntime {
            kind: RuntimeKind::Device,
            id: runtime,
            token: token.hash(),
            proof: PairingProof::Code(code),
            paired_by: None,
            device_name: Some("bench".to_owned()),
            labels: Json::empty_object(),
        };
        self.store.attach_runtime(new, self.env.now()).await?;
        Ok(BenchAgent { agent, runtime, token })
    }

    pub(super) fn context(&self) -> WriteContext {
        WriteContext::new(self.tenant, WriteContext::SYSTEM, self.env.now())
    }

    pub(super) fn new_run(&self, agent: AgentId, keyed: IdempotencyMode) -> NewRun {
        let mut random = [0; 16];
        self.env.fill(&mut random);
        NewRun {
            push: None,
            follow: None,
            id: self.env.run_id(),
            agent: AgentRef::Id(agent),
            conversation: None,
            opens_conversation: false,
            payer: None,
            limits: RunLimits {
                max_attempts: 1,
                timeout: Duration::from_secs(3600),
                queue_ttl: Duration::from_secs(86_400),
            },
            approval: None,
            idempotency_key: match keyed {
                IdempotencyMode::Yes => Some(random),
                IdempotencyMode::No => None,
            },
            request_digest: random,
            spec: RunSpec::new("prompt", input()),
        }
    }
}

/// Whether runs are created with an idempotency key.
#[derive(Debug, Clone, Copy)]
pub(super) enum IdempotencyMode {
    Yes,
    No,
}

pub(super) fn input() -> Json {
    text_of(INPUT_BYTES)
}

/// `{"text":"…"}` with this many bytes.
pub(super) fn text_of(bytes: usize) -> Json {
    Json::of(&attache_protocol::wire::adapter::AdapterText { text: "x".repeat(bytes - r#"{"text":""}"#.len()) })
}
