//! Time, randomness and ids, through one small handle: real in production, paused and seeded in tests.

use std::{
    fmt,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::{
    id::{
        AgentId, ArtifactId, AskId, ChannelId, ConversationId, GrantId, InputId, KeyId, MessageId, PermissionId, RunId,
        RuntimeId, TenantId, TunnelId, UserId,
    },
    time::Timestamp,
};

/// Where the current time, random bytes and new ids come from.
#[derive(Clone)]
pub struct Env(Source);

#[derive(Clone)]
enum Source {
    System,
    Seeded(Arc<Mutex<Seeded>>),
}

struct Seeded {
    now: Timestamp,
    awake: Duration,
    random: blake3::OutputReader,
}

/// From when on the machine's waking time is counted.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

// === impl Env ===

impl Env {
    /// The machine's clock and random source.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still until it is moved, and randomness that repeats for the same seed.
    pub fn seeded(seed: u64) -> Self {
        let random = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
        let now = Timestamp::from_millis(1_700_000_000_000);
        Self(Source::Seeded(Arc::new(Mutex::new(Seeded { now, awake: Duration::ZERO, random }))))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Source::Seeded(seeded) => seeded.lock().unwrap_or_else(PoisonError::into_inner).now,
        }
    }

    /// How long the machine has been awake, counted from some moment on: unlike `now` it stands still while the machine is
    /// suspended, and nobody sets it.
    pub fn awake(&self) -> Duration {
        match &self.0 {
            Source::System => BEGAN.elapsed(),
            Source::Seeded(seeded) => seeded.lock().unwrap_or_else(PoisonError::into_inner).awake,
        }
    }

    /// Moves a seeded clock forward; a system clock moves by itself.
    pub fn advance(&self, by: Duration) {
        if let Source::Seeded(seeded) = &self.0 {
            let mut seeded = seeded.lock().unwrap_or_else(PoisonError::into_inner);
            seeded.now = seeded.now.plus(by);
            seeded.awake += by;
        }
    }

    /// Moves a seeded clock forward as that of a machine that was suspended meanwhile.
    pub fn suspend(&self, by: Duration) {
        if let Source::Seeded(seeded) = &self.0 {
            let mut seeded = seeded.lock().unwrap_or_else(PoisonError::into_inner);
            seeded.now = seeded.now.plus(by);
        }
    }

    pub fn fill(&self, bytes: &mut [u8]) {
        match &self.0 {
            Source::System => getrandom::fill(bytes).expect("the operating system always has randomness"),
            Source::Seeded(seeded) => seeded.lock().unwrap_or_else(PoisonError::into_inner).random.fill(bytes),
        }
    }

    /// A time-ordered uuid (version 7).
    pub fn uuid(&self) -> Uuid {
        let mut random = [0; 10];
        self.fill(&mut random);
        let millis = u64::try_from(self.now().millis()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    pub fn tenant_id(&self) -> TenantId {
        TenantId::from_uuid(self.uuid())
    }

    pub fn agent_id(&self) -> AgentId {
        AgentId::from_uuid(self.uuid())
    }

    pub fn runtime_id(&self) -> RuntimeId {
        RuntimeId::from_uuid(self.uuid())
    }

    pub fn run_id(&self) -> RunId {
        RunId::from_uuid(self.uuid())
    }

    pub fn conversation_id(&self) -> ConversationId {
        ConversationId::from_uuid(self.uuid())
    }

    pub fn artifact_id(&self) -> ArtifactId {
        ArtifactId::from_uuid(self.uuid())
    }

    pub fn message_id(&self) -> MessageId {
        MessageId::from_uuid(self.uuid())
    }

    pub fn user_id(&self) -> UserId {
        UserId::from_uuid(self.uuid())
    }

    pub fn key_id(&self) -> KeyId {
        KeyId::from_uuid(self.uuid())
    }

    pub fn channel_id(&self) -> ChannelId {
        ChannelId::from_uuid(self.uuid())
    }

    pub fn permission_id(&self) -> PermissionId {
        PermissionId::from_uuid(self.uuid())
    }

    pub fn grant_id(&self) -> GrantId {
        GrantId::from_uuid(self.uuid())
    }

    pub fn ask_id(&self) -> AskId {
        AskId::from_uuid(self.uuid())
    }

    pub fn input_id(&self) -> InputId {
        InputId::from_uuid(self.uuid())
    }

    pub fn tunnel_id(&self) -> TunnelId {
        TunnelId::from_uuid(self.uuid())
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System => "Env::system",
            Source::Seeded(_) => "Env::seeded",
        })
    }
}
