//! Time, randomness and ids through one handle: real in production, paused and seeded in tests.

use std::{
    fmt,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::{
    clock::{MachineClocks, SteadyClock},
    id::{
        AgentId, ArtifactId, ChannelId, ConversationId, GrantId, InputId, KeyId, MessageId, NodeId,
        NotificationTargetId, PasskeyId, PermissionId, RunId, RuntimeId, TenantId, TunnelId, UserId, WorkerRequestId,
    },
    time::Timestamp,
};

/// The source of the current time, random bytes and new ids.
#[derive(Clone)]
pub struct Env(EnvSource);

#[derive(Clone)]
enum EnvSource {
    System,
    Seeded(Arc<Mutex<SeededEnv>>),
}

struct SeededEnv {
    clocks: MachineClocks,
    steady: SteadyClock,
    random: blake3::OutputReader,
}

/// The start of the machine's awake time.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
/// This process's clock.
static STEADY: Mutex<SteadyClock> = Mutex::new(SteadyClock::new());

// === impl Env ===

impl Env {
    /// The machine's clock and random source.
    pub const fn system() -> Self {
        Self(EnvSource::System)
    }

    /// A clock that stands still until it is advanced, and repeatable randomness per seed.
    pub fn seeded(seed: u64) -> Self {
        let random = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
        let clocks = MachineClocks { wall: Timestamp::from_millis(1_700_000_000_000), ..MachineClocks::default() };
        let mut steady = SteadyClock::new();
        steady.now(clocks);
        Self(EnvSource::Seeded(Arc::new(Mutex::new(SeededEnv { clocks, steady, random }))))
    }

    /// The time, from a clock that only moves forward: it starts from the machine's clock and advances with elapsed
    /// time. Setting the machine's clock doesn't move it; see [`SteadyClock`].
    pub fn now(&self) -> Timestamp {
        self.with_clock(SteadyClock::now)
    }

    /// The machine's own clock, for comparing it with a peer's.
    pub fn wall(&self) -> Timestamp {
        self.with_clock(|_, clocks| clocks.wall)
    }

    /// How many milliseconds the machine's clock is ahead of [`Self::now`] because it was set. `None` if they agree.
    pub fn clock_set_by(&self) -> Option<i64> {
        self.with_clock(|steady, clocks| steady.set_by(clocks))
    }

    /// Moves the clock to at least this time, because something is known to have happened then.
    pub fn not_before(&self, at: Timestamp) {
        self.with_clock(|steady, clocks| steady.not_before(at, clocks));
    }

    fn with_clock<T>(&self, read: impl FnOnce(&mut SteadyClock, MachineClocks) -> T) -> T {
        match &self.0 {
            EnvSource::System => {
                read(&mut STEADY.lock().unwrap_or_else(PoisonError::into_inner), MachineClocks::of_machine())
            }
            EnvSource::Seeded(seeded) => {
                let mut seeded = seeded.lock().unwrap_or_else(PoisonError::into_inner);
                let clocks = seeded.clocks;
                read(&mut seeded.steady, clocks)
            }
        }
    }

    /// How long the machine has been awake, from an arbitrary moment. Unlike `now`, it stands still during suspend and
    /// can't be set.
    pub fn awake(&self) -> Duration {
        match &self.0 {
            EnvSource::System => BEGAN.elapsed(),
            EnvSource::Seeded(seeded) => seeded.lock().unwrap_or_else(PoisonError::into_inner).clocks.awake,
        }
    }

    /// Advances a seeded clock. A system clock advances on its own.
    pub fn advance(&self, by: Duration) {
        self.move_clocks(|clocks| {
            clocks.wall = clocks.wall.plus(by);
            clocks.up += by;
            clocks.awake += by;
        });
    }

    /// Advances a seeded clock as if the machine had been suspended.
    pub fn suspend(&self, by: Duration) {
        self.move_clocks(|clocks| {
            clocks.wall = clocks.wall.plus(by);
            clocks.up += by;
        });
    }

    /// Sets a seeded machine's clock by so many milliseconds, as a person or time server does.
    pub fn set_clock(&self, by_millis: i64) {
        self.move_clocks(|clocks| clocks.wall = Timestamp::from_millis(clocks.wall.millis() + by_millis));
    }

    fn move_clocks(&self, change: impl FnOnce(&mut MachineClocks)) {
        if let EnvSource::Seeded(seeded) = &self.0 {
            change(&mut seeded.lock().unwrap_or_else(PoisonError::into_inner).clocks);
        }
    }

    pub fn fill(&self, bytes: &mut [u8]) {
        match &self.0 {
            EnvSource::System => getrandom::fill(bytes).expect("the operating system always has randomness"),
            EnvSource::Seeded(seeded) => seeded.lock().unwrap_or_else(PoisonError::into_inner).random.fill(bytes),
        }
    }

    /// So many random bytes, as hexadecimal digits.
    pub fn random_hex<const BYTES: usize>(&self) -> String {
        let mut bytes = [0; BYTES];
        self.fill(&mut bytes);
        crate::digest::hex(&bytes)
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

    pub fn node_id(&self) -> NodeId {
        NodeId::from_uuid(self.uuid())
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

    pub fn worker_request_id(&self) -> WorkerRequestId {
        WorkerRequestId::from_uuid(self.uuid())
    }

    pub fn input_id(&self) -> InputId {
        InputId::from_uuid(self.uuid())
    }

    pub fn tunnel_id(&self) -> TunnelId {
        TunnelId::from_uuid(self.uuid())
    }

    pub fn passkey_id(&self) -> PasskeyId {
        PasskeyId::from_uuid(self.uuid())
    }

    pub fn notification_target_id(&self) -> NotificationTargetId {
        NotificationTargetId::from_uuid(self.uuid())
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            EnvSource::System => "Env::system",
            EnvSource::Seeded(_) => "Env::seeded",
        })
    }
}
